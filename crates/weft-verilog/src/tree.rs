//! The tree of comparators that finds the first of several ranks.
//!
//! The module has a register with the rank of each entry, a packet or a partition. The program's handler computes the
//! rank when an entry is pushed. A tree of comparators always shows the entry with the lowest rank, and, if the program
//! drops from the partition with the highest, that one; of equal ranks the entry with the lowest index. Pushing an
//! entry again replaces its rank.
//!
//! Source: "No Silver Bullet: Extending SDN to the Data Plane" (HotNets 2013), section 3; pFabric (SIGCOMM 2013).

use crate::circuit::{Circuit, Module, Port, PortRole};
use crate::range::Range;
use crate::{Widths, print};
use core::fmt::Write as _;
use weft_ir::backend::Unsupported;
use weft_ir::queue::{Handlers, Level, Moment, Overflow, PacketOrder, Partitions, QueueProgram, Victim};

/// Largest number of entries of a tree.
pub const ENTRIES_MAX: u32 = 256;

/// The tree of a level with this many entries.
///
/// # Errors
/// See [`crate::compile_tree`].
pub(crate) fn build(
    program: &QueueProgram,
    level: &Level,
    widths: &Widths,
    entries: u32,
) -> Result<Module, Unsupported> {
    let refused = |reason: String| Unsupported { reason, line: 0 };
    if !entries.is_power_of_two() || !(2..=ENTRIES_MAX).contains(&entries) {
        return Err(refused(format!("a tree has a power of two of entries, from 2 to {ENTRIES_MAX}")));
    }
    if level.handlers.packet_rank.is_none() {
        return Err(refused("a tree is made of programs that rank packets".into()));
    }
    let ranks = Level {
        partitions: Partitions::One,
        handlers: Handlers { packet_rank: level.handlers.packet_rank.clone(), ..Handlers::default() },
        ..level.clone()
    };
    let circuit = Circuit::new(program, &ranks, widths)?;
    if circuit.roots.is_some() {
        return Err(refused("a rank by rsqrt of a number takes several clocks, and a tree has one".into()));
    }
    let bits = match level.packets {
        PacketOrder::Rank { bits } => bits,
        PacketOrder::Arrival => level.order.bits,
    };
    let Some(given) = circuit.driven.iter().find(|driven| driven.role == PortRole::Given) else {
        return Err(refused("the handler gives no rank".into()));
    };
    let has_last = matches!(level.limit.overflow, Overflow::Victim { partition: Victim::HighestRank, .. });
    let rank = Rank::new(given.range, bits);
    let tree =
        Tree { name: format!("{}_tree{entries}", circuit.name), circuit: &circuit, rank, entries, has_last };
    let ports = tree.ports();
    let text = print::module(&circuit) + "\n" + &tree.text(&ports);
    Ok(Module { name: tree.name, text, ports, moments: vec![Moment::PacketRank] })
}

/// The stored form of a handler's number: unsigned, so that all compare alike.
struct Rank {
    given: Range,
    /// Clamped to this many bits; None if it is stored as it is.
    held_to: Option<u32>,
}

impl Rank {
    /// Makes a rank from the range of its wire; `bits` limits it, if given.
    fn new(given: Range, bits: Option<u8>) -> Self {
        let held = bits.map(|bits| Range { lo: 0, hi: (1 << bits) - 1 });
        let held_to = held.filter(|held| !given.is_within(*held)).map(Range::bits);
        Self { given, held_to }
    }

    fn bits(&self) -> u32 {
        self.held_to.unwrap_or(self.given.bits())
    }

    /// Formats the rank computed from the wire `given`.
    fn text(&self) -> String {
        let (bits, sign) = (self.given.bits(), self.given.bits() - 1);
        let Some(held) = self.held_to else {
            // With the sign bit inverted the least number is all zeros.
            let flips = if self.given.is_signed() {
                format!(" ^ {bits}'h{:x}", 1_u64 << sign)
            } else {
                String::new()
            };
            return format!("given{flips}");
        };
        let most = (1_u64 << held) - 1;
        let low = if held >= bits {
            format!("{{{}'d0, given}}", held - bits)
        } else {
            format!("given[{}:0]", held - 1)
        };
        let low = if held == bits { "given".into() } else { low };
        let above = match held < bits - u32::from(self.given.is_signed()) {
            true => format!("(given > {bits}'h{most:x}) ? {held}'h{most:x} : {low}"),
            false => low,
        };
        if self.given.is_signed() { format!("given[{sign}] ? {held}'h0 : {above}") } else { above }
    }
}

struct Tree<'t> {
    name: String,
    circuit: &'t Circuit,
    rank: Rank,
    entries: u32,
    has_last: bool,
}

impl Tree<'_> {
    /// Lists the ports of the module, without clock and reset.
    fn ports(&self) -> Vec<Port> {
        let place = self.entries.ilog2();
        let port = |name: &str, role, bits| Port { name: name.into(), role, bits, signed: false };
        let mut ports = vec![
            port("push", PortRole::Push, 1),
            port("push_at", PortRole::PushAt, place),
            port("pop", PortRole::Pop, 1),
            port("pop_at", PortRole::PopAt, place),
        ];
        let words = self.circuit.ports.iter().filter(|port| matches!(port.role, PortRole::Word(_)));
        ports.extend(words.cloned());
        ports.extend([port("some", PortRole::Some, 1), port("first", PortRole::First, place)]);
        if self.has_last {
            ports.push(port("last", PortRole::Last, place));
        }
        ports
    }

    /// Prints the module.
    fn text(&self, ports: &[Port]) -> String {
        let (name, bits, entries) = (&self.name, self.rank.bits(), self.entries);
        let mut text = format!("// Which of {entries} ranks of {bits} bits is the first.\nmodule {name} (\n");
        text.push_str("  input  wire clk,\n  input  wire reset,\n");
        text += &print::declarations(ports);
        text.push_str("\n);\n");
        self.ranked(&mut text);
        self.entries(&mut text);
        self.compare(&mut text, "first", '0', "<=");
        let _ = writeln!(text, "  assign some = ~first_0_0[{bits}];\n  assign first = first_at_0_0;");
        if self.has_last {
            self.compare(&mut text, "last", '1', ">=");
            text.push_str("  assign last = last_at_0_0;\n");
        }
        text.push_str("endmodule\n");
        text
    }

    /// Prints the instance that computes the rank of the pushed entry.
    fn ranked(&self, text: &mut String) {
        let Circuit { name, ports, .. } = self.circuit;
        let _ = writeln!(text, "  wire [{}:0] given;", self.rank.given.bits() - 1);
        let _ = write!(text, "  {name} ranked (.clk(clk), .reset(reset), .moment(push), .given(given)");
        for port in ports.iter().filter(|port| matches!(port.role, PortRole::Word(_))) {
            let _ = write!(text, ", .{0}({0})", port.name);
        }
        for port in ports.iter().filter(|port| matches!(port.role, PortRole::NewWord(_))) {
            let _ = write!(text, ", .{}()", port.name);
        }
        let _ = writeln!(text, ");\n  wire [{}:0] rank = {};", self.rank.bits() - 1, self.rank.text());
    }

    /// Prints the registers of the entries and their updates.
    fn entries(&self, text: &mut String) {
        let place = self.entries.ilog2();
        for at in 0..self.entries {
            let _ = writeln!(text, "  reg [{}:0] rank_{at};\n  reg is_there_{at};", self.rank.bits() - 1);
        }
        text.push_str("  always @(posedge clk) begin\n");
        for at in 0..self.entries {
            let _ = writeln!(text, "    if (push & (push_at == {place}'d{at})) rank_{at} <= rank;");
            let _ = writeln!(text, "    if (reset) is_there_{at} <= 1'b0;");
            let _ = writeln!(text, "    else if (push & (push_at == {place}'d{at})) is_there_{at} <= 1'b1;");
            let _ = writeln!(text, "    else if (pop & (pop_at == {place}'d{at})) is_there_{at} <= 1'b0;");
        }
        text.push_str("  end\n");
    }

    /// A tree of comparators: level 0 has the winner. An absent entry loses against all others.
    fn compare(&self, text: &mut String, name: &str, there: char, wins: &str) {
        let (bits, depth) = (self.rank.bits(), self.entries.ilog2());
        for at in 0..self.entries {
            let is_there = if there == '1' { "" } else { "~" };
            let _ = writeln!(
                text,
                "  wire [{bits}:0] {name}_{depth}_{at} = {{{is_there}is_there_{at}, rank_{at}}};"
            );
        }
        for level in (0..depth).rev() {
            let below = level + 1;
            // The wires of a level have as many bits of the index as are known there.
            let known = depth - level;
            for at in 0..1_u32 << level {
                let (left, right) = (2 * at, 2 * at + 1);
                let [a, b] = [left, right].map(|at| format!("{name}_{below}_{at}"));
                let _ = writeln!(text, "  wire {name}_left_{level}_{at} = {a} {wins} {b};");
                let _ = writeln!(
                    text,
                    "  wire [{bits}:0] {name}_{level}_{at} = {name}_left_{level}_{at} ? {a} : {b};"
                );
                let place = match known {
                    1 => format!("~{name}_left_{level}_{at}"),
                    _ => {
                        let [a, b] = [left, right].map(|at| format!("{name}_at_{below}_{at}"));
                        format!("{{~{name}_left_{level}_{at}, {name}_left_{level}_{at} ? {a} : {b}}}")
                    }
                };
                let _ = writeln!(text, "  wire [{}:0] {name}_at_{level}_{at} = {place};", known - 1);
            }
        }
    }
}
