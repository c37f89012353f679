//! Warns of queues that treat a just-emptied partition as new.

use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    QueueExprKind, QueueLevel, QueueLiteral, QueueMoment as Moment, QueueOperand, QueueStmt, QueueStmtKind,
};
use crate::source::Span;

/// Warns of a queue that ranks a partition first on its first packet and later behind others, and forgets this when the
/// partition is empty. A partition that is often empty, or is emptied by an AQM, is then always first, and the others
/// starve (RFC 8290 section 4.2).
pub(super) fn check(cx: &mut Cx<'_>, level: &QueueLevel) {
    let handler_at = |moment| level.handlers.iter().find(|handler| handler.moment == moment);
    if level.partitions.is_none() || handler_at(Moment::Empty).is_some() {
        return;
    }
    let ranks = |moment| {
        let mut ranks = Vec::new();
        handler_at(moment).iter().for_each(|handler| ranks_set(&handler.body, &mut ranks));
        ranks
    };
    let first = ranks(Moment::Activate).into_iter().max_by_key(|(rank, _)| *rank);
    let behind = [Moment::Select, Moment::Dequeue].into_iter().flat_map(ranks).max_by_key(|(rank, _)| *rank);
    let (Some((first, at)), Some((behind, after))) = (first, behind) else { return };
    if first >= behind {
        return;
    }
    let diagnostic = Diagnostic::warning(
        code::QUEUE_REACTIVATION,
        "a partition that was just emptied is \
        ranked first again",
    )
    .at(at, "new, or just emptied")
    .with_label(after, "it was ranked behind the others")
    .with_note("a partition that is often empty, or is emptied by an AQM, is always first; the others starve")
    .with_help(
        "keep it in the order until its turn: `ON EMPTY IF rank = 1 THEN LEAVE; END IF; SET rank = 1; \
             STAY;`, as the library's `fq` does",
    );
    cx.report(diagnostic);
}

/// The constants that are assigned to the rank, with their spans.
fn ranks_set(stmts: &[QueueStmt], ranks: &mut Vec<(i64, Span)>) {
    for stmt in stmts {
        match &stmt.kind {
            QueueStmtKind::Set { place: QueueOperand::Rank, value } => {
                if let QueueExprKind::Literal(QueueLiteral::Int(rank)) = value.kind {
                    ranks.push((rank, stmt.span));
                }
            }
            QueueStmtKind::If { arms, otherwise } => {
                arms.iter().for_each(|(_, body)| ranks_set(body, ranks));
                ranks_set(otherwise, ranks);
            }
            _ => {}
        }
    }
}
