//! A progress line on a terminal, for long work on packets or rows.

use crate::stderr;
use std::io::IsTerminal as _;
use std::time::{Duration, Instant};
use weft_control::show::grouped;

/// The interval between updates of the line, and the time before it first appears.
const EVERY: Duration = Duration::from_millis(200);
const QUIET: Duration = Duration::from_secs(1);
/// The width of the bar, in characters.
const WIDE: u64 = 24;

pub(crate) struct Progress {
    /// The unit of the count.
    what: &'static str,
    begun: Instant,
    next: Option<Instant>,
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new(begun: Instant) -> Self {
        Self::of("packets", begun)
    }

    pub(crate) fn of(what: &'static str, begun: Instant) -> Self {
        let next = std::io::stderr().is_terminal().then(|| begun + QUIET);
        Self { what, begun, next, is_shown: false }
    }

    /// `parts` is the finished work, in bytes or rows of a file or in seconds, and the total where it is known.
    pub(crate) fn show(&mut self, n: u64, parts: (u64, Option<u64>)) {
        let Some(next) = self.next else { return };
        let now = Instant::now();
        if now < next {
            return;
        }
        self.next = Some(now + EVERY);
        self.is_shown = true;
        stderr::control("\r\x1b[K");
        stderr::print(&line((n, self.what), parts, now - self.begun));
    }
}

impl Drop for Progress {
    /// Clears the line.
    fn drop(&mut self) {
        if self.is_shown {
            stderr::control("\r\x1b[K");
        }
    }
}

/// A line of progress: a bar, the count and rate, and the time left if the whole is known.
fn line((n, what): (u64, &str), (done, all): (u64, Option<u64>), took: Duration) -> String {
    let seconds = took.as_secs_f64().max(1e-9);
    let rate = format!("{} {what}, {}/s", grouped(n), grouped((n as f64 / seconds) as u64));
    let Some(all) = all.filter(|all| *all > 0) else { return rate };
    let done = done.min(all);
    let full = (WIDE * done / all) as usize;
    let bar = format!("{}{}", "#".repeat(full), "-".repeat(WIDE as usize - full));
    let left = seconds * (all - done) as f64 / (done.max(1)) as f64;
    format!("[{bar}] {:3} %  {rate}, {} left", 100 * done / all, clock(left as u64))
}

/// Formats seconds as a clock: `1:05`, `1:00:00`.
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
    fn progress_line_has_time_left() {
        // A long replay would look as if it hung.
        let line = |bytes| line((30_000, "packets"), bytes, Duration::from_secs(10));
        let shown = line((250, Some(1000)));
        assert_eq!(shown, "[######------------------]  25 %  30,000 packets, 3,000/s, 0:30 left");
        assert_eq!(line((0, Some(0))), "30,000 packets, 3,000/s");
        assert_eq!(line((9, None)), "30,000 packets, 3,000/s");
        assert_eq!((clock(59), clock(3600 + 61)), ("0:59".to_owned(), "1:01:01".to_owned()));
    }
}
