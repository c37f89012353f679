//! The hash functions of Weft: for programs and other nodes, for the placement of keys, and for the seeds of random
//! streams.
//!
//! [`hash_word`], [`mix`] and [`hash_bytes`] give the same result on every machine and back end; `hash()`, digests and
//! draws use them.
//!
//! A [`HashKey`] hashes keys that a peer chooses before they are placed in tables. It is a secret of the node, so that
//! no peer can compute colliding keys. Secret words are on both sides of each product, so no input makes one side zero
//! for certain. A second product scatters keys that follow a pattern: the first alone would keep the pattern of
//! multiples of a power of two.

use core::fmt;

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xbf58_476d_1ce4_e5b9;
const K2: u64 = 0x94d0_49bb_1331_11eb;

/// The constants of [`hash_word`] (the first two) and of [`mix`] (the third and the first), for back ends that inline
/// the hash.
pub const KEYS: [u64; 3] = [K0, K1, K2];

/// The secret that places keys of peers.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct HashKey([u64; 3]);

impl HashKey {
    /// Makes a secret key from 128 random bits.
    pub const fn secret(entropy: u128) -> Self {
        let (low, high) = (entropy as u64, (entropy >> 64) as u64);
        // Odd, so that no factor loses the lowest bits.
        Self([draw(low, high) | 1, draw(high, low ^ K0) | 1, draw(low ^ K1, high ^ K2) | 1])
    }

    /// The secret of a seeded run, for the simulator and tests.
    pub const fn from_seed(seed: u64) -> Self {
        Self::secret((seed as u128) << 64 | hash_word(seed) as u128)
    }

    /// The words, for back ends that inline the hash: they replace [`KEYS`]; the last is also the second factor.
    pub const fn words(self) -> [u64; 3] {
        self.0
    }

    /// The hash of a word.
    #[inline(always)]
    pub const fn hash_word(self, word: u64) -> u64 {
        self.scatter(fold_mul(word ^ self.0[0], self.0[1]))
    }

    /// The hash of a fixed number of words.
    #[inline(always)]
    pub fn hash_words(self, words: impl IntoIterator<Item = u64>) -> u64 {
        let [k0, k1, _] = self.0;
        self.scatter(words.into_iter().fold(0, |hash, word| fold_mul(hash ^ word ^ k0, k1)))
    }

    /// The hash of a run of bytes; equal runs have equal hashes at any address.
    #[inline]
    pub fn hash_bytes(self, bytes: &[u8]) -> u64 {
        self.scatter(hash_run(self.0, bytes))
    }

    /// [`HashKey::hash_bytes`] of the run with these [`short_words`].
    #[inline(always)]
    pub(crate) const fn hash_short(self, words: [u64; 2], len: usize) -> u64 {
        self.scatter(hash_short(self.0, words, len))
    }

    #[inline(always)]
    const fn scatter(self, product: u64) -> u64 {
        fold_mul(product, self.0[2])
    }
}

impl fmt::Debug for HashKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("HashKey")
    }
}

/// Folds the 128-bit product of two words into one.
#[inline(always)]
pub const fn fold_mul(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// The hash of a word.
#[inline(always)]
pub const fn hash_word(word: u64) -> u64 {
    fold_mul(word ^ K0, K1)
}

/// Mixes another word into a hash.
#[inline(always)]
pub const fn mix(hash: u64, word: u64) -> u64 {
    fold_mul(hash ^ word ^ K2, K0)
}

/// Scrambles a word: each bit of it flips each bit of the result with probability one half, and no two words give the
/// same result.
///
/// The finalizer of SplitMix64: Steele, Lea, Flood, "Fast Splittable Pseudorandom Number Generators" (OOPSLA 2014).
#[inline(always)]
pub const fn scramble(word: u64) -> u64 {
    let word = (word ^ word >> 30).wrapping_mul(K1);
    let word = (word ^ word >> 27).wrapping_mul(K2);
    word ^ word >> 31
}

/// The seed of one random stream of a run: `name` is the kind of consumer, `number` its index.
///
/// Streams of adjacent seeds or numbers are independent. Every consumer of random numbers derives its seed here: with a
/// sum or an exclusive or, seed 1 with number 0 would give the stream of seed 0 with number 1.
pub const fn stream(seed: u64, name: &str, number: u64) -> u64 {
    let (bytes, mut hash, mut at) = (name.as_bytes(), scramble(seed ^ K0), 0);
    while at < bytes.len() {
        hash = scramble(hash ^ bytes[at] as u64);
        at += 1;
    }
    scramble(hash ^ scramble(number.wrapping_add(K2)))
}

/// The hash of a run of bytes; equal runs have equal hashes at any address.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    hash_run(KEYS, bytes)
}

/// The maximum length of a run that is hashed as the two words of [`short_words`].
pub const SHORT_BYTES_MAX: usize = 16;
const _: () = assert!(SHORT_BYTES_MAX == 2 * size_of::<u64>(), "a short key is two words");

/// The two little-endian words of at most [`SHORT_BYTES_MAX`] bytes, padded with zeros. Overlapping reads leave only
/// branches on the length class.
///
/// Longer runs give zeros.
#[inline(always)]
pub fn short_words(bytes: &[u8]) -> [u64; 2] {
    match bytes.len() {
        len @ 9..=SHORT_BYTES_MAX => [read_u64(bytes, 0), read_u64(bytes, len - 8) >> ((16 - len) * 8)],
        len @ 4..=8 => [read_u32(bytes, 0) | read_u32(bytes, len - 4) << ((len - 4) * 8), 0],
        len @ 1..4 => {
            let (middle, last) = (len / 2, len - 1);
            let byte = |at: usize| u64::from(bytes[at]) << (at * 8);
            [byte(0) | byte(middle) | byte(last), 0]
        }
        _ => [0, 0],
    }
}

/// Hashes bytes of any length with the keys.
#[inline(always)]
fn hash_run(keys: [u64; 3], bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=SHORT_BYTES_MAX => hash_short(keys, short_words(bytes), bytes.len()),
        _ => hash_long(keys, bytes),
    }
}

#[inline(always)]
const fn hash_short([k0, k1, k2]: [u64; 3], [a, b]: [u64; 2], len: usize) -> u64 {
    fold_mul(a ^ k0, b ^ k1 ^ (len as u64).wrapping_mul(k2))
}

/// Hashes more bytes than a short run has, 16 at a time.
fn hash_long([k0, k1, k2]: [u64; 3], bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let (mut x, mut y) = (k1, k2);
    let mut at = 0;
    while at + 16 < len {
        x = fold_mul(x ^ read_u64(bytes, at), k0 ^ read_u64(bytes, at + 8));
        y = y.rotate_left(23) ^ x;
        at += 16;
    }
    fold_mul(x ^ read_u64(bytes, len - 16) ^ len as u64, y ^ k2 ^ read_u64(bytes, len - 8))
}

#[inline(always)]
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has 8 bytes"))
}

#[inline(always)]
fn read_u32(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has 4 bytes")))
}

/// A uniform draw in [0, 1) from 64 random bits: the top 53 of them.
#[inline(always)]
pub fn unit_float(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The random bits of one call site in one pass: a function of nothing else.
///
/// `base` is drawn from (seed, message id, attempt, index in stream); `site` names the call in the source.
#[inline(always)]
pub const fn draw(base: u64, site: u64) -> u64 {
    mix(hash_word(base ^ site), site)
}
