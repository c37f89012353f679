//! Few rules: for each chunk of a key, the set of rules that admit its value.
//!
//! Each place of a key is cut into chunks of a few bits. The values of a chunk fall into classes, all of whose values
//! the same rules admit, and each class has these rules as a set of bits, the best rule first. A look-up reads one
//! class and one set a chunk and takes the first bit that all sets have: no branch depends on the key, so look-ups of
//! several keys overlap, and none costs more than another. A rule that is a box of places is one of chunks if it asks
//! for blocks (prefixes, single values) of those places that are cut; tables with others are left to trees. The classes
//! of a place that is one wide chunk, such as a port, are in pages, of which those that are the same are one: rules ask
//! for few ports, so that what look-ups read stays small. Compiled code compares a key with a handful of rules one by
//! one, where all of them are blocks.
//!
//! Source: bit vectors by field (T. Lakshman and D. Stiliadis, SIGCOMM 1998), with the classes of chunks of Recursive
//! Flow Classification (P. Gupta and N. McKeown, SIGCOMM 1999).

use core::hint::select_unpredictable;
use std::collections::BTreeMap;

use super::key::{KeyBits, Layout, ones};
use super::rule_store::{Rank, has_extra, id_of};
use super::tree::Input;
use super::{NOTHING, VECTOR_RULES_MAX};

/// Bits of a place that is one chunk.
const WHOLE_MAX: u8 = 16;
/// Bits of a chunk of a place that is cut; the classes of a chunk with more are in pages.
const CHUNK_MAX: u8 = 11;
/// The lower bits of a value, which number a class of a page.
pub const PAGE_BITS: u8 = 8;
/// Classes of a page.
const PAGE: usize = 1 << PAGE_BITS;
/// Rules that are compared with a key one by one, and as how many fewer count.
const FEW_MAX: usize = 4;
const FEW_LEAST: usize = 2;
/// Words of the widest set.
const WORDS_MAX: usize = VECTOR_RULES_MAX / 64;

/// The rules as sets of bits.
#[derive(Clone, Debug)]
pub(crate) struct Vectors {
    chunks: Vec<Chunk>,
    /// For each value of each chunk, the number of its set. Chunks in pages have the number of a page of `classes` for
    /// each value of their upper bits.
    classes: Vec<u16>,
    /// Sets of `words` words each.
    sets: Vec<u64>,
    words: usize,
    /// All rules, the best first: bit by bit.
    ranks: Vec<Rank>,
    /// The set of all of them.
    all: Vec<u64>,
    /// Of few rules that are blocks, each in turn: for each word of a key which bits are looked at, and what they are.
    few: Vec<u64>,
}

/// Some bits of a key.
#[derive(Clone, Copy, Debug)]
struct Chunk {
    place: KeyBits,
    /// As many ones as it has bits.
    mask: u64,
    /// Where the classes of its values begin, or the numbers of their pages.
    classes: u32,
}

/// Which values of a chunk a rule admits: the first and the last.
type Span = (u64, u64);

impl Vectors {
    /// Sets of rules that come best first. None if there are more than [`VECTOR_RULES_MAX`], or one is no box of
    /// chunks, or there are more classes than have numbers.
    pub(super) fn build(layout: &Layout, rules: &[Input]) -> Option<Self> {
        if rules.len() > VECTOR_RULES_MAX || rules.iter().any(|rule| has_extra(rule.rank)) {
            return None;
        }
        let words = rules.len().div_ceil(64).max(1).next_power_of_two();
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
            few: few(layout, rules),
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

    /// The chunks that a look-up reads: their bits, and where their classes begin, or the numbers of their pages.
    pub(crate) fn chunks(&self) -> impl Iterator<Item = (KeyBits, u32)> {
        self.chunks.iter().map(|chunk| (chunk.place, chunk.classes))
    }

    /// Words of a set.
    pub(crate) fn words(&self) -> usize {
        self.words
    }

    /// For each of few rules, the best first, and for each word of a key, which bits are looked at, and what they are;
    /// behind the last rule are some that match nothing. Nothing, if there are more rules, or one is no block.
    pub(crate) fn few(&self) -> &[u64] {
        &self.few
    }

    /// The rule that each bit of a set stands for, [`NOTHING`] for none and behind the last bit.
    pub(crate) fn ids(&self) -> impl Iterator<Item = u32> {
        let bits = self.words * 64 + 1;
        (0..bits).map(|bit| self.ranks.get(bit).map_or(NOTHING, |rank| id_of(*rank)))
    }

    /// Where the classes of all chunks begin, and where the sets do, for as long as nothing is changed.
    pub(crate) fn addresses(&self) -> (usize, usize) {
        (self.classes.as_ptr().expose_provenance(), self.sets.as_ptr().expose_provenance())
    }

    pub(super) fn bytes(&self) -> usize {
        self.classes.len() * 2 + (self.sets.len() + self.ranks.len() + self.all.len() + self.few.len()) * 8
    }

    /// The best rule for a key, or 0.
    #[inline(always)]
    pub(super) fn find<const N: usize>(&self, key: &[u64; N]) -> Rank {
        match self.words {
            1 => self.first::<N, 1>(key),
            2 => self.first::<N, 2>(key),
            4 => self.first::<N, 4>(key),
            _ => self.first::<N, WORDS_MAX>(key),
        }
    }

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
        // Which word has the first bit is chance, and a branch on chance costs more than all of this.
        let (mut first, mut bits) = (W - 1, left[W - 1]);
        for (at, word) in left.iter().enumerate().rev().skip(1) {
            first = select_unpredictable(*word != 0, at, first);
            bits = select_unpredictable(*word != 0, *word, bits);
        }
        let nth = first * 64 + bits.trailing_zeros() as usize;
        // Behind the last rule there is none.
        self.ranks[select_unpredictable(bits != 0, nth, self.ranks.len() - 1)]
    }

    /// For each value of a chunk the number of its set; nothing, if all rules admit all of them.
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
        Some(Some(classes))
    }

    /// Puts the classes where look-ups read them: first what has its place whatever the rules are, so that compiled
    /// code finds it with other rules, too, and then the pages.
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

/// The number of a run among those of its length in a list, to which it is added if it is not known.
fn number_of<T: Copy + Ord>(run: &[T], known: &mut BTreeMap<Vec<T>, u16>, list: &mut Vec<T>) -> Option<u16> {
    if let Some(number) = known.get(run) {
        return Some(*number);
    }
    let number = u16::try_from(list.len() / run.len()).ok()?;
    list.extend_from_slice(run);
    known.insert(run.to_vec(), number);
    Some(number)
}

/// Puts a rule into a set, or takes it out.
fn flip(set: &mut [u64], rule: usize) {
    set[rule / 64] ^= 1 << (rule % 64);
}

/// The chunks of a place.
fn chunks(place: KeyBits) -> impl Iterator<Item = KeyBits> {
    let n = if place.bits <= WHOLE_MAX { 1 } else { place.bits.div_ceil(CHUNK_MAX) };
    let wide = place.bits.div_ceil(n);
    (0..n).map(move |nth| {
        let shift = nth * wide;
        KeyBits { shift: place.shift + shift, bits: wide.min(place.bits - shift), ..place }
    })
}

/// See [`Vectors::few`].
fn few(layout: &Layout, rules: &[Input]) -> Vec<u64> {
    let are_blocks = |rule: &Input| layout.all_places().all(|place| is_block(place, rule));
    if rules.len() > FEW_MAX || !rules.iter().all(are_blocks) {
        return Vec::new();
    }
    let looked_at = |rule: &Input| {
        let words = rule.lo.iter().zip(rule.hi.iter()).take(layout.words());
        words.flat_map(|(lo, hi)| [!(lo ^ hi), lo & !(lo ^ hi)]).collect::<Vec<u64>>()
    };
    let mut few: Vec<u64> = rules.iter().flat_map(looked_at).collect();
    // So that the same code does when a rule comes or goes.
    let padded = if rules.len() <= FEW_LEAST { FEW_LEAST } else { FEW_MAX };
    let nothing = [0, 1].into_iter().cycle().take(2 * layout.words() * (padded - rules.len()));
    few.extend(nothing);
    few
}

/// Whether a rule asks for one value of a place, or for a prefix.
fn is_block(place: KeyBits, rule: &Input) -> bool {
    let [lo, hi] = [&rule.lo, &rule.hi].map(|corner| place.of(corner));
    let free = lo ^ hi;
    free & free.wrapping_add(1) == 0 && lo & free == 0
}

/// What a rule admits of a chunk of a place; None if that is no matter of the chunk alone.
fn span(place: KeyBits, chunk: KeyBits, rule: &Input) -> Option<Span> {
    (is_block(place, rule) || chunk == place).then(|| (chunk.of(&rule.lo), chunk.of(&rule.hi)))
}
