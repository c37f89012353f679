//! Estimates the size of compiled code, in steps of the IR.
//!
//! A step is roughly the cost of compiling an addition. An operation that back ends expand to several instructions and
//! blocks counts as several steps. Compile time grows faster than linearly in steps, so [`SEGMENT_STEPS_MAX`] limits
//! them before a back end sees the code.

use crate::ir::{Block, BytesCmp, Function, Op};
use crate::program::{ChainProgram, Event};
use weft_core::limits::SEGMENT_STEPS_MAX;

/// The steps of a jump between blocks, and of each argument.
pub const BLOCK_STEPS: usize = 8;
const ARGUMENT_STEPS: usize = 4;

const _: () = assert!(SEGMENT_STEPS_MAX > 1000 * BLOCK_STEPS, "a segment has room for a thousand blocks");

/// The steps of a function.
pub fn steps(function: &Function) -> usize {
    function.blocks.iter().map(of_block).sum()
}

/// The steps of a chain for an event, all elements together: a back end makes one function of them.
pub fn segment_steps(chain: &ChainProgram, event: Event) -> usize {
    chain.parts(event).iter().map(|part| steps(part.function)).sum()
}

/// The steps of all handlers of a chain, and of its parser.
pub fn chain_steps(chain: &ChainProgram) -> usize {
    let handlers = chain.elements.iter().flat_map(|element| element.handlers.all());
    handlers.map(|(_, function)| steps(function)).sum::<usize>() + segment_steps(chain, Event::Parse)
}

fn of_block(block: &Block) -> usize {
    let n_args: usize = block.end.jumps().iter().map(|jump| jump.args.len()).sum();
    BLOCK_STEPS + ARGUMENT_STEPS * n_args + block.insts.iter().map(|inst| of_op(&inst.op)).sum::<usize>()
}

/// Estimates the size of the code for an operation, in steps.
pub fn of_op(op: &Op) -> usize {
    match op {
        Op::BoolConst(_) | Op::IntConst(_) | Op::FloatConst(_) | Op::BytesConst(_) | Op::NoRow => 1,
        // Expanded to a comparison of words for each length, which is costly for register allocation.
        Op::BytesCompare(BytesCmp::Eq | BytesCmp::Ne, ..) => 30,
        Op::Find(..) => 60,
        Op::Match(_, _, keys) => 200 + 20 * keys.len(),
        Op::Insert(..) | Op::Remove(..) | Op::SetColumn(..) | Op::SetColumnNull(..) => 30,
        Op::Touch(..) | Op::TouchRead(..) | Op::CountInto(..) | Op::Lock(..) | Op::LockVars => 20,
        Op::ScanRow(..) | Op::ScanNext(..) | Op::Column(..) | Op::ColumnIsNull(..) => 12,
        Op::InPrefixes(_, nets) => 8 + 8 * nets.len(),
        Op::ChangeHeaders(_, parts) => 200 + 20 * parts.len(),
        Op::Emit(_, cells) => 12 + 8 * cells.len(),
        Op::Concat(parts) | Op::Key(parts) | Op::Native(_, parts) => 12 + 6 * parts.len(),
        Op::BytesCompare(..)
        | Op::SetInput(..)
        | Op::ClearInput(_)
        | Op::SetAnswer(..)
        | Op::SetReply(..)
        | Op::CallSet(..)
        | Op::VarSet(..)
        | Op::VarMerge(..)
        | Op::Mirror(_)
        | Op::Lower(_)
        | Op::Upper(_)
        | Op::IntToText(..)
        | Op::FloatToText(_)
        | Op::TextToInt(..)
        | Op::TextToFloat(_)
        | Op::Slice(..)
        | Op::Part(..)
        | Op::WordAt(..)
        | Op::Hash(_)
        | Op::Rand(_)
        | Op::FrameGet(..)
        | Op::FrameSum(..) => 10,
        _ => 2,
    }
}
