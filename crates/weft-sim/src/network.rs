//! Byte streams between the engine and its peers, with latency, chunking, limited rate and resets.

use core::ops::RangeInclusive;
use std::collections::VecDeque;
use weft_core::Interval;
use weft_core::rng::Rng;

/// The behaviour of a world's network. The default is fast and loses nothing.
#[derive(Clone, Debug)]
pub struct Network {
    /// Latency in microseconds, from the first byte written to an idle stream to its arrival.
    pub latency_us: RangeInclusive<u64>,
    /// Sizes of the chunks that arrive. Chunk borders do not depend on the writes. After some hundred chunks of a
    /// stream, the chunks get larger.
    pub chunk_bytes: RangeInclusive<u64>,
    /// Bytes per second in each direction; `None`: unlimited.
    pub bytes_per_s: Option<u64>,
    /// Bytes that one direction of a stream buffers before the writer blocks.
    pub capacity_bytes: usize,
    /// Refused connection attempts to a server, per mille.
    pub refuse_per_mille: u32,
    /// Arrivals that reset the stream instead, per mille.
    pub reset_per_mille: u32,
}

impl Default for Network {
    fn default() -> Self {
        Self {
            latency_us: 50..=50,
            chunk_bytes: (64 << 10)..=(64 << 10),
            bytes_per_s: None,
            capacity_bytes: 256 << 10,
            refuse_per_mille: 0,
            reset_per_mille: 0,
        }
    }
}

impl Network {
    /// A network that splits and delays by the seed, with chunks from single bytes to large ones.
    pub fn choppy(seed: u64) -> Self {
        let mut rng = Rng::of_stream(seed, "choppy", 0);
        let smallest = rng.pick(&[1, 1, 7, 100, 4096]);
        let largest = rng.pick(&[1, 20, 1000, 9000, 70_000]);
        Self {
            latency_us: 10..=rng.within(&(10..=5000)),
            chunk_bytes: smallest..=largest.max(smallest),
            capacity_bytes: rng.pick(&[1000, 20_000, 256 << 10]),
            ..Self::default()
        }
    }

    pub(crate) fn latency(&self, rng: &mut Rng) -> Interval {
        Interval::from_micros(rng.within(&self.latency_us) as i64)
    }

    /// The transmission time of `n` bytes.
    pub(crate) fn time_of(&self, n: usize) -> Interval {
        let per_s = self.bytes_per_s.unwrap_or(10_000_000_000);
        Interval((n as i64).saturating_mul(1_000_000_000) / per_s.max(1) as i64)
    }
}

/// Chunks of a direction that have the configured sizes. Later chunks have at least [`BULK_BYTES`], so that long
/// streams finish.
const FINE_PIECES: u32 = 400;
/// Minimum size of later chunks.
const BULK_BYTES: usize = 8 << 10;

/// One direction of a stream.
#[derive(Debug, Default)]
pub(crate) struct Pipe {
    bytes: VecDeque<u8>,
    n_pieces: u32,
    /// An arrival is scheduled.
    pub(crate) is_moving: bool,
    /// The writer has closed it.
    pub(crate) is_ended: bool,
}

impl Pipe {
    /// Writes as many bytes as fit, and returns their number.
    pub(crate) fn write(&mut self, bytes: &[u8], capacity: usize) -> usize {
        let n = bytes.len().min(capacity.saturating_sub(self.bytes.len()));
        self.bytes.extend(&bytes[..n]);
        n
    }

    /// The next bytes, at most `max`.
    pub(crate) fn read(&mut self, max: usize) -> Vec<u8> {
        self.n_pieces = self.n_pieces.saturating_add(1);
        let n = if self.n_pieces > FINE_PIECES { max.max(BULK_BYTES) } else { max };
        let n = n.min(self.bytes.len());
        self.bytes.drain(..n).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If this fails, lost or reordered bytes look like a fault of the engine.
    #[test]
    fn pipe_keeps_order_and_bound() {
        let mut pipe = Pipe::default();
        assert_eq!(pipe.write(b"abcdef", 4), 4);
        assert_eq!(pipe.read(3), b"abc");
        assert_eq!(pipe.write(b"ef", 4), 2);
        assert_eq!(pipe.read(100), b"def");
        assert!(pipe.is_empty());
    }
}
