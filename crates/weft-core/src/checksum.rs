//! The internet checksum (RFC 1071): the sum of 16-bit words in network order, with end-around carry.

/// The unfolded sum of the words of some bytes. An odd byte at the end is the upper half of a word.
#[inline]
pub fn sum(bytes: &[u8]) -> u64 {
    let mut chunks = bytes.chunks_exact(8);
    let mut total: u64 = 0;
    for chunk in &mut chunks {
        let word = u64::from_be_bytes(chunk.try_into().expect("a chunk has 8 bytes"));
        let (added, carry) = total.overflowing_add(word);
        total = added + u64::from(carry);
    }
    let (added, carry) = total.overflowing_add(sum_short(chunks.remainder()));
    added + u64::from(carry)
}

/// Sums the words of fewer than eight bytes.
#[inline]
fn sum_short(mut bytes: &[u8]) -> u64 {
    let mut total = 0;
    if let Some((four, rest)) = bytes.split_first_chunk() {
        (total, bytes) = (u64::from(u32::from_be_bytes(*four)), rest);
    }
    if let Some((two, rest)) = bytes.split_first_chunk() {
        (total, bytes) = (total + u64::from(u16::from_be_bytes(*two)), rest);
    }
    total + bytes.first().map_or(0, |byte| u64::from(*byte) << 8)
}

/// A sum folded to 16 bits: 0 if all words are 0, else 1 to 0xffff. Its complement is the checksum.
#[inline]
pub fn fold(sum: u64) -> u16 {
    // At most 33 bits, then 18, then 17 with at most two above 0xffff, then 16.
    let sum = (sum & 0xffff_ffff) + (sum >> 32);
    let sum = (sum & 0xffff) + (sum >> 16);
    let sum = (sum & 0xffff) + (sum >> 16);
    ((sum & 0xffff) + (sum >> 16)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sum_matches_rfc_1071() {
        // Receivers drop frames with a wrong checksum. RFC 1071 section 3.
        assert_eq!(fold(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7])), 0xddf2);
        assert_eq!((fold(sum(&[])), fold(sum(&[0; 9])), fold(sum(&[0xff; 9]))), (0, 0, 0xff00));
    }

    #[test]
    fn wide_sum_equals_narrow_sum() {
        // All lengths, with carries.
        let bytes: Vec<u8> = (0..100u64).map(|at| (crate::hash::hash_word(at) >> 9) as u8 | 0x80).collect();
        for len in 0..bytes.len() {
            let word = |word: &[u8]| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
            let slow: u64 = bytes[..len].chunks(2).map(word).sum();
            assert_eq!(fold(sum(&bytes[..len])), fold(slow), "{len} bytes");
        }
    }
}
