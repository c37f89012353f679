//! Recordings of links of calls: each worker notes what its queue of the link is asked.
//!
//! A call that leaves before its turn stays in the queue until that is filled anew, of which no queue knows: both are
//! noted, with the numbers by which a recording knows its calls.

use super::{Line, nanos};
use crate::engine::Engine;
use crate::queue::Packet;
use crate::recording::{Asked, Limits, Progress, Recorder, Taken};
use std::sync::Arc;
use weft_core::Time;

/// What the queue of a line is asked.
#[derive(Debug)]
pub(super) struct Noted {
    recorder: Recorder,
    /// The numbers of the calls that wait, by handle.
    numbers: Vec<u64>,
    /// Calls that have a number.
    n: u64,
}

impl Engine {
    /// Notes from now on what this worker's queue of a link of calls is asked. `taken` is common to all workers that
    /// do. False: it does already; None: there is no such link.
    pub fn record_link(&mut self, now: Time, name: &str, limits: Limits, taken: &Arc<Taken>) -> Option<bool> {
        let line = self.lines.values_mut().find(|line| line.plan.name == name)?;
        if line.noted.is_some() {
            return Some(false);
        }
        line.noted = Some(Box::new(Noted::of(line, nanos(now), limits, taken)));
        Some(true)
    }

    /// How far the recordings of links of calls are, by the names of the links.
    pub fn link_recordings(&self, now: Time) -> Vec<(String, Progress)> {
        let told = |line: &Line| {
            let noted = line.noted.as_ref()?;
            Some((line.plan.name.clone(), noted.recorder.progress(nanos(now))))
        };
        self.lines.values().filter_map(told).collect()
    }

    /// What this worker noted of a link of calls; nothing is from now on.
    pub fn take_link_recording(&mut self, name: &str) -> Option<Recorder> {
        let line = self.lines.values_mut().find(|line| line.plan.name == name)?;
        line.noted.take().map(|noted| noted.recorder)
    }
}

impl Noted {
    /// Of a line as it is now.
    fn of(line: &Line, now_ns: u64, limits: Limits, taken: &Arc<Taken>) -> Self {
        let recorder = Recorder::resuming(now_ns, &line.queue.snapshot(), limits).sharing(taken);
        let mut noted = Self { recorder, numbers: Vec::new(), n: 0 };
        for handle in line.queue.waiting() {
            noted.number(handle as u32);
            if line.calls[handle as usize].is_none() {
                noted.left(handle as u32, now_ns);
            }
        }
        noted
    }

    pub(super) fn note(&mut self, now_ns: u64, asked: &Asked) {
        self.recorder.note(now_ns, asked);
    }

    /// A call comes, which is known to the queue as this packet.
    pub(super) fn came(&mut self, packet: &Packet, now_ns: u64) {
        self.number(packet.handle as u32);
        self.note(now_ns, &Asked::Enqueue(*packet));
    }

    /// A call waits no longer.
    pub(super) fn left(&mut self, handle: u32, now_ns: u64) {
        self.note(now_ns, &Asked::Left(self.numbers[handle as usize]));
    }

    /// The queue was filled anew with these.
    pub(super) fn refilled(&mut self, packets: &[(Packet, u64)], now_ns: u64) {
        let number = |(packet, _): &(Packet, u64)| self.numbers[packet.handle as usize];
        let asked = Asked::Refilled(packets.iter().map(number).collect());
        self.note(now_ns, &asked);
    }

    /// What comes later is not what this queue is asked.
    pub(super) fn end(&mut self) {
        self.recorder.end();
    }

    fn number(&mut self, handle: u32) {
        let at = handle as usize;
        self.numbers.resize(self.numbers.len().max(at + 1), 0);
        self.numbers[at] = self.n;
        self.n += 1;
    }
}
