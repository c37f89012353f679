//! The memory of a table: cache-line aligned pieces, cut from blocks that grow with the table.
//!
//! A look-up among many rows can wait for memory three times: for the cache line, for the address translation, and for
//! the next line if the data crosses one. So a row of 64 bytes is one aligned line, and large data lies together in
//! blocks, for which a [`BlockSource`] may use huge pages. A piece lives as long as its table, so there is no free
//! list.

#![expect(clippy::disallowed_types, reason = "taken when a stripe grows, a few times in a table's life")]

use core::ops::Deref;
use core::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Words of a cache line.
const LINE_WORDS: usize = 8;
/// Bytes of a huge page; larger blocks are aligned to it.
const HUGE_PAGE_BYTES: usize = 2 << 20;
/// Words of a huge page.
const PAGE_WORDS: usize = HUGE_PAGE_BYTES / 8;
/// Bytes of pieces with an allocation of their own; beyond it, pieces share blocks.
const ALONE_BYTES_MAX: usize = 1 << 20;
/// Bytes of the largest block.
const BLOCK_BYTES_MAX: usize = 64 << 20;
const _: () =
    assert!(LINE_WORDS * 8 == 64 && PAGE_WORDS.is_multiple_of(LINE_WORDS), "pieces begin at cache lines");
const _: () = assert!(2 * HUGE_PAGE_BYTES <= BLOCK_BYTES_MAX && BLOCK_BYTES_MAX / 8 <= u32::MAX as usize);

/// The allocator of blocks of two huge pages and more. It may return memory with faster address translation, resident
/// only where it was written.
#[derive(Clone, Copy, Debug)]
pub struct BlockSource {
    /// Allocates this many words, all 0.
    pub block: fn(usize) -> Box<[AtomicU64]>,
    /// Makes words resident that will be written soon: faulting in a huge page takes too long for a tuple to wait.
    pub prefault: fn(&[AtomicU64]),
}

static SOURCE: OnceLock<BlockSource> = OnceLock::new();

/// Sets the allocator of blocks. The first call wins.
pub fn set_block_source(source: BlockSource) {
    _ = SOURCE.set(source);
}

/// The allocator of one table.
#[derive(Debug, Default)]
pub(super) struct Memory(Mutex<NewestBlock>);

/// The newest block and its fill level.
#[derive(Debug, Default)]
struct NewestBlock {
    block: Option<Block>,
    used: usize,
    /// Words of all pieces.
    taken: usize,
}

type Block = Arc<Box<[AtomicU64]>>;

/// Some words of a block. A table has many pieces, so their offsets have 32 bits; no index or segment has more words.
#[derive(Debug)]
pub(super) struct Piece {
    block: Block,
    first: u32,
    len: u32,
}

impl Memory {
    /// Allocates words, all 0, aligned to a cache line.
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
                // Double the total size.
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

/// Prefaults the next page when the use of a block reaches a new page.
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
        assert!(first + len <= block.len(), "a piece is inside its block");
        let place = |n: usize| u32::try_from(n).expect("a block has fewer than 2^32 words");
        Self { first: place(first), len: place(len), block }
    }
}

fn zeros(words: usize) -> Box<[AtomicU64]> {
    vec![0; words].into_iter().map(AtomicU64::new).collect()
}

/// A block, and the index of its first word with this alignment.
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
