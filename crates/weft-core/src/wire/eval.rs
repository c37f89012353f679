//! Evaluates expressions over a header, independent of its representation.

use super::{Checksum, Expr, FieldId};

/// The header properties that an expression can read.
pub(super) trait EvalContext {
    fn field(&self, id: FieldId) -> u64;
    fn is_present(&self, id: FieldId) -> bool;
    fn peek(&self, bits: u8) -> u64;
    fn header_bytes(&self) -> u64;
    fn payload_bytes(&self) -> u64;
    fn bytes_after(&self, id: FieldId) -> u64;
    fn round_bytes(&self) -> u64;
    fn rest(&self) -> u64;
    fn count(&self, name: &str) -> u64;
    fn is_last(&self) -> bool;
    fn checksum(&self, sum: Checksum) -> u64;
}

/// Evaluates an expression ([`Expr`]); `of` gives the values of fields and lengths.
pub(super) fn value(expr: &Expr, of: &impl EvalContext) -> u64 {
    match expr {
        Expr::Int(n) => *n,
        Expr::Field(id) => of.field(*id),
        Expr::Peek(bits) => of.peek(*bits),
        Expr::HeaderBytes => of.header_bytes(),
        Expr::PayloadBytes => of.payload_bytes(),
        Expr::BytesAfter(id) => of.bytes_after(*id),
        Expr::RoundBytes => of.round_bytes(),
        Expr::Rest => of.rest(),
        Expr::Count(name) => of.count(name),
        Expr::Present(id) => u64::from(of.is_present(*id)),
        Expr::Last => u64::from(of.is_last()),
        Expr::Checksum(sum) => of.checksum(*sum),
        // A property of the frame; no header has it.
        Expr::Flow => 0,
        Expr::Binary(op, a, b) => op.of(value(a, of), value(b, of)),
        Expr::Not(a) => u64::from(value(a, of) == 0),
        Expr::In(a, list) => u64::from(list.contains(&value(a, of))),
        Expr::If(by, yes, no) => value(if value(by, of) != 0 { yes } else { no }, of),
    }
}

/// CRC32c (Castagnoli).
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    !crc32c_on(u32::MAX, bytes)
}

/// The running CRC after more bytes: it starts with all ones, and the result is its complement.
pub(crate) fn crc32c_on(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| (crc >> 8) ^ CRC32C[usize::from(crc as u8 ^ byte)])
}

/// The CRC of each byte.
static CRC32C: [u32; 256] = {
    let mut table = [0; 256];
    let mut at = 0;
    while at < 256 {
        let (mut crc, mut bit) = (at as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
            bit += 1;
        }
        table[at] = crc;
        at += 1;
    }
    table
};

/// `n` bits of bytes from bit `at` on; the most significant bit of a byte is the first.
pub(super) fn bits(bytes: &[u8], at: usize, n: usize) -> u64 {
    assert!(n <= 64, "a number has at most 64 bits");
    let (first, end) = (at / 8, (at + n).div_ceil(8));
    // 64 bits span at most 9 bytes. Missing bytes are zero.
    let byte = |at: usize| u128::from(bytes.get(at).copied().unwrap_or(0));
    let all = (first..end).fold(0, |number, at| number << 8 | byte(at));
    (all >> (8 * end - at - n) & ((1 << n) - 1)) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crc32c_matches_standard() {
        // Receivers drop frames with a wrong checksum.
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
    }
}
