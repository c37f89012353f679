//! Which elements could work on a request side by side, and what that would cost.
//!
//! The order stays what it is, the work overlaps: an element may begin before the one in front of it has ended, on a
//! copy of what both touch if need be, and what both came to is merged in the order of the chain. The verdict is that
//! of the first that ends the call; the bytes of a field are those of the last that wrote it; state and rows are kept
//! only of elements that the merged verdict lets the call reach (commit at the merge), and the next call with the
//! same key waits for that.
//!
//! Nothing runs like this in this version: a segment runs to completion on one worker, where nothing can overlap. What
//! is told is what would be allowed, and what it would have to save.

use weft_ir::ir::InputId;
use weft_ir::program::{ChainProgram, Place};

use super::figures::Figures;
use super::{Clause, Level, Pair, Side};
use crate::effects::{ChainEffects, Effects};

/// What handing a tuple to another core and back takes, in nanoseconds: twice the 65 cycles that DESIGN section 9 gives
/// a hand-off, at 2.6 GHz.
pub const HAND_OFF_NS: f64 = 50.0;
/// What a copy of a tuple takes: a short message, once.
pub const COPY_NS: f64 = 20.0;
/// What a merge takes: verdicts, and the ranges that were written.
pub const MERGE_NS: f64 = 30.0;

/// Whether two elements could work side by side.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Overlap {
    /// The element in front, in the order that runs.
    pub front: usize,
    /// The one behind.
    pub behind: usize,
    /// How, or why not.
    pub verdict: Result<ParallelStep, String>,
}

/// What it takes for two elements to work side by side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ParallelStep {
    /// What the one behind works on.
    pub copy: Copied,
    /// It leaves traces, which are kept or thrown away when it is known whether the call reaches it.
    pub commits_at_merge: bool,
}

/// What is copied.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Copied {
    /// Nothing: both look at the same tuple.
    #[default]
    Nothing,
    /// Its headers alone.
    Headers,
    /// All of it.
    All,
}

/// For each two elements of an order, whether they could work side by side on a request without being told from the
/// sequence, as far as a level promises that.
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
        let pair = pairs.iter().find(is_it).expect("all pairs are there");
        Overlap { front, behind, verdict: overlap(chain, effects, pair, level, front, behind) }
    })
    .collect()
}

/// The elements by the step in which they could work, if there were a core for each: those of one step overlap.
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

/// What running each step side by side would save of a call, and what it would cost, in nanoseconds.
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

fn overlap(
    chain: &ChainProgram,
    effects: &ChainEffects,
    pair: &Pair,
    level: Level,
    front: usize,
    behind: usize,
) -> Result<ParallelStep, String> {
    let mut how = ParallelStep::default();
    let [first, second] = [front, behind].map(|at| requests(effects, at));
    // Only requests overlap.
    for clash in pair.blocking(level).filter(|clash| matches!(clash.side, Side::Request | Side::Chain)) {
        let no = || Err(clash.why.clone());
        match clash.clause {
            Clause::WritesWhatIsRead if writes(&first).any(|id| reads(&second, id)) => return no(),
            Clause::WritesWhatIsRead => {}
            Clause::BothWrite if !writes(&first).all(|id| is_overwritten(&second, id)) => return no(),
            Clause::BothWrite => {}
            Clause::CopiesChanges if copies(&first) => {}
            // The one in front may end as it likes: it does not wait for the one behind.
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
            // The merge takes the first verdict, the last target, and rows in the order of the chain.
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

/// The handlers of requests.
fn requests(effects: &ChainEffects, element: usize) -> Vec<&Effects> {
    let element = &effects.elements[element];
    element.open.iter().chain(&element.request).collect()
}

fn writes(handlers: &[&Effects]) -> impl Iterator<Item = InputId> {
    handlers.iter().flat_map(|handler| handler.writes.keys().copied())
}

fn reads(handlers: &[&Effects], id: InputId) -> bool {
    handlers.iter().any(|handler| handler.reads.contains_key(&id))
}

/// Whether a later writer leaves nothing of what was there: it writes always and does not look, or writes nothing.
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

fn has_traces(effects: &ChainEffects, element: usize) -> bool {
    let changes = |handler: &Effects| {
        let is_changed = |used: &crate::effects::CellUse| !used.writes.is_empty() || !used.merges.is_empty();
        handler.cells.values().any(is_changed) || !handler.sinks.is_empty()
    };
    effects.elements[element].handlers().any(|(_, handler)| changes(handler))
}

/// What must be copied for the one behind: what it writes and the one in front looks at or writes.
fn copied(chain: &ChainProgram, first: &[&Effects], second: &[&Effects]) -> Copied {
    let touched = |id: &InputId| reads(first, *id) || writes(first).any(|other| other == *id);
    let copy = |id: InputId| match chain.request.inputs[usize::from(id.0)].place {
        Place::Header(_) => Copied::Headers,
        _ => Copied::All,
    };
    let mirrors = copies(first);
    let mine = writes(second).filter(|id| mirrors || touched(id));
    mine.map(copy).max().unwrap_or_default()
}
