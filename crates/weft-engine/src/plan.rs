//! Plans: what an engine runs.
//!
//! A [`Plan`] is one version of a network, made by the control side and shared by all workers. It never changes; a hot
//! update publishes the next one.

use crate::call_queue::CallQueue;
use crate::filter::Filter;
use crate::state::{Bound, Staged, StateMismatch};
use core::fmt;
use core::str::FromStr;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use weft_core::Interval;
use weft_core::filter::Policies;
use weft_core::inputs::InputSet;
use weft_core::limits::INPUTS_MAX;
use weft_core::options::{ClusterOptions, ListenerOptions};
use weft_core::schema::{Presence, Schema};
use weft_ir::backend::{Backend, Program, Unsupported};
use weft_ir::ir::{Function, Op, Terminator};
use weft_ir::program::{ChainProgram, Direction, Event, InputLocation, Meta, RowRemoval};
use weft_proto::session::grpc::protobuf::{Lists, ListsBuilder, Walk, WalkBuilder};

pub use weft_core::methods::MethodSet;
pub use weft_ir::program::{SinkFormat, SinkTarget};

/// One version of a network.
#[derive(Debug, Default)]
pub struct Plan {
    /// The version, counted from 1.
    pub version: u64,
    /// Its listeners: where sessions enter.
    pub listeners: Vec<Listener>,
    /// Its clusters: where sessions go.
    pub clusters: Vec<Arc<Cluster>>,
    /// Its routes; the first one that matches applies.
    pub routes: Vec<Route>,
    /// The chains of its routes.
    pub chains: Vec<Arc<Chain>>,
    /// Its call queues, at most one per listener and per cluster.
    pub call_queues: Vec<Arc<CallQueue>>,
}

/// A listener: where sessions enter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: Address,
    /// Its options for clients.
    pub options: Arc<ListenerOptions>,
}

/// The address of a session's peer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Address {
    /// An IP address and a port: `127.0.0.1:50051`. See [`Address::from`].
    Tcp(SocketAddr),
    /// The path of a Unix socket: `unix:/run/cart.sock`.
    Unix(String),
    /// A host name and a port: `cart.local:50051`. The driver resolves it.
    Name(String),
}

/// A cluster: where sessions go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// Its members.
    pub endpoints: Vec<Address>,
    /// The name of each member in the program, which REDIRECT and MIRROR may use beside its address.
    pub names: Vec<String>,
    /// The weight of each member, 1 or more.
    pub weights: Vec<u32>,
    /// How a member is chosen.
    pub balance: Balance,
    /// Options of its connections.
    pub options: ClusterOptions,
}

/// How a cluster chooses a member.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Balance {
    /// Round robin.
    #[default]
    RoundRobin,
    /// The member with the fewest open calls on this worker.
    LeastRequest,
    /// A random member, drawn from the call's id.
    Random,
}

/// A route from a listener to a cluster.
#[derive(Clone, Debug)]
pub struct Route {
    /// Its name.
    pub name: String,
    /// The index of its listener.
    pub listener: usize,
    /// Its methods.
    pub methods: MethodSet,
    /// The index of a chain with this route's condition and nothing else: OPEN forwards if it is met.
    pub condition: Option<usize>,
    /// The index of its cluster.
    pub cluster: usize,
    /// The chains of its edge with the methods of each, as indices; the first one that matches applies.
    pub chains: Vec<(MethodSet, usize)>,
}

/// A chain with its code and its state.
#[derive(Debug)]
pub struct Chain {
    /// The version of its plan.
    pub version: u64,
    /// The program of its elements.
    pub program: Arc<ChainProgram>,
    /// Its state.
    pub state: Bound,
    /// The methods that its schemas have.
    pub methods: Vec<Method>,
    /// A stream stays on its version, at most for this time.
    pub pin_stream: Option<Interval>,
    /// The filter behind its last element, and the chain behind that.
    pub next: Option<FilterLink>,
    /// Its index among the parts of its chain: the number of filters before it.
    pub part: usize,
    pub(crate) segments: Segments,
}

/// The filter behind a chain, and the chain behind that.
#[derive(Clone, Debug)]
pub struct FilterLink {
    /// A filter.
    pub filter: Arc<Filter>,
    /// The index of the chain behind it in [`Plan::chains`], higher than that of the chain itself.
    pub chain: usize,
}

/// A filter in a chain.
#[derive(Clone, Debug, PartialEq)]
pub struct FilterAt {
    /// The index of the element behind it.
    pub at: usize,
    /// The instance's name.
    pub name: String,
    /// Its policies.
    pub policies: Policies,
}

/// A method as a chain sees it.
#[derive(Debug)]
pub struct Method {
    /// `/shop.Cart/Add`
    pub path: String,
    /// The client may send any number of messages.
    pub client_streaming: bool,
    /// The server may send any number of messages.
    pub server_streaming: bool,
    pub(crate) request: Columns,
    pub(crate) response: Columns,
    /// The response type, an index into `schema`.
    pub(crate) output: usize,
    pub(crate) schema: Arc<Schema>,
}

/// The columns of a direction that are fields of one method's message.
#[derive(Debug)]
pub(crate) struct Columns {
    pub(crate) walk: Walk,
    /// Lists, map entries and the presence of messages.
    pub(crate) lists: Lists,
    /// Inputs whose field has a default if absent: they are never NULL.
    pub(crate) implicit: InputSet,
}

/// Compiled segments; those without a handler are None.
#[derive(Debug, Default)]
pub(crate) struct Segments {
    pub(crate) open: Option<Segment>,
    pub(crate) open_request: Option<Segment>,
    pub(crate) request: Option<Segment>,
    pub(crate) response: Option<Segment>,
    pub(crate) close: Option<Segment>,
    pub(crate) every: Vec<(Interval, Segment)>,
    pub(crate) timeouts: Vec<(RowRemoval, Segment)>,
}

/// One compiled segment.
#[derive(Debug)]
pub(crate) struct Segment {
    pub(crate) code: Box<dyn Program>,
    pub(crate) event: Event,
    /// The inputs that its code reads.
    pub(crate) reads: InputSet,
    /// It reads the status of the call.
    pub(crate) reads_status: bool,
    /// It may set headers of its direction, which must be held until the first message has passed.
    pub(crate) sets_headers: bool,
    /// It may redirect the message.
    pub(crate) redirects: bool,
    /// It sets keys for the filter behind the chain.
    pub(crate) sets_keys: bool,
    /// Its time depends on more than the bytes of its tuple: it scans a table, or calls native functions.
    pub(crate) may_be_slow: bool,
}

/// Why a chain cannot be run.
#[derive(Clone, Debug, PartialEq)]
pub enum ChainError {
    /// The back end cannot express it.
    Unsupported(Unsupported),
    /// Its state does not match the state of the node.
    State(StateMismatch),
    /// A column does not bind to a method's message.
    Column {
        /// The method.
        method: String,
        /// The column, and the reason.
        reason: String,
    },
}

impl fmt::Display for ChainError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unsupported(why) => write!(f, "the back end cannot express it: {why}"),
            Self::State(why) => write!(f, "{why}"),
            Self::Column { method, reason } => write!(f, "method {method}: {reason}"),
        }
    }
}

impl core::error::Error for ChainError {}

impl Chain {
    /// Binds a chain with filters to the state of an update, and compiles it: the part before the first filter, and for
    /// each filter the part behind it up to the next one. The first part becomes chain `first` of the plan, the others
    /// its chains from `rest` on.
    ///
    /// # Errors
    /// See [`ChainError`]. Abandon the update then.
    #[allow(clippy::too_many_arguments, reason = "an update has that many parts")]
    pub fn build_parts(
        version: u64,
        program: &ChainProgram,
        filters: &[FilterAt],
        rest: usize,
        schema: &Arc<Schema>,
        methods: &[String],
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Vec<Self>, ChainError> {
        let cuts: Vec<usize> = filters.iter().map(|filter| filter.at).collect();
        let mut chains = Vec::new();
        for (part, program) in program.cut(&cuts).into_iter().enumerate() {
            let mut chain = Self::build(version, program, schema, methods, state, backend)?;
            chain.part = part;
            if let Some(FilterAt { name, policies, .. }) = filters.get(part) {
                let filter = state.bind_filter(&chain.program.name, name, policies);
                let filter = Arc::new(filter.map_err(ChainError::State)?);
                chain.next = Some(FilterLink { filter, chain: rest + part });
            }
            chains.push(chain);
        }
        Ok(chains)
    }

    /// Binds a program to the state of an update and compiles its segments.
    ///
    /// `methods` lists the schema's methods that the chain covers, as `shop.Cart/Add`.
    ///
    /// # Errors
    /// See [`ChainError`]. Abandon the update then.
    pub fn build(
        version: u64,
        program: ChainProgram,
        schema: &Arc<Schema>,
        methods: &[String],
        state: &mut Staged,
        backend: &dyn Backend,
    ) -> Result<Self, ChainError> {
        let bound_methods = bind_methods(&program, schema, methods)?;
        let (program, state) = state.bind(program).map_err(ChainError::State)?;
        let program = Arc::new(program);
        let streams = !reads_body(&program) || bound_methods.iter().any(|m| m.client_streaming);
        let segments =
            Segments::compile(&program, &state, streams, backend).map_err(ChainError::Unsupported)?;
        Ok(Self {
            version,
            program,
            state,
            methods: bound_methods,
            pin_stream: None,
            next: None,
            part: 0,
            segments,
        })
    }

    pub(crate) fn method(&self, path: &[u8]) -> Option<usize> {
        self.methods.iter().position(|m| m.path.as_bytes() == path)
    }
}

impl Segments {
    /// Compiles the segments of a program. `streams`: there may be calls with several request messages, or with an
    /// unknown method.
    fn compile(
        program: &Arc<ChainProgram>,
        state: &Bound,
        streams: bool,
        backend: &dyn Backend,
    ) -> Result<Self, Unsupported> {
        let mut events = vec![Event::OpenRequest, Event::Response, Event::Close];
        if streams {
            events.extend([Event::Open, Event::Request]);
        }
        for (at, element) in program.elements.iter().enumerate() {
            let every = 0..element.handlers.every.len() as u16;
            events.extend(every.map(|nth| Event::Every(at as u16, nth)));
        }
        events.extend(program.timeouts().map(|(event, _)| event));
        let codes = backend.compile_all(program, &events, &state.for_worker(0))?;
        let mut segments = Self::default();
        for (event, code) in events.into_iter().zip(codes) {
            let Some(segment) = code.map(|code| Segment::new(program, event, code)) else { continue };
            match event {
                Event::Open => segments.open = Some(segment),
                Event::OpenRequest => segments.open_request = Some(segment),
                Event::Request => segments.request = Some(segment),
                // Frames have segments of their own.
                Event::Parse => {}
                Event::Response => segments.response = Some(segment),
                Event::Close => segments.close = Some(segment),
                Event::Every(at, nth) => {
                    let (interval, _) = program.elements[usize::from(at)].handlers.every[usize::from(nth)];
                    segments.every.push((interval, segment));
                }
                Event::Timeout(at, nth) => {
                    let (departs, _) = program.elements[usize::from(at)].handlers.timeouts[usize::from(nth)];
                    segments.timeouts.push((departs, segment));
                }
            }
        }
        Ok(segments)
    }
}

impl Segment {
    /// Creates a segment from the code of an event, with the facts about it that the engine needs.
    fn new(program: &ChainProgram, event: Event, code: Box<dyn Program>) -> Self {
        let parts = program.parts(event);
        let direction = if event.is_request() { &program.request } else { &program.response };
        let (mut reads, mut sets_headers, mut sets_keys) = (InputSet::EMPTY, false, false);
        for op in parts.iter().flat_map(|p| ops(p.function)) {
            match op {
                Op::Input(id) | Op::Derived(id) | Op::InputPresent(id) => reads.insert(*id),
                Op::SetInput(id, _) | Op::ClearInput(id) => {
                    let place = &direction.inputs[usize::from(id.0)].place;
                    sets_headers |= matches!(place, InputLocation::Header(_));
                    sets_keys |= matches!(place, InputLocation::Key(_));
                }
                _ => {}
            }
        }
        let ends = parts.iter().flat_map(|p| p.function.blocks.iter().map(|b| &b.end));
        let redirects = ends.into_iter().any(|end| matches!(end, Terminator::Redirect { .. }));
        let scans = parts.iter().any(|p| p.function.blocks.iter().any(|b| b.scan_rows_max.is_some()));
        let may_be_slow =
            scans || parts.iter().flat_map(|p| ops(p.function)).any(|op| matches!(op, Op::Native(..)));
        let mut inputs = direction.inputs.iter().enumerate();
        let reads_status =
            inputs.any(|(at, input)| input.place == InputLocation::Meta(Meta::Status) && reads.contains(at));
        Self { code, event, reads, reads_status, sets_headers, redirects, sets_keys, may_be_slow }
    }
}

/// Whether the chain reads message bodies: calls of methods without a schema are refused, as they would pass unread.
pub(crate) fn reads_body(program: &ChainProgram) -> bool {
    let inputs = program.request.inputs.iter().chain(&program.response.inputs);
    inputs.into_iter().any(|input| input.place.path().is_some_and(|path| !path.is_empty()))
}

fn ops(function: &Function) -> impl Iterator<Item = &Op> {
    function.blocks.iter().flat_map(|b| b.insts.iter().map(|i| &i.op))
}

/// Binds the program's columns to the message types of each method that the chain covers.
fn bind_methods(
    program: &ChainProgram,
    schema: &Arc<Schema>,
    methods: &[String],
) -> Result<Vec<Method>, ChainError> {
    let mut bound = Vec::new();
    let used = (used_inputs(program, true), used_inputs(program, false));
    for (path, method) in schema.methods().filter(|(path, _)| methods.contains(path)) {
        let column = |reason| ChainError::Column { method: path.clone(), reason };
        bound.push(Method {
            request: columns(&program.request, &used.0, schema, method.input).map_err(column)?,
            response: columns(&program.response, &used.1, schema, method.output).map_err(column)?,
            output: method.output,
            schema: Arc::clone(schema),
            client_streaming: method.client_streaming,
            server_streaming: method.server_streaming,
            path: format!("/{path}"),
        });
    }
    Ok(bound)
}

/// Returns the inputs of a direction that the program's elements use, since a part of a chain does not parse those of
/// other parts.
fn used_inputs(program: &ChainProgram, is_request: bool) -> BTreeSet<usize> {
    let mut events = vec![Event::OpenRequest];
    if !is_request {
        events = vec![Event::Response, Event::Close];
    }
    let mut used = BTreeSet::new();
    for part in events.iter().flat_map(|event| program.parts(*event)) {
        used.extend(ops(part.function).filter_map(|op| match op {
            Op::Input(id)
            | Op::Derived(id)
            | Op::InputPresent(id)
            | Op::SetInput(id, _)
            | Op::ClearInput(id) => Some(usize::from(id.0)),
            _ => None,
        }));
    }
    used
}

/// Builds the extractor of a direction's columns from a message type. An error says which column does not fit.
fn columns(
    direction: &Direction,
    used: &BTreeSet<usize>,
    schema: &Schema,
    message: usize,
) -> Result<Columns, String> {
    assert!(direction.inputs.len() <= INPUTS_MAX, "the checker bounds the inputs of a chain");
    let mut builder = WalkBuilder::new(schema, message);
    let mut lists = ListsBuilder::new(schema, message);
    let mut implicit = InputSet::EMPTY;
    for (slot, input) in direction.inputs.iter().enumerate().filter(|(slot, _)| used.contains(slot)) {
        let Some(path) = input.place.path().filter(|path| !path.is_empty()) else { continue };
        let path = names(path);
        match &input.place {
            InputLocation::Entry(_, key) => lists.value(&path, key.clone(), slot).map(|_| ()),
            InputLocation::Present(_) => lists.present(&path, slot),
            InputLocation::List(list) => {
                let members: Vec<Vec<&str>> = list.members.iter().map(|member| names(member)).collect();
                lists.list(&path, &members, list.elements_max, slot)
            }
            _ => builder.column(&path, slot).map(|(_, presence)| {
                implicit.set(slot, presence == Presence::Implicit);
            }),
        }
        .map_err(|e| e.to_string())?;
    }
    Ok(Columns { walk: builder.build(), lists: lists.build(), implicit })
}

fn names(path: &[String]) -> Vec<&str> {
    path.iter().map(String::as_str).collect()
}

impl Route {
    /// The chain for calls of this method, if any.
    pub(crate) fn chain_for(&self, path: &[u8]) -> Option<usize> {
        self.chains.iter().find(|(methods, _)| methods.contains(path)).map(|(_, chain)| *chain)
    }
}

impl Plan {
    /// The index of the listener with this name.
    pub fn listener(&self, name: &str) -> Option<usize> {
        self.listeners.iter().position(|l| l.name == name)
    }

    /// The index of the cluster with this name.
    pub fn cluster(&self, name: &str) -> Option<usize> {
        self.clusters.iter().position(|c| c.name == name)
    }
}

impl FromStr for Address {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if let Some(path) = text.strip_prefix("unix:") {
            return Ok(Self::Unix(path.to_owned()));
        }
        text.parse::<SocketAddr>().map(Self::from).map_err(|_| {
            format!("`{text}` is not an address: write an IP address with a port, or `unix:` and a path")
        })
    }
}

impl From<SocketAddr> for Address {
    /// `::ffff:10.0.0.1` is the IPv4 node 10.0.0.1 (RFC 4291 section 2.5.5.2), and has its name.
    fn from(address: SocketAddr) -> Self {
        Self::Tcp(SocketAddr::new(address.ip().to_canonical(), address.port()))
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => write!(f, "{address}"),
            Self::Unix(path) => write!(f, "unix:{path}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}
