//! Measures the cost of routing table changes for the changing thread: it changes both copies of the table in turn, as
//! a node does. Run it with `cargo run --release -p weft-core --example route_changes`.

#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "a measurement reads the clock and prints"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;
use weft_core::classify::Pattern;
use weft_core::classify::generate::prefixes;
use weft_core::hash::HashKey;
use weft_core::matching::{MatchPart, MatchSpec, Matcher, Test};
use weft_core::rng::Rng;
use weft_core::table::{ColumnSpec, Insert, Row, Table, TableSpec};
use weft_core::{Time, Type, Value};

/// Rows per change.
const ROWS: usize = 100;

fn main() {
    println!("{:>10}{:>16}{:>16}{:>14}", "routes", "a row, CPU us", "loaded, CPU us", "p99, wall us");
    for n in [100_000, 1_000_000] {
        let rows: Vec<Vec<Value>> = prefixes(n, 32, 1).iter().map(row).collect();
        let tables = [(); 2].map(|()| {
            let table = Table::new(spec(), HashKey::from_seed(1));
            table.add_rows(&rows, Time(0));
            Arc::new(table)
        });
        let part = MatchPart { test: Test::Within(1), wildcard: None, ty: Type::IpAddr, nullable: false };
        let by = MatchSpec { by: 2, descending: true, parts: vec![part] };
        let first = Matcher::changeable(&by, &tables[0]).expect("the table fits a changeable matcher");
        let same = |row| tables[1].find_values(&tables[0].key_values(row), Time(0));
        let mut matchers = [first.onto(&tables[1], same), first];
        let mut rng = Rng::from_seed(1);
        let mut gone: Vec<usize> = Vec::new();
        let mut took = Vec::new();
        let (warm, turns) = (100, 2000);
        let mut began_at = 0.0;
        for turn in 0..warm + turns {
            let came = core::mem::take(&mut gone);
            let mut seen = BTreeSet::new();
            let drawn = (0..ROWS - came.len()).map(|_| rng.below(n));
            gone = drawn.filter(|at| !came.contains(at) && seen.insert(*at)).collect();
            if turn == warm {
                began_at = thread_cpu_us();
            }
            let began = Instant::now();
            for (table, matcher) in tables.iter().rev().zip(&mut matchers) {
                change(table, matcher, &rows, &came, &gone);
            }
            if turn >= warm {
                took.push(began.elapsed().as_secs_f64() * 1e6);
            }
        }
        let mean = (thread_cpu_us() - began_at) / (turns * ROWS) as f64;
        took.sort_by(f64::total_cmp);
        let all: Vec<usize> = (0..n).collect();
        let began_at = thread_cpu_us();
        for (table, matcher) in tables.iter().rev().zip(&mut matchers) {
            table.add_rows(&gone.iter().map(|at| rows[*at].clone()).collect::<Vec<_>>(), Time(0));
            change(table, matcher, &rows, &[], &all);
            all.chunks(ROWS).for_each(|came| change(table, matcher, &rows, came, &[]));
        }
        let loaded = (thread_cpu_us() - began_at) / n as f64;
        println!("{n:>10}{mean:>16.2}{loaded:>16.2}{:>14.0}", took[turns * 99 / 100]);
    }
}

/// The CPU time of this thread in microseconds: other processes use the machine too.
fn thread_cpu_us() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse::<f64>().ok()).unwrap_or_default() / 1e3
}

fn change(table: &Table, matcher: &mut Matcher, rows: &[Vec<Value>], came: &[usize], gone: &[usize]) {
    let came: Vec<Row> = came.iter().map(|at| inserted(table.insert_row(&rows[*at], Time(0)))).collect();
    matcher.insert(&came).expect("the matcher has room");
    let gone: Vec<Row> = gone.iter().map(|at| table.find_values(&rows[*at][..1], Time(0))).collect();
    matcher.remove(&gone);
    gone.into_iter().for_each(|row| table.remove(row));
    matcher.publish();
}

fn inserted(insert: Insert) -> Row {
    let Insert::New(row) = insert else { panic!("{insert:?}") };
    row
}

fn row(rule: &weft_core::classify::Rule) -> Vec<Value> {
    let Pattern::Prefix { value, len } = rule.patterns[0] else { panic!("routes are prefixes") };
    let mut net = (value as u32).to_be_bytes().to_vec();
    net.push(len);
    let mac = |last: u32| Value::Bytes(vec![2, 0, 0, 0, 0, last as u8]);
    let [id, bits] = [rule.id, rule.priority].map(|n| Value::Int(n.into()));
    vec![id, Value::Bytes(net), bits, Value::text("wan"), mac(rule.id % 64), mac(1)]
}

fn spec() -> TableSpec {
    let columns = vec![
        ColumnSpec::new("net", Type::Cidr),
        ColumnSpec::new("bits", Type::Uint(8)),
        ColumnSpec::new("via_port", Type::Text(Some(32))),
        ColumnSpec::new("next_mac", Type::Mac),
        ColumnSpec::new("own_mac", Type::Mac),
    ];
    TableSpec::new("routes", vec![ColumnSpec::new("id", Type::Uint(32))], columns, 2_000_000)
}
