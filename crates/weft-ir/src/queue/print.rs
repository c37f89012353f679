//! The text form of queue programs, for people to read.

use super::{Level, Op, Overflow, QueueProgram, Scope, Slot, Step, Value};
use core::fmt::{self, Display, Formatter};

impl Display for QueueProgram {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "queue {} of {} bytes at most, {} operations a packet",
            self.name,
            self.memory_bytes(),
            self.cost()
        )?;
        if !self.fields.is_empty() {
            let names: Vec<&str> = self.fields.iter().map(|field| field.name()).collect();
            writeln!(f, "  packets carry {}", names.join(", "))?;
        }
        self.levels.iter().try_for_each(|level| write!(f, "{level}"))
    }
}

impl Display for Level {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "  level {}: {:?}, {:?}, packets by {:?}",
            self.name, self.partitions, self.order, self.packets
        )?;
        let overflow = match self.limit.overflow {
            Overflow::Arriving => "the arriving one goes".into(),
            Overflow::Victim { .. } => format!("{:?}, {} at once", self.limit.overflow, self.limit.batch),
        };
        let (packets, bytes) = (self.limit.packets, self.limit.bytes);
        writeln!(f, "    limit {packets:?} packets, {bytes:?} bytes; {overflow}")?;
        for (scope, vars) in [("node", &self.vars), ("partition", &self.partition_vars)] {
            for var in vars {
                let sign = if var.signed { "i" } else { "u" };
                writeln!(
                    f,
                    "    {scope} {}: {:?} {sign}{} = {}",
                    var.name, var.ty, var.bits, var.start as i64
                )?;
            }
        }
        for (moment, handler) in self.handlers.iter() {
            writeln!(f, "    {moment:?}, {} operations:", handler.cost())?;
            block(f, &handler.body, 3)?;
        }
        Ok(())
    }
}

/// Writes steps, one a line, indented by `depth`.
fn block(f: &mut Formatter<'_>, steps: &[Step], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for step in steps {
        match step {
            Step::Let(value, op) => writeln!(f, "{indent}{value} = {op}")?,
            Step::Store(slot, value) => writeln!(f, "{indent}{slot} := {value}")?,
            Step::If { by, then, otherwise } => {
                writeln!(f, "{indent}if {by}")?;
                block(f, then, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{indent}else")?;
                    block(f, otherwise, depth + 1)?;
                }
            }
            Step::End(verdict, line) => writeln!(f, "{indent}{verdict:?}, line {line}")?,
            Step::Give(value) => writeln!(f, "{indent}give {value}")?,
        }
    }
    Ok(())
}

impl Display for Value {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "v{}", self.0)
    }
}

impl Display for Slot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let scope = match self.scope {
            Scope::Node => "node",
            Scope::Partition => "partition",
            Scope::Packet => "packet",
            Scope::Event => "event",
        };
        write!(f, "{scope}.{}", self.word)
    }
}

impl Display for Op {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Int(n) => write!(f, "{n}"),
            Self::Float(x) => write!(f, "{x:?}"),
            Self::Bool(b) => write!(f, "{b}"),
            Self::Load(slot) => write!(f, "{slot}"),
            Self::IntBinary(op, a, b) => write!(f, "{op:?} {a}, {b}"),
            Self::IntCompare(op, a, b) => write!(f, "{op:?} {a}, {b}"),
            Self::FloatBinary(op, a, b) => write!(f, "float {op:?} {a}, {b}"),
            Self::FloatUnary(op, a) => write!(f, "float {op:?} {a}"),
            Self::FloatCompare(op, a, b) => write!(f, "float {op:?} {a}, {b}"),
            Self::IntToFloat(a) => write!(f, "float of {a}"),
            Self::FloatToInt(a) => write!(f, "whole of {a}"),
            Self::BoolBinary(op, a, b) => write!(f, "{op:?} {a}, {b}"),
            Self::Not(a) => write!(f, "not {a}"),
            Self::Select(by, a, b) => write!(f, "{by} ? {a} : {b}"),
            Self::Hash(a) => write!(f, "hash {a}"),
            Self::HashMix(a, b) => write!(f, "hash {a}, {b}"),
            Self::Log2(a) => write!(f, "log2 {a}"),
        }
    }
}
