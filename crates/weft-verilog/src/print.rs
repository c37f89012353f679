//! Prints Verilog-2001 in its simplest form: wires, `assign`, one `always` for the registers and one for each table.
//!
//! All vectors are unsigned. Where a sign matters, operands are sign-extended, and compared or divided by `$signed`. So
//! no width and no sign depends on the context of an expression, where tools differ.

use crate::circuit::{Circuit, OutputPort, Port, Roots};
use crate::net::{Gate, Net, Wire};
use crate::range::Range;
use crate::roots;
use core::fmt::Write as _;
use weft_core::hash;
use weft_ir::ir::{BoolOp, IntCmp, IntOp};
use weft_ir::queue::Verdict;

/// Prints a circuit as a Verilog module.
pub(crate) fn module(circuit: &Circuit) -> String {
    let mut text = Text { circuit, net: &circuit.net, out: String::new() };
    text.module_header();
    text.registers();
    if let Some(roots) = &circuit.roots {
        text.root_registers(roots);
    }
    let roots = circuit.driven.iter().map(|driven| driven.wire);
    let nexts = circuit.registers.iter().filter_map(|register| register.next);
    let seen = circuit.roots.iter().flat_map(|roots| &roots.each).map(|(_, is_seen)| *is_seen);
    let roots: Vec<Wire> = roots.chain(nexts).chain(seen).collect();
    for wire in text.net.cone(&roots, |_| false) {
        text.gate(wire);
    }
    text.foot();
    text.out
}

/// Formats the declarations of ports.
pub(crate) fn declarations(ports: &[Port]) -> String {
    let lines = ports.iter().map(|Port { name, role, bits, .. }| {
        let direction = if role.is_input() { "input " } else { "output" };
        format!("  {direction} wire [{}:0] {name}", bits - 1)
    });
    lines.collect::<Vec<_>>().join(",\n")
}

struct Text<'t> {
    circuit: &'t Circuit,
    net: &'t Net,
    out: String,
}

impl Text<'_> {
    fn line(&mut self, line: &str) {
        self.out.push_str(line);
        self.out.push('\n');
    }

    /// Prints the comment, the module line and the ports.
    fn module_header(&mut self) {
        let Circuit { name, about, ports, moments, .. } = self.circuit;
        for line in about.lines() {
            self.line(format!("// {line}").trim_end());
        }
        self.line("//");
        self.line("// A decision takes one clock: outputs follow inputs, and registers follow at the edge.");
        if self.circuit.roots.is_some() {
            self.line("// Where `ready` is 0 it takes more of them, and what comes in stays as it is until it is 1.");
        }
        let numbers = (1..).zip(moments).map(|(nth, moment)| format!("{nth} {moment:?}"));
        self.line(&format!("// `moment` is 0 for none, {}.", numbers.collect::<Vec<_>>().join(", ")));
        let verdicts = Verdict::ALL.map(|verdict| format!("{} {verdict:?}", verdict as u8));
        self.line(&format!("// `verdict` is {}.", verdicts.join(", ")));
        self.line(&format!("module {name} ("));
        self.line("  input  wire clk,");
        self.line("  input  wire reset,");
        self.line(&declarations(ports));
        self.line(");");
    }

    /// Prints the declarations of the registers.
    fn registers(&mut self) {
        for register in &self.circuit.registers {
            self.line(&format!("  reg [{}:0] {};", register.range.bits() - 1, register.name));
        }
    }

    /// Prints the outputs, the root unit, the updates of the registers and the end of the module.
    fn foot(&mut self) {
        for OutputPort { name, range, wire, .. } in &self.circuit.driven {
            let value = self.fitted(*wire, range.bits());
            self.line(&format!("  assign {name} = {value};"));
        }
        if let Some(roots) = &self.circuit.roots {
            self.root_unit(roots);
        }
        if !self.circuit.registers.is_empty() {
            self.line("  always @(posedge clk)");
            self.line("    if (reset) begin");
            for register in &self.circuit.registers {
                let start = literal(register.start, register.range.bits());
                self.line(&format!("      {} <= {start};", register.name));
            }
            let ready = if self.circuit.roots.is_some() { " if (ready)" } else { "" };
            self.line(&format!("    end else{ready} begin"));
            for register in &self.circuit.registers {
                if let Some(next) = register.next {
                    let next = self.fitted(next, register.range.bits());
                    self.line(&format!("      {} <= {next};", register.name));
                }
            }
            self.line("    end");
        }
        self.line("endmodule");
    }

    /// Declares a wire and its driver. Inputs and constants have no wire: they are used directly.
    fn gate(&mut self, wire: Wire) {
        let bits = self.bits(wire);
        let name = self.name(wire);
        let value = match self.net.gate(wire) {
            Gate::Input(_) | Gate::Const(_) | Gate::Float(_) => return,
            Gate::Table(table, at) => return self.table(wire, table, at),
            Gate::Root(over, of) => return self.root(wire, over, of),
            Gate::Int(op, a, b) => return self.int(wire, op, a, b),
            Gate::Hash(a) => {
                let a = self.fitted(a, 64);
                return self.hash(wire, &format!("{a} ^ {}", literal(hash::KEYS[0], 64)), hash::KEYS[1]);
            }
            Gate::HashMix(a, b) => {
                let (a, b) = (self.fitted(a, 64), self.fitted(b, 64));
                return self.hash(
                    wire,
                    &format!("{a} ^ {b} ^ {}", literal(hash::KEYS[2], 64)),
                    hash::KEYS[0],
                );
            }
            Gate::Compare(cmp, a, b) => self.compare(cmp, a, b),
            Gate::Bool(op, a, b) => {
                let sign = match op {
                    BoolOp::And => "&",
                    BoolOp::Or => "|",
                    BoolOp::Xor => "^",
                };
                format!("{} {sign} {}", self.fitted(a, 1), self.fitted(b, 1))
            }
            Gate::Not(a) => format!("~{}", self.fitted(a, 1)),
            Gate::Mux(by, a, b) => {
                format!("{} ? {} : {}", self.fitted(by, 1), self.fitted(a, bits), self.fitted(b, bits))
            }
            Gate::Log2(a) => self.log2(a, bits),
            Gate::FloatBinary(..)
            | Gate::FloatUnary(..)
            | Gate::FloatCompare(..)
            | Gate::ToFloat(_)
            | Gate::ToInt(_) => unreachable!("floats occur in tables only"),
        };
        self.drive(&name, bits, &value);
    }

    /// Prints the declaration of a wire with its value.
    fn drive(&mut self, name: &str, bits: u32, value: &str) {
        assert!(bits > 0, "{name} has no bits");
        let _ = writeln!(self.out, "  wire [{}:0] {name} = {value};", bits - 1);
    }

    fn bits(&self, wire: Wire) -> u32 {
        self.net.range(wire).bits()
    }

    /// The name of a wire: that of its input, or `w` and its number.
    fn name(&self, wire: Wire) -> String {
        match self.net.gate(wire) {
            Gate::Input(nth) => self.circuit.inputs[nth as usize].1.clone(),
            _ => format!("w{}", wire.index()),
        }
    }

    /// Formats a wire in this many bits: sign-extended, zero-extended, or cut.
    fn fitted(&self, wire: Wire, bits: u32) -> String {
        match self.net.gate(wire) {
            Gate::Const(n) => return literal(n as u64, bits),
            Gate::Float(word) => return literal(word, bits),
            _ => {}
        }
        let (name, has) = (self.name(wire), self.bits(wire));
        match bits.checked_sub(has) {
            Some(0) => name,
            None => format!("{name}[{}:0]", bits - 1),
            Some(more) if self.net.range(wire).is_signed() => {
                format!("{{{{{more}{{{name}[{}]}}}}, {name}}}", has - 1)
            }
            Some(more) => format!("{{{more}'d0, {name}}}"),
        }
    }

    /// Prints an integer operation that drives a wire.
    fn int(&mut self, wire: Wire, op: IntOp, a: Wire, b: Wire) {
        let bits = self.bits(wire);
        let name = self.name(wire);
        let value = match op {
            IntOp::Mul => match (self.net.gate(a), self.net.gate(b)) {
                (_, Gate::Const(n)) => self.times(a, n, bits),
                (Gate::Const(n), _) => self.times(b, n, bits),
                _ => format!("{} * {}", self.fitted(a, bits), self.fitted(b, bits)),
            },
            IntOp::Add | IntOp::Sub | IntOp::And | IntOp::Or | IntOp::Xor => {
                let sign = match op {
                    IntOp::Add => "+",
                    IntOp::Sub => "-",
                    IntOp::And => "&",
                    IntOp::Or => "|",
                    _ => "^",
                };
                format!("{} {sign} {}", self.fitted(a, bits), self.fitted(b, bits))
            }
            IntOp::Shl => format!("{} << {}", self.fitted(a, bits), self.fitted(b, self.bits(b).min(6))),
            IntOp::Shr => return self.shift_right(wire, a, b),
            IntOp::SDiv | IntOp::UDiv | IntOp::SRem | IntOp::URem => return self.divide(wire, op, a, b),
            IntOp::SMin | IntOp::SMax | IntOp::UMin | IntOp::UMax => {
                unreachable!("minimum and maximum are choices")
            }
        };
        self.drive(&name, bits, &value);
    }

    /// A product with a constant as sums and differences of shifts, without a multiplier.
    fn times(&self, wire: Wire, by: i64, bits: u32) -> String {
        let value = self.fitted(wire, bits);
        let mut sum = String::new();
        for (shift, is_minus) in signed_digits(by as u64).into_iter().filter(|(shift, _)| *shift < bits) {
            let sign = match (sum.is_empty(), is_minus) {
                (true, false) => "",
                (true, true) => "-",
                (false, false) => " + ",
                (false, true) => " - ",
            };
            let _ = write!(sum, "{sign}({value} << {shift})");
        }
        if sum.is_empty() { literal(0, bits) } else { sum }
    }

    /// Prints a right shift that shifts in zeros at the top, of all 64 bits if there is a sign.
    fn shift_right(&mut self, wire: Wire, a: Wire, b: Wire) {
        let (bits, name) = (self.bits(wire), self.name(wire));
        let full = if self.net.range(a).is_signed() { 64 } else { self.bits(a).max(bits) };
        let value = format!("{} >> {}", self.fitted(a, full), self.fitted(b, self.bits(b).min(6)));
        self.drive_part(&name, full, &value, bits);
    }

    /// Prints a wire with the low bits of a wider value.
    fn drive_part(&mut self, name: &str, full: u32, value: &str, bits: u32) {
        assert!(full >= bits, "{name} has more bits than its value");
        if full == bits {
            return self.drive(name, bits, value);
        }
        self.drive(&format!("{name}_full"), full, value);
        self.drive(name, bits, &format!("{name}_full[{}:0]", bits - 1));
    }

    /// Prints a division. Division by 0 gives 0; the divider never sees a 0.
    fn divide(&mut self, wire: Wire, op: IntOp, a: Wire, b: Wire) {
        let (bits, name) = (self.bits(wire), self.name(wire));
        let (ra, rb) = (self.net.range(a), self.net.range(b));
        let is_signed = matches!(op, IntOp::SDiv | IntOp::SRem) && (ra.is_signed() || rb.is_signed());
        let full = match () {
            // One bit more than both need, for the least number divided by -1.
            () if is_signed => signed_bits(ra).max(signed_bits(rb)) + 1,
            () if ra.is_signed() || rb.is_signed() => 64,
            () => ra.bits().max(rb.bits()),
        };
        let full = full.max(bits);
        let is_zero = self.compare_with(b, 0);
        let divisor = format!("{is_zero} ? {} : {}", literal(1, full), self.fitted(b, full));
        self.drive(&format!("{name}_by"), full, &divisor);
        let (sign, zero) = match op {
            IntOp::SDiv | IntOp::UDiv => ("/", literal(0, full)),
            _ => ("%", literal(0, full)),
        };
        let dividend = self.fitted(a, full);
        let quotient = match is_signed {
            true => format!("$signed({dividend}) {sign} $signed({name}_by)"),
            false => format!("{dividend} {sign} {name}_by"),
        };
        self.drive(&format!("{name}_quotient"), full, &quotient);
        self.drive_part(&name, full, &format!("{is_zero} ? {zero} : {name}_quotient"), bits);
    }

    /// Formats a comparison of a wire with a constant.
    fn compare_with(&self, wire: Wire, n: u64) -> String {
        let bits = self.bits(wire);
        format!("({} == {})", self.fitted(wire, bits), literal(n, bits))
    }

    /// Formats a comparison, in the least width that is exact.
    fn compare(&self, cmp: IntCmp, a: Wire, b: Wire) -> String {
        let (ra, rb) = (self.net.range(a), self.net.range(b));
        let has_sign = ra.is_signed() || rb.is_signed();
        let bits = match cmp {
            IntCmp::ULt | IntCmp::ULe if has_sign => 64,
            _ if has_sign => signed_bits(ra).max(signed_bits(rb)),
            _ => ra.bits().max(rb.bits()),
        };
        let (a, b) = (self.fitted(a, bits), self.fitted(b, bits));
        match cmp {
            IntCmp::Eq => format!("{a} == {b}"),
            IntCmp::Ne => format!("{a} != {b}"),
            IntCmp::SLt if has_sign => format!("$signed({a}) < $signed({b})"),
            IntCmp::SLe if has_sign => format!("$signed({a}) <= $signed({b})"),
            IntCmp::SLt | IntCmp::ULt => format!("{a} < {b}"),
            IntCmp::SLe | IntCmp::ULe => format!("{a} <= {b}"),
        }
    }

    /// The number of the highest set bit; 0 for values below 1.
    fn log2(&self, wire: Wire, bits: u32) -> String {
        let (name, has, is_signed) = (self.name(wire), self.bits(wire), self.net.range(wire).is_signed());
        let mut value = String::new();
        for bit in (0..has).rev() {
            let log2 = if is_signed && bit == has - 1 { 0 } else { bit };
            let _ = write!(value, "{name}[{bit}] ? {} : ", literal(u64::from(log2), bits));
        }
        value + &literal(0, bits)
    }

    /// Prints a multiplication of the word `mixed` by a constant, folded to 64 bits, that drives a wire.
    fn hash(&mut self, wire: Wire, mixed: &str, by: u64) {
        let name = self.name(wire);
        self.drive(&format!("{name}_mixed"), 64, mixed);
        let product = format!("{{64'd0, {name}_mixed}} * {}", literal(by, 128));
        self.drive(&format!("{name}_product"), 128, &product);
        let folded = format!("{name}_product[63:0] ^ {name}_product[127:64]");
        self.drive_part(&name, 64, &folded, self.bits(wire));
    }

    /// Prints the registers of the roots of the current decision, and of the root unit.
    fn root_registers(&mut self, roots: &Roots) {
        let UnitBits { of, step, product, rest, left } = UnitBits::new(self.net, roots);
        for (name, bits) in [("left", left), ("of", of), ("step", step), ("product", product), ("rest", rest)]
        {
            self.line(&format!("  reg [{}:0] root_{name};", bits - 1));
        }
        for nth in 0..roots.each.len() {
            self.line(&format!("  reg root{nth}_done;"));
            self.line(&format!("  reg root{nth}_none;"));
            self.line(&format!("  reg [{}:0] root{nth}_step;", step - 1));
        }
    }

    /// Prints the wire with the step that the root unit has computed.
    fn root(&mut self, wire: Wire, over: u64, of: Wire) {
        let Some(roots) = &self.circuit.roots else { unreachable!("a step is made for roots only") };
        let nth = roots.each.iter().position(|(known, _)| *known == wire).unwrap_or_default();
        let (bits, name, step) = (self.bits(wire), self.name(wire), UnitBits::new(self.net, roots).step);
        let found = match bits.checked_sub(step) {
            None => format!("root{nth}_step[{}:0]", bits - 1),
            Some(0) => format!("root{nth}_step"),
            Some(more) => format!("{{{more}'d0, root{nth}_step}}"),
        };
        let value = match self.net.range(of).lo {
            0 => format!("root{nth}_none ? {} : {found}", literal(roots::step(over, 0), bits)),
            _ => found,
        };
        self.drive(&name, bits, &value);
    }

    /// The root unit: digit by digit, one bit per clock. `rest` is the remainder of the upper bits of the square after
    /// subtracting the square of `step` times the number; `product` is `step` times the number.
    fn root_unit(&mut self, roots: &Roots) {
        let UnitBits { of, step, product, rest, left } = UnitBits::new(self.net, roots);
        let full = (rest + 2).max(product + 3) + 1;
        let n = roots.each.len();
        let mut given = Vec::new();
        for (nth, (wire, is_seen)) in roots.each.iter().enumerate() {
            self.drive(
                &format!("root{nth}_lacks"),
                1,
                &format!("{} && !root{nth}_done", self.fitted(*is_seen, 1)),
            );
            given.extend(self.net.gate(*wire).operands().map(|operand| self.fitted(operand, of)));
        }
        let lack: Vec<String> = (0..n).map(|nth| format!("root{nth}_lacks")).collect();
        self.line(&format!("  assign ready = !({});", lack.join(" || ")));
        let (last, first) = given.split_last().expect("the list is not empty");
        let chosen = first.iter().zip(&lack).map(|(given, lacks)| format!("{lacks} ? {given} : "));
        let chosen = chosen.collect::<String>() + last;
        self.drive("root_next", of, &chosen);
        self.root_digits(roots, step, left);
        let widened = |name: &str, has: u32| format!("{{{}'d0, {name}}}", full - has);
        self.drive("root_more", full, &widened("root_rest, root_digit", rest + 2));
        let taken = format!("{} + {}", widened("root_product, 2'd0", product + 2), widened("root_of", of));
        self.drive("root_taken", full, &taken);
        self.drive("root_less", full, "root_more - root_taken");
        self.drive("root_is_in", 1, &format!("~root_less[{}]", full - 1));
        self.drive("root_found", step, &format!("{{root_step[{}:0], root_is_in}}", step - 2));
        let added = format!("{{{}'d0, root_of & {{{of}{{root_is_in}}}}}}", product - of);
        let one = literal(1, left);
        self.line("  always @(posedge clk)");
        self.line("    if (reset || ready) begin");
        self.line(&format!("      root_left <= {};", literal(0, left)));
        (0..n).for_each(|nth| self.line(&format!("      root{nth}_done <= 1'h0;")));
        self.line(&format!("    end else if (root_left == {}) begin", literal(0, left)));
        self.line(&format!("      root_left <= {};", literal(step.into(), left)));
        self.line("      root_of <= root_next;");
        for (name, bits) in [("rest", rest), ("product", product), ("step", step)] {
            self.line(&format!("      root_{name} <= {};", literal(0, bits)));
        }
        self.line("    end else begin");
        self.line(&format!("      root_left <= root_left - {one};"));
        let low = rest - 1;
        self.line(&format!("      root_rest <= root_is_in ? root_less[{low}:0] : root_more[{low}:0];"));
        self.line(&format!("      root_product <= {{root_product[{}:0], 1'd0}} + {added};", product - 2));
        self.line("      root_step <= root_found;");
        for nth in 0..n {
            let before = (0..nth).map(|before| format!("!root{before}_lacks && ")).collect::<String>();
            self.line(&format!("      if (root_left == {one} && {before}root{nth}_lacks) begin"));
            self.line(&format!("        root{nth}_done <= 1'h1;"));
            self.line(&format!("        root{nth}_none <= root_of == {};", literal(0, of)));
            self.line(&format!("        root{nth}_step <= root_found;"));
            self.line("      end");
        }
        self.line("    end");
    }

    /// Prints the search for the root: two bits of the square per clock, the upper ones first.
    fn root_digits(&mut self, roots: &Roots, step: u32, left: u32) {
        self.line("  reg [1:0] root_digit;");
        self.line("  always @*");
        self.line("    case (root_left)");
        let square = u128::from(roots.over) * u128::from(roots.over);
        for at in 1..=step {
            let digit = (square >> (2 * (at - 1)) & 3) as u64;
            self.line(&format!("      {}: root_digit = {};", literal(at.into(), left), literal(digit, 2)));
        }
        self.line("      default: root_digit = 2'h0;");
        self.line("    endcase");
    }

    /// Prints a table look-up as a case statement.
    fn table(&mut self, wire: Wire, table: u32, at: Wire) {
        let (name, bits, at_bits) = (self.name(wire), self.bits(wire), self.bits(at));
        let address = self.fitted(at, at_bits);
        let _ = writeln!(self.out, "  reg [{}:0] {name};", bits - 1);
        let _ = writeln!(self.out, "  always @*\n    case ({address})");
        let Range { lo, hi } = self.net.range(at);
        for value in lo..=hi {
            let entry = literal(self.net.entry(table, at, value as u64), bits);
            let when = if value == hi { "default".into() } else { literal(value as u64, at_bits) };
            let _ = writeln!(self.out, "      {when}: {name} = {entry};");
        }
        self.line("    endcase");
    }
}

/// The widths of the root unit's parts.
struct UnitBits {
    /// The operand of the root.
    of: u32,
    /// The result.
    step: u32,
    /// The result times the operand.
    product: u32,
    /// The remainder of the square.
    rest: u32,
    /// The number of remaining bits.
    left: u32,
}

impl UnitBits {
    /// Computes the widths of the root unit from the largest operand.
    fn new(net: &Net, roots: &Roots) -> Self {
        let of = roots.each.iter().flat_map(|(wire, _)| net.gate(*wire).operands()).map(|of| net.range(of));
        let most = of.reduce(Range::either).map_or(0, |range| range.hi as u64);
        let bits_of = |n: u128| u128::BITS - n.leading_zeros();
        let product = u128::from(roots.over) * (u128::from(most.isqrt()) + 1);
        Self {
            of: bits_of(most.into()),
            step: roots::bits(roots.over),
            left: u32::BITS - roots::bits(roots.over).leading_zeros(),
            product: bits_of(product).max(bits_of(most.into()) + 1),
            rest: bits_of(2 * product + u128::from(most)),
        }
    }
}

/// Number of bits with a sign.
fn signed_bits(range: Range) -> u32 {
    range.bits() + u32::from(!range.is_signed())
}

/// Formats a constant of this width in hexadecimal.
fn literal(word: u64, bits: u32) -> String {
    let mask = if bits >= 64 { u64::MAX } else { (1 << bits) - 1 };
    format!("{bits}'h{:x}", word & mask)
}

/// A number as powers of two to add or, where true, subtract; no two are adjacent.
fn signed_digits(mut n: u64) -> Vec<(u32, bool)> {
    let mut digits = Vec::new();
    let mut shift = 0;
    while n != 0 && shift < 64 {
        if n & 1 == 1 {
            let is_minus = n & 2 == 2;
            digits.push((shift, is_minus));
            n = if is_minus { n.wrapping_add(1) } else { n - 1 };
            // The last carry is beyond the word.
            if n == 0 && is_minus {
                break;
            }
        }
        n >>= 1;
        shift += 1;
    }
    digits
}
