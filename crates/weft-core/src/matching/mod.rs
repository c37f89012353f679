//! Tables of rules: of the rows that match a tuple, the one that comes first.
//!
//! A [`MatchSpec`] says how rows are asked: each of its parts holds a value of the tuple against one column of the row
//! or two. What it means is a walk through all rows in order. A [`Matcher`] gives the same row from a
//! [`Classifier`] over the rows of a table, at a cost that hardly depends on how many they
//! are.
//!
//! **The order of rows.** The best `by` first, NULL last; of rows with the same, the one with the least key: column by
//! column, numbers by value, text and bytes byte by byte.
//!
//! **NULL.** As in SQL, a test with NULL on either side is not true. A part with a wildcard holds for all tuples where
//! that column of the row is NULL, whatever the value of the tuple is.

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
use crate::prefetch::FAR_BYTES;
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

/// Parts of a match.
pub const MATCH_PARTS_MAX: usize = 12;
/// Keys that [`Matcher::find_all`] looks for side by side.
const FOUND_AT_ONCE: usize = 64;

/// How the rows of a table are matched. Columns are numbered from 0, those of the key first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchSpec {
    /// The column that orders rows: a number, and no fraction.
    pub by: u16,
    /// The greatest is the best; else the least.
    pub descending: bool,
    /// What must all be true of a row, 1 to [`MATCH_PARTS_MAX`].
    pub parts: Vec<MatchPart>,
}

/// One test of a value of the tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MatchPart {
    /// Against which columns.
    pub test: Test,
    /// `c IS NULL OR`: this column of the test says with NULL that any value will do, NULL as well.
    pub wildcard: Option<u16>,
    /// The type of the value.
    pub ty: Type,
    /// The value may be NULL.
    pub nullable: bool,
}

/// What a value of the tuple is held against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test {
    /// `value = c`, but for fractions.
    Equal(u16),
    /// `value IN c`: an IPADDR and a CIDR. Addresses of 4 bytes are in no network of 16, and the other way round.
    Within(u16),
    /// `low <= value AND value <= high`, for what is held as an integer. At least one side is there.
    Range {
        /// The least.
        low: Option<u16>,
        /// The greatest.
        high: Option<u16>,
    },
    /// `value & mask = bits`, for unsigned integers and I64. With bits beyond the mask no value will do.
    Masked {
        /// Which bits are looked at.
        mask: u16,
        /// What they are.
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
    /// The columns that it looks at.
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
    /// Whether a row can be asked like this at all: the rest is for whoever knows the table.
    pub fn is_sound(&self) -> bool {
        let fits = match self.test {
            Test::Equal(_) => self.ty.repr() != Repr::Float,
            Test::Within(_) => self.ty == Type::IpAddr,
            Test::Range { low, high } => {
                matches!(self.ty.repr(), Repr::Bool | Repr::Int) && (low.is_some() || high.is_some())
            }
            // Bits are those of the word in which a value is held, of which all are looked at.
            Test::Masked { .. } => matches!(self.ty, Type::Uint(_) | Type::Int(64)),
        };
        fits && self.wildcard.is_none_or(|wildcard| self.test.columns().any(|column| column == wildcard))
    }
}

impl MatchSpec {
    /// Whether each part is sound, and all of them fit in a key of the classifier, whatever the rows are.
    pub fn is_sound(&self) -> bool {
        let is_few = (1..=MATCH_PARTS_MAX).contains(&self.parts.len());
        is_few && self.parts.iter().all(MatchPart::is_sound) && self.fits()
    }

    /// Whether the values of all parts fit in a key of the classifier, whatever the rows are.
    pub fn fits(&self) -> bool {
        let fields: Vec<FieldSpec> = self.parts.iter().flat_map(|part| codec::widest(part, "")).collect();
        fields.len() <= FIELDS_MAX && Layout::new(&fields, HashKey::from_seed(0)).is_ok()
    }

    /// The columns that it looks at, that of the order included.
    pub fn columns(&self) -> impl Iterator<Item = u16> {
        self.parts.iter().flat_map(|part| part.test.columns()).chain([self.by])
    }
}

/// The rows of a table as a [`MatchSpec`] asks for them. It does not change when the table does: who changes rows tells
/// a matcher that is [changeable](Matcher::changeable).
#[derive(Clone, Debug)]
pub struct Matcher {
    table: Arc<Table>,
    columns: Vec<Column>,
    codecs: Vec<Codec>,
    classifier: Classifier,
    /// The rows: a rule's id is its place here.
    rows: Vec<MatchedRow>,
    /// None: it takes no changes, and the best row is the first.
    changes: Option<Box<Changes>>,
    jit: JitView,
    is_far: bool,
}

/// A row that a match found, and where it is.
#[derive(Clone, Copy, Debug, Default)]
#[repr(C)]
pub struct MatchedRow {
    /// The row; none where no row matches.
    pub row: Row,
    /// The address of the row's words of the first group; 0 where there is no row.
    pub address: usize,
}

type Column = (ColumnRef, Type);

impl Matcher {
    /// A matcher of the rows that are in the table now. Takes seconds for 10^6 rows.
    ///
    /// # Errors
    /// [`TooManyRows`].
    ///
    /// # Panics
    /// If the spec is not [sound](MatchSpec::is_sound), or names a column that the table does not have.
    pub fn new(spec: &MatchSpec, table: &Arc<Table>) -> Result<Self, TooManyRows> {
        Self::build(spec, table, false)
    }

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
            codec.place(&layout, first);
            first += codec.fields.len();
        }
        let (mut changes, labels) = match is_changeable {
            true => {
                let (changes, labels) = Changes::of(spec, table, &columns, &rows);
                (Some(Box::new(changes)), labels)
            }
            // Rows in order are rules in order.
            false => (None, Vec::new()),
        };
        let mut rules = Vec::with_capacity(rows.len());
        for (id, row) in (0..).zip(&mut rows) {
            let Some(patterns) = change::patterns(&codecs, *row, &cell) else {
                // What no tuple can match is no rule.
                if let Some(changes) = &mut changes {
                    changes.leave_out(table, &columns, *row);
                }
                *row = Row::NONE;
                continue;
            };
            let priority = labels.get(id as usize).map_or(0, |label| u32::MAX - label);
            rules.push(Rule { patterns, priority, id });
        }
        let classifier =
            Classifier::compiled(&fields, rules, hash).expect("fields are made so that the rows fit");
        let rows = rows.into_iter().map(|row| found(table, row)).collect();
        let table = Arc::clone(table);
        let jit = JitView::default();
        let mut matcher = Self { table, columns, codecs, classifier, rows, changes, jit, is_far: false };
        matcher.refresh_jit_view();
        matcher.refresh_is_far();
        Ok(matcher)
    }

    /// The table of the rows.
    #[inline(always)]
    pub fn table(&self) -> &Arc<Table> {
        &self.table
    }

    /// The first row that matches; `key` gives the value of each part. [`Row::NONE`] if none does.
    ///
    /// A value of another kind than its part's is taken for NULL. A part that is not nullable is given none.
    #[inline]
    pub fn find<'k>(&self, key: impl Fn(usize) -> Key<'k>) -> Row {
        let mut words = [0; WORDS_MAX];
        for (at, codec) in self.codecs.iter().enumerate() {
            codec.pack(key(at), &mut words);
        }
        self.find_words(&words).row
    }

    /// The first row that matches the key with these words, of which there are [`Matcher::key_words`] at least.
    #[inline]
    pub fn find_words(&self, words: &[u64]) -> MatchedRow {
        self.classifier.lookup(words).map_or(MatchedRow::default(), |id| self.rows[id as usize])
    }

    /// As [`Matcher::find_words`] for keys of [`Matcher::key_words`] words that lie one behind the other, so that
    /// their reads of memory overlap.
    ///
    /// # Panics
    /// If there are not as many words as `found` needs.
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

    /// Whether a match may read of more than [`FAR_BYTES`], but for the rows.
    #[inline(always)]
    pub fn is_far(&self) -> bool {
        self.is_far
    }

    fn refresh_is_far(&mut self) {
        self.is_far = self.classifier.read_bytes() + size_of_val(&self.rows[..]) > FAR_BYTES;
    }

    /// Sets the bits of one part of a key, which are zero before.
    ///
    /// # Panics
    /// If the match has no such part.
    pub fn pack(&self, part: usize, value: Key<'_>, words: &mut [u64; WORDS_MAX]) {
        self.codecs[part].pack(value, words);
    }

    /// What the rows are compiled to, for people.
    pub fn describe(&self) -> Description {
        self.classifier.describe()
    }
}

/// A row with its address.
fn found(table: &Table, row: Row) -> MatchedRow {
    let address = if row.is_none() { 0 } else { table.row_address(row, 0) };
    MatchedRow { row, address }
}

/// All rows, the best first.
fn sorted(spec: &MatchSpec, table: &Table) -> Vec<Row> {
    let columns: Vec<(ColumnRef, Type)> = table.columns().map(|(column, at)| (at, column.ty)).collect();
    let n_keys = table.spec().key.len();
    let (by, by_ty) = columns[usize::from(spec.by)];
    let mut rows: Vec<(u64, Row)> = Vec::new();
    let mut cursor = 0;
    while let Some((row, next)) = table.scan(cursor, Time(0)) {
        // NULL shares its rank with the worst of all numbers, and comes behind it below.
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
