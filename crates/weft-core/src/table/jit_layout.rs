//! What a look-up reads, by address: for compiled code that looks into the first two slots of a key's home itself.
//!
//! Nearly every row is found there. All of this is words of native size that change by single stores, so a look beside
//! a writer finds a row that is or was the stripe's, as [`Table::find_int`] does. The way, with offsets in bytes:
//!
//! 1. The hash of the key ([`Table::hash_key`]) gives the stripe (its upper half, by [`JitLayout::stripe_mask`]) and the tag
//!    (its lower half).
//! 2. At the address in [`TABLE_BEGINS`] is a word for each stripe: in its lower [`BEGIN_ADDRESS_BITS`] where its slots
//!    begin, and above by how many bits the tag is shifted to be the number of its home among them. A slot is
//!    `tag << 32 | number`, 0 if it is free; slots stand in the order of their tags.
//! 3. The row with a slot's number is `first + number - 1`, where `first` is the stripe shifted up by
//!    [`JitLayout::local_bits`], and its [`super::Row`] one more. Its segment is that number shifted by [`WORD_BITS`]; at
//!    the address in [`TABLE_SEGMENTS`] is that of the words of each, one word behind the other. It is there before a
//!    slot has the number of one of their rows; the rest of the number is the row's first word there.
//! 4. The row is the one if the cells of its key columns are the key ([`JitLayout::key`]). It has expired if the table has a
//!    time to live ([`TABLE_TTL`], `i64::MAX` if not) and the word [`AgeWords::used`] is as long ago, or one from
//!    insertion on ([`TABLE_TTL_ON_INSERT`]) and [`AgeWords::inserted`] is.
//!
//! Whoever does not find the row in two slots of which the second is not past the tag, asks the table.
//!
//! Where a row was found before, and what has happened since is not known ([`Rows::candidate`]), it is the row of a key
//! if step 4 holds and its first word is the tag with [`ROW_LIVE`]: that word is another from when the row has gone to
//! when its place has another row.
//!
//! The cursor of a scan is a row's number. The next one is [`ScanLayout::row_words`] more; behind the last row of a segment,
//! the first number of the next segment. In a table with one stripe there is no row from [`STRIPE_HIGH`] on, and the
//! row with a number is found as in step 3: it lives if [`ROW_LIVE`] is set in its first word and it has not expired as
//! in step 4. Where none lives, the table is asked for the next.

use super::index;
use super::layout::LIVE;
use super::storage::{self, Geometry, Stripe};
use super::{KeyShape, Row, Table};
use core::hint::black_box;
use core::mem::offset_of;
use core::sync::atomic::AtomicUsize;
use core::sync::atomic::Ordering::{Acquire, Relaxed};

/// Of a table: where the words that say where indexes begin are.
pub const TABLE_BEGINS: usize = offset_of!(Table, begins_at);
/// The bits of such a word that are an address.
pub const BEGIN_ADDRESS_BITS: u32 = index::ADDRESS_BITS;
/// Of a table: the address of its stripes.
pub const TABLE_STRIPES: usize = offset_of!(Table, stripes_address);
/// Of a table: where the addresses of the segments of its first column group are.
pub const TABLE_SEGMENTS: usize = offset_of!(Table, segments_at);
/// Of a table: its time to live in nanoseconds.
pub const TABLE_TTL: usize = offset_of!(Table, ttl);
/// Of a table: its time to live from insertion on in nanoseconds.
pub const TABLE_TTL_ON_INSERT: usize = offset_of!(Table, ttl_on_insert);
/// Of a stripe: the number, of 32 bits, from which on no row was ever used.
pub const STRIPE_HIGH: usize = offset_of!(Stripe, high);
/// Of a row: the bit of its first word that is set while it lives.
pub const ROW_LIVE: u64 = LIVE;
/// How many bits of a row's number are its first word.
pub const WORD_BITS: u32 = storage::WORD_BITS;

/// What differs between tables; part of what [`Table::fingerprint`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JitLayout {
    /// How a row holds its key.
    pub key: KeyLayout,
    /// The number of stripes less one; they are a power of two.
    pub stripe_mask: u64,
    /// How many bits of a row's number are that in its stripe.
    pub local_bits: u32,
    /// From which words a row's age counts.
    pub age_words: AgeWords,
}

/// From which words a row's age counts; None where rows never expire by it, whatever the limits are.
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
        /// The most bytes.
        max: u32,
    },
    /// In several columns: the first ones of [`Table::columns`].
    Columns(u16),
}

/// Words of a line of memory.
const LINE_WORDS: usize = 8;

/// How rows follow one another in a scan; part of what [`Table::fingerprint`] stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScanLayout {
    /// How many numbers the next row of a segment is away.
    pub row_words: u32,
    /// The words of a segment: the row behind its last is the first of the next segment.
    pub segment_words: u32,
    /// The table has one stripe, so that a scan can go from row to row by address.
    pub has_one_stripe: bool,
    /// From which words a row's age counts.
    pub age_words: AgeWords,
}

/// How rows of a table are found, for many keys: what does not change is at hand, and not read from the table for each.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'t> {
    table: &'t Table,
    geometry: Geometry,
    addresses: &'t [AtomicUsize],
}

impl Rows<'_> {
    /// The row that a look-up for a key with this hash compares first, by these slots of its home, and the address of
    /// its words of the first column group. The row is not read.
    #[inline(always)]
    pub fn candidate(&self, key_hash: u64, slots: [u64; 2]) -> Option<(Row, usize)> {
        match index::probe_home(key_hash as u32, slots, |number| self.numbered(key_hash, number)) {
            index::HomeProbe::Found(found) => Some(found),
            index::HomeProbe::Absent => None,
            index::HomeProbe::Elsewhere => self.table.candidate_elsewhere(key_hash),
        }
    }

    /// A row by its number in the stripe of its key, plus one, and where its words are.
    #[inline(always)]
    fn numbered(&self, key_hash: u64, number: u32) -> Option<(Row, usize)> {
        // Without a look at the stripe.
        let row = Row(self.geometry.join(self.geometry.stripe_of(key_hash), 0) + u64::from(number));
        Some((row, storage::address_in(self.addresses, row.0.wrapping_sub(1))?))
    }
}

impl Table {
    /// How to look for a key by address.
    pub fn jit_layout(&self) -> JitLayout {
        let key = match &self.key {
            KeyShape::Int { word } => KeyLayout::Word(*word),
            KeyShape::Bytes { word, bytes_max } => KeyLayout::Bytes { word: *word, max: *bytes_max },
            KeyShape::Parts(parts) => KeyLayout::Columns(parts.len() as u16),
        };
        let (stripe_mask, local_bits) = (self.stripes.len() as u64 - 1, self.geometry.local_bits());
        JitLayout { key, stripe_mask, local_bits, age_words: self.age_words() }
    }

    /// The first two slots of the home of a key with this hash, as of step 2; None in a stripe without rows.
    pub fn slots(&self, key_hash: u64) -> Option<[u64; 2]> {
        let Some([first, second, ..]) = self.stripe_of(key_hash).slots_from(key_hash as u32) else {
            return None;
        };
        Some([first, second].map(|slot| slot.load(Acquire)))
    }

    /// Reads what look-ups for keys with these hashes will read, and the lines of their rows, all side by side: else
    /// each would wait for memory by itself.
    pub fn prefetch_rows(&self, key_hashes: &[u64]) {
        let slots: Vec<_> = key_hashes.iter().map(|hash| self.slots(*hash)).collect();
        let rows = self.rows();
        let found = key_hashes.iter().zip(slots).filter_map(|(hash, slots)| rows.candidate(*hash, slots?));
        let lines = found.flat_map(|(row, _)| self.row_words(row, 0).iter().step_by(LINE_WORDS));
        black_box(lines.fold(0, |all, word| all ^ word.load(Relaxed)));
    }

    /// How rows of many keys are found.
    #[inline(always)]
    pub fn rows(&self) -> Rows<'_> {
        Rows { table: self, geometry: self.geometry, addresses: self.base.addresses() }
    }

    /// As [`Rows::candidate`], if the row is not in the first two slots of its home: nobody waits for it then, either.
    #[cold]
    #[inline(never)]
    fn candidate_elsewhere(&self, key_hash: u64) -> Option<(Row, usize)> {
        let (stripe, rows) = (self.stripe_of(key_hash), self.rows());
        stripe.find(key_hash as u32, |number| rows.numbered(key_hash, number))
    }

    /// Bytes of a row's words of the first column group.
    #[inline(always)]
    pub fn row_base_bytes(&self) -> usize {
        self.geometry.row_words() as usize * 8
    }

    /// How to go over the rows.
    pub fn scan_layout(&self) -> ScanLayout {
        ScanLayout {
            row_words: self.geometry.row_words(),
            segment_words: self.geometry.segment_words(),
            has_one_stripe: self.stripes.len() == 1,
            age_words: self.age_words(),
        }
    }

    fn age_words(&self) -> AgeWords {
        let may_expire = self.header.by_write || self.header.touched.is_some();
        AgeWords {
            used: may_expire.then_some(self.header.age_at as u16),
            inserted: self.header.inserted.map(|word| word as u16),
        }
    }
}
