//! What workers of calls and of frames do alike with rows that have expired.

use weft_core::abi::State;
use weft_core::table::{Row, Table};
use weft_core::{Interval, Time};
use weft_ir::program::{ChainProgram, Realisation};

/// How often expired rows are swept, and looked for where there is an ON TIMEOUT.
pub(crate) const SWEEP_EVERY: Interval = Interval::from_millis(100);
/// Expired rows that are taken of a table at once.
const SWEEP_ROWS: usize = 512;
/// When ON TIMEOUT goes on with a table of which more rows have expired than are taken at once.
const EXPIRE_AGAIN: Interval = Interval::from_millis(1);

/// Sweeps the tables of a chain, [`SWEEP_ROWS`] of each. The first worker does so for all, the others for what is
/// theirs alone.
pub(crate) fn sweep(now: Time, chain: &ChainProgram, state: &State, is_first: bool) {
    for (decl, table) in chain.tables.iter().zip(&state.tables) {
        if is_first || decl.realisation == Realisation::PerWorker {
            table.sweep(now, SWEEP_ROWS);
        }
    }
}

/// Gives to `each` rows that have expired, [`SWEEP_ROWS`] at most, with their number; after which time to come back.
/// `rows` is empty before and after.
pub(crate) fn depart(
    table: &Table,
    now: Time,
    rows: &mut Vec<Row>,
    mut each: impl FnMut(u32, Row),
) -> Interval {
    let is_more = table.depart(now, SWEEP_ROWS, rows);
    (0..).zip(&*rows).for_each(|(nth, row)| each(nth, *row));
    table.give_back(rows);
    rows.clear();
    if is_more { EXPIRE_AGAIN } else { SWEEP_EVERY }
}
