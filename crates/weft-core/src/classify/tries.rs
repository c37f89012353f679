//! One trie per kind of value: for rules that restrict one field, and a narrow field beside it that gives the kind.
//! Dual-stack networks are such rules.

use super::NOTHING;
use super::key::{KeyBits, Layout};
use super::rule_store::{Rank, RuleStore, StoredRule};
use super::trie::{Trie, restricted_fields};

/// Maximum width of the field that gives the kind.
const KIND_BITS_MAX: u8 = 2;

/// A trie for each kind.
#[derive(Clone, Debug)]
pub(crate) struct Tries {
    kind: KeyBits,
    /// By kind; None for kinds without rules.
    tries: [Option<KindTrie>; 1 << KIND_BITS_MAX],
}

/// A trie and its number of rules.
#[derive(Clone, Debug)]
struct KindTrie {
    trie: Trie,
    rules: usize,
}

impl Tries {
    /// Builds tries over the rules of a store. Each rule must restrict one wide field and name one value of a narrow
    /// field, and nothing else. Returns None if a rule does not, or if a trie cannot be built
    /// ([`Trie::build`]).
    pub(super) fn build(layout: &Layout, store: &RuleStore) -> Option<Self> {
        let [first, second] = restricted_fields(layout, store)?[..] else { return None };
        let is_narrow = |field: &usize| layout.fields()[*field].bits <= KIND_BITS_MAX;
        let (field, narrow) =
            [(first, second), (second, first)].into_iter().find(|(_, other)| is_narrow(other))?;
        let kind = layout.places(narrow).0;
        if !store.iter().all(|rule| kind.of(rule.lo) == kind.of(rule.hi)) {
            return None;
        }
        let mut tries = [const { None }; 1 << KIND_BITS_MAX];
        for (value, of) in (0..).zip(&mut tries) {
            if store.iter().any(|rule| kind.of(rule.lo) == value) {
                let trie = Trie::of(layout, store, field, Some((kind, value)))?;
                *of = Some(KindTrie { rules: trie.built_of(), trie });
            }
        }
        Some(Self { kind, tries })
    }

    /// Inserts a rule into the trie of its kind; false as for [`Trie::insert`], or if there is no such trie.
    pub(super) fn insert(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        self.of_mut(rule).is_some_and(|of| {
            let done = of.trie.insert(store, rule);
            of.rules += usize::from(done);
            done
        })
    }

    /// Removes a rule from the trie of its kind; false as for [`Trie::remove`], or if there is no such trie.
    pub(super) fn remove(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        self.of_mut(rule).is_some_and(|of| {
            let done = of.trie.remove(store, rule);
            of.rules -= usize::from(done && of.rules > 0);
            done
        })
    }

    /// Changes the rank of a rule in the trie of its kind ([`Trie::rerank`]).
    pub(super) fn rerank(&mut self, rule: StoredRule<'_>, rank: Rank) {
        if let Some(of) = self.of_mut(rule) {
            of.trie.rerank(rule, rank);
        }
    }

    /// Reads the memory for changes of these rules, in each trie that two or more of them change.
    pub(super) fn prefetch(&self, store: &RuleStore, rules: &[StoredRule<'_>]) {
        for (kind, trie) in self.all() {
            let own: Vec<StoredRule<'_>> =
                rules.iter().filter(|rule| self.kind.of(rule.lo) == kind).copied().collect();
            if own.len() > 1 {
                trie.prefetch(store, &own);
            }
        }
    }

    /// Whether one of the tries has too many or too few rules for its shape.
    pub(super) fn is_worn(&self) -> bool {
        self.tries.iter().flatten().any(|of| of.trie.is_worn(of.rules))
    }

    /// The number of tries.
    pub(super) fn parts(&self) -> usize {
        self.all().count()
    }

    pub(super) fn depth(&self) -> usize {
        self.all().map(|(_, trie)| trie.depth()).max().unwrap_or(0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.all().map(|(_, trie)| trie.bytes()).sum()
    }

    /// See [`Trie::read_bytes`].
    pub(super) fn read_bytes(&self) -> usize {
        self.all().map(|(_, trie)| trie.read_bytes()).sum()
    }

    /// See [`Trie::touches`].
    pub(super) fn touches(&self, key: &[u64]) -> usize {
        self.trie_of(key).map_or(0, |trie| trie.touches(key))
    }

    /// The best rule for a key, or [`NOTHING`].
    #[inline(always)]
    pub(super) fn find(&self, key: &[u64]) -> u32 {
        self.trie_of(key).map_or(NOTHING, |trie| trie.find(key))
    }

    /// The trie for the kind of a key; None if no rule has this kind.
    #[inline(always)]
    fn trie_of(&self, key: &[u64]) -> Option<&Trie> {
        self.tries.get(self.kind.of(key) as usize)?.as_ref().map(|of| &of.trie)
    }

    /// The trie for the kind of a rule; None if the rule has no single kind, or there is no such trie.
    fn of_mut(&mut self, rule: StoredRule<'_>) -> Option<&mut KindTrie> {
        let kind = self.kind.of(rule.lo);
        self.tries.get_mut(kind as usize).filter(|_| kind == self.kind.of(rule.hi))?.as_mut()
    }

    /// Iterates over the kinds that have a trie, with their tries.
    fn all(&self) -> impl Iterator<Item = (u64, &Trie)> {
        (0..).zip(&self.tries).filter_map(|(kind, of)| of.as_ref().map(|of| (kind, &of.trie)))
    }
}
