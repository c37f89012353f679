//! ORDER PER key: calls with the same key run one after the other, in order of arrival, across all workers.
//!
//! Each call takes a number; the row of its key has the number whose turn it is. If there are more keys than rows, a
//! row may be evicted: then all calls of its queue may run. They lose their order, but are not lost.

use super::state::with_row;
use std::sync::Arc;
use weft_core::Time;
use weft_core::table::{ColumnRef, Insert, Row, Table};

/// The queues of one filter.
#[derive(Clone, Debug)]
pub(super) struct OrderQueues {
    rows: Arc<Table>,
    /// The next number to give out.
    next: ColumnRef,
    /// The number whose turn it is.
    serving: ColumnRef,
    /// When the row was created.
    born: ColumnRef,
}

/// A position in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    key: u64,
    number: u64,
    born: u64,
}

impl OrderQueues {
    pub(super) const COLUMNS: [&'static str; 3] = ["next", "serving", "born"];

    /// Creates the view of the table of queues.
    pub(super) fn new(rows: Arc<Table>) -> Self {
        let [next, serving, born] =
            Self::COLUMNS.map(|name| rows.column(name).expect("the table was made with these columns"));
        Self { rows, next, serving, born }
    }

    /// Appends a call to the queue of a key, and returns its ticket. Without room for the key, the call may run at
    /// once.
    pub(super) fn join(&self, now: Time, key: u64) -> Ticket {
        self.with(now, key, |row| {
            let row = row.or_else(|| self.insert(now, key));
            // Without a row there is no queue, and the call may run.
            let Some(row) = row else { return Ticket { key, number: 0, born: u64::MAX } };
            let number = self.rows.word(row, self.next);
            self.rows.set_word(row, self.next, number + 1);
            self.rows.touch(row, now);
            Ticket { key, number, born: self.rows.word(row, self.born) }
        })
    }

    /// Whether the queue of a key is empty.
    pub(super) fn is_free(&self, now: Time, key: u64) -> bool {
        self.with(now, key, |row| {
            row.is_none_or(|row| self.rows.word(row, self.serving) >= self.rows.word(row, self.next))
        })
    }

    /// Whether the call of a ticket is first in its queue.
    pub(super) fn is_up(&self, now: Time, ticket: Ticket) -> bool {
        self.with(now, ticket.key, |row| {
            self.own(row, ticket).is_none_or(|row| self.rows.word(row, self.serving) >= ticket.number)
        })
    }

    /// Removes the call of a ticket, which is over; the next call of the key is first then.
    pub(super) fn end_turn(&self, now: Time, ticket: Ticket) {
        self.with(now, ticket.key, |row| {
            if let Some(row) = self.own(row, ticket) {
                self.rows.set_word(row, self.serving, ticket.number + 1);
                self.rows.touch(row, now);
            }
        });
    }

    /// The row, if it is the one that issued the ticket.
    fn own(&self, row: Option<Row>, ticket: Ticket) -> Option<Row> {
        row.filter(|row| self.rows.word(*row, self.born) == ticket.born)
    }

    /// Inserts a row for a key. None if the table has no room.
    fn insert(&self, now: Time, key: u64) -> Option<Row> {
        let Insert::New(row) = self.rows.insert_int(key, now) else { return None };
        self.rows.set_word(row, self.born, now.0 as u64);
        Some(row)
    }

    fn with<R>(&self, now: Time, key: u64, work: impl FnOnce(Option<Row>) -> R) -> R {
        with_row(&self.rows, self.rows.hash_int(key), || self.rows.find_int(key, now), work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::state::line_spec;
    use weft_core::hash::HashKey;

    #[test]
    fn order_queues_are_per_key() {
        // If it failed, calls of one key would take effect in another order than they were made.
        let orders = OrderQueues::new(Arc::new(Table::new(line_spec(8, false), HashKey::from_seed(1))));
        let now = Time(5);
        let (first, second, other) = (orders.join(now, 1), orders.join(now, 1), orders.join(now, 2));
        assert!(orders.is_up(now, first) && orders.is_up(now, other));
        assert!(!orders.is_up(now, second));
        orders.end_turn(now, first);
        assert!(orders.is_up(now, second));
    }

    #[test]
    fn evicted_order_queue_frees_its_calls() {
        // Otherwise it would wait for a number that never comes up.
        let orders = OrderQueues::new(Arc::new(Table::new(line_spec(1, false), HashKey::from_seed(1))));
        let (_, second) = (orders.join(Time(1), 1), orders.join(Time(1), 1));
        for key in 2..5000 {
            orders.join(Time(key as i64), key);
        }
        assert!(orders.is_up(Time(9000), second));
        let anew = orders.join(Time(9000), 1);
        assert!(orders.is_up(Time(9000), anew) && orders.is_up(Time(9000), second));
        orders.end_turn(Time(9001), second);
        assert!(!orders.is_up(Time(9001), orders.join(Time(9001), 1)));
    }
}
