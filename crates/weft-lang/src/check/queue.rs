//! Checks queues and links: from syntax to trees of levels with known parameters.
//!
//! A queue is checked once for each set of parameter values. An error that is independent of the values is reported
//! once, because equal diagnostics at one place are merged.

mod body;
mod clock;
mod diagnostic_origin;
pub(crate) mod expr;
mod fold;
pub(super) mod functions;
pub(crate) mod names;
mod params;
mod range;
mod rank;
mod reactivation;
mod starvation;

use fold::fold;
use params::{is_free, params, queue_type, spelled};
use std::collections::BTreeSet;

use super::Cx;
use super::expr::Environment;
use super::header;
use super::scope::{with_nearest, with_nearest_or_import};
use crate::ast::{
    self, Assign, Expr as AstExpr, ExprKind as AstKind, Ident, Item, LinkCalls, LinkOn, PartitionInto,
    QueueDecl, QueueUse,
};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    CallFlow, CallLink, CallsOf, Layer, Link, Network, PortKind, Queue, QueueExpr, QueueExprKind,
    QueueHeader, QueueLevel, QueueLimit, QueueLiteral as Literal, QueueMoment, QueueOperand, QueueOverflow,
    QueuePartitions, QueueStmt, QueueStmtKind, QueueType as T, QueueVar, QueueVictim,
};
use crate::source::Span;
use weft_core::Type;
use weft_core::hash::{hash_bytes, mix};
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
/// A full Ethernet frame with its header; a call counts as one, too.
const FRAME_BYTES: i64 = 1514;
/// Names with a predefined meaning in every queue.
const RESERVED: [&str; 6] = ["p", "rank", "drops", "queue", "partition", "link"];
/// The range of call rates of a link.
const CALLS_PER_SECOND: core::ops::RangeInclusive<f64> = 1e-3..=1e9;
/// The partitions without a `HASH` clause.
const PARTITIONS_DEFAULT: (u32, u32) = (1024, 8);

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

    /// Checks a link and adds it to the links of the network.
    pub(super) fn link(&self, cx: &mut Cx<'_>, network: &mut Network, item: &ast::Link) {
        match &item.on {
            LinkOn::Port { port, ingress } => {
                let link = self.link_on_port(cx, network, item, (port, ingress.is_some()));
                network.links.extend(link);
            }
            LinkOn::Calls(calls) => {
                let link = self.link_of_calls(cx, network, item, calls);
                network.call_links.extend(link);
            }
        }
    }

    /// Checks a link on a port, in one direction.
    fn link_on_port(
        &self,
        cx: &mut Cx<'_>,
        network: &Network,
        item: &ast::Link,
        (on, ingress): (&Ident, bool),
    ) -> Option<Link> {
        let ports = &network.ports;
        let names = ports.iter().map(|port| port.name.as_str());
        let Some(port) = ports.iter().position(|port| port.name == on.name) else {
            let diagnostic = Diagnostic::error(code::NOT_IN_NETWORK, format!("unknown port `{}`", on.name))
                .at(on.span, "unknown");
            cx.report_missing(with_nearest(diagnostic, on, names));
            return None;
        };
        if ports[port].kind == PortKind::Pcap && !ingress {
            let diagnostic = Diagnostic::error(code::QUEUE_USE, "a capture file needs no queue")
                .at(on.span, "a file")
                .with_help("put the link on a device port, or simulate it with `weft sim`");
            cx.report(diagnostic);
        }
        let rate = match &item.rate {
            None => None,
            Some(AstExpr { kind: AstKind::Str(text), span }) => {
                let rate = expr::rate(text);
                if rate.is_none() {
                    let diagnostic = Diagnostic::error(code::BAD_LITERAL, format!("`{text}` is not a rate"))
                        .at(*span, "bits per second")
                        .with_help("write '15 Mbit/s': bit/s, kbit/s, Mbit/s or Gbit/s");
                    cx.report(diagnostic);
                }
                rate
            }
            Some(other) => Diagnostic::error(code::BAD_LITERAL, "a rate is written as a text")
                .at(other.span, "bits per second")
                .with_help("write '15 Mbit/s'")
                .refuse(cx),
        };
        let levels = self.resolve_use(cx, &item.queue, &mut Vec::new())?;
        let queue = Queue { name: item.queue.queue.name.clone(), levels, span: item.queue.span };
        let name = item.name.name.clone();
        Some(Link { name, port, ingress, rate, queue, on_failure: item.on_failure, span: item.span })
    }

    /// Checks a link on a listener or cluster.
    fn link_of_calls(
        &self,
        cx: &mut Cx<'_>,
        network: &Network,
        item: &ast::Link,
        calls: &LinkCalls,
    ) -> Option<CallLink> {
        let LinkCalls { is_listener, on, concurrency, key, class } = calls;
        let what = if *is_listener { "listener" } else { "cluster" };
        let names: Vec<&str> = match is_listener {
            true => network.listeners.iter().map(|listener| listener.name.as_str()).collect(),
            false => network.clusters.iter().map(|cluster| cluster.name.as_str()).collect(),
        };
        let Some(at) = names.iter().position(|name| *name == on.name) else {
            let diagnostic = Diagnostic::error(code::NOT_IN_NETWORK, format!("unknown {what} `{}`", on.name))
                .at(on.span, "unknown");
            cx.report_missing(with_nearest(diagnostic, on, names));
            return None;
        };
        let of = if *is_listener { CallsOf::Listener(at) } else { CallsOf::Cluster(at) };
        if let Some(other) = network.call_links.iter().find(|link| link.of == of) {
            let way = if *is_listener { "from" } else { "to" };
            let message = format!("calls {way} `{}` already wait in link `{}`", on.name, other.name);
            let diagnostic =
                Diagnostic::error(code::QUEUE_USE, message).at(on.span, "has a link already").with_help(
                    format!("a {what} can have one link: to nest queues, use `EACH USING` in its queue"),
                );
            cx.report(diagnostic);
        }
        if item.on_failure.is_some() {
            let message = format!("a {what} has no device that can fail");
            let diagnostic = Diagnostic::error(code::QUEUE_USE, message)
                .at(item.span, "ON FAILURE applies to ports")
                .with_help("unreachable endpoints are ejected; use RETRY to try another one");
            cx.report(diagnostic);
        }
        if concurrency.is_none() && item.rate.is_none() {
            let diagnostic = Diagnostic::error(code::QUEUE_USE, "no call ever waits in this link")
                .at(on.span, "no limit given")
                .with_help("write `CONCURRENCY 64` to limit calls in flight, or RATE '1000 calls/s'");
            cx.report(diagnostic);
        }
        let concurrency = concurrency.as_ref().and_then(|expr| concurrency_of(cx, expr));
        let step_ns = item.rate.as_ref().and_then(|expr| step_of(cx, expr));
        let key = key.as_ref().map_or(Some(CallFlow::Host), |expr| flow_of(cx, expr));
        let class = class.as_ref().and_then(|expr| header_of(cx, "CLASS", expr));
        let levels = self.resolve_use(cx, &item.queue, &mut Vec::new())?;
        no_headers(cx, &item.queue, &levels);
        let queue = Queue { name: item.queue.queue.name.clone(), levels, span: item.queue.span };
        let name = item.name.name.clone();
        Some(CallLink { name, of, concurrency, step_ns, key: key?, class, queue, span: item.span })
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
            cx.report_missing(diagnostic);
            return None;
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
            return Diagnostic::error(code::QUEUE_SHAPE, message)
                .at(item.name.span, "the cycle starts here")
                .with_help("nested queues must end in a queue with handlers of its own")
                .refuse(cx);
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
        cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(item.name.span, "too many"));
        return None;
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

/// Rejects a queue that reads headers where no packets have headers.
fn no_headers(cx: &mut Cx<'_>, used: &QueueUse, levels: &[QueueLevel]) {
    let Some(header) = levels.iter().flat_map(|level| &level.headers).next() else { return };
    let message = format!("calls have no `{}`", header.name);
    let diagnostic = Diagnostic::error(code::QUEUE_USE, message)
        .at(used.span, "reads packet fields")
        .with_label(header.span, "here")
        .with_help(
            "classify calls with `KEY header['...']` and `CLASS header['...']`, and read `flow()` and `p.class`",
        );
    cx.report(diagnostic);
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

    fn report(&mut self, code: crate::diagnostic::Code, message: &str, span: Span, label: &str, help: &str) {
        let diagnostic = Diagnostic::error(code, message).at(span, label);
        self.cx.report(if help.is_empty() { diagnostic } else { diagnostic.with_help(help) });
    }

    // ---- constants ---------------------------------------------------------------------------------------------

    /// Checks an expression and computes its value. Reports one that is not constant.
    fn constant(&mut self, ast: &AstExpr, ty: T) -> Option<Literal> {
        let typed = self.typed(ast, ty)?;
        let value = fold(&typed);
        if value.is_none() {
            let help = "use literals and parameters";
            self.report(code::NOT_CONSTANT, "this must be a constant", ast.span, "not a constant", help);
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
        self.report(code::OVER_LIMIT, &message, ast.span, "outside the limits", "");
        None
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

    // ---- declarations ------------------------------------------------------------------------------------------

    /// Checks a queue with nested queues, which can only declare a limit.
    fn composed(&mut self, item: &ast::Queue) -> Option<QueueLimit> {
        let mut limit = None;
        for decl in &item.decls {
            match decl {
                QueueDecl::Limit(clause) => limit = self.limit(clause, None),
                other => {
                    let help = "declare it in one of the nested queues";
                    self.report(
                        code::QUEUE_SHAPE,
                        "a queue made of others can only have a limit",
                        decl_span(other),
                        "not allowed here",
                        help,
                    );
                }
            }
        }
        if let Some(handler) = item.handlers.first() {
            let help = "write the handler in one of the nested queues";
            self.report(
                code::QUEUE_SHAPE,
                "a queue made of others has no handlers",
                handler.event_span,
                "not allowed here",
                help,
            );
        }
        limit
    }

    /// Checks a queue without uses of other queues: its declarations and handlers.
    fn level(&mut self, item: &ast::Queue) -> Option<QueueLevel> {
        let n_errors = self.cx.n_errors();
        self.is_partitioned = item.decls.iter().any(|decl| matches!(decl, QueueDecl::Partition { .. }));
        let (vars, partition_vars) = self.vars(item);
        let (mut partitions, mut least, mut packet_rank, mut limit) = (None, None, None, None);
        let mut ordered = None;
        for decl in &item.decls {
            match decl {
                QueueDecl::Var { .. } => {}
                QueueDecl::Partition { key, into, span } => {
                    self.report_repeated(partitions.is_some(), "PARTITION BY", *span);
                    partitions = self.partition(key, into.as_ref());
                }
                QueueDecl::OrderPartitions { by, bits, span } => {
                    self.report_repeated(ordered.is_some(), "ORDER PARTITIONS", *span);
                    ordered = Some(*span);
                    self.rank_bits = bits.as_ref().and_then(|bits| self.bits(bits));
                    least = self.order(by);
                }
                QueueDecl::OrderPackets { by, bits, span } => {
                    self.report_repeated(packet_rank.is_some(), "ORDER PACKETS", *span);
                    let bits = bits.as_ref().and_then(|bits| self.bits(bits));
                    packet_rank = self.packet_expr(by).map(|by| (by, bits));
                    if self.is_partitioned {
                        let help = "order partitions, or put a queue that orders packets behind EACH USING";
                        self.report(
                            code::QUEUE_SHAPE,
                            "packets can only be ordered if there is one partition",
                            *span,
                            "partition unknown",
                            help,
                        );
                    }
                }
                QueueDecl::Limit(_) => {}
            }
        }
        for decl in &item.decls {
            if let QueueDecl::Limit(clause) = decl {
                self.report_repeated(limit.is_some(), "LIMIT", clause.span);
                let has_tail = partitions.is_some() || packet_rank.is_some() && !clause.head;
                limit = self.limit(clause, Some(has_tail));
            }
        }
        let has_limit = item.decls.iter().any(|decl| matches!(decl, QueueDecl::Limit(_)));
        if !has_limit {
            let help = "write `LIMIT 1000 PACKETS ON OVERFLOW DROP TAIL;`";
            let message = format!("queue `{}` has no limit", item.name.name);
            self.report(code::QUEUE_NO_LIMIT, &message, item.name.span, "capacity missing", help);
        }
        if let (Some(span), None) = (ordered, &partitions) {
            let help = "write `PARTITION BY flow();`";
            self.report(
                code::QUEUE_SHAPE,
                "this queue orders partitions but has only one",
                span,
                "nothing to order",
                help,
            );
        }
        if !partition_vars.is_empty() && partitions.is_none() {
            let help = "remove `PARTITION`, or write `PARTITION BY flow();`";
            self.report(
                code::QUEUE_SHAPE,
                "this queue has partition variables but only one partition",
                item.name.span,
                "not partitioned",
                help,
            );
        }
        let handlers = self.handlers(item, partitions.is_some());
        let level = QueueLevel {
            name: item.name.name.clone(),
            partitions,
            vars,
            partition_vars,
            rank_bits: self.rank_bits,
            least,
            packet_rank,
            limit: limit?,
            handlers,
            headers: std::mem::take(&mut self.headers),
            counted: std::mem::take(&mut self.counted),
            span: item.span,
            text: mix(
                self.cx.line(item.span).into(),
                hash_bytes(self.cx.sources.slice(item.span).as_bytes()),
            ),
        };
        (self.cx.n_errors() == n_errors + self.n_starts_wrong).then_some(level)
    }

    /// Reports a clause that is written twice.
    fn report_repeated(&mut self, again: bool, clause: &str, span: Span) {
        if again {
            self.report(
                code::REPEATED_CLAUSE,
                &format!("`{clause}` is written twice"),
                span,
                "again here",
                "keep one of them",
            );
        }
    }

    /// Checks the variables of a queue. Returns those of the queue, and those of each partition.
    fn vars(&mut self, item: &ast::Queue) -> (Vec<QueueVar>, Vec<QueueVar>) {
        let (mut vars, mut partition_vars) = (Vec::new(), Vec::new());
        for decl in &item.decls {
            let QueueDecl::Var { per_partition, var, span } = decl else { continue };
            let name = &var.name.name;
            if !is_free(self.cx, &self.names, &var.name) {
                self.names.push((name.clone(), QueueName::Broken));
                continue;
            }
            let Some((ty, range, bits)) = queue_type(self.cx, &var.ty) else {
                self.names.push((name.clone(), QueueName::Broken));
                continue;
            };
            let n_errors = self.cx.n_errors();
            let start = match &var.default {
                None => Some(if ty == T::Float { Literal::Float(0.0) } else { zero(ty) }),
                Some(default) => self.constant(default, ty),
            };
            if let Some(Literal::Int(n)) = start
                && !(range.0..=range.1).contains(&n)
            {
                let message =
                    format!("`{name}` holds {} to {}, but its initial value is {n}", range.0, range.1);
                self.report(code::BAD_LITERAL, &message, *span, "out of range", "");
            }
            self.n_starts_wrong += self.cx.n_errors() - n_errors;
            let list = if *per_partition { &mut partition_vars } else { &mut vars };
            let at = list.len();
            let named = if *per_partition { QueueName::PartitionVar(at, ty) } else { QueueName::Var(at, ty) };
            self.names.push((name.clone(), named));
            list.push(QueueVar { name: name.clone(), ty, range, bits, start: start.unwrap_or(zero(ty)) });
        }
        for list in [&vars, &partition_vars] {
            if list.len() > VARS_MAX {
                let message = format!("{} variables; at most {VARS_MAX} are allowed", list.len());
                self.report(code::OVER_LIMIT, &message, item.name.span, "too many", "");
            }
        }
        (vars, partition_vars)
    }

    /// Checks an expression over a packet, before its partition is known.
    fn packet_expr(&mut self, ast: &AstExpr) -> Option<QueueExpr> {
        self.is_declaration = false;
        let found = self.expr(ast, None);
        self.is_declaration = true;
        let found = found?;
        if found.ty.is_whole() {
            return Some(found);
        }
        let help = "convert F64 with `number(...)`, and BOOL with `CASE WHEN e THEN 1 ELSE 0 END`";
        self.report(code::QUEUE_RANK, "keys and ranks must be whole numbers", ast.span, "another type", help);
        None
    }

    /// Checks PARTITION BY: the key, and the number of partitions.
    fn partition(
        &mut self,
        key: &AstExpr,
        into: Option<&PartitionInto>,
    ) -> Option<(QueuePartitions, QueueExpr)> {
        let key = self.packet_expr(key);
        let partitions = match into {
            None => {
                let (n, ways) = PARTITIONS_DEFAULT;
                QueuePartitions::Hash { n, ways }
            }
            Some(PartitionInto::Index { n }) => {
                let n = self.number(n, 1, i64::from(PARTITIONS_MAX), "partitions")? as u32;
                QueuePartitions::Index { n }
            }
            Some(PartitionInto::Hash { n: ast, ways }) => {
                let n = self.number(ast, 1, i64::from(PARTITIONS_MAX), "partitions")? as u32;
                let ways = match ways {
                    None => 1,
                    Some(ways) => self.number(ways, 1, 64, "ways")? as u32,
                };
                if !n.is_multiple_of(ways) {
                    let message = format!("{n} partitions cannot be divided into sets of {ways}");
                    self.report(code::QUEUE_SHAPE, &message, ast.span, "not divisible", "");
                }
                QueuePartitions::Hash { n, ways }
            }
        };
        Some((partitions, key?))
    }

    fn bits(&mut self, ast: &AstExpr) -> Option<u8> {
        self.number(ast, 1, i64::from(RANK_BITS_MAX), "bits").map(|bits| bits as u8)
    }

    /// Checks the order of partitions: `rank`, or `MIN(e)`, whose minimum is the rank.
    fn order(&mut self, by: &AstExpr) -> Option<QueueExpr> {
        match &by.kind {
            AstKind::Path(path)
                if path.as_ident().is_some_and(|name| name.name.eq_ignore_ascii_case("rank")) =>
            {
                None
            }
            AstKind::Call { function, args, star: None }
                if function.name.eq_ignore_ascii_case("min") && args.len() == 1 =>
            {
                self.packet_expr(&args[0])
            }
            _ => {
                let help = "write `BY rank` and set `rank` in handlers, or `BY MIN(p.remaining)`";
                self.report(
                    code::QUEUE_RANK,
                    "partitions are ordered by their rank",
                    by.span,
                    "no rank",
                    help,
                );
                None
            }
        }
    }

    /// Checks LIMIT. `has_parts`: whether OF PARTITION is meaningful, because there are several partitions, or
    /// because the tail of the only one is not the arriving packet. None for a queue with nested queues: its first
    /// queue decides.
    fn limit(&mut self, clause: &ast::QueueLimit, has_parts: Option<bool>) -> Option<QueueLimit> {
        let packets =
            clause.packets.as_ref().map(|ast| self.number(ast, 1, i64::from(PACKETS_MAX), "packets"));
        let bytes = clause.bytes.as_ref().map(|ast| {
            let Literal::Int(n) = self.constant(ast, T::Size)? else { return None };
            if (1..=BYTES_MAX as i64).contains(&n) {
                self.warn_of_byte_limit(ast, n);
                return Some(n as u64);
            }
            let message = format!("{n} bytes: a queue can hold 1 to {BYTES_MAX}");
            self.report(code::OVER_LIMIT, &message, ast.span, "outside the limits", "");
            None
        });
        let of = match &clause.victim {
            None => Some(QueueVictim::Own),
            Some(by) => self.victim(by),
        };
        let overflow = match (clause.of_partition, clause.head) {
            (false, false) => QueueOverflow::Arriving,
            (_, head) => QueueOverflow::Victim { of: of?, head },
        };
        if clause.of_partition && has_parts == Some(false) {
            let help = "write `DROP HEAD` or `DROP TAIL`";
            self.report(
                code::QUEUE_SHAPE,
                "this queue has a single partition",
                clause.span,
                "partition unknown",
                help,
            );
        }
        let batch = match &clause.batch {
            None => 1,
            Some(batch) => self.number(batch, 1, 4096, "packets at once")? as u32,
        };
        let packets = match packets {
            Some(found) => Some(found? as u32),
            None => None,
        };
        let bytes = match bytes {
            Some(found) => Some(found?),
            None => None,
        };
        let line = self.cx.line(clause.span);
        Some(QueueLimit { packets, bytes, overflow, batch, line })
    }

    /// Warns of a byte limit below the size of a full frame: packets may be meant.
    fn warn_of_byte_limit(&mut self, ast: &AstExpr, bytes: i64) {
        if bytes >= FRAME_BYTES {
            return;
        }
        let message = format!("the limit is {bytes} bytes, but a full frame has {FRAME_BYTES}");
        let help = match ast.kind {
            AstKind::Int(n) => format!("write `{n} PACKETS`; a size is `'{n} KB'`"),
            _ => format!("write `'{FRAME_BYTES} B'` or more, or a number of packets: `100 PACKETS`"),
        };
        let diagnostic =
            Diagnostic::warning(code::QUEUE_NO_ROOM, message).at(ast.span, "drops every longer frame");
        self.cx.report(diagnostic.with_help(help));
    }

    /// Checks the order in which partitions lose packets when the queue is full.
    fn victim(&mut self, by: &AstExpr) -> Option<QueueVictim> {
        let is = |path: &ast::Path, word: &str| path.to_dotted().eq_ignore_ascii_case(word);
        match &by.kind {
            AstKind::Path(path) if is(path, "rank") => Some(QueueVictim::HighestRank),
            AstKind::Path(path) if is(path, "bytes") || is(path, "partition.bytes") => {
                Some(QueueVictim::MostBytes)
            }
            AstKind::Call { function, .. } if function.name.eq_ignore_ascii_case("min") => {
                Some(QueueVictim::HighestRank)
            }
            _ => {
                let help = "write `ORDER BY bytes DESC`, or `ORDER BY rank DESC`";
                self.report(
                    code::QUEUE_RANK,
                    "a packet is dropped from the partition with the most bytes or the highest rank",
                    by.span,
                    "neither",
                    help,
                );
                None
            }
        }
    }
}

/// Returns the zero value of a type.
fn zero(ty: T) -> Literal {
    match ty {
        T::Bool => Literal::Bool(false),
        T::Float => Literal::Float(0.0),
        _ => Literal::Int(0),
    }
}

/// Returns the span of a declaration.
fn decl_span(decl: &QueueDecl) -> Span {
    match decl {
        QueueDecl::Var { span, .. }
        | QueueDecl::Partition { span, .. }
        | QueueDecl::OrderPartitions { span, .. }
        | QueueDecl::OrderPackets { span, .. } => *span,
        QueueDecl::Limit(limit) => limit.span,
    }
}

/// Reads `CONCURRENCY n`.
fn concurrency_of(cx: &mut Cx<'_>, expr: &AstExpr) -> Option<u32> {
    match expr.kind {
        AstKind::Int(n) if (1..=u64::from(CONCURRENCY_MAX)).contains(&n) => Some(n as u32),
        _ => {
            let message = format!("CONCURRENCY must be 1 to {CONCURRENCY_MAX}");
            cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(expr.span, "outside the limits"));
            None
        }
    }
}

/// Reads `RATE '1000 calls/s'` as nanoseconds per call.
fn step_of(cx: &mut Cx<'_>, expr: &AstExpr) -> Option<u64> {
    let rate = match &expr.kind {
        AstKind::Str(text) => {
            text.trim().strip_suffix("calls/s").and_then(|text| text.trim_end().parse::<f64>().ok())
        }
        _ => None,
    };
    let Some(rate) = rate.filter(|rate| CALLS_PER_SECOND.contains(rate)) else {
        return Diagnostic::error(code::BAD_LITERAL, "this is not a call rate")
            .at(expr.span, "calls per second")
            .with_help("write '1000 calls/s': from 0.001 to 1000000000")
            .refuse(cx);
    };
    Some((1e9 / rate).round() as u64)
}

/// Reads the flow key of calls: `KEY session`, or `KEY header['tenant']`.
fn flow_of(cx: &mut Cx<'_>, expr: &AstExpr) -> Option<CallFlow> {
    match &expr.kind {
        AstKind::Path(path)
            if path.as_ident().is_some_and(|name| name.name.eq_ignore_ascii_case("session")) =>
        {
            Some(CallFlow::Session)
        }
        _ => header_of(cx, "KEY", expr).map(CallFlow::Header),
    }
}

/// Reads the name of the header in `KEY header['tenant']`.
fn header_of(cx: &mut Cx<'_>, clause: &str, expr: &AstExpr) -> Option<String> {
    if let AstKind::Header(key) = &expr.kind
        && let AstKind::Str(name) = &key.kind
    {
        return header::name(cx, name, key.span);
    }
    let or_session = if clause == "KEY" { ", or `KEY session` for connections" } else { "" };
    let diagnostic =
        Diagnostic::error(code::QUEUE_USE, format!("{clause} of a link must be a header of the call"))
            .at(expr.span, "not a valid name")
            .with_help(format!(
                "write `{clause} header['tenant']`{or_session}; an element of the chain can set it: \
                 `SET header['tenant'] = tenant`"
            ));
    cx.report(diagnostic);
    None
}
