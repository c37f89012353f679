//! Entries of a ranked container: an id with its rank and its position among equal ranks, comparable as one number.

use super::super::packets::LINES_MAX;
use core::cmp::Ordering;
use core::hint::select_unpredictable;
use weft_ir::queue::{PACKETS_MAX, PARTITIONS_MAX};

/// An id and its rank, as two words: the rank, and a sequence number with the id below it, so that ties are in order of
/// arrival. Entries compare as one number of two words, and a cache line has four.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) rank: u64,
    pub(super) came: u64,
}

/// Bits of an id: more than there may be partitions, or cache lines of packets.
const ID_BITS: u32 = 24;
/// Sequence numbers; after the last one they are assigned anew. The very last is reserved: see [`NO_ENTRY`].
pub(super) const SEQS: u64 = (1 << (64 - ID_BITS)) - 1;
/// Ids from here on are reserved: containers use them for their own purposes.
pub(super) const IDS: u32 = (1 << ID_BITS) - 64;
const _: () = assert!(PACKETS_MAX as usize * LINES_MAX < IDS as usize && PARTITIONS_MAX < IDS);

/// The sequence number of an id that was put back as the first. At most one id of a rank may have it.
pub(super) const BACK: u64 = 1;
/// The first regular sequence number.
pub(super) const FIRST_SEQ: u64 = 2;
/// Less than all entries.
pub(super) const HOLE: Entry = Entry { rank: 0, came: 0 };
/// Greater than all entries, with an id of 0.
pub(super) const NO_ENTRY: Entry = Entry { rank: u64::MAX, came: u64::MAX << ID_BITS };

impl Entry {
    #[inline(always)]
    pub(super) fn new(rank: i64, seq: u64, id: u32) -> Self {
        Self { rank: rank as u64 ^ 1 << 63, came: seq << ID_BITS | u64::from(id) }
    }

    #[inline(always)]
    pub(super) fn id(self) -> u32 {
        self.came as u32 & ((1 << ID_BITS) - 1)
    }

    /// The same entry with another sequence number.
    pub(super) fn with_seq(self, seq: u64) -> Self {
        Self { came: seq << ID_BITS | u64::from(self.id()), ..self }
    }

    /// The same entry with another id.
    #[inline(always)]
    pub(super) fn with_id(self, id: u32) -> Self {
        Self { came: self.came >> ID_BITS << ID_BITS | u64::from(id), ..self }
    }

    #[inline(always)]
    fn as_one(self) -> u128 {
        u128::from(self.rank) << 64 | u128::from(self.came)
    }

    /// Returns the lesser of two entries. The branch predictor cannot foresee it, so there is no branch.
    #[inline(always)]
    pub(super) fn less(self, other: Self) -> Self {
        let is_other = other < self;
        Self {
            rank: select_unpredictable(is_other, other.rank, self.rank),
            came: select_unpredictable(is_other, other.came, self.came),
        }
    }
}

impl PartialOrd for Entry {
    #[inline(always)]
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }

    #[inline(always)]
    fn lt(&self, other: &Self) -> bool {
        self.as_one() < other.as_one()
    }
}

impl Ord for Entry {
    #[inline(always)]
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_one().cmp(&other.as_one())
    }
}
