//! Text for people: numbers, tables and pictures.

pub mod svg;
mod table;

pub use table::{Align, Table};

/// `1 call`, `2 calls`.
pub fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{} {what}s", grouped(n)) }
}

/// Formats a number with its digits in groups of three: `1,234,567`.
pub fn grouped(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// Formats a rate: `15 Mbit/s`.
pub fn rate_text(bits_per_s: u64) -> String {
    match bits_per_s {
        0..1_000 => format!("{bits_per_s} bit/s"),
        1_000..1_000_000 => format!("{} kbit/s", rounded(bits_per_s as f64 / 1e3)),
        1_000_000..1_000_000_000 => format!("{} Mbit/s", rounded(bits_per_s as f64 / 1e6)),
        _ => format!("{} Gbit/s", rounded(bits_per_s as f64 / 1e9)),
    }
}

/// Rounds to two decimals.
pub fn rounded(n: f64) -> f64 {
    (n * 100.0).round() / 100.0
}
