//! Plans a chain from its effects: the order in which it runs, and which tables may be sharded by key.
//!
//! * [`pairs`]: for each two elements of a chain, the clashes that keep their order, by rule, level and source line.
//! * [`Figures`]: the cost of elements, measured or estimated.
//! * [`choose`]: the order of least expected cost among the allowed ones.
//! * [`tables`]: for each table, whether it can be sharded over nodes by the key of its rows.
//! * [`overlaps`]: which elements could run in parallel, and at what price.
//! * [`dead_fields`]: fields that are overwritten before anything reads them.
//! * [`headers`]: what must be sent with a message where the chain is cut.
//!
//! Decision 0023 describes the search and the cost model.

mod dead;
mod figures;
mod header;
mod inverse;
mod order;
mod parallel;
mod search;
mod shard;
mod swap;
#[cfg(test)]
mod tests;

use core::fmt;
use core::ops::Range;

use weft_lang::hir;

use crate::effects::{Effects, ElementEffects, SourceLines};

pub use dead::{DeadField, dead_fields, drop_dead_fields};
pub use figures::{ENDS_ASSUMED, ElementFigures, Figures, SAMPLED_MIN, SEEN_MIN};
pub use header::{Header, HeaderField, ID_BYTES, VERSION_BYTES, headers};
pub use inverse::{Crossing, crossings};
pub use order::{GAIN_MIN, GAIN_NS_MIN, Input, Licence, LicensedBy, Plan, RejectedOrder, choose};
pub use parallel::{COPY_NS, Copied, HAND_OFF_NS, MERGE_NS, Overlap, ParallelStep, gain_ns, overlaps, steps};
pub use search::{BEAM_WIDTH, EXACT_MAX};
pub use shard::{Sharding, TableSharding, tables};
pub use swap::pairs;

/// What a new order of elements must preserve; each level includes the promises of the next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Level {
    /// State, sinks with their order, statuses and outputs.
    Strict,
    /// All but the order of sink rows of different elements, and which element runs out of a pass's scratch.
    #[default]
    Observable,
    /// Outputs, statuses and state; sink rows of calls that an element ends may differ.
    Output,
    /// Equality in distribution. No rule of this version uses it: it allows what `output` does.
    Stochastic,
    /// The same calls go on, from the same state, with the same fields. State, sinks, statuses and delays of calls that
    /// an element ends may differ.
    Relaxed,
}

/// A rule that keeps elements in order. The documentation and `weft explain` use these numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rule {
    /// One writes a field, header, mark or part of an answer that the other reads or writes.
    Fields = 1,
    /// One writes state that the other reads or writes; merges of the same variable do not clash.
    State = 2,
    /// One may end the tuple, and the other leaves a trace that depends on the order.
    Ends = 3,
    /// Both may end the tuple, but differently.
    Statuses = 4,
    /// One copies the tuple, and the other changes it.
    Copies = 5,
    /// One may end the tuple, and the other delays it.
    Time = 6,
    /// Both send rows to the same place.
    Sinks = 8,
    /// Both set the target.
    Target = 9,
    /// Both use the scratch of the pass, so the order decides which of them runs out of it.
    Room = 10,
    /// The chain declares `ORDER a BEFORE b`, or which element comes first or last.
    Order = 11,
    /// A filter wraps the elements after it: elements stay on their side.
    Filters = 12,
}

/// A clause of a rule. For each there is a test that fails without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Clause {
    /// One writes a field or header that the other reads.
    WritesWhatIsRead,
    /// Both write one, or fields of a frame that share bytes.
    BothWrite,
    /// One sets parts of an answer and goes on; the other answers, or sets them as well.
    Answers,
    /// Both mark the tuple.
    Marks,
    /// One changes state that the other reads.
    ChangesWhatIsRead,
    /// Both change it.
    BothChange,
    /// One may end the call, and the other changes state.
    EndsState,
    /// One may end the call, and the other changes a cell of the call's row that a third reads.
    EndsSharedCell,
    /// One may end the call, and the other sends a row to a sink.
    EndsRows,
    /// One may end the call, and the other copies the tuple.
    EndsCopies,
    /// One may end the call, and the other changes the answer of its end.
    EndsTrailers,
    /// Both may end the call, in different ways.
    Statuses,
    /// Both may end the call in the same way, but the answers differ.
    StatusesAnswered,
    /// Both may end the call in the same way, but an element reads which of them it was.
    StatusesAsked,
    /// One copies the tuple, and the other changes it.
    CopiesChanges,
    /// One may end the call, and the other delays it.
    Delays,
    /// Both send rows to the same place.
    Sinks,
    /// Both set the target.
    Targets,
    /// Both use scratch.
    Room,
    /// The chain declares it.
    Order,
    /// A filter is between them.
    Filters,
}

/// The handlers that clash.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Side {
    /// OPEN and REQUEST: they run in one pass.
    Request,
    /// RESPONSE.
    Response,
    /// CLOSE.
    Close,
    /// EVERY and TIMEOUT.
    Every,
    /// Declarations of the chain.
    Chain,
}

/// Why two elements must keep their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Clash {
    /// The rule.
    pub rule: Rule,
    /// The clause of the rule.
    pub clause: Clause,
    /// The weakest level at which it holds: weaker levels allow the swap.
    pub until: Level,
    /// The direction in which it was found.
    pub side: Side,
    /// The reason in words, with the names of the elements.
    pub why: String,
    /// The lines of the element that comes first as written.
    pub first: SourceLines,
    /// The lines of the other one.
    pub second: SourceLines,
}

/// Two elements of a chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pair {
    /// The index of the element that comes first as written.
    pub first: usize,
    /// The index of the other.
    pub second: usize,
    /// The clashes that keep their order, by rule.
    pub clashes: Vec<Clash>,
}

impl Pair {
    /// Whether the two may swap at a level, as far as they are concerned: elements between them must be able to as
    /// well.
    pub fn may_swap(&self, level: Level) -> bool {
        self.blocking(level).next().is_none()
    }

    /// The clashes that forbid it at a level.
    pub fn blocking(&self, level: Level) -> impl Iterator<Item = &Clash> {
        self.clashes.iter().filter(move |clash| level <= clash.until)
    }

    /// The strictest level at which they may swap.
    pub fn allowed_from(&self) -> Option<Level> {
        Level::ALL.into_iter().find(|level| self.may_swap(*level))
    }
}

impl Level {
    /// All levels, the strictest first.
    pub const ALL: [Self; 5] =
        [Self::Strict, Self::Observable, Self::Output, Self::Stochastic, Self::Relaxed];

    /// The keyword in `EQUIVALENCE`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Strict => "strict",
            Self::Observable => "observable",
            Self::Output => "output",
            Self::Stochastic => "stochastic",
            Self::Relaxed => "relaxed",
        }
    }
}

impl From<hir::Equivalence> for Level {
    fn from(level: hir::Equivalence) -> Self {
        match level {
            hir::Equivalence::Strict => Self::Strict,
            hir::Equivalence::Observable => Self::Observable,
            hir::Equivalence::Output => Self::Output,
            hir::Equivalence::Stochastic => Self::Stochastic,
            hir::Equivalence::Relaxed => Self::Relaxed,
        }
    }
}

impl Rule {
    /// All rules that keep two elements in order, by number. Rule 7 keeps none: it lets elements cross a pair of
    /// inverse functions ([`crossings`]).
    pub const ALL: [Self; 11] = [
        Self::Fields,
        Self::State,
        Self::Ends,
        Self::Statuses,
        Self::Copies,
        Self::Time,
        Self::Sinks,
        Self::Target,
        Self::Room,
        Self::Order,
        Self::Filters,
    ];

    /// The number in the documentation.
    pub fn number(self) -> u8 {
        self as u8
    }

    /// Its short name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fields => "fields",
            Self::State => "state",
            Self::Ends => "ends",
            Self::Statuses => "statuses",
            Self::Copies => "copies",
            Self::Time => "time",
            Self::Sinks => "sinks",
            Self::Target => "target",
            Self::Room => "room",
            Self::Order => "order",
            Self::Filters => "filters",
        }
    }
}

/// The clauses in the order of their declaration: the names, and the rules that they are parts of.
const CLAUSES: [(Clause, &str, Rule); 21] = [
    (Clause::WritesWhatIsRead, "writes what is read", Rule::Fields),
    (Clause::BothWrite, "both write", Rule::Fields),
    (Clause::Answers, "answers", Rule::Fields),
    (Clause::Marks, "marks", Rule::Fields),
    (Clause::ChangesWhatIsRead, "changes what is read", Rule::State),
    (Clause::BothChange, "both change", Rule::State),
    (Clause::EndsState, "ends, state", Rule::Ends),
    (Clause::EndsSharedCell, "ends, shared cell", Rule::Ends),
    (Clause::EndsRows, "ends, rows", Rule::Ends),
    (Clause::EndsCopies, "ends, copies", Rule::Ends),
    (Clause::EndsTrailers, "ends, trailers", Rule::Ends),
    (Clause::Statuses, "statuses", Rule::Statuses),
    (Clause::StatusesAnswered, "statuses, answered", Rule::Statuses),
    (Clause::StatusesAsked, "statuses, asked", Rule::Statuses),
    (Clause::CopiesChanges, "copies changes", Rule::Copies),
    (Clause::Delays, "delays", Rule::Time),
    (Clause::Sinks, "sinks", Rule::Sinks),
    (Clause::Targets, "targets", Rule::Target),
    (Clause::Room, "room", Rule::Room),
    (Clause::Order, "order", Rule::Order),
    (Clause::Filters, "filters", Rule::Filters),
];

const _: () = {
    let mut at = 0;
    while at < CLAUSES.len() {
        assert!(CLAUSES[at].0 as usize == at, "the table has the order of the declaration");
        at += 1;
    }
};

impl Clause {
    /// All clauses, by rule.
    pub fn all() -> impl Iterator<Item = Self> {
        CLAUSES.into_iter().map(|(clause, ..)| clause)
    }

    /// Returns a short description of the rule's clause.
    pub fn name(self) -> &'static str {
        CLAUSES[self as usize].1
    }

    /// The rule that it is a part of.
    pub fn rule(self) -> Rule {
        CLAUSES[self as usize].2
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "swap.{}", self.number())
    }
}

impl Side {
    /// Its keyword.
    pub fn name(self) -> &'static str {
        match self {
            Self::Request => "request",
            Self::Response => "response",
            Self::Close => "close",
            Self::Every => "every",
            Self::Chain => "chain",
        }
    }
}

/// Facts about a chain besides its program.
#[derive(Clone, Debug, Default)]
pub struct Context {
    /// `ORDER a BEFORE b`, and the pairs that POSITION implies.
    orders: Vec<(usize, usize)>,
    /// `PRIORITY a > b`.
    priorities: Vec<(usize, usize)>,
    /// Elements that were written as `{a, b}`.
    unordered: Vec<Range<usize>>,
    /// Filters, each with the index of the first element that it wraps.
    filters: Vec<(usize, String)>,
}

impl Context {
    /// The context of a checked chain.
    pub fn new(chain: &hir::Chain) -> Self {
        Self {
            orders: chain.orders.clone(),
            priorities: chain.priorities.clone(),
            unordered: chain.unordered.clone(),
            filters: chain.filters.iter().flat_map(walls).collect(),
        }
    }
}

/// The places that elements may not cross because of a filter: before the elements that it wraps, and before the
/// element that computes its keys from the tuple as the filter finds it.
fn walls(filter: &hir::FilterInstance) -> impl Iterator<Item = (usize, String)> {
    let keys = filter.has_keys.then(|| filter.at - 1);
    keys.into_iter().chain([filter.at]).map(|at| (at, filter.name.clone()))
}

impl ElementEffects {
    /// The effects of the handlers of one side.
    pub(crate) fn of_side(&self, side: Side) -> Vec<&Effects> {
        match side {
            Side::Request => self.open.iter().chain(&self.request).collect(),
            Side::Response => self.response.iter().collect(),
            Side::Close => self.close.iter().collect(),
            Side::Every => {
                self.every.iter().chain(self.timeouts.iter().map(|(_, effects)| effects)).collect()
            }
            Side::Chain => Vec::new(),
        }
    }
}
