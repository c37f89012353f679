//! Token classes for semantic highlighting.

use super::Program;
use super::index::SymbolKind;
use crate::ast::Kind;
use crate::check::functions::{AGGREGATES, find};
use crate::lexer::{TokenKind, lex};
use crate::parser::parse_with_layout;
use crate::source::{FileId, Span};

/// The class of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum TokenClass {
    Keyword,
    Type,
    Function,
    /// A top-level name: an element, a chain, a listener, a cluster, a route.
    Object,
    Table,
    /// A parameter of an element.
    Parameter,
    /// A column, a cell of the call, a field.
    Column,
    /// A local, a row, a variable.
    Variable,
    Number,
    Text,
    Comment,
}

/// A token with its class, and whether it is a declaration.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClassedToken {
    /// The token.
    pub span: Span,
    /// The kind.
    pub class: TokenClass,
    /// The name is declared here.
    pub is_declaration: bool,
}

/// Returns the tokens of a file that have a class, in source order.
pub fn classes(program: &Program, file: FileId) -> Vec<ClassedToken> {
    let parse = parse_with_layout(&program.analysis.sources, file);
    let mut found: Vec<ClassedToken> = Vec::new();
    for (at, token) in parse.tokens.iter().enumerate() {
        let mut is_declaration = false;
        let class = match token.kind {
            TokenKind::Int | TokenKind::Float => Some(TokenClass::Number),
            TokenKind::Str => Some(TokenClass::Text),
            TokenKind::Word | TokenKind::QuotedWord => {
                let named = program.index.at(file, token.span.start).filter(|found| found.span == token.span);
                let opens = parse.tokens.get(at + 1).is_some_and(|next| next.kind == TokenKind::LeftParen);
                let text = program.slice(token.span);
                if parse.layout.tokens[at].is_keyword {
                    Some(keyword_class(text))
                } else if let Some(named) = named {
                    is_declaration = named.is_declaration;
                    Some(class_of(program.index.symbol(named.symbol).kind))
                } else if opens
                    && (find(text).is_some() || AGGREGATES.contains(&text.to_ascii_lowercase().as_str()))
                {
                    Some(TokenClass::Function)
                } else {
                    program.index.field_at(file, token.span.start).map(|_| TokenClass::Column)
                }
            }
            _ => None,
        };
        found.extend(class.map(|class| ClassedToken { span: token.span, class, is_declaration }));
    }
    let comments = lex(file, program.text(file)).comments;
    found.extend(comments.iter().map(|comment| ClassedToken {
        span: comment.span,
        class: TokenClass::Comment,
        is_declaration: false,
    }));
    found.sort_by_key(|token| token.span.start);
    found
}

fn keyword_class(text: &str) -> TokenClass {
    let is_type = crate::parser::type_names().any(|name| name.eq_ignore_ascii_case(text));
    if is_type { TokenClass::Type } else { TokenClass::Keyword }
}

/// Returns the token class of a symbol.
pub(super) const fn class_of(kind: SymbolKind) -> TokenClass {
    use SymbolKind as K;
    match kind {
        K::Item(Kind::Type | Kind::Protocol) => TokenClass::Type,
        K::Item(Kind::Table) | K::Sink | K::Sketch => TokenClass::Table,
        K::Item(Kind::Function) => TokenClass::Function,
        K::Item(_) | K::Instance | K::Edge | K::Signal | K::Handler => TokenClass::Object,
        K::Param => TokenClass::Parameter,
        K::Column(_) | K::TableColumn | K::CallCell | K::SinkColumn | K::WireField => TokenClass::Column,
        K::Var | K::Local | K::Row => TokenClass::Variable,
    }
}
