//! A ranked container as a tournament tree: an entry's path to the top is known in advance.
//!
//! Each entry has a leaf. The lesser of two leaves plays against that of the next two, and so on up to the first of
//! all. When a leaf changes, the entries beside its path are loaded independently, and no branch depends on them. A
//! path through a heap has half as many steps, but each depends on the one before. Only the owner of a leaf moves, so a
//! place is written once, when an id arrives. If the first leaves and another arrives before the next lookup, the new
//! one takes its leaf, and one path up serves both.

use super::entry::{self, BACK, Entry, FIRST_SEQ, HOLE, NO_ENTRY, SEQS};
use super::{NONE, RankSlots};
use weft_ir::queue::PARTITIONS_MAX;

/// Two opponents, in one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Pair([Entry; 2]);

impl Pair {
    #[inline(always)]
    fn less(&self) -> Entry {
        let [a, b] = self.0;
        a.less(b)
    }
}

/// An entry on its way up, and the side of the pair that it goes to.
struct PathStep {
    pair: usize,
    side: usize,
    least: Entry,
}

/// The length of the longest path, in pairs.
const WAY_MAX: u32 = 20;
const _: () = assert!(PARTITIONS_MAX <= 1 << WAY_MAX);

/// There is no further free leaf.
const NO_LEAF: u32 = entry::IDS;

/// A container for ids that change their ranks, or leave from anywhere.
#[derive(Clone, Debug)]
pub(in super::super) struct Tournament {
    /// The lesser of pair `n` is in pair `n / 2`, on the side given by whether `n` is odd. The first of all would be in
    /// pair 0, which stays empty. The second half are leaves.
    pairs: Vec<Pair>,
    /// The first of all. A [`HOLE`] if it has left and no id has arrived or was looked up since: its leaf is the next
    /// free one, and the pairs above still hold it.
    first: Entry,
    /// A free leaf: its entry is reserved, and has the next free leaf as its id.
    free: u32,
    /// The next sequence number.
    pub(super) next_seq: u64,
}

impl Default for Tournament {
    fn default() -> Self {
        Self { pairs: Vec::new(), first: NO_ENTRY, free: NO_LEAF, next_seq: FIRST_SEQ }
    }
}

impl Tournament {
    /// Creates an entry with the next sequence number.
    #[inline(always)]
    fn new_entry(&mut self, rank: i64, id: u32) -> Entry {
        if self.next_seq == SEQS {
            self.count_anew();
        }
        self.next_seq += 1;
        Entry::new(rank, self.next_seq - 1, id)
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, rank: i64, id: u32, places: &mut impl RankSlots) {
        let new = self.new_entry(rank, id);
        self.add_entry(new, id, places);
    }

    /// Puts an id that was the first back in front of its rank.
    pub(super) fn put_back(&mut self, rank: i64, id: u32, places: &mut impl RankSlots) {
        self.add_entry(Entry::new(rank, BACK, id), id, places);
    }

    /// Puts an entry into a free leaf.
    #[inline(always)]
    fn add_entry(&mut self, new: Entry, id: u32, places: &mut impl RankSlots) {
        if self.free == NO_LEAF {
            self.grow();
        }
        let leaf = self.free;
        self.free = self.leaf_mut(leaf).id();
        places.set_links(id, (leaf, NONE));
        self.set_leaf(leaf, new);
    }

    /// Removes an id. If it is the first of all, the next arrival or lookup repairs its path.
    #[inline(always)]
    pub(super) fn remove(&mut self, id: u32, places: &impl RankSlots) {
        let leaf = places.links(id).0;
        if self.has_hole() || self.first.id() != id {
            self.repair_path();
            let free = self.take_back(leaf);
            return self.set_leaf(leaf, free);
        }
        // The next arrival or lookup repairs the path.
        *self.leaf_mut(leaf) = self.take_back(leaf);
        self.first = HOLE;
    }

    /// Moves an id behind those of its new rank.
    #[inline(always)]
    pub(super) fn move_to(&mut self, rank: i64, id: u32, places: &impl RankSlots) {
        self.repair_path();
        let new = self.new_entry(rank, id);
        self.set_leaf(places.links(id).0, new);
    }

    #[inline(always)]
    pub(super) fn first(&mut self) -> Option<u32> {
        self.repair_path();
        (self.first < NO_ENTRY).then(|| self.first.id())
    }

    /// All entries, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        let leaves = self.pairs[self.pairs.len() / 2..].iter().flat_map(|pair| pair.0);
        leaves.filter(|known| *known < NO_ENTRY)
    }

    #[inline(always)]
    fn has_hole(&self) -> bool {
        self.first == HOLE
    }

    /// Repairs the path from the leaf of the former first entry, if it was removed.
    #[inline(always)]
    fn repair_path(&mut self) {
        if self.has_hole() {
            let hole = *self.leaf_mut(self.free);
            self.set_leaf(self.free, hole);
        }
    }

    /// The pair and the side of a leaf.
    #[inline(always)]
    fn leaf_position(&self, leaf: u32) -> (usize, usize) {
        let place = self.pairs.len() + leaf as usize;
        (place / 2, place % 2)
    }

    #[inline(always)]
    fn leaf_mut(&mut self, leaf: u32) -> &mut Entry {
        let (pair, side) = self.leaf_position(leaf);
        &mut self.pairs[pair].0[side]
    }

    /// Frees a leaf, which becomes the next free one; returns its new content.
    #[inline(always)]
    fn take_back(&mut self, leaf: u32) -> Entry {
        NO_ENTRY.with_id(core::mem::replace(&mut self.free, leaf))
    }

    /// Puts an entry into a leaf and plays its path.
    #[inline(never)]
    fn set_leaf(&mut self, leaf: u32, new: Entry) {
        let (pair, side) = self.leaf_position(leaf);
        self.play_all(PathStep { pair, side, least: new });
    }

    /// Plays the path of an entry to the top. Unrolled: in a loop the compiler uses branches, which cannot be
    /// predicted.
    #[inline(always)]
    fn play_all(&mut self, up: PathStep) -> Option<PathStep> {
        let up = self.play_five(up)?;
        let up = self.play_five(up)?;
        let up = self.play_five(up)?;
        self.play_five(up)
    }

    /// Plays five pairs of a path.
    #[inline(always)]
    fn play_five(&mut self, up: PathStep) -> Option<PathStep> {
        let up = self.play(up)?;
        let up = self.play(up)?;
        let up = self.play(up)?;
        let up = self.play(up)?;
        self.play(up)
    }

    /// Puts an entry into a pair; returns what goes up from there, unless that is the first of all.
    #[inline(always)]
    fn play(&mut self, PathStep { pair, side, least }: PathStep) -> Option<PathStep> {
        let two = &mut self.pairs[pair].0;
        two[side] = least;
        let least = least.less(two[side ^ 1]);
        if pair == 1 {
            self.first = least;
            return None;
        }
        Some(PathStep { pair: pair / 2, side: pair % 2, least })
    }

    /// Doubles the number of leaves.
    #[cold]
    fn grow(&mut self) {
        let known = self.pairs.split_off(self.pairs.len() / 2);
        let n_pairs = (known.len() * 4).max(2);
        let n_known = known.len() as u32 * 2;
        self.pairs.resize(n_pairs / 2, Pair([NO_ENTRY; 2]));
        self.pairs.extend(&known);
        let n_leaves = n_pairs as u32;
        let free = |leaf: u32| NO_ENTRY.with_id(if leaf + 1 == n_leaves { NO_LEAF } else { leaf + 1 });
        let new = (n_known..n_leaves).step_by(2);
        self.pairs.extend(new.map(|leaf| Pair([free(leaf), free(leaf + 1)])));
        self.free = n_known;
        self.play_anew();
    }

    /// Plays all pairs again, from the leaves to the top.
    fn play_anew(&mut self) {
        for pair in (2..self.pairs.len()).rev() {
            self.pairs[pair / 2].0[pair % 2] = self.pairs[pair].less();
        }
        self.first = self.pairs.get(1).map_or(NO_ENTRY, Pair::less);
    }

    /// Assigns the lowest sequence numbers to the entries, in order.
    #[cold]
    fn count_anew(&mut self) {
        let leaves = self.pairs.len() / 2;
        let leaves = self.pairs[leaves..].iter_mut().flat_map(|pair| &mut pair.0);
        let mut leaves: Vec<&mut Entry> = leaves.filter(|known| **known < NO_ENTRY).collect();
        leaves.sort_unstable();
        self.next_seq = entry::count_anew(leaves);
        self.play_anew();
    }
}
