//! Stops journalling writes that nothing can undo.
//!
//! It keeps the law because only `RollBack` and `Fail` read the journal, and no path from these writes leads to one.

use crate::ir::{Function, Journal, Op, Terminator};

/// Clears the journal flag of each write that no rollback or failure can follow.
pub fn relax(function: &mut Function) {
    let follows = rollback_follows(function);
    assert_eq!(follows.len(), function.blocks.len(), "each block is analysed");
    for (block, rollback_ahead) in function.blocks.iter_mut().zip(follows) {
        let mut rollback_ahead = rollback_ahead;
        for inst in block.insts.iter_mut().rev() {
            match &mut inst.op {
                Op::RollBack => rollback_ahead = true,
                Op::CallSet(.., journal)
                | Op::VarSet(.., journal)
                | Op::VarMerge(.., journal)
                | Op::Insert(.., journal)
                | Op::Remove(.., journal)
                | Op::SetColumn(.., journal)
                | Op::SetColumnNull(.., journal)
                | Op::CountInto(.., journal)
                    if !rollback_ahead =>
                {
                    *journal = Journal::No;
                }
                _ => {}
            }
        }
    }
}

/// For each block, whether a path from its end leads to a rollback, or its terminator is one.
pub(super) fn rollback_follows(function: &Function) -> Vec<bool> {
    let n = function.blocks.len();
    let mut follows: Vec<bool> =
        function.blocks.iter().map(|block| matches!(block.end, Terminator::Fail { .. })).collect();
    let rolls_back: Vec<bool> =
        function.blocks.iter().map(|block| block.insts.iter().any(|inst| inst.op == Op::RollBack)).collect();
    loop {
        let mut changed = false;
        for at in (0..n).rev() {
            let leads = function.blocks[at].end.targets().into_iter().any(|to| follows[to] || rolls_back[to]);
            if leads && !core::mem::replace(&mut follows[at], true) {
                changed = true;
            }
        }
        if !changed {
            return follows;
        }
    }
}
