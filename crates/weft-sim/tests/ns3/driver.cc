// Runs the operations in a file on an ns-3 queue disc, and writes the sent and dropped items; see tests/it/ns3.rs.
#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace ns3;

// An item with a number; its hash is its flow.
class Numbered : public QueueDiscItem {
public:
  Numbered(Ptr<Packet> packet, uint64_t id, uint32_t flow)
      : QueueDiscItem(packet, Address(), 0), id(id), flow(flow) {}
  void AddHeader() override {}
  bool Mark() override { return false; }
  uint32_t Hash(uint32_t) const override { return flow; }

  uint64_t id;
  uint32_t flow;
};

struct Call {
  uint64_t now;
  char kind;
  uint64_t id;
  uint32_t len, flow;
};

static std::vector<Call> calls;
static size_t at = 0;
static Ptr<QueueDisc> queue;
static FILE *answer;
// The number of flows that share the source of random numbers.
static size_t shared = 0;

// PIE declares this ns-3 test a friend. It gives all instances one source of random numbers.
class PieQueueDiscTestCase {
public:
  static void Share(Ptr<QueueDisc> disc, Ptr<UniformRandomVariable> draws) {
    DynamicCast<PieQueueDisc>(disc)->m_uv = draws;
  }
};

static Ptr<UniformRandomVariable> draws;

static Ptr<UniformRandomVariable> Draws() {
  auto made = CreateObject<UniformRandomVariable>();
  made->SetStream(7);
  return made;
}

static void Tell(const char *what, Ptr<const QueueDiscItem> item) {
  auto numbered = dynamic_cast<const Numbered *>(PeekPointer(item));
  fprintf(answer, "%llu %s %llu\n", (unsigned long long)Simulator::Now().GetNanoSeconds(), what,
          (unsigned long long)numbered->id);
}

static void Dropped(Ptr<const QueueDiscItem> item, const char *) { Tell("dropped", item); }

static void Step() {
  const Call &call = calls[at++];
  if (call.kind == 'E') {
    queue->Enqueue(Create<Numbered>(Create<Packet>(call.len), call.id, call.flow));
    // A flow's PIE is created with its first packet, which needs no random number.
    for (; shared < queue->GetNQueueDiscClasses() && draws; shared++) {
      PieQueueDiscTestCase::Share(queue->GetQueueDiscClass(shared)->GetQueueDisc(), draws);
    }
  } else if (Ptr<QueueDiscItem> item = queue->Dequeue()) {
    Tell("sent", item);
  }
  if (at < calls.size()) {
    Simulator::Schedule(NanoSeconds(calls[at].now - call.now), &Step);
  } else {
    // Otherwise PIE's timer would run forever.
    Simulator::Stop();
  }
}

static void SetPie(Ptr<QueueDisc> disc, const char *size) {
  disc->SetAttribute("MaxSize", QueueSizeValue(QueueSize(size)));
  disc->SetAttribute("QueueDelayReference", TimeValue(MilliSeconds(15)));
  disc->SetAttribute("MaxBurstAllowance", TimeValue(MilliSeconds(150)));
  disc->SetAttribute("Tupdate", TimeValue(MilliSeconds(15)));
  disc->SetAttribute("A", DoubleValue(0.125));
  disc->SetAttribute("B", DoubleValue(1.25));
}

int main(int, char **args) {
  if (std::string(args[1]) == "draws") {
    FILE *file = fopen(args[3], "w");
    draws = Draws();
    for (long left = atol(args[2]); left > 0; left--) {
      fprintf(file, "%.17g\n", draws->GetValue());
    }
    return fclose(file);
  }
  std::ifstream file(args[2]);
  for (Call call; file >> call.now >> call.kind >> call.id >> call.len >> call.flow;) {
    calls.push_back(call);
  }
  answer = fopen(args[3], "w");
  if (std::string(args[1]) == "codel") {
    auto codel = CreateObject<CoDelQueueDisc>();
    codel->SetAttribute("MinBytes", UintegerValue(1500));
    codel->SetAttribute("MaxSize", QueueSizeValue(QueueSize("1000p")));
    queue = codel;
  } else if (std::string(args[1]) == "pie") {
    queue = CreateObject<PieQueueDisc>();
    SetPie(queue, "1000p");
    PieQueueDiscTestCase::Share(queue, Draws());
  } else if (std::string(args[1]) == "fq_pie") {
    auto flows = CreateObject<FqPieQueueDisc>();
    SetPie(flows, "10240p");
    flows->SetQuantum(1514);
    draws = Draws();
    queue = flows;
  } else if (std::string(args[1]) == "cobalt") {
    auto cobalt = CreateObject<CobaltQueueDisc>();
    cobalt->SetAttribute("MaxSize", QueueSizeValue(QueueSize(args[4])));
    cobalt->AssignStreams(7);
    queue = cobalt;
  } else {
    auto flows = CreateObject<FqCoDelQueueDisc>();
    flows->SetAttribute("MaxSize", QueueSizeValue(QueueSize("10240p")));
    flows->SetQuantum(1514);
    queue = flows;
  }
  queue->Initialize();
  queue->TraceConnectWithoutContext("DropAfterDequeue", MakeCallback(&Dropped));
  queue->TraceConnectWithoutContext("DropBeforeEnqueue", MakeCallback(&Dropped));
  Simulator::Schedule(NanoSeconds(calls[0].now), &Step);
  Simulator::Run();
  fclose(answer);
}
