//! Checks expressions of queues: integers with a unit, BOOL, and F64. Arithmetic is total, so no expression can fail.

use super::range::Range;
use super::{Checker, QueueName};
use crate::ast::{self, BinaryOp, ExprKind as Ast, Path, UnaryOp};
use crate::check::scope::with_nearest;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal, QueueMoment,
    QueueOperand as Operand, QueueType as T, QueueUnary as U,
};
use crate::nearest::nearest;
use crate::source::Span;
use crate::types;

/// Why there is no payload.
const NO_PAYLOAD: &str = "queues cannot read payloads";

const IMPORT_PROTOCOL: &str = "import its protocol: `IMPORT 'library/protocols/all.weft';`";
/// The names that are available besides packet fields and headers.
const OTHER_NAMES: [&str; 6] =
    ["queue.packets", "queue.bytes", "partition.packets", "partition.bytes", "partition.index", "link.rate"];

/// The fields of a packet: name, type, and whether a program may set it.
pub(crate) const PACKET_FIELDS: [(&str, T, bool); 13] = [
    ("len", T::Size, false),
    ("net_len", T::Size, false),
    ("arrived", T::Timestamp, false),
    ("id", T::Number, false),
    ("ecn", T::Number, true),
    ("flow", T::Number, false),
    ("src", T::Number, false),
    ("dst", T::Number, false),
    ("dscp", T::Number, true),
    ("class", T::Number, true),
    ("remaining", T::Size, true),
    ("slack", T::Interval, true),
    ("deadline", T::Timestamp, false),
];

/// The functions, as shown in the book and by editors.
pub(crate) const FUNCTIONS: [(&str, &str); 30] = [
    ("flow", "flow(): the hash of the packet's flow, p.flow"),
    ("partitions", "partitions(p.src): partitions in use for the same source, this packet's included"),
    ("present", "present(vlan) BOOL: the packet has this header"),
    ("now", "now() TIMESTAMP: the time of this event"),
    ("rand", "rand() F64: uniform in [0, 1)"),
    ("hash", "hash(n [, m]): 32 bits"),
    ("least", "least(a, b, ...)"),
    ("greatest", "greatest(a, b, ...)"),
    ("abs", "abs(a)"),
    ("log2", "log2(n): the whole part; 0 below 1"),
    ("sqrt", "sqrt(F64) F64"),
    ("rsqrt", "rsqrt(n) F64: 1 / sqrt(n)"),
    ("rsqrt_step", "rsqrt_step(r, n): a step of Newton's towards 65536 / sqrt(n), as Linux and ns-3 take it"),
    ("scale", "scale(INTERVAL, r) INTERVAL: the interval times r / 65536, as Linux and ns-3 take it"),
    ("floor", "floor(F64) F64"),
    ("ceil", "ceil(F64) F64"),
    ("round", "round(F64) F64, ties to even"),
    ("float", "float(a) F64: without its unit"),
    ("number", "number(a): a whole number without its unit, of F64 toward zero"),
    ("interval", "interval(ns) INTERVAL"),
    ("timestamp", "timestamp(ns) TIMESTAMP"),
    ("size", "size(bytes) SIZE"),
    ("seconds", "seconds(INTERVAL) F64"),
    (
        "send_time",
        "send_time(SIZE, bits a second [, rest]) INTERVAL: how long a link needs for it; 0 at rate 0",
    ),
    (
        "send_rest",
        "send_rest(SIZE, bits a second, rest): the remaining fraction of a nanosecond, for the next send_time",
    ),
    ("bit_and", "bit_and(a, b)"),
    ("bit_or", "bit_or(a, b)"),
    ("shift_left", "shift_left(a, n)"),
    ("shift_right", "shift_right(a, n)"),
    ("coalesce_zero", "coalesce_zero(a, b): b if a is 0"),
];

pub(super) fn literal(value: Literal, ty: T, span: Span) -> QueueExpr {
    QueueExpr { kind: Kind::Literal(value), ty, span }
}

fn place(place: Operand, ty: T, span: Span) -> QueueExpr {
    QueueExpr { kind: Kind::Operand(place), ty, span }
}

/// A test whether a word of a packet is not 0.
fn truth(of: Operand, span: Span) -> QueueExpr {
    binary(B::Ne, place(of, T::Number, span), literal(Literal::Int(0), T::Number, span), T::Bool)
}

fn unary(op: U, a: QueueExpr, ty: T) -> QueueExpr {
    let span = a.span;
    QueueExpr { kind: Kind::Unary(op, Box::new(a)), ty, span }
}

fn binary(op: B, a: QueueExpr, b: QueueExpr, ty: T) -> QueueExpr {
    let span = a.span.to(b.span);
    QueueExpr { kind: Kind::Binary(op, Box::new(a), Box::new(b)), ty, span }
}

/// Bits a second of `15 Mbit/s`.
pub(crate) fn rate(text: &str) -> Option<u64> {
    let text = text.trim();
    let digits = text.find(|c: char| !c.is_ascii_digit() && c != '.')?;
    let (number, unit) = (text[..digits].parse::<f64>().ok()?, text[digits..].trim());
    let unit = match unit {
        "bit/s" => 1.0,
        "kbit/s" => 1e3,
        "Mbit/s" => 1e6,
        "Gbit/s" => 1e9,
        _ => return None,
    };
    let bits = (number * unit).round();
    (1.0..=1e13).contains(&bits).then_some(bits as u64)
}

impl Checker<'_, '_> {
    /// Checks an expression of the expected type; a literal without a unit takes the unit of that type.
    pub(super) fn typed(&mut self, ast: &ast::Expr, want: T) -> Option<QueueExpr> {
        let found = self.expr(ast, Some(want))?;
        if found.ty == want {
            return Some(found);
        }
        if want == T::Float && found.ty == T::Number {
            return Some(unary(U::ToFloat, found, T::Float));
        }
        self.type_mismatch(ast, want, found.ty)
    }

    /// Reports an expression of the wrong type.
    fn type_mismatch<R>(&mut self, ast: &ast::Expr, want: T, found: T) -> Option<R> {
        let text = self.cx.sources.slice(ast.span);
        if let Ast::Str(written) = &ast.kind
            && let Some(bits) = rate(written)
        {
            let message = format!("expected {}, found a rate", a_type(want));
            let help = match want {
                T::Interval => "for the time that a packet takes, write `send_time(p.len, ...)`".to_owned(),
                _ => format!("a rate is a whole number of bits per second, here {bits}"),
            };
            self.report(code::TYPE_MISMATCH, &message, ast.span, "bits per second", &help);
            return None;
        }
        if want != T::Interval || !is_plain_number(ast) {
            return self.mismatch(ast.span, want, found);
        }
        let message = "expected an INTERVAL, found a number without a unit";
        let help = format!("write `'{text} ms'`: ns, us, ms, s, min, h and d are units");
        self.report(code::TYPE_MISMATCH, message, ast.span, "unit missing", &help);
        None
    }

    /// Reports an expression of the wrong type, with a conversion.
    fn mismatch<R>(&mut self, span: Span, want: T, found: T) -> Option<R> {
        let message = format!("expected {}, found {}", a_type(want), a_type(found));
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message).at(span, "wrong type");
        let help = match (want, found) {
            (_, T::Bool) => "convert BOOL with `CASE WHEN e THEN 1 ELSE 0 END`",
            (T::Number, T::Float) => "write `number(...)`, which truncates, or round first",
            (T::Number, _) => "write `number(...)` to drop the unit",
            (T::Interval, T::Number | T::Float) => "write `interval(...)`, in nanoseconds",
            (T::Size, T::Number | T::Float) => "write `size(...)`, in bytes",
            (T::Bool, _) => "compare it: `... > 0`",
            _ => "quantities with different units cannot be mixed",
        };
        self.cx.report(diagnostic.with_help(help));
        None
    }

    /// An expression; `want` gives the unit of plain literals.
    pub(super) fn expr(&mut self, ast: &ast::Expr, want: Option<T>) -> Option<QueueExpr> {
        let found = self.expr_by_kind(ast, want)?;
        Some(QueueExpr { span: ast.span, ..found })
    }

    /// Checks an expression by its kind. Literals adapt to the wanted type.
    fn expr_by_kind(&mut self, ast: &ast::Expr, want: Option<T>) -> Option<QueueExpr> {
        let span = ast.span;
        match &ast.kind {
            Ast::Int(n) => match want {
                Some(T::Float) => Some(literal(Literal::Float(*n as f64), T::Float, span)),
                Some(ty @ (T::Interval | T::Timestamp)) if *n == 0 => {
                    Some(literal(Literal::Int(0), ty, span))
                }
                Some(T::Size) => Some(literal(Literal::Int(self.fits(*n, span)?), T::Size, span)),
                _ => Some(literal(Literal::Int(self.fits(*n, span)?), T::Number, span)),
            },
            Ast::Float(x) => Some(literal(Literal::Float(*x), T::Float, span)),
            Ast::Bool(b) => Some(literal(Literal::Bool(*b), T::Bool, span)),
            Ast::Str(text) => self.text(text, span),
            Ast::Path(path) => self.path(path),
            Ast::Call { function, args, star: None } => {
                self.call(&function.name.to_ascii_lowercase(), args, span, want)
            }
            Ast::Unary { op: UnaryOp::Not, operand } => {
                Some(unary(U::Not, self.typed(operand, T::Bool)?, T::Bool))
            }
            Ast::Unary { op: UnaryOp::Neg, operand } => {
                let operand = self.expr(operand, want)?;
                let ty = operand.ty;
                if ty == T::Bool {
                    return self.mismatch(span, T::Number, ty);
                }
                Some(unary(U::Negate, operand, ty))
            }
            Ast::Binary { op, left, right, .. } => self.binary(*op, left, right, want, span),
            Ast::Between { operand, low, high, negated } => {
                let low = self.compare(B::Le, low, operand)?;
                let high = self.compare(B::Le, operand, high)?;
                Some(negated_if(*negated, binary(B::And, low, high, T::Bool)))
            }
            Ast::InList { operand, list, negated } => {
                let mut any = None;
                for item in list {
                    let is_it = self.compare(B::Eq, operand, item)?;
                    any = Some(match any {
                        None => is_it,
                        Some(any) => binary(B::Or, any, is_it, T::Bool),
                    });
                }
                Some(negated_if(*negated, any?))
            }
            Ast::Case { operand, arms, otherwise: Some(otherwise) } => {
                let mut values = Vec::new();
                let mut ty = want;
                // Evaluated once, so that a random draw is the same for all arms.
                let operand = match operand {
                    Some(operand) => Some((&**operand, self.expr(operand, None)?)),
                    None => None,
                };
                for arm in arms {
                    let when = match &operand {
                        Some((ast, value)) => {
                            let when = self.expr(&arm.when, Some(value.ty))?;
                            self.compared(B::Eq, (ast, value.clone()), (&arm.when, when))?
                        }
                        None => self.typed(&arm.when, T::Bool)?,
                    };
                    let then = self.expr(&arm.then, ty)?;
                    if values.is_empty() {
                        ty = Some(then.ty);
                    } else if ty != Some(then.ty) {
                        return self.mismatch(arm.then.span, ty.unwrap_or(T::Number), then.ty);
                    }
                    values.push((when, then));
                }
                let ty = ty?;
                let otherwise = self.typed(otherwise, ty)?;
                Some(QueueExpr { kind: Kind::Case(values, Box::new(otherwise)), ty, span })
            }
            Ast::Header(_) => {
                let help = "write `flow()`, and in CREATE LINK `KEY header['...']`; or `p.class`, and there \
                            `CLASS header['...']`";
                let message = "queues cannot read the headers of calls";
                self.report(code::QUEUE_NOT_SEEN, message, span, "its link can", help);
                None
            }
            _ => self.not_a_queue_expr(span),
        }
    }

    /// Checks that a literal fits a signed 64-bit integer.
    fn fits(&mut self, n: u64, span: Span) -> Option<i64> {
        if let Ok(n) = i64::try_from(n) {
            return Some(n);
        }
        let diagnostic =
            Diagnostic::error(code::BAD_LITERAL, "numbers in a queue are 64-bit signed integers");
        self.cx.report(diagnostic.at(span, "too large"));
        None
    }

    /// Reports an expression that queues do not have.
    fn not_a_queue_expr<R>(&mut self, span: Span) -> Option<R> {
        let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, "this expression is not allowed in a queue")
            .at(span, "neither a number nor a BOOL")
            .with_note(
                "allowed are numbers, fields of `p`, variables, + - * / %, comparisons, AND, OR, NOT, IN, \
                 BETWEEN, CASE with ELSE, and functions",
            )
            .with_help(
                "compute it in an element of the chain, and pass it to the queue with MARK as `p.class`",
            );
        self.cx.report(diagnostic);
        None
    }

    /// Reads a quoted quantity: an interval, a size or a rate.
    fn text(&mut self, text: &str, span: Span) -> Option<QueueExpr> {
        if let Some(ns) = types::interval(text) {
            return Some(literal(Literal::Int(ns), T::Interval, span));
        }
        if let Some(bytes) = types::size(text).and_then(|bytes| i64::try_from(bytes).ok()) {
            return Some(literal(Literal::Int(bytes), T::Size, span));
        }
        if let Some(bits) = rate(text) {
            return Some(literal(Literal::Int(bits as i64), T::Number, span));
        }
        let diagnostic = Diagnostic::error(code::BAD_LITERAL, format!("`{text}` is not a quantity"))
            .at(span, "unit missing")
            .with_help("write an interval '5 ms', a size '1514 B', or a rate '15 Mbit/s'");
        self.cx.report(diagnostic);
        None
    }

    // ---- names -------------------------------------------------------------------------------------------------

    /// Checks a name or a field.
    fn path(&mut self, path: &Path) -> Option<QueueExpr> {
        let (found, ty, _) = self.place(path)?;
        Some(match found {
            ResolvedName::Operand(found) => place(found, ty, path.span),
            ResolvedName::Truth(found) => truth(found, path.span),
            ResolvedName::Local(local) => QueueExpr { kind: Kind::Local(local), ty, span: path.span },
            ResolvedName::Known(value) => literal(value, ty, path.span),
            ResolvedName::Sojourn => {
                if self.moment.is_none() {
                    self.is_zero(path.span);
                }
                let at = |what| place(what, T::Timestamp, path.span);
                binary(B::Sub, at(Operand::Now), at(Operand::Arrived), T::Interval)
            }
        })
    }

    /// Keys and ranks are computed when a packet arrives.
    fn is_zero(&mut self, span: Span) {
        let diagnostic = Diagnostic::warning(code::QUEUE_NO_WAIT, "this is 0 for every packet")
            .at(span, "evaluated when the packet arrives")
            .with_help("without an order of packets, the longest-waiting packet leaves first");
        self.cx.report(diagnostic);
    }

    /// Resolves a name. Returns its meaning, its type, and whether it can be set.
    pub(super) fn place(&mut self, path: &Path) -> Option<(ResolvedName, T, bool)> {
        let names: Vec<String> = path.segments.iter().map(|name| name.name.to_ascii_lowercase()).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        match names[..] {
            ["p", "meta", field] | ["p", field] => self.packet_field(path, field),
            ["queue", "packets"] => {
                Some((ResolvedName::Operand(Operand::Packets { of_partition: false }), T::Number, false))
            }
            ["queue", "bytes"] => {
                Some((ResolvedName::Operand(Operand::Bytes { of_partition: false }), T::Size, false))
            }
            ["partition", what] => {
                let (found, ty) = match what {
                    "packets" => (Operand::Packets { of_partition: true }, T::Number),
                    "bytes" => (Operand::Bytes { of_partition: true }, T::Size),
                    "index" => (Operand::Index, T::Number),
                    _ => {
                        let known = ["partition.packets", "partition.bytes", "partition.index"];
                        return self.unknown(path, known);
                    }
                };
                self.needs_partition(path.span)?;
                Some((ResolvedName::Operand(found), ty, false))
            }
            ["link", "rate"] => Some((ResolvedName::Operand(Operand::Rate), T::Number, false)),
            ["queue", _] => self.unknown(path, ["queue.packets", "queue.bytes"]),
            ["link", _] => self.unknown(path, ["link.rate"]),
            [_] => self.resolve_name(path),
            _ => match self.header(path, false) {
                Some(found) => found.map(|(place, ty)| match ty {
                    T::Bool => (ResolvedName::Truth(place), ty, false),
                    _ => (ResolvedName::Operand(place), ty, false),
                }),
                None => {
                    self.unknown_layer(path);
                    None
                }
            },
        }
    }

    /// Reports a read of the packet where there is none.
    pub(super) fn no_packet(&mut self, span: Span) {
        let message = "no packet is available here";
        let diagnostic =
            Diagnostic::error(code::QUEUE_NOT_SEEN, message).at(span, "packet unknown").with_help(
                "`p` is available in ENQUEUE, ACTIVATE, SELECT and DEQUEUE, and in PARTITION BY and ORDER BY",
            );
        self.cx.report(diagnostic);
    }

    /// Resolves `p.field`. Returns its type, and whether it can be set.
    fn packet_field(&mut self, path: &Path, field: &str) -> Option<(ResolvedName, T, bool)> {
        if !self.sees_packet() {
            self.no_packet(path.span);
            return None;
        }
        let found = match field {
            "sojourn" => return Some((ResolvedName::Sojourn, T::Interval, false)),
            "len" => Operand::Len,
            "arrived" => Operand::Arrived,
            "ecn" => Operand::Ecn,
            "id" => Operand::Id,
            _ => Operand::Field(field.to_owned()),
        };
        let Some((_, ty, can_set)) = PACKET_FIELDS.iter().find(|(name, ..)| *name == field) else {
            let message = match field {
                "payload" | "data" | "body" => NO_PAYLOAD.to_owned(),
                _ => format!("packets in a queue have no field `{field}`"),
            };
            self.not_of_packets(path, message);
            return None;
        };
        if matches!(found, Operand::Field(_)) {
            self.record_field(field);
        }
        Some((ResolvedName::Operand(found), *ty, *can_set))
    }

    /// Reports an unknown packet field, with the known ones.
    fn not_of_packets(&mut self, path: &Path, message: impl Into<String>) {
        let names: Vec<&str> = PACKET_FIELDS.iter().map(|(name, ..)| *name).chain(["sojourn"]).collect();
        let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, message)
            .at(path.span, "unknown field")
            .with_note(format!("it has {}", names.join(", ")));
        let field = path.segments.last().map(|name| name.name.as_str());
        let meant = field.filter(|_| path.segments.len() > 1).and_then(|field| nearest(field, names));
        self.cx.report(match meant {
            Some(meant) => {
                let meant = format!("p.{meant}");
                diagnostic.with_help(format!("write `{meant}`")).with_fix(path.span, meant)
            }
            None => diagnostic.with_help(
                "write header fields with their layer, `vlan.id`; for anything else, use MARK in an element \
                 of the chain and read `p.class`",
            ),
        });
    }

    /// Reports a read of the partition where there is none.
    fn needs_partition(&mut self, span: Span) -> Option<()> {
        if self.has_partition() && self.is_partitioned {
            return Some(());
        }
        if !self.is_partitioned {
            let help = "write `PARTITION BY flow();`, or read `queue.packets` and `queue.bytes`";
            self.report(
                code::QUEUE_NOT_SEEN,
                "this queue has a single partition",
                span,
                "partition unknown",
                help,
            );
            return None;
        }
        let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, "no partition is available here")
            .at(span, "partition unknown")
            .with_help(
                "partitions are available in ENQUEUE, ACTIVATE, SELECT, DEQUEUE and EMPTY, and in EVERY with \
                 EACH PARTITION",
            );
        self.cx.report(diagnostic);
        None
    }

    /// Resolves a name without a dot: a LET, a parameter, a variable or a predefined name.
    fn resolve_name(&mut self, path: &Path) -> Option<(ResolvedName, T, bool)> {
        let name = path.as_ident()?;
        if let Some((_, found)) = self.locals.iter().rev().find(|(known, _)| *known == name.name) {
            let (local, ty) = (*found)?;
            let params = self.local_params.iter().filter(|(of, _)| *of == local);
            self.param_uses.extend(params.map(|(_, param)| (param.clone(), path.span)));
            return Some((ResolvedName::Local(local), ty, false));
        }
        let named = self.names.iter().find(|(known, _)| *known == name.name).map(|(_, named)| *named);
        match (named, name.name.as_str()) {
            (Some(QueueName::Param(value, ty)), _) => {
                self.param_uses.push((name.name.clone(), path.span));
                Some((ResolvedName::Known(value), ty, false))
            }
            (Some(QueueName::Var(at, ty)), _) => Some((ResolvedName::Operand(Operand::Var(at)), ty, true)),
            (Some(QueueName::PartitionVar(at, ty)), _) => {
                self.needs_partition(path.span)?;
                Some((ResolvedName::Operand(Operand::PartitionVar(at)), ty, true))
            }
            (Some(QueueName::Broken), _) => None,
            (None, "rank") => {
                self.needs_partition(path.span)?;
                Some((ResolvedName::Operand(Operand::Rank), T::Number, true))
            }
            (None, "drops") => Some((ResolvedName::Operand(Operand::Drops), T::Number, false)),
            (None, "p") => {
                let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, "a packet is not a value")
                    .at(path.span, "field missing")
                    .with_help("write `p.len`, `p.sojourn` or another field");
                self.cx.report(diagnostic);
                None
            }
            (None, _) if self.header(path, false).is_some() => None,
            // Elements call it so.
            (None, "payload") => {
                self.not_of_packets(path, NO_PAYLOAD);
                None
            }
            // Links of calls have `KEY session`.
            (None, "session") => {
                let help = "write `flow()`, and `KEY session` in CREATE LINK for calls: then each connection is a flow";
                self.report(code::QUEUE_NOT_SEEN, "queues cannot read sessions", path.span, "unknown", help);
                None
            }
            (None, _) => {
                let known: Vec<String> = self.names.iter().map(|(name, _)| name.clone()).collect();
                let locals: Vec<String> = self.locals.iter().map(|(name, ..)| name.clone()).collect();
                let known = known.iter().chain(&locals).map(String::as_str).chain(["rank", "drops"]);
                let message = format!("unknown name `{}`", name.name);
                let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message).at(path.span, "unknown");
                self.cx.report(with_nearest(diagnostic, name, known.collect::<Vec<_>>()));
                None
            }
        }
    }

    /// Reports `vlan.id` when no protocol has this name.
    fn unknown_layer(&mut self, path: &Path) {
        let fields = PACKET_FIELDS.iter().map(|(name, ..)| *name).chain(["sojourn"]);
        let known: Vec<String> = fields.map(|field| format!("p.{field}")).collect();
        let known = known.iter().map(String::as_str).chain(OTHER_NAMES);
        let first = &path.segments[0];
        let owners = ["p", "queue", "partition", "link"];
        let message = format!("unknown name `{}`", path.to_dotted());
        let diagnostic =
            Diagnostic::error(code::UNKNOWN_NAME, message).at(path.span, "unknown").with_note(format!(
                "known here: {}, and the header fields of imported protocols",
                known.collect::<Vec<_>>().join(", ")
            ));
        let meant = nearest(&first.name, owners.into_iter().chain(self.cx.formats.names()));
        self.cx.report_missing(match meant {
            Some(meant) => diagnostic.with_help(format!("write `{meant}`")).with_fix(first.span, meant),
            None => diagnostic.with_help(format!("for a header, {IMPORT_PROTOCOL}")),
        });
    }

    /// Reports an unknown name, and lists the known ones.
    fn unknown<R>(&mut self, path: &Path, known: impl IntoIterator<Item = &'static str>) -> Option<R> {
        let message = format!("unknown name `{}`", path.to_dotted());
        let known: Vec<&str> = known.into_iter().collect();
        let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message)
            .at(path.span, "unknown")
            .with_note(format!("there are: {}", known.join(", ")));
        self.cx.report(diagnostic);
        None
    }

    /// Whether a packet is available.
    pub(super) fn sees_packet(&self) -> bool {
        !matches!(self.moment, Some(QueueMoment::Empty | QueueMoment::Every { .. })) && !self.is_declaration
    }

    fn has_partition(&self) -> bool {
        !matches!(self.moment, None | Some(QueueMoment::Every { each_partition: false, .. }))
    }

    // ---- operators ---------------------------------------------------------------------------------------------

    /// Checks both operands and gives them a common type: a plain literal takes the type of the other side.
    fn both(&mut self, a: &ast::Expr, b: &ast::Expr, want: Option<T>) -> Option<(QueueExpr, QueueExpr)> {
        let is_whole = |ast: &ast::Expr| matches!(ast.kind, Ast::Int(_));
        let (left, right) = if is_whole(a) && !is_whole(b) {
            let right = self.expr(b, want)?;
            (self.expr(a, Some(right.ty))?, right)
        } else {
            let left = self.expr(a, want)?;
            let ty = left.ty;
            (left, self.expr(b, Some(ty))?)
        };
        Some(promote_operands(left, right))
    }

    fn compare(&mut self, op: B, a: &ast::Expr, b: &ast::Expr) -> Option<QueueExpr> {
        let (left, right) = self.both(a, b, None)?;
        self.compared(op, (a, left), (b, right))
    }

    /// Builds a comparison of a value that was evaluated once.
    fn compared(
        &mut self,
        op: B,
        (a, left): (&ast::Expr, QueueExpr),
        (b, right): (&ast::Expr, QueueExpr),
    ) -> Option<QueueExpr> {
        let (left, right) = promote_operands(left, right);
        if left.ty != right.ty {
            return match is_plain_number(a) {
                true => self.type_mismatch(a, right.ty, left.ty),
                false => self.type_mismatch(b, left.ty, right.ty),
            };
        }
        if left.ty == T::Bool && op != B::Eq && op != B::Ne {
            return self.mismatch(a.span, T::Number, T::Bool);
        }
        let found = binary(op, left, right, T::Bool);
        if is_plain_number(a) || is_plain_number(b) {
            self.warn_of_impossible_codepoint(&found);
        }
        Some(found)
    }

    /// Warns of a comparison of a codepoint with an impossible value.
    fn warn_of_impossible_codepoint(&mut self, compared: &QueueExpr) {
        let Kind::Binary(op, left, right) = &compared.kind else { return };
        // The value of a parameter is the user's choice, so the queue must compare it.
        if [left, right].iter().all(|side| matches!(side.kind, Kind::Literal(_))) {
            return;
        }
        let range = |side: &QueueExpr| match &side.kind {
            Kind::Operand(place) => codepoints(place).map(Range::up_to),
            Kind::Literal(Literal::Int(n)) => Some(Range::one(*n)),
            _ => None,
        };
        let (Some(a), Some(b)) = (range(left), range(right)) else { return };
        let is_never = match op {
            B::Lt => a.low >= b.high,
            B::Le => a.low > b.high,
            B::Eq => a.and(b).is_none(),
            _ => false,
        };
        if is_never {
            let (codepoint, number) = if a.is_one() { (right, b) } else { (left, a) };
            let text = self.cx.sources.slice(codepoint.span);
            let label = format!("`{text}` is {} to {}", number.low, number.high);
            let (first, last) =
                if left.span.start < right.span.start { (left, right) } else { (right, left) };
            let diagnostic = Diagnostic::warning(code::NEVER_TRUE, "this is never true");
            self.cx.report(diagnostic.at(first.span.to(last.span), label));
        }
    }

    /// Checks a binary operation.
    fn binary(
        &mut self,
        op: BinaryOp,
        a: &ast::Expr,
        b: &ast::Expr,
        want: Option<T>,
        span: Span,
    ) -> Option<QueueExpr> {
        match op {
            BinaryOp::And | BinaryOp::Or => {
                let (left, right) = (self.typed(a, T::Bool), self.typed(b, T::Bool));
                let op = if op == BinaryOp::And { B::And } else { B::Or };
                Some(binary(op, left?, right?, T::Bool))
            }
            BinaryOp::Eq => self.compare(B::Eq, a, b),
            BinaryOp::Ne => self.compare(B::Ne, a, b),
            BinaryOp::Lt => self.compare(B::Lt, a, b),
            BinaryOp::Le => self.compare(B::Le, a, b),
            BinaryOp::Gt => self.compare(B::Lt, b, a),
            BinaryOp::Ge => self.compare(B::Le, b, a),
            BinaryOp::Add | BinaryOp::Sub => self.sum(op == BinaryOp::Add, a, b, want),
            BinaryOp::Mul => self.product(a, b),
            BinaryOp::Div | BinaryOp::Rem => self.quotient(op == BinaryOp::Rem, a, b),
            BinaryOp::BitAnd => {
                Some(binary(B::BitAnd, self.whole_number(a)?, self.whole_number(b)?, T::Number))
            }
            BinaryOp::Concat => self.not_a_queue_expr(span),
        }
    }

    /// Checks an addition or subtraction of quantities with matching units.
    fn sum(&mut self, is_add: bool, a: &ast::Expr, b: &ast::Expr, want: Option<T>) -> Option<QueueExpr> {
        let want = want.filter(|ty| *ty != T::Timestamp);
        let (left, right) = self.both(a, b, want)?;
        if let Some((truth, _)) = [(a, &left), (b, &right)].into_iter().find(|(_, side)| side.ty == T::Bool) {
            return self.mismatch(truth.span, T::Number, T::Bool);
        }
        let ty = match (left.ty, right.ty) {
            (T::Timestamp, T::Interval) => T::Timestamp,
            (T::Interval, T::Timestamp) if is_add => T::Timestamp,
            (T::Timestamp, T::Timestamp) if !is_add => T::Interval,
            (left, right) if left == right && !matches!(left, T::Bool | T::Timestamp) => left,
            (left, right) if is_plain_number(a) => return self.type_mismatch(a, right, left),
            // Only an interval can be added to a time.
            (T::Timestamp, right) => return self.type_mismatch(b, T::Interval, right),
            (left, right) => return self.type_mismatch(b, left, right),
        };
        Some(binary(if is_add { B::Add } else { B::Sub }, left, right, ty))
    }

    /// Checks a product of a quantity with a unit and a number without one.
    fn product(&mut self, a: &ast::Expr, b: &ast::Expr) -> Option<QueueExpr> {
        let (left, right) = (self.expr(a, None)?, self.expr(b, None)?);
        let (left, right) = match (left.ty, right.ty) {
            (T::Number | T::Float, _) => (right, left),
            _ => (left, right),
        };
        match (left.ty, right.ty) {
            (T::Number, T::Number) => Some(binary(B::Mul, left, right, T::Number)),
            (T::Float, T::Float) => Some(binary(B::Mul, left, right, T::Float)),
            (T::Float, T::Number) => Some(binary(B::Mul, left, unary(U::ToFloat, right, T::Float), T::Float)),
            (T::Number, T::Float) => Some(binary(B::Mul, unary(U::ToFloat, left, T::Float), right, T::Float)),
            (ty @ (T::Interval | T::Size), T::Number) => Some(binary(B::Mul, left, right, ty)),
            (ty @ (T::Interval | T::Size), T::Float) => {
                let product = binary(B::Mul, unary(U::ToFloat, left, T::Float), right, T::Float);
                Some(unary(U::ToWhole, product, ty))
            }
            (_, other) => self.mismatch(b.span, T::Number, other),
        }
    }

    /// Checks a division or remainder; the units determine the type of the result.
    fn quotient(&mut self, is_rest: bool, a: &ast::Expr, b: &ast::Expr) -> Option<QueueExpr> {
        let left = self.expr(a, None)?;
        let right = self.expr(b, Some(left.ty).filter(|ty| *ty == T::Float))?;
        let op = if is_rest { B::Rem } else { B::Div };
        match (left.ty, right.ty) {
            (T::Float, T::Float) if !is_rest => Some(binary(op, left, right, T::Float)),
            (T::Float, T::Number) if !is_rest => {
                Some(binary(op, left, unary(U::ToFloat, right, T::Float), T::Float))
            }
            (T::Number, T::Float) if !is_rest => {
                Some(binary(op, unary(U::ToFloat, left, T::Float), right, T::Float))
            }
            (ty @ (T::Number | T::Interval | T::Size), T::Number) => Some(binary(op, left, right, ty)),
            (ty @ (T::Interval | T::Size), T::Float) if !is_rest => {
                let quotient = binary(B::Div, unary(U::ToFloat, left, T::Float), right, T::Float);
                Some(unary(U::ToWhole, quotient, ty))
            }
            (ty @ (T::Interval | T::Size), other) if ty == other => {
                Some(binary(op, left, right, if is_rest { ty } else { T::Number }))
            }
            (ty, other) => self.mismatch(b.span, ty, other),
        }
    }

    // ---- functions ---------------------------------------------------------------------------------------------

    /// Checks a function call.
    fn call(&mut self, name: &str, args: &[ast::Expr], span: Span, want: Option<T>) -> Option<QueueExpr> {
        let n_args = match name {
            "flow" | "now" | "rand" => 0..=0,
            "hash" => 1..=2,
            "least" | "greatest" => 2..=16,
            "send_time" => 2..=3,
            "send_rest" => 3..=3,
            "rsqrt_step" | "scale" | "bit_and" | "bit_or" | "shift_left" | "shift_right"
            | "coalesce_zero" => 2..=2,
            _ => 1..=1,
        };
        let Some((_, form)) = FUNCTIONS.iter().find(|(known, _)| *known == name) else {
            let diagnostic =
                Diagnostic::error(code::UNKNOWN_NAME, format!("unknown queue function `{name}`"));
            let names: Vec<&str> = FUNCTIONS.iter().map(|(name, _)| *name).collect();
            let diagnostic =
                diagnostic.at(span, "unknown").with_note(format!("there are: {}", names.join(", ")));
            self.cx.report(diagnostic);
            return None;
        };
        if !n_args.contains(&args.len()) {
            let message = format!("`{name}` takes {} to {} arguments", n_args.start(), n_args.end());
            let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message);
            self.cx.report(diagnostic.at(span, format!("there are {}", args.len())).with_help(*form));
            return None;
        }
        let int = |n: i64| literal(Literal::Int(n), T::Number, span);
        Some(match name {
            "flow" => {
                self.record_field("flow");
                if !self.sees_packet() {
                    return self.not_a_queue_expr(span);
                }
                place(Operand::Field("flow".to_owned()), T::Number, span)
            }
            "partitions" => {
                let Ast::Path(path) = &args[0].kind else { return self.not_counted(args[0].span) };
                let (by, ..) = self.place(path)?;
                let by = match by {
                    ResolvedName::Operand(by) if is_counted(&by) => by,
                    _ => return self.not_counted(path.span),
                };
                self.needs_partition(span)?;
                let name = path.to_dotted().to_ascii_lowercase();
                if !self.counted.contains(&name) {
                    self.counted.push(name);
                }
                place(Operand::Partitions(Box::new(by)), T::Number, span)
            }
            "present" => {
                let Ast::Path(path) = &args[0].kind else { return self.not_a_queue_expr(args[0].span) };
                match self.header(path, true) {
                    Some(found) => truth(found?.0, span),
                    None => {
                        let message = format!("unknown header `{}`", path.to_dotted());
                        self.report(code::UNKNOWN_NAME, &message, path.span, "unknown", IMPORT_PROTOCOL);
                        return None;
                    }
                }
            }
            "now" => place(Operand::Now, T::Timestamp, span),
            "rand" => {
                let nth = self.n_rand;
                self.n_rand += 1;
                QueueExpr { kind: Kind::Rand(nth), ty: T::Float, span }
            }
            "hash" => {
                let first = unary(U::Hash, self.whole_number(&args[0])?, T::Number);
                match args.get(1) {
                    None => first,
                    Some(second) => binary(B::HashMix, first, self.whole_number(second)?, T::Number),
                }
            }
            "least" | "greatest" => {
                let op = if name == "least" { B::Least } else { B::Greatest };
                let mut all = None;
                for arg in args {
                    let bare = matches!(arg.kind, Ast::Int(_)) && all.is_none();
                    let next = match &all {
                        // A literal in front takes the unit of the second operand.
                        None if bare => {
                            let ty = self.expr(&args[1], want)?.ty;
                            self.expr(arg, Some(ty))?
                        }
                        None => self.expr(arg, want)?,
                        Some(QueueExpr { ty, .. }) => self.typed(arg, *ty)?,
                    };
                    if next.ty == T::Bool {
                        return self.mismatch(arg.span, T::Number, T::Bool);
                    }
                    let ty = next.ty;
                    all = Some(match all {
                        None => next,
                        Some(before) => binary(op, before, next, ty),
                    });
                }
                all?
            }
            "abs" => {
                let a = self.expr(&args[0], want)?;
                let ty = a.ty;
                if ty == T::Bool {
                    return self.mismatch(span, T::Number, ty);
                }
                unary(U::Abs, a, ty)
            }
            "log2" => unary(U::Log2, self.whole_number(&args[0])?, T::Number),
            "sqrt" => unary(U::Sqrt, self.typed(&args[0], T::Float)?, T::Float),
            "rsqrt" => {
                let root = unary(U::Sqrt, self.typed(&args[0], T::Float)?, T::Float);
                binary(B::Div, literal(Literal::Float(1.0), T::Float, span), root, T::Float)
            }
            "rsqrt_step" => {
                // Linux, include/net/codel_impl.h: a step in Q0.32 of which 16 bits are kept.
                let (r, n) = (self.typed(&args[0], T::Number)?, self.typed(&args[1], T::Number)?);
                let shift = |op, a, n| binary(op, a, int(n), T::Number);
                let inverse = shift(B::ShiftLeft, r, 16);
                let square =
                    shift(B::ShiftRight, binary(B::Mul, inverse.clone(), inverse.clone(), T::Number), 32);
                let three = int(3 << 32);
                let value = binary(B::Sub, three, binary(B::Mul, n, square, T::Number), T::Number);
                let value = binary(B::Mul, shift(B::ShiftRight, value, 2), inverse, T::Number);
                shift(B::ShiftRight, shift(B::ShiftRight, value, 31), 16)
            }
            "scale" => {
                let by = self.typed(&args[0], T::Interval)?;
                let r = self.typed(&args[1], T::Number)?;
                binary(B::ShiftRight, binary(B::Mul, by, r, T::Interval), int(16), T::Interval)
            }
            "floor" => unary(U::Floor, self.typed(&args[0], T::Float)?, T::Float),
            "ceil" => unary(U::Ceil, self.typed(&args[0], T::Float)?, T::Float),
            "round" => unary(U::Round, self.typed(&args[0], T::Float)?, T::Float),
            "float" => {
                let a = self.expr(&args[0], None)?;
                match a.ty {
                    T::Float => a,
                    T::Bool => return self.mismatch(span, T::Number, T::Bool),
                    _ => unary(U::ToFloat, a, T::Float),
                }
            }
            "number" | "interval" | "timestamp" | "size" => {
                let ty = match name {
                    "number" => T::Number,
                    "interval" => T::Interval,
                    "timestamp" => T::Timestamp,
                    _ => T::Size,
                };
                let a = self.expr(&args[0], None)?;
                match a.ty {
                    T::Bool => return self.mismatch(span, T::Number, T::Bool),
                    T::Float => unary(U::ToWhole, a, ty),
                    // The representation is the same; only the unit differs.
                    _ => QueueExpr { ty, ..a },
                }
            }
            "seconds" => {
                let ns = unary(U::ToFloat, self.typed(&args[0], T::Interval)?, T::Float);
                binary(B::Div, ns, literal(Literal::Float(1e9), T::Float, span), T::Float)
            }
            "send_time" | "send_rest" => {
                let (bytes, rate) = (self.typed(&args[0], T::Size)?, self.typed(&args[1], T::Number)?);
                let mut bit_ns = binary(B::Mul, bytes, int(8_000_000_000), T::Number);
                if let Some(rest) = args.get(2) {
                    bit_ns = binary(B::Add, bit_ns, self.typed(rest, T::Number)?, T::Number);
                }
                match name {
                    "send_time" => binary(B::Div, bit_ns, rate, T::Interval),
                    _ => binary(B::Rem, bit_ns, rate, T::Number),
                }
            }
            "bit_and" => {
                binary(B::BitAnd, self.whole_number(&args[0])?, self.whole_number(&args[1])?, T::Number)
            }
            "bit_or" => {
                binary(B::BitOr, self.whole_number(&args[0])?, self.whole_number(&args[1])?, T::Number)
            }
            "shift_left" | "shift_right" => {
                let op = if name == "shift_left" { B::ShiftLeft } else { B::ShiftRight };
                let a = self.expr(&args[0], None)?;
                let ty = a.ty;
                if !ty.is_whole() {
                    return self.mismatch(span, T::Number, ty);
                }
                binary(op, a, self.typed(&args[1], T::Number)?, ty)
            }
            _ => {
                let (a, b) = self.both(&args[0], &args[1], want)?;
                if a.ty != b.ty || a.ty == T::Bool || a.ty == T::Float {
                    return self.mismatch(span, a.ty, b.ty);
                }
                let ty = a.ty;
                let is_zero = binary(B::Eq, a.clone(), literal(Literal::Int(0), ty, span), T::Bool);
                QueueExpr { kind: Kind::Case(vec![(is_zero, b)], Box::new(a)), ty, span }
            }
        })
    }

    /// Reports an argument of `partitions` by which partitions are not counted.
    fn not_counted<R>(&mut self, span: Span) -> Option<R> {
        let message = "partitions are counted by a packet field";
        let help = "write `partitions(p.src)`; `p.dst`, `p.class` and header fields are allowed too";
        self.report(code::QUEUE_NOT_SEEN, message, span, "field missing", help);
        None
    }

    /// A whole number of whatever unit.
    fn whole_number(&mut self, ast: &ast::Expr) -> Option<QueueExpr> {
        let found = self.expr(ast, None)?;
        if found.ty.is_whole() { Some(found) } else { self.mismatch(ast.span, T::Number, found.ty) }
    }
}

/// The meaning of a name.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum ResolvedName {
    Operand(Operand),
    /// True if the word is not 0.
    Truth(Operand),
    Local(usize),
    Known(Literal),
    /// The time since the packet came.
    Sojourn,
}

/// Both operands; an integer next to an F64 is converted to F64.
fn promote_operands(left: QueueExpr, right: QueueExpr) -> (QueueExpr, QueueExpr) {
    match (left.ty, right.ty) {
        (T::Float, T::Number) => (left, unary(U::ToFloat, right, T::Float)),
        (T::Number, T::Float) => (unary(U::ToFloat, left, T::Float), right),
        _ => (left, right),
    }
}

/// Whether partitions can be counted by a packet field.
fn is_counted(place: &Operand) -> bool {
    match place {
        Operand::Field(name) => matches!(name.as_str(), "src" | "dst" | "class"),
        Operand::Header(_) => true,
        _ => false,
    }
}

/// The maximum of a codepoint field.
pub(super) fn codepoints(place: &Operand) -> Option<i64> {
    match place {
        Operand::Ecn => Some(3),
        Operand::Field(name) if name == "dscp" => Some(63),
        _ => None,
    }
}

fn negated_if(negated: bool, expr: QueueExpr) -> QueueExpr {
    if negated { unary(U::Not, expr, T::Bool) } else { expr }
}

/// A literal number, with its sign.
fn is_plain_number(ast: &ast::Expr) -> bool {
    match &ast.kind {
        Ast::Int(_) | Ast::Float(_) => true,
        Ast::Unary { op: UnaryOp::Neg, operand } => is_plain_number(operand),
        _ => false,
    }
}

/// Formats a type with its article.
fn a_type(ty: T) -> String {
    match ty {
        T::Number => ty.name().to_owned(),
        _ => format!("{} {}", if matches!(ty, T::Interval | T::Float) { "an" } else { "a" }, ty.name()),
    }
}
