//! Evaluates operations on bytes and text for the interpreter.

use crate::ir::{BytesCmp, Endian};
use memchr::memmem;
use std::collections::BTreeMap;

/// Compares bytes. LIKE is false if the pattern is not UTF-8.
pub(super) fn compare(op: BytesCmp, a: &[u8], b: &[u8]) -> bool {
    match op {
        BytesCmp::Eq => a == b,
        BytesCmp::Ne => a != b,
        BytesCmp::Lt => a < b,
        BytesCmp::Le => a <= b,
        BytesCmp::StartsWith => a.starts_with(b),
        BytesCmp::EndsWith => a.ends_with(b),
        BytesCmp::Contains => memmem::find(a, b).is_some(),
        BytesCmp::Like => core::str::from_utf8(b).is_ok() && like(a, b),
    }
}

/// Reads eight bytes as a little-endian word; 0 if they exceed `a`.
pub(super) fn word(a: &[u8], at: i64) -> i64 {
    let from = usize::try_from(at).ok().and_then(|at| a.get(at..));
    from.and_then(|from| from.first_chunk()).map_or(0, |word| i64::from_le_bytes(*word))
}

/// The `len` bytes at `at`; empty if they exceed `a`.
pub(super) fn range(a: &[u8], at: i64, len: i64) -> &[u8] {
    let (Ok(at), Ok(len)) = (usize::try_from(at), usize::try_from(len)) else { return &[] };
    a.get(at..).and_then(|from| from.get(..len)).unwrap_or(&[])
}

/// The `count` bytes from `from` on, limited to `a` and reduced to whole UTF-8 characters.
pub(super) fn slice(a: &[u8], from: i64, count: i64) -> &[u8] {
    let from = from.clamp(0, a.len() as i64) as usize;
    let to = from + count.clamp(0, (a.len() - from) as i64) as usize;
    // A continuation byte; a character has at most three (RFC 3629 section 3).
    let is_inside = |at: usize| a.get(at).is_some_and(|byte| byte & 0xc0 == 0x80);
    let start = (from..to).take(3).take_while(|&at| is_inside(at)).last().map_or(from, |at| at + 1);
    let end = (start..=to)
        .rev()
        .take(3)
        .take_while(|&at| is_inside(at))
        .last()
        .map_or(to, |at| at.saturating_sub(1));
    assert!(from <= start && end <= to, "a slice stays in its range");
    &a[start..end.max(start)]
}

/// SQL LIKE, character by character. The state is the set of pattern prefixes that match the text so far, as bits. Each
/// character of the text is read once, at the cost of the words of the set.
fn like(text: &[u8], pattern: &[u8]) -> bool {
    let pattern = characters(pattern);
    let wanted: Vec<&[u8]> = pattern.iter().copied().filter(|c| *c != b"%").collect();
    // A prefix has none to all characters of the pattern.
    let none = vec![0_u64; wanted.len() / 64 + 1];
    let set = |bits: &mut [u64], at: usize| bits[at / 64] |= 1 << (at % 64);
    let (mut before_percent, mut n_before) = (none.clone(), 0);
    for character in &pattern {
        match *character {
            b"%" => set(&mut before_percent, n_before),
            _ => n_before += 1,
        }
    }
    // For each character, the prefixes that it extends by one.
    let mut any = none.clone();
    wanted.iter().enumerate().filter(|(_, c)| **c == b"_").for_each(|(at, _)| set(&mut any, at));
    let mut by_character: BTreeMap<&[u8], Vec<u64>> = BTreeMap::new();
    for (at, character) in wanted.iter().enumerate() {
        set(by_character.entry(character).or_insert_with(|| any.clone()), at);
    }
    let mut prefixes = none;
    set(&mut prefixes, 0);
    for character in characters(text) {
        let longer = by_character.get(character).unwrap_or(&any);
        let mut carry = 0;
        for (at, word) in prefixes.iter_mut().enumerate() {
            let grown = *word & longer[at];
            *word = *word & before_percent[at] | grown << 1 | carry;
            carry = grown >> 63;
        }
    }
    prefixes[wanted.len() / 64] >> (wanted.len() % 64) & 1 != 0
}

/// Splits a text into UTF-8 characters; an invalid byte counts as one.
fn characters(mut text: &[u8]) -> Vec<&[u8]> {
    let mut characters = Vec::new();
    while !text.is_empty() {
        let well_formed = (1..=text.len().min(4)).find(|&n| core::str::from_utf8(&text[..n]).is_ok());
        let (character, rest) = text.split_at(well_formed.unwrap_or(1));
        characters.push(character);
        text = rest;
    }
    characters
}

/// Whether an address is in a prefix: both have the same size, and all bits of the prefix agree.
pub(super) fn in_prefix(address: &[u8], prefix: &[u8]) -> bool {
    let Some((&bits, network)) = prefix.split_last() else { return false };
    let bits = usize::from(bits);
    let sizes_fit = matches!(address.len(), 4 | 16) && address.len() == network.len();
    let bit = |of: &[u8], i: usize| of[i / 8] >> (7 - i % 8) & 1;
    sizes_fit && bits <= 8 * address.len() && (0..bits).all(|i| bit(address, i) == bit(network, i))
}

/// Reads a number in a frame; 0 if it exceeds the frame.
pub(super) fn number(frame: &[u8], at: i64, bytes: u8, endian: Endian) -> i64 {
    assert!((1..=8).contains(&bytes), "the verifier limits numbers to a word");
    let digits = part(frame, at, i64::from(bytes)).unwrap_or_default().iter();
    let append = |number: u64, digit: &u8| number << 8 | u64::from(*digit);
    let number = match endian {
        Endian::Big => digits.fold(0, append),
        Endian::Little => digits.rev().fold(0, append),
    };
    number as i64
}

/// Sums 16-bit words of a frame, with the carries folded in; 0 if they exceed the frame.
pub(super) fn sum(frame: &[u8], at: i64, len: i64) -> i64 {
    let words = part(frame, at, len).unwrap_or_default().chunks(2);
    let word = |word: &[u8]| u64::from(word[0]) << 8 | u64::from(word.get(1).copied().unwrap_or(0));
    let mut sum: u64 = words.map(word).sum();
    while sum > 0xffff {
        sum = (sum >> 16) + (sum & 0xffff);
    }
    assert!(sum <= 0xffff, "a folded sum has 16 bits");
    sum as i64
}

/// The `len` bytes of a frame at `at`; None if they exceed it.
fn part(frame: &[u8], at: i64, len: i64) -> Option<&[u8]> {
    let (at, len) = (usize::try_from(at).ok()?, usize::try_from(len).ok()?);
    frame.get(at..at.checked_add(len)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_like_keeps_state() {
        // A bit lost between two words of the set would break long patterns.
        for n in [62, 63, 64, 65, 127, 128, 129] {
            let text = "ab".repeat(n);
            for pattern in
                [format!("%{}%", "ab".repeat(n)), format!("%{}", "_b".repeat(n)), "_".repeat(2 * n)]
            {
                assert!(like(text.as_bytes(), pattern.as_bytes()), "{pattern}");
                assert!(!like(&text.as_bytes()[1..], pattern.as_bytes()), "{pattern}");
            }
        }
    }

    #[test]
    fn slice_of_invalid_text_is_safe() {
        // Invalid text may begin with a continuation byte; that must not panic.
        assert_eq!(slice(b"\x80\x80a", 0, 0), b"");
        assert_eq!(slice(b"\x80\x80a", 0, 1), b"");
        assert_eq!(slice(b"\x80\x80a", 0, 3), b"a");
        assert_eq!(slice("\u{e9}a".as_bytes(), 1, 0), b"");
    }
}
