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
//! 18. [`Op::Derived`] reads only inputs derived from the message ([`InputLocation::is_derived`], [`Rule::Derived`]).
//!
//! [`verify_program`] also checks that a chain keeps its limits ([`Rule::Limit`]), and that the call's row has no gaps
//! or overlaps ([`Rule::Layout`]).

mod flow;
mod frame_bounds;
#[cfg(test)]
mod tests;

use crate::ir::*;
pub use crate::program::Handler;
use crate::program::{ChainProgram, Input, InputLocation, Realisation, RowRemoval, cell_words};
use core::fmt;
use flow::{Flow, Point};
pub use frame_bounds::{FrameOffset, ParserExit, bounds, exits, reads_in_bounds};
use std::collections::{BTreeMap, BTreeSet};
use weft_core::limits::{ELEMENTS_MAX, INPUTS_MAX, SCAN_ROWS_MAX};
use weft_core::matching::{MatchPart, Test};
use weft_core::native::Param;
use weft_core::table::TableSpec;
use weft_core::types::{Repr, Type};

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

/// Whether the operation is allowed in PARSE.
fn may_parse(op: &Op) -> bool {
    use Op::{
        BoolBinary, BoolConst, BoolToInt, FrameGet, FrameLen, FrameSum, Give, InRange, IntBinary, IntCompare,
        IntConst, Not, Select,
    };
    matches!(
        op,
        BoolConst(_)
            | IntConst(_)
            | IntBinary(..)
            | IntCompare(..)
            | InRange(..)
            | BoolBinary(..)
            | Not(_)
            | Select(..)
            | BoolToInt(_)
            | FrameLen
            | FrameGet(..)
            | FrameSum(..)
            | Give(..)
    )
}

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

/// The result of an operation: nothing, or a value of a type. The type None fits any type, because the check has
/// already reported an error.
enum OpResult {
    Nothing,
    Value(Option<Ty>),
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

    /// Checks rules 4, 6 and 8 to 11, and rule 2 for names that the chain declares.
    fn types(&mut self) {
        for (id, block) in blocks(self.function) {
            self.at = Some(id);
            for inst in &block.insts {
                self.line = inst.line;
                let gives = self.check_op(&inst.op);
                self.check_result(inst, &gives);
                if self.handler == Handler::Parse && !may_parse(&inst.op) {
                    self.report(Rule::Parse, "PARSE only reads the frame".into());
                }
            }
            self.line = block.end.line();
            self.check_terminator(&block.end);
            let ends = matches!(
                block.end,
                Terminator::Jump(_) | Terminator::Branch(..) | Terminator::Forward | Terminator::Drop { .. }
            );
            if self.handler == Handler::Parse && !ends {
                self.report(Rule::Parse, "PARSE ends with FORWARD or DROP".into());
            }
        }
    }

    /// Checks the result of an instruction against what its operation gives.
    fn check_result(&mut self, inst: &Inst, gives: &OpResult) {
        match (inst.result, gives) {
            (None, OpResult::Nothing) | (Some(_), OpResult::Value(None)) => {}
            (Some(v), OpResult::Value(Some(ty))) => {
                if self.function.ty(v) != *ty {
                    self.report(
                        Rule::Type,
                        format!("v{} is {:?}, but gets {ty:?}", v.0, self.function.ty(v)),
                    );
                }
            }
            (Some(v), OpResult::Nothing) => self.report(Rule::Type, format!("v{} gets no value", v.0)),
            (None, OpResult::Value(_)) => self.report(Rule::Type, "the result is not named".into()),
        }
    }

    /// Checks that a value has this type.
    fn want(&mut self, value: Value, ty: Ty) {
        let is = self.function.ty(value);
        if is != ty {
            self.report(Rule::Type, format!("v{} is {is:?}; expected {ty:?}", value.0));
        }
    }

    /// Checks that all values have this type.
    fn want_all(&mut self, values: &[Value], ty: Ty) {
        values.iter().for_each(|&v| self.want(v, ty));
    }

    /// All values must have the type `takes`; the operation gives `gives`.
    fn maps(&mut self, values: &[Value], takes: Ty, gives: Ty) -> OpResult {
        self.want_all(values, takes);
        OpResult::Value(Some(gives))
    }

    /// Checks the operands of an operation; returns what it gives.
    fn check_op(&mut self, op: &Op) -> OpResult {
        use Ty::{Bool, Bytes, Float, Int, Row};
        match *op {
            Op::BoolConst(_) | Op::ScratchFull => OpResult::Value(Some(Bool)),
            Op::IntConst(_) => OpResult::Value(Some(Int)),
            Op::FloatConst(_) | Op::Rand(_) => OpResult::Value(Some(Float)),
            Op::BytesConst(_) | Op::Egress => OpResult::Value(Some(Bytes)),
            Op::NoRow => OpResult::Value(Some(Row)),
            Op::Now => OpResult::Value(Some(Int)),
            Op::IntBinary(_, a, b) | Op::HashMix(a, b) => self.maps(&[a, b], Int, Int),
            Op::Overflows(op, signed, a, b) => {
                let asked = match op {
                    IntOp::Add | IntOp::Sub | IntOp::Mul => true,
                    IntOp::SDiv => signed == Signed::Yes,
                    _ => false,
                };
                if !asked {
                    self.report(Rule::Type, format!("{op:?} does not overflow"));
                }
                self.maps(&[a, b], Int, Bool)
            }
            Op::IntCompare(_, a, b) => self.maps(&[a, b], Int, Bool),
            Op::InRange(a, ..) => self.maps(&[a], Int, Bool),
            Op::FloatBinary(_, a, b) => self.maps(&[a, b], Float, Float),
            Op::FloatUnary(_, a) => self.maps(&[a], Float, Float),
            Op::FloatCompare(_, a, b) => self.maps(&[a, b], Float, Bool),
            Op::IntToFloat(_, a) => self.maps(&[a], Int, Float),
            Op::FloatToInt(_, a) => self.maps(&[a], Float, Int),
            Op::FloatFits(_, a) => self.maps(&[a], Float, Bool),
            Op::IntToText(_, a) => self.maps(&[a], Int, Bytes),
            Op::FloatToText(a) => self.maps(&[a], Float, Bytes),
            Op::IsIntText(_, a) | Op::IsFloatText(a) | Op::InPrefixes(a, _) => self.maps(&[a], Bytes, Bool),
            Op::TextToFloat(a) => self.maps(&[a], Bytes, Float),
            Op::TextToInt(_, a) | Op::Len(a) | Op::ByteAt(a, _) => self.maps(&[a], Bytes, Int),
            Op::WordAt(a, at) => {
                self.want(at, Int);
                self.maps(&[a], Bytes, Int)
            }
            Op::FloatOfBits(a) => self.maps(&[a], Int, Float),
            Op::BoolToInt(a) => self.maps(&[a], Bool, Int),
            Op::BoolBinary(_, a, b) => self.maps(&[a, b], Bool, Bool),
            Op::Not(a) => self.maps(&[a], Bool, Bool),
            Op::Select(by, a, b) => {
                self.want(by, Bool);
                let ty = self.function.ty(a);
                self.maps(&[b], ty, ty)
            }
            Op::BytesCompare(_, a, b) | Op::InPrefix(a, b) => self.maps(&[a, b], Bytes, Bool),
            Op::Concat(ref parts) => self.maps(parts, Bytes, Bytes),
            Op::Lower(a) | Op::Upper(a) => self.maps(&[a], Bytes, Bytes),
            Op::Slice(a, from, count) | Op::Part(a, from, count) => {
                self.want_all(&[from, count], Int);
                self.maps(&[a], Bytes, Bytes)
            }
            Op::Hash(a) => {
                if self.function.ty(a) != Int {
                    self.want(a, Bytes);
                }
                OpResult::Value(Some(Int))
            }
            Op::Native(id, ref args) => self.check_native(id, args),
            Op::NativeNull(a) | Op::NativeFailed(a) => {
                let insts = self.function.insts();
                let gives = |inst: &Inst| inst.result == Some(a) && matches!(inst.op, Op::Native(..));
                if !insts.into_iter().any(gives) {
                    self.report(Rule::Type, format!("v{} is not the result of a native function", a.0));
                }
                OpResult::Value(Some(Bool))
            }
            Op::Input(id) => OpResult::Value(self.input(id).map(|input| Ty::of(input.ty))),
            Op::Derived(id) => {
                let input = self.input(id);
                if let Some(other) = input.filter(|input| !input.place.is_derived()) {
                    self.report(Rule::Derived, format!("{} is not derived from the message", other.name));
                }
                OpResult::Value(input.map(|input| Ty::of(input.ty)))
            }
            Op::InputPresent(id) => {
                self.input(id);
                OpResult::Value(Some(Bool))
            }
            Op::SetInput(..)
            | Op::ClearInput(_)
            | Op::SetAnswer(..)
            | Op::SetReply(..)
            | Op::ChangeHeaders(..)
            | Op::Delay(_)
            | Op::Mark(..)
            | Op::Mirror(_)
            | Op::Emit(..) => self.check_output_op(op),
            Op::CallGet(_)
            | Op::CallSet(..)
            | Op::VarGet(_)
            | Op::VarSet(..)
            | Op::VarMerge(..)
            | Op::VarMerged(_)
            | Op::VarReset(_) => self.check_scalar_op(op),
            Op::Key(ref parts) => {
                if parts.is_empty() || parts.iter().any(|&v| self.function.ty(v) == Row) {
                    self.report(Rule::Type, "a key needs one or more values, and no rows".into());
                }
                OpResult::Value(Some(Bytes))
            }
            Op::IsRow(row) => self.maps(&[row], Row, Bool),
            Op::LockVars | Op::RollBack => OpResult::Nothing,
            Op::FrameLen | Op::FrameGet(..) | Op::FrameSum(..) | Op::Give(..) => self.check_frame_op(op),
            _ => self.check_table_op(op),
        }
    }

    /// Checks rule 15 for an operation on frame bytes or given inputs.
    fn check_frame_op(&mut self, op: &Op) -> OpResult {
        if self.handler != Handler::Parse {
            self.report(Rule::Parse, "only PARSE reads the bytes of a frame".into());
        }
        match *op {
            Op::FrameGet(at, bytes, _) => {
                if !(1..=8).contains(&bytes) {
                    self.report(Rule::Parse, format!("a number of {bytes} bytes; 1 to 8 can be read"));
                }
                self.maps(&[at], Ty::Int, Ty::Int)
            }
            Op::FrameSum(at, bytes) => self.maps(&[at, bytes], Ty::Int, Ty::Int),
            Op::Give(id, a, b) => {
                let input = self.input(id);
                if input.is_some_and(|input| {
                    !matches!(input.place, InputLocation::Frame(_) | InputLocation::Layer(_))
                }) {
                    self.report(Rule::Parse, format!("input {} is not of the frame", id.0));
                }
                if b.is_none() && input.is_some_and(|input| Ty::of(input.ty) == Ty::Bytes) {
                    self.report(Rule::Parse, format!("input {} is a run of bytes without its length", id.0));
                }
                self.want_all(&[a, b.unwrap_or(a)], Ty::Int);
                OpResult::Nothing
            }
            _ => OpResult::Value(Some(Ty::Int)),
        }
    }

    /// Checks rule 14: the arguments of a native function fit its parameters.
    fn check_native(&mut self, id: NativeId, args: &[Value]) -> OpResult {
        let Some(decl) = self.declared("native function", &self.chain.natives, id.0) else {
            return OpResult::Value(None);
        };
        let info = decl.native.info();
        let params: Vec<Param> = info.params.iter().copied().filter(|param| !param.is_constant()).collect();
        if params.len() != args.len() {
            let (n, name) = (args.len(), info.name);
            self.report(Rule::Type, format!("{n} values for the {} parameters of {name}", params.len()));
        }
        for (&arg, param) in args.iter().zip(params) {
            match param {
                Param::Int => self.want(arg, Ty::Int),
                Param::Scalar if self.function.ty(arg) == Ty::Row => self.want(arg, Ty::Bytes),
                Param::Scalar => {}
                _ => self.want(arg, Ty::Bytes),
            }
        }
        OpResult::Value(Some(Ty::of(info.result)))
    }

    /// Finds an input of the handler's direction; reports an error if there is none.
    fn input(&mut self, id: InputId) -> Option<&'a Input> {
        let Some(direction) = self.handler.direction(self.chain) else {
            self.report(Rule::NoTuple, "EVERY has no inputs".into());
            return None;
        };
        let input = direction.inputs.get(usize::from(id.0));
        if input.is_none() {
            self.report(Rule::Exists, format!("there is no input {}", id.0));
        }
        input
    }

    /// Finds an input; reports an error if it is not declared as written.
    fn written_input(&mut self, id: InputId) -> Option<&'a Input> {
        let input = self.input(id)?;
        if !input.written {
            self.report(Rule::Written, format!("input {} is changed, but not declared so", input.name));
        }
        Some(input)
    }

    /// Reports an error in handlers without a tuple.
    fn needs_tuple(&mut self, what: &str) {
        if self.handler.is_timed() {
            self.report(Rule::NoTuple, format!("{what} in EVERY or TIMEOUT, where there is no tuple"));
        }
    }

    /// Finds a declaration by its index; reports an error if there is none.
    fn declared<T>(&mut self, what: &str, list: &'a [T], index: u16) -> Option<&'a T> {
        let found = list.get(usize::from(index));
        if found.is_none() {
            self.report(Rule::Exists, format!("there is no {what} {index}"));
        }
        found
    }

    /// Checks an operation on the tuple or the outputs; returns what it gives.
    fn check_output_op(&mut self, op: &Op) -> OpResult {
        let chain = self.chain;
        match *op {
            Op::SetInput(id, value) => {
                if let Some(input) = self.written_input(id) {
                    self.want(value, Ty::of(input.ty));
                }
            }
            Op::ClearInput(id) => {
                let input = self.written_input(id);
                let clears = |i: &Input| {
                    i.nullable
                        || i.place.path().is_some()
                        || matches!(i.place, InputLocation::Header(_) | InputLocation::Trailer(_))
                };
                if input.is_some_and(|i| !clears(i)) {
                    self.report(Rule::Written, format!("input {} cannot be NULL", id.0));
                }
            }
            Op::SetAnswer(name, value) => {
                self.needs_tuple("an answer");
                self.declared("answer", &chain.answers, name.0);
                self.want(value, Ty::Bytes);
            }
            Op::SetReply(name, value) => {
                self.needs_tuple("a reply");
                if let Some(field) = self.declared("reply field", &chain.replies, name.0) {
                    self.want(value, Ty::of(field.ty));
                }
            }
            Op::ChangeHeaders(id, ref parts) => {
                self.needs_tuple("another frame");
                let Some(decl) = self.declared("change of structure", &chain.header_changes, id.0) else {
                    return OpResult::Nothing;
                };
                if decl.params.len() != parts.len() {
                    let (n, params) = (parts.len(), decl.params.len());
                    self.report(Rule::Type, format!("{n} values for {params} parameters of r{}", id.0));
                }
                for (ty, part) in decl.params.iter().zip(parts) {
                    self.want(*part, Ty::of(*ty));
                }
            }
            Op::Delay(value) | Op::Mark(_, value) => {
                self.needs_tuple("a delay or mark");
                self.want(value, Ty::Int);
            }
            Op::Mirror(value) => {
                self.needs_tuple("a mirror");
                self.want(value, Ty::Bytes);
            }
            Op::Emit(id, ref cells) => {
                let Some(sink) = self.declared("sink", &chain.sinks, id.0) else { return OpResult::Nothing };
                if sink.columns.len() != cells.len() {
                    let (n, columns) = (cells.len(), sink.columns.len());
                    self.report(Rule::Type, format!("{n} cells for the {columns} columns of {}", sink.name));
                }
                for (column, &(value, null)) in sink.columns.iter().zip(cells) {
                    self.want(value, Ty::of(column.ty));
                    null.into_iter().for_each(|null| self.want(null, Ty::Bool));
                }
            }
            _ => {}
        }
        OpResult::Nothing
    }

    /// Checks an operation on call cells or variables; returns what it gives.
    fn check_scalar_op(&mut self, op: &Op) -> OpResult {
        let chain = self.chain;
        match *op {
            Op::CallGet(id) => {
                OpResult::Value(self.declared("call cell", &chain.call, id.0).map(|c| Ty::of(c.ty)))
            }
            Op::CallSet(id, value, _) => {
                if let Some(cell) = self.declared("call cell", &chain.call, id.0) {
                    self.want(value, Ty::of(cell.ty));
                }
                OpResult::Nothing
            }
            Op::VarGet(id) => OpResult::Value(self.var(id, false)),
            Op::VarSet(id, value, _) => {
                if let Some(ty) = self.var(id, false) {
                    self.want(value, ty);
                }
                OpResult::Nothing
            }
            Op::VarMerge(id, value, _) => {
                self.var(id, true);
                self.want(value, Ty::Int);
                OpResult::Nothing
            }
            Op::VarMerged(id) => {
                self.merged(id);
                OpResult::Value(Some(Ty::Int))
            }
            Op::VarReset(id) => {
                self.merged(id);
                OpResult::Nothing
            }
            _ => OpResult::Nothing,
        }
    }

    /// Checks a use of a merged variable's value, which only EVERY may read or reset.
    fn merged(&mut self, id: VarId) {
        self.var(id, true);
        if self.handler != Handler::Every {
            self.report(Rule::Merge, "only EVERY reads merged values".into());
        }
    }

    /// The type of a variable; reports an error if it is MERGE and `merge` is false, or the reverse.
    fn var(&mut self, id: VarId, merge: bool) -> Option<Ty> {
        let chain = self.chain;
        let var = self.declared("variable", &chain.vars, id.0)?;
        if var.merge.is_some() != merge {
            let is = if merge { "is not" } else { "is" };
            self.report(Rule::Merge, format!("variable {} {is} declared MERGE", var.name));
        }
        Some(Ty::of(var.ty))
    }

    /// Checks an operation on a table; returns what it gives.
    fn check_table_op(&mut self, op: &Op) -> OpResult {
        let (table, row) = match *op {
            Op::Find(table, key) => return self.check_keyed_op(table, key, false),
            Op::Match(table, id, ref keys) => return self.check_match(table, id, keys),
            Op::Insert(table, key, _) => return self.check_keyed_op(table, key, true),
            Op::Lock(table, key) => {
                match key {
                    Some(key) => drop(self.check_keyed_op(table, key, false)),
                    None => drop(self.table(table)),
                }
                return OpResult::Nothing;
            }
            Op::Count(table) => {
                self.table(table);
                return OpResult::Value(Some(Ty::Int));
            }
            Op::ScanRow(table, cursor) => {
                self.table(table);
                return self.maps(&[cursor], Ty::Int, Ty::Row);
            }
            Op::ExpiredRow(table) => {
                self.table(table);
                if self.handler != Handler::Timeout {
                    self.report(Rule::ExpiredRow, "only TIMEOUT has an expired row".into());
                }
                return OpResult::Value(Some(Ty::Row));
            }
            Op::ScanNext(table, row) => {
                self.table(table);
                return self.maps(&[row], Ty::Row, Ty::Int);
            }
            _ => match row_of(op) {
                Some(found) => found,
                None => return OpResult::Nothing,
            },
        };
        self.want(row, Ty::Row);
        match *op {
            Op::Column(_, _, column) => {
                OpResult::Value(self.column(table, column).map(|(ty, ..)| Ty::of(ty)))
            }
            Op::ColumnIsNull(_, _, column) => {
                self.column(table, column);
                OpResult::Value(Some(Ty::Bool))
            }
            Op::SetColumn(_, _, column, value, _) => {
                self.check_writable(table);
                if let Some((ty, _, is_key)) = self.column(table, column) {
                    self.want(value, Ty::of(ty));
                    self.refuse_key_column(is_key);
                }
                OpResult::Value(Some(Ty::Bool))
            }
            Op::CountInto(_, _, column, bin, _) => {
                self.check_writable(table);
                self.want(bin, Ty::Int);
                if let Some((ty, _, is_key)) = self.column(table, column) {
                    self.refuse_key_column(is_key);
                    if Ty::of(ty) != Ty::Bytes {
                        self.report(Rule::Type, "counters are in a column of bytes".into());
                    }
                }
                OpResult::Nothing
            }
            Op::SetColumnNull(_, _, column, _) => {
                self.check_writable(table);
                if let Some((_, nullable, is_key)) = self.column(table, column) {
                    self.refuse_key_column(is_key);
                    if !nullable {
                        self.report(Rule::ReadOnly, "the column cannot be NULL".into());
                    }
                }
                OpResult::Nothing
            }
            // TouchRead marks the row in any copy of the table.
            Op::TouchRead(..) => OpResult::Nothing,
            _ => {
                self.check_writable(table);
                OpResult::Nothing
            }
        }
    }

    /// Checks an access by key; `writes` says whether it changes the table. It gives a row.
    fn check_keyed_op(&mut self, table: TableId, key: Value, writes: bool) -> OpResult {
        if let Some(spec) = self.table(table) {
            self.want(key, key_ty(spec));
        }
        if writes {
            self.check_writable(table);
        }
        OpResult::Value(Some(Ty::Row))
    }

    /// Checks rule 16: a match has a replicated table and a value of the right type for each part.
    fn check_match(&mut self, table: TableId, id: MatchId, keys: &[(Value, Option<Value>)]) -> OpResult {
        let gives = OpResult::Value(Some(Ty::Row));
        let Some(decl) = self.declared("match", &self.chain.matches, id.0) else { return gives };
        let Some(held) = self.declared("table", &self.chain.tables, table.0) else { return gives };
        if decl.table != table || held.realisation != Realisation::Replicated || !decl.spec.is_sound() {
            let what = format!("match {} is not on a replicated table {}", id.0, table.0);
            self.report(Rule::Match, what);
            return gives;
        }
        let types: Vec<Type> =
            held.spec.key.iter().chain(&held.spec.columns).map(|column| column.ty).collect();
        let fits = |column: u16, fits: &dyn Fn(Type) -> bool| {
            types.get(usize::from(column)).is_some_and(|ty| fits(*ty))
        };
        let is_ordered = fits(decl.spec.by, &|ty| ty.repr() == Repr::Int);
        let is_tested = |part: &MatchPart| {
            part.test.columns().all(|column| match part.test {
                Test::Within(_) => fits(column, &|ty| ty == Type::Cidr),
                Test::Masked { .. } => fits(column, &|ty| matches!(ty, Type::Int(_) | Type::Uint(_))),
                Test::Equal(_) | Test::Range { .. } => fits(column, &|ty| ty.repr() == part.ty.repr()),
            })
        };
        if !is_ordered || !decl.spec.parts.iter().all(is_tested) {
            self.report(Rule::Match, format!("match {} does not fit the columns of table {}", id.0, table.0));
        }
        if decl.spec.parts.len() != keys.len() {
            let (n, parts) = (keys.len(), decl.spec.parts.len());
            self.report(Rule::Match, format!("{n} values for the {parts} parts of match {}", id.0));
        }
        for (part, &(value, null)) in decl.spec.parts.iter().zip(keys) {
            self.want(value, Ty::of(part.ty));
            if null.is_some() && !part.nullable {
                self.report(Rule::Match, format!("v{} may be NULL, but its part may not", value.0));
            }
            null.into_iter().for_each(|null| self.want(null, Ty::Bool));
        }
        gives
    }

    /// The specification of a table; reports an error and returns None if it does not exist.
    fn table(&mut self, table: TableId) -> Option<&'a TableSpec> {
        let chain = self.chain;
        self.declared("table", &chain.tables, table.0).map(|decl| &decl.spec)
    }

    /// Finds a column: its type, whether it may be NULL, and whether it belongs to the key. Reports an error if there
    /// is none.
    fn column(&mut self, table: TableId, column: ColumnId) -> Option<(Type, bool, bool)> {
        let spec = self.table(table)?;
        let index = usize::from(column.0);
        let Some(found) = spec.key.iter().chain(&spec.columns).nth(index) else {
            self.report(Rule::Exists, format!("table {} has no column {index}", spec.name));
            return None;
        };
        Some((found.ty, found.nullable, index < spec.key.len()))
    }

    /// Reports an error if the table is replicated.
    fn check_writable(&mut self, table: TableId) {
        let decl = self.chain.tables.get(usize::from(table.0));
        if decl.is_some_and(|t| t.realisation == Realisation::Replicated) {
            self.report(Rule::ReadOnly, format!("table {} is replicated and cannot be written", table.0));
        }
    }

    /// Reports an error for a write to a key column.
    fn refuse_key_column(&mut self, is_key: bool) {
        if is_key {
            self.report(Rule::ReadOnly, "a key column cannot be set".into());
        }
    }

    /// Checks the operands and jumps of a terminator, and whether the handler allows it.
    fn check_terminator(&mut self, end: &Terminator) {
        match end {
            Terminator::Branch(by, ..) => self.want(*by, Ty::Bool),
            Terminator::Abort { status, text, .. } => {
                if let StatusOperand::Computed(code) = *status {
                    self.want(code, Ty::Int);
                }
                text.iter().for_each(|&text| self.want(text, Ty::Bytes));
            }
            Terminator::Redirect { to, .. } => self.want(*to, Ty::Bytes),
            Terminator::Fail { fault, .. } => self.want(*fault, Ty::Int),
            _ => {}
        }
        if matches!(
            end,
            Terminator::Drop { .. }
                | Terminator::Abort { .. }
                | Terminator::Reply { .. }
                | Terminator::Redirect { .. }
                | Terminator::Skip
                | Terminator::Steer { .. }
        ) {
            self.needs_tuple("a verdict");
        }
        for jump in end.jumps() {
            self.check_jump(jump);
        }
    }

    /// Checks that a jump passes values of the types that the block takes.
    fn check_jump(&mut self, jump: &Jump) {
        let params = &self.function.blocks[jump.block.0 as usize].params;
        let types = |values: &[Value]| values.iter().map(|&v| self.function.ty(v)).collect::<Vec<_>>();
        let (wanted, given) = (types(params), types(&jump.args));
        if wanted != given {
            self.report(Rule::Jump, format!("block{} takes {wanted:?}, but gets {given:?}", jump.block.0));
        }
    }

    /// Checks rule 12: no use of rows and bytes after they may have become stale.
    fn stale(&mut self, flow: &Flow) {
        let tables = tables_of_rows(self.function);
        self.check_foreign_rows(&tables);
        self.only_read_expired_rows();
        let may_move = bytes_that_may_move(self.function);
        let function = self.function;
        let kills = |inst: &Inst, value: Value| match inst.op {
            Op::Insert(table, ..) | Op::Remove(table, ..) => {
                tables[value.0 as usize].contains(&table.0) && inst.result != Some(value)
            }
            Op::RollBack => function.ty(value) == Ty::Row || may_move[value.0 as usize],
            _ => false,
        };
        let uses = flow.uses_of_all();
        let mut dead: BTreeMap<(u32, usize), Vec<Value>> = BTreeMap::new();
        let may_die = |value: &Value| !tables[value.0 as usize].is_empty() || may_move[value.0 as usize];
        let may_die = |value: &Value| may_die(value) || function.ty(*value) == Ty::Row;
        for value in values(function).filter(may_die) {
            for (block, from, to) in flow.lives(value, &uses[value.0 as usize]) {
                let insts = &function.blocks[block.0 as usize].insts;
                let (from, to) = (from.saturating_sub(1), to.saturating_sub(1));
                for (index, inst) in insts.iter().enumerate().take(to).skip(from) {
                    if kills(inst, value) {
                        dead.entry((block.0, index)).or_default().push(value);
                    }
                }
            }
        }
        for ((id, index), mut killed) in dead {
            let inst = &function.blocks[id as usize].insts[index];
            killed.sort_unstable();
            killed.dedup();
            let behind = Point { block: BlockId(id), index: index + 2 };
            for (value, at, line) in flow.uses_behind(behind, &killed) {
                (self.at, self.line) = (Some(at.block), line);
                if !(is_row_at(self.function, at) && inst.op != Op::RollBack) {
                    self.report(Rule::Stale, format!("v{} is used after {:?}", value.0, inst.op));
                }
            }
        }
    }

    /// Checks rule 17: only operations that read an expired row use it.
    fn only_read_expired_rows(&mut self) {
        let insts = || self.function.insts();
        let expired = insts().filter(|inst| matches!(inst.op, Op::ExpiredRow(_)));
        let expired: BTreeSet<Value> = expired.filter_map(|inst| inst.result).collect();
        if expired.is_empty() {
            return;
        }
        let reads = |op: &Op| matches!(op, Op::Column(..) | Op::ColumnIsNull(..) | Op::IsRow(_));
        for (id, block) in blocks(self.function) {
            let of_insts = block.insts.iter().filter(|inst| !reads(&inst.op));
            let used = of_insts.flat_map(|inst| inst.op.operands()).chain(block.end.operands());
            for value in used.filter(|value| expired.contains(value)).collect::<BTreeSet<_>>() {
                (self.at, self.line) = (Some(id), 0);
                self.report(
                    Rule::ExpiredRow,
                    format!("v{} is an expired row, which can only be read", value.0),
                );
            }
        }
    }

    /// Checks rule 12: a row is used only with its own table.
    fn check_foreign_rows(&mut self, tables: &[BTreeSet<u16>]) {
        for (id, block) in blocks(self.function) {
            self.at = Some(id);
            for inst in &block.insts {
                self.line = inst.line;
                let Some((table, row)) = row_of(&inst.op) else { continue };
                if tables[row.0 as usize].iter().any(|&t| t != table.0) {
                    self.report(Rule::Stale, format!("v{} is no row of table {}", row.0, table.0));
                }
            }
        }
    }
}

fn blocks(function: &Function) -> impl Iterator<Item = (BlockId, &Block)> {
    function.blocks.iter().enumerate().map(|(i, block)| (BlockId(i as u32), block))
}

fn values(function: &Function) -> impl Iterator<Item = Value> + use<> {
    (0..function.types.len() as u32).map(Value)
}

fn is_row_at(function: &Function, at: Point) -> bool {
    let inst = at.index.checked_sub(1).and_then(|i| function.blocks[at.block.0 as usize].insts.get(i));
    inst.is_some_and(|inst| matches!(inst.op, Op::IsRow(_)))
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

/// Finds, for each value, the tables whose row it may be.
fn tables_of_rows(function: &Function) -> Vec<BTreeSet<u16>> {
    let mut tables = vec![BTreeSet::new(); function.types.len()];
    propagate(function, |to, from: Source<'_>| {
        let new: BTreeSet<u16> = match from {
            Source::Op(Op::Find(t, _) | Op::Insert(t, ..) | Op::ScanRow(t, _) | Op::Match(t, ..))
            | Source::Op(Op::ExpiredRow(t)) => [t.0].into(),
            Source::Op(Op::Select(_, a, b)) => &tables[a.0 as usize] | &tables[b.0 as usize],
            Source::Op(_) => BTreeSet::new(),
            Source::Value(v) => tables[v.0 as usize].clone(),
        };
        let known = &mut tables[to.0 as usize];
        let before = known.len();
        known.extend(new);
        known.len() != before
    });
    tables
}

/// For each value, whether it is bytes in the part of the scratch that a RollBack frees. Constants are not, and neither
/// are inputs, unless this function changes the input.
fn bytes_that_may_move(function: &Function) -> Vec<bool> {
    let insts = || function.insts();
    let set: BTreeSet<InputId> = insts()
        .filter_map(|inst| match inst.op {
            Op::SetInput(id, _) => Some(id),
            _ => None,
        })
        .collect();
    let mut moves = vec![false; function.types.len()];
    propagate(function, |to, from| {
        let new = match from {
            _ if function.ty(to) != Ty::Bytes => false,
            Source::Op(Op::BytesConst(_)) => false,
            Source::Op(Op::Input(id)) => set.contains(id),
            Source::Op(Op::Slice(a, ..)) => moves[a.0 as usize],
            Source::Op(Op::Select(_, a, b)) => moves[a.0 as usize] || moves[b.0 as usize],
            Source::Op(_) => true,
            Source::Value(v) => moves[v.0 as usize],
        };
        let known = &mut moves[to.0 as usize];
        let changed = new && !*known;
        *known |= new;
        changed
    });
    moves
}

/// The source of a value: an operation or a jump argument.
enum Source<'a> {
    Op(&'a Op),
    Value(Value),
}

/// Calls `step` for each value and each of its sources until a round changes nothing.
fn propagate<'a>(function: &'a Function, mut step: impl FnMut(Value, Source<'a>) -> bool) {
    let mut changed = true;
    while changed {
        changed = false;
        for block in &function.blocks {
            for inst in &block.insts {
                if let Some(result) = inst.result {
                    changed |= step(result, Source::Op(&inst.op));
                }
            }
            for jump in block.end.jumps() {
                let params = &function.blocks[jump.block.0 as usize].params;
                for (&param, &arg) in params.iter().zip(&jump.args) {
                    changed |= step(param, Source::Value(arg));
                }
            }
        }
    }
}
