//! A sender like BBR: it models its path by the recent maximum rate and minimum round-trip time.
//!
//! The four states, gains and filters are BBR's (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue
//! 14(5), 2016). BBR's handling of policers, aggregated acknowledgements and losses is left out.

use super::control::{Progress, WINDOW_MIN};

/// 2 / ln 2: the minimum gain that doubles the rate each round.
const STARTUP_GAIN: f64 = 2.885;
/// Drains the queue of the startup state in one round.
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
/// The window in bandwidth-delay products, so that delayed acknowledgements do not stop the sender.
const WINDOW_GAIN: f64 = 2.0;
/// One round probes for more, one drains the queue, six cruise.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// The number of rounds in the maximum-rate filter.
const RATE_ROUNDS: u32 = 10;
/// The length of the minimum-RTT filter.
const RTT_WINDOW_NS: u64 = 10_000_000_000;
/// How long a sender probes the minimum round-trip time with a minimal window.
const PROBE_RTT_NS: u64 = 200_000_000;
const PROBE_RTT_SEGMENTS: f64 = 4.0;
/// The startup state ends after three rounds with a rate growth below a quarter.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeRate { phase: usize },
    ProbeRtt { until_ns: u64 },
}

/// The model; rates are in segments per second.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    state: State,
    window: f64,
    first_window: f64,
    gain: f64,
    /// The maximum rates of the last rounds, as (round, rate): rates descend, rounds ascend.
    rates: Vec<(u32, f64)>,
    round: u32,
    rtt_min_ns: u64,
    rtt_min_at_ns: u64,
    phase_began_ns: u64,
    full_rate: f64,
    full_rounds: u32,
}

impl Bbr {
    /// A controller in the state Startup, with this initial window in segments.
    pub(super) fn new(window: f64) -> Self {
        Self {
            state: State::Startup,
            window,
            first_window: window,
            gain: STARTUP_GAIN,
            rates: Vec::with_capacity(RATE_ROUNDS as usize + 1),
            round: 0,
            rtt_min_ns: u64::MAX,
            rtt_min_at_ns: 0,
            phase_began_ns: 0,
            full_rate: 0.0,
            full_rounds: 0,
        }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    pub(super) fn gap_ns(&self) -> Option<u64> {
        let rate = self.rates.first()?.1 * self.gain;
        Some((1e9 / rate.max(1.0)) as u64)
    }

    /// Updates the model of the path, the state and the window after an acknowledgement.
    pub(super) fn progress(&mut self, progress: &Progress) {
        self.round += u32::from(progress.is_round);
        self.sample_rate(progress);
        let is_stale = progress.now_ns > self.rtt_min_at_ns + RTT_WINDOW_NS;
        if progress.rtt_ns <= self.rtt_min_ns || is_stale {
            (self.rtt_min_ns, self.rtt_min_at_ns) = (progress.rtt_ns, progress.now_ns);
        }
        self.step(progress, is_stale);
        let gain = if self.state == State::Startup { STARTUP_GAIN } else { WINDOW_GAIN };
        let target = (gain * self.bdp()).max(PROBE_RTT_SEGMENTS);
        self.window = match self.state {
            State::ProbeRtt { .. } => PROBE_RTT_SEGMENTS,
            // The window does not shrink before the pipe is full.
            State::Startup => (self.window + f64::from(progress.acked)).min(target).max(self.first_window),
            _ => (self.window + f64::from(progress.acked)).min(target),
        };
    }

    pub(super) fn timeout(&mut self) {
        // The data in flight is lost; the model of the path is kept.
        self.window = WINDOW_MIN;
    }

    /// The bandwidth-delay product, in segments.
    fn bdp(&self) -> f64 {
        let rate = self.rates.first().map_or(0.0, |(_, rate)| *rate);
        rate * (self.rtt_min_ns as f64 / 1e9)
    }

    /// Adds a rate sample. A sample from an application-limited period counts only if it is higher.
    fn sample_rate(&mut self, progress: &Progress) {
        if progress.delivered_in_ns == 0 {
            return;
        }
        let rate = f64::from(progress.delivered) * 1e9 / progress.delivered_in_ns as f64;
        let highest = self.rates.first().map_or(0.0, |(_, rate)| *rate);
        if progress.is_full || rate > highest {
            self.rates.retain(|(_, old)| *old > rate);
            self.rates.push((self.round, rate));
        }
        let oldest = self.round.saturating_sub(RATE_ROUNDS);
        if self.rates.len() > 1 {
            let newest = self.rates.len() - 1;
            let first_kept = self.rates.iter().position(|(round, _)| *round >= oldest).unwrap_or(newest);
            self.rates.drain(..first_kept);
        }
    }

    /// Moves to the next state if its condition holds. `is_stale`: the minimum RTT has not been measured for too long.
    fn step(&mut self, progress: &Progress, is_stale: bool) {
        let flight = f64::from(progress.in_flight);
        match self.state {
            State::Startup if progress.is_round => {
                let rate = self.rates.first().map_or(0.0, |(_, rate)| *rate);
                if rate >= self.full_rate * FULL_GROWTH {
                    (self.full_rate, self.full_rounds) = (rate, 0);
                } else {
                    self.full_rounds += 1;
                }
                if self.full_rounds >= FULL_ROUNDS {
                    (self.state, self.gain) = (State::Drain, DRAIN_GAIN);
                }
            }
            State::Startup => {}
            State::Drain if flight <= self.bdp() => self.probe_rate(2, progress.now_ns),
            State::Drain => {}
            State::ProbeRate { .. } if is_stale => {
                let until_ns = progress.now_ns + PROBE_RTT_NS.max(self.rtt_min_ns);
                (self.state, self.gain) = (State::ProbeRtt { until_ns }, 1.0);
            }
            State::ProbeRate { phase } => {
                let is_over = progress.now_ns > self.phase_began_ns + self.rtt_min_ns;
                // Draining ends early once no more than a bandwidth-delay product is in flight.
                let is_drained = CYCLE[phase] < 1.0 && flight <= self.bdp();
                if is_over || is_drained {
                    self.probe_rate((phase + 1) % CYCLE.len(), progress.now_ns);
                }
            }
            State::ProbeRtt { until_ns } if progress.now_ns >= until_ns => {
                self.rtt_min_at_ns = progress.now_ns;
                self.probe_rate(2, progress.now_ns);
                self.window = self.bdp().max(PROBE_RTT_SEGMENTS);
            }
            State::ProbeRtt { .. } => {}
        }
    }

    fn probe_rate(&mut self, phase: usize, now_ns: u64) {
        self.state = State::ProbeRate { phase };
        self.gain = CYCLE[phase];
        self.phase_began_ns = now_ns;
    }
}
