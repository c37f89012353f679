//! The one source of chance of a world.

use core::ops::RangeInclusive;
use weft_core::hash;

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
}
