//! Chooses the order of a chain's elements.

use super::figures::Figures;
use super::search::{Constraints, search};
use super::{Context, Crossing, Level, Pair, Rule};

/// The share of the chain's cost that another order must save to replace the running one: estimates are no more precise
/// than this, and a change without gain confuses people.
pub const GAIN_MIN: f64 = 0.05;
/// Nanoseconds per call that another order must save at least; timed passes do not resolve less.
pub const GAIN_NS_MIN: f64 = 2.0;

/// The input of the choice.
#[derive(Clone, Copy, Debug)]
pub struct Input<'p> {
    /// The chain's declarations.
    pub context: &'p Context,
    /// The clashes of all pairs, by [`super::pairs`].
    pub pairs: &'p [Pair],
    /// Inverse pairs, and the elements that may cross them at this level, by [`super::crossings`].
    pub crossings: &'p [Crossing],
    /// What must be preserved.
    pub level: Level,
    /// The costs of elements.
    pub figures: &'p Figures,
    /// The running order, if it is still allowed: it is replaced only for a gain.
    pub running: Option<&'p [usize]>,
}

/// The chosen order.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Indexes of elements as written, in the order in which requests pass them.
    pub order: Vec<usize>,
    /// No allowed order costs less; false if there were too many to search.
    pub is_exact: bool,
    /// Expected nanoseconds of a call in the written order.
    pub written_ns: f64,
    /// Expected nanoseconds of a call in this order.
    pub planned_ns: f64,
    /// The best order found, if its gain was too small.
    pub not_taken: Option<RejectedOrder>,
    /// Pairs in reverse of the written order although a rule keeps them.
    pub licences: Vec<Licence>,
}

/// An order whose gain is too small.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedOrder {
    /// As [`Plan::order`].
    pub order: Vec<usize>,
    /// As [`Plan::planned_ns`].
    pub ns: f64,
}

/// The chain allows what a rule forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Licence {
    /// The element that is now first.
    pub front: usize,
    /// The element that was written first.
    pub behind: usize,
    /// The declaration of the chain.
    pub by: LicensedBy,
}

/// The declarations of a chain that override a rule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LicensedBy {
    /// `{a, b}`.
    Braces,
    /// `PRIORITY a > b`: a may come first.
    Priority,
}

impl Plan {
    /// Whether it differs from the written order.
    pub fn is_reordered(&self) -> bool {
        !self.order.is_sorted()
    }
}

impl Pair {
    /// The declaration that allows the second to come before the first in spite of the rules, except for rules that are
    /// declarations themselves.
    pub fn licence(&self, context: &Context) -> Option<LicensedBy> {
        if self.clashes.iter().any(|clash| matches!(clash.rule, Rule::Order | Rule::Filters)) {
            return None;
        }
        let is_within =
            |range: &core::ops::Range<usize>| range.contains(&self.first) && range.contains(&self.second);
        if context.unordered.iter().any(is_within) {
            Some(LicensedBy::Braces)
        } else {
            context.priorities.contains(&(self.second, self.first)).then_some(LicensedBy::Priority)
        }
    }

    /// Whether the first must stay before the second.
    pub fn is_kept(&self, level: Level, context: &Context) -> bool {
        !self.may_swap(level) && self.licence(context).is_none()
    }
}

impl Plan {
    /// The written order, for a chain that is not planned.
    pub fn as_written(figures: &Figures) -> Self {
        let order: Vec<usize> = (0..figures.elements.len()).collect();
        let ns = figures.expected_ns(&order);
        Self { order, is_exact: false, written_ns: ns, planned_ns: ns, not_taken: None, licences: Vec::new() }
    }
}

/// Chooses the order of least expected cost that the rules and the chain's declarations allow, if it saves enough; else
/// the running order, or the written one.
///
/// # Panics
/// The figures are not those of the pairs' chain.
pub fn choose(input: &Input<'_>) -> Plan {
    let n = input.figures.elements.len();
    let constraints = constraints(input, n);
    let written: Vec<usize> = (0..n).collect();
    let found = search(input.figures, &constraints);
    let cost = |order: &[usize]| input.figures.expected_ns(order);
    let written_ns = cost(&written);
    let running = input.running.filter(|order| constraints.hold(order) && cost(order) <= written_ns);
    let stays = running.unwrap_or(&written);
    let (found_ns, stays_ns) = (cost(&found.order), cost(stays));
    let gain = stays_ns - found_ns;
    let pays = gain >= GAIN_NS_MIN && gain >= GAIN_MIN * stays_ns;
    let (order, planned_ns, not_taken) = if pays {
        (found.order, found_ns, None)
    } else {
        let other = (found.order != stays).then_some(RejectedOrder { order: found.order, ns: found_ns });
        (stays.to_vec(), stays_ns, other)
    };
    let licences = licences(input, &order);
    Plan { order, is_exact: found.is_exact, written_ns, planned_ns, not_taken, licences }
}

/// Collects the pairs that must keep their order at this level, and the elements that must not come between the two
/// of a crossing.
pub(super) fn constraints(input: &Input<'_>, n: usize) -> Constraints {
    let mut constraints = Constraints { before: vec![0; n], apart: Vec::new() };
    for pair in input.pairs.iter().filter(|pair| pair.is_kept(input.level, input.context)) {
        if !input.crossings.iter().any(|crossing| crossing.frees(pair)) {
            constraints.before[pair.second] |= 1 << pair.first;
        }
    }
    for crossing in input.crossings {
        let others = crossing.others.iter().fold(0, |set, other| set | 1 << other);
        constraints.apart.push(([crossing.first, crossing.second], others));
    }
    constraints
}

/// Returns, for each swapped pair that the level alone forbids, the reason that permits it.
fn licences(input: &Input<'_>, order: &[usize]) -> Vec<Licence> {
    let at = |element: usize| order.iter().position(|known| *known == element);
    let turned = input.pairs.iter().filter(|pair| at(pair.second) < at(pair.first));
    let forbidden = turned.filter(|pair| !pair.may_swap(input.level));
    let licence = |pair: &Pair| {
        let by = pair.licence(input.context)?;
        Some(Licence { front: pair.second, behind: pair.first, by })
    };
    forbidden.filter_map(licence).collect()
}
