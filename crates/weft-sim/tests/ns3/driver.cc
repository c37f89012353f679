// Asks a queue disc of ns-3 what a file of calls says, and writes what it sends and drops; see tests/it/ns3.rs.
#include "ns3/core-module.h"
#include "ns3/network-module.h"
#include "ns3/traffic-control-module.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <vector>

using namespace ns3;

// An item with a number; its flow is its hash.
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
  } else if (Ptr<QueueDiscItem> item = queue->Dequeue()) {
    Tell("sent", item);
  }
  if (at < calls.size()) {
    Simulator::Schedule(NanoSeconds(calls[at].now - call.now), &Step);
  }
}

int main(int, char **args) {
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
