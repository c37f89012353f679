//! Flow tables: the cost of a look-up by rules, structure and flows, and the cost of changes and of building.
//!
//! Rules and traffic come from [`weft_core::classify::generate`], so they are reproducible. For comparison, each
//! table's rules are also searched one by one.

use std::hint::black_box;
use std::time::Instant;

use weft_core::classify::generate::{Family, exact, five_tuple, flows, network, networks, prefixes, rules};
use weft_core::classify::{Classifier, FieldSpec, Rule};
use weft_core::hash::HashKey;
use weft_core::rng::Rng;

use super::matched;
use super::report::{Report, Row, median};

/// The number of active flows, and the metric's name for it.
const FLOWS: [(usize, &str); 3] = [(1, "1 flow"), (10_000, "10k flows"), (1_000_000, "10^6 flows")];
/// Look-ups per stretch; the clock is read before and after each stretch.
const STRETCH: usize = 4096;
/// Stretches per round. Their median counts, because other processes use the machine as well.
const STRETCHES: usize = 24;
/// Packets per batch.
const BATCH: usize = 64;
/// The most rules for which a linear search is measured.
const LINEAR_MAX: usize = 1000;
/// One of this many rules is removed and inserted again.
const CHANGED: usize = 100;

/// Measures every rule set.
pub(super) fn run(quick: bool) -> Report {
    let rounds = if quick { 3 } else { 9 };
    let mut rows = Vec::new();
    let mut notes = vec![
        "flows are drawn from the rules, all alike, and packets from the flows in turn; look-ups in batches of 64"
            .to_owned(),
        "one by one: without batches, 10k flows; a change is a removal or an insertion".to_owned(),
        "beside changes: 10k flows, one rule of 100, 1,000 at most, changed since the table was built".to_owned(),
    ];
    let sizes: &[usize] = if quick { &[200, 10_000] } else { &[200, 1000, 10_000, 100_000] };
    let tuple = five_tuple();
    for &n in sizes {
        for family in Family::ALL {
            let name = format!("{} {}", family.name(), count_label(n));
            rows.extend(measure_rules(&name, &tuple, &rules(family, n, 1), rounds, &mut notes));
        }
    }
    let sizes: &[usize] = if quick { &[1_000_000] } else { &[1000, 100_000, 1_000_000] };
    for &n in sizes {
        rows.extend(measure_rules(
            &format!("exact {}", count_label(n)),
            &tuple,
            &exact(n, 1),
            rounds,
            &mut notes,
        ));
        for (bits, name) in [(32, "IPv4"), (128, "IPv6")] {
            let field = [FieldSpec::new("dst", bits)];
            let name = format!("{name} prefixes {}", count_label(n));
            rows.extend(measure_rules(&name, &field, &prefixes(n, bits, 1), rounds, &mut notes));
        }
        let name = format!("prefixes of both {}", count_label(n));
        rows.extend(measure_rules(&name, &network(), &networks(n, 1), rounds, &mut notes));
    }
    notes.push(
        "JOIN FIRST: a compiled handler with the match less the same without, acl rules, 4,096 flows"
            .to_owned(),
    );
    let mut failures = Vec::new();
    match matched::rows(if quick { &[200] } else { &[200, 1000, 10_000] }, rounds) {
        Ok(matched) => rows.extend(matched),
        Err(error) => failures.push(error),
    }
    Report { bench: "classify", rows, notes, failures }
}

/// The label for a number of rules: `500`, `10k` or `10^6`.
fn count_label(n: usize) -> String {
    match n {
        1_000_000.. => "10^6".to_owned(),
        1000.. => format!("{}k", n / 1000),
        _ => n.to_string(),
    }
}

/// Builds a classifier of these rules and measures it. Notes what the table does not show.
fn measure_rules(
    name: &str,
    fields: &[FieldSpec],
    rules: &[Rule],
    rounds: usize,
    notes: &mut Vec<String>,
) -> Vec<Row> {
    super::progress(name);
    let began = Instant::now();
    let mut table = Classifier::new(fields, HashKey::from_seed(1)).expect("the fields fit");
    for rule in rules {
        table.insert(rule).expect("the generator makes rules that fit");
    }
    let load = began.elapsed().as_secs_f64() * 1e3;
    let began = Instant::now();
    let built = table.rebuild();
    let build = began.elapsed().as_secs_f64() * 1e3;
    table.adopt(built).expect("nothing has changed");
    notes.push(format!("{name}: {}", table.describe()));

    let mut rows = Vec::new();
    for (n, metric) in FLOWS {
        let keys = flows(table.layout(), rules, n, 2);
        // Give each flow enough packets for a stretch.
        let keys = keys.repeat(STRETCH.div_ceil(n));
        let mut ours = Samples::default();
        let mut linear = Samples::default();
        let mut alone = Samples::default();
        for round in 0..rounds {
            ours.0.push(batches(&table, &keys, round));
            if n == 10_000 {
                alone.0.push(one_by_one(&table, &keys, round, STRETCH, |key| table.lookup(key)));
                if rules.len() <= LINEAR_MAX {
                    linear.0.push(one_by_one(&table, &keys, round, 64, |key| table.lookup_linear(key)));
                }
            }
        }
        let row = Row::new(name, metric, "ns", &ours.0);
        rows.push(if linear.0.is_empty() {
            row
        } else {
            row.against("asking each rule", &ours.0, &linear.0)
        });
        if n == 10_000 {
            rows.push(Row::new(name, "one by one", "ns", &alone.0));
        }
    }
    rows.push(Row::new(name, "load", "ms", &[load]));
    rows.push(Row::new(name, "build", "ms", &[build]));
    rows.push(Row::new(name, "a rule", "B", &[table.describe().bytes as f64 / rules.len() as f64]));
    let keys = flows(table.layout(), rules, 10_000, 2);
    let changes: Vec<f64> = (0..rounds).map(|round| changes(&mut table, rules, round)).collect();
    rows.push(Row::new(name, "a change", "ns", &changes));
    let beside: Vec<f64> = (0..rounds).map(|round| batches(&table, &keys, round)).collect();
    rows.push(Row::new(name, "beside changes", "ns", &beside));
    rows
}

#[derive(Default)]
struct Samples(Vec<f64>);

/// Looks up all keys in batches. Returns nanoseconds per look-up.
fn batches(table: &Classifier, keys: &[u64], round: usize) -> f64 {
    let words = table.layout().words();
    let mut found = [0; BATCH];
    stretches(keys, words, round, STRETCH, |keys| {
        let mut sum = 0u64;
        for keys in keys.chunks(BATCH * words) {
            let found = &mut found[..keys.len() / words];
            table.lookup_batch(keys, found);
            sum += u64::from(found[0]);
        }
        sum
    })
}

/// Looks up keys one by one with `lookup`. Returns nanoseconds per look-up.
fn one_by_one(
    table: &Classifier,
    keys: &[u64],
    round: usize,
    stretch: usize,
    find: impl Fn(&[u64]) -> Option<u32>,
) -> f64 {
    let words = table.layout().words();
    stretches(keys, words, round, stretch, |keys| {
        keys.chunks_exact(words).map(|key| u64::from(find(key).unwrap_or(0))).sum()
    })
}

/// The median of some stretches. Each round continues with other keys; a short list of keys repeats.
fn stretches(
    keys: &[u64],
    words: usize,
    round: usize,
    stretch: usize,
    mut find: impl FnMut(&[u64]) -> u64,
) -> f64 {
    let n = (keys.len() / words).min(stretch);
    let parts = keys.len() / words / n;
    let repeats = stretch / n;
    let times = (0..STRETCHES).map(|at| {
        let part = &keys[(round * STRETCHES + at) % parts * n * words..][..n * words];
        let began = Instant::now();
        for _ in 0..repeats {
            black_box(find(black_box(part)));
        }
        began.elapsed().as_nanos() as f64 / (n * repeats) as f64
    });
    median(&times.collect::<Vec<f64>>())
}

/// Nanoseconds per change: rules are removed, and inserted again.
fn changes(table: &mut Classifier, rules: &[Rule], round: usize) -> f64 {
    let mut rng = Rng::of_stream(1, "round", round as u64);
    let mut ids: Vec<usize> =
        (0..rules.len().div_ceil(CHANGED).clamp(2, 1000)).map(|_| rng.below(rules.len())).collect();
    ids.sort_unstable();
    ids.dedup();
    let began = Instant::now();
    for &id in &ids {
        table.remove(rules[id].id);
    }
    for &id in &ids {
        table.insert(&rules[id]).expect("it was there before");
    }
    began.elapsed().as_nanos() as f64 / (2 * ids.len()) as f64
}
