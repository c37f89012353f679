//! A ranked container for many ids: sorts entries that arrive together into runs, and puts single ones into a heap.
//!
//! New entries stay unsorted until the least of them is the first of all. If there are many by then, they are sorted
//! into a run. The heap holds the first entry of a run, and the next one when that leaves. If there are few, each goes
//! into the heap. So bursts are sorted, which costs less than a heap operation per entry, and a heap of a few runs is
//! low. The entry that leaves the root leaves a hole, which the next arrival fills. On a busy link, one entry arrives
//! for each that leaves. The hole saves one way down per packet, and an entry less than all others needs no way at all.
//!
//! Each entry is sorted once or enters the heap once, so its cost grows with the logarithm of their number. No step
//! sorts more than [`RUN_MAX`] entries, which takes about 10 us. Beside the entries, runs use at most [`RUN_MAX`] times
//! [`RUNS_MAX`] slots, and as many as one run for sorting: 1 MB.
//!
//! A caller that looks up the last entry mostly removes it and soon looks again: a queue is full. So the last eighth of
//! all entries moves to a heap of its own, whose root is the last of all. The others are not searched until that heap
//! is empty: one scan pays for an eighth as many removals.

use super::RankSlots;
use super::entry::{self, BACK, Entry, FIRST_SEQ, HOLE, NO_ENTRY, SEQS};
use super::sort::sort_from_last;
use core::hint::select_unpredictable;
use std::collections::BinaryHeap;

/// The most and the fewest entries of a run.
const RUN_MAX: usize = 1024;
const RUN_MIN: usize = 8;
/// The most runs. Further entries go into the heap.
const RUNS_MAX: usize = 64;
const _: () = assert!(RUNS_MAX <= u64::BITS as usize);
/// One entry in that many is among the last.
const LAST_SHARE: usize = 8;

/// A container for ids that leave in order, with few exceptions.
#[derive(Clone, Debug)]
pub(in super::super) struct Runs {
    /// Only the root may be a [`HOLE`]. The first entry of a run has the number of the run as its id, from
    /// [`entry::IDS`] on.
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
    /// Adds an id behind those of its rank.
    #[inline(always)]
    pub(super) fn push(&mut self, rank: i64, id: u32) {
        if self.next_seq == SEQS {
            self.count_anew();
        }
        let new = Entry::new(rank, self.next_seq, id);
        self.next_seq += 1;
        self.add_entry(new);
    }

    /// Puts an id that was the first back in front of its rank.
    pub(super) fn put_back(&mut self, rank: i64, id: u32) {
        self.add_entry(Entry::new(rank, BACK, id));
    }

    /// Adds an entry to the last ones, to the hole of the heap, or to the fresh entries.
    #[inline(always)]
    fn add_entry(&mut self, new: Entry) {
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
        if self.has_hole() {
            self.fill_root();
        }
        if self.least < *self.heap.first().unwrap_or(&NO_ENTRY) {
            if let [only] = self.fresh[..] {
                self.fresh.clear();
                self.least = NO_ENTRY;
                return Some(only.id());
            }
            self.sort_fresh();
        }
        let Some(root) = self.heap.first_mut() else { return self.pop_of_lasts() };
        let id = root.id();
        if id < entry::IDS {
            *root = HOLE;
            return Some(id);
        }
        Some(self.pop_of_run(id, places))
    }

    /// Removes the first id, which is that of a run, and moves the run to the position of its next entry.
    #[inline(always)]
    fn pop_of_run(&mut self, named: u32, places: &mut impl RankSlots) -> u32 {
        let nth = (named - entry::IDS) as usize;
        let run = &mut self.runs[nth];
        let first = run.pop().unwrap_or(NO_ENTRY);
        match run.last() {
            Some(next) => {
                places.expect(next.id());
                sift_down(&mut self.heap, 0, next.with_id(named));
            }
            None => {
                self.free |= 1 << nth;
                self.heap[0] = HOLE;
            }
        }
        first.id()
    }

    /// Removes the first of the last entries. There are no others, so these become ordinary entries.
    #[cold]
    fn pop_of_lasts(&mut self) -> Option<u32> {
        self.lasts_from = NO_ENTRY;
        if !self.lasts.is_empty() {
            // A sorted vector is a heap.
            self.heap = core::mem::take(&mut self.lasts).into_sorted_vec();
        }
        let root = self.heap.first_mut()?;
        Some(core::mem::replace(root, HOLE).id())
    }

    /// Returns the first id.
    pub(super) fn first(&self) -> Option<u32> {
        let below = if self.has_hole() { 1..5 } else { 0..1 };
        let first = self.heap.iter().take(below.end).skip(below.start).fold(self.least, |a, b| a.min(*b));
        if first == NO_ENTRY {
            return self.lasts.iter().min().map(|known| known.id());
        }
        Some(self.real(first).id())
    }

    /// Removes an id: the last of all, or another one after a scan.
    #[cold]
    pub(super) fn remove(&mut self, id: u32) {
        let is_it = |known: &Entry| *known != HOLE && known.id() == id;
        if self.lasts.peek().is_some_and(is_it) {
            self.lasts.pop();
        } else if self.lasts.iter().any(is_it) {
            self.lasts.retain(|known| !is_it(known));
        } else if let Some(at) = self.fresh.iter().rposition(is_it) {
            if self.fresh.swap_remove(at) == self.least {
                self.least = self.fresh.iter().copied().min().unwrap_or(NO_ENTRY);
            }
        } else if let Some(at) = self.heap.iter().position(is_it) {
            self.remove_from_heap(at);
        } else {
            let of_run = |(nth, run): (usize, &Vec<Entry>)| Some((nth, run.iter().position(is_it)?));
            let found = self.runs.iter().enumerate().find_map(of_run);
            found.into_iter().for_each(|(nth, at)| self.remove_from_run(nth, at));
        }
    }

    /// Removes an entry of a run; if it was the first, repairs the heap.
    fn remove_from_run(&mut self, nth: usize, at: usize) {
        let run = &mut self.runs[nth];
        run.remove(at);
        if at < run.len() {
            return;
        }
        // It was the first of its run.
        let named = entry::IDS + nth as u32;
        let Some(root) = self.heap.iter().position(|known| known.id() == named) else { return };
        match run.last() {
            Some(next) => sift_down(&mut self.heap, root, next.with_id(named)),
            None => {
                self.free |= 1 << nth;
                self.remove_from_heap(root);
            }
        }
    }

    /// Removes an entry of the heap. The root becomes a hole.
    fn remove_from_heap(&mut self, at: usize) {
        if at == 0 {
            self.heap[0] = HOLE;
        } else if let Some(last) = self.heap.pop()
            && at < self.heap.len()
        {
            match self.heap[at] < last {
                true => sift_down(&mut self.heap, at, last),
                false => sift_up(&mut self.heap, at, last),
            }
        }
    }

    /// Moves an id behind those of its new rank, after a scan.
    #[cold]
    pub(super) fn move_to(&mut self, rank: i64, id: u32) {
        self.remove(id);
        self.push(rank, id);
    }

    /// Returns the last id of all.
    pub(super) fn last(&mut self) -> Option<u32> {
        if self.lasts.is_empty() {
            self.set_lasts_apart();
        }
        self.lasts.peek().map(|last| last.id())
    }

    /// Moves the last entries to a heap of their own. A sample estimates where they begin.
    #[cold]
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
            let nth = known.id().wrapping_sub(entry::IDS) as usize;
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
        let mut sample = core::mem::take(&mut self.aside);
        sample.clear();
        sample.extend(self.entries().step_by(self.entries().count().div_ceil(RUN_MAX).max(1)));
        let nth = sample.len().checked_sub(sample.len() / LAST_SHARE + 1);
        let from = nth.map(|nth| *sample.select_nth_unstable(nth).1);
        self.aside = sample;
        from
    }

    /// Returns all entries, in no order.
    pub(super) fn entries(&self) -> impl Iterator<Item = Entry> + Clone {
        let is_real = |known: &&Entry| **known != HOLE && known.id() < entry::IDS;
        let heap = self.heap.iter().filter(is_real);
        heap.chain(self.runs.iter().flatten()).chain(&self.fresh).chain(&self.lasts).copied()
    }

    /// An entry of the heap, with its own id if it is the first of a run.
    fn real(&self, known: Entry) -> Entry {
        let run = known.id().checked_sub(entry::IDS).and_then(|nth| self.runs[nth as usize].last());
        *run.unwrap_or(&known)
    }

    #[inline(always)]
    fn has_hole(&self) -> bool {
        self.heap.first() == Some(&HOLE)
    }

    /// Fills the hole at the root of the heap with the last entry.
    #[inline(always)]
    fn fill_root(&mut self) {
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            sift_down(&mut self.heap, 0, last);
        }
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
        core::mem::swap(run, &mut self.fresh);
        let first = run.last().map_or(NO_ENTRY, |first| first.with_id(entry::IDS + nth));
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

    /// Rebuilds the container from these entries.
    fn rebuild(&mut self, mut all: Vec<Entry>) {
        // A sorted vector is a heap.
        all.sort_unstable();
        *self = Self { heap: all, next_seq: self.next_seq, ..Self::default() };
    }

    /// Assigns the lowest sequence numbers to the entries, in order.
    #[cold]
    fn count_anew(&mut self) {
        self.rebuild(self.entries().collect());
        self.next_seq = entry::count_anew(self.heap.iter_mut());
    }
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
