//! "No silver bullet": the experiment of "Extending SDN to the Data Plane" (Sivaraman et al., HotNets 2013).
//!
//! It has three configurations of a bottleneck, applications with different objectives, two kinds of links, and six
//! comparisons. Details follow the authors' ns-2 scripts. NewReno repairs one loss per round trip. Segments have 1210
//! bytes with 50 of headers. The queue never overflows. A trace sends one packet of any size per opportunity, and has
//! all of its delay on the return path.

use std::sync::Arc;

use super::discipline::Discipline;
use super::link::LinkSpec;
use super::lte::like_lte;
use super::measure::{Histogram, jain, power, tail};
use super::network::{FlowId, FlowSpec, Net, Workload};
use super::sizes::Sizes;
use super::tcp::SenderSpec;
use super::topology::Dumbbell;
use super::twins::SfqCodel;
use weft_core::hash;
use weft_engine::packet::trace::Trace;

const MS: u64 = 1_000_000;
const S: u64 = 1_000_000_000;
/// The round-trip time of both links without queueing.
const RTT_NS: u64 = 150 * MS;
/// The rate of the fixed link.
const FIXED_BITS_PER_S: u64 = 15_000_000;
/// A limit that is never reached.
const LIMIT_PACKETS: u64 = 10_000_000;
/// The target of CoDel, and one that is never reached.
const TARGET_NS: u64 = 5 * MS;
const NO_TARGET_NS: u64 = 1000 * S;
/// The mean pause of the web application, and the bytes that each of its flows has on top of the drawn size.
const OFF_NS: u64 = 200 * MS;
const WEB_MORE: u64 = 16_384;
/// Maximum rate of a synthetic trace in packets of 1500 bytes per second: 12 Mbit/s.
const LTE_RATE_MAX: f64 = 1000.0;

/// A configuration of the bottleneck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Configuration {
    /// One FIFO queue with CoDel.
    CodelFcfs,
    /// Fair queueing with CoDel on each flow.
    CodelFq,
    /// Fair queueing with deep buffers.
    BufferbloatFq,
    /// A queue program.
    Program,
}

/// An application and its objective.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Application {
    /// An endless transfer; its objective is throughput.
    Bulk,
    /// Flows with pauses; the objective is the completion time of the slowest in a thousand.
    Web,
    /// An endless flow; its objective is throughput over delay.
    Interactive,
}

/// The kind of link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LinkKind {
    /// 15 Mbit/s.
    Fixed,
    /// A variable rate, from a trace.
    Lte,
}

/// One comparison: a table of the paper.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// The number of the table.
    pub name: &'static str,
    /// The applications, with one flow each.
    pub applications: &'static [Application],
    /// The kind of link.
    pub link: LinkKind,
    /// Simulated seconds per seed.
    pub seconds: u32,
    /// The configurations that the paper compares.
    pub compared: [Configuration; 2],
}

/// The six comparisons, with the durations of the authors' scripts.
pub const COMPARISONS: [Comparison; 6] = {
    use Application::{Bulk, Interactive, Web};
    use Configuration::{BufferbloatFq, CodelFcfs, CodelFq};
    /// One comparison of two configurations, on a link kind and for some simulated seconds.
    const fn comparison(
        name: &'static str,
        applications: &'static [Application],
        link: LinkKind,
        seconds: u32,
        compared: [Configuration; 2],
    ) -> Comparison {
        Comparison { name, applications, link, seconds, compared }
    }
    [
        comparison("1a", &[Bulk, Bulk], LinkKind::Lte, 1000, [CodelFcfs, CodelFq]),
        comparison("1b", &[Bulk, Web], LinkKind::Fixed, 1000, [CodelFcfs, CodelFq]),
        comparison("2a", &[Bulk, Web], LinkKind::Lte, 250, [BufferbloatFq, CodelFq]),
        comparison("2b", &[Interactive, Interactive], LinkKind::Fixed, 250, [BufferbloatFq, CodelFq]),
        comparison("3a", &[Bulk], LinkKind::Lte, 250, [BufferbloatFq, CodelFcfs]),
        comparison("3b", &[Interactive], LinkKind::Lte, 250, [BufferbloatFq, CodelFcfs]),
    ]
};

/// The results of seeds of one comparison.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// The number of seeds.
    pub seeds: u32,
    /// For each flow, the sum of its bits per second over the seeds.
    pub bits_per_s: Vec<f64>,
    /// The sum of the fairness index over the seeds.
    pub fairness: f64,
    /// Round-trip times of all flows with the objective throughput over delay.
    pub rtt: Histogram,
    /// Completion times of the web flows, in nanoseconds; for unfinished flows, the time so far.
    pub completions_ns: Vec<u64>,
    /// Sojourn times at the bottleneck.
    pub sojourn: Histogram,
    /// Packets dropped at the bottleneck.
    pub dropped: u64,
    /// Packets created, data and acknowledgements.
    pub packets: u64,
}

impl Configuration {
    /// The paper's three configurations in its order, and a queue program.
    pub const ALL: [Self; 4] = [Self::CodelFcfs, Self::CodelFq, Self::BufferbloatFq, Self::Program];

    /// The paper's name; `None` for a program, which has its own name.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::CodelFcfs => Some("CoDel+FCFS"),
            Self::CodelFq => Some("CoDel+FQ"),
            Self::BufferbloatFq => Some("Bufferbloat+FQ"),
            Self::Program => None,
        }
    }

    /// The queue: one discipline with two parameters; `None` for a program.
    pub fn discipline(self) -> Option<Box<dyn Discipline>> {
        let (n_queues, target_ns) = match self {
            Self::CodelFcfs => (1, TARGET_NS),
            Self::CodelFq => (1024, TARGET_NS),
            Self::BufferbloatFq => (1024, NO_TARGET_NS),
            Self::Program => return None,
        };
        Some(Box::new(SfqCodel::new(n_queues, target_ns, LIMIT_PACKETS)))
    }
}

impl Application {
    /// The name of the configuration in the paper.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bulk => "bulk",
            Self::Web => "web",
            Self::Interactive => "interactive",
        }
    }

    /// The class of the application's packets, which states its objective to the queue.
    pub fn class(self) -> u8 {
        match self {
            Self::Bulk => 1,
            Self::Web => 2,
            Self::Interactive => 3,
        }
    }

    fn workload(self) -> Workload {
        match self {
            Self::Bulk | Self::Interactive => Workload::Endless,
            Self::Web => Workload::OnOff { sizes: Sizes::Web { more: WEB_MORE }, off_mean_ns: OFF_NS },
        }
    }
}

impl LinkKind {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fixed => "15 Mbit/s",
            Self::Lte => "LTE",
        }
    }
}

/// The sender of the authors' scripts.
pub fn newreno_of_2013() -> SenderSpec {
    SenderSpec {
        sack: false,
        payload: 1210,
        header: 50,
        validates_window: false,
        detects_spurious: false,
        ..SenderSpec::default()
    }
}

/// A synthetic trace for a seed and a duration. `link` is its number, for networks with several.
pub fn synthetic_trace(seed: u64, link: u64, seconds: u32) -> Arc<Trace> {
    Arc::new(like_lte(hash::stream(seed, "lte", link), seconds, LTE_RATE_MAX))
}

impl Comparison {
    /// The bits per second of its link, if that is fixed.
    pub fn bits_per_s(&self) -> Option<u64> {
        (self.link == LinkKind::Fixed).then_some(FIXED_BITS_PER_S)
    }

    /// Runs one seed for `seconds` with this queue at the bottleneck. `trace` is the link's trace if its rate is
    /// variable.
    pub fn run(
        &self,
        queue: Box<dyn Discipline>,
        trace: Option<Arc<Trace>>,
        sender: SenderSpec,
        seed: u64,
        seconds: u32,
    ) -> Outcome {
        let mut net = Net::new(seed);
        // The scripts put a fixed link's delay on both paths, and a trace's delay on the return path.
        let (link, back_ns) = match trace {
            None => (LinkSpec::fixed(FIXED_BITS_PER_S, RTT_NS / 2), RTT_NS / 2),
            Some(trace) => (LinkSpec::trace(trace, 0), RTT_NS),
        };
        let ends = Dumbbell::new(&mut net, link, queue, back_ns);
        let flow = |application: &Application| FlowSpec {
            forward: vec![ends.bottleneck],
            back: vec![ends.back],
            sender,
            workload: application.workload(),
            class: application.class(),
            start_ns: 0,
        };
        let flows: Vec<FlowId> =
            self.applications.iter().map(|application| net.add_flow(flow(application))).collect();
        let end_ns = u64::from(seconds) * S;
        net.run_until(end_ns);
        self.outcome(&net, &ends, &flows, end_ns)
    }

    /// Collects the results of a finished run: rates, fairness, waiting times, drops and packets.
    fn outcome(&self, net: &Net, ends: &Dumbbell, flows: &[FlowId], end_ns: u64) -> Outcome {
        let seconds = end_ns as f64 / S as f64;
        let bits_per_s: Vec<f64> =
            flows.iter().map(|flow| net.flow(*flow).received_bytes as f64 * 8.0 / seconds).collect();
        let mut outcome = Outcome {
            seeds: 1,
            fairness: jain(&bits_per_s),
            bits_per_s,
            sojourn: net.link(ends.bottleneck).sojourn.clone(),
            dropped: net.link(ends.bottleneck).dropped,
            packets: net.packets_made(),
            ..Outcome::default()
        };
        for (application, flow) in self.applications.iter().zip(flows) {
            let flow = net.flow(*flow);
            match application {
                Application::Bulk => {}
                Application::Interactive => outcome.rtt.merge(&flow.sender.rtt),
                Application::Web => {
                    outcome.completions_ns.extend(flow.completions.iter().map(|flow| flow.took_ns));
                    outcome.completions_ns.extend(flow.unfinished.iter().map(|flow| end_ns - flow.began_ns));
                }
            }
        }
        outcome
    }
}

impl Outcome {
    /// Adds the results of other seeds of the same comparison and configuration.
    pub fn merge(&mut self, other: &Self) {
        self.seeds += other.seeds;
        self.bits_per_s.resize(self.bits_per_s.len().max(other.bits_per_s.len()), 0.0);
        for (sum, more) in self.bits_per_s.iter_mut().zip(&other.bits_per_s) {
            *sum += more;
        }
        self.fairness += other.fairness;
        self.rtt.merge(&other.rtt);
        self.completions_ns.extend(&other.completions_ns);
        self.sojourn.merge(&other.sojourn);
        self.dropped += other.dropped;
        self.packets += other.packets;
    }

    /// Bits per second: the mean over the seeds and the flows of an application.
    pub fn throughput(&self, comparison: &Comparison, application: Application) -> f64 {
        let of = comparison.applications.iter().zip(&self.bits_per_s);
        let mine: Vec<f64> = of.filter(|(other, _)| **other == application).map(|(_, sum)| *sum).collect();
        mine.iter().sum::<f64>() / (mine.len() as f64 * f64::from(self.seeds))
    }

    /// The 99.9th percentile of the web flows' completion times, in seconds; `None` without web flows.
    pub fn tail_s(&self) -> Option<f64> {
        let mut times = self.completions_ns.clone();
        tail(&mut times, 0.999).map(|ns| ns as f64 / S as f64)
    }

    /// The mean round-trip time of flows with the objective throughput over delay, in seconds.
    pub fn rtt_s(&self) -> f64 {
        self.rtt.mean() / S as f64
    }

    /// An application's objective for this outcome, as a number; larger is better.
    pub fn score(&self, comparison: &Comparison, application: Application) -> f64 {
        match application {
            Application::Bulk => self.throughput(comparison, application),
            Application::Web => self.tail_s().map_or(0.0, |seconds| 1.0 / seconds),
            Application::Interactive => power(self.throughput(comparison, application), self.rtt_s()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, two of the paper's claims no longer hold: deep buffers give the most throughput at a variable
    /// rate, and CoDel gives the most power.
    #[test]
    fn codel_beats_deep_buffer_in_power() {
        let score = |name, configuration: Configuration| {
            let comparison = COMPARISONS.iter().find(|comparison| comparison.name == name).unwrap();
            let trace = (comparison.link == LinkKind::Lte).then(|| synthetic_trace(1, 0, 60));
            let queue = configuration.discipline().unwrap();
            let outcome = comparison.run(queue, trace, newreno_of_2013(), 1, 60);
            outcome.score(comparison, comparison.applications[0])
        };
        let both = |name| [Configuration::BufferbloatFq, Configuration::CodelFq].map(|it| score(name, it));
        let [bloated, managed] = both("3a");
        assert!(bloated > 1.3 * managed, "{bloated} {managed}");
        let [bloated, managed] = both("2b");
        assert!(managed > 10.0 * bloated, "{bloated} {managed}");
    }
}
