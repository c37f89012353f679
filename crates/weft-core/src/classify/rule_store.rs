//! The rules of a table by id, in chunks shared with snapshots.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::NOTHING;
use super::key::{Compiled, Extra, Words};

/// Rules per chunk. A change after a snapshot copies one chunk.
const CHUNK: usize = 256;
const _: () = assert!(CHUNK <= 1 << u8::BITS, "the position of a rule in its chunk is a byte");

/// The order of rules as one number: of two matching rules, the one with the greater rank wins. 0 stands for no rule.
pub(super) type Rank = u64;

const HAS_EXTRA: u64 = 1;

/// The rank of a rule: by priority, then by lower id. Ids are below [`RULES_MAX`](super::RULES_MAX). The two greatest
/// ranks belong to no rule.
pub(super) fn rank(priority: u32, id: u32, has_extra: bool) -> Rank {
    assert!(id < NOTHING, "a rank has 31 bits for the id");
    u64::from(priority) << 32 | u64::from(!(id + 1) << 1) | u64::from(has_extra)
}

/// The id of a rank; [`NOTHING`](super::NOTHING) for rank 0.
#[inline(always)]
pub(super) fn id_of(rank: Rank) -> u32 {
    (!(rank as u32) >> 1).wrapping_sub(1)
}

/// Whether the rule has tests beyond its box.
#[inline(always)]
pub(super) fn has_extra(rank: Rank) -> bool {
    rank & HAS_EXTRA != 0
}

/// The rules by id. A clone shares all chunks until one of the two changes.
#[derive(Clone, Debug, Default)]
pub(super) struct RuleStore {
    chunks: Vec<Option<Arc<Chunk>>>,
    words: usize,
    len: usize,
}

#[derive(Clone, Debug)]
struct Chunk {
    /// The rank of each rule, with its `lo` and `hi` next to it: they are read together.
    rules: Box<[u64]>,
    extras: BTreeMap<u8, Extra>,
    len: usize,
}

/// A rule in the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StoredRule<'a> {
    pub(super) rank: Rank,
    pub(super) lo: &'a [u64],
    pub(super) hi: &'a [u64],
    pub(super) extra: Option<&'a Extra>,
}

impl Compiled {
    /// The rule as if it were in a store.
    pub(super) fn stored(&self) -> StoredRule<'_> {
        StoredRule { rank: 0, lo: &self.lo, hi: &self.hi, extra: self.extra.as_ref() }
    }
}

impl StoredRule<'_> {
    /// Copies the rule without its rank.
    pub(super) fn to_compiled(self) -> Compiled {
        let words = |from: &[u64]| {
            let mut words = Words::default();
            words[..from.len()].copy_from_slice(from);
            words
        };
        Compiled { lo: words(self.lo), hi: words(self.hi), extra: self.extra.cloned() }
    }
}

impl RuleStore {
    pub(super) fn new(words: usize) -> Self {
        Self { words, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The rule with this id; None if there is none.
    pub(super) fn get(&self, id: u32) -> Option<StoredRule<'_>> {
        let (chunk, at) = split(id);
        let chunk = self.chunks.get(chunk)?.as_deref()?;
        chunk.rule(at, self.words)
    }

    /// Inserts a rule whose id is not in use; returns its rank.
    pub(super) fn insert(&mut self, id: u32, priority: u32, rule: Compiled) -> Rank {
        let (index, at) = split(id);
        if self.chunks.len() <= index {
            self.chunks.resize(index + 1, None);
        }
        let words = self.words;
        let chunk = Arc::make_mut(self.chunks[index].get_or_insert_with(|| Arc::new(Chunk::new(words))));
        let rank = rank(priority, id, rule.extra.is_some());
        let (held, rest) = chunk.rules[rule_words(at, words)].split_first_mut().expect("a rule has a rank");
        assert_eq!(*held, 0, "rule {id} is stored once");
        *held = rank;
        let (lo, hi) = rest.split_at_mut(words);
        lo.copy_from_slice(&rule.lo[..words]);
        hi.copy_from_slice(&rule.hi[..words]);
        if let Some(extra) = rule.extra {
            chunk.extras.insert(at as u8, extra);
        }
        chunk.len += 1;
        self.len += 1;
        rank
    }

    /// Changes the priority of an existing rule; returns its rank.
    pub(super) fn set_priority(&mut self, id: u32, priority: u32) -> Rank {
        let (index, at) = split(id);
        let chunk = Arc::make_mut(self.chunks[index].as_mut().expect("the rule is there"));
        let held = &mut chunk.rules[rule_words(at, self.words).start];
        *held = rank(priority, id, has_extra(*held));
        *held
    }

    /// Removes an existing rule.
    pub(super) fn remove(&mut self, id: u32) {
        let (index, at) = split(id);
        let shared = self.chunks[index].as_mut().expect("the rule is there");
        assert!(shared.rule(at, self.words).is_some(), "rule {id} is stored");
        if shared.len == 1 {
            self.chunks[index] = None;
        } else {
            let chunk = Arc::make_mut(shared);
            chunk.rules[rule_words(at, self.words).start] = 0;
            chunk.extras.remove(&(at as u8));
            chunk.len -= 1;
        }
        self.len -= 1;
    }

    /// All rules in the order of their ids.
    pub(super) fn iter(&self) -> impl Iterator<Item = StoredRule<'_>> {
        let chunks = self.chunks.iter().flatten();
        chunks.flat_map(move |chunk| (0..CHUNK).filter_map(move |at| chunk.rule(at, self.words)))
    }

    /// The memory of the rules in bytes.
    pub(super) fn bytes(&self) -> usize {
        let of_chunk = size_of::<Chunk>() + rule_words(CHUNK, self.words).start * 8;
        let extras = |chunk: &Arc<Chunk>| chunk.extras.len() * (size_of::<Extra>() + 16);
        let chunks = self.chunks.iter().flatten();
        self.chunks.len() * 8 + chunks.map(|chunk| of_chunk + extras(chunk)).sum::<usize>()
    }
}

impl Chunk {
    fn new(words: usize) -> Self {
        let rules = vec![0; rule_words(CHUNK, words).start].into_boxed_slice();
        Self { rules, extras: BTreeMap::new(), len: 0 }
    }

    /// The rule in slot `at` of the chunk; None if the slot is empty.
    fn rule(&self, at: usize, words: usize) -> Option<StoredRule<'_>> {
        let (&rank, rest) = self.rules[rule_words(at, words)].split_first()?;
        if rank == 0 {
            return None;
        }
        let (lo, hi) = rest.split_at(words);
        let extra = if has_extra(rank) { self.extras.get(&(at as u8)) } else { None };
        Some(StoredRule { rank, lo, hi, extra })
    }
}

/// The words of a rule in a chunk.
fn rule_words(at: usize, words: usize) -> core::ops::Range<usize> {
    let stride = 1 + 2 * words;
    at * stride..(at + 1) * stride
}

/// Splits an id into the number of its chunk and its slot there.
fn split(id: u32) -> (usize, usize) {
    (id as usize / CHUNK, id as usize % CHUNK)
}
