//! Operations on text and bytes that compiled code calls.

use core::ops::Range;
use memchr::memmem;

/// SQL `LIKE`: `%` stands for any run of characters, `_` for one, everything else for itself. A pattern that is not
/// UTF-8 matches nothing.
///
/// The parts between `%`s are matched from left to right, each at its first occurrence: a later one would leave less
/// text to the parts after it. So no part is searched twice, and each takes linear time: a literal by the two-way
/// search of [`memmem`], one with `_` as described at [`Wildcards`].
pub(crate) fn like(text: &[u8], pattern: &[u8]) -> bool {
    if core::str::from_utf8(pattern).is_err() {
        return false;
    }
    let mut parts = pattern.split(|byte| *byte == b'%');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = without_start(text, first) else { return false };
    let Some(last) = parts.next_back() else { return rest.is_empty() };
    for part in parts {
        let end = if part.contains(&b'_') {
            Wildcards::of(part).find_end(rest)
        } else {
            memmem::find(rest, part).map(|start| start + part.len())
        };
        let Some(end) = end else { return false };
        rest = &rest[end..];
    }
    ends_like(rest, last)
}

/// Strips a part of a pattern from the start of a text; None if the text does not begin with it.
fn without_start<'t>(text: &'t [u8], part: &[u8]) -> Option<&'t [u8]> {
    let mut rest = text;
    for byte in part {
        let len = match byte {
            b'_' if !rest.is_empty() => char_len(rest),
            byte if rest.first() == Some(byte) => 1,
            _ => return None,
        };
        rest = &rest[len..];
    }
    Some(rest)
}

/// Whether the text ends with a part of a pattern.
fn ends_like(text: &[u8], part: &[u8]) -> bool {
    let mut rest = text;
    for byte in part.iter().rev() {
        let len = match byte {
            b'_' if !rest.is_empty() => last_char_len(rest),
            byte if rest.last() == Some(byte) => 1,
            _ => return false,
        };
        rest = &rest[..rest.len() - len];
    }
    true
}

/// Searches for a part of a pattern with `_` in it: one state per character, one bit each, and all states step together
/// (Baeza-Yates and Gonnet, "A new approach to text searching", CACM 1992, section 3).
///
/// Each character of the text takes one word operation per 64 characters of the part, whatever the text is.
struct Wildcards<'p> {
    /// Number of words in a set of states.
    n_words: usize,
    /// The states that survive any character: those of the `_`s.
    any: Vec<u64>,
    /// The states that survive each character of the part, sorted by character.
    by_char: Vec<(&'p [u8], Vec<u64>)>,
    /// The bit of the last state, in the last word.
    last: u64,
}

impl<'p> Wildcards<'p> {
    /// Prepares a part of a LIKE pattern: for each character, the positions that accept it.
    fn of(part: &'p [u8]) -> Self {
        let chars: Vec<&[u8]> = characters(part).collect();
        let n_words = chars.len().div_ceil(64);
        let mut any = vec![0; n_words];
        let mut by_char: Vec<(&[u8], Vec<u64>)> = Vec::new();
        let bit = |at: usize| (at / 64, 1 << (at % 64));
        for (at, _) in chars.iter().enumerate().filter(|(_, char)| **char == b"_") {
            any[bit(at).0] |= bit(at).1;
        }
        for (at, char) in chars.iter().enumerate().filter(|(_, char)| **char != b"_") {
            let known = by_char.binary_search_by_key(char, |(char, _)| *char);
            let nth = known.unwrap_or_else(|nth| {
                by_char.insert(nth, (char, any.clone()));
                nth
            });
            by_char[nth].1[bit(at).0] |= bit(at).1;
        }
        Self { n_words, any, by_char, last: 1 << ((chars.len() - 1) % 64) }
    }

    /// Finds the end of the first match in the text; None if there is none.
    fn find_end(&self, text: &[u8]) -> Option<usize> {
        let mut states = vec![0_u64; self.n_words];
        let mut end = 0;
        for char in characters(text) {
            end += char.len();
            let known = self.by_char.binary_search_by_key(&char, |(char, _)| *char);
            let left = known.map_or(&self.any, |nth| &self.by_char[nth].1);
            // A match may begin at every character.
            let mut carry = 1;
            for (word, left) in states.iter_mut().zip(left) {
                let next = *word >> 63;
                *word = (*word << 1 | carry) & left;
                carry = next;
            }
            if states[self.n_words - 1] & self.last != 0 {
                return Some(end);
            }
        }
        None
    }
}

/// Splits a text into characters; an invalid byte counts as one.
fn characters(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut rest = text;
    core::iter::from_fn(move || {
        let (char, behind) = rest.split_at(if rest.is_empty() { return None } else { char_len(rest) });
        rest = behind;
        Some(char)
    })
}

/// The range of the characters that lie wholly within `count` bytes from `from`.
pub(crate) fn slice(text: &[u8], from: i64, count: i64) -> Range<usize> {
    let len = text.len() as i64;
    let mut start = from.clamp(0, len) as usize;
    let mut end = start + count.clamp(0, len - start as i64) as usize;
    let is_inside = |at: usize| at < text.len() && matches!(text[at], 0x80..=0xbf);
    // A character has at most three bytes after its first.
    for _ in 0..3 {
        start += usize::from(start < end && is_inside(start));
    }
    for _ in 0..3 {
        end -= usize::from(start < end && is_inside(end));
    }
    start..end
}

/// Length in bytes of the first character of `bytes` (not empty); 1 if it is invalid.
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

/// Length in bytes of the last character of `bytes` (not empty); 1 if it is invalid. UTF-8 is self-synchronizing, so
/// counting from the end finds the same characters as counting from the start.
fn last_char_len(bytes: &[u8]) -> usize {
    let ends_with_one = |len: &usize| {
        let start = bytes.len().checked_sub(*len);
        start.is_some_and(|start| char_len(&bytes[start..]) == *len)
    };
    (2..=4).find(ends_with_one).unwrap_or(1)
}

/// Parses a float: an optional `-`, digits, an optional point with digits, an optional exponent. Returns None for other
/// texts, and for numbers out of range.
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

/// Parses a decimal integer: an optional `-` if `signed`, then only digits.
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

/// Largest number of bytes of a float as text: the least denormal has 1074 digits after the point.
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

/// Whether `text` contains `needle`, in linear time.
pub(crate) fn contains(text: &[u8], needle: &[u8]) -> bool {
    memmem::find(text, needle).is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn like_percent_takes_shortest_run() {
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

    /// LIKE as the standard defines it: tries each run for `%`. For texts of a few characters.
    fn like_by_trial(text: &[&[u8]], pattern: &[&[u8]]) -> bool {
        match (text, pattern) {
            (_, [b"%", rest @ ..]) => (0..=text.len()).any(|at| like_by_trial(&text[at..], rest)),
            ([first, text @ ..], [wanted, rest @ ..]) => {
                (*wanted == b"_" || first == wanted) && like_by_trial(text, rest)
            }
            (text, pattern) => text.is_empty() && pattern.is_empty(),
        }
    }

    /// If a part matched later than at its first occurrence, or the end counted characters differently from the start,
    /// one pattern in ten thousand would match wrongly.
    #[test]
    fn like_agrees_with_trial() {
        let texts_of: [&[u8]; 7] = [b"a", b"b", "ü".as_bytes(), "€".as_bytes(), b"\xc3", b"\xbc", b"_"];
        let parts_of: [&[u8]; 5] = [b"a", b"%", b"_", b"b", "ü".as_bytes()];
        let mut rng = weft_core::rng::Rng::from_seed(3);
        for _ in 0..200_000 {
            let n = [rng.below(7), rng.below(7)];
            let text: Vec<u8> = (0..n[0]).flat_map(|_| rng.pick(&texts_of)).copied().collect();
            let pattern: Vec<u8> = (0..n[1]).flat_map(|_| rng.pick(&parts_of)).copied().collect();
            let (chars, wanted): (Vec<_>, Vec<_>) =
                (characters(&text).collect(), characters(&pattern).collect());
            assert_eq!(like(&text, &pattern), like_by_trial(&chars, &wanted), "{text:x?} LIKE {pattern:x?}");
        }
    }

    /// With a search that restarts at each position, a message of 4 MiB from a peer takes 10^12 steps, which is hours,
    /// and blocks a worker with all its calls.
    #[test]
    fn text_search_takes_linear_time() {
        let text = vec![b'a'; 4 << 20];
        let (needle, half) = (vec![b'a'; 2 << 20], text.len() / 2);
        let ends_with_b = |front: &[u8]| [front, b"b"].concat();
        let begins_with_b = |rest: &[u8]| [b"b", rest].concat();
        let in_the_middle = [&needle[..half / 2], b"b", &needle[..half / 2]].concat();
        for needle in [ends_with_b(&needle), begins_with_b(&needle), in_the_middle] {
            assert!(!contains(&text, &needle));
            for pattern in [[b"%", &needle[..], b"%"].concat(), [b"%", &needle[..], b"%a%"].concat()] {
                assert!(!like(&text, &pattern));
            }
        }
        // The largest number of `%`s, and `_`s in parts that match nearly everywhere.
        assert!(!like(&text, &ends_with_b(&b"%a".repeat(1 << 20))));
        for part in ["a_", "a_aaaaaaaaaaaaaaaaa", "_a"] {
            let part = part.repeat(60 / part.len());
            assert!(!like(&text, format!("%{part}b%").as_bytes()));
            assert!(like(&text, format!("%{part}%{part}%{part}_").as_bytes()));
        }
    }

    /// A set of states that lost a bit between two words would miss long parts.
    #[test]
    fn wildcards_over_64_chars_match() {
        for n in [62, 63, 64, 65, 127, 128, 129] {
            let (text, part) = ("ü".repeat(n) + "x", "_".repeat(n - 1) + "x");
            let wildcards = Wildcards::of(part.as_bytes());
            assert_eq!(wildcards.find_end(("ü".to_owned() + &text).as_bytes()), Some(text.len() + 2));
            assert_eq!(wildcards.find_end(&text.as_bytes()[..text.len() - 1]), None);
        }
    }

    #[test]
    fn slice_keeps_characters_whole() {
        let of = |from, count| &"aü€b"[slice("aü€b".as_bytes(), from, count)];
        assert_eq!((of(0, 2), of(1, 2), of(2, 1), of(2, 4)), ("a", "ü", "", "€"));
        assert_eq!((of(-5, 99), of(4, 99), of(i64::MAX, 1), of(1, i64::MIN)), ("aü€b", "b", "", ""));
        assert_eq!(slice(&[0x80; 9], 1, 7), 4..5);
        assert_eq!(slice(&[0x80; 9], 1, 2), 3..3);
    }

    #[test]
    fn parse_int_reads_whole_range() {
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
    fn whole_floats_print_a_point() {
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
