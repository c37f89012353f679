//! Renders diagnostics as text: the source line, an underline, and the help.

use std::fmt::Write as _;

use super::{Diagnostic, Label, Severity};
use crate::source::{SourceFile, SourceMap};
use weft_core::text::{Escape, escape};

/// How diagnostics are drawn.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RenderOptions {
    /// ANSI colour. The text is the same without it.
    pub colour: bool,
    /// Columns of the terminal. A longer source line is cut to a window around the label; messages are never cut.
    /// Values below 40 count as 40.
    pub width: usize,
}

impl Default for RenderOptions {
    fn default() -> Self {
        Self { colour: false, width: 120 }
    }
}

/// One diagnostic, ending with a line break.
pub fn render(diagnostic: &Diagnostic, sources: &SourceMap, options: RenderOptions) -> String {
    let mut out = String::new();
    Renderer { out: &mut out, sources, options }.diagnostic(diagnostic);
    out
}

/// Renders all diagnostics, separated by an empty line, with the count at the end: `1 error, 2 warnings`.
///
/// Empty if there are no diagnostics.
pub fn render_all(diagnostics: &[Diagnostic], sources: &SourceMap, options: RenderOptions) -> String {
    let mut out = String::new();
    for diagnostic in diagnostics {
        Renderer { out: &mut out, sources, options }.diagnostic(diagnostic);
        out.push('\n');
    }
    let n_errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let counts = [(n_errors, "error"), (diagnostics.len() - n_errors, "warning")];
    let parts: Vec<String> = counts
        .iter()
        .filter(|(n, _)| *n > 0)
        .map(|(n, word)| format!("{n} {word}{}", if *n == 1 { "" } else { "s" }))
        .collect();
    if !parts.is_empty() {
        let _ = writeln!(out, "{}", parts.join(", "));
    }
    out
}

const BOLD: &str = "1";
const BLUE: &str = "1;34";
const RED: &str = "1;31";
const YELLOW: &str = "1;33";
const CYAN: &str = "1;36";

/// Columns of a tab in the output; source tabs are drawn as spaces so that underlines are aligned on every terminal.
const TAB_COLUMNS: usize = 4;

const ELLIPSIS: &str = "...";

/// The number of bytes of a line that are considered on each side of the label.
const CONTEXT_BYTES: usize = 4096;

/// The widest terminal that is used in full; four bytes per character fit [`CONTEXT_BYTES`].
const WIDTH_MAX: usize = CONTEXT_BYTES / 8;

struct Renderer<'a> {
    out: &'a mut String,
    sources: &'a SourceMap,
    options: RenderOptions,
}

impl Renderer<'_> {
    /// Renders one diagnostic: its title, its labels, its notes and its help.
    fn diagnostic(&mut self, diagnostic: &Diagnostic) {
        let colour = severity_colour(diagnostic.severity);
        self.paint(colour, &format!("{}[{}]", diagnostic.severity.as_str(), diagnostic.code.0));
        self.paint(BOLD, &format!(": {}", escape(&diagnostic.message)));
        self.out.push('\n');

        let gutter = self.gutter_width(diagnostic);
        self.labels(diagnostic, gutter);
        for note in &diagnostic.notes {
            self.remark(gutter, "", note);
        }
        for help in &diagnostic.help {
            self.remark(gutter, "help: ", help);
        }
        if let (Some(fix), true) = (&diagnostic.fix, diagnostic.help.is_empty()) {
            self.remark(gutter, "help: ", &format!("write `{}`", fix.replacement.trim()));
        }
    }

    /// Renders the labels, file by file; the file of the primary label comes first.
    fn labels(&mut self, diagnostic: &Diagnostic, gutter: usize) {
        let Some(first) = diagnostic.labels.iter().find(|label| label.primary).or(diagnostic.labels.first())
        else {
            return;
        };
        // The file of the primary label comes first, then the others in the order they were read.
        let mut files: Vec<_> = diagnostic.labels.iter().map(|label| label.span.file).collect();
        files.sort_unstable();
        files.dedup();
        files.retain(|file| *file != first.span.file);
        files.insert(0, first.span.file);

        for (index, file_id) in files.into_iter().enumerate() {
            let file = self.sources.file(file_id);
            let mut labels: Vec<&Label> =
                diagnostic.labels.iter().filter(|label| label.span.file == file_id).collect();
            let head = if index == 0 { first } else { labels[0] };
            let at = file.position(head.span.start);
            let arrow = if index == 0 { "-->" } else { ":::" };
            self.paint(BLUE, &format!("{:gutter$} {arrow} ", ""));
            let _ = writeln!(self.out, "{}:{}:{}", escape(file.name()), at.line, at.column);
            self.paint(BLUE, &format!("{:gutter$} |", ""));
            self.out.push('\n');
            labels.sort_by_key(|label| {
                (file.position(label.span.start).line, !label.primary, label.span.start)
            });
            self.snippets(file, &labels, gutter, diagnostic.severity);
        }
    }

    /// Renders the labelled lines of one file.
    fn snippets(&mut self, file: &SourceFile, labels: &[&Label], gutter: usize, severity: Severity) {
        let mut last_line = 0;
        for label in labels {
            let line = file.position(label.span.start).line;
            let view = View::new(file, line, label, self.options.width.clamp(40, WIDTH_MAX) - gutter - 3);
            if line != last_line {
                if last_line != 0 && line > last_line + 1 {
                    self.paint(BLUE, ELLIPSIS);
                    self.out.push('\n');
                }
                self.paint(BLUE, &format!("{line:>gutter$} |"));
                let _ = writeln!(self.out, " {}", view.text.trim_end());
                last_line = line;
            }
            self.paint(BLUE, &format!("{:gutter$} |", ""));
            let _ = write!(self.out, " {:indent$}", "", indent = view.mark_at);
            let (mark, colour) = if label.primary { ("^", severity_colour(severity)) } else { ("-", BLUE) };
            let marks = mark.repeat(view.mark_len);
            let text = if label.text.is_empty() { marks } else { format!("{marks} {}", escape(&label.text)) };
            self.paint(colour, &text);
            self.out.push('\n');
        }
    }

    /// Renders a note or help, with aligned continuation lines.
    fn remark(&mut self, gutter: usize, kind: &str, text: &str) {
        self.paint(BLUE, &format!("{:gutter$} =", ""));
        self.out.push(' ');
        self.paint(CYAN, kind);
        for (index, line) in text.lines().enumerate() {
            if index > 0 {
                let _ = write!(self.out, "{:gutter$}   {:indent$}", "", "", indent = kind.len());
            }
            let _ = writeln!(self.out, "{}", escape(line));
        }
    }

    fn gutter_width(&self, diagnostic: &Diagnostic) -> usize {
        let line_of = |label: &Label| self.sources.file(label.span.file).position(label.span.start).line;
        diagnostic.labels.iter().map(line_of).max().unwrap_or(1).to_string().len().max(2)
    }

    /// Writes text in a colour, if colours are on.
    fn paint(&mut self, colour: &str, text: &str) {
        if self.options.colour && !text.is_empty() {
            let _ = write!(self.out, "\x1b[{colour}m{text}\x1b[0m");
        } else {
            self.out.push_str(text);
        }
    }
}

/// Returns the colour of a severity.
fn severity_colour(severity: Severity) -> &'static str {
    match severity {
        Severity::Warning => YELLOW,
        Severity::Error => RED,
    }
}

/// A source line as drawn, and the position of its underline, both in terminal columns.
struct View {
    text: String,
    mark_at: usize,
    mark_len: usize,
}

impl View {
    /// Cuts the visible part of a source line around a label.
    fn new(file: &SourceFile, line: u32, label: &Label, width: usize) -> Self {
        let range = file.line_range(line);
        let source = file.line(line);
        let from = (label.span.start as usize).saturating_sub(range.start).min(source.len());
        // A span over several lines is underlined to the end of its first line.
        let to = (label.span.end as usize).saturating_sub(range.start).clamp(from, source.len());

        // Only the visible part of a huge line is processed.
        let near = |mut at: usize| {
            while !source.is_char_boundary(at) {
                at -= 1;
            }
            at
        };
        let (first, last) =
            (near(from.saturating_sub(CONTEXT_BYTES)), near((from + CONTEXT_BYTES).min(source.len())));
        let (is_cut_before, is_cut_after) = (first > 0, last < source.len());
        let (source, from, to) = (&source[first..last], from - first, to.min(last) - first);

        let mut cells = String::new();
        let (mut column, mut mark_at, mut mark_end) = (0, None, None);
        let mut columns_at = Vec::new();
        for (offset, c) in source.char_indices() {
            if offset >= from {
                mark_at.get_or_insert(column);
            }
            if offset >= to {
                mark_end.get_or_insert(column);
            }
            columns_at.push((column, cells.len()));
            column += push_cell(&mut cells, c, column);
        }
        let mark_at = mark_at.unwrap_or(column);
        let mark_len = mark_end.unwrap_or(column).saturating_sub(mark_at).max(1);
        let whole = Self { text: cells, mark_at, mark_len };
        if column <= width && !is_cut_before && !is_cut_after {
            return whole;
        }
        whole.window(&columns_at, column, width)
    }

    /// Cuts a line that is too wide to a window with the start of the underline in its first third.
    fn window(self, columns_at: &[(usize, usize)], n_columns: usize, width: usize) -> Self {
        let room = width - 2 * ELLIPSIS.len();
        let wanted = self.mark_at.saturating_sub(room / 3).min(n_columns.saturating_sub(room));
        let first = columns_at.partition_point(|(column, _)| *column < wanted);
        let (start_column, start) = columns_at.get(first).copied().unwrap_or((n_columns, self.text.len()));
        let last = columns_at.partition_point(|(column, _)| *column <= start_column + room);
        let end = columns_at.get(last.saturating_sub(1)).map_or(self.text.len(), |(_, offset)| *offset);
        let reaches_end = n_columns <= start_column + room;
        let end = if reaches_end { self.text.len() } else { end.max(start) };

        let before = if start > 0 { ELLIPSIS } else { "" };
        let after = if reaches_end { "" } else { ELLIPSIS };
        let mark_at = self.mark_at.saturating_sub(start_column) + before.len();
        let mark_len = self.mark_len.min((room + before.len()).saturating_sub(mark_at).max(1));
        Self { text: format!("{before}{}{after}", &self.text[start..end]), mark_at, mark_len }
    }
}

/// Draws one character and returns the columns it takes.
fn push_cell(cells: &mut String, c: char, column: usize) -> usize {
    match c {
        '\t' => {
            let n_spaces = TAB_COLUMNS - column % TAB_COLUMNS;
            cells.extend(std::iter::repeat_n(' ', n_spaces));
            n_spaces
        }
        // Characters of zero width would be invisible to the reader.
        '\u{200b}'..='\u{200d}' | '\u{feff}' => {
            cells.push('\u{fffd}');
            1
        }
        // Escape sequences and bidirectional control characters in a source file must not reach the terminal.
        c => match Escape::of(c) {
            Some(escape) => {
                let before = cells.len();
                let _ = write!(cells, "{escape}");
                cells.len() - before
            }
            None => {
                cells.push(c);
                display_columns(c)
            }
        },
    }
}

/// Columns of a printable character: 0 for combining marks, 2 for the wide East Asian blocks and emoji, else 1.
fn display_columns(c: char) -> usize {
    match c as u32 {
        0x0300..=0x036f
        | 0x1ab0..=0x1aff
        | 0x1dc0..=0x1dff
        | 0x20d0..=0x20ff
        | 0xfe00..=0xfe0f
        | 0xfe20..=0xfe2f => 0,
        0x1100..=0x115f
        | 0x2e80..=0x303e
        | 0x3041..=0xa4cf
        | 0xac00..=0xd7a3
        | 0xf900..=0xfaff
        | 0xfe30..=0xfe6f
        | 0xff00..=0xff60
        | 0xffe0..=0xffe6
        | 0x1f300..=0x1f64f
        | 0x1f900..=0x1f9ff
        | 0x20000..=0x3fffd => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::super::code;
    use super::*;
    use crate::source::Span;

    /// Renders one error whose primary label covers `needle` in `text`.
    fn check(text: &str, needle: &str, options: RenderOptions, expect: &str) {
        let mut sources = SourceMap::new();
        let file = sources.add("network.weft", text).unwrap();
        let start = text.find(needle).unwrap() as u32;
        let span = Span::new(file, start, start + needle.len() as u32);
        let diagnostic = Diagnostic::error(code::UNEXPECTED, "message")
            .at(span, "label")
            .with_note("fact")
            .with_help("do");
        assert_eq!(render(&diagnostic, &sources, options), expect);
    }

    #[test]
    fn underline_matches_wide_text() {
        // A mark in the wrong column sends the reader to the wrong word.
        let plain = RenderOptions::default();
        check(
            "a\n  b usr c\n",
            "usr",
            plain,
            concat!(
                "error[W0105]: message\n",
                "   --> network.weft:2:5\n",
                "   |\n",
                " 2 |   b usr c\n",
                "   |     ^^^ label\n",
                "   = fact\n",
                "   = help: do\n",
            ),
        );
        check(
            "\té漢 usr",
            "usr",
            plain,
            concat!(
                "error[W0105]: message\n",
                "   --> network.weft:1:5\n",
                "   |\n",
                " 1 |     é漢 usr\n",
                "   |         ^^^ label\n",
                "   = fact\n",
                "   = help: do\n",
            ),
        );
    }

    #[test]
    fn escape_sequences_are_replaced() {
        check(
            "\x1b[2J\u{202e} usr",
            "usr",
            RenderOptions::default(),
            concat!(
                "error[W0105]: message\n",
                "   --> network.weft:1:7\n",
                "   |\n",
                " 1 | \\u001b[2J\\u202e usr\n",
                "   |                 ^^^ label\n",
                "   = fact\n",
                "   = help: do\n",
            ),
        );
    }

    #[test]
    fn long_lines_are_cut_around_label() {
        // Without the cut a generated one-line file would flood the terminal.
        let text = format!("{} usr {}", "x".repeat(500), "y".repeat(500));
        let mut sources = SourceMap::new();
        let file = sources.add("n", text.as_str()).unwrap();
        for (start, end) in [(0, 3), (501, 504), (1000, 1005), (0, 1005), (1005, 1005)] {
            let diagnostic = Diagnostic::error(code::UNEXPECTED, "m").at(Span::new(file, start, end), "");
            let out = render(&diagnostic, &sources, RenderOptions { colour: false, width: 60 });
            assert!(out.lines().all(|line| line.chars().count() <= 60), "{out}");
            let lines: Vec<&str> = out.lines().collect();
            let mark = lines[4].find('^').unwrap();
            if start == 501 {
                assert_eq!(&lines[3][mark..mark + 3], "usr", "{out}");
            }
        }
    }

    #[test]
    fn huge_line_renders_in_linear_time() {
        // A hundred faults in one line of 4 MB would otherwise take seconds to show.
        let mut sources = SourceMap::new();
        let file = sources.add("n", "\u{6f22}".repeat(1 << 20)).unwrap();
        let n_bytes = 3 << 20;
        for start in [0, n_bytes / 2, n_bytes - 3, n_bytes] {
            let diagnostic = Diagnostic::error(code::UNEXPECTED, "m").at(Span::new(file, start, n_bytes), "");
            let out = render(&diagnostic, &sources, RenderOptions { colour: false, width: usize::MAX });
            assert!(out.len() < 4 * CONTEXT_BYTES && out.contains('^'));
        }
    }

    #[test]
    fn colour_changes_no_text() {
        let mut sources = SourceMap::new();
        let file = sources.add("n", "one\ntwo\nthree\nfour").unwrap();
        let diagnostic = Diagnostic::warning(code::UNEXPECTED, "m")
            .at(Span::new(file, 14, 18), "end")
            .with_label(Span::new(file, 0, 3), "start")
            .with_label(Span::new(file, 4, 9), "over two lines");
        let plain = render(&diagnostic, &sources, RenderOptions::default());
        let colour =
            render(&diagnostic, &sources, RenderOptions { colour: true, ..RenderOptions::default() });
        let mut stripped = String::new();
        for (index, part) in colour.split('\x1b').enumerate() {
            stripped.push_str(if index == 0 { part } else { part.split_once('m').unwrap().1 });
        }
        assert_eq!(stripped, plain);
        assert_eq!(
            plain,
            concat!(
                "warning[W0105]: m\n",
                "   --> n:4:1\n",
                "   |\n",
                " 1 | one\n",
                "   | --- start\n",
                " 2 | two\n",
                "   | --- over two lines\n",
                "...\n",
                " 4 | four\n",
                "   | ^^^^ end\n",
            )
        );
    }

    #[test]
    fn counts_close_the_list() {
        let sources = SourceMap::new();
        let all = [Diagnostic::error(code::UNEXPECTED, "a"), Diagnostic::warning(code::UNEXPECTED, "b")];
        assert_eq!(
            render_all(&all, &sources, RenderOptions::default()),
            "error[W0105]: a\n\nwarning[W0105]: b\n\n1 error, 1 warning\n"
        );
        assert_eq!(render_all(&[], &sources, RenderOptions::default()), "");
    }
}
