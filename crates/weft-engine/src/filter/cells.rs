//! Stores the state of a policy as atomic words that all workers share.

use weft_core::Time;
use weft_core::table::Scalars;

/// Values that are loaded, changed and stored together.
pub(super) trait Cells: Sized {
    /// The number of words.
    const WORDS: usize;

    fn load(words: &Scalars, at: usize) -> Self;
    fn store(&self, words: &Scalars, at: usize);

    /// Changes the values at word `at` atomically.
    fn change<R>(words: &Scalars, at: usize, change: impl FnOnce(&mut Self) -> R) -> R {
        words.lock();
        let mut cells = Self::load(words, at);
        let result = change(&mut cells);
        cells.store(words, at);
        words.unlock();
        result
    }
}

/// A value that fits in a word; 0 is its initial value.
pub(super) trait Word {
    fn from_word(word: u64) -> Self;
    fn to_word(&self) -> u64;
}

impl Word for u32 {
    fn from_word(word: u64) -> Self {
        word as Self
    }

    fn to_word(&self) -> u64 {
        u64::from(*self)
    }
}

impl Word for f64 {
    fn from_word(word: u64) -> Self {
        Self::from_bits(word)
    }

    fn to_word(&self) -> u64 {
        self.to_bits()
    }
}

impl Word for Time {
    fn from_word(word: u64) -> Self {
        Self(word as i64)
    }

    fn to_word(&self) -> u64 {
        self.0 as u64
    }
}

/// Declares a struct and implements [`Cells`] for it, a word for each field.
macro_rules! cells {
    ($(#[$doc:meta])* struct $name:ident { $($(#[$of_field:meta])* $field:ident: $ty:ty,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq)]
        pub(super) struct $name { $($(#[$of_field])* $field: $ty,)* }

        impl $crate::filter::cells::Cells for $name {
            const WORDS: usize = [$(stringify!($field)),*].len();

            /// Reads the fields from the words at `at`.
            fn load(words: &weft_core::table::Scalars, at: usize) -> Self {
                let mut at = at..;
                $(let $field = {
                    let word = words.word(at.next().expect("it has no end"));
                    <$ty as $crate::filter::cells::Word>::from_word(word)
                };)*
                Self { $($field),* }
            }

            /// Writes the fields to the words at `at`.
            fn store(&self, words: &weft_core::table::Scalars, at: usize) {
                let mut at = at..;
                $({
                    let word = $crate::filter::cells::Word::to_word(&self.$field);
                    words.set_word(at.next().expect("it has no end"), word);
                })*
            }
        }
    };
}

pub(super) use cells;
