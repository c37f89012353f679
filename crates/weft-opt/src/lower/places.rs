//! Registers the locations of values: inputs of both directions, and names of answers and replies.

use weft_core::Type;
use weft_core::list::EntryKey;
use weft_ir::ir::{InputId, NameId};
use weft_ir::program::{AnswerName, ChainProgram, Input, InputLocation, ListLocation, Meta, ReplyField};
use weft_lang::hir::{self, ColumnLocation, Direction};
use weft_lang::types;

/// Returns the input of this place, which is created on first use: elements that use the same place share it.
pub(super) fn input(
    program: &mut ChainProgram,
    direction: Direction,
    place: InputLocation,
    ty: Type,
    nullable: bool,
    written: bool,
) -> InputId {
    let inputs = match direction {
        Direction::Request => &mut program.request.inputs,
        Direction::Response => &mut program.response.inputs,
    };
    if let Some(index) = inputs.iter().position(|input| input.place == place) {
        let known = &mut inputs[index];
        // Each type is at least as wide as the field, so the wider one suits both.
        known.ty = types::common(known.ty, ty).unwrap_or(known.ty);
        known.nullable |= nullable;
        known.written |= written;
        return InputId(index as u16);
    }
    let ty = types::without_length(ty);
    inputs.push(Input { name: name(&place), ty, nullable, place, written });
    InputId(inputs.len() as u16 - 1)
}

/// The name of a header or trailer of an ABORT's answer.
pub(super) fn answer(program: &mut ChainProgram, name: &str) -> NameId {
    NameId(index_of(&mut program.answers, AnswerName { name: name.to_owned() }))
}

/// The field of a REPLY's message.
pub(super) fn reply(program: &mut ChainProgram, path: &[String], ty: Type) -> NameId {
    NameId(index_of(&mut program.replies, ReplyField { path: path.to_vec(), ty }))
}

/// Returns the index of an item in the list, and appends it if it is new.
pub(super) fn index_of<T: PartialEq>(list: &mut Vec<T>, item: T) -> u16 {
    let index = list.iter().position(|known| *known == item).unwrap_or_else(|| {
        list.push(item);
        list.len() - 1
    });
    index as u16
}

/// Returns the input location of a column.
pub(super) fn bound(place: &ColumnLocation) -> InputLocation {
    match place {
        ColumnLocation::Body(path) => InputLocation::Body(path.clone()),
        ColumnLocation::Entry(path, key) => InputLocation::Entry(path.clone(), key.clone()),
        ColumnLocation::Present(path) => InputLocation::Present(path.clone()),
        ColumnLocation::List(list) => InputLocation::List(ListLocation {
            path: list.path.clone(),
            members: list.members.clone(),
            elements_max: list.elements_max,
        }),
        ColumnLocation::Header(name) => InputLocation::Header(name.clone()),
        ColumnLocation::Meta(of) => meta(*of),
        ColumnLocation::Frame(field) => InputLocation::Frame(field.clone()),
        ColumnLocation::Computed(_) => unreachable!("a computed place is read through its parts"),
    }
}

/// Returns the place of a value of the engine, by its name in the program. The payload is the message itself: a place
/// that all fields share, so a write of a field counts as a change of it.
pub(super) fn meta(meta: hir::Meta) -> InputLocation {
    InputLocation::Meta(match meta {
        hir::Meta::Payload => return InputLocation::Body(Vec::new()),
        hir::Meta::Method => Meta::Method,
        hir::Meta::Peer => Meta::Peer,
        hir::Meta::Size => Meta::Size,
        hir::Meta::Index => Meta::Index,
        hir::Meta::CallId => Meta::CallId,
        hir::Meta::Version => Meta::Version,
        hir::Meta::Status => Meta::Status,
        hir::Meta::Elapsed => Meta::Elapsed,
        hir::Meta::Upstream => Meta::Upstream,
        hir::Meta::EndedBy => Meta::EndedBy,
        hir::Meta::Port => Meta::Port,
        hir::Meta::PacketSize => Meta::PacketSize,
        hir::Meta::Flow => Meta::Flow,
        hir::Meta::IsIcmpError => Meta::IsIcmpError,
        hir::Meta::IsIntact => Meta::IsIntact,
        hir::Meta::TunnelDepth => Meta::TunnelDepth,
        hir::Meta::Tag => Meta::Tag,
        hir::Meta::Label => Meta::Label,
        hir::Meta::Path => Meta::Path,
    })
}

/// Formats a location for messages.
fn name(place: &InputLocation) -> String {
    match place {
        InputLocation::Body(path) if path.is_empty() => "payload".to_owned(),
        InputLocation::Body(path) => path.join("."),
        InputLocation::Entry(path, EntryKey::Text(key)) => format!("{}[{key}]", path.join(".")),
        InputLocation::Entry(path, EntryKey::Number(key)) => format!("{}[{}]", path.join("."), *key as i64),
        InputLocation::Present(path) => format!("present[{}]", path.join(".")),
        InputLocation::List(list) => list.path.join("."),
        InputLocation::Header(name) => format!("header[{name}]"),
        InputLocation::Trailer(name) => format!("trailer[{name}]"),
        InputLocation::Key(nth) => format!("key {nth}"),
        // The caller knows the protocols, and replaces this name.
        InputLocation::Frame(_) | InputLocation::Layer(_) => "frame".to_owned(),
        InputLocation::Meta(meta) if meta.user_meta_index().is_some() => format!("meta.{}", meta.name()),
        InputLocation::Meta(meta) => meta.name().to_owned(),
    }
}
