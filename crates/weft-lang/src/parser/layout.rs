//! Layout information from the parser for the formatter: keywords, line starts, and possible line breaks.

use crate::lexer::Comment;

/// The layout of a file's tokens.
pub(crate) struct Layout {
    /// One entry a token.
    pub(crate) tokens: Vec<TokenLayout>,
    /// The comments in order.
    pub(crate) comments: Vec<Comment>,
    /// The first and last token of each `IF` with a single plain statement, which may stay on one line.
    pub(crate) short_ifs: Vec<(usize, usize)>,
    indent: u8,
    /// Of the line that was begun last.
    line_indent: u8,
}

/// The layout of a token.
#[derive(Clone, Copy, Default)]
pub(crate) struct TokenLayout {
    /// Printed in capitals.
    pub(crate) is_keyword: bool,
    /// No space before it: the parenthesis of a call, the operand of a sign.
    pub(crate) is_tight: bool,
    /// The possible line break before it.
    pub(crate) before: Break,
}

/// A possible line break before a token.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Break {
    /// Nothing but a space.
    #[default]
    None,
    /// A possible line break, if the line is still too long.
    Weak,
    /// A line break, if the statement does not fit on a line; `extra` levels deeper than the statement.
    Strong {
        /// Levels.
        extra: u8,
    },
    /// Always starts a new line, at this depth.
    Line {
        /// Levels from the margin.
        indent: u8,
    },
}

impl Layout {
    pub(super) fn new(n_tokens: usize, comments: Vec<Comment>) -> Self {
        let tokens = vec![TokenLayout::default(); n_tokens];
        Self { tokens, comments, short_ifs: Vec::new(), indent: 0, line_indent: 0 }
    }

    pub(super) fn keyword(&mut self, token: usize) {
        self.tokens[token].is_keyword = true;
    }

    pub(super) fn tight(&mut self, token: usize) {
        self.tokens[token].is_tight = true;
    }

    pub(super) fn line(&mut self, token: usize) {
        self.tokens[token].before = Break::Line { indent: self.indent };
        self.line_indent = self.indent;
    }

    pub(super) fn strong(&mut self, token: usize, extra: u8) {
        self.tokens[token].before = Break::Strong { extra };
    }

    /// Like [`Layout::strong`], at the depth of a new line here.
    pub(super) fn strong_within(&mut self, token: usize) {
        self.strong(token, self.indent.saturating_sub(self.line_indent));
    }

    /// Permits a line break in front of a token, unless it has a stronger break.
    pub(super) fn weak(&mut self, token: usize) {
        if self.tokens[token].before == Break::None {
            self.tokens[token].before = Break::Weak;
        }
    }

    /// Increases the depth of the next lines. Saturates: after an error the depth may be wrong, and is not used.
    pub(super) fn deeper(&mut self) {
        self.indent = self.indent.saturating_add(1);
    }

    pub(super) fn shallower(&mut self) {
        self.indent = self.indent.saturating_sub(1);
    }
}
