//! State tables: bounded, typed, shared between workers, with fast look-up.
//!
//! A [`Table`] is a slab of rows and an index over their keys. The hash of the key divides both into *stripes*. All
//! data is words in `Box<[AtomicU64]>`, accessed with relaxed loads and stores (plain moves). So compiled code can
//! access the same words by address while it holds the stripe's lock.
//!
//! **Locking.** A table with several writers ([`TableSpec::shared`]) has a lock per stripe ([`Table::lock`]). A caller
//! holds the key's lock from its look-up to its last access to the row. A table with one writer needs no lock. Readers
//! without a lock are safe beside a writer, but may see a stale or torn row; tables that the controller fills are
//! therefore replaced whole.
//!
//! **No stalls.** The two longest operations are bounded. Growth of one stripe's index moves at most
//! [`STRIPE_ROWS_MAX`] slots; rows never move. A search for the oldest rows of one stripe visits at most as many rows.
//! An insertion into a full table searches its own stripe, once for age and once for eviction if those differ, and one
//! other stripe. A search is due only once for every few rows that were evicted, expired or touched since the last. The
//! exception is a full table with a TTL and `EVICT REJECT`: there an insertion may search all stripes in which a row
//! may have expired since their last search. Memory is allocated in segments of at most [`SEGMENT_BYTES_MAX`], or one
//! row if that is larger.
//!
//! **A touch is one store.** It stores the time; rows are ordered only when one has to be evicted. The oldest row of a
//! stripe is exact, as far as the clocks of its workers agree. Among rows with the same time the choice is arbitrary
//! but deterministic.
//!
//! **Hostile keys.** A secret of the node places the keys ([`HashKey`]). So a peer cannot choose keys that collide in
//! one stripe or one home slot. A table holds its declared number of rows for any keys: if the secret leaked, look-ups
//! of crafted keys would take longer, but no row would be evicted or refused because of them. The stripe of a key, and
//! so the scan order of a table with several stripes, also depends on the secret.

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

/// Maximum number of column groups of a table: the first, and one for each hot update that adds columns.
pub const GROUPS_MAX: usize = 16;
const _: () = assert!(GROUPS_MAX <= u16::MAX as usize, "the group of a column has 16 bits");
/// Bytes of a counter in a column of counters: [`Table::count_into`].
pub const COUNTER_BYTES: usize = 2;

/// A state table.
///
/// All methods take `&self`; workers share a table as `Arc<Table>`. See the module's documentation for locks.
#[derive(Debug)]
pub struct Table {
    spec: TableSpec,
    /// The secret that places keys.
    hash: HashKey,
    key: KeyShape,
    header: Header,
    geometry: Geometry,
    stripes: Box<[Stripe]>,
    /// The start of each stripe's index.
    begins: Box<[index::Begin]>,
    /// These three are for compiled code ([`jit_layout`]).
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
    /// Nanoseconds; `i64::MAX` for rows that never expire.
    ttl: AtomicI64,
    /// As `ttl`, counted from the insertion.
    ttl_on_insert: AtomicI64,
    evict: AtomicU8,
    /// Orders that were not maintained for some time, by the bits of `layout::orders`.
    lapsed: AtomicU8,
    /// Which removed rows are kept, by bits of [`RemovalReason`]: [`Table::keep_removed`].
    keeps: AtomicU8,
    /// Evicted rows that could not be kept: [`Table::evicted_untold`].
    unreported: AtomicU64,
    /// The stripe of the next sweep, or of the next search for an expired row.
    sweep_at: AtomicU32,
}

/// A row of a table: an opaque handle, valid while the row lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Row(pub u64);

impl Row {
    /// No row.
    pub const NONE: Self = Self(0);

    /// Whether this is a row.
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

/// The result of an insertion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Insert {
    /// The new row; its value columns hold their defaults.
    New(Row),
    /// The table is full and nothing may be evicted.
    Full,
    /// The key is longer than its column.
    TooLong,
}

/// The start times of a row's age.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Age {
    /// The last write; with `TTL ON ACCESS` the last read or write.
    pub used: Time,
    /// The insertion. Equal to `used` in tables without a TTL from insertion, which do not store it.
    pub inserted: Time,
}

/// Why a table removed a row by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemovalReason {
    /// The row was older than a TTL.
    Expired,
    /// The row made room for another before it expired.
    Evicted,
}

/// The result of a scan step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scan {
    /// A live row, and the cursor behind it.
    Row(Row, u64),
    /// No row within the budget: continue from this cursor.
    More(u64),
    /// There are no more rows.
    End,
}

/// Why [`Table::set_limits`] failed. The caller makes a new table and copies the rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitsError {
    /// More rows than the table has capacity for.
    Rows {
        /// The capacity of this table in rows.
        max: u64,
    },
    /// The table has not maintained the write, touch or insertion times that the new limits need.
    Order,
}

impl Table {
    /// An empty table. `hash` is a secret of the node, the same for all its tables; it places the keys. The table
    /// allocates its stripes (0.9 KiB each, one for every 8192 rows) and no rows.
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
        assert!(stripes.len().is_power_of_two(), "bits of a hash select the stripe");
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

    /// The declaration of the table, without later changes by [`Table::extend`] and [`Table::set_limits`].
    pub fn spec(&self) -> &TableSpec {
        &self.spec
    }

    /// A hash of everything that compiled code relies on: the secret of the keys; names, types and positions of the
    /// initial columns; whether the table is shared; the words of a row's age; the number of stripes and the length of
    /// segments. Added columns do not change it.
    #[inline(always)]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// The position of a column, key columns included (those are read only).
    pub fn column(&self, name: &str) -> Option<ColumnRef> {
        self.groups().find_map(|(_, group)| group.layout().find(name).map(|c| c.at))
    }

    /// The columns in order: key columns, initial value columns, added columns.
    pub fn columns(&self) -> impl Iterator<Item = (&ColumnSpec, ColumnRef)> {
        self.groups().flat_map(|(_, group)| group.layout().columns().iter().map(|c| (&c.spec, c.at)))
    }

    /// Adds columns to a table with rows (hot update). Rows do not move and nothing is copied: old code continues with
    /// the columns it knows, and in each old row a new column holds its default.
    ///
    /// A column that exists with the same type is skipped, so the call is idempotent.
    ///
    /// # Errors
    /// A column exists with another type, or a limit is reached. Nothing was added then.
    pub fn extend(&self, columns: &[ColumnSpec]) -> Result<(), ExtendError> {
        spin_lock(&self.extending);
        let result = self.extend_locked(columns);
        spin_unlock(&self.extending);
        result
    }

    /// Adds the columns that the table lacks, as a new group; the caller holds all locks.
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
        assert!(cell.get().is_none(), "the lock on extension is held");
        cell.get_or_init(|| Group::new(layout, self.geometry));
        self.n_added.store(n as u32 + 1, core::sync::atomic::Ordering::Release);
        Ok(())
    }

    /// Changes the limits of a hot update: the number of rows, the TTLs, and the eviction rule. A lower number of rows
    /// is safe: insertions evict (or fail) until the table has shrunk to it.
    ///
    /// # Errors
    /// See [`LimitsError`]; nothing has changed then.
    pub fn set_limits(&self, limits: &TableSpec) -> Result<(), LimitsError> {
        self.check_limits(limits)?;
        // Code that runs with these limits does not maintain other times.
        self.lapsed.fetch_or(!layout::orders(limits), Relaxed);
        self.rows_max.store(limits.max_rows, Relaxed);
        self.ttl.store(nanos(limits.ttl), Relaxed);
        self.ttl_on_insert.store(nanos(limits.ttl_on_insert), Relaxed);
        self.evict.store(limits.evict as u8, Relaxed);
        Ok(())
    }

    /// Whether [`Table::set_limits`] would accept these limits.
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

    /// The maximum number of rows. Workers that insert at the same moment may each exceed it by one. A table that
    /// evicts keeps at least one row in each stripe that has had one.
    pub fn max_rows(&self) -> u64 {
        self.rows_max.load(Relaxed)
    }

    /// The secret that places the table's keys.
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

    /// The row with this key, in a table with one key column that is not text or bytes. [`Row::NONE`] if there is none
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

    /// As [`Table::find_int`], together with the row's words of the first group ([`Table::row_words`]).
    #[inline]
    pub fn find_int_words(&self, key: u64, now: Time) -> Option<(Row, &[AtomicU64])> {
        match self.find_int_at_home(key, now) {
            HomeProbe::Found((row, place)) => Some((row, self.base.cut(place))),
            HomeProbe::Absent => None,
            HomeProbe::Elsewhere => self.with_words(self.find_int_elsewhere(key, now)),
        }
    }

    /// As [`Table::find_bytes`], together with the row's words of the first group ([`Table::row_words`]).
    #[inline]
    pub fn find_bytes_words(&self, key: &[u8], now: Time) -> Option<(Row, &[AtomicU64])> {
        match self.find_bytes_at_home(key, now) {
            HomeProbe::Found((row, place)) => Some((row, self.base.cut(place))),
            HomeProbe::Absent => None,
            HomeProbe::Elsewhere => self.with_words(self.find_bytes_elsewhere(key, now)),
        }
    }

    /// Inserts a row under an integer key. The caller has searched for the key under the same lock and found none; if
    /// it exists after all, the row is replaced. A full table evicts as declared.
    pub fn insert_int(&self, key: u64, now: Time) -> Insert {
        self.insert_int_with(key, now, &mut |_, _| {})
    }

    /// As [`Table::insert_int`], for the keys of [`Table::find_bytes`].
    pub fn insert_bytes(&self, key: &[u8], now: Time) -> Insert {
        self.insert_bytes_with(key, now, &mut |_, _| {})
    }

    /// Inserts a row by a key of one word; `on_evict` sees each evicted row.
    fn insert_int_with(&self, key: u64, now: Time, on_evict: &mut dyn FnMut(Row, Eviction)) -> Insert {
        let KeyShape::Int { word } = self.key else { return Insert::TooLong };
        self.insert(self.hash_int(key), now, IntKey { at: word, key }, on_evict)
    }

    /// Inserts a row by a key in bytes or of several columns; `on_evict` sees each evicted row.
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

    /// Removes a row. Does nothing if the row is already gone.
    pub fn remove(&self, row: Row) {
        if self.is_live(row) {
            self.unindex(row);
            self.release(row);
        }
    }

    /// Records a write at `now`: the row's age restarts, and the row is the newest for `EVICT OLDEST` and `LRU`.
    #[inline]
    pub fn touch(&self, row: Row, now: Time) {
        let words = self.row_words(row, 0);
        words[WRITTEN_AT].store(now.0 as u64, Relaxed);
        if let Some(touched) = self.header.touched {
            words[touched].store(now.0 as u64, Relaxed);
        }
    }

    /// Reads the times from which a row's age counts.
    pub fn age(&self, row: Row) -> Age {
        let words = self.row_words(row, 0);
        let used = Time(words[self.header.age_at].load(Relaxed) as i64);
        Age { used, inserted: self.header.inserted.map_or(used, |at| Time(words[at].load(Relaxed) as i64)) }
    }

    /// Sets the start times of a row's age.
    pub fn set_age(&self, row: Row, age: Age) {
        self.touch(row, age.used);
        self.set_inserted(row, age.inserted);
    }

    /// Whether a row of this age has expired by `now`.
    pub fn is_over(&self, age: Age, now: Time) -> bool {
        is_over(age.used.0 as u64, now, self.ttl.load(Relaxed))
            || is_over(age.inserted.0 as u64, now, self.ttl_on_insert.load(Relaxed))
    }

    /// The words of the first group to which [`Table::touch`] stores the time in nanoseconds: the last write and, with
    /// `EVICT LRU` or `TTL ON ACCESS`, the word of [`Table::touch_read`]. A touch does nothing else.
    pub fn touch_words(&self) -> (u16, Option<u16>) {
        (WRITTEN_AT as u16, self.header.touched.map(|word| word as u16))
    }

    /// Records a read at `now`. It has an effect only with `EVICT LRU` and `TTL ON ACCESS`.
    #[inline]
    pub fn touch_read(&self, row: Row, now: Time) {
        if let Some(touched) = self.header.touched {
            self.row_words(row, 0)[touched].store(now.0 as u64, Relaxed);
        }
    }

    /// The word of a column that is not text or bytes.
    ///
    /// # Panics
    /// This and the other accessors panic if `row` is [`Row::NONE`] or `col` belongs to another table.
    #[inline(always)]
    pub fn word(&self, row: Row, col: ColumnRef) -> u64 {
        self.cell(row, col)[0].load(Relaxed)
    }

    /// Sets the word of a column. NULL is separate: [`Table::set_null`].
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

    /// Sets a text or bytes column. Returns false, and changes nothing, if the bytes are too long for it.
    pub fn set_bytes(&self, row: Row, col: ColumnRef, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= col.bytes_max as usize;
        if fits {
            layout::cell_set(self.cell(row, col), bytes);
        }
        fits
    }

    /// Increments counter `bin` in a bytes column that holds little-endian counters of [`COUNTER_BYTES`] bytes; a
    /// counter saturates. The column grows as necessary, with zeros between. A bin beyond the column's capacity is not
    /// counted. A NULL column becomes non-NULL with the first counted bin.
    #[inline]
    pub fn count_into(&self, row: Row, col: ColumnRef, bin: u64) {
        let room = u64::from(col.bytes_max) / COUNTER_BYTES as u64;
        if bin < room {
            if self.is_null(row, col) {
                // A NULL column may hold old bytes; counting starts with none.
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

    /// Whether the column is NULL; false for columns that are not nullable.
    #[inline(always)]
    pub fn is_null(&self, row: Row, col: ColumnRef) -> bool {
        let Some((word, bit)) = col.null_bit else { return false };
        self.row_words(row, col.group)[word as usize].load(Relaxed) >> bit & 1 != 0
    }

    /// Sets or clears NULL. It does nothing to columns that are not nullable.
    #[inline(always)]
    pub fn set_null(&self, row: Row, col: ColumnRef, null: bool) {
        let Some((word, bit)) = col.null_bit else { return };
        let cell = &self.row_words(row, col.group)[word as usize];
        let others = cell.load(Relaxed) & !(1 << bit);
        cell.store(others | u64::from(null) << bit, Relaxed);
    }

    /// The row's words of one column group, for several accesses: columns are at [`ColumnRef::word`].
    ///
    /// # Panics
    /// If `row` is [`Row::NONE`] or the group does not exist.
    #[inline(always)]
    pub fn row_words(&self, row: Row, group: u16) -> &[AtomicU64] {
        let group = match group {
            0 => &self.base,
            _ => self.added[group as usize - 1].get().expect("the column is of this table"),
        };
        group.row(row.0.wrapping_sub(1), self.geometry, &self.memory)
    }

    /// The address of the row's words of this group, for compiled code: `AtomicU64`s, one per word of the group, stable
    /// while the row lives. Column words and null bits are relative to it.
    #[inline]
    pub fn row_address(&self, row: Row, group: u16) -> usize {
        self.row_words(row, group).as_ptr().expose_provenance()
    }

    /// Locks the stripe of a key. The lock is not re-entrant; it does nothing unless the table is shared.
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

    /// Locks all stripes in order. The caller must hold none.
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

    /// The number of evicted rows that could not be kept, in a table that keeps them ([`Table::keep_removed`]): all
    /// spare rows were already in the queue.
    pub fn evicted_untold(&self) -> u64 {
        self.unreported.load(Relaxed)
    }

    /// The number of rows in memory, including expired rows that are not swept yet.
    pub fn len(&self) -> u64 {
        self.rows.load(Relaxed)
    }

    /// Whether there are no rows in memory.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The exact number of rows that live at `now`. It visits all rows if the table has a TTL.
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

    /// The next live row at or after `cursor` (0 to start) and the cursor behind it, in slab order: the same operations
    /// on a table give the same order. A scan may or may not see rows that are inserted or removed during the scan; it
    /// sees all others once. It searches until it finds a row; [`Table::scan_some`] takes a budget.
    pub fn scan(&self, cursor: u64, now: Time) -> Option<(Row, u64)> {
        match self.scan_some(cursor, now, u64::MAX) {
            Scan::Row(row, next) => Some((row, next)),
            Scan::More(_) | Scan::End => None,
        }
    }

    /// As [`Table::scan`], with at most `budget` steps. A step is a row (live or dead), a segment of at most 1024 rows
    /// without live rows, or the unused rest of a stripe.
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

    /// The cursor behind a row, which may be gone by then; the start of the scan for [`Row::NONE`].
    #[inline]
    pub fn cursor_behind(&self, row: Row) -> u64 {
        self.geometry.after(row.0.wrapping_sub(1))
    }

    /// The most index slots that one operation has moved: the longest stall so far.
    pub fn index_moves_max(&self) -> u32 {
        self.stripes.iter().map(|stripe| stripe.moved_max.load(Relaxed)).max().unwrap_or(0)
    }

    /// Maximum memory of the table in bytes: segments, index and bookkeeping.
    pub fn memory_bytes_max(&self) -> u64 {
        let groups: u64 = self.groups().map(|(_, group)| group.bytes_max(self.geometry)).sum();
        groups + self.stripes.len() as u64 * Stripe::bytes_max(self.geometry, self.orders().count())
    }

    /// [`Table::memory_bytes_max`] of a table with this declaration, for any secret.
    pub fn memory_bytes_max_of(spec: &TableSpec) -> u64 {
        Self::new(spec.clone(), HashKey::from_seed(0)).memory_bytes_max()
    }

    /// The memory that the table holds now, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let groups: u64 = self.groups().map(|(_, group)| group.bytes()).sum();
        groups + self.stripes.iter().map(Stripe::bytes).sum::<u64>()
    }

    /// The common case of a look-up, without a stack frame: the rare cases are calls with the same arguments.
    #[inline(always)]
    fn find_int_at_home(&self, key: u64, now: Time) -> HomeProbe<(Row, RowLocation<'_>)> {
        let KeyShape::Int { word } = self.key else { return HomeProbe::Absent };
        self.find_at_home(self.hash_int(key), now, IntKey { at: word, key })
    }

    /// Finds a row by a key of one word beyond the key's home slot; [`Row::NONE`] if there is none.
    #[cold]
    #[inline(never)]
    fn find_int_elsewhere(&self, key: u64, now: Time) -> Row {
        let KeyShape::Int { word } = self.key else { return Row::NONE };
        self.find_elsewhere(self.hash_int(key), now, IntKey { at: word, key })
    }

    /// As [`Table::find_int_at_home`], for one text or bytes column and short, non-empty keys. Other keys are
    /// `Elsewhere`.
    #[inline(always)]
    fn find_bytes_at_home(&self, key: &[u8], now: Time) -> HomeProbe<(Row, RowLocation<'_>)> {
        let KeyShape::Bytes { word, .. } = self.key else { return HomeProbe::Elsewhere };
        let Some(short) = ShortKey::new(word, key) else { return HomeProbe::Elsewhere };
        self.find_at_home(short.hash(self.hash), now, short)
    }

    /// Finds a row by its key beyond the key's home slot; [`Row::NONE`] if there is none.
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

    /// A row with its words in the first group; None for [`Row::NONE`].
    fn with_words(&self, row: Row) -> Option<(Row, &[AtomicU64])> {
        row.is_some().then(|| (row, self.row_words(row, 0)))
    }

    /// All groups with their numbers.
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

    /// Whether the row with these words has expired.
    #[inline(always)]
    fn is_expired(&self, words: &[AtomicU64], now: Time) -> bool {
        self.ages().any(|(at, ttl)| is_over(words[at].load(Relaxed), now, ttl))
    }

    /// Whether rows expire.
    fn may_expire(&self) -> bool {
        self.ages().next().is_some()
    }

    /// The words from which a row's age counts, each with its TTL in nanoseconds.
    #[inline(always)]
    fn ages(&self) -> impl Iterator<Item = (usize, i64)> {
        let used = (self.header.age_at, self.ttl.load(Relaxed));
        let inserted = self.header.inserted.map(|at| (at, self.ttl_on_insert.load(Relaxed)));
        core::iter::once(used).chain(inserted).filter(|(_, ttl)| *ttl != i64::MAX)
    }
}

/// A TTL in nanoseconds; `i64::MAX` for none.
fn nanos(ttl: Option<Interval>) -> i64 {
    ttl.map_or(i64::MAX, Interval::as_nanos)
}

/// Whether a row with this stamp has reached this TTL.
#[inline(always)]
fn is_over(stamp: u64, now: Time, ttl: i64) -> bool {
    now.0.saturating_sub(stamp as i64) >= ttl
}

/// Spins before a waiter yields to other threads of its core.
const SPINS_MAX: u32 = 128;

/// Takes a lock; spins, and yields the processor if that takes long.
fn spin_lock(lock: &AtomicU32) {
    use core::sync::atomic::Ordering::Acquire;
    let mut spins = 0;
    while lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        spins += 1;
        if spins < SPINS_MAX {
            core::hint::spin_loop();
        } else {
            // The holder never blocks while it holds the lock, so by now it is not scheduled.
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
