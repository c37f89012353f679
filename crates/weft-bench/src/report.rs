//! The output of a benchmark: rows of medians, as a table or as one JSON object.

use std::fmt::Write as _;
use std::fs;

use serde_json::{Value, json};

/// The result of one benchmark.
#[derive(Debug)]
pub(super) struct Report {
    /// The benchmark's name.
    pub(super) bench: &'static str,
    /// The figures, in display order.
    pub(super) rows: Vec<Row>,
    /// Sentences below the table.
    pub(super) notes: Vec<String>,
    /// Failed measurements, with the reasons. Any failure makes the benchmark fail after printing the rest.
    pub(super) failures: Vec<String>,
}

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    /// The measured object: a line of the table.
    pub(super) name: String,
    /// The metric: a column of the table.
    pub(super) metric: &'static str,
    /// The median.
    pub(super) value: f64,
    /// The unit of the value; empty for a pure number.
    pub(super) unit: &'static str,
    /// The number of runs in the median.
    pub(super) runs: usize,
    /// (largest - smallest) / median; for ten samples or more without a tenth at each end.
    pub(super) spread: f64,
    /// The peer of the ratio, and the median of the ratios within each round.
    pub(super) peer: Option<(&'static str, f64)>,
}

impl Row {
    /// The median of `samples`, one for each round.
    pub(super) fn new(
        name: impl Into<String>,
        metric: &'static str,
        unit: &'static str,
        samples: &[f64],
    ) -> Self {
        let value = median(samples);
        let spread = if value == 0.0 { 0.0 } else { width(samples) / value };
        Self { name: name.into(), metric, value, unit, runs: samples.len(), spread, peer: None }
    }

    /// Adds the ratio to `others`, which were measured in the same rounds.
    pub(super) fn against(mut self, peer: &'static str, samples: &[f64], others: &[f64]) -> Self {
        let ratios: Vec<f64> = samples.iter().zip(others).map(|(ours, theirs)| ours / theirs).collect();
        self.peer = Some((peer, median(&ratios)));
        self
    }

    /// The row as JSON.
    fn to_json(&self) -> Value {
        let mut row = json!({
            "name": self.name,
            "metric": self.metric,
            "value": rounded(self.value),
            "unit": self.unit,
            "runs": self.runs,
            "spread": rounded(self.spread),
        });
        if let Some((peer, ratio)) = self.peer {
            row["peer"] = json!(peer);
            row["ratio"] = json!(rounded(ratio));
        }
        row
    }

    fn cell(&self) -> String {
        let ratio = self.peer.map_or(String::new(), |(_, ratio)| format!(" (x{ratio:.2})"));
        shown(self.value) + &ratio
    }
}

impl Report {
    /// The object of DESIGN section 8.
    pub(super) fn to_json(&self) -> Value {
        let rows: Vec<Value> = self.rows.iter().map(Row::to_json).collect();
        json!({ "bench": self.bench, "machine": machine(), "rows": rows, "notes": self.notes })
    }

    /// One line for each name, one column for each metric; ratios in brackets.
    pub(super) fn to_table(&self) -> String {
        let columns = distinct(self.rows.iter().map(|row| (row.metric, row.unit)));
        let mut lines = vec![vec![self.bench.to_owned()]];
        lines[0].extend(columns.iter().map(|(metric, unit)| title(metric, unit)));
        for name in distinct(self.rows.iter().map(|row| row.name.as_str())) {
            let cell = |(metric, _): &(&str, &str)| {
                let row = self.rows.iter().find(|row| row.name == name && row.metric == *metric);
                row.map_or(String::new(), Row::cell)
            };
            lines.push(core::iter::once(name.to_owned()).chain(columns.iter().map(cell)).collect());
        }
        let mut text = aligned(&lines);
        let spread = self.rows.iter().map(|row| row.spread).fold(0.0, f64::max);
        let runs = self.rows.iter().map(|row| row.runs).max().unwrap_or(0);
        let machine = machine();
        let _ = writeln!(
            text,
            "\nmedians of {runs} interleaved rounds; largest spread {:.0} %; {}, {} cores, Linux {}, load {}",
            spread * 100.0,
            machine["cpu"].as_str().unwrap_or("?"),
            machine["cores"],
            machine["kernel"].as_str().unwrap_or("?"),
            machine["load"],
        );
        for peer in distinct(self.rows.iter().filter_map(|row| row.peer.map(|(peer, _)| peer))) {
            let _ = writeln!(text, "(xN): times {peer}, in the same round");
        }
        for note in &self.notes {
            let _ = writeln!(text, "{note}");
        }
        text
    }
}

/// The middle value; the mean of the two middle ones for an even number. 0 without values.
pub(super) fn median(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let half = sorted.len() / 2;
    match sorted.len() {
        0 => 0.0,
        n if n % 2 == 1 => sorted[half],
        _ => f64::midpoint(sorted[half - 1], sorted[half]),
    }
}

/// From the smallest to the largest sample, without a tenth at each end.
fn width(samples: &[f64]) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = sorted.len() / 10;
    let kept = &sorted[cut..sorted.len() - cut];
    kept.last().unwrap_or(&0.0) - kept.first().unwrap_or(&0.0)
}

/// Describes the machine: CPU, cores, kernel and load.
fn machine() -> Value {
    let read = |path| fs::read_to_string(path).unwrap_or_default();
    let cpu = read("/proc/cpuinfo");
    let model = cpu.lines().find(|line| line.starts_with("model name")).and_then(|l| l.split_once(':'));
    let load = read("/proc/loadavg");
    json!({
        "cpu": model.map_or(std::env::consts::ARCH, |(_, name)| name.trim()),
        "cores": std::thread::available_parallelism().map_or(1, usize::from),
        "kernel": read("/proc/sys/kernel/osrelease").trim(),
        "load": load.split_whitespace().next().and_then(|n| n.parse::<f64>().ok()),
    })
}

/// The different items, in the order of their first occurrence.
fn distinct<T: PartialEq>(items: impl Iterator<Item = T>) -> Vec<T> {
    let mut seen = Vec::new();
    for item in items {
        if !seen.contains(&item) {
            seen.push(item);
        }
    }
    seen
}

fn title(metric: &str, unit: &str) -> String {
    if unit.is_empty() || metric.contains(unit) { metric.to_owned() } else { format!("{metric}, {unit}") }
}

/// Aligns the first column left, the others right.
fn aligned(lines: &[Vec<String>]) -> String {
    let width = |column: usize| lines.iter().map(|line| line[column].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..lines[0].len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let mut shown = format!("{:<1$}", line[0], widths[0]);
        for (cell, width) in line.iter().zip(&widths).skip(1) {
            let _ = write!(shown, "  {cell:>width$}");
        }
        let _ = writeln!(text, "{}", shown.trim_end());
    }
    text
}

/// Formats a number with three significant digits.
fn shown(value: f64) -> String {
    match value.abs() {
        x if x >= 1000.0 => thousands(value),
        x if x >= 100.0 => format!("{value:.0}"),
        x if x >= 10.0 => format!("{value:.1}"),
        _ => format!("{value:.2}"),
    }
}

/// Formats a rounded number with commas between groups of three digits.
fn thousands(value: f64) -> String {
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) && digit.is_ascii_digit() {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn rounded(value: f64) -> f64 {
    (value * 1e4).round() / 1e4
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A ratio must be the median of the ratios within rounds; a ratio of medians would mix quiet and busy rounds.
    #[test]
    fn ratios_compare_within_rounds() {
        let (ours, theirs) = ([2.0, 30.0, 4.0], [1.0, 10.0, 4.0]);
        let row = Row::new("a", "cost", "ns", &ours).against("b", &ours, &theirs);
        assert_eq!((row.value, row.peer), (4.0, Some(("b", 2.0))));
        assert_eq!(row.spread, 7.0);
    }

    /// The table has a line for each name, and a blank for a missing figure.
    #[test]
    fn table_shows_each_figure_once() {
        let rows = vec![
            Row::new("direct", "rate", "calls/s", &[123_456.0]),
            Row::new("hop", "rate", "calls/s", &[61_728.0]).against("direct", &[61_728.0], &[123_456.0]),
            Row::new("hop", "CPU", "us/call", &[3.25]),
        ];
        let table = Report { bench: "rpc", rows, notes: Vec::new(), failures: Vec::new() }.to_table();
        let expected = "rpc      rate, calls/s  CPU, us/call\n\
                        direct         123,456\n\
                        hop     61,728 (x0.50)          3.25\n";
        assert!(table.starts_with(expected), "{table}");
    }
}
