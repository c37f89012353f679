//! First in, first out, with tail drop.

use std::collections::VecDeque;

use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};

/// A FIFO queue with a packet limit: packets that arrive at a full queue are dropped.
#[derive(Clone, Debug)]
pub struct Fifo {
    items: VecDeque<Item>,
    limit_packets: u64,
    backlog: Backlog,
    drops: Drops,
}

impl Fifo {
    /// A queue with this packet limit.
    pub fn new(limit_packets: u64) -> Self {
        Self { items: VecDeque::new(), limit_packets, backlog: Backlog::default(), drops: Drops::default() }
    }
}

impl Discipline for Fifo {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        if self.backlog.packets >= self.limit_packets {
            return self.drops.push(item, DropReason::Full);
        }
        self.backlog.add(&item);
        self.items.push_back(item);
    }

    fn dequeue(&mut self, _now_ns: u64) -> Option<Item> {
        let item = self.items.pop_front()?;
        self.backlog.remove(&item);
        Some(item)
    }

    fn poll_drop(&mut self) -> Option<Dropped> {
        self.drops.poll()
    }

    fn backlog(&self) -> Backlog {
        self.backlog
    }
}
