//! The interpreter, which defines the semantics of the IR.
//!
//! Read it beside [`crate::ir`]: it evaluates one value at a time, each operation as its doc says, and copies bytes
//! where that is simplest. All other back ends are tested against it, so it shares no code with them.
//!
//! `numbers` and `bytes` hold the operations on operands alone, `tables` those on tables. `access` records what a pass
//! touches ([`run_with_accesses`]). This module has the pass, the handler, and all effects on the outcome.

mod access;
mod bytes;
mod matching;
pub(crate) mod numbers;
mod tables;
#[cfg(test)]
mod tests;

use crate::backend::{Backend, Program, Unsupported};
use crate::ir::*;
use crate::program::{
    ChainProgram, Event, Frames, Input, InputLocation, Merge, Meta, Part, VarDecl, cell_words,
};
use crate::verify::{self, Handler};
use core::fmt;
use std::sync::Arc;
use weft_core::abi::{
    self, Cell, Cx, EditTarget, Fault, Point, REGION_BODY, REGION_META, Rewrite, ShortName, SinkRow, Slot,
    State, TupleEdit, Verdict,
};
use weft_core::hash;
use weft_core::native::{Arg, Call, Ended};
use weft_core::table::{ColumnRef, Row};
use weft_core::types::Type;
use weft_core::{Interval, Status};

pub use access::{Access, AccessAt};
pub use numbers::evaluate;

/// The interpreting back end.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interp;

impl Backend for Interp {
    fn name(&self) -> &'static str {
        "interp"
    }

    fn compile(
        &self,
        chain: &Arc<ChainProgram>,
        event: Event,
        state: &State,
    ) -> Result<Box<dyn Program>, Unsupported> {
        for part in chain.parts(event) {
            verify::verify(part.function, chain, Handler::of(event)).map_err(|errors| {
                let first = &errors[0];
                Unsupported { reason: format!("not well-formed: {first}"), line: first.line }
            })?;
        }
        let columns = columns(chain, state)?;
        if state.natives.len() < chain.natives.len() {
            return Err(Unsupported { reason: "the state lacks a function of the chain".into(), line: 0 });
        }
        assert_eq!(columns.len(), chain.tables.len(), "each table has its columns");
        Ok(Box::new(Interpreted { chain: chain.clone(), event, columns }))
    }
}

/// Locates the columns of each table, keys first. An error if the state lacks a table or column.
fn columns(chain: &ChainProgram, state: &State) -> Result<Vec<Vec<ColumnRef>>, Unsupported> {
    let unsupported = |reason| Unsupported { reason, line: 0 };
    let mut columns = Vec::new();
    for (index, decl) in chain.tables.iter().enumerate() {
        let spec = &decl.spec;
        let table = state.tables.get(index);
        let table = table.ok_or_else(|| unsupported(format!("the state has no table {}", spec.name)))?;
        let find = |name: &String| {
            let missing = || unsupported(format!("table {} has no column {name}", spec.name));
            table.column(name).ok_or_else(missing)
        };
        let all = spec.key.iter().chain(&spec.columns).map(|column| find(&column.name));
        columns.push(all.collect::<Result<_, _>>()?);
    }
    Ok(columns)
}

/// An interpreted segment.
struct Interpreted {
    chain: Arc<ChainProgram>,
    event: Event,
    columns: Vec<Vec<ColumnRef>>,
}

impl fmt::Debug for Interpreted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "interpreted {} on {:?}", self.chain.name, self.event)
    }
}

/// A value of the IR.
#[derive(Clone, Debug, PartialEq)]
enum Val {
    Bool(bool),
    Int(i64),
    Float(f64),
    Bytes(Arc<[u8]>),
    Row(Row),
}

impl Val {
    /// The zero of a type: 0, false, empty, no row.
    fn zero(ty: Ty) -> Self {
        match ty {
            Ty::Bool => Self::Bool(false),
            Ty::Int => Self::Int(0),
            Ty::Float => Self::Float(0.0),
            Ty::Bytes => Self::empty(),
            Ty::Row => Self::Row(Row::NONE),
        }
    }

    fn empty() -> Self {
        Self::Bytes(Arc::from([]))
    }

    /// The value of a word, for a type that is held in one.
    fn of_word(ty: Ty, word: u64) -> Self {
        match ty {
            Ty::Bool => Self::Bool(word != 0),
            Ty::Float => Self::Float(f64::from_bits(word)),
            _ => Self::Int(word as i64),
        }
    }

    /// The word of a value that is neither bytes nor a row.
    fn word(&self) -> u64 {
        match self {
            Self::Bool(b) => u64::from(*b),
            Self::Int(n) => *n as u64,
            Self::Float(f) => f.to_bits(),
            Self::Bytes(_) | Self::Row(_) => unreachable!("the verifier requires a one-word type"),
        }
    }
}

/// The current values of the inputs; None is NULL.
type Inputs = Vec<Option<Val>>;

/// How a handler ended.
enum End {
    Forward,
    Skip,
    Steer,
    Redirect { to: Arc<[u8]>, line: u32 },
    Verdict { verdict: Verdict, text: Option<Arc<[u8]>>, line: u32 },
    Fail { fault: Fault, line: u32 },
}

impl Program for Interpreted {
    fn run(&self, cx: &mut Cx<'_>, opened: usize) {
        self.pass(cx, opened, &mut None);
    }
}

/// Runs one pass like [`Program::run`] of [`Interp`], and returns what each handler accessed, in order.
///
/// # Errors
/// As [`Interp::compile`](Backend::compile).
pub fn run_with_accesses(
    chain: &Arc<ChainProgram>,
    event: Event,
    cx: &mut Cx<'_>,
    opened: usize,
) -> Result<Vec<AccessAt>, Unsupported> {
    let columns = columns(chain, cx.state)?;
    let mut recorded = Some(Vec::new());
    Interpreted { chain: chain.clone(), event, columns }.pass(cx, opened, &mut recorded);
    Ok(recorded.unwrap_or_default())
}

impl Interpreted {
    /// Runs the handlers of the first `opened` elements in the order of the event. Records their accesses if `recorded`
    /// is Some.
    fn pass(&self, cx: &mut Cx<'_>, opened: usize, recorded: &mut Option<Vec<AccessAt>>) {
        let chain = &*self.chain;
        assert!(cx.counters.len() >= chain.elements.len(), "each element has its counters");
        assert!(cx.call.len() >= chain.call_words(), "the call's row has all cells");
        let mut inputs = self.inputs(cx);
        cx.out.element = chain.elements.len() as u16;
        let mut stamp = cx.trace.map(|clock| clock());
        for (nth, part) in chain.parts(self.event).into_iter().enumerate() {
            let element = usize::from(part.element);
            if element >= opened {
                continue;
            }
            cx.counters[element].seen += u64::from(part.counts);
            let end = Handling::new(self, part.function, cx, &mut inputs, (nth, recorded)).run();
            let continues = record_end(end, &part, chain.fails_open(part.element, self.event), cx);
            if let (Some(clock), Some(began)) = (cx.trace, stamp) {
                let ended = clock();
                let counters = &mut cx.counters[element];
                counters.sampled_ns += ended.saturating_sub(began);
                counters.sampled += u64::from(part.counts);
                stamp = Some(ended);
            }
            if !continues {
                break;
            }
        }
    }
}

/// Counts the end of an element's handler and writes it to the outcome; returns whether the next handler runs.
fn record_end(end: End, part: &Part<'_>, fail_open: bool, cx: &mut Cx<'_>) -> bool {
    let counters = &mut cx.counters[usize::from(part.element)];
    let (verdict, text, line) = match end {
        End::Forward => return true,
        End::Skip => {
            assert!(counters.seen >= u64::from(part.counts), "the tuple was counted");
            counters.seen -= u64::from(part.counts);
            return true;
        }
        End::Steer => {
            counters.diverted += 1;
            return true;
        }
        End::Redirect { to, line } => {
            counters.diverted += 1;
            (Verdict::Redirect, Some(to), line)
        }
        End::Fail { fault, line } => {
            counters.failed += 1;
            if fail_open {
                return true;
            }
            (Verdict::Failed(fault), None, line)
        }
        End::Verdict { verdict, text, line } => {
            match verdict {
                Verdict::Drop => counters.dropped += 1,
                Verdict::Abort(_) => counters.aborted += 1,
                _ => counters.diverted += 1,
            }
            (verdict, text, line)
        }
    };
    cx.out.verdict = verdict;
    cx.out.element = part.element;
    cx.out.line = line;
    cx.out.opening = part.opens && verdict != Verdict::Redirect;
    cx.out.target = ShortName::default();
    cx.out.text.clear();
    cx.out.text.extend_from_slice(text.as_deref().unwrap_or(&[]));
    verdict == Verdict::Redirect
}

impl Interpreted {
    /// Collects the inputs of the pass from the context.
    fn inputs(&self, cx: &Cx<'_>) -> Inputs {
        let Some(direction) = Handler::of(self.event).direction(&self.chain) else { return Vec::new() };
        let none = Frames::default();
        let frames = self.chain.frames.as_ref().unwrap_or(&none);
        let value = |(index, (input, slot)): (usize, (&Input, &Slot))| {
            if let InputLocation::Meta(meta) = input.place
                && let Some(word) = meta.compute(cx.regions[REGION_BODY], &cx.offload, frames)
            {
                return Some(Val::of_word(Ty::of(input.ty), word));
            }
            if input.place == InputLocation::Meta(Meta::Port) {
                return Some(Val::Bytes(cx.regions[REGION_META].into()));
            }
            let present = cx.present.contains(index);
            present.then(|| match Ty::of(input.ty) {
                Ty::Bytes => {
                    let region = cx.regions[input.place.region()];
                    // The engine's slots are inside their regions; otherwise this panics.
                    Val::Bytes(region[slot.a as usize..][..slot.b as usize].into())
                }
                ty => Val::of_word(ty, slot.a),
            })
        };
        direction.inputs.iter().zip(cx.slots).enumerate().map(value).collect()
    }
}

/// The lock that a handler holds on a table.
#[derive(Clone, Copy, Debug)]
enum TableLock {
    All,
    Stripe { hash: u64 },
}

/// A running handler.
struct Handling<'r, 'c> {
    program: &'r Interpreted,
    function: &'r Function,
    cx: &'r mut Cx<'c>,
    inputs: &'r mut Inputs,
    values: Vec<Option<Val>>,
    /// The result of the native function that gave a value, by value.
    ended: Vec<Option<Ended>>,
    scratch_full: bool,
    /// The locks, by table.
    held: Vec<Option<TableLock>>,
    vars_held: bool,
    /// The start of the handler, for rollback.
    start: Point,
    inputs_at_start: Inputs,
    /// The handler's position in the segment.
    part: usize,
    recorded: &'r mut Option<Vec<AccessAt>>,
}

impl<'r, 'c> Handling<'r, 'c> {
    /// Prepares the run of a handler. Earlier handlers can no longer be rolled back.
    fn new(
        program: &'r Interpreted,
        function: &'r Function,
        cx: &'r mut Cx<'c>,
        inputs: &'r mut Inputs,
        (part, recorded): (usize, &'r mut Option<Vec<AccessAt>>),
    ) -> Self {
        // Earlier writes are committed.
        cx.out.journal.clear();
        Self {
            program,
            function,
            values: vec![None; function.types.len()],
            ended: vec![None; function.types.len()],
            scratch_full: false,
            held: vec![None; program.chain.tables.len()],
            vars_held: false,
            start: cx.out.point(),
            inputs_at_start: inputs.clone(),
            cx,
            inputs,
            part,
            recorded,
        }
    }

    /// Runs the handler; returns how it ended. Rolls back if it failed, and releases its locks.
    fn run(mut self) -> End {
        assert!(self.held.iter().all(Option::is_none), "a handler begins without locks");
        let end = self.blocks();
        if matches!(end, End::Fail { .. }) {
            self.roll_back();
        }
        self.cx.out.journal.clear();
        self.release();
        assert!(self.cx.out.scratch.len() <= self.cx.out.scratch_max, "the scratch keeps its limit");
        end
    }

    /// Runs block after block until a terminator ends the handler.
    fn blocks(&mut self) -> End {
        let function = self.function;
        let mut visits = vec![0u64; function.blocks.len()];
        let has_scans = function.blocks.iter().any(|block| block.scan_rows_max.is_some());
        let backs = if has_scans { verify::back_edges(function) } else { Vec::new() };
        let mut at = BlockId(0);
        loop {
            let block = &function.blocks[at.0 as usize];
            for inst in &block.insts {
                let result = match &inst.op {
                    Op::Native(id, args) => Some(self.native(*id, args, inst.result)),
                    op => self.op(op),
                };
                if self.recorded.is_some() {
                    self.record_accesses(&inst.op, result.as_ref());
                }
                if let (Some(to), Some(value)) = (inst.result, result) {
                    self.values[to.0 as usize] = Some(value);
                }
            }
            let jump = match &block.end {
                Terminator::Jump(jump) => jump,
                Terminator::Branch(by, yes, no) => {
                    if self.bool(*by) {
                        yes
                    } else {
                        no
                    }
                }
                end => return self.run_terminator(end),
            };
            let next = &function.blocks[jump.block.0 as usize];
            if let Some(max) = next.scan_rows_max {
                let visits = &mut visits[jump.block.0 as usize];
                // A jump from outside the scan restarts it.
                *visits = if backs.contains(&(at, jump.block)) { *visits + 1 } else { 0 };
                assert!(*visits <= max + 1, "a scan of {} goes on beyond {max} rows", function.name);
            }
            assert_eq!(
                jump.args.len(),
                next.params.len(),
                "the verifier requires an argument for each parameter"
            );
            let args: Vec<Val> = jump.args.iter().map(|&arg| self.get(arg).clone()).collect();
            for (&param, arg) in next.params.iter().zip(args) {
                self.values[param.0 as usize] = Some(arg);
            }
            at = jump.block;
        }
    }

    /// Converts a terminator that ends the handler to its end.
    fn run_terminator(&self, end: &Terminator) -> End {
        match *end {
            Terminator::Drop { line } => End::Verdict { verdict: Verdict::Drop, text: None, line },
            Terminator::Reply { line } => End::Verdict { verdict: Verdict::Reply, text: None, line },
            Terminator::Abort { status, text, line } => {
                let status = match status {
                    StatusOperand::Known(status) => status,
                    StatusOperand::Computed(code) => {
                        Status::from_code(self.int(code) as u64).unwrap_or(Status::Unknown)
                    }
                };
                let text = text.map(|text| self.bytes(text));
                End::Verdict { verdict: Verdict::Abort(status), text, line }
            }
            Terminator::Redirect { to, line } => End::Redirect { to: self.bytes(to), line },
            Terminator::Fail { fault, line } => {
                let fault = u8::try_from(self.int(fault)).ok().and_then(Fault::from_code);
                End::Fail { fault: fault.unwrap_or(Fault::FunctionFailed), line }
            }
            Terminator::Skip => End::Skip,
            Terminator::Steer { .. } => End::Steer,
            Terminator::Forward | Terminator::Missing | Terminator::Jump(_) | Terminator::Branch(..) => {
                End::Forward
            }
        }
    }

    /// Calls a native function and stores its result.
    fn native(&mut self, id: NativeId, args: &[Value], result: Option<Value>) -> Val {
        let chain = &self.program.chain;
        let held: Vec<Val> = args.iter().map(|&arg| self.get(arg).clone()).collect();
        let args: Vec<Arg<'_>> = held
            .iter()
            .map(|val| match val {
                Val::Bool(b) => Arg::Bool(*b),
                Val::Int(n) => Arg::Int(*n),
                Val::Float(f) => Arg::Float(*f),
                Val::Bytes(bytes) => Arg::Bytes(bytes),
                Val::Row(_) => unreachable!("the verifier refuses rows as arguments"),
            })
            .collect();
        let state = self.cx.state;
        let mut made = Vec::new();
        let call = Call { args: &args, now: self.cx.now, rand: self.cx.rand };
        let ended = state.natives[usize::from(id.0)].call(&call, &mut made);
        let info = chain.natives[usize::from(id.0)].native.info();
        let ty = Ty::of(info.result);
        let (ended, val) = match (ended, ty) {
            (Ended::Bool(b), Ty::Bool) => (ended, Val::Bool(b)),
            (Ended::Int(n), Ty::Int) => (ended, Val::Int(n)),
            (Ended::Bytes, Ty::Bytes) if made.len() <= info.bytes_max() => (ended, self.new_bytes(&made)),
            (Ended::Null, _) => (ended, Val::zero(ty)),
            _ => (Ended::Failed, Val::zero(ty)),
        };
        if let Some(result) = result {
            self.ended[result.0 as usize] = Some(ended);
        }
        val
    }

    /// Reads an input; the zero of its type if it is absent.
    fn input(&self, id: InputId) -> Val {
        let direction = Handler::of(self.program.event).direction(&self.program.chain);
        // EVERY has no inputs: the verifier refuses them.
        let ty = direction.map_or(Ty::Int, |d| Ty::of(d.inputs[usize::from(id.0)].ty));
        self.inputs[usize::from(id.0)].clone().unwrap_or_else(|| Val::zero(ty))
    }

    /// Reads an input derived from the message, as earlier edits have changed that.
    fn derived(&mut self, id: InputId) -> Val {
        let arrived = self.input(id);
        match (self.cx.rewrite(), &arrived) {
            (Rewrite::Unchanged, _) => arrived,
            (Rewrite::Changed, Val::Bytes(_)) => {
                let message = self.cx.out.message.clone();
                self.new_bytes(&message)
            }
            (Rewrite::Changed, _) => Val::Int(self.cx.out.message.len() as i64),
            (Rewrite::Failed, Val::Bytes(_)) => {
                self.scratch_full = true;
                Val::empty()
            }
            (Rewrite::Failed, _) => {
                self.scratch_full = true;
                Val::Int(0)
            }
        }
    }

    /// Undoes all that the handler has done so far.
    fn roll_back(&mut self) {
        self.cx.out.roll_back(self.start, self.cx.state, self.cx.call);
        self.inputs.clone_from(&self.inputs_at_start);
        self.scratch_full = false;
    }

    /// Releases all locks of the handler.
    fn release(&mut self) {
        let state = self.cx.state;
        for (table, held) in state.tables.iter().zip(&self.held) {
            match *held {
                Some(TableLock::All) => table.unlock_all(),
                Some(TableLock::Stripe { hash }) => table.unlock(hash),
                None => {}
            }
        }
        if self.vars_held {
            state.scalars.unlock();
        }
    }

    /// Runs an instruction; returns its result, if it has one.
    fn op(&mut self, op: &Op) -> Option<Val> {
        if let Some((_, ty)) = op.word_types() {
            return Some(Val::of_word(ty, evaluate(op, |value| self.get(value).word())));
        }
        Some(match *op {
            Op::BytesConst(ref bytes) => Val::Bytes(bytes.as_slice().into()),
            Op::NoRow => Val::Row(Row::NONE),
            Op::IntToText(signed, a) => self.new_bytes(numbers::int_to_text(signed, self.int(a)).as_bytes()),
            Op::FloatToText(a) => self.new_bytes(numbers::float_to_text(self.float(a)).as_bytes()),
            Op::IsIntText(signed, a) => Val::Bool(numbers::text_to_int(signed, &self.bytes(a)).is_some()),
            Op::IsFloatText(a) => Val::Bool(numbers::text_to_float(&self.bytes(a)).is_some()),
            Op::TextToFloat(a) => Val::Float(numbers::text_to_float(&self.bytes(a)).unwrap_or(0.0)),
            Op::TextToInt(signed, a) => Val::Int(numbers::text_to_int(signed, &self.bytes(a)).unwrap_or(0)),
            Op::Select(by, a, b) => self.get(if self.bool(by) { a } else { b }).clone(),

            Op::Len(a) => Val::Int(self.bytes(a).len() as i64),
            Op::ByteAt(a, at) => {
                Val::Int(self.bytes(a).get(usize::from(at)).map_or(0, |byte| i64::from(*byte)))
            }
            Op::WordAt(a, at) => Val::Int(bytes::word(&self.bytes(a), self.int(at))),
            Op::Part(a, at, len) => {
                Val::Bytes(bytes::range(&self.bytes(a), self.int(at), self.int(len)).into())
            }
            Op::BytesCompare(op, a, b) => Val::Bool(bytes::compare(op, &self.bytes(a), &self.bytes(b))),
            Op::Concat(ref parts) => {
                let parts: Vec<Arc<[u8]>> = parts.iter().map(|&part| self.bytes(part)).collect();
                self.new_bytes(&parts.concat())
            }
            Op::Lower(a) => self.new_bytes(&self.bytes(a).to_ascii_lowercase()),
            Op::Upper(a) => self.new_bytes(&self.bytes(a).to_ascii_uppercase()),
            Op::Slice(a, from, count) => {
                Val::Bytes(bytes::slice(&self.bytes(a), self.int(from), self.int(count)).into())
            }
            Op::ScratchFull => Val::Bool(self.scratch_full),
            Op::Egress => Val::Bytes(self.cx.egress().into()),
            Op::Hash(a) => Val::Int(match self.get(a) {
                Val::Bytes(bytes) => hash::hash_bytes(bytes),
                other => hash::hash_word(other.word()),
            } as i64),
            Op::InPrefix(a, b) => Val::Bool(bytes::in_prefix(&self.bytes(a), &self.bytes(b))),
            Op::InPrefixes(a, ref prefixes) => {
                let address = self.bytes(a);
                Val::Bool(prefixes.iter().any(|prefix| bytes::in_prefix(&address, prefix)))
            }
            Op::NativeNull(a) => Val::Bool(self.ended[a.0 as usize] == Some(Ended::Null)),
            Op::NativeFailed(a) => Val::Bool(self.ended[a.0 as usize] == Some(Ended::Failed)),

            Op::Input(id) => self.input(id),
            Op::Derived(id) => self.derived(id),
            Op::InputPresent(id) => Val::Bool(self.inputs[usize::from(id.0)].is_some()),
            Op::FrameLen => Val::Int(self.cx.regions[REGION_BODY].len() as i64),
            Op::FrameGet(at, bytes, endian) => {
                Val::Int(bytes::number(self.cx.regions[REGION_BODY], self.int(at), bytes, endian))
            }
            Op::FrameSum(at, len) => {
                Val::Int(bytes::sum(self.cx.regions[REGION_BODY], self.int(at), self.int(len)))
            }
            Op::Now => Val::Int(self.cx.now.0),
            Op::Rand(site) => Val::Float(hash::unit_float(hash::draw(self.cx.rand, site))),

            Op::CallGet(id) => self.call_get(id),
            Op::VarGet(id) => {
                let var = self.var(id);
                Val::of_word(Ty::of(var.ty), self.cx.state.scalars.word(var.word as usize))
            }
            Op::VarMerged(id) => Val::Int(self.merged(id)),

            Op::Key(ref parts) => {
                let key = tables::key(parts.iter().map(|&part| self.get(part)));
                self.new_bytes(&key)
            }
            Op::IsRow(row) => Val::Bool(self.row(row) != Row::NONE),
            Op::Match(table, id, ref keys) => Val::Row(self.first(table, id, keys)),
            Op::Find(..)
            | Op::Insert(..)
            | Op::Column(..)
            | Op::ColumnIsNull(..)
            | Op::SetColumn(..)
            | Op::Count(_)
            | Op::ScanRow(..)
            | Op::ExpiredRow(_)
            | Op::ScanNext(..) => self.table_value(op),

            _ => {
                self.effect(op);
                return None;
            }
        })
    }

    /// Runs an operation that has effects but no result.
    fn effect(&mut self, op: &Op) {
        match *op {
            Op::SetInput(id, value) => {
                let value = self.get(value).clone();
                let cell = self.cell(&value);
                self.edit(EditTarget::Input(id.0), cell);
                // The scratch may have been full: the stored bytes are now the input.
                self.inputs[usize::from(id.0)] = Some(self.of_cell(cell));
            }
            Op::ClearInput(id) => {
                self.edit(EditTarget::Input(id.0), Cell::Null);
                self.inputs[usize::from(id.0)] = None;
            }
            Op::Give(id, a, b) => {
                let at = usize::from(id.0);
                self.cx.given[at] = Slot { a: self.int(a) as u64, b: b.map_or(0, |b| self.int(b) as u64) };
                self.cx.present.insert(at);
            }
            Op::SetAnswer(name, value) => {
                let cell = self.cell(&self.get(value).clone());
                self.edit(EditTarget::Answer(name.0), cell);
            }
            Op::SetReply(name, value) => {
                let cell = self.cell(&self.get(value).clone());
                self.edit(EditTarget::Reply(name.0), cell);
            }
            Op::ChangeHeaders(id, ref parts) => {
                for (at, &part) in parts.iter().enumerate() {
                    let cell = self.cell(&self.get(part).clone());
                    self.edit(EditTarget::Part(at as u16), cell);
                }
                self.edit(EditTarget::HeaderChange(id.0), Cell::Null);
            }
            Op::CallSet(id, value, journal) => self.call_set(id, value, journal),
            Op::VarSet(id, value, journal) => {
                let (index, word) = (self.var(id).word as usize, self.get(value).word());
                let scalars = &self.cx.state.scalars;
                if journal == Journal::Yes {
                    self.cx.out.journal.record_scalar(index as u32, scalars.word(index));
                }
                scalars.set_word(index, word);
            }
            Op::VarMerge(id, value, journal) => self.merge(id, self.int(value), journal),
            Op::VarReset(id) => self.reset(id),
            Op::LockVars => {
                if !self.vars_held {
                    self.cx.state.scalars.lock();
                    self.vars_held = true;
                }
            }
            Op::Emit(sink, ref cells) => {
                for &(value, null) in cells {
                    let is_null = null.is_some_and(|null| self.bool(null));
                    let cell = if is_null { Cell::Null } else { self.cell(&self.get(value).clone()) };
                    self.cx.out.cells.push(cell);
                }
                self.cx.out.rows.push(SinkRow { sink: sink.0, cells: cells.len() as u16 });
            }
            Op::Delay(by) => {
                let sum = self.cx.out.delay.0.saturating_add(self.int(by).max(0));
                self.cx.out.delay = Interval(sum);
            }
            Op::Mark(what, value) => {
                let value = self.int(value) as u64;
                self.cx.out.marks.set(what, value);
            }
            Op::Mirror(to) => {
                let target = self.keep(&self.bytes(to));
                let edits = self.cx.out.edits.len() as u32;
                self.cx.out.mirrors.push(abi::Mirror { target, edits });
            }
            Op::RollBack => self.roll_back(),
            _ => self.table_effect(op),
        }
    }

    fn get(&self, value: Value) -> &Val {
        self.values[value.0 as usize].as_ref().expect("the verifier requires definitions before uses")
    }

    fn bool(&self, value: Value) -> bool {
        matches!(self.get(value), Val::Bool(true))
    }

    /// The value as an integer; the verifier guarantees the type.
    fn int(&self, value: Value) -> i64 {
        match self.get(value) {
            Val::Int(n) => *n,
            other => unreachable!("the verifier requires an integer, not {other:?}"),
        }
    }

    /// The value as a float; the verifier guarantees the type.
    fn float(&self, value: Value) -> f64 {
        match self.get(value) {
            Val::Float(f) => *f,
            other => unreachable!("the verifier requires a float, not {other:?}"),
        }
    }

    /// The value as bytes; the verifier guarantees the type.
    fn bytes(&self, value: Value) -> Arc<[u8]> {
        match self.get(value) {
            Val::Bytes(bytes) => bytes.clone(),
            other => unreachable!("the verifier requires bytes, not {other:?}"),
        }
    }

    /// The value as a row; the verifier guarantees the type.
    fn row(&self, value: Value) -> Row {
        match self.get(value) {
            Val::Row(row) => *row,
            other => unreachable!("the verifier requires a row, not {other:?}"),
        }
    }

    /// Stores bytes in the scratch; returns their range, which is empty if the scratch is full.
    fn keep(&mut self, bytes: &[u8]) -> (u32, u32) {
        let kept = self.cx.out.keep(bytes);
        self.scratch_full |= kept.is_none();
        kept.unwrap_or((0, 0))
    }

    /// New bytes as a value.
    fn new_bytes(&mut self, bytes: &[u8]) -> Val {
        let (start, len) = self.keep(bytes);
        Val::Bytes(self.cx.out.kept(start, len).into())
    }

    /// Converts a value to an output cell; bytes are copied to the scratch.
    fn cell(&mut self, value: &Val) -> Cell {
        match value {
            Val::Bool(b) => Cell::Bool(*b),
            Val::Int(n) => Cell::Int(*n),
            Val::Float(f) => Cell::Float(*f),
            Val::Bytes(bytes) => {
                let (start, len) = self.keep(bytes);
                Cell::Bytes(start, len)
            }
            Val::Row(_) => unreachable!("the verifier refuses rows in cells"),
        }
    }

    /// Converts an output cell to a value.
    fn of_cell(&self, cell: Cell) -> Val {
        match cell {
            Cell::Null => unreachable!("a value is never NULL here"),
            Cell::Bool(b) => Val::Bool(b),
            Cell::Int(n) => Val::Int(n),
            Cell::Float(f) => Val::Float(f),
            Cell::Bytes(start, len) => Val::Bytes(self.cx.out.kept(start, len).into()),
        }
    }

    fn edit(&mut self, target: EditTarget, value: Cell) {
        self.cx.out.edits.push(TupleEdit { target, value });
    }

    /// Reads a cell of the call's row.
    fn call_get(&mut self, id: CallId) -> Val {
        let cell = &self.program.chain.call[usize::from(id.0)];
        let words = &self.cx.call[cell.word as usize..][..cell_words(cell.ty)];
        match Ty::of(cell.ty) {
            Ty::Bytes => {
                let packed: Vec<u8> = words[1..].iter().flat_map(|word| word.to_le_bytes()).collect();
                let len = (words[0] as usize).min(cell_bytes_max(cell.ty));
                self.new_bytes(&packed[..len])
            }
            ty => Val::of_word(ty, words[0]),
        }
    }

    /// Writes a cell of the call's row; bytes are cut to its size.
    fn call_set(&mut self, id: CallId, value: Value, journal: Journal) {
        let cell = &self.program.chain.call[usize::from(id.0)];
        let mut words = Vec::new();
        match self.get(value) {
            Val::Bytes(bytes) => {
                let fits = &bytes[..bytes.len().min(cell_bytes_max(cell.ty))];
                words.push(fits.len() as u64);
                for eight in fits.chunks(8) {
                    let mut word = [0; 8];
                    word[..eight.len()].copy_from_slice(eight);
                    words.push(u64::from_le_bytes(word));
                }
            }
            other => words.push(other.word()),
        }
        assert!(words.len() <= cell_words(cell.ty), "a value stays in its cell");
        for (index, word) in (cell.word as usize..).zip(words) {
            let old = core::mem::replace(&mut self.cx.call[index], word);
            if journal == Journal::Yes {
                self.cx.out.journal.record_call(index as u32, old);
            }
        }
    }

    fn var(&self, id: VarId) -> &'r VarDecl {
        &self.program.chain.vars[usize::from(id.0)]
    }

    /// Merges a value into this worker's part of a variable.
    fn merge(&mut self, id: VarId, value: i64, journal: Journal) {
        let (index, merged) = (self.var(id).word as usize, &self.cx.state.merged);
        let old = merged.word(index);
        if journal == Journal::Yes {
            self.cx.out.journal.record_merged(index as u32, old);
        }
        merged.set_word(index, self.merge_two(id, old as i64, value) as u64);
    }

    /// Merges two values by the variable's merge operation.
    fn merge_two(&self, id: VarId, a: i64, b: i64) -> i64 {
        let var = self.var(id);
        let op = match (var.merge, var.ty.is_signed()) {
            (Some(Merge::Max), true) => IntOp::SMax,
            (Some(Merge::Max), false) => IntOp::UMax,
            (Some(Merge::Min), true) => IntOp::SMin,
            (Some(Merge::Min), false) => IntOp::UMin,
            (Some(Merge::Sum) | None, _) => IntOp::Add,
        };
        numbers::int(op, a, b)
    }

    /// Merges the parts of all workers; 0 if there are none.
    fn merged(&self, id: VarId) -> i64 {
        let index = self.var(id).word as usize;
        let parts = self.cx.state.merged_parts.iter().map(|part| part.word(index) as i64);
        parts.reduce(|a, b| self.merge_two(id, a, b)).unwrap_or(0)
    }

    /// Sets the merged value of a variable to its start value.
    fn reset(&mut self, id: VarId) {
        let var = self.var(id);
        let start = match var.start {
            weft_core::Value::Int(n) => n,
            _ => 0,
        };
        let (index, state) = (var.word as usize, self.cx.state);
        if var.merge == Some(Merge::Sum) {
            state.merged.add(index, start.wrapping_sub(self.merged(id)) as u64);
        } else {
            state.merged_parts.iter().for_each(|part| part.set_word(index, start as u64));
        }
    }
}

fn cell_bytes_max(ty: Type) -> usize {
    ty.bytes_max().unwrap_or(0) as usize
}
