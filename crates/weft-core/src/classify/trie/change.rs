//! Changes of a trie in place: inserts and removes rules, and rebuilds what is below the cells that they touch.

use core::hint::black_box;
use core::ops::Range;

use super::super::NOTHING;
use super::super::cells::Cells;
use super::super::key::{KeyBits, ones};
use super::super::line_pool::{LINE, LINES_MAX, QUARTER};
use super::super::rule_store::{Rank, RuleStore, StoredRule, id_of};
use super::builder::Builder;
use super::intervals::{intervals, intervals_of_few};
use super::number::Number;
use super::{ENTRIES_MAX, Entry, FEW, LONG, NODE, RUN, Trie, lines_of, width_of};

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Change {
    Inserted,
    Removed,
}

impl Trie {
    /// Reads the memory for changes of these rules; the reads overlap.
    pub(in super::super) fn prefetch(&self, store: &RuleStore, rules: &[StoredRule<'_>]) {
        match self.high {
            None => self.prefetch_numbers::<u64>(store, rules),
            Some(_) => self.prefetch_numbers::<u128>(store, rules),
        }
    }

    /// As [`Trie::prefetch`], for one width of values.
    fn prefetch_numbers<K: Number>(&self, store: &RuleStore, rules: &[StoredRule<'_>]) {
        let Some(cells) = &self.cells else { return };
        let first = |rule: &StoredRule<'_>| {
            let parts = self.parts::<K>(self.number(rule.lo), self.number(rule.hi));
            parts.cells.into_iter().find(|touched| !touched.is_empty()).map(|touched| touched.start)
        };
        let touched: Vec<usize> = rules.iter().filter_map(first).collect();
        let top = self.top::<K>();
        let words = touched.iter().fold(0, |all, cell| all ^ self.lines.word(top.word(*cell)));
        let ids = cells.of_all(touched.into_iter());
        let others = ids.into_iter().filter_map(|id| store.get(id));
        black_box((words, others.fold(0, |all, rule| all ^ rule.rank ^ rule.hi[0])));
    }

    /// Applies the insertion or removal of a rule; false if the trie cannot take it, so that it must be rebuilt.
    pub(super) fn change(&mut self, store: &RuleStore, rule: StoredRule<'_>, change: Change) -> bool {
        let is_open = |place: &KeyBits| place.of(rule.lo) == 0 && place.of(rule.hi) == ones(place.bits);
        if rule.extra.is_some() || !self.others.iter().all(is_open) {
            return false;
        }
        let Some(mut cells) = self.cells.take() else { return false };
        let done = match self.high {
            None => self.change_parts::<u64>(&mut cells, store, rule, change),
            Some(_) => self.change_parts::<u128>(&mut cells, store, rule, change),
        };
        self.cells = Some(cells);
        done
    }

    /// Applies a change to the short prefixes and to the cells; false if it cannot be applied to all.
    fn change_parts<K: Number>(
        &mut self,
        cells: &mut Cells,
        store: &RuleStore,
        rule: StoredRule<'_>,
        change: Change,
    ) -> bool {
        let parts = self.parts::<K>(self.number(rule.lo), self.number(rule.hi));
        self.lower_prefix_ranks::<K>(rule, rule.rank);
        let mut done = self.change_short_prefixes::<K>(cells, parts.short_prefixes, store, rule.rank, change);
        for touched in parts.cells.into_iter().filter(|touched| !touched.is_empty()) {
            let above = Some(Vec::new());
            done &= self.change_cells(cells, self.top::<K>(), touched, above, store, rule, change);
        }
        done
    }

    /// Lowers the rank bounds of the short-prefix entries in which the trie has this rule.
    pub(super) fn lower_prefix_ranks<K: Number>(&mut self, rule: StoredRule<'_>, rank: Rank) {
        // Without short prefixes, the root may be no node.
        if self.short_prefixes.is_none() {
            return;
        }
        let cells = self.parts::<K>(self.number(rule.lo), self.number(rule.hi)).cells;
        if let Some(short_prefixes) = &mut self.short_prefixes {
            short_prefixes.entries_of(cells).for_each(|entry| short_prefixes.lower_least(entry, rank));
        }
    }

    /// Applies a change to short-prefix entries, and rebuilds the cells in which it hides or uncovers rules; false if
    /// it cannot be applied to all.
    fn change_short_prefixes<K: Number>(
        &mut self,
        cells: &Cells,
        entries: Range<usize>,
        store: &RuleStore,
        rank: Rank,
        change: Change,
    ) -> bool {
        let (Some(short_prefixes), false) = (&mut self.short_prefixes, entries.is_empty()) else {
            return true;
        };
        let (id, rank_of) = (id_of(rank), |id: u32| store.get(id).map(|rule| rule.rank));
        let is_known = match change {
            Change::Inserted => short_prefixes.has_room(entries.len()),
            Change::Removed => short_prefixes.has(entries.start, id),
        };
        if !is_known {
            return false;
        }
        let is_best = |entry: usize| match change {
            Change::Inserted => rank_of(short_prefixes.best(entry)).is_none_or(|best| best < rank),
            Change::Removed => short_prefixes.best(entry) == id,
        };
        let hides = |entry: &usize| short_prefixes.may_hide(*entry, rank) && is_best(*entry);
        let hiding: Vec<usize> = entries.clone().filter(hides).take(ENTRIES_MAX + 1).collect();
        if hiding.len() > ENTRIES_MAX || entries.clone().any(|entry| short_prefixes.is_lost(entry)) {
            if change == Change::Removed {
                entries.for_each(|entry| short_prefixes.mark_lost(entry));
            }
            return false;
        }
        let mut done = true;
        for entry in entries {
            match change {
                Change::Inserted => short_prefixes.add(entry, rank, rank_of),
                Change::Removed => done &= short_prefixes.remove(entry, id, rank_of),
            }
        }
        for entry in hiding {
            let is_made = self.rebuild_entry::<K>(cells, entry, store).is_some();
            if let (Some(short_prefixes), Change::Removed, false) =
                (&mut self.short_prefixes, change, is_made)
            {
                short_prefixes.mark_lost_with(entry, id);
            }
            done &= is_made;
        }
        done
    }

    /// Rebuilds the cells of a short-prefix entry. None if that is not possible for all.
    fn rebuild_entry<K: Number>(&mut self, cells: &Cells, entry: usize, store: &RuleStore) -> Option<()> {
        let own = self.short_prefixes.as_ref()?.cells_of(entry..entry + 1);
        if cells.is_parted(own.clone()) {
            return None;
        }
        own.clone().try_for_each(|cell| self.rebuild_below(cells, self.top::<K>(), cell, &[], store))?;
        let rules = own.filter_map(|cell| cells.of(cell)).flatten();
        self.short_prefixes
            .as_mut()?
            .set_least(entry, rules.filter_map(|id| store.get(id)).map(|rule| rule.rank));
        Some(())
    }

    /// Applies a change to some cells of a node and rebuilds them; false if it cannot be applied to all. `above` are
    /// the rules that cover the whole node and are listed above it, if known.
    #[expect(clippy::too_many_arguments, reason = "it goes down by itself")]
    fn change_cells<K: Number>(
        &mut self,
        cells: &mut Cells,
        at: Entry<K>,
        touched: Range<usize>,
        mut above: Option<Vec<u32>>,
        store: &RuleStore,
        rule: StoredRule<'_>,
        change: Change,
    ) -> bool {
        let (cell, id) = (touched.start, id_of(rule.rank));
        let (lo, hi) = (self.number(rule.lo), self.number(rule.hi));
        let is_inner = at.touched(lo, hi).all().len() == 1;
        if is_inner && cells.is_parted(touched.clone()) {
            above = above.zip(cells.of(cell)).map(|(mut above, listed)| {
                above.extend(listed);
                above
            });
            let Some(below) = cells.below(cell) else { return false };
            let at = at.below(cell, self.lines.word(at.word(cell)));
            let touched = at.touched(lo, hi).all();
            return self.change_cells(below, at, touched, above, store, rule, change);
        }
        let is_applied = match change {
            Change::Inserted => cells.add(touched.clone(), id),
            Change::Removed => cells.remove(touched.clone(), id),
        };
        let is_parted = cells.is_parted(touched.clone());
        let Some(above) = above.filter(|_| is_applied && !is_parted) else { return false };
        touched.into_iter().all(|cell| self.rebuild_below(cells, at, cell, &above, store).is_some())
    }

    /// Rebuilds what is below a cell of a node. None if its rules are not known, or there is no space; it is then
    /// unchanged.
    fn rebuild_below<K: Number>(
        &mut self,
        cells: &Cells,
        at: Entry<K>,
        cell: usize,
        above: &[u32],
        store: &RuleStore,
    ) -> Option<()> {
        assert!(cell >> at.width() == 0, "the node has this cell");
        let before = self.lines.word(at.word(cell));
        let Entry { first, left, depth, .. } = at.below(cell, before);
        let last = first.last(left);
        let rules = cells.of(cell)?.chain(above.iter().copied()).filter_map(|id| store.get(id));
        let spans = rules.map(|rule| (self.number::<K>(rule.lo), self.number::<K>(rule.hi), rule.rank));
        let mut own = Vec::with_capacity(FEW);
        own.extend(spans.filter(|&(lo, hi, _)| lo <= last && first <= hi));
        let short_prefix = self.best_short_prefix(first)?;
        own.extend(store.get(short_prefix).map(|rule| (first, last, rule.rank)));
        let mut intervals = match own.len() {
            0..=FEW => intervals_of_few(&own, first, last),
            _ => intervals(&mut own, first, last.wide()),
        };
        for (_, id) in intervals.iter_mut().filter(|(_, id)| *id == short_prefix) {
            *id = NOTHING;
        }
        let lines = core::mem::take(&mut self.lines);
        let mut builder = Builder { lines, depth: self.depth, root_bits: 0 };
        let entry = builder.entry(&intervals, first, left, depth);
        (self.lines, self.depth) = (builder.lines, builder.depth);
        self.lines.set(at.word(cell), entry?);
        self.free_entry(before);
        Some(())
    }

    /// Finds the best short prefix for a value; None if it is not known.
    fn best_short_prefix<K: Number>(&self, value: K) -> Option<u32> {
        let Some(short_prefixes) = &self.short_prefixes else { return Some(NOTHING) };
        let entry = self.entry_of(short_prefixes, value);
        (!short_prefixes.is_lost(entry)).then(|| short_prefixes.best(entry))
    }

    /// Frees the lines of an entry and of everything below it.
    fn free_entry(&mut self, entry: u32) {
        if entry >> 30 == NODE >> 30 {
            let (first, entries) = (entry as usize & (LINES_MAX - 1), 1 << width_of(entry));
            (0..entries).for_each(|at| self.free_entry(self.lines.word(first * LINE + at)));
            self.lines.free_piece(first * LINE, lines_of(entries));
        } else if entry >> 30 == RUN >> 30 {
            let (class, first) = (entry >> 28 & 3, (entry as usize & ((1 << 28) - 1)) * QUARTER);
            let words = match class {
                LONG => 2 + 2 * self.lines.word(first) as usize,
                class => QUARTER << class,
            };
            self.lines.free_piece(first, words);
        }
    }
}
