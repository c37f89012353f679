//! Writes and parses the text form of operations and terminators.

use super::ParseError;
use super::source_lines::SourceLine;
use super::words::Item;
use crate::ir::*;
use core::fmt::Write as _;
use weft_core::Status;
use weft_core::marks::Mark;

/// The mnemonics of all operations and terminators.
#[cfg(test)]
pub(crate) fn mnemonics() -> Vec<String> {
    let ends = ["jump", "branch", "forward", "skip", "steer", "drop", "abort", "reply", "redirect", "fail"];
    let mut mnemonics: Vec<String> = ends.map(String::from).into();
    macro_rules! add {
        ($([$($text:literal $($part:ident: $of:ident)?)*] $($field:ident),* => $op:ident $(($($all:ident),*))?;)*) => {
            $({
                let names = [String::new()].into_iter();
                $(
                    let names = names.map(|name| name + $text);
                    $(let names = names.flat_map(|name| $of::NAMES.iter().map(move |(part, _)| name.clone() + part));)?
                )*
                mnemonics.extend(names);
            })*
        };
    }
    op_table!(add);
    mnemonics
}

macro_rules! write_and_parse {
    ($([$($text:literal $($part:ident: $of:ident)?)*] $($field:ident),* => $op:ident $(($($all:ident),*))?;)*) => {
        /// Writes the mnemonic and the operands.
        pub(crate) fn write_op(out: &mut String, op: &Op) {
            let mut is_first = true;
            match op {
                $(Op::$op $(($($all),*))? => {
                    $(out.push_str($text); $(out.push_str(Named::name(*$part));)?)*
                    $($field.write(out, &mut is_first);)*
                })*
            }
        }

        /// Parses an operation: the mnemonic and the operands.
        pub(super) fn parse_op(line: &mut SourceLine<'_>) -> Result<Op, ParseError> {
            let unknown = line.error("an operation");
            let (word, mut is_first) = (line.word("an operation")?, true);
            $(
                let parts = || {
                    let rest = &*word;
                    $(let rest = rest.strip_prefix($text)?; $(let ($part, rest) = $of::strip_name(rest)?;)?)*
                    rest.is_empty().then_some(($($($part,)?)*))
                };
                if let Some(($($($part,)?)*)) = parts() {
                    $(let $field = Field::read(line, &mut is_first)?;)*
                    return Ok(Op::$op $(($($all),*))?);
                }
            )*
            Err(unknown)
        }
    };
}
op_table!(write_and_parse);

/// A field of an operation. The first one follows a space, the others a comma.
trait Field: Sized {
    fn write(&self, out: &mut String, is_first: &mut bool);
    fn read(line: &mut SourceLine<'_>, is_first: &mut bool) -> Result<Self, ParseError>;
}

impl<T: Item> Field for T {
    fn write(&self, out: &mut String, is_first: &mut bool) {
        out.push_str(if core::mem::take(is_first) { " " } else { ", " });
        self.put(out);
    }

    fn read(line: &mut SourceLine<'_>, is_first: &mut bool) -> Result<Self, ParseError> {
        if !core::mem::take(is_first) {
            line.expect(',')?;
        }
        Self::take(line)
    }
}

macro_rules! lists {
    ($($of:ty),*) => {
        $(impl Field for Vec<$of> {
            fn write(&self, out: &mut String, is_first: &mut bool) {
                self.iter().for_each(|item| item.write(out, is_first));
            }

            fn read(line: &mut SourceLine<'_>, is_first: &mut bool) -> Result<Self, ParseError> {
                let mut all = Vec::new();
                while if core::mem::take(is_first) { line.is_value() } else { line.eat(',') } {
                    all.push(Item::take(line)?);
                }
                Ok(all)
            }
        })*
    };
}
lists!(Value, (Value, Option<Value>), Vec<u8>);

impl Field for Option<Value> {
    fn write(&self, out: &mut String, is_first: &mut bool) {
        self.iter().for_each(|value| value.write(out, is_first));
    }

    fn read(line: &mut SourceLine<'_>, _: &mut bool) -> Result<Self, ParseError> {
        line.eat(',').then(|| line.value()).transpose()
    }
}

/// A value, and the flag that makes it NULL.
impl Item for (Value, Option<Value>) {
    fn put(&self, out: &mut String) {
        self.0.put(out);
        if let Some(null) = self.1 {
            out.push_str(" null ");
            null.put(out);
        }
    }

    fn take(line: &mut SourceLine<'_>) -> Result<Self, ParseError> {
        Ok((line.value()?, line.eat_word("null").then(|| line.value()).transpose()?))
    }
}

/// Writes a terminator.
pub(super) fn write_end(out: &mut String, end: &Terminator) {
    let _ = match end {
        Terminator::Missing => write!(out, "missing"),
        Terminator::Jump(to) => write!(out, "jump {}", jump(to)),
        Terminator::Branch(by, yes, no) => write!(out, "branch v{}, {}, {}", by.0, jump(yes), jump(no)),
        Terminator::Forward => write!(out, "forward"),
        Terminator::Skip => write!(out, "skip"),
        Terminator::Steer { .. } => write!(out, "steer"),
        Terminator::Drop { .. } => write!(out, "drop"),
        Terminator::Abort { status, text, .. } => {
            let _ = match status {
                StatusOperand::Known(status) => write!(out, "abort {status}"),
                StatusOperand::Computed(code) => write!(out, "abort v{}", code.0),
            };
            text.write(out, &mut false);
            Ok(())
        }
        Terminator::Reply { .. } => write!(out, "reply"),
        Terminator::Redirect { to, .. } => write!(out, "redirect v{}", to.0),
        Terminator::Fail { fault, .. } => write!(out, "fail v{}", fault.0),
    };
}

/// Formats a jump: the block and, in parentheses, its arguments.
fn jump(to: &Jump) -> String {
    let mut out = format!("block{}", to.block.0);
    if !to.args.is_empty() {
        let args: Vec<String> = to.args.iter().map(|arg| format!("v{}", arg.0)).collect();
        let _ = write!(out, "({})", args.join(", "));
    }
    out
}

/// Reads a terminator; None if the line is an instruction.
pub(super) fn parse_end(line: &mut SourceLine<'_>) -> Result<Option<Terminator>, ParseError> {
    let at = line.source_line;
    let mut is = |word| line.eat_word(word);
    let end = if is("missing") {
        Terminator::Missing
    } else if is("forward") {
        Terminator::Forward
    } else if is("skip") {
        Terminator::Skip
    } else if is("steer") {
        Terminator::Steer { line: at }
    } else if is("drop") {
        Terminator::Drop { line: at }
    } else if is("reply") {
        Terminator::Reply { line: at }
    } else if is("jump") {
        Terminator::Jump(parse_jump(line)?)
    } else if is("branch") {
        let by = line.value()?;
        line.expect(',')?;
        let yes = parse_jump(line)?;
        line.expect(',')?;
        Terminator::Branch(by, yes, parse_jump(line)?)
    } else if is("abort") {
        let status = match line.is_value() {
            true => StatusOperand::Computed(line.value()?),
            false => {
                let name = line.peek_word().to_string();
                let status = Status::from_name(&name).ok_or_else(|| line.error("a status"))?;
                line.keyword(&name)?;
                StatusOperand::Known(status)
            }
        };
        Terminator::Abort { status, text: Field::read(line, &mut false)?, line: at }
    } else if is("redirect") {
        Terminator::Redirect { to: line.value()?, line: at }
    } else if is("fail") {
        Terminator::Fail { fault: line.value()?, line: at }
    } else {
        return Ok(None);
    };
    Ok(Some(end))
}

/// Parses a jump: a block and, in parentheses, its arguments.
fn parse_jump(line: &mut SourceLine<'_>) -> Result<Jump, ParseError> {
    let block = BlockId(line.id("block")?);
    let mut args = Vec::new();
    if line.eat('(') {
        args = line.values()?;
        line.expect(')')?;
    }
    Ok(Jump { block, args })
}
