//! `weft link show`: what waited over time, on a terminal, as data or as a picture.

use super::history::{End, History, level_name};
use super::spec::told_rate;
use crate::cli::LinkShowArgs;
use crate::commands::{count, grouped};
use crate::fault::Fault;
use crate::recording_file::{self, Program, Recorded};
use crate::svg::{begin, escaped};
use core::fmt::Write as _;
use serde_json::{Value, json};
use std::io::Write as _;
use std::path::Path;

/// Columns and rows of a chart on a terminal.
const COLUMNS: usize = 72;
const ROWS: u64 = 6;
/// Points of a line in a picture, a pixel each, and how high it is.
const POINTS: usize = 720;
const HEIGHT: usize = 150;
const LEFT: usize = 70;
const TOP: usize = 60;
const GAP: usize = 60;

/// A link over time, in pieces of equal length.
struct Course {
    /// The most packets that waited at once.
    queued: Vec<u64>,
    /// The longest that a packet that left had waited, in nanoseconds.
    waited: Vec<u64>,
    /// Packets that were dropped.
    dropped: Vec<u64>,
}

pub(super) fn run(args: &LinkShowArgs) -> Result<(), Fault> {
    let (recorded, program, history) = open(&args.file, args.link.as_deref())?;
    let mut stdout = std::io::stdout();
    // Whoever closed it does not want it.
    let _ = match args.json {
        true => writeln!(stdout, "{}", data(&recorded, &program, &history)),
        false => write!(stdout, "{}", text(&recorded, &program, &history)),
    };
    let Some(file) = &args.svg else { return Ok(()) };
    let picture = picture(&recorded, &program, &history);
    std::fs::write(file, picture).map_err(|error| Fault::environment(format!("{}: {error}", file.display())))
}

/// A link of a file, its program and its history: that of this name, or the one that dropped most.
pub(super) fn open(file: &Path, name: Option<&str>) -> Result<(Recorded, Program, History), Fault> {
    let mut best: Option<(usize, (Recorded, Program, History))> = None;
    let links = recording_file::read(file)?;
    let names: Vec<String> = links.iter().map(|link| link.head.link.clone()).collect();
    for recorded in links {
        if name.is_some_and(|name| name != recorded.head.link) {
            continue;
        }
        let program = recorded.program()?;
        let history = History::of(&recorded, &program, None)?;
        let n = history.dropped().count();
        if best.as_ref().is_none_or(|(most, _)| n > *most) {
            best = Some((n, (recorded, program, history)));
        }
    }
    let found = best.map(|(_, found)| found);
    found.ok_or_else(|| Fault::Input(format!("no such link in the recording; it has {}", names.join(", "))))
}

impl Course {
    fn of(history: &History, pieces: usize) -> Self {
        let piece = |at_ns: u64| {
            let at = u128::from(at_ns) * pieces as u128 / (u128::from(history.ended_ns) + 1);
            (at as usize).min(pieces - 1)
        };
        let mut course = Self { queued: vec![0; pieces], waited: vec![0; pieces], dropped: vec![0; pieces] };
        let mut changes = Vec::new();
        for packet in &history.packets {
            changes.push((packet.came_ns.max(0) as u64, 1_i64));
            let Some((waited_ns, at_ns)) = packet.waited() else { continue };
            changes.push((at_ns, -1));
            let at = piece(at_ns);
            match packet.end {
                End::Dropped { .. } => course.dropped[at] += 1,
                _ => course.waited[at] = course.waited[at].max(waited_ns),
            }
        }
        // What is dropped as it comes has not waited.
        changes.sort_unstable();
        let (mut queued, mut next) = (0_i64, changes.into_iter().peekable());
        for (at, most) in course.queued.iter_mut().enumerate() {
            *most = queued.max(0) as u64;
            while let Some((_, change)) = next.next_if(|(at_ns, _)| piece(*at_ns) == at) {
                queued += change;
                *most = (*most).max(queued.max(0) as u64);
            }
        }
        course
    }
}

fn headline(recorded: &Recorded, program: &Program, history: &History) -> String {
    let head = &recorded.head;
    let rate = head.rate.map_or(String::new(), |rate| format!("  {}", told_rate(rate)));
    let marked = history.packets.iter().filter(|one| matches!(one.end, End::Sent { is_marked: true, .. }));
    let cut = match (head.is_cut, head.missed) {
        (false, _) => String::new(),
        (true, 0) => "; what came later was not recorded".to_owned(),
        (true, n) => format!("; {} that came later were not recorded", count(n, "packet")),
    };
    format!(
        "link {}  {}{rate}  {:.1} s: {}, {} dropped, {} marked{cut}",
        head.link,
        program.queue.name,
        seconds(history.ended_ns),
        count(history.packets.len() as u64, "packet"),
        grouped(history.dropped().count() as u64),
        grouped(marked.count() as u64),
    )
}

fn text(recorded: &Recorded, program: &Program, history: &History) -> String {
    let course = Course::of(history, COLUMNS);
    let mut out = format!("{}\n", headline(recorded, program, history));
    chart(&mut out, "packets that wait", &course.queued, history.ended_ns, grouped);
    chart(&mut out, "how long those that leave have waited", &course.waited, history.ended_ns, told_ms);
    if course.dropped.iter().any(|n| *n > 0) {
        chart(&mut out, "packets dropped", &course.dropped, history.ended_ns, grouped);
    }
    out
}

fn chart(out: &mut String, title: &str, values: &[u64], ended_ns: u64, told: impl Fn(u64) -> String) {
    let most = values.iter().copied().max().unwrap_or(0).max(1);
    let label = told(most);
    let _ = writeln!(out, "\n{title}");
    for row in (0..ROWS).rev() {
        let left = if row + 1 == ROWS { label.as_str() } else { "" };
        // A cell is full once the value is above its lower edge, so that what is not zero is seen.
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

fn data(recorded: &Recorded, program: &Program, history: &History) -> Value {
    let packets = history.packets.iter().map(|packet| {
        let end = match packet.end {
            End::Waits => json!({ "end": "waits" }),
            End::Sent { at_ns, is_marked } => {
                json!({ "end": if is_marked { "marked" } else { "sent" }, "at_ns": at_ns })
            }
            End::Dropped { at_ns, level, line, .. } => json!({
                "end": "dropped", "at_ns": at_ns, "queue": level_name(&program.queue, level), "line": line,
            }),
        };
        json!({ "bytes": packet.len, "flow": packet.flow, "came_ns": packet.came_ns, "end": end })
    });
    json!({
        "link": recorded.head.link,
        "queue": program.queue.name,
        "rate_bits_per_s": recorded.head.rate,
        "seconds": seconds(history.ended_ns),
        "is_cut": recorded.head.is_cut,
        "missed": recorded.head.missed,
        "packets": packets.collect::<Vec<_>>(),
    })
}

fn picture(recorded: &Recorded, program: &Program, history: &History) -> String {
    let course = Course::of(history, POINTS);
    let mut out = begin(LEFT + POINTS + 30, TOP + 2 * (HEIGHT + GAP));
    let title = headline(recorded, program, history);
    let _ = writeln!(out, "<text x=\"20\" y=\"28\" font-size=\"15\">{}</text>", escaped(&title));
    let panels = [
        ("packets that wait", &course.queued, "#2563eb", grouped as fn(u64) -> String),
        ("how long those that leave have waited", &course.waited, "#059669", told_ms),
    ];
    for (nth, (title, values, colour, told)) in panels.into_iter().enumerate() {
        let top = TOP + nth * (HEIGHT + GAP);
        panel(&mut out, (title, values, colour), top, history.ended_ns, told);
    }
    let bottom = TOP + HEIGHT;
    for (at, _) in course.dropped.iter().enumerate().filter(|(_, n)| **n > 0) {
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

fn panel(
    out: &mut String,
    (title, values, colour): (&str, &[u64], &str),
    top: usize,
    ended_ns: u64,
    told: fn(u64) -> String,
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
        escaped(&told(most)),
        bottom + 20,
        seconds(ended_ns),
    );
}

pub(super) fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

pub(super) fn told_ms(ns: u64) -> String {
    format!("{:.2} ms", ns as f64 / 1e6)
}
