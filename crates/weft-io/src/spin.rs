//! How long a worker looks for events before it sleeps.
//!
//! To be woken costs more than most calls do: on a virtual machine some 20 us at both ends. So a worker whose events
//! have come one soon after the other looks a while for the next, and lets others run between two looks. It stops to do
//! so after the first event that took its time, so a worker without much to do sleeps. The rule is that of the kernel
//! for idle guests (Linux, `Documentation/virt/guest-halt-polling.rst`).

use weft_core::Interval;

/// How long a worker looks at most, and after which gap it does not, unless it is configured otherwise: a little more
/// than a call takes from one program of a machine to the next when nothing else happens.
pub const BUSY_POLL_MAX: Interval = Interval::from_micros(150);
/// How long a worker of frames rests behind several that came together, unless it is configured otherwise.
pub const COALESCE: Interval = Interval::from_micros(50);
/// With more calls under way, nobody looks: while a worker sleeps, more comes, and is done at once.
const CALLS_MAX: usize = 32;
/// How long the first look takes.
const SPIN_FIRST: Interval = Interval::from_micros(10);

/// How long the next look may take.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Spin {
    window: Interval,
    max: Interval,
}

impl Spin {
    /// For one of `n_workers` on a machine with `n_cores`. Where others need the cores, nobody looks.
    pub(crate) fn new(max: Interval, n_workers: usize, n_cores: usize) -> Self {
        let max = if n_workers < n_cores { max } else { Interval::ZERO };
        Self { window: Interval::ZERO, max }
    }

    /// How long to look, with so many calls under way.
    pub(crate) fn window(self, n_calls: usize) -> Interval {
        if n_calls > CALLS_MAX { Interval::ZERO } else { self.window }
    }

    /// Looking was in vain, and the next event came after so long.
    pub(crate) fn note_slept(&mut self, time: Interval) {
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
                spin.note_slept(Interval::from_micros(30));
                spin.window(1).0 / 1000
            })
            .collect();
        assert_eq!(windows, [10, 20, 40, 80, 150]);
        assert_eq!(spin.window(CALLS_MAX + 1), Interval::ZERO);
        spin.note_slept(Interval::from_micros(151));
        assert_eq!(spin.window(1), Interval::ZERO);
    }

    #[test]
    fn workers_on_all_cores_sleep() {
        for mut spin in [Spin::new(BUSY_POLL_MAX, 2, 2), Spin::new(Interval::ZERO, 1, 2)] {
            spin.note_slept(Interval::from_micros(1));
            assert_eq!(spin.window(1), Interval::ZERO);
        }
    }
}
