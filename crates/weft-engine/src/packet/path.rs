//! The emulated path behind a link: frames take time, some are lost, and a trace limits when a frame can leave.

use super::impair::{Chances, Impairments};
use super::pipe::Pipe;
use super::trace::{Cursor, Trace};
use crate::recording::PathEvents;
use std::sync::Arc;
use weft_core::frame::{Checksum, Frame, Offload, Pool};
use weft_core::hash;

/// The first bits of a frame are not flipped: no device accepts a frame without the IP version.
const BITS_SPARED: u64 = 4;

/// An emulated path.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// Its impairments.
    pub impair: Impairments,
    /// When a frame can leave; None: by the rate of the link.
    pub trace: Option<Arc<Trace>>,
    /// Its changes, in order of time.
    pub changes: Arc<[PathChange]>,
}

/// A change of a path.
#[derive(Clone, Debug, PartialEq)]
pub struct PathChange {
    /// Nanoseconds after the path started.
    pub after_ns: u64,
    /// The link's rate in bits per second. None: as fast as the port accepts frames, or by the trace.
    pub rate: Option<u64>,
    /// The new impairments.
    pub impair: Impairments,
}

/// Counts of the frames on a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Lost frames.
    pub lost: u64,
    /// Duplicated frames, including those in transit.
    pub duplicated: u64,
    /// Frames with a flipped bit.
    pub corrupted: u64,
    /// Frames that were delayed so that later ones overtake them.
    pub reordered: u64,
    /// Frames whose duplicate had no buffer.
    pub uncopied: u64,
}

/// A path with the frames in transit.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) path: Path,
    pub(super) counts: PathCounts,
    pipe: Pipe<Frame>,
    chances: Chances,
    /// When it started, and its trace.
    begun_ns: u64,
    trace_begun_ns: u64,
    cursor: Cursor,
    /// The number of changes applied.
    n_changed: usize,
}

impl Wire {
    /// Creates an empty path; its link's seed determines all random decisions.
    pub(super) fn new(path: Path, begun_ns: u64, seed: u64) -> Self {
        Self {
            path,
            counts: PathCounts::default(),
            pipe: Pipe::default(),
            chances: Chances::new(hash::stream(seed, "path", 0)),
            begun_ns,
            trace_begun_ns: begun_ns,
            cursor: Cursor::default(),
            n_changed: 0,
        }
    }

    /// Applies another path. New changes start now, and so does a new trace.
    pub(super) fn apply(&mut self, path: Path, now_ns: u64) {
        if path.trace != self.path.trace {
            (self.trace_begun_ns, self.cursor) = (now_ns, Cursor::default());
        }
        (self.path, self.begun_ns, self.n_changed) = (path, now_ns, 0);
    }

    /// Returns the new rate, if a change is due that was not reported before. Applies the rest of the change.
    pub(super) fn poll_change(&mut self, now_ns: u64) -> Option<Option<u64>> {
        let change = self.path.changes.get(self.n_changed)?;
        if self.begun_ns + change.after_ns > now_ns {
            return None;
        }
        let PathChange { rate, impair, .. } = change.clone();
        self.n_changed += 1;
        self.path.impair = impair;
        Some(rate)
    }

    /// Returns the first opportunity of the trace at or after that time. None without a trace.
    pub(super) fn opportunity(&mut self, from_ns: u64) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        let since = from_ns.saturating_sub(self.trace_begun_ns);
        Some(self.trace_begun_ns + trace.next_at(&mut self.cursor, since))
    }

    /// Uses the trace's opportunities from a time on for that many bytes. Returns when the last byte is delivered;
    /// None without a trace.
    pub(super) fn take_opportunities(&mut self, from_ns: u64, bytes: u32) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        let since = from_ns.saturating_sub(self.trace_begun_ns);
        Some(self.trace_begun_ns + trace.take(&mut self.cursor, since, bytes))
    }

    /// Bits per second around that time, if there is a trace.
    pub(super) fn rate(&self, at_ns: u64) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        Some(trace.bits_per_s_around(at_ns.saturating_sub(self.trace_begun_ns)))
    }

    /// Sends a frame, whose last bit has left the link, through the path's impairments. Returns what happened to it.
    pub(super) fn send_frame(&mut self, mut frame: Frame, left_ns: u64, pool: &mut Pool) -> PathEvents {
        let passage = self.chances.next(&self.path.impair, left_ns);
        let mut events = PathEvents {
            is_lost: passage.is_lost,
            is_reordered: passage.is_reordered,
            ..PathEvents::default()
        };
        if events.is_lost {
            self.counts.lost += 1;
            pool.give(frame);
            return events;
        }
        if let Some(drawn) = passage.corrupt {
            events.is_corrupted = flip(&mut frame, drawn, pool);
            self.counts.corrupted += u64::from(events.is_corrupted);
        }
        let copy = if passage.is_duplicated { pool.copy(&frame) } else { None };
        events.is_duplicated = copy.is_some();
        self.counts.duplicated += u64::from(events.is_duplicated);
        self.counts.uncopied += u64::from(passage.is_duplicated && !events.is_duplicated);
        events.is_reordered &= self.pipe.enter(frame, &passage);
        self.counts.reordered += u64::from(events.is_reordered);
        if let Some(copy) = copy {
            self.pipe.enter(copy, &passage);
        }
        events
    }

    /// A frame that has arrived.
    pub(super) fn poll_frame(&mut self, now_ns: u64) -> Option<Frame> {
        self.pipe.poll(now_ns)
    }

    /// When the next frame arrives, or the path changes.
    pub(super) fn poll_timeout(&self) -> Option<u64> {
        let change = self.path.changes.get(self.n_changed).map(|change| self.begun_ns + change.after_ns);
        [self.pipe.poll_timeout(), change].into_iter().flatten().min()
    }

    pub(super) fn on_the_way(&self) -> u64 {
        self.pipe.len() as u64
    }

    /// Takes all frames in transit, in order.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        self.pipe.take_all()
    }
}

/// Flips one bit of a frame. False if it was not possible. Checksums are not updated; a checksum that a device was to
/// complete is completed before.
fn flip(frame: &mut Frame, drawn: u64, pool: &mut Pool) -> bool {
    let mut offload = frame.meta.offload;
    let bytes = pool.bytes_mut(frame);
    let n_bits = bytes.len() as u64 * 8;
    if n_bits <= BITS_SPARED || offload.finish_checksum(bytes).is_none() {
        return false;
    }
    let bit = BITS_SPARED + drawn % (n_bits - BITS_SPARED);
    bytes[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
    // The receiver must verify it.
    frame.meta.offload = Offload { checksum: Checksum::Unknown, ..offload };
    true
}
