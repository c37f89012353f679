//! Decides which elements could process a request in parallel, and estimates the gain and the overhead.
//!
//! The order stays the same, but the work overlaps: an element may begin before the one before it has ended, if
//! necessary on a copy of what both access, and the results are merged in the chain's order. The verdict is that of the
//! first element that ends the call; the bytes of a field are those of its last writer. State and rows are kept only
//! for elements that the call reaches by the merged verdict (commit at the merge), and the next call with the same key
//! waits for that.
//!
//! This version does not run elements in parallel: a segment runs to completion on one worker. The analysis reports
//! what would be allowed, and what it would have to save.

use weft_ir::ir::InputId;
use weft_ir::program::{ChainProgram, InputLocation};

use super::figures::Figures;
use super::{Clause, Level, Pair, Side};
use crate::effects::{ChainEffects, Effects};

/// Nanoseconds to hand a tuple to another core and back: twice the 65 cycles of one hand-off, at 2.6 GHz.
pub const HAND_OFF_NS: f64 = 50.0;
/// Nanoseconds to copy a tuple: a short message, once.
pub const COPY_NS: f64 = 20.0;
/// Nanoseconds of a merge: verdicts, and the written ranges.
pub const MERGE_NS: f64 = 30.0;

/// A pair of elements, and whether they could run in parallel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The element that comes first in the planned order.
    pub front: usize,
    /// The later element.
    pub behind: usize,
    /// The requirements to run them in parallel, or the reason why they cannot.
    pub verdict: Result<ParallelStep, String>,
}

/// What two elements need to run in parallel.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParallelStep {
    /// What the later one gets a copy of.
    pub copy: Copied,
    /// It leaves traces, which are committed only when it is known that the call reaches it.
    pub commits_at_merge: bool,
}

/// The part of the tuple that is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Copied {
    /// Nothing: both use the same tuple.
    #[default]
    Nothing,
    /// Only its headers.
    Headers,
    /// The whole tuple.
    All,
}

/// Returns, for each two elements of an order, whether they could process a request in parallel, indistinguishable
/// from the sequence as far as a level promises.
pub fn overlaps(
    chain: &ChainProgram,
    effects: &ChainEffects,
    pairs: &[Pair],
    level: Level,
    order: &[usize],
) -> Vec<Overlap> {
    let both = (0..order.len()).flat_map(|at| (at + 1..order.len()).map(move |other| (at, other)));
    both.map(|(at, other)| {
        let (front, behind) = (order[at], order[other]);
        let is_it = |pair: &&Pair| (pair.first, pair.second) == (front.min(behind), front.max(behind));
        let pair = pairs.iter().find(is_it).expect("all pairs are analyzed");
        Overlap { front, behind, verdict: overlap(chain, effects, pair, level, front, behind) }
    })
    .collect()
}

/// Groups elements into parallel steps, with a core for each element.
pub fn steps(overlaps: &[Overlap], order: &[usize]) -> Vec<Vec<usize>> {
    let mut steps: Vec<Vec<usize>> = Vec::new();
    for &element in order {
        let waits = |known: &usize| {
            let is_it = |overlap: &&Overlap| (overlap.front, overlap.behind) == (*known, element);
            overlaps.iter().find(is_it).is_some_and(|overlap| overlap.verdict.is_err())
        };
        let at = steps.iter().rposition(|step| step.iter().any(waits)).map_or(0, |last| last + 1);
        match steps.get_mut(at) {
            Some(step) => step.push(element),
            None => steps.push(vec![element]),
        }
    }
    steps
}

/// Nanoseconds per call that parallel steps would save, and their overhead.
pub fn gain_ns(figures: &Figures, overlaps: &[Overlap], steps: &[Vec<usize>]) -> (f64, f64) {
    let ns = |element: &usize| figures.elements[*element].ns;
    let (mut saved, mut cost) = (0.0, 0.0);
    for step in steps.iter().filter(|step| step.len() > 1) {
        let longest = step.iter().map(ns).fold(0.0, f64::max);
        saved += step.iter().map(ns).sum::<f64>() - longest;
        let others = (step.len() - 1) as f64;
        let copies = overlaps.iter().filter(|overlap| {
            let is_within = step.contains(&overlap.front) && step.contains(&overlap.behind);
            is_within && overlap.verdict.as_ref().is_ok_and(|how| how.copy > Copied::Nothing)
        });
        cost += others * (HAND_OFF_NS + MERGE_NS) + copies.count() as f64 * COPY_NS;
    }
    (saved, cost)
}

/// Determines the requirements to run two elements in parallel, or the reason why they cannot.
fn overlap(
    chain: &ChainProgram,
    effects: &ChainEffects,
    pair: &Pair,
    level: Level,
    front: usize,
    behind: usize,
) -> Result<ParallelStep, String> {
    let mut how = ParallelStep::default();
    let [first, second] = [front, behind].map(|at| effects.elements[at].of_side(Side::Request));
    // Only requests overlap.
    for clash in pair.blocking(level).filter(|clash| matches!(clash.side, Side::Request | Side::Chain)) {
        let no = || Err(clash.why.clone());
        match clash.clause {
            Clause::WritesWhatIsRead if writes(&first).any(|id| reads(&second, id)) => return no(),
            Clause::WritesWhatIsRead => {}
            Clause::BothWrite if !writes(&first).all(|id| is_overwritten(&second, id)) => return no(),
            Clause::BothWrite => {}
            Clause::CopiesChanges if copies(&first) => {}
            // The earlier one may end the call: it does not wait for the later one.
            Clause::EndsCopies if !(ends(&first) && copies(&second)) => {}
            Clause::CopiesChanges
            | Clause::Answers
            | Clause::Marks
            | Clause::ChangesWhatIsRead
            | Clause::BothChange
            | Clause::EndsCopies
            | Clause::Delays
            | Clause::Order
            | Clause::Filters => return no(),
            Clause::EndsState | Clause::EndsSharedCell | Clause::EndsRows | Clause::EndsTrailers => {
                how.commits_at_merge |= ends(&first) && has_traces(effects, behind);
            }
            // The merge takes the first verdict, the last target, and rows in the chain's order.
            Clause::Statuses
            | Clause::StatusesAnswered
            | Clause::StatusesAsked
            | Clause::Targets
            | Clause::Sinks
            | Clause::Room => {}
        }
    }
    how.copy = copied(chain, &first, &second);
    Ok(how)
}

fn writes(handlers: &[&Effects]) -> impl Iterator<Item = InputId> {
    handlers.iter().flat_map(|handler| handler.writes.keys().copied())
}

fn reads(handlers: &[&Effects], id: InputId) -> bool {
    handlers.iter().any(|handler| handler.reads.contains_key(&id))
}

/// Whether a later writer overwrites everything: it always writes and does not read, or it writes nothing.
fn is_overwritten(handlers: &[&Effects], id: InputId) -> bool {
    let mut writes = handlers.iter().filter_map(|handler| handler.writes.get(&id));
    writes.all(|write| write.blind)
}

fn copies(handlers: &[&Effects]) -> bool {
    handlers.iter().any(|handler| !handler.mirrors.is_empty())
}

fn ends(handlers: &[&Effects]) -> bool {
    handlers.iter().any(|handler| handler.ends.iter().any(|end| !end.is_room))
}

/// Whether an element changes state or sends rows to sinks.
fn has_traces(effects: &ChainEffects, element: usize) -> bool {
    let changes = |handler: &Effects| {
        let is_changed = |used: &crate::effects::CellUse| !used.writes.is_empty() || !used.merges.is_empty();
        handler.cells.values().any(is_changed) || !handler.sinks.is_empty()
    };
    effects.elements[element].handlers().any(|(_, handler)| changes(handler))
}

/// Returns the part of the tuple to copy for the later element: it writes that part, and the earlier one accesses it.
fn copied(chain: &ChainProgram, first: &[&Effects], second: &[&Effects]) -> Copied {
    let touched = |id: &InputId| reads(first, *id) || writes(first).any(|other| other == *id);
    let copy = |id: InputId| match chain.request.inputs[usize::from(id.0)].place {
        InputLocation::Header(_) => Copied::Headers,
        _ => Copied::All,
    };
    let mirrors = copies(first);
    let mine = writes(second).filter(|id| mirrors || touched(id));
    mine.map(copy).max().unwrap_or_default()
}
