//! Small networks for tests.

use weft_sim::net::{
    Algorithm, Backlog, Discipline, DropReason, Dropped, Drops, Dumbbell, FlowId, FlowSpec, Item, LinkSpec,
    Net, SenderSpec, Workload, twins::Fifo,
};

/// Nanoseconds per millisecond, and per second.
pub(crate) const MS: u64 = 1_000_000;
pub(crate) const S: u64 = 1_000_000_000;

/// An endless flow.
pub(crate) fn endless(ends: &Dumbbell, sender: SenderSpec) -> FlowSpec {
    with(ends, sender, Workload::Endless)
}

/// A flow with a workload.
pub(crate) fn with(ends: &Dumbbell, sender: SenderSpec, workload: Workload) -> FlowSpec {
    FlowSpec {
        forward: vec![ends.bottleneck],
        back: vec![ends.back],
        sender,
        workload,
        class: 0,
        start_ns: 0,
    }
}

/// A sender with this algorithm and defaults otherwise.
pub(crate) fn sender(algorithm: Algorithm) -> SenderSpec {
    SenderSpec { algorithm, ..SenderSpec::default() }
}

/// The rates of flows between two times, in bits per second; advances time.
pub(crate) fn rates(net: &mut Net, flows: &[FlowId], from_ns: u64, to_ns: u64) -> Vec<f64> {
    let received = |net: &Net| flows.iter().map(|flow| net.flow(*flow).received_bytes).collect::<Vec<_>>();
    net.run_until(from_ns);
    let before = received(net);
    net.run_until(to_ns);
    net.conservation().unwrap();
    let seconds = (to_ns - from_ns) as f64 / 1e9;
    received(net).iter().zip(before).map(|(after, before)| (after - before) as f64 * 8.0 / seconds).collect()
}

/// A path that drops one segment in `period`, and otherwise only delays: the model of published response functions. Its
/// rate is high enough to avoid queueing.
pub(crate) fn lossy(net: &mut Net, rtt_ns: u64, period: u64) -> Dumbbell {
    let queue = Box::new(EveryNth { inner: Fifo::new(1 << 20), period, seen: 0, drops: Drops::default() });
    Dumbbell::new(net, LinkSpec::fixed(100_000_000_000, rtt_ns / 2), queue, rtt_ns / 2)
}

/// A queue that drops each nth item.
struct EveryNth {
    inner: Fifo,
    period: u64,
    seen: u64,
    drops: Drops,
}

impl Discipline for EveryNth {
    fn enqueue(&mut self, item: Item, now_ns: u64) {
        self.seen += 1;
        if self.seen.is_multiple_of(self.period) {
            self.drops.push(item, DropReason::Full);
        } else {
            self.inner.enqueue(item, now_ns);
        }
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        self.inner.dequeue(now_ns)
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        self.drops.poll()
    }

    fn backlog(&self) -> Backlog {
        self.inner.backlog()
    }
}
