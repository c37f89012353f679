//! Fixed-point numbers: floats that are integers times a power of two, computed exactly without floats.
//!
//! `rand()` is 53 random bits after the binary point. So `floor(rand() * 65536)` is the upper 16 of them, and `rand() <
//! 0.1` a comparison of integers.

use crate::net::{Gate, Net, Wire};
use crate::range::Range;
use weft_ir::ir::{FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp};

/// Integers that floats represent exactly.
const EXACT: Range = Range { lo: -(1 << 53), hi: 1 << 53 };
/// Largest power of two: far from where floats lose bits.
const POWER_MAX: i32 = 512;

/// An integer times a power of two.
#[derive(Clone, Copy)]
struct Fixed {
    number: Wire,
    power: i32,
}

/// Computes the same value by integers; None if it is not fixed-point.
pub(crate) fn without_floats(net: &mut Net, wire: Wire) -> Option<Wire> {
    match net.gate(wire) {
        Gate::ToInt(a) => {
            let fixed = fixed(net, a)?;
            whole(net, fixed)
        }
        Gate::FloatCompare(op, a, b) => match (net.gate(a), net.gate(b)) {
            (_, Gate::Float(bits)) => {
                let fixed = fixed(net, a)?;
                let (op, bound) = compare_with(op, scaled(bits, fixed), false)?;
                let bound = net.int(bound);
                Some(net.compare(op, fixed.number, bound))
            }
            (Gate::Float(bits), _) => {
                let fixed = fixed(net, b)?;
                let (op, bound) = compare_with(op, scaled(bits, fixed), true)?;
                let bound = net.int(bound);
                Some(net.compare(op, bound, fixed.number))
            }
            _ => {
                let (a, b) = (fixed(net, a)?, fixed(net, b)?);
                let power = a.power.min(b.power);
                let (a, b) = (rescaled(net, a, power)?, rescaled(net, b, power)?);
                let op = match op {
                    FloatCmp::Eq => IntCmp::Eq,
                    FloatCmp::Ne => IntCmp::Ne,
                    FloatCmp::Lt => IntCmp::SLt,
                    FloatCmp::Le => IntCmp::SLe,
                };
                Some(net.compare(op, a, b))
            }
        },
        _ => None,
    }
}

/// Converts a float wire to a fixed-point number; None if that would not be exact.
fn fixed(net: &mut Net, wire: Wire) -> Option<Fixed> {
    match net.gate(wire) {
        Gate::ToFloat(number) if net.range(number).is_within(EXACT) => Some(Fixed { number, power: 0 }),
        Gate::FloatBinary(FloatOp::Mul, a, b) => {
            let (of, by) = match (net.gate(a), net.gate(b)) {
                (_, Gate::Float(bits)) => (a, f64::from_bits(bits)),
                (Gate::Float(bits), _) => (b, f64::from_bits(bits)),
                _ => return None,
            };
            let Fixed { number, power } = fixed(net, of)?;
            let power = power + power_of_two(by)?;
            (power.abs() <= POWER_MAX).then_some(Fixed { number, power })
        }
        Gate::FloatUnary(FloatUnaryOp::Floor, a) => {
            let fixed = fixed(net, a)?;
            match fixed.power >= 0 {
                true => Some(fixed),
                false => Some(Fixed { number: whole(net, fixed)?, power: 0 }),
            }
        }
        _ => None,
    }
}

/// The integer part, rounded toward zero, of a number that is not negative.
fn whole(net: &mut Net, Fixed { number, power }: Fixed) -> Option<Wire> {
    let range = net.range(number);
    let places = net.int(i64::from(power.abs()));
    match power {
        0 => Some(number),
        _ if range.is_signed() => None,
        // All bits are after the point.
        ..=-64 => Some(net.int(0)),
        -63..0 => Some(net.binary(IntOp::Shr, number, places)),
        1..63 if range.hi <= i64::MAX >> power => Some(net.binary(IntOp::Shl, number, places)),
        _ => None,
    }
}

/// The number rescaled to a lower power.
fn rescaled(net: &mut Net, fixed: Fixed, power: i32) -> Option<Wire> {
    let places = u32::try_from(fixed.power - power).ok()?;
    let Range { lo, hi } = net.range(fixed.number);
    let most = i64::MAX.checked_shr(places).unwrap_or(0);
    if places == 0 {
        return Some(fixed.number);
    }
    if hi > most || lo < -most {
        return None;
    }
    let places = net.int(i64::from(places));
    Some(net.binary(IntOp::Shl, fixed.number, places))
}

/// The exponent of a positive float that is a power of two.
fn power_of_two(x: f64) -> Option<i32> {
    let power = ((x.to_bits() >> 52) & 0x7ff) as i32 - 1023;
    (x.is_normal() && x == f64::from(power).exp2()).then_some(power)
}

/// A constant scaled like the number: exact, since only its exponent changes.
fn scaled(bits: u64, fixed: Fixed) -> f64 {
    f64::from_bits(bits) * f64::from(-fixed.power).exp2()
}

/// Compares an integer with a bound, which is on the left or on the right: the comparison, and the bound as an integer.
fn compare_with(op: FloatCmp, bound: f64, is_left: bool) -> Option<(IntCmp, i64)> {
    let (op, rounds_up) = match op {
        FloatCmp::Lt => (IntCmp::SLt, !is_left),
        FloatCmp::Le => (IntCmp::SLe, is_left),
        FloatCmp::Eq | FloatCmp::Ne => return None,
    };
    Some((op, clamped(if rounds_up { bound.ceil() } else { bound.floor() })?))
}

/// A bound beyond all integers is also beyond these.
fn clamped(bound: f64) -> Option<i64> {
    (!bound.is_nan()).then_some(bound as i64)
}
