//! Too many: a node that holds more than its limit makes room.

use super::level::{Level, kept, uncount};
use super::ranked::Places as _;
use super::shared::Shared;
use super::tally::Whose;
use super::{NONE, QueueCode, Why};
use weft_ir::queue::Victim;

impl<C: QueueCode> Shared<C> {
    /// A packet came to these partitions, one of each level, and some node holds too much.
    #[cold]
    pub(super) fn make_room(&mut self, levels: &mut [Level], path: &[u32]) {
        let mut node = 0;
        for (at, partition) in path.iter().enumerate() {
            if let Some((victim, head)) = levels[at].shape.victim
                && levels[at].is_over(node, 0, 0)
            {
                self.trim(levels, at, node, *partition, victim, head);
            }
            node = *partition;
        }
    }

    /// A node holds too much after a packet came to one of its partitions.
    fn trim(
        &mut self,
        levels: &mut [Level],
        at: usize,
        node: u32,
        partition: u32,
        victim: Victim,
        head: bool,
    ) {
        let shape = levels[at].shape;
        while levels[at].is_over(node, 0, 0) {
            let from = match victim {
                _ if shape.is_one => node,
                Victim::Own => partition,
                Victim::MostBytes => levels[at].fattest(node),
                Victim::HighestRank => levels[at].first_of_last(node).unwrap_or(partition),
            };
            // One that stands in the order without packets, or whose packets wait, is not what is too much.
            let from = match levels[at].own(from)[kept::PACKETS] {
                0 => levels[at].fattest(node),
                _ => from,
            };
            let bytes_before = levels[at].own(from)[kept::BYTES];
            for nth in 0..shape.batch {
                // There is room: what is more goes only as long as something stays.
                if nth > 0 && levels[at].own(from)[kept::PACKETS] <= 1 && !levels[at].is_over(node, 0, 0) {
                    break;
                }
                let Some((leaf_partition, slot)) = self.victim_packet(levels, at, from, head) else { return };
                self.unlink(levels, leaf_partition, slot);
                vacated(levels, leaf_partition);
                let whose = Whose { by: Some(from), of: Some((levels.len() - 1, leaf_partition)) };
                self.drop_packet(slot, at, whose, Why::Overflow, shape.limit_line);
                if shape.batch > 1 && levels[at].own(from)[kept::BYTES] <= bytes_before / 2 {
                    break;
                }
            }
        }
    }

    /// The first or last packet below a partition of a level, by rank where packets have one: of the fattest on each
    /// level below.
    fn victim_packet(
        &self,
        levels: &mut [Level],
        at: usize,
        partition: u32,
        head: bool,
    ) -> Option<(u32, u32)> {
        let mut partition = partition;
        for below in &mut levels[at + 1..] {
            if !below.shape.is_one {
                partition = below.fattest(partition);
            }
        }
        let leaf = levels.last_mut()?;
        let slot = if leaf.shape.is_ranked {
            let ranked = &mut leaf.ranked[partition as usize];
            if head { ranked.peek() } else { ranked.last() }?
        } else {
            let (first, last) = self.packets.ends(leaf, partition);
            if head { first } else { last }
        };
        (slot != NONE).then_some((partition, slot))
    }

    /// Takes a packet out of its line and out of all counts.
    fn unlink(&mut self, levels: &mut [Level], partition: u32, slot: u32) {
        let len = self.packets.len(slot);
        let mut inside = partition;
        for level in levels.iter_mut().rev() {
            let node = level.shape.node_of(inside);
            uncount(level.nodes.head_mut(node), len);
            if !level.shape.is_one {
                uncount(level.partitions.head_mut(inside), len);
            }
            inside = node;
        }
        let Some(leaf) = levels.last_mut() else { return };
        if leaf.shape.is_ring {
            self.packets.leave_ring(leaf.nodes.head_mut(0), slot);
        } else if leaf.shape.is_ranked {
            leaf.ranked[partition as usize].remove(slot, &mut self.packets);
        } else {
            self.packets.unlink(&mut leaf.own_mut(partition)[kept::LINE], slot);
        }
        if leaf.shape.by_least {
            let node = leaf.shape.node_of(partition);
            self.least_left(leaf, node, partition, slot);
        }
    }

    /// The least rank of the packets of a partition, one of which has left.
    #[inline(always)]
    pub(super) fn least_left(&mut self, leaf: &mut Level, node: u32, partition: u32, left: u32) {
        let rank = self.packets.rank(left);
        let head = leaf.partitions.head_mut(partition);
        if head[kept::RANK] as i64 != rank {
            return;
        }
        let ranks = self.packets.each(head[kept::LINE]).map(|slot| self.packets.rank(slot));
        if let Some(least) = ranks.min() {
            head[kept::RANK] = least as u64;
            if head[kept::PLACE] >= kept::IN_ORDER {
                leaf.rerank(node, partition);
            }
        }
    }
}

/// A packet of a partition of the last level was taken away: those that it leaves empty leave their order.
fn vacated(levels: &mut [Level], partition: u32) {
    let mut partition = partition;
    for level in levels.iter_mut().rev().filter(|level| !level.shape.is_one) {
        let node = level.shape.node_of(partition);
        if level.partitions.head(partition)[kept::PACKETS] == 0 && !level.shape.has_empty {
            level.leave(node, partition);
        }
        partition = node;
    }
}
