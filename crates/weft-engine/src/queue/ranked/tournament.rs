//! A tournament: what each entry of it has to pass on its way to the first is known before.
//!
//! Each entry has a leaf. The less of two leaves plays against that of the next two, and so on up to the first of all.
//! When a leaf changes, those beside its way are loaded without waiting for one another, and no branch depends on what
//! they are: a way through a heap has half as many steps, each of which has to know where the one before led. Nobody
//! but the owner of a leaf moves, so that a place is written once, as an id comes. Where the first leaves and another
//! comes before anyone asks who is first now, that one takes its leaf, and one way up does for both.

use super::entry::{self, BACK, Entry, FIRST_SEQ, HOLE, NOBODY, SEQS};
use super::{NONE, Places};
use weft_ir::queue::PARTITIONS_MAX;

/// Two that play against each other: in a line of the cache.
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

/// On the way up: an entry that goes to a side of a pair.
struct Up {
    pair: usize,
    side: usize,
    least: Entry,
}

/// Pairs on the longest way.
const WAY_MAX: u32 = 20;
const _: () = assert!(PARTITIONS_MAX <= 1 << WAY_MAX);

/// No further leaf is free.
const NO_LEAF: u32 = entry::IDS;

/// All ranks of those whose ranks change while they are in, or that leave from anywhere.
#[derive(Clone, Debug)]
pub(in super::super) struct Tournament {
    /// The less of pair `n` is in pair `n / 2`, on the side that says whether `n` is odd. The first of all would be in
    /// pair 0, where nobody is. The second half are leaves.
    pairs: Vec<Pair>,
    /// The first of all. A [`HOLE`] while that has left and nobody has come or was asked for since: its leaf is the
    /// next that is free, and the pairs above still have it.
    first: Entry,
    /// A leaf that is free: what stands in it is nobody's, with the next that is free for an id.
    free: u32,
    /// The number of who comes next.
    pub(super) next_seq: u64,
}

impl Default for Tournament {
    fn default() -> Self {
        Self { pairs: Vec::new(), first: NOBODY, free: NO_LEAF, next_seq: FIRST_SEQ }
    }
}

impl Tournament {
    #[inline(always)]
    fn new_entry(&mut self, rank: i64, id: u32) -> Entry {
        if self.next_seq == SEQS {
            self.count_anew();
        }
        self.next_seq += 1;
        Entry::new(rank, self.next_seq - 1, id)
    }

    #[inline(always)]
    pub(super) fn insert(&mut self, rank: i64, id: u32, places: &mut impl Places) {
        let new = self.new_entry(rank, id);
        self.take_in(new, id, places);
    }

    /// Puts an id that was the first before those of its rank.
    pub(super) fn put_back(&mut self, rank: i64, id: u32, places: &mut impl Places) {
        self.take_in(Entry::new(rank, BACK, id), id, places);
    }

    #[inline(always)]
    fn take_in(&mut self, new: Entry, id: u32, places: &mut impl Places) {
        if self.free == NO_LEAF {
            self.grow();
        }
        let leaf = self.free;
        self.free = self.leaf_mut(leaf).id();
        places.set_links(id, (leaf, NONE));
        self.set(leaf, new);
    }

    #[inline(always)]
    pub(super) fn remove(&mut self, id: u32, places: &impl Places) {
        let leaf = places.links(id).0;
        if self.has_hole() || self.first.id() != id {
            self.settle();
            let free = self.take_back(leaf);
            return self.set(leaf, free);
        }
        // Whoever comes next mends the way up.
        *self.leaf_mut(leaf) = self.take_back(leaf);
        self.first = HOLE;
    }

    #[inline(always)]
    pub(super) fn move_to(&mut self, rank: i64, id: u32, places: &impl Places) {
        self.settle();
        let new = self.new_entry(rank, id);
        self.set(places.links(id).0, new);
    }

    #[inline(always)]
    pub(super) fn first(&mut self) -> Option<u32> {
        self.settle();
        (self.first < NOBODY).then(|| self.first.id())
    }

    /// Those that are in, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        let leaves = self.pairs[self.pairs.len() / 2..].iter().flat_map(|pair| pair.0);
        leaves.filter(|known| *known < NOBODY)
    }

    #[inline(always)]
    fn has_hole(&self) -> bool {
        self.first == HOLE
    }

    /// Mends the way up from the leaf of who was the first of all.
    #[inline(always)]
    fn settle(&mut self) {
        if self.has_hole() {
            let hole = *self.leaf_mut(self.free);
            self.set(self.free, hole);
        }
    }

    /// The pair and the side of a leaf.
    #[inline(always)]
    fn place(&self, leaf: u32) -> (usize, usize) {
        let place = self.pairs.len() + leaf as usize;
        (place / 2, place % 2)
    }

    #[inline(always)]
    fn leaf_mut(&mut self, leaf: u32) -> &mut Entry {
        let (pair, side) = self.place(leaf);
        &mut self.pairs[pair].0[side]
    }

    /// Takes a leaf back, which is the next that is free then: what stands in it.
    #[inline(always)]
    fn take_back(&mut self, leaf: u32) -> Entry {
        NOBODY.with_id(core::mem::replace(&mut self.free, leaf))
    }

    /// Puts an entry into a leaf, and lets it play.
    #[inline(never)]
    fn set(&mut self, leaf: u32, new: Entry) {
        let (pair, side) = self.place(leaf);
        self.play_all(Up { pair, side, least: new });
    }

    /// Straight on: in a loop a compiler takes branches, which cannot be foretold.
    #[inline(always)]
    fn play_all(&mut self, up: Up) -> Option<Up> {
        let up = self.play_five(up)?;
        let up = self.play_five(up)?;
        let up = self.play_five(up)?;
        self.play_five(up)
    }

    #[inline(always)]
    fn play_five(&mut self, up: Up) -> Option<Up> {
        let up = self.play(up)?;
        let up = self.play(up)?;
        let up = self.play(up)?;
        let up = self.play(up)?;
        self.play(up)
    }

    /// Puts an entry into a pair: what goes up from there, unless that is the first of all.
    #[inline(always)]
    fn play(&mut self, Up { pair, side, least }: Up) -> Option<Up> {
        let two = &mut self.pairs[pair].0;
        two[side] = least;
        let least = least.less(two[side ^ 1]);
        if pair == 1 {
            self.first = least;
            return None;
        }
        Some(Up { pair: pair / 2, side: pair % 2, least })
    }

    /// Twice as many leaves.
    #[cold]
    fn grow(&mut self) {
        let known = self.pairs.split_off(self.pairs.len() / 2);
        let n_pairs = (known.len() * 4).max(2);
        let n_known = known.len() as u32 * 2;
        self.pairs.resize(n_pairs / 2, Pair([NOBODY; 2]));
        self.pairs.extend(&known);
        let n_leaves = n_pairs as u32;
        let free = |leaf: u32| NOBODY.with_id(if leaf + 1 == n_leaves { NO_LEAF } else { leaf + 1 });
        let new = (n_known..n_leaves).step_by(2);
        self.pairs.extend(new.map(|leaf| Pair([free(leaf), free(leaf + 1)])));
        self.free = n_known;
        self.play_anew();
    }

    /// Lets all play.
    fn play_anew(&mut self) {
        for pair in (2..self.pairs.len()).rev() {
            self.pairs[pair / 2].0[pair % 2] = self.pairs[pair].less();
        }
        self.first = self.pairs.get(1).map_or(NOBODY, Pair::less);
    }

    /// Gives those that are in the lowest numbers, in their order.
    #[cold]
    fn count_anew(&mut self) {
        let leaves = self.pairs.len() / 2;
        let leaves = self.pairs[leaves..].iter_mut().flat_map(|pair| &mut pair.0);
        let mut leaves: Vec<&mut Entry> = leaves.filter(|known| **known < NOBODY).collect();
        leaves.sort_unstable();
        self.next_seq = entry::count_anew(leaves);
        self.play_anew();
    }
}
