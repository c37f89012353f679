//! Dispatch: selects the enqueue and dequeue functions of a queue once, when the queue is created.

use super::leave::ServeResult;
use super::level::Level;
use super::ranked::Ranked;
use super::{Packet, Queue, QueueCode, Sent};
use core::fmt;
use weft_ir::queue::LEVELS_MAX;

/// Enqueues a packet.
pub(super) type EnqueueFn<C> = fn(&mut Queue<C>, &Packet, u64);
/// Dequeues a packet, if one may leave.
pub(super) type DequeueFn<C> = fn(&mut Queue<C>) -> Option<Sent>;

/// The functions of a queue.
pub(super) struct Dispatch<C> {
    /// The queue is one FIFO: its short functions are called directly.
    pub(super) is_fifo: bool,
    pub(super) enqueue: EnqueueFn<C>,
    pub(super) dequeue: DequeueFn<C>,
}

impl<C: QueueCode> Dispatch<C> {
    /// Selects the functions for a queue of these levels.
    pub(super) fn of(levels: &[Level]) -> Self {
        let (enter, leave): (EnqueueFn<C>, DequeueFn<C>) = match levels {
            [line] if line.shape.is_ring => (Queue::enqueue_in_fifo, Queue::dequeue_from_fifo),
            [level] if level.shape.is_one && level.shape.is_ranked => {
                let leave: DequeueFn<C> = match level.ranked[..] {
                    [Ranked::Runs(_)] => Queue::dequeue_by_rank::<true>,
                    _ => Queue::dequeue_by_rank::<false>,
                };
                (Queue::enqueue_by_rank, leave)
            }
            [level] if level.shape.is_one || level.shape.is_ranked => {
                (Queue::enqueue_in_tree::<1>, Queue::dequeue_from_tree)
            }
            [_] => (Queue::enqueue_partitioned, Queue::dequeue_partitioned),
            [level, line] if !level.shape.is_one && line.shape.is_fifo => {
                (Queue::enqueue_two_levels::<true>, Queue::dequeue_from_fifos)
            }
            [_, _] => (Queue::enqueue_two_levels::<false>, Queue::dequeue_from_tree),
            [_, _, _] => (Queue::enqueue_in_tree::<3>, Queue::dequeue_from_tree),
            _ => (Queue::enqueue_in_tree::<LEVELS_MAX>, Queue::dequeue_from_tree),
        };
        let is_line = matches!(levels, [line] if line.shape.is_ring);
        Self { is_fifo: is_line, enqueue: enter, dequeue: leave }
    }
}

impl<C> fmt::Debug for Dispatch<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_fifo { "line" } else { "tree" })
    }
}

impl<C: QueueCode> Queue<C> {
    /// Enqueues to a queue that is one FIFO.
    pub(super) fn enqueue_in_fifo(&mut self, packet: &Packet, arrived_ns: u64) {
        if let [line] = &mut self.levels[..] {
            self.shared.enqueue_in_fifo(line, packet, arrived_ns);
        }
    }

    /// Enqueues to a queue that is one list ordered by rank.
    fn enqueue_by_rank(&mut self, packet: &Packet, arrived_ns: u64) {
        if let [leaf] = &mut self.levels[..] {
            self.shared.enqueue_by_rank(leaf, packet, arrived_ns);
        }
    }

    /// Enqueues to a queue of one level with several partitions.
    pub(super) fn enqueue_partitioned(&mut self, packet: &Packet, arrived_ns: u64) {
        if let [leaf] = &mut self.levels[..] {
            self.shared.enqueue_partitioned(leaf, packet, arrived_ns);
        }
    }

    pub(super) fn enqueue_two_levels<const LINES: bool>(&mut self, packet: &Packet, arrived_ns: u64) {
        self.shared.enqueue_two_levels::<LINES>(&mut self.levels, packet, arrived_ns);
    }

    fn enqueue_in_tree<const DEPTH: usize>(&mut self, packet: &Packet, arrived_ns: u64) {
        self.shared.enqueue_in_tree::<DEPTH>(&mut self.levels, packet, arrived_ns);
    }

    /// Dequeues from a list ordered by rank. `EXPECTS`: the next packets to leave are known in advance, and can be
    /// prefetched.
    fn dequeue_by_rank<const EXPECTS: bool>(&mut self) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [leaf] => self.shared.serve_single::<true>(leaf, 0),
            _ => ServeResult::Empty,
        };
        let sent = self.finish_dequeue(served);
        if EXPECTS {
            self.shared.packets.fetch_expected();
        }
        sent
    }

    /// Dequeues from a queue of one level with several partitions.
    fn dequeue_partitioned(&mut self) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [leaf] => self.shared.serve_partitioned(leaf, 0),
            _ => ServeResult::Empty,
        };
        self.finish_dequeue(served)
    }

    /// Dequeues from a queue of two levels whose second one consists of FIFOs.
    fn dequeue_from_fifos(&mut self) -> Option<Sent> {
        let served = match &mut self.levels[..] {
            [level, lines] => self.shared.serve_above::<false, true>(level, core::slice::from_mut(lines), 0),
            _ => ServeResult::Empty,
        };
        self.finish_dequeue(served)
    }

    fn dequeue_from_tree(&mut self) -> Option<Sent> {
        let served = self.shared.serve(&mut self.levels, 0);
        self.finish_dequeue(served)
    }
}
