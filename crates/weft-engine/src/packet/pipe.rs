//! A queue of the items in transit on a path: each arrives at its time, most of them in order of entry.

use super::impair::{HOLD_NS_MAX, Passage};
use core::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Items that may wait at once to be overtaken.
pub const HELD_MAX: usize = 1024;

/// Items in transit, with their arrival times.
#[derive(Debug)]
pub struct Pipe<T> {
    /// Items that arrive no earlier than those that entered before them.
    in_order: VecDeque<Entry<T>>,
    /// Items that overtake others.
    others: BinaryHeap<Reverse<Entry<T>>>,
    /// Items that wait to be overtaken.
    held: Vec<HeldItem<T>>,
    entered: u64,
}

#[derive(Debug)]
struct HeldItem<T> {
    thing: T,
    at_ns: u64,
    overtakers: u32,
    until_ns: u64,
}

/// Ordered by arrival time, then by entry.
#[derive(Debug)]
struct Entry<T> {
    at_ns: u64,
    turn: u64,
    thing: T,
}

impl<T> Default for Pipe<T> {
    fn default() -> Self {
        let (in_order, others, held) = (VecDeque::new(), BinaryHeap::new(), Vec::new());
        Self { in_order, others, held, entered: 0 }
    }
}

impl<T> Pipe<T> {
    /// Adds an item. False: it should wait to be overtaken, but [`HELD_MAX`] already do, so it does not.
    #[inline]
    pub fn enter(&mut self, thing: T, passage: &Passage) -> bool {
        let Passage { at_ns, overtakers, .. } = *passage;
        if overtakers > 0 && self.held.len() < HELD_MAX {
            self.held.push(HeldItem { thing, at_ns, overtakers, until_ns: at_ns + HOLD_NS_MAX });
            return true;
        }
        self.push(thing, at_ns);
        if !passage.is_lost && !self.held.is_empty() {
            self.count_overtaker(at_ns);
        }
        overtakers == 0
    }

    /// Adds an item that arrives at a time: to the FIFO if it keeps the order, otherwise to the heap.
    #[inline]
    fn push(&mut self, thing: T, at_ns: u64) {
        self.entered += 1;
        let entry = Entry { at_ns, turn: self.entered, thing };
        match self.in_order.back() {
            Some(last) if last.at_ns > at_ns => self.others.push(Reverse(entry)),
            _ => self.in_order.push_back(entry),
        }
    }

    /// Counts an overtaker, which arrives at `at_ns`, for all held items. Releases those that need no further one.
    fn count_overtaker(&mut self, at_ns: u64) {
        let mut nth = 0;
        while let Some(held) = self.held.get_mut(nth) {
            held.overtakers -= 1;
            if held.overtakers > 0 {
                nth += 1;
                continue;
            }
            let held = self.held.remove(nth);
            self.push(held.thing, held.at_ns.max(at_ns).min(held.until_ns));
        }
    }

    /// Returns the next item that has arrived.
    #[inline]
    pub fn poll(&mut self, now_ns: u64) -> Option<T> {
        if !self.held.is_empty() {
            self.release_overdue(now_ns);
        }
        let first = self.in_order.front().filter(|first| first.at_ns <= now_ns).map(Entry::key);
        let other = self.others.peek().filter(|Reverse(other)| other.at_ns <= now_ns);
        match (first, other.map(|Reverse(other)| other.key())) {
            (Some(first), Some(other)) if other < first => {
                self.others.pop().map(|Reverse(entry)| entry.thing)
            }
            (Some(_), _) => self.in_order.pop_front().map(|entry| entry.thing),
            (None, Some(_)) => self.others.pop().map(|Reverse(entry)| entry.thing),
            (None, None) => None,
        }
    }

    /// Releases the held items that have waited too long for an overtaker.
    fn release_overdue(&mut self, now_ns: u64) {
        while let Some(nth) = self.held.iter().position(|held| held.until_ns <= now_ns) {
            let held = self.held.remove(nth);
            self.push(held.thing, held.until_ns);
        }
    }

    /// Returns the next arrival time.
    #[inline]
    pub fn poll_timeout(&self) -> Option<u64> {
        let first = self.in_order.front().map(|first| first.at_ns);
        let other = self.others.peek().map(|Reverse(other)| other.at_ns);
        let held = self.held.iter().map(|held| held.until_ns).min();
        [first, other, held].into_iter().flatten().min()
    }

    /// The number of items in transit.
    pub fn len(&self) -> usize {
        self.in_order.len() + self.others.len() + self.held.len()
    }

    /// Whether no item is in transit.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes all items, in order of arrival.
    pub fn take_all(&mut self) -> Vec<T> {
        core::iter::from_fn(|| self.poll(u64::MAX)).collect()
    }
}

impl<T> Entry<T> {
    fn key(&self) -> (u64, u64) {
        (self.at_ns, self.turn)
    }
}

impl<T> PartialEq for Entry<T> {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl<T> Eq for Entry<T> {}

impl<T> PartialOrd for Entry<T> {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<T> Ord for Entry<T> {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.key().cmp(&other.key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    fn at(at_ns: u64) -> Passage {
        Passage { at_ns, ..Passage::default() }
    }

    /// If it failed, packets would arrive early, late, twice, never, or out of order at equal times.
    #[test]
    fn items_arrive_in_time_order() {
        let (mut rng, mut pipe, mut now) = (Rng::from_seed(1), Pipe::default(), 0);
        let mut meant: Vec<(u64, u64)> = Vec::new();
        for turn in 0..20_000 {
            now += rng.below(10) as u64;
            let due = now + 50 + if rng.percent(20) { rng.below(100) as u64 } else { 0 };
            pipe.enter((due, turn), &at(due));
            meant.push((due, turn));
            meant.sort_unstable();
            while let Some(found) = pipe.poll(now) {
                assert_eq!(found, meant.remove(0));
            }
            assert!(meant.first().is_none_or(|(due, _)| *due > now));
            assert_eq!((pipe.poll_timeout(), pipe.len()), (meant.first().map(|(due, _)| *due), meant.len()));
        }
        assert_eq!(pipe.take_all(), meant);
    }

    /// If it failed, a packet would be overtaken by a wrong number, or wait forever if no packet follows.
    #[test]
    fn item_is_overtaken_as_often_as_set() {
        let held = |at_ns| Passage { overtakers: 3, ..at(at_ns) };
        let mut pipe = Pipe::default();
        assert!(pipe.enter(0, &held(10)));
        for nth in 1..=2 {
            pipe.enter(nth, &at(10 + nth));
        }
        // A lost packet overtakes none.
        pipe.enter(9, &Passage { is_lost: true, ..at(13) });
        pipe.enter(3, &at(13));
        pipe.enter(4, &at(13));
        assert_eq!(pipe.take_all(), [1, 2, 9, 3, 0, 4]);
        pipe.enter(5, &held(20));
        pipe.enter(6, &at(21));
        assert_eq!(pipe.poll_timeout(), Some(21));
        assert_eq!((pipe.poll(20 + HOLD_NS_MAX - 1), pipe.poll(20 + HOLD_NS_MAX - 1)), (Some(6), None));
        assert_eq!(pipe.poll_timeout(), Some(20 + HOLD_NS_MAX));
        assert_eq!((pipe.poll(20 + HOLD_NS_MAX), pipe.is_empty()), (Some(5), true));
        assert!((0..HELD_MAX as u64).all(|nth| pipe.enter(nth, &held(30))) && !pipe.enter(0, &held(30)));
    }
}
