//! Sets of input columns.

use crate::limits::INPUTS_MAX;
use core::fmt;
use core::ops::{BitAnd, BitAndAssign, BitOr, BitOrAssign, Not};

/// A set of input columns of one direction of a chain: for example the columns that are not NULL, or that a program
/// reads.
///
/// Bit `i % 64` of word `i / 64` stands for input `i`; compiled code reads and writes these words. Inputs from
/// [`INPUTS_MAX`] on are in no set; inserting one does nothing.
///
/// ```
/// use weft_core::inputs::InputSet;
///
/// let mut present = InputSet::of(3_u16) | InputSet::of(200_u16);
/// present.set(3_u16, false);
/// assert!(present.contains(200_u16));
/// assert_eq!(present.iter().collect::<Vec<_>>(), [200]);
/// ```
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
#[repr(transparent)]
pub struct InputSet([u64; Self::WORDS]);

/// A set consists of whole words.
const _: () = assert!(INPUTS_MAX.is_multiple_of(64));

impl InputSet {
    /// The number of words of a set.
    pub const WORDS: usize = INPUTS_MAX / 64;
    /// The empty set.
    pub const EMPTY: Self = Self([0; Self::WORDS]);
    /// The set of all inputs.
    pub const ALL: Self = Self([u64::MAX; Self::WORDS]);

    /// Makes the set of one input.
    #[inline(always)]
    pub fn of(at: impl Into<usize>) -> Self {
        let mut one = Self::EMPTY;
        one.insert(at);
        one
    }

    /// Whether the set contains an input.
    #[inline(always)]
    pub fn contains(&self, at: impl Into<usize>) -> bool {
        let at = at.into();
        self.0.get(at / 64).is_some_and(|word| word >> (at % 64) & 1 == 1)
    }

    /// Whether the set contains all of these inputs.
    #[inline(always)]
    pub fn contains_all(&self, others: Self) -> bool {
        (others & !*self).is_empty()
    }

    /// Whether the sets share an input.
    #[inline(always)]
    pub fn intersects(&self, others: Self) -> bool {
        !(*self & others).is_empty()
    }

    /// The number of inputs in the set.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether the set is empty.
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.iter().fold(0, |all, word| all | word) == 0
    }

    /// Adds an input.
    #[inline(always)]
    pub fn insert(&mut self, at: impl Into<usize>) {
        let at = at.into();
        if let Some(word) = self.0.get_mut(at / 64) {
            *word |= 1 << (at % 64);
        }
    }

    /// Removes an input.
    #[inline(always)]
    pub fn remove(&mut self, at: impl Into<usize>) {
        let at = at.into();
        if let Some(word) = self.0.get_mut(at / 64) {
            *word &= !(1 << (at % 64));
        }
    }

    /// Adds or removes an input.
    #[inline(always)]
    pub fn set(&mut self, at: impl Into<usize>, is_in: bool) {
        if is_in {
            self.insert(at);
        } else {
            self.remove(at);
        }
    }

    /// The inputs in ascending order.
    #[inline]
    pub fn iter(self) -> Iter {
        Iter { left: self, word: 0 }
    }

    /// The words, in the layout of compiled code.
    #[inline(always)]
    pub fn words(&self) -> &[u64; Self::WORDS] {
        &self.0
    }

    /// The words, mutable.
    #[inline(always)]
    pub fn words_mut(&mut self) -> &mut [u64; Self::WORDS] {
        &mut self.0
    }
}

/// The inputs of a set in ascending order.
#[derive(Clone, Debug)]
pub struct Iter {
    left: InputSet,
    /// The current word; all words before it are used up.
    word: usize,
}

impl Iterator for Iter {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        while let Some(word) = self.left.0.get_mut(self.word) {
            if *word != 0 {
                let at = 64 * self.word + word.trailing_zeros() as usize;
                *word &= *word - 1;
                return Some(at);
            }
            self.word += 1;
        }
        None
    }
}

impl IntoIterator for InputSet {
    type Item = usize;
    type IntoIter = Iter;

    #[inline]
    fn into_iter(self) -> Iter {
        self.iter()
    }
}

impl<I: Into<usize>> FromIterator<I> for InputSet {
    #[inline]
    fn from_iter<T: IntoIterator<Item = I>>(inputs: T) -> Self {
        let mut all = Self::EMPTY;
        inputs.into_iter().for_each(|at| all.insert(at));
        all
    }
}

impl BitOr for InputSet {
    type Output = Self;

    #[inline(always)]
    fn bitor(mut self, others: Self) -> Self {
        self |= others;
        self
    }
}

impl BitOrAssign for InputSet {
    #[inline(always)]
    fn bitor_assign(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word |= other);
    }
}

impl BitAnd for InputSet {
    type Output = Self;

    #[inline(always)]
    fn bitand(mut self, others: Self) -> Self {
        self &= others;
        self
    }
}

impl BitAndAssign for InputSet {
    #[inline(always)]
    fn bitand_assign(&mut self, others: Self) {
        self.0.iter_mut().zip(others.0).for_each(|(word, other)| *word &= other);
    }
}

impl Not for InputSet {
    type Output = Self;

    #[inline(always)]
    fn not(self) -> Self {
        Self(self.0.map(|word| !word))
    }
}

impl fmt::Debug for InputSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::Rng;
    use std::collections::BTreeSet;

    #[test]
    fn input_set_matches_btree_set() {
        // An input of a large chain would be confused with another, or with NULL.
        let mut rng = Rng::from_seed(7);
        for _ in 0..200 {
            let mut draw = || -> BTreeSet<usize> { (0..40).map(|_| rng.below(INPUTS_MAX)).collect() };
            let (a, b) = (draw(), draw());
            let [mut x, y] = [&a, &b].map(|tree| tree.iter().copied().collect::<InputSet>());
            assert!(x.iter().eq(a.iter().copied()) && x.len() == a.len());
            assert!((x | y).iter().eq(a.union(&b).copied()));
            assert!((x & y).iter().eq(a.intersection(&b).copied()));
            assert!((x & !y).iter().eq(a.difference(&b).copied()));
            assert_eq!(x.intersects(y), !a.is_disjoint(&b));
            assert_eq!(x.contains_all(y), a.is_superset(&b));
            assert!((0..2 * INPUTS_MAX).all(|at| x.contains(at) == a.contains(&at)));
            let words = x.words();
            assert!(a.iter().all(|at| words[at / 64] >> (at % 64) & 1 == 1));
            for at in b {
                x.set(at, !a.contains(&at));
                assert_eq!(x.contains(at), !a.contains(&at));
            }
        }
    }

    #[test]
    fn input_above_limit_is_in_no_set() {
        // Such an input would stand for another one, or panic.
        let mut set = InputSet::of(INPUTS_MAX);
        set.insert(u16::MAX);
        assert!(set.is_empty() && !InputSet::ALL.contains(INPUTS_MAX) && !InputSet::ALL.contains(u16::MAX));
        assert_eq!(InputSet::ALL.iter().count(), INPUTS_MAX);
    }
}
