//! Shows a link's queue over time, on a terminal, as JSON or as a picture.

use super::EndedEarly;
use super::history::{History, Link, PacketEnd, PacketHistory, level_name, path_words};
use crate::show::svg::{begin, escaped};
use crate::show::{count, grouped};
use crate::units::rate_text;
use core::fmt::Write as _;
use serde_json::{Value, json};

/// The columns and rows of a chart on a terminal.
const COLUMNS: usize = 72;
const ROWS: u64 = 6;
/// The points of a line in a picture, one per pixel, and its height.
const POINTS: usize = 720;
const HEIGHT: usize = 150;
const LEFT: usize = 70;
const TOP: usize = 60;
const GAP: usize = 60;

/// A link over time, in intervals of equal length.
struct TimeSeries {
    /// The maximum number of packets that waited at once.
    queued: Vec<u64>,
    /// The longest wait of a departing packet, in nanoseconds.
    waited: Vec<u64>,
    /// Dropped packets.
    dropped: Vec<u64>,
}

impl Link {
    /// The link over time, for a terminal.
    pub fn text(&self) -> String {
        text(self)
    }

    /// The link over time, as JSON.
    pub fn json(&self) -> String {
        format!("{}\n", data(self))
    }

    /// The link over time, as an SVG picture.
    pub fn svg(&self) -> String {
        picture(self)
    }
}

impl TimeSeries {
    /// Divides the recorded time into `pieces`: the largest backlog and wait, and the drops, of each.
    fn of(history: &History, pieces: usize) -> Self {
        let piece = |at_ns: u64| {
            let at = u128::from(at_ns) * pieces as u128 / (u128::from(history.ended_ns) + 1);
            (at as usize).min(pieces - 1)
        };
        let mut series = Self { queued: vec![0; pieces], waited: vec![0; pieces], dropped: vec![0; pieces] };
        let mut changes = Vec::new();
        for packet in &history.packets {
            changes.push((packet.came_ns.max(0) as u64, 1_i64));
            let Some((waited_ns, at_ns)) = packet.waited() else { continue };
            changes.push((at_ns, -1));
            let at = piece(at_ns);
            match packet.end {
                PacketEnd::Dropped { .. } => series.dropped[at] += 1,
                // The queue still holds it.
                PacketEnd::Withdrawn { .. } => {}
                _ => series.waited[at] = series.waited[at].max(waited_ns),
            }
        }
        // A packet that is dropped on arrival has not waited.
        changes.sort_unstable();
        let (mut queued, mut next) = (0_i64, changes.into_iter().peekable());
        for (at, most) in series.queued.iter_mut().enumerate() {
            *most = queued.max(0) as u64;
            while let Some((_, change)) = next.next_if(|(at_ns, _)| piece(*at_ns) == at) {
                queued += change;
                *most = (*most).max(queued.max(0) as u64);
            }
        }
        series
    }
}

/// The first line: link, queue, duration, and the numbers of packets by end.
fn headline(link: &Link) -> String {
    let (head, history) = (link.head(), &link.history);
    let unit = head.unit();
    let cut = cut_text(link);
    // Calls have no marks, and packets do not leave on their own.
    let has_left = |packet: &PacketHistory| matches!(packet.end, PacketEnd::Withdrawn { .. });
    let is_marked = |packet: &PacketHistory| matches!(packet.end, PacketEnd::Sent { is_marked: true, .. });
    let n_of = |is_meant: fn(&PacketHistory) -> bool| {
        grouped(history.packets.iter().filter(|packet| is_meant(packet)).count() as u64)
    };
    let others = match head.calls {
        Some(_) => format!("{} left", n_of(has_left)),
        None => format!("{} marked{}", n_of(is_marked), path_text(history)),
    };
    format!(
        "link {}  {}{}  {:.1} s: {}, {} dropped, {others}{cut}",
        head.link,
        link.program.queue.name,
        limits(link),
        seconds(history.ended_ns),
        count(history.packets.len() as u64, unit),
        grouped(history.dropped().count() as u64),
    )
}

/// The events on the path after the queue, as a clause after a comma.
fn path_text(history: &History) -> String {
    let happened = history.happened().into_iter().filter(|(n, _)| *n > 0);
    happened.map(|(n, what)| format!(", {} {what}", grouped(n))).collect()
}

/// The missing part of a recording, as a clause after a semicolon.
pub(super) fn cut_text(link: &Link) -> String {
    if let Some(line) = link.ends_in() {
        let end = seconds(link.history.ended_ns);
        return format!("; the file is cut short behind line {line}, after {end:.6} s");
    }
    match (link.ended_early(), link.missed()) {
        (None, _) => String::new(),
        (Some(EndedEarly::Replaced), _) => {
            "; the link got another queue: what came later was not recorded".to_owned()
        }
        (Some(EndedEarly::Full), 0) => "; what came later was not recorded".to_owned(),
        (Some(EndedEarly::Full), n) => {
            format!("; {} that came later were not recorded", count(n, link.head().unit()))
        }
    }
}

/// The limits of the link that delay its packets or calls.
fn limits(link: &Link) -> String {
    let head = link.head();
    let Some(calls) = head.calls else {
        return head.rate.map_or(String::new(), |rate| format!("  {}", rate_text(rate)));
    };
    let concurrency = calls.concurrency.map(|n| format!("  {} under way", count(n.into(), "call")));
    let rate = calls.rate.map(|rate| format!("  {rate} calls/s"));
    let workers = format!("  {}", count(link.n_parts() as u64, "worker"));
    [concurrency, rate, Some(workers)].into_iter().flatten().collect()
}

/// The titles of the panels of a chart or a picture: the number waiting, their wait, and the drops.
fn titles(link: &Link) -> [String; 3] {
    let unit = link.head().unit();
    let leave = if link.head().calls.is_some() { "go on" } else { "leave" };
    [
        format!("{unit}s that wait"),
        format!("how long those that {leave} have waited"),
        format!("{unit}s dropped"),
    ]
}

/// A link's backlog, waiting times and drops over time as text charts.
fn text(link: &Link) -> String {
    let (series, ended_ns) = (TimeSeries::of(&link.history, COLUMNS), link.history.ended_ns);
    let [wait, waited, dropped] = titles(link);
    let mut out = format!("{}\n", headline(link));
    chart(&mut out, &wait, &series.queued, ended_ns, grouped);
    chart(&mut out, &waited, &series.waited, ended_ns, ms_text);
    if series.dropped.iter().any(|n| *n > 0) {
        chart(&mut out, &dropped, &series.dropped, ended_ns, grouped);
    }
    out
}

/// Appends a text chart of the values, with its highest value as the label.
fn chart(out: &mut String, title: &str, values: &[u64], ended_ns: u64, label_of: impl Fn(u64) -> String) {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let label = label_of(most);
    let _ = writeln!(out, "\n{title}");
    for row in (0..ROWS).rev() {
        let left = if row + 1 == ROWS { label.as_str() } else { "" };
        // A cell is full if the value is above its lower edge, so that every nonzero value shows.
        let cell = |value: &u64| {
            if u128::from(*value) * u128::from(ROWS) > u128::from(row) * u128::from(most) { '#' } else { ' ' }
        };
        let cells: String = values.iter().map(cell).collect();
        let _ = writeln!(out, "{left:>10} |{}", cells.trim_end());
    }
    let _ = writeln!(out, "{:>10} +{}", "0", "-".repeat(values.len()));
    let end = format!("{:.1} s", seconds(ended_ns));
    let _ = writeln!(out, "{:>10}  0 s{end:>width$}", "", width = values.len().saturating_sub(3));
}

/// A link's packets and their ends as JSON.
fn data(link: &Link) -> Value {
    let history = &link.history;
    let one = |packet: &PacketHistory| {
        let end = match packet.end {
            PacketEnd::Waits => json!({ "end": "waits" }),
            PacketEnd::Sent { at_ns, is_marked, events } => {
                let mut end = json!({ "end": if is_marked { "marked" } else { "sent" }, "at_ns": at_ns });
                if !events.is_plain() {
                    end["way"] = path_words(events).into();
                }
                end
            }
            PacketEnd::Withdrawn { at_ns } => json!({ "end": "left", "at_ns": at_ns }),
            PacketEnd::Dropped { at_ns, level, line, .. } => json!({
                "end": "dropped", "at_ns": at_ns, "queue": level_name(&link.program.queue, level), "line": line,
            }),
        };
        let mut one = json!({ "flow": packet.flow, "came_ns": packet.came_ns, "end": end });
        match link.worker(packet) {
            Some(worker) => one["worker"] = worker.into(),
            None => one["bytes"] = packet.len.into(),
        }
        one
    };
    let head = link.head();
    let mut data = json!({
        "link": head.link,
        "queue": link.program.queue.name,
        "seconds": seconds(history.ended_ns),
        "is_cut": link.ends_in().is_some(),
        "file_ends_in_line": link.ends_in(),
        "ended_early": link.ended_early(),
        "missed": link.missed(),
    });
    let all: Vec<Value> = history.packets.iter().map(one).collect();
    match head.calls {
        Some(calls) => {
            data["concurrency"] = calls.concurrency.into();
            data["rate_calls_per_s"] = calls.rate.into();
            data["workers"] = link.n_parts().into();
            data["calls"] = all.into();
        }
        None => {
            data["rate_bits_per_s"] = head.rate.into();
            for (n, what) in history.happened() {
                data[what] = n.into();
            }
            data["packets"] = all.into();
        }
    }
    data
}

/// A link's backlog and waiting times over time as SVG.
fn picture(link: &Link) -> String {
    let (series, ended_ns) = (TimeSeries::of(&link.history, POINTS), link.history.ended_ns);
    let mut out = begin(LEFT + POINTS + 30, TOP + 2 * (HEIGHT + GAP));
    let _ = writeln!(out, "<text x=\"20\" y=\"28\" font-size=\"15\">{}</text>", escaped(&headline(link)));
    let [wait, waited, _] = titles(link);
    let panels = [
        (wait, &series.queued, "#2563eb", grouped as fn(u64) -> String),
        (waited, &series.waited, "#059669", ms_text),
    ];
    for (nth, (title, values, colour, label_of)) in panels.into_iter().enumerate() {
        panel(&mut out, (&title, values, colour), TOP + nth * (HEIGHT + GAP), ended_ns, label_of);
    }
    let bottom = TOP + HEIGHT;
    for (at, _) in series.dropped.iter().enumerate().filter(|(_, n)| **n > 0) {
        let x = LEFT + at;
        let _ = writeln!(
            out,
            "<line x1=\"{x}\" y1=\"{bottom}\" x2=\"{x}\" y2=\"{}\" stroke=\"#dc2626\"/>",
            bottom + 6
        );
    }
    let _ = writeln!(
        out,
        "<text x=\"{}\" y=\"{}\" font-size=\"11\" fill=\"#dc2626\" text-anchor=\"end\">drops</text>",
        LEFT - 6,
        bottom + 8
    );
    out.push_str("</svg>\n");
    out
}

/// Appends one chart of the SVG.
fn panel(
    out: &mut String,
    (title, values, colour): (&str, &[u64], &str),
    top: usize,
    ended_ns: u64,
    label_of: fn(u64) -> String,
) {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let (bottom, right) = (top + HEIGHT, LEFT + POINTS);
    let height = |value: u64| bottom as f64 - value as f64 / most as f64 * HEIGHT as f64;
    let points: Vec<String> =
        values.iter().enumerate().map(|(at, value)| format!("{},{:.1}", LEFT + at, height(*value))).collect();
    let _ = writeln!(
        out,
        "<text x=\"{LEFT}\" y=\"{}\" fill=\"#4b5563\">{}</text>\n\
         <path d=\"M{LEFT} {top}V{bottom}H{right}\" fill=\"none\" stroke=\"#9ca3af\"/>\n\
         <polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\"/>\n\
         <text x=\"{}\" y=\"{}\" font-size=\"11\" text-anchor=\"end\">{}</text>\n\
         <text x=\"{right}\" y=\"{}\" font-size=\"11\" text-anchor=\"end\">{:.1} s</text>",
        top - 8,
        escaped(title),
        points.join(" "),
        LEFT - 6,
        top + 10,
        escaped(&label_of(most)),
        bottom + 20,
        seconds(ended_ns),
    );
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn ms_text(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}
