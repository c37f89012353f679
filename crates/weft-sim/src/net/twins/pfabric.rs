//! pFabric: shortest remaining flow first.

use std::collections::VecDeque;

use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};
use crate::net::tournament::{NEVER, Tournament};

/// Sends the earliest packet of the most urgent flow. When full, drops from the least urgent flow.
///
/// The urgency of a flow is the least `remaining` of its queued packets; on a tie the flow that reached it first is
/// more urgent. When more than `limit_bytes` are queued, the last packet of the least urgent flow is dropped. Source:
/// Alizadeh et al., SIGCOMM 2013; the victim is that of the design's program.
///
/// Flow numbers are indexes: the memory grows with the largest number.
#[derive(Clone, Debug)]
pub struct Pfabric {
    flows: Vec<Flow>,
    /// By `remaining`, then by the time of the last change: the least is the most urgent.
    urgent: Tournament,
    /// By descending `remaining`.
    patient: Tournament,
    /// The number of urgency changes.
    changes: u32,
    limit_bytes: u64,
    backlog: Backlog,
    drops: Drops,
}

#[derive(Clone, Debug, Default)]
struct Flow {
    items: VecDeque<Item>,
    least: u32,
}

impl Pfabric {
    /// A queue with this byte limit. The paper has twice the bandwidth-delay product, 36 KB.
    pub fn new(limit_bytes: u64) -> Self {
        Self {
            flows: Vec::new(),
            urgent: Tournament::new(),
            patient: Tournament::new(),
            changes: 0,
            limit_bytes,
            backlog: Backlog::default(),
            drops: Drops::default(),
        }
    }

    /// Sets the urgency of a flow; `None` if it has no queued packets.
    fn rank(&mut self, number: usize, least: Option<u32>) {
        let (urgent, patient) = match least {
            None => (NEVER, NEVER),
            Some(least) => {
                self.flows[number].least = least;
                self.changes = self.changes.wrapping_add(1);
                let (change, rest) = (u64::from(self.changes), u64::from(u32::MAX - self.changes));
                ((u64::from(least) << 32) | change, (u64::from(u32::MAX - least) << 32) | rest)
            }
        };
        self.urgent.set(number, urgent);
        self.patient.set(number, patient);
    }

    /// Updates the flow after one of its items has left.
    fn left(&mut self, number: usize, item: &Item) {
        self.backlog.remove(item);
        let flow = &self.flows[number];
        if item.remaining == flow.least || flow.items.is_empty() {
            let least = flow.items.iter().map(|item| item.remaining).min();
            if least.is_none_or(|least| least != flow.least) {
                self.rank(number, least);
            }
        }
    }
}

impl Discipline for Pfabric {
    fn enqueue(&mut self, item: Item, _now_ns: u64) {
        let number = item.flow as usize;
        while self.flows.len() <= number {
            self.flows.push(Flow::default());
            self.urgent.add();
            self.patient.add();
        }
        self.backlog.add(&item);
        let flow = &mut self.flows[number];
        let changes = flow.items.is_empty() || item.remaining < flow.least;
        flow.items.push_back(item);
        if changes {
            self.rank(number, Some(item.remaining));
        }
        while self.backlog.bytes > self.limit_bytes {
            let Some((victim, key)) = self.patient.least() else { return };
            let Some(item) = self.flows[victim].items.pop_back().filter(|_| key != NEVER) else { return };
            self.left(victim, &item);
            self.drops.push(item, DropReason::PushedOut);
        }
    }

    fn dequeue(&mut self, _now_ns: u64) -> Option<Item> {
        let (number, _) = self.urgent.least().filter(|(_, key)| *key != NEVER)?;
        let item = self.flows[number].items.pop_front()?;
        self.left(number, &item);
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

    /// If this fails, the queue sends from a flow that is not the most urgent, or drops from one that is not the least
    /// urgent.
    #[test]
    fn pfabric_matches_full_walk() {
        let mut rng = Rng::from_seed(2);
        let mut queue = Pfabric::new(36_000);
        let mut waiting: Vec<Item> = Vec::new();
        let least = |waiting: &[Item], flow: u32| {
            waiting.iter().filter(|it| it.flow == flow).map(|it| it.remaining).min()
        };
        for id in 0..20_000 {
            if rng.chance(550) {
                let flow = rng.within(&(0..=11)) as u32;
                let item = Item {
                    id,
                    flow,
                    len: 1500,
                    remaining: rng.within(&(0..=1 << 20)) as u32,
                    ..Item::default()
                };
                queue.enqueue(item, 0);
                waiting.push(item);
                while let Some(dropped) = queue.poll_drop() {
                    let at = waiting.iter().position(|it| it.id == dropped.item.id).unwrap();
                    let most = waiting.iter().filter_map(|it| least(&waiting, it.flow)).max();
                    assert_eq!(least(&waiting, dropped.item.flow), most);
                    assert_eq!(Some(at), waiting.iter().rposition(|it| it.flow == dropped.item.flow));
                    waiting.remove(at);
                }
                assert!(queue.backlog().bytes <= 36_000);
            } else if let Some(item) = queue.dequeue(0) {
                let at = waiting.iter().position(|it| it.id == item.id).unwrap();
                let fewest = waiting.iter().filter_map(|it| least(&waiting, it.flow)).min();
                assert_eq!(least(&waiting, item.flow), fewest);
                assert_eq!(Some(at), waiting.iter().position(|it| it.flow == item.flow));
                waiting.remove(at);
            }
        }
    }
}
