//! The scheduling order of a node's partitions if there are at most two ranks: one FIFO list per rank.
//!
//! The owner keeps the first ids of both lists in one word, next to the data that it uses at the same time.

use super::{NONE, RankSlots};
use crate::queue::layout::{pair, paired};

/// The order of ids with at most two ranks. The owner's word holds the first id of the low rank and of the high one,
/// [`paired`].
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct TwoRanks {
    /// 0 or 1.
    highest: i64,
}

impl TwoRanks {
    /// The order for ranks of that many bits, if there are at most two.
    pub(in super::super) fn of(bits: Option<u8>) -> Option<Self> {
        bits.filter(|bits| *bits <= 1).map(|bits| Self { highest: bits.into() })
    }

    /// Adds an id behind those of its rank. It must not be in the order.
    #[inline]
    pub(in super::super) fn insert(self, firsts: &mut u64, id: u32, rank: i64, places: &mut impl RankSlots) {
        places.set_rank(id, rank);
        self.change(firsts, rank, |list| append(list, id, places));
    }

    /// Removes an id.
    #[inline]
    pub(in super::super) fn remove(self, firsts: &mut u64, id: u32, places: &mut impl RankSlots) {
        self.change(firsts, places.rank(id), |list| unlink(list, id, places));
    }

    /// Moves an id to the tail of the list of its new rank.
    #[inline(never)]
    pub(in super::super) fn move_to(self, firsts: &mut u64, id: u32, rank: i64, places: &mut impl RankSlots) {
        if self.would_move(id, rank, places) {
            self.remove(firsts, id, places);
            self.insert(firsts, id, rank, places);
        } else {
            self.change(firsts, rank, |list| move_to_tail(list, id, places));
            places.set_rank(id, rank);
        }
    }

    /// Moves an id to the tail of the list of its new rank, if that is another list.
    #[inline(always)]
    pub(in super::super) fn rerank(self, firsts: &mut u64, id: u32, rank: i64, places: &mut impl RankSlots) {
        if self.would_move(id, rank, places) {
            self.move_to(firsts, id, rank, places);
        }
    }

    /// Gives the head id a new rank and moves it to the tail of that rank's list.
    #[inline(always)]
    pub(in super::super) fn rotate(self, firsts: &mut u64, id: u32, rank: i64, places: &mut impl RankSlots) {
        if places.rank(id) == rank {
            let (_, next) = places.links(id);
            self.change(firsts, rank, |list| *list = next);
        } else {
            self.move_to(firsts, id, rank, places);
        }
    }

    /// Whether an id's position changes with this rank.
    fn would_move(self, id: u32, rank: i64, places: &impl RankSlots) -> bool {
        self.is_high(places.rank(id)) != self.is_high(rank)
    }

    /// The first id.
    #[inline(always)]
    pub(in super::super) fn first(firsts: u64) -> Option<u32> {
        let (low, high) = pair(firsts);
        present(if low == NONE { high } else { low })
    }

    /// The first id of the highest rank.
    pub(in super::super) fn first_of_last(firsts: u64) -> Option<u32> {
        let (low, high) = pair(firsts);
        present(high).or(present(low))
    }

    /// All ids, first to last.
    pub(in super::super) fn ids(firsts: u64, places: &impl RankSlots) -> Vec<u32> {
        let (low, high) = pair(firsts);
        let mut ids = Vec::new();
        collect_ids(low, places, &mut ids);
        collect_ids(high, places, &mut ids);
        ids
    }

    #[inline(always)]
    fn is_high(self, rank: i64) -> bool {
        rank >= 1 && self.highest >= 1
    }

    /// Changes the list of a rank.
    #[inline(always)]
    fn change(self, firsts: &mut u64, rank: i64, how: impl FnOnce(&mut List)) {
        let (mut low, mut high) = pair(*firsts);
        how(if self.is_high(rank) { &mut high } else { &mut low });
        *firsts = paired(low, high);
    }
}

// ---- a list --------------------------------------------------------------------------------------------------------

/// An id, if there is one.
#[inline(always)]
fn present(id: u32) -> Option<u32> {
    (id != NONE).then_some(id)
}

/// A list, by its first id. Lists are rings, so that the first becomes the last in one step.
type List = u32;

/// Appends an id to a list.
#[inline(always)]
fn append(list: &mut List, id: u32, places: &mut impl RankSlots) {
    let first = *list;
    if first == NONE {
        places.set_links(id, (id, id));
        *list = id;
        return;
    }
    let (last, second) = places.links(first);
    places.set_links(id, (last, first));
    if last == first {
        places.set_links(first, (id, id));
        return;
    }
    places.set_links(first, (id, second));
    let (before, _) = places.links(last);
    places.set_links(last, (before, id));
}

/// Removes an id from its list.
#[inline(always)]
fn unlink(list: &mut List, id: u32, places: &mut impl RankSlots) {
    let (prev, next) = places.links(id);
    if next == id {
        *list = NONE;
        return;
    }
    // Both may be the same id.
    let (before, _) = places.links(prev);
    places.set_links(prev, (before, next));
    let (_, behind) = places.links(next);
    places.set_links(next, (prev, behind));
    if *list == id {
        *list = next;
    }
}

/// Moves an id to the tail of its list.
#[inline(always)]
fn move_to_tail(list: &mut List, id: u32, places: &mut impl RankSlots) {
    if *list == id {
        *list = places.links(id).1;
    } else if places.links(*list).0 != id {
        unlink(list, id, places);
        append(list, id, places);
    }
}

/// Collects all ids of a list.
fn collect_ids(list: List, places: &impl RankSlots, ids: &mut Vec<u32>) {
    let mut at = list;
    while at != NONE {
        ids.push(at);
        let next = places.links(at).1;
        at = if next == list { NONE } else { next };
    }
}
