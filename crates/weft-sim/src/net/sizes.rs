//! How large messages are.

use super::numbers::{exp, ln};
use weft_core::rng::Rng;

/// A distribution of sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// All the same.
    Fixed(u64),
    /// Flows of the web as they were seen in 2011 at a research institute, each with so many bytes more.
    ///
    /// Made anew from the published quantiles of the distribution with which "Extending SDN to the Data Plane" was
    /// measured: median 542 bytes, mean 139 kB, the largest 3.29 GB.
    Web {
        /// Bytes that every flow has in addition.
        more: u64,
    },
}

/// Quantiles: the share of flows that are larger, and the size. Between two of them sizes follow a power law, which is
/// what such flows do. The one of 1e-4 is not published; it is set so that the mean is that which is.
const WEB: [(f64, f64); 8] = [
    (1.0, 60.0),
    (0.5, 542.0),
    (0.1, 14.0e3),
    (0.01, 248.0e3),
    (1e-3, 11.9e6),
    (1e-4, 160.0e6),
    (1e-5, 3.29e9),
    (0.0, 3.29e9),
];

impl Sizes {
    /// A size.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Web { more } => more + web(1.0 - rng.unit()) as u64,
        }
    }
}

/// The size that a share `larger` of all flows exceed, above 0 and up to 1.
fn web(larger: f64) -> f64 {
    let at = WEB.iter().rposition(|(share, _)| larger <= *share).unwrap_or(0);
    let ((from, low), (to, high)) = (WEB[at], WEB[(at + 1).min(WEB.len() - 1)]);
    if to == 0.0 {
        return high;
    }
    let way = ln(from / larger) / ln(from / to);
    low * exp(way * ln(high / low))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The web of the experiment would have other flows than that of the paper.
    #[test]
    fn web_sizes_match_publication() {
        for (larger, size) in
            [(0.5, 542.0), (0.1, 14e3), (0.01, 248e3), (1e-3, 11.9e6), (1e-5, 3.29e9), (1e-9, 3.29e9)]
        {
            assert!((web(larger) / size - 1.0).abs() < 1e-9, "{larger}: {}", web(larger));
        }
        // The mean over 10^6 evenly spaced shares, which no drawing at random comes near.
        let n = 1_000_000;
        let mean = (0..n).map(|nth| web((f64::from(nth) + 0.5) / f64::from(n))).sum::<f64>() / f64::from(n);
        assert!((mean / 139e3 - 1.0).abs() < 0.02, "{mean}");
    }

    /// Fewer flows than are drawn would be as large as they say.
    #[test]
    fn drawn_sizes_match_distribution() {
        let mut rng = Rng::from_seed(1);
        let mut drawn: Vec<u64> = (0..20_000).map(|_| Sizes::Web { more: 16_384 }.draw(&mut rng)).collect();
        drawn.sort_unstable();
        assert!(drawn[0] >= 16_384 + 60);
        assert!((drawn[10_000] as f64 / (16_384.0 + 542.0) - 1.0).abs() < 0.02);
        assert!((drawn[18_000] as f64 / (16_384.0 + 14e3) - 1.0).abs() < 0.1);
        assert_eq!(Sizes::Fixed(7).draw(&mut rng), 7);
    }
}
