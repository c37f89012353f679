//! Parses chains: stages on an edge, and options.

use crate::ast::{
    Chain, ChainOn, ChainOption, ChainOptionKind, Item, Side, SideClause, Stage, StageArg, StageNode,
};
use crate::diagnostic::{Diagnostic, code};
use crate::lexer::TokenKind;
use crate::source::Span;

use super::cursor::{Parsed, Parser};
use super::{Create, Row};

pub(super) const CHAIN_FORM: &str = "CREATE CHAIN shop ON frontend -> cart AS logging -> acl AT SERVER; END;";
const PORT_CHAIN_FORM: &str =
    "CREATE CHAIN edge ON PORT lan -> wan WHEN present(ip) AS firewall -> router; END;";

type ReadOption = fn(&mut Parser<'_>) -> Parsed<ChainOptionKind>;

const OPTIONS: &[Row<ReadOption>] = &[
    Row {
        keyword: "EQUIVALENCE",
        read: |p| Ok(ChainOptionKind::Equivalence { level: p.ident("a level, such as `observable`")? }),
        form: "EQUIVALENCE observable;",
    },
    Row { keyword: "PIN", read: |p| p.pin_stream(), form: "PIN STREAM DRAIN '30 s';" },
    Row {
        keyword: "FAIL",
        read: |p| p.keyword("OPEN").map(|_| ChainOptionKind::FailOpen),
        form: "FAIL OPEN;",
    },
    Row { keyword: "ORDER", read: |p| p.order(), form: "ORDER firewall BEFORE nat;" },
    Row { keyword: "PRIORITY", read: |p| p.priority(), form: "PRIORITY ids > monitor;" },
    Row { keyword: "POSITION", read: |p| p.position(), form: "POSITION monitor LAST;" },
    Row { keyword: "ON", read: |p| p.on_failure(), form: "ON FAILURE OF ids BYPASS;" },
];

pub(super) fn forms() -> impl Iterator<Item = (&'static str, &'static str)> {
    super::forms_of(OPTIONS)
}

impl Parser<'_> {
    /// Parses `CREATE CHAIN`: its traffic, its stages and its options.
    pub(super) fn chain(&mut self, create: Create) -> Parsed<Item> {
        let n_faults = self.n_faults;
        let name = self.ident("a name for the chain")?;
        self.clause("ON", "a chain needs its traffic")?;
        let on = self.chain_on()?;
        self.keyword("AS")?;
        self.layout.deeper();
        self.layout.line(self.index());
        let is_empty = self.peek_keyword(0, "END");
        let stages = match if is_empty { Ok(Vec::new()) } else { self.stages_to_semicolon() } {
            Ok(stages) => stages,
            Err(_) => {
                self.skip_option();
                Vec::new()
            }
        };
        let options = self.options(OPTIONS, Self::chain_option);
        self.layout.shallower();
        self.end_of_item("chain", &name.name, create.start);
        let is_faulty = self.n_faults != n_faults;
        let span = self.span_from(create.start);
        Ok(Item::Chain(Chain { or_replace: create.or_replace, name, on, stages, options, is_faulty, span }))
    }

    /// Parses the traffic of a chain: ports, or a listener and a cluster.
    fn chain_on(&mut self) -> Parsed<ChainOn> {
        let start = self.token().span;
        if self.peek_keyword(0, "PORT") && self.peek(1) != TokenKind::Arrow {
            self.form = PORT_CHAIN_FORM;
            self.bump_keyword();
            let ports = self.comma_list(|p| p.ident("a port"))?;
            let to = if self.eat(TokenKind::Arrow) { Some(self.ident("a port")?) } else { None };
            self.layout.weak(self.index());
            let when = self.after("WHEN", Self::expr)?;
            return Ok(ChainOn::Port { ports, to, when, span: self.span_from(start) });
        }
        let from = self.ident("a listener or a service")?;
        self.expect(TokenKind::Arrow, "`->` and the destination")?;
        let to = self.ident("a cluster or a service")?;
        let method = self.optional_method()?;
        Ok(ChainOn::Edge { from, to, method, span: self.span_from(start) })
    }

    /// Parses stages and the `;` after them.
    fn stages_to_semicolon(&mut self) -> Parsed<Vec<StageNode>> {
        let stages = self.stages()?;
        self.semicolon()?;
        Ok(stages)
    }

    /// Parses the stages of a chain: `a -> b -> {c, d}`.
    fn stages(&mut self) -> Parsed<Vec<StageNode>> {
        let mut stages = vec![self.stage_node()?];
        while self.at(TokenKind::Arrow) {
            self.layout.weak(self.index());
            self.bump();
            stages.push(self.stage_node()?);
        }
        Ok(stages)
    }

    /// Parses one stage, or stages in braces.
    fn stage_node(&mut self) -> Parsed<StageNode> {
        let start = self.token().span;
        if !self.eat(TokenKind::LeftBrace) {
            return self.stage().map(StageNode::One);
        }
        let stages = self.comma_list(Self::stage)?;
        self.expect(TokenKind::RightBrace, "`,` or `}`")?;
        Ok(StageNode::Group { stages, span: self.span_from(start) })
    }

    /// Parses a stage: an element or filter, its arguments, and its name.
    fn stage(&mut self) -> Parsed<Stage> {
        let element = self.ident("an element or a filter")?;
        let args = if self.at(TokenKind::LeftParen) { self.paren_list(Self::stage_arg)? } else { Vec::new() };
        let instance = self.after("AS", |p| p.ident("a name for the instance"))?;
        let side = self.optional_side()?;
        let mandatory = self.eat_keyword("MANDATORY");
        let per_try = self.eat_keywords("PER", "TRY");
        let span = self.span_from(element.span);
        Ok(Stage { element, args, instance, side, mandatory, per_try, span })
    }

    /// Parses an argument of a stage: a parameter with `=`, or a column binding with `:=`.
    fn stage_arg(&mut self) -> Parsed<StageArg> {
        let name = self.ident("a parameter or a column")?;
        if self.eat(TokenKind::Bind) {
            let value = self.expr()?;
            let span = self.span_from(name.span);
            return Ok(StageArg::Bind { column: name, value, span });
        }
        self.expect(TokenKind::Eq, "`=` for a parameter or `:=` for a column")?;
        let value = self.expr()?;
        let span = self.span_from(name.span);
        Ok(StageArg::Param(crate::ast::Assign { name, value, span }))
    }

    /// Parses `AT CLIENT` or `AT SERVER`, if present.
    fn optional_side(&mut self) -> Parsed<Option<SideClause>> {
        let Some(start) = self.eat_keyword("AT") else { return Ok(None) };
        let side = self.choice(&[("CLIENT", Side::Client), ("SERVER", Side::Server)])?;
        Ok(Some(SideClause { side, span: self.span_from(start) }))
    }

    /// Parses one option of a chain.
    fn chain_option(&mut self) -> Parsed<ChainOption> {
        let start = self.token().span;
        let kind = match self.peek(1) {
            TokenKind::Dot | TokenKind::Arrow => self.branch()?,
            _ => {
                let row = self.begin(OPTIONS, "a chain", "or `END`")?;
                (row.read)(self)?
            }
        };
        let span = self.span_from(start);
        self.semicolon()?;
        Ok(ChainOption { kind, span })
    }

    /// Skips the rest of an option, after an error.
    pub(super) fn skip_option(&mut self) {
        self.skip_until(|p| {
            let ends = p.peek_keyword(0, "END") && p.peek(1) == TokenKind::Semicolon;
            p.at(TokenKind::Semicolon) || ends || p.peek_keyword(0, "CREATE")
        });
        self.eat(TokenKind::Semicolon);
    }

    fn pin_stream(&mut self) -> Parsed<ChainOptionKind> {
        self.keywords(&["STREAM", "DRAIN"])?;
        Ok(ChainOptionKind::PinStream { drain: self.expr()? })
    }

    /// Parses the rest of `ORDER a BEFORE b`.
    fn order(&mut self) -> Parsed<ChainOptionKind> {
        let first = self.ident("an instance")?;
        self.keyword("BEFORE")?;
        Ok(ChainOptionKind::Order { first, second: self.ident("an instance")? })
    }

    /// Parses the rest of `PRIORITY a > b`.
    fn priority(&mut self) -> Parsed<ChainOptionKind> {
        let higher = self.ident("an instance")?;
        self.expect(TokenKind::Gt, "`>`")?;
        Ok(ChainOptionKind::Priority { higher, lower: self.ident("an instance")? })
    }

    /// Parses the position of an instance: FIRST or LAST.
    fn position(&mut self) -> Parsed<ChainOptionKind> {
        let instance = self.ident("an instance")?;
        let is_last = if self.eat_keyword("LAST").is_some() {
            true
        } else {
            self.keyword("FIRST")?;
            false
        };
        Ok(ChainOptionKind::Position { instance, is_last })
    }

    /// Parses the rest of `ON FAILURE OF a BYPASS`.
    fn on_failure(&mut self) -> Parsed<ChainOptionKind> {
        self.keywords(&["FAILURE", "OF"])?;
        let instance = self.ident("an instance")?;
        self.keyword("BYPASS")?;
        Ok(ChainOptionKind::BypassOnFailure { instance })
    }

    /// Parses a branch: `instance.edge -> element -> element`.
    fn branch(&mut self) -> Parsed<ChainOptionKind> {
        self.form = "instance.edge -> element -> element;";
        let from = self.path("an instance")?;
        self.expect(TokenKind::Arrow, "`->`")?;
        Ok(ChainOptionKind::Branch { from, stages: self.stages()? })
    }

    /// Parses `END;`, or reports that it is missing.
    pub(super) fn end_of_item(&mut self, kind: &str, name: &str, start: Span) {
        self.layout.line(self.index());
        if self.eat_keyword("END").is_none() {
            let place = self.previous_span().after();
            let diagnostic =
                Diagnostic::error(code::UNCLOSED_BLOCK, format!("{kind} `{name}` has no `END;`"))
                    .at(place, "`END;` goes here")
                    .with_label(start, "the cycle starts here")
                    .with_help(format!("every {kind} must end with `END;`"))
                    .with_fix(place, "\nEND;");
            self.fail(diagnostic);
            return;
        }
        // The only error here is a missing `;`; an item begins next in any case.
        let _ = self.semicolon();
    }
}
