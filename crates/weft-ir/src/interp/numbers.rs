//! Evaluates operations on integers, floats and booleans for the interpreter.

use crate::ir::{BoolOp, FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Op, Signed, Value};
use weft_core::hash;

/// Computes an operation on words ([`Op::word_types`]), a selection of words, or the hash of an integer.
///
/// # Panics
/// For all other operations.
pub fn evaluate(op: &Op, word: impl Fn(Value) -> u64) -> u64 {
    let int = |value| word(value) as i64;
    let float = |value| f64::from_bits(word(value));
    let truth = |value| word(value) != 0;
    match *op {
        Op::BoolConst(b) => b.into(),
        Op::IntConst(n) => n as u64,
        Op::FloatConst(x) => x.to_bits(),
        Op::IntBinary(op, a, b) => self::int(op, int(a), int(b)) as u64,
        Op::Overflows(op, signed, a, b) => overflows(op, signed, int(a), int(b)).into(),
        Op::IntCompare(op, a, b) => int_compare(op, int(a), int(b)).into(),
        Op::InRange(a, low, high) => (low..=high).contains(&int(a)).into(),
        Op::FloatBinary(op, a, b) => self::float(op, float(a), float(b)).to_bits(),
        Op::FloatUnary(op, a) => float_unary(op, float(a)).to_bits(),
        Op::FloatCompare(op, a, b) => float_compare(op, float(a), float(b)).into(),
        Op::IntToFloat(signed, a) => int_to_float(signed, int(a)).to_bits(),
        Op::FloatToInt(signed, a) => float_to_int(signed, float(a)) as u64,
        Op::FloatFits(signed, a) => float_fits(signed, float(a)).into(),
        Op::FloatOfBits(a) | Op::BoolToInt(a) => word(a),
        Op::BoolBinary(op, a, b) => bool(op, truth(a), truth(b)).into(),
        Op::Not(a) => (!truth(a)).into(),
        Op::Select(by, a, b) => word(if truth(by) { a } else { b }),
        Op::Hash(a) => hash::hash_word(word(a)),
        Op::HashMix(a, b) => hash::mix(word(a), word(b)),
        Op::Log2(a) => int(a).max(1).ilog2().into(),
        _ => unreachable!("the caller evaluates operations on words only, not {op:?}"),
    }
}

/// Computes an integer operation. Results wrap; division by zero gives 0.
pub(crate) fn int(op: IntOp, a: i64, b: i64) -> i64 {
    let (ua, ub) = (a as u64, b as u64);
    match op {
        IntOp::Add => a.wrapping_add(b),
        IntOp::Sub => a.wrapping_sub(b),
        IntOp::Mul => a.wrapping_mul(b),
        IntOp::SDiv if b == 0 => 0,
        IntOp::SDiv => a.wrapping_div(b),
        IntOp::UDiv => ua.checked_div(ub).unwrap_or(0) as i64,
        IntOp::SRem if b == 0 => 0,
        IntOp::SRem => a.wrapping_rem(b),
        IntOp::URem => ua.checked_rem(ub).unwrap_or(0) as i64,
        IntOp::And => a & b,
        IntOp::Or => a | b,
        IntOp::Xor => a ^ b,
        IntOp::Shl => a << (ub % 64),
        IntOp::Shr => (ua >> (ub % 64)) as i64,
        IntOp::SMin => a.min(b),
        IntOp::SMax => a.max(b),
        IntOp::UMin => ua.min(ub) as i64,
        IntOp::UMax => ua.max(ub) as i64,
    }
}

/// Whether an operation overflows; only for operations that the verifier allows.
fn overflows(op: IntOp, signed: Signed, a: i64, b: i64) -> bool {
    let (ua, ub) = (a as u64, b as u64);
    match (op, signed) {
        (IntOp::Add, Signed::Yes) => a.checked_add(b).is_none(),
        (IntOp::Add, Signed::No) => ua.checked_add(ub).is_none(),
        (IntOp::Sub, Signed::Yes) => a.checked_sub(b).is_none(),
        (IntOp::Sub, Signed::No) => ua.checked_sub(ub).is_none(),
        (IntOp::Mul, Signed::Yes) => a.checked_mul(b).is_none(),
        (IntOp::Mul, Signed::No) => ua.checked_mul(ub).is_none(),
        (IntOp::SDiv, _) => a == i64::MIN && b == -1,
        _ => false,
    }
}

/// Compares integers, signed or unsigned by the operation.
fn int_compare(op: IntCmp, a: i64, b: i64) -> bool {
    match op {
        IntCmp::Eq => a == b,
        IntCmp::Ne => a != b,
        IntCmp::SLt => a < b,
        IntCmp::SLe => a <= b,
        IntCmp::ULt => (a as u64) < b as u64,
        IntCmp::ULe => a as u64 <= b as u64,
    }
}

/// Computes a float operation. The minimum or maximum with a NaN is NaN.
fn float(op: FloatOp, a: f64, b: f64) -> f64 {
    match op {
        FloatOp::Add => a + b,
        FloatOp::Sub => a - b,
        FloatOp::Mul => a * b,
        FloatOp::Div => a / b,
        FloatOp::Min | FloatOp::Max if a.is_nan() || b.is_nan() => f64::NAN,
        // total_cmp orders -0 before +0 and agrees with < for all other numbers.
        FloatOp::Min => [a, b].into_iter().min_by(f64::total_cmp).unwrap_or(a),
        FloatOp::Max => [a, b].into_iter().max_by(f64::total_cmp).unwrap_or(a),
    }
}

/// Computes a float operation with one operand; rounding is to even.
fn float_unary(op: FloatUnaryOp, a: f64) -> f64 {
    match op {
        FloatUnaryOp::Neg => -a,
        FloatUnaryOp::Abs => a.abs(),
        FloatUnaryOp::Floor => a.floor(),
        FloatUnaryOp::Ceil => a.ceil(),
        FloatUnaryOp::Round => a.round_ties_even(),
        FloatUnaryOp::Sqrt => a.sqrt(),
    }
}

/// Compares floats; false if one is NaN.
fn float_compare(op: FloatCmp, a: f64, b: f64) -> bool {
    match op {
        FloatCmp::Eq => a == b,
        // Unlike Rust's `!=`, this is false for NaN.
        FloatCmp::Ne => a.partial_cmp(&b).is_some_and(core::cmp::Ordering::is_ne),
        FloatCmp::Lt => a < b,
        FloatCmp::Le => a <= b,
    }
}

/// Computes a boolean operation.
fn bool(op: BoolOp, a: bool, b: bool) -> bool {
    match op {
        BoolOp::And => a && b,
        BoolOp::Or => a || b,
        BoolOp::Xor => a != b,
    }
}

/// Converts the integer to the nearest float.
fn int_to_float(signed: Signed, a: i64) -> f64 {
    match signed {
        Signed::Yes => a as f64,
        Signed::No => a as u64 as f64,
    }
}

/// Converts a float. Rust's conversions truncate, saturate, and turn NaN into 0.
fn float_to_int(signed: Signed, a: f64) -> i64 {
    match signed {
        Signed::Yes => a as i64,
        Signed::No => a as u64 as i64,
    }
}

/// Whether the float, truncated, fits a 64-bit integer; false for NaN.
fn float_fits(signed: Signed, a: f64) -> bool {
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    match signed {
        Signed::Yes => (-TWO_POW_63..TWO_POW_63).contains(&a),
        Signed::No => a > -1.0 && a < 2.0 * TWO_POW_63,
    }
}

/// Formats an integer in decimal.
pub(crate) fn int_to_text(signed: Signed, a: i64) -> String {
    match signed {
        Signed::Yes => a.to_string(),
        Signed::No => (a as u64).to_string(),
    }
}

pub(crate) fn float_to_text(a: f64) -> String {
    if a.abs() < 1e16 && a.trunc() == a { format!("{a}.0") } else { format!("{a}") }
}

/// Parses a decimal number; None if the text is not one, or exceeds the range of floats.
pub(crate) fn text_to_float(text: &[u8]) -> Option<f64> {
    // Rust's parser also accepts a `+`, names like `inf`, and a point without digits on one side.
    let digits = |text: &[u8]| !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    let positive = text.strip_prefix(b"-").unwrap_or(text);
    let (number, exponent) = cut(positive, b"eE");
    let (whole, fraction) = cut(number, b".");
    let exponent_digits = exponent.map(|e| e.strip_prefix(b"-").or(e.strip_prefix(b"+")).unwrap_or(e));
    if !digits(whole) || !fraction.is_none_or(digits) || !exponent_digits.is_none_or(digits) {
        return None;
    }
    core::str::from_utf8(text).ok()?.parse().ok().filter(|x: &f64| x.is_finite())
}

/// Splits a text at the first of these bytes; the second part is None if there is none.
fn cut<'a>(text: &'a [u8], at: &[u8]) -> (&'a [u8], Option<&'a [u8]>) {
    match text.iter().position(|byte| at.contains(byte)) {
        Some(found) => (&text[..found], Some(&text[found + 1..])),
        None => (text, None),
    }
}

/// Parses a decimal integer; None if the text is not a 64-bit integer.
pub(crate) fn text_to_int(signed: Signed, text: &[u8]) -> Option<i64> {
    let digits = match (signed, text.strip_prefix(b"-")) {
        (Signed::Yes, Some(digits)) => digits,
        _ => text,
    };
    // Rust's parser also accepts a `+`.
    if !digits.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let text = core::str::from_utf8(text).ok()?;
    match signed {
        Signed::Yes => text.parse().ok(),
        Signed::No => text.parse::<u64>().ok().map(|n| n as i64),
    }
}
