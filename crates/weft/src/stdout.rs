//! Standard output: the result of a command.

use crate::fault::Fault;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use weft_core::text::escape_lines;

/// Moves the cursor to the first line, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Writes lines of text or JSON whole, with control characters escaped: peers may have chosen some of the text. A
/// reader may close its end early; this is no error.
///
/// # Errors
/// The environment is at fault: the write failed, for example because a disk is full.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    offer(text).map(drop)
}

/// As [`print()`]; returns whether the reader is still there.
///
/// # Errors
/// As [`print()`].
pub(crate) fn offer(text: &str) -> Result<bool, Fault> {
    write(escape_lines(text).as_bytes())
}

/// As [`offer()`], and replaces the text on a terminal.
///
/// # Errors
/// As [`print()`].
pub(crate) fn refresh(text: &str) -> Result<bool, Fault> {
    let clear = if is_terminal() { CLEAR } else { "" };
    write(format!("{clear}{}", escape_lines(text)).as_bytes())
}

/// Writes bytes unchanged, for files that this program generates.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Fault> {
    write(bytes).map(drop)
}

/// Writes to standard output. False if its reader is gone.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn write(bytes: &[u8]) -> Result<bool, Fault> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Fault::environment(format!("cannot write to standard output: {error}"))),
    }
}

/// Whether standard output is a terminal.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}
