//! Weft's intermediate representation, its semantics, and the interface of the back ends that run it.
//!
//! * [`graph`]: the graph of a function's blocks.
//! * [`ir`]: typed SSA functions, one for each handler of each element instance.
//! * [`passes`]: optimizations of functions.
//! * [`program`]: a chain as the engine runs it: segments of functions, their inputs, and their shared state.
//! * [`queue`]: queue programs: small handlers over words, a profile of [`ir`] with nested blocks.
//! * [`size`]: estimates of code size.
//! * [`text`]: the text form, with printer and parser.
//! * [`verify`]: the definition of well-formed programs.
//! * [`interp`]: the interpreter. **It defines the semantics**: every back end must agree with it.
//! * [`backend`]: the traits that back ends implement.
//! * [`generate`]: random programs and passes, to compare back ends.

pub mod backend;
pub mod batch;
pub mod generate;
pub mod graph;
pub mod interp;
pub mod ir;
pub mod passes;
pub mod program;
pub mod queue;
pub mod size;
pub mod text;
pub mod verify;
