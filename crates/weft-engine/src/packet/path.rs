//! What stands behind a link that is emulated: frames take time, some are lost, and a trace says when one can leave.

use super::impair::{Chances, Impairments};
use super::pipe::Pipe;
use super::trace::{Cursor, Trace};
use crate::recording::PathEvents;
use std::sync::Arc;
use weft_core::frame::{Checksum, Frame, Offload, Pool};
use weft_core::hash;

/// The first bits of a frame are not flipped: without the version of IP no device takes it.
const BITS_SPARED: u64 = 4;

/// A path that a link stands for.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Path {
    /// What happens to frames on it.
    pub impair: Impairments,
    /// When a frame can leave; None: as the link's rate says.
    pub trace: Option<Arc<Trace>>,
    /// How it changes, in order of time.
    pub changes: Arc<[Change]>,
}

/// What a path is like from some time on.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Nanoseconds after the path began.
    pub after_ns: u64,
    /// Bits a second of the link. None: as fast as the port takes them, or as a trace says.
    pub rate: Option<u64>,
    /// What happens to frames.
    pub impair: Impairments,
}

/// What happened to the frames that went along a path, in frames.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PathCounts {
    /// Those that were lost.
    pub lost: u64,
    /// Those that arrived, or are to arrive, twice.
    pub duplicated: u64,
    /// Those of which a bit was flipped.
    pub corrupted: u64,
    /// Those that were held up so that later ones overtake them.
    pub reordered: u64,
    /// Those for whose copy there was no buffer.
    pub uncopied: u64,
}

/// A path with what is on it.
#[derive(Debug)]
pub(super) struct Wire {
    pub(super) path: Path,
    pub(super) counts: PathCounts,
    pipe: Pipe<Frame>,
    chances: Chances,
    /// When it, and its trace, began.
    begun_ns: u64,
    trace_begun_ns: u64,
    cursor: Cursor,
    /// The changes that have come about.
    n_changed: usize,
}

impl Wire {
    /// A path on which nothing is; all chance follows from the seed of its link.
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

    /// Goes on with another path; another trace, and its changes, begin then.
    pub(super) fn follow(&mut self, path: Path, now_ns: u64) {
        if path.trace != self.path.trace {
            (self.trace_begun_ns, self.cursor) = (now_ns, Cursor::default());
        }
        (self.path, self.begun_ns, self.n_changed) = (path, now_ns, 0);
    }

    /// The rate that holds since a change that has come about by now and was not told before; the rest of the change
    /// is done.
    pub(super) fn poll_change(&mut self, now_ns: u64) -> Option<Option<u64>> {
        let change = self.path.changes.get(self.n_changed)?;
        if self.begun_ns + change.after_ns > now_ns {
            return None;
        }
        let Change { rate, impair, .. } = change.clone();
        self.n_changed += 1;
        self.path.impair = impair;
        Some(rate)
    }

    /// The first opportunity of the trace from then on, if there is a trace.
    pub(super) fn opportunity(&mut self, from_ns: u64) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        let since = from_ns.saturating_sub(self.trace_begun_ns);
        Some(self.trace_begun_ns + trace.next_at(&mut self.cursor, since))
    }

    /// When the last of so many bytes is through that leave at the opportunities of the trace from then on, if there is
    /// a trace.
    pub(super) fn take_opportunities(&mut self, from_ns: u64, bytes: u32) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        let since = from_ns.saturating_sub(self.trace_begun_ns);
        Some(self.trace_begun_ns + trace.take(&mut self.cursor, since, bytes))
    }

    /// Bits a second about that time, if there is a trace.
    pub(super) fn rate(&self, at_ns: u64) -> Option<u64> {
        let trace = self.path.trace.as_ref()?;
        Some(trace.bits_per_s_around(at_ns.saturating_sub(self.trace_begun_ns)))
    }

    /// The last bit of a frame has left. What happens to it on its way.
    pub(super) fn enter(&mut self, mut frame: Frame, left_ns: u64, pool: &mut Pool) -> PathEvents {
        let passage = self.chances.next(&self.path.impair, left_ns);
        let mut way = PathEvents {
            is_lost: passage.is_lost,
            is_reordered: passage.is_reordered,
            ..PathEvents::default()
        };
        if way.is_lost {
            self.counts.lost += 1;
            pool.give(frame);
            return way;
        }
        if let Some(drawn) = passage.corrupt {
            way.is_corrupted = flip(&mut frame, drawn, pool);
            self.counts.corrupted += u64::from(way.is_corrupted);
        }
        let copy = if passage.is_duplicated { pool.copy(&frame) } else { None };
        way.is_duplicated = copy.is_some();
        self.counts.duplicated += u64::from(way.is_duplicated);
        self.counts.uncopied += u64::from(passage.is_duplicated && !way.is_duplicated);
        way.is_reordered &= self.pipe.enter(frame, &passage);
        self.counts.reordered += u64::from(way.is_reordered);
        if let Some(copy) = copy {
            self.pipe.enter(copy, &passage);
        }
        way
    }

    /// A frame that has arrived by now.
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

    /// All that is on the way, in order.
    pub(super) fn take_all(&mut self) -> Vec<Frame> {
        self.pipe.take_all()
    }
}

/// Flips one bit. Checksums stay as they are; one that a device was to fill in is filled in before.
fn flip(frame: &mut Frame, drawn: u64, pool: &mut Pool) -> bool {
    let mut offload = frame.meta.offload;
    let bytes = pool.bytes_mut(frame);
    let n_bits = bytes.len() as u64 * 8;
    if n_bits <= BITS_SPARED || offload.finish_checksum(bytes).is_none() {
        return false;
    }
    let bit = BITS_SPARED + drawn % (n_bits - BITS_SPARED);
    bytes[(bit / 8) as usize] ^= 0x80 >> (bit % 8);
    // The receiver must check it.
    frame.meta.offload = Offload { checksum: Checksum::Unknown, ..offload };
    true
}
