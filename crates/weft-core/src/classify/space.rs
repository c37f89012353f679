//! Tuple space: a hash table for each mask of the rules.
//!
//! A look-up masks the key, hashes it and probes each tuple once, those with the best rules first. It ends when no
//! remaining tuple can have a better rule. A change costs a probe or a few, and is visible at once.
//!
//! The first masks get tuples of their own, in which a slot holds the masked key and nothing else is compared; so a
//! table of exact rules is one hash table. Further masks share the tuples of coarser masks, whose slots hold the box of
//! the rule. A rule that finds no slot within [`PROBES_MAX`] of any suitable tuple goes to a list in order of rank.
//! Source: V. Srinivasan and others, "Packet classification using tuple space search" (SIGCOMM 1999); sharing by
//! coarser masks and the order by greatest rank as in J. Daly and others, "TupleMerge" (2019) and Open vSwitch.

use core::hint::black_box;

use super::key::{Layout, Words, is_within};
use super::rule_store::{Rank, RuleStore, StoredRule, has_extra, id_of};
use super::{PROBES_MAX, TUPLES_MAX};
use crate::hash::HashKey;

/// Number of masks that always get a tuple of their own.
const OWN_TUPLES: usize = 6;
/// The same for prefixes of one field: a trie answers look-ups for them, so fast changes matter most.
const OWN_TUPLES_OF_A_FIELD: usize = 64;
/// Probes in a tuple before a rule tries a tuple with a finer mask.
const PROBES_SHARED: usize = 8;
/// Slots of a new tuple.
const SLOTS_MIN: usize = 16;
/// Keys per batch: all are hashed before the first is compared.
pub(super) const AHEAD: usize = 32;
const _: () = assert!(OWN_TUPLES <= OWN_TUPLES_OF_A_FIELD && OWN_TUPLES_OF_A_FIELD < TUPLES_MAX);
const _: () = assert!(PROBES_SHARED <= PROBES_MAX && SLOTS_MIN.is_power_of_two());

/// The rules of a table, or those added since its structure was built.
#[derive(Clone, Debug)]
pub(super) struct Space {
    words: usize,
    hash: HashKey,
    /// The tuples, those with the greatest ranks first.
    tuples: Vec<Tuple>,
    /// The list of rules without a tuple, best first.
    rest: Vec<Rank>,
    len: usize,
}

/// The rules of one mask.
#[derive(Clone, Debug)]
struct Tuple {
    mask: Words,
    /// Whether a slot is a rank and the masked key; otherwise it is a rank and a box.
    is_plain: bool,
    /// Whether two rules may have the same masked key.
    has_duplicates: bool,
    /// An upper bound of the ranks.
    rank_max: Rank,
    slots: Slots,
    /// The old slots after a resize. Each change moves some of them, so that no change has to move all.
    old: Option<Box<Slots>>,
    /// The number of old slots that are already moved.
    emptied: usize,
    len: usize,
}

/// An open-addressed table: a slot begins with a rank, 0 if it is free.
#[derive(Clone, Debug)]
struct Slots {
    words: Vec<u64>,
    stride: usize,
    /// Words of the key in a slot, behind the rank.
    key_words: usize,
    hash: HashKey,
    /// 64 minus the binary logarithm of the number of slots.
    shift: u32,
}

impl Space {
    pub(super) fn new(layout: &Layout) -> Self {
        Self { words: layout.words(), hash: layout.hash, tuples: Vec::new(), rest: Vec::new(), len: 0 }
    }

    /// Builds a tuple space with all rules of a store.
    pub(super) fn of(layout: &Layout, store: &RuleStore) -> Self {
        let mut space = Self::new(layout);
        let mut rules: Vec<StoredRule<'_>> = store.iter().collect();
        rules.sort_unstable_by_key(|rule| core::cmp::Reverse(rule.rank));
        for rule in rules {
            space.insert(layout, rule);
        }
        space
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    pub(super) fn tuples(&self) -> usize {
        self.tuples.len()
    }

    /// The number of rules in the list.
    pub(super) fn rest(&self) -> usize {
        self.rest.len()
    }

    /// Whether a look-up is one probe of one hash table.
    pub(super) fn is_hash(&self) -> bool {
        self.rest.is_empty() && self.tuples.len() <= 1 && self.tuples.iter().all(|tuple| tuple.is_plain)
    }

    pub(super) fn bytes(&self) -> usize {
        self.rest.len() * 8 + self.tuples.iter().map(|tuple| tuple.bytes()).sum::<usize>()
    }

    /// Inserts a rule that is not in the space yet. It goes into a tuple with a mask that other rules share, as long as
    /// probes stay short.
    pub(super) fn insert(&mut self, layout: &Layout, rule: StoredRule<'_>) {
        self.len += 1;
        let (care, is_all) = layout.common(rule.lo, rule.hi, rule.extra);
        if is_all && let Some(at) = self.tuple(&care, true) {
            if self.put(at, rule, PROBES_MAX) {
                return;
            }
        } else if is_all && self.tuples.len() < own_tuples_max(layout, rule) {
            let at = self.add(care, true);
            self.put(at, rule, PROBES_MAX);
            return;
        }
        let coarser = |parts| coarse(layout, &care, parts);
        // From a mask that many rules share to the rule's own, while probes stay short; then any free slot.
        let masks = [coarser(2), coarser(4), care, coarser(1)];
        for (mask, probes_max) in
            masks.map(|mask| (mask, PROBES_SHARED)).into_iter().chain([(care, PROBES_MAX)])
        {
            let found = self.tuple(&mask, false);
            let may_add = self.tuples.len() < TUPLES_MAX;
            let Some(at) = found.or_else(|| may_add.then(|| self.add(mask, false))) else { continue };
            if self.put(at, rule, probes_max) {
                return;
            }
        }
        self.add_to_rest(rule.rank);
    }

    /// Reads the first slots that changes of these rules will read; the reads overlap.
    pub(super) fn prefetch(&self, layout: &Layout, rules: &[StoredRule<'_>]) {
        let slot = |rule: &StoredRule<'_>| {
            let (care, _) = layout.common(rule.lo, rule.hi, rule.extra);
            let slots = &self.tuples[self.tuple(&care, true)?].slots;
            Some(slots.rank(slots.start_of(rule.lo, &care)))
        };
        black_box(rules.iter().filter_map(slot).fold(0, |all, rank| all ^ rank));
    }

    /// Removes a rule; false if it is not there.
    pub(super) fn remove(&mut self, layout: &Layout, rule: StoredRule<'_>) -> bool {
        match self.find_tuple(layout, rule, |tuple| tuple.remove(rule.rank, rule.lo)) {
            Some(at) if self.tuples[at].len == 0 => {
                self.tuples.remove(at);
            }
            Some(_) => self.sort(),
            None if !self.remove_from_rest(rule.rank) => return false,
            None => {}
        }
        self.len -= 1;
        true
    }

    /// Changes the rank of a rule; false if it is not there.
    pub(super) fn rerank(&mut self, layout: &Layout, rule: StoredRule<'_>, rank: Rank) -> bool {
        match self.find_tuple(layout, rule, |tuple| tuple.rerank(rule.rank, rule.lo, rank)) {
            Some(_) => self.sort(),
            None if !self.remove_from_rest(rule.rank) => return false,
            None => self.add_to_rest(rank),
        }
        true
    }

    /// The tuple that has a rule, according to `has`; None if the rule is in the list.
    fn find_tuple(
        &mut self,
        layout: &Layout,
        rule: StoredRule<'_>,
        mut has: impl FnMut(&mut Tuple) -> bool,
    ) -> Option<usize> {
        let (care, _) = layout.common(rule.lo, rule.hi, rule.extra);
        let own = self.tuple(&care, true);
        if own.is_some_and(|at| has(&mut self.tuples[at])) {
            return own;
        }
        let is_coarser = |mask: &Words| mask.iter().zip(&care).all(|(mask, care)| mask & !care == 0);
        let mut others = self.tuples.iter_mut().enumerate().filter(|(at, _)| Some(*at) != own);
        others.find_map(|(at, tuple)| (is_coarser(&tuple.mask) && has(tuple)).then_some(at))
    }

    /// Inserts a rule, by its rank, into the rules without a tuple.
    fn add_to_rest(&mut self, rank: Rank) {
        let at = self.rest.partition_point(|&other| other > rank);
        self.rest.insert(at, rank);
    }

    /// Removes a rule from those without a tuple; false if it is not there.
    fn remove_from_rest(&mut self, rank: Rank) -> bool {
        let at = self.rest.binary_search_by(|other| rank.cmp(other));
        at.is_ok_and(|at| self.rest.remove(at) == rank)
    }

    /// Finds the best matching rule; returns `best` if none is better.
    #[inline]
    pub(super) fn find<const N: usize>(&self, context: Context<'_>, key: &[u64; N], best: Rank) -> Rank {
        let mut best = best;
        for tuple in &self.tuples {
            if best >= tuple.rank_max {
                break;
            }
            best = tuple.find(context, key, best);
        }
        self.find_in_rest(context, key, best)
    }

    /// As [`find`](Self::find) for up to [`AHEAD`] keys: the slots of all keys are read before the first is compared.
    #[inline]
    pub(super) fn find_batch<const N: usize>(
        &self,
        context: Context<'_>,
        keys: &[[u64; N]],
        best: &mut [Rank],
    ) {
        for tuple in &self.tuples {
            let mut starts = [0; AHEAD];
            let mut touched = 0;
            for (start, key) in starts.iter_mut().zip(keys) {
                *start = tuple.slots.start(&masked(key, &tuple.mask));
                touched |= tuple.slots.words[*start * tuple.slots.stride];
            }
            // The result of the reads is used, so that the compiler keeps them in front of the comparisons.
            let is_empty = touched == 0 && tuple.old.is_none();
            for ((key, best), &start) in keys.iter().zip(best.iter_mut()).zip(&starts) {
                if !is_empty && *best < tuple.rank_max {
                    *best = tuple.find_from(context, key, *best, start);
                }
            }
        }
        if !self.rest.is_empty() {
            for (key, best) in keys.iter().zip(best) {
                *best = self.find_in_rest(context, key, *best);
            }
        }
    }

    /// The number of tuples and of listed rules that a look-up reads.
    pub(super) fn touches<const N: usize>(&self, context: Context<'_>, key: &[u64; N]) -> (usize, usize) {
        let (mut best, mut probed) = (0, 0);
        for tuple in self.tuples.iter() {
            if best >= tuple.rank_max {
                break;
            }
            best = tuple.find(context, key, best);
            probed += 1;
        }
        let end = self.find_in_rest(context, key, best);
        (probed, self.rest.partition_point(|&rank| rank > end))
    }

    /// Finds the best rule for a key among the rules without a tuple; returns `best` if none is better.
    fn find_in_rest<const N: usize>(&self, context: Context<'_>, key: &[u64; N], best: Rank) -> Rank {
        for &rank in self.rest.iter().take_while(|&&rank| rank > best) {
            let matches = |rule: StoredRule<'_>| {
                is_within(key, rule.lo, rule.hi, context.guards())
                    && rule.extra.is_none_or(|extra| context.layout.passes(extra, key))
            };
            if context.store.get(id_of(rank)).is_some_and(matches) {
                return rank;
            }
        }
        best
    }

    /// Finds the tuple with this mask; None if there is none.
    fn tuple(&self, mask: &Words, is_plain: bool) -> Option<usize> {
        self.tuples.iter().position(|tuple| tuple.is_plain == is_plain && tuple.mask == *mask)
    }

    /// Adds an empty tuple with this mask; returns its index.
    fn add(&mut self, mask: Words, is_plain: bool) -> usize {
        self.tuples.push(Tuple::new(mask, is_plain, self.words, self.hash));
        self.tuples.len() - 1
    }

    /// Puts a rule into a tuple, if a slot near its home is free. Tuples may change their order.
    fn put(&mut self, at: usize, rule: StoredRule<'_>, probes_max: usize) -> bool {
        let done = self.tuples[at].insert(rule, self.words, probes_max);
        self.sort();
        done
    }

    /// Sorts the tuples by their best rank, so that a look-up can stop early.
    fn sort(&mut self) {
        if !self.tuples.is_sorted_by_key(|tuple| core::cmp::Reverse(tuple.rank_max)) {
            self.tuples.sort_by_key(|tuple| core::cmp::Reverse(tuple.rank_max));
        }
    }
}

/// The data that a look-up needs besides the structure.
#[derive(Clone, Copy, Debug)]
pub(super) struct Context<'a> {
    pub(super) layout: &'a Layout,
    pub(super) store: &'a RuleStore,
}

impl<'a> Context<'a> {
    #[inline(always)]
    pub(super) fn guards<const N: usize>(self) -> &'a [u64; N] {
        self.layout.guards.first_chunk().expect("a layout has at most WORDS_MAX words")
    }

    /// Whether the key satisfies the tests of the rule beyond its box.
    #[cold]
    pub(super) fn passes(self, rank: Rank, key: &[u64]) -> bool {
        let rule = self.store.get(id_of(rank));
        rule.and_then(|rule| rule.extra).is_none_or(|extra| self.layout.passes(extra, key))
    }
}

impl Tuple {
    fn new(mask: Words, is_plain: bool, words: usize, hash: HashKey) -> Self {
        let slots = Slots::new(SLOTS_MIN, 1 + if is_plain { words } else { 2 * words }, words, hash);
        Self { mask, is_plain, has_duplicates: false, rank_max: 0, slots, old: None, emptied: 0, len: 0 }
    }

    fn bytes(&self) -> usize {
        (self.slots.words.len() + self.old.as_ref().map_or(0, |old| old.words.len())) * 8
    }

    #[inline(always)]
    fn find<const N: usize>(&self, context: Context<'_>, key: &[u64; N], best: Rank) -> Rank {
        let start = self.slots.start(&masked(key, &self.mask));
        self.find_from(context, key, best, start)
    }

    /// As [`find`](Self::find), with the home slot of the key.
    #[inline(always)]
    fn find_from<const N: usize>(
        &self,
        context: Context<'_>,
        key: &[u64; N],
        best: Rank,
        start: usize,
    ) -> Rank {
        let find = |slots: &Slots, best, start| {
            if self.is_plain {
                slots.find_plain(&masked(key, &self.mask), best, start, self.has_duplicates)
            } else {
                slots.find_box(context, key, best, start)
            }
        };
        let best = find(&self.slots, best, start);
        match &self.old {
            None => best,
            Some(old) => find(old, best, old.start(&masked(key, &self.mask))),
        }
    }

    /// Returns false if no slot near the rule's home is free.
    fn insert(&mut self, rule: StoredRule<'_>, words: usize, probes_max: usize) -> bool {
        self.migrate_slots(MOVED_A_CHANGE);
        if (self.len + 1) * 2 > self.slots.size() {
            self.resize(self.slots.size() * 2);
        }
        let start = self.slots.start_of(rule.lo, &self.mask);
        let Some(at) = self.slots.free(start, probes_max) else { return false };
        if self.is_plain {
            let is_duplicate = |slots: &Slots| slots.has(slots.start_of(rule.lo, &self.mask), rule.lo);
            self.has_duplicates |= is_duplicate(&self.slots) || self.old.as_deref().is_some_and(is_duplicate);
        }
        let slot = self.slots.slot_mut(at);
        slot[0] = rule.rank;
        slot[1..=words].copy_from_slice(rule.lo);
        if !self.is_plain {
            slot[1 + words..].copy_from_slice(rule.hi);
        }
        self.rank_max = self.rank_max.max(rule.rank);
        self.len += 1;
        assert!(2 * self.len <= self.slots.size(), "a probe ends at a free slot");
        true
    }

    /// Removes a rule from the tuple; false if it is not there.
    fn remove(&mut self, rank: Rank, lo: &[u64]) -> bool {
        self.migrate_slots(MOVED_A_CHANGE);
        let (mask, old) = (&self.mask, self.old.as_deref_mut());
        if !(self.slots.remove(rank, lo, mask) || old.is_some_and(|old| old.remove(rank, lo, mask))) {
            return false;
        }
        self.len -= 1;
        if self.slots.size() > SLOTS_MIN && self.len * 16 < self.slots.size() {
            self.resize(self.slots.size() / 4);
        }
        true
    }

    /// Changes the rank of a rule from `old` to `rank`; false if it is not there.
    fn rerank(&mut self, old: Rank, lo: &[u64], rank: Rank) -> bool {
        let (mask, slots) = (&self.mask, core::iter::once(&mut self.slots));
        let done = slots.chain(self.old.as_deref_mut()).any(|slots| slots.rerank(old, lo, mask, rank));
        if done {
            self.rank_max = self.rank_max.max(rank);
        }
        done
    }

    /// Allocates new slots. Later changes move the rules over, some at a time.
    fn resize(&mut self, size: usize) {
        self.migrate_slots(usize::MAX);
        let Slots { stride, key_words, hash, .. } = self.slots;
        let slots = Slots::new(size.max(SLOTS_MIN), stride, key_words, hash);
        let old = core::mem::replace(&mut self.slots, slots);
        self.old = Some(Box::new(old));
        self.emptied = 0;
        self.migrate_slots(MOVED_A_CHANGE);
    }

    /// Moves the content of `steps` old slots to the new ones.
    fn migrate_slots(&mut self, steps: usize) {
        let Some(old) = &mut self.old else { return };
        for _ in 0..steps {
            if self.emptied == old.size() {
                self.old = None;
                return;
            }
            if old.rank(self.emptied) == 0 {
                self.emptied += 1;
                continue;
            }
            let lo = &old.slot(self.emptied)[1..];
            let start = self.slots.start_of(lo, &self.mask);
            let at = self.slots.free(start, usize::MAX).expect("there are twice as many slots as rules");
            self.slots.slot_mut(at).copy_from_slice(old.slot(self.emptied));
            old.close_gap(self.emptied, &self.mask);
        }
    }
}

/// Old slots that a change moves while a tuple grows. Two would be enough to finish before the next growth.
const MOVED_A_CHANGE: usize = 16;

impl Slots {
    fn new(size: usize, stride: usize, key_words: usize, hash: HashKey) -> Self {
        assert!(size.is_power_of_two() && size >= SLOTS_MIN, "a hash is shifted to the number of a slot");
        assert!(stride > key_words, "a slot has a rank and the words of a key");
        Self { words: vec![0; size * stride], stride, key_words, hash, shift: 64 - size.ilog2() }
    }

    #[inline(always)]
    fn size(&self) -> usize {
        1 << (64 - self.shift)
    }

    fn rank(&self, at: usize) -> Rank {
        self.words[at * self.stride]
    }

    fn slot(&self, at: usize) -> &[u64] {
        &self.words[at * self.stride..][..self.stride]
    }

    fn slot_mut(&mut self, at: usize) -> &mut [u64] {
        &mut self.words[at * self.stride..][..self.stride]
    }

    #[inline(always)]
    fn start<const N: usize>(&self, masked: &[u64; N]) -> usize {
        (self.hash.hash_words(*masked) >> self.shift) as usize
    }

    /// The home slot of a rule; all keys in its box have the masked bits of its lower corner.
    fn start_of(&self, lo: &[u64], mask: &Words) -> usize {
        let words = lo[..self.key_words].iter().zip(mask).map(|(lo, mask)| lo & mask);
        (self.hash.hash_words(words) >> self.shift) as usize
    }

    /// Probes from slot `start` for the best rule whose box holds the key; returns `best` if none is better.
    #[inline(always)]
    fn find_box<const N: usize>(
        &self,
        context: Context<'_>,
        key: &[u64; N],
        best: Rank,
        start: usize,
    ) -> Rank {
        let (mut best, last) = (best, self.size() - 1);
        let mut at = start;
        loop {
            let slot = &self.words[at * (1 + 2 * N)..][..1 + 2 * N];
            let rank = slot[0];
            if rank == 0 {
                return best;
            }
            if rank > best
                && is_within(key, &slot[1..=N], &slot[1 + N..], context.guards())
                && (!has_extra(rank) || context.passes(rank, key))
            {
                best = rank;
            }
            at = (at + 1) & last;
        }
    }

    /// Probes from slot `start` for the best rule with this masked key; returns `best` if none is better.
    #[inline(always)]
    fn find_plain<const N: usize>(
        &self,
        masked: &[u64; N],
        best: Rank,
        start: usize,
        has_duplicates: bool,
    ) -> Rank {
        let (mut best, last) = (best, self.size() - 1);
        let mut at = start;
        loop {
            let slot = &self.words[at * (1 + N)..][..1 + N];
            let rank = slot[0];
            if rank == 0 {
                return best;
            }
            if slot[1..] == masked[..] {
                best = best.max(rank);
                if !has_duplicates {
                    return best;
                }
            }
            at = (at + 1) & last;
        }
    }

    /// Finds a free slot within `probes_max` probes from a start slot.
    fn free(&self, start: usize, probes_max: usize) -> Option<usize> {
        let last = self.size() - 1;
        let mut probes = (0..self.size().min(probes_max)).map(|probe| (start + probe) & last);
        probes.find(|&at| self.rank(at) == 0)
    }

    /// Whether a slot holds this masked key.
    fn has(&self, start: usize, lo: &[u64]) -> bool {
        let last = self.size() - 1;
        let mut at = start;
        while self.rank(at) != 0 {
            if self.slot(at)[1..] == *lo {
                return true;
            }
            at = (at + 1) & last;
        }
        false
    }

    /// Removes a rule; false if it is not there.
    fn remove(&mut self, rank: Rank, lo: &[u64], mask: &Words) -> bool {
        let at = self.position(rank, lo, mask);
        at.into_iter().for_each(|at| self.close_gap(at, mask));
        at.is_some()
    }

    /// Changes the rank of a rule from `old` to `rank`; false if it is not there.
    fn rerank(&mut self, old: Rank, lo: &[u64], mask: &Words, rank: Rank) -> bool {
        let at = self.position(old, lo, mask);
        at.into_iter().for_each(|at| self.slot_mut(at)[0] = rank);
        at.is_some()
    }

    /// Finds the slot of a rule; None if it is not there.
    fn position(&self, rank: Rank, lo: &[u64], mask: &Words) -> Option<usize> {
        let last = self.size() - 1;
        let mut at = self.start_of(lo, mask);
        loop {
            match self.rank(at) {
                0 => return None,
                found if found == rank => return Some(at),
                _ => at = (at + 1) & last,
            }
        }
    }

    /// Empties a slot and moves the following slots back, so that no probe ends too early.
    fn close_gap(&mut self, at: usize, mask: &Words) {
        let (mut gap, last) = (at, self.size() - 1);
        let mut next = (gap + 1) & last;
        while self.rank(next) != 0 {
            let home = self.start_of(&self.slot(next)[1..], mask);
            if next.wrapping_sub(home) & last >= next.wrapping_sub(gap) & last {
                self.words.copy_within(next * self.stride..(next + 1) * self.stride, gap * self.stride);
                gap = next;
            }
            next = (next + 1) & last;
        }
        self.slot_mut(gap).fill(0);
    }
}

/// The number of tuples up to which a rule gets a tuple with its own mask.
fn own_tuples_max(layout: &Layout, rule: StoredRule<'_>) -> usize {
    let is_prefix = layout.fields().len() == 1 && rule.extra.is_none();
    if is_prefix { OWN_TUPLES_OF_A_FIELD } else { OWN_TUPLES }
}

#[inline(always)]
fn masked<const N: usize>(key: &[u64; N], mask: &Words) -> [u64; N] {
    core::array::from_fn(|word| key[word] & mask[word])
}

/// The mask with fewer leading bits of each field part: a multiple of its width over `parts`.
fn coarse(layout: &Layout, care: &Words, parts: u8) -> Words {
    let mut mask = Words::default();
    for place in layout.all_places() {
        let asked = place.of(care) << (64 - place.bits);
        let leading = asked.leading_ones() as u8;
        let step = place.bits.div_ceil(parts).max(8).min(place.bits);
        let kept = leading / step * step;
        let low = super::key::ones(place.bits) & !super::key::ones(place.bits - kept.min(place.bits));
        mask[usize::from(place.word)] |= low << place.shift;
    }
    mask
}
