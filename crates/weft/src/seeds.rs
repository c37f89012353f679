//! Seeds of a node's random numbers: from `--seed`, or from random bytes of the system.

use crate::fault::Fault;
use std::io;
use weft_core::hash::HashKey;

/// Random bytes of the system, different each time.
///
/// # Errors
/// The system has no random bytes.
pub(crate) fn random_bytes<const N: usize>() -> io::Result<[u8; N]> {
    let mut bytes = [0; N];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if n == N { Ok(bytes) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The seeds of everything random in a node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seeds {
    /// The seed of `rand()`.
    pub(crate) seed: u64,
    /// The key of the hash that places keys of peers in tables.
    pub(crate) hash: HashKey,
}

impl Seeds {
    /// Derives both from a seed, so that two runs are equal; without a seed, takes both from the system.
    ///
    /// # Errors
    /// The system has no random bytes.
    pub(crate) fn new(seed: Option<u64>) -> Result<Self, Fault> {
        if let Some(seed) = seed {
            return Ok(Self { seed, hash: HashKey::from_seed(seed) });
        }
        let none = |error| Fault::environment(format_args!("the system gives no random bytes: {error}"));
        let seed = u64::from_le_bytes(random_bytes().map_err(none)?);
        let secret = u128::from_le_bytes(random_bytes().map_err(none)?);
        Ok(Self { seed, hash: HashKey::secret(secret) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A client could compute colliding keys elsewhere if two nodes, or two runs, had the same key. Two runs with one
    /// seed must be the same.
    #[test]
    fn chance_repeats_only_with_seed() {
        let [one, other] = [(); 2].map(|()| Seeds::new(None).expect("the system has random bytes"));
        assert!(one.hash != other.hash && one.seed != other.seed);
        let [one, other, third] = [7, 7, 8].map(|seed| Seeds::new(Some(seed)).expect("it needs none"));
        assert!(one.hash == other.hash && one.seed == other.seed && one.hash != third.hash);
    }
}
