//! Fair queueing by packets, with CoDel on each queue: the discipline of the three configurations of "Extending SDN to
//! the Data Plane".

use std::collections::VecDeque;

use super::codel::{CodelRules, CodelSpec, CodelState};
use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};

/// Fair queueing by packets with CoDel on each queue.
///
/// A flow's queue is its number modulo the number of queues. Queues take turns, a packet each; one that had nothing
/// goes first when it has something again, once, and stays in turn for a round when it runs empty, so that it gains
/// nothing by that. Whether few bytes wait is asked of all queues together. What arrives beyond `limit_packets` is
/// dropped.
///
/// Source: the scheme of Nichols for ns-2 of 2012, as Sivaraman et al. used it (HotNets 2013): one queue with a target
/// of 5 ms is *CoDel+FCFS*, 1024 are *CoDel+FQ*, and with a target of 1000 s *Bufferbloat+FQ*.
#[derive(Clone, Debug)]
pub struct SfqCodel {
    spec: CodelSpec,
    queues: Vec<Queue>,
    /// Queues in turn that had nothing before, and the others.
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
    /// So many queues, each with this target.
    ///
    /// # Panics
    /// If there is to be no queue.
    pub fn new(n_queues: u32, target_ns: u64, limit_packets: u64) -> Self {
        assert!(n_queues > 0, "a flow has a queue");
        Self {
            // It begins with what 2012 took for the largest packet; what is larger raises it.
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
                // A queue that is empty now is none that waits.
                Some((item, if items.is_empty() { 0 } else { backlog.bytes }))
            };
            let item = state.dequeue(&self.spec, now_ns, pop, &mut self.drops);
            if item.is_none() {
                // Its last item was dropped: it is new when it has one again.
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

    /// A flow that sends more would get more.
    #[test]
    fn queues_alternate_by_packets() {
        let mut sfq = SfqCodel::new(1024, 1_000_000_000_000, 1000);
        (0..6).for_each(|id| sfq.enqueue(item(1, id), 0));
        (6..8).for_each(|id| sfq.enqueue(item(2, id), 0));
        let order: Vec<u64> = core::iter::from_fn(|| sfq.dequeue(0)).map(|item| item.id).collect();
        assert_eq!(order, [0, 6, 1, 7, 2, 3, 4, 5]);
        assert_eq!(sfq.backlog(), Backlog::default());
    }

    /// A flow that had nothing goes first, once; and one that ran empty gains nothing by it.
    #[test]
    fn new_queue_goes_first_once() {
        let mut sfq = SfqCodel::new(1024, 1_000_000_000_000, 1000);
        (0..4).for_each(|id| sfq.enqueue(item(1, id), 0));
        (4..8).for_each(|id| sfq.enqueue(item(2, id), 0));
        let mut out = vec![sfq.dequeue(0).unwrap().id, sfq.dequeue(0).unwrap().id];
        sfq.enqueue(item(3, 8), 0);
        out.extend((0..2).map(|_| sfq.dequeue(0).unwrap().id));
        // Flow 3 ran empty, and is in turn until it is passed over.
        sfq.enqueue(item(3, 9), 0);
        out.extend(core::iter::from_fn(|| sfq.dequeue(0)).map(|item| item.id));
        assert_eq!(out, [0, 4, 8, 1, 5, 9, 2, 6, 3, 7]);
    }

    /// With one queue all wait in order of arrival, and with the target of Bufferbloat nothing is dropped.
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
