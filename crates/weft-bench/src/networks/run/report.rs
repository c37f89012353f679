//! The report of a run: a line for each workload and queue, grouped by workload.

use serde_json::{Value, json};

use super::scenario::{Outcome, Scenario, Speed, WorkloadResult};
use crate::networks::args::{SenderName, SimRunArgs, TopologyName, WorkloadName};
use crate::networks::plot::{Chart, Group};
use crate::networks::report::shown;
use weft_control::show::{Align, Table};
use weft_control::show::{count, grouped};
use weft_control::units::rate_text;
use weft_sim::net::measure::{Histogram, power};

/// The shortest time that a bar shows.
const SHORTEST_NS: f64 = 1e3;

pub(super) struct Report<'r> {
    pub(super) scenario: &'r Scenario,
    pub(super) args: &'r SimRunArgs,
    /// The names of the queues.
    pub(super) names: Vec<String>,
    /// One for each queue.
    pub(super) outcomes: Vec<Outcome>,
}

/// A workload with a queue.
struct Row<'r> {
    workload: WorkloadName,
    n_flows: u32,
    queue: &'r str,
    of: &'r WorkloadResult,
}

impl Report<'_> {
    pub(super) fn text(&self) -> String {
        format!("{}\n\n{}", self.conditions(), self.table())
    }

    /// The report as JSON.
    pub(super) fn json(&self) -> Value {
        let seeds = self.outcomes.first().map_or(0, |outcome| outcome.seeds);
        json!({
            "experiment": "run",
            "conditions": self.conditions(),
            "seed": self.args.seed,
            "seeds": seeds,
            "seconds": self.scenario.span_ns as f64 / 1e9,
            "queues": self.names,
            "packets": self.outcomes.iter().map(|outcome| outcome.packets).sum::<u64>(),
            "rows": self.rows().iter().map(Row::json).collect::<Vec<_>>(),
        })
    }

    /// For each workload its objective, and the waits of its packets.
    pub(super) fn chart(&self) -> Chart {
        let rows = self.rows();
        let groups = rows.chunks(self.names.len()).flat_map(|rows| {
            let title = format!("{} x{}", name(rows[0].workload), rows[0].n_flows);
            let group = |wants: &str, bar: &dyn Fn(&Row<'_>) -> (f64, String)| Group {
                title: title.clone(),
                wants: wants.to_owned(),
                bars: rows.iter().map(bar).collect(),
            };
            let soon = |of: &Histogram, unit_ns: f64| {
                let ns = of.percentile(0.99) as f64;
                let score = if of.is_empty() { 0.0 } else { 1.0 / ns.max(SHORTEST_NS) };
                (score, percentile(of, 0.99, unit_ns))
            };
            let wanted = match rows[0].workload {
                WorkloadName::Bulk => {
                    group("throughput, Mbit/s", &|row| (row.bits_per_s(), shown(row.bits_per_s() / 1e6)))
                }
                WorkloadName::Web | WorkloadName::Rpc => {
                    group("99 % complete within, ms", &|row| soon(&row.of.completions, 1e6))
                }
                WorkloadName::Interactive => {
                    group("throughput / round trip, Mbit/s/s", &|row| (row.power(), shown(row.power() / 1e6)))
                }
            };
            [wanted, group("99 % of packets wait, ms", &|row| soon(&row.of.tally.waits, 1e6))]
        });
        Chart { title: self.conditions(), names: self.names.clone(), groups: groups.collect() }
    }

    /// Describes in a few words what was run.
    fn conditions(&self) -> String {
        let scenario = self.scenario;
        let topology = match scenario.topology {
            TopologyName::Dumbbell => "dumbbell",
            TopologyName::ParkingLot => "parking lot of 3 links",
            TopologyName::FatTree => "fat tree of 16 hosts",
        };
        let rate = match (&scenario.speed, &self.args.trace) {
            (Speed::Fixed(bits_per_s), _) => rate_text(*bits_per_s),
            (Speed::Trace(trace), Some(path)) => {
                format!("{} ({})", path.display(), rate_text(trace.bits_per_s()))
            }
            (Speed::Trace(_) | Speed::Lte, _) => "LTE".to_owned(),
        };
        let sender = match self.args.sender {
            SenderName::Paper => "NewReno of 2013",
            SenderName::Newreno => "NewReno",
            SenderName::Cubic => "CUBIC",
            SenderName::BbrLike => "senders like BBR",
        };
        let mut parts = vec![topology.to_owned(), rate, format!("{} ms", scenario.delay_ns as f64 / 1e6)];
        if scenario.jitter_ns > 0 {
            parts.push(format!("up to {} ms more", scenario.jitter_ns as f64 / 1e6));
        }
        let chances = [(scenario.loss, "lost"), (scenario.reorder, "overtaken")];
        parts.extend(
            chances
                .iter()
                .filter(|(share, _)| *share > 0.0)
                .map(|(share, what)| format!("{} % {what}", (share * 1e6).round() / 1e4)),
        );
        parts.push(format!("{sender}{}", if self.args.ecn { " with ECN" } else { "" }));
        let seeds = self.outcomes.first().map_or(0, |outcome| outcome.seeds);
        let seconds = scenario.span_ns as f64 / 1e9;
        parts.push(format!("{} of {seconds} s", count(u64::from(seeds), "seed")));
        parts.join(", ")
    }

    /// All rows, grouped by workload.
    fn rows(&self) -> Vec<Row<'_>> {
        let of_workload = |(nth, (workload, n_flows)): (usize, &(WorkloadName, u32))| {
            let (workload, n_flows) = (*workload, *n_flows);
            let queues = self.names.iter().zip(&self.outcomes);
            queues
                .map(|(queue, outcome)| Row { workload, n_flows, queue, of: &outcome.workloads[nth] })
                .collect::<Vec<_>>()
        };
        self.scenario.flows.iter().enumerate().flat_map(of_workload).collect()
    }

    /// The results as a table, a row for each workload and queue.
    fn table(&self) -> String {
        let mut table = Table::new(&[
            ("flows", Align::Left),
            ("queue", Align::Left),
            ("Mbit/s", Align::Right),
            ("done p50 ms", Align::Right),
            ("p99 ms", Align::Right),
            ("wait p50 ms", Align::Right),
            ("p99 ms", Align::Right),
            ("dropped", Align::Right),
            ("marked", Align::Right),
            ("fairness", Align::Right),
            ("power", Align::Right),
        ]);
        for (nth, row) in self.rows().iter().enumerate() {
            let is_first = nth % self.names.len() == 0;
            table.row(row.cells(is_first));
        }
        table.render()
    }
}

impl Row<'_> {
    /// The cells of a row. The first row of a workload has its name.
    fn cells(&self, is_first: bool) -> Vec<String> {
        let of = self.of;
        let title =
            if is_first { format!("{} x{}", name(self.workload), self.n_flows) } else { String::new() };
        vec![
            title,
            self.queue.to_owned(),
            shown(self.bits_per_s() / 1e6),
            percentile(&of.completions, 0.5, 1e6),
            percentile(&of.completions, 0.99, 1e6),
            percentile(&of.tally.waits, 0.5, 1e6),
            percentile(&of.tally.waits, 0.99, 1e6),
            grouped(of.tally.counts.dropped),
            grouped(of.tally.counts.marked),
            if self.n_flows > 1 { shown(mean(&of.fairness)) } else { "-".to_owned() },
            shown(self.power() / 1e6),
        ]
    }

    /// A workload's results with one queue as JSON.
    fn json(&self) -> Value {
        let of = self.of;
        let ms = |of: &Histogram| {
            let at = |p| of.percentile(p) as f64 / 1e6;
            (!of.is_empty()).then(|| json!({ "p50": at(0.5), "p99": at(0.99), "mean": of.mean() / 1e6 }))
        };
        json!({
            "workload": name(self.workload),
            "flows": self.n_flows,
            "queue": self.queue,
            "throughput_mbit_per_s": self.bits_per_s() / 1e6,
            "by_seed_mbit_per_s": of.bits_per_s.iter().map(|bits| bits / 1e6).collect::<Vec<_>>(),
            "completions": of.completions.len(),
            "completion_ms": ms(&of.completions),
            "wait_ms": ms(&of.tally.waits),
            "rtt_ms": ms(&of.rtt),
            "passed": of.tally.counts.passed,
            "dropped": of.tally.counts.dropped,
            "marked": of.tally.counts.marked,
            "fairness": mean(&of.fairness),
            "power_mbit_per_s2": self.power() / 1e6,
        })
    }

    /// The sum over its flows, averaged over the seeds.
    fn bits_per_s(&self) -> f64 {
        mean(&self.of.bits_per_s)
    }

    /// Throughput over the mean round trip.
    fn power(&self) -> f64 {
        power(self.bits_per_s(), self.of.rtt.mean() / 1e9)
    }
}

/// A workload's name on the command line.
fn name(workload: WorkloadName) -> &'static str {
    match workload {
        WorkloadName::Bulk => "bulk",
        WorkloadName::Web => "web",
        WorkloadName::Interactive => "interactive",
        WorkloadName::Rpc => "rpc",
    }
}

/// A percentile, in units of this many nanoseconds.
fn percentile(of: &Histogram, p: f64, unit_ns: f64) -> String {
    if of.is_empty() { "-".to_owned() } else { shown(of.percentile(p) as f64 / unit_ns) }
}

fn mean(of: &[f64]) -> f64 {
    of.iter().sum::<f64>() / of.len().max(1) as f64
}
