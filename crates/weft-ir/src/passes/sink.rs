//! Sinks writes that an error would undo behind the operations that may fail.
//!
//! Writes to a cell of the call's row, and read touches of a row, move along all paths towards the end of the handler.
//! They stop in front of the first operation that depends on them. On failing paths they are dropped.
//!
//! It keeps the law because the skipped operations neither observe nor change the write, and an error would undo it
//! anyway. The pass adds no block: at a join, either all predecessors bring the write, or it is done before.

use crate::graph;
use crate::ir::{Function, Inst, Journal, Op, Terminator};

use super::journal::rollback_follows;

/// Maximum number of writes to sink, and of blocks of a handler with sinking: larger handlers stay as they are, to
/// bound compile time.
const WRITES_MAX: usize = 64;
const BLOCKS_MAX: usize = 256;

/// Sinks the undoable writes of a function; functions with row scans or too many blocks stay as they are.
pub fn writes(function: &mut Function) {
    let scans = function.blocks.iter().any(|block| block.scan_rows_max.is_some());
    if scans || function.blocks.len() > BLOCKS_MAX {
        return;
    }
    let mut moved = 0;
    for at in 0..function.blocks.len() {
        // From the last write on, so that it is not in the way of earlier ones.
        for nth in (0..function.blocks[at].insts.len()).rev() {
            if moved < WRITES_MAX && is_undone_by_errors(&function.blocks[at].insts[nth].op) {
                moved += 1;
                sink_write(function, (at, nth));
            }
        }
    }
}

/// Whether an error in the handler undoes the operation, so that it can be sunk.
fn is_undone_by_errors(op: &Op) -> bool {
    matches!(op, Op::CallSet(.., Journal::Yes) | Op::TouchRead(..))
}

/// The effect of the rest of a block on a sinking write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SinkStep {
    /// The write must be done before this instruction, or before the terminator.
    Here(usize),
    /// An error undoes the write.
    Dropped,
    /// The write continues to the successors.
    Continues,
}

/// Moves the write at instruction `nth` of block `home` as far down as allowed. It stays unless there is
/// a new position that no rollback follows: only there does the write get cheaper.
fn sink_write(function: &mut Function, (home, nth): (usize, usize)) {
    let write = function.blocks[home].insts[nth].clone();
    let n = function.blocks.len();
    let step_of = |at: usize, from: usize| {
        sink_step(&function.blocks[at].insts[from..], &function.blocks[at].end, &write.op)
    };
    let steps: Vec<SinkStep> = (0..n)
        .map(|at| if at == home { shift_step(step_of(at, nth + 1), nth + 1) } else { step_of(at, 0) })
        .collect();
    let predecessors = graph::predecessors(&graph::successors(function));
    // Initially, every block that can passes it on; a block stops if some predecessor of its successor does not.
    let mut passes_on: Vec<bool> = steps.iter().map(|step| *step == SinkStep::Continues).collect();
    let mut arrives = vec![false; n];
    loop {
        mark_reached(function, home, &passes_on, &predecessors, &mut arrives);
        let mut changed = false;
        for at in 0..n {
            let has_write = at == home || arrives[at];
            let takes = |to: usize| arrives[to] || steps[to] == SinkStep::Dropped && to != home;
            if has_write && passes_on[at] && !function.blocks[at].end.targets().into_iter().all(takes) {
                passes_on[at] = false;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let positions: Vec<(usize, usize)> = (0..n)
        .filter(|at| *at == home || arrives[*at])
        .filter_map(|at| match steps[at] {
            SinkStep::Here(before) => Some((at, before)),
            SinkStep::Continues if !passes_on[at] => Some((at, function.blocks[at].insts.len())),
            _ => None,
        })
        .collect();
    let rolls_back = rollback_follows(function);
    if positions.iter().any(|(at, _)| !rolls_back[*at]) {
        move_write(function, (home, nth), &positions, write);
    }
}

/// Adds `by` to the instruction index of a step.
fn shift_step(step: SinkStep, by: usize) -> SinkStep {
    match step {
        SinkStep::Here(before) => SinkStep::Here(before + by),
        other => other,
    }
}

/// Marks in `arrives` the blocks to which all predecessors pass the write.
fn mark_reached(
    function: &Function,
    home: usize,
    passes_on: &[bool],
    predecessors: &[Vec<usize>],
    arrives: &mut [bool],
) {
    arrives.fill(false);
    let mut changed = true;
    while changed {
        changed = false;
        for at in 0..function.blocks.len() {
            let brings = |from: &usize| passes_on[*from] && (*from == home || arrives[*from]);
            if at != home
                && !arrives[at]
                && !predecessors[at].is_empty()
                && predecessors[at].iter().all(brings)
            {
                arrives[at] = true;
                changed = true;
            }
        }
    }
}

/// Copies a write in front of the instructions at `positions`, and removes it from instruction `nth` of block `home`.
fn move_write(
    function: &mut Function,
    (home, nth): (usize, usize),
    positions: &[(usize, usize)],
    write: Inst,
) {
    assert!(!positions.is_empty(), "the write has a new position");
    for (at, before) in positions {
        assert!(*at != home || *before > nth, "a write moves down");
        function.blocks[*at].insts.insert(*before, write.clone());
    }
    // It was inserted behind its old position.
    let removed = function.blocks[home].insts.remove(nth);
    assert!(removed.op == write.op, "the old write is removed");
}

/// Decides what becomes of a write that reaches `insts` and then the terminator.
fn sink_step(insts: &[Inst], end: &Terminator, write: &Op) -> SinkStep {
    for (nth, inst) in insts.iter().enumerate() {
        if inst.op == Op::RollBack {
            return SinkStep::Dropped;
        }
        if depends_on_write(&inst.op, write) {
            return SinkStep::Here(nth);
        }
    }
    match end {
        Terminator::Fail { .. } => SinkStep::Dropped,
        Terminator::Jump(_) | Terminator::Branch(..) => SinkStep::Continues,
        _ => SinkStep::Here(insts.len()),
    }
}

/// Whether an operation observes, undoes or overwrites a write.
fn depends_on_write(op: &Op, write: &Op) -> bool {
    match (op, write) {
        (Op::CallGet(cell) | Op::CallSet(cell, ..), Op::CallSet(own, ..)) => cell == own,
        // The touch decides which row is evicted. It does not decide whether the row lives: it lived at this time.
        (Op::Insert(table, ..) | Op::Remove(table, ..), Op::TouchRead(own, _)) => table == own,
        _ => false,
    }
}
