//! A packet leaves: the partition that is first on each level is asked for it.

use super::level::{Level, Visit, count, kept, uncount};
use super::packets::{bytes, leave};
use super::ranked::Places as _;
use super::records::{Head, Records};
use super::shared::Shared;
use super::{NONE, QueueCode, TURNS_MAX};
use core::cmp::Reverse;
use weft_ir::queue::layout::pair;
use weft_ir::queue::{Moment, Verdict};

/// Turns of a dequeue, those included in which whoever is first is served.
const TURNS_ALL: u32 = 2 * TURNS_MAX;

/// What came of asking a node for a packet.
pub(super) enum Served {
    /// The place of a packet; as wide as a time, so that either comes back in a register.
    Sent(u64),
    Empty,
    Held(u64),
}

/// What was asked of a packet already: the packet, and what ON DEQUEUE said.
#[derive(Clone, Copy)]
pub(super) enum Asked {
    Nothing,
    /// By the line below.
    Line((u32, u64)),
    /// By this level, and by those below before it.
    Here((u32, u64)),
}

impl<C: QueueCode> Shared<C> {
    /// Asks a node of the first of these levels.
    #[inline(always)]
    pub(super) fn serve(&mut self, levels: &mut [Level], node: u32) -> Served {
        match levels {
            [leaf] if leaf.shape.is_ranked => self.serve_line_below::<true>(leaf, node),
            [leaf] if leaf.shape.is_one => self.serve_line_below::<false>(leaf, node),
            [leaf] => self.serve_in_turn_below(leaf, node),
            [level, below @ ..] if level.shape.is_one => self.serve_above_below::<true>(level, below, node),
            [level, below @ ..] => self.serve_above_below::<false>(level, below, node),
            [] => Served::Empty,
        }
    }

    /// Asks a node of the last level the partition of which that is first.
    #[inline(always)]
    pub(super) fn serve_in_turn(&mut self, leaf: &mut Level, node: u32) -> Served {
        self.serve_in_turns(leaf, node, TURNS_ALL)
    }

    /// As above, with so many turns left of [`TURNS_ALL`]. Records of the node, of the partition and of its first
    /// packet are looked up once a turn.
    #[inline(always)]
    fn serve_in_turns(&mut self, leaf: &mut Level, node: u32, turns: u32) -> Served {
        let at = leaf.shape.at;
        for turns_left in (0..turns).rev() {
            let partition = match self.first::<false>(leaf, node) {
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
                    self.pass_over(leaf, node, partition, verdict);
                    continue;
                }
            }
            self.handlers.no_drops();
            leave(&packet[0], &mut visited.own[0][kept::LINE]);
            let len = bytes(&packet[0]);
            uncount(&mut visited.own[0], len);
            uncount(&mut visited.node[0], len);
            if leaf.shape.by_least {
                self.least_left(leaf, node, partition, slot);
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
                    leaf.served(node, partition, verdict);
                    return Served::Sent(slot.into());
                }
            }
            if visited.own[0][kept::PLACE] >= kept::IN_ORDER {
                let is_empty = visited.own[0][kept::PACKETS] == 0;
                leaf.find_place(node, partition, is_empty, verdict);
            }
            return Served::Sent(slot.into());
        }
        Served::Empty
    }

    /// As above, below others.
    #[inline(never)]
    fn serve_in_turn_below(&mut self, leaf: &mut Level, node: u32) -> Served {
        self.serve_in_turn(leaf, node)
    }

    /// Asks a node that is above others the partition of which that is first, or the only one; or is above lines of
    /// packets as they came.
    #[inline(always)]
    pub(super) fn serve_above<const ONE: bool, const LINES: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
    ) -> Served {
        self.serve_turns_above::<ONE, LINES>(level, below, node, TURNS_ALL)
    }

    /// As above, with so many turns left of [`TURNS_ALL`].
    #[inline(always)]
    fn serve_turns_above<const ONE: bool, const LINES: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        turns: u32,
    ) -> Served {
        let at = level.shape.at;
        for turns_left in (0..turns).rev() {
            let partition = match self.first::<ONE>(level, node) {
                Ok(partition) => partition,
                Err(served) => return served,
            };
            let mut visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
            if visited.first::<ONE>()[kept::PACKETS] == 0 {
                self.found_empty::<ONE>(level, below, node, partition, turns_left);
                if ONE {
                    return Served::Empty;
                }
                continue;
            }
            if level.shape.has_select {
                let end = self.handlers.run(at, Moment::Select, visited.again(), None);
                let verdict = Verdict::of_word(end);
                let is_passed_over = verdict == Verdict::Hold || !ONE && verdict == Verdict::Next;
                if is_passed_over && turns_left > TURNS_MAX {
                    self.pass_over(level, node, partition, verdict);
                    continue;
                }
            }
            self.handlers.no_drops();
            if let Some(served) =
                self.serve_partition::<ONE, LINES>(level, below, node, partition, Asked::Nothing)
            {
                return served;
            }
        }
        Served::Empty
    }

    /// Asks a partition of a node that is above others for a packet, or goes on where it was `asked` already. None if
    /// the node's first is to be asked anew.
    #[inline(always)]
    fn serve_partition<const ONE: bool, const LINES: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        partition: u32,
        mut asked: Asked,
    ) -> Option<Served> {
        let at = level.shape.at;
        let mut visited = visit::<ONE>(&mut level.nodes, &mut level.partitions, node, partition);
        let (slot, verdict) = loop {
            let (slot, end) = if let Asked::Here(asked) = asked {
                asked
            } else {
                let served = match (asked, &mut *below) {
                    (Asked::Line(asked), [line]) => self.serve_rest_of_line(line, partition, asked),
                    (_, [line]) if LINES => self.serve_line::<false>(line, partition),
                    (_, below) => self.serve(below, partition),
                };
                visited.left_below::<ONE>(below, partition);
                let slot = match served {
                    Served::Sent(slot) => slot as u32,
                    Served::Empty => return None,
                    Served::Held(until) => {
                        self.handlers.set_held_until(until);
                        self.pass_over(level, node, partition, Verdict::Hold);
                        return None;
                    }
                };
                if !level.shape.has_dequeue {
                    break (slot, Verdict::Pass);
                }
                let packet = self.packets.record(slot);
                (slot, self.handlers.run(at, Moment::Dequeue, visited.again(), Some(packet)))
            };
            asked = Asked::Nothing;
            match Verdict::of_word(end) {
                Verdict::Drop => self.drop_leaving(slot, (at, partition), end),
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, self.leaves(at, partition), end);
                    }
                    break (slot, verdict);
                }
            }
        };
        if !ONE && visited.own[0][kept::PLACE] >= kept::IN_ORDER {
            let is_empty = visited.own[0][kept::PACKETS] == 0;
            level.find_place(node, partition, is_empty, verdict);
        }
        Some(Served::Sent(slot.into()))
    }

    /// The partition of the root that is first is a line, or is above one, and was asked: from there on. `asked` left
    /// its line and all counts. So many turns, that one included, are left before whoever is first is served.
    #[inline(never)]
    pub(super) fn serve_asked(
        &mut self,
        levels: &mut [Level],
        partition: u32,
        asked: Asked,
        turns_left: u32,
    ) -> Served {
        self.left = partition;
        let turns = TURNS_MAX + turns_left.saturating_sub(1);
        match (levels, asked) {
            ([leaf], Asked::Here(asked)) => match self.serve_rest(leaf, 0, partition, asked) {
                Some((slot, verdict)) => {
                    leaf.served(0, partition, verdict);
                    Served::Sent(slot.into())
                }
                None => self.serve_in_turns(leaf, 0, turns),
            },
            ([level, below @ ..], asked) => {
                match self.serve_partition::<false, true>(level, below, 0, partition, asked) {
                    Some(served) => served,
                    None => self.serve_turns_above::<false, true>(level, below, 0, turns),
                }
            }
            ([], _) => Served::Empty,
        }
    }

    /// As above, below others.
    #[inline(never)]
    fn serve_above_below<const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
    ) -> Served {
        self.serve_above::<ONE, false>(level, below, node)
    }

    /// The partition that is first, once those that have waited are back.
    #[inline(always)]
    fn first<const ONE: bool>(&mut self, level: &mut Level, node: u32) -> Result<u32, Served> {
        if ONE {
            let until = level.nodes.head(node)[kept::PLACE];
            return if until > self.handlers.now() { Err(Served::Held(until)) } else { Ok(node) };
        }
        if level.shape.may_hold && !level.held[node as usize].is_empty() {
            level.let_go(node, self.handlers.now());
        }
        match level.first(node) {
            Some(partition) => Ok(partition),
            None => Err(match level.held[node as usize].peek() {
                Some(Reverse((until, ..))) => Served::Held(*until),
                None => Served::Empty,
            }),
        }
    }

    /// The turns of a dequeue are used up, and there are packets perhaps: whoever is first and has some is served.
    #[cold]
    pub(super) fn serve_whoever(&mut self, levels: &mut [Level]) -> Served {
        match levels {
            [leaf] => self.serve_in_turns(leaf, 0, TURNS_MAX),
            [level, below @ ..] => self.serve_turns_above::<false, true>(level, below, 0, TURNS_MAX),
            [] => Served::Empty,
        }
    }

    /// A partition without packets is first: one that stays in the order is not first any more, or stands in front of
    /// others by its rank. When turns are used up that would be for ever, and it does not stay.
    #[inline(never)]
    pub(super) fn found_empty<const ONE: bool>(
        &mut self,
        level: &mut Level,
        below: &mut [Level],
        node: u32,
        partition: u32,
        turns_left: u32,
    ) {
        if !below.is_empty() {
            // What is below may want to know that it was asked in vain.
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

    /// The partition that is first is not to be served now: it goes behind those of its rank, or waits.
    #[inline(always)]
    fn pass_over(&mut self, level: &mut Level, node: u32, partition: u32, verdict: Verdict) {
        if verdict == Verdict::Next {
            level.rotate(node, partition);
        } else {
            level.hold(node, partition, self.handlers.held_until());
        }
    }

    /// The only line of a node, of packets as they came or by their ranks: what most queues are. This is the way of a
    /// packet that is sent as it is; all others are [`Shared::serve_rest`]'s.
    #[inline(always)]
    pub(super) fn serve_line<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> Served {
        if leaf.shape.may_wait
            && let Some(until) = self.waits(leaf, node)
        {
            return Served::Held(until);
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
            return self.found_no_packet(leaf, node);
        }
        let packet = self.packets.record(slot);
        if !RANKED {
            leave(&packet[0], &mut head[kept::LINE]);
        }
        uncount(head, bytes(&packet[0]));
        if !leaf.shape.has_dequeue {
            return Served::Sent(slot.into());
        }
        let end = self.handlers.run(leaf.shape.at, Moment::Dequeue, visited, Some(packet));
        if Verdict::of_word(end) == Verdict::Pass {
            return Served::Sent(slot.into());
        }
        self.serve_rest_of_line(leaf, node, (slot, end))
    }

    /// As [`Shared::serve_line`], below others.
    #[inline(never)]
    fn serve_line_below<const RANKED: bool>(&mut self, leaf: &mut Level, node: u32) -> Served {
        self.serve_line::<RANKED>(leaf, node)
    }

    /// Until when a line has to wait, if it has.
    #[inline(never)]
    pub(super) fn waits(&mut self, leaf: &mut Level, node: u32) -> Option<u64> {
        let (at, head) = (leaf.shape.at, leaf.nodes.head(node));
        let (until, packets) = (head[kept::PLACE], head[kept::PACKETS]);
        if until > self.handlers.now() {
            return Some(until);
        }
        if !leaf.shape.has_select || packets == 0 {
            return None;
        }
        let first = match leaf.shape.is_ranked {
            true => leaf.ranked[node as usize].first().unwrap_or(NONE),
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

    /// Packets of a line after one that is not sent as it is.
    #[inline(never)]
    pub(super) fn serve_rest_of_line(&mut self, leaf: &mut Level, node: u32, asked: (u32, u64)) -> Served {
        if let Some((slot, _)) = self.serve_rest(leaf, node, node, asked) {
            return Served::Sent(slot.into());
        }
        match leaf.nodes.head(node)[kept::PLACE] {
            until if until > self.handlers.now() => Served::Held(until),
            _ => self.found_no_packet(leaf, node),
        }
    }

    /// Packets of a partition of the last level until one is sent, from one on of which ON DEQUEUE has said what is to
    /// be done; and what it said of the one that is sent. None if the partition has no more packets, or has to wait.
    #[inline(never)]
    fn serve_rest(
        &mut self,
        leaf: &mut Level,
        node: u32,
        partition: u32,
        asked: (u32, u64),
    ) -> Option<(u32, Verdict)> {
        let at = leaf.shape.at;
        self.left = partition;
        let (mut slot, mut end) = asked;
        loop {
            match Verdict::of_word(end) {
                Verdict::Drop => self.drop_leaving(slot, (at, partition), end),
                Verdict::Hold => {
                    self.push_back(leaf, node, partition, slot);
                    leaf.hold(node, partition, self.handlers.held_until());
                    return None;
                }
                verdict => {
                    if verdict == Verdict::Mark {
                        self.marked(at, self.leaves(at, partition), end);
                    }
                    return Some((slot, verdict));
                }
            }
            slot = self.pop(leaf, node, partition)?;
            let packet = self.packets.record(slot);
            end = self.handlers.run(at, Moment::Dequeue, leaf.visit(node, partition), Some(packet));
        }
    }

    /// A line has no packet.
    #[inline(never)]
    pub(super) fn found_no_packet(&mut self, leaf: &mut Level, node: u32) -> Served {
        if leaf.shape.has_empty {
            self.handlers.run(leaf.shape.at, Moment::Empty, leaf.visit(node, node), None);
        }
        Served::Empty
    }

    /// Takes the first packet of a partition of the last level.
    fn pop(&mut self, leaf: &mut Level, node: u32, partition: u32) -> Option<u32> {
        let slot = match (leaf.shape.is_ring, leaf.shape.is_ranked) {
            (true, _) => self.packets.pop_of_ring(leaf.nodes.head_mut(0))?,
            (_, true) => leaf.ranked[node as usize].pop(&mut self.packets)?,
            _ => self.packets.pop(&mut leaf.own_mut(partition)[kept::LINE])?,
        };
        let len = self.packets.len(slot);
        uncount(leaf.nodes.head_mut(node), len);
        if !leaf.shape.is_one {
            uncount(leaf.partitions.head_mut(partition), len);
        }
        if leaf.shape.by_least {
            self.least_left(leaf, node, partition, slot);
        }
        Some(slot)
    }

    /// Puts a packet back that was taken as the first.
    #[inline(never)]
    fn push_back(&mut self, leaf: &mut Level, node: u32, partition: u32, slot: u32) {
        let len = self.packets.len(slot);
        count(leaf.nodes.head_mut(node), len);
        if leaf.shape.is_ring {
            return self.packets.back_into_ring(leaf.nodes.head_mut(0));
        }
        if leaf.shape.is_ranked {
            let rank = self.packets.rank(slot);
            leaf.ranked[node as usize].put_back(slot, rank, &mut self.packets);
            return;
        }
        if !leaf.shape.is_one {
            count(leaf.partitions.head_mut(partition), len);
        }
        self.packets.push_front(&mut leaf.own_mut(partition)[kept::LINE], slot);
    }
}

impl Level {
    /// A packet of a partition left: if that is in the order, its place is found anew.
    fn served(&mut self, node: u32, partition: u32, verdict: Verdict) {
        let head = self.partitions.head(partition);
        if head[kept::PLACE] >= kept::IN_ORDER {
            self.find_place(node, partition, head[kept::PACKETS] == 0, verdict);
        }
    }

    /// The new place of a partition in the order, of which a packet left.
    #[inline(always)]
    pub(super) fn find_place(&mut self, node: u32, partition: u32, is_empty: bool, verdict: Verdict) {
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
    /// The first line of the partition.
    #[inline(always)]
    fn first<const ONE: bool>(&mut self) -> &mut Head {
        if ONE { &mut self.node[0] } else { &mut self.own[0] }
    }

    /// Counts what left a partition, which is a node of the next level, as that has it now.
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

/// The records of a partition, where it is known whether the node is one.
#[inline(always)]
pub(super) fn visit<'l, const ONE: bool>(
    nodes: &'l mut Records,
    partitions: &'l mut Records,
    node: u32,
    partition: u32,
) -> Visit<'l> {
    let own = if ONE { &mut partitions.nobody } else { partitions.record(partition) };
    Visit { node: nodes.record(node), own, is_one: ONE }
}
