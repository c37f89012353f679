//! A ranked container for wide ranks: sorts entries that arrive together into runs, and puts single ones into a heap.
//!
//! New entries stay unsorted until the least of them is the first of all. If there are many by then, they are sorted
//! into a run. The heap holds the first entry of a run, and the next one when that leaves. If there are few, each goes
//! into the heap. So bursts are sorted, which costs less than a heap operation per entry, and a heap of a few runs is
//! low. The entry that leaves the root leaves a hole, which the next arrival fills. On a busy link, one entry arrives
//! for each that leaves, and a partition that was served gets its new position. The hole saves one way down for each,
//! and an entry less than all others needs no way at all.
//!
//! Only the first and the last entry are found. Any other id that leaves, or gets another rank, keeps its old entry,
//! which is stale: its number is not that of the id any more. Stale entries are dropped when they are the first, or
//! all at once when they are the majority.
//!
//! Each entry is sorted once or enters the heap once, so its cost grows with the logarithm of their number. No step
//! sorts more than [`RUN_MAX`] entries, which takes about 10 us. Beside the entries, runs use at most [`RUN_MAX`] times
//! [`RUNS_MAX`] slots, and as many as one run for sorting: 1 MB.
//!
//! A caller that looks up the last entry mostly removes it and soon looks again: a queue is full. So the last eighth of
//! all entries moves to a heap of its own, whose root is the last of all. The others are not searched until that heap
//! is empty: one scan pays for an eighth as many removals.

use super::RankSlots;
use super::entry::{BACK, Entry, FIRST_SEQ, HOLE, IDS, NO_ENTRY, SEQS};
use super::sort::sort_from_last;
use core::cmp::Reverse;
use core::hint::select_unpredictable;
use core::mem::{replace, swap, take};
use std::collections::BinaryHeap;

/// The most and the fewest entries of a run.
const RUN_MAX: usize = 1024;
const RUN_MIN: usize = 8;
/// The most runs. Further entries go into the heap.
const RUNS_MAX: usize = 64;
const _: () = assert!(RUNS_MAX <= u64::BITS as usize);
/// One entry in that many is among the last.
const LAST_SHARE: usize = 8;
/// That many stale entries are kept even if they are the majority.
const STALE_MIN: usize = 64;

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
    /// The number of entries, and of those that are stale.
    n: usize,
    n_stale: usize,
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
            n: 0,
            n_stale: 0,
        }
    }
}

impl Runs {
    /// Adds an id behind those of its rank.
    #[inline(always)]
    pub(super) fn push(&mut self, rank: i64, id: u32, places: &mut impl RankSlots) {
        if self.next_seq == SEQS {
            self.rebuild(places);
        }
        self.next_seq += 1;
        self.add_entry(Entry::new(rank, self.next_seq - 1, id), places);
    }

    /// Puts an id that was the first back in front of its rank.
    pub(super) fn put_back(&mut self, rank: i64, id: u32, places: &mut impl RankSlots) {
        // A stale entry of an earlier return would have the same number.
        if self.n_stale > 0 {
            self.rebuild(places);
        }
        self.add_entry(Entry::new(rank, BACK, id), places);
    }

    /// Adds an entry to the last ones, to the hole of the heap, or to the fresh entries.
    #[inline(always)]
    fn add_entry(&mut self, new: Entry, places: &mut impl RankSlots) {
        places.set_seq(new.id(), new.seq());
        self.n += 1;
        if new > self.lasts_from {
            return self.lasts.push(new);
        }
        if self.has_hole() {
            return sift_down(&mut self.heap, 0, new);
        }
        self.least = self.least.less(new);
        self.fresh.push(new);
        if self.fresh.len() == RUN_MAX {
            self.sort_fresh();
        }
    }

    /// Removes the first id.
    #[inline(always)]
    pub(super) fn pop(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        if let [only] = self.fresh[..]
            && self.n == 1
        {
            self.fresh.clear();
            (self.least, self.n) = (NO_ENTRY, 0);
            return Some(only.id());
        }
        self.find_first(places);
        (!self.heap.is_empty()).then(|| self.take_root(places).id())
    }

    /// Returns the first id.
    #[inline(always)]
    pub(super) fn first(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        self.find_first(places);
        self.heap.first().map(|root| self.real(*root).id())
    }

    /// Makes the first entry the root of the heap. The heap is empty if there is no entry.
    #[inline(always)]
    fn find_first(&mut self, places: &mut impl RankSlots) {
        self.settle();
        if self.n_stale > 0 {
            self.drop_stale(places);
        }
    }

    /// Drops stale entries until the root of the heap is none.
    #[inline(never)]
    fn drop_stale(&mut self, places: &mut impl RankSlots) {
        while let Some(root) = self.heap.first()
            && is_stale(&self.real(*root), places)
        {
            self.take_root(places);
            self.n_stale -= 1;
            self.settle();
        }
    }

    /// Makes the least entry the root of the heap, stale or not.
    #[inline(always)]
    fn settle(&mut self) {
        if self.has_hole()
            && let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            sift_down(&mut self.heap, 0, last);
        }
        if self.least < *self.heap.first().unwrap_or(&NO_ENTRY) {
            self.sort_fresh();
        }
        if self.heap.is_empty() {
            // There are only the last entries: they become ordinary ones. A sorted vector is a heap.
            self.lasts_from = NO_ENTRY;
            if !self.lasts.is_empty() {
                self.heap = take(&mut self.lasts).into_sorted_vec();
            }
        }
    }

    /// Removes the entry at the root of the heap. A run moves to the position of its next entry.
    #[inline(always)]
    fn take_root(&mut self, places: &mut impl RankSlots) -> Entry {
        self.n -= 1;
        let root = self.heap[0];
        let Some(nth) = root.id().checked_sub(IDS) else { return replace(&mut self.heap[0], HOLE) };
        let run = &mut self.runs[nth as usize];
        let first = run.pop().expect("a run in the heap has entries");
        if let Some(next) = run.last() {
            places.expect(next.id());
            sift_down(&mut self.heap, 0, next.with_id(root.id()));
        } else {
            self.free |= 1 << nth;
            self.heap[0] = HOLE;
        }
        first
    }

    /// Removes an id. If it is neither the root of the heap nor the last of all, its entry becomes stale.
    pub(super) fn remove(&mut self, id: u32, places: &mut impl RankSlots) {
        let is_it = |known: Entry| known.id() == id && known.seq() == places.seq(id);
        if self.heap.first().is_some_and(|root| *root != HOLE && is_it(self.real(*root))) {
            self.take_root(places);
        } else if self.lasts.peek().is_some_and(|last| is_it(*last)) {
            self.lasts.pop();
            self.n -= 1;
        } else {
            self.n_stale += 1;
        }
        places.set_seq(id, 0);
        if self.n_stale > STALE_MIN + self.n / 2 {
            self.rebuild(places);
        }
    }

    /// Returns the last id of all.
    #[cold]
    pub(super) fn last(&mut self, places: &mut impl RankSlots) -> Option<u32> {
        while let Some(last) = self.lasts.peek()
            && is_stale(last, places)
        {
            self.lasts.pop();
            (self.n, self.n_stale) = (self.n - 1, self.n_stale - 1);
        }
        if self.lasts.is_empty() {
            if self.n_stale > 0 {
                self.rebuild(places);
            }
            self.set_lasts_apart();
        }
        self.lasts.peek().map(|last| last.id())
    }

    /// Moves the last entries to a heap of their own. A sample estimates where they begin.
    fn set_lasts_apart(&mut self) {
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
            sift_up(&mut self.heap, at, known);
        }
    }

    /// Returns the first of the last entries of a sample. At least one entry is among the last: itself.
    fn sampled_last(&mut self) -> Option<Entry> {
        let mut sample = take(&mut self.aside);
        sample.clear();
        sample.extend(self.all().step_by(self.n.div_ceil(RUN_MAX).max(1)));
        let nth = sample.len().checked_sub(sample.len() / LAST_SHARE + 1);
        let from = nth.map(|nth| *sample.select_nth_unstable(nth).1);
        self.aside = sample;
        from
    }

    /// Returns the first id of the highest rank.
    pub(super) fn first_of_last(&self, places: &impl RankSlots) -> Option<u32> {
        let of_ids = self.all().filter(|known| !is_stale(known, places));
        of_ids.max_by_key(|known| (known.rank, Reverse(known.came))).map(Entry::id)
    }

    /// Returns the entries of all ids, first to last.
    pub(super) fn in_order(&self, places: &impl RankSlots) -> Vec<Entry> {
        let mut entries: Vec<Entry> = self.all().filter(|known| !is_stale(known, places)).collect();
        assert_eq!(entries.len() + self.n_stale, self.n, "each entry is that of an id, or stale");
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

    /// Sorts the fresh entries into a run, or puts them into the heap if they are few.
    #[inline(never)]
    fn sort_fresh(&mut self) {
        self.least = NO_ENTRY;
        if self.fresh.len() < RUN_MIN || self.free == 0 {
            for at in 0..self.fresh.len() {
                self.heap_up(self.fresh[at]);
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
        self.heap_up(first);
    }

    /// Adds an entry to the heap.
    fn heap_up(&mut self, new: Entry) {
        if self.has_hole() {
            return sift_down(&mut self.heap, 0, new);
        }
        let at = self.heap.len();
        self.heap.push(new);
        sift_up(&mut self.heap, at, new);
    }

    /// Drops all stale entries, and assigns the lowest sequence numbers to the others, in order.
    #[cold]
    fn rebuild(&mut self, places: &mut impl RankSlots) {
        // A sorted vector is a heap.
        let mut heap = self.in_order(places);
        for (known, seq) in heap.iter_mut().zip(FIRST_SEQ..) {
            *known = known.with_seq(seq);
            places.set_seq(known.id(), seq);
        }
        let n = heap.len();
        *self = Self { heap, n, next_seq: FIRST_SEQ + n as u64, ..Self::default() };
    }
}

/// Whether an id has left since this entry was added, or has another one.
#[inline(always)]
fn is_stale(known: &Entry, places: &impl RankSlots) -> bool {
    places.seq(known.id()) != known.seq()
}

/// Moves a hole up the heap to the position of an entry, and puts it there.
fn sift_up(heap: &mut [Entry], mut at: usize, new: Entry) {
    while at > 0 {
        let parent = (at - 1) / 4;
        let above = heap[parent];
        if above < new {
            break;
        }
        heap[at] = above;
        at = parent;
    }
    heap[at] = new;
}

/// Moves a hole down the heap to the position of an entry, and puts it there.
#[inline(always)]
fn sift_down(heap: &mut [Entry], mut at: usize, new: Entry) {
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
        at = least;
    }
    heap[at] = new;
}
