//! Rules that care for one field, and for a narrow one beside it that says of which kind its value is: a trie for each
//! kind. Networks of both families of IP are such rules.

use super::NOTHING;
use super::key::{KeyBits, Layout};
use super::rule_store::{Rank, RuleStore, StoredRule};
use super::trie::{Trie, asked_fields};

/// Bits of a field that tells kinds apart.
const KIND_BITS_MAX: u8 = 2;

/// A trie for each kind of values.
#[derive(Clone, Debug)]
pub(crate) struct Tries {
    kind: KeyBits,
    /// By kind; none where there was no rule.
    tries: [Option<KindTrie>; 1 << KIND_BITS_MAX],
}

/// A trie, and how many rules it has.
#[derive(Clone, Debug)]
struct KindTrie {
    trie: Trie,
    rules: usize,
}

impl Tries {
    /// Tries over the one field that the rules of a store care for beside a narrow one of which each names one value,
    /// if those are all that they care for and each trie can be built ([`Trie::build`]).
    pub(super) fn build(layout: &Layout, store: &RuleStore) -> Option<Self> {
        let [first, second] = asked_fields(layout, store)?[..] else { return None };
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

    /// As of [`Trie::insert`].
    pub(super) fn insert(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        self.of_mut(rule).is_some_and(|of| {
            let done = of.trie.insert(store, rule);
            of.rules += usize::from(done);
            done
        })
    }

    /// As of [`Trie::remove`].
    pub(super) fn remove(&mut self, store: &RuleStore, rule: StoredRule<'_>) -> bool {
        self.of_mut(rule).is_some_and(|of| {
            let done = of.trie.remove(store, rule);
            of.rules -= usize::from(done && of.rules > 0);
            done
        })
    }

    /// As of [`Trie::rerank`].
    pub(super) fn rerank(&mut self, rule: StoredRule<'_>, rank: Rank) {
        if let Some(of) = self.of_mut(rule) {
            of.trie.rerank(rule, rank);
        }
    }

    /// As of [`Trie::prefetch`].
    pub(super) fn prefetch(&self, store: &RuleStore, rules: &[StoredRule<'_>]) {
        for (kind, trie) in self.all() {
            let own: Vec<StoredRule<'_>> =
                rules.iter().filter(|rule| self.kind.of(rule.lo) == kind).copied().collect();
            if own.len() > 1 {
                trie.prefetch(store, &own);
            }
        }
    }

    /// Whether one of them has too many rules for its shape, or too few.
    pub(super) fn is_worn(&self) -> bool {
        self.tries.iter().flatten().any(|of| of.trie.is_worn(of.rules))
    }

    pub(super) fn parts(&self) -> usize {
        self.all().count()
    }

    pub(super) fn depth(&self) -> usize {
        self.all().map(|(_, trie)| trie.depth()).max().unwrap_or(0)
    }

    pub(super) fn bytes(&self) -> usize {
        self.all().map(|(_, trie)| trie.bytes()).sum()
    }

    /// As of [`Trie::read_bytes`].
    pub(super) fn read_bytes(&self) -> usize {
        self.all().map(|(_, trie)| trie.read_bytes()).sum()
    }

    /// As of [`Trie::touches`].
    pub(super) fn touches(&self, key: &[u64]) -> usize {
        self.trie_of(key).map_or(0, |trie| trie.touches(key))
    }

    /// The best rule for a key, or [`NOTHING`].
    #[inline(always)]
    pub(super) fn find(&self, key: &[u64]) -> u32 {
        self.trie_of(key).map_or(NOTHING, |trie| trie.find(key))
    }

    #[inline(always)]
    fn trie_of(&self, key: &[u64]) -> Option<&Trie> {
        self.tries.get(self.kind.of(key) as usize)?.as_ref().map(|of| &of.trie)
    }

    fn of_mut(&mut self, rule: StoredRule<'_>) -> Option<&mut KindTrie> {
        let kind = self.kind.of(rule.lo);
        self.tries.get_mut(kind as usize).filter(|_| kind == self.kind.of(rule.hi))?.as_mut()
    }

    fn all(&self) -> impl Iterator<Item = (u64, &Trie)> {
        (0..).zip(&self.tries).filter_map(|(kind, of)| of.as_ref().map(|of| (kind, &of.trie)))
    }
}
