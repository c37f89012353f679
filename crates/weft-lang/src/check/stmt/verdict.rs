//! Checks verdicts.

use super::{is_known, not_on_packet, not_on_rpc, target, written_header};
use crate::ast::{self, Ident, VerdictKind as AstVerdict};
use crate::check::action::events;
use crate::check::all;
use crate::check::expr::Environment;
use crate::check::scope::Scope;
use crate::check::suggest::{status_names, with_nearest};
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{AnswerTarget, Column, Direction, Expr, ExprKind, HandlerKind, Verdict, VerdictKind};
use crate::nearest::nearest;
use crate::source::Span;
use weft_core::{Status, Type, Value};

/// Checks a verdict and its operands.
pub(super) fn verdict(scope: &mut Scope<'_, '_>, verdict: &ast::Verdict) -> Option<Verdict> {
    use HandlerKind as H;
    let span = verdict.span;
    let kind = match &verdict.kind {
        AstVerdict::Forward => {
            check_verdict(scope, &[H::Open, H::Request, H::Response, H::Close, H::Error], "FORWARD", span)?;
            VerdictKind::Forward
        }
        AstVerdict::Drop => {
            check_verdict(scope, &[H::Open, H::Request, H::Response, H::Error], "DROP", span)?;
            if !scope.is_packet() {
                let diagnostic =
                    Diagnostic::warning(code::NO_ANSWER, "a request can end here without an answer")
                        .at(span, "the client gets a stream reset without a status")
                        .with_help("write `ABORT UNAVAILABLE`, unless the method is a stream");
                scope.cx.report(diagnostic);
            }
            VerdictKind::Drop
        }
        AstVerdict::Abort { status, text, with } => {
            check_verdict(scope, &[H::Open, H::Request, H::Response, H::Error], "ABORT", span)?;
            if let (true, Some(first)) = (scope.is_packet(), with.first()) {
                let help = "a frame has no response: ABORT drops it and counts it by status and text";
                return not_on_packet(scope, first.span, "ABORT ... WITH", help);
            }
            abort(scope, status, text.as_ref(), with)?
        }
        AstVerdict::Reply { .. } | AstVerdict::ReplyPayload { .. } if scope.is_packet() => {
            let help = "a frame has no response: use DROP, or change the frame and `REDIRECT TO port`";
            return not_on_packet(scope, span, "REPLY", help);
        }
        AstVerdict::Steer { edge } if scope.is_packet() => {
            check_verdict(scope, &[H::Request], "STEER", span)?;
            VerdictKind::Steer(edge_of(scope, edge)?)
        }
        AstVerdict::Reply { fields } => {
            check_verdict(scope, &[H::Open, H::Request], "REPLY", span)?;
            reply(scope, fields)?
        }
        AstVerdict::ReplyPayload { bytes } => {
            check_verdict(scope, &[H::Open, H::Request], "REPLY", span)?;
            VerdictKind::ReplyPayload {
                bytes: scope.value_for(bytes, Type::Bytes(None), false, "the message")?,
            }
        }
        AstVerdict::Redirect { to } => {
            check_verdict(scope, &[H::Open, H::Request], "REDIRECT", span)?;
            VerdictKind::Redirect { to: target(scope, to)? }
        }
        AstVerdict::Steer { .. } => {
            return not_on_rpc(scope, span, "STEER", "edges are for packet layers; use REDIRECT TO");
        }
    };
    Some(Verdict { kind, span })
}

/// The edge of the element with this name.
fn edge_of(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<usize> {
    let edges = &scope.element.edges;
    let found = edges.iter().position(|(known, _)| *known == name.name);
    if found.is_none() {
        let names: Vec<&str> = edges.iter().map(|(known, _)| known.as_str()).collect();
        let message = format!("the element has no edge `{}`", name.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message).at(name.span, "unknown");
        let diagnostic = match nearest(&name.name, names.iter().copied()) {
            Some(_) => with_nearest(diagnostic, name, names),
            None => diagnostic.with_help(format!("declare it: `EDGE {};`", name.name)),
        };
        scope.cx.report(diagnostic);
    }
    found
}

/// Checks that the handler permits a verdict. Reports the handlers that do.
fn check_verdict(scope: &mut Scope<'_, '_>, allowed: &[HandlerKind], what: &str, span: Span) -> Option<()> {
    if matches!(scope.view, View::Handler(kind) if allowed.contains(&kind)) {
        return Some(());
    }
    let why = match scope.view {
        View::Handler(HandlerKind::Close) => "the call has ended",
        View::Handler(kind) if kind.is_timed() => "there is no tuple to decide on",
        View::Handler(HandlerKind::Response) => "the request has already been sent",
        _ => "the element has failed, and its changes were rolled back",
    };
    let names = events(scope, allowed);
    let message = format!("{what} is not allowed in {}", scope.words());
    let help = format!("{what} is allowed in {}", names.join(", "));
    scope.cx.refuse(code::VERDICT_NOT_HERE, message, span, why, help)
}

/// Checks an ABORT: its status, its message, and the headers and trailers of the answer.
fn abort(
    scope: &mut Scope<'_, '_>,
    status: &ast::Expr,
    text: Option<&ast::Expr>,
    with: &[ast::WithItem],
) -> Option<VerdictKind> {
    let status = match &status.kind {
        // Its statuses are not known.
        _ if scope.cx.layer_is_missing => None,
        ast::ExprKind::Path(path) if path.as_ident().is_some_and(|name| is_unknown_status(scope, name)) => {
            let name = path.as_ident()?;
            let message = format!("unknown status `{}`", name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message)
                .at(name.span, "not a gRPC status")
                .with_note("see https://grpc.io/docs/guides/status-codes");
            with_nearest(diagnostic, name, status_names()).refuse(scope.cx)
        }
        _ => scope.value_for(status, Type::Status, false, "a verdict's status"),
    };
    if let Some(Expr { kind: ExprKind::Const(Value::Int(0)), span, .. }) = status {
        let message = "ABORT cannot end a call as OK";
        let help = "use REPLY, or another status";
        return scope.cx.refuse(code::BAD_LITERAL, message, span, "OK is not an error", help);
    }
    let text = match text {
        Some(text) => scope.typed(text, Type::Text(None)).map(Some),
        None => Some(None),
    };
    let with = all(with.iter().map(|item| answer(scope, item)));
    Some(VerdictKind::Abort { status: status?, text: text?, with: with? })
}

/// Whether an unknown name is probably meant as a status.
fn is_unknown_status(scope: &Scope<'_, '_>, name: &Ident) -> bool {
    if Status::from_name(&name.name).is_some() || is_known(scope, &name.name) {
        return false;
    }
    let looks_like_one = name.name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
    looks_like_one || nearest(&name.name, status_names()).is_some()
}

/// Checks one assignment of ABORT WITH: a header or a trailer.
fn answer(scope: &mut Scope<'_, '_>, item: &ast::WithItem) -> Option<(AnswerTarget, Expr)> {
    let value = scope.typed(&item.value, Type::Text(None));
    let place = match &item.target {
        ast::AssignTarget::Header { key, .. } => AnswerTarget::Header(written_header(scope, key)?),
        ast::AssignTarget::Trailer { key, .. } => AnswerTarget::Trailer(written_header(scope, key)?),
        ast::AssignTarget::Path(path) => {
            return Diagnostic::error(
                code::WRITE_NOT_HERE,
                "ABORT ... WITH can only set headers and trailers",
            )
            .at(path.span, "not a valid name")
            .with_help(format!("write `header['{}'] = ...`", path.to_dotted()))
            .refuse(scope.cx);
        }
    };
    Some((place, value?))
}

/// Checks a REPLY: values for columns of the response.
fn reply(scope: &mut Scope<'_, '_>, fields: &[ast::Assign]) -> Option<VerdictKind> {
    let element = scope.element;
    let mut given: Option<Vec<(usize, Expr)>> = Some(Vec::new());
    for field in fields {
        let name = &field.name;
        let is_response = |column: &&Column| column.direction == Direction::Response;
        let at = element.columns.iter().position(|column| is_response(&column) && column.name == name.name);
        let Some(at) = at else {
            let names: Vec<&str> =
                element.columns.iter().filter(is_response).map(|column| column.name.as_str()).collect();
            let message = format!("the response has no column `{}`", name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_COLUMN, message)
                .at(name.span, "not a column of RETURNS")
                .with_help(format!("declare it in the head of the element: `RETURNS ({} TEXT)`", name.name));
            scope.cx.report(with_nearest(diagnostic, name, names));
            given = None;
            continue;
        };
        let value = scope.typed(&field.value, element.columns[at].ty);
        given = match (given, value) {
            (Some(mut given), Some(value)) => {
                given.push((at, value));
                Some(given)
            }
            _ => None,
        };
    }
    Some(VerdictKind::Reply { fields: given? })
}
