//! Floating-point functions with the same result on every machine.
//!
//! The functions of the standard library come from the system, and may differ in the last bit. A run that uses them for
//! congestion windows would then send different packets. These use only addition, multiplication, division and roots,
//! which IEEE 754 defines exactly. Their relative error is about 1e-14.

use core::f64::consts::{LN_2, SQRT_2};
use weft_core::rng::Rng;

/// An exponentially distributed number with this mean: a time between events of a Poisson process.
pub fn exponential(rng: &mut Rng, mean: f64) -> f64 {
    -mean * ln(1.0 - rng.unit())
}

/// The natural logarithm of a positive, normal number.
pub(crate) fn ln(x: f64) -> f64 {
    const FRACTION: u64 = (1 << 52) - 1;
    const ONE: u64 = 0x3ff0_0000_0000_0000;
    let bits = x.to_bits();
    let mut exponent = f64::from((bits >> 52) as i32 - 1023);
    let mut mantissa = f64::from_bits(bits & FRACTION | ONE);
    if mantissa > SQRT_2 {
        mantissa /= 2.0;
        exponent += 1.0;
    }
    // ln m = 2 artanh t; |t| < 0.172, so the thirteenth term is below 1e-18.
    let t = (mantissa - 1.0) / (mantissa + 1.0);
    let square = t * t;
    let series = (0..12).rev().fold(0.0, |sum, n| sum * square + 1.0 / f64::from(2 * n + 1));
    exponent * LN_2 + 2.0 * t * series
}

/// e to the power of `x`, for |x| below 700.
pub(crate) fn exp(x: f64) -> f64 {
    let n = (x / LN_2).round();
    let rest = x - n * LN_2;
    // |rest| < 0.347, so the sixteenth term is below 1e-20.
    let series = (1..16).rev().fold(1.0, |sum, k| 1.0 + sum * rest / f64::from(k));
    series * f64::from_bits(((1023 + n as i64) as u64) << 52)
}

/// The cube root.
pub(crate) fn cbrt(x: f64) -> f64 {
    if x == 0.0 {
        return 0.0;
    }
    let size = x.abs();
    // Newton's method, from an estimate with an error of 1e-13; two more steps than necessary.
    let mut root = exp(ln(size) / 3.0);
    for _ in 0..2 {
        root -= (root * root * root - size) / (3.0 * root * root);
    }
    root.copysign(x)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, times between events, sizes of flows and windows of CUBIC are wrong.
    #[test]
    fn math_matches_std() {
        for step in 0..4000 {
            let x = 1e-9 * 1.012f64.powi(step);
            assert!((ln(x) - x.ln()).abs() <= 1e-13 * x.ln().abs().max(1.0), "ln {x}");
            assert!((cbrt(x) / x.cbrt() - 1.0).abs() < 1e-14, "cbrt {x}");
            assert_eq!(cbrt(-x), -cbrt(x));
            let y = (f64::from(step) - 2000.0) / 40.0;
            assert!((exp(y) / y.exp() - 1.0).abs() < 1e-13, "exp {y}");
        }
        assert_eq!((ln(1.0), exp(0.0), cbrt(0.0)), (0.0, 1.0, 0.0));
    }
}
