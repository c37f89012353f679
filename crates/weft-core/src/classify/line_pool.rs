//! The memory of a trie: lines of 64 bytes, of which pieces are taken and given back.

use std::collections::BTreeMap;

/// Words of a line.
pub(super) const LINE: usize = 16;
/// Words of a quarter of a line, the smallest piece.
pub(super) const QUARTER: usize = LINE / 4;
/// LinePool have numbers of 25 bits, since quarters of lines have 28 and half of those are enough.
pub(super) const LINES_MAX: usize = 1 << 25;

/// Some words, which begin on a line of the cache.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine([u32; LINE]);

/// Lines, and which pieces of them are free.
#[derive(Clone, Debug, Default)]
pub(super) struct LinePool {
    lines: Vec<CacheLine>,
    /// The first words of free pieces, by their quarters.
    free: BTreeMap<usize, Vec<u32>>,
    /// LinePool that may still be added.
    room: usize,
}

impl LinePool {
    /// One line, which is nobody's, and room for so many more.
    pub(super) fn new(room: usize) -> Self {
        Self { lines: vec![CacheLine([0; LINE])], free: BTreeMap::new(), room: room.min(LINES_MAX - 1) }
    }

    /// As many lines again may be added as there are, and some.
    pub(super) fn make_room(&mut self) {
        self.room = (self.lines.len() + ROOM_MIN).min(LINES_MAX - self.lines.len());
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<CacheLine>()
    }

    pub(super) fn address(&self) -> usize {
        self.lines.as_ptr().expose_provenance()
    }

    /// The words of the line in which a word is.
    #[inline(always)]
    pub(super) fn line(&self, word: usize) -> &[u32; LINE] {
        &self.lines[word / LINE].0
    }

    #[inline(always)]
    pub(super) fn word(&self, at: usize) -> u32 {
        self.lines[at / LINE].0[at % LINE]
    }

    #[inline(always)]
    pub(super) fn set(&mut self, at: usize, word: u32) {
        self.lines[at / LINE].0[at % LINE] = word;
    }

    /// The first word of a free piece of so many words: a quarter or half of a line, or whole lines.
    pub(super) fn take(&mut self, words: usize) -> Option<usize> {
        let quarters = quarters(words);
        if let Some(first) = self.free.get_mut(&quarters).and_then(Vec::pop) {
            return Some(first as usize);
        }
        if quarters < LINE / QUARTER {
            let first = self.take(2 * quarters * QUARTER)?;
            self.give(first + quarters * QUARTER, quarters * QUARTER);
            return Some(first);
        }
        let lines = quarters / (LINE / QUARTER);
        self.room = self.room.checked_sub(lines)?;
        let first = self.lines.len() * LINE;
        self.lines.resize(self.lines.len() + lines, CacheLine([0; LINE]));
        Some(first)
    }

    /// Gives a piece back.
    pub(super) fn give(&mut self, first: usize, words: usize) {
        self.free.entry(quarters(words)).or_default().push(first as u32);
    }
}

/// LinePool that a trie may always add.
const ROOM_MIN: usize = 256;

/// Quarters of the piece in which so many words are kept.
fn quarters(words: usize) -> usize {
    match words.div_ceil(QUARTER) {
        few @ 0..=2 => few.max(1),
        more => more.next_multiple_of(LINE / QUARTER),
    }
}
