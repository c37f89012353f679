//! Overflow: drops packets of a node that exceeds its limit, until it meets the limit.

use super::level::{Level, kept, subtract_packet};
use super::ranked::RankSlots as _;
use super::shared::Shared;
use super::tally::TallyTarget;
use super::{DropCause, NONE, QueueCode};
use weft_ir::queue::Victim;

impl<C: QueueCode> Shared<C> {
    /// Makes room after an arrival, on each level of its path whose node exceeds its limit. `path` has one partition
    /// per level.
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

    /// Drops packets of a node that exceeds its limit, from the partition that `victim` selects. `partition` is that
    /// of the arrived packet.
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
                Victim::MostBytes => levels[at].largest_partition(node),
                Victim::HighestRank => levels[at].first_of_last(node).unwrap_or(partition),
            };
            // A partition without packets, or one that is held, does not count as the excess.
            let from = match levels[at].own(from)[kept::PACKETS] {
                0 => levels[at].largest_partition(node),
                _ => from,
            };
            let bytes_before = levels[at].own(from)[kept::BYTES];
            for nth in 0..shape.batch {
                // The limit is met: drop further packets only while the partition keeps one.
                if nth > 0 && levels[at].own(from)[kept::PACKETS] <= 1 && !levels[at].is_over(node, 0, 0) {
                    break;
                }
                let Some((leaf_partition, slot)) = self.victim_packet(levels, at, from, head) else { return };
                self.unlink(levels, leaf_partition, slot);
                remove_empty_from_order(levels, leaf_partition);
                let whose = TallyTarget { by: Some(from), of: Some((levels.len() - 1, leaf_partition)) };
                self.drop_packet(slot, at, whose, DropCause::Overflow, shape.limit_line);
                if shape.batch > 1 && levels[at].own(from)[kept::BYTES] <= bytes_before / 2 {
                    break;
                }
            }
        }
    }

    /// Returns the first or last packet below a partition, and its leaf partition; by rank if packets have ranks. On
    /// each level below it takes the largest partition. None if there is no packet.
    fn victim_packet(
        &mut self,
        levels: &mut [Level],
        at: usize,
        partition: u32,
        head: bool,
    ) -> Option<(u32, u32)> {
        let mut partition = partition;
        for below in &mut levels[at + 1..] {
            if !below.shape.is_one {
                partition = below.largest_partition(partition);
            }
        }
        let leaf = levels.last_mut()?;
        let slot = if leaf.shape.is_ranked {
            let ranked = &mut leaf.ranked[partition as usize];
            let packets = &mut self.packets;
            if head { ranked.first(packets) } else { ranked.last(packets) }?
        } else {
            let (first, last) = self.packets.ends(leaf, partition);
            if head { first } else { last }
        };
        (slot != NONE).then_some((partition, slot))
    }

    /// Removes a packet from its list and from all counts.
    fn unlink(&mut self, levels: &mut [Level], partition: u32, slot: u32) {
        let len = self.packets.len(slot);
        let mut inside = partition;
        for level in levels.iter_mut().rev() {
            let node = level.shape.node_of(inside);
            subtract_packet(level.nodes.head_mut(node), len);
            if !level.shape.is_one {
                subtract_packet(level.partitions.head_mut(inside), len);
            }
            inside = node;
        }
        let Some(leaf) = levels.last_mut() else { return };
        if leaf.shape.is_ring {
            self.packets.remove_from_ring(leaf.nodes.head_mut(0), slot);
        } else if leaf.shape.is_ranked {
            leaf.ranked[partition as usize].remove(slot, &mut self.packets);
        } else {
            self.packets.unlink(&mut leaf.own_mut(partition)[kept::LINE], slot);
        }
        if leaf.shape.by_least {
            let node = leaf.shape.node_of(partition);
            self.update_least_rank(leaf, node, partition, slot);
        }
    }

    /// Updates the rank of a partition that has the least rank of its packets, after a packet has left.
    #[inline(always)]
    pub(super) fn update_least_rank(&mut self, leaf: &mut Level, node: u32, partition: u32, left: u32) {
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

/// Removes partitions that are empty now from their orders, after a packet was taken from a partition on the last
/// level.
fn remove_empty_from_order(levels: &mut [Level], partition: u32) {
    let mut partition = partition;
    for level in levels.iter_mut().rev().filter(|level| !level.shape.is_one) {
        let node = level.shape.node_of(partition);
        if level.partitions.head(partition)[kept::PACKETS] == 0 && !level.shape.has_empty {
            level.leave(node, partition);
        }
        partition = node;
    }
}
