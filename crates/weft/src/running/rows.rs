//! Tables of a node that runs: asked, changed, and rebuilt in the background.

use super::alter::Asks;
use super::amend::{Becomes, amend, put, with};
use super::answer::{Seen, Why, answer, each_row, named, seen};
use super::{
    Control, Parts, Refusal, Running, lock, node_fault, refused_by, refused_in_words, system, unwell,
};
use crate::job;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};
use weft_api::{AtFault, QueryResult, Refused, RowsRequest, Status, TableStatus};
use weft_core::Value;
use weft_engine::rules::{Change, ChangeError, Counts, Pending, TableName, TableView, WhyNot};
use weft_io::clock;
use weft_lang::ast::Filler;
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::question::{Statement, StatementKind, read_value, statements};
use weft_lang::check::table::{breaks, broken};
use weft_lang::diagnostic::{Diagnostic, RenderOptions, code, render_all};
use weft_lang::hir::{Network, Table};
use weft_lang::source::{SourceMap, Span};

/// What was built of rules is built anew at most so often.
pub(crate) const REBUILD_EVERY: Duration = Duration::from_millis(20);
/// Code is made anew when there was no change for so long.
const QUIET: Duration = Duration::from_secs(1);
/// Rows that are too old are looked for so often.
const AGE_EVERY: Duration = Duration::from_millis(100);
/// And not before so many times as long as the last look took: it holds up changes.
const AGE_REST: u32 = 9;
/// And after so long, if changes do not end.
const UNQUIET_MAX: Duration = Duration::from_secs(10);

/// What is said of a statement that is refused behind others, which stay done.
fn told_of(refused: Diagnostic, done: usize) -> Diagnostic {
    match done {
        0 => refused,
        1 => refused.with_note("the statement in front of it is done"),
        n => refused.with_note(format!("the {n} statements in front of it are done")),
    }
}

impl Running {
    /// Carries out statements on tables, one after the other.
    pub(crate) fn query(&self, text: &str) -> Result<Vec<QueryResult>, Refusal> {
        job::run(|| self.query_here(text)).unwrap_or_else(|broken| {
            let refused = refused_by(&[broken.diagnostic()], &SourceMap::new(), AtFault::Environment);
            let version = lock(&self.parts.control).compiler.version();
            Err(Refusal::Refused(Refused { version, ..refused }))
        })
    }

    fn query_here(&self, text: &str) -> Result<Vec<QueryResult>, Refusal> {
        match Asks::of(text) {
            Asks::Alter => return self.alter(text),
            Asks::Nothing => {
                let control = lock(&self.parts.control);
                return Err(self.refuse(&control, &[], &control.sources));
            }
            Asks::Others => {}
        }
        // Asked before the program is held: the workers answer for themselves.
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
                Why::Said(diagnostic) => self.refuse(&control, &[told_of(*diagnostic, done)], &sources),
                Why::Refused(refusal) => refusal,
            })?);
        }
        if let Some(first) = answers.first_mut().filter(|_| !diagnostics.is_empty()) {
            first.warnings = render_all(&diagnostics, &sources, RenderOptions::default());
        }
        Ok(answers)
    }

    /// Puts rows into a table, all or none; of a table that handlers fill, those in front of one that finds no room
    /// stay.
    pub(crate) fn put_rows(&self, request: &RowsRequest) -> Result<QueryResult, Refusal> {
        let mut control = lock(&self.parts.control);
        let version = control.compiler.version();
        let refuse = |text: String| refused_in_words(&text, version);
        let (name, table) = find(&control.network, &request.table).map_err(refuse)?;
        let changes = changes_of(&table, request).map_err(refuse)?;
        self.change(&mut control, &name, changes).map_err(|why| match why {
            NotDone::Change(error) => refuse(told_of_row(request, &name, &error)),
            NotDone::Broken(error) => match refuse(told_of_row(request, &name, &error)) {
                Refusal::Refused(refused) => {
                    Refusal::Refused(Refused { rows_in: error.at as u64, ..refused })
                }
                other => other,
            },
            NotDone::Check { at, why } => {
                refuse(format!("row {} of {name}: {why}", request.first + at as u64 + 1))
            }
            NotDone::Fold(_) => unreachable!("rows of a request are values"),
            NotDone::Refused(refusal) => refusal,
        })
    }

    /// The tables of the node.
    pub(crate) fn tables(&self) -> Vec<TableStatus> {
        let status = self.status().unwrap_or_default();
        let control = lock(&self.parts.control);
        let filler = |name: &TableName| find(&control.network, &name.to_string()).ok()?.1.filled;
        let views = control.compiler.tables();
        let told = |view: &TableView| TableStatus {
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
        views.iter().map(told).chain(systems).collect()
    }

    fn refuse(&self, control: &Control, diagnostics: &[Diagnostic], sources: &SourceMap) -> Refusal {
        let nothing = Diagnostic::error(code::UNEXPECTED, "there is no statement")
            .with_help("write SELECT, INSERT, UPDATE or DELETE, or ALTER LINK");
        let diagnostics = if diagnostics.is_empty() { &[nothing][..] } else { diagnostics };
        let refused = refused_by(diagnostics, sources, AtFault::Program);
        Refusal::Refused(Refused { version: control.compiler.version(), ..refused })
    }

    fn carry_out(
        &self,
        control: &mut Control,
        (network, status): (&Network, &Status),
        statement: &Statement,
    ) -> Result<QueryResult, Why> {
        let (name, table) = named(network, statement);
        let (n_keys, now) = (table.n_keys, clock::now());
        let is_shared = name.chain.is_empty();
        let own = is_shared.then(|| system::rows(&control.network, &table.name, status)).flatten();
        let view = match own {
            Some(rows) => Seen::Rows(rows),
            None => seen(control.compiler.store(), &name, statement)?,
        };
        if let Some(answer) = answer(&view, &statement.kind, table, now) {
            return answer;
        }
        if let Seen::Table(view) = &view
            && !view.is_filled
            && let Some((filter, becomes)) = Becomes::of(&statement.kind)
        {
            let begun = Instant::now();
            let counts = amend(&self.parts, view, filter, &becomes);
            return Ok(told(counts.map_err(|why| why.into_why(statement, &name))?, begun));
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
                    changes.push(Change::Put(with(row, set, now)?));
                    Ok(true)
                })
                .map_err(Why::fold)?;
                changes
            }
            StatementKind::Delete { filter } => {
                let mut changes = Vec::new();
                each_row(&view, filter.as_ref(), now, |row| {
                    changes.push(Change::Remove(row[..n_keys].to_vec()));
                    Ok(true)
                })
                .map_err(Why::fold)?;
                changes
            }
        };
        drop(view);
        self.change(control, &name, changes).map_err(|not_done| not_done.into_why(statement, &name))
    }

    /// Changes rows, waits until all workers see it, and has what is built of them built anew.
    fn change(
        &self,
        control: &mut Control,
        name: &TableName,
        changes: Vec<Change>,
    ) -> Result<QueryResult, NotDone> {
        let begun = Instant::now();
        // Tables of the node have no declaration, and are not changed.
        if let Ok((_, table)) = find(&control.network, &name.to_string()) {
            check_rows(&table, &changes)?;
        }
        if let Some(view) = control.compiler.store().table(name).filter(|view| !view.is_filled) {
            return Ok(told(put(&self.parts, &view, changes)?, begun));
        }
        let pending =
            control.compiler.store().change(name, changes, clock::now()).map_err(NotDone::Change)?;
        let counts = pending.counts;
        publish(&self.parts, control, pending).map_err(NotDone::Refused)?;
        // If it is told already, it looks again.
        let _ = self.parts.changed.try_send(());
        Ok(told(counts, begun))
    }
}

/// Why a row of a request is not put in.
fn told_of_row(request: &RowsRequest, name: &TableName, error: &ChangeError) -> String {
    format!("row {} of {name}: {}", request.first + error.at as u64 + 1, error.why)
}

/// What came of a statement that all workers see by now.
fn told(Counts { inserted, updated, deleted }: Counts, begun: Instant) -> QueryResult {
    QueryResult {
        inserted,
        updated,
        deleted,
        visible_ms: super::millis(begun.elapsed()),
        ..QueryResult::default()
    }
}

/// Whether what the table says of every row holds of these.
fn check_rows(table: &Table, changes: &[Change]) -> Result<(), NotDone> {
    if table.checks.is_empty() {
        return Ok(());
    }
    for (at, change) in changes.iter().enumerate() {
        if let Change::Insert(row) | Change::Put(row) = change
            && let Some(check) = broken(table, row)
        {
            return Err(NotDone::Check { at, why: breaks(table, check, row) });
        }
    }
    Ok(())
}

/// Why rows were not changed.
pub(super) enum NotDone {
    Change(ChangeError),
    /// The same, but the rows in front of this one were.
    Broken(ChangeError),
    /// A CHECK of the table does not hold of this one.
    Check {
        at: usize,
        why: String,
    },
    Fold(FoldError),
    Refused(Refusal),
}

impl NotDone {
    /// The same of a statement.
    fn into_why(self, statement: &Statement, name: &TableName) -> Why {
        let is_broken = matches!(self, Self::Broken(_));
        let ChangeError { at, why } = match self {
            Self::Change(error) | Self::Broken(error) => error,
            Self::Check { why, .. } => {
                let diagnostic =
                    Diagnostic::error(code::CHECK_BROKEN, why).at(statement.span, "would make it");
                return Why::said(diagnostic.with_help("nothing was changed"));
            }
            Self::Fold(error) => return Why::fold(error),
            Self::Refused(refusal) => return Why::Refused(refusal),
        };
        let span = match &statement.kind {
            StatementKind::Insert { rows, .. } => rows.get(at).map_or(statement.span, |(_, span)| *span),
            _ => statement.span,
        };
        let (code, help) = match why {
            WhyNot::Exists => (code::DUPLICATE_KEY, "`INSERT OR REPLACE` puts a row in its place"),
            WhyNot::Full { .. } => (code::TOO_MANY_ROWS, "DELETE rows, or raise its bound: `MAX n ROWS`"),
            _ => (code::BAD_LITERAL, "give a value that its type takes"),
        };
        let diagnostic = Diagnostic::error(code, format!("`{name}`: {why}")).at(span, "this row");
        let diagnostic = match at {
            1 if is_broken => diagnostic.with_note("the row in front of it is in"),
            2.. if is_broken => diagnostic.with_note(format!("the {at} rows in front of it are in")),
            _ => diagnostic,
        };
        Why::said(diagnostic.with_help(help))
    }
}

/// Rebuilds what is older than changes, and makes code anew that was made for other rules, until the node is gone.
pub(super) fn rebuild(changed: &Receiver<()>, parts: &Weak<Parts>) {
    // Since when there are changes that code was not made anew for.
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
            // No more than half a core goes into it.
            let rest = begun.elapsed().max(REBUILD_EVERY);
            drop(parts);
            std::thread::sleep(rest);
        }
        if come.is_err() || unquiet.elapsed() >= UNQUIET_MAX {
            parts.upgrade().iter().for_each(|parts| code_anew(parts));
            since = come.is_ok().then(Instant::now);
        }
    }
}

/// Makes the code of chains on ports anew, if what it was made for has another shape by now. It does without: what
/// cannot be compiled runs on as it is.
fn code_anew(parts: &Parts) {
    let mut control = lock(&parts.control);
    if control.packets.is_none() || !control.compiler.store().is_outdated() {
        return;
    }
    let Ok(packets) = control.compiler.packets_anew(&control.network, &control.sources) else { return };
    let packets = Arc::new(packets);
    let node = lock(&parts.node);
    if node.as_ref().is_some_and(|node| node.take_code(&packets).is_ok()) {
        control.packets = Some(packets);
        control.compiler.store().note_coded();
    }
}

/// Takes out rows that are too old, until the node is gone.
pub(super) fn age(parts: &Weak<Parts>) {
    loop {
        let Some(parts) = parts.upgrade() else { return };
        let took = age_once(&parts);
        drop(parts);
        std::thread::sleep(AGE_EVERY.max(AGE_REST * took));
    }
}

/// How long it took to look, without what was done then.
fn age_once(parts: &Parts) -> Duration {
    let mut control = lock(&parts.control);
    let (begun, now) = (Instant::now(), clock::now());
    let expired = control.compiler.store().expired(now);
    let took = begun.elapsed();
    for (name, changes) in expired {
        let (pending, _) = control.compiler.store().change_what_goes(&name, changes, now);
        if pending.is_some_and(|pending| publish(parts, &mut control, pending).is_ok()) {
            let _ = parts.changed.try_send(());
        }
    }
    took
}

/// Rebuilds what most has changed in; false if nothing has.
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

/// Hands a change to all workers, and settles it.
pub(super) fn publish(parts: &Parts, control: &mut Control, pending: Pending) -> Result<(), Refusal> {
    let node = lock(&parts.node);
    let taken = node.as_ref().ok_or(Refusal::Stopping)?.take_up(&pending.swap);
    drop(node);
    taken.map_err(|error| Refusal::Refused(unwell(&node_fault(&error))))?;
    control.compiler.store().settle(pending);
    Ok(())
}

/// A table of a program, by its name.
pub(super) fn find(network: &Network, path: &str) -> Result<(TableName, Table), String> {
    let parts: Vec<&str> = path.split('.').collect();
    let found = match parts[..] {
        [table] => network.tables.iter().find(|known| known.name == table).map(|table| ("", "", table)),
        [chain, instance, table] => {
            network.chains.iter().find(|known| known.name == chain).and_then(|known| {
                let instance = known.instances.iter().find(|known| known.name == instance)?;
                let tables = &network.elements[instance.element].tables;
                // One of another stage is named by that.
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

/// The rows of a request as changes.
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
