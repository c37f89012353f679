//! Changes of rows: by requests and by statements.

use super::select::{meets, row_fault};
use weft_api::RowsRequest;
use weft_core::table::{Insert, Row, Table as Rows};
use weft_core::{Time, Value};
use weft_engine::rules::{Change, ChangeError, ChangeErrorKind, Counts, TableName, check_row};
use weft_lang::ast::Filler;
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::table::{breaks, broken};
use weft_lang::check::table_statement::{Statement, StatementKind, read_value};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{Expr, Network, Table};

/// Finds a table of a program by its name. An error says that there is none.
pub fn find(network: &Network, path: &str) -> Result<(TableName, Table), String> {
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
pub fn requested_changes(table: &Table, request: &RowsRequest, now: Time) -> Result<Vec<Change>, String> {
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

/// Why a row of a request was refused.
pub fn row_error(request: &RowsRequest, name: &TableName, error: &ChangeError) -> String {
    format!("row {} of {name}: {}", request.first + error.at as u64 + 1, error.why)
}

/// Adds to a refusal that the earlier statements are done, and stay so.
pub fn with_done(refused: Diagnostic, done: usize) -> Diagnostic {
    match done {
        0 => refused,
        1 => refused.with_note("the statement in front of it is done"),
        n => refused.with_note(format!("the {n} statements in front of it are done")),
    }
}

/// Checks rows against the CHECKs of a table.
pub fn check_rows(table: &Table, changes: &[Change]) -> Result<(), UpdateError> {
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
pub enum UpdateError {
    /// The table does not take a row.
    Change(ChangeError),
    /// As `Change`, but the rows before this one were changed.
    Partial(ChangeError),
    /// The row breaks a CHECK of the table.
    Check {
        /// The row.
        at: usize,
        /// The broken check.
        why: String,
    },
    /// An expression has no value for a row.
    Fold(FoldError),
}

impl UpdateError {
    /// The error as the diagnostic of a statement.
    pub fn diagnostic(self, statement: &Statement, name: &TableName) -> Box<Diagnostic> {
        let is_broken = matches!(self, Self::Partial(_));
        let ChangeError { at, why } = match self {
            Self::Change(error) | Self::Partial(error) => error,
            Self::Check { why, .. } => {
                let diagnostic =
                    Diagnostic::error(code::CHECK_BROKEN, why).at(statement.span, "would make it");
                return Box::new(diagnostic.with_help("nothing was changed"));
            }
            Self::Fold(error) => return row_fault(error),
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
        Box::new(diagnostic.with_help(help))
    }
}

/// The change to the rows that a statement selects.
#[derive(Clone)]
pub enum RowUpdate {
    /// Deletes them.
    Delete,
    /// Sets columns to the values of expressions.
    Set(Vec<(usize, Expr)>),
}

impl RowUpdate {
    /// The update of a statement, with its condition; None for other statements.
    pub fn of(statement: &StatementKind) -> Option<(Option<&Expr>, Self)> {
        match statement {
            StatementKind::Update { set, filter } => Some((filter.as_ref(), Self::Set(set.clone()))),
            StatementKind::Delete { filter } => Some((filter.as_ref(), Self::Delete)),
            _ => None,
        }
    }
}

/// Checks a row against its table. An inserted row must not exist.
pub fn check_change(table: &Rows, change: &Change, now: Time) -> Result<(), ChangeErrorKind> {
    let (Change::Insert(values) | Change::Put(values)) = change else { return Ok(()) };
    check_row(table, values)?;
    let is_new = matches!(change, Change::Insert(_));
    match is_new && table.find_values(&values[..table.spec().key.len()], now).is_some() {
        true => Err(ChangeErrorKind::Exists),
        false => Ok(()),
    }
}

/// The result of an UPDATE on a row.
pub fn updated(row: &[Value], set: &[(usize, Expr)], now: Time) -> Result<Vec<Value>, FoldError> {
    let mut new = row.to_vec();
    for (at, value) in set {
        new[*at] = fold_at(value, row, now)?;
    }
    Ok(new)
}

/// Updates a row if it still meets the condition; returns whether it did.
pub fn update_row(table: &Rows, row: Row, filter: Option<&Expr>, update: &RowUpdate, now: Time) -> bool {
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
pub fn put_row(table: &Rows, change: &Change, now: Time, counts: &mut Counts) -> Result<(), ChangeErrorKind> {
    let (Change::Insert(values) | Change::Put(values) | Change::Remove(values)) = change;
    let key = &values[..table.spec().key.len()];
    on_row(table, key, now, |row| match change {
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
pub fn on_row<T>(table: &Rows, key: &[Value], now: Time, change: impl FnOnce(Row) -> T) -> T {
    let hash = table.hash_values(key);
    table.lock(hash);
    let done = change(table.find_values(key, now));
    table.unlock(hash);
    done
}
