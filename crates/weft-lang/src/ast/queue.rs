//! The syntax tree of queues and links.

use super::{Assign, CheckClause, Expr, Handler, Ident, Param};
use crate::source::Span;

/// `CREATE QUEUE name (params) AS [a EACH USING b;] ... END;`
#[derive(Clone, PartialEq, Debug)]
pub struct Queue {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// Its parameters.
    pub params: Vec<Param>,
    /// The conditions on the parameters.
    pub checks: Vec<CheckClause>,
    /// `a EACH USING b EACH USING c;`: the nested queues, from the root on. Empty for a queue with handlers of its own.
    pub uses: Vec<QueueUse>,
    /// Its declarations.
    pub decls: Vec<QueueDecl>,
    /// Its handlers.
    pub handlers: Vec<QueueHandler>,
    /// Part of the body is omitted because of an error.
    pub is_faulty: bool,
    /// The whole item.
    pub span: Span,
}

/// `queue (param = e, ...)`
#[derive(Clone, PartialEq, Debug)]
pub struct QueueUse {
    /// The queue.
    pub queue: Ident,
    /// Values of its parameters.
    pub args: Vec<Assign>,
    /// The whole.
    pub span: Span,
}

/// A declaration of a queue.
#[derive(Clone, PartialEq, Debug)]
pub enum QueueDecl {
    /// `[PARTITION] VAR name TYPE [= e];`
    Var {
        /// One for each partition.
        per_partition: bool,
        /// Name, type and start.
        var: Param,
        /// The whole.
        span: Span,
    },
    /// `PARTITION BY e [HASH n [WAYS k] | INDEX n];`
    Partition {
        /// The key.
        key: Expr,
        /// How many, and how they are found.
        into: Option<PartitionInto>,
        /// The whole.
        span: Span,
    },
    /// `ORDER PARTITIONS BY rank | MIN(e) [ASC] [BITS n];`
    OrderPartitions {
        /// `rank`, or a call of `MIN`.
        by: Expr,
        /// `BITS n`.
        bits: Option<Expr>,
        /// The whole.
        span: Span,
    },
    /// `ORDER PACKETS BY e [ASC] [BITS n];`
    OrderPackets {
        /// The rank of a packet.
        by: Expr,
        /// `BITS n`.
        bits: Option<Expr>,
        /// The whole.
        span: Span,
    },
    /// `LIMIT n PACKETS, 'size' ON OVERFLOW DROP ...;`
    Limit(QueueLimit),
}

/// `HASH n [WAYS k]` or `INDEX n`
#[derive(Clone, PartialEq, Debug)]
pub enum PartitionInto {
    /// The hash of the key picks one.
    Hash {
        /// The number of partitions.
        n: Expr,
        /// `WAYS k`.
        ways: Option<Expr>,
    },
    /// The key is the index.
    Index {
        /// The number of partitions.
        n: Expr,
    },
}

/// `LIMIT n PACKETS, 'size' ON OVERFLOW DROP HEAD|TAIL [OF PARTITION [ORDER BY e DESC] [UP TO n]];`
#[derive(Clone, PartialEq, Debug)]
pub struct QueueLimit {
    /// `n PACKETS`.
    pub packets: Option<Expr>,
    /// A size.
    pub bytes: Option<Expr>,
    /// `HEAD` and not `TAIL`.
    pub head: bool,
    /// `OF PARTITION`.
    pub of_partition: bool,
    /// `ORDER BY e DESC`.
    pub victim: Option<Expr>,
    /// `UP TO n`.
    pub batch: Option<Expr>,
    /// The whole.
    pub span: Span,
}

/// `ON event statements` of a queue.
pub type QueueHandler = Handler<QueueEvent>;

/// The event that runs a queue's handler.
#[derive(Clone, PartialEq, Debug)]
pub enum QueueEvent {
    /// `ON ENQUEUE`
    Enqueue,
    /// `ON ACTIVATE`
    Activate,
    /// `ON SELECT`
    Select,
    /// `ON DEQUEUE`
    Dequeue,
    /// `ON EMPTY`
    Empty,
    /// `ON EVERY interval [EACH PARTITION]`
    Every {
        /// The period of the timer.
        interval: Expr,
        /// `EACH PARTITION`, if written.
        each_partition: Option<Span>,
    },
}

/// How a handler of a queue ends.
#[derive(Clone, PartialEq, Debug)]
pub enum QueueVerdict {
    /// `ACCEPT`
    Accept,
    /// `SEND`
    Send,
    /// `ROTATE`: sends, and moves the partition behind those of equal rank.
    Rotate,
    /// `NEXT`: moves the partition behind those of equal rank.
    Next,
    /// `STAY`
    Stay,
    /// `SERVE`: the partition is served.
    Serve,
    /// `LEAVE`: removes the partition from the order.
    Leave,
    /// `HOLD UNTIL e`, `HOLD FOR e`
    Hold {
        /// `FOR` and not `UNTIL`.
        is_span: bool,
        /// A point in time, or a duration.
        time: Expr,
    },
    /// `MARK` and `MARK OR DROP`
    Mark {
        /// A packet that cannot be marked is dropped.
        or_drop: bool,
    },
}

/// `CREATE LINK name ON PORT port [INGRESS] [RATE 'r'] QUEUE q (args) [ON FAILURE HOLD];`, and on clusters
/// `CREATE LINK name ON CLUSTER cluster [CONCURRENCY n] [RATE 'r'] [KEY e] [CLASS e] QUEUE q (args);`
#[derive(Clone, PartialEq, Debug)]
pub struct Link {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// The traffic of the link.
    pub on: LinkOn,
    /// `RATE`.
    pub rate: Option<Expr>,
    /// The queue.
    pub queue: QueueUse,
    /// `ON FAILURE HOLD`, `ON FAILURE DROP`
    pub on_failure: Option<OnFailure>,
    /// The whole item.
    pub span: Span,
}

/// The traffic of a link.
#[derive(Clone, PartialEq, Debug)]
pub enum LinkOn {
    /// Packets of a port.
    Port {
        /// The port.
        port: Ident,
        /// It shapes arriving packets, not departing ones.
        ingress: Option<Span>,
    },
    /// Calls from a listener or to a cluster.
    Calls(Box<LinkCalls>),
}

/// `CLUSTER cluster [CONCURRENCY n] [KEY e] [CLASS e]`, or `LISTENER listener` with the same clauses
#[derive(Clone, PartialEq, Debug)]
pub struct LinkCalls {
    /// It is on a listener.
    pub is_listener: bool,
    /// The listener or cluster.
    pub on: Ident,
    /// The maximum number of calls in flight.
    pub concurrency: Option<Expr>,
    /// `KEY`: the key of a flow.
    pub key: Option<Expr>,
    /// `CLASS`: the class of a call.
    pub class: Option<Expr>,
}

/// The behaviour of a link while its port has no device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum OnFailure {
    /// Packets wait until the device is back, up to the queue's limit.
    Hold,
    /// Packets go as they come.
    Drop,
}
