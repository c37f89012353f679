//! Folds constant expressions of queues.

use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal, QueueUnary as U,
};

/// The value of an expression over literals; None if it contains other values, or a function that only the engine
/// evaluates.
pub(super) fn fold(expr: &QueueExpr) -> Option<Literal> {
    match &expr.kind {
        Kind::Literal(value) => Some(*value),
        Kind::Unary(op, a) => unary(*op, fold(a)?),
        Kind::Binary(op, a, b) => match (fold(a)?, fold(b)?) {
            (Literal::Int(a), Literal::Int(b)) => int(*op, a, b),
            (Literal::Float(a), Literal::Float(b)) => float(*op, a, b),
            (Literal::Bool(a), Literal::Bool(b)) => truth(*op, a, b).map(Literal::Bool),
            _ => None,
        },
        Kind::Case(arms, otherwise) => {
            for (when, then) in arms {
                if fold(when)? == Literal::Bool(true) {
                    return fold(then);
                }
            }
            fold(otherwise)
        }
        _ => None,
    }
}

/// Computes a unary operation on a constant. None if it is not folded.
fn unary(op: U, a: Literal) -> Option<Literal> {
    Some(match (op, a) {
        (U::Not, Literal::Bool(b)) => Literal::Bool(!b),
        (U::Negate, Literal::Int(n)) => Literal::Int(n.wrapping_neg()),
        (U::Negate, Literal::Float(x)) => Literal::Float(-x),
        (U::Abs, Literal::Int(n)) => Literal::Int(n.wrapping_abs()),
        (U::Abs, Literal::Float(x)) => Literal::Float(x.abs()),
        (U::ToFloat, Literal::Int(n)) => Literal::Float(n as f64),
        (U::ToWhole, Literal::Float(x)) => Literal::Int(x as i64),
        _ => return None,
    })
}

/// Total arithmetic as in queues: it wraps, and division by 0 gives 0.
fn int(op: B, a: i64, b: i64) -> Option<Literal> {
    Some(match op {
        B::Eq => Literal::Bool(a == b),
        B::Ne => Literal::Bool(a != b),
        B::Lt => Literal::Bool(a < b),
        B::Le => Literal::Bool(a <= b),
        B::Add => Literal::Int(a.wrapping_add(b)),
        B::Sub => Literal::Int(a.wrapping_sub(b)),
        B::Mul => Literal::Int(a.wrapping_mul(b)),
        B::Div => Literal::Int(if b == 0 { 0 } else { a.wrapping_div(b) }),
        B::Rem => Literal::Int(if b == 0 { 0 } else { a.wrapping_rem(b) }),
        B::Least => Literal::Int(a.min(b)),
        B::Greatest => Literal::Int(a.max(b)),
        _ => return None,
    })
}

/// Computes a binary operation on floats. None if it is not folded.
fn float(op: B, a: f64, b: f64) -> Option<Literal> {
    Some(match op {
        B::Eq => Literal::Bool(a == b),
        B::Ne => Literal::Bool(a != b),
        B::Lt => Literal::Bool(a < b),
        B::Le => Literal::Bool(a <= b),
        B::Add => Literal::Float(a + b),
        B::Sub => Literal::Float(a - b),
        B::Mul => Literal::Float(a * b),
        B::Div => Literal::Float(a / b),
        _ => return None,
    })
}

/// Computes a binary operation on BOOLs. None if it is not folded.
fn truth(op: B, a: bool, b: bool) -> Option<bool> {
    Some(match op {
        B::And => a && b,
        B::Or => a || b,
        B::Eq => a == b,
        B::Ne => a != b,
        _ => return None,
    })
}
