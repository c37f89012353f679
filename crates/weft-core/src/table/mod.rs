//! State tables: bounded, typed, shared between workers, and fast to look into.
//!
//! A [`Table`] is a slab of rows and an index over their keys, both cut into *stripes* by the hash of the key.
//! Everything is words in `Box<[AtomicU64]>`, read and written with relaxed loads and stores (plain moves), so
//! compiled code may reach the same words by address while it holds the stripe's lock.
//!
//! **Who may do what.** In a table that several workers write ([`TableSpec::shared`]) a caller holds the lock of the
//! key's stripe ([`Table::lock`]) from its look-up to its last access to the row. A table that only one worker
//! writes needs no lock. Readers without a lock beside a writer are safe, but may see a stale or torn row; tables
//! that the controller fills are therefore swapped whole.
//!
//! **Nothing stalls.** The longest single operations are the growth of one stripe's index, where at most
//! [`STRIPE_ROWS_MAX`] slots move (rows never do), and a look through one stripe for its oldest rows, at most as many.
//! An insertion into a full table looks through its own stripe, once for age and once for eviction where those differ,
//! and one other; a look is due once for every few rows that were evicted, expired or touched since the last. Only
//! where a full table with a TTL evicts nothing may an insertion look through more: all stripes in which a row may have
//! expired since they were looked through. Memory comes in segments of at most [`SEGMENT_BYTES_MAX`] (or one row, if
//! that is larger).
//!
//! **Touches cost a store.** They store the time, and rows are put in order only where one has to go. Which row is the
//! oldest is exact in a stripe, as far as the clocks of its workers agree; of rows with one time, any may be, the same
//! in every run.
//!
//! **Keys of an adversary.** Keys are placed by a secret of the node ([`HashKey`]), so that nobody can choose keys that
//! meet in one stripe or one home. A table holds as many rows as it says whatever the keys are: were the secret known,
//! look-ups of keys computed to meet would take longer, and no row would be evicted or refused for them. Which stripe a
//! key is in, and with it the order of a scan over a table of several stripes, follows from the secret, too.

mod evict;
mod index;
pub mod jit_layout;
mod journal;
mod layout;
mod memory;
mod oldest;
mod rows;
mod scalars;
mod storage;
mod values;

pub use journal::Journal;
pub use layout::{BYTES_MAX_DEFAULT, ColumnRef, ColumnSpec, Evict, ExtendError, KeyBuilder, TableSpec};
pub use rows::{EXPORT_VERSION, ImportError};
pub use scalars::Scalars;
pub use storage::{SEGMENT_BYTES_MAX, STRIPE_ROWS_MAX};

use crate::hash::HashKey;
use crate::time::{Interval, Time};
use core::sync::atomic::{AtomicI64, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use evict::Eviction;
use index::HomeProbe;
use layout::{BytesKey, Header, IntKey, KeyShape, LIVE, PartsKey, ShortKey, WRITTEN_AT};
use memory::Memory;
pub use memory::{BlockSource, set_block_source};
use std::sync::OnceLock;
use storage::{Geometry, Group, RowLocation, Stripe};

/// Column groups that one table may have: the first, and one for each hot update that adds columns.
pub const GROUPS_MAX: usize = 16;
/// Bytes of a counter in a column of counters: [`Table::count_into`].
pub const COUNTER_BYTES: usize = 2;

/// A state table.
///
/// All methods take `&self`; workers share a table as `Arc<Table>`. See the module's documentation for locks.
#[derive(Debug)]
pub struct Table {
    spec: TableSpec,
    /// What keys are placed by.
    hash: HashKey,
    key: KeyShape,
    header: Header,
    geometry: Geometry,
    stripes: Box<[Stripe]>,
    /// Of the indexes of the stripes.
    begins: Box<[index::Begin]>,
    /// For compiled code ([`jit_layout`]), as the next two.
    stripes_address: usize,
    begins_at: usize,
    segments_at: usize,
    memory: Memory,
    base: Group,
    added: [OnceLock<Group>; GROUPS_MAX - 1],
    n_added: AtomicU32,
    extending: AtomicU32,
    fingerprint: u64,
    rows: AtomicU64,
    rows_max: AtomicU64,
    /// Nanoseconds, `i64::MAX` for rows that stay.
    ttl: AtomicI64,
    /// The same, from insertion on.
    ttl_on_insert: AtomicI64,
    evict: AtomicU8,
    /// Orders that were not kept up for a time, by the bits of `layout::orders`.
    lapsed: AtomicU8,
    /// Which rows that leave wait until they were looked at, by bits of [`RemovalReason`]: [`Table::keep_removed`].
    keeps: AtomicU8,
    /// Rows whose eviction nobody was told of: [`Table::evicted_untold`].
    unreported: AtomicU64,
    /// Where the next sweep, or the next search for an expired row, goes on.
    sweep_at: AtomicU32,
}

/// A row of a table: an opaque handle, good while the row lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row(pub u64);

impl Row {
    /// No row.
    pub const NONE: Self = Self(0);

    /// Whether this is a row at all.
    #[inline(always)]
    pub const fn is_some(self) -> bool {
        self.0 != 0
    }

    /// Whether this is [`Row::NONE`].
    #[inline(always)]
    pub const fn is_none(self) -> bool {
        self.0 == 0
    }
}

/// What came of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The new row; its value columns hold their defaults.
    New(Row),
    /// The table is full and nothing may be evicted.
    Full,
    /// The key is longer than its column.
    TooLong,
}

/// From when a row's age counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// The last write, or with `TTL ON ACCESS` the last read or write.
    pub used: Time,
    /// The insertion. Where rows do not expire by it, it is not kept, and is as `used`.
    pub inserted: Time,
}

/// Why a row left its table without anybody's asking.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// It was older than its TTL, or one of two.
    Expired,
    /// It made room for another while it lived.
    Evicted,
}

/// Where a scan has come to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// A row that lives, and the cursor that follows it.
    Row(Row, u64),
    /// No row within the budget: the scan goes on from this cursor.
    More(u64),
    /// No row is left.
    End,
}

/// Why [`Table::set_limits`] refused. The caller makes a new table and copies the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsError {
    /// More rows than the table has room for.
    Rows {
        /// The most rows that this table can be given.
        max: u64,
    },
    /// The rows' times of writes, touches or insertions, by which they would expire or be evicted, were not kept up.
    Order,
}

impl Table {
    /// An empty table, whose keys are placed by this: a secret of the node, the same for all its tables. It allocates
    /// its stripes (0.9 KiB each, one for every 8192 rows) and no rows.
    ///
    /// # Panics
    /// If a row is wider than [`crate::limits::ROW_BYTES_MAX`] (see [`TableSpec::row_bytes`]) or has no key: the
    /// compiler checks both.
    pub fn new(spec: TableSpec, hash: HashKey) -> Self {
        let header = Header::of(&spec);
        let (key, layout) = layout::base_group(&spec, header);
        let geometry = Geometry::of(&spec, layout.words());
        let fingerprint = layout::fingerprint(&spec, hash, &layout, header, geometry);
        let stripes: Box<[Stripe]> = (0..geometry.stripes()).map(|at| Stripe::new(at, geometry)).collect();
        let begins: Box<[_]> = stripes.iter().map(|_| index::Begin::none()).collect();
        let base = Group::new(layout, geometry);
        Self {
            fingerprint,
            hash,
            key,
            header,
            geometry,
            stripes_address: stripes.as_ptr().expose_provenance(),
            begins_at: begins.as_ptr().expose_provenance(),
            segments_at: base.addresses_at(),
            memory: Memory::default(),
            stripes,
            begins,
            base,
            added: Default::default(),
            n_added: AtomicU32::new(0),
            extending: AtomicU32::new(0),
            rows: AtomicU64::new(0),
            rows_max: AtomicU64::new(spec.max_rows),
            ttl: AtomicI64::new(nanos(spec.ttl)),
            ttl_on_insert: AtomicI64::new(nanos(spec.ttl_on_insert)),
            evict: AtomicU8::new(spec.evict as u8),
            lapsed: AtomicU8::new(0),
            keeps: AtomicU8::new(0),
            unreported: AtomicU64::new(0),
            sweep_at: AtomicU32::new(0),
            spec,
        }
    }

    /// What the table was made from; [`Table::extend`] and [`Table::set_limits`] do not show here.
    pub fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// A hash of what compiled code takes for granted: by what its keys are placed, names, types and places of the
    /// columns that the table was made with, whether it is shared, by what its rows age, and into how many stripes and
    /// how long segments it is cut. Added columns do not change it.
    #[inline(always)]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Where a column is, key columns included (those are read only).
    pub fn column(&self, name: &str) -> Option<ColumnRef> {
        self.groups().find_map(|(_, group)| group.layout().find(name).map(|c| c.at))
    }

    /// The columns in order: those of the key, the first values, then the added ones.
    pub fn columns(&self) -> impl Iterator<Item = (&ColumnSpec, ColumnRef)> {
        self.groups().flat_map(|(_, group)| group.layout().columns().iter().map(|c| (&c.spec, c.at)))
    }

    /// Adds columns while rows exist (hot update). Rows do not move, nothing is copied now: old code goes on with
    /// the columns it knows, and in each old row a new column holds its default.
    ///
    /// Columns that are there already with the same type are left alone, so the same call may come twice.
    ///
    /// # Errors
    /// A column is there with another type, or a limit is reached. Then nothing was added.
    pub fn extend(&self, columns: &[ColumnSpec]) -> Result<(), ExtendError> {
        spin_lock(&self.extending);
        let result = self.extend_locked(columns);
        spin_unlock(&self.extending);
        result
    }

    fn extend_locked(&self, columns: &[ColumnSpec]) -> Result<(), ExtendError> {
        let mut new = Vec::new();
        for column in columns {
            match self.columns().find(|(c, _)| c.name == column.name) {
                Some((old, _)) if old.ty == column.ty && old.nullable == column.nullable => {}
                Some((old, _)) => return Err(ExtendError::changed(old, column)),
                None => new.push(column.clone()),
            }
        }
        if new.is_empty() {
            return Ok(());
        }
        let n = self.n_added.load(Relaxed) as usize;
        let cell = self.added.get(n).ok_or(ExtendError::TooManyGroups)?;
        let words: usize = self.groups().map(|(_, group)| group.layout().words()).sum();
        let layout = layout::added_group(&new, n + 1, words)?;
        cell.get_or_init(|| Group::new(layout, self.geometry));
        self.n_added.store(n as u32 + 1, core::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Changes what a hot update may change: how many rows there are, how long they live, and what makes way. Fewer
    /// rows than there are now do no harm: insertions evict (or fail) until the number is met.
    ///
    /// # Errors
    /// See [`LimitsError`]; then nothing changed.
    pub fn set_limits(&self, limits: &TableSpec) -> Result<(), LimitsError> {
        self.check_limits(limits)?;
        // Code that runs with these limits stores no time that they do not need.
        self.lapsed.fetch_or(!layout::orders(limits), Relaxed);
        self.rows_max.store(limits.max_rows, Relaxed);
        self.ttl.store(nanos(limits.ttl), Relaxed);
        self.ttl_on_insert.store(nanos(limits.ttl_on_insert), Relaxed);
        self.evict.store(limits.evict as u8, Relaxed);
        Ok(())
    }

    /// Whether [`Table::set_limits`] would take these.
    ///
    /// # Errors
    /// See [`LimitsError`].
    pub fn check_limits(&self, limits: &TableSpec) -> Result<(), LimitsError> {
        let max = self.geometry.rows_max();
        if limits.max_rows > max {
            return Err(LimitsError::Rows { max });
        }
        let has_lapsed = layout::orders(limits) & self.lapsed.load(Relaxed) != 0;
        if has_lapsed || !self.header.serves(limits) {
            return Err(LimitsError::Order);
        }
        Ok(())
    }

    /// The most rows that the table holds. Workers that insert at the same moment may each go one beyond it, and a
    /// table that evicts keeps at least one row in a stripe that was given one.
    pub fn max_rows(&self) -> u64 {
        self.rows_max.load(Relaxed)
    }

    /// What the table's keys are placed by.
    #[inline(always)]
    pub fn hash_key(&self) -> HashKey {
        self.hash
    }

    /// The hash of an integer key (or one of a type that is held as a word).
    #[inline(always)]
    pub fn hash_int(&self, key: u64) -> u64 {
        self.hash.hash_word(key)
    }

    /// The hash of a text or bytes key, or of the canonical bytes of several columns ([`KeyBuilder`]).
    #[inline(always)]
    pub fn hash_bytes(&self, key: &[u8]) -> u64 {
        self.hash.hash_bytes(key)
    }

    /// The row with this key: a table with one key column that is not text or bytes. [`Row::NONE`] if there is none
    /// or it has expired by `now`.
    #[inline]
    pub fn find_int(&self, key: u64, now: Time) -> Row {
        match self.find_int_at_home(key, now) {
            HomeProbe::Found((row, _)) => row,
            HomeProbe::Absent => Row::NONE,
            HomeProbe::Elsewhere => self.find_int_elsewhere(key, now),
        }
    }

    /// The row with this key: the bytes of a single text or bytes column, or the canonical bytes of several columns.
    /// [`Row::NONE`] if there is none or it has expired by `now`.
    #[inline]
    pub fn find_bytes(&self, key: &[u8], now: Time) -> Row {
        match self.find_bytes_at_home(key, now) {
            HomeProbe::Found((row, _)) => row,
            HomeProbe::Absent => Row::NONE,
            HomeProbe::Elsewhere => self.find_bytes_elsewhere(key, now),
        }
    }

    /// As [`Table::find_int`], with the row's words of the first group ([`Table::row_words`]), for which the row need
    /// not be found again.
    #[inline]
    pub fn find_int_words(&self, key: u64, now: Time) -> Option<(Row, &[AtomicU64])> {
        match self.find_int_at_home(key, now) {
            HomeProbe::Found((row, place)) => Some((row, self.base.cut(place))),
            HomeProbe::Absent => None,
            HomeProbe::Elsewhere => self.with_words(self.find_int_elsewhere(key, now)),
        }
    }

    /// As [`Table::find_bytes`], with the row's words of the first group ([`Table::row_words`]), for which the row
    /// need not be found again.
    #[inline]
    pub fn find_bytes_words(&self, key: &[u8], now: Time) -> Option<(Row, &[AtomicU64])> {
        match self.find_bytes_at_home(key, now) {
            HomeProbe::Found((row, place)) => Some((row, self.base.cut(place))),
            HomeProbe::Absent => None,
            HomeProbe::Elsewhere => self.with_words(self.find_bytes_elsewhere(key, now)),
        }
    }

    /// Inserts a row under an integer key that is not there (the caller has looked, under the same lock). If it is
    /// there after all, it is replaced. A full table evicts as declared.
    pub fn insert_int(&self, key: u64, now: Time) -> Insert {
        self.insert_int_with(key, now, &mut |_, _| {})
    }

    /// As [`Table::insert_int`], for the keys of [`Table::find_bytes`].
    pub fn insert_bytes(&self, key: &[u8], now: Time) -> Insert {
        self.insert_bytes_with(key, now, &mut |_, _| {})
    }

    fn insert_int_with(&self, key: u64, now: Time, on_evict: &mut dyn FnMut(Row, Eviction)) -> Insert {
        let KeyShape::Int { word } = self.key else { return Insert::TooLong };
        self.insert(self.hash_int(key), now, IntKey { at: word, key }, on_evict)
    }

    fn insert_bytes_with(&self, key: &[u8], now: Time, on_evict: &mut dyn FnMut(Row, Eviction)) -> Insert {
        match &self.key {
            KeyShape::Bytes { word, bytes_max } if key.len() <= *bytes_max as usize => {
                match ShortKey::new(*word, key) {
                    Some(short) => self.insert(short.hash(self.hash), now, short, on_evict),
                    None => {
                        let bytes = BytesKey { at: *word, bytes: key };
                        self.insert(self.hash_bytes(key), now, bytes, on_evict)
                    }
                }
            }
            KeyShape::Parts(parts) if layout::parts_fit(parts, key) => {
                self.insert(self.hash_bytes(key), now, PartsKey { parts, bytes: key }, on_evict)
            }
            _ => Insert::TooLong,
        }
    }

    /// Removes a row. A row that is gone already is left alone.
    pub fn remove(&self, row: Row) {
        if self.is_live(row) {
            self.unindex(row);
            self.release(row);
        }
    }

    /// A write to the row at `now`: its age counts from here, and it is the newest to `EVICT OLDEST` and `LRU`.
    #[inline]
    pub fn touch(&self, row: Row, now: Time) {
        let words = self.row_words(row, 0);
        words[WRITTEN_AT].store(now.0 as u64, Relaxed);
        if let Some(touched) = self.header.touched {
            words[touched].store(now.0 as u64, Relaxed);
        }
    }

    /// From when a row's age counts.
    pub fn age(&self, row: Row) -> Age {
        let words = self.row_words(row, 0);
        let used = Time(words[self.header.age_at].load(Relaxed) as i64);
        Age { used, inserted: self.header.inserted.map_or(used, |at| Time(words[at].load(Relaxed) as i64)) }
    }

    /// Makes a row as old as this.
    pub fn set_age(&self, row: Row, age: Age) {
        self.touch(row, age.used);
        self.set_inserted(row, age.inserted);
    }

    /// Whether a row of this age has expired by `now`.
    pub fn is_over(&self, age: Age, now: Time) -> bool {
        is_over(age.used.0 as u64, now, self.ttl.load(Relaxed))
            || is_over(age.inserted.0 as u64, now, self.ttl_on_insert.load(Relaxed))
    }

    /// The words of the first group into which [`Table::touch`] stores the time (nanoseconds), which is all that it
    /// does: that of the last write, and with `EVICT LRU` or `TTL ON ACCESS` another one, which is that of
    /// [`Table::touch_read`].
    pub fn touch_words(&self) -> (u16, Option<u16>) {
        (WRITTEN_AT as u16, self.header.touched.map(|word| word as u16))
    }

    /// A read of the row at `now`. It does something under `EVICT LRU` and `TTL ON ACCESS` alone.
    #[inline]
    pub fn touch_read(&self, row: Row, now: Time) {
        if let Some(touched) = self.header.touched {
            self.row_words(row, 0)[touched].store(now.0 as u64, Relaxed);
        }
    }

    /// The word of a column that is not text or bytes.
    ///
    /// # Panics
    /// This and the other accessors panic if `row` is [`Row::NONE`] or `col` is of another table.
    #[inline(always)]
    pub fn word(&self, row: Row, col: ColumnRef) -> u64 {
        self.cell(row, col)[0].load(Relaxed)
    }

    /// Sets the word of a column. Whether it is NULL is apart: [`Table::set_null`].
    #[inline(always)]
    pub fn set_word(&self, row: Row, col: ColumnRef, value: u64) {
        self.cell(row, col)[0].store(value, Relaxed);
    }

    /// Appends the bytes of a text or bytes column to `out`.
    pub fn bytes_into(&self, row: Row, col: ColumnRef, out: &mut Vec<u8>) {
        layout::cell_into(self.cell(row, col), out);
    }

    /// The length in bytes of a text or bytes column.
    #[inline(always)]
    pub fn bytes_len(&self, row: Row, col: ColumnRef) -> usize {
        layout::cell_len(self.cell(row, col))
    }

    /// Sets a text or bytes column; false (and nothing changes) if the bytes are too many for it.
    pub fn set_bytes(&self, row: Row, col: ColumnRef, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= col.bytes_max as usize;
        if fits {
            layout::cell_set(self.cell(row, col), bytes);
        }
        fits
    }

    /// Counts in a bytes column: adds one to the number `bin` of its counters of [`COUNTER_BYTES`] bytes, the lower
    /// byte first, which stays at the greatest it can hold. The column is made as long as that needs, with zeros
    /// between. A bin for which the column has no room is not counted, and NULL ends with the first that is.
    #[inline]
    pub fn count_into(&self, row: Row, col: ColumnRef, bin: u64) {
        let room = u64::from(col.bytes_max) / COUNTER_BYTES as u64;
        if bin < room {
            if self.is_null(row, col) {
                // NULL leaves the bytes as they were; counting begins with none.
                self.set_bytes(row, col, &[]);
                self.set_null(row, col, false);
            }
            layout::cell_count(self.cell(row, col), bin as usize);
        }
    }

    /// Whether a text or bytes column holds these bytes.
    #[inline]
    pub fn bytes_eq(&self, row: Row, col: ColumnRef, bytes: &[u8]) -> bool {
        layout::cell_eq(self.cell(row, col), bytes)
    }

    /// Whether the column is NULL; false for columns that cannot be.
    #[inline(always)]
    pub fn is_null(&self, row: Row, col: ColumnRef) -> bool {
        let Some((word, bit)) = col.null_bit else { return false };
        self.row_words(row, col.group)[word as usize].load(Relaxed) >> bit & 1 != 0
    }

    /// Makes the column NULL or not. It does nothing to columns that cannot be NULL.
    #[inline(always)]
    pub fn set_null(&self, row: Row, col: ColumnRef, null: bool) {
        let Some((word, bit)) = col.null_bit else { return };
        let cell = &self.row_words(row, col.group)[word as usize];
        let others = cell.load(Relaxed) & !(1 << bit);
        cell.store(others | u64::from(null) << bit, Relaxed);
    }

    /// The row's words of one column group, found once for several accesses: columns are at [`ColumnRef::word`].
    ///
    /// # Panics
    /// If `row` is [`Row::NONE`] or there is no such group.
    #[inline(always)]
    pub fn row_words(&self, row: Row, group: u16) -> &[AtomicU64] {
        let group = match group {
            0 => &self.base,
            _ => self.added[group as usize - 1].get().expect("the column is of this table"),
        };
        group.row(row.0.wrapping_sub(1), self.geometry, &self.memory)
    }

    /// Where the row's words of this group are in memory, for compiled code: `AtomicU64`s, as many as the group has
    /// words, stable for the life of the row. Column words and null bits count from here.
    #[inline]
    pub fn row_address(&self, row: Row, group: u16) -> usize {
        self.row_words(row, group).as_ptr().expose_provenance()
    }

    /// Locks the stripe of a key. Not re-entrant; it does nothing unless the table is shared.
    #[inline]
    pub fn lock(&self, key_hash: u64) {
        if self.spec.shared {
            spin_lock(&self.stripes[self.geometry.stripe_of(key_hash)].lock);
        }
    }

    /// Unlocks the stripe of a key.
    #[inline]
    pub fn unlock(&self, key_hash: u64) {
        if self.spec.shared {
            spin_unlock(&self.stripes[self.geometry.stripe_of(key_hash)].lock);
        }
    }

    /// Locks all stripes, in order. The caller holds none.
    pub fn lock_all(&self) {
        if self.spec.shared {
            self.stripes.iter().for_each(|stripe| spin_lock(&stripe.lock));
        }
    }

    /// Unlocks all stripes.
    pub fn unlock_all(&self) {
        if self.spec.shared {
            self.stripes.iter().for_each(|stripe| spin_unlock(&stripe.lock));
        }
    }

    /// Rows that were evicted of a table that keeps those ([`Table::keep_removed`]), and that nobody is to look at: as
    /// many waited already as there are places besides those in use.
    pub fn evicted_untold(&self) -> u64 {
        self.unreported.load(Relaxed)
    }

    /// Rows in memory: those that have expired and are not swept yet count too.
    pub fn len(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Whether there is no row in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Rows that live at `now`, exactly. It visits all rows if the table has a TTL.
    pub fn count(&self, now: Time) -> u64 {
        if !self.may_expire() {
            return self.len();
        }
        let mut n = 0;
        let mut cursor = 0;
        while let Some((_, next)) = self.scan(cursor, now) {
            cursor = next;
            n += 1;
        }
        n
    }

    /// The next live row at or after `cursor` (0 to start) and the cursor that follows it, in slab order: the same
    /// operations on a table give the same order. Rows inserted or removed during a scan may or may not be seen, all
    /// others are seen once. It goes on until it finds a row; see [`Table::scan_some`] for the opposite.
    pub fn scan(&self, cursor: u64, now: Time) -> Option<(Row, u64)> {
        match self.scan_some(cursor, now, u64::MAX) {
            Scan::Row(row, next) => Some((row, next)),
            Scan::More(_) | Scan::End => None,
        }
    }

    /// As [`Table::scan`], but it visits at most `budget` places: rows, dead ones included, segments of at most 1024
    /// rows in which none lives, and what is left of a stripe behind all rows that it has ever used.
    pub fn scan_some(&self, cursor: u64, now: Time, mut budget: u64) -> Scan {
        let mut at = cursor;
        loop {
            let row = match self.next_row(at, &mut budget) {
                Some(Ok(found)) => Row(found + 1),
                Some(Err(next)) => return Scan::More(next),
                None => return Scan::End,
            };
            if !self.is_expired(self.row_words(row, 0), now) {
                return Scan::Row(row, self.cursor_behind(row));
            }
            at = self.cursor_behind(row);
        }
    }

    /// The cursor of a scan that goes on behind a row, which may be gone by then; behind no row it begins.
    #[inline]
    pub fn cursor_behind(&self, row: Row) -> u64 {
        self.geometry.after(row.0.wrapping_sub(1))
    }

    /// The most index slots that one operation has moved: what the longest stall so far was made of.
    pub fn index_moves_max(&self) -> u32 {
        self.stripes.iter().map(|stripe| stripe.moved_max.load(Relaxed)).max().unwrap_or(0)
    }

    /// Bytes that the table can come to hold at most: segments, index and bookkeeping.
    pub fn memory_bytes_max(&self) -> u64 {
        let groups: u64 = self.groups().map(|(_, group)| group.bytes_max(self.geometry)).sum();
        groups + self.stripes.len() as u64 * Stripe::bytes_max(self.geometry, self.orders().count())
    }

    /// As [`Table::memory_bytes_max`], of a table of this kind, wherever its keys are placed.
    pub fn memory_bytes_max_of(spec: &TableSpec) -> u64 {
        Self::new(spec.clone(), HashKey::from_seed(0)).memory_bytes_max()
    }

    /// Bytes that the table holds now.
    pub fn memory_bytes(&self) -> u64 {
        let groups: u64 = self.groups().map(|(_, group)| group.bytes()).sum();
        groups + self.stripes.iter().map(Stripe::bytes).sum::<u64>()
    }

    /// The usual way of a look-up, which needs no stack: the rare ways are calls with the same arguments.
    #[inline(always)]
    fn find_int_at_home(&self, key: u64, now: Time) -> HomeProbe<(Row, RowLocation<'_>)> {
        let KeyShape::Int { word } = self.key else { return HomeProbe::Absent };
        self.find_at_home(self.hash_int(key), now, IntKey { at: word, key })
    }

    #[cold]
    #[inline(never)]
    fn find_int_elsewhere(&self, key: u64, now: Time) -> Row {
        let KeyShape::Int { word } = self.key else { return Row::NONE };
        self.find_elsewhere(self.hash_int(key), now, IntKey { at: word, key })
    }

    /// As [`Table::find_int_at_home`], for a single column and keys that are short but not empty; the others are far.
    #[inline(always)]
    fn find_bytes_at_home(&self, key: &[u8], now: Time) -> HomeProbe<(Row, RowLocation<'_>)> {
        let KeyShape::Bytes { word, .. } = self.key else { return HomeProbe::Elsewhere };
        let Some(short) = ShortKey::new(word, key) else { return HomeProbe::Elsewhere };
        self.find_at_home(short.hash(self.hash), now, short)
    }

    #[inline(never)]
    fn find_bytes_elsewhere(&self, key: &[u8], now: Time) -> Row {
        let hash = self.hash_bytes(key);
        match &self.key {
            KeyShape::Int { .. } => Row::NONE,
            KeyShape::Bytes { word, .. } => {
                self.find_elsewhere(hash, now, BytesKey { at: *word, bytes: key })
            }
            KeyShape::Parts(parts) => self.find_elsewhere(hash, now, PartsKey { parts, bytes: key }),
        }
    }

    fn with_words(&self, row: Row) -> Option<(Row, &[AtomicU64])> {
        row.is_some().then(|| (row, self.row_words(row, 0)))
    }

    /// All groups and their numbers.
    fn groups(&self) -> impl Iterator<Item = (u16, &Group)> {
        let added = self.added.iter().map_while(OnceLock::get);
        core::iter::once(&self.base).chain(added).enumerate().map(|(i, group)| (i as u16, group))
    }

    #[inline(always)]
    fn cell(&self, row: Row, col: ColumnRef) -> &[AtomicU64] {
        &self.row_words(row, col.group)[col.word as usize..]
    }

    fn is_live(&self, row: Row) -> bool {
        let words = self.base.resident_row(row.0.wrapping_sub(1), self.geometry);
        words.is_some_and(|words| words[0].load(Relaxed) & LIVE != 0)
    }

    /// Whether the row that these words are has expired.
    #[inline(always)]
    fn is_expired(&self, words: &[AtomicU64], now: Time) -> bool {
        self.ages().any(|(at, ttl)| is_over(words[at].load(Relaxed), now, ttl))
    }

    /// Whether rows expire.
    fn may_expire(&self) -> bool {
        self.ages().next().is_some()
    }

    /// From which words of a row its age counts, and how long it lives from then on, in nanoseconds.
    #[inline(always)]
    fn ages(&self) -> impl Iterator<Item = (usize, i64)> {
        let used = (self.header.age_at, self.ttl.load(Relaxed));
        let inserted = self.header.inserted.map(|at| (at, self.ttl_on_insert.load(Relaxed)));
        core::iter::once(used).chain(inserted).filter(|(_, ttl)| *ttl != i64::MAX)
    }
}

/// Nanoseconds of a time to live, which need not be limited.
fn nanos(ttl: Option<Interval>) -> i64 {
    ttl.map_or(i64::MAX, Interval::as_nanos)
}

/// Whether the age that counts from this stamp is over.
#[inline(always)]
fn is_over(stamp: u64, now: Time, ttl: i64) -> bool {
    now.0.saturating_sub(stamp as i64) >= ttl
}

/// Turns of the loop before a waiter lets other threads of its core run.
const SPINS_MAX: u32 = 128;

fn spin_lock(lock: &AtomicU32) {
    use core::sync::atomic::Ordering::Acquire;
    let mut spins = 0;
    while lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        spins += 1;
        if spins < SPINS_MAX {
            core::hint::spin_loop();
        } else {
            // The holder never waits while it holds the lock, so if it is not done by now it is not running.
            std::thread::yield_now();
        }
    }
}

fn spin_try_lock(lock: &AtomicU32) -> bool {
    lock.compare_exchange(0, 1, core::sync::atomic::Ordering::Acquire, Relaxed).is_ok()
}

fn spin_unlock(lock: &AtomicU32) {
    lock.store(0, core::sync::atomic::Ordering::Release);
}
