//! The minimum of a fixed number of keys, with changes of single keys.
//!
//! Each event source (a link, a flow) has one deadline. So the event queue needs one key per source, instead of a heap
//! that grows with the packets in flight. A change updates the winners from the leaf towards the root, and stops where
//! the winner stays the same. That takes some log2(n) comparisons and no allocation. On a tie the source with the lower
//! number wins, so that runs are the same on every machine. See `docs/design/queues.md`.

/// The key of a source without a deadline.
pub const NEVER: u64 = u64::MAX;

/// A tournament tree of keys: it knows the minimum at any time.
#[derive(Clone, Debug, Default)]
pub struct Tournament {
    /// A key per source, padded with [`NEVER`] to a power of two.
    keys: Vec<u64>,
    /// `winners[1]` is the source with the least key; `winners[i]` is the better of `winners[2 i]` and `winners[2 i +
    /// 1]`. The last level has the winners of pairs of sources.
    winners: Vec<u32>,
    n_sources: usize,
}

impl Tournament {
    /// A tree without sources.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a source without a deadline, and returns its number. Rebuilds the tree when the number of sources exceeds a
    /// power of two.
    pub fn add(&mut self) -> usize {
        let source = self.n_sources;
        self.n_sources += 1;
        if self.n_sources > self.keys.len() {
            self.keys.resize(self.n_sources.next_power_of_two().max(2), NEVER);
            self.play_all();
        }
        source
    }

    /// The number of sources.
    pub fn len(&self) -> usize {
        self.n_sources
    }

    /// Whether there are no sources.
    pub fn is_empty(&self) -> bool {
        self.n_sources == 0
    }

    /// The key of a source.
    pub fn key(&self, source: usize) -> u64 {
        self.keys[source]
    }

    /// Sets the key of a source.
    pub fn set(&mut self, source: usize, key: u64) {
        if self.keys[source] == key {
            return;
        }
        self.keys[source] = key;
        let mut node = (self.keys.len() + source) / 2;
        let mut winner = self.of_pair(source);
        loop {
            let before = core::mem::replace(&mut self.winners[node], winner);
            // The same winner with the same key: no change above. A changed key may lose there.
            if node == 1 || (before == winner && winner as usize != source) {
                return;
            }
            let other = self.winners[node ^ 1];
            winner = self.better(winner.min(other), winner.max(other));
            node /= 2;
        }
    }

    /// The source with the least key and that key, which is [`NEVER`] if no source has a deadline.
    pub fn least(&self) -> Option<(usize, u64)> {
        let source = *self.winners.get(1)? as usize;
        Some((source, self.keys[source]))
    }

    /// Builds the tree of winners from all keys.
    fn play_all(&mut self) {
        let n = self.keys.len();
        self.winners = vec![0; n];
        for node in (1..n).rev() {
            self.winners[node] = match 2 * node {
                left if left >= n => self.of_pair(left - n),
                left => self.better(self.winners[left], self.winners[left + 1]),
            };
        }
    }

    /// The winner of a source and its neighbour.
    fn of_pair(&self, source: usize) -> u32 {
        let left = (source & !1) as u32;
        self.better(left, left + 1)
    }

    /// The one with the lesser key; on a tie the first, which has the lower number.
    fn better(&self, first: u32, second: u32) -> u32 {
        if self.keys[second as usize] < self.keys[first as usize] { second } else { first }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    /// If this fails, events are processed out of order, or a source is forgotten.
    #[test]
    fn winner_is_the_least_key() {
        let mut rng = Rng::from_seed(3);
        for n in [1, 2, 3, 7, 64, 100] {
            let mut keys = vec![NEVER; n];
            let mut tournament = Tournament::new();
            for source in 0..n {
                assert_eq!(tournament.add(), source);
            }
            for _ in 0..2000 {
                let source = rng.within(&(0..=n as u64 - 1)) as usize;
                let key = if rng.chance(100) { NEVER } else { rng.within(&(0..=20)) };
                keys[source] = key;
                tournament.set(source, key);
                let expected = keys.iter().enumerate().min_by_key(|(at, key)| (**key, *at)).unwrap();
                assert_eq!(tournament.least(), Some((expected.0, *expected.1)));
            }
        }
        assert_eq!(Tournament::new().least(), None);
    }

    /// If this fails, adding a source during a run changes the others.
    #[test]
    fn source_may_be_added_later() {
        let mut tournament = Tournament::new();
        for source in 0..20 {
            assert_eq!(tournament.add(), source);
            tournament.set(source, 100 - source as u64);
            assert_eq!(tournament.least(), Some((source, 100 - source as u64)));
        }
        assert_eq!((tournament.len(), tournament.key(3)), (20, 97));
    }
}
