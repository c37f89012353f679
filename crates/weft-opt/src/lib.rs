//! Lowers checked programs to the IR, analyses their effects and cost, and plans chains.
//!
//! * [`lower`]: lowers the typed program of a chain to a [`ChainProgram`](weft_ir::program::ChainProgram).
//! * [`effects`]: what each handler may do.
//! * [`judge`]: lowers all programs of a network once, and refuses those that cannot run.
//! * [`plan`]: which elements may swap, the best order, and which tables may be sharded.
//! * [`cost`]: worst-case operations and memory, known statically.

pub mod cost;
pub mod effects;
pub mod judge;
pub mod lower;
pub mod plan;
