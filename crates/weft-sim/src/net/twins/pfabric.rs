//! pFabric: the flow that is nearest to its end goes first.

use std::collections::VecDeque;

use crate::net::discipline::{Backlog, Discipline, DropReason, Dropped, Drops, Item};
use crate::net::tournament::{NEVER, Tournament};

/// The most urgent flow first, and of it the earliest packet; what does not fit is taken from the least urgent flow.
///
/// A flow is as urgent as the least `remaining` of its packets that wait; of two alike the one that came to it first
/// goes first. When more than `limit_bytes` wait, the last packet of the least urgent flow is dropped. Source: Alizadeh
/// et al., SIGCOMM 2013; the victim is that of the design's program.
///
/// Flow numbers are places: the memory is that of the largest number.
#[derive(Clone, Debug)]
pub struct Pfabric {
    flows: Vec<Flow>,
    /// By `remaining`, then by when it became so: the least is the most urgent.
    urgent: Tournament,
    /// By `remaining` from above.
    patient: Tournament,
    /// Counts the changes of urgency.
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
    /// A queue for so many bytes. The paper has twice the product of rate and round trip, 36 KB.
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

    /// The flow has this urgency now, or nothing waits of it.
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

    /// An item has left this flow.
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

    /// Another flow than the most urgent would be sent from, or another than the least urgent would lose.
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
