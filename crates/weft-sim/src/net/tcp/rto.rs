//! The retransmission timer of RFC 6298.

/// The maximum timeout (RFC 6298, section 2.5).
const RTO_MAX_NS: u64 = 60_000_000_000;
/// The timeout before the first sample (section 2.1).
const RTO_FIRST_NS: u64 = 1_000_000_000;
/// Maximum number of doublings; after them [`RTO_MAX_NS`] applies anyway.
const BACKOFF_MAX: u32 = 16;

/// The estimator of a path's round-trip time.
#[derive(Clone, Debug)]
pub(super) struct Rto {
    /// Minimum difference between the timeout and the smoothed round-trip time. Replaces the RFC's clock granularity
    /// and its minimum timeout of a second, as in Linux.
    slack_ns: u64,
    smoothed_ns: u64,
    variation_ns: u64,
    backoff: u32,
}

impl Rto {
    pub(super) fn new(slack_ns: u64) -> Self {
        Self { slack_ns, smoothed_ns: 0, variation_ns: 0, backoff: 0 }
    }

    /// Adds a round-trip time sample (sections 2.2 and 2.3), and resets the backoff.
    pub(super) fn sample(&mut self, rtt_ns: u64) {
        if self.smoothed_ns == 0 {
            (self.smoothed_ns, self.variation_ns) = (rtt_ns.max(1), rtt_ns / 2);
        } else {
            let error = self.smoothed_ns.abs_diff(rtt_ns);
            self.variation_ns = (3 * self.variation_ns + error) / 4;
            self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
        }
        self.backoff = 0;
    }

    /// The timer expired (section 5.5).
    pub(super) fn back_off(&mut self) {
        self.backoff = (self.backoff + 1).min(BACKOFF_MAX);
    }

    /// The current timeout.
    pub(super) fn timeout_ns(&self) -> u64 {
        let base = match self.smoothed_ns {
            0 => RTO_FIRST_NS,
            smoothed => smoothed + (4 * self.variation_ns).max(self.slack_ns),
        };
        (base << self.backoff).min(RTO_MAX_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, senders time out too early, or wait forever.
    #[test]
    fn rto_follows_rfc_6298() {
        let mut rto = Rto::new(200_000_000);
        assert_eq!(rto.timeout_ns(), 1_000_000_000);
        rto.sample(400_000_000);
        assert_eq!(rto.timeout_ns(), 1_200_000_000, "srtt + 4 * rtt / 2");
        rto.sample(480_000_000);
        assert_eq!((rto.smoothed_ns, rto.variation_ns), (410_000_000, 170_000_000));
        rto.back_off();
        rto.back_off();
        assert_eq!(rto.timeout_ns(), 4 * (410_000_000 + 4 * 170_000_000));
        (0..40).for_each(|_| rto.back_off());
        assert_eq!(rto.timeout_ns(), RTO_MAX_NS);
        (0..200).for_each(|_| rto.sample(1_000_000));
        assert_eq!(rto.timeout_ns() / 1_000_000, 201);
    }
}
