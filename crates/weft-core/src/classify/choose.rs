//! The choice of a structure for a table, by expected look-up cost.

use core::fmt;

use super::direct::Direct;
use super::key::{Layout, Words, is_within};
use super::rule_store::{Rank, RuleStore, StoredRule, has_extra, id_of};
use super::space::{Context, Space};
use super::tree::{self, Input, Tree};
use super::trie::Trie;
use super::tries::Tries;
use super::vectors::Vectors;
use crate::hash;

/// Nanoseconds for a probe of a tuple, a step down a tree, a rule of a leaf, and an additional tree; measured by `weft
/// bench classify`. Only their ratios matter.
const PROBE: f64 = 5.0;
const STEP: f64 = 2.5;
const CHECK: f64 = 2.5;
const ENTER: f64 = 3.0;
/// Sample keys, drawn from the rules, for the cost of a look-up.
const SAMPLES: usize = 512;

/// The kind of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An array over all keys.
    Direct,
    /// One hash table: all rules have the same mask.
    Hash,
    /// A multibit trie over the only field that the rules restrict, or one trie for each value of a second, narrow
    /// field.
    Trie,
    /// Bit vectors: for each chunk of a key, the set of rules that match its value.
    Vectors,
    /// Decision trees, and a tuple space for rules that do not fit a tree.
    Trees,
    /// A hash table for each mask of the rules.
    TupleSpace,
}

/// The structure of a table and its expected look-up cost.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// The structure.
    pub kind: Kind,
    /// The number of rules.
    pub rules: usize,
    /// The number of trees, tuples or chunks; 1 for the other structures.
    pub parts: usize,
    /// Maximum number of steps from a root to a list of rules; 1 for tables.
    pub depth: usize,
    /// The memory of the rules and all structures.
    pub bytes: usize,
    /// The mean number of memory reads of a look-up, over keys that the rules match.
    pub touches: f64,
    /// The number of pending changes.
    pub changes: usize,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Direct => "direct",
            Self::Hash => "hash",
            Self::Trie => "trie",
            Self::Vectors => "vectors",
            Self::Trees => "trees",
            Self::TupleSpace => "tuple space",
        })
    }
}

impl fmt::Display for Description {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, rules, parts, depth, bytes, touches, changes } = self;
        write!(
            f,
            "{kind}   {rules} rules, {bytes} bytes   parts {parts}, depth {depth}, touches {touches:.1}"
        )?;
        if *changes > 0 { write!(f, "   {changes} changes beside it") } else { Ok(()) }
    }
}

/// The structure over the rules of a table.
#[derive(Clone, Debug)]
pub(super) enum Structure {
    /// No structure of its own: the tuple space that every table has.
    Space,
    Direct(Direct),
    Trie(Trie),
    Tries(Box<Tries>),
    Vectors(Vectors),
    Trees(Box<Trees>),
}

/// Decision trees, and the rules that do not fit one.
#[derive(Clone, Debug)]
pub(super) struct Trees {
    /// The trees, those with the best rules first.
    pub(super) trees: Vec<Tree>,
    pub(super) rest: Space,
    /// The number of rules they were built from.
    built_of: usize,
}

impl Structure {
    /// The structure with the least expected cost, and the reads of a look-up in it. `space` holds all rules, if it
    /// exists already.
    pub(super) fn choose(layout: &Layout, store: &RuleStore, space: Option<&Space>) -> (Self, f64) {
        if let Some(direct) = Direct::build(layout, store) {
            return (Self::Direct(direct), 1.0);
        }
        if has_one_mask(layout, store) {
            return (Self::Space, 1.0);
        }
        let samples = samples(layout, store);
        if let Some(trie) = Trie::build(layout, store) {
            let touches = samples.iter().map(|key| trie.touches(key)).sum::<usize>();
            return (Self::Trie(trie), touches as f64 / samples.len() as f64);
        }
        let rules = Input::all(store);
        // The other structures pay for unpredictable branches, which the number of reads does not show.
        if let Some(vectors) = Vectors::build(layout, &rules) {
            let touches = 2 * vectors.chunks().count();
            return (Self::Vectors(vectors), touches as f64);
        }
        if let Some(tries) = Tries::build(layout, store) {
            let touches = samples.iter().map(|key| tries.touches(key)).sum::<usize>();
            return (Self::Tries(Box::new(tries)), touches as f64 / samples.len() as f64);
        }
        let context = Context { layout, store };
        let cost = match space {
            Some(space) => space.cost(context, &samples),
            None => Space::of(layout, store).cost(context, &samples),
        };
        let mut best = (Self::Space, cost);
        if let Ok(tree) = Tree::build(layout, &rules) {
            best = cheaper(
                best,
                Trees { trees: vec![tree], rest: Space::new(layout), built_of: rules.len() },
                context,
                &samples,
            );
        }
        let parts = tree::parts(layout, &rules);
        drop(rules);
        if parts.len() > 1 || matches!(best.0, Self::Space) {
            best = cheaper(best, Trees::of_parts(context, &parts), context, &samples);
        }
        (best.0, best.1.touches)
    }

    /// The memory of the structure in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Space => 0,
            Self::Direct(direct) => direct.bytes(),
            Self::Trie(trie) => trie.bytes(),
            Self::Tries(tries) => tries.bytes(),
            Self::Vectors(vectors) => vectors.bytes(),
            Self::Trees(trees) => trees.trees.iter().map(Tree::bytes).sum::<usize>() + trees.rest.bytes(),
        }
    }
}

/// The effect of removing a rule from a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// The structure no longer returns it; it may return a [`WALL`](tree::WALL).
    Out,
    /// The structure never had it.
    Absent,
    /// The structure may still return it.
    Stays,
}

impl Removal {
    /// [`Removal::Out`] if the structure has removed the rule, else `other`.
    fn if_out(is_out: bool, other: Self) -> Self {
        if is_out { Self::Out } else { other }
    }
}

impl Structure {
    /// Whether it takes changes.
    pub(super) fn takes_changes(&self) -> bool {
        matches!(self, Self::Trie(_) | Self::Tries(_) | Self::Trees(_))
    }

    /// Adds a rule of the store; false if it does not take it.
    pub(super) fn insert(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        match self {
            Self::Trie(trie) => trie.insert(store, rule),
            Self::Tries(tries) => tries.insert(store, rule),
            Self::Trees(trees) => trees.insert(rule),
            Self::Space | Self::Direct(_) | Self::Vectors(_) => false,
        }
    }

    /// Removes a rule of the store.
    pub(super) fn remove(&mut self, layout: &Layout, store: &RuleStore, rule: StoredRule<'_>) -> Removal {
        match self {
            Self::Trie(trie) => Removal::if_out(trie.remove(store, rule), Removal::Stays),
            Self::Tries(tries) => Removal::if_out(tries.remove(store, rule), Removal::Stays),
            Self::Trees(trees) => Removal::if_out(trees.remove(layout, rule), Removal::Absent),
            Self::Space => Removal::Absent,
            Self::Direct(_) | Self::Vectors(_) => Removal::Stays,
        }
    }

    /// Whether it stores the ranks of rules, not only their ids.
    pub(super) fn has_ranks(&self) -> bool {
        !matches!(self, Self::Space | Self::Direct(_))
    }

    /// Changes the rank of a rule, which still has its old rank in `rule`; the order stays. False if it does not take
    /// the change.
    pub(super) fn rerank(&mut self, layout: &Layout, rule: StoredRule<'_>, rank: Rank) -> bool {
        match self {
            Self::Trie(trie) => {
                trie.rerank(rule, rank);
                true
            }
            Self::Tries(tries) => {
                tries.rerank(rule, rank);
                true
            }
            Self::Trees(trees) => trees.rerank(layout, rule, rank),
            other => !other.has_ranks(),
        }
    }

    /// Whether it has taken so many changes that it has the wrong shape for this number of rules.
    pub(super) fn is_worn(&self, rules: usize) -> bool {
        match self {
            Self::Trie(trie) => trie.is_worn(rules),
            Self::Tries(tries) => tries.is_worn(),
            Self::Trees(trees) => trees.is_worn(rules),
            Self::Space | Self::Direct(_) | Self::Vectors(_) => false,
        }
    }
}

impl Trees {
    /// Adds a rule to the tree with the fewest affected leaves; false if there are too many in each tree.
    fn insert(&mut self, rule: StoredRule<'_>) -> bool {
        let leaves = self.trees.iter().enumerate().filter_map(|(at, tree)| Some((at, tree.leaves_of(rule)?)));
        let Some((at, leaves)) = leaves.min_by_key(|(_, leaves)| leaves.len()) else { return false };
        self.trees[at].insert(rule, &leaves)
    }

    fn remove(&mut self, layout: &Layout, rule: StoredRule<'_>) -> bool {
        let id = id_of(rule.rank);
        self.trees.iter_mut().any(|tree| tree.remove(id)) || self.rest.remove(layout, rule)
    }

    fn rerank(&mut self, layout: &Layout, rule: StoredRule<'_>, rank: Rank) -> bool {
        let id = id_of(rule.rank);
        self.trees.iter_mut().any(|tree| tree.rerank(id, rank)) || self.rest.rerank(layout, rule, rank)
    }

    /// Whether some look-ups have to search all rules, or leaves have become long.
    fn is_worn(&self, rules: usize) -> bool {
        rules > 2 * self.built_of || self.trees.iter().any(Tree::is_worn)
    }

    /// Builds one tree per part. Rules of a part whose tree would be too big go into the tuple space `rest`.
    fn of_parts(context: Context<'_>, parts: &[Vec<Input>]) -> Self {
        let Context { layout, store } = context;
        let built_of = parts.iter().map(Vec::len).sum();
        let mut made = Self { trees: Vec::new(), rest: Space::new(layout), built_of };
        for part in parts {
            match Tree::build(layout, part) {
                Ok(tree) => made.trees.push(tree),
                Err(tree::TooBig) => {
                    for rule in part {
                        made.rest
                            .insert(layout, store.get(id_of(rule.rank)).expect("the store holds the rule"));
                    }
                }
            }
        }
        made
    }

    /// Finds the best matching rule; returns `best` if none is better.
    #[inline(always)]
    pub(super) fn find<const N: usize>(&self, context: Context<'_>, key: &[u64; N], best: Rank) -> Rank {
        let mut best = best;
        for tree in &self.trees {
            if best < tree.rank_max() {
                best = tree.find(context, key, best);
            }
        }
        if self.rest.is_empty() { best } else { self.rest.find(context, key, best) }
    }

    pub(super) fn depth(&self) -> usize {
        self.trees.iter().map(Tree::depth).max().unwrap_or(1)
    }

    /// Estimates the cost of a look-up: the average over the sampled keys.
    fn cost(&self, context: Context<'_>, samples: &[Words]) -> Cost {
        let mut cost = self.rest.cost(context, samples);
        for tree in &self.trees {
            let (mut steps, mut checks) = (0, 0);
            for key in samples {
                let (step, check) =
                    in_words!(context.layout.words(), N => tree.touches::<N>(context, narrow(key)));
                steps += step;
                checks += check;
            }
            let (steps, checks) = (steps as f64 / samples.len() as f64, checks as f64 / samples.len() as f64);
            cost.ns += ENTER + STEP * steps + CHECK * checks;
            cost.touches += steps + checks;
        }
        cost
    }
}

impl Space {
    /// Estimates the cost of a look-up: the average over the sampled keys.
    pub(super) fn cost(&self, context: Context<'_>, samples: &[Words]) -> Cost {
        if self.is_empty() || samples.is_empty() {
            return Cost::default();
        }
        let (mut probes, mut checks) = (0, 0);
        for key in samples {
            let (probe, check) =
                in_words!(context.layout.words(), N => self.touches::<N>(context, narrow(key)));
            probes += probe;
            checks += check;
        }
        let (probes, checks) = (probes as f64 / samples.len() as f64, checks as f64 / samples.len() as f64);
        Cost { ns: PROBE * probes + CHECK * checks, touches: probes + checks }
    }
}

/// The cost of a look-up: expected nanoseconds and memory reads.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    ns: f64,
    pub(super) touches: f64,
}

/// Returns the cheaper of the best structure so far and these trees, with its cost.
fn cheaper(
    best: (Structure, Cost),
    trees: Trees,
    context: Context<'_>,
    samples: &[Words],
) -> (Structure, Cost) {
    let cost = trees.cost(context, samples);
    if cost.ns < best.1.ns { (Structure::Trees(Box::new(trees)), cost) } else { best }
}

/// Whether all rules have the same mask and no other tests.
fn has_one_mask(layout: &Layout, store: &RuleStore) -> bool {
    let mut asked = store.iter().map(|rule| layout.common(rule.lo, rule.hi, rule.extra));
    let Some((first, is_all)) = asked.next() else { return true };
    is_all && asked.all(|(care, is_all)| is_all && care == first)
}

/// Draws sample keys inside the boxes of rules, spread over all rules.
pub(super) fn samples(layout: &Layout, store: &RuleStore) -> Vec<Words> {
    let rules = store.iter().step_by(store.len().div_ceil(SAMPLES).max(1));
    rules.enumerate().map(|(number, rule)| sample(layout, rule, number as u64)).collect()
}

/// Draws a key that a rule matches; the same `number` gives the same key.
fn sample(layout: &Layout, rule: StoredRule<'_>, number: u64) -> Words {
    let mut key = Words::default();
    for (at, place) in layout.all_places().enumerate() {
        let (lo, hi) = (place.of(rule.lo), place.of(rule.hi));
        let drawn = hash::mix(hash::hash_word(number), at as u64);
        let value = lo + ((u128::from(drawn) * (u128::from(hi - lo) + 1)) >> 64) as u64;
        key[usize::from(place.word)] |= value << place.shift;
    }
    if let Some(extra) = rule.extra {
        for (key, (care, want)) in key.iter_mut().zip(extra.care.iter().zip(&extra.want)) {
            *key = *key & !care | want;
        }
    }
    key
}

/// The words of a key.
pub(super) fn narrow<const N: usize>(key: &[u64]) -> &[u64; N] {
    key.first_chunk().expect("a key has the words of its layout")
}

/// Finds the best rule by a linear search: the reference for tests and benchmarks.
pub(super) fn linear<const N: usize>(context: Context<'_>, key: &[u64; N]) -> u32 {
    let mut best: Rank = 0;
    for rule in context.store.iter() {
        if rule.rank > best
            && is_within(key, rule.lo, rule.hi, context.guards())
            && (!has_extra(rule.rank) || context.passes(rule.rank, key))
        {
            best = rule.rank;
        }
    }
    id_of(best)
}
