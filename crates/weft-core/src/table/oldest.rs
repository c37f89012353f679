//! Finds the oldest rows of a stripe, which expire or are evicted first.
//!
//! A touch only stores the time into the row, so no list of rows is sorted. A caller that needs the oldest row searches
//! the stripe once and caches its oldest rows in order. The stamp of the last cached row is the *bound*.
//!
//! Stamps only grow. So every other row is as young as the bound or younger, and a cached row keeps its position until
//! its stamp changes. The first cached row with an unchanged stamp is therefore exactly the oldest row. The next search
//! is due when the cache is empty. By then as many rows were removed or touched as were cached, which pays for the
//! search.
//!
//! A row that is inserted or restored with a stamp below the bound (an import, an undo) is added to the cache. A touch
//! is not: if the clock of its worker is behind that of another, the order is off by the difference.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

/// The cache holds one of this many rows of the stripe's capacity: a quarter of the usual number of rows.
const KEPT_PART: u64 = 8;
const KEPT_MIN: u64 = 16;

/// A row with its age: its stamp, then its number in the stripe, which orders rows with the same stamp.
pub(super) type Aged = (i64, u32);

/// The cache of a stripe's oldest rows, by writes, touches or insertions, with their stamps at the time.
#[derive(Debug)]
pub(super) struct Oldest {
    entries: OnceLock<Box<[Entry]>>,
    entries_max: usize,
    /// The range in use: from here, the oldest, to `end`.
    head: AtomicU32,
    end: AtomicU32,
    /// No row outside the cache has a lower stamp.
    bound: AtomicI64,
}

#[derive(Debug, Default)]
struct Entry {
    stamp: AtomicI64,
    local: AtomicU32,
}

impl Oldest {
    /// An empty cache, for a stripe with this capacity.
    pub(super) fn new(stripe_rows: u64) -> Self {
        Self {
            entries: OnceLock::new(),
            entries_max: entries_max(stripe_rows),
            head: AtomicU32::new(0),
            end: AtomicU32::new(0),
            bound: AtomicI64::new(i64::MIN),
        }
    }

    pub(super) fn bytes_max(stripe_rows: u64) -> u64 {
        (entries_max(stripe_rows) * size_of::<Entry>()) as u64
    }

    pub(super) fn bytes(&self) -> u64 {
        self.entries.get().map_or(0, |entries| size_of_val(&**entries)) as u64
    }

    /// The first cached row with its cached stamp.
    pub(super) fn first(&self) -> Option<Aged> {
        let (head, end) = self.range();
        (head < end).then(|| self.entries()[head].get())
    }

    /// Removes the first cached row: it is gone or has a new stamp.
    pub(super) fn skip_first(&self) {
        let (head, end) = self.range();
        assert!(head < end, "there is a first row");
        self.head.store(head as u32 + 1, Relaxed);
    }

    /// A lower bound of the stamps of all rows of the stripe.
    pub(super) fn stamp_min(&self) -> i64 {
        self.first().map_or(self.bound.load(Relaxed), |(stamp, _)| stamp)
    }

    /// Caches the oldest of these rows, which are all rows of the stripe.
    #[cold]
    pub(super) fn refill(&self, mut rows: Vec<Aged>) {
        if rows.len() > self.entries_max {
            rows.select_nth_unstable(self.entries_max - 1);
            rows.truncate(self.entries_max);
        }
        assert!(rows.len() <= self.entries_max, "the cache has room for them");
        rows.sort_unstable();
        self.entries().iter().zip(&rows).for_each(|(entry, row)| entry.set(*row));
        self.head.store(0, Relaxed);
        self.end.store(rows.len() as u32, Relaxed);
        self.bound.store(rows.last().map_or(i64::MIN, |(stamp, _)| *stamp), Relaxed);
    }

    /// Updates the cache for a row whose stamp may have become lower.
    #[inline(always)]
    pub(super) fn admit(&self, row: Aged) {
        if row.0 < self.bound.load(Relaxed) {
            self.admit_below_bound(row);
        }
    }

    /// Inserts a row in its order by age. If the list is full, its youngest row or this one leaves it.
    #[cold]
    #[inline(never)]
    fn admit_below_bound(&self, row: Aged) {
        let ((head, end), entries) = (self.range(), self.entries());
        let at = head + entries[head..end].partition_point(|entry| entry.get() < row);
        if at < end && entries[at].get() == row {
            return;
        }
        if head > 0 {
            (head..at).for_each(|i| entries[i - 1].set(entries[i].get()));
            entries[at - 1].set(row);
            return self.head.store(head as u32 - 1, Relaxed);
        }
        let is_full = end == entries.len();
        if is_full {
            // The last row, or this one, leaves the cache.
            let last = entries[end - 1].get();
            self.bound.store(last.max(row).0, Relaxed);
            if at == end {
                return;
            }
        }
        let kept = if is_full { end - 1 } else { end };
        (at..kept).rev().for_each(|i| entries[i + 1].set(entries[i].get()));
        entries[at].set(row);
        self.end.store(kept as u32 + 1, Relaxed);
    }

    fn range(&self) -> (usize, usize) {
        (self.head.load(Relaxed) as usize, self.end.load(Relaxed) as usize)
    }

    fn entries(&self) -> &[Entry] {
        self.entries.get_or_init(|| (0..self.entries_max).map(|_| Entry::default()).collect())
    }
}

impl Entry {
    fn get(&self) -> Aged {
        (self.stamp.load(Relaxed), self.local.load(Relaxed))
    }

    fn set(&self, (stamp, local): Aged) {
        self.stamp.store(stamp, Relaxed);
        self.local.store(local, Relaxed);
    }
}

fn entries_max(stripe_rows: u64) -> usize {
    (stripe_rows / KEPT_PART).max(KEPT_MIN) as usize
}
