//! What the parser knows about tokens that the formatter needs: which words are keywords, where lines begin, and where
//! a line that is too long may be broken.

use crate::lexer::Comment;

/// What the parser found out about the tokens of a file.
pub(crate) struct Layout {
    /// One entry a token.
    pub(crate) tokens: Vec<TokenLayout>,
    /// The comments in order.
    pub(crate) comments: Vec<Comment>,
    /// First and last token of each `IF` with one plain statement, which may stay on one line.
    pub(crate) short_ifs: Vec<(usize, usize)>,
    indent: u8,
    /// Of the line that was begun last.
    line_indent: u8,
}

/// What the parser found out about one token.
#[derive(Clone, Copy, Default)]
pub(crate) struct TokenLayout {
    /// Printed in capitals.
    pub(crate) is_keyword: bool,
    /// Sticks to the token before: the parenthesis of a call, the operand of a sign.
    pub(crate) is_tight: bool,
    /// What may come before it.
    pub(crate) before: Break,
}

/// What may come before a token.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) enum Break {
    /// Nothing but a space.
    #[default]
    None,
    /// A line break, if the line is too long even so.
    Weak,
    /// A line break, if the statement does not fit a line; `extra` levels deeper than the statement.
    Strong {
        /// Levels.
        extra: u8,
    },
    /// Always a new line, this many levels deep.
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

    /// As [`Layout::strong`], as deep as a line that began here would be.
    pub(super) fn strong_within(&mut self, token: usize) {
        self.strong(token, self.indent.saturating_sub(self.line_indent));
    }

    pub(super) fn weak(&mut self, token: usize) {
        if self.tokens[token].before == Break::None {
            self.tokens[token].before = Break::Weak;
        }
    }

    /// Lines begun from now on are a level deeper. Saturates: after a fault the count may be off, and is not used.
    pub(super) fn deeper(&mut self) {
        self.indent = self.indent.saturating_add(1);
    }

    pub(super) fn shallower(&mut self) {
        self.indent = self.indent.saturating_sub(1);
    }
}
