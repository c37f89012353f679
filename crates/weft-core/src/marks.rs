//! Marks: hints that elements attach to a packet or a call, for the queues behind them.

use crate::time::Time;
use core::num::{NonZeroI64, NonZeroU32};

/// A kind of mark.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Mark {
    /// The traffic class, a U32.
    Class,
    /// The bytes that remain of the message or flow, a U64.
    Remaining,
    /// The deadline of delivery, a TIMESTAMP.
    Deadline,
}

/// The marks of one packet or call; all zeros if there are none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    /// The class plus one.
    class: Option<NonZeroU32>,
    /// The remaining bytes plus one.
    remaining: Option<NonZeroU32>,
    /// The deadline as a [`Time`]. Time 0 is stored as 1.
    due: Option<NonZeroI64>,
}

/// The greatest class and the greatest number of remaining bytes; greater values saturate.
const MARK_MAX: u32 = u32::MAX - 1;

impl Mark {
    /// All kinds, each at the index of its discriminant.
    pub const ALL: [Self; 3] = [Self::Class, Self::Remaining, Self::Deadline];

    /// The name in a program.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Class => "class",
            Self::Remaining => "remaining",
            Self::Deadline => "deadline",
        }
    }

    /// The kind with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mark| mark.name() == name)
    }
}

impl Marks {
    /// No marks.
    pub const NONE: Self = Self { class: None, remaining: None, due: None };

    /// Sets a mark to the word of a value.
    pub fn set(&mut self, mark: Mark, word: u64) {
        match mark {
            Mark::Class => self.class = one_more(word & u64::from(u32::MAX)),
            Mark::Remaining => self.remaining = one_more(word),
            Mark::Deadline => self.due = NonZeroI64::new(word as i64).or(NonZeroI64::new(1)),
        }
    }

    /// Adds later marks; a later mark of the same kind wins.
    pub fn merge(&mut self, later: &Self) {
        self.class = later.class.or(self.class);
        self.remaining = later.remaining.or(self.remaining);
        self.due = later.due.or(self.due);
    }

    /// The class, if it is marked.
    pub fn class(&self) -> Option<u32> {
        self.class.map(|class| class.get() - 1)
    }

    /// The remaining bytes, if they are marked.
    pub fn remaining(&self) -> Option<u32> {
        self.remaining.map(|bytes| bytes.get() - 1)
    }

    /// The deadline, if it is marked.
    pub fn deadline(&self) -> Option<Time> {
        self.due.map(|due| Time(due.get()))
    }
}

/// Encodes a value so that 0 stands for no mark: one more than the value, limited to [`MARK_MAX`].
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

    /// A later element could not reset a class that an earlier element had marked.
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
