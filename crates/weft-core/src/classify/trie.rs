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

mod builder;
mod change;
mod intervals;
mod number;

use core::ops::Range;
use std::collections::BTreeMap;

use super::cells::Cells;
use super::key::{KeyBits, Layout, ones};
use super::line_pool::{LINE, LINES_MAX, LinePool, QUARTER};
use super::rule_store::{Rank, RuleStore, StoredRule, id_of};
use super::short_prefixes::ShortPrefixes;
use super::space::AHEAD;
use super::{NOTHING, TRIE_LINES_MAX};
use builder::Builder;
use change::Change;
use intervals::{intervals, without_short_prefixes};
use number::Number;

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

const _: () = assert!(2 * RUN_MAX - 1 <= LINE, "a run fits a line");
const _: () =
    assert!(NODE_BITS_MAX <= ROOT_BITS_MAX && ROOT_BITS_SPARE_MAX <= ROOT_BITS_MAX && ROOT_BITS_MAX < 32);
const _: () = assert!(RUN_MAX < LONG_RUN_MAX);

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
    assert!((1..=ROOT_BITS_MAX).contains(&width) && line < LINES_MAX, "an entry has 5 and 25 bits for them");
    NODE | (32 - u32::from(width)) << 25 | line as u32
}

/// The width of a node.
fn width_of(node: u32) -> u8 {
    32 - (node >> 25 & 31) as u8
}

fn run_entry(word: usize, class: u32) -> u32 {
    assert!(word.is_multiple_of(QUARTER) && class <= LONG, "a run begins with a quarter of a line");
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
        assert!(
            intervals.first().is_some_and(|(first, _)| *first == K::from(0)),
            "the intervals cover all values"
        );
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

/// The width of a node for this many intervals of values that span `left` bits.
fn width_for(intervals: usize, widest: u8, left: u8) -> u8 {
    (intervals.ilog2() as u8 + 1).min(widest).min(left)
}

/// The size of a node in words, in whole lines.
fn lines_of(entries: usize) -> usize {
    entries.next_multiple_of(LINE)
}
