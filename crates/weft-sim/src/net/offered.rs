//! Flows without congestion control, into one queue: throughput and delay of each.
//!
//! Such flows do not model TCP; they test isolation: what one flow does not get, the others took.

use super::exponential;
use super::measure::Histogram;
use core::cmp::Reverse;
use std::collections::BinaryHeap;
use weft_core::rng::Rng;
use weft_engine::queue::{FAR_NS, Packet, Queue, QueueCode};

/// A flow at a constant offered rate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct OfferedFlow {
    /// A template of its packets; the handle is ignored. A finite slack becomes a deadline when the packet arrives.
    pub packet: Packet,
    /// The offered rate, in bits per second.
    pub bits_per_s: f64,
    /// Packets arrive as a Poisson process, like those of many sources, instead of evenly.
    pub by_chance: bool,
}

/// The result of a flow.
#[derive(Clone, Debug, Default)]
pub struct FlowResult {
    /// Packets that arrived at the queue.
    pub offered: u64,
    /// Packets that left it.
    pub sent: u64,
    /// Bytes of the packets that left.
    pub sent_bytes: u64,
    /// Packets that were dropped.
    pub dropped: u64,
    /// Sojourn times of the packets that left, in nanoseconds.
    pub waits: Histogram,
}

/// Offers flows to a queue on a link with this rate, for `ns` nanoseconds. Counts arrivals, departures and drops from
/// `from_ns` on; the time before fills the queue.
///
/// # Panics
/// If the queue loses or duplicates a packet.
pub fn offer<C: QueueCode>(
    queue: &mut Queue<C>,
    flows: &[OfferedFlow],
    bits_per_s: u64,
    (from_ns, ns): (u64, u64),
    rng: &mut Rng,
) -> Vec<FlowResult> {
    let mut run = Run { queue, bits_per_s, free_ns: 0, rest: 0, came: Vec::new(), from_ns, got: Vec::new() };
    run.got.resize_with(flows.len(), FlowResult::default);
    let between = |flow: &OfferedFlow| f64::from(flow.packet.len) * 8e9 / flow.bits_per_s;
    let mut next: BinaryHeap<Reverse<(u64, usize)>> = BinaryHeap::new();
    for (nth, flow) in flows.iter().enumerate() {
        next.push(Reverse(((rng.unit() * between(flow)) as u64, nth)));
    }
    while let Some(Reverse((at_ns, nth))) = next.pop()
        && at_ns < ns
    {
        run.send_until(at_ns);
        run.come(&flows[nth].packet, nth, at_ns);
        let mean = between(&flows[nth]);
        let pause = if flows[nth].by_chance { exponential(rng, mean) } else { mean };
        next.push(Reverse((at_ns + (pause as u64).max(1), nth)));
    }
    run.send_until(ns);
    assert!(run.queue.counts().is_conserved(), "{:?}", run.queue.counts());
    run.got
}

struct Run<'q, C> {
    queue: &'q mut Queue<C>,
    bits_per_s: u64,
    /// When the link finishes its last packet, and the remainder of that division.
    free_ns: u64,
    rest: u64,
    /// By handle: the flow, and the arrival time.
    came: Vec<(usize, u64)>,
    from_ns: u64,
    got: Vec<FlowResult>,
}

impl<C: QueueCode> Run<'_, C> {
    /// Enqueues a packet of a flow at this time, and counts it as offered if it is inside the measured time.
    fn come(&mut self, packet: &Packet, flow: usize, at_ns: u64) {
        let handle = self.came.len() as u64;
        self.came.push((flow, at_ns));
        self.got[flow].offered += u64::from(at_ns >= self.from_ns);
        let deadline_ns = match packet.slack_ns {
            FAR_NS => packet.deadline_ns,
            slack_ns => at_ns.saturating_add_signed(slack_ns),
        };
        self.queue.enqueue(&Packet { handle, deadline_ns, ..*packet }, at_ns);
        self.drops();
        if self.free_ns < at_ns {
            (self.free_ns, self.rest) = (at_ns, 0);
        }
    }

    /// Sends the packets that may leave before this time.
    fn send_until(&mut self, until_ns: u64) {
        while self.free_ns < until_ns {
            let now_ns = self.free_ns;
            let sent = self.queue.dequeue(now_ns);
            self.drops();
            let Some(sent) = sent else {
                match self.queue.poll_timeout().filter(|at| *at < until_ns) {
                    Some(at_ns) => self.free_ns = at_ns.max(now_ns + 1),
                    None => return,
                }
                continue;
            };
            let bits = u64::from(sent.len) * 8_000_000_000 + self.rest;
            (self.free_ns, self.rest) = (now_ns + bits / self.bits_per_s, bits % self.bits_per_s);
            let (flow, came_ns) = self.came[sent.handle as usize];
            if now_ns >= self.from_ns {
                let got = &mut self.got[flow];
                got.sent += 1;
                got.sent_bytes += u64::from(sent.len);
                got.waits.add(now_ns - came_ns);
            }
        }
    }

    fn drops(&mut self) {
        while let Some(dropped) = self.queue.poll_dropped() {
            let (flow, _) = self.came[dropped.handle as usize];
            self.got[flow].dropped += u64::from(dropped.dropped_ns >= self.from_ns);
        }
    }
}
