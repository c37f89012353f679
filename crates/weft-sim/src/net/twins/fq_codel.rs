//! Fair queueing with CoDel.

use std::collections::VecDeque;

use super::codel::{CodelSpec, CodelState};
use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};

/// Maximum number of packets dropped at once from a full queue; and no more than half of the longest queue (RFC 8290,
/// section 4.1).
const BATCH: usize = 64;

/// Fair queueing with CoDel on each queue. Source: RFC 8290.
///
/// A flow's queue is its number modulo the number of queues. CoDel's MTU check uses each queue's own backlog.
#[derive(Clone, Debug)]
pub struct FqCodel {
    spec: CodelSpec,
    queues: Vec<Queue>,
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    quantum: u32,
    limit_packets: u64,
    backlog: Backlog,
    drops: Drops,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: u64,
    credit: i64,
    state: CodelState,
    is_listed: bool,
}

impl FqCodel {
    /// A number of queues, with a quantum in bytes. RFC 8290, sections 4.1.3 and 5.2, has 1024 queues, a quantum of
    /// 1514 bytes and 10240 packets.
    ///
    /// # Panics
    /// If the number of queues or the quantum is 0.
    pub fn new(spec: CodelSpec, n_queues: u32, quantum: u32, limit_packets: u64) -> Self {
        assert!(n_queues > 0 && quantum > 0, "a flow has a queue, and a queue has credit");
        Self {
            spec,
            queues: vec![Queue::default(); n_queues as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            quantum,
            limit_packets,
            backlog: Backlog::default(),
            drops: Drops::default(),
        }
    }

    /// Drops from the head of the queue with the most bytes; on a tie, of the one with the lower number.
    fn make_room(&mut self) {
        let longest = (0..self.queues.len()).rev().max_by_key(|number| self.queues[*number].bytes);
        let Some(number) = longest else { return };
        let queue = &mut self.queues[number];
        let n = queue.items.len().div_ceil(2).min(BATCH);
        for item in queue.items.drain(..n) {
            queue.bytes -= u64::from(item.len);
            self.backlog.remove(&item);
            self.drops.push(item, DropReason::PushedOut);
        }
    }
}

impl Discipline for FqCodel {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        self.backlog.add(&item);
        let number = item.flow % self.queues.len() as u32;
        let queue = &mut self.queues[number as usize];
        queue.items.push_back(item);
        queue.bytes += u64::from(item.len);
        if !queue.is_listed {
            queue.is_listed = true;
            queue.credit = i64::from(self.quantum);
            self.new.push_back(number);
        }
        if self.backlog.packets > self.limit_packets {
            self.make_room();
        }
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        loop {
            let is_new = !self.new.is_empty();
            let list = if is_new { &mut self.new } else { &mut self.old };
            let number = *list.front()?;
            let Queue { items, bytes, credit, state, is_listed } = &mut self.queues[number as usize];
            if *credit <= 0 {
                *credit += i64::from(self.quantum);
                list.pop_front();
                self.old.push_back(number);
                continue;
            }
            let backlog = &mut self.backlog;
            let pop = || {
                let item = items.pop_front()?;
                *bytes -= u64::from(item.len);
                backlog.remove(&item);
                Some((item, *bytes))
            };
            if let Some(item) = state.dequeue(&self.spec, now_ns, pop, &mut self.drops) {
                *credit -= i64::from(item.len);
                return Some(item);
            }
            // An empty new queue becomes an old one, so that it cannot be new again before the others had their turn.
            list.pop_front();
            if is_new {
                self.old.push_back(number);
            } else {
                *is_listed = false;
            }
        }
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        self.drops.poll()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn item(id: u64, flow: u32, len: u32) -> Item {
        Item { id, flow, len, ..Item::default() }
    }

    fn drain(queue: &mut FqCodel) -> Vec<u64> {
        core::iter::from_fn(|| queue.dequeue(0)).map(|item| item.id).collect()
    }

    /// If this fails, a sparse flow waits behind a bulk flow: RFC 8290, section 1.2.
    #[test]
    fn sparse_flow_goes_first() {
        let mut queue = FqCodel::new(CodelSpec::default(), 1024, 1514, 10_240);
        (0..3).for_each(|id| queue.enqueue(item(id, 1, 1500), 0));
        (3..9).for_each(|id| queue.enqueue(item(id, 2, 750), 0));
        let mut order = vec![queue.dequeue(0).unwrap().id];
        queue.enqueue(item(9, 3, 100), 0);
        order.extend(drain(&mut queue));
        // Flow 1 has 14 bytes of deficit left and goes on, then flow 2 with three packets, then the new one, and so on.
        assert_eq!(order, [0, 1, 3, 4, 5, 9, 2, 6, 7, 8]);
        assert_eq!(queue.backlog(), Backlog::default());
    }

    /// If this fails, a full queue drops the arriving packet instead of the longest flow's packets: section 4.1.
    #[test]
    fn fullest_queue_drops_half() {
        let mut queue = FqCodel::new(CodelSpec::default(), 1024, 1514, 10);
        (0..9).for_each(|id| queue.enqueue(item(id, 1, 1000), 0));
        queue.enqueue(item(9, 2, 1000), 0);
        queue.enqueue(item(10, 2, 1000), 0);
        let dropped: Vec<u64> =
            core::iter::from_fn(|| queue.poll_drop()).map(|dropped| dropped.item.id).collect();
        assert_eq!(dropped, [0, 1, 2, 3, 4]);
        assert_eq!(drain(&mut queue), [5, 6, 9, 10, 7, 8]);
    }
}
