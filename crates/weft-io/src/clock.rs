//! Reads the time from the operating system.

use std::sync::LazyLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use weft_core::Time;

/// The system's clock when this process began; from there on the monotonic clock, which never steps back.
static BEGIN: LazyLock<(i64, Instant)> = LazyLock::new(|| {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    (i64::try_from(since_epoch.as_nanos()).unwrap_or(i64::MAX), Instant::now())
});

/// The current time, the same for all threads.
pub fn now() -> Time {
    let (begin, instant) = &*BEGIN;
    Time(begin.saturating_add(i64::try_from(instant.elapsed().as_nanos()).unwrap_or(i64::MAX)))
}

/// Nanoseconds since the first call in this process; for measurements.
pub fn nanos() -> u64 {
    u64::try_from(BEGIN.1.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
