//! What elements say of a packet or a call to the queues behind them.

use crate::time::Time;
use core::num::{NonZeroI64, NonZeroU32};

/// What can be said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mark {
    /// Its class, a U32.
    Class,
    /// Bytes that are left of its message or flow, a U64.
    Remaining,
    /// When it is to be there, a TIMESTAMP.
    Deadline,
}

/// What has been said: all zeros where nobody has.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// One more than the class.
    class: Option<NonZeroU32>,
    /// One more than the bytes that are left.
    remaining: Option<NonZeroU32>,
    /// When it is to be there: a [`Time`], of which the first of all counts as the one behind it.
    due: Option<NonZeroI64>,
}

/// The greatest class, and the most bytes that are left: of more, so many.
const MARK_MAX: u32 = u32::MAX - 1;

impl Mark {
    /// All, each at its own number.
    pub const ALL: [Self; 3] = [Self::Class, Self::Remaining, Self::Deadline];

    /// As it is written.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Remaining => "remaining",
            Self::Deadline => "deadline",
        }
    }

    /// The one of a name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.name() == name)
    }
}

impl Marks {
    /// Nobody has said anything.
    pub const NONE: Self = Self { class: None, remaining: None, due: None };

    /// Takes in the word of a value.
    pub fn set(&mut self, mark: Mark, word: u64) {
        match mark {
            Mark::Class => self.class = one_more(word & u64::from(u32::MAX)),
            Mark::Remaining => self.remaining = one_more(word),
            Mark::Deadline => self.due = NonZeroI64::new(word as i64).or(NonZeroI64::new(1)),
        }
    }

    /// Takes in what others have said since.
    pub fn merge(&mut self, later: &Self) {
        self.class = later.class.or(self.class);
        self.remaining = later.remaining.or(self.remaining);
        self.due = later.due.or(self.due);
    }

    /// The class, if somebody has said it.
    pub fn class(&self) -> Option<u32> {
        self.class.map(|class| class.get() - 1)
    }

    /// The bytes that are left, if somebody has said so.
    pub fn remaining(&self) -> Option<u32> {
        self.remaining.map(|bytes| bytes.get() - 1)
    }

    /// When it is to be there, if somebody has said so.
    pub fn deadline(&self) -> Option<Time> {
        self.due.map(|due| Time(due.get()))
    }
}

fn one_more(word: u64) -> Option<NonZeroU32> {
    NonZeroU32::new(word.min(u64::from(MARK_MAX)) as u32 + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mark_above_max_saturates() {
        let mut marks = Marks::NONE;
        assert_eq!((marks.class(), marks.remaining(), marks.deadline()), (None, None, None));
        marks.set(Mark::Deadline, 0);
        marks.set(Mark::Remaining, 1 << 40);
        assert_eq!((marks.remaining(), marks.deadline()), (Some(MARK_MAX), Some(Time(1))));
    }

    /// If this fails, whoever takes back a class does not, where others have a say in between.
    #[test]
    fn later_mark_wins_even_if_zero() {
        let said = |all: &[(Mark, u64)]| {
            let mut marks = Marks::NONE;
            all.iter().for_each(|(mark, word)| marks.set(*mark, *word));
            marks
        };
        let mut marks = said(&[(Mark::Class, 1), (Mark::Remaining, 2), (Mark::Deadline, 3)]);
        marks.merge(&said(&[(Mark::Class, 0)]));
        assert_eq!((marks.class(), marks.remaining(), marks.deadline()), (Some(0), Some(2), Some(Time(3))));
        assert!(Mark::ALL.iter().all(|mark| Mark::named(mark.name()) == Some(*mark)));
        assert!(Mark::ALL.iter().enumerate().all(|(at, mark)| *mark as usize == at));
    }
}
