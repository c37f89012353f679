//! Writes and parses the text form of a chain: declarations, one per line, and functions.

use super::source_lines::{SourceLine, SourceLines};
use super::words::{Item, Marked, Words};
use super::{ParseError, parse_function, write_function};
use crate::ir::TableId;
use crate::program::*;
use core::fmt::Write as _;
use weft_core::Interval;
use weft_core::table::RemovalReason;
use weft_core::types::Value;
use weft_core::wire::CARRIED_MAX;
use weft_core::wire::header_change::HeaderChange;

/// Writes a chain: declarations, one per line, then elements and their handlers.
///
/// ```text
/// chain "shop"
/// request
///   input "user" TEXT body "user" "id"
/// response
/// table "acl" "ac_tab" as replicated max 100000 evict reject
///   key "username" TEXT(64) = null
///   column "permission" TEXT(1) = null
///   row "bob", "W"
/// element "acl" "acl" mandatory
/// handler request function "acl.request" {
/// ...
/// }
/// ```
pub fn write_program(chain: &ChainProgram) -> String {
    let mut out = String::new();
    let to = &mut out;
    declare(to, "chain", [&chain.name]);
    for (word, direction) in [("request", &chain.request), ("response", &chain.response)] {
        to.extend([word, "\n"]);
        declare(to, "  input", &direction.inputs);
    }
    for table in &chain.tables {
        declare(to, "table", [table]);
        declare(to, "  key", &table.spec.key);
        declare(to, "  column", &table.spec.columns);
        table.rows.iter().for_each(|row| write_row(to, row));
    }
    for decl in &chain.matches {
        declare(to, "match", [decl]);
        declare(to, "  part", &decl.spec.parts);
    }
    declare(to, "var", &chain.vars);
    for sink in &chain.sinks {
        declare(to, "sink", [sink]);
        declare(to, "  field", &sink.columns);
    }
    declare(to, "call", &chain.call);
    declare(to, "answer", &chain.answers);
    declare(to, "reply", &chain.replies);
    for decl in &chain.header_changes {
        declare(to, "reshape", [decl]);
        if let HeaderChange::Push { stacks, .. } = &decl.what {
            declare(to, "stack", stacks);
        }
    }
    declare(to, "native", &chain.natives);
    chain.frames.iter().for_each(|frames| write_frames(to, frames));
    for element in &chain.elements {
        declare(to, "element", [element]);
        write_handlers(to, &element.handlers);
    }
    out
}

/// Writes a line for each declaration.
fn declare<'d, T: Words + 'd>(out: &mut String, word: &str, all: impl IntoIterator<Item = &'d T>) {
    for declared in all {
        out.push_str(word);
        declared.write(out);
        out.push('\n');
    }
}

/// Writes a row of a table, with commas between the values.
fn write_row(out: &mut String, row: &[Value]) {
    out.push_str("  row");
    for (at, value) in row.iter().enumerate() {
        out.push_str(if at == 0 { " " } else { ", " });
        value.put(out);
    }
    out.push('\n');
}

/// ```text
/// frames
/// check "ipv4" "truncated" line 12
/// overlaps 4 0
/// store in3 bits 2 0 16 big sum in4 sum in5 pseudo zero_is_none covers in4
/// inherited in6
/// carried in7 tunnel in8 gives in9 gives in10
/// usual in0
/// parser function "parse" {
/// ```
fn write_frames(out: &mut String, frames: &Frames) {
    out.push_str("frames");
    frames.is_ip.write_marked(out, "ip");
    frames.has_labels.write_marked(out, "labels");
    out.push('\n');
    declare(out, "check", &frames.checks);
    for version in [4, 6] {
        if let Some(check) = frames.overlaps[overlaps_at(version)] {
            _ = writeln!(out, "overlaps {version} {check}");
        }
    }
    for (at, store) in frames.field_writes.iter().enumerate() {
        declare(out, &format!("store in{at}"), store);
    }
    frames.inherited.into_iter().for_each(|at| _ = writeln!(out, "inherited in{at}"));
    declare(out, "carried", &frames.carried);
    frames.usual.into_iter().for_each(|at| _ = writeln!(out, "usual in{at}"));
    out.push_str("parser ");
    write_function(out, &frames.parser);
}

/// Writes the handlers of an element.
fn write_handlers(out: &mut String, h: &Handlers) {
    let single = [("open", &h.open), ("request", &h.request), ("response", &h.response), ("close", &h.close)];
    let single = single.into_iter().filter_map(|(word, function)| Some((word.into(), function.as_ref()?)));
    let every =
        h.every.iter().map(|(interval, function)| (format!("every {}", interval.as_nanos()), function));
    let timeouts = h.timeouts.iter().map(|(RowRemoval { table, why }, function)| {
        let word = if *why == RemovalReason::Expired { "departed" } else { "evicted" };
        (format!("{word} t{}", table.0), function)
    });
    for (which, function) in single.chain(every).chain(timeouts) {
        _ = write!(out, "handler {which} ");
        write_function(out, function);
    }
}

/// Reads a chain. It need not be well-formed; see [`crate::verify::verify_program`].
///
/// # Errors
/// The first line with a syntax error.
pub fn parse_program(text: &str) -> Result<ChainProgram, ParseError> {
    let mut lines = SourceLines::of(text);
    let mut line = lines.expect_line("`chain`")?;
    line.keyword("chain")?;
    let mut chain = ChainProgram { name: line.text()?, ..ChainProgram::default() };
    line.expect_end()?;
    let mut is_response = false;
    while let Some(mut line) = lines.next() {
        let not_here = line.error("a declaration that may stand here");
        let word = line.word("a declaration")?;
        let line = &mut line;
        match word.as_str() {
            "request" => is_response = false,
            "response" => is_response = true,
            "input" if is_response => chain.response.inputs.push(Words::read(line)?),
            "input" => chain.request.inputs.push(Words::read(line)?),
            "table" => chain.tables.push(Words::read(line)?),
            "key" | "column" | "row" => {
                let table = chain.tables.last_mut().ok_or(not_here)?;
                match word.as_str() {
                    "key" => table.spec.key.push(Words::read(line)?),
                    "column" => table.spec.columns.push(Words::read(line)?),
                    _ => table.rows.push(parse_row(line)?),
                }
            }
            "match" => chain.matches.push(Words::read(line)?),
            "part" => chain.matches.last_mut().ok_or(not_here)?.spec.parts.push(Words::read(line)?),
            "var" => chain.vars.push(Words::read(line)?),
            "sink" => chain.sinks.push(Words::read(line)?),
            "field" => chain.sinks.last_mut().ok_or(not_here)?.columns.push(Words::read(line)?),
            "call" => chain.call.push(Words::read(line)?),
            "answer" => chain.answers.push(Words::read(line)?),
            "reply" => chain.replies.push(Words::read(line)?),
            "reshape" => chain.header_changes.push(Words::read(line)?),
            "stack" => match chain.header_changes.last_mut().map(|decl| &mut decl.what) {
                Some(HeaderChange::Push { stacks, .. }) => stacks.push(Words::read(line)?),
                _ => return Err(not_here),
            },
            "native" => chain.natives.push(Words::read(line)?),
            "element" => chain.elements.push(Words::read(line)?),
            "frames" => {
                let (is_ip, has_labels) = (line.eat_word("ip"), line.eat_word("labels"));
                chain.frames = Some(Frames { is_ip, has_labels, ..Frames::default() });
            }
            "handler" => {
                let element = chain.elements.last_mut().ok_or(not_here)?;
                parse_handler(line, &mut lines, &mut element.handlers)?;
                // The function has taken the rest of the line.
                continue;
            }
            "parser" => {
                line.keyword("function")?;
                let parser = parse_function(line, &mut lines)?;
                chain.frames.as_mut().ok_or(not_here)?.parser = parser;
                continue;
            }
            _ => {
                let is_known = match &mut chain.frames {
                    Some(frames) => parse_in_frames(line, &word, frames)?,
                    None => false,
                };
                if !is_known {
                    return Err(not_here);
                }
            }
        }
        line.expect_end()?;
    }
    Ok(chain)
}

/// Parses the values of a row.
fn parse_row(line: &mut SourceLine<'_>) -> Result<Vec<Value>, ParseError> {
    let mut row = Vec::new();
    while !line.is_at_end() {
        row.push(Value::take(line)?);
        if !line.eat(',') {
            break;
        }
    }
    Ok(row)
}

/// Parses a declaration that describes frames; false if there is none of this name.
fn parse_in_frames(line: &mut SourceLine<'_>, word: &str, frames: &mut Frames) -> Result<bool, ParseError> {
    match word {
        "check" => frames.checks.push(Words::read(line)?),
        "overlaps" => {
            let at = overlaps_at(line.number()?);
            frames.overlaps[at] = Some(line.number()?);
        }
        "store" => {
            let at = usize::from(line.id::<u16>("in")?);
            frames.field_writes.resize(frames.field_writes.len().max(at + 1), None);
            frames.field_writes[at] = Some(Words::read(line)?);
        }
        "inherited" => frames.inherited.insert(line.id::<u16>("in")?),
        "usual" => frames.usual.insert(line.id::<u16>("in")?),
        "carried" if frames.carried.len() < CARRIED_MAX => frames.carried.push(Words::read(line)?),
        _ => return Ok(false),
    }
    Ok(true)
}

/// Parses a handler with its function, and adds it to the handlers of an element.
fn parse_handler(
    line: &mut SourceLine<'_>,
    lines: &mut SourceLines<'_>,
    handlers: &mut Handlers,
) -> Result<(), ParseError> {
    let unknown = line.error("`open`, `request`, `response`, `close`, `every`, `departed` or `evicted`");
    let which = line.word("a handler")?;
    let mut function = |line: &mut SourceLine<'_>| {
        line.keyword("function")?;
        parse_function(line, lines)
    };
    match which.as_str() {
        "open" => handlers.open = Some(function(line)?),
        "request" => handlers.request = Some(function(line)?),
        "response" => handlers.response = Some(function(line)?),
        "close" => handlers.close = Some(function(line)?),
        "every" => {
            let interval = Interval::take(line)?;
            handlers.every.push((interval, function(line)?));
        }
        "departed" | "evicted" => {
            let why = if which == "departed" { RemovalReason::Expired } else { RemovalReason::Evicted };
            let removal = RowRemoval { table: TableId::take(line)?, why };
            handlers.timeouts.push((removal, function(line)?));
        }
        _ => return Err(unknown),
    }
    Ok(())
}
