//! Checks the handlers of queues: their statements, and the rule that every path ends with one verdict.

use super::Checker;
use super::expr::codepoints;
use super::names::ResolvedName;
use crate::ast::{self, AssignTarget, QueueEvent, QueueVerdict as AstVerdict, Stmt, StmtKind};
use crate::check::expr::Environment;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    QueueBinary, QueueExpr, QueueExprKind, QueueHandler, QueueLiteral, QueueMoment as Moment, QueueOperand,
    QueueStmt, QueueStmtKind as Kind, QueueType as T, QueueVerdict,
};
use crate::source::Span;

/// The maximum number of ON EVERY handlers.
const TIMERS_MAX: usize = 4;
/// The minimum interval of ON EVERY.
const EVERY_NS_MIN: i64 = 1_000;

impl Checker<'_, '_> {
    /// Checks the handlers of a queue. Reports a second handler for the same event.
    pub(super) fn handlers(&mut self, item: &ast::Queue, partitioned: bool) -> Vec<QueueHandler> {
        let mut handlers: Vec<QueueHandler> = Vec::new();
        for handler in &item.handlers {
            let Some(moment) = self.moment(&handler.event) else { continue };
            let same = handlers.iter().find(|known| known.moment == moment && !moment.is_timed());
            if let Some(first) = same {
                let diagnostic = Diagnostic::error(code::REPEATED_HANDLER, "two handlers for one event")
                    .at(handler.event_span, "the second")
                    .with_label(first.span, "the first");
                self.cx.report(diagnostic);
            }
            if moment == Moment::Activate && !partitioned {
                let help = "write `PARTITION BY flow();`, or use ON ENQUEUE";
                let message = "a queue with a single partition has no activation";
                self.cx.fault(code::QUEUE_SHAPE, message, handler.event_span, "never applies", help);
            }
            (self.moment, self.is_declaration) = (Some(moment), false);
            (self.n_locals, self.n_rand) = (0, 0);
            self.locals.clear();
            self.local_params.clear();
            let (mut body, ends) = self.block(&handler.body);
            if !ends {
                self.end(moment, handler, &mut body);
            }
            handlers.push(QueueHandler { moment, body, span: handler.event_span });
        }
        (self.moment, self.is_declaration) = (None, true);
        if let Some(handler) = handlers.iter().filter(|handler| handler.moment.is_timed()).nth(TIMERS_MAX) {
            let message = format!("more than {TIMERS_MAX} ON EVERY handlers");
            let help = "merge them: one ON EVERY can count its runs, and do some work only every n-th run";
            self.cx.fault(code::OVER_LIMIT, &message, handler.span, "one too many", help);
        }
        handlers
    }

    /// Returns the event of a handler.
    fn moment(&mut self, event: &QueueEvent) -> Option<Moment> {
        Some(match event {
            QueueEvent::Enqueue => Moment::Enqueue,
            QueueEvent::Activate => Moment::Activate,
            QueueEvent::Select => Moment::Select,
            QueueEvent::Dequeue => Moment::Dequeue,
            QueueEvent::Empty => Moment::Empty,
            QueueEvent::Every { interval, each_partition } => {
                let QueueLiteral::Int(ns) = self.constant(interval, T::Interval)? else { return None };
                if ns < EVERY_NS_MIN {
                    let message = format!("an interval of {ns} ns; the minimum is {EVERY_NS_MIN} ns");
                    return Diagnostic::error(code::OVER_LIMIT, &message)
                        .at(interval.span, "too short")
                        .refuse(self.cx);
                }
                if let Some(span) = each_partition
                    && !self.is_partitioned
                {
                    let help = "write `PARTITION BY flow();`, or remove EACH PARTITION";
                    let message = "this queue has a single partition";
                    let label = "the only partition is the queue itself";
                    return self.cx.refuse(code::QUEUE_SHAPE, message, *span, label, help);
                }
                Moment::Every { interval_ns: ns as u64, each_partition: each_partition.is_some() }
            }
        })
    }

    /// Handles a path without a verdict: adds the implicit end if the event has one, otherwise reports an error with
    /// the path.
    fn end(&mut self, moment: Moment, handler: &ast::QueueHandler, body: &mut Vec<QueueStmt>) {
        let wants = match moment {
            Moment::Activate | Moment::Every { .. } => None,
            Moment::Enqueue => Some("ACCEPT"),
            Moment::Select => Some("SERVE"),
            Moment::Dequeue => Some("SEND"),
            Moment::Empty => Some("LEAVE"),
        };
        let line = self.cx.line(handler.span);
        match wants {
            None => {
                body.push(QueueStmt { kind: Kind::Verdict(QueueVerdict::Pass), span: handler.span, line })
            }
            Some(word) => {
                let mut diagnostic = Diagnostic::error(
                    code::QUEUE_NO_VERDICT,
                    "a path through this handler ends without a verdict",
                )
                .at(handler.event_span, "the cycle starts here");
                for (span, is_true) in self.open_path(&handler.body).into_iter().take(8) {
                    let label = if is_true { "if this is true" } else { "if this is false" };
                    diagnostic = diagnostic.with_label(span, label);
                }
                self.cx.report(diagnostic.with_help(format!("end it with `{word};`, or another verdict")));
            }
        }
    }

    /// The conditions on the first path that reaches the end of the statements.
    fn open_path(&self, stmts: &[Stmt]) -> Vec<(Span, bool)> {
        let mut path = Vec::new();
        for stmt in stmts {
            let StmtKind::If { arms, otherwise } = &stmt.kind else { continue };
            let all_end = |body: &[Stmt]| ends(body);
            if let Some(open) = arms.iter().position(|arm| !all_end(&arm.body)) {
                path.extend(arms[..open].iter().map(|arm| (arm.condition.span, false)));
                path.push((arms[open].condition.span, true));
                path.extend(self.open_path(&arms[open].body));
            } else {
                path.extend(arms.iter().map(|arm| (arm.condition.span, false)));
                path.extend(self.open_path(otherwise.as_deref().unwrap_or_default()));
            }
        }
        path
    }

    /// Checks statements. Returns them, and whether every path through them ends.
    fn block(&mut self, stmts: &[Stmt]) -> (Vec<QueueStmt>, bool) {
        let n_locals = self.locals.len();
        let (mut body, mut ended) = (Vec::new(), false);
        for stmt in stmts {
            if ended {
                let help = "remove it, or move it before the verdict";
                let message = "this statement is unreachable";
                let label = "every path has already ended";
                self.cx.fault(code::UNREACHABLE, message, stmt.span, label, help);
                break;
            }
            let line = self.cx.line(stmt.span);
            if let Some((kind, ends)) = self.stmt(stmt) {
                body.push(QueueStmt { kind, span: stmt.span, line });
                ended = ends;
            } else {
                ended = ends(std::slice::from_ref(stmt));
            }
        }
        self.locals.truncate(n_locals);
        (body, ended)
    }

    /// Checks one statement. Returns it, and whether it ends the handler on every path.
    fn stmt(&mut self, stmt: &Stmt) -> Option<(Kind, bool)> {
        match &stmt.kind {
            StmtKind::Let { name, ty, value } => {
                let n_uses = self.param_uses.len();
                let value = match ty {
                    None => self.expr(value, None),
                    Some(ty) => {
                        super::params::queue_type(self.cx, ty).and_then(|(ty, ..)| self.typed(value, ty))
                    }
                };
                let Some(value) = value else {
                    self.locals.push((name.name.clone(), None));
                    return None;
                };
                let local = self.n_locals;
                self.n_locals += 1;
                let params = self.param_uses[n_uses..].iter().map(|(name, _)| (local, name.clone()));
                self.local_params.extend(params);
                self.locals.push((name.name.clone(), Some((local, value.ty))));
                Some((Kind::Let { local, value }, false))
            }
            StmtKind::Set { target, value } => self.set(target, value).map(|kind| (kind, false)),
            StmtKind::If { arms, otherwise } => {
                let (mut checked, mut all_end) = (Vec::new(), true);
                for arm in arms {
                    let condition = self.typed(&arm.condition, T::Bool);
                    let (body, ends) = self.block(&arm.body);
                    all_end &= ends;
                    checked.push((condition?, body));
                }
                let (otherwise, ends) = self.block(otherwise.as_deref().unwrap_or_default());
                Some((Kind::If { arms: checked, otherwise }, all_end && ends))
            }
            StmtKind::QueueVerdict(verdict) => self.verdict(verdict, stmt.span).map(|kind| (kind, true)),
            StmtKind::Verdict(ast::Verdict { kind: ast::VerdictKind::Drop, span }) => {
                self.allow(&[Moment::Enqueue, Moment::Dequeue], "DROP", *span)?;
                Some((Kind::Verdict(QueueVerdict::Drop), true))
            }
            StmtKind::Verdict(verdict) => self.not_in_queues(verdict.span),
            _ => self.not_in_queues(stmt.span),
        }
    }

    /// Reports a statement that queues do not have.
    fn not_in_queues<R>(&mut self, span: Span) -> Option<R> {
        let diagnostic = Diagnostic::error(code::ACTION_NOT_HERE, "this statement is not allowed in a queue")
            .at(span, "allowed in elements only")
            .with_note(
                "a queue handler has LET, SET and IF, and ends in ACCEPT, SEND, ROTATE, SERVE, NEXT, STAY, \
                 LEAVE, HOLD, MARK or DROP",
            );
        diagnostic.refuse(self.cx)
    }

    /// Checks a SET of a variable, the rank, or a field of the packet.
    fn set(&mut self, target: &AssignTarget, value: &ast::Expr) -> Option<Kind> {
        let AssignTarget::Path(path) = target else { return self.not_in_queues(target.span()) };
        let (found, ty, can_set) = self.resolve(path)?;
        if matches!(found, ResolvedName::Operand(QueueOperand::Header(_)) | ResolvedName::Truth(_)) {
            return self
                .cannot_set(path, "queues can only read headers; change them in an element of the chain");
        }
        let ResolvedName::Operand(place) = found else {
            return self.cannot_set(path, "a LET cannot be changed");
        };
        if !can_set {
            return self.cannot_set(path, "a parameter cannot be changed");
        }
        let ast = value;
        let value = self.typed(ast, ty)?;
        if let (Some(most), Some(QueueLiteral::Int(n))) = (codepoints(&place), super::fold::fold(&value))
            && !(0..=most).contains(&n)
        {
            let message = format!("`{}` is 0 to {most}, but is set to {n}", path.to_dotted());
            return Diagnostic::error(code::BAD_LITERAL, &message)
                .at(ast.span, "out of range")
                .refuse(self.cx);
        }
        Some(Kind::Set { place, value })
    }

    /// Reports a target that cannot be set.
    fn cannot_set<R>(&mut self, path: &ast::Path, why: &str) -> Option<R> {
        let message = format!("`{}` cannot be set", path.to_dotted());
        let help =
            "settable: variables, `rank`, and the packet's `ecn`, `dscp`, `class`, `remaining` and `slack`";
        self.cx.refuse(code::WRITE_NOT_HERE, &message, path.span, why, help)
    }

    // ---- verdicts ----------------------------------------------------------------------------------------------

    /// Checks a verdict: each event has its own.
    fn verdict(&mut self, verdict: &AstVerdict, span: Span) -> Option<Kind> {
        let (word, moments): (&str, &[Moment]) = match verdict {
            AstVerdict::Accept => ("ACCEPT", &[Moment::Enqueue]),
            AstVerdict::Send => ("SEND", &[Moment::Dequeue]),
            AstVerdict::Rotate => ("ROTATE", &[Moment::Dequeue]),
            AstVerdict::Next => ("NEXT", &[Moment::Select]),
            AstVerdict::Serve => ("SERVE", &[Moment::Select]),
            AstVerdict::Stay => ("STAY", &[Moment::Empty]),
            AstVerdict::Leave => ("LEAVE", &[Moment::Empty]),
            AstVerdict::Hold { .. } => ("HOLD", &[Moment::Select, Moment::Dequeue]),
            AstVerdict::Mark { .. } => ("MARK", &[Moment::Enqueue, Moment::Dequeue]),
        };
        self.allow(moments, word, span)?;
        Some(Kind::Verdict(match verdict {
            AstVerdict::Accept | AstVerdict::Send | AstVerdict::Serve | AstVerdict::Leave => {
                QueueVerdict::Pass
            }
            AstVerdict::Rotate => QueueVerdict::Rotate,
            AstVerdict::Next => QueueVerdict::Next,
            AstVerdict::Stay => QueueVerdict::Stay,
            AstVerdict::Mark { or_drop } => QueueVerdict::Mark { or_drop: *or_drop },
            AstVerdict::Hold { is_span: false, time } => QueueVerdict::Hold(self.typed(time, T::Timestamp)?),
            AstVerdict::Hold { is_span: true, time } => {
                let time = self.typed(time, T::Interval)?;
                let now =
                    QueueExpr { kind: QueueExprKind::Operand(QueueOperand::Now), ty: T::Timestamp, span };
                let kind = QueueExprKind::Binary(QueueBinary::Add, Box::new(now), Box::new(time));
                QueueVerdict::Hold(QueueExpr { kind, ty: T::Timestamp, span })
            }
        }))
    }

    /// Checks that the handler permits a verdict.
    fn allow(&mut self, moments: &[Moment], word: &str, span: Span) -> Option<()> {
        if self.moment.is_some_and(|moment| moments.contains(&moment)) {
            return Some(());
        }
        let words: Vec<&str> = moments.iter().map(|moment| moment_word(*moment)).collect();
        let message = format!("`{word}` is not a verdict of this handler");
        let help = format!("verdict of {}", words.join(" and "));
        self.cx.refuse(code::VERDICT_NOT_HERE, &message, span, "not allowed here", &help)
    }
}

/// Returns the keywords of an event.
fn moment_word(moment: Moment) -> &'static str {
    match moment {
        Moment::Enqueue => "ON ENQUEUE",
        Moment::Activate => "ON ACTIVATE",
        Moment::Select => "ON SELECT",
        Moment::Dequeue => "ON DEQUEUE",
        Moment::Empty => "ON EMPTY",
        Moment::Every { .. } => "ON EVERY",
    }
}

/// Whether every path through the statements ends with a verdict, valid or not.
fn ends(stmts: &[Stmt]) -> bool {
    stmts.iter().any(|stmt| match &stmt.kind {
        StmtKind::QueueVerdict(_) | StmtKind::Verdict(_) => true,
        StmtKind::If { arms, otherwise } => {
            otherwise.as_deref().is_some_and(ends) && arms.iter().all(|arm| ends(&arm.body))
        }
        _ => false,
    })
}

#[cfg(test)]
mod tests {
    use super::{EVERY_NS_MIN, TIMERS_MAX};
    use crate::check::queue::link::CALLS_PER_SECOND;
    use crate::check::queue::{
        BYTES_MAX, COUNTED_MAX, HEADERS_MAX, LEVELS_MAX, PACKETS_MAX, PARTITIONS_MAX, RANK_BITS_MAX, VARS_MAX,
    };

    /// `4,194,304`
    fn grouped(n: u64) -> String {
        let digits = n.to_string();
        let groups =
            digits.as_bytes().rchunks(3).rev().map(|group| String::from_utf8_lossy(group).into_owned());
        groups.collect::<Vec<_>>().join(",")
    }

    /// Otherwise the page of limits would promise a queue size that the check rejects.
    #[test]
    fn limits_page_lists_queue_limits() {
        let page = include_str!("../../../../../docs/src/reference/limits.md");
        let section = page.split("\n## ").find(|section| section.starts_with("Queues and links"));
        let section = section.expect("it is there");
        let calls = grouped(*CALLS_PER_SECOND.end() as u64);
        for (what, limit) in [
            (
                "bytes, that a queue holds",
                format!("{}, {} TiB", grouped(PACKETS_MAX.into()), BYTES_MAX >> 40),
            ),
            ("levels of a queue", LEVELS_MAX.to_string()),
            ("partitions of a queue", format!("{}; 64", grouped(PARTITIONS_MAX.into()))),
            ("bits of a rank", RANK_BITS_MAX.to_string()),
            ("variables of a queue", format!("{VARS_MAX}, {VARS_MAX}")),
            ("fields of headers", HEADERS_MAX.to_string()),
            ("counts partitions by", COUNTED_MAX.to_string()),
            ("`ON EVERY`", format!("{TIMERS_MAX}, {} us", EVERY_NS_MIN / 1_000)),
            (
                "rate of a link",
                format!("1 bit/s to 10,000 Gbit/s; {} to {calls} calls/s", CALLS_PER_SECOND.start()),
            ),
        ] {
            let row = section.lines().find(|row| row.contains(what)).unwrap_or_else(|| panic!("no {what}"));
            assert!(row.ends_with(&format!("| {limit} |")), "{row}: {limit}");
        }
    }
}
