//! How the words of a queue lie in memory: what its engine keeps, and what code that walks through it is compiled for.
//!
//! Records of nodes, partitions and packets are whole [`CacheLine`]s of the cache, one behind the other. The first words of
//! a record are the queue's own ([`kept`], [`LINK`]); behind them are those that handlers see ([`super::word`]).

use super::{Level, QueueProgram, word};

/// Words of a line of the cache.
pub const LINE_WORDS: usize = 8;
/// A line: the first of a record has what every packet touches.
pub type CacheLine = [u64; LINE_WORDS];
/// The old name of [`CacheLine`]; only `turns` still uses it.
#[doc(hidden)]
pub type Line = CacheLine;
/// Asks for the line of a number, if there is one, that will soon be needed, and waits for nothing. It changes nothing.
pub type Fetch = fn(&[CacheLine], usize);
/// No packet, and no partition.
pub const NONE: u32 = u32::MAX;

/// What the queue keeps in the record of a partition, before the words that handlers see; and where those are then. A
/// node that is one partition has the first two, too.
pub mod kept {
    use super::word;

    /// How many words those are: with those that all handlers see and one variable they are a line of the cache.
    pub const WORDS: usize = 3;
    /// First and last packet of its line, [`super::paired`].
    pub const LINE: usize = 0;
    /// A node of several partitions, whose order is by two ranks at most, has the first partition of each rank,
    /// [`super::paired`]: each stands in a ring with the others of its rank.
    pub const FIRSTS: usize = 0;
    /// Its place in the order: its neighbours there, [`super::paired`], and [`IN_ORDER`]. Or until when it waits where
    /// it is not in the order, or nothing. A node that is one partition and does not wait has nothing.
    pub const PLACE: usize = 1;
    /// The rank under which it stands there.
    pub const STANDS: usize = 2;
    /// The only node of a queue that is a line has it in a ring: its first packet, and the place behind its last.
    pub const FIRST: usize = 0;
    /// As above.
    pub const BEHIND: usize = 2;
    /// [`word::PACKETS`]
    pub const PACKETS: usize = WORDS + word::PACKETS as usize;
    /// [`word::BYTES`]
    pub const BYTES: usize = WORDS + word::BYTES as usize;
    /// [`word::RANK`]
    pub const RANK: usize = WORDS + word::RANK as usize;
    /// [`word::INDEX`]
    pub const INDEX: usize = WORDS + word::INDEX as usize;

    /// It neither waits nor is in the order.
    pub const IDLE: u64 = 0;
    /// It is in the order. No time is so late.
    pub const IN_ORDER: u64 = 1 << 63;
}

/// A line without packets: no first and no last. And an order without partitions.
pub const NO_PACKETS: u64 = u64::MAX;
/// Words that the queue keeps of a packet.
pub const KEPT: usize = 1;
/// Of a packet: its neighbours in the line, [`paired`], or the next place that is free.
pub const LINK: usize = 0;
/// Words for handlers in the first line of a packet.
pub const SEEN_IN_HEAD: usize = LINE_WORDS - KEPT;

/// Two numbers in a word.
#[inline(always)]
pub const fn pair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The word of two numbers.
#[inline(always)]
pub const fn paired(a: u32, b: u32) -> u64 {
    (a as u64) | (b as u64) << 32
}

/// Lines of the record of a node or a partition, of which handlers see so many words.
pub const fn record_lines(n_seen: usize) -> usize {
    (kept::WORDS + n_seen).div_ceil(LINE_WORDS)
}

impl Level {
    /// Words of a node that handlers see.
    pub fn node_words(&self) -> usize {
        usize::from(word::NODE_VARS) + self.vars.len()
    }

    /// Words of a partition that handlers see.
    pub fn partition_words(&self) -> usize {
        usize::from(word::PARTITION_VARS) + self.partition_vars.len()
    }
}

impl QueueProgram {
    /// Lines of a packet.
    pub fn packet_lines(&self) -> usize {
        (KEPT + usize::from(word::FIELDS) + self.fields.len()).div_ceil(LINE_WORDS)
    }
}
