//! Builds expressions of queues, and the functions that are several operations.

use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal, QueueOperand as Operand,
    QueueType as T, QueueUnary as U,
};
use crate::source::Span;

pub(super) fn literal(value: Literal, ty: T, span: Span) -> QueueExpr {
    QueueExpr { kind: Kind::Literal(value), ty, span }
}

pub(super) fn operand(place: Operand, ty: T, span: Span) -> QueueExpr {
    QueueExpr { kind: Kind::Operand(place), ty, span }
}

/// A test whether a word of a packet is not 0.
pub(super) fn truth(of: Operand, span: Span) -> QueueExpr {
    binary(B::Ne, operand(of, T::Number, span), literal(Literal::Int(0), T::Number, span), T::Bool)
}

pub(super) fn unary(op: U, a: QueueExpr, ty: T) -> QueueExpr {
    let span = a.span;
    QueueExpr { kind: Kind::Unary(op, Box::new(a)), ty, span }
}

pub(super) fn binary(op: B, a: QueueExpr, b: QueueExpr, ty: T) -> QueueExpr {
    let span = a.span.to(b.span);
    QueueExpr { kind: Kind::Binary(op, Box::new(a), Box::new(b)), ty, span }
}

fn int(n: i64, span: Span) -> QueueExpr {
    literal(Literal::Int(n), T::Number, span)
}

fn number(op: B, a: QueueExpr, b: QueueExpr) -> QueueExpr {
    binary(op, a, b, T::Number)
}

pub(in crate::check) fn now(_args: &[QueueExpr], span: Span) -> QueueExpr {
    operand(Operand::Now, T::Timestamp, span)
}

pub(in crate::check) fn hash(args: &[QueueExpr], _span: Span) -> QueueExpr {
    let first = unary(U::Hash, args[0].clone(), T::Number);
    match args.get(1) {
        None => first,
        Some(second) => number(B::HashMix, first, second.clone()),
    }
}

pub(in crate::check) fn rsqrt(args: &[QueueExpr], span: Span) -> QueueExpr {
    let root = unary(U::Sqrt, args[0].clone(), T::Float);
    binary(B::Div, literal(Literal::Float(1.0), T::Float, span), root, T::Float)
}

/// Linux, include/net/codel_impl.h: a step in Q0.32 of which 16 bits are kept.
pub(in crate::check) fn rsqrt_step(args: &[QueueExpr], span: Span) -> QueueExpr {
    let [r, n] = [&args[0], &args[1]].map(Clone::clone);
    let shift = |op, a, n| number(op, a, int(n, span));
    let inverse = shift(B::ShiftLeft, r, 16);
    let square = shift(B::ShiftRight, number(B::Mul, inverse.clone(), inverse.clone()), 32);
    let value = number(B::Sub, int(3 << 32, span), number(B::Mul, n, square));
    let value = number(B::Mul, shift(B::ShiftRight, value, 2), inverse);
    shift(B::ShiftRight, shift(B::ShiftRight, value, 31), 16)
}

pub(in crate::check) fn scale(args: &[QueueExpr], span: Span) -> QueueExpr {
    let product = binary(B::Mul, args[0].clone(), args[1].clone(), T::Interval);
    binary(B::ShiftRight, product, int(16, span), T::Interval)
}

pub(in crate::check) fn seconds(args: &[QueueExpr], span: Span) -> QueueExpr {
    let ns = unary(U::ToFloat, args[0].clone(), T::Float);
    binary(B::Div, ns, literal(Literal::Float(1e9), T::Float, span), T::Float)
}

pub(in crate::check) fn send_time(args: &[QueueExpr], span: Span) -> QueueExpr {
    binary(B::Div, bit_ns(args, span), args[1].clone(), T::Interval)
}

pub(in crate::check) fn send_rest(args: &[QueueExpr], span: Span) -> QueueExpr {
    number(B::Rem, bit_ns(args, span), args[1].clone())
}

/// The bits of a packet times the nanoseconds of a second, and the remainder of earlier packets.
fn bit_ns(args: &[QueueExpr], span: Span) -> QueueExpr {
    let bit_ns = number(B::Mul, args[0].clone(), int(8_000_000_000, span));
    match args.get(2) {
        None => bit_ns,
        Some(rest) => number(B::Add, bit_ns, rest.clone()),
    }
}

pub(in crate::check) fn coalesce_zero(args: &[QueueExpr], span: Span) -> QueueExpr {
    let [a, b] = [&args[0], &args[1]].map(Clone::clone);
    let ty = a.ty;
    let is_zero = binary(B::Eq, a.clone(), literal(Literal::Int(0), ty, span), T::Bool);
    QueueExpr { kind: Kind::Case(vec![(is_zero, b)], Box::new(a)), ty, span }
}
