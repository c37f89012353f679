//! The scoreboard of RFC 6675: the sender's state of each unacknowledged segment.
//!
//! It has three bits per segment in a ring, and processes a word at a time. A SACK block costs its length over 64,
//! however often it is repeated.

/// Segments per word of the ring.
const WORD: u32 = 64;
/// Initial capacity of the ring, in segments.
const ROOM_MIN: u32 = 1024;

/// The state of the segments from `una` to before `next`.
#[derive(Clone, Debug)]
pub(super) struct Scoreboard {
    /// The first unacknowledged segment.
    una: u32,
    /// The first segment that was never sent.
    next: u32,
    /// The receiver has it.
    sacked: Vec<u64>,
    /// It is considered lost, and was not resent since.
    lost: Vec<u64>,
    /// It was resent, and is considered in flight.
    resent: Vec<u64>,
    n_sacked: u32,
    n_lost: u32,
    /// One past the last segment that a SACK block covers.
    sacked_end: u32,
    /// Loss detection is done for the segments before this one.
    detected_to: u32,
    /// No segment before it waits to be resent.
    resend_from: u32,
}

impl Scoreboard {
    /// An empty scoreboard: nothing is sent.
    pub(super) fn new() -> Self {
        let room = vec![0; (ROOM_MIN / WORD) as usize];
        Self {
            una: 0,
            next: 0,
            sacked: room.clone(),
            lost: room.clone(),
            resent: room,
            n_sacked: 0,
            n_lost: 0,
            sacked_end: 0,
            detected_to: 0,
            resend_from: 0,
        }
    }

    pub(super) fn una(&self) -> u32 {
        self.una
    }

    pub(super) fn next(&self) -> u32 {
        self.next
    }

    /// Segments that were sent and not cumulatively acknowledged.
    pub(super) fn outstanding(&self) -> u32 {
        self.next - self.una
    }

    pub(super) fn n_sacked(&self) -> u32 {
        self.n_sacked
    }

    /// Segments that wait to be resent.
    pub(super) fn n_lost(&self) -> u32 {
        self.n_lost
    }

    /// Estimated segments in flight: `pipe` of RFC 6675, section 4.
    pub(super) fn pipe(&self) -> u32 {
        self.outstanding() - self.n_sacked - self.n_lost
    }

    /// Sends a new segment; returns its number.
    pub(super) fn send_new(&mut self) -> u32 {
        let room = self.sacked.len() as u32 * WORD;
        if self.outstanding() + WORD >= room {
            self.grow(2 * room);
        }
        self.next += 1;
        self.next - 1
    }

    /// The first segment to resend, which is then in flight.
    pub(super) fn send_lost(&mut self) -> Option<u32> {
        if self.n_lost == 0 {
            return None;
        }
        let mut seq = self.resend_from.max(self.una);
        loop {
            assert!(seq < self.next, "a segment is counted as lost, and none is");
            let (at, bit) = self.place(seq);
            let rest = self.lost[at] >> bit;
            if rest != 0 {
                seq += rest.trailing_zeros();
                break;
            }
            seq += WORD - bit;
        }
        let (at, bit) = self.place(seq);
        self.lost[at] &= !(1 << bit);
        self.resent[at] |= 1 << bit;
        self.n_lost -= 1;
        self.resend_from = seq + 1;
        Some(seq)
    }

    /// The receiver has everything before `ack`. Returns the number of newly acknowledged segments.
    pub(super) fn acknowledge(&mut self, ack: u32) -> u32 {
        let (from, to) = (self.una, ack.min(self.next));
        if to <= from {
            return 0;
        }
        let mut known = 0;
        let mut waited = 0;
        self.words(from, to, |scoreboard, at, mask| {
            known += (scoreboard.sacked[at] & mask).count_ones();
            waited += (scoreboard.lost[at] & mask).count_ones();
            for bits in [&mut scoreboard.sacked, &mut scoreboard.lost, &mut scoreboard.resent] {
                bits[at] &= !mask;
            }
        });
        self.n_sacked -= known;
        self.n_lost -= waited;
        self.una = to;
        self.detected_to = self.detected_to.max(to);
        to - from - known
    }

    /// The receiver has `[from, to)`. Returns the number of newly acknowledged segments.
    pub(super) fn sack(&mut self, from: u32, to: u32) -> u32 {
        let (from, to) = (from.max(self.una), to.min(self.next));
        if to <= from {
            return 0;
        }
        let mut fresh = 0;
        let mut waited = 0;
        self.words(from, to, |scoreboard, at, mask| {
            fresh += (mask & !scoreboard.sacked[at]).count_ones();
            waited += (scoreboard.lost[at] & mask).count_ones();
            scoreboard.sacked[at] |= mask;
            scoreboard.lost[at] &= !mask;
            scoreboard.resent[at] &= !mask;
        });
        self.n_sacked += fresh;
        self.n_lost -= waited;
        self.sacked_end = self.sacked_end.max(to);
        fresh
    }

    /// Marks segments as lost that have `threshold` or more acknowledged segments beyond them: `IsLost` of RFC 6675,
    /// section 4. Returns their number.
    pub(super) fn detect_losses(&mut self, threshold: u32) -> u32 {
        if self.n_sacked < threshold {
            return 0;
        }
        let mut left = threshold;
        let mut seq = self.sacked_end;
        while left > 0 {
            if seq <= self.detected_to {
                return 0;
            }
            seq -= 1;
            let (at, bit) = self.place(seq);
            left -= (self.sacked[at] >> bit & 1) as u32;
        }
        let (from, to) = (self.detected_to, seq);
        self.detected_to = to.max(from);
        self.mark_lost(from, to)
    }

    /// Marks the first segment as lost, even if it was resent.
    pub(super) fn mark_first_lost(&mut self) {
        if self.outstanding() > 0 {
            let (at, bit) = self.place(self.una);
            self.resent[at] &= !(1 << bit);
            self.mark_lost(self.una, self.una + 1);
        }
    }

    /// Marks all segments as lost that are not acknowledged.
    pub(super) fn mark_all_lost(&mut self) {
        let (from, to) = (self.una, self.next);
        self.words(from, to, |scoreboard, at, mask| scoreboard.resent[at] &= !mask);
        self.mark_lost(from, to);
        self.detected_to = to;
    }

    /// Clears all loss marks.
    pub(super) fn clear_losses(&mut self) {
        let (from, to) = (self.una, self.next);
        self.words(from, to, |scoreboard, at, mask| {
            scoreboard.lost[at] &= !mask;
            scoreboard.resent[at] &= !mask;
        });
        self.n_lost = 0;
        self.detected_to = self.una;
        self.resend_from = self.next;
    }

    /// Without SACK, a duplicate acknowledgement reports one arrival, but not which segment. Counts `n` more of them.
    pub(super) fn guess_sacked(&mut self, n: u32) {
        self.n_sacked = (self.n_sacked + n).min(self.outstanding().saturating_sub(self.n_lost + 1));
    }

    /// Removes the counted duplicates that are now acknowledged.
    pub(super) fn unguess_sacked(&mut self, n: u32) {
        self.n_sacked = self.n_sacked.saturating_sub(n);
        self.guess_sacked(0);
    }

    /// Marks segments of `[from, to)` as lost, except those that are acknowledged, resent or lost. Returns their
    /// number.
    fn mark_lost(&mut self, from: u32, to: u32) -> u32 {
        let mut fresh = 0;
        self.words(from, to, |scoreboard, at, mask| {
            let lost = mask & !(scoreboard.sacked[at] | scoreboard.resent[at] | scoreboard.lost[at]);
            scoreboard.lost[at] |= lost;
            fresh += lost.count_ones();
        });
        self.n_lost += fresh;
        if fresh > 0 {
            self.resend_from = self.resend_from.min(from);
        }
        fresh
    }

    fn place(&self, seq: u32) -> (usize, u32) {
        ((seq / WORD) as usize & (self.sacked.len() - 1), seq % WORD)
    }

    /// Calls `each` for each word of `[from, to)`, with a mask of the bits in range.
    fn words(&mut self, from: u32, to: u32, mut each: impl FnMut(&mut Self, usize, u64)) {
        let mut seq = from;
        while seq < to {
            let (at, bit) = self.place(seq);
            let n = (WORD - bit).min(to - seq);
            let mask = (u64::MAX >> (WORD - n)) << bit;
            each(self, at, mask);
            seq += n;
        }
    }

    /// Enlarges the ring of bits to `room` segments, and copies the words in use.
    fn grow(&mut self, room: u32) {
        let n = (room / WORD) as usize;
        for bits in [&mut self.sacked, &mut self.lost, &mut self.resent] {
            let old = core::mem::replace(bits, vec![0; n]);
            // A segment keeps its position in its word, so the words in use are copied to their place in the larger
            // ring.
            for word in self.una / WORD..=self.next / WORD {
                bits[word as usize & (n - 1)] = old[word as usize & (old.len() - 1)];
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    enum State {
        UnderWay,
        Sacked,
        Lost,
        Resent,
    }

    /// Checks the scoreboard, segment by segment.
    fn check(scoreboard: &Scoreboard, expected: &[State]) {
        let count = |state| {
            expected[scoreboard.una as usize..].iter().filter(|known| **known == state).count() as u32
        };
        assert_eq!(scoreboard.next as usize, expected.len());
        assert_eq!((scoreboard.n_sacked, scoreboard.n_lost), (count(State::Sacked), count(State::Lost)));
        assert_eq!(scoreboard.pipe(), count(State::UnderWay) + count(State::Resent));
    }

    /// If this fails, a sender resends arrived segments, or miscounts the segments in flight and stalls.
    #[test]
    fn scoreboard_matches_plain_list() {
        let mut rng = Rng::from_seed(5);
        for _ in 0..30 {
            let mut scoreboard = Scoreboard::new();
            let mut plain: Vec<State> = Vec::new();
            for _ in 0..600 {
                match rng.within(&(0..=9)) {
                    0..=3 => {
                        for _ in 0..rng.within(&(0..=200)) {
                            assert_eq!(scoreboard.send_new() as usize, plain.len());
                            plain.push(State::UnderWay);
                        }
                    }
                    4 => {
                        let ack =
                            rng.within(&(u64::from(scoreboard.una)..=u64::from(scoreboard.next))) as u32;
                        let fresh =
                            (scoreboard.una..ack).filter(|seq| plain[*seq as usize] != State::Sacked).count();
                        assert_eq!(scoreboard.acknowledge(ack) as usize, fresh);
                    }
                    5..=6 => {
                        let from = rng.within(&(0..=u64::from(scoreboard.next))) as u32;
                        let to = from + rng.within(&(0..=150)) as u32;
                        let range = from.max(scoreboard.una) as usize
                            ..(to.min(scoreboard.next) as usize).max(from.max(scoreboard.una) as usize);
                        let fresh =
                            plain[range.clone()].iter().filter(|state| **state != State::Sacked).count();
                        plain[range].fill(State::Sacked);
                        assert_eq!(scoreboard.sack(from, to) as usize, fresh);
                    }
                    7 => {
                        scoreboard.detect_losses(3);
                        let sacked = |(_, state): &(usize, &State)| **state == State::Sacked;
                        let una = scoreboard.una as usize;
                        let third =
                            plain.iter().enumerate().skip(una).rev().filter(sacked).nth(2).map(|(at, _)| at);
                        for state in plain.iter_mut().take(third.unwrap_or(0)).skip(una) {
                            if *state == State::UnderWay {
                                *state = State::Lost;
                            }
                        }
                    }
                    8 => {
                        let first =
                            (scoreboard.una as usize..plain.len()).find(|at| plain[*at] == State::Lost);
                        assert_eq!(scoreboard.send_lost().map(|seq| seq as usize), first);
                        if let Some(first) = first {
                            plain[first] = State::Resent;
                        }
                    }
                    9 if rng.chance(100) => {
                        scoreboard.clear_losses();
                        for state in plain.iter_mut().skip(scoreboard.una as usize) {
                            if *state != State::Sacked {
                                *state = State::UnderWay;
                            }
                        }
                    }
                    _ if rng.chance(100) => {
                        scoreboard.mark_all_lost();
                        for state in plain.iter_mut().skip(scoreboard.una as usize) {
                            if *state != State::Sacked {
                                *state = State::Lost;
                            }
                        }
                    }
                    _ => {}
                }
                check(&scoreboard, &plain);
            }
        }
    }
}
