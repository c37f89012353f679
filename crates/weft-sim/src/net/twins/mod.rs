//! Well-known disciplines, written by hand in Rust from their RFCs and papers.
//!
//! The simulator's experiments run them. They are also independent twins of queue programs: a program and its twin must
//! drop the same items at the same times, and the twin is the benchmark for the program's speed. So each is plain and
//! self-contained.

mod codel;
mod drr;
mod fifo;
mod fq_codel;
mod pfabric;
mod pifo;
mod sfq_codel;

pub use codel::{Codel, CodelRules, CodelSpec};
pub use drr::Drr;
pub use fifo::Fifo;
pub use fq_codel::FqCodel;
pub use pfabric::Pfabric;
pub use pifo::Pifo;
pub use sfq_codel::SfqCodel;
