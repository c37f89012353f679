//! Updates rows of tables that handlers also write.
//!
//! Only a worker that owns such a table, or that holds the lock of the row's stripe, may write it. So the workers
//! execute the updates themselves, between two batches ([`weft_io::Node::run_task`]): the first worker for a shared
//! table, each worker for its own part of a table PER WORKER. They check again that a row still meets the statement's
//! condition. No handler runs: `ON TIMEOUT` and `ON EVICT` are for rows that expire or are evicted.

use super::rows::ChangeFailure;
use super::{Parts, Refusal, lock, machine_refusal, node_fault};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use weft_control::tables::{
    RowUpdate, UpdateError, check_change, each_of, on_row, put_row, update_row, updated,
};
use weft_engine::rules::{Change, ChangeError, Counts, TableView, check_row};
use weft_io::{Task, clock};
use weft_lang::hir::Expr;

/// Rows that a worker changes between two batches: some ten microseconds.
const ROWS_AT_ONCE: usize = 64;

/// Updates or deletes the rows that meet a condition; returns how many.
pub(super) fn update_rows(
    parts: &Parts,
    view: &TableView,
    filter: Option<&Expr>,
    update: &RowUpdate,
) -> Result<Counts, ChangeFailure> {
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
        found.map_err(|error| ChangeFailure::Update(UpdateError::Fold(error)))?;
        if let Some(why) = unfit {
            return Err(ChangeFailure::Update(UpdateError::Change(ChangeError { at: 0, why })));
        }
        for keys in keys.chunks(ROWS_AT_ONCE) {
            let (keys, filter, update) = (keys.to_vec(), filter.cloned(), update.clone());
            let (n, table) = (Arc::clone(&n), Arc::clone(table));
            let task: Task = Arc::new(move |worker| {
                for key in keys.iter().filter(|_| worker == at) {
                    let now = clock::now();
                    let change = |row| update_row(&table, row, filter.as_ref(), &update, now);
                    n.fetch_add(u64::from(on_row(&table, key, now, change)), Relaxed);
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
pub(super) fn put(parts: &Parts, view: &TableView, changes: Vec<Change>) -> Result<Counts, ChangeFailure> {
    let table = &view.tables[0];
    for (at, change) in changes.iter().enumerate() {
        check_change(table, change, clock::now())
            .map_err(|why| ChangeFailure::Update(UpdateError::Change(ChangeError { at, why })))?;
    }
    let done = Arc::new(Mutex::new(Counts::default()));
    let fault = Arc::new(Mutex::new(None));
    for (nth, changes) in changes.chunks(ROWS_AT_ONCE).enumerate() {
        let (changes, table) = (changes.to_vec(), Arc::clone(table));
        let (counts, failed) = (Arc::clone(&done), Arc::clone(&fault));
        let task: Task = Arc::new(move |worker| {
            let mut counts = lock(&counts);
            for (at, change) in changes.iter().enumerate().filter(|_| worker == 0) {
                if let Err(why) = put_row(&table, change, clock::now(), &mut counts) {
                    *lock(&failed) = Some(ChangeError { at: nth * ROWS_AT_ONCE + at, why });
                    return;
                }
            }
        });
        run(parts, &task)?;
        if let Some(error) = lock(&fault).take() {
            return Err(ChangeFailure::Update(UpdateError::Partial(error)));
        }
    }
    let counts = *lock(&done);
    Ok(counts)
}

fn run(parts: &Parts, task: &Task) -> Result<(), ChangeFailure> {
    let node = lock(&parts.node);
    let done = node.as_ref().ok_or(ChangeFailure::Stopped(Refusal::Stopping))?.run_task(task);
    done.map_err(|error| ChangeFailure::Stopped(Refusal::Refused(machine_refusal(&node_fault(&error)))))
}
