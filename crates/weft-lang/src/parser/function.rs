//! Parses functions: `CREATE FUNCTION`, and function parameters.

use crate::ast::{Expr, FunctionEffect, FunctionItem, FunctionType, Ident, Item, StrLit};
use crate::source::Span;

use super::Create;
use super::cursor::{Parsed, Parser};

pub(super) const FUNCTION_FORM: &str =
    "CREATE FUNCTION seal (BYTES) RETURNS BYTES AS NATIVE 'aes_256_gcm_seal' WITH (key_env = 'SHOP_KEY');";

/// The clauses before and after `AS NATIVE`, in any order.
#[derive(Default)]
struct Clauses {
    inverse_of: Option<Ident>,
    effect: Option<(FunctionEffect, Span)>,
    cost: Option<Expr>,
}

impl Parser<'_> {
    /// Parses `CREATE FUNCTION`.
    pub(super) fn function(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the function")?;
        let ty = self.function_type()?;
        let mut clauses = Clauses::default();
        self.function_clauses(&mut clauses)?;
        self.layout.weak(self.index());
        self.keywords(&["AS", "NATIVE"])?;
        let native: StrLit = self.string("the name of a native function, in quotes")?;
        let options = self.optional_with()?;
        self.function_clauses(&mut clauses)?;
        self.semicolon()?;
        let span = self.span_from(create.start);
        let Clauses { inverse_of, effect, cost } = clauses;
        let or_replace = create.or_replace;
        Ok(Item::Function(FunctionItem {
            or_replace,
            name,
            ty,
            native,
            options,
            inverse_of,
            effect,
            cost,
            span,
        }))
    }

    /// Parses a function type: `(TYPE, ...) RETURNS TYPE`.
    pub(super) fn function_type(&mut self) -> Parsed<FunctionType> {
        let start = self.token().span;
        let params = self.paren_list(Self::type_expr)?;
        self.layout.weak(self.index());
        self.keyword("RETURNS")?;
        let returns = self.type_expr()?;
        Ok(FunctionType { params, returns, span: self.span_from(start) })
    }

    /// Parses the clauses of a function, in any order.
    fn function_clauses(&mut self, clauses: &mut Clauses) -> Parsed<()> {
        loop {
            self.layout.weak(self.index());
            let start = self.token().span;
            if self.eat_keywords("INVERSE", "OF").is_some() {
                if clauses.inverse_of.replace(self.ident("a function")?).is_some() {
                    return Err(self.repeated("INVERSE OF", start));
                }
            } else if self.eat_keyword("EFFECT").is_some() {
                let effects = [
                    ("PURE", FunctionEffect::Pure),
                    ("RANDOM", FunctionEffect::Random),
                    ("CLOCK", FunctionEffect::Clock),
                ];
                let effect = self.choice(&effects)?;
                if clauses.effect.replace((effect, self.span_from(start))).is_some() {
                    return Err(self.repeated("EFFECT", start));
                }
            } else if self.eat_keyword("COST").is_some() {
                if clauses.cost.replace(self.expr()?).is_some() {
                    return Err(self.repeated("COST", start));
                }
            } else {
                return Ok(());
            }
        }
    }
}
