//! Inserts the rows that chains send to tables of the controller: sinks `TO TABLE`.

use super::rows::{find, publish};
use super::{Parts, lock};
use std::collections::BTreeMap;
use std::sync::Weak;
use std::sync::mpsc::Receiver;
use std::time::Duration;
use weft_core::Value;
use weft_engine::rules::{Change, TableName};
use weft_engine::sinks::TableRow;
use weft_io::clock;
use weft_lang::check::fold::fold;
use weft_lang::check::table::broken;
use weft_lang::hir::{Network, TableColumn};

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

/// Rows that tables refused, by the name of the table.
pub(crate) type RowsRefused = BTreeMap<String, u64>;

/// Changes each table once; returns the refused rows.
fn apply_rows(parts: &Parts, rows: impl Iterator<Item = TableRow>) -> RowsRefused {
    let mut control = lock(&parts.control);
    let (changes, mut all_refused) = changes_of(&control.network, rows);
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

/// Counts rows that a table refused, if there are any.
pub(crate) fn note_refused(all: &mut RowsRefused, name: String, n: u64) {
    if n > 0 {
        *all.entry(name).or_default() += n;
    }
}

/// The changes for rows, by table, and the rows that do not fit the program.
pub(crate) fn changes_of(
    network: &Network,
    rows: impl Iterator<Item = TableRow>,
) -> (BTreeMap<TableName, Vec<Change>>, RowsRefused) {
    let (mut changes, mut refused) = (BTreeMap::<TableName, Vec<Change>>::new(), RowsRefused::new());
    for row in rows {
        match change_of(network, &row) {
            Some((name, change)) => changes.entry(name).or_default().push(change),
            None => note_refused(&mut refused, path_of(&row), 1),
        }
    }
    (changes, refused)
}

/// The full name of a row's table.
fn path_of(row: &TableRow) -> String {
    match row.owner.as_str() {
        "" => row.table.clone(),
        owner => format!("{}.{owner}.{}", row.chain, row.table),
    }
}

/// The change for a row; None if the program has no such table, the table has other columns, or the row breaks a CHECK.
fn change_of(network: &Network, row: &TableRow) -> Option<(TableName, Change)> {
    let (name, table) = find(network, &path_of(row)).ok()?;
    let n = if row.deletes { table.n_keys } else { table.columns.len() };
    let value = |column: &TableColumn| match row.values.iter().find(|(name, _)| *name == column.name) {
        Some((_, value)) => Some(value.clone()),
        None => fold(column.default.as_ref()?, &[]).ok(),
    };
    let values: Vec<Value> = table.columns[..n].iter().map(value).collect::<Option<_>>()?;
    if row.deletes {
        return Some((name, Change::Remove(values)));
    }
    broken(&table, &values).is_none().then_some((name, Change::Put(values)))
}
