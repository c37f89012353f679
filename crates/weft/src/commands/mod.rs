//! The commands of `weft`: one file for each.

pub(crate) mod apply;
pub(crate) mod check;
pub(crate) mod compile;
pub(crate) mod demo;
pub(crate) mod explain;
pub(crate) mod fmt;
pub(crate) mod generate;
pub(crate) mod import;
pub(crate) mod link;
pub(crate) mod load;
pub(crate) mod man;
pub(crate) mod query;
pub(crate) mod replay;
pub(crate) mod run;
pub(crate) mod sim;
pub(crate) mod status;
pub(crate) mod top;

/// `1 call`, `2 calls`.
pub(crate) fn count(n: u64, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{} {what}s", grouped(n)) }
}

/// Formats a number with its digits in groups of three: `1,234,567`.
pub(crate) fn grouped(n: u64) -> String {
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
