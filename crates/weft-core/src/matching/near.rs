//! How a match goes, spelled out: for compiled code that makes the key itself, and finds the row itself where the rows
//! are vectors of bits or a trie over one field.
//!
//! Each part of the match has some places of the key, and [`Packing`] says what goes there. Where [`Matcher::way`] says
//! that there are chunks, the way on is, with offsets in bytes:
//!
//! 1. For each chunk, the bits of its place number an entry of 16 bits among the classes of the chunk, which begin at
//!    the address in [`MATCHER_CLASSES`], [`Chunk::classes`] on. Where the chunk is in pages ([`is_paged`]), its bits
//!    but for the lowest [`PAGE_BITS`] do so; the entry is the number of a page of so many entries as those have
//!    values, counted from the address on, in which they number the entry.
//! 2. That is the number of a set: [`Chunks::words`] words at the address in [`MATCHER_SETS`].
//! 3. The first bit that all sets have numbers an entry of two words at the address in [`MATCHER_BITS`]: the row, and
//!    the address of its first group. Behind the last bit is an entry for no row, which is all zeros.
//!
//! Where there are few rows ([`Way::Few`]), the words at the address in [`MATCHER_FEW`] are, row by row and the best
//! first, for each word of the key which of its bits are looked at, and what they have to be. The first row of which
//! all are so has the entry of its number at the address in [`MATCHER_BITS`], as above; [`Few::none`] is that of none.
//!
//! Where there is a trie, the way on begins with the entry in [`MATCHER_ROOT`] and as many bits left as the field has:
//!
//! 1. An entry whose upper two bits are [`TRIE_NODE`]'s is a node. It has what its width lacks of 32 bits in the five
//!    bits from 25 on, and below them the number of its first line of 64 bytes, counted from the address in
//!    [`MATCHER_LINES`]. The next so many bits of the field as are its width, from above, number an entry of 32 bits of
//!    the node. (Where a word has what is left of the field from its highest bit on, that is the word, shifted down by
//!    what the entry has from bit 25 on, modulo 64.)
//! 2. One whose upper two bits are [`TRIE_RUN`]'s is a run. It has a class in the two bits from 28 on, and below them
//!    its first quarter of a line. A run of class [`TRIE_LONG`] is left to [`Matcher::find_words`]. The others have
//!    `(2 << class) - 1` words at which intervals begin, but for the first, which ascend, and then the entries of the
//!    intervals; what is compared is the upper 32 of the bits that are left, with zeros below fewer.
//! 3. All else is the number of an entry of two words at the address in [`MATCHER_ROWS`], the row and the address of
//!    its first group, or [`NOTHING`]. In place of this, where the trie has a floor, the first [`Whole::floor_bits`] of
//!    the field number a word of 32 bits at the address in [`MATCHER_FLOOR`], which is such a number or [`NOTHING`].
//!
//! All of this stays as it is until the matcher changes. Two words in it tell code that was made for a matcher whether
//! it is good for the one that it has now: [`Matcher::packing`], whether the key that it makes is the one that
//! [`Matcher::find_words`] takes; and [`Matcher::ways`], whether the way on is the one that it knows as well. Where
//! neither is so, the matcher makes the key itself.

use super::codec::Kind;
use super::{Found, Matcher};
pub use crate::classify::NOTHING;
use crate::classify::Place;
pub use crate::classify::trie::{LONG as TRIE_LONG, NODE as TRIE_NODE, RUN as TRIE_RUN};
pub use crate::classify::vectors::{PAGE_BITS, is_paged};
use crate::hash;
use core::mem::offset_of;
use std::sync::Arc;

/// Of a matcher: the address of the classes of all chunks.
pub const MATCHER_CLASSES: usize = offset_of!(Matcher, ways.classes_address);
/// Of a matcher: the address of the sets.
pub const MATCHER_SETS: usize = offset_of!(Matcher, ways.sets_address);
/// Of a matcher: the address of what each bit stands for.
pub const MATCHER_BITS: usize = offset_of!(Matcher, ways.bits_address);
/// Of a matcher: the address of what few rows look at.
pub const MATCHER_FEW: usize = offset_of!(Matcher, ways.few_address);
/// Of a matcher: the address of the lines of the trie.
pub const MATCHER_LINES: usize = offset_of!(Matcher, ways.lines_address);
/// Of a matcher: the entry of the root of the trie.
pub const MATCHER_ROOT: usize = offset_of!(Matcher, ways.root);
/// Of a matcher: the address of the floor of the trie.
pub const MATCHER_FLOOR: usize = offset_of!(Matcher, ways.floor_address);
/// Of a matcher: the address of the rows, by the numbers that the trie gives.
pub const MATCHER_ROWS: usize = offset_of!(Matcher, ways.rows_address);
/// Of a matcher: [`Matcher::packing`].
pub const MATCHER_PACKING: usize = offset_of!(Matcher, ways.packing);
/// Of a matcher: [`Matcher::ways`].
pub const MATCHER_WAYS: usize = offset_of!(Matcher, ways.ways);

/// What [`Matcher::ways`] gives where no row is found through chunks.
pub const NO_WAYS: u64 = 0;

/// What compiled code reads of a matcher.
#[derive(Debug)]
pub(super) struct Ways {
    packing: u64,
    ways: u64,
    classes_address: usize,
    sets_address: usize,
    bits_address: usize,
    few_address: usize,
    lines_address: usize,
    root: u64,
    floor_address: usize,
    rows_address: usize,
    /// What each bit of a vector stands for. Clones of a matcher share it, so that its address is that of all.
    bits: Arc<[Found]>,
}

impl Clone for Ways {
    /// That of a clone of the matcher, which has rows of its own: what points to them is not spelled out.
    fn clone(&self) -> Self {
        let bits = Arc::clone(&self.bits);
        let ways = if self.rows_address == 0 { self.ways } else { NO_WAYS };
        Self { bits, ways, rows_address: 0, ..*self }
    }
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            packing: 0,
            ways: NO_WAYS,
            classes_address: 0,
            sets_address: 0,
            bits_address: 0,
            few_address: 0,
            lines_address: 0,
            root: 0,
            floor_address: 0,
            rows_address: 0,
            bits: Arc::default(),
        }
    }
}

impl Ways {
    /// The rows are not found through chunks any more.
    pub(super) fn lose(&mut self) {
        self.ways = NO_WAYS;
    }
}

/// How the value of a part becomes bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A number with `bias` added (modulo 2^64), and whatever is more than `top` is `top`. NULL is `null`, of which the
    /// bits above the lowest 64 are in the second place.
    Number {
        /// What is added.
        bias: u64,
        /// The most.
        top: u64,
        /// What stands for NULL.
        null: u128,
    },
    /// Four bytes, the first of them the highest; `none` stands for NULL and for bytes that are more or fewer.
    Short {
        /// Above all that four bytes are.
        none: u64,
    },
    /// As [`Matcher::pack`] says.
    Other,
}

/// Where a part is in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// What goes there.
    pub packing: Packing,
    /// Where: the first place is always there.
    pub places: [Option<Place>; 3],
}

/// The chunks of a matcher whose rows are vectors of bits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chunks {
    /// All of them.
    pub chunks: Vec<Chunk>,
    /// Words of a set: a power of two.
    pub words: usize,
}

/// Few rows, which are compared with the key one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Few {
    /// How many, with some that match nothing.
    pub rows: usize,
    /// The number of the entry for no row.
    pub none: usize,
}

/// How rows are found, spelled out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Way {
    /// One by one.
    Few(Few),
    /// By vectors of bits.
    Chunks(Chunks),
    /// By a trie.
    Trie(Whole),
}

/// A field of a trie: the bits of one place of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Whole {
    /// Where.
    pub place: Place,
    /// How many: 1 to 64.
    pub bits: u8,
    /// How many of the first of them number an entry of the trie's floor; 0 if it has none.
    pub floor_bits: u8,
}

/// Some bits of a key, which lie within one place of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where.
    pub place: Place,
    /// The offset of its classes, or of the numbers of their pages.
    pub classes: u32,
}

impl Matcher {
    /// The parts of the key, in the order of the match.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        self.codecs.iter().map(|codec| Field {
            packing: match codec.kind {
                Kind::Number { bias, top, null } => Packing::Number { bias, top, null },
                Kind::Short => Packing::Short { none: super::codec::NO_ADDRESS },
                Kind::Known(_) | Kind::Long => Packing::Other,
            },
            places: codec.places,
        })
    }

    /// Words of the key.
    pub fn key_words(&self) -> usize {
        self.classifier.layout().words()
    }

    /// How rows are found, if it can be spelled out.
    pub fn way(&self) -> Option<Way> {
        if self.ways.ways == NO_WAYS { None } else { self.way_built() }
    }

    /// As [`Matcher::way`], by what is built.
    fn way_built(&self) -> Option<Way> {
        if let Some(vectors) = self.classifier.vectors() {
            if !vectors.few().is_empty() {
                let rows = vectors.few().len() / (2 * self.key_words());
                return Some(Way::Few(Few { rows, none: vectors.ids().count() - 1 }));
            }
            let chunks = vectors.chunks().map(|(place, classes)| Chunk { place, classes: classes * 2 });
            return Some(Way::Chunks(Chunks { chunks: chunks.collect(), words: vectors.words() }));
        }
        let trie = self.classifier.trie()?;
        let (place, bits, _) = trie.spelled()?;
        Some(Way::Trie(Whole { place, bits, floor_bits: trie.floor().0 }))
    }

    /// A hash of how the key is made: with the same, code that makes it for one matcher makes it for another.
    #[inline(always)]
    pub fn packing(&self) -> u64 {
        self.ways.packing
    }

    /// A hash of how the key is made and what the way on is: with the same, code that finds rows of one matcher finds
    /// those of another. [`NO_WAYS`] without a way, so also while there are changes that it does not know.
    #[inline(always)]
    pub fn ways(&self) -> u64 {
        self.ways.ways
    }

    /// Looks for what compiled code may read, after what is built has changed.
    pub(super) fn see_ways(&mut self) {
        let packing = self.hash_of_packing();
        let mut ways = Ways { packing, ..Ways::default() };
        if let Some(way) = self.way_built() {
            ways.ways = way.hash(packing);
        }
        if let Some(vectors) = self.classifier.vectors() {
            let found = |id| self.rows.get(id as usize).copied().unwrap_or_default();
            ways.bits = vectors.ids().map(found).collect();
            ways.bits_address = ways.bits.as_ptr().expose_provenance();
            (ways.classes_address, ways.sets_address) = vectors.addresses();
            ways.few_address = vectors.few().as_ptr().expose_provenance();
        }
        if let Some(trie) = self.classifier.trie()
            && let Some((.., root)) = trie.spelled()
        {
            ways.root = root.into();
            ways.lines_address = trie.address();
            (_, ways.floor_address) = trie.floor();
            ways.rows_address = self.rows.as_ptr().expose_provenance();
        }
        self.ways = ways;
    }

    fn hash_of_packing(&self) -> u64 {
        let mut hash = hash::hash_word(self.key_words() as u64);
        let mut add = |word: u64| hash = hash::mix(hash, word);
        for Field { packing, places } in self.fields() {
            match packing {
                Packing::Number { bias, top, null } => {
                    [1, bias, top, null as u64, (null >> 64) as u64].into_iter().for_each(&mut add);
                }
                Packing::Short { none } => [2, none].into_iter().for_each(&mut add),
                Packing::Other => add(3),
            }
            places.into_iter().for_each(|place| add(place.map_or(u64::MAX, hash_of_place)));
        }
        hash
    }
}

impl Way {
    fn hash(&self, packing: u64) -> u64 {
        let hash = match self {
            Self::Few(Few { rows, none }) => {
                hash::mix(packing, *rows as u64 | (*none as u64) << 32 | 1 << 63)
            }
            Self::Chunks(Chunks { chunks, words }) => {
                let chunks =
                    chunks.iter().map(|chunk| hash_of_place(chunk.place) | u64::from(chunk.classes) << 32);
                chunks.fold(hash::mix(packing, *words as u64), hash::mix)
            }
            Self::Trie(Whole { place, bits, floor_bits }) => {
                let bits = u64::from(*bits) | u64::from(*floor_bits) << 8 | 1 << 32;
                hash::mix(hash::mix(packing, bits), hash_of_place(*place))
            }
        };
        // Never that of none.
        hash | 1
    }
}

fn hash_of_place(place: Place) -> u64 {
    u64::from(place.word) | u64::from(place.shift) << 8 | u64::from(place.bits) << 16
}
