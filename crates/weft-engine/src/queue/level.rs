//! One level of the tree: its nodes and partitions, and the orders in which partitions stand.

use super::order::Orders;
use super::ranked::Ranked;
use super::records::{Head, Record, Records};
use core::cmp::Reverse;
use std::collections::BinaryHeap;
pub(super) use weft_ir::queue::layout::kept;
use weft_ir::queue::layout::{NO_PACKETS, SEEN_IN_HEAD};
use weft_ir::queue::{
    Handler, Overflow, PacketOrder, Partitions, QueueProgram, VarDecl, Verdict, Victim, word,
};

/// The records of a node and of a partition of it, each of which is looked up once.
pub(super) struct Visit<'l> {
    pub(super) node: &'l mut Record,
    /// Nobody's where the node is one partition.
    pub(super) own: &'l mut Record,
    pub(super) is_one: bool,
}

impl<'l> Visit<'l> {
    /// The same, for a shorter time.
    #[inline(always)]
    pub(super) fn again(&mut self) -> Visit<'_> {
        Visit { node: &mut *self.node, own: &mut *self.own, is_one: self.is_one }
    }
}

/// One level of the tree.
#[derive(Debug)]
pub(super) struct Level {
    pub(super) shape: Shape,
    pub(super) nodes: Records,
    /// None where a node is one partition.
    pub(super) partitions: Records,
    /// Variables as they are at first.
    pub(super) node_starts: Box<[u64]>,
    pub(super) partition_starts: Box<[u64]>,
    /// The partitions of nodes that are in their order.
    pub(super) orders: Orders,
    /// By node of the last level, where packets are ranked.
    pub(super) ranked: Vec<Ranked>,
    /// By partition: the key that it is for, where sets have ways.
    pub(super) tags: Vec<u32>,
    /// By node: those that wait.
    pub(super) held: Vec<BinaryHeap<Reverse<(u64, u64, u32)>>>,
    /// How many have waited: those that wait for one time go on as they came.
    pub(super) n_held: u64,
    /// By node: its timers run.
    pub(super) is_started: Vec<bool>,
    /// Where partitions in use are counted: those that left the order since the last count.
    pub(super) left: Vec<u32>,
    /// Where packets are in a ring: how many may be there before something else than to put one behind is to be done.
    pub(super) room: u64,
}

/// What stays the same of a level.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is read by itself on the way of a packet")]
pub(super) struct Shape {
    /// Which level it is.
    pub(super) at: usize,
    /// Partitions of a node.
    pub(super) n: u32,
    pub(super) partitions: Partitions,
    /// Where keys have ways: sets of a node.
    pub(super) n_sets: u64,
    /// The word of a packet that is its key, and the one that is its rank: no handler has to run.
    pub(super) key_word: Option<u16>,
    pub(super) rank_word: Option<u16>,
    pub(super) is_one: bool,
    pub(super) is_leaf: bool,
    /// A node is one line of packets as they came.
    pub(super) is_line: bool,
    /// It is all of the queue, and such a line: its packets are in a ring.
    pub(super) is_ring: bool,
    /// Something may wait here, or below.
    pub(super) may_hold: bool,
    /// A node that is one line may be asked whether it waits.
    pub(super) may_wait: bool,
    /// It has ON ENQUEUE, or something else to do for packets that come.
    pub(super) has_enqueue: bool,
    /// Its nodes count the partitions in use.
    pub(super) counts: bool,
    pub(super) has_activate: bool,
    pub(super) has_select: bool,
    pub(super) has_dequeue: bool,
    pub(super) has_empty: bool,
    /// A node's timers begin with it, or those of nodes below that begin with it.
    pub(super) has_timers: bool,
    pub(super) ranks_packets: bool,
    /// ON ENQUEUE may change the rank of a partition; and ON DEQUEUE.
    pub(super) enqueue_ranks: bool,
    pub(super) dequeue_ranks: bool,
    pub(super) is_ranked: bool,
    pub(super) by_least: bool,
    pub(super) packets_max: u64,
    pub(super) bytes_max: u64,
    pub(super) drops_arriving: bool,
    /// A packet that comes is put behind others if the limit lets it; nothing is asked, and it carries no fields.
    pub(super) only_appends: bool,
    pub(super) victim: Option<(Victim, bool)>,
    pub(super) batch: u32,
    pub(super) limit_line: u32,
}

/// The levels of a program, without packets.
pub(super) fn levels(program: &QueueProgram) -> Vec<Level> {
    let mut n_nodes = 1;
    let level = |(at, level): (usize, &weft_ir::queue::Level)| {
        let made = Level::new(program, at, n_nodes);
        n_nodes *= level.partitions.n() as usize;
        made
    };
    program.levels.iter().enumerate().map(level).collect()
}

/// Variables as they are at first.
fn starts(vars: &[VarDecl]) -> Box<[u64]> {
    vars.iter().map(|var| var.start).collect()
}

/// Puts variables as they are at first behind the words that are no variables.
#[inline]
pub(super) fn begin(words: &mut [u64], first: u16, starts: &[u64]) {
    words[usize::from(first)..][..starts.len()].copy_from_slice(starts);
}

/// A packet more.
///
/// Bytes saturate, which they never have to, so that the two words are not changed as one of twice the width: that
/// would have to wait until both have left the processor's buffer of stores.
#[inline(always)]
pub(super) fn count(head: &mut [u64], len: u64) {
    head[kept::PACKETS] += 1;
    head[kept::BYTES] = head[kept::BYTES].saturating_add(len);
}

/// A packet less.
#[inline(always)]
pub(super) fn uncount(head: &mut [u64], len: u64) {
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
    /// The level of a program, that has so many nodes.
    fn new(program: &QueueProgram, at: usize, n_nodes: usize) -> Self {
        let level = &program.levels[at];
        let shape = Shape::new(program, at);
        let n_partitions = n_nodes * shape.n as usize;
        let (node_starts, partition_starts) = (starts(&level.vars), starts(&level.partition_vars));
        let mut nodes = Records::new(level.node_words());
        nodes.grow(n_nodes);
        for nth in 0..n_nodes as u32 {
            nodes.head_mut(nth)[kept::LINE] = if shape.is_ring { 0 } else { NO_PACKETS };
            begin(nodes.seen(nth), word::NODE_VARS, &node_starts);
        }
        let mut partitions = Records::new(level.partition_words());
        if !shape.is_one {
            partitions.grow(n_partitions);
            for nth in 0..n_partitions as u32 {
                let head = partitions.head_mut(nth);
                head[kept::LINE] = NO_PACKETS;
                head[kept::INDEX] = u64::from(nth % shape.n);
                begin(partitions.seen(nth), word::PARTITION_VARS, &partition_starts);
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
            orders: Orders::new(level.order.bits, n_orders),
            ranked: (0..if shape.is_ranked { n_nodes } else { 0 })
                .map(|_| Ranked::popped(packet_bits))
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

    /// The first line of the record of a partition: of the node where that is one.
    #[inline(always)]
    pub(super) fn own(&self, partition: u32) -> &Head {
        if self.shape.is_one { self.nodes.head(partition) } else { self.partitions.head(partition) }
    }

    /// As above, to be changed.
    #[inline(always)]
    pub(super) fn own_mut(&mut self, partition: u32) -> &mut Head {
        if self.shape.is_one { self.nodes.head_mut(partition) } else { self.partitions.head_mut(partition) }
    }

    /// The records of a node and of a partition of it.
    #[inline(always)]
    pub(super) fn visit(&mut self, node: u32, partition: u32) -> Visit<'_> {
        let is_one = self.shape.is_one;
        let own = if is_one { &mut self.partitions.nobody } else { self.partitions.record(partition) };
        Visit { node: self.nodes.record(node), own, is_one }
    }

    /// Whether a partition has packets, or a place in the order, or waits for one.
    pub(super) fn is_in_use(&self, partition: u32) -> bool {
        let head = self.own(partition);
        head[kept::PACKETS] > 0 || !self.shape.is_one && head[kept::PLACE] != kept::IDLE
    }

    /// Whether a node would hold too much with so much more.
    #[inline(always)]
    pub(super) fn is_over(&self, node: u32, packets: u64, bytes: u64) -> bool {
        let head = self.nodes.head(node);
        head[kept::PACKETS] + packets > self.shape.packets_max
            || head[kept::BYTES] + bytes > self.shape.bytes_max
    }

    /// The partition of a node with the most bytes, or packets where these have none; the first of equals.
    pub(super) fn fattest(&self, node: u32) -> u32 {
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
        // Where packets rank their partition, a rank that another handler left is taken up with the next of them.
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
            is_line,
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
            // What is below may run ON DEQUEUE for several packets that it drops, and ON SELECT may let it be served.
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

/// The word of the packet that a handler gives, if it does no more than that and the word is in the first line.
fn word_in_head(handler: &Handler) -> Option<u16> {
    handler.given_word().filter(|word| usize::from(*word) < SEEN_IN_HEAD)
}

/// Whether timers begin with a node of the first of these levels: its own, or those of a node that is the only one
/// below it.
fn begins_timers(levels: &[weft_ir::queue::Level]) -> bool {
    let n_ones = levels.iter().take_while(|level| level.partitions == Partitions::One).count();
    levels.iter().take(n_ones + 1).any(|level| !level.handlers.every.is_empty())
}
