//! Queue programs: the lowered form of `CREATE QUEUE`.
//!
//! A queue program is a path of [`Level`]s from the root of a tree to its leaves. A level holds partitions. Each
//! partition of an inner level holds a queue of the level below; each partition of the last level holds packets. The
//! rank of a partition decides which one is served next, and `HOLD` decides when.
//!
//! A [`Handler`] runs at one of the moments that a program can handle. It is deliberately small: values of one word,
//! operations of [`crate::ir`] on them, loads and stores of [`Slot`]s, conditions without loops, and one verdict on
//! every path. It never sees the payload of a packet. So its cost is known before it runs ([`Handler::cost`]), and it
//! can become a function of a few instructions or a net of gates.
//!
//! [`run`] is the interpreter, [`verify`] defines well-formed programs. Source: "No Silver Bullet: Extending SDN to the
//! Data Plane" (HotNets 2013), and decision 0036.

pub mod direct;
mod effects;
pub mod generate;
mod print;
pub mod run;
pub mod verify;

pub use crate::ir::{Op, Ty, Value};
pub use effects::stores;
use std::sync::Arc;

/// Maximum number of levels of a tree.
pub const LEVELS_MAX: usize = 4;
/// Maximum number of partitions of a node.
pub const PARTITIONS_MAX: u32 = 1 << 20;
/// Maximum number of partitions of a level in the whole tree: the product over the nodes above it.
pub const TREE_MAX: u64 = 1 << 20;
/// Maximum number of header fields of a program.
pub const HEADERS_MAX: usize = 4;
/// Maximum number of fields of a program.
pub const FIELDS_MAX: usize = Field::ALL.len() + HEADERS_MAX + PartitionsBy::MAX;
/// Maximum number of packets in a queue.
pub const PACKETS_MAX: u32 = 1 << 22;
/// Maximum number of variables of one scope of a level.
pub const VARS_MAX: usize = 64;
/// Maximum number of steps of a handler, on all its paths together.
pub const STEPS_MAX: usize = 4096;
/// Ranks of up to this many bits use bitmaps; wider ones a heap.
pub const RANK_BITS_MAX: u8 = 18;

/// A queue program.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueProgram {
    /// The name.
    pub name: String,
    /// The levels from the root; at least one.
    pub levels: Vec<Level>,
    /// The fields that a packet carries for it, in the words from [`word::FIELDS`] on.
    pub fields: Vec<Field>,
}

/// One level of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The queue in the source.
    pub name: String,
    /// The number of partitions of a node, and the choice of a packet's partition.
    pub partitions: Partitions,
    /// Variables of a node.
    pub vars: Vec<VarDecl>,
    /// Variables of a partition.
    pub partition_vars: Vec<VarDecl>,
    /// The order of the partitions of a node.
    pub order: Order,
    /// The order of the packets in a partition; only on the last level.
    pub packets: PacketOrder,
    /// The capacity of a node, and what it drops beyond it.
    pub limit: Limit,
    /// Its handlers.
    pub handlers: Handlers,
}

/// The partitions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// One: the node is a single line of packets.
    One,
    /// The hash of the key selects one of `n` partitions. With several `ways` it selects a set of that many, in which
    /// keys get separate partitions while some are free.
    Hash {
        /// The number of partitions.
        n: u32,
        /// The number of partitions in the set of a key.
        ways: u32,
    },
    /// The key is the index; keys beyond the last partition select the last one.
    Direct {
        /// The number of partitions.
        n: u32,
    },
}

impl Partitions {
    /// The number of partitions.
    pub fn n(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Hash { n, .. } | Self::Direct { n } => n,
        }
    }
}

/// The order of the partitions of a node: lowest rank first, and among equal ranks the earliest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// The width of ranks: 0 to 2^bits - 1, other values are clamped. None for any signed number.
    pub bits: Option<u8>,
    /// Whether the rank of a partition is the least [`Handlers::packet_rank`] of its packets.
    pub by_least_packet: bool,
}

/// The order of the packets in a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrder {
    /// In order of arrival.
    Arrival,
    /// By [`Handlers::packet_rank`], lowest first, and among equal ranks in order of arrival.
    Rank {
        /// See [`Order::bits`].
        bits: Option<u8>,
    },
}

/// The capacity of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Maximum number of packets, at most [`PACKETS_MAX`].
    pub packets: Option<u32>,
    /// Maximum number of bytes.
    pub bytes: Option<u64>,
    /// What to drop beyond it.
    pub overflow: Overflow,
    /// For [`Overflow::Victim`]: the maximum number of packets to drop at once. At most half of the victim's bytes are
    /// dropped.
    pub batch: u32,
    /// The line of the clause.
    pub line: u32,
}

impl Limit {
    /// Maximum number of packets.
    pub fn packets_max(&self) -> u64 {
        u64::from(self.packets.unwrap_or(PACKETS_MAX))
    }

    /// Maximum number of bytes; unlimited if not declared.
    pub fn bytes_max(&self) -> u64 {
        self.bytes.unwrap_or(u64::MAX)
    }
}

/// What a full node drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The arriving packet.
    Arriving,
    /// A packet from a partition of this node.
    Victim {
        /// The partition.
        partition: Victim,
        /// Whether to drop its first packet instead of its last.
        head: bool,
    },
}

/// The partition that loses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The partition of the arriving packet.
    Own,
    /// The partition with the most bytes; the first among equals.
    MostBytes,
    /// The partition with the highest rank; the first among equals.
    HighestRank,
}

/// The handlers of a level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// Computes the key of a packet's partition; ends with [`Step::Give`].
    pub key: Option<Handler>,
    /// Computes the rank of a packet; ends with [`Step::Give`].
    pub packet_rank: Option<Handler>,
    /// A packet arrives: it is accepted, marked or dropped.
    pub enqueue: Option<Handler>,
    /// A partition outside the order has got a packet.
    pub activate: Option<Handler>,
    /// A partition is first in the order: it is served, goes behind its equals, or waits.
    pub select: Option<Handler>,
    /// A packet is first in its partition: it is sent, marked or dropped, or it waits.
    pub dequeue: Option<Handler>,
    /// A partition is first in the order and has no packet: it leaves the order or stays. Without this handler it
    /// leaves with its last packet.
    pub empty: Option<Handler>,
    /// Timers.
    pub every: Vec<Timer>,
}

/// A handler with a timer.
#[derive(Clone, Debug, PartialEq)]
pub struct Timer {
    /// The interval in nanoseconds.
    pub interval_ns: u64,
    /// Whether it runs for each partition with packets or with a place in the order, instead of once per node.
    pub each_partition: bool,
    /// The handler.
    pub handler: Handler,
}

impl Timer {
    /// The moment of the `nth` timer of a level.
    pub fn moment(&self, nth: usize) -> Moment {
        let nth = u16::try_from(nth).expect("a level has few timers");
        if self.each_partition { Moment::EachPartition(nth) } else { Moment::Every(nth) }
    }
}

impl Handlers {
    /// Iterates over all handlers with their moments.
    pub fn iter(&self) -> impl Iterator<Item = (Moment, &Handler)> {
        let single = [
            (Moment::Key, &self.key),
            (Moment::PacketRank, &self.packet_rank),
            (Moment::Enqueue, &self.enqueue),
            (Moment::Activate, &self.activate),
            (Moment::Select, &self.select),
            (Moment::Dequeue, &self.dequeue),
            (Moment::Empty, &self.empty),
        ];
        let single = single.into_iter().filter_map(|(moment, handler)| Some((moment, handler.as_ref()?)));
        let every = self.every.iter().enumerate();
        single.chain(every.map(|(nth, timer)| (timer.moment(nth), &timer.handler)))
    }

    /// The handler of a moment; None if the level has none.
    pub fn get(&self, moment: Moment) -> Option<&Handler> {
        match moment {
            Moment::Key => self.key.as_ref(),
            Moment::PacketRank => self.packet_rank.as_ref(),
            Moment::Enqueue => self.enqueue.as_ref(),
            Moment::Activate => self.activate.as_ref(),
            Moment::Select => self.select.as_ref(),
            Moment::Dequeue => self.dequeue.as_ref(),
            Moment::Empty => self.empty.as_ref(),
            Moment::Every(nth) | Moment::EachPartition(nth) => {
                self.every.get(usize::from(nth)).map(|timer| &timer.handler)
            }
        }
    }
}

/// The moments at which handlers run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the fields of Handlers say it")]
pub enum Moment {
    Key,
    PacketRank,
    Enqueue,
    Activate,
    Select,
    Dequeue,
    Empty,
    Every(u16),
    /// A timer, for each partition: [`Timer::each_partition`].
    EachPartition(u16),
}

impl Moment {
    /// Whether there is a packet.
    pub fn has_packet(self) -> bool {
        self != Self::Empty && !self.is_timed()
    }

    /// Whether there is a partition.
    pub fn has_partition(self) -> bool {
        !matches!(self, Self::Key | Self::Every(_))
    }

    /// Whether a timer triggers it.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every(_) | Self::EachPartition(_))
    }

    /// Whether it ends with a number instead of a verdict.
    pub fn gives(self) -> bool {
        matches!(self, Self::Key | Self::PacketRank)
    }
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct VarDecl {
    /// The name.
    pub name: String,
    /// Its type.
    pub ty: Ty,
    /// Its width in bits: 1 for a boolean, 64 for a float. Lowered programs store no wider values.
    pub bits: u8,
    /// Whether it may be negative.
    pub signed: bool,
    /// The initial value as a word.
    pub start: u64,
}

/// The fields that a packet can carry for a program, besides length, arrival time and ECN codepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// A 32-bit hash of the flow: addresses, ports, protocol.
    Flow,
    /// A 32-bit hash of the source address.
    Src,
    /// A 32-bit hash of the destination address.
    Dst,
    /// The differentiated services codepoint, 0 to 63.
    Dscp,
    /// The class from MARK, or the class of the session.
    Class,
    /// The remaining bytes of its flow, as the application announced them.
    Remaining,
    /// The nanoseconds that it may still wait on its path.
    Slack,
    /// The deadline of its delivery, in nanoseconds.
    Deadline,
    /// Its bytes at the network layer: without link headers and padding.
    NetLen,
    /// The number of partitions in use in its node whose last packet has the same value in a field, its own partition
    /// included.
    Partitions(PartitionsBy),
    /// A header field that the program names, below [`HEADERS_MAX`]: a number, or a 32-bit hash of bytes. 0 if the
    /// packet does not have it.
    Header(u8),
}

impl Field {
    /// The names of header fields and counts without their program.
    const HEADERS: [&'static str; HEADERS_MAX] = ["header_0", "header_1", "header_2", "header_3"];

    /// All fields except header fields and counts, with their names in the language.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::Flow, "flow"),
        (Self::Src, "src"),
        (Self::Dst, "dst"),
        (Self::Dscp, "dscp"),
        (Self::Class, "class"),
        (Self::Remaining, "remaining"),
        (Self::Slack, "slack"),
        (Self::Deadline, "deadline"),
        (Self::NetLen, "net_len"),
    ];

    /// The field with this name in the language.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header(nth) => Self::HEADERS.get(usize::from(nth)).copied().unwrap_or(""),
            Self::Partitions(by) => by.name(),
            _ => Self::ALL.iter().find(|(field, _)| *field == self).map_or("", |(_, name)| name),
        }
    }

    /// Whether a program may change it in a departing packet.
    pub fn is_writable(self) -> bool {
        matches!(self, Self::Dscp | Self::Slack | Self::Remaining | Self::Class)
    }
}

/// The field by which partitions are counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PartitionsBy {
    /// [`Field::Src`]
    Src,
    /// [`Field::Dst`]
    Dst,
    /// [`Field::Class`]
    Class,
    /// [`Field::Header`]
    Header(u8),
}

impl PartitionsBy {
    /// Maximum number of these in a program.
    pub const MAX: usize = 4;

    /// The field with the common value.
    pub fn field(self) -> Field {
        match self {
            Self::Src => Field::Src,
            Self::Dst => Field::Dst,
            Self::Class => Field::Class,
            Self::Header(nth) => Field::Header(nth),
        }
    }

    /// The count for a field, if partitions can be counted by it.
    pub fn of(field: Field) -> Option<Self> {
        match field {
            Field::Src => Some(Self::Src),
            Field::Dst => Some(Self::Dst),
            Field::Class => Some(Self::Class),
            Field::Header(nth) => Some(Self::Header(nth)),
            _ => None,
        }
    }

    /// The name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Src => "partitions by src",
            Self::Dst => "partitions by dst",
            Self::Class => "partitions by class",
            Self::Header(_) => "partitions by header",
        }
    }
}

/// The owner of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The node.
    Node,
    /// The partition.
    Partition,
    /// The packet.
    Packet,
    /// The current event.
    Event,
}

impl Scope {
    /// The name in texts.
    pub fn name(self) -> &'static str {
        match self {
            Self::Node => "node",
            Self::Partition => "partition",
            Self::Packet => "packet",
            Self::Event => "event",
        }
    }
}

/// A word that handlers read or write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// The owner.
    pub scope: Scope,
    /// The index; see [`word`].
    pub word: u16,
}

impl Slot {
    /// A word.
    pub const fn new(scope: Scope, word: u16) -> Self {
        Self { scope, word }
    }
}

/// The layout of words. Variables and fields follow the named words.
#[allow(missing_docs, reason = "the comments say it")]
pub mod word {
    /// Node and partition: the number of packets, levels below included.
    pub const PACKETS: u16 = 0;
    /// Node and partition: the number of bytes.
    pub const BYTES: u16 = 1;
    /// Node: the first variable.
    pub const NODE_VARS: u16 = 2;
    /// Partition: its rank.
    pub const RANK: u16 = 2;
    /// Partition: its index in its node.
    pub const INDEX: u16 = 3;
    /// Partition: the first variable.
    pub const PARTITION_VARS: u16 = 4;
    /// Packet: the handle of its owner.
    pub const HANDLE: u16 = 0;
    /// Packet: its arrival time in nanoseconds.
    pub const ARRIVED: u16 = 1;
    /// Packet: its length in bytes.
    pub const LEN: u16 = 2;
    /// Packet: the ECN codepoint (RFC 3168): 0 is not ECN-capable, 3 is congestion experienced.
    pub const ECN: u16 = 3;
    /// Packet: the result of [`super::Handlers::packet_rank`].
    pub const PACKET_RANK: u16 = 4;
    /// Packet: the first field.
    pub const FIELDS: u16 = 5;
    /// Event: the time in nanoseconds.
    pub const NOW: u16 = 0;
    /// Event: 53 random bits.
    pub const RANDOM: u16 = 1;
    /// Event: 1 if [`RANDOM`] was read, so that it is drawn anew.
    pub const DRAWN: u16 = 2;
    /// Event: the end time of `HOLD`.
    pub const HOLD: u16 = 3;
    /// Event: the number of packets dropped from this partition in the current dequeue; 0 outside a dequeue.
    pub const DROPS: u16 = 4;
    /// Event: the current rate of the link in bits per second, 0 if unknown.
    pub const RATE: u16 = 5;
    /// The number of words of an event.
    pub const EVENT_WORDS: u16 = 6;
}

/// A handler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handler {
    /// The steps.
    pub body: Vec<Step>,
    /// The type of each value.
    pub types: Vec<Ty>,
}

/// A step. A value is defined once, and is visible to later steps in its block and in nested blocks.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Defines a value by an operation on others; [`verify::is_in_profile`] says by which.
    Let(Value, Op),
    /// Defines a value as the content of a word.
    Load(Value, Slot),
    /// Writes a word.
    Store(Slot, Value),
    /// A condition with two blocks. Each may end the handler; otherwise the steps behind it follow.
    If {
        /// The condition, a Bool.
        by: Value,
        /// The block if it is true.
        then: Vec<Self>,
        /// The block if it is false.
        otherwise: Vec<Self>,
    },
    /// Ends the handler.
    End(Verdict, u32),
    /// Ends the handler with a number, an Int.
    Give(Value),
}

// The word of a verdict reads back as the same verdict.
const _: () = {
    let mut nth = 0;
    while nth < Verdict::ALL.len() {
        let verdict = Verdict::ALL[nth];
        assert!(verdict as usize == nth && Verdict::of_word(verdict.word(0)) as usize == nth);
        nth += 1;
    }
};

/// How a handler ends; the number with it is the source line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// ENQUEUE: accepts the packet. DEQUEUE: sends it. SELECT: serves the partition. The end of all other handlers.
    Pass = 0,
    /// As Pass; the packet was marked.
    Mark = 1,
    /// ENQUEUE, DEQUEUE: drops the packet.
    Drop = 2,
    /// SELECT: moves the partition behind those of its rank, and continues with the next.
    Next = 3,
    /// SELECT, DEQUEUE: lets the partition wait until [`word::HOLD`], and continues with the next.
    Hold = 4,
    /// EMPTY: keeps the partition in the order, behind those of its rank.
    Stay = 5,
    /// DEQUEUE: sends the packet, and moves the partition behind those of its rank.
    Rotate = 6,
}

impl Verdict {
    /// All verdicts, by number.
    pub const ALL: [Self; 7] =
        [Self::Pass, Self::Mark, Self::Drop, Self::Next, Self::Hold, Self::Stay, Self::Rotate];

    /// The word with which a handler ends.
    #[inline]
    pub const fn word(self, line: u32) -> u64 {
        self as u64 | (line as u64) << 8
    }

    /// The verdict of such a word; Pass if it has none.
    #[inline(always)]
    pub const fn of_word(word: u64) -> Self {
        match word as u8 {
            1 => Self::Mark,
            2 => Self::Drop,
            3 => Self::Next,
            4 => Self::Hold,
            5 => Self::Stay,
            6 => Self::Rotate,
            _ => Self::Pass,
        }
    }

    /// The line of such a word.
    #[inline]
    pub const fn line(word: u64) -> u32 {
        (word >> 8) as u32
    }
}

impl Handler {
    /// The operations on the longest path: the maximum cost of a run.
    pub fn cost(&self) -> u32 {
        longest(&self.body)
    }

    /// A handler that ends at once.
    pub fn pass() -> Self {
        Self { body: vec![Step::End(Verdict::Pass, 0)], types: Vec::new() }
    }
}

/// The number of steps on the longest path.
fn longest(steps: &[Step]) -> u32 {
    let of = |step: &Step| match step {
        Step::If { then, otherwise, .. } => 1 + longest(then).max(longest(otherwise)),
        _ => 1,
    };
    steps.iter().map(of).sum()
}

impl Level {
    /// The words of a node for handlers.
    pub fn node_words(&self) -> usize {
        usize::from(word::NODE_VARS) + self.vars.len()
    }

    /// The words of a partition for handlers.
    pub fn partition_words(&self) -> usize {
        usize::from(word::PARTITION_VARS) + self.partition_vars.len()
    }
}

impl QueueProgram {
    /// The words of a packet; the last one belongs to the queue.
    pub fn packet_words(&self) -> usize {
        usize::from(word::FIELDS) + self.fields.len() + 1
    }

    /// Whether a handler reads random bits.
    pub fn draws(&self) -> bool {
        let drawn = Slot::new(Scope::Event, word::DRAWN);
        self.levels.iter().any(|level| level.handlers.iter().any(|(_, handler)| handler.stores(drawn)))
    }

    /// The word of a packet with this field.
    pub fn field(&self, field: Field) -> Option<u16> {
        let at = self.fields.iter().position(|known| *known == field)?;
        assert!(at < FIELDS_MAX, "the verifier limits the fields");
        Some(word::FIELDS + at as u16)
    }

    /// The level whose nodes count partitions: the first one that reads [`Field::Partitions`].
    pub fn counting_level(&self) -> Option<usize> {
        let counts =
            (word::FIELDS..).zip(&self.fields).filter(|(_, field)| matches!(field, Field::Partitions(_)));
        let counts: Vec<Slot> = counts.map(|(at, _)| Slot::new(Scope::Packet, at)).collect();
        let asks = |level: &Level| {
            level.handlers.iter().any(|(_, handler)| counts.iter().any(|at| handler.loads(*at)))
        };
        if counts.is_empty() { None } else { self.levels.iter().position(asks) }
    }

    /// Whether packets may wait although the link is free.
    pub fn holds(&self) -> bool {
        self.levels.iter().any(|level| level.handlers.iter().any(|(_, h)| h.may_end_with(Verdict::Hold)))
    }

    /// Maximum operations per packet, on enqueue and dequeue together, if nothing is dropped and no partition waits.
    pub fn cost(&self) -> u32 {
        let of = |level: &Level| -> u32 {
            level.handlers.iter().filter(|(moment, _)| !moment.is_timed()).map(|(_, h)| h.cost()).sum()
        };
        self.levels.iter().map(of).sum()
    }

    /// Maximum memory of a queue of this program in bytes: packets without payload, nodes and partitions.
    pub fn memory_bytes(&self) -> u64 {
        let packets = u64::from(self.packets_max()) * self.packet_words() as u64 * 8;
        let mut n_nodes = 1;
        let mut all = packets;
        for level in &self.levels {
            let n_partitions = n_nodes * u64::from(level.partitions.n());
            let (node, partition) = (level.node_words(), level.partition_words() + 2);
            let buckets = match (level.partitions, level.order.bits) {
                (Partitions::One, _) => 0,
                (_, Some(bits)) => 8 << bits,
                (_, None) => 0,
            };
            all += n_nodes * (node as u64 * 8 + buckets) + n_partitions * (partition as u64 * 8 + 16);
            n_nodes = n_partitions;
        }
        all
    }

    /// Maximum number of packets. Each level is bounded by its limit, and by the capacity of all its partitions.
    pub fn packets_max(&self) -> u32 {
        let mut levels = self.levels.iter().rev();
        let leaf = levels.next().map_or(0, |leaf| leaf.limit.packets_max());
        let of = |below: u64, level: &Level| {
            (below * u64::from(level.partitions.n())).min(level.limit.packets_max())
        };
        levels.fold(leaf, of).min(PACKETS_MAX.into()) as u32
    }
}

// A handler finds every word that a program may declare.
const _: () = assert!(word::NODE_VARS <= word::PARTITION_VARS, "the words of a node fit in a record");
// The indexes of packets and partitions are 32 bits, with one more for none.
const _: () =
    assert!(PACKETS_MAX < u32::MAX && TREE_MAX < u32::MAX as u64 && PARTITIONS_MAX as u64 <= TREE_MAX);
// The buckets of ranks are counted in 32 bits, and steps in the width of their cost.
const _: () = assert!(RANK_BITS_MAX < 32 && STEPS_MAX < u32::MAX as usize);

/// The code of a program's handlers. It holds no state.
pub trait QueueCode: core::fmt::Debug + Send + Sync {
    /// Runs a handler of a level and returns its end word: [`Verdict::word`], or the number that it gave. It does
    /// nothing and passes if the program has no such handler.
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64;

    /// The same handler for direct calls, if available.
    fn direct(&self, _level: usize, _moment: Moment) -> Option<direct::Direct> {
        None
    }

    /// The function that prefetches a cache line, if the back end has one.
    fn fetch(&self) -> Option<direct::Fetch> {
        None
    }
}

/// The words of [`Scope::Event`].
pub type EventWords = [u64; word::EVENT_WORDS as usize];

/// The words of [`Scope::Node`] or [`Scope::Partition`].
pub type RecordWords = [u64; word::PARTITION_VARS as usize + VARS_MAX];
/// The words of [`Scope::Packet`].
pub type PacketWords = [u64; word::FIELDS as usize + FIELDS_MAX];

/// The words that a handler works on. Those that its program or moment does not have may be anything.
#[derive(Debug)]
pub struct Words<'w> {
    /// [`Scope::Node`]
    pub node: &'w mut RecordWords,
    /// [`Scope::Partition`]
    pub partition: &'w mut RecordWords,
    /// [`Scope::Packet`]
    pub packet: &'w mut PacketWords,
    /// [`Scope::Event`]
    pub event: &'w mut EventWords,
}

impl Words<'_> {
    /// The word of a slot.
    pub fn word(&mut self, slot: Slot) -> &mut u64 {
        let at = usize::from(slot.word);
        match slot.scope {
            Scope::Node => &mut self.node[at],
            Scope::Partition => &mut self.partition[at],
            Scope::Packet => &mut self.packet[at],
            Scope::Event => &mut self.event[at],
        }
    }
}

impl<T: QueueCode + ?Sized> QueueCode for Arc<T> {
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        (**self).run(level, moment, words)
    }

    fn direct(&self, level: usize, moment: Moment) -> Option<direct::Direct> {
        (**self).direct(level, moment)
    }

    fn fetch(&self) -> Option<direct::Fetch> {
        (**self).fetch()
    }
}
