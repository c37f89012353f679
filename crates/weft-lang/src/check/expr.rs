//! Checks expressions: one walk over the syntax tree for every place that has expressions.
//!
//! An [`Environment`] is such a place: an element, a queue, a header of a protocol. It gives the meaning of names,
//! literals and functions, has the types, and builds the typed tree. The walk has the rules that all places share.
//!
//! Every function returns None for an expression with an error, which is reported at once; callers stay silent then.
//! Literals take the type of their context (`want`), if possible.

mod call;
mod element;

use std::fmt::Display;

use super::all;
use super::functions::{Class, Signature};
use crate::ast::{BinaryOp, CaseArm, Expr, ExprKind as Ast, Ident, Path, UnaryOp};
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{ArithOp, CompareOp};
use crate::source::Span;
use weft_core::Type;

pub(super) use call::{bad_arguments, call, n_given, wrong_arguments};
pub(super) use element::{and, compound, constant, constant_integer, function, hash_or_zero, header_name};

/// A function call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) function: &'a Ident,
    pub(super) args: &'a [Expr],
    /// `*` is written instead of arguments.
    pub(super) star: Option<Span>,
    pub(super) span: Span,
}

/// The operands of a binary operation, and its source.
#[derive(Clone, Copy)]
pub(super) struct Operands<'a> {
    pub(super) both: [&'a Expr; 2],
    op_span: Span,
    pub(super) span: Span,
}

/// An operation on checked operands. Compared operands have a common type.
pub(super) enum Node<V> {
    Not(V),
    Negative(V),
    And(V, V),
    Or(V, V),
    Compare(CompareOp, V, V),
    Arith(ArithOp, Span, V, V),
    In(V, Vec<V>),
    /// The operand, the lower and the upper bound.
    Between(V, V, V),
    Case {
        /// The value that is compared with each `WHEN`; None if these are conditions.
        operand: Option<V>,
        arms: Vec<(V, V)>,
        otherwise: Option<V>,
    },
}

/// A compared operand, as written and as checked.
pub(super) type Side<'a, V> = (&'a Expr, &'a V);

/// A place with expressions: its names, literals, functions and types, and the tree that it builds.
pub(super) trait Environment: Sized {
    /// A type. Types of the language that the place does not have become another one.
    type Ty: Copy + Display + From<Type>;
    /// A checked expression.
    type Value: Clone;

    /// The place has texts of many types, and NULL: these literals take the type of the other operand.
    const HAS_TEXT: bool = false;
    /// The codes for wrong arguments of a function, and for an unknown function.
    const CALL_CODES: (Code, Code) = (code::BAD_ARGUMENTS, code::UNKNOWN_FUNCTION);

    /// Records a diagnostic.
    fn report(&mut self, diagnostic: Diagnostic);
    /// Reports an expression that the place does not have.
    fn unfit(&mut self, span: Span) -> Option<Self::Value>;

    /// Checks an integer literal with its sign. It takes the wanted type if it can.
    fn integer(&mut self, n: i128, want: Option<Self::Ty>, span: Span) -> Option<Self::Value>;
    /// Resolves a name.
    fn path(&mut self, path: &Path, span: Span) -> Option<Self::Value>;
    /// Checks a function call.
    fn call(&mut self, called: Call<'_>, want: Option<Self::Ty>) -> Option<Self::Value> {
        if called.star.is_some() { self.unfit(called.span) } else { call(self, called, want) }
    }
    /// Checks another literal, and expressions of kinds that the walk does not know.
    fn other(&mut self, ast: &Expr, want: Option<Self::Ty>) -> Option<Self::Value>;
    /// Checks `a IN (...)` for a list of networks; None for other lists.
    fn in_networks(&mut self, _operand: &Expr, _list: &[Expr], _span: Span) -> Option<Option<Self::Value>> {
        None
    }
    /// Builds an operation, or reports operands of a wrong type.
    fn build(&mut self, node: Node<Self::Value>, span: Span) -> Option<Self::Value>;

    /// The type of a value.
    fn ty(value: &Self::Value) -> Self::Ty;
    /// The source of a value.
    fn span(value: &Self::Value) -> Span;
    /// Whether a type is in a class.
    fn is(ty: Self::Ty, class: Class) -> bool;
    /// The type of both values next to each other, if there is one.
    fn common(a: Self::Ty, b: Self::Ty) -> Option<Self::Ty>;
    /// Converts a value to a wider type, or reports a type mismatch.
    fn coerce(&mut self, value: Self::Value, ty: Self::Ty) -> Option<Self::Value>;
    /// Reports two values without a common type; the first determines it.
    fn no_common(&mut self, first: &Self::Value, second: &Self::Value);
    /// The type of a literal next to an operand of type `known`.
    fn literal_type(op: ArithOp, known: Self::Ty, literal: &Expr) -> Option<Self::Ty>;
    /// The type that an arithmetic operation wants of its literals.
    fn operand_type(_op: ArithOp, want: Option<Self::Ty>) -> Option<Self::Ty> {
        want
    }
    /// Warns of a comparison that is never true.
    fn warn_of_comparison(&mut self, op: CompareOp, sides: [Side<'_, Self::Value>; 2]);
    /// Warns of a BETWEEN whose lower bound is greater than the upper one.
    fn warn_of_bounds(&mut self, _low: &Self::Value, _high: &Self::Value) {}

    /// Whether the place has a function of the table.
    fn has(signature: &Signature) -> bool;
    /// Builds a call with checked arguments, and a result of type `ty`. Words are not among the arguments.
    fn function(
        &mut self,
        signature: &Signature,
        called: Call<'_>,
        args: Vec<Self::Value>,
        ty: Self::Ty,
    ) -> Option<Self::Value>;
    /// Reports an unknown function.
    fn unknown_function(&mut self, name: &Ident) -> Option<Self::Value> {
        call::unknown_function(self, name)
    }

    // ---- the walk ----------------------------------------------------------------------------------------------

    /// Checks an expression and returns its typed form. Its type is its own; `want` is a hint for literals.
    ///
    /// It only dispatches: trees are up to [`weft_core::limits::EXPR_HEIGHT_MAX`] high, so recursive functions need
    /// small stack frames.
    fn expr(&mut self, ast: &Expr, want: Option<Self::Ty>) -> Option<Self::Value> {
        let span = ast.span;
        match &ast.kind {
            Ast::Int(n) => self.integer(i128::from(*n), want, span),
            Ast::Path(path) => self.path(path, span),
            Ast::Call { function, args, star } => self.call(Call { function, args, star: *star, span }, want),
            Ast::Unary { op: UnaryOp::Not, operand } => self.logical_not(operand, span),
            Ast::Unary { op: UnaryOp::Neg, operand } => self.negation(operand, want, span),
            Ast::Binary { op, op_span, left, right } => {
                let operands = Operands { both: [left, right], op_span: *op_span, span };
                match Operator::of(*op) {
                    Some(Operator::Logic { is_and }) => self.logic(is_and, operands),
                    Some(Operator::Compare(op)) => self.comparison(op, operands),
                    Some(Operator::Arith(op)) => self.arithmetic(op, operands, want),
                    None => self.other(ast, want),
                }
            }
            Ast::InList { operand, list, negated } => self.in_list(operand, list, *negated, span),
            Ast::Between { operand, low, high, negated } => {
                self.between([operand, low, high], *negated, span)
            }
            Ast::Case { operand, arms, otherwise } => {
                self.case((operand.as_deref(), arms, otherwise.as_deref()), want, span)
            }
            _ => self.other(ast, want),
        }
    }

    /// An expression as a value of type `ty`.
    fn typed(&mut self, ast: &Expr, ty: Self::Ty) -> Option<Self::Value> {
        let value = self.expr(ast, Some(ty))?;
        self.coerce(value, ty)
    }

    /// An expression as a BOOL.
    fn condition(&mut self, ast: &Expr) -> Option<Self::Value> {
        self.typed(ast, Type::Bool.into())
    }

    /// Checks a condition that may be left out.
    fn condition_if(&mut self, ast: Option<&Expr>) -> Option<Option<Self::Value>> {
        ast.map_or(Some(None), |ast| self.condition(ast).map(Some))
    }

    /// Checks two expressions as values of one type.
    fn pair(&mut self, asts: [&Expr; 2], want: Option<Self::Ty>) -> Option<[Self::Value; 2]> {
        self.unify(&asts, want)?.try_into().ok()
    }

    /// Checks several expressions as values of one type: the expressions that are not literals determine it.
    fn unify(&mut self, asts: &[&Expr], want: Option<Self::Ty>) -> Option<Vec<Self::Value>> {
        let mut typed: Vec<Option<Self::Value>> = vec![None; asts.len()];
        let mut ty: Option<Self::Ty> = None;
        let mut first = 0;
        let mut ok = true;
        let order = |pass: u8| {
            let is_in = move |ast: &Expr| match (&ast.kind, Self::adapts(ast)) {
                (Ast::Null, _) => pass == 3,
                // `1` next to `2.5` is an F64, in any order.
                (_, true) => pass == if is_decimal(ast) { 1 } else { 2 },
                _ => pass == 0,
            };
            asts.iter().enumerate().filter(move |(_, ast)| is_in(ast))
        };
        for (index, ast) in (0..4).flat_map(order) {
            let Some(value) = self.expr(ast, ty.or(want)) else {
                ok = false;
                continue;
            };
            let own = Self::ty(&value);
            match ty.map_or(Some(own), |ty| Self::common(ty, own)) {
                Some(common) => {
                    if ty.is_none() {
                        first = index;
                    }
                    ty = Some(common);
                }
                None => {
                    if let Some(other) = typed[first].clone() {
                        self.no_common(&other, &value);
                    }
                    ok = false;
                }
            }
            typed[index] = Some(value);
        }
        if !ok {
            return None;
        }
        let ty = ty?;
        typed.into_iter().map(|value| self.coerce(value?, ty)).collect()
    }

    /// Whether an expression consists of literals, and so takes the type of the other operand.
    fn adapts(ast: &Expr) -> bool {
        match &ast.kind {
            Ast::Int(_) | Ast::Float(_) => true,
            Ast::Str(_) | Ast::Null => Self::HAS_TEXT,
            Ast::Unary { op: UnaryOp::Neg, operand } => Self::adapts(operand),
            Ast::Binary { op, left, right, .. } => {
                matches!(Operator::of(*op), Some(Operator::Arith(_)))
                    && Self::adapts(left)
                    && Self::adapts(right)
            }
            _ => false,
        }
    }

    /// The value, or its NOT.
    fn negated_if(&mut self, negated: bool, value: Self::Value) -> Option<Self::Value> {
        let span = Self::span(&value);
        if negated { self.build(Node::Not(value), span) } else { Some(value) }
    }

    // ---- operators ---------------------------------------------------------------------------------------------

    /// Checks `NOT a`.
    fn logical_not(&mut self, operand: &Expr, span: Span) -> Option<Self::Value> {
        let operand = self.condition(operand)?;
        self.build(Node::Not(operand), span)
    }

    /// Checks `-a`. A negated literal becomes one constant.
    fn negation(&mut self, operand: &Expr, want: Option<Self::Ty>, span: Span) -> Option<Self::Value> {
        if let Ast::Int(n) = operand.kind {
            return self.integer(-i128::from(n), want, span);
        }
        let operand = self.expr(operand, want)?;
        self.build(Node::Negative(operand), span)
    }

    /// Checks AND or OR of two conditions.
    fn logic(&mut self, is_and: bool, operands: Operands<'_>) -> Option<Self::Value> {
        let [left, right] = operands.both.map(|operand| self.condition(operand));
        let (left, right) = (left?, right?);
        self.build(if is_and { Node::And(left, right) } else { Node::Or(left, right) }, operands.span)
    }

    /// Checks an arithmetic operation. A literal adapts to the type of the other operand.
    fn arithmetic(
        &mut self,
        op: ArithOp,
        Operands { both: [left, right], op_span, span }: Operands<'_>,
        want: Option<Self::Ty>,
    ) -> Option<Self::Value> {
        let want = Self::operand_type(op, want);
        let hint = |known: &Option<Self::Value>, literal| {
            known.as_ref().and_then(|known| Self::literal_type(op, Self::ty(known), literal))
        };
        let (left, right) = match (Self::adapts(left), !Self::adapts(right) || is_decimal(right)) {
            (true, true) => {
                let right = self.expr(right, want.filter(|_| Self::adapts(right)));
                (self.expr(left, hint(&right, left)), right)
            }
            (is_literal, _) => {
                let left = self.expr(left, want.filter(|_| is_literal));
                let hint = hint(&left, right);
                (left, self.expr(right, hint))
            }
        };
        self.build(Node::Arith(op, op_span, left?, right?), span)
    }

    /// Checks a comparison of two values of a common type. Warns if it is never true.
    fn comparison(&mut self, op: CompareOp, operands: Operands<'_>) -> Option<Self::Value> {
        if Self::HAS_TEXT && operands.both.iter().any(|side| matches!(side.kind, Ast::Null)) {
            let not = if op == CompareOp::Ne { "NOT " } else { "" };
            let diagnostic = Diagnostic::error(code::NEVER_TRUE, "a comparison with NULL is never true")
                .at(operands.span, "always unknown")
                .with_help(format!("write `IS {not}NULL`"));
            self.report(diagnostic);
            return None;
        }
        let [left, right] = self.pair(operands.both, None)?;
        let [a, b] = operands.both;
        self.warn_of_comparison(op, [(a, &left), (b, &right)]);
        if !matches!(op, CompareOp::Eq | CompareOp::Ne) && !Self::is(Self::ty(&left), Class::Ordered) {
            let message = format!("values of type {} have no order", Self::ty(&left));
            let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
                .at(operands.op_span, "cannot be compared like this")
                .with_help("compare with = or <>, or use IN (...)");
            self.report(diagnostic);
            return None;
        }
        self.build(Node::Compare(op, left, right), operands.span)
    }

    /// Reports a value whose type has no order.
    fn check_ordered(&mut self, value: &Self::Value) -> Option<()> {
        let ty = Self::ty(value);
        if Self::is(ty, Class::Ordered) {
            return Some(());
        }
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, format!("values of type {ty} have no order"));
        self.report(diagnostic.at(Self::span(value), "has no order"));
        None
    }

    /// Checks `a IN (b, c)`.
    fn in_list(&mut self, operand: &Expr, list: &[Expr], negated: bool, span: Span) -> Option<Self::Value> {
        if let Some(found) = self.in_networks(operand, list, span) {
            return self.negated_if(negated, found?);
        }
        let asts: Vec<&Expr> = std::iter::once(operand).chain(list).collect();
        let mut all = self.unify(&asts, None)?;
        let op = if negated { CompareOp::Ne } else { CompareOp::Eq };
        for (ast, item) in asts.iter().zip(&all).skip(1) {
            self.warn_of_comparison(op, [(operand, &all[0]), (ast, item)]);
        }
        let operand = all.remove(0);
        let found = self.build(Node::In(operand, all), span)?;
        self.negated_if(negated, found)
    }

    /// Checks `a BETWEEN b AND c`.
    fn between(&mut self, asts: [&Expr; 3], negated: bool, span: Span) -> Option<Self::Value> {
        let [operand, low, high] = <[_; 3]>::try_from(self.unify(&asts, None)?).ok()?;
        self.check_ordered(&operand)?;
        if !negated {
            self.warn_of_comparison(CompareOp::Ge, [(asts[0], &operand), (asts[1], &low)]);
            self.warn_of_comparison(CompareOp::Le, [(asts[0], &operand), (asts[2], &high)]);
            self.warn_of_bounds(&low, &high);
        }
        let found = self.build(Node::Between(operand, low, high), span)?;
        self.negated_if(negated, found)
    }

    /// Checks a CASE, with or without an operand. All results have a common type.
    fn case(
        &mut self,
        (operand, arms, otherwise): (Option<&Expr>, &[CaseArm], Option<&Expr>),
        want: Option<Self::Ty>,
        span: Span,
    ) -> Option<Self::Value> {
        let (operand, whens) = match operand {
            Some(operand) => {
                let asts: Vec<&Expr> =
                    std::iter::once(operand).chain(arms.iter().map(|arm| &arm.when)).collect();
                let mut all = self.unify(&asts, None);
                for (all, at) in all.iter().flat_map(|all| (1..all.len()).map(move |at| (all, at))) {
                    self.warn_of_comparison(CompareOp::Eq, [(operand, &all[0]), (asts[at], &all[at])]);
                }
                (all.as_mut().map(|all| all.remove(0)), all)
            }
            None => (None, all(arms.iter().map(|arm| self.condition(&arm.when)))),
        };
        let results: Vec<&Expr> = arms.iter().map(|arm| &arm.then).chain(otherwise).collect();
        let results = self.unify(&results, want);
        let (whens, mut results): (Vec<_>, _) = (whens?, results?);
        let otherwise = otherwise.and_then(|_| results.pop());
        let arms = whens.into_iter().zip(results).collect();
        self.build(Node::Case { operand, arms, otherwise }, span)
    }
}

/// The operators that every place has.
enum Operator {
    Logic { is_and: bool },
    Compare(CompareOp),
    Arith(ArithOp),
}

impl Operator {
    fn of(op: BinaryOp) -> Option<Self> {
        Some(match op {
            BinaryOp::And => Self::Logic { is_and: true },
            BinaryOp::Or => Self::Logic { is_and: false },
            BinaryOp::Eq => Self::Compare(CompareOp::Eq),
            BinaryOp::Ne => Self::Compare(CompareOp::Ne),
            BinaryOp::Lt => Self::Compare(CompareOp::Lt),
            BinaryOp::Le => Self::Compare(CompareOp::Le),
            BinaryOp::Gt => Self::Compare(CompareOp::Gt),
            BinaryOp::Ge => Self::Compare(CompareOp::Ge),
            BinaryOp::Add => Self::Arith(ArithOp::Add),
            BinaryOp::Sub => Self::Arith(ArithOp::Sub),
            BinaryOp::Mul => Self::Arith(ArithOp::Mul),
            BinaryOp::Div => Self::Arith(ArithOp::Div),
            BinaryOp::Rem => Self::Arith(ArithOp::Rem),
            BinaryOp::Concat | BinaryOp::BitAnd => return None,
        })
    }
}

/// Whether one of the literals has a decimal point.
fn is_decimal(ast: &Expr) -> bool {
    match &ast.kind {
        Ast::Float(_) => true,
        Ast::Unary { operand, .. } => is_decimal(operand),
        Ast::Binary { left, right, .. } => is_decimal(left) || is_decimal(right),
        _ => false,
    }
}

/// Formats a type with its article, for messages.
pub(super) fn article(ty: impl Display) -> String {
    let text = ty.to_string();
    match text.split(['(', ' ']).next() {
        Some("TEXT" | "BYTES" | "a") => text,
        _ if text.starts_with(['I', 'E', 'F']) => format!("an {text}"),
        _ => format!("a {text}"),
    }
}

/// Returns the same comparison for swapped operands.
pub(super) fn mirrored(op: CompareOp) -> CompareOp {
    match op {
        CompareOp::Lt => CompareOp::Gt,
        CompareOp::Le => CompareOp::Ge,
        CompareOp::Gt => CompareOp::Lt,
        CompareOp::Ge => CompareOp::Le,
        op => op,
    }
}

/// Whether a comparison of a number in a range with another can be true.
pub(super) fn can_compare(op: CompareOp, other: i128, (least, most): (u64, u64)) -> bool {
    let (least, most) = (i128::from(least), i128::from(most));
    match op {
        CompareOp::Eq => (least..=most).contains(&other),
        CompareOp::Ne => least < most || other != most,
        CompareOp::Lt => other > least,
        CompareOp::Le => other >= least,
        CompareOp::Gt => other < most,
        CompareOp::Ge => other <= most,
    }
}

/// Joins values as a balanced tree: lists are long, but the height of trees is limited.
pub(super) fn in_pairs<V: Clone>(mut all: Vec<V>, join: impl Fn(V, V) -> V) -> Option<V> {
    while all.len() > 1 {
        let pairs = all.chunks(2).map(|pair| match pair {
            [left, right] => join(left.clone(), right.clone()),
            _ => pair[0].clone(),
        });
        all = pairs.collect();
    }
    all.pop()
}
