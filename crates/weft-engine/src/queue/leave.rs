//! Dequeue: serves the first partition on each level, down to the packet to send.

use super::layout::pair;
use super::level::{Level, Visit, add_packet, kept, subtract_packet};
use super::packets::{bytes, unlink_first};
use super::ranked::RankSlots as _;
use super::records::{Head, Records};
use super::shared::Shared;
use super::{NONE, QueueCode, TURNS_MAX};
use core::cmp::Reverse;
use weft_ir::queue::{Moment, Verdict};

/// The turns of a dequeue, including those in which the first partition is served unconditionally.
const TURNS_ALL: u32 = 2 * TURNS_MAX;

/// The result of serving a node.
pub(super) enum ServeResult {
    /// The slot of a packet; as wide as a time, so that either is returned in a register.
    Sent(u64),
    Empty,
    Held(u64),
}

impl<C: QueueCode> Shared<C> {
    /// Serves a node of the first of these levels.
    #[inline(always)]
    pub(super) fn serve(&mut self, levels: &mut [Level], node: u32) -> ServeResult {
        match levels {
            [leaf] if leaf.shape.is_ranked => self.serve_single_below::<true>(leaf, node),
            [leaf] if leaf.shape.is_one => self.serve_single_below::<false>(leaf, node),
            [leaf] => self.serve_partitioned_below(leaf, node),
            [level, below @ ..] if level.shape.is_one => self.serve_above_below::<true>(level, below, node),
            [level, below @ ..] => self.serve_above_below::<false>(level, below, node),
            [] => ServeResult::Empty,
        }
    }

    /// Serves the first partition of a node on the last level. Looks up the records of the node, the partition and its
    /// first packet once per turn.
    #[inline(always)]
    pub(super) fn serve_partitioned(&mut self, leaf: &mut Level, node: u32) -> ServeResult {
        let at = leaf.shape.at;
        for turns_left in (0..TURNS_ALL).rev() {
            let partition = match self.first_partition::<false>(leaf, node) {
                Ok(partition) => partition,
                Err(served) => return served,
            };
            self.left = partition;
            let mut visited = visit::<false>(&mut leaf.nodes, &mut leaf.partitions, node, partition);
            let Some((slot, mut packet)) = self.packets.first(visited.own[0][kept::LINE]) else {
                self.found_empty::<false>(leaf, &mut [], node, partition, turns_left);
                continue;
            };
            if leaf.shape.has_select {
                let end = self.handlers.run(at, Moment::Select, visited.again(), Some(packet));
                let verdict = Verdict::of_word(end);
                if matches!(verdict, Verdict::Next | Verdict::Hold) && turns_left > TURNS_MAX {
                    self.skip_partition(leaf, node, partition, verdict);
                    continue;
                }
            }
            self.handlers.no_drops();
            unlink_first(&packet[0], &mut visited.own[0][kept::LINE]);
            let len = bytes(&packet[0]);
            subtract_packet(&mut visited.own[0], len);
            subtract_packet(&mut visited.node[0], len);
            if leaf.shape.by_least {
                self.update_least_rank(leaf, node, partition, slot);
                visited = visit::<false>(&mut leaf.nodes, &mut leaf.partitions, node, partition);
                packet = self.packets.record(slot);
            }
            let mut verdict = Verdict::Pass;
            if leaf.shape.has_dequeue {
                let end = self.handlers.run(at, Moment::Dequeue, visited.again(), Some(packet));
                verdict = Verdict::of_word(end);
                if matches!(verdict, Verdict::Mark | Verdict::Drop | Verdict::Hold) {
                    let Some((slot, verdict)) = self.serve_rest(leaf, node, partition, (slot, end)) else {
                        continue;
                    };
                    leaf.after_dequeue(node, partition, verdict);
                    return ServeResult::Sent(slot.into());
                }
            }
            if visited.own[0][kept::PLACE] >= kept::IN_ORDER {
                let is_empty = visited.own[0][kept::PACKETS] == 0;
                leaf.update_position(node, partition, is_empty, verdict);
            }
            return ServeResult::Sent(slot.into());
        }
        ServeResult::Empty
    }

    /// Serves a node of the last level that is below other levels.
    #[inline(never)]
    fn serve_partitioned_below(&mut self, leaf: &mut Level, node: u32) -> ServeResult {
        self.serve_partitioned(leaf, node)
    }

    /// Serves a node above other levels: its first or only partition. `LINES`: the level below consists of FIFOs.
    #[inline(always)]
    pub(super) fn serve_above<const ONE: bool, const LINES: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
    ) -> ServeResult {
        let at = level.shape.at;
        for turns_left in (0..TURNS_ALL).rev() {
            let partition = match self.first_partition::<ONE>(level, node) {
                Ok(partition) => partition,
                Err(served) => return served,
            };
            let mut visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
            if visited.first::<ONE>()[kept::PACKETS] == 0 {
                self.found_empty::<ONE>(level, below, node, partition, turns_left);
                if ONE {
                    return ServeResult::Empty;
                }
                continue;
            }
            if level.shape.has_select {
                let end = self.handlers.run(at, Moment::Select, visited.again(), None);
                let verdict = Verdict::of_word(end);
                let is_passed_over = verdict == Verdict::Hold || !ONE && verdict == Verdict::Next;
                if is_passed_over && turns_left > TURNS_MAX {
                    self.skip_partition(level, node, partition, verdict);
                    continue;
                }
            }
            self.handlers.no_drops();
            if let Some(served) = self.serve_partition::<ONE, LINES>(level, below, node, partition) {
                return served;
            }
        }
        ServeResult::Empty
    }

    /// Serves a partition of a node above other levels. None if the node's first partition may be another one now.
    #[inline(always)]
    fn serve_partition<const ONE: bool, const LINES: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        partition: u32,
    ) -> Option<ServeResult> {
        let at = level.shape.at;
        let mut visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
        let (slot, verdict) = loop {
            let served = match &mut *below {
                [line] if LINES => self.serve_single::<false>(line, partition),
                below => self.serve(below, partition),
            };
            visited.left_below::<ONE>(below, partition);
            let slot = match served {
                ServeResult::Sent(slot) => slot as u32,
                ServeResult::Empty => return None,
                ServeResult::Held(until) => {
                    self.handlers.set_held_until(until);
                    self.skip_partition(level, node, partition, Verdict::Hold);
                    return None;
                }
            };
            if !level.shape.has_dequeue {
                break (slot, Verdict::Pass);
            }
            let packet = self.packets.record(slot);
            let end = self.handlers.run(at, Moment::Dequeue, visited.again(), Some(packet));
            match Verdict::of_word(end) {
                Verdict::Drop => self.drop_leaving(slot, (at, partition), end),
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, self.tally_target(at, partition), end);
                    }
                    break (slot, verdict);
                }
            }
        };
        if !ONE && visited.own[0][kept::PLACE] >= kept::IN_ORDER {
            let is_empty = visited.own[0][kept::PACKETS] == 0;
            level.update_position(node, partition, is_empty, verdict);
        }
        Some(ServeResult::Sent(slot.into()))
    }

    /// As [`Shared::serve_above`], below other levels and itself below one.
    #[inline(never)]
    fn serve_above_below<const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
    ) -> ServeResult {
        self.serve_above::<ONE, false>(level, below, node)
    }

    /// Returns the first partition of a node, after held ones that are due have returned. `Err`: there is none, or
    /// all are held.
    #[inline(always)]
    fn first_partition<const ONE: bool>(&mut self, level: &mut Level, node: u32) -> Result<u32, ServeResult> {
        if ONE {
            let until = level.nodes.head(node)[kept::PLACE];
            return if until > self.handlers.now() { Err(ServeResult::Held(until)) } else { Ok(node) };
        }
        if level.shape.may_hold && !level.held[node as usize].is_empty() {
            level.release_due(node, self.handlers.now());
        }
        match level.first(node) {
            Some(partition) => Ok(partition),
            None => Err(match level.held[node as usize].peek() {
                Some(Reverse((until, ..))) => ServeResult::Held(*until),
                None => ServeResult::Empty,
            }),
        }
    }

    /// Handles a first partition without packets. If it stays in the order, it moves behind others of its rank. Once
    /// the turns are used up it must leave the order, or this would not end.
    #[inline(never)]
    fn found_empty<const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        partition: u32,
        turns_left: u32,
    ) {
        if !below.is_empty() {
            // The level below may have to run a handler for the failed attempt.
            self.serve(below, partition);
        }
        let at = level.shape.at;
        let end = match level.shape.has_empty {
            true => self.handlers.run(at, Moment::Empty, level.visit(node, partition), None),
            false => Verdict::Pass.word(0),
        };
        if ONE {
            return;
        }
        match Verdict::of_word(end) {
            Verdict::Stay if turns_left >= TURNS_MAX => level.rotate(node, partition),
            _ => level.leave(node, partition),
        }
    }

    /// Skips the first partition, by ON SELECT: moves it behind those of its rank, or holds it.
    #[inline(always)]
    fn skip_partition(&mut self, level: &mut Level, node: u32, partition: u32, verdict: Verdict) {
        if verdict == Verdict::Next {
            level.rotate(node, partition);
        } else {
            level.hold(node, partition, self.handlers.held_until());
        }
    }

    /// Serves the only partition of a node, a FIFO or a list by rank: most queues are like that. Handles packets that
    /// are sent unchanged; all others go to [`Shared::serve_rest`].
    #[inline(always)]
    pub(super) fn serve_single<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> ServeResult {
        if leaf.shape.may_wait
            && let Some(until) = self.hold_time(leaf, node)
        {
            return ServeResult::Held(until);
        }
        self.handlers.no_drops();
        self.left = node;
        let visited = visit::<true>(&mut leaf.nodes, &mut leaf.partitions, node, node);
        let head = &mut visited.node[0];
        let slot = match RANKED {
            true => leaf.ranked[node as usize].pop(&mut self.packets).unwrap_or(NONE),
            false => pair(head[kept::LINE]).0,
        };
        if slot == NONE {
            return self.found_empty_node(leaf, node);
        }
        let packet = self.packets.record(slot);
        if !RANKED {
            unlink_first(&packet[0], &mut head[kept::LINE]);
        }
        subtract_packet(head, bytes(&packet[0]));
        if !leaf.shape.has_dequeue {
            return ServeResult::Sent(slot.into());
        }
        let end = self.handlers.run(leaf.shape.at, Moment::Dequeue, visited, Some(packet));
        if Verdict::of_word(end) == Verdict::Pass {
            return ServeResult::Sent(slot.into());
        }
        self.serve_rest_of_fifo(leaf, node, (slot, end))
    }

    /// Serves a node of one partition that is below other levels, as [`Shared::serve_single`].
    #[inline(never)]
    fn serve_single_below<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> ServeResult {
        self.serve_single::<RANKED>(leaf, node)
    }

    /// Returns the time until which a node of one partition is held; runs its ON SELECT. None if it may be served.
    #[inline(never)]
    pub(super) fn hold_time(&mut self, leaf: &mut Level, node: u32) -> Option<u64> {
        let (at, head) = (leaf.shape.at, leaf.nodes.head(node));
        let (until, packets) = (head[kept::PLACE], head[kept::PACKETS]);
        if until > self.handlers.now() {
            return Some(until);
        }
        if !leaf.shape.has_select || packets == 0 {
            return None;
        }
        let first = match leaf.shape.is_ranked {
            true => leaf.ranked[node as usize].first(&mut self.packets).unwrap_or(NONE),
            false => self.packets.ends(leaf, node).0,
        };
        let packet = self.packets.record(first);
        let end = self.handlers.run(at, Moment::Select, leaf.visit(node, node), Some(packet));
        if Verdict::of_word(end) != Verdict::Hold {
            return None;
        }
        leaf.hold(node, node, self.handlers.held_until());
        Some(leaf.nodes.head(node)[kept::PLACE])
    }

    /// Continues after a packet that is not sent unchanged.
    #[inline(never)]
    pub(super) fn serve_rest_of_fifo(
        &mut self,
        leaf: &mut Level,
        node: u32,
        progress: (u32, u64),
    ) -> ServeResult {
        if let Some((slot, _)) = self.serve_rest(leaf, node, node, progress) {
            return ServeResult::Sent(slot.into());
        }
        match leaf.nodes.head(node)[kept::PLACE] {
            until if until > self.handlers.now() => ServeResult::Held(until),
            _ => self.found_empty_node(leaf, node),
        }
    }

    /// Takes packets of a partition on the last level until one is sent, beginning with one whose ON DEQUEUE has run.
    /// Returns that packet with its verdict. None if the partition has no more packets, or must wait.
    #[inline(never)]
    fn serve_rest(
        &mut self,
        leaf: &mut Level,
        node: u32,
        partition: u32,
        progress: (u32, u64),
    ) -> Option<(u32, Verdict)> {
        let at = leaf.shape.at;
        self.left = partition;
        let (mut slot, mut end) = progress;
        loop {
            match Verdict::of_word(end) {
                Verdict::Drop => self.drop_leaving(slot, (at, partition), end),
                Verdict::Hold => {
                    self.put_back(leaf, node, partition, slot);
                    leaf.hold(node, partition, self.handlers.held_until());
                    return None;
                }
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, self.tally_target(at, partition), end);
                    }
                    return Some((slot, verdict));
                }
            }
            slot = self.pop(leaf, node, partition)?;
            let packet = self.packets.record(slot);
            end = self.handlers.run(at, Moment::Dequeue, leaf.visit(node, partition), Some(packet));
        }
    }

    /// Handles a node without packets: runs its ON EMPTY.
    #[inline(never)]
    pub(super) fn found_empty_node(&mut self, leaf: &mut Level, node: u32) -> ServeResult {
        if leaf.shape.has_empty {
            self.handlers.run(leaf.shape.at, Moment::Empty, leaf.visit(node, node), None);
        }
        ServeResult::Empty
    }

    /// Takes the first packet of a partition on the last level.
    fn pop(&mut self, leaf: &mut Level, node: u32, partition: u32) -> Option<u32> {
        let slot = match (leaf.shape.is_ring, leaf.shape.is_ranked) {
            (true, _) => self.packets.pop_of_ring(leaf.nodes.head_mut(0))?,
            (_, true) => leaf.ranked[node as usize].pop(&mut self.packets)?,
            _ => self.packets.pop(&mut leaf.own_mut(partition)[kept::LINE])?,
        };
        let len = self.packets.len(slot);
        subtract_packet(leaf.nodes.head_mut(node), len);
        if !leaf.shape.is_one {
            subtract_packet(leaf.partitions.head_mut(partition), len);
        }
        if leaf.shape.by_least {
            self.update_least_rank(leaf, node, partition, slot);
        }
        Some(slot)
    }

    /// Puts a packet that was taken as the first back in front.
    #[inline(never)]
    fn put_back(&mut self, leaf: &mut Level, node: u32, partition: u32, slot: u32) {
        let len = self.packets.len(slot);
        add_packet(leaf.nodes.head_mut(node), len);
        if leaf.shape.is_ring {
            return self.packets.back_into_ring(leaf.nodes.head_mut(0));
        }
        if leaf.shape.is_ranked {
            let rank = self.packets.rank(slot);
            leaf.ranked[node as usize].put_back(slot, rank, &mut self.packets);
            return;
        }
        if !leaf.shape.is_one {
            add_packet(leaf.partitions.head_mut(partition), len);
        }
        self.packets.push_front(&mut leaf.own_mut(partition)[kept::LINE], slot);
    }
}

impl Level {
    /// Updates the position of a partition in the order, after a packet has left it.
    fn after_dequeue(&mut self, node: u32, partition: u32, verdict: Verdict) {
        let head = self.partitions.head(partition);
        if head[kept::PLACE] >= kept::IN_ORDER {
            self.update_position(node, partition, head[kept::PACKETS] == 0, verdict);
        }
    }

    /// Moves a partition that a packet has left: out of the order if it is empty, behind others of its rank, or to
    /// its new rank.
    #[inline(always)]
    pub(super) fn update_position(&mut self, node: u32, partition: u32, is_empty: bool, verdict: Verdict) {
        if is_empty && !self.shape.has_empty {
            self.leave(node, partition);
        } else if verdict == Verdict::Rotate {
            self.rotate(node, partition);
        } else if self.shape.dequeue_ranks {
            self.rerank(node, partition);
        }
    }
}

impl Visit<'_> {
    /// The first cache line of a partition's record.
    #[inline(always)]
    fn first<const ONE: bool>(&mut self) -> &mut Head {
        if ONE { &mut self.node[0] } else { &mut self.own[0] }
    }

    /// Updates the counts of a partition and its node from the node below, after packets left there.
    #[inline(always)]
    fn left_below<const ONE: bool>(&mut self, below: &[Level], partition: u32) {
        let Some(next) = below.first() else { return };
        let now = next.nodes.head(partition);
        let (packets, bytes) = (now[kept::PACKETS], now[kept::BYTES]);
        let head = self.first::<ONE>();
        let left = (head[kept::PACKETS] - packets, head[kept::BYTES].saturating_sub(bytes));
        (head[kept::PACKETS], head[kept::BYTES]) = (packets, bytes);
        if !ONE {
            let node = &mut self.node[0];
            node[kept::PACKETS] -= left.0;
            node[kept::BYTES] = node[kept::BYTES].saturating_sub(left.1);
        }
    }
}

/// Returns the records of a node and its partition. `ONE`: each node has a single partition, whose counters are the
/// node's.
#[inline(always)]
pub(super) fn visit<'l, const ONE: bool>(
    nodes: &'l mut Records,
    partitions: &'l mut Records,
    node: u32,
    partition: u32,
) -> Visit<'l> {
    let own = if ONE { &mut partitions.no_record } else { partitions.record(partition) };
    Visit { node: nodes.record(node), own }
}
