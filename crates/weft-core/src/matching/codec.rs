//! The encoding of one part of a match: how its values become bits of a key, and which patterns a row requires.
//!
//! A part has few more bits than the rows need: all values above those that the rows mention share one code. Some bits
//! are spare, so that later rows with greater values do not change the key. A table of IPv4 networks has no bits for
//! IPv6.

use super::{Key, MatchPart, Test};
use crate::classify::{FieldSpec, KeyBits, Layout, Pattern, RULES_MAX, WORDS_MAX};
use crate::hash::HashKey;
use crate::table::Row;
use crate::types::{Repr, Type};

/// The value of a column in a row.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Cell {
    Null,
    Word(u64),
    Bytes(Vec<u8>),
}

/// Returns the value of a column in a row.
pub(super) type Cells<'a> = &'a dyn Fn(Row, u16) -> Cell;

/// A part with its encoding.
#[derive(Clone, Debug)]
pub(super) struct Codec {
    part: MatchPart,
    /// One field, or two for addresses of both lengths.
    pub(super) fields: Vec<FieldSpec>,
    /// The positions of the fields in the key.
    pub(super) places: [Option<KeyBits>; 3],
    pub(super) kind: Kind,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    /// A number plus `bias`, at most `top`. NULL is the code behind `top`, if the part is nullable.
    Number { bias: u64, top: u64, null: u128 },
    /// The number of a byte string in a list, from 1; 0 for other strings.
    Interned(Box<Interned>),
    /// An address of 4 bytes; one more bit above it marks all other values.
    Short,
    /// An address of 4 or 16 bytes, left-aligned in 128 bits; the second field holds the code of its length,
    /// [`LENGTHS`].
    Long,
}

/// The code of an address length, by bytes; 0 for everything else.
const LENGTHS: [(usize, u128); 2] = [(4, 1), (16, 2)];
const LENGTH_BITS: u8 = 2;
const SHORT_BITS: u8 = 32;
/// The code of a value that is not an address of 4 bytes.
pub(super) const NO_ADDRESS: u64 = 1 << SHORT_BITS;
/// Bits of a number in a list: more than the rows need.
const INTERNED_BITS: u8 = 25;
/// Spare bits of a part, for rows that are added later.
const SPARE_BITS: u8 = 8;
/// Byte strings of removed rows that keep their numbers, beyond one for each row.
const GONE_MAX: u32 = 4096;
/// A part up to this width gets no spare bits beyond it: it is then a single chunk of bit vectors, which also supports
/// ranges.
const WHOLE_BITS: u8 = 16;
const _: () = assert!(1 << INTERNED_BITS > RULES_MAX && INTERNED_BITS < 32, "each rule may name a string");
const _: () = assert!(NO_ADDRESS > u32::MAX as u64, "no IPv4 address has this value");

/// A number mapped so that unsigned order is its order.
pub(super) fn ordered(word: u64, ty: Type) -> u64 {
    if ty.is_signed() { word ^ 1 << 63 } else { word }
}

/// Makes the fields of a part at maximum width.
pub(super) fn widest(part: &MatchPart, name: &str) -> Vec<FieldSpec> {
    match (part.test, part.ty.repr()) {
        (Test::Within(_), _) => long(name),
        (_, Repr::Bytes) => vec![FieldSpec::new(name, INTERNED_BITS)],
        _ => vec![FieldSpec::new(name, type_bits(part.ty) + u8::from(part.nullable))],
    }
}

/// The two fields of an address or network of either family: its value and its length.
fn long(name: &str) -> Vec<FieldSpec> {
    vec![FieldSpec::new(name, 128), FieldSpec::new(format!("{name} length"), LENGTH_BITS)]
}

/// The number of bits of a type's word.
fn type_bits(ty: Type) -> u8 {
    match ty {
        Type::Bool => 1,
        Type::Int(bits) | Type::Uint(bits) => bits,
        _ => 64,
    }
}

fn bits_of(value: u64) -> u8 {
    64 - value.leading_zeros() as u8
}

/// Adds spare bits to a needed width.
fn roomy(needed: u8) -> u8 {
    let roomy = needed + SPARE_BITS;
    if needed <= WHOLE_BITS { roomy.min(WHOLE_BITS) } else { roomy }
}

fn all_ones(bits: u8) -> u64 {
    u64::MAX.checked_shr(64 - u32::from(bits)).unwrap_or(0)
}

impl Codec {
    /// Chooses the encoding for the values of these rows, with spare bits.
    pub(super) fn new(part: &MatchPart, name: &str, rows: &[Row], cell: Cells<'_>, hash: HashKey) -> Self {
        let (kind, fields) = match (part.test, part.ty.repr()) {
            (Test::Within(column), _) => addresses(name, rows, &|row| cell(row, column)),
            (Test::Equal(column), Repr::Bytes) => {
                let interned = Interned::new(rows.iter().map(|&row| cell(row, column)), hash);
                let bits = roomy(bits_of(interned.spans.len() as u64)).min(INTERNED_BITS);
                (Kind::Interned(Box::new(interned)), vec![FieldSpec::new(name, bits)])
            }
            _ => numbers(part, name, rows, cell),
        };
        Self { part: *part, fields, places: [None; 3], kind }
    }

    /// Sets the positions of its fields, starting with field number `first`.
    pub(super) fn set_places(&mut self, layout: &Layout, first: usize) {
        let (low, high) = layout.places(first);
        let second = (self.fields.len() > 1).then(|| layout.places(first + 1).0);
        self.places = [Some(low), high, second];
    }

    /// Computes the patterns of a row for each field; None if no value can match.
    pub(super) fn patterns(&self, row: Row, cell: Cells<'_>) -> Option<Vec<Pattern>> {
        if self.part.wildcard.is_some_and(|column| cell(row, column) == Cell::Null) {
            return Some(vec![Pattern::Any; self.fields.len()]);
        }
        let bound = |column: u16| match cell(row, column) {
            Cell::Word(word) => Some(self.biased(word)),
            Cell::Null | Cell::Bytes(_) => None,
        };
        Some(match self.part.test {
            Test::Equal(column) => match (&self.kind, cell(row, column)) {
                (Kind::Interned(interned), Cell::Bytes(bytes)) => {
                    vec![Pattern::Exact(interned.find(&bytes).into())]
                }
                (_, Cell::Word(word)) => vec![Pattern::Exact(self.biased(word).into())],
                _ => return None,
            },
            Test::Masked { mask, bits } => {
                let (Cell::Word(mask), Cell::Word(bits)) = (cell(row, mask), cell(row, bits)) else {
                    return None;
                };
                let all = all_ones(type_bits(self.part.ty));
                if bits & !(mask & all) != 0 {
                    return None;
                }
                // The mask includes the bit that stands for NULL.
                let null = u128::from(self.part.nullable) << type_bits(self.part.ty);
                vec![Pattern::Mask { value: bits.into(), mask: u128::from(mask & all) | null }]
            }
            Test::Within(column) => {
                let Cell::Bytes(net) = cell(row, column) else { return None };
                self.network(&net)?
            }
            Test::Range { low, high } => {
                let Kind::Number { top, .. } = self.kind else { return None };
                let low = low.map_or(Some(0), bound)?;
                let high = high.map_or(Some(u64::MAX), bound)?;
                let (lo, hi) = (low.into(), high.min(top).into());
                // A lower bound above `top` cannot be: it would have raised `top`.
                if lo > hi || high < low {
                    return None;
                }
                vec![Pattern::Range { lo, hi }]
            }
        })
    }

    /// Whether the encoding fits the values of another row, of `rows` in all. A new byte string gets a number, unless
    /// more strings have numbers than rows can need: strings keep their numbers when their rows are removed.
    pub(super) fn admit(&mut self, row: Row, cell: Cells<'_>, rows: usize) -> bool {
        let Self { part, kind, fields, .. } = self;
        match (kind, part.test) {
            (Kind::Interned(interned), Test::Equal(column)) => match cell(row, column) {
                Cell::Bytes(bytes) => {
                    let most = 2 * rows.min(RULES_MAX as usize) as u32 + GONE_MAX;
                    interned.learn(&bytes, most.min(1 << fields[0].bits))
                }
                Cell::Null | Cell::Word(_) => true,
            },
            (Kind::Short, Test::Within(column)) => is_short(&cell(row, column)),
            (Kind::Number { bias, top, .. }, test) => {
                let no_end = all_ones(type_bits(part.ty));
                let is_below = |column: u16, may_be_open: bool| match cell(row, column) {
                    Cell::Word(word) => {
                        let value = word.wrapping_add(*bias);
                        value < *top || *top >= no_end || (may_be_open && value == no_end)
                    }
                    Cell::Null | Cell::Bytes(_) => true,
                };
                match test {
                    Test::Range { low, high } => {
                        low.is_none_or(|low| is_below(low, false))
                            && high.is_none_or(|high| is_below(high, true))
                    }
                    Test::Equal(column) | Test::Within(column) => is_below(column, false),
                    Test::Masked { .. } => true,
                }
            }
            (Kind::Long | Kind::Short | Kind::Interned(_), _) => true,
        }
    }

    /// The patterns that match the addresses of a network, stored as an address and a prefix length. None if the
    /// network is malformed.
    fn network(&self, net: &[u8]) -> Option<Vec<Pattern>> {
        let (&len, address) = net.split_last()?;
        if usize::from(len) > address.len() * 8 {
            return None;
        }
        let (value, length) = long_address(address);
        let length = length?;
        Some(match self.kind {
            Kind::Short => vec![Pattern::Prefix { value: value >> (128 - SHORT_BITS), len: len + 1 }],
            _ => vec![Pattern::Prefix { value, len }, Pattern::Exact(length)],
        })
    }

    /// Shifts a number so that unsigned order is its order; other words stay as they are.
    fn biased(&self, word: u64) -> u64 {
        match self.kind {
            Kind::Number { bias, .. } => word.wrapping_add(bias),
            _ => word,
        }
    }

    /// Packs a value into a key whose bits for it are zero.
    #[inline(always)]
    pub(super) fn pack(&self, key: Key<'_>, words: &mut [u64; WORDS_MAX]) {
        let [low, high, second] = self.places;
        match (&self.kind, key) {
            (Kind::Number { bias, top, .. }, Key::Word(word)) => {
                set(low, word.wrapping_add(*bias).min(*top), words);
            }
            (Kind::Number { null, .. }, _) => {
                set(low, *null as u64, words);
                set(high, (*null >> 64) as u64, words);
            }
            (Kind::Interned(interned), Key::Bytes(bytes)) => set(low, interned.find(bytes).into(), words),
            (Kind::Interned(_) | Kind::Long, Key::Null | Key::Word(_)) => {}
            (Kind::Short, Key::Bytes(&[a, b, c, d])) => {
                set(low, u32::from_be_bytes([a, b, c, d]).into(), words);
            }
            (Kind::Short, _) => set(low, NO_ADDRESS, words),
            (Kind::Long, Key::Bytes(bytes)) => {
                let (value, length) = long_address(bytes);
                set(low, value as u64, words);
                set(high, (value >> 64) as u64, words);
                set(second, length.unwrap_or(0) as u64, words);
            }
        }
    }
}

/// Sets the bits of `place`, which are zero, to a value; does nothing without a place.
#[inline(always)]
fn set(place: Option<KeyBits>, value: u64, words: &mut [u64; WORDS_MAX]) {
    if let Some(KeyBits { word, shift, .. }) = place {
        words[usize::from(word) % WORDS_MAX] |= value << (shift % 64);
    }
}

/// An address left-aligned in 128 bits, and the code of its length; 0 and None for other values.
#[inline(always)]
fn long_address(bytes: &[u8]) -> (u128, Option<u128>) {
    match *bytes {
        [a, b, c, d] => (u128::from(u32::from_be_bytes([a, b, c, d])) << 96, Some(LENGTHS[0].1)),
        _ => match bytes.try_into() {
            Ok(bytes) => (u128::from_be_bytes(bytes), Some(LENGTHS[1].1)),
            Err(_) => (0, None),
        },
    }
}

/// Chooses the encoding of addresses: of 4 bytes only, if no row has a longer one.
fn addresses(name: &str, rows: &[Row], cell: &dyn Fn(Row) -> Cell) -> (Kind, Vec<FieldSpec>) {
    if rows.iter().all(|row| is_short(&cell(*row))) {
        return (Kind::Short, vec![FieldSpec::new(name, SHORT_BITS + 1)]);
    }
    (Kind::Long, long(name))
}

/// Whether the value is not a network of longer addresses.
fn is_short(cell: &Cell) -> bool {
    !matches!(cell, Cell::Bytes(net) if net.len() != 1 + LENGTHS[0].0)
}

/// A number, with one code above all that the rows mention, if its type has room for it.
fn numbers(part: &MatchPart, name: &str, rows: &[Row], cell: Cells<'_>) -> (Kind, Vec<FieldSpec>) {
    let bits = type_bits(part.ty);
    let is_masked = matches!(part.test, Test::Masked { .. });
    let bias = if part.ty.is_signed() && !is_masked { 1 << (bits - 1) } else { 0 };
    // A bound at the type's maximum is no bound.
    let no_end = all_ones(bits);
    let (named_by, ends_by) = match part.test {
        Test::Range { low, high } => (low, high),
        Test::Equal(column) | Test::Within(column) => (Some(column), None),
        // All bits of the type.
        Test::Masked { .. } => (None, None),
    };
    let mut named: u64 = 0;
    for &row in rows {
        let word = |column: u16| match cell(row, column) {
            Cell::Word(word) => Some(word.wrapping_add(bias)),
            Cell::Null | Cell::Bytes(_) => None,
        };
        let end = ends_by.and_then(word).filter(|&end| end != no_end);
        named = named.max(named_by.and_then(word).unwrap_or(0)).max(end.unwrap_or(0));
    }
    if is_masked {
        named = no_end;
    }
    let needed = named.checked_add(1).map_or(64, bits_of);
    let for_null = u8::from(part.nullable);
    let top_bits = (roomy(needed + for_null) - for_null).min(bits.max(bits_of(named)));
    let fields = vec![FieldSpec::new(name, top_bits + u8::from(part.nullable))];
    let top = all_ones(top_bits);
    (Kind::Number { bias, top, null: u128::from(top) + u128::from(part.nullable) }, fields)
}

/// A set of byte strings, numbered from 1.
#[derive(Clone, Debug)]
pub(super) struct Interned {
    bytes: Vec<u8>,
    /// The start and length of each string.
    spans: Vec<(u32, u32)>,
    /// A hash table of numbers; 0 is free. Its length is a power of two, and more than half of it is free.
    slots: Vec<u32>,
    /// The secret that places strings in it.
    hash: HashKey,
}

impl Interned {
    /// Interns the distinct byte strings of these cells, in sorted order.
    fn new(cells: impl Iterator<Item = Cell>, hash: HashKey) -> Self {
        let mut all: Vec<Vec<u8>> = cells
            .filter_map(|cell| match cell {
                Cell::Bytes(bytes) => Some(bytes),
                Cell::Null | Cell::Word(_) => None,
            })
            .collect();
        all.sort_unstable();
        all.dedup();
        let n_slots = (2 * all.len() + 1).next_power_of_two();
        let mut interned = Self { bytes: Vec::new(), spans: Vec::new(), slots: vec![0; n_slots], hash };
        all.iter().for_each(|bytes| interned.add(bytes));
        interned
    }

    /// Gives a string a number below `end`, if it has none; false if none is left.
    fn learn(&mut self, bytes: &[u8], end: u32) -> bool {
        if self.find(bytes) != 0 {
            return true;
        }
        // Offsets have 32 bits, so a list of 2^24 strings allows 256 bytes each.
        let is_full =
            self.spans.len() as u32 + 1 >= end || self.bytes.len() + bytes.len() > u32::MAX as usize;
        if is_full {
            return false;
        }
        if 2 * (self.spans.len() + 1) >= self.slots.len() {
            self.slots = vec![0; 2 * self.slots.len()];
            for number in 1..=self.spans.len() as u32 {
                let (start, len) = self.spans[number as usize - 1];
                let bytes = self.bytes[start as usize..(start + len) as usize].to_vec();
                self.enter(&bytes, number);
            }
        }
        self.add(bytes);
        true
    }

    /// Interns a byte string under the next number.
    fn add(&mut self, bytes: &[u8]) {
        self.spans.push((self.bytes.len() as u32, bytes.len() as u32));
        self.bytes.extend_from_slice(bytes);
        self.enter(bytes, self.spans.len() as u32);
    }

    /// Writes a number to the first free slot for these bytes.
    fn enter(&mut self, bytes: &[u8], number: u32) {
        let free = self.probes(bytes).find(|&slot| self.slots[slot] == 0);
        self.slots[free.expect("more than half of the slots are free")] = number;
    }

    /// Iterates over the slots in which these bytes may be, from their home on.
    fn probes(&self, bytes: &[u8]) -> impl Iterator<Item = usize> + use<> {
        let (mask, home) = (self.slots.len() - 1, self.hash.hash_bytes(bytes) as usize);
        (0..=mask).map(move |step| home.wrapping_add(step) & mask)
    }

    /// The number of these bytes, 0 if they are not interned.
    #[inline]
    fn find(&self, bytes: &[u8]) -> u32 {
        for slot in self.probes(bytes) {
            let number = self.slots[slot];
            if number == 0 {
                break;
            }
            let (start, len) = self.spans[number as usize - 1];
            if &self.bytes[start as usize..(start + len) as usize] == bytes {
                return number;
            }
        }
        0
    }
}
