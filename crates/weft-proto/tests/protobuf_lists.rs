//! Compares lists, map entries and presence with a simple full decoder.

use std::collections::BTreeMap;

use weft_core::abi::Slot;
use weft_core::inputs::InputSet;
use weft_core::list::{CELL_BYTES, EntryKey, HEAD_BYTES};
use weft_core::rng::Rng;
use weft_core::schema::{Enum, Field, FieldKind, Message, Presence, Schema};
use weft_proto::session::grpc::protobuf::{Lists, ListsBuilder, Malformed};

/// Maximum number of elements of a list.
const MAX: u64 = 4;

fn schema() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
    let root = vec![
        Field::new("lines", 1, F::Message(1), Repeated),
        Field::new("codes", 2, F::Sint32, Repeated),
        Field::new("map", 3, F::Message(2), Repeated),
        Field { oneof: Some(0), ..Field::new("parcel", 4, F::Message(3), Explicit) },
        Field { oneof: Some(0), ..Field::new("letter", 5, F::Bytes, Explicit) },
        Field::new("sub", 6, F::Message(4), Explicit),
    ];
    let line = vec![
        Field::new("qty", 1, F::Int32, Implicit),
        Field::new("sku", 2, F::Bytes, Explicit),
        Field::new("sub", 3, F::Message(4), Explicit),
    ];
    let entry = vec![Field::new("key", 1, F::Uint32, Implicit), Field::new("value", 2, F::Bytes, Implicit)];
    let parcel = vec![Field::new("lines", 1, F::Message(1), Repeated)];
    let sub = vec![Field::new("codes", 1, F::Fixed32, Repeated), Field::new("n", 2, F::Int32, Explicit)];
    Schema {
        messages: vec![
            Message::new("Root", root),
            Message::new("Line", line),
            Message { is_map_entry: true, ..Message::new("Entry", entry) },
            Message::new("Parcel", parcel),
            Message::new("Sub", sub),
        ],
        ..Schema::default()
    }
}

// ---- the reference decoder -------------------------------------------------------------------------------------

#[derive(Debug)]
enum Value {
    Varint(u64),
    Fixed32(u32),
    Bytes(Vec<u8>),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let byte = bytes[0];
        *bytes = &bytes[1..];
        value |= u64::from(byte & 127) << shift;
        if byte < 128 {
            break;
        }
    }
    value
}

fn fields(mut bytes: &[u8]) -> Vec<(u64, Value)> {
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let tag = varint(&mut bytes);
        let value = match tag & 7 {
            0 => Value::Varint(varint(&mut bytes)),
            1 => {
                bytes = &bytes[8..];
                continue;
            }
            5 => {
                let (head, rest) = bytes.split_at(4);
                bytes = rest;
                Value::Fixed32(u32::from_le_bytes(head.try_into().expect("four bytes")))
            }
            _ => {
                let len = varint(&mut bytes) as usize;
                let (head, rest) = bytes.split_at(len);
                bytes = rest;
                Value::Bytes(head.to_vec())
            }
        };
        found.push((tag >> 3, value));
    }
    found
}

#[derive(Clone, Debug, Default)]
struct OrderLine {
    qty: i32,
    sku: Option<Vec<u8>>,
    n: Option<i32>,
}

#[derive(Debug, Default)]
struct Root {
    lines: Vec<OrderLine>,
    codes: Vec<i32>,
    map: BTreeMap<u32, Vec<u8>>,
    parcel: Option<Vec<OrderLine>>,
    has_sub: bool,
    sub_codes: Vec<u32>,
}

fn line(bytes: &[u8]) -> OrderLine {
    let mut line = OrderLine::default();
    for field in fields(bytes) {
        match field {
            (1, Value::Varint(n)) => line.qty = n as i32,
            (2, Value::Bytes(bytes)) => line.sku = Some(bytes),
            (3, Value::Bytes(bytes)) => {
                for field in fields(&bytes) {
                    if let (2, Value::Varint(n)) = field {
                        line.n = Some(n as i32);
                    }
                }
            }
            _ => {}
        }
    }
    line
}

fn unzigzag(n: u64) -> i32 {
    let n = n as u32;
    (n >> 1) as i32 ^ -((n & 1) as i32)
}

fn decode(bytes: &[u8]) -> Root {
    let mut root = Root::default();
    for field in fields(bytes) {
        match field {
            (1, Value::Bytes(bytes)) => root.lines.push(line(&bytes)),
            (2, Value::Varint(n)) => root.codes.push(unzigzag(n)),
            (2, Value::Bytes(bytes)) => {
                let mut rest = &bytes[..];
                while !rest.is_empty() {
                    root.codes.push(unzigzag(varint(&mut rest)));
                }
            }
            (3, Value::Bytes(bytes)) => {
                let (mut key, mut value) = (0, Vec::new());
                for field in fields(&bytes) {
                    match field {
                        (1, Value::Varint(n)) => key = n as u32,
                        (2, Value::Bytes(bytes)) => value = bytes,
                        _ => {}
                    }
                }
                root.map.insert(key, value);
            }
            (4, Value::Bytes(bytes)) => {
                let lines = root.parcel.get_or_insert_default();
                for field in fields(&bytes) {
                    if let (1, Value::Bytes(bytes)) = field {
                        lines.push(line(&bytes));
                    }
                }
            }
            (5, Value::Bytes(_)) => root.parcel = None,
            (6, Value::Bytes(bytes)) => {
                root.has_sub = true;
                for field in fields(&bytes) {
                    match field {
                        (1, Value::Fixed32(n)) => root.sub_codes.push(n),
                        (1, Value::Bytes(bytes)) => {
                            let words = bytes.chunks(4).map(|word| word.try_into().expect("four bytes"));
                            root.sub_codes.extend(words.map(u32::from_le_bytes));
                        }
                        _ => {}
                    }
                }
            }
            _ => {}
        }
    }
    root
}

// ---- random messages -------------------------------------------------------------------------------------------

fn put_varint(out: &mut Vec<u8>, mut n: u64) {
    while n >= 128 {
        out.push(n as u8 | 128);
        n >>= 7;
    }
    out.push(n as u8);
}

fn put_bytes(out: &mut Vec<u8>, number: u64, bytes: &[u8]) {
    put_varint(out, number << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_number(out: &mut Vec<u8>, number: u64, n: u64) {
    put_varint(out, number << 3);
    put_varint(out, n);
}

fn random(rng: &mut Rng, n_fields: usize, field: fn(&mut Rng, &mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    for _ in 0..rng.below(n_fields + 1) {
        match rng.percent(15) {
            // An unknown field, and a known one with another wire type.
            true if rng.percent(50) => put_bytes(&mut out, 9, b"?"),
            true => out.extend_from_slice(&[1 << 3 | 1, 1, 2, 3, 4, 5, 6, 7, 8]),
            false => field(rng, &mut out),
        }
    }
    out
}

fn sub(rng: &mut Rng, out: &mut Vec<u8>) {
    let word = (rng.below(9) as u32).to_le_bytes();
    match rng.below(3) {
        0 => {
            out.push(1 << 3 | 5);
            out.extend_from_slice(&word);
        }
        1 => put_bytes(out, 1, &[word, word].concat()),
        _ => put_number(out, 2, rng.below(200) as u64),
    }
}

fn random_line(rng: &mut Rng, out: &mut Vec<u8>) {
    match rng.below(3) {
        0 => put_number(out, 1, rng.below(300) as u64),
        1 => put_bytes(out, 2, &b"abc"[..rng.below(4)]),
        _ => {
            let inner = random(rng, 2, sub);
            put_bytes(out, 3, &inner);
        }
    }
}

fn entry(rng: &mut Rng, out: &mut Vec<u8>) {
    match rng.percent(50) {
        true => put_number(out, 1, rng.below(4) as u64),
        false => put_bytes(out, 2, &b"xyz"[..rng.below(4)]),
    }
}

fn parcel(rng: &mut Rng, out: &mut Vec<u8>) {
    let inner = random(rng, 3, random_line);
    put_bytes(out, 1, &inner);
}

fn root(rng: &mut Rng, out: &mut Vec<u8>) {
    let (number, inner) = match rng.below(7) {
        0 => (1, random(rng, 3, random_line)),
        1 => return put_number(out, 2, rng.below(9) as u64),
        2 => (2, (0..rng.below(3)).map(|_| rng.below(100) as u8).collect()),
        3 => (3, random(rng, 3, entry)),
        4 => (4, random(rng, 2, parcel)),
        5 => (5, b"l".to_vec()),
        _ => (6, random(rng, 2, sub)),
    };
    put_bytes(out, number, &inner);
}

// ---- the comparison --------------------------------------------------------------------------------------------

fn lists(schema: &Schema) -> Lists {
    let mut builder = ListsBuilder::new(schema, 0);
    let members = [vec!["qty"], vec!["sku"], vec!["sub", "n"]];
    builder.list(&["lines"], &members, MAX, 0).expect("a list");
    builder.list(&["codes"], &[Vec::new()], MAX, 1).expect("a list");
    builder.list(&["map"], &[vec!["value"], vec!["key"]], MAX, 2).expect("a map");
    builder.list(&["parcel", "lines"], &members, MAX, 3).expect("a list");
    builder.list(&["sub", "codes"], &[Vec::new()], MAX, 4).expect("a list");
    builder.present(&["sub"], 5).expect("a message");
    builder.present(&["parcel"], 6).expect("a message");
    builder.value(&["map"], EntryKey::Number(2), 7).expect("a map");
    builder.build()
}

/// The cells of a list, or its length if that exceeds the limit.
fn read(text: &[u8], slot: Slot, is_bytes: &[bool]) -> Result<Vec<Vec<Option<Vec<u8>>>>, u64> {
    let list = &text[slot.a as usize..][..slot.b as usize];
    let word = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().expect("eight bytes"));
    let n = word(0);
    if n > MAX {
        assert_eq!(list.len(), HEAD_BYTES);
        return Err(n);
    }
    let cell = |element: u64, member: usize| {
        let at = HEAD_BYTES + (element as usize * is_bytes.len() + member) * CELL_BYTES;
        let (a, b) = (word(at), word(at + 8));
        (b & 1 != 0).then(|| match is_bytes[member] {
            true => list[a as usize..][..(b >> 1) as usize].to_vec(),
            false => a.to_le_bytes().to_vec(),
        })
    };
    Ok((0..n).map(|element| (0..is_bytes.len()).map(|member| cell(element, member)).collect()).collect())
}

fn number(n: i64) -> Option<Vec<u8>> {
    Some(n.to_le_bytes().to_vec())
}

fn of_lines(lines: &[OrderLine]) -> Vec<Vec<Option<Vec<u8>>>> {
    let cells = |line: &OrderLine| {
        vec![number(line.qty.into()), line.sku.clone(), line.n.and_then(|n| number(n.into()))]
    };
    lines.iter().map(cells).collect()
}

/// The list, or its length if that exceeds the limit.
fn bounded(all: Vec<Vec<Option<Vec<u8>>>>) -> Result<Vec<Vec<Option<Vec<u8>>>>, u64> {
    if all.len() as u64 > MAX { Err(all.len() as u64) } else { Ok(all) }
}

#[test]
fn random_lists_match_decoder() {
    // If this fails, a rule is evaluated on other elements than the server sees.
    let schema = schema();
    let lists = lists(&schema);
    assert_eq!(lists.mask(), (0..8_usize).collect());
    let (mut n_too_many, mut n_displaced) = (0, 0);
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let payload = random(&mut rng, 20, root);
        let wanted = decode(&payload);
        let (mut slots, mut present, mut text) = ([Slot::default(); 8], InputSet::EMPTY, b"before".to_vec());
        lists.run(&payload, &mut slots, &mut present, &mut text).expect("it is well-formed");
        let found = |slot: usize, is_bytes: &[bool]| read(&text, slots[slot], is_bytes);
        let line_bytes = [false, true, false];
        assert_eq!(found(0, &line_bytes), bounded(of_lines(&wanted.lines)), "seed {seed}");
        let codes = wanted.codes.iter().map(|n| vec![number((*n).into())]).collect();
        assert_eq!(found(1, &[false]), bounded(codes), "seed {seed}");
        match found(2, &[true, false]) {
            Ok(mut entries) => {
                // The order of map entries does not matter.
                entries.sort_by_key(|entry| entry[1].clone());
                let mut all: Vec<_> = wanted
                    .map
                    .iter()
                    .map(|(key, value)| vec![Some(value.clone()), number((*key).into())])
                    .collect();
                all.sort_by_key(|entry| entry[1].clone());
                assert_eq!(entries, all, "seed {seed}");
            }
            Err(_) => assert!(wanted.map.len() as u64 > MAX, "seed {seed}"),
        }
        let parcel = wanted.parcel.clone().unwrap_or_default();
        assert_eq!(found(3, &line_bytes), bounded(of_lines(&parcel)), "seed {seed}");
        let codes = wanted.sub_codes.iter().map(|n| vec![number((*n).into())]).collect();
        assert_eq!(found(4, &[false]), bounded(codes), "seed {seed}");
        assert_eq!((slots[5].a, slots[6].a), (wanted.has_sub.into(), wanted.parcel.is_some().into()));
        let value =
            present.contains(7_usize).then(|| payload[slots[7].a as usize..][..slots[7].b as usize].to_vec());
        assert_eq!(value, wanted.map.get(&2).cloned(), "seed {seed}");
        n_too_many += usize::from(wanted.lines.len() as u64 > MAX);
        let has_parcel = fields(&payload).iter().any(|(number, _)| *number == 4);
        n_displaced += usize::from(wanted.parcel.is_none() && has_parcel);
    }
    assert!(n_too_many > 100 && n_displaced > 100, "{n_too_many} and {n_displaced}");
}

#[test]
fn damaged_list_never_panics() {
    // If this fails, bytes from a peer panic the worker.
    let schema = schema();
    let lists = lists(&schema);
    let mut n_refused = 0;
    for seed in 0..20_000 {
        let mut rng = Rng::from_seed(seed);
        let mut payload = random(&mut rng, 8, root);
        for _ in 0..1 + rng.below(3) {
            if let Some(byte) = payload.len().checked_sub(1).map(|last| rng.below(last + 1)) {
                payload[byte] ^= 1 << rng.below(8);
            }
        }
        payload.truncate(payload.len().saturating_sub(rng.below(3)));
        let (mut slots, mut present, mut text) = ([Slot::default(); 8], InputSet::EMPTY, Vec::new());
        n_refused += usize::from(lists.run(&payload, &mut slots, &mut present, &mut text).is_err());
    }
    assert!(n_refused > 1000, "{n_refused}");
}

/// `Root { repeated Color colors = 1; map<uint32, Color> by_id = 2; oneof o { Sub sub = 3; Color mood = 4; }
/// repeated group line = 5 { int32 qty = 1; } }`, `Sub { repeated int32 codes = 1; }` as a group, and a closed
/// `Color { RED = 0; GREEN = 2; }`.
fn closed_and_delimited() -> Schema {
    use FieldKind as F;
    use Presence::{Explicit, Implicit, Repeated};
    let root = vec![
        Field::new("colors", 1, F::Enum(0), Repeated),
        Field::new("by_id", 2, F::Message(1), Repeated),
        Field { oneof: Some(0), is_delimited: true, ..Field::new("sub", 3, F::Message(2), Explicit) },
        Field { oneof: Some(0), ..Field::new("mood", 4, F::Enum(0), Explicit) },
        Field { is_delimited: true, ..Field::new("line", 5, F::Message(3), Repeated) },
    ];
    let entry = vec![Field::new("key", 1, F::Uint32, Implicit), Field::new("value", 2, F::Enum(0), Implicit)];
    let color = Enum {
        name: "Color".to_owned(),
        values: vec![("RED".to_owned(), 0), ("GREEN".to_owned(), 2)],
        is_closed: true,
    };
    Schema {
        messages: vec![
            Message::new("Root", root),
            Message { is_map_entry: true, ..Message::new("Entry", entry) },
            Message::new("Sub", vec![Field::new("codes", 1, F::Int32, Repeated)]),
            Message::new("Line", vec![Field::new("qty", 1, F::Int32, Implicit)]),
        ],
        enums: vec![color],
        ..Schema::default()
    }
}

#[test]
fn closed_enums_and_groups_match_upb() {
    // If this fails, a rule sees elements that the server does not have, or misses those of a group.
    let schema = closed_and_delimited();
    let mut builder = ListsBuilder::new(&schema, 0);
    builder.list(&["colors"], &[Vec::new()], MAX, 0).expect("a list");
    builder.list(&["by_id"], &[vec!["key"], vec!["value"]], MAX, 1).expect("a map");
    builder.list(&["sub", "codes"], &[Vec::new()], MAX, 2).expect("a list");
    builder.list(&["line"], &[vec!["qty"]], MAX, 3).expect("a list");
    builder.present(&["sub"], 4).expect("a message");
    let lists = builder.build();
    let found = |payload: &[u8]| {
        let (mut slots, mut present, mut text) = ([Slot::default(); 5], InputSet::EMPTY, Vec::new());
        lists.run(payload, &mut slots, &mut present, &mut text)?;
        let numbers = |slot: usize, n_members: usize| {
            let rows = read(&text, slots[slot], &vec![false; n_members]).expect("few");
            let cell = |cell: Option<Vec<u8>>| cell.map(|cell| i64::from_le_bytes(cell.try_into().unwrap()));
            rows.into_iter().flatten().map(cell).collect::<Option<Vec<i64>>>().expect("all are there")
        };
        Ok::<_, Malformed>((numbers(0, 1), numbers(1, 2), numbers(2, 1), numbers(3, 1), slots[4].a == 1))
    };
    let empty = || (vec![], vec![], vec![], vec![], false);
    let (sub, end_sub, line, end_line) = (0x1b, 0x1c, 0x2b, 0x2c);
    for (payload, wanted) in [
        // RED, 1 (unknown), and packed GREEN, 7 (unknown), RED.
        (&[0x08, 0, 0x08, 1, 0x0a, 3, 2, 7, 0][..], (vec![0, 2, 0], vec![], vec![], vec![], false)),
        // Entries 5: GREEN, 6: 9 (unknown), and 7 without a value.
        (
            &[0x12, 4, 8, 5, 16, 2, 0x12, 4, 8, 6, 16, 9, 0x12, 2, 8, 7],
            (vec![], vec![5, 2, 7, 0], vec![], vec![], false),
        ),
        // A group in a oneof with a list in it, in two parts, and a member whose value is unknown.
        (
            &[sub, 8, 1, end_sub, sub, 0x0a, 2, 2, 3, end_sub, 0x20, 9],
            (vec![], vec![], vec![1, 2, 3], vec![], true),
        ),
        // The same with a known value.
        (&[sub, 8, 1, end_sub, 0x20, 2], empty()),
        // Repeated groups, one of them with an unknown group and an unknown field.
        (
            &[line, 8, 5, 0x4b, 8, 9, 0x4c, 0x78, 1, end_line, line, end_line],
            (vec![], vec![], vec![], vec![5, 0], false),
        ),
    ] {
        assert_eq!(found(payload), Ok(wanted), "{payload:x?}");
    }
    for damaged in [&[sub, 8, 1][..], &[sub, 8, 1, end_line], &[line, 8, end_line], &[0x12, 3, 8, 5, 16]] {
        assert!(found(damaged).is_err(), "{damaged:x?}");
    }
}
