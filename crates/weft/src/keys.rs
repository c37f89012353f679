//! Keys that a person presses while a command shows a page.

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{IsTerminal as _, Read as _, stdin, stdout};
use std::thread::sleep;
use std::time::Duration;

/// The timeout of a read, in the tenths of a second that a terminal counts in.
const LOOK_DECISECONDS: u8 = 1;
const LOOK: Duration = Duration::from_millis(100 * LOOK_DECISECONDS as u64);

/// Standard input, key by key if it is a terminal. Dropping this restores the terminal's settings.
pub(crate) struct Keys {
    before: Option<Termios>,
}

impl Keys {
    /// Reads keys if standard input and standard output are terminals; otherwise reads none.
    pub(crate) fn new() -> Self {
        let shown = stdin().is_terminal() && is_shown();
        Self { before: if shown { tcgetattr(stdin()).ok() } else { None } }
    }

    /// Waits briefly for a key, and returns its byte if there was one.
    pub(crate) fn wait(&self) -> Option<u8> {
        let Some(before) = &self.before else {
            sleep(LOOK);
            return None;
        };
        // Each time, because a shell sets its own modes when a stopped command continues.
        let mut modes = before.clone();
        modes.local_modes -= LocalModes::ICANON | LocalModes::ECHO;
        modes.special_codes[SpecialCodeIndex::VMIN] = 0;
        modes.special_codes[SpecialCodeIndex::VTIME] = LOOK_DECISECONDS;
        let mut key = [0];
        if tcsetattr(stdin(), OptionalActions::Now, &modes).is_err() {
            sleep(LOOK);
            return None;
        }
        match stdin().lock().read(&mut key) {
            Ok(1) => Some(key[0]),
            Ok(_) => None,
            Err(_) => {
                sleep(LOOK);
                None
            }
        }
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        if let Some(before) = &self.before {
            // Ignore errors: the terminal may be gone.
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing is written")]
fn is_shown() -> bool {
    stdout().is_terminal()
}
