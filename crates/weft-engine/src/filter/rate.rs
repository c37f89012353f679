//! RATE and PACE: the generic cell rate algorithm (ITU-T I.371, annex A).
//!
//! A key needs one number: the time of the next call at an even rate. A waiting call takes its turn when it starts to
//! wait, so turns are in order of arrival, and no call needs to be woken.

use weft_core::filter::Rate;
use weft_core::{Interval, Time};

/// When a call may go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RateDecision {
    Now,
    /// Not before this time.
    At(Time),
    /// It came too early, and may not wait, or not that long.
    Refused,
}

/// Reserves the next time of the schedule for a call: now, later, or refused. `expected` is the time of the next call
/// at an even rate, and is advanced. A new key may have any time in the past.
pub(super) fn reserve_turn(expected: &mut Time, now: Time, rate: &Rate, may_wait: bool) -> RateDecision {
    let step = Interval((1e9 / rate.per_second) as i64);
    let lead = Interval((1e9 / rate.per_second * (rate.burst - 1.0)) as i64);
    let next = (*expected).max(now);
    let turn = (next - lead).max(now);
    if turn > now && (!may_wait || turn - now > rate.wait_max) {
        return RateDecision::Refused;
    }
    *expected = next + step;
    if turn > now { RateDecision::At(turn) } else { RateDecision::Now }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rate(per_second: f64, burst: f64) -> Rate {
        let wait_max = Interval::from_secs(1);
        Rate { per_second, burst, key: None, keys_max: 1, waiting_max: 1, wait_max }
    }

    #[test]
    fn burst_passes_then_rate_applies() {
        // If it failed, the limit would let too many calls pass.
        let (mut expected, now) = (Time(0), Time(1_000_000_000));
        let turns: Vec<_> =
            (0..5).map(|_| reserve_turn(&mut expected, now, &rate(10.0, 3.0), true)).collect();
        let at = |ms| RateDecision::At(now + Interval::from_millis(ms));
        assert_eq!(turns, [RateDecision::Now, RateDecision::Now, RateDecision::Now, at(100), at(200)]);
    }

    #[test]
    fn refused_call_takes_no_turn() {
        // If it failed, refused calls would advance the schedule and keep others out.
        let (mut expected, now) = (Time(0), Time(5));
        let pace = rate(10.0, 1.0);
        assert_eq!(reserve_turn(&mut expected, now, &pace, false), RateDecision::Now);
        let before = expected;
        assert_eq!(reserve_turn(&mut expected, now, &pace, false), RateDecision::Refused);
        assert_eq!(expected, before);
        assert_eq!(
            reserve_turn(&mut expected, now + Interval::from_millis(100), &pace, false),
            RateDecision::Now
        );
    }

    #[test]
    fn wait_stays_within_its_limit() {
        // If it failed, callers that have left would get answers.
        let (mut expected, now) = (Time(0), Time(0));
        let pace = rate(2.0, 1.0);
        let turns: Vec<_> = (0..4).map(|_| reserve_turn(&mut expected, now, &pace, true)).collect();
        let at = |ms| RateDecision::At(now + Interval::from_millis(ms));
        assert_eq!(turns, [RateDecision::Now, at(500), at(1000), RateDecision::Refused]);
    }

    #[test]
    fn idle_time_earns_at_most_a_burst() {
        // If it failed, a flood would pass after a quiet night.
        let mut expected = Time(0);
        let later = Time(3_600_000_000_000);
        let n_now = (0..100)
            .filter(|_| reserve_turn(&mut expected, later, &rate(10.0, 5.0), false) == RateDecision::Now)
            .count();
        assert_eq!(n_now, 5);
    }
}
