//! Tests each rule of protobuf that could smuggle a value past an access rule, byte by byte.

use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::schema::{Enum, Field, FieldKind, Message, Presence, Schema};
use weft_proto::session::grpc::protobuf::{
    DEPTH_MAX, EditError, EditValue, Malformed, Reason, SLOTS_MAX, Walk, WalkBuilder, WalkError, encode,
};

/// `Call { string user = 1; Box box = 2; oneof who { string name = 3; int32 id = 4; Box other = 5; }
/// repeated string tags = 6; }` and `Box { string text = 1; int32 n = 2; }`.
fn schema() -> Schema {
    let field = |number, name: &str, kind| Field::new(name, number, kind, Presence::Implicit);
    let member = |number, name: &str, kind| Field {
        presence: Presence::Explicit,
        oneof: Some(0),
        ..field(number, name, kind)
    };
    let call = vec![
        field(1, "user", FieldKind::String),
        field(2, "box", FieldKind::Message(1)),
        member(3, "name", FieldKind::String),
        member(4, "id", FieldKind::Int32),
        member(5, "other", FieldKind::Message(1)),
        Field { presence: Presence::Repeated, ..field(6, "tags", FieldKind::String) },
    ];
    let inner = vec![field(1, "text", FieldKind::String), field(2, "n", FieldKind::Int32)];
    Schema { messages: vec![Message::new("Call", call), Message::new("Box", inner)], ..Schema::default() }
}

fn walk(path: &[&str]) -> Walk {
    let schema = schema();
    let mut builder = WalkBuilder::new(&schema, 0);
    builder.column(path, 0).unwrap();
    builder.build()
}

/// The text at `path`, if it is on the wire.
fn text<'a>(path: &[&str], payload: &'a [u8]) -> Result<Option<&'a str>, Malformed> {
    let (mut slots, mut present) = ([Slot::default()], InputSet::EMPTY);
    walk(path).run(payload, &mut slots, &mut present)?;
    let [Slot { a, b }] = slots;
    Ok(present.contains(0_u8).then(|| std::str::from_utf8(&payload[a as usize..(a + b) as usize]).unwrap()))
}

fn refusal(payload: &[u8]) -> (usize, Reason) {
    let Malformed { offset, reason } = text(&["user"], payload).unwrap_err();
    (offset, reason)
}

#[test]
fn last_value_wins() {
    // If this fails, a harmless first value hides the one that the server acts on.
    assert_eq!(text(&["user"], b"\x0a\x01a\x0a\x01b"), Ok(Some("b")));
    assert_eq!(text(&["user"], b"\x0a\x01a\x0a\x00"), Ok(Some("")));
    assert_eq!(text(&["user"], b""), Ok(None));
}

#[test]
fn split_submessages_are_merged() {
    // If this fails, a second, partial sub-message hides the fields of the first, or the other way round.
    assert_eq!(text(&["box", "text"], b"\x12\x03\x0a\x01a\x12\x02\x10\x07"), Ok(Some("a")));
    assert_eq!(text(&["box", "text"], b"\x12\x03\x0a\x01a\x12\x03\x0a\x01b"), Ok(Some("b")));
}

#[test]
fn oneof_member_clears_others() {
    // If this fails, we check a member that the server does not see.
    assert_eq!(text(&["name"], b"\x1a\x01a\x20\x07"), Ok(None));
    assert_eq!(text(&["name"], b"\x20\x07\x1a\x01a"), Ok(Some("a")));
    assert_eq!(text(&["other", "text"], b"\x2a\x03\x0a\x01a\x20\x07"), Ok(None));
    assert_eq!(text(&["other", "text"], b"\x2a\x03\x0a\x01a\x20\x07\x2a\x00"), Ok(None));
    assert_eq!(text(&["other", "text"], b"\x2a\x03\x0a\x01a\x2a\x00"), Ok(Some("a")));
    // With another wire type the field is not the member, and clears nothing.
    assert_eq!(text(&["name"], b"\x1a\x01a\x25\x00\x00\x00\x00"), Ok(Some("a")));
}

#[test]
fn wrong_wire_type_is_unknown() {
    // If this fails, a field that the server skips replaces the one that it reads.
    assert_eq!(text(&["user"], b"\x0a\x01a\x08\x05"), Ok(Some("a")));
    assert_eq!(text(&["box", "text"], b"\x12\x03\x0a\x01a\x10\x05"), Ok(Some("a")));
}

/// `M { Colour c = 1; oneof one { int32 oa = 2; Colour oc = 3; } group G = 4 { string a = 1; int32 n = 2; }
/// google.protobuf.StringValue w = 5; }`, of proto2: its enum has the values 1 and 2.
fn proto2_schema() -> Schema {
    let field = |number, name: &str, kind| Field::new(name, number, kind, Presence::Explicit);
    let colour = FieldKind::Enum(0);
    let m = vec![
        field(1, "c", colour),
        Field { oneof: Some(0), ..field(2, "oa", FieldKind::Int32) },
        Field { oneof: Some(0), ..field(3, "oc", colour) },
        Field { is_delimited: true, ..field(4, "g", FieldKind::Message(1)) },
        field(5, "w", FieldKind::Message(2)),
    ];
    let g = vec![field(1, "a", FieldKind::String), field(2, "n", FieldKind::Int32)];
    let value = Field::new("value", 1, FieldKind::String, Presence::Implicit);
    let values = vec![("RED".to_owned(), 1), ("GREEN".to_owned(), 2)];
    Schema {
        messages: vec![
            Message::new("M", m),
            Message::new("M.G", g),
            Message::new("google.protobuf.StringValue", vec![value]),
        ],
        enums: vec![Enum { name: "Colour".to_owned(), values, is_closed: true }],
        ..Schema::default()
    }
}

fn proto2_walk(path: &[&str]) -> Walk {
    let schema = proto2_schema();
    let mut builder = WalkBuilder::new(&schema, 0);
    builder.column(path, 0).unwrap();
    builder.build()
}

/// The slot of a column, if it is present.
fn proto2(path: &[&str], payload: &[u8]) -> Result<Option<Slot>, Reason> {
    let (mut slots, mut present) = ([Slot::default()], InputSet::EMPTY);
    proto2_walk(path).run(payload, &mut slots, &mut present).map_err(|malformed| malformed.reason)?;
    Ok(present.contains(0_u8).then_some(slots[0]))
}

fn proto2_rewritten(path: &[&str], payload: &[u8], value: EditValue<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    proto2_walk(path).rewrite(payload, &[(0, value)], &mut out).unwrap();
    out
}

#[test]
fn unknown_closed_value_is_unknown() {
    // If this fails, a value that the server does not see hides the one that it does.
    let number = |path: &[&str], payload| proto2(path, payload).map(|slot| slot.map(|slot| slot.a));
    assert_eq!(number(&["c"], b"\x08\x02"), Ok(Some(2)));
    assert_eq!(number(&["c"], b"\x08\x63"), Ok(None));
    assert_eq!(number(&["c"], b"\x08\x02\x08\x63"), Ok(Some(2)));
    assert_eq!(number(&["oa"], b"\x10\x05\x18\x63"), Ok(Some(5)));
    assert_eq!(number(&["oc"], b"\x10\x05\x18\x63"), Ok(None));
    assert_eq!(number(&["oa"], b"\x10\x05\x18\x01"), Ok(None));
    // Only the lower 32 bits of a longer value count.
    assert_eq!(number(&["c"], b"\x08\x82\x80\x80\x80\x10"), Ok(Some(2)));
    let refused = proto2_walk(&["c"]).rewrite(b"", &[(0, EditValue::Bits(99))], &mut Vec::new());
    assert_eq!(refused, Err(EditError::OutOfRange { slot: 0 }));
    // Clearing `oc` removes what a later schema would read, and keeps the member that it did not displace.
    assert_eq!(proto2_rewritten(&["oc"], b"\x10\x05\x18\x63", EditValue::Clear), b"\x10\x05");
}

#[test]
fn group_is_delimited_by_tags() {
    // If this fails, a group's content passes unseen to a server.
    let text = |payload: &'static [u8]| {
        proto2(&["g", "a"], payload)
            .map(|slot| slot.map(|Slot { a, b }| &payload[a as usize..][..b as usize]))
    };
    assert_eq!(text(b"\x23\x0a\x01a\x24"), Ok(Some(&b"a"[..])));
    assert_eq!(text(b"\x23\x0a\x01a\x24\x23\x10\x01\x24"), Ok(Some(&b"a"[..])));
    // With a length it is another wire type, and so an unknown field.
    assert_eq!(text(b"\x22\x03\x0a\x01a"), Ok(None));
    assert_eq!(text(b"\x23\x0a\x01a"), Err(Reason::Truncated));
    assert_eq!(text(b"\x23\x0a\x01a\x2c"), Err(Reason::GroupMismatch));
    assert_eq!(proto2_rewritten(&["g", "a"], b"", EditValue::Bytes(b"b")), b"\x23\x0a\x01b\x24");
    let payload = b"\x08\x01\x23\x0a\x01a\x10\x07\x24\x10\x05";
    assert_eq!(
        proto2_rewritten(&["g", "a"], payload, EditValue::Bytes(b"b")),
        b"\x08\x01\x23\x10\x07\x0a\x01b\x24\x10\x05"
    );
    assert_eq!(proto2_rewritten(&["g", "a"], payload, EditValue::Clear), b"\x08\x01\x23\x10\x07\x24\x10\x05");
}

#[test]
fn wrapper_is_an_optional_scalar() {
    // If this fails, a rule cannot distinguish an empty name from no name.
    assert_eq!(proto2(&["w"], b""), Ok(None));
    assert_eq!(proto2(&["w"], b"\x2a\x00"), Ok(Some(Slot { a: 0, b: 0 })));
    assert_eq!(proto2(&["w"], b"\x2a\x03\x0a\x01a"), Ok(Some(Slot { a: 4, b: 1 })));
    assert_eq!(proto2(&["w"], b"\x2a\x03\x0a\x01a\x2a\x00"), Ok(Some(Slot { a: 4, b: 1 })));
    assert_eq!(proto2_rewritten(&["w"], b"\x08\x01", EditValue::Bytes(b"b")), b"\x08\x01\x2a\x03\x0a\x01b");
    assert_eq!(proto2_rewritten(&["w"], b"\x2a\x03\x0a\x01a\x08\x01", EditValue::Clear), b"\x08\x01");
}

#[test]
fn overlong_varint_means_the_same() {
    // If this fails, padding a tag or a length makes a field invisible to us.
    assert_eq!(text(&["user"], b"\x8a\x00\x01a"), Ok(Some("a")));
    assert_eq!(text(&["user"], b"\x8a\x80\x80\x80\x00\x81\x80\x00a"), Ok(Some("a")));
    // Some decoders truncate these to 32 bits, and would read `user`.
    assert_eq!(refusal(b"\x8a\x80\x80\x80\x10\x01a"), (0, Reason::TagTooLarge));
    assert_eq!(refusal(b"\x0a\x81\x80\x80\x80\x10a"), (1, Reason::LengthPastEnd));
}

#[test]
fn group_content_is_not_a_field() {
    // If this fails, a value wrapped in a group overrides the real one.
    assert_eq!(text(&["user"], b"\x0a\x01a\x43\x0a\x01b\x44"), Ok(Some("a")));
    assert_eq!(refusal(b"\x43\x0a\x01b\x4c"), (4, Reason::GroupMismatch));
    assert_eq!(refusal(b"\x44"), (0, Reason::GroupMismatch));
    let nested = |n| [vec![0x43; n], vec![0x44; n]].concat();
    assert_eq!(text(&["user"], &nested(DEPTH_MAX)), Ok(None));
    assert_eq!(refusal(&nested(DEPTH_MAX + 1)), (DEPTH_MAX, Reason::TooDeep));
    assert_eq!(refusal(&vec![0x43; 1 << 20]), (DEPTH_MAX, Reason::TooDeep));
}

#[test]
fn malformed_error_has_offset() {
    // If this fails, we guess the meaning of a broken message.
    assert_eq!(refusal(b"\x0a\x02a"), (1, Reason::LengthPastEnd));
    assert_eq!(refusal(b"\x0a\x01a\x0a"), (4, Reason::Truncated));
    assert_eq!(refusal(b"\x25\x00\x00\x00"), (1, Reason::Truncated));
    assert_eq!(refusal(b"\x02\x00"), (0, Reason::FieldZero));
    assert_eq!(refusal(b"\x0e"), (0, Reason::WireType(6)));
    assert_eq!(refusal(b"\x0f"), (0, Reason::WireType(7)));
    assert_eq!(refusal(b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\x02"), (1, Reason::VarintTooLong));
    assert_eq!(refusal(b"\x20\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"), (1, Reason::VarintTooLong));
    assert_eq!(refusal(b"\x0a\x02\xc3\x28"), (2, Reason::Utf8));
    let shown = text(&["user"], b"\x0e").unwrap_err().to_string();
    assert_eq!(shown, "malformed protobuf at byte 0: wire type 6 does not exist");
}

#[test]
fn rewrite_touches_the_edit_only() {
    // If this fails, redacted text stays on the wire, or unknown fields change.
    let rewrite = |path: &[&str], payload: &[u8], value| {
        let mut out = Vec::new();
        walk(path).rewrite(payload, &[(0, value)], &mut out).unwrap();
        out
    };
    let payload = b"\x0a\x01a\xf8\x80\x00\x05\x12\x83\x00\x0a\x01s\x0a\x01b\x12\x02\x10\x07";
    assert_eq!(
        rewrite(&["user"], payload, EditValue::Bytes(b"*")),
        b"\xf8\x80\x00\x05\x12\x83\x00\x0a\x01s\x12\x02\x10\x07\x0a\x01*"
    );
    // The new value is in the last occurrence of the message.
    assert_eq!(
        rewrite(&["box", "text"], payload, EditValue::Bytes(b"*")),
        b"\x0a\x01a\xf8\x80\x00\x05\x12\x00\x0a\x01b\x12\x05\x10\x07\x0a\x01*"
    );
    // There is nothing to clear: even the padded length stays.
    assert_eq!(rewrite(&["box", "n"], b"\x12\x83\x00\x0a\x01s", EditValue::Clear), b"\x12\x83\x00\x0a\x01s");
    // Clearing `id` does not restore the `name` that it had cleared.
    assert_eq!(rewrite(&["id"], b"\x1a\x01a\x20\x07", EditValue::Clear), b"");
    // Setting `other.n` removes `name`, and does not restore what `name` had cleared.
    assert_eq!(
        rewrite(&["other", "n"], b"\x2a\x03\x0a\x01a\x1a\x01b", EditValue::Bits(7)),
        b"\x2a\x02\x10\x07"
    );
}

#[test]
fn message_is_built_from_values() {
    // If this fails, a REPLY's message differs from the program's values.
    let mut out = Vec::new();
    let values: [(&[&str], _); 2] =
        [(&["user"], EditValue::Bytes(b"a")), (&["box", "n"], EditValue::Bits(-1_i64 as u64))];
    encode(&schema(), 0, &values, &mut out).unwrap();
    assert_eq!(out, b"\x0a\x01a\x12\x0b\x10\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01");
    let refused = |path: &[&str], value| encode(&schema(), 0, &[(path, value)], &mut Vec::new()).unwrap_err();
    assert_eq!(refused(&["id"], EditValue::Bits(1 << 31)), EditError::OutOfRange { slot: 0 });
    assert_eq!(refused(&["id"], EditValue::Bytes(b"1")), EditError::WrongKind { slot: 0 });
    assert_eq!(refused(&["user"], EditValue::Bytes(b"\xff")), EditError::NotUtf8 { slot: 0 });
}

#[test]
fn wide_message_columns_differ() {
    // If this fails, a column is confused with the one 64 slots further: both use the same bit of a word.
    let member = |number| Field {
        presence: Presence::Explicit,
        oneof: (number % 100 == 1).then_some(0),
        ..Field::new(&format!("f{number}"), number, FieldKind::Uint32, Presence::Implicit)
    };
    let fields: Vec<Field> = (1..=SLOTS_MAX as u32).map(member).collect();
    let names: Vec<String> = fields.iter().map(|field| field.name.clone()).collect();
    let schema = Schema { messages: vec![Message::new("Wide", fields)], ..Schema::default() };
    let mut builder = WalkBuilder::new(&schema, 0);
    for (slot, name) in names.iter().enumerate() {
        builder.column(&[name], slot).unwrap();
    }
    let walk = builder.build();
    let found = |payload: &[u8]| -> Vec<(usize, u64)> {
        let (mut slots, mut present) = ([Slot { a: 9, b: 9 }; SLOTS_MAX], InputSet::EMPTY);
        walk.run(payload, &mut slots, &mut present).unwrap();
        assert!((0..SLOTS_MAX).all(|slot| present.contains(slot) || slots[slot] == Slot::default()));
        present.iter().map(|slot| (slot, slots[slot].a)).collect()
    };
    let mut payload = Vec::new();
    for slot in 0..SLOTS_MAX {
        let (mut alone, value) = (Vec::new(), slot as u64 + 1000);
        walk.rewrite(&[], &[(slot, EditValue::Bits(value))], &mut alone).unwrap();
        assert_eq!(found(&alone), [(slot, value)]);
        payload.extend_from_slice(&alone);
    }
    // Only the last member of the oneof is left.
    let left: Vec<usize> = found(&payload).into_iter().map(|(slot, _)| slot).collect();
    assert_eq!(left, (0..SLOTS_MAX).filter(|slot| ![0, 100].contains(slot)).collect::<Vec<_>>());
    let edits: Vec<_> = (2..SLOTS_MAX).map(|slot| (slot, EditValue::Clear)).collect();
    let mut rest = Vec::new();
    walk.rewrite(&payload, &edits, &mut rest).unwrap();
    assert_eq!(found(&rest), [(1, 1001)]);
}

#[test]
fn unreadable_column_says_why() {
    // If this fails, a program that names a wrong field is accepted, or refused without a reason.
    let schema = schema();
    let mut builder = WalkBuilder::new(&schema, 0);
    builder.column(&["user"], 0).unwrap();
    let mut refusal = |path: &[&str], slot| builder.column(path, slot).unwrap_err().to_string();
    assert_eq!(
        refusal(&["tags"], 1),
        "`tags` is repeated: it has any number of values, and a column has one"
    );
    assert_eq!(refusal(&["box"], 1), "`box` is a message; name one of its fields");
    assert_eq!(refusal(&["user", "x"], 1), "`user` is not a message and has no fields");
    assert_eq!(refusal(&["box", "x"], 1), "`Box` has no field `x`");
    assert_eq!(refusal(&["id"], 0), "slot 0 holds another column");
    assert_eq!(refusal(&["user"], 1), "`user` is in slot 0 already");
    assert_eq!(builder.column(&["id"], SLOTS_MAX), Err(WalkError::SlotTooLarge { slot: SLOTS_MAX }));
    assert_eq!(builder.column(&[], 1), Err(WalkError::EmptyPath));
}
