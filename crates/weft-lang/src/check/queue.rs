//! Checks queues and links: from syntax to trees of levels with known parameters.
//!
//! A queue is checked once for each set of parameter values. An error that is independent of the values is reported
//! once, because equal diagnostics at one place are merged.

mod body;
pub(super) mod build;
mod clock;
mod diagnostic_origin;
pub(crate) mod expr;
mod fold;
pub(super) mod functions;
mod level;
mod link;
pub(crate) mod names;
mod params;
mod range;
mod rank;
mod reactivation;
mod starvation;

use fold::fold;
use params::{params, spelled};
use std::collections::BTreeSet;

use crate::ast::{self, Assign, Expr as AstExpr, ExprKind as AstKind, Item, QueueUse};
use crate::check::Cx;
use crate::check::expr::Environment;
use crate::check::suggest::with_nearest_or_import;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Layer, Queue, QueueExpr, QueueExprKind, QueueHeader, QueueLevel, QueueLiteral as Literal, QueueMoment,
    QueueOperand, QueueOverflow, QueuePartitions, QueueStmt, QueueStmtKind, QueueType as T, QueueVictim,
};
use crate::source::Span;
use weft_core::Type;
use weft_core::wire::FieldRef;

/// Levels of a queue, at most.
pub const LEVELS_MAX: usize = 4;
/// The maximum number of partitions of a node, and of a level of the whole tree.
pub const PARTITIONS_MAX: u32 = 1 << 20;
/// The maximum number of packets in a queue.
pub const PACKETS_MAX: u32 = 1 << 22;
/// The maximum number of bytes in a queue.
pub const BYTES_MAX: u64 = 1 << 40;
/// The maximum width of ranks; ranks are found by bitmaps.
pub const RANK_BITS_MAX: u8 = 18;
/// The maximum number of variables of a node or a partition.
pub const VARS_MAX: usize = 64;
/// The maximum number of header fields that a queue reads, on all its levels.
pub const HEADERS_MAX: usize = 4;
/// The maximum number of fields by which a queue counts partitions, on all its levels.
pub const COUNTED_MAX: usize = 4;
/// The maximum number of calls in flight on a link.
pub const CONCURRENCY_MAX: u32 = 1 << 20;
/// Names with a predefined meaning in every queue.
const RESERVED: [&str; 6] = ["p", "rank", "drops", "queue", "partition", "link"];

/// The meaning of a name in a queue.
#[derive(Clone, Copy, Debug)]
enum QueueName {
    Param(Literal, T),
    Var(usize, T),
    PartitionVar(usize, T),
    /// A name with a reported error.
    Broken,
}

/// The queues of a program, for the items that use them.
pub(super) struct Queues<'a> {
    items: Vec<&'a ast::Queue>,
    /// The packet fields that any queue sets.
    changed: BTreeSet<String>,
}

impl<'a> Queues<'a> {
    /// Collects the queues of a program, and the packet fields that any of them sets.
    pub(super) fn of(items: &[&'a Item]) -> Self {
        let items =
            items.iter().filter_map(|item| if let Item::Queue(queue) = item { Some(queue) } else { None });
        let items: Vec<_> = items.collect();
        let mut changed = BTreeSet::new();
        for handler in items.iter().flat_map(|item| &item.handlers) {
            changed_by(&handler.body, &mut changed);
        }
        Self { items, changed }
    }

    /// Checks the queues that need no arguments.
    pub(super) fn check(&self, cx: &mut Cx<'_>) -> Vec<Queue> {
        let mut queues = Vec::new();
        for item in &self.items {
            if cx.is_at_limit() {
                break;
            }
            let levels = self.levels(cx, item, None, &mut Vec::new());
            let misses = item.params.iter().any(|param| param.default.is_none());
            if let Some(levels) = levels.filter(|_| !misses) {
                queues.push(Queue { name: item.name.name.clone(), levels, span: item.span });
            }
        }
        queues
    }

    /// Finds a used queue and returns its levels.
    fn resolve_use(
        &self,
        cx: &mut Cx<'_>,
        used: &QueueUse,
        within: &mut Vec<String>,
    ) -> Option<Vec<QueueLevel>> {
        let Some(item) = self.items.iter().find(|item| item.name.name == used.queue.name) else {
            let message = format!("unknown queue `{}`", used.queue.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, message).at(used.queue.span, "unknown");
            let names = self.items.iter().map(|item| item.name.name.as_str());
            let diagnostic = with_nearest_or_import(cx, diagnostic, &used.queue, "queues", names);
            return diagnostic.refuse_missing(cx);
        };
        self.levels(cx, item, Some(used), within)
    }

    /// Returns the levels of a queue, with the arguments of a use, or without arguments.
    fn levels(
        &self,
        cx: &mut Cx<'_>,
        item: &ast::Queue,
        used: Option<&QueueUse>,
        within: &mut Vec<String>,
    ) -> Option<Vec<QueueLevel>> {
        if item.is_faulty {
            return None;
        }
        if within.contains(&item.name.name) || within.len() > LEVELS_MAX {
            let message = format!("queue `{}` contains itself", item.name.name);
            let help = "nested queues must end in a queue with handlers of its own";
            return cx.refuse(code::QUEUE_SHAPE, message, item.name.span, "the cycle starts here", help);
        }
        let (names, is_whole) = params(cx, item, used);
        if !is_whole && used.is_some() {
            return None;
        }
        let n_reported = cx.diagnostics.len();
        let mut checker = Checker::new(cx, names);
        // If a parameter has no valid value, its conditions cannot be evaluated.
        let has_all = used.is_some() || item.params.iter().all(|param| param.default.is_some());
        let is_known = is_whole && has_all;
        let holds = match is_known {
            true => checker.checks_hold(item),
            false => item.checks.iter().all(|check| checker.typed(&check.condition, T::Bool).is_some()),
        };
        let levels = match item.uses.is_empty() {
            _ if !holds => None,
            true => self.level(&mut checker, item, used),
            false => self.composed(&mut checker, item, within),
        };
        let uses = checker.param_uses;
        if let Some(used) = used {
            diagnostic_origin::point_at_arguments(cx, n_reported, (item, used), &uses);
        }
        levels.filter(|_| is_whole)
    }

    /// The single level of a queue without nested queues.
    fn level(
        &self,
        checker: &mut Checker<'_, '_>,
        item: &ast::Queue,
        used: Option<&QueueUse>,
    ) -> Option<Vec<QueueLevel>> {
        let n_before = checker.cx.n_errors();
        let level = checker.level(item)?;
        let (n_errors, is_right) = (checker.cx.n_errors(), checker.cx.n_errors() == n_before);
        // If a parameter has no value yet, the ranks are unknown.
        if used.is_some() || item.params.iter().all(|param| param.default.is_some()) {
            rank::check(checker.cx, &level, &self.changed);
            clock::check(checker.cx, &level);
            starvation::check(checker.cx, &level);
            reactivation::check(checker.cx, &level);
        }
        let levels = vec![level];
        check_header_count(checker.cx, item, &levels)?;
        (is_right && checker.cx.n_errors() == n_errors).then_some(levels)
    }

    /// Returns the levels of a queue that is composed of other queues.
    fn composed(
        &self,
        checker: &mut Checker<'_, '_>,
        item: &ast::Queue,
        within: &mut Vec<String>,
    ) -> Option<Vec<QueueLevel>> {
        let n_errors = checker.cx.n_errors();
        let limit = checker.composed(item);
        within.push(item.name.name.clone());
        let mut levels = Vec::new();
        for used in &item.uses {
            let arguments = checker.arguments(used);
            let found = self.used_with(checker.cx, used, &arguments, within);
            levels.extend(found?);
        }
        within.pop();
        let cx = &mut *checker.cx;
        if let (Some(limit), Some(root)) = (limit, levels.first_mut()) {
            root.limit = limit;
        }
        move_limits_to_leaves(&mut levels, limit.is_some());
        tree(cx, item, &levels);
        check_header_count(cx, item, &levels);
        (cx.n_errors() == n_errors).then_some(levels)
    }

    /// Resolves a use like [`Self::resolve_use`], with its arguments evaluated to constants.
    fn used_with(
        &self,
        cx: &mut Cx<'_>,
        used: &QueueUse,
        arguments: &[Assign],
        within: &mut Vec<String>,
    ) -> Option<Vec<QueueLevel>> {
        let used = QueueUse { queue: used.queue.clone(), args: arguments.to_vec(), span: used.span };
        self.resolve_use(cx, &used, within)
    }
}

/// Moves limits to the leaves. A full queue drops from the leaf that has the backlog, not the arriving packet. So a
/// level with a single partition above other levels has no limit of its own: the queue below limits itself. A level
/// with several partitions has one, and so has the whole queue if it declares one (`is_of_whole`): both drop from the
/// partition with the most bytes, unless the rank decides.
fn move_limits_to_leaves(levels: &mut [QueueLevel], is_of_whole: bool) {
    let Some((_, above)) = levels.split_last_mut() else { return };
    for (at, level) in above.iter_mut().enumerate() {
        let head = match level.limit.overflow {
            QueueOverflow::Victim { of: QueueVictim::MostBytes | QueueVictim::HighestRank, .. } => continue,
            QueueOverflow::Victim { head, .. } => head,
            QueueOverflow::Arriving => false,
        };
        level.limit.overflow = QueueOverflow::Victim { of: QueueVictim::MostBytes, head };
        if level.partitions.is_none() && !(is_of_whole && at == 0) {
            (level.limit.packets, level.limit.bytes) = (Some(PACKETS_MAX), None);
        }
    }
}

/// Rejects a queue that reads too many header fields.
fn check_header_count(cx: &mut Cx<'_>, item: &ast::Queue, levels: &[QueueLevel]) -> Option<()> {
    let counted: BTreeSet<&String> = levels.iter().flat_map(|level| &level.counted).collect();
    if counted.len() > COUNTED_MAX {
        let message =
            format!("partitions are counted by {} fields; at most {COUNTED_MAX} are allowed", counted.len());
        return Diagnostic::error(code::OVER_LIMIT, message).at(item.name.span, "too many").refuse(cx);
    }
    let all = levels.iter().flat_map(|level| &level.headers);
    let names: BTreeSet<&str> = all.clone().map(|header| header.name.as_str()).collect();
    if names.len() <= HEADERS_MAX {
        return Some(());
    }
    let message = format!("the queue reads {} header fields; at most {HEADERS_MAX} are allowed", names.len());
    let diagnostic = Diagnostic::error(code::OVER_LIMIT, message).at(item.name.span, "too many");
    cx.report(
        diagnostic
            .with_help("use MARK in an element of the chain for further fields: the queue reads `p.class`"),
    );
    None
}

/// Whether the levels can be nested in this order.
fn tree(cx: &mut Cx<'_>, item: &ast::Queue, levels: &[QueueLevel]) {
    if levels.len() > LEVELS_MAX {
        let message = format!("the queue has {} levels; at most {LEVELS_MAX} are allowed", levels.len());
        cx.report(Diagnostic::error(code::QUEUE_SHAPE, message).at(item.name.span, "too many levels"));
    }
    let mut n = 1_u64;
    for (at, level) in levels.iter().enumerate() {
        n *= level.partitions.as_ref().map_or(1, |(partitions, _)| match partitions {
            QueuePartitions::Hash { n, .. } | QueuePartitions::Index { n } => u64::from(*n),
        });
        if n > u64::from(PARTITIONS_MAX) {
            let message = format!("{n} partitions in total; at most {PARTITIONS_MAX} are allowed");
            cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(item.name.span, "too many"));
            return;
        }
        if at + 1 == levels.len() {
            continue;
        }
        let ranks_packets = level.packet_rank.is_some() || level.least.is_some();
        let select = level.handlers.iter().find(|handler| handler.moment == QueueMoment::Select);
        let looks = select.is_some_and(|handler| handler.body.iter().any(sees_packet));
        let fault = match (ranks_packets, looks) {
            (true, _) => "orders packets, but contains queues here",
            (_, true) => "reads the packet in SELECT, but here the inner queue chooses it later",
            _ => continue,
        };
        let diagnostic = Diagnostic::error(code::QUEUE_SHAPE, format!("`{}` {fault}", level.name))
            .at(item.name.span, "contains it")
            .with_label(level.span, "declared here")
            .with_help("make it the innermost queue, or charge packets in ON DEQUEUE");
        cx.report(diagnostic);
    }
}

/// Collects the packet fields that statements set.
fn changed_by(stmts: &[ast::Stmt], changed: &mut BTreeSet<String>) {
    for stmt in stmts {
        match &stmt.kind {
            ast::StmtKind::Set { target: ast::AssignTarget::Path(path), .. } => {
                changed.extend(path.segments.last().map(|name| name.name.to_ascii_lowercase()));
            }
            ast::StmtKind::If { arms, otherwise } => {
                arms.iter().for_each(|arm| changed_by(&arm.body, changed));
                changed_by(otherwise.as_deref().unwrap_or_default(), changed);
            }
            _ => {}
        }
    }
}

/// Whether a statement reads a field of the packet.
fn sees_packet(stmt: &QueueStmt) -> bool {
    let in_expr = |expr: &QueueExpr| reads_packet(expr);
    match &stmt.kind {
        QueueStmtKind::Let { value, .. } | QueueStmtKind::Set { value, .. } => in_expr(value),
        QueueStmtKind::If { arms, otherwise } => {
            arms.iter().any(|(by, body)| in_expr(by) || body.iter().any(sees_packet))
                || otherwise.iter().any(sees_packet)
        }
        QueueStmtKind::Verdict(crate::hir::QueueVerdict::Hold(time)) => in_expr(time),
        QueueStmtKind::Verdict(_) => false,
    }
}

/// Whether an expression reads a field of the packet.
fn reads_packet(expr: &QueueExpr) -> bool {
    match &expr.kind {
        QueueExprKind::Operand(place) => matches!(
            place,
            QueueOperand::Arrived
                | QueueOperand::Len
                | QueueOperand::Ecn
                | QueueOperand::Id
                | QueueOperand::Field(_)
                | QueueOperand::Header(_)
                | QueueOperand::Partitions(_)
        ),
        QueueExprKind::Literal(_) | QueueExprKind::Local(_) | QueueExprKind::Rand(_) => false,
        QueueExprKind::Unary(_, a) => reads_packet(a),
        QueueExprKind::Binary(_, a, b) => reads_packet(a) || reads_packet(b),
        QueueExprKind::Case(arms, otherwise) => {
            arms.iter().any(|(when, then)| reads_packet(when) || reads_packet(then))
                || reads_packet(otherwise)
        }
    }
}

/// The checker of one queue, with its parameters known.
pub(super) struct Checker<'k, 'c> {
    cx: &'k mut Cx<'c>,
    names: Vec<(String, QueueName)>,
    /// None for a local whose value has a reported error.
    locals: Vec<(String, Option<(usize, T)>)>,
    n_locals: usize,
    n_rand: u32,
    /// The current handler.
    moment: Option<QueueMoment>,
    /// The current code is a declaration, without a packet.
    is_declaration: bool,
    fields: BTreeSet<String>,
    headers: Vec<QueueHeader>,
    /// The field by which partitions are counted.
    counted: Vec<String>,
    /// `BITS` of the order of partitions.
    rank_bits: Option<u8>,
    /// There is a PARTITION BY.
    is_partitioned: bool,
    /// The uses of parameters, and of locals that depend on them.
    param_uses: Vec<(String, Span)>,
    /// The parameters that each local of the current handler depends on.
    local_params: Vec<(usize, String)>,
    /// The number of errors in initial values of variables, which do not concern the handlers.
    n_starts_wrong: usize,
}

impl<'k, 'c> Checker<'k, 'c> {
    /// Creates a checker with the names of a queue's parameters.
    fn new(cx: &'k mut Cx<'c>, names: Vec<(String, QueueName)>) -> Self {
        Self {
            cx,
            names,
            locals: Vec::new(),
            n_locals: 0,
            n_rand: 0,
            moment: None,
            is_declaration: true,
            fields: BTreeSet::new(),
            headers: Vec::new(),
            counted: Vec::new(),
            rank_bits: None,
            is_partitioned: false,
            param_uses: Vec::new(),
            local_params: Vec::new(),
            n_starts_wrong: 0,
        }
    }

    /// Resolves a header field, or whether a packet has a header; None if the first part of the path is not a layer.
    /// The inner None is a reported error.
    fn header(&mut self, path: &ast::Path, is_asked_present: bool) -> Option<Option<(QueueOperand, T)>> {
        let (layer, _, rest) = self.cx.layer_of(&path.segments)?;
        let (field, ty, name) = if is_asked_present && rest.is_empty() {
            (FieldRef::presence(layer), Type::Bool, format!("present({})", path.to_dotted()))
        } else {
            let Some(column) = self.cx.frame_column(&Layer::Packet(None), path)? else { return Some(None) };
            (column.field, column.ty, path.to_dotted())
        };
        if !self.sees_packet() {
            self.no_packet(path.span);
            return Some(None);
        }
        if !self.headers.iter().any(|known| known.name == name) {
            self.headers.push(QueueHeader { name: name.clone(), field, ty, span: path.span });
        }
        let ty = if ty == Type::Bool { T::Bool } else { T::Number };
        Some(Some((QueueOperand::Header(name), ty)))
    }

    /// Records that the queue reads a field of its items.
    fn record_field(&mut self, field: &str) {
        self.fields.insert(field.to_owned());
    }

    // ---- constants ---------------------------------------------------------------------------------------------

    /// Checks an expression and computes its value. Reports one that is not constant.
    fn constant(&mut self, ast: &AstExpr, ty: T) -> Option<Literal> {
        let typed = self.typed(ast, ty)?;
        let value = fold(&typed);
        if value.is_none() {
            let help = "use literals and parameters";
            let message = "this must be a constant";
            self.cx.fault(code::NOT_CONSTANT, message, ast.span, "not a constant", help);
        }
        value
    }

    /// Computes a constant integer within these limits.
    fn number(&mut self, ast: &AstExpr, low: i64, high: i64, what: &str) -> Option<i64> {
        let Literal::Int(n) = self.constant(ast, T::Number)? else { return None };
        if (low..=high).contains(&n) {
            return Some(n);
        }
        let message = format!("{n} {what}: allowed are {low} to {high}");
        Diagnostic::error(code::OVER_LIMIT, &message).at(ast.span, "outside the limits").refuse(self.cx)
    }

    /// The arguments of a use as literals: the parameters of this queue are known here.
    fn arguments(&mut self, used: &QueueUse) -> Vec<Assign> {
        let mut args = used.args.clone();
        for arg in &mut args {
            let AstKind::Path(path) = &arg.value.kind else { continue };
            let Some(name) = path.as_ident() else { continue };
            let named = self.names.iter().find(|(known, _)| *known == name.name);
            if let Some((_, QueueName::Param(value, ty))) = named {
                self.param_uses.push((name.name.clone(), arg.value.span));
                arg.value = spelled(*value, *ty, arg.value.span);
            }
        }
        args
    }
}
