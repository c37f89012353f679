//! The memory layout of a matcher, for compiled code that makes the key itself.
//!
//! Compiled code can also find the row itself where the rows are bit vectors, a short list, or a trie over one field.
//!
//! Each part of the match has some bits of the key, and [`Packing`] tells how a value becomes these bits.
//! [`Matcher::lookup_method`] tells which of the three look-ups below applies. All offsets are in bytes.
//!
//! **Bit vectors** ([`LookupMethod::Vectors`]):
//!
//! 1. The bits of each chunk are the index of a 16-bit entry among the classes of the chunk. The classes begin
//!    [`Chunk::classes`] bytes behind the address in [`MATCHER_CLASSES`]. A chunk may be paged ([`is_paged`]). Then all
//!    its bits but the lowest [`PAGE_BITS`] are the index, and the entry is a page number. A page has `1 << PAGE_BITS`
//!    entries; pages are counted from the address, and the lowest bits are the index in the page.
//! 2. The entry is the number of a set: [`BitVectors::words`] words at the address in [`MATCHER_SETS`].
//! 3. The first bit that is set in all sets is the index of an entry of two words at the address in [`MATCHER_BITS`]:
//!    the row, and the address of its first group. The entry behind the last bit stands for "no row" and is all zeros.
//!
//! **Short list** ([`LookupMethod::Linear`]): the words at the address in [`MATCHER_LINEAR`] are one record per row,
//! best row first. A record has two words for each word of the key: a mask, and the value that the masked word must
//! have. The first row whose words all match has the entry of its index at the address in [`MATCHER_BITS`], as above.
//! [`LinearScan::none`] is the index for "no row".
//!
//! **Trie** ([`LookupMethod::Trie`]): the look-up begins with the entry in [`MATCHER_ROOT`] and all bits of the field.
//!
//! 1. An entry whose upper two bits are [`TRIE_NODE`]'s is a node. The five bits from bit 25 hold 32 minus its width.
//!    The bits below hold the number of its first line of 64 bytes, counted from the address in [`MATCHER_LINES`]. The
//!    next `width` bits of the field, from the top, are the index of a 32-bit entry of the node. A word may hold the
//!    remaining bits of the field from its highest bit down. The index is then that word, shifted right by the entry's
//!    bits from bit 25 up, modulo 64.
//! 2. An entry whose upper two bits are [`TRIE_RUN`]'s is a run. The two bits from bit 28 hold its class, the bits
//!    below its first quarter of a line. Runs of class [`TRIE_LONG`] are left to [`Matcher::find_words`]. The others
//!    have `(2 << class) - 1` words, in ascending order, at which all intervals but the first begin. The entries of the
//!    intervals follow. The compared value is the upper 32 of the remaining bits, padded with zeros below.
//! 3. Every other entry is [`NOTHING`] or the index of two words at the address in [`MATCHER_ROWS`]: the row and the
//!    address of its first group. If it is [`NOTHING`] and the trie has short prefixes, the first
//!    [`TrieField::short_prefix_bits`] bits of the field select a 32-bit word at the address in
//!    [`MATCHER_SHORT_PREFIXES`]. That word is such an index or [`NOTHING`].
//!
//! The layout does not change until the matcher does. Two hashes tell compiled code whether the current matcher still
//! fits: [`Matcher::packing_hash`] for the key that it makes, and [`Matcher::lookup_hash`] for the look-up. If neither
//! matches, the matcher makes the key itself.

use super::codec::Kind;
use super::{MatchedRow, Matcher};
use crate::classify::KeyBits;
pub use crate::classify::NOTHING;
pub use crate::classify::trie::{LONG as TRIE_LONG, NODE as TRIE_NODE, RUN as TRIE_RUN};
pub use crate::classify::vectors::{PAGE_BITS, is_paged};
use crate::hash;
use core::mem::offset_of;
use std::sync::Arc;

/// Of a matcher: the address of the classes of all chunks.
pub const MATCHER_CLASSES: usize = offset_of!(Matcher, jit.classes_address);
/// Of a matcher: the address of the sets.
pub const MATCHER_SETS: usize = offset_of!(Matcher, jit.sets_address);
/// Of a matcher: the address of the row of each bit.
pub const MATCHER_BITS: usize = offset_of!(Matcher, jit.bits_address);
/// Of a matcher: the address of the short list.
pub const MATCHER_LINEAR: usize = offset_of!(Matcher, jit.linear_address);
/// Of a matcher: the address of the lines of the trie.
pub const MATCHER_LINES: usize = offset_of!(Matcher, jit.lines_address);
/// Of a matcher: the entry of the root of the trie.
pub const MATCHER_ROOT: usize = offset_of!(Matcher, jit.root);
/// Of a matcher: the address of the short prefixes of the trie.
pub const MATCHER_SHORT_PREFIXES: usize = offset_of!(Matcher, jit.short_prefixes_address);
/// Of a matcher: the address of the rows, by the index that the trie gives.
pub const MATCHER_ROWS: usize = offset_of!(Matcher, jit.rows_address);
/// Of a matcher: [`Matcher::packing_hash`].
pub const MATCHER_PACKING: usize = offset_of!(Matcher, jit.packing_hash);
/// Of a matcher: [`Matcher::lookup_hash`].
pub const MATCHER_LOOKUP: usize = offset_of!(Matcher, jit.lookup_hash);

/// The [`Matcher::lookup_hash`] of a matcher in which compiled code cannot find rows itself.
pub const NO_LOOKUP: u64 = 0;

/// The words of a matcher that compiled code reads.
#[derive(Debug)]
pub(super) struct JitView {
    packing_hash: u64,
    lookup_hash: u64,
    classes_address: usize,
    sets_address: usize,
    bits_address: usize,
    linear_address: usize,
    lines_address: usize,
    root: u64,
    short_prefixes_address: usize,
    rows_address: usize,
    /// The row of each bit. Clones of a matcher share it, so that the address holds for all of them.
    bits: Arc<[MatchedRow]>,
}

impl Clone for JitView {
    /// For a clone of the matcher. The clone has its own rows, so a layout that points to the old rows is dropped.
    fn clone(&self) -> Self {
        let bits = Arc::clone(&self.bits);
        let lookup_hash = if self.rows_address == 0 { self.lookup_hash } else { NO_LOOKUP };
        Self { bits, lookup_hash, rows_address: 0, ..*self }
    }
}

impl Default for JitView {
    fn default() -> Self {
        Self {
            packing_hash: 0,
            lookup_hash: NO_LOOKUP,
            classes_address: 0,
            sets_address: 0,
            bits_address: 0,
            linear_address: 0,
            lines_address: 0,
            root: 0,
            short_prefixes_address: 0,
            rows_address: 0,
            bits: Arc::default(),
        }
    }
}

impl JitView {
    /// Stops compiled code from finding rows itself.
    pub(super) fn clear_lookup(&mut self) {
        self.lookup_hash = NO_LOOKUP;
    }
}

/// How the value of a part becomes bits of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Packing {
    /// A number plus `bias` (modulo 2^64), at most `top`. NULL becomes `null`; its bits above the lowest 64 are in the
    /// second range of bits.
    Number {
        /// The number to add.
        bias: u64,
        /// The greatest result.
        top: u64,
        /// The result for NULL.
        null: u128,
    },
    /// Four bytes in network order. NULL and values of any other length become `none`.
    Short {
        /// Greater than any value of four bytes.
        none: u64,
    },
    /// Only [`Matcher::pack`] can make the bits.
    Other,
}

/// Where a part is in the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// How the value becomes bits.
    pub packing: Packing,
    /// Where the bits are; the first range is always present.
    pub places: [Option<KeyBits>; 3],
}

/// The chunks of a matcher whose rows are bit vectors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BitVectors {
    /// All chunks.
    pub chunks: Vec<Chunk>,
    /// Words of a set: a power of two.
    pub words: usize,
}

/// A short list of rows, compared with the key one by one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinearScan {
    /// The number of rows, padded with rows that match nothing.
    pub rows: usize,
    /// The index of the entry for "no row".
    pub none: usize,
}

/// How compiled code finds rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LookupMethod {
    /// One by one.
    Linear(LinearScan),
    /// By bit vectors.
    Vectors(BitVectors),
    /// By a trie.
    Trie(TrieField),
}

/// The field of a trie: bits of one part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrieField {
    /// Where the bits are in the key.
    pub place: KeyBits,
    /// The number of bits, 1 to 64.
    pub bits: u8,
    /// The number of upper bits that index the trie's short prefixes; 0 if it has none.
    pub short_prefix_bits: u8,
}

/// Some bits of one part of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chunk {
    /// Where the bits are in the key.
    pub place: KeyBits,
    /// The offset of its classes, or of their page numbers.
    pub classes: u32,
}

impl Matcher {
    /// The parts of the key, in the order of the match.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        self.codecs.iter().map(|codec| Field {
            packing: match codec.kind {
                Kind::Number { bias, top, null } => Packing::Number { bias, top, null },
                Kind::Short => Packing::Short { none: super::codec::NO_ADDRESS },
                Kind::Interned(_) | Kind::Long => Packing::Other,
            },
            places: codec.places,
        })
    }

    /// Words of the key.
    pub fn key_words(&self) -> usize {
        self.classifier.layout().words()
    }

    /// How compiled code can find rows. None if it has to call the matcher.
    pub fn lookup_method(&self) -> Option<LookupMethod> {
        if self.jit.lookup_hash == NO_LOOKUP { None } else { self.built_lookup_method() }
    }

    /// As [`Matcher::lookup_method`], for the structure that is built now.
    fn built_lookup_method(&self) -> Option<LookupMethod> {
        if let Some(vectors) = self.classifier.vectors() {
            if !vectors.linear().is_empty() {
                let rows = vectors.linear().len() / (2 * self.key_words());
                return Some(LookupMethod::Linear(LinearScan { rows, none: vectors.ids().count() - 1 }));
            }
            let chunks = vectors.chunks().map(|(place, classes)| Chunk { place, classes: classes * 2 });
            return Some(LookupMethod::Vectors(BitVectors {
                chunks: chunks.collect(),
                words: vectors.words(),
            }));
        }
        let trie = self.classifier.trie()?;
        let (place, bits, _) = trie.root_field()?;
        Some(LookupMethod::Trie(TrieField { place, bits, short_prefix_bits: trie.short_prefixes().0 }))
    }

    /// A hash of how the key is made. Code that makes keys for one matcher serves all matchers with the same hash.
    #[inline(always)]
    pub fn packing_hash(&self) -> u64 {
        self.jit.packing_hash
    }

    /// A hash of how the key is made and how rows are found. Code that finds rows of one matcher serves all matchers
    /// with the same hash. [`NO_LOOKUP`] if compiled code cannot find rows, and while the structure lacks changes.
    #[inline(always)]
    pub fn lookup_hash(&self) -> u64 {
        self.jit.lookup_hash
    }

    /// Updates the words that compiled code reads, after the built structure has changed.
    pub(super) fn refresh_jit_view(&mut self) {
        let packing_hash = self.hash_of_packing();
        let mut jit = JitView { packing_hash, ..JitView::default() };
        if let Some(method) = self.built_lookup_method() {
            jit.lookup_hash = method.hash(packing_hash);
        }
        if let Some(vectors) = self.classifier.vectors() {
            let found = |id| self.rows.get(id as usize).copied().unwrap_or_default();
            jit.bits = vectors.ids().map(found).collect();
            jit.bits_address = jit.bits.as_ptr().expose_provenance();
            (jit.classes_address, jit.sets_address) = vectors.addresses();
            jit.linear_address = vectors.linear().as_ptr().expose_provenance();
        }
        if let Some(trie) = self.classifier.trie()
            && let Some((.., root)) = trie.root_field()
        {
            jit.root = root.into();
            jit.lines_address = trie.address();
            (_, jit.short_prefixes_address) = trie.short_prefixes();
            jit.rows_address = self.rows.as_ptr().expose_provenance();
        }
        self.jit = jit;
    }

    /// Hashes all that compiled code knows about the packing of keys.
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
            places.into_iter().for_each(|place| add(place.map_or(u64::MAX, hash_of_bits)));
        }
        hash
    }
}

impl LookupMethod {
    /// Hashes all that compiled code knows about the look-up.
    fn hash(&self, packing_hash: u64) -> u64 {
        let hash = match self {
            Self::Linear(LinearScan { rows, none }) => {
                hash::mix(packing_hash, *rows as u64 | (*none as u64) << 32 | 1 << 63)
            }
            Self::Vectors(BitVectors { chunks, words }) => {
                let chunks =
                    chunks.iter().map(|chunk| hash_of_bits(chunk.place) | u64::from(chunk.classes) << 32);
                chunks.fold(hash::mix(packing_hash, *words as u64), hash::mix)
            }
            Self::Trie(TrieField { place, bits, short_prefix_bits }) => {
                let bits = u64::from(*bits) | u64::from(*short_prefix_bits) << 8 | 1 << 32;
                hash::mix(hash::mix(packing_hash, bits), hash_of_bits(*place))
            }
        };
        // Never NO_LOOKUP.
        hash | 1
    }
}

/// Packs a position of bits into a word, for hashing.
fn hash_of_bits(place: KeyBits) -> u64 {
    u64::from(place.word) | u64::from(place.shift) << 8 | u64::from(place.bits) << 16
}
