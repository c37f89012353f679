//! Deficit round robin: flows send in turn, as many bytes as their deficit allows.

use std::collections::VecDeque;

use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};

/// Fair queueing by bytes.
///
/// A flow's queue is its number modulo the number of queues. A queue sends while its packets fit its deficit; then the
/// deficit grows by `quantum`, and the next queue has its turn. An empty queue loses its deficit. When more than
/// `limit_packets` are queued, the last packet of the queue with the most bytes is dropped; on a tie, of the one with
/// the lower number. Source: Shreedhar and Varghese, SIGCOMM 1995; the choice of the victim is McKenney's.
#[derive(Clone, Debug)]
pub struct Drr {
    queues: Vec<Queue>,
    turn: VecDeque<u32>,
    quantum: u32,
    limit_packets: u64,
    backlog: Backlog,
    drops: Drops,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    bytes: u64,
    owed: u32,
}

impl Drr {
    /// A number of queues, with a quantum in bytes.
    ///
    /// # Panics
    /// If the number of queues or the quantum is 0.
    pub fn new(n_queues: u32, quantum: u32, limit_packets: u64) -> Self {
        assert!(n_queues > 0 && quantum > 0, "a flow has a queue, and a queue is owed something");
        Self {
            queues: vec![Queue::default(); n_queues as usize],
            turn: VecDeque::new(),
            quantum,
            limit_packets,
            backlog: Backlog::default(),
            drops: Drops::default(),
        }
    }

    /// Drops the last packet of the queue with the most bytes.
    fn drop_of_longest(&mut self) {
        let longest = (0..self.queues.len()).rev().max_by_key(|number| self.queues[*number].bytes);
        let Some(number) = longest else { return };
        let queue = &mut self.queues[number];
        let Some(item) = queue.items.pop_back() else { return };
        queue.bytes -= u64::from(item.len);
        self.backlog.remove(&item);
        self.drops.push(item, DropReason::PushedOut);
        if queue.items.is_empty() {
            self.turn.retain(|other| *other as usize != number);
        }
    }
}

impl Discipline for Drr {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        self.backlog.add(&item);
        let number = item.flow % self.queues.len() as u32;
        let queue = &mut self.queues[number as usize];
        if queue.items.is_empty() {
            queue.owed = self.quantum;
            self.turn.push_back(number);
        }
        queue.items.push_back(item);
        queue.bytes += u64::from(item.len);
        if self.backlog.packets > self.limit_packets {
            self.drop_of_longest();
        }
    }

    fn dequeue(&mut self, _now_ns: u64) -> Option<Item> {
        loop {
            let number = *self.turn.front()?;
            let queue = &mut self.queues[number as usize];
            let item = *queue.items.front().expect("a queue in turn has a packet");
            if item.len > queue.owed {
                queue.owed += self.quantum;
                self.turn.rotate_left(1);
                continue;
            }
            queue.items.pop_front();
            queue.owed -= item.len;
            queue.bytes -= u64::from(item.len);
            self.backlog.remove(&item);
            if queue.items.is_empty() {
                self.turn.pop_front();
            }
            return Some(item);
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

    /// If this fails, flows of large packets, or flows after a pause, get more than others.
    #[test]
    fn shares_differ_within_a_quantum() {
        let mut drr = Drr::new(16, 1514, 10_000);
        let lens = [64, 700, 1514];
        let mut sent = [0u64; 3];
        let add = |drr: &mut Drr, flow: u32| {
            drr.enqueue(Item { flow, len: lens[flow as usize], ..Item::default() }, 0)
        };
        (0..3).for_each(|flow| (0..50).for_each(|_| add(&mut drr, flow)));
        for _ in 0..20_000 {
            let item = drr.dequeue(0).unwrap();
            sent[item.flow as usize] += u64::from(item.len);
            add(&mut drr, item.flow);
            assert!(sent.iter().max().unwrap() - sent.iter().min().unwrap() <= 2 * 1514, "{sent:?}");
        }
    }

    /// If this fails, a flow that fills the queue pushes out the others.
    #[test]
    fn longest_queue_is_dropped() {
        let mut drr = Drr::new(16, 1514, 4);
        for (id, flow) in [(0, 1), (1, 1), (2, 1), (3, 2), (4, 2)] {
            drr.enqueue(Item { id, flow, len: 100, ..Item::default() }, 0);
        }
        assert_eq!(
            drr.poll_drop().map(|dropped| (dropped.item.id, dropped.why)),
            Some((2, DropReason::PushedOut))
        );
        assert_eq!((drr.poll_drop(), drr.backlog()), (None, Backlog { packets: 4, bytes: 400 }));
    }
}
