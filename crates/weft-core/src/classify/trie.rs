//! Rules that care for one field: a multibit trie over the intervals of its values.
//!
//! Sorted by their ends, the rules cut the values of the field into intervals, each with one best rule, whatever the
//! priorities are; longest-prefix match is the case in which longer prefixes have greater ones. The trie goes down by
//! windows of bits from the top, as wide as there are intervals to tell apart, so that a full table is one wide root
//! and mostly one more line of memory; a handful of intervals is a *run* that is compared value by value. Source: in
//! the manner of DIR-24-8 (P. Gupta and others, INFOCOM 1998) and level-compressed tries (S. Nilsson and G. Karlsson,
//! 1999).
//!
//! Where the root is a node, the trie takes changes: each cell of the root knows its rules ([`Cells`]), and what is
//! below the cells that a rule touches is made anew of these. Where a cell is crowded and holds a node, the cells of
//! that know them. Rules that touch very many cells are left to whoever asks.

use std::collections::BinaryHeap;

use super::cells::{Cells, Touched};
use super::key::{Layout, Place, ones};
use super::lines::{LINE, LINES_MAX, Lines, QUARTER};
use super::space::AHEAD;
use super::store::{Rank, Store, Stored, id_of};
use super::{NOTHING, TRIE_LINES_MAX};

/// Intervals of a run: where all but one of them begin, and their rules, are within a line. Runs of half as many and of
/// a quarter take half a line and a quarter.
const RUN_MAX: usize = 8;
/// Intervals of a run in place of a path of nodes that tell nothing apart.
const LONG_RUN_MAX: usize = 31;
/// The widest root.
const ROOT_BITS_MAX: u8 = 20;
/// The widest node below it.
const NODE_BITS_MAX: u8 = 10;

/// The best rule for each value of a field.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    low: Place,
    high: Option<Place>,
    /// Bits of the field.
    bits: u8,
    root: u32,
    /// Entries of nodes, and runs: where their intervals begin, but for the first, and their rules.
    lines: Lines,
    depth: usize,
    /// What changes need to know; without, the trie takes none.
    cells: Option<Cells>,
    /// The places of the other fields, of which its rules admit everything.
    others: Vec<Place>,
    /// Rules that it was built of.
    built_of: usize,
}

/// What happens to a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Came,
    Gone,
}

/// Values of a field, of up to 64 or of up to 128 bits.
trait Number: Copy + Ord + From<u64> {
    fn of(low: u64, high: u64) -> Self;
    fn window(self, shift: u8, bits: u8) -> usize;
    fn next(self) -> Option<Self>;
    fn plus(self, cells: usize, shift: u8) -> Self;
    /// The last of the values that differ from this one, the first of them, in their lowest bits.
    fn last(self, bits: u8) -> Self;
    /// The 32 bits below those that are known, of values that differ in `left` bits.
    fn shown(self, left: u8) -> u32;
    /// Whether there is nothing below these.
    fn is_shown(self, left: u8) -> bool;
    fn wide(self) -> u128;
}

impl Number for u64 {
    #[inline(always)]
    fn of(low: u64, _high: u64) -> Self {
        low
    }
    #[inline(always)]
    fn window(self, shift: u8, bits: u8) -> usize {
        (self >> (shift & 63)) as usize & ((1 << bits) - 1)
    }
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn plus(self, cells: usize, shift: u8) -> Self {
        self + ((cells as Self) << shift)
    }
    fn last(self, bits: u8) -> Self {
        self | ones(bits)
    }
    #[inline(always)]
    fn shown(self, left: u8) -> u32 {
        (self >> (left.saturating_sub(32) & 63)) as u32
    }
    fn is_shown(self, left: u8) -> bool {
        self & ones(left.saturating_sub(32)) == 0
    }
    fn wide(self) -> u128 {
        u128::from(self)
    }
}

impl Number for u128 {
    #[inline(always)]
    fn of(low: u64, high: u64) -> Self {
        Self::from(high) << 64 | Self::from(low)
    }
    #[inline(always)]
    fn window(self, shift: u8, bits: u8) -> usize {
        (self >> (shift & 127)) as usize & ((1 << bits) - 1)
    }
    fn next(self) -> Option<Self> {
        self.checked_add(1)
    }
    fn plus(self, cells: usize, shift: u8) -> Self {
        self + ((cells as Self) << shift)
    }
    fn last(self, bits: u8) -> Self {
        self | !(Self::MAX << bits)
    }
    #[inline(always)]
    fn shown(self, left: u8) -> u32 {
        (self >> (left.saturating_sub(32) & 127)) as u32
    }
    fn is_shown(self, left: u8) -> bool {
        self & !(Self::MAX << left.saturating_sub(32)) == 0
    }
    fn wide(self) -> u128 {
        self
    }
}

// An entry with the highest bit clear is the id of a rule, or NOTHING. The next bit tells nodes from runs. A node has
// its width less one from bit 25 and its first line below; a run has its class from bit 28 and its first quarter of a
// line below. Classes 0 to 2 hold 2, 4 and 8 intervals; in class 3 the first word says how many.
/// An entry that is a node.
pub const NODE: u32 = 0b10 << 30;
/// One that is a run.
pub const RUN: u32 = 0b11 << 30;
/// The class of runs that say how long they are.
pub const LONG: u32 = 3;

fn node_entry(line: usize, width: u8) -> u32 {
    NODE | u32::from(width - 1) << 25 | line as u32
}

fn run_entry(word: usize, class: u32) -> u32 {
    RUN | class << 28 | (word / QUARTER) as u32
}

impl Trie {
    /// A trie over the one field that the rules of a store care for, if there is no other and none has a mask, and the
    /// trie does not take more than [`TRIE_LINES_MAX`] lines an interval.
    pub(super) fn build(layout: &Layout, store: &Store) -> Option<Self> {
        let field = only_field(layout, store)?;
        let (low, high) = layout.places(field);
        let mut trie = if high.is_some() {
            Self::over::<u128>(low, high, layout.fields()[field].bits, store)?
        } else {
            Self::over::<u64>(low, high, layout.fields()[field].bits, store)?
        };
        trie.others = layout.all_places().filter(|place| *place != low && Some(*place) != high).collect();
        trie.built_of = store.len();
        Some(trie)
    }

    /// Takes in a rule that is in the store. False: it has to stand beside, for it asks for another field, or touches
    /// very many cells, or there is no room.
    pub(super) fn insert(&mut self, store: &Store, rule: Stored<'_>) -> bool {
        self.change(store, rule, Change::Came)
    }

    /// Forgets a rule. False: it may still be found.
    pub(super) fn remove(&mut self, store: &Store, rule: Stored<'_>) -> bool {
        self.change(store, rule, Change::Gone)
    }

    /// These rules, in ascending order, are not what they were when the trie was built. Of those that touch very many
    /// cells that has to be known before any cell is made anew: what they hid may be what is best there.
    pub(super) fn note_changed(&mut self, ids: &[u32]) {
        if let Some(cells) = &mut self.cells {
            cells.forget_wide(&|id| ids.binary_search(&id).is_ok());
        }
    }

    /// Whether its root is too wide or too narrow for as many rules.
    pub(super) fn is_worn(&self, rules: usize) -> bool {
        rules > 2 * self.built_of.max(RUN_MAX) || rules < self.built_of / 4
    }

    /// The place of the field, its bits, and the entry of the root, of a trie over one place.
    pub(crate) fn spelled(&self) -> Option<(Place, u8, u32)> {
        self.high.is_none().then_some((self.low, self.bits, self.root))
    }

    /// Where the lines begin, for as long as nothing is changed.
    pub(crate) fn address(&self) -> usize {
        self.lines.address()
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines.bytes() + self.cells.as_ref().map_or(0, Cells::bytes)
    }

    /// The best rule for a key, or [`NOTHING`].
    #[inline(always)]
    pub(super) fn find(&self, key: &[u64]) -> u32 {
        match self.high {
            None => self.value_of(self.low.of(key)),
            Some(high) => self.value_of(u128::of(self.low.of(key), high.of(key))),
        }
    }

    /// As [`find`](Self::find), for up to [`AHEAD`] keys that go down the trie side by side.
    #[inline(always)]
    pub(super) fn find_batch<const N: usize>(&self, keys: &[[u64; N]], found: &mut [u32]) {
        match self.high {
            None => self.values_of(keys.iter().map(|key| self.low.of(key)), found),
            Some(high) => {
                self.values_of(keys.iter().map(|key| u128::of(self.low.of(key), high.of(key))), found)
            }
        }
    }

    /// Lines that a look-up reads.
    pub(super) fn touches(&self, key: &[u64]) -> usize {
        let value = u128::of(self.low.of(key), self.high.map_or(0, |high| high.of(key)));
        let (mut entry, mut left, mut touched) = (self.root, self.bits, 0);
        while entry >> 30 == NODE >> 30 {
            (entry, left) = self.step(entry, left, value);
            touched += 1;
        }
        touched + usize::from(entry >> 30 == RUN >> 30)
    }

    #[inline(always)]
    fn value_of<K: Number>(&self, value: K) -> u32 {
        let (mut entry, mut left) = (self.root, self.bits);
        while entry >> 30 == NODE >> 30 {
            (entry, left) = self.step(entry, left, value);
        }
        if entry >> 31 == 0 { entry } else { self.find_in_run(entry, value.shown(left)) }
    }

    #[inline(always)]
    fn values_of<K: Number>(&self, values: impl Iterator<Item = K>, found: &mut [u32]) {
        let mut at = [(K::from(0), NOTHING, 0); AHEAD];
        let at = &mut at[..found.len()];
        if self.root >> 30 != NODE >> 30 {
            values.zip(found).for_each(|(value, found)| *found = self.value_of(value));
            return;
        }
        for (at, value) in at.iter_mut().zip(values) {
            let (entry, left) = self.step(self.root, self.bits, value);
            *at = (value, entry, left);
        }
        while at.iter().any(|(_, entry, _)| entry >> 30 == NODE >> 30) {
            for (value, entry, left) in at.iter_mut() {
                // Without a branch: which of the keys has arrived where cannot be foretold.
                let goes_on = *entry >> 30 == NODE >> 30;
                let (next, below) = self.step(if goes_on { *entry } else { 0 }, *left, *value);
                (*entry, *left) = if goes_on { (next, below) } else { (*entry, *left) };
            }
        }
        for ((value, entry, left), found) in at.iter().zip(found) {
            let is_rule = *entry >> 31 == 0;
            let in_run = self.find_in_run(if is_rule { RUN } else { *entry }, value.shown(*left));
            *found = if is_rule { *entry } else { in_run };
        }
    }

    /// The entry of a value in a node of values that differ in `left` bits, and in how many they differ below it.
    #[inline(always)]
    fn step<K: Number>(&self, entry: u32, left: u8, value: K) -> (u32, u8) {
        let width = (entry >> 25 & 31) as u8 + 1;
        let below = left.wrapping_sub(width);
        let number = value.window(below, width);
        (self.lines.word((entry as usize & (LINES_MAX - 1)) * LINE + number), below)
    }

    #[inline(always)]
    fn find_in_run(&self, entry: u32, value: u32) -> u32 {
        let (class, word) = (entry >> 28 & 3, (entry as usize & ((1 << 28) - 1)) * QUARTER);
        if class == LONG {
            return self.find_in_long_run(word, value);
        }
        let (line, first) = (self.lines.line(word), word % LINE);
        let begins = (2 << class) - 1;
        let begun = |at: usize| usize::from((at < begins) & (line[(first + at) % LINE] <= value));
        let n: usize = (0..RUN_MAX - 1).map(begun).sum();
        line[(first + begins + n) % LINE]
    }

    #[cold]
    fn find_in_long_run(&self, first: usize, value: u32) -> u32 {
        let word = |at: usize| self.lines.word(first + at);
        let begins = word(0) as usize;
        let n = (1..=begins).take_while(|&at| word(at) <= value).count();
        word(1 + begins + n)
    }

    fn over<K: Number>(low: Place, high: Option<Place>, bits: u8, store: &Store) -> Option<Self> {
        let number = |words: &[u64]| K::of(low.of(words), high.map_or(0, |high| high.of(words)));
        let mut spans: Vec<(K, K, Rank)> =
            store.iter().map(|rule| (number(rule.lo), number(rule.hi), rule.rank)).collect();
        let intervals = intervals(&mut spans, K::from(0), u128::MAX >> (128 - bits));
        let mut builder = Builder { lines: Lines::new(TRIE_LINES_MAX * intervals.len()), depth: 0 };
        let root = builder.entry(&intervals, K::from(0), bits, 0)?;
        let Builder { mut lines, depth } = builder;
        lines.make_room();
        let mut trie =
            Self { low, high, bits, root, lines, depth, cells: None, others: Vec::new(), built_of: 0 };
        if root >> 30 == NODE >> 30 {
            spans.sort_unstable_by_key(|&(.., rank)| rank);
            trie.cells = Some(trie.cells_of(trie.top(), &spans, store));
        }
        Some(trie)
    }

    /// The cells of a node with these rules, the worst first; those that are crowded, and hold nodes, are parted again.
    fn cells_of<K: Number>(&self, at: At<K>, spans: &[(K, K, Rank)], store: &Store) -> Cells {
        let rules = spans.iter().map(|&(lo, hi, rank)| (id_of(rank), at.touched(lo, hi)));
        let mut cells = Cells::of_rules(1 << at.width(), rules);
        let span = |id: u32| {
            let rule = store.get(id)?;
            Some((self.number::<K>(rule.lo), self.number::<K>(rule.hi), rule.rank))
        };
        for cell in cells.crowded() {
            let below = at.below(cell, self.lines.word(at.word(cell)));
            if below.entry >> 30 != NODE >> 30 {
                continue;
            }
            let (first, last) = (below.first, below.first.last(below.left));
            let is_inner = |id| span(id).is_some_and(|(lo, hi, _)| first <= lo && hi <= last);
            cells.part(cell, is_inner, |own| {
                let mut spans: Vec<_> = own.into_iter().filter_map(span).collect();
                spans.sort_unstable_by_key(|&(.., rank)| rank);
                self.cells_of(below, &spans, store)
            });
        }
        cells
    }

    // ---- changes -------------------------------------------------------------------------------------------------

    fn change(&mut self, store: &Store, rule: Stored<'_>, change: Change) -> bool {
        let is_open = |place: &Place| place.of(rule.lo) == 0 && place.of(rule.hi) == ones(place.bits);
        if rule.extra.is_some() || !self.others.iter().all(is_open) {
            return false;
        }
        let Some(mut cells) = self.cells.take() else { return false };
        let done = match self.high {
            None => self.change_in::<u64>(&mut cells, self.top(), Some(Vec::new()), store, rule, change),
            Some(_) => self.change_in::<u128>(&mut cells, self.top(), Some(Vec::new()), store, rule, change),
        };
        self.cells = Some(cells);
        done
    }

    /// Notes a change in each cell of a node that the rule touches, and makes them anew; false if it does not go for
    /// all. `above` are the rules that hold all of the node and are noted above it, if that is known.
    fn change_in<K: Number>(
        &mut self,
        cells: &mut Cells,
        at: At<K>,
        mut above: Option<Vec<u32>>,
        store: &Store,
        rule: Stored<'_>,
        change: Change,
    ) -> bool {
        let touched = at.touched(self.number(rule.lo), self.number(rule.hi));
        let (cell, id) = (touched.first, id_of(rule.rank));
        if cell == touched.last && cells.is_parted(touched) {
            above = above.zip(cells.of(cell)).map(|(mut above, noted)| {
                above.extend(noted);
                above
            });
            let Some(below) = cells.below(cell) else { return false };
            let at = at.below(cell, self.lines.word(at.word(cell)));
            return self.change_in(below, at, above, store, rule, change);
        }
        let is_noted = match change {
            Change::Came => cells.note(touched, id),
            Change::Gone => cells.forget(touched, id),
        };
        let Some(above) = above.filter(|_| is_noted && !cells.is_parted(touched)) else { return false };
        let mut touched = touched.first..=touched.last;
        touched.all(|cell| self.make_anew(cells, at, cell, &above, store).is_some())
    }

    /// Makes what is below a cell of a node anew. None if it is not known of what, or there is no room; then it is as
    /// it was.
    fn make_anew<K: Number>(
        &mut self,
        cells: &Cells,
        at: At<K>,
        cell: usize,
        above: &[u32],
        store: &Store,
    ) -> Option<()> {
        let before = self.lines.word(at.word(cell));
        let At { first, left, depth, .. } = at.below(cell, before);
        let last = first.last(left);
        let rules = cells.of(cell)?.chain(above.iter().copied()).filter_map(|id| store.get(id));
        let spans = rules.map(|rule| (self.number::<K>(rule.lo), self.number::<K>(rule.hi), rule.rank));
        let mut spans: Vec<_> = spans.filter(|&(lo, hi, _)| lo <= last && first <= hi).collect();
        let intervals = intervals(&mut spans, first, last.wide());
        let lines = core::mem::take(&mut self.lines);
        let mut builder = Builder { lines, depth: self.depth };
        let entry = builder.entry(&intervals, first, left, depth);
        (self.lines, self.depth) = (builder.lines, builder.depth);
        self.lines.set(at.word(cell), entry?);
        self.give(before);
        Some(())
    }

    /// Gives back the lines of an entry, and of all below it.
    fn give(&mut self, entry: u32) {
        if entry >> 30 == NODE >> 30 {
            let (first, entries) = (entry as usize & (LINES_MAX - 1), 1 << ((entry >> 25 & 31) + 1));
            (0..entries).for_each(|at| self.give(self.lines.word(first * LINE + at)));
            self.lines.give(first * LINE, lines_of(entries));
        } else if entry >> 30 == RUN >> 30 {
            let (class, first) = (entry >> 28 & 3, (entry as usize & ((1 << 28) - 1)) * QUARTER);
            let words = match class {
                LONG => 2 + 2 * self.lines.word(first) as usize,
                class => QUARTER << class,
            };
            self.lines.give(first, words);
        }
    }

    /// The root.
    fn top<K: Number>(&self) -> At<K> {
        At { entry: self.root, first: K::from(0), left: self.bits, depth: 0 }
    }

    fn number<K: Number>(&self, words: &[u64]) -> K {
        K::of(self.low.of(words), self.high.map_or(0, |high| high.of(words)))
    }
}

/// An entry, for the values from `first` on that differ in so many bits.
#[derive(Clone, Copy, Debug)]
struct At<K> {
    entry: u32,
    first: K,
    left: u8,
    depth: usize,
}

impl<K: Number> At<K> {
    /// Bits that a node looks at.
    fn width(self) -> u8 {
        (self.entry >> 25 & 31) as u8 + 1
    }

    /// The word of a cell of a node.
    fn word(self, cell: usize) -> usize {
        (self.entry as usize & (LINES_MAX - 1)) * LINE + cell
    }

    /// The entry of a cell of a node.
    fn below(self, cell: usize, entry: u32) -> Self {
        let left = self.left - self.width();
        Self { entry, first: self.first.plus(cell, left), left, depth: self.depth + 1 }
    }

    /// The cells of a node that some of its values touch.
    fn touched(self, lo: K, hi: K) -> Touched {
        let below = self.left - self.width();
        let [first, last] = [lo, hi].map(|value| value.window(below, self.width()));
        let begins = |cell: usize| self.first.plus(cell, below);
        Touched { first, last, whole: [lo == begins(first), hi == begins(last).last(below)] }
    }
}

/// The field that all rules of a store leave everything else to.
fn only_field(layout: &Layout, store: &Store) -> Option<usize> {
    let mut asked = vec![false; layout.fields().len()];
    for rule in store.iter() {
        if rule.extra.is_some_and(|extra| extra.care.iter().any(|&care| care != 0)) {
            return None;
        }
        for (field, asked) in asked.iter_mut().enumerate() {
            let (low, high) = layout.places(field);
            let is_all = |place: Place| place.of(rule.lo) == 0 && place.of(rule.hi) == ones(place.bits);
            *asked |= !is_all(low) || high.is_some_and(|high| !is_all(high));
        }
    }
    let mut fields = (0..asked.len()).filter(|&field| asked[field]);
    let field = fields.next()?;
    // The box of a range over more than 64 bits is wider than the range.
    let is_exact = store.iter().all(|rule| rule.extra.is_none());
    (fields.next().is_none() && is_exact).then_some(field)
}

/// Where the best rule changes among the values from `first` to `end`, and to which; the first begins at `first`.
fn intervals<K: Number>(spans: &mut [(K, K, Rank)], first: K, end: u128) -> Vec<(K, u32)> {
    spans.sort_unstable_by_key(|&(lo, _, _)| lo);
    let mut intervals: Vec<(K, u32)> = Vec::with_capacity(2 * spans.len() + 1);
    intervals.push((first, NOTHING));
    let mut change = |at: K, id: u32| {
        let (last, best) = intervals.last_mut().expect("it begins with one");
        if *best == id {
            return;
        }
        if *last == at {
            *best = id;
        } else {
            intervals.push((at, id));
        }
    };
    let mut open: BinaryHeap<(Rank, K)> = BinaryHeap::new();
    let mut spans = spans.iter().peekable();
    let mut at = first;
    loop {
        while let Some(&&(lo, hi, rank)) = spans.peek()
            && lo <= at
        {
            open.push((rank, hi));
            spans.next();
        }
        while open.peek().is_some_and(|&(_, hi)| hi < at) {
            open.pop();
        }
        let best = open.peek().copied();
        change(at, best.map_or(NOTHING, |(rank, _)| id_of(rank)));
        let ends = best.and_then(|(_, hi)| hi.next());
        let begins = spans.peek().map(|(lo, _, _)| *lo);
        at = match (ends, begins) {
            (Some(ends), Some(begins)) => ends.min(begins),
            (Some(next), None) | (None, Some(next)) => next,
            (None, None) => return intervals,
        };
        if at.wide() > end {
            return intervals;
        }
    }
}

/// Words of the lines of a node.
fn lines_of(entries: usize) -> usize {
    entries.next_multiple_of(LINE)
}

struct Builder {
    lines: Lines,
    depth: usize,
}

impl Builder {
    /// An entry for the values from `first` on that differ in the lowest `left` bits; `intervals` are those that touch
    /// them. None if it would take too many lines.
    fn entry<K: Number>(&mut self, intervals: &[(K, u32)], first: K, left: u8, depth: usize) -> Option<u32> {
        self.depth = self.depth.max(depth);
        if let [(_, id)] = intervals {
            return Some(*id);
        }
        if intervals.len() <= RUN_MAX
            && let Some(run) = self.run(intervals, left)
        {
            return run;
        }
        let widest = if depth == 0 { ROOT_BITS_MAX } else { NODE_BITS_MAX };
        let mut width = (intervals.len().ilog2() as u8 + 1).min(widest).min(left);
        // Where all of them are in one cell, a wide node would tell nothing apart.
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
            // The interval in which the cell begins, and those that begin within.
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

    /// A run, if what a run compares tells its intervals apart; None within if there is no room for it.
    fn run<K: Number>(&mut self, intervals: &[(K, u32)], left: u8) -> Option<Option<u32>> {
        let begins = &intervals[1..];
        if !begins.iter().all(|(begins, _)| begins.is_shown(left)) {
            return None;
        }
        let n = intervals.len();
        let class = [2, 4, RUN_MAX].iter().position(|&most| n <= most).unwrap_or(LONG as usize);
        // What is not taken begins nowhere, and if it does, it is the last interval.
        let more = if class == LONG as usize { 0 } else { (2 << class) - n };
        let count = (class == LONG as usize).then_some(n as u32 - 1);
        let begins = begins.iter().map(|(begins, _)| begins.shown(left));
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
