//! The memory layout of a table, for compiled code that probes the first two slots of a key's home itself.
//!
//! Nearly every row is there. All data is in words of native size that change by single stores. So a look-up beside a
//! writer finds a row that is or was in the stripe, as with [`Table::find_int`]. The steps, with offsets in bytes:
//!
//! 1. The hash of the key ([`Table::hash_key`]) gives the stripe (upper half, masked by [`JitLayout::stripe_mask`]) and
//!    the tag (lower half).
//! 2. The address in [`TABLE_BEGINS`] points to one word per stripe. Its lower [`BEGIN_ADDRESS_BITS`] bits are the
//!    address of the stripe's slots; its upper bits are the right shift from tag to home. A slot is `tag << 32 |
//!    number`, 0 if it is free; slots are sorted by tag.
//! 3. The row of a slot has the number `first + number - 1`, where `first` is the stripe shifted left by
//!    [`JitLayout::local_bits`]; its [`super::Row`] is one more. The number shifted right by [`WORD_BITS`] is the
//!    segment; the rest is the row's first word in it. The address in [`TABLE_SEGMENTS`] points to the addresses of all
//!    segments. The address of a segment is set before any slot refers to one of its rows.
//! 4. The row matches if the cells of its key columns equal the key ([`JitLayout::key`]). It has expired if the word
//!    [`AgeWords::used`] is at least [`TABLE_TTL`] old, or the word [`AgeWords::inserted`] at least
//!    [`TABLE_TTL_ON_INSERT`] (`i64::MAX` without a TTL).
//!
//! If the row is in neither slot, and the second slot is not past the tag, the code calls the table.
//!
//! A row from an earlier look-up ([`Rows::candidate`]) may have changed since. It is still the row of the key if step 4
//! holds and its first word is the tag with [`ROW_LIVE`]: that word changes between the removal of the row and the
//! reuse of its slot.
//!
//! The cursor of a scan is a row number. The next row is [`ScanLayout::row_words`] further; behind the last row of a
//! segment it is the first number of the next segment. In a table with one stripe, no row is at or behind
//! [`STRIPE_HIGH`], and a row is found by its number as in step 3. It lives if [`ROW_LIVE`] is set in its first word
//! and it has not expired as in step 4. At a dead row, the code calls the table for the next live one.

use super::index;
use super::layout::LIVE;
use super::storage::{self, Geometry, Stripe};
use super::{KeyShape, Row, Table};
use core::hint::black_box;
use core::mem::offset_of;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Of a table: the address of the words that locate the indexes.
pub const TABLE_BEGINS: usize = offset_of!(Table, begins_at);
/// The address bits of such a word.
pub const BEGIN_ADDRESS_BITS: u32 = index::ADDRESS_BITS;
/// Of a table: the address of its stripes.
pub const TABLE_STRIPES: usize = offset_of!(Table, stripes_address);
/// Of a table: the address of the segment addresses of its first column group.
pub const TABLE_SEGMENTS: usize = offset_of!(Table, segments_at);
/// Of a table: its TTL in nanoseconds.
pub const TABLE_TTL: usize = offset_of!(Table, ttl);
/// Of a table: its TTL from insertion in nanoseconds.
pub const TABLE_TTL_ON_INSERT: usize = offset_of!(Table, ttl_on_insert);
/// Of a stripe: the 32-bit number from which on no row was ever used.
pub const STRIPE_HIGH: usize = offset_of!(Stripe, high);
/// Of a row: the bit of its first word that is set while the row lives.
pub const ROW_LIVE: u64 = LIVE;
/// The bits of a row's number that are its first word in the segment.
pub const WORD_BITS: u32 = storage::WORD_BITS;

/// The properties that differ between tables; [`Table::fingerprint`] covers them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitLayout {
    /// How a row holds its key.
    pub key: KeyLayout,
    /// The number of stripes minus one; it is a power of two.
    pub stripe_mask: u64,
    /// The bits of a row's number within its stripe.
    pub local_bits: u32,
    /// The words from which a row's age counts.
    pub age_words: AgeWords,
}

/// The words from which a row's age counts; None where no limits make rows expire by it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeWords {
    /// The last write or touch.
    pub used: Option<u16>,
    /// The insertion.
    pub inserted: Option<u16>,
}

/// How a row holds its key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum KeyLayout {
    /// In this word.
    Word(u16),
    /// In a cell of bytes that begins with this word.
    Bytes {
        /// The word with the length.
        word: u16,
        /// The maximum length in bytes.
        max: u32,
    },
    /// In this many columns: the first ones of [`Table::columns`].
    Columns(u16),
}

/// Words of a cache line.
const LINE_WORDS: usize = 8;

const _: () = assert!(ROW_LIVE >> 32 != 0, "the tag of a row has the lower 32 bits of the same word");
const _: () = assert!(BEGIN_ADDRESS_BITS + 6 <= u64::BITS, "a shift of up to 32 is above the address");
const _: () = assert!(
    STRIPE_HIGH.is_multiple_of(4) && TABLE_BEGINS.is_multiple_of(8) && TABLE_SEGMENTS.is_multiple_of(8)
);

/// The layout of rows for scans; [`Table::fingerprint`] covers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLayout {
    /// The distance between the numbers of two rows in a segment.
    pub row_words: u32,
    /// The words of a segment: the row behind its last one is the first of the next segment.
    pub segment_words: u32,
    /// The table has one stripe, so a scan can walk the rows by address.
    pub has_one_stripe: bool,
    /// The words from which a row's age counts.
    pub age_words: AgeWords,
}

/// A finder of rows for many keys. It holds the invariant properties of the table, which are then not read for each
/// key.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'t> {
    table: &'t Table,
    geometry: Geometry,
    addresses: &'t [AtomicUsize],
}

impl Rows<'_> {
    /// The row that a look-up compares first, and the address of its words in the first column group. `slots` are the
    /// first slots of the home of the key. The row is not read.
    #[inline(always)]
    pub fn candidate(&self, key_hash: u64, slots: [u64; 2]) -> Option<(Row, usize)> {
        match index::probe_home(key_hash as u32, slots, |number| self.numbered(key_hash, number)) {
            index::HomeProbe::Found(found) => Some(found),
            index::HomeProbe::Absent => None,
            index::HomeProbe::Elsewhere => self.table.candidate_elsewhere(key_hash),
        }
    }

    /// The row with this number plus one in the stripe of its key, and the address of its words.
    #[inline(always)]
    fn numbered(&self, key_hash: u64, number: u32) -> Option<(Row, usize)> {
        // The stripe is not read.
        let row = Row(self.geometry.join(self.geometry.stripe_of(key_hash), 0) + u64::from(number));
        Some((row, storage::address_in(self.addresses, row.0.wrapping_sub(1))?))
    }
}

impl Table {
    /// Describes the table for look-ups by address.
    pub fn jit_layout(&self) -> JitLayout {
        let key = match &self.key {
            KeyShape::Int { word } => KeyLayout::Word(*word),
            KeyShape::Bytes { word, bytes_max } => KeyLayout::Bytes { word: *word, max: *bytes_max },
            KeyShape::Parts(parts) => KeyLayout::Columns(parts.len() as u16),
        };
        let (stripe_mask, local_bits) = (self.stripes.len() as u64 - 1, self.geometry.local_bits());
        JitLayout { key, stripe_mask, local_bits, age_words: self.age_words() }
    }

    /// The first two slots of the home of a key with this hash, as in step 2. None in a stripe without rows.
    pub fn slots(&self, key_hash: u64) -> Option<[u64; 2]> {
        let Some([first, second, ..]) = self.stripe_of(key_hash).slots_from(key_hash as u32) else {
            return None;
        };
        Some([first, second].map(|slot| slot.load(Acquire)))
    }

    /// Reads everything that look-ups for keys with these hashes will read, and the cache lines of their rows. The
    /// reads overlap; without this, each look-up would wait for memory by itself.
    pub fn prefetch_rows(&self, key_hashes: &[u64]) {
        let slots: Vec<_> = key_hashes.iter().map(|hash| self.slots(*hash)).collect();
        let rows = self.rows();
        let found = key_hashes.iter().zip(slots).filter_map(|(hash, slots)| rows.candidate(*hash, slots?));
        let lines = found.flat_map(|(row, _)| self.row_words(row, 0).iter().step_by(LINE_WORDS));
        black_box(lines.fold(0, |all, word| all ^ word.load(Relaxed)));
    }

    /// A finder of rows for many keys.
    #[inline(always)]
    pub fn rows(&self) -> Rows<'_> {
        Rows { table: self, geometry: self.geometry, addresses: self.base.addresses() }
    }

    /// As [`Rows::candidate`], for a row outside the first two slots of its home. It reads no row either.
    #[cold]
    #[inline(never)]
    fn candidate_elsewhere(&self, key_hash: u64) -> Option<(Row, usize)> {
        let (stripe, rows) = (self.stripe_of(key_hash), self.rows());
        stripe.find(key_hash as u32, |number| rows.numbered(key_hash, number))
    }

    /// Bytes of a row in the first column group.
    #[inline(always)]
    pub fn row_base_bytes(&self) -> usize {
        self.geometry.row_words() as usize * 8
    }

    /// Describes the table for scans by address.
    pub fn scan_layout(&self) -> ScanLayout {
        ScanLayout {
            row_words: self.geometry.row_words(),
            segment_words: self.geometry.segment_words(),
            has_one_stripe: self.stripes.len() == 1,
            age_words: self.age_words(),
        }
    }

    /// The header words that decide whether a row has expired.
    fn age_words(&self) -> AgeWords {
        let may_expire = self.header.by_write || self.header.touched.is_some();
        AgeWords {
            used: may_expire.then_some(self.header.age_at as u16),
            inserted: self.header.inserted.map(|word| word as u16),
        }
    }
}
