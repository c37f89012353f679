//! Checks MARK: values that an element passes with a tuple to the queues.

use weft_core::Type;
use weft_core::marks::Mark;

use super::all;
use super::expr::Environment;
use super::scope::Scope;
use crate::ast::{self, Assign};
use crate::check::suggest::with_nearest;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{ArithOp, Expr, ExprKind, Function, HandlerKind, StmtKind};
use crate::source::Span;

/// The fields of MARK, with the names that queues use for them.
#[derive(Clone, Copy)]
enum MarkField {
    Class,
    Remaining,
    Slack,
    Deadline,
}

const MARK_FIELDS: &[(&str, MarkField, Type)] = &[
    (ast::MARK_CLASS, MarkField::Class, Type::Uint(32)),
    ("remaining", MarkField::Remaining, Type::Size),
    ("slack", MarkField::Slack, Type::Interval),
    ("deadline", MarkField::Deadline, Type::Timestamp),
];

/// The names, each with its type.
pub(crate) fn names() -> impl Iterator<Item = (&'static str, Type)> {
    MARK_FIELDS.iter().map(|(name, _, ty)| (*name, *ty))
}

/// Checks MARK and its fields.
pub(super) fn mark(scope: &mut Scope<'_, '_>, fields: &[Assign], span: Span) -> Option<StmtKind> {
    check_mark(scope, span)?;
    let values = fields.iter().enumerate().map(|(at, field)| mark_field(scope, field, &fields[..at]));
    Some(StmtKind::Mark { fields: all(values)? })
}

/// Checks that the handler permits MARK.
fn check_mark(scope: &mut Scope<'_, '_>, span: Span) -> Option<()> {
    if scope.view == View::Handler(HandlerKind::Response) {
        return Diagnostic::error(code::ACTION_NOT_HERE, "MARK has no effect in ON RESPONSE")
            .at(span, "only requests pass through links and queues")
            .with_help("use MARK in ON OPEN or ON REQUEST")
            .refuse(scope.cx);
    }
    crate::check::action::check_action(scope, &[HandlerKind::Open, HandlerKind::Request], "MARK", span)
}

/// Checks one field of a MARK. `before` are the fields that precede it.
fn mark_field(scope: &mut Scope<'_, '_>, field: &Assign, before: &[Assign]) -> Option<(Mark, Expr)> {
    let name = &field.name;
    let Some((_, mark_field, ty)) = MARK_FIELDS.iter().find(|(known, ..)| *known == name.name) else {
        let message = format!("MARK has no field `{}`", name.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OPTION, message)
            .at(name.span, "not a field of MARK")
            .with_help("its fields are class, remaining, slack and deadline");
        scope.cx.report(with_nearest(diagnostic, name, names().map(|(known, _)| known)));
        scope.expr(&field.value, None);
        return None;
    };
    let is_when = |name: &str| name == "slack" || name == "deadline";
    let is_same =
        |other: &&Assign| other.name.name == name.name || is_when(&other.name.name) && is_when(&name.name);
    if let Some(first) = before.iter().find(is_same) {
        let message = match first.name.name == name.name {
            true => format!("`{}` is set twice", name.name),
            false => "slack and deadline set the same value".to_owned(),
        };
        return Diagnostic::error(code::DUPLICATE_NAME, message)
            .at(name.span, "the second")
            .with_label(first.name.span, "the first")
            .with_help("remove one of them")
            .refuse(scope.cx);
    }
    mark_value(scope, *mark_field, *ty, &field.value)
}

/// Checks the value of a mark field. A slack becomes a deadline.
fn mark_value(
    scope: &mut Scope<'_, '_>,
    mark_field: MarkField,
    ty: Type,
    value: &ast::Expr,
) -> Option<(Mark, Expr)> {
    let mut value_for = |whose| scope.value_for(value, ty, false, whose);
    match mark_field {
        MarkField::Class => Some((Mark::Class, value_for("a mark")?)),
        MarkField::Remaining => Some((Mark::Remaining, bytes_left(scope, value)?)),
        MarkField::Deadline => Some((Mark::Deadline, value_for("a deadline")?)),
        MarkField::Slack => Some((Mark::Deadline, deadline_from_slack(value_for("a slack")?))),
    }
}

/// A SIZE, or a number of bytes.
fn bytes_left(scope: &mut Scope<'_, '_>, value: &ast::Expr) -> Option<Expr> {
    const WHOSE: &str = "a number of bytes";
    let bytes = scope.expr(value, Some(Type::Size))?;
    let ty = if bytes.ty == Type::Size { Type::Size } else { Type::Uint(64) };
    let bytes = scope.coerce(bytes, ty)?;
    scope.never_null(bytes, ty, WHOSE)
}

/// `now() + slack`
fn deadline_from_slack(slack: Expr) -> Expr {
    let span = slack.span;
    let of = |kind, fallible| Expr { kind, ty: Type::Timestamp, nullable: false, fallible, span };
    let now = of(ExprKind::Function { function: Function::Now, args: Vec::new() }, false);
    of(ExprKind::Arith { op: ArithOp::Add, left: Box::new(now), right: Box::new(slack) }, true)
}
