//! Tables that the controller fills, and their rows while a node runs.
//!
//! A worker reads such a table, and what is matched over it, without locks. So rows are never changed where it looks:
//! there is a second copy, which is brought up to date and then handed to the workers, who take it up between two
//! batches in place of the first ([`Swap`]). Once all have, the first is brought up to date as well, and is the
//! second. All changes of one [`StateStore::change`] are seen at once, or none. The second copy is made when the first
//! change comes.
//!
//! Compiled code does not notice: it finds tables through the [`State`] that it is given.
//!
//! **Age.** Of a table with a TTL, rows that are too old go as if somebody had removed them
//! ([`StateStore::expired`]). With `TTL ON ACCESS` each worker notes in the copy that it has that it read a row, so a
//! row was read last when either copy says so. When it was inserted both say, but of rows of the text, of which one
//! does at first.
//!
//! **Updates of the program.** Rows that its text gives follow the text; rows that came, changed or went while it ran
//! stay as they are (`merged`). A table of which the text has not changed is kept as it is, with all that is built
//! of its rows.

use crate::state::StateStore;
use core::fmt;
use std::collections::BTreeMap;
use std::sync::Arc;
use weft_core::abi::State;
use weft_core::classify::{Built, Description, Snapshot};
use weft_core::matching::near::NO_WAYS;
use weft_core::matching::{MatchSpec, Matcher, TooManyRows};
use weft_core::table::{Age, ColumnSpec, Insert, Row, Table, TableSpec};
use weft_core::types::Repr;
use weft_core::{Time, Value, hash};

/// When a row of the text was written and inserted: it counts from when it is first looked at.
const NOT_KNOWN: Time = Time::MAX;

/// Rows of a table whose second copy each change tells of what was used: it takes a fraction of a microsecond a row.
const AGES_CARRIED_MAX: u64 = 256;

/// Changes, each of another key, that are done at once: all rows are found, then all that is matched over them changes,
/// so that what they wait for in memory comes side by side.
const RUN: usize = 64;

/// Where a table is: its chain and instance, both empty for one that belongs to no element.
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
    /// A row whose key is not there yet: a value for each column, keys first.
    Insert(Vec<Value>),
    /// A row in place of the one with its key, if that is there.
    Put(Vec<Value>),
    /// No row with this key.
    Remove(Vec<Value>),
}

/// What came of changes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Rows that are new.
    pub inserted: u64,
    /// Rows that have other values.
    pub updated: u64,
    /// Rows that are gone.
    pub deleted: u64,
}

/// Why changes were refused; nothing has changed then.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChangeError {
    /// Which of them, counted from 0; for what is wrong with the table, 0.
    pub at: usize,
    /// What is wrong.
    pub why: ChangeErrorKind,
}

/// What is wrong with a change.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ChangeErrorKind {
    /// There is no such table.
    NoTable,
    /// Handlers fill it.
    NotFilled,
    /// A row with this key is there, or came with another of the changes.
    Exists,
    /// There is no room for further rows.
    Full {
        /// The most rows that it has.
        max: u64,
    },
    /// The values are not those of the columns: which it is that does not fit.
    Value {
        /// The column.
        column: String,
    },
}

/// Copies of tables in place of those that workers have, with what is matched over them.
#[derive(Debug)]
pub struct Swap {
    tables: [Arc<Table>; 2],
    matchers: Vec<[Arc<Matcher>; 2]>,
}

/// A change on its way: hand `swap` to all workers, and when none has another hold of what was before, [settle] it.
///
/// [settle]: StateStore::settle
#[derive(Debug)]
pub struct PendingChange {
    /// What workers take up.
    pub swap: Arc<Swap>,
    /// What came of it.
    pub counts: Counts,
    name: TableName,
    work: Work,
    /// By match: the copy is made anew from the other's.
    anew: Vec<bool>,
}

#[derive(Debug)]
enum Work {
    Changes {
        changes: Vec<Change>,
        /// How many of them may be done at once.
        run: usize,
        now: Time,
        /// By match: what was built of the rows at once.
        built: Vec<Option<Built>>,
    },
    Built {
        at: usize,
        built: Built,
    },
}

/// What a table is and holds.
#[derive(Clone, Debug)]
pub struct TableView {
    /// Where it is.
    pub name: TableName,
    /// The controller fills it: its rows may be changed from outside.
    pub is_filled: bool,
    /// The tables: one, or one for each worker.
    pub tables: Vec<Arc<Table>>,
    /// What is matched over it is compiled to.
    pub matched: Vec<Description>,
    /// Rows of the controller that were there for as long as they may, since the table was made.
    pub expired: u64,
    /// The rows of the program's text.
    text: Arc<RowHashes>,
}

impl TableView {
    /// Rows that the text of the program does not give: the table was given them while the program ran.
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

/// Something that was built is older than some changes.
#[derive(Clone, Debug)]
pub struct StaleMatcher {
    /// The table.
    pub name: TableName,
    /// Which of the matches over it.
    pub at: usize,
    /// Changes since.
    pub changes: usize,
    /// Rules in it.
    pub rules: usize,
}

/// What the controller gives to a table, and what is matched over it.
#[derive(Clone, Debug, Default)]
pub(crate) struct ControllerRows {
    /// The rows of the program's text.
    text: Arc<RowHashes>,
    /// The second copy.
    spare: Option<Arc<Table>>,
    matches: Vec<MatchCopies>,
    expired: u64,
    /// When rows that are too old were looked for last.
    looked: Time,
}

/// What a text says of rows: the hash of each, by that of its key.
#[derive(Debug, Default, PartialEq, Eq)]
struct RowHashes(BTreeMap<u64, u64>);

#[derive(Clone, Debug)]
struct MatchCopies {
    spec: MatchSpec,
    now: Arc<Matcher>,
    /// Over the second copy.
    spare: Option<Arc<Matcher>>,
    /// A program of the update that is staged has it.
    is_bound: bool,
    /// The packing and the ways of the matcher that code was made for, and whether it was far.
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
    /// Takes the copies up in the state of a chain.
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

    /// A table by its name.
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

    /// Begins to change rows at `now`, all or none. The caller hands the swap to all workers, waits until they have
    /// taken it up, and settles it, before the next change of this table.
    ///
    /// # Errors
    /// [`ChangeError`] says which change does not go, and why.
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
                let swap = filled.exchange(&mut held.tables[0]);
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

    /// As [`StateStore::change`], with those changes that go; and how many do not. A row that is there already as it is
    /// to be is only as young as a new one. None if nothing is left to change.
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
            let goes = is_new && check.take(change).is_ok();
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

    /// All workers have taken a swap up: does to the other copy what was done to the one that they have now.
    pub fn settle(&mut self, pending: PendingChange) {
        let PendingChange { swap, name, work, anew, .. } = pending;
        // Who holds what was before stands in the way of changing it in place.
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

    /// Whether rows of the controller may be too old at some time.
    pub fn has_expiring_rows(&mut self) -> bool {
        self.stored_tables().any(|held| held.filled.is_some() && held.tables[0].spec().expires())
    }

    /// What takes the rows of the controller out that are too old at `now`, by table; the caller does so.
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

    /// What was built and is older than some changes.
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

    /// Whether rules have another shape than those that code was made for: it finds them, and would sooner if it were
    /// made anew.
    pub fn is_outdated(&self) -> bool {
        let held = self.names().collect::<Vec<_>>();
        let filled = held.iter().filter_map(|name| self.stored(name)?.filled.as_ref());
        filled.flat_map(|filled| &filled.matches).any(MatchCopies::is_outdated)
    }

    /// Code was made anew for the rules as they are.
    pub fn note_coded(&mut self) {
        let filled = self.stored_tables().filter_map(|held| held.filled.as_mut());
        filled.flat_map(|filled| &mut filled.matches).for_each(MatchCopies::note_coded);
    }

    /// The rules of a match over a table, to be built elsewhere.
    pub fn snapshot(&self, name: &TableName, at: usize) -> Option<Snapshot> {
        Some(self.stored(name)?.filled.as_ref()?.matches.get(at)?.now.snapshot())
    }

    /// Begins to take on what was built; the caller does as for a change. None if it is of no use any more.
    pub fn adopt(&mut self, name: &TableName, at: usize, built: Built) -> Option<PendingChange> {
        let held = self.stored_mut(name)?;
        let filled = held.filled.as_mut()?;
        let matcher = filled.matches.get_mut(at)?.spare.as_mut()?;
        Arc::make_mut(matcher).adopt(built.clone()).ok()?;
        let swap = filled.exchange(&mut held.tables[0]);
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

    /// Whether the text gives these rows.
    pub(crate) fn is_of(&self, n_keys: usize, text: &[Vec<Value>]) -> bool {
        *self.text == RowHashes::of(n_keys, text)
    }

    /// What is matched over the table: that of the version before, where it has the same rows.
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

    /// Forgets matches that no program has.
    pub(crate) fn retain_bound(&mut self) {
        self.matches.retain(|matched| matched.is_bound);
    }

    /// Does changes to the second copy, which is made if there is none; says of each match whether the matcher of the
    /// first has to be made anew.
    ///
    /// # Errors
    /// The change that does not go. The second copy is of no use then.
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
            // What was there before the first change takes none.
            *anew |= !matched.now.is_changeable();
        }
        Ok(anew)
    }

    /// Builds anew what is quickly built of the rows of the second copy: a delta beside few rules costs more than they.
    fn build_if_quick(&mut self) -> Vec<Option<Built>> {
        let build = |matched: &mut MatchCopies| {
            let matcher = matched.spare.as_mut()?;
            let built = matcher.built_if_quick()?;
            adopt(matcher, built.clone());
            Some(built)
        };
        self.matches.iter_mut().map(build).collect()
    }

    /// Removals of the rows that are too old.
    fn expired(&mut self, table: &Table, now: Time) -> Vec<Change> {
        let (mut changes, mut cursor) = (Vec::new(), 0);
        while let Some((row, after)) = table.scan(cursor, Time(0)) {
            cursor = after;
            let mine = table.age(row);
            let is_known = mine.used != NOT_KNOWN && mine.inserted != NOT_KNOWN;
            // What was used since the last look has to be known to the other copy, too.
            let is_told = !(table.spec().ttl_on_access && self.spare.is_some() && mine.used >= self.looked);
            if is_known && is_told && !table.is_over(mine, now) {
                continue;
            }
            let key = table.key_values(row);
            let other = self.row_in_spare(&key);
            let its = other.map_or(mine, |(spare, row)| spare.age(row));
            let age = begun(age_of_both(mine, its), now);
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

    /// Tells the second copy, which workers are about to get, what they have used of the first: they would not find
    /// it there if that was long ago, by what the second knows. In a large table that waits for the next look.
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

    /// The row with this key in the second copy.
    fn row_in_spare(&self, key: &[Value]) -> Option<(&Table, Row)> {
        let spare = self.spare.as_deref()?;
        let row = spare.find_values(key, Time(0));
        row.is_some().then_some((spare, row))
    }

    fn forget_spare(&mut self) {
        self.spare = None;
        self.matches.iter_mut().for_each(|matched| matched.spare = None);
    }

    /// The second copy is the first from now on.
    fn exchange(&mut self, table: &mut Arc<Table>) -> Arc<Swap> {
        self.carry_ages(table);
        // What this copy was told of the other since the last look is not known.
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
        self.coded = (self.now.packing(), self.now.ways(), self.now.is_far());
    }

    /// Whether code would find rows sooner if it were made anew.
    fn is_outdated(&self) -> bool {
        let (packing, ways, is_far) = self.coded;
        let has_other_ways = self.now.ways() != NO_WAYS && self.now.ways() != ways;
        // Code for many rows does for few.
        self.now.packing() != packing || has_other_ways || (self.now.is_far() && !is_far)
    }
}

impl RowHashes {
    fn of(n_keys: usize, rows: &[Vec<Value>]) -> Self {
        Self(rows.iter().map(|row| (hash_of(&row[..n_keys]), hash_of(row))).collect())
    }
}

/// The rows of a table after an update of the text: what the text does not change stays as it is now, and rows that are
/// not of the text stay. Columns are found by name; one of another type holds its default.
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
    // What the text has said before, and is not there, was deleted.
    let is_new = |(key, row): &(u64, &Vec<Value>)| before.get(key) != Some(&hash_of(row));
    rows.extend(text.into_iter().filter(is_new).map(|(_, row)| row.clone()));
    rows
}

/// Whether all changes go; what will have come of them, and how many may be done at once.
fn check(table: &Table, changes: &[Change]) -> Result<(Counts, usize), ChangeError> {
    let mut check = Check::of(table);
    let mut all = changes.iter().enumerate();
    for run in changes.chunks(RUN) {
        look_over(table, run);
        for (at, change) in all.by_ref().take(run.len()) {
            check.take(change).map_err(|why| ChangeError { at, why })?;
        }
    }
    let is_one_a_key = check.is_there.len() == changes.len();
    Ok((check.counts, if is_one_a_key { RUN } else { 1 }))
}

/// What changes of a table come to, before they are done.
struct Check<'t> {
    table: &'t Table,
    counts: Counts,
    /// What earlier ones have done to a key.
    is_there: BTreeMap<Vec<u8>, bool>,
    rows: u64,
}

impl<'t> Check<'t> {
    fn of(table: &'t Table) -> Self {
        Self { table, counts: Counts::default(), is_there: BTreeMap::new(), rows: table.len() }
    }

    /// The key of a row that this leaves as it is, where nothing else has been done to it.
    fn existing_key<'c>(&self, change: &'c Change) -> Option<&'c [Value]> {
        let Change::Put(values) = change else { return None };
        let key = &values[..self.table.spec().key.len().min(values.len())];
        if check_values(self.table, values, true).is_err() || self.is_there.contains_key(&bytes_of(key)) {
            return None;
        }
        let found = self.table.find_values(key, Time(0));
        (found.is_some() && self.table.values(found) == *values).then_some(key)
    }

    /// Takes a change on if it goes.
    fn take(&mut self, change: &Change) -> Result<(), ChangeErrorKind> {
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

/// Whether a row can have these values, a value for each column, keys first.
///
/// # Errors
/// [`WhyNot::Value`].
pub fn check_row(table: &Table, values: &[Value]) -> Result<(), ChangeErrorKind> {
    check_values(table, values, true)
}

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

/// Values as bytes that no others have.
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

/// Does changes that were checked to a table and what is matched over it, so many at once; says of each matcher whether
/// it has to be made anew.
///
/// # Errors
/// The change for which there is no room after all: an index that is full of keys that were chosen so.
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
        look_over(table, run);
        let found: Vec<Row> =
            run.iter().map(|change| table.find_values(change.key(table), Time(0))).collect();
        let gone: Vec<Row> = found.iter().copied().filter(|row| row.is_some()).collect();
        let live = matchers.iter_mut().zip(&anew).filter(|(_, anew)| !**anew);
        live.for_each(|(matcher, _)| matcher.remove(&gone));
        let mut came = Vec::with_capacity(run.len());
        for (at, (change, found)) in (begin..).zip(run.iter().zip(found)) {
            came.extend(change_copies_at_once(table, change, found, now).map_err(|TableFull| at)?);
        }
        let live = matchers.iter_mut().zip(&mut anew).filter(|(_, anew)| !**anew);
        live.for_each(|(matcher, anew)| *anew = matcher.insert(&came).is_err());
        begin += run.len();
    }
    matchers.into_iter().for_each(Matcher::publish);
    Ok(anew)
}

/// Reads what changes will read of a table, side by side.
fn look_over(table: &Table, changes: &[Change]) {
    if changes.len() > 1 {
        let hashes: Vec<u64> = changes.iter().map(|change| table.hash_values(change.key(table))).collect();
        table.look_over(&hashes);
    }
}

/// There is no room for a row.
struct TableFull;

/// Does a change to the row that was found for its key; gives the row that is there then.
fn change_copies_at_once(
    table: &Table,
    change: &Change,
    found: Row,
    now: Time,
) -> Result<Option<Row>, TableFull> {
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

/// Takes on what was built. A matcher that has changed too much since is rebuilt in its turn.
fn adopt(matcher: &mut Arc<Matcher>, built: Built) {
    let _ = Arc::make_mut(matcher).adopt(built);
}

/// Puts a row in whose age counts from then. None makes room for it: what is too old goes by [`StateStore::expired`].
fn insert_aged(table: &Table, values: &[Value], age: Age) -> Insert {
    let insert = table.insert_row(values, Time(0));
    if let Insert::New(row) = insert {
        table.set_age(row, age);
    }
    insert
}

/// The age of a row of which there are two copies.
fn age_of_both(a: Age, b: Age) -> Age {
    let known = |time: Time| (time != NOT_KNOWN).then_some(time);
    let used = known(a.used).max(known(b.used)).unwrap_or(NOT_KNOWN);
    Age { used, inserted: a.inserted.min(b.inserted) }
}

/// An age of which what was not known begins now.
fn begun(Age { used, inserted }: Age, now: Time) -> Age {
    let or_now = |time: Time| if time == NOT_KNOWN { now } else { time };
    Age { used: or_now(used), inserted: or_now(inserted) }
}

/// A table of the controller, and its second copy if there is one.
pub(crate) fn copies(tables: &[Arc<Table>], filled: &ControllerRows) -> Vec<Arc<Table>> {
    tables.iter().cloned().chain(filled.spare.clone()).collect()
}

/// A table with the same rows.
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

/// Has the rows of a table of the controller be as old as those of the copies of the table in whose place it comes.
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

/// The age of a row as far as it was counted before from what it counts from now; the rest begins anew.
fn known_age(before: &Table, row: Row, now: &Table) -> Age {
    let (was, is) = (before.spec(), now.spec());
    let age = before.age(row);
    let is_same = was.ttl.is_some() && was.ttl_on_access == is.ttl_on_access;
    Age {
        used: if is_same { age.used } else { NOT_KNOWN },
        inserted: if was.ttl_on_insert.is_some() { age.inserted } else { NOT_KNOWN },
    }
}
