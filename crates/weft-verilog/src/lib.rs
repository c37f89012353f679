//! The Verilog back end: queue programs as gates.
//!
//! [`compile`] makes a module of Verilog-2001 of a program with one node. Its variables are registers of exactly the
//! bits that they were declared with, a handler is a decision of one clock, or of some more where it takes roots, and
//! the module does what the interpreter of `weft-ir` does, bit for bit, or the program is refused. [`compile_tree`]
//! makes the tree of comparators that finds the first of several ranks.
//!
//! How it comes about: `convert` walks the handlers and makes a `net` of what happens; `tables` puts computations on
//! floats into tables, and `roots` those into subtractions that are too wide for one; `share` builds dear gates once;
//! `print` writes it down. `tests/gates.rs` runs the text under Verilator and counts its gates with Yosys.
//!
//! Source: "No Silver Bullet: Extending SDN to the Data Plane" (HotNets 2013), section 3, and decisions 0038 and 0053.

mod circuit;
mod convert;
mod fixed;
mod net;
mod print;
mod range;
mod roots;
mod share;
mod tables;
#[cfg(test)]
mod tests;
mod tree;

pub use circuit::{Module, Port, PortRole};
pub use tree::ENTRIES_MAX;

use weft_ir::backend::Unsupported;
use weft_ir::queue::verify::verify;
use weft_ir::queue::{Partitions, QueueProgram};

/// Gates of a module before synthesis, at most.
pub const GATES_MAX: usize = 1 << 16;
/// Bits by which a table is looked up, at most.
pub const TABLE_BITS_MAX: u32 = 10;
/// Tables of a module, at most.
pub const TABLES_MAX: usize = 64;
/// Roots that one decision may need, at most.
pub const ROOTS_MAX: usize = 4;

/// How many bits the words have that a program does not declare. What comes in must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Times in nanoseconds, at most 63. 48 bits are 78 hours.
    pub time_bits: u32,
    /// Lengths of packets in bytes, at most 32.
    pub len_bits: u32,
    /// Rates in bits a second, at most 63.
    pub rate_bits: u32,
    /// What is left of a flow in bytes, at most 63.
    pub remaining_bits: u32,
}

impl Default for Widths {
    fn default() -> Self {
        Self { time_bits: 63, len_bits: 16, rate_bits: 40, remaining_bits: 32 }
    }
}

impl Widths {
    fn check(&self) -> Result<(), Unsupported> {
        let Self { time_bits, len_bits, rate_bits, remaining_bits } = *self;
        let are_good = [(time_bits, 63), (len_bits, 32), (rate_bits, 63), (remaining_bits, 63)]
            .iter()
            .all(|(bits, most)| (1..=*most).contains(bits));
        let reason = "words of no bits, or of more than there are".into();
        if are_good { Ok(()) } else { Err(Unsupported { reason, line: 0 }) }
    }
}

/// Makes a module of a queue program.
///
/// # Errors
/// The program is not one that [`verify`] accepts, has more than one node or partition, computes with floats what no
/// table can hold, stores what may not fit its variable, or is too large; with the line, where there is one.
pub fn compile(program: &QueueProgram, widths: &Widths) -> Result<Module, Unsupported> {
    let refused = |reason: String| Unsupported { reason, line: 0 };
    verify(program).map_err(|why| refused(format!("not well-formed: {why}")))?;
    widths.check()?;
    let [level] = program.levels.as_slice() else {
        return Err(refused("gates are made of programs with one level".into()));
    };
    if level.partitions != Partitions::One {
        return Err(refused("gates are made of programs with one partition".into()));
    }
    if level.handlers.iter().next().is_none() {
        return Err(refused("it has no handlers, so there is nothing for gates to decide".into()));
    }
    circuit::build(program, level, widths)
}

/// Makes a tree of comparators for the ranks that a queue program gives to packets, with so many entries.
///
/// # Errors
/// The program is not one that [`verify`] accepts, has more than one level or ranks no packets, or its rank cannot be
/// computed by gates; `entries` is no power of two from 2 to [`ENTRIES_MAX`].
pub fn compile_tree(program: &QueueProgram, widths: &Widths, entries: u32) -> Result<Module, Unsupported> {
    let refused = |reason: String| Unsupported { reason, line: 0 };
    verify(program).map_err(|why| refused(format!("not well-formed: {why}")))?;
    widths.check()?;
    match program.levels.as_slice() {
        [level] => tree::build(program, level, widths, entries),
        _ => Err(refused("a tree is made of programs with one level".into())),
    }
}
