//! Keys as words, and rules as boxes of words.
//!
//! The fields of a key are packed into words, each with a zero bit above it, its *guard*. With the guards of the key
//! set, one subtraction compares all fields of a word with their lower bounds, and another with their upper bounds: a
//! guard that is still set shows that no borrow crossed its field. So a rule of exact values, prefixes and ranges is a
//! `lo` and a `hi` for each word, and its check has no branches. A field of 64 bits has a word for itself and no guard;
//! a wider field has two positions.

use super::{Error, FIELDS_MAX, FieldSpec, Pattern, Rule, WORDS_MAX};
use crate::hash::HashKey;

/// The position of some bits of a field in a packed key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeyBits {
    /// The word of the key.
    pub word: u8,
    /// The position of the lowest bit in the word.
    pub shift: u8,
    /// The number of bits, 1 to 64.
    pub bits: u8,
}

impl KeyBits {
    /// These bits of a key.
    #[inline(always)]
    pub fn of(self, key: &[u64]) -> u64 {
        key[usize::from(self.word)] >> self.shift & ones(self.bits)
    }

    fn set(self, key: &mut Words, value: u64) {
        key[usize::from(self.word)] |= value << self.shift;
    }
}

/// The words of a key, or of one bound of a box. Unused words are 0.
pub(super) type Words = [u64; WORDS_MAX];

/// The layout of fields in a packed key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    fields: Vec<FieldSpec>,
    /// For each field the position of its low 64 bits, and of the bits above.
    places: Vec<(KeyBits, Option<KeyBits>)>,
    words: usize,
    pub(super) guards: Words,
    /// The secret that places keys in hash tables.
    pub(super) hash: HashKey,
}

impl Layout {
    /// Packs the fields, widest first, each into the first word with space. `hash` places keys in hash tables.
    ///
    /// # Errors
    /// [`Error::Fields`], if there is no field or there are more than [`FIELDS_MAX`]. The same if a field has not 1 to
    /// 128 bits, or if the fields need more than [`WORDS_MAX`] words.
    pub fn new(fields: &[FieldSpec], hash: HashKey) -> Result<Self, Error> {
        let sound = |field: &FieldSpec| (1..=128).contains(&field.bits);
        if fields.is_empty() || fields.len() > FIELDS_MAX || !fields.iter().all(sound) {
            return Err(Error::Fields);
        }
        let mut room = FreeBits::default();
        let nowhere = KeyBits { word: 0, shift: 0, bits: 0 };
        let mut places = vec![(nowhere, None); fields.len()];
        let mut order: Vec<usize> = (0..fields.len()).collect();
        order.sort_by_key(|&field| core::cmp::Reverse(fields[field].bits));
        for field in order {
            let bits = fields[field].bits;
            let high = if bits > 64 { Some(room.take(bits - 64)?) } else { None };
            places[field] = (room.take(bits.min(64))?, high);
        }
        Ok(Self { fields: fields.to_vec(), places, words: room.words, guards: room.guards, hash })
    }

    /// The fields, in the order of patterns and values.
    pub fn fields(&self) -> &[FieldSpec] {
        &self.fields
    }

    /// The words of a packed key: 1 to [`WORDS_MAX`].
    pub fn words(&self) -> usize {
        self.words
    }

    /// The position of the low 64 bits of a field, and of the bits above, if it has any.
    pub fn places(&self, field: usize) -> (KeyBits, Option<KeyBits>) {
        self.places[field]
    }

    /// Packs one value per field; bits beyond the width of a field are dropped. All other bits of the key are 0, which
    /// look-ups rely on.
    ///
    /// # Panics
    /// If `values` has not one value per field, or `key` is shorter than [`words`](Self::words).
    pub fn pack(&self, values: &[u128], key: &mut [u64]) {
        assert_eq!(values.len(), self.fields.len(), "one value for each field");
        let mut words = Words::default();
        for (field, &value) in values.iter().enumerate() {
            self.set(&mut words, field, value);
        }
        key[..self.words].copy_from_slice(&words[..self.words]);
    }

    /// The value of a field in a packed key.
    pub(super) fn value(&self, field: usize, key: &[u64]) -> u128 {
        let (low, high) = self.places[field];
        u128::from(low.of(key)) | high.map_or(0, |high| u128::from(high.of(key)) << 64)
    }

    /// All positions, those of one field together.
    pub(super) fn all_places(&self) -> impl Iterator<Item = KeyBits> {
        self.places.iter().flat_map(|&(low, high)| [Some(low), high]).flatten()
    }

    /// Compiles a rule to a box and an optional mask. An error if a pattern does not fit its field.
    pub(super) fn compile(&self, rule: &Rule) -> Result<Compiled, Error> {
        if rule.patterns.len() != self.fields.len() {
            return Err(Error::Patterns { expected: self.fields.len(), given: rule.patterns.len() });
        }
        let mut compiled = Compiled { lo: Words::default(), hi: Words::default(), extra: None };
        for (field, &pattern) in rule.patterns.iter().enumerate() {
            let bits = self.fields[field].bits;
            let span = Span::of(pattern, bits).ok_or(Error::Pattern { field })?;
            self.set(&mut compiled.lo, field, span.lo);
            self.set(&mut compiled.hi, field, span.hi);
            if let Some(mask) = span.mask {
                let extra = compiled.extra.get_or_insert_default();
                self.set(&mut extra.care, field, mask);
                self.set(&mut extra.want, field, span.lo);
            }
            // A box bounds a field of two words only by the high one. At its first and last value, the low one is
            // compared separately.
            if bits > 64 && span.mask.is_none() && !span.is_block() {
                let extra = compiled.extra.get_or_insert_default();
                extra.ranges.push((field as u8, span.lo, span.hi));
                let (low, _) = self.places[field];
                if span.lo >> 64 != span.hi >> 64 {
                    compiled.lo[usize::from(low.word)] = 0;
                    compiled.hi[usize::from(low.word)] = u64::MAX;
                }
            }
        }
        for (hi, guards) in compiled.hi.iter_mut().zip(&self.guards) {
            *hi |= guards;
        }
        Ok(compiled)
    }

    /// Whether a key satisfies the tests of a rule beyond its box.
    pub(super) fn passes(&self, extra: &Extra, key: &[u64]) -> bool {
        let masked =
            key.iter().zip(&extra.care).zip(&extra.want).all(|((key, care), want)| key & care == *want);
        let within = |&(field, lo, hi): &(u8, u128, u128)| {
            let value = self.value(usize::from(field), key);
            lo <= value && value <= hi
        };
        masked && extra.ranges.iter().all(within)
    }

    /// The bits that all keys of a box have in common, and whether they describe the box completely.
    pub(super) fn common(&self, lo: &[u64], hi: &[u64], extra: Option<&Extra>) -> (Words, bool) {
        let mut care = Words::default();
        let mut is_all = extra.is_none_or(|extra| extra.ranges.is_empty());
        for place in self.all_places() {
            let (lo, hi) = (place.of(lo), place.of(hi));
            let word = usize::from(place.word);
            let asked = extra.map_or(0, |extra| extra.care[word] >> place.shift & ones(place.bits));
            if asked != 0 {
                place.set(&mut care, asked);
                continue;
            }
            let free = ones(64 - (lo ^ hi).leading_zeros() as u8);
            is_all &= lo & free == 0 && hi & free == free;
            place.set(&mut care, ones(place.bits) & !free);
        }
        (care, is_all)
    }

    /// Writes the value of a field into a key.
    fn set(&self, key: &mut Words, field: usize, value: u128) {
        let (low, high) = self.places[field];
        low.set(key, value as u64 & ones(low.bits));
        if let Some(high) = high {
            high.set(key, (value >> 64) as u64 & ones(high.bits));
        }
    }
}

/// The compiled form of a rule: a box, and tests beyond the box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Compiled {
    pub(super) lo: Words,
    /// With the guards set.
    pub(super) hi: Words,
    pub(super) extra: Option<Extra>,
}

/// Masks that are no prefixes, and ranges over more than 64 bits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Extra {
    pub(super) care: Words,
    pub(super) want: Words,
    ranges: Vec<(u8, u128, u128)>,
}

/// Whether a key lies in a box, without a branch per field.
#[inline(always)]
pub(super) fn is_within<const N: usize>(key: &[u64; N], lo: &[u64], hi: &[u64], guards: &[u64; N]) -> bool {
    let (lo, hi): (&[u64; N], &[u64; N]) = match (lo.first_chunk(), hi.first_chunk()) {
        (Some(lo), Some(hi)) => (lo, hi),
        _ => return false,
    };
    let mut ok = true;
    for word in 0..N {
        let (key, guard) = (key[word] | guards[word], guards[word]);
        let kept = key.wrapping_sub(lo[word]) & hi[word].wrapping_sub(key & !guard) & guard;
        ok &= (kept == guard) & (lo[word] <= key) & (key <= hi[word]);
    }
    ok
}

/// A word with this many low bits set: 0 to 64.
#[inline(always)]
pub(super) const fn ones(bits: u8) -> u64 {
    if bits >= 64 { u64::MAX } else { (1 << bits) - 1 }
}

/// The values of a pattern: an interval, and a mask if not all of the interval match.
struct Span {
    lo: u128,
    hi: u128,
    mask: Option<u128>,
}

impl Span {
    /// Converts a pattern to an interval and a mask. None if the pattern is empty, or has bits outside the field.
    fn of(pattern: Pattern, bits: u8) -> Option<Self> {
        assert!((1..=128).contains(&bits), "a layout has no other fields");
        let all = u128::MAX >> (128 - bits);
        let (lo, hi, mask) = match pattern {
            Pattern::Any => (0, all, None),
            Pattern::Exact(value) => (value, value, None),
            Pattern::Prefix { len, .. } if len > bits => return None,
            Pattern::Prefix { value, len } => {
                let free = all.checked_shr(u32::from(len)).unwrap_or(0);
                (value & !free, value | free, None)
            }
            Pattern::Mask { mask, .. } if mask > all => return None,
            Pattern::Mask { value, mask } => {
                let is_prefix = (mask ^ all).wrapping_add(1) & (mask ^ all) == 0;
                (value & mask, value & mask | all & !mask, (!is_prefix).then_some(mask))
            }
            Pattern::Range { lo, hi } => (lo, hi, None),
        };
        (lo <= hi && hi <= all).then_some(Self { lo, hi, mask })
    }

    /// Whether the interval is a prefix.
    fn is_block(&self) -> bool {
        let free = self.lo ^ self.hi;
        free & free.wrapping_add(1) == 0 && self.lo & free == 0
    }
}

/// The free bits in the words of a key.
#[derive(Default)]
struct FreeBits {
    used: [u8; WORDS_MAX],
    words: usize,
    guards: Words,
}

impl FreeBits {
    /// Reserves bits for a field part in the first word with space. An error if all words are full.
    fn take(&mut self, bits: u8) -> Result<KeyBits, Error> {
        assert!((1..=64).contains(&bits), "wider fields have two parts");
        let width = bits + u8::from(bits < 64);
        let word = self.used.iter().position(|used| used + width <= 64).ok_or(Error::Fields)?;
        let shift = self.used[word];
        if bits < 64 {
            self.guards[word] |= 1 << (shift + bits);
        }
        self.used[word] += width;
        self.words = self.words.max(word + 1);
        Ok(KeyBits { word: word as u8, shift, bits })
    }
}
