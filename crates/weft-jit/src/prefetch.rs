//! The runtime part of the prefetcher: makes the lookups for all tuples of a batch before the first of them passes.
//!
//! So their cache misses overlap, and the rows are prefetched as well. The pass of a tuple uses the result if it looks
//! up the same key. Compiled prefetch code (`translate::prefetch`) fills the prefetch slots with keys and hashes;
//! [`PrefetchLayout::fetch`] makes the lookups.

use crate::helpers::RowRef;
use core::sync::atomic::AtomicU64;
use core::sync::atomic::Ordering::Acquire;
use std::sync::Arc;
use weft_core::abi::State;
use weft_core::classify::WORDS_MAX;
use weft_core::matching::{MatchedRow, Matcher};
use weft_core::prefetch::CORE_CACHE_BYTES;
use weft_core::table::Table;

/// Number of tuples whose matches are found together.
const AT_ONCE: usize = 64;
/// The same for a short batch.
const FEW: usize = 8;
/// Bytes of a cache line.
const CACHE_LINE_BYTES: usize = 64;

/// Words of a find's slot: a hash, a row and its address. Before the lookup, the third word is the address of the hash
/// slots.
const FIND_WORDS: usize = 3;
/// The first word of a match's slot after the lookup.
pub(crate) const MATCHED: u64 = 2;
/// Largest number of prefetch words of a tuple.
pub(crate) const SLOT_WORDS_MAX: usize = 64;

/// The prefetches of one handler or of all: what they are, and the number of words after the last.
#[derive(Clone, Debug, Default)]
pub(crate) struct PrefetchLayout {
    pub(crate) prefetches: Vec<Prefetch>,
    pub(crate) words: usize,
    /// Prefetch whatever the sizes of the tables are.
    pub(crate) is_always_fetched: bool,
}

/// One prefetch, and the index of its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Prefetch {
    /// The hash of a key to find in this table, 0, and the address of the first slot of its home; or zeros. After the
    /// lookup the latter two are the row and its address, or zeros if there is none. The row may have been removed
    /// since.
    Find {
        /// The table.
        table: u16,
        /// The index of the first word.
        at: usize,
    },
    /// 0 if there is no key; else 1 and the words of a key to find in this matcher. After the lookup [`MATCHED`]
    /// replaces the 1, and the row and its address follow the words. A matcher does not change while a state has it, so
    /// the result stays valid for its key.
    Match {
        /// The matcher.
        matcher: u16,
        /// The index of the first word.
        at: usize,
        /// Number of words of the key.
        words: usize,
        /// How the key is packed; only a matcher with the same packing can use it.
        packing: u64,
    },
}

impl PrefetchLayout {
    /// Joins the prefetches of all handlers.
    pub(crate) fn all(each: &[Self], is_always_fetched: bool) -> Self {
        let words = each.iter().map(|layout| layout.words).max().unwrap_or(0);
        Self {
            prefetches: each.iter().flat_map(|layout| layout.prefetches.clone()).collect(),
            words,
            is_always_fetched,
        }
    }

    /// Begins a handler: its words follow those of all others, unless it has begun before.
    pub(crate) fn begin(each: &mut [Self], at: usize) {
        each[at].words = each.iter().map(|layout| layout.words).max().unwrap_or(0);
    }

    /// Adds a find in this table; returns the index of its first word. Lookups on paths that exclude each other share
    /// it. Returns None where there is no room.
    pub(crate) fn add_find(&mut self, of: u16) -> Option<usize> {
        self.find_slot(of).or_else(|| self.add(FIND_WORDS, |at| Prefetch::Find { table: of, at }))
    }

    /// As [`PrefetchLayout::add_find`], for a matcher.
    pub(crate) fn add_match(&mut self, of: u16, words: usize, packing: u64) -> Option<usize> {
        let prefetch = |at| Prefetch::Match { matcher: of, at, words, packing };
        self.match_slot(of).or_else(|| self.add(1 + words + 2, prefetch))
    }

    /// The index of the first word of the find in this table, if there is one.
    pub(crate) fn find_slot(&self, of: u16) -> Option<usize> {
        self.prefetches.iter().find_map(|prefetch| match *prefetch {
            Prefetch::Find { table, at } if table == of => Some(at),
            _ => None,
        })
    }

    /// As [`PrefetchLayout::find_slot`], for a matcher.
    pub(crate) fn match_slot(&self, of: u16) -> Option<usize> {
        self.prefetches.iter().find_map(|prefetch| match *prefetch {
            Prefetch::Match { matcher, at, .. } if matcher == of => Some(at),
            _ => None,
        })
    }

    /// Reserves slot words for a prefetch and adds it; returns its first word. None if the slots are full.
    fn add(&mut self, words: usize, prefetch: impl FnOnce(usize) -> Prefetch) -> Option<usize> {
        let at = self.words;
        (at + words <= SLOT_WORDS_MAX).then(|| {
            self.words += words;
            self.prefetches.push(prefetch(at));
            at
        })
    }

    /// Whether at least one prefetch pays off now.
    pub(crate) fn pays(&self, state: &State) -> bool {
        self.worthwhile(state).next().is_some()
    }

    /// Iterates over the prefetches that fit the state and read more than the cache holds, or all if the code always
    /// fetches.
    fn worthwhile(&self, state: &State) -> impl Iterator<Item = Prefetch> {
        let prefetches = self.prefetches.iter().copied();
        prefetches.filter(move |prefetch| {
            prefetch.packs_alike(state) && (self.is_always_fetched || prefetch.exceeds_cache(state))
        })
    }

    /// Makes the lookups, all of one kind together, and stores the results. Lookups in tables that fit in a core's own
    /// cache are left to the pass.
    pub(crate) fn fetch(&self, state: &State, prefetched: &mut [u64]) {
        for prefetched in prefetched.chunks_mut(AT_ONCE * self.words) {
            for prefetch in self.worthwhile(state) {
                if let Prefetch::Find { at, .. } = prefetch {
                    self.fetch_slots(at, prefetched);
                }
            }
            for prefetch in self.worthwhile(state) {
                if let Prefetch::Match { matcher, at, words, .. } = prefetch {
                    self.match_all(&state.matchers[usize::from(matcher)], at, words, prefetched);
                }
            }
            // By now the slots are in the cache.
            for prefetch in self.worthwhile(state) {
                if let Prefetch::Find { table, at } = prefetch {
                    self.find_all(&state.tables[usize::from(table)], at, prefetched);
                }
            }
        }
    }

    /// Fetches the index slots that the look-ups of all tuples will read.
    fn fetch_slots(&self, at: usize, prefetched: &[u64]) {
        for prefetched in prefetched.chunks_exact(self.words) {
            let first = prefetched[at + 2] as usize;
            // Both slots that a lookup reads: for one key in eight the second is in the next line.
            fetch_line(first);
            fetch_line(first.wrapping_add(size_of::<u64>()));
        }
    }

    /// Finds the rows of all tuples and fetches their cache lines.
    fn find_all(&self, table: &Table, at: usize, prefetched: &mut [u64]) {
        let lines = RowCacheLines::of(table);
        match lines.n {
            1 => self.find_rows::<1>(table, lines, at, prefetched),
            2 => self.find_rows::<2>(table, lines, at, prefetched),
            _ => self.find_rows::<CACHE_LINES_MAX>(table, lines, at, prefetched),
        }
    }

    /// As [`PrefetchLayout::find_all`], where the first `N` lines of each row are prefetched, and its last.
    #[inline(never)]
    fn find_rows<const N: usize>(
        &self,
        table: &Table,
        lines: RowCacheLines,
        at: usize,
        prefetched: &mut [u64],
    ) {
        let rows = table.rows();
        for prefetched in prefetched.chunks_exact_mut(self.words) {
            let Some([hash, row, address]) = prefetched[at..].first_chunk_mut() else { continue };
            if *address == 0 {
                continue;
            }
            let slots = core::ptr::with_exposed_provenance::<[AtomicU64; 2]>(*address as usize);
            // SAFETY: compiled code computed the address for this table. Its slots stay in place while it lives, even
            // those no longer in use, and at least two follow the last home.
            let slots = unsafe { &*slots }.each_ref().map(|slot| slot.load(Acquire));
            let (found, at) = rows.candidate(*hash, slots).map_or((0, 0), |(row, at)| (row.0, at));
            (*row, *address) = (found, at as u64);
            if at != 0 {
                (0..N).for_each(|nth| fetch_line(at.wrapping_add(nth * CACHE_LINE_BYTES)));
                fetch_line(at.wrapping_add(lines.last));
            }
        }
    }

    /// Matches the keys of all tuples and stores the rows that they found.
    fn match_all(&self, matcher: &Arc<Matcher>, at: usize, words: usize, prefetched: &mut [u64]) {
        match words {
            // Buffers for longer keys would have to be cleared.
            1 => self.match_words::<1>(matcher, at, words, prefetched),
            2 => self.match_words::<2>(matcher, at, words, prefetched),
            // A network of either address family.
            3 => self.match_words::<3>(matcher, at, words, prefetched),
            _ => self.match_words::<WORDS_MAX>(matcher, at, words, prefetched),
        }
    }

    /// As [`PrefetchLayout::match_all`], for keys of at most `N` words.
    fn match_words<const N: usize>(
        &self,
        matcher: &Arc<Matcher>,
        at: usize,
        words: usize,
        prefetched: &mut [u64],
    ) {
        // Most batches of a lightly loaded node are short.
        match prefetched.len() <= FEW * self.words {
            true => self.match_keys::<N, FEW>(matcher, at, words, prefetched),
            false => self.match_keys::<N, AT_ONCE>(matcher, at, words, prefetched),
        }
    }

    /// As [`PrefetchLayout::match_words`], for at most `M` tuples.
    fn match_keys<const N: usize, const M: usize>(
        &self,
        matcher: &Arc<Matcher>,
        at: usize,
        words: usize,
        prefetched: &mut [u64],
    ) {
        let mut keys = [[0; N]; M];
        let keys = keys.as_flattened_mut();
        let mut n = 0;
        for prefetched in prefetched.chunks_exact(self.words) {
            if prefetched[at] == 0 {
                continue;
            }
            for (to, word) in keys[n * words..].iter_mut().zip(&prefetched[at + 1..][..words]) {
                *to = *word;
            }
            n += 1;
        }
        let mut found = [MatchedRow::default(); M];
        matcher.find_all(&keys[..n * words], &mut found[..n]);
        let lines = RowCacheLines::of(matcher.table());
        let mut found = found.iter();
        for prefetched in prefetched.chunks_exact_mut(self.words) {
            if prefetched[at] == 0 {
                continue;
            }
            let Some(found) = found.next() else { return };
            lines.fetch(found.address);
            let RowRef { row, address } = RowRef::matched(*found);
            prefetched[at] = MATCHED;
            prefetched[at + 1 + words..][..2].copy_from_slice(&[row, address]);
        }
    }
}

impl Prefetch {
    /// Whether the matcher packs its keys as the compiled code does.
    fn packs_alike(&self, state: &State) -> bool {
        match *self {
            Self::Find { .. } => true,
            Self::Match { matcher, packing, .. } => {
                state.matchers[usize::from(matcher)].packing_hash() == packing
            }
        }
    }

    /// Whether the table or matcher is larger than a core's own cache.
    fn exceeds_cache(&self, state: &State) -> bool {
        match *self {
            Self::Find { table, .. } => {
                let table: &Table = &state.tables[usize::from(table)];
                table.len() as usize * table.row_base_bytes() > CORE_CACHE_BYTES
            }
            Self::Match { matcher, .. } => state.matchers[usize::from(matcher)].is_far(),
        }
    }
}

/// Which cache lines of a table's rows are prefetched.
#[derive(Clone, Copy)]
struct RowCacheLines {
    /// Number of lines from the start of a row.
    n: usize,
    /// Offset of the last byte that is prefetched.
    last: usize,
}

impl RowCacheLines {
    fn of(table: &Table) -> Self {
        let bytes = table.row_base_bytes().min(CACHE_LINES_MAX * CACHE_LINE_BYTES);
        Self { n: bytes.div_ceil(CACHE_LINE_BYTES), last: bytes - 1 }
    }

    /// Prefetches the same number of lines for each row, whatever its alignment: a branch on that would be
    /// unpredictable.
    #[inline(always)]
    fn fetch(self, row: usize) {
        (0..self.n).for_each(|nth| fetch_line(row.wrapping_add(nth * CACHE_LINE_BYTES)));
        fetch_line(row.wrapping_add(self.last));
    }
}

/// Largest number of cache lines of a row that are prefetched: handlers read the beginning of a row.
const CACHE_LINES_MAX: usize = 3;

/// Prefetches a line of a queue. For an index out of range it prefetches unrelated memory, which is harmless and
/// cheaper than a check.
pub(crate) fn fetch_queue_line(lines: &[weft_ir::queue::direct::CacheLine], nth: usize) {
    fetch_line(lines.as_ptr().wrapping_add(nth).addr());
}

/// Prefetches the cache line at an address.
#[inline(always)]
fn fetch_line(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads nothing; it is a hint, valid for any address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T1, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T1>(core::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
