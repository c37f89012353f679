//! Finds queues that no packet ever leaves.

use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{QueueLevel, QueueMoment as Moment, QueueStmt, QueueStmtKind, QueueVerdict};
use crate::source::Span;

/// Warns of handlers that end in HOLD on every path: when the time is reached, they hold again.
pub(super) fn check(cx: &mut Cx<'_>, level: &QueueLevel) {
    for handler in &level.handlers {
        let let_go = match handler.moment {
            Moment::Select => "SERVE",
            Moment::Dequeue => "SEND",
            _ => continue,
        };
        let mut verdicts = Vec::new();
        verdicts_of(&handler.body, &mut verdicts);
        let all_hold = verdicts.iter().all(|(verdict, _)| matches!(verdict, QueueVerdict::Hold(_)));
        let Some((_, last)) = verdicts.last().filter(|_| all_hold) else { continue };
        let diagnostic = Diagnostic::warning(code::QUEUE_NEVER_RELEASES, "no packet ever leaves this queue")
            .at(handler.span, "every path ends in HOLD")
            .with_label(*last, "when this time is reached, the handler holds again")
            .with_help(format!(
                "add a path that releases packets: `IF p.sojourn < '10 ms' THEN HOLD UNTIL p.arrived + '10 \
                 ms'; END IF; {let_go};`"
            ));
        cx.report(diagnostic);
    }
}

/// Collects the verdicts in statements.
fn verdicts_of<'a>(stmts: &'a [QueueStmt], verdicts: &mut Vec<(&'a QueueVerdict, Span)>) {
    for stmt in stmts {
        match &stmt.kind {
            QueueStmtKind::Verdict(verdict) => verdicts.push((verdict, stmt.span)),
            QueueStmtKind::If { arms, otherwise } => {
                arms.iter().for_each(|(_, body)| verdicts_of(body, verdicts));
                verdicts_of(otherwise, verdicts);
            }
            QueueStmtKind::Let { .. } | QueueStmtKind::Set { .. } => {}
        }
    }
}
