//! Two namespaces that reach each other over network devices: by a wire, through the kernel, and through a node with
//! each driver and at each place that a port may have.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `world` | the namespaces, what joins them, and the node between them |
//! | `traffic` | what goes from one to the other |

mod traffic;
mod world;

use std::time::Duration;

use super::progress;
use super::report::{Report, Row};
use super::rpc::Folder;
pub(super) use traffic::check;
use traffic::{Flood, flood, ping, transfer};
pub(super) use world::{Case, End, Middle, Port, World};

/// Four elements of `packets/simple.weft`: the chain of four network functions.
const FOUR: &str = "count -> check -> count AS c3 -> check AS c4";
const NODE: Middle = Middle::Node { stages: "" };
const CHAIN: Middle = Middle::Node { stages: FOUR };
/// The baseline of all ratios: no node between the two ends.
const WIRE: &str = "a wire";

const CASES: [Case; 11] = [
    Case { name: WIRE, ports: [Port::Packet; 2], middle: Middle::Wire, is_both_ways: false },
    Case { name: "kernel", ports: [Port::Packet; 2], middle: Middle::Kernel, is_both_ways: false },
    Case { name: "packet", ports: [Port::Packet; 2], middle: NODE, is_both_ways: false },
    Case { name: "packet, 4 elements", ports: [Port::Packet; 2], middle: CHAIN, is_both_ways: false },
    Case { name: "xdp", ports: [Port::Xdp; 2], middle: NODE, is_both_ways: false },
    Case { name: "xdp, 4 elements", ports: [Port::Xdp; 2], middle: CHAIN, is_both_ways: false },
    Case { name: "tap", ports: [Port::Tap; 2], middle: NODE, is_both_ways: false },
    Case { name: "tap, 4 elements (v2v)", ports: [Port::Tap; 2], middle: CHAIN, is_both_ways: false },
    Case {
        name: "packet to tap, 4 elements (p2v)",
        ports: [Port::Packet, Port::Tap],
        middle: CHAIN,
        is_both_ways: false,
    },
    Case {
        name: "packet to tap and back (loopback)",
        ports: [Port::Packet; 2],
        middle: Middle::Machine { stages: FOUR },
        is_both_ways: false,
    },
    Case {
        name: "packet, 4 elements, both ways",
        ports: [Port::Packet; 2],
        middle: CHAIN,
        is_both_ways: true,
    },
];

/// The number and the duration of measurements.
struct Effort {
    rounds: usize,
    time: Duration,
    pings: usize,
}

const FULL: Effort = Effort { rounds: 5, time: Duration::from_secs(2), pings: 2000 };
const QUICK: Effort = Effort { rounds: 1, time: Duration::from_millis(500), pings: 500 };

/// Runs all cases in turn, round by round, so that load on the machine affects all equally.
///
/// # Errors
/// Namespaces cannot be made, or no traffic arrives.
pub(super) fn run(quick: bool, workers: u16) -> Result<Report, String> {
    let effort = if quick { QUICK } else { FULL };
    let folder = Folder::new()?;
    let mut failures = Vec::new();
    let mut worlds = Vec::new();
    for case in &CASES {
        match World::new(case, &folder, workers).and_then(|world| check(&world).map(|()| world)) {
            Ok(world) => worlds.push((case, world, Vec::new())),
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    for round in 1..=effort.rounds {
        progress(&format!("round {round} of {}", effort.rounds));
        for (case, world, runs) in &mut worlds {
            match measure(world, &effort) {
                Ok(run) => runs.push(run),
                Err(why) => failures.push(format!("{}, round {round}: {why}", case.name)),
            }
        }
    }
    let wire = worlds.iter().find(|(case, ..)| case.name == WIRE).map(|(_, _, runs)| &runs[..]);
    let rows = worlds.iter().flat_map(|(case, _, runs)| rows_of(case, runs, wire.unwrap_or_default()));
    let mut notes = vec![
        "64 B: a flood of UDP from a packet socket of this process, as it arrives in the other namespace; CPU is \
         that of all cores, sender and receiver included, and of the node's threads"
            .to_owned(),
        "TCP: one connection with all offloads that the way keeps; round trip: a datagram there and back, median"
            .to_owned(),
    ];
    if workers > 1 {
        notes.push(format!(
            "nodes have {workers} workers, and flows are shared by queues as far as a device has them"
        ));
    }
    Ok(Report { bench: "ports", rows: rows.collect(), notes, failures })
}

/// One round of one case.
struct Run {
    flood: Flood,
    gbit_per_s: f64,
    round_trip_us: f64,
}

/// Measures round trips, a TCP transfer and a flood of small packets.
fn measure(world: &World, effort: &Effort) -> Result<Run, String> {
    Ok(Run {
        round_trip_us: ping(world, effort.pings)?,
        gbit_per_s: transfer(world, effort.time)?,
        flood: flood(world, effort.time)?,
    })
}

/// The rows of a case, compared with the runs over the bare wire.
fn rows_of(case: &Case, runs: &[Run], wire: &[Run]) -> Vec<Row> {
    type Figure = (&'static str, &'static str, fn(&Run) -> Option<f64>);
    const FIGURES: [Figure; 5] = [
        ("64 B", "Mpackets/s", |run| Some(run.flood.packets_per_s / 1e6)),
        ("all CPU", "us/packet", |run| Some(run.flood.machine_us)),
        ("node CPU", "us/packet", |run| run.flood.node_us),
        ("TCP", "Gbit/s", |run| Some(run.gbit_per_s)),
        ("round trip", "us", |run| Some(run.round_trip_us)),
    ];
    let mut rows = Vec::new();
    for (metric, unit, figure) in FIGURES {
        let samples: Vec<f64> = runs.iter().filter_map(figure).collect();
        if samples.is_empty() {
            continue;
        }
        let row = Row::new(case.name, metric, unit, &samples);
        let others: Vec<f64> = wire.iter().filter_map(figure).collect();
        let is_compared = case.name != WIRE && others.len() == samples.len();
        rows.push(if is_compared { row.against(WIRE, &samples, &others) } else { row });
    }
    rows
}
