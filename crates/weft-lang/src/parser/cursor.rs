//! The position in the token stream, error reporting and error recovery.
//!
//! A parse function returns `Parsed<T>`: the tree, or [`Failed`], which exists only after the error was reported. The
//! parser of a statement, a declaration or an item catches `Failed` and skips to the next point where parsing can
//! continue.

use crate::ast::{Ident, Path, StrLit};
use crate::diagnostic::{Code, Diagnostic, code};
use crate::lexer::{Lexed, Token, TokenKind, unquoted};
use crate::nearest::nearest_keyword;
use crate::source::{DIAGNOSTICS_MAX, Span};
use crate::types;
use weft_core::limits::NESTING_MAX;

use super::layout::Layout;

/// A fault that has been reported.
#[derive(Debug)]
pub(super) struct Failed(());

pub(super) type Parsed<T> = Result<T, Failed>;

/// Words that must be quoted as names, because statements and expressions would be ambiguous.
pub(super) const RESERVED: &[&str] = &[
    "ABORT",
    "AND",
    "AS",
    "BETWEEN",
    "CASE",
    "CREATE",
    "DELETE",
    "DO",
    "DROP",
    "ELSE",
    "ELSIF",
    "END",
    "EXISTS",
    "FALSE",
    "FORWARD",
    "FROM",
    "IF",
    "IN",
    "INSERT",
    "INTO",
    "IS",
    "JOIN",
    "LET",
    "LIKE",
    "NOT",
    "NULL",
    "ON",
    "OR",
    "RETURNING",
    "SELECT",
    "SET",
    "THEN",
    "TRUE",
    "UPDATE",
    "UPSERT",
    "USING",
    "VALUES",
    "WHEN",
    "WHERE",
];

/// The tokens expected at the end of a text: see [`super::expected_after`].
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Expected {
    /// Keywords.
    pub keywords: Vec<&'static str>,
    /// Other expectations, in the words of a message: `a table`, `an expression`.
    pub descriptions: Vec<String>,
    /// An example of the current construct, or empty.
    pub form: &'static str,
}

/// The maximum number of alternatives in a message.
const ALTERNATIVES_MAX: usize = 8;

pub(super) struct Parser<'a> {
    text: &'a str,
    tokens: Vec<Token>,
    at: usize,
    /// Keywords that were tried at this token: the message lists them if nothing matches.
    tried: Vec<&'static str>,
    /// The syntax of the current construct, for the help of its errors.
    pub(super) form: &'static str,
    pub(super) diagnostics: Vec<Diagnostic>,
    /// The number of errors so far, reported or not.
    pub(super) n_faults: usize,
    /// A limit was reached: the rest is neither parsed nor reported.
    reached_limit: bool,
    /// The expectations at the end of the text, up to the first error there.
    at_end: Expected,
    is_end_faulty: bool,
    depth: u32,
    /// The height of the expression being built; see `expr`.
    pub(super) height: u32,
    /// The open blocks of the current handler, outermost first.
    pub(super) blocks: Vec<Block>,
    /// The current handlers belong to a queue, which has its own verdicts.
    pub(super) in_queue: bool,
    pub(super) layout: Layout,
}

/// An open block of statements.
pub(super) struct Block {
    /// `IF`, `SCAN` or `UPDATE`: the word after its `END`.
    pub(super) word: &'static str,
    /// An `ELSE` may end it.
    pub(super) may_have_else: bool,
}

impl<'a> Parser<'a> {
    /// Starts at the first token.
    pub(super) fn new(text: &'a str, lexed: Lexed) -> Self {
        let layout = Layout::new(lexed.tokens.len(), lexed.comments);
        Self {
            text,
            tokens: lexed.tokens,
            at: 0,
            tried: Vec::new(),
            form: "",
            n_faults: lexed.diagnostics.len(),
            diagnostics: lexed.diagnostics,
            reached_limit: false,
            at_end: Expected::default(),
            is_end_faulty: false,
            depth: 0,
            height: 0,
            blocks: Vec::new(),
            in_queue: false,
            layout,
        }
    }

    /// The tokens with their layout, for the formatter.
    pub(super) fn into_parts(self) -> (Vec<Token>, Layout, Vec<Diagnostic>) {
        (self.tokens, self.layout, self.diagnostics)
    }

    /// The expectations at the end of the text.
    pub(super) fn into_expected(self) -> Expected {
        self.at_end
    }

    // ---- looking ----

    pub(super) fn token(&self) -> Token {
        self.tokens[self.at]
    }

    pub(super) fn index(&self) -> usize {
        self.at
    }

    pub(super) fn peek(&self, ahead: usize) -> TokenKind {
        self.tokens.get(self.at + ahead).map_or(TokenKind::Eof, |token| token.kind)
    }

    pub(super) fn at(&self, kind: TokenKind) -> bool {
        self.token().kind == kind
    }

    pub(super) fn at_eof(&self) -> bool {
        self.at(TokenKind::Eof)
    }

    pub(super) fn slice(&self, span: Span) -> &'a str {
        &self.text[span.range()]
    }

    /// The text of the token, if it is a word that may be a keyword.
    pub(super) fn word(&self) -> Option<&'a str> {
        self.at(TokenKind::Word).then(|| self.slice(self.token().span))
    }

    /// True if the token `ahead` is this keyword. Does not affect messages.
    pub(super) fn peek_keyword(&self, ahead: usize, keyword: &str) -> bool {
        self.tokens.get(self.at + ahead).is_some_and(|token| {
            token.kind == TokenKind::Word && self.slice(token.span).eq_ignore_ascii_case(keyword)
        })
    }

    /// The keyword-like words from a token up to the current one.
    pub(super) fn words_since(&self, first: usize) -> impl Iterator<Item = &'a str> {
        let tokens = self.tokens.get(first..self.at).unwrap_or_default().iter();
        tokens.filter(|token| token.kind == TokenKind::Word).map(|token| self.slice(token.span))
    }

    /// True if the token is this keyword; otherwise the keyword is listed as an alternative.
    pub(super) fn at_keyword(&mut self, keyword: &'static str) -> bool {
        let found = self.peek_keyword(0, keyword);
        if !found && !self.tried.contains(&keyword) {
            self.tried.push(keyword);
        }
        if !found {
            self.offer([keyword]);
        }
        found
    }

    pub(super) fn is_first_on_line(&self) -> bool {
        let Some(before) = self.at.checked_sub(1).map(|index| self.tokens[index]) else { return true };
        self.text[before.span.end as usize..self.token().span.start as usize].contains('\n')
    }

    /// Returns the span of the token before the current one.
    pub(super) fn previous_span(&self) -> Span {
        match self.at.checked_sub(1) {
            Some(index) => self.tokens[index].span,
            None => self.token().span.before(),
        }
    }

    /// From `start` to the last consumed token.
    pub(super) fn span_from(&self, start: Span) -> Span {
        let end = self.previous_span();
        if end.end >= start.end { start.to(end) } else { start }
    }

    /// Records keywords that are possible here, in case the text ends here. Does not affect messages.
    pub(super) fn offer(&mut self, keywords: impl IntoIterator<Item = &'static str>) {
        if !self.at_eof() || self.is_end_faulty {
            return;
        }
        self.at_end.form = self.form;
        for keyword in keywords {
            if !self.at_end.keywords.contains(&keyword) {
                self.at_end.keywords.push(keyword);
            }
        }
    }

    // ---- taking ----

    /// Consumes the current token, and returns it. The end of the file stays.
    pub(super) fn bump(&mut self) -> Token {
        let token = self.token();
        if token.kind != TokenKind::Eof {
            self.at += 1;
            self.tried.clear();
        }
        token
    }

    /// Takes the token as a keyword.
    pub(super) fn bump_keyword(&mut self) -> Span {
        self.layout.keyword(self.at);
        self.bump().span
    }

    /// Consumes a token of this kind, if it is next. Returns whether it was.
    pub(super) fn eat(&mut self, kind: TokenKind) -> bool {
        let found = self.at(kind);
        if found {
            self.bump();
        }
        found
    }

    pub(super) fn eat_keyword(&mut self, keyword: &'static str) -> Option<Span> {
        self.at_keyword(keyword).then(|| self.bump_keyword())
    }

    /// Consumes two consecutive keywords, or none.
    pub(super) fn eat_keywords(&mut self, first: &'static str, second: &'static str) -> Option<Span> {
        if !(self.at_keyword(first) && self.peek_keyword(1, second)) {
            return None;
        }
        let start = self.bump_keyword();
        Some(start.to(self.bump_keyword()))
    }

    /// Parses what follows a keyword, if the keyword is next.
    pub(super) fn after<T>(
        &mut self,
        keyword: &'static str,
        read: impl FnOnce(&mut Self) -> Parsed<T>,
    ) -> Parsed<Option<T>> {
        self.eat_keyword(keyword).map(|_| read(self)).transpose()
    }

    /// Consumes the keyword and returns its meaning.
    pub(super) fn choice<T: Copy>(&mut self, choices: &[(&'static str, T)]) -> Parsed<T> {
        for &(keyword, meaning) in choices {
            if self.eat_keyword(keyword).is_some() {
                return Ok(meaning);
            }
        }
        Err(self.expected(""))
    }

    pub(super) fn expect(&mut self, kind: TokenKind, what: &str) -> Parsed<Span> {
        if self.at(kind) { Ok(self.bump().span) } else { Err(self.expected(what)) }
    }

    /// Consumes a required keyword.
    pub(super) fn keyword(&mut self, keyword: &'static str) -> Parsed<Span> {
        match self.eat_keyword(keyword) {
            Some(span) => Ok(span),
            None => Err(self.expected("")),
        }
    }

    /// Consumes the keyword of a required clause; `why` describes the clause.
    pub(super) fn clause(&mut self, keyword: &'static str, why: &str) -> Parsed<Span> {
        if let Some(span) = self.eat_keyword(keyword) {
            return Ok(span);
        }
        // A misspelled keyword, or another word in its place, is a different error from a missing one.
        let goes_on = match self.token().kind {
            TokenKind::Word => !self.word().is_some_and(is_reserved) && !self.is_first_on_line(),
            TokenKind::Semicolon | TokenKind::RightParen | TokenKind::Eof => false,
            _ => true,
        };
        if goes_on {
            return Err(self.expected(""));
        }
        let place = self.previous_span().after();
        let mut diagnostic =
            Diagnostic::error(code::MISSING_CLAUSE, format!("`{keyword}` is missing: {why}"))
                .at(place, format!("`{keyword} ...` goes here"));
        if !self.form.is_empty() {
            diagnostic = diagnostic.with_help(format!("syntax: `{}`", self.form));
        }
        Err(self.fail(diagnostic))
    }

    /// Consumes these keywords in order. Returns their span.
    pub(super) fn keywords(&mut self, keywords: &[&'static str]) -> Parsed<Span> {
        let start = self.token().span;
        for keyword in keywords {
            self.keyword(keyword)?;
        }
        Ok(self.span_from(start))
    }

    /// Parses a name; `what` describes it, as in "a table name".
    pub(super) fn ident(&mut self, what: &str) -> Parsed<Ident> {
        let token = self.token();
        match self.word() {
            Some(word) if is_reserved(word) => {
                let message = format!("`{word}` is a keyword, but {what} is expected here");
                let diagnostic = Diagnostic::error(code::RESERVED_WORD, message)
                    .at(token.span, format!("expected {what}"))
                    .with_help(format!(
                        "to use a keyword as a name, write it in double quotes: `\"{word}\"`"
                    ));
                Err(self.fail(diagnostic))
            }
            None if token.kind != TokenKind::QuotedWord => Err(self.expected(what)),
            _ => Ok(self.any_word()),
        }
    }

    /// Parses a name with dots. `what` describes it in the error.
    pub(super) fn path(&mut self, what: &str) -> Parsed<Path> {
        let first = self.ident(what)?;
        let mut path = Path { span: first.span, segments: vec![first] };
        while self.eat(TokenKind::Dot) {
            // After a dot only a name can follow, so keywords are names there.
            if !matches!(self.token().kind, TokenKind::Word | TokenKind::QuotedWord) {
                return Err(self.expected("a name after `.`"));
            }
            let segment = self.any_word();
            path.span = path.span.to(segment.span);
            path.segments.push(segment);
        }
        Ok(path)
    }

    pub(super) fn string(&mut self, what: &str) -> Parsed<StrLit> {
        let span = self.expect(TokenKind::Str, what)?;
        Ok(StrLit { value: unquoted(self.slice(span)), span })
    }

    /// Parses one item or more, separated by commas.
    pub(super) fn comma_list<T>(&mut self, mut item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        let mut items = vec![item(self)?];
        while self.eat(TokenKind::Comma) {
            self.layout.weak(self.at);
            items.push(item(self)?);
        }
        Ok(items)
    }

    /// `( item, ... )` with one item or more.
    pub(super) fn paren_list<T>(&mut self, item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        self.expect(TokenKind::LeftParen, "`(`")?;
        let items = self.comma_list(item)?;
        self.expect(TokenKind::RightParen, "`,` or `)`")?;
        Ok(items)
    }

    /// Parses a list like [`Parser::paren_list`], but it may be empty or absent.
    pub(super) fn params<T>(&mut self, item: impl FnMut(&mut Self) -> Parsed<T>) -> Parsed<Vec<T>> {
        if !self.at(TokenKind::LeftParen) {
            return Ok(Vec::new());
        }
        if self.peek(1) == TokenKind::RightParen {
            self.bump();
            self.bump();
            return Ok(Vec::new());
        }
        self.paren_list(item)
    }

    /// The `;` that ends a statement. A missing one is reported and assumed.
    pub(super) fn semicolon(&mut self) -> Parsed<()> {
        if self.eat(TokenKind::Semicolon) {
            return Ok(());
        }
        let ends_here = self.at_eof() || self.peek_keyword(0, "END") || self.is_first_on_line();
        let is_typo =
            self.word().is_some_and(|word| nearest_keyword(word, self.tried.iter().copied()).is_some());
        if !ends_here || is_typo {
            return Err(self.expected("`;`"));
        }
        let place = self.previous_span().after();
        let diagnostic = Diagnostic::error(code::UNEXPECTED, "expected `;` at the end")
            .at(place, "`;` goes here")
            .with_help("every statement and option must end with `;`")
            .with_fix(place, ";");
        self.fail(diagnostic);
        Ok(())
    }

    // ---- faults ----

    /// Reports an unexpected token. `what` may be empty if keywords were tried.
    pub(super) fn expected(&mut self, what: &str) -> Failed {
        let token = self.token();
        if self.at_eof() && !self.is_end_faulty && !what.is_empty() {
            self.at_end.form = self.form;
            self.at_end.descriptions.push(what.to_owned());
        }
        if let Some(failed) = self.stray_sign() {
            return failed;
        }
        let found = self.describe_token();
        let tried = std::mem::take(&mut self.tried);
        let mut alternatives: Vec<String> =
            tried.iter().take(ALTERNATIVES_MAX).map(|word| format!("`{word}`")).collect();
        match alternatives.is_empty() {
            true => alternatives.push(what.to_owned()),
            // One list, with one `or`.
            false if !what.is_empty() => {
                let parts = what.split(" or ").map(|part| part.trim_end_matches(',').to_owned());
                alternatives.extend(parts);
            }
            false => {}
        }
        let list = one_of(&alternatives);
        let mut diagnostic = Diagnostic::error(code::UNEXPECTED, format!("expected {list}, found {found}"))
            .at(token.span, if self.at_eof() { "the text ends here" } else { "" });
        if self.follows_a_text() {
            diagnostic = diagnostic
                .with_label(self.previous_span(), "this text literal ends here")
                .with_help("write a quote inside a text twice: `'it''s'`");
        } else if let Some(quantity) = self.bare_quantity() {
            let (span, text) = quantity;
            let quoted = format!("'{text}'");
            return self.fail(
                diagnostic
                    .with_help(format!("write the value with its unit in quotes: `{quoted}`"))
                    .with_fix(span, quoted),
            );
        } else if let Some(meant) = self.word().and_then(|word| nearest_keyword(word, tried.iter().copied()))
        {
            diagnostic = diagnostic.with_help(format!("did you mean `{meant}`?")).with_fix(token.span, meant);
        }
        if !self.form.is_empty() {
            diagnostic = diagnostic.with_help(format!("syntax: `{}`", self.form));
        }
        self.fail(diagnostic)
    }

    /// Reports a sign that is only valid in a wire format.
    fn stray_sign(&mut self) -> Option<Failed> {
        let help = match self.token().kind {
            TokenKind::Bar => "write `OR`, or `||` to join texts",
            TokenKind::Colon => "use `:=` to bind a column, and `.` to select a field",
            _ => return None,
        };
        let span = self.token().span;
        let message = format!("`{}` has no meaning here", self.slice(span));
        Some(self.fail_at(span, code::BAD_CHARACTER, &message, help))
    }

    /// True at a word directly after a text, as in `'it's'`.
    fn follows_a_text(&self) -> bool {
        let Some(before) = self.at.checked_sub(1).map(|index| self.tokens[index]) else { return false };
        let is_beside = before.span.end == self.token().span.start;
        before.kind == TokenKind::Str && is_beside && self.at(TokenKind::Word)
    }

    /// At the unit of a number without quotes, `5 ms`: the span of both, and their text.
    fn bare_quantity(&self) -> Option<(Span, String)> {
        let number = self.tokens[self.at.checked_sub(1)?];
        let is_number = matches!(number.kind, TokenKind::Int | TokenKind::Float);
        let text = format!("{} {}", self.slice(number.span), self.word().filter(|_| is_number)?);
        let is_quantity = types::interval(&text).is_some() || types::size(&text).is_some();
        is_quantity.then(|| (number.span.to(self.token().span), text))
    }

    pub(super) fn fail_at(&mut self, span: Span, code: Code, message: &str, help: &str) -> Failed {
        self.fail(Diagnostic::error(code, message).at(span, "").with_help(help))
    }

    /// Reports an error, unless the lexer has already reported one here.
    pub(super) fn fail(&mut self, diagnostic: Diagnostic) -> Failed {
        self.n_faults += 1;
        self.is_end_faulty |= self.at_eof();
        let is_reported =
            self.token().broken || self.at.checked_sub(1).is_some_and(|index| self.tokens[index].broken);
        if self.reached_limit || is_reported {
            return Failed(());
        }
        if self.diagnostics.len() >= DIAGNOSTICS_MAX {
            let message = format!("more than {DIAGNOSTICS_MAX} errors; the rest of the file is not parsed");
            let last = Diagnostic::error(code::TOO_MANY_DIAGNOSTICS, message)
                .at(self.token().span, "parsing stops here");
            self.diagnostics.push(last);
            self.give_up();
            return Failed(());
        }
        self.diagnostics.push(diagnostic);
        Failed(())
    }

    /// Runs `read` one level of nesting deeper. At the limit, the rest of the file is skipped: it would be misparsed
    /// and cause false errors.
    pub(super) fn nested<T>(&mut self, read: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= NESTING_MAX {
            let message =
                format!("nested more than {NESTING_MAX} levels deep; the rest of the file is not parsed");
            let diagnostic = Diagnostic::error(code::NESTING_TOO_DEEP, message)
                .at(self.token().span, "")
                .with_help("name an inner part with `LET x = ...;`");
            let failed = self.fail(diagnostic);
            self.give_up();
            return Err(failed);
        }
        self.depth += 1;
        let result = read(self);
        self.depth -= 1;
        result
    }

    /// Rejects a list that is too long.
    pub(super) fn bounded(&mut self, n: usize, most: usize, what: &str, span: Span) -> Parsed<()> {
        if n <= most {
            return Ok(());
        }
        let message = format!("there are {n} {what}; at most {most} are allowed");
        let help = match what {
            "arguments of a function" => "call it on parts, and name them with `LET x = ...;`",
            "joins of a SELECT" => "write several SELECTs, one after the other",
            _ => "keep the values in a table, and look them up there by a key",
        };
        Err(self.fail_at(span, code::OVER_LIMIT, &message, help))
    }

    /// Skips tokens until `stop` returns true, or to the end.
    pub(super) fn skip_until(&mut self, mut stop: impl FnMut(&Self) -> bool) {
        while !self.at_eof() && !stop(self) {
            self.bump();
        }
    }

    /// Moves to the end of the file, after too many faults.
    fn give_up(&mut self) {
        self.reached_limit = true;
        self.at = self.tokens.len() - 1;
        self.tried.clear();
    }

    /// Consumes a word as a name, even if it is reserved.
    fn any_word(&mut self) -> Ident {
        let token = self.bump();
        let text = self.slice(token.span);
        let name = if token.kind == TokenKind::QuotedWord { unquoted(text) } else { text.to_owned() };
        Ident { name, span: token.span }
    }

    /// Describes the current token for an error.
    fn describe_token(&self) -> String {
        let token = self.token();
        let text = self.slice(token.span);
        match token.kind {
            TokenKind::Eof => "the end of the file".to_owned(),
            TokenKind::Word if is_reserved(text) => format!("keyword `{}`", text.to_ascii_uppercase()),
            TokenKind::Str => format!("text `{}`", shortened(text)),
            TokenKind::Int | TokenKind::Float => format!("number `{}`", shortened(text)),
            _ => format!("`{}`", shortened(text)),
        }
    }
}

pub(super) fn is_reserved(word: &str) -> bool {
    RESERVED.iter().any(|reserved| reserved.eq_ignore_ascii_case(word))
}

/// `a`, `a or b`, `a, b or c`.
pub(super) fn one_of(alternatives: &[String]) -> String {
    match alternatives {
        [] => "something else".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// A shortened token for a message.
fn shortened(text: &str) -> String {
    const CHARS_MAX: usize = 40;
    match text.char_indices().nth(CHARS_MAX) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}
