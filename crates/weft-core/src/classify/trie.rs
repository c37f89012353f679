//! A multibit trie over the intervals of one field, for rules that restrict only that field.
//!
//! The ends of the rules divide the values of the field into intervals, each with one best rule for any priorities.
//! Longest-prefix match is the case in which longer prefixes have greater priorities. Each level of the trie reads a
//! window of bits from the top, as wide as the number of intervals requires; a full table is one wide root and mostly
//! one more cache line. A handful of intervals is a *run*, which is compared value by value. Source: in the manner of
//! DIR-24-8 (P. Gupta and others, INFOCOM 1998) and level-compressed tries (S. Nilsson and G. Karlsson, 1999).
//!
//! If the root is a node, the trie takes changes: each cell of the root knows its rules ([`Cells`]), and a change
//! rebuilds what is below the cells that it touches. If a crowded cell contains a node, the cells of that node know the
//! rules. Rules that cover very many cells are not in the trie but in [`ShortPrefixes`], which a look-up reads where
//! the trie has nothing.

use core::hint::black_box;
use core::ops::Range;
use std::collections::{BTreeMap, BinaryHeap};

use super::cells::Cells;
use super::key::{KeyBits, Layout, ones};
use super::line_pool::{LINE, LINES_MAX, LinePool, QUARTER};
use super::rule_store::{Rank, RuleStore, StoredRule, id_of};
use super::short_prefixes::ShortPrefixes;
use super::space::AHEAD;
use super::{NOTHING, TRIE_LINES_MAX};

/// Maximum number of intervals of a run: all of their starts but the first, and their rules, fit in a cache line. Runs
/// of half and of a quarter as many take half a line and a quarter.
const RUN_MAX: usize = 8;
/// Maximum number of intervals of a long run, which replaces a path of nodes that separate nothing.
const LONG_RUN_MAX: usize = 31;
/// The widest root.
const ROOT_BITS_MAX: u8 = 20;
/// A root is wider than necessary by this many bits, up to [`ROOT_BITS_SPARE_MAX`]: most values are then found in the
/// root, so the depth of a look-up is predictable. A root of that size fits the nearer caches.
const ROOT_BITS_SPARE: u8 = 3;
const ROOT_BITS_SPARE_MAX: u8 = 14;
/// The widest node below the root.
const NODE_BITS_MAX: u8 = 10;
/// Maximum number of rules that are compared one by one.
const FEW: usize = 12;
/// Maximum number of short-prefix entries whose cells one change rebuilds.
const ENTRIES_MAX: usize = 16;

/// The best rule for each value of a field.
#[derive(Clone, Debug)]
pub(crate) struct Trie {
    low: KeyBits,
    high: Option<KeyBits>,
    /// The width of the field.
    bits: u8,
    root: u32,
    /// Entries of the root beyond those that separate the intervals.
    spare: usize,
    /// The entries of nodes, and the runs: the starts of their intervals but the first, and their rules.
    lines: LinePool,
    depth: usize,
    /// The rules for values that the trie does not have.
    short_prefixes: Option<Box<ShortPrefixes>>,
    /// The data for changes; without it, the trie takes none.
    cells: Option<Cells>,
    /// The positions of the other fields; the rules match all of their values.
    others: Vec<KeyBits>,
    /// The number of rules it was built from.
    built_of: usize,
}

/// A subset of the values of a batch.
#[derive(Clone, Copy, Default)]
struct Selection {
    numbers: [u8; AHEAD],
    n: usize,
}

impl Selection {
    /// The first `n` values.
    fn all(n: usize) -> Self {
        const { assert!(AHEAD <= u8::MAX as usize, "their numbers fit a byte") };
        Self { numbers: core::array::from_fn(|nth| nth as u8), n: n.min(AHEAD) }
    }

    fn is_empty(&self) -> bool {
        self.n == 0
    }

    /// Adds a value if `is_one`, without a branch.
    #[inline(always)]
    fn push(&mut self, nth: usize, is_one: bool) {
        self.numbers[self.n % AHEAD] = nth as u8;
        self.n += usize::from(is_one);
    }

    /// The values for which `stays` holds, in order.
    #[inline(always)]
    fn filter(self, mut stays: impl FnMut(usize) -> bool) -> Self {
        let mut left = Self::default();
        for nth in &self.numbers[..self.n.min(AHEAD)] {
            let nth = usize::from(*nth) % AHEAD;
            left.push(nth, stays(nth));
        }
        left
    }
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Change {
    Inserted,
    Removed,
}

/// Values of a field of up to 64 or of up to 128 bits.
trait Number: Copy + Ord + From<u64> {
    fn of(low: u64, high: u64) -> Self;
    /// The `bits` bits from bit `shift` up.
    fn window(self, shift: u8, bits: u8) -> usize;
    /// The next value; None after the last.
    fn next(self) -> Option<Self>;
    /// Adds `cells << shift`.
    fn plus(self, cells: usize, shift: u8) -> Self;
    /// The last value of the block that begins with this one and spans `bits` bits.
    fn last(self, bits: u8) -> Self;
    /// Returns the upper 32 of the lowest `left` bits, padded with zeros below.
    fn top_word(self, left: u8) -> u32 {
        self.lifted(left).upper_word()
    }
    /// Whether the remaining bits below those are zero.
    fn fits_top_word(self, left: u8) -> bool;
    fn wide(self) -> u128;
    /// The value left-aligned from a width of `bits`.
    fn lifted(self, bits: u8) -> Self;
    /// The cell of a node for a left-aligned value; `down` is the node's entry from bit 25 up.
    fn cell(self, down: u32) -> usize;
    /// The rest of a left-aligned value below a node.
    fn below(self, down: u32) -> Self;
    /// The upper bits of a left-aligned value, as [`Number::top_word`].
    fn upper_word(self) -> u32;
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
    fn fits_top_word(self, left: u8) -> bool {
        self & ones(left.saturating_sub(32)) == 0
    }
    fn wide(self) -> u128 {
        u128::from(self)
    }
    #[inline(always)]
    fn lifted(self, bits: u8) -> Self {
        self << (64u8.wrapping_sub(bits) & 63)
    }
    #[inline(always)]
    fn cell(self, down: u32) -> usize {
        (self >> (down & 63)) as usize
    }
    #[inline(always)]
    fn below(self, down: u32) -> Self {
        self << (down.wrapping_neg() & 63)
    }
    #[inline(always)]
    fn upper_word(self) -> u32 {
        (self >> 32) as u32
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
    fn fits_top_word(self, left: u8) -> bool {
        self & !(Self::MAX << left.saturating_sub(32)) == 0
    }
    fn wide(self) -> u128 {
        self
    }
    #[inline(always)]
    fn lifted(self, bits: u8) -> Self {
        self << (128u8.wrapping_sub(bits) & 127)
    }
    #[inline(always)]
    fn cell(self, down: u32) -> usize {
        ((self >> 64) as u64).cell(down)
    }
    // In words: a shift by a variable number of bits would check for 64 and more.
    #[inline(always)]
    fn below(self, down: u32) -> Self {
        let (high, low) = ((self >> 64) as u64, self as u64);
        Self::of(low.below(down), high.below(down) | low >> (down & 63))
    }
    #[inline(always)]
    fn upper_word(self) -> u32 {
        (self >> 96) as u32
    }
}

// The format of an entry. With the highest bit clear, it is the id of a rule, or NOTHING. The next bit distinguishes
// nodes from runs. A node has 32 minus its width from bit 25 and its first line below; so the entry from bit 25 up,
// modulo 64, is the right shift that turns the upper bits of a word into an index. A run has its class from bit 28 and
// its first quarter of a line below. Classes 0 to 2 have 2, 4 and 8 intervals; in class 3 the first word holds their
// number.
/// The tag of a node.
pub const NODE: u32 = 0b11 << 30;
/// The tag of a run.
pub const RUN: u32 = 0b10 << 30;
/// The class of runs with an explicit length.
pub const LONG: u32 = 3;

fn node_entry(line: usize, width: u8) -> u32 {
    NODE | (32 - u32::from(width)) << 25 | line as u32
}

/// The width of a node.
fn width_of(node: u32) -> u8 {
    32 - (node >> 25 & 31) as u8
}

fn run_entry(word: usize, class: u32) -> u32 {
    RUN | class << 28 | (word / QUARTER) as u32
}

impl Trie {
    /// A trie over the only field that the rules of a store restrict. None if they restrict several, if a rule has a
    /// mask, or if the trie would take more than [`TRIE_LINES_MAX`] lines per interval.
    pub(super) fn build(layout: &Layout, store: &RuleStore) -> Option<Self> {
        match restricted_fields(layout, store)?[..] {
            [field] => Self::of(layout, store, field, None),
            _ => None,
        }
    }

    /// A trie over a field, for the rules of a store with a given value at a given position, or for all rules. These
    /// rules must restrict no other field. None as for [`Trie::build`].
    pub(super) fn of(
        layout: &Layout,
        store: &RuleStore,
        field: usize,
        kind: Option<(KeyBits, u64)>,
    ) -> Option<Self> {
        let (low, high) = layout.places(field);
        let rules: Vec<StoredRule<'_>> = store
            .iter()
            .filter(|rule| kind.is_none_or(|(place, value)| place.of(rule.lo) == value))
            .collect();
        let mut trie = if high.is_some() {
            Self::build_over::<u128>(low, high, layout.fields()[field].bits, store, &rules)?
        } else {
            Self::build_over::<u64>(low, high, layout.fields()[field].bits, store, &rules)?
        };
        let is_own = |place: &KeyBits| {
            *place == low || Some(*place) == high || kind.is_some_and(|(kind, _)| kind == *place)
        };
        trie.others = layout.all_places().filter(|place| !is_own(place)).collect();
        trie.built_of = rules.len();
        Some(trie)
    }

    /// The number of rules it was built from.
    pub(super) fn built_of(&self) -> usize {
        self.built_of
    }

    /// Adds a rule of the store. False if it remains pending: it restricts another field, touches too many cells, or
    /// there is no space.
    pub(super) fn insert(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        self.change(store, rule, Change::Inserted)
    }

    /// Removes a rule. False if look-ups may still return it.
    pub(super) fn remove(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        self.change(store, rule, Change::Removed)
    }

    /// Changes the rank of a rule, which keeps the order.
    pub(super) fn rerank(&mut self, rule: StoredRule<'_>, rank: Rank) {
        match self.high {
            None => self.lower_prefix_ranks::<u64>(rule, rank),
            Some(_) => self.lower_prefix_ranks::<u128>(rule, rank),
        }
    }

    /// Whether the root is too wide or too narrow for this number of rules.
    pub(super) fn is_worn(&self, rules: usize) -> bool {
        rules > 2 * self.built_of.max(RUN_MAX) || rules < self.built_of / 4
    }

    /// The position and width of the field, and the entry of the root, for a field of one part.
    pub(crate) fn root_field(&self) -> Option<(KeyBits, u8, u32)> {
        self.high.is_none().then_some((self.low, self.bits, self.root))
    }

    /// The address of the lines, valid until a change.
    pub(crate) fn address(&self) -> usize {
        self.lines.address()
    }

    /// The length of the prefix that indexes [`ShortPrefixes`] and the address of its best rules; zeros without it.
    pub(crate) fn short_prefixes(&self) -> (u8, usize) {
        self.short_prefixes
            .as_ref()
            .map_or((0, 0), |short_prefixes| (short_prefixes.bits(), short_prefixes.address()))
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    pub(super) fn bytes(&self) -> usize {
        let changing = self.cells.as_ref().map_or(0, Cells::bytes);
        self.lines.bytes() + self.short_prefixes.as_deref().map_or(0, ShortPrefixes::bytes) + changing
    }

    /// The bytes that look-ups read. Of the root only the entries that separate the intervals count: the others are
    /// rarely read.
    pub(super) fn read_bytes(&self) -> usize {
        self.lines.bytes() - self.spare * size_of::<u32>()
            + self.short_prefixes.as_deref().map_or(0, ShortPrefixes::read_bytes)
    }

    /// Finds the best rule for a key; [`NOTHING`] if none matches.
    #[inline(always)]
    pub(super) fn find(&self, key: &[u64]) -> u32 {
        match self.high {
            None => self.best_of(self.low.of(key)),
            Some(high) => self.best_of(u128::of(self.low.of(key), high.of(key))),
        }
    }

    /// As [`find`](Self::find) for up to [`AHEAD`] keys, level by level.
    #[inline(always)]
    pub(super) fn find_batch<const N: usize>(&self, keys: &[[u64; N]], found: &mut [u32]) {
        match self.high {
            None => self.find_batch_in_trie(keys.iter().map(|key| self.low.of(key)), found),
            Some(high) => self
                .find_batch_in_trie(keys.iter().map(|key| u128::of(self.low.of(key), high.of(key))), found),
        }
    }

    /// The number of lines that a look-up reads.
    pub(super) fn touches(&self, key: &[u64]) -> usize {
        let value = u128::of(self.low.of(key), self.high.map_or(0, |high| high.of(key)));
        let (mut entry, mut rest, mut touched) = (self.root, value.lifted(self.bits), 0);
        while entry >> 30 == NODE >> 30 {
            (entry, rest) = self.step(entry, rest);
            touched += 1;
        }
        let reads_short_prefixes = self.short_prefixes.is_some() && self.find_in_trie(value) == NOTHING;
        touched + usize::from(entry >> 30 == RUN >> 30) + usize::from(reads_short_prefixes)
    }

    /// Finds the best rule for a value, in the trie or among the short prefixes.
    #[inline(always)]
    fn best_of<K: Number>(&self, value: K) -> u32 {
        self.or_short_prefix(self.find_in_trie(value), value)
    }

    /// Returns the rule that the trie found; if it found none, the best short prefix for the value.
    #[inline(always)]
    fn or_short_prefix<K: Number>(&self, found: u32, value: K) -> u32 {
        match &self.short_prefixes {
            Some(short_prefixes) if found == NOTHING => {
                short_prefixes.best(self.entry_of(short_prefixes, value))
            }
            _ => found,
        }
    }

    /// The short-prefix entry of a value.
    #[inline(always)]
    fn entry_of<K: Number>(&self, short_prefixes: &ShortPrefixes, value: K) -> usize {
        value.window(self.bits - short_prefixes.bits(), short_prefixes.bits())
    }

    /// Finds the best rule of the trie for a value, without the short prefixes; [`NOTHING`] if none matches.
    #[inline(always)]
    fn find_in_trie<K: Number>(&self, value: K) -> u32 {
        let (mut entry, mut rest) = (self.root, value.lifted(self.bits));
        while entry >> 30 == NODE >> 30 {
            (entry, rest) = self.step(entry, rest);
        }
        if entry >> 31 == 0 { entry } else { self.find_in_run(entry, rest.upper_word()) }
    }

    /// Finds the best rule for each value of a batch, [`NOTHING`] if none matches. Moves all values down one level,
    /// then the unfinished ones, and so on. Which values are finished is unpredictable, so they are counted without a
    /// branch.
    #[inline(always)]
    fn find_batch_in_trie<K: Number>(&self, values: impl Iterator<Item = K>, found: &mut [u32]) {
        if self.root >> 30 != NODE >> 30 {
            values.zip(found).for_each(|(value, found)| *found = self.best_of(value));
            return;
        }
        let mut at = [(K::from(0), K::from(0)); AHEAD];
        let mut on_way = Selection::default();
        for (nth, (value, found)) in values.zip(found.iter_mut()).enumerate() {
            let (entry, rest) = self.step(self.root, value.lifted(self.bits));
            (at[nth % AHEAD], *found) = ((value, rest), entry);
            on_way.push(nth, entry >> 30 == NODE >> 30);
        }
        while !on_way.is_empty() {
            on_way = on_way.filter(|nth| {
                let ((_, rest), Some(entry)) = (&mut at[nth], found.get_mut(nth)) else { return false };
                (*entry, *rest) = self.step(*entry, *rest);
                *entry >> 30 == NODE >> 30
            });
        }
        let all = Selection::all(found.len());
        let runs = all.filter(|nth| found.get(nth).is_some_and(|entry| entry >> 31 != 0));
        runs.filter(|nth| {
            let ((_, rest), Some(entry)) = (at[nth], found.get_mut(nth)) else { return false };
            *entry = self.find_in_run(*entry, rest.upper_word());
            false
        });
        if let Some(short_prefixes) = &self.short_prefixes {
            let low = all.filter(|nth| found.get(nth) == Some(&NOTHING));
            low.filter(|nth| {
                let Some(found) = found.get_mut(nth) else { return false };
                *found = short_prefixes.best(self.entry_of(short_prefixes, at[nth].0));
                false
            });
        }
    }

    /// Reads the entry in a node for the rest of a value, left-aligned; returns it and the rest below it.
    #[inline(always)]
    fn step<K: Number>(&self, entry: u32, rest: K) -> (u32, K) {
        let down = entry >> 25;
        (self.lines.word((entry as usize & (LINES_MAX - 1)) * LINE + rest.cell(down)), rest.below(down))
    }

    /// Finds the rule of the interval of a run that contains `value`, the upper 32 bits of the rest.
    #[inline(always)]
    fn find_in_run(&self, entry: u32, value: u32) -> u32 {
        let (class, word) = (entry >> 28 & 3, (entry as usize & ((1 << 28) - 1)) * QUARTER);
        if class == LONG {
            return self.find_in_long_run(word, value);
        }
        let line = self.lines.line(word);
        // The smallest run has a quarter of a line: the second four words are read only if they exist.
        let (first, begins) = (word % LINE / QUARTER, (2 << class) - 1);
        let quarters = line.as_chunks::<QUARTER>().0;
        let [low, high] = [first, first + usize::from(class != 0)].map(|at| {
            let four = &quarters[at % (LINE / QUARTER)];
            (0..QUARTER).map(|nth| u32::from(four[nth] <= value) << nth).sum::<u32>()
        });
        let begun = (low | high << QUARTER) & ((1 << begins) - 1);
        line[(first * QUARTER + begins + begun.count_ones() as usize) % LINE]
    }

    /// As [`Trie::find_in_run`], for a long run whose first word is at `first`.
    #[cold]
    fn find_in_long_run(&self, first: usize, value: u32) -> u32 {
        let word = |at: usize| self.lines.word(first + at);
        let begins = word(0) as usize;
        let n = (1..=begins).take_while(|&at| word(at) <= value).count();
        word(1 + begins + n)
    }

    /// Builds a trie over one field, given by the positions of its words in a key; the rules must restrict only that
    /// field. None if the trie would need too many lines.
    fn build_over<K: Number>(
        low: KeyBits,
        high: Option<KeyBits>,
        bits: u8,
        store: &RuleStore,
        rules: &[StoredRule<'_>],
    ) -> Option<Self> {
        let number = |words: &[u64]| K::of(low.of(words), high.map_or(0, |high| high.of(words)));
        let mut spans: Vec<Span<K>> =
            rules.iter().map(|rule| (number(rule.lo), number(rule.hi), rule.rank)).collect();
        let all = intervals(&mut spans, K::from(0), u128::MAX >> (128 - bits));
        spans.sort_unstable_by_key(|&(.., rank)| rank);
        let interval_bits = width_for(all.len(), ROOT_BITS_MAX, bits);
        let root_bits =
            interval_bits.max((interval_bits + ROOT_BITS_SPARE).min(ROOT_BITS_SPARE_MAX)).min(bits);
        let spare = (1 << root_bits) - (1 << interval_bits);
        let lines = TRIE_LINES_MAX * all.len() + lines_of(spare) / LINE;
        // Short prefixes need no intervals of their own.
        let mut trie = Self {
            low,
            high,
            bits,
            root: node_entry(0, root_bits),
            spare: 0,
            lines: LinePool::default(),
            depth: 0,
            short_prefixes: ShortPrefixes::new(interval_bits, root_bits, spans.len()).map(Box::new),
            cells: None,
            others: Vec::new(),
            built_of: 0,
        };
        let has_short_prefixes = trie.build_short_prefixes(&spans).is_some_and(|held| {
            let left = without_short_prefixes(&all, &held);
            trie.fill(&left, root_bits, lines).is_some() && trie.root == node_entry(1, root_bits)
        });
        if !has_short_prefixes {
            trie.short_prefixes = None;
            trie.fill(&all, root_bits, lines)?;
        }
        if trie.root >> 30 == NODE >> 30 {
            // If all intervals begin in one cell, the root is narrow.
            trie.spare = if width_of(trie.root) == root_bits { spare } else { 0 };
            let rules = spans.iter().flat_map(|&(lo, hi, rank)| {
                let cells = trie.parts(lo, hi).cells.into_iter();
                cells.map(move |touched| (id_of(rank), touched))
            });
            trie.cells = trie.cells_of(trie.top::<K>(), spans.len(), rules, store);
        }
        Some(trie)
    }

    /// Fills the short prefixes with the rules that cover whole entries, and returns the values that these rules cover
    /// there, by rule id. None if the trie has no short prefixes, or there is no space.
    fn build_short_prefixes<K: Number>(&mut self, spans: &[Span<K>]) -> Option<BTreeMap<u32, Values<K>>> {
        let mut held = BTreeMap::new();
        let mut short_prefixes = self.short_prefixes.take()?;
        let (bits, below) = (short_prefixes.bits(), self.bits - short_prefixes.bits());
        let begins = |entry: usize| (entry >> bits == 0).then(|| K::from(0).plus(entry, below));
        let mut is_room = true;
        for &(lo, hi, rank) in spans {
            let RuleCells { short_prefixes: entries, cells } = self.parts_with(&short_prefixes, lo, hi);
            is_room &= short_prefixes.has_room(entries.len());
            if !is_room {
                return None;
            }
            if let Some(first) = begins(entries.start).filter(|_| !entries.is_empty()) {
                held.insert(id_of(rank), (first, begins(entries.end)));
            }
            // The worst rules come first.
            entries.for_each(|entry| short_prefixes.add(entry, rank, |_| None));
            short_prefixes.entries_of(cells).for_each(|entry| short_prefixes.lower_least(entry, rank));
        }
        self.short_prefixes = Some(short_prefixes);
        Some(held)
    }

    /// Builds the trie from intervals that cover all values, with a root of `root_bits` bits if it is a node. None if
    /// it would take more than `lines` lines.
    fn fill<K: Number>(&mut self, intervals: &[(K, u32)], root_bits: u8, lines: usize) -> Option<()> {
        let mut builder = Builder { lines: LinePool::new(lines), depth: 0, root_bits };
        self.root = builder.entry(intervals, K::from(0), self.bits, 0)?;
        (self.lines, self.depth) = (builder.lines, builder.depth);
        self.lines.make_room();
        Some(())
    }

    /// The cells of a node with these rules. Crowded cells that contain nodes are split again. None if there are too
    /// many list entries.
    fn cells_of<K: Number>(
        &self,
        at: Entry<K>,
        n_rules: usize,
        rules: impl Iterator<Item = (u32, Range<usize>)>,
        store: &RuleStore,
    ) -> Option<Cells> {
        let mut cells = Cells::of_rules(1 << at.width(), n_rules, rules)?;
        let span = |id: u32| {
            let rule = store.get(id)?;
            Some((self.number::<K>(rule.lo), self.number::<K>(rule.hi)))
        };
        for cell in cells.crowded() {
            let below = at.below(cell, self.lines.word(at.word(cell)));
            if below.entry >> 30 != NODE >> 30 {
                continue;
            }
            let (first, last) = (below.first, below.first.last(below.left));
            let is_inner = |id| span(id).is_some_and(|(lo, hi)| first <= lo && hi <= last);
            cells.part(cell, is_inner, |own| {
                let touched = |id: &u32| span(*id).map(|(lo, hi)| (*id, below.touched(lo, hi).all()));
                // Collected and boxed: otherwise each recursion would instantiate this function with a new closure
                // type.
                let rules: Vec<(u32, Range<usize>)> = own.iter().filter_map(touched).collect();
                self.cells_of(
                    below,
                    own.len(),
                    Box::new(rules.into_iter()) as Box<dyn Iterator<Item = _>>,
                    store,
                )
            });
        }
        Some(cells)
    }

    // ---- changes -------------------------------------------------------------------------------------------------

    /// Reads the memory for changes of these rules; the reads overlap.
    pub(super) fn prefetch(&self, store: &RuleStore, rules: &[StoredRule<'_>]) {
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
    fn change(&mut self, store: &RuleStore, rule: StoredRule<'_>, change: Change) -> bool {
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
    fn lower_prefix_ranks<K: Number>(&mut self, rule: StoredRule<'_>, rank: Rank) {
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

    /// The root entry.
    fn top<K: Number>(&self) -> Entry<K> {
        Entry { entry: self.root, first: K::from(0), left: self.bits, depth: 0 }
    }

    /// Reads the value of the field from the words of a key.
    fn number<K: Number>(&self, words: &[u64]) -> K {
        K::of(self.low.of(words), self.high.map_or(0, |high| high.of(words)))
    }

    /// Splits a rule with these values into short-prefix entries and root cells.
    fn parts<K: Number>(&self, lo: K, hi: K) -> RuleCells {
        match &self.short_prefixes {
            Some(short_prefixes) => self.parts_with(short_prefixes, lo, hi),
            None => RuleCells { short_prefixes: 0..0, cells: [self.top().touched(lo, hi).all(), 0..0] },
        }
    }

    /// Splits the values of a rule into the short-prefix entries that it covers whole and the other root cells.
    fn parts_with<K: Number>(&self, short_prefixes: &ShortPrefixes, lo: K, hi: K) -> RuleCells {
        let top = self.top();
        let entries = Entry { entry: node_entry(0, short_prefixes.bits()), ..top };
        let (cells, held) = (top.touched(lo, hi).all(), entries.touched(lo, hi).whole());
        if held.is_empty() {
            return RuleCells { short_prefixes: 0..0, cells: [cells, 0..0] };
        }
        let whole = short_prefixes.cells_of(held.clone());
        RuleCells { short_prefixes: held, cells: [cells.start..whole.start, whole.end..cells.end] }
    }
}

/// The values of a rule and its rank.
type Span<K> = (K, K, Rank);

/// Values from the first to an exclusive end, if there is one.
type Values<K> = (K, Option<K>);

/// The short-prefix entries that a rule covers, and the other root cells that it touches.
struct RuleCells {
    short_prefixes: Range<usize>,
    cells: [Range<usize>; 2],
}

/// The cells of a node that a rule touches.
#[derive(Clone, Copy, Debug)]
struct TouchedCells {
    first: usize,
    last: usize,
    /// Whether it covers all of the first cell, and all of the last.
    whole: [bool; 2],
}

impl TouchedCells {
    /// All touched cells.
    fn all(self) -> Range<usize> {
        self.first..self.last + 1
    }

    /// The cells that it covers whole.
    fn whole(self) -> Range<usize> {
        self.first + usize::from(!self.whole[0])..self.last + usize::from(self.whole[1])
    }
}

/// An entry for the block of values from `first` on that spans `left` bits.
#[derive(Clone, Copy, Debug)]
struct Entry<K> {
    entry: u32,
    first: K,
    left: u8,
    depth: usize,
}

impl<K: Number> Entry<K> {
    /// The width of the node.
    fn width(self) -> u8 {
        width_of(self.entry)
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

    /// Finds the cells of a node that a range of values touches.
    fn touched(self, lo: K, hi: K) -> TouchedCells {
        let below = self.left - self.width();
        let [first, last] = [lo, hi].map(|value| value.window(below, self.width()));
        let begins = |cell: usize| self.first.plus(cell, below);
        TouchedCells { first, last, whole: [lo == begins(first), hi == begins(last).last(below)] }
    }
}

/// Finds the fields that the rules of a store restrict; None if a rule has a mask.
pub(super) fn restricted_fields(layout: &Layout, store: &RuleStore) -> Option<Vec<usize>> {
    let mut asked = vec![false; layout.fields().len()];
    for rule in store.iter() {
        if rule.extra.is_some_and(|extra| extra.care.iter().any(|&care| care != 0)) {
            return None;
        }
        for (field, asked) in asked.iter_mut().enumerate() {
            let (low, high) = layout.places(field);
            let is_all = |place: KeyBits| place.of(rule.lo) == 0 && place.of(rule.hi) == ones(place.bits);
            *asked |= !is_all(low) || high.is_some_and(|high| !is_all(high));
        }
    }
    // The box of a range over more than 64 bits is larger than the range.
    let is_exact = store.iter().all(|rule| rule.extra.is_none());
    is_exact.then(|| (0..asked.len()).filter(|&field| asked[field]).collect())
}

/// The starts of the intervals from `first` to `end`, each with its best rule; the first one begins at `first`.
fn intervals<K: Number>(spans: &mut [Span<K>], first: K, end: u128) -> Vec<(K, u32)> {
    spans.sort_unstable_by_key(|&(lo, _, _)| lo);
    let mut intervals: Vec<(K, u32)> = Vec::with_capacity(2 * spans.len() + 1);
    intervals.push((first, NOTHING));
    let mut change = |at: K, id: u32| {
        let (last, best) = intervals.last_mut().expect("the list starts with one interval");
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

/// As [`intervals`], for up to [`FEW`] rules, which are compared in each interval: faster than sorting.
fn intervals_of_few<K: Number>(spans: &[Span<K>], first: K, last: K) -> Vec<(K, u32)> {
    let mut begins = [first; 1 + 2 * FEW];
    let mut n = 1;
    for &(lo, hi, _) in spans {
        for at in [Some(lo), hi.next()].into_iter().flatten().filter(|at| first < *at && *at <= last) {
            begins[n] = at;
            n += 1;
        }
    }
    let begins = &mut begins[..n];
    begins.sort_unstable();
    let mut intervals: Vec<(K, u32)> = Vec::with_capacity(n);
    for &at in &*begins {
        let holds = |&&(lo, hi, _): &&Span<K>| lo <= at && at <= hi;
        let best = spans.iter().filter(holds).map(|&(.., rank)| rank).max().unwrap_or_default();
        if intervals.last().is_none_or(|&(_, id)| id != id_of(best)) {
            intervals.push((at, id_of(best)));
        }
    }
    intervals
}

/// Copies the intervals, with [`NOTHING`] where the best rule is a short prefix that covers whole entries (`held`).
fn without_short_prefixes<K: Number>(
    intervals: &[(K, u32)],
    held: &BTreeMap<u32, Values<K>>,
) -> Vec<(K, u32)> {
    let mut left: Vec<(K, u32)> = Vec::with_capacity(intervals.len());
    let mut add = |begins: K, ends: Option<K>, id: u32| {
        let is_empty = ends.is_some_and(|ends| ends <= begins);
        if !is_empty && left.last().is_none_or(|(_, last)| *last != id) {
            left.push((begins, id));
        }
    };
    for (at, &(begins, id)) in intervals.iter().enumerate() {
        let ends = intervals.get(at + 1).map(|(begins, _)| *begins);
        let Some(&(first, end)) = held.get(&id) else {
            add(begins, ends, id);
            continue;
        };
        let sooner = |one: Option<K>, other: Option<K>| one.into_iter().chain(other).min();
        add(begins, sooner(Some(first), ends), id);
        add(begins.max(first), sooner(end, ends), NOTHING);
        if let Some(end) = end {
            add(begins.max(end), ends, id);
        }
    }
    left
}

/// The width of a node for this many intervals of values that span `left` bits.
fn width_for(intervals: usize, widest: u8, left: u8) -> u8 {
    (intervals.ilog2() as u8 + 1).min(widest).min(left)
}

/// The size of a node in words, in whole lines.
fn lines_of(entries: usize) -> usize {
    entries.next_multiple_of(LINE)
}

struct Builder {
    lines: LinePool,
    depth: usize,
    /// The width of a node at the top.
    root_bits: u8,
}

impl Builder {
    /// An entry for the block of values from `first` on that spans `left` bits; `intervals` are those that touch it.
    /// None if it would take too many lines.
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
