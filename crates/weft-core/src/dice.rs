//! Choices that follow from a seed, the same on every machine: for tests, fuzzing and benchmarks.

use crate::hash;

/// Where choices come from: bytes while there are any, then numbers drawn from the seed.
#[derive(Clone, Debug)]
pub struct Dice {
    bytes: Vec<u8>,
    at: usize,
    seed: u64,
    drawn: u64,
}

impl Dice {
    /// All choices follow from the seed.
    pub fn from_seed(seed: u64) -> Self {
        Self { bytes: Vec::new(), at: 0, seed: hash::hash_word(seed), drawn: 0 }
    }

    /// The choices are the bytes, eight each, then follow from their number: so a fuzzer can steer them.
    pub fn from_bytes(bytes: &[u8]) -> Self {
        Self { bytes: bytes.to_vec(), ..Self::from_seed(bytes.len() as u64) }
    }

    /// 64 bits.
    pub fn bits(&mut self) -> u64 {
        if let Some(eight) = self.bytes.get(self.at..self.at + 8) {
            self.at += 8;
            return u64::from_le_bytes(eight.try_into().expect("8 bytes were taken"));
        }
        self.drawn += 1;
        hash::mix(self.seed, self.drawn)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: usize) -> usize {
        ((u128::from(self.bits()) * n as u128) >> 64) as usize
    }

    /// True in so many of 100 cases.
    pub fn percent(&mut self, n: usize) -> bool {
        self.below(100) < n
    }

    /// One of a list that is not empty.
    pub fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())].clone()
    }
}
