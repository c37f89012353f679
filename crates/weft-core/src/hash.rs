//! The one hash of the system: fixed, unseeded, the same on every machine and back end.
//!
//! Not for keys that an adversary may choose where long chains would hurt: tables bound their probe length.

const K0: u64 = 0x9e37_79b9_7f4a_7c15;
const K1: u64 = 0xbf58_476d_1ce4_e5b9;
const K2: u64 = 0x94d0_49bb_1331_11eb;

/// The constants of [`hash_word`] (the first two) and [`mix`] (the third and the first), for back ends that spell
/// the hash out.
pub const KEYS: [u64; 3] = [K0, K1, K2];

/// Folds the 128-bit product of two words into one.
#[inline(always)]
pub const fn fold_mul(a: u64, b: u64) -> u64 {
    let product = (a as u128) * (b as u128);
    (product as u64) ^ ((product >> 64) as u64)
}

/// Hash of a word.
#[inline(always)]
pub const fn hash_word(word: u64) -> u64 {
    fold_mul(word ^ K0, K1)
}

/// Mixes a further word into a hash.
#[inline(always)]
pub const fn mix(hash: u64, word: u64) -> u64 {
    fold_mul(hash ^ word ^ K2, K0)
}

/// Hash of a run of bytes; equal runs have equal hashes whatever their address.
#[inline]
pub fn hash_bytes(bytes: &[u8]) -> u64 {
    match bytes.len() {
        0..=SHORT_BYTES_MAX => hash_short(short_words(bytes), bytes.len()),
        _ => hash_long(bytes),
    }
}

/// Runs up to this long are hashed as the two words that [`short_words`] makes of them.
pub const SHORT_BYTES_MAX: usize = 16;

/// The two little-endian words of at most [`SHORT_BYTES_MAX`] bytes, zero padded. Made by reads that overlap: the
/// only branches are on the class of the length.
///
/// Of longer ones it makes zeros.
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

/// [`hash_bytes`] of the run that has these [`short_words`].
#[inline(always)]
pub(crate) const fn hash_short([a, b]: [u64; 2], len: usize) -> u64 {
    fold_mul(a ^ K0, b ^ K1 ^ (len as u64).wrapping_mul(K2))
}

fn hash_long(bytes: &[u8]) -> u64 {
    let len = bytes.len();
    let (mut x, mut y) = (K1, K2);
    let mut at = 0;
    while at + 16 < len {
        x = fold_mul(x ^ read_u64(bytes, at), K0 ^ read_u64(bytes, at + 8));
        y = y.rotate_left(23) ^ x;
        at += 16;
    }
    fold_mul(x ^ read_u64(bytes, len - 16) ^ len as u64, y ^ K2 ^ read_u64(bytes, len - 8))
}

#[inline(always)]
fn read_u64(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes were taken"))
}

#[inline(always)]
fn read_u32(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("4 bytes were taken")))
}

/// A uniform draw in [0, 1) from 64 random bits: the top 53 of them.
#[inline(always)]
pub fn unit_float(bits: u64) -> f64 {
    (bits >> 11) as f64 * (1.0 / (1u64 << 53) as f64)
}

/// The random bits of one call site in one pass: a function of nothing else (DESIGN 2.3, "Time and chance").
///
/// `base` is drawn from (seed, message id, attempt, index in stream); `site` names the call in the source.
#[inline(always)]
pub const fn draw(base: u64, site: u64) -> u64 {
    mix(hash_word(base ^ site), site)
}
