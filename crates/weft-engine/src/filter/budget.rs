//! BUDGET: limits the retries of all calls of a filter together.

use super::cells::cells;
use weft_core::filter::Budget;
use weft_core::{Interval, Time};

/// The window of calls that count.
const WINDOW: Interval = Interval::from_secs(10);

cells! {
    /// Retries in this window, and in the one before.
    struct Spent {
        began: Time,
        calls: u32,
        extra: u32,
        calls_before: u32,
        extra_before: u32,
    }
}

impl Spent {
    /// Counts a call.
    pub(super) fn note_call(&mut self, now: Time) {
        self.advance_window(now);
        self.calls = self.calls.saturating_add(1);
    }

    /// Spends the budget for one more try, if it has room. False if not.
    pub(super) fn spend(&mut self, now: Time, budget: &Budget) -> bool {
        self.advance_window(now);
        let left = 1.0 - ((now - self.began).0 as f64 / WINDOW.0 as f64).clamp(0.0, 1.0);
        let recent = |this: u32, before: u32| f64::from(this) + left * f64::from(before);
        let allowed = recent(self.calls, self.calls_before) * budget.percent / 100.0
            + budget.per_second_min * WINDOW.0 as f64 / 1e9;
        let has_room = recent(self.extra, self.extra_before) + 1.0 <= allowed;
        self.extra += u32::from(has_room);
        has_room
    }

    /// Starts a new window if the current one is over, and keeps the counts of the one before.
    fn advance_window(&mut self, now: Time) {
        let age = now - self.began;
        if age >= WINDOW {
            let is_next = age.0 < 2 * WINDOW.0;
            (self.calls_before, self.extra_before) = if is_next { (self.calls, self.extra) } else { (0, 0) };
            (self.calls, self.extra) = (0, 0);
            self.began = if is_next { self.began + WINDOW } else { now };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_budget_is_a_share_of_calls() {
        // If it failed, retries in an outage would keep it going.
        let budget = Budget { percent: 20.0, per_second_min: 0.0 };
        let mut spent = Spent::default();
        let mut n_extra = 0;
        for at in 0..3000 {
            let now = Time(0) + Interval::from_millis(at * 20);
            spent.note_call(now);
            n_extra += u32::from(spent.spend(now, &budget));
        }
        assert!((560..=640).contains(&n_extra), "{n_extra}");
    }

    #[test]
    fn retry_budget_has_a_minimum() {
        // A quiet service has too few calls for a share.
        let budget = Budget { percent: 0.0, per_second_min: 0.5 };
        let mut spent = Spent::default();
        let n_extra = |spent: &mut Spent, at: i64| {
            (0..100).filter(|_| spent.spend(Time(0) + Interval::from_secs(at), &budget)).count()
        };
        assert_eq!(n_extra(&mut spent, 0), 5);
        assert_eq!(n_extra(&mut spent, 25), 5);
    }
}
