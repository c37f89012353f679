//! Checks expressions: one walk over the syntax tree for every place that has expressions.
//!
//! An [`Environment`] is such a place: an element, a queue, a header of a protocol. It gives the meaning of names,
//! literals and functions, has the types, and builds the typed tree. The walk has the rules that all places share.
//!
//! Every function returns None for an expression with an error, which is reported at once; callers stay silent then.
//! Literals take the type of their context (`want`), if possible.

mod call;
mod element;

use super::functions::{Class, Signature};
use crate::ast::{self, BinaryOp, ExprKind as Ast, Ident, Path, UnaryOp};
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{ArithOp, CompareOp};
use crate::source::Span;
use weft_core::Type;

pub(super) use call::{bad_arguments, call, unknown_function};
pub(super) use element::{and, article, compound, constant, constant_integer, function};

/// A literal, with its sign.
#[derive(Clone, Copy, Debug)]
pub(super) enum Literal<'a> {
    Int(i128),
    Float(f64),
    Text(&'a str),
    Bool(bool),
    Null,
}

/// A function call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call<'a> {
    pub(super) function: &'a Ident,
    pub(super) args: &'a [ast::Expr],
    /// `*` is written instead of arguments.
    pub(super) star: Option<Span>,
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
pub(super) type Side<'a, V> = (&'a ast::Expr, &'a V);

/// A place with expressions: its names, literals, functions and types, and the tree that it builds.
pub(super) trait Environment {
    /// A type.
    type Ty: Copy;
    /// A checked expression.
    type Value: Clone;
    /// What the call of a function becomes.
    type Function: Copy;

    /// The type of conditions.
    const BOOL: Self::Ty;
    /// Texts and NULL take the type of the other operand.
    const TEXT_ADAPTS: bool = false;
    /// The code for wrong arguments of a function.
    const BAD_ARGUMENTS: Code = code::BAD_ARGUMENTS;
    /// The code for an unknown function.
    const UNKNOWN_FUNCTION: Code = code::UNKNOWN_FUNCTION;

    /// Records a diagnostic.
    fn report(&mut self, diagnostic: Diagnostic);
    /// Checks a literal. It takes the wanted type if it can.
    fn literal(&mut self, literal: Literal<'_>, want: Option<Self::Ty>, span: Span) -> Option<Self::Value>;
    /// Resolves a name.
    fn path(&mut self, path: &Path, span: Span) -> Option<Self::Value>;
    /// Checks a function call.
    fn call(&mut self, call: Call<'_>, want: Option<Self::Ty>) -> Option<Self::Value>;
    /// Checks an expression of a kind that the walk does not know.
    fn other(&mut self, ast: &ast::Expr, want: Option<Self::Ty>) -> Option<Self::Value>;
    /// Builds an operation, or reports operands of a wrong type.
    fn build(&mut self, node: Node<Self::Value>, span: Span) -> Option<Self::Value>;

    /// The type of a value.
    fn ty(value: &Self::Value) -> Self::Ty;
    /// The source of a value.
    fn span(value: &Self::Value) -> Span;
    /// The type of both values next to each other, if there is one.
    fn common(a: Self::Ty, b: Self::Ty) -> Option<Self::Ty>;
    /// Converts a value to a wider type, or reports a type mismatch.
    fn coerce(&mut self, value: Self::Value, ty: Self::Ty) -> Option<Self::Value>;
    /// Reports two values without a common type; the first determines it.
    fn no_common(&mut self, first: &Self::Value, second: &Self::Value);
    /// The name of a type, for messages, if its values have no order.
    fn unordered(ty: Self::Ty) -> Option<String>;
    /// The type of a literal next to an operand of type `known`.
    fn literal_type(op: ArithOp, known: Self::Ty, literal: &ast::Expr) -> Option<Self::Ty>;
    /// The type that an arithmetic operation wants of its literals.
    fn operand_type(_op: ArithOp, want: Option<Self::Ty>) -> Option<Self::Ty> {
        want
    }
    /// Warns of a comparison that is never true.
    fn warn_of_comparison(
        &mut self,
        op: CompareOp,
        left: Side<'_, Self::Value>,
        right: Side<'_, Self::Value>,
    );
    /// Warns of a BETWEEN whose lower bound is greater than the upper one.
    fn warn_of_bounds(&mut self, _low: &Self::Value, _high: &Self::Value) {}

    // ---- functions ---------------------------------------------------------------------------------------------

    /// What a function of the table becomes; None if the place does not have it.
    fn has(signature: &Signature) -> Option<Self::Function>;
    /// The type that the table calls so.
    fn type_of(ty: Type) -> Self::Ty;
    /// Whether a type is in a class other than [`Class::Ordered`].
    fn is(ty: Self::Ty, class: Class) -> bool;
    /// The name of a type with its article.
    fn article(ty: Self::Ty) -> String;
    /// Converts a value by a function such as `float`.
    fn convert(&mut self, value: Self::Value, to: Type, span: Span) -> Option<Self::Value>;
    /// Builds a call with checked arguments. The type is that of the result, if the function takes values.
    fn function(
        &mut self,
        function: Self::Function,
        signature: &Signature,
        call: Call<'_>,
        args: Vec<Self::Value>,
        ty: Option<Self::Ty>,
    ) -> Option<Self::Value>;
    /// Reports an unknown function.
    fn unknown_function(&mut self, name: &Ident) -> Option<Self::Value>;

    // ---- the walk ----------------------------------------------------------------------------------------------

    /// Checks an expression and returns its typed form. Its type is its own; `want` is a hint for literals.
    ///
    /// It only dispatches: trees are up to [`weft_core::limits::EXPR_HEIGHT_MAX`] high, so recursive functions need
    /// small stack frames.
    fn expr(&mut self, ast: &ast::Expr, want: Option<Self::Ty>) -> Option<Self::Value> {
        let span = ast.span;
        match &ast.kind {
            Ast::Int(n) => self.literal(Literal::Int(i128::from(*n)), want, span),
            Ast::Float(x) => self.literal(Literal::Float(*x), want, span),
            Ast::Str(text) => self.literal(Literal::Text(text), want, span),
            Ast::Bool(value) => self.literal(Literal::Bool(*value), want, span),
            Ast::Null => self.literal(Literal::Null, want, span),
            Ast::Path(path) => self.path(path, span),
            Ast::Call { function, args, star } => self.call(Call { function, args, star: *star, span }, want),
            Ast::Unary { op: UnaryOp::Not, operand } => self.logical_not(operand, span),
            Ast::Unary { op: UnaryOp::Neg, operand } => self.negation(operand, want, span),
            Ast::Binary { op, op_span, left, right } => self.binary(*op, *op_span, (left, right), want, ast),
            Ast::InList { operand, list, negated } => self.in_list(operand, list, *negated, span),
            Ast::Between { operand, low, high, negated } => {
                self.between([operand, low, high], *negated, span)
            }
            Ast::Case { operand, arms, otherwise } => {
                self.case(operand.as_deref(), arms, otherwise.as_deref(), want, span)
            }
            _ => self.other(ast, want),
        }
    }

    /// An expression as a value of type `ty`.
    fn typed(&mut self, ast: &ast::Expr, ty: Self::Ty) -> Option<Self::Value> {
        let value = self.expr(ast, Some(ty))?;
        self.coerce(value, ty)
    }

    /// An expression as a BOOL.
    fn condition(&mut self, ast: &ast::Expr) -> Option<Self::Value> {
        self.typed(ast, Self::BOOL)
    }

    /// Checks two expressions as values of one type.
    fn pair(
        &mut self,
        (left, right): (&ast::Expr, &ast::Expr),
        want: Option<Self::Ty>,
    ) -> Option<(Self::Value, Self::Value)> {
        let [left, right] = <[_; 2]>::try_from(self.unify(&[left, right], want)?).ok()?;
        Some((left, right))
    }

    /// Checks several expressions as values of one type: the expressions that are not literals determine it.
    fn unify(&mut self, asts: &[&ast::Expr], want: Option<Self::Ty>) -> Option<Vec<Self::Value>> {
        let mut typed: Vec<Option<Self::Value>> = vec![None; asts.len()];
        let mut ty: Option<Self::Ty> = None;
        let mut first = 0;
        let mut ok = true;
        let order = |pass: u8| {
            let is_in = move |ast: &ast::Expr| match (&ast.kind, Self::adapts(ast)) {
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
    fn adapts(ast: &ast::Expr) -> bool {
        match &ast.kind {
            Ast::Int(_) | Ast::Float(_) => true,
            Ast::Str(_) | Ast::Null => Self::TEXT_ADAPTS,
            Ast::Unary { op: UnaryOp::Neg, operand } => Self::adapts(operand),
            Ast::Binary { op, left, right, .. } => {
                arith(*op).is_some() && Self::adapts(left) && Self::adapts(right)
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
    fn logical_not(&mut self, operand: &ast::Expr, span: Span) -> Option<Self::Value> {
        let operand = self.condition(operand)?;
        self.build(Node::Not(operand), span)
    }

    /// Checks `-a`. A negated literal becomes one constant.
    fn negation(&mut self, operand: &ast::Expr, want: Option<Self::Ty>, span: Span) -> Option<Self::Value> {
        if let Ast::Int(n) = operand.kind {
            return self.literal(Literal::Int(-i128::from(n)), want, span);
        }
        let operand = self.expr(operand, want)?;
        self.build(Node::Negative(operand), span)
    }

    /// Checks a binary operation: a logical operator, a comparison, arithmetic, or one of this place.
    fn binary(
        &mut self,
        op: BinaryOp,
        op_span: Span,
        (left, right): (&ast::Expr, &ast::Expr),
        want: Option<Self::Ty>,
        ast: &ast::Expr,
    ) -> Option<Self::Value> {
        if let BinaryOp::And | BinaryOp::Or = op {
            self.logic(op, (left, right), ast.span)
        } else if let Some(op) = comparison(op) {
            self.comparison(op, op_span, (left, right), ast.span)
        } else if let Some(op) = arith(op) {
            self.arithmetic(op, op_span, (left, right), want, ast.span)
        } else {
            self.other(ast, want)
        }
    }

    /// Checks AND or OR of two conditions.
    fn logic(
        &mut self,
        op: BinaryOp,
        (left, right): (&ast::Expr, &ast::Expr),
        span: Span,
    ) -> Option<Self::Value> {
        let (left, right) = (self.condition(left), self.condition(right));
        let (left, right) = (left?, right?);
        self.build(if op == BinaryOp::And { Node::And(left, right) } else { Node::Or(left, right) }, span)
    }

    /// Checks an arithmetic operation. A literal adapts to the type of the other operand.
    fn arithmetic(
        &mut self,
        op: ArithOp,
        op_span: Span,
        (left, right): (&ast::Expr, &ast::Expr),
        want: Option<Self::Ty>,
        span: Span,
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
    fn comparison(
        &mut self,
        op: CompareOp,
        op_span: Span,
        written: (&ast::Expr, &ast::Expr),
        span: Span,
    ) -> Option<Self::Value> {
        compare(self, op, op_span, written, span)
    }

    /// Reports a value whose type has no order.
    fn check_ordered(&mut self, value: &Self::Value) -> Option<()> {
        let Some(ty) = Self::unordered(Self::ty(value)) else { return Some(()) };
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, format!("values of type {ty} have no order"));
        self.report(diagnostic.at(Self::span(value), "has no order"));
        None
    }

    /// Checks `a IN (b, c)`.
    fn in_list(
        &mut self,
        operand: &ast::Expr,
        list: &[ast::Expr],
        negated: bool,
        span: Span,
    ) -> Option<Self::Value> {
        in_values(self, operand, list, negated, span)
    }

    /// Checks `a BETWEEN b AND c`.
    fn between(&mut self, asts: [&ast::Expr; 3], negated: bool, span: Span) -> Option<Self::Value> {
        let [operand, low, high] = <[_; 3]>::try_from(self.unify(&asts, None)?).ok()?;
        self.check_ordered(&operand)?;
        if !negated {
            self.warn_of_comparison(CompareOp::Ge, (asts[0], &operand), (asts[1], &low));
            self.warn_of_comparison(CompareOp::Le, (asts[0], &operand), (asts[2], &high));
            self.warn_of_bounds(&low, &high);
        }
        let found = self.build(Node::Between(operand, low, high), span)?;
        self.negated_if(negated, found)
    }

    /// Checks a CASE, with or without an operand. All results have a common type.
    fn case(
        &mut self,
        operand: Option<&ast::Expr>,
        arms: &[ast::CaseArm],
        otherwise: Option<&ast::Expr>,
        want: Option<Self::Ty>,
        span: Span,
    ) -> Option<Self::Value> {
        let (operand, whens) = match operand {
            Some(operand) => {
                let asts: Vec<&ast::Expr> =
                    std::iter::once(operand).chain(arms.iter().map(|arm| &arm.when)).collect();
                let mut all = self.unify(&asts, None);
                for (ast, when) in all.iter().flat_map(|all| asts.iter().zip(all).skip(1)) {
                    let first = all.as_ref().map(|all| &all[0])?;
                    self.warn_of_comparison(CompareOp::Eq, (operand, first), (ast, when));
                }
                (all.as_mut().map(|all| all.remove(0)), all)
            }
            None => {
                let whens: Vec<_> = arms.iter().map(|arm| self.condition(&arm.when)).collect();
                (None, whens.into_iter().collect())
            }
        };
        let results: Vec<&ast::Expr> = arms.iter().map(|arm| &arm.then).chain(otherwise).collect();
        let results = self.unify(&results, want);
        let (whens, mut results): (Vec<_>, _) = (whens?, results?);
        let otherwise = otherwise.and_then(|_| results.pop());
        let arms = whens.into_iter().zip(results).collect();
        self.build(Node::Case { operand, arms, otherwise }, span)
    }
}

/// Checks a comparison of two values of a common type. Warns if it is never true.
fn compare<E: Environment + ?Sized>(
    env: &mut E,
    op: CompareOp,
    op_span: Span,
    written: (&ast::Expr, &ast::Expr),
    span: Span,
) -> Option<E::Value> {
    let (left, right) = env.pair(written, None)?;
    env.warn_of_comparison(op, (written.0, &left), (written.1, &right));
    if !matches!(op, CompareOp::Eq | CompareOp::Ne)
        && let Some(ty) = E::unordered(E::ty(&left))
    {
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, format!("values of type {ty} have no order"))
            .at(op_span, "cannot be compared like this")
            .with_help("compare with = or <>, or use IN (...)");
        env.report(diagnostic);
        return None;
    }
    env.build(Node::Compare(op, left, right), span)
}

/// Checks `a IN (b, c)` of values of a common type.
fn in_values<E: Environment + ?Sized>(
    env: &mut E,
    operand: &ast::Expr,
    list: &[ast::Expr],
    negated: bool,
    span: Span,
) -> Option<E::Value> {
    let asts: Vec<&ast::Expr> = std::iter::once(operand).chain(list).collect();
    let mut all = env.unify(&asts, None)?;
    let op = if negated { CompareOp::Ne } else { CompareOp::Eq };
    for (ast, item) in asts.iter().zip(&all).skip(1) {
        env.warn_of_comparison(op, (operand, &all[0]), (ast, item));
    }
    let operand = all.remove(0);
    let found = env.build(Node::In(operand, all), span)?;
    env.negated_if(negated, found)
}

/// Whether one of the literals has a decimal point.
fn is_decimal(ast: &ast::Expr) -> bool {
    match &ast.kind {
        Ast::Float(_) => true,
        Ast::Unary { operand, .. } => is_decimal(operand),
        Ast::Binary { left, right, .. } => is_decimal(left) || is_decimal(right),
        _ => false,
    }
}

/// The comparison of an operator.
fn comparison(op: BinaryOp) -> Option<CompareOp> {
    Some(match op {
        BinaryOp::Eq => CompareOp::Eq,
        BinaryOp::Ne => CompareOp::Ne,
        BinaryOp::Lt => CompareOp::Lt,
        BinaryOp::Le => CompareOp::Le,
        BinaryOp::Gt => CompareOp::Gt,
        BinaryOp::Ge => CompareOp::Ge,
        _ => return None,
    })
}

/// The arithmetic of an operator.
fn arith(op: BinaryOp) -> Option<ArithOp> {
    Some(match op {
        BinaryOp::Add => ArithOp::Add,
        BinaryOp::Sub => ArithOp::Sub,
        BinaryOp::Mul => ArithOp::Mul,
        BinaryOp::Div => ArithOp::Div,
        BinaryOp::Rem => ArithOp::Rem,
        _ => return None,
    })
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
