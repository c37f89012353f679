//! A map with a limit, in the order of writes: rows expire, and the oldest makes room.

use rustc_hash::FxHashMap;
use weft_core::{Interval, Time};

/// No entry.
const NONE: u32 = u32::MAX;

/// A map from texts to values. A value whose last write is `ttl` ago is absent; a new key beyond `max` takes the place
/// of the value whose last write is the longest ago.
pub(super) struct Bounded<V> {
    ttl: Option<Interval>,
    max: usize,
    index: FxHashMap<Box<[u8]>, u32>,
    entries: Vec<Entry<V>>,
    /// The entries from the oldest write to the newest, as a list through `entries`.
    oldest: u32,
    newest: u32,
}

struct Entry<V> {
    key: Box<[u8]>,
    value: V,
    written: Time,
    before: u32,
    after: u32,
}

impl<V> Bounded<V> {
    pub(super) fn new(ttl: Option<Interval>, max: usize) -> Self {
        Self { ttl, max, index: FxHashMap::default(), entries: Vec::new(), oldest: NONE, newest: NONE }
    }

    /// The value of `key`, to be written at `now`; `first` makes it where there is none.
    #[inline(always)]
    pub(super) fn write(&mut self, key: &[u8], now: Time, first: impl FnOnce() -> V) -> &mut V {
        let at = match self.index.get(key) {
            Some(&at) => {
                let entry = &mut self.entries[at as usize];
                if self.ttl.is_some_and(|ttl| entry.written + ttl <= now) {
                    entry.value = first();
                }
                if at != self.newest {
                    self.unlink(at);
                    self.link(at);
                }
                at
            }
            None => self.insert(key, first()),
        };
        let entry = &mut self.entries[at as usize];
        entry.written = now;
        &mut entry.value
    }

    #[inline(never)]
    fn insert(&mut self, key: &[u8], value: V) -> u32 {
        let entry = Entry { key: key.into(), value, written: Time(0), before: NONE, after: NONE };
        let at = if self.entries.len() < self.max {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        } else {
            let at = self.oldest;
            self.unlink(at);
            let old = core::mem::replace(&mut self.entries[at as usize], entry);
            self.index.remove(&old.key);
            at
        };
        self.link(at);
        self.index.insert(key.into(), at);
        at
    }

    #[inline(always)]
    fn link(&mut self, at: u32) {
        let before = self.newest;
        let entry = &mut self.entries[at as usize];
        (entry.before, entry.after) = (before, NONE);
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.after = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    #[inline(always)]
    fn unlink(&mut self, at: u32) {
        let Entry { before, after, .. } = self.entries[at as usize];
        match self.entries.get_mut(before as usize) {
            Some(entry) => entry.after = after,
            None => self.oldest = after,
        }
        match self.entries.get_mut(after as usize) {
            Some(entry) => entry.before = before,
            None => self.newest = before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The twin's map forgets what the element's table forgets; else the two would not do the same work.
    #[test]
    fn the_oldest_write_makes_room_and_age_expires() {
        let mut map = Bounded::new(Some(Interval(100)), 2);
        for (key, now, expected) in
            [("a", 0, 0), ("b", 1, 1), ("a", 2, 0), ("c", 3, 3), ("a", 4, 0), ("b", 5, 5), ("b", 105, 105)]
        {
            assert_eq!(*map.write(key.as_bytes(), Time(now), || now), expected, "{key} at {now}");
        }
    }
}
