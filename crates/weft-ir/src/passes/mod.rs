//! Functions that do the same with less.
//!
//! **The law of every pass:** whatever the pass and the state, the function leaves behind what it left behind before:
//! verdict, edits, rows, state, counters. Each module says why its changes keep it. The tests hold random chains
//! against what the passes make of them.

pub mod assume;
pub mod blocks;
pub mod branch_facts;
pub mod dead;
pub mod journal;
pub mod sink;

#[cfg(test)]
mod tests;

use crate::ir::{Function, Terminator};

/// All passes, in the order that suits what lowering makes.
pub fn clean(mut function: Function) -> Function {
    blocks::simplify(&mut function);
    branch_facts::fold(&mut function);
    dead::remove(&mut function);
    blocks::simplify(&mut function);
    journal::relax(&mut function);
    sink::writes(&mut function);
    journal::relax(&mut function);
    function
}

/// The blocks that a terminator may go to.
pub fn targets(end: &Terminator) -> Vec<usize> {
    end.jumps().into_iter().map(|jump| jump.block.0 as usize).collect()
}
