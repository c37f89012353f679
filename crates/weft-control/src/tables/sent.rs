//! Rows that chains send to tables of the controller: sinks `TO TABLE`.

use super::rows::find;
use crate::status::RowsRefused;
use std::collections::BTreeMap;
use weft_core::Value;
use weft_engine::rules::{Change, TableName};
use weft_engine::sinks::TableRow;
use weft_lang::check::fold::fold;
use weft_lang::check::table::broken;
use weft_lang::hir::{Network, TableColumn};

/// Counts rows that a table refused, if there are any.
pub fn note_refused(all: &mut RowsRefused, name: String, n: u64) {
    if n > 0 {
        *all.entry(name).or_default() += n;
    }
}

/// The changes for rows, by table, and the rows that do not fit the program.
pub fn sent_changes(
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
