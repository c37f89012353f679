//! Header compression (RFC 7541).
//!
//! [`Decoder`] and [`Encoder`] each hold one direction's dynamic table. [`BlockDecoder`] and [`BlockEncoder`] wrap them
//! with a cache of whole header blocks, because clients repeat the same block call after call.

mod cache;
mod decoder;
mod encoder;
pub mod huffman;
mod table;

pub use cache::{BLOCK_BYTES_MAX, BLOCKS_MAX, BlockDecoder, BlockEncoder, CACHE_BYTES_MAX, SPARE_LISTS_MAX};
pub use decoder::{Decoded, Decoder, HpackError};
pub use encoder::{BLOCKS_PER_EVICTION, Encoder, TABLE_BYTES_MAX};
pub(crate) use table::static_name_index;

/// The initial size of a dynamic table, in bytes (RFC 9113 section 6.5.2).
pub const TABLE_BYTES_INITIAL: u32 = 4096;

/// Computes a fast hash with a fixed seed. It only selects cache slots; the content of a slot is compared in full.
#[inline]
pub(crate) fn hash_bytes(seed: u64, bytes: &[u8]) -> u64 {
    const MULTIPLIER: u64 = 0x9e37_79b9_7f4a_7c15;
    // Use both halves of the product, so that every bit of the word reaches the low bits, which select the slot.
    let mix = |hash: u64, word: u64| {
        let product = u128::from(hash.rotate_left(23) ^ word ^ !MULTIPLIER) * u128::from(MULTIPLIER);
        product as u64 ^ (product >> 64) as u64
    };
    let mut hash = mix(seed, bytes.len() as u64);
    let mut rest = bytes;
    while let Some((word, tail)) = rest.split_first_chunk::<8>() {
        hash = mix(hash, u64::from_le_bytes(*word));
        rest = tail;
    }
    if let (Some(last), true) = (bytes.last_chunk::<8>(), !rest.is_empty()) {
        // Reading some bytes twice is cheaper than a loop over the last few.
        hash = mix(hash, u64::from_le_bytes(*last));
    } else if let Some((half, tail)) = rest.split_first_chunk::<4>() {
        let last = tail.last_chunk::<4>().or(bytes.last_chunk::<4>()).copied().unwrap_or_default();
        hash = mix(hash, u64::from(u32::from_le_bytes(*half)) << 32 | u64::from(u32::from_le_bytes(last)));
    } else {
        for &b in rest {
            hash = mix(hash, u64::from(b));
        }
    }
    hash
}
