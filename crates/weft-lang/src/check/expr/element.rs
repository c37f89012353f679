//! Expressions of elements, chains and table statements, including nullability and fallibility.

use weft_core::limits::LIKE_BYTES_MAX;
use weft_core::native::NATIVES;
use weft_core::{Status, Type, Value};

use super::{Call, Environment, Node, Side, article, bad_arguments, in_pairs, mirrored};
use crate::ast::{self, BinaryOp, ExprKind as Ast, Ident, Path};
use crate::check::functions::{self, Class, ElementFunction, Signature};
use crate::check::scope::{Scope, View, leaf, not_in_status_condition, with_nearest};
use crate::check::{binding, frame, header, native, query};
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{ArithOp, CompareOp, Expr, ExprKind, Function, HandlerKind};
use crate::source::Span;
use crate::types;

/// The message for `counted` in a wrong place.
const HOW_TO_COUNT: &str = "use it as the whole value of a column: `SET m = counted(m, bin)`";

impl Environment for Scope<'_, '_> {
    type Ty = Type;
    type Value = Expr;

    const HAS_TEXT: bool = true;

    fn report(&mut self, diagnostic: Diagnostic) {
        self.cx.report(diagnostic);
    }

    fn unfit(&mut self, _span: Span) -> Option<Expr> {
        unreachable!("elements have every expression")
    }

    fn integer(&mut self, n: i128, want: Option<Type>, span: Span) -> Option<Expr> {
        match want {
            Some(Type::F64) => return Some(constant(Value::Float(n as f64), Type::F64, span)),
            Some(Type::Status) => {
                if let Some(status) = u64::try_from(n).ok().and_then(Status::from_code) {
                    return Some(constant(Value::Int(i64::from(status.code())), Type::Status, span));
                }
            }
            Some(ty) => {
                if let Some(value) = types::integer(n, ty) {
                    return Some(constant(value, ty, span));
                }
            }
            None => {}
        }
        let ty = if i64::try_from(n).is_ok() { Type::Int(64) } else { Type::Uint(64) };
        match types::integer(n, ty) {
            Some(value) => Some(constant(value, ty, span)),
            None => self.report_at(span, code::BAD_LITERAL, format!("{n} does not fit I64"), "too small"),
        }
    }

    fn path(&mut self, path: &Path, span: Span) -> Option<Expr> {
        self.resolve(path).map(|expr| Expr { span, ..expr })
    }

    fn call(&mut self, call: Call<'_>, want: Option<Type>) -> Option<Expr> {
        function_call(self, call, want)
    }

    fn other(&mut self, ast: &ast::Expr, want: Option<Type>) -> Option<Expr> {
        let span = ast.span;
        match &ast.kind {
            Ast::Float(x) => Some(constant(Value::Float(*x), Type::F64, span)),
            Ast::Str(text) => text_literal(self, text, want, span),
            Ast::Bool(value) => Some(constant(Value::Bool(*value), Type::Bool, span)),
            Ast::Null => null(self, want, span),
            Ast::Header(key) => header(self, key, false, span),
            Ast::Trailer(key) => header(self, key, true, span),
            Ast::Subselect(select) => query::subselect(self, select, want, span),
            Ast::Exists(select) => query::exists(self, select, span),
            Ast::Cast { operand, ty } => explicit_cast(self, operand, ty, span),
            Ast::List(look) => binding::list_expr(self, look, span),
            Ast::Entry { map, key } => binding::entry(self, map, key, span),
            Ast::Binary { op: BinaryOp::BitAnd, op_span, left, right } => {
                common_bits(self, *op_span, [left, right], want, span)
            }
            // The walk knows the other operators.
            Ast::Binary { left, right, .. } => joined_text(self, [left, right], want, span),
            _ => predicate(self, ast),
        }
    }

    fn build(&mut self, node: Node<Expr>, span: Span) -> Option<Expr> {
        let kind = match node {
            Node::Not(operand) => ExprKind::Not(operand.into()),
            Node::And(left, right) => ExprKind::And(left.into(), right.into()),
            Node::Or(left, right) => ExprKind::Or(left.into(), right.into()),
            Node::Compare(op, left, right) => {
                ExprKind::Compare { op, left: left.into(), right: right.into() }
            }
            Node::In(operand, list) => ExprKind::InList { operand: operand.into(), list },
            Node::Between(operand, low, high) => {
                ExprKind::Between { operand: operand.into(), low: low.into(), high: high.into() }
            }
            Node::Negative(operand) => return negative(self, operand, span),
            Node::Arith(op, op_span, left, right) => return arith(self, op, op_span, left, right, span),
            Node::Case { operand, arms, otherwise } => return Some(case(operand, arms, otherwise, span)),
        };
        Some(compound(kind, Type::Bool, span))
    }

    fn ty(value: &Expr) -> Type {
        value.ty
    }

    fn span(value: &Expr) -> Span {
        value.span
    }

    fn common(a: Type, b: Type) -> Option<Type> {
        types::common(a, b)
    }

    fn literal_type(op: ArithOp, known: Type, literal: &ast::Expr) -> Option<Type> {
        match known {
            Type::Interval if matches!(op, ArithOp::Mul | ArithOp::Div) => {
                matches!(literal.kind, Ast::Str(_)).then_some(Type::Interval)
            }
            Type::Interval | Type::Timestamp => Some(Type::Interval),
            Type::Text(_) => None,
            number => Some(number),
        }
    }

    fn coerce(&mut self, expr: Expr, ty: Type) -> Option<Expr> {
        if let Some(n) = constant_integer(&expr) {
            if let Some(value) = types::integer(n, ty) {
                return Some(constant(value, ty, expr.span));
            }
            if types::is_integer(ty) {
                let message = format!("{n} does not fit {ty}");
                return self.report_at(expr.span, code::BAD_LITERAL, message, "too large or too small");
            }
        }
        if let (ExprKind::Const(Value::Bytes(bytes)), Type::Text(Some(max)) | Type::Bytes(Some(max))) =
            (&expr.kind, ty)
            && types::is_same(expr.ty, ty)
            && bytes.len() > max as usize
        {
            let message = format!("this text has {} bytes, but {ty} holds at most {max}", bytes.len());
            return self.report_at(expr.span, code::BAD_LITERAL, message, "too long");
        }
        if types::is_same(expr.ty, ty) {
            return Some(expr);
        }
        if types::widens(expr.ty, ty) {
            let span = expr.span;
            return Some(compound(ExprKind::Widen(expr.into()), ty, span));
        }
        mismatch(self, &expr, ty)
    }

    fn no_common(&mut self, first: &Expr, second: &Expr) {
        let message =
            format!("{} and {} cannot be compared or combined", article(first.ty), article(second.ty));
        let mut diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
            .at(second.span, second.ty.to_string())
            .with_label(first.span, first.ty.to_string());
        let (a, b) = (first.ty, second.ty);
        let text = |expr: &Expr| self.cx.sources.slice(expr.span).to_owned();
        let help = match (a, b) {
            (Type::IpAddr, Type::Cidr) => Some(format!("{} IN {}", text(first), text(second))),
            (Type::Cidr, Type::IpAddr) => Some(format!("{} IN {}", text(second), text(first))),
            (_, Type::F64 | Type::Text(_)) => conversion(&text(first), a, b),
            _ => conversion(&text(second), b, a),
        };
        if let Some(help) = help {
            diagnostic = diagnostic.with_help(format!("write `{help}`"));
        }
        self.cx.report(diagnostic);
    }

    fn warn_of_comparison(&mut self, op: CompareOp, [left, right]: [Side<'_, Expr>; 2]) {
        for (op, (ast, value), (_, other)) in [(op, left, right), (mirrored(op), right, left)] {
            frame::warn_of_number(self, op, (ast, other));
            warn_of_difference(self, op, value, other);
            if matches!(op, CompareOp::Eq | CompareOp::Ne) {
                frame::warn_of_port(self, value, other);
            }
        }
    }

    fn warn_of_bounds(&mut self, low: &Expr, high: &Expr) {
        match (constant_integer(low), constant_integer(high)) {
            (Some(low), Some(high)) if low > high => {}
            _ => return,
        }
        let (from, to) = (self.cx.sources.slice(low.span), self.cx.sources.slice(high.span));
        let diagnostic =
            Diagnostic::warning(code::NEVER_TRUE, format!("no value is BETWEEN {from} AND {to}"))
                .at(low.span.to(high.span), "the lower bound must come first")
                .with_help(format!("write `BETWEEN {to} AND {from}`"));
        self.cx.report(diagnostic);
    }

    fn has(signature: &Signature) -> bool {
        signature.element.is_some()
    }

    fn is(ty: Type, class: Class) -> bool {
        match class {
            Class::Any => true,
            Class::Signed => matches!(ty, Type::Int(_) | Type::F64 | Type::Interval),
            Class::Ordered => types::is_ordered(ty),
            Class::Whole => types::is_integer(ty),
            Class::Text => matches!(ty, Type::Text(_) | Type::Bytes(_)),
        }
    }

    fn function(
        &mut self,
        signature: &Signature,
        call: Call<'_>,
        mut args: Vec<Expr>,
        ty: Type,
    ) -> Option<Expr> {
        let span = call.span;
        let called = match signature.element? {
            ElementFunction::Call(called) => called,
            ElementFunction::Concat => return concat(self, args, span),
            ElementFunction::Cast => return cast(self, args.remove(0), ty, span),
        };
        let called = match called {
            Function::Rand(_) => Function::Rand(self.next_call_site()),
            Function::Counted => {
                let column = args.remove(0);
                let is_own = |(row, at)| column.kind == ExprKind::RowColumn { row, column: at };
                if !self.counting.is_some_and(is_own) {
                    return bad_arguments(self, signature, call, HOW_TO_COUNT);
                }
                called
            }
            other => other,
        };
        let is_null = |arg: &Expr| arg.nullable;
        let nullable = match called {
            Function::Coalesce => args.iter().all(is_null),
            Function::NullIf => true,
            _ => args.iter().any(is_null),
        };
        Some(Expr { nullable, ..function(called, args, ty, signature.fallible, span) })
    }

    fn unknown_function(&mut self, name: &Ident) -> Option<Expr> {
        if self.cx.broken_functions.contains(&name.name) {
            return None;
        }
        let lower = name.name.to_ascii_lowercase();
        let message = format!("there is no function `{}`", name.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_FUNCTION, message).at(name.span, "unknown");
        let declared: Vec<String> = self.cx.functions.iter().map(|function| function.name.clone()).collect();
        let mut names: Vec<&str> = functions::of_elements().map(Signature::name).collect();
        names.extend(NATIVES.iter().map(|info| info.name).chain(declared.iter().map(String::as_str)));
        let diagnostic = match lower.as_str() {
            "estimate" => {
                diagnostic.with_help("sketches are not supported in this version; count in a TABLE")
            }
            aggregate if functions::AGGREGATES.contains(&aggregate) => {
                let select = format!("SELECT {aggregate}(c) FROM");
                let diagnostic = diagnostic.with_help(match self.view {
                    View::Row => {
                        format!(
                            "`{lower}` is an aggregate and must be a whole item of a SELECT: `{select} t`"
                        )
                    }
                    _ => format!("`{lower}` is an aggregate over rows: `({select} SCAN t MAX 1000)`"),
                });
                match aggregate {
                    "min" => diagnostic.with_help("the lesser of two values is `least(a, b)`"),
                    "max" => diagnostic.with_help("the greater of two values is `greatest(a, b)`"),
                    _ => diagnostic,
                }
            }
            _ => with_nearest(diagnostic, name, names),
        };
        diagnostic.refuse(self.cx)
    }

    fn in_networks(&mut self, operand: &ast::Expr, list: &[ast::Expr], span: Span) -> Option<Option<Expr>> {
        let is_network = |text: &str| types::read_text(text, Type::Cidr).is_ok();
        let is_network = |item: &ast::Expr| matches!(&item.kind, Ast::Str(text) if is_network(text));
        let may_be = !list.is_empty() && list.iter().all(is_network);
        if !may_be || self.expr(operand, None)?.ty != Type::IpAddr {
            return None;
        }
        let inside = list.iter().map(|net| {
            let args = vec![self.typed(operand, Type::IpAddr)?, self.typed(net, Type::Cidr)?];
            Some(function(Function::InPrefix, args, Type::Bool, false, span))
        });
        let inside = inside.collect::<Option<Vec<Expr>>>();
        let or = |left: Expr, right: Expr| {
            let span = left.span;
            compound(ExprKind::Or(left.into(), right.into()), Type::Bool, span)
        };
        Some(inside.and_then(|inside| in_pairs(inside, or)))
    }
}

impl Scope<'_, '_> {
    /// Checks an expression as a non-NULL value of type `ty`; `whose` names the target in messages: `column `c``.
    pub(in crate::check) fn value_for(
        &mut self,
        ast: &ast::Expr,
        ty: Type,
        nullable: bool,
        whose: &str,
    ) -> Option<Expr> {
        let expr = self.typed(ast, ty)?;
        if nullable { Some(expr) } else { self.never_null(expr, ty, whose) }
    }

    /// Returns the expression if it is never NULL, and reports it otherwise; `whose` names the target in messages,
    /// and `ty` is its type.
    pub(in crate::check) fn never_null(&mut self, expr: Expr, ty: Type, whose: &str) -> Option<Expr> {
        if !expr.nullable {
            return Some(expr);
        }
        let text = self.cx.sources.slice(expr.span).to_owned();
        let diagnostic =
            Diagnostic::error(code::MAY_BE_NULL, format!("this may be NULL, but {whose} cannot be NULL"))
                .at(expr.span, format!("may be NULL: {ty}?"));
        let stand_in = match ty {
            Type::Text(_) => "''",
            Type::F64 => "0.0",
            Type::Bool => "FALSE",
            Type::Interval => "'1 s'",
            Type::Int(_) | Type::Uint(_) | Type::Size => "0",
            _ => "...",
        };
        let diagnostic = match text.len() {
            0..=60 => diagnostic
                .with_help(format!("give a default: `COALESCE({text}, {stand_in})`"))
                .with_fix(expr.span, format!("COALESCE({text}, {stand_in})")),
            _ => diagnostic.with_help(format!("give a default: `COALESCE(..., {stand_in})`")),
        };
        diagnostic.refuse(self.cx)
    }

    // ---- faults ------------------------------------------------------------------------------------------------

    /// Reports an expression that must be a constant.
    pub(in crate::check) fn not_constant<T>(&mut self, span: Span, help: &str) -> Option<T> {
        self.cx.refuse(code::NOT_CONSTANT, "this must be a constant", span, "not a constant", help)
    }

    /// Reports an error with one label.
    pub(in crate::check) fn report_at<T>(
        &mut self,
        span: Span,
        code: Code,
        message: String,
        label: &str,
    ) -> Option<T> {
        Diagnostic::error(code, message).at(span, label).refuse(self.cx)
    }
}

/// Checks `a || b`.
fn joined_text(
    scope: &mut Scope<'_, '_>,
    both: [&ast::Expr; 2],
    want: Option<Type>,
    span: Span,
) -> Option<Expr> {
    let parts = scope.unify(&both, want)?;
    concat(scope, parts, span)
}

/// Checks `IS NULL`, `LIKE` and similar predicates.
fn predicate(scope: &mut Scope<'_, '_>, ast: &ast::Expr) -> Option<Expr> {
    let span = ast.span;
    match &ast.kind {
        Ast::IsNull { operand, negated } => {
            let operand = scope.expr(operand, Some(Type::Text(None)))?;
            let is_null = compound(ExprKind::IsNull(operand.into()), Type::Bool, span);
            scope.negated_if(*negated, Expr { nullable: false, ..is_null })
        }
        Ast::IsDistinct { left, right, negated } => {
            let [left, right] = scope.pair([left, right], None)?;
            let same = compound(ExprKind::SameAs(left.into(), right.into()), Type::Bool, span);
            scope.negated_if(!negated, Expr { nullable: false, ..same })
        }
        Ast::InNet { operand, net, negated } => {
            let operand = scope.typed(operand, Type::IpAddr);
            let net = scope.typed(net, Type::Cidr);
            let args = vec![operand?, net?];
            scope.negated_if(*negated, function(Function::InPrefix, args, Type::Bool, false, span))
        }
        Ast::Like { operand, pattern, negated } => {
            let operand = scope.typed(operand, Type::Text(None));
            let pattern = like_pattern(scope, pattern);
            let args = vec![operand?, pattern?];
            scope.negated_if(*negated, function(Function::Like, args, Type::Bool, false, span))
        }
        _ => unreachable!("the walk checks every other kind"),
    }
}

/// The pattern of LIKE. Its length is limited, so that peers cannot choose the cost of a match.
fn like_pattern(scope: &mut Scope<'_, '_>, ast: &ast::Expr) -> Option<Expr> {
    let pattern = scope.typed(ast, Type::Text(None))?;
    let is_constant = matches!(pattern.kind, ExprKind::Const(_) | ExprKind::Param(_));
    let column = if let ExprKind::Widen(column) = &pattern.kind { column } else { &pattern };
    let is_short = matches!(column.ty, Type::Text(Some(n)) if n <= LIKE_BYTES_MAX);
    if is_constant || is_short {
        return Some(pattern);
    }
    let message = format!("a LIKE pattern has at most {LIKE_BYTES_MAX} bytes");
    Diagnostic::error(code::LENGTH_NEEDED, message)
        .at(ast.span, format!("this is {}", pattern.ty))
        .with_help("use a literal, a parameter, or a table column of at most that length")
        .refuse(scope.cx)
}

/// Checks `CAST(e AS type)`.
fn explicit_cast(
    scope: &mut Scope<'_, '_>,
    operand: &ast::Expr,
    ty: &ast::TypeExpr,
    span: Span,
) -> Option<Expr> {
    let to = scope.cx.type_expr(ty)?;
    let operand = scope.expr(operand, Some(to))?;
    cast(scope, operand, to, span)
}

/// The hash of a value; 0 for NULL.
pub(in crate::check) fn hash_or_zero(value: Expr) -> Expr {
    let (span, ty) = (value.span, Type::Uint(64));
    let hash = function(Function::Hash, vec![value], ty, false, span);
    if !hash.nullable {
        return hash;
    }
    let zero = leaf(ExprKind::Const(Value::Int(0)), ty, false, span);
    Expr { nullable: false, ..function(Function::Coalesce, vec![hash, zero], ty, false, span) }
}

/// Reports an expression of the wrong type, with a conversion if there is one.
fn mismatch<T>(scope: &mut Scope<'_, '_>, expr: &Expr, ty: Type) -> Option<T> {
    let text = scope.cx.sources.slice(expr.span).to_owned();
    let shown = if text.len() <= 40 { text.as_str() } else { "..." };
    let message = format!("expected {}, found {}", article(ty), article(expr.ty));
    let mut diagnostic =
        Diagnostic::error(code::TYPE_MISMATCH, message).at(expr.span, format!("{}", expr.ty));
    if let Some(conversion) = conversion(shown, expr.ty, ty) {
        diagnostic = diagnostic.with_help(format!("write `{conversion}`"));
    }
    diagnostic.refuse(scope.cx)
}

/// The conversion of a text of one type to another, if there is one.
fn conversion(text: &str, from: Type, to: Type) -> Option<String> {
    let is_literal = text.parse::<f64>().is_ok();
    match to {
        Type::F64 if types::is_number(from) => Some(format!("float({text})")),
        Type::F64 if from == Type::Interval => Some(format!("seconds({text})")),
        // The unit of a plain number would be ambiguous.
        Type::Interval if is_literal => Some(format!("'{text} ms'` or `'{text} s'")),
        Type::Interval if types::is_number(from) => Some(format!("interval(float({text}))")),
        Type::Text(_) if can_cast(from, to) => Some(format!("text({text})")),
        Type::Bool if text == "0" => Some("FALSE".to_owned()),
        Type::Bool if text == "1" => Some("TRUE".to_owned()),
        Type::Bool if types::is_number(from) => Some(format!("{text} <> 0")),
        _ if can_cast(from, to) => Some(format!("CAST({text} AS {to})")),
        _ => None,
    }
}

// ---- literals ----------------------------------------------------------------------------------------------

/// Types a text literal: reads it as the wanted type, such as an INTERVAL or an address.
fn text_literal(scope: &mut Scope<'_, '_>, text: &str, want: Option<Type>, span: Span) -> Option<Expr> {
    let ty = types::without_length(want.unwrap_or(Type::Text(None)));
    match types::read_text(text, ty) {
        Ok(value) => {
            if ty == Type::Cidr
                && let Some(network) = types::network_of(text)
            {
                let message = format!("`{text}` is not a network: host bits are set");
                let diagnostic = Diagnostic::warning(code::HOST_BITS, message)
                    .at(span, format!("read as '{network}'"))
                    .with_help(format!("write '{network}', or the full length for a single address"))
                    .with_fix(span, format!("'{network}'"));
                scope.cx.report(diagnostic);
            }
            Some(constant(value, ty, span))
        }
        Err(expected) => {
            let message = format!("`{text}` is not {}", article(ty));
            let diagnostic = Diagnostic::error(code::BAD_LITERAL, message).at(span, format!("expected {ty}"));
            let is_network = ty == Type::IpAddr && types::read_text(text, Type::Cidr).is_ok();
            let help = if is_network {
                format!(
                    "test for a network with IN: `ip.src IN '{text}'`, or `IN ('{text}', '192.0.2.1/32')`"
                )
            } else {
                expected
            };
            diagnostic.with_help(help).refuse(scope.cx)
        }
    }
}

/// Types NULL, which needs a wanted type.
fn null(scope: &mut Scope<'_, '_>, want: Option<Type>, span: Span) -> Option<Expr> {
    let Some(ty) = want else {
        let message = "the type of this NULL is unknown";
        let help = "write `CAST(NULL AS TEXT)`, or give the LET a type: `LET x TEXT? = NULL`";
        return scope.cx.refuse(code::TYPE_MISMATCH, message, span, "NULL of which type?", help);
    };
    Some(leaf(ExprKind::Const(Value::Null), ty, true, span))
}

/// Builds `-a`.
fn negative(scope: &mut Scope<'_, '_>, operand: Expr, span: Span) -> Option<Expr> {
    if let ExprKind::Const(Value::Float(x)) = operand.kind {
        return Some(constant(Value::Float(-x), Type::F64, span));
    }
    if !matches!(operand.ty, Type::Int(_) | Type::F64 | Type::Interval) {
        let message =
            format!("`-` takes a signed number or an INTERVAL, but this is {}", article(operand.ty));
        return scope.report_at(operand.span, code::TYPE_MISMATCH, message, &operand.ty.to_string());
    }
    let ty = operand.ty;
    let negative = compound(ExprKind::Neg(operand.into()), ty, span);
    Some(Expr { fallible: negative.fallible || ty != Type::F64, ..negative })
}

/// The lower-case name of a header or trailer key; reports an invalid one.
pub(in crate::check) fn header_name(scope: &mut Scope<'_, '_>, key: &ast::Expr) -> Option<String> {
    let Ast::Str(text) = &key.kind else {
        return scope.not_constant(key.span, "write a header's name as a literal text: `header['x-user']`");
    };
    header::name(scope.cx, text, key.span)
}

/// Checks `header['name']` or `trailer['name']`, where the handler may read it.
fn header(scope: &mut Scope<'_, '_>, key: &ast::Expr, is_trailer: bool, span: Span) -> Option<Expr> {
    if scope.view == View::StatusCondition {
        return not_in_status_condition(
            scope.cx,
            scope.element,
            if is_trailer { "a trailer" } else { "a header" },
            span,
        );
    }
    if scope.is_packet() {
        let message = format!("headers are not available in {}", scope.words());
        let help = "use a protocol's field: `tcp.dst_port`";
        return scope.cx.refuse(code::NAME_NOT_HERE, message, span, "frames have no named headers", help);
    }
    let name = header_name(scope, key)?;
    let is_close = scope.view == View::Handler(HandlerKind::Close);
    if is_trailer && !is_close {
        let message = format!("trailers are not available in {}", scope.words());
        let help = "read it in ON CLOSE";
        return scope.cx.refuse(code::NAME_NOT_HERE, message, span, "arrives at the end of the call", help);
    }
    if !is_trailer && !scope.view.has_headers() {
        let message = format!("headers are not available in {}", scope.words());
        let help = "save the value in a CALL column in ON OPEN or ON REQUEST";
        return scope.cx.refuse(code::NAME_NOT_HERE, message, span, "no message here", help);
    }
    let kind = if is_trailer { ExprKind::Trailer(name) } else { ExprKind::Header(name) };
    Some(leaf(kind, Type::Text(None), true, span))
}

// ---- operators ---------------------------------------------------------------------------------------------

/// Checks `a & b` of integers of one type.
fn common_bits(
    scope: &mut Scope<'_, '_>,
    op_span: Span,
    sides: [&ast::Expr; 2],
    want: Option<Type>,
    span: Span,
) -> Option<Expr> {
    let want = want.filter(|ty| types::is_integer(*ty));
    let [left, right] = scope.pair(sides, want)?;
    let ty = left.ty;
    if !types::is_integer(ty) {
        let message = format!("`&` does not take {} and {}", article(ty), article(right.ty));
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
            .at(op_span, "takes two integers")
            .with_label(left.span, ty.to_string())
            .with_label(right.span, right.ty.to_string());
        scope.cx.report(match ty {
            Type::Bool => diagnostic.with_help("join conditions with AND"),
            Type::Text(_) => diagnostic.with_help("join texts with `||`"),
            _ => diagnostic,
        });
        return None;
    }
    Some(function(Function::BitAnd, vec![left, right], ty, false, span))
}

/// Warns of an unsigned difference compared with 0: it is never negative, but fails instead.
fn warn_of_difference(scope: &mut Scope<'_, '_>, op: CompareOp, difference: &Expr, other: &Expr) {
    let ExprKind::Arith { op: ArithOp::Sub, left, right } = &difference.kind else { return };
    let is_below = match (op, constant_integer(other)) {
        (CompareOp::Lt, Some(n)) => n <= 0,
        (CompareOp::Le, Some(n)) => n < 0,
        _ => false,
    };
    if !is_below || difference.ty.is_signed() || !types::is_integer(difference.ty) {
        return;
    }
    let (a, b) = (scope.cx.sources.slice(left.span), scope.cx.sources.slice(right.span));
    let help = format!("compare the two: `{a} < {b}`");
    let diagnostic = Diagnostic::warning(code::NEVER_TRUE, "an unsigned difference is never below 0")
        .at(difference.span, format!("type {}; a negative result is an error", difference.ty))
        .with_help(help);
    scope.cx.report(diagnostic);
}

/// Builds a concatenation of texts or bytes, with nested ones flattened.
fn concat(scope: &mut Scope<'_, '_>, parts: Vec<Expr>, span: Span) -> Option<Expr> {
    if let Some(wrong) = parts.iter().find(|part| !matches!(part.ty, Type::Text(_) | Type::Bytes(_))) {
        let wrong = wrong.clone();
        return mismatch(scope, &wrong, Type::Text(None));
    }
    let ty = types::without_length(parts[0].ty);
    let mut flat = Vec::new();
    for part in parts {
        match part.kind {
            ExprKind::Concat(inner) => flat.extend(inner),
            _ => flat.push(part),
        }
    }
    Some(Expr { fallible: true, ..compound(ExprKind::Concat(flat), ty, span) })
}

/// Builds an arithmetic operation on operands of fitting types.
fn arith(
    scope: &mut Scope<'_, '_>,
    op: ArithOp,
    op_span: Span,
    mut left: Expr,
    mut right: Expr,
    span: Span,
) -> Option<Expr> {
    if right.ty == Type::Interval && op == ArithOp::Mul && types::is_number(left.ty) {
        std::mem::swap(&mut left, &mut right);
    }
    let Some((ty, left_ty, right_ty)) = arith_types(op, left.ty, right.ty) else {
        return no_arith(scope, op, op_span, &left, &right);
    };
    let (left, right) = (scope.coerce(left, left_ty)?, scope.coerce(right, right_ty)?);
    let computed = compound(ExprKind::Arith { op, left: left.into(), right: right.into() }, ty, span);
    Some(Expr { fallible: computed.fallible || ty != Type::F64, ..computed })
}

/// Reports operands that an operator does not take, with a hint.
fn no_arith<T>(
    scope: &mut Scope<'_, '_>,
    op: ArithOp,
    op_span: Span,
    left: &Expr,
    right: &Expr,
) -> Option<T> {
    let sign = match op {
        ArithOp::Add => "+",
        ArithOp::Sub => "-",
        ArithOp::Mul => "*",
        ArithOp::Div => "/",
        ArithOp::Rem => "%",
    };
    let message = format!("`{sign}` does not take {} and {}", article(left.ty), article(right.ty));
    let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
        .at(op_span, "invalid operation")
        .with_label(left.span, left.ty.to_string())
        .with_label(right.span, right.ty.to_string());
    let is_text = |ty: Type| matches!(ty, Type::Text(_));
    let diagnostic = match (left.ty, right.ty) {
        (a, b) if types::is_number(a) && types::is_number(b) => {
            let (whole, text) = if a == Type::F64 { (b, right) } else { (a, left) };
            let text = scope.cx.sources.slice(text.span);
            match (a, b) {
                (Type::F64, Type::F64) => diagnostic.with_help("`%` is for integers and intervals"),
                (Type::F64, _) | (_, Type::F64) => diagnostic
                    .with_note(format!("{whole} and F64 cannot be mixed without a conversion"))
                    .with_help(format!("write `float({text})`")),
                _ => diagnostic.with_help(format!("write `int({text})`")),
            }
        }
        (a, b) if op == ArithOp::Add && (is_text(a) || is_text(b)) => {
            diagnostic.with_help("join texts with `||`")
        }
        _ => diagnostic,
    };
    diagnostic.refuse(scope.cx)
}

/// Checks an explicit conversion.
pub(in crate::check) fn cast(scope: &mut Scope<'_, '_>, operand: Expr, to: Type, span: Span) -> Option<Expr> {
    if matches!(operand.kind, ExprKind::Const(Value::Null)) {
        return Some(leaf(ExprKind::Const(Value::Null), to, true, span));
    }
    if operand.ty == to {
        return Some(Expr { span, ..operand });
    }
    if types::widens(operand.ty, to) && to == types::without_length(to) {
        return Some(compound(ExprKind::Widen(operand.into()), to, span));
    }
    if !can_cast(operand.ty, to) {
        let message = format!("{} cannot be converted to {to}", article(operand.ty));
        let mut diagnostic =
            Diagnostic::error(code::TYPE_MISMATCH, message).at(operand.span, operand.ty.to_string());
        if operand.ty == Type::Interval {
            diagnostic = diagnostic.with_help("convert it to a number first: `seconds(...)`, `millis(...)`");
        } else if to == Type::Interval {
            diagnostic = diagnostic.with_help("write `interval(seconds)`");
        }
        return diagnostic.refuse(scope.cx);
    }
    Some(Expr { fallible: true, ..compound(ExprKind::Cast(operand.into()), to, span) })
}

// ---- functions ---------------------------------------------------------------------------------------------

/// Checks a function call: `count(table)`, `present`, `session_key`, a native function, or a function of the
/// language.
fn function_call(scope: &mut Scope<'_, '_>, call: Call<'_>, want: Option<Type>) -> Option<Expr> {
    let Call { function: name, args, star, span } = call;
    let lower = name.name.to_ascii_lowercase();
    if lower == "count"
        && let [ast::Expr { kind: Ast::Path(path), .. }] = args
        && let Some(table) = path.as_ident()
    {
        let table = scope.table_ref(table)?;
        return Some(leaf(ExprKind::CountRows(table), Type::Int(64), false, span));
    }
    if let Some(found) =
        frame::present(scope, &lower, args, span).or_else(|| frame::session_key(scope, &lower, args, span))
    {
        return found;
    }
    if star.is_none()
        && let Some(called) = native::native_call(scope, name, args, span)
    {
        return called;
    }
    if is_drawn(scope, &lower) {
        return scope.not_constant(span, "it changes from call to call");
    }
    if scope.bound.is_some() && matches!(lower.as_str(), "now" | "rand") {
        return binding::draws(scope, &lower, span);
    }
    if star.is_some()
        && let Some(signature) = functions::find(&lower)
    {
        return bad_arguments(scope, signature, call, "`*` is for count(*) over a SCAN");
    }
    super::call(scope, call, want)
}

/// Whether a function is rejected here because it returns a new value on each call.
fn is_drawn(scope: &Scope<'_, '_>, function: &str) -> bool {
    match function {
        "now" => scope.cx.now.is_none() && matches!(scope.view, View::Constant | View::Route),
        "rand" => matches!(scope.view, View::Constant | View::Row | View::Route),
        _ => false,
    }
}

// ---- pieces ----------------------------------------------------------------------------------------------------

/// A constant.
pub(in crate::check) fn constant(value: Value, ty: Type, span: Span) -> Expr {
    leaf(ExprKind::Const(value), ty, false, span)
}

/// An operation: it is NULL if an operand is, and may be an error if an operand may be one.
pub(in crate::check) fn compound(kind: ExprKind, ty: Type, span: Span) -> Expr {
    let built = leaf(kind, ty, false, span);
    let parts = built.children();
    let (nullable, fallible) =
        (parts.iter().any(|part| part.nullable), parts.iter().any(|part| part.fallible));
    Expr { nullable, fallible, ..built }
}

/// `a AND b`.
pub(in crate::check) fn and(left: Expr, right: Expr) -> Expr {
    let span = left.span;
    compound(ExprKind::And(left.into(), right.into()), Type::Bool, span)
}

/// The call of a function that is NULL if an argument is.
pub(in crate::check) fn function(
    function: Function,
    args: Vec<Expr>,
    ty: Type,
    fallible: bool,
    span: Span,
) -> Expr {
    let call = compound(ExprKind::Function { function, args }, ty, span);
    Expr { fallible: fallible || call.fallible, ..call }
}

/// Builds a CASE. Without ELSE, it is NULL if no arm applies.
fn case(operand: Option<Expr>, arms: Vec<(Expr, Expr)>, otherwise: Option<Expr>, span: Span) -> Expr {
    let ty = arms[0].1.ty;
    let otherwise = otherwise.unwrap_or_else(|| leaf(ExprKind::Const(Value::Null), ty, true, span));
    let nullable = arms.iter().any(|(_, then)| then.nullable) || otherwise.nullable;
    let kind = ExprKind::Case { operand: operand.map(Box::new), arms, otherwise: otherwise.into() };
    Expr { nullable, ..compound(kind, ty, span) }
}

/// Computes a constant integer expression.
pub(in crate::check) fn constant_integer(expr: &Expr) -> Option<i128> {
    match expr.kind {
        ExprKind::Const(Value::Int(n)) if types::is_integer(expr.ty) => {
            Some(if expr.ty.is_signed() { i128::from(n) } else { i128::from(n as u64) })
        }
        _ => None,
    }
}

/// Returns the result type and both operand types of an arithmetic operation.
fn arith_types(op: ArithOp, left: Type, right: Type) -> Option<(Type, Type, Type)> {
    use ArithOp as A;
    use Type as T;
    let factor = |ty: Type| match ty {
        T::F64 => Some(T::F64),
        ty if types::widens(ty, T::Int(64)) => Some(T::Int(64)),
        _ => None,
    };
    match (op, left, right) {
        (A::Sub, T::Timestamp, T::Timestamp) => Some((T::Interval, left, right)),
        (A::Add | A::Sub, T::Timestamp, T::Interval) => Some((T::Timestamp, left, right)),
        (A::Add | A::Sub | A::Rem, T::Interval, T::Interval) => Some((T::Interval, left, right)),
        (A::Div, T::Interval, T::Interval) => Some((T::F64, left, right)),
        (A::Mul | A::Div, T::Interval, right) => Some((T::Interval, T::Interval, factor(right)?)),
        (A::Rem, T::F64, T::F64) => None,
        _ if types::is_number(left) && types::is_number(right) => {
            types::common(left, right).map(|ty| (ty, ty, ty))
        }
        _ => None,
    }
}

/// Whether CAST can convert one type to the other.
fn can_cast(from: Type, to: Type) -> bool {
    let is_text = |ty: Type| matches!(ty, Type::Text(_));
    match (from, to) {
        _ if types::is_same(from, to) => true,
        (from, to) if types::is_number(from) && types::is_number(to) => true,
        (Type::Bool | Type::Status, to) if types::is_integer(to) => true,
        (from, Type::Status) => types::is_integer(from),
        (from, to) if is_text(from) && types::is_number(to) => true,
        (from, Type::Endpoint | Type::Bytes(_)) => is_text(from),
        (Type::Bool | Type::Status | Type::Endpoint, to) => is_text(to),
        (from, to) => types::is_number(from) && is_text(to),
    }
}
