//! A queue program of the engine as a discipline.

use std::sync::Arc;

use weft_engine::queue::{DropCause, Packet, Queue, QueueCode, QueueProgram};

use super::discipline::{Backlog, Discipline, DropReason, Dropped, Item};

/// A discipline that runs a queue program.
///
/// The program sees an item's length, ECN codepoint, class and remaining bytes; `p.flow`, `p.src` and `p.dst` are the
/// number of its flow.
#[derive(Debug)]
pub struct Programmed<C> {
    queue: Queue<C>,
    /// The queued items, by handle.
    items: Vec<Item>,
}

impl<C: QueueCode> Programmed<C> {
    /// An empty queue for this program. The seed determines its random numbers.
    pub fn new(program: Arc<QueueProgram>, code: C, seed: u64) -> Self {
        Self { queue: Queue::new(program, code, 0, seed), items: Vec::new() }
    }

    /// Replaces the source of random numbers; see [`Queue::draw_from`].
    pub fn draw_from(&mut self, random: impl FnMut() -> f64 + Send + 'static) {
        self.queue.draw_from(random);
    }

    /// The queue itself, for its counters.
    pub fn queue(&self) -> &Queue<C> {
        &self.queue
    }
}

/// The packet that a program sees for an item.
pub fn packet_of(item: &Item) -> Packet {
    Packet {
        handle: u64::from(item.handle),
        len: item.len,
        ecn: item.ecn,
        flow: item.flow,
        src: item.flow,
        dst: item.flow,
        class: u32::from(item.class),
        remaining: u64::from(item.remaining),
        ..Packet::default()
    }
}

impl<C: QueueCode> Discipline for Programmed<C> {
    fn enqueue(&mut self, item: Item, now_ns: u64) {
        let place = item.handle as usize;
        if place >= self.items.len() {
            self.items.resize((place + 1).next_power_of_two(), Item::default());
        }
        self.items[place] = item;
        self.queue.enqueue(&packet_of(&item), now_ns);
    }

    fn set_rate(&mut self, bits_per_s: u64) {
        self.queue.set_rate(bits_per_s);
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        let sent = self.queue.dequeue(now_ns)?;
        Some(Item { ecn: sent.ecn, ..self.items[sent.handle as usize] })
    }

    fn poll_timeout(&self) -> Option<u64> {
        self.queue.poll_timeout()
    }

    fn handle_timeout(&mut self, now_ns: u64) {
        self.queue.handle_timeout(now_ns);
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        let dropped = self.queue.poll_dropped()?;
        let item = self.items[dropped.handle as usize];
        let why = match dropped.why {
            DropCause::Enqueue | DropCause::Dequeue => DropReason::Late,
            DropCause::Overflow if dropped.arrived_ns == dropped.dropped_ns => DropReason::Full,
            DropCause::Overflow => DropReason::PushedOut,
        };
        Some(Dropped { item, why })
    }

    fn backlog(&self) -> Backlog {
        let counts = self.queue.counts();
        Backlog { packets: counts.queued, bytes: counts.queued_bytes }
    }
}
