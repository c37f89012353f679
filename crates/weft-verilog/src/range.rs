//! The range of a wire's values, inclusive. It determines the number of bits.

use weft_ir::ir::{IntCmp, IntOp};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) lo: i64,
    pub(crate) hi: i64,
}

impl Range {
    pub(crate) const FULL: Self = Self { lo: i64::MIN, hi: i64::MAX };
    pub(crate) const BIT: Self = Self { lo: 0, hi: 1 };

    pub(crate) const fn only(n: i64) -> Self {
        Self { lo: n, hi: n }
    }

    /// Unsigned numbers with this many bits; with 64, all words.
    pub(crate) const fn bits_of(bits: u32) -> Self {
        if bits >= 64 { Self::FULL } else { Self { lo: 0, hi: ((1_u64 << bits) - 1) as i64 } }
    }

    /// The range of signed numbers with this many bits.
    pub(crate) const fn signed_bits_of(bits: u32) -> Self {
        assert!(bits >= 1 && bits <= 64, "a signed number has 1 to 64 bits");
        let hi = ((1_u64 << (bits - 1)) - 1) as i64;
        Self { lo: !hi, hi }
    }

    pub(crate) fn only_value(self) -> Option<i64> {
        (self.lo == self.hi).then_some(self.lo)
    }

    /// Whether its highest bit is a sign.
    pub(crate) fn is_signed(self) -> bool {
        self.lo < 0
    }

    /// The number of bits that hold all values of the range, at least one.
    pub(crate) fn bits(self) -> u32 {
        let magnitude = |n: i64| 64 - (n ^ (n >> 63)).leading_zeros();
        let bits = magnitude(self.lo).max(magnitude(self.hi));
        if self.is_signed() { bits + 1 } else { bits.max(1) }
    }

    /// Cuts a word to the bits of the range.
    pub(crate) fn cut(self, word: u64) -> u64 {
        let above = 64 - self.bits();
        if self.is_signed() { (((word << above) as i64) >> above) as u64 } else { word << above >> above }
    }

    pub(crate) fn contains(self, n: i64) -> bool {
        self.lo <= n && n <= self.hi
    }

    pub(crate) fn is_within(self, other: Self) -> bool {
        other.contains(self.lo) && other.contains(self.hi)
    }

    /// The range that contains both.
    pub(crate) fn either(self, other: Self) -> Self {
        Self { lo: self.lo.min(other.lo), hi: self.hi.max(other.hi) }
    }

    /// The intersection; None if empty.
    pub(crate) fn intersection(self, other: Self) -> Option<Self> {
        let both = Self { lo: self.lo.max(other.lo), hi: self.hi.min(other.hi) };
        (both.lo <= both.hi).then_some(both)
    }

    /// Makes a range; all words if a bound is beyond 64 bits, because the operation then wraps.
    fn exact(lo: i128, hi: i128) -> Self {
        match (i64::try_from(lo), i64::try_from(hi)) {
            (Ok(lo), Ok(hi)) => Self { lo, hi },
            _ => Self::FULL,
        }
    }

    /// Computes the range of an operation's result.
    pub(crate) fn of(op: IntOp, a: Self, b: Self) -> Self {
        let [alo, ahi, blo, bhi] = [a.lo, a.hi, b.lo, b.hi].map(i128::from);
        let are_natural = a.lo >= 0 && b.lo >= 0;
        match op {
            IntOp::Add => Self::exact(alo + blo, ahi + bhi),
            IntOp::Sub => Self::exact(alo - bhi, ahi - blo),
            IntOp::Mul => {
                let corners = [alo * blo, alo * bhi, ahi * blo, ahi * bhi];
                Self::exact(
                    corners.into_iter().min().unwrap_or_default(),
                    corners.into_iter().max().unwrap_or_default(),
                )
            }
            IntOp::SDiv => Self::of_division(a, b),
            IntOp::UDiv if are_natural => Self::of_division(a, b),
            IntOp::SRem => {
                let below = (blo.abs().max(bhi.abs()) - 1).max(0);
                Self::exact(alo.max(-below).min(0), ahi.min(below).max(0))
            }
            IntOp::URem if b.lo >= 0 => {
                let below = (bhi - 1).max(0);
                Self::exact(0, if a.lo >= 0 { ahi.min(below) } else { below })
            }
            IntOp::And | IntOp::Or | IntOp::Xor => Self::of_bits(op, a, b),
            IntOp::Shl if Self::bits_of(6).contains(b.lo) && Self::bits_of(6).contains(b.hi) => {
                let corners = [alo << b.lo, alo << b.hi, ahi << b.lo, ahi << b.hi];
                Self::exact(
                    corners.into_iter().min().unwrap_or_default(),
                    corners.into_iter().max().unwrap_or_default(),
                )
            }
            IntOp::Shr => Self::of_shift(a, b),
            IntOp::SMin => Self { lo: a.lo.min(b.lo), hi: a.hi.min(b.hi) },
            IntOp::SMax => Self { lo: a.lo.max(b.lo), hi: a.hi.max(b.hi) },
            IntOp::UMin if are_natural => Self::of(IntOp::SMin, a, b),
            IntOp::UMax if are_natural => Self::of(IntOp::SMax, a, b),
            IntOp::UMin | IntOp::UMax => a.either(b),
            IntOp::UDiv | IntOp::URem | IntOp::Shl => Self::FULL,
        }
    }

    /// Computes the range of a quotient, rounded toward zero; division by 0 gives 0.
    fn of_division(a: Self, b: Self) -> Self {
        let ends = [b.lo, b.hi, -1, 1].into_iter().filter(|by| *by != 0 && b.contains(*by));
        let corners = ends.flat_map(|by| [a.lo, a.hi].map(|of| i128::from(of) / i128::from(by)));
        let zero = b.contains(0).then_some(0);
        let (lo, hi) = corners.chain(zero).fold((i128::MAX, i128::MIN), |(lo, hi), n| (lo.min(n), hi.max(n)));
        Self::exact(lo, hi)
    }

    /// Computes the range of a bitwise operation's result.
    fn of_bits(op: IntOp, a: Self, b: Self) -> Self {
        match (op, a.is_signed(), b.is_signed()) {
            (IntOp::And, false, false) => Self { lo: 0, hi: a.hi.min(b.hi) },
            (IntOp::And, false, true) => Self { lo: 0, hi: a.hi },
            (IntOp::And, true, false) => Self { lo: 0, hi: b.hi },
            (_, false, false) => Self::bits_of(a.bits().max(b.bits())),
            _ => Self::signed_bits_of(
                (a.bits() + u32::from(!a.is_signed())).max(b.bits() + u32::from(!b.is_signed())),
            ),
        }
    }

    /// Computes the range of a right shift that shifts in zeros at the top.
    fn of_shift(a: Self, b: Self) -> Self {
        let is_plain = b.is_within(Self::bits_of(6));
        match b.only_value() {
            _ if a.lo >= 0 && is_plain => Self { lo: a.lo >> b.hi, hi: a.hi >> b.lo },
            _ if a.lo >= 0 => Self { lo: 0, hi: a.hi },
            Some(n) if n.rem_euclid(64) != 0 => Self::bits_of(64 - n.rem_euclid(64) as u32),
            _ => Self::FULL,
        }
    }

    /// Decides a comparison from the ranges, if possible; `same` says that both operands are one wire.
    pub(crate) fn decides(op: IntCmp, a: Self, b: Self, same: bool) -> Option<bool> {
        let is_less = |a: Self, b: Self| match () {
            () if a.hi < b.lo => Some(true),
            () if a.lo >= b.hi || same => Some(false),
            () => None,
        };
        let is_at_most = |a: Self, b: Self| match () {
            () if a.hi <= b.lo || same => Some(true),
            () if a.lo > b.hi => Some(false),
            () => None,
        };
        let have_one_sign = (a.lo >= 0 && b.lo >= 0) || (a.hi < 0 && b.hi < 0);
        match op {
            IntCmp::Eq | IntCmp::Ne => {
                let is_equal = match a.intersection(b) {
                    _ if same => true,
                    None => false,
                    Some(_) if a.only_value().is_some() && a == b => true,
                    Some(_) => return None,
                };
                Some(is_equal == (op == IntCmp::Eq))
            }
            IntCmp::SLt => is_less(a, b),
            IntCmp::SLe => is_at_most(a, b),
            IntCmp::ULt if have_one_sign => is_less(a, b),
            IntCmp::ULe if have_one_sign => is_at_most(a, b),
            IntCmp::ULt | IntCmp::ULe => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;
    use weft_ir::interp::evaluate;
    use weft_ir::ir::{Op, Value};

    const OPS: [IntOp; 16] = [
        IntOp::Add,
        IntOp::Sub,
        IntOp::Mul,
        IntOp::SDiv,
        IntOp::UDiv,
        IntOp::SRem,
        IntOp::URem,
        IntOp::And,
        IntOp::Or,
        IntOp::Xor,
        IntOp::Shl,
        IntOp::Shr,
        IntOp::SMin,
        IntOp::SMax,
        IntOp::UMin,
        IntOp::UMax,
    ];
    const CMPS: [IntCmp; 6] = [IntCmp::Eq, IntCmp::Ne, IntCmp::SLt, IntCmp::SLe, IntCmp::ULt, IntCmp::ULe];

    fn number(rng: &mut Rng) -> i64 {
        let edges = [0, 1, -1, 2, 3, 62, 63, 64, 65, 255, 256, i64::MAX, i64::MIN, i64::MIN + 1];
        match rng.below(4) {
            0 => rng.pick(&edges),
            1 => rng.below(200) as i64 - 100,
            _ => (rng.bits() as i64) >> rng.below(64),
        }
    }

    fn range(rng: &mut Rng) -> Range {
        let (a, b) = (number(rng), number(rng));
        let b = if rng.percent(20) { a } else { b };
        Range { lo: a.min(b), hi: a.max(b) }
    }

    fn within(rng: &mut Rng, range: Range) -> i64 {
        let reach = range.hi.wrapping_sub(range.lo) as u64;
        match rng.below(3) {
            0 => range.lo,
            1 => range.hi,
            _ if reach == u64::MAX => rng.bits() as i64,
            _ => range.lo.wrapping_add((rng.bits() % (reach + 1)) as i64),
        }
    }

    #[test]
    fn results_lie_in_their_range() {
        // Otherwise a wire would have too few bits.
        let mut rng = Rng::from_seed(1);
        for _ in 0..200_000 {
            let (a, b) = (range(&mut rng), range(&mut rng));
            let (x, y) = (within(&mut rng, a), within(&mut rng, b));
            let run = |op: Op| evaluate(&op, |value| if value.0 == 0 { x as u64 } else { y as u64 });
            let op = rng.pick(&OPS);
            let given = run(Op::IntBinary(op, Value(0), Value(1)));
            let range = Range::of(op, a, b);
            assert!(
                range.contains(given as i64),
                "{op:?} {x} {y}: {given} is not in {range:?}, of {a:?} {b:?}"
            );
            assert_eq!(range.cut(given), given, "{range:?}");
            let cmp = rng.pick(&CMPS);
            let given = run(Op::IntCompare(cmp, Value(0), Value(1))) != 0;
            let known = Range::decides(cmp, a, b, false);
            assert!(known.is_none_or(|known| known == given), "{cmp:?} {x} {y} of {a:?} {b:?}");
        }
    }
}
