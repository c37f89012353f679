//! What compiled code sees of a pass.

use crate::helpers::Bytes;
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::Arc;
use weft_core::abi::{Cx, Mark};
use weft_core::limits::{ROW_BYTES_MAX, SCRATCH_BYTES_MAX};
use weft_core::table::Table;

/// What compiled code is given: the pass, how many elements are open, how much of the scratch is taken, and where the
/// tables, the scalar variables and the merged ones begin.
///
/// Six words travel in registers, so that [`weft_ir::backend::Program::run`] is a jump to the code.
pub(crate) type Entry = unsafe extern "C" fn(
    cx: &mut Cx<'_>,
    opened: usize,
    scratch_used: usize,
    tables: *const Arc<Table>,
    scalars: *mut u64,
    merged: *mut u64,
);

/// One pass, as the helpers of compiled code see it. It is on the stack of the code, which sets the first two fields
/// when it begins, `scratch_full` where a handler asks for it, and `began` on sampled passes.
///
/// Code reads [`Cx`] in place, by the offsets of its fields; here is what it needs besides.
#[repr(C)]
pub(crate) struct Frame<'a, 'b> {
    pub(crate) cx: &'a mut Cx<'b>,
    /// Bytes of the scratch that are taken. It counts what is borrowed from rows, too, so that it may be more than
    /// `cx.out.scratch` holds.
    pub(crate) scratch_used: u64,
    /// 1 after something found no room in the scratch.
    pub(crate) scratch_full: u64,
    /// When the handler that runs began.
    pub(crate) began: u64,
    /// Where the handler that runs began, if it may be rolled back.
    mark: MaybeUninit<(Mark, u64)>,
}

/// Bytes of a [`Frame`].
pub(crate) const FRAME_BYTES: u32 = size_of::<Frame<'_, '_>>() as u32;

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

/// Whether the scratch of a pass is large enough for all that the pass may keep.
#[inline(always)]
#[allow(clippy::ptr_arg, reason = "a slice has no capacity")]
pub(crate) fn has_room(scratch: &Vec<u8>) -> bool {
    scratch.capacity() >= SCRATCH_CAPACITY
}

/// Makes it large enough. Values point into it until the pass ends, so it must not move then.
pub(crate) fn make_room(scratch: &mut Vec<u8>) {
    scratch.reserve_exact(SCRATCH_CAPACITY.saturating_sub(scratch.len()));
}

impl Frame<'_, '_> {
    /// A handler begins that may be rolled back.
    pub(crate) fn begin(&mut self) {
        self.cx.out.journal.clear();
        self.mark.write((self.cx.out.mark(), self.scratch_used));
    }

    /// Back to where the handler began.
    pub(crate) fn roll_back(&mut self) {
        // SAFETY: code that rolls a handler back has called `begin` at its start.
        let (mark, scratch_used) = unsafe { self.mark.assume_init() };
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
    pub(crate) fn keep_parts(&mut self, parts: impl Iterator<Item = Bytes> + Clone) -> (u32, u32) {
        let len = parts.clone().fold(0usize, |sum, part| sum.saturating_add(part.len as usize));
        if !self.take(len) {
            return (0, 0);
        }
        let start = self.cx.out.scratch.len();
        parts.for_each(|part| self.append(part));
        (start as u32, len as u32)
    }

    /// Appends bytes for which there is room. They may lie in the scratch themselves: it does not move.
    #[inline(always)]
    fn append(&mut self, bytes: Bytes) {
        let scratch = &mut self.cx.out.scratch;
        let (len, start) = (bytes.len as usize, scratch.len());
        assert!(scratch.capacity() - start >= len, "the room was taken before");
        // SAFETY: there is room for `len` bytes behind the last one. Nothing points there, so the bytes do not overlap
        // them, and with them all bytes below the new length are initialized.
        unsafe {
            copy_short(bytes.start, scratch.as_mut_ptr().add(start), len);
            scratch.set_len(start + len);
        }
    }

    /// The bytes of a range of the scratch.
    #[inline]
    pub(crate) fn kept(&self, (start, len): (u32, u32)) -> Bytes {
        let scratch = &self.cx.out.scratch;
        debug_assert!((start + len) as usize <= scratch.len());
        Bytes { start: scratch.as_ptr().wrapping_add(start as usize), len: u64::from(len) }
    }
}

/// Copies bytes that are few in most cases: then without a call, and by two loads that may overlap.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both words of a pair lie within `len` bytes, which the caller vouches for.
    unsafe {
        match len {
            8..=16 => copy_ends::<u64>(from, to, len),
            4..=7 => copy_ends::<u32>(from, to, len),
            2..=3 => copy_ends::<u16>(from, to, len),
            1 => to.write(from.read()),
            0 => {}
            _ => ptr::copy_nonoverlapping(from, to, len),
        }
    }
}

/// # Safety
/// As for [`ptr::copy_nonoverlapping`]; `len` is from one to two times the size of `W`.
#[inline(always)]
unsafe fn copy_ends<W: Copy>(from: *const u8, to: *mut u8, len: usize) {
    let last = len - size_of::<W>();
    // SAFETY: the caller's word.
    unsafe {
        let (head, tail) = (from.cast::<W>().read_unaligned(), from.add(last).cast::<W>().read_unaligned());
        to.cast::<W>().write_unaligned(head);
        to.add(last).cast::<W>().write_unaligned(tail);
    }
}
