//! Formats Weft source text in the standard layout: line breaks, indentation and spaces.
//!
//! The formatter prints the tokens of the file in the same order; it changes only the white space between them and the
//! case of keywords. So it cannot change the meaning of a program, and every comment survives. The parser provides the
//! positions of line starts and possible line breaks.
//!
//! A statement takes one line if it fits in [`LINE_COLUMNS_MAX`]. If not, it is broken before its main clauses, and a
//! clause that is still too long is filled line by line. Comments stay on their line or at their place. One empty line
//! is kept where the author left one or more.

use crate::lexer::{Comment, Token, TokenKind};
use crate::parser::layout::{Break, Layout};
use crate::parser::parse_with_layout;
use crate::source::{FileId, SourceMap, Span};

/// Widest line that is not broken, in characters. A long string, name or comment can still exceed it.
pub const LINE_COLUMNS_MAX: usize = 110;

const INDENT_COLUMNS: usize = 2;

/// The formatted text of a file; `None` if the file has a syntax error, because a misread text must not be rewritten.
///
/// Formatting is idempotent and does not change the syntax tree.
///
/// ```
/// let mut sources = weft_lang::source::SourceMap::new();
/// let file = sources.add("net.weft", "drop element acl ;-- gone").unwrap();
/// assert_eq!(weft_lang::format::format(&sources, file).unwrap(), "DROP ELEMENT acl;  -- gone\n");
/// ```
///
/// # Panics
/// If `file` is not of `sources`.
pub fn format(sources: &SourceMap, file: FileId) -> Option<String> {
    let parse = parse_with_layout(sources, file);
    if !parse.diagnostics.is_empty() {
        return None;
    }
    let text = sources.file(file).text();
    let pieces = Pieces { text, tokens: &parse.tokens, layout: &parse.layout }.collect();
    Some(Printer { out: String::new() }.print(&pieces))
}

/// A token or a comment, ready to print.
struct Piece {
    text: String,
    n_columns: usize,
    /// A space before this piece, if the previous piece is on the same line.
    space: bool,
    before: PieceBreak,
    /// Parentheses open before it.
    depth: u32,
    /// An empty line was before it.
    after_blank: bool,
    /// A comment; it is ignored when the width of a line is checked, so that adding one moves nothing.
    is_comment: bool,
}

/// The line break before a piece.
#[derive(Clone, Copy, PartialEq, Eq)]
enum PieceBreak {
    None,
    Weak,
    Strong {
        extra: usize,
    },
    /// A forced line break within a statement, because of a comment.
    Forced,
    Line {
        indent: usize,
    },
}

// ---- tokens to pieces ------------------------------------------------------------------------------------------

struct Pieces<'a> {
    text: &'a str,
    tokens: &'a [Token],
    layout: &'a Layout,
}

impl Pieces<'_> {
    /// Turns tokens and comments into pieces with the line breaks in front of them.
    fn collect(&self) -> Vec<Piece> {
        let mut pieces: Vec<Piece> = Vec::with_capacity(self.tokens.len());
        let mut comments = self.layout.comments.iter().peekable();
        let mut depth = 0;
        let mut end_before = 0;
        let mut indent = 0;
        let inline = self.tokens_kept_inline();
        for (index, token) in self.tokens.iter().enumerate() {
            let mut before = match self.layout.tokens[index].before {
                // A line cannot break at the end of an absent clause.
                _ if token.kind == TokenKind::Semicolon => PieceBreak::None,
                Break::None => PieceBreak::None,
                Break::Weak => PieceBreak::Weak,
                Break::Strong { extra } => PieceBreak::Strong { extra: extra.into() },
                Break::Line { .. } if inline[index] => PieceBreak::Weak,
                Break::Line { indent } => PieceBreak::Line { indent: indent.into() },
            };
            if token.kind == TokenKind::Eof {
                before = PieceBreak::Line { indent: 0 };
            }
            if let PieceBreak::Line { indent: level } = before {
                indent = level;
            }
            let starts_line = matches!(before, PieceBreak::Line { .. });
            // Comments before `END` belong to the block that it closes.
            let closes = starts_line && ["END", "ELSE", "ELSIF"].iter().any(|word| self.is_word(token, word));
            let comment_indent = if closes { indent + 1 } else { indent };
            let mut forced = false;
            while let Some(comment) = comments.next_if(|comment| comment.n_tokens_before as usize == index) {
                let piece = self.comment(comment, end_before, starts_line, comment_indent, pieces.is_empty());
                forced |= !comment.is_block || piece.before != PieceBreak::None;
                end_before = comment.span.end;
                pieces.push(Piece { depth, ..piece });
            }
            if token.kind == TokenKind::Eof {
                break;
            }
            if forced && !starts_line {
                before = match before {
                    PieceBreak::Strong { extra: 0 } => PieceBreak::Line { indent },
                    _ => PieceBreak::Forced,
                };
            }
            if matches!(token.kind, TokenKind::RightParen | TokenKind::RightBrace | TokenKind::RightBracket) {
                depth -= u32::from(depth > 0);
            }
            let text = self.token_text(index);
            pieces.push(Piece {
                n_columns: text.chars().count(),
                text,
                space: index > 0 && self.space_between(index - 1, index),
                before: if pieces.is_empty() { PieceBreak::Line { indent: 0 } } else { before },
                depth,
                after_blank: self.n_line_breaks(end_before, token.span.start) > 1,
                is_comment: false,
            });
            if matches!(token.kind, TokenKind::LeftParen | TokenKind::LeftBrace | TokenKind::LeftBracket) {
                depth += 1;
            }
            end_before = token.span.end;
        }
        pieces
    }

    /// Turns a comment into a piece. A comment on a line of its own keeps its line.
    fn comment(
        &self,
        comment: &Comment,
        end_before: u32,
        at_line: bool,
        indent: usize,
        is_first: bool,
    ) -> Piece {
        let own_line = is_first || self.n_line_breaks(end_before, comment.span.start) > 0;
        let before = match (own_line, at_line) {
            (true, true) => PieceBreak::Line { indent },
            (true, false) => PieceBreak::Forced,
            (false, _) => PieceBreak::None,
        };
        let lines: Vec<&str> = self.slice(comment.span).lines().map(str::trim_end).collect();
        Piece {
            text: lines.join("\n"),
            n_columns: 0,
            space: true,
            before,
            depth: 0,
            after_blank: self.n_line_breaks(end_before, comment.span.start) > 1,
            is_comment: true,
        }
    }

    /// Tokens of `IF`s that the author wrote on one line and that fit on one.
    fn tokens_kept_inline(&self) -> Vec<bool> {
        let mut inline = vec![false; self.tokens.len()];
        for &(first, last) in &self.layout.short_ifs {
            let range = self.tokens[first].span.start as usize..self.tokens[last].span.end as usize;
            let has_comment = self.has_comment(first, last);
            let Break::Line { indent } = self.layout.tokens[first].before else { continue };
            let spaces = (first + 1..=last).filter(|index| self.space_between(index - 1, *index)).count();
            let letters: usize = (first..=last).map(|index| self.token_text(index).chars().count()).sum();
            let fits = usize::from(indent) * INDENT_COLUMNS + spaces + letters <= LINE_COLUMNS_MAX;
            if fits && !has_comment && !self.text[range].contains('\n') {
                inline[first + 1..=last].fill(true);
            }
        }
        inline
    }

    /// Whether there is a comment between two tokens.
    fn has_comment(&self, first: usize, last: usize) -> bool {
        let comments = &self.layout.comments;
        let next = comments.partition_point(|comment| comment.n_tokens_before as usize <= first);
        comments.get(next).is_some_and(|comment| comment.n_tokens_before as usize <= last)
    }

    fn token_text(&self, index: usize) -> String {
        let text = self.slice(self.tokens[index].span);
        if self.layout.tokens[index].is_keyword { text.to_ascii_uppercase() } else { text.to_owned() }
    }

    fn is_word(&self, token: &Token, word: &str) -> bool {
        token.kind == TokenKind::Word && self.slice(token.span).eq_ignore_ascii_case(word)
    }

    /// Whether two adjacent tokens are separated by a space.
    fn space_between(&self, before: usize, after: usize) -> bool {
        use TokenKind::*;
        let (left, right) = (self.tokens[before].kind, self.tokens[after].kind);
        if left == Minus && right == Minus {
            // Without a space, they would start a comment.
            return true;
        }
        let opens = matches!(left, LeftParen | LeftBracket | LeftBrace | Dot);
        let closes = matches!(
            right,
            RightParen | RightBracket | RightBrace | Comma | Semicolon | Question | Dot | Colon | LeftBracket
        );
        !(opens || closes || self.layout.tokens[after].is_tight)
    }

    fn n_line_breaks(&self, from: u32, to: u32) -> usize {
        self.text[from as usize..to as usize].bytes().filter(|byte| *byte == b'\n').count()
    }

    fn slice(&self, span: Span) -> &str {
        &self.text[span.range()]
    }
}

// ---- pieces to text --------------------------------------------------------------------------------------------

struct Printer {
    out: String,
}

impl Printer {
    /// Prints all pieces, one logical line after another.
    fn print(mut self, pieces: &[Piece]) -> String {
        let starts_line = |piece: &Piece| matches!(piece.before, PieceBreak::Line { .. });
        for line in pieces.chunk_by(|_, next| !starts_line(next)) {
            if line[0].after_blank && !self.out.is_empty() {
                self.out.push('\n');
            }
            let PieceBreak::Line { indent } = line[0].before else { continue };
            self.logical_line(line, indent);
        }
        self.out
    }

    /// Prints one logical line, such as a statement or declaration. If it is too long, breaks it at its clauses.
    fn logical_line(&mut self, line: &[Piece], indent: usize) {
        let is_forced = line.iter().any(|piece| piece.before == PieceBreak::Forced);
        if !is_forced && n_columns(line) + indent * INDENT_COLUMNS <= LINE_COLUMNS_MAX {
            return self.row(line, indent);
        }
        let begins_clause =
            |piece: &Piece| matches!(piece.before, PieceBreak::Strong { .. } | PieceBreak::Forced);
        for clause in line.chunk_by(|_, next| !begins_clause(next)) {
            let extra = match clause[0].before {
                PieceBreak::Strong { extra } => extra,
                PieceBreak::Forced => 1,
                _ => 0,
            };
            self.fill(clause, indent + extra);
        }
    }

    /// Prints one clause, on as many lines as needed.
    fn fill(&mut self, clause: &[Piece], indent: usize) {
        let mut rest = clause;
        let mut level = indent;
        while let Some(n_pieces) = break_at(rest, level * INDENT_COLUMNS) {
            self.row(&rest[..n_pieces], level);
            rest = &rest[n_pieces..];
            level = indent + 1;
        }
        self.row(rest, level);
    }

    /// Prints pieces on one line.
    fn row(&mut self, pieces: &[Piece], indent: usize) {
        self.out.extend(std::iter::repeat_n(' ', indent * INDENT_COLUMNS));
        for (index, piece) in pieces.iter().enumerate() {
            if index > 0 && piece.space {
                self.out.push_str(if piece.is_comment { "  " } else { " " });
            }
            self.out.push_str(&piece.text);
        }
        self.out.push('\n');
    }
}

fn n_columns(pieces: &[Piece]) -> usize {
    let counted = pieces.iter().enumerate().filter(|(_, piece)| !piece.is_comment);
    counted.map(|(index, piece)| piece.n_columns + usize::from(index > 0 && piece.space)).sum()
}

/// Finds where to break pieces that are too wide for one line: at the last position that fits, with the lowest
/// parenthesis depth. `None` if they fit, or if no break is possible.
fn break_at(pieces: &[Piece], indent_columns: usize) -> Option<usize> {
    let mut column = indent_columns;
    let mut best: Option<(u32, usize)> = None;
    for (index, piece) in pieces.iter().enumerate() {
        if index > 0 && piece.before == PieceBreak::Weak {
            if column > LINE_COLUMNS_MAX {
                return Some(best.map_or(index, |(_, index)| index));
            }
            if best.is_none_or(|(depth, _)| piece.depth <= depth) {
                best = Some((piece.depth, index));
            }
        }
        if !piece.is_comment {
            column += piece.n_columns + usize::from(index > 0 && piece.space);
        }
    }
    if column <= LINE_COLUMNS_MAX { None } else { best.map(|(_, index)| index) }
}

#[cfg(test)]
mod tests;
