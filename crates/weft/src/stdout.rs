//! Standard output: what a command was asked for.

use crate::fault::Fault;
use std::io::{ErrorKind, IsTerminal as _, Write as _};
use weft_core::text::escape_lines;

/// Moves the cursor to the first line, and clears what is below.
const CLEAR: &str = "\x1b[H\x1b[J";

/// Writes lines of text or JSON whole, with control characters escaped: peers may have chosen some of the text. A
/// reader that has seen enough may close its end: there is nobody left to be told.
///
/// # Errors
/// The environment is at fault: it cannot be written, as to a disk that is full.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    offer(text).map(drop)
}

/// The same. Whether anybody reads on.
///
/// # Errors
/// As [`print()`].
pub(crate) fn offer(text: &str) -> Result<bool, Fault> {
    write(escape_lines(text).as_bytes())
}

/// The same, in the place of what a terminal shows.
///
/// # Errors
/// As [`print()`].
pub(crate) fn refresh(text: &str) -> Result<bool, Fault> {
    let clear = if is_terminal() { CLEAR } else { "" };
    write(format!("{clear}{}", escape_lines(text)).as_bytes())
}

/// Writes bytes as they are: files of our own making.
///
/// # Errors
/// As [`print()`].
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<(), Fault> {
    write(bytes).map(drop)
}

#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn write(bytes: &[u8]) -> Result<bool, Fault> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Fault::environment(format!("cannot write to standard output: {error}"))),
    }
}

/// Whether a person sees it.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}
