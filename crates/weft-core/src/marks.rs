//! What elements say of a packet or a call to the queues behind them.

use crate::time::Time;
use core::num::NonZeroI64;

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
    /// The class, 0 from the start.
    pub class: u32,
    /// Bytes that are left, 0 from the start; `u32::MAX` for that many and more.
    pub remaining: u32,
    /// When it is to be there: a [`Time`], of which the first of all counts as the one behind it.
    due: Option<NonZeroI64>,
}

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
    pub const NONE: Self = Self { class: 0, remaining: 0, due: None };

    /// Takes in the word of a value.
    pub fn say(&mut self, mark: Mark, word: u64) {
        match mark {
            Mark::Class => self.class = word as u32,
            Mark::Remaining => self.remaining = u32::try_from(word).unwrap_or(u32::MAX),
            Mark::Deadline => self.due = NonZeroI64::new(word as i64).or(NonZeroI64::new(1)),
        }
    }

    /// Takes in what others have said since.
    pub fn join(&mut self, later: &Self) {
        if later.class != Self::NONE.class {
            self.class = later.class;
        }
        if later.remaining != Self::NONE.remaining {
            self.remaining = later.remaining;
        }
        self.due = later.due.or(self.due);
    }

    /// When it is to be there, if somebody has said so.
    pub fn deadline(&self) -> Option<Time> {
        self.due.map(|due| Time(due.get()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_fit_is_the_greatest() {
        let mut marks = Marks::NONE;
        assert_eq!(marks.deadline(), None);
        marks.say(Mark::Deadline, 1500);
        marks.say(Mark::Remaining, 1 << 32);
        assert_eq!((marks.deadline(), marks.remaining), (Some(Time(1500)), u32::MAX));
    }

    #[test]
    fn what_is_said_later_wins() {
        let mut marks = Marks { class: 1, remaining: 2, due: NonZeroI64::new(3) };
        marks.join(&Marks { class: 4, ..Marks::NONE });
        assert_eq!(marks, Marks { class: 4, remaining: 2, due: NonZeroI64::new(3) });
        marks.say(Mark::Deadline, 0);
        assert_eq!(marks.deadline(), Some(Time(1)));
        assert!(Mark::ALL.iter().all(|mark| Mark::named(mark.name()) == Some(*mark)));
        assert!(Mark::ALL.iter().enumerate().all(|(at, mark)| *mark as usize == at));
    }
}
