//! CIRCUIT: a circuit breaker. It opens on errors, later lets probes pass, and closes when they succeed.

use super::cells::{Word, cells};
use weft_core::Time;
use weft_core::filter::Circuit;

cells! {
    /// The state of a breaker.
    struct Breaker {
        phase: Phase,
        /// Consecutive errors.
        errors: u32,
        window_began: Time,
        window_calls: u32,
        window_errors: u32,
        /// When it opened.
        opened: Time,
        /// Probes in flight.
        probes: u32,
        /// Probes that succeeded.
        probes_good: u32,
        /// Calls in flight, probes included.
        in_flight: u32,
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    #[default]
    Closed,
    Open,
    /// Probes decide whether it closes.
    HalfOpen,
}

/// The result of an admitted call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum CallResult {
    Well,
    WithError,
    /// The caller left before there was a result.
    Unknown,
}

/// How a call was admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PassKind {
    Ordinary,
    Probe,
}

/// Why a call is rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rejection {
    Open,
    TooMany,
}

impl Breaker {
    /// Admits a call, as an ordinary one or as a probe of the half-open breaker. An error says why not.
    pub(super) fn admit(&mut self, now: Time, circuit: &Circuit) -> Result<PassKind, Rejection> {
        if self.phase == Phase::Open && now - self.opened >= circuit.open_for {
            (self.phase, self.probes, self.probes_good) = (Phase::HalfOpen, 0, 0);
        }
        if circuit.in_flight_max.is_some_and(|max| self.in_flight >= max) {
            return Err(Rejection::TooMany);
        }
        let pass = match self.phase {
            Phase::Closed => PassKind::Ordinary,
            Phase::HalfOpen if self.probes + self.probes_good < circuit.probes => {
                self.probes += 1;
                PassKind::Probe
            }
            Phase::Open | Phase::HalfOpen => return Err(Rejection::Open),
        };
        self.in_flight += 1;
        Ok(pass)
    }

    /// Counts the end of an admitted call. True if the breaker opened.
    pub(super) fn end_call(
        &mut self,
        now: Time,
        circuit: &Circuit,
        pass: PassKind,
        ended: CallResult,
    ) -> bool {
        self.in_flight = self.in_flight.saturating_sub(1);
        match (pass, self.phase) {
            (PassKind::Probe, Phase::HalfOpen) => self.count_probe(now, circuit, ended),
            (PassKind::Ordinary, Phase::Closed) => self.count_result(now, circuit, ended),
            // It was admitted before the breaker changed, and says nothing about the servers now.
            _ => false,
        }
    }

    pub(super) fn phase(&self) -> Phase {
        self.phase
    }

    pub(super) fn in_flight(&self) -> u32 {
        self.in_flight
    }

    /// Counts the result of a probe: closes the breaker after enough good ones, opens it after an error. True if it
    /// opened.
    fn count_probe(&mut self, now: Time, circuit: &Circuit, ended: CallResult) -> bool {
        self.probes = self.probes.saturating_sub(1);
        match ended {
            CallResult::Well => {
                self.probes_good += 1;
                if self.probes_good >= circuit.probes {
                    *self = Self { in_flight: self.in_flight, window_began: now, ..Self::default() };
                }
                false
            }
            CallResult::WithError => self.open(now),
            CallResult::Unknown => false,
        }
    }

    /// Counts the result of an ordinary call. True if the breaker opened: too many errors in a row, or too many in
    /// the window.
    fn count_result(&mut self, now: Time, circuit: &Circuit, ended: CallResult) -> bool {
        if ended == CallResult::Unknown {
            return false;
        }
        if circuit.ratio.is_some_and(|ratio| now - self.window_began >= ratio.window) {
            (self.window_began, self.window_calls, self.window_errors) = (now, 0, 0);
        }
        let is_error = ended == CallResult::WithError;
        self.errors = if is_error { self.errors + 1 } else { 0 };
        self.window_calls += 1;
        self.window_errors += u32::from(is_error);
        let is_over = |ratio: weft_core::filter::ErrorRatio| {
            self.window_calls >= ratio.calls_min.max(1)
                && f64::from(self.window_errors) * 100.0 >= ratio.percent * f64::from(self.window_calls)
        };
        let in_a_row = circuit.errors_max.is_some_and(|max| self.errors >= max);
        is_error && (in_a_row || circuit.ratio.is_some_and(is_over)) && self.open(now)
    }

    fn open(&mut self, now: Time) -> bool {
        *self = Self { phase: Phase::Open, opened: now, in_flight: self.in_flight, ..Self::default() };
        true
    }
}

impl Word for Phase {
    /// Reads a phase from a shared word.
    fn from_word(word: u64) -> Self {
        match word {
            1 => Self::Open,
            2 => Self::HalfOpen,
            _ => Self::Closed,
        }
    }

    fn to_word(&self) -> u64 {
        *self as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::Interval;
    use weft_core::filter::{ErrorRatio, StatusSet};

    const CIRCUIT: Circuit = Circuit {
        errors_max: Some(3),
        ratio: None,
        in_flight_max: None,
        errors: StatusSet::NONE,
        open_for: Interval::from_secs(1),
        probes: 2,
    };

    fn after(ms: i64) -> Time {
        Time(0) + Interval::from_millis(ms)
    }

    fn call(
        breaker: &mut Breaker,
        circuit: &Circuit,
        at: Time,
        ended: CallResult,
    ) -> Result<PassKind, Rejection> {
        let pass = breaker.admit(at, circuit)?;
        breaker.end_call(at, circuit, pass, ended);
        Ok(pass)
    }

    #[test]
    fn consecutive_errors_open_breaker() {
        // If it failed, scattered errors would open it, or it would never close.
        let mut breaker = Breaker::default();
        for ended in [
            CallResult::WithError,
            CallResult::WithError,
            CallResult::Well,
            CallResult::WithError,
            CallResult::WithError,
        ] {
            assert_eq!(call(&mut breaker, &CIRCUIT, after(0), ended), Ok(PassKind::Ordinary));
        }
        assert_eq!(call(&mut breaker, &CIRCUIT, after(0), CallResult::WithError), Ok(PassKind::Ordinary));
        assert_eq!(breaker.admit(after(999), &CIRCUIT), Err(Rejection::Open));
        assert_eq!(breaker.admit(after(1000), &CIRCUIT), Ok(PassKind::Probe));
        assert_eq!(breaker.admit(after(1000), &CIRCUIT), Ok(PassKind::Probe));
        assert_eq!(breaker.admit(after(1000), &CIRCUIT), Err(Rejection::Open));
        breaker.end_call(after(1001), &CIRCUIT, PassKind::Probe, CallResult::Well);
        assert_eq!(breaker.admit(after(1001), &CIRCUIT), Err(Rejection::Open));
        breaker.end_call(after(1002), &CIRCUIT, PassKind::Probe, CallResult::Well);
        assert_eq!(call(&mut breaker, &CIRCUIT, after(1002), CallResult::Well), Ok(PassKind::Ordinary));
    }

    #[test]
    fn failed_probe_reopens_breaker() {
        // If it failed, a probe whose caller left would keep the breaker half open forever.
        let circuit = Circuit { probes: 1, ..CIRCUIT };
        let mut breaker = Breaker::default();
        for _ in 0..3 {
            call(&mut breaker, &circuit, after(0), CallResult::WithError).unwrap();
        }
        assert_eq!(call(&mut breaker, &circuit, after(1000), CallResult::Unknown), Ok(PassKind::Probe));
        assert_eq!(call(&mut breaker, &circuit, after(1000), CallResult::WithError), Ok(PassKind::Probe));
        assert_eq!(breaker.admit(after(1999), &circuit), Err(Rejection::Open));
        assert_eq!(call(&mut breaker, &circuit, after(2000), CallResult::Well), Ok(PassKind::Probe));
        assert_eq!(breaker.phase(), Phase::Closed);
    }

    #[test]
    fn error_rate_opens_breaker() {
        // Two errors in two calls are weak evidence; ten of twenty in a window are enough.
        let ratio = ErrorRatio { percent: 50.0, calls_min: 10, window: Interval::from_secs(10) };
        let circuit = Circuit { errors_max: None, ratio: Some(ratio), ..CIRCUIT };
        let mut breaker = Breaker::default();
        for at in 0..9 {
            let ended = if at % 2 == 0 { CallResult::WithError } else { CallResult::Well };
            assert_eq!(call(&mut breaker, &circuit, after(at), ended), Ok(PassKind::Ordinary));
        }
        assert_eq!(breaker.phase(), Phase::Closed);
        call(&mut breaker, &circuit, after(9), CallResult::WithError).unwrap();
        assert_eq!(breaker.phase(), Phase::Open);
        let mut slow = Breaker::default();
        for at in 0..20 {
            call(&mut slow, &circuit, after(at * 2000), CallResult::WithError).unwrap();
        }
        assert_eq!(slow.phase(), Phase::Closed);
    }

    #[test]
    fn calls_in_flight_are_bounded() {
        // The bound keeps a slow server from using up its clients' memory.
        let circuit = Circuit { in_flight_max: Some(2), ..CIRCUIT };
        let mut breaker = Breaker::default();
        let first = breaker.admit(after(0), &circuit).unwrap();
        breaker.admit(after(0), &circuit).unwrap();
        assert_eq!(breaker.admit(after(0), &circuit), Err(Rejection::TooMany));
        breaker.end_call(after(1), &circuit, first, CallResult::Unknown);
        assert_eq!(breaker.admit(after(1), &circuit), Ok(PassKind::Ordinary));
        assert_eq!(breaker.in_flight(), 2);
    }
}
