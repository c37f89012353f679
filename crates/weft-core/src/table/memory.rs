//! The memory of a table: pieces that begin where a line of memory does, cut from blocks that grow with the table.
//!
//! A look-up among many rows waits for memory three times over: for the line, for the translation of its address, and
//! for the next line if what it reads does not begin with one. So a row of 64 bytes is one line, and what is large lies
//! together, in blocks that a [`BlockSource`] may have in huge pages. A piece is kept as long as its table, which needs
//! no list of what is free.

#![expect(clippy::disallowed_types, reason = "taken when a stripe grows, a few times in a table's life")]

use core::ops::Deref;
use core::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Words of a line of memory.
const LINE_WORDS: usize = 8;
/// Bytes of a huge page; a block begins with one if it is larger.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Words of a huge page.
const PAGE_WORDS: usize = HUGE_PAGE_BYTES / 8;
/// Bytes that pieces of one table take before there are blocks for several pieces.
const ALONE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the largest block.
const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Where blocks of two huge pages and more come from: what knows of memory that is faster to look into, and in which
/// only what was written to is resident.
#[derive(Clone, Copy, Debug)]
pub struct BlockSource {
    /// Gives so many words, all 0.
    pub block: fn(usize) -> Box<[AtomicU64]>,
    /// Is told of words of a block that will be written to soon, to make them resident: a huge page takes its time,
    /// which no tuple should wait for.
    pub prefault: fn(&[AtomicU64]),
}

static SOURCE: OnceLock<BlockSource> = OnceLock::new();

/// Blocks come from there from now on. The first source stays.
pub fn set_block_source(source: BlockSource) {
    _ = SOURCE.set(source);
}

/// Where a table takes its memory from.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<Cut>);

/// How far the newest block is in use.
#[derive(Debug, Default)]
struct Cut {
    block: Option<Block>,
    used: usize,
    /// Words of all pieces.
    taken: usize,
}

type Block = Arc<Box<[AtomicU64]>>;

/// Some words of a block. A table has many pieces, so their places have 32 bits; no index or segment has more words.
#[derive(Debug)]
pub(super) struct Piece {
    block: Block,
    first: u32,
    len: u32,
}

impl Memory {
    /// So many words, all 0, of which the first begins a line.
    #[cold]
    pub(super) fn take(&self, words: usize) -> Piece {
        let mut cut = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = words.next_multiple_of(LINE_WORDS);
        cut.taken += n;
        let taken_bytes = cut.taken * 8;
        let has_room = |block: &&Block| block.len() - cut.used >= n;
        let (block, first, before) = match cut.block.as_ref().filter(has_room) {
            Some(block) => (Arc::clone(block), cut.used, cut.used),
            None if taken_bytes <= ALONE_BYTES_MAX => {
                let (block, first) = aligned(zeros(n + LINE_WORDS - 1), LINE_WORDS);
                return Piece::new(block, first, words);
            }
            None => {
                // As much again as there is.
                let grown = taken_bytes.next_power_of_two().clamp(2 * HUGE_PAGE_BYTES, BLOCK_BYTES_MAX) / 8;
                let make = SOURCE.get().map_or(zeros as fn(usize) -> Box<[AtomicU64]>, |source| source.block);
                let (block, first) = aligned(make(n.max(grown) + PAGE_WORDS - 1), PAGE_WORDS);
                (block, first, 0)
            }
        };
        (cut.block, cut.used) = (Some(Arc::clone(&block)), first + n);
        prefault_next_page(&block, before, first + n);
        Piece::new(block, first, words)
    }
}

/// Tells of the page behind those in use, if the use of a block grows from one page to another.
fn prefault_next_page(block: &Block, before: usize, now: usize) {
    let Some(source) = SOURCE.get() else { return };
    let start = block.as_ptr().addr();
    let page = |at: usize| (start + at * 8) / HUGE_PAGE_BYTES;
    if page(before) != page(now) {
        let next = ((page(now) + 1) * HUGE_PAGE_BYTES - start) / 8;
        (source.prefault)(&block[next.min(block.len())..(next + PAGE_WORDS).min(block.len())]);
    }
}

impl Piece {
    fn new(block: Block, first: usize, len: usize) -> Self {
        let place = |n: usize| u32::try_from(n).expect("a block has fewer than 2^32 words");
        Self { first: place(first), len: place(len), block }
    }
}

fn zeros(words: usize) -> Box<[AtomicU64]> {
    vec![0; words].into_iter().map(AtomicU64::new).collect()
}

/// A block, and the first of its words that is aligned to so many.
fn aligned(block: Box<[AtomicU64]>, align: usize) -> (Block, usize) {
    let first = block.as_ptr().align_offset(align * 8).min(align - 1);
    (Arc::new(block), first)
}

impl Deref for Piece {
    type Target = [AtomicU64];

    #[inline(always)]
    fn deref(&self) -> &[AtomicU64] {
        let first = self.first as usize;
        &self.block[first..first + self.len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn pieces_are_aligned_and_disjoint() {
        let memory = Memory::default();
        let pieces: Vec<Piece> = (1..2000).map(|n| memory.take(n)).collect();
        for (piece, n) in pieces.iter().zip(1..) {
            assert_eq!((piece.len(), piece.as_ptr().addr() % 64), (n, 0));
            piece.iter().for_each(|word| assert_eq!(word.swap(n as u64, Relaxed), 0));
        }
        for (piece, n) in pieces.iter().zip(1..) {
            assert!(piece.iter().all(|word| word.load(Relaxed) == n));
        }
        let blocks: std::collections::BTreeSet<*const AtomicU64> =
            pieces.iter().map(|piece| piece.block.as_ptr()).collect();
        assert!(blocks.len() < 1000, "{} blocks", blocks.len());
    }
}
