//! The figures of the planner: what an element costs, and how often it ends a call.
//!
//! Figures are an input: measured while the chain runs, or estimated from the program. The planner reads no clock and
//! no counter, so equal figures give equal plans.

use weft_core::abi::Counters;
use weft_ir::program::ChainProgram;

use crate::cost::typical_ns;
use crate::effects::{ChainEffects, ElementEffects, EndKind};

/// Tuples that an element must have seen before its measured rate of ends is used.
pub const SEEN_MIN: u64 = 1000;
/// Timed passes that an element must have had before its measured time is used.
pub const SAMPLED_MIN: u64 = 16;
/// The assumed share of calls that an element ends if it may end any. A tenth is System R's selectivity of an equality
/// with an unknown value (Selinger et al., SIGMOD 1979, table 1).
pub const ENDS_ASSUMED: f64 = 0.1;

/// The figures of a chain, by element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// In program order.
    pub elements: Vec<ElementFigures>,
}

/// The figures of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ElementFigures {
    /// Nanoseconds for a call that reaches it, in all passes together.
    pub ns: f64,
    /// The share of these calls that it ends, 0 to 1.
    pub ends: f64,
    /// The time was measured.
    pub is_timed: bool,
    /// The share was counted.
    pub is_counted: bool,
}

impl Figures {
    /// Estimates from the program alone.
    pub fn estimated(chain: &ChainProgram, effects: &ChainEffects) -> Self {
        let one = |(element, effects): (&weft_ir::program::Element, &ElementEffects)| ElementFigures {
            ns: typical_ns(chain, element),
            ends: ends_assumed(effects),
            is_timed: false,
            is_counted: false,
        };
        Self { elements: chain.elements.iter().zip(&effects.elements).map(one).collect() }
    }

    /// Replaces estimates by the counters of a running version's elements of the same names, where there are enough
    /// samples.
    pub fn with_counted(
        mut self,
        chain: &ChainProgram,
        effects: &ChainEffects,
        counted: &[(String, Counters)],
    ) -> Self {
        for ((element, effects), figures) in
            chain.elements.iter().zip(&effects.elements).zip(&mut self.elements)
        {
            let Some((_, counters)) = counted.iter().find(|(name, _)| *name == element.name) else {
                continue;
            };
            if counters.sampled >= SAMPLED_MIN {
                figures.ns = counters.sampled_ns as f64 / counters.sampled as f64;
                figures.is_timed = true;
            }
            if counters.seen >= SEEN_MIN {
                figures.ends = ended(counters, effects, element.fail_open) as f64 / counters.seen as f64;
                figures.ends = figures.ends.min(1.0);
                figures.is_counted = true;
            }
        }
        self
    }

    /// Whether at least one figure is measured.
    pub fn is_measured(&self) -> bool {
        self.elements.iter().any(|figures| figures.is_timed || figures.is_counted)
    }

    /// Expected nanoseconds of a call in this order: each element's cost, weighted by the calls that earlier elements
    /// let pass.
    pub fn expected_ns(&self, order: &[usize]) -> f64 {
        let mut reach = 1.0;
        let mut total = 0.0;
        for &element in order {
            let figures = &self.elements[element];
            total += reach * figures.ns;
            reach *= 1.0 - figures.ends;
        }
        total
    }
}

/// The calls that an element has ended, from its counters. A REDIRECT counts as a reply and ends nothing: if an element
/// does both, they cannot be distinguished, and none counts as an end.
fn ended(counters: &Counters, effects: &ElementEffects, fail_open: bool) -> u64 {
    let redirects = effects.handlers().any(|(_, handler)| !handler.redirects.is_empty());
    let diverted = if redirects { 0 } else { counters.diverted };
    let failed = if fail_open { 0 } else { counters.failed };
    counters.dropped + counters.aborted + diverted + failed
}

/// An element that can only fail ends almost no calls.
fn ends_assumed(effects: &ElementEffects) -> f64 {
    let on_the_way_in = effects.open.iter().chain(&effects.request);
    let mut ends = on_the_way_in.flat_map(|handler| &handler.ends);
    let may_end = ends.any(|end| !matches!(end.kind, EndKind::Fail(_)));
    if may_end { ENDS_ASSUMED } else { 0.0 }
}
