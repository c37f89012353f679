//! Runs: what comes together is sorted at once, and what comes alone is put into a heap.
//!
//! What comes is left as it is, until the least of it is the first of all. If many have come by then, they are sorted:
//! a run, of which the heap holds the first, and the next one when that leaves. If few have, each goes into the heap.
//! So bursts are sorted, which costs less than to heap them up and take them out one by one, and a heap of a few runs
//! is low. What leaves the root of the heap leaves a hole, which the next that comes fills: where one comes for each
//! that leaves, as on a link that is busy, one way down is saved for each, and what is less than all others has no way
//! at all.
//!
//! Each entry is sorted once or goes into the heap once: what it costs grows with the logarithm of how many there are.
//! No step sorts more than [`RUN_MAX`], which takes some 10 us. Beside the entries runs take [`RUN_MAX`] times
//! [`RUNS_MAX`] places at most, and as many as one has to sort in: 1 MB.
//!
//! Who asks for the last of all mostly takes it away, and asks again soon: a queue is full. So an eighth of all, the
//! last ones, go into a heap of their own then, whose root is the last of all. Until that is empty nobody has to look
//! at the others: one look at all pays for an eighth as many that are taken away.

use super::Places;
use super::entry::{self, BACK, Entry, FIRST_SEQ, HOLE, NOBODY, SEQS};
use super::sort::sort_from_last;
use core::hint::select_unpredictable;
use std::collections::BinaryHeap;

/// Entries of a run, at most and at least.
const RUN_MAX: usize = 1024;
const RUN_MIN: usize = 8;
/// How many runs there may be. More go into the heap.
const RUNS_MAX: usize = 64;
const _: () = assert!(RUNS_MAX <= u64::BITS as usize);
/// Of so many entries one is among the last.
const LAST_SHARE: usize = 8;

/// All ranks of those that leave in their order, but for a few.
#[derive(Clone, Debug)]
pub(in super::super) struct Runs {
    /// The root may be a [`HOLE`], others not. The first of a run has the number of that for an id, from
    /// [`entry::IDS`] on.
    heap: Vec<Entry>,
    /// Last to first.
    runs: Vec<Vec<Entry>>,
    /// Runs that hold nothing, by bits.
    free: u64,
    /// What came, as it came, and the least of it.
    fresh: Vec<Entry>,
    least: Entry,
    /// The last ones, the last of all first; and from which on entries are among them. Nobody else is behind that.
    lasts: BinaryHeap<Entry>,
    lasts_from: Entry,
    /// Room to sort in.
    aside: Vec<Entry>,
    /// The number of who comes next.
    pub(super) next_seq: u64,
}

impl Default for Runs {
    fn default() -> Self {
        Self {
            heap: Vec::new(),
            runs: Vec::new(),
            free: u64::MAX >> (u64::BITS as usize - RUNS_MAX),
            fresh: Vec::new(),
            least: NOBODY,
            lasts: BinaryHeap::new(),
            lasts_from: NOBODY,
            aside: Vec::new(),
            next_seq: FIRST_SEQ,
        }
    }
}

impl Runs {
    #[inline(always)]
    pub(super) fn push(&mut self, rank: i64, id: u32) {
        if self.next_seq == SEQS {
            self.count_anew();
        }
        let new = Entry::new(rank, self.next_seq, id);
        self.next_seq += 1;
        self.take_in(new);
    }

    /// Puts an id that was the first before those of its rank.
    pub(super) fn put_back(&mut self, rank: i64, id: u32) {
        self.take_in(Entry::new(rank, BACK, id));
    }

    #[inline(always)]
    fn take_in(&mut self, new: Entry) {
        if new > self.lasts_from {
            return self.lasts.push(new);
        }
        if self.has_hole() {
            return down(&mut self.heap, 0, new);
        }
        self.least = self.least.less(new);
        self.fresh.push(new);
        if self.fresh.len() == RUN_MAX {
            self.settle();
        }
    }

    /// Takes the first out.
    #[inline(always)]
    pub(super) fn pop(&mut self, places: &mut impl Places) -> Option<u32> {
        if self.has_hole() {
            self.fill();
        }
        if self.least < *self.heap.first().unwrap_or(&NOBODY) {
            if let [only] = self.fresh[..] {
                self.fresh.clear();
                self.least = NOBODY;
                return Some(only.id());
            }
            self.settle();
        }
        let Some(root) = self.heap.first_mut() else { return self.pop_of_lasts() };
        let id = root.id();
        if id < entry::IDS {
            *root = HOLE;
            return Some(id);
        }
        Some(self.pop_of_run(id, places))
    }

    /// Takes the first out, which is that of a run.
    #[inline(always)]
    fn pop_of_run(&mut self, named: u32, places: &mut impl Places) -> u32 {
        let nth = (named - entry::IDS) as usize;
        let run = &mut self.runs[nth];
        let first = run.pop().unwrap_or(NOBODY);
        match run.last() {
            Some(next) => {
                places.expect(next.id());
                down(&mut self.heap, 0, next.with_id(named));
            }
            None => {
                self.free |= 1 << nth;
                self.heap[0] = HOLE;
            }
        }
        first.id()
    }

    /// Takes the first of the last ones out. There are no others, so these are as all others from now on.
    #[cold]
    fn pop_of_lasts(&mut self) -> Option<u32> {
        self.lasts_from = NOBODY;
        if !self.lasts.is_empty() {
            // What is sorted is a heap.
            self.heap = core::mem::take(&mut self.lasts).into_sorted_vec();
        }
        let root = self.heap.first_mut()?;
        Some(core::mem::replace(root, HOLE).id())
    }

    /// The first.
    pub(super) fn first(&self) -> Option<u32> {
        let below = if self.has_hole() { 1..5 } else { 0..1 };
        let first = self.heap.iter().take(below.end).skip(below.start).fold(self.least, |a, b| a.min(*b));
        if first == NOBODY {
            return self.lasts.iter().min().map(|known| known.id());
        }
        Some(self.real(first).id())
    }

    /// Takes an id out: the last of all, or another after a look at all.
    #[cold]
    pub(super) fn remove(&mut self, id: u32) {
        let is_it = |known: &Entry| *known != HOLE && known.id() == id;
        if self.lasts.peek().is_some_and(is_it) {
            self.lasts.pop();
        } else if self.lasts.iter().any(is_it) {
            self.lasts.retain(|known| !is_it(known));
        } else if let Some(at) = self.fresh.iter().rposition(is_it) {
            if self.fresh.swap_remove(at) == self.least {
                self.least = self.fresh.iter().copied().min().unwrap_or(NOBODY);
            }
        } else if let Some(at) = self.heap.iter().position(is_it) {
            self.remove_from_heap(at);
        } else {
            let of_run = |(nth, run): (usize, &Vec<Entry>)| Some((nth, run.iter().position(is_it)?));
            let found = self.runs.iter().enumerate().find_map(of_run);
            found.into_iter().for_each(|(nth, at)| self.remove_from_run(nth, at));
        }
    }

    fn remove_from_run(&mut self, nth: usize, at: usize) {
        let run = &mut self.runs[nth];
        run.remove(at);
        if at < run.len() {
            return;
        }
        // It was the first.
        let named = entry::IDS + nth as u32;
        let Some(root) = self.heap.iter().position(|known| known.id() == named) else { return };
        match run.last() {
            Some(next) => down(&mut self.heap, root, next.with_id(named)),
            None => {
                self.free |= 1 << nth;
                self.remove_from_heap(root);
            }
        }
    }

    fn remove_from_heap(&mut self, at: usize) {
        if at == 0 {
            self.heap[0] = HOLE;
        } else if let Some(last) = self.heap.pop()
            && at < self.heap.len()
        {
            match self.heap[at] < last {
                true => down(&mut self.heap, at, last),
                false => up(&mut self.heap, at, last),
            }
        }
    }

    /// Puts an id behind those of its new rank, after a look at all.
    #[cold]
    pub(super) fn move_to(&mut self, rank: i64, id: u32) {
        self.remove(id);
        self.push(rank, id);
    }

    /// The last of all.
    pub(super) fn last(&mut self) -> Option<u32> {
        if self.lasts.is_empty() {
            self.set_lasts_apart();
        }
        self.lasts.peek().map(|last| last.id())
    }

    /// Moves the last ones to a heap of their own. How many these are is known by a sample of all.
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
            self.least = NOBODY;
        }
        for at in 1..self.heap.len() {
            let known = self.heap[at];
            up(&mut self.heap, at, known);
        }
    }

    /// Of a sample of all the first of the last ones. At least one is among the last, for it is itself.
    fn sampled_last(&mut self) -> Option<Entry> {
        let mut sample = core::mem::take(&mut self.aside);
        sample.clear();
        sample.extend(self.entries().step_by(self.entries().count().div_ceil(RUN_MAX).max(1)));
        let nth = sample.len().checked_sub(sample.len() / LAST_SHARE + 1);
        let from = nth.map(|nth| *sample.select_nth_unstable(nth).1);
        self.aside = sample;
        from
    }

    /// Those that are in, in no order.
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

    /// Puts the last entry where the root is free.
    #[inline(always)]
    fn fill(&mut self) {
        if let Some(last) = self.heap.pop()
            && !self.heap.is_empty()
        {
            down(&mut self.heap, 0, last);
        }
    }

    /// Sorts what came, or puts it into the heap.
    #[inline(never)]
    fn settle(&mut self) {
        self.least = NOBODY;
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
        let first = run.last().map_or(NOBODY, |first| first.with_id(entry::IDS + nth));
        self.heap_up(first);
    }

    fn heap_up(&mut self, new: Entry) {
        if self.has_hole() {
            return down(&mut self.heap, 0, new);
        }
        let at = self.heap.len();
        self.heap.push(new);
        up(&mut self.heap, at, new);
    }

    /// Holds these alone.
    fn restart(&mut self, mut all: Vec<Entry>) {
        // What is sorted is a heap.
        all.sort_unstable();
        *self = Self { heap: all, next_seq: self.next_seq, ..Self::default() };
    }

    /// Gives those that are in the lowest numbers, in their order.
    #[cold]
    fn count_anew(&mut self) {
        self.restart(self.entries().collect());
        self.next_seq = entry::count_anew(self.heap.iter_mut());
    }
}

/// Puts an entry into a hole, or above it.
fn up(heap: &mut [Entry], mut at: usize, new: Entry) {
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

/// Puts an entry into a hole, or below it.
#[inline(always)]
fn down(heap: &mut [Entry], mut at: usize, new: Entry) {
    loop {
        let first = at * 4 + 1;
        let (least, below) = match heap.get(first..) {
            // Which it is cannot be foretold: no branch is taken for it.
            Some([a, b, c, d, ..]) => {
                let (ab, cd) = (a.less(*b), c.less(*d));
                let beside = select_unpredictable(cd < ab, 2 + usize::from(d < c), usize::from(b < a));
                (first + beside, ab.less(cd))
            }
            // Fewer than four are the last.
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
