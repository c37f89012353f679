//! Editor support for programs that are being written: the meaning, declaration and uses of names, completion, and
//! documentation of words.
//!
//! Everything works on text with errors, because text is incomplete while it is typed. Names are resolved in the syntax
//! trees. Documentation of names comes from the trees, from the tables of the language, and from the typed program as
//! far as it exists.

use crate::check::Analysis;
use crate::lexer::{Token, TokenKind, lex};
use crate::source::{FileId, Span};

pub mod complete;
mod fields;
pub mod hover;
pub mod index;
mod manual;
mod queues;
pub mod tokens;
pub mod words;

pub use fields::field_at;

/// A program with its names.
#[derive(Debug)]
pub struct Program {
    /// The results of the checker.
    pub analysis: Analysis,
    /// Declarations and uses.
    pub index: index::Index,
}

impl Program {
    /// Indexes the names of a program.
    pub fn new(analysis: Analysis) -> Self {
        let index = index::Index::new(&analysis.program);
        Self { analysis, index }
    }

    /// The text of a file.
    fn text(&self, file: FileId) -> &str {
        self.analysis.sources.file(file).text()
    }

    fn slice(&self, span: Span) -> &str {
        self.analysis.sources.slice(span)
    }
}

/// The tokens of a text without the end token.
fn tokens_of(file: FileId, text: &str) -> Vec<Token> {
    let mut tokens = lex(file, text).tokens;
    tokens.retain(|token| token.kind != TokenKind::Eof);
    tokens
}
