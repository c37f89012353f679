//! What is told of a replay.

use crate::commands::{count, grouped, query};
use crate::lines::{Lines, place};
use crate::table::{Align, Table};
use serde_json::{Value, json};
use std::time::Duration;
use weft_api::Answer;
use weft_core::Interval;
use weft_engine::packet::stats::PacketStats;

pub(super) struct Report<'n> {
    pub(super) chain: String,
    /// The port that the capture fed.
    pub(super) port: String,
    pub(super) input: String,
    pub(super) packets: u64,
    /// Packets that cannot come in at such a port.
    pub(super) refused: u64,
    /// Packets of which only the beginning was captured.
    pub(super) truncated: u64,
    /// Why the capture ended before its end.
    pub(super) broken: Option<String>,
    pub(super) took: Duration,
    /// From the first packet to the last, as they were captured.
    pub(super) span: Interval,
    /// Rows by sink.
    pub(super) rows: Vec<(String, u64)>,
    /// Those for tables that the tables did not take.
    pub(super) rows_refused: u64,
    pub(super) stats: PacketStats,
    /// In which files lines are, if that is known.
    pub(super) lines: Option<Lines<'n>>,
    /// What tables hold at the end, as was asked.
    pub(super) answers: Vec<Answer>,
}

impl Report<'_> {
    /// For a person.
    pub(super) fn table(&self) -> String {
        let seconds = self.took.as_secs_f64().max(1e-9);
        let mut out = format!(
            "chain `{}` on port `{}`: {} of {} in {:.3} s, {}/s; captured within {:.3} s\n",
            self.chain,
            self.port,
            count(self.packets, "packet"),
            self.input,
            seconds,
            grouped((self.packets as f64 / seconds) as u64),
            self.span.as_secs_f64(),
        );
        if self.refused > 0 {
            out.push_str(&format!("{} of another kind were passed over\n", count(self.refused, "packet")));
        }
        if self.truncated > 0 {
            let n = count(self.truncated, "packet");
            out.push_str(&format!("{n} were captured in part, and may count as malformed for that\n"));
        }
        if self.rows_refused > 0 {
            let n = count(self.rows_refused, "row");
            out.push_str(&format!(
                "{n} for tables were refused: the table is full, or a value does not fit\n"
            ));
        }
        for table in [self.elements(), self.ends(), self.ports(), self.sinks()] {
            let text = table.render();
            if !text.is_empty() {
                out.push('\n');
                out.push_str(&text);
            }
        }
        for answer in &self.answers {
            out.push('\n');
            out.push_str(&query::told(answer));
        }
        out
    }

    /// As data.
    pub(super) fn json(&self) -> Value {
        let chains = self.stats.chains.iter();
        let elements = chains.clone().flat_map(|chain| &chain.elements).map(|(name, c)| {
            json!({
                "name": name, "seen": c.seen, "dropped": c.dropped, "aborted": c.aborted,
                "diverted": c.diverted, "failed": c.failed,
            })
        });
        let ends = self.all_ends().into_iter();
        let ports = self.stats.ports.iter().map(|port| {
            json!({
                "name": port.name, "in": port.received, "in_bytes": port.received_bytes,
                "out": port.sent, "out_bytes": port.sent_bytes,
            })
        });
        let sinks = self.rows.iter().map(|(name, n)| json!({ "name": name, "rows": n }));
        json!({
            "chain": self.chain,
            "port": self.port,
            "input": self.input,
            "packets": self.packets,
            "rows_refused": self.rows_refused,
            "refused": self.refused,
            "truncated": self.truncated,
            "broken": self.broken,
            "seconds": self.took.as_secs_f64(),
            "captured_seconds": self.span.as_secs_f64(),
            "copies": self.stats.copies,
            "elements": elements.collect::<Vec<_>>(),
            "ended": ends.map(|end| json!({
                "why": end.why, "file": end.file, "line": end.line, "packets": end.packets,
            })).collect::<Vec<_>>(),
            "ports": ports.collect::<Vec<_>>(),
            "sinks": sinks.collect::<Vec<_>>(),
            "answers": self.answers,
        })
    }

    fn elements(&self) -> Table {
        let mut table = Table::new(&[
            ("element", Align::Left),
            ("seen", Align::Right),
            ("dropped", Align::Right),
            ("aborted", Align::Right),
            ("redirected", Align::Right),
            ("failed", Align::Right),
        ]);
        for (name, c) in self.stats.chains.iter().flat_map(|chain| &chain.elements) {
            let counts = [c.seen, c.dropped, c.aborted, c.diverted, c.failed].map(cell);
            table.row([name.clone()].into_iter().chain(counts).collect());
        }
        table
    }

    fn ends(&self) -> Table {
        let columns = [
            ("packets that went no further", Align::Left),
            ("where", Align::Left),
            ("packets", Align::Right),
        ];
        let mut table = Table::new(&columns);
        for end in self.all_ends() {
            let place = end.line.map_or("-".to_owned(), |line| place(&end.file, line));
            table.row(vec![end.why, place, grouped(end.packets)]);
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

    fn all_ends(&self) -> Vec<PacketsEnd> {
        let mut all = Vec::new();
        for chain in &self.stats.chains {
            all.extend(chain.malformed.iter().map(|(check, n)| PacketsEnd {
                why: format!("malformed {}: {}", check.protocol, check.what),
                file: self.lines.map_or(String::new(), |lines| lines.of_protocol(&check.protocol)),
                line: Some(check.line),
                packets: *n,
            }));
            all.extend(chain.ends.iter().map(|end| PacketsEnd {
                why: format!("{} by {}", end.how, end.element),
                file: self.lines.map_or(String::new(), |lines| lines.of_instance(&chain.chain, &end.element)),
                line: Some(end.line),
                packets: end.n,
            }));
        }
        all.extend(self.stats.lost.iter().map(|(reason, n)| PacketsEnd {
            why: reason.to_string(),
            file: String::new(),
            line: None,
            packets: *n,
        }));
        all
    }
}

/// Why packets went no further, where that is said, and how many.
struct PacketsEnd {
    why: String,
    file: String,
    line: Option<u32>,
    packets: u64,
}

fn cell(n: u64) -> String {
    if n == 0 { "-".to_owned() } else { grouped(n) }
}
