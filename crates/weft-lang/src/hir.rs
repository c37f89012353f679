//! The typed program: every name resolved, every type known, every rule of the language checked.
//!
//! A [`Network`] exists only if the program has no error, so nothing here can be wrong or missing, and whoever
//! lowers it need not check again. Conventions:
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
    /// Where sessions enter.
    pub listeners: Vec<Listener>,
    /// Where they go.
    pub clusters: Vec<Cluster>,
    /// Rules between them, in source order.
    pub routes: Vec<Route>,
    /// Where frames come in and go out.
    pub ports: Vec<Port>,
    /// Ports that stand together.
    pub groups: Vec<Group>,
    /// Wire formats; [`wire::ProtocolId`] is an index into it.
    pub protocols: Vec<wire::Protocol>,
    /// Where they are, in their order.
    pub protocol_spans: Vec<Span>,
    /// Names for one of several wire formats.
    pub unions: Vec<wire::Union>,
    /// Native functions: those that the program declares, and those that it gives to parameters by their own names.
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
    /// Where packets wait.
    pub links: Vec<Link>,
    /// Where calls wait.
    pub call_links: Vec<CallLink>,
}

impl Network {
    /// The elements as the program declares them, without those that a stage has for itself: what it binds to
    /// expressions reads columns that the element does not name.
    pub fn declared_elements(&self) -> impl Iterator<Item = &Element> {
        let mut seen = BTreeSet::new();
        self.elements.iter().filter(move |element| seen.insert((element.span, &element.name)))
    }

    /// The names of a chain's two ends, for people; the second is empty where a chain on ports has none.
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

    /// A column that is that of the LAST of several layers, without its level.
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
    /// What it binds.
    pub address: Address,
    /// `WITH (...)`: the options that the program sets, each of the type that
    /// [`weft_core::options::LISTENER_OPTIONS`] names.
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
    /// The share of the calls that each endpoint takes beside the others.
    pub weights: Vec<u32>,
    /// How one is picked; round robin if the program does not say.
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
    /// Where it is set.
    pub span: Span,
}

/// A port: where frames come in and go out.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What carries its frames.
    pub kind: PortKind,
    /// The device or the file: `eth0`, `yesterday.pcap`; empty for memory.
    pub device: String,
    /// `WITH (...)`: as for a listener, from [`crate::check::network::PORT_OPTIONS`].
    pub options: Vec<Setting>,
    /// The whole item.
    pub span: Span,
}

/// Ports that stand together: a frame that is sent to them leaves by one, or by all.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// Its name, which no port has.
    pub name: String,
    /// Which of them takes a frame.
    pub choice: GroupChoice,
    /// `SELECT BY e`, where `e` is not `flow()`.
    pub key: Option<GroupKey>,
    /// Indices into [`Network::ports`], at least one, each with its weight: 1 where the program does not say.
    pub members: Vec<(usize, u16)>,
    /// The whole item.
    pub span: Span,
}

/// What a group tells frames apart by.
#[derive(Clone, Debug, PartialEq)]
pub struct GroupKey {
    /// As it is written.
    pub text: String,
    /// The ON PACKET of an element of its own marks a frame with the hash of it; 0 where it is NULL. It is none of
    /// [`Network::elements`], and [`Instance::element`] says nothing there.
    pub element: Box<(Element, Instance)>,
}

/// Which port of a group takes a frame, of those whose link is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum GroupChoice {
    /// `ALL`: a copy leaves by each.
    All,
    /// `SELECT BY flow()`: the same for all frames of a flow, by weight.
    Flow,
    /// `SELECT BY e`: the same for all frames with the same value, by weight.
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

/// What carries the frames of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PortKind {
    /// `packet 'eth0'`: a packet socket on a network device (AF_PACKET).
    Packet,
    /// `xdp 'eth0'`: an XDP socket on a network device (AF_XDP).
    Xdp,
    /// `veth 'to_a'`: a packet socket on one end of a pair of network devices that the node makes.
    Veth,
    /// `tun 'tun0'`: a device of IP packets that ends in this program.
    Tun,
    /// `tap 'tap0'`: a device of Ethernet frames that ends in this program.
    Tap,
    /// `pcap 'file'`: a capture, read or written.
    Pcap,
    /// `memory`: frames that benchmarks and tests make.
    Memory,
}

/// A route: calls of a listener that go to a cluster. The first route that fits decides.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// An index into [`Network::listeners`].
    pub listener: usize,
    /// Which methods.
    pub method_set: MethodSet,
    /// A condition on method, peer and request headers, looked at when the call opens.
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
    /// Where it stands.
    pub edge: Edge,
    /// Which methods.
    pub method_set: MethodSet,
    /// The methods of the schemas that the set has, at least one if any stage has columns of a message.
    pub methods: Vec<Method>,
    /// The instances in the order of the request direction; at most [`weft_core::limits::ELEMENTS_MAX`].
    pub instances: Vec<Instance>,
    /// The filters between them, in the order of the request direction.
    pub filters: Vec<FilterInstance>,
    /// What must stay the same under optimisation.
    pub equivalence: Equivalence,
    /// `PIN STREAM DRAIN`: streams stay on their version this long at most.
    pub pin_stream_drain: Option<Interval>,
    /// `ORDER a BEFORE b`, as indices into [`Chain::instances`], and what POSITION says; the written order keeps them.
    pub orders: Vec<(usize, usize)>,
    /// `PRIORITY a > b`, as indices into [`Chain::instances`].
    pub priorities: Vec<(usize, usize)>,
    /// Ranges of [`Chain::instances`] that were written as `{a, b, c}`: any order within will do.
    pub unordered: Vec<std::ops::Range<usize>>,
    /// Where frames go on that are steered: their stages are the last of [`Chain::instances`], branch by branch. What
    /// is in front of the first stands on the way of all others.
    pub branches: Vec<Branch>,
    /// The whole item.
    pub span: Span,
}

/// `det.suspect -> sandbox -> log;`
#[derive(Clone, Debug, PartialEq)]
pub struct Branch {
    /// The stage that steers, an index into [`Chain::instances`], in front of those of the branch.
    pub from: usize,
    /// By which of its edges, an index into [`Element::edges`].
    pub edge: usize,
    /// The stages, a range of [`Chain::instances`].
    pub stages: std::ops::Range<usize>,
    /// Where it is written.
    pub span: Span,
}

/// Where a chain stands.
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
        /// Where a frame leaves that no element has sent elsewhere.
        to: Option<Outlet>,
        /// `WHEN`: which frames. The condition is the ON PACKET of an element of its own, which drops all others. It is
        /// none of [`Network::elements`], and [`Instance::element`] says nothing there.
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
    /// `shop.Cart/Add`; on the wire it has a leading slash.
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

/// How much an optimised chain may differ from the written one (DESIGN 3).
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
    /// Whatever helps.
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
    /// Where each of [`Element::columns`] is.
    pub bindings: Vec<Binding>,
    /// The size and age of each of [`Element::tables`].
    pub tables: Vec<TableLimits>,
    /// The interval of each of [`Handlers::every`], positive.
    pub every: Vec<Interval>,
    /// Where the rows of each of [`Element::sinks`] go.
    pub sinks: Vec<SinkTarget>,
    /// `AT CLIENT|SERVER`.
    pub side: Option<Side>,
    /// `MANDATORY`: it may not be bypassed nor fail open.
    pub mandatory: bool,
    /// A failure lets the tuple pass (`FAIL OPEN`, `ON FAILURE OF ... BYPASS`).
    pub fail_open: bool,
    /// `PER TRY`: its author wants it to run for each try of the filters before it, whatever it does.
    pub per_try: bool,
    /// The stage in the chain.
    pub span: Span,
}

impl Chain {
    /// The filter whose keys an instance computes, if that is what the instance is for.
    pub fn keys_of(&self, instance: usize) -> Option<&FilterInstance> {
        self.filters.iter().find(|filter| filter.has_keys && filter.at == instance + 1)
    }
}

/// A filter in a chain. It wraps the instances from `at` on, and the filters behind it.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterInstance {
    /// Its name, unique in the chain among instances and filters; it identifies the state.
    pub name: String,
    /// The name of the FILTER.
    pub filter: String,
    /// The whole FILTER.
    pub declared: Span,
    /// It stands before the instance with this index in [`Chain::instances`], or at the end.
    pub at: usize,
    /// What it does.
    pub policies: Policies,
    /// Where its policies look at messages, an element computes their keys: it is `instances[at - 1]`, has the same
    /// name, and does nothing but [`StmtKind::Key`].
    pub has_keys: bool,
    /// `AT CLIENT|SERVER`.
    pub side: Option<Side>,
    /// `MANDATORY`: it may not be bypassed.
    pub mandatory: bool,
    /// The stage in the chain.
    pub span: Span,
}

/// Where a column of an element is, in one instance.
///
/// A value read from there is widened to the column's type where the field is narrower; a column that the element
/// writes has a field that can hold the column's type.
#[derive(Clone, Debug, PartialEq)]
pub struct Binding {
    /// The place.
    pub place: ColumnLocation,
    /// It may be NULL there. If so, the column is declared `T?`.
    pub nullable: bool,
}

/// A place outside an element.
#[derive(Clone, Debug, PartialEq)]
pub enum ColumnLocation {
    /// A field of the message of the column's direction, by its path from the top.
    Body(Vec<String>),
    /// A header of the column's direction, by its lower-case name.
    Header(String),
    /// The value of an entry of a map: the path of the map, and the key.
    Entry(Vec<String>, EntryKey),
    /// Whether a message in the message is there, by its path.
    Present(Vec<String>),
    /// A list of the message.
    List(ListLocation),
    /// Something that the engine knows.
    Meta(Meta),
    /// A field of a frame, or whether it has a layer.
    Frame(FieldRef),
    /// Nowhere: it is computed from other columns where it is read. It is never written.
    Computed(Box<Expr>),
}

/// A repeated field or a map, and what is read of its elements.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListLocation {
    /// The field, by its path from the top.
    pub path: Vec<String>,
    /// What is read of each element, by paths within it; the empty path is the element itself.
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

/// Where the rows of a sink go.
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
        /// Rows of their keys go, instead of being put there.
        deletes: bool,
    },
}

/// Rows of a table, given by the program.
#[derive(Clone, Debug, PartialEq)]
pub struct Fill {
    /// Whose rows.
    pub table: FillTarget,
    /// A value for each of [`Table::columns`] (keys first); keys differ from row to row.
    pub rows: Vec<Vec<Value>>,
    /// The first of the items that gave rows.
    pub span: Span,
}

/// A table that is filled by the program.
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
    /// Which.
    pub native: Native,
    /// What it takes and gives.
    pub ty: FunctionType,
    /// The options that are set. They say where a key is, and never what it is.
    pub options: Vec<Setting>,
    /// What it depends on: what is declared, or what the native function does.
    pub effect: Effect,
    /// What a call costs: what is declared, or what was measured.
    pub cost: NativeCost,
    /// `INVERSE OF`: an index into [`Network::functions`].
    pub inverse: Option<usize>,
    /// The whole item.
    pub span: Span,
}

/// What a function takes and gives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionType {
    /// What it takes.
    pub params: Vec<Type>,
    /// What it gives.
    pub returns: Type,
    /// `T?`: it may give NULL.
    pub nullable: bool,
}

/// Which native function a call means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NativeRef {
    /// One by its own name.
    Own(Native),
    /// An index into [`Network::functions`].
    Declared(usize),
    /// A parameter of the element that stands for one: its value is an index into [`Network::functions`].
    Param(usize),
}

// ---- elements --------------------------------------------------------------------------------------------------

/// An element.
#[derive(Clone, Debug, PartialEq)]
pub struct Element {
    /// Its name.
    pub name: String,
    /// What it works on.
    pub layer: Layer,
    /// Parameters; an instance gives each a value.
    pub params: Vec<Param>,
    /// What holds of the parameters of every instance.
    pub checks: Vec<Check>,
    /// Columns of the messages: first those of the request, then those of `RETURNS`.
    pub columns: Vec<Column>,
    /// Its own tables.
    pub tables: Vec<Table>,
    /// Scalar variables.
    pub vars: Vec<Var>,
    /// Cells of the call's row.
    pub call: Vec<CallCell>,
    /// Sinks.
    pub sinks: Vec<Sink>,
    /// Ways out of it beside the next stage: their names, with their places.
    pub edges: Vec<(String, Span)>,
    /// The handlers.
    pub handlers: Handlers,
    /// The whole item.
    pub span: Span,
}

impl Element {
    /// Whether it is no element of the program, but computes the keys of a filter.
    pub fn is_of_filter(&self) -> bool {
        let mut stmts = self.handlers.iter().flat_map(|handler| &handler.body);
        stmts.any(|stmt| matches!(stmt.kind, StmtKind::Key { .. }))
    }

    /// An element that declares nothing.
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

/// What an element works on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Layer {
    /// `ON rpc`: calls.
    #[default]
    Rpc,
    /// `ON packet`: any frame. `ON tcp`, `ON ip`: frames that have such a layer; others pass it unseen. Its `ON PACKET`
    /// is [`Handlers::request`], and its columns are those of the request.
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
    /// It stands for a function of this type: its value is an index into [`Network::functions`].
    pub function: Option<FunctionType>,
    /// Its value where a stage gives none; the stage must if there is none here.
    pub default: Option<Value>,
    /// Where it is declared.
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
    /// Which message.
    pub direction: Direction,
    /// Some handler reads it.
    pub read: bool,
    /// Some handler changes it.
    pub written: bool,
    /// Some `REPLY` gives it a value.
    pub replied: bool,
    /// Where it is declared.
    pub span: Span,
}

/// Which way a message goes.
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
    /// What holds of every row that comes from outside.
    pub checks: Vec<Check>,
    /// `FILLED BY ...`: no handler writes it. By the cluster: its key is an I64, the number of a member from 0, and it
    /// has one other column, an ENDPOINT. By the ports: its key is the TEXT `port`, and it has `mtu`, a U16, and `mac`,
    /// a MAC, or one of them, which may be NULL.
    pub filled: Option<Filler>,
    /// `FILLED BY STAGE e`: the element whose table of this name it is, which has the same columns. In a chain, one
    /// other stage is of it.
    pub stage: Option<String>,
    /// `PER WORKER`.
    pub per_worker: bool,
    /// `EVICT ...`: there if some handler inserts.
    pub evict: Option<Evict>,
    /// `TTL ... ON ACCESS`: age counts from the last touch instead of the last write.
    pub ttl_on_access: bool,
    /// The size and age, if parameters are not needed to tell; always there for a shared table. An instance's own
    /// are in [`Instance::tables`].
    pub limits: Option<TableLimits>,
    /// The whole declaration.
    pub span: Span,
}

/// `CHECK (condition)` of a table, or of the parameters of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct Check {
    /// It sees the columns of a row as parameters, in the order of [`Table::columns`].
    pub condition: Expr,
    /// How it is written.
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
    /// The value of a new row that is given none. Made of constants, parameters, `now()` and `rand()`; there for
    /// every nullable column (NULL). Where there is none, whoever makes a row gives the value.
    pub default: Option<Expr>,
    /// `MERGE ...`: changed by its own operation alone (`c = c + e`, `c = greatest(c, e)`, `c = least(c, e)`) and
    /// read in `ON EVERY` alone.
    pub merge: Option<Merge>,
    /// Its place in the written list of columns.
    pub written_at: usize,
    /// Where it is declared.
    pub span: Span,
}

/// A scalar variable, one for the node.
#[derive(Clone, Debug, PartialEq)]
pub struct Var {
    /// Its name.
    pub name: String,
    /// Its type, held in one word.
    pub ty: Type,
    /// Its value at the start: constants and parameters, foldable by [`crate::check::fold`]. Zero if None.
    pub start: Option<Expr>,
    /// `MERGE ...`: changed by ADD and RESET alone, read in `ON EVERY` alone.
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
    /// Its value when the call opens: constants, parameters and `now()`. The zero of its type if None.
    pub start: Option<Expr>,
    /// Where it is declared.
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
    /// `ON ERROR`: run in place of the rest of OPEN, REQUEST, RESPONSE or CLOSE when that failed and was rolled
    /// back. It reads no column, header or trailer, so it is the same in each. A fault in it fails closed; a
    /// fault in EVERY is rolled back and counted.
    pub error: Option<Handler>,
    /// `ON EVERY interval`, in source order; the intervals are in [`Instance::every`].
    pub every: Vec<Handler>,
    /// `ON TIMEOUT OF table` and `ON EVICT OF table`, of each table one at most. The row that expired or was evicted is
    /// [`RowId::OLD`].
    pub timeouts: Vec<Handler>,
}

impl Handlers {
    /// All that there are, in the order of a call's life; EVERY, TIMEOUT and EVICT last.
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

/// When a handler runs.
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
    /// Whether nothing that a call or a frame does makes it run: there is no tuple, and it runs once a node.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every) || self.is_departure()
    }

    /// Whether it runs for a row that has left its table.
    pub fn is_departure(self) -> bool {
        matches!(self, Self::Timeout | Self::Evict)
    }
}

/// A handler. If its body ends without a verdict, the tuple is forwarded.
#[derive(Clone, Debug, PartialEq)]
pub struct Handler {
    /// When it runs.
    pub kind: HandlerKind,
    /// What it does.
    pub body: Vec<Stmt>,
    /// What LETs name; assigned once, before any use.
    pub locals: Vec<Local>,
    /// Rows of tables that expressions look at.
    pub rows: Vec<Row>,
    /// What it may do.
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

/// A row that was found by a join, an `UPDATE`, a `SCAN`, ...
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of which table.
    pub table: TableRef,
    /// There may be none (`LEFT JOIN`); all its columns are NULL then.
    pub optional: bool,
}

/// A row of its [`Handler`]: an index into [`Handler::rows`].
///
/// Its columns have the values of the moment when the row was found: a later write to the table does not change
/// what a joined column says.
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

/// What a handler may do, whichever way it goes. Lists are sorted and have no doubles.
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
    /// What is asked of the engine.
    pub metas_read: Vec<Meta>,
    /// Tables looked at.
    pub tables_read: Vec<TableRef>,
    /// Tables changed in any way.
    pub tables_written: Vec<TableRef>,
    /// Tables that may get new rows.
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
    /// It may put headers on a frame, take some off, or cut it.
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
    /// Which.
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
        /// What changes.
        target: AssignTarget,
        /// Of the place's type; NULL only if the place takes it.
        value: Expr,
    },
    /// The value of a key that a FILTER looks at; made of a filter's `PER` and `ID` alone.
    Key {
        /// Which.
        key: KeyId,
        /// Its parts, of any type that a table's key may have.
        parts: Vec<Expr>,
    },
    /// `IF`: the first arm whose condition is true; NULL is not true.
    If {
        /// Conditions and bodies, at least one.
        arms: Vec<(Expr, Vec<Stmt>)>,
        /// `ELSE`.
        otherwise: Vec<Stmt>,
    },
    /// The guard `SELECT`: goes on if the query has a row, else ends the handler.
    Guard {
        /// The query; its joined rows stay visible behind the statement.
        query: Query,
        /// What a match sets: all values are computed before any place changes.
        set: Vec<(AssignTarget, Expr)>,
        /// What happens without a row.
        otherwise: Verdict,
    },
    /// `INSERT` into a table. A key that is there already is the fault "duplicate key".
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
    /// `UPSERT`: finds the row or makes one with the defaults, then sets columns.
    Upsert {
        /// The table.
        table: TableRef,
        /// The row, as it is before `set`: old values, or defaults.
        row: RowId,
        /// The key in its order.
        key: Vec<Expr>,
        /// Columns (no keys) and values; all are computed before any column changes. Every column without a
        /// default is here, and no value reads such a column.
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
        /// What else must be true of the row.
        condition: Option<Expr>,
        /// Columns (no keys) and values; all are computed before any column changes.
        set: Vec<(usize, Expr)>,
        /// Columns after the change and where their values go.
        returning: Vec<(usize, AssignTarget)>,
        /// `ELSE`: when no row changed. Behind it the handler goes on, if it has no verdict.
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
        /// What else must be true of the row.
        condition: Option<Expr>,
    },
    /// `SCAN`: the body once for each row that passes the filter. The body makes no rows of this table.
    Scan {
        /// The table.
        table: TableRef,
        /// The row.
        row: RowId,
        /// Rows that are looked at, at most; 1 to [`weft_core::limits::SCAN_ROWS_MAX`].
        rows_max: u64,
        /// `WHERE`
        filter: Option<Expr>,
        /// What is done.
        body: Vec<Stmt>,
    },
    /// `ADD` to a merged variable: adds, or takes the maximum or minimum, as it is declared.
    Add {
        /// An index into [`Element::vars`].
        var: usize,
        /// Of the variable's type.
        amount: Expr,
    },
    /// `RESET` of a merged variable to its start.
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
        /// What is said: a class is U32 (of a wider number its low half), what remains U64 or SIZE, a deadline
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
        /// The headers, in the order of the wire.
        headers: Vec<Pushed>,
    },
    /// `POP`
    Pop {
        /// The layer that says how far.
        layer: LayerRef,
        /// How much goes.
        how: PopHow,
    },
    /// `CUT TO`
    Cut {
        /// Bytes of the frame that stay, U32.
        bytes: Expr,
    },
    /// `FRAGMENT TO`
    Fragment {
        /// The most bytes of each packet, U32.
        bytes: Expr,
    },
    /// A verdict.
    Verdict(Verdict),
}

/// A header of a PUSH.
#[derive(Clone, Debug, PartialEq)]
pub struct Pushed {
    /// Which.
    pub protocol: ProtocolId,
    /// The fields that are said, with values of their types.
    pub fields: Vec<(FieldId, Expr)>,
    /// Where it stands.
    pub span: Span,
}

/// How much a POP takes off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PopHow {
    /// `POP TO layer`: all in front of it.
    To,
    /// `POP`: the element's layer and all in front of it.
    With,
    /// `POP layer`: it alone.
    Alone,
}

/// A query over `input`: of one row at most.
#[derive(Clone, Debug, PartialEq)]
pub struct Query {
    /// Joins in order; a later key may use the rows of earlier ones.
    pub joins: Vec<Join>,
    /// `WHERE`
    pub filter: Option<Expr>,
}

/// A join of `input` with the row of a table that has a key, or with the first of those that match.
#[derive(Clone, Debug, PartialEq)]
pub struct Join {
    /// The table.
    pub table: TableRef,
    /// The row that is found.
    pub row: RowId,
    /// `FIRST`: how rows match. The table is filled by the controller.
    pub first: Option<MatchSpec>,
    /// The key in its order; NULL in it finds no row. Of a match, the value of each part.
    pub key: Vec<Expr>,
    /// What else must be true of the row.
    pub condition: Option<Expr>,
    /// `LEFT`: without a row, its columns are NULL and the query goes on.
    pub left: bool,
    /// The whole clause.
    pub span: Span,
}

/// Something that changes.
#[derive(Clone, Debug, PartialEq)]
pub enum AssignTarget {
    /// An index into [`Element::columns`].
    Column(usize),
    /// An index into [`Element::call`].
    Call(usize),
    /// An index into [`Element::vars`], not a merged one.
    Var(usize),
    /// A header by its lower-case name: of the request in OPEN and REQUEST, else of the response. NULL removes it.
    Header(String),
    /// A trailer by its lower-case name. NULL removes it.
    Trailer(String),
    /// Only as the target of RETURNING: a local that is made here.
    Local(LocalId),
}

/// A verdict, which ends the handler.
#[derive(Clone, Debug, PartialEq)]
pub struct Verdict {
    /// Which.
    pub kind: VerdictKind,
    /// Where it is written; the guard where it is implied.
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
        /// Headers and trailers of the answer, TEXT; NULL is none.
        with: Vec<(AnswerTarget, Expr)>,
    },
    /// `REPLY`
    Reply {
        /// Columns of the response (indices into [`Element::columns`]) and their values; NULL leaves one out.
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

/// A header or trailer of an ABORT's answer, by its lower-case name.
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
    /// Which.
    pub kind: ExprKind,
    /// Its type.
    pub ty: Type,
    /// It may be NULL.
    pub nullable: bool,
    /// It may be an error.
    pub fallible: bool,
    /// Where it is written.
    pub span: Span,
}

impl Expr {
    /// The parameters that it is made of, in the order in which they stand in it.
    pub fn params(&self) -> Vec<usize> {
        let mut found: Vec<usize> = if let ExprKind::Param(at) = self.kind { vec![at] } else { Vec::new() };
        for at in self.children().into_iter().flat_map(Self::params) {
            if !found.contains(&at) {
                found.push(at);
            }
        }
        found
    }

    /// The expressions directly within this one.
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
    /// A variable; a merged one in EVERY only.
    Var(usize),
    /// A column of a row.
    RowColumn {
        /// The row.
        row: RowId,
        /// An index into [`Table::columns`].
        column: usize,
    },
    /// A header by its lower-case name: of the request in OPEN and REQUEST, else of the response.
    Header(String),
    /// A trailer by its lower-case name, in CLOSE.
    Trailer(String),
    /// What the engine knows of the tuple.
    Meta(Meta),
    /// `error`: the name of the fault, in ON ERROR.
    FaultName,
    /// `egress`: where the frame leaves as far as it is decided here, in ON PACKET; a TEXT?.
    Egress,
    /// A wider type of the same kind; never fails.
    Widen(Box<Expr>),
    /// `CAST`, `int(x)`, `uint(x)`, `float(x)`, `text(x)`; what it does is told by the two types.
    Cast(Box<Expr>),
    /// `NOT`
    Not(Box<Expr>),
    /// `-a` on signed integers, F64 and INTERVAL.
    Neg(Box<Expr>),
    /// `AND` (absorbing errors as DESIGN 2.3 says)
    And(Box<Expr>, Box<Expr>),
    /// `OR`
    Or(Box<Expr>, Box<Expr>),
    /// A comparison of two values of one type.
    Compare {
        /// Which.
        op: CompareOp,
        /// Left.
        left: Box<Expr>,
        /// Right.
        right: Box<Expr>,
    },
    /// Arithmetic. On integers, SIZE and F64 both operands have the result's type. With time: TIMESTAMP - TIMESTAMP,
    /// TIMESTAMP +- INTERVAL, INTERVAL +- INTERVAL, INTERVAL * or / I64 or F64, INTERVAL / INTERVAL = F64,
    /// INTERVAL % INTERVAL. The INTERVAL of a product is on the left.
    Arith {
        /// Which.
        op: ArithOp,
        /// Left.
        left: Box<Expr>,
        /// Right.
        right: Box<Expr>,
    },
    /// `a || b || c` on TEXT or on BYTES; NULL if any is.
    Concat(Vec<Expr>),
    /// `IS NULL`
    IsNull(Box<Expr>),
    /// `IS NOT DISTINCT FROM`: equal, with NULL equal to NULL; never NULL.
    SameAs(Box<Expr>, Box<Expr>),
    /// `IN (...)`: three-valued as the OR of `=`.
    InList {
        /// What is looked for.
        operand: Box<Expr>,
        /// Values of its type.
        list: Vec<Expr>,
    },
    /// `BETWEEN`: three-valued as `low <= operand AND operand <= high`, the operand evaluated once.
    Between {
        /// What is looked at.
        operand: Box<Expr>,
        /// The least.
        low: Box<Expr>,
        /// The greatest.
        high: Box<Expr>,
    },
    /// `CASE`
    Case {
        /// The value compared with each `when`, evaluated once; None if each `when` is a condition.
        operand: Option<Box<Expr>>,
        /// `WHEN ... THEN ...`
        arms: Vec<(Expr, Expr)>,
        /// `ELSE`; a NULL constant if not written.
        otherwise: Box<Expr>,
    },
    /// A function.
    Function {
        /// Which.
        function: Function,
        /// The arguments, of the types that its signature says.
        args: Vec<Expr>,
    },
    /// `count(t)`: rows of a table, I64.
    CountRows(TableRef),
    /// `(SELECT e FROM t WHERE key...)`: NULL without a row.
    Lookup {
        /// The look at the table.
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
        /// Rows that are looked at, at most.
        rows_max: u64,
        /// `WHERE`
        filter: Option<Box<Expr>>,
        /// Which aggregate.
        aggregate: Aggregate,
    },
    /// `ANY(l IN list WHERE e MAX n)` and its kin, in what a column is bound to.
    List {
        /// What is asked of the elements.
        form: ListForm,
        /// The column that is the list.
        list: usize,
        /// Elements that are looked at, at most; more are an error.
        elements_max: u64,
        /// `WHERE`
        filter: Option<Box<Expr>>,
    },
    /// A member of the element that the list around looks at: an index into [`ListLocation::members`].
    Member(usize),
}

/// A look at a table by its key.
#[derive(Clone, Debug, PartialEq)]
pub struct Find {
    /// The table.
    pub table: TableRef,
    /// The row.
    pub row: RowId,
    /// The key in its order; NULL in it finds no row.
    pub key: Vec<Expr>,
    /// What else must be true of the row.
    pub condition: Option<Expr>,
}

/// An aggregate over the rows of a scan. Without rows `Count` is 0, `Any` is false and the others are NULL; NULL
/// values are passed over.
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
    /// `argmin(result, by)`: the result of the row where `by` is least; the first such row wins.
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
    /// What it looks at in each row.
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

/// What the engine knows of a tuple.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Meta {
    /// `method`, TEXT: `/shop.Cart/Add`.
    Method,
    /// `peer`, TEXT: the client's address.
    Peer,
    /// `size`, SIZE: bytes of the message as it would be sent on from here; of a frame, as it arrived.
    Size,
    /// `payload`, BYTES: the message as it is here, inflated and without its prefix; in REQUEST and RESPONSE.
    Payload,
    /// `index`, U64: which message of its stream and direction this is, from 0.
    Index,
    /// `call_id`, U64: unique on this node.
    CallId,
    /// `version`, U64: of the program that handles this tuple.
    Version,
    /// `status`, STATUS: how the call ended; in CLOSE.
    Status,
    /// `elapsed`, INTERVAL: since the call opened; in RESPONSE and CLOSE.
    Elapsed,
    /// `upstream`, TEXT?: the endpoint that serves the call; in RESPONSE and CLOSE.
    Upstream,
    /// `ended_by`, TEXT?: the element that ended the call; in CLOSE.
    EndedBy,
    /// `port`, TEXT: the port at which the frame arrived; in PACKET. There, `size` is that of the frame, and `call_id`
    /// is written `packet_id`.
    Port,
    /// `flow`, U64: a hash of 32 bits of the frame's addresses, protocol and ports as it arrived; in PACKET.
    Flow,
    /// `packet_size`, U64: bytes of the longest packet that a frame stands for, without the header of the link; in
    /// PACKET.
    PacketSize,
    /// `is_icmp_error`, BOOL: whether the frame that arrived is one, about which nobody may be told; in PACKET.
    IsIcmpError,
    /// `is_intact`, BOOL: whether the checksum of the transport header of the frame that arrived comes out right; in
    /// PACKET.
    IsIntact,
    /// `tunnel_depth`, U64: in how many tunnels the innermost packet of the frame that arrived is; in PACKET.
    TunnelDepth,
    /// `meta.tag`, U32: what elements say of a frame to those behind them; 0 until one does.
    Tag,
    /// `meta.label`, U32: likewise, the state of its flow.
    Label,
    /// `meta.path`, U32: likewise, the way that it is to take.
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
    /// `greatest(T, ...) T`; NULL if any is.
    Greatest,
    /// `coalesce(T?, ...) T`: the first that is not NULL; later ones are not evaluated.
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
    /// `counted(BYTES, U64) BYTES`, as the whole value to which a column of a row is set: that is the first argument,
    /// and only the second is here.
    Counted,
    /// `in_prefix(IPADDR, CIDR) BOOL`, also written `a IN net`.
    InPrefix,
    /// `is_group(MAC) BOOL`: whether its I/G bit is set.
    IsGroup,
    /// `prefix_bits(CIDR) U8`: how many bits of the network are given.
    PrefixBits,
    /// `same_family(IPADDR, CIDR) BOOL`: whether both are of IPv4, or both of IPv6.
    SameFamily,
    /// `a & b`: the bits that both have, of two integers of one type.
    BitAnd,
    /// A native function. The number names the call site as for `rand()`; 0 for a function that is pure.
    Native(NativeRef, u32),
}
