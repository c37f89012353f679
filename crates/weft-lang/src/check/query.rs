//! Checks table reads: lookup by key, join, and scan. A lookup must fix the whole key by equality; a `SCAN` must have a
//! limit.

use weft_core::limits::{JOINS_MAX, SCAN_ROWS_MAX};
use weft_core::{Type, Value};

use super::expr::{Environment, and, article};
use super::scope::{ColumnVisibility, Scope, View, leaf};
use super::walk::each_expr;
use super::{all, fold, functions, matching};
use crate::ast::{self, ExprKind as Ast, Ident, JoinCondition, SelectItem};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Aggregate, CompareOp, Expr, ExprKind, Find, HandlerKind, Join, LocalId, Query, RowId, TableRef,
};
use crate::source::Span;
use crate::types;

impl Scope<'_, '_> {
    /// Runs `check` while the columns of a table's row take precedence over other names.
    pub(super) fn with_row<T>(
        &mut self,
        table: TableRef,
        alias: &str,
        check: impl FnOnce(&mut Self, RowId) -> T,
    ) -> (RowId, T) {
        let n_visible_rows = self.rows.visible().len();
        let row = self.rows.add(table, false);
        self.rows.show(alias, row, ColumnVisibility::First);
        let result = check(self, row);
        self.rows.hide_after(n_visible_rows);
        (row, result)
    }
}

/// Splits a condition on a row into the key that it determines and the remaining condition.
pub(super) fn split_key(
    scope: &mut Scope<'_, '_>,
    row: RowId,
    condition: Option<Expr>,
    span: Span,
) -> Option<(Vec<Expr>, Option<Expr>)> {
    let table = scope.table(scope.rows.get(row).table);
    let mut parts = Vec::new();
    if let Some(condition) = condition {
        conjuncts(condition, &mut parts);
    }
    let mut key = Vec::new();
    let mut missing = Vec::new();
    for (at, column) in table.columns[..table.n_keys].iter().enumerate() {
        let found = parts.iter().position(|part| fixes(part, row, at));
        match found {
            Some(index) => key.push(other_side(scope, parts.remove(index), row, column.ty)?),
            None => missing.push(column.name.as_str()),
        }
    }
    if !missing.is_empty() {
        let keys: Vec<&str> = table.columns[..table.n_keys].iter().map(|c| c.name.as_str()).collect();
        let message = format!("this condition does not determine the key of `{}`", table.name);
        let diagnostic = Diagnostic::error(code::KEY_NOT_COVERED, message)
            .at(span, format!("`{}` is not compared with =", missing.join("`, `")))
            .with_label(table.span, format!("its key is ({})", keys.join(", ")));
        let diagnostic = match shadowing_let(scope, &missing, &parts) {
            Some(local) => {
                let (name, alias) = (&local.name, alias_of(scope, row));
                diagnostic
                    .with_label(local.span, format!("`{name}` refers to this LET, which hides the column"))
                    .with_help(format!("write `{alias}.{name} = ...` for the column, or rename the other"))
            }
            None => {
                let equalities: Vec<String> = missing.iter().map(|name| format!("{name} = ...")).collect();
                diagnostic
                    .with_help(format!("add `{}`", equalities.join(" AND ")))
                    .with_help(format!("or scan the rows: `SCAN {} MAX 1000 ...`", table.name))
            }
        };
        scope.cx.report_unless_broken(table.span, diagnostic);
        return None;
    }
    Some((key, parts.into_iter().reduce(and)))
}

/// Finds a LET that hides one of these columns in a condition.
fn shadowing_let<'s>(scope: &'s Scope<'_, '_>, columns: &[&str], conditions: &[Expr]) -> Option<&'s Ident> {
    let is_looked_at = |id| {
        let mut found = false;
        let mut look = |part: &Expr| found |= part.kind == ExprKind::Local(id);
        conditions.iter().for_each(|condition| each_expr(condition, &mut look));
        found
    };
    let hides = |(name, local): &&(Ident, Option<LocalId>)| {
        columns.contains(&name.name.as_str()) && local.is_some_and(is_looked_at)
    };
    scope.locals.visible().iter().rev().find(hides).map(|(name, _)| name)
}

fn alias_of<'s>(scope: &'s Scope<'_, '_>, row: RowId) -> &'s str {
    let table = &scope.table(scope.rows.get(row).table).name;
    scope.rows.visible().iter().find(|visible| visible.row == row).map_or(table, |visible| &visible.alias)
}

/// Returns the operand that a key column is compared with, as a value of the key's type.
fn other_side(scope: &mut Scope<'_, '_>, part: Expr, row: RowId, key_ty: Type) -> Option<Expr> {
    let ExprKind::Compare { left, right, .. } = part.kind else { return None };
    let (own, other) = if mentions(&left, row) { (left, right) } else { (right, left) };
    if let ExprKind::Widen(_) = own.kind {
        // The other side may have values that no key has.
        return scope.coerce(*other, key_ty);
    }
    Some(*other)
}

// ---- in statements -----------------------------------------------------------------------------------------

/// The joins and filter of `SELECT ... FROM input`. The joined rows stay visible until the caller hides them.
pub(super) fn query(scope: &mut Scope<'_, '_>, select: &ast::Select) -> Option<Query> {
    let joins = all(select.joins.iter().map(|join| join_row(scope, join)));
    let filter = scope.condition_if(select.filter.as_ref());
    Some(Query { joins: joins?, filter: filter? })
}

/// Checks a JOIN and makes its row visible. At most [`JOINS_MAX`] rows are visible at one point.
fn join_row(scope: &mut Scope<'_, '_>, join: &ast::Join) -> Option<Join> {
    // Each name is looked up in all of them.
    if scope.rows.visible().len() >= JOINS_MAX {
        let message = format!("more than {JOINS_MAX} joined rows are visible at one point");
        let help = "join inside an IF block: its rows end with the block";
        return scope.cx.refuse(code::OVER_LIMIT, message, join.span, "one too many", help);
    }
    let table = scope.table_ref(&join.table)?;
    let left = join.left.is_some();
    let alias = join.alias.as_ref().unwrap_or(&join.table);
    if let Some(known) = scope.rows.visible().iter().find(|visible| {
        visible.alias == alias.name && matches!(visible.visibility, ColumnVisibility::Joined(_))
    }) {
        let message = format!("two joined tables are named `{}`", known.alias);
        let help = format!("give this table an alias: `JOIN {} other ...`", join.table.name);
        return scope.cx.refuse(code::DUPLICATE_NAME, message, alias.span, "the second", help);
    }
    if let (Some(first), JoinCondition::On(on)) = (&join.first, &join.condition) {
        return matching::join_first(scope, join, table, first, on);
    }
    let row = scope.rows.add(table, false);
    let using = match &join.condition {
        JoinCondition::Using(columns) => columns.iter().map(|column| column.name.clone()).collect(),
        JoinCondition::On(_) => Vec::new(),
    };
    let condition = match &join.condition {
        JoinCondition::Using(columns) => {
            let parts = all(columns.iter().map(|column| using_column(scope, table, row, column)));
            scope.rows.show(&alias.name, row, ColumnVisibility::Joined(using));
            parts.map(|parts| parts.into_iter().reduce(and))
        }
        JoinCondition::On(on) => {
            scope.rows.show(&alias.name, row, ColumnVisibility::Joined(using));
            scope.condition(on).map(Some)
        }
    };
    let split = condition.and_then(|condition| split_key(scope, row, condition, join.span));
    scope.rows.set_optional(row, left);
    let (key, condition) = split?;
    Some(Join { table, row, first: None, key, condition, left, span: join.span })
}

/// Checks `USING (c)`: the table's column equals that of `input`.
fn using_column(scope: &mut Scope<'_, '_>, table: TableRef, row: RowId, column: &Ident) -> Option<Expr> {
    let at = scope.column_of(table, column);
    let input = scope.input_column(column)?;
    let own = scope.row_column(row, at?, column.span)?;
    let Some(ty) = types::common(own.ty, input.ty) else {
        let message = format!(
            "`{}` is {} in the table and {} in input",
            column.name,
            article(own.ty),
            article(input.ty)
        );
        let help = "give both the same type, or write `ON` with a CAST";
        return scope.cx.refuse(code::TYPE_MISMATCH, message, column.span, "cannot be compared", help);
    };
    let (left, right) = (scope.coerce(own, ty)?, scope.coerce(input, ty)?);
    let nullable = left.nullable || right.nullable;
    let kind = ExprKind::Compare { op: CompareOp::Eq, left: Box::new(left), right: Box::new(right) };
    Some(Expr { kind, ty: Type::Bool, nullable, fallible: false, span: column.span })
}

/// The bound of a SCAN.
pub(super) fn scan_rows_max(scope: &mut Scope<'_, '_>, ast: &ast::Expr) -> Option<u64> {
    bound_of(scope, ast, ("a SCAN", "rows"), SCAN_ROWS_MAX)
}

/// The limit of a scan or a list expression.
pub(super) fn bound_of(
    scope: &mut Scope<'_, '_>,
    ast: &ast::Expr,
    (looks, things): (&str, &str),
    most: u64,
) -> Option<u64> {
    let expr = scope.typed(ast, Type::Int(64))?;
    let Ok(Value::Int(n)) = fold::fold(&expr, &[]) else {
        return scope.not_constant(ast.span, &format!("write the number of {things}: `MAX 1000`"));
    };
    let fits = u64::try_from(n).ok().filter(|n| (1..=most).contains(n));
    if fits.is_none() {
        let message = format!("{looks} reads 1 to {most} {things}");
        return scope.report_at(ast.span, code::OVER_LIMIT, message, "outside the limits");
    }
    fits
}

// ---- in expressions ----------------------------------------------------------------------------------------

/// Checks `(SELECT e FROM t WHERE ...)`: a lookup by key, or an aggregate over a SCAN.
pub(super) fn subselect(
    scope: &mut Scope<'_, '_>,
    select: &ast::Subselect,
    want: Option<Type>,
    span: Span,
) -> Option<Expr> {
    if select.scan_max.is_some() {
        return aggregate(scope, select, span);
    }
    let table = table_of(scope, select)?;
    let (row, (value, split)) = scope.with_row(table, &select.table.name, |scope, row| {
        let value = selected(scope, select, want);
        (value, found(scope, select, row))
    });
    let (value, (key, condition)) = (value?, split?);
    let parts = key.iter().chain(&condition).chain([&value]);
    let fallible = parts.into_iter().any(|part| part.fallible);
    let ty = value.ty;
    let find = Box::new(Find { table, row, key, condition });
    let kind = ExprKind::Lookup { find, value: Box::new(value) };
    Some(Expr { kind, ty, nullable: true, fallible, span })
}

/// Checks `EXISTS (SELECT ...)`: a lookup by key, or a SCAN.
pub(super) fn exists(scope: &mut Scope<'_, '_>, select: &ast::Subselect, span: Span) -> Option<Expr> {
    let table = table_of(scope, select)?;
    if let Some(max) = &select.scan_max {
        let rows_max = scan_rows_max(scope, max);
        let (row, filter) =
            scope.with_row(table, &select.table.name, |scope, _| scope.condition_if(select.filter.as_ref()));
        let (rows_max, filter) = (rows_max?, filter?);
        let fallible = filter.as_ref().is_some_and(|filter| filter.fallible);
        let filter = filter.map(Box::new);
        let kind = ExprKind::Aggregate { table, row, rows_max, filter, aggregate: Aggregate::Any };
        return Some(Expr { kind, ty: Type::Bool, nullable: false, fallible, span });
    }
    let (row, split) = scope.with_row(table, &select.table.name, |scope, row| found(scope, select, row));
    let (key, condition) = split?;
    let fallible = key.iter().chain(&condition).any(|part| part.fallible);
    let kind = ExprKind::Exists(Box::new(Find { table, row, key, condition }));
    Some(Expr { kind, ty: Type::Bool, nullable: false, fallible, span })
}

/// Finds the table of a subselect. Reports a subselect outside of a handler.
fn table_of(scope: &mut Scope<'_, '_>, select: &ast::Subselect) -> Option<TableRef> {
    if !matches!(scope.view, View::Handler(_)) {
        let message = format!("tables cannot be read in {}", scope.words());
        return scope.report_at(select.span, code::NAME_NOT_HERE, message, "tables can be read in handlers");
    }
    scope.table_ref(&select.table)
}

/// Checks the selected value of a subselect. `*` is an error.
fn selected(scope: &mut Scope<'_, '_>, select: &ast::Subselect, want: Option<Type>) -> Option<Expr> {
    match &select.item {
        SelectItem::Value { value, .. } => scope.expr(value, want),
        SelectItem::Star(span) => {
            let message = "expected a single value, but `*` is a row";
            let help = "name the column: `(SELECT column FROM ...)`";
            scope.cx.refuse(code::TYPE_MISMATCH, message, *span, "which column?", help)
        }
    }
}

fn found(
    scope: &mut Scope<'_, '_>,
    select: &ast::Subselect,
    row: RowId,
) -> Option<(Vec<Expr>, Option<Expr>)> {
    let filter = scope.condition_if(select.filter.as_ref())?;
    split_key(scope, row, filter, select.span)
}

/// Checks an aggregate over a SCAN.
fn aggregate(scope: &mut Scope<'_, '_>, select: &ast::Subselect, span: Span) -> Option<Expr> {
    let table = table_of(scope, select)?;
    let rows_max = scan_rows_max(scope, select.scan_max.as_ref()?);
    let (row, (filter, aggregate)) = scope.with_row(table, &select.table.name, |scope, _| {
        (scope.condition_if(select.filter.as_ref()), aggregate_of(scope, select))
    });
    let (rows_max, filter, (aggregate, ty, is_fallible)) = (rows_max?, filter?, aggregate?);
    let nullable = aggregate != Aggregate::Count;
    let fallible = is_fallible || filter.as_ref().is_some_and(|filter| filter.fallible);
    let kind = ExprKind::Aggregate { table, row, rows_max, filter: filter.map(Box::new), aggregate };
    Some(Expr { kind, ty, nullable, fallible, span })
}

/// The aggregate, its type, and whether it may fail.
fn aggregate_of(scope: &mut Scope<'_, '_>, select: &ast::Subselect) -> Option<(Aggregate, Type, bool)> {
    let SelectItem::Value { value, .. } = &select.item else { return no_aggregate(scope, select.span) };
    if !is_aggregate(value) {
        return no_aggregate(scope, value.span);
    }
    aggregate_call(scope, value)
}

/// Checks a call of an aggregate, like [`Self::aggregate_of`].
pub(super) fn aggregate_call(
    scope: &mut Scope<'_, '_>,
    value: &ast::Expr,
) -> Option<(Aggregate, Type, bool)> {
    let Ast::Call { function, args, star } = &value.kind else { return None };
    let name = function.name.to_ascii_lowercase();
    match (name.as_str(), args.as_slice(), star) {
        ("count", [], Some(_)) => Some((Aggregate::Count, Type::Int(64), false)),
        ("argmin" | "argmax", [result, by], None) => {
            let (result, by) = (scope.expr(result, None), scope.expr(by, None));
            let (result, by) = (Box::new(result?), Box::new(by?));
            check_measure(
                scope,
                &by,
                types::is_ordered(by.ty),
                "argmin and argmax need a value with an order",
            )?;
            let (ty, fallible) = (result.ty, result.fallible || by.fallible);
            let aggregate = match name.as_str() {
                "argmin" => Aggregate::ArgMin { result, by },
                _ => Aggregate::ArgMax { result, by },
            };
            Some((aggregate, ty, fallible))
        }
        ("sum" | "min" | "max" | "avg", [arg], None) => {
            let arg = Box::new(scope.expr(arg, None)?);
            let (ty, fallible) = (arg.ty, arg.fallible);
            let is_summable = types::is_number(ty) || ty == Type::Interval;
            match name.as_str() {
                "sum" => {
                    check_measure(scope, &arg, is_summable, "sum takes numbers and intervals")?;
                    Some((Aggregate::Sum(arg), ty, true))
                }
                "avg" => {
                    check_measure(scope, &arg, types::is_number(ty), "avg takes numbers")?;
                    Some((Aggregate::Avg(arg), Type::F64, true))
                }
                least_or_greatest => {
                    check_measure(scope, &arg, types::is_ordered(ty), "min and max take ordered values")?;
                    let is_min = least_or_greatest == "min";
                    let aggregate = if is_min { Aggregate::Min(arg) } else { Aggregate::Max(arg) };
                    Some((aggregate, ty, fallible))
                }
            }
        }
        _ => {
            let message = format!("`{name}` does not take these arguments");
            let help = "count(*), sum(e), min(e), max(e), avg(e), argmin(result, by), argmax(result, by)";
            scope.cx.refuse(code::BAD_ARGUMENTS, message, value.span, "wrong arguments", help)
        }
    }
}

/// Reports an aggregated value whose type the aggregate does not take.
fn check_measure(scope: &mut Scope<'_, '_>, expr: &Expr, fits: bool, rule: &str) -> Option<()> {
    if !fits {
        let label = format!("this is {}", article(expr.ty));
        return scope.report_at(expr.span, code::TYPE_MISMATCH, rule.to_owned(), &label);
    }
    Some(())
}

/// Reports a SCAN that is not aggregated to one value.
fn no_aggregate<T>(scope: &mut Scope<'_, '_>, span: Span) -> Option<T> {
    let message = "a SCAN returns many rows, but a single value is expected";
    let help = "use an aggregate: count(*), sum(e), min(e), max(e), avg(e), argmin(result, by)";
    scope.cx.refuse(code::TYPE_MISMATCH, message, span, "not an aggregate", help)
}

/// Whether `input` is available; reports an error otherwise.
pub(super) fn check_input(scope: &mut Scope<'_, '_>, span: Span) -> Option<()> {
    let View::Handler(kind) = scope.view else { return None };
    if !kind.is_timed() && kind != HandlerKind::Error {
        return Some(());
    }
    let message = format!("`input` is not available in {}", scope.words());
    let help = "use IF with `EXISTS (SELECT ...)`, or INSERT ... VALUES";
    scope.cx.refuse(code::ACTION_NOT_HERE, message, span, "selects from input", help)
}

/// A typed NULL for an omitted value.
pub(super) fn null_of(ty: Type, span: Span) -> Expr {
    leaf(ExprKind::Const(Value::Null), ty, true, span)
}

/// Whether an expression is `count(*)`, `sum(e)` or the like.
pub(super) fn is_aggregate(value: &ast::Expr) -> bool {
    matches!(&value.kind, Ast::Call { function, .. }
        if functions::AGGREGATES.contains(&function.name.to_ascii_lowercase().as_str()))
}

/// Takes `a AND b AND c` apart.
pub(super) fn conjuncts(expr: Expr, parts: &mut Vec<Expr>) {
    match expr.kind {
        ExprKind::And(left, right) => {
            conjuncts(*left, parts);
            conjuncts(*right, parts);
        }
        _ => parts.push(expr),
    }
}

/// Whether a condition is `row.column = e` (in either order), where `e` does not read the row.
fn fixes(part: &Expr, row: RowId, column: usize) -> bool {
    let ExprKind::Compare { op: CompareOp::Eq, left, right } = &part.kind else { return false };
    let is_column = |side: &Expr| {
        let inner = if let ExprKind::Widen(inner) = &side.kind { inner } else { side };
        inner.kind == ExprKind::RowColumn { row, column }
    };
    (is_column(left) && !mentions(right, row)) || (is_column(right) && !mentions(left, row))
}

/// Whether an expression reads a row.
pub(super) fn mentions(expr: &Expr, row: RowId) -> bool {
    let mut found = false;
    each_expr(expr, &mut |part| {
        found |= matches!(part.kind, ExprKind::RowColumn { row: other, .. } if other == row);
    });
    found
}
