//! A node that runs a generated chain: its state, and the tables that its sinks fill.

use std::collections::BTreeMap;
use std::sync::Arc;

use weft_core::native::{Arg, Call, Ended, Prepared};
use weft_core::table::{Insert, Scalars};
use weft_core::{Time, Value};
use weft_ir::generate::{Observation, Observed, Pass, World};
use weft_ir::interp::AccessAt;
use weft_ir::program::{ChainProgram, SinkTarget};

use super::generate::SENT;

/// Largest number of rows of a table.
const ROWS_MAX: usize = 2;
/// The first byte of packed bytes.
const PACKED: u8 = b'P';

/// A node; one worker runs one call at a time.
pub(super) struct Node {
    pub(super) world: World,
    /// The same tables, as another chain has them.
    beside: World,
    /// By name: the tables that sinks fill.
    sent: BTreeMap<String, BTreeMap<u64, u64>>,
}

impl Node {
    /// A new node with this many workers, which also runs another chain on the same tables.
    pub(super) fn new(chain: &ChainProgram, other: &ChainProgram, workers: usize) -> Self {
        let natives = [true, false].map(|packs| Arc::new(Packer { packs }) as Arc<dyn Prepared>);
        let mut world = World::with_natives(chain, natives.clone().into());
        let mut beside = World::with_natives(other, natives.into());
        beside.state.tables.clone_from(&world.state.tables);
        let n_words = world.state.merged.len();
        let parts = (world.state.merged_parts.len()..workers).map(|_| Arc::new(Scalars::new(n_words)));
        let parts: Vec<Arc<Scalars>> = world.state.merged_parts.iter().cloned().chain(parts).collect();
        world.state.merged_parts = parts.into_iter().take(workers).collect();
        Self { world, beside, sent: BTreeMap::from([("sent".to_owned(), BTreeMap::from([(0, 5)]))]) }
    }

    /// A call begins on a worker.
    pub(super) fn begin(&mut self, worker: usize) {
        let state = &mut self.world.state;
        state.merged = Arc::clone(&state.merged_parts[worker % state.merged_parts.len()]);
        self.world.call.fill(0);
    }

    /// Switches between this chain and the other for the rest of a case.
    pub(super) fn change_chain(&mut self) {
        core::mem::swap(&mut self.world, &mut self.beside);
    }

    /// Runs a pass; afterwards, rows that it sent to tables are in them.
    pub(super) fn run(&mut self, chain: &Arc<ChainProgram>, pass: &Pass) -> (Observation, Vec<AccessAt>) {
        let (seen, noted) = self.world.run_with_accesses(chain, pass);
        for (sink, cells) in &seen.rows {
            if let SinkTarget::Table { table, deletes, .. } = &chain.sinks[usize::from(*sink)].target {
                self.send(table, *deletes, cells);
            }
        }
        (seen, noted)
    }

    fn send(&mut self, name: &str, deletes: bool, cells: &[Observed]) {
        let word = |at: usize| match cells.get(at) {
            Some(Observed::Word(word)) => *word,
            other => panic!("{other:?} is not a number"),
        };
        let rows = self.sent.entry(name.to_owned()).or_default();
        let key = word(0);
        if deletes {
            rows.remove(&key);
        } else if rows.len() < ROWS_MAX || rows.contains_key(&key) {
            rows.insert(key, word(1));
        }
        if name == "sent" {
            self.fill(key);
        }
    }

    /// Updates the row of a key in the table that handlers read.
    fn fill(&self, key: u64) {
        let table = &self.world.state.tables[usize::from(SENT.0)];
        let there = table.find_values(&[Value::Int(key as i64)], Time(0));
        match (self.sent["sent"].get(&key), there.is_some()) {
            (None, _) => table.remove(there),
            (Some(n), true) => table.set_values(there, &values(key, *n)),
            (Some(n), false) => {
                let inserted = table.insert_row(&values(key, *n), Time(0));
                assert!(matches!(inserted, Insert::New(_)), "{inserted:?}");
            }
        }
    }

    /// The tables that sinks fill, as text.
    pub(super) fn sent(&self) -> Vec<String> {
        self.sent.iter().map(|(name, rows)| format!("{name}: {rows:?}")).collect()
    }
}

fn values(key: u64, n: u64) -> [Value; 3] {
    [key as i64, n as i64, 7].map(Value::Int)
}

/// A function that packs bytes, and its inverse, which fails for all other bytes.
#[derive(Debug)]
struct Packer {
    packs: bool,
}

impl Prepared for Packer {
    fn call(&self, call: &Call<'_>, out: &mut Vec<u8>) -> Ended {
        let [Arg::Bytes(bytes)] = call.args else { panic!("the function takes bytes: {:?}", call.args) };
        match (self.packs, bytes.split_first()) {
            (true, _) => {
                out.push(PACKED);
                out.extend_from_slice(bytes);
            }
            (false, Some((&PACKED, packed))) => out.extend_from_slice(packed),
            (false, _) => return Ended::Failed,
        }
        Ended::Bytes
    }
}
