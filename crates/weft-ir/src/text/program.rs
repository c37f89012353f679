//! Writes and parses the text form of a chain: declarations, one per line, and functions.

use super::source_lines::{SourceLine, SourceLines, quote, write_float};
use super::{ParseError, header_change, name_of, parse_function, write_function};
use crate::ir::{Endian, Named, TableId};
use crate::program::*;
use core::fmt::Write as _;
use weft_core::Interval;
use weft_core::inputs::InputSet;
use weft_core::list::EntryKey;
use weft_core::matching::{MatchPart, MatchSpec, Test};
use weft_core::native::{NativeCost, NativeDecl};
use weft_core::table::{ColumnSpec, Evict, RemovalReason, TableSpec};
use weft_core::types::{Type, Value};
use weft_core::wire::header_change::HeaderChange;
use weft_core::wire::{CARRIED_MAX, FieldId, FieldRef, LayerRef, ProtocolId};

const METAS: &[(&str, Meta)] = &[
    ("method", Meta::Method),
    ("peer", Meta::Peer),
    ("size", Meta::Size),
    ("index", Meta::Index),
    ("call_id", Meta::CallId),
    ("status", Meta::Status),
    ("elapsed", Meta::Elapsed),
    ("upstream", Meta::Upstream),
    ("ended_by", Meta::EndedBy),
    ("version", Meta::Version),
    ("port", Meta::Port),
    ("packet_size", Meta::PacketSize),
    ("flow", Meta::Flow),
    ("is_icmp_error", Meta::IsIcmpError),
    ("is_intact", Meta::IsIntact),
    ("tunnel_depth", Meta::TunnelDepth),
    ("tag", Meta::Tag),
    ("label", Meta::Label),
    ("path", Meta::Path),
];

const EVICTS: &[(&str, Evict)] = &[("reject", Evict::Reject), ("oldest", Evict::Oldest), ("lru", Evict::Lru)];

const REALISATIONS: &[(&str, Realisation)] = &[
    ("replicated", Realisation::Replicated),
    ("striped", Realisation::Striped),
    ("locked", Realisation::Locked),
    ("per_worker", Realisation::PerWorker),
];

const MERGES: &[(&str, Merge)] = &[("sum", Merge::Sum), ("max", Merge::Max), ("min", Merge::Min)];

/// Types with a single-word name.
const TYPES: &[(&str, Type)] = &[
    ("BOOL", Type::Bool),
    ("F64", Type::F64),
    ("SIZE", Type::Size),
    ("INTERVAL", Type::Interval),
    ("TIMESTAMP", Type::Timestamp),
    ("IPADDR", Type::IpAddr),
    ("CIDR", Type::Cidr),
    ("MAC", Type::Mac),
    ("ENDPOINT", Type::Endpoint),
    ("STATUS", Type::Status),
];

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
    declaration(&mut out, "chain", &[&chain.name], "");
    for (name, direction) in [("request", &chain.request), ("response", &chain.response)] {
        declaration(&mut out, name, &[], "");
        direction.inputs.iter().for_each(|input| write_input(&mut out, input));
    }
    chain.tables.iter().for_each(|table| write_table(&mut out, table));
    chain.matches.iter().for_each(|decl| write_match(&mut out, decl));
    for var in &chain.vars {
        let merge = var.merge.map_or(String::new(), |merge| format!(" merge {}", name_of(MERGES, merge)));
        let rest = format!("{} word {} start {}{merge}", var.ty, var.word, value(&var.start));
        declaration(&mut out, "var", &[&var.owner, &var.name], &rest);
    }
    for sink in &chain.sinks {
        let target = match &sink.target {
            SinkTarget::Stdout => "stdout".to_string(),
            SinkTarget::Metrics => "metric".to_string(),
            SinkTarget::File(path) => format!("file {}", quoted(path)),
            SinkTarget::Table { owner, table, deletes } => {
                let word = if *deletes { "delete" } else { "put" };
                format!("{word} {} {}", quoted(owner), quoted(table))
            }
        };
        let format = if sink.format == SinkFormat::Text { " as_text" } else { "" };
        declaration(&mut out, "sink", &[&sink.owner, &sink.name], &format!("{target}{format}"));
        for column in &sink.columns {
            declaration(&mut out, "  field", &[&column.name], &column.ty.to_string());
        }
    }
    for cell in &chain.call {
        let rest = format!("{} word {}", cell.ty, cell.word);
        declaration(&mut out, "call", &[&cell.owner, &cell.name], &rest);
    }
    chain.answers.iter().for_each(|answer| declaration(&mut out, "answer", &[&answer.name], ""));
    for reply in &chain.replies {
        let path: Vec<&str> = reply.path.iter().map(String::as_str).collect();
        declaration(&mut out, "reply", &path, &reply.ty.to_string());
    }
    chain.header_changes.iter().for_each(|decl| header_change::write(&mut out, decl));
    chain.natives.iter().for_each(|native| write_native(&mut out, native));
    chain.frames.iter().for_each(|frames| write_frames(&mut out, frames));
    chain.elements.iter().for_each(|element| write_element(&mut out, element));
    out
}

/// Writes a declaration line: the keyword, the quoted names and the rest.
fn declaration(out: &mut String, word: &str, names: &[&str], rest: &str) {
    out.push_str(word);
    for name in names {
        out.push(' ');
        quote(out, name.as_bytes());
    }
    if !rest.is_empty() {
        let _ = write!(out, " {rest}");
    }
    out.push('\n');
}

/// Quotes a text, with escapes.
fn quoted(text: &str) -> String {
    let mut out = String::new();
    quote(&mut out, text.as_bytes());
    out
}

/// The word with a space in front if it is set, else empty.
fn flag(is_set: bool, word: &str) -> String {
    if is_set { format!(" {word}") } else { String::new() }
}

/// Formats a value as a literal, which `parse_value` reads back.
fn value(value: &Value) -> String {
    let mut out = String::new();
    match value {
        Value::Null => out.push_str("null"),
        Value::Bool(b) => out = b.to_string(),
        Value::Int(n) => out = n.to_string(),
        Value::Float(f) => {
            out.push_str("float ");
            write_float(&mut out, *f);
        }
        Value::Bytes(bytes) => quote(&mut out, bytes),
    }
    out
}

/// Writes an input: its name, type and location.
fn write_input(out: &mut String, input: &Input) {
    let written = |path: &[String]| path.iter().map(|part| format!(" {}", quoted(part))).collect::<String>();
    let place = match &input.place {
        InputLocation::Body(path) => format!("body{}", written(path)),
        InputLocation::Entry(path, EntryKey::Number(key)) => format!("entry{} number {key}", written(path)),
        InputLocation::Entry(path, EntryKey::Text(key)) => {
            format!("entry{} key {}", written(path), quoted(key))
        }
        InputLocation::Present(path) => format!("present{}", written(path)),
        InputLocation::List(list) => {
            let members: String =
                list.members.iter().map(|member| format!(" of{}", written(member))).collect();
            format!("list{} max {}{members}", written(&list.path), list.elements_max)
        }
        InputLocation::Header(name) => format!("header {}", quoted(name)),
        InputLocation::Trailer(name) => format!("trailer {}", quoted(name)),
        InputLocation::Key(nth) => format!("key {nth}"),
        InputLocation::Meta(meta) => format!("meta {}", name_of(METAS, *meta)),
        InputLocation::Frame(field) => write_field(field),
        InputLocation::Layer(layer) => {
            let protocols: String = layer.protocols.iter().map(|p| format!(" p{}", p.0)).collect();
            format!("layer {}{protocols}", layer.level)
        }
    };
    let (nullable, written) = (flag(input.nullable, "nullable"), flag(input.written, "written"));
    declaration(out, "  input", &[&input.name], &format!("{}{nullable} {place}{written}", input.ty));
}

/// `frame 0 p1 f4 p2 f3`; the layer itself has no fields. A trailing `last` refers to the last such layer.
fn write_field(field: &FieldRef) -> String {
    let mut out = format!("frame {}", field.layer.level);
    for (at, protocol) in field.layer.protocols.iter().enumerate() {
        let _ = write!(out, " p{}", protocol.0);
        if let Some(field) = field.fields.as_ref().and_then(|fields| fields.get(at)) {
            let _ = write!(out, " f{}", field.0);
        }
    }
    if field.last {
        out.push_str(" last");
    }
    out
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
    let says = [(frames.is_ip, "ip"), (frames.has_labels, "labels")];
    let says: Vec<&str> = says.into_iter().filter_map(|(is_so, word)| is_so.then_some(word)).collect();
    declaration(out, "frames", &[], &says.join(" "));
    for check in &frames.checks {
        declaration(out, "check", &[&check.protocol, &check.what], &format!("line {}", check.line));
    }
    for version in [4, 6] {
        if let Some(check) = frames.overlaps[overlaps_at(version)] {
            declaration(out, "overlaps", &[], &format!("{version} {check}"));
        }
    }
    for (at, store) in frames.field_writes.iter().enumerate() {
        let Some(FieldWrite { at: place, sums }) = store else { continue };
        let mut rest = match place {
            FieldLayout::Bytes => format!("in{at} bytes"),
            FieldLayout::Bits { bytes, shift, bits, endian } => {
                format!("in{at} bits {bytes} {shift} {bits} {}", name_of(Endian::NAMES, *endian))
            }
        };
        for sum in sums {
            let _ = write!(rest, " sum in{}", sum.input);
            rest.push_str(&flag(sum.pseudo, "pseudo"));
            rest.push_str(&flag(sum.zero_is_none, "zero_is_none"));
            for at in sum.covers {
                let _ = write!(rest, " covers in{at}");
            }
        }
        declaration(out, "store", &[], &rest);
    }
    for at in frames.inherited {
        declaration(out, "inherited", &[], &format!("in{at}"));
    }
    for Carried { packet, tunnel, inherited } in &frames.carried {
        let mut rest = format!("in{packet}");
        tunnel.iter().for_each(|tunnel| rest.push_str(&format!(" tunnel in{tunnel}")));
        for at in *inherited {
            let _ = write!(rest, " gives in{at}");
        }
        declaration(out, "carried", &[], &rest);
    }
    for at in frames.usual {
        declaration(out, "usual", &[], &format!("in{at}"));
    }
    out.push_str("parser ");
    write_function(out, &frames.parser);
}

/// Writes a table with its columns and initial rows.
fn write_table(out: &mut String, table: &TableDecl) {
    let spec = &table.spec;
    let (realisation, evict) = (name_of(REALISATIONS, table.realisation), name_of(EVICTS, spec.evict));
    let mut rest = format!("as {realisation} max {} evict {evict}", spec.max_rows);
    if let Some(ttl) = spec.ttl {
        let _ = write!(rest, " ttl {}", ttl.as_nanos());
    }
    rest.push_str(&flag(spec.ttl_on_access, "on_access"));
    if let Some(ttl) = spec.ttl_on_insert {
        let _ = write!(rest, " ttl_on_insert {}", ttl.as_nanos());
    }
    rest.push_str(&flag(spec.shared, "shared"));
    if let Some(stripes) = spec.stripes {
        let _ = write!(rest, " stripes {stripes}");
    }
    declaration(out, "table", &[&table.owner, &spec.name], &rest);
    let keys = spec.key.iter().map(|column| ("  key", column));
    for (word, column) in keys.chain(spec.columns.iter().map(|column| ("  column", column))) {
        let nullable = flag(column.nullable, "nullable");
        let rest = format!("{}{nullable} = {}", column.ty, value(&column.default));
        declaration(out, word, &[&column.name], &rest);
    }
    for row in &table.rows {
        let values: Vec<String> = row.iter().map(value).collect();
        declaration(out, "  row", &[], &values.join(", "));
    }
}

/// ```text
/// match t0 by c1 desc
///   part IPADDR nullable within c2 wild c2
///   part U16 low c4 high c5
/// ```
fn write_match(out: &mut String, decl: &MatchDecl) {
    let MatchDecl { table, spec } = decl;
    let order = flag(spec.descending, "desc");
    declaration(out, "match", &[], &format!("t{} by c{}{order}", table.0, spec.by));
    for part in &spec.parts {
        let test = match part.test {
            Test::Equal(column) => format!(" equal c{column}"),
            Test::Within(column) => format!(" within c{column}"),
            Test::Masked { mask, bits } => format!(" mask c{mask} bits c{bits}"),
            Test::Range { low, high } => {
                let side = |word: &str, column: Option<u16>| {
                    column.map_or(String::new(), |c| format!(" {word} c{c}"))
                };
                format!("{}{}", side("low", low), side("high", high))
            }
        };
        let wild = part.wildcard.map_or(String::new(), |column| format!(" wild c{column}"));
        declaration(
            out,
            "  part",
            &[],
            &format!("{}{}{test}{wild}", part.ty, flag(part.nullable, "nullable")),
        );
    }
}

/// Writes a native function with its constants, options and cost.
fn write_native(out: &mut String, decl: &NativeDecl) {
    let NativeCost { base_ns, ns_per_kib } = decl.cost;
    let mut rest = format!("{} site {} cost {base_ns} {ns_per_kib}", decl.native.name(), decl.site);
    for constant in &decl.constants {
        let _ = write!(rest, " constant {}", quoted(constant));
    }
    for (name, set) in &decl.options {
        let _ = write!(rest, " option {} {}", quoted(name), value(set));
    }
    declaration(out, "native", &[&decl.name], &rest);
}

/// Writes an element with its handlers.
fn write_element(out: &mut String, element: &Element) {
    let mandatory = flag(element.mandatory, "mandatory");
    let rest = format!("{mandatory}{}", flag(element.fail_open, "fail_open"));
    declaration(out, "element", &[&element.name, &element.element], rest.trim_start());
    let h = &element.handlers;
    let handlers =
        [("open", &h.open), ("request", &h.request), ("response", &h.response), ("close", &h.close)];
    for (name, function) in handlers {
        if let Some(function) = function {
            let _ = write!(out, "handler {name} ");
            write_function(out, function);
        }
    }
    for (interval, function) in &h.every {
        let _ = write!(out, "handler every {} ", interval.as_nanos());
        write_function(out, function);
    }
    for (RowRemoval { table: TableId(table), why }, function) in &h.timeouts {
        let word = match why {
            RemovalReason::Expired => "departed",
            RemovalReason::Evicted => "evicted",
        };
        let _ = write!(out, "handler {word} t{table} ");
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
        match word.as_str() {
            "request" => is_response = false,
            "response" => is_response = true,
            "input" => {
                let direction = if is_response { &mut chain.response } else { &mut chain.request };
                direction.inputs.push(parse_input(&mut line)?);
            }
            "table" => chain.tables.push(parse_table(&mut line)?),
            "key" | "column" | "row" => {
                let table = chain.tables.last_mut().ok_or(not_here)?;
                parse_in_table(&mut line, &word, table)?;
            }
            "match" => {
                let table = TableId(line.id("t")?);
                line.keyword("by")?;
                let (by, descending) = (line.id("c")?, line.eat_word("desc"));
                let spec = MatchSpec { by, descending, parts: Vec::new() };
                chain.matches.push(MatchDecl { table, spec });
            }
            "part" => {
                let decl = chain.matches.last_mut().ok_or(not_here)?;
                decl.spec.parts.push(parse_match_part(&mut line)?);
            }
            "var" => chain.vars.push(parse_var(&mut line)?),
            "sink" => chain.sinks.push(parse_sink(&mut line)?),
            "field" => {
                let column = SinkColumn { name: line.text()?, ty: parse_type(&mut line)? };
                chain.sinks.last_mut().ok_or(not_here)?.columns.push(column);
            }
            "call" => {
                let (owner, name, ty) = (line.text()?, line.text()?, parse_type(&mut line)?);
                line.keyword("word")?;
                chain.call.push(CallCell { owner, name, ty, word: line.number()? });
            }
            "answer" => chain.answers.push(AnswerName { name: line.text()? }),
            "reply" => {
                let path = parse_path(&mut line)?;
                chain.replies.push(ReplyField { path, ty: parse_type(&mut line)? });
            }
            "reshape" => chain.header_changes.push(header_change::parse(&mut line, parse_type)?),
            "stack" => {
                let Some(HeaderChange::Push { stacks, .. }) =
                    chain.header_changes.last_mut().map(|decl| &mut decl.what)
                else {
                    return Err(not_here);
                };
                stacks.push(header_change::parse_stack(&mut line)?);
            }
            "native" => chain.natives.push(parse_native(&mut line)?),
            "element" => chain.elements.push(parse_element(&mut line)?),
            "frames" => {
                let (is_ip, has_labels) = (line.eat_word("ip"), line.eat_word("labels"));
                chain.frames = Some(Frames { is_ip, has_labels, ..Frames::default() });
            }
            "check" => {
                let (protocol, what) = (line.text()?, line.text()?);
                line.keyword("line")?;
                let check = Check { protocol, what, line: line.number()? };
                chain.frames.as_mut().ok_or(not_here)?.checks.push(check);
            }
            "overlaps" => {
                let (version, check): (u8, u32) = (line.number()?, line.number()?);
                let frames = chain.frames.as_mut().ok_or(not_here)?;
                frames.overlaps[overlaps_at(version)] = Some(check);
            }
            "store" => {
                let (at, store) = parse_store(&mut line)?;
                let frames = chain.frames.as_mut().ok_or(not_here)?;
                frames.field_writes.resize(frames.field_writes.len().max(at + 1), None);
                frames.field_writes[at] = Some(store);
            }
            which @ ("inherited" | "usual") => {
                let at: u16 = line.id("in")?;
                let frames = chain.frames.as_mut().ok_or(not_here)?;
                let all = if which == "usual" { &mut frames.usual } else { &mut frames.inherited };
                all.insert(at);
            }
            "carried" => {
                let mut carried = Carried { packet: line.id("in")?, ..Carried::default() };
                if line.eat_word("tunnel") {
                    carried.tunnel = Some(line.id("in")?);
                }
                while line.eat_word("gives") {
                    let at: u16 = line.id("in")?;
                    carried.inherited.insert(at);
                }
                let frames = chain.frames.as_mut().filter(|frames| frames.carried.len() < CARRIED_MAX);
                frames.ok_or(not_here)?.carried.push(carried);
            }
            "parser" => {
                line.keyword("function")?;
                let parser = parse_function(&mut line, &mut lines)?;
                chain.frames.as_mut().ok_or(not_here)?.parser = parser;
                continue;
            }
            "handler" => {
                let element = chain.elements.last_mut().ok_or(not_here)?;
                // The function takes the rest of the line and the lines behind it.
                parse_handler(line, &mut lines, &mut element.handlers)?;
                continue;
            }
            _ => return Err(not_here),
        }
        line.expect_end()?;
    }
    Ok(chain)
}

/// Parses a path: all quoted names that follow.
fn parse_path(line: &mut SourceLine<'_>) -> Result<Vec<String>, ParseError> {
    let mut path = Vec::new();
    while line.is_text() {
        path.push(line.text()?);
    }
    Ok(path)
}

/// Parses a type of the language.
fn parse_type(line: &mut SourceLine<'_>) -> Result<Type, ParseError> {
    const EXPECTED: &str = "a type of the language";
    if line.eat_word("TEXT") {
        return parse_bound(line).map(Type::Text);
    }
    if line.eat_word("BYTES") {
        return parse_bound(line).map(Type::Bytes);
    }
    let bits = |of: &str| of.parse().ok().filter(|bits| (1..=64).contains(bits));
    let integer = match line.peek_word().split_at_checked(1) {
        Some(("I", n)) => bits(n).map(Type::Int),
        Some(("U", n)) => bits(n).map(Type::Uint),
        _ => None,
    };
    match integer {
        Some(ty) => line.word(EXPECTED).map(|_| ty),
        None => line.one_of(TYPES, EXPECTED),
    }
}

/// Parses a bound in parentheses; None if there is none.
fn parse_bound(line: &mut SourceLine<'_>) -> Result<Option<u32>, ParseError> {
    if !line.eat('(') {
        return Ok(None);
    }
    let bound = line.number()?;
    line.expect(')')?;
    Ok(Some(bound))
}

/// Parses a literal.
fn parse_value(line: &mut SourceLine<'_>) -> Result<Value, ParseError> {
    if line.is_text() {
        return line.bytes().map(Value::Bytes);
    }
    for (word, value) in [("null", Value::Null), ("true", Value::Bool(true)), ("false", Value::Bool(false))] {
        if line.eat_word(word) {
            return Ok(value);
        }
    }
    match line.eat_word("float") {
        true => line.float().map(Value::Float),
        false => line.number().map(Value::Int),
    }
}

/// Parses an input: its name, type and location.
fn parse_input(line: &mut SourceLine<'_>) -> Result<Input, ParseError> {
    let (name, ty) = (line.text()?, parse_type(line)?);
    let nullable = line.eat_word("nullable");
    let error = line.error("where the input is: `body`, `header`, `meta`, ...");
    let place = match line.word("a place")?.as_str() {
        "body" => InputLocation::Body(parse_path(line)?),
        "entry" => {
            let path = parse_path(line)?;
            let key = match line.word("`number` or `key`")?.as_str() {
                "number" => EntryKey::Number(line.number()?),
                _ => EntryKey::Text(line.text()?),
            };
            InputLocation::Entry(path, key)
        }
        "present" => InputLocation::Present(parse_path(line)?),
        "list" => {
            let path = parse_path(line)?;
            line.keyword("max")?;
            let (elements_max, mut members) = (line.number()?, Vec::new());
            while line.eat_word("of") {
                members.push(parse_path(line)?);
            }
            InputLocation::List(ListLocation { path, members, elements_max })
        }
        "header" => InputLocation::Header(line.text()?),
        "trailer" => InputLocation::Trailer(line.text()?),
        "meta" => InputLocation::Meta(line.one_of(METAS, "what the engine knows")?),
        "key" => InputLocation::Key(line.number()?),
        "frame" => InputLocation::Frame(parse_field(line)?),
        "layer" => InputLocation::Layer(parse_field(line)?.layer),
        _ => return Err(error),
    };
    Ok(Input { name, ty, nullable, place, written: line.eat_word("written") })
}

/// Parses a reference to a field, or to a layer if no field is named.
fn parse_field(line: &mut SourceLine<'_>) -> Result<FieldRef, ParseError> {
    let level = line.number()?;
    let (mut protocols, mut fields) = (Vec::new(), Vec::new());
    while line.peek_word().starts_with('p') {
        protocols.push(ProtocolId(line.id("p")?));
        if line.peek_word().starts_with('f') {
            fields.push(FieldId(line.id("f")?));
        }
    }
    let is_layer = fields.is_empty();
    let last = line.eat_word("last");
    Ok(FieldRef { layer: LayerRef { level, protocols }, fields: (!is_layer).then_some(fields), last })
}

/// Parses how a changed input is written to the frame; returns the input's index, too.
fn parse_store(line: &mut SourceLine<'_>) -> Result<(usize, FieldWrite), ParseError> {
    let input: u16 = line.id("in")?;
    let at = match line.eat_word("bytes") {
        true => FieldLayout::Bytes,
        false => {
            line.keyword("bits")?;
            let (bytes, shift, bits) = (line.number()?, line.number()?, line.number()?);
            FieldLayout::Bits { bytes, shift, bits, endian: line.one_of(Endian::NAMES, "`big` or `little`")? }
        }
    };
    let mut sums = Vec::new();
    while line.eat_word("sum") {
        let input = line.id("in")?;
        let (pseudo, zero_is_none) = (line.eat_word("pseudo"), line.eat_word("zero_is_none"));
        let mut covers = InputSet::EMPTY;
        while line.eat_word("covers") {
            covers.insert(line.id::<u16>("in")?);
        }
        sums.push(Sum { input, pseudo, zero_is_none, covers });
    }
    Ok((usize::from(input), FieldWrite { at, sums }))
}

/// Parses the declaration line of a table. Its columns and rows follow on their own lines.
fn parse_table(line: &mut SourceLine<'_>) -> Result<TableDecl, ParseError> {
    let (owner, name) = (line.text()?, line.text()?);
    line.keyword("as")?;
    let realisation = line.one_of(REALISATIONS, "how the table is realised")?;
    line.keyword("max")?;
    let max_rows = line.number()?;
    line.keyword("evict")?;
    let evict = line.one_of(EVICTS, "`reject`, `oldest` or `lru`")?;
    let interval = |line: &mut SourceLine<'_>, word: &str| -> Result<Option<Interval>, ParseError> {
        if line.eat_word(word) { Ok(Some(Interval(line.number()?))) } else { Ok(None) }
    };
    let ttl = interval(line, "ttl")?;
    let ttl_on_access = line.eat_word("on_access");
    let ttl_on_insert = interval(line, "ttl_on_insert")?;
    let shared = line.eat_word("shared");
    let stripes = if line.eat_word("stripes") { Some(line.number()?) } else { None };
    let (key, columns) = (Vec::new(), Vec::new());
    let spec =
        TableSpec { name, key, columns, max_rows, evict, ttl, ttl_on_access, ttl_on_insert, shared, stripes };
    Ok(TableDecl { owner, spec, realisation, rows: Vec::new() })
}

/// Parses a row or a column (by `word`) and adds it to the table.
fn parse_in_table(line: &mut SourceLine<'_>, word: &str, table: &mut TableDecl) -> Result<(), ParseError> {
    if word == "row" {
        let mut row = Vec::new();
        while !line.is_at_end() {
            row.push(parse_value(line)?);
            if !line.eat(',') {
                break;
            }
        }
        table.rows.push(row);
        return Ok(());
    }
    let (name, ty) = (line.text()?, parse_type(line)?);
    let nullable = line.eat_word("nullable");
    line.expect('=')?;
    let column = ColumnSpec { name, ty, nullable, default: parse_value(line)? };
    match word {
        "key" => table.spec.key.push(column),
        _ => table.spec.columns.push(column),
    }
    Ok(())
}

/// Parses one part of a declared match.
fn parse_match_part(line: &mut SourceLine<'_>) -> Result<MatchPart, ParseError> {
    let ty = parse_type(line)?;
    let nullable = line.eat_word("nullable");
    let mut column = |word: &str| line.eat_word(word).then(|| line.id("c")).transpose();
    let test = match (column("equal")?, column("within")?, column("mask")?) {
        (Some(column), ..) => Test::Equal(column),
        (_, Some(column), _) => Test::Within(column),
        (.., Some(mask)) => {
            // A missing column gets a number that the verifier refuses.
            Test::Masked { mask, bits: column("bits")?.unwrap_or(u16::MAX) }
        }
        _ => Test::Range { low: column("low")?, high: column("high")? },
    };
    let wildcard = column("wild")?;
    Ok(MatchPart { test, wildcard, ty, nullable })
}

/// Parses a variable with its start value and merge operation.
fn parse_var(line: &mut SourceLine<'_>) -> Result<VarDecl, ParseError> {
    let (owner, name, ty) = (line.text()?, line.text()?, parse_type(line)?);
    line.keyword("word")?;
    let word = line.number()?;
    line.keyword("start")?;
    let start = parse_value(line)?;
    let merge = match line.eat_word("merge") {
        true => Some(line.one_of(MERGES, "`sum`, `max` or `min`")?),
        false => None,
    };
    Ok(VarDecl { owner, name, ty, word, start, merge })
}

/// Parses the declaration line of a sink. Its columns follow on their own lines.
fn parse_sink(line: &mut SourceLine<'_>) -> Result<SinkDecl, ParseError> {
    let (owner, name) = (line.text()?, line.text()?);
    let error = line.error("`stdout`, `file` or `metric`");
    let target = match line.word("a target")?.as_str() {
        "stdout" => SinkTarget::Stdout,
        "metric" => SinkTarget::Metrics,
        "file" => SinkTarget::File(line.text()?),
        word @ ("put" | "delete") => {
            SinkTarget::Table { owner: line.text()?, table: line.text()?, deletes: word == "delete" }
        }
        _ => return Err(error),
    };
    let format = if line.eat_word("as_text") { SinkFormat::Text } else { SinkFormat::Json };
    Ok(SinkDecl { owner, name, columns: Vec::new(), target, format })
}

/// Parses a native function with its constants, options and cost.
fn parse_native(line: &mut SourceLine<'_>) -> Result<NativeDecl, ParseError> {
    let name = line.text()?;
    let unknown = line.error("the name of a native function");
    let native = line.word("the name of a native function")?.parse().map_err(|_| unknown)?;
    line.keyword("site")?;
    let site = line.number()?;
    line.keyword("cost")?;
    let cost = NativeCost { base_ns: line.number()?, ns_per_kib: line.number()? };
    let (mut constants, mut options) = (Vec::new(), Vec::new());
    while line.eat_word("constant") {
        constants.push(line.text()?);
    }
    while line.eat_word("option") {
        options.push((line.text()?, parse_value(line)?));
    }
    Ok(NativeDecl { name, native, constants, options, site, cost })
}

/// Parses the declaration line of an element. Its handlers follow on their own lines.
fn parse_element(line: &mut SourceLine<'_>) -> Result<Element, ParseError> {
    let (name, element) = (line.text()?, line.text()?);
    let (mandatory, fail_open) = (line.eat_word("mandatory"), line.eat_word("fail_open"));
    Ok(Element { name, element, handlers: Handlers::default(), mandatory, fail_open })
}

/// Parses a handler with its function, and adds it to the handlers of an element.
fn parse_handler(
    mut line: SourceLine<'_>,
    lines: &mut SourceLines<'_>,
    handlers: &mut Handlers,
) -> Result<(), ParseError> {
    let error = line.error("`open`, `request`, `response`, `close`, `every`, `departed` or `evicted`");
    let which = line.word("a handler")?;
    let interval = if which == "every" { Some(Interval(line.number()?)) } else { None };
    let why = match which.as_str() {
        "departed" => Some(RemovalReason::Expired),
        "evicted" => Some(RemovalReason::Evicted),
        _ => None,
    };
    let removal = why.map(|why| Ok(RowRemoval { table: TableId(line.id("t")?), why })).transpose()?;
    line.keyword("function")?;
    let function = parse_function(&mut line, lines)?;
    if let Some(removal) = removal {
        handlers.timeouts.push((removal, function));
        return Ok(());
    }
    let place = match (which.as_str(), interval) {
        ("open", _) => &mut handlers.open,
        ("request", _) => &mut handlers.request,
        ("response", _) => &mut handlers.response,
        ("close", _) => &mut handlers.close,
        (_, Some(interval)) => {
            handlers.every.push((interval, function));
            return Ok(());
        }
        _ => return Err(error),
    };
    *place = Some(function);
    Ok(())
}
