//! Parses types, and `CREATE TYPE`.

use crate::ast::{Item, SchemaKind, TypeExpr, TypeItem, TypeKind};
use crate::diagnostic::code;
use crate::lexer::{TokenKind, int_value};

use super::Create;
use super::cursor::{Parsed, Parser};

pub(super) const TYPE_FORM: &str = "CREATE TYPE cart FROM PROTO 'cart.proto';";

/// The maximum length of `TEXT(n)` or `BYTES(n)`: a value must fit in a table row.
const TEXT_BYTES_MAX: u32 = 1 << 16;

const TYPES: &[(&str, TypeKind)] = &[
    ("BOOL", TypeKind::Bool),
    ("I8", TypeKind::I8),
    ("I16", TypeKind::I16),
    ("I32", TypeKind::I32),
    ("I64", TypeKind::I64),
    ("INT", TypeKind::I64),
    ("U1", TypeKind::U1),
    ("U8", TypeKind::U8),
    ("U16", TypeKind::U16),
    ("U32", TypeKind::U32),
    ("U64", TypeKind::U64),
    ("F64", TypeKind::F64),
    ("TEXT", TypeKind::Text(None)),
    ("BYTES", TypeKind::Bytes(None)),
    ("SIZE", TypeKind::Size),
    ("INTERVAL", TypeKind::Interval),
    ("TIMESTAMP", TypeKind::Timestamp),
    ("IPADDR", TypeKind::IpAddr),
    ("CIDR", TypeKind::Cidr),
    ("MAC", TypeKind::Mac),
    ("ENDPOINT", TypeKind::Endpoint),
    ("STATUS", TypeKind::Status),
];

pub(super) fn words() -> impl Iterator<Item = &'static str> {
    TYPES.iter().map(|(name, _)| *name)
}

impl Parser<'_> {
    /// Parses `CREATE TYPE`.
    pub(super) fn type_item(&mut self, create: Create) -> Parsed<Item> {
        let name = self.ident("a name for the type")?;
        self.keyword("FROM")?;
        let kinds = [("PROTO", SchemaKind::Proto), ("DESCRIPTORS", SchemaKind::Descriptors)];
        let source = self.choice(&kinds)?;
        let path = self.string(match source {
            SchemaKind::Proto => "the path of a `.proto` file, in quotes",
            SchemaKind::Descriptors => "the path of a descriptor set, in quotes",
        })?;
        let has_roots = source == SchemaKind::Proto && self.eat_keyword("IN").is_some();
        let roots =
            if has_roots { self.comma_list(|p| p.string("a folder, in quotes"))? } else { Vec::new() };
        self.semicolon()?;
        let span = self.span_from(create.start);
        Ok(Item::Type(TypeItem { or_replace: create.or_replace, name, source, path, roots, span }))
    }

    /// Parses a type.
    pub(super) fn type_expr(&mut self) -> Parsed<TypeExpr> {
        self.offer(TYPES.iter().map(|(name, _)| *name));
        let start = self.token().span;
        let word = self.word().unwrap_or_default();
        let known = TYPES.iter().find(|(name, _)| name.eq_ignore_ascii_case(word));
        let kind = match known {
            Some((_, kind)) if self.peek(1) != TokenKind::Dot => {
                self.bump_keyword();
                self.type_length(kind.clone())?
            }
            _ => TypeKind::Named(self.path("a type, such as `TEXT` or `I64`")?),
        };
        let nullable = self.eat(TokenKind::Question);
        Ok(TypeExpr { kind, nullable, span: self.span_from(start) })
    }

    /// Parses the length in parentheses, if present. Only TEXT and BYTES have one.
    fn type_length(&mut self, kind: TypeKind) -> Parsed<TypeKind> {
        if !self.at(TokenKind::LeftParen) {
            return Ok(kind);
        }
        if !matches!(kind, TypeKind::Text(_) | TypeKind::Bytes(_)) {
            let span = self.token().span;
            let help = "only `TEXT(n)` and `BYTES(n)` have a length";
            return Err(self.fail_at(span, code::BAD_TYPE_LENGTH, "this type has no length", help));
        }
        self.layout.tight(self.index());
        self.bump();
        let span = self.expect(TokenKind::Int, "a length in bytes")?;
        self.expect(TokenKind::RightParen, "`)`")?;
        let length = int_value(self.slice(span)).filter(|n| (1..=u64::from(TEXT_BYTES_MAX)).contains(n));
        let Some(length) = length else {
            let help = format!("write a length of 1 to {TEXT_BYTES_MAX} bytes");
            return Err(self.fail_at(span, code::BAD_TYPE_LENGTH, "this length is out of range", &help));
        };
        let length = Some(length as u32);
        Ok(if matches!(kind, TypeKind::Text(_)) { TypeKind::Text(length) } else { TypeKind::Bytes(length) })
    }
}
