//! The syntax tree of a Weft file: the parsed text, before name resolution and type checking.
//!
//! Every node carries its [`Span`]. Names are kept as written; nothing here is resolved. Conventions:
//!
//! - A construct that can be absent is an `Option`; a marker word such as `MANDATORY` is `Option<Span>`.
//! - Parentheses leave no node. The span of a parenthesised expression includes them.
//! - The height of an expression is at most [`EXPR_HEIGHT_MAX`](weft_core::limits::EXPR_HEIGHT_MAX) and blocks nest at
//!   most [`NESTING_MAX`](weft_core::limits::NESTING_MAX) deep, so trees may be walked by recursion.
//! - Intervals, sizes, addresses and globs are string literals here; the type checker reads them.
//!
//! `format!("{ast:#?}")` prints a tree without its positions, for comparing shapes.

use weft_core::methods::MethodSet;

use crate::source::{FileId, Span};

mod filter;
mod queue;
mod wire;

pub use filter::{
    BackoffClause, BudgetClause, CircuitPolicy, CongestionLaw, CongestionPolicy, Filter, HedgePolicy,
    OutlierPolicy, Policy, PolicyKind, RatePolicy, RatioClause, RetryPolicy,
};

pub use queue::{
    Link, LinkCalls, LinkOn, OnFailure, PartitionInto, Queue, QueueDecl, QueueEvent, QueueHandler,
    QueueLimit, QueueUse, QueueVerdict,
};

pub use wire::{
    EncapSet, Group, GroupChoice, Payload, PayloadChoice, PayloadLength, Port, Protocol, ProtocolClause,
    ProtocolUnion, SwitchArm, UnionColumn, WireField, WireItem, WireRule, WireRuleKind, WireUntil, WireWidth,
};

/// One parsed file.
#[derive(Clone, PartialEq, Debug)]
pub struct Ast {
    /// The file.
    pub file: FileId,
    /// Top-level items in source order. Items with an error are omitted. Elements and chains with an error in their
    /// body are kept without the faulty part, with `is_faulty` set.
    pub items: Vec<Item>,
    /// An omitted item may declare a name that elements use.
    pub misses_declarations: bool,
}

/// A name as written. `"quoted"` names come without their quotes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ident {
    /// The name, in the case it was written.
    pub name: String,
    /// The span.
    pub span: Span,
}

/// A dotted name: `a`, `input.user.id`. Never empty.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Path {
    /// The parts, at least one.
    pub segments: Vec<Ident>,
    /// From the first part to the last.
    pub span: Span,
}

impl Path {
    /// The only segment of an undotted name.
    pub fn as_ident(&self) -> Option<&Ident> {
        match self.segments.as_slice() {
            [only] => Some(only),
            _ => None,
        }
    }

    /// The parts joined with dots.
    pub fn to_dotted(&self) -> String {
        let names: Vec<&str> = self.segments.iter().map(|segment| segment.name.as_str()).collect();
        names.join(".")
    }
}

/// A single-quoted string, unescaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct StrLit {
    /// The text between the quotes, `''` read as `'`.
    pub value: String,
    /// With the quotes.
    pub span: Span,
}

// ---- top level -------------------------------------------------------------------------------------------------

/// A top-level item.
#[derive(Clone, PartialEq, Debug)]
pub enum Item {
    /// `IMPORT 'path';`
    Import(Import),
    /// `CREATE TYPE name FROM PROTO 'file';`
    Type(TypeItem),
    /// `CREATE TABLE ...;` shared by elements.
    Table(Table),
    /// `CREATE ELEMENT ... END;`
    Element(Element),
    /// `CREATE FILTER ... END;`
    Filter(Filter),
    /// `CREATE CHAIN ... END;`
    Chain(Chain),
    /// `CREATE LISTENER ...;`
    Listener(Listener),
    /// `CREATE CLUSTER ...;`
    Cluster(Cluster),
    /// `CREATE ROUTE ...;`
    Route(Route),
    /// `CREATE FUNCTION ... AS NATIVE ...;`
    Function(FunctionItem),
    /// `CREATE PROTOCOL name (...) ...;`
    Protocol(Protocol),
    /// `CREATE PROTOCOL name ANY OF ...;`
    Union(ProtocolUnion),
    /// `CREATE PORT ...;`
    Port(Port),
    /// `CREATE GROUP ...;`
    Group(Group),
    /// `CREATE QUEUE ... END;`
    Queue(Queue),
    /// `CREATE LINK ...;`
    Link(Link),
    /// `DROP kind name;`
    Drop(DropItem),
    /// `INSERT INTO chain.instance.table VALUES (...);`
    Insert(InsertRows),
}

impl Item {
    /// The whole item, with its last `;`.
    pub fn span(&self) -> Span {
        match self {
            Self::Import(item) => item.span,
            Self::Type(item) => item.span,
            Self::Table(item) => item.span,
            Self::Element(item) => item.span,
            Self::Filter(item) => item.span,
            Self::Chain(item) => item.span,
            Self::Listener(item) => item.span,
            Self::Cluster(item) => item.span,
            Self::Route(item) => item.span,
            Self::Function(item) => item.span,
            Self::Protocol(item) => item.span,
            Self::Union(item) => item.span,
            Self::Port(item) => item.span,
            Self::Group(item) => item.span,
            Self::Queue(item) => item.span,
            Self::Link(item) => item.span,
            Self::Drop(item) => item.span,
            Self::Insert(item) => item.span,
        }
    }
}

/// The kinds that this version creates and drops.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// A message schema.
    Type,
    /// A shared table.
    Table,
    /// An element.
    Element,
    /// A filter.
    Filter,
    /// A chain.
    Chain,
    /// A listener.
    Listener,
    /// A cluster.
    Cluster,
    /// A route.
    Route,
    /// A native function.
    Function,
    /// A wire format, or a name for several.
    Protocol,
    /// Where frames come in and go out.
    Port,
    /// A group of ports.
    Group,
    /// A queue program.
    Queue,
    /// The output queue of a port, or the queue of a cluster's calls, with an optional rate.
    Link,
}

/// `IMPORT 'path';`
#[derive(Clone, PartialEq, Debug)]
pub struct Import {
    /// The path as written; a resolver supplies the text.
    pub path: StrLit,
    /// The whole item.
    pub span: Span,
}

/// `CREATE TYPE name FROM PROTO 'file' IN 'root', ...;` or `CREATE TYPE name FROM DESCRIPTORS 'file';`
#[derive(Clone, PartialEq, Debug)]
pub struct TypeItem {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// The name of the schema.
    pub name: Ident,
    /// The kind of the file.
    pub source: SchemaKind,
    /// The file.
    pub path: StrLit,
    /// The root folders for the `.proto` file and its imports; empty if none are given.
    pub roots: Vec<StrLit>,
    /// The whole item.
    pub span: Span,
}

/// The source of a schema.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SchemaKind {
    /// A `.proto` file and its imports.
    Proto,
    /// A descriptor set, as `protoc --include_imports --descriptor_set_out` writes it.
    Descriptors,
}

/// `DROP kind name;`
#[derive(Clone, PartialEq, Debug)]
pub struct DropItem {
    /// The kind of the dropped object.
    pub kind: Kind,
    /// Its name.
    pub name: Ident,
    /// The whole item.
    pub span: Span,
}

/// `INSERT INTO a.b.c (cols) VALUES (...), (...);`: rows for a table filled by the controller.
#[derive(Clone, PartialEq, Debug)]
pub struct InsertRows {
    /// `table`, or `chain.instance.table`.
    pub table: Path,
    /// The listed columns; empty if the list is omitted, which means all columns in order.
    pub columns: Vec<Ident>,
    /// The rows, at least one.
    pub rows: Vec<Row>,
    /// The whole item.
    pub span: Span,
}

/// `(e, e, ...)` after `VALUES`.
#[derive(Clone, PartialEq, Debug)]
pub struct Row {
    /// The values in order.
    pub values: Vec<Expr>,
    /// With the parentheses.
    pub span: Span,
}

/// `CREATE LISTENER name ON protocol 'address' [WITH (option = value, ...)];`
#[derive(Clone, PartialEq, Debug)]
pub struct Listener {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// `tcp`, `unix`, ...; a word, not checked here.
    pub protocol: Ident,
    /// The address to bind.
    pub address: StrLit,
    /// `WITH (...)`.
    pub options: Vec<Assign>,
    /// The whole item.
    pub span: Span,
}

/// `CREATE CLUSTER name TO 'endpoint' [WEIGHT 3], ... [USING balance] [WITH (...)];`
#[derive(Clone, PartialEq, Debug)]
pub struct Cluster {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// `'host:port'` or `'unix:/path'`, at least one, each with its optional `WEIGHT`.
    pub endpoints: Vec<(StrLit, Option<Expr>)>,
    /// `USING ...`.
    pub balance: Option<BalanceClause>,
    /// `WITH (...)`.
    pub options: Vec<Assign>,
    /// The whole item.
    pub span: Span,
}

/// `USING ROUND ROBIN | LEAST REQUEST | RANDOM`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BalanceClause {
    /// The balancing policy.
    pub balance: Balance,
    /// The clause.
    pub span: Span,
}

/// How a cluster picks an endpoint.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Balance {
    /// One after the other.
    RoundRobin,
    /// The one with the fewest requests in flight.
    LeastRequest,
    /// A random endpoint.
    Random,
}

/// `CREATE ROUTE name ON listener [METHOD [NOT] 'pattern', ...] [WHEN e] TO CLUSTER name;`
#[derive(Clone, PartialEq, Debug)]
pub struct Route {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// The listener.
    pub listener: Ident,
    /// `METHOD ...`.
    pub method: Option<MethodClause>,
    /// `WHEN e`.
    pub when: Option<Expr>,
    /// The cluster.
    pub cluster: Ident,
    /// The whole item.
    pub span: Span,
}

/// `METHOD [NOT] 'pattern', ...`
#[derive(Clone, PartialEq, Debug)]
pub struct MethodClause {
    /// `NOT` was written.
    pub negated: bool,
    /// The patterns, at least one.
    pub patterns: Vec<StrLit>,
    /// The whole clause.
    pub span: Span,
}

impl MethodClause {
    /// The methods that it matches.
    pub fn methods(&self) -> MethodSet {
        let set = MethodSet::of(self.patterns.iter().map(|pattern| &*pattern.value));
        if self.negated { set.negated() } else { set }
    }
}

// ---- chains ----------------------------------------------------------------------------------------------------

/// `CREATE CHAIN name ON edge AS stages; option; ... END;`
#[derive(Clone, PartialEq, Debug)]
pub struct Chain {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// The traffic it sees.
    pub on: ChainOn,
    /// The stages in written order; empty for a chain without stages.
    pub stages: Vec<StageNode>,
    /// Options in written order.
    pub options: Vec<ChainOption>,
    /// Part of the body is omitted because of an error, so a missing name may be declared there.
    pub is_faulty: bool,
    /// The whole item.
    pub span: Span,
}

/// The traffic of a chain.
#[derive(Clone, PartialEq, Debug)]
pub enum ChainOn {
    /// `ON from -> to [METHOD [NOT] 'pattern', ...]`
    Edge {
        /// A listener or a service.
        from: Ident,
        /// A cluster or a service.
        to: Ident,
        /// `METHOD ...`.
        method: Option<MethodClause>,
        /// After `ON`.
        span: Span,
    },
    /// `ON PORT a, b [-> c] [WHEN e]`
    Port {
        /// The ports, at least one.
        ports: Vec<Ident>,
        /// The output port or group of frames that no element redirects.
        to: Option<Ident>,
        /// `WHEN e`.
        when: Option<Expr>,
        /// After `ON`.
        span: Span,
    },
}

/// One step of a chain.
#[derive(Clone, PartialEq, Debug)]
pub enum StageNode {
    /// One instance.
    One(Stage),
    /// `{a, b, c}`: in any order that policies and analysis allow.
    Group {
        /// The members.
        stages: Vec<Stage>,
        /// With the braces.
        span: Span,
    },
}

/// `element [(args)] [AS instance] [AT CLIENT|SERVER] [MANDATORY] [PER TRY]`
#[derive(Clone, PartialEq, Debug)]
pub struct Stage {
    /// The element or filter.
    pub element: Ident,
    /// Parameters and bindings.
    pub args: Vec<StageArg>,
    /// `AS instance`; without it the instance has the element's name.
    pub instance: Option<Ident>,
    /// `AT CLIENT|SERVER`.
    pub side: Option<SideClause>,
    /// `MANDATORY`.
    pub mandatory: Option<Span>,
    /// `PER TRY`.
    pub per_try: Option<Span>,
    /// The stage.
    pub span: Span,
}

/// One argument of a stage.
#[derive(Clone, PartialEq, Debug)]
pub enum StageArg {
    /// `param = e`
    Param(Assign),
    /// `column := e`
    Bind {
        /// The element's column.
        column: Ident,
        /// A field of the message, or an expression over fields.
        value: Expr,
        /// The argument.
        span: Span,
    },
}

/// `AT CLIENT|SERVER`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SideClause {
    /// The side.
    pub side: Side,
    /// The clause.
    pub span: Span,
}

/// The end of the edge at which a stage must run.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// Beside the caller.
    Client,
    /// Beside the callee.
    Server,
}

/// One option of a chain.
#[derive(Clone, PartialEq, Debug)]
pub struct ChainOption {
    /// The kind.
    pub kind: ChainOptionKind,
    /// Without the `;`.
    pub span: Span,
}

/// The options of a chain.
#[derive(Clone, PartialEq, Debug)]
pub enum ChainOptionKind {
    /// `EQUIVALENCE level`
    Equivalence {
        /// `strict`, `observable`, ...; a word, not checked here.
        level: Ident,
    },
    /// `PIN STREAM DRAIN 'interval'`
    PinStream {
        /// How long old streams may stay on the old version.
        drain: Expr,
    },
    /// `FAIL OPEN`
    FailOpen,
    /// `ORDER a BEFORE b`
    Order {
        /// The instance that runs first.
        first: Ident,
        /// The instance that runs later.
        second: Ident,
    },
    /// `PRIORITY a > b`
    Priority {
        /// The instance that may run before `lower`, even if a rule forbids it.
        higher: Ident,
        /// The other instance.
        lower: Ident,
    },
    /// `POSITION a FIRST|LAST`
    Position {
        /// The instance.
        instance: Ident,
        /// True for `LAST`, false for `FIRST`.
        is_last: bool,
    },
    /// `ON FAILURE OF a BYPASS`
    BypassOnFailure {
        /// The instance.
        instance: Ident,
    },
    /// `det.suspect -> sandbox -> ...`: the stages after an element's edge.
    Branch {
        /// The instance and its edge.
        from: Path,
        /// The stages on that edge, at least one.
        stages: Vec<StageNode>,
    },
}

// ---- elements --------------------------------------------------------------------------------------------------

/// `CREATE ELEMENT name [(params [, CHECK (e)])] ON layer [(fields)] [RETURNS (fields)] AS decls handlers END;`
#[derive(Clone, PartialEq, Debug)]
pub struct Element {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// Parameters, bound at each stage.
    pub params: Vec<Param>,
    /// `CHECK (e)` among them, in order.
    pub checks: Vec<CheckClause>,
    /// `rpc`, `http`, `tcp`, ...; a word, not checked here.
    pub layer: Ident,
    /// The request columns that the element uses.
    pub fields: Vec<Field>,
    /// The response columns that the element uses.
    pub returns: Vec<Field>,
    /// Declarations in source order.
    pub decls: Vec<Decl>,
    /// Handlers in source order.
    pub handlers: Vec<Handler>,
    /// Part of the body is omitted because of an error, so a missing name may be declared there.
    pub is_faulty: bool,
    /// The whole item.
    pub span: Span,
}

/// `name TYPE [= default]`: a parameter, or a column of the call's row.
#[derive(Clone, PartialEq, Debug)]
pub struct Param {
    /// Its name.
    pub name: Ident,
    /// The type; for a function parameter, the type of its result.
    pub ty: TypeExpr,
    /// `FUNCTION (types) RETURNS type`: the parameter takes a function.
    pub function: Option<FunctionType>,
    /// `= e`.
    pub default: Option<Expr>,
    /// The whole.
    pub span: Span,
}

/// `CREATE FUNCTION name (types) RETURNS type AS NATIVE 'name' [WITH (options)]`, with `INVERSE OF f`, `EFFECT word`
/// and `COST e` before or after `AS NATIVE`.
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionItem {
    /// `OR REPLACE` was written.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// The types of parameters and result.
    pub ty: FunctionType,
    /// The native function's name, not checked here.
    pub native: StrLit,
    /// `WITH (option = e, ...)`, not checked here.
    pub options: Vec<Assign>,
    /// `INVERSE OF f`.
    pub inverse_of: Option<Ident>,
    /// `EFFECT word`, and where.
    pub effect: Option<(FunctionEffect, Span)>,
    /// `COST e`, in nanoseconds.
    pub cost: Option<Expr>,
    /// The whole item.
    pub span: Span,
}

/// `(TYPE, ...) RETURNS TYPE`
#[derive(Clone, PartialEq, Debug)]
pub struct FunctionType {
    /// The types of the parameters.
    pub params: Vec<TypeExpr>,
    /// The type of the result.
    pub returns: TypeExpr,
    /// The whole.
    pub span: Span,
}

/// The word of an `EFFECT` clause.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub enum FunctionEffect {
    Pure,
    Random,
    Clock,
}

/// `name TYPE`
#[derive(Clone, PartialEq, Debug)]
pub struct Field {
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: TypeExpr,
    /// The whole.
    pub span: Span,
}

/// A type as written.
#[derive(Clone, PartialEq, Debug)]
pub struct TypeExpr {
    /// The kind.
    pub kind: TypeKind,
    /// `?` was written.
    pub nullable: bool,
    /// With the `?`.
    pub span: Span,
}

/// The types of the language. `INT` is read as `I64`.
#[derive(Clone, PartialEq, Debug)]
pub enum TypeKind {
    /// `BOOL`
    Bool,
    /// `I8`
    I8,
    /// `I16`
    I16,
    /// `I32`
    I32,
    /// `I64`, `INT`
    I64,
    /// `U1`
    U1,
    /// `U8`
    U8,
    /// `U16`
    U16,
    /// `U32`
    U32,
    /// `U64`
    U64,
    /// `F64`
    F64,
    /// `TEXT`, `TEXT(n)` with `n` in bytes
    Text(Option<u32>),
    /// `BYTES`, `BYTES(n)` with `n` in bytes
    Bytes(Option<u32>),
    /// `SIZE`
    Size,
    /// `INTERVAL`
    Interval,
    /// `TIMESTAMP`
    Timestamp,
    /// `IPADDR`
    IpAddr,
    /// `CIDR`
    Cidr,
    /// `MAC`
    Mac,
    /// `ENDPOINT`
    Endpoint,
    /// `STATUS`
    Status,
    /// Any other name, such as an enum of a protobuf file.
    Named(Path),
}

/// A declaration of an element.
#[derive(Clone, PartialEq, Debug)]
#[expect(
    clippy::large_enum_variant,
    reason = "an element has a handful of these; a box would only be in the way"
)]
pub enum Decl {
    /// `TABLE name (...) options;`
    Table(Table),
    /// `VAR name TYPE ...;`
    Var(Var),
    /// `CALL (...);`
    Call(CallRow),
    /// `SINK name (...) TO ...;`
    Sink(Sink),
    /// `SKETCH name (...) ...;`
    Sketch(Sketch),
    /// `EDGE name;`
    Edge(Edge),
}

impl Decl {
    /// The whole declaration.
    pub fn span(&self) -> Span {
        match self {
            Self::Table(decl) => decl.span,
            Self::Var(decl) => decl.span,
            Self::Call(decl) => decl.span,
            Self::Sink(decl) => decl.span,
            Self::Sketch(decl) => decl.span,
            Self::Edge(decl) => decl.span,
        }
    }
}

/// `TABLE name (columns [, PRIMARY KEY (a, b)] [, CHECK (e)]) options`
#[derive(Clone, PartialEq, Debug)]
pub struct Table {
    /// `OR REPLACE` was written; only at top level.
    pub or_replace: bool,
    /// Its name.
    pub name: Ident,
    /// Columns in order, at least one.
    pub columns: Vec<Column>,
    /// `PRIMARY KEY (a, b)` after the columns.
    pub key: Option<KeyClause>,
    /// `CHECK (e)` among the columns, in order.
    pub checks: Vec<CheckClause>,
    /// Options in written order, repetitions included.
    pub options: Vec<TableOption>,
    /// The whole.
    pub span: Span,
}

/// `CHECK (e)`: a condition on every row, or on the parameters of every stage.
#[derive(Clone, PartialEq, Debug)]
pub struct CheckClause {
    /// The condition.
    pub condition: Expr,
    /// The whole.
    pub span: Span,
}

/// `name TYPE [PRIMARY KEY] [= default] [MERGE SUM|MAX|MIN]`
#[derive(Clone, PartialEq, Debug)]
pub struct Column {
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: TypeExpr,
    /// `PRIMARY KEY`.
    pub primary_key: Option<Span>,
    /// `= e`.
    pub default: Option<Expr>,
    /// `MERGE ...`.
    pub merge: Option<MergeClause>,
    /// The whole.
    pub span: Span,
}

/// `PRIMARY KEY (a, b)`
#[derive(Clone, PartialEq, Debug)]
pub struct KeyClause {
    /// The columns, at least one.
    pub columns: Vec<Ident>,
    /// The clause.
    pub span: Span,
}

/// `MERGE SUM|MAX|MIN`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MergeClause {
    /// The merge operation.
    pub merge: Merge,
    /// The clause.
    pub span: Span,
}

/// How the copies of a merged value combine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Merge {
    /// Add.
    Sum,
    /// Take the greatest.
    Max,
    /// Take the least.
    Min,
}

/// One option of a table.
#[derive(Clone, PartialEq, Debug)]
pub struct TableOption {
    /// The kind.
    pub kind: TableOptionKind,
    /// The option.
    pub span: Span,
}

/// From when the age of a row counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Since {
    /// The last write.
    Write,
    /// `ON ACCESS`: counts from the last read or write.
    Access,
    /// `ON INSERT`: counts from the insertion, regardless of later reads and writes.
    Insert,
}

/// The options of a table.
#[derive(Clone, PartialEq, Debug)]
pub enum TableOptionKind {
    /// `TTL e [ON ACCESS | ON INSERT]`
    Ttl {
        /// An interval.
        interval: Expr,
        /// From when age counts.
        since: Since,
    },
    /// `MAX n ROWS [EVICT ...]`
    Max {
        /// The most rows.
        rows: Expr,
        /// `EVICT ...`.
        evict: Option<EvictClause>,
    },
    /// `FILLED BY ...`; for `STAGE`, with the element.
    Filled(Filler, Option<Ident>),
    /// `PER WORKER`
    PerWorker,
}

/// The source of a table's rows, if no handler writes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Filler {
    /// `CONTROLLER`: the program, and clients that change rows of a running node.
    Controller,
    /// `CLUSTER`: the members of the chain's cluster.
    Cluster,
    /// `PORTS`: the ports of the program.
    Ports,
    /// `STAGE element`: the table of the same name in another stage of the chain.
    Stage,
}

impl Filler {
    /// How such a table is declared.
    pub fn clause(self) -> &'static str {
        match self {
            Self::Controller => "FILLED BY CONTROLLER",
            Self::Cluster => "FILLED BY CLUSTER",
            Self::Ports => "FILLED BY PORTS",
            Self::Stage => "FILLED BY STAGE",
        }
    }

    /// Its description in messages.
    pub fn in_words(self) -> &'static str {
        match self {
            Self::Controller => "the controller",
            Self::Cluster => "the cluster",
            Self::Ports => "the node",
            Self::Stage => "another stage",
        }
    }
}

/// `EVICT OLDEST|LRU|REJECT`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EvictClause {
    /// The eviction policy.
    pub evict: Evict,
    /// The clause.
    pub span: Span,
}

/// The action of a full table on insertion of another row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Evict {
    /// Evicts the least recently written row.
    Oldest,
    /// Evicts the least recently used row.
    Lru,
    /// The insert fails.
    Reject,
}

/// `VAR name TYPE [= e] [MERGE ...];`
#[derive(Clone, PartialEq, Debug)]
pub struct Var {
    /// Its name.
    pub name: Ident,
    /// Its type.
    pub ty: TypeExpr,
    /// `= e`.
    pub initial: Option<Expr>,
    /// `MERGE ...`.
    pub merge: Option<MergeClause>,
    /// The whole.
    pub span: Span,
}

/// `CALL (col TYPE = e, ...);`: one row a call.
#[derive(Clone, PartialEq, Debug)]
pub struct CallRow {
    /// The columns, at least one.
    pub columns: Vec<Param>,
    /// The whole.
    pub span: Span,
}

/// `SINK name (col TYPE, ...) TO target [FORMAT JSON|TEXT];`
#[derive(Clone, PartialEq, Debug)]
pub struct Sink {
    /// Its name.
    pub name: Ident,
    /// The columns of a row, at least one.
    pub columns: Vec<Field>,
    /// The destination of the rows.
    pub target: SinkTarget,
    /// `FORMAT ...`.
    pub format: Option<SinkFormatClause>,
    /// The whole.
    pub span: Span,
}

/// The destination of a sink's rows.
#[derive(Clone, PartialEq, Debug)]
pub enum SinkTarget {
    /// `TO FILE e`; `e` may be a parameter.
    File(Expr),
    /// `TO STDOUT`
    Stdout,
    /// `TO METRICS`
    Metrics,
    /// `TO TABLE name [DELETE]`
    Table {
        /// The table.
        name: Ident,
        /// The rows with these keys are deleted, not inserted.
        deletes: bool,
    },
}

/// `FORMAT JSON|TEXT`
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SinkFormatClause {
    /// The format.
    pub format: SinkFormat,
    /// The clause.
    pub span: Span,
}

/// How a sink writes a row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SinkFormat {
    /// One object a line.
    Json,
    /// Columns separated by spaces.
    Text,
}

/// `SKETCH name (key) COUNT | SUM e [TOP k] HALF LIFE d | WINDOW d [ERROR p [PERCENT]];`
#[derive(Clone, PartialEq, Debug)]
pub struct Sketch {
    /// Its name.
    pub name: Ident,
    /// The key, at least one expression.
    pub key: Vec<Expr>,
    /// The summed expression; `None` for `COUNT`.
    pub sum: Option<Expr>,
    /// `TOP k`.
    pub top: Option<Expr>,
    /// The decay of old values.
    pub decay: SketchDecay,
    /// `ERROR p PERCENT`.
    pub error_percent: Option<Expr>,
    /// The whole.
    pub span: Span,
}

/// The decay of old values in a sketch.
#[derive(Clone, PartialEq, Debug)]
pub enum SketchDecay {
    /// `HALF LIFE d`
    HalfLife(Expr),
    /// `WINDOW d`
    Window(Expr),
}

/// `EDGE name;`
#[derive(Clone, PartialEq, Debug)]
pub struct Edge {
    /// Its name.
    pub name: Ident,
    /// The whole.
    pub span: Span,
}

/// `ON event statements`
#[derive(Clone, PartialEq, Debug)]
pub struct Handler {
    /// The event that runs it.
    pub event: Event,
    /// `ON event`.
    pub event_span: Span,
    /// The statements.
    pub body: Vec<Stmt>,
    /// The whole.
    pub span: Span,
}

/// The event that runs a handler.
#[derive(Clone, PartialEq, Debug)]
pub enum Event {
    /// `ON OPEN`
    Open,
    /// `ON REQUEST`
    Request,
    /// `ON RESPONSE`
    Response,
    /// `ON CLOSE`
    Close,
    /// `ON ERROR`
    Error,
    /// `ON MESSAGE`
    Message,
    /// `ON PACKET`
    Packet,
    /// `ON EVERY interval`
    Every(Expr),
    /// `ON TIMEOUT OF table`
    Timeout(Ident),
    /// `ON EVICT OF table`
    Evict(Ident),
    /// `ON SIGNAL name [(col TYPE, ...)]`
    Signal {
        /// The signal.
        name: Ident,
        /// The fields of a signal.
        fields: Vec<Field>,
    },
}

// ---- statements ------------------------------------------------------------------------------------------------

/// A statement.
#[derive(Clone, PartialEq, Debug)]
pub struct Stmt {
    /// The kind.
    pub kind: StmtKind,
    /// With its `;`.
    pub span: Span,
}

/// The statements.
#[derive(Clone, PartialEq, Debug)]
pub enum StmtKind {
    /// `LET x [TYPE] = e;`
    Let {
        /// The new name.
        name: Ident,
        /// Its type, if written.
        ty: Option<TypeExpr>,
        /// Its value.
        value: Expr,
    },
    /// `SET place = e;`
    Set {
        /// The target.
        target: AssignTarget,
        /// The new value.
        value: Expr,
    },
    /// `IF e THEN ... ELSIF ... ELSE ... END IF;`
    If {
        /// `IF` and each `ELSIF`, at least one.
        arms: Vec<IfArm>,
        /// `ELSE`.
        otherwise: Option<Vec<Stmt>>,
    },
    /// `[INSERT INTO output] SELECT ... FROM input ... [ELSE verdict];`
    Guard(Guard),
    /// `INSERT INTO t ...;` into a table or a sink.
    Insert(Insert),
    /// `UPSERT t KEY (...) SET ...;`
    Upsert(Upsert),
    /// `UPDATE t SET ... WHERE ... ;`
    Update(Update),
    /// `DELETE FROM t WHERE e;`
    Delete {
        /// The table.
        table: Ident,
        /// The condition on rows.
        filter: Expr,
    },
    /// `SCAN t MAX n ... END SCAN;`
    Scan(Scan),
    /// `ADD x [, n];` on a merged variable, or on a sketch.
    Add {
        /// The variable or sketch.
        target: Ident,
        /// How much; 1 if left out.
        amount: Option<Expr>,
    },
    /// `RESET x;`
    Reset {
        /// The variable.
        target: Ident,
    },
    /// `MIRROR TO e;`
    Mirror {
        /// The destination of the copy.
        to: Expr,
    },
    /// `MARK (f = e, ...);`, or `MARK e;`, which sets the class.
    Mark {
        /// The fields and their values.
        fields: Vec<Assign>,
    },
    /// `DELAY e;`
    Delay {
        /// The duration of the delay.
        interval: Expr,
    },
    /// `SIGNAL name(args);`
    Signal {
        /// The signal.
        name: Ident,
        /// The arguments.
        args: Vec<Expr>,
    },
    /// `MESSAGE [TO e] (f = e, ...);`: sends an additional message.
    Message {
        /// The destination; if omitted, that of the tuple.
        to: Option<Expr>,
        /// Its fields.
        fields: Vec<Assign>,
    },
    /// `PUSH p (f = e, ...), q, ...;`
    Push {
        /// The headers to push, in wire order.
        headers: Vec<Pushed>,
    },
    /// `POP;`, `POP layer;` or `POP TO layer;`
    Pop {
        /// `TO` is written.
        to: bool,
        /// The layer.
        layer: Option<Path>,
    },
    /// `CUT TO e;`
    Cut {
        /// How many bytes of the frame stay.
        bytes: Expr,
    },
    /// `FRAGMENT TO e;`
    Fragment {
        /// How long each packet is at most.
        bytes: Expr,
    },
    /// A verdict, which ends the handler.
    Verdict(Verdict),
    /// A verdict of a queue.
    QueueVerdict(QueueVerdict),
}

/// The field that `MARK e;` sets.
pub const MARK_CLASS: &str = "class";

/// A header of a PUSH: `p (f = e, ...)`
#[derive(Clone, PartialEq, Debug)]
pub struct Pushed {
    /// The protocol.
    pub protocol: Ident,
    /// The fields that are set.
    pub fields: Vec<Assign>,
    /// The whole.
    pub span: Span,
}

/// `IF e THEN ...` or `ELSIF e THEN ...`
#[derive(Clone, PartialEq, Debug)]
pub struct IfArm {
    /// The condition.
    pub condition: Expr,
    /// The statements.
    pub body: Vec<Stmt>,
    /// From the keyword to the last statement.
    pub span: Span,
}

/// A target of `SET` and `WITH`.
#[derive(Clone, PartialEq, Debug)]
pub enum AssignTarget {
    /// A column of the message, a CALL column, or a variable.
    Path(Path),
    /// `header['key']`
    Header {
        /// The key.
        key: Expr,
        /// The whole.
        span: Span,
    },
    /// `trailer['key']`
    Trailer {
        /// The key.
        key: Expr,
        /// The whole.
        span: Span,
    },
}

impl AssignTarget {
    /// The whole place.
    pub fn span(&self) -> Span {
        match self {
            Self::Path(path) => path.span,
            Self::Header { span, .. } | Self::Trailer { span, .. } => *span,
        }
    }
}

/// `name = e`
#[derive(Clone, PartialEq, Debug)]
pub struct Assign {
    /// The name.
    pub name: Ident,
    /// Its value.
    pub value: Expr,
    /// The whole.
    pub span: Span,
}

/// `place = e` after `ABORT ... WITH`.
#[derive(Clone, PartialEq, Debug)]
pub struct WithItem {
    /// The target.
    pub target: AssignTarget,
    /// The new value.
    pub value: Expr,
    /// The whole.
    pub span: Span,
}

/// `[INSERT INTO output] SELECT ... FROM input ... [ELSE verdict]`
#[derive(Clone, PartialEq, Debug)]
pub struct Guard {
    /// `INSERT INTO output`, the form of the ADN paper.
    pub into_output: Option<Span>,
    /// The query, of one row at most.
    pub select: Select,
    /// The action if there is no row.
    pub otherwise: Option<Verdict>,
}

/// `SELECT items FROM input joins [WHERE e]`
#[derive(Clone, PartialEq, Debug)]
pub struct Select {
    /// The selected items, at least one.
    pub items: Vec<SelectItem>,
    /// Joins in order.
    pub joins: Vec<Join>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// The query.
    pub span: Span,
}

/// One item of a `SELECT`.
#[derive(Clone, PartialEq, Debug)]
pub enum SelectItem {
    /// `*`
    Star(Span),
    /// `e [AS name]`
    Value {
        /// The value.
        value: Expr,
        /// `AS name`.
        alias: Option<Ident>,
    },
}

/// `[LEFT] JOIN t [alias] USING (cols) | ON e`, or `[LEFT] JOIN FIRST t [alias] BY c [ASC | DESC] ON e`
#[derive(Clone, PartialEq, Debug)]
pub struct Join {
    /// `LEFT`.
    pub left: Option<Span>,
    /// The table.
    pub table: Ident,
    /// Its name here.
    pub alias: Option<Ident>,
    /// `FIRST ... BY c`.
    pub first: Option<First>,
    /// The condition on which rows match.
    pub condition: JoinCondition,
    /// The whole.
    pub span: Span,
}

/// `FIRST` and `BY c [ASC | DESC]`: of the matching rows, the one with the best `c`.
#[derive(Clone, PartialEq, Debug)]
pub struct First {
    /// The column.
    pub by: Ident,
    /// `DESC`: the greatest is the best.
    pub descending: bool,
}

/// How the rows of a join meet.
#[derive(Clone, PartialEq, Debug)]
pub enum JoinCondition {
    /// `USING (a, b)`
    Using(Vec<Ident>),
    /// `ON e`
    On(Expr),
}

/// `INSERT INTO t [(cols)] VALUES ... | SELECT ...`
#[derive(Clone, PartialEq, Debug)]
pub struct Insert {
    /// The table or sink.
    pub into: Ident,
    /// The listed columns; empty if the list is omitted, which means all columns in order.
    pub columns: Vec<Ident>,
    /// The source of the rows.
    pub source: InsertSource,
}

/// The source of an INSERT's rows.
#[derive(Clone, PartialEq, Debug)]
pub enum InsertSource {
    /// `VALUES (...), ...`, at least one row.
    Values(Vec<Row>),
    /// `SELECT ... FROM input ...`
    Select(Select),
}

/// `UPSERT t KEY (e, ...) SET c = e, ...`
#[derive(Clone, PartialEq, Debug)]
pub struct Upsert {
    /// The table.
    pub table: Ident,
    /// The key, at least one expression.
    pub key: Vec<Expr>,
    /// The columns set, at least one.
    pub set: Vec<Assign>,
}

/// `UPDATE t SET c = e, ... [WHERE e] [RETURNING c INTO v, ...] [ELSE ...]`
#[derive(Clone, PartialEq, Debug)]
pub struct Update {
    /// The table.
    pub table: Ident,
    /// The columns set, at least one.
    pub set: Vec<Assign>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// `RETURNING ...`.
    pub returning: Vec<Returning>,
    /// The statements that run if no row changed: a verdict or one statement, or several as `ELSE DO ... END UPDATE`.
    pub otherwise: Option<Vec<Stmt>>,
}

/// `column INTO place`
#[derive(Clone, PartialEq, Debug)]
pub struct Returning {
    /// The column of the table, after the update.
    pub column: Ident,
    /// The target of its value.
    pub into: Path,
    /// The whole.
    pub span: Span,
}

/// `SCAN t MAX n [AS r] [WHERE e] DO ... END SCAN;`
#[derive(Clone, PartialEq, Debug)]
pub struct Scan {
    /// The table, or a sketch with `TOP`.
    pub table: Ident,
    /// The maximum number of rows read.
    pub max: Expr,
    /// `AS r`; without it, columns are qualified by the table's name.
    pub alias: Option<Ident>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// The statements for each row.
    pub body: Vec<Stmt>,
}

/// A verdict.
#[derive(Clone, PartialEq, Debug)]
pub struct Verdict {
    /// The kind.
    pub kind: VerdictKind,
    /// Without the `;`.
    pub span: Span,
}

/// The verdicts.
#[derive(Clone, PartialEq, Debug)]
pub enum VerdictKind {
    /// `FORWARD`
    Forward,
    /// `DROP`
    Drop,
    /// `ABORT status [text] [WITH place = e, ...]`
    Abort {
        /// The status: a name, a parameter, a number, or an expression in parentheses.
        status: Expr,
        /// The message.
        text: Option<Expr>,
        /// Headers and trailers to send.
        with: Vec<WithItem>,
    },
    /// `REPLY (col = e, ...)`
    Reply {
        /// The answer.
        fields: Vec<Assign>,
    },
    /// `REPLY PAYLOAD e`
    ReplyPayload {
        /// The message.
        bytes: Expr,
    },
    /// `REDIRECT TO e`
    Redirect {
        /// An endpoint or cluster.
        to: Expr,
    },
    /// `STEER TO edge`
    Steer {
        /// One of the element's edges.
        edge: Ident,
    },
}

// ---- expressions -----------------------------------------------------------------------------------------------

/// An expression.
#[derive(Clone, PartialEq, Debug)]
pub struct Expr {
    /// The kind.
    pub kind: ExprKind,
    /// With enclosing parentheses.
    pub span: Span,
}

/// The expressions.
#[derive(Clone, PartialEq, Debug)]
pub enum ExprKind {
    /// An integer without sign.
    Int(u64),
    /// A number with a point or an exponent; always finite.
    Float(f64),
    /// A string.
    Str(String),
    /// `TRUE`, `FALSE`
    Bool(bool),
    /// `NULL`
    Null,
    /// A name.
    Path(Path),
    /// `header['key']`
    Header(Box<Expr>),
    /// `trailer['key']`
    Trailer(Box<Expr>),
    /// `f(a, b)`, `count(t)`, `count(*)`
    Call {
        /// The function.
        function: Ident,
        /// Its arguments; empty with `*`.
        args: Vec<Expr>,
        /// `*` was written as the only argument.
        star: Option<Span>,
    },
    /// `NOT a`, `-a`
    Unary {
        /// The operator.
        op: UnaryOp,
        /// The operand.
        operand: Box<Expr>,
    },
    /// `a op b`
    Binary {
        /// The operator.
        op: BinaryOp,
        /// The operator's own place.
        op_span: Span,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// `a IS [NOT] NULL`
    IsNull {
        /// The tested operand.
        operand: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a IS [NOT] DISTINCT FROM b`
    IsDistinct {
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] IN (b, c, ...)`
    InList {
        /// The tested operand.
        operand: Box<Expr>,
        /// Among these, at least one.
        list: Vec<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] IN '10.0.0.0/8'`: an address in a network.
    InNet {
        /// The address.
        operand: Box<Expr>,
        /// The network.
        net: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] BETWEEN b AND c`
    Between {
        /// The tested operand.
        operand: Box<Expr>,
        /// The lower bound.
        low: Box<Expr>,
        /// The upper bound.
        high: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `a [NOT] LIKE b`
    Like {
        /// The text.
        operand: Box<Expr>,
        /// The pattern.
        pattern: Box<Expr>,
        /// `NOT`.
        negated: bool,
    },
    /// `CASE [e] WHEN a THEN b ... [ELSE c] END`
    Case {
        /// The value compared; `None` for the searched form.
        operand: Option<Box<Expr>>,
        /// The arms, at least one.
        arms: Vec<CaseArm>,
        /// `ELSE`.
        otherwise: Option<Box<Expr>>,
    },
    /// `(SELECT e FROM t WHERE ...)`
    Subselect(Box<Subselect>),
    /// `EXISTS (SELECT ...)`
    Exists(Box<Subselect>),
    /// `ANY(l IN req.lines WHERE e MAX n)`, `ALL(...)` or `COUNT(...)`.
    List(Box<ListExpr>),
    /// `req.labels['key']`
    Entry {
        /// The map.
        map: Path,
        /// The key.
        key: Box<Expr>,
    },
    /// `CAST(e AS TYPE)`
    Cast {
        /// The value.
        operand: Box<Expr>,
        /// The type.
        ty: TypeExpr,
    },
}

impl Expr {
    /// Calls `visit` for each name in it.
    pub fn each_path(&self, visit: &mut dyn FnMut(&Path)) {
        let mut each = |parts: &mut dyn Iterator<Item = &Self>| parts.for_each(|part| part.each_path(visit));
        match &self.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) | ExprKind::Bool(_) | ExprKind::Null => {
            }
            ExprKind::Path(path) => visit(path),
            ExprKind::Header(a)
            | ExprKind::Trailer(a)
            | ExprKind::Unary { operand: a, .. }
            | ExprKind::IsNull { operand: a, .. }
            | ExprKind::Cast { operand: a, .. } => each(&mut [&**a].into_iter()),
            ExprKind::Call { args, .. } => each(&mut args.iter()),
            ExprKind::Binary { left: a, right: b, .. }
            | ExprKind::IsDistinct { left: a, right: b, .. }
            | ExprKind::InNet { operand: a, net: b, .. }
            | ExprKind::Like { operand: a, pattern: b, .. } => each(&mut [&**a, &**b].into_iter()),
            ExprKind::InList { operand, list, .. } => each(&mut [&**operand].into_iter().chain(list)),
            ExprKind::Between { operand, low, high, .. } => {
                each(&mut [&**operand, &**low, &**high].into_iter());
            }
            ExprKind::Case { operand, arms, otherwise } => {
                let arms = arms.iter().flat_map(|arm| [&arm.when, &arm.then]);
                each(&mut operand.as_deref().into_iter().chain(arms).chain(otherwise.as_deref()));
            }
            ExprKind::Subselect(select) | ExprKind::Exists(select) => {
                each(&mut select.filter.iter().chain(&select.scan_max));
            }
            ExprKind::List(look) => {
                visit(&look.list);
                look.filter.iter().for_each(|filter| filter.each_path(visit));
            }
            ExprKind::Entry { map, .. } => visit(map),
        }
    }
}

/// `WHEN a THEN b`
#[derive(Clone, PartialEq, Debug)]
pub struct CaseArm {
    /// The condition, or the value compared.
    pub when: Expr,
    /// The result.
    pub then: Expr,
}

/// `SELECT item FROM t | SCAN t MAX n [WHERE e]`
#[derive(Clone, PartialEq, Debug)]
pub struct Subselect {
    /// The selected item.
    pub item: SelectItem,
    /// The table.
    pub table: Ident,
    /// `MAX n` of the `SCAN` form; `None` for a lookup by key.
    pub scan_max: Option<Expr>,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// Without the parentheses.
    pub span: Span,
}

/// `ANY|ALL|COUNT (item IN list [WHERE e] MAX n)`; `contains(list, e MAX n)` is `ANY` over the elements that equal `e`.
#[derive(Clone, PartialEq, Debug)]
pub struct ListExpr {
    /// The quantifier: ANY, ALL or COUNT.
    pub form: ListForm,
    /// The name of an element in the condition.
    pub item: Ident,
    /// The repeated field or map.
    pub list: Path,
    /// `WHERE e`.
    pub filter: Option<Expr>,
    /// `MAX n`.
    pub elements_max: Expr,
}

/// The quantifier of a list expression.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListForm {
    /// `ANY`: whether the condition is true for at least one element.
    Any,
    /// `ALL`: whether it is true of each.
    All,
    /// `COUNT`: of how many it is true.
    Count,
}

/// Operators with one operand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnaryOp {
    /// `NOT`
    Not,
    /// `-`
    Neg,
}

/// Operators with two operands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BinaryOp {
    /// `OR`
    Or,
    /// `AND`
    And,
    /// `=`
    Eq,
    /// `<>`, `!=`
    Ne,
    /// `<`
    Lt,
    /// `<=`
    Le,
    /// `>`
    Gt,
    /// `>=`
    Ge,
    /// `||`
    Concat,
    /// `&`
    BitAnd,
    /// `+`
    Add,
    /// `-`
    Sub,
    /// `*`
    Mul,
    /// `/`
    Div,
    /// `%`
    Rem,
}
