//! Measures look-ups and insertions of a table against a hand-written twin: a `HashMap` with FxHash.
//!
//! Both sides find a row by its key and increment a counter in it. The table is used as by compiled code: through the
//! words that a look-up returns. Writes run with `TTL` and `EVICT OLDEST`: each stores its time, and expired rows are
//! not found. The twin does the same, but cannot find its oldest row. Run it with `cargo run --release -p weft-core
//! --example table_cost`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints"
)]

use rustc_hash::FxHashMap;
use std::hint::black_box;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use weft_core::hash::HashKey;
use weft_core::table::{ColumnSpec, Evict, Insert, Table, TableSpec};
use weft_core::{Interval, Time, Type};

const ROUNDS: usize = 9;
const LOOKUPS: usize = 400_000;

fn main() {
    println!("{:<34}{:>9}{:>9}{:>8}", "ns per operation", "table", "twin", "ratio");
    for n in [16, 1_000, 4_000, 100_000, 1_000_000] {
        ints(n);
        texts(n);
        writes(n);
    }
}

fn spec(key: Type, max_rows: usize) -> TableSpec {
    let columns = vec![ColumnSpec::new("hits", Type::Uint(64)), ColumnSpec::new("last", Type::Timestamp)];
    TableSpec::new("t", vec![ColumnSpec::new("key", key)], columns, max_rows as u64)
}

fn ints(n: usize) {
    let keys: Vec<u64> = (0..n as u64).map(weft_core::hash::hash_word).collect();
    let order = order(n);
    let table = Table::new(spec(Type::Uint(64), n), HashKey::from_seed(1));
    let mut twin: FxHashMap<u64, [u64; 2]> = FxHashMap::default();
    let inserted = best(
        || keys.iter().for_each(|key| insert(|| table.insert_int(*key, Time(0)))),
        || {
            twin.clear();
            keys.iter().for_each(|key| _ = twin.insert(*key, [0; 2]));
        },
        || keys.iter().for_each(|key| table.remove(table.find_int(*key, Time(0)))),
    );
    keys.iter().for_each(|key| insert(|| table.insert_int(*key, Time(0))));
    report(&format!("insert int, {n} rows"), inserted, n);
    let hits = table.column("hits").expect("a column of the table");
    let found = best(
        || {
            for i in &order {
                if let Some((_, words)) = table.find_int_words(black_box(keys[*i as usize]), Time(1)) {
                    let hits = &words[hits.word as usize];
                    hits.store(hits.load(Relaxed) + 1, Relaxed);
                }
            }
        },
        || {
            for i in &order {
                if let Some(row) = twin.get_mut(&black_box(keys[*i as usize])) {
                    row[0] += 1;
                }
            }
        },
        || {},
    );
    report(&format!("find int, {n} rows"), found, order.len());
    let read = best(
        || order.iter().for_each(|i| _ = black_box(table.find_int(black_box(keys[*i as usize]), Time(1)))),
        || order.iter().for_each(|i| _ = black_box(twin.get(&black_box(keys[*i as usize])))),
        || {},
    );
    report(&format!("find int only, {n} rows"), read, order.len());
}

fn texts(n: usize) {
    let keys: Vec<Vec<u8>> = (0..n).map(|i| format!("user-{i}").into_bytes()).collect();
    let order = order(n);
    let table = Table::new(spec(Type::Text(Some(24)), n), HashKey::from_seed(1));
    let mut twin: FxHashMap<Vec<u8>, [u64; 2]> = FxHashMap::default();
    let inserted = best(
        || keys.iter().for_each(|key| insert(|| table.insert_bytes(key, Time(0)))),
        || {
            twin.clear();
            keys.iter().for_each(|key| _ = twin.insert(key.clone(), [0; 2]));
        },
        || keys.iter().for_each(|key| table.remove(table.find_bytes(key, Time(0)))),
    );
    keys.iter().for_each(|key| insert(|| table.insert_bytes(key, Time(0))));
    report(&format!("insert text, {n} rows"), inserted, n);
    let hits = table.column("hits").expect("a column of the table");
    let found = best(
        || {
            for i in &order {
                if let Some((_, words)) = table.find_bytes_words(black_box(&keys[*i as usize]), Time(1)) {
                    let hits = &words[hits.word as usize];
                    hits.store(hits.load(Relaxed) + 1, Relaxed);
                }
            }
        },
        || {
            for i in &order {
                if let Some(row) = twin.get_mut(black_box(&keys[*i as usize][..])) {
                    row[0] += 1;
                }
            }
        },
        || {},
    );
    report(&format!("find text, {n} rows"), found, order.len());
    let read = best(
        || order.iter().for_each(|i| _ = black_box(table.find_bytes(black_box(&keys[*i as usize]), Time(1)))),
        || order.iter().for_each(|i| _ = black_box(twin.get(black_box(&keys[*i as usize][..])))),
        || {},
    );
    report(&format!("find text only, {n} rows"), read, order.len());
}

fn writes(n: usize) {
    let keys: Vec<Vec<u8>> = (0..n).map(|i| format!("user-{i}").into_bytes()).collect();
    let order = order(n);
    let ttl = Interval::from_secs(60);
    let limits = TableSpec { ttl: Some(ttl), evict: Evict::Oldest, ..spec(Type::Text(Some(24)), n) };
    let table = Table::new(limits, HashKey::from_seed(1));
    keys.iter().for_each(|key| insert(|| table.insert_bytes(key, Time(0))));
    let mut twin: FxHashMap<Vec<u8>, (Time, u64)> =
        keys.iter().map(|key| (key.clone(), (Time(0), 0))).collect();
    let hits = table.column("hits").expect("a column of the table");
    let written_at = table.touch_words().0;
    let written = best(
        || {
            for (i, now) in order.iter().zip(0..) {
                let found = table.find_bytes_words(black_box(&keys[*i as usize]), Time(now));
                let (_, words) = found.expect("it is young");
                let hits = &words[hits.word as usize];
                hits.store(hits.load(Relaxed) + 1, Relaxed);
                words[written_at as usize].store(now as u64, Relaxed);
            }
        },
        || {
            for (i, now) in order.iter().zip(0..) {
                let found = twin.get_mut(black_box(&keys[*i as usize][..]));
                let (written, hits) = found.filter(|row| row.0 + ttl > Time(now)).expect("it is young");
                *hits += 1;
                *written = Time(now);
            }
        },
        || {},
    );
    report(&format!("write text, TTL, {n} rows"), written, order.len());
}

fn insert(insert: impl FnOnce() -> Insert) {
    assert!(matches!(insert(), Insert::New(_)), "the table has room");
}

/// Row numbers in an order that defeats branch prediction.
fn order(n: usize) -> Vec<u32> {
    (0..LOOKUPS as u64).map(|i| (weft_core::hash::draw(i, 1) % n as u64) as u32).collect()
}

/// Nanoseconds of the best of several interleaved rounds of both sides; `reset` runs after each round.
fn best(mut ours: impl FnMut(), mut twin: impl FnMut(), mut reset: impl FnMut()) -> (f64, f64) {
    let time = |work: &mut dyn FnMut()| {
        let start = Instant::now();
        work();
        start.elapsed().as_nanos() as f64
    };
    let mut best = (f64::MAX, f64::MAX);
    for _ in 0..ROUNDS {
        best = (best.0.min(time(&mut ours)), best.1.min(time(&mut twin)));
        reset();
    }
    best
}

fn report(what: &str, (ours, twin): (f64, f64), n: usize) {
    println!("{what:<34}{:>9.2}{:>9.2}{:>8.2}", ours / n as f64, twin / n as f64, ours / twin);
}
