//! The one source of chance of a world.

use core::ops::RangeInclusive;
use weft_core::hash;

use crate::net::numbers::ln;

/// A sequence of draws that its seed decides.
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// The sequence of a seed.
    pub fn new(seed: u64) -> Self {
        Self { state: hash::hash_word(seed) }
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.state = self.state.wrapping_add(1);
        hash::draw(self.state, 0)
    }

    /// A number within the range, bounds included.
    pub fn within(&mut self, range: &RangeInclusive<u64>) -> u64 {
        let span = range.end().saturating_sub(*range.start()).saturating_add(1);
        range.start() + self.bits() % span
    }

    /// True in `per_mille` of a thousand draws.
    pub fn chance(&mut self, per_mille: u32) -> bool {
        per_mille > 0 && self.bits() % 1000 < u64::from(per_mille)
    }

    /// A number from 0 up to but not including 1, all alike.
    pub fn unit(&mut self) -> f64 {
        (self.bits() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number of the exponential distribution with this mean: a time between events of a Poisson process.
    pub fn exponential(&mut self, mean: f64) -> f64 {
        -mean * ln(1.0 - self.unit())
    }

    /// A number that is nearly of the normal distribution with mean 0 and variance 1: the sum of twelve, less six.
    pub fn normal(&mut self) -> f64 {
        (0..12).map(|_| self.unit()).sum::<f64>() - 6.0
    }

    /// One of these.
    ///
    /// # Panics
    /// If there is none.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[(self.bits() % of.len() as u64) as usize]
    }

    /// So many random bytes.
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

    /// A failing seed could not be run again.
    #[test]
    fn a_seed_decides_the_draws() {
        let draw =
            |seed| (0..100).map(|_| seed).scan(Dice::new(seed), |d, _| Some(d.bits())).collect::<Vec<_>>();
        assert_eq!(draw(1), draw(1));
        assert_ne!(draw(1), draw(2));
    }

    /// A fault that is asked for never, or always, must do as it is told.
    #[test]
    fn bounds_are_kept() {
        let mut dice = Dice::new(7);
        assert!((0..1000).all(|_| (3..=5).contains(&dice.within(&(3..=5)))));
        assert!(!(0..1000).any(|_| dice.chance(0)));
        assert!((0..1000).all(|_| dice.chance(1000)));
        assert_eq!(dice.bytes(13).len(), 13);
    }

    /// Workloads would be of another load than they say.
    #[test]
    fn distributions_have_their_means() {
        let mut dice = Dice::new(11);
        let n = 100_000;
        let mean = |of: &mut dyn FnMut() -> f64| (0..n).map(|_| of()).sum::<f64>() / f64::from(n);
        assert!((mean(&mut || dice.unit()) - 0.5).abs() < 0.01);
        assert!((mean(&mut || dice.exponential(0.2)) - 0.2).abs() < 0.005);
        assert!(mean(&mut || dice.normal()).abs() < 0.02);
        assert!((mean(&mut || dice.normal().powi(2)) - 1.0).abs() < 0.03);
    }
}
