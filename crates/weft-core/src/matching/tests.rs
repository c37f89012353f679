use super::*;
use crate::hash::HashKey;
use crate::rng::Rng;
use crate::table::{ColumnSpec, Insert, TableSpec};
use crate::types::Value;

const NET: u16 = 2;
const PROTO: u16 = 3;
const LOW: u16 = 4;
const HIGH: u16 = 5;
const DELTA: u16 = 6;
const NAME: u16 = 7;
const MASK: u16 = 8;
const BITS: u16 = 9;

fn spec() -> TableSpec {
    let column = |name: &str, ty, nullable| ColumnSpec { nullable, ..ColumnSpec::new(name, ty) };
    let columns = vec![
        column("priority", Type::Int(16), true),
        column("net", Type::Cidr, true),
        column("proto", Type::Uint(8), true),
        column("low", Type::Uint(16), false),
        column("high", Type::Uint(16), true),
        column("delta", Type::Int(8), true),
        column("name", Type::Text(Some(8)), true),
        column("mask", Type::Uint(8), true),
        column("bits", Type::Uint(16), true),
    ];
    TableSpec::new("rules", vec![column("id", Type::Int(32), false)], columns, 10_000)
}

fn table(rows: &[Vec<Value>]) -> Arc<Table> {
    let table = Table::new(spec(), HashKey::from_seed(1));
    table.add_rows(rows, Time(0));
    assert_eq!(table.len(), rows.len() as u64, "keys differ");
    Arc::new(table)
}

fn net(rng: &mut Rng, lengths: &[usize]) -> Value {
    let bytes = rng.pick(lengths);
    let mut net: Vec<u8> = (0..bytes).map(|at| if at < 2 { rng.below(3) as u8 } else { 0 }).collect();
    net.push(rng.pick(&[0, 7, 8, 14, 16, 32, 33]));
    Value::Bytes(net)
}

fn or_null(rng: &mut Rng, value: Value) -> Value {
    if rng.below(4) == 0 { Value::Null } else { value }
}

fn row(rng: &mut Rng, id: i64, lengths: &[usize]) -> Vec<Value> {
    let priority = Value::Int(rng.below(6) as i64 - 3);
    let (net, proto) = (net(rng, lengths), Value::Int(rng.pick(&[0, 6, 17, 255])));
    let low = rng.pick(&[0, 80, 1024, 65_535]);
    let high = Value::Int(rng.pick(&[80, 1023, 65_534, 65_535]));
    let delta = Value::Int(rng.pick(&[-128, -1, 0, 127]));
    let name = Value::text(rng.pick(&["", "a", "ab", "b"]));
    let mask = Value::Int(rng.pick(&[0, 2, 0x12, 0x81, 255]));
    let bits = Value::Int(rng.pick(&[0, 2, 0x10, 0x80, 0x12, 256]));
    let values = [priority, net, proto, Value::Int(low), high, delta, name, mask, bits];
    let mut row = vec![Value::Int(id - 50)];
    row.extend(values.into_iter().enumerate().map(|(at, v)| if at == 3 { v } else { or_null(rng, v) }));
    row
}

fn parts(rng: &mut Rng) -> Vec<MatchPart> {
    let part = |test, wildcard, ty, nullable| MatchPart { test, wildcard, ty, nullable };
    let all = [
        part(Test::Within(NET), Some(NET), Type::IpAddr, true),
        part(Test::Equal(PROTO), Some(PROTO), Type::Uint(8), false),
        part(Test::Range { low: Some(LOW), high: Some(HIGH) }, Some(HIGH), Type::Uint(16), false),
        part(Test::Range { low: Some(LOW), high: None }, None, Type::Uint(16), true),
        part(Test::Range { low: None, high: Some(DELTA) }, Some(DELTA), Type::Int(8), true),
        part(Test::Equal(NAME), Some(NAME), Type::Text(None), true),
        part(Test::Equal(DELTA), None, Type::Int(8), false),
        part(Test::Masked { mask: MASK, bits: BITS }, Some(MASK), Type::Uint(8), true),
    ];
    let mut chosen: Vec<MatchPart> = all.into_iter().filter(|_| rng.below(2) == 0).collect();
    for part in &mut chosen {
        if rng.below(4) == 0 {
            part.wildcard = None;
        }
    }
    if chosen.is_empty() { vec![all[0]] } else { chosen }
}

/// The definition of a match: a walk through the rows in order.
fn first(spec: &MatchSpec, rows: &[Vec<Value>], keys: &[Value]) -> Option<i64> {
    let rank = |row: &Vec<Value>| match (&row[usize::from(spec.by)], &row[0]) {
        (Value::Int(by), Value::Int(id)) => (false, if spec.descending { -by } else { *by }, *id),
        (_, Value::Int(id)) => (true, 0, *id),
        _ => panic!("a key is a number"),
    };
    let matching =
        rows.iter().filter(|row| spec.parts.iter().zip(keys).all(|(part, key)| holds(part, row, key)));
    matching.map(rank).min().map(|(.., id)| id)
}

fn holds(part: &MatchPart, row: &[Value], key: &Value) -> bool {
    let at = |column: u16| &row[usize::from(column)];
    if part.wildcard.is_some_and(|column| *at(column) == Value::Null) {
        return true;
    }
    match (part.test, key) {
        (Test::Equal(column), key) => *key != Value::Null && at(column) == key,
        (Test::Range { low, high }, Value::Int(key)) => {
            let above = low.is_none_or(|low| matches!(at(low), Value::Int(low) if low <= key));
            above && high.is_none_or(|high| matches!(at(high), Value::Int(high) if key <= high))
        }
        (Test::Masked { mask, bits }, Value::Int(key)) => match (at(mask), at(bits)) {
            (Value::Int(mask), Value::Int(bits)) => key & mask == *bits,
            _ => false,
        },
        (Test::Within(column), Value::Bytes(address)) => {
            let Value::Bytes(net) = at(column) else { return false };
            let (len, net) = net.split_last().expect("a network has a length");
            let bit = |bytes: &[u8], at: usize| bytes[at / 8] >> (7 - at % 8) & 1;
            net.len() == address.len()
                && usize::from(*len) <= net.len() * 8
                && (0..usize::from(*len)).all(|at| bit(net, at) == bit(address, at))
        }
        _ => false,
    }
}

fn key(rng: &mut Rng, part: &MatchPart) -> Value {
    let value = match part.ty {
        Type::IpAddr => {
            let Value::Bytes(mut address) = net(rng, &[4, 16]) else { panic!("an address is bytes") };
            address.pop();
            // A value that is no address is in no network.
            if rng.below(20) == 0 {
                address.pop();
            }
            Value::Bytes(address)
        }
        Type::Uint(8) => Value::Int(rng.pick(&[0, 2, 5, 6, 7, 0x12, 17, 0x80, 254, 255])),
        Type::Uint(_) => Value::Int(rng.pick(&[0, 79, 80, 81, 1023, 1024, 65_534, 65_535])),
        Type::Int(_) => Value::Int(rng.pick(&[-128, -127, -2, -1, 0, 1, 126, 127])),
        _ => Value::text(rng.pick(&["", "a", "ab", "abc", "c"])),
    };
    if part.nullable { or_null(rng, value) } else { value }
}

fn found(matcher: &Matcher, table: &Table, keys: &[Value]) -> Option<i64> {
    let row = matcher.find(|at| match &keys[at] {
        Value::Bytes(bytes) => Key::Bytes(bytes),
        Value::Int(n) => Key::Word(*n as u64),
        _ => Key::Null,
    });
    let id = table.column("id").expect("the key");
    row.is_some().then(|| table.word(row, id) as i64)
}

#[test]
fn match_equals_full_walk() {
    // If a matcher and the walk differ, compiled code does not follow the program.
    let mut rng = Rng::from_seed(0);
    for round in 0..150 {
        let lengths = [&[4][..], &[16], &[4, 16]][round % 3];
        let n_rows = rng.pick(&[0, 1, 8, 100]);
        let rows: Vec<_> = (0..n_rows).map(|id| row(&mut rng, id, lengths)).collect();
        let table = table(&rows);
        let spec = MatchSpec { by: 1, descending: rng.below(2) == 0, parts: parts(&mut rng) };
        assert!(spec.is_sound());
        let matcher = Matcher::new(&spec, &table).unwrap();
        for _ in 0..100 {
            let keys: Vec<Value> = spec.parts.iter().map(|part| key(&mut rng, part)).collect();
            assert_eq!(
                found(&matcher, &table, &keys),
                first(&spec, &rows, &keys),
                "{spec:?} {keys:?} {rows:?}"
            );
        }
    }
}

#[test]
fn full_width_words_match_at_ends() {
    // The key has as few bits as the rows need; at full width there is no spare bit.
    let wide =
        |name: &str, ty, nullable| ColumnSpec { name: name.into(), ty, nullable, default: Value::Null };
    for (ty, ends) in [(Type::Uint(64), [0, u64::MAX]), (Type::Int(64), [1 << 63, u64::MAX >> 1])] {
        for nullable in [false, true] {
            let columns = vec![wide("low", ty, false), wide("high", ty, false)];
            let table = Table::new(TableSpec { columns, ..spec() }, HashKey::from_seed(1));
            let columns: Vec<ColumnRef> = table.columns().map(|(_, at)| at).collect();
            for (id, [low, high]) in (0..).zip([[ends[0], ends[0]], [ends[1], ends[1]], [5, ends[1]]]) {
                let Insert::New(row) = table.insert_int(id, Time(0)) else { panic!("keys differ") };
                table.set_word(row, columns[1], low);
                table.set_word(row, columns[2], high);
            }
            let test = Test::Range { low: Some(1), high: Some(2) };
            let parts = vec![MatchPart { test, wildcard: None, ty, nullable }];
            let spec = MatchSpec { by: 0, descending: false, parts };
            let table = Arc::new(table);
            let matcher = Matcher::new(&spec, &table).unwrap();
            let of = |n: u64| found(&matcher, &table, &[Value::Int(n as i64)]);
            assert_eq!(of(ends[0]), Some(0));
            assert_eq!(of(ends[1]), Some(1));
            assert_eq!([of(4), of(5), of(ends[1] - 1)], [None, Some(2), Some(2)]);
            if nullable {
                assert_eq!(found(&matcher, &table, &[Value::Null]), None);
            }
        }
    }
}

#[test]
fn unfit_spec_is_refused() {
    // The checker relies on this, so that every accepted program has a table that can be built.
    let net = MatchPart { test: Test::Within(NET), wildcard: None, ty: Type::IpAddr, nullable: true };
    let of = |parts| MatchSpec { by: 0, descending: false, parts };
    assert!(of(vec![net; 3]).is_sound());
    assert!(!of(vec![net; 4]).fits());
    assert!(!of(Vec::new()).is_sound());
    assert!(!MatchPart { test: Test::Equal(1), ty: Type::F64, ..net }.is_sound());
    assert!(!MatchPart { wildcard: Some(LOW), ..net }.is_sound());
}

/// Inserts rows and reports them to the matcher; false if it needs a new matcher.
fn insert(table: &Table, matcher: &mut Matcher, rows: &[Vec<Value>]) -> bool {
    let insert = |row: &Vec<Value>| match table.insert_row(row, Time(0)) {
        Insert::New(row) => row,
        other => panic!("{other:?}: the row was removed before"),
    };
    matcher.insert(&rows.iter().map(insert).collect::<Vec<_>>()).is_ok()
}

fn remove(table: &Table, matcher: &mut Matcher, ids: impl Iterator<Item = i64>) {
    let rows: Vec<Row> =
        ids.map(|id| table.find_int(id as u64, Time(0))).filter(|row| row.is_some()).collect();
    matcher.remove(&rows);
    rows.into_iter().for_each(|row| table.remove(row));
}

#[test]
fn batch_insert_keeps_order() {
    // A batch relabels its own rows too: a stale label would let a worse rule decide.
    let part =
        MatchPart { test: Test::Equal(PROTO), wildcard: Some(PROTO), ty: Type::Uint(8), nullable: false };
    let spec = MatchSpec { by: 1, descending: true, parts: vec![part] };
    let table = table(&[]);
    let mut matcher = Matcher::changeable(&spec, &table).unwrap();
    const N: i64 = 4000;
    let row = |id: i64| {
        // Each row between the two previous ones.
        let priority = if id % 2 == 0 { id } else { 2 * N - id };
        let mut row: Vec<Value> = (0..10).map(|_| Value::Null).collect();
        (row[0], row[1], row[4]) = (Value::Int(id), Value::Int(priority), Value::Int(0));
        row
    };
    for ids in (0..N).collect::<Vec<_>>().chunks(64) {
        assert!(insert(&table, &mut matcher, &ids.iter().map(|id| row(*id)).collect::<Vec<_>>()));
    }
    let by_hand = (0..N).filter(|id| id % 2 == 1).chain((0..N).filter(|id| id % 2 == 0).rev());
    for id in by_hand {
        assert_eq!(found(&matcher, &table, &[Value::Int(6)]), Some(id));
        remove(&table, &mut matcher, [id].into_iter());
    }
    assert!(matcher.is_empty());
}

#[test]
fn changing_rows_match_full_walk() {
    // A lost or misordered change lets the wrong rule decide until the next update.
    let mut rng = Rng::from_seed(1);
    let mut n_reshaped = 0;
    for round in 0..60 {
        let lengths = [&[4][..], &[16], &[4, 16]][round % 3];
        let n_rows = rng.pick(&[0, 1, 30]);
        let mut rows: Vec<_> = (0..n_rows).map(|id| row(&mut rng, id, &lengths[..1])).collect();
        let tables = [table(&rows), table(&rows)];
        // Ordered by a value column, and by the key.
        let by = rng.pick(&[0, 1]);
        let spec = MatchSpec { by, descending: rng.below(2) == 0, parts: parts(&mut rng) };
        let changeable = |table| Matcher::changeable(&spec, table).unwrap();
        let twin = |matcher: &Matcher, other: &Arc<Table>| {
            let key = matcher.table().column("id").expect("the key");
            matcher.onto(other, |row| other.find_int(matcher.table().word(row, key), Time(0)))
        };
        let mut both = vec![changeable(&tables[0])];
        both.push(twin(&both[0], &tables[1]));
        let mut built = None;
        for _ in 0..60 {
            // One row, or several at once.
            let least = rng.below(40) as i64;
            let ids = least..least + rng.pick(&[1, 1, 2, 5]);
            rows.retain(|row| !ids.clone().any(|id| row[0] == Value::Int(id - 50)));
            let mut new = Vec::new();
            for id in ids.clone() {
                new.extend((rng.below(3) > 0).then(|| row(&mut rng, id, lengths)));
            }
            let mut fits = true;
            for (table, matcher) in tables.iter().zip(&mut both) {
                remove(table, matcher, ids.clone().map(|id| id - 50));
                fits &= insert(table, matcher, &new);
            }
            rows.extend(new);
            if !fits {
                n_reshaped += 1;
                both[0] = changeable(&tables[0]);
                both[1] = twin(&both[0], &tables[1]);
                built = None;
            }
            match rng.below(8) {
                0 => built = Some(both[0].snapshot().rebuild()),
                1 => {
                    if let Some(built) = &built {
                        let taken = both.iter_mut().map(|matcher| matcher.adopt(built.clone()).is_ok());
                        assert!(taken.collect::<Vec<_>>().iter().all(|taken| *taken));
                    }
                    built = None;
                }
                _ => {}
            }
            for _ in 0..8 {
                let keys: Vec<Value> = spec.parts.iter().map(|part| key(&mut rng, part)).collect();
                let expected = first(&spec, &rows, &keys);
                for (table, matcher) in tables.iter().zip(&both) {
                    assert_eq!(found(matcher, table, &keys), expected, "{spec:?} {keys:?} {rows:?}");
                }
            }
        }
    }
    assert!(n_reshaped > 0, "no row needed more bits");
}

/// Names of removed rows would stay forever, and memory would grow.
#[test]
fn removed_names_are_forgotten() {
    let part =
        MatchPart { test: Test::Equal(NAME), wildcard: None, ty: Type::Text(Some(8)), nullable: false };
    let spec = MatchSpec { by: 0, descending: false, parts: vec![part] };
    let row = |id: i64| {
        let mut row: Vec<Value> = (0..10).map(|_| Value::Null).collect();
        (row[0], row[4], row[7]) = (Value::Int(id), Value::Int(0), Value::text(&format!("{id}")));
        row
    };
    // Enough names to use all bits.
    let rows: Vec<_> = (0..10_000).map(row).collect();
    let table = table(&rows);
    let mut matcher = Matcher::changeable(&spec, &table).unwrap();
    remove(&table, &mut matcher, 100..10_000);
    let mut coming = 10_000..40_000;
    let n_taken = coming.by_ref().take_while(|id| {
        let is_taken = insert(&table, &mut matcher, &[row(*id)]);
        remove(&table, &mut matcher, [*id].into_iter());
        is_taken
    });
    assert!(n_taken.count() < 20_000, "the matcher must be rebuilt");
    matcher = Matcher::changeable(&spec, &table).unwrap();
    assert!(insert(&table, &mut matcher, &[row(50_000)]));
    assert_eq!(found(&matcher, &table, &[Value::text("50000")]), Some(50_000));
    assert_eq!(found(&matcher, &table, &[Value::text("7")]), Some(7));
}
