//! What compiled code sees of a pass.

use crate::helpers::Bytes;
use core::ptr;
use std::sync::Arc;
use weft_core::abi::{Cx, Mark};
use weft_core::limits::{ROW_BYTES_MAX, SCRATCH_BYTES_MAX};
use weft_core::table::Table;

/// One pass, as compiled code and its helpers see it.
///
/// Code reads [`Cx`] in place, by the offsets of its fields; here is what it needs besides.
#[repr(C)]
pub(crate) struct Frame<'a, 'b> {
    pub(crate) cx: &'a mut Cx<'b>,
    pub(crate) tables: *const Arc<Table>,
    pub(crate) scalars: *mut u64,
    pub(crate) merged: *mut u64,
    /// Elements below this index take part.
    pub(crate) opened: u64,
    /// Bytes of the scratch that are taken. It counts what is borrowed from rows, too, so that it may be more than
    /// `cx.out.scratch` holds.
    pub(crate) scratch_used: u64,
    /// 1 after something found no room in the scratch.
    pub(crate) scratch_full: u64,
    /// When the handler that runs began, on sampled passes.
    pub(crate) began: u64,
    /// Where the handler that runs began, if it may be rolled back.
    mark: Option<(Mark, u64)>,
}

/// Capacity of the scratch in a pass. Bytes of a row are copied before their number is looked at a second time, and
/// there are never more of them than a row has.
const SCRATCH_CAPACITY: usize = SCRATCH_BYTES_MAX + ROW_BYTES_MAX;

/// A slice as code sees it: where it begins.
pub(crate) const SLICE_START: usize = 0;
/// A slice as code sees it: how many elements it has.
pub(crate) const SLICE_LEN: usize = 8;

/// Whether slices are laid out as [`SLICE_START`] and [`SLICE_LEN`] say. The language leaves it open.
pub(crate) fn slices_are_as_expected() -> bool {
    let slice: *const [u8] = ptr::slice_from_raw_parts(ptr::without_provenance(16), 3);
    // SAFETY: a pointer to a slice is two words without padding, and any two words are a `[usize; 2]`.
    let words: [usize; 2] = unsafe { core::mem::transmute(slice) };
    words == [16, 3]
}

/// Values point into the scratch until the pass ends, so it must not move.
#[cold]
fn make_room(scratch: &mut Vec<u8>) {
    scratch.reserve_exact(SCRATCH_CAPACITY - scratch.len());
}

impl<'a, 'b> Frame<'a, 'b> {
    /// A frame for one pass. Variables are only looked up where there are some.
    #[inline(always)]
    pub(crate) fn new(cx: &'a mut Cx<'b>, opened: usize, has_scalars: bool, has_merged: bool) -> Self {
        if cx.out.scratch.capacity() < SCRATCH_CAPACITY {
            make_room(&mut cx.out.scratch);
        }
        let words = |has: bool, address: &dyn Fn() -> usize| match has {
            true => ptr::with_exposed_provenance_mut(address()),
            false => ptr::null_mut(),
        };
        let state = cx.state;
        Self {
            tables: state.tables.as_ptr(),
            scalars: words(has_scalars, &|| state.scalars.address()),
            merged: words(has_merged, &|| state.merged.address()),
            opened: opened as u64,
            scratch_used: cx.out.scratch.len() as u64,
            scratch_full: 0,
            began: 0,
            mark: None,
            cx,
        }
    }

    /// A handler begins that may be rolled back.
    pub(crate) fn begin(&mut self) {
        self.cx.out.journal.clear();
        self.mark = Some((self.cx.out.mark(), self.scratch_used));
    }

    /// Back to where the handler began.
    pub(crate) fn roll_back(&mut self) {
        let Some((mark, scratch_used)) = self.mark else { return };
        self.cx.out.roll_back(mark, self.cx.state, self.cx.call);
        self.scratch_used = scratch_used;
        self.scratch_full = 0;
    }

    /// Takes room in the scratch. If there is none, says so in `scratch_full`.
    #[inline(always)]
    pub(crate) fn take(&mut self, len: usize) -> bool {
        let used = self.scratch_used.saturating_add(len as u64);
        let fits = used <= SCRATCH_BYTES_MAX as u64;
        if fits {
            self.scratch_used = used;
        } else {
            self.scratch_full = 1;
        }
        fits
    }

    /// Copies bytes into the scratch and returns where they are in it: nothing, if there is no room.
    #[inline(always)]
    pub(crate) fn keep(&mut self, bytes: Bytes) -> (u32, u32) {
        if !self.take(bytes.len as usize) {
            return (0, 0);
        }
        let start = self.cx.out.scratch.len();
        self.append(bytes);
        (start as u32, bytes.len as u32)
    }

    /// As [`Frame::keep`], for several runs of bytes, one after the other.
    pub(crate) fn keep_parts(&mut self, parts: &[Bytes]) -> (u32, u32) {
        let len = parts.iter().fold(0usize, |sum, part| sum.saturating_add(part.len as usize));
        if !self.take(len) {
            return (0, 0);
        }
        let start = self.cx.out.scratch.len();
        parts.iter().for_each(|part| self.append(*part));
        (start as u32, len as u32)
    }

    /// Appends bytes for which there is room. They may lie in the scratch themselves: it does not move.
    #[inline(always)]
    fn append(&mut self, bytes: Bytes) {
        let scratch = &mut self.cx.out.scratch;
        assert!(scratch.capacity() - scratch.len() >= bytes.len as usize, "the room was taken before");
        scratch.extend_from_slice(bytes.as_slice());
    }

    /// The bytes of a range of the scratch.
    #[inline]
    pub(crate) fn kept(&self, (start, len): (u32, u32)) -> Bytes {
        let scratch = &self.cx.out.scratch;
        debug_assert!((start + len) as usize <= scratch.len());
        Bytes { start: scratch.as_ptr().wrapping_add(start as usize), len: u64::from(len) }
    }
}
