//! The declarations of one `.proto` file, before names are resolved. The parser and the descriptor reader produce them.

use core::ops::Range;
use weft_core::schema::FieldKind;

/// The byte range of a declaration in the file's text; empty for a descriptor set.
pub(crate) type Span = Range<usize>;

/// One file.
#[derive(Debug, Default)]
pub(crate) struct File {
    pub(crate) edition: Edition,
    pub(crate) package: String,
    pub(crate) imports: Vec<Import>,
    pub(crate) features: Features,
    pub(crate) messages: Vec<Message>,
    pub(crate) enums: Vec<Enum>,
    pub(crate) services: Vec<Service>,
}

/// Which rules a file follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Edition {
    #[default]
    Proto2,
    Proto3,
    /// 2023 and later. Editions do not differ in the wire format.
    Editions,
}

#[derive(Debug)]
pub(crate) struct Import {
    pub(crate) path: String,
    pub(crate) kind: ImportKind,
    pub(crate) span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ImportKind {
    Plain,
    /// Files that import this file also see the imported file.
    Public,
    /// `weak` and `option`: the file may be missing.
    Lax,
}

/// The features that one declaration sets. Features that are not set are inherited.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Features {
    pub(crate) presence: Option<FieldPresence>,
    pub(crate) enum_is_closed: Option<bool>,
    pub(crate) is_delimited: Option<bool>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FieldPresence {
    Explicit,
    Implicit,
}

#[derive(Debug, Default)]
pub(crate) struct Message {
    pub(crate) name: String,
    pub(crate) span: Span,
    /// This message holds the entries of a map.
    pub(crate) is_map_entry: bool,
    pub(crate) features: Features,
    pub(crate) fields: Vec<Field>,
    /// The features of each oneof.
    pub(crate) oneofs: Vec<Features>,
    pub(crate) messages: Vec<Self>,
    pub(crate) enums: Vec<Enum>,
}

#[derive(Debug)]
pub(crate) struct Field {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) number: u32,
    pub(crate) label: Label,
    pub(crate) ty: Type,
    pub(crate) features: Features,
    /// Index into the message's oneofs. `None` for proto3's `optional`: its synthetic oneof has no other member.
    pub(crate) oneof: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Label {
    None,
    /// `optional` or `required`: present or not.
    Singular,
    Repeated,
}

#[derive(Debug)]
pub(crate) enum Type {
    Scalar(FieldKind),
    /// A message or an enum. A leading dot marks a fully qualified name.
    Named(Name),
    /// A delimited message, as proto2's groups are.
    Group(Name),
}

#[derive(Debug)]
pub(crate) struct Name {
    pub(crate) text: String,
    pub(crate) span: Span,
}

#[derive(Debug, Default)]
pub(crate) struct Enum {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) features: Features,
    pub(crate) values: Vec<(String, i32)>,
}

#[derive(Debug, Default)]
pub(crate) struct Service {
    pub(crate) name: String,
    pub(crate) span: Span,
    pub(crate) methods: Vec<Method>,
}

#[derive(Debug)]
pub(crate) struct Method {
    pub(crate) name: String,
    pub(crate) input: Name,
    pub(crate) output: Name,
    pub(crate) client_streaming: bool,
    pub(crate) server_streaming: bool,
}

impl Features {
    /// Returns the default features of an edition.
    pub(crate) fn of(edition: Edition) -> Self {
        let presence = match edition {
            Edition::Proto3 => FieldPresence::Implicit,
            Edition::Proto2 | Edition::Editions => FieldPresence::Explicit,
        };
        Self {
            presence: Some(presence),
            enum_is_closed: Some(edition == Edition::Proto2),
            is_delimited: Some(false),
        }
    }

    /// These features; features that are not set come from `outer`.
    pub(crate) fn within(self, outer: Self) -> Self {
        Self {
            presence: self.presence.or(outer.presence),
            enum_is_closed: self.enum_is_closed.or(outer.enum_is_closed),
            is_delimited: self.is_delimited.or(outer.is_delimited),
        }
    }
}

/// The scalar type with this name in a `.proto` file.
pub(crate) fn scalar(name: &str) -> Option<FieldKind> {
    Some(match name {
        "double" => FieldKind::Double,
        "float" => FieldKind::Float,
        "int64" => FieldKind::Int64,
        "uint64" => FieldKind::Uint64,
        "int32" => FieldKind::Int32,
        "fixed64" => FieldKind::Fixed64,
        "fixed32" => FieldKind::Fixed32,
        "bool" => FieldKind::Bool,
        "string" => FieldKind::String,
        "bytes" => FieldKind::Bytes,
        "uint32" => FieldKind::Uint32,
        "sfixed32" => FieldKind::Sfixed32,
        "sfixed64" => FieldKind::Sfixed64,
        "sint32" => FieldKind::Sint32,
        "sint64" => FieldKind::Sint64,
        _ => return None,
    })
}
