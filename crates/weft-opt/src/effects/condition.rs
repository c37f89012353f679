//! Finds the conditions under which a handler does something, as formulas over the fields that it finds.
//!
//! A [`Condition`] is a conjunction: for each field a range, an equality or NULL, or a few alternatives. It is
//! *necessary*: the effect happens only to tuples that satisfy it. So two effects whose conditions exclude each other
//! never happen to one tuple. Branches on state, random draws or computed values contribute nothing.

use std::collections::{BTreeMap, BTreeSet};

use weft_ir::ir::{BoolOp, BytesCmp, Function, InputId, IntCmp, Op, Terminator, Value};

use super::flow::Flow;
use super::key::Names;

/// Largest number of blocks of a function for which conditions are kept; nothing is known of a larger function.
const BLOCKS_MAX: usize = 256;

/// Largest number of alternatives of a field, such as the items of `IN (...)`. Nothing is known beyond that.
const ALTERNATIVES_MAX: usize = 64;

/// A necessary condition on the fields of a tuple; empty if there is none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Condition {
    /// By field: the alternatives for its value. No alternative: impossible.
    inputs: BTreeMap<InputId, Vec<Domain>>,
}

/// The values that an input may have.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Domain {
    /// Its range as a signed and as an unsigned number, inclusive.
    signed: (i64, i64),
    unsigned: (u64, u64),
    /// Its only value as bytes, and excluded values.
    is: Option<Vec<u8>>,
    is_not: BTreeSet<Vec<u8>>,
    /// Excluded numbers.
    is_not_number: BTreeSet<i64>,
    /// Whether it is not NULL, if known.
    is_present: Option<bool>,
    /// The domain is empty.
    is_empty: bool,
}

impl Default for Domain {
    fn default() -> Self {
        Self {
            signed: (i64::MIN, i64::MAX),
            unsigned: (0, u64::MAX),
            is: None,
            is_not: BTreeSet::new(),
            is_not_number: BTreeSet::new(),
            is_present: None,
            is_empty: false,
        }
    }
}

impl Domain {
    /// Intersects the domain with another.
    fn narrow(&mut self, other: &Self) {
        self.signed = (self.signed.0.max(other.signed.0), self.signed.1.min(other.signed.1));
        self.unsigned = (self.unsigned.0.max(other.unsigned.0), self.unsigned.1.min(other.unsigned.1));
        match (&self.is, &other.is) {
            (Some(a), Some(b)) => self.is_empty |= a != b,
            (None, Some(_)) => self.is.clone_from(&other.is),
            _ => {}
        }
        self.is_not.extend(other.is_not.iter().cloned());
        self.is_not_number.extend(&other.is_not_number);
        self.is_empty |= other.is_empty;
        self.is_empty |= self.is_present.is_some_and(|is| other.is_present == Some(!is));
        self.is_present = self.is_present.or(other.is_present);
    }

    /// Returns the intersection of two domains.
    fn and(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.narrow(other);
        both
    }

    /// Whether no value satisfies the domain.
    fn has_none(&self) -> bool {
        let (low, high) = self.signed;
        self.is_empty
            || low > high
            || self.unsigned.0 > self.unsigned.1
            || (low == high && self.is_not_number.contains(&low))
            || self.is.as_ref().is_some_and(|is| self.is_not.contains(is))
    }

    /// Returns the integers `x` for which `x cmp than` has this truth.
    fn number(cmp: IntCmp, than: i64, is_true: bool) -> Self {
        let mut domain = Self::default();
        let unsigned = than as u64;
        match (cmp, is_true) {
            (IntCmp::Eq, true) | (IntCmp::Ne, false) => domain.signed = (than, than),
            (IntCmp::Ne, true) | (IntCmp::Eq, false) => {
                domain.is_not_number.insert(than);
            }
            (IntCmp::SLt, true) => match than.checked_sub(1) {
                Some(high) => domain.signed.1 = high,
                None => domain.is_empty = true,
            },
            (IntCmp::SLt, false) => domain.signed.0 = than,
            (IntCmp::SLe, true) => domain.signed.1 = than,
            (IntCmp::SLe, false) => match than.checked_add(1) {
                Some(low) => domain.signed.0 = low,
                None => domain.is_empty = true,
            },
            (IntCmp::ULt, true) => match unsigned.checked_sub(1) {
                Some(high) => domain.unsigned.1 = high,
                None => domain.is_empty = true,
            },
            (IntCmp::ULt, false) => domain.unsigned.0 = unsigned,
            (IntCmp::ULe, true) => domain.unsigned.1 = unsigned,
            (IntCmp::ULe, false) => match unsigned.checked_add(1) {
                Some(low) => domain.unsigned.0 = low,
                None => domain.is_empty = true,
            },
        }
        domain
    }
}

impl Condition {
    /// Whether no tuple can satisfy both. Fields in `changed` may change in between, so they do not count.
    pub fn excludes(&self, other: &Self, changed: &BTreeSet<InputId>) -> bool {
        let any = [Domain::default()];
        self.inputs.iter().filter(|(id, _)| !changed.contains(id)).any(|(id, domains)| {
            let others = other.inputs.get(id).map_or(&any[..], Vec::as_slice);
            domains.iter().all(|domain| others.iter().all(|other| domain.and(other).has_none()))
        })
    }

    fn add(&mut self, input: InputId, domain: Domain) {
        self.add_one_of(input, &[domain]);
    }

    /// Adds that the field is in one of these domains.
    fn add_one_of(&mut self, input: InputId, domains: &[Domain]) {
        let known = self.inputs.entry(input).or_insert_with(|| vec![Domain::default()]);
        // Both hold. If the product has too many alternatives, keep the existing ones, which hold, too.
        if known.len() * domains.len() <= ALTERNATIVES_MAX {
            let both = known.iter().flat_map(|known| domains.iter().map(|domain| known.and(domain)));
            *known = both.filter(|both| !both.has_none()).collect();
        }
    }

    /// The condition that holds if one of these does.
    fn one_of(conditions: &[Self]) -> Self {
        let Some((first, others)) = conditions.split_first() else { return Self::default() };
        let mut inputs = BTreeMap::new();
        for (id, domains) in &first.inputs {
            let of_others: Option<Vec<&Vec<Domain>>> =
                others.iter().map(|condition| condition.inputs.get(id)).collect();
            let Some(of_others) = of_others else { continue };
            let all: Vec<Domain> = domains.iter().chain(of_others.into_iter().flatten()).cloned().collect();
            if all.len() <= ALTERNATIVES_MAX {
                inputs.insert(*id, all);
            }
        }
        Self { inputs }
    }
}

/// Branches that were taken, each with its direction.
type TakenBranches = BTreeSet<(Value, bool)>;

/// Returns the condition of each block.
pub(super) fn conditions(function: &Function, flow: &Flow, names: &Names<'_>) -> Vec<Condition> {
    let n = function.blocks.len();
    if n > BLOCKS_MAX {
        return vec![Condition::default(); n];
    }
    let facts = facts(function, flow);
    let of = |facts: &Option<TakenBranches>| {
        let mut condition = Condition::default();
        for (value, is_true) in facts.iter().flatten() {
            literal(names, (*value, *is_true), &mut condition, true);
        }
        condition
    };
    facts.iter().map(of).collect()
}

/// The branches taken on every path to each block; None for unreachable blocks.
fn facts(function: &Function, flow: &Flow) -> Vec<Option<TakenBranches>> {
    let mut facts: Vec<Option<TakenBranches>> = vec![None; function.blocks.len()];
    facts[0] = Some(TakenBranches::new());
    let mut changed = true;
    while core::mem::take(&mut changed) {
        for (at, block) in function.blocks.iter().enumerate().filter(|(at, _)| flow.is_reached(*at)) {
            let Some(here) = facts[at].clone() else { continue };
            for (to, fact) in edges(&block.end) {
                let mut there = here.clone();
                there.extend(fact);
                let known = facts[to].as_ref();
                let common: TakenBranches = known.map_or_else(|| there.clone(), |known| known & &there);
                if known != Some(&common) {
                    facts[to] = Some(common);
                    changed = true;
                }
            }
        }
    }
    facts
}

/// The successors of a block, with the branch taken.
fn edges(end: &Terminator) -> Vec<(usize, Option<(Value, bool)>)> {
    match end {
        Terminator::Jump(jump) => vec![(jump.block.0 as usize, None)],
        // If both sides lead to one block, nothing is known.
        Terminator::Branch(by, yes, no) if yes.block != no.block => {
            vec![(yes.block.0 as usize, Some((*by, true))), (no.block.0 as usize, Some((*by, false)))]
        }
        Terminator::Branch(_, yes, _) => vec![(yes.block.0 as usize, None)],
        _ => Vec::new(),
    }
}

/// Adds what a value's truth says about inputs. Without recursion: a list of alternatives is as deep as it is long.
fn literal(names: &Names<'_>, fact: (Value, bool), condition: &mut Condition, splits: bool) {
    let mut left = vec![fact];
    while let Some((value, is_true)) = left.pop() {
        match names.definition(value) {
            Some(Op::Not(a)) => left.push((*a, !is_true)),
            Some(Op::BoolBinary(op, a, b)) if is_conjunction(*op, is_true) => {
                left.extend([(*b, is_true), (*a, is_true)]);
            }
            Some(Op::BoolBinary(BoolOp::And | BoolOp::Or, ..)) if splits => {
                one_of(names, (value, is_true), condition);
            }
            _ => comparison(names, value, is_true, condition),
        }
    }
}

/// `a AND b` is true, or `a OR b` is not.
fn is_conjunction(op: BoolOp, is_true: bool) -> bool {
    (op, is_true) == (BoolOp::And, true) || (op, is_true) == (BoolOp::Or, false)
}

/// Adds what follows from one of several facts. An alternative that is itself a disjunction contributes nothing.
fn one_of(names: &Names<'_>, fact: (Value, bool), condition: &mut Condition) {
    let mut alternatives = Vec::new();
    let mut left = vec![fact];
    while let Some((value, is_true)) = left.pop() {
        match names.definition(value) {
            Some(Op::Not(a)) => left.push((*a, !is_true)),
            Some(Op::BoolBinary(op @ (BoolOp::And | BoolOp::Or), a, b)) if !is_conjunction(*op, is_true) => {
                left.extend([(*b, is_true), (*a, is_true)]);
            }
            _ if alternatives.len() == ALTERNATIVES_MAX => return,
            _ => {
                let mut alternative = Condition::default();
                literal(names, (value, is_true), &mut alternative, false);
                alternatives.push(alternative);
            }
        }
    }
    for (id, domains) in Condition::one_of(&alternatives).inputs {
        condition.add_one_of(id, &domains);
    }
}

/// Adds what a comparison's truth says about an input; nothing for other values.
fn comparison(names: &Names<'_>, value: Value, is_true: bool, condition: &mut Condition) {
    match names.definition(value) {
        Some(Op::InputPresent(input)) if names.is_as_found(*input) => {
            condition.add(*input, Domain { is_present: Some(is_true), ..Domain::default() });
        }
        Some(Op::IntCompare(cmp, a, b)) => {
            if let (Some(input), Some(Op::IntConst(than))) = (names.as_found(*a), names.definition(*b)) {
                condition.add(input, Domain::number(*cmp, *than, is_true));
            } else if let (Some(Op::IntConst(than)), Some(input)) = (names.definition(*a), names.as_found(*b))
            {
                let (cmp, is_true) = turned(*cmp, is_true);
                condition.add(input, Domain::number(cmp, *than, is_true));
            }
        }
        Some(Op::BytesCompare(BytesCmp::Eq | BytesCmp::Ne, a, b)) => {
            let is_equal =
                matches!(names.definition(value), Some(Op::BytesCompare(BytesCmp::Eq, ..))) == is_true;
            let sides = [(a, b), (b, a)];
            for (input, text) in sides {
                if let (Some(input), Some(Op::BytesConst(text))) =
                    (names.as_found(*input), names.definition(*text))
                {
                    let mut domain = Domain::default();
                    if is_equal {
                        domain.is = Some(text.clone());
                    } else {
                        domain.is_not.insert(text.clone());
                    }
                    condition.add(input, domain);
                }
            }
        }
        _ => {}
    }
}

/// Rewrites `than cmp input` as `input cmp than`.
fn turned(cmp: IntCmp, is_true: bool) -> (IntCmp, bool) {
    match cmp {
        IntCmp::Eq | IntCmp::Ne => (cmp, is_true),
        // a < b is not (b <= a).
        IntCmp::SLt => (IntCmp::SLe, !is_true),
        IntCmp::SLe => (IntCmp::SLt, !is_true),
        IntCmp::ULt => (IntCmp::ULe, !is_true),
        IntCmp::ULe => (IntCmp::ULt, !is_true),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_exclude_as_their_values() {
        // Ends wrongly considered exclusive would swap, and calls would get another status.
        let values = [i64::MIN, -1, 0, 1, 7, i64::MAX];
        let cmps = [IntCmp::Eq, IntCmp::Ne, IntCmp::SLt, IntCmp::SLe, IntCmp::ULt, IntCmp::ULe];
        let all: Vec<(IntCmp, i64, bool)> =
            cmps.iter().flat_map(|c| values.map(|v| [(*c, v, true), (*c, v, false)])).flatten().collect();
        let meets = |(cmp, than, is_true): (IntCmp, i64, bool), x: i64| {
            let holds = match cmp {
                IntCmp::Eq => x == than,
                IntCmp::Ne => x != than,
                IntCmp::SLt => x < than,
                IntCmp::SLe => x <= than,
                IntCmp::ULt => (x as u64) < than as u64,
                IntCmp::ULe => x as u64 <= than as u64,
            };
            holds == is_true
        };
        let near = values.iter().flat_map(|v| [v.wrapping_sub(1), *v, v.wrapping_add(1)]);
        let near: Vec<i64> = near.collect();
        let condition = |(cmp, than, is_true)| {
            let mut condition = Condition::default();
            condition.add(InputId(0), Domain::number(cmp, than, is_true));
            condition
        };
        let mut excluded = 0;
        for &a in &all {
            for &b in &all {
                let excludes = condition(a).excludes(&condition(b), &BTreeSet::new());
                let both = near.iter().find(|x| meets(a, **x) && meets(b, **x));
                assert!(!(excludes && both.is_some()), "{a:?} and {b:?} are both true of {both:?}");
                excluded += usize::from(excludes);
                // Normalizes the comparison so that `x` is on the left.
                let (cmp, is_true) = turned(a.0, a.2);
                let other = |x: i64| match a.0 {
                    IntCmp::Eq => a.1 == x,
                    IntCmp::Ne => a.1 != x,
                    IntCmp::SLt => a.1 < x,
                    IntCmp::SLe => a.1 <= x,
                    IntCmp::ULt => (a.1 as u64) < x as u64,
                    IntCmp::ULe => a.1 as u64 <= x as u64,
                };
                assert!(near.iter().all(|x| meets((cmp, a.1, is_true), *x) == (other(*x) == a.2)), "{a:?}");
            }
        }
        assert!(excluded > 500, "{excluded}");
        let changed = [InputId(0)].into();
        assert!(!condition((IntCmp::Eq, 1, true)).excludes(&condition((IntCmp::Eq, 2, true)), &changed));
    }

    #[test]
    fn disjunction_keeps_common_domain() {
        // A lost alternative would make ends exclude each other that both happen.
        let values: Vec<i64> = (-3..10).collect();
        let domains = |allowed: u32| -> Vec<Domain> {
            let is_allowed = |x: &&i64| allowed >> (*x % 4).unsigned_abs() & 1 != 0;
            values.iter().filter(is_allowed).map(|x| Domain::number(IntCmp::Eq, *x, true)).collect()
        };
        let holds = |condition: &Condition, x: i64| {
            let point =
                Condition { inputs: [(InputId(0), vec![Domain::number(IntCmp::Eq, x, true)])].into() };
            !condition.excludes(&point, &BTreeSet::new())
        };
        for a in 0..16 {
            for b in 0..16 {
                let [mut both, other] =
                    [a, b].map(|of| Condition { inputs: [(InputId(0), domains(of))].into() });
                let either = Condition::one_of(&[both.clone(), other]);
                both.add_one_of(InputId(0), &domains(b));
                for x in &values {
                    let is_in = |of: u32| of >> (x % 4).unsigned_abs() & 1 != 0;
                    assert_eq!(holds(&either, *x), is_in(a) || is_in(b), "{x} of {a} or {b}");
                    // With too many alternatives, only the first domain is kept.
                    let both_kept = domains(a).len() * domains(b).len() <= ALTERNATIVES_MAX;
                    assert_eq!(holds(&both, *x), is_in(a) && (is_in(b) || !both_kept), "{x} of {a} and {b}");
                }
            }
        }
        let none = Condition { inputs: [(InputId(0), Vec::new())].into() };
        assert!(none.excludes(&Condition::default(), &BTreeSet::new()), "nothing meets it");
    }

    #[test]
    fn null_excludes_values() {
        // IS NULL and a comparison of the same field would keep their order needlessly.
        let present = |is| {
            let domain = Domain { is_present: Some(is), ..Domain::default() };
            Condition { inputs: [(InputId(0), vec![domain])].into() }
        };
        assert!(present(true).excludes(&present(false), &BTreeSet::new()));
        assert!(!present(true).excludes(&present(true), &BTreeSet::new()));
        assert!(!present(true).excludes(&Condition::default(), &BTreeSet::new()));
    }
}
