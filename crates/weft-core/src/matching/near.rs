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
//! All of this stays as it is while the matcher lives. Without chunks, [`Matcher::find_words`] takes the words of the
//! key.

use super::Matcher;
use super::codec::Kind;
use crate::classify::Place;
use crate::hash;
use core::mem::offset_of;

/// Of a matcher: the address of the classes of all chunks.
pub const MATCHER_CLASSES: usize = offset_of!(Matcher, classes_address);
/// Of a matcher: the address of the sets.
pub const MATCHER_SETS: usize = offset_of!(Matcher, sets_address);
/// Of a matcher: the address of what each bit stands for.
pub const MATCHER_BITS: usize = offset_of!(Matcher, bits_address);

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

    /// A hash of all that is said here of the way to a row: code that was made for one matcher is good for others with
    /// the same.
    #[inline(always)]
    pub fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    pub(super) fn hash_of_ways(&self) -> u64 {
        let mut hash = hash::hash_word(self.key_words() as u64);
        let mut add = |word: u64| hash = hash::mix(hash, word);
        let of_place =
            |place: Place| u64::from(place.word) | u64::from(place.shift) << 8 | u64::from(place.bits) << 16;
        for Field { packing, places } in self.fields() {
            match packing {
                Packing::Number { bias, top, null } => {
                    [1, bias, top, null as u64, (null >> 64) as u64].into_iter().for_each(&mut add);
                }
                Packing::Short { none } => [2, none].into_iter().for_each(&mut add),
                Packing::Other => add(3),
            }
            places.into_iter().for_each(|place| add(place.map_or(u64::MAX, of_place)));
        }
        if let Some(Chunks { chunks, words }) = self.chunks() {
            add(words as u64);
            chunks.iter().for_each(|chunk| add(of_place(chunk.place) | u64::from(chunk.classes) << 32));
        }
        hash
    }
}
