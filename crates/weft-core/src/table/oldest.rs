//! The oldest rows of a stripe, found when somebody asks for them.
//!
//! A touch stores the time into the row and does nothing else, so no list of rows is in order. Who needs the oldest row
//! looks through the stripe once and keeps a part of its rows, the oldest, in order. The stamp of the last of them is
//! the *bound*. Stamps only grow, so every row that is not kept is as young as the bound or younger, and a row that is
//! kept is in its place unless its stamp has changed: the first whose stamp is the same is the oldest row, exactly.
//! The next look is due when none is left. By then as many rows have gone or were touched as were kept, which pays for
//! the look. A row that is inserted or put back with a stamp below the bound (an import, an undo) is put in its place.
//! A touch is not: if the clock of the worker that makes it is behind that of another, the order is off by as much.

use core::sync::atomic::{AtomicI64, AtomicU32, Ordering::Relaxed};
use std::sync::OnceLock;

/// A stripe keeps one of so many rows that it has room for: a quarter of those that it usually has.
const KEPT_PART: u64 = 8;
const KEPT_MIN: u64 = 16;

/// A row by its age: its stamp, then its number in the stripe, in whose order rows of one moment go.
pub(super) type Aged = (i64, u32);

/// The oldest rows of a stripe, by writes or by touches, with the stamps that they had.
#[derive(Debug)]
pub(super) struct Oldest {
    entries: OnceLock<Box<[Entry]>>,
    entries_max: usize,
    /// Those in use: from here, the oldest, to `end`.
    head: AtomicU32,
    end: AtomicU32,
    /// No other row has a lower stamp.
    bound: AtomicI64,
}

#[derive(Debug, Default)]
struct Entry {
    stamp: AtomicI64,
    local: AtomicU32,
}

impl Oldest {
    /// Of a stripe with room for this many rows: nothing is known of them.
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

    /// The first row that is kept, as old as it was.
    pub(super) fn first(&self) -> Option<Aged> {
        let (head, end) = self.range();
        (head < end).then(|| self.entries()[head].get())
    }

    /// Forgets the first row that is kept: it is gone, or younger than it was.
    pub(super) fn skip_first(&self) {
        self.head.store(self.head.load(Relaxed) + 1, Relaxed);
    }

    /// No row of the stripe has a lower stamp than this.
    pub(super) fn stamp_min(&self) -> i64 {
        self.first().map_or(self.bound.load(Relaxed), |(stamp, _)| stamp)
    }

    /// Keeps the oldest of these, which are all rows of the stripe.
    #[cold]
    pub(super) fn refill(&self, mut rows: Vec<Aged>) {
        if rows.len() > self.entries_max {
            rows.select_nth_unstable(self.entries_max - 1);
            rows.truncate(self.entries_max);
        }
        rows.sort_unstable();
        self.entries().iter().zip(&rows).for_each(|(entry, row)| entry.set(*row));
        self.head.store(0, Relaxed);
        self.end.store(rows.len() as u32, Relaxed);
        self.bound.store(rows.last().map_or(i64::MIN, |(stamp, _)| *stamp), Relaxed);
    }

    /// A row has this stamp now, and need not have had a lower one.
    #[inline(always)]
    pub(super) fn admit(&self, row: Aged) {
        if row.0 < self.bound.load(Relaxed) {
            self.admit_below_bound(row);
        }
    }

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
            // The last one, or this row, is not kept from here on.
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
