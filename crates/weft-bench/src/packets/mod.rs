//! Frames from memory through chains of packet elements, to memory, on one core.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `cases` | the chains, their rules and routes |
//! | `changes` | rows that change while packets pass |
//! | `learned` | rows that a handler adds |
//! | `rig` | source, engine and sink |
//! | `simple.weft` | elements that do little |
//! | `route.weft` | a router that does no more than route |
//! | `gateway.weft` | a table with a row for each flow |

#[cfg(test)]
mod agree;
mod cases;
pub(super) mod changes;
mod learned;
mod rig;

use clap::Args;

use super::process::{can_count, instructions_each, own_cpu_s};
use super::progress;
use super::report::{Report, Row};
use cases::{CASES, COUNTED, Case, IO};
use rig::Rig;
use weft_core::frame::BATCH_MAX;

/// The options of `weft bench-packets`.
#[derive(Args, Clone, Debug)]
pub struct PacketsArgs {
    /// The chain, by its name in figures
    name: String,
    /// How many batches of 64 are run
    #[arg(long)]
    rounds: usize,
}

/// Bytes of a packet, and the column's name for it.
const SIZES: [(usize, &str); 3] = [(64, "64 B"), (256, "256 B"), (1024, "1024 B")];
/// The number of packets that arrive at once in a latency test, and the columns of the median and of the 99th
/// percentile.
const LATENCIES: [(usize, [&str; 2]); 2] =
    [(1, ["alone p50", "alone p99"]), (BATCH_MAX, ["of 64 p50", "of 64 p99"])];
/// Batches of the two runs whose difference counts instructions.
const BATCHES: [usize; 2] = [100, 500];

/// Measures every chain.
pub(super) fn run(quick: bool) -> Report {
    let rounds = if quick { 3 } else { 9 };
    let (mut rows, mut failures, mut counted) = (Vec::new(), Vec::new(), Vec::new());
    for case in CASES.iter().filter(|case| !(quick && case.is_big())) {
        progress(case.name);
        match of_case(case, rounds) {
            Ok(figures) => {
                rows.extend(figures);
                counted.extend((!case.is_big()).then_some(case.name));
            }
            Err(why) => failures.push(format!("{}: {why}", case.name)),
        }
    }
    let mut notes = vec![
        "ns/packet, in batches of 64, source and sink included; over I/O: less `none` in the same round, 64 B"
            .to_owned(),
        "alone, of 64: microseconds of 64 B from the source to the sink, one packet at a time and in batches of 64, \
         half and 99 of 100 of them; the clock is read around each, which takes some 0.03"
            .to_owned(),
        "10k flows where nothing else is said, drawn from the rules and routes, TCP and UDP; each has begun".to_owned(),
    ];
    match if quick { Err("--quick".to_owned()) } else { count(&counted) } {
        Ok(counts) => rows.extend(counts),
        Err(why) => notes.push(format!("instructions were not counted: {why}")),
    }
    Report { bench: "packets", rows, notes, failures }
}

/// Instructions per packet of each case that is not big.
///
/// # Errors
/// They cannot be counted.
pub(super) fn count_all() -> Result<Vec<Row>, String> {
    let small = CASES.iter().filter(|case| !case.is_big()).chain(COUNTED);
    count(&small.map(|case| case.name).collect::<Vec<_>>())
}

/// Runs one chain in a process of its own; returns its CPU time in nanoseconds per packet, with source and sink.
///
/// # Errors
/// There is no such chain, or it cannot be compiled.
pub(crate) fn run_one(args: &PacketsArgs) -> Result<f64, String> {
    let mut rig = Rig::new(named(&args.name).ok_or("no such chain")?)?;
    let began = own_cpu_s();
    rig.batches(args.rounds);
    Ok((own_cpu_s() - began) * 1e9 / (args.rounds.max(1) * BATCH_MAX) as f64)
}

fn named(name: &str) -> Option<&'static Case> {
    CASES.iter().chain(COUNTED).find(|case| case.name == name)
}

/// Measures a case at each frame size, and the cost of input and output alone.
fn of_case(case: &Case, rounds: usize) -> Result<Vec<Row>, String> {
    let mut io = Rig::new(named(IO).expect("it is a case"))?;
    let mut beside = case.beside.and_then(named).map(Rig::new).transpose()?;
    let mut rig = Rig::new(case)?;
    let mut rows = Vec::new();
    for (bytes, metric) in SIZES {
        let (mut all, mut over, mut others) = (Vec::new(), Vec::new(), Vec::new());
        rig.set_bytes(bytes);
        io.set_bytes(bytes);
        beside.iter_mut().for_each(|rig| rig.set_bytes(bytes));
        for _ in 0..rounds {
            let took = rig.round();
            all.push(took);
            over.push(took - io.round());
            others.extend(beside.as_mut().map(Rig::round));
        }
        let row = Row::new(case.name, metric, "ns", &all);
        rows.push(if others.is_empty() { row } else { row.against("with one flow", &all, &others) });
        if bytes == 64 && case.name != IO {
            rows.push(Row::new(case.name, "over I/O", "ns", &over));
        }
    }
    rows.extend(latencies(case, &mut rig, rounds));
    rows.push(Row::new(case.name, "look-ups", "", &[rig.lookups as f64]));
    Ok(rows)
}

/// Microseconds that packets of 64 B take from source to sink, alone and as the last of a batch.
fn latencies(case: &Case, rig: &mut Rig, rounds: usize) -> Vec<Row> {
    rig.set_bytes(64);
    let of = |(n, metrics): (usize, [&'static str; 2])| {
        let took: Vec<[f64; 2]> = (0..rounds).map(|_| rig.latency(n)).collect();
        [0, 1].map(|at| {
            let of_rounds: Vec<f64> = took.iter().map(|took| took[at]).collect();
            Row::new(case.name, metrics[at], "us", &of_rounds)
        })
    };
    LATENCIES.into_iter().flat_map(of).collect()
}

/// Counts instructions per packet of these cases.
fn count(names: &[&'static str]) -> Result<Vec<Row>, String> {
    can_count()?;
    let mut rows = Vec::new();
    for name in names {
        progress(&format!("{name}: instructions"));
        let count = instructions_each(&["bench-packets", name], BATCHES, BATCH_MAX)?;
        rows.push(Row::new(*name, "instr", "instr/packet", &[count]));
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A chain that drops its packets would be measured as fast: a rig reports an error instead.
    #[test]
    fn bench_chains_forward_all_packets() {
        for case in CASES.iter().filter(|case| case.flows <= 10_000 && !case.is_big()) {
            let rig = Rig::new(case).unwrap_or_else(|why| panic!("{}: {why}", case.name));
            let expected = match case.name {
                "none" => 0,
                "4 firewalls of 200" => 4,
                name if name.starts_with("gateway of 4") => 4,
                // Sender, destination, and with VLANs the rows of both ports.
                "l2_switch" => 4,
                // A packet whose neighbour is unknown takes the longest path. One whose route has a next hop looks up
                // the route, and one of its paths if there are several.
                name if name.starts_with("router") => 14,
                "firewall of 200 and router" => 15,
                "all three, 1 flow" | "all three, 10k flows" => 17,
                // The connection, and the exceptions.
                name if name.starts_with("conntrack") => 2,
                "vlan_access" => 0,
                name if name.contains("simple") => 0,
                _ => 1,
            };
            assert_eq!(rig.lookups, expected, "{}", case.name);
        }
        for case in COUNTED {
            Rig::new(case).unwrap_or_else(|why| panic!("{}: {why}", case.name));
        }
    }
}
