//! A parser and the pass behind it in one, for frames that have what most have ([`super::usual`]).
//!
//! On the ways on which the parser comes to a usual frame, most of what it finds is known when the code is made: the
//! fields of the first headers lie where they always do. So the pass reads them there, and nobody asks whether they are
//! in the frame, since the parser just has. Other frames leave the code as from a parser, and pass by the code for all.

use super::key::usual_len;
use super::usual::{Usual, bits};
use super::{PLAIN, PartTranslator, Plan, Segment};
use crate::arithmetic::known;
use crate::translate::Constants;
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::types::I64;
use cranelift_frontend::FunctionBuilder;
use std::collections::BTreeMap;
use weft_core::abi::{Cx, Slot};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, Function, InputId, Op, Value};
use weft_ir::program::{Part, Place};
use weft_ir::verify::{Exit, exits};

/// A chain of which usual frames can be parsed and pass at once.
pub(crate) struct Through<'c> {
    parser: Part<'c>,
    parts: Vec<Part<'c>>,
    usual: Usual,
    /// Where usual frames leave the parser.
    exits: Vec<Exit>,
    /// What is known of slots there, by input and offset.
    words: BTreeMap<(usize, usize), Word>,
    /// Inputs that are there of all of them.
    present: u64,
}

/// A word of a slot.
enum Word {
    Constant(i64),
    /// By exit.
    Number(Vec<Value>),
}

/// Where usual frames go when they have been parsed.
pub(super) struct Lane {
    block: clif::Block,
    /// What it is given, by the block that ends the way there.
    args: BTreeMap<BlockId, Vec<Value>>,
}

impl Lane {
    pub(super) fn way_from(&self, block: BlockId) -> Option<(clif::Block, Vec<Value>)> {
        self.args.get(&block).map(|args| (self.block, args.clone()))
    }
}

/// What is known of a frame that has been parsed.
#[derive(Default)]
pub(super) struct Found {
    words: BTreeMap<(usize, usize), clif::Value>,
    present: u64,
    /// How many bytes it has at least.
    frame_min: i64,
}

impl Found {
    /// A word of a slot.
    pub(super) fn word(&self, at: usize, word: usize) -> Option<clif::Value> {
        self.words.get(&(at, word)).copied()
    }

    pub(super) fn is_present(&self, at: usize) -> bool {
        self.present >> at & 1 == 1
    }

    /// Whether these bytes are known to lie in the frame.
    pub(super) fn holds(&self, (at, len): (clif::Value, clif::Value), dfg: &clif::DataFlowGraph) -> bool {
        let end = known(dfg, at).zip(known(dfg, len)).and_then(|(at, len)| at.checked_add(len));
        end.is_some_and(|end| (1..=self.frame_min).contains(&end))
    }
}

impl<'c> Through<'c> {
    /// None if there are no such frames, or a pass changes more than their fields. The verifier has accepted the parser.
    pub(crate) fn of(plan: &Plan<'c>, parser: Part<'c>) -> Option<Self> {
        let parts = plan.chain.parts(plan.event);
        let mut ops = parts.iter().flat_map(|part| &part.function.blocks).flat_map(|block| &block.insts);
        if ops.any(|inst| matches!(inst.op, Op::Reshape(..) | Op::Mirror(_))) {
            return None;
        }
        let usual = Usual::of(plan, &parts)?;
        let inputs = &plan.chain.request.inputs;
        let is_meta = |at: &usize| matches!(inputs[*at].place, Place::Meta(_));
        let metas = (0..inputs.len()).filter(is_meta).fold(0, |all, at| all | 1 << at);
        let constants = constants(parser.function);
        let is_usual = |exit: &Exit| {
            let given = exit.gives.keys().fold(0, |all, input| all | input.bit());
            let is_whole = |at_input: usize| {
                let (a, b) = exit.gives[&InputId(at_input as u16)];
                let run = constants.get(&a).zip(b.and_then(|b| constants.get(&b)));
                run.is_some_and(|(at, len)| {
                    let is_usual =
                        usual_len(inputs[at_input].ty).is_some_and(|usual| i64::from(usual) == *len);
                    is_usual && (0..=exit.frame_min as i64 - len).contains(at)
                })
            };
            let assumed = usual.assumed;
            assumed.present & !(given | metas) == 0 && bits(assumed.whole).all(is_whole)
        };
        let exits: Vec<Exit> = exits(parser.function).into_iter().filter(is_usual).collect();
        let present = exits
            .iter()
            .fold(u64::MAX, |all, exit| all & exit.gives.keys().fold(0, |given, input| given | input.bit()));
        if exits.is_empty() {
            return None;
        }
        let mut words = BTreeMap::new();
        for at in bits(present) {
            let given = exits.iter().map(|exit| exit.gives[&InputId(at as u16)]);
            let (first, second): (Vec<Value>, Vec<Option<Value>>) = given.unzip();
            let is_asked = usual.asked >> at & 1 == 1;
            let mut add = |offset: usize, values: Vec<Value>| {
                let known: Vec<Option<&i64>> = values.iter().map(|value| constants.get(value)).collect();
                match known[0].filter(|_| known.iter().all(|other| *other == known[0])) {
                    Some(n) => _ = words.insert((at, offset), Word::Constant(*n)),
                    None if is_asked => _ = words.insert((at, offset), Word::Number(values)),
                    None => {}
                }
            };
            add(offset_of!(Slot, a), first);
            if let Some(second) = second.into_iter().collect::<Option<Vec<Value>>>() {
                add(offset_of!(Slot, b), second);
            }
        }
        Some(Self { parser, parts, usual, exits, words, present: present | metas })
    }

    /// Translates it into `builder`'s function, a [`crate::frame::Entry`].
    ///
    /// # Errors
    /// As [`super::translate`].
    pub(crate) fn translate(
        &self,
        plan: &Plan<'_>,
        builder: FunctionBuilder<'_>,
    ) -> Result<Constants, Unsupported> {
        let parts = self.usual.parts(&self.parts);
        let mut segment = Segment::new(plan, builder)?;
        segment.parses = true;
        let all: Vec<Part<'_>> = parts.iter().copied().chain([self.parser]).collect();
        segment.start_frame(&all);
        segment.start_outcome();
        let [lane, parsed] = [(); 2].map(|()| segment.builder.create_block());
        let mut args: BTreeMap<BlockId, Vec<Value>> =
            self.exits.iter().map(|exit| (exit.block, Vec::new())).collect();
        for (at, word) in &self.words {
            let word = match word {
                Word::Constant(n) => segment.int(*n),
                Word::Number(values) => {
                    for (exit, value) in self.exits.iter().zip(values) {
                        args.entry(exit.block).or_default().push(*value);
                    }
                    segment.builder.append_block_param(lane, I64)
                }
            };
            segment.found.words.insert(*at, word);
        }
        segment.lane = Some(Lane { block: lane, args });
        PartTranslator::new(&mut segment, 0, &self.parser, parsed)?.translate()?;
        segment.lane = None;
        segment.builder.switch_to_block(parsed);
        segment.builder.ins().return_(&[]);
        segment.builder.switch_to_block(lane);
        let one = segment.int(1);
        segment.builder.ins().store(PLAIN, one, segment.cx, offset_of!(Cx<'_>, passed) as i32);
        segment.found.present = self.present;
        segment.found.frame_min = self.exits.iter().map(|exit| exit.frame_min).min().unwrap_or(0) as i64;
        segment.assumed = self.usual.assumed;
        segment.lay_out(&parts)?;
        segment.builder.seal_all_blocks();
        Ok(segment.finish())
    }
}

/// The numbers of a function that are constants.
fn constants(function: &Function) -> BTreeMap<Value, i64> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    let constant = |op: &Op| if let Op::IntConst(n) = op { Some(*n) } else { None };
    insts.filter_map(|inst| Some((inst.result?, constant(&inst.op)?))).collect()
}
