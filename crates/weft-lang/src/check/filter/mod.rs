//! Checks filters: parameters, keys, policies.
//!
//! A filter is checked at its definition, as far as its numbers do not depend on parameters, and again at each stage,
//! where all values are known. The keys of its policies are computed by the handler of a generated element directly
//! before the filter in the chain, so types, bindings and effects need no special cases.

use weft_core::Type;
use weft_core::filter::KeyId;

use super::element;
use super::expr::Environment;
use super::scope::Scope;
use super::walk::{each_expr, each_stmt, exprs_of};
use super::{Cx, effects};
use crate::ast::{self, Policy, PolicyKind};
use crate::check::checked::Checked;
use crate::check::tree::leaf;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Effects, Expr, ExprKind, Handler, HandlerKind, Meta, Stmt, StmtKind, Table};
use crate::source::Span;

mod policies;
mod rules;
mod stage;

pub(super) use rules::check_chain;
pub(super) use stage::{Placed, stage};

/// A filter, and the element that computes its keys.
#[derive(Debug)]
pub(super) struct Filter<'a> {
    pub(super) ast: &'a ast::Filter,
    /// Its parameters and columns, and the handler that computes its keys.
    pub(super) checked: Checked,
    /// The same with the keys in ON OPEN, for stages whose bindings are all known when the call opens; None if the keys
    /// are in ON OPEN anyway, or always need the message.
    pub(super) early: Option<Checked>,
    /// The index of `checked` among the elements, if there are keys.
    pub(super) keys: Option<usize>,
    /// The index of `early`.
    pub(super) early_keys: Option<usize>,
    /// The filter has a reported error.
    pub(super) is_broken: bool,
}

/// Checks a filter; None if this version does not support its layer.
pub(super) fn filter<'a>(cx: &mut Cx<'_>, shared: &[Table], ast: &'a ast::Filter) -> Option<Filter<'a>> {
    element::check_filter_layer(cx, &ast.layer)?;
    let had_gaps = cx.has_gaps;
    let n_errors = cx.n_errors();
    cx.has_gaps |= ast.is_faulty;
    let mut checked = Checked::empty(&ast.name.name, ast.span);
    element::params(cx, &mut checked.element, &ast.params, &mut 0);
    element::columns(cx, &mut checked.element, &ast.fields, crate::hir::Direction::Request);
    check_kinds(cx, ast);
    keys(cx, shared, &mut checked, ast);
    policies::check(cx, &checked.element, ast);
    cx.has_gaps = had_gaps;
    let is_broken = ast.is_faulty || cx.n_errors() > n_errors;
    if !is_broken {
        check_columns(cx, &checked);
    }
    let early = with_keys_on_open(&checked);
    Some(Filter { ast, checked, early, keys: None, early_keys: None, is_broken })
}

/// The expressions of a policy's key, and its description; empty if it has none.
fn key_of(kind: &PolicyKind) -> (&[ast::Expr], &'static str) {
    match kind {
        PolicyKind::Pace(rate) => (&rate.key, "the PACE key"),
        PolicyKind::Rate(rate) => (&rate.key, "the RATE key"),
        PolicyKind::Order { key, .. } => (key, "the ORDER key"),
        PolicyKind::AtLeastOnce { id, .. } => (id, "the call ID"),
        _ => (&[], ""),
    }
}

/// The name of a policy in the message about two policies of one kind.
fn kind_name(kind: &PolicyKind) -> &'static str {
    match kind {
        PolicyKind::TimeoutTotal { .. } => "TIMEOUT TOTAL",
        PolicyKind::TimeoutTry { .. } => "TIMEOUT TRY",
        PolicyKind::TimeoutPropagate { .. } => "TIMEOUT PROPAGATE",
        PolicyKind::Retry(_) => "RETRY",
        PolicyKind::Hedge(_) => "HEDGE",
        PolicyKind::Pace(_) => "PACE",
        PolicyKind::Rate(_) => "RATE",
        PolicyKind::Order { .. } => "ORDER",
        PolicyKind::Circuit(_) => "CIRCUIT",
        PolicyKind::Outlier(_) => "OUTLIER",
        PolicyKind::Congestion(_) => "CONGESTION",
        PolicyKind::AtMostOnce | PolicyKind::AtLeastOnce { .. } => "RELIABILITY",
        PolicyKind::Over { .. } => "OVER",
    }
}

/// Reports a filter without policies, and two policies of one kind.
fn check_kinds(cx: &mut Cx<'_>, ast: &ast::Filter) {
    if ast.policies.is_empty() && !ast.is_faulty {
        let message = format!("filter `{}` has no policy", ast.name.name);
        let diagnostic = Diagnostic::error(code::FILTER_EMPTY, message)
            .at(ast.name.span, "does nothing")
            .with_help("add a policy: `TIMEOUT TOTAL '1 s';`");
        cx.report(diagnostic);
    }
    for first in in_force(ast) {
        let is_second = |other: &&Policy| other.span != first.span && slot(&other.kind) == slot(&first.kind);
        let Some(second) = ast.policies.iter().find(is_second) else { continue };
        let (name, other) = (kind_name(&second.kind), kind_name(&first.kind));
        let message = match name == other {
            true => format!("filter `{}` has two {name} policies", ast.name.name),
            false => format!(
                "filter `{}` has both {other} and {name}, which are forms of one policy",
                ast.name.name
            ),
        };
        let diagnostic = Diagnostic::error(code::POLICY_REPEATED, message)
            .at(second.span, "the second")
            .with_label(first.span, "the first")
            .with_help("keep one of them, or write one filter for each, in the order that you want");
        cx.report(diagnostic);
    }
}

/// The first policy of each kind; further ones are an error. This bounds their number for any text.
fn in_force(ast: &ast::Filter) -> Vec<&Policy> {
    let mut found: Vec<&Policy> = Vec::new();
    for policy in &ast.policies {
        if !found.iter().any(|first| slot(&first.kind) == slot(&policy.kind)) {
            found.push(policy);
        }
    }
    found
}

/// Policies of which a filter may have only one share a slot.
fn slot(kind: &PolicyKind) -> &'static str {
    match kind_name(kind) {
        "PACE" => "RATE",
        other => other,
    }
}

/// Adds the handler that computes the keys, if there are any.
fn keys(cx: &mut Cx<'_>, shared: &[Table], checked: &mut Checked, ast: &ast::Filter) {
    let mut n_rand = 0;
    let mut scope =
        Scope::new(cx, &checked.element, shared, View::Handler(HandlerKind::Request), &mut n_rand);
    let mut body = Vec::new();
    for policy in in_force(ast) {
        let (parts, whose) = key_of(&policy.kind);
        let (Some(first), Some(last)) = (parts.first(), parts.last()) else { continue };
        let typed: Vec<Option<Expr>> = parts.iter().map(|part| key_part(&mut scope, part, whose)).collect();
        // A key with an error gets no number; then the other keys are not used.
        let key = KeyId(u16::try_from(body.len()).expect("at most one key per kind of policy"));
        let Some(mut parts) = typed.into_iter().collect::<Option<Vec<_>>>() else { continue };
        if matches!(policy.kind, PolicyKind::AtLeastOnce { .. }) {
            // A response of one method must not answer another method.
            parts.insert(0, leaf(ExprKind::Meta(Meta::Method), Type::Text(None), false, first.span));
        }
        body.push(Stmt { kind: StmtKind::Key { key, parts }, span: first.span.to(last.span) });
    }
    let (locals, rows, _) = scope.into_parts();
    if body.is_empty() {
        return;
    }
    let is_early = key_inputs(&body) == KeyInputs::Call;
    let kind = if is_early { HandlerKind::Open } else { HandlerKind::Request };
    let mut handler = Handler { kind, body, locals, rows, effects: Effects::default(), span: ast.span };
    handler.effects = effects::of(&handler);
    let handlers = &mut checked.element.handlers;
    match is_early {
        true => handlers.open = Some(handler),
        false => handlers.request = Some(handler),
    }
    element::mark_column_uses(&mut checked.element);
}

/// The element with its keys in ON OPEN instead of ON REQUEST, if possible.
fn with_keys_on_open(checked: &Checked) -> Option<Checked> {
    let handler = checked.element.handlers.request.as_ref()?;
    if key_inputs(&handler.body) == KeyInputs::Message {
        return None;
    }
    let mut early = checked.clone();
    let handler = early.element.handlers.request.take()?;
    early.element.handlers.open = Some(Handler { kind: HandlerKind::Open, ..handler });
    Some(early)
}

/// Checks a part of a filter's key: not NULL, and not a float.
fn key_part(scope: &mut Scope<'_, '_>, part: &ast::Expr, whose: &str) -> Option<Expr> {
    let expr = scope.expr(part, None)?;
    let ty = expr.ty;
    let expr = scope.never_null(expr, ty, whose)?;
    if ty == Type::F64 {
        let diagnostic = Diagnostic::error(code::BAD_KEY, format!("{whose} is an F64"))
            .at(expr.span, "fractions do not compare reliably")
            .with_help("use an integer, or TEXT");
        scope.cx.report(diagnostic);
        return None;
    }
    Some(expr)
}

/// The inputs of keys. Earlier inputs delay a stream less: keys that need no message are known when the call opens.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum KeyInputs {
    Call,
    /// The call, or the message if the columns are bound to it.
    Columns,
    Message,
}

/// Returns the inputs that a key needs: of the call, its columns or a message.
fn key_inputs(body: &[Stmt]) -> KeyInputs {
    let mut most = KeyInputs::Call;
    each_stmt(body, &mut |stmt| {
        for expr in exprs_of(stmt) {
            each_expr(expr, &mut |part| {
                most = most.max(match part.kind {
                    ExprKind::Column(_) => KeyInputs::Columns,
                    ExprKind::Meta(Meta::Size | Meta::Index) => KeyInputs::Message,
                    _ => KeyInputs::Call,
                });
            });
        }
    });
    most
}

/// Warns of columns that no key reads.
fn check_columns(cx: &mut Cx<'_>, checked: &Checked) {
    for column in checked.element.columns.iter().filter(|column| !column.read) {
        let message =
            format!("filter `{}` does not use column `{}` in a key", checked.element.name, column.name);
        let diagnostic = Diagnostic::warning(code::UNUSED_NAME, message)
            .at(column.span, "not used")
            .with_help(format!("remove it, or use it as a key: `RATE 100 PER SECOND PER {};`", column.name));
        cx.report(diagnostic);
    }
}

/// The stage in a diagnostic about parameters.
fn of_stage(diagnostic: Diagnostic, stage: Option<Span>) -> Diagnostic {
    match stage {
        Some(span) => diagnostic.with_label(span, "with these parameters"),
        None => diagnostic,
    }
}
