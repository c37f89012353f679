//! Stops journalling writes that nothing can undo.
//!
//! It keeps the law because only `RollBack` and `Fail` read the journal, and no path from these writes leads to one.

use crate::ir::{Function, Journal, Op, Terminator};

use super::targets;

/// See the module.
pub fn relax(function: &mut Function) {
    let ahead = rollback_follows(function);
    for (block, is_ahead) in function.blocks.iter_mut().zip(ahead) {
        let mut is_ahead = is_ahead;
        for inst in block.insts.iter_mut().rev() {
            match &mut inst.op {
                Op::RollBack => is_ahead = true,
                Op::CallSet(.., journal)
                | Op::VarSet(.., journal)
                | Op::VarMerge(.., journal)
                | Op::Insert(.., journal)
                | Op::Remove(.., journal)
                | Op::SetColumn(.., journal)
                | Op::SetColumnNull(.., journal)
                | Op::CountInto(.., journal)
                    if !is_ahead =>
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
    let mut ahead: Vec<bool> =
        function.blocks.iter().map(|block| matches!(block.end, Terminator::Fail { .. })).collect();
    let rolls_back: Vec<bool> =
        function.blocks.iter().map(|block| block.insts.iter().any(|inst| inst.op == Op::RollBack)).collect();
    loop {
        let mut changed = false;
        for at in (0..n).rev() {
            let leads = targets(&function.blocks[at].end).into_iter().any(|to| ahead[to] || rolls_back[to]);
            if leads && !core::mem::replace(&mut ahead[at], true) {
                changed = true;
            }
        }
        if !changed {
            return ahead;
        }
    }
}
