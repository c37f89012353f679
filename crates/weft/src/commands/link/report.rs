//! The report of an emulated link's traffic.

use super::spec::{DOWN, INSIDE, LinkDirection, OUTSIDE, UP};
use core::fmt::Write as _;
use serde_json::{Value, json};
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::time::Duration;
use weft_control::show::{Align, Table};
use weft_control::show::{count, grouped};
use weft_control::status::link_drops;
use weft_control::units::rate_text;
use weft_engine::packet::impair::{Bursts, Loss};
use weft_engine::queue::LineTotal;
use weft_engine::report::{LinkReport, PacketNodeStats, PortReport};
use weft_ir::queue::Verdict;

/// The figures of one run.
pub(super) struct Report<'r> {
    pub(super) up: &'r LinkDirection,
    pub(super) down: &'r LinkDirection,
    pub(super) packets: &'r PacketNodeStats,
    /// The run time of the command.
    pub(super) took: Duration,
    pub(super) status: ExitStatus,
    /// The outcome of the far process, if it ended before the command.
    pub(super) far: Option<FarEnd>,
}

/// How the far process ended on its own: with a code, or by a signal.
#[derive(Clone, Copy, Debug)]
pub(super) struct FarEnd {
    pub(super) code: Option<i32>,
    pub(super) signal: Option<i32>,
    pub(super) after: Duration,
}

/// One direction, with its output port.
struct Direction<'r> {
    name: &'static str,
    spec: &'r LinkDirection,
    link: &'r LinkReport,
    to: &'r PortReport,
}

impl<'r> Report<'r> {
    /// The report as JSON.
    pub(super) fn data(&self) -> Value {
        let directions = self.directions().map(|one| (one.name.to_owned(), self.direction(&one)));
        json!({
            "seconds": self.took.as_secs_f64(),
            "status": self.status.code(),
            "signal": self.status.signal(),
            "far": self.far.map(|far| {
                json!({ "seconds": far.after.as_secs_f64(), "status": far.code, "signal": far.signal })
            }),
            "links": directions.collect::<serde_json::Map<_, _>>(),
        })
    }

    /// The report as text.
    pub(super) fn text(&self) -> String {
        use Align::{Left, Right};
        let columns = [
            ("link", Left),
            ("packets", Right),
            ("through", Right),
            ("rate", Right),
            ("dropped", Right),
            ("lost", Right),
            ("marked", Right),
            ("waited p50", Right),
            ("p90", Right),
            ("p99", Right),
        ];
        let mut table = Table::new(&columns);
        let mut lines =
            Table::new(&[("link", Left), ("queue", Left), ("line", Right), ("", Left), ("packets", Right)]);
        for one in self.directions() {
            let (stats, counts) = (&one.link.stats, &one.link.stats.counts);
            let ms = |ns: u64| format!("{:.2} ms", ns as f64 / 1e6);
            let mut cells = vec![
                one.name.to_owned(),
                grouped(counts.arrived),
                grouped(one.to.device.sent),
                rate_text(self.rate(&one) as u64),
                grouped(counts.dropped()),
                grouped(stats.path.lost),
                grouped(counts.marked),
            ];
            cells.extend(stats.waited_ns.map(ms));
            table.row(cells);
            for line in &stats.lines {
                let cells = vec![
                    one.name.to_owned(),
                    line.queue.clone(),
                    line.line.to_string(),
                    verdict_of(line).to_owned(),
                    grouped(line.packets),
                ];
                lines.row(cells);
            }
        }
        let ended = how_ended(self.status.code(), self.status.signal(), self.took);
        let mut text = format!("\nlink: the command {ended}\n");
        if let Some(FarEnd { code, signal, after }) = self.far {
            let _ = writeln!(text, "link: the far command {}, before it", how_ended(code, signal, after));
        }
        text.push_str(&table.render());
        if !lines.render().is_empty() {
            let _ = write!(text, "\n{}", lines.render());
        }
        for one in self.directions() {
            let path = &one.link.stats.path;
            let happened = [
                (path.duplicated, "arrived twice"),
                (path.corrupted, "had a bit flipped"),
                (path.reordered, "were held up to be overtaken"),
                (path.uncopied, "were to arrive twice, and there was no buffer for the copy"),
            ];
            let events: Vec<_> = happened
                .into_iter()
                .filter(|(n, _)| *n > 0)
                .map(|(n, what)| format!("{} {what}", grouped(n)))
                .collect();
            if !events.is_empty() {
                let _ = writeln!(text, "{}: {}", one.name, events.join(", "));
            }
            let (left, overrun) = (one.link.stats.on_the_way + one.link.stats.counts.queued, one.to.full);
            if left > 0 {
                let _ = writeln!(text, "{}: {} had not arrived by then", one.name, count(left, "packet"));
            }
            if overrun > 0 {
                let _ = writeln!(text, "{}: {} found no room at the end", one.name, count(overrun, "packet"));
            }
        }
        text
    }

    /// One direction's setting, counters and queue lines as JSON.
    fn direction(&self, one: &Direction<'_>) -> Value {
        let (stats, counts) = (&one.link.stats, &one.link.stats.counts);
        let lines = stats.lines.iter().map(|line| {
            let verdict = verdict_of(line);
            json!({ "queue": line.queue, "line": line.line, "verdict": verdict, "packets": line.packets })
        });
        let impair = &one.spec.path.impair;
        let loss = match impair.loss {
            Loss::Each(share) => json!(share),
            Loss::Bursts(Bursts { begin, end, loss_bad, loss_good }) => {
                json!({ "begin": begin, "end": end, "bad": loss_bad, "good": loss_good })
            }
        };
        let [p50, p90, p99] = stats.waited_ns.map(|ns| ns as f64 / 1e6);
        json!({
            "queue": one.spec.queue,
            "rate_bits_per_s": one.spec.bits_per_s(),
            "delay_ms": impair.delay_ns as f64 / 1e6,
            "jitter_ms": impair.jitter_ns as f64 / 1e6,
            "keep_order": impair.keep_order,
            "loss": loss,
            "duplicate": impair.duplicate,
            "corrupt": impair.corrupt,
            "reorder": impair.reorder.share,
            "reorder_gap": impair.reorder.gap.max(1),
            "reorder_distance": impair.reorder.distance,
            "changes": one.spec.path.changes.len(),
            "arrived": counts.arrived,
            "sent": counts.sent,
            "queued": counts.queued,
            "on_the_way": stats.on_the_way,
            "lost": stats.path.lost,
            "duplicated": stats.path.duplicated,
            "corrupted": stats.path.corrupted,
            "reordered": stats.path.reordered,
            "uncopied": stats.path.uncopied,
            "dropped": link_drops(counts).collect::<std::collections::BTreeMap<_, _>>(),
            "marked": counts.marked,
            "through": one.to.device.sent,
            "through_bytes": one.to.device.sent_bytes,
            "through_bits_per_s": self.rate(one),
            "waited_ms": { "p50": p50, "p90": p90, "p99": p99 },
            "lines": lines.collect::<Vec<_>>(),
        })
    }

    /// The delivered bits a second, over the whole run.
    fn rate(&self, one: &Direction<'_>) -> f64 {
        one.to.device.sent_bytes as f64 * 8.0 / self.took.as_secs_f64().max(1e-9)
    }

    /// Both directions with their links and ports.
    fn directions(&self) -> impl Iterator<Item = Direction<'r>> {
        let packets = self.packets;
        let of = move |(name, port, spec): (&'static str, &str, &'r LinkDirection)| {
            let link = packets.links.iter().find(|link| link.plan.name == name)?;
            let to = packets.ports.iter().find(|one| one.config.name == port)?;
            Some(Direction { name, spec, link, to })
        };
        [(UP, OUTSIDE, self.up), (DOWN, INSIDE, self.down)].into_iter().filter_map(of)
    }
}

/// Formats the end of the command: `ended with 127 after 0.0 s`.
fn how_ended(code: Option<i32>, signal: Option<i32>, after: Duration) -> String {
    let how = match (code, signal) {
        (_, Some(signal)) => format!("by signal {signal}"),
        (code, None) => format!("with {}", code.unwrap_or(0)),
    };
    format!("ended {how} after {:.1} s", after.as_secs_f64())
}

fn verdict_of(line: &LineTotal) -> &'static str {
    if line.verdict == Verdict::Mark { "marked" } else { "dropped" }
}
