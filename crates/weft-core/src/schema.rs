//! Message schemas: the content of an application's `.proto` files, without its syntax.
//!
//! `weft-schema` parses `.proto` text into a [`Schema`]. The front end checks programs against it, and the data plane
//! compiles tag walks from it.

/// Messages, enums and services of one or more `.proto` files, with names resolved.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Schema {
    /// All messages; a [`FieldKind::Message`] holds an index into this list.
    pub messages: Vec<Message>,
    /// All enums; a [`FieldKind::Enum`] holds an index into this list.
    pub enums: Vec<Enum>,
    /// All services.
    pub services: Vec<Service>,
}

/// A message type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Message {
    /// The full name, without a leading dot: `shop.CartRequest`.
    pub name: String,
    /// The fields in the order of the file.
    pub fields: Vec<Field>,
    /// It is a map entry, with the fields `key` and `value`.
    pub is_map_entry: bool,
}

/// A field of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Field {
    /// The name in the file: `object_id`.
    pub name: String,
    /// The field number, 1 to 2^29 - 1.
    pub number: u32,
    /// The type of the value.
    pub kind: FieldKind,
    /// The presence rule.
    pub presence: Presence,
    /// The oneof it belongs to, as an index unique within the message. A proto3 `optional` field has none.
    pub oneof: Option<u32>,
    /// A message between two tags instead of after a length: a proto2 group, or a field of an edition with
    /// `message_encoding = DELIMITED`.
    pub is_delimited: bool,
}

/// The presence rule of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presence {
    /// proto3 without `optional`: absent means the default value, so a column bound to it is never NULL.
    Implicit,
    /// `optional`, a oneof member, a message field, or proto2: absent differs from the default (NULL).
    Explicit,
    /// Any number of times (maps are repeated entries).
    Repeated,
}

/// The type of a field, with protobuf's names for the encodings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are protobuf's own")]
pub enum FieldKind {
    Bool,
    Int32,
    Int64,
    Uint32,
    Uint64,
    Sint32,
    Sint64,
    Fixed32,
    Fixed64,
    Sfixed32,
    Sfixed64,
    Float,
    Double,
    String,
    Bytes,
    /// An index into [`Schema::enums`].
    Enum(usize),
    /// An index into [`Schema::messages`].
    Message(usize),
}

/// An enum type.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Enum {
    /// The full name, without a leading dot.
    pub name: String,
    /// Names and numbers of the values.
    pub values: Vec<(String, i32)>,
    /// A number outside the values is an unknown field, not a value (enums of proto2).
    pub is_closed: bool,
}

/// A service: a set of methods.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Service {
    /// The full name, without a leading dot: `shop.Cart`.
    pub name: String,
    /// The methods in the order of the file.
    pub methods: Vec<Method>,
}

/// A method of a service.
#[derive(Clone, Debug, PartialEq)]
pub struct Method {
    /// The name: `Add`. On the wire the path is `/shop.Cart/Add`.
    pub name: String,
    /// The request type, an index into [`Schema::messages`].
    pub input: usize,
    /// The response type, an index into [`Schema::messages`].
    pub output: usize,
    /// The client sends any number of messages.
    pub client_streaming: bool,
    /// The server sends any number of messages.
    pub server_streaming: bool,
}

impl Schema {
    /// The index of the message with this full name.
    pub fn message(&self, name: &str) -> Option<usize> {
        self.messages.iter().position(|m| m.name == name)
    }

    /// The type of a column bound to a field, and whether it may be absent: a scalar, or the value of a wrapper
    /// (`google.protobuf.StringValue`), which is absent if the wrapper is. None for other messages.
    pub fn scalar(&self, field: &Field) -> Option<(FieldKind, Presence)> {
        match field.kind {
            FieldKind::Message(at) => {
                let value = self.messages[at].wrapped()?;
                let is_repeated = field.presence == Presence::Repeated;
                Some((value.kind, if is_repeated { Presence::Repeated } else { Presence::Explicit }))
            }
            kind => Some((kind, field.presence)),
        }
    }

    /// All methods as (`shop.Cart/Add`, method), in the order of the files.
    pub fn methods(&self) -> impl Iterator<Item = (String, &Method)> {
        self.services
            .iter()
            .flat_map(|s| s.methods.iter().map(move |m| (format!("{}/{}", s.name, m.name), m)))
    }
}

impl Message {
    /// A message with these fields.
    pub fn new(name: &str, fields: Vec<Field>) -> Self {
        Self { name: name.to_owned(), fields, is_map_entry: false }
    }

    /// The value field of a wrapper message, as in `google/protobuf/wrappers.proto`.
    pub fn wrapped(&self) -> Option<&Field> {
        let name = self.name.strip_prefix("google.protobuf.")?.strip_suffix("Value")?;
        let is_wrapper = matches!(
            name,
            "Double" | "Float" | "Int64" | "UInt64" | "Int32" | "UInt32" | "Bool" | "String" | "Bytes"
        );
        let is_value = |field: &Field| {
            let is_scalar = !matches!(field.kind, FieldKind::Message(_) | FieldKind::Enum(_));
            field.name == "value" && is_scalar && field.presence != Presence::Repeated
        };
        let [value] = &self.fields[..] else { return None };
        (is_wrapper && is_value(value)).then_some(value)
    }

    /// The field with this name.
    pub fn field(&self, name: &str) -> Option<&Field> {
        self.fields.iter().find(|f| f.name == name)
    }
}

impl Field {
    /// A field outside any oneof; a message field has a length.
    pub fn new(name: &str, number: u32, kind: FieldKind, presence: Presence) -> Self {
        Self { name: name.to_owned(), number, kind, presence, oneof: None, is_delimited: false }
    }
}

impl Service {
    /// A service whose methods all take and return message types `input` and `output`. Each method is its name, whether
    /// the client streams, and whether the server streams.
    pub fn new(name: &str, input: usize, output: usize, methods: &[(&str, bool, bool)]) -> Self {
        let method = |&(name, client_streaming, server_streaming): &(&str, bool, bool)| Method {
            name: name.to_owned(),
            input,
            output,
            client_streaming,
            server_streaming,
        };
        Self { name: name.to_owned(), methods: methods.iter().map(method).collect() }
    }
}
