//! Checks declarations of tables: columns, key, limits.

use crate::check::checked::Bounds;
use weft_core::limits::{KEY_BYTES_MAX, ROW_BYTES_MAX, TABLE_ROWS_MAX};
use weft_core::{Interval, Time, Type, Value};

use super::fold::{self, FoldError};
use super::scope::Scope;
use super::table_statement::{condition, row_of};
use super::{Cx, query};
use crate::ast::{self, Filler, Since, TableOptionKind};
use crate::check::suggest::article;
use crate::check::suggest::no_column;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Check, Element, Expr, ExprKind, Function, Table, TableColumn, TableLimits};
use crate::ports::{KNOWN_COLUMNS, NAME_COLUMN};
use crate::source::Span;
use crate::types;

/// The maximum length of a CHECK in a message.
const CHECK_CHARS_MAX: usize = 200;

/// The columns of a table in written order.
pub(super) fn written_order(table: &Table) -> Vec<usize> {
    let mut order: Vec<usize> = (0..table.columns.len()).collect();
    order.sort_by_key(|at| table.columns[*at].written_at);
    order
}

/// Checks a declaration. `element` provides the parameters.
pub(super) fn table(
    cx: &mut Cx<'_>,
    element: &Element,
    n_rand: &mut u32,
    decl: &ast::Table,
) -> (Table, Bounds) {
    let mut columns: Vec<TableColumn> = Vec::new();
    for (at, column) in decl.columns.iter().enumerate() {
        if let Some(first) = columns.iter().find(|known| known.name == column.name.name) {
            cx.report_duplicate("column", &column.name, first.span);
            continue;
        }
        columns.push(self::column(cx, element, n_rand, column, at));
    }
    let n_keys = keys_first(cx, decl, &mut columns);
    for key in &mut columns[..n_keys] {
        check_key(cx, key);
    }
    check_bytes(cx, decl, &columns, n_keys);
    let mut table = Table {
        name: decl.name.name.clone(),
        columns,
        n_keys,
        checks: Vec::new(),
        filled: None,
        stage: None,
        per_worker: false,
        evict: None,
        ttl_on_access: false,
        limits: None,
        span: decl.span,
    };
    let bounds = options(cx, element, n_rand, decl, &mut table);
    if let Ok(limits) = limits(&bounds, &[]) {
        table.limits = limits;
    }
    table.checks = decl.checks.iter().filter_map(|clause| row_check(cx, &table, n_rand, clause)).collect();
    (table, bounds)
}

/// Checks a condition on every row: rows of the controller are checked when they arrive.
fn row_check(cx: &mut Cx<'_>, table: &Table, n_rand: &mut u32, clause: &ast::CheckClause) -> Option<Check> {
    if table.filled != Some(Filler::Controller) {
        let message = format!(
            "CHECK applies to rows from the controller, but `{}` is not FILLED BY CONTROLLER",
            table.name
        );
        let help = "test the values with IF where handlers write them";
        return cx.refuse(code::OPTION_CONFLICT, message, clause.span, "would check no row", help);
    }
    let row = row_of(&table.columns);
    let help = "compare columns with literals and with each other; use `TTL` to remove old rows";
    check(cx, &row, n_rand, clause, ("a row does not change with time", help))
}

/// Checks a CHECK condition over the parameters of an element.
pub(super) fn param_check(
    cx: &mut Cx<'_>,
    element: &Element,
    n_rand: &mut u32,
    clause: &ast::CheckClause,
) -> Option<Check> {
    let help = "compare parameters with literals and with each other";
    check(cx, element, n_rand, clause, ("parameters do not change with time", help))
}

/// Checks a CHECK condition over parameters or row columns. The last argument is the message and help if the
/// condition reads the clock.
fn check(
    cx: &mut Cx<'_>,
    element: &Element,
    n_rand: &mut u32,
    clause: &ast::CheckClause,
    (at_any_time, help): (&str, &str),
) -> Option<Check> {
    let condition = condition(cx, element, &clause.condition, n_rand)?;
    if let Some(now) = reads_clock(&condition) {
        return cx.refuse(code::NOT_CONSTANT, at_any_time, now, "changes with time", help);
    }
    let text = cx.sources.slice(clause.condition.span).split_whitespace().collect::<Vec<_>>().join(" ");
    let text = match text.char_indices().nth(CHECK_CHARS_MAX) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text,
    };
    Some(Check { condition, text, span: clause.span })
}

/// Finds the first use of the clock in an expression.
fn reads_clock(expr: &Expr) -> Option<Span> {
    match expr.kind {
        ExprKind::Function { function: Function::Now, .. } => Some(expr.span),
        _ => expr.children().into_iter().find_map(reads_clock),
    }
}

/// Finds the first CHECK of a table that a row violates. NULL does not violate a CHECK, but an error such as division
/// by zero does.
pub fn broken<'t>(table: &'t Table, row: &[Value]) -> Option<&'t Check> {
    first_broken(&table.checks, row)
}

/// Finds the first violated CHECK.
fn first_broken<'c>(checks: &'c [Check], values: &[Value]) -> Option<&'c Check> {
    let breaks = |check: &&Check| {
        !matches!(fold::fold_at(&check.condition, values, Time(0)), Ok(Value::Bool(true) | Value::Null))
    };
    checks.iter().find(breaks)
}

/// The first CHECK of an element that parameter values violate, with a message.
pub(super) fn broken_by_params<'e>(element: &'e Element, values: &[Value]) -> Option<(&'e Check, String)> {
    let check = first_broken(&element.checks, values)?;
    let values = check.condition.params().into_iter().map(|at| {
        let param = &element.params[at];
        format!("{} is {}", param.name, shown(param.ty, &values[at]))
    });
    let (text, name, values) = (&check.text, &element.name, values.collect::<Vec<_>>().join(", "));
    Some((check, format!("`{text}` is not satisfied by this `{name}`: {values}")))
}

/// The message for a row that violates a CHECK.
pub fn breaks(table: &Table, check: &Check, row: &[Value]) -> String {
    let (text, name, values) = (&check.text, &table.name, row_in_words(table, row, check));
    match fold::fold_at(&check.condition, row, Time(0)) {
        Err(FoldError::Fault(what, _)) => {
            format!("`{text}` has no value for a row of `{name}`, {what}: {values}")
        }
        _ => format!("`{text}` is not satisfied by a row of `{name}`: {values}"),
    }
}

/// The row's values in the columns of a condition, followed by its key.
fn row_in_words(table: &Table, values: &[Value], check: &Check) -> String {
    let about = check.condition.params();
    let key = (0..table.n_keys).filter(|at| !about.contains(at));
    let values = about.iter().copied().chain(key).map(|at| {
        let (column, value) = (&table.columns[at], &values[at]);
        format!("{} is {}", column.name, shown(column.ty, value))
    });
    values.collect::<Vec<_>>().join(", ")
}

/// Formats a value for a diagnostic.
fn shown(ty: Type, value: &Value) -> String {
    match value {
        Value::Bytes(bytes) => format!("'{}'", ty.shown(bytes)),
        Value::Null => "NULL".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(n) if ty == Type::Timestamp => format!("'{}'", types::timestamp_of(*n)),
        Value::Int(n) if ty == Type::Interval => format!("'{}'", Interval(*n)),
        Value::Int(n) => n.to_string(),
        Value::Float(f) => f.to_string(),
    }
}

/// Checks a column of a table and its default.
fn column(
    cx: &mut Cx<'_>,
    element: &Element,
    n_rand: &mut u32,
    column: &ast::Column,
    written_at: usize,
) -> TableColumn {
    let name = column.name.name.clone();
    let ty = cx.stored_type(&column.ty, column.span, &name);
    let nullable = column.ty.nullable;
    let mut scope = Scope::new(cx, element, &[], View::Start, n_rand);
    let given = column.default.as_ref().map(|default| {
        let whose = format!("column `{name}`");
        scope.value_for(default, ty, nullable, &whose)
    });
    let default = match given {
        Some(None) => {
            cx.broken.insert(column.span);
            None
        }
        Some(Some(default)) => Some(default),
        None => nullable.then(|| query::null_of(ty, column.span)),
    };
    if let Some(clause) = &column.merge
        && !types::is_integer(ty)
        && !cx.is_broken(column.span)
    {
        let diagnostic = Diagnostic::error(
            code::MERGE_MISUSE,
            format!("only integers can be merged; this is {}", article(ty)),
        )
        .at(clause.span, "cannot be merged")
        .with_label(column.ty.span, ty.to_string());
        cx.report(diagnostic.with_help("count in whole units (bytes, microseconds), or remove MERGE"));
    }
    let merge = column.merge.map(|clause| clause.merge);
    TableColumn { name, ty, nullable, default, merge, written_at, span: column.span }
}

/// Moves the primary key columns to the front, in key order; returns their number.
fn keys_first(cx: &mut Cx<'_>, decl: &ast::Table, columns: &mut Vec<TableColumn>) -> usize {
    let inline: Vec<&ast::Column> =
        decl.columns.iter().filter(|column| column.primary_key.is_some()).collect();
    let names: Vec<&ast::Ident> = match (&decl.key, inline.as_slice()) {
        (None, inline) if inline.len() > 1 => {
            let all: Vec<&str> = inline.iter().map(|column| column.name.name.as_str()).collect();
            let diagnostic =
                Diagnostic::error(code::BAD_KEY, format!("`{}` has two primary keys", decl.name.name))
                    .at(inline[1].span, "the second")
                    .with_label(inline[0].span, "the first");
            cx.report(diagnostic.with_help(format!(
                "use one combined key: `PRIMARY KEY ({})` after the columns",
                all.join(", ")
            )));
            vec![&inline[0].name]
        }
        (None, [one]) => vec![&one.name],
        (None, _) => {
            let first = decl.columns.first().map_or("key", |column| column.name.name.as_str());
            let message = format!("`{}` has no primary key", decl.name.name);
            let help = format!("mark the key column: `{first} ... PRIMARY KEY`");
            cx.fault(code::BAD_KEY, message, decl.name.span, "primary key missing", help);
            cx.broken.insert(decl.span);
            Vec::new()
        }
        (Some(clause), inline) => {
            if let Some(column) = inline.first() {
                let diagnostic =
                    Diagnostic::error(code::BAD_KEY, format!("`{}` has two primary keys", decl.name.name))
                        .at(clause.span, "the second")
                        .with_label(column.span, "the first");
                cx.report(diagnostic.with_help("keep one of them"));
            }
            clause.columns.iter().collect()
        }
    };
    let mut n_keys = 0;
    for name in names {
        match columns.iter().position(|column| column.name == name.name) {
            Some(at) if at < n_keys => cx.report_duplicate("key column", name, columns[at].span),
            Some(at) => {
                let column = columns.remove(at);
                columns.insert(n_keys, column);
                n_keys += 1;
            }
            None => {
                let known: Vec<&str> = columns.iter().map(|column| column.name.as_str()).collect();
                let message = format!("table `{}` has no column `{}`", decl.name.name, name.name);
                let diagnostic =
                    Diagnostic::error(code::UNKNOWN_COLUMN, message).at(name.span, "unknown column");
                cx.report(crate::check::suggest::with_nearest(diagnostic, name, known));
                cx.broken.insert(decl.span);
            }
        }
    }
    n_keys
}

/// Reports a column that cannot be part of a key.
fn check_key(cx: &mut Cx<'_>, key: &mut TableColumn) {
    if cx.is_broken(key.span) {
        return;
    }
    let (fault, help) = if key.nullable {
        ("may be NULL, but a key cannot be NULL", "remove the `?`")
    } else if key.ty == Type::F64 {
        ("is an F64, and fractions do not compare reliably", "use an integer, or TEXT")
    } else if key.merge.is_some() {
        ("is merged, but a key cannot change", "remove MERGE")
    } else {
        return;
    };
    let message = format!("key column `{}` {fault}", key.name);
    cx.report(Diagnostic::error(code::BAD_KEY, message).at(key.span, "part of the key").with_help(help));
}

/// Reports a table whose rows or keys are too wide.
fn check_bytes(cx: &mut Cx<'_>, decl: &ast::Table, columns: &[TableColumn], n_keys: usize) {
    let bytes = |columns: &[TableColumn]| -> usize {
        columns.iter().map(|column| column.ty.bytes_max().unwrap_or(8) as usize).sum()
    };
    let (key, row) = (bytes(&columns[..n_keys]), bytes(columns));
    let (what, n_bytes, max) = if key > KEY_BYTES_MAX {
        ("key", key, KEY_BYTES_MAX)
    } else if row > ROW_BYTES_MAX {
        ("row", row, ROW_BYTES_MAX)
    } else {
        return;
    };
    let message = format!("a {what} of `{}` takes {n_bytes} bytes; the limit is {max}", decl.name.name);
    let diagnostic = Diagnostic::error(code::OVER_LIMIT, message).at(decl.name.span, "too large");
    cx.report(diagnostic.with_help("shorten its TEXT(n) and BYTES(n) columns"));
}

/// Checks the options of a table. Returns its limits, which may depend on parameters.
fn options(
    cx: &mut Cx<'_>,
    element: &Element,
    n_rand: &mut u32,
    decl: &ast::Table,
    table: &mut Table,
) -> Bounds {
    let mut bounds = Bounds::default();
    let mut seen: [Option<Span>; 5] = [None; 5];
    let mut ttl_span = None;
    for option in &decl.options {
        let (slot, what) = match &option.kind {
            TableOptionKind::Max { .. } => (0, "MAX"),
            TableOptionKind::Ttl { since: Since::Insert, .. } => (4, "TTL ON INSERT"),
            TableOptionKind::Ttl { .. } => (1, "TTL"),
            TableOptionKind::Filled(..) => (2, "FILLED BY"),
            TableOptionKind::PerWorker => (3, "PER WORKER"),
        };
        if let Some(first) = seen[slot] {
            let diagnostic = Diagnostic::error(code::REPEATED_CLAUSE, format!("{what} is written twice"))
                .at(option.span, "the second")
                .with_label(first, "the first");
            cx.report(diagnostic.with_help("keep one of them"));
            cx.broken.insert(decl.span);
            continue;
        }
        seen[slot] = Some(option.span);
        let mut scope = Scope::new(cx, element, &[], View::Constant, n_rand);
        match &option.kind {
            TableOptionKind::Max { rows, evict } => {
                bounds.rows = scope.value_for(rows, Type::Int(64), false, "a bound");
                table.evict = evict.map(|clause| clause.evict);
            }
            TableOptionKind::Ttl { interval, since } => {
                if matches!(interval.kind, ast::ExprKind::Null) {
                    let help = "remove `TTL` if rows should not expire";
                    cx.fault(code::MAY_BE_NULL, "an age cannot be NULL", interval.span, "NULL", help);
                    cx.broken.insert(decl.span);
                    continue;
                }
                let ttl = scope.value_for(interval, Type::Interval, false, "an age");
                table.ttl_on_access |= *since == Since::Access;
                match since {
                    Since::Insert => bounds.ttl_on_insert = ttl,
                    Since::Access | Since::Write => bounds.ttl = ttl,
                }
                ttl_span = Some(option.span);
            }
            TableOptionKind::Filled(filler, stage) => {
                table.filled = Some(*filler);
                table.stage = stage.as_ref().map(|stage| stage.name.clone());
                match filler {
                    Filler::Controller | Filler::Stage => {}
                    Filler::Cluster => check_members(cx, decl, table, option.span),
                    Filler::Ports => check_ports(cx, decl, table, option.span),
                }
            }
            TableOptionKind::PerWorker => table.per_worker = true,
        }
    }
    if seen[0].is_none() {
        let message = format!("`{}` has no row limit", decl.name.name);
        let help = "add `MAX 100000 ROWS EVICT OLDEST`: memory is allocated before the program runs";
        cx.fault(code::NO_ROWS_MAX, message, decl.name.span, "row limit missing", help);
        cx.broken.insert(decl.span);
    }
    check_conflicts(cx, table, &seen, ttl_span);
    bounds
}

/// Checks that a table of cluster members has a number as key, and a column for the endpoint.
fn check_members(cx: &mut Cx<'_>, decl: &ast::Table, table: &Table, span: Span) {
    let types: Vec<(Type, bool)> = table.columns.iter().map(|column| (column.ty, column.nullable)).collect();
    let is_right = table.n_keys == 1 && types == [(Type::Int(64), false), (Type::Endpoint, false)];
    if is_right || table.columns.iter().any(|column| cx.is_broken(column.span)) || cx.is_broken(decl.span) {
        return;
    }
    let message = format!("`{}` cannot hold the members of a cluster", decl.name.name);
    let diagnostic = Diagnostic::error(code::NOT_FILLABLE, message)
        .at(decl.name.span, "needs a number and an endpoint column")
        .with_label(span, "filled with the members of the chain's cluster")
        .with_help(format!("write `TABLE {} (slot I64 PRIMARY KEY, endpoint ENDPOINT)`", decl.name.name));
    cx.report(diagnostic);
}

/// Checks that a table of ports has their names as key, and nullable columns for device properties.
fn check_ports(cx: &mut Cx<'_>, decl: &ast::Table, table: &Table, span: Span) {
    let (keys, others) = table.columns.split_at(table.n_keys);
    let is_name = |column: &TableColumn| column.name == NAME_COLUMN && matches!(column.ty, Type::Text(_));
    let is_known = |column: &TableColumn| {
        let known = KNOWN_COLUMNS.iter().find(|(name, _)| *name == column.name);
        known.is_some_and(|(_, ty)| column.ty == *ty && column.nullable)
    };
    let is_right = matches!(keys, [key] if is_name(key)) && others.iter().all(is_known);
    if is_right || table.columns.iter().any(|column| cx.is_broken(column.span)) || cx.is_broken(decl.span) {
        return;
    }
    let name = &decl.name.name;
    let diagnostic = Diagnostic::error(code::NOT_FILLABLE, format!("`{name}` cannot hold ports"))
        .at(decl.name.span, "needs a text key, and optional properties of a port")
        .with_label(span, "filled with the ports of the program")
        .with_help(format!("write `TABLE {name} (port TEXT(32) PRIMARY KEY, mtu U16?, mac MAC?)`"));
    cx.report(diagnostic);
}

/// Reports options that contradict FILLED BY.
fn check_conflicts(cx: &mut Cx<'_>, table: &Table, seen: &[Option<Span>; 5], ttl: Option<Span>) {
    let (Some(filled), Some(filler)) = (seen[2], table.filled) else { return };
    let (clause, who) = (filler.clause(), filler.in_words());
    let other = match (table.evict.is_some(), ttl, seen[3]) {
        (true, ..) => seen[0].map(|span| (span, "EVICT", format!("only {who} removes rows"))),
        (_, Some(span), _) if filler != Filler::Controller => {
            Some((span, "TTL", format!("rows stay until {who} removes them")))
        }
        (.., Some(span)) => Some((span, "PER WORKER", format!("{who} fills one table for all workers"))),
        _ => None,
    };
    if let Some((span, what, why)) = other {
        let message = format!("{what} and {clause} exclude each other");
        let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
            .at(span, why)
            .with_label(filled, format!("filled by {who}"));
        cx.report(diagnostic.with_help(format!("remove {what}, or {clause}")));
    }
}

/// The limits as numbers, given the parameters' values; None for a limit with a reported error.
///
/// # Errors
/// A message about the value that is out of range, and its span.
pub(super) fn limits(bounds: &Bounds, params: &[Value]) -> Result<Option<TableLimits>, (String, Span)> {
    let Some(rows) = &bounds.rows else { return Ok(None) };
    let Ok(Value::Int(n)) = fold::fold(rows, params) else { return Err(not_known(rows)) };
    let rows_max = u64::try_from(n).ok().filter(|n| (1..=TABLE_ROWS_MAX).contains(n));
    let Some(rows_max) = rows_max else {
        return Err((format!("a table must have 1 to {TABLE_ROWS_MAX} rows, not {n}"), rows.span));
    };
    let age = |ttl: &Option<Expr>| match ttl {
        None => Ok(None),
        Some(ttl) => match fold::fold(ttl, params) {
            Ok(Value::Int(nanos)) if nanos > 0 => Ok(Some(Interval(nanos))),
            Ok(_) => Err(("an age must be greater than zero".to_owned(), ttl.span)),
            Err(_) => Err(not_known(ttl)),
        },
    };
    let (ttl, ttl_on_insert) = (age(&bounds.ttl)?, age(&bounds.ttl_on_insert)?);
    Ok(Some(TableLimits { rows_max, ttl, ttl_on_insert }))
}

fn not_known(expr: &Expr) -> (String, Span) {
    ("this is not a constant".to_owned(), expr.span)
}

/// The column of a table with this name; reports an error if it is unknown.
pub(super) fn column_of(cx: &mut Cx<'_>, table: &Table, name: &ast::Ident) -> Option<usize> {
    let at = table.columns.iter().position(|column| column.name == name.name);
    if at.is_none() {
        let columns = table.columns.iter().map(|column| column.name.as_str());
        let diagnostic = no_column(&format!("table `{}`", table.name), name, columns);
        cx.report_unless_broken(table.span, diagnostic);
    }
    at
}
