//! Replays a recorded queue: the outcome of each packet, and the values that a handler decided by.

use super::{EndedEarly, Head, Program, Recording, RecordingError};
use crate::check::Checked;
use crate::fault::Fault;
use std::sync::mpsc::{Sender, channel};
use weft_api::Bundle;
use weft_engine::queue::{Counts, DropCause, Packet, Queue, QueueCode, QueueProgram};
use weft_engine::recording::{self, PathEvents, QueueEvent};
use weft_ir::queue::run::Interpreted;
use weft_ir::queue::{Moment, Verdict, Words, word};

/// The ECN codepoint of marked packets (RFC 3168): congestion experienced.
const MARKED: u8 = 3;

/// A link of a file: its queue, or the queues of several workers, with the outcomes of all packets.
pub struct Link {
    /// The recording of each worker; one, unless it is a link of calls.
    parts: Vec<Recording>,
    /// Its program.
    pub program: Program,
    pub(crate) history: History,
}

/// The packets, or calls, of a link.
#[derive(Default)]
pub(crate) struct History {
    /// In order of arrival.
    pub(crate) packets: Vec<PacketHistory>,
    /// The end, in nanoseconds since the beginning.
    pub(crate) ended_ns: u64,
    /// The handler runs for the watched packet.
    runs: Vec<HandlerRun>,
    /// Calls in the queue that no longer wait.
    n_left: u64,
}

/// An arrived packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PacketHistory {
    /// The index of the link's part that it came to, and its number there from 1.
    part: usize,
    number: u64,
    pub(crate) len: u32,
    pub(crate) flow: u32,
    /// It came with a mark from another queue.
    came_marked: bool,
    /// Nanoseconds since the beginning; negative if it already waited then.
    pub(crate) came_ns: i64,
    /// Packets and bytes in the queue when it came.
    pub(crate) before: (u64, u64),
    pub(crate) end: PacketEnd,
}

/// The outcome of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PacketEnd {
    /// It waited when the recording ended.
    Waits,
    /// It was sent, or went on; with the events on the path after an emulated link.
    Sent { at_ns: u64, is_marked: bool, events: PathEvents },
    /// A call that left before its turn.
    Withdrawn { at_ns: u64 },
    /// It was dropped. `full` matters for an overflow: the queue's contents when a packet without room came, without
    /// that packet, and its number.
    Dropped { at_ns: u64, level: u8, line: u32, why: DropCause, full: Occupancy },
}

/// The fill level of a queue when it made room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Occupancy {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
    /// The last packet to arrive, by its number from 1 in its part.
    came: u64,
}

/// A run of a handler.
#[derive(Clone, Debug)]
pub(crate) struct HandlerRun {
    pub(crate) level: usize,
    pub(crate) moment: Moment,
    /// The word that it returned.
    pub(crate) end: u64,
    pub(crate) before: HandlerState,
    pub(crate) after: HandlerState,
}

/// The words that a handler reads and writes.
#[derive(Clone, Debug, Default)]
pub(crate) struct HandlerState {
    pub(crate) node: Vec<u64>,
    pub(crate) partition: Vec<u64>,
    pub(crate) packet: Vec<u64>,
    pub(crate) event: Vec<u64>,
}

impl PacketHistory {
    /// The wait in nanoseconds, and its end since the beginning; None if it still waits.
    pub(crate) fn waited(&self) -> Option<(u64, u64)> {
        let (PacketEnd::Sent { at_ns, .. }
        | PacketEnd::Dropped { at_ns, .. }
        | PacketEnd::Withdrawn { at_ns }) = self.end
        else {
            return None;
        };
        Some(((at_ns as i64 - self.came_ns).max(0) as u64, at_ns))
    }

    /// Moves the packet's times later by `ns`, for a recording that began that much later than another.
    fn shifted(self, ns: u64) -> Self {
        let end = match self.end {
            PacketEnd::Waits => PacketEnd::Waits,
            PacketEnd::Sent { at_ns, is_marked, events } => {
                PacketEnd::Sent { at_ns: at_ns + ns, is_marked, events }
            }
            PacketEnd::Withdrawn { at_ns } => PacketEnd::Withdrawn { at_ns: at_ns + ns },
            PacketEnd::Dropped { at_ns, level, line, why, full } => {
                PacketEnd::Dropped { at_ns: at_ns + ns, level, line, why, full }
            }
        };
        Self { came_ns: self.came_ns + ns as i64, end, ..self }
    }
}

impl Link {
    /// Replays a link of a file: the one of this name, or the one with the most drops. `check` checks its program.
    ///
    /// # Errors
    /// There is no such link, its program is wrong, or a line cannot be parsed.
    pub fn choose(
        recordings: Vec<Recording>,
        name: Option<&str>,
        check: &dyn Fn(&Bundle) -> Checked,
    ) -> Result<Self, RecordingError> {
        let mut best: Option<(usize, Self)> = None;
        let links = whole_links(recordings);
        let names: Vec<String> = links.iter().map(|parts| parts[0].head.link.clone()).collect();
        for parts in links {
            if name.is_some_and(|name| name != parts[0].head.link) {
                continue;
            }
            let link = Self::of(parts, check)?;
            let n = link.history.dropped().count();
            if best.as_ref().is_none_or(|(most, _)| n > *most) {
                best = Some((n, link));
            }
        }
        best.map(|(_, found)| found).ok_or_else(|| {
            Fault::Input(format!("no such link in the recording; it has {}", names.join(", "))).into()
        })
    }

    /// Replays the recordings of all workers, at least one.
    ///
    /// # Errors
    /// The program is wrong, or a line of a recording cannot be parsed; the error names it.
    fn of(parts: Vec<Recording>, check: &dyn Fn(&Bundle) -> Checked) -> Result<Self, RecordingError> {
        let program = parts[0].program(check)?;
        let mut link = Self { parts, program, history: History::default() };
        for (nth, part) in link.parts.iter().enumerate() {
            let own = History::of(part, &link.program, None)?;
            let later = part.head.begun_ns - link.begun_ns();
            let packets =
                own.packets.into_iter().map(|packet| PacketHistory { part: nth, ..packet.shifted(later) });
            link.history.packets.extend(packets);
            link.history.ended_ns = link.history.ended_ns.max(own.ended_ns + later);
        }
        if link.parts.len() > 1 {
            link.history.packets.sort_by_key(|packet| packet.came_ns);
        }
        Ok(link)
    }

    /// The head of the first part; the others share its link.
    pub(crate) fn head(&self) -> &Head {
        &self.parts[0].head
    }

    /// The earliest beginning of its parts, in nanoseconds of the clock.
    pub(crate) fn begun_ns(&self) -> u64 {
        self.parts.iter().map(|part| part.head.begun_ns).min().unwrap_or(0)
    }

    /// Why its recording ended early, if it did.
    pub(crate) fn ended_early(&self) -> Option<EndedEarly> {
        self.parts.iter().find_map(|part| part.head.ended_early())
    }

    /// The known number of packets that are missing at the end.
    pub(crate) fn missed(&self) -> u64 {
        self.parts.iter().map(|part| part.head.missed).sum()
    }

    /// The last whole line of its file, if that was truncated in this link.
    pub(crate) fn ends_in(&self) -> Option<usize> {
        self.parts.iter().find_map(|part| part.ends_in)
    }

    /// The number of its queues.
    pub(crate) fn n_parts(&self) -> usize {
        self.parts.len()
    }

    /// The worker of a call; None if the recording has no workers.
    pub(crate) fn worker(&self, packet: &PacketHistory) -> Option<u16> {
        self.parts[packet.part].head.calls.map(|calls| calls.worker)
    }

    /// The number of the packet whose arrival made the queue drop `packet`, if it is another one.
    pub(crate) fn displaced_by(&self, packet: &PacketHistory, full: &Occupancy) -> Option<u64> {
        let is_it = |other: &PacketHistory| other.part == packet.part && other.number == full.came;
        let nth = self.history.packets.iter().position(is_it).filter(|_| packet.number != full.came)?;
        Some(nth as u64 + 1)
    }

    /// The values that handlers saw in their runs for a packet, while it waited.
    ///
    /// # Errors
    /// Only errors that were reported before.
    pub(crate) fn runs(&self, packet: &PacketHistory) -> Result<Vec<HandlerRun>, Fault> {
        let mut runs = History::of(&self.parts[packet.part], &self.program, Some(packet.number))?.runs;
        if let PacketEnd::Withdrawn { at_ns } = packet.end {
            let until = self.begun_ns() + at_ns;
            runs.retain(|ran| ran.before.event[usize::from(word::NOW)] <= until);
        }
        Ok(runs)
    }
}

/// Joins the recordings of several workers into their link.
fn whole_links(parts: Vec<Recording>) -> Vec<Vec<Recording>> {
    let mut links: Vec<Vec<Recording>> = Vec::new();
    for part in parts {
        match links.last_mut() {
            Some(link) if link.last().is_some_and(|last| last.is_continued_by(&part)) => link.push(part),
            _ => links.push(vec![part]),
        }
    }
    links
}

impl History {
    /// Replays the recorded requests on a new queue; watches a packet, by its number from 1, if given.
    ///
    /// # Errors
    /// A line of the recording cannot be parsed; the error names it.
    fn of(recorded: &Recording, program: &Program, watched: Option<u64>) -> Result<Self, Fault> {
        let begun_ns = recorded.head.begun_ns;
        let (sender, runs) = channel();
        let watch = Watch { inner: Interpreted::new(program.queue.clone()), watched, runs: sender };
        let short = recorded
            .ends_in
            .map_or(String::new(), |line| format!("; the file is cut short behind line {line}"));
        let fault = |line: usize, why| {
            Fault::Input(format!("line {} of the recording: {why}{short}", recorded.line + line))
        };
        let (snapshot, n_rows, calls) =
            recording::read_snapshot(&recorded.text).map_err(|error| fault(error.line, error.why))?;
        let mut history = Self::default();
        let mut queue = match &snapshot {
            None => Queue::new(program.queue.clone(), watch, begun_ns, recorded.head.seed),
            Some(snapshot) => {
                let fault_of = |(row, why)| fault(row + 1, why);
                let plain = Interpreted::new(program.queue.clone());
                let copy = Queue::restore(program.queue.clone(), plain, snapshot).map_err(fault_of)?;
                history.begin_with(copy, begun_ns);
                Queue::restore(program.queue.clone(), watch, snapshot).map_err(fault_of)?
            }
        };
        let mut last_sent = None;
        for (nth, asked) in recording::read(calls, begun_ns).enumerate() {
            let (now_ns, mut asked) = asked.map_err(|error| fault(n_rows + error.line, error.why))?;
            let wrong = |why| fault(n_rows + nth + 1, why);
            history.ended_ns = now_ns - begun_ns;
            match &mut asked {
                QueueEvent::Enqueue(packet) => history.enqueue(packet, &queue.counts()),
                QueueEvent::Left(number) => history.withdraw(*number).map_err(wrong)?,
                QueueEvent::Refilled(_) => history.n_left = 0,
                QueueEvent::Path(events) => history.path_events(last_sent, *events).map_err(wrong)?,
                QueueEvent::Dequeue | QueueEvent::Timeout | QueueEvent::Rate(_) => {}
            }
            let held = queue.counts();
            let full = Occupancy {
                packets: held.queued.saturating_sub(history.n_left),
                bytes: held.queued_bytes,
                came: history.packets.len() as u64,
            };
            let sent = recording::ask(&mut queue, now_ns, &asked);
            if let Some(sent) = sent.map_err(wrong)? {
                let is_marked = sent.ecn == MARKED && !history.packets[sent.handle as usize].came_marked;
                let (at_ns, events) = (history.ended_ns, PathEvents::default());
                history.end(sent.handle, PacketEnd::Sent { at_ns, is_marked, events });
                last_sent = Some(sent.handle);
            }
            while let Some(dropped) = queue.poll_dropped() {
                let (level, line, why) = (dropped.level, dropped.line, dropped.why);
                let at_ns = dropped.dropped_ns.saturating_sub(begun_ns);
                history.end(dropped.handle, PacketEnd::Dropped { at_ns, level, line, why, full });
            }
        }
        drop(queue);
        history.runs = runs.into_iter().collect();
        Ok(history)
    }

    /// Adds the packets that wait when the recording begins; the handles in a restored queue are numbers from 0.
    fn begin_with(&mut self, mut copy: Queue<Interpreted>, begun_ns: u64) {
        let mut all = copy.take_all();
        // Several may have come at the same time; sort them by number.
        all.sort_unstable_by_key(|(packet, _)| packet.handle);
        let mut bytes = 0;
        for (packet, arrived_ns) in all {
            let before = (self.packets.len() as u64, bytes);
            self.come(&packet, arrived_ns as i64 - begun_ns as i64, before);
            bytes += u64::from(packet.len);
        }
    }

    /// Adds an arriving packet to a queue with these contents: its handle is its number.
    fn enqueue(&mut self, packet: &mut Packet, held: &Counts) {
        packet.handle = self.packets.len() as u64;
        let before = (held.queued.saturating_sub(self.n_left), held.queued_bytes);
        self.come(packet, self.ended_ns as i64, before);
    }

    fn come(&mut self, packet: &Packet, came_ns: i64, before: (u64, u64)) {
        let Packet { len, flow, ecn, .. } = *packet;
        let (number, came_marked) = (self.packets.len() as u64 + 1, ecn == MARKED);
        let end = PacketEnd::Waits;
        self.packets.push(PacketHistory { part: 0, number, len, flow, came_marked, came_ns, before, end });
    }

    /// A call leaves before its turn; the queue still holds it.
    fn withdraw(&mut self, number: u64) -> Result<(), &'static str> {
        let packet = usize::try_from(number).ok().and_then(|nth| self.packets.get_mut(nth));
        let packet = packet.filter(|packet| packet.end == PacketEnd::Waits);
        packet.ok_or("it names a packet that does not wait")?.end =
            PacketEnd::Withdrawn { at_ns: self.ended_ns };
        self.n_left += 1;
        Ok(())
    }

    /// Adds events on the path after the link to the last sent packet.
    fn path_events(&mut self, last_sent: Option<u64>, happened: PathEvents) -> Result<(), &'static str> {
        let packet = last_sent.and_then(|handle| self.packets.get_mut(handle as usize));
        match packet.map(|packet| &mut packet.end) {
            Some(PacketEnd::Sent { events, .. }) => *events = happened,
            _ => return Err("no packet was sent before it"),
        }
        Ok(())
    }

    /// Sets the end of a packet that the queue releases. An abandoned packet keeps its end.
    fn end(&mut self, handle: u64, end: PacketEnd) {
        let packet = &mut self.packets[handle as usize];
        match packet.end {
            PacketEnd::Withdrawn { .. } => self.n_left = self.n_left.saturating_sub(1),
            _ => packet.end = end,
        }
    }

    /// The numbers of sent packets that were lost, duplicated, damaged, or overtaken.
    pub(crate) fn happened(&self) -> [(u64, &'static str); 4] {
        let mut all = PathEvents::default().named().map(|(_, what)| (0, what));
        for packet in &self.packets {
            if let PacketEnd::Sent { events, .. } = packet.end {
                all.iter_mut().zip(events.named()).for_each(|((n, _), (has, _))| *n += u64::from(has));
            }
        }
        all
    }

    /// The dropped packets.
    pub(crate) fn dropped(&self) -> impl Iterator<Item = (u64, &PacketHistory)> {
        let numbered = self.packets.iter().enumerate().map(|(nth, packet)| (nth as u64 + 1, packet));
        numbered.filter(|(_, packet)| matches!(packet.end, PacketEnd::Dropped { .. }))
    }
}

/// The interpreter, with a record of its runs for one packet.
#[derive(Debug)]
struct Watch {
    inner: Interpreted,
    watched: Option<u64>,
    runs: Sender<HandlerRun>,
}

impl QueueCode for Watch {
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        let handle = words.packet[usize::from(word::HANDLE)];
        if !moment.has_packet() || self.watched != Some(handle + 1) {
            return self.inner.run(level, moment, words);
        }
        let before = HandlerState::of(&words);
        let Words { node, partition, packet, event } = words;
        let lent =
            Words { node: &mut *node, partition: &mut *partition, packet: &mut *packet, event: &mut *event };
        let end = self.inner.run(level, moment, lent);
        let after = HandlerState::of(&Words { node, partition, packet, event });
        let ran = HandlerRun { level, moment, end, before, after };
        self.runs.send(ran).expect("the replay collects the runs");
        end
    }
}

impl HandlerState {
    /// Copies the words that a handler may read or change.
    fn of(words: &Words<'_>) -> Self {
        Self {
            node: words.node.to_vec(),
            partition: words.partition.to_vec(),
            packet: words.packet.to_vec(),
            event: words.event.to_vec(),
        }
    }
}

/// The name of a level, and the text of its queue's line.
pub(crate) fn line_text(program: &Program, level: u8, line: u32) -> String {
    let Some(level) = program.levels.get(usize::from(level)) else { return String::new() };
    let file = program.sources.file(level.span.file);
    file.line(line).trim().to_owned()
}

/// The name of a level.
pub(crate) fn level_name(program: &QueueProgram, level: u8) -> &str {
    program.levels.get(usize::from(level)).map_or("", |level| &level.name)
}

/// The verdict of a handler, and its line.
pub(crate) fn verdict(end: u64) -> (Verdict, u32) {
    (Verdict::of_word(end), Verdict::line(end))
}

/// The events of a packet on the path, a word each.
pub(crate) fn path_words(events: PathEvents) -> Vec<&'static str> {
    events.named().into_iter().filter(|(has, _)| *has).map(|(_, word)| word).collect()
}
