//! What each handler of a chain may do, inferred from its IR.
//!
//! Every set is an upper bound over all tuples, states and ways through the handler: what a pass is really seen to do
//! ([`weft_ir::interp::run_noting`]) lies within it, and the tests hold random programs to that. It is exact for
//! straight code and errs on the side of *more* where ways meet. There is nothing to be aliased: inputs, tables,
//! variables and sinks are names, so what an instruction touches stands in the instruction.
//!
//! * `condition`: what is known of the fields where a handler does something.
//! * `flow`: which blocks lead where, and which branches decide whether a block runs.
//! * `known`: branches that no tuple takes.
//! * `source`: what a value may depend on, through data and through branches.
//! * `key`: which rows a handler works on, as expressions.
//! * `infer`: one walk over a function that puts it together.
//! * `repeat`: whether an element may see one message twice.

mod condition;
mod flow;
mod infer;
mod key;
mod known_values;
mod repeat;
mod source;
#[cfg(test)]
mod tests;

use core::fmt;
use std::collections::{BTreeMap, BTreeSet};

use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::table::Departure;
use weft_ir::ir::{CallId, ColumnId, Function, InputId, NameId, SinkId, TableId, VarId};
use weft_ir::program::{ChainProgram, Element, Event};

pub use condition::Condition;
pub use repeat::{Unrepeatable, repeats};

/// The source lines that cause an effect, in the file of the element; 0 stands for what has no line of its own. An
/// effect that a handler cannot have has none.
pub type SourceLines = BTreeSet<u32>;

/// Something that a value may depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Source {
    /// An input column, as the handler finds it.
    Input(InputId),
    /// A cell of the call's row.
    Call(CallId),
    /// A variable.
    Var(VarId),
    /// The rows of a table.
    Table(TableId),
    /// `now()`.
    Now,
    /// `rand()`.
    Rand,
    /// The room that is left in the scratch of the pass.
    Room,
    /// Where elements in front have sent the tuple.
    Egress,
}

/// What a value may depend on; empty for a constant.
pub type Sources = BTreeSet<Source>;

/// What the handlers of a chain may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainEffects {
    /// By element, in the order of the chain.
    pub elements: Vec<ElementEffects>,
}

/// What the handlers of an element may do; None where it has no such handler.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub struct ElementEffects {
    pub open: Option<Effects>,
    pub request: Option<Effects>,
    pub response: Option<Effects>,
    pub close: Option<Effects>,
    pub every: Vec<Effects>,
    pub timeouts: Vec<(Departure, Effects)>,
}

/// What one handler may do.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Inputs whose value at the start of the handler it looks at.
    pub reads: BTreeMap<InputId, SourceLines>,
    /// Inputs that it changes.
    pub writes: BTreeMap<InputId, Write>,
    /// Headers and trailers of an answer that it sets.
    pub answers: BTreeMap<NameId, SourceLines>,
    /// Those of them that are still set when it lets the tuple go on, so an ABORT of another element would carry them.
    pub answers_left: BTreeMap<NameId, SourceLines>,
    /// Fields of a reply that it sets.
    pub replies: BTreeMap<NameId, SourceLines>,
    /// Those of them that are still set when it lets the tuple go on.
    pub replies_left: BTreeMap<NameId, SourceLines>,
    /// State that it touches.
    pub cells: BTreeMap<Cell, CellUse>,
    /// Each look at a table by key, or over all of its rows.
    pub table_reads: Vec<TableRead>,
    /// Sinks that it gives rows to.
    pub sinks: BTreeMap<SinkId, SourceLines>,
    /// By sink: one of these is met wherever it gives it a row.
    pub sinks_only: BTreeMap<SinkId, Vec<Condition>>,
    /// Where it copies the tuple to another target.
    pub mirrors: SourceLines,
    /// Where it changes the structure of the frame: it looks at and changes all inputs that are of the frame.
    pub reshapes: SourceLines,
    /// Where it holds the tuple up.
    pub delays: SourceLines,
    /// Where it marks the tuple.
    pub marks: SourceLines,
    /// Where it names the target of the tuple.
    pub redirects: SourceLines,
    /// Where it asks for the target that elements in front have named.
    pub egress: SourceLines,
    /// Where it asks for the time.
    pub clock: SourceLines,
    /// Where it draws, by site.
    pub draws: BTreeMap<u64, SourceLines>,
    /// Where it takes room in the scratch of the pass, or asks about it.
    pub room: SourceLines,
    /// How it may end the tuple, one for each verdict in its text.
    pub ends: Vec<Ending>,
}

/// How an input is changed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// Where.
    pub lines: SourceLines,
    /// On every way on which the handler lets the tuple go on.
    pub always: bool,
    /// Always, and without a look at what was there.
    pub blind: bool,
    /// Some path removes it from the wire: it is set to NULL, or another member of its oneof is set.
    pub clears: bool,
    /// What is written, and whether at all, may depend on.
    pub given: Sources,
}

/// A piece of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// Which rows a table has, their age, and their order for eviction.
    Rows(TableId),
    /// A column of a table.
    Column(TableId, ColumnId),
    /// A variable.
    Var(VarId),
    /// A cell of the call's row.
    Call(CallId),
    /// The rows of a table that no handler of the chain reads, to which sinks send rows: the first of these sinks.
    Sent(SinkId),
}

/// How a piece of state is touched.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellUse {
    /// Where it is read.
    pub reads: SourceLines,
    /// Where it is written.
    pub writes: SourceLines,
    /// Where a MERGE variable takes up a value.
    pub merges: SourceLines,
    /// Which rows, for a column or the rows of a table.
    pub rows: RowSet,
    /// What is written, in which row, and whether at all, may depend on.
    pub given: Sources,
    /// One of these is met wherever it is changed.
    pub only: Vec<Condition>,
    /// For the rows of a table: where rows come and go. What else is written there is their age.
    pub moves: SourceLines,
    /// A write other than the time of a read. Reads of one pass all store the same time.
    pub is_changed: bool,
}

/// The rows that a handler works on.
#[derive(Clone, Debug, PartialEq)]
pub enum RowSet {
    /// Those with one of these keys.
    Keys(Vec<Key>),
    /// Any.
    All,
}

/// The key of a row, as far as it is known before anything runs.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The expression, the same text for the same expression; None if it is made where ways meet.
    pub text: Option<String>,
    /// The constant that it is: the bytes, or the word of a number in little endian.
    pub known: Option<Vec<u8>>,
    /// What it may depend on.
    pub sources: Sources,
}

/// A look at a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRead {
    /// Which.
    pub table: TableId,
    /// The key; None for a SCAN or a count.
    pub key: Option<Key>,
    /// Where.
    pub line: u32,
}

/// A way to end the tuple.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// How.
    pub kind: EndKind,
    /// What decides whether it is taken.
    pub when: Sources,
    /// What every tuple meets that is ended here.
    pub only: Condition,
    /// It is taken only where the pass has used up its room in the scratch, or a function's result would be longer than
    /// it may be: which element is the first to want room is promised by `strict` alone (decision 0018).
    pub is_room: bool,
    /// Where.
    pub line: u32,
}

/// How a tuple is ended.
#[derive(Clone, Debug, PartialEq)]
pub enum EndKind {
    /// In silence.
    Drop,
    /// With a status (None if it is computed), and a text (None if that is).
    Abort(Option<Status>, Option<Vec<u8>>),
    /// With an answer of its own.
    Reply,
    /// By an error; these are possible, and all that are if the list is empty.
    Fail(Vec<Fault>),
}

/// The effects of all handlers of a chain that [`weft_ir::verify::verify_program`] takes.
pub fn effects(chain: &ChainProgram) -> ChainEffects {
    let elements = (0..).zip(&chain.elements).map(|(index, element)| of_element(chain, index, element));
    ChainEffects { elements: elements.collect() }
}

/// What a function does as the handler of an element of a chain.
pub(crate) fn of_handler(chain: &ChainProgram, element: u16, event: Event, function: &Function) -> Effects {
    infer::infer(chain, event, chain.fails_open(element, event), function)
}

fn of_element(chain: &ChainProgram, index: u16, element: &Element) -> ElementEffects {
    let handlers = &element.handlers;
    let infer = |event, function: &Function| of_handler(chain, index, event, function);
    let one = |event, handler: &Option<Function>| handler.as_ref().map(|function| infer(event, function));
    ElementEffects {
        open: one(Event::Open, &handlers.open),
        request: one(Event::Request, &handlers.request),
        response: one(Event::Response, &handlers.response),
        close: one(Event::Close, &handlers.close),
        every: handlers.every.iter().map(|(_, function)| infer(Event::Every(0, 0), function)).collect(),
        timeouts: handlers
            .timeouts
            .iter()
            .map(|(departs, function)| (departs.why, infer(Event::Timeout(0, 0), function)))
            .collect(),
    }
}

impl ElementEffects {
    /// The handlers that it has, with the language's names for them.
    pub fn handlers(&self) -> impl Iterator<Item = (&'static str, &Effects)> {
        let single = [
            ("open", &self.open),
            ("request", &self.request),
            ("response", &self.response),
            ("close", &self.close),
        ];
        let single = single.into_iter().filter_map(|(name, effects)| Some((name, effects.as_ref()?)));
        let every = self.every.iter().map(|effects| ("every", effects));
        let timeouts = self.timeouts.iter().map(|(why, effects)| match why {
            Departure::Expired => ("expiry", effects),
            Departure::Evicted => ("eviction", effects),
        });
        single.chain(every).chain(timeouts)
    }
}

impl fmt::Display for EndKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drop => f.write_str("DROP"),
            Self::Abort(Some(status), _) => write!(f, "ABORT {}", status.name()),
            Self::Abort(None, _) => f.write_str("ABORT with a computed status"),
            Self::Reply => f.write_str("REPLY"),
            Self::Fail(faults) if faults.is_empty() => f.write_str("an error"),
            Self::Fail(faults) => {
                let names: Vec<&str> = faults.iter().map(|fault| fault.name()).collect();
                write!(f, "an error ({})", names.join(", "))
            }
        }
    }
}

impl Default for RowSet {
    fn default() -> Self {
        Self::Keys(Vec::new())
    }
}

impl RowSet {
    /// Takes up the rows of another set.
    pub fn add(&mut self, other: &Self) {
        match (&mut *self, other) {
            (Self::Keys(keys), Self::Keys(more)) => {
                for key in more {
                    if !keys.contains(key) {
                        keys.push(key.clone());
                    }
                }
            }
            _ => *self = Self::All,
        }
    }

    /// Whether no row can be in both: all keys of both are constants, and no two are the same.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let (Self::Keys(a), Self::Keys(b)) = (self, other) else { return false };
        a.iter().all(|a| b.iter().all(|b| matches!((&a.known, &b.known), (Some(a), Some(b)) if a != b)))
    }
}
