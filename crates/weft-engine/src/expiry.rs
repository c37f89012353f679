//! Finds rows that have expired or were evicted, for the timeouts of the engines for calls and for packets.

use crate::timers::TICK_NS;
use weft_core::abi::State;
use weft_core::table::{RemovalReason, Row, Table};
use weft_core::{Interval, Time};
use weft_ir::program::{ChainProgram, Realisation};

/// The period of sweeps, and of ON TIMEOUT checks.
pub(crate) const SWEEP_EVERY: Interval = Interval::from_millis(100);
/// The period of ON EVICT checks: evicted rows occupy reserved slots, of which there are few.
const EVICTED_EVERY: Interval = Interval::from_millis(10);
/// The most rows taken from a table at once.
const SWEEP_ROWS: usize = 512;
/// When ON TIMEOUT or ON EVICT continues, if more rows have left a table than are taken at once.
const EXPIRE_AGAIN: Interval = Interval::from_millis(1);

/// Sweeps the tables of a chain, [`SWEEP_ROWS`] rows of each. The first worker sweeps shared tables, each worker its
/// own. Tables of the controller are not swept ([`crate::rules`]).
pub(crate) fn sweep(now: Time, chain: &ChainProgram, state: &State, is_first: bool) {
    for (decl, table) in chain.tables.iter().zip(&state.tables) {
        let is_swept = match decl.realisation {
            Realisation::Striped | Realisation::Locked => is_first,
            Realisation::PerWorker => true,
            Realisation::Replicated => false,
        };
        if is_swept {
            table.sweep(now, SWEEP_ROWS);
        }
    }
}

/// Returns the period of checks for rows that have left a table for this reason.
pub(crate) fn removal_interval(why: RemovalReason) -> Interval {
    match why {
        RemovalReason::Expired => SWEEP_EVERY,
        RemovalReason::Evicted => EVICTED_EVERY,
    }
}

/// The time until the next check; `is_more`: more rows have left than are taken at once.
pub(crate) fn next_removal_interval(why: RemovalReason, is_more: bool) -> Interval {
    if is_more { EXPIRE_AGAIN } else { removal_interval(why) }
}

/// Returns when a periodic check, which is next due at `look`, first finds a row. None: not before a row is inserted
/// or evicted.
pub(crate) fn next_removal((table, why): (&Table, RemovalReason), look: Time) -> Option<Time> {
    let at = table.next_removal(why)?;
    let missed = at.0.saturating_sub(look.0).max(0) as u64;
    Some(Time(look.0.saturating_add_unsigned(missed.next_multiple_of(check_period_ns(why)))))
}

/// The last of these checks that is due at `now`. A late check finds the same rows as one in time.
pub(crate) fn last_check(why: RemovalReason, look: Time, now: Time) -> Time {
    let late = now.0.saturating_sub(look.0).max(0) as u64;
    Time(look.0.saturating_add_unsigned(late - late % check_period_ns(why)))
}

/// Nanoseconds between two checks: a timer fires in the tick after its time.
fn check_period_ns(why: RemovalReason) -> u64 {
    (removal_interval(why).as_nanos() + TICK_NS) as u64
}

/// Passes the rows that have left the table to `each`, at most [`SWEEP_ROWS`], with their index. Returns whether there
/// may be more. `rows` is empty before and after.
pub(crate) fn run_removed_rows(
    (table, why): (&Table, RemovalReason),
    now: Time,
    rows: &mut Vec<Row>,
    mut each: impl FnMut(u32, Row),
) -> bool {
    let is_more = table.take_removed(why, now, SWEEP_ROWS, rows);
    (0..).zip(&*rows).for_each(|(nth, row)| each(nth, *row));
    table.free_removed(rows);
    rows.clear();
    is_more
}
