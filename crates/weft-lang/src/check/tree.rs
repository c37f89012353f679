//! Builds typed expressions.

use crate::types;
use weft_core::{Type, Value};

use crate::hir::{Expr, ExprKind, Function};
use crate::source::Span;

/// An expression without parts.
pub(super) fn leaf(kind: ExprKind, ty: Type, nullable: bool, span: Span) -> Expr {
    Expr { kind, ty, nullable, fallible: false, span }
}

/// The type as a table or a CALL column stores it.
pub(super) fn with_length(ty: Type) -> Type {
    match ty {
        Type::Text(None) => Type::Text(Some(64)),
        Type::Bytes(None) => Type::Bytes(Some(64)),
        other => other,
    }
}

/// `a AND b`.
pub(super) fn and(left: Expr, right: Expr) -> Expr {
    let span = left.span;
    compound(ExprKind::And(left.into(), right.into()), Type::Bool, span)
}

/// An operation: it is NULL if an operand is, and may be an error if an operand may be one.
pub(super) fn compound(kind: ExprKind, ty: Type, span: Span) -> Expr {
    let built = leaf(kind, ty, false, span);
    let parts = built.children();
    let (nullable, fallible) =
        (parts.iter().any(|part| part.nullable), parts.iter().any(|part| part.fallible));
    Expr { nullable, fallible, ..built }
}

/// A constant.
pub(super) fn constant(value: Value, ty: Type, span: Span) -> Expr {
    leaf(ExprKind::Const(value), ty, false, span)
}

/// Computes a constant integer expression.
pub(super) fn constant_integer(expr: &Expr) -> Option<i128> {
    match expr.kind {
        ExprKind::Const(Value::Int(n)) if types::is_integer(expr.ty) => {
            Some(if expr.ty.is_signed() { i128::from(n) } else { i128::from(n as u64) })
        }
        _ => None,
    }
}

/// The call of a function that is NULL if an argument is.
pub(super) fn function(function: Function, args: Vec<Expr>, ty: Type, fallible: bool, span: Span) -> Expr {
    let call = compound(ExprKind::Function { function, args }, ty, span);
    Expr { fallible: fallible || call.fallible, ..call }
}

/// The hash of a value; 0 for NULL.
pub(super) fn hash_or_zero(value: Expr) -> Expr {
    let (span, ty) = (value.span, Type::Uint(64));
    let hash = function(Function::Hash, vec![value], ty, false, span);
    if !hash.nullable {
        return hash;
    }
    let zero = leaf(ExprKind::Const(Value::Int(0)), ty, false, span);
    Expr { nullable: false, ..function(Function::Coalesce, vec![hash, zero], ty, false, span) }
}
