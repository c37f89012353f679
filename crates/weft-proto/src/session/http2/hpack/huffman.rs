//! The Huffman code of header strings (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical: symbols sorted by (length, value) get consecutive codes. So the lengths define the code, and
//! all tables below are computed from them at compile time.

/// Code length in bits of each byte, and of the end-of-string symbol at the end (RFC 7541 appendix B).
#[rustfmt::skip]
const CODE_BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

/// The end-of-string symbol. It is never sent; a prefix of its code, which is all ones, pads the last byte.
const EOS: u16 = 256;
const BITS_MIN: usize = 5;
const BITS_MAX: usize = 30;
/// Codes of up to this many bits are decoded with one lookup. It covers nearly all of ASCII.
const FAST_BITS: u32 = 10;

/// Tables for the canonical code.
struct Tables {
    /// The code of each symbol, right-aligned.
    codes: [u32; 257],
    /// By the next `FAST_BITS` bits: `symbol << 8 | length`, or 0 when the code is longer.
    fast: [u16; 1 << FAST_BITS],
    /// Symbols in the order of their codes.
    symbols: [u16; 257],
    /// By length: the first code that is longer, left-aligned to 32 bits.
    limits: [u64; BITS_MAX + 1],
    /// By length: the first code, right-aligned, and its index in `symbols`.
    firsts: [(u32, u16); BITS_MAX + 1],
}

static TABLES: Tables = tables();

/// Computes the code tables from the lengths of the codes.
const fn tables() -> Tables {
    let mut t = Tables {
        codes: [0; 257],
        fast: [0; 1 << FAST_BITS],
        symbols: [0; 257],
        limits: [0; BITS_MAX + 1],
        firsts: [(0, 0); BITS_MAX + 1],
    };
    let (mut code, mut place, mut bits) = (0u32, 0usize, BITS_MIN);
    while bits <= BITS_MAX {
        t.firsts[bits] = (code, place as u16);
        let mut symbol = 0;
        while symbol < 257 {
            if CODE_BITS[symbol] as usize == bits {
                t.codes[symbol] = code;
                t.symbols[place] = symbol as u16;
                if bits as u32 <= FAST_BITS {
                    let shift = FAST_BITS - bits as u32;
                    let mut i = 0;
                    while i < 1 << shift {
                        t.fast[((code as usize) << shift) + i] = ((symbol as u16) << 8) | bits as u16;
                        i += 1;
                    }
                }
                code += 1;
                place += 1;
            }
            symbol += 1;
        }
        t.limits[bits] = (code as u64) << (32 - bits);
        code <<= 1;
        bits += 1;
    }
    t
}

/// Length of the encoded `text`, in bytes.
pub fn encoded_bytes(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|&b| CODE_BITS[b as usize] as usize).sum();
    bits.div_ceil(8)
}

/// Appends the encoded `text` to `out`, padded with ones.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    let (mut acc, mut bits) = (0u64, 0u32);
    for &b in text {
        let len = CODE_BITS[b as usize] as u32;
        acc = (acc << len) | u64::from(TABLES.codes[b as usize]);
        bits += len;
        if bits >= 32 {
            bits -= 32;
            out.extend_from_slice(&((acc >> bits) as u32).to_be_bytes());
        }
    }
    while bits >= 8 {
        bits -= 8;
        out.push((acc >> bits) as u8);
    }
    if bits > 0 {
        out.push(((acc << (8 - bits)) as u8) | (0xff >> bits));
    }
}

/// Appends the decoded text to `out`. On an error some of the text is appended. Errors: the padding is longer than
/// seven bits or not all ones, or the end-of-string symbol is inside.
pub fn decode(code: &[u8], out: &mut Vec<u8>) -> Result<(), InvalidHuffman> {
    // The next bits are at the top of `acc`; the rest of `acc` is zero.
    let (mut acc, mut bits, mut rest) = (0u64, 0u32, code);
    // No code is shorter than five bits.
    out.reserve(code.len() * 8 / BITS_MIN);
    loop {
        if bits <= 32 {
            if let Some((word, tail)) = rest.split_first_chunk::<4>() {
                acc |= u64::from(u32::from_be_bytes(*word)) << (32 - bits);
                bits += 32;
                rest = tail;
            } else {
                while let [byte, tail @ ..] = rest {
                    acc |= u64::from(*byte) << (56 - bits);
                    bits += 8;
                    rest = tail;
                }
                return decode_tail(acc, bits, out);
            }
        }
        // At least 33 bits are available, more than any code has.
        let (symbol, len) = next_symbol(acc);
        if symbol == EOS {
            return Err(InvalidHuffman);
        }
        out.push(symbol as u8);
        acc <<= len;
        bits -= len;
    }
}

/// A string was not a valid Huffman code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHuffman;

/// Decodes the last `bits` bits at the top of `acc`, of which fewer than eight may be padding.
fn decode_tail(mut acc: u64, mut bits: u32, out: &mut Vec<u8>) -> Result<(), InvalidHuffman> {
    while bits > 0 {
        // Ones after the end make a padding look like the longest code.
        let (symbol, len) = next_symbol(acc | (u64::MAX >> bits));
        if len > bits {
            let is_padding = bits < 8 && acc >> (64 - bits) == (1 << bits) - 1;
            return if is_padding { Ok(()) } else { Err(InvalidHuffman) };
        }
        if symbol == EOS {
            return Err(InvalidHuffman);
        }
        out.push(symbol as u8);
        acc <<= len;
        bits -= len;
    }
    Ok(())
}

/// The symbol at the top of `acc`, and the length of its code in bits.
#[inline]
fn next_symbol(acc: u64) -> (u16, u32) {
    let entry = TABLES.fast[(acc >> (64 - FAST_BITS)) as usize];
    if entry != 0 {
        return (entry >> 8, u32::from(entry & 0xff));
    }
    long_symbol(acc)
}

/// Finds the symbol at the start of `acc` whose code is longer than [`FAST_BITS`]. Returns it with the length of its
/// code in bits.
#[cold]
fn long_symbol(acc: u64) -> (u16, u32) {
    let window = acc >> 32;
    let mut bits = FAST_BITS as usize + 1;
    while bits < BITS_MAX && window >= TABLES.limits[bits] {
        bits += 1;
    }
    let (first, place) = TABLES.firsts[bits];
    let offset = (window >> (32 - bits)) as u32 - first;
    (TABLES.symbols[place as usize + offset as usize], bits as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decoded(code: &[u8]) -> Result<Vec<u8>, InvalidHuffman> {
        let mut out = Vec::new();
        decode(code, &mut out).map(|()| out)
    }

    #[test]
    fn codes_match_appendix_b() {
        // Symbols from both ends and the middle of the code; a wrong length anywhere would shift them.
        let expected = [
            (0, 0x1ff8),
            (1, 0x7fffd8),
            (2, 0xfffffe2),
            (10, 0x3ffffffc),
            (b'0' as usize, 0),
            (b'a' as usize, 3),
            (b'A' as usize, 0x21),
            (127, 0xffffffc),
            (128, 0xfffe6),
            (195, 0x7fff1),
            (249, 0xffffffe),
            (255, 0x3ffffee),
            (256, 0x3fffffff),
        ];
        for (symbol, code) in expected {
            assert_eq!(TABLES.codes[symbol], code, "symbol {symbol}");
        }
    }

    #[test]
    fn strings_match_appendix_c() {
        let mut out = Vec::new();
        encode(b"www.example.com", &mut out);
        assert_eq!(out, [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff]);
    }

    #[test]
    fn wrong_padding_is_refused() {
        assert_eq!(decoded(&[0xff]), Err(InvalidHuffman), "eight bits of padding");
        assert_eq!(decoded(&[0x1f, 0xff]), Err(InvalidHuffman), "eleven bits of padding");
        assert_eq!(decoded(&[0x00]), Err(InvalidHuffman), "padding of zeros");
        assert_eq!(decoded(&[0xff; 4]), Err(InvalidHuffman), "the end-of-string symbol");
        assert_eq!(decoded(&[0xff; 12]), Err(InvalidHuffman), "the end-of-string symbol inside");
        assert_eq!(decoded(&[0x1f]).as_deref(), Ok(&b"a"[..]), "three ones are padding");
        assert_eq!(decoded(&[]).as_deref(), Ok(&b""[..]));
    }

    proptest! {
        #[test]
        fn huffman_round_trips(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let mut code = Vec::new();
            encode(&text, &mut code);
            prop_assert_eq!(code.len(), encoded_bytes(&text));
            prop_assert_eq!(decoded(&code), Ok(text));
        }

        #[test]
        fn each_text_has_one_code(code in proptest::collection::vec(any::<u8>(), 0..60)) {
            if let Ok(text) = decoded(&code) {
                let mut again = Vec::new();
                encode(&text, &mut again);
                prop_assert_eq!(again, code);
            }
        }
    }
}
