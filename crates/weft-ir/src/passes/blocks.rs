//! Removes blocks: branches on constants become jumps, jumps skip empty blocks, a block with one predecessor joins it,
//! and unreachable blocks go.
//!
//! It keeps the law because the operations on each path stay the same, in order.

use std::collections::BTreeMap;

use crate::ir::{Block, BlockId, Function, Jump, Op, Terminator, Value};

use super::targets;

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
    let insts = function.blocks.iter().flat_map(|block| &block.insts);
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
            pending.extend(targets(&function.blocks[at].end));
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
    let mut keep = reached.iter();
    function.blocks.retain(|_| keep.next().is_some_and(|keep| *keep));
    for block in &mut function.blocks {
        each_jump(&mut block.end, |jump| jump.block = BlockId(numbers[jump.block.0 as usize]));
    }
}

/// Redirects jumps past blocks that only jump; true if it changed any. Such a block has no parameters, so no value is
/// lost.
fn skip_empty(function: &mut Function) -> bool {
    let next_jumps: Vec<Option<Jump>> = function.blocks.iter().map(empty_block_jump).collect();
    let mut changed = false;
    for block in &mut function.blocks {
        each_jump(&mut block.end, |jump| {
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
        targets(&block.end).into_iter().for_each(|to| n_predecessors[to] += 1);
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
    let last = |value: &mut Value| {
        while let Some(next) = renamed.get(value) {
            *value = *next;
        }
    };
    for block in &mut function.blocks {
        block.insts.iter_mut().for_each(|inst| each_operand(&mut inst.op, last));
        each_value(&mut block.end, last);
    }
}

/// Calls `visit` for each jump of a terminator.
pub(super) fn each_jump(end: &mut Terminator, mut visit: impl FnMut(&mut Jump)) {
    match end {
        Terminator::Jump(jump) => visit(jump),
        Terminator::Branch(_, yes, no) => {
            visit(yes);
            visit(no);
        }
        _ => {}
    }
}

/// Calls `visit` for each value that a terminator or its jumps read.
fn each_value(end: &mut Terminator, mut visit: impl FnMut(&mut Value)) {
    use crate::ir::StatusOperand;
    match end {
        Terminator::Branch(by, ..) => visit(by),
        Terminator::Abort { status, text, .. } => {
            if let StatusOperand::Computed(status) = status {
                visit(status);
            }
            text.iter_mut().for_each(&mut visit);
        }
        Terminator::Redirect { to, .. } => visit(to),
        Terminator::Fail { fault, .. } => visit(fault),
        _ => {}
    }
    each_jump(end, |jump| jump.args.iter_mut().for_each(&mut visit));
}

/// Calls `visit` for each operand of an operation.
fn each_operand(op: &mut Op, mut visit: impl FnMut(&mut Value)) {
    match op {
        Op::BoolConst(_)
        | Op::IntConst(_)
        | Op::FloatConst(_)
        | Op::BytesConst(_)
        | Op::NoRow
        | Op::ScratchFull
        | Op::Egress
        | Op::Input(_)
        | Op::Derived(_)
        | Op::InputPresent(_)
        | Op::ClearInput(_)
        | Op::Now
        | Op::FrameLen
        | Op::Rand(_)
        | Op::CallGet(_)
        | Op::VarGet(_)
        | Op::VarMerged(_)
        | Op::VarReset(_)
        | Op::Count(_)
        | Op::ExpiredRow(_)
        | Op::Lock(_, None)
        | Op::LockVars
        | Op::RollBack => {}
        Op::InRange(a, ..)
        | Op::FloatUnary(_, a)
        | Op::IntToFloat(_, a)
        | Op::FloatToInt(_, a)
        | Op::FloatFits(_, a)
        | Op::IntToText(_, a)
        | Op::FloatToText(a)
        | Op::IsIntText(_, a)
        | Op::TextToInt(_, a)
        | Op::IsFloatText(a)
        | Op::TextToFloat(a)
        | Op::FloatOfBits(a)
        | Op::BoolToInt(a)
        | Op::Not(a)
        | Op::Len(a)
        | Op::ByteAt(a, _)
        | Op::InPrefixes(a, _)
        | Op::Lower(a)
        | Op::Upper(a)
        | Op::Hash(a)
        | Op::SetInput(_, a)
        | Op::SetAnswer(_, a)
        | Op::SetReply(_, a)
        | Op::CallSet(_, a, _)
        | Op::VarSet(_, a, _)
        | Op::VarMerge(_, a, _)
        | Op::Find(_, a)
        | Op::IsRow(a)
        | Op::Insert(_, a, _)
        | Op::Remove(_, a, _)
        | Op::Touch(_, a)
        | Op::TouchRead(_, a)
        | Op::Column(_, a, _)
        | Op::ColumnIsNull(_, a, _)
        | Op::SetColumnNull(_, a, _, _)
        | Op::ScanRow(_, a)
        | Op::ScanNext(_, a)
        | Op::Lock(_, Some(a))
        | Op::Delay(a)
        | Op::Mark(_, a)
        | Op::Mirror(a)
        | Op::FrameGet(a, ..)
        | Op::NativeNull(a)
        | Op::NativeFailed(a)
        | Op::Give(_, a, None) => visit(a),
        Op::IntBinary(_, a, b)
        | Op::Overflows(_, _, a, b)
        | Op::IntCompare(_, a, b)
        | Op::FloatBinary(_, a, b)
        | Op::FloatCompare(_, a, b)
        | Op::BoolBinary(_, a, b)
        | Op::BytesCompare(_, a, b)
        | Op::WordAt(a, b)
        | Op::HashMix(a, b)
        | Op::InPrefix(a, b)
        | Op::FrameSum(a, b)
        | Op::Give(_, a, Some(b))
        | Op::CountInto(_, a, _, b, _)
        | Op::SetColumn(_, a, _, b, _) => {
            visit(a);
            visit(b);
        }
        Op::Select(a, b, c) | Op::Slice(a, b, c) | Op::Part(a, b, c) => {
            visit(a);
            visit(b);
            visit(c);
        }
        Op::Concat(parts) | Op::Key(parts) | Op::Native(_, parts) | Op::ChangeHeaders(_, parts) => {
            parts.iter_mut().for_each(visit);
        }
        Op::Emit(_, cells) | Op::Match(_, _, cells) => {
            for (cell, null) in cells {
                visit(cell);
                null.iter_mut().for_each(&mut visit);
            }
        }
    }
}
