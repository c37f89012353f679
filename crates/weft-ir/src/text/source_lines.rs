//! Splits the text form into lines and words for the parsers.

use super::ParseError;
use crate::ir::Value;
use core::fmt::Write as _;
use core::str::FromStr;

/// The non-empty lines of a text.
pub(super) struct SourceLines<'a> {
    lines: core::iter::Enumerate<core::str::Lines<'a>>,
    at: usize,
}

/// The rest of a line.
pub(super) struct SourceLine<'a> {
    rest: &'a str,
    number: usize,
    /// The number in a comment `; line 4`, else 0.
    pub(super) source_line: u32,
}

impl<'a> SourceLines<'a> {
    pub(super) fn of(text: &'a str) -> Self {
        Self { lines: text.lines().enumerate(), at: 0 }
    }

    /// Reads the next line; an error that `what` was expected at the end of the text.
    pub(super) fn expect_line(&mut self, what: &str) -> Result<SourceLine<'a>, ParseError> {
        let found = self.next();
        found.ok_or_else(|| self.error(what))
    }

    /// The error that `what` was expected at the current position.
    pub(super) fn error(&self, what: &str) -> ParseError {
        ParseError { line: self.at, what: format!("expected {what}") }
    }
}

impl<'a> Iterator for SourceLines<'a> {
    type Item = SourceLine<'a>;

    fn next(&mut self) -> Option<SourceLine<'a>> {
        for (index, text) in self.lines.by_ref() {
            self.at = index + 1;
            let (code, comment) = split_comment(text);
            let source_line = comment.trim().strip_prefix("line ").and_then(|n| n.trim().parse().ok());
            let rest = code.trim();
            if !rest.is_empty() {
                return Some(SourceLine { rest, number: self.at, source_line: source_line.unwrap_or(0) });
            }
        }
        None
    }
}

/// Splits at the first `;` outside quotes.
fn split_comment(text: &str) -> (&str, &str) {
    let (mut quoted, mut escaped) = (false, false);
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ';' if !quoted => return (&text[..at], &text[at + 1..]),
            _ => {}
        }
    }
    (text, "")
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '-' | '+' | '?')
}

impl SourceLine<'_> {
    /// Makes an error that says what was expected here and what was found.
    pub(super) fn error(&self, what: &str) -> ParseError {
        let found = match self.rest.chars().take(20).collect::<String>() {
            rest if rest.is_empty() => String::from("the line ends"),
            rest => format!("found `{rest}`"),
        };
        ParseError { line: self.number, what: format!("expected {what}, {found}") }
    }

    /// Checks that the line ends here.
    pub(super) fn expect_end(&self) -> Result<(), ParseError> {
        if self.rest.is_empty() { Ok(()) } else { Err(self.error("the end of the line")) }
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.rest.is_empty()
    }

    /// Skips a character if it comes next; false if not.
    pub(super) fn eat(&mut self, c: char) -> bool {
        let rest = self.rest.strip_prefix(c);
        if let Some(rest) = rest {
            self.rest = rest.trim_start();
        }
        rest.is_some()
    }

    /// Skips a character; an error if it does not come next.
    pub(super) fn expect(&mut self, c: char) -> Result<(), ParseError> {
        if self.eat(c) { Ok(()) } else { Err(self.error(&format!("`{c}`"))) }
    }

    /// The next word; empty if none follows.
    pub(super) fn peek_word(&self) -> &str {
        let end = self.rest.find(|c| !is_word_char(c)).unwrap_or(self.rest.len());
        &self.rest[..end]
    }

    fn skip(&mut self, bytes: usize) {
        self.rest = self.rest[bytes..].trim_start();
    }

    /// Skips a word if it comes next; false if not.
    pub(super) fn eat_word(&mut self, word: &str) -> bool {
        let found = self.peek_word() == word;
        if found {
            self.skip(word.len());
        }
        found
    }

    /// Skips a word or a `=`; an error if it does not come next.
    pub(super) fn keyword(&mut self, word: &str) -> Result<(), ParseError> {
        if word == "=" {
            return self.expect('=');
        }
        if self.eat_word(word) { Ok(()) } else { Err(self.error(&format!("`{word}`"))) }
    }

    /// Reads the next word; an error if there is none.
    pub(super) fn word(&mut self, what: &str) -> Result<String, ParseError> {
        let word = self.peek_word().to_string();
        if word.is_empty() {
            return Err(self.error(what));
        }
        self.skip(word.len());
        Ok(word)
    }

    /// Reads the next word and looks it up in a table of names; an error if it is not there.
    pub(super) fn one_of<T: Copy>(
        &mut self,
        table: &[(&'static str, T)],
        what: &str,
    ) -> Result<T, ParseError> {
        let named = table.iter().find(|(name, _)| *name == self.peek_word());
        let found = named.ok_or_else(|| self.error(what))?.1;
        self.skip(self.peek_word().len());
        Ok(found)
    }

    /// Reads the next word as a number; an error if it is not one.
    pub(super) fn number<T: FromStr>(&mut self) -> Result<T, ParseError> {
        let number = self.peek_word().parse().map_err(|_| self.error("a number"))?;
        self.skip(self.peek_word().len());
        Ok(number)
    }

    /// Reads a word of `prefix` and a number, such as `t0`; returns the number.
    pub(super) fn id<T: FromStr>(&mut self, prefix: &str) -> Result<T, ParseError> {
        let digits =
            self.peek_word().strip_prefix(prefix).filter(|d| d.starts_with(|c: char| c.is_ascii_digit()));
        let id = digits.and_then(|d| d.parse().ok());
        let id = id.ok_or_else(|| self.error(&format!("`{prefix}` and a number")))?;
        self.skip(self.peek_word().len());
        Ok(id)
    }

    pub(super) fn is_value(&self) -> bool {
        let digits = self.peek_word().strip_prefix('v');
        digits.is_some_and(|d| !d.is_empty() && d.bytes().all(|b| b.is_ascii_digit()))
    }

    pub(super) fn value(&mut self) -> Result<Value, ParseError> {
        self.id("v").map(Value)
    }

    /// Whether a quoted text follows.
    pub(super) fn is_text(&self) -> bool {
        self.rest.starts_with('"')
    }

    /// Reads values separated by commas; none if the line ends or a `)` follows.
    pub(super) fn values(&mut self) -> Result<Vec<Value>, ParseError> {
        let mut values = Vec::new();
        if !self.is_value() {
            return Ok(values);
        }
        loop {
            values.push(self.value()?);
            if !self.eat(',') {
                return Ok(values);
            }
        }
    }

    /// Reads a float, as [`write_float`] writes it.
    pub(super) fn float(&mut self) -> Result<f64, ParseError> {
        let word = self.word("a float")?;
        let float = match word.strip_prefix("bits.0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok().map(f64::from_bits),
            None => word.parse().ok(),
        };
        float.ok_or_else(|| self.error("a float before this"))
    }

    /// Reads bytes in quotes, as [`quote`] writes them.
    pub(super) fn bytes(&mut self) -> Result<Vec<u8>, ParseError> {
        let Some(inside) = self.rest.strip_prefix('"') else { return Err(self.error("a text in quotes")) };
        let mut bytes = Vec::new();
        let mut chars = inside.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '"' => {
                    self.rest = inside[at + 1..].trim_start();
                    return Ok(bytes);
                }
                '\\' => bytes.push(self.escape(&mut chars)?),
                c => bytes.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes()),
            }
        }
        Err(self.error("a closing quote"))
    }

    /// Decodes an escape sequence after its backslash.
    fn escape(&self, chars: &mut core::str::CharIndices<'_>) -> Result<u8, ParseError> {
        let mut next = || chars.next().map(|(_, c)| c);
        let byte = match next() {
            Some('n') => Some(b'\n'),
            Some(c @ ('"' | '\\')) => Some(c as u8),
            Some('x') => match (next().and_then(|c| c.to_digit(16)), next().and_then(|c| c.to_digit(16))) {
                (Some(high), Some(low)) => Some((high << 4 | low) as u8),
                _ => None,
            },
            _ => None,
        };
        byte.ok_or_else(|| self.error("an escape (\\n, \\\", \\\\ or \\x and two digits) in this"))
    }

    /// Reads bytes in quotes that are UTF-8.
    pub(super) fn text(&mut self) -> Result<String, ParseError> {
        let bytes = self.bytes()?;
        String::from_utf8(bytes).map_err(|_| self.error("UTF-8 before this"))
    }
}

/// Writes bytes in quotes; bytes other than printable ASCII are escaped.
pub(super) fn quote(out: &mut String, bytes: &[u8]) {
    out.push('"');
    for &byte in bytes {
        match byte {
            b'\n' => out.push_str("\\n"),
            b'"' | b'\\' => out.extend(['\\', byte as char]),
            b' '..=b'~' => out.push(byte as char),
            _ => {
                let _ = write!(out, "\\x{byte:02x}");
            }
        }
    }
    out.push('"');
}

/// Writes a float so that it reads back exactly.
pub(super) fn write_float(out: &mut String, float: f64) {
    let _ = match float.is_nan() {
        true => write!(out, "bits.0x{:016x}", float.to_bits()),
        false => write!(out, "{float:?}"),
    };
}
