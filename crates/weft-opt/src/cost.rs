//! What a chain costs at worst, known before anything runs.

use weft_core::table::Table;
use weft_ir::ir::Function;
use weft_ir::program::ChainProgram;

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
        let handlers = &element.handlers;
        let one = |handler: &Option<Function>| handler.as_ref().map_or(0, longest_way);
        let cells = chain.call.iter().filter(|cell| cell.owner == element.name);
        ElementCost {
            name: element.name.clone(),
            ops: HandlerOps {
                open: one(&handlers.open),
                request: one(&handlers.request),
                response: one(&handlers.response),
                close: one(&handlers.close),
                every: handlers.every.iter().map(|(_, handler)| longest_way(handler)).sum(),
            },
            table_bytes: table_bytes(&element.name),
            call_bytes: cells.map(|cell| 8 * weft_ir::program::cell_words(cell.ty) as u64).sum(),
        }
    });
    Cost { elements: elements.collect(), shared_table_bytes: table_bytes("") }
}

/// Operations on the longest way, each block weighed by the rows of the scans that it is in.
///
/// It is an upper bound: every block counts as often as all scans whose heads can lead to it and back allow.
fn longest_way(function: &Function) -> u64 {
    let weights = weights(function);
    let n = function.blocks.len();
    let mut longest = vec![None; n];
    way_from(0, function, &weights, &mut longest, &mut vec![false; n])
}

fn way_from(
    at: usize,
    function: &Function,
    weights: &[u64],
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
    let own = (block.insts.len() as u64 + 1).saturating_mul(weights[at]);
    let mut behind = 0;
    for jump in block.end.jumps() {
        behind = way_from(jump.block.0 as usize, function, weights, longest, open).max(behind);
    }
    open[at] = false;
    let total = own.saturating_add(behind);
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
