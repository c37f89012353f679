//! A ranked container for ranks of few bits: one list per rank, and a bitmap of the lists that are not empty.

use super::{NONE, RankSlots};
use crate::queue::layout::{pair, paired};
use weft_ir::queue::RANK_BITS_MAX;

/// One list per rank, with its first and last id: an arrival touches the last, and the first leaves without access to
/// others. The links of the first and last id may name ids that have left.
#[derive(Clone, Debug)]
pub(in super::super) struct Buckets {
    /// The entry of an empty list is stale.
    lists: Box<[u64]>,
    /// Bitmaps: the lists that are not empty, the words of `low` that are not zero, and the words of those.
    low: Box<[u64]>,
    middle: Box<[u64]>,
    top: u64,
}

// Three bitmaps cover that many bits.
const _: () = assert!(RANK_BITS_MAX <= 18);

impl Buckets {
    /// Creates empty lists for ranks of that many bits.
    pub(super) fn new(bits: u8) -> Self {
        let n = 1_usize << bits.min(RANK_BITS_MAX);
        let words = |n: usize| vec![0; n.div_ceil(64)].into_boxed_slice();
        let low = words(n);
        Self { lists: vec![0; n].into(), middle: words(low.len()), low, top: 0 }
    }

    #[inline(always)]
    pub(super) fn list(&self, rank: i64) -> usize {
        rank.clamp(0, self.lists.len() as i64 - 1) as usize
    }

    /// Returns the first list that is not empty.
    #[inline(always)]
    fn first(&self) -> Option<usize> {
        (self.top != 0).then(|| {
            let word = self.top.trailing_zeros() as usize;
            let word = word * 64 + self.middle[word].trailing_zeros() as usize;
            word * 64 + self.low[word].trailing_zeros() as usize
        })
    }

    /// Returns the last list that is not empty.
    fn last(&self) -> Option<usize> {
        let highest = |word: u64| 63 - word.leading_zeros() as usize;
        (self.top != 0).then(|| {
            let word = highest(self.top);
            let word = word * 64 + highest(self.middle[word]);
            word * 64 + highest(self.low[word])
        })
    }

    /// The first id.
    pub(super) fn first_id(&self) -> Option<u32> {
        self.first().map(|list| pair(self.lists[list]).0)
    }

    /// The first id of the last list.
    pub(super) fn first_of_last(&self) -> Option<u32> {
        self.last().map(|list| pair(self.lists[list]).0)
    }

    /// The last id of the last list.
    pub(super) fn last_of_last(&self) -> Option<u32> {
        self.last().map(|list| pair(self.lists[list]).1)
    }

    /// Appends an id to a list.
    #[inline(always)]
    pub(super) fn append(&mut self, list: usize, id: u32, places: &mut impl RankSlots) {
        let word = &mut self.low[list / 64];
        let (known, bit) = (*word, 1 << (list % 64));
        if known & bit != 0 {
            let (first, last) = pair(self.lists[list]);
            self.lists[list] = paired(first, id);
            places.set_links(id, (last, NONE));
            let (before, _) = places.links(last);
            places.set_links(last, (before, id));
            return;
        }
        // The last id of the list is not touched: it may not be cached.
        *word = known | bit;
        if known == 0 {
            self.middle[list >> 12] |= 1 << (list >> 6 & 63);
            self.top |= 1 << (list >> 12);
        }
        self.lists[list] = paired(id, id);
        places.set_links(id, (NONE, NONE));
    }

    /// Adds an id in front of a list.
    pub(super) fn prepend(&mut self, list: usize, id: u32, places: &mut impl RankSlots) {
        if self.low[list / 64] & 1 << (list % 64) == 0 {
            return self.append(list, id, places);
        }
        let (first, last) = pair(self.lists[list]);
        self.lists[list] = paired(id, last);
        places.set_links(id, (NONE, first));
        places.set_links(first, (id, places.links(first).1));
    }

    /// Removes an id from its list.
    #[inline(always)]
    pub(super) fn unlink(&mut self, list: usize, id: u32, places: &mut impl RankSlots) {
        let (first, last) = pair(self.lists[list]);
        let (before, next) = places.links(id);
        self.lists[list] = match (id == first, id == last) {
            (true, true) => return self.clear(list),
            (true, false) => paired(next, last),
            (false, true) => paired(first, before),
            (false, false) => {
                places.set_links(next, (before, places.links(next).1));
                paired(first, last)
            }
        };
        if id != first {
            places.set_links(before, (places.links(before).0, next));
        }
    }

    /// Moves an id to the tail of its list.
    pub(super) fn move_to_tail(&mut self, list: usize, id: u32, places: &mut impl RankSlots) {
        if pair(self.lists[list]).1 != id {
            self.unlink(list, id, places);
            self.append(list, id, places);
        }
    }

    /// Marks a list as empty in all levels of the bitmap.
    #[inline(always)]
    fn clear(&mut self, list: usize) {
        let word = &mut self.low[list / 64];
        *word &= !(1 << (list % 64));
        if *word == 0 {
            let word = &mut self.middle[list >> 12];
            *word &= !(1 << (list >> 6 & 63));
            if *word == 0 {
                self.top &= !(1 << (list >> 12));
            }
        }
    }

    /// Removes the first id of the first list that is not empty.
    #[inline(always)]
    pub(super) fn pop(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        let list = self.first()?;
        let (first, last) = pair(self.lists[list]);
        if first == last {
            self.clear(list);
        } else {
            self.lists[list] = paired(places.links(first).1, last);
        }
        Some(first)
    }

    /// Returns all ids, first to last.
    pub(super) fn ids(&self, places: &impl RankSlots) -> Vec<u32> {
        let mut ids = Vec::new();
        for (nth, word) in self.low.iter().enumerate().filter(|(_, word)| **word != 0) {
            for bit in (0..64).filter(|bit| word >> bit & 1 == 1) {
                let (mut at, last) = pair(self.lists[nth * 64 + bit]);
                while at != last {
                    ids.push(at);
                    at = places.links(at).1;
                }
                ids.push(last);
            }
        }
        ids
    }
}
