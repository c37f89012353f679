//! Scalar variables: state outside tables.

use super::layout;
use super::{spin_lock, spin_unlock};
use core::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// The scalar variables of a chain: words, and text as cells of words (as in a row, see [`super::ColumnRef::word`]).
///
/// Several writers must hold the one lock.
#[derive(Debug, Default)]
pub struct Scalars {
    words: Box<[AtomicU64]>,
    /// The address of the words.
    address: usize,
    lock: AtomicU32,
}

impl Scalars {
    /// Makes this many words, all zero.
    pub fn new(words: usize) -> Self {
        let words: Box<[AtomicU64]> = (0..words).map(|_| AtomicU64::new(0)).collect();
        let address = words.as_ptr().expose_provenance();
        Self { words, address, lock: AtomicU32::new(0) }
    }

    /// The number of words.
    pub fn len(&self) -> usize {
        self.words.len()
    }

    /// Whether there are no words.
    pub fn is_empty(&self) -> bool {
        self.words.is_empty()
    }

    /// Word `i`.
    ///
    /// # Panics
    /// This and the other accessors panic if there is no such word.
    #[inline(always)]
    pub fn word(&self, i: usize) -> u64 {
        self.words[i].load(Relaxed)
    }

    /// Sets word `i`.
    #[inline(always)]
    pub fn set_word(&self, i: usize, value: u64) {
        self.words[i].store(value, Relaxed);
    }

    /// Adds to word `i`, wrapping. It is a load and a store: the word must have one writer at a time.
    #[inline(always)]
    pub fn add(&self, i: usize, n: u64) {
        self.set_word(i, self.word(i).wrapping_add(n));
    }

    /// Appends the bytes of the cell at word `i` to `out`.
    pub fn bytes_into(&self, i: usize, out: &mut Vec<u8>) {
        layout::cell_into(&self.words[i..], out);
    }

    /// Sets the cell at word `i` with capacity `bytes_max`. Returns false, and changes nothing, if the bytes are too
    /// long.
    pub fn set_bytes(&self, i: usize, bytes_max: u32, bytes: &[u8]) -> bool {
        let fits = bytes.len() <= bytes_max as usize;
        if fits {
            layout::cell_set(&self.words[i..], bytes);
        }
        fits
    }

    /// Takes the lock; not re-entrant.
    pub fn lock(&self) {
        spin_lock(&self.lock);
    }

    /// Releases the lock.
    pub fn unlock(&self) {
        spin_unlock(&self.lock);
    }

    /// The offset in a `Scalars`, in bytes, of the address of the words, for compiled code.
    pub const ADDRESS_AT: usize = core::mem::offset_of!(Self, address);
}
