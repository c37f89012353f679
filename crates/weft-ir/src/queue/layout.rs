//! The memory layout of a queue: the private words of the engine, and the words of handlers.
//!
//! Records of nodes, partitions and packets are adjacent [`CacheLine`]s. The first words of a record are private to the
//! queue ([`kept`], [`LINK`]); the words of handlers follow ([`super::word`]).

use super::{Level, QueueProgram, word};

/// Words of a cache line.
pub const LINE_WORDS: usize = 8;
/// A cache line. The first one of a record holds what every packet touches.
pub type CacheLine = [u64; LINE_WORDS];
/// Prefetches the line with this index, if it exists. It changes nothing.
pub type Fetch = fn(&[CacheLine], usize);
/// No packet, or no partition.
pub const NONE: u32 = u32::MAX;

/// The private words in the record of a partition, in front of the words of handlers, and the position of the latter. A
/// node with a single partition also has the first two.
pub mod kept {
    use super::word;

    /// The number of private words: together with the common words of handlers and one variable, they fill a cache
    /// line.
    pub const WORDS: usize = 3;
    /// The first and last packet of its line, [`super::paired`].
    pub const LINE: usize = 0;
    /// The place in the order: its neighbours, [`super::paired`], or its position, with [`IN_ORDER`]. Outside the order
    /// it is the time until which the partition waits, or [`IDLE`]. A node with a single partition that does not wait
    /// has [`IDLE`].
    pub const PLACE: usize = 1;
    /// The rank of that place.
    pub const STANDS: usize = 2;
    /// The only node of a queue that is a single line keeps a ring of packets: the index of its first packet, and the
    /// index behind its last.
    pub const FIRST: usize = 0;
    /// See [`FIRST`].
    pub const BEHIND: usize = 2;
    /// [`word::PACKETS`]
    pub const PACKETS: usize = WORDS + word::PACKETS as usize;
    /// [`word::BYTES`]
    pub const BYTES: usize = WORDS + word::BYTES as usize;
    /// [`word::RANK`]
    pub const RANK: usize = WORDS + word::RANK as usize;
    /// [`word::INDEX`]
    pub const INDEX: usize = WORDS + word::INDEX as usize;

    /// The partition neither waits nor is in the order.
    pub const IDLE: u64 = 0;
    /// The partition is in the order. No time is that late.
    pub const IN_ORDER: u64 = 1 << 63;
}

/// A line without packets, or an order without partitions.
pub const NO_PACKETS: u64 = u64::MAX;
/// Private words of a packet.
pub const KEPT: usize = 1;
/// Of a packet: its neighbours in the line, [`paired`], or the next free place.
pub const LINK: usize = 0;
/// Words of handlers in the first line of a packet.
pub const SEEN_IN_HEAD: usize = LINE_WORDS - KEPT;

/// The two numbers of a word.
#[inline(always)]
pub const fn pair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// A word of two numbers.
#[inline(always)]
pub const fn paired(a: u32, b: u32) -> u64 {
    (a as u64) | (b as u64) << 32
}

/// The lines of the record of a node or partition, with this many words of handlers.
pub const fn record_lines(n_seen: usize) -> usize {
    (kept::WORDS + n_seen).div_ceil(LINE_WORDS)
}

impl Level {
    /// The words of a node for handlers.
    pub fn node_words(&self) -> usize {
        usize::from(word::NODE_VARS) + self.vars.len()
    }

    /// The words of a partition for handlers.
    pub fn partition_words(&self) -> usize {
        usize::from(word::PARTITION_VARS) + self.partition_vars.len()
    }
}

impl QueueProgram {
    /// The lines of a packet.
    pub fn packet_lines(&self) -> usize {
        (KEPT + usize::from(word::FIELDS) + self.fields.len()).div_ceil(LINE_WORDS)
    }
}
