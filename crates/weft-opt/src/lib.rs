//! From checked programs to plans: lowering to the IR, passes over it, and what they cost.
//!
//! * [`lower`]: the typed program of a chain becomes a [`ChainProgram`](weft_ir::program::ChainProgram).
//! * [`passes`]: functions that do the same with less.
//! * [`effects`]: what each handler may do.
//! * [`plan`]: which elements may change places, and which tables may be spread.
//! * [`cost`]: worst-case operations and memory, known before anything runs.

pub mod cost;
pub mod effects;
pub mod lower;
pub mod passes;
pub mod plan;
