//! Records of nodes, partitions and packets: words, in whole lines of the cache.

/// Words of a line.
pub(super) const LINE_WORDS: usize = 8;
/// What is said of a record that is not there: an error of the queue itself.
const MISSING: &str = "an id is that of a record";

/// Records of one size, one behind the other. The first `KEPT` words of each are the queue's own, those behind them are
/// what handlers see. What every packet touches is in the first line of a record, which takes one check to reach.
#[derive(Clone, Debug)]
pub(super) struct Records<const KEPT: usize> {
    lines: Vec<[u64; LINE_WORDS]>,
    /// Lines of a record.
    each: usize,
}

impl<const KEPT: usize> Records<KEPT> {
    /// No records, of which each will have so many words for handlers.
    pub(super) fn new(n_seen: usize) -> Self {
        Self { lines: Vec::new(), each: (KEPT + n_seen).div_ceil(LINE_WORDS) }
    }

    /// How many there are.
    pub(super) fn n(&self) -> usize {
        self.lines.len() / self.each
    }

    /// Adds so many, of zeros.
    pub(super) fn grow(&mut self, n: usize) {
        self.lines.resize(self.lines.len() + n * self.each, [0; LINE_WORDS]);
    }

    /// The first line.
    #[inline(always)]
    pub(super) fn head(&self, id: u32) -> &[u64; LINE_WORDS] {
        &self.lines[id as usize * self.each]
    }

    /// As above, to be changed.
    #[inline(always)]
    pub(super) fn head_mut(&mut self, id: u32) -> &mut [u64; LINE_WORDS] {
        &mut self.lines[id as usize * self.each]
    }

    /// All words.
    #[inline(always)]
    pub(super) fn record(&mut self, id: u32) -> &mut [u64] {
        let at = id as usize * self.each;
        // Said first, so that the first line is known to be there.
        assert!(at < self.lines.len(), "{MISSING}");
        self.lines[at..].as_flattened_mut()
    }

    /// What handlers see. Where the record ends is not asked: they are held to the words that their program has.
    #[inline(always)]
    pub(super) fn seen(&mut self, id: u32) -> &mut [u64] {
        &mut self.record(id)[KEPT..]
    }

    /// The words of one record that handlers see.
    pub(super) fn words(&self, id: u32) -> &[u64] {
        let at = id as usize * self.each;
        let lines = self.lines.get(at..at + self.each).expect(MISSING);
        &lines.as_flattened()[KEPT..]
    }
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
