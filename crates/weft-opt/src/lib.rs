//! From checked programs to plans: lowering to the IR, and what it does and costs.
//!
//! * [`lower`]: the typed program of a chain becomes a [`ChainProgram`](weft_ir::program::ChainProgram).
//! * [`effects`]: what each handler may do.
//! * [`plan`]: which elements may change places, and which tables may be spread.
//! * [`cost`]: worst-case operations and memory, known before anything runs.

pub mod cost;
pub mod effects;
pub mod lower;
pub mod plan;
