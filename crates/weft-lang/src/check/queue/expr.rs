//! Expressions of queues: integers with a unit, BOOL, and F64. Arithmetic is total, so no expression can fail.

use super::Checker;
use super::names::{IMPORT_PROTOCOL, ResolvedName};
use super::range::Range;
use crate::ast::{self, BinaryOp, ExprKind as Ast, Path, UnaryOp};
use crate::check::expr::{Call, Environment, Literal as Written, Node, Side};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    ArithOp, CompareOp, QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal,
    QueueOperand as Operand, QueueType as T, QueueUnary as U,
};
use crate::source::Span;
use crate::types;

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

impl Environment for Checker<'_, '_> {
    type Ty = T;
    type Value = QueueExpr;

    const BOOL: T = T::Bool;

    fn report(&mut self, diagnostic: Diagnostic) {
        self.cx.report(diagnostic);
    }

    fn literal(&mut self, value: Written<'_>, want: Option<T>, span: Span) -> Option<QueueExpr> {
        let (value, ty) = match (value, want) {
            (Written::Int(n), Some(T::Float)) => (Literal::Float(n as f64), T::Float),
            (Written::Int(0), Some(ty @ (T::Interval | T::Timestamp))) => (Literal::Int(0), ty),
            (Written::Int(n), Some(T::Size)) => (Literal::Int(self.fits(n, span)?), T::Size),
            (Written::Int(n), _) => (Literal::Int(self.fits(n, span)?), T::Number),
            (Written::Float(x), _) => (Literal::Float(x), T::Float),
            (Written::Bool(b), _) => (Literal::Bool(b), T::Bool),
            (Written::Text(text), _) => self.quantity(text, span)?,
            (Written::Null, _) => return self.not_a_queue_expr(span),
        };
        Some(literal(value, ty, span))
    }

    fn path(&mut self, path: &Path, span: Span) -> Option<QueueExpr> {
        self.named(path).map(|found| QueueExpr { span, ..found })
    }

    fn call(&mut self, call: Call<'_>, want: Option<T>) -> Option<QueueExpr> {
        let Call { function, args, star, span } = call;
        if star.is_some() {
            return self.not_a_queue_expr(span);
        }
        let found = self.function_call(&function.name.to_ascii_lowercase(), args, span, want)?;
        Some(QueueExpr { span, ..found })
    }

    fn other(&mut self, ast: &ast::Expr, _want: Option<T>) -> Option<QueueExpr> {
        match &ast.kind {
            Ast::Binary { op: BinaryOp::BitAnd, left, right, .. } => {
                let (left, right) = (self.whole_number(left)?, self.whole_number(right)?);
                Some(binary(B::BitAnd, left, right, T::Number))
            }
            Ast::Header(_) => {
                let help = "write `flow()`, and in CREATE LINK `KEY header['...']`; or `p.class`, and there \
                            `CLASS header['...']`";
                let message = "queues cannot read the headers of calls";
                self.report(code::QUEUE_NOT_SEEN, message, ast.span, "its link can", help);
                None
            }
            _ => self.not_a_queue_expr(ast.span),
        }
    }

    fn build(&mut self, node: Node<QueueExpr>, span: Span) -> Option<QueueExpr> {
        let built = match node {
            Node::Not(operand) => unary(U::Not, operand, T::Bool),
            Node::Negative(operand) if operand.ty == T::Bool => {
                return self.mismatch(span, T::Number, T::Bool);
            }
            Node::Negative(operand) => {
                let ty = operand.ty;
                unary(U::Negate, operand, ty)
            }
            Node::And(left, right) => binary(B::And, left, right, T::Bool),
            Node::Or(left, right) => binary(B::Or, left, right, T::Bool),
            Node::Compare(op, left, right) => compared(op, left, right),
            Node::Arith(op, _, left, right) => self.arith(op, left, right)?,
            Node::In(operand, list) => {
                let any = list.into_iter().map(|item| compared(CompareOp::Eq, operand.clone(), item));
                any.reduce(|any, one| binary(B::Or, any, one, T::Bool))?
            }
            Node::Between(operand, low, high) => {
                let low = compared(CompareOp::Le, low, operand.clone());
                binary(B::And, low, compared(CompareOp::Le, operand, high), T::Bool)
            }
            Node::Case { operand, arms, otherwise } => {
                let Some(otherwise) = otherwise else { return self.not_a_queue_expr(span) };
                let arms = arms.into_iter().map(|(when, then)| match &operand {
                    Some(operand) => (compared(CompareOp::Eq, operand.clone(), when), then),
                    None => (when, then),
                });
                let ty = otherwise.ty;
                QueueExpr { kind: Kind::Case(arms.collect(), Box::new(otherwise)), ty, span }
            }
        };
        Some(QueueExpr { span, ..built })
    }

    fn ty(value: &QueueExpr) -> T {
        value.ty
    }

    fn span(value: &QueueExpr) -> Span {
        value.span
    }

    fn common(a: T, b: T) -> Option<T> {
        match (a, b) {
            (T::Float, T::Number) | (T::Number, T::Float) => Some(T::Float),
            _ => (a == b).then_some(a),
        }
    }

    fn coerce(&mut self, value: QueueExpr, ty: T) -> Option<QueueExpr> {
        match (value.ty, ty) {
            (T::Number, T::Float) => Some(unary(U::ToFloat, value, T::Float)),
            (found, _) if found == ty => Some(value),
            (found, _) => self.type_mismatch(value.span, ty, found),
        }
    }

    fn no_common(&mut self, first: &QueueExpr, second: &QueueExpr) {
        self.type_mismatch::<()>(second.span, first.ty, second.ty);
    }

    fn unordered(ty: T) -> Option<String> {
        (ty == T::Bool).then(|| ty.name().to_owned())
    }

    fn literal_type(op: ArithOp, known: T, _literal: &ast::Expr) -> Option<T> {
        match op {
            ArithOp::Add | ArithOp::Sub => Some(known),
            ArithOp::Div if known == T::Float => Some(known),
            _ => None,
        }
    }

    /// A quotient of whole numbers is whole, whatever its context wants.
    fn operand_type(op: ArithOp, want: Option<T>) -> Option<T> {
        want.filter(|ty| matches!(op, ArithOp::Add | ArithOp::Sub) && *ty != T::Timestamp)
    }

    /// Warns of a comparison of a codepoint with an impossible value.
    fn warn_of_comparison(&mut self, op: CompareOp, left: Side<'_, QueueExpr>, right: Side<'_, QueueExpr>) {
        // The value of a parameter is the user's choice, so the queue must compare it.
        let is_param = |side: &QueueExpr| matches!(side.kind, Kind::Literal(_));
        if !(is_plain_number(left.0) || is_plain_number(right.0)) || is_param(left.1) && is_param(right.1) {
            return;
        }
        let range = |side: &QueueExpr| match &side.kind {
            Kind::Operand(place) => codepoints(place).map(Range::up_to),
            Kind::Literal(Literal::Int(n)) => Some(Range::one(*n)),
            _ => None,
        };
        let (Some(a), Some(b)) = (range(left.1), range(right.1)) else { return };
        let is_never = match op {
            CompareOp::Lt => a.low >= b.high,
            CompareOp::Le => a.low > b.high,
            CompareOp::Gt => b.low >= a.high,
            CompareOp::Ge => b.low > a.high,
            CompareOp::Eq => a.and(b).is_none(),
            CompareOp::Ne => false,
        };
        if is_never {
            let (codepoint, number) = if a.is_one() { (right.1, b) } else { (left.1, a) };
            let text = self.cx.sources.slice(codepoint.span);
            let label = format!("`{text}` is {} to {}", number.low, number.high);
            let diagnostic = Diagnostic::warning(code::NEVER_TRUE, "this is never true");
            let (left, right) = (left.1.span, right.1.span);
            self.cx.report(
                diagnostic.at(if left.start < right.start { left.to(right) } else { right.to(left) }, label),
            );
        }
    }
}

impl Checker<'_, '_> {
    /// Reports an expression of the wrong type.
    fn type_mismatch<R>(&mut self, span: Span, want: T, found: T) -> Option<R> {
        let text = self.cx.sources.slice(span);
        let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(bits) = quoted.and_then(rate) {
            let message = format!("expected {}, found a rate", a_type(want));
            let help = match want {
                T::Interval => "for the time that a packet takes, write `send_time(p.len, ...)`".to_owned(),
                _ => format!("a rate is a whole number of bits per second, here {bits}"),
            };
            self.report(code::TYPE_MISMATCH, &message, span, "bits per second", &help);
            return None;
        }
        if want != T::Interval || !is_number_text(text) {
            return self.mismatch(span, want, found);
        }
        let message = "expected an INTERVAL, found a number without a unit";
        let help = format!("write `'{text} ms'`: ns, us, ms, s, min, h and d are units");
        self.report(code::TYPE_MISMATCH, message, span, "unit missing", &help);
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

    /// Checks that a literal fits a signed 64-bit integer.
    fn fits(&mut self, n: i128, span: Span) -> Option<i64> {
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
    fn quantity(&mut self, text: &str, span: Span) -> Option<(Literal, T)> {
        if let Some(ns) = types::interval(text) {
            return Some((Literal::Int(ns), T::Interval));
        }
        if let Some(bytes) = types::size(text).and_then(|bytes| i64::try_from(bytes).ok()) {
            return Some((Literal::Int(bytes), T::Size));
        }
        if let Some(bits) = rate(text) {
            return Some((Literal::Int(bits as i64), T::Number));
        }
        let diagnostic = Diagnostic::error(code::BAD_LITERAL, format!("`{text}` is not a quantity"))
            .at(span, "unit missing")
            .with_help("write an interval '5 ms', a size '1514 B', or a rate '15 Mbit/s'");
        self.cx.report(diagnostic);
        None
    }

    // ---- operators ---------------------------------------------------------------------------------------------

    /// Builds an arithmetic operation; the units determine the type of the result.
    fn arith(&mut self, op: ArithOp, left: QueueExpr, right: QueueExpr) -> Option<QueueExpr> {
        match op {
            ArithOp::Add | ArithOp::Sub => self.sum(op == ArithOp::Add, left, right),
            ArithOp::Mul => self.product(left, right),
            ArithOp::Div | ArithOp::Rem => self.quotient(op == ArithOp::Rem, left, right),
        }
    }

    /// Builds an addition or subtraction of quantities with matching units.
    fn sum(&mut self, is_add: bool, left: QueueExpr, right: QueueExpr) -> Option<QueueExpr> {
        if let Some(truth) = [&left, &right].into_iter().find(|side| side.ty == T::Bool) {
            return self.mismatch(truth.span, T::Number, T::Bool);
        }
        let (left, right) = promote_operands(left, right);
        let ty = match (left.ty, right.ty) {
            (T::Timestamp, T::Interval) => T::Timestamp,
            (T::Interval, T::Timestamp) if is_add => T::Timestamp,
            (T::Timestamp, T::Timestamp) if !is_add => T::Interval,
            (a, b) if a == b && a != T::Timestamp => a,
            (a, b) if is_number_text(self.cx.sources.slice(left.span)) => {
                return self.type_mismatch(left.span, b, a);
            }
            // Only an interval can be added to a time.
            (T::Timestamp, b) => return self.type_mismatch(right.span, T::Interval, b),
            (a, b) => return self.type_mismatch(right.span, a, b),
        };
        Some(binary(if is_add { B::Add } else { B::Sub }, left, right, ty))
    }

    /// Builds a product of a quantity with a unit and a number without one.
    fn product(&mut self, left: QueueExpr, right: QueueExpr) -> Option<QueueExpr> {
        let span = right.span;
        let (left, right) = match left.ty {
            T::Number | T::Float => promote_operands(right, left),
            _ => (left, right),
        };
        match (left.ty, right.ty) {
            (ty @ (T::Interval | T::Size), T::Float) => {
                let product = binary(B::Mul, unary(U::ToFloat, left, T::Float), right, T::Float);
                Some(unary(U::ToWhole, product, ty))
            }
            (ty @ (T::Interval | T::Size), T::Number) => Some(binary(B::Mul, left, right, ty)),
            (ty @ (T::Number | T::Float), other) if ty == other => Some(binary(B::Mul, left, right, ty)),
            (_, other) => self.mismatch(span, T::Number, other),
        }
    }

    /// Builds a division or remainder.
    fn quotient(&mut self, is_rest: bool, left: QueueExpr, right: QueueExpr) -> Option<QueueExpr> {
        let (op, span) = (if is_rest { B::Rem } else { B::Div }, right.span);
        let (left, right) = if is_rest { (left, right) } else { promote_operands(left, right) };
        match (left.ty, right.ty) {
            (T::Float, T::Float) if !is_rest => Some(binary(op, left, right, T::Float)),
            (ty @ (T::Number | T::Interval | T::Size), T::Number) => Some(binary(op, left, right, ty)),
            (ty @ (T::Interval | T::Size), T::Float) if !is_rest => {
                let quotient = binary(B::Div, unary(U::ToFloat, left, T::Float), right, T::Float);
                Some(unary(U::ToWhole, quotient, ty))
            }
            (ty @ (T::Interval | T::Size), other) if ty == other => {
                Some(binary(op, left, right, if is_rest { ty } else { T::Number }))
            }
            (ty, other) => self.mismatch(span, ty, other),
        }
    }

    // ---- functions ---------------------------------------------------------------------------------------------

    /// Checks a function call.
    fn function_call(
        &mut self,
        name: &str,
        args: &[ast::Expr],
        span: Span,
        want: Option<T>,
    ) -> Option<QueueExpr> {
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
                operand(Operand::Field("flow".to_owned()), T::Number, span)
            }
            "partitions" => {
                let Ast::Path(path) = &args[0].kind else { return self.not_counted(args[0].span) };
                let (by, ..) = self.resolve(path)?;
                let by = match by {
                    ResolvedName::Operand(by) if is_counted(&by) => by,
                    _ => return self.not_counted(path.span),
                };
                self.needs_partition(span)?;
                let name = path.to_dotted().to_ascii_lowercase();
                if !self.counted.contains(&name) {
                    self.counted.push(name);
                }
                operand(Operand::Partitions(Box::new(by)), T::Number, span)
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
            "now" => operand(Operand::Now, T::Timestamp, span),
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
                let (a, b) = self.pair((&args[0], &args[1]), want)?;
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

fn unary(op: U, a: QueueExpr, ty: T) -> QueueExpr {
    let span = a.span;
    QueueExpr { kind: Kind::Unary(op, Box::new(a)), ty, span }
}

pub(super) fn binary(op: B, a: QueueExpr, b: QueueExpr, ty: T) -> QueueExpr {
    let span = a.span.to(b.span);
    QueueExpr { kind: Kind::Binary(op, Box::new(a), Box::new(b)), ty, span }
}

/// Builds a comparison.
fn compared(op: CompareOp, left: QueueExpr, right: QueueExpr) -> QueueExpr {
    let (op, left, right) = match op {
        CompareOp::Eq => (B::Eq, left, right),
        CompareOp::Ne => (B::Ne, left, right),
        CompareOp::Lt => (B::Lt, left, right),
        CompareOp::Le => (B::Le, left, right),
        CompareOp::Gt => (B::Lt, right, left),
        CompareOp::Ge => (B::Le, right, left),
    };
    binary(op, left, right, T::Bool)
}

/// Both operands; an integer next to an F64 is converted to F64.
fn promote_operands(left: QueueExpr, right: QueueExpr) -> (QueueExpr, QueueExpr) {
    match (left.ty, right.ty) {
        (T::Float, T::Number) => (left, unary(U::ToFloat, right, T::Float)),
        (T::Number, T::Float) => (unary(U::ToFloat, left, T::Float), right),
        _ => (left, right),
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

/// A literal number, with its sign.
fn is_plain_number(ast: &ast::Expr) -> bool {
    match &ast.kind {
        Ast::Int(_) | Ast::Float(_) => true,
        Ast::Unary { op: UnaryOp::Neg, operand } => is_plain_number(operand),
        _ => false,
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

/// Whether a text is a literal number, with its sign.
fn is_number_text(text: &str) -> bool {
    let text = text.trim_start_matches('-').trim_start();
    text.starts_with(|c: char| c.is_ascii_digit() || c == '.') && text.parse::<f64>().is_ok()
}

/// Formats a type with its article.
fn a_type(ty: T) -> String {
    match ty {
        T::Number => ty.name().to_owned(),
        _ => format!("{} {}", if matches!(ty, T::Interval | T::Float) { "an" } else { "a" }, ty.name()),
    }
}
