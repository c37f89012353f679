//! The rings that a socket shares with the kernel: one side puts, the other takes, and neither waits.

#![expect(unsafe_code, reason = "a ring is memory that is shared with the kernel")]

use super::super::sys::Mapping;
use core::marker::PhantomData;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::OwnedFd;

/// What stands in a ring.
///
/// # Safety
/// Every pattern of bits is a value of it.
pub(super) unsafe trait Entry: Copy {}
// SAFETY: it is an integer.
unsafe impl Entry for u64 {}
// SAFETY: it has fields of integers alone.
unsafe impl Entry for libc::xdp_desc {}

/// A ring with room for a power of two of entries. We use one end of it.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// How far our end is; the kernel may not know yet.
    ours: u32,
    /// How far the other end was when we last looked.
    theirs: u32,
    entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// Maps a ring of `entries`, which the kernel has made.
    pub(super) fn new(
        socket: &OwnedFd,
        entries: u32,
        offsets: libc::xdp_ring_offset,
        page: libc::off_t,
    ) -> io::Result<Self> {
        assert!(entries.is_power_of_two(), "the sizes of rings are constants");
        let length = offsets.desc as usize + entries as usize * size_of::<T>();
        let mapping = Mapping::new(socket, length, page)?;
        for offset in [offsets.producer, offsets.consumer, offsets.flags] {
            assert!(
                offset as usize + size_of::<u32>() <= length && offset % 4 == 0,
                "the kernel's own offsets"
            );
        }
        Ok(Self { mapping, offsets, mask: entries - 1, ours: 0, theirs: 0, entries: PhantomData })
    }

    /// Entries that we may put, if there are not at least `wanted` then after another look.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &Self| ring.mask + 1 - ring.ours.wrapping_sub(ring.theirs);
        if room(self) < wanted {
            self.theirs = self.word(self.offsets.consumer).load(Ordering::Acquire);
        }
        room(self)
    }

    /// Puts an entry. [`Ring::room`] has said that there is room.
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: the slot is in the mapping and aligned; it is ours until `publish`, as the other end is at most a
        // ring behind.
        unsafe { self.slot(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Shows the kernel what was put.
    pub(super) fn publish(&self) {
        self.word(self.offsets.producer).store(self.ours, Ordering::Release);
    }

    /// Entries that were put and that the kernel has not taken.
    pub(super) fn pending(&self) -> u32 {
        self.ours.wrapping_sub(self.word(self.offsets.consumer).load(Ordering::Acquire))
    }

    /// The next entry that the kernel has put.
    pub(super) fn take(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.theirs = self.word(self.offsets.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: the slot is in the mapping and aligned; the kernel has written it, and does not again until
        // `release`.
        let entry = unsafe { self.slot(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(entry)
    }

    /// Gives the kernel back what was taken.
    pub(super) fn release(&self) {
        self.word(self.offsets.consumer).store(self.ours, Ordering::Release);
    }

    /// The kernel does nothing with the ring until it is called.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    fn slot(&self, at: u32) -> *mut T {
        let offset = self.offsets.desc as usize + (at & self.mask) as usize * size_of::<T>();
        // SAFETY: the mapping has room for all entries behind the offset.
        unsafe { self.mapping.address().add(offset).cast() }
    }

    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the offset was checked to be in the mapping and aligned, which lives as long as `self`; both ends
        // touch the word as one.
        unsafe { AtomicU32::from_ptr(self.mapping.address().add(offset as usize).cast()) }
    }
}
