//! Measures a tag walk: nanoseconds for a small message of four fields, of which two are read.
#![allow(
    clippy::print_stdout,
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "it measures and prints: it is what the example is for"
)]

use std::hint::black_box;
use std::time::Instant;
use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::schema::{Field, FieldKind, Message, Presence, Schema};
use weft_proto::session::grpc::protobuf::{EditValue, WalkBuilder, encode};

const ROUNDS: u32 = 2_000_000;

fn main() {
    let field = |number, name: &str, kind| Field::new(name, number, kind, Presence::Implicit);
    let fields = vec![
        field(1, "user", FieldKind::String),
        field(2, "object_id", FieldKind::String),
        field(3, "amount", FieldKind::Int32),
        field(4, "note", FieldKind::Bytes),
    ];
    let schema = Schema { messages: vec![Message::new("Small", fields)], ..Schema::default() };
    let mut payload = Vec::new();
    let values: [(&[&str], _); 4] = [
        (&["user"], EditValue::Bytes(b"alice")),
        (&["object_id"], EditValue::Bytes(b"OLJCESPC7Z")),
        (&["amount"], EditValue::Bits(300)),
        (&["note"], EditValue::Bytes(b"twelve bytes")),
    ];
    encode(&schema, 0, &values, &mut payload).expect("the values fit the schema");

    let mut builder = WalkBuilder::new(&schema, 0);
    builder.column(&["user"], 0).expect("a field");
    builder.column(&["amount"], 1).expect("a field");
    let walk = builder.build();
    let (mut slots, mut present) = ([Slot::default(); 2], InputSet::EMPTY);
    let walked = nanos_each(|| {
        walk.run(black_box(&payload), black_box(&mut slots), &mut present).expect("well-formed");
    });
    let mut out = Vec::new();
    let rewritten = nanos_each(|| {
        out.clear();
        walk.rewrite(black_box(&payload), &[(0, EditValue::Bytes(b"*"))], &mut out).expect("well-formed");
        black_box(&out);
    });
    println!("{} bytes: walk {walked:.1} ns, rewrite of one field {rewritten:.1} ns", payload.len());
}

/// The best of five measurements.
fn nanos_each(mut work: impl FnMut()) -> f64 {
    let measure = |_| {
        let start = Instant::now();
        (0..ROUNDS).for_each(|_| work());
        start.elapsed().as_nanos() as f64 / f64::from(ROUNDS)
    };
    (0..5).map(measure).fold(f64::INFINITY, f64::min)
}
