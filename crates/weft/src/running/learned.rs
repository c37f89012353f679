//! Inserts the rows that chains send to tables of the controller: sinks `TO TABLE`.

use super::rows::publish;
use super::{Parts, lock};
use std::sync::Weak;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use weft_control::status::RowsRefused;
use weft_control::tables::{note_refused, sent_changes};
use weft_engine::sinks::TableRow;
use weft_io::clock;

/// The maximum number of rows that wait for the controller; further ones are dropped and counted.
pub(crate) const ROWS_WAITING_MAX: usize = 16_384;
/// The maximum number of rows in one change.
const ROWS_MAX: usize = 4096;
/// The pause between two changes, in which others may change the node.
const REST: Duration = Duration::from_millis(1);

/// Inserts rows until the node is gone.
pub(super) fn learn(rows: &Receiver<TableRow>, parts: &Weak<Parts>) {
    learn_rows(rows, |rows| {
        let Some(parts) = parts.upgrade() else { return false };
        let refused = apply_rows(&parts, rows);
        let mut all = lock(&parts.rows_refused);
        refused.into_iter().for_each(|(name, n)| note_refused(&mut all, name, n));
        true
    });
}

/// Calls `take` with all rows that have arrived, until the senders are gone or `take` returns false.
pub(crate) fn learn_rows(
    rows: &Receiver<TableRow>,
    mut take: impl FnMut(&mut dyn Iterator<Item = TableRow>) -> bool,
) {
    while let Ok(first) = rows.recv() {
        if !take(&mut std::iter::once(first).chain(rows.try_iter().take(ROWS_MAX - 1))) {
            return;
        }
        std::thread::sleep(REST);
    }
}

/// Changes each table once; returns the refused rows.
fn apply_rows(parts: &Parts, rows: impl Iterator<Item = TableRow>) -> RowsRefused {
    let mut control = lock(&parts.control);
    let (changes, mut all_refused) = sent_changes(&control.network, rows);
    for (name, changes) in changes {
        let n = changes.len() as u64;
        let (pending, mut refused) =
            control.compiler.store().change_where_possible(&name, changes, clock::now());
        let changes = pending.is_some();
        if pending.is_some_and(|pending| publish(parts, &mut control, pending).is_err()) {
            refused = n;
        }
        note_refused(&mut all_refused, name.to_string(), refused);
        if !changes {
            continue;
        }
        // A full channel is fine: the receiver will look again.
        let _ = parts.changed.try_send(());
    }
    all_refused
}
