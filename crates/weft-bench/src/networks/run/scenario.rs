//! A simulated network with its load, and the outcome with a queue.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use super::meter::{FlowRoute, Meter, Metered, Tally};
use crate::networks::args::{TopologyName, WorkloadName};
use weft_core::rng::Rng;
use weft_sim::net::measure::{Histogram, jain};
use weft_sim::net::silver_bullet::synthetic_trace;
use weft_sim::net::{
    Discipline, Dumbbell, FatTree, FlowId, FlowSpec, LinkId, LinkSpec, Net, ParkingLot, Rate, SenderSpec,
    Sizes, Trace, Workload,
};

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// The number of links of a parking lot.
const LOT_LINKS: usize = 3;
/// Ports of a fat tree's switches, which makes 16 hosts.
const TREE_PORTS: u32 = 4;
/// For web traffic, as in the paper: the bytes that each flow adds to its drawn size, and the mean silence.
const WEB_MORE: u64 = 16_384;
const WEB_OFF_NS: u64 = 200 * MS;
/// For calls: bytes, and the mean time between two.
const RPC_BYTES: u64 = 4_096;
const RPC_GAP_NS: u64 = 50 * MS;
/// The simulated time between two calls of `goes_on`.
const SLICE_NS: u64 = 10 * MS;

/// The speed of the links.
#[derive(Clone)]
pub(super) enum Speed {
    Fixed(u64),
    Trace(Arc<Trace>),
    /// Like LTE, generated from the seed.
    Lte,
}

/// The topology, the load and the duration.
pub(super) struct Scenario {
    pub(super) topology: TopologyName,
    pub(super) speed: Speed,
    /// The delay of each link.
    pub(super) delay_ns: u64,
    pub(super) jitter_ns: u64,
    pub(super) loss: f64,
    pub(super) reorder: f64,
    /// The number of flows of each workload.
    pub(super) flows: Vec<(WorkloadName, u32)>,
    pub(super) sender: SenderSpec,
    pub(super) span_ns: u64,
}

/// The outcome of a run, or of several merged runs.
#[derive(Clone, Default)]
pub(super) struct Outcome {
    pub(super) seeds: u32,
    /// In the order of the scenario.
    pub(super) workloads: Vec<WorkloadResult>,
    /// The number of packets, data and acknowledgements.
    pub(super) packets: u64,
}

/// The outcome of a workload's flows.
#[derive(Clone, Default)]
pub(super) struct WorkloadResult {
    /// For each seed, the sum over its flows.
    pub(super) bits_per_s: Vec<f64>,
    /// For each seed, Jain's index of its flows.
    pub(super) fairness: Vec<f64>,
    /// Round trips, in nanoseconds.
    pub(super) rtt: Histogram,
    /// Completion times of messages, in nanoseconds; unfinished messages count with their time so far.
    pub(super) completions: Histogram,
    pub(super) tally: Tally,
}

/// A network of a scenario.
struct BuiltNetwork {
    net: Net,
    meter: Rc<RefCell<Meter>>,
    /// By workload.
    flows: Vec<Vec<FlowId>>,
}

/// A topology with its links and routes.
enum Shape {
    Dumbbell(Dumbbell),
    ParkingLot(ParkingLot),
    FatTree { tree: FatTree, rng: Rng },
}

impl Scenario {
    /// Runs one seed. `queue` makes the queue of each link by its number. `goes_on` gets the simulated nanoseconds and
    /// packets since its last call; the result is None if it returns false.
    ///
    /// # Errors
    /// Packets do not add up: too many were under way.
    pub(super) fn run(
        &self,
        seed: u64,
        queue: impl FnMut(usize) -> Box<dyn Discipline>,
        mut goes_on: impl FnMut(u64, u64) -> bool,
    ) -> Result<Option<Outcome>, String> {
        let BuiltNetwork { mut net, meter, flows } = self.build(seed, queue);
        let mut packets = 0;
        while net.now_ns() < self.span_ns {
            let slice_ns = SLICE_NS.min(self.span_ns - net.now_ns());
            net.run_until(net.now_ns() + slice_ns);
            if !goes_on(slice_ns, net.packets_made() - packets) {
                return Ok(None);
            }
            packets = net.packets_made();
        }
        net.conservation()?;
        let tallies = std::mem::take(&mut meter.borrow_mut().tallies);
        let of = flows.iter().zip(tallies).map(|(flows, tally)| self.outcome(&net, flows, tally));
        Ok(Some(Outcome { seeds: 1, workloads: of.collect(), packets }))
    }

    /// The rate of its links, in bits a second, if it is fixed.
    pub(super) fn bits_per_s(&self) -> Option<u64> {
        match self.speed {
            Speed::Fixed(bits_per_s) => Some(bits_per_s),
            Speed::Trace(_) | Speed::Lte => None,
        }
    }

    /// Builds the simulated network with metered queues; `queue` makes the queue of a link by number.
    fn build(&self, seed: u64, mut queue: impl FnMut(usize) -> Box<dyn Discipline>) -> BuiltNetwork {
        let mut net = Net::new(seed);
        let meter = Rc::new(RefCell::new(Meter::default()));
        let mut links = 0..;
        let metered = || {
            let link = links.next().expect("numbers do not end");
            Box::new(Metered::new(link, queue(link), &meter)) as Box<dyn Discipline>
        };
        let mut shape = self.shape(&mut net, seed, metered);
        let mut flows = Vec::new();
        for (workload, (name, n)) in self.flows.iter().enumerate() {
            let mut add = |nth| {
                let (forward, back) = shape.routes(nth);
                meter.borrow_mut().routes.push(FlowRoute { workload, links: forward.clone() });
                net.add_flow(self.flow(*name, forward, back))
            };
            flows.push((0..*n as usize).map(&mut add).collect());
        }
        meter.borrow_mut().tallies = vec![Tally::default(); self.flows.len()];
        BuiltNetwork { net, meter, flows }
    }

    /// Adds the links of the scenario's topology to the network.
    fn shape(&self, net: &mut Net, seed: u64, mut queue: impl FnMut() -> Box<dyn Discipline>) -> Shape {
        let mut numbers = 0..;
        let mut link = || {
            let number = numbers.next().expect("numbers do not end");
            let spec = LinkSpec {
                rate: match &self.speed {
                    Speed::Fixed(bits_per_s) => Rate::Fixed(*bits_per_s),
                    Speed::Trace(trace) => Rate::Trace(Arc::clone(trace)),
                    Speed::Lte => Rate::Trace(synthetic_trace(seed, number, self.span_ns.div_ceil(S) as u32)),
                },
                jitter_ns: self.jitter_ns,
                loss: self.loss,
                reorder: self.reorder,
                ..LinkSpec::wire(self.delay_ns)
            };
            (spec, queue())
        };
        match self.topology {
            TopologyName::Dumbbell => {
                let (bottleneck, queue) = link();
                Shape::Dumbbell(Dumbbell::new(net, bottleneck, queue, self.delay_ns))
            }
            TopologyName::ParkingLot => {
                Shape::ParkingLot(ParkingLot::new(net, LOT_LINKS, link, self.delay_ns))
            }
            TopologyName::FatTree => Shape::FatTree {
                tree: FatTree::new(net, TREE_PORTS, link),
                rng: Rng::of_stream(seed, "fat tree", 0),
            },
        }
    }

    /// The flow of a workload over these links.
    fn flow(&self, name: WorkloadName, forward: Vec<LinkId>, back: Vec<LinkId>) -> FlowSpec {
        FlowSpec {
            forward,
            back,
            sender: self.sender,
            workload: workload(name),
            class: class(name),
            start_ns: 0,
        }
    }

    /// Collects the results of a workload's flows after a run.
    fn outcome(&self, net: &Net, flows: &[FlowId], tally: Tally) -> WorkloadResult {
        let seconds = self.span_ns as f64 / S as f64;
        let mut of = WorkloadResult { tally, ..WorkloadResult::default() };
        let mut shares = Vec::new();
        for flow in flows.iter().map(|flow| net.flow(*flow)) {
            shares.push(flow.received_bytes as f64 * 8.0 / seconds);
            of.rtt.merge(&flow.sender.rtt);
            flow.completions.iter().for_each(|message| of.completions.add(message.took_ns));
            flow.unfinished.iter().for_each(|message| of.completions.add(self.span_ns - message.began_ns));
        }
        of.bits_per_s = vec![shares.iter().sum()];
        of.fairness = vec![jain(&shares)];
        of
    }
}

impl Shape {
    /// The routes of data and acknowledgements of the workload's flow with this number.
    fn routes(&mut self, nth: usize) -> (Vec<LinkId>, Vec<LinkId>) {
        match self {
            Self::Dumbbell(ends) => (vec![ends.bottleneck], vec![ends.back]),
            // The first route uses all links, each next one only the next link.
            Self::ParkingLot(lot) => match nth % (LOT_LINKS + 1) {
                0 => (lot.links.clone(), vec![lot.back; LOT_LINKS]),
                link => (vec![lot.links[link - 1]], vec![lot.back]),
            },
            Self::FatTree { tree, rng } => {
                let hosts: Vec<usize> = (0..tree.hosts()).collect();
                let from = rng.pick(&hosts);
                let others: Vec<usize> = hosts.into_iter().filter(|host| *host != from).collect();
                let (to, choice) = (rng.pick(&others), rng.bits() as u32);
                (tree.path(from, to, choice), tree.path(to, from, choice))
            }
        }
    }
}

impl Outcome {
    /// Merges the outcome of other seeds of the same scenario.
    pub(super) fn merge(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.packets += other.packets;
        self.workloads.resize(other.workloads.len(), WorkloadResult::default());
        for (of, more) in self.workloads.iter_mut().zip(&other.workloads) {
            of.bits_per_s.extend(&more.bits_per_s);
            of.fairness.extend(&more.fairness);
            of.rtt.merge(&more.rtt);
            of.completions.merge(&more.completions);
            of.tally.merge(&more.tally);
        }
    }
}

/// The traffic model of a workload.
fn workload(name: WorkloadName) -> Workload {
    match name {
        WorkloadName::Bulk | WorkloadName::Interactive => Workload::Endless,
        WorkloadName::Web => {
            Workload::OnOff { sizes: Sizes::Web { more: WEB_MORE }, off_mean_ns: WEB_OFF_NS }
        }
        WorkloadName::Rpc => Workload::Poisson { sizes: Sizes::Fixed(RPC_BYTES), gap_mean_ns: RPC_GAP_NS },
    }
}

/// The class that tells a queue the objective of packets: throughput, short completion, throughput over delay.
fn class(name: WorkloadName) -> u8 {
    match name {
        WorkloadName::Bulk => 1,
        WorkloadName::Web | WorkloadName::Rpc => 2,
        WorkloadName::Interactive => 3,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_sim::net::twins::{Codel, CodelSpec};

    fn scenario(topology: TopologyName, flows: &[(WorkloadName, u32)]) -> Scenario {
        Scenario {
            topology,
            speed: Speed::Fixed(10_000_000),
            delay_ns: 5 * MS,
            jitter_ns: 0,
            loss: 0.0,
            reorder: 0.0,
            flows: flows.to_vec(),
            sender: SenderSpec { ecn: true, ..SenderSpec::default() },
            span_ns: 5 * S,
        }
    }

    fn queue(_: usize) -> Box<dyn Discipline> {
        Box::new(Codel::new(CodelSpec { ecn: true, ..CodelSpec::default() }, 20))
    }

    /// Packets would be counted twice, not at all, or for another workload.
    #[test]
    fn counts_match_link_traffic() {
        let flows = [(WorkloadName::Bulk, 3), (WorkloadName::Web, 2), (WorkloadName::Rpc, 2)];
        let BuiltNetwork { mut net, meter, flows } = scenario(TopologyName::Dumbbell, &flows).build(1, queue);
        net.run_until(5 * S);
        let tallies = &meter.borrow().tallies;
        let link = net.link(meter.borrow().routes[0].links[0]);
        let sum = |of: fn(&Tally) -> u64| tallies.iter().map(of).sum::<u64>();
        assert_eq!(sum(|tally| tally.counts.passed), link.sent);
        assert_eq!(sum(|tally| tally.counts.dropped), link.dropped);
        assert_eq!(sum(|tally| tally.waits.len()), link.sojourn.len());
        assert!(tallies.iter().all(|tally| tally.counts.passed > 0), "each workload has its own");
        assert!(sum(|tally| tally.counts.marked) > 0 && link.dropped > 0, "the queue does both");
        // Received packets have passed the link; the rest is under way, or was sent twice.
        for (flows, tally) in flows.iter().zip(tallies) {
            let received: u64 = flows.iter().map(|flow| net.flow(*flow).received).sum();
            let on_the_way = tally.counts.passed - received;
            assert!(on_the_way < 100, "{received} of {:?}", tally.counts);
        }
    }

    /// A packet through three queues would count three times, with three separate waits; acknowledgements would count
    /// as data.
    #[test]
    fn multi_link_route_counts_once() {
        for topology in [TopologyName::ParkingLot, TopologyName::FatTree] {
            let BuiltNetwork { mut net, meter, flows } =
                scenario(topology, &[(WorkloadName::Bulk, 1)]).build(3, queue);
            net.run_until(5 * S);
            let meter = meter.borrow();
            let (counts, waits) = (&meter.tallies[0].counts, &meter.tallies[0].waits);
            let links: Vec<_> = meter.routes[0].links.iter().map(|link| net.link(*link)).collect();
            assert!(links.len() > 1);
            assert_eq!(counts.passed, links[links.len() - 1].sent);
            assert_eq!(counts.dropped, links.iter().map(|link| link.dropped).sum::<u64>());
            let received = net.flow(flows[0][0]).received;
            assert!(received > 1000 && counts.passed - received < 100, "{received} {counts:?}");
            // Packets wait at the first link: after it no packet catches up with another.
            let first = links[0].sojourn.mean();
            assert!((waits.mean() / first - 1.0).abs() < 0.02, "{} {first}", waits.mean());
            assert!(counts.marked > 0);
        }
    }
}
