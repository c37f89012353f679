//! Code of its own for tuples that have what most have.
//!
//! An input that may be NULL costs a question wherever it is used, and bytes of a frame cost the question whether they
//! lie in it. Where a chain says which inputs frames usually have ([`weft_ir::program::Frames::usual`]), all of that is
//! asked once, in front of code in which the answers are known; other frames take the code in which nothing is.

use super::key::expected_len;
use super::{Plan, Segment};
use crate::arithmetic::known;
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::I64;
use weft_core::abi::{Cx, Slot};
use weft_core::inputs::InputSet;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{Function, Op};
use weft_ir::passes::assume;
use weft_ir::program::{Event, Input, Part, Place};

/// What is known of tuples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Assumptions {
    /// Inputs that are there.
    pub(super) present: InputSet,
    /// Those of them that are bytes of the frame, lie in it and have the usual length of their type.
    pub(super) whole: InputSet,
}

impl Assumptions {
    pub(super) fn is_present(self, at: usize) -> bool {
        self.present.contains(at)
    }

    pub(super) fn is_whole(self, at: usize) -> bool {
        self.whole.contains(at)
    }
}

/// A segment as it is for usual tuples.
pub(super) struct Specialized {
    pub(super) assumptions: Assumptions,
    /// Its parts.
    functions: Vec<Function>,
}

impl Specialized {
    /// None if there are none, or it makes no difference.
    pub(super) fn of(plan: &Plan<'_>, parts: &[Part<'_>]) -> Option<Self> {
        let frames = plan.chain.frames.as_ref().filter(|_| plan.event == Event::Request)?;
        let cleared = parts.iter().fold(InputSet::EMPTY, |all, part| all | assume::cleared(part.function));
        let (mut asked, mut used) = (InputSet::EMPTY, InputSet::EMPTY);
        let ops = parts.iter().flat_map(|part| &part.function.blocks).flat_map(|block| &block.insts);
        for inst in ops {
            match inst.op {
                Op::Input(input) | Op::SetInput(input, _) => {
                    asked.insert(input);
                    used.insert(input);
                }
                Op::InputPresent(input) => asked.insert(input),
                _ => {}
            }
        }
        let inputs = &plan.chain.request.inputs;
        let present = (frames.usual | metas(inputs)) & asked & !cleared;
        let is_whole =
            |at: usize| matches!(inputs[at].place, Place::Frame(_)) && expected_len(inputs[at].ty).is_some();
        let whole = (present & used).iter().filter(|at| is_whole(*at)).collect();
        let functions = parts.iter().map(|part| assume::present(part.function, present)).collect();
        frames
            .usual
            .intersects(present)
            .then_some(Self { assumptions: Assumptions { present, whole }, functions })
    }

    pub(super) fn parts<'u>(&'u self, parts: &[Part<'_>]) -> Vec<Part<'u>> {
        let Self { functions, .. } = self;
        let part = |(part, function): (&Part<'_>, &'u Function)| Part {
            element: part.element,
            function,
            opens: part.opens,
            counts: part.counts,
        };
        parts.iter().zip(functions).map(part).collect()
    }
}

impl Segment<'_, '_> {
    /// Makes code of the parts, and beside it, if there is such a thing, of what they are for usual tuples.
    pub(super) fn with_specialized(
        &mut self,
        parts: &[Part<'_>],
        specialized: Option<&Specialized>,
        mut make: impl FnMut(&mut Self, &[Part<'_>]) -> Result<(), Unsupported>,
    ) -> Result<(), Unsupported> {
        let Some(specialized) = specialized else { return make(self, parts) };
        let any = self.builder.create_block();
        self.check_assumptions(specialized.assumptions, any);
        let fast = self.builder.create_block();
        self.builder.ins().jump(fast, []);
        self.builder.switch_to_block(any);
        make(self, parts)?;
        self.builder.switch_to_block(fast);
        self.assumptions = specialized.assumptions;
        make(self, &specialized.parts(parts))
    }

    /// Goes to `other` if a tuple is not what is assumed. By branches that are never taken: what is asked here is not
    /// kept then.
    fn check_assumptions(&mut self, assumptions: Assumptions, other: clif::Block) {
        for (nth, wanted) in words(assumptions.present) {
            let present = self.load_cx(I64, present_at(nth));
            let wanted = self.int(wanted as i64);
            let found = self.builder.ins().band(present, wanted);
            self.check(IntCC::Equal, found, wanted, other);
        }
        let region_len = self.frame_len();
        let mut ends: Vec<(clif::Value, clif::Value)> = Vec::new();
        for at in assumptions.whole {
            let Some(len) = self.whole_len(at) else { continue };
            let found = self.load_slot(at, offset_of!(Slot, b));
            self.check(IntCC::Equal, found, len, other);
            let known = ends.iter().find(|(of, _)| *of == len).map(|(_, last)| *last);
            let last = known.unwrap_or_else(|| {
                self.check(IntCC::UnsignedGreaterThanOrEqual, region_len, len, other);
                let last = self.builder.ins().isub(region_len, len);
                ends.push((len, last));
                last
            });
            let offset = self.load_slot(at, offset_of!(Slot, a));
            self.check(IntCC::UnsignedLessThanOrEqual, offset, last, other);
        }
    }

    /// Goes on if a comparison holds.
    fn check(&mut self, cc: IntCC, a: clif::Value, b: clif::Value, other: clif::Block) {
        let holds = self.builder.ins().icmp(cc, a, b);
        self.go_on_if(holds, other, &[]);
    }

    /// Goes on if a condition holds, and else to another block.
    pub(super) fn go_on_if(&mut self, holds: clif::Value, other: clif::Block, args: &[clif::BlockArg]) {
        if known(&self.builder.func.dfg, holds).is_some_and(|holds| holds != 0) {
            return;
        }
        let on = self.builder.create_block();
        self.builder.ins().brif(holds, on, [], other, args);
        self.builder.switch_to_block(on);
    }

    /// Whether both flags are set.
    pub(super) fn both(&mut self, a: clif::Value, b: clif::Value) -> clif::Value {
        match [a, b].map(|flag| known(&self.builder.func.dfg, flag)) {
            [Some(1), _] => b,
            [_, Some(1)] => a,
            _ => self.builder.ins().band(a, b),
        }
    }

    /// The length of an input that is taken to be whole.
    pub(super) fn whole_len(&mut self, at: usize) -> Option<clif::Value> {
        let len = expected_len(self.plan.chain.request.inputs[at].ty)?;
        Some(self.int(i64::from(len)))
    }
}

/// The inputs that the engine knows, which are there of all frames.
pub(super) fn metas(inputs: &[Input]) -> InputSet {
    let is_meta = |at: &usize| matches!(inputs[*at].place, Place::Meta(_));
    (0..inputs.len()).filter(is_meta).collect()
}

/// Where a pass has this word of the inputs that are there.
pub(super) const fn present_at(nth: usize) -> usize {
    offset_of!(Cx<'_>, present) + nth * size_of::<u64>()
}

/// The words of a set in which an input is, with their numbers: code has nothing to do with the others.
pub(super) fn words(set: InputSet) -> impl Iterator<Item = (usize, u64)> {
    (*set.words()).into_iter().enumerate().filter(|(_, word)| *word != 0)
}
