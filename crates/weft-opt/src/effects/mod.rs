//! The effects of each handler of a chain, inferred from its IR.
//!
//! Every set is an upper bound over all tuples, states and paths: the observed accesses of a pass
//! ([`weft_ir::interp::run_with_accesses`]) lie within it; the tests check this on random programs. It is exact for
//! straight-line code and errs on the side of *more* where paths join. There is no aliasing: inputs, tables, variables
//! and sinks are names in the instructions.
//!
//! * `condition`: the conditions on fields under which an effect happens.
//! * `flow`: reachability between blocks, and control dependence.
//! * `known_values`: branches that no tuple takes.
//! * `source`: the sources of a value, through data and control flow.
//! * `key`: the keys of rows, as expressions.
//! * `infer`: the walk over a function that combines these.
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
use weft_core::table::RemovalReason;
use weft_ir::ir::{CallId, ColumnId, Function, InputId, NameId, SinkId, TableId, VarId};
use weft_ir::program::{ChainProgram, Element, Event};

pub use condition::Condition;
pub use repeat::{Unrepeatable, repeats};

/// The source lines that cause an effect, in the element's file; 0 for an effect without a line. Empty for an effect
/// that the handler does not have.
pub type SourceLines = BTreeSet<u32>;

/// A source of a value.
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
    /// The room left in the scratch of the pass.
    Room,
    /// The egress that earlier elements have set.
    Egress,
}

/// The sources of a value; empty for a constant.
pub type Sources = BTreeSet<Source>;

/// The effects of a chain's handlers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainEffects {
    /// By element, in the order of the chain.
    pub elements: Vec<ElementEffects>,
}

/// The effects of an element's handlers; None where it has no such handler.
#[derive(Clone, Debug, Default, PartialEq)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub struct ElementEffects {
    pub open: Option<Effects>,
    pub request: Option<Effects>,
    pub response: Option<Effects>,
    pub close: Option<Effects>,
    pub every: Vec<Effects>,
    pub timeouts: Vec<(RemovalReason, Effects)>,
}

/// The effects of one handler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Effects {
    /// Inputs whose value at the start of the handler is read.
    pub reads: BTreeMap<InputId, SourceLines>,
    /// Inputs that are changed.
    pub writes: BTreeMap<InputId, Write>,
    /// Headers and trailers of an answer that are set.
    pub answers: BTreeMap<NameId, SourceLines>,
    /// Those still set when the tuple goes on: an ABORT of another element would carry them.
    pub answers_left: BTreeMap<NameId, SourceLines>,
    /// Fields of a reply that are set.
    pub replies: BTreeMap<NameId, SourceLines>,
    /// Those still set when the tuple goes on.
    pub replies_left: BTreeMap<NameId, SourceLines>,
    /// State that is accessed.
    pub cells: BTreeMap<Cell, CellUse>,
    /// Reads of tables, by key or over all rows.
    pub table_reads: Vec<TableRead>,
    /// Sinks that get rows.
    pub sinks: BTreeMap<SinkId, SourceLines>,
    /// By sink: each row is sent under one of these conditions.
    pub sinks_only: BTreeMap<SinkId, Vec<Condition>>,
    /// Where the tuple is copied to another target.
    pub mirrors: SourceLines,
    /// Where the frame's structure changes: this reads and writes all inputs of the frame.
    pub reshapes: SourceLines,
    /// Where the tuple is delayed.
    pub delays: SourceLines,
    /// Where the tuple is marked.
    pub marks: SourceLines,
    /// Where the tuple's target is set.
    pub redirects: SourceLines,
    /// Where the target set by earlier elements is read.
    pub egress: SourceLines,
    /// Where the clock is read.
    pub clock: SourceLines,
    /// Where random numbers are drawn, by site.
    pub draws: BTreeMap<u64, SourceLines>,
    /// Where the scratch of the pass is used, or tested.
    pub room: SourceLines,
    /// How the handler may end the tuple, one per verdict in its text.
    pub ends: Vec<Ending>,
}

/// The change of an input.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Write {
    /// The source lines of the change.
    pub lines: SourceLines,
    /// It happens on every path on which the tuple goes on.
    pub always: bool,
    /// It happens always, and the old value is not read.
    pub blind: bool,
    /// Some path removes the field from the wire: sets it to NULL, or sets another member of its oneof.
    pub clears: bool,
    /// The sources of the new value, and of whether it is written.
    pub given: Sources,
}

/// A piece of state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Cell {
    /// The set of rows of a table, their age, and their eviction order.
    Rows(TableId),
    /// A column of a table.
    Column(TableId, ColumnId),
    /// A variable.
    Var(VarId),
    /// A cell of the call's row.
    Call(CallId),
    /// The rows of a table that no handler of the chain reads and that sinks fill: the first of these sinks.
    Sent(SinkId),
}

/// The use of a piece of state.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CellUse {
    /// Where it is read.
    pub reads: SourceLines,
    /// Where it is written.
    pub writes: SourceLines,
    /// Where a MERGE variable merges a value.
    pub merges: SourceLines,
    /// The rows used, for a column or the rows of a table.
    pub rows: RowSet,
    /// The sources of the written value, of its row, and of whether it is written.
    pub given: Sources,
    /// Each change happens under one of these conditions.
    pub only: Vec<Condition>,
    /// For the rows of a table: where rows are inserted and removed. Other writes change their age.
    pub moves: SourceLines,
    /// There is a write other than the time of a read. Reads of one pass all store the same time.
    pub is_changed: bool,
}

/// The rows that a handler uses.
#[derive(Clone, Debug, PartialEq)]
pub enum RowSet {
    /// Those with one of these keys.
    Keys(Vec<Key>),
    /// Any row.
    All,
}

/// The key of a row, as far as it is known statically.
#[derive(Clone, Debug, PartialEq)]
pub struct Key {
    /// The expression as text, equal for equal expressions; None if paths join in it.
    pub text: Option<String>,
    /// The constant key: its bytes, or the word of a number in little endian.
    pub known: Option<Vec<u8>>,
    /// Its sources.
    pub sources: Sources,
}

/// A read of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableRead {
    /// The table.
    pub table: TableId,
    /// The key; None for a SCAN or a count.
    pub key: Option<Key>,
    /// The source line.
    pub line: u32,
}

/// A way to end the tuple.
#[derive(Clone, Debug, PartialEq)]
pub struct Ending {
    /// The kind of end.
    pub kind: EndKind,
    /// The sources of whether it is reached.
    pub when: Sources,
    /// Every tuple that ends here satisfies this condition.
    pub only: Condition,
    /// It is reached only if the pass has used up its scratch, or a function's result would be too long. Only `strict`
    /// promises which element runs out of room first (decision 0023).
    pub is_room: bool,
    /// The source line.
    pub line: u32,
}

/// The kinds of ends.
#[derive(Clone, Debug, PartialEq)]
pub enum EndKind {
    /// Silently.
    Drop,
    /// With a status (None if computed), and a text (None if computed).
    Abort(Option<Status>, Option<Vec<u8>>),
    /// With an answer of its own.
    Reply,
    /// By an error, one of these; any, if the list is empty.
    Fail(Vec<Fault>),
}

/// The effects of all handlers of a chain that [`weft_ir::verify::verify_program`] accepts.
pub fn effects(chain: &ChainProgram) -> ChainEffects {
    let elements = (0..).zip(&chain.elements).map(|(index, element)| of_element(chain, index, element));
    ChainEffects { elements: elements.collect() }
}

/// The effects of a function as the handler of an element of a chain.
pub(crate) fn of_handler(chain: &ChainProgram, element: u16, event: Event, function: &Function) -> Effects {
    infer::infer(chain, event, chain.fails_open(element, event), function)
}

/// Infers the effects of all handlers of an element.
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
            .map(|(removal, function)| (removal.why, infer(Event::Timeout(0, 0), function)))
            .collect(),
    }
}

impl Cell {
    /// The name in the program: of the table, of its column, of the variable or of the cell.
    pub(crate) fn name(self, program: &ChainProgram) -> String {
        let table = |id: TableId| &program.tables[usize::from(id.0)].spec;
        match self {
            Self::Rows(id) => table(id).name.clone(),
            Self::Column(id, column) => {
                let columns = table(id).key.iter().chain(&table(id).columns);
                let name = columns.map(|column| &*column.name).nth(usize::from(column.0)).unwrap_or("?");
                format!("{}.{name}", table(id).name)
            }
            Self::Var(id) => program.vars[usize::from(id.0)].name.clone(),
            Self::Call(id) => program.call[usize::from(id.0)].name.clone(),
            Self::Sent(id) => program.sinks[usize::from(id.0)].sent_to().to_owned(),
        }
    }
}

impl ElementEffects {
    /// The handlers that it has, with their names in the language.
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
            RemovalReason::Expired => ("expiry", effects),
            RemovalReason::Evicted => ("eviction", effects),
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
    /// Adds the rows of another set.
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

    /// Whether the sets are disjoint: all keys of both are constants, and no two are equal.
    pub fn is_apart_from(&self, other: &Self) -> bool {
        let (Self::Keys(a), Self::Keys(b)) = (self, other) else { return false };
        a.iter().all(|a| b.iter().all(|b| matches!((&a.known, &b.known), (Some(a), Some(b)) if a != b)))
    }
}
