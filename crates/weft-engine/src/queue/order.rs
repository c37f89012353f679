//! Orders the partitions of a node for scheduling, and holds partitions until a time.

use super::layout::{pair, paired};
use super::level::{Level, kept};
use super::ranked::RankSlots;
use super::records::Records;
use core::cmp::Reverse;

impl Level {
    /// Returns the first partition in a node's order.
    #[inline(always)]
    pub(super) fn first(&mut self, node: u32) -> Option<u32> {
        self.orders[node as usize].first(&mut self.partitions)
    }

    /// Returns the first partition among those with the highest rank.
    pub(super) fn first_of_last(&self, node: u32) -> Option<u32> {
        self.orders[node as usize].first_of_last()
    }

    /// Returns all partitions in a node's order, first to last.
    pub(super) fn in_order(&self, node: u32) -> Vec<u32> {
        self.orders[node as usize].ids(&self.partitions)
    }

    /// Adds a partition to the order, behind those of its rank.
    #[inline]
    pub(super) fn enter(&mut self, node: u32, partition: u32) {
        self.enter_at(node, partition, self.partitions.head(partition)[kept::RANK] as i64);
    }

    /// Adds a partition to the order at a rank that may differ from its own.
    #[inline]
    pub(super) fn enter_at(&mut self, node: u32, partition: u32, rank: i64) {
        self.orders[node as usize].insert(partition, rank, &mut self.partitions);
    }

    /// Removes a partition from the order.
    #[inline]
    pub(super) fn leave(&mut self, node: u32, partition: u32) {
        if self.partitions.head(partition)[kept::PLACE] >= kept::IN_ORDER {
            self.orders[node as usize].remove(partition, &mut self.partitions);
        }
        let head = self.partitions.head_mut(partition);
        head[kept::PLACE] = kept::IDLE;
        if self.shape.counts && head[kept::PACKETS] == 0 {
            self.left.push(partition);
        }
    }

    /// Moves the first partition behind those of its rank.
    #[inline(always)]
    pub(super) fn rotate(&mut self, node: u32, partition: u32) {
        let rank = self.partitions.head(partition)[kept::RANK] as i64;
        self.orders[node as usize].move_to(partition, rank, &mut self.partitions);
    }

    /// Moves a partition to the position of its rank, if that has changed.
    #[inline(always)]
    pub(super) fn rerank(&mut self, node: u32, partition: u32) {
        let head = self.partitions.head(partition);
        if head[kept::RANK] != head[kept::STANDS] {
            let rank = head[kept::RANK] as i64;
            self.orders[node as usize].rerank(partition, rank, &mut self.partitions);
        }
    }

    /// Holds a partition until a time: it leaves the order until then. If the node is one partition, the node is
    /// held.
    #[inline(never)]
    pub(super) fn hold(&mut self, node: u32, partition: u32, until_ns: u64) {
        let until = until_ns.min(kept::IN_ORDER - 1);
        if self.shape.is_one {
            self.nodes.head_mut(node)[kept::PLACE] = until;
            return;
        }
        self.leave(node, partition);
        self.partitions.head_mut(partition)[kept::PLACE] = until;
        self.n_held += 1;
        self.held[node as usize].push(Reverse((until, self.n_held, partition)));
    }

    /// Returns the held partitions that are due to the order.
    #[cold]
    pub(super) fn release_due(&mut self, node: u32, now_ns: u64) {
        while let Some(Reverse((until, _, partition))) = self.held[node as usize].peek().copied() {
            let is_stale = self.partitions.head(partition)[kept::PLACE] != until;
            if !is_stale && until > now_ns {
                return;
            }
            self.held[node as usize].pop();
            if !is_stale {
                self.enter(node, partition);
            }
        }
    }
}

/// The records of partitions hold their positions in the order.
impl RankSlots for Records {
    const MOVES: bool = true;

    #[inline(always)]
    fn links(&self, id: u32) -> (u32, u32) {
        pair(self.head(id)[kept::PLACE] & !kept::IN_ORDER)
    }

    #[inline(always)]
    fn set_links(&mut self, id: u32, (prev, next): (u32, u32)) {
        self.head_mut(id)[kept::PLACE] = paired(prev, next) | kept::IN_ORDER;
    }

    #[inline(always)]
    fn rank(&self, id: u32) -> i64 {
        self.head(id)[kept::STANDS] as i64
    }

    #[inline(always)]
    fn set_rank(&mut self, id: u32, rank: i64) {
        self.head_mut(id)[kept::STANDS] = rank as u64;
    }
}
