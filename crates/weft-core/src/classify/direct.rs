//! A table over few bits: an array with the best rule for each key.

use super::key::{KeyBits, Layout};
use super::rule_store::{RuleStore, StoredRule, has_extra, id_of};
use super::{DIRECT_BITS_MAX, DIRECT_WORK_MAX, NOTHING, WORDS_MAX};

/// The best rule for each key.
#[derive(Clone, Debug)]
pub(super) struct Direct {
    places: Vec<KeyBits>,
    ids: Vec<u32>,
}

impl Direct {
    /// None if the fields have more than [`DIRECT_BITS_MAX`] bits in total, or if filling the array would take more
    /// than [`DIRECT_WORK_MAX`] steps.
    pub(super) fn build(layout: &Layout, store: &RuleStore) -> Option<Self> {
        let places: Vec<KeyBits> = layout.all_places().collect();
        let bits: u32 = places.iter().map(|place| u32::from(place.bits)).sum();
        if bits > DIRECT_BITS_MAX {
            return None;
        }
        let mut rules: Vec<StoredRule<'_>> = store.iter().collect();
        rules.sort_unstable_by_key(|rule| core::cmp::Reverse(rule.rank));
        let work: u64 = rules.iter().map(|rule| cells(&places, rule)).sum();
        if work > DIRECT_WORK_MAX {
            return None;
        }
        const { assert!(1 << DIRECT_BITS_MAX <= DIRECT_WORK_MAX, "one rule may cover all keys") };
        let mut direct = Self { places, ids: vec![NOTHING; 1 << bits] };
        for rule in rules {
            direct.fill(layout, rule);
        }
        Some(direct)
    }

    pub(super) fn bytes(&self) -> usize {
        self.ids.len() * 4
    }

    /// The best rule for a key, or [`NOTHING`].
    #[inline(always)]
    pub(super) fn find(&self, key: &[u64]) -> u32 {
        self.ids[self.places.iter().fold(0, |index, place| index << place.bits | place.of(key)) as usize]
    }

    /// Writes a rule into each entry that has no better one.
    fn fill(&mut self, layout: &Layout, rule: StoredRule<'_>) {
        let mut at: Vec<u64> = self.places.iter().map(|place| place.of(rule.lo)).collect();
        loop {
            let mut key = [0; WORDS_MAX];
            for (place, value) in self.places.iter().zip(&at) {
                key[usize::from(place.word)] |= value << place.shift;
            }
            let index =
                self.places.iter().zip(&at).fold(0, |index, (place, value)| index << place.bits | value);
            let is_in = !has_extra(rule.rank) || rule.extra.is_none_or(|extra| layout.passes(extra, &key));
            let cell = &mut self.ids[index as usize];
            if is_in && *cell == NOTHING {
                *cell = id_of(rule.rank);
            }
            // Advance the last position that has a next value, and restart those behind it.
            let Some(next) = (0..at.len()).rev().find(|&place| at[place] < self.places[place].of(rule.hi))
            else {
                return;
            };
            at[next] += 1;
            for (place, value) in self.places.iter().zip(&mut at).skip(next + 1) {
                *value = place.of(rule.lo);
            }
        }
    }
}

/// The number of array cells that a rule covers.
fn cells(places: &[KeyBits], rule: &StoredRule<'_>) -> u64 {
    places.iter().map(|place| place.of(rule.hi) - place.of(rule.lo) + 1).product()
}
