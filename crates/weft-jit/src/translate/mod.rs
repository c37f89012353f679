//! Translates the functions of a segment to one Cranelift function.
//!
//! The parts follow each other: where one part forwards, the next begins. So a column that several elements read is
//! loaded once, and a column that one of them sets reaches the next in a register.

pub(crate) mod analysis;
mod bytes;
mod fast_path;
mod find;
mod key;
mod matching;
mod numbers;
mod out;
mod patch;
mod path_merge;
mod prefetch;
mod push;
mod specialize;
mod state;
mod tuple;

use crate::arithmetic::{Arithmetic as _, known};
use crate::cold;
use crate::frame::{FRAME_BYTES, Frame, SCRATCH_MARGIN, SLICE_START, VecWords, arc_offset};
use crate::helpers::{CELL_BYTES, Cell, Cold, Helper, ROW_REF_BYTES, tag};
use crate::prefetch::PrefetchLayout;
use analysis::{Analysis, ScratchBound};
use core::mem::offset_of;
use cranelift_codegen::cursor::{Cursor as _, FuncCursor};
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64, I8, I16, I64};
use cranelift_codegen::ir::{
    AbiParam, InsertBuilder, InstBuilder as _, MemFlagsData, StackSlotData, StackSlotKind,
};
use cranelift_codegen::isa::{OwnedTargetIsa, TargetFrontendConfig};
use cranelift_frontend::{FuncInstBuilder, FunctionBuilder, Variable};
pub(crate) use fast_path::FastPath;
use fast_path::{Arg, ParsedFrame, ParserPaths};
use matching::SmallMatchKey;
use patch::Patches;
use specialize::{Assumptions, Specialized};
use std::sync::Arc;
use weft_core::abi::{Counters, Cx, Fault, Outcome, Parts, State};
use weft_core::inputs::InputSet;
use weft_core::table::{ColumnRef, Scalars};
use weft_core::wire::Formats;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, Function, Inst, Jump, Op, StatusOperand, TableId, Terminator, Ty, Value};
use weft_ir::program::{ChainProgram, Event, Part};

/// How an element ends the pass, in the encoding of compiled code: the kind in the low 8 bits, the element from bit 16,
/// the source line in the upper 32.
pub(crate) mod verdict {
    pub(crate) const DROP: u64 = 1;
    pub(crate) const ABORT: u64 = 2;
    pub(crate) const REPLY: u64 = 3;
    pub(crate) const FAILED: u64 = 4;
    /// Added to one of the above: counts the tuple as seen by the element.
    pub(crate) const COUNTS: u64 = 0x40;
    /// Added to one of the above in ON OPEN.
    pub(crate) const OPENING: u64 = 0x80;
    pub(crate) const FLAGS: u64 = COUNTS | OPENING;
}

/// What compiled code points to for as long as it lives, and facts about the code.
#[derive(Debug, Default)]
pub(crate) struct Constants {
    bytes: Vec<Box<[u8]>>,
    // Boxed, because code has their addresses and the list grows.
    #[allow(clippy::vec_box, reason = "their addresses must not change")]
    columns: Vec<Box<ColumnRef>>,
    /// The formats that the code uses to read frames.
    formats: Option<Arc<Formats>>,
    /// The code may push headers in front of its frame.
    pub(crate) puts_in_front: bool,
}

/// The input of the translation.
pub(crate) struct Plan<'a> {
    pub(crate) chain: &'a ChainProgram,
    pub(crate) event: Event,
    pub(crate) state: &'a State,
    pub(crate) isa: &'a OwnedTargetIsa,
    pub(crate) vec_words: VecWords,
    pub(crate) target: TargetFrontendConfig,
    /// Prefetch from tables of any size.
    pub(crate) always_prefetches: bool,
    /// The prefetches of each part.
    pub(crate) prefetch_layouts: Vec<PrefetchLayout>,
}

/// Translates a segment into `builder`'s function, an [`crate::frame::Entry`].
///
/// # Errors
/// [`Unsupported`], if the verifier does not accept the program, or the state does not have its tables.
pub(crate) fn translate(plan: &Plan<'_>, builder: FunctionBuilder<'_>) -> Result<Constants, Unsupported> {
    let parts = plan.chain.parts(plan.event);
    let specialized = Specialized::of(plan, &parts);
    let mut segment = Segment::new(plan, builder)?;
    segment.start_frame(&parts);
    segment.start_outcome();
    segment.start_trace();
    segment.with_specialized(&parts, specialized.as_ref(), |segment, parts| segment.lay_out(parts))?;
    segment.builder.seal_all_blocks();
    Ok(segment.finish())
}

/// Whether a segment writes fields into its frames.
pub(crate) fn changes_frames(plan: &Plan<'_>) -> bool {
    let parts = plan.chain.parts(plan.event);
    let changes = |parts: &[Part<'_>]| !Patches::of(plan.chain, plan.event, parts).is_none();
    changes(&parts)
        || Specialized::of(plan, &parts).is_some_and(|specialized| changes(&specialized.parts(&parts)))
}

/// Translates the prefetcher of a segment into `builder`'s function, a [`crate::frame::PrefetchEntry`]. The caller
/// drops it if there are no prefetches.
///
/// # Errors
/// As [`translate`].
pub(crate) fn translate_prefetch(
    plan: &Plan<'_>,
    builder: FunctionBuilder<'_>,
) -> Result<(Constants, Vec<PrefetchLayout>), Unsupported> {
    let parts = plan.chain.parts(plan.event);
    let specialized = Specialized::of(plan, &parts);
    let mut segment = Segment::new(plan, builder)?;
    let mut layouts = vec![PrefetchLayout::default(); parts.len()];
    segment.with_specialized(&parts, specialized.as_ref(), |segment, parts| {
        prefetch::translate(segment, parts, &mut layouts)?;
        segment.builder.ins().return_(&[]);
        Ok(())
    })?;
    segment.builder.seal_all_blocks();
    Ok((segment.finish(), layouts))
}

/// A value of the IR as Cranelift values.
#[derive(Clone, Copy, Debug)]
enum Val {
    /// Bool (8 bits, 0 or 1), Int or Float.
    One(clif::Value),
    /// Bytes: start and length. Row: the handle and the address of its first group.
    Two(clif::Value, clif::Value),
}

impl Val {
    /// The only word, or the first of two.
    fn one(self) -> clif::Value {
        match self {
            Self::One(v) | Self::Two(v, _) => v,
        }
    }

    /// Both words, or the only one twice.
    fn two(self) -> (clif::Value, clif::Value) {
        match self {
            Self::Two(a, b) => (a, b),
            Self::One(v) => (v, v),
        }
    }
}

/// The Cranelift types that hold a type of the IR.
fn clif_types(ty: Ty) -> &'static [clif::Type] {
    match ty {
        Ty::Bool => &[I8],
        Ty::Int => &[I64],
        Ty::Float => &[F64],
        Ty::Bytes | Ty::Row => &[I64, I64],
    }
}

/// Memory that the pass writes.
const PLAIN: MemFlagsData = MemFlagsData::trusted();
/// Memory that does not change while the pass runs: loads may move and be merged.
const FIXED: MemFlagsData = MemFlagsData::trusted().with_readonly().with_can_move();
/// Bytes of unknown alignment, after a check of their length.
const UNALIGNED: MemFlagsData = MemFlagsData::new().with_notrap();

type CursorBuilder<'c, 'f> = InsertBuilder<'f, &'c mut FuncCursor<'f>>;

/// The translator of a segment.
struct Segment<'a, 'f> {
    plan: &'a Plan<'a>,
    builder: FunctionBuilder<'f>,
    /// The address of the [`Frame`].
    frame: clif::Value,
    /// The address of the word that holds the start time of the running handler, on sampled passes.
    began: clif::Value,
    /// The address of the [`Cx`].
    cx: clif::Value,
    /// Elements below this index are open.
    opened: clif::Value,
    /// The address of the tuple's prefetch slots.
    prefetched: clif::Value,
    /// The prefetches of the current part.
    prefetch_layout: PrefetchLayout,
    /// Values that are computed once for the segment go before this instruction, in the entry block.
    anchor: clif::Inst,
    /// Integers, and fields of the pass by type and offset, that were computed there.
    ints: Vec<(i64, clif::Value)>,
    fields: Vec<((clif::Type, usize), clif::Value)>,
    /// The scratch in use before the current part.
    room: ScratchBound,
    /// The scratch has room for all that the segment may keep.
    is_roomy: bool,
    /// Before the current part, the pass may have had effects, or may have written to its journal.
    may_have_effects: bool,
    signatures: [Option<clif::SigRef>; Helper::COUNT],
    /// How cold helpers are called, and the address of their code.
    cold: [Option<(clif::SigRef, usize)>; Cold::ALL.len()],
    inputs: Vec<tuple::Column>,
    patches: Patches,
    /// The segment may copy a frame in the middle of its pass.
    copies: bool,
    /// What the code may assume of its tuples.
    assumptions: Assumptions,
    /// The code is the fast path of common-case frames, and parses them.
    is_fast_path: bool,
    /// The paths through the parser, while it is translated.
    parser_paths: Option<ParserPaths>,
    /// The parser's result.
    parsed_frame: ParsedFrame,
    /// The keys of small matches that all passes look up, and those that have been computed.
    small_match_keys: Vec<SmallMatchKey>,
    made_keys: Vec<(SmallMatchKey, Vec<clif::StackSlot>)>,
    constants: Constants,
}

impl<'a, 'f> Segment<'a, 'f> {
    /// Makes a segment with nothing but its entry block.
    fn new(plan: &'a Plan<'a>, mut builder: FunctionBuilder<'f>) -> Result<Self, Unsupported> {
        let signature = &mut builder.func.signature;
        signature.call_conv = plan.target.default_call_conv;
        signature.params.extend([AbiParam::new(I64); 3]);
        let entry = builder.create_block();
        builder.append_block_params_for_function_params(entry);
        builder.switch_to_block(entry);
        let &[cx, opened, prefetched] = builder.block_params(entry) else {
            return Err(Unsupported { reason: "the code's function lacks parameters".into(), line: 0 });
        };
        let [frame, began] = [FRAME_BYTES, 8].map(|bytes| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3);
            let slot = builder.create_sized_stack_slot(data);
            builder.ins().stack_addr(I64, slot, 0)
        });
        let anchor = builder.func.layout.first_inst(entry).expect("the entry block has an instruction");
        Ok(Self {
            plan,
            builder,
            frame,
            began,
            cx,
            opened,
            prefetched,
            prefetch_layout: PrefetchLayout::default(),
            anchor,
            ints: Vec::new(),
            fields: Vec::new(),
            room: ScratchBound::NONE,
            is_roomy: false,
            may_have_effects: false,
            signatures: [None; Helper::COUNT],
            cold: [const { None }; Cold::ALL.len()],
            inputs: Vec::new(),
            patches: Patches::default(),
            copies: false,
            assumptions: Assumptions::default(),
            is_fast_path: false,
            parser_paths: None,
            parsed_frame: ParsedFrame::default(),
            small_match_keys: Vec::new(),
            made_keys: Vec::new(),
            constants: Constants::default(),
        })
    }

    /// Translates the parts one after the other, from this block on.
    fn lay_out(&mut self, parts: &[Part<'_>]) -> Result<(), Unsupported> {
        (self.room, self.may_have_effects) = (ScratchBound::NONE, false);
        let after = |room: ScratchBound, part: &Part<'_>| room.after(part.function, self.plan);
        self.is_roomy = parts.iter().fold(ScratchBound::NONE, after).always_fits();
        let mut ops = parts.iter().flat_map(|part| &part.function.blocks).flat_map(|block| &block.insts);
        self.copies = ops.any(|inst| matches!(inst.op, Op::Mirror(_)));
        self.declare_inputs(parts)?;
        (self.small_match_keys, self.made_keys) = (SmallMatchKey::all(self.plan.state, parts), Vec::new());
        let starts: Vec<clif::Block> = parts.iter().map(|_| self.builder.create_block()).collect();
        let end = self.builder.create_block();
        self.dispatch(parts, &starts, end);
        for (i, part) in parts.iter().enumerate() {
            self.builder.switch_to_block(starts[i]);
            let next = starts.get(i + 1).copied().unwrap_or(end);
            self.prefetch_layout = self.plan.prefetch_layouts.get(i).cloned().unwrap_or_default();
            let mut translator = PartTranslator::new(self, i, part, next)?;
            translator.is_last_part = i + 1 == parts.len();
            translator.translate()?;
        }
        self.builder.switch_to_block(end);
        self.patch_frame();
        self.builder.ins().return_(&[]);
        Ok(())
    }

    /// Jumps to the first active part: in CLOSE, to the first whose element the call has opened.
    fn dispatch(&mut self, parts: &[Part<'_>], starts: &[clif::Block], end: clif::Block) {
        if self.plan.event == Event::Close {
            let opened = self.opened;
            for (part, start) in parts.iter().zip(starts) {
                let takes_part = self.icmp_imm(IntCC::UnsignedGreaterThan, opened, i64::from(part.element));
                let other = self.builder.create_block();
                self.builder.ins().brif(takes_part, *start, [], other, []);
                self.builder.switch_to_block(other);
            }
            self.builder.ins().jump(end, []);
        } else {
            self.builder.ins().jump(starts.first().copied().unwrap_or(end), []);
        }
    }

    /// Sets up the frame and the scratch, if the parts need them.
    fn start_frame(&mut self, parts: &[Part<'_>]) {
        let functions = || parts.iter().map(|part| part.function);
        if functions().any(analysis::needs_frame) {
            let used = self.load_out(I64, offset_of!(Outcome, scratch) + self.plan.vec_words.len);
            self.store_frame(self.cx, offset_of!(Frame<'_, '_>, cx));
            self.store_frame(used, offset_of!(Frame<'_, '_>, scratch_used));
        }
        if functions().any(analysis::may_keep) {
            let capacity = self.load_out(I64, offset_of!(Outcome, scratch) + self.plan.vec_words.capacity);
            let max = self.load_out(I64, offset_of!(Outcome, scratch_max));
            let wanted = self.iadd_imm(max, SCRATCH_MARGIN as i64);
            let lacks = self.builder.ins().icmp(IntCC::UnsignedLessThan, capacity, wanted);
            self.when(lacks, true, |segment| segment.call_cold(Cold::MakeRoom, &[segment.cx]));
        }
    }

    /// Emits the default outcome: the pass goes to the end of the chain.
    fn start_outcome(&mut self) {
        let n_elements = self.plan.chain.elements.len() as i64;
        let n_elements = self.builder.ins().iconst(I16, n_elements);
        let out = self.load_cx(I64, offset_of!(Cx<'_>, out));
        self.builder.ins().store(PLAIN, n_elements, out, offset_of!(Outcome, element) as i32);
    }

    /// Reads the clock, on sampled passes.
    fn start_trace(&mut self) {
        let trace = self.load_trace();
        self.when(trace, true, |segment| segment.call_cold(Cold::Clock, &[segment.cx, segment.began]));
    }

    /// Loaded again for each use, so that it occupies no register in between.
    fn load_trace(&mut self) -> clif::Value {
        self.builder.ins().load(I64, PLAIN, self.cx, offset_of!(Cx<'_>, trace) as i32)
    }

    /// Finishes the function; returns the constants that its code uses.
    fn finish(self) -> Constants {
        let Self { plan, builder, constants, .. } = self;
        builder.finalize(plan.target);
        constants
    }

    /// An integer constant, emitted once per function.
    fn int(&mut self, n: i64) -> clif::Value {
        if let Some((_, value)) = self.ints.iter().find(|(other, _)| *other == n) {
            return *value;
        }
        let value = self.once(|ins| ins.iconst(I64, n));
        self.ints.push((n, value));
        value
    }

    /// Emits an instruction once for the whole segment; its operands are such values, too. This saves the compiler the
    /// work of finding it.
    fn once<T>(&mut self, make: impl FnOnce(CursorBuilder<'_, '_>) -> T) -> T {
        let mut cursor = FuncCursor::new(self.builder.func).at_inst(self.anchor);
        make(cursor.ins())
    }

    fn bool(&mut self, b: bool) -> clif::Value {
        self.builder.ins().iconst(I8, i64::from(b))
    }

    fn address(&mut self, address: u64) -> clif::Value {
        self.int(address as i64)
    }

    /// A field of the pass. Fields do not change during a pass, though their targets do.
    fn load_cx(&mut self, ty: clif::Type, offset: usize) -> clif::Value {
        if let Some((_, value)) = self.fields.iter().find(|(field, _)| *field == (ty, offset)) {
            return *value;
        }
        let cx = self.cx;
        let value = self.once(|ins| ins.load(ty, FIXED, cx, offset as i32));
        self.fields.push(((ty, offset), value));
        value
    }

    /// Emits the load of a field of the outcome.
    fn load_out(&mut self, ty: clif::Type, offset: usize) -> clif::Value {
        let out = self.load_cx(I64, offset_of!(Cx<'_>, out));
        self.builder.ins().load(ty, PLAIN, out, offset as i32)
    }

    /// Emits the load of a field of the state, which does not change during a pass.
    fn load_state(&mut self, offset: usize) -> clif::Value {
        let state = self.load_cx(I64, offset_of!(Cx<'_>, state));
        self.builder.ins().load(I64, FIXED, state, offset as i32)
    }

    /// The address of the words of the scalar variables, or of this worker's part of the MERGE variables.
    fn load_scalars(&mut self, offset: usize) -> clif::Value {
        let held = self.load_state(offset);
        let at = arc_offset(&self.plan.state.scalars) + Scalars::ADDRESS_AT;
        self.builder.ins().load(I64, FIXED, held, at as i32)
    }

    /// Emits the address of the scalar variables.
    fn scalars(&mut self) -> clif::Value {
        self.load_scalars(State::PARTS + offset_of!(Parts, scalars))
    }

    /// Emits the address of this worker's part of the merged variables.
    fn merged(&mut self) -> clif::Value {
        self.load_scalars(State::PARTS + offset_of!(Parts, merged))
    }

    /// Calls a cold helper with all its arguments.
    fn call_cold(&mut self, helper: Cold, args: &[clif::Value]) {
        let (signature, address) = match self.cold[helper as usize] {
            Some(known) => known,
            None => {
                let callee = cold::callee(self.plan.isa, helper);
                let signature = self.builder.import_signature(callee.signature);
                *self.cold[helper as usize].insert((signature, callee.address))
            }
        };
        let callee = self.address(address as u64);
        self.builder.ins().call_indirect(signature, callee, args);
    }

    /// Calls a cold helper that stores a row, or bytes, at the address in its last parameter.
    fn call_cold_for_two(&mut self, helper: Cold, args: &[clif::Value]) -> Val {
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, ROW_REF_BYTES, 3);
        let slot = self.builder.create_sized_stack_slot(slot);
        let to = self.builder.ins().stack_addr(I64, slot, 0);
        self.call_cold(helper, &[args, &[to]].concat());
        let [row, address] = [0, 8].map(|offset| self.builder.ins().load(I64, PLAIN, to, offset));
        Val::Two(row, address)
    }

    /// Calls a helper with all its arguments.
    fn call(&mut self, helper: Helper, args: &[clif::Value]) -> Vec<clif::Value> {
        let signature = match self.signatures[helper as usize] {
            Some(signature) => signature,
            None => {
                let (params, results) = helper.signature();
                let signature = self.builder.import_signature(clif::Signature {
                    params: params.iter().copied().map(AbiParam::new).collect(),
                    returns: results.iter().copied().map(AbiParam::new).collect(),
                    call_conv: self.plan.target.default_call_conv,
                });
                *self.signatures[helper as usize].insert(signature)
            }
        };
        let callee = self.address(helper.address() as u64);
        let call = self.builder.ins().call_indirect(signature, callee, args);
        self.builder.inst_results(call).to_vec()
    }

    /// Emits a helper call with a result of one word.
    fn call_one(&mut self, helper: Helper, args: &[clif::Value]) -> Val {
        Val::One(self.call(helper, args)[0])
    }

    /// Emits a helper call with a result of two words.
    fn call_two(&mut self, helper: Helper, args: &[clif::Value]) -> Val {
        let results = self.call(helper, args);
        Val::Two(results[0], results[1])
    }

    /// Emits an operation on a value and a constant.
    fn with_imm(
        &mut self,
        value: clif::Value,
        n: i64,
        make: impl FnOnce(FuncInstBuilder<'_, '_>, clif::Value, clif::Value) -> clif::Value,
    ) -> clif::Value {
        let ty = self.builder.func.dfg.value_type(value);
        let n = if ty == I64 { self.int(n) } else { self.builder.ins().iconst(ty, n) };
        make(self.builder.ins(), value, n)
    }

    /// Emits a comparison with a constant; folds an equality of known values.
    fn icmp_imm(&mut self, cc: IntCC, value: clif::Value, n: i64) -> clif::Value {
        if let (IntCC::Equal, Some(known)) = (cc, known(&self.builder.func.dfg, value)) {
            return self.bool(known == n);
        }
        self.with_imm(value, n, |ins, value, n| ins.icmp(cc, value, n))
    }

    /// Emits the addition of a constant, or nothing for 0.
    fn iadd_imm(&mut self, value: clif::Value, n: i64) -> clif::Value {
        match n {
            0 => value,
            n => self.with_imm(value, n, |ins, value, n| ins.iadd(value, n)),
        }
    }

    fn imul_imm(&mut self, value: clif::Value, n: i64) -> clif::Value {
        self.with_imm(value, n, |ins, value, n| ins.imul(value, n))
    }

    fn band_imm(&mut self, value: clif::Value, n: i64) -> clif::Value {
        self.with_imm(value, n, |ins, value, n| ins.band(value, n))
    }

    /// Emits a shift to the left by a constant, or nothing for 0.
    fn ishl_imm(&mut self, value: clif::Value, n: i64) -> clif::Value {
        match n {
            0 => value,
            n => self.with_imm(value, n, |ins, value, n| ins.ishl(value, n)),
        }
    }

    /// Emits an unsigned shift to the right by a constant, or nothing for 0.
    fn ushr_imm(&mut self, value: clif::Value, n: i64) -> clif::Value {
        match n {
            0 => value,
            n => self.with_imm(value, n, |ins, value, n| ins.ushr(value, n)),
        }
    }

    /// Keeps bytes for as long as the code lives; returns their address and length.
    fn constant(&mut self, bytes: &[u8]) -> Val {
        let kept: Box<[u8]> = bytes.into();
        let start = kept.as_ptr().expose_provenance() as u64;
        self.constants.bytes.push(kept);
        let start = self.address(start);
        Val::Two(start, self.int(bytes.len() as i64))
    }

    /// Emits the choice between two values of one or two words.
    fn select(&mut self, by: clif::Value, yes: Val, no: Val) -> Val {
        let ins = &mut self.builder;
        match (yes, no) {
            (Val::Two(a, b), Val::Two(c, d)) => {
                Val::Two(ins.ins().select(by, a, c), ins.ins().select(by, b, d))
            }
            _ => Val::One(ins.ins().select(by, yes.one(), no.one())),
        }
    }

    /// Emits the zero of a type: 0, false, empty, no row.
    fn zero(&mut self, ty: Ty) -> Val {
        match ty {
            Ty::Bool => Val::One(self.bool(false)),
            Ty::Int => Val::One(self.int(0)),
            Ty::Float => Val::One(self.builder.ins().f64const(0.0)),
            Ty::Bytes => self.constant(&[]),
            Ty::Row => {
                let zeros = self.address(crate::helpers::ZERO_ROW.address());
                Val::Two(self.int(0), zeros)
            }
        }
    }

    /// Converts a word of memory to a value.
    fn unpack(&mut self, ty: Ty, word: clif::Value) -> Val {
        Val::One(match ty {
            Ty::Bool => self.icmp_imm(IntCC::NotEqual, word, 0),
            Ty::Float => self.builder.ins().bitcast(F64, MemFlagsData::new(), word),
            _ => word,
        })
    }

    /// Converts a value to a word of memory, the first of two.
    fn pack(&mut self, ty: Ty, value: Val) -> clif::Value {
        match ty {
            Ty::Bool => self.builder.ins().uextend(I64, value.one()),
            Ty::Float => self.builder.ins().bitcast(I64, MemFlagsData::new(), value.one()),
            _ => value.one(),
        }
    }

    /// Emits `then` so that it runs only if `by` is true; `cold` moves it out of the way.
    fn when(&mut self, by: clif::Value, cold: bool, then: impl FnOnce(&mut Self)) {
        let (yes, done) = (self.builder.create_block(), self.builder.create_block());
        self.builder.ins().brif(by, yes, [], done, []);
        if cold {
            self.builder.set_cold_block(yes);
        }
        self.builder.switch_to_block(yes);
        then(self);
        self.builder.ins().jump(done, []);
        self.builder.switch_to_block(done);
    }

    /// Emits the result of `then` if `by` is true, else false.
    fn and_then(&mut self, by: clif::Value, then: impl FnOnce(&mut Self) -> clif::Value) -> clif::Value {
        match known(&self.builder.func.dfg, by) {
            Some(0) => return by,
            Some(_) => return then(self),
            None => {}
        }
        let (yes, done) = (self.builder.create_block(), self.builder.create_block());
        let result = self.builder.append_block_param(done, I8);
        let no = self.bool(false);
        self.builder.ins().brif(by, yes, [], done, &[no.into()]);
        self.builder.switch_to_block(yes);
        let value = then(self);
        self.builder.ins().jump(done, &[value.into()]);
        self.builder.switch_to_block(done);
        result
    }
}

/// A lock that a handler may hold: its state (0 none, 1 a stripe, 2 all), and the hash that chose the stripe.
#[derive(Clone, Copy)]
struct LockState {
    table: TableId,
    held: Variable,
    hash: Variable,
}

/// The translator of one handler of a segment.
struct PartTranslator<'s, 'a, 'f, 'p> {
    segment: &'s mut Segment<'a, 'f>,
    function: &'p Function,
    /// The index of the part in the segment.
    nth: usize,
    /// Assignments of the current block become edits.
    sets_by_edits: bool,
    /// No part follows.
    is_last_part: bool,
    /// Nothing after the current instruction reads or changes the frame.
    is_last_change: bool,
    element: u16,
    opens: bool,
    counts: bool,
    fail_open: bool,
    /// The start of the next part.
    next: clif::Block,
    blocks: Vec<clif::Block>,
    values: Vec<Option<Val>>,
    /// Values whose bytes were made in the scratch.
    in_scratch: Vec<bool>,
    /// For each value, how the native function that returned it ended.
    ended: Vec<Option<clif::Value>>,
    /// Values that are views of cells of rows.
    cells_in_rows: Vec<Option<state::RowCell>>,
    /// Values that are keys in registers.
    made_keys: Vec<Option<key::RegisterKey>>,
    analysis: Analysis<'p>,
    /// The handler may be rolled back after the current instruction.
    may_fail_later: bool,
    /// The current write is rolled back without the journal.
    undone_in_place: bool,
    /// Those writes, in the order of the code.
    undos: Vec<state::Undo>,
    locks: Vec<LockState>,
    vars_lock: Option<Variable>,
    /// For the head of each scan, the number of its iterations.
    visits: Vec<Option<Variable>>,
    /// The columns at the start of the handler; only where it may be rolled back.
    saved: Vec<Option<tuple::SavedColumn>>,
    /// The byte offsets of MERGE variables, and their values at the start of the handler.
    saved_merges: Vec<(i32, clif::Value)>,
}

impl<'s, 'a, 'f, 'p> PartTranslator<'s, 'a, 'f, 'p> {
    /// Analyses the function of a part and makes its translator. `next` is the block after the handler.
    fn new(
        segment: &'s mut Segment<'a, 'f>,
        nth: usize,
        part: &Part<'p>,
        next: clif::Block,
    ) -> Result<Self, Unsupported> {
        let function = part.function;
        let chain = segment.plan.chain;
        let analysis = Analysis::of(function, segment.plan, segment.room.clone())?;
        segment.room = analysis.room_after.clone();
        Ok(Self {
            fail_open: chain.fails_open(part.element, segment.plan.event),
            blocks: function.blocks.iter().map(|_| segment.builder.create_block()).collect(),
            values: vec![None; function.types.len()],
            in_scratch: vec![false; function.types.len()],
            ended: vec![None; function.types.len()],
            cells_in_rows: vec![None; function.types.len()],
            made_keys: vec![None; function.types.len()],
            analysis,
            may_fail_later: false,
            undone_in_place: false,
            undos: Vec::new(),
            segment,
            function,
            nth,
            sets_by_edits: false,
            is_last_part: false,
            is_last_change: false,
            element: part.element,
            opens: part.opens,
            counts: part.counts,
            next,
            locks: Vec::new(),
            vars_lock: None,
            visits: vec![None; function.blocks.len()],
            saved: Vec::new(),
            saved_merges: Vec::new(),
        })
    }

    /// Translates all reachable blocks of the handler, in reverse post-order.
    fn translate(mut self) -> Result<(), Unsupported> {
        self.begin()?;
        // The handler's prologue goes into its first block, unless a scan jumps back to that.
        if self.is_scan(BlockId(0)) {
            self.segment.builder.ins().jump(self.blocks[0], []);
            self.segment.builder.switch_to_block(self.blocks[0]);
        }
        let order = self.analysis.order.clone();
        for id in order {
            if self.exit_block(id).is_none() {
                self.block(id)?;
            }
        }
        self.segment.may_have_effects |= analysis::has_effects(self.function);
        Ok(())
    }

    fn ins(&mut self) -> FuncInstBuilder<'_, 'f> {
        self.segment.builder.ins()
    }

    /// Emits the prologue of the handler: counters, and what a roll-back needs.
    fn begin(&mut self) -> Result<(), Unsupported> {
        if self.counts {
            self.count(offset_of!(Counters, seen));
        }
        if self.analysis.undoes {
            if self.segment.may_have_effects {
                let frame = self.segment.frame;
                self.segment.call(Helper::Begin, &[frame]);
            }
            self.saved = self.segment.save_inputs();
        }
        for var in self.analysis.merges.clone() {
            let saved = self.load_merged(var)?;
            self.saved_merges.push(saved);
        }
        if self.analysis.asks_scratch {
            let zero = self.segment.int(0);
            self.segment.store_frame(zero, offset_of!(Frame<'_, '_>, scratch_full));
        }
        for table in self.analysis.locked_tables() {
            if self.segment.plan.state.tables[usize::from(table.0)].spec().shared {
                let held = self.segment.builder.declare_var(I8);
                let hash = self.segment.builder.declare_var(I64);
                let (no, zero) = (self.segment.bool(false), self.segment.int(0));
                self.segment.builder.def_var(held, no);
                self.segment.builder.def_var(hash, zero);
                self.locks.push(LockState { table, held, hash });
            }
        }
        if self.analysis.locks_vars {
            let held = self.segment.builder.declare_var(I8);
            let no = self.segment.bool(false);
            self.segment.builder.def_var(held, no);
            self.vars_lock = Some(held);
        }
        Ok(())
    }

    /// Translates a block: parameters, instructions and terminator.
    fn block(&mut self, id: BlockId) -> Result<(), Unsupported> {
        let function = self.function;
        let block = &function.blocks[id.0 as usize];
        let target = self.blocks[id.0 as usize];
        for param in &block.params {
            let held: Vec<clif::Value> = clif_types(function.ty(*param))
                .iter()
                .map(|ty| self.segment.builder.append_block_param(target, *ty))
                .collect();
            self.values[param.0 as usize] = Some(match held[..] {
                [one] => Val::One(one),
                _ => Val::Two(held[0], held[1]),
            });
        }
        if id.0 != 0 {
            self.segment.builder.switch_to_block(target);
        }
        self.sets_by_edits = self.segment.patches.is_edit(self.nth, id);
        for (at, inst) in block.insts.iter().enumerate() {
            self.may_fail_later = self.analysis.may_fail_after(id, at);
            self.undone_in_place = self.may_fail_later && self.analysis.is_undone_in_place(id, at);
            self.is_last_change = matches!(inst.op, Op::ChangeHeaders(..)) && self.is_last_change(id, at);
            let value = self.inst(id, inst)?;
            if let (Some(result), Some(value)) = (inst.result, value) {
                self.values[result.0 as usize] = Some(value);
                self.in_scratch[result.0 as usize] =
                    self.ty(result) == Ty::Bytes && analysis::makes_bytes(&inst.op);
            }
        }
        let given = block.insts.iter().filter_map(|inst| match inst.op {
            Op::Give(input, ..) => Some(input),
            _ => None,
        });
        let given: InputSet = given.collect();
        if self.segment.parser_paths.is_none() {
            self.segment.make_present(given);
        }
        self.terminator(id, &block.end)
    }

    /// The value of an operand. A key kept in registers is written to memory first.
    fn get(&mut self, value: Value) -> Result<Val, Unsupported> {
        if let Some(made) = self.made_keys.get(value.0 as usize).cloned().flatten() {
            self.store_made(&made);
        }
        self.get_unread(value)
    }

    /// As [`Self::get`], for a use that reads no bytes: those of a key in registers may not exist.
    fn get_unread(&self, value: Value) -> Result<Val, Unsupported> {
        self.values.get(value.0 as usize).copied().flatten().ok_or_else(|| Unsupported {
            reason: format!("{}: value {} is used before it is defined", self.function.name, value.0),
            line: 0,
        })
    }

    fn ty(&self, value: Value) -> Ty {
        self.function.ty(value)
    }

    /// Emits an instruction; returns its result, if it has one.
    fn inst(&mut self, block: BlockId, inst: &'p Inst) -> Result<Option<Val>, Unsupported> {
        let value = match &inst.op {
            Op::BoolConst(b) => Some(Val::One(self.segment.bool(*b))),
            Op::IntConst(n) => Some(Val::One(self.segment.int(*n))),
            Op::FloatConst(x) => Some(Val::One(self.segment.builder.ins().f64const(*x))),
            Op::BytesConst(bytes) => Some(self.segment.constant(bytes)),
            Op::NoRow => Some(self.segment.zero(Ty::Row)),
            Op::FrameGet(at, bytes, endian) => Some(self.frame_get(*at, (*bytes, *endian), inst.result)?),
            Op::Select(by, yes, no) => {
                let (by, yes, no) = (self.get(*by)?.one(), self.get(*yes)?, self.get(*no)?);
                Some(match self.without_not(by) {
                    (by, false) => self.segment.select(by, yes, no),
                    (by, true) => self.segment.select(by, no, yes),
                })
            }
            op => {
                if let Some(value) = self.number(op)? {
                    return Ok(Some(value));
                }
                match self.bytes(op, inst.result)? {
                    Some(value) => Some(value),
                    None => match self.tuple(op)? {
                        Translated::Value(value) => Some(value),
                        Translated::Effect => None,
                        Translated::Not => self.state(block, inst)?,
                    },
                }
            }
        };
        Ok(value)
    }

    /// Emits the terminator of block `from`.
    fn terminator(&mut self, from: BlockId, end: &Terminator) -> Result<(), Unsupported> {
        match end {
            Terminator::Missing => {
                return Err(Unsupported { reason: "a block has no end".into(), line: 0 });
            }
            Terminator::Jump(jump) => {
                if let Some(out) = self.exit_block(jump.block) {
                    self.segment.builder.ins().jump(out, []);
                    return Ok(());
                }
                self.count_visit(from, jump.block);
                let args = self.args(jump)?;
                let block = self.blocks[jump.block.0 as usize];
                self.segment.builder.ins().jump(block, &args);
            }
            Terminator::Branch(by, yes, no) => {
                if let Some(flag) = self.analysis.known_flag(*by) {
                    let side = if flag { yes } else { no };
                    return self.terminator(from, &Terminator::Jump(side.clone()));
                }
                if let Some(side) = self
                    .segment
                    .parser_paths
                    .as_ref()
                    .and_then(|parser_paths| parser_paths.assumed_side(from, [yes, no]))
                {
                    return self.terminator(from, &Terminator::Jump(side.clone()));
                }
                let by = self.get(*by)?.one();
                let (yes_args, no_args) = (self.branch_args(yes)?, self.branch_args(no)?);
                let (yes_block, no_block) = (self.branch_block(yes), self.branch_block(no));
                match self.without_not(by) {
                    (by, false) => self.ins().brif(by, yes_block, &yes_args, no_block, &no_args),
                    (by, true) => self.ins().brif(by, no_block, &no_args, yes_block, &yes_args),
                };
                for (jump, block) in [(yes, yes_block), (no, no_block)] {
                    if self.has_own_path(jump) {
                        self.segment.builder.switch_to_block(block);
                        self.terminator(from, &Terminator::Jump(jump.clone()))?;
                    }
                }
            }
            Terminator::Forward => {
                self.leave_pass();
                match self.segment.parser_paths.as_ref().and_then(|parser_paths| parser_paths.end_of(from)) {
                    Some((pass, args)) => {
                        let args = args.into_iter().map(|arg| match arg {
                            Arg::Value(value) => Ok(self.get(value)?.one().into()),
                            Arg::Number(n) => Ok(self.segment.int(n).into()),
                        });
                        let args: Vec<clif::BlockArg> = args.collect::<Result<_, Unsupported>>()?;
                        self.segment.builder.ins().jump(pass, &args);
                    }
                    None => _ = self.segment.builder.ins().jump(self.next, []),
                }
            }
            Terminator::Skip => {
                // OPEN and REQUEST of an element count one tuple: the first of them does.
                if self.counts {
                    self.add_to(offset_of!(Counters, seen), -1);
                }
                self.leave_pass();
                self.segment.builder.ins().jump(self.next, []);
            }
            Terminator::Steer { .. } => {
                self.count(offset_of!(Counters, diverted));
                self.leave_pass();
                self.segment.builder.ins().jump(self.next, []);
            }
            Terminator::Drop { line } => self.verdict(verdict::DROP, None, None, *line),
            Terminator::Abort { status, text, line } => {
                let text = text.map(|text| self.get(text)).transpose()?;
                let code = match status {
                    StatusOperand::Known(status) => self.segment.int(i64::from(status.code())),
                    StatusOperand::Computed(code) => self.get(*code)?.one(),
                };
                self.verdict(verdict::ABORT, Some(code), text, *line);
            }
            Terminator::Reply { line } => self.verdict(verdict::REPLY, None, None, *line),
            Terminator::Redirect { to, line } => {
                self.count(offset_of!(Counters, diverted));
                self.redirect(*to, *line)?;
                self.leave_pass();
                self.segment.builder.ins().jump(self.next, []);
            }
            Terminator::Fail { fault, line } => {
                let fault = self.get(*fault)?.one();
                self.fail(fault, *line);
            }
        }
        Ok(())
    }

    /// Emits a failure: a roll-back, then the next handler if the element fails open, else the verdict.
    fn fail(&mut self, fault: clif::Value, line: u32) {
        self.roll_back();
        if self.fail_open {
            self.count(offset_of!(Counters, failed));
            self.leave_pass();
            self.segment.builder.ins().jump(self.next, []);
        } else {
            self.verdict(verdict::FAILED, Some(fault), None, line);
        }
    }

    fn is_scan(&self, block: BlockId) -> bool {
        self.function.blocks[block.0 as usize].scan_rows_max.is_some()
    }

    /// The block that replaces one outside the paths of common-case frames.
    fn exit_block(&self, block: BlockId) -> Option<clif::Block> {
        self.segment.parser_paths.as_ref()?.out_to(block)
    }

    /// The target of a branch: the block itself, or one that counts visits of a scan.
    fn branch_block(&mut self, jump: &Jump) -> clif::Block {
        if let Some(out) = self.exit_block(jump.block) {
            return out;
        }
        if !self.has_own_path(jump) {
            return self.blocks[jump.block.0 as usize];
        }
        let block = self.segment.builder.create_block();
        if !self.is_scan(jump.block) {
            self.segment.builder.set_cold_block(block);
        }
        block
    }

    /// The arguments of a jump from a branch; empty if the jump gets a block of its own.
    fn branch_args(&mut self, jump: &Jump) -> Result<Vec<clif::BlockArg>, Unsupported> {
        if self.has_own_path(jump) || self.exit_block(jump.block).is_some() {
            Ok(Vec::new())
        } else {
            self.args(jump)
        }
    }

    /// Whether a jump needs a block of its own: to count a scan, or to compute what only a failure passes on, off the
    /// path that does not fail.
    fn has_own_path(&self, jump: &Jump) -> bool {
        if self.exit_block(jump.block).is_some() {
            return false;
        }
        let fails = matches!(self.function.blocks[jump.block.0 as usize].end, Terminator::Fail { .. });
        self.is_scan(jump.block) || fails && !jump.args.iter().all(|arg| self.analysis.is_constant(*arg))
    }

    /// Counts the rows of a scan, and fails the handler beyond its limit. Lowered programs count for themselves; this
    /// is a second line of defence.
    fn count_visit(&mut self, from: BlockId, to: BlockId) {
        let Some(max) = self.function.blocks[to.0 as usize].scan_rows_max else { return };
        let visits = match self.visits[to.0 as usize] {
            Some(visits) => visits,
            None => *self.visits[to.0 as usize].insert(self.segment.builder.declare_var(I64)),
        };
        let mut count = self.segment.int(0);
        if self.analysis.is_back_edge(to, from) {
            let before = self.segment.builder.use_var(visits);
            count = self.segment.iadd_imm(before, 1);
            let max = self.segment.int(max.saturating_add(1) as i64);
            let is_over = self.ins().icmp(IntCC::UnsignedGreaterThan, count, max);
            let [over, on] = [(); 2].map(|()| self.segment.builder.create_block());
            self.ins().brif(is_over, over, [], on, []);
            self.segment.builder.set_cold_block(over);
            self.segment.builder.switch_to_block(over);
            let fault = self.segment.int(i64::from(Fault::FunctionFailed.code()));
            self.fail(fault, 0);
            self.segment.builder.switch_to_block(on);
        }
        self.segment.builder.def_var(visits, count);
    }

    /// The arguments of a jump, word by word.
    fn args(&mut self, jump: &Jump) -> Result<Vec<clif::BlockArg>, Unsupported> {
        let mut args = Vec::with_capacity(jump.args.len());
        for arg in &jump.args {
            match self.get(*arg)? {
                Val::One(a) => args.push(a.into()),
                Val::Two(a, b) => args.extend([clif::BlockArg::from(a), clif::BlockArg::from(b)]),
            }
        }
        Ok(args)
    }

    /// Emits the end of the pass, with the code of a status or fault, and a text.
    fn verdict(&mut self, kind: u64, code: Option<clif::Value>, text: Option<Val>, line: u32) {
        let flags = [(self.counts, verdict::COUNTS), (self.opens, verdict::OPENING)];
        let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(kind, |kind, (_, flag)| kind | flag);
        let packed = flags | u64::from(self.element) << 16 | u64::from(line) << 32;
        let (packed, zero) = (self.segment.int(packed as i64), self.segment.int(0));
        let (start, len) = text.map_or((zero, zero), Val::two);
        let (cx, began) = (self.segment.cx, self.segment.began);
        // The text is copied before locks are released.
        let args = [cx, packed, code.unwrap_or(zero), began, start, len];
        // Only locks live across the call; without them there is nothing to save.
        if self.locks.is_empty() && self.vars_lock.is_none() {
            self.segment.call(Helper::EndPass, &args);
        } else {
            self.segment.call_cold(Cold::EndPass, &args);
        }
        self.unlock();
        self.segment.builder.ins().return_(&[]);
    }

    /// Emits the end of a handler: it releases its locks, and reads the clock on sampled passes.
    fn leave_pass(&mut self) {
        self.unlock();
        if self.segment.is_fast_path {
            return;
        }
        let trace = self.segment.load_trace();
        let element = i64::from(self.element) | i64::from(self.counts) << 32;
        self.segment.when(trace, true, |segment| {
            let element = segment.int(element);
            segment.call_cold(Cold::Stamp, &[segment.cx, segment.began, element]);
        });
    }

    /// Emits a roll-back to the start of the handler.
    fn roll_back(&mut self) {
        self.undo_stores();
        for (offset, word) in self.saved_merges.clone() {
            let merged = self.segment.merged();
            self.ins().store(PLAIN, word, merged, offset);
        }
        if !self.analysis.undoes {
            return;
        }
        let (frame, to_start) =
            (self.segment.frame, self.segment.int(i64::from(!self.segment.may_have_effects)));
        self.segment.call_cold(Cold::RollBack, &[frame, to_start]);
        self.segment.restore_inputs(&self.saved);
    }

    /// Adds one to a counter of the element.
    fn count(&mut self, field: usize) {
        self.add_to(field, 1);
    }

    /// Emits the addition of `n` to a counter of the element, at byte offset `field`.
    fn add_to(&mut self, field: usize, n: i64) {
        let counters = self.segment.load_cx(I64, offset_of!(Cx<'_>, counters) + SLICE_START);
        let offset = (usize::from(self.element) * size_of::<Counters>() + field) as i32;
        let ins = &mut self.segment.builder;
        let old = ins.ins().load(I64, PLAIN, counters, offset);
        let new = ins.ins().iadd_imm_s(old, n);
        ins.ins().store(PLAIN, new, counters, offset);
    }

    /// Emits the stores of values to a stack slot as [`Cell`]s; returns its address.
    fn cells(&mut self, values: &[Value]) -> Result<clif::Value, Unsupported> {
        let bytes = CELL_BYTES * values.len().max(1) as u32;
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, bytes, 3);
        let slot = self.segment.builder.create_sized_stack_slot(slot);
        let start = self.segment.builder.ins().stack_addr(I64, slot, 0);
        for (at, value) in (0..).step_by(CELL_BYTES as usize).zip(values) {
            let ty = self.ty(*value);
            let value = self.get(*value)?;
            let tag = self.segment.int(cell_tag(ty) as i64);
            let a = self.segment.pack(ty, value);
            let ins = &mut self.segment.builder;
            ins.ins().store(PLAIN, tag, start, at + Cell::TAG);
            ins.ins().store(PLAIN, a, start, at + Cell::A);
            if let Val::Two(_, b) = value {
                ins.ins().store(PLAIN, b, start, at + Cell::B);
            }
        }
        Ok(start)
    }
}

/// The result of an attempt to translate an instruction.
enum Translated {
    /// A value.
    Value(Val),
    /// Translated; it has no value.
    Effect,
    /// Not an instruction of this group.
    Not,
}

/// The tag of a value of this type in a [`Cell`].
fn cell_tag(ty: Ty) -> u64 {
    match ty {
        Ty::Bool => tag::BOOL,
        Ty::Int | Ty::Row => tag::INT,
        Ty::Float => tag::FLOAT,
        Ty::Bytes => tag::BYTES,
    }
}
