//! Builds nodes and runs from intervals.

use super::super::line_pool::{LINE, LinePool};
use super::number::Number;
use super::{LONG, LONG_RUN_MAX, NODE_BITS_MAX, RUN_MAX, lines_of, node_entry, run_entry, width_for};

/// Writes the lines of a trie from intervals.
pub(super) struct Builder {
    pub(super) lines: LinePool,
    pub(super) depth: usize,
    /// The width of a node at the top.
    pub(super) root_bits: u8,
}

impl Builder {
    /// An entry for the block of values from `first` on that spans `left` bits; `intervals` are those that touch it.
    /// None if it would take too many lines.
    pub(super) fn entry<K: Number>(
        &mut self,
        intervals: &[(K, u32)],
        first: K,
        left: u8,
        depth: usize,
    ) -> Option<u32> {
        self.depth = self.depth.max(depth);
        if let [(_, id)] = intervals {
            return Some(*id);
        }
        if intervals.len() <= RUN_MAX
            && let Some(run) = self.run(intervals, left)
        {
            return run;
        }
        let mut width = match depth {
            0 => self.root_bits,
            _ => width_for(intervals.len(), NODE_BITS_MAX, left),
        };
        // If all intervals begin in one cell, a wide node would separate nothing.
        let cell = |at: usize| intervals[at].0.window(left - width, width);
        if cell(1) == cell(intervals.len() - 1) {
            if intervals.len() <= LONG_RUN_MAX
                && let Some(run) = self.run(intervals, left)
            {
                return run;
            }
            width = width.min(4);
        }
        let below = left - width;
        let base = self.lines.take(lines_of(1 << width))?;
        let (mut from, last) = (0, (1usize << width) - 1);
        for cell in 0..=last {
            let start = first.plus(cell, below);
            // The interval in which the cell begins, and those that begin inside.
            while intervals.get(from + 1).is_some_and(|&(begins, _)| begins <= start) {
                from += 1;
            }
            let mut end = from + 1;
            while intervals.get(end).is_some_and(|&(at, _)| cell == last || at < first.plus(cell + 1, below))
            {
                end += 1;
            }
            let entry = self.entry(&intervals[from..end], start, below, depth + 1)?;
            self.lines.set(base + cell, entry);
        }
        Some(node_entry(base / LINE, width))
    }

    /// A run, if its comparisons separate the intervals; None inside if there is no space for it.
    fn run<K: Number>(&mut self, intervals: &[(K, u32)], left: u8) -> Option<Option<u32>> {
        let begins = &intervals[1..];
        if !begins.iter().all(|(begins, _)| begins.fits_top_word(left)) {
            return None;
        }
        let n = intervals.len();
        assert!((2..=LONG_RUN_MAX).contains(&n), "one interval needs no run");
        let class = [2, 4, RUN_MAX].iter().position(|&most| n <= most).unwrap_or(LONG as usize);
        // Padding never starts an interval, or repeats the last one.
        let more = if class == LONG as usize { 0 } else { (2 << class) - n };
        let count = (class == LONG as usize).then_some(n as u32 - 1);
        let begins = begins.iter().map(|(begins, _)| begins.top_word(left));
        let ids = intervals.iter().map(|&(_, id)| id);
        let no_begins = core::iter::repeat_n(u32::MAX, more);
        let no_ids = core::iter::repeat_n(intervals[n - 1].1, more);
        let words = count.into_iter().chain(begins).chain(no_begins).chain(ids).chain(no_ids);
        let n_words = usize::from(count.is_some()) + 2 * (n + more) - 1;
        Some(self.lines.take(n_words).map(|first| {
            (first..).zip(words).for_each(|(at, word)| self.lines.set(at, word));
            run_entry(first, class as u32)
        }))
    }
}
