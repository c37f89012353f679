//! Congestion control: the window, and the pacing rate.

use super::bbr::Bbr;
use super::cubic::Cubic;

/// The minimum window, in segments.
pub(super) const WINDOW_MIN: f64 = 2.0;
/// The maximum window, in segments.
pub(super) const WINDOW_MAX: f64 = 4_000_000.0;

/// A congestion control algorithm.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Additive increase; a loss halves the window: RFC 5681.
    NewReno,
    /// The window is a cubic function of the time since the last loss: RFC 9438.
    Cubic,
    /// A model of the path's rate and minimum round-trip time, like BBR; losses are ignored.
    BbrLike,
}

/// The information in an acknowledgement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) now_ns: u64,
    /// Newly acknowledged segments.
    pub(super) acked: u32,
    /// The round-trip time of the acknowledged segment.
    pub(super) rtt_ns: u64,
    /// The window limited the sender.
    pub(super) is_full: bool,
    /// The sender repairs a loss, so the window stays.
    pub(super) is_recovering: bool,
    /// Segments delivered since the acknowledged one was sent.
    pub(super) delivered: u32,
    /// The time of these deliveries.
    pub(super) delivered_in_ns: u64,
    /// A round trip has passed since the last acknowledgement with this flag.
    pub(super) is_round: bool,
    /// Estimated segments in flight.
    pub(super) in_flight: u32,
}

/// The congestion control of a sender.
#[derive(Clone, Debug)]
pub(super) enum Control {
    NewReno(NewReno),
    Cubic(Cubic),
    Bbr(Bbr),
}

/// RFC 5681, section 3.1, with RFC 3465's counting of segments instead of acknowledgements, at most two.
#[derive(Clone, Debug)]
pub(super) struct NewReno {
    window: f64,
    threshold: f64,
}

/// RFC 3465, section 2.3: in slow start an acknowledgement counts for at most this many segments, so that a delayed one
/// does not cause a burst.
pub(super) const COUNTED_MAX: u32 = 2;

impl Control {
    /// A controller of this algorithm with this initial window in segments.
    pub(super) fn new(algorithm: Algorithm, window: f64) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno { window, threshold: WINDOW_MAX }),
            Algorithm::Cubic => Self::Cubic(Cubic::new(window)),
            Algorithm::BbrLike => Self::Bbr(Bbr::new(window)),
        }
    }

    /// The congestion window, in segments.
    pub(super) fn window(&self) -> f64 {
        match self {
            Self::NewReno(reno) => reno.window,
            Self::Cubic(cubic) => cubic.window(),
            Self::Bbr(bbr) => bbr.window(),
        }
    }

    /// The pacing gap between two segments, in nanoseconds, for paced senders.
    pub(super) fn gap_ns(&self) -> Option<u64> {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => None,
            Self::Bbr(bbr) => bbr.gap_ns(),
        }
    }

    /// Updates the window after segments were acknowledged.
    pub(super) fn progress(&mut self, progress: &Progress) {
        match self {
            Self::NewReno(reno) => reno.progress(progress),
            Self::Cubic(cubic) => cubic.progress(progress),
            Self::Bbr(bbr) => bbr.progress(progress),
        }
    }

    /// The first loss since the last recovery; `flight` segments were outstanding.
    pub(super) fn loss(&mut self, flight: u32) {
        match self {
            Self::NewReno(reno) => {
                reno.threshold = (f64::from(flight) / 2.0).max(WINDOW_MIN);
                reno.window = reno.threshold;
            }
            Self::Cubic(cubic) => cubic.loss(),
            Self::Bbr(_) => {}
        }
    }

    /// The retransmission timer expired; `flight` segments were outstanding. `is_first`: for the first time since an
    /// arrival.
    pub(super) fn timeout(&mut self, flight: u32, is_first: bool) {
        match self {
            Self::NewReno(reno) => {
                if is_first {
                    reno.threshold = (f64::from(flight) / 2.0).max(WINDOW_MIN);
                }
                reno.window = 1.0;
            }
            Self::Cubic(cubic) => cubic.timeout(is_first),
            Self::Bbr(bbr) => bbr.timeout(),
        }
    }
}

impl NewReno {
    /// Grows the window after an acknowledgement, unless the sender recovers or did not use its window.
    fn progress(&mut self, progress: &Progress) {
        if progress.is_recovering || !progress.is_full {
            return;
        }
        let counted = f64::from(progress.acked.min(COUNTED_MAX));
        self.window += if self.window < self.threshold { counted } else { counted / self.window };
        self.window = self.window.min(WINDOW_MAX);
    }
}
