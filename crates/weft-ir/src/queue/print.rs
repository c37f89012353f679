//! The text form of queue programs, for people to read.

use super::{Level, Overflow, QueueProgram, Slot, Step, Ty, Value};
use crate::text::{ops, typed};
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
            block(f, &handler.body, &handler.types, 3)?;
        }
        Ok(())
    }
}

/// Writes steps, one a line, indented by `depth`.
fn block(f: &mut Formatter<'_>, steps: &[Step], types: &[Ty], depth: usize) -> fmt::Result {
    let indent = "  ".repeat(depth);
    for step in steps {
        match step {
            Step::Let(value, op) => {
                let mut text = String::new();
                ops::write_op(&mut text, op);
                writeln!(f, "{indent}{} = {text}", typed(types, *value))?;
            }
            Step::Load(value, slot) => writeln!(f, "{indent}{} = {slot}", typed(types, *value))?,
            Step::Store(slot, Value(n)) => writeln!(f, "{indent}{slot} := v{n}")?,
            Step::If { by: Value(n), then, otherwise } => {
                writeln!(f, "{indent}if v{n}")?;
                block(f, then, types, depth + 1)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{indent}else")?;
                    block(f, otherwise, types, depth + 1)?;
                }
            }
            Step::End(verdict, line) => writeln!(f, "{indent}{verdict:?}, line {line}")?,
            Step::Give(Value(n)) => writeln!(f, "{indent}give v{n}")?,
        }
    }
    Ok(())
}

impl Display for Slot {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.scope.name(), self.word)
    }
}
