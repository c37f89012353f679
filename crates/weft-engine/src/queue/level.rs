//! One level of the tree of a queue: its nodes and partitions, and the orders of the partitions.

pub(super) use super::layout::kept;
use super::layout::{NO_PACKETS, SEEN_IN_HEAD};
use super::ranked::Ranked;
use super::records::{Head, Record, Records};
use core::cmp::Reverse;
use std::collections::BinaryHeap;
use weft_ir::queue::{
    Handler, Overflow, PacketOrder, Partitions, QueueProgram, VarDecl, Verdict, Victim, word,
};

/// The records of a node and of one of its partitions, each looked up once.
pub(super) struct Visit<'l> {
    pub(super) node: &'l mut Record,
    /// Unused where the node is one partition.
    pub(super) own: &'l mut Record,
}

impl<'l> Visit<'l> {
    /// The same, for a shorter lifetime.
    #[inline(always)]
    pub(super) fn again(&mut self) -> Visit<'_> {
        Visit { node: &mut *self.node, own: &mut *self.own }
    }
}

/// One level of the tree.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) shape: Shape,
    pub(super) nodes: Records,
    /// Empty where a node is one partition.
    pub(super) partitions: Records,
    /// The initial values of variables.
    pub(super) node_starts: Box<[u64]>,
    pub(super) partition_starts: Box<[u64]>,
    /// Per node: the order of its partitions. Empty if each node is one partition. Positions are in the records of
    /// partitions.
    pub(super) orders: Vec<Ranked>,
    /// Per node of the last level, if packets have ranks.
    pub(super) ranked: Vec<Ranked>,
    /// Per partition: the tag of its key, in sets with several ways.
    pub(super) tags: Vec<u32>,
    /// Per node: held partitions.
    pub(super) held: Vec<BinaryHeap<Reverse<(u64, u64, u32)>>>,
    /// The number of partitions held so far: those due at one time return in this order.
    pub(super) n_held: u64,
    /// Per node: whether its timers run.
    pub(super) is_started: Vec<bool>,
    /// For counts of partitions in use: partitions that left the order since the last count.
    pub(super) left: Vec<u32>,
    /// For a ring: the number of packets that fit before an enqueue has to do more than append.
    pub(super) room: u64,
}

/// The constant properties of a level.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is read by itself on the way of a packet")]
pub(super) struct Shape {
    /// The index of the level.
    pub(super) at: usize,
    /// Partitions per node.
    pub(super) n: u32,
    pub(super) partitions: Partitions,
    /// Number of sets per node, if the partition table is set-associative (WAYS above 1).
    pub(super) n_sets: u64,
    /// The packet words that are its key and its rank, if no handler needs to run.
    pub(super) key_word: Option<u16>,
    pub(super) rank_word: Option<u16>,
    pub(super) is_one: bool,
    pub(super) is_leaf: bool,
    /// A node is one FIFO.
    pub(super) is_fifo: bool,
    /// The queue is one FIFO: its packets are in a ring.
    pub(super) is_ring: bool,
    /// A handler here or below may HOLD.
    pub(super) may_hold: bool,
    /// A node that is one list may have to wait.
    pub(super) may_wait: bool,
    /// It has ON ENQUEUE, or other work for arriving packets.
    pub(super) has_enqueue: bool,
    /// Its nodes count the partitions in use.
    pub(super) counts: bool,
    pub(super) has_activate: bool,
    pub(super) has_select: bool,
    pub(super) has_dequeue: bool,
    pub(super) has_empty: bool,
    /// Timers start with a node, its own or those of nodes below.
    pub(super) has_timers: bool,
    pub(super) ranks_packets: bool,
    /// ON ENQUEUE may change the rank of a partition; so may ON DEQUEUE.
    pub(super) enqueue_ranks: bool,
    pub(super) dequeue_ranks: bool,
    pub(super) is_ranked: bool,
    pub(super) by_least: bool,
    pub(super) packets_max: u64,
    pub(super) bytes_max: u64,
    pub(super) drops_arriving: bool,
    /// An arriving packet is appended if the limit admits it: no handler runs, and no fields are stored.
    pub(super) only_appends: bool,
    pub(super) victim: Option<(Victim, bool)>,
    pub(super) batch: u32,
    pub(super) limit_line: u32,
}

/// Creates the levels of a program, without packets.
pub(super) fn levels(program: &QueueProgram) -> Vec<Level> {
    let mut n_nodes = 1;
    let level = |(at, level): (usize, &weft_ir::queue::Level)| {
        let made = Level::new(program, at, n_nodes);
        n_nodes *= level.partitions.n() as usize;
        made
    };
    program.levels.iter().enumerate().map(level).collect()
}

/// The initial values of variables.
fn starts(vars: &[VarDecl]) -> Box<[u64]> {
    vars.iter().map(|var| var.start).collect()
}

/// Writes the initial values of variables behind the other words.
#[inline]
pub(super) fn initialize_vars(words: &mut [u64], first: u16, starts: &[u64]) {
    words[usize::from(first)..][..starts.len()].copy_from_slice(starts);
}

/// Adds a packet to the counts.
///
/// Bytes saturate, though they never reach the limit, so that the compiler does not merge the two words into one wide
/// operation. That would have to wait until both have left the processor's store buffer.
#[inline(always)]
pub(super) fn add_packet(head: &mut [u64], len: u64) {
    head[kept::PACKETS] += 1;
    head[kept::BYTES] = head[kept::BYTES].saturating_add(len);
}

/// Removes a packet from the counts.
#[inline(always)]
pub(super) fn subtract_packet(head: &mut [u64], len: u64) {
    head[kept::PACKETS] -= 1;
    head[kept::BYTES] = head[kept::BYTES].saturating_sub(len);
}

impl Shape {
    /// The node of a partition.
    #[inline]
    pub(super) fn node_of(&self, partition: u32) -> u32 {
        if self.is_one { partition } else { partition / self.n }
    }
}

impl Level {
    /// Creates a level of a program with that many nodes.
    fn new(program: &QueueProgram, at: usize, n_nodes: usize) -> Self {
        let level = &program.levels[at];
        let shape = Shape::new(program, at);
        let n_partitions = n_nodes * shape.n as usize;
        let (node_starts, partition_starts) = (starts(&level.vars), starts(&level.partition_vars));
        let mut nodes = Records::new(level.node_words());
        nodes.grow(n_nodes);
        for nth in 0..n_nodes as u32 {
            nodes.head_mut(nth)[kept::LINE] = if shape.is_ring { 0 } else { NO_PACKETS };
            initialize_vars(nodes.handler_words(nth), word::NODE_VARS, &node_starts);
        }
        let mut partitions = Records::new(level.partition_words());
        if !shape.is_one {
            partitions.grow(n_partitions);
            for nth in 0..n_partitions as u32 {
                let head = partitions.head_mut(nth);
                head[kept::LINE] = NO_PACKETS;
                head[kept::INDEX] = u64::from(nth % shape.n);
                initialize_vars(partitions.handler_words(nth), word::PARTITION_VARS, &partition_starts);
            }
        }
        let packet_bits = match level.packets {
            PacketOrder::Arrival => None,
            PacketOrder::Rank { bits } => bits,
        };
        let has_ways = matches!(level.partitions, Partitions::Hash { ways: 2.., .. });
        let n_orders = if shape.is_one { 0 } else { n_nodes };
        Self {
            shape,
            nodes,
            partitions,
            node_starts,
            partition_starts,
            orders: (0..n_orders).map(|_| Ranked::new(level.order.bits)).collect(),
            ranked: (0..if shape.is_ranked { n_nodes } else { 0 })
                .map(|_| Ranked::new(packet_bits))
                .collect(),
            tags: vec![0; if has_ways { n_partitions } else { 0 }],
            held: (0..n_orders).map(|_| BinaryHeap::new()).collect(),
            n_held: 0,
            is_started: vec![false; n_nodes],
            left: Vec::new(),
            room: 0,
        }
    }

    pub(super) fn n_partitions(&self) -> u32 {
        (self.is_started.len() * self.shape.n as usize) as u32
    }

    /// The first cache line of a partition's record; of the node's, if the node is one partition.
    #[inline(always)]
    pub(super) fn own(&self, partition: u32) -> &Head {
        if self.shape.is_one { self.nodes.head(partition) } else { self.partitions.head(partition) }
    }

    /// As above, mutable.
    #[inline(always)]
    pub(super) fn own_mut(&mut self, partition: u32) -> &mut Head {
        if self.shape.is_one { self.nodes.head_mut(partition) } else { self.partitions.head_mut(partition) }
    }

    /// Returns the records of a node and of one of its partitions, for a handler.
    #[inline(always)]
    pub(super) fn visit(&mut self, node: u32, partition: u32) -> Visit<'_> {
        let is_one = self.shape.is_one;
        let own = if is_one { &mut self.partitions.no_record } else { self.partitions.record(partition) };
        Visit { node: self.nodes.record(node), own }
    }

    /// Whether a partition has packets, or a position in the order, or is held.
    pub(super) fn is_in_use(&self, partition: u32) -> bool {
        let head = self.own(partition);
        head[kept::PACKETS] > 0 || !self.shape.is_one && head[kept::PLACE] != kept::IDLE
    }

    /// Whether a node would exceed its limit with this addition.
    #[inline(always)]
    pub(super) fn is_over(&self, node: u32, packets: u64, bytes: u64) -> bool {
        let head = self.nodes.head(node);
        head[kept::PACKETS] + packets > self.shape.packets_max
            || head[kept::BYTES] + bytes > self.shape.bytes_max
    }

    /// Returns the partition of a node with the most bytes, or packets if these have no bytes; the first of equals.
    pub(super) fn largest_partition(&self, node: u32) -> u32 {
        let n = self.shape.n;
        let held = |partition| {
            let head = self.own(partition);
            (head[kept::BYTES], head[kept::PACKETS])
        };
        let all = node * n..(node + 1) * n;
        all.reduce(|a, b| if held(b) > held(a) { b } else { a }).unwrap_or(node)
    }
}

impl Shape {
    /// Derives the shape of a level from its program.
    fn new(program: &QueueProgram, at: usize) -> Self {
        let level = &program.levels[at];
        let is_one = level.partitions == Partitions::One;
        let is_line = is_one && level.packets == PacketOrder::Arrival && !level.order.by_least_packet;
        let is_ring = is_line && program.levels.len() == 1;
        let counts = !is_one && program.counting_level() == Some(at);
        let by_least = level.order.by_least_packet && !is_one;
        let handlers = &level.handlers;
        let victim = match level.limit.overflow {
            Overflow::Arriving => None,
            Overflow::Victim { partition, head } => Some((partition, head)),
        };
        let key_word = handlers.key.as_ref().and_then(word_in_head);
        let may_hold = program.levels[at..]
            .iter()
            .any(|level| level.handlers.iter().any(|(_, h)| h.may_end_with(Verdict::Hold)));
        // Where packets rank their partition, the next packet applies a rank that another handler left.
        let enqueue_ranks = handlers.enqueue.as_ref().is_some_and(Handler::ranks)
            || by_least && handlers.iter().any(|(_, handler)| handler.ranks());
        Self {
            at,
            n: level.partitions.n(),
            partitions: level.partitions,
            n_sets: match level.partitions {
                Partitions::Hash { n, ways } => u64::from(n / ways),
                _ => 0,
            },
            key_word,
            rank_word: handlers.packet_rank.as_ref().and_then(word_in_head),
            is_one,
            is_leaf: at + 1 == program.levels.len(),
            is_fifo: is_line,
            is_ring,
            may_hold,
            may_wait: may_hold || handlers.select.is_some(),
            has_enqueue: handlers.enqueue.is_some() || counts,
            counts,
            has_activate: handlers.activate.is_some(),
            has_select: handlers.select.is_some(),
            has_dequeue: handlers.dequeue.is_some(),
            has_empty: handlers.empty.is_some(),
            has_timers: begins_timers(&program.levels[at..]),
            ranks_packets: handlers.packet_rank.is_some(),
            enqueue_ranks,
            // The level below may run ON DEQUEUE for several packets that it drops, before ON SELECT decides.
            dequeue_ranks: [&handlers.dequeue, &handlers.select].into_iter().flatten().any(Handler::ranks),
            is_ranked: matches!(level.packets, PacketOrder::Rank { .. }),
            by_least,
            packets_max: level.limit.packets_max(),
            bytes_max: level.limit.bytes_max(),
            drops_arriving: victim.is_none(),
            only_appends: is_ring
                && victim.is_none()
                && handlers.enqueue.is_none()
                && program.fields.is_empty(),
            victim,
            batch: level.limit.batch,
            limit_line: level.limit.line,
        }
    }
}

/// The packet word that a handler returns, if it does nothing else and the word is in the first cache line.
fn word_in_head(handler: &Handler) -> Option<u16> {
    handler.given_word().filter(|word| usize::from(*word) < SEEN_IN_HEAD)
}

/// Whether timers start with a node of the first of these levels: its own, or those of the only node below it.
fn begins_timers(levels: &[weft_ir::queue::Level]) -> bool {
    let n_ones = levels.iter().take_while(|level| level.partitions == Partitions::One).count();
    levels.iter().take(n_ones + 1).any(|level| !level.handlers.every.is_empty())
}
