//! Specializes a segment for common-case tuples.
//!
//! An input that may be NULL costs a test at each use, and bytes of a frame cost a bounds check. A chain declares which
//! inputs frames usually have ([`weft_ir::program::Frames::usual`]). So the code tests for all of them once, and then
//! runs a version of the segment that assumes them; other frames run the general version.

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
use weft_ir::program::{Event, Input, InputLocation, Part};

/// What the code may assume of its tuples.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Assumptions {
    /// Inputs that are present.
    pub(super) present: InputSet,
    /// Those of them that are bytes of the frame, lie in it, and have the expected length of their type.
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

/// The parts of a segment, specialized for common-case tuples.
pub(super) struct Specialized {
    pub(super) assumptions: Assumptions,
    /// The function of each part.
    functions: Vec<Function>,
}

impl Specialized {
    /// Returns None if the chain declares no such inputs, or they make no difference.
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
        let is_whole = |at: usize| {
            matches!(inputs[at].place, InputLocation::Frame(_)) && expected_len(inputs[at].ty).is_some()
        };
        let whole = (present & used).iter().filter(|at| is_whole(*at)).collect();
        let functions = parts.iter().map(|part| assume::present(part.function, present)).collect();
        frames
            .usual
            .intersects(present)
            .then_some(Self { assumptions: Assumptions { present, whole }, functions })
    }

    /// The parts with their specialized functions.
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
    /// Emits the general version of the parts, and the specialized one if there is one.
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

    /// Jumps to `other` if a tuple violates the assumptions. The branches are never taken in the common case, so the
    /// tests leave no values in registers.
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

    /// Emits a check: code continues if a comparison holds, else it jumps to `other`.
    fn check(&mut self, cc: IntCC, a: clif::Value, b: clif::Value, other: clif::Block) {
        let holds = self.builder.ins().icmp(cc, a, b);
        self.go_on_if(holds, other, &[]);
    }

    /// Emits a check: code continues if a condition holds, else it jumps to `other`.
    pub(super) fn go_on_if(&mut self, holds: clif::Value, other: clif::Block, args: &[clif::BlockArg]) {
        if known(&self.builder.func.dfg, holds).is_some_and(|holds| holds != 0) {
            return;
        }
        let on = self.builder.create_block();
        self.builder.ins().brif(holds, on, [], other, args);
        self.builder.switch_to_block(on);
    }

    /// Emits the conjunction of two flags, or returns one of them if the other is known to be true.
    pub(super) fn both(&mut self, a: clif::Value, b: clif::Value) -> clif::Value {
        match [a, b].map(|flag| known(&self.builder.func.dfg, flag)) {
            [Some(1), _] => b,
            [_, Some(1)] => a,
            _ => self.builder.ins().band(a, b),
        }
    }

    /// The length of an input that is assumed to be whole.
    pub(super) fn whole_len(&mut self, at: usize) -> Option<clif::Value> {
        let len = expected_len(self.plan.chain.request.inputs[at].ty)?;
        Some(self.int(i64::from(len)))
    }
}

/// Collects the inputs that the engine sets for all frames.
pub(super) fn metas(inputs: &[Input]) -> InputSet {
    let is_meta = |at: &usize| matches!(inputs[*at].place, InputLocation::Meta(_));
    (0..inputs.len()).filter(is_meta).collect()
}

/// The offset of this word of the present inputs.
pub(super) const fn present_at(nth: usize) -> usize {
    offset_of!(Cx<'_>, present) + nth * size_of::<u64>()
}

/// The non-empty words of a set, with their indexes.
pub(super) fn words(set: InputSet) -> impl Iterator<Item = (usize, u64)> {
    (*set.words()).into_iter().enumerate().filter(|(_, word)| *word != 0)
}
