//! Message fields in the arguments of a stage.

use weft_core::methods::MethodSet;
use weft_core::schema::{Field, FieldKind, Message, Presence, Schema};

use super::Program;
use super::index::{FieldUse, SymbolId, SymbolKind};
use crate::ast::{self, ChainOn, Item};
use crate::hir::Direction;

/// The field of the first `n` segments of a path: the message and its field.
pub fn field_at<'p>(program: &'p Program, found: &FieldUse, n: usize) -> Option<(&'p Message, &'p Field)> {
    let names: Vec<&str> = found.path.segments.iter().take(n).map(|segment| segment.name.as_str()).collect();
    let (direction, names) = split(program, found.column, &names);
    let messages = messages_of(program, found.chain, direction);
    messages.into_iter().find_map(|message| walk(&program.analysis.program.schema, message, names))
}

/// Returns the fields that can follow a path, in all messages of the chain, without duplicates.
pub(super) fn following<'p>(
    program: &'p Program,
    chain: SymbolId,
    column: Option<SymbolId>,
    names: &[&str],
) -> Vec<(&'p Message, &'p Field)> {
    let schema = &program.analysis.program.schema;
    let (direction, names) = split(program, column, names);
    let mut found: Vec<(&Message, &Field)> = Vec::new();
    for message in messages_of(program, chain, direction) {
        let at = match names {
            [] => Some(message),
            names => walk(schema, message, names).and_then(|(_, field)| match field.kind {
                FieldKind::Message(inner) => Some(inner),
                _ => None,
            }),
        };
        let Some(message) = at.and_then(|at| schema.messages.get(at)) else { continue };
        for field in &message.fields {
            if !found.iter().any(|(_, known)| known.name == field.name) {
                found.push((message, field));
            }
        }
    }
    found
}

/// Formats a field as a `.proto` file declares it: `optional string user = 1`.
pub(super) fn declared(schema: &Schema, field: &Field) -> String {
    let ty = match field.kind {
        FieldKind::Bool => "bool",
        FieldKind::Int32 => "int32",
        FieldKind::Int64 => "int64",
        FieldKind::Uint32 => "uint32",
        FieldKind::Uint64 => "uint64",
        FieldKind::Sint32 => "sint32",
        FieldKind::Sint64 => "sint64",
        FieldKind::Fixed32 => "fixed32",
        FieldKind::Fixed64 => "fixed64",
        FieldKind::Sfixed32 => "sfixed32",
        FieldKind::Sfixed64 => "sfixed64",
        FieldKind::Float => "float",
        FieldKind::Double => "double",
        FieldKind::String => "string",
        FieldKind::Bytes => "bytes",
        FieldKind::Enum(at) => schema.enums.get(at).map_or("enum", |found| &found.name),
        FieldKind::Message(at) => schema.messages.get(at).map_or("message", |found| &found.name),
    };
    let presence = match (field.presence, field.kind) {
        (Presence::Repeated, _) => "repeated ",
        (Presence::Explicit, FieldKind::Message(_)) | (Presence::Implicit, _) => "",
        (Presence::Explicit, _) => "optional ",
    };
    format!("{presence}{ty} {} = {}", field.name, field.number)
}

/// The direction of a path, and the path without `req` or `resp`.
fn split<'a, 'n>(
    program: &Program,
    column: Option<SymbolId>,
    names: &'a [&'n str],
) -> (Direction, &'a [&'n str]) {
    match names {
        ["req", rest @ ..] => (Direction::Request, rest),
        ["resp", rest @ ..] => (Direction::Response, rest),
        names => {
            let is_response = column.is_some_and(|column| {
                program.index.symbol(column).kind == SymbolKind::Column(Direction::Response)
            });
            (if is_response { Direction::Response } else { Direction::Request }, names)
        }
    }
}

/// The messages of a chain's methods in one direction, as indices into the schema.
fn messages_of(program: &Program, chain: SymbolId, direction: Direction) -> Vec<usize> {
    let declared = program.index.symbol(chain).span;
    let clause = program.analysis.program.items.iter().find_map(|item| match item {
        Item::Chain(chain) if chain.name.span == declared => match &chain.on {
            ChainOn::Edge { method, .. } => method.as_ref(),
            ChainOn::Port { .. } => None,
        },
        _ => None,
    });
    let set = clause.map_or_else(MethodSet::all, ast::MethodClause::methods);
    let methods = program.analysis.program.schema.methods();
    let methods = methods.filter(|(path, _)| set.contains(path.as_bytes()));
    let mut messages: Vec<usize> = methods
        .map(|(_, method)| match direction {
            Direction::Request => method.input,
            Direction::Response => method.output,
        })
        .collect();
    messages.sort_unstable();
    messages.dedup();
    messages
}

/// Follows a path of field names from a message. Returns the last field and its message.
fn walk<'s>(schema: &'s Schema, message: usize, names: &[&str]) -> Option<(&'s Message, &'s Field)> {
    let message = schema.messages.get(message)?;
    let (first, rest) = names.split_first()?;
    let field = message.field(first)?;
    match (rest, field.kind) {
        ([], _) => Some((message, field)),
        (rest, FieldKind::Message(inner)) => walk(schema, inner, rest),
        _ => None,
    }
}
