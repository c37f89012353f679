//! Escapes untrusted text for terminals, logs and tables.
//!
//! Peers choose many texts that people read: users, paths, metadata. A control character can move the cursor, start a
//! line or set the title of a window. A bidirectional override shows a text in another order than it is compared in.
//! Each such character is written as in JSON, `\n` or `\u001b`: valid inside a JSON string and readable outside.

use core::fmt;
use std::borrow::Cow;

/// A character that must be escaped. It prints as its escape: `\n`, `\r`, `\t`, or `\u` and four digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Escape(char);

impl Escape {
    /// The escape of a character, if it needs one: controls (C0, DEL, C1), direction marks and overrides (Unicode UAX
    /// #9: U+061C, U+200E, U+200F, U+202A to U+202E, U+2066 to U+2069), and line and paragraph separators.
    pub const fn of(c: char) -> Option<Self> {
        match c {
            '\0'..='\x1f'
            | '\x7f'..='\u{9f}'
            | '\u{61c}'
            | '\u{200e}'
            | '\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2066}'..='\u{2069}' => Some(Self(c)),
            _ => None,
        }
    }
}

impl fmt::Display for Escape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            '\n' => f.write_str("\\n"),
            '\r' => f.write_str("\\r"),
            '\t' => f.write_str("\\t"),
            // None of them is above U+FFFF, where JSON would need two escapes.
            c => write!(f, "\\u{:04x}", u32::from(c)),
        }
    }
}

/// Escapes a text for a single line: a cell, a name, a value.
///
/// ```
/// assert_eq!(weft_core::text::escape("ann\x1b[2J\nroot"), "ann\\u001b[2J\\nroot");
/// ```
pub fn escape(text: &str) -> Cow<'_, str> {
    escape_unless(text, |_| false)
}

/// Escapes a text of several lines: line feeds and tabs stay. JSON stays JSON with the same meaning.
pub fn escape_lines(text: &str) -> Cow<'_, str> {
    escape_unless(text, |c| matches!(c, '\n' | '\t'))
}

/// Escapes all characters that need it, except those for which `stays` is true.
fn escape_unless(text: &str, stays: impl Fn(char) -> bool) -> Cow<'_, str> {
    use fmt::Write as _;
    let escape_of = |c: char| Escape::of(c).filter(|_| !stays(c));
    let Some(first) = text.find(|c| escape_of(c).is_some()) else { return Cow::Borrowed(text) };
    let mut out = String::with_capacity(text.len() + 16);
    out.push_str(&text[..first]);
    for c in text[first..].chars() {
        match escape_of(c) {
            Some(escape) => write!(out, "{escape}").expect("writing to a string cannot fail"),
            None => out.push(c),
        }
    }
    Cow::Owned(out)
}

/// Shows nanoseconds since 1970 as a time of RFC 3339 in UTC with microseconds: `2026-03-01T12:00:00.000000Z`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rfc3339(pub i64);

impl fmt::Display for Rfc3339 {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, in_day) = (self.0.div_euclid(86_400_000_000_000), self.0.rem_euclid(86_400_000_000_000));
        let (seconds, micros) = (in_day / 1_000_000_000, in_day / 1_000 % 1_000_000);
        // Days since 0000-03-01 in eras of 400 years, so that leap days come last (Howard Hinnant, "chrono-Compatible
        // Low-Level Date Algorithms").
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_era =
            (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let shifted_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * shifted_month + 2) / 5 + 1;
        let month = if shifted_month < 10 { shifted_month + 3 } else { shifted_month - 9 };
        let year = year_of_era + era * 400 + i64::from(month <= 2);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{micros:06}Z")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Log lines must carry the right day, leap years and the time before 1970 included.
    #[test]
    fn timestamps_are_rfc_3339() {
        let check = |seconds: i64| Rfc3339(seconds * 1_000_000_000 + 123_456_789).to_string();
        assert_eq!(check(0), "1970-01-01T00:00:00.123456Z");
        assert_eq!(check(951_782_399), "2000-02-28T23:59:59.123456Z");
        assert_eq!(check(951_782_400), "2000-02-29T00:00:00.123456Z");
        assert_eq!(check(4_107_542_400), "2100-03-01T00:00:00.123456Z");
        assert_eq!(check(-1), "1969-12-31T23:59:59.123456Z");
    }

    #[test]
    fn misleading_chars_are_escaped() {
        // A peer could write to an operator's terminal, or forge a log line.
        for (text, shown) in [
            ("ann", "ann"),
            ("äß漢 \\ \"", "äß漢 \\ \""),
            ("\x1b]0;pwned\x07", "\\u001b]0;pwned\\u0007"),
            ("a\r\nb\tc", "a\\r\\nb\\tc"),
            ("\0\x7f\u{80}\u{9b}2J\u{9f}\u{a0}", "\\u0000\\u007f\\u0080\\u009b2J\\u009f\u{a0}"),
            ("\u{202e}evil\u{2066}\u{2069}", "\\u202eevil\\u2066\\u2069"),
            ("\u{61c}\u{200e}\u{200f}\u{2028}\u{2029}", "\\u061c\\u200e\\u200f\\u2028\\u2029"),
            // Emoji and Persian text need these joiners.
            ("\u{200c}\u{200d}", "\u{200c}\u{200d}"),
        ] {
            assert_eq!(escape(text), shown);
            assert_eq!(escape(shown), shown, "escaping twice changes nothing");
        }
        assert_eq!(escape_lines("a\tb\n\x1bc\r\n"), "a\tb\n\\u001bc\\r\n");
    }

    #[test]
    fn every_control_char_is_escaped() {
        // A control without an escape would reach terminals.
        let controls = ('\0'..=char::MAX).filter(|c| c.is_control());
        controls.for_each(|c| assert!(Escape::of(c).is_some(), "{c:?}"));
    }
}
