//! Compares the tag walk and the rewrite with an independent decoder (prost-reflect).

use proptest::prelude::*;
use prost::Message as _;
use prost_reflect::prost_types::field_descriptor_proto::{Label, Type};
use prost_reflect::prost_types::{
    DescriptorProto, EnumDescriptorProto, EnumValueDescriptorProto, FieldDescriptorProto,
    FileDescriptorProto, OneofDescriptorProto,
};
use prost_reflect::{DescriptorPool, DynamicMessage, MessageDescriptor, Value};
use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::schema::{Enum, Field, FieldKind, Message, Presence, Schema};
use weft_proto::session::grpc::protobuf::{EditValue, Walk, WalkBuilder};

const ROOT: usize = 0;
const INNER: usize = 1;
const LEAF: usize = 2;

/// Messages with all scalar kinds, two levels of oneofs, and large field numbers. With `text` the string fields are
/// strings, otherwise bytes, so that invalid UTF-8 is no error.
fn schema(text: bool) -> Schema {
    let string = if text { FieldKind::String } else { FieldKind::Bytes };
    let plain = |number: u32, kind| (number, kind, Presence::Implicit, None);
    let member = |number: u32, kind, oneof| (number, kind, Presence::Explicit, Some(oneof));
    let explicit = |number: u32, kind| (number, kind, Presence::Explicit, None);
    let message = |name: &str, fields: Vec<(u32, FieldKind, Presence, Option<u32>)>| Message {
        name: name.into(),
        fields: fields
            .into_iter()
            .map(|(number, kind, presence, oneof)| Field {
                name: format!("f{number}"),
                number,
                kind,
                presence,
                oneof,
                is_delimited: false,
            })
            .collect(),
        is_map_entry: false,
    };
    let root = vec![
        plain(1, FieldKind::Bool),
        plain(2, FieldKind::Int32),
        plain(3, FieldKind::Int64),
        plain(4, FieldKind::Uint32),
        plain(5, FieldKind::Uint64),
        plain(6, FieldKind::Sint32),
        plain(7, FieldKind::Sint64),
        plain(8, FieldKind::Fixed32),
        plain(9, FieldKind::Fixed64),
        plain(10, FieldKind::Sfixed32),
        plain(11, FieldKind::Sfixed64),
        plain(12, FieldKind::Float),
        plain(13, FieldKind::Double),
        plain(14, string),
        plain(15, FieldKind::Bytes),
        plain(16, FieldKind::Enum(0)),
        explicit(18, FieldKind::Message(INNER)),
        member(19, string, 0),
        member(20, FieldKind::Int32, 0),
        member(21, FieldKind::Message(INNER), 0),
        member(22, FieldKind::Message(LEAF), 0),
        member(536_870_911, FieldKind::Bool, 0),
    ];
    let inner = vec![
        plain(1, string),
        plain(2, FieldKind::Sint64),
        member(3, FieldKind::Bytes, 0),
        member(4, FieldKind::Message(LEAF), 0),
        member(5, FieldKind::Int32, 0),
        member(300, FieldKind::Message(LEAF), 0),
    ];
    let leaf = vec![
        plain(1, string),
        plain(2, FieldKind::Bool),
        member(3, FieldKind::Int64, 0),
        member(4, FieldKind::Bytes, 0),
    ];
    Schema {
        messages: vec![message("Root", root), message("Inner", inner), message("Leaf", leaf)],
        enums: vec![Enum {
            name: "Color".into(),
            values: vec![("RED".into(), 0), ("BLUE".into(), 7)],
            is_closed: false,
        }],
        services: vec![],
    }
}

fn reference(schema: &Schema) -> MessageDescriptor {
    let field = |f: &Field| {
        let (kind, type_name) = match f.kind {
            FieldKind::Bool => (Type::Bool, None),
            FieldKind::Int32 => (Type::Int32, None),
            FieldKind::Int64 => (Type::Int64, None),
            FieldKind::Uint32 => (Type::Uint32, None),
            FieldKind::Uint64 => (Type::Uint64, None),
            FieldKind::Sint32 => (Type::Sint32, None),
            FieldKind::Sint64 => (Type::Sint64, None),
            FieldKind::Fixed32 => (Type::Fixed32, None),
            FieldKind::Fixed64 => (Type::Fixed64, None),
            FieldKind::Sfixed32 => (Type::Sfixed32, None),
            FieldKind::Sfixed64 => (Type::Sfixed64, None),
            FieldKind::Float => (Type::Float, None),
            FieldKind::Double => (Type::Double, None),
            FieldKind::String => (Type::String, None),
            FieldKind::Bytes => (Type::Bytes, None),
            FieldKind::Enum(i) => (Type::Enum, Some(format!(".{}", schema.enums[i].name))),
            FieldKind::Message(i) => (Type::Message, Some(format!(".{}", schema.messages[i].name))),
        };
        FieldDescriptorProto {
            name: Some(f.name.clone()),
            number: Some(f.number as i32),
            label: Some(Label::Optional as i32),
            r#type: Some(kind as i32),
            type_name,
            oneof_index: f.oneof.map(|o| o as i32),
            ..Default::default()
        }
    };
    let message = |m: &Message| DescriptorProto {
        name: Some(m.name.clone()),
        field: m.fields.iter().map(field).collect(),
        oneof_decl: m
            .fields
            .iter()
            .any(|f| f.oneof.is_some())
            .then(|| OneofDescriptorProto { name: Some("pick".into()), ..Default::default() })
            .into_iter()
            .collect(),
        ..Default::default()
    };
    let color = EnumDescriptorProto {
        name: Some(schema.enums[0].name.clone()),
        value: schema.enums[0]
            .values
            .iter()
            .map(|(name, number)| EnumValueDescriptorProto {
                name: Some(name.clone()),
                number: Some(*number),
                ..Default::default()
            })
            .collect(),
        ..Default::default()
    };
    let file = FileDescriptorProto {
        name: Some("test.proto".into()),
        syntax: Some("proto3".into()),
        message_type: schema.messages.iter().map(message).collect(),
        enum_type: vec![color],
        ..Default::default()
    };
    let mut pool = DescriptorPool::new();
    pool.add_file_descriptor_proto(file).unwrap();
    pool.get_message_by_name("Root").unwrap()
}

/// Every scalar of every message, by path, except those that `read` excludes.
fn columns(schema: &Schema, read: u64) -> Vec<Vec<String>> {
    fn gather(schema: &Schema, message: usize, path: &[String], all: &mut Vec<Vec<String>>) {
        for field in &schema.messages[message].fields {
            let path = [path, std::slice::from_ref(&field.name)].concat();
            match field.kind {
                FieldKind::Message(inner) => gather(schema, inner, &path, all),
                _ => all.push(path),
            }
        }
    }
    let mut all = Vec::new();
    gather(schema, ROOT, &[], &mut all);
    assert!(all.len() <= 64);
    all.into_iter().enumerate().filter(|(i, _)| read >> i & 1 == 1).map(|(_, path)| path).collect()
}

fn build(schema: &Schema, columns: &[Vec<String>]) -> Walk {
    let mut builder = WalkBuilder::new(schema, ROOT);
    for (slot, path) in columns.iter().enumerate() {
        let path: Vec<&str> = path.iter().map(String::as_str).collect();
        builder.column(&path, slot).unwrap();
    }
    builder.build()
}

/// The reference's value at `path`, if the enclosing messages are present.
fn expected(message: &DynamicMessage, path: &[String]) -> Option<Value> {
    let [name, rest @ ..] = path else { unreachable!("paths end at scalars") };
    let is_there = message.has_field_by_name(name);
    match (rest, is_there) {
        ([], _) => message.get_field_by_name(name).map(|v| v.into_owned()),
        (_, true) => expected(message.get_field_by_name(name)?.as_message()?, rest),
        (_, false) => None,
    }
}

/// A value for comparison: numbers as bits, text as bytes.
fn normalized(value: Option<Value>) -> (u64, Vec<u8>) {
    match value {
        None => (0, vec![]),
        Some(Value::Bool(v)) => (v.into(), vec![]),
        Some(Value::I32(v) | Value::EnumNumber(v)) => (v as u64, vec![]),
        Some(Value::I64(v)) => (v as u64, vec![]),
        Some(Value::U32(v)) => (v.into(), vec![]),
        Some(Value::U64(v)) => (v, vec![]),
        Some(Value::F32(v)) => (f64::from(v).to_bits(), vec![]),
        Some(Value::F64(v)) => (v.to_bits(), vec![]),
        Some(Value::String(v)) => (0, v.into_bytes()),
        Some(Value::Bytes(v)) => (0, v.to_vec()),
        Some(other) => panic!("no scalar: {other:?}"),
    }
}

fn assert_finds(walk: &Walk, columns: &[Vec<String>], payload: &[u8], decoded: &DynamicMessage) {
    let (mut slots, mut present) = ([Slot { a: 9, b: 9 }; 64], InputSet::EMPTY);
    walk.run(payload, &mut slots, &mut present).unwrap();
    for (slot, path) in columns.iter().enumerate() {
        let value = expected(decoded, path);
        let is_bytes = matches!(value, Some(Value::String(_) | Value::Bytes(_)));
        let Slot { a, b } = slots[slot];
        let (number, bytes) = match is_bytes {
            true => (0, payload[a as usize..(a + b) as usize].to_vec()),
            false => (a, vec![]),
        };
        assert_eq!((number, bytes), normalized(value.clone()), "{path:?} in {payload:02x?}");
        if !present.contains(slot) {
            assert_eq!(slots[slot], Slot::default(), "{path:?}");
        }
    }
}

/// One field on the wire.
#[derive(Clone, Debug)]
struct Piece {
    /// The index of the message's field, modulo their number.
    field: usize,
    value: u64,
    bytes: Vec<u8>,
    inner: Vec<Self>,
    /// Extra bytes of padding in the tag and the length.
    padding: usize,
    noise: Noise,
}

/// Insignificant bytes in front of a field.
#[derive(Clone, Copy, Debug)]
enum Noise {
    Nothing,
    Unknown,
    Group,
    /// The same number with another wire type.
    WrongWireType,
}

fn pieces() -> impl Strategy<Value = Vec<Piece>> {
    let piece = |inner: BoxedStrategy<Vec<Piece>>| {
        let number =
            prop_oneof![Just(0), Just(1), Just(u64::MAX), any::<u32>().prop_map(u64::from), any::<u64>()];
        let bytes = prop::collection::vec(0x20..0x7f_u8, 0..5);
        let noise = prop_oneof![
            6 => Just(Noise::Nothing),
            1 => Just(Noise::Unknown),
            1 => Just(Noise::Group),
            1 => Just(Noise::WrongWireType)
        ];
        let padding = prop_oneof![4 => Just(0_usize), 1 => 1..3_usize];
        (any::<prop::sample::Index>(), number, bytes, inner, padding, noise).prop_map(
            |(field, value, bytes, inner, padding, noise)| {
                let field = field.index(64 * 22);
                Piece { field, value, bytes, inner, padding, noise }
            },
        )
    };
    let leaf = prop::collection::vec(piece(Just(vec![]).boxed()), 0..4).boxed();
    let inner = prop::collection::vec(piece(leaf), 0..6).boxed();
    prop::collection::vec(piece(inner), 0..14)
}

fn put_varint(out: &mut Vec<u8>, mut value: u64, padding: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
    for _ in 0..padding {
        *out.last_mut().unwrap() |= 0x80;
        out.push(0);
    }
}

/// The pieces on the wire; without `noise`, in the form that a strict decoder accepts.
fn write(schema: &Schema, message: usize, pieces: &[Piece], noise: bool) -> Vec<u8> {
    let mut out = Vec::new();
    for piece in pieces {
        // Oneof members and messages are at the end of the lists, and matter most.
        let fields = &schema.messages[message].fields;
        let span = if piece.field % 3 == 0 { fields.len() } else { 6.min(fields.len()) };
        let field = &fields[fields.len() - 1 - piece.field / 3 % span];
        let wire_type = match field.kind {
            FieldKind::Fixed32 | FieldKind::Sfixed32 | FieldKind::Float => 5,
            FieldKind::Fixed64 | FieldKind::Sfixed64 | FieldKind::Double => 1,
            FieldKind::String | FieldKind::Bytes | FieldKind::Message(_) => 2,
            _ => 0,
        };
        let number = u64::from(field.number);
        if noise {
            match piece.noise {
                Noise::Nothing => {}
                Noise::Unknown => out.extend([0xfa, 0x07, 0x02, 0x08, 0x01]),
                Noise::Group => out.extend([0xfb, 0x07, 0x08, 0x01, 0x13, 0x14, 0xfc, 0x07]),
                Noise::WrongWireType if wire_type == 5 => put_varint(&mut out, number << 3, 0),
                Noise::WrongWireType => put_varint(&mut out, number << 3 | 5, 0),
            }
            match piece.noise {
                Noise::WrongWireType if wire_type == 5 => out.push(1),
                Noise::WrongWireType => out.extend([1, 2, 3, 4]),
                _ => {}
            }
        }
        let padding = if field.number < 10_000 { piece.padding } else { 0 };
        put_varint(&mut out, number << 3 | wire_type, padding);
        match (wire_type, field.kind) {
            (5, _) => out.extend(&piece.value.to_le_bytes()[..4]),
            (1, _) => out.extend(piece.value.to_le_bytes()),
            (0, _) => put_varint(&mut out, piece.value, 0),
            (_, kind) => {
                let body = match kind {
                    FieldKind::Message(inner) => write(schema, inner, &piece.inner, noise),
                    _ => piece.bytes.clone(),
                };
                put_varint(&mut out, body.len() as u64, piece.padding);
                out.extend(body);
            }
        }
    }
    out
}

/// Sets or clears `path` like an application.
fn set(message: &mut DynamicMessage, path: &[String], value: Option<&Value>) {
    let [name, rest @ ..] = path else { unreachable!("paths end at scalars") };
    match (rest, value) {
        ([], Some(value)) => message.set_field_by_name(name, value.clone()),
        ([], None) => message.clear_field_by_name(name),
        (_, None) if !message.has_field_by_name(name) => {}
        _ => {
            let inner = message.get_field_by_name_mut(name).unwrap();
            let Value::Message(inner) = inner else { unreachable!("a message") };
            set(inner, rest, value);
        }
    }
}

/// A new value of the field's kind, derived from `seed`, as an edit and as the reference's value.
fn new_value(kind: FieldKind, seed: u32) -> (EditValue<'static>, Value) {
    let signed = seed as i32;
    let bits = EditValue::Bits;
    match kind {
        FieldKind::Bool => (bits(u64::from(seed & 1)), Value::Bool(seed & 1 == 1)),
        FieldKind::Int32 | FieldKind::Sint32 | FieldKind::Sfixed32 => {
            (bits(signed as u64), Value::I32(signed))
        }
        FieldKind::Enum(_) => (bits(signed as u64), Value::EnumNumber(signed)),
        FieldKind::Int64 | FieldKind::Sint64 | FieldKind::Sfixed64 => {
            (bits(signed as u64), Value::I64(signed.into()))
        }
        FieldKind::Uint32 | FieldKind::Fixed32 => (bits(seed.into()), Value::U32(seed)),
        FieldKind::Uint64 | FieldKind::Fixed64 => (bits(seed.into()), Value::U64(seed.into())),
        FieldKind::Float => (bits(f64::from(seed as f32).to_bits()), Value::F32(seed as f32)),
        FieldKind::Double => (bits(f64::from(seed).to_bits()), Value::F64(seed.into())),
        FieldKind::String => (EditValue::Bytes("n\u{e9}w".as_bytes()), Value::String("n\u{e9}w".into())),
        FieldKind::Bytes => (EditValue::Bytes(b"new\xff"), Value::Bytes(b"new\xff".to_vec().into())),
        FieldKind::Message(_) => unreachable!("columns are scalars"),
    }
}

fn kind_of(schema: &Schema, path: &[String]) -> FieldKind {
    let mut message = ROOT;
    let mut kind = FieldKind::Bool;
    for name in path {
        kind = schema.messages[message].field(name).unwrap().kind;
        if let FieldKind::Message(inner) = kind {
            message = inner;
        }
    }
    kind
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn walk_matches_reference(pieces in pieces(), read in any::<u64>(), all in any::<bool>()) {
        // If this fails, an access rule sees another value than the server behind it.
        let schema = schema(true);
        let columns = columns(&schema, if all { u64::MAX } else { read });
        let decoded = DynamicMessage::decode(reference(&schema), &write(&schema, ROOT, &pieces, false)[..]).unwrap();
        let walk = build(&schema, &columns);
        assert_finds(&walk, &columns, &write(&schema, ROOT, &pieces, true), &decoded);
        // The reference's own encoding is one more order of the fields.
        assert_finds(&walk, &columns, &decoded.encode_to_vec(), &decoded);
    }

    #[test]
    fn rewrite_equals_setting_fields(
        pieces in pieces(),
        edits in prop::collection::vec((any::<prop::sample::Index>(), prop::option::of(any::<u32>())), 1..4),
    ) {
        // If this fails, an edit leaves the old value, loses another field, or restores a cleared one.
        let schema = schema(true);
        let columns = columns(&schema, u64::MAX);
        let walk = build(&schema, &columns);
        let bytes = write(&schema, ROOT, &pieces, false);
        let mut expected = DynamicMessage::decode(reference(&schema), &bytes[..]).unwrap();
        let mut list = Vec::new();
        for (index, seed) in &edits {
            let slot = index.index(columns.len());
            let new = seed.map(|seed| new_value(kind_of(&schema, &columns[slot]), seed));
            set(&mut expected, &columns[slot], new.as_ref().map(|(_, value)| value));
            list.push((slot, new.map_or(EditValue::Clear, |(edit, _)| edit)));
        }
        let mut plain = Vec::new();
        walk.rewrite(&write(&schema, ROOT, &pieces, false), &list, &mut plain).unwrap();
        let rewritten = DynamicMessage::decode(reference(&schema), &plain[..]).unwrap();
        // Compare the encodings: there, NaN equals itself, and an explicit default equals an absent field.
        prop_assert_eq!(rewritten.encode_to_vec(), expected.encode_to_vec(), "{:?} gave {:02x?}", list, plain);
        let mut noisy = Vec::new();
        walk.rewrite(&write(&schema, ROOT, &pieces, true), &list, &mut noisy).unwrap();
        assert_finds(&walk, &columns, &noisy, &expected);
    }

    #[test]
    fn damaged_message_matches_reference(pieces in pieces(), at in any::<prop::sample::Index>(), byte in any::<u8>()) {
        // If this fails, we read values from a message that the server refuses, or refuse one that it reads.
        let schema = schema(false);
        let columns = columns(&schema, u64::MAX);
        let mut payload = write(&schema, ROOT, &pieces, false);
        prop_assume!(!payload.is_empty());
        let at = at.index(payload.len());
        payload[at] = byte;
        let walk = build(&schema, &columns);
        match DynamicMessage::decode(reference(&schema), &payload[..]) {
            Ok(decoded) => assert_finds(&walk, &columns, &payload, &decoded),
            // The reference refuses a wrong wire type; by the protobuf specification it is an unknown field.
            Err(error) if error.to_string().contains("invalid wire type:") => {}
            Err(error) => {
                let found = walk.run(&payload, &mut [Slot::default(); 64], &mut InputSet::default());
                prop_assert!(found.is_err(), "{error}: {payload:02x?}");
            }
        }
    }

    #[test]
    fn random_message_never_panics(payload in prop::collection::vec(any::<u8>(), 0..60), slot in 0..40_usize) {
        // If this fails, a peer can stop a worker with one message.
        let schema = schema(true);
        let columns = columns(&schema, u64::MAX);
        let walk = build(&schema, &columns);
        let walked = walk.run(&payload, &mut [Slot::default(); 64], &mut InputSet::default());
        let mut out = b"kept".to_vec();
        let rewritten = walk.rewrite(&payload, &[(slot, EditValue::Clear)], &mut out);
        prop_assert!(out.starts_with(b"kept"));
        prop_assert!(rewritten.is_ok() || walked.is_err() && out == b"kept");
    }
}
