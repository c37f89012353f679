//! The memory layout of a queue: the private words of the engine, and the words of handlers.
//!
//! Records of nodes, partitions and packets are adjacent [`CacheLine`]s. The first words of a record are private to the
//! queue ([`kept`], [`LINK`]); the words of handlers follow ([`word`]).

use weft_ir::queue::direct::CacheLine;
use weft_ir::queue::{QueueProgram, word};

/// Words of a cache line.
pub(super) const LINE_WORDS: usize = size_of::<CacheLine>() / 8;
/// No packet, or no partition.
pub(super) const NONE: u32 = u32::MAX;

/// The private words in the record of a partition, in front of the words of handlers, and the position of the latter. A
/// node with a single partition also has the first two.
pub(super) mod kept {
    use super::word;

    /// The number of private words: together with the common words of handlers and one variable, they fill a cache
    /// line.
    pub(in crate::queue) const WORDS: usize = 3;
    /// The first and last packet of its line, [`super::paired`].
    pub(in crate::queue) const LINE: usize = 0;
    /// The place in the order: its neighbours, [`super::paired`], or its position, with [`IN_ORDER`]. Outside the order
    /// it is the time until which the partition waits, or [`IDLE`]. A node with a single partition that does not wait
    /// has [`IDLE`].
    pub(in crate::queue) const PLACE: usize = 1;
    /// The rank of that place.
    pub(in crate::queue) const STANDS: usize = 2;
    /// The only node of a queue that is a single line keeps a ring of packets: the index of its first packet, and the
    /// index behind its last.
    pub(in crate::queue) const FIRST: usize = 0;
    /// See [`FIRST`].
    pub(in crate::queue) const BEHIND: usize = 2;
    /// [`word::PACKETS`]
    pub(in crate::queue) const PACKETS: usize = WORDS + word::PACKETS as usize;
    /// [`word::BYTES`]
    pub(in crate::queue) const BYTES: usize = WORDS + word::BYTES as usize;
    /// [`word::RANK`]
    pub(in crate::queue) const RANK: usize = WORDS + word::RANK as usize;
    /// [`word::INDEX`]
    pub(in crate::queue) const INDEX: usize = WORDS + word::INDEX as usize;

    /// The partition neither waits nor is in the order.
    pub(in crate::queue) const IDLE: u64 = 0;
    /// The partition is in the order. No time is that late.
    pub(in crate::queue) const IN_ORDER: u64 = 1 << 63;
}

/// A line without packets, or an order without partitions.
pub(super) const NO_PACKETS: u64 = u64::MAX;
/// Private words of a packet.
pub(super) const KEPT: usize = 1;
/// Of a packet: its neighbours in the line, [`paired`], or the next free place.
pub(super) const LINK: usize = 0;
/// Words of handlers in the first line of a packet.
pub(super) const SEEN_IN_HEAD: usize = LINE_WORDS - KEPT;

/// The two numbers of a word.
#[inline(always)]
pub(super) const fn pair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A word of two numbers.
#[inline(always)]
pub(super) const fn paired(a: u32, b: u32) -> u64 {
    (a as u64) | (b as u64) << 32
}

/// The lines of the record of a node or partition, with this many words of handlers.
pub(super) const fn record_lines(n_seen: usize) -> usize {
    (kept::WORDS + n_seen).div_ceil(LINE_WORDS)
}

/// The lines of a packet of a program.
pub(super) fn packet_lines(program: &QueueProgram) -> usize {
    (KEPT + usize::from(word::FIELDS) + program.fields.len()).div_ceil(LINE_WORDS)
}
