//! Checks that functions and chains are well-formed.
//!
//! Every back end can run a chain whose functions pass [`verify`] without further checks. A function is well-formed if
//!
//! 1. It has a block 0, which has no parameters and no jump to it ([`Rule::Entry`]).
//! 2. All values, blocks, tables, columns, inputs, cells, variables, sinks and names in it exist ([`Rule::Exists`]).
//! 3. Each value has at most one definition ([`Rule::DefinedOnce`]), which dominates each use ([`Rule::Dominance`]).
//! 4. Operands and results have the types of the operation, and an operation has a result exactly if it gives one
//!    ([`Rule::Type`]). The key of a table has the type [`key_ty`].
//! 5. Each block ends with a terminator ([`Rule::Finished`]) and is reachable ([`Rule::Reachable`]).
//! 6. Each jump passes as many values as the block has parameters, of the same types ([`Rule::Jump`]).
//! 7. A back edge goes to a block that dominates its source and has `scan_rows_max`, at most [`SCAN_ROWS_MAX`]
//!    ([`Rule::BackEdge`]).
//! 8. Inputs that it changes are declared `written`; inputs that it clears may be NULL, or are headers or trailers
//!    ([`Rule::Written`]).
//! 9. Only [`Op::VarMerge`] and [`Op::VarReset`] change MERGE variables, and only [`Op::VarMerged`] reads them.
//!    VarReset and VarMerged occur only in EVERY. All other variables use VarGet and VarSet ([`Rule::Merge`]).
//! 10. EVERY and TIMEOUT have no tuple: no inputs, answer, reply, delay, mark or mirror, and no verdict except FORWARD
//!     and Fail ([`Rule::NoTuple`]).
//! 11. Replicated tables are only read, key columns are never set, and NULL is set only in columns that allow it
//!     ([`Rule::ReadOnly`]).
//! 12. A row is used only with its own table, and not after an Insert or Remove on that table, except by [`Op::IsRow`].
//!     Rows, and bytes that may lie in the scratch, are not used after a RollBack ([`Rule::Stale`]).
//! 13. [`Op::Overflows`] takes a result of Add, Sub, Mul, or SDiv as signed ([`Rule::Type`]).
//! 14. A native function gets one value for each parameter that is not constant, of a type that the parameter takes.
//!     [`Op::NativeNull`] and [`Op::NativeFailed`] take a result of [`Op::Native`] ([`Rule::Type`]).
//! 15. Only PARSE reads the bytes of a frame and gives inputs. It does nothing else: it reads no input, state or clock,
//!     writes nothing, and ends with FORWARD or DROP ([`Rule::Parse`]).
//! 16. A match searches the rows of a replicated table, by a declaration whose columns the table has. Each part gets a
//!     value of its type, which is NULL only if the part allows NULL ([`Rule::Match`]).
//! 17. Only the TIMEOUT of a table reads its expired row, and only [`Op::Column`], [`Op::ColumnIsNull`] and
//!     [`Op::IsRow`] use that row ([`Rule::ExpiredRow`]).
//! 18. [`Op::Derived`] reads only inputs derived from the message (`InputLocation::is_derived`, [`Rule::Derived`]).
//!
//! [`verify_program`] also checks that a chain keeps its limits ([`Rule::Limit`]), and that the call's row has no gaps
//! or overlaps ([`Rule::Layout`]).

mod flow;
mod frame_bounds;
mod ops;
mod rows;
#[cfg(test)]
mod tests;

use crate::ir::*;
pub use crate::program::Handler;
use crate::program::{ChainProgram, RowRemoval, cell_words};
use core::fmt;
use flow::Flow;
pub use frame_bounds::{FrameOffset, ParserExit, bounds, exits, reads_in_bounds};
use weft_core::limits::{ELEMENTS_MAX, INPUTS_MAX, SCAN_ROWS_MAX};
use weft_core::table::TableSpec;
use weft_core::types::Repr;

// A cursor of a scan counts its rows in a signed integer of the language.
const _: () = assert!(SCAN_ROWS_MAX < i64::MAX as u64, "a scan can count its rows");

/// A rule of the module's list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the module lists them")]
pub enum Rule {
    Entry,
    Exists,
    DefinedOnce,
    Dominance,
    Type,
    Finished,
    Reachable,
    Jump,
    BackEdge,
    Written,
    Merge,
    NoTuple,
    ReadOnly,
    Stale,
    Parse,
    Match,
    ExpiredRow,
    Derived,
    Limit,
    Layout,
}

/// A position where a function or a chain is not well-formed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyError {
    /// The broken rule.
    pub rule: Rule,
    /// The function's name; empty for an error of the chain itself.
    pub function: String,
    /// The block.
    pub block: Option<BlockId>,
    /// The source line; 0 if there is none.
    pub line: u32,
    /// A description of the error.
    pub what: String,
}

impl fmt::Display for VerifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.function.is_empty() {
            write!(f, "{}: ", self.function)?;
        }
        if let Some(BlockId(block)) = self.block {
            write!(f, "block{block}: ")?;
        }
        if self.line != 0 {
            write!(f, "line {}: ", self.line)?;
        }
        f.write_str(&self.what)
    }
}

impl core::error::Error for VerifyError {}

/// The type of the operand that is a key of this table: the type of its only key column, or Bytes.
pub fn key_ty(spec: &TableSpec) -> Ty {
    match spec.key.as_slice() {
        [only] => Ty::of(only.ty),
        _ => Ty::Bytes,
    }
}

/// Checks one handler of a chain. It never panics, for any function.
///
/// # Errors
/// Returns what is not well-formed: at least one error, in the order of the blocks within each step of the check.
pub fn verify(function: &Function, chain: &ChainProgram, handler: Handler) -> Result<(), Vec<VerifyError>> {
    let mut check = Check { function, chain, handler, at: None, line: 0, errors: Vec::new() };
    // The later steps index by values and blocks, and must not run on a function that mentions missing ones.
    check.structure();
    if check.errors.is_empty() {
        let flow = Flow::of(function);
        check.reachable(&flow);
        if check.errors.is_empty() {
            check.types();
            check.dominance(&flow);
            check.back_edges(&flow);
        }
        if check.errors.is_empty() {
            check.stale(&flow);
        }
    }
    if check.errors.is_empty() { Ok(()) } else { Err(check.errors) }
}

/// Checks a chain and all handlers of its elements.
///
/// # Errors
/// Returns what is not well-formed: at least one error.
pub fn verify_program(chain: &ChainProgram) -> Result<(), Vec<VerifyError>> {
    let mut errors = chain_errors(chain);
    for (handler, function) in chain.elements.iter().flat_map(|element| element.handlers.all()) {
        errors.extend(verify(function, chain, handler).err().into_iter().flatten());
    }
    errors.extend(chain.elements.iter().flat_map(|e| &e.handlers.timeouts).filter_map(foreign_expired_row));
    if let Some(frames) = &chain.frames {
        errors.extend(verify(&frames.parser, chain, Handler::Parse).err().into_iter().flatten());
    }
    if errors.is_empty() { Ok(()) } else { Err(errors) }
}

/// The error if the TIMEOUT of one table reads the expired row of another table.
fn foreign_expired_row(
    (RowRemoval { table: of, .. }, function): &(RowRemoval, Function),
) -> Option<VerifyError> {
    let mut insts = blocks(function).flat_map(|(id, block)| block.insts.iter().map(move |inst| (id, inst)));
    let (block, inst) = insts.find(|(_, inst)| matches!(inst.op, Op::ExpiredRow(table) if table != *of))?;
    Some(VerifyError {
        rule: Rule::ExpiredRow,
        function: function.name.clone(),
        block: Some(block),
        line: inst.line,
        what: format!("the expired row of another table than t{}", of.0),
    })
}

/// Lists the back edges, (from, to), of a well-formed function.
pub(crate) fn back_edges(function: &Function) -> Vec<(BlockId, BlockId)> {
    let flow = Flow::of(function);
    let jumps =
        blocks(function).flat_map(|(id, block)| block.end.jumps().into_iter().map(move |j| (id, j.block)));
    jumps.filter(|&(from, to)| flow.is_back(from, to)).collect()
}

/// Checks the limits of a chain and the layout of the call's row; returns all errors.
fn chain_errors(chain: &ChainProgram) -> Vec<VerifyError> {
    let mut errors = Vec::new();
    let mut report = |rule, what| {
        errors.push(VerifyError { rule, function: String::new(), block: None, line: 0, what });
    };
    for (name, direction) in [("request", &chain.request), ("response", &chain.response)] {
        if direction.inputs.len() > INPUTS_MAX {
            report(
                Rule::Limit,
                format!("{} inputs of the {name}; at most {INPUTS_MAX}", direction.inputs.len()),
            );
        }
    }
    if chain.elements.len() > ELEMENTS_MAX {
        report(Rule::Limit, format!("{} elements; at most {ELEMENTS_MAX}", chain.elements.len()));
    }
    let mut word = 0;
    for cell in &chain.call {
        if cell.word as usize != word {
            report(Rule::Layout, format!("call cell {} is at word {}, not {word}", cell.name, cell.word));
        }
        if cell.ty.bytes_max().is_none() {
            report(Rule::Layout, format!("call cell {} is a {} without a bound", cell.name, cell.ty));
        }
        word = cell.word as usize + cell_words(cell.ty);
        let owner = chain.elements.iter().find(|e| e.name == cell.owner);
        if owner.is_some_and(|e| e.handlers.open.is_none()) {
            report(
                Rule::Layout,
                format!("{} has the call cell {} but no OPEN to set it", cell.owner, cell.name),
            );
        }
    }
    for var in &chain.vars {
        let repr = var.ty.repr();
        if repr == Repr::Bytes || (var.merge.is_some() && repr != Repr::Int) {
            report(Rule::Layout, format!("variable {} cannot be a {}", var.name, var.ty));
        }
    }
    for table in &chain.tables {
        if table.spec.key.is_empty() {
            report(Rule::Layout, format!("table {} has no key", table.spec.name));
        }
    }
    errors
}

struct Check<'a> {
    function: &'a Function,
    chain: &'a ChainProgram,
    handler: Handler,
    at: Option<BlockId>,
    line: u32,
    errors: Vec<VerifyError>,
}

impl<'a> Check<'a> {
    /// Adds an error at the current block and source line.
    fn report(&mut self, rule: Rule, what: String) {
        let function = self.function.name.clone();
        self.errors.push(VerifyError { rule, function, block: self.at, line: self.line, what });
    }

    /// Checks rules 1, 2 (values and blocks) and 3 (defined once).
    fn structure(&mut self) {
        let function = self.function;
        let Some(entry) = function.blocks.first() else {
            return self.report(Rule::Entry, "there is no block".into());
        };
        if !entry.params.is_empty() {
            self.report(Rule::Entry, "the entry has parameters".into());
        }
        let mut defined = vec![false; function.types.len()];
        for (id, block) in blocks(function) {
            self.at = Some(id);
            for &param in &block.params {
                self.line = 0;
                self.define(param, &mut defined);
            }
            for inst in &block.insts {
                self.line = inst.line;
                inst.op.operands().into_iter().for_each(|v| self.exists(v));
                inst.result.into_iter().for_each(|v| self.define(v, &mut defined));
            }
            self.line = block.end.line();
            block.end.operands().into_iter().for_each(|v| self.exists(v));
            for jump in block.end.jumps() {
                match jump.block {
                    BlockId(0) => self.report(Rule::Entry, "a jump to the entry".into()),
                    BlockId(n) if n as usize >= function.blocks.len() => {
                        self.report(Rule::Exists, format!("there is no block{n}"));
                    }
                    _ => {}
                }
            }
        }
        self.at = None;
    }

    /// Reports a value that the function does not have.
    fn exists(&mut self, value: Value) {
        if value.0 as usize >= self.function.types.len() {
            self.report(Rule::Exists, format!("v{} has no type", value.0));
        }
    }

    /// Marks a value as defined; reports a second definition.
    fn define(&mut self, value: Value, defined: &mut [bool]) {
        match defined.get_mut(value.0 as usize) {
            None => self.exists(value),
            Some(true) => self.report(Rule::DefinedOnce, format!("v{} is defined twice", value.0)),
            Some(defined) => *defined = true,
        }
    }

    /// Checks rule 5: each block is reachable and ends with a terminator.
    fn reachable(&mut self, flow: &Flow) {
        for (id, block) in blocks(self.function) {
            (self.at, self.line) = (Some(id), 0);
            if !flow.is_reachable(id) {
                self.report(Rule::Reachable, "no jump leads to the block".into());
            }
            if block.end == Terminator::Missing {
                self.report(Rule::Finished, "the block has no end".into());
            }
        }
    }

    /// Checks rule 3: definitions dominate uses.
    fn dominance(&mut self, flow: &Flow) {
        for (value, at, line) in flow.uses() {
            (self.at, self.line) = (Some(at.block), line);
            match flow.definition(value) {
                None => self.report(Rule::Dominance, format!("v{} is never defined", value.0)),
                Some(def) if !flow.dominates(def, at) => {
                    self.report(Rule::Dominance, format!("v{} is not defined on all paths here", value.0));
                }
                Some(_) => {}
            }
        }
    }

    /// Checks rule 7: back edges only go to the heads of scans.
    fn back_edges(&mut self, flow: &Flow) {
        for (id, block) in blocks(self.function) {
            (self.at, self.line) = (Some(id), 0);
            if block.scan_rows_max.is_some_and(|max| max > SCAN_ROWS_MAX) {
                self.report(Rule::BackEdge, format!("a scan visits at most {SCAN_ROWS_MAX} rows"));
            }
            for jump in block.end.jumps().into_iter().filter(|jump| flow.is_back(id, jump.block)) {
                let head = &self.function.blocks[jump.block.0 as usize];
                if head.scan_rows_max.is_none() || !flow.block_dominates(jump.block, id) {
                    self.report(
                        Rule::BackEdge,
                        format!("block{} is not the head of a scan here", jump.block.0),
                    );
                }
            }
        }
    }
}

fn blocks(function: &Function) -> impl Iterator<Item = (BlockId, &Block)> {
    function.blocks.iter().enumerate().map(|(i, block)| (BlockId(i as u32), block))
}

/// The table and row that an operation uses; None if it uses none.
fn row_of(op: &Op) -> Option<(TableId, Value)> {
    match *op {
        Op::Remove(table, row, _)
        | Op::Touch(table, row)
        | Op::TouchRead(table, row)
        | Op::Column(table, row, _)
        | Op::ColumnIsNull(table, row, _)
        | Op::SetColumn(table, row, ..)
        | Op::SetColumnNull(table, row, ..)
        | Op::CountInto(table, row, ..) => Some((table, row)),
        _ => None,
    }
}
