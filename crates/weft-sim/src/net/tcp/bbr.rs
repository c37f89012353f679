//! A sender that models its path, as BBR does: the highest rate of late and the shortest round trip of late.
//!
//! It is like BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016) in its four
//! states, gains and filters. It leaves out what BBR does about policers, about aggregated acknowledgements and about
//! loss.

use super::control::{Progress, WINDOW_MIN};

/// 2 / ln 2: the least gain by which the rate doubles each round.
const STARTUP_GAIN: f64 = 2.885;
/// What drains in one round the queue that start-up has made.
const DRAIN_GAIN: f64 = 1.0 / STARTUP_GAIN;
/// The window in units of rate times round trip, so that delayed acknowledgements do not stop the sender.
const WINDOW_GAIN: f64 = 2.0;
/// One round asks for more, one gives it back, six cruise.
const CYCLE: [f64; 8] = [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0];
/// Rounds for which the highest rate counts.
const RATE_ROUNDS: u32 = 10;
/// For how long the shortest round trip counts.
const RTT_WINDOW_NS: u64 = 10_000_000_000;
/// How long a sender keeps still to see the path empty, and with how many segments.
const PROBE_RTT_NS: u64 = 200_000_000;
const PROBE_RTT_SEGMENTS: f64 = 4.0;
/// Start-up ends after three rounds in which the rate grew by less than a quarter.
const FULL_ROUNDS: u32 = 3;
const FULL_GROWTH: f64 = 1.25;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Startup,
    Drain,
    ProbeRate { phase: usize },
    ProbeRtt { until_ns: u64 },
}

/// The model; rates are in segments a second.
#[derive(Clone, Debug)]
pub(super) struct Bbr {
    state: State,
    window: f64,
    first_window: f64,
    gain: f64,
    /// The highest rates of the last rounds, as (round, rate): falling rates, rising rounds.
    rates: Vec<(u32, f64)>,
    round: u32,
    rtt_min_ns: u64,
    rtt_min_at_ns: u64,
    phase_began_ns: u64,
    full_rate: f64,
    full_rounds: u32,
}

impl Bbr {
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

    pub(super) fn progress(&mut self, progress: &Progress) {
        self.round += u32::from(progress.is_round);
        self.see_rate(progress);
        let is_stale = progress.now_ns > self.rtt_min_at_ns + RTT_WINDOW_NS;
        if progress.rtt_ns <= self.rtt_min_ns || is_stale {
            (self.rtt_min_ns, self.rtt_min_at_ns) = (progress.rtt_ns, progress.now_ns);
        }
        self.step(progress, is_stale);
        let gain = if self.state == State::Startup { STARTUP_GAIN } else { WINDOW_GAIN };
        let target = (gain * self.bdp()).max(PROBE_RTT_SEGMENTS);
        self.window = match self.state {
            State::ProbeRtt { .. } => PROBE_RTT_SEGMENTS,
            // Before the pipe is full nothing shrinks.
            State::Startup => (self.window + f64::from(progress.acked)).min(target).max(self.first_window),
            _ => (self.window + f64::from(progress.acked)).min(target),
        };
    }

    pub(super) fn timeout(&mut self) {
        // What was in flight is gone; what is known of the path is kept.
        self.window = WINDOW_MIN;
    }

    /// Segments that fill the path without a queue.
    fn bdp(&self) -> f64 {
        let rate = self.rates.first().map_or(0.0, |(_, rate)| *rate);
        rate * (self.rtt_min_ns as f64 / 1e9)
    }

    /// A sample of the rate; those that the sender's own silence made count only if they are higher.
    fn see_rate(&mut self, progress: &Progress) {
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
                // What was asked for too much is given back as soon as the path is no more than full.
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
