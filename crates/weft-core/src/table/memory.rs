//! The memory of a table: pieces that begin where a line of memory does, cut from blocks that grow with the table.
//!
//! A look-up among many rows waits for memory three times over: for the line, for the translation of its address, and
//! for the next line if what it reads does not begin with one. So a row of 64 bytes is one line, and what is large lies
//! together, in blocks that [`take_blocks_from`] may have in huge pages. A piece is kept as long as its table, which
//! needs no list of what is free.

use core::ops::Deref;
use core::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Words of a line of memory.
const LINE_WORDS: usize = 8;
/// Bytes of a huge page; a block begins with one if it is larger.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Bytes that pieces of one table take before there are blocks for several pieces.
const ALONE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the largest block.
const BLOCK_BYTES_MAX: usize = 64 << 20;

/// What makes blocks for several pieces.
static BLOCKS: OnceLock<Blocks> = OnceLock::new();

/// Gives so many words, all 0.
type Blocks = fn(usize) -> Box<[AtomicU64]>;

/// From now on blocks of two huge pages and more are taken from `make`, which may know of memory that is faster to look
/// into, and in which only what was written to is resident. The first one stays.
pub fn take_blocks_from(make: fn(usize) -> Box<[AtomicU64]>) {
    _ = BLOCKS.set(make);
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

/// Some words of a block.
#[derive(Debug)]
pub(super) struct Piece {
    block: Block,
    first: usize,
    len: usize,
}

impl Memory {
    /// So many words, all 0, of which the first begins a line.
    #[cold]
    pub(super) fn take(&self, words: usize) -> Piece {
        let mut cut = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let n = words.next_multiple_of(LINE_WORDS);
        let taken = cut.taken + n;
        cut.taken = taken;
        let has_room = cut.block.as_ref().is_some_and(|block| block.len() - cut.used >= n);
        if !has_room && taken * 8 <= ALONE_BYTES_MAX {
            let (block, first) = aligned(zeros(n + LINE_WORDS - 1), LINE_WORDS);
            return Piece { block, first, len: words };
        }
        if !has_room {
            // As much again as there is.
            let grown = (taken * 8).next_power_of_two().clamp(2 * HUGE_PAGE_BYTES, BLOCK_BYTES_MAX) / 8;
            let align = HUGE_PAGE_BYTES / 8;
            let make = BLOCKS.get().copied().unwrap_or(zeros);
            let (block, first) = aligned(make(n.max(grown) + align - 1), align);
            (cut.block, cut.used) = (Some(block), first);
        }
        let first = cut.used;
        cut.used += n;
        let block = Arc::clone(cut.block.as_ref().expect("it was made above"));
        Piece { block, first, len: words }
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
        &self.block[self.first..self.first + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn pieces_begin_with_a_line_and_are_apart() {
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
