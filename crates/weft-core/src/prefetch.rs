//! Prefetch slots: which rows the passes of a batch will look up, and where compiled code found them.
//!
//! The slots lead compiled code to rows without a second look-up. They are valid only for the code that wrote them, and
//! only for the state that it read. [`PrefetchSlots::start`] records the [`CodeId`] and the state. Other code cannot
//! write the slots and reads nothing from them ([`TuplePrefetch::words`]).

use crate::abi::{CodeId, State};

/// Tables and matchers with more bytes than this do not fit the private cache of a core. Prefetching from smaller ones
/// costs more than it saves.
pub const CORE_CACHE_BYTES: usize = 256 << 10;

/// The prefetch slots of a batch: the same number of words for each tuple. Their meaning is private to the code.
#[derive(Debug, Default)]
pub struct PrefetchSlots {
    words: Vec<u64>,
    /// Words of one tuple.
    each: usize,
    code: u64,
    state: u64,
}

/// The prefetch slots of one tuple, as its pass receives them.
#[derive(Clone, Copy, Debug, Default)]
pub struct TuplePrefetch<'a> {
    slots: Option<&'a PrefetchSlots>,
    nth: usize,
}

impl PrefetchSlots {
    /// Makes zeroed slots for `tuples` tuples with `each` words per tuple, for one code and one state.
    pub fn start(&mut self, code: &CodeId, state: &State, tuples: usize, each: usize) {
        self.clear();
        self.words.resize(tuples * each, 0);
        (self.each, self.code, self.state) = (each, code.number(), state.number());
    }

    /// Removes all slots.
    pub fn clear(&mut self) {
        self.words.clear();
        (self.each, self.code, self.state) = (0, 0, 0);
    }

    /// The words of one tuple. None if it has none, or if they belong to other code.
    #[inline(always)]
    pub fn tuple_mut(&mut self, code: &CodeId, nth: usize) -> Option<&mut [u64]> {
        let is_own = self.code == code.number();
        self.words.get_mut(nth * self.each..(nth + 1) * self.each).filter(|_| is_own)
    }

    /// The words of all tuples, in order, and the number of words per tuple, which is not 0. None if they belong to
    /// other code or to another state.
    pub fn all_mut(&mut self, code: &CodeId, state: &State) -> Option<(&mut [u64], usize)> {
        let is_own = self.code == code.number() && self.state == state.number() && self.each > 0;
        is_own.then_some((&mut self.words, self.each))
    }

    /// The words of all tuples and the number of words per tuple, for reading. None as for [`PrefetchSlots::all_mut`].
    #[inline]
    pub fn all(&self, code: &CodeId, state: &State) -> Option<(&[u64], usize)> {
        let is_own = self.code == code.number() && self.state == state.number();
        is_own.then_some((&*self.words, self.each))
    }

    /// The slots of one tuple. They are empty if the batch has no such tuple.
    #[inline(always)]
    pub fn tuple(&self, nth: usize) -> TuplePrefetch<'_> {
        TuplePrefetch { slots: (!self.words.is_empty()).then_some(self), nth }
    }
}

impl<'a> TuplePrefetch<'a> {
    /// Whether there are no slots for this tuple.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.slots.is_none()
    }

    /// The words, if this code wrote them for this state.
    #[inline(always)]
    pub fn words(self, code: &CodeId, state: &State) -> Option<&'a [u64]> {
        let slots =
            self.slots.filter(|slots| slots.code == code.number() && slots.state == state.number())?;
        slots.words.get(self.nth * slots.each..(self.nth + 1) * slots.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Parts;

    #[test]
    fn slots_of_other_code_are_not_read() {
        // Code would use addresses that other code wrote, or that lead to freed tables.
        let (code, other) = (CodeId::new(), CodeId::new());
        let mut state = State::from(Parts::default());
        let mut slots = PrefetchSlots::default();
        slots.start(&code, &state, 2, 3);
        assert!(slots.tuple_mut(&other, 1).is_none() && slots.all_mut(&other, &state).is_none());
        slots.tuple_mut(&code, 1).expect("the tuple has slots").copy_from_slice(&[1, 2, 3]);
        assert_eq!(slots.all_mut(&code, &state), Some((&mut [0, 0, 0, 1, 2, 3][..], 3)));
        assert_eq!(slots.tuple(1).words(&code, &state), Some(&[1, 2, 3][..]));
        assert_eq!(slots.tuple(2).words(&code, &state), None);
        assert!(
            slots.tuple(1).words(&other, &state).is_none()
                && slots.tuple(1).words(&code, &state.clone()).is_none()
        );
        state.tables.clear();
        assert!(slots.tuple(1).words(&code, &state).is_none() && slots.all_mut(&code, &state).is_none());
        slots.clear();
        assert!(slots.tuple(1).words(&code, &state).is_none() && slots.tuple_mut(&code, 0).is_none());
    }
}
