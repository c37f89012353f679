//! Standard output: what a command was asked for.

use crate::fault::Fault;
use std::io::{ErrorKind, IsTerminal as _, Write as _};

/// Writes it whole. A reader that has seen enough may close its end: there is nobody left to be told.
///
/// # Errors
/// The environment is at fault: it cannot be written, as to a disk that is full.
pub(crate) fn print(text: &str) -> Result<(), Fault> {
    offer(text.as_bytes()).map(drop)
}

/// The same of bytes. Whether anybody reads on.
///
/// # Errors
/// As [`print()`].
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn offer(bytes: &[u8]) -> Result<bool, Fault> {
    let mut stdout = std::io::stdout().lock();
    match stdout.write_all(bytes).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(Fault::environment(format!("cannot write to standard output: {error}"))),
    }
}

/// Whether a person sees it.
#[expect(clippy::disallowed_methods, reason = "this is the one place")]
pub(crate) fn is_terminal() -> bool {
    std::io::stdout().is_terminal()
}
