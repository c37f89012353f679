//! Weft's intermediate representation, what it means, and the interface of everything that runs it.
//!
//! * [`ir`]: typed SSA functions, one for each handler of each element instance.
//! * [`passes`]: functions that do the same with less.
//! * [`program`]: a chain as the engine runs it: segments of functions, their inputs, and the state they share.
//! * [`queue`]: queue programs: small handlers of words, with an interpreter of their own.
//! * [`size`]: how much code a function becomes.
//! * [`text`]: the text form, written and read back.
//! * [`verify`]: what well-formed means.
//! * [`interp`]: the interpreter. **It is the meaning**: every back end must agree with it.
//! * [`backend`]: the traits that back ends implement.
//! * [`generate`]: random programs and passes, to hold back ends against each other.

pub mod backend;
pub mod batch;
pub mod generate;
pub mod interp;
pub mod ir;
pub mod passes;
pub mod program;
pub mod queue;
pub mod size;
pub mod text;
pub mod verify;
