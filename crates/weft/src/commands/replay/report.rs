//! The report of a replay.

use crate::commands::query;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use weft_api::QueryResult;
use weft_control::definition_files::{DefinitionFiles, location};
use weft_control::show::{Align, Table};
use weft_control::show::{count, grouped};
use weft_control::status::RowsRefused;
use weft_core::Interval;
use weft_core::abi::Counters;
use weft_engine::packet::stats::{PacketChainStats, PacketStats};

pub(super) struct Report<'n> {
    /// The chains that ran.
    pub(super) chains: Vec<String>,
    /// The captures, in the order of the options.
    pub(super) inputs: Vec<InputReport>,
    pub(super) packets: u64,
    pub(super) took: Duration,
    /// The time from the first captured packet to the last.
    pub(super) span: Interval,
    /// Rows by sink.
    pub(super) rows: Vec<(String, u64)>,
    /// Rows for tables that the tables refused.
    pub(super) rows_refused: RowsRefused,
    /// Evictions without a run of ON EVICT, by the name of the table.
    pub(super) evicted_untold: BTreeMap<String, u64>,
    pub(super) stats: PacketStats,
    /// The files of lines, if they are known.
    pub(super) lines: Option<DefinitionFiles<'n>>,
    /// The answers of the queries at the end.
    pub(super) answers: Vec<QueryResult>,
}

/// The report of a capture.
pub(super) struct InputReport {
    pub(super) file: String,
    /// The port that it fed.
    pub(super) port: String,
    pub(super) packets: u64,
    /// Packets that cannot arrive at such a port.
    pub(super) refused: u64,
    /// Packets that were captured only in part.
    pub(super) truncated: u64,
    /// The error that ended it early.
    pub(super) broken: Option<String>,
}

impl Report<'_> {
    /// The report as text.
    pub(super) fn table(&self) -> String {
        let seconds = self.took.as_secs_f64().max(1e-9);
        let mut out = format!(
            "{}: {} of {} in {:.3} s, {}/s; captured within {:.3} s\n",
            self.what_ran(),
            count(self.packets, "packet"),
            match &self.inputs[..] {
                [input] => input.file.clone(),
                inputs => count(inputs.len() as u64, "capture"),
            },
            seconds,
            grouped((self.packets as f64 / seconds) as u64),
            self.span.as_secs_f64(),
        );
        let (refused, truncated) = (self.sum(|input| input.refused), self.sum(|input| input.truncated));
        if refused > 0 {
            let were = if refused == 1 { "was" } else { "were" };
            out.push_str(&format!("{} of another kind {were} passed over\n", count(refused, "packet")));
        }
        if truncated > 0 {
            let (n, were) = (count(truncated, "packet"), if truncated == 1 { "was" } else { "were" });
            out.push_str(&format!(
                "{n} {were} captured in part, and count as malformed where a chain asks for more\n"
            ));
        }
        for (table, n) in &self.evicted_untold {
            let n = count(*n, "row");
            out.push_str(&format!("{table} gave up {n} of which ON EVICT was not told: too many at once\n"));
        }
        for (table, n) in &self.rows_refused {
            let n = count(*n, "row");
            out.push_str(&format!(
                "{table} refused {n}: it is full, a value does not fit, or a CHECK does not hold\n"
            ));
        }
        for block in self.blocks().iter().filter(|block| !block.is_empty()) {
            out.push('\n');
            out.push_str(block);
        }
        for answer in &self.answers {
            out.push('\n');
            out.push_str(&query::answer_text(answer));
        }
        out
    }

    /// The report as JSON.
    pub(super) fn json(&self) -> Value {
        let all = || self.stats.chains.iter();
        let chains = all().map(|chain| {
            json!({
                "name": chain.chain, "packets": chain.frames,
                "elements": elements_json(chain), "ended": ends_json(self.ends_of(chain)),
            })
        });
        let inputs = self.inputs.iter().map(|input| {
            json!({
                "file": input.file, "port": input.port, "packets": input.packets, "refused": input.refused,
                "truncated": input.truncated, "broken": input.broken,
            })
        });
        let ports = self.stats.ports.iter().map(|port| {
            json!({
                "name": port.name, "in": port.received, "in_bytes": port.received_bytes,
                "out": port.sent, "out_bytes": port.sent_bytes,
            })
        });
        let sinks = self.rows.iter().map(|(name, n)| json!({ "name": name, "rows": n }));
        let input = only(&self.inputs);
        json!({
            "chain": only(&self.chains),
            "port": input.map(|input| &input.port),
            "input": input.map(|input| &input.file),
            "inputs": inputs.collect::<Vec<_>>(),
            "packets": self.packets,
            "rows_refused": self.rows_refused,
            "evicted_untold": self.evicted_untold,
            "refused": self.sum(|input| input.refused),
            "truncated": self.sum(|input| input.truncated),
            "broken": self.inputs.iter().find_map(|input| input.broken.as_ref()),
            "seconds": self.took.as_secs_f64(),
            "captured_seconds": self.span.as_secs_f64(),
            "copies": self.stats.copies,
            "chains": chains.collect::<Vec<_>>(),
            "elements": all().flat_map(elements_json).collect::<Vec<_>>(),
            "ended": ends_json(all().flat_map(|chain| self.ends_of(chain)).chain(self.lost())),
            "ports": ports.collect::<Vec<_>>(),
            "sinks": sinks.collect::<Vec<_>>(),
            "answers": self.answers,
        })
    }

    /// The chains and ports: ``chain `edge` on port `wan` ``.
    fn what_ran(&self) -> String {
        let named = |what: &str, names: Vec<&String>| {
            let plural = if names.len() == 1 { "" } else { "s" };
            let names: Vec<_> = names.into_iter().map(|name| format!("`{name}`")).collect();
            format!("{what}{plural} {}", names.join(", "))
        };
        let ports = self.inputs.iter().map(|input| &input.port);
        format!("{} on {}", named("chain", self.chains.iter().collect()), named("port", ports.collect()))
    }

    fn sum(&self, of: impl Fn(&InputReport) -> u64) -> u64 {
        self.inputs.iter().map(of).sum()
    }

    /// The tables of the report. With several chains, each has its own, after a line with its name.
    fn blocks(&self) -> Vec<String> {
        let mut blocks = Vec::new();
        if self.inputs.len() > 1 {
            blocks.push(self.captures().render());
        }
        match &self.stats.chains[..] {
            [chain] => {
                blocks.push(elements(chain).render());
                blocks.push(ends(self.ends_of(chain).chain(self.lost())).render());
            }
            chains => {
                for chain in chains {
                    let title = format!("chain `{}`: {}\n", chain.chain, count(chain.frames, "packet"));
                    blocks.push(title + &elements(chain).render());
                    blocks.push(ends(self.ends_of(chain)).render());
                }
                blocks.push(ends(self.lost()).render());
            }
        }
        blocks.extend([self.ports().render(), self.sinks().render()]);
        blocks
    }

    /// The packets of each capture file, as a table.
    fn captures(&self) -> Table {
        let columns = [
            ("capture", Align::Left),
            ("port", Align::Left),
            ("packets", Align::Right),
            ("passed over", Align::Right),
            ("in part", Align::Right),
        ];
        let mut table = Table::new(&columns);
        for input in &self.inputs {
            let counts = [input.packets, input.refused, input.truncated].map(cell);
            table.row([input.file.clone(), input.port.clone()].into_iter().chain(counts).collect());
        }
        table
    }

    /// The packets of each used port, as a table.
    fn ports(&self) -> Table {
        let columns = [("port", Align::Left), ("in", Align::Right), ("out", Align::Right)];
        let mut table = Table::new(&columns);
        for port in self.stats.ports.iter().filter(|port| port.received + port.sent > 0) {
            table.row(vec![port.name.clone(), cell(port.received), cell(port.sent)]);
        }
        table
    }

    /// The rows of each sink, as a table.
    fn sinks(&self) -> Table {
        let mut table = Table::new(&[("sink", Align::Left), ("rows", Align::Right)]);
        for (name, n) in &self.rows {
            table.row(vec![name.clone(), grouped(*n)]);
        }
        table
    }

    /// The outcomes of a chain's packets.
    fn ends_of<'c>(&'c self, chain: &'c PacketChainStats) -> impl Iterator<Item = PacketsEnd> + 'c {
        let malformed = chain.malformed.iter().map(|(check, n)| PacketsEnd {
            why: format!("malformed {}: {}", check.protocol, check.what),
            file: self.lines.map_or(String::new(), |lines| lines.of_protocol(&check.protocol)),
            line: Some(check.line),
            packets: *n,
        });
        malformed.chain(chain.ends.iter().map(|end| PacketsEnd {
            why: format!("{} by {}", end.how, end.element),
            file: self.lines.map_or(String::new(), |lines| lines.of_instance(&chain.chain, &end.element)),
            line: Some(end.line),
            packets: end.n,
        }))
    }

    /// The outcomes of packets outside of any chain.
    fn lost(&self) -> impl Iterator<Item = PacketsEnd> {
        self.stats.drops.iter().map(|(reason, n)| PacketsEnd {
            why: reason.to_string(),
            file: String::new(),
            line: None,
            packets: *n,
        })
    }
}

/// A number of packets that went no further, and the reason.
struct PacketsEnd {
    why: String,
    file: String,
    line: Option<u32>,
    packets: u64,
}

/// The counters of a chain's elements, as a table.
fn elements(chain: &PacketChainStats) -> Table {
    let mut table = Table::new(&[
        ("element", Align::Left),
        ("seen", Align::Right),
        ("dropped", Align::Right),
        ("aborted", Align::Right),
        ("diverted", Align::Right),
        ("failed", Align::Right),
    ]);
    for (name, c) in &chain.elements {
        let counts = [c.seen, c.dropped, c.aborted, c.diverted, c.failed].map(cell);
        table.row([name.clone()].into_iter().chain(counts).collect());
    }
    table
}

/// The counters of a chain's elements, as JSON.
fn elements_json(chain: &PacketChainStats) -> Vec<Value> {
    let element = |(name, c): &(String, Counters)| {
        json!({
            "name": name, "seen": c.seen, "dropped": c.dropped, "aborted": c.aborted,
            "diverted": c.diverted, "failed": c.failed,
        })
    };
    chain.elements.iter().map(element).collect()
}

/// The packets that ended early, by reason and program line, as a table.
fn ends(all: impl Iterator<Item = PacketsEnd>) -> Table {
    let columns =
        [("packets that went no further", Align::Left), ("where", Align::Left), ("packets", Align::Right)];
    let mut table = Table::new(&columns);
    for end in all {
        let location = end.line.map_or("-".to_owned(), |line| location(&end.file, line));
        table.row(vec![end.why, location, grouped(end.packets)]);
    }
    table
}

fn ends_json(all: impl Iterator<Item = PacketsEnd>) -> Vec<Value> {
    let end = |end: PacketsEnd| json!({ "why": end.why, "file": end.file, "line": end.line, "packets": end.packets });
    all.map(end).collect()
}

/// The only element, if there is exactly one.
fn only<T>(all: &[T]) -> Option<&T> {
    if let [one] = all { Some(one) } else { None }
}

fn cell(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { grouped(n) }
}
