//! Integer ranges, and the arithmetic of queues on them.
//!
//! Each operation returns a range that contains every result for members of its operands, by the total arithmetic of
//! the language: it wraps at 64 bits, and division by 0 gives 0.

use crate::hir::QueueBinary as B;

/// Integers from `low` to `high`, inclusive; never empty.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Range {
    pub(super) low: i64,
    pub(super) high: i64,
}

impl Range {
    /// Any number.
    pub(super) const ALL: Self = Self { low: i64::MIN, high: i64::MAX };
    /// Hashes have 32 bits.
    pub(super) const HASH: Self = Self { low: 0, high: u32::MAX as i64 };

    /// From `low` to `high`, where `low` must not be greater.
    pub(super) fn of(low: i64, high: i64) -> Self {
        assert!(low <= high, "a range of nothing");
        Self { low, high }
    }

    /// One number.
    pub(super) fn one(n: i64) -> Self {
        Self { low: n, high: n }
    }

    /// Whether it is one number.
    pub(super) fn is_one(self) -> bool {
        self.low == self.high
    }

    /// From 0 on.
    pub(super) fn up_to(high: i64) -> Self {
        Self::of(0, high)
    }

    /// The intersection; None if it is empty.
    pub(super) fn and(self, other: Self) -> Option<Self> {
        let (low, high) = (self.low.max(other.low), self.high.min(other.high));
        (low <= high).then_some(Self { low, high })
    }

    /// The smallest range that contains both.
    pub(super) fn or(self, other: Self) -> Self {
        Self { low: self.low.min(other.low), high: self.high.max(other.high) }
    }

    /// Whether the range is contained in another.
    pub(super) fn is_within(self, other: Self) -> bool {
        other.low <= self.low && self.high <= other.high
    }

    /// The range after values are clamped to another range.
    pub(super) fn clamp_to(self, other: Self) -> Self {
        Self::of(self.low.clamp(other.low, other.high), self.high.clamp(other.low, other.high))
    }

    /// `abs(a)`: the smallest integer stays as it is.
    pub(super) fn abs(self) -> Self {
        if self.low == i64::MIN {
            return Self::ALL;
        }
        let (low, high) = (self.low.abs(), self.high.abs());
        Self::of(if self.low <= 0 && self.high >= 0 { 0 } else { low.min(high) }, low.max(high))
    }

    /// `log2(a)`: 0 below 1.
    pub(super) fn log2(self) -> Self {
        let log2 = |n: i64| i64::from(n.max(1).ilog2());
        Self::of(log2(self.low), log2(self.high))
    }

    /// Returns the range of `a op b`, for operations from integers to an integer.
    pub(super) fn binary(op: B, a: Self, b: Self) -> Self {
        match op {
            B::Add => {
                range_or_all(i128::from(a.low) + i128::from(b.low), i128::from(a.high) + i128::from(b.high))
            }
            B::Sub => {
                range_or_all(i128::from(a.low) - i128::from(b.high), i128::from(a.high) - i128::from(b.low))
            }
            B::Mul => corners(a, b, |x, y| x * y),
            B::Div => quotient(a, b),
            B::Rem => remainder(a, b),
            B::Least => Self::of(a.low.min(b.low), a.high.min(b.high)),
            B::Greatest => Self::of(a.low.max(b.low), a.high.max(b.high)),
            B::BitAnd => match (a.low >= 0, b.low >= 0) {
                (true, true) => Self::up_to(a.high.min(b.high)),
                (true, false) => Self::up_to(a.high),
                (false, true) => Self::up_to(b.high),
                (false, false) => Self::ALL,
            },
            B::BitOr | B::BitXor if a.low >= 0 && b.low >= 0 => {
                let low = if op == B::BitOr { a.low.max(b.low) } else { 0 };
                Self::of(low, mask_at_least(a.high | b.high))
            }
            B::ShiftLeft if b.is_within(Self::up_to(62)) => corners(a, b, |x, by| x << by),
            B::ShiftRight => shifted_right(a, b),
            B::HashMix => Self::HASH,
            _ => Self::ALL,
        }
    }
}

/// The range between two bounds, or any number if a result wraps.
fn range_or_all(low: i128, high: i128) -> Range {
    match (i64::try_from(low), i64::try_from(high)) {
        (Ok(low), Ok(high)) => Range { low, high },
        _ => Range::ALL,
    }
}

/// For an operation that is monotonic in each operand: its extremes are at those of the operands.
fn corners(a: Range, b: Range, op: impl Fn(i128, i128) -> i128) -> Range {
    let all = [(a.low, b.low), (a.low, b.high), (a.high, b.low), (a.high, b.high)];
    let all = all.map(|(x, y)| op(i128::from(x), i128::from(y)));
    let low = all.into_iter().fold(all[0], i128::min);
    range_or_all(low, all.into_iter().fold(all[0], i128::max))
}

/// Returns the range of a quotient. A division by zero gives zero.
fn quotient(a: Range, b: Range) -> Range {
    let divided = |by: Option<Range>| by.map(|by| corners(a, by, |x, y| x / y));
    let below = divided(b.and(Range::of(i64::MIN, -1)));
    let above = divided(b.and(Range::of(1, i64::MAX)));
    let by_zero = b.and(Range::one(0));
    [below, above, by_zero].into_iter().flatten().reduce(Range::or).unwrap_or(Range::ALL)
}

/// The result has the sign of `a`, and is smaller than `b` in magnitude.
fn remainder(a: Range, b: Range) -> Range {
    let below = b.low.saturating_abs().max(b.high.saturating_abs()).max(1) - i64::from(b.low != i64::MIN);
    Range::of(a.low.max(-below).min(0), a.high.min(below).max(0))
}

/// Zero bits are shifted in, so only a shift by 0 can give a negative number.
fn shifted_right(a: Range, b: Range) -> Range {
    let by = if b.is_within(Range::up_to(63)) { b } else { Range::up_to(63) };
    let all = |n: i64, by: i64| ((n as u64) >> by) as i64;
    if a.low >= 0 {
        Range::of(all(a.low, by.high), all(a.high, by.low))
    } else if by.low > 0 {
        Range::up_to(all(-1, by.low))
    } else {
        Range::ALL
    }
}

/// The smallest number of the form 2^k - 1 that is not below it.
fn mask_at_least(n: i64) -> i64 {
    i64::MAX.checked_shr(n.leading_zeros() - 1).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As queues compute.
    fn computed(op: B, a: i64, b: i64) -> i64 {
        match op {
            B::Add => a.wrapping_add(b),
            B::Sub => a.wrapping_sub(b),
            B::Mul => a.wrapping_mul(b),
            B::Div if b == 0 => 0,
            B::Div => a.wrapping_div(b),
            B::Rem if b == 0 => 0,
            B::Rem => a.wrapping_rem(b),
            B::Least => a.min(b),
            B::Greatest => a.max(b),
            B::BitAnd => a & b,
            B::BitOr => a | b,
            B::BitXor => a ^ b,
            B::ShiftLeft => a << (b as u64 % 64),
            B::ShiftRight => ((a as u64) >> (b as u64 % 64)) as i64,
            _ => unreachable!("not looked at here"),
        }
    }

    const OPS: [B; 12] = [
        B::Add,
        B::Sub,
        B::Mul,
        B::Div,
        B::Rem,
        B::Least,
        B::Greatest,
        B::BitAnd,
        B::BitOr,
        B::BitXor,
        B::ShiftLeft,
        B::ShiftRight,
    ];

    /// The edge cases of the arithmetic: zeros, signs, shift widths and extremes.
    const EDGE_CASES: [i64; 17] = [
        i64::MIN,
        i64::MIN + 1,
        -(1 << 40),
        -65,
        -7,
        -1,
        0,
        1,
        2,
        5,
        8,
        62,
        63,
        64,
        1 << 40,
        i64::MAX - 1,
        i64::MAX,
    ];

    /// Ranges between some of them.
    fn all() -> impl Iterator<Item = Range> + Clone {
        const ENDS: [i64; 9] = [i64::MIN, -65, -1, 0, 1, 8, 63, 1 << 40, i64::MAX];
        let pairs = ENDS.into_iter().flat_map(|low| ENDS.map(|high| (low, high)));
        pairs.filter(|(low, high)| low <= high).map(|(low, high)| Range { low, high })
    }

    /// The members of a range that are tested.
    fn members(range: Range) -> impl Iterator<Item = i64> + Clone {
        let near = [range.low, range.low.saturating_add(1), range.high, range.high.saturating_sub(1)];
        EDGE_CASES.into_iter().chain(near).filter(move |n| Range::one(*n).is_within(range))
    }

    /// If this fails, a rank that is out of range passes as valid: a result lies outside the promised range.
    #[test]
    fn every_result_lies_in_range() {
        for op in OPS {
            for (a, b) in all().flat_map(|a| all().map(move |b| (a, b))) {
                let range = Range::binary(op, a, b);
                for (x, y) in members(a).flat_map(|x| members(b).map(move |y| (x, y))) {
                    let found = computed(op, x, y);
                    assert!(Range::one(found).is_within(range), "{op:?} of {x} and {y}: {found}, {range:?}");
                }
            }
        }
        for a in all() {
            for x in members(a) {
                let (abs, log2) = (x.wrapping_abs(), i64::from(x.max(1).ilog2()));
                assert!(Range::one(abs).is_within(a.abs()) && Range::one(log2).is_within(a.log2()), "{x}");
            }
        }
    }

    /// If this fails, programs with valid ranks get warnings, because ranges are too wide.
    #[test]
    fn ranges_are_tight() {
        let check = |op, a: (i64, i64), b: (i64, i64), want: (i64, i64)| {
            let found = Range::binary(op, Range::of(a.0, a.1), Range::of(b.0, b.1));
            assert_eq!((found.low, found.high), want, "{op:?} of {a:?} and {b:?}");
        };
        check(B::Add, (1, 1), (0, 7), (1, 8));
        check(B::Sub, (7, 7), (0, 7), (0, 7));
        check(B::Mul, (-2, 3), (4, 5), (-10, 15));
        check(B::Div, (0, 63), (8, 8), (0, 7));
        check(B::Div, (9, 9), (0, 3), (0, 9));
        check(B::Rem, (0, i64::MAX), (8, 8), (0, 7));
        check(B::Least, (0, i64::MAX), (7, 7), (0, 7));
        check(B::Greatest, (i64::MIN, 7), (0, 0), (0, 7));
        check(B::BitAnd, (i64::MIN, i64::MAX), (7, 7), (0, 7));
        check(B::BitOr, (0, 4), (0, 2), (0, 7));
        check(B::ShiftRight, (0, 63), (3, 3), (0, 7));
        check(B::ShiftLeft, (0, 3), (1, 1), (0, 6));
    }
}
