//! `JOIN FIRST`: a condition of tests on columns that can be compiled to rules.

use weft_core::Type;
use weft_core::matching::{MATCH_PARTS_MAX, MatchPart, MatchSpec, Test};
use weft_core::types::Repr;

use super::expr::{Environment, article};
use super::query::{conjuncts, mentions};
use super::scope::{ColumnVisibility, Scope};
use crate::ast;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{CompareOp, Expr, ExprKind, Function, Join, RowId, TableRef};

/// A test of a row's column, and the value that it is compared with.
struct RowTest {
    test: MatchPart,
    value: Expr,
}

/// Why a part of a condition is not a test.
enum MatchError {
    /// It does not read the row.
    Elsewhere,
    /// The value reads the row too.
    BothSides,
    /// It is none of the shapes.
    Shape,
    /// The test does not support values of this type.
    Type(Type),
}

/// Checks JOIN FIRST: the join of `input` with the first row that satisfies `on`.
pub(super) fn join_first(
    scope: &mut Scope<'_, '_>,
    join: &ast::Join,
    table: TableRef,
    first: &ast::First,
    on: &ast::Expr,
) -> Option<Join> {
    let row = scope.rows.add(table, false);
    let alias = join.alias.as_ref().unwrap_or(&join.table).name.clone();
    scope.rows.show(&alias, row, ColumnVisibility::Joined(Vec::new()));
    let by = order_of(scope, table, row, first);
    let condition = scope.condition(on);
    scope.rows.set_optional(row, join.left.is_some());
    let is_matchable = check_matchable(scope, table, join);
    let parts = parts(scope, row, &alias, condition?)?;
    let (by, ()) = (by?, is_matchable?);
    let (tests, key) = parts.into_iter().map(|part| (part.test, part.value)).unzip();
    let spec = MatchSpec { by, descending: first.descending, parts: tests };
    if spec.parts.len() > MATCH_PARTS_MAX || !spec.fits() {
        let message = format!("the rules of `{alias}` have too many tests");
        return Diagnostic::error(code::OVER_LIMIT, message)
            .at(on.span, format!("{} tests", spec.parts.len()))
            .with_note(format!(
                "at most {MATCH_PARTS_MAX} tests fit, at most 3 of them on networks, and fewer next to long numbers"
            ))
            .with_help("move some of them to WHERE").refuse(scope.cx);
    }
    let left = join.left.is_some();
    Some(Join { table, row, first: Some(spec), key, condition: None, left, span: join.span })
}

/// Returns the column that orders the rules of JOIN FIRST.
fn order_of(scope: &mut Scope<'_, '_>, table: TableRef, row: RowId, first: &ast::First) -> Option<u16> {
    let at = scope.column_of(table, &first.by)?;
    let column = scope.row_column(row, at, first.by.span)?;
    if column.ty.repr() == Repr::Int && column.ty != Type::Status {
        return Some(at as u16);
    }
    let message = format!("rules are ordered by a number, but `{}` is {}", first.by.name, article(column.ty));
    Diagnostic::error(code::TYPE_MISMATCH, message)
        .at(first.by.span, format!("{}", column.ty))
        .with_help("order them by an integer, a TIMESTAMP or an INTERVAL")
        .refuse(scope.cx)
}

/// Reports a JOIN FIRST over a table that handlers write.
fn check_matchable(scope: &mut Scope<'_, '_>, table: TableRef, join: &ast::Join) -> Option<()> {
    let table = scope.table(table);
    if table.filled.is_some() {
        return Some(());
    }
    let message =
        format!("JOIN FIRST needs a table filled by the controller, but handlers write `{}`", table.name);
    let diagnostic = Diagnostic::error(code::NOT_MATCHABLE, message)
        .at(join.table.span, "not FILLED BY CONTROLLER")
        .with_label(table.span, "declared here")
        .with_help("declare it `FILLED BY CONTROLLER`")
        .with_help(format!(
            "or scan its rows: `(SELECT argmin(a, b) FROM SCAN {} MAX 1000 ...)`",
            table.name
        ));
    scope.cx.report_unless_broken(table.span, diagnostic);
    None
}

/// Splits the condition of a JOIN FIRST into row tests. Reports each part that is not a test.
fn parts(scope: &mut Scope<'_, '_>, row: RowId, alias: &str, condition: Expr) -> Option<Vec<RowTest>> {
    let mut conditions = Vec::new();
    conjuncts(condition, &mut conditions);
    let mut parts: Vec<RowTest> = Vec::new();
    let mut is_whole = true;
    for condition in conditions {
        match part(row, &condition) {
            Ok(part) => add(&mut parts, part),
            Err(error) => {
                is_whole = false;
                report_error(scope, alias, &condition, &error);
            }
        }
    }
    is_whole.then_some(parts)
}

/// Reports a condition that cannot be compiled to a row test.
fn report_error(scope: &mut Scope<'_, '_>, alias: &str, condition: &Expr, error: &MatchError) {
    let label = match error {
        MatchError::Elsewhere => format!("does not read `{alias}`"),
        MatchError::BothSides => format!("both sides read `{alias}`"),
        MatchError::Shape => "not one of the supported tests".to_owned(),
        MatchError::Type(ty) => format!("this test does not support {}", article(*ty)),
    };
    let diagnostic = Diagnostic::error(code::NOT_A_MATCH, "this condition cannot be compiled to rules")
        .at(condition.span, label)
        .with_note(format!(
            "it is made of tests, with AND between them: `e = {alias}.c`, `e IN {alias}.c`, \
             `e BETWEEN {alias}.a AND {alias}.b`, `{alias}.c <= e`, `e <= {alias}.c`, `e & {alias}.m = {alias}.c`"
        ))
        .with_note(format!(
            "any test may be `({alias}.c IS NULL OR ...)`; `e` must not read `{alias}`"
        ))
        .with_help("move other tests to WHERE, which is evaluated on the first matching row");
    scope.cx.report(match error {
        MatchError::BothSides => {
            diagnostic.with_help(format!("an unqualified name that `{alias}` has is its column"))
        }
        _ => diagnostic,
    });
}

/// Appends a test, or merges it with the other bound of the same range.
fn add(parts: &mut Vec<RowTest>, part: RowTest) {
    let is_other_side = |known: &&mut RowTest| {
        // The alternate form omits spans.
        known.test.wildcard.is_none() && format!("{:#?}", known.value) == format!("{:#?}", part.value)
    };
    if let (Test::Range { low, high }, None) = (part.test.test, part.test.wildcard) {
        for known in parts.iter_mut().filter(is_other_side) {
            if let Test::Range { low: known_low, high: known_high } = &mut known.test.test
                && (known_low.is_none() || low.is_none())
                && (known_high.is_none() || high.is_none())
            {
                (*known_low, *known_high) = (known_low.or(low), known_high.or(high));
                return;
            }
        }
    }
    parts.push(part);
}

/// A test, optionally with a wildcard before or after it.
fn part(row: RowId, condition: &Expr) -> Result<RowTest, MatchError> {
    let ExprKind::Or(left, right) = &condition.kind else { return test(row, condition) };
    let (wildcard, tested) = match (null_column(row, left), null_column(row, right)) {
        (Some(column), _) => (column, right),
        (None, Some(column)) => (column, left),
        (None, None) => return Err(MatchError::Shape),
    };
    let mut part = test(row, tested)?;
    part.test.wildcard = Some(wildcard);
    if part.test.is_sound() { Ok(part) } else { Err(MatchError::Shape) }
}

/// Compiles one condition to a row test.
fn test(row: RowId, condition: &Expr) -> Result<RowTest, MatchError> {
    if !mentions(condition, row) {
        return Err(MatchError::Elsewhere);
    }
    let (test, value): (Test, &Expr) = match &condition.kind {
        ExprKind::Compare { op: CompareOp::Eq, left, right } => match (column(row, left), column(row, right))
        {
            (Some(bits), None) if mentions(right, row) => masked(row, right, bits)?,
            (None, Some(bits)) if mentions(left, row) => masked(row, left, bits)?,
            (Some(column), _) => (Test::Equal(column), right),
            (None, Some(column)) => (Test::Equal(column), left),
            (None, None) => return Err(MatchError::Shape),
        },
        ExprKind::Compare { op: CompareOp::Le, left, right } => at_most(row, left, right)?,
        ExprKind::Compare { op: CompareOp::Ge, left, right } => at_most(row, right, left)?,
        ExprKind::Between { operand, low, high } => match (column(row, low), column(row, high)) {
            (Some(low), Some(high)) => (Test::Range { low: Some(low), high: Some(high) }, operand),
            _ => return Err(MatchError::Shape),
        },
        ExprKind::Function { function: Function::InPrefix, args } => match args.as_slice() {
            [address, net] => (Test::Within(column(row, net).ok_or(MatchError::Shape)?), address),
            _ => return Err(MatchError::Shape),
        },
        _ => return Err(MatchError::Shape),
    };
    if mentions(value, row) {
        return Err(MatchError::BothSides);
    }
    let test = MatchPart { test, wildcard: None, ty: value.ty, nullable: value.nullable };
    match test.is_sound() {
        true => Ok(RowTest { test, value: Expr::clone(value) }),
        false => Err(MatchError::Type(value.ty)),
    }
}

/// `e & mask` in either order, compared with the column `bits`.
fn masked(row: RowId, masked: &Expr, bits: u16) -> Result<(Test, &Expr), MatchError> {
    let inner = if let ExprKind::Widen(inner) = &masked.kind { inner } else { masked };
    let ExprKind::Function { function: Function::BitAnd, args } = &inner.kind else {
        return Err(MatchError::BothSides);
    };
    let [left, right] = args.as_slice() else { return Err(MatchError::Shape) };
    match (column(row, left), column(row, right)) {
        (None, Some(mask)) => Ok((Test::Masked { mask, bits }, left)),
        (Some(mask), None) => Ok((Test::Masked { mask, bits }, right)),
        _ => Err(MatchError::BothSides),
    }
}

/// `low <= high`, where one side is a column.
fn at_most<'e>(row: RowId, low: &'e Expr, high: &'e Expr) -> Result<(Test, &'e Expr), MatchError> {
    match (column(row, low), column(row, high)) {
        (low @ Some(_), _) => Ok((Test::Range { low, high: None }, high)),
        (None, high @ Some(_)) => Ok((Test::Range { low: None, high }, low)),
        (None, None) => Err(MatchError::Shape),
    }
}

/// The row's column in an expression, possibly widened.
fn column(row: RowId, expr: &Expr) -> Option<u16> {
    let inner = if let ExprKind::Widen(inner) = &expr.kind { inner } else { expr };
    match inner.kind {
        ExprKind::RowColumn { row: of, column } if of == row => Some(column as u16),
        _ => None,
    }
}

/// The column of `c IS NULL`.
fn null_column(row: RowId, expr: &Expr) -> Option<u16> {
    let ExprKind::IsNull(inner) = &expr.kind else { return None };
    column(row, inner)
}
