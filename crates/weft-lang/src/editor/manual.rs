//! Documentation from comments: the manual page of a library file, and comments next to declarations.

use crate::source::{SourceFile, Span};

/// The comment above a declaration, or after it on its line; empty if there is none. The manual page at the head of a
/// library file is not included: see [`section`].
pub(super) fn remark(file: &SourceFile, whole: Span) -> String {
    let behind = trailing_comment(file, whole);
    if !behind.is_empty() {
        return behind;
    }
    let first = file.position(whole.start).line;
    let above: Vec<&str> =
        (1..first).rev().map_while(|line| file.line(line).trim_start().strip_prefix("--")).collect();
    if above.last().is_some_and(|line| is_heading(line)) {
        return String::new();
    }
    let lines: Vec<&str> = above.iter().rev().map(|line| line.trim()).collect();
    lines.join("\n")
}

/// The lines of a section of the manual page at the head of a file, without their margin: `NAME`, `DESCRIPTION`.
pub(super) fn section<'f>(file: &'f SourceFile, heading: &str) -> Vec<&'f str> {
    let mut lines = (1..=file.n_lines()).map_while(|line| file.line(line).strip_prefix("--"));
    if !lines.any(|line| line.trim() == heading && is_heading(line)) {
        return Vec::new();
    }
    let section = lines.take_while(|line| !is_heading(line));
    section.map(str::trim).filter(|line| !line.is_empty()).collect()
}

/// The entry of a name in a section: the lines that begin with it, and their continuation lines.
pub(super) fn entry(file: &SourceFile, heading: &str, name: &str) -> String {
    let mut lines = (1..=file.n_lines()).map_while(|line| file.line(line).strip_prefix("--"));
    if !lines.any(|line| line.trim() == heading && is_heading(line)) {
        return String::new();
    }
    let begins =
        |line: &str| line.trim_start().split(|c: char| c.is_whitespace() || c == ',').next() == Some(name);
    let mut section = lines.take_while(|line| !is_heading(line)).skip_while(|line| !begins(line));
    let Some(first) = section.next() else { return String::new() };
    let mut text = first.trim_start().trim_start_matches(name).trim().to_owned();
    let margin = indent(first);
    for line in section.take_while(|line| indent(line) > margin) {
        text.push(' ');
        text.push_str(line.trim());
    }
    text
}

/// The comment after a declaration, on its last line.
fn trailing_comment(file: &SourceFile, whole: Span) -> String {
    let line = file.position(whole.end).line;
    let end = file.line_range(line).end;
    let rest = file.text().get(whole.end as usize..end).unwrap_or_default();
    let rest = rest.trim_start_matches(|c: char| c.is_whitespace() || ";,)".contains(c));
    rest.strip_prefix("--").map_or_else(String::new, |text| text.trim().to_owned())
}

/// Headings are in capitals, one space after the dashes; text is indented further.
fn is_heading(line: &str) -> bool {
    let word = line.trim();
    let is_capital = |c: char| c.is_ascii_uppercase() || c == ' ';
    !word.is_empty() && indent(line) <= 1 && word.chars().all(is_capital)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}
