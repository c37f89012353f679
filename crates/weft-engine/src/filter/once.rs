//! RELIABILITY AT LEAST ONCE: calls with the same id are one call, across all workers.
//!
//! A row per id has the state of its call: under way, or answered, with the answer. A second call with the id waits for
//! the first, or gets the same answer.

use super::state::with_row;
use std::sync::Arc;
use weft_core::Time;
use weft_core::filter::{ID_BYTES_MAX, INTERVAL_MAX};
use weft_core::table::{ColumnRef, Insert, Row, Table};

/// The known ids of calls.
#[derive(Clone, Debug)]
pub(super) struct CallIds {
    rows: Arc<Table>,
    state: ColumnRef,
    answer: ColumnRef,
}

/// The status of an id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum IdStatus {
    /// Unknown; it is under way from now on.
    First,
    /// Another call with this id is under way.
    UnderWay,
    /// It was answered with this.
    Answered(Vec<u8>),
    /// It was answered, but the answer was too long to keep.
    AnsweredAtLength,
    /// Unknown, and too many ids are under way.
    TooMany,
    /// Longer than [`weft_core::filter::ID_BYTES_MAX`].
    TooLong,
}

const UNDER_WAY: u64 = 0;
const ANSWERED: u64 = 1;
const ANSWERED_AT_LENGTH: u64 = 2;

impl CallIds {
    pub(super) const COLUMNS: [&'static str; 2] = ["state", "answer"];

    /// Creates the view of the table of call ids.
    pub(super) fn new(rows: Arc<Table>) -> Self {
        let [state, answer] =
            Self::COLUMNS.map(|name| rows.column(name).expect("the table was made with these columns"));
        Self { rows, state, answer }
    }

    /// Looks up the id of a new call. For an unknown id, `may_begin` decides whether it may be under way.
    pub(super) fn look_up(&self, now: Time, id: &[u8], may_begin: impl FnOnce() -> bool) -> IdStatus {
        self.with(now, id, |row| {
            let Some(row) = row else {
                if id.len() > ID_BYTES_MAX as usize {
                    return IdStatus::TooLong;
                }
                if !may_begin() {
                    return IdStatus::TooMany;
                }
                return match self.rows.insert_bytes(id, now) {
                    Insert::New(row) => {
                        self.rows.set_word(row, self.state, UNDER_WAY);
                        // The window starts with the answer: a longer call stays under way.
                        self.rows.touch(row, now + INTERVAL_MAX);
                        IdStatus::First
                    }
                    // No row can be evicted, so the id is not kept; the call itself may still run.
                    Insert::Full | Insert::TooLong => IdStatus::First,
                };
            };
            match self.rows.word(row, self.state) {
                UNDER_WAY => IdStatus::UnderWay,
                ANSWERED => {
                    let mut answer = Vec::new();
                    self.rows.bytes_into(row, self.answer, &mut answer);
                    IdStatus::Answered(answer)
                }
                _ => IdStatus::AnsweredAtLength,
            }
        })
    }

    /// Whether a call that waits for another one with its id may go on.
    pub(super) fn is_settled(&self, now: Time, id: &[u8]) -> bool {
        self.with(now, id, |row| row.is_none_or(|row| self.rows.word(row, self.state) != UNDER_WAY))
    }

    /// Keeps the answer of the call with an id, for later calls with the same id.
    pub(super) fn keep_answer(&self, now: Time, id: &[u8], answer: &[u8]) {
        self.with(now, id, |row| {
            let Some(row) = row else { return };
            let fits = self.rows.set_bytes(row, self.answer, answer);
            self.rows.set_word(row, self.state, if fits { ANSWERED } else { ANSWERED_AT_LENGTH });
            self.rows.touch(row, now);
        });
    }

    /// Forgets an id whose call had no effect: the next call with the id is the first again.
    pub(super) fn forget(&self, now: Time, id: &[u8]) {
        self.with(now, id, |row| {
            if let Some(row) = row.filter(|row| self.rows.word(*row, self.state) == UNDER_WAY) {
                self.rows.remove(row);
            }
        });
    }

    fn with<R>(&self, now: Time, id: &[u8], work: impl FnOnce(Option<Row>) -> R) -> R {
        with_row(&self.rows, self.rows.hash_bytes(id), || self.rows.find_bytes(id, now), work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::state::once_spec;
    use weft_core::Interval;
    use weft_core::hash::HashKey;

    #[test]
    fn id_is_remembered_for_its_window() {
        // If it failed, a repeated call would charge a card twice.
        let window = Interval::from_secs(10);
        let known =
            CallIds::new(Arc::new(Table::new(once_spec(window, 100, 8, false), HashKey::from_seed(1))));
        let after = |secs| Time(0) + Interval::from_secs(secs);
        assert_eq!(known.look_up(after(0), b"a", || true), IdStatus::First);
        assert_eq!(known.look_up(after(1), b"a", || true), IdStatus::UnderWay);
        assert!(!known.is_settled(after(1), b"a") && known.is_settled(after(1), b"b"));
        known.keep_answer(after(2), b"a", b"done");
        assert_eq!(known.look_up(after(11), b"a", || true), IdStatus::Answered(b"done".to_vec()));
        assert_eq!(known.look_up(after(12), b"a", || true), IdStatus::First);
        known.keep_answer(after(12), b"a", b"far too long");
        assert_eq!(known.look_up(after(13), b"a", || true), IdStatus::AnsweredAtLength);
        assert_eq!(known.look_up(after(13), &[0; 200], || true), IdStatus::TooLong);
    }

    #[test]
    fn call_may_outlast_the_window() {
        // If it failed, a call after the window would be the first again, and be made twice.
        let window = Interval::from_millis(1);
        let known =
            CallIds::new(Arc::new(Table::new(once_spec(window, 100, 8, false), HashKey::from_seed(1))));
        let after = |millis| Time(0) + Interval::from_millis(millis);
        assert_eq!(known.look_up(after(0), b"a", || true), IdStatus::First);
        assert_eq!(known.look_up(after(500), b"a", || true), IdStatus::UnderWay);
        assert!(!known.is_settled(after(500), b"a"));
        known.keep_answer(after(500), b"a", b"done");
        assert!(known.is_settled(after(500), b"a"));
        assert_eq!(known.look_up(after(500), b"a", || true), IdStatus::Answered(b"done".to_vec()));
        assert_eq!(known.look_up(after(501), b"a", || true), IdStatus::First);
    }

    #[test]
    fn failed_call_may_be_repeated() {
        // Otherwise it would be refused as done although nothing was done.
        let known = CallIds::new(Arc::new(Table::new(
            once_spec(Interval::from_secs(1), 4, 8, false),
            HashKey::from_seed(1),
        )));
        assert_eq!(known.look_up(Time(0), b"a", || true), IdStatus::First);
        known.forget(Time(1), b"a");
        assert_eq!(known.look_up(Time(2), b"a", || true), IdStatus::First);
        known.keep_answer(Time(3), b"a", b"x");
        known.forget(Time(4), b"a");
        assert_eq!(known.look_up(Time(5), b"a", || true), IdStatus::Answered(b"x".to_vec()));
    }
}
