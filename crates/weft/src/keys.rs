//! The keys that a person presses while a command shows something.

use rustix::termios::{LocalModes, OptionalActions, SpecialCodeIndex, Termios, tcgetattr, tcsetattr};
use std::io::{IsTerminal as _, Read as _, stdin, stdout};
use std::thread::sleep;
use std::time::Duration;

/// How long a look for a key takes, in the tenths of a second that a terminal counts.
const LOOK_DECISECONDS: u8 = 1;
const LOOK: Duration = Duration::from_millis(100 * LOOK_DECISECONDS as u64);

/// Standard input, key by key if it is a terminal. What the terminal was before, it is again when this is dropped.
pub(crate) struct Keys {
    before: Option<Termios>,
}

impl Keys {
    /// Of the terminal that standard output shows something on; none where that is a file, or input is.
    pub(crate) fn new() -> Self {
        let shown = stdin().is_terminal() && is_shown();
        Self { before: if shown { tcgetattr(stdin()).ok() } else { None } }
    }

    /// Waits a moment for a key; its byte, if one was pressed.
    pub(crate) fn wait(&self) -> Option<u8> {
        let Some(before) = &self.before else {
            sleep(LOOK);
            return None;
        };
        // Each time: a shell sets its own modes when the command was stopped and goes on.
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
            // The terminal may be gone.
            let _ = tcsetattr(stdin(), OptionalActions::Now, before);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "nothing is written")]
fn is_shown() -> bool {
    stdout().is_terminal()
}
