//! Decides whether two conditions over a header exclude each other.
//!
//! A condition is split into cases; each case restricts some numbers of the header to intervals. Two conditions exclude
//! each other if every pair of their cases is contradictory. Otherwise the minimum of each interval is a witness, if it
//! satisfies both conditions. A part that cannot be analysed restricts nothing, so a possible overlap is always
//! reported. A compound expression such as a sum is treated as a number of its own, unless all its parts are known.

use weft_core::wire::{BinaryOp, Expr};

/// Cases of one condition.
const CASES_MAX: usize = 64;

/// Disjoint intervals in order.
type Intervals = Vec<(u64, u64)>;

/// Numbers of the header with their intervals.
#[derive(Clone, Debug, Default)]
pub(super) struct Case(Vec<(Expr, Intervals)>);

/// Two conditions that may both be true.
pub(super) struct Overlap {
    /// A witness: numbers of the header for which both are true; None if none was found.
    pub(super) witness: Option<Vec<(Expr, u64)>>,
}

/// The cases of a condition; None if there are too many. `most` gives the maximum of a number.
pub(super) fn cases(expr: &Expr, most: &dyn Fn(&Expr) -> u64) -> Option<Vec<Case>> {
    Cases { most }.of(expr, true)
}

/// The total number of intervals: the cost of a comparison.
pub(super) fn n_intervals(cases: &[Case]) -> usize {
    cases.iter().flat_map(|case| &case.0).map(|(_, set)| set.len()).sum()
}

/// Finds values with which both conditions are true. None if they exclude each other.
pub(super) fn overlap((a, of_a): (&Expr, &[Case]), (b, of_b): (&Expr, &[Case])) -> Option<Overlap> {
    let mut both = of_a.iter().flat_map(|a| of_b.iter().filter_map(|b| intersect(a, b)));
    let first = both.next()?;
    let holds = |case: &Case| {
        let witness: Vec<(Expr, u64)> = case.0.iter().map(|(e, set)| (e.clone(), set[0].0)).collect();
        let is_true = |expr| value(expr, &|e| witness_value(e, &witness)).is_some_and(|value| value != 0);
        (is_true(a) && is_true(b)).then_some(witness)
    };
    let witness = core::iter::once(first).chain(both).find_map(|case| holds(&case));
    Some(Overlap { witness })
}

struct Cases<'m> {
    most: &'m dyn Fn(&Expr) -> u64,
}

impl Cases<'_> {
    /// Returns the cases in which an expression equals `truth`.
    fn of(&self, expr: &Expr, truth: bool) -> Option<Vec<Case>> {
        match expr {
            Expr::Int(n) => Some(if (*n != 0) == truth { vec![Case::default()] } else { Vec::new() }),
            Expr::Not(e) => self.of(e, !truth),
            Expr::Binary(BinaryOp::And, a, b) if truth => both(&self.of(a, true)?, &self.of(b, true)?),
            Expr::Binary(BinaryOp::Or, a, b) if !truth => both(&self.of(a, false)?, &self.of(b, false)?),
            Expr::Binary(BinaryOp::And | BinaryOp::Or, a, b) => {
                let mut all = self.of(a, truth)?;
                all.extend(self.of(b, truth)?);
                (all.len() <= CASES_MAX).then_some(all)
            }
            Expr::Binary(op, a, b) => Some(match (&**a, &**b) {
                (e, Expr::Int(n)) => self.compared(*op, e, *n, truth),
                (Expr::Int(n), e) => self.compared(mirrored(*op), e, *n, truth),
                _ => vec![Case::default()],
            }),
            Expr::In(e, values) => {
                let mut set: Intervals = values.iter().map(|n| (*n, *n)).collect();
                set.sort_unstable();
                set.dedup();
                Some(self.within(e, set, truth))
            }
            Expr::Field(_) | Expr::Present(_) | Expr::Peek(_) => {
                Some(self.within(expr, vec![(1, u64::MAX)], truth))
            }
            _ => Some(vec![Case::default()]),
        }
    }

    /// Returns the cases in which a comparison with a number has this truth.
    fn compared(&self, op: BinaryOp, e: &Expr, n: u64, truth: bool) -> Vec<Case> {
        let set = match op {
            BinaryOp::Eq => vec![(n, n)],
            BinaryOp::Ne => without(&[(n, n)]),
            BinaryOp::Lt => n.checked_sub(1).map(|n| (0, n)).into_iter().collect(),
            BinaryOp::Le => vec![(0, n)],
            BinaryOp::Gt => n.checked_add(1).map(|n| (n, u64::MAX)).into_iter().collect(),
            BinaryOp::Ge => vec![(n, u64::MAX)],
            _ => return vec![Case::default()],
        };
        self.within(e, set, truth)
    }

    /// Returns the cases in which an expression's value is in the intervals, or outside of them.
    fn within(&self, e: &Expr, set: Intervals, truth: bool) -> Vec<Case> {
        let set = if truth { set } else { without(&set) };
        let set = common(&set, &[(0, (self.most)(e))]);
        if set.is_empty() { Vec::new() } else { vec![Case(vec![(e.clone(), set)])] }
    }
}

/// Returns the comparison with swapped operands.
fn mirrored(op: BinaryOp) -> BinaryOp {
    match op {
        BinaryOp::Lt => BinaryOp::Gt,
        BinaryOp::Le => BinaryOp::Ge,
        BinaryOp::Gt => BinaryOp::Lt,
        BinaryOp::Ge => BinaryOp::Le,
        other => other,
    }
}

fn both(a: &[Case], b: &[Case]) -> Option<Vec<Case>> {
    let all: Vec<Case> = a.iter().flat_map(|a| b.iter().filter_map(|b| intersect(a, b))).collect();
    (all.len() <= CASES_MAX).then_some(all)
}

/// The intersection of two cases; None if they contradict each other.
fn intersect(a: &Case, b: &Case) -> Option<Case> {
    let mut met = a.clone();
    for (e, set) in &b.0 {
        match met.0.iter_mut().find(|(known, _)| known == e) {
            Some((_, known)) => {
                *known = common(known, set);
                if known.is_empty() {
                    return None;
                }
            }
            None => met.0.push((e.clone(), set.clone())),
        }
    }
    (!met.is_contrary()).then_some(met)
}

impl Case {
    /// Whether the interval of a compound expression excludes its value, where each of its parts has a single value.
    fn is_contrary(&self) -> bool {
        let known = |e: &Expr| match self.0.iter().find(|(known, _)| known == e) {
            Some((_, set)) if is_read(e) && set.len() == 1 && set[0].0 == set[0].1 => Some(set[0].0),
            _ => None,
        };
        let lies_within = |n: u64, set: &Intervals| set.iter().any(|(low, high)| (*low..=*high).contains(&n));
        let made = self.0.iter().filter(|(e, _)| !is_read(e));
        made.into_iter().any(|(e, set)| value(e, &known).is_some_and(|n| !lies_within(n, set)))
    }
}

/// Whether an expression is an input, not a compound.
fn is_read(expr: &Expr) -> bool {
    !matches!(expr, Expr::Int(_) | Expr::Not(_) | Expr::In(..) | Expr::If(..) | Expr::Binary(..))
}

/// Returns the inputs of an expression.
fn read_by(expr: &Expr) -> Vec<&Expr> {
    match expr {
        Expr::Int(_) => Vec::new(),
        Expr::Not(e) | Expr::In(e, _) => read_by(e),
        Expr::If(c, a, b) => [c, a, b].into_iter().flat_map(|e| read_by(e)).collect(),
        Expr::Binary(_, a, b) => [a, b].into_iter().flat_map(|e| read_by(e)).collect(),
        read => vec![read],
    }
}

/// The value of an expression for a witness; of a compound only if its parts are not restricted otherwise. Fields that
/// the witness does not contain are 0.
fn witness_value(expr: &Expr, witness: &[(Expr, u64)]) -> Option<u64> {
    let own = read_by(expr);
    let is_apart = |other: &Expr| other == expr || read_by(other).iter().all(|of| !own.contains(of));
    match witness.iter().find(|(known, _)| known == expr) {
        Some((_, value)) if is_read(expr) || witness.iter().all(|(other, _)| is_apart(other)) => Some(*value),
        _ => matches!(expr, Expr::Field(_) | Expr::Peek(_) | Expr::Present(_)).then_some(0),
    }
}

/// Returns the complement of some intervals.
fn without(set: &[(u64, u64)]) -> Intervals {
    let (mut out, mut from) = (Vec::new(), Some(0));
    for (low, high) in set {
        if let Some(from) = from.filter(|from| from < low) {
            out.push((from, low - 1));
        }
        from = high.checked_add(1);
    }
    out.extend(from.map(|from| (from, u64::MAX)));
    out
}

/// Intersects two sorted lists of intervals.
fn common(a: &[(u64, u64)], b: &[(u64, u64)]) -> Intervals {
    let (mut out, mut i, mut j) = (Vec::new(), 0, 0);
    while let (Some(x), Some(y)) = (a.get(i), b.get(j)) {
        let (low, high) = (x.0.max(y.0), x.1.min(y.1));
        if low <= high {
            out.push((low, high));
        }
        if x.1 < y.1 { i += 1 } else { j += 1 }
    }
    out
}

/// The value of an expression from known values of it or its parts.
fn value(expr: &Expr, known: &dyn Fn(&Expr) -> Option<u64>) -> Option<u64> {
    if let Some(value) = known(expr) {
        return Some(value);
    }
    match expr {
        Expr::Int(n) => Some(*n),
        Expr::Not(e) => Some(u64::from(value(e, known)? == 0)),
        Expr::In(e, values) => Some(u64::from(values.contains(&value(e, known)?))),
        Expr::If(c, a, b) => value(if value(c, known)? != 0 { a } else { b }, known),
        Expr::Binary(op, a, b) => Some(op.of(value(a, known)?, value(b, known)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use weft_core::wire::FieldId;

    use super::*;

    fn field(n: u16) -> Expr {
        Expr::Field(FieldId(n))
    }

    fn op(op: BinaryOp, a: Expr, b: u64) -> Expr {
        Expr::Binary(op, Box::new(a), Box::new(Expr::Int(b)))
    }

    fn and(a: Expr, b: Expr) -> Expr {
        Expr::Binary(BinaryOp::And, Box::new(a), Box::new(b))
    }

    /// None if the two exclude each other, otherwise the witness.
    fn check(a: &Expr, b: &Expr) -> Option<Option<Vec<u64>>> {
        let most = |_: &Expr| 255;
        let (of_a, of_b) = (cases(a, &most).expect("few"), cases(b, &most).expect("few"));
        let found = overlap((a, &of_a), (b, &of_b))?;
        Some(found.witness.map(|witness| witness.into_iter().map(|(_, value)| value).collect()))
    }

    #[test]
    fn overlapping_conditions_have_witness() {
        // Two protocols would match one payload, and their order in the text would decide silently.
        let is = |n, value| op(BinaryOp::Eq, field(n), value);
        assert_eq!(check(&is(0, 6), &is(0, 17)), None);
        assert_eq!(check(&is(0, 6), &is(0, 6)), Some(Some(vec![6])));
        assert_eq!(check(&is(0, 6), &is(1, 2)), Some(Some(vec![6, 2])));
        let rest = Expr::Not(Box::new(Expr::In(Box::new(field(0)), vec![17, 6])));
        assert_eq!(check(&rest, &is(0, 17)), None);
        assert_eq!(check(&rest, &is(0, 5)), Some(Some(vec![5])));
        let high = op(BinaryOp::Ge, field(0), 100);
        assert_eq!(check(&high, &op(BinaryOp::Lt, field(0), 100)), None);
        assert_eq!(check(&high, &and(is(0, 200), is(1, 1))), Some(Some(vec![200, 1])));
        // No field of 8 bits is 256, so this is never true.
        assert_eq!(check(&is(0, 256), &is(0, 256)), None);
    }

    #[test]
    fn undecidable_overlap_is_reported() {
        // A condition that cannot be analysed must not count as excluding another.
        let odd = op(BinaryOp::Eq, Expr::Binary(BinaryOp::Rem, Box::new(field(0)), Box::new(field(1))), 1);
        assert_eq!(check(&odd, &op(BinaryOp::Eq, field(0), 4)), Some(None));
        assert_eq!(check(&odd, &op(BinaryOp::Eq, field(2), 4)), Some(Some(vec![1, 4])));
        let bytes = op(BinaryOp::Gt, Expr::HeaderBytes, 20);
        assert_eq!(check(&bytes, &op(BinaryOp::Lt, Expr::PayloadBytes, 8)), Some(Some(vec![21, 0])));
        let unlike = Expr::Binary(BinaryOp::Eq, Box::new(field(0)), Box::new(Expr::HeaderBytes));
        assert_eq!(check(&unlike, &op(BinaryOp::Eq, field(0), 4)), Some(None));
    }

    #[test]
    fn witness_evaluates_expressions() {
        // Disjoint protocols would be rejected, with a witness that is neither's frame.
        let sum = |n, more| Expr::Binary(BinaryOp::Add, Box::new(field(n)), Box::new(more));
        let is = |e, value| op(BinaryOp::Eq, e, value);
        let one = is(sum(0, Expr::Int(1)), 30);
        assert_eq!(check(&one, &is(field(0), 4)), None);
        assert_eq!(check(&one, &is(field(0), 29)), Some(Some(vec![30, 29])));
        assert_eq!(check(&one, &is(field(1), 4)), Some(Some(vec![30, 4])));
        let both = is(sum(0, field(1)), 30);
        assert_eq!(check(&both, &and(is(field(0), 4), is(field(1), 5))), None);
        assert_eq!(check(&both, &and(is(field(0), 4), is(field(1), 26))), Some(Some(vec![30, 4, 26])));
        // The equation is not solved for the other part, and the minimum is only one of many values.
        assert_eq!(check(&both, &is(field(0), 4)), Some(None));
        assert_eq!(check(&one, &op(BinaryOp::Ge, field(0), 100)), Some(None));
        assert_eq!(check(&one, &is(sum(0, Expr::Int(2)), 7)), Some(None));
    }

    #[test]
    fn interval_complement_has_no_gaps() {
        assert_eq!(without(&[(0, 3), (5, u64::MAX)]), [(4, 4)]);
        assert_eq!(without(&[]), [(0, u64::MAX)]);
        assert_eq!(without(&[(0, u64::MAX)]), []);
        assert_eq!(without(&[(6, 6), (7, 7)]), [(0, 5), (8, u64::MAX)]);
    }
}
