//! Checks the parameters of queues: their types, and their values.

use super::{Checker, Literal, QueueName, RESERVED, T};
use crate::ast::{self, BinaryOp, ExprKind as AstKind, Ident, QueueUse, UnaryOp};
use crate::check::Cx;
use crate::check::scope::with_nearest;
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;
use weft_core::{Interval, Type};

/// Computes the parameters of a queue. Returns their values, and whether all values are valid. An invalid default is
/// replaced, so that the rest can be checked.
pub(super) fn params(
    cx: &mut Cx<'_>,
    item: &ast::Queue,
    used: Option<&QueueUse>,
) -> (Vec<(String, QueueName)>, bool) {
    let mut names: Vec<(String, QueueName)> = Vec::new();
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
                let literal = literal.filter(|literal| is_in_range(cx, param, value.span, *literal));
                is_whole &= literal.is_some();
                QueueName::Param(literal.unwrap_or_else(|| placeholder(ty)), ty)
            }
            (Some(ty), None) if used.is_none() => QueueName::Param(placeholder(ty), ty),
            (Some(_), None) => {
                let message = format!("parameter `{}` of `{}` has no value", param.name.name, item.name.name);
                let span = used.map_or(item.name.span, |used| used.span);
                let diagnostic = Diagnostic::error(code::MISSING_PARAM, message).at(span, "not given here");
                cx.report(diagnostic.with_label(param.span, "declared here without a default"));
                is_whole = false;
                QueueName::Broken
            }
            (None, _) => {
                is_whole = false;
                QueueName::Broken
            }
        };
        names.push((param.name.name.clone(), value));
    }
    (names, is_whole)
}

/// Whether a value is in the range of the parameter's type; reports an error otherwise.
fn is_in_range(cx: &mut Cx<'_>, param: &ast::Param, at: Span, value: Literal) -> bool {
    let (Literal::Int(n), Some((_, (low, high), _))) = (value, queue_type(cx, &param.ty)) else {
        return true;
    };
    let is_in = (low..=high).contains(&n);
    if !is_in {
        let message = format!("`{}` must be {low} to {high}, but is {n}", param.name.name);
        let diagnostic = Diagnostic::error(code::BAD_LITERAL, message).at(at, "out of range");
        cx.report(diagnostic.with_label(param.span, "declared here"));
    }
    is_in
}

impl Checker<'_, '_> {
    /// Whether the parameter values satisfy all CHECKs of the queue; reports the violated ones.
    pub(super) fn checks_hold(&mut self, item: &ast::Queue) -> bool {
        let mut conditions: Vec<&ast::Expr> =
            item.checks.iter().rev().map(|check| &check.condition).collect();
        let mut holds = true;
        // Each operand of an AND separately, so that only the parameters of the false one are blamed.
        while let Some(condition) = conditions.pop() {
            if let AstKind::Binary { op: BinaryOp::And, left, right, .. } = &condition.kind {
                conditions.extend([&**right, left]);
                continue;
            }
            let n_uses = self.param_uses.len();
            let found = self.constant(condition, T::Bool);
            if found == Some(Literal::Bool(false)) {
                self.broken(item, condition, n_uses);
            }
            holds &= found == Some(Literal::Bool(true));
        }
        holds
    }

    /// Reports a condition that is not satisfied by its parameters, which are those from this number on.
    fn broken(&mut self, item: &ast::Queue, condition: &ast::Expr, n_uses: usize) {
        let mut values: Vec<String> = Vec::new();
        for (name, _) in &self.param_uses[n_uses..] {
            let found = self.names.iter().find(|(known, _)| known == name);
            if let Some((_, QueueName::Param(value, ty))) = found {
                let one = format!("{name} is {}", shown(*value, *ty));
                if !values.contains(&one) {
                    values.push(one);
                }
            }
        }
        let (text, values) = (self.cx.sources.slice(condition.span), values.join(", "));
        let message = format!("`{text}` is not satisfied by this `{}`: {values}", item.name.name);
        let diagnostic = Diagnostic::error(code::CHECK_BROKEN, message);
        self.cx.report(diagnostic.at(condition.span, "condition on its parameters"));
    }
}

/// Formats a value for messages.
fn shown(value: Literal, ty: T) -> String {
    match (value, ty) {
        (Literal::Bool(b), _) => b.to_string(),
        (Literal::Float(x), _) => x.to_string(),
        (Literal::Int(n), T::Interval) => format!("'{}'", Interval(n)),
        (Literal::Int(n), T::Size) => format!("'{n} B'"),
        (Literal::Int(n), _) => n.to_string(),
    }
}

/// Whether a parameter or variable may have this name; reports an error otherwise.
pub(super) fn is_free(cx: &mut Cx<'_>, names: &[(String, QueueName)], name: &Ident) -> bool {
    let diagnostic = if RESERVED.contains(&name.name.as_str()) {
        let message = format!("`{}` has a predefined meaning in a queue", name.name);
        Diagnostic::error(code::DUPLICATE_NAME, message).at(name.span, "taken").with_help("rename it")
    } else if names.iter().any(|(known, _)| *known == name.name) {
        let message = format!("the name `{}` is used twice", name.name);
        Diagnostic::error(code::DUPLICATE_NAME, message).at(name.span, "the second").with_help("rename one")
    } else {
        return true;
    };
    cx.report(diagnostic);
    false
}

/// A value for a parameter without one, while only the structure is checked.
fn placeholder(ty: T) -> Literal {
    match ty {
        T::Bool => Literal::Bool(false),
        T::Float => Literal::Float(1.0),
        _ => Literal::Int(1),
    }
}

/// Resolves the type of a variable or parameter, with its range and width in bits.
pub(super) fn queue_type(cx: &mut Cx<'_>, ast: &ast::TypeExpr) -> Option<(T, (i64, i64), u8)> {
    let known = cx.type_expr(ast)?;
    let all = (i64::MIN, i64::MAX);
    let up = |bits: u32| (0, if bits >= 63 { i64::MAX } else { (1 << bits) - 1 });
    let (range, bits) = match known {
        Type::Bool => ((0, 1), 1),
        Type::Int(bits @ 0..64) => ((-(1 << (bits - 1)), (1 << (bits - 1)) - 1), bits),
        Type::Uint(bits) => (up(u32::from(bits)), bits.min(63)),
        Type::Int(_) | Type::F64 | Type::Size | Type::Interval | Type::Timestamp => (all, 64),
        other => {
            return Diagnostic::error(code::UNKNOWN_TYPE, format!("a queue variable cannot hold {other}"))
                .at(ast.span, "not a number")
                .with_note("allowed are BOOL, I8 to I64, U1 to U64, F64, SIZE, INTERVAL and TIMESTAMP")
                .refuse(cx);
        }
    };
    Some((known.into(), range, bits))
}

/// A syntax tree that evaluates to this value.
pub(super) fn spelled(value: Literal, ty: T, span: Span) -> ast::Expr {
    let of = |n: u64| match ty {
        T::Interval => AstKind::Str(format!("{n} ns")),
        T::Size => AstKind::Str(format!("{n} B")),
        _ => AstKind::Int(n),
    };
    let kind = match value {
        Literal::Bool(b) => AstKind::Bool(b),
        Literal::Float(x) => AstKind::Float(x),
        Literal::Int(n) if n < 0 => {
            let operand = Box::new(ast::Expr { kind: of(n.unsigned_abs()), span });
            AstKind::Unary { op: UnaryOp::Neg, operand }
        }
        Literal::Int(n) => of(n.unsigned_abs()),
    };
    ast::Expr { kind, span }
}
