//! What a chain costs, known before anything runs: at worst, and at a guess.

use std::collections::BTreeMap;
use weft_core::limits::LIKE_BYTES_MAX;
use weft_core::table::Table;
use weft_ir::ir::{BytesCmp, Function, Inst, Op, Ty, Value};
use weft_ir::program::{ChainProgram, Element, Handlers};

/// The cost of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementCost {
    /// The instance.
    pub name: String,
    /// Operations of the IR in the longest way through each handler, a scan counted with all its rows.
    pub ops: HandlerOps,
    /// Nanoseconds for each 1024 bytes of the values that its text functions are given, on the longest way of each
    /// handler and with the worst values that a peer can send.
    pub ns_per_kib: HandlerOps,
    /// Bytes that its own tables take when they are full.
    pub table_bytes: u64,
    /// Bytes of the call's row, for each open call.
    pub call_bytes: u64,
}

/// Operations, or time, by handler; 0 where there is none.
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
        owned.map(|table| Table::memory_bytes_max_of(&table.spec)).sum()
    };
    let elements = chain.elements.iter().map(|element| {
        let cells = chain.call.iter().filter(|cell| cell.owner == element.name);
        ElementCost {
            name: element.name.clone(),
            ops: handler_ops(&element.handlers),
            ns_per_kib: by_handler(&element.handlers, |function| {
                let literals = literals(function);
                longest(function, |at| {
                    let insts = function.blocks[at].insts.iter();
                    insts.map(|inst| ns_per_kib(chain, &literals, &inst.op)).fold(0, u64::saturating_add)
                })
            }),
            table_bytes: table_bytes(&element.name),
            call_bytes: cells.map(|cell| 8 * weft_ir::program::cell_words(cell.ty) as u64).sum(),
        }
    });
    Cost { elements: elements.collect(), shared_table_bytes: table_bytes("") }
}

/// The worst case of the handlers of an element.
pub fn handler_ops(handlers: &Handlers) -> HandlerOps {
    by_handler(handlers, longest_path)
}

fn by_handler(handlers: &Handlers, of: impl Fn(&Function) -> u64) -> HandlerOps {
    let one = |handler: &Option<Function>| handler.as_ref().map_or(0, &of);
    let every = handlers.every.iter().map(|(_, handler)| of(handler));
    let timeouts = handlers.timeouts.iter().map(|(_, handler)| of(handler));
    HandlerOps {
        open: one(&handlers.open),
        request: one(&handlers.request),
        response: one(&handlers.response),
        close: one(&handlers.close),
        every: every.fold(0, u64::saturating_add),
        timeout: timeouts.fold(0, u64::saturating_add),
    }
}

/// Nanoseconds for each 1024 bytes, at worst: what searches took on values made to be hard, and copies.
const SEARCH_NS_PER_KIB: u64 = 6_000;
const WILDCARDS_NS_PER_KIB: u64 = 6_000;
const COPY_NS_PER_KIB: u64 = 100;

/// The bytes that are known before a function runs.
fn literals(function: &Function) -> BTreeMap<Value, &[u8]> {
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
    insts
        .filter_map(|inst| match &inst.op {
            Op::BytesConst(bytes) => inst.result.map(|result| (result, &bytes[..])),
            _ => None,
        })
        .collect()
}

/// What an operation takes for each 1024 bytes that it is given. Comparisons end with the shorter value, and keys have
/// a bound: they are not in it.
fn ns_per_kib(chain: &ChainProgram, literals: &BTreeMap<Value, &[u8]>, op: &Op) -> u64 {
    match op {
        Op::BytesCompare(BytesCmp::Contains, ..) => SEARCH_NS_PER_KIB,
        // A part with wildcards between two `%` takes a step for every 64 of its characters.
        Op::BytesCompare(BytesCmp::Like, _, pattern) => {
            let Some(pattern) = literals.get(pattern) else {
                return u64::from(LIKE_BYTES_MAX.div_ceil(64)) * WILDCARDS_NS_PER_KIB;
            };
            let parts: Vec<&[u8]> = pattern.split(|byte| *byte == b'%').collect();
            let inner = parts.get(1..parts.len() - 1).unwrap_or_default();
            let has_wildcards = |part: &&&[u8]| part.contains(&b'_');
            let words = inner.iter().filter(has_wildcards).map(|part| part.len().div_ceil(64) as u64).max();
            let searches = if inner.is_empty() { 0 } else { SEARCH_NS_PER_KIB };
            searches.max(words.unwrap_or(0) * WILDCARDS_NS_PER_KIB)
        }
        Op::Concat(_) | Op::Lower(_) | Op::Upper(_) => COPY_NS_PER_KIB,
        Op::Native(id, _) => chain.natives[usize::from(id.0)].cost.ns_per_kib.into(),
        _ => 0,
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
        Op::Concat(_) | Op::Lower(_) | Op::Upper(_) | Op::Key(_) => 6_000,
        Op::BytesCompare(BytesCmp::Like, ..) => 6_000,
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
fn longest_path(function: &Function) -> u64 {
    longest(function, |at| function.blocks[at].insts.len() as u64 + 1)
}

fn longest(function: &Function, of_block: impl Fn(usize) -> u64) -> u64 {
    let weights = weights(function);
    let mut behind = vec![0_u64; function.blocks.len()];
    // Without recursion: a way is as long as a handler. From the end on, so that what a block leads to is known; a jump
    // back is not, and its turns are in the weights.
    for at in reverse_postorder(function) {
        let jumps = function.blocks[at].end.jumps();
        let most = jumps.iter().map(|jump| behind[jump.block.0 as usize]).max().unwrap_or(0);
        behind[at] = of_block(at).saturating_mul(weights[at]).saturating_add(most);
    }
    behind.first().copied().unwrap_or(0)
}

/// The blocks that are reached, each behind all that it leads to but by a jump back.
fn reverse_postorder(function: &Function) -> Vec<usize> {
    let next = |at: usize, nth: usize| -> Option<usize> {
        function.blocks[at].end.jumps().get(nth).map(|jump| jump.block.0 as usize)
    };
    let mut entered = vec![false; function.blocks.len()];
    let (mut done, mut open) = (Vec::new(), Vec::new());
    if let Some(entry) = entered.first_mut() {
        *entry = true;
        open.push((0, 0));
    }
    while let Some((at, nth)) = open.pop() {
        let Some(to) = next(at, nth) else {
            done.push(at);
            continue;
        };
        open.push((at, nth + 1));
        if !core::mem::replace(&mut entered[to], true) {
            open.push((to, 0));
        }
    }
    done
}

/// How often each block runs at most: the product of the scans that it is in.
fn weights(function: &Function) -> Vec<u64> {
    let n = function.blocks.len();
    let (mut leads_to, mut comes_from) = (vec![Vec::new(); n], vec![Vec::new(); n]);
    for (at, block) in function.blocks.iter().enumerate() {
        for jump in block.end.jumps() {
            leads_to[at].push(jump.block.0 as usize);
            comes_from[jump.block.0 as usize].push(at);
        }
    }
    let mut weights = vec![1u64; n];
    for (head, block) in function.blocks.iter().enumerate() {
        let Some(rows_max) = block.scan_rows_max else { continue };
        let (behind, before) = (reached(&leads_to, head), reached(&comes_from, head));
        for at in (0..n).filter(|at| behind[*at] && before[*at]) {
            weights[at] = weights[at].saturating_mul(rows_max + 1);
        }
    }
    weights
}

/// The blocks that ways lead to from one, itself only if a way leads back.
fn reached(successors: &[Vec<usize>], from: usize) -> Vec<bool> {
    let mut reached = vec![false; successors.len()];
    let mut ahead = vec![from];
    while let Some(at) = ahead.pop() {
        for &to in &successors[at] {
            if !core::mem::replace(&mut reached[to], true) {
                ahead.push(to);
            }
        }
    }
    reached
}
