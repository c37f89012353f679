//! Diagnostics of the front end: as data, as text for a terminal, and as JSON.

use std::fmt::Write as _;

use crate::source::{SourceMap, Span};
use weft_core::text::Escape;

pub mod code;
mod render;

pub use render::{RenderOptions, render, render_all};

/// The severity.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Severity {
    /// Worth knowing; the program is accepted.
    Warning,
    /// The program is refused.
    Error,
}

impl Severity {
    /// `error` or `warning`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// The stable name of a kind of error; the table is in [`code`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Code(pub &'static str);

/// A remark about a place in the text.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// The span.
    pub span: Span,
    /// The text of the label; may be empty.
    pub text: String,
    /// True for the location of the error, false for locations that explain it.
    pub primary: bool,
}

/// An edit of the text that fixes the error.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Fix {
    /// The span to replace; empty to insert.
    pub span: Span,
    /// The replacement.
    pub replacement: String,
}

/// One fault, or one remark.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    /// The severity.
    pub severity: Severity,
    /// Its code.
    pub code: Code,
    /// One sentence without a full stop.
    pub message: String,
    /// Locations; the first primary one is shown first. Empty if the error has no location.
    pub labels: Vec<Label>,
    /// Further facts.
    pub notes: Vec<String>,
    /// Changes that would work.
    pub help: Vec<String>,
    /// The help as an edit, if one edit is sufficient.
    pub fix: Option<Fix>,
}

impl Diagnostic {
    /// An error without a place.
    pub fn error(code: Code, message: impl Into<String>) -> Self {
        Self::new(Severity::Error, code, message.into())
    }

    /// A warning without a place.
    pub fn warning(code: Code, message: impl Into<String>) -> Self {
        Self::new(Severity::Warning, code, message.into())
    }

    /// Adds the place at fault.
    #[must_use]
    pub fn at(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into(), primary: true });
        self
    }

    /// Adds a place that explains it.
    #[must_use]
    pub fn with_label(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label { span, text: text.into(), primary: false });
        self
    }

    /// Adds a fact.
    #[must_use]
    pub fn with_note(mut self, note: impl Into<String>) -> Self {
        self.notes.push(note.into());
        self
    }

    /// Adds a change that would work.
    #[must_use]
    pub fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help.push(help.into());
        self
    }

    /// Sets the edit that fixes it.
    #[must_use]
    pub fn with_fix(mut self, span: Span, replacement: impl Into<String>) -> Self {
        self.fix = Some(Fix { span, replacement: replacement.into() });
        self
    }

    /// True if the program is rejected because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The location of the error: the first primary label.
    pub fn span(&self) -> Option<Span> {
        self.labels.iter().find(|label| label.primary).map(|label| label.span)
    }

    fn new(severity: Severity, code: Code, message: String) -> Self {
        Self { severity, code, message, labels: Vec::new(), notes: Vec::new(), help: Vec::new(), fix: None }
    }
}

/// The diagnostics as a JSON array of objects with the keys `severity`, `code`, `message`, `labels`, `notes`, `help`
/// and `fix` (null if there is none).
///
/// A label and a fix give `file`, `start` and `end` (bytes), and `line`, `column`, `end_line`, `end_column` (from 1, in
/// characters, the end exclusive).
pub fn to_json(diagnostics: &[Diagnostic], sources: &SourceMap) -> String {
    let mut out = String::from("[");
    for (index, diagnostic) in diagnostics.iter().enumerate() {
        out.push_str(if index == 0 { "\n  " } else { ",\n  " });
        json_diagnostic(&mut out, diagnostic, sources);
    }
    out.push_str(if diagnostics.is_empty() { "]" } else { "\n]" });
    out
}

/// Writes a diagnostic as a JSON object.
fn json_diagnostic(out: &mut String, diagnostic: &Diagnostic, sources: &SourceMap) {
    let severity = diagnostic.severity.as_str();
    let _ = write!(out, r#"{{"severity":"{severity}","code":"{}","message":"#, diagnostic.code.0);
    json_string(out, &diagnostic.message);
    out.push_str(r#","labels":["#);
    for (index, label) in diagnostic.labels.iter().enumerate() {
        out.push_str(if index == 0 { "{" } else { ",{" });
        json_place(out, label.span, sources);
        let _ = write!(out, r#","primary":{},"text":"#, label.primary);
        json_string(out, &label.text);
        out.push('}');
    }
    out.push_str(r#"],"notes":"#);
    json_strings(out, &diagnostic.notes);
    out.push_str(r#","help":"#);
    json_strings(out, &diagnostic.help);
    out.push_str(r#","fix":"#);
    match &diagnostic.fix {
        None => out.push_str("null"),
        Some(fix) => {
            out.push('{');
            json_place(out, fix.span, sources);
            out.push_str(r#","replacement":"#);
            json_string(out, &fix.replacement);
            out.push('}');
        }
    }
    out.push('}');
}

/// Writes the file, offsets, lines and columns of a span as JSON members.
fn json_place(out: &mut String, span: Span, sources: &SourceMap) {
    let file = sources.file(span.file);
    let (start, end) = (file.position(span.start), file.position(span.end));
    out.push_str(r#""file":"#);
    json_string(out, file.name());
    let _ = write!(out, r#","start":{},"end":{}"#, span.start, span.end);
    let _ = write!(out, r#","line":{},"column":{}"#, start.line, start.column);
    let _ = write!(out, r#","end_line":{},"end_column":{}"#, end.line, end.column);
}

/// Writes a JSON array of strings.
fn json_strings(out: &mut String, strings: &[String]) {
    out.push('[');
    for (index, string) in strings.iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        json_string(out, string);
    }
    out.push(']');
}

/// Writes a JSON string with escapes.
fn json_string(out: &mut String, string: &str) {
    out.push('"');
    for c in string.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c => match Escape::of(c) {
                Some(escape) => {
                    let _ = write!(out, "{escape}");
                }
                None => out.push(c),
            },
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_output_is_escaped() {
        let mut sources = SourceMap::new();
        let file = sources.add("a\"b.weft", "é\nx").unwrap();
        let diagnostic = Diagnostic::error(code::UNEXPECTED, "tab\tquote\" back\\ bell\u{7} é")
            .at(Span::new(file, 3, 4), "here")
            .with_help("h")
            .with_fix(Span::new(file, 3, 4), "y\n");
        let json = to_json(&[diagnostic], &sources);
        assert_eq!(
            json,
            concat!(
                "[\n  ",
                r#"{"severity":"error","code":"W0105","message":"tab\tquote\" back\\ bell\u0007 é","labels":["#,
                r#"{"file":"a\"b.weft","start":3,"end":4,"line":2,"column":1,"end_line":2,"end_column":2,"#,
                r#""primary":true,"text":"here"}],"notes":[],"help":["h"],"fix":"#,
                r#"{"file":"a\"b.weft","start":3,"end":4,"line":2,"column":1,"end_line":2,"end_column":2,"#,
                r#""replacement":"y\n"}}"#,
                "\n]"
            )
        );
        assert_eq!(to_json(&[], &sources), "[]");
    }

    #[test]
    fn codes_are_unique_and_in_order() {
        // Two meanings under one code would make `--json` output and the book ambiguous.
        assert!(code::ALL.windows(2).all(|pair| pair[0].0.0 < pair[1].0.0));
        assert_eq!(code::title(code::UNEXPECTED), Some("unexpected token"));
    }
}
