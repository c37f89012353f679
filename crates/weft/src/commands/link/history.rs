//! A recorded queue, asked again: what became of each packet, and what a handler saw when it decided.

use crate::fault::Fault;
use crate::recording_file::{Program, Recorded};
use std::sync::{Arc, Mutex, PoisonError};
use weft_engine::queue::{Packet, Queue, QueueCode, QueueProgram, Why};
use weft_engine::recording::{self, Asked};
use weft_ir::queue::run::Interpreted;
use weft_ir::queue::{Moment, Verdict, Words, word};

/// All packets of a link.
pub(super) struct History {
    /// In the order in which they came.
    pub(super) packets: Vec<Passed>,
    /// When it ended, in nanoseconds since it began.
    pub(super) ended_ns: u64,
    /// What the handlers that were run for the watched packet saw.
    pub(super) runs: Vec<Ran>,
}

/// A packet that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Passed {
    pub(super) len: u32,
    pub(super) flow: u32,
    /// Nanoseconds since the beginning; below zero if it waited already then.
    pub(super) came_ns: i64,
    /// Packets and bytes that were there when it came.
    pub(super) before: (u64, u64),
    pub(super) end: End,
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    /// It waited when the recording ended.
    Waits,
    /// It was sent.
    Sent { at_ns: u64, is_marked: bool },
    /// It was dropped.
    Dropped { at_ns: u64, level: u8, line: u32, why: Why },
}

/// A handler that was run.
#[derive(Clone, Debug)]
pub(super) struct Ran {
    pub(super) level: usize,
    pub(super) moment: Moment,
    /// The word that it ended with.
    pub(super) end: u64,
    pub(super) before: Seen,
    pub(super) after: Seen,
}

/// The words that a handler works on.
#[derive(Clone, Debug, Default)]
pub(super) struct Seen {
    pub(super) node: Vec<u64>,
    pub(super) partition: Vec<u64>,
    pub(super) packet: Vec<u64>,
    pub(super) event: Vec<u64>,
}

impl Passed {
    /// How long it waited, in nanoseconds, and until when since the beginning; None if it waits still.
    pub(super) fn waited(&self) -> Option<(u64, u64)> {
        let (End::Sent { at_ns, .. } | End::Dropped { at_ns, .. }) = self.end else { return None };
        Some(((at_ns as i64 - self.came_ns).max(0) as u64, at_ns))
    }
}

impl History {
    /// Asks a new queue what the recorded one was asked; with a packet that is watched, by its number from 1.
    ///
    /// # Errors
    /// A line of the recording cannot be read: it is named.
    pub(super) fn of(recorded: &Recorded, program: &Program, watched: Option<u64>) -> Result<Self, Fault> {
        let begun_ns = recorded.head.begun_ns;
        let watch = Watch { inner: Interpreted::new(program.queue.clone()), watched, runs: Arc::default() };
        let runs = watch.runs.clone();
        let fault =
            |line: usize, why| Fault::Input(format!("line {} of the recording: {why}", recorded.line + line));
        let (snapshot, n_rows, calls) =
            recording::read_snapshot(&recorded.text).map_err(|error| fault(error.line, error.why))?;
        let mut history = Self { packets: Vec::new(), ended_ns: 0, runs: Vec::new() };
        let mut queue = match &snapshot {
            None => Queue::new(program.queue.clone(), watch, begun_ns, recorded.head.seed),
            Some(snapshot) => {
                let told = |(row, why)| fault(row + 1, why);
                let plain = Interpreted::new(program.queue.clone());
                let copy = Queue::restore(program.queue.clone(), plain, snapshot).map_err(told)?;
                history.begin_with(copy, begun_ns);
                Queue::restore(program.queue.clone(), watch, snapshot).map_err(told)?
            }
        };
        for asked in recording::read(calls, begun_ns) {
            let (now_ns, asked) = asked.map_err(|error| fault(n_rows + error.line, error.why))?;
            history.ended_ns = now_ns - begun_ns;
            match asked {
                Asked::Enqueue(packet) => history.enqueue(&mut queue, packet, now_ns),
                Asked::Dequeue => {
                    if let Some(sent) = queue.dequeue(now_ns) {
                        let packet = &mut history.packets[sent.handle as usize];
                        let is_marked = sent.ecn == 3;
                        packet.end = End::Sent { at_ns: history.ended_ns, is_marked };
                    }
                }
                Asked::Timeout => queue.handle_timeout(now_ns),
                Asked::Rate(rate) => queue.set_rate(rate),
            }
            while let Some(dropped) = queue.poll_dropped() {
                let (level, line, why) = (dropped.level, dropped.line, dropped.why);
                let at_ns = dropped.dropped_ns.saturating_sub(begun_ns);
                history.packets[dropped.handle as usize].end = End::Dropped { at_ns, level, line, why };
            }
        }
        history.runs = core::mem::take(&mut *runs.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(history)
    }

    /// Notes what waits when the recording begins; the handles of a queue that is restored are numbers from 0.
    fn begin_with(&mut self, mut copy: Queue<Interpreted>, begun_ns: u64) {
        let mut bytes = 0;
        for (packet, arrived_ns) in copy.take_all() {
            self.packets.push(Passed {
                len: packet.len,
                flow: packet.flow,
                came_ns: arrived_ns as i64 - begun_ns as i64,
                before: (self.packets.len() as u64, bytes),
                end: End::Waits,
            });
            bytes += u64::from(packet.len);
        }
    }

    fn enqueue<C: QueueCode>(&mut self, queue: &mut Queue<C>, packet: Packet, now_ns: u64) {
        let counts = queue.counts();
        self.packets.push(Passed {
            len: packet.len,
            flow: packet.flow,
            came_ns: self.ended_ns as i64,
            before: (counts.queued, counts.queued_bytes),
            end: End::Waits,
        });
        queue.enqueue(&Packet { handle: self.packets.len() as u64 - 1, ..packet }, now_ns);
    }

    /// Packets that were dropped.
    pub(super) fn dropped(&self) -> impl Iterator<Item = (u64, &Passed)> {
        let numbered = self.packets.iter().enumerate().map(|(nth, packet)| (nth as u64 + 1, packet));
        numbered.filter(|(_, packet)| matches!(packet.end, End::Dropped { .. }))
    }
}

/// The interpreter, and what it was run on for one packet.
#[derive(Debug)]
struct Watch {
    inner: Interpreted,
    watched: Option<u64>,
    runs: Arc<Mutex<Vec<Ran>>>,
}

impl QueueCode for Watch {
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        let handle = words.packet.get(usize::from(word::HANDLE)).copied();
        if self.watched.is_none() || handle.map(|handle| handle + 1) != self.watched {
            return self.inner.run(level, moment, words);
        }
        let before = Seen::of(&words);
        let Words { node, partition, packet, event } = words;
        let lent =
            Words { node: &mut *node, partition: &mut *partition, packet: &mut *packet, event: &mut *event };
        let end = self.inner.run(level, moment, lent);
        let after = Seen::of(&Words { node, partition, packet, event });
        let ran = Ran { level, moment, end, before, after };
        self.runs.lock().unwrap_or_else(PoisonError::into_inner).push(ran);
        end
    }
}

impl Seen {
    fn of(words: &Words<'_>) -> Self {
        Self {
            node: words.node.to_vec(),
            partition: words.partition.to_vec(),
            packet: words.packet.to_vec(),
            event: words.event.to_vec(),
        }
    }
}

/// What a level is called, and what its queue's line says.
pub(super) fn line_text(program: &Program, level: u8, line: u32) -> String {
    let Some(level) = program.levels.get(usize::from(level)) else { return String::new() };
    let file = program.sources.file(level.span.file);
    file.line(line).trim().to_owned()
}

/// The name of a level.
pub(super) fn level_name(program: &QueueProgram, level: u8) -> &str {
    program.levels.get(usize::from(level)).map_or("", |level| &level.name)
}

/// The line and the verdict that a handler ended with.
pub(super) fn verdict(end: u64) -> (Verdict, u32) {
    (Verdict::of_word(end), Verdict::line(end))
}
