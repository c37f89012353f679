//! Queue programs: what `CREATE QUEUE` is lowered to.
//!
//! A queue program is a path of [`Level`]s, from the root of a tree to its leaves. A level holds partitions; each
//! partition of an inner level holds a queue of the level below, each partition of the last level holds packets. Which
//! partition is served next is decided by its rank, and when by `HOLD`.
//!
//! A [`Handler`] is what happens at one of the moments that a program may speak about. It is a small thing on purpose:
//! values of one word, loads and stores of [`Slot`]s, conditions without a way back, and one verdict on every path.
//! What a packet carries is nowhere in it. So its cost is a number known before it runs ([`Handler::cost`]), it can be
//! a function of a few instructions or a net of gates, and there is nothing in which two back ends could differ: all
//! operations are total, and have the meaning that [`crate::ir`] gives them.
//!
//! [`run`] is the interpreter, [`verify`] says what well-formed means. Source: "No Silver Bullet: Extending SDN to the
//! Data Plane" (HotNets 2013), and decision 0036.

pub mod direct;
pub mod generate;
pub mod layout;
mod print;
pub mod round_robin;
pub mod run;
pub mod verify;

use crate::ir::{BoolOp, FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp};
use std::sync::Arc;

/// Levels of a tree, at most.
pub const LEVELS_MAX: usize = 4;
/// Partitions of one node, at most.
pub const PARTITIONS_MAX: u32 = 1 << 20;
/// Partitions of a level of the whole tree, at most: the product of those of the nodes above it.
pub const TREE_MAX: u64 = 1 << 20;
/// Fields of headers that a program may name.
pub const HEADERS_MAX: usize = 4;
/// Packets that a queue may be allowed to hold.
pub const PACKETS_MAX: u32 = 1 << 22;
/// Variables of one scope of one level, at most.
pub const VARS_MAX: usize = 64;
/// Steps of a handler, at most, on all its paths together.
pub const STEPS_MAX: usize = 4096;
/// Ranks of so many bits are found by bitmaps; wider ones by a heap.
pub const RANK_BITS_MAX: u8 = 18;

/// A queue program.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueProgram {
    /// Its name.
    pub name: String,
    /// The levels, from the root on; at least one.
    pub levels: Vec<Level>,
    /// What a packet carries for it, in the words from [`word::FIELDS`] on.
    pub fields: Vec<Field>,
}

/// One level of the tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Level {
    /// The queue that it comes from.
    pub name: String,
    /// How many partitions a node has, and how a packet finds its own.
    pub partitions: Partitions,
    /// Variables of a node.
    pub vars: Vec<VarDecl>,
    /// Variables of a partition.
    pub partition_vars: Vec<VarDecl>,
    /// How the partitions of a node are ordered.
    pub order: Order,
    /// How the packets of a partition are ordered; of the last level only.
    pub packets: PacketOrder,
    /// How much a node holds, and what goes when it is more.
    pub limit: Limit,
    /// What happens when.
    pub handlers: Handlers,
}

/// The partitions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Partitions {
    /// One: the node is one line of packets.
    One,
    /// The hash of the key picks one of `n`, or, with more than one way, one of a set of `ways` in which keys are told
    /// apart while the set has room.
    Hash {
        /// How many there are.
        n: u32,
        /// How many of them a key may be in.
        ways: u32,
    },
    /// The key is the index; what is beyond the last is the last.
    Direct {
        /// How many there are.
        n: u32,
    },
}

impl Partitions {
    /// How many there are.
    pub fn n(self) -> u32 {
        match self {
            Self::One => 1,
            Self::Hash { n, .. } | Self::Direct { n } => n,
        }
    }
}

/// How the partitions of a node are ordered: the lowest rank first, and of equal ranks the one that came first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Order {
    /// Ranks lie between 0 and 2^bits - 1 (what is outside is brought to the nearest); None is any signed number.
    pub bits: Option<u8>,
    /// The rank of a partition is the least that [`Handlers::packet_rank`] gave for a packet in it.
    pub by_least_packet: bool,
}

/// How the packets of a partition are ordered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PacketOrder {
    /// As they came.
    Arrival,
    /// By what [`Handlers::packet_rank`] gave for each, the lowest first, and of equal ones as they came.
    Rank {
        /// As [`Order::bits`].
        bits: Option<u8>,
    },
}

/// How much a node holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Packets, at most [`PACKETS_MAX`].
    pub packets: Option<u32>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// What goes when it is more.
    pub overflow: Overflow,
    /// Of [`Overflow::Victim`]: so many packets go at once, at most, and no more than half of the victim's bytes.
    pub batch: u32,
    /// The line of the clause.
    pub line: u32,
}

impl Limit {
    /// Packets, at most.
    pub fn packets_max(&self) -> u64 {
        u64::from(self.packets.unwrap_or(PACKETS_MAX))
    }

    /// Bytes, at most; all that there may be where it does not say.
    pub fn bytes_max(&self) -> u64 {
        self.bytes.unwrap_or(u64::MAX)
    }
}

/// What a full node drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Overflow {
    /// The packet that comes.
    Arriving,
    /// From a partition of this node.
    Victim {
        /// Which partition.
        partition: Victim,
        /// Its first packet and not its last.
        head: bool,
    },
}

/// The partition that loses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victim {
    /// The one of the packet that comes.
    Own,
    /// The one with the most bytes; of equals the first.
    MostBytes,
    /// The one with the highest rank; of equals the first.
    HighestRank,
}

/// The handlers of a level.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// The key of a packet's partition: ends with [`Step::Give`].
    pub key: Option<Handler>,
    /// The rank of a packet: ends with [`Step::Give`].
    pub packet_rank: Option<Handler>,
    /// A packet comes: accepted, marked or dropped.
    pub enqueue: Option<Handler>,
    /// A partition that was not in the order has got a packet.
    pub activate: Option<Handler>,
    /// A partition is the first: it is served, goes behind its equals, or waits.
    pub select: Option<Handler>,
    /// A packet is the first of its partition: sent, marked, dropped, or it waits.
    pub dequeue: Option<Handler>,
    /// A partition is the first and has no packet: it leaves the order or stays. Without this handler it leaves with
    /// its last packet.
    pub empty: Option<Handler>,
    /// By the clock.
    pub every: Vec<Timer>,
}

/// A handler that runs by the clock.
#[derive(Clone, Debug, PartialEq)]
pub struct Timer {
    /// Every so many nanoseconds.
    pub interval_ns: u64,
    /// For each partition that has packets, or a place in the order, and not once for the node.
    pub each_partition: bool,
    /// What is done then.
    pub handler: Handler,
}

impl Timer {
    /// What the `nth` timer of a level is called.
    pub fn moment(&self, nth: usize) -> Moment {
        let nth = nth as u16;
        if self.each_partition { Moment::EachPartition(nth) } else { Moment::Every(nth) }
    }
}

impl Handlers {
    /// All of them, with what they are called.
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

    /// The handler of a moment.
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

/// When a handler runs.
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
    /// Whether there is a packet to look at.
    pub fn has_packet(self) -> bool {
        self != Self::Empty && !self.is_timed()
    }

    /// Whether there is a partition.
    pub fn has_partition(self) -> bool {
        !matches!(self, Self::Key | Self::Every(_))
    }

    /// Whether the clock is why it runs.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every(_) | Self::EachPartition(_))
    }

    /// Whether it ends with a number and not with a verdict.
    pub fn gives(self) -> bool {
        matches!(self, Self::Key | Self::PacketRank)
    }
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct VarDecl {
    /// Its name.
    pub name: String,
    /// What it holds.
    pub ty: Ty,
    /// How many bits it needs: 1 for a truth, 64 for a float. Lowered programs store nothing that needs more.
    pub bits: u8,
    /// It may be below zero.
    pub signed: bool,
    /// What it is at first, as a word.
    pub start: u64,
}

/// What a packet may carry for a program, beside its length, its arrival and its ECN codepoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Field {
    /// A hash of 32 bits of what makes a flow: addresses, ports, protocol.
    Flow,
    /// A hash of 32 bits of the source address.
    Src,
    /// A hash of 32 bits of the destination address.
    Dst,
    /// The differentiated services codepoint, 0 to 63.
    Dscp,
    /// What the chain's MARK said, or the class of the session.
    Class,
    /// How many bytes of its flow are left, by what the application says.
    Remaining,
    /// How many nanoseconds it may still wait on its way.
    Slack,
    /// The time by which it should be there, in nanoseconds.
    Deadline,
    /// How many bytes it has at the network layer: without the headers of its link, and what pads it.
    NetLen,
    /// How many partitions of the node that it came to are in use whose last packet has the same in a field, its own
    /// included.
    Partitions(PartitionsBy),
    /// A field of a header that the program names, below [`HEADERS_MAX`]: a number, or a hash of 32 bits of a run of
    /// bytes. 0: the packet has it not.
    Header(u8),
}

impl Field {
    /// What those of headers and counts are called where the program that names them is not there.
    const HEADERS: [&'static str; HEADERS_MAX] = ["header_0", "header_1", "header_2", "header_3"];

    /// All but those of headers and counts, with the names that the language has for them.
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

    /// The one of a name that the language has.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(_, known)| *known == name).map(|(field, _)| *field)
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Header(nth) => Self::HEADERS.get(usize::from(nth)).copied().unwrap_or(""),
            Self::Partitions(by) => by.name(),
            _ => Self::ALL.iter().find(|(field, _)| *field == self).map_or("", |(_, name)| name),
        }
    }

    /// Whether a program may change it in a packet that leaves.
    pub fn is_writable(self) -> bool {
        matches!(self, Self::Dscp | Self::Slack | Self::Remaining | Self::Class)
    }
}

/// What partitions are counted by.
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
    /// How many a program may have.
    pub const MAX: usize = 4;

    /// The field that is the same.
    pub fn field(self) -> Field {
        match self {
            Self::Src => Field::Src,
            Self::Dst => Field::Dst,
            Self::Class => Field::Class,
            Self::Header(nth) => Field::Header(nth),
        }
    }

    /// That of a field, if partitions can be counted by it.
    pub fn of(field: Field) -> Option<Self> {
        match field {
            Field::Src => Some(Self::Src),
            Field::Dst => Some(Self::Dst),
            Field::Class => Some(Self::Class),
            Field::Header(nth) => Some(Self::Header(nth)),
            _ => None,
        }
    }

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Src => "partitions by src",
            Self::Dst => "partitions by dst",
            Self::Class => "partitions by class",
            Self::Header(_) => "partitions by header",
        }
    }
}

/// Whose word it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Scope {
    /// The node's.
    Node,
    /// The partition's.
    Partition,
    /// The packet's.
    Packet,
    /// What is so at this moment.
    Event,
}

/// A word that handlers read and write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot {
    /// Whose.
    pub scope: Scope,
    /// Which: see [`word`].
    pub word: u16,
}

impl Slot {
    /// A word.
    pub const fn new(scope: Scope, word: u16) -> Self {
        Self { scope, word }
    }
}

/// Which word holds what. Those behind the last named ones are variables and fields.
#[allow(missing_docs, reason = "the comments say it")]
pub mod word {
    /// Node and partition: packets in it, those of the levels below included.
    pub const PACKETS: u16 = 0;
    /// Node and partition: their bytes.
    pub const BYTES: u16 = 1;
    /// Node: the first variable.
    pub const NODE_VARS: u16 = 2;
    /// Partition: its rank.
    pub const RANK: u16 = 2;
    /// Partition: which one of its node it is.
    pub const INDEX: u16 = 3;
    /// Partition: the first variable.
    pub const PARTITION_VARS: u16 = 4;
    /// Packet: what its owner knows it by.
    pub const HANDLE: u16 = 0;
    /// Packet: when it came, in nanoseconds.
    pub const ARRIVED: u16 = 1;
    /// Packet: its bytes.
    pub const LEN: u16 = 2;
    /// Packet: the ECN codepoint (RFC 3168): 0 is not capable, 3 is congestion experienced.
    pub const ECN: u16 = 3;
    /// Packet: what [`super::Handlers::packet_rank`] gave.
    pub const PACKET_RANK: u16 = 4;
    /// Packet: the first field.
    pub const FIELDS: u16 = 5;
    /// Event: the time in nanoseconds.
    pub const NOW: u16 = 0;
    /// Event: 53 random bits.
    pub const RANDOM: u16 = 1;
    /// Event: 1 if [`RANDOM`] was used, so that it is drawn anew.
    pub const DRAWN: u16 = 2;
    /// Event: until when `HOLD` holds.
    pub const HOLD: u16 = 3;
    /// Event: packets dropped from this partition in this dequeue so far; 0 when none is under way.
    pub const DROPS: u16 = 4;
    /// Event: bits a second that the link has now, 0 if it does not say.
    pub const RATE: u16 = 5;
    /// How many words an event has.
    pub const EVENT_WORDS: u16 = 6;
}

/// A value: defined once, and seen by the steps behind it in its block and the blocks inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u16);

/// What a value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// 0 or 1.
    Bool,
    /// 64 bits, signed.
    Int,
    /// IEEE 754 binary64.
    Float,
}

/// A handler.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handler {
    /// What is done.
    pub body: Vec<Step>,
    /// The type of each value.
    pub types: Vec<Ty>,
}

/// A step.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// Defines a value.
    Let(Value, Op),
    /// Writes a word.
    Store(Slot, Value),
    /// One of two blocks; both may end, and if neither did, it goes on behind.
    If {
        /// A Bool.
        by: Value,
        /// If it is true.
        then: Vec<Self>,
        /// If not.
        otherwise: Vec<Self>,
    },
    /// Ends the handler.
    End(Verdict, u32),
    /// Ends a handler that gives a number (an Int).
    Give(Value),
}

// Words are read as they are written.
const _: () = {
    let mut nth = 0;
    while nth < Verdict::ALL.len() {
        let verdict = Verdict::ALL[nth];
        assert!(verdict as usize == nth && Verdict::of_word(verdict.word(0)) as usize == nth);
        nth += 1;
    }
};

/// How a handler ends. The number behind it is the line that said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Verdict {
    /// ENQUEUE accepts the packet, DEQUEUE sends it, SELECT serves the partition; what other handlers end with.
    Pass = 0,
    /// As Pass; the packet was marked.
    Mark = 1,
    /// ENQUEUE, DEQUEUE: the packet goes.
    Drop = 2,
    /// SELECT: the partition goes behind those of its rank, and the next is looked at.
    Next = 3,
    /// SELECT, DEQUEUE: the partition waits until [`word::HOLD`], and the next is looked at.
    Hold = 4,
    /// EMPTY: the partition stays in the order, behind those of its rank.
    Stay = 5,
    /// DEQUEUE: sends, and the partition goes behind those of its rank.
    Rotate = 6,
}

impl Verdict {
    /// All of them, by their number.
    pub const ALL: [Self; 7] =
        [Self::Pass, Self::Mark, Self::Drop, Self::Next, Self::Hold, Self::Stay, Self::Rotate];

    /// The word that a handler ends with.
    #[inline]
    pub const fn word(self, line: u32) -> u64 {
        self as u64 | (line as u64) << 8
    }

    /// The verdict of such a word; what is none is Pass.
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

/// What is computed; operands have the types that the comment says.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Op {
    /// `-> Int`
    Int(i64),
    /// `-> Float`
    Float(f64),
    /// `-> Bool`
    Bool(bool),
    /// A word, of the type that it holds.
    Load(Slot),
    /// `Int, Int -> Int`
    IntBinary(IntOp, Value, Value),
    /// `Int, Int -> Bool`
    IntCompare(IntCmp, Value, Value),
    /// `Float, Float -> Float`
    FloatBinary(FloatOp, Value, Value),
    /// `Float -> Float`
    FloatUnary(FloatUnaryOp, Value),
    /// `Float, Float -> Bool`; false if either is NaN.
    FloatCompare(FloatCmp, Value, Value),
    /// `Int -> Float`
    IntToFloat(Value),
    /// Toward zero, to the nearest that there is; NaN gives 0. `Float -> Int`
    FloatToInt(Value),
    /// `Bool, Bool -> Bool`
    BoolBinary(BoolOp, Value, Value),
    /// `Bool -> Bool`
    Not(Value),
    /// The second if the first is true, else the third. `Bool, T, T -> T`
    Select(Value, Value, Value),
    /// 32 bits of [`weft_core::hash::hash_word`]. `Int -> Int`
    Hash(Value),
    /// 32 bits of [`weft_core::hash::mix`]. `Int, Int -> Int`
    HashMix(Value, Value),
    /// The whole part of the logarithm to the base 2; 0 of what is below 1. `Int -> Int`
    Log2(Value),
}

impl Op {
    /// The values that it reads.
    pub fn operands(&self) -> impl Iterator<Item = Value> {
        let all = match *self {
            Self::Int(_) | Self::Float(_) | Self::Bool(_) | Self::Load(_) => [None; 3],
            Self::FloatUnary(_, a)
            | Self::IntToFloat(a)
            | Self::FloatToInt(a)
            | Self::Not(a)
            | Self::Hash(a)
            | Self::Log2(a) => [Some(a), None, None],
            Self::IntBinary(_, a, b)
            | Self::IntCompare(_, a, b)
            | Self::FloatBinary(_, a, b)
            | Self::FloatCompare(_, a, b)
            | Self::BoolBinary(_, a, b)
            | Self::HashMix(a, b) => [Some(a), Some(b), None],
            Self::Select(a, b, c) => [Some(a), Some(b), Some(c)],
        };
        all.into_iter().flatten()
    }
}

impl Handler {
    /// Operations on its longest path: what one run costs at most.
    pub fn cost(&self) -> u32 {
        longest(&self.body)
    }

    /// A handler that ends at once.
    pub fn pass() -> Self {
        Self { body: vec![Step::End(Verdict::Pass, 0)], types: Vec::new() }
    }
}

fn longest(steps: &[Step]) -> u32 {
    let of = |step: &Step| match step {
        Step::If { then, otherwise, .. } => 1 + longest(then).max(longest(otherwise)),
        _ => 1,
    };
    steps.iter().map(of).sum()
}

impl QueueProgram {
    /// The words of a packet, the last of which belongs to the queue itself.
    pub fn packet_words(&self) -> usize {
        usize::from(word::FIELDS) + self.fields.len() + 1
    }

    /// Whether a handler asks for chance.
    pub fn draws(&self) -> bool {
        let drawn = Slot::new(Scope::Event, word::DRAWN);
        self.levels.iter().any(|level| level.handlers.iter().any(|(_, handler)| handler.stores(drawn)))
    }

    /// Where a packet carries a field.
    pub fn field(&self, field: Field) -> Option<u16> {
        let at = self.fields.iter().position(|known| *known == field)?;
        Some(word::FIELDS + at as u16)
    }

    /// The level whose nodes count partitions: the first that asks for [`Field::Partitions`].
    pub fn counting_level(&self) -> Option<usize> {
        let counts =
            (word::FIELDS..).zip(&self.fields).filter(|(_, field)| matches!(field, Field::Partitions(_)));
        let counts: Vec<Slot> = counts.map(|(at, _)| Slot::new(Scope::Packet, at)).collect();
        let asks = |level: &Level| {
            level.handlers.iter().any(|(_, handler)| counts.iter().any(|at| handler.loads(*at)))
        };
        if counts.is_empty() { None } else { self.levels.iter().position(asks) }
    }

    /// Whether it may let packets wait though the link is free.
    pub fn holds(&self) -> bool {
        self.levels.iter().any(|level| level.handlers.iter().any(|(_, h)| h.may_end_with(Verdict::Hold)))
    }

    /// Operations that a packet costs at most, on its way in and out, if nothing is dropped and no partition waits.
    pub fn cost(&self) -> u32 {
        let of = |level: &Level| -> u32 {
            level.handlers.iter().filter(|(moment, _)| !moment.is_timed()).map(|(_, h)| h.cost()).sum()
        };
        self.levels.iter().map(of).sum()
    }

    /// Bytes that a queue of this program takes at most: its packets without their payload, nodes and partitions.
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

    /// How many packets it can hold: a level as many as its limit lets it, and as all its partitions can.
    pub fn packets_max(&self) -> u32 {
        let mut levels = self.levels.iter().rev();
        let leaf = levels.next().map_or(0, |leaf| leaf.limit.packets_max());
        let of = |below: u64, level: &Level| {
            (below * u64::from(level.partitions.n())).min(level.limit.packets_max())
        };
        levels.fold(leaf, of).min(PACKETS_MAX.into()) as u32
    }
}

/// Code for the handlers of a program. It holds no state.
pub trait QueueCode: core::fmt::Debug + Send + Sync {
    /// Runs a handler of a level, and gives the word that it ended with: [`Verdict::word`], or the number that it gave.
    /// The code does nothing and passes if the program has no such handler.
    ///
    /// # Panics
    /// If there are fewer words than the program has: an error of the caller.
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64;

    /// The same handler to be called without a detour, if there is one.
    fn direct(&self, _level: usize, _moment: Moment) -> Option<direct::Direct> {
        None
    }

    /// The short way of the program, if it has one and that is compiled.
    fn turns(&self) -> Option<round_robin::CompiledRoundRobin> {
        None
    }

    /// How to ask for a line of memory, if the back end knows how.
    fn fetch(&self) -> Option<layout::Fetch> {
        None
    }
}

/// The words of [`Scope::Event`].
pub type EventWords = [u64; word::EVENT_WORDS as usize];

/// The words that a handler works on. There may be more of them behind those that the program has.
#[derive(Debug)]
pub struct Words<'w> {
    /// [`Scope::Node`]
    pub node: &'w mut [u64],
    /// [`Scope::Partition`]; where a moment has none, it may be empty.
    pub partition: &'w mut [u64],
    /// [`Scope::Packet`]; where a moment has none, it may be empty.
    pub packet: &'w mut [u64],
    /// [`Scope::Event`]
    pub event: &'w mut [u64],
}

impl<T: QueueCode + ?Sized> QueueCode for Box<T> {
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        (**self).run(level, moment, words)
    }

    fn direct(&self, level: usize, moment: Moment) -> Option<direct::Direct> {
        (**self).direct(level, moment)
    }

    fn turns(&self) -> Option<round_robin::CompiledRoundRobin> {
        (**self).turns()
    }

    fn fetch(&self) -> Option<layout::Fetch> {
        (**self).fetch()
    }
}

impl<T: QueueCode + ?Sized> QueueCode for Arc<T> {
    fn run(&self, level: usize, moment: Moment, words: Words<'_>) -> u64 {
        (**self).run(level, moment, words)
    }

    fn direct(&self, level: usize, moment: Moment) -> Option<direct::Direct> {
        (**self).direct(level, moment)
    }

    fn turns(&self) -> Option<round_robin::CompiledRoundRobin> {
        (**self).turns()
    }

    fn fetch(&self) -> Option<layout::Fetch> {
        (**self).fetch()
    }
}
