//! Parses wire formats: `CREATE PROTOCOL`.

use crate::ast::{
    EncapSet, Expr, Item, Payload, PayloadChoice, PayloadLength, Protocol, ProtocolClause, ProtocolUnion,
    SwitchArm, UnionColumn, WireField, WireItem, WireRule, WireRuleKind, WireUntil, WireWidth,
};
use crate::diagnostic::code;
use crate::lexer::{TokenKind, int_value};
use crate::source::Span;

use super::Create;
use super::cursor::{Parsed, Parser};

pub(super) const PROTOCOL_FORM: &str =
    "CREATE PROTOCOL udp (src_port bit(16), ..., PAYLOAD bytes) BIND ipv4 WHERE protocol = 17;";
const FIELD_FORM: &str = "vni bit(24), options bytes(4 * len) MAX 40";

/// An item in the parentheses of a protocol.
enum Part {
    Item(WireItem),
    Payload(Payload),
}

impl Parser<'_> {
    /// Parses `CREATE PROTOCOL`: a wire format, or a union of protocols.
    pub(super) fn protocol(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the protocol")?;
        if self.peek_keyword(0, "ANY") {
            return self.protocol_union(create, name);
        }
        self.expect(TokenKind::LeftParen, "`(` and the header, or `ANY OF (...)`")?;
        self.layout.deeper();
        let parts = self.wire_parts()?;
        self.layout.shallower();
        self.expect(TokenKind::RightParen, "`,` or `)`")?;
        let (mut items, mut payload) = (Vec::new(), None);
        for part in parts {
            match part {
                Part::Item(item) => items.push(item),
                Part::Payload(found) => payload = Some(found),
            }
        }
        self.form = PROTOCOL_FORM;
        self.layout.deeper();
        let clauses = self.protocol_clauses()?;
        self.layout.shallower();
        self.semicolon()?;
        let (or_replace, span) = (create.or_replace, self.span_from(create.start));
        Ok(Item::Protocol(Protocol { or_replace, name, items, payload, clauses, span }))
    }

    /// The header, then PAYLOAD, which must be last.
    fn wire_parts(&mut self) -> Parsed<Vec<Part>> {
        let mut parts = Vec::new();
        loop {
            self.wire_line(parts.is_empty());
            if self.at_payload() {
                parts.push(Part::Payload(self.payload()?));
                if self.at(TokenKind::Comma) {
                    let message = "PAYLOAD must be the last item";
                    let help = "the payload is the rest of the packet: declare all fields before it";
                    return Err(self.fail_at(self.token().span, code::UNEXPECTED, message, help));
                }
                return Ok(parts);
            }
            parts.push(Part::Item(self.wire_item()?));
            if !self.eat(TokenKind::Comma) {
                return Ok(parts);
            }
        }
    }

    /// Records the start of an item. Authors put the fields of one word on a line; the formatter keeps that.
    fn wire_line(&mut self, is_first: bool) {
        if is_first || self.is_first_on_line() {
            self.layout.line(self.index());
        } else {
            self.layout.strong_within(self.index());
        }
    }

    /// True at a keyword that begins a clause, not at a field of that name.
    fn at_wire_word(&mut self, keyword: &'static str) -> bool {
        let is_width = self.peek_keyword(1, "BIT") || self.peek_keyword(1, "BYTES");
        let is_field = is_width && self.peek(2) == TokenKind::LeftParen;
        !is_field && self.at_keyword(keyword)
    }

    fn at_payload(&mut self) -> bool {
        self.at_wire_word("PAYLOAD")
    }

    /// Parses the items of a header, in parentheses.
    fn wire_items(&mut self) -> Parsed<Vec<WireItem>> {
        self.nested(|p| {
            p.expect(TokenKind::LeftParen, "`(`")?;
            p.layout.deeper();
            let items = p.comma_list(|p| {
                p.wire_line(false);
                p.wire_item()
            })?;
            p.layout.shallower();
            p.expect(TokenKind::RightParen, "`,` or `)`")?;
            Ok(items)
        })
    }

    /// Parses a field, a WHEN or a REPEAT.
    fn wire_item(&mut self) -> Parsed<WireItem> {
        let start = self.token().span;
        self.form = FIELD_FORM;
        if self.eat_keyword("WHEN").is_some() {
            self.form = "WHEN (flag) ( option bit(32) )";
            let condition = self.wire_condition()?;
            let items = self.wire_items()?;
            return Ok(WireItem::When { condition, items, span: self.span_from(start) });
        }
        if self.at_wire_word("REPEAT") {
            self.bump_keyword();
            return self.repeat(start);
        }
        Ok(WireItem::Field(Box::new(self.wire_field()?)))
    }

    /// `(e)`
    fn wire_condition(&mut self) -> Parsed<Expr> {
        self.expect(TokenKind::LeftParen, "`(` and a condition")?;
        let condition = self.nested(Self::expr)?;
        self.expect(TokenKind::RightParen, "an operator or `)`")?;
        Ok(condition)
    }

    /// Parses a REPEAT after its keyword.
    fn repeat(&mut self, start: Span) -> Parsed<WireItem> {
        const FORM: &str = "REPEAT labels ( label bit(20), s bit(1), ttl bit(11) ) UNTIL (s) MAX 16";
        let name = self.ident("a name for the repetition")?;
        let items = self.wire_items()?;
        self.form = FORM;
        self.layout.weak(self.index());
        let until = if self.eat_keyword("UNTIL").is_some() {
            WireUntil::Condition(self.wire_condition()?)
        } else if self.eat_keyword("COUNT").is_some() {
            WireUntil::Count(self.wire_condition()?)
        } else {
            self.clause("BYTES", "a repetition needs an end: `UNTIL (e)`, `COUNT (e)` or `BYTES (e)`")?;
            WireUntil::Bytes(self.wire_condition()?)
        };
        let max = self.after("MAX", Self::amount)?;
        Ok(WireItem::Repeat { name, items, until, max, span: self.span_from(start) })
    }

    /// Parses a field with its width, type and rule.
    fn wire_field(&mut self) -> Parsed<WireField> {
        let name = self.ident("a field, such as `vni bit(24)`")?;
        let width = self.wire_width()?;
        let ty = self.after("AS", Self::type_expr)?;
        let rule = self.wire_rule()?;
        self.layout.weak(self.index());
        let check = self.after("CHECK", Self::wire_condition)?;
        let span = self.span_from(name.span);
        Ok(WireField { name, width, ty, rule, check, span })
    }

    /// Parses a width: `bit(n)` or `bytes(n)`.
    fn wire_width(&mut self) -> Parsed<WireWidth> {
        let is_bits = self.at_keyword("BIT");
        if !is_bits && !self.at_keyword("BYTES") {
            return Err(self.expected(""));
        }
        self.bump();
        self.layout.tight(self.index());
        let n = self.wire_condition()?;
        if is_bits {
            return Ok(WireWidth::Bits { n, little: self.eat_keyword("LITTLE") });
        }
        let max = self.after("MAX", Self::amount)?;
        Ok(WireWidth::Bytes { count: n, max })
    }

    /// Parses the rule of a field, if present.
    fn wire_rule(&mut self) -> Parsed<Option<WireRule>> {
        let start = self.token().span;
        self.layout.weak(self.index());
        let kind = if self.eat(TokenKind::Eq) {
            WireRuleKind::Constant(self.amount()?)
        } else if self.eat_keyword("DEFAULT").is_some() {
            WireRuleKind::Default(self.expr()?)
        } else if self.eat_keyword("COMPUTED").is_some() {
            WireRuleKind::Computed(self.wire_condition()?)
        } else if self.eat_keyword("RESERVED").is_some() {
            WireRuleKind::Reserved
        } else {
            return Ok(None);
        };
        Ok(Some(WireRule { kind, span: self.span_from(start) }))
    }

    // ---- payload --------------------------

    /// Parses PAYLOAD.
    fn payload(&mut self) -> Parsed<Payload> {
        self.form = "PAYLOAD SWITCH (type) ( 1: ipv4, 2, 3: INNER ethernet, ELSE bytes ) LENGTH len";
        let start = self.bump_keyword();
        let choice = self.payload_choice()?;
        self.layout.weak(self.index());
        let length = self.after("LENGTH", |p| {
            let of_layer = p.eat_keywords("OF", "LAYER").is_some();
            Ok(PayloadLength { of_layer, value: p.expr()? })
        })?;
        self.layout.weak(self.index());
        let when = self.after("WHEN", Self::wire_condition)?;
        Ok(Payload { choice, length, when, span: self.span_from(start) })
    }

    /// Parses the protocol of the payload: bytes, a protocol, or a SWITCH.
    fn payload_choice(&mut self) -> Parsed<PayloadChoice> {
        if self.at_keyword("BYTES") {
            return Ok(PayloadChoice::Bytes(self.bump().span));
        }
        if let Some(start) = self.eat_keyword("SWITCH") {
            return self.nested(|p| p.switch(start));
        }
        let inner = self.eat_keyword("INNER");
        let name = self.ident("a protocol, or `bytes`")?;
        let or_bytes = self.eat_keyword("OR").is_some();
        if or_bytes {
            self.keyword("BYTES")?;
        }
        Ok(PayloadChoice::Protocol { inner, name, or_bytes })
    }

    /// Parses a SWITCH after its keyword.
    fn switch(&mut self, start: Span) -> Parsed<PayloadChoice> {
        let on = self.wire_condition()?;
        self.expect(TokenKind::LeftParen, "`(` and the arms")?;
        let (mut arms, mut otherwise) = (Vec::new(), None);
        loop {
            self.layout.weak(self.index());
            if !arms.is_empty() && self.eat_keyword("ELSE").is_some() {
                otherwise = Some(Box::new(self.payload_choice()?));
                break;
            }
            arms.push(self.switch_arm()?);
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.expect(TokenKind::RightParen, "`,` or `)`")?;
        Ok(PayloadChoice::Switch { on, arms, otherwise, span: self.span_from(start) })
    }

    /// Parses one arm of a SWITCH.
    fn switch_arm(&mut self) -> Parsed<SwitchArm> {
        let mut labels = Vec::new();
        loop {
            let span = self.expect(TokenKind::Int, "a number, then `:` and a choice")?;
            labels.push((int_value(self.slice(span)).unwrap_or_default(), span));
            if !self.eat(TokenKind::Comma) {
                break;
            }
        }
        self.expect(TokenKind::Colon, "`:` and a protocol, or `bytes`")?;
        Ok(SwitchArm { labels, choice: self.payload_choice()? })
    }

    // ---- clauses ----

    /// Parses the BIND and ENCAP clauses of a protocol.
    fn protocol_clauses(&mut self) -> Parsed<Vec<ProtocolClause>> {
        let mut clauses = Vec::new();
        loop {
            let (start, first) = (self.token().span, self.index());
            let clause = if self.eat_keyword("BIND").is_some() {
                self.bind(start)?
            } else if self.eat_keyword("ON").is_some() {
                self.keywords(&["ENCAP", "SET"])?;
                let set = self.comma_list(Self::encap_set)?;
                ProtocolClause::Encap { set, span: self.span_from(start) }
            } else if self.eat_keyword("SESSION").is_some() {
                self.keyword("KEY")?;
                let fields = self.paren_list(|p| p.path("a field"))?;
                ProtocolClause::SessionKey { fields, span: self.span_from(start) }
            } else if self.eat_keyword("MALFORMED").is_some() {
                self.keywords(&["IS", "PAYLOAD"])?;
                ProtocolClause::MalformedIsPayload { span: self.span_from(start) }
            } else if self.eat_keyword("ERROR").is_some() {
                self.clause("WHERE", "ERROR needs a condition on the header")?;
                let condition = self.expr()?;
                ProtocolClause::Error { condition, span: self.span_from(start) }
            } else {
                return Ok(clauses);
            };
            self.layout.line(first);
            clauses.push(clause);
        }
    }

    /// Parses a BIND after its keyword.
    fn bind(&mut self, start: Span) -> Parsed<ProtocolClause> {
        let lower = self.ident("the protocol below")?;
        let inner = self.eat_keyword("INNER");
        self.clause("WHERE", "BIND needs a condition on the lower protocol")?;
        let condition = self.expr()?;
        let otherwise = self.after("OTHERWISE", |p| p.expr().map(Box::new))?;
        Ok(ProtocolClause::Bind { lower, inner, condition, otherwise, span: self.span_from(start) })
    }

    /// Parses one assignment of ENCAP.
    fn encap_set(&mut self) -> Parsed<EncapSet> {
        let field = self.path("a protocol and its field, such as `udp.dst_port`")?;
        self.equals()?;
        let value = self.expr()?;
        let span = self.span_from(field.span);
        Ok(EncapSet { field, value, span })
    }

    // ---- unions ----

    /// Parses a union of protocols, after its name.
    fn protocol_union(&mut self, create: Create, name: crate::ast::Ident) -> Parsed<Item> {
        self.form = "CREATE PROTOCOL ip ANY OF (ipv4, ipv6) COLUMNS (src, ttl = ipv4.ttl | ipv6.hop_limit);";
        self.keywords(&["ANY", "OF"])?;
        let members = self.paren_list(|p| p.ident("a protocol"))?;
        self.layout.strong(self.index(), 1);
        let columns = self.after("COLUMNS", |p| p.paren_list(Self::union_column))?.unwrap_or_default();
        self.semicolon()?;
        let (or_replace, span) = (create.or_replace, self.span_from(create.start));
        Ok(Item::Union(ProtocolUnion { or_replace, name, members, columns, span }))
    }

    /// Parses a column of a union.
    fn union_column(&mut self) -> Parsed<UnionColumn> {
        let name = self.ident("a column")?;
        let (mut fields, mut last) = (Vec::new(), false);
        if self.eat(TokenKind::Eq) {
            // Before anything other than a name, it is a name itself.
            let is_in_front = matches!(self.peek(1), TokenKind::Word | TokenKind::QuotedWord);
            last = is_in_front && self.eat_keyword("LAST").is_some();
            fields.push(self.path("a protocol and its field, such as `ipv4.ttl`")?);
            self.layout.weak(self.index());
            while self.eat(TokenKind::Bar) {
                fields.push(self.path("a protocol and its field")?);
                self.layout.weak(self.index());
            }
        }
        let span = self.span_from(name.span);
        Ok(UnionColumn { name, fields, last, span })
    }
}
