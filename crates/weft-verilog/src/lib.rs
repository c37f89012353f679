//! The Verilog backend: compiles queue programs to gates.
//!
//! [`compile`] makes a Verilog-2001 module from a program with one node. Its variables are registers with the declared
//! number of bits. A handler is a decision in one clock, or in a few more with roots. The module behaves exactly as the
//! interpreter of `weft-ir`, bit for bit, or the program is refused. [`compile_tree`] makes the tree of comparators
//! that finds the first of several ranks.
//!
//! The steps: `convert` turns the handlers into a `net`; `tables` replaces computations on floats by lookup tables, and
//! `roots` those too wide for a table by subtractions; `share` builds costly gates once; `print` writes the text.
//! `tests/gates.rs` runs the text under Verilator and counts its gates with Yosys.
//!
//! Source: "No Silver Bullet: Extending SDN to the Data Plane" (HotNets 2013), section 3, and decision 0038.

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

/// Largest number of gates of a module before synthesis.
pub const GATES_MAX: usize = 1 << 16;
/// Largest number of address bits of a table.
pub const TABLE_BITS_MAX: u32 = 10;
/// Largest number of tables of a module.
pub const TABLES_MAX: usize = 64;
/// Largest number of roots in one decision.
pub const ROOTS_MAX: usize = 4;

/// The bits of words that a program does not declare. Inputs must fit.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Widths {
    /// Times in nanoseconds, at most 63. 48 bits are 78 hours.
    pub time_bits: u32,
    /// Lengths of packets in bytes, at most 32.
    pub len_bits: u32,
    /// Rates in bits per second, at most 63.
    pub rate_bits: u32,
    /// Remaining bytes of a flow, at most 63.
    pub remaining_bits: u32,
}

impl Default for Widths {
    fn default() -> Self {
        Self { time_bits: 63, len_bits: 16, rate_bits: 40, remaining_bits: 32 }
    }
}

impl Widths {
    /// Checks that all widths are within their limits.
    fn check(&self) -> Result<(), Unsupported> {
        let Self { time_bits, len_bits, rate_bits, remaining_bits } = *self;
        let are_good = [(time_bits, 63), (len_bits, 32), (rate_bits, 63), (remaining_bits, 63)]
            .iter()
            .all(|(bits, most)| (1..=*most).contains(bits));
        let reason = "words of no bits, or of more than there are".into();
        if are_good { Ok(()) } else { Err(Unsupported { reason, line: 0 }) }
    }
}

/// Compiles a queue program to a module.
///
/// # Errors
/// [`verify`] rejects the program; it has more than one node or partition; it computes floats that fit in no table; it
/// stores a value that may not fit in its variable; or it is too large. With the line, if there is one.
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

/// Makes a tree of comparators with this many entries for the packet ranks of a queue program.
///
/// # Errors
/// [`verify`] rejects the program; it has more than one level, or no packet ranks; or gates cannot compute its rank.
/// `entries` is no power of two from 2 to [`ENTRIES_MAX`].
pub fn compile_tree(program: &QueueProgram, widths: &Widths, entries: u32) -> Result<Module, Unsupported> {
    let refused = |reason: String| Unsupported { reason, line: 0 };
    verify(program).map_err(|why| refused(format!("not well-formed: {why}")))?;
    widths.check()?;
    match program.levels.as_slice() {
        [level] => tree::build(program, level, widths, entries),
        _ => Err(refused("a tree is made of programs with one level".into())),
    }
}
