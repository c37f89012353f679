//! The simulator: packets a second of one core, data and acknowledgements, each over its link.

use std::hint::black_box;
use std::time::Instant;

use weft_sim::net::twins::{Fifo, SfqCodel};
use weft_sim::net::{Algorithm, Discipline, Dumbbell, FlowSpec, LinkSpec, Net, SenderSpec, Workload};

use super::report::{Report, Row};

const MS: u64 = 1_000_000;
/// The simulated warm-up, and the simulated time of a round.
const WARM_NS: u64 = 5_000 * MS;
const LINK_BITS_PER_S: u64 = 1_000_000_000;

/// A name, the number of flows, their kind, and the queue.
struct Case {
    name: &'static str,
    flows: usize,
    algorithm: Algorithm,
    queue: fn() -> Box<dyn Discipline>,
}

/// Measures a link of 1 Gbit/s and 20 ms with one flow and with many.
pub(super) fn run(quick: bool) -> Report {
    let (rounds, round_ns) = if quick { (3, 2_000 * MS) } else { (9, 10_000 * MS) };
    let fifo = || -> Box<dyn Discipline> { Box::new(Fifo::new(2000)) };
    let codel = || -> Box<dyn Discipline> { Box::new(SfqCodel::new(1024, 5 * MS, 1 << 20)) };
    let cases = [
        Case { name: "1 flow, FIFO", flows: 1, algorithm: Algorithm::NewReno, queue: fifo },
        Case { name: "16 flows, FIFO", flows: 16, algorithm: Algorithm::NewReno, queue: fifo },
        Case { name: "16 flows, FIFO, CUBIC", flows: 16, algorithm: Algorithm::Cubic, queue: fifo },
        Case { name: "16 flows, FIFO, like BBR", flows: 16, algorithm: Algorithm::BbrLike, queue: fifo },
        Case { name: "16 flows, CoDel+FQ", flows: 16, algorithm: Algorithm::NewReno, queue: codel },
        Case { name: "256 flows, CoDel+FQ", flows: 256, algorithm: Algorithm::NewReno, queue: codel },
    ];
    let mut samples = vec![(Vec::new(), Vec::new()); cases.len()];
    let mut nets: Vec<Net> = cases.iter().map(build_network).collect();
    for round in 0..rounds {
        super::progress(&format!("round {} of {rounds}", round + 1));
        for (net, (rates, events)) in nets.iter_mut().zip(&mut samples) {
            let (packets, happened) = (net.packets_made(), net.events());
            let began = Instant::now();
            net.run_until(net.now_ns() + round_ns);
            let seconds = black_box(began.elapsed().as_secs_f64());
            let packets = (net.packets_made() - packets) as f64;
            rates.push(packets / seconds / 1e6);
            events.push((net.events() - happened) as f64 / packets);
        }
    }
    let rows = cases.iter().zip(&samples).flat_map(|(case, (rates, events))| {
        let ns: Vec<f64> = rates.iter().map(|rate| 1e3 / rate).collect();
        [
            Row::new(case.name, "rate", "10^6 packets/s", rates),
            Row::new(case.name, "cost", "ns/packet", &ns),
            Row::new(case.name, "events", "a packet", events),
        ]
    });
    let notes = vec!["one core; 1 Gbit/s, 20 ms; packets are data and acknowledgements".to_owned()];
    let broken = nets.iter().filter_map(|net| net.conservation().err());
    Report { bench: "sim", rows: rows.collect(), notes, failures: broken.collect() }
}

/// Builds the simulated network of a case: a dumbbell with the case's queue and flows.
fn build_network(case: &Case) -> Net {
    let mut net = Net::new(1);
    let link = LinkSpec::fixed(LINK_BITS_PER_S, 10 * MS);
    let ends = Dumbbell::new(&mut net, link, (case.queue)(), 10 * MS);
    for nth in 0..case.flows {
        net.add_flow(FlowSpec {
            forward: vec![ends.bottleneck],
            back: vec![ends.back],
            sender: SenderSpec { algorithm: case.algorithm, ..SenderSpec::default() },
            workload: Workload::Endless,
            class: 0,
            // Stagger the starts of the flows.
            start_ns: nth as u64 * MS,
        });
    }
    net.run_until(WARM_NS);
    net
}
