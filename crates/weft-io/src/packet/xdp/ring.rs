//! The rings that a socket shares with the kernel: lock-free, one producer and one consumer.

#![expect(unsafe_code, reason = "a ring is memory that is shared with the kernel")]

use super::super::sys::Mapping;
use core::marker::PhantomData;
use core::mem::size_of;
use core::sync::atomic::{AtomicU32, Ordering};
use std::io;
use std::os::fd::OwnedFd;

/// A type of ring entries.
///
/// # Safety
/// Every bit pattern is a valid value.
pub(super) unsafe trait Entry: Copy {}
// SAFETY: it is an integer.
unsafe impl Entry for u64 {}
// SAFETY: it has only integer fields.
unsafe impl Entry for libc::xdp_desc {}

/// One end of a ring with a power of two of entries.
#[derive(Debug)]
pub(super) struct Ring<T> {
    mapping: Mapping,
    offsets: libc::xdp_ring_offset,
    mask: u32,
    /// Our index; the kernel may not have seen it yet.
    ours: u32,
    /// The kernel's index when we last read it.
    theirs: u32,
    entries: PhantomData<T>,
}

impl<T: Entry> Ring<T> {
    /// Maps a ring of `entries`, which the kernel has created.
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

    /// Returns the number of entries that may be put; reads the kernel's index again if there are fewer than
    /// `wanted`.
    pub(super) fn room(&mut self, wanted: u32) -> u32 {
        let room = |ring: &Self| ring.mask + 1 - ring.ours.wrapping_sub(ring.theirs);
        if room(self) < wanted {
            self.theirs = self.word(self.offsets.consumer).load(Ordering::Acquire);
        }
        room(self)
    }

    /// Puts an entry; the caller has checked [`Ring::room`].
    pub(super) fn put(&mut self, entry: T) {
        // SAFETY: the slot is in the mapping and aligned. We own it until `publish`, because the kernel's index is at
        // most one ring behind.
        unsafe { self.slot(self.ours).write(entry) };
        self.ours = self.ours.wrapping_add(1);
    }

    /// Publishes our entries to the kernel.
    pub(super) fn publish(&self) {
        self.word(self.offsets.producer).store(self.ours, Ordering::Release);
    }

    /// Number of entries that the kernel has not consumed.
    pub(super) fn pending(&self) -> u32 {
        self.ours.wrapping_sub(self.word(self.offsets.consumer).load(Ordering::Acquire))
    }

    /// Takes the next entry from the kernel.
    pub(super) fn take(&mut self) -> Option<T> {
        if self.ours == self.theirs {
            self.theirs = self.word(self.offsets.producer).load(Ordering::Acquire);
            if self.ours == self.theirs {
                return None;
            }
        }
        // SAFETY: the slot is in the mapping and aligned. The kernel has written it, and does not write it again until
        // `release`.
        let entry = unsafe { self.slot(self.ours).read() };
        self.ours = self.ours.wrapping_add(1);
        Some(entry)
    }

    /// Returns consumed entries to the kernel.
    pub(super) fn release(&self) {
        self.word(self.offsets.consumer).store(self.ours, Ordering::Release);
    }

    /// Whether the kernel needs a call to process the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.word(self.offsets.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }

    /// Returns the address of entry `at`, which wraps around.
    fn slot(&self, at: u32) -> *mut T {
        let offset = self.offsets.desc as usize + (at & self.mask) as usize * size_of::<T>();
        // SAFETY: the mapping has room for all entries after the offset.
        unsafe { self.mapping.address().add(offset).cast() }
    }

    /// Returns the word at an offset of the mapping.
    fn word(&self, offset: u64) -> &AtomicU32 {
        // SAFETY: the offset was checked to be aligned and in the mapping, which lives as long as `self`. Both ends
        // access the word only as a whole.
        unsafe { AtomicU32::from_ptr(self.mapping.address().add(offset as usize).cast()) }
    }
}
