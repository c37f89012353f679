//! The floor of a trie: the rules that hold a good part of all values, such as short prefixes.
//!
//! An entry of the floor stands for the values that begin with some bits, fewer than the root tells apart: for as many
//! cells of it as have some [`1 << LEFT_BITS`](LEFT_BITS) intervals. A rule that holds all of an entry is not in the
//! trie there, but noted in the entry, which has the best of these. Where the trie finds nothing, the floor is asked.
//! So a short prefix that changes touches some entries, and not all that is below it in the trie.
//!
//! Rules of the trie may be worse than the floor, in some value or in all: then the trie has nothing there. So that a
//! change of the floor tells whether they come to light, or are hidden, each entry knows a rank that none of them is
//! below.

use core::ops::Range;

use super::NOTHING;
use super::rule_lists::RuleLists;
use super::rule_store::{Rank, id_of};

/// The floor looks at so many bits less than tell the intervals apart.
const LEFT_BITS: u8 = 6;
/// It looks at so many at least.
const BITS_MIN: u8 = 2;
/// Rules may be noted so often for each entry, and so often for each rule.
const NOTES_AN_ENTRY: usize = 16;
const NOTES_A_RULE: usize = 4;
/// Rules of an entry that are looked through when the best of them goes.
const RULES_MAX: usize = 128;

/// The best of the rules that hold all of an entry.
#[derive(Clone, Debug)]
pub(super) struct Floor {
    /// The bits of a value that number an entry.
    bits: u8,
    /// Cells of the root that an entry stands for, as a power of two.
    cells_bits: u8,
    best: Vec<u32>,
    notes: RuleLists,
    /// At most the rank of each rule that is in the trie in an entry.
    least: Vec<Rank>,
    /// Entries of which the trie does not show what is best any more.
    lost: Vec<bool>,
}

impl Floor {
    /// The floor of a root of so many bits, where so many tell the intervals apart, of so many rules: without any rule.
    /// None where there are few intervals.
    pub(super) fn new(told_bits: u8, root_bits: u8, n_rules: usize) -> Option<Self> {
        let bits = told_bits.checked_sub(LEFT_BITS).filter(|bits| *bits >= BITS_MIN)?;
        let n = 1 << bits;
        Some(Self {
            bits,
            cells_bits: root_bits - bits,
            best: vec![NOTHING; n],
            notes: RuleLists::new(n, NOTES_AN_ENTRY * n + NOTES_A_RULE * n_rules),
            least: vec![Rank::MAX; n],
            lost: vec![false; n],
        })
    }

    pub(super) fn bits(&self) -> u8 {
        self.bits
    }

    /// The cells of the root of some entries.
    pub(super) fn cells_of(&self, entries: Range<usize>) -> Range<usize> {
        entries.start << self.cells_bits..entries.end << self.cells_bits
    }

    /// The entries of some cells of the root.
    pub(super) fn entries_of(&self, cells: [Range<usize>; 2]) -> impl Iterator<Item = usize> + use<> {
        let bits = self.cells_bits;
        let entries = move |cells: Range<usize>| cells.start >> bits..cells.end.div_ceil(1 << bits);
        cells.into_iter().filter(|cells| !cells.is_empty()).flat_map(entries)
    }

    pub(super) fn address(&self) -> usize {
        self.best.as_ptr().expose_provenance()
    }

    pub(super) fn bytes(&self) -> usize {
        let own = size_of_val(&self.best[..]) + size_of_val(&self.least[..]) + self.lost.len();
        own + self.notes.bytes()
    }

    pub(super) fn read_bytes(&self) -> usize {
        size_of_val(&self.best[..])
    }

    #[inline(always)]
    pub(super) fn best(&self, entry: usize) -> u32 {
        self.best[entry]
    }

    pub(super) fn has_room(&self, notes: usize) -> bool {
        self.notes.has_room(notes)
    }

    /// Records a rule in an entry; `rank` gives the rank of the others.
    pub(super) fn add(&mut self, entry: usize, rule: Rank, rank: impl Fn(u32) -> Option<Rank>) {
        self.notes.add(entry, id_of(rule));
        if rank(self.best[entry]).is_none_or(|best| best < rule) {
            self.best[entry] = id_of(rule);
        }
    }

    /// Whether a rule is noted in an entry.
    pub(super) fn has(&self, entry: usize, id: u32) -> bool {
        self.notes.of(entry).any(|noted| noted == id)
    }

    /// Forgets a rule of an entry; `rank` gives the rank of the others. False: they are very many, and nothing is known
    /// of the entry any more.
    pub(super) fn remove(&mut self, entry: usize, id: u32, rank: impl Fn(u32) -> Option<Rank>) -> bool {
        self.notes.remove(entry, id);
        if self.best[entry] != id {
            return true;
        }
        if self.notes.of(entry).nth(RULES_MAX).is_some() {
            self.lose(entry);
            return false;
        }
        self.best[entry] = self.notes.of(entry).filter_map(rank).max().map_or(NOTHING, id_of);
        true
    }

    /// What the trie shows in an entry is not what is best there.
    pub(super) fn lose(&mut self, entry: usize) {
        self.lost[entry] = true;
    }

    /// As [`Floor::lose`], and what is found there is a rule that has gone.
    pub(super) fn lose_to(&mut self, entry: usize, gone: u32) {
        self.best[entry] = gone;
        self.lose(entry);
    }

    pub(super) fn is_lost(&self, entry: usize) -> bool {
        self.lost[entry]
    }

    /// The trie has a rule with this rank in an entry.
    pub(super) fn see(&mut self, entry: usize, rank: Rank) {
        self.least[entry] = self.least[entry].min(rank);
    }

    /// These are the ranks of all rules that the trie has in an entry.
    pub(super) fn see_all(&mut self, entry: usize, ranks: impl Iterator<Item = Rank>) {
        self.least[entry] = ranks.min().unwrap_or(Rank::MAX);
    }

    /// Whether the trie may have rules in an entry that are worse than this rank.
    pub(super) fn may_hide(&self, entry: usize, rank: Rank) -> bool {
        self.least[entry] < rank
    }
}
