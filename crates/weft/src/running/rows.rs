//! Queries and changes the tables of a running node, and rebuilds compiled rules in the background.

use super::alter::QueryKind;
use super::answer::{RowSource, StatementError, answer, each_row, named, row_source};
use super::row_updates::{RowUpdate, put, update_rows, updated};
use super::{
    Control, Parts, Refusal, Running, lock, machine_refusal, node_fault, refused_by, refused_in_words, system,
};
use crate::job;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weft_api::{AtFault, QueryResult, Refused, RowsRequest, Status, TableStatus};
use weft_core::Value;
use weft_engine::rules::{Change, ChangeError, ChangeErrorKind, Counts, PendingChange, TableName, TableView};
use weft_io::clock;
use weft_lang::ast::Filler;
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::table::{breaks, broken};
use weft_lang::check::table_statement::{Statement, StatementKind, read_value, statements};
use weft_lang::diagnostic::{Diagnostic, RenderOptions, code, render_all};
use weft_lang::hir::{Network, Table};
use weft_lang::source::{SourceMap, Span};

/// The least interval between two rebuilds of compiled rules.
pub(crate) const REBUILD_EVERY: Duration = Duration::from_millis(20);
/// Code is recompiled after this time without a change,
const QUIET: Duration = Duration::from_secs(1);
/// or after this time, if changes do not stop.
const UNQUIET_MAX: Duration = Duration::from_secs(10);
/// The interval between searches for expired rows,
const AGE_EVERY: Duration = Duration::from_millis(100);
/// or this many times the duration of the last search, if that is longer: a search blocks changes.
const AGE_REST: u32 = 9;

/// Adds to a refusal that the earlier statements are done, and stay so.
fn with_done(refused: Diagnostic, done: usize) -> Diagnostic {
    match done {
        0 => refused,
        1 => refused.with_note("the statement in front of it is done"),
        n => refused.with_note(format!("the {n} statements in front of it are done")),
    }
}

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
                StatementError::Refused(refusal) => refusal,
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
        let changes = changes_of(&table, request).map_err(refuse)?;
        self.change(&mut control, &name, changes).map_err(|why| match why {
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
            UpdateError::Refused(refusal) => refusal,
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
            None => row_source(control.compiler.store(), &name, statement)?,
        };
        if let Some(answer) = answer(&view, &statement.kind, table, now) {
            return answer;
        }
        if let RowSource::Table(view) = &view
            && !view.is_filled
            && let Some((filter, update)) = RowUpdate::of(&statement.kind)
        {
            let begun = Instant::now();
            let counts = update_rows(&self.parts, view, filter, &update);
            return Ok(answer_of(counts.map_err(|why| why.into_why(statement, &name))?, begun));
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
                .map_err(StatementError::fold)?;
                changes
            }
            StatementKind::Delete { filter } => {
                let mut changes = Vec::new();
                each_row(&view, filter.as_ref(), now, |row| {
                    changes.push(Change::Remove(row[..n_keys].to_vec()));
                    Ok(true)
                })
                .map_err(StatementError::fold)?;
                changes
            }
        };
        drop(view);
        self.change(control, &name, changes).map_err(|error| error.into_why(statement, &name))
    }

    /// Changes rows, waits until all workers see the change, and triggers a rebuild of compiled rules.
    fn change(
        &self,
        control: &mut Control,
        name: &TableName,
        changes: Vec<Change>,
    ) -> Result<QueryResult, UpdateError> {
        let begun = Instant::now();
        // System tables have no declaration, and cannot be changed.
        if let Ok((_, table)) = find(&control.network, &name.to_string()) {
            check_rows(&table, &changes)?;
        }
        if let Some(view) = control.compiler.store().table(name).filter(|view| !view.is_filled) {
            return Ok(answer_of(put(&self.parts, &view, changes)?, begun));
        }
        let pending =
            control.compiler.store().change(name, changes, clock::now()).map_err(UpdateError::Change)?;
        let counts = pending.counts;
        publish(&self.parts, control, pending).map_err(UpdateError::Refused)?;
        // A full channel is fine: the receiver will look again.
        let _ = self.parts.changed.try_send(());
        Ok(answer_of(counts, begun))
    }
}

/// Why a row of a request was refused.
fn row_error(request: &RowsRequest, name: &TableName, error: &ChangeError) -> String {
    format!("row {} of {name}: {}", request.first + error.at as u64 + 1, error.why)
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

/// Checks rows against the CHECKs of a table.
fn check_rows(table: &Table, changes: &[Change]) -> Result<(), UpdateError> {
    if table.checks.is_empty() {
        return Ok(());
    }
    for (at, change) in changes.iter().enumerate() {
        if let Change::Insert(row) | Change::Put(row) = change
            && let Some(check) = broken(table, row)
        {
            return Err(UpdateError::Check { at, why: breaks(table, check, row) });
        }
    }
    Ok(())
}

/// Why rows were not changed.
pub(super) enum UpdateError {
    Change(ChangeError),
    /// As `Change`, but the rows before this one were changed.
    Partial(ChangeError),
    /// The row breaks a CHECK of the table.
    Check {
        at: usize,
        why: String,
    },
    Fold(FoldError),
    Refused(Refusal),
}

impl UpdateError {
    /// Converts the error to the error of a statement.
    fn into_why(self, statement: &Statement, name: &TableName) -> StatementError {
        let is_broken = matches!(self, Self::Partial(_));
        let ChangeError { at, why } = match self {
            Self::Change(error) | Self::Partial(error) => error,
            Self::Check { why, .. } => {
                let diagnostic =
                    Diagnostic::error(code::CHECK_BROKEN, why).at(statement.span, "would make it");
                return StatementError::diagnostic(diagnostic.with_help("nothing was changed"));
            }
            Self::Fold(error) => return StatementError::fold(error),
            Self::Refused(refusal) => return StatementError::Refused(refusal),
        };
        let span = match &statement.kind {
            StatementKind::Insert { rows, .. } => rows.get(at).map_or(statement.span, |(_, span)| *span),
            _ => statement.span,
        };
        let (code, help) = match why {
            ChangeErrorKind::Exists => (code::DUPLICATE_KEY, "`INSERT OR REPLACE` puts a row in its place"),
            ChangeErrorKind::Full { .. } => {
                (code::TOO_MANY_ROWS, "DELETE rows, or raise its bound: `MAX n ROWS`")
            }
            _ => (code::BAD_LITERAL, "give a value that its type takes"),
        };
        let diagnostic = Diagnostic::error(code, format!("`{name}`: {why}")).at(span, "this row");
        let diagnostic = match at {
            1 if is_broken => diagnostic.with_note("the row in front of it is in"),
            2.. if is_broken => diagnostic.with_note(format!("the {at} rows in front of it are in")),
            _ => diagnostic,
        };
        StatementError::diagnostic(diagnostic.with_help(help))
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

/// Finds a table of a program by its name. An error says that there is none.
pub(super) fn find(network: &Network, path: &str) -> Result<(TableName, Table), String> {
    let parts: Vec<&str> = path.split('.').collect();
    let found = match parts[..] {
        [table] => network.tables.iter().find(|known| known.name == table).map(|table| ("", "", table)),
        [chain, instance, table] => {
            network.chains.iter().find(|known| known.name == chain).and_then(|known| {
                let instance = known.instances.iter().find(|known| known.name == instance)?;
                let tables = &network.elements[instance.element].tables;
                // A table of another stage has that stage in its name.
                let is_own = |known: &&Table| known.name == table && known.filled != Some(Filler::Stage);
                let table = tables.iter().find(is_own)?;
                Some((&*known.name, &*instance.name, table))
            })
        }
        _ => None,
    };
    let (chain, instance, table) = found.ok_or_else(|| {
        format!("there is no table `{path}`: name it `chain.instance.table`; `weft query` lists the tables")
    })?;
    let (chain, instance) = (chain.to_owned(), instance.to_owned());
    Ok((TableName { chain, instance, table: table.name.clone() }, table.clone()))
}

/// Converts the rows of a request to changes of the table.
fn changes_of(table: &Table, request: &RowsRequest) -> Result<Vec<Change>, String> {
    if let Some(filler) = table.filled.filter(|filler| *filler != Filler::Controller) {
        return Err(format!("`{}` is {}: rows are not given from outside", table.name, filler.clause()));
    }
    if table.per_worker {
        return Err(format!("each worker has its own rows of `{}`: none are given from outside", table.name));
    }
    let mut written: Vec<usize> = (0..table.columns.len()).collect();
    written.sort_by_key(|at| table.columns[*at].written_at);
    let mut order = Vec::new();
    for name in &request.columns {
        let at = table.columns.iter().position(|column| column.name == *name).ok_or_else(|| {
            let names: Vec<&str> = table.columns.iter().map(|column| column.name.as_str()).collect();
            format!("table `{}` has no column `{name}`; it has: {}", table.name, names.join(", "))
        })?;
        if order.contains(&at) {
            return Err(format!("column `{name}` is named twice"));
        }
        order.push(at);
    }
    let order = if order.is_empty() { written } else { order };
    let now = clock::now();
    let default = |at: usize| {
        let column = &table.columns[at];
        let value = column.default.as_ref().and_then(|default| fold_at(default, &[], now).ok());
        value
            .ok_or_else(|| format!("column `{}` has no constant default, and no value is given", column.name))
    };
    let mut template = Vec::new();
    for at in 0..table.columns.len() {
        template.push(if order.contains(&at) { Value::Null } else { default(at)? });
    }
    let row = |(nth, cells): (usize, &Vec<String>)| {
        let row = request.first + nth as u64 + 1;
        if cells.len() != order.len() {
            return Err(format!(
                "row {row} has {} values, and there are {} columns",
                cells.len(),
                order.len()
            ));
        }
        let mut values = template.clone();
        for (&at, cell) in order.iter().zip(cells) {
            let column = &table.columns[at];
            values[at] = read_value(cell, column.ty, column.nullable)
                .map_err(|why| format!("row {row}, column `{}`: {why}", column.name))?;
        }
        Ok(if request.or_replace { Change::Put(values) } else { Change::Insert(values) })
    };
    request.rows.iter().enumerate().map(row).collect()
}
