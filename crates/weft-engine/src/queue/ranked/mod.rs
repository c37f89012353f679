//! The ranked container: orders small ids (partitions of a node, or packets of a list) by rank, equal ranks by arrival.
//!
//! For ranks of few bits there is one list per rank, and a tree of bitmaps finds the first list that is not empty: no
//! step depends on the number of ids. Wider ranks use a heap of sorted runs. The state per id is with its owner
//! ([`RankSlots`]): packets and partitions have room for it in their words.

mod buckets;
mod entry;
mod runs;
mod sort;

use crate::queue::layout::NONE;
use buckets::Buckets;
use entry::Entry;
use runs::Runs;

/// The container. The variants are matched at every turn.
#[derive(Clone, Debug)]
#[repr(u8)]
pub(super) enum Ranked {
    Buckets(Buckets),
    Runs(Runs),
}

/// The state per id: one word, and its rank. The owner of the ids stores both.
pub(super) trait RankSlots {
    /// Whether ids leave from anywhere and change their ranks. Others leave as the first or the last.
    const MOVES: bool;
    /// The neighbours in the list of a rank, or the position in a heap.
    fn links(&self, id: u32) -> (u32, u32);
    /// Sets both.
    fn set_links(&mut self, id: u32, links: (u32, u32));
    /// The rank of an id in the container.
    fn rank(&self, id: u32) -> i64;
    /// Sets the rank.
    fn set_rank(&mut self, id: u32, rank: i64);
    /// Announces an id that will soon be the first.
    #[inline(always)]
    fn expect(&mut self, _id: u32) {}
}

impl Ranked {
    /// Creates a container for ranks of that many bits, or for all.
    pub(super) fn new(bits: Option<u8>) -> Self {
        bits.map_or_else(|| Self::Runs(Runs::default()), |bits| Self::Buckets(Buckets::new(bits)))
    }

    /// Adds an id behind those of its rank. It must not be in the container.
    #[inline]
    pub(super) fn insert(&mut self, id: u32, rank: i64, places: &mut impl RankSlots) {
        places.set_rank(id, rank);
        match self {
            Self::Buckets(buckets) => buckets.append(buckets.list(rank), id, places),
            Self::Runs(runs) => runs.push(rank, id, places),
        }
    }

    /// Puts an id that was taken as the first back in front of its rank. It must not be in the container.
    pub(super) fn put_back(&mut self, id: u32, rank: i64, places: &mut impl RankSlots) {
        places.set_rank(id, rank);
        match self {
            Self::Buckets(buckets) => buckets.prepend(buckets.list(rank), id, places),
            Self::Runs(runs) => runs.put_back(rank, id, places),
        }
    }

    /// Removes an id.
    #[inline]
    pub(super) fn remove(&mut self, id: u32, places: &mut impl RankSlots) {
        match self {
            Self::Buckets(buckets) => buckets.unlink(buckets.list(places.rank(id)), id, places),
            Self::Runs(runs) => runs.remove(id, places),
        }
    }

    /// Removes the first id.
    #[inline(always)]
    pub(super) fn pop(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        match self {
            Self::Buckets(buckets) => buckets.pop(places),
            Self::Runs(runs) => runs.pop(places),
        }
    }

    /// Moves an id behind those of its new rank.
    #[inline(never)]
    pub(super) fn move_to(&mut self, id: u32, rank: i64, places: &mut impl RankSlots) {
        match self {
            Self::Buckets(buckets) => {
                let (from, to) = (buckets.list(places.rank(id)), buckets.list(rank));
                if from == to {
                    buckets.move_to_tail(to, id, places);
                } else {
                    buckets.unlink(from, id, places);
                    buckets.append(to, id, places);
                }
            }
            Self::Runs(runs) => runs.move_to(rank, id, places),
        }
        places.set_rank(id, rank);
    }

    /// Moves an id behind those of its new rank, if its position changes.
    #[inline(always)]
    pub(super) fn rerank(&mut self, id: u32, rank: i64, places: &mut impl RankSlots) {
        if self.would_move(id, rank, places) {
            self.move_to(id, rank, places);
        }
    }

    /// Whether an id's position changes with this rank.
    #[inline]
    pub(super) fn would_move(&self, id: u32, rank: i64, places: &impl RankSlots) -> bool {
        let known = places.rank(id);
        known != rank
            && match self {
                Self::Buckets(buckets) => buckets.list(known) != buckets.list(rank),
                Self::Runs(_) => true,
            }
    }

    /// Returns the first id.
    #[inline(always)]
    pub(super) fn first(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        match self {
            Self::Buckets(buckets) => buckets.first_id(),
            Self::Runs(runs) => runs.first(places),
        }
    }

    /// Returns the first id of the highest rank.
    pub(super) fn first_of_last(&self) -> Option<u32> {
        match self {
            Self::Buckets(buckets) => buckets.first_of_last(),
            Self::Runs(runs) => runs.first_of_last(),
        }
    }

    /// Returns the last id of the highest rank.
    #[cold]
    pub(super) fn last(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        match self {
            Self::Buckets(buckets) => buckets.last_of_last(),
            Self::Runs(runs) => runs.last(places),
        }
    }

    /// Returns all ids, first to last.
    pub(super) fn ids(&self, places: &impl RankSlots) -> Vec<u32> {
        match self {
            Self::Buckets(buckets) => buckets.ids(places),
            Self::Runs(runs) => runs.in_order().into_iter().map(Entry::id).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::entry::SEQS;
    use super::{NONE, RankSlots, Ranked};
    use std::collections::BTreeMap;
    use weft_core::rng::Rng;

    /// RankSlots for ids from 0 on.
    struct Table<const MOVES: bool>(Vec<RankSlot>);

    #[derive(Clone, Copy, Debug)]
    struct RankSlot {
        rank: i64,
        links: (u32, u32),
    }

    impl<const MOVES: bool> Table<MOVES> {
        fn new(n: usize) -> Self {
            Self(vec![RankSlot { rank: 0, links: (NONE, NONE) }; n])
        }
    }

    impl<const MOVES: bool> RankSlots for Table<MOVES> {
        const MOVES: bool = MOVES;

        fn links(&self, id: u32) -> (u32, u32) {
            self.0[id as usize].links
        }

        fn set_links(&mut self, id: u32, links: (u32, u32)) {
            self.0[id as usize].links = links;
        }

        fn rank(&self, id: u32) -> i64 {
            self.0[id as usize].rank
        }

        fn set_rank(&mut self, id: u32, rank: i64) {
            self.0[id as usize].rank = rank;
        }
    }

    /// If this fails, partitions are served out of order: the container differs from a sorted map.
    #[test]
    fn ranked_is_a_stable_sorted_map() {
        matches_sorted_map::<true>();
        matches_sorted_map::<false>();
    }

    fn matches_sorted_map<const MOVES: bool>() {
        for bits in [Some(0), Some(1), Some(6), Some(7), Some(13), Some(18), None] {
            let mut ranked = Ranked::new(bits);
            let (mut rng, mut places) = (Rng::from_seed(7), Table::<MOVES>::new(200));
            let mut known: BTreeMap<(i64, u64), u32> = BTreeMap::new();
            let mut at: Vec<Option<(i64, u64)>> = vec![None; 200];
            for seq in 0..20_000_u64 {
                if let Ranked::Runs(runs) = &mut ranked
                    && seq % 500 == 0
                {
                    // Sequence numbers run out soon.
                    runs.next_seq = SEQS - 20;
                }
                let id = rng.below(200) as u32;
                // Equal ranks, the least and the greatest, rising ones as of clocks, and any.
                let given = match rng.below(8) {
                    0..2 => rng.below(3) as i64,
                    2 => rng.pick(&[i64::MIN, i64::MIN + 1, -1, (1 << 18) - 1, 1 << 18, i64::MAX]),
                    3..5 => seq as i64,
                    _ => rng.below(1 << 14) as i64 - 100,
                };
                let rank = bits.map_or(given, |bits| given.clamp(0, (1 << bits) - 1));
                match at[id as usize].take() {
                    Some(key) => {
                        let (mut id, mut key) = (id, key);
                        if !MOVES {
                            // Only the first and the last leave.
                            at[id as usize] = Some(key);
                            let end = [ranked.first(&mut places), ranked.last(&mut places)][rng.below(2)];
                            id = end.expect("there is one");
                            key = at[id as usize].take().expect("it is in the container");
                        }
                        known.remove(&key);
                        if !MOVES || rng.below(2) == 0 {
                            ranked.remove(id, &mut places);
                            if rng.below(2) == 0 {
                                // The first leaves, the most frequent case.
                                let first = known.pop_first();
                                assert_eq!(
                                    ranked.pop(&mut places),
                                    first.map(|(_, id)| id),
                                    "{bits:?} at {seq}"
                                );
                                if let Some((key, id)) = first {
                                    at[id as usize] = None;
                                    if rng.below(2) == 0 {
                                        // It comes back, in front of those of its rank.
                                        ranked.put_back(id, places.rank(id), &mut places);
                                        known.insert(key, id);
                                        at[id as usize] = Some(key);
                                    }
                                }
                            }
                            if seq % 50 == 0 {
                                assert_eq!(ranked.ids(&places), known.values().copied().collect::<Vec<_>>());
                            }
                            continue;
                        }
                        assert!(!ranked.would_move(id, places.rank(id), &places));
                        ranked.move_to(id, given, &mut places);
                    }
                    None => ranked.insert(id, given, &mut places),
                }
                assert_eq!(places.rank(id), given);
                known.insert((rank, seq), id);
                at[id as usize] = Some((rank, seq));
                assert_eq!(ranked.first(&mut places), known.values().next().copied(), "{bits:?} at {seq}");
                let highest = known.keys().next_back().map(|(rank, _)| *rank);
                let last = known.iter().find(|((rank, _), _)| Some(*rank) == highest).map(|(_, id)| *id);
                assert_eq!(ranked.first_of_last(), last, "{bits:?} at {seq}");
                if rng.percent(30) {
                    assert_eq!(
                        ranked.last(&mut places),
                        known.values().next_back().copied(),
                        "{bits:?} at {seq}"
                    );
                }
            }
        }
    }

    /// If this fails, packets of bursts leave out of order: packets that arrive together are sorted differently from
    /// single ones.
    #[test]
    fn burst_leaves_in_rank_order() {
        const N: u32 = 100_000;
        for bits in [Some(0), Some(5), Some(18), None] {
            let (mut ranked, mut places) = (Ranked::new(bits), Table::<false>::new(N as usize));
            let mut rng = Rng::from_seed(3);
            let mut free: Vec<u32> = (0..N).collect();
            let mut known: BTreeMap<(i64, u64), u32> = BTreeMap::new();
            let mut seq = 0;
            for burst in [5, 300, 90_000, 40, 2_000, 30_000] {
                for _ in 0..burst.min(free.len()) {
                    let (id, given) = (free.swap_remove(rng.below(free.len())), rng.below(1 << 19) as i64);
                    ranked.insert(id, given, &mut places);
                    seq += 1;
                    known.insert((bits.map_or(given, |bits| given.min((1 << bits) - 1)), seq), id);
                }
                assert_eq!(ranked.first(&mut places), known.values().next().copied(), "{bits:?} of {burst}");
                for nth in 0..burst * 2 / 3 {
                    let first = known.pop_first().map(|(_, id)| id);
                    assert_eq!(ranked.pop(&mut places), first, "{bits:?} of {burst} at {nth}");
                    free.extend(first);
                }
                // An id in the middle leaves, if it has neighbours.
                if bits.is_some()
                    && let Some((key, id)) = known.iter().nth(known.len() / 2).map(|(key, id)| (*key, *id))
                {
                    ranked.remove(id, &mut places);
                    known.remove(&key);
                    free.push(id);
                }
                // The container is full for a while: the last id leaves for each arrival, and the first now and then.
                for nth in 0..burst / 2 {
                    if let Some(id) = free.pop() {
                        let given = rng.below(1 << 19) as i64;
                        ranked.insert(id, given, &mut places);
                        seq += 1;
                        known.insert((bits.map_or(given, |bits| given.min((1 << bits) - 1)), seq), id);
                    }
                    let last = known.pop_last().map(|(_, id)| id);
                    assert_eq!(ranked.last(&mut places), last, "{bits:?} of {burst} at {nth}");
                    last.into_iter().for_each(|id| ranked.remove(id, &mut places));
                    free.extend(last);
                    if rng.percent(30) {
                        let first = known.pop_first().map(|(_, id)| id);
                        assert_eq!(ranked.pop(&mut places), first, "{bits:?} of {burst} at {nth}, full");
                        free.extend(first);
                    }
                }
                assert_eq!(
                    ranked.first(&mut places),
                    known.values().next().copied(),
                    "{bits:?} of {burst}, full"
                );
                assert_eq!(ranked.ids(&places), known.values().copied().collect::<Vec<_>>());
            }
        }
    }
}
