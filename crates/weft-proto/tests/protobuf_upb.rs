//! Compares the schema, the walk and the rewrite with protoc and upb, the protobuf implementation of C++, Python and
//! others: random `.proto` files of every syntax, and random messages, valid and damaged.
//!
//! Needs `python3` with the packages `protobuf` and `grpcio-tools`; without them the test says so and passes.
//! `WEFT_UPB_SCHEMAS` is the number of schemas (12 by default), each with 60 messages; `WEFT_UPB_SEED` is the seed.

#![allow(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "the test runs a foreign implementation"
)]

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::{Command, Stdio};
use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::schema::{FieldKind, Presence, Schema};
use weft_proto::session::grpc::protobuf::{EditError, EditValue, Reason, SLOTS_MAX, Walk, WalkBuilder};
use weft_schema::{ImportLookup, Source, compile, from_descriptors};

const MESSAGES: usize = 60;

/// Random numbers: xorshift64*.
struct Rng(u64);

impl Rng {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 16) % n
    }

    fn one_in(&mut self, n: u64) -> bool {
        self.below(n) == 0
    }

    fn of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len() as u64) as usize]
    }
}

// ---- schemas ---------------------------------------------------------------------------------------------------

const SCALARS: &[&str] = &[
    "bool", "int32", "int64", "uint32", "uint64", "sint32", "sint64", "fixed32", "fixed64", "sfixed32",
    "sfixed64", "float", "double", "string", "bytes",
];

const WRAPPERS: &[&str] =
    &["StringValue", "Int32Value", "BoolValue", "BytesValue", "DoubleValue", "UInt64Value"];

#[derive(Clone, Copy, PartialEq)]
enum Syntax {
    Proto2,
    Proto3,
    Edition,
}

struct Writer<'r> {
    rng: &'r mut Rng,
    syntax: Syntax,
    /// In an edition: the enum is closed.
    is_closed: bool,
    text: String,
    n_fields: u32,
}

/// A `.proto` file with the messages `M`, `N` and `O`; each may contain the following ones.
fn proto(rng: &mut Rng) -> String {
    let syntax = *rng.of(&[Syntax::Proto2, Syntax::Proto3, Syntax::Edition, Syntax::Edition]);
    let head = match syntax {
        Syntax::Proto2 => "syntax = \"proto2\";",
        Syntax::Proto3 => "syntax = \"proto3\";",
        Syntax::Edition => rng.of(&["edition = \"2023\";", "edition = \"2024\";"]),
    };
    let is_closed = syntax == Syntax::Proto2 || syntax == Syntax::Edition && rng.one_in(2);
    let mut writer = Writer { rng, syntax, is_closed, text: String::new(), n_fields: 0 };
    let _ = writeln!(writer.text, "{head}\npackage p;\nimport \"google/protobuf/wrappers.proto\";");
    if syntax == Syntax::Edition && writer.rng.one_in(4) {
        writer.text.push_str("option features.message_encoding = DELIMITED;\n");
    }
    writer.text.push_str("enum E { ");
    if syntax == Syntax::Edition {
        let kind = if is_closed { "CLOSED" } else { "OPEN" };
        let _ = write!(writer.text, "option features = {{ enum_type: {kind} }}; ");
    }
    writer.text.push_str("E_ZERO = 0; E_ONE = 1; E_FIVE = 5; E_MINUS = -3; }\n");
    for (name, inner) in [("M", &["N", "O"][..]), ("N", &["O"]), ("O", &[])] {
        writer.message(name, inner);
    }
    writer.text
}

impl Writer<'_> {
    fn message(&mut self, name: &str, inner: &[&str]) {
        let _ = writeln!(self.text, "message {name} {{");
        self.n_fields = 0;
        for _ in 0..3 + self.rng.below(5) {
            self.field(inner, false);
        }
        for oneof in 0..self.rng.below(3) {
            let _ = writeln!(self.text, "  oneof pick{oneof} {{");
            for _ in 0..2 + self.rng.below(3) {
                self.field(inner, true);
            }
            self.text.push_str("  }\n");
        }
        self.text.push_str("}\n");
    }

    fn field(&mut self, inner: &[&str], is_member: bool) {
        self.n_fields += 1;
        let (at, far) = (self.n_fields, self.rng.below(6));
        // One-byte, two-byte, and large field numbers.
        let number = if far == 0 {
            at + 536_870_000
        } else if far < 3 {
            at + 15 * 20
        } else {
            at
        };
        let kind = self.rng.below(12);
        let syntax = self.syntax;
        if syntax == Syntax::Proto2 && kind < 2 {
            let label = if is_member { "" } else { "optional " };
            let ty = self.rng.of(SCALARS);
            let _ = writeln!(
                self.text,
                "  {label}group G{at} = {number} {{ optional {ty} a = 1; optional E e = 2; }}"
            );
            return;
        }
        if !is_member && kind == 2 {
            let _ = writeln!(self.text, "  map<string, int32> f{at} = {number};");
            return;
        }
        let is_enum = matches!(kind, 3 | 4);
        let is_message = kind > 8 && !inner.is_empty();
        let ty = match kind {
            3 | 4 => "E".to_owned(),
            5 => format!("google.protobuf.{}", self.rng.of(WRAPPERS)),
            9.. if is_message => (*self.rng.of(inner)).to_owned(),
            _ => (*self.rng.of(SCALARS)).to_owned(),
        };
        let is_repeated = !is_member && self.rng.one_in(8);
        let mut options = Vec::new();
        let label = match syntax {
            _ if is_member => "",
            _ if is_repeated => "repeated ",
            Syntax::Proto2 => "optional ",
            Syntax::Proto3 if self.rng.one_in(3) => "optional ",
            Syntax::Proto3 => "",
            Syntax::Edition => {
                let is_implicit = !is_message && kind != 5 && !(is_enum && self.is_closed);
                if is_implicit && self.rng.one_in(2) {
                    options.push("features.field_presence = IMPLICIT");
                }
                ""
            }
        };
        if syntax == Syntax::Edition && is_message && self.rng.one_in(2) {
            let both =
                ["features.message_encoding = DELIMITED", "features.message_encoding = LENGTH_PREFIXED"];
            options.push(*self.rng.of(&both));
        }
        if syntax == Syntax::Edition && ty == "string" && self.rng.one_in(3) {
            options.push("features.utf8_validation = NONE");
        }
        let options = if options.is_empty() { String::new() } else { format!(" [{}]", options.join(", ")) };
        let _ = writeln!(self.text, "  {label}{ty} f{at} = {number}{options};");
    }
}

fn compiled(text: &str) -> Schema {
    let root = Source { name: "a.proto".to_owned(), text: text.into() };
    compile(root, &mut |_| ImportLookup::Missing("there is none".to_owned()))
        .unwrap_or_else(|why| panic!("{why}\n{text}"))
}

/// The columns of a message: their paths, kinds and presence.
fn columns(schema: &Schema, message: usize) -> Vec<(String, FieldKind, Presence)> {
    let mut all = Vec::new();
    for field in schema.messages[message].fields.iter().filter(|field| field.presence != Presence::Repeated) {
        match (schema.scalar(field), field.kind) {
            (Some((kind, presence)), _) => all.push((field.name.clone(), kind, presence)),
            (None, FieldKind::Message(inner)) => {
                let inner = columns(schema, inner).into_iter();
                all.extend(
                    inner.map(|(path, kind, presence)| (format!("{}.{path}", field.name), kind, presence)),
                );
            }
            (None, _) => unreachable!("what is no message is a scalar"),
        }
    }
    all
}

fn walk(schema: &Schema, message: usize, columns: &[(String, FieldKind, Presence)]) -> Walk {
    let mut builder = WalkBuilder::new(schema, message);
    for (slot, (path, ..)) in columns.iter().enumerate() {
        let path: Vec<&str> = path.split('.').collect();
        builder.column(&path, slot).expect("it is the path of a scalar");
    }
    builder.build()
}

// ---- messages --------------------------------------------------------------------------------------------------

fn varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

fn number(rng: &mut Rng) -> u64 {
    match rng.below(6) {
        0 => 0,
        1 => 1,
        2 => 5,
        3 => (-3_i64) as u64,
        4 => rng.below(100),
        _ => rng.next() >> rng.below(64),
    }
}

/// Fields of a message in any order and number, mixed with insignificant ones.
fn message(rng: &mut Rng, schema: &Schema, at: usize, depth: usize, out: &mut Vec<u8>) {
    for _ in 0..rng.below(8) {
        let field = rng.of(&schema.messages[at].fields);
        let wire_type = match field.kind {
            _ if rng.one_in(24) => *rng.of(&[0, 1, 2, 5]),
            FieldKind::Message(_) if field.is_delimited => 3,
            FieldKind::Message(_) | FieldKind::String | FieldKind::Bytes => 2,
            FieldKind::Fixed32 | FieldKind::Sfixed32 | FieldKind::Float => 5,
            FieldKind::Fixed64 | FieldKind::Sfixed64 | FieldKind::Double => 1,
            _ => 0,
        };
        let tag_number = if rng.one_in(20) { 17_000 } else { u64::from(field.number) };
        varint(out, tag_number << 3 | wire_type);
        let mut inner = Vec::new();
        match field.kind {
            FieldKind::Message(of) if depth < 4 => message(rng, schema, of, depth + 1, &mut inner),
            FieldKind::String if !rng.one_in(30) => inner.extend(rng.of(&["", "a", "\u{e9}t\u{e9}"]).bytes()),
            FieldKind::String | FieldKind::Bytes => {
                inner.extend(rng.of(&[&b"\xff\xfe"[..], b"", b"abc"]).iter())
            }
            _ => varint(&mut inner, number(rng)),
        }
        match wire_type {
            0 => varint(out, number(rng)),
            1 => out.extend(number(rng).to_le_bytes()),
            2 => {
                varint(out, inner.len() as u64);
                out.extend(inner);
            }
            3 => {
                if matches!(field.kind, FieldKind::Message(_)) {
                    out.extend(inner);
                }
                varint(out, tag_number << 3 | 4);
            }
            _ => out.extend(&number(rng).to_le_bytes()[..4]),
        }
    }
}

fn damage(rng: &mut Rng, bytes: &mut Vec<u8>) {
    let at = rng.below(bytes.len() as u64 + 1) as usize;
    match rng.below(3) {
        0 => bytes.truncate(at),
        1 => bytes.insert(at, rng.next() as u8),
        _ => bytes.iter_mut().skip(at).take(1).for_each(|byte| *byte ^= 1 << (at % 8)),
    }
}

/// The columns in the format of upb.py.
fn decoded_columns(
    walk: &Walk,
    columns: &[(String, FieldKind, Presence)],
    bytes: &[u8],
) -> Result<String, Reason> {
    let (mut slots, mut present) = ([Slot::default(); SLOTS_MAX], InputSet::EMPTY);
    walk.run(bytes, &mut slots, &mut present).map_err(|malformed| malformed.reason)?;
    let texts = columns.iter().enumerate().map(|(slot, (_, kind, presence))| {
        let Slot { a, b } = slots[slot];
        match kind {
            _ if *presence == Presence::Explicit && !present.contains(slot) => "-".to_owned(),
            FieldKind::String | FieldKind::Bytes => format!("x{}", hex(&bytes[a as usize..][..b as usize])),
            FieldKind::Float | FieldKind::Double => float(f64::from_bits(a)),
            FieldKind::Uint64 | FieldKind::Fixed64 => a.to_string(),
            _ => (a as i64).to_string(),
        }
    });
    Ok(texts.collect::<Vec<_>>().join(" "))
}

/// A float in Python's format, for the numbers that are compared: by their bits.
fn float(value: f64) -> String {
    format!("f{:016x}", if value.is_nan() { f64::NAN.to_bits() } else { value.to_bits() })
}

/// The output of upb.py, with floating point in the format of [`float`].
fn normalized(line: &str) -> String {
    let is_float = |word: &str| word.contains(['.', 'n', 'e']) && !word.starts_with('x');
    let normal = |word: &str| match word.parse::<f64>() {
        Ok(value) if is_float(word) => float(value),
        _ => word.to_owned(),
    };
    line.split(' ').map(normal).collect::<Vec<_>>().join(" ")
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).expect("it is hex"))
        .collect()
}

/// A new value for a column of this kind, in the format of upb.py; `None` clears it.
fn new_value(rng: &mut Rng, kind: FieldKind) -> Option<(u64, String)> {
    (!rng.one_in(3)).then(|| match kind {
        FieldKind::Bool => (1, "1".to_owned()),
        FieldKind::String | FieldKind::Bytes => (0, format!("x{}", hex("n\u{e9}w".as_bytes()))),
        FieldKind::Float | FieldKind::Double => (2.5_f64.to_bits(), "2.5".to_owned()),
        FieldKind::Enum(_) => (5, "5".to_owned()),
        _ => {
            let value = rng.below(1000);
            (value, value.to_string())
        }
    })
}

// ---- the test --------------------------------------------------------------------------------------------------

/// A query, its text for people, and the expected answer.
enum Query {
    Schema(Schema, String),
    Read { found: Result<String, Reason>, shown: String },
    Written { shown: String },
}

fn environment(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

#[test]
fn random_messages_match_upb() {
    // If this fails, an access rule sees another value than the server behind it.
    let modules = ["-c", "import google.protobuf, grpc_tools.protoc"];
    let has_upb = Command::new("python3").args(modules).stderr(Stdio::null()).status();
    if !has_upb.is_ok_and(|status| status.success()) {
        eprintln!("skipped: python3 has no packages `protobuf` and `grpcio-tools`");
        return;
    }
    let mut rng = Rng(environment("WEFT_UPB_SEED", 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut input, mut asked) = (String::new(), Vec::new());
    for _ in 0..environment("WEFT_UPB_SCHEMAS", 12) {
        let text = proto(&mut rng);
        let schema = compiled(&text);
        let root = schema.message("p.M").expect("it is declared");
        let mut columns = columns(&schema, root);
        while columns.len() > SLOTS_MAX || columns.len() > 1 && rng.one_in(4) {
            let at = rng.below(columns.len() as u64) as usize;
            columns.swap_remove(at);
        }
        let _ = writeln!(input, "S {}", hex(text.as_bytes()));
        asked.push(Query::Schema(schema.clone(), text.clone()));
        if columns.is_empty() {
            continue;
        }
        let walk = walk(&schema, root, &columns);
        let paths: Vec<&str> = columns.iter().map(|(path, ..)| path.as_str()).collect();
        let paths = paths.join(",");
        for _ in 0..MESSAGES {
            let mut bytes = Vec::new();
            message(&mut rng, &schema, root, 0, &mut bytes);
            if rng.one_in(3) {
                damage(&mut rng, &mut bytes);
            }
            let found = decoded_columns(&walk, &columns, &bytes);
            let shown = format!("{} with {paths} of\n{text}", hex(&bytes));
            let _ = writeln!(input, "R {} {paths}", hex(&bytes));
            let is_sound = found.is_ok();
            asked.push(Query::Read { found, shown });
            let slot = rng.below(columns.len() as u64) as usize;
            let (path, kind, _) = &columns[slot];
            let value = new_value(&mut rng, *kind);
            let edit = match (&value, kind) {
                (None, _) => EditValue::Clear,
                (Some(_), FieldKind::String | FieldKind::Bytes) => EditValue::Bytes("n\u{e9}w".as_bytes()),
                (Some((bits, _)), _) => EditValue::Bits(*bits),
            };
            let mut written = Vec::new();
            match walk.rewrite(&bytes, &[(slot, edit)], &mut written) {
                Ok(()) if is_sound => {}
                Ok(()) | Err(EditError::Malformed(_)) => continue,
                Err(why) => panic!("{why}: {path} of {text}"),
            }
            let value = value.map_or("-".to_owned(), |(_, value)| value);
            let _ = writeln!(input, "W {} {} {path} {value} {paths}", hex(&bytes), hex(&written));
            let shown = format!("{path} = {value} in {} gave {} of\n{text}", hex(&bytes), hex(&written));
            asked.push(Query::Written { shown });
        }
    }
    check(&asked, &answers(input));
}

/// The answers of upb.py to these lines.
fn answers(input: String) -> Vec<String> {
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/upb.py");
    let mut python = Command::new("python3");
    python.arg(script).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut python = python.spawn().expect("it was there before");
    let mut stdin = python.stdin.take().expect("it is a pipe");
    let writer = std::thread::spawn(move || stdin.write_all(input.as_bytes()));
    let done = python.wait_with_output().expect("it ends");
    writer.join().expect("it does not panic").expect("it is read to its end");
    assert!(done.status.success(), "upb.py ends well");
    String::from_utf8(done.stdout).expect("it writes text").lines().map(str::to_owned).collect()
}

fn check(asked: &[Query], answers: &[String]) {
    assert_eq!(asked.len(), answers.len());
    let (mut n_read, mut n_refused) = (0, 0);
    for (asked, answer) in asked.iter().zip(answers) {
        match asked {
            Query::Schema(schema, text) => {
                let theirs = from_descriptors(&unhex(answer)).expect("protoc wrote it");
                assert_eq!(*schema, theirs, "{text}");
            }
            Query::Read { found: Ok(found), shown } if answer != "refused" => {
                n_read += 1;
                // NaN has many bit patterns, and Python prints one.
                assert_eq!(*found, normalized(answer), "{shown}");
            }
            // Strings must be UTF-8 in any syntax. Excess padding is refused, and so is field 0 in an unknown group.
            Query::Read { found: Err(reason), shown } if answer != "refused" => {
                let is_stricter = matches!(
                    reason,
                    Reason::Utf8 | Reason::VarintTooLong | Reason::TagTooLarge | Reason::FieldZero
                );
                assert!(is_stricter, "{reason:?}, and upb reads {answer}: {shown}");
            }
            // upb also checks fields that no column reads.
            Query::Read { .. } => n_refused += 1,
            Query::Written { shown } => {
                let is_same = answer == "same" || answer == "refused" || answer.contains("not UTF-8");
                assert!(is_same, "{answer}: {shown}");
            }
        }
    }
    assert!(n_read > n_refused, "most messages are sound: {n_read} are, and {n_refused} are not");
}
