//! The random number generator: a seed gives the same numbers on every machine. Simulations, workloads, emulated links,
//! queues, tests, fuzzing and benchmarks use it.

use crate::hash::{self, KEYS};
use core::ops::RangeInclusive;

/// A source of choices: given bytes first, then numbers drawn from the seed.
///
/// The numbers are those of SplitMix64. A hash of the seed chooses the start in its sequence of 2^64 numbers, so that
/// adjacent seeds start far apart.
#[derive(Clone, Debug)]
pub struct Rng {
    bytes: Vec<u8>,
    at: usize,
    state: u64,
}

/// Advances the state and returns the next number.
#[inline]
pub const fn next_bits(state: &mut u64) -> u64 {
    *state = state.wrapping_add(KEYS[0]);
    hash::scramble(*state)
}

impl Rng {
    /// A generator whose choices depend only on the seed.
    pub const fn from_seed(seed: u64) -> Self {
        Self { bytes: Vec::new(), at: 0, state: hash::stream(seed, "", 0) }
    }

    /// A generator for one stream of a seeded run: [`hash::stream`].
    pub const fn of_stream(seed: u64, name: &str, number: u64) -> Self {
        Self::from_seed(hash::stream(seed, name, number))
    }

    /// A generator that takes its choices from bytes, eight each, then from their number. A fuzzer can steer it.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::from_seed(bytes.len() as u64) }
    }

    /// Draws 64 random bits.
    #[inline]
    pub fn bits(&mut self) -> u64 {
        if let Some(eight) = self.bytes.get(self.at..self.at + 8) {
            self.at += 8;
            return u64::from_le_bytes(eight.try_into().expect("the slice has 8 bytes"));
        }
        next_bits(&mut self.state)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// A number within the range, bounds included.
    pub fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let span = u128::from(range.end().saturating_sub(*range.start())) + 1;
        range.start() + ((u128::from(self.bits()) * span) >> 64) as u64
    }

    /// True in `n` of 100 cases.
    pub fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }

    /// True in `per_mille` of a thousand cases.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.below(1000) < per_mille as usize
    }

    /// True with this probability. A probability of 0 draws nothing.
    #[inline]
    pub fn happens(&mut self, share: f64) -> bool {
        share > 0.0 && self.unit() < share
    }

    /// A uniform number from 0 up to but not including 1.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        hash::unit_float(self.bits())
    }

    /// An approximately normal number with mean 0 and variance 1: the sum of twelve uniform numbers, less six.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// An item of a list that is not empty.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }

    /// Draws `n` random bytes.
    pub fn bytes(&mut self, n: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(n + 8);
        while bytes.len() < n {
            bytes.extend_from_slice(&self.bits().to_le_bytes());
        }
        bytes.truncate(n);
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// The correlation of two sequences of numbers in [0, 1). For independent sequences it is 0, with a deviation of 1
    /// over the root of their length.
    fn correlation(a: &[f64], b: &[f64]) -> f64 {
        let n = a.len().min(b.len());
        a.iter().zip(b).map(|(a, b)| (a - 0.5) * (b - 0.5)).sum::<f64>() * 12.0 / n as f64
    }

    fn first(mut rng: Rng) -> Vec<f64> {
        (0..N).map(|_| rng.unit()).collect()
    }

    const N: usize = 2_000;

    /// A failing seed could not be replayed.
    #[test]
    fn seed_decides_draws() {
        let draw = |seed| first(Rng::from_seed(seed));
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    /// Runs of adjacent seeds, workers, links or chains would be the same run several times, so a spread over seeds
    /// would say nothing.
    #[test]
    fn adjacent_streams_are_independent() {
        let of_seeds = (0..8).map(Rng::from_seed);
        let of_numbers = (0..8).map(|number| Rng::of_stream(1, "worker", number));
        let of_both = (0..8).map(|seed| Rng::of_stream(seed, "worker", 20 - seed));
        let of_names = ["loss", "losr", "jitter", "queue", ""].map(|name| Rng::of_stream(1, name, 0));
        let all: Vec<_> = of_seeds.chain(of_numbers).chain(of_both).chain(of_names).map(first).collect();
        // Some 10,000 pairs are compared: among as many independent ones, a deviation of five occurs in one of 170
        // tests.
        let most = 5.0 / (N as f64 - 10.0).sqrt();
        let mut seen = BTreeSet::new();
        for (nth, one) in all.iter().enumerate() {
            assert!(
                one.iter().all(|draw| seen.insert(draw.to_bits())),
                "stream {nth} repeats a draw of another stream"
            );
            for (other, draws) in all.iter().enumerate() {
                for shift in 0..10 {
                    let found = correlation(&one[shift..], draws);
                    let is_itself = nth == other && shift == 0;
                    assert!(is_itself || found.abs() < most, "{nth} moved by {shift} and {other}: {found}");
                }
            }
        }
        // The same holds for the first draw of each seed: a run may draw only once.
        let firsts: Vec<f64> = (0..N as u64).map(|seed| Rng::from_seed(seed).unit()).collect();
        assert!((1..10).all(|shift| correlation(&firsts[shift..], &firsts).abs() < most));
    }

    /// A fault with probability 0 or 1 must never or always happen.
    #[test]
    fn draws_stay_in_bounds() {
        let mut rng = Rng::from_seed(7);
        assert!((0..1000).all(|_| (3..=5).contains(&rng.within(&(3..=5)))));
        assert!(!(0..1000).any(|_| rng.chance(0) || rng.happens(0.0)));
        assert!((0..1000).all(|_| rng.chance(1000) && rng.happens(1.0)));
        assert_eq!(rng.within(&(u64::MAX..=u64::MAX)), u64::MAX);
        assert_eq!(rng.bytes(13).len(), 13);
    }

    /// Biased bits or bytes would bias every consumer of the lowest or highest ones.
    #[test]
    fn draws_are_uniform() {
        let (mut rng, mut ones, mut buckets) = (Rng::from_seed(3), [0_u32; 64], [0_u32; 256]);
        for _ in 0..25_600 {
            let bits = rng.bits();
            ones.iter_mut().enumerate().for_each(|(at, n)| *n += (bits >> at & 1) as u32);
            buckets[(bits >> 56) as usize] += 1;
        }
        assert!(ones.iter().all(|n| n.abs_diff(12_800) < 400), "{ones:?}");
        let chi: f64 = buckets.iter().map(|n| (f64::from(*n) - 100.0).powi(2) / 100.0).sum();
        // 255 degrees of freedom: a deviation of 22.6.
        assert!((140.0..370.0).contains(&chi), "{chi}");
        let variance = (0..100_000).map(|_| rng.normal().powi(2)).sum::<f64>() / 1e5;
        assert!((variance - 1.0).abs() < 0.03, "{variance}");
    }
}
