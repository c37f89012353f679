//! The functions of queues that depend on the queue or on words.

use super::Checker;
use super::build::{operand, truth};
use super::names::{IMPORT_PROTOCOL, ResolvedName};
use crate::ast::ExprKind as Ast;
use crate::check::expr::Call;
use crate::check::functions::QueueRead;
use crate::diagnostic::code;
use crate::hir::{QueueExpr, QueueExprKind as Kind, QueueOperand as Operand, QueueType as T};
use crate::source::Span;

/// Builds a call of a function that depends on the queue or on words.
pub(super) fn read(queue: &mut Checker<'_, '_>, function: QueueRead, call: Call<'_>) -> Option<QueueExpr> {
    match function {
        QueueRead::Flow => flow(queue, call),
        QueueRead::Partitions => partitions(queue, call),
        QueueRead::Present => present(queue, call),
        QueueRead::Rand => rand(queue, call),
    }
}

fn rand(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
    queue.n_rand += 1;
    Some(QueueExpr { kind: Kind::Rand(queue.n_rand - 1), ty: T::Float, span: call.span })
}

fn flow(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
    queue.record_field("flow");
    if !queue.sees_packet() {
        return queue.not_a_queue_expr(call.span);
    }
    Some(operand(Operand::Field("flow".to_owned()), T::Number, call.span))
}

fn partitions(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
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

fn present(queue: &mut Checker<'_, '_>, call: Call<'_>) -> Option<QueueExpr> {
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
