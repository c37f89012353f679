//! An id under its rank.

use super::super::packets::LINES_MAX;
use core::cmp::Ordering;
use core::hint::select_unpredictable;
use weft_ir::queue::{PACKETS_MAX, PARTITIONS_MAX};

/// An id and its rank, as two words: the rank; and a number of those that came, so that ties are as they came, with the
/// id behind it. Two are compared as one number of two words, and four lie in a line of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) rank: u64,
    pub(super) came: u64,
}

/// Bits of an id: more than partitions there may be, or lines of packets.
const ID_BITS: u32 = 24;
/// Numbers for those that came, after which they are given anew. The last is nobody's: see [`NOBODY`].
pub(super) const SEQS: u64 = (1 << (64 - ID_BITS)) - 1;
/// Ids from here on are nobody's: containers name what they like by them.
pub(super) const IDS: u32 = (1 << ID_BITS) - 64;
const _: () = assert!(PACKETS_MAX as usize * LINES_MAX < IDS as usize && PARTITIONS_MAX < IDS);

/// The number of one that was the first and is so again: before all of its rank, none of which may have it, too.
pub(super) const BACK: u64 = 1;
/// The first number of those that come.
pub(super) const FIRST_SEQ: u64 = 2;
/// Less than all entries.
pub(super) const HOLE: Entry = Entry { rank: 0, came: 0 };
/// More than all entries, with an id of 0.
pub(super) const NOBODY: Entry = Entry { rank: u64::MAX, came: u64::MAX << ID_BITS };

impl Entry {
    #[inline(always)]
    pub(super) fn new(rank: i64, seq: u64, id: u32) -> Self {
        Self { rank: rank as u64 ^ 1 << 63, came: seq << ID_BITS | u64::from(id) }
    }

    #[inline(always)]
    pub(super) fn id(self) -> u32 {
        self.came as u32 & ((1 << ID_BITS) - 1)
    }

    /// The same with another id.
    #[inline(always)]
    pub(super) fn with_id(self, id: u32) -> Self {
        Self { came: self.came >> ID_BITS << ID_BITS | u64::from(id), ..self }
    }

    #[inline(always)]
    fn as_one(self) -> u128 {
        u128::from(self.rank) << 64 | u128::from(self.came)
    }

    /// The less of two. Which one it is cannot be foretold: no branch is taken for it.
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

/// Gives entries, from first to last, the numbers from the first on; and the next number.
pub(super) fn count_anew<'e>(entries: impl IntoIterator<Item = &'e mut Entry>) -> u64 {
    let mut next_seq = FIRST_SEQ;
    for known in entries {
        known.came = next_seq << ID_BITS | u64::from(known.id());
        next_seq += 1;
    }
    next_seq
}

/// The first of the ids under the highest rank.
pub(super) fn first_of_last(entries: impl Iterator<Item = Entry> + Clone) -> Option<u32> {
    let highest = entries.clone().map(|known| known.rank).max()?;
    entries.filter(|known| known.rank == highest).min().map(Entry::id)
}

/// The ids of entries, first to last.
pub(super) fn ids_in_order(entries: impl Iterator<Item = Entry>) -> impl Iterator<Item = u32> {
    let mut entries: Vec<Entry> = entries.collect();
    entries.sort_unstable();
    entries.into_iter().map(Entry::id)
}
