//! Checks the declarations of a queue: variables, partitions, order and limit.

use super::params::{is_free, queue_type};
use super::{BYTES_MAX, Checker, PACKETS_MAX, PARTITIONS_MAX, QueueName, RANK_BITS_MAX, VARS_MAX};
use crate::ast::{self, Expr as AstExpr, ExprKind as AstKind, PartitionInto, QueueDecl};
use crate::check::expr::Environment;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    QueueExpr, QueueLevel, QueueLimit, QueueLiteral as Literal, QueueOverflow, QueuePartitions,
    QueueType as T, QueueVar, QueueVictim,
};
use crate::source::Span;
use weft_core::hash::{hash_bytes, mix};

/// A full Ethernet frame with its header; a call counts as one, too.
const FRAME_BYTES: i64 = 1514;
/// The partitions without a `HASH` clause.
const PARTITIONS_DEFAULT: (u32, u32) = (1024, 8);

impl Checker<'_, '_> {
    /// Checks a queue with nested queues, which can only declare a limit.
    pub(super) fn composed(&mut self, item: &ast::Queue) -> Option<QueueLimit> {
        let mut limit = None;
        for decl in &item.decls {
            match decl {
                QueueDecl::Limit(clause) => limit = self.limit(clause, None),
                other => {
                    let help = "declare it in one of the nested queues";
                    let message = "a queue made of others can only have a limit";
                    let label = "not allowed here";
                    self.cx.fault(code::QUEUE_SHAPE, message, decl_span(other), label, help);
                }
            }
        }
        if let Some(handler) = item.handlers.first() {
            let help = "write the handler in one of the nested queues";
            let message = "a queue made of others has no handlers";
            self.cx.fault(code::QUEUE_SHAPE, message, handler.event_span, "not allowed here", help);
        }
        limit
    }

    /// Checks a queue without uses of other queues: its declarations and handlers.
    pub(super) fn level(&mut self, item: &ast::Queue) -> Option<QueueLevel> {
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
                        let message = "packets can only be ordered if there is one partition";
                        self.cx.fault(code::QUEUE_SHAPE, message, *span, "partition unknown", help);
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
            self.cx.fault(code::QUEUE_NO_LIMIT, &message, item.name.span, "capacity missing", help);
        }
        if let (Some(span), None) = (ordered, &partitions) {
            let help = "write `PARTITION BY flow();`";
            let message = "this queue orders partitions but has only one";
            self.cx.fault(code::QUEUE_SHAPE, message, span, "nothing to order", help);
        }
        if !partition_vars.is_empty() && partitions.is_none() {
            let help = "remove `PARTITION`, or write `PARTITION BY flow();`";
            let message = "this queue has partition variables but only one partition";
            self.cx.fault(code::QUEUE_SHAPE, message, item.name.span, "not partitioned", help);
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
            let message = format!("`{clause}` is written twice");
            self.cx.fault(code::REPEATED_CLAUSE, &message, span, "again here", "keep one of them");
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
                Diagnostic::error(code::BAD_LITERAL, &message)
                    .at(*span, "out of range")
                    .refuse::<()>(self.cx);
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
                Diagnostic::error(code::OVER_LIMIT, &message)
                    .at(item.name.span, "too many")
                    .refuse::<()>(self.cx);
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
        let message = "keys and ranks must be whole numbers";
        self.cx.refuse(code::QUEUE_RANK, message, ast.span, "another type", help)
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
                    Diagnostic::error(code::QUEUE_SHAPE, &message)
                        .at(ast.span, "not divisible")
                        .refuse::<()>(self.cx);
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
                let message = "partitions are ordered by their rank";
                self.cx.refuse(code::QUEUE_RANK, message, by.span, "no rank", help)
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
            Diagnostic::error(code::OVER_LIMIT, &message).at(ast.span, "outside the limits").refuse(self.cx)
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
            let message = "this queue has a single partition";
            self.cx.fault(code::QUEUE_SHAPE, message, clause.span, "partition unknown", help);
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
                let message =
                    "a packet is dropped from the partition with the most bytes or the highest rank";
                self.cx.refuse(code::QUEUE_RANK, message, by.span, "neither", help)
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
