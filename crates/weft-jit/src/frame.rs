//! What compiled code sees of a pass.

use crate::helpers::Bytes;
use core::ptr;
use std::sync::Arc;
use weft_core::abi::{Counters, Cx, Mark, Outcome, REGIONS, Slot, State};
use weft_core::limits::SCRATCH_BYTES_MAX;
use weft_core::table::Table;

/// One pass, as compiled code and its helpers see it.
///
/// Code reads and writes the first fields by their offsets. The others belong to the helpers.
#[repr(C)]
pub(crate) struct Frame<'a> {
    pub(crate) now: i64,
    pub(crate) rand: u64,
    pub(crate) slots: *const Slot,
    pub(crate) present: u64,
    pub(crate) regions: [Region; REGIONS],
    pub(crate) call: *mut u64,
    pub(crate) counters: *mut Counters,
    pub(crate) tables: *const Arc<Table>,
    pub(crate) scalars: *mut u64,
    pub(crate) merged: *mut u64,
    /// Elements below this index take part.
    pub(crate) opened: u64,
    /// The clock of a sampled pass, or null.
    pub(crate) trace: Option<fn() -> u64>,
    /// Bytes of the scratch that are taken. It counts what is borrowed from rows, too, so that it may be more than
    /// `out.scratch` holds.
    pub(crate) scratch_used: u64,
    /// 1 after something found no room in the scratch.
    pub(crate) scratch_full: u64,
    /// When the element that runs began, on sampled passes.
    pub(crate) began: u64,
    /// Held while the frame lives, so that nobody else reaches what `call` points to.
    pub(crate) call_words: usize,
    pub(crate) state: &'a State,
    pub(crate) out: &'a mut Outcome,
    mark: Mark,
    mark_used: u64,
}

/// One of the byte regions that slots point into.
#[derive(Clone, Copy)]
#[repr(C)]
pub(crate) struct Region {
    pub(crate) start: *const u8,
    pub(crate) len: u64,
}

impl<'a> Frame<'a> {
    #[inline]
    pub(crate) fn new<'b: 'a>(cx: &'a mut Cx<'b>, opened: usize) -> Self {
        let out = &mut *cx.out;
        let scratch_used = out.scratch.len() as u64;
        if out.scratch.capacity() < SCRATCH_BYTES_MAX {
            // Values point into the scratch until the pass ends, so it must not move.
            out.scratch.reserve_exact(SCRATCH_BYTES_MAX - out.scratch.len());
        }
        Self {
            now: cx.now.0,
            rand: cx.rand,
            slots: cx.slots.as_ptr(),
            present: cx.present,
            regions: cx.regions.map(|r| Region { start: r.as_ptr(), len: r.len() as u64 }),
            call: cx.call.as_mut_ptr(),
            counters: cx.counters.as_mut_ptr(),
            tables: cx.state.tables.as_ptr(),
            scalars: ptr::with_exposed_provenance_mut(cx.state.scalars.address()),
            merged: ptr::with_exposed_provenance_mut(cx.state.merged.address()),
            opened: opened as u64,
            trace: cx.trace,
            scratch_used,
            scratch_full: 0,
            began: cx.trace.map_or(0, |clock| clock()),
            call_words: cx.call.len(),
            state: cx.state,
            out,
            mark: Mark::default(),
            mark_used: 0,
        }
    }

    /// A handler begins that may be rolled back.
    pub(crate) fn begin(&mut self) {
        self.out.journal.clear();
        self.mark = self.out.mark();
        self.mark_used = self.scratch_used;
    }

    /// Back to where the handler began.
    pub(crate) fn roll_back(&mut self) {
        // SAFETY: `call` and `call_words` are a slice that this frame borrows exclusively; compiled code and other
        // helpers do not run while this helper does.
        let call = unsafe { core::slice::from_raw_parts_mut(self.call, self.call_words) };
        self.out.roll_back(self.mark, self.state, call);
        self.scratch_used = self.mark_used;
        self.scratch_full = 0;
    }

    /// Takes room in the scratch. If there is none, says so in `scratch_full`.
    pub(crate) fn take(&mut self, len: usize) -> bool {
        let used = self.scratch_used + len as u64;
        let fits = used <= SCRATCH_BYTES_MAX as u64;
        if fits {
            self.scratch_used = used;
        } else {
            self.scratch_full = 1;
        }
        fits
    }

    /// Copies bytes into the scratch and returns where they are in it: nothing, if there is no room.
    pub(crate) fn keep(&mut self, bytes: Bytes) -> (u32, u32) {
        self.keep_parts(&[bytes])
    }

    /// As [`Frame::keep`], for several runs of bytes, one after the other.
    pub(crate) fn keep_parts(&mut self, parts: &[Bytes]) -> (u32, u32) {
        let len = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len as usize));
        if !self.take(len) {
            return (0, 0);
        }
        let start = self.out.scratch.len();
        for part in parts {
            // The parts may lie in the scratch themselves; it has the capacity, so they do not move.
            debug_assert!(self.out.scratch.capacity() - self.out.scratch.len() >= part.len as usize);
            self.out.scratch.extend_from_slice(part.as_slice());
        }
        (start as u32, len as u32)
    }

    /// The bytes of a range of the scratch.
    pub(crate) fn kept(&self, (start, len): (u32, u32)) -> Bytes {
        debug_assert!((start + len) as usize <= self.out.scratch.len());
        Bytes { start: self.out.scratch.as_ptr().wrapping_add(start as usize), len: u64::from(len) }
    }
}
