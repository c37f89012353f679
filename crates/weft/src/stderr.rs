//! Standard error: messages of a command about its work.

use core::fmt::Arguments;
use std::io::{IsTerminal as _, Write as _};
use weft_core::text::escape_lines;
use weft_lang::diagnostic::{Diagnostic, RenderOptions, render_all};
use weft_lang::source::SourceMap;

/// Writes lines, with control characters escaped: peers and endpoints may have chosen some of the text. Ignores write
/// errors, for example of a closed pipe: a command finishes its work and ends with its own status, with or without a
/// reader.
pub(crate) fn print(text: &str) {
    write(&escape_lines(text));
}

/// Writes one line; otherwise as [`print()`].
pub(crate) fn line(text: Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// Writes diagnostics, in colour on a terminal. The renderer escapes the text that they quote.
pub(crate) fn diagnostics(diagnostics: &[Diagnostic], sources: &SourceMap) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    write(&render_all(diagnostics, sources, RenderOptions { colour, ..RenderOptions::default() }));
}

/// Writes a control sequence of our own, to move the cursor of a terminal or to clear a part of it.
pub(crate) fn control(sequence: &str) {
    write(sequence);
}

fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
