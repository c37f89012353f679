//! Records of nodes and partitions: words, in whole lines of the cache.

use super::level::kept;
use weft_ir::queue::direct::RecordWords;

/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
/// What is said of a record that is not there: an error of the queue itself.
pub(super) const MISSING: &str = "an id is that of a record";

/// A line: the first of a record has what every packet touches.
pub(super) type Head = [u64; LINE_WORDS];
/// As many lines as a record may have.
pub(super) type Record = [Head; (kept::WORDS + size_of::<RecordWords>() / 8).div_ceil(LINE_WORDS)];

/// Records of one size, one behind the other.
#[derive(Clone, Debug)]
pub(super) struct Records {
    lines: Vec<Head>,
    /// Lines of a record.
    each: u32,
    /// What handlers get where there is no such record.
    pub(super) nobody: Record,
}

impl Records {
    /// No records, of which each will have so many words for handlers.
    pub(super) fn new(n_seen: usize) -> Self {
        let nobody = Record::default();
        Self { lines: nobody.into(), each: (kept::WORDS + n_seen).div_ceil(LINE_WORDS) as u32, nobody }
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

    /// As above, if there is such a record.
    #[inline(always)]
    pub(super) fn get_mut(&mut self, id: u32) -> Option<&mut Head> {
        let at = self.at(id);
        self.lines.get_mut(at)
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

/// Two numbers in a word.
#[inline(always)]
pub(super) fn pair(word: u64) -> (u32, u32) {
    (word as u32, (word >> 32) as u32)
}

/// The word of two numbers.
#[inline(always)]
pub(super) fn paired(a: u32, b: u32) -> u64 {
    u64::from(a) | u64::from(b) << 32
}
