//! Timing samples: selects the passes that are timed, so that the cost of each element is measured at little cost.

use weft_core::{Interval, Time};

/// At most one in that many passes is timed: timing reads the clock around each element.
const TRACE_EVERY: u32 = 64;
/// At most one pass in that time is timed. Timed passes run other code; at millions of packets per second, one in 64
/// would evict the ordinary code from the nearest cache with each batch.
const TRACE_PAUSE: Interval = Interval::from_millis(1);

/// Selects the next pass to be timed; the first is.
#[derive(Debug, Default)]
pub(crate) struct Tracing {
    /// Passes before it.
    before: u32,
    /// When the last one was timed, if any.
    last: Option<Time>,
}

impl Tracing {
    /// Returns how many of the next `n` passes, from the first on, are not timed. 0: the first one is.
    #[inline]
    pub(crate) fn untraced(&self, now: Time, n: usize) -> usize {
        // Times may go back: those of a capture.
        let is_soon = |last: Time| (now - last).0.unsigned_abs() < TRACE_PAUSE.0.unsigned_abs();
        if self.last.is_some_and(is_soon) { n } else { n.min(self.before as usize) }
    }

    /// Counts passes that have started: `n` untimed ones, as [`Tracing::untraced`] returned, or one timed pass.
    #[inline]
    pub(crate) fn began(&mut self, now: Time, n: usize, is_traced: bool) {
        if is_traced {
            *self = Self { before: TRACE_EVERY - 1, last: Some(now) };
        } else {
            self.before = self.before.saturating_sub(n as u32);
        }
    }

    /// Starts a pass; returns whether it is timed.
    #[inline]
    pub(crate) fn begin(&mut self, now: Time) -> bool {
        let is_traced = self.untraced(now, 1) == 0;
        self.began(now, 1, is_traced);
        is_traced
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timing_samples_by_count_and_by_time() {
        // The interval of passes in microseconds, and how many of 100,000 are timed.
        for (apart, timed) in [(1_000, 1_563), (20, 1_563), (10, 1_000), (1, 100)] {
            let mut tracing = Tracing::default();
            let began = (0..100_000).filter(|nth| tracing.begin(Time(nth * apart * 1_000)));
            assert_eq!(began.count(), timed, "{apart} us");
        }
    }

    #[test]
    fn batch_ends_before_a_timed_pass() {
        let (mut tracing, now) = (Tracing::default(), Time(0));
        assert_eq!(tracing.untraced(now, 64), 0);
        tracing.began(now, 1, true);
        assert_eq!(tracing.untraced(now, 64), 64, "the pause has not passed");
        let later = now + TRACE_PAUSE;
        assert_eq!(tracing.untraced(later, 64), 63);
        tracing.began(later, 60, false);
        assert_eq!(tracing.untraced(later, 64), 3);
    }
}
