//! What a SELECT answers: rows that meet a condition, in order, or what they come to together.

use super::Refusal;
use super::summary::Groups;
use std::collections::BTreeSet;
use std::slice;
use weft_api::QueryResult;
use weft_core::table::{Row, Table};
use weft_core::types::Repr;
use weft_core::{Time, Type, Value};
use weft_engine::rules::{TableName, TableView};
use weft_engine::state::StateStore;
use weft_io::timestamp;
use weft_lang::check::fold::{FoldError, fold_at};
use weft_lang::check::question::{Statement, StatementKind, Summary, statements, table_of};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, CompareOp, Expr, ExprKind, Network};
use weft_lang::source::SourceMap;

/// Rows of an answer; more are not given.
const ANSWER_ROWS_MAX: usize = 10_000;

/// Rows that a statement looks at.
pub(super) enum Seen {
    Table(TableView),
    /// Of a system table.
    Rows(Vec<Vec<Value>>),
}

/// Why a statement was not carried out.
pub(super) enum Why {
    Said(Box<Diagnostic>),
    Refused(Refusal),
}

impl Why {
    pub(super) fn said(diagnostic: Diagnostic) -> Self {
        Self::Said(Box::new(diagnostic))
    }

    pub(super) fn fold(error: FoldError) -> Self {
        let (message, span) = match error {
            FoldError::NotConstant(span) => ("this is not worked out here".to_owned(), span),
            FoldError::Fault(fault, span) => (format!("this is an error for a row: {fault}"), span),
        };
        Self::said(Diagnostic::error(code::NOT_CONSTANT, message).at(span, "of a row that is asked about"))
    }
}

/// Carries out SELECTs on the tables of a store at `now`, one after the other.
///
/// # Errors
/// What is wrong with them, and the texts that this is about.
pub(crate) fn ask(
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
        let seen = seen(store, &name, statement)?;
        answer(&seen, &statement.kind, table, now).unwrap_or_else(|| {
            let diagnostic = Diagnostic::error(code::UNEXPECTED, "nothing is changed here")
                .at(statement.span, "not a SELECT")
                .with_help("say it in the program, or to a running node: `weft query`");
            Err(Why::said(diagnostic))
        })
    };
    if asked.is_empty() {
        let nothing =
            Diagnostic::error(code::UNEXPECTED, "there is no statement").with_help("write a SELECT");
        return Err((vec![nothing], sources));
    }
    asked.iter().map(ask_one).collect::<Result<_, _>>().map_err(|why| match why {
        Why::Said(diagnostic) => (vec![*diagnostic], sources),
        Why::Refused(_) => unreachable!("only a node that runs refuses"),
    })
}

/// The table of a statement, and its name.
pub(super) fn named<'n>(network: &'n Network, statement: &Statement) -> (TableName, &'n hir::Table) {
    let (chain, instance, table) = table_of(network, statement.table);
    let (chain, instance) = (chain.to_owned(), instance.to_owned());
    (TableName { chain, instance, table: table.name.clone() }, table)
}

/// The rows of a table that a statement is about.
pub(super) fn seen(store: &StateStore, name: &TableName, statement: &Statement) -> Result<Seen, Why> {
    store.table(name).map(Seen::Table).ok_or_else(|| {
        let message = format!("no program that runs uses `{name}`");
        Why::said(Diagnostic::error(code::UNKNOWN_OBJECT, message).at(statement.span, "not there"))
    })
}

/// What a SELECT answers at `now`, of the rows of a table. None: it is another statement.
pub(super) fn answer(
    seen: &Seen,
    kind: &StatementKind,
    table: &hir::Table,
    now: Time,
) -> Option<Result<QueryResult, Why>> {
    let types: Vec<Type> = table.columns.iter().map(|column| column.ty).collect();
    match kind {
        StatementKind::Select { items, filter, order, limit } => {
            let order = order.map(|(at, descending)| (at, descending, types[at]));
            Some(select(seen, items, filter.as_ref(), order, *limit, now).map_err(Why::fold))
        }
        StatementKind::Summary { summary, filter, limit } => {
            Some(summarize(seen, (summary, &types), filter.as_ref(), *limit, now))
        }
        _ => None,
    }
}

/// Runs `take` for each row that meets a condition, until it says that it has enough.
pub(super) fn each_row(
    seen: &Seen,
    filter: Option<&Expr>,
    now: Time,
    mut take: impl FnMut(&[Value]) -> Result<bool, FoldError>,
) -> Result<(), FoldError> {
    match seen {
        Seen::Rows(rows) => {
            for row in rows {
                if meets(row, filter, now)? && !take(row)? {
                    break;
                }
            }
        }
        Seen::Table(view) => {
            // Rules decide until they are taken out, and are shown as long.
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

/// The same for one table, of rows that live at the first time, asked at the second; false if it has enough.
pub(super) fn each_of(
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

/// The keys of all rows that may meet a condition, where it names them: `id = 7 AND n > 1`, `id IN (7, 8)`. Of others
/// it is false, whatever else it asks.
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
pub(super) fn meets(row: &[Value], filter: Option<&Expr>, now: Time) -> Result<bool, FoldError> {
    filter.map_or(Ok(true), |filter| Ok(fold_at(filter, row, now)? == Value::Bool(true)))
}

fn select(
    seen: &Seen,
    items: &[(String, Expr)],
    filter: Option<&Expr>,
    order: Option<(usize, bool, Type)>,
    limit: Option<u64>,
    now: Time,
) -> Result<QueryResult, FoldError> {
    let mut rows: Vec<Vec<Value>> = Vec::new();
    let wanted = wanted(limit);
    // Of rows in order, the first are known when all have been seen.
    each_row(seen, filter, now, |row| {
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

/// What rows come to together.
fn summarize(
    seen: &Seen,
    (summary, types): (&Summary, &[Type]),
    filter: Option<&Expr>,
    limit: Option<u64>,
    now: Time,
) -> Result<QueryResult, Why> {
    let mut groups = Groups::new(summary, types, now);
    each_row(seen, filter, now, |row| groups.take(row).map(|()| true)).map_err(Why::fold)?;
    let (mut rows, types) = groups.rows()?;
    let is_cut = cut(&mut rows, limit);
    let columns = summary.items.iter().map(|(name, _)| name.clone()).collect();
    let row = |row: &Vec<Value>| row.iter().zip(&types).map(|(value, ty)| shown(value, *ty)).collect();
    Ok(QueryResult { columns, rows: rows.iter().map(row).collect(), is_cut, ..QueryResult::default() })
}

/// How many rows an answer has at most.
fn wanted(limit: Option<u64>) -> usize {
    limit.map_or(ANSWER_ROWS_MAX, |limit| ANSWER_ROWS_MAX.min(limit as usize))
}

/// Leaves out rows that an answer does not have, and tells whether more were asked for.
fn cut(rows: &mut Vec<Vec<Value>>, limit: Option<u64>) -> bool {
    let wanted = wanted(limit);
    let is_cut = rows.len() > wanted && limit.is_none_or(|limit| limit as usize > wanted);
    rows.truncate(wanted);
    is_cut
}

pub(super) fn compare(a: &Value, b: &Value, ty: Type) -> std::cmp::Ordering {
    match (a, b) {
        (Value::Int(a), Value::Int(b)) if ty.is_signed() => a.cmp(b),
        (Value::Int(a), Value::Int(b)) => (*a as u64).cmp(&(*b as u64)),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        // NaN sorts last, whatever its sign.
        (Value::Float(a), Value::Float(b)) => a.is_nan().cmp(&b.is_nan()).then(a.total_cmp(b)),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (a, b) => (*a != Value::Null).cmp(&(*b != Value::Null)),
    }
}

/// A value as people and programs read it.
fn shown(value: &Value, ty: Type) -> serde_json::Value {
    match (value, ty) {
        (Value::Null, _) => serde_json::Value::Null,
        (Value::Bool(b), _) => (*b).into(),
        (Value::Float(x), _) => (*x).into(),
        (Value::Int(n), Type::Uint(_) | Type::Size) => (*n as u64).into(),
        (Value::Int(n), Type::Interval) => format!("{} s", *n as f64 / 1e9).into(),
        (Value::Int(n), Type::Timestamp) => timestamp(*n).into(),
        (Value::Int(n), Type::Status) => {
            let status = weft_core::Status::from_code(*n as u64);
            status.map_or_else(|| (*n).into(), |status| status.name().into())
        }
        (Value::Int(n), _) => (*n).into(),
        // As `weft load` reads them.
        (Value::Bytes(bytes), ty @ Type::Bytes(_)) => format!("0x{}", ty.shown(bytes)).into(),
        (Value::Bytes(bytes), ty) => ty.shown(bytes).into(),
    }
}
