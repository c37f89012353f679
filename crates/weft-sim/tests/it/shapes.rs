//! Network topologies, and the behaviour of disciplines in them.

use crate::queues::{library_queue, programs};
use crate::rig::{MS, S, endless, rates};
use std::sync::Arc;
use weft_engine::packet::trace::Trace;
use weft_ir::queue::run::Interpreted;
use weft_sim::net::measure::tail;
use weft_sim::net::twins::{CodelSpec, Fifo, FqCodel, Pfabric, Pifo};
use weft_sim::net::{
    Backlog, Discipline, Dropped, Dumbbell, FatTree, FlowId, FlowSpec, Item, LinkId, LinkSpec, Net,
    ParkingLot, Programmed, SenderSpec, Sizes, Workload,
};

fn flow(forward: Vec<LinkId>, back: Vec<LinkId>, workload: Workload) -> FlowSpec {
    FlowSpec { forward, back, sender: SenderSpec::default(), workload, class: 0, start_ns: 0 }
}

/// The share of a flow through three links in a row, beside one other flow on each.
fn long_share(queue: fn() -> Box<dyn Discipline>) -> f64 {
    let mut net = Net::new(1);
    let lot = ParkingLot::new(&mut net, 3, || (LinkSpec::fixed(10_000_000, 5 * MS), queue()), 15 * MS);
    let long = net.add_flow(flow(lot.links.clone(), vec![lot.back], Workload::Endless));
    let others: Vec<FlowId> = lot
        .links
        .iter()
        .map(|link| net.add_flow(flow(vec![*link], vec![lot.back], Workload::Endless)))
        .collect();
    let flows: Vec<FlowId> = core::iter::once(long).chain(others).collect();
    let rates = rates(&mut net, &flows, 10 * S, 60 * S);
    for other in &rates[1..] {
        assert!(rates[0] + other > 8.5e6, "each link is used: {rates:?}");
    }
    rates[0] / 10e6
}

/// If this fails, FIFO queues give a flow through many bottlenecks as much as fair queues. It loses packets at each
/// FIFO queue, and gets its share at each fair queue.
#[test]
fn fair_queue_serves_long_path() {
    let fifo = long_share(|| Box::new(Fifo::new(50)));
    let fair = long_share(|| Box::new(FqCodel::new(CodelSpec::default(), 1024, 1514, 1000)));
    assert!((0.42..0.55).contains(&fair) && fifo < 0.33, "{fair} {fifo}");
}

/// If this fails, a fat tree does not carry what its hosts can send.
#[test]
fn fat_tree_runs_at_full_rate() {
    let mut net = Net::new(1);
    let link = LinkSpec::fixed(100_000_000, 10_000);
    let tree = FatTree::new(&mut net, 4, || (link.clone(), Box::new(Fifo::new(100))));
    // Each host of a pod uses its own core switch, so no two flows share a link.
    let flows: Vec<FlowId> = (0..tree.hosts())
        .map(|host| {
            let (other, choice) = ((host + 4) % tree.hosts(), host as u32 % 4);
            let forward = tree.path(host, other, choice);
            net.add_flow(flow(forward, tree.path(other, host, choice), Workload::Endless))
        })
        .collect();
    let rates = rates(&mut net, &flows, 100 * MS, 500 * MS);
    // Acknowledgements take 4 %, and each flow has a timeout after its slow start.
    assert!(rates.iter().all(|rate| *rate > 85e6), "{rates:?}");
}

/// The 99th percentile of small messages' completion times, beside large ones.
fn small_tail_ms(queue: Box<dyn Discipline>) -> f64 {
    let mut net = Net::new(3);
    let ends = Dumbbell::new(&mut net, LinkSpec::fixed(1_000_000_000, 20_000), queue, 20_000);
    let mut add = |bytes, gap_mean_ns| {
        let workload = Workload::Poisson { sizes: Sizes::Fixed(bytes), gap_mean_ns };
        net.add_flow(flow(vec![ends.bottleneck], vec![ends.back], workload))
    };
    // 640 Mbit/s of large messages, and 32 of small ones.
    for _ in 0..8 {
        add(1_000_000, 100 * MS);
    }
    let small: Vec<FlowId> = (0..8).map(|_| add(10_000, 20 * MS)).collect();
    net.run_until(2 * S);
    net.conservation().unwrap();
    let mut took: Vec<u64> =
        small.iter().flat_map(|flow| net.flow(*flow).completions).map(|done| done.took_ns).collect();
    assert!(took.len() > 600);
    tail(&mut took, 0.99).unwrap() as f64 / 1e6
}

/// If this fails, nearly finished messages wait for others: the claim of pFabric, and of SRPT.
#[test]
fn srpt_favours_short_messages() {
    let fifo = small_tail_ms(Box::new(Fifo::new(1000)));
    let pfabric = small_tail_ms(Box::new(Pfabric::new(1_500_000)));
    let srpt = small_tail_ms(Box::new(Pifo::new(|item| u64::from(item.remaining), 1000)));
    // pFabric serves a whole flow when its last packet is queued; with TCP's windows that is more than it should.
    assert!(srpt < 0.5 && pfabric < 0.75 * fifo, "{fifo} {pfabric} {srpt}");
}

/// If this fails, the link polls a program that holds packets too late, or too often.
#[test]
fn program_shapes_faster_link() {
    let program = library_queue("tbf", " (rate = '5 Mbit/s', burst = '15000 B')");
    let queue = Programmed::new(program.clone(), Interpreted::new(program), 1);
    let mut net = Net::new(1);
    let ends = Dumbbell::new(&mut net, LinkSpec::fixed(100_000_000, 10 * MS), Box::new(queue), 10 * MS);
    let flow = net.add_flow(endless(&ends, SenderSpec::default()));
    let rate = rates(&mut net, &[flow], 2 * S, 12 * S)[0];
    assert!((4.9e6..=5.01e6).contains(&rate), "{rate}");
    assert!(net.events() < 100_000, "{}", net.events());
}

/// If this fails, a program that wants another poll at once makes the clock advance by nanoseconds.
#[test]
fn zero_hold_does_not_stop_clock() {
    for hold in ["HOLD FOR '0 ms'", "IF p.sojourn < '20 ms' THEN HOLD FOR '1 ns'; END IF; SEND"] {
        let text =
            format!("CREATE QUEUE it AS LIMIT 100 PACKETS ON OVERFLOW DROP TAIL; ON DEQUEUE {hold}; END;");
        let program = Arc::new(programs(&text).pop().expect("there is one"));
        let queue = Programmed::new(program.clone(), Interpreted::new(program), 1);
        let mut net = Net::new(1);
        let ends = Dumbbell::new(&mut net, LinkSpec::fixed(10_000_000, MS), Box::new(queue), 10 * MS);
        net.add_flow(endless(&ends, SenderSpec::default()));
        net.run_until(S);
        assert!(net.events() < 1_100_000, "{hold}: {}", net.events());
    }
}

/// If this fails, `link.rate` in a program is not the rate of the simulated link.
#[test]
fn program_reads_link_rate() {
    let every_ms = Arc::new(Trace::parse("1\n2\n3\n4\n5\n").expect("it is a trace"));
    for (spec, rate) in
        [(LinkSpec::fixed(5_000_000, MS), 5_000_000), (LinkSpec::trace(every_ms, MS), 12_000_000)]
    {
        let text = format!(
            "CREATE QUEUE it AS LIMIT 100000 PACKETS ON OVERFLOW DROP TAIL; \
             ON ENQUEUE IF link.rate <> {rate} THEN DROP; END IF; ACCEPT; END;"
        );
        let program = Arc::new(programs(&text).pop().expect("there is one"));
        let queue = Programmed::new(program.clone(), Interpreted::new(program), 1);
        let mut net = Net::new(1);
        let ends = Dumbbell::new(&mut net, spec, Box::new(queue), 10 * MS);
        let flow = net.add_flow(endless(&ends, SenderSpec::default()));
        net.run_until(2 * S);
        assert_eq!(net.link(ends.bottleneck).dropped, 0, "{rate}");
        assert!(net.flow(flow).received > 100, "{rate}");
    }
}

/// Holds everything until a time that has passed.
struct StuckQueue(Fifo);

impl Discipline for StuckQueue {
    fn enqueue(&mut self, item: Item, now_ns: u64) {
        self.0.enqueue(item, now_ns);
    }

    fn dequeue(&mut self, _now_ns: u64) -> Option<Item> {
        None
    }

    fn poll_timeout(&self) -> Option<u64> {
        Some(0)
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        self.0.poll_drop()
    }

    fn backlog(&self) -> Backlog {
        self.0.backlog()
    }
}

/// If this fails, a queue with a senseless timeout stops the simulator's clock.
#[test]
fn stuck_queue_stops_nothing() {
    let mut net = Net::new(1);
    let queue = Box::new(StuckQueue(Fifo::new(100)));
    let ends = Dumbbell::new(&mut net, LinkSpec::fixed(10_000_000, MS), queue, MS);
    let flow = net.add_flow(endless(&ends, SenderSpec::default()));
    net.run_until(100 * MS);
    net.conservation().unwrap();
    assert_eq!(
        (net.now_ns(), net.flow(flow).received, net.backlog(ends.bottleneck).packets),
        (100 * MS, 0, 10)
    );
}
