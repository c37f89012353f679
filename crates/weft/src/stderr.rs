//! Standard error: what a command says of its work.

use core::fmt::Arguments;
use std::io::Write as _;

/// Writes it whole. What cannot be written is left out, as where the reader has seen enough: a command does what it was
/// asked for, and ends with the status of that, whether anybody listens or not.
pub(crate) fn print(text: &str) {
    let _ = std::io::stderr().lock().write_all(text.as_bytes());
}

/// The same of a line.
pub(crate) fn line(text: Arguments<'_>) {
    print(&format!("{text}\n"));
}
