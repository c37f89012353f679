//! Typed queues and links.

use crate::ast::OnFailure;
use crate::source::Span;
use weft_core::Type;
use weft_core::wire::FieldRef;

/// A queue with values for its parameters: the levels of a tree.
#[derive(Clone, Debug, PartialEq)]
pub struct Queue {
    /// Its name.
    pub name: String,
    /// From the root on; at least one.
    pub levels: Vec<QueueLevel>,
    /// The whole item.
    pub span: Span,
}

impl Queue {
    /// The header fields that it reads, without duplicates, at most [`HEADERS_MAX`](crate::check::queue::HEADERS_MAX).
    pub fn headers(&self) -> Vec<&QueueHeader> {
        let mut all: Vec<&QueueHeader> = Vec::new();
        for header in self.levels.iter().flat_map(|level| &level.headers) {
            if !all.iter().any(|known| known.name == header.name) {
                all.push(header);
            }
        }
        all
    }
}

/// A header field that a queue reads.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueHeader {
    /// The field as written: `vlan.id`, `inner.tcp.dst_port`, `present(vlan)`.
    pub name: String,
    /// The field; without a field name, whether the layer is present.
    pub field: FieldRef,
    /// Its type.
    pub ty: Type,
    /// Its first use.
    pub span: Span,
}

/// A level of a queue: one `CREATE QUEUE` without `EACH`.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueLevel {
    /// The name of its definition.
    pub name: String,
    /// The partitions, and the key of a packet; None for a single partition.
    pub partitions: Option<(QueuePartitions, QueueExpr)>,
    /// One of each a node.
    pub vars: Vec<QueueVar>,
    /// One of each a partition.
    pub partition_vars: Vec<QueueVar>,
    /// The width of partition ranks in bits.
    pub rank_bits: Option<u8>,
    /// The expression in `ORDER PARTITIONS BY MIN`.
    pub least: Option<QueueExpr>,
    /// The expression in `ORDER PACKETS BY`, and its width in bits.
    pub packet_rank: Option<(QueueExpr, Option<u8>)>,
    /// The limit.
    pub limit: QueueLimit,
    /// The handlers in source order.
    pub handlers: Vec<QueueHandler>,
    /// The header fields in handlers, keys and ranks.
    pub headers: Vec<QueueHeader>,
    /// The fields by which partitions are counted, as written.
    pub counted: Vec<String>,
    /// The whole item.
    pub span: Span,
    /// A hash of its text and first line number: it identifies the statistics of its lines.
    pub text: u64,
}

/// The partitions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePartitions {
    /// `HASH n WAYS k`
    Hash {
        /// The number of partitions.
        n: u32,
        /// The number of partitions in a set; a key can be in any of its set.
        ways: u32,
    },
    /// `INDEX n`
    Index {
        /// The number of partitions.
        n: u32,
    },
}

/// A variable.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueVar {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: QueueType,
    /// The minimum and the maximum of a whole number.
    pub range: (i64, i64),
    /// How many bits it takes.
    pub bits: u8,
    /// Its value at first.
    pub start: QueueLiteral,
}

/// The types of a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum QueueType {
    /// A truth.
    Bool,
    /// A whole number, signed, 64 bits.
    Number,
    /// A number with a point.
    Float,
    /// Nanoseconds between two times.
    Interval,
    /// Nanoseconds since the queue's epoch.
    Timestamp,
    /// Bytes.
    Size,
}

impl QueueType {
    /// Whether it is stored as a whole number.
    pub fn is_whole(self) -> bool {
        !matches!(self, Self::Bool | Self::Float)
    }
}

impl std::fmt::Display for QueueType {
    /// Its name in the language.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Bool => "BOOL",
            Self::Number => "a whole number",
            Self::Float => "F64",
            Self::Interval => "INTERVAL",
            Self::Timestamp => "TIMESTAMP",
            Self::Size => "SIZE",
        })
    }
}

impl From<Type> for QueueType {
    /// The type of a queue's value with this type. Integers of all widths have the same.
    fn from(ty: Type) -> Self {
        match ty {
            Type::Bool => Self::Bool,
            Type::F64 => Self::Float,
            Type::Size => Self::Size,
            Type::Interval => Self::Interval,
            Type::Timestamp => Self::Timestamp,
            _ => Self::Number,
        }
    }
}

/// A value that is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum QueueLiteral {
    /// Of BOOL.
    Bool(bool),
    /// Of the whole types.
    Int(i64),
    /// Of F64.
    Float(f64),
}

/// The capacity of a node.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueLimit {
    /// Packets.
    pub packets: Option<u32>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// The packets that are dropped on overflow.
    pub overflow: QueueOverflow,
    /// The number of packets dropped at once.
    pub batch: u32,
    /// The line of the clause.
    pub line: u32,
}

/// The packets that a full node drops.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOverflow {
    /// `DROP TAIL`
    Arriving,
    /// `DROP HEAD` or `... OF PARTITION`
    Victim {
        /// The partition that loses a packet.
        of: QueueVictim,
        /// Its head.
        head: bool,
    },
}

/// The partition from which a packet is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueVictim {
    /// The arriving packet's own.
    Own,
    /// The one with the most bytes.
    MostBytes,
    /// The one with the highest rank.
    HighestRank,
}

/// A handler.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueHandler {
    /// The event that runs it.
    pub moment: QueueMoment,
    /// The statements; every path ends with a verdict if the event needs one.
    pub body: Vec<QueueStmt>,
    /// `ON event`.
    pub span: Span,
}

/// The event that runs a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub enum QueueMoment {
    Enqueue,
    Activate,
    Select,
    Dequeue,
    Empty,
    /// By the clock.
    Every {
        /// Every so many nanoseconds.
        interval_ns: u64,
        /// Runs for each partition, not once for the queue.
        each_partition: bool,
    },
}

impl QueueMoment {
    /// Whether it is an ON EVERY event, of which a queue may have several.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every { .. })
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStmt {
    /// The kind.
    pub kind: QueueStmtKind,
    /// The span.
    pub span: Span,
    /// Its line.
    pub line: u32,
}

/// The statements.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueStmtKind {
    /// `LET x = e;`
    Let {
        /// The number of the local in the handler.
        local: usize,
        /// Its value.
        value: QueueExpr,
    },
    /// `SET place = e;`
    Set {
        /// The target.
        place: QueueOperand,
        /// The new value.
        value: QueueExpr,
    },
    /// `IF ... END IF;`
    If {
        /// Conditions and what follows.
        arms: Vec<(QueueExpr, Vec<QueueStmt>)>,
        /// The statements of ELSE.
        otherwise: Vec<QueueStmt>,
    },
    /// The verdict, which ends the handler.
    Verdict(QueueVerdict),
}

/// How a handler ends.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub enum QueueVerdict {
    /// ACCEPT, SEND, SERVE, LEAVE.
    Pass,
    Drop,
    Next,
    Stay,
    Rotate,
    /// Until this time.
    Hold(QueueExpr),
    /// Marks an ECN-capable packet; other packets are dropped or passed.
    Mark {
        or_drop: bool,
    },
}

/// An expression. Arithmetic is total: see the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueExpr {
    /// The kind.
    pub kind: QueueExprKind,
    /// Its type.
    pub ty: QueueType,
    /// The span.
    pub span: Span,
}

/// The expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueExprKind {
    /// A constant.
    Literal(QueueLiteral),
    /// A word.
    Operand(QueueOperand),
    /// A local.
    Local(usize),
    /// An operation on one operand.
    Unary(QueueUnary, Box<QueueExpr>),
    /// A binary operation on operands of equal types, except for shifts.
    Binary(QueueBinary, Box<QueueExpr>, Box<QueueExpr>),
    /// `CASE WHEN ... END`
    Case(Vec<(QueueExpr, QueueExpr)>, Box<QueueExpr>),
    /// `rand()`: the n-th of its handler.
    Rand(u32),
}

/// An operand that is read or written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum QueueOperand {
    /// `now()`
    Now,
    /// `link.rate`
    Rate,
    /// `drops`
    Drops,
    /// `queue.packets`, `partition.packets`
    Packets {
        /// Of the partition.
        of_partition: bool,
    },
    /// `queue.bytes`, `partition.bytes`
    Bytes {
        /// Of the partition.
        of_partition: bool,
    },
    /// `partition.index`
    Index,
    /// `rank`
    Rank,
    /// A variable of the node.
    Var(usize),
    /// A variable of the partition.
    PartitionVar(usize),
    /// `p.arrived`
    Arrived,
    /// `p.len`
    Len,
    /// `p.ecn`
    Ecn,
    /// `p.id`
    Id,
    /// `p.flow` and other fields, by their names.
    Field(String),
    /// `partitions(p.src)`: the number of active partitions whose last packet has the same value: `src`, `dst`,
    /// `class`, or a header field.
    Partitions(Box<Self>),
    /// A header field, or whether a packet has a header: one of [`Queue::headers`], by name.
    Header(String),
}

/// Operations on one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum QueueUnary {
    Not,
    Negate,
    /// A whole number as F64.
    ToFloat,
    /// F64 to a whole number, truncated toward zero.
    ToWhole,
    Floor,
    Ceil,
    Round,
    Sqrt,
    Abs,
    Log2,
    /// 32 bits.
    Hash,
}

/// Operations on two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum QueueBinary {
    And,
    Or,
    Eq,
    Ne,
    Lt,
    Le,
    Add,
    Sub,
    Mul,
    Div,
    Rem,
    Least,
    Greatest,
    BitAnd,
    BitOr,
    BitXor,
    ShiftLeft,
    ShiftRight,
    /// 32 bits.
    HashMix,
}

/// Whose calls wait in a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallsOf {
    /// Calls from this listener, an index into [`super::Network::listeners`].
    Listener(usize),
    /// Calls to this cluster, an index into [`super::Network::clusters`].
    Cluster(usize),
}

/// The flow key of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFlow {
    /// The client's address without its port.
    Host,
    /// The client's connection.
    Session,
    /// A header, by its name.
    Header(String),
}

/// A link for calls, which wait in its queue.
#[derive(Clone, Debug, PartialEq)]
pub struct CallLink {
    /// Its name.
    pub name: String,
    /// The owner of the calls.
    pub of: CallsOf,
    /// The maximum number of calls in flight; None for no limit.
    pub concurrency: Option<u32>,
    /// The minimum time between two calls in nanoseconds; None for no limit.
    pub step_ns: Option<u64>,
    /// The key of a flow.
    pub key: CallFlow,
    /// The header with the class of a call.
    pub class: Option<String>,
    /// The queue of waiting calls.
    pub queue: Queue,
    /// The whole item.
    pub span: Span,
}

/// A link for packets, which wait in its queue at a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// An index into [`super::Network::ports`].
    pub port: usize,
    /// It queues arriving packets, not departing ones.
    pub ingress: bool,
    /// Bits per second; None for the speed of the port.
    pub rate: Option<u64>,
    /// The queue of waiting packets.
    pub queue: Queue,
    /// Its behaviour while the port has no device; None: the node stops.
    pub on_failure: Option<OnFailure>,
    /// The whole item.
    pub span: Span,
}
