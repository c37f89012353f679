//! Queues that are one FIFO, as most are: the packets are in a ring.
//!
//! The node's record holds the first slot and the slot behind the last. So enqueue and dequeue are one step each,
//! without links between neighbours. One number combines all checks at enqueue: the room that is left. It is zero if
//! each packet needs more work than to be appended.

use super::leave::{ServeResult, visit};
use super::level::{Level, add_packet, kept, subtract_packet};
use super::packets::{LINES_MAX, Packets, bytes, packet_info};
use super::records::Head;
use super::shared::Shared;
use super::{NEVER, NONE, Packet, Queue, QueueCode, Sent};
use weft_ir::queue::{Moment, Verdict};

/// The capacity of a ring at its first packet.
const PLACES_FIRST: usize = 16;

impl<C: QueueCode> Shared<C> {
    /// Enqueues a packet. The slow path handles packets that the limit drops, or that need more than to be appended.
    #[inline(always)]
    pub(super) fn enqueue_in_fifo(&mut self, line: &mut Level, packet: &Packet, arrived_ns: u64) {
        let len = u64::from(packet.len);
        let head = line.nodes.head_mut(0);
        let (packets, bytes) = (head[kept::PACKETS], head[kept::BYTES]);
        if packets >= line.room || bytes + len > line.shape.bytes_max {
            return self.enqueue_in_fifo_slow(line, packet, arrived_ns);
        }
        add_packet(head, len);
        let slot = self.packets.append_to_ring(head);
        self.packets.write_packet(slot, packet, arrived_ns, &[]);
    }

    /// Enqueues a packet to the FIFO in all cases: admits it, appends it, and makes room if the limit is exceeded.
    #[inline(never)]
    fn enqueue_in_fifo_slow(&mut self, line: &mut Level, packet: &Packet, arrived_ns: u64) {
        let len = u64::from(packet.len);
        let slot = self.packets.next_ring_slot(line.nodes.head_mut(0));
        self.packets.write_packet(slot, packet, arrived_ns, &self.program.fields);
        if !self.admit_to_fifo(line, slot, len) {
            return;
        }
        let head = line.nodes.head_mut(0);
        add_packet(head, len);
        self.packets.append_to_ring(head);
        if line.shape.only_appends {
            line.room = line.shape.packets_max.min(self.packets.places_of_ring());
        }
        if line.is_over(0, 0, 0) {
            self.make_room(core::slice::from_mut(line), &[0]);
        }
    }

    /// Resets the ring of an empty queue, and runs ON EMPTY: the next packet uses the first slot, which is most
    /// likely cached.
    #[cold]
    fn reset_empty_fifo(&mut self, line: &mut Level) {
        let head = line.nodes.head_mut(0);
        (head[kept::FIRST], head[kept::BEHIND]) = (0, 0);
        self.found_empty_node(line, 0);
    }
}

impl<C: QueueCode> Queue<C> {
    /// Dequeues a packet that is sent unchanged; [`Shared::serve_rest_of_fifo`] handles all others.
    #[inline(never)]
    pub(super) fn dequeue_from_fifo(&mut self) -> Option<Sent> {
        let Self { levels, shared, wake_at, last_sent, .. } = self;
        let [line] = &mut levels[..] else { return None };
        *wake_at = NEVER;
        if line.shape.may_wait
            && let Some(until) = shared.hold_time(line, 0)
        {
            *wake_at = until;
            return None;
        }
        let visited = visit::<true>(&mut line.nodes, &mut line.partitions, 0, 0);
        let head = &mut visited.node[0];
        if head[kept::PACKETS] == 0 {
            shared.reset_empty_fifo(line);
            return None;
        }
        let slot = head[kept::FIRST] as u32;
        head[kept::FIRST] = shared.packets.slot_behind(slot);
        let packet = shared.packets.record(slot);
        subtract_packet(head, bytes(&packet[0]));
        if line.shape.has_dequeue {
            let end = shared.handlers.run(0, Moment::Dequeue, visited, Some(packet));
            if Verdict::of_word(end) != Verdict::Pass {
                return self.dequeue_rest_of_fifo((slot, end));
            }
        }
        shared.counts.sent += 1;
        *last_sent = slot;
        Some(packet_info(&packet[0]).into())
    }

    /// Continues a dequeue after a packet that is not sent unchanged.
    #[cold]
    fn dequeue_rest_of_fifo(&mut self, progress: (u32, u64)) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [line] => self.shared.serve_rest_of_fifo(line, 0, progress),
            _ => ServeResult::Empty,
        };
        self.finish_dequeue(served)
    }
}

impl Packets {
    /// The capacity of the ring.
    fn places_of_ring(&self) -> u64 {
        ((self.lines.len() - LINES_MAX) / self.lines_each) as u64
    }

    /// The slot behind a slot of the ring.
    #[inline(always)]
    fn slot_behind(&self, slot: u32) -> u64 {
        let next = slot as usize + self.lines_each;
        if next + LINES_MAX == self.lines.len() { 0 } else { next as u64 }
    }

    /// The slot before a slot of the ring.
    fn slot_before(&self, slot: u64) -> u64 {
        let end = if slot == 0 { self.lines.len() - LINES_MAX } else { slot as usize };
        (end - self.lines_each) as u64
    }

    /// Returns the slot behind the last packet; grows the ring if it is full.
    #[inline(always)]
    pub(super) fn next_ring_slot(&mut self, head: &mut Head) -> u32 {
        if head[kept::PACKETS] == self.places_of_ring() {
            self.grow_ring(head);
        }
        head[kept::BEHIND] as u32
    }

    /// Doubles the capacity of the ring. The first packet moves to the first slot.
    #[cold]
    fn grow_ring(&mut self, head: &mut Head) {
        let end = self.lines.len() - LINES_MAX;
        self.lines[..end].rotate_left(head[kept::FIRST] as usize);
        self.lines.resize(self.lines.len() + end.max(PLACES_FIRST * self.lines_each), Head::default());
        (head[kept::FIRST], head[kept::BEHIND]) = (0, end as u64);
    }

    /// Appends the packet in the slot behind the last one.
    #[inline(always)]
    pub(super) fn append_to_ring(&mut self, head: &mut Head) -> u32 {
        let slot = head[kept::BEHIND] as u32;
        head[kept::BEHIND] = self.slot_behind(slot);
        slot
    }

    /// Takes the first packet; it still counts.
    pub(super) fn pop_of_ring(&mut self, head: &mut Head) -> Option<u32> {
        let slot = head[kept::FIRST] as u32;
        (head[kept::PACKETS] > 0).then(|| {
            head[kept::FIRST] = self.slot_behind(slot);
            slot
        })
    }

    /// Puts the first packet back.
    pub(super) fn back_into_ring(&self, head: &mut Head) {
        head[kept::FIRST] = self.slot_before(head[kept::FIRST]);
    }

    /// Removes the packet at one of the two ends of the ring.
    pub(super) fn remove_from_ring(&self, head: &mut Head, slot: u32) {
        if head[kept::FIRST] == u64::from(slot) {
            head[kept::FIRST] = self.slot_behind(slot);
        } else {
            head[kept::BEHIND] = u64::from(slot);
        }
    }

    /// Returns the first and the last packet; both `NONE` if there is none.
    pub(super) fn ends_of_ring(&self, head: &Head) -> (u32, u32) {
        match head[kept::PACKETS] {
            0 => (NONE, NONE),
            _ => (head[kept::FIRST] as u32, self.slot_before(head[kept::BEHIND]) as u32),
        }
    }

    /// All packets, first to last.
    pub(super) fn each_of_ring(&self, head: &Head) -> impl Iterator<Item = u32> {
        let behind = |slot: &u32| Some(self.slot_behind(*slot) as u32);
        core::iter::successors(Some(head[kept::FIRST] as u32), behind).take(head[kept::PACKETS] as usize)
    }
}
