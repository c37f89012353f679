//! Allocates the memory of large tables on huge pages.

#![expect(unsafe_code, reason = "memory that is zeros without having been written, and a system call")]

use crate::privileges::{self, KeptCapabilities};
use core::sync::atomic::AtomicU64;
use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use weft_core::table::BlockSource;

/// Bytes of a huge page on common processors.
const HUGE_PAGE_BYTES: usize = 2 << 20;

/// Puts tables that become large from now on into huge pages, if the operating system gives them on request (`madvise`
/// in `/sys/kernel/mm/transparent_hugepage/enabled`, the usual setting). Otherwise this only costs time.
pub fn ask_for_huge_pages() {
    weft_core::table::set_block_source(BlockSource { block, prefault: request_prefault });
}

/// Allocates zeroed words, on huge pages where possible. Words that are never written are not resident.
fn block(words: usize) -> Box<[AtomicU64]> {
    let layout = Layout::array::<AtomicU64>(words).expect("a table's size is limited");
    assert!(layout.size() > 0, "a block has at least one word");
    // SAFETY: its size is not zero.
    let start = unsafe { alloc_zeroed(layout) };
    if start.is_null() {
        handle_alloc_error(layout);
    }
    let before = start.align_offset(HUGE_PAGE_BYTES);
    if before < layout.size() {
        // SAFETY: the advice covers the block's own memory from its first whole huge page on. It changes the page size,
        // not the contents.
        _ = unsafe { libc::madvise(start.add(before).cast(), layout.size() - before, libc::MADV_HUGEPAGE) };
    }
    // SAFETY: the memory has this layout and this allocator, is not shared, and zeros are valid values of the type.
    unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(start.cast(), words)) }
}

/// Largest number of pending requests to populate memory; further memory becomes resident on its first write.
const WAITING_MAX: usize = 64;

/// Start and length of memory in bytes.
type Range = (usize, usize);

/// Requests a background thread to populate memory. The request is dropped if too many wait.
fn request_prefault(words: &[AtomicU64]) {
    static WAITING: OnceLock<Option<SyncSender<Range>>> = OnceLock::new();
    let waiting = WAITING.get_or_init(|| {
        let (waiting, ranges) = sync_channel(WAITING_MAX);
        let thread = std::thread::Builder::new().name("weft-memory".to_owned());
        thread.spawn(move || populate(&ranges)).is_ok().then_some(waiting)
    });
    if let Some(waiting) = waiting {
        _ = waiting.try_send((words.as_ptr().addr(), size_of_val(words)));
    }
}

/// Populates the requested ranges, as the background thread.
fn populate(ranges: &Receiver<Range>) {
    // The thread may be older than the node's own reduction. If that fails, the node reports it.
    let _ = privileges::reduce(KeptCapabilities::Nothing);
    for (start, bytes) in ranges {
        // SAFETY: the call neither reads nor writes data. If the memory has another owner by now, that owner's pages
        // become resident; if it is unmapped, the call fails.
        _ = unsafe {
            libc::madvise(core::ptr::without_provenance_mut(start), bytes, libc::MADV_POPULATE_WRITE)
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use core::sync::atomic::Ordering::Relaxed;

    #[test]
    fn blocks_are_zeroed_and_writable() {
        for words in [1, 4096, 3 * HUGE_PAGE_BYTES / 8 + 1] {
            let block = block(words);
            request_prefault(&block);
            assert!(block.iter().all(|word| word.swap(7, Relaxed) == 0) && block.len() == words);
        }
    }
}
