//! A hierarchical timer wheel: sets and cancels any of millions of timers in constant time.
//!
//! It has four levels of 64 slots; a slot of level n spans 64^n ticks of a millisecond. A timer fires in the tick after
//! its time, never before it. Timers of one tick fire in the order in which they were set.

use weft_core::Time;

const LEVELS: usize = 4;
const SLOTS: usize = 64;
pub(crate) const TICK_NS: i64 = 1_000_000;
const NONE: u32 = u32::MAX;

/// A key of a timer; it goes stale when the timer fires or is cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TimerKey {
    index: u32,
    generation: u32,
}

/// The wheel. `T` is the task of a timer.
#[derive(Debug)]
pub(crate) struct Timers<T> {
    /// The ticks that have passed.
    tick: u64,
    slots: Box<[[List; SLOTS]; LEVELS]>,
    entries: Vec<Entry<T>>,
    free: u32,
    n_set: usize,
    /// No timer is due before this tick.
    next: u64,
}

#[derive(Clone, Copy, Debug)]
struct List {
    head: u32,
    tail: u32,
}

#[derive(Debug)]
struct Entry<T> {
    what: Option<T>,
    tick: u64,
    generation: u32,
    level: u8,
    slot: u8,
    previous: u32,
    next: u32,
}

impl<T> Timers<T> {
    /// An empty wheel that starts at `now`.
    pub(crate) fn new(now: Time) -> Self {
        let empty = List { head: NONE, tail: NONE };
        Self {
            tick: tick_of(now),
            slots: Box::new([[empty; SLOTS]; LEVELS]),
            entries: Vec::new(),
            free: NONE,
            n_set: 0,
            next: u64::MAX,
        }
    }

    /// Sets a timer.
    pub(crate) fn set(&mut self, at: Time, what: T) -> TimerKey {
        // A timer fires in the tick after its time, so that it is never early.
        let tick = (tick_of(at) + 1).max(self.tick + 1);
        let index = self.take_entry(what, tick);
        self.link(index);
        self.n_set += 1;
        self.next = self.next.min(tick);
        TimerKey { index, generation: self.entries[index as usize].generation }
    }

    /// All timers, each with the time at which [`Timers::expire`] will return it.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Time, &T)> {
        let at = |tick: u64| Time((tick as i64).saturating_mul(TICK_NS));
        self.entries.iter().filter_map(move |entry| Some((at(entry.tick), entry.what.as_ref()?)))
    }

    /// Cancels a timer; a stale key is ignored.
    pub(crate) fn cancel(&mut self, key: TimerKey) {
        let Some(entry) = self.entries.get(key.index as usize) else { return };
        if entry.generation == key.generation && entry.what.is_some() {
            self.unlink(key.index);
            self.release(key.index);
        }
    }

    /// The time of the next call of [`Timers::expire`], if any. It may find nothing then.
    pub(crate) fn next(&self) -> Option<Time> {
        (self.n_set > 0).then(|| Time((self.next.max(self.tick + 1) as i64).saturating_mul(TICK_NS)))
    }

    /// Moves the wheel to `now` and returns the timers that are due.
    pub(crate) fn expire(&mut self, now: Time, due: &mut Vec<T>) {
        let target = tick_of(now);
        if self.n_set == 0 || target < self.next {
            // No timer is due before `next`, and no slot in between needs to cascade. `link` chooses slots by the
            // distance from `tick`, so the wheel must not skip the cascade of a timer.
            if self.n_set == 0 {
                self.tick = self.tick.max(target);
            }
            return;
        }
        while self.tick < target && self.n_set > 0 {
            if target - self.tick > SLOTS as u64 {
                // In a long gap, as between two packets of a capture, ticks without work are skipped.
                self.tick = (self.next_tick() - 1).clamp(self.tick, target - 1);
            }
            self.tick += 1;
            self.cascade();
            let slot = (self.tick % SLOTS as u64) as usize;
            while self.slots[0][slot].head != NONE {
                let index = self.slots[0][slot].head;
                self.unlink(index);
                due.extend(self.release(index));
            }
        }
        self.tick = self.tick.max(target);
        self.next = self.next_tick();
    }

    /// Takes all timers, each with a time at which it can be set again. Timers of one tick keep their order.
    pub(crate) fn drain(&mut self, all: &mut Vec<(Time, T)>) {
        // Earlier timers are on higher levels.
        for place in (0..LEVELS * SLOTS).rev() {
            let (level, slot) = (place / SLOTS, place % SLOTS);
            while self.slots[level][slot].head != NONE {
                let index = self.slots[level][slot].head;
                let at = Time((self.entries[index as usize].tick as i64 - 1) * TICK_NS);
                self.unlink(index);
                all.extend(self.release(index).map(|what| (at, what)));
            }
        }
    }

    /// Distributes the next slot of the level above when the lowest level wraps around, and so on upward.
    fn cascade(&mut self) {
        let mut span = SLOTS as u64;
        for level in 1..LEVELS {
            if !self.tick.is_multiple_of(span) {
                return;
            }
            let slot = (self.tick / span % SLOTS as u64) as usize;
            let mut index = self.slots[level][slot].head;
            while index != NONE {
                let next = self.entries[index as usize].next;
                self.unlink(index);
                self.link(index);
                index = next;
            }
            span *= SLOTS as u64;
        }
    }

    /// Returns a tick before which no timer is due: exact on the lowest level, the start of the slot on higher ones.
    fn next_tick(&self) -> u64 {
        let mut best = u64::MAX;
        let mut span = 1;
        for level in &*self.slots {
            let base = self.tick / span;
            let distance =
                (1..=SLOTS as u64).find(|d| level[((base + d) % SLOTS as u64) as usize].head != NONE);
            if let Some(distance) = distance {
                best = best.min((base + distance) * span);
            }
            span *= SLOTS as u64;
        }
        best
    }

    /// Takes a free entry for a timer at a tick, and returns its index.
    fn take_entry(&mut self, what: T, tick: u64) -> u32 {
        if self.free == NONE {
            let fresh =
                Entry { what: None, tick: 0, generation: 0, level: 0, slot: 0, previous: NONE, next: NONE };
            self.entries.push(fresh);
            self.free = self.entries.len() as u32 - 1;
        }
        let index = self.free;
        let entry = &mut self.entries[index as usize];
        self.free = entry.next;
        entry.what = Some(what);
        entry.tick = tick;
        index
    }

    /// Frees an entry, so that its key becomes stale. Returns its value, if the timer was set.
    fn release(&mut self, index: u32) -> Option<T> {
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = self.free;
        self.free = index;
        self.n_set -= 1;
        entry.what.take()
    }

    /// Appends an entry to the list of its slot, on the lowest level that reaches its tick.
    fn link(&mut self, index: u32) {
        let tick = self.entries[index as usize].tick;
        let distance = tick.saturating_sub(self.tick);
        let mut span = 1u64;
        let mut level = 0;
        while level + 1 < LEVELS && distance >= span * SLOTS as u64 {
            span *= SLOTS as u64;
            level += 1;
        }
        // A timer beyond the highest level waits in its last slot and is distributed again from there.
        let furthest = self.tick / span + SLOTS as u64 - 1;
        let slot = ((tick / span).min(furthest) % SLOTS as u64) as usize;
        let list = &mut self.slots[level][slot];
        let tail = list.tail;
        list.tail = index;
        if tail == NONE {
            list.head = index;
        } else {
            self.entries[tail as usize].next = index;
        }
        let entry = &mut self.entries[index as usize];
        (entry.level, entry.slot, entry.previous, entry.next) = (level as u8, slot as u8, tail, NONE);
    }

    /// Removes an entry from the list of its slot.
    fn unlink(&mut self, index: u32) {
        let entry = &self.entries[index as usize];
        let (level, slot, previous, next) = (entry.level, entry.slot, entry.previous, entry.next);
        let list = &mut self.slots[usize::from(level)][usize::from(slot)];
        if previous == NONE {
            list.head = next;
        } else {
            self.entries[previous as usize].next = next;
        }
        let list = &mut self.slots[usize::from(level)][usize::from(slot)];
        if next == NONE {
            list.tail = previous;
        } else {
            self.entries[next as usize].previous = previous;
        }
    }
}

/// When a timer for this time fires.
pub(crate) fn goes_off(at: Time) -> Time {
    Time((tick_of(at) as i64 + 1).saturating_mul(TICK_NS))
}

fn tick_of(time: Time) -> u64 {
    (time.0.max(0) / TICK_NS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::Interval;

    /// If it failed, deadlines would be wrong: a timer fires once, in its tick and not before, at any distance.
    #[test]
    fn timer_fires_once_in_its_tick() {
        let start = Time(1_700_000_000_123_456_789);
        let mut timers = Timers::new(start);
        let delays_ms = [0, 1, 5, 63, 64, 65, 4_095, 4_096, 4_097, 262_143, 262_144, 20_000_000];
        for (n, ms) in delays_ms.iter().enumerate() {
            timers.set(start + Interval::from_millis(*ms), n);
        }
        let mut fired = vec![None; delays_ms.len()];
        let mut due = Vec::new();
        while let Some(at) = timers.next() {
            timers.expire(at, &mut due);
            for n in due.drain(..) {
                assert_eq!(fired[n].replace(at), None);
            }
        }
        for (n, ms) in delays_ms.iter().enumerate() {
            let late = fired[n].expect("every timer fires") - (start + Interval::from_millis(*ms));
            assert!(late > Interval::ZERO && late <= Interval::from_millis(2), "{ms} ms fired {late} late");
        }
    }

    /// If it failed, a capture whose packets are years apart would stall.
    #[test]
    fn long_gap_expires_quickly() {
        let mut timers = Timers::new(Time(0));
        let year = Interval::from_secs(365 * 86_400);
        timers.set(Time(0) + year, 1);
        let mut due = Vec::new();
        for hours in 1..24 {
            timers.expire(Time(0) + Interval::from_secs(3600 * hours), &mut due);
        }
        assert!(due.is_empty());
        timers.expire(Time(0) + year, &mut due);
        assert!(due.is_empty());
        timers.expire(Time(0) + year + Interval::from_millis(2), &mut due);
        assert_eq!(due, [1]);
    }

    /// If it failed, timers that are drained and set again, as for moved ports, would fire at another time.
    #[test]
    fn drained_timers_can_be_set_again() {
        let mut timers = Timers::new(Time(0));
        for (n, ms) in [5, 300, 5, 70_000, 5].into_iter().enumerate() {
            timers.set(Time(0) + Interval::from_millis(ms), n);
        }
        let mut all = Vec::new();
        timers.drain(&mut all);
        assert_eq!(timers.next(), None);
        for (at, n) in all {
            timers.set(at, n);
        }
        let mut due = Vec::new();
        timers.expire(Time(0) + Interval::from_millis(6), &mut due);
        assert_eq!(due, [0, 2, 4]);
        timers.expire(Time(0) + Interval::from_millis(300), &mut due);
        assert_eq!(due, [0, 2, 4]);
        timers.expire(Time(0) + Interval::from_millis(70_001), &mut due);
        assert_eq!(due, [0, 2, 4, 1, 3]);
    }

    /// If it failed, a cancelled timer would fire, or its key would cancel the timer in the same slot.
    #[test]
    fn stale_key_cancels_nothing() {
        let start = Time(0);
        let mut timers = Timers::new(start);
        let first = timers.set(start + Interval::from_millis(3), 1);
        timers.cancel(first);
        timers.set(start + Interval::from_millis(3), 2);
        timers.cancel(first);
        let mut due = Vec::new();
        timers.expire(start + Interval::from_millis(10), &mut due);
        assert_eq!(due, [2]);
        assert_eq!(timers.next(), None);
    }
}
