//! Optimizations of functions.
//!
//! **The law of every pass:** for each tuple and state, the optimized function leaves the same verdict, edits, rows,
//! state and counters. Each module tells why it keeps the law. The tests compare random chains before and after the
//! passes.

pub mod assume;
pub mod blocks;
pub mod branch_facts;
pub mod dead;
pub mod journal;
pub mod sink;

#[cfg(test)]
mod tests;

use crate::ir::Function;

/// Runs all passes, in an order that suits lowered functions.
pub fn clean(mut function: Function) -> Function {
    let n_blocks = function.blocks.len();
    blocks::simplify(&mut function);
    branch_facts::fold(&mut function);
    dead::remove(&mut function);
    blocks::simplify(&mut function);
    journal::relax(&mut function);
    sink::writes(&mut function);
    journal::relax(&mut function);
    assert!(function.blocks.len() <= n_blocks, "no pass adds a block");
    function
}
