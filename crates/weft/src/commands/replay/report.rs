//! What is told of a replay.

use crate::commands::{count, grouped, query};
use crate::lines::{Lines, place};
use crate::running::RowsRefused;
use crate::table::{Align, Table};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use weft_api::QueryResult;
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
    /// From the first packet to the last, as they were captured.
    pub(super) span: Interval,
    /// Rows by sink.
    pub(super) rows: Vec<(String, u64)>,
    /// Those for tables that the tables did not take.
    pub(super) rows_refused: RowsRefused,
    /// Rows of which no ON EVICT was told, by the name of the table.
    pub(super) evicted_untold: BTreeMap<String, u64>,
    pub(super) stats: PacketStats,
    /// In which files lines are, if that is known.
    pub(super) lines: Option<Lines<'n>>,
    /// What tables hold at the end, as was asked.
    pub(super) answers: Vec<QueryResult>,
}

/// What is told of a capture.
pub(super) struct InputReport {
    pub(super) file: String,
    /// The port that it fed.
    pub(super) port: String,
    pub(super) packets: u64,
    /// Packets that cannot come in at such a port.
    pub(super) refused: u64,
    /// Packets of which only the beginning was captured.
    pub(super) truncated: u64,
    /// Why the capture ended before its end.
    pub(super) broken: Option<String>,
}

impl Report<'_> {
    /// For a person.
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
            out.push_str(&query::told(answer));
        }
        out
    }

    /// As data.
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

    /// What ran where: ``chain `edge` on port `wan` ``.
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

    /// What is told in tables. Each of several chains has its own, behind a line that says which it is.
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

    fn ports(&self) -> Table {
        let columns = [("port", Align::Left), ("in", Align::Right), ("out", Align::Right)];
        let mut table = Table::new(&columns);
        for port in self.stats.ports.iter().filter(|port| port.received + port.sent > 0) {
            table.row(vec![port.name.clone(), cell(port.received), cell(port.sent)]);
        }
        table
    }

    fn sinks(&self) -> Table {
        let mut table = Table::new(&[("sink", Align::Left), ("rows", Align::Right)]);
        for (name, n) in &self.rows {
            table.row(vec![name.clone(), grouped(*n)]);
        }
        table
    }

    /// How packets of a chain ended.
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

    /// How packets ended that no chain speaks of.
    fn lost(&self) -> impl Iterator<Item = PacketsEnd> {
        self.stats.lost.iter().map(|(reason, n)| PacketsEnd {
            why: reason.to_string(),
            file: String::new(),
            line: None,
            packets: *n,
        })
    }
}

/// Why packets went no further, where that is said, and how many.
struct PacketsEnd {
    why: String,
    file: String,
    line: Option<u32>,
    packets: u64,
}

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

fn elements_json(chain: &PacketChainStats) -> Vec<Value> {
    let element = |(name, c): &(String, Counters)| {
        json!({
            "name": name, "seen": c.seen, "dropped": c.dropped, "aborted": c.aborted,
            "diverted": c.diverted, "failed": c.failed,
        })
    };
    chain.elements.iter().map(element).collect()
}

fn ends(all: impl Iterator<Item = PacketsEnd>) -> Table {
    let columns =
        [("packets that went no further", Align::Left), ("where", Align::Left), ("packets", Align::Right)];
    let mut table = Table::new(&columns);
    for end in all {
        let place = end.line.map_or("-".to_owned(), |line| place(&end.file, line));
        table.row(vec![end.why, place, grouped(end.packets)]);
    }
    table
}

fn ends_json(all: impl Iterator<Item = PacketsEnd>) -> Vec<Value> {
    let end = |end: PacketsEnd| json!({ "why": end.why, "file": end.file, "line": end.line, "packets": end.packets });
    all.map(end).collect()
}

/// The one that there is, if there is one.
fn only<T>(all: &[T]) -> Option<&T> {
    if let [one] = all { Some(one) } else { None }
}

fn cell(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { grouped(n) }
}
