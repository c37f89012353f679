//! What is done with the notes of code that looks ahead: memory is asked for what the look-ups will read, for all
//! tuples of a batch before the first of them passes, so that its answers overlap.

use std::sync::Arc;
use weft_core::abi::State;
use weft_core::classify::WORDS_MAX;
use weft_core::matching::{Found, Matcher};
use weft_core::table::Table;

/// Tables and matchers of fewer bytes than this are in a core's own cache, and not asked for.
const BYTES_MIN: usize = 256 << 10;
/// Tuples whose matches are looked for side by side.
const AT_ONCE: usize = 64;
/// Bytes of a line of memory.
const LINE: usize = 64;

/// What code notes of a tuple, or a handler: the notes, and the word behind the last of them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Asks {
    pub(crate) asks: Vec<Ask>,
    pub(crate) words: usize,
}

/// One note: where it begins, and what it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    /// The hash of a key that this table will be asked for, or 0.
    Find {
        /// The table.
        table: u16,
        /// The word of the note.
        at: usize,
    },
    /// 1 and the words of a key that this matcher will be asked for, or 0.
    Match {
        /// The matcher.
        matcher: u16,
        /// The first word of the note.
        at: usize,
        /// How many words the key has.
        words: usize,
        /// How it is made: of use for a matcher whose keys are made so.
        packing: u64,
    },
}

impl Asks {
    /// Those of all handlers.
    pub(crate) fn all(each: Vec<Self>) -> Self {
        let words = each.iter().map(|asks| asks.words).max().unwrap_or(0);
        Self { asks: each.into_iter().flat_map(|asks| asks.asks).collect(), words }
    }

    /// A handler begins: what it notes is behind all others, or where it is already.
    pub(crate) fn begin(each: &mut [Self], at: usize) {
        each[at].words = each.iter().map(|asks| asks.words).max().unwrap_or(0);
    }

    /// Where a handler notes what it asks this table for. It has one note for look-ups on ways that exclude each other.
    pub(crate) fn find(&mut self, of: u16) -> usize {
        let known = self.asks.iter().find_map(|ask| match *ask {
            Ask::Find { table, at } if table == of => Some(at),
            _ => None,
        });
        known.unwrap_or_else(|| {
            let at = self.words;
            self.words += 1;
            self.asks.push(Ask::Find { table: of, at });
            at
        })
    }

    /// As [`Asks::find`], for a matcher.
    pub(crate) fn matching(&mut self, of: u16, words: usize, packing: u64) -> usize {
        let known = self.asks.iter().find_map(|ask| match *ask {
            Ask::Match { matcher, at, .. } if matcher == of => Some(at),
            _ => None,
        });
        known.unwrap_or_else(|| {
            let at = self.words;
            self.words += 1 + words;
            self.asks.push(Ask::Match { matcher: of, at, words, packing });
            at
        })
    }

    /// Whether something is asked that is worth it now.
    pub(crate) fn is_worth_it(&self, state: &State) -> bool {
        self.asks.iter().any(|ask| ask.is_worth_it(state))
    }

    /// Asks memory for what the look-ups of these notes will read.
    pub(crate) fn fetch(&self, state: &State, notes: &[u64]) {
        let asks = || self.asks.iter().filter(|ask| ask.is_worth_it(state));
        for ask in asks() {
            if let Ask::Find { table, at } = *ask {
                let table = &state.tables[usize::from(table)];
                let hashes = notes.chunks_exact(self.words).map(|notes| notes[at]).filter(|hash| *hash != 0);
                hashes.filter_map(|hash| table.slots_address(hash)).for_each(fetch_line);
            }
        }
        for ask in asks() {
            if let Ask::Match { matcher, at, words, .. } = *ask {
                let matcher = &state.matchers[usize::from(matcher)];
                for notes in notes.chunks(AT_ONCE * self.words) {
                    self.fetch_matches(matcher, at, words, notes);
                }
            }
        }
        // By now the slots are there.
        for ask in asks() {
            if let Ask::Find { table, at } = *ask {
                let table = &state.tables[usize::from(table)];
                let hashes = notes.chunks_exact(self.words).map(|notes| notes[at]).filter(|hash| *hash != 0);
                let rows = hashes.filter_map(|hash| table.row_near(hash));
                rows.for_each(|row| fetch(row, table.row_near_bytes()));
            }
        }
    }

    /// A match is made here and once more in the pass: what it reads is in the cache by then.
    fn fetch_matches(&self, matcher: &Arc<Matcher>, at: usize, words: usize, notes: &[u64]) {
        let mut keys = [0; AT_ONCE * WORDS_MAX];
        let mut n = 0;
        for note in notes.chunks_exact(self.words).map(|notes| &notes[at..=at + words]) {
            if note[0] != 0 {
                keys[n * words..][..words].copy_from_slice(&note[1..]);
                n += 1;
            }
        }
        let mut found = [Found::default(); AT_ONCE];
        matcher.find_all(&keys[..n * words], &mut found[..n]);
        let rows = found[..n].iter().filter(|found| found.address != 0);
        rows.for_each(|found| fetch(found.address, matcher.table().row_near_bytes()));
    }
}

impl Ask {
    fn is_worth_it(&self, state: &State) -> bool {
        match *self {
            Self::Find { table, .. } => {
                let table: &Table = &state.tables[usize::from(table)];
                table.len() as usize * table.row_near_bytes() > BYTES_MIN
            }
            Self::Match { matcher, packing, .. } => {
                let matcher = &state.matchers[usize::from(matcher)];
                matcher.packing() == packing && matcher.bytes() > BYTES_MIN
            }
        }
    }
}

/// Asks for the lines in which so many bytes lie, but not for more than a few.
#[inline(always)]
fn fetch(address: usize, bytes: usize) {
    let end = address + bytes.min(LINES_MAX * LINE);
    let first = address & !(LINE - 1);
    (first..end).step_by(LINE).for_each(fetch_line);
}

/// Lines of a row that are asked for: what handlers read of a row is at its beginning.
const LINES_MAX: usize = 3;

/// Asks for the line at an address.
#[inline(always)]
fn fetch_line(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: the instruction reads nothing: it is a hint, for whatever address.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
