//! Compares tables with a simple model: with undo, with threads, and at size.

#![expect(clippy::disallowed_methods, reason = "that tables bear several threads is what is tested")]

use proptest::prelude::*;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::abi::{Parts, State};
use weft_core::hash::{HashKey, hash_word};
use weft_core::rng::Rng;
use weft_core::table::{
    ColumnSpec, Evict, ExtendError, ImportError, Insert, Journal, KeyBuilder, LimitsError, RemovalReason,
    Row, STRIPE_ROWS_MAX, Scalars, Scan, Table, TableSpec, jit_layout,
};
use weft_core::{Interval, Time, Type, Value};

fn column(name: &str, ty: Type, default: Value) -> ColumnSpec {
    ColumnSpec { default, ..ColumnSpec::new(name, ty) }
}

fn nullable(name: &str, ty: Type) -> ColumnSpec {
    ColumnSpec { nullable: true, ..ColumnSpec::new(name, ty) }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shape {
    Int,
    Text,
    Pair,
}

/// The secret of keys, where its value does not matter.
const KEY: HashKey = HashKey::from_seed(1);

fn spec(shape: Shape, max_rows: u64) -> TableSpec {
    let (user, item) =
        (column("user", Type::Text(Some(24)), Value::Null), column("item", Type::Int(64), Value::Null));
    let key = match shape {
        Shape::Int => vec![item],
        Shape::Text => vec![user],
        Shape::Pair => vec![user, item],
    };
    let columns = vec![column("hits", Type::Uint(64), Value::Int(7)), nullable("note", Type::Text(Some(20)))];
    TableSpec::new("t", key, columns, max_rows)
}

/// A key of each shape, derived from a small number.
enum Key {
    Word(u64),
    Bytes(Vec<u8>),
}

fn key(shape: Shape, id: u64) -> Key {
    let user = format!("{:.*}{id}", (id % 21) as usize, "a-rather-long-prefix-");
    match shape {
        Shape::Int => Key::Word(id.wrapping_mul(0x1_0000_0001)),
        Shape::Text => Key::Bytes(user.into_bytes()),
        Shape::Pair => {
            let mut key = KeyBuilder::default();
            key.bytes(user.as_bytes()).int(id / 2);
            Key::Bytes(key.as_bytes().to_vec())
        }
    }
}

fn hash(key: &Key) -> u64 {
    match key {
        Key::Word(word) => KEY.hash_word(*word),
        Key::Bytes(bytes) => KEY.hash_bytes(bytes),
    }
}

fn find(table: &Table, key: &Key, now: Time) -> Row {
    match key {
        Key::Word(word) => table.find_int(*word, now),
        Key::Bytes(bytes) => table.find_bytes(bytes, now),
    }
}

fn insert(table: &Table, key: &Key, now: Time) -> Insert {
    match key {
        Key::Word(word) => table.insert_int(*word, now),
        Key::Bytes(bytes) => table.insert_bytes(bytes, now),
    }
}

fn new_row(insert: Insert) -> Row {
    match insert {
        Insert::New(row) => row,
        other => panic!("{other:?}"),
    }
}

#[derive(Clone, Debug, PartialEq)]
struct ModelRow {
    hits: u64,
    note: Option<Vec<u8>>,
    added: Vec<u64>,
    written: i64,
    touched: i64,
    inserted: i64,
}

/// The model of a table: rows by key, with the times of writes, touches and insertions.
#[derive(Clone, Debug)]
struct Model {
    rows: BTreeMap<u64, ModelRow>,
    spec: TableSpec,
    added: usize,
    now: i64,
}

impl Model {
    fn expire(&mut self) {
        let (now, on_access) = (self.now, self.spec.ttl_on_access);
        let lives = |stamp: i64, ttl: Option<Interval>| ttl.is_none_or(|ttl| now - stamp < ttl.0);
        let Self { rows, spec, .. } = self;
        rows.retain(|_, r| {
            let used = if on_access { r.touched } else { r.written };
            lives(used, spec.ttl) && lives(r.inserted, spec.ttl_on_insert)
        });
    }

    /// Inserts a row. `gone` is the evicted row: any of the oldest, if the table was full.
    fn insert(&mut self, id: u64, gone: &[u64]) -> bool {
        if (self.rows.len() as u64) < self.spec.max_rows {
            assert_eq!(gone, [0; 0], "there was room");
        } else {
            let age = |row: &ModelRow| match self.spec.evict {
                Evict::Lru => row.touched,
                Evict::Oldest | Evict::Reject => row.written,
            };
            match (self.spec.evict, gone) {
                (Evict::Reject, []) => return false,
                (Evict::Oldest | Evict::Lru, [gone]) => {
                    assert_eq!(
                        self.rows.values().map(age).min(),
                        Some(age(&self.rows[gone])),
                        "not the oldest"
                    );
                    self.rows.remove(gone);
                }
                other => panic!("{other:?}"),
            }
        }
        let stamp = self.now;
        let added = (0..self.added as u64).map(|i| 100 + i).collect();
        self.rows.insert(
            id,
            ModelRow { hits: 7, note: None, added, written: stamp, touched: stamp, inserted: stamp },
        );
        true
    }
}

#[derive(Clone, Debug)]
enum Op {
    Put { id: u64, hits: u64 },
    Note { id: u64, note: Option<Vec<u8>> },
    SetAdded { id: u64, value: u64 },
    Remove { id: u64 },
    Touch { id: u64 },
    Read { id: u64 },
    Wait { nanos: i64 },
    Sweep { budget: usize },
    Extend,
    Begin,
    Undo,
    Commit,
}

fn op() -> impl Strategy<Value = Op> {
    let id = 0..24u64;
    prop_oneof![
        8 => (id.clone(), any::<u64>()).prop_map(|(id, hits)| Op::Put { id, hits }),
        2 => (id.clone(), prop::option::of(prop::collection::vec(any::<u8>(), 0..=20)))
            .prop_map(|(id, note)| Op::Note { id, note }),
        2 => (id.clone(), any::<u64>()).prop_map(|(id, value)| Op::SetAdded { id, value }),
        3 => id.clone().prop_map(|id| Op::Remove { id }),
        2 => id.clone().prop_map(|id| Op::Touch { id }),
        2 => id.prop_map(|id| Op::Read { id }),
        3 => (0..6i64).prop_map(|nanos| Op::Wait { nanos }),
        1 => (0..4usize).prop_map(|budget| Op::Sweep { budget }),
        1 => Just(Op::Extend),
        2 => Just(Op::Begin),
        2 => Just(Op::Undo),
        1 => Just(Op::Commit),
    ]
}

/// A table and its model. All operations go through the journal, which is cleared unless a handler runs.
struct Pair {
    shape: Shape,
    state: State,
    journal: Journal,
    model: Model,
    before: Option<Model>,
}

impl Pair {
    fn new(shape: Shape, spec: TableSpec) -> Self {
        let table = Arc::new(Table::new(spec.clone(), KEY));
        let state = State::from(Parts { tables: vec![table], ..Parts::default() });
        let model = Model { rows: BTreeMap::new(), spec, added: 0, now: 1000 };
        Self { shape, state, journal: Journal::default(), model, before: None }
    }

    fn apply(&mut self, op: &Op) {
        self.model.expire();
        let table = Arc::clone(&self.state.tables[0]);
        let now = Time(self.model.now);
        let find = |id: u64| find(&table, &key(self.shape, id), now);
        let stamp = self.model.now;
        match op {
            Op::Put { id, hits } => self.put(&table, *id, *hits, now),
            Op::Note { id, note } => {
                if let Some(row) = self.model.rows.get_mut(id) {
                    row.note.clone_from(note);
                    let col = table.column("note").unwrap();
                    self.journal.record_bytes(0, find(*id), col, &table);
                    table.set_null(find(*id), col, note.is_none());
                    assert!(table.set_bytes(find(*id), col, note.as_deref().unwrap_or(b"")));
                }
            }
            Op::SetAdded { id, value } => {
                if let Some(row) = self.model.rows.get_mut(id)
                    && let Some(last) = row.added.last_mut()
                {
                    *last = *value;
                    let col = table.column(&format!("added{}", self.model.added - 1)).unwrap();
                    self.journal.record_store(0, find(*id), col, &table);
                    table.set_word(find(*id), col, *value);
                }
            }
            Op::Remove { id } if self.model.rows.remove(id).is_some() => {
                self.journal.record_remove(0, find(*id), &table);
                table.remove(find(*id));
            }
            Op::Touch { id } => {
                if let Some(row) = self.model.rows.get_mut(id) {
                    (row.written, row.touched) = (stamp, stamp);
                    self.journal.record_touch(0, find(*id), &table);
                    table.touch(find(*id), now);
                }
            }
            Op::Read { id } => {
                if let Some(row) = self.model.rows.get_mut(id) {
                    row.touched = stamp;
                    self.journal.record_touch(0, find(*id), &table);
                    table.touch_read(find(*id), now);
                }
            }
            // Time stands still while a handler runs, and no sweep or extension touches its locks.
            Op::Wait { nanos } if self.before.is_none() => self.model.now += nanos,
            Op::Sweep { budget } if self.before.is_none() => {
                assert!(table.sweep(now, *budget) <= *budget);
            }
            Op::Extend if self.before.is_none() && self.model.added < 4 => self.extend(&table),
            Op::Begin if self.before.is_none() => {
                self.journal.clear();
                self.before = Some(self.model.clone());
            }
            Op::Undo => {
                if let Some(before) = self.before.take() {
                    self.journal.undo(&self.state, &mut []);
                    assert!(self.journal.is_empty());
                    self.model = before;
                }
            }
            Op::Commit => self.before = None,
            _ => {}
        }
        if self.before.is_none() {
            self.journal.clear();
        }
        self.check(&table);
    }

    fn put(&mut self, table: &Table, id: u64, hits: u64, now: Time) {
        let key = key(self.shape, id);
        let col = table.column("hits").unwrap();
        let stamp = self.model.now;
        let found = find(table, &key, now);
        if let Some(row) = self.model.rows.get_mut(&id) {
            (row.hits, row.written, row.touched) = (hits, stamp, stamp);
            self.journal.record_store(0, found, col, table);
            self.journal.record_touch(0, found, table);
            table.set_word(found, col, hits);
            table.touch(found, now);
            return;
        }
        assert_eq!(found, Row::NONE);
        let inserted = match &key {
            Key::Word(word) => self.journal.insert_int(0, table, *word, now),
            Key::Bytes(bytes) => self.journal.insert_bytes(0, table, bytes, now),
        };
        let is_gone = |id: &u64| find(table, &self::key(self.shape, *id), now).is_none();
        let gone: Vec<u64> = self.model.rows.keys().copied().filter(is_gone).collect();
        match inserted {
            Insert::New(row) => {
                assert!(self.model.insert(id, &gone), "the model is full");
                assert_eq!(table.word(row, col), 7);
                self.journal.record_store(0, row, col, table);
                table.set_word(row, col, hits);
                self.model.rows.get_mut(&id).unwrap().hits = hits;
            }
            Insert::Full => assert!(!self.model.insert(id, &gone), "the model has room"),
            Insert::TooLong => panic!("the key fits"),
        }
    }

    fn extend(&mut self, table: &Table) {
        let n = self.model.added as u64;
        let new = column(&format!("added{n}"), Type::Uint(64), Value::Int(100 + n as i64));
        table.extend(std::slice::from_ref(&new)).unwrap();
        table.extend(&[new]).unwrap();
        self.model.added += 1;
        self.model.rows.values_mut().for_each(|row| row.added.push(100 + n));
    }

    fn check(&mut self, table: &Table) {
        self.model.expire();
        let now = Time(self.model.now);
        for id in 0..24 {
            let row = find(table, &key(self.shape, id), now);
            match self.model.rows.get(&id) {
                Some(expected) => assert_row(table, row, expected, self.model.added),
                None => assert_eq!(row, Row::NONE, "row {id} should not be there"),
            }
        }
        assert_eq!(scan_all(table, now).len(), self.model.rows.len());
        assert_eq!(table.count(now), self.model.rows.len() as u64);
    }
}

fn assert_row(table: &Table, row: Row, expected: &ModelRow, added: usize) {
    assert!(row.is_some(), "a row is missing: {expected:?}");
    let (hits, note) = (table.column("hits").unwrap(), table.column("note").unwrap());
    assert_eq!(table.word(row, hits), expected.hits);
    assert_eq!(table.is_null(row, note), expected.note.is_none());
    if let Some(text) = &expected.note {
        let mut bytes = Vec::new();
        table.bytes_into(row, note, &mut bytes);
        assert_eq!(&bytes, text);
        assert!(table.bytes_eq(row, note, text));
    }
    for i in 0..added {
        assert_eq!(table.word(row, table.column(&format!("added{i}")).unwrap()), expected.added[i]);
    }
}

fn scan_all(table: &Table, now: Time) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, now) {
        rows.push(row);
        cursor = next;
    }
    rows
}

fn case() -> impl Strategy<Value = (Shape, TableSpec, Vec<Op>)> {
    let shape = prop_oneof![Just(Shape::Int), Just(Shape::Text), Just(Shape::Pair)];
    let evict = prop_oneof![Just(Evict::Reject), Just(Evict::Oldest), Just(Evict::Lru)];
    let ttls = (prop::option::of(1..20i64), prop::option::of(1..30i64));
    (shape, evict, ttls, any::<bool>(), 4..12u64, prop::collection::vec(op(), 1..120)).prop_map(
        |(shape, evict, (ttl, ttl_on_insert), ttl_on_access, max_rows, ops)| {
            let [ttl, ttl_on_insert] = [ttl, ttl_on_insert].map(|ttl| ttl.map(Interval));
            (shape, TableSpec { evict, ttl, ttl_on_access, ttl_on_insert, ..spec(shape, max_rows) }, ops)
        },
    )
}

const CASES: u32 = if cfg!(miri) { 4 } else { 512 };

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(CASES) })]

    // A table would lose, keep, age or evict rows other than declared, or an undo would leave a trace.
    #[test]
    fn one_stripe_table_matches_model((shape, spec, ops) in case()) {
        let mut pair = Pair::new(shape, spec);
        ops.iter().for_each(|op| pair.apply(op));
    }

    // The number of stripes would be observable in a table without evictions.
    #[test]
    fn stripes_do_not_change_results((shape, spec, ops) in case(), stripes in 2..16u32) {
        let evict = Evict::Reject;
        let spec = TableSpec { evict, stripes: Some(stripes), shared: true, max_rows: 24, ..spec };
        let mut pair = Pair::new(shape, spec);
        ops.iter().for_each(|op| pair.apply(op));
    }

    // A snapshot would not restore all data.
    #[test]
    fn export_import_round_trips((shape, spec, ops) in case(), per_chunk in 1..8u32) {
        let mut pair = Pair::new(shape, spec);
        ops.iter().for_each(|op| pair.apply(op));
        let now = Time(pair.model.now);
        let old = Arc::clone(&pair.state.tables[0]);
        let new = Table::new(pair.model.spec.clone(), KEY);
        for i in 0..pair.model.added {
            new.extend(&[column(&format!("added{i}"), Type::Uint(64), Value::Int(0))]).unwrap();
        }
        let (mut cursor, mut rows) = (Some(0), 0);
        while let Some(at) = cursor {
            let mut chunk = Vec::new();
            cursor = old.export(at, now, per_chunk, &mut chunk);
            rows += new.import(&chunk, now).unwrap();
        }
        prop_assert_eq!(rows, pair.model.rows.len() as u64);
        pair.check(&new);
    }

    // Foreign bytes could panic the importer.
    #[test]
    fn import_survives_random_bytes(mut at in 0..200usize, byte in any::<u8>(), cut in 0..200usize) {
        let table = Table::new(spec(Shape::Text, 8), KEY);
        new_row(table.insert_bytes(b"someone", Time(1)));
        let mut chunk = Vec::new();
        table.export(0, Time(1), 10, &mut chunk);
        at %= chunk.len();
        chunk[at] = byte;
        let _ = table.import(&chunk, Time(1));
        let _ = table.import(&chunk[..cut.min(chunk.len())], Time(1));
    }
}

// A table that is too large to keep all rows sorted would not evict the oldest row.
#[test]
fn eviction_takes_oldest_row() {
    let (n, rounds) = if cfg!(miri) { (200, 300) } else { (600, 12_000) };
    for evict in [Evict::Oldest, Evict::Lru] {
        let table = Table::new(TableSpec { evict, ..spec(Shape::Int, n) }, KEY);
        let state = State::from(Parts { tables: vec![Arc::new(table)], ..Parts::default() });
        let table = &state.tables[0];
        let mut ages: BTreeMap<u64, u64> = (0..n).map(|id| (id, id)).collect();
        ages.keys().for_each(|id| _ = new_row(table.insert_int(*id, Time(*id as i64))));
        let mut journal = Journal::default();
        for now in n..n + rounds {
            let rng = weft_core::hash::draw(now, 1);
            let (at, before) = (Time(now as i64), ages.clone());
            // Few rows are written often and most now and then: some of the oldest are always out of place.
            let id = if rng & 1 == 0 { (rng >> 8) % (2 * n) } else { (rng >> 8) % (n / 8) };
            let found = table.find_int(id, at);
            assert_eq!(found.is_some(), ages.contains_key(&id));
            if found.is_some() {
                journal.record_touch(0, found, table);
                table.touch(found, at);
            } else {
                let oldest = *ages.iter().min_by_key(|(_, age)| **age).expect("the table is full").0;
                new_row(journal.insert_int(0, table, id, at));
                assert_eq!(table.find_int(oldest, at), Row::NONE, "{oldest} is the oldest at {now}");
                ages.remove(&oldest);
            }
            ages.insert(id, now);
            if rng >> 60 == 0 {
                journal.undo(&state, &mut []);
                ages = before;
            }
            journal.clear();
            assert_eq!(table.len(), n);
        }
    }
}

// An imported row that is older than all others would outlive them.
#[test]
fn imported_old_row_evicted_first() {
    let table = Table::new(TableSpec { evict: Evict::Oldest, ..spec(Shape::Int, 200) }, KEY);
    (0..200).for_each(|id| _ = new_row(table.insert_int(id, Time(1000 + id as i64))));
    new_row(table.insert_int(200, Time(2000)));
    assert_eq!(table.find_int(0, Time(2000)), Row::NONE);
    for age in [900, 800, 850] {
        table.remove(table.find_int(1, Time(2000)));
        new_row(table.insert_int(1, Time(age)));
        new_row(table.insert_int(1000 + age as u64, Time(2000)));
        assert_eq!(table.find_int(1, Time(2000)), Row::NONE);
        table.remove(table.find_int(1000 + age as u64, Time(2000)));
        new_row(table.insert_int(1, Time(2001)));
    }
}

// A full table would refuse a row although one has expired in a stripe that was not searched yet.
#[test]
fn full_table_reuses_expired_row() {
    let limits = TableSpec { ttl: Some(Interval(100)), stripes: Some(8), ..spec(Shape::Int, 64) };
    for last in 0..64 {
        let table = Table::new(limits.clone(), KEY);
        (0..64).for_each(|id| _ = new_row(table.insert_int(id, Time(0))));
        (0..64).filter(|id| *id != last).for_each(|id| table.touch(table.find_int(id, Time(50)), Time(50)));
        assert_eq!(table.insert_int(64, Time(99)), Insert::Full);
        new_row(table.insert_int(64, Time(100)));
        assert_eq!((table.len(), table.count(Time(100))), (64, 64));
        assert_eq!(table.insert_int(65, Time(149)), Insert::Full);
        assert_eq!(table.sweep(Time(150), usize::MAX), 63);
    }
}

// A flow whose end is not reported is never billed; one whose end is reported twice is billed twice.
#[test]
fn expired_row_is_taken_once() {
    for (stripes, max_rows, shared) in [(Some(1), 8, false), (Some(4), 32, true), (None, 40, true)] {
        let limits = TableSpec {
            ttl: Some(Interval(100)),
            evict: Evict::Oldest,
            shared,
            stripes,
            ..spec(Shape::Int, max_rows)
        };
        let table = Table::new(limits, KEY);
        table.keep_removed(RemovalReason::Expired, true);
        let item = table.column("item").expect("the key");
        let (mut rng, mut now) = (Rng::from_seed(max_rows), Time(0));
        let (mut lives, mut expired, mut departed) = (BTreeMap::new(), Vec::new(), Vec::new());
        for _ in 0..4000 {
            now += Interval(rng.below(9) as i64);
            let over = |lives: &mut BTreeMap<u64, i64>, id: u64| {
                lives
                    .get(&id)
                    .is_some_and(|at| now.0 - at >= 100)
                    .then(|| lives.remove(&id).map(|at| (id, at)))
            };
            // Few enough keys that no live row is evicted.
            let id = rng.below(6) as u64;
            expired.extend(over(&mut lives, id).flatten());
            if table.find_int(id, now).is_none() {
                let row = new_row(table.insert_int(id, now));
                table.set_word(row, table.column("hits").expect("a column"), now.0 as u64);
                lives.insert(id, now.0);
            }
            // A caller that waits until then misses no row.
            let next = table.next_removal(RemovalReason::Expired);
            assert!(
                lives.values().all(|at| next.is_some_and(|next| next.0 <= at + 100)),
                "{next:?} {lives:?}"
            );
            if rng.percent(10) {
                (0..6).for_each(|id| expired.extend(over(&mut lives, id).flatten()));
                let mut rows = Vec::new();
                while table.take_removed(RemovalReason::Expired, now, 2, &mut rows) {}
                let hits = table.column("hits").expect("a column");
                departed
                    .extend(rows.iter().map(|row| (table.word(*row, item), table.word(*row, hits) as i64)));
                assert!(rows.iter().all(|row| table.find_int(table.word(*row, item), now) != *row));
                table.free_removed(&rows);
                assert_eq!(table.len(), lives.len() as u64);
                // After that, no search is necessary before a row is due.
                assert!(table.next_removal(RemovalReason::Expired).is_none_or(|next| next > now));
            }
        }
        assert_eq!(table.sweep(now + Interval(1000), usize::MAX), 0);
        expired.truncate(departed.len());
        expired.sort_unstable();
        departed.sort_unstable();
        assert!(departed.len() > 100);
        assert_eq!(departed, expired);
        table.keep_removed(RemovalReason::Expired, false);
        table.sweep(now + Interval(1000), usize::MAX);
        assert_eq!((table.len(), table.count(now)), (0, 0));
    }
}

// An evicted flow would never be billed, or would be billed although the eviction was undone.
#[test]
fn evicted_row_is_taken_once() {
    for (stripes, max_rows, shared, evict) in
        [(Some(1), 8, false, Evict::Oldest), (Some(4), 32, true, Evict::Lru), (None, 40, true, Evict::Oldest)]
    {
        let limits = TableSpec { evict, shared, stripes, ..spec(Shape::Int, max_rows) };
        let table = Arc::new(Table::new(limits, KEY));
        table.keep_removed(RemovalReason::Evicted, true);
        let [item, hits] = ["item", "hits"].map(|name| table.column(name).expect("a column"));
        let cells = |row: &Row| (table.word(*row, item), table.word(*row, hits));
        let all = |now| {
            let mut rows = BTreeMap::new();
            let mut cursor = 0;
            while let Some((row, next)) = table.scan(cursor, now) {
                rows.extend([cells(&row)]);
                cursor = next;
            }
            rows
        };
        let state = State::from(Parts { tables: vec![Arc::clone(&table)], ..Parts::default() });
        let (mut rng, mut journal) = (Rng::from_seed(max_rows), Journal::default());
        let (mut inserted, mut departed, mut n_undone) = (BTreeMap::new(), Vec::new(), 0);
        for pass in 0..4000 {
            let now = Time(pass);
            let (before, n_untold) = (all(now), table.evicted_untold());
            let keys: Vec<u64> = (0..1 + rng.below(4) as u64).map(|n| 10 * pass as u64 + n).collect();
            for key in &keys {
                let row = new_row(journal.insert_int(0, &table, *key, now));
                table.set_word(row, hits, key * 7);
            }
            if rng.percent(40) {
                journal.undo(&state, &mut []);
                assert_eq!(all(now), before);
                assert_eq!(table.evicted_untold(), n_untold);
                n_undone += 1;
            } else {
                journal.clear();
                inserted.extend(keys.iter().map(|key| (*key, key * 7)));
            }
            if rng.percent(60) {
                let mut rows = Vec::new();
                while table.take_removed(RemovalReason::Evicted, now, 3, &mut rows) {}
                departed.extend(rows.iter().map(cells));
                table.free_removed(&rows);
            }
        }
        let mut rows = Vec::new();
        while table.take_removed(RemovalReason::Evicted, Time(4000), 3, &mut rows) {}
        departed.extend(rows.iter().map(cells));
        table.free_removed(&rows);
        assert!(departed.len() > 1000 && n_undone > 1000);
        let n_all = departed.len() + all(Time(4000)).len();
        assert_eq!(n_all as u64 + table.evicted_untold(), inserted.len() as u64);
        departed.extend(all(Time(4000)));
        let n_told = departed.len();
        let departed: BTreeMap<u64, u64> = departed.into_iter().collect();
        assert_eq!(departed.len(), n_told, "a row was reported twice");
        assert!(departed.iter().all(|(key, value)| inserted.get(key) == Some(value)));
    }
}

// Evicted rows without a spare slot would stop insertions, or get lost without being counted.
#[test]
fn evicted_rows_wait_in_spare_slots() {
    let limits = TableSpec { evict: Evict::Oldest, stripes: Some(1), ..spec(Shape::Int, 32) };
    let table = Table::new(limits, KEY);
    table.keep_removed(RemovalReason::Evicted, true);
    (0..1000).for_each(|key| _ = new_row(table.insert_int(key, Time(key as i64))));
    let mut rows = Vec::new();
    assert!(!table.take_removed(RemovalReason::Evicted, Time(1000), 1000, &mut rows));
    assert_eq!((table.len(), rows.len() as u64 + table.evicted_untold()), (32, 968));
    assert!(rows.len() > 16);
    table.free_removed(&rows);
    // Evicted rows are no longer kept: the queue makes room.
    (1000..1020).for_each(|key| _ = new_row(table.insert_int(key, Time(key as i64))));
    table.keep_removed(RemovalReason::Evicted, false);
    let untold = table.evicted_untold();
    (1020..1200).for_each(|key| _ = new_row(table.insert_int(key, Time(key as i64))));
    assert_eq!((table.len(), table.evicted_untold()), (32, untold));
    assert!(table.find_int(1168, Time(1200)).is_some());
}

// A counter that overflows into its neighbour, or starts with old bytes, would report wrong numbers.
#[test]
fn column_counters_are_independent() {
    let table = Table::new(
        TableSpec {
            columns: vec![
                column("before", Type::Uint(64), Value::Int(1)),
                nullable("m", Type::Bytes(Some(21))),
            ],
            ..spec(Shape::Int, 4)
        },
        KEY,
    );
    let (before, m) = (table.column("before").expect("a column"), table.column("m").expect("a column"));
    let mut rng = Rng::from_seed(5);
    for _ in 0..40 {
        let row = new_row(table.insert_int(7, Time(0)));
        assert!(table.is_null(row, m));
        // Old bytes of an earlier row or value.
        table.set_bytes(row, m, &[255; 21]);
        table.set_bytes(row, m, &[]);
        let mut counters = [0_u16; 10];
        let mut longest = 0;
        for _ in 0..rng.below(60) {
            let bin = rng.pick(&[0, 1, 2, 3, 4, 8, 9, 10, 11, u64::MAX]);
            table.count_into(row, m, bin);
            if let Some(counter) = counters.get_mut(usize::try_from(bin).unwrap_or(usize::MAX)) {
                *counter += 1;
                longest = longest.max(bin as usize + 1);
            }
        }
        let mut held = Vec::new();
        table.bytes_into(row, m, &mut held);
        let wanted: Vec<u8> = counters[..longest].iter().flat_map(|n| n.to_le_bytes()).collect();
        assert_eq!(held, wanted);
        assert_eq!(table.word(row, before), 1);
        table.remove(row);
    }
    let row = new_row(table.insert_int(7, Time(0)));
    (0..70_000).for_each(|_| table.count_into(row, m, 1));
    let mut held = Vec::new();
    table.bytes_into(row, m, &mut held);
    assert_eq!(held, [0, 0, 255, 255]);
    table.set_null(row, m, true);
    table.count_into(row, m, 0);
    held.clear();
    table.bytes_into(row, m, &mut held);
    assert_eq!((held, table.is_null(row, m)), (vec![1, 0], false));
}

// An import would not know which row is the oldest.
#[test]
fn import_keeps_eviction_order() {
    for evict in [Evict::Oldest, Evict::Lru] {
        let spec = TableSpec { evict, ..spec(Shape::Int, 4) };
        let old = Table::new(spec.clone(), KEY);
        (0..4).for_each(|id| _ = new_row(old.insert_int(id, Time(id as i64))));
        old.touch(old.find_int(0, Time(5)), Time(5));
        let mut chunk = Vec::new();
        assert_eq!(old.export(0, Time(6), 100, &mut chunk), None);
        let new = Table::new(spec, KEY);
        assert_eq!(new.import(&chunk, Time(6)), Ok(4));
        new_row(new.insert_int(9, Time(7)));
        assert_eq!(new.find_int(1, Time(7)), Row::NONE);
        assert!(new.find_int(0, Time(7)).is_some());
    }
}

// Rows of another table could be imported.
#[test]
fn import_error_names_column() {
    let old = Table::new(spec(Shape::Int, 4), KEY);
    let mut chunk = Vec::new();
    old.export(0, Time(0), 1, &mut chunk);
    assert_eq!(Table::new(spec(Shape::Text, 4), KEY).import(&chunk, Time(0)), Err(ImportError::Key));
    let mut other = spec(Shape::Int, 4);
    other.columns[0].ty = Type::F64;
    let error = Table::new(other, KEY).import(&chunk, Time(0)).unwrap_err();
    assert_eq!(error.to_string(), "column hits is U64 in the rows and F64 in the table");
    chunk[4] = 9;
    assert_eq!(old.import(&chunk, Time(0)), Err(ImportError::Version(9)));
}

// A row could not be restored if an expired row was freed after it.
#[test]
fn undo_restores_past_expired_rows() {
    let table = Table::new(TableSpec { ttl: Some(Interval(10)), ..spec(Shape::Int, 4) }, KEY);
    let state = State::from(Parts { tables: vec![Arc::new(table)], ..Parts::default() });
    let table = &state.tables[0];
    new_row(table.insert_int(1, Time(0)));
    let kept = new_row(table.insert_int(2, Time(5)));
    let mut journal = Journal::default();
    journal.record_remove(0, kept, table);
    table.remove(kept);
    new_row(journal.insert_int(0, table, 1, Time(12)));
    journal.undo(&state, &mut []);
    assert_eq!(table.find_int(2, Time(12)), kept);
    assert_eq!(table.count(Time(12)), 1);
}

// Two workers could be in one stripe at once, and counts would be lost.
#[test]
fn concurrent_counts_add_up() {
    let keys = 64;
    let rounds = if cfg!(miri) { 40 } else { 50_000 };
    for stripes in [1, 8] {
        let spec = TableSpec { shared: true, stripes: Some(stripes), ..spec(Shape::Text, keys) };
        let table = Arc::new(Table::new(spec, KEY));
        let hits = table.column("hits").unwrap();
        let worker = |seed: u64| {
            let table = Arc::clone(&table);
            move || {
                for i in 0..rounds {
                    let key = key(Shape::Text, (i * 7 + seed) % keys);
                    table.lock(hash(&key));
                    let found = find(&table, &key, Time(i as i64));
                    let row = if found.is_some() { found } else { new_row(insert(&table, &key, Time(0))) };
                    table.set_word(row, hits, table.word(row, hits) + 1);
                    table.unlock(hash(&key));
                }
            }
        };
        let threads = [0, 3].map(|seed| std::thread::spawn(worker(seed)));
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        let sum: u64 = scan_all(&table, Time(0)).iter().map(|row| table.word(*row, hits) - 7).sum();
        assert_eq!(sum, 2 * rounds);
    }
}

// A lock-free reader could panic or hang beside a writer, or miss an unchanged row while the index grows and shifts.
#[test]
fn lock_free_reader_survives_writer() {
    let n = if cfg!(miri) { 60 } else { 200_000 };
    let spec = TableSpec { evict: Evict::Lru, ttl: Some(Interval(50)), ..spec(Shape::Text, 3000) };
    let table = Arc::new(Table::new(spec, KEY));
    let writer = Arc::clone(&table);
    let thread = std::thread::spawn(move || {
        for i in 0..n {
            let key = key(Shape::Text, i % 4000);
            let row = find(&writer, &key, Time(i as i64));
            match row.is_some() && i % 3 == 0 {
                true => writer.remove(row),
                false if row.is_none() => _ = new_row(insert(&writer, &key, Time(i as i64))),
                false => {}
            }
        }
    });
    let note = table.column("note").unwrap();
    let mut out = Vec::new();
    for i in 0..n {
        let row = find(&table, &key(Shape::Text, i % 4000), Time(i as i64));
        if row.is_some() {
            out.clear();
            table.bytes_into(row, note, &mut out);
        }
        if i % 1000 == 0 {
            scan_all(&table, Time(0));
        }
    }
    thread.join().unwrap();
}

// A table that grows to a million rows would stall its worker: the longest operation is the growth of one stripe.
#[test]
fn growth_moves_bounded_slots() {
    let n: u64 = if cfg!(miri) { 300 } else { 1_000_000 };
    let table = Table::new(spec(Shape::Int, n), KEY);
    for id in 0..n {
        new_row(table.insert_int(id, Time(0)));
    }
    assert_eq!(table.insert_int(n, Time(0)), Insert::Full);
    assert!(u64::from(table.index_moves_max()) <= STRIPE_ROWS_MAX, "{}", table.index_moves_max());
    assert!((0..n).all(|id| table.find_int(id, Time(0)).is_some()));
    assert!(table.memory_bytes() <= table.memory_bytes_max());
    (0..n).for_each(|id| table.remove(table.find_int(id, Time(0))));
    assert!(table.is_empty());
    assert_eq!(table.scan(0, Time(0)), None);
}

// An empty table would need memory in proportion to its limit.
#[test]
fn empty_table_is_small() {
    let table = Table::new(spec(Shape::Int, 1_000_000), KEY);
    assert!(table.memory_bytes() * 100 < table.memory_bytes_max(), "{}", table.memory_bytes());
    assert!(Table::new(spec(Shape::Int, 100), KEY).memory_bytes() < 4096);
}

/// Keys with the same home in an index of up to 4096 homes, the first or the last: an attack with a known secret.
fn keys_of_one_home(hash: HashKey, home: u32, n: usize) -> Vec<u64> {
    (0u64..).filter(|key| hash.hash_word(*key) as u32 >> 20 == home).take(n).collect()
}

// Colliding keys would evict the rows of others, or be refused, in a table with space: an attacker could reset the
// limits of others.
#[test]
fn colliding_keys_fill_table() {
    if cfg!(miri) {
        return;
    }
    for home in [0, 0xfff] {
        let keys = keys_of_one_home(KEY, home, 1000);
        for evict in [Evict::Reject, Evict::Oldest, Evict::Lru] {
            let table = Table::new(TableSpec { evict, ..spec(Shape::Int, 1000) }, KEY);
            keys.iter().for_each(|key| _ = new_row(table.insert_int(*key, Time(0))));
            assert_eq!(table.len(), 1000);
            assert!(keys.iter().all(|key| table.find_int(*key, Time(0)).is_some()), "{evict:?}");
            assert!(keys.iter().rev().all(|key| {
                table.remove(table.find_int(*key, Time(0)));
                table.find_int(*key, Time(0)).is_none()
            }));
        }
    }
}

// An undo must restore colliding rows like all others.
#[test]
fn colliding_keys_are_undone() {
    if cfg!(miri) {
        return;
    }
    let keys = keys_of_one_home(KEY, 0xfff, 400);
    let table = Table::new(TableSpec { evict: Evict::Lru, ..spec(Shape::Int, 300) }, KEY);
    let state = State::from(Parts { tables: vec![Arc::new(table)], ..Parts::default() });
    let table = Arc::clone(&state.tables[0]);
    for (i, key) in keys.iter().enumerate() {
        new_row(table.insert_int(*key, Time(i as i64)));
        assert!(table.find_int(*key, Time(i as i64)).is_some());
    }
    let before = scan_all(&table, Time(0));
    let live: Vec<u64> = keys.iter().copied().filter(|k| table.find_int(*k, Time(0)).is_some()).collect();
    assert_eq!(live, keys[100..], "the oldest go");
    let mut journal = Journal::default();
    for key in &keys[..100] {
        new_row(journal.insert_int(0, &table, *key, Time(1000)));
    }
    journal.undo(&state, &mut []);
    assert_eq!(scan_all(&table, Time(0)), before);
    assert!(live.iter().all(|key| table.find_int(*key, Time(0)).is_some()));
}

// With a public hash, keys of one stripe would fill it and evict its rows while all others are empty.
#[test]
fn foreign_stripe_keys_fill_table() {
    if cfg!(miri) {
        return;
    }
    let n = 40_000;
    // The lower bits of the upper half select the stripe.
    let meets = |key: &u64| hash_word(*key) >> 32 & 7 == 0;
    let keys: Vec<u64> = (0u64..).filter(meets).take(n).collect();
    let table = Table::new(TableSpec { evict: Evict::Oldest, ..spec(Shape::Int, n as u64) }, KEY);
    for (i, key) in keys.iter().enumerate() {
        new_row(table.insert_int(*key, Time(i as i64)));
    }
    assert!(keys.iter().all(|key| table.find_int(*key, Time(0)).is_some()), "no row went");
}

// The secret decides which keys are adjacent. It must not be observable: otherwise simulations, listings and evictions
// would differ between nodes.
#[test]
fn secret_keeps_scan_and_eviction() {
    for evict in [Evict::Oldest, Evict::Lru] {
        let [one, other] = [1, 2].map(|seed| {
            let limits = TableSpec { evict, ttl: Some(Interval(700)), ..spec(Shape::Text, 300) };
            let table = Table::new(limits, HashKey::from_seed(seed));
            let mut rng = Rng::from_seed(5);
            for at in 0..if cfg!(miri) { 400 } else { 4000 } {
                let (now, key) = (Time(at), format!("user-{}", rng.below(900)));
                match table.find_bytes(key.as_bytes(), now) {
                    Row::NONE => _ = new_row(table.insert_bytes(key.as_bytes(), now)),
                    row if rng.percent(20) => table.remove(row),
                    row => table.touch(row, now),
                }
            }
            let mut chunk = Vec::new();
            assert_eq!(table.export(0, Time(4000), u32::MAX, &mut chunk), None);
            (chunk, table.len())
        });
        assert_eq!(one, other);
    }
}

// A hot update could change the type of a column whose rows hold the old type.
#[test]
fn extend_refuses_type_change() {
    let table = Table::new(spec(Shape::Int, 4), KEY);
    let error = table.extend(&[column("hits", Type::F64, Value::Null)]).unwrap_err();
    assert_eq!(error.to_string(), "column hits is U64; its type cannot change to F64 while rows exist");
    for i in 0..15 {
        table.extend(&[column(&format!("c{i}"), Type::Bool, Value::Null)]).unwrap();
    }
    let one_more = table.extend(&[column("c15", Type::Bool, Value::Null)]);
    assert_eq!(one_more, Err(ExtendError::TooManyGroups));
    let wide =
        Table::new(spec(Shape::Int, 4), KEY).extend(&[column("w", Type::Bytes(Some(1 << 16)), Value::Null)]);
    assert!(matches!(wide, Err(ExtendError::RowTooLong { .. })));
}

// Existing rows would lack the text and NULL defaults of an added column.
#[test]
fn added_column_has_default() {
    let table = Table::new(spec(Shape::Int, 100), KEY);
    let old = new_row(table.insert_int(1, Time(0)));
    table
        .extend(&[
            column("tier", Type::Text(Some(12)), Value::text("free")),
            nullable("until", Type::Timestamp),
        ])
        .unwrap();
    let (tier, until) = (table.column("tier").unwrap(), table.column("until").unwrap());
    assert!(table.bytes_eq(old, tier, b"free") && table.is_null(old, until));
    assert!(table.set_bytes(old, tier, b"gold") && !table.set_bytes(old, tier, b"thirteen byte"));
    table.set_null(old, until, false);
    table.remove(old);
    let new = new_row(table.insert_int(2, Time(0)));
    assert_eq!(new, old, "the row's place is used again");
    assert!(table.bytes_eq(new, tier, b"free") && table.is_null(new, until));
}

// A hot update could set limits that the rows cannot serve.
#[test]
fn limits_change_within_capacity() {
    let table = Table::new(TableSpec { evict: Evict::Oldest, ..spec(Shape::Int, 10) }, KEY);
    (0..10).for_each(|id| _ = new_row(table.insert_int(id, Time(id as i64))));
    let limits = TableSpec { max_rows: 4, evict: Evict::Oldest, ..spec(Shape::Int, 10) };
    table.set_limits(&TableSpec { ttl: Some(Interval(100)), ..limits.clone() }).unwrap();
    (10..20).for_each(|id| _ = new_row(table.insert_int(id, Time(id as i64))));
    assert_eq!(table.count(Time(20)), 4);
    assert_eq!(table.count(Time(118)), 1);
    let refused = [
        TableSpec { evict: Evict::Lru, ..limits.clone() },
        TableSpec { ttl: Some(Interval(100)), ttl_on_access: true, ..limits.clone() },
        TableSpec { ttl_on_insert: Some(Interval(100)), ..limits.clone() },
    ];
    refused.iter().for_each(|limits| assert_eq!(table.set_limits(limits), Err(LimitsError::Order)));
    let many = TableSpec { max_rows: 1 << 40, ..limits.clone() };
    assert!(matches!(table.set_limits(&many), Err(LimitsError::Rows { .. })));
    // Times were not stored while no limit needed them, so they are stale.
    table.set_limits(&TableSpec { evict: Evict::Reject, ..limits.clone() }).unwrap();
    assert_eq!(table.set_limits(&limits), Err(LimitsError::Order));
}

// Keys that do not fit would be truncated or panic, and a malformed composite key could match a row.
#[test]
fn malformed_keys_are_absent() {
    let pair = Table::new(spec(Shape::Pair, 4), KEY);
    for bad in [&b""[..], b"\x01\0\0", b"\x01\0\0\0", b"\xff\xff\xff\xff", b"\0\0\0\0\0\0\0\0\0\0\0\0x"] {
        assert_eq!(pair.find_bytes(bad, Time(0)), Row::NONE);
        assert_eq!(pair.insert_bytes(bad, Time(0)), Insert::TooLong);
    }
    let text = Table::new(spec(Shape::Text, 4), KEY);
    assert_eq!(text.insert_bytes(&[b'x'; 25], Time(0)), Insert::TooLong);
    new_row(text.insert_bytes(&[b'x'; 24], Time(0)));
    assert!(text.find_bytes(&[b'x'; 24], Time(0)).is_some());
    assert_eq!(text.find_bytes(&[b'x'; 23], Time(0)), Row::NONE);
    assert_eq!(text.find_int(1, Time(0)), Row::NONE);
}

// Key columns could not be read, so a scan could not report its rows.
#[test]
fn key_columns_are_readable() {
    let table = Table::new(spec(Shape::Pair, 4), KEY);
    let mut key = KeyBuilder::default();
    key.bytes(b"ada").int(42);
    let row = new_row(table.insert_bytes(key.as_bytes(), Time(0)));
    assert!(table.bytes_eq(row, table.column("user").unwrap(), b"ada"));
    assert_eq!(table.word(row, table.column("item").unwrap()), 42);
}

// Compiled code would access other words than the accessors.
#[test]
fn row_addresses_follow_layout() {
    let table = Table::new(spec(Shape::Int, 100), KEY);
    let rows: Vec<Row> = (0..40).map(|id| new_row(table.insert_int(id, Time(0)))).collect();
    let width = table.row_address(rows[1], 0) - table.row_address(rows[0], 0);
    assert_eq!(width as u64, table.spec().row_bytes());
}

// One scan step could walk through a whole table without live rows.
#[test]
fn scan_stops_at_budget() {
    let table = Table::new(TableSpec { ttl: Some(Interval(10)), ..spec(Shape::Int, 4000) }, KEY);
    (0..3000).for_each(|id| _ = new_row(table.insert_int(id, Time(0))));
    let last = new_row(table.insert_int(3000, Time(5)));
    let (mut cursor, mut calls) = (0, 0);
    let found = loop {
        match table.scan_some(cursor, Time(12), 100) {
            Scan::More(next) => (cursor, calls) = (next, calls + 1),
            Scan::Row(row, next) => break (row, next),
            Scan::End => panic!("a row lives"),
        }
    };
    assert_eq!((found.0, calls), (last, 30));
    assert_eq!(table.scan(0, Time(12)), Some(found));
    assert_eq!(table.scan_some(found.1, Time(12), 10_000), Scan::End);
    assert!(matches!(table.scan_some(0, Time(12), 0), Scan::More(0)));
}

// Compiled code walks rows by these numbers; it would skip rows or read beyond them.
#[test]
fn scan_layout_matches_cursors() {
    for max_rows in [10, 256, 5000] {
        let table = Table::new(spec(Shape::Int, max_rows), KEY);
        assert_eq!(table.cursor_behind(Row::NONE), 0);
        let steps = table.scan_layout();
        let by_hand = |row: Row| {
            let word = (row.0 - 1) % (1 << jit_layout::WORD_BITS);
            match word + u64::from(steps.row_words) < u64::from(steps.segment_words) {
                true => row.0 - 1 + u64::from(steps.row_words),
                false => row.0 - 1 - word + (1 << jit_layout::WORD_BITS),
            }
        };
        (0..max_rows / 2).for_each(|id| _ = new_row(table.insert_int(id, Time(0))));
        let rows = scan_all(&table, Time(0));
        assert_eq!(rows.len() as u64, max_rows / 2);
        rows.iter().for_each(|row| assert_eq!(table.cursor_behind(*row), by_hand(*row)));
        // A removed row is no step, and there is none behind the last used row.
        table.remove(rows[2]);
        assert_eq!(table.scan(table.cursor_behind(rows[1]), Time(0)).map(|(row, _)| row), Some(rows[3]));
        if steps.has_one_stripe {
            assert_eq!(table.scan_some(table.cursor_behind(rows[rows.len() - 1]), Time(0), 1), Scan::End);
        }
    }
}

// Compiled code would write to the words of another row.
#[test]
fn lookup_returns_row_words() {
    for shape in [Shape::Int, Shape::Text, Shape::Pair] {
        let table = Table::new(spec(shape, 500), KEY);
        for id in 0..500 {
            let key = key(shape, id);
            let row = new_row(insert(&table, &key, Time(0)));
            let found = match &key {
                Key::Word(word) => table.find_int_words(*word, Time(1)),
                Key::Bytes(bytes) => table.find_bytes_words(bytes, Time(1)),
            };
            let (same, words) = found.expect("it was inserted");
            assert_eq!(same, row);
            assert!(std::ptr::eq(words, table.row_words(row, 0)));
        }
        assert_eq!(table.find_bytes_words(b"nobody", Time(1)).map(|(row, _)| row), None);
    }
}

// A pass would get the row of another key.
#[test]
fn lookup_follows_jit_layout() {
    for shape in [Shape::Int, Shape::Pair] {
        let table = Table::new(spec(shape, 20_000), KEY);
        let hash = |id: u64| match key(shape, id) {
            Key::Word(word) => KEY.hash_word(word),
            Key::Bytes(bytes) => KEY.hash_bytes(&bytes),
        };
        assert_eq!(table.slots(hash(1)), None);
        let rows: Vec<Row> =
            (0..10_000).map(|id| new_row(insert(&table, &key(shape, id), Time(0)))).collect();
        let row_near = |id| table.rows().candidate(hash(id), table.slots(hash(id)).expect("there are rows"));
        let is_said = |(id, row): &(u64, &Row)| row_near(*id) == Some((**row, table.row_address(**row, 0)));
        let said = (0..).zip(&rows).filter(is_said).count();
        assert!(said > 9900, "of {said} rows alone");
        let strangers = (20_000..30_000).filter(|id| row_near(*id).is_some()).count();
        assert!(strangers < 10, "{strangers} rows of keys that are not there");
    }
}

// A touch by compiled code would differ from that of the table.
#[test]
fn touch_is_one_store() {
    let ttl = Some(Interval(5));
    for (evict, ttl, ttl_on_access, reads_count) in [
        (Evict::Reject, None, false, false),
        (Evict::Reject, ttl, false, false),
        (Evict::Oldest, ttl, false, false),
        (Evict::Oldest, ttl, true, true),
        (Evict::Lru, None, false, true),
    ] {
        let table = Table::new(TableSpec { evict, ttl, ttl_on_access, ..spec(Shape::Int, 4) }, KEY);
        let row = new_row(table.insert_int(1, Time(3)));
        let stored =
            |word: u16| table.row_words(row, 0)[word as usize].load(std::sync::atomic::Ordering::Relaxed);
        let (written, touched) = table.touch_words();
        assert_eq!(touched.is_some(), reads_count);
        table.touch(row, Time(9));
        assert_eq!((stored(written), touched.map_or(9, stored)), (9, 9));
        table.touch_read(row, Time(12));
        assert_eq!((stored(written), touched.map_or(12, stored)), (9, 12));
    }
}

// Scalars would lose words or text.
#[test]
fn scalars_hold_words_and_text() {
    let scalars = Arc::new(Scalars::new(5));
    scalars.add(0, 3);
    assert!(scalars.set_bytes(1, 24, b"a text of 20 letters") && !scalars.set_bytes(1, 3, b"four"));
    let mut text = Vec::new();
    scalars.bytes_into(1, &mut text);
    assert_eq!((scalars.word(0), &text[..]), (3, &b"a text of 20 letters"[..]));
    let state = State::from(Parts { scalars: Arc::clone(&scalars), ..Parts::default() });
    let mut journal = Journal::default();
    let mut call = [5];
    journal.record_scalar(0, 3);
    scalars.set_word(0, 9);
    journal.record_call(0, 5);
    call[0] = 6;
    journal.undo(&state, &mut call);
    assert_eq!((scalars.word(0), call), (3, [5]));
}
