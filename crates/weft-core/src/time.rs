//! Points in time and lengths of time, both in whole nanoseconds.
//!
//! Nothing here reads a clock. A driver stamps each batch, and the stamp travels with the tuples.

use core::fmt;
use core::ops::{Add, AddAssign, Sub};

/// A point in time: nanoseconds since the Unix epoch, monotone on one worker.
///
/// It is what `now()` returns and what a `TIMESTAMP` column holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub i64);

/// A length of time in nanoseconds; it may be negative. It is what an `INTERVAL` column holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Interval(pub i64);

impl Time {
    /// Later than every time stamp of a driver.
    pub const MAX: Self = Self(i64::MAX);
}

impl Interval {
    /// The empty interval.
    pub const ZERO: Self = Self(0);

    /// `n` nanoseconds.
    pub const fn from_nanos(n: i64) -> Self {
        Self(n)
    }

    /// `n` microseconds.
    pub const fn from_micros(n: i64) -> Self {
        Self(n * 1_000)
    }

    /// `n` milliseconds.
    pub const fn from_millis(n: i64) -> Self {
        Self(n * 1_000_000)
    }

    /// `n` seconds.
    pub const fn from_secs(n: i64) -> Self {
        Self(n * 1_000_000_000)
    }

    /// The length in nanoseconds.
    pub const fn as_nanos(self) -> i64 {
        self.0
    }

    /// The length in seconds.
    pub fn as_secs_f64(self) -> f64 {
        self.0 as f64 / 1e9
    }
}

impl Time {
    /// The first time after `now` that is a whole number of intervals after this one. A periodic task keeps its pace
    /// with it, even when one run is late.
    pub fn next_after(self, now: Self, interval: Interval) -> Self {
        let each = interval.0.max(1);
        let passed = (now.0.saturating_sub(self.0)).max(0) / each + 1;
        Self(self.0.saturating_add(passed.saturating_mul(each)))
    }
}

impl Add<Interval> for Time {
    type Output = Self;
    fn add(self, rhs: Interval) -> Self {
        Self(self.0.saturating_add(rhs.0))
    }
}

impl AddAssign<Interval> for Time {
    fn add_assign(&mut self, rhs: Interval) {
        *self = *self + rhs;
    }
}

impl Sub<Interval> for Time {
    type Output = Self;
    fn sub(self, rhs: Interval) -> Self {
        Self(self.0.saturating_sub(rhs.0))
    }
}

impl Sub for Time {
    type Output = Interval;
    fn sub(self, rhs: Self) -> Interval {
        Interval(self.0.saturating_sub(rhs.0))
    }
}

impl fmt::Display for Interval {
    /// Prints the largest unit that gives a short number: `2 s`, `1.5 ms`, `250 ns`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let magnitude = self.0.unsigned_abs();
        let (unit, nanos) = match magnitude {
            0 => return f.write_str("0 s"),
            1_000_000_000.. => ("s", 1_000_000_000),
            1_000_000.. => ("ms", 1_000_000),
            1_000.. => ("us", 1_000),
            _ => ("ns", 1),
        };
        let sign = if self.0 < 0 { "-" } else { "" };
        let (whole, rest) = (magnitude / nanos, magnitude % nanos);
        if rest == 0 {
            return write!(f, "{sign}{whole} {unit}");
        }
        let digits = nanos.ilog10() as usize;
        let fraction = format!("{rest:0digits$}");
        write!(f, "{sign}{whole}.{} {unit}", fraction.trim_end_matches('0'))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn interval_prints_in_largest_unit() {
        let shown = |n| Interval(n).to_string();
        assert_eq!(shown(0), "0 s");
        assert_eq!(shown(2_000_000_000), "2 s");
        assert_eq!(shown(1_500_000), "1.5 ms");
        assert_eq!(shown(-250), "-250 ns");
        assert_eq!(shown(1_000_000_001), "1.000000001 s");
    }
}
