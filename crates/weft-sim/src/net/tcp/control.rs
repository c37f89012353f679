//! Congestion control: how much may be under way, and how fast it may be sent.

use super::bbr::Bbr;
use super::cubic::Cubic;

/// The window below which no control goes, in segments.
pub(super) const WINDOW_MIN: f64 = 2.0;
/// No window is larger, in segments.
pub(super) const WINDOW_MAX: f64 = 4_000_000.0;

/// How a sender finds the capacity of its path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Algorithm {
    /// Additive increase, halved by a loss: RFC 5681.
    NewReno,
    /// A window that is a cubic function of the time since the last loss: RFC 9438.
    Cubic,
    /// A model of the path, of its rate and its shortest round trip, as BBR makes it; losses say nothing.
    BbrLike,
}

/// What an acknowledgement says to a control.
#[derive(Clone, Copy, Debug)]
pub(super) struct Progress {
    pub(super) now_ns: u64,
    /// Segments that are known to have arrived by it.
    pub(super) acked: u32,
    /// Of the segment that it answers.
    pub(super) rtt_ns: u64,
    /// The window was what limited the sender.
    pub(super) is_full: bool,
    /// The sender repairs a loss, and the window holds.
    pub(super) is_recovering: bool,
    /// Segments that have arrived, since the answered one was sent.
    pub(super) delivered: u32,
    /// In this time.
    pub(super) delivered_in_ns: u64,
    /// A round trip has passed since the last time that this was so.
    pub(super) is_round: bool,
    /// Believed to be under way.
    pub(super) in_flight: u32,
}

/// The control of one sender.
#[derive(Clone, Debug)]
pub(super) enum Control {
    NewReno(NewReno),
    Cubic(Cubic),
    Bbr(Bbr),
}

/// RFC 5681, section 3.1, with RFC 3465's count of segments instead of acknowledgements, two at most.
#[derive(Clone, Debug)]
pub(super) struct NewReno {
    window: f64,
    threshold: f64,
}

/// RFC 3465, section 2.3: in slow start an acknowledgement counts for no more segments, so that one that was delayed
/// sends no burst.
pub(super) const COUNTED_MAX: u32 = 2;

impl Control {
    pub(super) fn new(algorithm: Algorithm, window: f64) -> Self {
        match algorithm {
            Algorithm::NewReno => Self::NewReno(NewReno { window, threshold: WINDOW_MAX }),
            Algorithm::Cubic => Self::Cubic(Cubic::new(window)),
            Algorithm::BbrLike => Self::Bbr(Bbr::new(window)),
        }
    }

    /// Segments that may be under way.
    pub(super) fn window(&self) -> f64 {
        match self {
            Self::NewReno(reno) => reno.window,
            Self::Cubic(cubic) => cubic.window(),
            Self::Bbr(bbr) => bbr.window(),
        }
    }

    /// Nanoseconds between two segments, if the sender is to keep a pace.
    pub(super) fn gap_ns(&self) -> Option<u64> {
        match self {
            Self::NewReno(_) | Self::Cubic(_) => None,
            Self::Bbr(bbr) => bbr.gap_ns(),
        }
    }

    /// Segments have arrived.
    pub(super) fn progress(&mut self, progress: &Progress) {
        match self {
            Self::NewReno(reno) => reno.progress(progress),
            Self::Cubic(cubic) => cubic.progress(progress),
            Self::Bbr(bbr) => bbr.progress(progress),
        }
    }

    /// A loss was found, the first since the last recovery ended; `flight` segments were outstanding.
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

    /// The retransmission timer has run out; `flight` segments were outstanding. `is_first`: since anything arrived.
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
    fn progress(&mut self, progress: &Progress) {
        if progress.is_recovering || !progress.is_full {
            return;
        }
        let counted = f64::from(progress.acked.min(COUNTED_MAX));
        self.window += if self.window < self.threshold { counted } else { counted / self.window };
        self.window = self.window.min(WINDOW_MAX);
    }
}
