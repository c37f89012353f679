//! A lexer for the lists: tokens with their positions.

use super::Fault;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A run of other characters.
    Word,
    /// Quoted text, without the quotes.
    Text,
    /// Quoted text without a closing quote: it extends to the end of the line.
    Open,
    /// One of `{`, `}`, `,`, `;`, `=`, or `!=`.
    Mark,
    /// The end of a line.
    Line,
    /// The end of the text.
    End,
}

/// A token.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Token<'a> {
    pub(crate) kind: Kind,
    pub(crate) text: &'a str,
    /// From 1.
    pub(crate) line: u32,
    pub(crate) column: u32,
}

impl Token<'_> {
    pub(crate) fn is(&self, text: &str) -> bool {
        matches!(self.kind, Kind::Word | Kind::Mark) && self.text == text
    }

    /// Whether it can be a value: neither a mark nor an end.
    pub(crate) fn is_value(&self) -> bool {
        matches!(self.kind, Kind::Word | Kind::Text)
    }

    /// Refuses a text whose quotes are not closed.
    pub(crate) fn closed(self) -> Result<Self, Fault> {
        match self.kind {
            Kind::Open => Err(self.fault("this quote is not closed on its line")),
            _ => Ok(self),
        }
    }

    /// A fault at this position.
    pub(crate) fn fault(&self, reason: impl Into<String>) -> Fault {
        Fault { line: self.line, column: self.column, reason: reason.into() }
    }
}

/// The tokens of a text. With `marks` the text is nftables': it has marks, `#` begins a comment, and a line that ends
/// in `\`
/// outside of a comment continues on the next. Otherwise marks are parts of words, only a whole line can be a comment,
/// and `\` in quotes escapes the next character.
pub(crate) fn tokens(text: &str, marks: bool) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let (mut goes_on, mut column) = (false, 1);
    for (nth, line) in text.lines().enumerate() {
        let number = nth as u32 + 1;
        goes_on = of_line(line, number, marks, &mut tokens);
        column = line.chars().count() as u32 + 1;
        if !goes_on {
            tokens.push(Token { kind: Kind::Line, text: "", line: number, column });
        }
    }
    let line = text.lines().count().max(1) as u32;
    if goes_on {
        tokens.push(Token { kind: Kind::Line, text: "", line, column });
    }
    tokens.push(Token { kind: Kind::End, text: "", line, column });
    tokens
}

/// Appends the tokens of a line. Returns whether it continues on the next.
fn of_line<'a>(line: &'a str, number: u32, marks: bool, tokens: &mut Vec<Token<'a>>) -> bool {
    let is_mark = |c: char| marks && matches!(c, '{' | '}' | ',' | ';' | '=');
    let mut rest = line;
    let (mut column, mut is_blank) = (1, true);
    while let Some(first) = rest.chars().next() {
        if first.is_whitespace() {
            rest = &rest[first.len_utf8()..];
            column += 1;
            continue;
        }
        if first == '#' && (marks || is_blank) {
            return false;
        }
        is_blank = false;
        if marks && rest == "\\" {
            return true;
        }
        let (kind, text, taken) = if first == '"' {
            let inside = &rest[1..];
            match end_of_text(inside, !marks) {
                Some(end) => (Kind::Text, &inside[..end], end + 2),
                None => (Kind::Open, inside, rest.len()),
            }
        } else if marks && rest.starts_with("!=") {
            (Kind::Mark, &rest[..2], 2)
        } else if is_mark(first) {
            (Kind::Mark, &rest[..1], 1)
        } else {
            let ends = |c: char| c.is_whitespace() || is_mark(c) || c == '"';
            let end = rest.find(ends).unwrap_or(rest.len());
            // Text that touches the `\` at the end of a line is a word of its own.
            let end =
                if marks && end == rest.len() && end > 1 && rest.ends_with('\\') { end - 1 } else { end };
            (Kind::Word, &rest[..end], end)
        };
        tokens.push(Token { kind, text, line: number, column });
        column += rest[..taken].chars().count() as u32;
        rest = &rest[taken..];
    }
    false
}

/// Finds the position of the closing quote.
fn end_of_text(inside: &str, escapes: bool) -> Option<usize> {
    let mut is_escaped = false;
    inside.find(|c: char| {
        let ends = c == '"' && !is_escaped;
        is_escaped = escapes && c == '\\' && !is_escaped;
        ends
    })
}
