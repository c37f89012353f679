//! Queries and changes the tables of a running node, and rebuilds compiled rules in the background.

use super::row_updates::{put, update_rows};
use super::{
    Control, Parts, Refusal, Running, lock, machine_refusal, node_fault, refused_by, refused_in_words,
};
use crate::job;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weft_api::{AtFault, QueryResult, Refused, RowsRequest, Status, TableStatus};
use weft_control::alter::QueryKind;
use weft_control::tables::{
    REBUILD_EVERY, RowSource, RowUpdate, UpdateError, answer, check_rows, each_row, find, named,
    requested_changes, row_error, row_fault, row_source, system, updated, with_done,
};
use weft_core::Value;
use weft_engine::rules::{Change, Counts, PendingChange, TableName, TableView};
use weft_io::clock;
use weft_lang::ast::Filler;
use weft_lang::check::table_statement::{Statement, StatementKind, statements};
use weft_lang::diagnostic::{Diagnostic, RenderOptions, code, render_all};
use weft_lang::hir::Network;
use weft_lang::source::{SourceMap, Span};

/// Code is recompiled after this time without a change,
const QUIET: Duration = Duration::from_secs(1);
/// or after this time, if changes do not stop.
const UNQUIET_MAX: Duration = Duration::from_secs(10);
/// The interval between searches for expired rows,
const AGE_EVERY: Duration = Duration::from_millis(100);
/// or this many times the duration of the last search, if that is longer: a search blocks changes.
const AGE_REST: u32 = 9;

impl Running {
    /// Executes statements on tables, one after the other.
    pub(crate) fn query(&self, text: &str) -> Result<Vec<QueryResult>, Refusal> {
        job::run(|| self.query_here(text)).unwrap_or_else(|broken| {
            let refused = refused_by(&[broken.diagnostic()], &SourceMap::new(), AtFault::Environment);
            let version = lock(&self.parts.control).compiler.version();
            Err(Refusal::Refused(Refused { version, ..refused }))
        })
    }

    /// Executes the statements of a query on the current thread, up to the first error.
    fn query_here(&self, text: &str) -> Result<Vec<QueryResult>, Refusal> {
        match QueryKind::of(text) {
            QueryKind::Alter => return self.alter(text),
            QueryKind::Nothing => {
                let control = lock(&self.parts.control);
                return Err(self.refuse(&control, &[], &control.sources));
            }
            QueryKind::Others => {}
        }
        // Before locking the program: the workers answer on their own.
        let status = self.status().unwrap_or_default();
        let mut control = lock(&self.parts.control);
        let network = system::with_tables(&control.network);
        let (asked, diagnostics, sources) = statements(&network, &control.sources, text, clock::now());
        if diagnostics.iter().any(Diagnostic::is_error) || asked.is_empty() {
            return Err(self.refuse(&control, &diagnostics, &sources));
        }
        let mut answers = Vec::new();
        for statement in &asked {
            let answer = self.carry_out(&mut control, (&network, &status), statement);
            let done = answers.len();
            answers.push(answer.map_err(|why| match why {
                StatementError::Diagnostic(diagnostic) => {
                    self.refuse(&control, &[with_done(*diagnostic, done)], &sources)
                }
                StatementError::Stopped(refusal) => refusal,
            })?);
        }
        if let Some(first) = answers.first_mut().filter(|_| !diagnostics.is_empty()) {
            first.warnings = render_all(&diagnostics, &sources, RenderOptions::default());
        }
        Ok(answers)
    }

    /// Inserts rows into a table, all or none. Exception: in a table that handlers write, the rows before one that
    /// finds no room stay.
    pub(crate) fn put_rows(&self, request: &RowsRequest) -> Result<QueryResult, Refusal> {
        let mut control = lock(&self.parts.control);
        let version = control.compiler.version();
        let refuse = |text: String| refused_in_words(&text, version);
        let (name, table) = find(&control.network, &request.table).map_err(refuse)?;
        let changes = requested_changes(&table, request, clock::now()).map_err(refuse)?;
        self.change(&mut control, &name, changes).map_err(|why| match why {
            ChangeFailure::Stopped(refusal) => refusal,
            ChangeFailure::Update(why) => match why {
                UpdateError::Change(error) => refuse(row_error(request, &name, &error)),
                UpdateError::Partial(error) => match refuse(row_error(request, &name, &error)) {
                    Refusal::Refused(refused) => {
                        Refusal::Refused(Refused { rows_in: error.at as u64, ..refused })
                    }
                    other => other,
                },
                UpdateError::Check { at, why } => {
                    refuse(format!("row {} of {name}: {why}", request.first + at as u64 + 1))
                }
                UpdateError::Fold(_) => unreachable!("rows of a request are values"),
            },
        })
    }

    /// The tables of the node.
    pub(crate) fn tables(&self) -> Vec<TableStatus> {
        let status = self.status().unwrap_or_default();
        let control = lock(&self.parts.control);
        let filler = |name: &TableName| find(&control.network, &name.to_string()).ok()?.1.filled;
        let views = control.compiler.tables();
        let to_api = |view: &TableView| TableStatus {
            name: view.name.to_string(),
            filled_by: match filler(&view.name) {
                Some(Filler::Cluster) => "cluster",
                Some(Filler::Ports) => "ports",
                Some(Filler::Stage) => "stage",
                Some(Filler::Controller) => "controller",
                None => "handlers",
            }
            .to_owned(),
            rows: view.tables.iter().map(|table| table.len()).sum(),
            rows_max: view.tables.iter().map(|table| table.max_rows()).sum(),
            bytes: view.tables.iter().map(|table| table.memory_bytes()).sum(),
            evicted_untold: view.tables.iter().map(|table| table.evicted_untold()).sum(),
            expired: view.expired,
            matched: view.matched.iter().map(ToString::to_string).collect(),
        };
        let systems = system::counts(&control.network, &status).map(|(name, rows)| TableStatus {
            name: name.to_owned(),
            filled_by: "node".to_owned(),
            rows,
            ..TableStatus::default()
        });
        views.iter().map(to_api).chain(systems).collect()
    }

    /// The refusal of a query, with these diagnostics; without any, because it has no statement.
    fn refuse(&self, control: &Control, diagnostics: &[Diagnostic], sources: &SourceMap) -> Refusal {
        let nothing = Diagnostic::error(code::UNEXPECTED, "there is no statement")
            .with_help("write SELECT, INSERT, UPDATE or DELETE, or ALTER LINK");
        let diagnostics = if diagnostics.is_empty() { &[nothing][..] } else { diagnostics };
        let refused = refused_by(diagnostics, sources, AtFault::Program);
        Refusal::Refused(Refused { version: control.compiler.version(), ..refused })
    }

    /// Executes one statement: answers a SELECT, or changes rows and sends the changes to the workers.
    fn carry_out(
        &self,
        control: &mut Control,
        (network, status): (&Network, &Status),
        statement: &Statement,
    ) -> Result<QueryResult, StatementError> {
        let (name, table) = named(network, statement);
        let (n_keys, now) = (table.n_keys, clock::now());
        let is_shared = name.chain.is_empty();
        let own = is_shared.then(|| system::rows(&control.network, &table.name, status)).flatten();
        let view = match own {
            Some(rows) => RowSource::Rows(rows),
            None => {
                row_source(control.compiler.store(), &name, statement).map_err(StatementError::Diagnostic)?
            }
        };
        if let Some(answer) = answer(&view, &statement.kind, table, now) {
            return answer.map_err(StatementError::Diagnostic);
        }
        if let RowSource::Table(view) = &view
            && !view.is_filled
            && let Some((filter, update)) = RowUpdate::of(&statement.kind)
        {
            let begun = Instant::now();
            let counts = update_rows(&self.parts, view, filter, &update);
            return Ok(answer_of(counts.map_err(|why| why.of_statement(statement, &name))?, begun));
        }
        let changes = match &statement.kind {
            StatementKind::Select { .. } | StatementKind::Summary { .. } => Vec::new(),
            StatementKind::Insert { or_replace, rows } => {
                let row = |(values, _): &(Vec<Value>, Span)| match or_replace {
                    true => Change::Put(values.clone()),
                    false => Change::Insert(values.clone()),
                };
                rows.iter().map(row).collect()
            }
            StatementKind::Update { set, filter } => {
                let mut changes = Vec::new();
                each_row(&view, filter.as_ref(), now, |row| {
                    changes.push(Change::Put(updated(row, set, now)?));
                    Ok(true)
                })
                .map_err(|error| StatementError::Diagnostic(row_fault(error)))?;
                changes
            }
            StatementKind::Delete { filter } => {
                let mut changes = Vec::new();
                each_row(&view, filter.as_ref(), now, |row| {
                    changes.push(Change::Remove(row[..n_keys].to_vec()));
                    Ok(true)
                })
                .map_err(|error| StatementError::Diagnostic(row_fault(error)))?;
                changes
            }
        };
        drop(view);
        self.change(control, &name, changes).map_err(|why| why.of_statement(statement, &name))
    }

    /// Changes rows, waits until all workers see the change, and triggers a rebuild of compiled rules.
    fn change(
        &self,
        control: &mut Control,
        name: &TableName,
        changes: Vec<Change>,
    ) -> Result<QueryResult, ChangeFailure> {
        let begun = Instant::now();
        // System tables have no declaration, and cannot be changed.
        if let Ok((_, table)) = find(&control.network, &name.to_string()) {
            check_rows(&table, &changes).map_err(ChangeFailure::Update)?;
        }
        if let Some(view) = control.compiler.store().table(name).filter(|view| !view.is_filled) {
            return Ok(answer_of(put(&self.parts, &view, changes)?, begun));
        }
        let pending =
            control.compiler.store().change(name, changes, clock::now()).map_err(UpdateError::Change);
        let pending = pending.map_err(ChangeFailure::Update)?;
        let counts = pending.counts;
        publish(&self.parts, control, pending).map_err(ChangeFailure::Stopped)?;
        // A full channel is fine: the receiver will look again.
        let _ = self.parts.changed.try_send(());
        Ok(answer_of(counts, begun))
    }
}

/// Why a statement failed.
enum StatementError {
    Diagnostic(Box<Diagnostic>),
    /// The node did not carry it out.
    Stopped(Refusal),
}

/// Why rows were not changed.
pub(super) enum ChangeFailure {
    Update(UpdateError),
    /// The node did not carry it out.
    Stopped(Refusal),
}

impl ChangeFailure {
    /// The failure as that of a statement.
    fn of_statement(self, statement: &Statement, name: &TableName) -> StatementError {
        match self {
            Self::Update(error) => StatementError::Diagnostic(error.diagnostic(statement, name)),
            Self::Stopped(refusal) => StatementError::Stopped(refusal),
        }
    }
}

/// The answer of a statement whose change all workers see.
fn answer_of(Counts { inserted, updated, deleted }: Counts, begun: Instant) -> QueryResult {
    QueryResult {
        inserted,
        updated,
        deleted,
        visible_ms: super::millis(begun.elapsed()),
        ..QueryResult::default()
    }
}

/// Rebuilds outdated rules, and recompiles code for them, until the node is gone.
pub(super) fn rebuild(changed: &Receiver<()>, parts: &Weak<Parts>) {
    // The time of the first change that the code does not know.
    let mut since: Option<Instant> = None;
    loop {
        let come = match since {
            None => changed.recv().map_err(|_| RecvTimeoutError::Disconnected),
            Some(_) => changed.recv_timeout(QUIET),
        };
        if come == Err(RecvTimeoutError::Disconnected) {
            return;
        }
        let unquiet = *since.get_or_insert_with(Instant::now);
        while let Some(parts) = parts.upgrade().filter(|_| unquiet.elapsed() < UNQUIET_MAX) {
            let begun = Instant::now();
            if !rebuild_once(&parts) {
                break;
            }
            // Use at most half a core.
            let rest = begun.elapsed().max(REBUILD_EVERY);
            drop(parts);
            std::thread::sleep(rest);
        }
        if come.is_err() || unquiet.elapsed() >= UNQUIET_MAX {
            parts.upgrade().iter().for_each(|parts| recompile_for_shape(parts));
            since = come.is_ok().then(Instant::now);
        }
    }
}

/// Recompiles the chains on ports if their rules have changed shape. If that fails, the old code runs on.
fn recompile_for_shape(parts: &Parts) {
    let mut control = lock(&parts.control);
    if control.packets.is_none() || !control.compiler.store().is_outdated() {
        return;
    }
    let Ok(packets) = control.compiler.recompile_packets(&control.network, &control.sources) else { return };
    let packets = Arc::new(packets);
    let node = lock(&parts.node);
    if node.as_ref().is_some_and(|node| node.apply_code(&packets).is_ok()) {
        control.packets = Some(packets);
        control.compiler.store().note_coded();
    }
}

/// Removes expired rows, until the node is gone.
pub(super) fn run_expiry(parts: &Weak<Parts>) {
    loop {
        let Some(parts) = parts.upgrade() else { return };
        let took = expire_once(&parts);
        drop(parts);
        std::thread::sleep(AGE_EVERY.max(AGE_REST * took));
    }
}

/// Removes expired rows once; returns the duration of the search alone.
fn expire_once(parts: &Parts) -> Duration {
    let mut control = lock(&parts.control);
    let (begun, now) = (Instant::now(), clock::now());
    let expired = control.compiler.store().expired(now);
    let took = begun.elapsed();
    for (name, changes) in expired {
        let (pending, _) = control.compiler.store().change_where_possible(&name, changes, now);
        if pending.is_some_and(|pending| publish(parts, &mut control, pending).is_ok()) {
            let _ = parts.changed.try_send(());
        }
    }
    took
}

/// Rebuilds the rules with the most changes; false if there are none.
fn rebuild_once(parts: &Parts) -> bool {
    let mut control = lock(&parts.control);
    let store = control.compiler.store();
    let Some(stale) = store.stale().into_iter().max_by_key(|stale| stale.changes) else { return false };
    let Some(snapshot) = store.snapshot(&stale.name, stale.at) else { return false };
    drop(control);
    let built = snapshot.rebuild();
    drop(snapshot);
    let mut control = lock(&parts.control);
    // The program may have changed meanwhile, and the table with it.
    match control.compiler.store().adopt(&stale.name, stale.at, built) {
        Some(pending) => publish(parts, &mut control, pending).is_ok(),
        None => true,
    }
}

/// Sends a change to all workers, and completes it.
pub(super) fn publish(parts: &Parts, control: &mut Control, pending: PendingChange) -> Result<(), Refusal> {
    let node = lock(&parts.node);
    let taken = node.as_ref().ok_or(Refusal::Stopping)?.apply_swap(&pending.swap);
    drop(node);
    taken.map_err(|error| Refusal::Refused(machine_refusal(&node_fault(&error))))?;
    control.compiler.store().settle(pending);
    Ok(())
}
