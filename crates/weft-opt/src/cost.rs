//! What a chain costs, known before anything runs: at worst, and at a guess.

use weft_core::table::Table;
use weft_ir::ir::{Function, Inst, Op, Ty};
use weft_ir::program::{ChainProgram, Element, Handlers};

/// The cost of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementCost {
    /// The instance.
    pub name: String,
    /// Operations of the IR in the longest way through each handler, a scan counted with all its rows.
    pub ops: HandlerOps,
    /// Bytes that its own tables take when they are full.
    pub table_bytes: u64,
    /// Bytes of the call's row, for each open call.
    pub call_bytes: u64,
}

/// Operations by handler; 0 where there is none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub struct HandlerOps {
    pub open: u64,
    pub request: u64,
    pub response: u64,
    pub close: u64,
    /// All EVERY handlers together.
    pub every: u64,
    /// All TIMEOUT handlers together, for a row each.
    pub timeout: u64,
}

impl HandlerOps {
    /// Each with the word for its handler.
    pub fn named(&self) -> [(&'static str, u64); 6] {
        [
            ("OPEN", self.open),
            ("REQUEST", self.request),
            ("RESPONSE", self.response),
            ("CLOSE", self.close),
            ("EVERY", self.every),
            ("TIMEOUT", self.timeout),
        ]
    }
}

/// The cost of a chain.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// By element, in the order of the chain.
    pub elements: Vec<ElementCost>,
    /// Bytes of full tables that belong to no element alone.
    pub shared_table_bytes: u64,
}

/// The worst case of a chain.
pub fn cost(chain: &ChainProgram) -> Cost {
    let table_bytes = |owner: &str| {
        let owned = chain.tables.iter().filter(|table| table.owner == owner);
        owned.map(|table| Table::new(table.spec.clone()).memory_bytes_max()).sum()
    };
    let elements = chain.elements.iter().map(|element| {
        let cells = chain.call.iter().filter(|cell| cell.owner == element.name);
        ElementCost {
            name: element.name.clone(),
            ops: handler_ops(&element.handlers),
            table_bytes: table_bytes(&element.name),
            call_bytes: cells.map(|cell| 8 * weft_ir::program::cell_words(cell.ty) as u64).sum(),
        }
    });
    Cost { elements: elements.collect(), shared_table_bytes: table_bytes("") }
}

/// The worst case of the handlers of an element.
pub fn handler_ops(handlers: &Handlers) -> HandlerOps {
    let one = |handler: &Option<Function>| handler.as_ref().map_or(0, longest_way);
    let every = handlers.every.iter().map(|(_, handler)| longest_way(handler));
    let timeouts = handlers.timeouts.iter().map(|(_, handler)| longest_way(handler));
    HandlerOps {
        open: one(&handlers.open),
        request: one(&handlers.request),
        response: one(&handlers.response),
        close: one(&handlers.close),
        every: every.fold(0, u64::saturating_add),
        timeout: timeouts.fold(0, u64::saturating_add),
    }
}

/// Nanoseconds that an element takes for a call that reaches it, at a guess: the longest way through each of its
/// handlers of calls, each operation at what it was seen to take in compiled code (`weft bench elements`), a run of
/// bytes taken to be short. Good enough to tell a table from a comparison; what runs is measured.
pub fn typical_ns(chain: &ChainProgram, element: &Element) -> f64 {
    let handlers = &element.handlers;
    let handlers = [&handlers.open, &handlers.request, &handlers.response, &handlers.close];
    let of = |handler| picoseconds(chain, handler);
    handlers.into_iter().flatten().map(of).sum::<u64>() as f64 / 1e3
}

fn picoseconds(chain: &ChainProgram, function: &Function) -> u64 {
    let of_block = |at: usize| {
        let insts = &function.blocks[at].insts;
        HANDLER_STEP_PS + insts.iter().map(|inst| of_inst(chain, function, inst)).sum::<u64>()
    };
    longest(function, of_block)
}

/// What goes from block to block in compiled code, in picoseconds.
const HANDLER_STEP_PS: u64 = 200;

/// The bytes that a function is taken to be given: a message is small.
const TYPICAL_BYTES: u64 = 256;

/// What a match takes, in picoseconds, and each of its parts. More rules hardly change it.
const MATCH_PS: u64 = 20_000;
const MATCH_PART_PS: u64 = 4_000;

/// What headers that are put on or taken off take, in picoseconds, and the look at the frame that comes out.
const RESHAPE_PS: u64 = 60_000;

/// What a small message takes that is written with its changes, in picoseconds.
const REWRITE_PS: u64 = 150_000;

fn of_inst(chain: &ChainProgram, function: &Function, inst: &Inst) -> u64 {
    let is_bytes = inst.result.is_some_and(|result| function.ty(result) == Ty::Bytes);
    match &inst.op {
        Op::Find(..) | Op::ScanRow(..) => 5_000,
        Op::Match(_, _, keys) => MATCH_PS + MATCH_PART_PS * keys.len() as u64,
        Op::Insert(..) | Op::Remove(..) => 20_000,
        Op::Touch(..) | Op::TouchRead(..) => 2_000,
        Op::SetColumn(..) | Op::SetColumnNull(..) => 1_500,
        Op::CountInto(..) => 3_000,
        Op::Lock(..) | Op::LockVars => 4_000,
        Op::Emit(_, cells) => 4_000 + 1_000 * cells.len() as u64,
        Op::Mirror(_) => 500_000,
        Op::Concat(_) | Op::Lower(_) | Op::Upper(_) | Op::Like(..) | Op::Key(_) => 6_000,
        Op::IntToText(..) | Op::FloatToText(_) | Op::TextToFloat(_) | Op::TextToInt(..) => 15_000,
        Op::Native(id, _) => 1_000 * chain.natives[usize::from(id.0)].cost.ns(TYPICAL_BYTES),
        Op::Derived(_) => REWRITE_PS,
        Op::Hash(_) => 2_000,
        Op::Rand(_) => 1_200,
        Op::SetInput(..) | Op::ClearInput(_) | Op::SetAnswer(..) | Op::SetReply(..) => 4_000,
        Op::Reshape(_, parts) => RESHAPE_PS + 4_000 * parts.len() as u64,
        Op::BytesCompare(..) | Op::InPrefix(..) | Op::InPrefixes(..) => 1_500,
        Op::Column(..) | Op::CallGet(_) if is_bytes => 2_000,
        _ => 100,
    }
}

/// Operations on the longest way, each block weighed by the rows of the scans that it is in.
///
/// It is an upper bound: every block counts as often as all scans whose heads can lead to it and back allow.
fn longest_way(function: &Function) -> u64 {
    longest(function, |at| function.blocks[at].insts.len() as u64 + 1)
}

fn longest(function: &Function, of_block: impl Fn(usize) -> u64) -> u64 {
    let own = weights(function).into_iter().enumerate();
    let own: Vec<u64> = own.map(|(at, weight)| of_block(at).saturating_mul(weight)).collect();
    let n = function.blocks.len();
    way_from(0, function, &own, &mut vec![None; n], &mut vec![false; n])
}

fn way_from(
    at: usize,
    function: &Function,
    own: &[u64],
    longest: &mut [Option<u64>],
    open: &mut [bool],
) -> u64 {
    if let Some(known) = longest[at] {
        return known;
    }
    // A jump back: its turns are in the weights.
    if core::mem::replace(&mut open[at], true) {
        return 0;
    }
    let block = &function.blocks[at];
    let mut behind = 0;
    for jump in block.end.jumps() {
        behind = way_from(jump.block.0 as usize, function, own, longest, open).max(behind);
    }
    open[at] = false;
    let total = own[at].saturating_add(behind);
    longest[at] = Some(total);
    total
}

/// How often each block runs at most: the product of the scans that it is in.
fn weights(function: &Function) -> Vec<u64> {
    let n = function.blocks.len();
    let mut weights = vec![1u64; n];
    for (head, block) in function.blocks.iter().enumerate() {
        let Some(rows_max) = block.scan_rows_max else { continue };
        let from_head = reached(function, head);
        for (at, weight) in weights.iter_mut().enumerate() {
            if from_head[at] && reached(function, at)[head] {
                *weight = weight.saturating_mul(rows_max + 1);
            }
        }
    }
    weights
}

/// The blocks behind one, itself only if a way leads back.
fn reached(function: &Function, from: usize) -> Vec<bool> {
    let mut reached = vec![false; function.blocks.len()];
    let mut ahead = vec![from];
    while let Some(at) = ahead.pop() {
        for jump in function.blocks[at].end.jumps() {
            let to = jump.block.0 as usize;
            if !core::mem::replace(&mut reached[to], true) {
                ahead.push(to);
            }
        }
    }
    reached
}
