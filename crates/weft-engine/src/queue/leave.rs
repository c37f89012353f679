//! A packet leaves: the partition that is first on each level is asked for it.

use super::level::{Head, Level, LevelRecords, Visit, count, kept, uncount};
use super::ranked::Places as _;
use super::records::pair;
use super::shared::Shared;
use super::{NONE, QueueCode, TURNS_MAX};
use core::cmp::Reverse;
use weft_ir::queue::{Moment, Verdict};

/// What came of asking a node for a packet.
pub(super) enum Served {
    /// The place of a packet; as wide as a time, so that either comes back in a register.
    Sent(u64),
    Empty,
    Held(u64),
}

impl<C: QueueCode> Shared<C> {
    /// Asks a node of the first of these levels.
    #[inline(always)]
    pub(super) fn serve(&mut self, levels: &mut [Level], node: u32) -> Served {
        match levels {
            [leaf] if leaf.shape.is_ranked => self.serve_line_below::<true>(leaf, node),
            [leaf] if leaf.shape.is_one => self.serve_line_below::<false>(leaf, node),
            [leaf] => self.serve_in_turn::<true, false>(leaf, &mut [], node),
            [level, below @ ..] if level.shape.is_one => {
                self.serve_in_turn::<false, true>(level, below, node)
            }
            [level, below @ ..] => self.serve_in_turn::<false, false>(level, below, node),
            [] => Served::Empty,
        }
    }

    /// Asks a node the partition of which that is first: of the last level, or of one above others, and of one with
    /// partitions or with none but itself.
    #[inline(never)]
    fn serve_in_turn<const LEAF: bool, const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
    ) -> Served {
        for turns_left in (0..TURNS_MAX).rev() {
            let partition = match self.first::<ONE>(level, node) {
                Ok(partition) => partition,
                Err(served) => return served,
            };
            let head = own::<ONE>(level, partition);
            let (packets, first) = (head[kept::PACKETS], pair(head[kept::LINE]).0);
            if packets == 0 {
                if self.found_empty::<LEAF, ONE>(level, below, node, partition) {
                    continue;
                }
                return Served::Empty;
            }
            if level.shape.has_select
                && turns_left != 0
                && !self.select::<LEAF, ONE>(level, node, partition, first)
            {
                continue;
            }
            if let Some(slot) = self.serve_partition::<LEAF, ONE>(level, below, node, partition) {
                return Served::Sent(slot.into());
            }
        }
        Served::Empty
    }

    /// The partition that is first, once those that have waited are back.
    #[inline(always)]
    fn first<const ONE: bool>(&mut self, level: &mut Level, node: u32) -> Result<u32, Served> {
        if ONE {
            let until = level.nodes.head(node)[kept::STATE];
            return if until > self.now() { Err(Served::Held(until)) } else { Ok(node) };
        }
        if level.shape.may_hold && !level.held[node as usize].is_empty() {
            level.let_go(node, self.now());
        }
        match level.orders[node as usize].first() {
            Some(partition) => Ok(partition),
            None => Err(match level.held[node as usize].peek() {
                Some(Reverse((until, ..))) => Served::Held(*until),
                None => Served::Empty,
            }),
        }
    }

    /// A partition without packets is first. False if nothing is left to ask.
    #[inline(never)]
    fn found_empty<const LEAF: bool, const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        partition: u32,
    ) -> bool {
        if !LEAF {
            // What is below may want to know that it was asked in vain.
            self.serve(below, partition);
        }
        let at = level.shape.at;
        let end = match level.shape.has_empty {
            true => self.run_without_packet(at, Moment::Empty, level.visit(node, partition)),
            false => Verdict::Pass.word(0),
        };
        if ONE {
            return false;
        }
        // One that stays is in the order: there is something to ask.
        match Verdict::of_word(end) {
            Verdict::Stay => level.rotate(node, partition),
            _ => level.leave(node, partition),
        }
        true
    }

    /// Whether the partition that is first is to be served. `head` is the first packet of one that has a line.
    #[inline(always)]
    fn select<const LEAF: bool, const ONE: bool>(
        &mut self,
        level: &mut Level,
        node: u32,
        partition: u32,
        head: u32,
    ) -> bool {
        let at = level.shape.at;
        let visit = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
        let end = match LEAF {
            true => self.run(at, Moment::Select, visit, head),
            false => self.run_without_packet(at, Moment::Select, visit),
        };
        match Verdict::of_word(end) {
            Verdict::Next if !ONE => {
                level.rotate(node, partition);
                false
            }
            Verdict::Hold => {
                level.hold(node, partition, self.held_until());
                false
            }
            _ => true,
        }
    }

    /// A packet of a partition, None if it has to wait or has none left.
    #[inline(always)]
    fn serve_partition<const LEAF: bool, const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        partition: u32,
    ) -> Option<u32> {
        let at = level.shape.at;
        self.no_drops();
        loop {
            let (slot, mut visited) = match LEAF {
                true => {
                    let mut visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
                    let (slot, len) = self.packets.pop(&mut visited.own[kept::LINE])?;
                    uncount(visited.own, len);
                    uncount(visited.node, len);
                    if level.shape.by_least {
                        self.least_left(level, node, partition, slot);
                        visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
                    }
                    (slot, visited)
                }
                false => {
                    let served = self.serve(below, partition);
                    let mut visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
                    visited.left_below(below, partition);
                    match served {
                        Served::Sent(slot) => (slot as u32, visited),
                        Served::Empty => return None,
                        Served::Held(until) => {
                            self.set_held_until(until);
                            level.hold(node, partition, self.held_until());
                            return None;
                        }
                    }
                }
            };
            let end = match level.shape.has_dequeue {
                true => self.run(at, Moment::Dequeue, visited.again(), slot),
                false => Verdict::Pass.word(0),
            };
            match Verdict::of_word(end) {
                Verdict::Drop => self.drop_leaving(slot, at, end),
                Verdict::Hold if LEAF => {
                    self.push_back(level, node, partition, slot);
                    level.hold(node, partition, self.held_until());
                    return None;
                }
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, end);
                    }
                    if !ONE && visited.own[kept::STATE] == kept::ACTIVE {
                        let is_empty = visited.own[kept::PACKETS] == 0;
                        level.served(node, partition, is_empty, verdict == Verdict::Rotate);
                    }
                    return Some(slot);
                }
            }
        }
    }

    /// The only line of a node, of packets as they came or by their ranks: what most queues are. This is the way of a
    /// packet that is sent as it is; all others are [`Shared::serve_rest`]'s.
    #[inline(always)]
    pub(super) fn serve_line<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> Served {
        if leaf.shape.may_hold || leaf.shape.has_select {
            return self.serve_line_that_waits(leaf, node);
        }
        self.no_drops();
        let Some(slot) = self.pop::<RANKED>(leaf, node) else { return self.found_no_packet(leaf, node) };
        if !leaf.shape.has_dequeue {
            return Served::Sent(slot.into());
        }
        let visit = visit::<true>(&mut leaf.nodes, &mut leaf.partitions, node, node);
        let end = self.run(leaf.shape.at, Moment::Dequeue, visit, slot);
        match Verdict::of_word(end) {
            Verdict::Pass => Served::Sent(slot.into()),
            _ => self.serve_rest(leaf, node, Some((slot, end))),
        }
    }

    /// As [`Shared::serve_line`], below others.
    #[inline(never)]
    fn serve_line_below<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> Served {
        self.serve_line::<RANKED>(leaf, node)
    }

    /// Of a line that may have to wait.
    #[inline(never)]
    fn serve_line_that_waits(&mut self, leaf: &mut Level, node: u32) -> Served {
        let head = leaf.nodes.head(node);
        let (until, packets, line) = (head[kept::STATE], head[kept::PACKETS], head[kept::LINE]);
        if until > self.now() {
            return Served::Held(until);
        }
        if leaf.shape.has_select && packets > 0 {
            let first = match leaf.shape.is_ranked {
                true => leaf.ranked[node as usize].first().unwrap_or(NONE),
                false => pair(line).0,
            };
            if !self.select::<true, true>(leaf, node, node, first) {
                return Served::Held(leaf.nodes.head(node)[kept::STATE]);
            }
        }
        self.no_drops();
        self.serve_rest(leaf, node, None)
    }

    /// Packets of a line until one is sent, after one that is not sent as it is.
    #[inline(never)]
    fn serve_rest(&mut self, leaf: &mut Level, node: u32, mut asked: Option<(u32, u64)>) -> Served {
        let at = leaf.shape.at;
        loop {
            let (slot, end) = match asked.take() {
                Some(asked) => asked,
                None => {
                    let popped = match leaf.shape.is_ranked {
                        true => self.pop::<true>(leaf, node),
                        false => self.pop::<false>(leaf, node),
                    };
                    let Some(slot) = popped else { return self.found_no_packet(leaf, node) };
                    if !leaf.shape.has_dequeue {
                        return Served::Sent(slot.into());
                    }
                    (slot, self.run(at, Moment::Dequeue, leaf.visit(node, node), slot))
                }
            };
            match Verdict::of_word(end) {
                Verdict::Drop => self.drop_leaving(slot, at, end),
                Verdict::Hold => {
                    self.push_back(leaf, node, node, slot);
                    leaf.hold(node, node, self.held_until());
                    return Served::Held(leaf.nodes.head(node)[kept::STATE]);
                }
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, end);
                    }
                    return Served::Sent(slot.into());
                }
            }
        }
    }

    /// A line has no packet.
    #[inline(never)]
    fn found_no_packet(&mut self, leaf: &mut Level, node: u32) -> Served {
        if leaf.shape.has_empty {
            self.run_without_packet(leaf.shape.at, Moment::Empty, leaf.visit(node, node));
        }
        Served::Empty
    }

    /// Takes the first packet of a node that is one partition.
    #[inline(always)]
    fn pop<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> Option<u32> {
        if RANKED {
            let slot = leaf.ranked[node as usize].pop(&mut self.packets)?;
            uncount(leaf.nodes.head_mut(node), self.packets.len(slot));
            return Some(slot);
        }
        let head = leaf.nodes.head_mut(node);
        let (slot, len) = self.packets.pop(&mut head[kept::LINE])?;
        uncount(head, len);
        Some(slot)
    }

    /// Puts a packet back that was taken as the first.
    #[inline(never)]
    fn push_back(&mut self, leaf: &mut Level, node: u32, partition: u32, slot: u32) {
        let len = self.packets.len(slot);
        count(leaf.nodes.head_mut(node), len);
        if leaf.shape.is_ranked {
            // It is the first of its rank again if nothing else came at this time, and nothing can have.
            let rank = self.packets.rank(slot);
            leaf.ranked[node as usize].insert(slot, rank, &mut self.packets);
            return;
        }
        if !leaf.shape.is_one {
            count(leaf.partitions.head_mut(partition), len);
        }
        self.packets.push_front(&mut leaf.own_mut(partition)[kept::LINE], slot);
    }
}

impl Level {
    /// A packet of a partition that is in the order left: its place is found anew.
    #[inline(always)]
    fn served(&mut self, node: u32, partition: u32, is_empty: bool, rotate: bool) {
        if is_empty && !self.shape.has_empty {
            self.leave(node, partition);
        } else if rotate {
            self.rotate(node, partition);
        } else if self.shape.dequeue_ranks {
            self.rerank(node, partition);
        }
    }
}

impl Visit<'_> {
    /// Counts what left a partition, which is a node of the next level, as that has it now.
    #[inline(always)]
    fn left_below(&mut self, below: &[Level], partition: u32) {
        let Some(next) = below.first() else { return };
        let now = next.nodes.head(partition);
        let head = if self.own.is_empty() { &mut *self.node } else { &mut *self.own };
        let left =
            (head[kept::PACKETS] - now[kept::PACKETS], head[kept::BYTES].saturating_sub(now[kept::BYTES]));
        (head[kept::PACKETS], head[kept::BYTES]) = (now[kept::PACKETS], now[kept::BYTES]);
        if !self.own.is_empty() {
            self.node[kept::PACKETS] -= left.0;
            self.node[kept::BYTES] = self.node[kept::BYTES].saturating_sub(left.1);
        }
    }
}

/// The records of a partition, where it is known whether the node is one.
#[inline(always)]
fn visit<'l, const ONE: bool>(
    nodes: &'l mut LevelRecords,
    partitions: &'l mut LevelRecords,
    node: u32,
    partition: u32,
) -> Visit<'l> {
    let own = if ONE { &mut [] } else { partitions.record(partition) };
    Visit { node: nodes.record(node), own }
}

/// The first line of the record of a partition.
#[inline(always)]
fn own<const ONE: bool>(level: &Level, partition: u32) -> &Head {
    if ONE { level.nodes.head(partition) } else { level.partitions.head(partition) }
}
