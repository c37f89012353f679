//! Inserts the rows that chains send to tables of the controller: sinks `TO TABLE`.

use super::rows::publish;
use super::{Parts, lock};
use std::sync::Weak;
use std::sync::mpsc::Receiver;
use weft_control::status::RowsRefused;
use weft_control::tables::{note_refused, sent_changes};
use weft_engine::sinks::TableRow;
use weft_io::clock;
use weft_io::writer::receive_rows;

/// Inserts rows until the node is gone.
pub(super) fn learn(rows: &Receiver<TableRow>, parts: &Weak<Parts>) {
    receive_rows(rows, |rows| {
        let Some(parts) = parts.upgrade() else { return false };
        let refused = apply_rows(&parts, rows);
        let mut all = lock(&parts.rows_refused);
        refused.into_iter().for_each(|(name, n)| note_refused(&mut all, name, n));
        true
    });
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
