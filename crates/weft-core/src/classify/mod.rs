//! Flow tables: finds the best matching rule over fields with values, prefixes, masks and ranges.
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
//! A table is *compiled*: [`Classifier::rebuild`] estimates the look-up cost of each [`Kind`] of structure, and builds
//! the best. The kinds are an array, a hash table, a trie, bit vectors, decision trees and a tuple space.
//! [`Classifier::describe`] reports the choice. Nothing is cached per flow, so the cost of a look-up does not depend on
//! the number of active flows.
//!
//! **Changes are visible at once.** A tuple space holds all rules and takes each change in a few probes. Tries and
//! trees take most changes themselves: a trie rebuilds what is below the root cells that a rule covers; a tree adds the
//! rule to the lists of its leaves. Changes that the structure does not take are pending until the next rebuild: new
//! rules are in a second tuple space, and if a look-up finds a removed rule, the tuple space of all rules decides.
//! [`Snapshot::rebuild`] is pure, so another thread can run it on a snapshot; [`Classifier::adopt`] keeps the changes
//! made since.
//!
//! **Everything is bounded.** Trees, tries and arrays are abandoned where they would exceed the limits below; the tuple
//! space then answers. Rules that overlap in a way that no structure separates cost time, which
//! [`Classifier::describe`] reports, and never memory beyond that of the rules.
//!
//! | file | content |
//! | --- | --- |
//! | `key` | keys as words, rules as boxes |
//! | `rule_store` | the rules by id, shared with snapshots |
//! | `space`, `tree`, `trie`, `tries`, `direct`, `vectors` | the structures |
//! | `line_pool`, `cells`, `short_prefixes`, `rule_lists` | the memory of a trie, and its rules by cell |
//! | `choose` | the choice of a structure |
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
pub mod generate;
mod key;
mod line_pool;
mod rule_lists;
mod rule_store;
mod short_prefixes;
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

/// Maximum number of fields of a table.
pub const FIELDS_MAX: usize = 16;
/// Maximum number of words of a packed key.
pub const WORDS_MAX: usize = 8;
/// Ids of rules are below this, so a table has at most this many rules.
pub const RULES_MAX: u32 = 1 << 24;
/// Maximum length of the change log. With more changes, a running rebuild is useless; if changes are pending, the tuple
/// space answers until the next rebuild.
pub const DELTA_MAX: usize = 1 << 19;
/// Maximum number of tuples of a tuple space; further masks share existing tuples, or one list.
pub const TUPLES_MAX: usize = 256;
/// Maximum number of probes for a rule in a tuple.
pub const PROBES_MAX: usize = 64;
/// Maximum number of rules for bit vectors.
pub const VECTOR_RULES_MAX: usize = 512;
/// Maximum number of rules of a tree leaf.
pub const LEAF_MAX: usize = 32;
/// Maximum average number of leaf entries per rule of a tree, beyond the free allowance of every tree.
pub const REFERENCES_MAX: usize = 32;
/// Maximum key width of an array.
pub const DIRECT_BITS_MAX: u32 = 16;
/// Maximum number of steps to fill an array.
pub const DIRECT_WORK_MAX: u64 = 1 << 24;
/// Maximum number of 64-byte lines of a trie per interval of its rules.
pub const TRIE_LINES_MAX: usize = 4;
/// The result of [`Classifier::lookup_batch`] for a key that no rule matches.
pub const NOTHING: u32 = (u32::MAX >> 1) - 1;

const _: () = assert!(RULES_MAX < NOTHING, "the result for no rule is no id");
const _: () = assert!(NOTHING >> 31 == 0, "the highest bit distinguishes nodes and runs from rules");
const _: () =
    assert!(FIELDS_MAX <= u8::MAX as usize && WORDS_MAX <= 8, "tree windows have 3 bits for a word");
const _: () = assert!(VECTOR_RULES_MAX.is_multiple_of(64), "bit vectors are whole words");

/// A field of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// Its name in descriptions.
    pub name: String,
    /// Its width: 1 to 128.
    pub bits: u8,
}

impl FieldSpec {
    /// A field of this width.
    pub fn new(name: impl Into<String>, bits: u8) -> Self {
        Self { name: name.into(), bits }
    }
}

/// The set of values of a field that a rule matches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// All values.
    Any,
    /// One value.
    Exact(u128),
    /// The values that begin with the first `len` bits of `value`.
    Prefix {
        /// Bits behind the first `len` are ignored.
        value: u128,
        /// 0 to the width of the field.
        len: u8,
    },
    /// The values that equal `value` in the bits of `mask`.
    Mask {
        /// Bits outside the mask are ignored.
        value: u128,
        /// Any bits of the field.
        mask: u128,
    },
    /// The values from `lo` to `hi`.
    Range {
        /// The least value.
        lo: u128,
        /// The greatest value, inclusive.
        hi: u128,
    },
}

/// A rule of a flow table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// One pattern per field.
    pub patterns: Vec<Pattern>,
    /// Of several matching rules, the one with the greatest priority wins, then the one with the least id.
    pub priority: u32,
    /// The result of a look-up.
    pub id: u32,
}

/// Why a table or a rule was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Error {
    /// There is no field, or there are more than [`FIELDS_MAX`]. Or a field has not 1 to 128 bits, or the fields do not
    /// fit in [`WORDS_MAX`] words.
    Fields,
    /// A rule has more or fewer patterns than the table has fields.
    Patterns {
        /// The number of fields of the table.
        expected: usize,
        /// The number of patterns of the rule.
        given: usize,
    },
    /// A pattern has bits outside its field, or its range is empty.
    Pattern {
        /// The index of the field.
        field: usize,
    },
    /// Another rule has this id.
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
    /// New rules that the structure did not take.
    delta: Space,
    /// Rules that the structure may still find although they were removed or replaced.
    stale: Bits,
    /// The ids of `delta`.
    fresh: Bits,
    /// The number of changes that the structure did not take.
    pending: usize,
    /// The ids of changed rules, from change number `log_from` on.
    log: Vec<u32>,
    log_from: u64,
    /// The identity that this table shares with its clones.
    origin: Arc<()>,
}

/// The rules of a table at one time, for a rebuild elsewhere.
#[derive(Clone, Debug)]
pub struct Snapshot {
    layout: Layout,
    store: RuleStore,
    at: u64,
    origin: Arc<()>,
}

/// The result of [`Snapshot::rebuild`]. Clones share it, for tables with the same changes.
#[derive(Clone, Debug)]
pub struct Built {
    structure: Arc<Structure>,
    touches: f64,
    at: u64,
    /// The origin of the table.
    origin: Arc<()>,
    /// The rules it was built from.
    store: RuleStore,
}

/// The table has changed more than [`DELTA_MAX`] times since the snapshot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outdated;

impl Classifier {
    /// A table without rules. `hash` is a secret of the node that places keys.
    ///
    /// # Errors
    /// [`Error::Fields`], as for [`Layout::new`].
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

    /// A compiled table of these rules.
    ///
    /// # Errors
    /// [`Error`], if the fields or a rule are refused.
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

    /// The layout of packed keys.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The number of rules.
    pub fn len(&self) -> usize {
        self.store.len()
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Inserts a rule; look-ups see it at once.
    ///
    /// # Errors
    /// [`Error`], if the rule does not fit the table or its id is in use; nothing has changed then.
    pub fn insert(&mut self, rule: &Rule) -> Result<(), Error> {
        self.is_free(rule.id)?;
        let compiled = self.layout.compile(rule)?;
        self.put(rule.id, rule.priority, compiled);
        Ok(())
    }

    /// Whether a new rule may have this id.
    fn is_free(&self, id: u32) -> Result<(), Error> {
        if id >= RULES_MAX {
            return Err(Error::Id);
        }
        if self.store.get(id).is_some() { Err(Error::DuplicateId) } else { Ok(()) }
    }

    /// As [`Classifier::insert`] for several rules in order; their memory reads overlap.
    ///
    /// # Errors
    /// [`Error`] of the first rule that does not fit; the rules before it are inserted.
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

    /// As [`Classifier::remove`] for several rules in order; their memory reads overlap.
    pub fn remove_all(&mut self, ids: &[u32]) {
        for ids in ids.chunks(AHEAD) {
            self.prefetch(&ids.iter().filter_map(|id| self.store.get(*id)).collect::<Vec<_>>());
            for id in ids {
                self.remove(*id);
            }
        }
    }

    /// Reads the memory for changes of these rules, so that the reads overlap.
    fn prefetch(&self, rules: &[StoredRule<'_>]) {
        // A single rule gains nothing.
        if rules.len() > 1 {
            self.space.prefetch(&self.layout, rules);
            match &*self.structure {
                Structure::Trie(trie) => trie.prefetch(&self.store, rules),
                Structure::Tries(tries) => tries.prefetch(&self.store, rules),
                _ => {}
            }
        }
    }

    /// Removes the rule with this id; false if there is none.
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

    /// Inserts a rule, in place of the one with the same id, if there is one.
    ///
    /// # Errors
    /// [`Error`], if the rule does not fit the table; the old rule stays then.
    pub fn replace(&mut self, rule: &Rule) -> Result<(), Error> {
        self.layout.compile(rule)?;
        self.remove(rule.id);
        self.insert(rule)
    }

    /// Changes the priority of the rule with this id; false if there is none.
    pub fn set_priority(&mut self, id: u32, priority: u32) -> bool {
        let Some(compiled) = self.store.get(id).map(StoredRule::to_compiled) else { return false };
        self.remove(id);
        self.put(id, priority, compiled);
        true
    }

    /// Changes the priority of the rule with this id; false if there is none. After a sequence of these calls, and
    /// before any other change, all rules must have the same order as before. It costs less than
    /// [`Classifier::set_priority`].
    pub fn relabel(&mut self, id: u32, priority: u32) -> bool {
        let Some(stored) = self.store.get(id) else { return false };
        let (old, rule) = (stored.rank, stored.to_compiled());
        let stored = StoredRule { rank: old, lo: &rule.lo, hi: &rule.hi, extra: rule.extra.as_ref() };
        let rank = self.store.set_priority(id, priority);
        self.space.rerank(&self.layout, stored, rank);
        if self.fresh.get(id) {
            self.delta.rerank(&self.layout, stored, rank);
            // Some cells of a trie may hold the rule nevertheless: those it was added to before others refused it.
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

    /// As [`lookup`](Self::lookup) for adjacent keys; their memory reads overlap. Returns [`NOTHING`] for a key that no
    /// rule matches.
    ///
    /// # Panics
    /// If there are not [`Layout::words`] words per result.
    pub fn lookup_batch(&self, keys: &[u64], found: &mut [u32]) {
        assert_eq!(keys.len(), found.len() * self.layout.words(), "as many words as the keys have");
        in_words!(self.layout.words(), N => {
            let keys = keys.as_chunks::<N>().0;
            for (keys, found) in keys.chunks(AHEAD).zip(found.chunks_mut(AHEAD)) {
                self.find_batch(keys, found);
            }
        });
    }

    /// The best rule that matches a key, by a linear search: the reference for tests and benchmarks.
    pub fn lookup_linear(&self, key: &[u64]) -> Option<u32> {
        let id = in_words!(self.layout.words(), N => linear::<N>(self.context(), narrow(key)));
        (id != NOTHING).then_some(id)
    }

    /// The current rules. It takes a reference per 256 ids; the next change to one of them copies them.
    pub fn snapshot(&self) -> Snapshot {
        let origin = Arc::clone(&self.origin);
        Snapshot { layout: self.layout.clone(), store: self.store.clone(), at: self.changed(), origin }
    }

    /// A structure for the current rules. It takes up to seconds for 10^6 rules: a worker lets another thread do it,
    /// from a [`snapshot`](Self::snapshot).
    pub fn rebuild(&self) -> Built {
        let (structure, touches) = Structure::choose(&self.layout, &self.store, Some(&self.space));
        let (structure, origin) = (Arc::new(structure), Arc::clone(&self.origin));
        Built { structure, touches, at: self.changed(), origin, store: self.store.clone() }
    }

    /// Adopts a structure that was built for this table, and applies the changes made since.
    ///
    /// # Errors
    /// [`Outdated`], if there are more than [`DELTA_MAX`] changes, or the structure was built for another table than
    /// this one and its clones; the table is unchanged then.
    pub fn adopt(&mut self, built: Built) -> Result<(), Outdated> {
        if !Arc::ptr_eq(&built.origin, &self.origin) {
            return Err(Outdated);
        }
        let known = built.at.checked_sub(self.log_from).ok_or(Outdated)? as usize;
        if known > self.log.len() {
            return Err(Outdated);
        }
        assert!(built.store.len() <= RULES_MAX as usize, "ids are below the limit");
        self.log.drain(..known);
        self.log_from = built.at;
        self.structure = built.structure;
        self.touches = built.touches;
        self.clear_delta();
        let mut changed = self.log.clone();
        changed.sort_unstable();
        changed.dedup();
        changed.retain(|id| built.store.get(*id) != self.store.get(*id));
        // Removals come first, one by one, so that cells are rebuilt from rules that exist.
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

    /// The number of pending changes, which the structure has not taken.
    pub fn changes(&self) -> usize {
        self.pending
    }

    /// Whether a rebuild would make look-ups cheaper. It would if changes are pending, unless the tuple space is a
    /// single hash table, which takes all changes; or if the structure has taken so many changes that it has the wrong
    /// shape.
    pub fn wants_rebuild(&self) -> bool {
        match &*self.structure {
            Structure::Space => self.pending > 0 && !self.space.is_hash(),
            structure => self.pending > 0 || structure.is_worn(self.len()),
        }
    }

    /// The result of [`Classifier::rebuild`], if it takes less than a millisecond: for few rules, as bit vectors.
    pub fn rebuild_if_quick(&self) -> Option<Built> {
        let are_few = self.len() <= VECTOR_RULES_MAX && matches!(*self.structure, Structure::Vectors(_));
        are_few.then(|| self.rebuild())
    }

    /// A description of the compiled structure.
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

    /// The bytes that look-ups read, as long as no changes are pending.
    pub(crate) fn read_bytes(&self) -> usize {
        match &*self.structure {
            Structure::Space => self.space.bytes(),
            Structure::Trie(trie) => trie.read_bytes(),
            Structure::Tries(tries) => tries.read_bytes(),
            structure => structure.bytes(),
        }
    }

    /// The bit vectors, if they are the structure and no changes are pending.
    pub(crate) fn vectors(&self) -> Option<&Vectors> {
        match &*self.structure {
            Structure::Vectors(vectors) if self.pending == 0 => Some(vectors),
            _ => None,
        }
    }

    /// The trie, if it is the structure and no changes are pending.
    pub(crate) fn trie(&self) -> Option<&Trie> {
        match &*self.structure {
            Structure::Trie(trie) if self.pending == 0 => Some(trie),
            _ => None,
        }
    }

    fn context(&self) -> Context<'_> {
        Context { layout: &self.layout, store: &self.store }
    }

    /// Finds the best rule for a key, with pending changes; [`NOTHING`] if none matches.
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

    /// As [`Classifier::find`], for several keys at once; their memory reads overlap.
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
            // Splitting keys by trie would cost more than overlapped reads save.
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

    /// The best rule including pending changes, given the result of the structure.
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

    /// Corrects the result of the structure by the pending changes: the best rank, or 0.
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

    /// Inserts a rule whose id is not in use.
    fn put(&mut self, id: u32, priority: u32, compiled: Compiled) {
        self.store.insert(id, priority, compiled);
        let stored = self.store.get(id).expect("the store holds the rule");
        self.space.insert(&self.layout, stored);
        self.add_to_structure(id);
        self.log_change(id);
    }

    /// Adds a rule of the store, if it exists, to the structure or to the pending rules.
    fn add_to_structure(&mut self, id: u32) {
        let Some(rule) = self.store.get(id) else { return };
        if !Self::changing(&mut self.structure).is_some_and(|structure| structure.insert(&self.store, rule)) {
            self.pending += 1;
            self.add_to_delta(id);
        }
    }

    /// Counts the removal of a rule by its effect on the structure.
    fn record_removal(&mut self, id: u32, taken: Removal) {
        self.pending += usize::from(taken != Removal::Out);
        if taken == Removal::Stays {
            self.stale.set(id);
        }
    }

    /// Adds a rule of the store to the pending rules.
    fn add_to_delta(&mut self, id: u32) {
        if !matches!(*self.structure, Structure::Space)
            && let Some(rule) = self.store.get(id)
        {
            self.delta.insert(&self.layout, rule);
            self.fresh.set(id);
        }
    }

    /// Removes a rule from the structure, if the structure takes changes.
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

    /// Whether look-ups return a rule with its new rank, which keeps the order.
    fn rerank(structure: &mut Arc<Structure>, layout: &Layout, rule: StoredRule<'_>, rank: Rank) -> bool {
        !structure.has_ranks()
            || Self::changing(structure).is_some_and(|structure| structure.rerank(layout, rule, rank))
    }

    /// The structure for a change, if it takes changes. The first change after a build copies a shared structure.
    fn changing(structure: &mut Arc<Structure>) -> Option<&mut Structure> {
        structure.takes_changes().then(|| Arc::make_mut(structure))
    }

    /// The number of changes made so far.
    fn changed(&self) -> u64 {
        self.log_from + self.log.len() as u64
    }

    /// Records a change. After too many, a running rebuild is useless, and the tuple space replaces a structure with
    /// pending changes.
    fn log_change(&mut self, id: u32) {
        self.log.push(id);
        if self.log.len() > DELTA_MAX {
            self.log_from = self.changed();
            self.log.clear();
            if self.pending > 0 {
                self.structure = Arc::new(Structure::Space);
                self.clear_delta();
                // All changes are pending: a rebuild is due.
                self.pending = 1;
            }
        }
    }

    /// Forgets all pending changes.
    fn clear_delta(&mut self) {
        self.delta = Space::new(&self.layout);
        self.stale = Bits::default();
        self.fresh = Bits::default();
        self.pending = 0;
    }
}

impl Snapshot {
    /// The structure with the least expected cost.
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

    /// Adds an id to the set.
    fn set(&mut self, id: u32) {
        let word = id as usize / 64;
        if self.0.len() <= word {
            self.0.resize(word + 1, 0);
        }
        self.0[word] |= 1 << (id % 64);
    }

    /// Removes an id; returns whether it was in the set.
    fn take(&mut self, id: u32) -> bool {
        let was_in = self.get(id);
        if was_in {
            self.0[id as usize / 64] &= !(1 << (id % 64));
        }
        was_in
    }
}
