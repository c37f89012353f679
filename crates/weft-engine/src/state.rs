//! The state of chains on one node, carried by name from version to version.
//!
//! A table is known by (chain, instance, table), a variable by (chain, instance, variable). When a program is
//! bound, tables that exist are used again: new columns are added beside the old ones (rows never move, code of
//! the old version goes on undisturbed), columns that are gone stay unused. Tables that the controller fills are
//! replaced whole. What cannot be carried is refused before anything is changed.

use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::abi::State;
use weft_core::table::{ColumnSpec, Insert, KeyBuilder, LimitsError, Scalars, Table, TableSpec};
use weft_core::types::Type;
use weft_core::{Time, Value};
use weft_ir::program::{ChainProgram, Merge, Realisation, TableDecl, VarDecl};

/// Scalar variables that one chain may have over its life, those of dropped elements included.
pub const SCALARS_MAX: usize = 512;

/// The state of all chains of a node.
#[derive(Debug)]
pub struct StateStore {
    workers: usize,
    chains: BTreeMap<String, ChainState>,
    /// Tables of no element: all chains that name one have the same.
    shared: BTreeMap<String, HeldTable>,
}

/// The state of one version of a chain: what each worker's programs run on.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// For each table of the program: one for all workers, or one for each.
    tables: Vec<Vec<Arc<Table>>>,
    scalars: Arc<Scalars>,
    merged: Vec<Arc<Scalars>>,
}

#[derive(Debug)]
struct ChainState {
    tables: BTreeMap<(String, String), HeldTable>,
    vars: BTreeMap<(String, String), HeldVar>,
    scalars: Arc<Scalars>,
    merged: Vec<Arc<Scalars>>,
}

#[derive(Clone, Debug)]
struct HeldTable {
    realisation: Realisation,
    tables: Vec<Arc<Table>>,
}

#[derive(Clone, Debug)]
struct HeldVar {
    ty: Type,
    merge: Option<Merge>,
    word: u32,
}

/// Why a program does not fit the state that the node holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unfit {
    /// The chain.
    pub chain: String,
    /// The instance, empty for a shared table.
    pub instance: String,
    /// The table or variable.
    pub name: String,
    /// What does not fit.
    pub reason: String,
    /// What would help.
    pub help: String,
}

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, instance, name, reason, .. } = self;
        let dot = if instance.is_empty() { "" } else { "." };
        write!(f, "the state of `{chain}.{instance}{dot}{name}` cannot be carried over: {reason}")
    }
}

impl core::error::Error for Unfit {}

impl StateStore {
    /// An empty store for a node with so many workers.
    pub fn new(workers: usize) -> Self {
        assert!(workers > 0, "a node has at least one worker");
        Self { workers, chains: BTreeMap::new(), shared: BTreeMap::new() }
    }

    /// Whether [`StateStore::bind`] would take a program. Ask for all chains of a plan before the first is bound.
    ///
    /// # Errors
    /// [`Unfit`] says what cannot be carried.
    pub fn check(&self, program: &ChainProgram) -> Result<(), Unfit> {
        let held = self.chains.get(&program.name);
        for decl in &program.tables {
            let Some(held) = self.held_table(&program.name, decl) else { continue };
            check_table(&held.tables[0], &decl.spec).map_err(|reason| Unfit {
                chain: program.name.clone(),
                instance: decl.owner.clone(),
                name: decl.spec.name.clone(),
                reason,
                help: "give the table another name: it then starts empty".to_owned(),
            })?;
        }
        held.map_or(Ok(()), |held| held.check_vars(program))
    }

    /// Binds a program to the state that is there, and to new state for what is new.
    ///
    /// # Errors
    /// As [`StateStore::check`]; nothing was changed then.
    pub fn bind(&mut self, mut program: ChainProgram) -> Result<(ChainProgram, Bound), Unfit> {
        self.check(&program)?;
        let tables = program.tables.iter().map(|decl| self.bind_table(&program.name, decl)).collect();
        let workers = self.workers;
        let held = self.chains.entry(program.name.clone()).or_insert_with(|| ChainState::new(workers));
        for var in &mut program.vars {
            var.word = held.bind_var(var);
        }
        let bound = Bound { tables, scalars: Arc::clone(&held.scalars), merged: held.merged.clone() };
        Ok((program, bound))
    }

    /// Forgets the state of chains that a new plan no longer has. It goes when the last version that uses it is gone.
    pub fn retain(&mut self, keep: impl Fn(&str) -> bool) {
        self.chains.retain(|name, _| keep(name));
    }

    fn tables_for(&self, chain: &str, decl: &TableDecl) -> Option<&HeldTable> {
        if decl.owner.is_empty() {
            return self.shared.get(&decl.spec.name);
        }
        self.chains.get(chain)?.tables.get(&(decl.owner.clone(), decl.spec.name.clone()))
    }

    /// The table that `decl` would use again; tables that the controller fills are never used again.
    fn held_table(&self, chain: &str, decl: &TableDecl) -> Option<&HeldTable> {
        let held = self.tables_for(chain, decl)?;
        let reusable = held.realisation != Realisation::Replicated
            && decl.realisation != Realisation::Replicated
            && (held.realisation == Realisation::PerWorker) == (decl.realisation == Realisation::PerWorker);
        reusable.then_some(held)
    }

    fn bind_table(&mut self, chain: &str, decl: &TableDecl) -> Vec<Arc<Table>> {
        if let Some(held) = self.held_table(chain, decl) {
            for table in &held.tables {
                table.extend(&decl.spec.columns).expect("checked before anything was changed");
                // A limit that the table has no room for was refused by the check.
                let TableSpec { max_rows, ttl, evict, .. } = decl.spec;
                table.set_limits(max_rows, ttl, evict).expect("checked before");
            }
            return held.tables.clone();
        }
        let workers = self.workers;
        let n = if decl.realisation == Realisation::PerWorker { workers } else { 1 };
        let tables: Vec<_> = (0..n).map(|_| Arc::new(Table::new(decl.spec.clone()))).collect();
        tables.iter().for_each(|table| fill(table, decl));
        let held = HeldTable { realisation: decl.realisation, tables: tables.clone() };
        if decl.owner.is_empty() {
            self.shared.insert(decl.spec.name.clone(), held);
        } else {
            let chain = self.chains.entry(chain.to_owned()).or_insert_with(|| ChainState::new(workers));
            chain.tables.insert((decl.owner.clone(), decl.spec.name.clone()), held);
        }
        tables
    }
}

impl Bound {
    /// The state as worker `worker`'s programs see it.
    pub fn for_worker(&self, worker: usize) -> State {
        let mine = |tables: &Vec<Arc<Table>>| Arc::clone(tables.get(worker).unwrap_or(&tables[0]));
        State {
            tables: self.tables.iter().map(mine).collect(),
            scalars: Arc::clone(&self.scalars),
            merged: self.merged.get(worker).cloned().unwrap_or_default(),
            merged_parts: self.merged.clone(),
        }
    }
}

impl ChainState {
    fn new(workers: usize) -> Self {
        let scalars = || Arc::new(Scalars::new(SCALARS_MAX));
        Self {
            tables: BTreeMap::new(),
            vars: BTreeMap::new(),
            scalars: scalars(),
            merged: (0..workers).map(|_| scalars()).collect(),
        }
    }

    fn check_vars(&self, program: &ChainProgram) -> Result<(), Unfit> {
        let unfit = |instance: &str, name: &str, reason: String, help: &str| Unfit {
            chain: program.name.clone(),
            instance: instance.to_owned(),
            name: name.to_owned(),
            reason,
            help: help.to_owned(),
        };
        let mut n_new = 0;
        for var in &program.vars {
            let Some(held) = self.vars.get(&(var.owner.clone(), var.name.clone())) else {
                n_new += 1;
                continue;
            };
            if (held.ty, held.merge) != (var.ty, var.merge) {
                let reason = format!("it is {}, and would be {}", held.ty, var.ty);
                let rename = "give the variable another name: it then starts anew";
                return Err(unfit(&var.owner, &var.name, reason, rename));
            }
        }
        if self.vars.len() + n_new > SCALARS_MAX {
            let reason = format!("a chain may have {SCALARS_MAX} variables over its life");
            return Err(unfit("", "VAR", reason, "use a table, or restart the node"));
        }
        Ok(())
    }

    fn bind_var(&mut self, var: &VarDecl) -> u32 {
        let key = (var.owner.clone(), var.name.clone());
        if let Some(held) = self.vars.get(&key) {
            return held.word;
        }
        let word = self.vars.len() as u32;
        let start = word_of(&var.start);
        match var.merge {
            None => self.scalars.set_word(word as usize, start),
            Some(_) => self.merged.iter().for_each(|part| part.set_word(word as usize, start)),
        }
        self.vars.insert(key, HeldVar { ty: var.ty, merge: var.merge, word });
        word
    }
}

fn check_table(table: &Table, wanted: &TableSpec) -> Result<(), String> {
    let key_of = |columns: &[ColumnSpec]| -> String {
        columns.iter().map(|c| format!("{} {}", c.name, c.ty)).collect::<Vec<_>>().join(", ")
    };
    let (held, key) = (key_of(&table.spec().key), key_of(&wanted.key));
    if held != key {
        return Err(format!("its key is ({held}), and would be ({key})"));
    }
    table.check_limits(wanted.max_rows, wanted.ttl, wanted.evict).map_err(|e| match e {
        LimitsError::Rows { max } => {
            format!("it has room for {max} rows, and would have {}", wanted.max_rows)
        }
        LimitsError::Order => "its rows are not in the order that TTL or EVICT would need".to_owned(),
    })?;
    // Columns that are added and then not used, because another table is refused, do no harm: no code knows them,
    // and the next update finds them.
    table.extend(&wanted.columns).map_err(|e| e.to_string())
}

/// Puts the rows of the program text into a new table.
fn fill(table: &Table, decl: &TableDecl) {
    let n_keys = decl.spec.key.len();
    let columns: Vec<_> = table.columns().map(|(_, at)| at).collect();
    for values in &decl.rows {
        // The checker has seen to it that keys differ and that the rows fit.
        let Insert::New(row) = insert(table, &values[..n_keys]) else { continue };
        for (column, value) in columns.iter().zip(values).skip(n_keys) {
            match value {
                Value::Null => table.set_null(row, *column, true),
                Value::Bytes(bytes) => {
                    table.set_bytes(row, *column, bytes);
                }
                number => table.set_word(row, *column, word_of(number)),
            }
        }
    }
}

fn insert(table: &Table, key: &[Value]) -> Insert {
    let at = Time(0);
    match key {
        [Value::Bytes(bytes)] => table.insert_bytes(bytes, at),
        [number] => table.insert_int(word_of(number), at),
        parts => {
            let mut key = KeyBuilder::default();
            for part in parts {
                match part {
                    Value::Bytes(bytes) => key.bytes(bytes),
                    number => key.int(word_of(number)),
                };
            }
            table.insert_bytes(key.as_bytes(), at)
        }
    }
}

fn word_of(value: &Value) -> u64 {
    match value {
        Value::Bool(b) => u64::from(*b),
        Value::Int(n) => *n as u64,
        Value::Float(x) => x.to_bits(),
        Value::Null | Value::Bytes(_) => 0,
    }
}
