//! Records of nodes and partitions: words, in whole lines of the cache.

use weft_ir::queue::direct::RecordWords;
pub(super) use weft_ir::queue::layout::{CacheLine as Head, LINE_WORDS};
use weft_ir::queue::layout::{kept, record_lines};

/// What is said of a record that is not there: an error of the queue itself.
pub(super) const MISSING: &str = "an id is that of a record";

/// As many lines as a record may have.
pub(super) type Record = [Head; record_lines(size_of::<RecordWords>() / 8)];

/// Records of one size, one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Records {
    pub(super) lines: Vec<Head>,
    /// Lines of a record.
    each: u32,
    /// What handlers get where there is no such record.
    pub(super) nobody: Record,
}

impl Records {
    /// No records, of which each will have so many words for handlers.
    pub(super) fn new(n_seen: usize) -> Self {
        let nobody = Record::default();
        Self { lines: nobody.into(), each: record_lines(n_seen) as u32, nobody }
    }

    /// Adds so many, of zeros.
    pub(super) fn grow(&mut self, n: usize) {
        self.lines.resize(self.lines.len() + n * self.each as usize, [0; LINE_WORDS]);
    }

    /// Where a record begins: not beyond what 32 bits count, so that nobody asks whether its end is.
    #[inline(always)]
    fn at(&self, id: u32) -> usize {
        (id * self.each) as usize
    }

    /// The first line.
    #[inline(always)]
    pub(super) fn head(&self, id: u32) -> &Head {
        &self.lines[self.at(id)]
    }

    /// As above, to be changed.
    #[inline(always)]
    pub(super) fn head_mut(&mut self, id: u32) -> &mut Head {
        let at = self.at(id);
        &mut self.lines[at]
    }

    /// All lines, and those behind them: handlers are held to the words that their program has.
    #[inline(always)]
    pub(super) fn record(&mut self, id: u32) -> &mut Record {
        let at = self.at(id);
        window(&mut self.lines, at)
    }

    /// What handlers see.
    #[inline(always)]
    pub(super) fn seen(&mut self, id: u32) -> &mut [u64] {
        &mut self.record(id).as_flattened_mut()[kept::WORDS..]
    }

    /// The words of one record that handlers see.
    pub(super) fn words(&self, id: u32) -> &[u64] {
        let at = self.at(id);
        let lines = self.lines.get(at..at + self.each as usize).expect(MISSING);
        &lines.as_flattened()[kept::WORDS..]
    }
}

/// So many lines from one on. Behind the last record there are as many that are nobody's.
#[inline(always)]
pub(super) fn window<const N: usize>(lines: &mut [Head], at: usize) -> &mut [Head; N] {
    let lines = lines.get_mut(at..at + N).and_then(|lines| lines.first_chunk_mut());
    lines.expect(MISSING)
}
