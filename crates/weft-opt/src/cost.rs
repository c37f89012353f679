//! Computes the static cost of a chain: worst case and estimate.

use std::collections::BTreeMap;
use weft_core::limits::LIKE_BYTES_MAX;
use weft_core::table::Table;
use weft_ir::graph;
use weft_ir::ir::{BytesCmp, Function, Inst, Op, Ty, Value};
use weft_ir::program::{ChainProgram, Element, Handlers};

/// The cost of one element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ElementCost {
    /// The instance's name.
    pub name: String,
    /// IR operations on the longest path through each handler; a scan counts with all its rows.
    pub ops: HandlerOps,
    /// Nanoseconds per 1024 bytes of the arguments of its text functions, on the longest path of each handler and for
    /// the worst values that a peer can send.
    pub ns_per_kib: HandlerOps,
    /// Bytes of its own tables when full.
    pub table_bytes: u64,
    /// Bytes of the call's row, per open call.
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
    /// All TIMEOUT handlers together, each for one row.
    pub timeout: u64,
}

impl HandlerOps {
    /// Returns the values with their handlers' keywords.
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
    /// Bytes of full tables that belong to no single element.
    pub shared_table_bytes: u64,
}

/// Computes the worst-case cost of a chain.
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

/// The worst-case cost of an element's handlers.
pub fn handler_ops(handlers: &Handlers) -> HandlerOps {
    by_handler(handlers, longest_path)
}

/// Applies a cost function to each handler. Handlers of the same event are added up.
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

/// Nanoseconds per 1024 bytes in the worst case: measured for searches in adversarial values, and for copies.
const SEARCH_NS_PER_KIB: u64 = 6_000;
const WILDCARDS_NS_PER_KIB: u64 = 6_000;
const COPY_NS_PER_KIB: u64 = 100;

/// Returns the bytes of the constants in a function.
fn literals(function: &Function) -> BTreeMap<Value, &[u8]> {
    let insts = function.insts();
    insts
        .filter_map(|inst| match &inst.op {
            Op::BytesConst(bytes) => inst.result.map(|result| (result, &bytes[..])),
            _ => None,
        })
        .collect()
}

/// The time of an operation per 1024 bytes of its arguments. Comparisons end with the shorter value, and keys are
/// bounded, so they do not count.
fn ns_per_kib(chain: &ChainProgram, literals: &BTreeMap<Value, &[u8]>, op: &Op) -> u64 {
    match op {
        Op::BytesCompare(BytesCmp::Contains, ..) => SEARCH_NS_PER_KIB,
        // A part with wildcards between two `%` takes one step per 64 of its characters.
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

/// Estimated nanoseconds that an element takes for a call that reaches it: the longest path through each of its call
/// handlers, with measured times of operations in compiled code (`weft bench elements`), for short byte strings. This
/// is good enough to tell a table from a comparison; running chains are measured.
pub fn typical_ns(chain: &ChainProgram, element: &Element) -> f64 {
    let handlers = &element.handlers;
    let handlers = [&handlers.open, &handlers.request, &handlers.response, &handlers.close];
    let of = |handler| picoseconds(chain, handler);
    handlers.into_iter().flatten().map(of).sum::<u64>() as f64 / 1e3
}

/// Estimates the longest path of a function in picoseconds.
fn picoseconds(chain: &ChainProgram, function: &Function) -> u64 {
    let of_block = |at: usize| {
        let insts = &function.blocks[at].insts;
        HANDLER_STEP_PS + insts.iter().map(|inst| of_inst(chain, function, inst)).sum::<u64>()
    };
    longest(function, of_block)
}

/// Overhead of compiled code per instruction, in picoseconds.
const HANDLER_STEP_PS: u64 = 200;

/// Assumed length of a function's argument: messages are small.
const TYPICAL_BYTES: u64 = 256;

/// Picoseconds of a match, and of each of its parts. More rules hardly change it.
const MATCH_PS: u64 = 20_000;
const MATCH_PART_PS: u64 = 4_000;

/// Picoseconds of pushing or popping headers, and of parsing the resulting frame.
const RESHAPE_PS: u64 = 60_000;

/// Picoseconds of encoding a small message with its changes.
const REWRITE_PS: u64 = 150_000;

/// Estimates an instruction in picoseconds.
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
        Op::ChangeHeaders(_, parts) => RESHAPE_PS + 4_000 * parts.len() as u64,
        Op::BytesCompare(..) | Op::InPrefix(..) | Op::InPrefixes(..) => 1_500,
        Op::Column(..) | Op::CallGet(_) if is_bytes => 2_000,
        _ => 100,
    }
}

/// Operations on the longest path, each block weighted by the rows of the scans around it.
///
/// It is an upper bound: every block counts with all scans whose head leads to it and back.
fn longest_path(function: &Function) -> u64 {
    longest(function, |at| function.blocks[at].insts.len() as u64 + 1)
}

/// Returns the cost of the most expensive path of a function. `of_block` gives the cost of one block.
fn longest(function: &Function, of_block: impl Fn(usize) -> u64) -> u64 {
    let weights = weights(function);
    let mut behind = vec![0_u64; function.blocks.len()];
    // Without recursion, because a path is as long as a handler. Backwards from the end, so that the successors of a
    // block are known; back edges are not, and their iterations are in the weights.
    for at in graph::post_order(&graph::successors(function)) {
        let most = function.blocks[at].end.targets().into_iter().map(|to| behind[to]).max().unwrap_or(0);
        behind[at] = of_block(at).saturating_mul(weights[at]).saturating_add(most);
    }
    behind.first().copied().unwrap_or(0)
}

/// Computes how often each block runs at most: the product of the scans around it.
fn weights(function: &Function) -> Vec<u64> {
    let n = function.blocks.len();
    let leads_to = graph::successors(function);
    let comes_from = graph::predecessors(&leads_to);
    let mut weights = vec![1u64; n];
    for (head, block) in function.blocks.iter().enumerate() {
        let Some(rows_max) = block.scan_rows_max else { continue };
        let (behind, before) = (graph::reached(&leads_to, head), graph::reached(&comes_from, head));
        for at in (0..n).filter(|at| behind[*at] && before[*at]) {
            weights[at] = weights[at].saturating_mul(rows_max + 1);
        }
    }
    weights
}
