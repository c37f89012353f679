//! The fast path: parses common-case frames and runs their pass in one function ([`super::specialize`]).
//!
//! On the parser's paths to a common-case frame, most of its results are known at compile time: the first headers have
//! fixed offsets. So the pass reads their fields there. The code writes no slots and needs no bounds checks, because
//! the parser has just made them. A frame that leaves these paths leaves the function without effects, and takes the
//! general parser.

use super::key::expected_len;
use super::specialize::{Specialized, metas, present_at, words};
use super::tuple::region_at;
use super::{FIXED, PLAIN, PartTranslator, Plan, Segment, path_merge, prefetch};
use crate::arithmetic::known;
use crate::frame::{Frames, SLICE_LEN, SLICE_START};
use crate::translate::Constants;
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::types::I64;
use cranelift_frontend::FunctionBuilder;
use std::collections::{BTreeMap, BTreeSet};
use weft_core::abi::{Cx, REGION_BODY, Slot};
use weft_core::inputs::InputSet;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, Function, InputId, Jump, Op, Value};
use weft_ir::program::{Input, Part};
use weft_ir::verify::{ParserExit, bounds, exits};

/// The fast path of a chain.
pub(crate) struct FastPath<'c> {
    parser: Part<'c>,
    parts: Vec<Part<'c>>,
    specialized: Specialized,
    /// The exits through which common-case frames leave the parser.
    exits: Vec<ParserExit>,
    /// Inputs that the engine sets before a frame is parsed.
    metas: InputSet,
}

/// The parser's part of the fast path.
pub(super) struct ParserPaths {
    /// Where frames continue after the parser.
    pass: clif::Block,
    /// The arguments of `pass`, by the block that ends the path there.
    args: BTreeMap<BlockId, Vec<Arg>>,
    /// The blocks on these paths.
    blocks: BTreeSet<BlockId>,
    /// Where all other frames go.
    out: clif::Block,
    /// In a prefetcher: the blocks that only test for the common case. It assumes the result of these tests.
    assumed: Option<BTreeSet<BlockId>>,
}

/// A value that is known at the end of a path.
#[derive(Clone, Copy)]
pub(super) enum Arg {
    Value(Value),
    Number(i64),
}

impl ParserPaths {
    /// The target of the exit in this block, and its arguments.
    pub(super) fn end_of(&self, block: BlockId) -> Option<(clif::Block, Vec<Arg>)> {
        self.args.get(&block).map(|args| (self.pass, args.clone()))
    }

    /// The side of a branch that the code assumes.
    pub(super) fn assumed_side<'j>(&self, from: BlockId, [yes, no]: [&'j Jump; 2]) -> Option<&'j Jump> {
        match [yes, no].map(|side| self.blocks.contains(&side.block)) {
            _ if !self.assumed.as_ref()?.contains(&from) => None,
            [true, false] => Some(yes),
            [false, true] => Some(no),
            _ => None,
        }
    }

    /// The code is a prefetcher: it writes nothing but prefetch slots.
    pub(super) fn is_prefetch(&self) -> bool {
        self.assumed.is_some()
    }

    /// Where frames go that leave the path for this block.
    pub(super) fn out_to(&self, block: BlockId) -> Option<clif::Block> {
        (!self.blocks.contains(&block)).then_some(self.out)
    }
}

/// What is known of a frame at the end of the parser.
#[derive(Default)]
pub(super) struct ParsedFrame {
    /// Words of slots, by input and offset.
    words: BTreeMap<(usize, usize), clif::Value>,
    /// Words of the set of inputs that the parser has found, where not empty; and the inputs that all frames have.
    masks: [Option<clif::Value>; InputSet::WORDS],
    present: InputSet,
    /// Least number of bytes of the frame.
    frame_min: i64,
    /// If set, nothing is known of other inputs, not even whether they are present.
    known_inputs: Option<InputSet>,
    /// The code reads one of those, so it is useless.
    reads_unknown: bool,
}

impl ParsedFrame {
    /// A word of a slot.
    pub(super) fn word(&self, at: usize, word: usize) -> Option<clif::Value> {
        self.words.get(&(at, word)).copied()
    }

    pub(super) fn is_present(&self, at: usize) -> bool {
        self.present.contains(at)
    }

    /// Whether these bytes certainly lie in the frame.
    pub(super) fn surely_holds(
        &self,
        (at, len): (clif::Value, clif::Value),
        dfg: &clif::DataFlowGraph,
    ) -> bool {
        let end = known(dfg, at).zip(known(dfg, len)).and_then(|(at, len)| at.checked_add(len));
        end.is_some_and(|end| (1..=self.frame_min).contains(&end))
    }
}

impl<'c> FastPath<'c> {
    /// Returns None if the chain has no fast path. The verifier has accepted the parser.
    pub(crate) fn of(plan: &Plan<'c>, parser: Part<'c>) -> Option<Self> {
        let parts = plan.chain.parts(plan.event);
        let specialized = Specialized::of(plan, &parts)?;
        let inputs = &plan.chain.request.inputs;
        let metas = metas(inputs);
        let constants = constants(parser.function);
        let is_usual = |exit: &ParserExit| {
            let is_whole = |at| is_whole(inputs, &constants, exit, at);
            (exit.given() | metas).contains_all(specialized.assumptions.present)
                && specialized.assumptions.whole.iter().all(is_whole)
        };
        let exits: Vec<ParserExit> = exits(parser.function).into_iter().filter(is_usual).collect();
        (!exits.is_empty()).then_some(Self { parser, parts, specialized, exits, metas })
    }

    /// Translates the fast path into `builder`'s function, a [`crate::frame::Entry`].
    ///
    /// # Errors
    /// As [`super::translate`].
    pub(crate) fn translate(
        &self,
        plan: &Plan<'_>,
        builder: FunctionBuilder<'_>,
    ) -> Result<Constants, Unsupported> {
        let parts = self.specialized.parts(&self.parts);
        let segment = self.make(plan, builder, &self.parsed(), &parts, None, |segment, _| {
            segment.start_outcome();
            let one = segment.int(1);
            segment.builder.ins().store(PLAIN, one, segment.cx, offset_of!(Cx<'_>, passed) as i32);
            segment.lay_out(&parts)
        })?;
        Ok(segment.finish())
    }

    /// Translates the prefetcher of the fast path into `builder`'s function, a [`crate::frame::PrefetchBatchEntry`],
    /// with the prefetch slots of the plan. It assumes the common case except where this would read outside the frame;
    /// passes of other frames do not use their prefetch slots.
    ///
    /// # Errors
    /// As [`super::translate`].
    pub(crate) fn translate_prefetch(
        &self,
        plan: &Plan<'_>,
        builder: FunctionBuilder<'_>,
    ) -> Result<Constants, Unsupported> {
        Ok(self.prefetch_segment(plan, builder, &self.parsed())?.finish())
    }

    /// As [`FastPath::translate_prefetch`], without branches between the parser's paths, if the keys are the same on
    /// all of them.
    ///
    /// # Errors
    /// As [`super::translate`].
    pub(crate) fn translate_straight_prefetch(
        &self,
        plan: &Plan<'_>,
        builder: FunctionBuilder<'_>,
    ) -> Result<Option<Constants>, Unsupported> {
        let Some(function) = path_merge::of(self.parser.function, &self.exits) else { return Ok(None) };
        let (exits, constants) = (exits(&function), constants(&function));
        let inputs = &plan.chain.request.inputs;
        let is_whole = |exit: &ParserExit| {
            let whole = self.specialized.assumptions.whole & exit.given();
            whole.iter().all(|at| is_whole(inputs, &constants, exit, at))
        };
        if !exits.iter().all(is_whole) {
            return Ok(None);
        }
        let parser = Part { function: &function, ..self.parser };
        let known_inputs = exits.iter().fold(self.metas, |all, exit| all | exit.given());
        let parsed = ParserExits { parser, exits: &exits, known_inputs: Some(known_inputs) };
        let segment = self.prefetch_segment(plan, builder, &parsed)?;
        let reads_unknown = segment.parsed_frame.reads_unknown;
        let constants = segment.finish();
        Ok((!reads_unknown).then_some(constants))
    }

    /// Translates the prefetcher: the parser, then the look-ups of all parts.
    fn prefetch_segment<'s>(
        &self,
        plan: &'s Plan<'s>,
        builder: FunctionBuilder<'s>,
        parsed: &ParserExits<'_>,
    ) -> Result<Segment<'s, 's>, Unsupported> {
        let parts = self.specialized.parts(&self.parts);
        let function = parsed.parser.function;
        let bounds = bounds(function);
        let all = (0..function.blocks.len()).map(|at| BlockId(at as u32));
        let assumed = all.filter(|block| !bounds.contains(block)).collect();
        let prefetch_parts = |segment: &mut Segment<'_, '_>, next: Option<clif::Block>| {
            prefetch::translate(segment, &parts, &mut plan.prefetch_layouts.clone())?;
            segment.leave(next);
            Ok(())
        };
        self.make(plan, builder, parsed, &[], Some(assumed), prefetch_parts)
    }

    /// The chain's own parser.
    fn parsed(&self) -> ParserExits<'_> {
        ParserExits { parser: self.parser, exits: &self.exits, known_inputs: None }
    }

    /// Emits the parser for these parts of a pass, and then `behind`; see [`ParserPaths::assumed`].
    fn make<'s>(
        &self,
        plan: &'s Plan<'s>,
        builder: FunctionBuilder<'s>,
        parsed: &ParserExits<'_>,
        parts: &[Part<'_>],
        assumed: Option<BTreeSet<BlockId>>,
        behind: impl FnOnce(&mut Segment<'s, 's>, Option<clif::Block>) -> Result<(), Unsupported>,
    ) -> Result<Segment<'s, 's>, Unsupported> {
        let mut segment = Segment::new(plan, builder)?;
        segment.is_fast_path = true;
        let all: Vec<Part<'_>> = parts.iter().copied().chain([parsed.parser]).collect();
        segment.start_frame(&all);
        let next = assumed.is_some().then(|| segment.for_each_frame());
        let [pass, out] = [(); 2].map(|()| segment.builder.create_block());
        let args = parsed.exit_args(&mut segment, pass, self.metas);
        let blocks = parsed.exits.iter().flat_map(|exit| exit.way.iter().copied()).collect();
        segment.parser_paths = Some(ParserPaths { pass, args, blocks, out, assumed });
        PartTranslator::new(&mut segment, 0, &parsed.parser, out)?.translate()?;
        segment.parser_paths = None;
        segment.builder.switch_to_block(out);
        segment.builder.set_cold_block(out);
        segment.leave(next);
        segment.builder.switch_to_block(pass);
        segment.assumptions = self.specialized.assumptions;
        behind(&mut segment, next)?;
        segment.builder.seal_all_blocks();
        Ok(segment)
    }
}

/// A parser, and its exits for common-case frames.
struct ParserExits<'p> {
    parser: Part<'p>,
    exits: &'p [ParserExit],
    /// See [`ParsedFrame::known_inputs`].
    known_inputs: Option<InputSet>,
}

impl ParserExits<'_> {
    /// Records what is known at the ends of all paths: a value that is the same on all of them as a constant, others as
    /// parameters of `pass`. Returns the arguments of each exit.
    fn exit_args(
        &self,
        segment: &mut Segment<'_, '_>,
        pass: clif::Block,
        metas: InputSet,
    ) -> BTreeMap<BlockId, Vec<Arg>> {
        let constants = constants(self.parser.function);
        let arg = |value: Option<Value>| match value.map(|value| (value, constants.get(&value))) {
            None => Arg::Number(0),
            Some((_, Some(n))) => Arg::Number(*n),
            Some((value, None)) => Arg::Value(value),
        };
        let mut args: Vec<Vec<Arg>> = vec![Vec::new(); self.exits.len()];
        let mut word = |segment: &mut Segment<'_, '_>, by_exit: Vec<Arg>| {
            if let Arg::Number(n) = by_exit[0]
                && by_exit.iter().all(|other| matches!(other, Arg::Number(other) if *other == n))
            {
                return segment.int(n);
            }
            args.iter_mut().zip(by_exit).for_each(|(args, arg)| args.push(arg));
            segment.builder.append_block_param(pass, I64)
        };
        let masks: Vec<InputSet> = self.exits.iter().map(ParserExit::given).collect();
        let given = masks.iter().fold(InputSet::EMPTY, |all, mask| all | *mask);
        for at in given {
            let gives: Vec<_> = self.exits.iter().map(|exit| exit.gives.get(&InputId(at as u16))).collect();
            let first = gives.iter().map(|give| arg(give.map(|(a, _)| *a))).collect();
            let second = gives.iter().map(|give| arg(give.and_then(|(_, b)| *b))).collect();
            for (offset, by_exit) in [(offset_of!(Slot, a), first), (offset_of!(Slot, b), second)] {
                let found = word(segment, by_exit);
                segment.parsed_frame.words.insert((at, offset), found);
            }
        }
        for (nth, _) in words(given) {
            let by_exit = masks.iter().map(|mask| Arg::Number(mask.words()[nth] as i64)).collect();
            segment.parsed_frame.masks[nth] = Some(word(segment, by_exit));
        }
        segment.parsed_frame.present = masks.iter().fold(InputSet::ALL, |all, mask| all & *mask) | metas;
        segment.parsed_frame.known_inputs = self.known_inputs;
        segment.parsed_frame.frame_min =
            self.exits.iter().map(|exit| exit.frame_min).min().unwrap_or(0) as i64;
        let ends = self.exits.iter().map(|exit| exit.way[0]);
        ends.zip(args).collect()
    }
}

impl Segment<'_, '_> {
    /// Begins a loop over [`Frames`]: the code that follows is for one of them. Returns the block that continues with
    /// the next.
    fn for_each_frame(&mut self) -> clif::Block {
        let [n, bodies, prefetched_bytes, slot_bytes] = [
            offset_of!(Frames<'_>, n),
            offset_of!(Frames<'_>, bodies),
            offset_of!(Frames<'_>, prefetched_bytes),
            offset_of!(Frames<'_>, slot_bytes),
        ]
        .map(|at| self.builder.ins().load(I64, FIXED, self.opened, at as i32));
        let given = self.builder.ins().load(I64, FIXED, self.cx, given_at() as i32);
        let [each, next, end] = [(); 3].map(|()| self.builder.create_block());
        let first = [n, bodies, self.prefetched, given];
        self.builder.ins().jump(each, &first.map(clif::BlockArg::from));
        let [left, body, prefetched, given] = first.map(|_| self.builder.append_block_param(each, I64));

        self.builder.switch_to_block(next);
        let left = self.iadd_imm(left, -1);
        let body_after = self.iadd_imm(body, size_of::<&[u8]>() as i64);
        let prefetched_after = self.builder.ins().iadd(prefetched, prefetched_bytes);
        let given_after = self.builder.ins().iadd(given, slot_bytes);
        let again = [left, body_after, prefetched_after, given_after].map(clif::BlockArg::from);
        self.builder.ins().brif(left, each, &again, end, []);
        self.builder.switch_to_block(end);
        self.builder.ins().return_(&[]);

        self.builder.switch_to_block(each);
        let [start, len] =
            [SLICE_START, SLICE_LEN].map(|at| self.builder.ins().load(I64, FIXED, body, at as i32));
        // The pass has no values for these, or those of the first frame.
        let body = region_at(REGION_BODY);
        let own = [(body + SLICE_START, start), (body + SLICE_LEN, len), (given_at(), given)];
        self.fields.extend(own.map(|(at, value)| ((I64, at), value)));
        self.prefetched = prefetched;
        next
    }

    /// Emits the end of a frame: a jump to the next frame, or a return.
    fn leave(&mut self, next: Option<clif::Block>) {
        match next {
            Some(next) => self.builder.ins().jump(next, []),
            None => self.builder.ins().return_(&[]),
        };
    }

    /// Writes the slots and the present inputs of a common-case frame, for edits or a copy of it.
    pub(super) fn save_parsed(&mut self) {
        if !self.is_fast_path {
            return;
        }
        let slots = self.load_cx(I64, given_at());
        for ((at, offset), word) in self.parsed_frame.words.clone() {
            self.builder.ins().store(PLAIN, word, slots, (at * size_of::<Slot>() + offset) as i32);
        }
        for nth in
            (0..InputSet::WORDS).filter(|nth| self.parsed_frame.masks[*nth].is_some()).collect::<Vec<_>>()
        {
            let present = self.load_present_word(nth);
            self.builder.ins().store(PLAIN, present, self.cx, present_at(nth) as i32);
        }
    }

    /// Emits the load of a word of the set of present inputs.
    pub(super) fn load_present_word(&mut self, nth: usize) -> clif::Value {
        self.parsed_frame.reads_unknown |= self.parsed_frame.known_inputs.is_some();
        let before = self.load_cx(I64, present_at(nth));
        match self.parsed_frame.masks[nth] {
            Some(mask) => self.builder.ins().bor(before, mask),
            None => before,
        }
    }

    /// Emits the load of a word of an input's slot, or returns the known value.
    pub(super) fn load_slot(&mut self, at: usize, word: usize) -> clif::Value {
        if let Some(known) = self.parsed_frame.word(at, word) {
            return known;
        }
        if self.parsed_frame.known_inputs.is_some_and(|known_inputs| !known_inputs.contains(at)) {
            self.parsed_frame.reads_unknown = true;
            return self.int(0);
        }
        let slots = match self.is_fast_path {
            true => given_at(),
            false => offset_of!(Cx<'_>, slots) + SLICE_START,
        };
        let slots = self.load_cx(I64, slots);
        self.builder.ins().load(I64, FIXED, slots, (at * size_of::<Slot>() + word) as i32)
    }
}

/// The offset of the slots that a pass writes.
const fn given_at() -> usize {
    offset_of!(Cx<'_>, given) + SLICE_START
}

/// Whether an input has a fixed place and its expected length at this exit.
fn is_whole(inputs: &[Input], constants: &BTreeMap<Value, i64>, exit: &ParserExit, at: usize) -> bool {
    let (from, len) = exit.gives[&InputId(at as u16)];
    let run = constants.get(&from).zip(len.and_then(|len| constants.get(&len)));
    run.is_some_and(|(from, len)| {
        let is_usual = expected_len(inputs[at].ty).is_some_and(|usual| i64::from(usual) == *len);
        is_usual && (0..=exit.frame_min as i64 - len).contains(from)
    })
}

/// Collects the integer constants of a function.
fn constants(function: &Function) -> BTreeMap<Value, i64> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let constant = |op: &Op| if let Op::IntConst(n) = op { Some(*n) } else { None };
    insts.filter_map(|inst| Some((inst.result?, constant(&inst.op)?))).collect()
}
