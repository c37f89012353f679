//! Splits Rust source text into code, comments and string literals, as far as the rules need it.

/// A Rust file whose code, comments and string literals can be searched separately.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    /// The path from the workspace root.
    pub(crate) path: &'a str,
    /// The text itself.
    pub(crate) text: &'a str,
    /// The text with comments and the insides of literals blanked; line numbers stay.
    pub(crate) code: String,
    /// The text with everything except comments blanked; line numbers stay.
    pub(crate) comments: String,
    /// Each string literal with its first line; escapes are not decoded.
    pub(crate) strings: Vec<(usize, String)>,
}

impl<'a> Source<'a> {
    /// Splits a file. It accepts any text.
    pub(crate) fn new(path: &'a str, text: &'a str) -> Self {
        let mut source =
            Self { path, text, code: String::new(), comments: String::new(), strings: Vec::new() };
        let (mut rest, mut line) = (text, 1);
        while let Some(first) = rest.chars().next() {
            let (kind, len) = token(rest, source.code.chars().next_back());
            let (token, after) = rest.split_at(len.max(first.len_utf8()));
            source.push(kind, token, line);
            line += token.matches('\n').count();
            rest = after;
        }
        source
    }

    /// The line, counted from 1, on which unit tests begin; past the end if there are none.
    pub(crate) fn tests_line(&self) -> usize {
        let line = self.code.lines().position(|line| line.trim() == "#[cfg(test)]");
        line.map_or(usize::MAX, |index| index + 1)
    }

    fn push(&mut self, kind: Kind, token: &str, line: usize) {
        if kind == Kind::Text {
            let inside = token.split_once('"').map_or("", |(_, rest)| rest.trim_end_matches('#'));
            self.strings.push((line, inside.strip_suffix('"').unwrap_or(inside).to_owned()));
        }
        for c in token.chars() {
            let blank = if c == '\n' { '\n' } else { ' ' };
            self.code.push(if kind == Kind::Code { c } else { blank });
            self.comments.push(if kind == Kind::Comment { c } else { blank });
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Text,
    Char,
}

/// The kind and length in bytes of the token at the start of `rest`, which follows the character `before`.
fn token(rest: &str, before: Option<char>) -> (Kind, usize) {
    let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
    if rest.starts_with("//") {
        return (Kind::Comment, rest.find('\n').unwrap_or(rest.len()));
    }
    if rest.starts_with("/*") {
        return (Kind::Comment, block_comment(rest));
    }
    if rest.starts_with('"') {
        return (Kind::Text, quoted(rest, '"'));
    }
    if !in_word && let Some(len) = raw_string(rest) {
        return (Kind::Text, len);
    }
    if rest.starts_with('\'') && is_char(rest) {
        return (Kind::Char, quoted(rest, '\''));
    }
    (Kind::Code, 1)
}

/// Block comments nest.
fn block_comment(rest: &str) -> usize {
    let mut depth = 0;
    let mut at = 0;
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of a literal that begins with `quote` and ends at the next unescaped one.
fn quoted(rest: &str, quote: char) -> usize {
    let mut escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            c if c == quote => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// The length of `r"..."`, `r#"..."#`, `br"..."` and so on, if one begins here.
fn raw_string(rest: &str) -> Option<usize> {
    let after =
        rest.strip_prefix("br").or_else(|| rest.strip_prefix("cr")).or_else(|| rest.strip_prefix('r'))?;
    let hashes = after.len() - after.trim_start_matches('#').len();
    let inside = after[hashes..].strip_prefix('"')?;
    let end = format!("\"{}", "#".repeat(hashes));
    let start = rest.len() - inside.len();
    Some(inside.find(&end).map_or(rest.len(), |at| start + at + end.len()))
}

/// Distinguishes `'a'` and `'\n'` from the lifetime `'a`.
fn is_char(rest: &str) -> bool {
    let mut chars = rest.chars().skip(1);
    chars.next() == Some('\\') || chars.next() == Some('\'')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_strings_and_code_differ() {
        // If this failed, a word in a comment or a string would count as code, or code as neither.
        let text = concat!(
            "let a = \"one // \\\" two\"; // three\n",
            "fn f<'a>(c: char) { c == '\"' } /* four /* five */ */ r#\"six \" seven\"#"
        );
        let source = Source::new("a.rs", text);
        let strings: Vec<&str> = source.strings.iter().map(|(_, text)| text.as_str()).collect();
        assert_eq!(strings, ["one // \\\" two", "six \" seven"]);
        assert_eq!(source.strings[1].0, 2);
        assert!(source.comments.contains("three") && source.comments.contains("four /* five */ */"));
        assert!(source.code.contains("fn f<'a>(c: char)") && !source.code.contains("three"));
        assert_eq!(source.code.chars().count(), text.chars().count());
    }

    #[test]
    fn non_rust_text_still_ends() {
        // If this failed, a file that is being edited could hang or crash the check.
        for text in ["\"open", "/* open", "r##\"open\"#", "'", "'\\", "é'é'", "b\"\\", ""] {
            assert_eq!(Source::new("a.rs", text).code.chars().count(), text.chars().count(), "{text}");
        }
    }

    #[test]
    fn first_test_line_is_found() {
        // If this failed, rules that skip tests would not know where tests begin.
        assert_eq!(Source::new("a.rs", "fn f() {}\n#[cfg(test)]\nmod tests {}\n").tests_line(), 2);
        assert_eq!(Source::new("a.rs", "// #[cfg(test)]\n").tests_line(), usize::MAX);
    }
}
