//! The short prefixes of a trie: the rules that cover large parts of the value space.
//!
//! An entry stands for the values with a common prefix that is shorter than the root's: it covers as many root cells
//! as have about [`1 << LEFT_BITS`](LEFT_BITS) intervals. A rule that covers a whole entry is not in the trie there; it
//! is in the rule list of the entry, and the entry stores the best of these rules. If the trie finds nothing, the
//! look-up reads the entry. So a change of a short prefix touches some entries, and not everything below it in the
//! trie.
//!
//! A rule of the trie may be worse than the short prefixes for some of its values or for all; the trie then has nothing
//! there. A change of a short prefix can uncover or hide such rules. To detect this, each entry stores a lower bound of
//! the ranks of its rules in the trie.

use core::ops::Range;

use super::NOTHING;
use super::rule_lists::RuleLists;
use super::rule_store::{Rank, id_of};

/// The prefix of an entry is this much shorter than the one that separates the intervals.
const LEFT_BITS: u8 = 6;
/// Minimum length of the prefix of an entry.
const BITS_MIN: u8 = 2;
/// Capacity of `rule_lists`: this many list links per entry, plus this many per rule.
const LINKS_PER_ENTRY: usize = 16;
const LINKS_PER_RULE: usize = 4;
/// Maximum number of rules to search when the best rule of an entry is removed.
const RULES_MAX: usize = 128;

/// The best of the rules that cover each whole entry.
#[derive(Clone, Debug)]
pub(super) struct ShortPrefixes {
    /// The length of the prefix that indexes an entry.
    bits: u8,
    /// Root cells per entry, as a power of two.
    cells_bits: u8,
    /// The id of the best rule of each entry.
    best: Vec<u32>,
    /// The ids of the rules of each entry.
    rule_lists: RuleLists,
    /// A lower bound of the ranks of the rules that the trie has in an entry.
    least: Vec<Rank>,
    /// Entries in which the trie is out of date.
    lost: Vec<bool>,
}

impl ShortPrefixes {
    /// Makes an empty list for a root of `root_bits` bits, where `interval_bits` bits separate the intervals, and for
    /// `n_rules` rules. None if there are few intervals.
    pub(super) fn new(interval_bits: u8, root_bits: u8, n_rules: usize) -> Option<Self> {
        let bits = interval_bits.checked_sub(LEFT_BITS).filter(|bits| *bits >= BITS_MIN)?;
        let n = 1 << bits;
        assert!(bits <= root_bits, "an entry covers whole cells of the root");
        Some(Self {
            bits,
            cells_bits: root_bits - bits,
            best: vec![NOTHING; n],
            rule_lists: RuleLists::new(n, LINKS_PER_ENTRY * n + LINKS_PER_RULE * n_rules),
            least: vec![Rank::MAX; n],
            lost: vec![false; n],
        })
    }

    pub(super) fn bits(&self) -> u8 {
        self.bits
    }

    /// The root cells of these entries.
    pub(super) fn cells_of(&self, entries: Range<usize>) -> Range<usize> {
        entries.start << self.cells_bits..entries.end << self.cells_bits
    }

    /// Iterates over the entries that these root cells touch.
    pub(super) fn entries_of(&self, cells: [Range<usize>; 2]) -> impl Iterator<Item = usize> + use<> {
        let bits = self.cells_bits;
        let entries = move |cells: Range<usize>| cells.start >> bits..cells.end.div_ceil(1 << bits);
        cells.into_iter().filter(|cells| !cells.is_empty()).flat_map(entries)
    }

    /// The address of the best rules, for compiled code.
    pub(super) fn address(&self) -> usize {
        self.best.as_ptr().expose_provenance()
    }

    pub(super) fn bytes(&self) -> usize {
        let own = size_of_val(&self.best[..]) + size_of_val(&self.least[..]) + self.lost.len();
        own + self.rule_lists.bytes()
    }

    /// The bytes that a look-up may read.
    pub(super) fn read_bytes(&self) -> usize {
        size_of_val(&self.best[..])
    }

    #[inline(always)]
    pub(super) fn best(&self, entry: usize) -> u32 {
        self.best[entry]
    }

    /// Whether the rule lists have space for `links` more links.
    pub(super) fn has_room(&self, links: usize) -> bool {
        self.rule_lists.has_room(links)
    }

    /// Adds a rule to an entry; `rank` returns the rank of another rule.
    pub(super) fn add(&mut self, entry: usize, rule: Rank, rank: impl Fn(u32) -> Option<Rank>) {
        self.rule_lists.add(entry, id_of(rule));
        if rank(self.best[entry]).is_none_or(|best| best < rule) {
            self.best[entry] = id_of(rule);
        }
    }

    /// Whether a rule is in the list of an entry.
    pub(super) fn has(&self, entry: usize, id: u32) -> bool {
        self.rule_lists.of(entry).any(|listed| listed == id)
    }

    /// Removes a rule from an entry; `rank` returns the rank of another rule. False if there are too many rules to find
    /// the next best: the entry is then marked as out of date.
    pub(super) fn remove(&mut self, entry: usize, id: u32, rank: impl Fn(u32) -> Option<Rank>) -> bool {
        self.rule_lists.remove(entry, id);
        if self.best[entry] != id {
            return true;
        }
        if self.rule_lists.of(entry).nth(RULES_MAX).is_some() {
            self.mark_lost(entry);
            return false;
        }
        self.best[entry] = self.rule_lists.of(entry).filter_map(rank).max().map_or(NOTHING, id_of);
        true
    }

    /// Marks an entry in which the trie is out of date.
    pub(super) fn mark_lost(&mut self, entry: usize) {
        self.lost[entry] = true;
    }

    /// As [`ShortPrefixes::mark_lost`], and keeps the removed rule `gone` as the best, so that a look-up detects it.
    pub(super) fn mark_lost_with(&mut self, entry: usize, gone: u32) {
        self.best[entry] = gone;
        self.mark_lost(entry);
    }

    pub(super) fn is_lost(&self, entry: usize) -> bool {
        self.lost[entry]
    }

    /// Records that the trie has a rule with this rank in an entry.
    pub(super) fn lower_least(&mut self, entry: usize, rank: Rank) {
        self.least[entry] = self.least[entry].min(rank);
    }

    /// Records the ranks of all rules that the trie has in an entry.
    pub(super) fn set_least(&mut self, entry: usize, ranks: impl Iterator<Item = Rank>) {
        self.least[entry] = ranks.min().unwrap_or(Rank::MAX);
    }

    /// Whether the trie may have rules in an entry that are worse than this rank.
    pub(super) fn may_hide(&self, entry: usize, rank: Rank) -> bool {
        self.least[entry] < rank
    }
}
