//! CONGESTION: a limit of calls in flight that adapts to the servers' capacity.

use super::cells::cells;
use weft_core::filter::{Congestion, CongestionLaw};
use weft_core::{Interval, Time};

/// The weight of one call in the long-term mean of GRADIENT.
const LONG_SHARE: f64 = 1.0 / 600.0;
/// The weight of one call in the limit of GRADIENT.
const STEP: f64 = 0.2;
/// GRADIENT at most halves the limit.
const GRADIENT_MIN: f64 = 0.5;
/// If the long-term mean exceeds the duration of a call by this factor, the mean is reduced quickly.
const RECOVERED: f64 = 2.0;
const RECOVERY: f64 = 0.95;

cells! {
    /// The state of a limit.
    struct Limit {
        /// 0 before the first call.
        limit: f64,
        in_flight: u32,
        /// When the limit last fell: calls sent before say nothing about the current limit.
        fell: Time,
        /// The long-term mean of call durations, in nanoseconds.
        mean_ns: f64,
    }
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sample {
    /// Its duration.
    Took(Interval),
    /// It failed in a way that indicates congestion.
    Congested,
    /// No information: the caller left.
    None,
}

impl Limit {
    /// Admits a call, if the limit allows one more in flight. False if not.
    pub(super) fn admit(&mut self, congestion: &Congestion) -> bool {
        if self.limit == 0.0 {
            self.limit = f64::from(congestion.start);
        }
        self.limit = self.limit.clamp(f64::from(congestion.min), f64::from(congestion.max));
        let may_go = f64::from(self.in_flight) < self.limit.floor();
        self.in_flight += u32::from(may_go);
        may_go
    }

    /// Counts the end of a call that was sent at `sent`, and adapts the limit to the sample.
    pub(super) fn end_call(&mut self, now: Time, congestion: &Congestion, sent: Time, sample: Sample) {
        // If the limit was hardly used, a good call does not show that it may grow.
        let is_used = f64::from(self.in_flight) * 2.0 >= self.limit;
        self.in_flight = self.in_flight.saturating_sub(1);
        match (congestion.law, sample) {
            (_, Sample::None) => {}
            (CongestionLaw::Aimd { latency_max, backoff }, sample) => {
                let is_slow =
                    matches!(sample, Sample::Took(time) if latency_max.is_some_and(|max| time > max));
                if is_slow || sample == Sample::Congested {
                    self.reduce_limit(now, sent, backoff);
                } else if is_used {
                    self.limit += 1.0 / self.limit;
                }
            }
            (CongestionLaw::Gradient { .. }, Sample::Congested) => self.reduce_limit(now, sent, GRADIENT_MIN),
            (CongestionLaw::Gradient { tolerance }, Sample::Took(time)) => {
                self.adapt_limit(tolerance, time, is_used);
            }
        }
        self.limit = self.limit.clamp(f64::from(congestion.min), f64::from(congestion.max));
    }

    pub(super) fn limit(&self) -> f64 {
        self.limit
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Multiplies the limit by `backoff`, once for all calls that were in flight together: they met the same
    /// congestion.
    fn reduce_limit(&mut self, now: Time, sent: Time, backoff: f64) {
        if sent >= self.fell {
            self.limit *= backoff;
            self.fell = now;
        }
    }

    /// Adapts the limit to the duration of a call: it shrinks as calls take longer than the long-term mean.
    /// `is_used`: at least half of the limit was in use; otherwise the limit stays.
    fn adapt_limit(&mut self, tolerance: f64, took: Interval, is_used: bool) {
        let took = (took.0 as f64).max(1.0);
        self.mean_ns = match self.mean_ns {
            0.0 => took,
            mean => mean + (took - mean) * LONG_SHARE,
        };
        if self.mean_ns / took > RECOVERED {
            self.mean_ns *= RECOVERY;
        }
        if is_used {
            let gradient = (tolerance * self.mean_ns / took).clamp(GRADIENT_MIN, 1.0);
            let wanted = self.limit * gradient + self.limit.sqrt();
            self.limit += (wanted - self.limit) * STEP;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::filter::StatusSet;

    fn congestion(law: CongestionLaw) -> Congestion {
        Congestion { law, start: 10, min: 2, max: 100, errors: StatusSet::NONE }
    }

    fn after(ms: i64) -> Time {
        Time(0) + Interval::from_millis(ms)
    }

    /// A server that takes 10 ms per call for up to `room` calls in flight, and proportionally longer beyond.
    fn settle(law: CongestionLaw, room: f64) -> f64 {
        let congestion = congestion(law);
        let mut limit = Limit::default();
        let mut now = after(0);
        for _ in 0..3000 {
            while limit.admit(&congestion) {}
            let n = limit.in_flight();
            let took = Interval((10e6 * (f64::from(n) / room).max(1.0)) as i64);
            let sent = now;
            now += took;
            (0..n).for_each(|_| limit.end_call(now, &congestion, sent, Sample::Took(took)));
        }
        limit.limit()
    }

    #[test]
    fn aimd_finds_the_capacity() {
        // A limit far below the capacity wastes servers; one far above it builds queues.
        let latency_max = Some(Interval::from_millis(15));
        let limit = settle(CongestionLaw::Aimd { latency_max, backoff: 0.9 }, 40.0);
        assert!((40.0..=66.0).contains(&limit), "{limit}");
    }

    #[test]
    fn gradient_finds_the_capacity() {
        // The target queue is the square root of the limit.
        let limit = settle(CongestionLaw::Gradient { tolerance: 1.0 }, 40.0);
        assert!((36.0..=70.0).contains(&limit), "{limit}");
    }

    #[test]
    fn one_congestion_event_counts_once() {
        // Otherwise a hundred simultaneous errors would reduce the limit to its minimum.
        let law = CongestionLaw::Aimd { latency_max: None, backoff: 0.5 };
        let congestion = congestion(law);
        let mut limit = Limit::default();
        while limit.admit(&congestion) {}
        (0..10).for_each(|_| limit.end_call(after(5), &congestion, after(0), Sample::Congested));
        assert_eq!(limit.limit(), 5.0);
        assert!(limit.admit(&congestion));
        limit.end_call(after(9), &congestion, after(6), Sample::Congested);
        assert_eq!(limit.limit(), 2.5);
    }

    #[test]
    fn limit_stays_in_bounds() {
        // Below the minimum no call would be sent, and the limit would never recover.
        let congestion = congestion(CongestionLaw::Aimd { latency_max: None, backoff: 0.1 });
        let mut limit = Limit::default();
        for at in 0..50 {
            assert!(limit.admit(&congestion));
            limit.end_call(after(at + 1), &congestion, after(at), Sample::Congested);
        }
        assert_eq!(limit.limit(), 2.0);
    }
}
