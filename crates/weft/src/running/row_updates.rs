//! Updates rows of tables that handlers also write.
//!
//! Only a worker that owns such a table, or that holds the lock of the row's stripe, may write it. So the workers
//! execute the updates themselves, between two batches ([`weft_io::Node::run_task`]): the first worker for a shared
//! table, each worker for its own part of a table PER WORKER. They check again that a row still meets the statement's
//! condition. No handler runs: `ON TIMEOUT` and `ON EVICT` are for rows that expire or are evicted.

use super::answer::{each_of, meets};
use super::rows::UpdateError;
use super::{Parts, Refusal, lock, machine_refusal, node_fault};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use weft_core::table::{Insert, Row, Table};
use weft_core::{Time, Value};
use weft_engine::rules::{Change, ChangeError, ChangeErrorKind, Counts, TableView, check_row};
use weft_io::{Task, clock};
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::table_statement::StatementKind;
use weft_lang::hir::Expr;

/// Rows that a worker changes between two batches: some ten microseconds.
const ROWS_AT_ONCE: usize = 64;

/// The change to the rows that a statement selects.
#[derive(Clone)]
pub(super) enum RowUpdate {
    /// Deletes them.
    Delete,
    /// Sets columns to the values of expressions.
    Set(Vec<(usize, Expr)>),
}

impl RowUpdate {
    /// The update of a statement, with its condition; None for other statements.
    pub(super) fn of(statement: &StatementKind) -> Option<(Option<&Expr>, Self)> {
        match statement {
            StatementKind::Update { set, filter } => Some((filter.as_ref(), Self::Set(set.clone()))),
            StatementKind::Delete { filter } => Some((filter.as_ref(), Self::Delete)),
            _ => None,
        }
    }
}

/// Updates or deletes the rows that meet a condition; returns how many.
pub(super) fn update_rows(
    parts: &Parts,
    view: &TableView,
    filter: Option<&Expr>,
    update: &RowUpdate,
) -> Result<Counts, UpdateError> {
    let n = Arc::new(AtomicU64::new(0));
    for (at, table) in view.tables.iter().enumerate() {
        let n_keys = table.spec().key.len();
        let mut keys = Vec::new();
        // Find all errors before changing anything.
        let mut unfit = None;
        let now = clock::now();
        let found = each_of(table, filter, (now, now), |row| {
            if let RowUpdate::Set(set) = update {
                unfit = unfit.take().or(check_row(table, &updated(row, set, now)?).err());
            }
            keys.push(row[..n_keys].to_vec());
            Ok(unfit.is_none())
        });
        found.map_err(UpdateError::Fold)?;
        if let Some(why) = unfit {
            return Err(UpdateError::Change(ChangeError { at: 0, why }));
        }
        for keys in keys.chunks(ROWS_AT_ONCE) {
            let (keys, filter, update) = (keys.to_vec(), filter.cloned(), update.clone());
            let (n, table) = (Arc::clone(&n), Arc::clone(table));
            let task: Task = Arc::new(move |worker| {
                for key in keys.iter().filter(|_| worker == at) {
                    let change = |row, now| update_row(&table, row, filter.as_ref(), &update, now);
                    n.fetch_add(u64::from(on_row(&table, key, change)), Relaxed);
                }
            });
            run(parts, &task)?;
        }
    }
    let n = n.load(Relaxed);
    Ok(match update {
        RowUpdate::Delete => Counts { deleted: n, ..Counts::default() },
        RowUpdate::Set(_) => Counts { updated: n, ..Counts::default() },
    })
}

/// Inserts rows into a table of all workers, one after the other. If a row finds no room, the earlier ones stay.
pub(super) fn put(parts: &Parts, view: &TableView, changes: Vec<Change>) -> Result<Counts, UpdateError> {
    let table = &view.tables[0];
    for (at, change) in changes.iter().enumerate() {
        check_change(table, change).map_err(|why| UpdateError::Change(ChangeError { at, why }))?;
    }
    let done = Arc::new(Mutex::new(Counts::default()));
    let fault = Arc::new(Mutex::new(None));
    for (nth, changes) in changes.chunks(ROWS_AT_ONCE).enumerate() {
        let (changes, table) = (changes.to_vec(), Arc::clone(table));
        let (counts, failed) = (Arc::clone(&done), Arc::clone(&fault));
        let task: Task = Arc::new(move |worker| {
            let mut counts = lock(&counts);
            for (at, change) in changes.iter().enumerate().filter(|_| worker == 0) {
                if let Err(why) = put_row(&table, change, &mut counts) {
                    *lock(&failed) = Some(ChangeError { at: nth * ROWS_AT_ONCE + at, why });
                    return;
                }
            }
        });
        run(parts, &task)?;
        if let Some(error) = lock(&fault).take() {
            return Err(UpdateError::Partial(error));
        }
    }
    let counts = *lock(&done);
    Ok(counts)
}

/// Checks a row against its table. An inserted row must not exist.
fn check_change(table: &Table, change: &Change) -> Result<(), ChangeErrorKind> {
    let (Change::Insert(values) | Change::Put(values)) = change else { return Ok(()) };
    check_row(table, values)?;
    let is_new = matches!(change, Change::Insert(_));
    match is_new && table.find_values(&values[..table.spec().key.len()], clock::now()).is_some() {
        true => Err(ChangeErrorKind::Exists),
        false => Ok(()),
    }
}

/// The result of an UPDATE on a row.
pub(super) fn updated(row: &[Value], set: &[(usize, Expr)], now: Time) -> Result<Vec<Value>, FoldError> {
    let mut new = row.to_vec();
    for (at, value) in set {
        new[*at] = fold_at(value, row, now)?;
    }
    Ok(new)
}

/// Updates a row if it still meets the condition; returns whether it did.
fn update_row(table: &Table, row: Row, filter: Option<&Expr>, update: &RowUpdate, now: Time) -> bool {
    if row.is_none() {
        return false;
    }
    let values = table.values(row);
    if !meets(&values, filter, now).unwrap_or(false) {
        return false;
    }
    match update {
        RowUpdate::Delete => table.remove(row),
        RowUpdate::Set(set) => {
            let Ok(new) = updated(&values, set, now) else { return false };
            if check_row(table, &new).is_err() {
                return false;
            }
            table.set_values(row, &new);
            table.touch(row, now);
        }
    }
    true
}

/// Inserts, replaces or removes a row, and counts it.
fn put_row(table: &Table, change: &Change, counts: &mut Counts) -> Result<(), ChangeErrorKind> {
    let (Change::Insert(values) | Change::Put(values) | Change::Remove(values)) = change;
    let key = &values[..table.spec().key.len()];
    on_row(table, key, |row, now| match change {
        Change::Insert(_) if row.is_some() => Err(ChangeErrorKind::Exists),
        Change::Remove(_) => {
            counts.deleted += u64::from(row.is_some());
            table.remove(row);
            Ok(())
        }
        _ if row.is_some() => {
            table.set_values(row, values);
            table.touch(row, now);
            counts.updated += 1;
            Ok(())
        }
        _ => match table.insert_row(values, now) {
            Insert::New(_) => {
                counts.inserted += 1;
                Ok(())
            }
            Insert::Full | Insert::TooLong => Err(ChangeErrorKind::Full { max: table.max_rows() }),
        },
    })
}

/// Calls `change` with the row of a key, or with none, under the lock of the key.
fn on_row<T>(table: &Table, key: &[Value], change: impl FnOnce(Row, Time) -> T) -> T {
    let (hash, now) = (table.hash_values(key), clock::now());
    table.lock(hash);
    let done = change(table.find_values(key, now), now);
    table.unlock(hash);
    done
}

fn run(parts: &Parts, task: &Task) -> Result<(), UpdateError> {
    let node = lock(&parts.node);
    let done = node.as_ref().ok_or(UpdateError::Refused(Refusal::Stopping))?.run_task(task);
    done.map_err(|error| UpdateError::Refused(Refusal::Refused(machine_refusal(&node_fault(&error)))))
}
