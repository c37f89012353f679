//! Enqueue: finds a packet's partition on each level, and admits or drops the packet there.

use super::handlers::Handlers;
use super::level::{Level, Shape, add_packet, initialize_vars, kept};
use super::packets::{Record, head_word};
use super::ranked::RankSlots as _;
use super::shared::Shared;
use super::tally::TallyTarget;
use super::{DropCause, Packet, QueueCode};
use weft_core::hash::hash_word;
use weft_ir::queue::{Moment, Partitions, Verdict, word};

/// What is known at compile time about a level of the path.
#[derive(Clone, Copy)]
enum LevelKind {
    Nothing,
    /// A node has partitions.
    Partitions,
    /// A node is one FIFO.
    Fifo,
    /// A node is one list ordered by rank.
    Ranked,
}

impl LevelKind {
    /// Whether each node of the level has a single partition: known at compile time, or read from the level.
    #[inline(always)]
    fn is_one(self, level: &Level) -> bool {
        match self {
            Self::Nothing => level.shape.is_one,
            Self::Partitions => false,
            Self::Fifo | Self::Ranked => true,
        }
    }
}

impl<C: QueueCode> Shared<C> {
    /// Enqueues to a tree of that many levels. Each variant is a function of its own: the short ones should not save
    /// registers for the long ones, and have no loop counters.
    #[inline(never)]
    pub(super) fn enqueue_in_tree<const DEPTH: usize>(
        &mut self,
        levels: &mut [Level],
        packet: &Packet,
        arrived_ns: u64,
    ) {
        let Ok(levels) = <&mut [Level; DEPTH]>::try_from(levels) else { return };
        let len = u64::from(packet.len);
        if levels[0].nodes.head(0)[kept::PACKETS] == 0 {
            self.packets.start_anew();
        }
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        let mut path = [0_u32; DEPTH];
        let mut node = 0;
        for (at, place) in path.iter_mut().enumerate() {
            let Some(partition) = self.admit(levels, (at, LevelKind::Nothing), node, slot, len) else {
                return;
            };
            *place = partition;
            node = partition;
        }
        let leaf = &mut levels[DEPTH - 1];
        if leaf.shape.ranks_packets {
            self.rank_packet(leaf, path.get(DEPTH.wrapping_sub(2)).copied().unwrap_or(0), node, slot);
        }
        let (mut node, mut is_over) = (0, false);
        for (at, partition) in path.into_iter().enumerate() {
            is_over |= self.count_arrival(levels, (at, LevelKind::Nothing), node, partition, slot, len);
            node = partition;
        }
        if is_over {
            self.make_room(levels, &path);
        }
    }

    /// Enqueues to a tree of one level that is one list of packets, ordered by rank.
    #[inline(never)]
    pub(super) fn enqueue_by_rank(&mut self, leaf: &mut Level, packet: &Packet, arrived_ns: u64) {
        if leaf.nodes.head(0)[kept::PACKETS] == 0 {
            self.packets.start_anew();
        }
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        let known = (0, LevelKind::Ranked);
        let levels = &mut core::array::from_mut(leaf)[..];
        let len = u64::from(packet.len);
        if self.admit(levels, known, 0, slot, len).is_none() {
            return;
        }
        self.rank_packet(&mut levels[0], 0, 0, slot);
        if self.count_arrival(levels, known, 0, 0, slot, len) {
            self.make_room(levels, &[0]);
        }
    }

    /// Enqueues to a tree of one level whose partitions are FIFOs and take turns.
    #[inline(never)]
    pub(super) fn enqueue_partitioned(&mut self, leaf: &mut Level, packet: &Packet, arrived_ns: u64) {
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        let known = (0, LevelKind::Partitions);
        let levels = &mut core::array::from_mut(leaf)[..];
        let len = u64::from(packet.len);
        let Some(partition) = self.admit(levels, known, 0, slot, len) else { return };
        if levels[0].shape.ranks_packets {
            self.rank_packet(&mut levels[0], 0, partition, slot);
        }
        if self.count_arrival(levels, known, 0, partition, slot, len) {
            self.make_room(levels, &[partition]);
        }
    }

    /// Enqueues to a tree of two levels, as most trees have; `LINES`: the nodes of the second level are FIFOs. A loop
    /// over the levels costs more.
    #[inline(never)]
    pub(super) fn enqueue_two_levels<const LINES: bool>(
        &mut self,
        levels: &mut [Level],
        packet: &Packet,
        arrived_ns: u64,
    ) {
        let Ok(levels) = <&mut [Level; 2]>::try_from(levels) else { return };
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        let (above, below) = match LINES {
            true => ((0, LevelKind::Partitions), (1, LevelKind::Fifo)),
            false => ((0, LevelKind::Nothing), (1, LevelKind::Nothing)),
        };
        let len = u64::from(packet.len);
        let Some(node) = self.admit(levels, above, 0, slot, len) else { return };
        let Some(partition) = self.admit(levels, below, node, slot, len) else { return };
        if !LINES && levels[1].shape.ranks_packets {
            self.rank_packet(&mut levels[1], node, partition, slot);
        }
        let mut is_over = self.count_arrival(levels, above, 0, node, slot, len);
        is_over |= self.count_arrival(levels, below, node, partition, slot, len);
        if is_over {
            self.make_room(levels, &[node, partition]);
        }
    }

    /// Runs the checks of a queue that is one FIFO, except its limit.
    #[inline(always)]
    pub(super) fn admit_to_fifo(&mut self, line: &mut Level, slot: u32, len: u64) -> bool {
        self.admit(core::slice::from_mut(line), (0, LevelKind::Fifo), 0, slot, len).is_some()
    }

    /// Runs the checks of a level on an arriving packet: the limit, the key and ON ENQUEUE. Returns the partition
    /// that admits it; None if the packet was dropped.
    #[inline(always)]
    fn admit(
        &mut self,
        levels: &mut [Level],
        (at, known): (usize, LevelKind),
        node: u32,
        slot: u32,
        len: u64,
    ) -> Option<u32> {
        let shape = &levels[at].shape;
        // A packet larger than the whole limit would displace all others.
        if len > shape.bytes_max || shape.drops_arriving && levels[at].is_over(node, 1, len) {
            let whose = if shape.is_one {
                TallyTarget::arriving(at, node)
            } else {
                TallyTarget::arrived_at_node(at, node)
            };
            self.drop_packet(slot, at, whose, DropCause::Overflow, shape.limit_line);
            return None;
        }
        let partition = match known.is_one(&levels[at]) {
            true => node,
            false => find_partition(&mut self.handlers, levels, at, node, self.packets.record(slot)),
        };
        let level = &mut levels[at];
        if level.shape.has_enqueue {
            if level.shape.counts
                && let Some(in_use) = &mut self.in_use
            {
                in_use.record_arrival(level, node, partition, self.packets.handler_words(slot));
            }
            let packet = self.packets.record(slot);
            let end = self.handlers.run(at, Moment::Enqueue, level.visit(node, partition), Some(packet));
            match Verdict::of_word(end) {
                Verdict::Drop => {
                    self.drop_arriving(slot, (at, partition), end);
                    return None;
                }
                Verdict::Mark => self.marked(at, TallyTarget::arriving(at, partition), end),
                _ => {}
            }
        }
        Some(partition)
    }

    /// Computes a packet's rank at the leaf level and, if the leaf is ranked, inserts the packet.
    #[inline(always)]
    fn rank_packet(&mut self, leaf: &mut Level, node: u32, partition: u32, slot: u32) {
        let packet = self.packets.record(slot);
        let rank = match leaf.shape.rank_word {
            Some(word) => head_word(&packet[0], word),
            None => {
                let (at, visited) = (leaf.shape.at, leaf.visit(node, partition));
                self.handlers.run(at, Moment::PacketRank, visited, Some(packet))
            }
        };
        if leaf.shape.is_ranked {
            leaf.ranked[node as usize].insert(slot, rank as i64, &mut self.packets);
        } else {
            self.packets.set_rank(slot, rank as i64);
        }
    }

    /// Counts a packet in a partition and its node; returns whether the node exceeds its limit.
    #[inline(always)]
    fn count_arrival(
        &mut self,
        levels: &mut [Level],
        (at, known): (usize, LevelKind),
        node: u32,
        partition: u32,
        slot: u32,
        len: u64,
    ) -> bool {
        let is_leaf = at + 1 == levels.len();
        let level = &mut levels[at];
        let is_one = known.is_one(level);
        let is_ranked = match known {
            LevelKind::Nothing => level.shape.is_ranked,
            LevelKind::Partitions | LevelKind::Fifo => false,
            LevelKind::Ranked => true,
        };
        let shape = &level.shape;
        let head = level.nodes.head_mut(node);
        add_packet(head, len);
        let is_over = head[kept::PACKETS] > shape.packets_max || head[kept::BYTES] > shape.bytes_max;
        if is_one {
            match is_leaf {
                true if is_ranked => {}
                true => self.packets.append(&mut head[kept::LINE], slot),
                // The packet that waits below may be another one now.
                false => head[kept::PLACE] = kept::IDLE,
            }
            return is_over;
        }
        let head = level.partitions.head_mut(partition);
        add_packet(head, len);
        if is_leaf {
            self.packets.append(&mut head[kept::LINE], slot);
        }
        match head[kept::PLACE] {
            kept::IN_ORDER.. => {
                let mut is_changed = shape.enqueue_ranks;
                if shape.by_least {
                    let rank = self.packets.rank(slot);
                    if rank < head[kept::RANK] as i64 {
                        head[kept::RANK] = rank as u64;
                        is_changed = true;
                    }
                }
                if is_changed {
                    level.rerank(node, partition);
                }
            }
            kept::IDLE => self.activate(levels, at, node, partition, slot),
            _ if is_leaf => {}
            _ => level.enter(node, partition),
        }
        is_over
    }

    /// Puts a partition into the order that was not in it: starts the timers below, runs ON ACTIVATE and sets its
    /// rank.
    #[inline]
    fn activate(&mut self, levels: &mut [Level], at: usize, node: u32, partition: u32, slot: u32) {
        if levels.get(at + 1).is_some_and(|below| below.shape.has_timers) {
            self.start_timers(levels, at + 1, partition, self.handlers.now());
        }
        let level = &mut levels[at];
        if level.shape.has_activate {
            self.handlers.run(
                at,
                Moment::Activate,
                level.visit(node, partition),
                Some(self.packets.record(slot)),
            );
        }
        if level.shape.by_least {
            level.partitions.head_mut(partition)[kept::RANK] = self.packets.rank(slot) as u64;
        }
        level.enter(node, partition);
    }
}

/// Finds the partition of a packet by its key; a new key gets one.
#[inline(always)]
fn find_partition<C: QueueCode>(
    handlers: &mut Handlers<C>,
    levels: &mut [Level],
    at: usize,
    node: u32,
    packet: &mut Record,
) -> u32 {
    let level = &mut levels[at];
    let key = match level.shape.key_word {
        Some(word) => head_word(&packet[0], word),
        None => handlers.run(at, Moment::Key, level.visit(node, 0), Some(packet)),
    };
    match partition_of(&level.shape, &level.tags, node, key) {
        PartitionLookup::Known(partition) => partition,
        PartitionLookup::New { set, ways, tag } => new_way(levels, at, set, ways, tag),
    }
}

/// The partition of a key.
#[derive(Clone, Copy)]
pub(super) enum PartitionLookup {
    /// It has this partition.
    Known(u32),
    /// It has none yet, and gets one of this set.
    New { set: u32, ways: u32, tag: u32 },
}

/// Looks up the partition of a key. `New`: the set of the key does not have it yet.
#[inline(always)]
pub(super) fn partition_of(shape: &Shape, tags: &[u32], node: u32, key: u64) -> PartitionLookup {
    let first = node * shape.n;
    match shape.partitions {
        Partitions::One => PartitionLookup::Known(node),
        Partitions::Direct { n } => {
            PartitionLookup::Known(first + (key as i64).clamp(0, i64::from(n) - 1) as u32)
        }
        Partitions::Hash { n, ways: 1 } => {
            let hash = hash_word(key) >> 32;
            PartitionLookup::Known(first + ((hash * u64::from(n)) >> 32) as u32)
        }
        Partitions::Hash { ways, .. } => {
            let hash = hash_word(key);
            let set = first + (((hash >> 32) * shape.n_sets) >> 32) as u32 * ways;
            let tag = hash as u32;
            let own = set + own_way(tag, ways);
            if tags[own as usize] == tag {
                PartitionLookup::Known(own)
            } else {
                find_way(tags, set, ways, tag)
            }
        }
    }
}

/// The preferred way of a key in its set: it is tried first, and assigned if free.
#[inline(always)]
fn own_way(tag: u32, ways: u32) -> u32 {
    ((u64::from(tag) * u64::from(ways)) >> 32) as u32
}

/// Looks up a key among all ways of its set.
#[inline(never)]
fn find_way(tags: &[u32], set: u32, ways: u32, tag: u32) -> PartitionLookup {
    match way_of(&tags[set as usize..(set + ways) as usize], tag) {
        Some(own) => PartitionLookup::Known(set + own),
        None => PartitionLookup::New { set, ways, tag },
    }
}

/// Assigns a partition of a set to a new key: a free one, or else its preferred one, which the key then shares.
#[inline(never)]
fn new_way(levels: &mut [Level], at: usize, set: u32, ways: u32, tag: u32) -> u32 {
    let level = &mut levels[at];
    let is_free = |partition: &u32| level.partitions.head(*partition)[kept::PLACE] == kept::IDLE;
    let own = set + own_way(tag, ways);
    let Some(free) = core::iter::once(own).chain(set..set + ways).find(is_free) else { return own };
    level.tags[free as usize] = tag;
    level.partitions.head_mut(free)[kept::RANK] = 0;
    initialize_vars(level.partitions.handler_words(free), word::PARTITION_VARS, &level.partition_starts);
    if let Some(below) = levels.get_mut(at + 1) {
        initialize_vars(below.nodes.handler_words(free), word::NODE_VARS, &below.node_starts);
    }
    free
}

/// Returns the way of a set that holds a tag.
#[inline(always)]
fn way_of(tags: &[u32], tag: u32) -> Option<u32> {
    // Compare all at once, since the branch predictor cannot foresee which one matches.
    if let Ok(eight) = <&[u32; 8]>::try_from(tags) {
        let own = (0..8).fold(0_u32, |own, nth| own | u32::from(eight[nth] == tag) << nth);
        return (own != 0).then(|| own.trailing_zeros());
    }
    tags.iter().position(|known| *known == tag).map(|own| own as u32)
}
