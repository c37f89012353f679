//! Lexer: turns the text of a file into tokens and comments.
//!
//! Keywords are ordinary words here; the parser knows where a word is a keyword, so fields named `key` or `last` need
//! no quotes. Comments are kept apart from the tokens, in order, for the formatter. Nothing is lost and nothing
//! fails: what cannot be read becomes a diagnostic and, where that helps the parser, a token marked broken.

use crate::diagnostic::{Diagnostic, code};
use crate::source::{DIAGNOSTICS_MAX, FileId, Span};

/// The class of a token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TokenKind {
    /// `name`, `SELECT`
    Word,
    /// `"name"`: a name even if it is a keyword.
    QuotedWord,
    /// `42`, `1_000`, `0xff`
    Int,
    /// `1.5`, `1e6`
    Float,
    /// `'text'`
    Str,
    /// `(`
    LeftParen,
    /// `)`
    RightParen,
    /// `[`
    LeftBracket,
    /// `]`
    RightBracket,
    /// `{`
    LeftBrace,
    /// `}`
    RightBrace,
    /// `,`
    Comma,
    /// `;`
    Semicolon,
    /// `.`
    Dot,
    /// `?`
    Question,
    /// `:=`
    Bind,
    /// `:`
    Colon,
    /// `|`
    Bar,
    /// `->`
    Arrow,
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
    Ampersand,
    /// `+`
    Plus,
    /// `-`
    Minus,
    /// `*`
    Star,
    /// `/`
    Slash,
    /// `%`
    Percent,
    /// The end of the text; always the last token, and empty.
    Eof,
}

/// One token.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Token {
    /// The kind.
    pub kind: TokenKind,
    /// The lexer has already reported an error for this token, or for the text before it.
    pub broken: bool,
    /// The span.
    pub span: Span,
}

/// A comment, `-- ...` to the end of its line or `/* ... */`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Comment {
    /// With its markers, without the line break.
    pub span: Span,
    /// `/* ... */`
    pub is_block: bool,
    /// Number of tokens before it.
    pub n_tokens_before: u32,
}

/// The result of [`lex`].
#[derive(Clone, Debug)]
pub struct Lexed {
    /// The tokens, the last one [`TokenKind::Eof`].
    pub tokens: Vec<Token>,
    /// The comments in order.
    pub comments: Vec<Comment>,
    /// Lexical errors, at most [`DIAGNOSTICS_MAX`].
    pub diagnostics: Vec<Diagnostic>,
}

/// Splits `text` into tokens; `text` is at most [`SOURCE_BYTES_MAX`](crate::source::SOURCE_BYTES_MAX) long.
pub fn lex(file: FileId, text: &str) -> Lexed {
    let lexed = Lexed { tokens: Vec::new(), comments: Vec::new(), diagnostics: Vec::new() };
    let mut lexer = Lexer { file, text, bytes: text.as_bytes(), at: 0, breaks_next: false, out: lexed };
    if text.starts_with('\u{feff}') {
        lexer.at = '\u{feff}'.len_utf8();
    }
    while lexer.at < text.len() {
        lexer.step();
    }
    lexer.push(TokenKind::Eof, text.len());
    lexer.out
}

/// The value of an [`TokenKind::Int`] token; `None` if it does not fit 64 bits or has no digits.
pub(crate) fn int_value(token: &str) -> Option<u64> {
    let digits = token.replace('_', "");
    match digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X")) {
        Some(hex) => u64::from_str_radix(hex, 16).ok(),
        None => digits.parse().ok(),
    }
}

/// The value of a [`TokenKind::Float`] token; `None` if it is not finite.
pub(crate) fn float_value(token: &str) -> Option<f64> {
    token.replace('_', "").parse().ok().filter(|value: &f64| value.is_finite())
}

/// The text of a [`TokenKind::Str`] or [`TokenKind::QuotedWord`] token without quotes.
pub(crate) fn unquoted(token: &str) -> String {
    let Some(quote) = token.chars().next() else { return String::new() };
    let inner = &token[quote.len_utf8()..];
    let inner = if inner.is_empty() { inner } else { inner.strip_suffix(quote).unwrap_or(inner) };
    inner.replace(&format!("{quote}{quote}"), &quote.to_string())
}

/// The maximum length of a word shown in a message.
const WORD_CHARS_SHOWN: usize = 20;

struct Lexer<'a> {
    file: FileId,
    text: &'a str,
    bytes: &'a [u8],
    at: usize,
    /// The text before the next token could not be read.
    breaks_next: bool,
    out: Lexed,
}

impl Lexer<'_> {
    /// Reads one token, comment or blank at the current position.
    fn step(&mut self) {
        use TokenKind::*;
        let next = self.peek(1);
        match self.bytes[self.at] {
            b' ' | b'\t' | b'\n' | b'\r' => self.at += 1,
            b'-' if next == Some(b'-') => self.line_comment(),
            b'/' if next == Some(b'*') => self.block_comment(),
            b'/' if next == Some(b'/') => self.slash_comment(),
            b'\'' => self.quoted('\'', Str),
            b'"' => self.quoted('"', QuotedWord),
            b'0'..=b'9' => self.number(),
            b'_' | b'a'..=b'z' | b'A'..=b'Z' => {
                let end = self.end_of_word(self.at);
                if self.bytes.get(end).is_some_and(|byte| !byte.is_ascii()) {
                    self.bad_word()
                } else {
                    self.push(Word, end)
                }
            }
            b'(' => self.punctuation(LeftParen, 1),
            b')' => self.punctuation(RightParen, 1),
            b'[' => self.punctuation(LeftBracket, 1),
            b']' => self.punctuation(RightBracket, 1),
            b'{' => self.punctuation(LeftBrace, 1),
            b'}' => self.punctuation(RightBrace, 1),
            b',' => self.punctuation(Comma, 1),
            b';' => self.punctuation(Semicolon, 1),
            b'.' => self.punctuation(Dot, 1),
            b'?' => self.punctuation(Question, 1),
            b':' if next == Some(b'=') => self.punctuation(Bind, 2),
            b':' if next != Some(b':') => self.punctuation(Colon, 1),
            b'-' if next == Some(b'>') => self.punctuation(Arrow, 2),
            b'<' if next == Some(b'>') => self.punctuation(Ne, 2),
            b'!' if next == Some(b'=') => self.punctuation(Ne, 2),
            b'<' if next == Some(b'=') => self.punctuation(Le, 2),
            b'>' if next == Some(b'=') => self.punctuation(Ge, 2),
            b'|' if next == Some(b'|') => self.punctuation(Concat, 2),
            b'|' => self.punctuation(Bar, 1),
            b'&' if next != Some(b'&') => self.punctuation(Ampersand, 1),
            b'=' if next == Some(b'=') => self.double_equals(),
            b'=' => self.punctuation(Eq, 1),
            b'<' => self.punctuation(Lt, 1),
            b'>' => self.punctuation(Gt, 1),
            b'+' => self.punctuation(Plus, 1),
            b'-' => self.punctuation(Minus, 1),
            b'*' => self.punctuation(Star, 1),
            b'/' => self.punctuation(Slash, 1),
            b'%' => self.punctuation(Percent, 1),
            _ if self.text[self.at..].starts_with(char::is_alphabetic) => self.bad_word(),
            _ => self.bad_characters(),
        }
    }

    fn peek(&self, ahead: usize) -> Option<u8> {
        self.bytes.get(self.at + ahead).copied()
    }

    fn span(&self, end: usize) -> Span {
        Span::new(self.file, self.at as u32, end as u32)
    }

    /// Adds a token that ends at `end`.
    fn push(&mut self, kind: TokenKind, end: usize) {
        let broken = std::mem::take(&mut self.breaks_next);
        self.out.tokens.push(Token { kind, broken, span: self.span(end) });
        self.at = end;
    }

    /// Adds a token that is already reported as wrong.
    fn push_broken(&mut self, kind: TokenKind, end: usize, diagnostic: Diagnostic) {
        self.report(diagnostic);
        self.breaks_next = false;
        self.out.tokens.push(Token { kind, broken: true, span: self.span(end) });
        self.at = end;
    }

    fn punctuation(&mut self, kind: TokenKind, n_bytes: usize) {
        self.push(kind, self.at + n_bytes);
    }

    /// Adds a diagnostic, up to [`DIAGNOSTICS_MAX`].
    fn report(&mut self, diagnostic: Diagnostic) {
        if self.out.diagnostics.len() < DIAGNOSTICS_MAX {
            self.out.diagnostics.push(diagnostic);
        }
    }

    fn end_of_word(&self, from: usize) -> usize {
        let is_word = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
        from + self.bytes[from..].iter().take_while(|byte| is_word(byte)).count()
    }

    /// Returns the position of the end of the line.
    fn end_of_line(&self) -> usize {
        let rest = &self.bytes[self.at..];
        let n_bytes = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let line = &rest[..n_bytes];
        self.at + n_bytes - usize::from(line.last() == Some(&b'\r'))
    }

    fn line_comment(&mut self) {
        let end = self.end_of_line();
        self.comment(end, false);
    }

    /// Reports `// ...`, which is not a comment here.
    fn slash_comment(&mut self) {
        let span = self.span(self.at + 2);
        let diagnostic = Diagnostic::error(code::BAD_CHARACTER, "`//` has no meaning here")
            .at(span, "")
            .with_help("start a comment with `--`")
            .with_fix(span, "--");
        self.report(diagnostic);
        self.line_comment();
    }

    /// Reads a `/* */` comment. Reports a comment without an end.
    fn block_comment(&mut self) {
        match self.text[self.at + 2..].find("*/") {
            Some(n_bytes) => self.comment(self.at + 2 + n_bytes + 2, true),
            None => {
                let diagnostic = Diagnostic::error(code::UNTERMINATED_COMMENT, "a comment has no end")
                    .at(self.span(self.at + 2), "opened here")
                    .with_help("close it with `*/`");
                self.report(diagnostic);
                self.comment(self.text.len(), true);
            }
        }
    }

    /// Adds a comment that ends at `end`.
    fn comment(&mut self, end: usize, is_block: bool) {
        let n_tokens_before = self.out.tokens.len() as u32;
        self.out.comments.push(Comment { span: self.span(end), is_block, n_tokens_before });
        self.at = end;
    }

    /// Reads a string or a quoted name. It ends at the end of its line at the latest; otherwise one missing quote
    /// would swallow the file.
    fn quoted(&mut self, quote: char, kind: TokenKind) {
        let mut end = self.at + 1;
        // The end of the line is searched only if no quote is found: a line may have very many strings.
        while let Some(byte) = self.bytes.get(end).filter(|byte| **byte != b'\n') {
            if *byte == quote as u8 {
                if self.bytes.get(end + 1) == Some(&(quote as u8)) {
                    end += 1;
                } else {
                    return self.push(kind, end + 1);
                }
            }
            end += 1;
        }
        let line_end = self.end_of_line();
        let what = if kind == TokenKind::Str { "string" } else { "quoted name" };
        let diagnostic =
            Diagnostic::error(code::UNTERMINATED_STRING, format!("this {what} has no closing quote"))
                .at(self.span(line_end), "opened here, not closed on this line")
                .with_help(format!("close it with `{quote}`; write a quote inside twice: `{quote}{quote}`"));
        self.push_broken(kind, line_end, diagnostic);
    }

    /// Reads an integer, a float or a hexadecimal number.
    fn number(&mut self) {
        let is_hex = self.bytes[self.at] == b'0' && matches!(self.peek(1), Some(b'x' | b'X'));
        let mut end = self.at;
        let mut kind = TokenKind::Int;
        if is_hex {
            end = self.end_of_word(self.at + 2);
        } else {
            end = self.end_of_digits(end);
            if self.bytes.get(end) == Some(&b'.') && self.bytes.get(end + 1).is_some_and(u8::is_ascii_digit) {
                kind = TokenKind::Float;
                end = self.end_of_digits(end + 1);
            }
            if let Some(digits) = self.exponent_digits(end) {
                kind = TokenKind::Float;
                end = self.end_of_digits(digits);
            }
        }
        let word_end = self.end_of_word(end);
        let text = &self.text[self.at..word_end];
        let readable = match kind {
            TokenKind::Float => float_value(text).is_some(),
            _ => int_value(text).is_some(),
        };
        if readable && !text.ends_with('_') {
            return self.push(kind, word_end);
        }
        let diagnostic = self.bad_number(kind, is_hex, end, word_end);
        self.push_broken(kind, word_end, diagnostic);
    }

    /// Describes the fault of a number. `end` is the end of its digits, `word_end` that of the word.
    fn bad_number(&self, kind: TokenKind, is_hex: bool, end: usize, word_end: usize) -> Diagnostic {
        let text = &self.text[self.at..word_end];
        let diagnostic = Diagnostic::error(code::BAD_NUMBER, format!("`{text}` is not a number"));
        if word_end > end {
            let (digits, unit) = (&self.text[self.at..end], &self.text[end..word_end]);
            return diagnostic
                .at(self.span(word_end), "a word directly after a number")
                .with_help(format!("write an interval or a size in quotes: `'{digits} {unit}'`"));
        }
        if is_hex && let Some(wrong) = text.chars().skip(2).find(|c| !c.is_ascii_hexdigit() && *c != '_') {
            return diagnostic
                .at(self.span(word_end), format!("`{wrong}` is not a hexadecimal digit"))
                .with_help("hexadecimal digits are `0` to `9` and `a` to `f`");
        }
        if kind == TokenKind::Float {
            return diagnostic
                .at(self.span(word_end), "does not fit an F64")
                .with_help("the largest F64 is about 1.8e308");
        }
        let all_digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'_');
        if kind == TokenKind::Int && !is_hex && all_digits && !text.ends_with('_') {
            return diagnostic
                .at(self.span(word_end), "does not fit 64 bits")
                .with_help(format!("the largest integer is {}", u64::MAX));
        }
        diagnostic
            .at(self.span(word_end), "not a valid number")
            .with_help("write `1000`, `1_000`, `0x3e8`, `1.5` or `1e3`")
    }

    fn end_of_digits(&self, from: usize) -> usize {
        let rest = &self.bytes[from..];
        from + rest.iter().take_while(|byte| byte.is_ascii_digit() || **byte == b'_').count()
    }

    /// Where the digits of an exponent start, if one is at `at`.
    fn exponent_digits(&self, at: usize) -> Option<usize> {
        if !matches!(self.bytes.get(at), Some(b'e' | b'E')) {
            return None;
        }
        let digits = if matches!(self.bytes.get(at + 1), Some(b'+' | b'-')) { at + 2 } else { at + 1 };
        self.bytes.get(digits).is_some_and(u8::is_ascii_digit).then_some(digits)
    }

    /// Reads `==` as `=`, and reports it.
    fn double_equals(&mut self) {
        let span = self.span(self.at + 2);
        let diagnostic = Diagnostic::error(code::BAD_CHARACTER, "`==` is not an operator")
            .at(span, "")
            .with_help("write `=` for equality")
            .with_fix(span, "=");
        self.push_broken(TokenKind::Eq, self.at + 2, diagnostic);
    }

    /// Reads a word with characters that names cannot have: one error, and the word is still a token.
    fn bad_word(&mut self) {
        let rest = &self.text[self.at..];
        let n_bytes = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
        let end = self.at + n_bytes;
        if n_bytes == self.end_of_word(self.at) - self.at {
            return self.push(TokenKind::Word, end);
        }
        let shown: String = rest[..n_bytes].chars().take(WORD_CHARS_SHOWN).collect();
        let diagnostic = Diagnostic::error(
            code::BAD_CHARACTER,
            format!("`{shown}` contains characters that names cannot have"),
        )
        .at(self.span(end), "")
        .with_help(format!(
            "names consist of `a` to `z`, digits and `_`; put other names in double quotes: `\"{shown}\"`"
        ));
        self.push_broken(TokenKind::Word, end, diagnostic);
    }

    /// Reports a run of invalid characters as one error.
    fn bad_characters(&mut self) {
        let rest = &self.text[self.at..];
        let is_known = |c: char| c.is_ascii_alphanumeric() || " \t\r\n_'\"()[]{},;.?=<>+-*/%".contains(c);
        let first = rest.chars().next().map_or(0, char::len_utf8);
        let end = self.at + rest[first..].find(is_known).map_or(rest.len(), |n_bytes| first + n_bytes);
        let run = &self.text[self.at..end];
        let shown: String = run.chars().take(WORD_CHARS_SHOWN).flat_map(char::escape_debug).collect();
        let (help, fix) = match run {
            "&" | "&&" => ("write `AND`", Some("AND")),
            "!" => ("write `NOT`, or `<>` for `not equal`", Some("NOT ")),
            "::" => ("use `:=` to bind a column, and `.` to select a field", None),
            "#" => ("start a comment with `--`", Some("--")),
            "`" | "\u{2018}" | "\u{2019}" | "\u{201c}" | "\u{201d}" => {
                ("use `'single quotes'` for text and `\"double quotes\"` for names", None)
            }
            "\0" => ("this is not text; is it the right file?", None),
            _ => ("names consist of letters, digits and `_`; put anything else in quotes", None),
        };
        let span = self.span(end);
        let diagnostic = Diagnostic::error(code::BAD_CHARACTER, format!("`{shown}` has no meaning here"))
            .at(span, "")
            .with_help(help);
        self.report(match fix {
            Some(fix) => diagnostic.with_fix(span, fix),
            None => diagnostic,
        });
        // The missing operator or quote was already reported.
        self.breaks_next = true;
        self.at = end;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Lexes `text` and lists kinds with their text, then comments, then the codes of the diagnostics.
    fn check(text: &str, expect: &str) {
        let lexed = lex(FileId(0), text);
        let slice = |span: Span| &text[span.range()];
        let mut parts: Vec<String> =
            lexed.tokens.iter().map(|token| format!("{:?}:{}", token.kind, slice(token.span))).collect();
        parts.pop();
        parts.extend(lexed.comments.iter().map(|comment| format!("#{}", slice(comment.span))));
        parts.extend(lexed.diagnostics.iter().map(|diagnostic| format!("!{}", diagnostic.message)));
        assert_eq!(parts.join(" "), expect);
    }

    #[test]
    fn numbers_read_as_written() {
        // `1.x` must stay a number and a dot, and `5s` must not become `5 AS s`.
        check("1 1_000 0xFf 1.5 1e6 2.5e-3", "Int:1 Int:1_000 Int:0xFf Float:1.5 Float:1e6 Float:2.5e-3");
        check("1.x", "Int:1 Dot:. Word:x");
        check("5s", "Int:5s !`5s` is not a number");
        check(
            "1_ 0x 1e999",
            "Int:1_ Int:0x Float:1e999 !`1_` is not a number !`0x` is not a number !`1e999` is not a number",
        );
        check("18446744073709551616", "Int:18446744073709551616 !`18446744073709551616` is not a number");
        assert_eq!(int_value("0x1_0"), Some(16));
        assert_eq!(float_value("1_0.5"), Some(10.5));
    }

    #[test]
    fn strings_end_at_end_of_line() {
        // A missing quote must cost one line, not the file.
        check("'it''s' \"from\"", "Str:'it''s' QuotedWord:\"from\"");
        check("'a\nb", "Str:'a Word:b !this string has no closing quote");
        check("'a''\r\nb", "Str:'a'' Word:b !this string has no closing quote");
        assert_eq!(unquoted("'it''s'"), "it's");
        assert_eq!(unquoted("''''"), "'");
        assert_eq!(unquoted("'"), "");
    }

    #[test]
    fn comments_are_kept_and_counted() {
        check("a -- b\r\n/* c\n*/ d", "Word:a Word:d #-- b #/* c\n*/");
        check("a /* b", "Word:a #/* b !a comment has no end");
        check("a--b", "Word:a #--b");
    }

    #[test]
    fn operators_take_longest_match() {
        check(
            "a:=b->c<>d!=e<=f||g&h",
            "Word:a Bind::= Word:b Arrow:-> Word:c Ne:<> Word:d Ne:!= Word:e Le:<= Word:f Concat:|| Word:g \
             Ampersand:& Word:h",
        );
        check("a == b", "Word:a Eq:== Word:b !`==` is not an operator");
        check(
            "a && b \u{1F600}\u{1F600}c",
            "Word:a Word:b Word:c !`&&` has no meaning here !`\u{1F600}\u{1F600}` has no meaning here",
        );
    }
}
