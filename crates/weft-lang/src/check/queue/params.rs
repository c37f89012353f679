//! Parameters of queues: their types, and their values.

use super::{Checker, Literal, Named, RESERVED, T};
use crate::ast::{self, ExprKind as AstKind, Ident, QueueUse};
use crate::check::Cx;
use crate::check::scope::with_nearest;
use crate::diagnostic::{Diagnostic, code};
use weft_core::Type;

/// The parameters of a queue with their values, and whether all have one that is right. One with a wrong default has
/// another in its place, so that the rest can be looked at.
pub(super) fn params(
    cx: &mut Cx<'_>,
    item: &ast::Queue,
    used: Option<&QueueUse>,
) -> (Vec<(String, Named)>, bool) {
    let mut names: Vec<(String, Named)> = Vec::new();
    let args = used.map_or(&[][..], |used| &used.args);
    for arg in args {
        if !item.params.iter().any(|param| param.name.name == arg.name.name) {
            let message = format!("queue `{}` has no parameter `{}`", item.name.name, arg.name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_PARAM, message).at(arg.name.span, "unknown");
            let known = item.params.iter().map(|param| param.name.name.as_str());
            cx.report(with_nearest(diagnostic, &arg.name, known));
            return (names, false);
        }
    }
    let mut is_whole = true;
    for param in &item.params {
        is_whole &= is_free(cx, &names, &param.name);
        let ty = queue_type(cx, &param.ty).map(|(ty, ..)| ty);
        let arg = args.iter().find(|arg| arg.name.name == param.name.name).map(|arg| &arg.value);
        let value = match (ty, arg.or(param.default.as_ref())) {
            (Some(ty), Some(value)) => {
                let literal = Checker::new(cx, Vec::new()).constant(value, ty);
                is_whole &= literal.is_some();
                Named::Param(literal.unwrap_or_else(|| stand_in(ty)), ty)
            }
            (Some(ty), None) if used.is_none() => Named::Param(stand_in(ty), ty),
            (Some(_), None) => {
                let message = format!("parameter `{}` of `{}` has no value", param.name.name, item.name.name);
                let span = used.map_or(item.name.span, |used| used.span);
                let diagnostic = Diagnostic::error(code::MISSING_PARAM, message).at(span, "not given here");
                cx.report(diagnostic.with_label(param.span, "declared here without a default"));
                is_whole = false;
                Named::Broken
            }
            (None, _) => {
                is_whole = false;
                Named::Broken
            }
        };
        names.push((param.name.name.clone(), value));
    }
    (names, is_whole)
}

/// Whether a parameter or variable may have this name; tells it if not.
pub(super) fn is_free(cx: &mut Cx<'_>, names: &[(String, Named)], name: &Ident) -> bool {
    let diagnostic = if RESERVED.contains(&name.name.as_str()) {
        let message = format!("`{}` has a meaning of its own in a queue", name.name);
        Diagnostic::error(code::DUPLICATE_NAME, message).at(name.span, "taken").with_help("rename it")
    } else if names.iter().any(|(known, _)| *known == name.name) {
        let message = format!("there are two things called `{}`", name.name);
        Diagnostic::error(code::DUPLICATE_NAME, message).at(name.span, "the second").with_help("rename one")
    } else {
        return true;
    };
    cx.report(diagnostic);
    false
}

/// A value for a parameter that has none where only the meaning is looked at.
fn stand_in(ty: T) -> Literal {
    match ty {
        T::Bool => Literal::Bool(false),
        T::Float => Literal::Float(1.0),
        _ => Literal::Int(1),
    }
}

/// The type of a variable or parameter: with the range that it holds, and its bits.
pub(super) fn queue_type(cx: &mut Cx<'_>, ast: &ast::TypeExpr) -> Option<(T, (i64, i64), u8)> {
    let known = cx.type_expr(ast)?;
    let all = (i64::MIN, i64::MAX);
    let up = |bits: u32| (0, if bits >= 63 { i64::MAX } else { (1 << bits) - 1 });
    Some(match known {
        Type::Bool => (T::Bool, (0, 1), 1),
        Type::Int(64) => (T::Number, all, 64),
        Type::Int(bits) => {
            let bits = u32::from(bits);
            (T::Number, (-(1 << (bits - 1)), (1 << (bits - 1)) - 1), bits as u8)
        }
        Type::Uint(bits) => (T::Number, up(u32::from(bits)), bits.min(63)),
        Type::F64 => (T::Float, all, 64),
        Type::Size => (T::Size, all, 64),
        Type::Interval => (T::Interval, all, 64),
        Type::Timestamp => (T::Timestamp, all, 64),
        other => {
            let diagnostic = Diagnostic::error(code::UNKNOWN_TYPE, format!("a queue holds no {other}"))
                .at(ast.span, "not a number")
                .with_note("it holds BOOL, I8 to I64, U1 to U64, F64, SIZE, INTERVAL and TIMESTAMP");
            cx.report(diagnostic);
            return None;
        }
    })
}

/// A literal of the syntax that reads back as this value.
pub(super) fn spelled(value: Literal, ty: T) -> AstKind {
    match (value, ty) {
        (Literal::Bool(b), _) => AstKind::Bool(b),
        (Literal::Float(x), _) => AstKind::Float(x),
        (Literal::Int(n), T::Interval) => AstKind::Str(format!("{n} ns")),
        (Literal::Int(n), T::Size) => AstKind::Str(format!("{n} B")),
        (Literal::Int(n), _) => AstKind::Int(n.unsigned_abs()),
    }
}
