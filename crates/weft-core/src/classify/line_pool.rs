//! The memory of a trie: lines of 64 bytes, allocated in pieces.

use std::collections::BTreeMap;

/// Words of a line.
pub(super) const LINE: usize = 16;
/// Words of a quarter of a line, the smallest piece.
pub(super) const QUARTER: usize = LINE / 4;
/// Line numbers have 25 bits: numbers of quarter lines have 28 bits, of which half are enough.
pub(super) const LINES_MAX: usize = 1 << 25;

/// Words aligned to a cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct CacheLine([u32; LINE]);

const _: () =
    assert!(size_of::<CacheLine>() == 64 && align_of::<CacheLine>() == 64, "a look-up reads whole lines");
const _: () = assert!(LINE.is_power_of_two() && LINE == 4 * QUARTER);
const _: () =
    assert!(LINES_MAX * (LINE / QUARTER) <= 1 << 28, "the entry of a run has 28 bits for its first quarter");

/// The lines, and the free pieces in them.
#[derive(Clone, Debug, Default)]
pub(super) struct LinePool {
    lines: Vec<CacheLine>,
    /// The first words of free pieces, by size in quarters.
    free: BTreeMap<usize, Vec<u32>>,
    /// The number of lines that may still be added.
    room: usize,
}

impl LinePool {
    /// One unused line, and space for this many more.
    pub(super) fn new(room: usize) -> Self {
        Self { lines: vec![CacheLine([0; LINE])], free: BTreeMap::new(), room: room.min(LINES_MAX - 1) }
    }

    /// Allows as many new lines as there are, and some more.
    pub(super) fn make_room(&mut self) {
        self.room = (self.lines.len() + ROOM_MIN).min(LINES_MAX - self.lines.len());
    }

    pub(super) fn bytes(&self) -> usize {
        self.lines.len() * size_of::<CacheLine>()
    }

    pub(super) fn address(&self) -> usize {
        self.lines.as_ptr().expose_provenance()
    }

    /// The words of the line that contains a word.
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

    /// Allocates a piece of this many words: a quarter or half of a line, or whole lines. Returns its first word.
    pub(super) fn take(&mut self, words: usize) -> Option<usize> {
        let quarters = quarters(words);
        if let Some(first) = self.free.get_mut(&quarters).and_then(Vec::pop) {
            return Some(first as usize);
        }
        if quarters < LINE / QUARTER {
            let first = self.take(2 * quarters * QUARTER)?;
            self.free_piece(first + quarters * QUARTER, quarters * QUARTER);
            return Some(first);
        }
        let lines = quarters / (LINE / QUARTER);
        self.room = self.room.checked_sub(lines)?;
        let first = self.lines.len() * LINE;
        self.lines.resize(self.lines.len() + lines, CacheLine([0; LINE]));
        assert!(self.lines.len() <= LINES_MAX, "the room counts the lines that are left");
        Some(first)
    }

    /// Frees a piece.
    pub(super) fn free_piece(&mut self, first: usize, words: usize) {
        assert!(
            first.is_multiple_of(QUARTER) && first + words <= self.lines.len() * LINE,
            "it is a piece of the pool"
        );
        self.free.entry(quarters(words)).or_default().push(first as u32);
    }
}

/// Minimum number of lines that a trie may add.
const ROOM_MIN: usize = 256;

/// Rounds a number of words up to the size of a piece, in quarters of a line.
fn quarters(words: usize) -> usize {
    match words.div_ceil(QUARTER) {
        few @ 0..=2 => few.max(1),
        more => more.next_multiple_of(LINE / QUARTER),
    }
}
