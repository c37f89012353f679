//! The functions of queues that are more than one operation.

use super::Checker;
use super::expr::{binary, literal, operand, truth, unary};
use super::names::{IMPORT_PROTOCOL, ResolvedName};
use crate::ast::ExprKind as Ast;
use crate::check::expr::Call;
use crate::diagnostic::code;
use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal, QueueOperand as Operand,
    QueueType as T, QueueUnary as U,
};
use crate::source::Span;

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

// ---- functions of the queue ------------------------------------------------------------------------------------

pub(in crate::check) fn rand(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
    queue.n_rand += 1;
    Some(QueueExpr { kind: Kind::Rand(queue.n_rand - 1), ty: T::Float, span: call.span })
}

pub(in crate::check) fn flow(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
    queue.record_field("flow");
    if !queue.sees_packet() {
        return queue.not_a_queue_expr(call.span);
    }
    Some(operand(Operand::Field("flow".to_owned()), T::Number, call.span))
}

pub(in crate::check) fn partitions(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
    let Ast::Path(path) = &call.args[0].kind else { return not_counted(queue, call.args[0].span) };
    let by = match queue.resolve(path)?.0 {
        ResolvedName::Operand(by) if is_counted(&by) => by,
        _ => return not_counted(queue, path.span),
    };
    queue.needs_partition(call.span)?;
    let name = path.to_dotted().to_ascii_lowercase();
    if !queue.counted.contains(&name) {
        queue.counted.push(name);
    }
    Some(operand(Operand::Partitions(Box::new(by)), T::Number, call.span))
}

/// Whether partitions can be counted by a packet field.
fn is_counted(place: &Operand) -> bool {
    match place {
        Operand::Field(name) => matches!(name.as_str(), "src" | "dst" | "class"),
        Operand::Header(_) => true,
        _ => false,
    }
}

/// Reports an argument of `partitions` by which partitions are not counted.
fn not_counted<R>(queue: &mut Checker<'_, '_>, span: Span) -> Option<R> {
    let message = "partitions are counted by a packet field";
    let help = "write `partitions(p.src)`; `p.dst`, `p.class` and header fields are allowed too";
    queue.cx.refuse(code::QUEUE_NOT_SEEN, message, span, "field missing", help)
}

pub(in crate::check) fn present(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
    let Ast::Path(path) = &call.args[0].kind else {
        return queue.not_a_queue_expr(call.args[0].span);
    };
    match queue.header(path, true) {
        Some(found) => Some(truth(found?.0, call.span)),
        None => {
            let message = format!("unknown header `{}`", path.to_dotted());
            queue.cx.refuse(code::UNKNOWN_NAME, &message, path.span, "unknown", IMPORT_PROTOCOL)
        }
    }
}
