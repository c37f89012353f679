//! Decides whether an element may see one message more than once, as it does if an earlier element retries.
//!
//! An element must leave the same traces whether it saw a message once or twice. Reads of state, draws and verdicts do
//! not matter: each attempt gets its own. A write leaves no trace if it is *blind*: no call handler reads the cell, and
//! its value, and whether it happens, follow from the request and from state that no element of the chain changes. Each
//! OPEN creates a new row of the call, so that does not count by itself.

use std::collections::{BTreeMap, BTreeSet};

use weft_ir::program::ChainProgram;

use super::{Cell, CellUse, ChainEffects, Effects, Source, SourceLines, Sources};

/// Something that an element does twice if it sees a message twice.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unrepeatable {
    /// In words: `gives log a row`.
    pub why: String,
    /// The lines that do it, in the element's file.
    pub lines: SourceLines,
}

/// Whether an element, an index into [`ChainProgram::elements`], is safe to repeat per message id: a second attempt
/// leaves no traces that the first did not. EVERY belongs to no message and does not count.
///
/// # Errors
/// What it would do twice, each once: rows of sinks, copies, sums, state.
///
/// # Panics
/// The effects are not those of the program, or there is no such element.
pub fn repeats(
    program: &ChainProgram,
    effects: &ChainEffects,
    element: usize,
) -> Result<(), Vec<Unrepeatable>> {
    let volatile = Volatile::of(effects);
    let mut found = RepeatCheck { program, volatile: &volatile, findings: BTreeMap::new() };
    for (is_request, handler) in of_calls(effects, element) {
        found.outputs(handler);
        found.state(is_request, handler);
    }
    if found.findings.is_empty() { Ok(()) } else { Err(found.into_findings()) }
}

/// The call handlers of an element, and whether they are of the request direction.
fn of_calls(effects: &ChainEffects, element: usize) -> impl Iterator<Item = (bool, &Effects)> {
    let handlers = effects.elements[element]
        .handlers()
        .filter(|(name, _)| !matches!(*name, "every" | "expiry" | "eviction"));
    handlers.map(|(name, handler)| (matches!(name, "open" | "request"), handler))
}

/// State and sources that may differ between two attempts.
struct Volatile {
    /// Cells that call handlers both change and read, and tables whose rows are inserted and removed.
    cells: BTreeSet<Cell>,
    /// Sources of values; inputs are those of the request.
    sources: Sources,
}

impl Volatile {
    /// Collects the volatile state of a chain: it propagates volatile sources through all call handlers.
    fn of(effects: &ChainEffects) -> Self {
        let handlers: Vec<(bool, &Effects)> =
            (0..effects.elements.len()).flat_map(|element| of_calls(effects, element)).collect();
        let mut volatile =
            Self { cells: changing(&handlers), sources: [Source::Now, Source::Rand].into_iter().collect() };
        volatile.sources.extend(volatile.cells.iter().filter_map(|cell| match *cell {
            Cell::Rows(id) | Cell::Column(id, _) => Some(Source::Table(id)),
            Cell::Var(id) => Some(Source::Var(id)),
            Cell::Call(_) | Cell::Sent(_) => None,
        }));
        // Sets only grow, and there are finitely many sources.
        while handlers.iter().any(|(is_request, handler)| volatile.propagate(*is_request, handler)) {}
        volatile
    }

    /// Adds the sources that a handler derives from volatile ones and passes on, in the message or in the call's row;
    /// returns whether there are new ones.
    fn propagate(&mut self, is_request: bool, handler: &Effects) -> bool {
        let before = self.sources.len();
        let calls = handler.cells.iter().filter_map(|(cell, used)| match *cell {
            Cell::Call(id) => Some((Source::Call(id), &used.given)),
            _ => None,
        });
        let edits = handler.writes.iter().filter(|_| is_request);
        let edits = edits.map(|(id, write)| (Source::Input(*id), &write.given));
        for (source, given) in calls.chain(edits) {
            if self.first_volatile(is_request, given).is_some() {
                self.sources.insert(source);
            }
        }
        self.sources.len() > before
    }

    /// The first source that may differ in another attempt. Each attempt has an answer of its own.
    fn first_volatile(&self, is_request: bool, sources: &Sources) -> Option<Source> {
        let is_volatile = |source: &&Source| {
            self.sources.contains(source) || (!is_request && matches!(source, Source::Input(_)))
        };
        sources.iter().find(is_volatile).copied()
    }
}

/// Returns the cells that handlers both read and write, and the tables whose rows they insert or remove.
fn changing(handlers: &[(bool, &Effects)]) -> BTreeSet<Cell> {
    let cells = |lines_of: fn(&CellUse) -> &SourceLines| -> BTreeSet<Cell> {
        let used = handlers.iter().flat_map(|(_, handler)| &handler.cells);
        used.filter(|(_, used)| !lines_of(used).is_empty()).map(|(cell, _)| *cell).collect()
    };
    let (read, changed) = (cells(|used| &used.reads), cells(|used| &used.writes));
    // Almost every access changes the age of a row, and only its expiry depends on it.
    let both = read.intersection(&changed).copied().filter(|cell| !matches!(cell, Cell::Rows(_)));
    both.chain(cells(|used| &used.moves)).collect()
}

/// Collects the reasons why a call cannot be repeated.
struct RepeatCheck<'p> {
    program: &'p ChainProgram,
    volatile: &'p Volatile,
    /// Lines, by kind and text.
    findings: BTreeMap<(u8, String), SourceLines>,
}

impl RepeatCheck<'_> {
    /// Records a finding, unless it has no lines.
    fn report(&mut self, kind: u8, why: String, lines: &SourceLines) {
        if !lines.is_empty() {
            self.findings.entry((kind, why)).or_default().extend(lines);
        }
    }

    fn into_findings(self) -> Vec<Unrepeatable> {
        self.findings.into_iter().map(|((_, why), lines)| Unrepeatable { why, lines }).collect()
    }

    /// Reports outputs of the chain other than the message: rows of sinks, and copies.
    fn outputs(&mut self, handler: &Effects) {
        for (sink, lines) in &handler.sinks {
            let decl = &self.program.sinks[usize::from(sink.0)];
            // Rows of a table are state.
            if decl.target.table().is_some() {
                continue;
            }
            let name = &decl.name;
            self.report(0, format!("gives {name} a row"), lines);
        }
        self.report(1, "copies the call to another target".to_owned(), &handler.mirrors);
    }

    /// Reports changes of state that another attempt would repeat or make differently.
    fn state(&mut self, is_request: bool, handler: &Effects) {
        for (cell, used) in &handler.cells {
            let name = cell.name(self.program);
            self.report(2, format!("adds to {name}"), &used.merges);
            match cell {
                Cell::Call(_) => {}
                Cell::Rows(_) | Cell::Sent(_) => {
                    self.report(3, format!("adds rows to {name}, or takes them away"), &used.moves);
                }
                _ if self.volatile.cells.contains(cell) => {
                    self.report(4, format!("changes {name}, which calls read"), &used.writes);
                }
                Cell::Column(..) | Cell::Var(_) => {
                    if let Some(by) = self.volatile.first_volatile(is_request, &used.given) {
                        let by = self.source(is_request, by);
                        self.report(4, format!("changes {name} by {by}"), &used.writes);
                    }
                }
            }
        }
    }

    /// Describes a source for a finding.
    fn source(&self, is_request: bool, source: Source) -> String {
        match source {
            Source::Input(id) if is_request => {
                format!("{}, which an element sets", self.program.request.inputs[usize::from(id.0)].name)
            }
            Source::Input(_) => "the answer, of which each attempt has its own".to_owned(),
            Source::Call(id) => format!("call.{}", self.program.call[usize::from(id.0)].name),
            Source::Var(id) => Cell::Var(id).name(self.program),
            Source::Table(id) => Cell::Rows(id).name(self.program),
            Source::Now => "the time".to_owned(),
            Source::Rand => "chance".to_owned(),
            Source::Room => "the room left".to_owned(),
            Source::Egress => "where the tuple leaves".to_owned(),
        }
    }
}
