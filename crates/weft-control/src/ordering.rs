//! Chooses the order of a chain's elements from the counters of a running node.

use weft_core::abi::Counters;
use weft_engine::stats::ChainStats;
use weft_ir::program::ChainProgram;
use weft_lang::hir::Network;
use weft_opt::effects::{ChainEffects, effects};
use weft_opt::plan::{self, Context, Crossing, DeadField, Figures, Input, Level, Pair, Plan};

/// The order of a chain, with everything that the choice depends on.
pub struct PlannedChain {
    /// What its handlers do.
    pub effects: ChainEffects,
    /// The policies of the chain.
    pub context: Context,
    /// How exactly the order must keep the meaning.
    pub level: Level,
    /// Which elements may swap.
    pub pairs: Vec<Pair>,
    /// Which elements may pass several others.
    pub crossings: Vec<Crossing>,
    /// The cost of elements and how often they end a call.
    pub figures: Figures,
    /// The order.
    pub plan: Plan,
    /// Fields that elements set in vain in this order.
    pub dead: Vec<DeadField>,
}

/// A node's counters of a chain: its elements by name, in the order in which they run.
pub type CountedElements<'s> = &'s [(String, Counters)];

/// The counters of the chain with this name that calls enter now. Filters cut a chain into parts; the result joins
/// them.
pub fn counted(stats: &[ChainStats], chain: &str) -> Vec<(String, Counters)> {
    let parts = stats.iter().filter(|stats| stats.is_current && stats.chain == chain);
    parts.flat_map(|part| part.elements.iter().cloned()).collect()
}

/// Chooses the order of a chain, an index into [`Network::chains`]; its program is as written.
pub fn ordered(
    network: &Network,
    index: usize,
    program: &ChainProgram,
    counted: CountedElements<'_>,
) -> PlannedChain {
    let chain = &network.chains[index];
    let effects = effects(program);
    let context = Context::new(chain);
    let level = Level::from(chain.equivalence);
    let pairs = plan::pairs(program, &effects, &context);
    let figures = Figures::estimated(program, &effects).with_counted(program, &effects, counted);
    if program.frames.is_some() {
        // Fields of a frame depend on each other in ways that effects do not show: one element sets a length, and a
        // checksum of another covers it. So chains on ports run as written.
        let (plan, crossings, dead) = (Plan::as_written(&figures), Vec::new(), Vec::new());
        return PlannedChain { effects, context, level, pairs, crossings, figures, plan, dead };
    }
    let running = running(program, counted);
    let crossings = plan::crossings(program, &effects, &context, level);
    let plan = plan::choose(&Input {
        context: &context,
        pairs: &pairs,
        crossings: &crossings,
        level,
        figures: &figures,
        running: running.as_deref(),
    });
    let dead = plan::dead_fields(program, &effects, &context, level, &plan.order);
    PlannedChain { effects, context, level, pairs, crossings, figures, plan, dead }
}

/// The order that runs now, if it has the same elements.
fn running(program: &ChainProgram, counted: CountedElements<'_>) -> Option<Vec<usize>> {
    let at = |name: &String| program.elements.iter().position(|element| element.name == *name);
    let order: Option<Vec<usize>> = counted.iter().map(|(name, _)| at(name)).collect();
    order.filter(|order| order.len() == program.elements.len())
}

impl PlannedChain {
    /// The choice as the API reports it to the client that applies the program.
    pub fn to_api(&self, program: &ChainProgram) -> weft_api::Planned {
        let name = |at: &usize| program.elements[*at].name.clone();
        weft_api::Planned {
            chain: program.name.clone(),
            written: program.elements.iter().map(|element| element.name.clone()).collect(),
            order: self.plan.order.iter().map(name).collect(),
            written_ns: self.plan.written_ns,
            planned_ns: self.plan.planned_ns,
            is_measured: self.figures.is_measured(),
        }
    }
}
