//! OUTLIER: ejects endpoints that fail repeatedly for a while, on all workers.

use super::state::with_row;
use std::sync::Arc;
use weft_core::Time;
use weft_core::filter::Outlier;
use weft_core::table::{ColumnRef, Insert, Row, Table};

/// The longest ejection, as a multiple of the first.
const EJECTIONS_MAX: u64 = 10;

/// The state of a cluster's endpoints.
#[derive(Clone, Debug)]
pub(crate) struct Ejections {
    rows: Arc<Table>,
    /// Consecutive errors.
    errors: ColumnRef,
    /// The number of recent ejections.
    times: ColumnRef,
    /// Ejected until then.
    until: ColumnRef,
}

impl Ejections {
    pub(super) const COLUMNS: [&'static str; 3] = ["errors", "times", "until"];

    /// Creates the view of the table of endpoints.
    pub(super) fn new(rows: Arc<Table>) -> Self {
        let [errors, times, until] =
            Self::COLUMNS.map(|name| rows.column(name).expect("the table was made with these columns"));
        Self { rows, errors, times, until }
    }

    /// Whether an endpoint is ejected. The hash of its name identifies it.
    pub(crate) fn is_ejected(&self, now: Time, endpoint: u64) -> bool {
        self.with(now, endpoint, |row| {
            row.is_some_and(|row| Time(self.rows.word(row, self.until) as i64) > now)
        })
    }

    /// Counts the result of a call to an endpoint. True if the endpoint is ejected now; `may_eject` limits the number
    /// of ejected ones.
    pub(super) fn count_result(
        &self,
        now: Time,
        outlier: &Outlier,
        endpoint: u64,
        is_error: bool,
        may_eject: impl FnOnce() -> bool,
    ) -> bool {
        let is_over = self.with(now, endpoint, |row| {
            let Some(row) = row.or_else(|| self.insert(now, endpoint)) else { return false };
            let until = Time(self.rows.word(row, self.until) as i64);
            let (errors, times) = (self.rows.word(row, self.errors), self.rows.word(row, self.times));
            if !is_error {
                self.rows.set_word(row, self.errors, 0);
                // It has been healthy for as long as it was ejected: the next ejection is shorter again.
                if times > 0 && now - until > outlier.eject_for {
                    self.rows.set_word(row, self.times, times - 1);
                    self.rows.set_word(row, self.until, now.0 as u64);
                }
                return false;
            }
            // Calls that were in flight at the ejection say nothing new.
            if until > now {
                return false;
            }
            self.rows.set_word(row, self.errors, errors + 1);
            errors + 1 >= u64::from(outlier.errors_max)
        });
        is_over && may_eject() && self.eject(now, outlier, endpoint)
    }

    /// Ejects an endpoint, for longer each time. False if it has no row.
    fn eject(&self, now: Time, outlier: &Outlier, endpoint: u64) -> bool {
        self.with(now, endpoint, |row| {
            let Some(row) = row else { return false };
            let times = (self.rows.word(row, self.times) + 1).min(EJECTIONS_MAX);
            let until = now + weft_core::Interval(outlier.eject_for.0.saturating_mul(times as i64));
            self.rows.set_word(row, self.errors, 0);
            self.rows.set_word(row, self.times, times);
            self.rows.set_word(row, self.until, until.0 as u64);
            true
        })
    }

    fn insert(&self, now: Time, endpoint: u64) -> Option<Row> {
        let Insert::New(row) = self.rows.insert_int(endpoint, now) else { return None };
        Some(row)
    }

    fn with<R>(&self, now: Time, endpoint: u64, work: impl FnOnce(Option<Row>) -> R) -> R {
        with_row(&self.rows, self.rows.hash_int(endpoint), || self.rows.find_int(endpoint, now), work)
    }
}

/// The most endpoints that may be ejected at once: at most all but one; at least one if there are two.
pub(super) fn ejected_max(outlier: &Outlier, n_endpoints: usize) -> usize {
    let share = (n_endpoints as f64 * outlier.ejected_max_percent / 100.0) as usize;
    share.max(1).min(n_endpoints.saturating_sub(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::state::ejections_spec;
    use weft_core::Interval;
    use weft_core::filter::StatusSet;
    use weft_core::hash::HashKey;

    const OUTLIER: Outlier = Outlier {
        errors_max: 3,
        errors: StatusSet::NONE,
        eject_for: Interval::from_secs(10),
        ejected_max_percent: 50.0,
    };

    fn after(secs: i64) -> Time {
        Time(0) + Interval::from_secs(secs)
    }

    #[test]
    fn ejection_time_grows() {
        // If it failed, an endpoint would return too early and fail more calls, or never return.
        let known = Ejections::new(Arc::new(Table::new(ejections_spec(false), HashKey::from_seed(1))));
        let note = |secs, is_error| known.count_result(after(secs), &OUTLIER, 7, is_error, || true);
        assert!(!note(0, true) && !note(0, true) && !note(0, false));
        assert!(!note(1, true) && !note(1, true) && note(1, true));
        assert!(!note(2, true) && known.is_ejected(after(10), 7) && !known.is_ejected(after(11), 7));
        assert!(!note(12, true) && !note(12, true) && note(12, true));
        assert!(known.is_ejected(after(31), 7) && !known.is_ejected(after(32), 7));
        assert!(!note(33, false) && !note(60, false));
        assert!(!note(61, true) && !note(61, true) && note(61, true));
        assert!(!known.is_ejected(after(82), 7));
    }

    #[test]
    fn some_endpoints_always_remain() {
        // If it failed, a cluster could lose all endpoints.
        let of = |n| ejected_max(&OUTLIER, n);
        assert_eq!([of(1), of(2), of(3), of(10)], [0, 1, 1, 5]);
        let all = Outlier { ejected_max_percent: 100.0, ..OUTLIER };
        assert_eq!(ejected_max(&all, 4), 3);
        let known = Ejections::new(Arc::new(Table::new(ejections_spec(false), HashKey::from_seed(1))));
        (0..9).for_each(|_| assert!(!known.count_result(after(0), &OUTLIER, 1, true, || false)));
        assert!(!known.is_ejected(after(0), 1));
    }
}
