//! Explains a packet of a recording: shows the line that dropped a packet, and the values it decided by.

use super::history::{
    HandlerRun, Link, Occupancy, PacketEnd, PacketHistory, level_name, line_text, path_words, verdict,
};
use super::show::{cut_text, ms_text, seconds};
use crate::fault::Fault;
use crate::show::{Align, Table};
use crate::show::{count, grouped};
use core::fmt::Write as _;
use serde_json::{Value, json};
use weft_engine::call_queue::CALL_BYTES;
use weft_engine::queue::DropCause;
use weft_ir::queue::{Field, Limit, Moment, Partitions, Scope, Slot, Verdict, word};
use weft_lang::hir::{QueueType, QueueVar};

/// The maximum number of listed drops; a recording may have a million.
const LISTED_MAX: usize = 40;
/// The number of handler runs to show for a packet; the last ones count.
const RUNS_SHOWN: usize = 3;

/// Fields of packets, shown if the program reads them.
const FIELDS: [(Field, QueueType); 6] = [
    (Field::NetLen, QueueType::Size),
    (Field::Dscp, QueueType::Number),
    (Field::Class, QueueType::Number),
    (Field::Remaining, QueueType::Number),
    (Field::Slack, QueueType::Interval),
    (Field::Deadline, QueueType::Timestamp),
];

/// Hashes, shown if a handler reads them.
const HASHES: [(Field, &str); 3] = [(Field::Flow, "p.flow"), (Field::Src, "p.src"), (Field::Dst, "p.dst")];

/// A value that a handler saw: its name, and its text before and after.
struct ValueChange {
    name: String,
    before: String,
    after: String,
}

impl Link {
    /// The dropped packets as text; a long list is cut.
    pub fn drops_text(&self) -> String {
        listed(self)
    }

    /// The dropped packets as JSON; and a note if the file was truncated, which has no place in the list.
    pub fn drops_json(&self) -> (String, Option<String>) {
        let note = self.ends_in().map(|_| format!("link {}{}", self.head().link, cut_text(self)));
        (format!("{}\n", listed_data(self)), note)
    }

    /// Explains a packet, by its number from 1: its arrival, its end, and the handlers that decided.
    ///
    /// # Errors
    /// There is no such packet.
    pub fn explain(&self, number: u64, as_json: bool) -> Result<String, Fault> {
        let packets = &self.history.packets;
        let found = usize::try_from(number).ok().and_then(|number| packets.get(number.checked_sub(1)?));
        let Some(packet) = found else {
            let had = count(packets.len() as u64, self.head().unit());
            return Err(Fault::Input(format!("link {} had {had}, numbered from 1", self.head().link)));
        };
        let mut runs = self.runs(packet)?;
        runs.retain(|ran| has_verdict(ran.moment));
        Ok(match as_json {
            true => format!("{}\n", data(self, &runs, (number, packet))),
            false => text(self, &runs, (number, packet)),
        })
    }
}

/// The dropped packets of a link as text, at most [`LISTED_MAX`].
fn listed(link: &Link) -> String {
    use Align::{Left, Right};
    let (unit, program) = (link.head().unit(), &link.program);
    // All calls have the same length, but different workers.
    let kind = if link.head().calls.is_some() { ("worker", Left) } else { ("bytes", Right) };
    let columns = [
        (unit, Right),
        kind,
        ("flow", Left),
        ("came", Right),
        ("waited", Right),
        ("queue", Left),
        ("line", Right),
        ("", Left),
    ];
    let mut table = Table::new(&columns);
    for (number, packet) in link.history.dropped().take(LISTED_MAX) {
        let PacketEnd::Dropped { level, line, .. } = packet.end else { continue };
        table.row(vec![
            number.to_string(),
            link.worker(packet).map_or_else(|| packet.len.to_string(), worker_name),
            format!("{:08x}", packet.flow),
            format!("{:.6} s", signed_seconds(packet.came_ns)),
            ms_text(packet.waited().map_or(0, |(ns, _)| ns)),
            level_name(&program.queue, level).to_owned(),
            line.to_string(),
            line_text(program, level, line),
        ]);
    }
    let n = link.history.dropped().count();
    let mut out = format!(
        "link {}: {} dropped of {}{}\n{}",
        link.head().link,
        grouped(n as u64),
        count(link.history.packets.len() as u64, unit),
        cut_text(link),
        table.render()
    );
    if n > LISTED_MAX {
        let _ = writeln!(out, "and {} more: --json has all", grouped((n - LISTED_MAX) as u64));
    }
    out
}

/// The name of a worker's thread for calls.
fn worker_name(worker: u16) -> String {
    format!("weft-{worker}")
}

/// The dropped packets of a link as JSON.
fn listed_data(link: &Link) -> Value {
    let one = |(number, packet): (u64, &PacketHistory)| {
        let mut one = end_data(link, packet);
        one[link.head().unit()] = number.into();
        one
    };
    link.history.dropped().map(one).collect()
}

/// Explains a packet as text: its arrival, its end, and the last handler runs for it.
fn text(link: &Link, runs: &[HandlerRun], (number, packet): (u64, &PacketHistory)) -> String {
    let program = &link.program;
    let came = match u64::try_from(packet.came_ns) {
        Ok(came_ns) => format!("came after {:.6} s", seconds(came_ns)),
        Err(_) => {
            format!("had waited for {} when the recording began", ms_text(packet.came_ns.unsigned_abs()))
        }
    };
    let behind = count(packet.before.0, link.head().unit());
    let (what, behind) = match link.worker(packet) {
        Some(worker) => (format!("at worker {}", worker_name(worker)), behind),
        None => (format!("{} bytes", packet.len), format!("{behind} and {} bytes", grouped(packet.before.1))),
    };
    let mut out = format!(
        "{} {number} of link {}: {what}, flow {:08x}\n  {came}, behind {behind}\n",
        link.head().unit(),
        link.head().link,
        packet.flow,
    );
    let waited = packet.waited().map_or(String::new(), |(ns, _)| ms_text(ns));
    let _ = match packet.end {
        PacketEnd::Waits => writeln!(out, "  was waiting when the recording ended{}", cut_text(link)),
        PacketEnd::Sent { .. } if link.head().calls.is_some() => writeln!(out, "  went on after {waited}"),
        PacketEnd::Sent { is_marked, events, .. } => {
            let sent = if is_marked { "sent, marked," } else { "sent" };
            let behind = match events.is_plain() {
                true => String::new(),
                false => format!(", and then {} on the way", path_words(events).join(", ")),
            };
            writeln!(out, "  was {sent} after {waited}{behind}")
        }
        PacketEnd::Withdrawn { .. } => writeln!(
            out,
            "  left after {waited}, before its turn: its client did, or its deadline had passed"
        ),
        PacketEnd::Dropped { level, line, why, full, .. } => {
            let name = level_name(&program.queue, level);
            let _ =
                writeln!(out, "  was dropped after {waited} by line {line} of {name}, {}", cause_text(why));
            if why == DropCause::Overflow {
                let _ = writeln!(out, "  {}", fullness(link, packet, level, full));
            }
            writeln!(out, "    {line} | {}", line_text(program, level, line))
        }
    };
    for ran in &runs[runs.len().saturating_sub(RUNS_SHOWN)..] {
        let (verdict, line) = verdict(ran.end);
        let now = ran.before.event[usize::from(word::NOW)].saturating_sub(link.begun_ns());
        let name = level_name(&program.queue, ran.level as u8);
        let by = if line > 0 { format!(", line {line}") } else { String::new() };
        let _ = writeln!(
            out,
            "\n{} of {name} after {:.6} s: {}{by}",
            handler_name(ran.moment),
            seconds(now),
            verdict_word(ran.moment, verdict)
        );
        let mut table = Table::new(&[("", Align::Left), ("value", Align::Right), ("", Align::Left)]);
        for one in values(link, ran) {
            let after = if one.after == one.before { String::new() } else { format!("then {}", one.after) };
            table.row(vec![format!("  {}", one.name), one.before, after]);
        }
        out.push_str(&table.render());
    }
    out
}

/// Explains a packet as JSON: its end, and all handler runs for it.
fn data(link: &Link, runs: &[HandlerRun], (number, packet): (u64, &PacketHistory)) -> Value {
    let program = &link.program;
    let runs = runs.iter().map(|ran| {
        let (verdict, line) = verdict(ran.end);
        let values = values(link, ran);
        let of = |value: fn(&ValueChange) -> &String| {
            let pairs = values.iter().map(|one| (one.name.clone(), Value::from(value(one).as_str())));
            pairs.collect::<serde_json::Map<_, _>>()
        };
        json!({
            "queue": level_name(&program.queue, ran.level as u8),
            "handler": handler_name(ran.moment),
            "verdict": verdict_word(ran.moment, verdict),
            "line": line,
            "before": of(|one| &one.before),
            "after": of(|one| &one.after),
        })
    });
    let mut data = end_data(link, packet);
    data["link"] = link.head().link.as_str().into();
    data[link.head().unit()] = number.into();
    data["is_cut"] = link.ends_in().is_some().into();
    data["ended_early"] = json!(link.ended_early());
    data["runs"] = runs.collect();
    data
}

/// How a packet ended, as JSON: sent, marked, dropped with the line, abandoned, or still waiting.
fn end_data(link: &Link, packet: &PacketHistory) -> Value {
    let program = &link.program;
    let (end, by) = match packet.end {
        PacketEnd::Waits => ("waits", Value::Null),
        PacketEnd::Sent { is_marked: true, .. } => ("marked", Value::Null),
        PacketEnd::Sent { .. } => ("sent", Value::Null),
        PacketEnd::Withdrawn { .. } => ("left", Value::Null),
        PacketEnd::Dropped { level, line, why, full, .. } => {
            let name = level_name(&program.queue, level);
            let text = line_text(program, level, line);
            let mut by = json!({ "queue": name, "line": line, "text": text, "why": cause_text(why) });
            if why == DropCause::Overflow {
                let limit = limit(link, level);
                by["held_packets"] = full.packets.into();
                by["held_bytes"] = full.bytes.into();
                by["limit_packets"] = limit.and_then(|limit| limit.packets).into();
                by["limit_bytes"] = limit.and_then(|limit| limit.bytes).into();
            }
            ("dropped", by)
        }
    };
    let mut data = json!({
        "flow": packet.flow,
        "came_ns": packet.came_ns,
        "waited_ns": packet.waited().map(|(ns, _)| ns),
        "end": end,
        "by": by,
    });
    if let PacketEnd::Sent { events, .. } = packet.end
        && !events.is_plain()
    {
        data["way"] = path_words(events).into();
    }
    let (n, bytes) = packet.before;
    match link.worker(packet) {
        Some(worker) => {
            data["worker"] = worker.into();
            data["calls_before"] = n.into();
        }
        None => {
            data["bytes"] = packet.len.into();
            data["packets_before"] = n.into();
            data["bytes_before"] = bytes.into();
        }
    }
    data
}

/// The fill level of the queue when it made room for a packet, and its limit.
fn fullness(link: &Link, packet: &PacketHistory, level: u8, full: Occupancy) -> String {
    let unit = link.head().unit();
    let is_of_calls = link.head().calls.is_some();
    let amount = |n: u64, bytes: u64| match is_of_calls {
        true => count(n, unit),
        false => format!("{} and {} bytes", count(n, unit), grouped(bytes)),
    };
    let when = match link.displaced_by(packet, &full) {
        Some(other) => format!("when {unit} {other} came"),
        None => "when it came".to_owned(),
    };
    let limit = limit(link, level).map_or(String::new(), |limit| {
        let packets = limit.packets.map(|n| count(n.into(), unit));
        let bytes = limit.bytes.filter(|_| !is_of_calls).map(|n| format!("{} bytes", grouped(n)));
        let both: Vec<_> = [packets, bytes].into_iter().flatten().collect();
        let of = if level > 0 {
            format!(" of each {}", level_name(&link.program.queue, level))
        } else {
            String::new()
        };
        format!("; the limit{of} is {}", both.join(" and "))
    });
    format!("the queue held {} {when}{limit}", amount(full.packets, full.bytes))
}

fn limit(link: &Link, level: u8) -> Option<Limit> {
    link.program.queue.levels.get(usize::from(level)).map(|level| level.limit)
}

fn signed_seconds(ns: i64) -> f64 {
    ns as f64 / 1e9
}

/// The values that a handler could read, in the words of the language.
fn values(link: &Link, ran: &HandlerRun) -> Vec<ValueChange> {
    let (program, begun_ns) = (&link.program, link.begun_ns());
    let (before, after) = (&ran.before, &ran.after);
    let word = |words: &[u64], at: u16| words.get(usize::from(at)).copied().unwrap_or(0);
    let same = |name: &str, value: String| ValueChange {
        name: name.to_owned(),
        before: value.clone(),
        after: value,
    };
    let now = word(&before.event, word::NOW);
    let unit = |n: u64| count(n, link.head().unit());
    let mut values = vec![
        same("p.sojourn", ms_text(now.saturating_sub(word(&before.packet, word::ARRIVED)))),
        same("p.len", format!("{} B", word(&before.packet, word::LEN))),
        same("p.ecn", word(&before.packet, word::ECN).to_string()),
        same("queue.packets", unit(word(&before.node, word::PACKETS))),
        same("queue.bytes", format!("{} B", grouped(word(&before.node, word::BYTES)))),
    ];
    for (field, ty) in FIELDS {
        if let Some(at) = program.queue.field(field) {
            let show = |words: &[u64]| shown(ty, word(words, at), begun_ns);
            let name = format!("p.{}", field.name());
            values.push(ValueChange { name, before: show(&before.packet), after: show(&after.packet) });
        }
    }
    for (nth, header) in program.headers.iter().enumerate() {
        if let Some(at) = program.queue.field(Field::Header(nth as u8)) {
            values.push(same(header, (word(&before.packet, at) as i64).to_string()));
        }
    }
    for (field, name) in HASHES {
        if let Some(at) = program.queue.field(field)
            && uses(link, ran, Slot::new(Scope::Packet, at))
        {
            let hash = word(&before.packet, at);
            values.push(same(name, format!("{hash} ({hash:08x})")));
        }
    }
    for (at, field) in (word::FIELDS..).zip(&program.queue.fields) {
        let Field::Partitions(by) = field else { continue };
        if uses(link, ran, Slot::new(Scope::Packet, at)) {
            let by = match by.field() {
                Field::Header(nth) => program.headers[usize::from(nth)].clone(),
                field => format!("p.{}", field.name()),
            };
            values.push(same(&format!("partitions({by})"), word(&before.packet, at).to_string()));
        }
    }
    let level = &program.levels[ran.level];
    if uses(link, ran, Slot::new(Scope::Event, word::DROPS)) {
        values.push(same("drops", unit(word(&before.event, word::DROPS))));
    }
    if program.queue.levels[ran.level].partitions != Partitions::One {
        let rank = |words: &[u64]| (word(words, word::RANK) as i64).to_string();
        if uses(link, ran, Slot::new(Scope::Partition, word::INDEX)) {
            values.push(same("partition.index", word(&before.partition, word::INDEX).to_string()));
        }
        values.push(same("partition.packets", unit(word(&before.partition, word::PACKETS))));
        values.push(same("partition.bytes", format!("{} B", grouped(word(&before.partition, word::BYTES)))));
        values.push(ValueChange {
            name: "rank".to_owned(),
            before: rank(&before.partition),
            after: rank(&after.partition),
        });
    }
    let mut add = |vars: &[QueueVar], from: u16, (first, then): (&[u64], &[u64])| {
        for (nth, var) in vars.iter().enumerate() {
            let at = from + nth as u16;
            let show = |words: &[u64]| shown(var.ty, word(words, at), begun_ns);
            values.push(ValueChange { name: var.name.clone(), before: show(first), after: show(then) });
        }
    };
    add(&level.vars, word::NODE_VARS, (&before.node, &after.node));
    if program.queue.levels[ran.level].partitions != Partitions::One {
        add(&level.partition_vars, word::PARTITION_VARS, (&before.partition, &after.partition));
    }
    if word(&after.event, word::DRAWN) != 0 {
        let draw = word(&before.event, word::RANDOM) as f64 / (1_u64 << 53) as f64;
        values.push(same("rand()", format!("{draw:.6}")));
    }
    if word(&before.event, word::RATE) != 0 {
        values.push(same("link.rate", rate_text(link, word(&before.event, word::RATE))));
    }
    values
}

/// Whether the handler reads a word.
fn uses(link: &Link, ran: &HandlerRun, slot: Slot) -> bool {
    let level = &link.program.queue.levels[ran.level];
    level.handlers.get(ran.moment).is_some_and(|handler| handler.loads(slot))
}

/// The rate that a program sees. For calls, which all have one length, also in calls a second.
fn rate_text(link: &Link, bits_per_s: u64) -> String {
    match link.head().calls {
        Some(_) => {
            let calls_per_s = bits_per_s as f64 / f64::from(CALL_BYTES * 8);
            format!("{} ({calls_per_s:.1} calls/s)", crate::units::rate_text(bits_per_s))
        }
        None => crate::units::rate_text(bits_per_s),
    }
}

/// A word in its unit; points in time are relative to the beginning.
fn shown(ty: QueueType, word: u64, begun_ns: u64) -> String {
    match ty {
        QueueType::Bool => (word != 0).to_string().to_uppercase(),
        QueueType::Number => (word as i64).to_string(),
        QueueType::Float => format!("{:.9}", f64::from_bits(word)),
        QueueType::Interval => format!("{:.3} ms", word as i64 as f64 / 1e6),
        QueueType::Timestamp if word == 0 => "0".to_owned(),
        QueueType::Timestamp => format!("{:.6} s", (word as i64 - begun_ns as i64) as f64 / 1e9),
        QueueType::Size => format!("{} B", word as i64),
    }
}

fn has_verdict(moment: Moment) -> bool {
    matches!(moment, Moment::Enqueue | Moment::Select | Moment::Dequeue)
}

/// The construct of the language that a handler implements.
fn handler_name(moment: Moment) -> &'static str {
    match moment {
        Moment::Enqueue => "ON ENQUEUE",
        Moment::Select => "ON SELECT",
        Moment::Dequeue => "ON DEQUEUE",
        Moment::Activate => "ON ACTIVATE",
        Moment::Empty => "ON EMPTY",
        Moment::Every(_) | Moment::EachPartition(_) => "ON EVERY",
        Moment::Key => "PARTITION BY",
        Moment::PacketRank => "ORDER PACKETS BY",
    }
}

/// The statement of the language that gives this verdict in this handler.
fn verdict_word(moment: Moment, verdict: Verdict) -> &'static str {
    match (verdict, moment) {
        (Verdict::Pass, Moment::Enqueue) => "ACCEPT",
        (Verdict::Pass, Moment::Select) => "SERVE",
        (Verdict::Pass, _) => "SEND",
        (Verdict::Mark, _) => "MARK",
        (Verdict::Drop, _) => "DROP",
        (Verdict::Next, _) => "NEXT",
        (Verdict::Hold, _) => "HOLD",
        (Verdict::Stay, _) => "STAY",
        (Verdict::Rotate, _) => "ROTATE",
    }
}

/// A drop's cause, in words.
fn cause_text(why: DropCause) -> &'static str {
    match why {
        DropCause::Enqueue => "as it came",
        DropCause::Dequeue => "at the head",
        DropCause::Overflow => "for want of room",
    }
}
