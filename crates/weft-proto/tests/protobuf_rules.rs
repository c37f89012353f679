//! Each rule of protobuf that could smuggle a value past an access rule, byte by byte.

use weft_core::abi::Slot;
use weft_core::schema::{Field, FieldKind, Message, Presence, Schema};
use weft_proto::session::grpc::protobuf::{
    DEPTH_MAX, EditError, EditValue, Malformed, Reason, Walk, WalkBuilder, WalkError, encode,
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
    let (mut slots, mut present) = ([Slot::default()], 0);
    walk(path).run(payload, &mut slots, &mut present)?;
    let [Slot { a, b }] = slots;
    Ok((present == 1).then(|| std::str::from_utf8(&payload[a as usize..(a + b) as usize]).unwrap()))
}

fn refusal(payload: &[u8]) -> (usize, Reason) {
    let Malformed { offset, reason } = text(&["user"], payload).unwrap_err();
    (offset, reason)
}

#[test]
fn the_last_value_wins() {
    // If this fails, a harmless first value hides the one that the server acts on.
    assert_eq!(text(&["user"], b"\x0a\x01a\x0a\x01b"), Ok(Some("b")));
    assert_eq!(text(&["user"], b"\x0a\x01a\x0a\x00"), Ok(Some("")));
    assert_eq!(text(&["user"], b""), Ok(None));
}

#[test]
fn split_sub_messages_are_merged() {
    // If this fails, a second, partial sub-message hides the fields of the first, or the other way round.
    assert_eq!(text(&["box", "text"], b"\x12\x03\x0a\x01a\x12\x02\x10\x07"), Ok(Some("a")));
    assert_eq!(text(&["box", "text"], b"\x12\x03\x0a\x01a\x12\x03\x0a\x01b"), Ok(Some("b")));
}

#[test]
fn a_oneof_member_clears_the_others() {
    // If this fails, we check a member that the server does not see.
    assert_eq!(text(&["name"], b"\x1a\x01a\x20\x07"), Ok(None));
    assert_eq!(text(&["name"], b"\x20\x07\x1a\x01a"), Ok(Some("a")));
    assert_eq!(text(&["other", "text"], b"\x2a\x03\x0a\x01a\x20\x07"), Ok(None));
    assert_eq!(text(&["other", "text"], b"\x2a\x03\x0a\x01a\x20\x07\x2a\x00"), Ok(None));
    assert_eq!(text(&["other", "text"], b"\x2a\x03\x0a\x01a\x2a\x00"), Ok(Some("a")));
    // With another wire type it is not the member, and clears nothing.
    assert_eq!(text(&["name"], b"\x1a\x01a\x25\x00\x00\x00\x00"), Ok(Some("a")));
}

#[test]
fn a_wrong_wire_type_is_an_unknown_field() {
    // If this fails, a field that the server skips stands in for the one that it reads.
    assert_eq!(text(&["user"], b"\x0a\x01a\x08\x05"), Ok(Some("a")));
    assert_eq!(text(&["box", "text"], b"\x12\x03\x0a\x01a\x10\x05"), Ok(Some("a")));
}

#[test]
fn overlong_varints_mean_the_same() {
    // If this fails, padding a tag or a length makes a field invisible to us.
    assert_eq!(text(&["user"], b"\x8a\x00\x01a"), Ok(Some("a")));
    assert_eq!(text(&["user"], b"\x8a\x80\x80\x80\x00\x81\x80\x00a"), Ok(Some("a")));
    // Some decoders cut these down to 32 bits, and would read `user`.
    assert_eq!(refusal(b"\x8a\x80\x80\x80\x10\x01a"), (0, Reason::TagTooLarge));
    assert_eq!(refusal(b"\x0a\x81\x80\x80\x80\x10a"), (1, Reason::LengthPastEnd));
}

#[test]
fn what_is_in_a_group_is_not_a_field_of_the_message() {
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
fn malformed_bytes_are_refused_with_offset_and_reason() {
    // If this fails, we guess at what a broken message means.
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
fn a_rewrite_touches_nothing_but_the_edit() {
    // If this fails, redacted text stays on the wire, or what we do not know is changed.
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
    // Nothing to clear: even the padded length stays.
    assert_eq!(rewrite(&["box", "n"], b"\x12\x83\x00\x0a\x01s", EditValue::Clear), b"\x12\x83\x00\x0a\x01s");
    // Clearing `id` does not bring back the `name` that it had cleared.
    assert_eq!(rewrite(&["id"], b"\x1a\x01a\x20\x07", EditValue::Clear), b"");
    // Setting `other.n` removes `name`, and does not bring back what `name` had cleared.
    assert_eq!(
        rewrite(&["other", "n"], b"\x2a\x03\x0a\x01a\x1a\x01b", EditValue::Bits(7)),
        b"\x2a\x02\x10\x07"
    );
}

#[test]
fn messages_are_built_from_values() {
    // If this fails, a REPLY's message is not what the program said.
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
fn columns_that_cannot_be_read_say_why() {
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
    assert_eq!(builder.column(&["id"], 64), Err(WalkError::SlotTooLarge { slot: 64 }));
    assert_eq!(builder.column(&[], 1), Err(WalkError::EmptyPath));
}
