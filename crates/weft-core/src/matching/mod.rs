//! Rule tables: finds the first row of a table that matches a tuple.
//!
//! A [`MatchSpec`] declares the match: each of its parts tests a value of the tuple against one or two columns of the
//! row. By definition, the result is that of a walk through all rows in order. A [`Matcher`] finds the same row with a
//! [`Classifier`] over the rows, at a cost that hardly depends on their number.
//!
//! **The order of rows.** The best `by` column first, NULL last. Among equals, the least key first: column by column,
//! numbers by value, text and bytes bytewise.
//!
//! **NULL.** As in SQL, a test with NULL on either side is not true. A part with a wildcard holds for all tuples if
//! that column of the row is NULL, even for a NULL value of the tuple.

mod change;
mod codec;
pub mod jit_layout;
mod order;
#[cfg(test)]
mod tests;

use crate::classify::{
    Classifier, Description, FIELDS_MAX, FieldSpec, Layout, NOTHING, RULES_MAX, Rule, WORDS_MAX,
};
use crate::hash::HashKey;
use crate::prefetch::CORE_CACHE_BYTES;
use crate::table::{ColumnRef, Row, Table};
use crate::time::Time;
use crate::types::{Repr, Type};
use change::Changes;
pub use change::NeedsNewMatcher;
use codec::{Cell, Codec};
use core::cmp::Ordering;
use core::fmt;
use jit_layout::JitView;
use std::sync::Arc;

/// Maximum number of parts of a match.
pub const MATCH_PARTS_MAX: usize = 12;
/// Keys per batch in [`Matcher::find_all`].
const FOUND_AT_ONCE: usize = 64;
const _: () = assert!(MATCH_PARTS_MAX <= FIELDS_MAX, "each part has a field or more");

/// The declaration of a match. Columns are numbered from 0, key columns first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchSpec {
    /// The column that orders rows: a number, not a float.
    pub by: u16,
    /// Whether the greatest value is the best; otherwise the least.
    pub descending: bool,
    /// The parts, all of which must hold: 1 to [`MATCH_PARTS_MAX`].
    pub parts: Vec<MatchPart>,
}

/// A test of one value of the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchPart {
    /// The test and its columns.
    pub test: Test,
    /// `c IS NULL OR`: if this column of the test is NULL, the part holds for any value, including NULL.
    pub wildcard: Option<u16>,
    /// The type of the value.
    pub ty: Type,
    /// The value may be NULL.
    pub nullable: bool,
}

/// The test of a tuple value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// `value = c`, except for floats.
    Equal(u16),
    /// `value IN c`: an IPADDR and a CIDR. Addresses of 4 bytes are in no network of 16 bytes, and vice versa.
    Within(u16),
    /// `low <= value AND value <= high`, for types held as integers. At least one bound is present.
    Range {
        /// The lower bound.
        low: Option<u16>,
        /// The upper bound.
        high: Option<u16>,
    },
    /// `value & mask = bits`, for unsigned integers and I64. With bits outside the mask, no value matches.
    Masked {
        /// The mask.
        mask: u16,
        /// The expected bits.
        bits: u16,
    },
}

/// A value of the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Key<'a> {
    /// NULL.
    Null,
    /// A number, a BOOL, ...
    Word(u64),
    /// Text, an address, ...
    Bytes(&'a [u8]),
}

/// More rows than a [`Matcher`] takes: one less than [`RULES_MAX`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooManyRows;

impl fmt::Display for TooManyRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a table that is matched has at most {} rows", RULES_MAX - 1)
    }
}

impl core::error::Error for TooManyRows {}

impl Test {
    /// The columns that it reads.
    pub fn columns(self) -> impl Iterator<Item = u16> {
        let (first, second) = match self {
            Self::Equal(column) | Self::Within(column) => (Some(column), None),
            Self::Range { low, high } => (low, high),
            Self::Masked { mask, bits } => (Some(mask), Some(bits)),
        };
        first.into_iter().chain(second)
    }
}

impl MatchPart {
    /// Whether such a test is possible at all. The caller who knows the table checks the rest.
    pub fn is_sound(&self) -> bool {
        let fits = match self.test {
            Test::Equal(_) => self.ty.repr() != Repr::Float,
            Test::Within(_) => self.ty == Type::IpAddr,
            Test::Range { low, high } => {
                matches!(self.ty.repr(), Repr::Bool | Repr::Int) && (low.is_some() || high.is_some())
            }
            // The mask applies to the whole word that holds a value.
            Test::Masked { .. } => matches!(self.ty, Type::Uint(_) | Type::Int(64)),
        };
        fits && self.wildcard.is_none_or(|wildcard| self.test.columns().any(|column| column == wildcard))
    }
}

impl MatchSpec {
    /// Whether each part is sound, and all parts fit in a key of the classifier for any rows.
    pub fn is_sound(&self) -> bool {
        let is_few = (1..=MATCH_PARTS_MAX).contains(&self.parts.len());
        is_few && self.parts.iter().all(MatchPart::is_sound) && self.fits()
    }

    /// Whether the values of all parts fit in a key of the classifier for any rows.
    pub fn fits(&self) -> bool {
        let fields: Vec<FieldSpec> = self.parts.iter().flat_map(|part| codec::widest(part, "")).collect();
        fields.len() <= FIELDS_MAX && Layout::new(&fields, HashKey::from_seed(0)).is_ok()
    }

    /// The columns that it reads, the ordering column included.
    pub fn columns(&self) -> impl Iterator<Item = u16> {
        self.parts.iter().flat_map(|part| part.test.columns()).chain([self.by])
    }
}

/// A compiled match over the rows of a table. It does not follow changes of the table: the caller reports them to a
/// [changeable](Matcher::changeable) matcher.
#[derive(Clone, Debug)]
pub struct Matcher {
    table: Arc<Table>,
    columns: Vec<Column>,
    codecs: Vec<Codec>,
    classifier: Classifier,
    /// The rows; a rule's id is an index.
    rows: Vec<MatchedRow>,
    /// None if the matcher takes no changes; the best row is then the first.
    changes: Option<Box<Changes>>,
    jit: JitView,
    exceeds_cache: bool,
}

/// The result of a match: a row and its address.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MatchedRow {
    /// The row; [`Row::NONE`] if no row matches.
    pub row: Row,
    /// The address of the row's words of the first group; 0 if no row matches.
    pub address: usize,
}

type Column = (ColumnRef, Type);

impl Matcher {
    /// A matcher of the current rows of a table. It takes seconds for 10^6 rows.
    ///
    /// # Errors
    /// [`TooManyRows`].
    ///
    /// # Panics
    /// If the spec is not [sound](MatchSpec::is_sound), or names a column that the table does not have.
    pub fn new(spec: &MatchSpec, table: &Arc<Table>) -> Result<Self, TooManyRows> {
        Self::build(spec, table, false)
    }

    /// Builds a matcher over the rows of a table; `is_changeable` leaves space for changes. An error if there are too
    /// many rows.
    fn build(spec: &MatchSpec, table: &Arc<Table>, is_changeable: bool) -> Result<Self, TooManyRows> {
        let mut rows = sorted(spec, table);
        if rows.len() >= RULES_MAX as usize {
            return Err(TooManyRows);
        }
        let hash = table.hash_key();
        let names: Vec<&str> = table.columns().map(|(column, _)| column.name.as_str()).collect();
        let columns: Vec<Column> = table.columns().map(|(column, at)| (at, column.ty)).collect();
        let cell = |row: Row, column: u16| cell(table, row, columns[usize::from(column)]);
        let codec = |part: &MatchPart| {
            let name = part.test.columns().next().map_or("", |column| names[usize::from(column)]);
            Codec::new(part, name, &rows, &cell, hash)
        };
        let mut codecs: Vec<Codec> = spec.parts.iter().map(codec).collect();
        let fields: Vec<FieldSpec> = codecs.iter().flat_map(|codec| codec.fields.iter().cloned()).collect();
        let layout = Layout::new(&fields, hash).expect("narrower fields fit where the widest do");
        let mut first = 0;
        for codec in &mut codecs {
            codec.set_places(&layout, first);
            first += codec.fields.len();
        }
        let (mut changes, labels) = match is_changeable {
            true => {
                let (changes, labels) = Changes::of(spec, table, &columns, &rows);
                (Some(Box::new(changes)), labels)
            }
            // Rows are sorted, so their ids order the rules.
            false => (None, Vec::new()),
        };
        let mut rules = Vec::with_capacity(rows.len());
        for (id, row) in (0..).zip(&mut rows) {
            let Some(patterns) = change::patterns(&codecs, *row, &cell) else {
                // A row that no tuple can match has no rule.
                if let Some(changes) = &mut changes {
                    changes.free_id(table, &columns, *row);
                }
                *row = Row::NONE;
                continue;
            };
            let priority = labels.get(id as usize).map_or(0, |label| u32::MAX - label);
            rules.push(Rule { patterns, priority, id });
        }
        let classifier = Classifier::compiled(&fields, rules, hash).expect("the fields fit the rows");
        let rows = rows.into_iter().map(|row| found(table, row)).collect();
        let table = Arc::clone(table);
        let jit = JitView::default();
        let mut matcher =
            Self { table, columns, codecs, classifier, rows, changes, jit, exceeds_cache: false };
        matcher.refresh_jit_view();
        matcher.refresh_exceeds_cache();
        Ok(matcher)
    }

    /// The table of the rows.
    #[inline(always)]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The first row that matches; `key` returns the value of each part. [`Row::NONE`] if no row matches.
    ///
    /// A value of another kind than its part counts as NULL. The caller never passes NULL for a part that is not
    /// nullable.
    #[inline]
    pub fn find<'k>(&self, key: impl Fn(usize) -> Key<'k>) -> Row {
        let mut words = [0; WORDS_MAX];
        for (at, codec) in self.codecs.iter().enumerate() {
            codec.pack(key(at), &mut words);
        }
        self.find_words(&words).row
    }

    /// The first row that matches the packed key with at least [`Matcher::key_words`] words.
    #[inline]
    pub fn find_words(&self, words: &[u64]) -> MatchedRow {
        self.classifier.lookup(words).map_or(MatchedRow::default(), |id| self.rows[id as usize])
    }

    /// As [`Matcher::find_words`] for adjacent keys of [`Matcher::key_words`] words each; their memory reads overlap.
    ///
    /// # Panics
    /// If there are fewer words than `found` needs.
    pub fn find_all(&self, keys: &[u64], found: &mut [MatchedRow]) {
        let mut ids = [NOTHING; FOUND_AT_ONCE];
        let n_words = self.key_words();
        for (keys, found) in keys.chunks(FOUND_AT_ONCE * n_words).zip(found.chunks_mut(FOUND_AT_ONCE)) {
            let ids = &mut ids[..found.len()];
            self.classifier.lookup_batch(keys, ids);
            for (found, id) in found.iter_mut().zip(ids) {
                *found = self.rows.get(*id as usize).copied().unwrap_or_default();
            }
        }
    }

    /// Whether a match may read from more than [`CORE_CACHE_BYTES`], without the rows.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        self.exceeds_cache
    }

    /// Computes again whether look-ups may read more than a core's cache holds.
    fn refresh_exceeds_cache(&mut self) {
        self.exceeds_cache = self.classifier.read_bytes() + size_of_val(&self.rows[..]) > CORE_CACHE_BYTES;
    }

    /// Packs the value of one part into a key whose bits for it are zero.
    ///
    /// # Panics
    /// If the match has no such part.
    pub fn pack(&self, part: usize, value: Key<'_>, words: &mut [u64; WORDS_MAX]) {
        self.codecs[part].pack(value, words);
    }

    /// A description of the compiled structure.
    pub fn describe(&self) -> Description {
        self.classifier.describe()
    }
}

/// Pairs a row with its address.
fn found(table: &Table, row: Row) -> MatchedRow {
    let address = if row.is_none() { 0 } else { table.row_address(row, 0) };
    MatchedRow { row, address }
}

/// Lists all rows, best first.
fn sorted(spec: &MatchSpec, table: &Table) -> Vec<Row> {
    let columns: Vec<(ColumnRef, Type)> = table.columns().map(|(column, at)| (at, column.ty)).collect();
    let n_keys = table.spec().key.len();
    let (by, by_ty) = columns[usize::from(spec.by)];
    let mut rows: Vec<(u64, Row)> = Vec::new();
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, Time(0)) {
        // NULL shares its rank with the worst number; the tie is broken below.
        let rank = match cell(table, row, (by, by_ty)) {
            Cell::Word(word) if spec.descending => !codec::ordered(word, by_ty),
            Cell::Word(word) => codec::ordered(word, by_ty),
            Cell::Null | Cell::Bytes(_) => u64::MAX,
        };
        rows.push((rank, row));
        cursor = next;
    }
    let is_null = |row: Row| table.is_null(row, by);
    let keys = |a: Row, b: Row| {
        let mut orders = columns[..n_keys].iter().map(|&(at, ty)| {
            let [a, b] = [a, b].map(|row| cell(table, row, (at, ty)));
            match (a, b) {
                (Cell::Word(a), Cell::Word(b)) => codec::ordered(a, ty).cmp(&codec::ordered(b, ty)),
                (Cell::Bytes(a), Cell::Bytes(b)) => a.cmp(&b),
                _ => Ordering::Equal,
            }
        });
        orders.find(|order| order.is_ne()).unwrap_or(Ordering::Equal)
    };
    rows.sort_by(|&(a_rank, a), &(b_rank, b)| {
        a_rank.cmp(&b_rank).then_with(|| is_null(a).cmp(&is_null(b))).then_with(|| keys(a, b))
    });
    rows.into_iter().map(|(_, row)| row).collect()
}

/// Reads a column of a row.
fn cell(table: &Table, row: Row, (at, ty): Column) -> Cell {
    if table.is_null(row, at) {
        return Cell::Null;
    }
    if ty.repr() != Repr::Bytes {
        return Cell::Word(table.word(row, at));
    }
    let mut bytes = Vec::new();
    table.bytes_into(row, at, &mut bytes);
    Cell::Bytes(bytes)
}
