//! Bit vectors, for small rule sets: for each chunk of a key, the set of rules that match its value.
//!
//! Each field part is divided into chunks of a few bits. The values of a chunk form classes that the same rules match.
//! Each class has these rules as a bit set, the best rule first. A look-up reads one class and one set per chunk and
//! takes the first bit that all sets share. No branch depends on the key, so look-ups of several keys overlap and all
//! cost the same.
//!
//! A rule can be represented if it has only prefixes and single values in the field parts that are divided; other rules
//! are left to trees. A field part of one wide chunk, such as a port, has its classes in pages, and identical pages are
//! stored once: rules name few ports, so the memory that look-ups read stays small. Compiled code compares a handful of
//! rules with the key one by one, if all of them are prefixes or single values.
//!
//! Source: bit vectors by field (T. Lakshman and D. Stiliadis, SIGCOMM 1998), with the classes of chunks of Recursive
//! Flow Classification (P. Gupta and N. McKeown, SIGCOMM 1999).

use core::hint::select_unpredictable;
use std::collections::BTreeMap;

use super::key::{KeyBits, Layout, ones};
use super::rule_store::{Rank, has_extra, id_of};
use super::tree::Input;
use super::{NOTHING, VECTOR_RULES_MAX};

/// Maximum width of a field part that is a single chunk.
const WHOLE_MAX: u8 = 16;
/// Maximum width of a chunk of a divided field part; wider chunks have pages.
const CHUNK_MAX: u8 = 11;
/// The lower bits of a value, which index a class in a page.
pub const PAGE_BITS: u8 = 8;
/// Classes per page.
const PAGE: usize = 1 << PAGE_BITS;
/// Maximum and padded number of rules for one-by-one comparison.
const LINEAR_MAX: usize = 4;
const LINEAR_LEAST: usize = 2;
/// Words of the largest set.
const WORDS_MAX: usize = VECTOR_RULES_MAX / 64;
const _: () = assert!(WORDS_MAX.is_power_of_two(), "sets have 1, 2, 4 ... words");
const _: () = assert!(PAGE_BITS <= CHUNK_MAX && CHUNK_MAX <= WHOLE_MAX, "a paged chunk has whole pages");
const _: () = assert!(LINEAR_LEAST <= LINEAR_MAX);

/// The rules as bit sets.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    chunks: Vec<Chunk>,
    /// For each value of each chunk, the number of its set. A paged chunk has the number of a page of `classes` for
    /// each value of its upper bits.
    classes: Vec<u16>,
    /// The sets, of `words` words each.
    sets: Vec<u64>,
    words: usize,
    /// The rank of the rule of each bit, best first.
    ranks: Vec<Rank>,
    /// The set of all rules.
    all: Vec<u64>,
    /// For few rules without ranges, the records for one-by-one comparison: a mask and a value for each word of a key.
    linear: Vec<u64>,
}

/// Some bits of a key.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    place: KeyBits,
    /// A mask of its width.
    mask: u64,
    /// The start of the classes of its values, or of their page numbers.
    classes: u32,
}

/// The first and last value of a chunk that a rule matches.
type Span = (u64, u64);

impl Vectors {
    /// Builds the sets for rules that are sorted best first. None if there are more than [`VECTOR_RULES_MAX`], if a
    /// rule cannot be represented by chunks, or if there are too many classes.
    pub(super) fn build(layout: &Layout, rules: &[Input]) -> Option<Self> {
        if rules.len() > VECTOR_RULES_MAX || rules.iter().any(|rule| has_extra(rule.rank)) {
            return None;
        }
        let words = rules.len().div_ceil(64).max(1).next_power_of_two();
        assert!(words <= WORDS_MAX, "there are at most VECTOR_RULES_MAX rules");
        let mut all = vec![0; words];
        (0..rules.len()).for_each(|rule| flip(&mut all, rule));
        let ranks = rules.iter().map(|rule| rule.rank).chain([0]).collect();
        let mut vectors = Self {
            chunks: Vec::new(),
            classes: Vec::new(),
            sets: Vec::new(),
            words,
            ranks,
            all,
            linear: linear(layout, rules),
        };
        let mut all = Vec::new();
        for place in layout.all_places() {
            for chunk in chunks(place) {
                let spans =
                    rules.iter().map(|rule| span(place, chunk, rule)).collect::<Option<Vec<Span>>>()?;
                all.extend(vectors.classes_of(chunk, &spans)?.map(|classes| (chunk, classes)));
            }
        }
        vectors.lay_out(all)?;
        Some(vectors)
    }

    /// The chunks that a look-up reads: their bits, and the start of their classes or page numbers.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (KeyBits, u32)> {
        self.chunks.iter().map(|chunk| (chunk.place, chunk.classes))
    }

    /// Words of a set.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// For few rules, best first: a mask and a value for each word of a key, padded with records that match nothing.
    /// Empty if there are more rules, or one has a range.
    pub(crate) fn linear(&self) -> &[u64] {
        &self.linear
    }

    /// The rule id of each bit; [`NOTHING`] for unused bits and behind the last bit.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let bits = self.words * 64 + 1;
        (0..bits).map(|bit| self.ranks.get(bit).map_or(NOTHING, |rank| id_of(*rank)))
    }

    /// The addresses of the classes of all chunks and of the sets, valid until a change.
    pub(crate) fn addresses(&self) -> (usize, usize) {
        (self.classes.as_ptr().expose_provenance(), self.sets.as_ptr().expose_provenance())
    }

    pub(super) fn bytes(&self) -> usize {
        self.classes.len() * 2 + (self.sets.len() + self.ranks.len() + self.all.len() + self.linear.len()) * 8
    }

    /// Finds the best rule for a key; returns its rank, or 0.
    #[inline(always)]
    pub(super) fn find<const N: usize>(&self, key: &[u64; N]) -> Rank {
        match self.words {
            1 => self.first::<N, 1>(key),
            2 => self.first::<N, 2>(key),
            4 => self.first::<N, 4>(key),
            _ => self.first::<N, WORDS_MAX>(key),
        }
    }

    /// Finds the best rule for a key with `N` words, by sets of `W` words; 0 if none matches.
    #[inline(always)]
    fn first<const N: usize, const W: usize>(&self, key: &[u64; N]) -> Rank {
        let Some(mut left) = self.all.first_chunk::<W>().copied() else { return 0 };
        let sets = self.sets.as_chunks::<W>().0;
        for Chunk { place, mask, classes } in &self.chunks {
            let word = key.get(usize::from(place.word)).copied().unwrap_or(0);
            let value = (word >> (place.shift & 63) & mask) as usize;
            let at = match is_paged(*place) {
                false => *classes as usize + value,
                true => {
                    let page = usize::from(self.classes[*classes as usize + (value >> PAGE_BITS)]);
                    page * PAGE + value % PAGE
                }
            };
            let set = &sets[usize::from(self.classes[at])];
            for (left, word) in left.iter_mut().zip(set) {
                *left &= word;
            }
        }
        // The position of the first bit is random, and a mispredicted branch costs more than all of this.
        let (mut first, mut bits) = (W - 1, left[W - 1]);
        for (at, word) in left.iter().enumerate().rev().skip(1) {
            first = select_unpredictable(*word != 0, at, first);
            bits = select_unpredictable(*word != 0, *word, bits);
        }
        let nth = first * 64 + bits.trailing_zeros() as usize;
        // Behind the last rule is the rank 0.
        self.ranks[select_unpredictable(bits != 0, nth, self.ranks.len() - 1)]
    }

    /// The number of the set for each value of a chunk. None inside if all rules match all values.
    fn classes_of(&mut self, chunk: KeyBits, spans: &[Span]) -> Option<Option<Vec<u16>>> {
        let mut changes: Vec<(u64, usize)> = Vec::new();
        for (rule, &(first, last)) in spans.iter().enumerate() {
            changes.extend([(first, rule), (last + 1, rule)]);
        }
        changes.sort_unstable();
        let end = ones(chunk.bits) + 1;
        if changes.iter().all(|(at, _)| *at == 0 || *at == end) {
            return Some(None);
        }
        let mut classes = Vec::with_capacity(end as usize);
        let mut known: BTreeMap<Vec<u64>, u16> = BTreeMap::new();
        let mut set = vec![0; self.words];
        let mut changes = changes.into_iter().peekable();
        let mut from = 0;
        while from < end {
            while let Some((_, rule)) = changes.next_if(|(at, _)| *at <= from) {
                flip(&mut set, rule);
            }
            let to = changes.peek().map_or(end, |(at, _)| *at);
            let number = number_of(&set, &mut known, &mut self.sets)?;
            classes.resize(to as usize, number);
            from = to;
        }
        assert_eq!(classes.len() as u64, end, "each value has a class");
        Some(Some(classes))
    }

    /// Lays out the classes in the order of look-ups: first those at positions that do not depend on the rules, so that
    /// compiled code works with other rules too, then the pages.
    fn lay_out(&mut self, all: Vec<(KeyBits, Vec<u16>)>) -> Option<()> {
        for (place, classes) in &all {
            let at = u32::try_from(self.classes.len()).ok()?;
            self.chunks.push(Chunk { place: *place, mask: ones(place.bits), classes: at });
            match is_paged(*place) {
                true => self.classes.resize(self.classes.len() + (classes.len() >> PAGE_BITS), 0),
                false => self.classes.extend_from_slice(classes),
            }
        }
        self.classes.resize(self.classes.len().next_multiple_of(PAGE), 0);
        for ((_, classes), chunk) in all.iter().zip(&self.chunks).filter(|((place, _), _)| is_paged(*place)) {
            let mut known = BTreeMap::new();
            for (nth, page) in classes.chunks(PAGE).enumerate() {
                let number = number_of(page, &mut known, &mut self.classes)?;
                self.classes[chunk.classes as usize + nth] = number;
            }
        }
        Some(())
    }
}

/// Whether the classes of a chunk are in pages.
pub fn is_paged(chunk: KeyBits) -> bool {
    chunk.bits > CHUNK_MAX
}

/// The number of a run among those of its length in a list; a new run is appended.
fn number_of<T: Copy + Ord>(run: &[T], known: &mut BTreeMap<Vec<T>, u16>, list: &mut Vec<T>) -> Option<u16> {
    if let Some(number) = known.get(run) {
        return Some(*number);
    }
    let number = u16::try_from(list.len() / run.len()).ok()?;
    list.extend_from_slice(run);
    known.insert(run.to_vec(), number);
    Some(number)
}

/// Toggles a rule in a set.
fn flip(set: &mut [u64], rule: usize) {
    set[rule / 64] ^= 1 << (rule % 64);
}

/// Splits a field part into chunks of about the same width.
fn chunks(place: KeyBits) -> impl Iterator<Item = KeyBits> {
    let n = if place.bits <= WHOLE_MAX { 1 } else { place.bits.div_ceil(CHUNK_MAX) };
    let wide = place.bits.div_ceil(n);
    (0..n).map(move |nth| {
        let shift = nth * wide;
        KeyBits { shift: place.shift + shift, bits: wide.min(place.bits - shift), ..place }
    })
}

/// Builds [`Vectors::linear`]. Empty if there are too many rules, or a rule is not a masked comparison.
fn linear(layout: &Layout, rules: &[Input]) -> Vec<u64> {
    let are_blocks = |rule: &Input| layout.all_places().all(|place| is_block(place, rule));
    if rules.len() > LINEAR_MAX || !rules.iter().all(are_blocks) {
        return Vec::new();
    }
    let looked_at = |rule: &Input| {
        let words = rule.lo.iter().zip(rule.hi.iter()).take(layout.words());
        words.flat_map(|(lo, hi)| [!(lo ^ hi), lo & !(lo ^ hi)]).collect::<Vec<u64>>()
    };
    let mut linear: Vec<u64> = rules.iter().flat_map(looked_at).collect();
    // Padded, so that the same compiled code works after a rule is added or removed.
    let padded = if rules.len() <= LINEAR_LEAST { LINEAR_LEAST } else { LINEAR_MAX };
    let nothing = [0, 1].into_iter().cycle().take(2 * layout.words() * (padded - rules.len()));
    linear.extend(nothing);
    linear
}

/// Whether a rule has a single value or a prefix in a field part.
fn is_block(place: KeyBits, rule: &Input) -> bool {
    let [lo, hi] = [&rule.lo, &rule.hi].map(|corner| place.of(corner));
    let free = lo ^ hi;
    free & free.wrapping_add(1) == 0 && lo & free == 0
}

/// The values of a chunk that a rule matches; None if that does not depend on the chunk alone.
fn span(place: KeyBits, chunk: KeyBits, rule: &Input) -> Option<Span> {
    (is_block(place, rule) || chunk == place).then(|| (chunk.of(&rule.lo), chunk.of(&rule.hi)))
}
