//! The view that compiled code has of a pass.

use crate::helpers::Bytes;
use core::mem::MaybeUninit;
use core::ptr;
use std::sync::Arc;
use weft_core::abi::{Cell, Cx, EditTarget, Outcome, Point, SinkRow, TupleEdit};
use weft_core::limits::ROW_BYTES_MAX;

/// Compiled code. It gets the pass, the number of open elements, and the prefetch slots of the tuple; it finds the rest
/// itself.
pub(crate) type Entry = unsafe extern "C" fn(cx: &mut Cx<'_>, opened: usize, prefetched: *const u64);

/// Compiled prefetch code. It gets the pass, an unused word, and its prefetch slots, all of them zero.
pub(crate) type PrefetchEntry = unsafe extern "C" fn(cx: &mut Cx<'_>, unused: usize, prefetched: *mut u64);

/// Compiled prefetch code for all frames of a batch. It gets a pass with the slots of the first frame, the frames (at
/// least one), and the prefetch slots of all, which are zero.
pub(crate) type PrefetchBatchEntry =
    unsafe extern "C" fn(cx: &mut Cx<'_>, frames: &Frames<'_>, prefetched: *mut u64);

/// The frames of a batch, as compiled code sees them.
#[repr(C)]
pub(crate) struct Frames<'a> {
    pub(crate) n: usize,
    /// The bytes of each frame, one slice after the other.
    pub(crate) bodies: *const &'a [u8],
    /// Bytes of the prefetch slots of each frame.
    pub(crate) prefetched_bytes: usize,
    /// Bytes of the slots of each frame.
    pub(crate) slot_bytes: usize,
}

/// One pass, as the helpers of compiled code see it. It lies on the stack of the code, which sets the first two fields
/// at its start, and `scratch_full` where a handler tests it.
///
/// Code reads [`Cx`] in place, by the offsets of its fields; this type holds the rest.
#[repr(C)]
pub(crate) struct Frame<'a, 'b> {
    pub(crate) cx: &'a mut Cx<'b>,
    /// Bytes of the scratch that are in use. Bytes borrowed from rows count as well, so it may be more than
    /// `cx.out.scratch` holds.
    pub(crate) scratch_used: u64,
    /// 1 after an allocation did not fit in the scratch.
    pub(crate) scratch_full: u64,
    /// The state at the start of the running handler, if it may be rolled back.
    mark: MaybeUninit<(Point, u64)>,
}

/// Bytes of a [`Frame`].
pub(crate) const FRAME_BYTES: u32 = size_of::<Frame<'_, '_>>() as u32;

/// Bytes of scratch beyond the limit of a pass. Bytes of a row are copied before their length is checked a second time,
/// and a row never has more of them.
pub(crate) const SCRATCH_MARGIN: usize = ROW_BYTES_MAX;

/// Offset of a slice's address.
pub(crate) const SLICE_START: usize = 0;
/// Offset of a slice's length.
pub(crate) const SLICE_LEN: usize = 8;

/// The layout of a [`weft_core::frame::Checksum`] in words of 16 bits: the first says which variant it is; the others
/// are the offsets of one that a device has yet to complete.
pub(crate) mod checksum {
    use weft_core::frame::Checksum;

    pub(crate) const PARTIAL: i64 = 2;
    pub(crate) const START: usize = 2;
    pub(crate) const OFFSET: usize = 4;

    const _: () = {
        // SAFETY: this variant is three initialized words, and any words are a valid `[u16; 3]`.
        let words: [u16; 3] = unsafe { core::mem::transmute(Checksum::Partial { start: 7, offset: 9 }) };
        assert!(words[0] as i64 == PARTIAL && words[START / 2] == 7 && words[OFFSET / 2] == 9);
    };
}

/// The layout of a vector, the same for all element types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct VecWords {
    /// The address of the first element.
    pub(crate) start: usize,
    pub(crate) len: usize,
    pub(crate) capacity: usize,
}

/// Measures the layout of vectors; None if it is unknown. The language does not specify it.
pub(crate) fn vec_words() -> Option<VecWords> {
    let all = [
        words_of(0u8),
        words_of(Cell::Null),
        words_of(TupleEdit { target: EditTarget::Input(0), value: Cell::Null }),
        words_of(SinkRow { sink: 0, cells: 0 }),
    ];
    all[0].filter(|first| all.iter().all(|other| *other == Some(*first)))
}

/// Finds the word order of a vector of this type, with a sample.
fn words_of<T: Clone>(item: T) -> Option<VecWords> {
    let mut vec = Vec::with_capacity(7);
    vec.extend([item.clone(), item]);
    find_words(&vec)
}

/// Finds which words of a vector are its start, length and capacity. None if one is not found.
fn find_words<T>(vec: &Vec<T>) -> Option<VecWords> {
    const { assert!(size_of::<Vec<T>>() == 24, "a vector is three words") };
    let vec_address: *const Vec<T> = vec;
    // SAFETY: a vector is three words without padding, which are initialized, and any words are a `[usize; 3]`.
    let words: [usize; 3] = unsafe { vec_address.cast::<[usize; 3]>().read() };
    let wanted = [vec.as_ptr().expose_provenance(), vec.len(), vec.capacity()];
    let at = wanted.map(|wanted| words.iter().position(|word| *word == wanted));
    let [Some(start), Some(len), Some(capacity)] = at else { return None };
    Some(VecWords { start: start * 8, len: len * 8, capacity: capacity * 8 })
}

/// The distance from the address that an `Arc` holds to its value.
pub(crate) fn arc_offset<T>(arc: &Arc<T>) -> usize {
    const { assert!(size_of::<Arc<T>>() == 8, "a shared pointer is one word") };
    let arc_address: *const Arc<T> = arc;
    // SAFETY: the pointer is one word, which is initialized, and any word is a `usize`.
    let held: usize = unsafe { arc_address.cast::<usize>().read() };
    Arc::as_ptr(arc).addr() - held
}

/// Whether slices have the layout of [`SLICE_START`] and [`SLICE_LEN`]. The language does not specify it.
pub(crate) fn slices_are_as_expected() -> bool {
    let slice: *const [u8] = ptr::slice_from_raw_parts(ptr::without_provenance(16), 3);
    // SAFETY: a pointer to a slice is two words without padding, and any two words are a `[usize; 2]`.
    let words: [usize; 2] = unsafe { core::mem::transmute(slice) };
    words == [16, 3]
}

/// Reserves scratch for all that a pass may keep. Values point into it until the pass ends, so it must not move during
/// the pass.
pub(crate) fn make_room(out: &mut Outcome) {
    let wanted = out.scratch_max + SCRATCH_MARGIN;
    out.scratch.reserve_exact(wanted.saturating_sub(out.scratch.len()));
}

impl Frame<'_, '_> {
    /// Called at the start of a handler that may be rolled back after earlier parts of the pass had effects.
    pub(crate) fn begin(&mut self) {
        self.cx.out.journal.clear();
        self.mark.write((self.cx.out.point(), self.scratch_used));
    }

    /// Rolls back to the start of the handler, or of the pass.
    pub(crate) fn roll_back(&mut self, to_start: bool) {
        let (mark, scratch_used) = match to_start {
            // The caller of a pass has cleared the outcome.
            true => (Point::default(), 0),
            // SAFETY: code that rolls back to the start of a handler has called `begin` there.
            false => unsafe { self.mark.assume_init() },
        };
        self.cx.out.roll_back(mark, self.cx.state, self.cx.call);
        self.scratch_used = scratch_used;
        self.scratch_full = 0;
    }

    /// Allocates scratch. If there is not enough, sets `scratch_full`.
    #[inline(always)]
    pub(crate) fn take(&mut self, len: usize) -> bool {
        let used = self.scratch_used.saturating_add(len as u64);
        let fits = used <= self.cx.out.scratch_max as u64;
        if fits {
            self.scratch_used = used;
        } else {
            self.scratch_full = 1;
        }
        fits
    }

    /// Copies bytes into the scratch and returns their range; an empty one if there is no room.
    #[inline(always)]
    pub(crate) fn keep(&mut self, bytes: Bytes) -> (u32, u32) {
        if !self.take(bytes.len as usize) {
            return (0, 0);
        }
        let start = self.cx.out.scratch.len();
        self.append(bytes);
        (start as u32, bytes.len as u32)
    }

    /// Makes an appender, which keeps several runs of bytes in the scratch.
    #[inline(always)]
    pub(crate) fn appender(&mut self) -> Appender<'_> {
        let max = self.cx.out.scratch_max;
        let scratch = &mut self.cx.out.scratch;
        assert!(scratch.capacity() >= max + SCRATCH_MARGIN, "code has made room when it began");
        let (base, len) = (scratch.as_mut_ptr(), scratch.len());
        Appender {
            max: max as u64,
            scratch,
            base,
            len,
            used: &mut self.scratch_used,
            full: &mut self.scratch_full,
        }
    }

    /// Appends bytes for which there is room. They may lie in the scratch itself, which does not move.
    #[inline(always)]
    pub(crate) fn append(&mut self, bytes: Bytes) {
        let scratch = &mut self.cx.out.scratch;
        let (len, start) = (bytes.len as usize, scratch.len());
        assert!(scratch.capacity() - start >= len, "the room was taken before");
        // SAFETY: there is room for `len` bytes after the last one. Nothing points there, so source and destination do
        // not overlap, and afterwards all bytes below the new length are initialized.
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

/// Keeps runs of bytes, one after the other.
pub(crate) struct Appender<'a> {
    scratch: &'a mut Vec<u8>,
    base: *mut u8,
    len: usize,
    max: u64,
    used: &'a mut u64,
    full: &'a mut u64,
}

impl Appender<'_> {
    /// Keeps bytes as [`Frame::keep`] does; returns their start and length, zeros if the scratch is full.
    #[inline(always)]
    pub(crate) fn append(&mut self, bytes: Bytes) -> (u64, u64) {
        let used = self.used.saturating_add(bytes.len);
        if used > self.max {
            *self.full = 1;
            return (0, 0);
        }
        *self.used = used;
        let (start, len) = (self.len, bytes.len as usize);
        // SAFETY: at most `max` bytes are kept, and `WIDE_BYTES` more fit after them. Nothing points there.
        unsafe {
            let to = self.base.add(start);
            if len.wrapping_sub(1) < WIDE_BYTES && bytes.start.addr() % PAGE_BYTES <= PAGE_BYTES - WIDE_BYTES
            {
                copy_wide(bytes.start, to, len);
            } else if len != 0 {
                ptr::copy_nonoverlapping(bytes.start, to, len);
            }
        }
        self.len += len;
        (start as u64, bytes.len)
    }

    /// Commits the appended bytes.
    #[inline(always)]
    pub(crate) fn finish(self) {
        // SAFETY: the bytes up to the new length were copied.
        unsafe { self.scratch.set_len(self.len) };
    }
}

/// Number of bytes that [`copy_wide`] copies.
const WIDE_BYTES: usize = 32;
/// The smallest page size.
const PAGE_BYTES: usize = 4096;

/// Copies short bytes, and the bytes after them up to [`WIDE_BYTES`]: without a branch on the length.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`] of `len` bytes, at least one; there is room for [`WIDE_BYTES`], and reading that
/// many bytes from `from` stays in its page.
#[inline(always)]
unsafe fn copy_wide(from: *const u8, to: *mut u8, len: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the reads stay in a readable page. They are in assembly because Rust does not allow reads after an
    // object's end. They are words because a processor makes a wider load wait for words that were just stored.
    unsafe {
        let _ = len;
        core::arch::asm!(
            "mov {a}, [{from}]",
            "mov {b}, [{from} + 8]",
            "mov {c}, [{from} + 16]",
            "mov {d}, [{from} + 24]",
            "mov [{to}], {a}",
            "mov [{to} + 8], {b}",
            "mov [{to} + 16], {c}",
            "mov [{to} + 24], {d}",
            from = in(reg) from,
            to = in(reg) to,
            a = out(reg) _,
            b = out(reg) _,
            c = out(reg) _,
            d = out(reg) _,
            options(nostack, preserves_flags),
        );
    }
    #[cfg(not(target_arch = "x86_64"))]
    // SAFETY: as the caller guarantees.
    unsafe {
        copy_short(from, to, len);
    }
}

/// Copies bytes that are few in most cases: without a call, by two moves that may overlap.
///
/// # Safety
/// As for [`ptr::copy_nonoverlapping`].
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: both words of a pair lie within `len` bytes, which the caller guarantees.
    unsafe {
        match len {
            8..=16 => copy_ends::<u64>(from, to, len),
            17..=32 => copy_ends::<[u64; 2]>(from, to, len),
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
    // SAFETY: as the caller guarantees.
    unsafe {
        let (head, tail) = (from.cast::<W>().read_unaligned(), from.add(last).cast::<W>().read_unaligned());
        to.cast::<W>().write_unaligned(head);
        to.add(last).cast::<W>().write_unaligned(tail);
    }
}
