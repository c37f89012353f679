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

mod chain;
mod element;
mod expr;
mod filter;
mod queue;
mod stmt;
mod wire;

pub use chain::*;
pub use element::*;
pub use expr::*;
pub use filter::*;
pub use queue::*;
pub use stmt::*;
pub use wire::*;

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
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
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
