//! Which order a chain runs in.

use super::figures::Figures;
use super::search::{Constraints, search};
use super::{Context, Crossing, Level, Pair, Rule};

/// The share of what the chain costs that another order must save, or what runs stays: estimates are no better than
/// this, and an order that changes for nothing makes people wonder.
pub const GAIN_MIN: f64 = 0.05;
/// Nanoseconds a call that another order must save at least. A timed pass is not told apart from another by less.
pub const GAIN_NS_MIN: f64 = 2.0;

/// What an order is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct Input<'p> {
    /// What the chain says.
    pub context: &'p Context,
    /// The rules' verdicts, by [`super::pairs`].
    pub pairs: &'p [Pair],
    /// Pairs of inverse elements and who may cross them at this level, by [`super::crossings`].
    pub crossings: &'p [Crossing],
    /// What must stay the same.
    pub level: Level,
    /// What elements cost.
    pub figures: &'p Figures,
    /// The order that runs now, if it is still one that may run: it is left for a gain alone.
    pub running: Option<&'p [usize]>,
}

/// The order that a chain runs in.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Indices of elements as written, in the order in which requests pass them.
    pub order: Vec<usize>,
    /// No permitted order costs less; false where there were too many to look at.
    pub is_exact: bool,
    /// Nanoseconds that a call is expected to take in the order as written.
    pub written_ns: f64,
    /// The same, in this order.
    pub planned_ns: f64,
    /// The best that was found, where the gain was too small to be taken.
    pub not_taken: Option<RejectedOrder>,
    /// Pairs that stand the other way round than written though a rule keeps them in order.
    pub licences: Vec<Licence>,
}

/// An order that would save too little.
#[derive(Clone, Debug, PartialEq)]
pub struct RejectedOrder {
    /// As [`Plan::order`].
    pub order: Vec<usize>,
    /// As [`Plan::planned_ns`].
    pub ns: f64,
}

/// That the chain allows what a rule forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Licence {
    /// The element that now stands in front.
    pub front: usize,
    /// The element that was written in front of it.
    pub behind: usize,
    /// By which words of the chain.
    pub by: LicensedBy,
}

/// The words of a chain that allow what a rule forbids.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum LicensedBy {
    /// `{a, b}`.
    Braces,
    /// `PRIORITY a > b`: a may stand in front.
    Priority,
}

impl Plan {
    /// Whether it is another order than the one that was written.
    pub fn is_reordered(&self) -> bool {
        !self.order.is_sorted()
    }
}

impl Pair {
    /// The words of the chain that allow the second to stand in front of the first whatever the rules say, but for
    /// those that are words of the chain themselves.
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

    /// Whether the first must stay in front of the second.
    pub fn is_kept(&self, level: Level, context: &Context) -> bool {
        !self.may_swap(level) && self.licence(context).is_none()
    }
}

impl Plan {
    /// The order as written, for a chain that is not planned.
    pub fn as_written(figures: &Figures) -> Self {
        let order: Vec<usize> = (0..figures.elements.len()).collect();
        let ns = figures.expected_ns(&order);
        Self { order, is_exact: false, written_ns: ns, planned_ns: ns, not_taken: None, licences: Vec::new() }
    }
}

/// The order in which a chain should run: the one of least expected cost among those that the rules and the chain's own
/// words allow, if it saves enough; else the one that runs, or the one that was written.
///
/// # Panics
/// If the figures are not those of the chain that the pairs are of.
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
