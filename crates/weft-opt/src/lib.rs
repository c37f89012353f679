//! Lowers checked programs to the IR, analyses their effects and cost, and plans chains.
//!
//! * [`lower`]: lowers the typed program of a chain to a [`ChainProgram`](weft_ir::program::ChainProgram).
//! * [`effects`]: what each handler may do.
//! * [`plan`]: which elements may swap, the best order, and which tables may be sharded.
//! * [`cost`]: worst-case operations and memory, known statically.

pub mod cost;
pub mod effects;
pub mod lower;
pub mod plan;
