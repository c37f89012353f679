//! How a match goes, spelled out: for compiled code that makes the key itself, and finds the row itself where the rows
//! are vectors of bits.
//!
//! Each part of the match has some places of the key, and [`Packing`] says what goes there. Where [`Matcher::chunks`]
//! are given, the way on is, with offsets in bytes:
//!
//! 1. For each chunk, the bits of its place number an entry of 16 bits among the classes of the chunk, which begin at
//!    the address in [`MATCHER_CLASSES`], [`Chunk::classes`] on.
//! 2. That is the number of a set: [`Chunks::words`] words at the address in [`MATCHER_SETS`].
//! 3. The first bit that all sets have numbers an entry of two words at the address in [`MATCHER_BITS`]: the row, and
//!    the address of its first group. Behind the last bit is an entry for no row, which is all zeros.
//!
//! All of this stays as it is until the matcher changes. Two words in it tell code that was made for a matcher whether
//! it is good for the one that it has now: [`Matcher::packing`], whether the key that it makes is the one that
//! [`Matcher::find_words`] takes; and [`Matcher::ways`], whether these are the chunks that it knows as well. Where
//! neither is so, the matcher makes the key itself.

use super::codec::Kind;
use super::{Found, Matcher};
use crate::classify::Place;
use crate::hash;
use core::mem::offset_of;
use std::sync::Arc;

/// Of a matcher: the address of the classes of all chunks.
pub const MATCHER_CLASSES: usize = offset_of!(Matcher, ways.classes_address);
/// Of a matcher: the address of the sets.
pub const MATCHER_SETS: usize = offset_of!(Matcher, ways.sets_address);
/// Of a matcher: the address of what each bit stands for.
pub const MATCHER_BITS: usize = offset_of!(Matcher, ways.bits_address);
/// Of a matcher: [`Matcher::packing`].
pub const MATCHER_PACKING: usize = offset_of!(Matcher, ways.packing);
/// Of a matcher: [`Matcher::ways`].
pub const MATCHER_WAYS: usize = offset_of!(Matcher, ways.ways);

/// What [`Matcher::ways`] gives where no row is found through chunks.
pub const NO_WAYS: u64 = 0;

/// What compiled code reads of a matcher.
#[derive(Clone, Debug)]
pub(super) struct Ways {
    packing: u64,
    ways: u64,
    classes_address: usize,
    sets_address: usize,
    bits_address: usize,
    /// What each bit of a vector stands for. Clones of a matcher share it, so that its address is that of all.
    bits: Arc<[Found]>,
}

impl Default for Ways {
    fn default() -> Self {
        Self {
            packing: 0,
            ways: NO_WAYS,
            classes_address: 0,
            sets_address: 0,
            bits_address: 0,
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

/// Some bits of a key, which lie within one place of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where.
    pub place: Place,
    /// The offset of its classes.
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

    /// The chunks, if the rows are vectors of bits.
    pub fn chunks(&self) -> Option<Chunks> {
        let vectors = self.classifier.vectors()?;
        let chunks = vectors.chunks().map(|(place, classes)| Chunk { place, classes: classes * 2 });
        Some(Chunks { chunks: chunks.collect(), words: vectors.words() })
    }

    /// A hash of how the key is made: with the same, code that makes it for one matcher makes it for another.
    #[inline(always)]
    pub fn packing(&self) -> u64 {
        self.ways.packing
    }

    /// A hash of how the key is made and what its chunks are: with the same, code that finds rows of one matcher finds
    /// those of another. [`NO_WAYS`] without chunks, so also while there are changes that they do not know.
    #[inline(always)]
    pub fn ways(&self) -> u64 {
        self.ways.ways
    }

    /// Looks for what compiled code may read, after what is built has changed.
    pub(super) fn see_ways(&mut self) {
        let packing = self.hash_of_packing();
        let mut ways = Ways { packing, ..Ways::default() };
        if let Some((vectors, chunks)) = self.classifier.vectors().zip(self.chunks()) {
            let found = |id| self.rows.get(id as usize).copied().unwrap_or_default();
            ways.bits = vectors.ids().map(found).collect();
            ways.bits_address = ways.bits.as_ptr().expose_provenance();
            (ways.classes_address, ways.sets_address) = vectors.addresses();
            ways.ways = chunks.hash(packing);
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

impl Chunks {
    fn hash(&self, packing: u64) -> u64 {
        let hash = hash::mix(packing, self.words as u64);
        let chunks =
            self.chunks.iter().map(|chunk| hash_of_place(chunk.place) | u64::from(chunk.classes) << 32);
        // Never that of none.
        chunks.fold(hash, hash::mix) | 1
    }
}

fn hash_of_place(place: Place) -> u64 {
    u64::from(place.word) | u64::from(place.shift) << 8 | u64::from(place.bits) << 16
}
