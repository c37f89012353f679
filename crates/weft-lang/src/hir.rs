//! The typed program: all names resolved, all types known, all rules of the language checked.
//!
//! A [`Network`] exists only if the program has no error. Nothing in it is wrong or missing, so lowering does not check
//! it again. Conventions:
//!
//! - Things are named by their index in the list of their owner: a parameter, column, variable, call cell, table
//!   or sink in its [`Element`]; a local or a row in its [`Handler`]; listeners, clusters, elements, shared tables
//!   and chains in the [`Network`].
//! - Both operands of a comparison, of AND and OR, and of arithmetic on numbers have the same type (up to the
//!   length of TEXT and BYTES); widening is written out as [`ExprKind::Widen`].
//! - [`Expr::nullable`] and [`Expr::fallible`] are upper bounds: false is a promise.
//! - Spans stay, because faults, traces and counters name source lines.

use std::collections::BTreeSet;
use std::fmt;
use weft_core::marks::Mark;

use weft_core::filter::{KeyId, Policies};
use weft_core::list::EntryKey;
use weft_core::matching::MatchSpec;
use weft_core::methods::MethodSet;
use weft_core::native::{Effect, Native, NativeCost};
use weft_core::schema::Schema;
use weft_core::wire::{self, FieldId, FieldRef, LayerRef, ProtocolId};
use weft_core::{Interval, Type, Value};

use crate::ast::{Filler, ListForm};
use crate::source::Span;

mod queue;

pub use crate::ast::{Balance, Evict, Merge, OnFailure, Side, SinkFormat};
pub use queue::{
    CallFlow, CallLink, CallsOf, Link, Queue, QueueBinary, QueueExpr, QueueExprKind, QueueHandler,
    QueueHeader, QueueLevel, QueueLimit, QueueLiteral, QueueMoment, QueueOperand, QueueOverflow,
    QueuePartitions, QueueStmt, QueueStmtKind, QueueType, QueueUnary, QueueVar, QueueVerdict, QueueVictim,
};

/// A checked program: all files together.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Network {
    /// The schemas of all `TYPE`s, merged.
    pub schema: Schema,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// The clusters.
    pub clusters: Vec<Cluster>,
    /// Rules between them, in source order.
    pub routes: Vec<Route>,
    /// Where frames come in and go out.
    pub ports: Vec<Port>,
    /// Groups of ports.
    pub groups: Vec<Group>,
    /// Wire formats; [`wire::ProtocolId`] is an index into it.
    pub protocols: Vec<wire::Protocol>,
    /// The spans of the protocols, in the same order.
    pub protocol_spans: Vec<Span>,
    /// Unions: names for one of several wire formats.
    pub unions: Vec<wire::Union>,
    /// Native functions: those that the program declares, and those that it passes to parameters under their own names.
    pub functions: Vec<NativeFunction>,
    /// Tables that elements of any chain may use.
    pub tables: Vec<Table>,
    /// The elements, used or not.
    pub elements: Vec<Element>,
    /// The chains.
    pub chains: Vec<Chain>,
    /// Rows that the program gives to tables filled by the controller.
    pub fills: Vec<Fill>,
    /// The queues that can be used without arguments.
    pub queues: Vec<Queue>,
    /// The links of ports.
    pub links: Vec<Link>,
    /// The links of calls.
    pub call_links: Vec<CallLink>,
}

impl Network {
    /// The elements that the program declares, without copies specialized for a stage whose bindings read additional
    /// columns.
    pub fn declared_elements(&self) -> impl Iterator<Item = &Element> {
        let mut seen = BTreeSet::new();
        self.elements.iter().filter(move |element| seen.insert((element.span, &element.name)))
    }

    /// The display names of a chain's two ends; the second is empty for a chain on ports without an output.
    pub fn ends(&self, chain: &Chain) -> (String, String) {
        match &chain.edge {
            Edge::Calls { from, to } => (self.listeners[*from].name.clone(), self.clusters[*to].name.clone()),
            Edge::Packets { ports, to, .. } => {
                let names: Vec<&str> = ports.iter().map(|port| &*self.ports[*port].name).collect();
                (names.join(", "), to.map(|to| self.outlet(to).to_owned()).unwrap_or_default())
            }
        }
    }

    /// The name of a way out.
    pub fn outlet(&self, outlet: Outlet) -> &str {
        match outlet {
            Outlet::Port(at) => &self.ports[at].name,
            Outlet::Group(at) => &self.groups[at].name,
        }
    }

    /// The ports of a way out.
    pub fn ports_of(&self, outlet: Outlet) -> Vec<usize> {
        match outlet {
            Outlet::Port(at) => vec![at],
            Outlet::Group(at) => self.groups[at].members.iter().map(|(port, _)| *port).collect(),
        }
    }

    /// A column of a frame as a program writes it: `ip.src`, `inner.tcp`.
    pub fn field_name(&self, field: &FieldRef) -> String {
        let level = if field.layer.level == 0 { "" } else { "inner." };
        let members = &field.layer.protocols;
        if let Some(name) = self.last_name(field) {
            return format!("{level}{name}");
        }
        let union = self.unions.iter().find(|union| members.len() > 1 && union.members == *members);
        let protocol = |at: usize| &self.protocols[usize::from(members[at].0)];
        let layer = union.map_or_else(|| &protocol(0).name, |union| &union.name);
        let Some(fields) = &field.fields else { return format!("{level}{layer}") };
        let column = union.and_then(|union| union.columns.iter().find(|column| column.fields == *fields));
        let own = || &protocol(0).fields[usize::from(fields[0].0)].name;
        format!("{level}{layer}.{}", column.map_or_else(own, |column| &column.name))
    }

    /// The name of a column over the LAST of several layers, without its level.
    fn last_name(&self, field: &FieldRef) -> Option<String> {
        let is_it = |column: &&wire::UnionColumn| {
            column.last
                && column.protocols == field.layer.protocols
                && Some(&column.fields) == field.fields.as_ref()
        };
        let find = |union: &wire::Union| {
            let column = union.columns.iter().find(is_it)?;
            Some(format!("{}.{}", union.name, column.name))
        };
        self.unions.iter().filter(|_| field.last).find_map(find)
    }
}

// ---- listeners, clusters, routes -------------------------------------------------------------------------------

/// A listener.
#[derive(Clone, Debug, PartialEq)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// The address to bind.
    pub address: Address,
    /// `WITH (...)`: the options that the program sets, each with the type given in
    /// [`weft_core::options::LISTENER_OPTIONS`].
    pub options: Vec<Setting>,
    /// The whole item.
    pub span: Span,
}

/// A cluster.
#[derive(Clone, Debug, PartialEq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its endpoints, at least one.
    pub endpoints: Vec<Address>,
    /// The weight of each endpoint: its share of the calls.
    pub weights: Vec<u32>,
    /// The balancing policy; round robin by default.
    pub balance: Balance,
    /// `WITH (...)`: as for a listener, from [`weft_core::options::CLUSTER_OPTIONS`].
    pub options: Vec<Setting>,
    /// The whole item.
    pub span: Span,
}

/// Where a stream socket is bound or connected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `host:port`; the host is a name, an IPv4 address, or an IPv6 address in brackets.
    Tcp(String),
    /// The path of a Unix socket, without `unix:`.
    Unix(String),
}

impl fmt::Display for Address {
    /// As a program writes it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => f.write_str(address),
            Self::Unix(path) => write!(f, "unix:{path}"),
        }
    }
}

/// An option that is set.
#[derive(Clone, Debug, PartialEq)]
pub struct Setting {
    /// The option.
    pub name: &'static str,
    /// Its value.
    pub value: Value,
    /// The span of the option.
    pub span: Span,
}

/// A port: where frames come in and go out.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The kind of the port.
    pub kind: PortKind,
    /// The device or the file: `eth0`, `yesterday.pcap`; empty for `memory`.
    pub device: String,
    /// `WITH (...)`: as for a listener, from [`crate::check::network::PORT_OPTIONS`].
    pub options: Vec<Setting>,
    /// The whole item.
    pub span: Span,
}

/// A group of ports: a frame sent to the group leaves through one member, or through all.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name, which no port has.
    pub name: String,
    /// How the group selects a port.
    pub choice: GroupChoice,
    /// `SELECT BY e`, where `e` is not `flow()`.
    pub key: Option<GroupKey>,
    /// Indices into [`Network::ports`], at least one, each with its weight (default 1).
    pub members: Vec<(usize, u16)>,
    /// The whole item.
    pub span: Span,
}

/// The expression by which a group selects a port.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKey {
    /// Its source text.
    pub text: String,
    /// The ON PACKET handler of this generated element marks a frame with the hash of the expression; 0 for NULL. The
    /// element is not in [`Network::elements`], and [`Instance::element`] has no meaning here.
    pub element: Box<(Element, Instance)>,
}

/// How a group selects among its members whose link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupChoice {
    /// `ALL`: a copy leaves by each.
    All,
    /// `SELECT BY flow()`: the same port for all frames of a flow, by weight.
    Flow,
    /// `SELECT BY e`: the same port for all frames with the same value, by weight.
    Key,
    /// `FAILOVER`: the first.
    First,
}

/// By what frames leave.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outlet {
    /// An index into [`Network::ports`].
    Port(usize),
    /// An index into [`Network::groups`].
    Group(usize),
}

/// The kind of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// `packet 'eth0'`: a packet socket on a network device (AF_PACKET).
    Packet,
    /// `xdp 'eth0'`: an XDP socket on a network device (AF_XDP).
    Xdp,
    /// `veth 'to_a'`: a packet socket on one end of a veth pair that the node creates.
    Veth,
    /// `tun 'tun0'`: an IP packet device that ends in this program.
    Tun,
    /// `tap 'tap0'`: an Ethernet device that ends in this program.
    Tap,
    /// `pcap 'file'`: a capture file, read or written.
    Pcap,
    /// `memory`: frames generated by benchmarks and tests.
    Memory,
}

/// A route: sends calls of a listener to a cluster. The first matching route decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// An index into [`Network::listeners`].
    pub listener: usize,
    /// The methods that the route matches.
    pub method_set: MethodSet,
    /// A condition on method, peer and request headers, evaluated when the call opens.
    pub when: Option<Expr>,
    /// An index into [`Network::clusters`].
    pub cluster: usize,
    /// The whole item.
    pub span: Span,
}

// ---- chains ----------------------------------------------------------------------------------------------------

/// A chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Chain {
    /// Its name.
    pub name: String,
    /// The traffic of the chain.
    pub edge: Edge,
    /// The methods that the chain matches.
    pub method_set: MethodSet,
    /// The methods of the schemas that the set matches; at least one if any stage has message columns.
    pub methods: Vec<Method>,
    /// The instances in the order of the request direction; at most [`weft_core::limits::ELEMENTS_MAX`].
    pub instances: Vec<Instance>,
    /// The filters between them, in the order of the request direction.
    pub filters: Vec<FilterInstance>,
    /// The equivalence that optimisation must preserve.
    pub equivalence: Equivalence,
    /// `PIN STREAM DRAIN`: the maximum time that streams stay on their version.
    pub pin_stream_drain: Option<Interval>,
    /// `ORDER a BEFORE b`, as indices into [`Chain::instances`], and the pairs from POSITION; the written order
    /// satisfies them.
    pub orders: Vec<(usize, usize)>,
    /// `PRIORITY a > b`, as indices into [`Chain::instances`].
    pub priorities: Vec<(usize, usize)>,
    /// Ranges of [`Chain::instances`] that were written as `{a, b, c}`: any order within a range is allowed.
    pub unordered: Vec<std::ops::Range<usize>>,
    /// The branches for steered frames. Their stages are at the end of [`Chain::instances`], branch by branch. The
    /// stages before the first branch process all other frames.
    pub branches: Vec<Branch>,
    /// The whole item.
    pub span: Span,
}

/// `det.suspect -> sandbox -> log;`
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// The steering stage, an index into [`Chain::instances`]; it precedes the branch's stages.
    pub from: usize,
    /// The edge, an index into [`Element::edges`].
    pub edge: usize,
    /// The stages, a range of [`Chain::instances`].
    pub stages: std::ops::Range<usize>,
    /// The span.
    pub span: Span,
}

/// The traffic of a chain: calls on an edge, or frames on ports.
#[derive(Clone, Debug, PartialEq)]
pub enum Edge {
    /// On calls from a listener to a cluster.
    Calls {
        /// An index into [`Network::listeners`].
        from: usize,
        /// An index into [`Network::clusters`].
        to: usize,
    },
    /// `ON PORT`: on frames that arrive at ports.
    Packets {
        /// Indices into [`Network::ports`], at least one.
        ports: Vec<usize>,
        /// The output of frames that no element redirects.
        to: Option<Outlet>,
        /// `WHEN`: selects frames. The condition is the ON PACKET handler of a generated element, which drops all other
        /// frames. The element is not in [`Network::elements`], and [`Instance::element`] has no meaning here.
        when: Option<Box<(Element, Instance)>>,
    },
}

impl Edge {
    /// The listener and the cluster of a chain on calls.
    pub fn calls(&self) -> Option<(usize, usize)> {
        match *self {
            Self::Calls { from, to } => Some((from, to)),
            Self::Packets { .. } => None,
        }
    }
}

/// A method that a chain carries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Method {
    /// `shop.Cart/Add`, without the leading slash of the wire format.
    pub path: String,
    /// The request message, an index into [`Schema::messages`].
    pub input: usize,
    /// The response message, an index into [`Schema::messages`].
    pub output: usize,
    /// The client sends any number of messages.
    pub client_streaming: bool,
    /// The server sends any number of messages.
    pub server_streaming: bool,
}

impl Method {
    /// The message of a direction, an index into [`Schema::messages`].
    pub fn message(&self, direction: Direction) -> usize {
        match direction {
            Direction::Request => self.input,
            Direction::Response => self.output,
        }
    }
}

/// How much an optimised chain may differ from the written one (`docs/src/concepts/effects.md`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Equivalence {
    /// State, sinks, statuses and outputs are the same.
    Strict,
    /// All but the order of sink rows of different elements.
    #[default]
    Observable,
    /// Outputs and statuses; sink rows of calls that end may differ.
    Output,
    /// Equal in distribution.
    Stochastic,
    /// Any change that helps.
    Relaxed,
}

/// An element in a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Instance {
    /// Its name, unique in the chain; it identifies the state.
    pub name: String,
    /// An index into [`Network::elements`].
    pub element: usize,
    /// The value of each of [`Element::params`], defaults filled in.
    pub params: Vec<Value>,
    /// The location of each of [`Element::columns`].
    pub bindings: Vec<Binding>,
    /// The size and age of each of [`Element::tables`].
    pub tables: Vec<TableLimits>,
    /// The interval of each of [`Handlers::every`], positive.
    pub every: Vec<Interval>,
    /// The destination of each of [`Element::sinks`].
    pub sinks: Vec<SinkTarget>,
    /// `AT CLIENT|SERVER`.
    pub side: Option<Side>,
    /// `MANDATORY`: the stage may not be bypassed or fail open.
    pub mandatory: bool,
    /// A failure lets the tuple pass (`FAIL OPEN`, `ON FAILURE OF ... BYPASS`).
    pub fail_open: bool,
    /// `PER TRY`: runs for each try of the filters before it, whatever its effects.
    pub per_try: bool,
    /// The stage in the chain.
    pub span: Span,
}

impl Chain {
    /// The filter whose keys an instance computes; None for an ordinary instance.
    pub fn keys_of(&self, instance: usize) -> Option<&FilterInstance> {
        self.filters.iter().find(|filter| filter.has_keys && filter.at == instance + 1)
    }
}

/// A filter in a chain. It wraps the instances from `at` on, and the filters after it.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterInstance {
    /// Its name, unique in the chain among instances and filters; it identifies the state.
    pub name: String,
    /// The name of the FILTER.
    pub filter: String,
    /// The whole FILTER.
    pub declared: Span,
    /// The position: before the instance with this index in [`Chain::instances`], or at the end.
    pub at: usize,
    /// The policies.
    pub policies: Policies,
    /// If its policies read messages, an element computes their keys: `instances[at - 1]`, which has the same name and
    /// contains only [`StmtKind::Key`].
    pub has_keys: bool,
    /// `AT CLIENT|SERVER`.
    pub side: Option<Side>,
    /// `MANDATORY`: it may not be bypassed.
    pub mandatory: bool,
    /// The stage in the chain.
    pub span: Span,
}

/// The location of an element's column in one instance.
///
/// A value read from there is widened to the column's type if the field is narrower. A field bound to a written column
/// can hold every value of the column's type.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// Where the value is read or written.
    pub place: ColumnLocation,
    /// The value may be NULL. If so, the column is declared `T?`.
    pub nullable: bool,
}

/// A source or target of a column outside the element.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnLocation {
    /// A field of the message of the column's direction, by its path from the top.
    Body(Vec<String>),
    /// A header of the column's direction, by its lower-case name.
    Header(String),
    /// The value of an entry of a map: the path of the map, and the key.
    Entry(Vec<String>, EntryKey),
    /// Whether a nested message is present, by its path.
    Present(Vec<String>),
    /// A list of the message.
    List(ListLocation),
    /// Metadata from the engine.
    Meta(Meta),
    /// A field of a frame, or whether the frame has a layer.
    Frame(FieldRef),
    /// No location: the value is computed from other columns when it is read. Never written.
    Computed(Box<Expr>),
}

/// A repeated field or a map, and the parts of its elements that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLocation {
    /// The field, by its path from the top.
    pub path: Vec<String>,
    /// The parts of each element that are read, as paths within it; the empty path is the element itself.
    pub members: Vec<Vec<String>>,
    /// How many elements are taken.
    pub elements_max: u64,
}

impl ColumnLocation {
    /// The path of a part of the message.
    pub fn path(&self) -> Option<&[String]> {
        match self {
            Self::Body(path) | Self::Entry(path, _) | Self::Present(path) => Some(path),
            Self::List(list) => Some(&list.path),
            Self::Header(_) | Self::Meta(_) | Self::Frame(_) | Self::Computed(_) => None,
        }
    }
}

/// The size and age of a table in one instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableLimits {
    /// Rows, 1 to [`weft_core::limits::TABLE_ROWS_MAX`].
    pub rows_max: u64,
    /// `TTL`, positive.
    pub ttl: Option<Interval>,
    /// `TTL ... ON INSERT`, positive.
    pub ttl_on_insert: Option<Interval>,
}

/// The destination of a sink's rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SinkTarget {
    /// Standard output.
    Stdout,
    /// A file, appended to.
    File(String),
    /// The admin endpoint's metrics.
    Metrics,
    /// A table that the controller fills.
    Table {
        /// The table.
        table: TableRef,
        /// The rows with these keys are deleted, not inserted.
        deletes: bool,
    },
}

/// The rows of a table that the program inserts.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// The table that gets the rows.
    pub table: FillTarget,
    /// A value for each of [`Table::columns`] (keys first); no two rows have the same key.
    pub rows: Vec<Vec<Value>>,
    /// The first item with rows.
    pub span: Span,
}

/// A table that the program fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum FillTarget {
    /// An index into [`Network::tables`].
    Shared(usize),
    /// A table of an instance.
    Own {
        /// An index into [`Network::chains`].
        chain: usize,
        /// An index into [`Chain::instances`].
        instance: usize,
        /// An index into [`Element::tables`].
        table: usize,
    },
}

// ---- functions -------------------------------------------------------------------------------------------------

/// A native function.
#[derive(Clone, Debug, PartialEq)]
pub struct NativeFunction {
    /// Its name.
    pub name: String,
    /// The native function.
    pub native: Native,
    /// The types of parameters and result.
    pub ty: FunctionType,
    /// The options that are set. They name the source of a key, never the key itself.
    pub options: Vec<Setting>,
    /// The effect: as declared, or that of the native function.
    pub effect: Effect,
    /// The cost of a call: as declared, or as measured.
    pub cost: NativeCost,
    /// `INVERSE OF`: an index into [`Network::functions`].
    pub inverse: Option<usize>,
    /// The whole item.
    pub span: Span,
}

/// The types of a function's parameters and result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionType {
    /// The types of the parameters.
    pub params: Vec<Type>,
    /// The type of the result.
    pub returns: Type,
    /// `T?`: it may give NULL.
    pub nullable: bool,
}

/// The native function that a call refers to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NativeRef {
    /// One by its own name.
    Own(Native),
    /// An index into [`Network::functions`].
    Declared(usize),
    /// A function parameter of the element: its value is an index into [`Network::functions`].
    Param(usize),
}

// ---- elements --------------------------------------------------------------------------------------------------

/// An element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// The layer.
    pub layer: Layer,
    /// Parameters; an instance gives each a value.
    pub params: Vec<Param>,
    /// Conditions on the parameters of every instance.
    pub checks: Vec<Check>,
    /// Columns of the messages: those of the request first, then those of `RETURNS`.
    pub columns: Vec<Column>,
    /// Its own tables.
    pub tables: Vec<Table>,
    /// Scalar variables.
    pub vars: Vec<Var>,
    /// Cells of the call's row.
    pub call: Vec<CallCell>,
    /// Sinks.
    pub sinks: Vec<Sink>,
    /// The edges, in addition to the next stage: their names with their spans.
    pub edges: Vec<(String, Span)>,
    /// The handlers.
    pub handlers: Handlers,
    /// The whole item.
    pub span: Span,
}

impl Element {
    /// Whether this is not an element of the program, but computes the keys of a filter.
    pub fn is_of_filter(&self) -> bool {
        let mut stmts = self.handlers.iter().flat_map(|handler| &handler.body);
        stmts.any(|stmt| matches!(stmt.kind, StmtKind::Key { .. }))
    }

    /// An element without declarations.
    pub fn empty(name: &str, span: Span) -> Self {
        Self {
            name: name.to_owned(),
            layer: Layer::Rpc,
            params: Vec::new(),
            checks: Vec::new(),
            columns: Vec::new(),
            tables: Vec::new(),
            vars: Vec::new(),
            call: Vec::new(),
            sinks: Vec::new(),
            edges: Vec::new(),
            handlers: Handlers::default(),
            span,
        }
    }
}

/// The layer of an element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// `ON rpc`: calls.
    #[default]
    Rpc,
    /// `ON packet`: any frame. `ON tcp`, `ON ip`: frames with such a layer; other frames bypass the element. `ON
    /// PACKET` is [`Handlers::request`], and the columns are request columns.
    Packet(Option<LayerRef>),
}

/// A parameter.
#[derive(Clone, Debug, PartialEq)]
pub struct Param {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// `T?`: its value may be NULL.
    pub nullable: bool,
    /// The type of a function parameter: its value is an index into [`Network::functions`].
    pub function: Option<FunctionType>,
    /// The default value; without it, every stage must give one.
    pub default: Option<Value>,
    /// The span of the declaration.
    pub span: Span,
}

/// A column of a message.
#[derive(Clone, Debug, PartialEq)]
pub struct Column {
    /// Its name.
    pub name: String,
    /// Its type; TEXT and BYTES have no length here.
    pub ty: Type,
    /// `T?`.
    pub nullable: bool,
    /// The message that has the column.
    pub direction: Direction,
    /// Some handler reads it.
    pub read: bool,
    /// Some handler changes it.
    pub written: bool,
    /// Some `REPLY` gives it a value.
    pub replied: bool,
    /// The span of the declaration.
    pub span: Span,
}

/// The direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Direction {
    /// From caller to callee.
    Request,
    /// From callee to caller.
    Response,
}

/// A table, an element's own or a shared one.
#[derive(Clone, Debug, PartialEq)]
pub struct Table {
    /// Its name.
    pub name: String,
    /// Columns; those of the primary key come first, in the order of the key. TEXT and BYTES have a length.
    pub columns: Vec<TableColumn>,
    /// How many of them are the primary key, at least one.
    pub n_keys: usize,
    /// Conditions on every row that comes from outside.
    pub checks: Vec<Check>,
    /// `FILLED BY ...`: no handler writes the table. CLUSTER: the key is an I64, the member's number from 0, and the
    /// only other column is an ENDPOINT. PORTS: the key is the TEXT `port`, followed by `mtu`, a U16, or `mac`, a MAC,
    /// or both; each may be NULL.
    pub filled: Option<Filler>,
    /// `FILLED BY STAGE e`: the element that owns the table of this name, with the same columns. The chain has exactly
    /// one other stage of that element.
    pub stage: Option<String>,
    /// `PER WORKER`.
    pub per_worker: bool,
    /// `EVICT ...`: present if a handler inserts rows.
    pub evict: Option<Evict>,
    /// `TTL ... ON ACCESS`: the age counts from the last access instead of the last write.
    pub ttl_on_access: bool,
    /// The size and age, if they do not depend on parameters; always present for a shared table. The limits of an
    /// instance are in [`Instance::tables`].
    pub limits: Option<TableLimits>,
    /// The whole declaration.
    pub span: Span,
}

/// `CHECK (condition)` of a table, or of the parameters of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// The condition; the columns of a row are its parameters, in the order of [`Table::columns`].
    pub condition: Expr,
    /// Its source text, shortened.
    pub text: String,
    /// The clause.
    pub span: Span,
}

/// A column of a table.
#[derive(Clone, Debug, PartialEq)]
pub struct TableColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// `T?`; never of a key.
    pub nullable: bool,
    /// The default value of the column: constants, parameters, `now()` and `rand()`. Present for every nullable column
    /// (NULL). Without a default, every new row must give the value.
    pub default: Option<Expr>,
    /// `MERGE ...`: changed only by its own operation (`c = c + e`, `c = greatest(c, e)`, `c = least(c, e)`), and read
    /// only in `ON EVERY`.
    pub merge: Option<Merge>,
    /// Its position in the written list of columns.
    pub written_at: usize,
    /// The span of the declaration.
    pub span: Span,
}

/// A scalar variable, one per node.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// Its name.
    pub name: String,
    /// Its type, held in one word.
    pub ty: Type,
    /// The initial value: constants and parameters, foldable by [`crate::check::fold`]. Zero if None.
    pub start: Option<Expr>,
    /// `MERGE ...`: changed only by ADD and RESET, and read only in `ON EVERY`.
    pub merge: Option<Merge>,
    /// The whole declaration.
    pub span: Span,
}

/// A cell of the call's row.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCell {
    /// Its name.
    pub name: String,
    /// Its type; TEXT and BYTES have a length.
    pub ty: Type,
    /// The value when the call opens: constants, parameters and `now()`. The zero of its type if None.
    pub start: Option<Expr>,
    /// The span of the declaration.
    pub span: Span,
}

/// A sink.
#[derive(Clone, Debug, PartialEq)]
pub struct Sink {
    /// Its name.
    pub name: String,
    /// Its columns; each may be NULL.
    pub columns: Vec<SinkColumn>,
    /// `FORMAT ...`, JSON if not written.
    pub format: SinkFormat,
    /// The whole declaration.
    pub span: Span,
}

/// A column of a sink.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkColumn {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
}

/// The handlers of an element.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// `ON OPEN`
    pub open: Option<Handler>,
    /// `ON REQUEST`, `ON PACKET`
    pub request: Option<Handler>,
    /// `ON RESPONSE`
    pub response: Option<Handler>,
    /// `ON CLOSE`
    pub close: Option<Handler>,
    /// `ON ERROR`: runs instead of the rest of OPEN, REQUEST, RESPONSE or CLOSE after that handler failed and was
    /// rolled back. It reads no column, header or trailer, so it is the same for each of them. An error in it fails
    /// closed; an error in EVERY is rolled back and counted.
    pub error: Option<Handler>,
    /// `ON EVERY interval`, in source order; the intervals are in [`Instance::every`].
    pub every: Vec<Handler>,
    /// `ON TIMEOUT OF table` and `ON EVICT OF table`, at most one of each per table. The expired or evicted row is
    /// [`RowId::OLD`].
    pub timeouts: Vec<Handler>,
}

impl Handlers {
    /// All handlers in the order of a call's life; EVERY, TIMEOUT and EVICT last.
    pub fn iter(&self) -> impl Iterator<Item = &Handler> {
        let once = [&self.open, &self.request, &self.response, &self.close, &self.error];
        once.into_iter().flatten().chain(&self.every).chain(&self.timeouts)
    }

    /// As [`Handlers::iter`].
    pub fn iter_mut(&mut self) -> impl Iterator<Item = &mut Handler> {
        let Self { open, request, response, close, error, every, timeouts } = self;
        let once = [open, request, response, close, error];
        once.into_iter().flatten().chain(every).chain(timeouts)
    }
}

/// The event that runs a handler.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub enum HandlerKind {
    Open,
    Request,
    Response,
    Close,
    Error,
    Every,
    Timeout,
    Evict,
}

impl HandlerKind {
    /// Whether time or a table runs the handler, not a call or a frame: it has no tuple, and runs once per node.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every) || self.is_departure()
    }

    /// Whether it runs for a row that was removed from its table.
    pub fn is_departure(self) -> bool {
        matches!(self, Self::Timeout | Self::Evict)
    }
}

/// A handler. If its body ends without a verdict, the tuple is forwarded.
#[derive(Clone, Debug, PartialEq)]
pub struct Handler {
    /// The event that runs it.
    pub kind: HandlerKind,
    /// The statements.
    pub body: Vec<Stmt>,
    /// The LETs; each is assigned once, before any use.
    pub locals: Vec<Local>,
    /// The table rows that expressions read.
    pub rows: Vec<Row>,
    /// Its effects.
    pub effects: Effects,
    /// The whole handler.
    pub span: Span,
}

/// A local value.
#[derive(Clone, Debug, PartialEq)]
pub struct Local {
    /// Its name.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// It may be NULL.
    pub nullable: bool,
}

/// A local of its [`Handler`]: an index into [`Handler::locals`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LocalId(pub usize);

/// A row found by a join, an `UPDATE`, a `SCAN`, ...
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// The table of the row.
    pub table: TableRef,
    /// The row may be absent (`LEFT JOIN`); then all its columns are NULL.
    pub optional: bool,
}

/// A row of its [`Handler`]: an index into [`Handler::rows`].
///
/// Its columns have the values from the time of the lookup: a later write to the table does not change a joined column.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RowId(pub usize);

impl RowId {
    /// Of `ON TIMEOUT`: the row that expired, `OLD`.
    pub const OLD: Self = Self(0);
}

/// A table as a handler names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TableRef {
    /// An index into [`Element::tables`].
    Own(usize),
    /// An index into [`Network::tables`].
    Shared(usize),
}

/// The possible effects of a handler, over all paths. Lists are sorted and contain no duplicates.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Effects {
    /// Columns read, indices into [`Element::columns`].
    pub columns_read: Vec<usize>,
    /// Columns changed.
    pub columns_written: Vec<usize>,
    /// Headers read, lower-case.
    pub headers_read: Vec<String>,
    /// Headers changed.
    pub headers_written: Vec<String>,
    /// Trailers read.
    pub trailers_read: Vec<String>,
    /// Trailers changed.
    pub trailers_written: Vec<String>,
    /// The metadata that is read.
    pub metas_read: Vec<Meta>,
    /// Tables that are read.
    pub tables_read: Vec<TableRef>,
    /// Tables changed in any way.
    pub tables_written: Vec<TableRef>,
    /// Tables into which rows may be inserted.
    pub tables_inserted: Vec<TableRef>,
    /// Variables read, indices into [`Element::vars`].
    pub vars_read: Vec<usize>,
    /// Variables changed.
    pub vars_written: Vec<usize>,
    /// Sinks, indices into [`Element::sinks`].
    pub sinks: Vec<usize>,
    /// It may end the call with a status.
    pub aborts: bool,
    /// It may drop the tuple.
    pub drops: bool,
    /// It may answer itself.
    pub replies: bool,
    /// It may choose the target.
    pub redirects: bool,
    /// It may send the frame on by one of the element's edges.
    pub steers: bool,
    /// It may hold the tuple.
    pub delays: bool,
    /// It may copy the tuple elsewhere.
    pub mirrors: bool,
    /// It may push, pop or cut headers of a frame.
    pub reshapes: bool,
    /// It reads `now()` or `elapsed`.
    pub clock: bool,
    /// It calls `rand()`.
    pub random: bool,
    /// It may fail.
    pub fallible: bool,
}

// ---- statements ------------------------------------------------------------------------------------------------

/// A statement.
#[derive(Clone, Debug, PartialEq)]
pub struct Stmt {
    /// The kind.
    pub kind: StmtKind,
    /// The whole statement.
    pub span: Span,
}

/// The statements.
#[derive(Clone, Debug, PartialEq)]
pub enum StmtKind {
    /// `LET`
    Let {
        /// The local.
        local: LocalId,
        /// Its value, of the local's type.
        value: Expr,
    },
    /// `SET`
    Set {
        /// The target.
        target: AssignTarget,
        /// A value of the target's type; NULL only if the target allows it.
        value: Expr,
    },
    /// The value of a FILTER's key; generated only from a filter's `PER` and `ID`.
    Key {
        /// The key.
        key: KeyId,
        /// Its parts, of any type that a table key may have.
        parts: Vec<Expr>,
    },
    /// `IF`: the first arm whose condition is true; NULL is not true.
    If {
        /// Conditions and bodies, at least one.
        arms: Vec<(Expr, Vec<Stmt>)>,
        /// `ELSE`.
        otherwise: Vec<Stmt>,
    },
    /// The guard `SELECT`: continues if the query has a row, otherwise ends the handler.
    Guard {
        /// The query; its joined rows stay visible after the statement.
        query: Query,
        /// The assignments of a match: all values are computed before any target changes.
        set: Vec<(AssignTarget, Expr)>,
        /// The action if there is no row.
        otherwise: Verdict,
    },
    /// `INSERT` into a table. Inserting an existing key is the error "duplicate key".
    Insert {
        /// The table.
        table: TableRef,
        /// `INSERT ... SELECT ... FROM input`: nothing is inserted if the query has no row.
        query: Option<Query>,
        /// For each row a value for each column, in the order of [`Table::columns`].
        rows: Vec<Vec<Expr>>,
    },
    /// `INSERT` into a sink.
    Emit {
        /// An index into [`Element::sinks`].
        sink: usize,
        /// As for an insert into a table.
        query: Option<Query>,
        /// For each row a value for each of [`Sink::columns`]; any may be NULL.
        rows: Vec<Vec<Expr>>,
    },
    /// `UPSERT`: finds the row or inserts one with the defaults, then sets columns.
    Upsert {
        /// The table.
        table: TableRef,
        /// The row before `set`: old values, or defaults.
        row: RowId,
        /// The key in its order.
        key: Vec<Expr>,
        /// Columns (no keys) and values; all values are computed before any column changes. Every column without a
        /// default is included, and no value reads such a column.
        set: Vec<(usize, Expr)>,
    },
    /// `UPDATE` of the row with a key.
    Update {
        /// The table.
        table: TableRef,
        /// The row, as it is before `set`.
        row: RowId,
        /// The key in its order.
        key: Vec<Expr>,
        /// The remaining condition on the row.
        condition: Option<Expr>,
        /// Columns (no keys) and values; all values are computed before any column changes.
        set: Vec<(usize, Expr)>,
        /// Columns after the change, and the targets for their values.
        returning: Vec<(usize, AssignTarget)>,
        /// `ELSE`: runs if no row changed. Afterwards the handler continues, unless a verdict ended it.
        otherwise: Vec<Stmt>,
    },
    /// `DELETE` of the row with a key.
    Delete {
        /// The table.
        table: TableRef,
        /// The row.
        row: RowId,
        /// The key in its order.
        key: Vec<Expr>,
        /// The remaining condition on the row.
        condition: Option<Expr>,
    },
    /// `SCAN`: runs the body once for each row that passes the filter. The body inserts no rows into this table.
    Scan {
        /// The table.
        table: TableRef,
        /// The row.
        row: RowId,
        /// The maximum number of rows read; 1 to [`weft_core::limits::SCAN_ROWS_MAX`].
        rows_max: u64,
        /// `WHERE`
        filter: Option<Expr>,
        /// The statements.
        body: Vec<Stmt>,
    },
    /// `ADD` to a merged variable: adds, or takes the maximum or minimum, depending on its declaration.
    Add {
        /// An index into [`Element::vars`].
        var: usize,
        /// Of the variable's type.
        amount: Expr,
    },
    /// `RESET` of a merged variable to its initial value.
    Reset {
        /// An index into [`Element::vars`].
        var: usize,
    },
    /// `MIRROR TO`
    Mirror {
        /// A cluster or endpoint, TEXT or ENDPOINT.
        to: Expr,
    },
    /// `MARK`
    Mark {
        /// The fields: a class is U32 (the low half of a wider number), a remaining size U64 or SIZE, a deadline
        /// TIMESTAMP.
        fields: Vec<(Mark, Expr)>,
    },
    /// `DELAY`
    Delay {
        /// INTERVAL; negative is none.
        interval: Expr,
    },
    /// `PUSH`
    Push {
        /// The headers in wire order.
        headers: Vec<Pushed>,
    },
    /// `POP`
    Pop {
        /// The layer to stop at.
        layer: LayerRef,
        /// The extent of the removal.
        how: PopHow,
    },
    /// `CUT TO`
    Cut {
        /// Bytes of the frame that stay, U32.
        bytes: Expr,
    },
    /// `FRAGMENT TO`
    Fragment {
        /// The maximum number of bytes of each packet, U32.
        bytes: Expr,
    },
    /// A verdict.
    Verdict(Verdict),
}

/// A header of a PUSH.
#[derive(Clone, Debug, PartialEq)]
pub struct Pushed {
    /// The protocol.
    pub protocol: ProtocolId,
    /// The fields that are set, with values of their types.
    pub fields: Vec<(FieldId, Expr)>,
    /// The span of the header.
    pub span: Span,
}

/// How much a POP takes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopHow {
    /// `POP TO layer`: all headers in front of the layer.
    To,
    /// `POP`: the element's layer and all headers in front of it.
    With,
    /// `POP layer`: it alone.
    Alone,
}

/// A query over `input`: at most one row.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Joins in order; a later key may use the rows of earlier ones.
    pub joins: Vec<Join>,
    /// `WHERE`
    pub filter: Option<Expr>,
}

/// A join of `input` with the table row that has a key, or with the first matching row.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The table.
    pub table: TableRef,
    /// The row.
    pub row: RowId,
    /// `FIRST`: the match specification. The controller fills the table.
    pub first: Option<MatchSpec>,
    /// The key in its order; a NULL in it finds no row. For a match, the value of each part.
    pub key: Vec<Expr>,
    /// The remaining condition on the row.
    pub condition: Option<Expr>,
    /// `LEFT`: without a row, its columns are NULL and the query continues.
    pub left: bool,
    /// The whole clause.
    pub span: Span,
}

/// A target of SET, of a guard, or of RETURNING.
#[derive(Clone, Debug, PartialEq)]
pub enum AssignTarget {
    /// An index into [`Element::columns`].
    Column(usize),
    /// An index into [`Element::call`].
    Call(usize),
    /// An index into [`Element::vars`], not a merged variable.
    Var(usize),
    /// A header by its lower-case name: of the request in OPEN and REQUEST, otherwise of the response. NULL removes it.
    Header(String),
    /// A trailer by its lower-case name. NULL removes it.
    Trailer(String),
    /// A new local; only as a target of RETURNING.
    Local(LocalId),
}

/// A verdict, which ends the handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// The kind.
    pub kind: VerdictKind,
    /// The span of the statement; that of the guard for an implied verdict.
    pub span: Span,
}

/// The verdicts.
#[derive(Clone, Debug, PartialEq)]
pub enum VerdictKind {
    /// `FORWARD`
    Forward,
    /// `DROP`
    Drop,
    /// `ABORT`
    Abort {
        /// STATUS, not NULL.
        status: Expr,
        /// TEXT; NULL is no text.
        text: Option<Expr>,
        /// Headers and trailers of the response, TEXT; a NULL value is omitted.
        with: Vec<(AnswerTarget, Expr)>,
    },
    /// `REPLY`
    Reply {
        /// Columns of the response (indices into [`Element::columns`]) and their values; a NULL value is omitted.
        fields: Vec<(usize, Expr)>,
    },
    /// `REPLY PAYLOAD`
    ReplyPayload {
        /// The whole message, BYTES, not NULL.
        bytes: Expr,
    },
    /// `STEER TO`: an index into [`Element::edges`].
    Steer(usize),
    /// `REDIRECT TO`
    Redirect {
        /// A cluster or endpoint, TEXT or ENDPOINT.
        to: Expr,
    },
}

/// A header or trailer of an ABORT's response, by its lower-case name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerTarget {
    /// A header.
    Header(String),
    /// A trailer.
    Trailer(String),
}

// ---- expressions -----------------------------------------------------------------------------------------------

/// An expression.
#[derive(Clone, Debug, PartialEq)]
pub struct Expr {
    /// The kind.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Type,
    /// It may be NULL.
    pub nullable: bool,
    /// It may be an error.
    pub fallible: bool,
    /// The span.
    pub span: Span,
}

impl Expr {
    /// The parameters that the expression uses, in order of appearance.
    pub fn params(&self) -> Vec<usize> {
        let mut found: Vec<usize> = if let ExprKind::Param(at) = self.kind { vec![at] } else { Vec::new() };
        for at in self.children().into_iter().flat_map(Self::params) {
            if !found.contains(&at) {
                found.push(at);
            }
        }
        found
    }

    /// Returns the direct subexpressions.
    pub fn children(&self) -> Vec<&Self> {
        match &self.kind {
            ExprKind::Const(_)
            | ExprKind::Column(_)
            | ExprKind::Param(_)
            | ExprKind::Local(_)
            | ExprKind::Call(_)
            | ExprKind::Var(_)
            | ExprKind::RowColumn { .. }
            | ExprKind::Header(_)
            | ExprKind::Trailer(_)
            | ExprKind::Meta(_)
            | ExprKind::FaultName
            | ExprKind::Egress
            | ExprKind::Member(_)
            | ExprKind::CountRows(_) => Vec::new(),
            ExprKind::List { filter, .. } => filter.iter().map(|filter| &**filter).collect(),
            ExprKind::Widen(a)
            | ExprKind::Cast(a)
            | ExprKind::Not(a)
            | ExprKind::Neg(a)
            | ExprKind::IsNull(a) => vec![a],
            ExprKind::And(a, b)
            | ExprKind::Or(a, b)
            | ExprKind::Compare { left: a, right: b, .. }
            | ExprKind::Arith { left: a, right: b, .. }
            | ExprKind::SameAs(a, b) => vec![a, b],
            ExprKind::Concat(parts) | ExprKind::Function { args: parts, .. } => parts.iter().collect(),
            ExprKind::InList { operand, list } => [&**operand].into_iter().chain(list).collect(),
            ExprKind::Between { operand, low, high } => vec![operand, low, high],
            ExprKind::Case { operand, arms, otherwise } => {
                let arms = arms.iter().flat_map(|(when, then)| [when, then]);
                operand.iter().map(|operand| &**operand).chain(arms).chain([&**otherwise]).collect()
            }
            ExprKind::Lookup { find, value } => {
                find.key.iter().chain(&find.condition).chain([&**value]).collect()
            }
            ExprKind::Exists(find) => find.key.iter().chain(&find.condition).collect(),
            ExprKind::Aggregate { filter, aggregate, .. } => {
                filter.iter().map(|filter| &**filter).chain(aggregate.parts()).collect()
            }
        }
    }
}

/// The expressions.
#[derive(Clone, Debug, PartialEq)]
pub enum ExprKind {
    /// A constant of the expression's type. A STATUS is its code, an INTERVAL or TIMESTAMP is in nanoseconds, a CIDR
    /// is the address (4 or 16 bytes, host bits zero) and a byte of prefix length.
    Const(Value),
    /// A column of the message.
    Column(usize),
    /// A parameter.
    Param(usize),
    /// A local.
    Local(LocalId),
    /// A cell of the call's row.
    Call(usize),
    /// A variable; a merged one only in EVERY.
    Var(usize),
    /// A column of a row.
    RowColumn {
        /// The row.
        row: RowId,
        /// An index into [`Table::columns`].
        column: usize,
    },
    /// A header by its lower-case name: of the request in OPEN and REQUEST, otherwise of the response.
    Header(String),
    /// A trailer by its lower-case name, in CLOSE.
    Trailer(String),
    /// Metadata of the tuple, set by the engine.
    Meta(Meta),
    /// `error`: the name of the error, in ON ERROR.
    FaultName,
    /// `egress`: the output decided so far for the frame, in ON PACKET; a TEXT?.
    Egress,
    /// A wider type of the same kind; never fails.
    Widen(Box<Expr>),
    /// `CAST`, `int(x)`, `uint(x)`, `float(x)`, `text(x)`; the two types determine the conversion.
    Cast(Box<Expr>),
    /// `NOT`
    Not(Box<Expr>),
    /// `-a` on signed integers, F64 and INTERVAL.
    Neg(Box<Expr>),
    /// `AND` (absorbs errors: `docs/src/concepts/errors.md`)
    And(Box<Expr>, Box<Expr>),
    /// `OR`
    Or(Box<Expr>, Box<Expr>),
    /// A comparison of two values of one type.
    Compare {
        /// The operator.
        op: CompareOp,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// Arithmetic. On integers, SIZE and F64 both operands have the result's type. With time: TIMESTAMP - TIMESTAMP,
    /// TIMESTAMP +- INTERVAL, INTERVAL +- INTERVAL, INTERVAL * or / I64 or F64, INTERVAL / INTERVAL = F64,
    /// INTERVAL % INTERVAL. The INTERVAL of a product is on the left.
    Arith {
        /// The operator.
        op: ArithOp,
        /// The left operand.
        left: Box<Expr>,
        /// The right operand.
        right: Box<Expr>,
    },
    /// `a || b || c` on TEXT or on BYTES; NULL if any is.
    Concat(Vec<Expr>),
    /// `IS NULL`
    IsNull(Box<Expr>),
    /// `IS NOT DISTINCT FROM`: equal, with NULL equal to NULL; never NULL.
    SameAs(Box<Expr>, Box<Expr>),
    /// `IN (...)`: three-valued like the OR of `=`.
    InList {
        /// The tested operand.
        operand: Box<Expr>,
        /// Values of its type.
        list: Vec<Expr>,
    },
    /// `BETWEEN`: three-valued like `low <= operand AND operand <= high`, with the operand evaluated once.
    Between {
        /// The tested operand.
        operand: Box<Expr>,
        /// The lower bound.
        low: Box<Expr>,
        /// The upper bound.
        high: Box<Expr>,
    },
    /// `CASE`
    Case {
        /// The value compared with each `when`, evaluated once; None if each `when` is a condition.
        operand: Option<Box<Expr>>,
        /// `WHEN ... THEN ...`
        arms: Vec<(Expr, Expr)>,
        /// `ELSE`; a NULL constant if omitted.
        otherwise: Box<Expr>,
    },
    /// A function.
    Function {
        /// The function.
        function: Function,
        /// The arguments, of the types in the function's signature.
        args: Vec<Expr>,
    },
    /// `count(t)`: rows of a table, I64.
    CountRows(TableRef),
    /// `(SELECT e FROM t WHERE key...)`: NULL if there is no row.
    Lookup {
        /// The lookup.
        find: Box<Find>,
        /// The value, over the row.
        value: Box<Expr>,
    },
    /// `EXISTS (SELECT ... FROM t WHERE key...)`
    Exists(Box<Find>),
    /// `(SELECT agg(e) FROM SCAN t MAX n WHERE ...)`, or EXISTS of it.
    Aggregate {
        /// The table.
        table: TableRef,
        /// The row.
        row: RowId,
        /// The maximum number of rows read.
        rows_max: u64,
        /// `WHERE`
        filter: Option<Box<Expr>>,
        /// The aggregate.
        aggregate: Aggregate,
    },
    /// `ANY(l IN list WHERE e MAX n)`, `ALL` or `COUNT`, in a column's binding.
    List {
        /// The quantifier: ANY, ALL or COUNT.
        form: ListForm,
        /// The column that is the list.
        list: usize,
        /// The maximum number of elements; more are an error.
        elements_max: u64,
        /// `WHERE`
        filter: Option<Box<Expr>>,
    },
    /// A member of the element of the surrounding list expression: an index into [`ListLocation::members`].
    Member(usize),
}

/// A lookup in a table by its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Find {
    /// The table.
    pub table: TableRef,
    /// The row.
    pub row: RowId,
    /// The key in its order; a NULL in it finds no row.
    pub key: Vec<Expr>,
    /// The remaining condition on the row.
    pub condition: Option<Expr>,
}

/// An aggregate over the rows of a scan. Without rows, `Count` is 0, `Any` is false and the others are NULL; NULL
/// values are ignored.
#[derive(Clone, Debug, PartialEq)]
pub enum Aggregate {
    /// `count(*)`, I64.
    Count,
    /// EXISTS, BOOL.
    Any,
    /// `sum(e)` of an integer, F64, SIZE or INTERVAL; may overflow.
    Sum(Box<Expr>),
    /// `min(e)`
    Min(Box<Expr>),
    /// `max(e)`
    Max(Box<Expr>),
    /// `avg(e)` of a number, F64.
    Avg(Box<Expr>),
    /// `argmin(result, by)`: the result of the row with the smallest `by`; the first such row wins.
    ArgMin {
        /// The result.
        result: Box<Expr>,
        /// The measure.
        by: Box<Expr>,
    },
    /// `argmax(result, by)`
    ArgMax {
        /// The result.
        result: Box<Expr>,
        /// The measure.
        by: Box<Expr>,
    },
}

impl Aggregate {
    /// The subexpressions.
    pub fn parts(&self) -> Vec<&Expr> {
        match self {
            Self::Count | Self::Any => Vec::new(),
            Self::Sum(a) | Self::Min(a) | Self::Max(a) | Self::Avg(a) => vec![a],
            Self::ArgMin { result, by } | Self::ArgMax { result, by } => vec![result, by],
        }
    }
}

/// Comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum CompareOp {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
}

/// Arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum ArithOp {
    Add,
    Sub,
    Mul,
    /// Truncates on integers.
    Div,
    Rem,
}

/// Metadata of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Meta {
    /// `method`, TEXT: `/shop.Cart/Add`.
    Method,
    /// `peer`, TEXT: the client's address.
    Peer,
    /// `size`, SIZE: bytes of the message if it were sent on from here; for a frame, as it arrived.
    Size,
    /// `payload`, BYTES: the current message, decompressed and without its prefix; in REQUEST and RESPONSE.
    Payload,
    /// `index`, U64: the number of this message in its stream and direction, from 0.
    Index,
    /// `call_id`, U64: unique on this node.
    CallId,
    /// `version`, U64: the version of the program that handles this tuple.
    Version,
    /// `status`, STATUS: how the call ended; in CLOSE.
    Status,
    /// `elapsed`, INTERVAL: since the call opened; in RESPONSE and CLOSE.
    Elapsed,
    /// `upstream`, TEXT?: the endpoint that serves the call; in RESPONSE and CLOSE.
    Upstream,
    /// `ended_by`, TEXT?: the element that ended the call; in CLOSE.
    EndedBy,
    /// `port`, TEXT: the arrival port of the frame; in PACKET. There, `size` is the frame's size, and `call_id` is
    /// written `packet_id`.
    Port,
    /// `flow`, U64: a 32-bit hash of the frame's addresses, protocol and ports on arrival; in PACKET.
    Flow,
    /// `packet_size`, U64: bytes of the longest packet in the frame, without the link header; in PACKET.
    PacketSize,
    /// `is_icmp_error`, BOOL: whether the arrived frame is an ICMP error, which must not trigger another one; in
    /// PACKET.
    IsIcmpError,
    /// `is_intact`, BOOL: whether the checksum of the arrived frame's transport header is correct; in PACKET.
    IsIntact,
    /// `tunnel_depth`, U64: the number of tunnels around the innermost packet of the arrived frame; in PACKET.
    TunnelDepth,
    /// `meta.tag`, U32: user metadata of a frame, from one element to the elements after it; 0 until set.
    Tag,
    /// `meta.label`, U32: likewise, for the state of the frame's flow.
    Label,
    /// `meta.path`, U32: likewise, for the path that the frame should take.
    Path,
}

/// The functions of the language; [`crate::check::functions`] has their signatures.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Function {
    /// `now() TIMESTAMP`
    Now,
    /// `rand() F64`, uniform in [0, 1). The number names the call site: the n-th in its element, in source order.
    Rand(u32),
    /// `seconds(INTERVAL) F64`
    Seconds,
    /// `millis(INTERVAL) F64`
    Millis,
    /// `micros(INTERVAL) F64`
    Micros,
    /// `interval(F64 seconds) INTERVAL`; overflow if it does not fit.
    Interval,
    /// `floor(F64) F64`
    Floor,
    /// `ceil(F64) F64`
    Ceil,
    /// `round(F64) F64`, ties to even.
    Round,
    /// `sqrt(F64) F64`; NaN if negative.
    Sqrt,
    /// `abs(T) T` of a signed integer, F64 or INTERVAL.
    Abs,
    /// `least(T, ...) T`; NULL if any is.
    Least,
    /// `greatest(T, ...) T`; NULL if any argument is NULL.
    Greatest,
    /// `coalesce(T?, ...) T`: the first value that is not NULL; later arguments are not evaluated.
    Coalesce,
    /// `nullif(T, T) T?`: NULL if both are equal.
    NullIf,
    /// `length(TEXT or BYTES) I64`, in bytes.
    Length,
    /// `lower(TEXT) TEXT`, ASCII letters only.
    Lower,
    /// `upper(TEXT) TEXT`, ASCII letters only.
    Upper,
    /// `substr(TEXT, from, n) TEXT`: n bytes from the 1-based position `from`.
    Substr,
    /// `starts_with(TEXT, TEXT) BOOL`
    StartsWith,
    /// `ends_with(TEXT, TEXT) BOOL`
    EndsWith,
    /// `contains(TEXT, TEXT) BOOL`
    Contains,
    /// `a LIKE pattern`: `%` any run, `_` one character.
    Like,
    /// `hash(x, ...) U64`, by [`weft_core::hash`].
    Hash,
    /// `hash_slot(x, n I64) I64`: hash modulo n; `n <= 0` is division by zero.
    HashSlot,
    /// `counted(BYTES, U64) BYTES`, as the whole value of a SET of a row's column: the column is the first argument, so
    /// only the second is stored here.
    Counted,
    /// `in_prefix(IPADDR, CIDR) BOOL`, also written `a IN net`.
    InPrefix,
    /// `is_group(MAC) BOOL`: whether its I/G bit is set.
    IsGroup,
    /// `prefix_bits(CIDR) U8`: the prefix length of the network.
    PrefixBits,
    /// `same_family(IPADDR, CIDR) BOOL`: whether both are IPv4, or both IPv6.
    SameFamily,
    /// `a & b`: bitwise AND of two integers of one type.
    BitAnd,
    /// A native function. The number identifies the call site as for `rand()`; 0 for a pure function.
    Native(NativeRef, u32),
}
