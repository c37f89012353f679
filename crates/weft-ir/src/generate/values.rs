//! Generates values that are likely edge cases.

use super::Rng;

/// Generates an integer, likely an edge value.
pub(crate) fn int(rng: &mut Rng) -> i64 {
    let edges =
        [0, 1, 2, 3, -1, -2, 7, 63, 64, 255, 1000, i64::MAX, i64::MIN, i64::MIN + 1, 1 << 53, 1 << 32];
    if rng.percent(85) { rng.pick(&edges) } else { rng.bits() as i64 }
}

/// Generates a float, likely an edge value.
pub(crate) fn float(rng: &mut Rng) -> f64 {
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    let edges = [
        0.0,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -0.7,
        0.1,
        1e15,
        1e16,
        -1e300,
        1e-300,
        5e-324,
        f64::MAX,
        TWO_POW_63,
        -TWO_POW_63,
        2.0 * TWO_POW_63,
        f64::INFINITY,
        f64::NEG_INFINITY,
        f64::NAN,
    ];
    if rng.percent(85) { rng.pick(&edges) } else { f64::from_bits(rng.bits()) }
}

/// Generates bytes: texts, numbers, addresses, prefixes, and invalid UTF-8.
pub(super) fn bytes(rng: &mut Rng) -> Vec<u8> {
    const SOME: &[&[u8]] = &[
        b"",
        b"a",
        b"bob",
        b"Bob Q",
        b"abcab",
        b"0",
        b"-7",
        b"007",
        b"9223372036854775807",
        b"-9223372036854775808",
        b"18446744073709551615",
        b"18446744073709551616",
        b"+1",
        b"-",
        "gr\u{fc}n \u{4e2d}\u{1f600}".as_bytes(),
        b"\xc3",
        b"\xffx\xc3\xbc",
        b"\x0a\x01\x02\x03",
        b"\x0a\x01\x00\x00\x10",
        b"\x0a\x01\x02\x03\x20",
        b"\x0a\x00\x00\x00\x00",
        b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\x01",
        b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\0\x21",
        b"exactly 8",
        b"16 bytes exactly",
    ];
    match rng.below(40) {
        0 => vec![b'z'; rng.pick(&[4000, 30_000])],
        1 => (0..rng.below(30)).map(|_| rng.bits() as u8).collect(),
        _ => rng.pick(SOME).to_vec(),
    }
}
