//! Tables that the controller fills, and changes of their rows while a node runs.
//!
//! Workers read such a table, and the matchers over it, without locks. So rows never change where a worker reads. Each
//! table has a second copy. A change updates the second copy and hands it to the workers, which swap it in between two
//! batches ([`Swap`]). After all have done so, the first copy is updated as well and becomes the second one. All
//! changes of one [`StateStore::change`] take effect at once. The second copy is created at the first change.
//!
//! Compiled code is not affected: it finds tables through its [`State`].
//!
//! **Age.** In a table with a TTL, rows that are too old are removed ([`StateStore::expired`]). With `TTL ON ACCESS`
//! each worker notes reads in its own copy. So the last read of a row is the later one of both. Both have the time of
//! insertion, except for rows of the program's text, which at first only one has.
//!
//! **Updates of the program.** Rows of its text follow the text; rows that were added, changed or removed at run time
//! stay as they are (`merged`). If the text of a table has not changed, the table is kept with its matchers.

use crate::state::StateStore;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::abi::State;
use weft_core::classify::{Built, Description, Snapshot};
use weft_core::matching::jit_layout::NO_LOOKUP;
use weft_core::matching::{MatchSpec, Matcher, TooManyRows};
use weft_core::table::{Age, ColumnSpec, Insert, Row, Table, TableSpec};
use weft_core::types::Repr;
use weft_core::{Time, Value, hash};

/// The age of a row of the text: it starts at the first check.
const NOT_KNOWN: Time = Time::MAX;

/// In larger tables, a change does not copy the ages of rows to the second copy: that takes a fraction of a microsecond
/// per row.
const AGES_CARRIED_MAX: u64 = 256;

/// The most changes, of distinct keys, that are applied at once: all rows are looked up first, then all matchers are
/// changed, so that their cache misses overlap.
const RUN: usize = 64;

/// The name of a table: its chain and instance, both empty for a shared table.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct TableName {
    /// The chain.
    pub chain: String,
    /// The instance.
    pub instance: String,
    /// The table.
    pub table: String,
}

/// A change of one row.
#[derive(Clone, Debug, PartialEq)]
pub enum Change {
    /// Inserts a row whose key must not exist: a value for each column, keys first.
    Insert(Vec<Value>),
    /// Inserts a row, or replaces the one with its key.
    Put(Vec<Value>),
    /// Removes the row with this key.
    Remove(Vec<Value>),
}

/// Counts of changed rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Inserted rows.
    pub inserted: u64,
    /// Rows with new values.
    pub updated: u64,
    /// Removed rows.
    pub deleted: u64,
}

/// Why changes were refused; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError {
    /// The index of the change, from 0; 0 for an error of the table.
    pub at: usize,
    /// What is wrong.
    pub why: ChangeErrorKind,
}

/// The kind of error.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeErrorKind {
    /// The table does not exist.
    NoTable,
    /// Handlers fill it, not the controller.
    NotFilled,
    /// A row with this key exists, or another change has inserted it.
    Exists,
    /// The table is full.
    Full {
        /// Its maximum number of rows.
        max: u64,
    },
    /// A value does not fit its column.
    Value {
        /// The column.
        column: String,
    },
}

/// New copies of a table and its matchers; they replace the copies that workers use.
#[derive(Debug)]
pub struct Swap {
    tables: [Arc<Table>; 2],
    matchers: Vec<[Arc<Matcher>; 2]>,
}

/// A change in progress. Hand `swap` to all workers; when no worker holds the old copy any more, [settle] it.
///
/// [settle]: StateStore::settle
#[derive(Debug)]
pub struct PendingChange {
    /// The new copies for the workers.
    pub swap: Arc<Swap>,
    /// The number of changed rows.
    pub counts: Counts,
    name: TableName,
    work: Work,
    /// Per match: its copy must be rebuilt from the other one.
    anew: Vec<bool>,
}

#[derive(Debug)]
enum Work {
    Changes {
        changes: Vec<Change>,
        /// How many of them may be applied at once.
        run: usize,
        now: Time,
        /// Per match: a matcher built from the rows right away.
        built: Vec<Option<Built>>,
    },
    Built {
        at: usize,
        built: Built,
    },
}

/// A view of a table and its content.
#[derive(Clone, Debug)]
pub struct TableView {
    /// Where it is.
    pub name: TableName,
    /// The controller fills it: its rows may be changed from outside.
    pub is_filled: bool,
    /// The tables: one, or one for each worker.
    pub tables: Vec<Arc<Table>>,
    /// The descriptions of its matchers.
    pub matched: Vec<Description>,
    /// Rows of the controller that expired since the table was created.
    pub expired: u64,
    /// The rows of the program's text.
    text: Arc<RowHashes>,
}

impl TableView {
    /// The number of rows that are not in the program's text: they were added at run time.
    pub fn rows_given(&self) -> u64 {
        let Some(table) = self.tables.first() else { return 0 };
        let n_keys = table.spec().key.len();
        let (mut cursor, mut n) = (0, 0);
        while let Some((row, next)) = table.scan(cursor, Time(0)) {
            cursor = next;
            let values = table.values(row);
            n += u64::from(self.text.0.get(&hash_of(&values[..n_keys])) != Some(&hash_of(&values)));
        }
        n
    }
}

/// A matcher that is older than some changes.
#[derive(Clone, Debug)]
pub struct StaleMatcher {
    /// The table.
    pub name: TableName,
    /// The index of the match.
    pub at: usize,
    /// The number of changes since.
    pub changes: usize,
    /// The number of its rules.
    pub rules: usize,
}

/// The controller's state of a table, with the matchers over it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControllerRows {
    /// The rows of the program's text.
    text: Arc<RowHashes>,
    /// The second copy.
    spare: Option<Arc<Table>>,
    matches: Vec<MatchCopies>,
    expired: u64,
    /// The time of the last check for expired rows.
    looked: Time,
}

/// The rows of a text: the hash of each row, by the hash of its key.
#[derive(Debug, Default, PartialEq, Eq)]
struct RowHashes(BTreeMap<u64, u64>);

#[derive(Clone, Debug)]
struct MatchCopies {
    spec: MatchSpec,
    now: Arc<Matcher>,
    /// The matcher over the second copy.
    spare: Option<Arc<Matcher>>,
    /// A program of the staged update uses it.
    is_bound: bool,
    /// The packing and the paths of the matcher that the code was made for, and whether it was far.
    coded: (u64, u64, bool),
}

impl Change {
    /// The key of its row.
    fn key(&self, table: &Table) -> &[Value] {
        let (Self::Insert(values) | Self::Put(values) | Self::Remove(values)) = self;
        &values[..table.spec().key.len()]
    }
}

impl fmt::Display for TableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &*self.instance {
            "" => f.write_str(&self.table),
            instance => write!(f, "{}.{instance}.{}", self.chain, self.table),
        }
    }
}

impl fmt::Display for ChangeErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoTable => f.write_str("there is no such table"),
            Self::NotFilled => f.write_str("the table is filled by handlers, and not by the controller"),
            Self::Exists => f.write_str("a row with this key is there already"),
            Self::Full { max } => write!(f, "the table is full: it has at most {max} rows"),
            Self::Value { column } => write!(f, "the value does not fit column `{column}`"),
        }
    }
}

impl fmt::Display for ChangeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "row {}: {}", self.at + 1, self.why)
    }
}

impl core::error::Error for ChangeError {}

impl Swap {
    /// Replaces the copies in the state of a chain.
    pub fn apply(&self, state: &mut State) {
        let [from, to] = &self.tables;
        for table in state.tables.iter_mut().filter(|table| Arc::ptr_eq(table, from)) {
            *table = Arc::clone(to);
        }
        for [from, to] in &self.matchers {
            for matcher in state.matchers.iter_mut().filter(|matcher| Arc::ptr_eq(matcher, from)) {
                *matcher = Arc::clone(to);
            }
        }
    }
}

impl StateStore {
    /// All tables of the node, in order.
    pub fn tables(&self) -> Vec<TableView> {
        self.names().filter_map(|name| self.table(&name)).collect()
    }

    /// Finds a table by its name.
    pub fn table(&self, name: &TableName) -> Option<TableView> {
        let held = self.stored(name)?;
        let filled = held.filled.as_ref();
        Some(TableView {
            name: name.clone(),
            is_filled: filled.is_some(),
            tables: held.tables.clone(),
            expired: filled.map_or(0, |filled| filled.expired),
            text: filled.map(|filled| Arc::clone(&filled.text)).unwrap_or_default(),
            matched: filled.map_or(Vec::new(), |filled| {
                filled.matches.iter().map(|matched| matched.now.describe()).collect()
            }),
        })
    }

    /// Starts to change rows at `now`, all or none. The caller hands the swap to all workers, waits until they have
    /// applied it, and settles it, before the next change of this table.
    ///
    /// # Errors
    /// [`ChangeError`] has the change that is not possible, and the reason.
    pub fn change(
        &mut self,
        name: &TableName,
        changes: Vec<Change>,
        now: Time,
    ) -> Result<PendingChange, ChangeError> {
        let of_table = |why| ChangeError { at: 0, why };
        let held = self.stored_mut(name).ok_or(of_table(ChangeErrorKind::NoTable))?;
        let filled = held.filled.as_mut().ok_or(of_table(ChangeErrorKind::NotFilled))?;
        let (counts, run) = check(&held.tables[0], &changes)?;
        match filled.change_spare(&held.tables[0], &changes, run, now) {
            Ok(anew) => {
                let built = filled.build_if_quick();
                let swap = filled.swap_copies(&mut held.tables[0]);
                Ok(PendingChange {
                    swap,
                    counts,
                    name: name.clone(),
                    work: Work::Changes { changes, run, now, built },
                    anew,
                })
            }
            Err(at) => {
                filled.forget_spare();
                Err(ChangeError { at, why: ChangeErrorKind::Full { max: held.tables[0].max_rows() } })
            }
        }
    }

    /// As [`StateStore::change`], but applies the possible changes and returns the number of the others. A row that
    /// already has its new values only gets the age of a new one. None if nothing is left to change.
    pub fn change_where_possible(
        &mut self,
        name: &TableName,
        mut changes: Vec<Change>,
        now: Time,
    ) -> (Option<PendingChange>, u64) {
        let n_all = changes.len() as u64;
        let Some(held) = self.stored(name) else { return (None, n_all) };
        let Some(filled) = &held.filled else { return (None, n_all) };
        let copies = copies(&held.tables, filled);
        let mut check = Check::of(&copies[0]);
        let mut n_refused = 0;
        changes.retain(|change| {
            let is_new = match check.existing_key(change) {
                Some(key) => {
                    copies.iter().for_each(|copy| copy.touch(copy.find_values(key, Time(0)), now));
                    false
                }
                None => true,
            };
            let goes = is_new && check.add(change).is_ok();
            n_refused += u64::from(is_new && !goes);
            goes
        });
        drop(copies);
        while !changes.is_empty() {
            match self.change(name, changes.clone(), now) {
                Ok(pending) => return (Some(pending), n_refused),
                Err(error) => {
                    changes.remove(error.at);
                    n_refused += 1;
                }
            }
        }
        (None, n_refused)
    }

    /// Applies a change to the other copy, after all workers have applied the swap.
    pub fn settle(&mut self, pending: PendingChange) {
        let PendingChange { swap, name, work, anew, .. } = pending;
        // The old copy must not be shared, to be changed in place.
        drop(swap);
        let Some(held) = self.stored_mut(&name) else { return };
        let Some(filled) = held.filled.as_mut() else { return };
        let now = &held.tables[0];
        let Some(spare) = &filled.spare else { return };
        match work {
            Work::Changes { changes, run, now, built } => {
                let pairs = filled.matches.iter_mut().zip(built).zip(&anew).filter(|(_, anew)| !**anew);
                let kept = pairs.filter_map(|((matched, built), _)| Some((matched.spare.as_mut()?, built)));
                let (mut matchers, built): (Vec<_>, Vec<_>) = kept.unzip();
                if change_copies(spare, &mut matchers, &changes, run, now).is_err() {
                    return filled.forget_spare();
                }
                for (matcher, built) in matchers.into_iter().zip(built) {
                    built.into_iter().for_each(|built| adopt(matcher, built));
                }
            }
            Work::Built { at, built } => {
                if let Some(matcher) = filled.matches.get_mut(at).and_then(|matched| matched.spare.as_mut()) {
                    adopt(matcher, built);
                }
            }
        }
        for (matched, _) in filled.matches.iter_mut().zip(&anew).filter(|(_, anew)| **anew) {
            let same = |row| spare.find_values(&now.key_values(row), Time(0));
            matched.spare = Some(Arc::new(matched.now.onto(spare, same)));
        }
    }

    /// Whether any table of the controller has expiring rows.
    pub fn has_expiring_rows(&mut self) -> bool {
        self.stored_tables().any(|held| held.filled.is_some() && held.tables[0].spec().expires())
    }

    /// Removals of the controller's rows that are too old at `now`, by table; the caller applies them.
    pub fn expired(&mut self, now: Time) -> Vec<(TableName, Vec<Change>)> {
        let mut expired = Vec::new();
        for name in self.names().collect::<Vec<_>>() {
            let Some(held) = self.stored_mut(&name) else { continue };
            let Some(filled) = held.filled.as_mut().filter(|_| held.tables[0].spec().expires()) else {
                continue;
            };
            let changes = filled.expired(&held.tables[0], now);
            if !changes.is_empty() {
                expired.push((name, changes));
            }
        }
        expired
    }

    /// Returns the matchers that are older than some changes.
    pub fn stale(&self) -> Vec<StaleMatcher> {
        let mut stale = Vec::new();
        for name in self.names() {
            let Some(filled) = self.stored(&name).and_then(|held| held.filled.as_ref()) else { continue };
            for (at, matched) in filled.matches.iter().enumerate() {
                if matched.now.wants_rebuild() {
                    let (changes, rules) = (matched.now.changed(), matched.now.len());
                    stale.push(StaleMatcher { name: name.clone(), at, changes, rules });
                }
            }
        }
        stale
    }

    /// Whether some rules have another shape than the code was made for: the code is correct, but new code would be
    /// faster.
    pub fn is_outdated(&self) -> bool {
        let held = self.names().collect::<Vec<_>>();
        let filled = held.iter().filter_map(|name| self.stored(name)?.filled.as_ref());
        filled.flat_map(|filled| &filled.matches).any(MatchCopies::is_outdated)
    }

    /// Records that code was made for the current rules.
    pub fn note_coded(&mut self) {
        let filled = self.stored_tables().filter_map(|held| held.filled.as_mut());
        filled.flat_map(|filled| &mut filled.matches).for_each(MatchCopies::note_coded);
    }

    /// The rules of a match over a table, to be built elsewhere.
    pub fn snapshot(&self, name: &TableName, at: usize) -> Option<Snapshot> {
        Some(self.stored(name)?.filled.as_ref()?.matches.get(at)?.now.snapshot())
    }

    /// Starts to use a built matcher; the caller proceeds as for a change. None if it is out of date.
    pub fn adopt(&mut self, name: &TableName, at: usize, built: Built) -> Option<PendingChange> {
        let held = self.stored_mut(name)?;
        let filled = held.filled.as_mut()?;
        let matcher = filled.matches.get_mut(at)?.spare.as_mut()?;
        Arc::make_mut(matcher).adopt(built.clone()).ok()?;
        let swap = filled.swap_copies(&mut held.tables[0]);
        let anew = vec![false; filled.matches.len()];
        let work = Work::Built { at, built };
        Some(PendingChange { swap, counts: Counts::default(), name: name.clone(), work, anew })
    }
}

impl ControllerRows {
    /// For a new table with the rows of the text.
    pub(crate) fn new(n_keys: usize, text: &[Vec<Value>]) -> Self {
        Self { text: Arc::new(RowHashes::of(n_keys, text)), ..Self::default() }
    }

    /// Whether the text has these rows.
    pub(crate) fn is_of(&self, n_keys: usize, text: &[Vec<Value>]) -> bool {
        *self.text == RowHashes::of(n_keys, text)
    }

    /// Builds the matcher over the table, or reuses that of the version before for the same rows.
    pub(crate) fn matcher(
        &mut self,
        spec: &MatchSpec,
        table: &Arc<Table>,
    ) -> Result<Arc<Matcher>, TooManyRows> {
        if let Some(matched) = self.matches.iter_mut().find(|matched| matched.spec == *spec) {
            matched.is_bound = true;
            matched.note_coded();
            return Ok(Arc::clone(&matched.now));
        }
        let (now, spare) = match &self.spare {
            None => (Matcher::new(spec, table)?, None),
            Some(other) => {
                let now = Matcher::changeable(spec, table)?;
                let same = |row| other.find_values(&table.key_values(row), Time(0));
                let spare = now.onto(other, same);
                (now, Some(Arc::new(spare)))
            }
        };
        let (now, coded) = (Arc::new(now), (0, 0, false));
        let mut matched =
            MatchCopies { spec: spec.clone(), now: Arc::clone(&now), spare, is_bound: true, coded };
        matched.note_coded();
        self.matches.push(matched);
        Ok(now)
    }

    pub(crate) fn unbind(&mut self) {
        self.matches.iter_mut().for_each(|matched| matched.is_bound = false);
    }

    /// Drops matches that no program uses.
    pub(crate) fn retain_bound(&mut self) {
        self.matches.retain(|matched| matched.is_bound);
    }

    /// Applies changes to the second copy, which is created if necessary. Returns per match whether the matcher of the
    /// first copy must be rebuilt.
    ///
    /// # Errors
    /// The index of the change that is not possible. The second copy cannot be used then.
    fn change_spare(
        &mut self,
        table: &Table,
        changes: &[Change],
        run: usize,
        now: Time,
    ) -> Result<Vec<bool>, usize> {
        let spare = &*self.spare.get_or_insert_with(|| Arc::new(copy_of(table)));
        let too_many = |TooManyRows| 0_usize;
        for matched in self.matches.iter_mut().filter(|matched| matched.spare.is_none()) {
            matched.spare = Some(Arc::new(Matcher::changeable(&matched.spec, spare).map_err(too_many)?));
        }
        let mut matchers: Vec<_> = self.matches.iter_mut().filter_map(|m| m.spare.as_mut()).collect();
        let mut anew = change_copies(spare, &mut matchers, changes, run, now)?;
        for (matched, anew) in self.matches.iter_mut().zip(&mut anew) {
            if *anew {
                matched.spare = Some(Arc::new(Matcher::changeable(&matched.spec, spare).map_err(too_many)?));
            }
            // A matcher from before the first change cannot be changed.
            *anew |= !matched.now.is_changeable();
        }
        Ok(anew)
    }

    /// Rebuilds matchers over the second copy if they are small: a delta next to a few rules costs more than the rules.
    fn build_if_quick(&mut self) -> Vec<Option<Built>> {
        let build = |matched: &mut MatchCopies| {
            let matcher = matched.spare.as_mut()?;
            let built = matcher.built_if_quick()?;
            adopt(matcher, built.clone());
            Some(built)
        };
        self.matches.iter_mut().map(build).collect()
    }

    /// Returns the removals of rows that are too old at `now`. Also brings the ages of both copies in line.
    fn expired(&mut self, table: &Table, now: Time) -> Vec<Change> {
        let (mut changes, mut cursor) = (Vec::new(), 0);
        while let Some((row, after)) = table.scan(cursor, Time(0)) {
            cursor = after;
            let mine = table.age(row);
            let is_known = mine.used != NOT_KNOWN && mine.inserted != NOT_KNOWN;
            // The other copy must learn which rows were used since the last check.
            let is_told = !(table.spec().ttl_on_access && self.spare.is_some() && mine.used >= self.looked);
            if is_known && is_told && !table.is_over(mine, now) {
                continue;
            }
            let key = table.key_values(row);
            let other = self.row_in_spare(&key);
            let its = other.map_or(mine, |(spare, row)| spare.age(row));
            let age = with_known_times(age_of_both(mine, its), now);
            if table.is_over(age, now) {
                changes.push(Change::Remove(key));
                continue;
            }
            let is_behind = |of: Age| of.used != age.used || of.inserted == NOT_KNOWN;
            if is_behind(mine) {
                table.set_age(row, age);
            }
            if let Some((spare, row)) = other.filter(|_| is_behind(its)) {
                spare.set_age(row, age);
            }
        }
        self.looked = now;
        self.expired += changes.len() as u64;
        changes
    }

    /// Copies the ages of rows to the second copy, which workers are about to get: otherwise rows that the second copy
    /// considers unused could expire there. In a large table that waits for the next check.
    fn carry_ages(&self, table: &Table) {
        if !table.spec().ttl_on_access || table.len() > AGES_CARRIED_MAX {
            return;
        }
        let mut cursor = 0;
        while let Some((row, after)) = table.scan(cursor, Time(0)) {
            cursor = after;
            let (mine, other) = (table.age(row), self.row_in_spare(&table.key_values(row)));
            let Some((spare, row)) = other.filter(|_| mine.used != NOT_KNOWN) else { continue };
            let its = spare.age(row);
            if its.used < mine.used {
                spare.set_age(row, age_of_both(mine, its));
            }
        }
    }

    /// Finds the row with this key in the second copy.
    fn row_in_spare(&self, key: &[Value]) -> Option<(&Table, Row)> {
        let spare = self.spare.as_deref()?;
        let row = spare.find_values(key, Time(0));
        row.is_some().then_some((spare, row))
    }

    fn forget_spare(&mut self) {
        self.spare = None;
        self.matches.iter_mut().for_each(|matched| matched.spare = None);
    }

    /// Swaps the copies.
    fn swap_copies(&mut self, table: &mut Arc<Table>) -> Arc<Swap> {
        self.carry_ages(table);
        // The ages copied since the last check are not known in this copy.
        self.looked = Time(i64::MIN);
        let spare = self.spare.as_mut().expect("only what has a second copy changes");
        core::mem::swap(table, spare);
        let mut matchers = Vec::new();
        for matched in &mut self.matches {
            let spare = matched.spare.as_mut().expect("as its table");
            core::mem::swap(&mut matched.now, spare);
            matchers.push([Arc::clone(spare), Arc::clone(&matched.now)]);
        }
        Arc::new(Swap { tables: [Arc::clone(spare), Arc::clone(table)], matchers })
    }
}

impl MatchCopies {
    fn note_coded(&mut self) {
        self.coded = (self.now.packing_hash(), self.now.lookup_hash(), self.now.is_far());
    }

    /// Whether new code would find rows faster.
    fn is_outdated(&self) -> bool {
        let (packing, ways, is_far) = self.coded;
        let has_other_ways = self.now.lookup_hash() != NO_LOOKUP && self.now.lookup_hash() != ways;
        // Code for many rows also works for few.
        self.now.packing_hash() != packing || has_other_ways || (self.now.is_far() && !is_far)
    }
}

impl RowHashes {
    fn of(n_keys: usize, rows: &[Vec<Value>]) -> Self {
        Self(rows.iter().map(|row| (hash_of(&row[..n_keys]), hash_of(row))).collect())
    }
}

/// Merges the rows of a table after an update of the text: rows that the text does not change, or does not have,
/// stay. Columns are matched by name; a column with a new type gets its default.
pub(crate) fn merged(
    running: &Table,
    filled: &ControllerRows,
    spec: &TableSpec,
    text: &[Vec<Value>],
) -> Vec<Vec<Value>> {
    let n_keys = spec.key.len();
    let before = &filled.text.0;
    let mut text: BTreeMap<u64, &Vec<Value>> =
        text.iter().map(|row| (hash_of(&row[..n_keys]), row)).collect();
    let columns: Vec<&ColumnSpec> = running.columns().map(|(column, _)| column).collect();
    let place = |wanted: &ColumnSpec| {
        let same = |column: &&ColumnSpec| {
            (&column.name, column.ty, column.nullable) == (&wanted.name, wanted.ty, wanted.nullable)
        };
        columns.iter().position(same)
    };
    let wanted = spec.key.iter().chain(&spec.columns).map(|column| (column, place(column)));
    let wanted: Vec<(&ColumnSpec, Option<usize>)> = wanted.collect();
    let mut rows = Vec::new();
    let mut cursor = 0;
    while let Some((row, next)) = running.scan(cursor, Time(0)) {
        cursor = next;
        let values = running.values(row);
        let key = hash_of(&values[..n_keys]);
        let (was, is) = (before.get(&key), text.get(&key));
        let stays = match (was, is) {
            (Some(_), None) => false,
            (was, Some(new)) => was == Some(&hash_of(new)),
            (None, None) => true,
        };
        if stays {
            text.remove(&key);
            let value = |(column, at): &(&ColumnSpec, Option<usize>)| {
                at.map_or(&column.default, |at| &values[at]).clone()
            };
            rows.push(wanted.iter().map(value).collect());
        }
    }
    // A row of the old text that is gone was deleted.
    let is_new = |(key, row): &(u64, &Vec<Value>)| before.get(key) != Some(&hash_of(row));
    rows.extend(text.into_iter().filter(is_new).map(|(_, row)| row.clone()));
    rows
}

/// Checks whether all changes are possible; returns the counts, and how many may be applied at once.
fn check(table: &Table, changes: &[Change]) -> Result<(Counts, usize), ChangeError> {
    let mut check = Check::of(table);
    let mut all = changes.iter().enumerate();
    for run in changes.chunks(RUN) {
        prefetch_changes(table, run);
        for (at, change) in all.by_ref().take(run.len()) {
            check.add(change).map_err(|why| ChangeError { at, why })?;
        }
    }
    let is_one_a_key = check.is_there.len() == changes.len();
    Ok((check.counts, if is_one_a_key { RUN } else { 1 }))
}

/// The effects of changes on a table, before they are applied.
struct Check<'t> {
    table: &'t Table,
    counts: Counts,
    /// The effects of earlier changes, by key.
    is_there: BTreeMap<Vec<u8>, bool>,
    rows: u64,
}

impl<'t> Check<'t> {
    fn of(table: &'t Table) -> Self {
        Self { table, counts: Counts::default(), is_there: BTreeMap::new(), rows: table.len() }
    }

    /// Returns the key of a row that this change leaves as it is, unless an earlier change affects the key.
    fn existing_key<'c>(&self, change: &'c Change) -> Option<&'c [Value]> {
        let Change::Put(values) = change else { return None };
        let key = &values[..self.table.spec().key.len().min(values.len())];
        if check_values(self.table, values, true).is_err() || self.is_there.contains_key(&bytes_of(key)) {
            return None;
        }
        let found = self.table.find_values(key, Time(0));
        (found.is_some() && self.table.values(found) == *values).then_some(key)
    }

    /// Adds a change to those to apply, if it is possible.
    fn add(&mut self, change: &Change) -> Result<(), ChangeErrorKind> {
        let (Change::Insert(values) | Change::Put(values) | Change::Remove(values)) = change;
        let is_whole = !matches!(change, Change::Remove(_));
        check_values(self.table, values, is_whole)?;
        let key = change.key(self.table);
        let known = || self.table.find_values(key, Time(0)).is_some();
        let there = self.is_there.entry(bytes_of(key)).or_insert_with(known);
        match (change, *there) {
            (Change::Insert(_), true) => return Err(ChangeErrorKind::Exists),
            (Change::Put(_), true) => self.counts.updated += 1,
            (Change::Insert(_) | Change::Put(_), false) => {
                let max = self.table.max_rows();
                if self.rows >= max {
                    return Err(ChangeErrorKind::Full { max });
                }
                self.counts.inserted += 1;
                self.rows += 1;
            }
            (Change::Remove(_), there) => {
                self.counts.deleted += u64::from(there);
                self.rows -= u64::from(there);
            }
        }
        *there = is_whole;
        Ok(())
    }
}

/// Checks values for a row: a value for each column, keys first.
///
/// # Errors
/// [`ChangeErrorKind::Value`].
pub fn check_row(table: &Table, values: &[Value]) -> Result<(), ChangeErrorKind> {
    check_values(table, values, true)
}

/// Checks the number and the types of the values of a row, or of a key only. The error names the column.
fn check_values(table: &Table, values: &[Value], is_whole: bool) -> Result<(), ChangeErrorKind> {
    let spec = table.spec();
    let n = spec.key.len() + if is_whole { spec.columns.len() } else { 0 };
    if values.len() != n {
        let column = spec.key[0].name.clone();
        return Err(ChangeErrorKind::Value { column });
    }
    for (column, value) in spec.key.iter().chain(&spec.columns).zip(values) {
        let fits = match value {
            Value::Null => column.nullable,
            Value::Bool(_) => column.ty.repr() == Repr::Bool,
            Value::Int(_) => column.ty.repr() == Repr::Int,
            Value::Float(_) => column.ty.repr() == Repr::Float,
            Value::Bytes(bytes) => {
                let max = column.ty.bytes_max().map_or(usize::MAX, |max| max as usize);
                column.ty.repr() == Repr::Bytes && bytes.len() <= max
            }
        };
        if !fits {
            return Err(ChangeErrorKind::Value { column: column.name.clone() });
        }
    }
    Ok(())
}

/// Encodes values injectively, so that keys can be compared as bytes.
fn bytes_of(values: &[Value]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for value in values {
        match value {
            Value::Null => bytes.push(0),
            Value::Bool(b) => bytes.extend([1, u8::from(*b)]),
            Value::Int(n) => {
                bytes.push(2);
                bytes.extend(n.to_le_bytes());
            }
            Value::Float(x) => {
                bytes.push(3);
                bytes.extend(x.to_bits().to_le_bytes());
            }
            Value::Bytes(held) => {
                bytes.push(4);
                bytes.extend((held.len() as u64).to_le_bytes());
                bytes.extend_from_slice(held);
            }
        }
    }
    bytes
}

fn hash_of(values: &[Value]) -> u64 {
    hash::hash_bytes(&bytes_of(values))
}

/// Applies checked changes to a table and its matchers, that many at once. Returns per matcher whether it must be
/// rebuilt.
///
/// # Errors
/// The index of a change without room: an index is full of keys that were chosen to collide.
fn change_copies(
    table: &Table,
    matchers: &mut [&mut Arc<Matcher>],
    changes: &[Change],
    run: usize,
    now: Time,
) -> Result<Vec<bool>, usize> {
    let mut anew = vec![false; matchers.len()];
    let mut matchers: Vec<&mut Matcher> = matchers.iter_mut().map(|matcher| Arc::make_mut(matcher)).collect();
    let mut begin = 0;
    for run in changes.chunks(run) {
        prefetch_changes(table, run);
        let found: Vec<Row> =
            run.iter().map(|change| table.find_values(change.key(table), Time(0))).collect();
        let removed: Vec<Row> = found.iter().copied().filter(|row| row.is_some()).collect();
        let active = matchers.iter_mut().zip(&anew).filter(|(_, anew)| !**anew);
        active.for_each(|(matcher, _)| matcher.remove(&removed));
        let mut came = Vec::with_capacity(run.len());
        for (at, (change, found)) in (begin..).zip(run.iter().zip(found)) {
            came.extend(change_row(table, change, found, now).map_err(|TableFull| at)?);
        }
        let active = matchers.iter_mut().zip(&mut anew).filter(|(_, anew)| !**anew);
        active.for_each(|(matcher, anew)| *anew = matcher.insert(&came).is_err());
        begin += run.len();
    }
    matchers.into_iter().for_each(Matcher::publish);
    Ok(anew)
}

/// Prefetches what changes will read of a table.
fn prefetch_changes(table: &Table, changes: &[Change]) {
    if changes.len() > 1 {
        let hashes: Vec<u64> = changes.iter().map(|change| table.hash_values(change.key(table))).collect();
        table.prefetch_rows(&hashes);
    }
}

/// There is no room for a row.
struct TableFull;

/// Applies a change to the row that was found for its key; returns the row that is there then.
fn change_row(table: &Table, change: &Change, found: Row, now: Time) -> Result<Option<Row>, TableFull> {
    match change {
        Change::Remove(_) => {
            table.remove(found);
            Ok(None)
        }
        Change::Insert(values) | Change::Put(values) if found.is_some() => {
            table.set_values(found, values);
            table.touch(found, now);
            Ok(Some(found))
        }
        Change::Insert(values) | Change::Put(values) => {
            match insert_aged(table, values, Age { used: now, inserted: now }) {
                Insert::New(row) => Ok(Some(row)),
                Insert::Full | Insert::TooLong => Err(TableFull),
            }
        }
    }
}

/// Uses a built matcher. A matcher that has changed too much since is rebuilt later.
fn adopt(matcher: &mut Arc<Matcher>, built: Built) {
    let _ = Arc::make_mut(matcher).adopt(built);
}

/// Inserts a row with this age. It evicts no other row: old rows are removed by [`StateStore::expired`].
fn insert_aged(table: &Table, values: &[Value], age: Age) -> Insert {
    let insert = table.insert_row(values, Time(0));
    if let Insert::New(row) = insert {
        table.set_age(row, age);
    }
    insert
}

/// Combines the ages of a row in two copies.
fn age_of_both(a: Age, b: Age) -> Age {
    let known = |time: Time| (time != NOT_KNOWN).then_some(time);
    let used = known(a.used).max(known(b.used)).unwrap_or(NOT_KNOWN);
    Age { used, inserted: a.inserted.min(b.inserted) }
}

/// An age in which unknown times start now.
fn with_known_times(Age { used, inserted }: Age, now: Time) -> Age {
    let or_now = |time: Time| if time == NOT_KNOWN { now } else { time };
    Age { used: or_now(used), inserted: or_now(inserted) }
}

/// A table of the controller, and its second copy if there is one.
pub(crate) fn copies(tables: &[Arc<Table>], filled: &ControllerRows) -> Vec<Arc<Table>> {
    tables.iter().cloned().chain(filled.spare.clone()).collect()
}

/// Copies a table with its rows.
fn copy_of(table: &Table) -> Table {
    let limits = TableSpec { max_rows: table.max_rows(), ..table.spec().clone() };
    let copy = Table::new(limits, table.hash_key());
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, Time(0)) {
        insert_aged(&copy, &table.values(row), table.age(row));
        cursor = next;
    }
    copy
}

/// Gives the rows of a controller's table the ages that they had in the table that it replaces.
pub(crate) fn set_ages(before: &[Arc<Table>], table: &Table) {
    let before: Vec<_> = before.iter().filter(|before| before.spec().key == table.spec().key).collect();
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, Time(0)) {
        cursor = next;
        let key = table.key_values(row);
        let known = before.iter().filter_map(|before| {
            let row = before.find_values(&key, Time(0));
            row.is_some().then(|| known_age(before, row, table))
        });
        let age = known.reduce(age_of_both);
        table.set_age(row, age.unwrap_or(Age { used: NOT_KNOWN, inserted: NOT_KNOWN }));
    }
}

/// Returns the age of a row, as far as it was tracked before; the rest starts now.
fn known_age(before: &Table, row: Row, now: &Table) -> Age {
    let (was, is) = (before.spec(), now.spec());
    let age = before.age(row);
    let is_same = was.ttl.is_some() && was.ttl_on_access == is.ttl_on_access;
    Age {
        used: if is_same { age.used } else { NOT_KNOWN },
        inserted: if was.ttl_on_insert.is_some() { age.inserted } else { NOT_KNOWN },
    }
}
