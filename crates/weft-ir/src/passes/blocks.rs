//! Removes blocks: branches on constants become jumps, jumps skip empty blocks, a block with one predecessor joins it,
//! and unreachable blocks go.
//!
//! It keeps the law because the operations on each path stay the same, in order.

use std::collections::BTreeMap;

use crate::ir::{Block, BlockId, Function, Jump, Op, Terminator, Value};

/// Folds branches, skips empty blocks and merges blocks until nothing changes.
pub fn simplify(function: &mut Function) {
    loop {
        fold_branches(function);
        remove_unreachable(function);
        let changed = skip_empty(function) | merge_single_successors(function);
        if !changed {
            remove_unreachable(function);
            return;
        }
    }
}

/// Turns branches on constants into jumps, and branches on a negated flag into branches on the flag.
fn fold_branches(function: &mut Function) {
    let insts = function.insts();
    let definitions: BTreeMap<Value, Op> = insts
        .filter_map(|inst| match (&inst.op, inst.result) {
            (op @ (Op::BoolConst(_) | Op::Not(_)), Some(value)) => Some((value, op.clone())),
            _ => None,
        })
        .collect();
    for block in &mut function.blocks {
        while let Terminator::Branch(by, yes, no) = &block.end {
            block.end = match definitions.get(by) {
                Some(Op::BoolConst(true)) => Terminator::Jump(yes.clone()),
                Some(Op::BoolConst(false)) => Terminator::Jump(no.clone()),
                _ if yes == no => Terminator::Jump(yes.clone()),
                Some(Op::Not(of)) => Terminator::Branch(*of, no.clone(), yes.clone()),
                _ => break,
            };
        }
    }
}

/// Removes unreachable blocks and renumbers the others.
pub(super) fn remove_unreachable(function: &mut Function) {
    let mut reached = vec![false; function.blocks.len()];
    let mut pending = vec![0];
    while let Some(at) = pending.pop() {
        if !core::mem::replace(&mut reached[at], true) {
            pending.extend(function.blocks[at].end.targets());
        }
    }
    let mut next = 0;
    let numbers: Vec<u32> = reached
        .iter()
        .map(|is_reached| {
            let number = next;
            next += u32::from(*is_reached);
            number
        })
        .collect();
    assert!(reached[0], "the entry is reachable");
    let mut keep = reached.iter();
    function.blocks.retain(|_| keep.next().is_some_and(|keep| *keep));
    for block in &mut function.blocks {
        block.end.each_jump_mut(|jump| jump.block = BlockId(numbers[jump.block.0 as usize]));
    }
    assert_eq!(function.blocks.len(), next as usize, "the reachable blocks stay");
}

/// Redirects jumps past blocks that only jump; true if it changed any. Such a block has no parameters, so no value is
/// lost.
fn skip_empty(function: &mut Function) -> bool {
    let next_jumps: Vec<Option<Jump>> = function.blocks.iter().map(empty_block_jump).collect();
    let mut changed = false;
    for block in &mut function.blocks {
        block.end.each_jump_mut(|jump| {
            // One step at a time. There is no cycle of empty blocks, because loops begin with a row look-up.
            if let Some(next) = &next_jumps[jump.block.0 as usize]
                && next.block != jump.block
            {
                *jump = next.clone();
                changed = true;
            }
        });
    }
    changed
}

/// The jump of a block without parameters, instructions and scan; None for other blocks.
fn empty_block_jump(block: &Block) -> Option<Jump> {
    let is_empty = block.params.is_empty() && block.insts.is_empty() && block.scan_rows_max.is_none();
    match &block.end {
        Terminator::Jump(jump) if is_empty => Some(jump.clone()),
        _ => None,
    }
}

/// Merges each block with its only successor, if that has no other predecessor; true if it merged any.
fn merge_single_successors(function: &mut Function) -> bool {
    let mut n_predecessors = vec![0usize; function.blocks.len()];
    for block in &function.blocks {
        block.end.targets().into_iter().for_each(|to| n_predecessors[to] += 1);
    }
    let mut renamed: BTreeMap<Value, Value> = BTreeMap::new();
    let mut changed = false;
    for at in 0..function.blocks.len() {
        while let Terminator::Jump(jump) = &function.blocks[at].end {
            let to = jump.block.0 as usize;
            if n_predecessors[to] != 1 || to == at || to == 0 || function.blocks[to].scan_rows_max.is_some() {
                break;
            }
            let args = jump.args.clone();
            let joined = core::mem::take(&mut function.blocks[to]);
            assert_eq!(joined.params.len(), args.len(), "each parameter gets an argument");
            n_predecessors[to] = 0;
            renamed.extend(joined.params.iter().copied().zip(args));
            let block = &mut function.blocks[at];
            block.insts.extend(joined.insts);
            block.end = joined.end;
            changed = true;
        }
    }
    if changed {
        remove_unreachable(function);
        rename(function, &renamed);
    }
    changed
}

/// Replaces each operand that is a key of `renamed` by the value that it maps to, repeatedly.
pub(super) fn rename(function: &mut Function, renamed: &BTreeMap<Value, Value>) {
    let mut last = |value: &mut Value| {
        let mut n_steps = 0;
        while let Some(next) = renamed.get(value) {
            *value = *next;
            n_steps += 1;
            assert!(n_steps <= renamed.len(), "names lead to a value that stays");
        }
    };
    for block in &mut function.blocks {
        block.insts.iter_mut().for_each(|inst| inst.op.each_operand_mut(&mut last));
        block.end.each_operand_mut(&mut last);
    }
}
