//! The receiver: it acknowledges each segment at once, with SACK blocks.

use super::super::packet::SACK_BLOCKS;

/// Maximum number of out-of-order runs. A segment that would begin one more is treated as lost, and is sent again.
const RUNS_MAX: usize = 1 << 16;

/// The segments that have arrived.
#[derive(Clone, Debug, Default)]
pub(in super::super) struct Receiver {
    /// The first segment that has not arrived.
    expected: u32,
    /// Out-of-order segments: runs `[from, to)` in ascending order, with holes between them.
    runs: Vec<(u32, u32)>,
    /// A segment of each recently changed run, the latest first (RFC 2018, section 4).
    recent: [u32; SACK_BLOCKS],
    /// Segments that arrived, without duplicates.
    received: u64,
}

impl Receiver {
    /// The first segment that has not arrived, the acknowledgement number.
    pub(in super::super) fn expected(&self) -> u32 {
        self.expected
    }

    /// Segments that arrived, without duplicates.
    pub(in super::super) fn received(&self) -> u64 {
        self.received
    }

    /// Receives a segment, in order or not.
    pub(in super::super) fn arrive(&mut self, seq: u32) {
        if seq == self.expected {
            self.expected += 1;
            self.received += 1;
            if let Some((from, to)) = self.runs.first().copied()
                && from == self.expected
            {
                self.expected = to;
                self.runs.remove(0);
            }
        } else if seq > self.expected {
            self.keep(seq);
        }
    }

    /// The SACK blocks: the run that changed last comes first.
    pub(in super::super) fn blocks(&self) -> [(u32, u32); SACK_BLOCKS] {
        let mut blocks = [(0, 0); SACK_BLOCKS];
        if self.runs.is_empty() {
            return blocks;
        }
        let mut n = 0;
        for seq in self.recent {
            let at = self.runs.partition_point(|(from, _)| *from <= seq);
            let Some(run) = at.checked_sub(1).map(|at| self.runs[at]).filter(|(_, to)| seq < *to) else {
                continue;
            };
            if !blocks[..n].contains(&run) {
                blocks[n] = run;
                n += 1;
            }
        }
        blocks
    }

    /// Stores an out-of-order segment.
    fn keep(&mut self, seq: u32) {
        let at = self.runs.partition_point(|(from, _)| *from <= seq);
        let is_known = at > 0 && seq < self.runs[at - 1].1;
        if !is_known {
            let joins_left = at > 0 && self.runs[at - 1].1 == seq;
            let joins_right = self.runs.get(at).is_some_and(|(from, _)| *from == seq + 1);
            match (joins_left, joins_right) {
                (true, true) => {
                    self.runs[at - 1].1 = self.runs[at].1;
                    self.runs.remove(at);
                }
                (true, false) => self.runs[at - 1].1 += 1,
                (false, true) => self.runs[at].0 = seq,
                (false, false) if self.runs.len() == RUNS_MAX => return,
                (false, false) => self.runs.insert(at, (seq, seq + 1)),
            }
            self.received += 1;
        }
        let run = self.runs[self.runs.partition_point(|(from, _)| *from <= seq) - 1];
        let is_of_run = |other: &u32| (run.0..run.1).contains(other);
        let place = self.recent.iter().position(is_of_run).unwrap_or(SACK_BLOCKS - 1);
        self.recent[..=place].rotate_right(1);
        self.recent[0] = seq;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    /// If this fails, SACK blocks name segments that have not arrived, or miss some that have.
    #[test]
    fn sack_blocks_match_arrivals() {
        let mut rng = Rng::from_seed(9);
        for _ in 0..50 {
            let mut receiver = Receiver::default();
            let mut has = vec![false; 300];
            for _ in 0..500 {
                let seq = rng.within(&(0..=299)) as usize;
                has[seq] = true;
                receiver.arrive(seq as u32);
                let expected = has.iter().position(|has| !has).unwrap_or(300);
                assert_eq!(receiver.expected() as usize, expected);
                assert_eq!(receiver.received() as usize, has.iter().filter(|has| **has).count());
                let blocks = receiver.blocks();
                if seq > expected {
                    assert!(
                        (blocks[0].0..blocks[0].1).contains(&(seq as u32)),
                        "the latest is in the first block"
                    );
                }
                for (from, to) in blocks.into_iter().filter(|(from, to)| from < to) {
                    let (from, to) = (from as usize, to as usize);
                    assert!(
                        has[from..to].iter().all(|has| *has) && !has[from - 1] && has.get(to) != Some(&true)
                    );
                }
            }
        }
    }

    /// If this fails, a lost acknowledgement loses information: RFC 2018, section 4, repeats earlier blocks after the
    /// first.
    #[test]
    fn sack_block_is_sent_three_times() {
        let mut receiver = Receiver::default();
        [2, 4, 6, 8].into_iter().for_each(|seq| receiver.arrive(seq));
        assert_eq!(receiver.blocks(), [(8, 9), (6, 7), (4, 5)]);
        receiver.arrive(3);
        assert_eq!(receiver.blocks(), [(2, 5), (8, 9), (6, 7)]);
        receiver.arrive(0);
        receiver.arrive(1);
        assert_eq!((receiver.expected(), receiver.blocks()), (5, [(8, 9), (6, 7), (0, 0)]));
    }
}
