//! Sinks writes that an error would undo behind the operations that may fail.
//!
//! Writes to a cell of the call's row, and read touches of a row, move along all paths towards the end of the handler.
//! They stop in front of the first operation that depends on them. On failing paths they are dropped.
//!
//! It keeps the law because the skipped operations neither observe nor change the write, and an error would undo it
//! anyway. The pass adds no block: at a join, either all predecessors bring the write, or it is done before.

use crate::ir::{Function, Inst, Journal, Op, Terminator};

use super::journal::rollback_follows;
use super::targets;

/// Maximum number of writes to sink, and of blocks of a handler with sinking: larger handlers stay as they are, to
/// bound compile time.
const WRITES_MAX: usize = 64;
const BLOCKS_MAX: usize = 256;

/// See the module.
pub fn writes(function: &mut Function) {
    let scans = function.blocks.iter().any(|block| block.scan_rows_max.is_some());
    if scans || function.blocks.len() > BLOCKS_MAX {
        return;
    }
    let mut moved = 0;
    for at in 0..function.blocks.len() {
        // From the last write on, so that it is not in the way of earlier ones.
        for nth in (0..function.blocks[at].insts.len()).rev() {
            if moved < WRITES_MAX && is_undone(&function.blocks[at].insts[nth].op) {
                moved += 1;
                sink(function, (at, nth));
            }
        }
    }
}

fn is_undone(op: &Op) -> bool {
    matches!(op, Op::CallSet(.., Journal::Yes) | Op::TouchRead(..))
}

/// The effect of the rest of a block on a sinking write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkStep {
    /// The write must be done before this instruction, or before the terminator.
    Here(usize),
    /// An error undoes the write.
    Nowhere,
    /// The write continues to the successors.
    On,
}

fn sink(function: &mut Function, (home, nth): (usize, usize)) {
    let write = function.blocks[home].insts[nth].clone();
    let n = function.blocks.len();
    let step_of = |at: usize, from: usize| {
        sink_step(&function.blocks[at].insts[from..], &function.blocks[at].end, &write.op)
    };
    let through: Vec<SinkStep> = (0..n)
        .map(|at| if at == home { shifted(step_of(at, nth + 1), nth + 1) } else { step_of(at, 0) })
        .collect();
    let mut leads: Vec<Vec<usize>> = vec![Vec::new(); n];
    for (at, block) in function.blocks.iter().enumerate() {
        targets(&block.end).into_iter().for_each(|to| leads[to].push(at));
    }
    // Initially all blocks pass it on that can; a block stops if some predecessor of its successor does not.
    let mut hands_on: Vec<bool> = through.iter().map(|step| *step == SinkStep::On).collect();
    let mut brought = vec![false; n];
    loop {
        reach(function, home, &hands_on, &leads, &mut brought);
        let mut changed = false;
        for at in 0..n {
            let has_it = at == home || brought[at];
            let takes = |to: usize| brought[to] || through[to] == SinkStep::Nowhere && to != home;
            if has_it && hands_on[at] && !targets(&function.blocks[at].end).into_iter().all(takes) {
                hands_on[at] = false;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let places: Vec<(usize, usize)> = (0..n)
        .filter(|at| *at == home || brought[*at])
        .filter_map(|at| match through[at] {
            SinkStep::Here(before) => Some((at, before)),
            SinkStep::On if !hands_on[at] => Some((at, function.blocks[at].insts.len())),
            _ => None,
        })
        .collect();
    let rolls_back = rollback_follows(function);
    if places.iter().any(|(at, _)| !rolls_back[*at]) {
        place(function, (home, nth), &places, write);
    }
}

fn shifted(step: SinkStep, by: usize) -> SinkStep {
    match step {
        SinkStep::Here(before) => SinkStep::Here(before + by),
        other => other,
    }
}

/// Marks the blocks to which all predecessors bring the write.
fn reach(function: &Function, home: usize, hands_on: &[bool], leads: &[Vec<usize>], brought: &mut [bool]) {
    brought.fill(false);
    let mut changed = true;
    while changed {
        changed = false;
        for at in 0..function.blocks.len() {
            let brings = |from: &usize| hands_on[*from] && (*from == home || brought[*from]);
            if at != home && !brought[at] && !leads[at].is_empty() && leads[at].iter().all(brings) {
                brought[at] = true;
                changed = true;
            }
        }
    }
}

fn place(function: &mut Function, (home, nth): (usize, usize), places: &[(usize, usize)], write: Inst) {
    for (at, before) in places {
        function.blocks[*at].insts.insert(*before, write.clone());
    }
    // It was inserted behind its old position.
    function.blocks[home].insts.remove(nth);
}

fn sink_step(insts: &[Inst], end: &Terminator, write: &Op) -> SinkStep {
    for (nth, inst) in insts.iter().enumerate() {
        if inst.op == Op::RollBack {
            return SinkStep::Nowhere;
        }
        if notices(&inst.op, write) {
            return SinkStep::Here(nth);
        }
    }
    match end {
        Terminator::Fail { .. } => SinkStep::Nowhere,
        Terminator::Jump(_) | Terminator::Branch(..) => SinkStep::On,
        _ => SinkStep::Here(insts.len()),
    }
}

/// Whether an operation observes, undoes or overwrites a write.
fn notices(op: &Op, write: &Op) -> bool {
    match (op, write) {
        (Op::CallGet(cell) | Op::CallSet(cell, ..), Op::CallSet(own, ..)) => cell == own,
        // The touch decides which row is evicted. It does not decide whether the row lives: it lived at this time.
        (Op::Insert(table, ..) | Op::Remove(table, ..), Op::TouchRead(own, _)) => table == own,
        _ => false,
    }
}
