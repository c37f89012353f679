//! What an element costs and how often it ends a call: figures that a planner weighs orders by.
//!
//! Figures are a value that comes in: measured by whoever runs the chain, or estimated from the program. The planner
//! reads no clock and no counter, so the same figures are the same plan.

use weft_core::abi::Counters;
use weft_ir::program::ChainProgram;

use crate::cost::typical_ns;
use crate::effects::{ChainEffects, ElementEffects, EndKind};

/// Tuples that an element must have seen before its rate of ends is believed.
pub const SEEN_MIN: u64 = 1000;
/// Timed passes that an element must have had before its time is believed.
pub const SAMPLED_MIN: u64 = 16;
/// How many calls an element is taken to end of which nothing is known but that it may. A tenth is what System R takes
/// for an equality with a value that it knows nothing of (Selinger et al., SIGMOD 1979, table 1).
pub const ENDS_ASSUMED: f64 = 0.1;

/// The figures of a chain, by element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Figures {
    /// In the order of the program.
    pub elements: Vec<ElementFigures>,
}

/// The figures of an element.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ElementFigures {
    /// Nanoseconds for a call that reaches it, in all passes together.
    pub ns: f64,
    /// The share of these calls that it ends, from 0 to 1.
    pub ends: f64,
    /// The time was measured.
    pub is_timed: bool,
    /// The share was counted.
    pub is_counted: bool,
}

impl Figures {
    /// What the program alone tells.
    pub fn estimated(chain: &ChainProgram, effects: &ChainEffects) -> Self {
        let one = |(element, effects): (&weft_ir::program::Element, &ElementEffects)| ElementFigures {
            ns: typical_ns(chain, element),
            ends: ends_assumed(effects),
            is_timed: false,
            is_counted: false,
        };
        Self { elements: chain.elements.iter().zip(&effects.elements).map(one).collect() }
    }

    /// The same, with what a running version has counted of elements with the same names, where that is enough.
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

    /// Whether something of it was measured.
    pub fn is_measured(&self) -> bool {
        self.elements.iter().any(|figures| figures.is_timed || figures.is_counted)
    }

    /// Nanoseconds that a call takes on average in this order of elements: each costs what it costs, as often as the
    /// elements in front of it let a call pass.
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

/// The calls that an element has ended, of those that it counted. A REDIRECT is counted with the replies, and ends
/// nothing: where an element does both, they cannot be told apart, and none is taken for an end.
fn ended(counters: &Counters, effects: &ElementEffects, fail_open: bool) -> u64 {
    let redirects = effects.handlers().any(|(_, handler)| !handler.redirects.is_empty());
    let diverted = if redirects { 0 } else { counters.diverted };
    let failed = if fail_open { 0 } else { counters.failed };
    counters.dropped + counters.aborted + diverted + failed
}

/// An element that only may fail ends next to nothing.
fn ends_assumed(effects: &ElementEffects) -> f64 {
    let on_the_way_in = effects.open.iter().chain(&effects.request);
    let mut ends = on_the_way_in.flat_map(|handler| &handler.ends);
    let may_end = ends.any(|end| !matches!(end.kind, EndKind::Fail(_)));
    if may_end { ENDS_ASSUMED } else { 0.0 }
}
