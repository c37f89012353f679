//! The layout of columns in a row, and the encoding of cells and keys.

use super::COUNTER_BYTES;
use super::storage::{Geometry, RowLocation};
use crate::hash::{self, HashKey};
use crate::limits::ROW_BYTES_MAX;
use crate::time::Interval;
use crate::types::{Repr, Type, Value};
use core::fmt;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// The declaration of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableSpec {
    /// The name in the program.
    pub name: String,
    /// The columns of the primary key, at least one; none is nullable.
    pub key: Vec<ColumnSpec>,
    /// The value columns.
    pub columns: Vec<ColumnSpec>,
    /// The maximum number of rows; `evict` decides what happens beyond it.
    pub max_rows: u64,
    /// The eviction rule of a full table.
    pub evict: Evict,
    /// The TTL of a row.
    pub ttl: Option<Interval>,
    /// Whether `ttl` counts from the last touch instead of the last write.
    pub ttl_on_access: bool,
    /// The TTL of a row from its insertion, independent of reads and writes.
    pub ttl_on_insert: Option<Interval>,
    /// Whether several workers write, so that stripes need locks.
    pub shared: bool,
    /// The number of stripes, rounded up to a power of two; None lets the table choose (one up to 4096 rows, then one
    /// for every 8192). Eviction order is exact within a stripe.
    pub stripes: Option<u32>,
}

impl TableSpec {
    /// A table for one writer, whose rows stay until they are removed; when it is full, insertions fail.
    pub fn new(
        name: impl Into<String>,
        key: Vec<ColumnSpec>,
        columns: Vec<ColumnSpec>,
        max_rows: u64,
    ) -> Self {
        Self {
            name: name.into(),
            key,
            columns,
            max_rows,
            evict: Evict::Reject,
            ttl: None,
            ttl_on_access: false,
            ttl_on_insert: None,
            shared: false,
            stripes: None,
        }
    }

    /// Whether rows expire.
    pub fn expires(&self) -> bool {
        self.ttl.is_some() || self.ttl_on_insert.is_some()
    }

    /// Bytes of one row, header and key included; the maximum for a table is [`ROW_BYTES_MAX`].
    pub fn row_bytes(&self) -> u64 {
        let cells = self.key.iter().chain(&self.columns).map(|c| cell_words(c.ty) as u64).sum::<u64>();
        (Header::of(self).words as u64 + null_words(&self.columns) as u64 + cells) * 8
    }
}

/// The declaration of a column.
#[derive(Clone, Debug, PartialEq)]
pub struct ColumnSpec {
    /// The name in the program.
    pub name: String,
    /// Its type; text and bytes without a bound take [`BYTES_MAX_DEFAULT`].
    pub ty: Type,
    /// Whether it may be NULL.
    pub nullable: bool,
    /// The value in a new row, and in an old row when the column is added later. NULL in a column that is not nullable
    /// stands for zero or the empty text.
    pub default: Value,
}

impl ColumnSpec {
    /// A column that is never NULL, and is zero or empty in a new row.
    pub fn new(name: impl Into<String>, ty: Type) -> Self {
        Self { name: name.into(), ty, nullable: false, default: Value::Null }
    }
}

/// Bytes of a text or bytes column without a declared bound.
pub const BYTES_MAX_DEFAULT: u32 = 256;

/// The eviction rule of a full table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Evict {
    /// The insertion fails.
    #[default]
    Reject = 0,
    /// Evicts the row with the oldest write.
    Oldest = 1,
    /// Evicts the row with the oldest touch.
    Lru = 2,
}

impl Evict {
    /// Decodes an eviction policy; unknown codes are `REJECT`.
    pub(super) fn from_code(code: u8) -> Self {
        match code {
            1 => Self::Oldest,
            2 => Self::Lru,
            _ => Self::Reject,
        }
    }
}

/// The position of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ColumnRef {
    /// The column group.
    pub group: u16,
    /// The first word in the group's part of a row. A cell of bytes is a word with the length, then the bytes, eight to
    /// a word, little endian, padded with zeros.
    pub word: u16,
    /// The maximum length of a text or bytes column; 0 for the others.
    pub bytes_max: u32,
    /// The word (in the group's part) and bit that are set while the column is NULL.
    pub null_bit: Option<(u16, u8)>,
}

/// Why [`super::Table::extend`] failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExtendError {
    /// The column exists with another type.
    TypeChanged {
        /// The column.
        column: String,
        /// Its current type, with `?` if nullable.
        from: String,
        /// The requested type.
        to: String,
    },
    /// [`super::GROUPS_MAX`] is reached: copy the rows to a new table.
    TooManyGroups,
    /// The row would be wider than [`ROW_BYTES_MAX`].
    RowTooLong {
        /// The resulting length in bytes.
        bytes: u64,
    },
}

impl ExtendError {
    pub(super) fn changed(old: &ColumnSpec, new: &ColumnSpec) -> Self {
        let show = |c: &ColumnSpec| format!("{}{}", c.ty, if c.nullable { "?" } else { "" });
        Self::TypeChanged { column: old.name.clone(), from: show(old), to: show(new) }
    }
}

impl fmt::Display for ExtendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TypeChanged { column, from, to } => {
                write!(f, "column {column} is {from}; its type cannot change to {to} while rows exist")
            }
            Self::TooManyGroups => {
                write!(f, "columns were added {} times; the table must be rebuilt", super::GROUPS_MAX - 1)
            }
            Self::RowTooLong { bytes } => write!(f, "a row of {bytes} bytes is over {ROW_BYTES_MAX}"),
        }
    }
}

impl core::error::Error for ExtendError {}

/// Builds the canonical bytes of a key of several columns: integers, booleans and floats as 8 bytes, little endian;
/// text and bytes after their length in 4 bytes, little endian.
#[derive(Clone, Debug, Default)]
pub struct KeyBuilder {
    bytes: Vec<u8>,
}

impl KeyBuilder {
    /// Starts a new key; it keeps its memory.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// Adds the next part, held as a word.
    pub fn int(&mut self, word: u64) -> &mut Self {
        self.bytes.extend_from_slice(&word.to_le_bytes());
        self
    }

    /// Adds the next part, held as bytes.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The key so far.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// The bit of a row's first word that is set while the row lives. The low 32 bits hold the tag (the low half of the
/// key's hash); in a free row they hold the next free row plus one.
pub(super) const LIVE: u64 = 1 << 63;

/// The words in front of a row's columns: state, time of the last write, then as declared: time of the last touch, time
/// of insertion.
#[derive(Clone, Copy, Debug)]
pub(super) struct Header {
    /// Whether every write stores its time, so that the table can order rows by it.
    pub(super) by_write: bool,
    /// The word with the time of the last touch.
    pub(super) touched: Option<usize>,
    /// The word with the time of insertion.
    pub(super) inserted: Option<usize>,
    /// Whether age counts from the last touch.
    age_by_touch: bool,
    /// The word from which a row's age counts for `ttl`.
    pub(super) age_at: usize,
    pub(super) words: usize,
}

/// The word with the time of the last write.
pub(super) const WRITTEN_AT: usize = 1;

impl Header {
    /// Chooses the header words of a row from the time limits and the eviction of a table.
    pub(super) fn of(spec: &TableSpec) -> Self {
        let orders = orders(spec);
        let (by_write, by_touch) = (orders & BY_WRITE != 0, orders & BY_TOUCH != 0);
        let touched = by_touch.then_some(WRITTEN_AT + 1);
        let inserted = spec.ttl_on_insert.map(|_| touched.unwrap_or(WRITTEN_AT) + 1);
        let age_by_touch = by_touch && spec.ttl_on_access;
        let age_at = touched.filter(|_| age_by_touch).unwrap_or(WRITTEN_AT);
        let words = inserted.or(touched).unwrap_or(WRITTEN_AT) + 1;
        assert!(age_at < words && words <= WRITTEN_AT + 3, "state, and at most three times");
        Self { by_write, touched, inserted, age_by_touch, age_at, words }
    }

    pub(super) fn age_by_touch(self) -> bool {
        self.age_by_touch
    }

    /// Whether rows have the words that these limits need, and their age counts from the right one.
    pub(super) fn serves(self, limits: &TableSpec) -> bool {
        let wanted = orders(limits);
        (wanted & BY_WRITE == 0 || self.by_write)
            && (wanted & BY_TOUCH == 0 || self.touched.is_some())
            && (limits.ttl_on_insert.is_none() || self.inserted.is_some())
            && (limits.ttl.is_none() || self.age_by_touch == limits.ttl_on_access)
    }
}

/// The order of the last writes, among [`orders`].
const BY_WRITE: u8 = 1;
/// The order of the last touches.
const BY_TOUCH: u8 = 2;

/// The orders that reads and writes must maintain for this declaration, by bits.
pub(super) fn orders(spec: &TableSpec) -> u8 {
    let (ages, by_touch) = (spec.ttl.is_some(), spec.ttl_on_access);
    let by_write = spec.evict == Evict::Oldest || ages && !by_touch;
    let by_touch = spec.evict == Evict::Lru || ages && by_touch;
    (u8::from(by_write) * BY_WRITE) | (u8::from(by_touch) * BY_TOUCH)
}

/// The representation of keys.
#[derive(Debug)]
pub(super) enum KeyShape {
    Int { word: u16 },
    Bytes { word: u16, bytes_max: u32 },
    Parts(Box<[ColumnRef]>),
}

/// A column with its position.
#[derive(Debug)]
pub(super) struct Column {
    pub(super) spec: ColumnSpec,
    pub(super) at: ColumnRef,
}

/// The columns of one group, and the words of a new row.
#[derive(Debug)]
pub(super) struct Layout {
    columns: Box<[Column]>,
    template: Box<[u64]>,
}

impl Layout {
    pub(super) fn words(&self) -> usize {
        self.template.len()
    }

    pub(super) fn template(&self) -> &[u64] {
        &self.template
    }

    pub(super) fn columns(&self) -> &[Column] {
        &self.columns
    }

    pub(super) fn find(&self, name: &str) -> Option<&Column> {
        self.columns.iter().find(|c| c.spec.name == name)
    }
}

/// The first group: header, key, null bits, values.
pub(super) fn base_group(spec: &TableSpec, header: Header) -> (KeyShape, Layout) {
    assert!(!spec.key.is_empty(), "table {} has no key", spec.name);
    assert!(spec.row_bytes() <= ROW_BYTES_MAX as u64, "a row of table {} is too long", spec.name);
    let layout = lay_out_group(&spec.key, &spec.columns, 0, header.words);
    let keys: Box<[ColumnRef]> = layout.columns[..spec.key.len()].iter().map(|c| c.at).collect();
    let key = match *keys {
        [only] if only.bytes_max == 0 => KeyShape::Int { word: only.word },
        [only] => KeyShape::Bytes { word: only.word, bytes_max: only.bytes_max },
        _ => KeyShape::Parts(keys),
    };
    (key, layout)
}

/// Computes [`super::Table::fingerprint`].
pub(super) fn fingerprint(
    spec: &TableSpec,
    key: HashKey,
    base: &Layout,
    header: Header,
    geometry: Geometry,
) -> u64 {
    let ages = [header.by_write, header.age_by_touch, header.inserted.is_some()];
    let ages = ages.into_iter().rev().fold(0, |bits, bit| bits << 1 | u64::from(bit));
    let mut hash = hash::hash_word(spec.key.len() as u64 | u64::from(spec.shared) << 32 | ages << 33);
    hash = key.words().into_iter().fold(hash, hash::mix);
    hash = hash::mix(hash, geometry.stripes() as u64);
    hash = hash::mix(hash, u64::from(geometry.segment_words()) << 32 | u64::from(geometry.local_bits()));
    for Column { spec, at } in &base.columns {
        let (null_word, null_bit) =
            at.null_bit.map_or((0, 0), |(word, bit)| (u64::from(word) + 1, u64::from(bit)));
        let place = u64::from(at.word) | null_word << 16 | null_bit << 40;
        hash = hash::mix(hash, hash::hash_bytes(spec.name.as_bytes()));
        hash = hash::mix(hash, hash::hash_bytes(spec.ty.to_string().as_bytes()));
        hash = hash::mix(hash, place);
    }
    hash
}

/// A group of columns added to rows that have `words_before` words.
pub(super) fn added_group(
    columns: &[ColumnSpec],
    group: usize,
    words_before: usize,
) -> Result<Layout, ExtendError> {
    let words = columns.iter().map(|c| cell_words(c.ty)).sum::<usize>() + null_words(columns);
    let bytes = (words_before + words) as u64 * 8;
    if bytes > ROW_BYTES_MAX as u64 {
        return Err(ExtendError::RowTooLong { bytes });
    }
    Ok(lay_out_group(&[], columns, group as u16, 0))
}

/// Assigns the words and NULL bits of a group's columns, behind `header_words` words.
fn lay_out_group(key: &[ColumnSpec], values: &[ColumnSpec], group: u16, header_words: usize) -> Layout {
    let mut template = vec![0; header_words];
    let mut columns = Vec::with_capacity(key.len() + values.len());
    for spec in key {
        let at =
            ColumnRef { group, word: template.len() as u16, bytes_max: bytes_max(spec.ty), null_bit: None };
        template.resize(template.len() + cell_words(spec.ty), 0);
        columns.push(Column { spec: spec.clone(), at });
    }
    let nulls = template.len();
    template.resize(nulls + null_words(values), 0);
    let mut n_nullable = 0;
    for spec in values {
        let null_bit = spec.nullable.then(|| {
            n_nullable += 1;
            ((nulls + (n_nullable - 1) / 64) as u16, ((n_nullable - 1) % 64) as u8)
        });
        let at = ColumnRef { group, word: template.len() as u16, bytes_max: bytes_max(spec.ty), null_bit };
        template.extend(default_cell(spec));
        if let (Some((word, bit)), Value::Null) = (null_bit, &spec.default) {
            template[word as usize] |= 1 << bit;
        }
        columns.push(Column { spec: spec.clone(), at });
    }
    assert!(template.len() <= ROW_BYTES_MAX / 8, "the caller limits the words of a row");
    Layout { columns: columns.into(), template: template.into() }
}

/// The words of a column's default value.
fn default_cell(spec: &ColumnSpec) -> Vec<u64> {
    let mut cell = vec![0; cell_words(spec.ty)];
    match &spec.default {
        Value::Null => {}
        // The compiler refuses a default that is too long; here it is truncated.
        Value::Bytes(bytes) => {
            let bytes = &bytes[..bytes.len().min(bytes_max(spec.ty) as usize)];
            cell[0] = bytes.len() as u64;
            for (word, chunk) in cell[1..].iter_mut().zip(bytes.chunks(8)) {
                *word = partial_word(chunk);
            }
        }
        number => cell[0] = number.word(),
    }
    cell
}

fn null_words(columns: &[ColumnSpec]) -> usize {
    columns.iter().filter(|c| c.nullable).count().div_ceil(64)
}

/// The maximum length of a column of this type in bytes; 0 if it is a word.
fn bytes_max(ty: Type) -> u32 {
    match ty.repr() {
        Repr::Bytes => ty.bytes_max().unwrap_or(BYTES_MAX_DEFAULT),
        _ => 0,
    }
}

/// The number of words of a column of this type.
fn cell_words(ty: Type) -> usize {
    match ty.repr() {
        Repr::Bytes => 1 + (bytes_max(ty) as usize).div_ceil(8),
        _ => 1,
    }
}

/// Up to eight bytes as a little-endian word, padded with zeros.
#[inline(always)]
pub(super) fn partial_word(bytes: &[u8]) -> u64 {
    let quad = |at: usize| {
        u64::from(u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has 4 bytes")))
    };
    match bytes.len() {
        0 => 0,
        n @ 1..4 => {
            u64::from(bytes[0])
                | u64::from(bytes[n / 2]) << (n / 2 * 8)
                | u64::from(bytes[n - 1]) << ((n - 1) * 8)
        }
        n @ 4..8 => quad(0) | quad(n - 4) << ((n - 4) * 8),
        _ => quad(0) | quad(4) << 32,
    }
}

/// The length of a cell of bytes. While a writer changes the cell, its length word may exceed the cell.
#[inline(always)]
pub(super) fn cell_len(cell: &[AtomicU64]) -> usize {
    (cell[0].load(Relaxed) as usize).min((cell.len() - 1) * 8)
}

/// Whether a cell holds these bytes.
#[inline(always)]
pub(super) fn cell_eq(cell: &[AtomicU64], bytes: &[u8]) -> bool {
    let Some((len, words)) = cell.split_first() else { return false };
    if len.load(Relaxed) != bytes.len() as u64 {
        return false;
    }
    let Some(tail) = bytes.last_chunk::<8>() else {
        return bytes.is_empty()
            || words.first().is_some_and(|word| word.load(Relaxed) == partial_word(bytes));
    };
    // The last word, of one to eight bytes, is cut from the last eight bytes: no branch on their number.
    let n_before = (bytes.len() - 1) / 8;
    let tail = u64::from_le_bytes(*tail) >> ((n_before * 8 + 8 - bytes.len()) * 8);
    let Some((before, [last, ..])) = words.split_at_checked(n_before) else { return false };
    let chunks = bytes.as_chunks::<8>().0;
    last.load(Relaxed) == tail
        && before.iter().zip(chunks).all(|(word, chunk)| word.load(Relaxed) == u64::from_le_bytes(*chunk))
}

/// A key to search or insert, with the position of its column.
///
/// A trait instead of a closure: closures are not always inlined, and here a call costs as much as the look-up.
pub(super) trait Key: Copy {
    /// Whether the row has this key.
    fn is_of(self, row: RowLocation<'_>) -> bool;

    /// Writes the key, which fits, to the row.
    fn write_to(self, row: &[AtomicU64]);
}

/// A key that is a word.
#[derive(Clone, Copy)]
pub(super) struct IntKey {
    pub(super) at: u16,
    pub(super) key: u64,
}

impl Key for IntKey {
    #[inline(always)]
    fn is_of(self, row: RowLocation<'_>) -> bool {
        row.word(self.at as usize) == Some(self.key)
    }

    fn write_to(self, row: &[AtomicU64]) {
        row[self.at as usize].store(self.key, Relaxed);
    }
}

/// A key of 1 to [`hash::SHORT_BYTES_MAX`] bytes, read once for its hash and for comparisons.
#[derive(Clone, Copy)]
pub(super) struct ShortKey<'a> {
    at: u16,
    bytes: &'a [u8],
    words: [u64; 2],
}

impl<'a> ShortKey<'a> {
    #[inline(always)]
    pub(super) fn new(at: u16, bytes: &'a [u8]) -> Option<Self> {
        let is_short = (1..=hash::SHORT_BYTES_MAX).contains(&bytes.len());
        is_short.then(|| Self { at, bytes, words: hash::short_words(bytes) })
    }

    #[inline(always)]
    pub(super) fn hash(self, key: HashKey) -> u64 {
        key.hash_short(self.words, self.bytes.len())
    }
}

impl Key for ShortKey<'_> {
    #[inline(always)]
    fn is_of(self, row: RowLocation<'_>) -> bool {
        let at = self.at as usize;
        let (Some(len), Some(first)) = (row.word(at), row.word(at + 1)) else { return false };
        // The words behind the bytes may be stale, so they are compared only if the key reaches them.
        let differs = (len ^ self.bytes.len() as u64) | (first ^ self.words[0]);
        differs == 0 && (self.bytes.len() <= 8 || row.word(at + 2) == Some(self.words[1]))
    }

    fn write_to(self, row: &[AtomicU64]) {
        cell_set(&row[self.at as usize..], self.bytes);
    }
}

/// A key of bytes of any length.
#[derive(Clone, Copy)]
pub(super) struct BytesKey<'a> {
    pub(super) at: u16,
    pub(super) bytes: &'a [u8],
}

impl Key for BytesKey<'_> {
    fn is_of(self, row: RowLocation<'_>) -> bool {
        cell_eq(row.from(self.at as usize), self.bytes)
    }

    fn write_to(self, row: &[AtomicU64]) {
        cell_set(&row[self.at as usize..], self.bytes);
    }
}

/// A key of several columns, as [`KeyBuilder`] makes it.
#[derive(Clone, Copy)]
pub(super) struct PartsKey<'a> {
    pub(super) parts: &'a [ColumnRef],
    pub(super) bytes: &'a [u8],
}

impl Key for PartsKey<'_> {
    fn is_of(self, row: RowLocation<'_>) -> bool {
        parts_eq(self.parts, row.from(0), self.bytes)
    }

    fn write_to(self, row: &[AtomicU64]) {
        parts_set(self.parts, row, self.bytes);
    }
}

/// Writes bytes to a cell; they must fit.
pub(super) fn cell_set(cell: &[AtomicU64], bytes: &[u8]) {
    cell[0].store(bytes.len() as u64, Relaxed);
    for (word, chunk) in cell[1..].iter().zip(bytes.chunks(8)) {
        word.store(partial_word(chunk), Relaxed);
    }
}

/// Counters in a word of a cell.
const COUNTERS_A_WORD: usize = 8 / COUNTER_BYTES;

/// Increments a counter for which the cell has space.
#[inline]
pub(super) fn cell_count(cell: &[AtomicU64], bin: usize) {
    let (len, end) = (cell_len(cell), (bin + 1) * COUNTER_BYTES);
    if len < end {
        // The words behind the bytes may be stale.
        cell[1 + len.div_ceil(8)..=end.div_ceil(8)].iter().for_each(|word| word.store(0, Relaxed));
        cell[0].store(end as u64, Relaxed);
    }
    let (word, shift) = (&cell[1 + bin / COUNTERS_A_WORD], bin % COUNTERS_A_WORD * 8 * COUNTER_BYTES);
    let old = word.load(Relaxed);
    if (old >> shift) as u16 != u16::MAX {
        word.store(old + (1 << shift), Relaxed);
    }
}

/// Appends the bytes of a cell to `out`.
pub(super) fn cell_into(cell: &[AtomicU64], out: &mut Vec<u8>) {
    let len = cell_len(cell);
    let end = out.len() + len;
    out.reserve(len.next_multiple_of(8));
    for word in &cell[1..1 + len.div_ceil(8)] {
        out.extend_from_slice(&word.load(Relaxed).to_le_bytes());
    }
    out.truncate(end);
}

/// The parts of a canonical key with their columns; an error if the bytes are not such a key.
fn split_parts<'a>(
    parts: &'a [ColumnRef],
    key: &'a [u8],
) -> impl Iterator<Item = Result<(ColumnRef, &'a [u8]), BadKey>> {
    let mut rest = key;
    let mut left = parts.len();
    parts.iter().map(move |part| {
        let len = match part.bytes_max {
            0 => 8,
            max => {
                let (len, after) = rest.split_first_chunk::<4>().ok_or(BadKey)?;
                rest = after;
                let len = u32::from_le_bytes(*len);
                if len > max {
                    return Err(BadKey);
                }
                len as usize
            }
        };
        let (bytes, after) = rest.split_at_checked(len).ok_or(BadKey)?;
        rest = after;
        left -= 1;
        if left == 0 && !rest.is_empty() {
            return Err(BadKey);
        }
        Ok((*part, bytes))
    })
}

struct BadKey;

pub(super) fn parts_fit(parts: &[ColumnRef], key: &[u8]) -> bool {
    split_parts(parts, key).all(|part| part.is_ok())
}

/// Whether the key columns of a row equal an encoded key of several columns.
fn parts_eq(parts: &[ColumnRef], row: &[AtomicU64], key: &[u8]) -> bool {
    split_parts(parts, key).all(|part| {
        let Ok((at, bytes)) = part else { return false };
        let Some(cell) = row.get(at.word as usize..) else { return false };
        match at.bytes_max {
            0 => cell.first().is_some_and(|word| word.load(Relaxed) == partial_word(bytes)),
            _ => cell_eq(cell, bytes),
        }
    })
}

/// Writes a key for which [`parts_fit`] holds.
fn parts_set(parts: &[ColumnRef], row: &[AtomicU64], key: &[u8]) {
    for (at, bytes) in split_parts(parts, key).flatten() {
        let cell = &row[at.word as usize..];
        match at.bytes_max {
            0 => cell[0].store(partial_word(bytes), Relaxed),
            _ => cell_set(cell, bytes),
        }
    }
}
