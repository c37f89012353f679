//! How far a replay is, on a terminal.

use crate::commands::grouped;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// How often the line is written anew, and how long a replay takes before it is written at all.
const EVERY: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(1);
/// Characters of the bar.
const WIDE: u64 = 24;

pub(super) struct Progress {
    begun: Instant,
    next: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub(super) fn new(begun: Instant) -> Self {
        let next = std::io::stderr().is_terminal().then(|| begun + QUIET);
        Self { begun, next, is_shown: false }
    }

    /// `bytes`: of the file, those that were read, and all of them where that is known.
    pub(super) fn show(&mut self, packets: u64, bytes: (u64, Option<u64>)) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + EVERY);
        self.is_shown = true;
        eprint!("\r{}\x1b[K", line(packets, bytes, now - self.begun));
        let _ = std::io::stderr().flush();
    }

    pub(super) fn clear(&self) {
        if self.is_shown {
            eprint!("\r\x1b[K");
        }
    }
}

fn line(packets: u64, (done, all): (u64, Option<u64>), took: Duration) -> String {
    let seconds = took.as_secs_f64().max(1e-9);
    let rate = format!("{} packets, {}/s", grouped(packets), grouped((packets as f64 / seconds) as u64));
    let Some(all) = all.filter(|all| *all > 0) else { return rate };
    let done = done.min(all);
    let full = (WIDE * done / all) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDE as usize - full));
    let left = seconds * (all - done) as f64 / (done.max(1)) as f64;
    format!("[{bar}] {:3} %  {rate}, {} left", 100 * done / all, clock(left as u64))
}

/// `1:05`, `1:00:00`.
fn clock(seconds: u64) -> String {
    let (hours, minutes, seconds) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    match hours {
        0 => format!("{minutes}:{seconds:02}"),
        hours => format!("{hours}:{minutes:02}:{seconds:02}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_line_says_how_long_it_will_take() {
        // A long replay would look as if it hung.
        let line = |bytes| line(30_000, bytes, Duration::from_secs(10));
        let told = line((250, Some(1000)));
        assert_eq!(told, "[######------------------]  25 %  30,000 packets, 3,000/s, 0:30 left");
        assert_eq!(line((0, Some(0))), "30,000 packets, 3,000/s");
        assert_eq!(line((9, None)), "30,000 packets, 3,000/s");
        assert_eq!((clock(59), clock(3600 + 61)), ("0:59".to_owned(), "1:01:01".to_owned()));
    }
}
