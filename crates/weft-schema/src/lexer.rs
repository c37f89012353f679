//! The lexer of `.proto` files.

use core::ops::Range;

/// A token and its byte range.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Token {
    pub(crate) kind: TokenKind,
    pub(crate) span: Range<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    Int,
    Float,
    String,
    /// One punctuation character.
    Mark(u8),
    End,
}

/// Why a text is not a `.proto` file, and where.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) why: String,
    pub(crate) span: Range<usize>,
}

/// Yields the tokens in order. Clone it to look ahead.
#[derive(Clone)]
pub(crate) struct Lexer<'t> {
    text: &'t str,
    pos: usize,
}

impl<'t> Lexer<'t> {
    /// A lexer at the start of a text. Skips a byte order mark.
    pub(crate) fn new(text: &'t str) -> Self {
        Self { text, pos: if text.starts_with('\u{feff}') { 3 } else { 0 } }
    }

    pub(crate) fn text(&self) -> &'t str {
        self.text
    }

    /// Reads the next token. At the end it returns [`TokenKind::End`] every time.
    pub(crate) fn next(&mut self) -> Result<Token, SyntaxError> {
        self.space()?;
        let start = self.pos;
        let kind = match self.byte(0) {
            None => TokenKind::End,
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => {
                self.skip_while(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
                TokenKind::Word
            }
            Some(b'0'..=b'9') => self.number(),
            Some(b'.') if self.byte(1).is_some_and(|byte| byte.is_ascii_digit()) => self.number(),
            Some(quote @ (b'"' | b'\'')) => self.string(quote)?,
            Some(mark) if mark.is_ascii_punctuation() => {
                self.pos += 1;
                TokenKind::Mark(mark)
            }
            Some(_) => {
                let odd = self.text[start..].chars().next().unwrap_or_default();
                let span = start..start + odd.len_utf8();
                return Err(SyntaxError { why: format!("{odd:?} is not expected here"), span });
            }
        };
        Ok(Token { kind, span: start..self.pos })
    }

    fn byte(&self, ahead: usize) -> Option<u8> {
        self.text.as_bytes().get(self.pos + ahead).copied()
    }

    fn skip_while(&mut self, is_part: impl Fn(u8) -> bool) {
        let rest = &self.text.as_bytes()[self.pos..];
        self.pos += rest.iter().position(|&byte| !is_part(byte)).unwrap_or(rest.len());
    }

    /// Skips spaces and comments.
    fn space(&mut self) -> Result<(), SyntaxError> {
        loop {
            self.skip_while(|byte| byte.is_ascii_whitespace() || byte == 0x0b);
            let rest = &self.text[self.pos..];
            if rest.starts_with("//") {
                self.skip_while(|byte| byte != b'\n');
            } else if let Some(comment) = rest.strip_prefix("/*") {
                let Some(length) = comment.find("*/") else {
                    let span = self.pos..self.pos + 2;
                    return Err(SyntaxError { why: "this comment has no end: `*/`".to_owned(), span });
                };
                self.pos += length + 4;
            } else {
                return Ok(());
            }
        }
    }

    /// Reads a number in any base. The code that needs its value checks the digits.
    fn number(&mut self) -> TokenKind {
        let start = self.pos;
        let is_hex = self.byte(0) == Some(b'0') && matches!(self.byte(1), Some(b'x' | b'X'));
        let mut is_float = false;
        while let Some(byte) = self.byte(0) {
            let is_exponent = !is_hex && matches!(byte, b'e' | b'E');
            if byte == b'.' || is_exponent {
                is_float = true;
            } else if !byte.is_ascii_alphanumeric() {
                break;
            }
            self.pos += 1;
            if is_exponent && matches!(self.byte(0), Some(b'+' | b'-')) {
                self.pos += 1;
            }
        }
        debug_assert!(self.pos > start, "a number has a digit");
        if is_float { TokenKind::Float } else { TokenKind::Int }
    }

    /// Reads a string literal up to its closing quote, which must be on the same line.
    fn string(&mut self, quote: u8) -> Result<TokenKind, SyntaxError> {
        let start = self.pos;
        self.pos += 1;
        loop {
            self.skip_while(|byte| byte != quote && byte != b'\\' && byte != b'\n');
            match self.byte(0) {
                Some(byte) if byte == quote => {
                    self.pos += 1;
                    return Ok(TokenKind::String);
                }
                // Skip the escaped character too: an escaped quote does not end the string.
                Some(b'\\') => {
                    let skipped = self.text[self.pos + 1..].chars().next();
                    self.pos += 1 + skipped.map_or(0, char::len_utf8);
                }
                _ => {
                    let why = "this string is not closed on its line".to_owned();
                    return Err(SyntaxError { why, span: start..self.pos });
                }
            }
        }
    }
}

/// The value of an integer in any base. `None` if it is not an integer or exceeds 64 bits.
pub(crate) fn int_value(text: &str) -> Option<u64> {
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    match (hex, text.strip_prefix('0')) {
        (Some(digits), _) => u64::from_str_radix(digits, 16).ok(),
        (None, Some(digits)) if !digits.is_empty() => u64::from_str_radix(digits, 8).ok(),
        _ => text.parse().ok(),
    }
}
