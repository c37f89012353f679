//! Flow tables: rules over fields with values, prefixes, masks and ranges, of which the best that matches is found.
//!
//! ```
//! use weft_core::classify::{Classifier, FieldSpec, Pattern, Rule};
//! use weft_core::hash::HashKey;
//! let fields = [FieldSpec::new("src", 32), FieldSpec::new("dport", 16)];
//! let mut table = Classifier::new(&fields, HashKey::from_seed(1))?;
//! let net = Pattern::Prefix { value: 0x0a00_0000, len: 8 };
//! table.insert(&Rule { patterns: vec![net, Pattern::Range { lo: 0, hi: 1023 }], priority: 10, id: 0 })?;
//! table.insert(&Rule { patterns: vec![Pattern::Any, Pattern::Exact(80)], priority: 20, id: 1 })?;
//! let mut key = [0; 2];
//! table.layout().pack(&[0x0a01_0203, 80], &mut key);
//! assert_eq!(table.lookup(&key), Some(1));
//! # Ok::<(), weft_core::classify::Error>(())
//! ```
//!
//! A table is *compiled*: [`Classifier::rebuild`] weighs an array, a hash table, a trie, vectors of bits, decision
//! trees and a tuple space by what a look-up would cost, and builds the best ([`Kind`]; [`Classifier::describe`] tells
//! which and why). Nothing is cached by flow, so a look-up costs the same whatever number of flows is active.
//!
//! **Changes are visible at once.** All rules are in a tuple space, which takes a change in a probe or a few. Tries and
//! trees take most changes themselves: a trie makes anew what is below the cells of its root that a rule touches, a
//! tree puts the rule into the lists of its leaves. What the structure does not take stands beside it until the next
//! rebuild: rules that came later are looked for in a tuple space of their own, and where the answer was taken out
//! since, all rules are asked instead. [`Snapshot::rebuild`] is pure and takes a snapshot, so another thread may run
//! it; [`Classifier::adopt`] keeps what changed meanwhile.
//!
//! **Everything is bounded.** Trees, tries and arrays are given up where they would take more than the limits below,
//! and then the tuple space answers. That rules overlap in a way that no structure tells apart costs time, told by
//! [`Classifier::describe`], and never memory beyond the rules' own.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `key` | keys as words, rules as boxes |
//! | `store` | the rules by id, shared with snapshots |
//! | `space`, `tree`, `trie`, `tries`, `direct`, `vectors` | the structures |
//! | `lines`, `cells`, `floor`, `notes` | the memory of a trie, and which rules are where in it |
//! | `choose` | which of them |
//! | `generate` | rule sets and traffic for tests and benchmarks |

/// Runs an expression with the number of words as a constant.
macro_rules! in_words {
    ($words:expr, $n:ident => $body:expr) => {
        match $words {
            1 => in_words!(@ $n, 1, $body),
            2 => in_words!(@ $n, 2, $body),
            3 => in_words!(@ $n, 3, $body),
            4 => in_words!(@ $n, 4, $body),
            5 => in_words!(@ $n, 5, $body),
            6 => in_words!(@ $n, 6, $body),
            7 => in_words!(@ $n, 7, $body),
            _ => in_words!(@ $n, 8, $body),
        }
    };
    (@ $n:ident, $value:literal, $body:expr) => {{
        const $n: usize = $value;
        $body
    }};
}

mod cells;
mod choose;
mod direct;
mod floor;
pub mod generate;
mod key;
mod line_pool;
mod rule_lists;
mod rule_store;
mod space;
#[cfg(test)]
mod tests;
mod tree;
pub(crate) mod trie;
mod tries;
pub(crate) mod vectors;

use crate::hash::HashKey;
use core::fmt;
use std::sync::Arc;

pub use choose::{Description, Kind};
pub use key::{KeyBits, Layout};

use choose::{Removal, Structure, linear, narrow, samples};
use key::Compiled;
use rule_store::{Rank, RuleStore, StoredRule, id_of};
use space::{AHEAD, Context, Space};
use tree::WALL;
use trie::Trie;
use vectors::Vectors;

/// Fields that a table may match.
pub const FIELDS_MAX: usize = 16;
/// Words of a packed key.
pub const WORDS_MAX: usize = 8;
/// Ids of rules are below this, so a table has at most as many rules.
pub const RULES_MAX: u32 = 1 << 24;
/// Changes that are remembered for what is being built; with more it is of no use, and where some stand beside what is
/// built, the tuple space answers until the next rebuild.
pub const DELTA_MAX: usize = 1 << 19;
/// Tuples of a tuple space; rules that would need more share those there are, or one list.
pub const TUPLES_MAX: usize = 256;
/// Slots that are tried for a rule in a tuple.
pub const PROBES_MAX: usize = 64;
/// Rules that are held as vectors of bits.
pub const VECTOR_RULES_MAX: usize = 512;
/// Rules of a tree's leaf.
pub const LEAF_MAX: usize = 32;
/// Places that a rule may have in the leaves of a tree, on average, beyond those that any tree may have.
pub const REFERENCES_MAX: usize = 32;
/// Bits of the keys of an array.
pub const DIRECT_BITS_MAX: u32 = 16;
/// Steps that filling an array may take.
pub const DIRECT_WORK_MAX: u64 = 1 << 24;
/// Lines of 64 bytes of a trie for each of the intervals that its rules cut the values into.
pub const TRIE_LINES_MAX: usize = 4;
/// What [`Classifier::lookup_batch`] gives for a key that no rule matches.
pub const NOTHING: u32 = (u32::MAX >> 1) - 1;

/// A field that rules look at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// Its name, for what people read.
    pub name: String,
    /// Its width: 1 to 128.
    pub bits: u8,
}

impl FieldSpec {
    /// A field of so many bits.
    pub fn new(name: impl Into<String>, bits: u8) -> Self {
        Self { name: name.into(), bits }
    }
}

/// Which values of a field a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All of them.
    Any,
    /// One.
    Exact(u128),
    /// Those that begin with the first `len` bits of `value`.
    Prefix {
        /// Bits beyond the first `len` do not matter.
        value: u128,
        /// 0 to the width of the field.
        len: u8,
    },
    /// Those that have the bits of `value` where `mask` has ones.
    Mask {
        /// Bits where the mask has none do not matter.
        value: u128,
        /// Any bits of the field.
        mask: u128,
    },
    /// Those from `lo` to `hi`.
    Range {
        /// The least.
        lo: u128,
        /// The greatest, which is one of them.
        hi: u128,
    },
}

/// A row of a flow table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// One for each field.
    pub patterns: Vec<Pattern>,
    /// Of several rules that match, the one with the greatest priority is taken, and of those the one with the least
    /// id.
    pub priority: u32,
    /// The row: what a look-up gives.
    pub id: u32,
}

/// Why a table or a rule was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no field, or more than [`FIELDS_MAX`], or one has not 1 to 128 bits, or they do not fit in
    /// [`WORDS_MAX`] words.
    Fields,
    /// A rule has more or fewer patterns than the table has fields.
    Patterns {
        /// The fields of the table.
        expected: usize,
        /// The patterns of the rule.
        given: usize,
    },
    /// A pattern has bits that its field has not, or its range holds nothing.
    Pattern {
        /// Which field, counted from 0.
        field: usize,
    },
    /// The id is that of another rule.
    DuplicateId,
    /// The id is [`RULES_MAX`] or more.
    Id,
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fields => {
                write!(
                    f,
                    "a flow table matches 1 to {FIELDS_MAX} fields of 1 to 128 bits, {WORDS_MAX} words together"
                )
            }
            Self::Patterns { expected, given } => {
                write!(f, "the rule has {given} patterns, and the table {expected} fields")
            }
            Self::Pattern { field } => write!(f, "the pattern of field {field} matches no value of it"),
            Self::DuplicateId => f.write_str("the id is that of another rule"),
            Self::Id => write!(f, "ids of rules are below {RULES_MAX}"),
        }
    }
}

impl core::error::Error for Error {}

/// A flow table.
#[derive(Clone, Debug)]
pub struct Classifier {
    layout: Layout,
    store: RuleStore,
    /// All rules.
    space: Space,
    structure: Arc<Structure>,
    touches: f64,
    /// The rules that came since the structure was built, and that it did not take.
    delta: Space,
    /// Rules that the structure may still find, and that were taken out or replaced since.
    stale: Bits,
    /// The ids of `delta`.
    fresh: Bits,
    /// Changes that the structure did not take.
    pending: usize,
    /// The ids that changed, from change number `log_from` on.
    log: Vec<u32>,
    log_from: u64,
    /// What tells this table and its clones from all others.
    origin: Arc<()>,
}

/// The rules of a table at one time, from which a structure may be built elsewhere.
#[derive(Clone, Debug)]
pub struct Snapshot {
    layout: Layout,
    store: RuleStore,
    at: u64,
    origin: Arc<()>,
}

/// What [`Snapshot::rebuild`] made. A clone shares it, for tables that went through the same changes.
#[derive(Clone, Debug)]
pub struct Built {
    structure: Arc<Structure>,
    touches: f64,
    at: u64,
    /// That of the table.
    origin: Arc<()>,
    /// What it was built of.
    store: RuleStore,
}

/// What was built is of a table that has changed more than [`DELTA_MAX`] times since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated;

impl Classifier {
    /// A table without rules, whose keys are placed by `hash`: a secret of the node.
    ///
    /// # Errors
    /// [`Error::Fields`], as of [`Layout::new`].
    pub fn new(fields: &[FieldSpec], hash: HashKey) -> Result<Self, Error> {
        let layout = Layout::new(fields, hash)?;
        Ok(Self {
            store: RuleStore::new(layout.words()),
            space: Space::new(&layout),
            structure: Arc::new(Structure::Space),
            touches: 0.0,
            delta: Space::new(&layout),
            layout,
            stale: Bits::default(),
            fresh: Bits::default(),
            pending: 0,
            log: Vec::new(),
            log_from: 0,
            origin: Arc::new(()),
        })
    }

    /// A table of these rules, compiled.
    ///
    /// # Errors
    /// [`Error`], where the fields or a rule are refused.
    pub fn compiled(
        fields: &[FieldSpec],
        rules: impl IntoIterator<Item = Rule>,
        hash: HashKey,
    ) -> Result<Self, Error> {
        let mut table = Self::new(fields, hash)?;
        for rule in rules {
            table.is_free(rule.id)?;
            table.store.insert(rule.id, rule.priority, table.layout.compile(&rule)?);
        }
        table.space = Space::of(&table.layout, &table.store);
        let (structure, touches) = Structure::choose(&table.layout, &table.store, Some(&table.space));
        (table.structure, table.touches) = (Arc::new(structure), touches);
        Ok(table)
    }

    /// How keys are packed.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// Rules in the table.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there is no rule.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts in a rule; look-ups see it at once.
    ///
    /// # Errors
    /// [`Error`], where the rule does not fit the table or its id is taken; nothing has changed then.
    pub fn insert(&mut self, rule: &Rule) -> Result<(), Error> {
        self.is_free(rule.id)?;
        let compiled = self.layout.compile(rule)?;
        self.put(rule.id, rule.priority, compiled);
        Ok(())
    }

    /// Whether a rule may have this id.
    fn is_free(&self, id: u32) -> Result<(), Error> {
        if id >= RULES_MAX {
            return Err(Error::Id);
        }
        if self.store.get(id).is_some() { Err(Error::DuplicateId) } else { Ok(()) }
    }

    /// As [`Classifier::insert`] for rules one behind the other, so that their reads of memory overlap.
    ///
    /// # Errors
    /// [`Error`] of the first that does not fit; those before it are in.
    pub fn insert_all(&mut self, rules: &[Rule]) -> Result<(), Error> {
        for rules in rules.chunks(AHEAD) {
            let compiled: Vec<Result<Compiled, Error>> =
                rules.iter().map(|rule| self.layout.compile(rule)).collect();
            self.prefetch(&compiled.iter().flatten().map(Compiled::stored).collect::<Vec<_>>());
            for (rule, compiled) in rules.iter().zip(compiled) {
                self.is_free(rule.id)?;
                self.put(rule.id, rule.priority, compiled?);
            }
        }
        Ok(())
    }

    /// As [`Classifier::remove`] for rules one behind the other, so that their reads of memory overlap.
    pub fn remove_all(&mut self, ids: &[u32]) {
        for ids in ids.chunks(AHEAD) {
            self.prefetch(&ids.iter().filter_map(|id| self.store.get(*id)).collect::<Vec<_>>());
            for id in ids {
                self.remove(*id);
            }
        }
    }

    /// Reads what changes of these rules will read, side by side.
    fn prefetch(&self, rules: &[StoredRule<'_>]) {
        // One rule waits for its own memory in any case.
        if rules.len() > 1 {
            self.space.prefetch(&self.layout, rules);
            match &*self.structure {
                Structure::Trie(trie) => trie.prefetch(&self.store, rules),
                Structure::Tries(tries) => tries.prefetch(&self.store, rules),
                _ => {}
            }
        }
    }

    /// Takes out the rule with this id; false if there is none.
    pub fn remove(&mut self, id: u32) -> bool {
        let Some(stored) = self.store.get(id) else { return false };
        self.space.remove(&self.layout, stored);
        if self.fresh.take(id) {
            self.delta.remove(&self.layout, stored);
        }
        let taken = Self::remove_from_structure(&mut self.structure, &self.layout, &self.store, stored);
        self.record_removal(id, taken);
        self.store.remove(id);
        self.log_change(id);
        true
    }

    /// Puts in a rule in place of the one with the same id, if there is one.
    ///
    /// # Errors
    /// [`Error`], where the rule does not fit the table; the old one stays then.
    pub fn replace(&mut self, rule: &Rule) -> Result<(), Error> {
        self.layout.compile(rule)?;
        self.remove(rule.id);
        self.insert(rule)
    }

    /// Gives another priority to the rule with this id; false if there is none.
    pub fn set_priority(&mut self, id: u32, priority: u32) -> bool {
        let Some(compiled) = self.store.get(id).map(StoredRule::to_compiled) else { return false };
        self.remove(id);
        self.put(id, priority, compiled);
        true
    }

    /// Gives another priority to the rule with this id, which leaves it where it is in the order of all rules once all
    /// that are given others have them, before anything else changes; false if there is none. Costs less than
    /// [`Classifier::set_priority`].
    pub fn relabel(&mut self, id: u32, priority: u32) -> bool {
        let Some(stored) = self.store.get(id) else { return false };
        let (old, rule) = (stored.rank, stored.to_compiled());
        let stored = StoredRule { rank: old, lo: &rule.lo, hi: &rule.hi, extra: rule.extra.as_ref() };
        let rank = self.store.set_priority(id, priority);
        self.space.rerank(&self.layout, stored, rank);
        if self.fresh.get(id) {
            self.delta.rerank(&self.layout, stored, rank);
            // Some cells of a trie may show it all the same: those that it came to before others did not take it.
            match Self::changing(&mut self.structure) {
                Some(Structure::Trie(trie)) => trie.rerank(stored, rank),
                Some(Structure::Tries(tries)) => tries.rerank(stored, rank),
                _ => {}
            }
        } else if !Self::rerank(&mut self.structure, &self.layout, stored, rank) {
            self.record_removal(id, Removal::Stays);
            self.add_to_delta(id);
        }
        self.log_change(id);
        true
    }

    /// The best rule that matches a key of [`Layout::pack`].
    ///
    /// # Panics
    /// If the key is shorter than [`Layout::words`].
    #[inline]
    pub fn lookup(&self, key: &[u64]) -> Option<u32> {
        let id = in_words!(self.layout.words(), N => self.find::<N>(narrow(key)));
        (id != NOTHING).then_some(id)
    }

    /// As [`lookup`](Self::lookup) for keys that lie one behind the other, so that their reads of memory overlap; gives
    /// [`NOTHING`] for a key that no rule matches.
    ///
    /// # Panics
    /// If there are not [`Layout::words`] words for each result.
    pub fn lookup_batch(&self, keys: &[u64], found: &mut [u32]) {
        assert_eq!(keys.len(), found.len() * self.layout.words(), "as many words as the keys have");
        in_words!(self.layout.words(), N => {
            let keys = keys.as_chunks::<N>().0;
            for (keys, found) in keys.chunks(AHEAD).zip(found.chunks_mut(AHEAD)) {
                self.find_batch(keys, found);
            }
        });
    }

    /// The best rule that matches a key, by asking each rule in turn: what the others are measured beside.
    pub fn lookup_linear(&self, key: &[u64]) -> Option<u32> {
        let id = in_words!(self.layout.words(), N => linear::<N>(self.context(), narrow(key)));
        (id != NOTHING).then_some(id)
    }

    /// The rules as they are now. Takes a reference for each 256 ids; the first change to any of these copies them.
    pub fn snapshot(&self) -> Snapshot {
        let origin = Arc::clone(&self.origin);
        Snapshot { layout: self.layout.clone(), store: self.store.clone(), at: self.changed(), origin }
    }

    /// The structure for the rules as they are now. Takes up to seconds for 10^6 rules: a worker lets another thread do
    /// it, from a [`snapshot`](Self::snapshot).
    pub fn rebuild(&self) -> Built {
        let (structure, touches) = Structure::choose(&self.layout, &self.store, Some(&self.space));
        let (structure, origin) = (Arc::new(structure), Arc::clone(&self.origin));
        Built { structure, touches, at: self.changed(), origin, store: self.store.clone() }
    }

    /// Takes a structure that was built of this table; what changed since then it takes in, or that stands beside it.
    ///
    /// # Errors
    /// [`Outdated`] if that is more than [`DELTA_MAX`] changes, or it was built of another table than this one and its
    /// clones; the table is as it was.
    pub fn adopt(&mut self, built: Built) -> Result<(), Outdated> {
        if !Arc::ptr_eq(&built.origin, &self.origin) {
            return Err(Outdated);
        }
        let known = built.at.checked_sub(self.log_from).ok_or(Outdated)? as usize;
        if known > self.log.len() {
            return Err(Outdated);
        }
        self.log.drain(..known);
        self.log_from = built.at;
        self.structure = built.structure;
        self.touches = built.touches;
        self.clear_delta();
        let mut changed = self.log.clone();
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|id| built.store.get(*id) != self.store.get(*id));
        // First what was goes, one rule after the other, so that what is made anew is made of what is there.
        let mut was = built.store.clone();
        for id in &changed {
            if let Some(rule) = built.store.get(*id) {
                let taken = Self::remove_from_structure(&mut self.structure, &self.layout, &was, rule);
                self.record_removal(*id, taken);
                was.remove(*id);
            }
        }
        changed.into_iter().for_each(|id| self.add_to_structure(id));
        Ok(())
    }

    /// Changes since the structure was built that stand beside it.
    pub fn changes(&self) -> usize {
        self.pending
    }

    /// Whether a rebuild would make look-ups cheaper: there are changes beside what is built, unless the tuple space is
    /// one hash table, which takes changes as they come; or what is built has taken so many that it has the wrong
    /// shape.
    pub fn wants_rebuild(&self) -> bool {
        match &*self.structure {
            Structure::Space => self.pending > 0 && !self.space.is_hash(),
            structure => self.pending > 0 || structure.is_worn(self.len()),
        }
    }

    /// What [`Classifier::rebuild`] gives, if it takes less than a millisecond: for few rules, as vectors of bits.
    pub fn rebuild_if_quick(&self) -> Option<Built> {
        let are_few = self.len() <= VECTOR_RULES_MAX && matches!(*self.structure, Structure::Vectors(_));
        are_few.then(|| self.rebuild())
    }

    /// What the table is compiled to, for people.
    pub fn describe(&self) -> Description {
        let (kind, parts, depth) = match &*self.structure {
            Structure::Space if self.space.is_hash() => (Kind::Hash, 1, 1),
            Structure::Space => {
                (Kind::TupleSpace, self.space.tuples() + usize::from(self.space.rest() > 0), 1)
            }
            Structure::Direct(_) => (Kind::Direct, 1, 1),
            Structure::Trie(trie) => (Kind::Trie, 1, trie.depth()),
            Structure::Tries(tries) => (Kind::Trie, tries.parts(), tries.depth()),
            Structure::Vectors(vectors) => (Kind::Vectors, vectors.chunks().count(), 1),
            Structure::Trees(trees) => {
                (Kind::Trees, trees.trees.len() + usize::from(!trees.rest.is_empty()), trees.depth())
            }
        };
        let touches = match *self.structure {
            Structure::Space => self.space.cost(self.context(), &samples(&self.layout, &self.store)).touches,
            _ => self.touches,
        };
        let bytes = self.store.bytes() + self.space.bytes() + self.structure.bytes() + self.delta.bytes();
        Description { kind, rules: self.len(), parts, depth, bytes, touches, changes: self.changes() }
    }

    /// Bytes of what look-ups read, while nothing has changed since it was built.
    pub(crate) fn read_bytes(&self) -> usize {
        match &*self.structure {
            Structure::Space => self.space.bytes(),
            Structure::Trie(trie) => trie.read_bytes(),
            Structure::Tries(tries) => tries.read_bytes(),
            structure => structure.bytes(),
        }
    }

    /// The vectors, if that is what the table is compiled to and there are no changes beside them.
    pub(crate) fn vectors(&self) -> Option<&Vectors> {
        match &*self.structure {
            Structure::Vectors(vectors) if self.pending == 0 => Some(vectors),
            _ => None,
        }
    }

    /// The trie, as [`Classifier::vectors`].
    pub(crate) fn trie(&self) -> Option<&Trie> {
        match &*self.structure {
            Structure::Trie(trie) if self.pending == 0 => Some(trie),
            _ => None,
        }
    }

    fn context(&self) -> Context<'_> {
        Context { layout: &self.layout, store: &self.store }
    }

    #[inline(always)]
    fn find<const N: usize>(&self, key: &[u64; N]) -> u32 {
        let context = self.context();
        match &*self.structure {
            Structure::Space => id_of(self.space.find(context, key, 0)),
            Structure::Direct(direct) => self.with_changes(key, direct.find(key)),
            Structure::Trie(trie) => self.with_changes(key, trie.find(key)),
            Structure::Tries(tries) => self.with_changes(key, tries.find(key)),
            Structure::Vectors(vectors) => id_of(self.ranked_with_changes(key, vectors.find(key))),
            Structure::Trees(trees) => id_of(self.ranked_with_changes(key, trees.find(context, key, 0))),
        }
    }

    #[inline(always)]
    fn find_batch<const N: usize>(&self, keys: &[[u64; N]], found: &mut [u32]) {
        let context = self.context();
        let mut best = [0; AHEAD];
        let best = &mut best[..keys.len()];
        match &*self.structure {
            Structure::Space => self.space.find_batch(context, keys, best),
            Structure::Trees(trees) => {
                for tree in &trees.trees {
                    tree.find_batch(context, keys, best);
                }
                if !trees.rest.is_empty() {
                    trees.rest.find_batch(context, keys, best);
                }
                for (key, best) in keys.iter().zip(best.iter_mut()) {
                    *best = self.ranked_with_changes(key, *best);
                }
            }
            Structure::Trie(trie) if self.pending == 0 => return trie.find_batch(keys, found),
            // To part keys by the kinds of tries costs more than what going down side by side would spare.
            Structure::Trie(_) | Structure::Tries(_) | Structure::Direct(_) | Structure::Vectors(_) => {
                for (key, found) in keys.iter().zip(found) {
                    *found = self.find(key);
                }
                return;
            }
        }
        for (best, found) in best.iter().zip(found) {
            *found = id_of(*best);
        }
    }

    /// What is best with regard to the changes since, given what the structure says.
    #[inline(always)]
    fn with_changes<const N: usize>(&self, key: &[u64; N], id: u32) -> u32 {
        if self.pending == 0 {
            return id;
        }
        let stored = self.store.get(id);
        id_of(match stored {
            Some(rule) => self.ranked_with_changes(key, rule.rank),
            None if id == NOTHING => self.ranked_with_changes(key, 0),
            None => self.space.find(self.context(), key, 0),
        })
    }

    #[inline(always)]
    fn ranked_with_changes<const N: usize>(&self, key: &[u64; N], best: Rank) -> Rank {
        if best == WALL {
            return self.space.find(self.context(), key, 0);
        }
        if self.pending == 0 {
            return best;
        }
        if best != 0 && self.stale.get(id_of(best)) {
            return self.space.find(self.context(), key, 0);
        }
        self.delta.find(self.context(), key, best)
    }

    /// Puts in a rule whose id is not in use.
    fn put(&mut self, id: u32, priority: u32, compiled: Compiled) {
        self.store.insert(id, priority, compiled);
        let stored = self.store.get(id).expect("it was put in");
        self.space.insert(&self.layout, stored);
        self.add_to_structure(id);
        self.log_change(id);
    }

    /// A rule of the store, if it is there, goes into the structure, or stands beside it.
    fn add_to_structure(&mut self, id: u32) {
        let Some(rule) = self.store.get(id) else { return };
        if !Self::changing(&mut self.structure).is_some_and(|structure| structure.insert(&self.store, rule)) {
            self.pending += 1;
            self.add_to_delta(id);
        }
    }

    /// A rule was taken out of the structure, or was not.
    fn record_removal(&mut self, id: u32, taken: Removal) {
        self.pending += usize::from(taken != Removal::Out);
        if taken == Removal::Stays {
            self.stale.set(id);
        }
    }

    /// A rule of the store is looked for beside the structure.
    fn add_to_delta(&mut self, id: u32) {
        if !matches!(*self.structure, Structure::Space)
            && let Some(rule) = self.store.get(id)
        {
            self.delta.insert(&self.layout, rule);
            self.fresh.set(id);
        }
    }

    /// Takes a rule out of the structure, if that can change.
    fn remove_from_structure(
        structure: &mut Arc<Structure>,
        layout: &Layout,
        store: &RuleStore,
        rule: StoredRule<'_>,
    ) -> Removal {
        if matches!(**structure, Structure::Space) {
            return Removal::Absent;
        }
        Self::changing(structure).map_or(Removal::Stays, |structure| structure.remove(layout, store, rule))
    }

    /// Whether look-ups give a rule its new rank, which leaves the order as it is.
    fn rerank(structure: &mut Arc<Structure>, layout: &Layout, rule: StoredRule<'_>, rank: Rank) -> bool {
        !structure.has_ranks()
            || Self::changing(structure).is_some_and(|structure| structure.rerank(layout, rule, rank))
    }

    /// The structure, to be changed, if it takes changes. The first after it was built copies it: others have it too.
    fn changing(structure: &mut Arc<Structure>) -> Option<&mut Structure> {
        structure.takes_changes().then(|| Arc::make_mut(structure))
    }

    fn changed(&self) -> u64 {
        self.log_from + self.log.len() as u64
    }

    /// Records a change. With too many of them what is being built is of no use, and the tuple space takes over where
    /// they stand beside.
    fn log_change(&mut self, id: u32) {
        self.log.push(id);
        if self.log.len() > DELTA_MAX {
            self.log_from = self.changed();
            self.log.clear();
            if self.pending > 0 {
                self.structure = Arc::new(Structure::Space);
                self.clear_delta();
                // All of them do: something is to be built again.
                self.pending = 1;
            }
        }
    }

    fn clear_delta(&mut self) {
        self.delta = Space::new(&self.layout);
        self.stale = Bits::default();
        self.fresh = Bits::default();
        self.pending = 0;
    }
}

impl Snapshot {
    /// The structure that is expected to cost least.
    pub fn rebuild(&self) -> Built {
        let (structure, touches) = Structure::choose(&self.layout, &self.store, None);
        let (structure, origin) = (Arc::new(structure), Arc::clone(&self.origin));
        Built { structure, touches, at: self.at, origin, store: self.store.clone() }
    }
}

/// A set of ids.
#[derive(Clone, Debug, Default)]
struct Bits(Vec<u64>);

impl Bits {
    #[inline(always)]
    fn get(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word >> (id % 64) & 1 == 1)
    }

    fn set(&mut self, id: u32) {
        let word = id as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (id % 64);
    }

    /// Takes an id out; whether it was in.
    fn take(&mut self, id: u32) -> bool {
        let was_in = self.get(id);
        if was_in {
            self.0[id as usize / 64] &= !(1 << (id % 64));
        }
        was_in
    }
}
