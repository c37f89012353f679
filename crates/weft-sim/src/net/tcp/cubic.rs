//! CUBIC: the window as a cubic function of the time since the last loss. Source: RFC 9438.

use super::control::{COUNTED_MAX, Progress, WINDOW_MAX, WINDOW_MIN};
use crate::net::portable_math::cbrt;

/// `C` of the RFC, in segments per second cubed (section 5).
const SCALE: f64 = 0.4;
/// `beta_cubic`: the factor of the window after a loss (section 4.6).
const BETA: f64 = 0.7;
/// `alpha_cubic`: makes a flow grow like Reno on average (section 4.3).
const RENO_GROWTH: f64 = 3.0 * (1.0 - BETA) / (1.0 + BETA);

/// The state of section 4.1; windows are in segments.
#[derive(Clone, Debug)]
pub(super) struct Cubic {
    window: f64,
    threshold: f64,
    /// The window at the last loss: the plateau of the curve.
    window_max: f64,
    /// The window of a Reno sender.
    window_reno: f64,
    /// The start of this congestion avoidance stage; `None` before its first acknowledgement.
    epoch_ns: Option<u64>,
    /// Seconds from the start to the plateau: `K`.
    plateau_s: f64,
    rtt_ns: u64,
}

impl Cubic {
    /// A controller with this initial window in segments.
    pub(super) fn new(window: f64) -> Self {
        Self {
            window,
            threshold: WINDOW_MAX,
            window_max: 0.0,
            window_reno: 0.0,
            epoch_ns: None,
            plateau_s: 0.0,
            rtt_ns: 0,
        }
    }

    pub(super) fn window(&self) -> f64 {
        self.window
    }

    /// Grows the window after an acknowledgement, unless the sender recovers or did not use its window.
    pub(super) fn progress(&mut self, progress: &Progress) {
        self.rtt_ns = match self.rtt_ns {
            0 => progress.rtt_ns,
            smoothed => (7 * smoothed + progress.rtt_ns) / 8,
        };
        if progress.is_recovering || !progress.is_full {
            return;
        }
        let counted = f64::from(progress.acked.min(COUNTED_MAX));
        if self.window < self.threshold {
            self.window = (self.window + counted).min(WINDOW_MAX);
            return;
        }
        let epoch = *self.epoch_ns.get_or_insert_with(|| {
            self.window_reno = self.window;
            // Section 4.2: K is 0 if the window is already at the plateau.
            self.window_max = self.window_max.max(self.window);
            self.plateau_s = cbrt((self.window_max - self.window) / SCALE);
            progress.now_ns
        });
        let seconds = (progress.now_ns - epoch) as f64 / 1e9;
        // Section 4.3: above the window of the last loss, Reno grows by one segment per round.
        let growth = if self.window_reno < self.window_max { RENO_GROWTH } else { 1.0 };
        self.window_reno += growth * counted / self.window;
        if self.at(seconds) < self.window_reno {
            self.window = self.window_reno;
        } else {
            let target = self.at(seconds + self.rtt_ns as f64 / 1e9).clamp(self.window, 1.5 * self.window);
            self.window += counted * (target - self.window) / self.window;
        }
        self.window = self.window.min(WINDOW_MAX);
    }

    /// Reduces the window after a loss.
    pub(super) fn loss(&mut self) {
        self.epoch_ns = None;
        // Fast convergence, section 4.7: a flow that did not reach its last plateau releases bandwidth.
        self.window_max =
            if self.window < self.window_max { self.window * (1.0 + BETA) / 2.0 } else { self.window };
        self.threshold = (self.window * BETA).max(WINDOW_MIN);
        self.window = self.threshold;
    }

    /// Sets the window to one segment after a retransmission timeout; the first one also counts as a loss.
    pub(super) fn timeout(&mut self, is_first: bool) {
        if is_first {
            self.loss();
        }
        self.epoch_ns = None;
        self.window = 1.0;
    }

    /// The curve of section 4.2, `seconds` after the start of the epoch.
    fn at(&self, seconds: f64) -> f64 {
        let from_plateau = seconds - self.plateau_s;
        SCALE * from_plateau * from_plateau * from_plateau + self.window_max
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acked(now_ns: u64) -> Progress {
        Progress {
            now_ns,
            acked: 1,
            rtt_ns: 100_000_000,
            is_full: true,
            is_recovering: false,
            delivered: 1,
            delivered_in_ns: 1,
            is_round: false,
            in_flight: 1,
        }
    }

    /// If this fails, the window does not follow RFC 9438, section 4.2. After a loss it returns to its old value in K
    /// seconds, ever more slowly, and then grows ever faster.
    #[test]
    fn window_follows_cubic_curve() {
        let mut cubic = Cubic::new(1000.0);
        cubic.loss();
        assert_eq!((cubic.window, cubic.window_max), (700.0, 1000.0));
        let k = (300.0f64 / 0.4).cbrt();
        let (mut now, end) = (0u64, (2.0 * k * 1e9) as u64);
        let mut at_plateau = 0.0;
        while now < end {
            cubic.progress(&acked(now));
            if at_plateau == 0.0 && now as f64 / 1e9 >= k {
                at_plateau = cubic.window;
            }
            now += (1e8 / cubic.window) as u64;
        }
        assert!((at_plateau - 1000.0).abs() < 10.0, "{at_plateau}");
        assert!(
            (cubic.window - 1300.0).abs() < 40.0,
            "the curve is the same on both sides: {}",
            cubic.window
        );
    }

    /// If this fails, a flow that loses below its plateau does not lower the plateau (section 4.7).
    #[test]
    fn fast_convergence_leaves_room() {
        let mut cubic = Cubic::new(1000.0);
        cubic.loss();
        cubic.loss();
        assert_eq!(cubic.window_max, 700.0 * 1.7 / 2.0);
        cubic.timeout(true);
        assert_eq!(cubic.window, 1.0);
    }
}
