//! Checks statements on the rows of tables: INSERT, UPSERT, UPDATE, DELETE and SCAN.

use super::{block, ends_handler, is_known, named_place};
use crate::ast::{self, Ident, InsertSource, SelectItem};
use crate::check::all;
use crate::check::expr::{Environment, article};
use crate::check::query;
use crate::check::scope::{ColumnVisibility, Scope, no_column, values_for_columns, with_nearest};
use crate::check::table::written_order;
use crate::check::walk::each_expr;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{ArithOp, AssignTarget, Expr, ExprKind, Function, Merge, RowId, StmtKind, TableRef};
use crate::source::Span;
use crate::types;

/// Finds the table of a statement that writes it.
fn written_table(scope: &mut Scope<'_, '_>, name: &Ident, makes_rows: bool) -> Option<TableRef> {
    let found = scope.table_ref(name)?;
    let table = scope.table(found);
    if let Some(filler) = table.filled {
        let (clause, who) = (filler.clause(), filler.in_words());
        let message = format!("`{}` is filled by {who}, so handlers can only read it", name.name);
        let help = format!("remove {clause} (and add an EVICT clause), or use a separate table");
        let diagnostic = Diagnostic::error(code::TABLE_READ_ONLY, message)
            .at(name.span, "written here")
            .with_label(table.span, format!("declared {clause}"))
            .with_help(help);
        let diagnostic = if filler == ast::Filler::Controller {
            diagnostic.with_help(format!("or send rows with a sink: `SINK s (...) TO TABLE {};`", name.name))
        } else {
            diagnostic
        };
        return diagnostic.refuse(scope.cx);
    }
    if makes_rows && table.evict.is_none() {
        let message = format!("`{}` gets rows here, but has no eviction policy", name.name);
        let diagnostic = Diagnostic::error(code::NO_EVICT, message)
            .at(name.span, "may insert a row")
            .with_label(table.span, "no EVICT")
            .with_help("add `EVICT OLDEST`, `EVICT LRU` or `EVICT REJECT` after `MAX n ROWS`");
        scope.cx.report_unless_broken(table.span, diagnostic);
        return None;
    }
    let is_scanned = |row: &RowId| scope.rows.get(*row).table == found;
    if makes_rows && scanning(scope).iter().any(is_scanned) {
        let message = format!("rows are inserted into `{}` while it is scanned", name.name);
        return Diagnostic::error(code::SCANNED_TABLE_GROWS, message)
            .at(name.span, "inside a SCAN of the same table")
            .with_help("use UPDATE, or collect the rows in a VAR or another table")
            .refuse(scope.cx);
    }
    Some(found)
}

fn scanning(scope: &Scope<'_, '_>) -> Vec<RowId> {
    let scans = scope.rows.visible().iter().filter(|visible| visible.visibility == ColumnVisibility::First);
    scans.map(|visible| visible.row).collect()
}

/// Checks an INSERT into a table or a sink.
pub(super) fn insert(scope: &mut Scope<'_, '_>, insert: &ast::Insert) -> Option<StmtKind> {
    let sink = scope.element.sinks.iter().position(|sink| sink.name == insert.into.name);
    if sink.is_none() && !scope.is_table(&insert.into.name) {
        return unknown_target(scope, &insert.into);
    }
    let n_visible_rows = scope.rows.visible().len();
    let query = match &insert.source {
        InsertSource::Select(select) => {
            query::check_input(scope, select.span)?;
            query::query(scope, select).map(Some)
        }
        InsertSource::Values(_) => Some(None),
    };
    let into = match sink {
        Some(sink) => Some(Target::Sink(sink)),
        None => written_table(scope, &insert.into, true).map(Target::Table),
    };
    let rows = into.and_then(|into| inserted_rows(scope, insert, into));
    scope.rows.hide_after(n_visible_rows);
    let (query, rows) = (query?, rows?);
    Some(match into? {
        Target::Sink(sink) => StmtKind::Emit { sink, query, rows },
        Target::Table(table) => StmtKind::Insert { table, query, rows },
    })
}

/// The target of an INSERT.
#[derive(Clone, Copy)]
enum Target {
    Table(TableRef),
    Sink(usize),
}

/// Reports an INSERT into an unknown table or sink.
fn unknown_target<T>(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<T> {
    let sinks: Vec<&str> = scope.element.sinks.iter().map(|sink| sink.name.as_str()).collect();
    let tables = scope.element.tables.iter().chain(scope.shared).map(|table| table.name.as_str());
    let message = format!("unknown table or sink `{}`", name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_TABLE, message)
        .at(name.span, "unknown")
        .with_help(format!("declare it: `SINK {} (...) TO STDOUT;`, or as a TABLE", name.name));
    with_nearest(diagnostic, name, sinks.into_iter().chain(tables)).refuse_missing(scope.cx)
}

/// Checks the rows of an INSERT. Returns the values of each row in the order of the target's columns.
fn inserted_rows(scope: &mut Scope<'_, '_>, insert: &ast::Insert, into: Target) -> Option<Vec<Vec<Expr>>> {
    let columns = target_columns(scope, insert, into)?;
    let rows: Vec<(Vec<&ast::Expr>, Span)> = match &insert.source {
        InsertSource::Values(rows) => {
            rows.iter().map(|row| (row.values.iter().collect(), row.span)).collect()
        }
        InsertSource::Select(select) => {
            let mut values = Vec::new();
            for item in &select.items {
                match item {
                    SelectItem::Value { value, .. } => values.push(value),
                    SelectItem::Star(star) => {
                        let message = "`*` is not allowed here";
                        let help = "write one value for each column";
                        return scope.cx.refuse(code::BAD_ARGUMENTS, message, *star, "which columns?", help);
                    }
                }
            }
            vec![(values, select.span)]
        }
    };
    all(rows.into_iter().map(|(values, span)| inserted_row(scope, &columns, &values, into, span)))
}

/// Returns the columns of an INSERT's values, in order.
fn target_columns(scope: &mut Scope<'_, '_>, insert: &ast::Insert, into: Target) -> Option<Vec<usize>> {
    match into {
        Target::Table(table) if insert.columns.is_empty() => Some(written_order(scope.table(table))),
        Target::Table(table) => all(insert.columns.iter().map(|name| scope.column_of(table, name))),
        Target::Sink(sink) => {
            let sink = &scope.element.sinks[sink];
            if insert.columns.is_empty() {
                return Some((0..sink.columns.len()).collect());
            }
            all(insert.columns.iter().map(|name| {
                let at = sink.columns.iter().position(|column| column.name == name.name);
                if at.is_none() {
                    let columns = sink.columns.iter().map(|column| column.name.as_str());
                    scope.cx.report(no_column(&format!("sink `{}`", sink.name), name, columns));
                }
                at
            }))
        }
    }
}

/// Checks one row of an INSERT: one value for each column, and a default for each column that is left out.
fn inserted_row(
    scope: &mut Scope<'_, '_>,
    columns: &[usize],
    values: &[&ast::Expr],
    into: Target,
    span: Span,
) -> Option<Vec<Expr>> {
    if columns.len() != values.len() {
        let message = values_for_columns(values.len(), columns.len());
        return scope.report_at(span, code::BAD_ARGUMENTS, message, "one value for each column");
    }
    let element = scope.element;
    let mut row: Vec<Option<Expr>> = match into {
        Target::Table(table) => {
            scope.table(table).columns.iter().map(|column| column.default.clone()).collect()
        }
        Target::Sink(sink) => {
            element.sinks[sink].columns.iter().map(|column| Some(query::null_of(column.ty, span))).collect()
        }
    };
    let mut ok = true;
    for (&at, value) in columns.iter().zip(values) {
        let (ty, nullable, name) = match into {
            Target::Table(table) => {
                let column = &scope.table(table).columns[at];
                (column.ty, column.nullable, &column.name)
            }
            Target::Sink(sink) => {
                let column = &element.sinks[sink].columns[at];
                (column.ty, true, &column.name)
            }
        };
        let whose = format!("column `{name}`");
        let value = scope.value_for(value, ty, nullable, &whose);
        ok &= value.is_some();
        row[at] = value;
    }
    if !ok {
        return None;
    }
    if let (Some(at), Target::Table(table)) = (row.iter().position(Option::is_none), into) {
        return no_value(scope, table, at, span);
    }
    row.into_iter().collect()
}

/// Reports a column of a new row that has neither a value nor a default.
fn no_value<T>(scope: &mut Scope<'_, '_>, table: TableRef, at: usize, span: Span) -> Option<T> {
    let table = scope.table(table);
    let column = &table.columns[at];
    let message = format!("a new row of `{}` has no value for `{}`", table.name, column.name);
    let diagnostic = Diagnostic::error(code::NO_VALUE, message)
        .at(span, format!("`{}` has no value", column.name))
        .with_label(column.span, "has no default, and cannot be NULL")
        .with_help(format!(
            "give it a value here, or declare a default: `{} {} = ...`",
            column.name, column.ty
        ));
    scope.cx.report_unless_broken(column.span, diagnostic);
    None
}

/// Checks an UPSERT: a value for each key column, and assignments to other columns.
pub(super) fn upsert(scope: &mut Scope<'_, '_>, upsert: &ast::Upsert, span: Span) -> Option<StmtKind> {
    let table = written_table(scope, &upsert.table, true)?;
    let decl = scope.table(table);
    let key = if upsert.key.len() == decl.n_keys {
        let keys = upsert.key.iter().zip(&decl.columns);
        let key: Vec<Option<Expr>> = keys
            .map(|(key, column)| {
                let whose = format!("key column `{}`", column.name);
                scope.value_for(key, column.ty, false, &whose)
            })
            .collect();
        key.into_iter().collect()
    } else {
        let names: Vec<&str> =
            decl.columns[..decl.n_keys].iter().map(|column| column.name.as_str()).collect();
        let message = format!(
            "the key of `{}` has {} columns, but {} values are given",
            decl.name,
            decl.n_keys,
            upsert.key.len()
        );
        let diagnostic = Diagnostic::error(code::KEY_NOT_COVERED, message)
            .at(span, "incomplete key")
            .with_help(format!("write `KEY ({})`", names.join(", ")));
        scope.cx.report_unless_broken(decl.span, diagnostic);
        None
    };
    let (row, set) =
        scope.with_row(table, &upsert.table.name, |scope, row| assignments(scope, table, row, &upsert.set));
    let (key, set): (Vec<Expr>, Vec<(usize, Expr)>) = (key?, set?);
    for (at, column) in decl.columns.iter().enumerate().skip(decl.n_keys) {
        if column.default.is_some() {
            continue;
        }
        if !set.iter().any(|(other, _)| *other == at) {
            return no_value(scope, table, at, span);
        }
        let reader = set.iter().find_map(|(_, value)| reads_column(value, row, at));
        if let Some(read_at) = reader {
            return no_value(scope, table, at, read_at);
        }
    }
    Some(StmtKind::Upsert { table, row, key, set })
}

/// Checks assignments `c = e, ...` to a row; every value reads the row before the assignments.
fn assignments(
    scope: &mut Scope<'_, '_>,
    table: TableRef,
    row: RowId,
    set: &[ast::Assign],
) -> Option<Vec<(usize, Expr)>> {
    let mut done: Vec<(usize, Expr, Span)> = Vec::new();
    let mut ok = true;
    for assign in set {
        let assigned = assignment(scope, table, row, assign);
        match assigned {
            Some((at, _)) if done.iter().any(|(other, ..)| *other == at) => {
                let first = done.iter().find(|(other, ..)| *other == at).map(|(.., span)| *span);
                let message = format!("`{}` is set twice", assign.name.name);
                let diagnostic =
                    Diagnostic::error(code::DUPLICATE_NAME, message).at(assign.name.span, "the second");
                scope.cx.report(diagnostic.with_label(first.unwrap_or(assign.span), "the first"));
                ok = false;
            }
            Some((at, value)) => done.push((at, value, assign.name.span)),
            None => ok = false,
        }
    }
    ok.then(|| done.into_iter().map(|(at, value, _)| (at, value)).collect())
}

/// Checks an assignment to a table column that is not part of the key. Returns its index and the value.
fn assignment(
    scope: &mut Scope<'_, '_>,
    table: TableRef,
    row: RowId,
    assign: &ast::Assign,
) -> Option<(usize, Expr)> {
    let at = scope.column_of(table, &assign.name);
    let Some(at) = at else {
        scope.expr(&assign.value, None);
        return None;
    };
    let decl = scope.table(table);
    let column = &decl.columns[at];
    if at < decl.n_keys {
        return Diagnostic::error(code::KEY_CHANGED, format!("`{}` is part of the key", column.name))
            .at(assign.name.span, "a key cannot be changed")
            .with_label(column.span, "declared here")
            .with_help("DELETE the row and INSERT a new one")
            .refuse(scope.cx);
    }
    scope.merging = column.merge.map(|_| (row, at));
    scope.counting = is_counted(&assign.value).then_some((row, at));
    let whose = format!("column `{}`", column.name);
    let value = scope.value_for(&assign.value, column.ty, column.nullable, &whose);
    (scope.merging, scope.counting) = (None, None);
    let value = value?;
    match column.merge {
        Some(merge) if !is_merge(&value, merge, row, at) => {
            let name = &column.name;
            let form = match merge {
                Merge::Sum => format!("{name} = {name} + e"),
                Merge::Max => format!("{name} = greatest({name}, e)"),
                Merge::Min => format!("{name} = least({name}, e)"),
            };
            let message = format!("`{name}` is merged, so only its own merge operation can change it");
            Diagnostic::error(code::MERGE_MISUSE, message)
                .at(assign.span, "a different operation")
                .with_label(column.span, "declared MERGE")
                .with_help(format!("write `{form}`, or remove MERGE"))
                .refuse(scope.cx)
        }
        _ => Some((at, value)),
    }
}

/// Checks an UPDATE: its condition must fix the whole key.
pub(super) fn update(scope: &mut Scope<'_, '_>, update: &ast::Update, span: Span) -> Option<StmtKind> {
    let table = written_table(scope, &update.table, false);
    let Some(table) = table else {
        if let Some(otherwise) = &update.otherwise {
            block(scope, otherwise);
        }
        return None;
    };
    let (row, (set, split)) = scope.with_row(table, &update.table.name, |scope, row| {
        let set = assignments(scope, table, row, &update.set);
        let filter = scope.condition_if(update.filter.as_ref());
        (set, filter.and_then(|filter| query::split_key(scope, row, filter, span)))
    });
    let returning = all(update.returning.iter().map(|returning| returned(scope, table, returning, update)));
    let otherwise = update.otherwise.as_ref().map(|body| block(scope, body)).unwrap_or_default();
    let (key, condition) = split?;
    Some(StmtKind::Update { table, row, key, condition, set: set?, returning: returning?, otherwise })
}

/// Checks a RETURNING. A new name is declared as a local.
fn returned(
    scope: &mut Scope<'_, '_>,
    table: TableRef,
    returning: &ast::Returning,
    update: &ast::Update,
) -> Option<(usize, AssignTarget)> {
    let at = scope.column_of(table, &returning.column)?;
    let column = &scope.table(table).columns[at];
    if let Some(name) = returning.into.as_ident()
        && !is_known(scope, &name.name)
    {
        // A new name is a LET. If ELSE continues, it may have no value.
        let ends = update.otherwise.as_ref().is_some_and(|body| ends_handler(body));
        let local = scope.locals.add(name, column.ty, column.nullable || !ends);
        scope.locals.show(name, Some(local));
        scope.cx.returned.push((local, name.clone()));
        return Some((at, AssignTarget::Local(local)));
    }
    let (place, ty, nullable, whose) = named_place(scope, &returning.into)?;
    let message = if column.nullable && !nullable {
        format!("`{}` may be NULL, but {whose} cannot be NULL", column.name)
    } else if types::widens(column.ty, ty) {
        return Some((at, place));
    } else {
        format!("`{}` is {}, but {whose} is {}", column.name, article(column.ty), article(ty))
    };
    let help = "return it into a new name, then convert it: `RETURNING c INTO x`";
    scope.cx.refuse(code::TYPE_MISMATCH, message, returning.span, "out of range", help)
}

/// Checks a DELETE: its condition must fix the whole key.
pub(super) fn delete(scope: &mut Scope<'_, '_>, table: &Ident, filter: &ast::Expr) -> Option<StmtKind> {
    let found = written_table(scope, table, false)?;
    let (row, split) = scope.with_row(found, &table.name, |scope, row| {
        let filter = scope.condition(filter)?;
        let span = filter.span;
        query::split_key(scope, row, Some(filter), span)
    });
    let (key, condition) = split?;
    Some(StmtKind::Delete { table: found, row, key, condition })
}

/// Checks a SCAN and its body, which sees the columns of the row.
pub(super) fn scan(scope: &mut Scope<'_, '_>, scan: &ast::Scan) -> Option<StmtKind> {
    let table = scope.table_ref(&scan.table);
    let rows_max = query::scan_rows_max(scope, &scan.max);
    let table = table?;
    let alias = scan.alias.as_ref().unwrap_or(&scan.table).name.clone();
    let (row, (filter, body)) = scope.with_row(table, &alias, |scope, _| {
        let filter = scope.condition_if(scan.filter.as_ref());
        (filter, block(scope, &scan.body))
    });
    Some(StmtKind::Scan { table, row, rows_max: rows_max?, filter: filter?, body })
}

/// The first read of a row's column in an expression.
fn reads_column(expr: &Expr, row: RowId, column: usize) -> Option<Span> {
    let mut found = None;
    each_expr(expr, &mut |part| {
        if part.kind == (ExprKind::RowColumn { row, column }) {
            found = Some(part.span);
        }
    });
    found
}

/// Whether a value is exactly a call of `counted`.
fn is_counted(value: &ast::Expr) -> bool {
    matches!(&value.kind, ast::ExprKind::Call { function, .. } if function.name.eq_ignore_ascii_case("counted"))
}

/// Whether a value is the merge operation on its own column, without other reads of the column.
fn is_merge(value: &Expr, merge: Merge, row: RowId, column: usize) -> bool {
    let is_column = |expr: &Expr| expr.kind == ExprKind::RowColumn { row, column };
    let (first, second) = match (&value.kind, merge) {
        (ExprKind::Arith { op: ArithOp::Add, left, right }, Merge::Sum) => (&**left, &**right),
        (ExprKind::Function { function, args }, Merge::Max | Merge::Min) => {
            let wanted = if merge == Merge::Max { Function::Greatest } else { Function::Least };
            let [first, second] = args.as_slice() else { return false };
            if *function != wanted {
                return false;
            }
            (first, second)
        }
        _ => return false,
    };
    let free = |expr: &Expr| reads_column(expr, row, column).is_none();
    (is_column(first) && free(second)) || (is_column(second) && free(first))
}
