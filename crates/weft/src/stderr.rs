//! Standard error: what a command says of its work.

use core::fmt::Arguments;
use std::io::{IsTerminal as _, Write as _};
use weft_core::text::escape_lines;
use weft_lang::diagnostic::{Diagnostic, RenderOptions, render_all};
use weft_lang::source::SourceMap;

/// Writes lines, with control characters escaped: peers and endpoints may have chosen some of the text. What cannot be
/// written is left out, as where the reader has seen enough: a command does what it was asked for, and ends with the
/// status of that, whether anybody listens or not.
pub(crate) fn print(text: &str) {
    write(&escape_lines(text));
}

/// The same of a line.
pub(crate) fn line(text: Arguments<'_>) {
    print(&format!("{text}\n"));
}

/// The same of diagnostics, in colour on a terminal. The renderer escapes what they quote.
pub(crate) fn diagnostics(diagnostics: &[Diagnostic], sources: &SourceMap) {
    let colour = std::io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none();
    write(&render_all(diagnostics, sources, RenderOptions { colour, ..RenderOptions::default() }));
}

/// Moves the cursor of a terminal, or clears a part of it: a sequence of our own.
pub(crate) fn control(sequence: &str) {
    write(sequence);
}

fn write(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}
