//! The syntax tree of elements, their declarations and handlers.

use super::*;

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
pub struct Handler<E = Event> {
    /// The event that runs it.
    pub event: E,
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
