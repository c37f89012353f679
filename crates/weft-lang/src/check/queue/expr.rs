//! Expressions of queues: integers with a unit, BOOL, and F64. Arithmetic is total, so no expression can fail.

use super::Checker;
use super::build::binary;
use super::build::literal;
use super::build::unary;
use super::functions;
use super::range::Range;
use crate::ast::{self, BinaryOp, ExprKind as Ast, Path};
use crate::check::expr::{Call, Environment, Node, Side, in_pairs};
use crate::check::functions::{Class, QueueFunction, Signature};
use crate::check::suggest::article;
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{
    ArithOp, CompareOp, QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLiteral as Literal,
    QueueOperand as Operand, QueueType as T, QueueUnary as U,
};
use crate::source::Span;
use crate::types;

impl Environment for Checker<'_, '_> {
    type Ty = T;
    type Value = QueueExpr;

    const CALL_CODES: (Code, Code) = (code::TYPE_MISMATCH, code::UNKNOWN_NAME);

    fn report(&mut self, diagnostic: Diagnostic) {
        self.cx.report(diagnostic);
    }

    fn unfit(&mut self, span: Span) -> Option<QueueExpr> {
        self.not_a_queue_expr(span)
    }

    fn integer(&mut self, n: i128, want: Option<T>, span: Span) -> Option<QueueExpr> {
        let (value, ty) = match want {
            Some(T::Float) => (Literal::Float(n as f64), T::Float),
            Some(ty @ (T::Interval | T::Timestamp)) if n == 0 => (Literal::Int(0), ty),
            Some(T::Size) => (Literal::Int(self.fits(n, span)?), T::Size),
            _ => (Literal::Int(self.fits(n, span)?), T::Number),
        };
        Some(literal(value, ty, span))
    }

    fn path(&mut self, path: &Path, span: Span) -> Option<QueueExpr> {
        self.named(path).map(|found| QueueExpr { span, ..found })
    }

    fn other(&mut self, ast: &ast::Expr, _want: Option<T>) -> Option<QueueExpr> {
        match &ast.kind {
            Ast::Float(x) => Some(literal(Literal::Float(*x), T::Float, ast.span)),
            Ast::Bool(b) => Some(literal(Literal::Bool(*b), T::Bool, ast.span)),
            Ast::Str(text) => self.quantity(text, ast.span),
            Ast::Binary { op: BinaryOp::BitAnd, left, right, .. } => {
                let (left, right) = (self.whole_number(left)?, self.whole_number(right)?);
                Some(binary(B::BitAnd, left, right, T::Number))
            }
            Ast::Header(_) => {
                let help = "write `flow()`, and in CREATE LINK `KEY header['...']`; or `p.class`, and there \
                            `CLASS header['...']`";
                let message = "queues cannot read the headers of calls";
                self.cx.refuse(code::QUEUE_NOT_SEEN, message, ast.span, "its link can", help)
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
                let equal = list.into_iter().map(|item| compared(CompareOp::Eq, operand.clone(), item));
                in_pairs(equal.collect(), |a, b| binary(B::Or, a, b, T::Bool))?
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

    fn has(signature: &Signature) -> bool {
        signature.queue.is_some()
    }

    fn is(ty: T, class: Class) -> bool {
        match class {
            Class::Any => true,
            Class::Signed | Class::Ordered => ty != T::Bool,
            Class::Whole => ty.is_whole(),
            Class::Text => false,
        }
    }

    fn function(
        &mut self,
        signature: &Signature,
        call: Call<'_>,
        mut args: Vec<QueueExpr>,
        ty: T,
    ) -> Option<QueueExpr> {
        let built = match signature.queue? {
            QueueFunction::Unary(op) => unary(op, args.remove(0), ty),
            QueueFunction::Binary(op) => in_pairs(args, |a, b| binary(op, a, b, ty))?,
            QueueFunction::Build(build) => build(&args, call.span),
            QueueFunction::Read(function) => functions::read(self, function, call)?,
            QueueFunction::Cast => {
                let value = args.remove(0);
                match (value.ty, ty) {
                    (T::Bool, _) => return self.mismatch(call.span, T::Number, T::Bool),
                    (T::Number | T::Interval | T::Timestamp | T::Size, T::Float) => {
                        unary(U::ToFloat, value, ty)
                    }
                    (T::Float, ty) if ty != T::Float => unary(U::ToWhole, value, ty),
                    // The representation is the same; only the unit differs.
                    _ => QueueExpr { ty, ..value },
                }
            }
        };
        Some(QueueExpr { span: call.span, ..built })
    }

    /// Warns of a comparison of a codepoint with an impossible value.
    fn warn_of_comparison(&mut self, op: CompareOp, [(_, left), (_, right)]: [Side<'_, QueueExpr>; 2]) {
        // The value of a parameter is the user's choice, so the queue must compare it.
        let is_param = |side: &QueueExpr| matches!(side.kind, Kind::Literal(_));
        let is_number = |side: &QueueExpr| is_number_text(self.cx.sources.slice(side.span));
        if !(is_number(left) || is_number(right)) || is_param(left) && is_param(right) {
            return;
        }
        let range = |side: &QueueExpr| match &side.kind {
            Kind::Operand(place) => codepoints(place).map(Range::up_to),
            Kind::Literal(Literal::Int(n)) => Some(Range::one(*n)),
            _ => None,
        };
        let (Some(a), Some(b)) = (range(left), range(right)) else { return };
        let is_never = match op {
            CompareOp::Lt => a.low >= b.high,
            CompareOp::Le => a.low > b.high,
            CompareOp::Gt => b.low >= a.high,
            CompareOp::Ge => b.low > a.high,
            CompareOp::Eq => a.and(b).is_none(),
            CompareOp::Ne => false,
        };
        if is_never {
            let (codepoint, number) = if a.is_one() { (right, b) } else { (left, a) };
            let text = self.cx.sources.slice(codepoint.span);
            let label = format!("`{text}` is {} to {}", number.low, number.high);
            let diagnostic = Diagnostic::warning(code::NEVER_TRUE, "this is never true");
            self.cx.report(diagnostic.at(left.span.to(right.span), label));
        }
    }
}

impl Checker<'_, '_> {
    /// Reports an expression of the wrong type.
    fn type_mismatch<R>(&mut self, span: Span, want: T, found: T) -> Option<R> {
        let text = self.cx.sources.slice(span);
        let quoted = text.strip_prefix('\'').and_then(|text| text.strip_suffix('\''));
        if let Some(bits) = quoted.and_then(rate) {
            let message = format!("expected {}, found a rate", article(want));
            let help = match want {
                T::Interval => "for the time that a packet takes, write `send_time(p.len, ...)`".to_owned(),
                _ => format!("a rate is a whole number of bits per second, here {bits}"),
            };
            return self.cx.refuse(code::TYPE_MISMATCH, &message, span, "bits per second", &help);
        }
        if want != T::Interval || !is_number_text(text) {
            return self.mismatch(span, want, found);
        }
        let message = "expected an INTERVAL, found a number without a unit";
        let help = format!("write `'{text} ms'`: ns, us, ms, s, min, h and d are units");
        self.cx.refuse(code::TYPE_MISMATCH, message, span, "unit missing", &help)
    }

    /// Reports an expression of the wrong type, with a conversion.
    fn mismatch<R>(&mut self, span: Span, want: T, found: T) -> Option<R> {
        let message = format!("expected {}, found {}", article(want), article(found));
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
        diagnostic.with_help(help).refuse(self.cx)
    }

    /// Checks that a literal fits a signed 64-bit integer.
    fn fits(&mut self, n: i128, span: Span) -> Option<i64> {
        if let Ok(n) = i64::try_from(n) {
            return Some(n);
        }
        Diagnostic::error(code::BAD_LITERAL, "numbers in a queue are 64-bit signed integers")
            .at(span, "too large")
            .refuse(self.cx)
    }

    /// Reports an expression that queues do not have.
    pub(super) fn not_a_queue_expr<R>(&mut self, span: Span) -> Option<R> {
        let diagnostic = Diagnostic::error(code::QUEUE_NOT_SEEN, "this expression is not allowed in a queue")
            .at(span, "neither a number nor a BOOL")
            .with_note(
                "allowed are numbers, fields of `p`, variables, + - * / %, comparisons, AND, OR, NOT, IN, \
                 BETWEEN, CASE with ELSE, and functions",
            )
            .with_help(
                "compute it in an element of the chain, and pass it to the queue with MARK as `p.class`",
            );
        diagnostic.refuse(self.cx)
    }

    /// Reads a quoted quantity: an interval, a size or a rate.
    fn quantity(&mut self, text: &str, span: Span) -> Option<QueueExpr> {
        if let Some(ns) = types::interval(text) {
            return Some(literal(Literal::Int(ns), T::Interval, span));
        }
        if let Some(bytes) = types::size(text).and_then(|bytes| i64::try_from(bytes).ok()) {
            return Some(literal(Literal::Int(bytes), T::Size, span));
        }
        if let Some(bits) = rate(text) {
            return Some(literal(Literal::Int(bits as i64), T::Number, span));
        }
        let help = "write an interval '5 ms', a size '1514 B', or a rate '15 Mbit/s'";
        self.cx.refuse(code::BAD_LITERAL, format!("`{text}` is not a quantity"), span, "unit missing", help)
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

/// Whether a text is a literal number, with its sign.
fn is_number_text(text: &str) -> bool {
    let text = text.trim_start_matches('-').trim_start();
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '_';
    text.starts_with(|c: char| c.is_ascii_digit()) && text.chars().all(is_part)
}
