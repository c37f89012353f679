//! Stores the records of nodes and partitions: words in whole cache lines.

use super::layout::{LINE_WORDS, kept, record_lines};
use weft_ir::queue::RecordWords;
pub(super) use weft_ir::queue::direct::CacheLine as Head;

/// The message for an id without a record: an internal error of the queue.
pub(super) const MISSING: &str = "an id is that of a record";

/// A record with as many cache lines as a record may have.
pub(super) type Record = [Head; record_lines(size_of::<RecordWords>() / 8)];

/// Records of one size, in one vector.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pub(super) lines: Vec<Head>,
    /// Cache lines per record.
    each: u32,
    /// The record for handlers that run without one.
    pub(super) no_record: Record,
}

impl Records {
    /// No records yet; each will have that many handler words.
    pub(super) fn new(n_seen: usize) -> Self {
        let nobody = Record::default();
        Self { lines: nobody.into(), each: record_lines(n_seen) as u32, no_record: nobody }
    }

    /// Adds that many zeroed records.
    pub(super) fn grow(&mut self, n: usize) {
        self.lines.resize(self.lines.len() + n * self.each as usize, [0; LINE_WORDS]);
    }

    /// The index of a record's first line. It stays within 32 bits, so that no overflow check is needed.
    #[inline(always)]
    fn at(&self, id: u32) -> usize {
        (id * self.each) as usize
    }

    /// The first line of a record.
    #[inline(always)]
    pub(super) fn head(&self, id: u32) -> &Head {
        &self.lines[self.at(id)]
    }

    /// As above, mutable.
    #[inline(always)]
    pub(super) fn head_mut(&mut self, id: u32) -> &mut Head {
        let at = self.at(id);
        &mut self.lines[at]
    }

    /// All lines of a record, and some behind them. The program's size limits which words handlers use.
    #[inline(always)]
    pub(super) fn record(&mut self, id: u32) -> &mut Record {
        let at = self.at(id);
        window(&mut self.lines, at)
    }

    /// The words that handlers see.
    #[inline(always)]
    pub(super) fn handler_words(&mut self, id: u32) -> &mut [u64] {
        &mut self.record(id).as_flattened_mut()[kept::WORDS..]
    }

    /// Returns the handler words of a record.
    pub(super) fn words(&self, id: u32) -> &[u64] {
        let at = self.at(id);
        let lines = self.lines.get(at..at + self.each as usize).expect(MISSING);
        &lines.as_flattened()[kept::WORDS..]
    }
}

/// That many lines from an index on. Spare lines follow the last record.
#[inline(always)]
pub(super) fn window<const N: usize>(lines: &mut [Head], at: usize) -> &mut [Head; N] {
    let lines = lines.get_mut(at..at + N).and_then(|lines| lines.first_chunk_mut());
    lines.expect(MISSING)
}
