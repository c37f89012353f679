//! A source of packets in memory, and a sink that counts: ports without a device, for benchmarks.

use super::{BATCH_MAX, Device, Link, QueueId};
use core::ops::Range;
use std::io;
use weft_core::Time;
use weft_core::frame::{Frame, Offload, Pool};
use weft_engine::packet::port::DeviceCounters;

/// Delivers the same packets repeatedly, and discards sent ones.
#[derive(Debug)]
pub struct Memory {
    name: String,
    link: Link,
    place: QueueId,
    /// The packets, one after the other.
    bytes: Vec<u8>,
    packets: Vec<Range<usize>>,
    next: usize,
    /// Number of packets left to deliver.
    left: u64,
    is_starved: bool,
    counters: DeviceCounters,
}

impl Memory {
    /// A source of `n` packets that cycles through the given ones; without any it delivers none.
    pub fn source<'a>(
        link: Link,
        place: QueueId,
        packets: impl IntoIterator<Item = &'a [u8]>,
        n: u64,
    ) -> Self {
        let (mut bytes, mut ranges) = (Vec::new(), Vec::new());
        for packet in packets {
            ranges.push(bytes.len()..bytes.len() + packet.len());
            bytes.extend_from_slice(packet);
        }
        let left = if ranges.is_empty() { 0 } else { n };
        let (name, is_starved, counters) = ("memory".to_owned(), false, DeviceCounters::default());
        Self { name, link, place, bytes, packets: ranges, next: 0, left, is_starved, counters }
    }

    /// A sink.
    pub fn sink(link: Link) -> Self {
        Self::source(link, QueueId::default(), [], 0)
    }
}

impl Device for Memory {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        self.link
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize> {
        self.is_starved = false;
        let wanted = self.left.min(BATCH_MAX as u64) as usize;
        for n in 0..wanted {
            let packet = &self.bytes[self.packets[self.next].clone()];
            let Some(mut frame) = pool.take_filled(packet) else {
                self.is_starved = true;
                return Ok(n);
            };
            frame.meta = self.place.received(&mut self.counters, now, packet.len(), Offload::default());
            self.left -= 1;
            self.next = if self.next + 1 == self.packets.len() { 0 } else { self.next + 1 };
            out.push(frame);
        }
        Ok(wanted)
    }

    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let n = frames.len();
        for frame in frames.drain(..) {
            self.counters.sent += 1;
            self.counters.sent_bytes += frame.len() as u64;
            pool.give(frame);
        }
        Ok(n)
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn is_finished(&self) -> bool {
        self.left == 0
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::frame::PoolConfig;

    #[test]
    fn memory_source_repeats_to_its_count() {
        // A benchmark would measure other traffic than it reports.
        let mut pool = Pool::new(PoolConfig { small: 50, large: 0 });
        let packets: [&[u8]; 3] = [b"a", b"bb", b"ccc"];
        let mut memory = Memory::source(Link::Ip, QueueId { port: 3, queue: 1 }, packets, 100);
        let (mut frames, mut n) = (Vec::new(), 0);
        while !memory.is_finished() {
            assert!(
                memory.receive(&mut pool, &mut frames, Time(7)).expect("a memory device does not fail") > 0
            );
            for frame in &frames {
                assert_eq!(pool.bytes(frame), packets[n as usize % 3]);
                assert_eq!((frame.meta.port, frame.meta.queue, frame.meta.sequence), (3, 1, n));
                n += 1;
            }
            let sent = memory.send(&mut pool, &mut frames).expect("a memory device does not fail");
            assert!(sent > 0 && frames.is_empty());
        }
        assert_eq!((n, pool.in_use()), (100, 0));
        let counters = memory.counters();
        assert_eq!((counters.received, counters.sent, counters.sent_bytes), (100, 100, 33 * 6 + 1));
        assert_eq!(
            memory.receive(&mut pool, &mut frames, Time(8)).expect("a memory device does not fail"),
            0
        );
    }
}
