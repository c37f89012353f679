//! Steps that shrink with the root of a number, without floats.
//!
//! `interval * rsqrt(count)` with a `count` of 32 bits is too large for a table. But it is the greatest integer whose
//! square times the count is at most the square of the interval. It is computed digit by digit, one subtraction per
//! clock. [`is_exact`] checks that the interpreter's floats give the same for every value of the wire, at all places
//! where the step changes: both decrease monotonically.

use crate::net::{Gate, Net, Wire};
use crate::range::Range;
use weft_ir::ir::{FloatOp, FloatUnaryOp};

/// Largest dividend: ten seconds in nanoseconds. The number of checked places grows with it.
const OVER_MAX: u64 = 10_000_000_000;
/// Largest operand of the root.
const OF_MAX: i64 = u32::MAX as i64;

/// The dividend, and the operand of the root, if a wire is such a division; see [`is_exact`].
pub(crate) fn found(net: &Net, wire: Wire) -> Option<(u64, Wire)> {
    let Gate::ToInt(product) = net.gate(wire) else { return None };
    let Gate::FloatBinary(FloatOp::Mul, a, b) = net.gate(product) else { return None };
    let (over, inverse) = match (net.gate(a), net.gate(b)) {
        (Gate::Float(over), _) => (f64::from_bits(over), b),
        (_, Gate::Float(over)) => (f64::from_bits(over), a),
        _ => return None,
    };
    let Gate::FloatBinary(FloatOp::Div, one, root) = net.gate(inverse) else { return None };
    let Gate::FloatUnary(FloatUnaryOp::Sqrt, of) = net.gate(root) else { return None };
    let Gate::ToFloat(of) = net.gate(of) else { return None };
    let is_one = net.gate(one) == Gate::Float(1_f64.to_bits());
    let is_whole = over.fract() == 0.0 && (2.0..=OVER_MAX as f64).contains(&over);
    let Range { lo, hi } = net.range(of);
    let is_fit = is_one && is_whole && lo >= 0 && hi <= OF_MAX;
    is_fit.then_some((over as u64, of))
}

/// The greatest number whose square times `of` is at most the square of `over`; the greatest of all if `of` is 0.
pub(crate) fn step(over: u64, of: u64) -> u64 {
    if of == 0 {
        return i64::MAX as u64;
    }
    let square = u128::from(over) * u128::from(over) / u128::from(of);
    let step = square.isqrt() as u64;
    assert!(step <= over, "a root of a whole number is at least 1");
    step
}

/// Number of bits of a step that is not divided by 0.
pub(crate) fn bits(over: u64) -> u32 {
    assert!(over > 0, "nothing is divided");
    64 - over.leading_zeros()
}

/// Whether the interpreter's floats give the same for all numbers up to `most`.
pub(crate) fn is_exact(over: u64, most: u64) -> bool {
    let by_floats = |of: u64| (over as f64 * (1.0 / (of as f64).sqrt())) as i64 as u64;
    let square = u128::from(over) * u128::from(over);
    let mut of = 1;
    while of <= most {
        let here = step(over, of);
        // The last number with this step.
        let last = match u128::from(here) * u128::from(here) {
            0 => most,
            below => u64::try_from(square / below).unwrap_or(most).min(most),
        };
        if by_floats(of) != here || by_floats(last) != here {
            return false;
        }
        of = last + 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    /// A queue in gates would drop at other times than one on a processor.
    #[test]
    fn root_step_matches_floats() {
        let mut rng = Rng::from_seed(5);
        for over in [1, 2, 1_000, 100_000_000, 123_456_789] {
            assert!(is_exact(over, 1 << 32), "{over}");
            for _ in 0..10_000 {
                let of = 1 + (rng.bits() >> 32 >> rng.below(32));
                assert_eq!(step(over, of), (over as f64 * (1.0 / (of as f64).sqrt())) as u64, "{over}, {of}");
            }
        }
        assert_eq!(step(7, 0), (7.0 * (1.0 / 0_f64.sqrt())) as i64 as u64);
        assert_eq!((bits(1), bits(100_000_000)), (1, 27));
    }
}
