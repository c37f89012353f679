//! What workers of calls and of frames do alike with rows that have expired or were evicted.

use crate::timers::TICK_NS;
use weft_core::abi::State;
use weft_core::table::{RemovalReason, Row, Table};
use weft_core::{Interval, Time};
use weft_ir::program::{ChainProgram, Realisation};

/// How often expired rows are swept, and looked for where there is an ON TIMEOUT.
pub(crate) const SWEEP_EVERY: Interval = Interval::from_millis(100);
/// How often rows that were evicted are looked for where there is an ON EVICT: they wait in places of which there are
/// few.
const EVICTED_EVERY: Interval = Interval::from_millis(10);
/// Expired rows that are taken of a table at once.
const SWEEP_ROWS: usize = 512;
/// When ON TIMEOUT or ON EVICT goes on with a table which more rows have left than are taken at once.
const EXPIRE_AGAIN: Interval = Interval::from_millis(1);

/// Sweeps the tables of a chain, [`SWEEP_ROWS`] of each. The first worker does so for all, the others for what is
/// theirs alone; from tables of the controller none takes a row ([`crate::rules`]).
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

/// After which time rows of a table that have left it so are looked for.
pub(crate) fn departs_every(why: RemovalReason) -> Interval {
    match why {
        RemovalReason::Expired => SWEEP_EVERY,
        RemovalReason::Evicted => EVICTED_EVERY,
    }
}

/// After which time they are looked for again; `is_more`: more have left than are taken at once.
pub(crate) fn departs_again(why: RemovalReason, is_more: bool) -> Interval {
    if is_more { EXPIRE_AGAIN } else { departs_every(why) }
}

/// When a look at a table that is due at `look`, and again and again from then on, first finds a row; None: not before
/// a row is inserted or evicted.
pub(crate) fn next_departure((table, why): (&Table, RemovalReason), look: Time) -> Option<Time> {
    let at = table.next_removal(why)?;
    let missed = at.0.saturating_sub(look.0).max(0) as u64;
    Some(Time(look.0.saturating_add_unsigned(missed.next_multiple_of(looks_every(why)))))
}

/// The last of such looks that is due at `now`. However late a look is, it finds what it would have found at its time.
pub(crate) fn last_look(why: RemovalReason, look: Time, now: Time) -> Time {
    let late = now.0.saturating_sub(look.0).max(0) as u64;
    Time(look.0.saturating_add_unsigned(late - late % looks_every(why)))
}

/// Nanoseconds from one look to the next: a timer goes off in the tick behind its time.
fn looks_every(why: RemovalReason) -> u64 {
    (departs_every(why).as_nanos() + TICK_NS) as u64
}

/// Gives to `each` rows that have left the table so, [`SWEEP_ROWS`] at most, with their number; whether there may be
/// more. `rows` is empty before and after.
pub(crate) fn depart(
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
