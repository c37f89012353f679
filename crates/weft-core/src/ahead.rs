//! Notes of code that looks ahead: what the passes of a batch will ask tables for, and what these will say.
//!
//! Notes lead compiled code to rows without a look-up, so they have to be its own, and of the state that it runs on:
//! only code with the [`CodeId`] that [`Notes::start`] was given may write them, and it reads none but those
//! ([`Noted::by`]).

use crate::abi::{CodeId, State};

/// Tables and matchers of more bytes than this are farther away than a core's own cache: to look ahead in others costs
/// more than it spares.
pub const FAR_BYTES: usize = 256 << 10;

/// The notes of the tuples of a batch: for each the same number of words, whose meaning is the code's own.
#[derive(Debug, Default)]
pub struct Notes {
    words: Vec<u64>,
    /// How many a tuple has.
    each: usize,
    code: u64,
    state: u64,
}

/// The notes of one tuple, as its pass is given them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Noted<'a> {
    notes: Option<&'a Notes>,
    nth: usize,
}

impl Notes {
    /// Notes of so many tuples, with so many words each, for code and a state: all zeros.
    pub fn start(&mut self, code: &CodeId, state: &State, tuples: usize, each: usize) {
        self.clear();
        self.words.resize(tuples * each, 0);
        (self.each, self.code, self.state) = (each, code.number(), state.number());
    }

    /// There are none.
    pub fn clear(&mut self) {
        self.words.clear();
        (self.each, self.code, self.state) = (0, 0, 0);
    }

    /// The words of a tuple; None if it has none, or others have written them.
    #[inline(always)]
    pub fn of_mut(&mut self, code: &CodeId, nth: usize) -> Option<&mut [u64]> {
        let is_own = self.code == code.number();
        self.words.get_mut(nth * self.each..(nth + 1) * self.each).filter(|_| is_own)
    }

    /// The words of all tuples, one behind the other, and how many each has, which is some; None if they are of others,
    /// or of another state.
    pub fn all_mut(&mut self, code: &CodeId, state: &State) -> Option<(&mut [u64], usize)> {
        let is_own = self.code == code.number() && self.state == state.number() && self.each > 0;
        is_own.then_some((&mut self.words, self.each))
    }

    /// The words of all tuples, and how many each has, to be read; None as for [`Notes::all_mut`].
    #[inline]
    pub fn all(&self, code: &CodeId, state: &State) -> Option<(&[u64], usize)> {
        let is_own = self.code == code.number() && self.state == state.number();
        is_own.then_some((&*self.words, self.each))
    }

    /// What is noted of a tuple: nothing, if there is no such.
    #[inline(always)]
    pub fn of(&self, nth: usize) -> Noted<'_> {
        Noted { notes: (!self.words.is_empty()).then_some(self), nth }
    }
}

impl<'a> Noted<'a> {
    /// Nothing is noted.
    #[inline(always)]
    pub fn is_none(self) -> bool {
        self.notes.is_none()
    }

    /// The words, if it was this code that wrote them, for this state.
    #[inline(always)]
    pub fn by(self, code: &CodeId, state: &State) -> Option<&'a [u64]> {
        let notes =
            self.notes.filter(|notes| notes.code == code.number() && notes.state == state.number())?;
        notes.words.get(self.nth * notes.each..(self.nth + 1) * notes.each)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::abi::Parts;

    #[test]
    fn notes_are_read_by_the_code_that_wrote_them_in_the_state_that_it_was() {
        // Code would take words for addresses that another has written, or that lead to tables that are gone.
        let (code, other) = (CodeId::new(), CodeId::new());
        let mut state = State::from(Parts::default());
        let mut notes = Notes::default();
        notes.start(&code, &state, 2, 3);
        assert!(notes.of_mut(&other, 1).is_none() && notes.all_mut(&other, &state).is_none());
        notes.of_mut(&code, 1).expect("it is there").copy_from_slice(&[1, 2, 3]);
        assert_eq!(notes.all_mut(&code, &state), Some((&mut [0, 0, 0, 1, 2, 3][..], 3)));
        assert_eq!(notes.of(1).by(&code, &state), Some(&[1, 2, 3][..]));
        assert_eq!(notes.of(2).by(&code, &state), None);
        assert!(notes.of(1).by(&other, &state).is_none() && notes.of(1).by(&code, &state.clone()).is_none());
        state.tables.clear();
        assert!(notes.of(1).by(&code, &state).is_none() && notes.all_mut(&code, &state).is_none());
        notes.clear();
        assert!(notes.of(1).by(&code, &state).is_none() && notes.of_mut(&code, 0).is_none());
    }
}
