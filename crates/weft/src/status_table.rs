//! The live table of a running node's counters: redrawn in place on a terminal, appended elsewhere. It goes to standard
//! error like all messages; standard output is for the rows of sinks.

use crate::log::Log;
use crate::running::Running;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use weft_control::show::grouped;
use weft_control::show::{Align, Table};
use weft_core::Status;
use weft_core::abi::Counters;
use weft_engine::report::NodeStats;
use weft_engine::stats::Stats;

/// The interval between updates on a terminal, and elsewhere.
const EVERY_ON_TERMINAL: Duration = Duration::from_secs(1);
const EVERY_ELSEWHERE: Duration = Duration::from_secs(5);

/// The live table and its last counters.
pub(crate) struct StatusTable {
    began: Instant,
    last: Option<(Stats, f64, Instant)>,
    is_terminal: bool,
    /// The log that shares standard error, and prints above the table.
    log: Log,
    next: Instant,
}

/// Latencies that a front end measured at the calls' client, shown instead of the node's own.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

impl StatusTable {
    /// An empty table on standard error; the first update is due after one interval.
    pub(crate) fn new(log: Log) -> Self {
        let is_terminal = std::io::stderr().is_terminal();
        let now = Instant::now();
        let mut table = Self { began: now, last: None, is_terminal, log, next: now };
        table.next = now + table.every();
        table
    }

    fn every(&self) -> Duration {
        if self.is_terminal { EVERY_ON_TERMINAL } else { EVERY_ELSEWHERE }
    }

    /// Updates the table if the interval is over.
    pub(crate) fn tick(&mut self, running: &Running, measured: Option<Measured>) {
        if Instant::now() < self.next {
            return;
        }
        self.next += self.every();
        if let Some(stats) = running.stats() {
            let text = self.text(&stats, measured);
            self.log.show_table(&text, self.is_terminal);
        }
    }

    /// Prints a line above the table.
    pub(crate) fn print(&self, line: &str) {
        self.log.print(line);
    }

    /// Minutes and seconds since the start.
    pub(crate) fn clock(&self) -> String {
        let up = self.began.elapsed().as_secs();
        format!("{:02}:{:02}", up / 60, up % 60)
    }

    /// The table's text: rates since the last call, of the node and of each element.
    fn text(&mut self, node: &NodeStats, measured: Option<Measured>) -> String {
        let (now, cpu) = (Instant::now(), cpu_seconds());
        let stats = &node.stats;
        let empty = Stats::default();
        let (before, cpu_before, since) = match &self.last {
            Some((stats, cpu, at)) => (stats, *cpu, *at),
            None => (&empty, 0.0, self.began),
        };
        let seconds = (now - since).as_secs_f64().max(1e-9);
        let ended: Vec<u64> = stats.calls_ended.iter().zip(before.calls_ended).map(|(a, b)| a - b).collect();
        let n: u64 = ended.iter().sum();
        let share = |status: Status| percent(ended[usize::from(status.code())], n);
        let others =
            n - ended[usize::from(Status::Ok.code())] - ended[usize::from(Status::PermissionDenied.code())];
        let latency = stats.latency.since(&before.latency);
        let (p50, p99) = match measured {
            Some(m) => (m.p50_us, m.p99_us),
            None => (latency.quantile(0.5).0 as f64 / 1e3, latency.quantile(0.99).0 as f64 / 1e3),
        };
        let mut head = Table::new(&[
            ("time", Align::Right),
            ("calls/s", Align::Right),
            ("p50", Align::Right),
            ("p99", Align::Right),
            ("denied", Align::Right),
            ("other errors", Align::Right),
            ("CPU us/call", Align::Right),
            ("open", Align::Right),
        ]);
        head.row(vec![
            self.clock(),
            grouped((n as f64 / seconds) as u64),
            short_time(p50),
            short_time(p99),
            share(Status::PermissionDenied),
            percent(others, n),
            if n == 0 { "-".to_owned() } else { format!("{:.1}", (cpu - cpu_before) * 1e6 / n as f64) },
            grouped(stats.calls_open),
        ]);
        let text = format!("{}{}\n", head.render(), elements(stats));
        self.last = Some((stats.clone(), cpu, now));
        text
    }
}

/// The counters of elements as a table.
fn elements(stats: &Stats) -> String {
    let mut table = Table::new(&[
        ("  chain", Align::Left),
        ("version", Align::Right),
        ("element", Align::Left),
        ("seen", Align::Right),
        ("ended", Align::Right),
        ("aborted", Align::Right),
        ("ns/msg", Align::Right),
    ]);
    for chain in &stats.chains {
        for (element, c) in &chain.elements {
            table.row(vec![
                format!("  {}", chain.chain),
                chain.version.to_string(),
                element.clone(),
                grouped(c.seen),
                grouped(c.dropped + c.aborted + c.failed),
                grouped(c.aborted),
                ns_per_tuple(c),
            ]);
        }
    }
    table.render()
}

fn ns_per_tuple(c: &Counters) -> String {
    if c.sampled == 0 { "-".to_owned() } else { format!("{:.0}", c.sampled_ns as f64 / c.sampled as f64) }
}

fn percent(part: u64, whole: u64) -> String {
    if whole == 0 { "-".to_owned() } else { format!("{:.1} %", 100.0 * part as f64 / whole as f64) }
}

/// Formats microseconds in a suitable unit.
pub(crate) fn short_time(us: f64) -> String {
    match us {
        ..1_000.0 => format!("{us:.0} us"),
        ..1_000_000.0 => format!("{:.1} ms", us / 1e3),
        _ => format!("{:.1} s", us / 1e6),
    }
}

/// CPU time of this process so far, in seconds.
pub(crate) fn cpu_seconds() -> f64 {
    // proc(5): the 14th and 15th fields of stat, counted after the name, in ticks of 1/100 s on Linux.
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let behind = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
    let ticks = behind.split_whitespace().skip(11).take(2).filter_map(|t| t.parse::<u64>().ok());
    ticks.sum::<u64>() as f64 / 100.0
}
