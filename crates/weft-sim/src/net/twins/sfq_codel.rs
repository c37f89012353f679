//! Fair queueing by packets with CoDel on each queue: the discipline of the three configurations of "Extending SDN to
//! the Data Plane".

use std::collections::VecDeque;

use super::codel::{CodelRules, CodelSpec, CodelState};
use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};

/// Fair queueing by packets with CoDel on each queue.
///
/// A flow's queue is its number modulo the number of queues. Queues take turns of one packet. A queue that becomes
/// non-empty goes first once. It stays in turn for a round when it becomes empty, so that this gives no advantage.
/// CoDel's MTU check uses the backlog of all queues. Packets beyond `limit_packets` are dropped.
///
/// Source: Nichols' ns-2 code of 2012, as Sivaraman et al. used it (HotNets 2013). One queue with a target of 5 ms is
/// *CoDel+FCFS*, 1024 queues are *CoDel+FQ*, and with a target of 1000 s *Bufferbloat+FQ*.
#[derive(Clone, Debug)]
pub struct SfqCodel {
    spec: CodelSpec,
    queues: Vec<Queue>,
    /// The queues in turn that were empty before, and the others.
    new: VecDeque<u32>,
    old: VecDeque<u32>,
    limit_packets: u64,
    backlog: Backlog,
    drops: Drops,
}

#[derive(Clone, Debug, Default)]
struct Queue {
    items: VecDeque<Item>,
    state: CodelState,
    is_in_turn: bool,
}

impl SfqCodel {
    /// A number of queues with this target.
    ///
    /// # Panics
    /// If there are no queues.
    pub fn new(n_queues: u32, target_ns: u64, limit_packets: u64) -> Self {
        assert!(n_queues > 0, "a flow has a queue");
        Self {
            // The initial MTU is 2012's; larger packets raise it.
            spec: CodelSpec { target_ns, mtu: 256, rules: CodelRules::Sfq2012, ..CodelSpec::default() },
            queues: vec![Queue::default(); n_queues as usize],
            new: VecDeque::new(),
            old: VecDeque::new(),
            limit_packets,
            backlog: Backlog::default(),
            drops: Drops::default(),
        }
    }
}

impl Discipline for SfqCodel {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        if self.backlog.packets >= self.limit_packets {
            return self.drops.push(item, DropReason::Full);
        }
        self.spec.mtu = self.spec.mtu.max(item.len);
        self.backlog.add(&item);
        let number = item.flow % self.queues.len() as u32;
        let queue = &mut self.queues[number as usize];
        queue.items.push_back(item);
        if !queue.is_in_turn {
            queue.is_in_turn = true;
            self.new.push_back(number);
        }
    }

    fn dequeue(&mut self, now_ns: u64) -> Option<Item> {
        loop {
            let turn = if self.new.is_empty() { &mut self.old } else { &mut self.new };
            let number = turn.pop_front()?;
            let Queue { items, state, is_in_turn } = &mut self.queues[number as usize];
            if items.is_empty() {
                *is_in_turn = false;
                continue;
            }
            let backlog = &mut self.backlog;
            let pop = || {
                let item = items.pop_front()?;
                backlog.remove(&item);
                // Now that it is empty, this queue has no backlog.
                Some((item, if items.is_empty() { 0 } else { backlog.bytes }))
            };
            let item = state.dequeue(&self.spec, now_ns, pop, &mut self.drops);
            if item.is_none() {
                // Its last item was dropped: the next one makes it a new queue.
                *is_in_turn = false;
                continue;
            }
            self.old.push_back(number);
            return item;
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

    fn item(flow: u32, id: u64) -> Item {
        Item { id, flow, len: 1000, ..Item::default() }
    }

    /// If this fails, a flow that sends more gets more.
    #[test]
    fn queues_alternate_by_packets() {
        let mut sfq = SfqCodel::new(1024, 1_000_000_000_000, 1000);
        (0..6).for_each(|id| sfq.enqueue(item(1, id), 0));
        (6..8).for_each(|id| sfq.enqueue(item(2, id), 0));
        let order: Vec<u64> = core::iter::from_fn(|| sfq.dequeue(0)).map(|item| item.id).collect();
        assert_eq!(order, [0, 6, 1, 7, 2, 3, 4, 5]);
        assert_eq!(sfq.backlog(), Backlog::default());
    }

    /// If this fails, a new flow does not go first once, or a flow gains by becoming empty.
    #[test]
    fn new_queue_goes_first_once() {
        let mut sfq = SfqCodel::new(1024, 1_000_000_000_000, 1000);
        (0..4).for_each(|id| sfq.enqueue(item(1, id), 0));
        (4..8).for_each(|id| sfq.enqueue(item(2, id), 0));
        let mut out = vec![sfq.dequeue(0).unwrap().id, sfq.dequeue(0).unwrap().id];
        sfq.enqueue(item(3, 8), 0);
        out.extend((0..2).map(|_| sfq.dequeue(0).unwrap().id));
        // Flow 3 is empty, and stays in turn until the round passes it.
        sfq.enqueue(item(3, 9), 0);
        out.extend(core::iter::from_fn(|| sfq.dequeue(0)).map(|item| item.id));
        assert_eq!(out, [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]);
    }

    /// If this fails, one queue is not FIFO, or the Bufferbloat target drops packets.
    #[test]
    fn two_numbers_make_configurations() {
        let dropped = |queues, target_ns| {
            let mut sfq = SfqCodel::new(queues, target_ns, 1_000_000);
            let mut n = 0;
            for ms in 0..4000u64 {
                let now = ms * 1_000_000;
                for flow in 0..2 {
                    sfq.enqueue(Item { enqueued_at_ns: now, ..item(flow, ms) }, now);
                }
                sfq.dequeue(now);
                while sfq.poll_drop().is_some() {
                    n += 1;
                }
            }
            n
        };
        assert_eq!(dropped(1024, 1_000_000_000_000), 0);
        assert!(dropped(1024, 5_000_000) > 100 && dropped(1, 5_000_000) > 100);
    }
}
