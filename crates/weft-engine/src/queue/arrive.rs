//! A packet comes: its partition on each level is found, and those may refuse it.

use super::handlers::Handlers;
use super::level::{Level, Shape, begin, count, kept};
use super::packets::{Record, head_word};
use super::ranked::Places as _;
use super::shared::Shared;
use super::tally::Whose;
use super::{Packet, QueueCode, Why};
use weft_core::hash::hash_word;
use weft_ir::queue::{Moment, Partitions, Verdict, word};

/// What is known of a level where the way of packets through it is made.
#[derive(Clone, Copy)]
enum Known {
    Nothing,
    /// A node has partitions.
    Partitions,
    /// A node is one line of packets as they came.
    Line,
    /// A node is one line of packets by their ranks.
    Ranked,
}

impl Known {
    #[inline(always)]
    fn is_one(self, level: &Level) -> bool {
        match self {
            Self::Nothing => level.shape.is_one,
            Self::Partitions => false,
            Self::Line | Self::Ranked => true,
        }
    }
}

impl<C: QueueCode> Shared<C> {
    /// To a tree of so many levels. Each way is a function of its own: the short ones are not to save registers for the
    /// long ones, and count nothing.
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
            let Some(partition) = self.admit(levels, (at, Known::Nothing), node, slot, len) else { return };
            *place = partition;
            node = partition;
        }
        let leaf = &mut levels[DEPTH - 1];
        if leaf.shape.ranks_packets {
            self.rank(leaf, path.get(DEPTH.wrapping_sub(2)).copied().unwrap_or(0), node, slot);
        }
        let (mut node, mut is_over) = (0, false);
        for (at, partition) in path.into_iter().enumerate() {
            is_over |= self.came(levels, (at, Known::Nothing), node, partition, slot, len);
            node = partition;
        }
        if is_over {
            self.make_room(levels, &path);
        }
    }

    /// As above, to one line of packets by their ranks.
    #[inline(never)]
    pub(super) fn enqueue_by_rank(&mut self, leaf: &mut Level, packet: &Packet, arrived_ns: u64) {
        if leaf.nodes.head(0)[kept::PACKETS] == 0 {
            self.packets.start_anew();
        }
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        let known = (0, Known::Ranked);
        let levels = &mut core::array::from_mut(leaf)[..];
        let len = u64::from(packet.len);
        if self.admit(levels, known, 0, slot, len).is_none() {
            return;
        }
        self.rank(&mut levels[0], 0, 0, slot);
        if self.came(levels, known, 0, 0, slot, len) {
            self.make_room(levels, &[0]);
        }
    }

    /// As above, where partitions take turns, each of which has packets as they came.
    #[inline(never)]
    pub(super) fn enqueue_in_turns(&mut self, leaf: &mut Level, packet: &Packet, arrived_ns: u64) {
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        self.came_to_turns(leaf, slot);
    }

    /// As above, of a packet that has its place.
    #[inline(always)]
    pub(super) fn came_to_turns(&mut self, leaf: &mut Level, slot: u32) {
        let known = (0, Known::Partitions);
        let levels = &mut core::array::from_mut(leaf)[..];
        let len = self.packets.len(slot);
        let Some(partition) = self.admit(levels, known, 0, slot, len) else { return };
        if levels[0].shape.ranks_packets {
            self.rank(&mut levels[0], 0, partition, slot);
        }
        if self.came(levels, known, 0, partition, slot, len) {
            self.make_room(levels, &[partition]);
        }
    }

    /// As above, to a tree of two levels, which most trees have; or of which the second is of lines of packets as they
    /// came. In a loop it costs more.
    #[inline(never)]
    pub(super) fn enqueue_in_two<const LINES: bool>(
        &mut self,
        levels: &mut [Level],
        packet: &Packet,
        arrived_ns: u64,
    ) {
        let slot = self.packets.store(packet, arrived_ns, &self.program.fields);
        self.came_to_two::<LINES>(levels, slot);
    }

    /// As above, of a packet that has its place.
    #[inline(always)]
    pub(super) fn came_to_two<const LINES: bool>(&mut self, levels: &mut [Level], slot: u32) {
        let Ok(levels) = <&mut [Level; 2]>::try_from(levels) else { return };
        let (above, below) = match LINES {
            true => ((0, Known::Partitions), (1, Known::Line)),
            false => ((0, Known::Nothing), (1, Known::Nothing)),
        };
        let len = self.packets.len(slot);
        let Some(node) = self.admit(levels, above, 0, slot, len) else { return };
        let Some(partition) = self.admit(levels, below, node, slot, len) else { return };
        if !LINES && levels[1].shape.ranks_packets {
            self.rank(&mut levels[1], node, partition, slot);
        }
        let mut is_over = self.came(levels, above, 0, node, slot, len);
        is_over |= self.came(levels, below, node, partition, slot, len);
        if is_over {
            self.make_room(levels, &[node, partition]);
        }
    }

    /// To a queue that is one line, what is asked of each packet beside its limit.
    #[inline(always)]
    pub(super) fn admit_to_line(&mut self, line: &mut Level, slot: u32, len: u64) -> bool {
        self.admit(core::slice::from_mut(line), (0, Known::Line), 0, slot, len).is_some()
    }

    /// The partition of a level that lets a packet in; None if it was dropped. Its words are looked up once.
    #[inline(always)]
    fn admit(
        &mut self,
        levels: &mut [Level],
        (at, known): (usize, Known),
        node: u32,
        slot: u32,
        len: u64,
    ) -> Option<u32> {
        let shape = &levels[at].shape;
        // What is more than the whole limit would take all others with it.
        if len > shape.bytes_max || shape.drops_arriving && levels[at].is_over(node, 1, len) {
            let whose = if shape.is_one { Whose::comes(at, node) } else { Whose::came_to(at, node) };
            self.drop_packet(slot, at, whose, Why::Overflow, shape.limit_line);
            return None;
        }
        let partition = match known.is_one(&levels[at]) {
            true => node,
            false => locate(&mut self.handlers, levels, at, node, self.packets.record(slot)),
        };
        let level = &mut levels[at];
        if level.shape.has_enqueue {
            if level.shape.counts
                && let Some(in_use) = &mut self.in_use
            {
                in_use.enter(level, node, partition, self.packets.seen(slot));
            }
            let packet = self.packets.record(slot);
            let end = self.handlers.run(at, Moment::Enqueue, level.visit(node, partition), Some(packet));
            match Verdict::of_word(end) {
                Verdict::Drop => {
                    self.drop_coming(slot, (at, partition), end);
                    return None;
                }
                Verdict::Mark => self.marked(at, Whose::comes(at, partition), end),
                _ => {}
            }
        }
        Some(partition)
    }

    /// Gives a packet its rank among others of the last level.
    #[inline(always)]
    fn rank(&mut self, leaf: &mut Level, node: u32, partition: u32, slot: u32) {
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

    /// A packet is in a partition, and in what that holds on the levels below; whether the node holds too much now.
    #[inline(always)]
    fn came(
        &mut self,
        levels: &mut [Level],
        (at, known): (usize, Known),
        node: u32,
        partition: u32,
        slot: u32,
        len: u64,
    ) -> bool {
        let is_leaf = at + 1 == levels.len();
        let level = &mut levels[at];
        let is_one = known.is_one(level);
        let is_ranked = match known {
            Known::Nothing => level.shape.is_ranked,
            Known::Partitions | Known::Line => false,
            Known::Ranked => true,
        };
        let shape = &level.shape;
        let head = level.nodes.head_mut(node);
        count(head, len);
        let is_over = head[kept::PACKETS] > shape.packets_max || head[kept::BYTES] > shape.bytes_max;
        if is_one {
            match is_leaf {
                true if is_ranked => {}
                true => self.packets.append(&mut head[kept::LINE], slot),
                // What waits below may be another packet now.
                false => head[kept::PLACE] = kept::IDLE,
            }
            return is_over;
        }
        let head = level.partitions.head_mut(partition);
        count(head, len);
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

    /// A partition that was not in the order has got a packet.
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

/// The partition of a packet.
#[inline(always)]
fn locate<C: QueueCode>(
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
    match place_of(&level.shape, &level.tags, node, key) {
        Place::Known(partition) => partition,
        Place::New { set, ways, tag } => new_way(levels, at, set, ways, tag),
    }
}

/// Where packets of a key go.
#[derive(Clone, Copy)]
pub(super) enum Place {
    /// To a partition.
    Known(u32),
    /// To one of a set of which none is theirs yet.
    New { set: u32, ways: u32, tag: u32 },
}

/// The partition of a key.
#[inline(always)]
pub(super) fn place_of(shape: &Shape, tags: &[u32], node: u32, key: u64) -> Place {
    let first = node * shape.n;
    match shape.partitions {
        Partitions::One => Place::Known(node),
        Partitions::Direct { n } => Place::Known(first + (key as i64).clamp(0, i64::from(n) - 1) as u32),
        Partitions::Hash { n, ways: 1 } => {
            let hash = hash_word(key) >> 32;
            Place::Known(first + ((hash * u64::from(n)) >> 32) as u32)
        }
        Partitions::Hash { ways, .. } => {
            let hash = hash_word(key);
            let set = first + (((hash >> 32) * shape.n_sets) >> 32) as u32 * ways;
            let tag = hash as u32;
            let own = set + own_way(tag, ways);
            if tags[own as usize] == tag { Place::Known(own) } else { way(tags, set, ways, tag) }
        }
    }
}

/// The way of a set that is a key's own: the first that is looked at, and that it gets if it is free.
#[inline(always)]
fn own_way(tag: u32, ways: u32) -> u32 {
    ((u64::from(tag) * u64::from(ways)) >> 32) as u32
}

/// The partition of a key in its set, which is not its own one.
#[inline(never)]
fn way(tags: &[u32], set: u32, ways: u32, tag: u32) -> Place {
    match way_of(&tags[set as usize..(set + ways) as usize], tag) {
        Some(own) => Place::Known(set + own),
        None => Place::New { set, ways, tag },
    }
}

/// A partition for a key that has none: one that is free, else one that it shares.
#[inline(never)]
fn new_way(levels: &mut [Level], at: usize, set: u32, ways: u32, tag: u32) -> u32 {
    let level = &mut levels[at];
    let is_free = |partition: &u32| level.partitions.head(*partition)[kept::PLACE] == kept::IDLE;
    let own = set + own_way(tag, ways);
    let Some(free) = core::iter::once(own).chain(set..set + ways).find(is_free) else { return own };
    level.tags[free as usize] = tag;
    level.partitions.head_mut(free)[kept::RANK] = 0;
    begin(level.partitions.seen(free), word::PARTITION_VARS, &level.partition_starts);
    if let Some(below) = levels.get_mut(at + 1) {
        begin(below.nodes.seen(free), word::NODE_VARS, &below.node_starts);
    }
    free
}

/// Which of the ways of a set is that of a key.
#[inline(always)]
fn way_of(tags: &[u32], tag: u32) -> Option<u32> {
    // All at once: which one it is cannot be foretold.
    if let Ok(eight) = <&[u32; 8]>::try_from(tags) {
        let own = (0..8).fold(0_u32, |own, nth| own | u32::from(eight[nth] == tag) << nth);
        return (own != 0).then(|| own.trailing_zeros());
    }
    tags.iter().position(|known| *known == tag).map(|own| own as u32)
}
