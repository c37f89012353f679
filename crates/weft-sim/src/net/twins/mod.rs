//! Well-known disciplines, written by hand in Rust from their RFCs and papers.
//!
//! They are what the simulator's experiments run, and independent twins for queue programs: a program and its twin must
//! drop the same items at the same times, and the twin is the yardstick for the program's speed. So they are written
//! plainly, each for itself.

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
