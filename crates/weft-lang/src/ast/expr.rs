//! The syntax tree of expressions.

use super::*;

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// The kind.
    pub kind: ExprKind,
    /// With enclosing parentheses.
    pub span: Span,
}

/// The expressions.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// An integer without sign.
    Int(u64),
    /// A number with a point or an exponent; always finite.
    Float(f64),
    /// A string.
    Str(String),
    /// `TRUE`, `FALSE`
    Bool(bool),
    /// `NULL`
    Null,
    /// A name.
    Path(Path),
    /// `header['key']`
    Header(Box<Expr>),
    /// `trailer['key']`
    Trailer(Box<Expr>),
    /// `f(a, b)`, `count(t)`, `count(*)`
    Call {
        /// The function.
        function: Ident,
        /// Its arguments; empty with `*`.
        args: Vec<Expr>,
        /// `*` was written as the only argument.
        star: Option<Span>,
    },
    /// `NOT a`, `-a`
    Unary {
        /// The operator.
        op: UnaryOp,
        /// The operand.
        operand: Box<Expr>,
    },
    /// `a op b`
    Binary {
        /// The operator.
        op: BinaryOp,
        /// The operator's own place.
        op_span: Span,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// `a IS [NOT] NULL`
    IsNull {
        /// The tested operand.
        operand: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a IS [NOT] DISTINCT FROM b`
    IsDistinct {
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] IN (b, c, ...)`
    InList {
        /// The tested operand.
        operand: Box<Expr>,
        /// Among these, at least one.
        list: Vec<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] IN '10.0.0.0/8'`: an address in a network.
    InNet {
        /// The address.
        operand: Box<Expr>,
        /// The network.
        net: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] BETWEEN b AND c`
    Between {
        /// The tested operand.
        operand: Box<Expr>,
        /// The lower bound.
        low: Box<Expr>,
        /// The upper bound.
        high: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] LIKE b`
    Like {
        /// The text.
        operand: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `CASE [e] WHEN a THEN b ... [ELSE c] END`
    Case {
        /// The value compared; `None` for the searched form.
        operand: Option<Box<Expr>>,
        /// The arms, at least one.
        arms: Vec<CaseArm>,
        /// `ELSE`.
        otherwise: Option<Box<Expr>>,
    },
    /// `(SELECT e FROM t WHERE ...)`
    Subselect(Box<Subselect>),
    /// `EXISTS (SELECT ...)`
    Exists(Box<Subselect>),
    /// `ANY(l IN req.lines WHERE e MAX n)`, `ALL(...)` or `COUNT(...)`.
    List(Box<ListExpr>),
    /// `req.labels['key']`
    Entry {
        /// The map.
        map: Path,
        /// The key.
        key: Box<Expr>,
    },
    /// `CAST(e AS TYPE)`
    Cast {
        /// The value.
        operand: Box<Expr>,
        /// The type.
        ty: TypeExpr,
    },
}

impl Expr {
    /// Its direct parts; of a subselect only the filter and the bound.
    pub fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Int(_)
            | ExprKind::Float(_)
            | ExprKind::Str(_)
            | ExprKind::Bool(_)
            | ExprKind::Null
            | ExprKind::Path(_) => Vec::new(),
            ExprKind::Header(a)
            | ExprKind::Trailer(a)
            | ExprKind::Unary { operand: a, .. }
            | ExprKind::IsNull { operand: a, .. }
            | ExprKind::Cast { operand: a, .. }
            | ExprKind::Entry { key: a, .. } => vec![a],
            ExprKind::Call { args, .. } => args.iter().collect(),
            ExprKind::Binary { left: a, right: b, .. }
            | ExprKind::IsDistinct { left: a, right: b, .. }
            | ExprKind::InNet { operand: a, net: b, .. }
            | ExprKind::Like { operand: a, pattern: b, .. } => vec![a, b],
            ExprKind::InList { operand, list, .. } => [&**operand].into_iter().chain(list).collect(),
            ExprKind::Between { operand, low, high, .. } => vec![operand, low, high],
            ExprKind::Case { operand, arms, otherwise } => {
                let arms = arms.iter().flat_map(|arm| [&arm.when, &arm.then]);
                operand.as_deref().into_iter().chain(arms).chain(otherwise.as_deref()).collect()
            }
            ExprKind::Subselect(select) | ExprKind::Exists(select) => {
                select.filter.iter().chain(&select.scan_max).collect()
            }
            ExprKind::List(look) => look.filter.iter().chain([&look.elements_max]).collect(),
        }
    }

    /// Calls `visit` for each name in it, except in bounds and keys, which are constant.
    pub fn each_path(&self, visit: &mut dyn FnMut(&Path)) {
        match &self.kind {
            ExprKind::Path(path) | ExprKind::Entry { map: path, .. } => visit(path),
            ExprKind::List(look) => {
                visit(&look.list);
                look.filter.iter().for_each(|filter| filter.each_path(visit));
            }
            _ => self.children().into_iter().for_each(|part| part.each_path(visit)),
        }
    }
}

/// `WHEN a THEN b`
#[derive(Clone, PartialEq, Debug)]
pub struct CaseArm {
    /// The condition, or the value compared.
    pub when: Expr,
    /// The result.
    pub then: Expr,
}

/// `SELECT item FROM t | SCAN t MAX n [WHERE e]`
#[derive(Clone, PartialEq, Debug)]
pub struct Subselect {
    /// The selected item.
    pub item: SelectItem,
    /// The table.
    pub table: Ident,
    /// `MAX n` of the `SCAN` form; `None` for a lookup by key.
    pub scan_max: Option<Expr>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// Without the parentheses.
    pub span: Span,
}

/// `ANY|ALL|COUNT (item IN list [WHERE e] MAX n)`; `contains(list, e MAX n)` is `ANY` over the elements that equal `e`.
#[derive(Clone, PartialEq, Debug)]
pub struct ListExpr {
    /// The quantifier: ANY, ALL or COUNT.
    pub form: ListForm,
    /// The name of an element in the condition.
    pub item: Ident,
    /// The repeated field or map.
    pub list: Path,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// `MAX n`.
    pub elements_max: Expr,
}

/// The quantifier of a list expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListForm {
    /// `ANY`: whether the condition is true for at least one element.
    Any,
    /// `ALL`: whether it is true of each.
    All,
    /// `COUNT`: of how many it is true.
    Count,
}

/// Operators with one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `NOT`
    Not,
    /// `-`
    Neg,
}

/// Operators with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `OR`
    Or,
    /// `AND`
    And,
    /// `=`
    Eq,
    /// `<>`, `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `||`
    Concat,
    /// `&`
    BitAnd,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}
