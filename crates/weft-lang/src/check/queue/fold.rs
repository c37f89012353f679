//! Constants of queues.

use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal, QueueUnary as U,
};

/// The value of an expression of literals, None if it has others, or a function that needs the machine.
pub(super) fn fold(expr: &QueueExpr) -> Option<Literal> {
    match &expr.kind {
        Kind::Literal(value) => Some(*value),
        Kind::Unary(op, a) => match (op, fold(a)?) {
            (U::Not, Literal::Bool(b)) => Some(Literal::Bool(!b)),
            (U::Negate, Literal::Int(n)) => Some(Literal::Int(n.wrapping_neg())),
            (U::Negate, Literal::Float(x)) => Some(Literal::Float(-x)),
            (U::ToFloat, Literal::Int(n)) => Some(Literal::Float(n as f64)),
            (U::ToWhole, Literal::Float(x)) => Some(Literal::Int(x as i64)),
            _ => None,
        },
        Kind::Binary(op, a, b) => match (op, fold(a)?, fold(b)?) {
            (B::Add, Literal::Int(a), Literal::Int(b)) => Some(Literal::Int(a.wrapping_add(b))),
            (B::Sub, Literal::Int(a), Literal::Int(b)) => Some(Literal::Int(a.wrapping_sub(b))),
            (B::Mul, Literal::Int(a), Literal::Int(b)) => Some(Literal::Int(a.wrapping_mul(b))),
            (B::Div, Literal::Int(a), Literal::Int(b)) => Some(Literal::Int(a.checked_div(b).unwrap_or(0))),
            (B::Add, Literal::Float(a), Literal::Float(b)) => Some(Literal::Float(a + b)),
            (B::Sub, Literal::Float(a), Literal::Float(b)) => Some(Literal::Float(a - b)),
            (B::Mul, Literal::Float(a), Literal::Float(b)) => Some(Literal::Float(a * b)),
            (B::Div, Literal::Float(a), Literal::Float(b)) => Some(Literal::Float(a / b)),
            _ => None,
        },
        _ => None,
    }
}
