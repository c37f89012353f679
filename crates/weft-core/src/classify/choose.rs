//! Which structure a table is compiled to, by what it would cost.

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

/// Nanoseconds of one probe of a tuple, one step down a tree, one rule of a leaf, one tree beside others; measured by
/// `weft bench classify`. What matters is how they compare.
const PROBE: f64 = 5.0;
const STEP: f64 = 2.5;
const CHECK: f64 = 2.5;
const ENTER: f64 = 3.0;
/// Keys that are drawn from the rules to see what a look-up touches.
const SAMPLES: usize = 512;

/// What a table is compiled to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// An array over all keys.
    Direct,
    /// One hash table: all rules ask for the same bits.
    Hash,
    /// A multibit trie over the one field that the rules look at, or one for each kind of values that another tells
    /// apart.
    Trie,
    /// For each chunk of a key, the set of rules that admit its value.
    Vectors,
    /// Decision trees, and a tuple space for rules that fit none.
    Trees,
    /// A hash table for each set of bits that rules ask for.
    TupleSpace,
}

/// What a table is compiled to, and what a look-up is expected to touch.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Description {
    /// The structure.
    pub kind: Kind,
    /// Rules in the table.
    pub rules: usize,
    /// Trees, tuples or chunks; 1 for the others.
    pub parts: usize,
    /// The most steps from a root to a list of rules; 1 for tables.
    pub depth: usize,
    /// What the rules and all structures over them take.
    pub bytes: usize,
    /// Places in memory that a look-up reads: the mean over keys that the rules match.
    pub touches: f64,
    /// Changes since the structure was built, which are looked for beside it.
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

/// What is built over the rules of a table.
#[derive(Clone, Debug)]
pub(super) enum Structure {
    /// Nothing: the tuple space that the table has in any case.
    Space,
    Direct(Direct),
    Trie(Trie),
    Tries(Box<Tries>),
    Vectors(Vectors),
    Trees(Box<Trees>),
}

/// Trees, and what fits none.
#[derive(Clone, Debug)]
pub(super) struct Trees {
    /// Those with the best rules first.
    pub(super) trees: Vec<Tree>,
    pub(super) rest: Space,
    /// How many rules they were built of.
    built_of: usize,
}

impl Structure {
    /// The structure with the least expected cost, and what a look-up touches in it. `space` has all rules, if it is
    /// there already.
    pub(super) fn choose(layout: &Layout, store: &RuleStore, space: Option<&Space>) -> (Self, f64) {
        if let Some(direct) = Direct::build(layout, store) {
            return (Self::Direct(direct), 1.0);
        }
        if asks_one_mask(layout, store) {
            return (Self::Space, 1.0);
        }
        let samples = samples(layout, store);
        if let Some(trie) = Trie::build(layout, store) {
            let touches = samples.iter().map(|key| trie.touches(key)).sum::<usize>();
            return (Self::Trie(trie), touches as f64 / samples.len() as f64);
        }
        let rules = Input::all(store);
        // Branches that nobody can foretell are what the others cost: no count of touches shows that.
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

/// What came of taking a rule out of a structure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Removal {
    /// It is not found there any more, or a [`WALL`](tree::WALL) is.
    Out,
    /// It was never there.
    Absent,
    /// It may still be found.
    Stays,
}

impl Removal {
    fn if_out(is_out: bool, other: Self) -> Self {
        if is_out { Self::Out } else { other }
    }
}

impl Structure {
    /// Whether it can change.
    pub(super) fn takes_changes(&self) -> bool {
        matches!(self, Self::Trie(_) | Self::Tries(_) | Self::Trees(_))
    }

    /// Takes in a rule that is in the store; false if it does not.
    pub(super) fn insert(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        match self {
            Self::Trie(trie) => trie.insert(store, rule),
            Self::Tries(tries) => tries.insert(store, rule),
            Self::Trees(trees) => trees.insert(rule),
            Self::Space | Self::Direct(_) | Self::Vectors(_) => false,
        }
    }

    /// Forgets a rule that is in the store.
    pub(super) fn remove(&mut self, layout: &Layout, store: &RuleStore, rule: StoredRule<'_>) -> Removal {
        match self {
            Self::Trie(trie) => Removal::if_out(trie.remove(store, rule), Removal::Stays),
            Self::Tries(tries) => Removal::if_out(tries.remove(store, rule), Removal::Stays),
            Self::Trees(trees) => Removal::if_out(trees.remove(layout, rule), Removal::Absent),
            Self::Space => Removal::Absent,
            Self::Direct(_) | Self::Vectors(_) => Removal::Stays,
        }
    }

    /// Whether it has ranks of rules in it, and does not give their ids alone.
    pub(super) fn has_ranks(&self) -> bool {
        !matches!(self, Self::Space | Self::Direct(_))
    }

    /// Gives a rule, with its old rank here, another rank in the same order; false if it does not.
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

    /// Whether so many changes have been taken that it has the wrong shape for as many rules.
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
    /// Puts a rule into the tree in which it is in the fewest leaves; false if it is in too many of each.
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

    /// Whether all rules have to be asked now and then, or leaves have become long.
    fn is_worn(&self, rules: usize) -> bool {
        rules > 2 * self.built_of || self.trees.iter().any(Tree::is_worn)
    }

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
                            .insert(layout, store.get(id_of(rule.rank)).expect("it came from the store"));
                    }
                }
            }
        }
        made
    }

    /// The best rule that is better than `best`, or `best`.
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
    /// What a look-up takes.
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

/// What a look-up takes: expected nanoseconds, and places in memory.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cost {
    ns: f64,
    pub(super) touches: f64,
}

fn cheaper(
    best: (Structure, Cost),
    trees: Trees,
    context: Context<'_>,
    samples: &[Words],
) -> (Structure, Cost) {
    let cost = trees.cost(context, samples);
    if cost.ns < best.1.ns { (Structure::Trees(Box::new(trees)), cost) } else { best }
}

/// Whether all rules ask for the same bits and nothing else.
fn asks_one_mask(layout: &Layout, store: &RuleStore) -> bool {
    let mut asked = store.iter().map(|rule| layout.common(rule.lo, rule.hi, rule.extra));
    let Some((first, is_all)) = asked.next() else { return true };
    is_all && asked.all(|(care, is_all)| is_all && care == first)
}

/// Keys in the boxes of rules, spread over all of them.
pub(super) fn samples(layout: &Layout, store: &RuleStore) -> Vec<Words> {
    let rules = store.iter().step_by(store.len().div_ceil(SAMPLES).max(1));
    rules.enumerate().map(|(number, rule)| sample(layout, rule, number as u64)).collect()
}

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

/// The words that a key has.
pub(super) fn narrow<const N: usize>(key: &[u64]) -> &[u64; N] {
    key.first_chunk().expect("a key has the words of its layout")
}

/// The best of all rules, one by one: what the structures are held to, and the peer that they are measured beside.
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
