//! A ranked container for wide ranks: sorts entries that arrive together into runs, and puts single ones into a heap.
//!
//! New entries stay unsorted until the least of them is the first of all. If there are many by then, they are sorted
//! into a run. The heap holds the first entry of a run, and the next one when that leaves. If there are few, each goes
//! into the heap. So bursts are sorted, which costs less than a heap operation per entry, and a heap of a few runs is
//! low. The entry that leaves the root leaves a hole, which the next arrival fills. On a busy link, one entry arrives
//! for each that leaves. The hole saves one way down per packet, and an entry less than all others needs no way at all.
//!
//! Ids that may leave from anywhere ([`RankSlots::MOVES`]) go into the heap at once, and their owner knows their
//! positions there. Others leave as the first or the last.
//!
//! Each entry is sorted once or enters the heap once, so its cost grows with the logarithm of their number. No step
//! sorts more than [`RUN_MAX`] entries, which takes about 10 us. Beside the entries, runs use at most [`RUN_MAX`] times
//! [`RUNS_MAX`] slots, and as many as one run for sorting: 1 MB.
//!
//! A caller that looks up the last entry mostly removes it and soon looks again: a queue is full. So the last eighth of
//! all entries moves to a heap of its own, whose root is the last of all. The others are not searched until that heap
//! is empty: one scan pays for an eighth as many removals.

use super::entry::{BACK, Entry, FIRST_SEQ, HOLE, IDS, NO_ENTRY, SEQS};
use super::sort::sort_from_last;
use super::{NONE, RankSlots};
use core::cmp::Reverse;
use core::hint::select_unpredictable;
use core::mem::{swap, take};
use std::collections::BinaryHeap;

/// The most and the fewest entries of a run.
const RUN_MAX: usize = 1024;
const RUN_MIN: usize = 8;
/// The most runs. Further entries go into the heap.
const RUNS_MAX: usize = 64;
const _: () = assert!(RUNS_MAX <= u64::BITS as usize);
/// One entry in that many is among the last.
const LAST_SHARE: usize = 8;

/// A container for ids of which mostly the first leaves or gets another rank.
#[derive(Clone, Debug)]
pub(in super::super) struct Runs {
    /// Only the root may be a [`HOLE`]. The first entry of a run has the number of the run as its id, from [`IDS`] on.
    heap: Vec<Entry>,
    /// Each run, last to first.
    runs: Vec<Vec<Entry>>,
    /// A bit for each empty run.
    free: u64,
    /// New entries in order of arrival, and the least of them.
    fresh: Vec<Entry>,
    least: Entry,
    /// The last entries, the very last first; and the least of them. No entry elsewhere is greater.
    lasts: BinaryHeap<Entry>,
    lasts_from: Entry,
    /// Scratch memory for sorting.
    aside: Vec<Entry>,
    /// The next sequence number.
    pub(super) next_seq: u64,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            heap: Vec::new(),
            runs: Vec::new(),
            free: u64::MAX >> (u64::BITS as usize - RUNS_MAX),
            fresh: Vec::new(),
            least: NO_ENTRY,
            lasts: BinaryHeap::new(),
            lasts_from: NO_ENTRY,
            aside: Vec::new(),
            next_seq: FIRST_SEQ,
        }
    }
}

impl Runs {
    /// Creates an entry behind those of its rank.
    #[inline(always)]
    fn new_entry<P: RankSlots>(&mut self, rank: i64, id: u32, places: &mut P) -> Entry {
        if self.next_seq == SEQS {
            self.count_anew(places);
        }
        self.next_seq += 1;
        Entry::new(rank, self.next_seq - 1, id)
    }

    /// Adds an id behind those of its rank.
    #[inline(always)]
    pub(super) fn push<P: RankSlots>(&mut self, rank: i64, id: u32, places: &mut P) {
        let new = self.new_entry(rank, id, places);
        self.add_entry(new, places);
    }

    /// Puts an id that was the first back in front of its rank.
    pub(super) fn put_back<P: RankSlots>(&mut self, rank: i64, id: u32, places: &mut P) {
        self.add_entry(Entry::new(rank, BACK, id), places);
    }

    /// Moves an id behind those of its new rank.
    #[inline(always)]
    pub(super) fn move_to<P: RankSlots>(&mut self, rank: i64, id: u32, places: &mut P) {
        assert!(P::MOVES, "the position of an id is known");
        let new = self.new_entry(rank, id, places);
        let at = places.links(id).0 as usize;
        match new < self.heap[at] {
            true => sift_up(&mut self.heap, at, new, places),
            false => sift_down(&mut self.heap, at, new, places),
        }
    }

    /// Adds an entry to the last ones, to the heap, or to the fresh entries.
    #[inline(always)]
    fn add_entry<P: RankSlots>(&mut self, new: Entry, places: &mut P) {
        if new > self.lasts_from {
            return self.lasts.push(new);
        }
        if P::MOVES || self.has_hole() {
            return self.heap_up(new, places);
        }
        self.least = self.least.less(new);
        self.fresh.push(new);
        if self.fresh.len() == RUN_MAX {
            self.sort_fresh(places);
        }
    }

    /// Removes the first id.
    #[inline(always)]
    pub(super) fn pop<P: RankSlots>(&mut self, places: &mut P) -> Option<u32> {
        if let [only] = self.fresh[..]
            && self.least < self.heap_first()
            && !self.has_hole()
        {
            self.fresh.clear();
            self.least = NO_ENTRY;
            return Some(only.id());
        }
        self.settle(places);
        (!self.heap.is_empty()).then(|| self.take_root(places))
    }

    /// Returns the first id.
    #[inline(always)]
    pub(super) fn first<P: RankSlots>(&mut self, places: &mut P) -> Option<u32> {
        self.settle(places);
        self.heap.first().map(|root| self.real(*root).id())
    }

    /// Makes the first entry the root of the heap. The heap is empty if there is no entry.
    #[inline(always)]
    fn settle<P: RankSlots>(&mut self, places: &mut P) {
        if self.has_hole()
            && let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            sift_down(&mut self.heap, 0, last, places);
        }
        if self.least < self.heap_first() {
            self.sort_fresh(places);
        }
        if self.heap.is_empty() && !self.lasts.is_empty() {
            self.use_lasts();
        }
    }

    /// Makes the last entries ordinary ones: there are no others.
    #[cold]
    fn use_lasts(&mut self) {
        self.lasts_from = NO_ENTRY;
        // A sorted vector is a heap.
        self.heap = take(&mut self.lasts).into_sorted_vec();
    }

    /// Removes the entry at the root of the heap. A run moves to the position of its next entry.
    #[inline(always)]
    fn take_root<P: RankSlots>(&mut self, places: &mut P) -> u32 {
        let root = self.heap[0];
        let Some(nth) = root.id().checked_sub(IDS) else {
            self.heap[0] = HOLE;
            return root.id();
        };
        let run = &mut self.runs[nth as usize];
        let first = run.pop().expect("a run in the heap has entries");
        if let Some(next) = run.last() {
            places.expect(next.id());
            sift_down(&mut self.heap, 0, next.with_id(root.id()), places);
        } else {
            self.free |= 1 << nth;
            self.heap[0] = HOLE;
        }
        first.id()
    }

    /// Removes an id. Without known positions it must be the first or the last, which the caller has looked up.
    #[inline(always)]
    pub(super) fn remove<P: RankSlots>(&mut self, id: u32, places: &mut P) {
        if P::MOVES {
            return self.remove_from_heap(places.links(id).0 as usize, places);
        }
        if !self.has_hole() && self.heap.first().is_some_and(|root| self.real(*root).id() == id) {
            self.take_root(places);
        } else {
            let last = self.lasts.pop();
            assert_eq!(last.map(Entry::id), Some(id), "it is the last one");
        }
    }

    /// Removes an entry of the heap. The root becomes a hole.
    fn remove_from_heap<P: RankSlots>(&mut self, at: usize, places: &mut P) {
        if at == 0 {
            self.heap[0] = HOLE;
            return;
        }
        let last = self.heap.pop().expect("the entry is in the heap");
        match self.heap.get(at) {
            Some(known) if *known < last => sift_down(&mut self.heap, at, last, places),
            Some(_) => sift_up(&mut self.heap, at, last, places),
            None => {}
        }
    }

    /// Returns the last id of all.
    #[cold]
    pub(super) fn last<P: RankSlots>(&mut self, places: &mut P) -> Option<u32> {
        if P::MOVES {
            return self.all().max().map(Entry::id);
        }
        if self.lasts.is_empty() {
            self.set_lasts_apart(places);
        }
        self.lasts.peek().map(|last| last.id())
    }

    /// Moves the last entries to a heap of their own. A sample estimates where they begin.
    fn set_lasts_apart<P: RankSlots>(&mut self, places: &mut P) {
        let Some(from) = self.sampled_last() else { return };
        self.lasts_from = from;
        let lasts = &mut self.lasts;
        let mut stays = |known: &Entry| {
            let stays = *known < from;
            if !stays {
                lasts.push(*known);
            }
            stays
        };
        self.fresh.retain(&mut stays);
        self.heap.retain(|known| {
            let nth = known.id().wrapping_sub(IDS) as usize;
            match self.runs.get(nth) {
                _ if *known == HOLE => false,
                Some(run) => run.last().is_some_and(|first| *first < from),
                None => stays(known),
            }
        });
        for (nth, run) in self.runs.iter_mut().enumerate() {
            run.drain(..run.partition_point(|known| *known >= from)).for_each(|known| lasts.push(known));
            self.free |= u64::from(run.is_empty()) << nth;
        }
        if self.least >= from {
            self.least = NO_ENTRY;
        }
        for at in 1..self.heap.len() {
            let known = self.heap[at];
            sift_up(&mut self.heap, at, known, places);
        }
    }

    /// Returns the first of the last entries of a sample. At least one entry is among the last: itself.
    fn sampled_last(&mut self) -> Option<Entry> {
        let mut sample = take(&mut self.aside);
        sample.clear();
        sample.extend(self.all().step_by(self.all().count().div_ceil(RUN_MAX).max(1)));
        let nth = sample.len().checked_sub(sample.len() / LAST_SHARE + 1);
        let from = nth.map(|nth| *sample.select_nth_unstable(nth).1);
        self.aside = sample;
        from
    }

    /// Returns the first id of the highest rank.
    pub(super) fn first_of_last(&self) -> Option<u32> {
        self.all().max_by_key(|known| (known.rank, Reverse(known.came))).map(Entry::id)
    }

    /// Returns all entries, first to last.
    pub(super) fn in_order(&self) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.all().collect();
        entries.sort_unstable();
        entries
    }

    /// Returns all entries, in no order.
    fn all(&self) -> impl Iterator<Item = Entry> {
        let is_real = |known: &&Entry| **known != HOLE && known.id() < IDS;
        let heap = self.heap.iter().filter(is_real);
        heap.chain(self.runs.iter().flatten()).chain(&self.fresh).chain(&self.lasts).copied()
    }

    /// An entry of the heap, with its own id if it is the first of a run.
    #[inline(always)]
    fn real(&self, known: Entry) -> Entry {
        let run = known.id().checked_sub(IDS).and_then(|nth| self.runs[nth as usize].last());
        *run.unwrap_or(&known)
    }

    #[inline(always)]
    fn has_hole(&self) -> bool {
        self.heap.first() == Some(&HOLE)
    }

    /// The root of the heap, which may be a hole.
    #[inline(always)]
    fn heap_first(&self) -> Entry {
        *self.heap.first().unwrap_or(&NO_ENTRY)
    }

    /// Sorts the fresh entries into a run, or puts them into the heap if they are few.
    #[inline(never)]
    fn sort_fresh<P: RankSlots>(&mut self, places: &mut P) {
        self.least = NO_ENTRY;
        if self.fresh.len() < RUN_MIN || self.free == 0 {
            for at in 0..self.fresh.len() {
                self.heap_up(self.fresh[at], places);
            }
            self.fresh.clear();
            return;
        }
        sort_from_last(&mut self.fresh, &mut self.aside);
        let nth = self.free.trailing_zeros();
        self.free &= self.free - 1;
        if nth as usize == self.runs.len() {
            self.runs.push(Vec::new());
        }
        let run = &mut self.runs[nth as usize];
        assert!(run.is_empty(), "the bit of run {nth} says so");
        swap(run, &mut self.fresh);
        let first = run.last().map_or(NO_ENTRY, |first| first.with_id(IDS + nth));
        self.heap_up(first, places);
    }

    /// Adds an entry to the heap.
    #[inline(always)]
    fn heap_up<P: RankSlots>(&mut self, new: Entry, places: &mut P) {
        if self.has_hole() {
            return sift_down(&mut self.heap, 0, new, places);
        }
        let at = self.heap.len();
        self.heap.push(new);
        sift_up(&mut self.heap, at, new, places);
    }

    /// Assigns the lowest sequence numbers to the entries, in order.
    #[cold]
    fn count_anew<P: RankSlots>(&mut self, places: &mut P) {
        // A sorted vector is a heap.
        let mut heap = self.in_order();
        for (at, (known, seq)) in heap.iter_mut().zip(FIRST_SEQ..).enumerate() {
            *known = known.with_seq(seq);
            set_position(*known, at, places);
        }
        *self = Self { next_seq: FIRST_SEQ + heap.len() as u64, heap, ..Self::default() };
    }
}

/// Stores the position of an entry in the heap, if its id may leave from there.
#[inline(always)]
fn set_position<P: RankSlots>(entry: Entry, at: usize, places: &mut P) {
    if P::MOVES {
        places.set_links(entry.id(), (at as u32, NONE));
    }
}

/// Moves a hole up the heap to the position of an entry, and puts it there.
fn sift_up<P: RankSlots>(heap: &mut [Entry], mut at: usize, new: Entry, places: &mut P) {
    while at > 0 {
        let parent = (at - 1) / 4;
        let above = heap[parent];
        if above < new {
            break;
        }
        heap[at] = above;
        set_position(above, at, places);
        at = parent;
    }
    heap[at] = new;
    set_position(new, at, places);
}

/// Moves a hole down the heap to the position of an entry, and puts it there.
#[inline(always)]
fn sift_down<P: RankSlots>(heap: &mut [Entry], mut at: usize, new: Entry, places: &mut P) {
    loop {
        let first = at * 4 + 1;
        let (least, below) = match heap.get(first..) {
            // The branch predictor cannot foresee which one it is, so there is no branch.
            Some([a, b, c, d, ..]) => {
                let (ab, cd) = (a.less(*b), c.less(*d));
                let beside = select_unpredictable(cd < ab, 2 + usize::from(d < c), usize::from(b < a));
                (first + beside, ab.less(cd))
            }
            // The last group may have fewer than four.
            Some([a, more @ ..]) => {
                let mut least = (first, *a);
                for (nth, entry) in more.iter().enumerate() {
                    if *entry < least.1 {
                        least = (first + 1 + nth, *entry);
                    }
                }
                least
            }
            _ => break,
        };
        if new < below {
            break;
        }
        heap[at] = below;
        set_position(below, at, places);
        at = least;
    }
    heap[at] = new;
    set_position(new, at, places);
}
