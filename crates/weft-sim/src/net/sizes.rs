//! Distributions of message sizes.

use super::portable_math::{exp, ln};
use weft_core::rng::Rng;

/// A distribution of sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Sizes {
    /// One size.
    Fixed(u64),
    /// Web flows as measured in 2011 at a research institute, each with some additional bytes.
    ///
    /// Reconstructed from the published quantiles of the distribution in "Extending SDN to the Data Plane": median 542
    /// bytes, mean 139 kB, maximum 3.29 GB.
    Web {
        /// Bytes that each flow has in addition.
        more: u64,
    },
}

/// Quantiles: the share of larger flows, and the size. Between two quantiles sizes follow a power law, like real flows.
/// The quantile of 1e-4 is not published; it is chosen so that the mean equals the published one.
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
    /// Draws a size.
    pub fn draw(&self, rng: &mut Rng) -> u64 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Web { more } => more + web(1.0 - rng.unit()) as u64,
        }
    }
}

/// The size that a share `larger` of all flows exceeds, above 0 and up to 1.
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

    /// If this fails, the experiment's web flows differ from those of the paper.
    #[test]
    fn web_sizes_match_publication() {
        for (larger, size) in
            [(0.5, 542.0), (0.1, 14e3), (0.01, 248e3), (1e-3, 11.9e6), (1e-5, 3.29e9), (1e-9, 3.29e9)]
        {
            assert!((web(larger) / size - 1.0).abs() < 1e-9, "{larger}: {}", web(larger));
        }
        // The mean over 10^6 evenly spaced shares; random draws would need far more samples.
        let n = 1_000_000;
        let mean = (0..n).map(|nth| web((f64::from(nth) + 0.5) / f64::from(n))).sum::<f64>() / f64::from(n);
        assert!((mean / 139e3 - 1.0).abs() < 0.02, "{mean}");
    }

    /// If this fails, drawn flows do not follow the distribution.
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
