//! Checks guards: `SELECT ... FROM input`.

use super::{named_place, verdict};
use crate::ast::{self, SelectItem};
use crate::check::expr::{Environment, constant};
use crate::check::query;
use crate::check::scope::{Scope, View};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{AssignTarget, Direction, Expr, HandlerKind, StmtKind, Verdict, VerdictKind};
use crate::source::Span;
use weft_core::{Status, Type, Value};

/// Checks a guard `SELECT ... FROM input`: the query, its assignments, and the verdict for calls without a row.
pub(super) fn guard(scope: &mut Scope<'_, '_>, guard: &ast::Guard, span: Span) -> Option<StmtKind> {
    query::check_input(scope, guard.select.span)?;
    if scope.view == View::Handler(HandlerKind::Close) {
        let message = "a guard in ON CLOSE has no effect";
        let help = "use IF, or INSERT ... SELECT ... FROM input";
        return scope.cx.refuse(code::ACTION_NOT_HERE, message, span, "the call has already ended", help);
    }
    let n_visible_rows = scope.rows.visible().len();
    let query = query::query(scope, &guard.select);
    let set = selected_items(scope, &guard.select.items);
    scope.rows.qualify_after(n_visible_rows);
    let otherwise = guard_else(scope, guard, span);
    Some(StmtKind::Guard { query: query?, set: set?, otherwise: otherwise? })
}

/// Checks the assignments of a guard's items: `e AS c` sets column c; `*` and a plain column set nothing.
fn selected_items(scope: &mut Scope<'_, '_>, items: &[SelectItem]) -> Option<Vec<(AssignTarget, Expr)>> {
    let mut set: Option<Vec<(AssignTarget, Expr)>> = Some(Vec::new());
    for item in items {
        let SelectItem::Value { value, alias } = item else { continue };
        let changed = match (alias, &value.kind) {
            (None, ast::ExprKind::Path(_)) => {
                if scope.expr(value, None).is_none() {
                    set = None;
                }
                continue;
            }
            (None, _) => Diagnostic::error(code::WRITE_NOT_HERE, "this value is not used")
                .at(value.span, "no name")
                .with_help("name the column to set: `e AS column`")
                .refuse(scope.cx),
            (Some(name), _) => {
                let path = ast::Path { segments: vec![name.clone()], span: name.span };
                named_place(scope, &path).and_then(|(place, ty, nullable, whose)| {
                    Some((place, scope.value_for(value, ty, nullable, &whose)?))
                })
            }
        };
        set = match (set, changed) {
            (Some(mut set), Some(changed)) => {
                set.push(changed);
                Some(set)
            }
            _ => None,
        };
    }
    set
}

/// Returns the verdict for tuples that a guard rejects: the written one, or the default of its form. Reports a
/// guard on calls without either.
fn guard_else(scope: &mut Scope<'_, '_>, guard: &ast::Guard, span: Span) -> Option<Verdict> {
    if let Some(verdict) = &guard.otherwise {
        return verdict::verdict(scope, verdict);
    }
    if guard.into_output.is_some() {
        // The form of the ADN paper: a call without a result row is aborted, so its caller gets an answer.
        let status = Value::Int(i64::from(Status::PermissionDenied.code()));
        let text = Value::text(&format!("no row of input left by {}", scope.element.name));
        let kind = VerdictKind::Abort {
            status: constant(status, Type::Status, span),
            text: Some(constant(text, Type::Text(None), span)),
            with: Vec::new(),
        };
        return Some(Verdict { kind, span });
    }
    if scope.is_packet() {
        return Some(Verdict { kind: VerdictKind::Drop, span });
    }
    let message = if scope.view.direction() == Some(Direction::Response) {
        "a call can end here without an answer"
    } else {
        "a request can end here without an answer"
    };
    Diagnostic::error(code::NO_ANSWER, message)
        .at(span, "action for other messages missing")
        .with_help("add it: `ELSE ABORT PERMISSION_DENIED 'why'`")
        .with_fix(Span { start: span.end.saturating_sub(1), ..span }, " ELSE ABORT PERMISSION_DENIED;")
        .refuse(scope.cx)
}
