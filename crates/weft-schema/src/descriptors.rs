//! Reads descriptor sets: `FileDescriptorSet` of `google/protobuf/descriptor.proto`, by field number.

use crate::declared::{
    Edition, Enum, Features, Field, FieldPresence, File, Import, ImportKind, Label, Message, Method, Name,
    Service, Type,
};
use crate::{BYTES_MAX, FILES_MAX, Fault, NAME_BYTES_MAX, NESTING_MAX};
use weft_core::schema::FieldKind;

/// The files of a descriptor set, by name.
pub(crate) fn read(bytes: &[u8]) -> Result<Vec<(String, File)>, Fault> {
    if bytes.len() > BYTES_MAX {
        return Err(Fault::new(format!("it exceeds the limit of {BYTES_MAX} bytes")));
    }
    let mut files = Vec::new();
    for part in Parts::of(bytes) {
        if let (1, Value::Bytes(file)) = part? {
            if files.len() == FILES_MAX {
                return Err(Fault::new(format!("it exceeds the limit of {FILES_MAX} files")));
            }
            files.push(self::file(file)?);
        }
    }
    if files.is_empty() {
        return Err(Fault::new(format!("it is not a descriptor set, or has no files; {HOW}")));
    }
    Ok(files)
}

const HOW: &str = "`protoc --include_imports --descriptor_set_out=FILE` writes one";

/// Returns the fault for bytes that are no valid descriptor set.
fn damaged() -> Fault {
    Fault::new(format!("it is damaged, or no descriptor set; {HOW}"))
}

/// The value of a field on the wire.
enum Value<'b> {
    Varint(u64),
    Bytes(&'b [u8]),
    /// Another wire type: no field that this module reads has one.
    Other,
}

/// Iterates over a message's fields on the wire, by number. Stops at the first fault.
struct Parts<'b> {
    rest: &'b [u8],
}

impl<'b> Parts<'b> {
    fn of(bytes: &'b [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Reads one field: its number and value. None if the bytes are damaged.
    fn part(&mut self) -> Option<(u64, Value<'b>)> {
        let tag = self.varint()?;
        let value = match tag & 7 {
            0 => Value::Varint(self.varint()?),
            1 => self.bytes(8).map(|_| Value::Other)?,
            2 => {
                let length = self.varint()?;
                Value::Bytes(self.bytes(usize::try_from(length).ok()?)?)
            }
            5 => self.bytes(4).map(|_| Value::Other)?,
            // Descriptors have no groups.
            _ => return None,
        };
        (tag >= 8).then_some((tag >> 3, value))
    }

    /// Reads a varint. None if it has no end within ten bytes.
    fn varint(&mut self) -> Option<u64> {
        let mut value = 0;
        for (i, &byte) in self.rest.iter().take(10).enumerate() {
            value |= u64::from(byte & 0x7f) << (7 * i);
            if byte < 0x80 {
                self.rest = &self.rest[i + 1..];
                return Some(value);
            }
        }
        None
    }

    /// Consumes this number of bytes. None if fewer are left.
    fn bytes(&mut self, length: usize) -> Option<&'b [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        Some(bytes)
    }
}

impl<'b> Iterator for Parts<'b> {
    type Item = Result<(u64, Value<'b>), Fault>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let part = self.part().ok_or_else(damaged);
        if part.is_err() {
            self.rest = &[];
        }
        Some(part)
    }
}

/// Reads a name of at most [`NAME_BYTES_MAX`] bytes.
fn text(bytes: &[u8]) -> Result<String, Fault> {
    if bytes.len() > NAME_BYTES_MAX {
        return Err(Fault::new(format!("a name in it exceeds the limit of {NAME_BYTES_MAX} bytes")));
    }
    String::from_utf8(bytes.to_vec()).map_err(|_| damaged())
}

fn name_of(bytes: &[u8]) -> Result<Name, Fault> {
    Ok(Name { text: text(bytes)?, span: 0..0 })
}

/// Reads a `FileDescriptorProto`. Returns the file's name and declarations.
fn file(bytes: &[u8]) -> Result<(String, File), Fault> {
    let (mut name, mut syntax, mut edition) = (String::new(), String::new(), 0);
    let (mut public, mut lax) = (Vec::new(), Vec::new());
    let mut file = File::default();
    let import = |file: &mut File, path: &[u8]| -> Result<(), Fault> {
        let path = text(path)?;
        file.imports.push(Import { path, kind: ImportKind::Plain, span: 0..0 });
        Ok(())
    };
    for part in Parts::of(bytes) {
        match part? {
            (1, Value::Bytes(bytes)) => name = text(bytes)?,
            (2, Value::Bytes(bytes)) => file.package = text(bytes)?,
            (3, Value::Bytes(bytes)) => import(&mut file, bytes)?,
            (4, Value::Bytes(bytes)) => file.messages.push(message(bytes, 0)?),
            (5, Value::Bytes(bytes)) => file.enums.push(enumeration(bytes)?),
            (6, Value::Bytes(bytes)) => file.services.push(service(bytes)?),
            (8, Value::Bytes(bytes)) => file.features = options(bytes, 50)?.within(file.features),
            (10, Value::Varint(index)) => public.push(index),
            (11, Value::Varint(index)) => lax.push(index),
            (12, Value::Bytes(bytes)) => syntax = text(bytes)?,
            (14, Value::Varint(number)) => edition = number,
            _ => {}
        }
    }
    for (indexes, kind) in [(public, ImportKind::Public), (lax, ImportKind::Lax)] {
        for index in indexes {
            let import = usize::try_from(index).ok().and_then(|index| file.imports.get_mut(index));
            import.ok_or_else(damaged)?.kind = kind;
        }
    }
    file.edition = match (syntax.as_str(), edition) {
        ("" | "proto2", 0 | 998) => Edition::Proto2,
        ("proto3", _) | ("", 999) => Edition::Proto3,
        // 2023 and 2024.
        ("" | "editions", 1000 | 1001) => Edition::Editions,
        _ => {
            let why = format!("`{name}` has an edition that is not supported: 2023 and 2024 are");
            return Err(Fault::new(why));
        }
    };
    Ok((name, file))
}

/// Reads a `DescriptorProto` and the messages in it. `depth` is the number of enclosing messages.
fn message(bytes: &[u8], depth: usize) -> Result<Message, Fault> {
    if depth >= NESTING_MAX {
        return Err(Fault::new(format!("messages in it nest deeper than {NESTING_MAX}")));
    }
    let mut message = Message::default();
    for part in Parts::of(bytes) {
        match part? {
            (1, Value::Bytes(bytes)) => message.name = text(bytes)?,
            (2, Value::Bytes(bytes)) => message.fields.push(field(bytes)?),
            (3, Value::Bytes(bytes)) => message.messages.push(self::message(bytes, depth + 1)?),
            (4, Value::Bytes(bytes)) => message.enums.push(enumeration(bytes)?),
            (7, Value::Bytes(bytes)) => {
                message.features = options(bytes, 12)?.within(message.features);
                for part in Parts::of(bytes) {
                    if let (7, Value::Varint(is_map_entry)) = part? {
                        message.is_map_entry = is_map_entry != 0;
                    }
                }
            }
            (8, Value::Bytes(bytes)) => {
                let mut features = Features::default();
                for part in Parts::of(bytes) {
                    if let (2, Value::Bytes(bytes)) = part? {
                        features = options(bytes, 1)?.within(features);
                    }
                }
                message.oneofs.push(features);
            }
            _ => {}
        }
    }
    Ok(message)
}

/// Reads a `FieldDescriptorProto`.
fn field(bytes: &[u8]) -> Result<Field, Fault> {
    let (mut name, mut number, mut label, mut ty, mut type_name) = (String::new(), 0, 1, 0, String::new());
    let (mut features, mut oneof, mut is_proto3_optional) = (Features::default(), None, false);
    for part in Parts::of(bytes) {
        match part? {
            (1, Value::Bytes(bytes)) => name = text(bytes)?,
            (3, Value::Varint(value)) => number = value,
            (4, Value::Varint(value)) => label = value,
            (5, Value::Varint(value)) => ty = value,
            (6, Value::Bytes(bytes)) => type_name = text(bytes)?,
            (8, Value::Bytes(bytes)) => features = options(bytes, 21)?.within(features),
            (9, Value::Varint(value)) => oneof = Some(u32::try_from(value).map_err(|_| damaged())?),
            (17, Value::Varint(value)) => is_proto3_optional = value != 0,
            _ => {}
        }
    }
    let number =
        u32::try_from(number).ok().filter(|number| (1..1 << 29).contains(number)).ok_or_else(damaged)?;
    let named = Name { text: type_name, span: 0..0 };
    Ok(Field {
        name,
        span: 0..0,
        number,
        label: match label {
            3 => Label::Repeated,
            2 => Label::Singular,
            _ if is_proto3_optional => Label::Singular,
            _ => Label::None,
        },
        ty: match (ty, SCALARS.get(ty as usize)) {
            (10, _) => Type::Group(named),
            (0 | 11 | 14, _) if !named.text.is_empty() => Type::Named(named),
            (_, Some(Some(kind))) => Type::Scalar(*kind),
            _ => return Err(damaged()),
        },
        features,
        // The synthetic oneof of proto3's `optional` has one member, so the field displaces no other.
        oneof: oneof.filter(|_| !is_proto3_optional),
    })
}

/// Indexed by `FieldDescriptorProto.Type`.
const SCALARS: [Option<FieldKind>; 19] = [
    None,
    Some(FieldKind::Double),
    Some(FieldKind::Float),
    Some(FieldKind::Int64),
    Some(FieldKind::Uint64),
    Some(FieldKind::Int32),
    Some(FieldKind::Fixed64),
    Some(FieldKind::Fixed32),
    Some(FieldKind::Bool),
    Some(FieldKind::String),
    None,
    None,
    Some(FieldKind::Bytes),
    Some(FieldKind::Uint32),
    None,
    Some(FieldKind::Sfixed32),
    Some(FieldKind::Sfixed64),
    Some(FieldKind::Sint32),
    Some(FieldKind::Sint64),
];

/// Reads an `EnumDescriptorProto`.
fn enumeration(bytes: &[u8]) -> Result<Enum, Fault> {
    let mut declared = Enum::default();
    for part in Parts::of(bytes) {
        match part? {
            (1, Value::Bytes(bytes)) => declared.name = text(bytes)?,
            (2, Value::Bytes(bytes)) => {
                let (mut name, mut number) = (String::new(), 0);
                for part in Parts::of(bytes) {
                    match part? {
                        (1, Value::Bytes(bytes)) => name = text(bytes)?,
                        (2, Value::Varint(value)) => number = value as i32,
                        _ => {}
                    }
                }
                declared.values.push((name, number));
            }
            (3, Value::Bytes(bytes)) => declared.features = options(bytes, 7)?.within(declared.features),
            _ => {}
        }
    }
    Ok(declared)
}

/// Reads a `ServiceDescriptorProto`.
fn service(bytes: &[u8]) -> Result<Service, Fault> {
    let mut service = Service::default();
    for part in Parts::of(bytes) {
        match part? {
            (1, Value::Bytes(bytes)) => service.name = text(bytes)?,
            (2, Value::Bytes(bytes)) => service.methods.push(method(bytes)?),
            _ => {}
        }
    }
    Ok(service)
}

/// Reads a `MethodDescriptorProto`.
fn method(bytes: &[u8]) -> Result<Method, Fault> {
    let (mut name, mut input, mut output) = (String::new(), name_of(&[])?, name_of(&[])?);
    let (mut client_streaming, mut server_streaming) = (false, false);
    for part in Parts::of(bytes) {
        match part? {
            (1, Value::Bytes(bytes)) => name = text(bytes)?,
            (2, Value::Bytes(bytes)) => input = name_of(bytes)?,
            (3, Value::Bytes(bytes)) => output = name_of(bytes)?,
            (5, Value::Varint(value)) => client_streaming = value != 0,
            (6, Value::Varint(value)) => server_streaming = value != 0,
            _ => {}
        }
    }
    Ok(Method { name, input, output, client_streaming, server_streaming })
}

/// The features that an options message sets. `features_at` is the number of its `features` field.
fn options(bytes: &[u8], features_at: u64) -> Result<Features, Fault> {
    let mut features = Features::default();
    for part in Parts::of(bytes) {
        let (number, value) = part?;
        let Value::Bytes(set) = value else { continue };
        if number != features_at {
            continue;
        }
        for part in Parts::of(set) {
            match part? {
                (1, Value::Varint(1 | 3)) => features.presence = Some(FieldPresence::Explicit),
                (1, Value::Varint(2)) => features.presence = Some(FieldPresence::Implicit),
                (2, Value::Varint(open @ (1 | 2))) => features.enum_is_closed = Some(open == 2),
                (5, Value::Varint(prefixed @ (1 | 2))) => features.is_delimited = Some(prefixed == 2),
                _ => {}
            }
        }
    }
    Ok(features)
}
