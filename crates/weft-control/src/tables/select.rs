//! Executes SELECT: rows that meet a condition, in order, or their aggregates.

use super::summary::Groups;
use std::collections::BTreeSet;
use std::slice;
use weft_api::QueryResult;
use weft_core::table::{Row, Table};
use weft_core::text::Rfc3339;
use weft_core::types::Repr;
use weft_core::{Time, Type, Value};
use weft_engine::rules::{TableName, TableView};
use weft_engine::state::StateStore;
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::table_statement::{Statement, StatementKind, Summary, statements, table_of};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, CompareOp, Expr, ExprKind, Network};
use weft_lang::source::SourceMap;

/// The maximum number of rows in an answer.
const ANSWER_ROWS_MAX: usize = 10_000;

/// The rows that a statement reads.
pub enum RowSource {
    /// A table of the program.
    Table(TableView),
    /// Rows of a system table.
    Rows(Vec<Vec<Value>>),
}

/// The diagnostic of an expression that cannot be computed for a row.
pub fn row_fault(error: FoldError) -> Box<Diagnostic> {
    let (message, span) = match error {
        FoldError::NotConstant(span) => ("this is not worked out here".to_owned(), span),
        FoldError::Fault(fault, span) => (format!("this is an error for a row: {fault}"), span),
    };
    Box::new(Diagnostic::error(code::NOT_CONSTANT, message).at(span, "of a row that is asked about"))
}

/// Executes SELECTs on the tables of a store at `now`, one after the other.
///
/// # Errors
/// Diagnostics, and the texts that they refer to.
pub fn ask(
    (network, sources): (&Network, &SourceMap),
    store: &StateStore,
    text: &str,
    now: Time,
) -> Result<Vec<QueryResult>, (Vec<Diagnostic>, SourceMap)> {
    let (asked, diagnostics, sources) = statements(network, sources, text, now);
    if diagnostics.iter().any(Diagnostic::is_error) {
        return Err((diagnostics, sources));
    }
    let ask_one = |statement: &Statement| {
        let (name, table) = named(network, statement);
        let row_source = row_source(store, &name, statement)?;
        answer(&row_source, &statement.kind, table, now).unwrap_or_else(|| {
            let diagnostic = Diagnostic::error(code::UNEXPECTED, "nothing is changed here")
                .at(statement.span, "not a SELECT")
                .with_help("say it in the program, or to a running node: `weft query`");
            Err(Box::new(diagnostic))
        })
    };
    if asked.is_empty() {
        let nothing =
            Diagnostic::error(code::UNEXPECTED, "there is no statement").with_help("write a SELECT");
        return Err((vec![nothing], sources));
    }
    let answers = asked.iter().map(ask_one).collect::<Result<_, Box<Diagnostic>>>();
    answers.map_err(|refused| (vec![*refused], sources))
}

/// The table of a statement, and its name.
pub fn named<'n>(network: &'n Network, statement: &Statement) -> (TableName, &'n hir::Table) {
    let (chain, instance, table) = table_of(network, statement.table);
    let (chain, instance) = (chain.to_owned(), instance.to_owned());
    (TableName { chain, instance, table: table.name.clone() }, table)
}

/// Finds the table that has a statement's rows. Fails if no running program uses it.
pub fn row_source(
    store: &StateStore,
    name: &TableName,
    statement: &Statement,
) -> Result<RowSource, Box<Diagnostic>> {
    store.table(name).map(RowSource::Table).ok_or_else(|| {
        let message = format!("no program that runs uses `{name}`");
        Box::new(Diagnostic::error(code::UNKNOWN_OBJECT, message).at(statement.span, "not there"))
    })
}

/// The answer of a SELECT at `now`; None for any other statement.
pub fn answer(
    row_source: &RowSource,
    kind: &StatementKind,
    table: &hir::Table,
    now: Time,
) -> Option<Result<QueryResult, Box<Diagnostic>>> {
    let types: Vec<Type> = table.columns.iter().map(|column| column.ty).collect();
    match kind {
        StatementKind::Select { items, filter, order, limit } => {
            let order = order.map(|(at, descending)| (at, descending, types[at]));
            Some(select(row_source, items, filter.as_ref(), order, *limit, now).map_err(row_fault))
        }
        StatementKind::Summary { summary, filter, limit } => {
            Some(summarize(row_source, (summary, &types), filter.as_ref(), *limit, now))
        }
        _ => None,
    }
}

/// Calls `take` for each row that meets a condition, until it returns false.
pub fn each_row(
    row_source: &RowSource,
    filter: Option<&Expr>,
    now: Time,
    mut take: impl FnMut(&[Value]) -> Result<bool, FoldError>,
) -> Result<(), FoldError> {
    match row_source {
        RowSource::Rows(rows) => {
            for row in rows {
                if meets(row, filter, now)? && !take(row)? {
                    break;
                }
            }
        }
        RowSource::Table(view) => {
            // Rules hold until they are removed, so they are shown until then.
            let alive_at = if view.is_filled { Time(0) } else { now };
            for table in &view.tables {
                if !each_of(table, filter, (alive_at, now), &mut take)? {
                    break;
                }
            }
        }
    }
    Ok(())
}

/// As [`each_row`] for one table: rows that are alive at the first time, evaluated at the second. False if `take` has
/// returned false.
pub fn each_of(
    table: &Table,
    filter: Option<&Expr>,
    (alive_at, now): (Time, Time),
    mut take: impl FnMut(&[Value]) -> Result<bool, FoldError>,
) -> Result<bool, FoldError> {
    let mut ask = |row: Row| {
        let values = table.values(row);
        Ok(!meets(&values, filter, now)? || take(&values)?)
    };
    if let Some(keys) = filter.and_then(|filter| keys_named_by(filter, table)) {
        let found = keys.into_iter().map(|key| table.find_values(slice::from_ref(key), alive_at));
        let mut asked = BTreeSet::new();
        for row in found.filter(|row| row.is_some()) {
            if asked.insert(row.0) && !ask(row)? {
                return Ok(false);
            }
        }
        return Ok(true);
    }
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, alive_at) {
        cursor = next;
        if !ask(row)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The keys that a condition names: `id = 7 AND n > 1`, `id IN (7, 8)`. The condition is false for all other keys. None
/// if it names none.
fn keys_named_by<'e>(filter: &'e Expr, table: &Table) -> Option<Vec<&'e Value>> {
    let [key] = &table.spec().key[..] else { return None };
    let is_key = |expr: &Expr| matches!(expr.kind, ExprKind::Param(0)) && key.ty.repr() != Repr::Float;
    let constant = |expr: &'e Expr| match &expr.kind {
        ExprKind::Const(value) if *value != Value::Null => Some(value),
        _ => None,
    };
    match &filter.kind {
        ExprKind::And(left, right) => keys_named_by(left, table).or_else(|| keys_named_by(right, table)),
        ExprKind::Compare { op: CompareOp::Eq, left, right } if is_key(left) => Some(vec![constant(right)?]),
        ExprKind::Compare { op: CompareOp::Eq, left, right } if is_key(right) => Some(vec![constant(left)?]),
        ExprKind::InList { operand, list } if is_key(operand) => list.iter().map(constant).collect(),
        _ => None,
    }
}

/// Whether a row meets a condition.
pub fn meets(row: &[Value], filter: Option<&Expr>, now: Time) -> Result<bool, FoldError> {
    filter.map_or(Ok(true), |filter| Ok(fold_at(filter, row, now)? == Value::Bool(true)))
}

/// Executes a SELECT without aggregates: filters, sorts and limits the rows.
fn select(
    row_source: &RowSource,
    items: &[(String, Expr)],
    filter: Option<&Expr>,
    order: Option<(usize, bool, Type)>,
    limit: Option<u64>,
    now: Time,
) -> Result<QueryResult, FoldError> {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let wanted = wanted(limit);
    // With an order, the first rows are only known after all rows.
    each_row(row_source, filter, now, |row| {
        rows.push(row.to_vec());
        Ok(order.is_some() || rows.len() <= wanted)
    })?;
    if let Some((at, descending, ty)) = order {
        rows.sort_by(|a, b| {
            let order = compare(&a[at], &b[at], ty);
            if descending { order.reverse() } else { order }
        });
    }
    let is_cut = cut(&mut rows, limit);
    let columns = items.iter().map(|(name, _)| name.clone()).collect();
    let shown = rows.iter().map(|row| {
        let cells = items.iter().map(|(_, expr)| Ok(shown(&fold_at(expr, row, now)?, expr.ty)));
        cells.collect::<Result<Vec<_>, FoldError>>()
    });
    Ok(QueryResult { columns, rows: shown.collect::<Result<_, _>>()?, is_cut, ..QueryResult::default() })
}

/// The aggregates of rows.
fn summarize(
    row_source: &RowSource,
    (summary, types): (&Summary, &[Type]),
    filter: Option<&Expr>,
    limit: Option<u64>,
    now: Time,
) -> Result<QueryResult, Box<Diagnostic>> {
    let mut groups = Groups::new(summary, types, now);
    each_row(row_source, filter, now, |row| groups.take(row).map(|()| true)).map_err(row_fault)?;
    let (mut rows, types) = groups.rows()?;
    let is_cut = cut(&mut rows, limit);
    let columns = summary.items.iter().map(|(name, _)| name.clone()).collect();
    let row = |row: &Vec<Value>| row.iter().zip(&types).map(|(value, ty)| shown(value, *ty)).collect();
    Ok(QueryResult { columns, rows: rows.iter().map(row).collect(), is_cut, ..QueryResult::default() })
}

/// The maximum number of rows in an answer with this limit.
fn wanted(limit: Option<u64>) -> usize {
    limit.map_or(ANSWER_ROWS_MAX, |limit| ANSWER_ROWS_MAX.min(limit as usize))
}

/// Truncates the rows to the limit; returns whether the caller requested more rows than an answer holds.
fn cut(rows: &mut Vec<Vec<Value>>, limit: Option<u64>) -> bool {
    let wanted = wanted(limit);
    let is_cut = rows.len() > wanted && limit.is_none_or(|limit| limit as usize > wanted);
    rows.truncate(wanted);
    is_cut
}

/// Compares two values of a type for sorting. NaN is last among numbers.
pub(super) fn compare(a: &Value, b: &Value, ty: Type) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) if ty.is_signed() => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => (*a as u64).cmp(&(*b as u64)),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        // NaN sorts last, with either sign.
        (Value::Float(a), Value::Float(b)) => a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (a, b) => (*a != Value::Null).cmp(&(*b != Value::Null)),
    }
}

/// Converts a value to the JSON form of answers.
fn shown(value: &Value, ty: Type) -> serde_json::Value {
    match (value, ty) {
        (Value::Null, _) => serde_json::Value::Null,
        (Value::Bool(b), _) => (*b).into(),
        (Value::Float(x), _) => (*x).into(),
        (Value::Int(n), Type::Uint(_) | Type::Size) => (*n as u64).into(),
        (Value::Int(n), Type::Interval) => format!("{} s", *n as f64 / 1e9).into(),
        (Value::Int(n), Type::Timestamp) => Rfc3339(*n).to_string().into(),
        (Value::Int(n), Type::Status) => {
            let status = weft_core::Status::from_code(*n as u64);
            status.map_or_else(|| (*n).into(), |status| status.name().into())
        }
        (Value::Int(n), _) => (*n).into(),
        // The same form as `weft load` reads.
        (Value::Bytes(bytes), ty @ Type::Bytes(_)) => format!("0x{}", ty.shown(bytes)).into(),
        (Value::Bytes(bytes), ty) => ty.shown(bytes).into(),
    }
}
