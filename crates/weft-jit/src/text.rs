//! Operations on text and bytes that compiled code calls.

use core::ops::Range;

/// SQL `LIKE`: `%` stands for any run of characters, `_` for one, everything else for itself.
///
/// It looks at each byte of the text at most once for each `%` run of the pattern: after a mismatch only the last
/// `%` takes one character more, since what an earlier one could take, it can take as well.
pub(crate) fn like(text: &[u8], pattern: &[u8]) -> bool {
    let (mut t, mut p) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    loop {
        match pattern.get(p) {
            Some(b'%') => {
                p += 1;
                retry = Some((t, p));
                continue;
            }
            Some(b'_') if t < text.len() => {
                t += char_len(&text[t..]);
                p += 1;
                continue;
            }
            Some(byte) if text.get(t) == Some(byte) => {
                t += 1;
                p += 1;
                continue;
            }
            None if t == text.len() => return true,
            _ => {}
        }
        match retry {
            Some((start, behind)) if start < text.len() => {
                t = start + char_len(&text[start..]);
                p = behind;
                retry = Some((t, behind));
            }
            _ => return false,
        }
    }
}

/// Where the characters are that lie wholly within `count` bytes from `from`.
pub(crate) fn slice(text: &[u8], from: i64, count: i64) -> Range<usize> {
    let len = text.len() as i64;
    let mut start = from.clamp(0, len) as usize;
    let mut end = start + count.clamp(0, len - start as i64) as usize;
    let is_inside = |at: usize| at < text.len() && matches!(text[at], 0x80..=0xbf);
    // A character has three bytes behind its first at most.
    for _ in 0..3 {
        start += usize::from(start < end && is_inside(start));
    }
    for _ in 0..3 {
        end -= usize::from(start < end && is_inside(end));
    }
    start..end
}

/// Bytes of the character that `bytes` (not empty) begins with; 1 if none does.
fn char_len(bytes: &[u8]) -> usize {
    let len = match bytes[0] {
        0xc2..=0xdf => 2,
        0xe0..=0xef => 3,
        0xf0..=0xf4 => 4,
        _ => return 1,
    };
    match bytes.get(..len) {
        Some(run) if core::str::from_utf8(run).is_ok() => len,
        _ => 1,
    }
}

/// The float that the text says: an optional `-`, digits, perhaps a point with digits, perhaps an exponent. None for
/// other texts, and for numbers beyond the floats.
pub(crate) fn parse_float(text: &[u8]) -> Option<f64> {
    let skip_digits = |at: usize| {
        let n = text[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        (n > 0).then_some(at + n)
    };
    let is = |at: usize, any_of: &[u8]| text.get(at).is_some_and(|byte| any_of.contains(byte));
    let mut at = skip_digits(usize::from(is(0, b"-")))?;
    if is(at, b".") {
        at = skip_digits(at + 1)?;
    }
    if is(at, b"eE") {
        at = skip_digits(at + 1 + usize::from(is(at + 1, b"+-")))?;
    }
    let all = core::str::from_utf8(text).ok().filter(|_| at == text.len())?;
    all.parse().ok().filter(|x: &f64| x.is_finite())
}

/// The integer that the text says in decimal: an optional `-` if `signed`, then digits alone.
pub(crate) fn parse_int(text: &[u8], signed: bool) -> Option<u64> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] if signed => (true, digits),
        digits => (false, digits),
    };
    if digits.is_empty() {
        return None;
    }
    let magnitude = digits.iter().try_fold(0u64, |n, byte| {
        let digit = byte.wrapping_sub(b'0');
        if digit > 9 {
            return None;
        }
        n.checked_mul(10)?.checked_add(u64::from(digit))
    })?;
    let limit = match (signed, negative) {
        (false, _) => u64::MAX,
        (true, false) => i64::MAX as u64,
        (true, true) => 1 << 63,
    };
    (magnitude <= limit).then_some(if negative { magnitude.wrapping_neg() } else { magnitude })
}

/// The most bytes that a float takes as text: the least denormal has 1074 places behind the point.
pub(crate) const FLOAT_TEXT_MAX: usize = 1100;

/// The shortest text that reads back as the same float, with `.0` for whole numbers below 10^16.
pub(crate) fn float_text(x: f64, out: &mut Vec<u8>) {
    use std::io::Write as _;
    // Writing into memory cannot fail.
    let _ = write!(out, "{x}");
    if x.abs() < 1e16 && x.trunc() == x {
        out.extend_from_slice(b".0");
    }
}

/// Whether an address lies in a prefix: its network, then one byte with the length in bits.
pub(crate) fn in_prefix(address: &[u8], prefix: &[u8]) -> bool {
    let Some((&bits, network)) = prefix.split_last() else { return false };
    let bits = usize::from(bits);
    if !matches!(address.len(), 4 | 16) || network.len() != address.len() || bits > address.len() * 8 {
        return false;
    }
    let (whole, rest) = (bits / 8, bits % 8);
    let mask = !(0xff_u8.checked_shr(rest as u32).unwrap_or(0));
    address[..whole] == network[..whole] && (rest == 0 || (address[whole] ^ network[whole]) & mask == 0)
}

/// Whether `needle` stands somewhere in `text`.
pub(crate) fn contains(text: &[u8], needle: &[u8]) -> bool {
    let Some(&first) = needle.first() else { return true };
    let Some(last_start) = text.len().checked_sub(needle.len()) else { return false };
    (0..=last_start).any(|at| text[at] == first && text[at..at + needle.len()] == *needle)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_gives_each_percent_the_shortest_run_that_works() {
        let yes = [
            ("abc", "abc"),
            ("abc", "a%"),
            ("abc", "%c"),
            ("abc", "%b%"),
            ("", "%"),
            ("aab", "%ab"),
            ("é", "_"),
            ("€€", "%__"),
        ];
        let no = [
            ("abc", "ab"),
            ("abc", "a_"),
            ("", "_"),
            ("abc", "%d%"),
            ("éa", "_"),
            ("ab", "a%b_"),
            ("€", "%__"),
        ];
        for (text, pattern) in yes {
            assert!(like(text.as_bytes(), pattern.as_bytes()), "{text} LIKE {pattern}");
        }
        for (text, pattern) in no {
            assert!(!like(text.as_bytes(), pattern.as_bytes()), "{text} NOT LIKE {pattern}");
        }
        assert!(like(&[0xff, b'a'], b"_a"), "a byte that is no character counts as one");
    }

    #[test]
    fn a_slice_has_whole_characters_and_is_bounded_for_other_bytes() {
        let of = |from, count| &"aü€b"[slice("aü€b".as_bytes(), from, count)];
        assert_eq!((of(0, 2), of(1, 2), of(2, 1), of(2, 4)), ("a", "ü", "", "€"));
        assert_eq!((of(-5, 99), of(4, 99), of(i64::MAX, 1), of(1, i64::MIN)), ("aü€b", "b", "", ""));
        assert_eq!(slice(&[0x80; 9], 1, 7), 4..5);
        assert_eq!(slice(&[0x80; 9], 1, 2), 3..3);
    }

    #[test]
    fn integers_are_read_to_the_ends_of_their_range() {
        let min = i64::MIN.to_string();
        assert_eq!(parse_int(min.as_bytes(), true), Some(i64::MIN as u64));
        assert_eq!(parse_int(b"9223372036854775808", true), None);
        assert_eq!(parse_int(b"18446744073709551615", false), Some(u64::MAX));
        assert_eq!(parse_int(b"18446744073709551616", false), None);
        for bad in ["", "-", "+1", "1 ", "-1x"] {
            assert_eq!(parse_int(bad.as_bytes(), true), None, "{bad:?}");
        }
        assert_eq!(parse_int(b"-1", false), None);
    }

    #[test]
    fn whole_floats_show_that_they_are_floats() {
        let shown = |x: f64| {
            let mut out = Vec::new();
            float_text(x, &mut out);
            String::from_utf8(out).expect("digits are text")
        };
        assert_eq!(shown(3.0), "3.0");
        assert_eq!(shown(-0.0), "-0.0");
        assert_eq!(shown(0.1), "0.1");
        assert_eq!(shown(1e16), "10000000000000000");
        assert!(shown(-5e-324).len() <= FLOAT_TEXT_MAX);
    }

    #[test]
    fn prefixes_match_to_the_bit() {
        assert!(in_prefix(&[10, 1, 2, 3], &[10, 0, 0, 0, 8]));
        assert!(!in_prefix(&[11, 1, 2, 3], &[10, 0, 0, 0, 8]));
        assert!(in_prefix(&[10, 127, 0, 0], &[10, 64, 0, 0, 10]));
        assert!(!in_prefix(&[10, 128, 0, 0], &[10, 64, 0, 0, 10]));
        assert!(in_prefix(&[1, 2, 3, 4], &[9, 9, 9, 9, 0]));
        assert!(!in_prefix(&[1, 2, 3, 4], &[1, 2, 3, 4, 33]));
        assert!(!in_prefix(&[1, 2, 3, 4], &[1, 2, 3, 4]));
    }
}
