//! The state of chains on one node, carried by name from version to version.
//!
//! A table is identified by (chain, instance, table), a variable by (chain, instance, variable). An update is *staged*:
//! its programs are bound one by one, and it is committed only when it is published. Existing tables are reused. New
//! columns are added beside the old ones: rows never move, and code of the old version is not disturbed. Removed
//! columns stay unused, and new limits apply from the commit on. Tables of the controller follow the text and keep rows
//! that were added at run time ([`crate::rules`]). State that the new version does not use is dropped, and state that
//! cannot be carried over is refused.

use crate::filter::{self, Filter};
use crate::rules::{ControllerRows, TableName, copies, merged, set_ages};
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::Time;
use weft_core::abi::{Parts, State};
use weft_core::filter::Policies;
use weft_core::hash::HashKey;
use weft_core::matching::Matcher;
use weft_core::native::Prepared;
use weft_core::table::{ColumnSpec, LimitsError, RemovalReason, Scalars, Table, TableSpec};
use weft_core::types::Type;
use weft_ir::program::{ChainProgram, MatchDecl, Merge, Realisation, TableDecl, VarDecl};

/// The most scalar variables that one chain may have over its life, including those of removed elements.
pub const SCALARS_MAX: usize = 512;

/// The state of all chains of a node.
#[derive(Clone, Debug)]
pub struct StateStore {
    workers: usize,
    /// The hash key of all tables, for the life of the node.
    hash: HashKey,
    chains: BTreeMap<String, ChainState>,
    /// Shared tables: all chains that name one use the same.
    shared: BTreeMap<String, StoredTable>,
    /// The number of filters that were ever bound.
    n_filters: u32,
}

/// The state of an update that may still be refused. If it is dropped, the store stays as it was.
#[derive(Debug)]
pub struct Staged {
    store: StateStore,
    limits: Vec<(Arc<Table>, TableSpec)>,
    /// All tables of the update, and those with a TIMEOUT or EVICT handler.
    bound: Vec<Arc<Table>>,
    watched: Vec<(Arc<Table>, RemovalReason)>,
    /// By chain: its native functions.
    natives: BTreeMap<String, Vec<Arc<dyn Prepared>>>,
    /// Rows of the text are ignored.
    keeps_rows: bool,
}

/// The state of one version of a chain, for the programs of all workers.
#[derive(Clone, Debug, Default)]
pub struct Bound {
    /// Per table of the program: one for all workers, or one for each.
    tables: Vec<Vec<Arc<Table>>>,
    scalars: Arc<Scalars>,
    merged: Vec<Arc<Scalars>>,
    /// Native functions, one for all workers.
    natives: Vec<Arc<dyn Prepared>>,
    /// Matchers over tables, one for all workers.
    matchers: Vec<Arc<Matcher>>,
}

#[derive(Clone, Debug)]
struct StoredFilter {
    id: u32,
    cells: Arc<Scalars>,
    /// As [`StoredTable::is_bound`].
    is_bound: bool,
}

#[derive(Clone, Debug)]
struct ChainState {
    filters: BTreeMap<String, StoredFilter>,
    tables: BTreeMap<(String, String), StoredTable>,
    vars: BTreeMap<(String, String), StoredVar>,
    /// The number of words ever assigned to variables.
    words: usize,
    scalars: Arc<Scalars>,
    merged: Vec<Arc<Scalars>>,
}

#[derive(Clone, Debug)]
pub(crate) struct StoredTable {
    realisation: Realisation,
    pub(crate) tables: Vec<Arc<Table>>,
    /// The controller's rows.
    pub(crate) filled: Option<ControllerRows>,
    /// A program of the staged update uses it.
    is_bound: bool,
}

#[derive(Clone, Debug)]
struct StoredVar {
    ty: Type,
    merge: Option<Merge>,
    word: u32,
    /// As [`StoredTable::is_bound`].
    is_bound: bool,
}

/// Why a program does not match the state of the node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateMismatch {
    /// The chain.
    pub chain: String,
    /// The instance, empty for a shared table.
    pub instance: String,
    /// The table or variable.
    pub name: String,
    /// What does not match.
    pub reason: String,
    /// How to fix it.
    pub help: String,
}

impl fmt::Display for StateMismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { chain, instance, name, reason, .. } = self;
        let dot = if instance.is_empty() { "" } else { "." };
        write!(f, "the state of `{chain}.{instance}{dot}{name}` cannot be carried over: {reason}")
    }
}

impl core::error::Error for StateMismatch {}

impl StateStore {
    /// An empty store for a node with that many workers; its tables use this hash key.
    pub fn new(workers: usize, hash: HashKey) -> Self {
        assert!(workers > 0, "a node has at least one worker");
        Self { workers, hash, chains: BTreeMap::new(), shared: BTreeMap::new(), n_filters: 0 }
    }

    /// Starts an update of the state, which [`Self::commit`] ends.
    pub fn stage(&self) -> Staged {
        let mut store = self.clone();
        for table in store.stored_tables() {
            table.is_bound = false;
            table.filled.iter_mut().for_each(ControllerRows::unbind);
        }
        store.stored_vars().for_each(|var| var.is_bound = false);
        store.stored_filters().for_each(|filter| filter.is_bound = false);
        Staged {
            store,
            limits: Vec::new(),
            bound: Vec::new(),
            watched: Vec::new(),
            natives: BTreeMap::new(),
            keeps_rows: false,
        }
    }

    /// Commits a published update. State that it does not use is dropped, and freed with the last version that uses it.
    pub fn commit(&mut self, staged: Staged) {
        for (table, limits) in staged.limits {
            table.set_limits(&limits).expect("checked when it was bound");
        }
        for table in staged.bound {
            for why in [RemovalReason::Expired, RemovalReason::Evicted] {
                let is_this =
                    |(watched, of): &(Arc<Table>, RemovalReason)| *of == why && Arc::ptr_eq(watched, &table);
                table.keep_removed(why, staged.watched.iter().any(is_this));
            }
        }
        *self = staged.store;
        self.stored_tables().filter_map(|table| table.filled.as_mut()).for_each(ControllerRows::retain_bound);
        self.shared.retain(|_, table| table.is_bound);
        for chain in self.chains.values_mut() {
            chain.tables.retain(|_, table| table.is_bound);
            chain.vars.retain(|_, var| var.is_bound);
            chain.filters.retain(|_, filter| filter.is_bound);
        }
        let is_empty =
            |chain: &ChainState| chain.tables.is_empty() && chain.vars.is_empty() && chain.filters.is_empty();
        self.chains.retain(|_, chain| !is_empty(chain));
    }

    /// Returns the names of all tables, in order.
    pub(crate) fn names(&self) -> impl Iterator<Item = TableName> {
        let shared =
            self.shared.keys().map(|table| TableName { table: table.clone(), ..TableName::default() });
        let own = self.chains.iter().flat_map(|(chain, state)| {
            state.tables.keys().map(|(instance, table)| TableName {
                chain: chain.clone(),
                instance: instance.clone(),
                table: table.clone(),
            })
        });
        shared.chain(own)
    }

    /// Returns a table with its metadata, by name.
    pub(crate) fn stored(&self, name: &TableName) -> Option<&StoredTable> {
        if name.instance.is_empty() {
            return self.shared.get(&name.table);
        }
        self.chains.get(&name.chain)?.tables.get(&(name.instance.clone(), name.table.clone()))
    }

    /// Returns a table with its metadata, by name, for changes.
    pub(crate) fn stored_mut(&mut self, name: &TableName) -> Option<&mut StoredTable> {
        if name.instance.is_empty() {
            return self.shared.get_mut(&name.table);
        }
        self.chains.get_mut(&name.chain)?.tables.get_mut(&(name.instance.clone(), name.table.clone()))
    }

    pub(crate) fn stored_tables(&mut self) -> impl Iterator<Item = &mut StoredTable> {
        self.shared.values_mut().chain(self.chains.values_mut().flat_map(|chain| chain.tables.values_mut()))
    }

    fn stored_vars(&mut self) -> impl Iterator<Item = &mut StoredVar> {
        self.chains.values_mut().flat_map(|chain| chain.vars.values_mut())
    }

    fn stored_filters(&mut self) -> impl Iterator<Item = &mut StoredFilter> {
        self.chains.values_mut().flat_map(|chain| chain.filters.values_mut())
    }

    fn chain(&mut self, name: &str) -> &mut ChainState {
        let workers = self.workers;
        self.chains.entry(name.to_owned()).or_insert_with(|| ChainState::new(workers))
    }

    /// Finds the existing table of a declaration in a chain.
    fn stored_table(&mut self, chain: &str, decl: &TableDecl) -> Option<&mut StoredTable> {
        if decl.owner.is_empty() {
            return self.shared.get_mut(&decl.spec.name);
        }
        self.chains.get_mut(chain)?.tables.get_mut(&(decl.owner.clone(), decl.spec.name.clone()))
    }
}

impl Staged {
    /// The programs are those that already run, without the rows of their text: tables keep their rows.
    pub fn keep_rows(&mut self) {
        self.keeps_rows = true;
    }

    /// Sets the functions of a chain's [`ChainProgram::natives`], ready to be called. Call it before the chain is
    /// bound.
    pub fn give_natives(&mut self, chain: &str, natives: Vec<Arc<dyn Prepared>>) {
        self.natives.insert(chain.to_owned(), natives);
    }

    /// Binds a program to existing state, and creates new state.
    ///
    /// # Errors
    /// [`StateMismatch`] has the state that cannot be carried over. Abandon the update then.
    pub fn bind(&mut self, mut program: ChainProgram) -> Result<(ChainProgram, Bound), StateMismatch> {
        let tables: Vec<Vec<Arc<Table>>> = program
            .tables
            .iter()
            .map(|decl| self.bind_table(&program.name, decl))
            .collect::<Result<_, _>>()?;
        self.bound.extend(tables.iter().flatten().cloned());
        for (_, departs) in program.timeouts() {
            let watched = tables[usize::from(departs.table.0)].iter();
            self.watched.extend(watched.map(|table| (Arc::clone(table), departs.why)));
        }
        let matchers = self.matchers(&program, &tables)?;
        let held = self.store.chain(&program.name);
        for var in &mut program.vars {
            var.word = held.bind_var(&program.name, var)?;
        }
        let (scalars, merged) = (Arc::clone(&held.scalars), held.merged.clone());
        let natives = self.natives.get(&program.name).cloned().unwrap_or_default();
        let bound = Bound { tables, scalars, merged, natives, matchers };
        Ok((program, bound))
    }

    /// Binds a filter instance to its state.
    ///
    /// # Errors
    /// As [`Staged::bind`].
    pub fn bind_filter(
        &mut self,
        chain: &str,
        name: &str,
        policies: &Policies,
    ) -> Result<Filter, StateMismatch> {
        let decls = filter::table_decls(name, policies, self.store.workers > 1);
        let tables = decls.iter().map(|decl| Ok(Arc::clone(&self.bind_table(chain, decl)?[0])));
        let tables = tables.collect::<Result<_, _>>()?;
        let (next_id, hash) = (self.store.n_filters, self.store.hash);
        let new =
            || StoredFilter { id: next_id, cells: Arc::new(Scalars::new(filter::CELLS)), is_bound: true };
        let held = self.store.chain(chain).filters.entry(name.to_owned()).or_insert_with(new);
        held.is_bound = true;
        let (id, state) = (held.id, filter::State::new(policies, Arc::clone(&held.cells), tables, hash));
        self.store.n_filters = next_id.max(id + 1);
        Ok(Filter { name: name.to_owned(), policies: policies.clone(), state, id })
    }

    /// Builds or reuses the matchers of the program over replicated tables.
    fn matchers(
        &mut self,
        program: &ChainProgram,
        tables: &[Vec<Arc<Table>>],
    ) -> Result<Vec<Arc<Matcher>>, StateMismatch> {
        let mut matcher = |decl: &MatchDecl| {
            let at = usize::from(decl.table.0);
            let table = &program.tables[at];
            let filled = self.store.stored_table(&program.name, table).and_then(|held| held.filled.as_mut());
            let filled = filled.expect("the checker lets tables of the controller alone be matched");
            filled.matcher(&decl.spec, &tables[at][0]).map_err(|error| StateMismatch {
                chain: program.name.clone(),
                instance: table.owner.clone(),
                name: table.spec.name.clone(),
                reason: error.to_string(),
                help: "give it fewer rows".to_owned(),
            })
        };
        program.matches.iter().map(&mut matcher).collect()
    }

    /// Returns the copies of a declared table: the existing ones if they fit, otherwise new ones. The error says what
    /// does not fit.
    fn bind_table(&mut self, chain: &str, decl: &TableDecl) -> Result<Vec<Arc<Table>>, StateMismatch> {
        let workers = self.store.workers;
        let mut rows = None;
        if let Some(held) = self.store.stored_table(chain, decl) {
            let refuse = |reason| StateMismatch {
                chain: chain.to_owned(),
                instance: decl.owner.clone(),
                name: decl.spec.name.clone(),
                reason,
                help: "give the table another name: it then starts empty".to_owned(),
            };
            check_realisation(held.realisation, decl.realisation).map_err(refuse)?;
            // A shared table is the same for all chains of one update, also if the controller fills it anew.
            if held.realisation != Realisation::Replicated || held.is_bound {
                for table in &held.tables {
                    check_table(table, &decl.spec).map_err(refuse)?;
                    self.limits.push((Arc::clone(table), decl.spec.clone()));
                }
                held.is_bound = true;
                return Ok(held.tables.clone());
            }
            if let Some(filled) = &held.filled {
                let (table, n_keys) = (&held.tables[0], decl.spec.key.len());
                if *table.spec() == decl.spec && (self.keeps_rows || filled.is_of(n_keys, &decl.rows)) {
                    held.is_bound = true;
                    return Ok(held.tables.clone());
                }
                if table.spec().key == decl.spec.key {
                    let merged = merged(table, filled, &decl.spec, &decl.rows);
                    if merged.len() as u64 > decl.spec.max_rows {
                        let (n, max) = (merged.len(), decl.spec.max_rows);
                        return Err(refuse(format!("it has {n} rows, and would have room for {max}")));
                    }
                    rows = Some(merged);
                }
            }
        }
        let n = if decl.realisation == Realisation::PerWorker { workers } else { 1 };
        let hash = self.store.hash;
        let tables: Vec<_> = (0..n).map(|_| Arc::new(Table::new(decl.spec.clone(), hash))).collect();
        let rows = rows.as_ref().unwrap_or(&decl.rows);
        tables.iter().for_each(|table| table.add_rows(rows, Time(0)));
        let filled = (decl.realisation == Realisation::Replicated)
            .then(|| ControllerRows::new(decl.spec.key.len(), &decl.rows));
        if filled.is_some() && decl.spec.expires() {
            let before = self.store.stored_table(chain, decl);
            let before = before.and_then(|held| Some(copies(&held.tables, held.filled.as_ref()?)));
            tables.iter().for_each(|table| set_ages(before.as_deref().unwrap_or_default(), table));
        }
        let held =
            StoredTable { realisation: decl.realisation, tables: tables.clone(), filled, is_bound: true };
        if decl.owner.is_empty() {
            self.store.shared.insert(decl.spec.name.clone(), held);
        } else {
            let name = (decl.owner.clone(), decl.spec.name.clone());
            self.store.chain(chain).tables.insert(name, held);
        }
        Ok(tables)
    }
}

impl Bound {
    /// A table of the program as this worker sees it.
    pub fn table(&self, table: usize, worker: usize) -> &Arc<Table> {
        let tables = &self.tables[table];
        tables.get(worker).unwrap_or(&tables[0])
    }

    /// Releases the tables that the controller fills, and their matchers.
    pub(crate) fn forget_rules(&mut self, program: &ChainProgram) {
        let filled = |decl: &TableDecl| decl.realisation == Realisation::Replicated;
        let tables = self.tables.iter_mut().zip(&program.tables).filter(|(_, decl)| filled(decl));
        tables.for_each(|(tables, _)| tables.clear());
        self.matchers.clear();
    }

    /// The number of workers with state.
    pub fn workers(&self) -> usize {
        self.merged.len()
    }

    /// Returns the state for this worker's programs.
    pub fn for_worker(&self, worker: usize) -> State {
        State::from(Parts {
            tables: (0..self.tables.len()).map(|at| Arc::clone(self.table(at, worker))).collect(),
            scalars: Arc::clone(&self.scalars),
            merged: self.merged.get(worker).cloned().unwrap_or_default(),
            merged_parts: self.merged.clone(),
            natives: self.natives.clone(),
            matchers: self.matchers.clone(),
        })
    }
}

impl ChainState {
    /// Creates an empty state for that many workers.
    fn new(workers: usize) -> Self {
        let scalars = || Arc::new(Scalars::new(SCALARS_MAX));
        Self {
            filters: BTreeMap::new(),
            tables: BTreeMap::new(),
            vars: BTreeMap::new(),
            words: 0,
            scalars: scalars(),
            merged: (0..workers).map(|_| scalars()).collect(),
        }
    }

    /// Assigns the word of a variable.
    fn bind_var(&mut self, chain: &str, var: &VarDecl) -> Result<u32, StateMismatch> {
        let refuse = |reason: String, help: &str| StateMismatch {
            chain: chain.to_owned(),
            instance: var.owner.clone(),
            name: var.name.clone(),
            reason,
            help: help.to_owned(),
        };
        let key = (var.owner.clone(), var.name.clone());
        if let Some(held) = self.vars.get_mut(&key) {
            if (held.ty, held.merge) != (var.ty, var.merge) {
                let reason = format!("it is {}, and would be {}", held.ty, var.ty);
                return Err(refuse(reason, "give the variable another name: it then starts anew"));
            }
            held.is_bound = true;
            return Ok(held.word);
        }
        if self.words == SCALARS_MAX {
            let reason = format!("a chain may have {SCALARS_MAX} variables over its life");
            return Err(refuse(reason, "use a table, or restart the node"));
        }
        let word = self.words as u32;
        self.words += 1;
        let start = var.start.word();
        match var.merge {
            None => self.scalars.set_word(word as usize, start),
            Some(_) => self.merged.iter().for_each(|part| part.set_word(word as usize, start)),
        }
        self.vars.insert(key, StoredVar { ty: var.ty, merge: var.merge, word, is_bound: true });
        Ok(word)
    }
}

/// Checks that a table may change to the wanted realisation: learned rows must not be dropped silently.
fn check_realisation(held: Realisation, wanted: Realisation) -> Result<(), String> {
    let per_worker = |r| r == Realisation::PerWorker;
    let filled = |r| r == Realisation::Replicated;
    match (held, wanted) {
        (held, wanted) if per_worker(held) && !per_worker(wanted) => {
            Err("each worker has its own, and all would have one".to_owned())
        }
        (held, wanted) if per_worker(wanted) && !per_worker(held) => {
            Err("all workers have one, and each would have its own".to_owned())
        }
        (held, wanted) if filled(wanted) && !filled(held) => {
            Err("elements have written it, and the controller would fill it".to_owned())
        }
        _ => Ok(()),
    }
}

/// Checks that an existing table has the wanted key and limits, and adds columns that it lacks.
fn check_table(table: &Table, wanted: &TableSpec) -> Result<(), String> {
    let key_of = |columns: &[ColumnSpec]| -> String {
        columns.iter().map(|c| format!("{} {}", c.name, c.ty)).collect::<Vec<_>>().join(", ")
    };
    let (held, key) = (key_of(&table.spec().key), key_of(&wanted.key));
    if held != key {
        return Err(format!("its key is ({held}), and would be ({key})"));
    }
    table.check_limits(wanted).map_err(|e| match e {
        LimitsError::Rows { max } => {
            format!("it has room for {max} rows, and would have {}", wanted.max_rows)
        }
        LimitsError::Order => "its rows do not have the times that TTL or EVICT would need".to_owned(),
    })?;
    // Columns that stay unused because the update is refused do no harm: no code reads them, and the next update finds
    // them.
    table.extend(&wanted.columns).map_err(|e| e.to_string())
}
