//! Decision trees: windows of key bits lead to short lists of rules.
//!
//! A node reads one or two windows of bits from the key and continues at the entry that they index. A leaf is a list of
//! rules, best first; the look-up compares their boxes until one contains the key. Windows may be anywhere in a field:
//! a rule is in every child in which it could match, and the leaf compares all bits.
//!
//! The choice of windows is greedy: the windows that shorten the lists most, weighted by how often rules hit them, for
//! the copies that they cause. The copies of a tree are limited by a budget ([`REFERENCES_MAX`] per rule, and a free
//! allowance). A list that no window improves stays, up to [`LEAF_MAX`] rules. Rules with few restrictions would be
//! copied everywhere. So if one tree is not enough, rules are partitioned by the fields in which they are small. Each
//! part gets its own tree; the tree with the best rules comes first.
//!
//! A tree takes changes. A new rule is added to the lists of the leaves that it touches, if there are not too many and
//! they have space. A removed rule keeps its entries but no longer matches any key. If it hid other rules, which are
//! therefore in no list, it becomes a [`WALL`] instead: a look-up that finds it has to search all rules. Source: after
//! HiCuts and HyperCuts (P. Gupta and N. McKeown 1999; S. Singh and others, SIGCOMM 2003), with separable trees as in
//! EffiCuts (B. Vamanan and others, SIGCOMM 2010) and CutSplit (W. Li and others, INFOCOM 2018), and with windows
//! anywhere in a field as in BitCuts.

use std::collections::BTreeMap;

use super::key::{KeyBits, Layout, Words, is_within, ones};
use super::rule_store::{Rank, RuleStore, StoredRule, has_extra, id_of};
use super::space::{AHEAD, Context};
use super::{LEAF_MAX, REFERENCES_MAX};

/// The rank of a removed rule that hid others: the look-up has to search all rules.
pub(super) const WALL: Rank = Rank::MAX - 1;

/// References that any tree may have, even with few rules: small tables trade memory for speed.
const REFERENCES_FREE: usize = 64 << 10;
/// Rules and references that changes may add to any tree, and to a large tree per rule.
const CHANGES_FREE: usize = 256 << 10;
const CHANGES_A_RULE: usize = 8;
/// A list of this length is not split further.
const LEAF_GOAL: usize = 4;
/// The widest window of a node.
const WINDOW_MAX: u8 = 10;
/// Maximum depth of a tree.
pub(super) const DEPTH_MAX: usize = 16;
/// Sample size of longer lists when windows are compared.
const WEIGHED_MAX: usize = 2048;
/// Maximum number of leaves for a new rule.
const LEAVES_MAX: usize = 64;
/// No rule of the tree.
const NO_RULE: u32 = u32::MAX;
const _: () = assert!(WINDOW_MAX < 1 << 4, "an entry has 4 bits for the width of a window");
const _: () = assert!(LEAF_GOAL <= LEAF_MAX && LEAVES_MAX < CHANGES_FREE);

/// A decision tree.
#[derive(Clone, Debug)]
pub(super) struct Tree {
    root: u64,
    entries: Vec<u64>,
    leaves: Vec<u32>,
    /// The rank, lower corner and upper corner of each rule: the initial ones best first, then those added since.
    rules: Vec<u64>,
    rank_max: Rank,
    depth: usize,
    places: Vec<KeyBits>,
    /// The rule number of each id, or [`NO_RULE`].
    numbers: Vec<u32>,
    /// Whether each rule hides others in some leaf.
    hides: Vec<bool>,
    /// Rules and references that changes may still add, and the initial allowance.
    room: usize,
    room_at_first: usize,
    /// The number of rules that became walls.
    walls: usize,
}

/// A rule for a new tree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Input {
    pub(super) rank: Rank,
    pub(super) lo: Words,
    pub(super) hi: Words,
}

/// Why a tree was not built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooBig;

impl Input {
    /// Copies all rules of a store, best first.
    pub(super) fn all(store: &RuleStore) -> Vec<Self> {
        let mut rules: Vec<Self> = store
            .iter()
            .map(|rule| {
                let (mut lo, mut hi) = (Words::default(), Words::default());
                lo[..rule.lo.len()].copy_from_slice(rule.lo);
                hi[..rule.hi.len()].copy_from_slice(rule.hi);
                Self { rank: rule.rank, lo, hi }
            })
            .collect();
        rules.sort_unstable_by_key(|rule| core::cmp::Reverse(rule.rank));
        rules
    }
}

// An entry: 0 is empty. A leaf has bit 0 clear, its length from bit 1 and its start from bit 32. A node has bit 0 set.
// Its two windows are at bits 1 and 14, as (word, shift, bits); its first entry is at bit 32.
const WINDOW_BITS: u32 = 13;

fn leaf(start: usize, len: usize) -> u64 {
    assert!(
        start <= u32::MAX as usize && len <= u32::MAX as usize >> 1,
        "an entry has 32 and 31 bits for them"
    );
    (start as u64) << 32 | (len as u64) << 1
}

fn node(base: usize, windows: [Window; 2]) -> u64 {
    assert!(base <= u32::MAX as usize, "an entry has 32 bits for its first cell");
    let packed = windows.map(|w| u64::from(w.bits) << 9 | u64::from(w.shift) << 3 | u64::from(w.word));
    (base as u64) << 32 | packed[1] << (1 + WINDOW_BITS) | packed[0] << 1 | 1
}

/// Decodes the windows of a node from its entry.
fn windows_of(entry: u64) -> [Window; 2] {
    [1, 1 + WINDOW_BITS].map(|at| {
        let window = entry >> at;
        Window { word: (window & 7) as u8, shift: (window >> 3 & 63) as u8, bits: (window >> 9 & 15) as u8 }
    })
}

/// Computes the index that a node's windows have in a key.
#[inline(always)]
fn step<const N: usize>(entry: u64, key: &[u64; N]) -> usize {
    let window = |at: u64| {
        let word = key.get(at as usize & 7).copied().unwrap_or(0);
        (word >> (at >> 3 & 63)) & ((1 << (at >> 9 & 15)) - 1)
    };
    let (first, second) = (entry >> 1, entry >> (1 + WINDOW_BITS));
    ((entry >> 32) + (window(first) | window(second) << (first >> 9 & 15))) as usize
}

/// The bits of a key that a node reads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Window {
    word: u8,
    shift: u8,
    bits: u8,
}

impl Tree {
    /// A tree over rules that are sorted best first.
    ///
    /// # Errors
    /// [`TooBig`], if lists, copies of rules or levels would exceed the limits.
    pub(super) fn build(layout: &Layout, rules: &[Input]) -> Result<Self, TooBig> {
        let builder = Builder {
            rules,
            places: layout.all_places().collect(),
            // A look-up that has reached a leaf reads the first entry once more.
            entries: vec![0],
            leaves: Vec::new(),
            shared: BTreeMap::new(),
            hides: vec![false; rules.len()],
            depth: 0,
            room: REFERENCES_FREE + REFERENCES_MAX * rules.len(),
        };
        builder.build(layout.words())
    }

    pub(super) fn rank_max(&self) -> Rank {
        self.rank_max
    }

    pub(super) fn depth(&self) -> usize {
        self.depth
    }

    /// The memory of the tree in bytes.
    pub(super) fn bytes(&self) -> usize {
        (self.entries.len() + self.rules.len()) * 8
            + (self.leaves.len() + self.numbers.len()) * 4
            + self.hides.len()
    }

    /// Whether changes have used half of their allowance, or have left walls.
    pub(super) fn is_worn(&self) -> bool {
        self.walls > 0 || self.room < self.room_at_first / 2
    }

    /// Finds the best matching rule; returns `best` if none is better.
    #[inline(always)]
    pub(super) fn find<const N: usize>(&self, context: Context<'_>, key: &[u64; N], best: Rank) -> Rank {
        let mut entry = self.root;
        while entry & 1 == 1 {
            entry = self.entries[step(entry, key)];
        }
        self.find_in_leaf(context, entry, key, best)
    }

    /// As [`find`](Self::find) for several keys, level by level.
    #[inline(always)]
    pub(super) fn find_batch<const N: usize>(
        &self,
        context: Context<'_>,
        keys: &[[u64; N]],
        best: &mut [Rank],
    ) {
        let mut at = [self.root; AHEAD];
        let at = &mut at[..keys.len()];
        loop {
            let mut is_node = 0;
            for (entry, key) in at.iter_mut().zip(keys) {
                // No branch: it is unpredictable which key has reached a leaf.
                let goes_on = *entry & 1 == 1;
                let next = self.entries[if goes_on { step(*entry, key) } else { 0 }];
                *entry = if goes_on { next } else { *entry };
                is_node |= *entry;
            }
            if is_node & 1 == 0 {
                break;
            }
        }
        for ((key, best), entry) in keys.iter().zip(best).zip(at) {
            *best = self.find_in_leaf(context, *entry, key, *best);
        }
    }

    /// The numbers of entries, and of references and rules, that a look-up reads.
    pub(super) fn touches<const N: usize>(&self, context: Context<'_>, key: &[u64; N]) -> (usize, usize) {
        let (mut entry, mut steps) = (self.root, 0);
        while entry & 1 == 1 {
            entry = self.entries[step(entry, key)];
            steps += 1;
        }
        let found = self.find_in_leaf(context, entry, key, 0);
        let list = self.list(entry);
        let stride = 1 + 2 * N;
        let read = list.iter().position(|&rule| self.rules[rule as usize * stride] == found);
        (steps, read.map_or(list.len(), |at| at + 1))
    }

    // ---- changes -------------------------------------------------------------------------------------------------

    /// The leaf entries to which a new rule is to be added. None if there are too many, or one has no space.
    pub(super) fn leaves_of(&self, rule: StoredRule<'_>) -> Option<Vec<u32>> {
        let region: Region = self.places.iter().map(|place| (0, ones(place.bits))).collect();
        let mut found = Vec::new();
        let is_node = self.root & 1 == 1;
        (is_node && self.touch(self.root, rule, &region, &mut found)).then_some(found)
    }

    /// Finds the leaves below a node that a rule touches; false if the rule cannot be added to them.
    fn touch(&self, entry: u64, rule: StoredRule<'_>, region: &Region, found: &mut Vec<u32>) -> bool {
        let windows = windows_of(entry);
        let spans = windows.map(|window| span(&self.places, (rule.lo, rule.hi), window, region));
        for second in spans[1].cells(windows[1].bits) {
            for first in spans[0].cells(windows[0].bits) {
                let cell = (second << windows[0].bits) | first;
                let at = (entry >> 32) as usize + cell;
                let goes_on = match self.entries[at] {
                    node if node & 1 == 1 => {
                        let below = below(&self.places, region, windows, cell);
                        self.touch(node, rule, &below, found)
                    }
                    leaf => {
                        found.push(at as u32);
                        found.len() <= LEAVES_MAX && self.live(leaf).count() < LEAF_MAX
                    }
                };
                if !goes_on {
                    return false;
                }
            }
        }
        true
    }

    /// Adds a rule to the leaves of [`Tree::leaves_of`]; false if there is no space.
    pub(super) fn insert(&mut self, rule: StoredRule<'_>, leaves: &[u32]) -> bool {
        if self.room < 1 + leaves.len() * LEAF_MAX {
            return false;
        }
        assert_eq!(self.rules.len(), self.hides.len() * self.stride(), "rules have equal strides");
        let number = self.hides.len() as u32;
        self.hides.push(false);
        self.rules.push(rule.rank);
        self.rules.extend(rule.lo.iter().chain(rule.hi));
        let id = id_of(rule.rank) as usize;
        if self.numbers.len() <= id {
            self.numbers.resize(id + 1, NO_RULE);
        }
        self.numbers[id] = number;
        self.rank_max = self.rank_max.max(rule.rank);
        for &at in leaves {
            let mut list: Vec<u32> = self.live(self.entries[at as usize]).collect();
            // Behind the walls that precede the first worse rule: their former ranks are unknown.
            let is_worse = |other: &u32| self.rules[*other as usize * self.stride()] < rule.rank;
            list.insert(list.iter().position(is_worse).unwrap_or(list.len()), number);
            self.entries[at as usize] = leaf(self.leaves.len(), list.len());
            self.room -= list.len();
            self.leaves.extend(list);
        }
        self.room -= 1;
        true
    }

    /// Removes the rule with this id; false if it is not in this tree.
    pub(super) fn remove(&mut self, id: u32) -> bool {
        let Some(number) = self.number(id) else { return false };
        self.numbers[id as usize] = NO_RULE;
        let words = (self.stride() - 1) / 2;
        let at = number as usize * self.stride();
        if self.hides[number as usize] {
            self.rules[at] = WALL;
            self.walls += 1;
        } else {
            // No key is inside this box.
            self.rules[at + 1..][..words].fill(u64::MAX);
            self.rules[at + 1 + words..][..words].fill(0);
        }
        true
    }

    /// Changes the rank of the rule with this id, which keeps the order; false if it is not in this tree.
    pub(super) fn rerank(&mut self, id: u32, rank: Rank) -> bool {
        let Some(number) = self.number(id) else { return false };
        let at = number as usize * self.stride();
        self.rules[at] = rank;
        self.rank_max = self.rank_max.max(rank);
        true
    }

    /// The number of a rule in the tree; None if the tree does not have it.
    fn number(&self, id: u32) -> Option<u32> {
        self.numbers.get(id as usize).copied().filter(|number| *number != NO_RULE)
    }

    /// The rules of a leaf that may still match a key.
    fn live(&self, leaf: u64) -> impl Iterator<Item = u32> {
        let stride = self.stride();
        let has_gone = move |number: u32| {
            let corners = &self.rules[number as usize * stride + 1..][..stride - 1];
            corners[0] == u64::MAX && corners[(stride - 1) / 2] == 0
        };
        self.list(leaf).iter().copied().filter(move |&number| !has_gone(number))
    }

    /// Words of a rule.
    fn stride(&self) -> usize {
        self.rules.len() / self.hides.len().max(1)
    }

    /// The rule numbers of a leaf.
    #[inline(always)]
    fn list(&self, entry: u64) -> &[u32] {
        let (start, len) = ((entry >> 32) as usize, (entry as u32 >> 1) as usize);
        &self.leaves[start..start + len]
    }

    /// Finds the best rule of a leaf for a key; returns `best` if none is better.
    #[inline(always)]
    fn find_in_leaf<const N: usize>(
        &self,
        context: Context<'_>,
        entry: u64,
        key: &[u64; N],
        best: Rank,
    ) -> Rank {
        let stride = 1 + 2 * N;
        for &rule in self.list(entry) {
            let rule = &self.rules[rule as usize * stride..][..stride];
            let rank = rule[0];
            if rank <= best {
                break;
            }
            if is_within(key, &rule[1..=N], &rule[1 + N..], context.guards())
                && (!has_extra(rank) || context.passes(rank, key))
            {
                return rank;
            }
        }
        best
    }
}

/// Partitions rules by the fields in which they are small; each part gets its own tree.
pub(super) fn parts(layout: &Layout, rules: &[Input]) -> Vec<Vec<Input>> {
    let places: Vec<KeyBits> = layout.all_places().collect();
    let by = discriminating_fields(&places, rules);
    let mut parts: BTreeMap<usize, Vec<Input>> = BTreeMap::new();
    for &rule in rules {
        let small = |at: usize| {
            let place = places[at];
            let span = place.of(&rule.hi) - place.of(&rule.lo);
            usize::from(span < ones(place.bits.div_ceil(2)))
        };
        let part = by.iter().fold(0, |part, &at| part << 1 | small(at));
        parts.entry(part).or_default().push(rule);
    }
    let mut parts: Vec<Vec<Input>> = parts.into_values().collect();
    parts.sort_by_key(Vec::len);
    // A tree for a handful of rules costs a look-up more than a few more rules in a larger tree.
    while parts.len() > 1 && parts[0].len() * PART_SHARE < rules.len().max(PART_SHARE * 8) {
        let few = parts.remove(0);
        parts[0].extend(few);
        parts[0].sort_unstable_by_key(|rule| core::cmp::Reverse(rule.rank));
        parts.sort_by_key(Vec::len);
    }
    parts.sort_by_key(|part| core::cmp::Reverse(part[0].rank));
    parts
}

/// A part has at least one of this many rules.
const PART_SHARE: usize = 50;

/// Finds the two fields that separate most rules.
fn discriminating_fields(places: &[KeyBits], rules: &[Input]) -> Vec<usize> {
    let values = |at: &usize| {
        let mut seen: Vec<(u64, u64)> =
            rules.iter().map(|rule| (places[*at].of(&rule.lo), places[*at].of(&rule.hi))).collect();
        seen.sort_unstable();
        seen.dedup();
        core::cmp::Reverse(seen.len())
    };
    let mut by: Vec<usize> = (0..places.len()).collect();
    by.sort_by_cached_key(values);
    by.truncate(2);
    by
}

struct Builder<'a> {
    rules: &'a [Input],
    places: Vec<KeyBits>,
    entries: Vec<u64>,
    leaves: Vec<u32>,
    /// The list of each rule set: children with the same rules share one.
    shared: BTreeMap<Vec<u32>, u64>,
    hides: Vec<bool>,
    depth: usize,
    /// References and entries that may still be added.
    room: usize,
}

/// The keys that reach a node, as far as known: an interval for each field part.
type Region = Vec<(u64, u64)>;

impl Builder<'_> {
    /// Builds the tree over all rules; `words` is the number of words of a key. An error if it would be too big.
    fn build(mut self, words: usize) -> Result<Tree, TooBig> {
        let all: Vec<u32> = (0..self.rules.len() as u32).collect();
        let region: Region = self.places.iter().map(|place| (0, ones(place.bits))).collect();
        let budget = self.room / 2;
        let root = self.entry(all, &region, budget, 0)?;
        let stride = 1 + 2 * words;
        let mut rules = Vec::with_capacity(self.rules.len() * stride);
        for rule in self.rules {
            rules.push(rule.rank);
            rules.extend_from_slice(&rule.lo[..words]);
            rules.extend_from_slice(&rule.hi[..words]);
        }
        let rank_max = self.rules.first().map_or(0, |rule| rule.rank);
        let ids = || self.rules.iter().map(|rule| id_of(rule.rank) as usize);
        let mut numbers = vec![NO_RULE; ids().max().map_or(0, |id| id + 1)];
        ids().zip(0..).for_each(|(id, number)| numbers[id] = number);
        let Self { entries, leaves, depth, places, hides, .. } = self;
        let room = CHANGES_FREE + CHANGES_A_RULE * hides.len();
        Ok(Tree {
            root,
            entries,
            leaves,
            rules,
            rank_max,
            depth,
            places,
            numbers,
            hides,
            room,
            room_at_first: room,
            walls: 0,
        })
    }

    /// Builds the subtree for these rules in a region, and returns its entry. `budget` limits the list entries that it
    /// may use.
    fn entry(
        &mut self,
        rules: Vec<u32>,
        region: &Region,
        budget: usize,
        depth: usize,
    ) -> Result<u64, TooBig> {
        let rules = self.without_hidden(rules, region);
        self.depth = self.depth.max(depth);
        if rules.len() <= LEAF_GOAL || depth == DEPTH_MAX {
            return self.leaf(rules);
        }
        let Some(windows) = self.windows(&rules, region, budget) else { return self.leaf(rules) };
        let cells = 1usize << (windows[0].bits + windows[1].bits);
        let mut children: Vec<Vec<u32>> = vec![Vec::new(); cells];
        for &rule in &rules {
            let spans = windows.map(|window| self.span(rule, window, region));
            for second in spans[1].cells(windows[1].bits) {
                for first in spans[0].cells(windows[0].bits) {
                    children[(second << windows[0].bits) | first].push(rule);
                }
            }
        }
        drop(rules);
        let copies: usize = children.iter().map(Vec::len).sum();
        self.room = self.room.checked_sub(cells).ok_or(TooBig)?;
        let base = self.entries.len();
        self.entries.resize(base + cells, 0);
        for (cell, child) in children.into_iter().enumerate() {
            let share =
                (budget.saturating_sub(cells) as u128 * child.len() as u128 / copies.max(1) as u128) as usize;
            let below = below(&self.places, region, windows, cell);
            self.entries[base + cell] = self.entry(child, &below, share, depth + 1)?;
        }
        Ok(node(base, windows))
    }

    /// Adds a leaf with these rules, or reuses an equal one; returns its entry.
    fn leaf(&mut self, rules: Vec<u32>) -> Result<u64, TooBig> {
        if rules.is_empty() {
            return Ok(0);
        }
        if rules.len() > LEAF_MAX {
            return Err(TooBig);
        }
        if let Some(&found) = self.shared.get(&rules) {
            return Ok(found);
        }
        self.room = self.room.checked_sub(rules.len()).ok_or(TooBig)?;
        let entry = leaf(self.leaves.len(), rules.len());
        self.leaves.extend_from_slice(&rules);
        self.shared.insert(rules, entry);
        Ok(entry)
    }

    /// The rules that some key of the region may match first: without those that a better rule covers in the region.
    fn without_hidden(&mut self, mut rules: Vec<u32>, region: &Region) -> Vec<u32> {
        let holds = |rule: u32| {
            let rule = &self.rules[rule as usize];
            let holds_place = |(place, &(lo, hi)): (&KeyBits, &(u64, u64))| {
                place.of(&rule.lo) <= lo && hi <= place.of(&rule.hi)
            };
            !has_extra(rule.rank) && self.places.iter().zip(region).all(holds_place)
        };
        if let Some(at) = rules.iter().position(|&rule| holds(rule)).filter(|at| at + 1 < rules.len()) {
            self.hides[rules[at] as usize] = true;
            rules.truncate(at + 1);
        }
        if rules.len() <= HIDING_MAX {
            let mut kept: Vec<u32> = Vec::with_capacity(rules.len());
            for rule in rules {
                match kept.iter().find(|&&better| self.is_hidden(better, rule, region)) {
                    Some(&better) => self.hides[better as usize] = true,
                    None => kept.push(rule),
                }
            }
            return kept;
        }
        rules
    }

    /// Whether the better rule covers everything that the worse one has in the region.
    fn is_hidden(&self, better: u32, worse: u32, region: &Region) -> bool {
        let (better, worse) = (&self.rules[better as usize], &self.rules[worse as usize]);
        let holds_place = |(place, &(lo, hi)): (&KeyBits, &(u64, u64))| {
            place.of(&better.lo) <= place.of(&worse.lo).max(lo)
                && place.of(&worse.hi).min(hi) <= place.of(&better.hi)
        };
        !has_extra(better.rank) && self.places.iter().zip(region).all(holds_place)
    }

    /// The cells of a window that a rule touches in a region.
    fn span(&self, rule: u32, window: Window, region: &Region) -> Cells {
        let rule = &self.rules[rule as usize];
        span(&self.places, (&rule.lo, &rule.hi), window, region)
    }

    /// Chooses the windows that separate these rules best; None if none is worth its copies.
    fn windows(&self, rules: &[u32], region: &Region, budget: usize) -> Option<[Window; 2]> {
        let sample: Vec<u32> = rules.iter().step_by(rules.len().div_ceil(WEIGHED_MAX)).copied().collect();
        let scale = rules.len() as f64 / sample.len() as f64;
        let goal = Goal::new(rules.len(), budget);
        let cells_max = rules.len() * CELLS_A_RULE;
        let spans = |window: Window| -> Vec<Cells> {
            sample.iter().map(|&rule| self.span(rule, window, region)).collect()
        };
        let mut best: Option<(f64, Window)> = None;
        for (place, &(lo, hi)) in self.places.iter().zip(region) {
            for window in candidates(*place, lo, hi).filter(|window| 1 << window.bits <= cells_max) {
                let score = goal.score(&counts(&spans(window), window.bits), sample.len(), scale);
                if score > best.map_or(0.0, |(score, _)| score) {
                    best = Some((score, window));
                }
            }
        }
        let (score, first) = best?;
        let mut pair = (score, [first, Window::default()]);
        let firsts = spans(first);
        for (place, &(lo, hi)) in self.places.iter().zip(region) {
            let is_other = |window: &Window| {
                let bits = window.bits + first.bits;
                !overlap(*window, first) && bits <= WINDOW_MAX && 1 << bits <= cells_max
            };
            for window in candidates(*place, lo, hi).filter(is_other) {
                let counted = counts_of_two(&firsts, first.bits, &spans(window), window.bits);
                let score = goal.score(&counted, sample.len(), scale);
                if score > pair.0 * PAIR_GAIN {
                    pair = (score, [first, window]);
                }
            }
        }
        Some(pair.1)
    }
}

/// The cells of a window that a rule with these corners is in.
fn span(places: &[KeyBits], (lo, hi): (&[u64], &[u64]), window: Window, region: &Region) -> Cells {
    let at = place_of(places, window);
    let (place, known) = (places[at], region[at]);
    let up = window.shift - place.shift;
    let (lo, hi) = (place.of(lo).max(known.0) >> up, place.of(hi).min(known.1) >> up);
    let cells = 1u64 << window.bits;
    // A rule outside the known region is here only because of single bits.
    let Some(more) = hi.checked_sub(lo) else { return Cells { first: 0, len: 0 } };
    if more >= cells - 1 {
        return Cells { first: 0, len: cells as usize };
    }
    Cells { first: (lo & (cells - 1)) as usize, len: more as usize + 1 }
}

/// Finds the field part that contains a window.
fn place_of(places: &[KeyBits], window: Window) -> usize {
    let holds = |place: &KeyBits| {
        place.word == window.word && place.shift <= window.shift && window.shift < place.shift + place.bits
    };
    places.iter().position(holds).expect("each window lies in a field")
}

/// The known region of a child. Bits below unknown bits do not define an interval.
fn below(places: &[KeyBits], region: &Region, windows: [Window; 2], cell: usize) -> Region {
    let mut below = region.clone();
    let first = cell & ((1 << windows[0].bits) - 1);
    for (window, number) in windows.into_iter().zip([first, cell >> windows[0].bits]) {
        if window.bits == 0 {
            continue;
        }
        let at = place_of(places, window);
        let (lo, hi) = below[at];
        let up = window.shift - places[at].shift;
        let width = ones(up + window.bits);
        if hi - lo == width && lo & width == 0 {
            let lo = lo | (number as u64) << up;
            below[at] = (lo, lo | ones(up));
        }
    }
    below
}

/// The factor by which a second window has to improve the score.
const PAIR_GAIN: f64 = 1.05;
/// Maximum number of cells of a node per rule.
const CELLS_A_RULE: usize = 4;
/// In lists up to this length, each rule is compared with each better one.
const HIDING_MAX: usize = 256;

/// Consecutive cells of a window, which may wrap around.
#[derive(Clone, Copy)]
struct Cells {
    first: usize,
    len: usize,
}

impl Cells {
    /// Iterates over the cells; they wrap around at the end of the window.
    fn cells(self, bits: u8) -> impl Iterator<Item = usize> {
        (0..self.len).map(move |more| (self.first + more) & ((1 << bits) - 1))
    }
}

/// Candidate windows of a field part: directly below the known bits, and further down.
fn candidates(place: KeyBits, lo: u64, hi: u64) -> impl Iterator<Item = Window> {
    let unknown = 64 - (lo ^ hi).leading_zeros() as u8;
    let step = if unknown > 16 { 2 } else { 1 };
    let widths = [1u8, 2, 3, 4, 6, 8, WINDOW_MAX];
    (1..=unknown).rev().step_by(step).flat_map(move |top| {
        let narrow = widths.into_iter().filter(move |&bits| bits <= top);
        narrow.map(move |bits| Window { word: place.word, shift: place.shift + top - bits, bits })
    })
}

fn overlap(a: Window, b: Window) -> bool {
    a.word == b.word && a.shift < b.shift + b.bits && b.shift < a.shift + a.bits
}

/// Counts the rules in each cell of a window.
fn counts(spans: &[Cells], bits: u8) -> Vec<u32> {
    let mut counts = vec![0i32; (1 << bits) + 1];
    for span in spans {
        let end = span.first + span.len;
        counts[span.first] += 1;
        counts[end.min(1 << bits)] -= 1;
        if end > 1 << bits {
            counts[0] += 1;
            counts[end - (1 << bits)] -= 1;
        }
    }
    let mut sum = 0;
    let summed = counts[..1 << bits].iter().map(|change| {
        sum += change;
        sum as u32
    });
    summed.collect()
}

/// The number of rules in each cell of two windows.
fn counts_of_two(first: &[Cells], first_bits: u8, second: &[Cells], second_bits: u8) -> Vec<u32> {
    let mut counts = vec![0u32; 1 << (first_bits + second_bits)];
    for (a, b) in first.iter().zip(second) {
        for above in b.cells(second_bits) {
            for cell in a.cells(first_bits) {
                counts[above << first_bits | cell] += 1;
            }
        }
    }
    counts
}

/// The goal and the limits of a node.
struct Goal {
    n: f64,
    budget: f64,
    /// The price of a copy in units of list length, both as logarithms.
    price: f64,
}

impl Goal {
    /// Sets the price of a copied rule from the number of rules and the list entries that may be used.
    fn new(n: usize, budget: usize) -> Self {
        let (n, budget) = (n as f64, budget.max(1) as f64);
        let copies = (budget / n).max(1.05).ln();
        let price = (n / LEAF_GOAL as f64).max(1.5).ln() / copies;
        Self { n, budget, price }
    }

    /// The progress towards the goal relative to its cost; greater than 0 if the window is worth it.
    fn score(&self, counts: &[u32], sampled: usize, scale: f64) -> f64 {
        let copies: f64 = counts.iter().map(|&count| f64::from(count)).sum::<f64>() * scale;
        let squares: f64 =
            counts.iter().map(|&count| f64::from(count) * f64::from(count)).sum::<f64>() * scale;
        if copies + counts.len() as f64 > self.budget || copies == 0.0 {
            return 0.0;
        }
        // The expected list length, if keys hit the cells as often as the rules do.
        let met = (squares / copies * scale).max(LEAF_GOAL as f64 / 2.0);
        let shorter = (self.n / met).ln();
        let longer = (copies / self.n).ln().max(0.0);
        let entries = (1.0 + counts.len() as f64 / (self.budget + sampled as f64)).ln();
        if shorter < 0.1 { 0.0 } else { shorter - self.price.min(8.0) * 0.5 * longer - entries }
    }
}
