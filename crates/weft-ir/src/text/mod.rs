//! The text form of the IR (`.wir`): [`write()`] and [`parse`] for a function, [`write_program`] and [`parse_program`]
//! for a chain with all its declarations.
//!
//! ```text
//! function "acl.request" {
//! block0:
//!     v0: bytes = input in0                  ; line 4
//!     v1: row = find t0, v0                  ; line 4
//!     v2: bool = is_row v1
//!     branch v2, block1, block2(v1)
//! block1:
//!     forward
//! block2(v3: row):
//!     abort PERMISSION_DENIED                ; line 6
//! }
//! ```
//!
//! A `;` begins a comment; `; line 4` gives the source line of the instruction. Names are a prefix and a number: values
//! `v`, tables `t`, columns `c`, inputs `in`, call cells `call`, variables `var`, sinks `s`, names `n`. A mnemonic that
//! ends in `.journal` is a write that is journalled first. The text form round-trips: `parse(write(f)) == f`.

mod forms;
pub(crate) mod ops;
mod program;
mod source_lines;
#[cfg(test)]
mod tests;
mod words;

use crate::ir::*;
use core::fmt::{self, Write as _};
use source_lines::{SourceLine, SourceLines};

#[cfg(test)]
pub(crate) use ops::mnemonics;
pub use program::{parse_program, write_program};

/// A syntax error in the text form.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParseError {
    /// The line, from 1.
    pub line: usize,
    /// What was expected.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.what)
    }
}

impl core::error::Error for ParseError {}

/// Maximum number of values of a function in the text form, and the limit of `v`-numbers.
pub const VALUES_MAX: u32 = 1 << 20;

// A text cannot make the parser allocate more types than this.
const _: () =
    assert!(VALUES_MAX as usize * size_of::<Option<Ty>>() <= 1 << 20, "types of a text take little memory");

/// Writes a function.
pub fn write(function: &Function) -> String {
    let mut out = String::new();
    write_function(&mut out, function);
    out
}

/// Reads a function. It need not be well-formed; see [`crate::verify`].
///
/// # Errors
/// The first line with a syntax error.
pub fn parse(text: &str) -> Result<Function, ParseError> {
    let mut lines = SourceLines::of(text);
    let mut line = lines.expect_line("`function`")?;
    line.keyword("function")?;
    let function = parse_function(&mut line, &mut lines)?;
    match lines.next() {
        None => Ok(function),
        Some(line) => Err(line.error("the end of the text")),
    }
}

/// The mnemonic of an operation.
pub fn mnemonic(op: &Op) -> String {
    let mut text = String::new();
    ops::write_op(&mut text, op);
    first_word(&text)
}

/// The mnemonic of a terminator.
pub fn end_mnemonic(end: &Terminator) -> String {
    let mut text = String::new();
    ops::write_end(&mut text, end);
    first_word(&text)
}

fn first_word(text: &str) -> String {
    text.split(' ').next().unwrap_or_default().to_string()
}

/// Writes a function: its blocks with parameters, instructions and terminators.
fn write_function(out: &mut String, function: &Function) {
    out.push_str("function ");
    source_lines::quote(out, function.name.as_bytes());
    out.push_str(" {\n");
    for (value, ty) in undefined(function) {
        line(out, &format!("    undefined v{value}: {}", ty.name()), 0);
    }
    for (id, block) in function.blocks.iter().enumerate() {
        let mut head = format!("block{id}");
        if !block.params.is_empty() {
            let params: Vec<String> = block.params.iter().map(|&v| typed(&function.types, v)).collect();
            let _ = write!(head, "({})", params.join(", "));
        }
        head.push(':');
        if let Some(max) = block.scan_rows_max {
            let _ = write!(head, " scan {max}");
        }
        line(out, &head, 0);
        for inst in &block.insts {
            let mut text = String::from("    ");
            if let Some(result) = inst.result {
                let _ = write!(text, "{} = ", typed(&function.types, result));
            }
            ops::write_op(&mut text, &inst.op);
            line(out, &text, inst.line);
        }
        let mut text = String::from("    ");
        ops::write_end(&mut text, &block.end);
        line(out, &text, block.end.line());
    }
    out.push_str("}\n");
}

/// Writes a line, with the source line as a comment unless it is 0.
fn line(out: &mut String, text: &str, source_line: u32) {
    match source_line {
        0 => out.push_str(text),
        n => {
            let _ = write!(out, "{text:<43} ; line {n}");
        }
    }
    out.push('\n');
}

/// Formats a value with its type.
pub(crate) fn typed(types: &[Ty], value: Value) -> String {
    // A value without a type can be written, but not parsed.
    let ty = types.get(value.0 as usize).map_or("?", |ty| ty.name());
    format!("v{}: {ty}", value.0)
}

/// Iterates over the values that have a type but no definition.
fn undefined(function: &Function) -> impl Iterator<Item = (usize, Ty)> {
    let mut defined = vec![false; function.types.len()];
    for block in &function.blocks {
        let results = block.insts.iter().filter_map(|inst| inst.result);
        for value in results.chain(block.params.iter().copied()) {
            if let Some(defined) = defined.get_mut(value.0 as usize) {
                *defined = true;
            }
        }
    }
    function.types.iter().copied().enumerate().filter(move |(i, _)| !defined[*i])
}

named! {
    Ty: "bool" Bool, "int" Int, "float" Float, "bytes" Bytes, "row" Row;
}

/// The types of values, as far as known.
#[derive(Default)]
struct Types(Vec<Option<Ty>>);

impl Types {
    /// Records the type of a value. An error if it differs from an earlier one.
    fn set(&mut self, line: &SourceLine<'_>, value: Value, ty: Ty) -> Result<(), ParseError> {
        let index = value.0 as usize;
        if value.0 >= VALUES_MAX {
            return Err(line.error(&format!("a value below v{VALUES_MAX}")));
        }
        if index >= self.0.len() {
            self.0.resize(index + 1, None);
        }
        match self.0[index].replace(ty) {
            Some(other) if other != ty => Err(line.error("the type that the value has above")),
            _ => Ok(()),
        }
    }
}

/// Reads a function from behind the word `function` up to its closing brace.
fn parse_function(head: &mut SourceLine<'_>, lines: &mut SourceLines<'_>) -> Result<Function, ParseError> {
    let mut function = Function { name: head.text()?, ..Function::default() };
    head.expect('{')?;
    head.expect_end()?;
    let mut types = Types::default();
    // The block without a terminator so far.
    let mut open: Option<Block> = None;
    loop {
        let mut line = lines.expect_line("`}`")?;
        if line.eat('}') {
            line.expect_end()?;
            if open.is_some() {
                return Err(line.error("the end of the block"));
            }
            break;
        }
        if line.peek_word().starts_with("block") {
            if open.is_some() {
                return Err(line.error("the end of the block before"));
            }
            open = Some(parse_head(&mut line, function.blocks.len(), &mut types)?);
        } else if line.eat_word("undefined") {
            let (value, ty) = parse_typed(&mut line)?;
            types.set(&line, value, ty)?;
        } else {
            let Some(block) = &mut open else { return Err(line.error("a block")) };
            if let Some(end) = ops::parse_end(&mut line)? {
                block.end = end;
                function.blocks.extend(open.take());
            } else {
                let inst = parse_inst(&mut line, &mut types)?;
                block.insts.push(inst);
            }
        }
        line.expect_end()?;
    }
    let missing = types.0.iter().position(Option::is_none);
    if let Some(value) = missing {
        return Err(lines.error(&format!("a definition of v{value} in the function above")));
    }
    function.types = types.0.into_iter().flatten().collect();
    assert!(function.types.len() <= VALUES_MAX as usize, "the parser limits values");
    Ok(function)
}

/// Parses the head of the block with number `id`, with its parameters.
fn parse_head(line: &mut SourceLine<'_>, id: usize, types: &mut Types) -> Result<Block, ParseError> {
    line.keyword(&format!("block{id}"))?;
    let mut block = Block::default();
    if line.eat('(') {
        loop {
            let (value, ty) = parse_typed(line)?;
            types.set(line, value, ty)?;
            block.params.push(value);
            if !line.eat(',') {
                break;
            }
        }
        line.expect(')')?;
    }
    line.expect(':')?;
    if line.eat_word("scan") {
        block.scan_rows_max = Some(line.number()?);
    }
    Ok(block)
}

/// Parses an instruction, with its result if it has one.
fn parse_inst(line: &mut SourceLine<'_>, types: &mut Types) -> Result<Inst, ParseError> {
    let mut result = None;
    if line.is_value() {
        let (value, ty) = parse_typed(line)?;
        types.set(line, value, ty)?;
        line.expect('=')?;
        result = Some(value);
    }
    let op = ops::parse_op(line)?;
    Ok(Inst { result, op, line: line.source_line })
}

/// Parses a value with its type.
fn parse_typed(line: &mut SourceLine<'_>) -> Result<(Value, Ty), ParseError> {
    let value = line.value()?;
    line.expect(':')?;
    let ty = line.one_of(Ty::NAMES, "a type of values")?;
    Ok((value, ty))
}
