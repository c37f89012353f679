//! `weft sim flood`: what other flows get from a queue while one flow sends more than the link takes.

use super::Console;
use super::args::FloodArgs;
use super::program::Program;
use serde_json::{Value, json};
use weft_control::fault::Fault;
use weft_control::show::{Align, Table};
use weft_control::units::rate_text;
use weft_core::rng::Rng;
use weft_engine::queue::Packet;
use weft_sim::net::{FlowResult, OfferedFlow, offer};

const S: u64 = 1_000_000_000;
/// The interval in which the flows are measured, in nanoseconds.
const WINDOW: (u64, u64) = (S, 6 * S);
const SEED: u64 = 1;

/// The flows beside the flood, each in its own run, by the requested part of the link.
const BESIDE: [(&str, f64); 2] = [("trickle", 0.01), ("steady", 0.4)];

/// What a queue gave to each of these flows.
struct FloodResult {
    queue: String,
    got: Vec<FlowResult>,
}

/// Runs `weft sim flood` for each queue.
pub(super) fn run(args: &FloodArgs, console: &dyn Console) -> Result<(), Fault> {
    let names = match args.queues.is_empty() {
        true => Program::of_library(),
        false => args.queues.clone(),
    };
    let programs = Program::chosen(None, &names, console)?;
    let found: Vec<FloodResult> = programs.iter().map(|program| victim_result(program, args.rate)).collect();
    console.print(&if args.json { format!("{:#}\n", data(&found)) } else { text(&found, args.rate) })
}

/// Offers twice the link's rate, in its own class and message; its deadline is far away.
fn flood(rate: u64) -> OfferedFlow {
    let packet = Packet {
        flow: 1,
        src: 1,
        dst: 1,
        len: 1500,
        class: 1,
        remaining: 1 << 30,
        slack_ns: S as i64,
        ..Packet::default()
    };
    OfferedFlow { packet, bits_per_s: 2.0 * rate as f64, by_chance: false }
}

/// Another flow from another host, in the class with priority, with little left to send and little time.
fn victim(rate: u64, part: f64) -> OfferedFlow {
    let packet = Packet {
        flow: 2,
        src: 2,
        dst: 2,
        len: if part < 0.1 { 200 } else { 1000 },
        class: 0,
        remaining: 200,
        slack_ns: S as i64 / 10,
        ..Packet::default()
    };
    OfferedFlow { packet, bits_per_s: part * rate as f64, by_chance: part < 0.1 }
}

/// Offers a queue the victim's flow beside a flood, once per rate of the victim. Returns the victim's results.
fn victim_result(program: &Program, rate: u64) -> FloodResult {
    let run = |(_, part): (&str, f64)| {
        let flows = [victim(rate, part), flood(rate)];
        let got = offer(&mut program.queue(SEED), &flows, rate, WINDOW, &mut Rng::from_seed(SEED));
        got.into_iter().next().unwrap_or_default()
    };
    FloodResult { queue: program.label().to_owned(), got: BESIDE.map(run).into() }
}

/// The share of its request that a flow got.
fn share(got: &FlowResult) -> f64 {
    got.sent as f64 / got.offered.max(1) as f64
}

fn ms(got: &FlowResult, percentile: f64) -> f64 {
    got.waits.percentile(percentile) as f64 / 1e6
}

/// The results as a table.
fn text(found: &[FloodResult], rate: u64) -> String {
    use Align::{Left, Right};
    let columns = [
        ("queue", Left),
        ("trickle has", Right),
        ("wait p50 ms", Right),
        ("p99 ms", Right),
        ("steady has", Right),
        ("wait p50 ms", Right),
        ("p99 ms", Right),
    ];
    let mut table = Table::new(&columns);
    for FloodResult { queue, got } in found {
        let mut row = vec![queue.clone()];
        for got in got {
            row.push(format!("{:.0} %", 100.0 * share(got).min(1.0)));
            let waits = if got.sent == 0 { None } else { Some([0.5, 0.99].map(|at| ms(got, at))) };
            row.extend((0..2).map(|nth| waits.map_or("-".to_owned(), |waits| format!("{:.1}", waits[nth]))));
        }
        table.row(row);
    }
    format!(
        "beside a flood of twice the link, {}: a trickle of 1 % of it, and a steady flow of 40 %\n\n{}",
        rate_text(rate),
        table.render()
    )
}

/// The results as JSON.
fn data(found: &[FloodResult]) -> Value {
    let of = |got: &FlowResult| {
        json!({
            "offered": got.offered,
            "sent": got.sent,
            "dropped": got.dropped,
            "wait_ms": { "p50": ms(got, 0.5), "p99": ms(got, 0.99) },
        })
    };
    let row = |FloodResult { queue, got }: &FloodResult| {
        let mut row = json!({ "queue": queue });
        for ((name, _), got) in BESIDE.iter().zip(got) {
            row[*name] = of(got);
        }
        row
    };
    json!({ "rows": found.iter().map(row).collect::<Vec<_>>() })
}
