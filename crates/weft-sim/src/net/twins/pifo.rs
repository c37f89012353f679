//! Push in, first out: the item with the least rank leaves first.

use core::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};

/// A queue in order of rank, on a binary heap; equal ranks leave in order of arrival. When it is full, the last item in
/// that order is dropped, after a linear search.
///
/// Source: Sivaraman et al., "Programmable Packet Scheduling at Line Rate", SIGCOMM 2016. The rank is a function of the
/// item: `remaining` gives SRPT, `class` strict priority.
#[derive(Clone, Debug)]
pub struct Pifo {
    /// Rank, arrival number, index into the items.
    heap: BinaryHeap<Reverse<(u64, u64, u32)>>,
    items: Vec<Item>,
    free: Vec<u32>,
    rank: fn(&Item) -> u64,
    arrived: u64,
    limit_packets: u64,
    backlog: Backlog,
    drops: Drops,
}

impl Pifo {
    /// A queue with this rank function and packet limit.
    pub fn new(rank: fn(&Item) -> u64, limit_packets: u64) -> Self {
        Self {
            heap: BinaryHeap::new(),
            items: Vec::new(),
            free: Vec::new(),
            rank,
            arrived: 0,
            limit_packets,
            backlog: Backlog::default(),
            drops: Drops::default(),
        }
    }
}

impl Pifo {
    /// Drops the packet with the highest rank.
    fn drop_last(&mut self) {
        let mut all = core::mem::take(&mut self.heap).into_vec();
        let last = (0..all.len()).min_by_key(|at| all[*at]);
        if let Some(Reverse((_, _, place))) = last.map(|at| all.swap_remove(at)) {
            let item = self.items[place as usize];
            self.free.push(place);
            self.backlog.remove(&item);
            self.drops.push(item, DropReason::Full);
        }
        self.heap = all.into();
    }
}

impl Discipline for Pifo {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        self.backlog.add(&item);
        let place = match self.free.pop() {
            Some(place) => {
                self.items[place as usize] = item;
                place
            }
            None => {
                self.items.push(item);
                self.items.len() as u32 - 1
            }
        };
        self.heap.push(Reverse(((self.rank)(&item), self.arrived, place)));
        self.arrived += 1;
        if self.backlog.packets > self.limit_packets {
            self.drop_last();
        }
    }

    fn dequeue(&mut self, _now_ns: u64) -> Option<Item> {
        let Reverse((_, _, place)) = self.heap.pop()?;
        self.free.push(place);
        let item = self.items[place as usize];
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

#[cfg(test)]
mod tests {
    use super::*;
    use weft_core::rng::Rng;

    /// If this fails, an item leaves before one with a lower rank, or before an earlier one with the same rank.
    #[test]
    fn equal_ranks_leave_in_order() {
        let mut rng = Rng::from_seed(4);
        let mut queue = Pifo::new(|item| u64::from(item.remaining), 900);
        let mut waiting: Vec<(u32, u64)> = Vec::new();
        for id in 0..20_000 {
            if rng.chance(520) {
                let remaining = rng.within(&(0..=50)) as u32;
                queue.enqueue(Item { id, remaining, len: 1, ..Item::default() }, 0);
                waiting.push((remaining, id));
                if let Some(dropped) = queue.poll_drop() {
                    let last = waiting.iter().max().copied();
                    assert_eq!((Some((dropped.item.remaining, dropped.item.id)), waiting.len()), (last, 901));
                    waiting.retain(|known| Some(*known) != last);
                }
            } else {
                let first = waiting.iter().min().copied();
                assert_eq!(queue.dequeue(0).map(|item| (item.remaining, item.id)), first);
                waiting.retain(|known| Some(*known) != first);
            }
        }
    }
}
