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
    /// What it asks of the headers of packets: each once, [`HEADERS_MAX`](crate::check::queue::HEADERS_MAX) at most.
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

/// What a queue asks of the headers of a packet.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueHeader {
    /// As the program writes it: `vlan.id`, `inner.tcp.dst_port`, `present(vlan)`.
    pub name: String,
    /// The field; without one, whether the layer is there.
    pub field: FieldRef,
    /// Its type.
    pub ty: Type,
    /// Where it is asked first.
    pub span: Span,
}

/// A level of a queue: what one `CREATE QUEUE` without `EACH` says.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueLevel {
    /// The queue that it comes from.
    pub name: String,
    /// The partitions and the key of a packet's; None is one partition.
    pub partitions: Option<(QueuePartitions, QueueExpr)>,
    /// One of each a node.
    pub vars: Vec<QueueVar>,
    /// One of each a partition.
    pub partition_vars: Vec<QueueVar>,
    /// Ranks of partitions lie in so many bits.
    pub rank_bits: Option<u8>,
    /// What `ORDER PARTITIONS BY MIN` takes the least of.
    pub least: Option<QueueExpr>,
    /// What `ORDER PACKETS BY` says, and in how many bits it lies.
    pub packet_rank: Option<(QueueExpr, Option<u8>)>,
    /// The limit.
    pub limit: QueueLimit,
    /// The handlers in source order.
    pub handlers: Vec<QueueHandler>,
    /// What they, and the key and the ranks, ask of headers.
    pub headers: Vec<QueueHeader>,
    /// What they count partitions by, as it is written.
    pub counted: Vec<String>,
    /// The whole item.
    pub span: Span,
    /// A hash of its words and of the line in which they begin: what lines of it did is told by that.
    pub text: u64,
}

/// The partitions of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueuePartitions {
    /// `HASH n WAYS k`
    Hash {
        /// How many.
        n: u32,
        /// In how many of them a key may be.
        ways: u32,
    },
    /// `INDEX n`
    Index {
        /// How many.
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
    /// The least and the greatest that it holds, of whole numbers.
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
    /// Its name in the language.
    pub fn name(self) -> &'static str {
        match self {
            Self::Bool => "BOOL",
            Self::Number => "a whole number",
            Self::Float => "F64",
            Self::Interval => "INTERVAL",
            Self::Timestamp => "TIMESTAMP",
            Self::Size => "SIZE",
        }
    }

    /// Whether it is held as a whole number.
    pub fn is_whole(self) -> bool {
        !matches!(self, Self::Bool | Self::Float)
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

/// How much a node holds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct QueueLimit {
    /// Packets.
    pub packets: Option<u32>,
    /// Bytes.
    pub bytes: Option<u64>,
    /// What goes.
    pub overflow: QueueOverflow,
    /// Packets that go at once.
    pub batch: u32,
    /// The line of the clause.
    pub line: u32,
}

/// What goes when a node is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueOverflow {
    /// `DROP TAIL`
    Arriving,
    /// `DROP HEAD` or `... OF PARTITION`
    Victim {
        /// Which partition.
        of: QueueVictim,
        /// Its head.
        head: bool,
    },
}

/// The partition that loses a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueVictim {
    /// That of the packet that comes.
    Own,
    /// That with the most bytes.
    MostBytes,
    /// That of the highest rank.
    HighestRank,
}

/// A handler.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueHandler {
    /// When it runs.
    pub moment: QueueMoment,
    /// What it does; every path ends in a verdict where the moment wants one.
    pub body: Vec<QueueStmt>,
    /// `ON event`.
    pub span: Span,
}

/// When a handler runs.
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
        /// For each partition, and not once for the queue.
        each_partition: bool,
    },
}

impl QueueMoment {
    /// Whether the clock is why it runs: a queue may have several such handlers.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every { .. })
    }
}

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueStmt {
    /// Which.
    pub kind: QueueStmtKind,
    /// Where.
    pub span: Span,
    /// Its line.
    pub line: u32,
}

/// The statements.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueStmtKind {
    /// `LET x = e;`
    Let {
        /// A number of its own in the handler.
        local: usize,
        /// Its value.
        value: QueueExpr,
    },
    /// `SET place = e;`
    Set {
        /// What changes.
        place: QueueOperand,
        /// To what.
        value: QueueExpr,
    },
    /// `IF ... END IF;`
    If {
        /// Conditions and what follows.
        arms: Vec<(QueueExpr, Vec<QueueStmt>)>,
        /// Else.
        otherwise: Vec<QueueStmt>,
    },
    /// How it ends.
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
    /// Marks what can be marked; what cannot is dropped, or passes.
    Mark {
        or_drop: bool,
    },
}

/// An expression. Arithmetic is total: see the reference.
#[derive(Clone, Debug, PartialEq)]
pub struct QueueExpr {
    /// Which.
    pub kind: QueueExprKind,
    /// Its type.
    pub ty: QueueType,
    /// Where.
    pub span: Span,
}

/// The expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum QueueExprKind {
    /// Known.
    Literal(QueueLiteral),
    /// A word.
    Operand(QueueOperand),
    /// A local.
    Local(usize),
    /// Of one.
    Unary(QueueUnary, Box<QueueExpr>),
    /// Of two of equal types, but for the moves of bits.
    Binary(QueueBinary, Box<QueueExpr>, Box<QueueExpr>),
    /// `CASE WHEN ... END`
    Case(Vec<(QueueExpr, QueueExpr)>, Box<QueueExpr>),
    /// `rand()`: the n-th of its handler.
    Rand(u32),
}

/// What is read or written.
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
    /// `partitions(p.src)`: how many are in use whose last packet has the same there: `src`, `dst`, `class`, a header.
    Partitions(Box<Self>),
    /// A field of a header, or whether a packet has one: one of [`Queue::headers`], by its name.
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
    /// F64 to a whole number, toward zero.
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
    /// Those that come by this, an index into [`super::Network::listeners`].
    Listener(usize),
    /// Those that go to this, an index into [`super::Network::clusters`].
    Cluster(usize),
}

/// What makes calls one flow.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallFlow {
    /// The client's address without its port.
    Host,
    /// The client's connection.
    Session,
    /// A header, by its name.
    Header(String),
}

/// A link of calls: they wait until they may go on.
#[derive(Clone, Debug, PartialEq)]
pub struct CallLink {
    /// Its name.
    pub name: String,
    /// Whose.
    pub of: CallsOf,
    /// Calls under way at most; None: any number.
    pub concurrency: Option<u32>,
    /// Nanoseconds between two calls that go on; None: none.
    pub step_ns: Option<u64>,
    /// What tells flows apart.
    pub key: CallFlow,
    /// The header that has the class of a call.
    pub class: Option<String>,
    /// How calls wait.
    pub queue: Queue,
    /// The whole item.
    pub span: Span,
}

/// A link: packets that wait at a port.
#[derive(Clone, Debug, PartialEq)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// An index into [`super::Network::ports`].
    pub port: usize,
    /// It holds up what comes in and not what goes out.
    pub ingress: bool,
    /// Bits a second; None is as fast as the port takes them.
    pub rate: Option<u64>,
    /// How packets wait.
    pub queue: Queue,
    /// What it does while its port has no device; None: the node ends.
    pub on_failure: Option<OnFailure>,
    /// The whole item.
    pub span: Span,
}
