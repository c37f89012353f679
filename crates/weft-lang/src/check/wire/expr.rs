//! Checks expressions over a header: the names available in each clause, and the ranges of values.

use weft_core::Type;
use weft_core::wire::{BinaryOp, Checksum, Expr, FieldId, HEADER_BYTES_MAX, bits_max};

use super::header::Header;
use crate::ast::{self, ExprKind as Ast, Ident, Path};
use crate::check::expr::{Call, Environment, Node, Side, bad_arguments, can_compare, mirrored};
use crate::check::functions::{Class, Signature, WireFunction};
use crate::check::suggest::with_nearest;
use crate::check::{Cx, quoted_list};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{ArithOp, CompareOp};
use crate::source::Span;

/// The maximum size of an expression; it is copied for each arm of a SWITCH.
const PARTS_MAX: usize = 256;
/// The type of all values. A truth is a number, too.
const NUMBER: Type = Type::Uint(64);
/// No layer is longer.
const LAYER_BYTES_MAX: u64 = u32::MAX as u64;

/// The clause of an expression, which determines the available values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Purpose {
    /// A width, a WHEN, COUNT or BYTES: the fields before it.
    Before,
    /// DEFAULT: these, and checksums.
    Default,
    /// UNTIL: these, and the current round.
    Until,
    /// CHECK: everything.
    Check,
    /// COMPUTED: these, and checksums.
    Computed,
    /// LENGTH: the header.
    Length,
    /// PAYLOAD and BIND: the header, and the first bits after it.
    Next,
    /// ON ENCAP SET: the header, and the length of its payload.
    Encap,
}

/// The place of an expression.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExprContext {
    pub(super) purpose: Purpose,
    /// The number of fields before it.
    pub(super) n_before: usize,
    /// The surrounding repetition, an index into [`Header::repeats`].
    pub(super) repeat: Option<usize>,
}

impl ExprContext {
    /// A clause in which the whole header is available.
    pub(super) fn whole(purpose: Purpose) -> Self {
        Self { purpose, n_before: usize::MAX, repeat: None }
    }
}

/// An expression with its properties.
#[derive(Clone, Debug)]
pub(in crate::check) struct Typed {
    pub(super) expr: Expr,
    /// It is a truth, 0 or 1.
    pub(super) is_truth: bool,
    /// The minimum and the maximum of its value.
    pub(super) range: (u64, u64),
    /// The source.
    span: Span,
}

/// Checks a number: an expression that is not BOOL, or a BOOL used as 0 or 1.
pub(super) fn number(
    cx: &mut Cx<'_>,
    header: &Header<'_>,
    at: ExprContext,
    ast: &ast::Expr,
) -> Option<Typed> {
    if n_parts(ast) > PARTS_MAX {
        let message = format!("an expression of more than {PARTS_MAX} parts");
        let help = "split it over several fields, or bind several protocols";
        return cx.refuse(code::EXPR_TOO_LARGE, message, ast.span, "too long", help);
    }
    ExprReader { cx, header, at }.expr(ast, None)
}

/// Checks a condition over a header.
pub(super) fn condition(
    cx: &mut Cx<'_>,
    header: &Header<'_>,
    at: ExprContext,
    ast: &ast::Expr,
) -> Option<Expr> {
    let typed = number(cx, header, at, ast)?;
    Some(ExprReader { cx, header, at }.coerce(typed, Type::Bool)?.expr)
}

/// Parts of an expression.
fn n_parts(ast: &ast::Expr) -> usize {
    let all = |list: &[ast::Expr]| list.iter().map(n_parts).sum::<usize>();
    1 + match &ast.kind {
        Ast::Call { args, .. } => all(args),
        Ast::Unary { operand, .. } => n_parts(operand),
        Ast::Binary { left, right, .. } => n_parts(left) + n_parts(right),
        Ast::InList { operand, list, .. } => n_parts(operand) + all(list),
        Ast::Between { operand, low, high, .. } => n_parts(operand) + n_parts(low) + n_parts(high),
        Ast::Case { operand, arms, otherwise } => {
            let arms: usize = arms.iter().map(|arm| n_parts(&arm.when) + n_parts(&arm.then)).sum();
            arms + operand.as_deref().map_or(0, n_parts) + otherwise.as_deref().map_or(0, n_parts)
        }
        _ => 0,
    }
}

pub(in crate::check) struct ExprReader<'r, 'c, 'a> {
    cx: &'r mut Cx<'c>,
    header: &'r Header<'a>,
    at: ExprContext,
}

impl Environment for ExprReader<'_, '_, '_> {
    type Ty = Type;
    type Value = Typed;

    fn report(&mut self, diagnostic: Diagnostic) {
        self.cx.report(diagnostic);
    }

    fn unfit(&mut self, span: Span) -> Option<Typed> {
        Diagnostic::error(
            code::WIRE_NOT_SEEN,
            "this expression is not allowed in a wire format",
        )
        .at(span, "not a value of the header")
        .with_note(
            "allowed are numbers, fields, + - * / %, comparisons, AND, OR, NOT, IN, BETWEEN and CASE WHEN",
        )
        .with_help("compute with the fields of this header").refuse(self.cx)
    }

    fn integer(&mut self, n: i128, _want: Option<Type>, span: Span) -> Option<Typed> {
        let Ok(n) = u64::try_from(n) else { return self.unfit(span) };
        Some(number_of(Expr::Int(n), (n, n), span))
    }

    fn path(&mut self, path: &Path, span: Span) -> Option<Typed> {
        match path.as_ident() {
            Some(name) => self.name(name, span),
            None => self.not_here(&path.to_dotted(), span, "an expression can only read its own header"),
        }
    }

    fn other(&mut self, ast: &ast::Expr, _want: Option<Type>) -> Option<Typed> {
        match ast.kind {
            Ast::Bool(value) => self.integer(value.into(), None, ast.span),
            _ => self.unfit(ast.span),
        }
    }

    fn build(&mut self, node: Node<Typed>, span: Span) -> Option<Typed> {
        let expr = match node {
            Node::Not(operand) => Expr::Not(Box::new(operand.expr)),
            Node::And(left, right) => binary(BinaryOp::And, left.expr, right.expr),
            Node::Or(left, right) => binary(BinaryOp::Or, left.expr, right.expr),
            Node::Compare(op, left, right) => {
                let op = match op {
                    CompareOp::Eq => BinaryOp::Eq,
                    CompareOp::Ne => BinaryOp::Ne,
                    CompareOp::Lt => BinaryOp::Lt,
                    CompareOp::Le => BinaryOp::Le,
                    CompareOp::Gt => BinaryOp::Gt,
                    CompareOp::Ge => BinaryOp::Ge,
                };
                binary(op, left.expr, right.expr)
            }
            Node::Between(operand, low, high) => {
                let above = binary(BinaryOp::Ge, operand.expr.clone(), low.expr);
                binary(BinaryOp::And, above, binary(BinaryOp::Le, operand.expr, high.expr))
            }
            Node::In(operand, list) => Expr::In(Box::new(operand.expr), self.numbers(&list)?),
            Node::Negative(_) | Node::Case { operand: Some(_), .. } => return self.unfit(span),
            Node::Case { operand: None, arms, otherwise } => return self.choice(arms, otherwise, span),
            Node::Arith(op, _, left, right) => {
                let [left, right] = [left, right].map(|side| self.coerce(side, NUMBER));
                return Some(arith(op, left?, right?, span));
            }
        };
        Some(truth(expr, span))
    }

    fn ty(_value: &Typed) -> Type {
        NUMBER
    }

    fn span(value: &Typed) -> Span {
        value.span
    }

    fn common(a: Type, _b: Type) -> Option<Type> {
        Some(a)
    }

    /// Reports a number as a condition, and a checksum as an operand.
    fn coerce(&mut self, value: Typed, ty: Type) -> Option<Typed> {
        match ty {
            Type::Bool if value.is_truth => Some(value),
            Type::Bool => {
                let text = self.cx.sources.slice(value.span).to_owned();
                let message = "expected a condition, found a number";
                let diagnostic =
                    Diagnostic::error(code::TYPE_MISMATCH, message).at(value.span, "true or false?");
                self.cx.report(match text.len() {
                    0..=60 => diagnostic.with_help(format!("write `{text} <> 0`")),
                    _ => diagnostic.with_help("compare it: `... <> 0`"),
                });
                None
            }
            _ if matches!(value.expr, Expr::Checksum(_)) => {
                let help = "a checksum must be the whole expression: `COMPUTED (checksum(header))`";
                self.not_here("checksum", value.span, help)
            }
            _ => Some(value),
        }
    }

    fn no_common(&mut self, _first: &Typed, _second: &Typed) {
        unreachable!("all values are numbers");
    }

    fn literal_type(_op: ArithOp, _known: Type, _literal: &ast::Expr) -> Option<Type> {
        None
    }

    fn is(_ty: Type, class: Class) -> bool {
        class != Class::Text
    }

    fn has(signature: &Signature) -> bool {
        signature.wire.is_some()
    }

    fn function(
        &mut self,
        signature: &Signature,
        call: Call<'_>,
        _args: Vec<Typed>,
        _ty: Type,
    ) -> Option<Typed> {
        match signature.wire? {
            WireFunction::BytesAfter => self.bytes_after(call, signature),
            WireFunction::Checksum => self.checksum(call, signature),
            WireFunction::Count => self.count(call, signature),
            WireFunction::Flow => self.flow(call, signature),
            WireFunction::Peek => self.peek(call, signature),
            WireFunction::Present => self.present(call, signature),
        }
    }

    fn warn_of_comparison(&mut self, op: CompareOp, [left, right]: [Side<'_, Typed>; 2]) {
        for (op, typed, number) in [(op, left.1, right.1), (mirrored(op), right.1, left.1)] {
            let (Expr::Int(n), (low, high)) = (&number.expr, typed.range) else { continue };
            if matches!(typed.expr, Expr::Int(_)) || can_compare(op, i128::from(*n), (low, high)) {
                continue;
            }
            let diagnostic = Diagnostic::warning(code::NEVER_TRUE, "this is never true")
                .at(number.span, format!("the other side is {low} to {high}"))
                .with_help("compare it with a value in that range");
            self.cx.report(diagnostic);
        }
    }
}

impl ExprReader<'_, '_, '_> {
    /// Reports a name that this clause cannot use.
    fn not_here<T>(&mut self, what: &str, span: Span, help: &str) -> Option<T> {
        let message = format!("`{what}` is not available here");
        self.cx.refuse(code::WIRE_NOT_SEEN, message, span, "not available", help)
    }

    // ---- names -------------------------------------------------------------------------------------------------

    /// Resolves a name: a field, or a predefined word that is known in this clause.
    fn name(&mut self, name: &Ident, span: Span) -> Option<Typed> {
        use Purpose as P;
        let purpose = self.at.purpose;
        if let Some(id) = self.header.protocol.field(&name.name) {
            return self.field(id, span);
        }
        let in_repeat = self.at.repeat.is_some();
        let (expr, is_known, most, help) = match name.name.as_str() {
            "header_bytes" => {
                let is_known = !matches!(purpose, P::Before | P::Default | P::Until);
                let help =
                    "the length of the header is available in CHECK, COMPUTED, LENGTH, PAYLOAD and BIND";
                (Expr::HeaderBytes, is_known, u64::from(HEADER_BYTES_MAX), help)
            }
            "payload_bytes" => {
                let is_known = matches!(purpose, P::Check | P::Computed | P::Next | P::Encap);
                let help =
                    "the length of the payload is available in CHECK, COMPUTED, PAYLOAD, BIND and ON ENCAP";
                (Expr::PayloadBytes, is_known, LAYER_BYTES_MAX, help)
            }
            "round_bytes" => {
                let is_known = in_repeat && matches!(purpose, P::Until | P::Check | P::Computed);
                let help = "it is available in a REPEAT: in UNTIL, CHECK and COMPUTED";
                (Expr::RoundBytes, is_known, u64::from(HEADER_BYTES_MAX), help)
            }
            "rest" => {
                let is_known = matches!(purpose, P::Before | P::Default | P::Until | P::Length);
                let help = "it is available in a width, WHEN, COUNT, BYTES and UNTIL, and in LENGTH";
                (Expr::Rest, is_known, LAYER_BYTES_MAX, help)
            }
            "last" => {
                let is_known = in_repeat && matches!(purpose, P::Check | P::Computed);
                (Expr::Last, is_known, 1, "it is available in a REPEAT: in CHECK and COMPUTED")
            }
            _ => return self.unknown(name),
        };
        if !is_known {
            return self.not_here(&name.name, name.span, help);
        }
        Some(number_of(expr, (0, most), span))
    }

    /// Reports an unknown field.
    fn unknown<T>(&mut self, name: &Ident) -> Option<T> {
        const WORDS: [&str; 5] = ["header_bytes", "payload_bytes", "round_bytes", "rest", "last"];
        if let Some(declared) = self.header.later(&name.name) {
            return self.too_early(&name.name, (name.span, declared));
        }
        let fields = &self.header.protocol.fields;
        let names: Vec<&str> = fields.iter().map(|field| field.name.as_str()).chain(WORDS).collect();
        let message = format!("`{}` has no field `{}`", self.header.protocol.name, name.name);
        let diagnostic = Diagnostic::error(code::WIRE_NOT_SEEN, message).at(name.span, "unknown");
        if !self.header.is_gappy {
            let all: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
            let diagnostic = diagnostic.with_note(format!("it has: {}", quoted_list(&all)));
            self.cx.report_missing(with_nearest(diagnostic, name, names));
        }
        None
    }

    /// Reads a field that is a number and already parsed.
    fn field(&mut self, id: FieldId, span: Span) -> Option<Typed> {
        self.check_in_scope(id, span)?;
        let info = &self.header.infos[usize::from(id.0)];
        if info.is_bytes {
            let name = &self.header.protocol.fields[usize::from(id.0)].name;
            let message = format!("`{name}` is bytes, not a number");
            return Diagnostic::error(code::TYPE_MISMATCH, message)
                .at(span, "bytes")
                .with_label(info.span, "declared here")
                .with_help("an expression reads `bit(n)` fields; for bytes, only `present(f)` is allowed")
                .refuse(self.cx);
        }
        let range = info.range;
        (!info.is_broken).then(|| number_of(Expr::Field(id), range, span))
    }

    /// Rejects a field after the expression, and a field of a round from outside.
    fn check_in_scope(&mut self, id: FieldId, span: Span) -> Option<()> {
        let info = &self.header.infos[usize::from(id.0)];
        let name = &self.header.protocol.fields[usize::from(id.0)].name;
        if usize::from(id.0) >= self.at.n_before {
            return self.too_early(name, (span, info.span));
        }
        if info.repeat.is_none() || info.repeat == self.at.repeat {
            return Some(());
        }
        let repeat = info.repeat.map_or("", |at| &self.header.repeats[at].name);
        Diagnostic::error(code::WIRE_NOT_SEEN, format!("`{name}` is not available here"))
            .at(span, "of which round?")
            .with_label(info.span, "declared here")
            .with_help(format!("outside of `{repeat}` only `count({repeat})` is available"))
            .refuse(self.cx)
    }

    /// Reports a field that is declared later.
    fn too_early<T>(&mut self, name: &str, (span, declared): (Span, Span)) -> Option<T> {
        Diagnostic::error(code::WIRE_NOT_SEEN, format!("`{name}` is not available here"))
            .at(span, "read before it is parsed")
            .with_label(declared, "declared here")
            .with_help("use fields that are declared before this one")
            .refuse(self.cx)
    }

    // ---- functions ---------------------------------------------------------------------------------------------

    /// Checks `present(field)`.
    pub(in crate::check) fn present(&mut self, call: Call<'_>, signature: &Signature) -> Option<Typed> {
        let id = self.field_name(call, signature)?;
        self.check_in_scope(id, call.span)?;
        Some(truth(Expr::Present(id), call.span))
    }

    /// Checks `bytes_after(field)`: the bytes from the end of a field to the end of the layer.
    pub(in crate::check) fn bytes_after(&mut self, call: Call<'_>, signature: &Signature) -> Option<Typed> {
        let id = self.field_name(call, signature)?;
        if !matches!(self.at.purpose, Purpose::Check | Purpose::Computed) {
            return self.not_here("bytes_after", call.span, "it is available in CHECK and COMPUTED");
        }
        self.check_in_scope(id, call.span)?;
        Some(number_of(Expr::BytesAfter(id), (0, LAYER_BYTES_MAX), call.span))
    }

    /// Checks `peek bit(n)`: the first bits after the header.
    pub(in crate::check) fn peek(&mut self, call: Call<'_>, signature: &Signature) -> Option<Typed> {
        let Call { args, span, .. } = call;
        if self.at.purpose != Purpose::Next {
            return self.not_here(
                "peek",
                span,
                "the bytes after the header are available in PAYLOAD and BIND",
            );
        }
        let [ast::Expr { kind: Ast::Int(n @ 1..=64), .. }] = args else {
            return bad_arguments(self, signature, call, "not valid");
        };
        Some(number_of(Expr::Peek(*n as u8), (0, bits_max(*n as u8)), span))
    }

    /// Checks `hash(inner.flow)`: available when the header is pushed onto a packet.
    pub(in crate::check) fn flow(&mut self, call: Call<'_>, signature: &Signature) -> Option<Typed> {
        let Call { args, span, .. } = call;
        let is_flow = |path: &Path| path.to_dotted().eq_ignore_ascii_case("inner.flow");
        match args {
            [ast::Expr { kind: Ast::Path(path), .. }] if is_flow(path) => {}
            _ => return bad_arguments(self, signature, call, "not valid"),
        }
        if self.at.purpose != Purpose::Encap {
            return self.not_here(
                "inner.flow",
                span,
                "the flow of a tunnel's payload is available in ON ENCAP only",
            );
        }
        Some(number_of(Expr::Flow, (0, u64::from(u32::MAX)), span))
    }

    /// Checks `count(repeat)`: the number of iterations.
    pub(in crate::check) fn count(&mut self, call: Call<'_>, signature: &Signature) -> Option<Typed> {
        let Call { args, span, .. } = call;
        let name = match args {
            [ast::Expr { kind: Ast::Path(path), .. }] => path.as_ident(),
            _ => None,
        };
        let Some(name) = name else { return bad_arguments(self, signature, call, "not valid") };
        let Some(repeat) = self.header.repeats.iter().find(|repeat| repeat.name == name.name) else {
            let names = self.header.repeats.iter().map(|repeat| repeat.name.as_str());
            let message = format!("unknown REPEAT `{}`", name.name);
            let diagnostic = Diagnostic::error(code::WIRE_NOT_SEEN, message).at(name.span, "unknown");
            let diagnostic = with_nearest(diagnostic, name, names);
            if !self.header.is_gappy {
                self.cx.report_missing(diagnostic);
            }
            return None;
        };
        if repeat.n_before > self.at.n_before || self.at.repeat.is_some() {
            return self.not_here(&name.name, span, "the count is available after the REPEAT");
        }
        Some(number_of(Expr::Count(name.name.clone()), (0, u64::from(repeat.max)), span))
    }

    /// Returns the field that is the only argument of a function.
    fn field_name(&mut self, call: Call<'_>, signature: &Signature) -> Option<FieldId> {
        let name = match call.args {
            [ast::Expr { kind: Ast::Path(path), .. }] => path.as_ident(),
            _ => None,
        };
        let Some(name) = name else {
            return bad_arguments(self, signature, call, "not valid");
        };
        match self.header.protocol.field(&name.name) {
            Some(id) => Some(id),
            None => self.unknown(name),
        }
    }

    /// Uses only the text of the arguments: `checksum(pseudo, header, payload)`.
    pub(in crate::check) fn checksum(&mut self, call: Call<'_>, _signature: &Signature) -> Option<Typed> {
        let Call { function, span, .. } = call;
        const KNOWN: [(&str, Checksum); 5] = [
            ("checksum(header)", Checksum::Header),
            ("checksum(header,payload)", Checksum::Layer),
            ("checksum(pseudo,header,payload)", Checksum::Pseudo),
            ("checksum_or_zero(pseudo,header,payload)", Checksum::PseudoOrZero),
            ("crc32c(header,payload)", Checksum::Crc32c),
        ];
        if !matches!(self.at.purpose, Purpose::Computed | Purpose::Default) {
            let help =
                format!("store it in a separate field: `sum bit(16) COMPUTED ({}(header))`", function.name);
            return self.not_here(&function.name, span, &help);
        }
        let text: String = self.cx.sources.slice(span).chars().filter(|c| !c.is_whitespace()).collect();
        let text = text.to_ascii_lowercase();
        let text = text.strip_prefix('(').and_then(|text| text.strip_suffix(')')).unwrap_or(&text);
        let Some((_, checksum)) = KNOWN.iter().find(|(known, _)| *known == text) else {
            let forms = KNOWN.map(|(form, _)| form.replace(',', ", "));
            return Diagnostic::error(code::BAD_ARGUMENTS, "unknown checksum coverage")
                .at(span, "argument missing")
                .with_note(format!("there are: {}", forms.join("; ")))
                .with_help("write what it covers: `checksum(header)`")
                .refuse(self.cx);
        };
        let most = if *checksum == Checksum::Crc32c { u64::from(u32::MAX) } else { u64::from(u16::MAX) };
        Some(number_of(Expr::Checksum(*checksum), (0, most), span))
    }

    // ---- operators ---------------------------------------------------------------------------------------------

    /// The values of IN, which must be numbers.
    fn numbers(&mut self, list: &[Typed]) -> Option<Vec<u64>> {
        let mut values = Vec::new();
        for item in list {
            match item.expr {
                Expr::Int(n) => values.push(n),
                _ => {
                    let message = "the values of IN must be numbers";
                    let help = "compare with `=`, and join the conditions with OR";
                    self.cx.fault(code::NOT_CONSTANT, message, item.span, "not a number", help);
                }
            }
        }
        (values.len() == list.len()).then_some(values)
    }

    /// Builds a CASE, which needs an ELSE.
    fn choice(&mut self, arms: Vec<(Typed, Typed)>, otherwise: Option<Typed>, span: Span) -> Option<Typed> {
        let Some(otherwise) = otherwise else {
            let message = "a CASE in a wire format needs an ELSE";
            let help = "a field always has a value: add `ELSE 0`";
            return self.cx.refuse(code::MISSING_CLAUSE, message, span, "ELSE missing", help);
        };
        Some(arms.into_iter().rev().fold(otherwise, |other, (when, then)| Typed {
            expr: Expr::If(Box::new(when.expr), Box::new(then.expr), Box::new(other.expr)),
            is_truth: then.is_truth && other.is_truth,
            range: (then.range.0.min(other.range.0), then.range.1.max(other.range.1)),
            span,
        }))
    }
}

fn truth(expr: Expr, span: Span) -> Typed {
    number_of(expr, (0, 1), span)
}

/// A number in a range. From 0 to 1 it is a truth, too.
fn number_of(expr: Expr, range: (u64, u64), span: Span) -> Typed {
    Typed { expr, is_truth: range.1 <= 1, range, span }
}

pub(super) fn binary(op: BinaryOp, left: Expr, right: Expr) -> Expr {
    Expr::Binary(op, Box::new(left), Box::new(right))
}

/// Builds an arithmetic operation. It saturates, and division by zero gives 0.
fn arith(op: ArithOp, left: Typed, right: Typed, span: Span) -> Typed {
    let ((a, b), (c, d)) = (left.range, right.range);
    let (op, range) = match op {
        ArithOp::Add => (BinaryOp::Add, (a.saturating_add(c), b.saturating_add(d))),
        ArithOp::Sub => (BinaryOp::Sub, (a.saturating_sub(d), b.saturating_sub(c))),
        ArithOp::Mul => (BinaryOp::Mul, (a.saturating_mul(c), b.saturating_mul(d))),
        ArithOp::Div => (BinaryOp::Div, (if c == 0 { 0 } else { a / d }, b / c.max(1))),
        ArithOp::Rem => (BinaryOp::Rem, (0, b.min(d.saturating_sub(1)))),
    };
    Typed { expr: binary(op, left.expr, right.expr), is_truth: false, range, span }
}
