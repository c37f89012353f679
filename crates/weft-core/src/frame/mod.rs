//! Frames: packets in buffers of a pool.
//!
//! A [`Pool`] owns the memory of a worker's packets. A driver takes a buffer for each packet that arrives, elements
//! read and change it in place, and the sending driver gives the buffer back. A [`Frame`] is the handle of one buffer.
//! It can be neither copied nor cloned, so a packet has one owner, and its buffer is given back once.
//!
//! Buffers have two sizes. Nearly all packets fit the small one. The large one holds a packet that the kernel passes
//! before segmentation ([`Gso`]): such a packet costs as much as a single one.
//!
//! Headers grow and shrink at the front. A buffer has [`HEADROOM`] bytes in front of a new packet, so a push does not
//! move the packet.

pub mod build;
mod fragment;
mod offload;
mod pieces;
mod segment;

pub use offload::{Checksum, Gso, GsoKind, Offload, VIRTIO_HEADER_BYTES, VirtioError};
pub use pieces::{BIG_PACKET_MAX, IP_PACKET_MAX, PIECES_MAX};
pub use segment::{
    ETHERTYPE_IPV4, ETHERTYPE_IPV6, SEGMENTS_MAX, SegmentError, VLAN_TAGS_MAX, ip_at, network_at,
    packet_size, session_in_front,
};

use crate::abi::Pushed;
use crate::marks::Marks;
use crate::{Time, hash};
use core::fmt;
use core::ops::Range;

/// Bytes of a cache line; buffers are aligned to it.
const LINE_BYTES: usize = 64;
/// Bytes of a small buffer. The number of its cache lines is odd, so that the headers of a batch do not compete for the
/// same few cache sets.
pub const SMALL_BYTES: usize = 2048 + LINE_BYTES;
/// Bytes of a large buffer: the longest IP packet, link headers, [`HEADROOM`], and some tailroom. The number of its
/// cache lines is odd too.
pub const LARGE_BYTES: usize = (66 << 10) + LINE_BYTES;
/// Bytes of a large buffer in a pool for captures, which holds the longest captured packet: 256 KiB.
const CAPTURE_BYTES: usize = (258 << 10) + LINE_BYTES;
/// Bytes in front of a new packet, for headers to push.
pub const HEADROOM: usize = 128;
/// The longest packet in a new small buffer.
pub const SMALL_PACKET_MAX: usize = SMALL_BYTES - HEADROOM;
/// The longest packet in a new large buffer.
pub const LARGE_PACKET_MAX: usize = LARGE_BYTES - HEADROOM;
/// Maximum size of a pool in bytes: offsets in it have 32 bits.
pub const POOL_BYTES_MAX: usize = 2 << 30;
/// Maximum number of packets in a batch.
pub const BATCH_MAX: usize = 64;

const _: () = assert!(HEADROOM.is_multiple_of(LINE_BYTES) && SMALL_BYTES.is_multiple_of(LINE_BYTES));
const _: () = assert!(LARGE_BYTES.is_multiple_of(LINE_BYTES) && CAPTURE_BYTES.is_multiple_of(LINE_BYTES));
const _: () = assert!(POOL_BYTES_MAX + LINE_BYTES <= u32::MAX as usize, "a frame's start has 32 bits");
const _: () = assert!(IP_PACKET_MAX <= LARGE_PACKET_MAX, "every IP packet fits a buffer");

/// The number of buffers of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PoolConfig {
    /// Buffers of [`SMALL_BYTES`].
    pub small: u32,
    /// Buffers of [`LARGE_BYTES`].
    pub large: u32,
}

impl Default for PoolConfig {
    /// 16 MiB of small and 8 MiB of large buffers. Memory is resident only after a packet has used it.
    fn default() -> Self {
        Self { small: 8192, large: 128 }
    }
}

impl PoolConfig {
    /// Bytes of all buffers.
    pub const fn bytes(&self) -> usize {
        self.small as usize * SMALL_BYTES + self.large as usize * LARGE_BYTES
    }
}

/// The counters of a pool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolCounters {
    /// Frames taken, copies included.
    pub taken: u64,
    /// Frames refused because no buffer was free.
    pub exhausted: u64,
    /// Changes refused because the packet would not fit the largest buffer.
    pub no_room: u64,
}

/// The metadata of a packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameMeta {
    /// When it arrived. All packets of a batch may share one time; those of a capture have their own.
    pub arrived: Time,
    /// The port on which it arrived, or the port to send it on.
    pub port: u16,
    /// The queue of that port.
    pub queue: u16,
    /// Its sequence number on that queue, from 0.
    pub sequence: u64,
    /// The marks that elements have set.
    pub marks: Marks,
    /// The offloads that the sender requested, or that the receiver has completed.
    pub offload: Offload,
}

/// The handle of a packet in a [`Pool`]. Only [`Pool::give`] frees it: a frame that is merely dropped keeps its buffer
/// until the pool ends.
#[derive(Debug)]
#[must_use = "the buffer is lost until the frame is given back to its pool"]
pub struct Frame {
    /// The offset of the packet in the pool's memory.
    start: u32,
    length: u32,
    buffer: u32,
    /// Bytes of the packet that a capture cut off.
    pub cut: u32,
    /// The metadata of the packet.
    pub meta: FrameMeta,
}

/// One cache line: frames are moved for each packet.
const _: () = assert!(size_of::<Frame>() == LINE_BYTES);

/// The buffers of one worker.
pub struct Pool {
    config: PoolConfig,
    /// Bytes of a large buffer.
    large_bytes: usize,
    memory: Vec<u8>,
    /// The offset of the first buffer, aligned to a cache line.
    base: usize,
    /// The free buffers as a stack: the most recently freed one is likely still in the cache.
    free_small: Vec<u32>,
    free_large: Vec<u32>,
    /// One bit for each buffer: whether it is in use.
    taken: Vec<u64>,
    counters: PoolCounters,
}

/// Copies bytes to a slice of the same length; inline for one cache line, the size of the shortest packets.
#[inline(always)]
pub fn copy(from: &[u8], to: &mut [u8]) {
    match (<&[u8; LINE_BYTES]>::try_from(from), <&mut [u8; LINE_BYTES]>::try_from(&mut *to)) {
        (Ok(line), Ok(to)) => *to = *line,
        _ => to.copy_from_slice(from),
    }
}

impl Frame {
    /// Bytes of the packet.
    #[inline]
    pub fn len(&self) -> usize {
        self.length as usize
    }

    /// Bytes of the packet on its link: more than here if a capture cut it.
    #[inline]
    pub fn size(&self) -> usize {
        self.length as usize + self.cut as usize
    }

    /// Whether the packet has no bytes.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// When it arrived: `now` if its metadata has no time.
    #[inline(always)]
    pub fn arrived(&self, now: Time) -> Time {
        if self.meta.arrived == Time::default() { now } else { self.meta.arrived }
    }

    /// `packet_id()`: a mix of port, queue and sequence number.
    #[inline]
    pub fn id(&self) -> u64 {
        let place = u64::from(self.meta.port) << 16 | u64::from(self.meta.queue);
        hash::mix(hash::hash_word(place), self.meta.sequence)
    }
}

impl Pool {
    /// A pool with these buffers.
    ///
    /// # Panics
    /// The configuration asks for more than [`POOL_BYTES_MAX`].
    pub fn new(config: PoolConfig) -> Self {
        Self::with_large_bytes(config, LARGE_BYTES)
    }

    /// A pool whose large buffers hold any packet of a capture, which may be longer than any packet on a wire.
    ///
    /// # Panics
    /// The buffers would exceed [`POOL_BYTES_MAX`].
    pub fn for_captures(config: PoolConfig) -> Self {
        Self::with_large_bytes(config, CAPTURE_BYTES)
    }

    /// Makes a pool whose large buffers have `large_bytes` bytes.
    fn with_large_bytes(config: PoolConfig, large_bytes: usize) -> Self {
        let bytes = config.small as usize * SMALL_BYTES + config.large as usize * large_bytes;
        assert!(bytes <= POOL_BYTES_MAX, "the configuration limits the size of a pool");
        let buffers = config.small + config.large;
        assert!(large_bytes >= SMALL_BYTES, "a packet moves to a larger buffer");
        let memory = vec![0; bytes + LINE_BYTES];
        Self {
            config,
            large_bytes,
            base: memory.as_ptr().align_offset(LINE_BYTES).min(LINE_BYTES),
            memory,
            // The first buffers are used first.
            free_small: (0..config.small).rev().collect(),
            free_large: (config.small..buffers).rev().collect(),
            taken: vec![0; buffers.div_ceil(64) as usize],
            counters: PoolCounters::default(),
        }
    }

    /// A packet of this length with undefined content: the caller writes all of it. `None`, and counted, if no buffer
    /// is free or none is large enough.
    #[inline(always)]
    pub fn take(&mut self, bytes: usize) -> Option<Frame> {
        let buffer = match bytes {
            0..=SMALL_PACKET_MAX => self.free_small.pop(),
            _ if bytes <= self.large_bytes - HEADROOM => self.free_large.pop(),
            _ => {
                self.counters.no_room += 1;
                return None;
            }
        };
        let Some(buffer) = buffer else {
            self.counters.exhausted += 1;
            return None;
        };
        self.counters.taken += 1;
        self.taken[(buffer / 64) as usize] |= 1 << (buffer % 64);
        let start = self.buffer(buffer).start + HEADROOM;
        Some(Frame { start: start as u32, length: bytes as u32, buffer, cut: 0, meta: FrameMeta::default() })
    }

    /// A packet with these bytes. `None` as for [`Pool::take`].
    #[inline(always)]
    pub fn take_filled(&mut self, bytes: &[u8]) -> Option<Frame> {
        self.take_made(bytes.len(), |to| copy(bytes, to))
    }

    /// A packet of this length; `make` writes all of its bytes. `None` as for [`Pool::take`].
    #[inline(always)]
    pub fn take_made(&mut self, bytes: usize, make: impl FnOnce(&mut [u8])) -> Option<Frame> {
        let frame = self.take(bytes)?;
        make(self.bytes_mut(&frame));
        Some(frame)
    }

    /// Frees the buffer of a packet.
    ///
    /// # Panics
    /// The frame belongs to another pool, and its buffer is free in this one.
    #[inline]
    pub fn give(&mut self, frame: Frame) {
        let buffer = frame.buffer;
        let (word, bit) = ((buffer / 64) as usize, 1 << (buffer % 64));
        assert!(self.taken[word] & bit != 0, "a frame is given back once, to its own pool");
        self.taken[word] &= !bit;
        match buffer < self.config.small {
            true => self.free_small.push(buffer),
            false => self.free_large.push(buffer),
        }
    }

    /// A copy of a packet and its metadata. `None` as for [`Pool::take`].
    pub fn copy(&mut self, frame: &Frame) -> Option<Frame> {
        let mut copy = self.take(frame.len())?;
        copy.meta = frame.meta;
        copy.cut = frame.cut;
        self.memory.copy_within(Self::range(frame), copy.start as usize);
        Some(copy)
    }

    /// The bytes of a packet.
    #[inline]
    pub fn bytes(&self, frame: &Frame) -> &[u8] {
        &self.memory[Self::range(frame)]
    }

    /// The bytes of a packet, mutable.
    #[inline]
    pub fn bytes_mut(&mut self, frame: &Frame) -> &mut [u8] {
        &mut self.memory[Self::range(frame)]
    }

    /// The bytes of a packet with its headroom, and the length of the headroom. Bytes written there join the packet
    /// with [`Pool::take_in_front`].
    #[inline]
    pub fn bytes_and_front(&mut self, frame: &Frame) -> (&mut [u8], usize) {
        let Range { start, end } = Self::range(frame);
        let first = self.buffer(frame.buffer).start;
        (&mut self.memory[first..end], start - first)
    }

    /// Removes bytes from the front of a packet, truncates it, and adds the bytes that were written in front of it.
    ///
    /// # Panics
    /// The packet is too short, or the headroom is.
    #[inline]
    pub fn take_in_front(&mut self, frame: &mut Frame, Pushed { off, rest, bytes }: Pushed) {
        let room = u64::from(frame.start) - self.buffer(frame.buffer).start as u64;
        let is_inside = off + rest <= u64::from(frame.length) && bytes <= room + off;
        assert!(is_inside, "the caller checks the room before it writes");
        frame.start = (u64::from(frame.start) + off - bytes) as u32;
        frame.length = (rest + bytes) as u32;
        frame.meta.offload.removed(0, off as usize);
        frame.meta.offload.inserted(0, bytes as usize);
    }

    /// Adds `n` zero bytes in front of a packet and returns them. If the headroom is too short, the packet moves, into
    /// a large buffer if necessary. `None`, and counted, if there is no room or no buffer; the packet is then
    /// unchanged.
    #[inline]
    pub fn grow_front(&mut self, frame: &mut Frame, n: usize) -> Option<&mut [u8]> {
        let room = frame.start as usize - self.buffer(frame.buffer).start;
        if n > room {
            return self.insert(frame, 0, n);
        }
        frame.start -= n as u32;
        frame.length += n as u32;
        frame.meta.offload.inserted(0, n);
        let new = &mut self.memory[frame.start as usize..][..n];
        new.fill(0);
        Some(new)
    }

    /// Removes the first `n` bytes of a packet. `None` if it has fewer; it is then unchanged.
    #[inline]
    pub fn shrink_front(&mut self, frame: &mut Frame, n: usize) -> Option<()> {
        if n > frame.len() {
            return None;
        }
        frame.start += n as u32;
        frame.length -= n as u32;
        frame.meta.offload.removed(0, n);
        Some(())
    }

    /// Inserts `n` zero bytes before byte `at` of a packet and returns them. `None` if the packet is shorter than `at`,
    /// or, counted, if there is no room or no buffer; the packet is then unchanged.
    pub fn insert(&mut self, frame: &mut Frame, at: usize, n: usize) -> Option<&mut [u8]> {
        let new = self.make_room(frame, at, n)?;
        new.fill(0);
        Some(new)
    }

    /// As [`Pool::insert`], with undefined bytes: the caller writes all of them.
    #[inline]
    pub fn make_room(&mut self, frame: &mut Frame, at: usize, n: usize) -> Option<&mut [u8]> {
        let start = frame.start as usize;
        let front = start - self.buffer(frame.buffer).start;
        let new_start = if at == 0 && n <= front { start - n } else { self.move_apart(frame, at, n)? };
        frame.start = new_start as u32;
        frame.length += n as u32;
        frame.meta.offload.inserted(at, n);
        Some(&mut self.memory[new_start + at..][..n])
    }

    /// Opens a gap of `n` bytes before byte `at` of a packet: it moves the shorter part, where there is room. Returns
    /// the new start of the packet.
    fn move_apart(&mut self, frame: &mut Frame, at: usize, n: usize) -> Option<usize> {
        let (start, length) = (frame.start as usize, frame.len());
        let rest = length.checked_sub(at)?;
        let buffer = self.buffer(frame.buffer);
        let (front, back) = (start - buffer.start, buffer.end - (start + length));
        if n <= front && (at <= rest || n > back) {
            self.memory.copy_within(start..start + at, start - n);
            Some(start - n)
        } else if n <= back {
            self.memory.copy_within(start + at..start + length, start + at + n);
            Some(start)
        } else {
            self.insert_elsewhere(frame, at, n)
        }
    }

    /// Removes `n` bytes from byte `at` on. `None` if the packet does not have them; it is then unchanged.
    pub fn remove(&mut self, frame: &mut Frame, at: usize, n: usize) -> Option<()> {
        let (start, length) = (frame.start as usize, frame.len());
        let end = at.checked_add(n).filter(|end| *end <= length)?;
        // Move the shorter part.
        if at <= length - end {
            self.memory.copy_within(start..start + at, start + n);
            frame.start += n as u32;
        } else {
            self.memory.copy_within(start + end..start + length, start + at);
        }
        frame.length -= n as u32;
        frame.meta.offload.removed(at, n);
        Some(())
    }

    /// Adds `n` zero bytes behind a packet and returns them. `None` as for [`Pool::grow_front`].
    pub fn grow_back(&mut self, frame: &mut Frame, n: usize) -> Option<&mut [u8]> {
        self.insert(frame, frame.len(), n)
    }

    /// Truncates a packet to this length.
    #[inline]
    pub fn truncate(&mut self, frame: &mut Frame, bytes: usize) {
        frame.length = frame.length.min(u32::try_from(bytes).unwrap_or(u32::MAX));
    }

    /// The counters.
    pub fn counters(&self) -> PoolCounters {
        self.counters
    }

    /// The longest packet that any buffer holds.
    pub fn packet_max(&self) -> usize {
        if self.config.large > 0 { self.large_bytes - HEADROOM } else { SMALL_PACKET_MAX }
    }

    /// The number of buffers.
    pub fn config(&self) -> PoolConfig {
        self.config
    }

    /// The number of frames in use.
    pub fn in_use(&self) -> usize {
        let buffers = (self.config.small + self.config.large) as usize;
        buffers - self.free_small.len() - self.free_large.len()
    }

    /// The number of free small buffers.
    pub fn free_small(&self) -> usize {
        self.free_small.len()
    }

    /// The number of free large buffers.
    pub fn free_large(&self) -> usize {
        self.free_large.len()
    }

    /// Moves the packet so that `n` bytes fit at `at`: to the end of its own large buffer, or into another one. Returns
    /// the new start of the packet.
    #[cold]
    fn insert_elsewhere(&mut self, frame: &mut Frame, at: usize, n: usize) -> Option<usize> {
        let length = frame.len();
        let max = self.large_bytes - HEADROOM;
        let Some(total) = length.checked_add(n).filter(|total| *total <= max) else {
            self.counters.no_room += 1;
            return None;
        };
        let (old, is_large) = (frame.start as usize, frame.buffer >= self.config.small);
        let new = if is_large {
            self.buffer(frame.buffer).end - total
        } else {
            let Some(buffer) = self.free_large.pop() else {
                self.counters.exhausted += 1;
                return None;
            };
            self.taken[(buffer / 64) as usize] |= 1 << (buffer % 64);
            let left = core::mem::replace(&mut frame.buffer, buffer);
            self.give(Frame { start: 0, length: 0, buffer: left, cut: 0, meta: frame.meta });
            self.buffer(buffer).start + HEADROOM
        };
        assert!(new >= self.buffer(frame.buffer).start, "the whole packet fits the buffer");
        // In its own buffer, the packet has fewer than `n` bytes on either side. So its tail moves away from its head
        // and does not overwrite it.
        self.memory.copy_within(old + at..old + length, new + at + n);
        self.memory.copy_within(old..old + at, new);
        Some(new)
    }

    /// The range of a buffer in the memory of the pool.
    #[inline]
    fn buffer(&self, buffer: u32) -> Range<usize> {
        let (buffer, small) = (buffer as usize, self.config.small as usize);
        match buffer < small {
            true => {
                let start = self.base + buffer * SMALL_BYTES;
                start..start + SMALL_BYTES
            }
            false => {
                let start = self.base + small * SMALL_BYTES + (buffer - small) * self.large_bytes;
                start..start + self.large_bytes
            }
        }
    }

    /// The range of a frame's bytes in its buffer.
    #[inline]
    fn range(frame: &Frame) -> Range<usize> {
        frame.start as usize..(frame.start + frame.length) as usize
    }
}

impl fmt::Debug for Pool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pool")
            .field("config", &self.config)
            .field("in_use", &self.in_use())
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn pool(small: u32, large: u32) -> Pool {
        Pool::new(PoolConfig { small, large })
    }

    fn pattern(n: usize) -> Vec<u8> {
        (0..n).map(|at| (at * 7 + at / 251) as u8).collect()
    }

    #[test]
    fn pool_exhaustion_is_counted() {
        // A burst could stop a worker, or each refused packet would lose a buffer.
        let mut pool = pool(2, 1);
        let (a, b) = (pool.take(60).expect("a buffer"), pool.take(SMALL_PACKET_MAX).expect("a buffer"));
        assert!(pool.take(60).is_none() && pool.copy(&a).is_none());
        let large = pool.take(SMALL_PACKET_MAX + 1).expect("a large buffer");
        assert!(pool.take(9000).is_none());
        assert!(pool.take(LARGE_PACKET_MAX + 1).is_none());
        assert_eq!(pool.counters(), PoolCounters { taken: 3, exhausted: 3, no_room: 1 });
        assert_eq!(pool.in_use(), 3);
        for frame in [a, b, large] {
            pool.give(frame);
        }
        assert_eq!((pool.in_use(), pool.free_small(), pool.free_large()), (0, 2, 1));
        let again = pool.take(1).expect("the pool has the buffer again");
        pool.give(again);
    }

    #[test]
    #[should_panic(expected = "to its own pool")]
    fn foreign_frame_is_detected() {
        // If pools were mixed up, packets would change while another owner uses them.
        let (mut a, mut b) = (pool(1, 0), pool(1, 0));
        let frame = a.take(1).expect("a buffer");
        b.give(frame);
    }

    #[test]
    fn grown_packet_moves_to_large_buffer() {
        // A packet of 1900 bytes could not be put into a tunnel.
        let mut pool = pool(1, 1);
        let mut frame = pool.take_filled(&pattern(1900)).expect("a buffer");
        assert_eq!(pool.bytes(&frame).as_ptr().align_offset(LINE_BYTES), 0);
        pool.grow_front(&mut frame, 500).expect("room in a large buffer").fill(9);
        assert_eq!(pool.bytes(&frame)[..500], [9; 500]);
        assert_eq!(pool.bytes(&frame)[500..], pattern(1900));
        assert_eq!((pool.free_small(), pool.free_large()), (1, 0));
        assert!(pool.grow_front(&mut frame, LARGE_BYTES).is_none());
        assert_eq!((frame.len(), pool.counters().no_room), (2400, 1));
        pool.give(frame);
    }

    #[test]
    fn partial_checksum_moves_with_push() {
        // The device would write the checksum of a tunnelled packet into its outer header.
        let mut pool = pool(1, 0);
        let mut frame = pool.take_filled(&pattern(100)).expect("a buffer");
        frame.meta.offload.checksum = Checksum::Partial { start: 34, offset: 16 };
        let _ = pool.insert(&mut frame, 12, 4).expect("room for a VLAN tag");
        assert_eq!(frame.meta.offload.checksum, Checksum::Partial { start: 38, offset: 16 });
        let _ = pool.grow_front(&mut frame, 50).expect("room for a tunnel");
        assert_eq!(frame.meta.offload.checksum, Checksum::Partial { start: 88, offset: 16 });
        pool.shrink_front(&mut frame, 50).expect("the frame is long enough");
        pool.remove(&mut frame, 12, 4).expect("the frame is long enough");
        assert_eq!(frame.meta.offload.checksum, Checksum::Partial { start: 34, offset: 16 });
        pool.shrink_front(&mut frame, 40).expect("the frame is long enough");
        assert_eq!(frame.meta.offload, Offload::default());
        pool.give(frame);
    }

    #[derive(Clone, Debug)]
    enum Change {
        GrowFront(usize),
        ShrinkFront(usize),
        Insert(usize, usize),
        Remove(usize, usize),
        GrowBack(usize),
        Truncate(usize),
        Copy,
    }

    fn change() -> impl Strategy<Value = Change> {
        let size = || prop_oneof![0..64usize, 0..3000usize, 0..70_000usize];
        prop_oneof![
            size().prop_map(Change::GrowFront),
            size().prop_map(Change::ShrinkFront),
            (size(), size()).prop_map(|(at, n)| Change::Insert(at, n)),
            (size(), size()).prop_map(|(at, n)| Change::Remove(at, n)),
            size().prop_map(Change::GrowBack),
            size().prop_map(Change::Truncate),
            Just(Change::Copy),
        ]
    }

    /// Applies the change to a vector; `None` where a packet does not allow it.
    fn expected(bytes: &[u8], change: &Change) -> Option<Vec<u8>> {
        let mut bytes = bytes.to_vec();
        match *change {
            Change::GrowFront(n) => drop(bytes.splice(0..0, vec![0; n])),
            Change::ShrinkFront(n) => drop((n <= bytes.len()).then(|| bytes.drain(..n))?),
            Change::Insert(at, n) => drop((at <= bytes.len()).then(|| bytes.splice(at..at, vec![0; n]))?),
            Change::Remove(at, n) => drop((at + n <= bytes.len()).then(|| bytes.drain(at..at + n))?),
            Change::GrowBack(n) => bytes.resize(bytes.len() + n, 0),
            Change::Truncate(n) => bytes.truncate(n),
            Change::Copy => (),
        }
        Some(bytes)
    }

    fn apply(pool: &mut Pool, frame: &mut Frame, change: &Change) -> bool {
        match *change {
            Change::GrowFront(n) => pool.grow_front(frame, n).is_some(),
            Change::ShrinkFront(n) => pool.shrink_front(frame, n).is_some(),
            Change::Insert(at, n) => pool.insert(frame, at, n).is_some(),
            Change::Remove(at, n) => pool.remove(frame, at, n).is_some(),
            Change::GrowBack(n) => pool.grow_back(frame, n).is_some(),
            Change::Truncate(n) => {
                pool.truncate(frame, n);
                true
            }
            Change::Copy => match pool.copy(frame) {
                Some(copy) => {
                    pool.give(core::mem::replace(frame, copy));
                    true
                }
                None => false,
            },
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// An encapsulation could lose, duplicate or overwrite bytes of a packet or of its neighbours.
        #[test]
        fn frame_changes_match_vec_model(
            length in 0..4000usize,
            changes in prop::collection::vec(change(), 0..24),
        ) {
            let mut pool = pool(4, 4);
            let neighbours: Vec<Frame> = [SMALL_PACKET_MAX, 1, SMALL_PACKET_MAX + 1, 65_000]
                .iter()
                .map(|n| pool.take_filled(&pattern(*n)).expect("a buffer"))
                .collect();
            let mut bytes = pattern(length);
            let mut frame = pool.take_filled(&bytes).expect("a buffer");
            for change in &changes {
                let wanted = expected(&bytes, change);
                let done = apply(&mut pool, &mut frame, change);
                match wanted {
                    Some(wanted) if done => bytes = wanted,
                    // A packet that fits a new large buffer always fits; between that and the whole buffer it depends
                    // on the position.
                    Some(wanted) => prop_assert!(wanted.len() > LARGE_PACKET_MAX, "{change:?} was refused"),
                    None => prop_assert!(!done, "{change:?} was not refused"),
                }
                prop_assert_eq!(pool.bytes(&frame), &bytes[..], "{:?}", change);
                prop_assert_eq!(pool.in_use(), 5);
            }
            for neighbour in neighbours {
                prop_assert_eq!(pool.bytes(&neighbour), &pattern(neighbour.len())[..]);
                pool.give(neighbour);
            }
            pool.give(frame);
            prop_assert_eq!(pool.in_use(), 0);
        }
    }
}
