//! Adaptive busy polling: how long a worker polls for events before it sleeps.
//!
//! A wake-up costs more than most calls: some 20 us at both ends on a virtual machine. So a worker whose events follow
//! closely polls a while for the next, and yields between two polls. It stops after the first late event, so a worker
//! with little to do sleeps. This is the kernel's rule for idle guests (Linux,
//! `Documentation/virt/guest-halt-polling.rst`).

use weft_core::Interval;

/// The default limit of busy polling, and the gap after which it stops: a little more than a call takes between two
/// programs on an idle machine.
pub const BUSY_POLL_MAX: Interval = Interval::from_micros(150);
/// How long a frame worker sleeps after a burst, by default.
pub const COALESCE: Interval = Interval::from_micros(50);
/// With more calls under way there is no busy polling: while a worker sleeps, more events arrive, and are handled
/// together.
const CALLS_MAX: usize = 32;
/// The length of the first window.
const SPIN_FIRST: Interval = Interval::from_micros(10);

/// The length of the next polling window.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    window: Interval,
    max: Interval,
}

impl Spin {
    /// For one of `n_workers` on a machine with `n_cores`. If the workers need all cores, there is no busy polling.
    pub(crate) fn new(max: Interval, n_workers: usize, n_cores: usize) -> Self {
        let max = if n_workers < n_cores { max } else { Interval::ZERO };
        Self { window: Interval::ZERO, max }
    }

    /// How long to poll, with this many calls under way.
    pub(crate) fn window(self, n_calls: usize) -> Interval {
        if n_calls > CALLS_MAX { Interval::ZERO } else { self.window }
    }

    /// Polling found nothing, and the next event came after this time.
    pub(crate) fn record_sleep(&mut self, time: Interval) {
        let longer = (self.window.0 * 2).max(SPIN_FIRST.0).min(self.max.0);
        self.window = if time > self.max { Interval::ZERO } else { Interval(longer) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// An idle worker would burn its core.
    #[test]
    fn late_event_ends_spinning() {
        let mut spin = Spin::new(BUSY_POLL_MAX, 1, 2);
        assert_eq!(spin.window(1), Interval::ZERO);
        let windows: Vec<_> = (0..5)
            .map(|_| {
                spin.record_sleep(Interval::from_micros(30));
                spin.window(1).0 / 1000
            })
            .collect();
        assert_eq!(windows, [10, 20, 40, 80, 150]);
        assert_eq!(spin.window(CALLS_MAX + 1), Interval::ZERO);
        spin.record_sleep(Interval::from_micros(151));
        assert_eq!(spin.window(1), Interval::ZERO);
    }

    #[test]
    fn workers_on_all_cores_sleep() {
        for mut spin in [Spin::new(BUSY_POLL_MAX, 2, 2), Spin::new(Interval::ZERO, 1, 2)] {
            spin.record_sleep(Interval::from_micros(1));
            assert_eq!(spin.window(1), Interval::ZERO);
        }
    }
}
