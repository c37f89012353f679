//! Parses expressions, by operator precedence.
//!
//! Two limits keep recursion over the result shallow: parentheses and similar constructs nest at most `NESTING_MAX`
//! deep, and no tree is higher than `EXPR_HEIGHT_MAX`. `Parser::height` is the height of the highest operand parsed for
//! the current node; [`Parser::expr_above`] saves and restores it around each expression.

use crate::ast::{
    BinaryOp, CaseArm, Expr, ExprKind, Ident, ListExpr, ListForm, Path, SelectItem, Subselect, UnaryOp,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::{TokenKind, float_value, int_value, unquoted};
use crate::source::Span;
use weft_core::limits::{ARGUMENTS_MAX, CASE_ARMS_MAX, EXPR_HEIGHT_MAX, LIST_ITEMS_MAX};

use super::cursor::{Parsed, Parser};

/// Binding strength of operators, weakest first.
mod strength {
    pub(super) const OR: u8 = 1;
    pub(super) const AND: u8 = 2;
    pub(super) const NOT: u8 = 3;
    pub(super) const COMPARE: u8 = 4;
    pub(super) const CONCAT: u8 = 5;
    pub(super) const SUM: u8 = 6;
    pub(super) const PRODUCT: u8 = 7;
    pub(super) const SIGN: u8 = 8;
}

/// An operator or predicate after an operand.
#[derive(Clone, Copy)]
enum Infix {
    Binary(BinaryOp),
    Is,
    In,
    Between,
    Like,
    /// `NOT` before `IN`, `BETWEEN` or `LIKE`.
    Not,
}

/// The word operators.
const INFIX_WORDS: &[(&str, Infix)] = &[
    ("AND", Infix::Binary(BinaryOp::And)),
    ("OR", Infix::Binary(BinaryOp::Or)),
    ("IS", Infix::Is),
    ("IN", Infix::In),
    ("BETWEEN", Infix::Between),
    ("LIKE", Infix::Like),
    ("NOT", Infix::Not),
];

/// The quantifiers of list expressions: `ANY(l IN req.lines ...)`.
const LIST_WORDS: &[(&str, ListForm)] =
    &[("ALL", ListForm::All), ("ANY", ListForm::Any), ("COUNT", ListForm::Count)];

/// The bound of a list.
const LIST_BOUND: &str = "a list expression needs a limit: `MAX 100`";

/// The name of an element without a name in the program: not a valid identifier.
const UNNAMED_ELEMENT: &str = "(element)";

/// Keywords that begin an operand.
const OPERAND_WORDS: &[&str] = &["CASE", "CAST", "EXISTS", "FALSE", "NOT", "NULL", "TRUE"];

pub(super) fn words() -> impl Iterator<Item = &'static str> {
    let lists = LIST_WORDS.iter().map(|(keyword, _)| *keyword);
    INFIX_WORDS.iter().map(|(keyword, _)| *keyword).chain(OPERAND_WORDS.iter().copied()).chain(lists)
}

impl Infix {
    /// Returns the binding strength of the operator.
    fn strength(self) -> u8 {
        match self {
            Self::Binary(op) => op_strength(op),
            Self::Is | Self::In | Self::Between | Self::Like | Self::Not => strength::COMPARE,
        }
    }
}

fn list_form(word: &str) -> Option<ListForm> {
    LIST_WORDS.iter().find(|(known, _)| known.eq_ignore_ascii_case(word)).map(|(_, form)| *form)
}

/// Returns the binding strength of an operator.
fn op_strength(op: BinaryOp) -> u8 {
    match op {
        BinaryOp::Or => strength::OR,
        BinaryOp::And => strength::AND,
        BinaryOp::Eq | BinaryOp::Ne | BinaryOp::Lt | BinaryOp::Le | BinaryOp::Gt | BinaryOp::Ge => {
            strength::COMPARE
        }
        BinaryOp::Concat | BinaryOp::BitAnd => strength::CONCAT,
        BinaryOp::Add | BinaryOp::Sub => strength::SUM,
        BinaryOp::Mul | BinaryOp::Div | BinaryOp::Rem => strength::PRODUCT,
    }
}

impl Parser<'_> {
    pub(super) fn expr(&mut self) -> Parsed<Expr> {
        self.expr_above(0)
    }

    /// A number or an interval before a keyword: not a comparison, so `AND` and `IN` end it.
    pub(super) fn amount(&mut self) -> Parsed<Expr> {
        self.expr_above(strength::COMPARE)
    }

    /// Parses an expression of operators that bind more strongly than `weakest`.
    fn expr_above(&mut self, weakest: u8) -> Parsed<Expr> {
        let highest_before = std::mem::replace(&mut self.height, 0);
        let mut left = self.operand()?;
        self.grow()?;
        while let Some(infix) = self.infix() {
            let strength = infix.strength();
            if strength <= weakest {
                break;
            }
            left = self.infix_rest(left, infix)?;
            self.grow()?;
            if strength == strength::COMPARE {
                self.refuse_second_comparison()?;
            }
        }
        self.offer(INFIX_WORDS.iter().map(|(keyword, _)| *keyword));
        self.height = self.height.max(highest_before);
        Ok(left)
    }

    /// The node being built is one higher than its highest operand.
    fn grow(&mut self) -> Parsed<()> {
        self.height += 1;
        if self.height <= EXPR_HEIGHT_MAX {
            return Ok(());
        }
        let diagnostic = Diagnostic::error(
            code::EXPR_TOO_LARGE,
            format!("an expression of more than {EXPR_HEIGHT_MAX} steps"),
        )
        .at(self.previous_span(), "")
        .with_help("name a part with `LET x = ...;`, or write a long `OR` as `IN (...)`");
        Err(self.fail(diagnostic))
    }

    /// Returns the infix operator at the current token, if there is one.
    fn infix(&self) -> Option<Infix> {
        let op = match self.token().kind {
            TokenKind::Eq => BinaryOp::Eq,
            TokenKind::Ne => BinaryOp::Ne,
            TokenKind::Lt => BinaryOp::Lt,
            TokenKind::Le => BinaryOp::Le,
            TokenKind::Gt => BinaryOp::Gt,
            TokenKind::Ge => BinaryOp::Ge,
            TokenKind::Concat => BinaryOp::Concat,
            TokenKind::Ampersand => BinaryOp::BitAnd,
            TokenKind::Plus => BinaryOp::Add,
            TokenKind::Minus => BinaryOp::Sub,
            TokenKind::Star => BinaryOp::Mul,
            TokenKind::Slash => BinaryOp::Div,
            TokenKind::Percent => BinaryOp::Rem,
            TokenKind::Word => return self.infix_word(),
            _ => return None,
        };
        Some(Infix::Binary(op))
    }

    fn infix_word(&self) -> Option<Infix> {
        let word = self.word()?;
        INFIX_WORDS.iter().find(|(keyword, _)| keyword.eq_ignore_ascii_case(word)).map(|(_, infix)| *infix)
    }

    /// Parses an infix operator and its right side; `left` is the left operand.
    fn infix_rest(&mut self, left: Expr, infix: Infix) -> Parsed<Expr> {
        let start = left.span;
        let left = Box::new(left);
        let kind = match infix {
            Infix::Binary(op) => {
                let op_span = self.operator(op);
                let right = Box::new(self.expr_above(op_strength(op))?);
                ExprKind::Binary { op, op_span, left, right }
            }
            Infix::Is => {
                self.bump_keyword();
                let negated = self.eat_keyword("NOT").is_some();
                if self.eat_keyword("DISTINCT").is_some() {
                    self.keyword("FROM")?;
                    let right = Box::new(self.expr_above(strength::COMPARE)?);
                    ExprKind::IsDistinct { left, right, negated }
                } else {
                    self.keyword("NULL")?;
                    ExprKind::IsNull { operand: left, negated }
                }
            }
            Infix::In => self.rest_of_in(left, false)?,
            Infix::Between => self.rest_of_between(left, false)?,
            Infix::Like => self.rest_of_like(left, false)?,
            Infix::Not => {
                self.bump_keyword();
                match self.infix_word() {
                    Some(Infix::In) => self.rest_of_in(left, true)?,
                    Some(Infix::Between) => self.rest_of_between(left, true)?,
                    Some(Infix::Like) => self.rest_of_like(left, true)?,
                    _ => return Err(self.expected("`IN`, `BETWEEN` or `LIKE`")),
                }
            }
        };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    /// Consumes an operator. Returns its span.
    fn operator(&mut self, op: BinaryOp) -> Span {
        if matches!(op, BinaryOp::And | BinaryOp::Or) {
            self.layout.weak(self.index());
            return self.bump_keyword();
        }
        self.bump().span
    }

    /// Parses the rest of `x IN ...`: a list, or a network.
    fn rest_of_in(&mut self, operand: Box<Expr>, negated: bool) -> Parsed<ExprKind> {
        self.bump_keyword();
        if self.at(TokenKind::LeftParen) {
            let start = self.token().span;
            let list = self.nested(|p| p.paren_list(Self::expr))?;
            self.bounded(list.len(), LIST_ITEMS_MAX, "values in a list", start)?;
            return Ok(ExprKind::InList { operand, list, negated });
        }
        let net = Box::new(self.expr_above(strength::COMPARE)?);
        Ok(ExprKind::InNet { operand, net, negated })
    }

    /// Parses the rest of `x BETWEEN a AND b`.
    fn rest_of_between(&mut self, operand: Box<Expr>, negated: bool) -> Parsed<ExprKind> {
        self.bump_keyword();
        let low = Box::new(self.expr_above(strength::COMPARE)?);
        self.keyword("AND")?;
        let high = Box::new(self.expr_above(strength::COMPARE)?);
        Ok(ExprKind::Between { operand, low, high, negated })
    }

    /// Parses the rest of `x LIKE pattern`.
    fn rest_of_like(&mut self, operand: Box<Expr>, negated: bool) -> Parsed<ExprKind> {
        self.bump_keyword();
        let pattern = Box::new(self.expr_above(strength::COMPARE)?);
        Ok(ExprKind::Like { operand, pattern, negated })
    }

    /// Reports a chain of comparisons such as `a < b < c`.
    fn refuse_second_comparison(&mut self) -> Parsed<()> {
        if self.infix().is_none_or(|infix| infix.strength() != strength::COMPARE) {
            return Ok(());
        }
        let span = self.token().span;
        let help = "join two comparisons with `AND`, or write `x BETWEEN a AND b`";
        Err(self.fail_at(span, code::CHAINED_COMPARISON, "comparisons do not chain", help))
    }

    // ---- operands ----

    /// Parses an operand: a literal, a name, a call, a parenthesis or a prefix operator.
    pub(super) fn operand(&mut self) -> Parsed<Expr> {
        let start = self.token().span;
        let kind = match self.token().kind {
            TokenKind::Int => self.int(),
            TokenKind::Float => self.float(),
            TokenKind::Str => self.text_literal(),
            TokenKind::LeftParen => return self.nested(Self::parenthesised),
            TokenKind::Minus => return self.nested(Self::negation),
            TokenKind::Word => return self.word_operand(),
            TokenKind::QuotedWord => self.name_or_call()?,
            _ => {
                self.offer(OPERAND_WORDS.iter().copied());
                return Err(self.expected("an expression"));
            }
        };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    // The lexer has reported the invalid number; any value will do, because the program does not run.
    fn int(&mut self) -> ExprKind {
        let span = self.bump().span;
        ExprKind::Int(int_value(self.slice(span)).unwrap_or_default())
    }

    fn text_literal(&mut self) -> ExprKind {
        let span = self.bump().span;
        ExprKind::Str(unquoted(self.slice(span)))
    }

    fn float(&mut self) -> ExprKind {
        let span = self.bump().span;
        ExprKind::Float(float_value(self.slice(span)).unwrap_or_default())
    }

    /// Parses an operand that begins with a word.
    fn word_operand(&mut self) -> Parsed<Expr> {
        let start = self.token().span;
        let word = self.word().unwrap_or_default().to_ascii_uppercase();
        let opens = self.peek(1) == TokenKind::LeftParen;
        let indexes = self.peek(1) == TokenKind::LeftBracket;
        let kind = match word.as_str() {
            "TRUE" => self.constant(ExprKind::Bool(true)),
            "FALSE" => self.constant(ExprKind::Bool(false)),
            "NULL" => self.constant(ExprKind::Null),
            "NOT" => return self.nested(Self::not),
            "CASE" => return self.nested(Self::case),
            "EXISTS" => return self.nested(Self::exists),
            "CAST" if opens => return self.nested(Self::cast),
            _ if opens && self.peek_keyword(3, "IN") && list_form(&word).is_some() => {
                return self.nested(Self::list_expr);
            }
            "PEEK" if self.peek_keyword(1, "BIT") && self.peek(2) == TokenKind::LeftParen => {
                self.peek_bits()?
            }
            "HEADER" if indexes => ExprKind::Header(Box::new(self.nested(Self::index_key)?)),
            "TRAILER" if indexes => ExprKind::Trailer(Box::new(self.nested(Self::index_key)?)),
            _ => self.name_or_call()?,
        };
        Ok(Expr { kind, span: self.span_from(start) })
    }

    fn constant(&mut self, kind: ExprKind) -> ExprKind {
        self.bump_keyword();
        kind
    }

    /// Parses `peek bit(n)` of a wire format.
    fn peek_bits(&mut self) -> Parsed<ExprKind> {
        let function = self.ident("an expression")?;
        self.bump();
        self.layout.tight(self.index());
        self.expect(TokenKind::LeftParen, "`(`")?;
        let span = self.expect(TokenKind::Int, "a number of bits")?;
        let kind = ExprKind::Int(int_value(self.slice(span)).unwrap_or_default());
        self.expect(TokenKind::RightParen, "`)`")?;
        Ok(ExprKind::Call { function, args: vec![Expr { kind, span }], star: None })
    }

    /// `['key']` after `header` or `trailer`, which is the token now.
    pub(super) fn index_key(&mut self) -> Parsed<Expr> {
        self.bump();
        self.bracketed()
    }

    /// `['key']`
    fn bracketed(&mut self) -> Parsed<Expr> {
        self.expect(TokenKind::LeftBracket, "`[`")?;
        let key = self.expr()?;
        self.expect(TokenKind::RightBracket, "`]`")?;
        Ok(key)
    }

    /// Parses a name with dots, or a function call.
    fn name_or_call(&mut self) -> Parsed<ExprKind> {
        if self.peek(1) != TokenKind::LeftParen {
            let path = self.path("an expression")?;
            return match self.at(TokenKind::LeftBracket) {
                true => Ok(ExprKind::Entry { map: path, key: Box::new(self.nested(Self::bracketed)?) }),
                false => Ok(ExprKind::Path(path)),
            };
        }
        let function = self.ident("an expression")?;
        self.nested(|p| p.call(function))
    }

    /// Parses the arguments of a function call.
    fn call(&mut self, function: Ident) -> Parsed<ExprKind> {
        self.layout.tight(self.index());
        self.bump();
        if self.at(TokenKind::Star) && self.peek(1) == TokenKind::RightParen {
            let star = Some(self.bump().span);
            self.bump();
            return Ok(ExprKind::Call { function, args: Vec::new(), star });
        }
        let args = if self.at(TokenKind::RightParen) { Vec::new() } else { self.comma_list(Self::expr)? };
        self.bounded(args.len(), ARGUMENTS_MAX, "arguments of a function", function.span)?;
        let is_contains = function.name.eq_ignore_ascii_case("contains") && args.len() == 2;
        if is_contains && let Some(max) = self.optional_bound()? {
            self.expect(TokenKind::RightParen, "`)`")?;
            return self.contains_expr(&function, args, max);
        }
        self.expect(TokenKind::RightParen, "`,` or `)`")?;
        Ok(ExprKind::Call { function, args, star: None })
    }

    /// Parses an expression or a SELECT in parentheses.
    fn parenthesised(&mut self) -> Parsed<Expr> {
        let start = self.bump().span;
        let mut inner = if self.peek_keyword(0, "SELECT") {
            let subselect = self.subselect()?;
            Expr { span: subselect.span, kind: ExprKind::Subselect(Box::new(subselect)) }
        } else {
            self.expr()?
        };
        self.expect(TokenKind::RightParen, "an operator or `)`")?;
        inner.span = self.span_from(start);
        Ok(inner)
    }

    /// Parses `-x`.
    fn negation(&mut self) -> Parsed<Expr> {
        let start = self.bump().span;
        self.layout.tight(self.index());
        let operand = Box::new(self.expr_above(strength::SIGN)?);
        Ok(Expr { kind: ExprKind::Unary { op: UnaryOp::Neg, operand }, span: self.span_from(start) })
    }

    /// Parses `NOT x`.
    fn not(&mut self) -> Parsed<Expr> {
        let start = self.bump_keyword();
        let operand = Box::new(self.expr_above(strength::NOT)?);
        Ok(Expr { kind: ExprKind::Unary { op: UnaryOp::Not, operand }, span: self.span_from(start) })
    }

    /// Parses a CASE.
    fn case(&mut self) -> Parsed<Expr> {
        let start = self.bump_keyword();
        let operand = if self.peek_keyword(0, "WHEN") { None } else { Some(Box::new(self.expr()?)) };
        let mut arms = Vec::new();
        while self.at_keyword("WHEN") {
            self.layout.weak(self.index());
            self.bump_keyword();
            let when = self.expr()?;
            self.keyword("THEN")?;
            arms.push(CaseArm { when, then: self.expr()? });
        }
        if arms.is_empty() {
            return Err(self.expected(""));
        }
        self.bounded(arms.len(), CASE_ARMS_MAX, "arms of a CASE", start)?;
        self.layout.weak(self.index());
        let otherwise = self.after("ELSE", |p| p.expr().map(Box::new))?;
        self.clause("END", "a `CASE` must end with it")?;
        Ok(Expr { kind: ExprKind::Case { operand, arms, otherwise }, span: self.span_from(start) })
    }

    /// Parses `EXISTS (SELECT ...)`.
    fn exists(&mut self) -> Parsed<Expr> {
        let start = self.bump_keyword();
        self.expect(TokenKind::LeftParen, "`(` and a `SELECT`")?;
        let subselect = Box::new(self.subselect()?);
        self.expect(TokenKind::RightParen, "`)`")?;
        Ok(Expr { kind: ExprKind::Exists(subselect), span: self.span_from(start) })
    }

    /// Parses `CAST(e AS type)`.
    fn cast(&mut self) -> Parsed<Expr> {
        let start = self.bump_keyword();
        self.layout.tight(self.index());
        self.bump();
        let operand = Box::new(self.expr()?);
        self.keyword("AS")?;
        let ty = self.type_expr()?;
        self.expect(TokenKind::RightParen, "`)`")?;
        Ok(Expr { kind: ExprKind::Cast { operand, ty }, span: self.span_from(start) })
    }

    /// Parses `ANY|ALL|COUNT (item IN list [WHERE e] MAX n)`
    fn list_expr(&mut self) -> Parsed<Expr> {
        let start = self.token().span;
        let form = self.word().and_then(list_form).unwrap_or(ListForm::Any);
        self.bump_keyword();
        self.layout.tight(self.index());
        self.bump();
        let item = self.ident("a name for an element of the list")?;
        self.keyword("IN")?;
        let list = self.path("a list of the message")?;
        let filter = match form {
            ListForm::Count if !self.peek_keyword(0, "WHERE") => None,
            _ => {
                self.clause("WHERE", "the condition on elements: `WHERE l.qty > 10`")?;
                Some(self.expr()?)
            }
        };
        self.clause("MAX", LIST_BOUND)?;
        let elements_max = self.expr()?;
        self.expect(TokenKind::RightParen, "`)`")?;
        let look = ListExpr { form, item, list, filter, elements_max };
        Ok(Expr { kind: ExprKind::List(Box::new(look)), span: self.span_from(start) })
    }

    /// Parses `MAX n`, if present.
    fn optional_bound(&mut self) -> Parsed<Option<Expr>> {
        if self.eat_keyword("MAX").is_none() {
            return Ok(None);
        }
        self.expr().map(Some)
    }

    /// Parses `contains(list, e MAX n)`: at least one element equals `e`.
    fn contains_expr(&mut self, function: &Ident, args: Vec<Expr>, elements_max: Expr) -> Parsed<ExprKind> {
        let [list, value] = <[Expr; 2]>::try_from(args).expect("the caller has checked the count");
        let ExprKind::Path(list) = list.kind else {
            let help = "name a repeated field: `contains(req.tags, 'x' MAX 100)`";
            return Err(self.fail_at(list.span, code::UNEXPECTED, "a limit needs a list", help));
        };
        let item = Ident { name: UNNAMED_ELEMENT.to_owned(), span: function.span };
        let element = Path { segments: vec![item.clone()], span: function.span };
        let left = Box::new(Expr { kind: ExprKind::Path(element), span: list.span });
        let span = value.span;
        let equal =
            ExprKind::Binary { op: BinaryOp::Eq, op_span: function.span, left, right: Box::new(value) };
        let filter = Some(Expr { kind: equal, span });
        Ok(ExprKind::List(Box::new(ListExpr { form: ListForm::Any, item, list, filter, elements_max })))
    }

    /// Parses `SELECT item FROM t | SCAN t MAX n [WHERE e]`
    fn subselect(&mut self) -> Parsed<Subselect> {
        let start = self.keyword("SELECT")?;
        let item = self.select_item()?;
        self.layout.weak(self.index());
        self.keyword("FROM")?;
        let is_scan =
            self.peek_keyword(0, "SCAN") && matches!(self.peek(1), TokenKind::Word | TokenKind::QuotedWord);
        if is_scan {
            self.bump_keyword();
        }
        let table = self.ident("a table")?;
        let scan_max = if is_scan {
            self.clause("MAX", super::stmt::SCAN_BOUND)?;
            Some(self.expr()?)
        } else {
            None
        };
        self.layout.weak(self.index());
        let filter = self.after("WHERE", Self::expr)?;
        Ok(Subselect { item, table, scan_max, filter, span: self.span_from(start) })
    }

    /// Parses an item of a SELECT: `*`, or `e [AS name]`.
    pub(super) fn select_item(&mut self) -> Parsed<SelectItem> {
        if self.at(TokenKind::Star) {
            return Ok(SelectItem::Star(self.bump().span));
        }
        let value = self.expr()?;
        let alias = self.after("AS", |p| p.ident("a column name"))?;
        Ok(SelectItem::Value { value, alias })
    }
}
