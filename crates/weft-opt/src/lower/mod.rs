//! Lowers the typed program of a chain to the IR.
//!
//! - functions, and the boolean algebra of NULL and errors (`build`, `logic`);
//! - expressions (`expr`, `arith`, `convert`), table reads (`rows`), statements (`stmt`, `tables`, `verdict`);
//! - one handler with its error path (`body`);
//! - the parser of frames, for a chain on ports (`wire`);
//! - queues, which have an IR of their own (`queue`);
//! - this module assembles the chain: inputs, tables, variables, sinks, the call's row.
//!
//! Errors: an expression carries its error as a flag and a code. The statement that uses it tests the flag first, and
//! jumps to the element's error path: the head of `ON ERROR`, or [`Terminator::Fail`](weft_ir::ir::Terminator::Fail).
//! It tests for a full scratch at the same time, and before each verdict.

mod arith;
mod body;
mod branch;
mod build;
mod convert;
mod expr;
mod list;
mod locks;
mod logic;
mod names;
mod native;
mod oneof;
mod places;
mod queue;
mod reshape;
mod rows;
mod stmt;
mod tables;
mod verdict;
mod walk;
mod wire;

use std::collections::BTreeMap;

use weft_core::Value;
use weft_core::limits::{
    ELEMENTS_MAX, HANDLER_OPS_MAX, INPUTS_MAX, KEY_BYTES_MAX, ROW_BYTES_MAX, SEGMENT_STEPS_MAX,
};
use weft_core::table::{ColumnSpec, Evict, RemovalReason, TableSpec};
use weft_core::wire::{FieldRef, ProtocolId};
use weft_ir::ir::{Block, CallId, Function, SinkId, TableId, VarId};
use weft_ir::program::{
    CallCell, ChainProgram, Element, Event, Frames, Handlers, Input, InputLocation, Merge, Meta, Realisation,
    RowRemoval, SinkColumn, SinkDecl, SinkFormat, SinkTarget, TableDecl, VarDecl, cell_words,
};
use weft_lang::ast;
use weft_lang::check::fold::fold;
use weft_lang::diagnostic::{Diagnostic, Label, code};
use weft_lang::hir::{self, FillTarget, HandlerKind, Network, TableRef};
use weft_lang::source::{SourceMap, Span};
use weft_lang::types;

use crate::cost::handler_ops;
use body::Body;
use branch::{StageRoute, Steering};
use locks::{Lock, Touches};
use names::Stage;
use oneof::Displaced;
pub use queue::{TooLong, queue, queue_too_long};
use reshape::Roots;
use weft_ir::{passes, size};

/// Inputs of lowering besides the program.
#[derive(Clone, Copy, Debug)]
pub struct LowerOptions {
    /// Number of threads that will run the chain; one needs no locks.
    pub workers: usize,
}

/// The path of a `SINK ... TO FILE` that means standard output.
pub const STDOUT_PATH: &str = "-";

/// Lowers a chain of a checked network; `chain` is an index into [`Network::chains`]. Instructions and verdicts have
/// line 0: see [`lower_with_lines`].
///
/// # Errors
/// The chain exceeds the limits of [`weft_core::limits`], or what the IR can express.
///
/// # Panics
/// The network has no such chain.
pub fn lower(
    network: &Network,
    chain: usize,
    options: &LowerOptions,
) -> Result<ChainProgram, Vec<Diagnostic>> {
    lower_chain(Lowering::new(network, *options, None, &network.chains[chain].name), chain)
}

/// As [`lower`], with the source lines of faults, verdicts and counters, from the texts that were checked.
///
/// # Errors
/// As for [`lower`].
///
/// # Panics
/// The network has no such chain, or was not made from these texts.
pub fn lower_with_lines(
    network: &Network,
    chain: usize,
    options: &LowerOptions,
    sources: &SourceMap,
) -> Result<ChainProgram, Vec<Diagnostic>> {
    lower_chain(Lowering::new(network, *options, Some(sources), &network.chains[chain].name), chain)
}

/// Gives stages the tables of other stages that they use: the checker guarantees that each is unique.
fn join_stage_tables(scopes: &mut [Scope<'_>]) {
    for at in 0..scopes.len() {
        for (index, table) in scopes[at].element.tables.iter().enumerate() {
            let Some(stage) = &table.stage else { continue };
            let found = scopes.iter().find(|scope| scope.element.name == *stage).and_then(|scope| {
                let of = scope.element.tables.iter().position(|other| other.name == table.name)?;
                Some(scope.tables[of])
            });
            scopes[at].tables[index] = found.expect("the checker has found the table of the stage");
        }
    }
}

/// As [`lower_with_lines`] and [`lower_when`], for frames that a capture may have truncated: a frame may be shorter
/// than its headers say. Only the parsers differ.
///
/// # Errors
/// As for [`lower`].
///
/// # Panics
/// As for [`lower_with_lines`].
pub fn lower_for_cut_frames(
    network: &Network,
    chain: usize,
    options: &LowerOptions,
    sources: &SourceMap,
) -> Result<(ChainProgram, Option<ChainProgram>), Vec<Diagnostic>> {
    let lowering = |name: &str| {
        let lowering = Lowering::new(network, *options, Some(sources), name);
        Lowering { is_cut: true, ..lowering }
    };
    let condition = condition_of(network, chain, lowering).transpose()?;
    Ok((lower_chain(lowering(&network.chains[chain].name), chain)?, condition))
}

/// Lowers a chain: declares all state, plans the locks, and lowers each element and the parsers of frames.
fn lower_chain(mut lowering: Lowering<'_>, chain: usize) -> Result<ChainProgram, Vec<Diagnostic>> {
    let network = lowering.network;
    let chain_decl = &network.chains[chain];
    if let hir::Edge::Packets { ports, to, .. } = &chain_decl.edge {
        // The ports of a group are alike.
        let out = to.and_then(|to| network.ports_of(to).first().copied());
        lowering.roots = lowering.roots_of(ports, out);
        lowering.outlet = to.map(|to| match to {
            hir::Outlet::Port(at) => network.ports[at].name.clone(),
            hir::Outlet::Group(at) => network.groups[at].name.clone(),
        });
    }
    lowering.displaced = Displaced::of(network, chain_decl)?;
    let mut scopes: Vec<Scope<'_>> =
        chain_decl.instances.iter().enumerate().map(|(at, _)| lowering.declare(chain, at)).collect();
    join_stage_tables(&mut scopes);
    let plans = lowering.plan_locks(&scopes);
    let steering = Steering::of(chain_decl, &mut lowering);
    for (at, (scope, locks)) in scopes.iter().zip(plans).enumerate() {
        lowering.is_last = at + 1 == scopes.len();
        lowering.route = steering.route_of(at);
        let changes = |direction| move |scope: &Scope<'_>| scope.changes(direction);
        lowering.changed = ChangedFields {
            request: scopes[..=at].iter().any(changes(hir::Direction::Request)),
            response: scopes[at..].iter().any(changes(hir::Direction::Response)),
        };
        let told = lowering.diagnostics.len();
        let element = lowering.element(scope, &locks);
        lowering.program.elements.push(element);
        lowering.name_stage(told, scope);
        // The others may be as long, and would never run.
        if lowering.diagnostics[told..].iter().any(|diagnostic| diagnostic.code == code::CHAIN_TOO_LARGE) {
            return Err(lowering.diagnostics);
        }
    }
    if let hir::Edge::Packets { ports, .. } = &chain_decl.edge {
        let stages: Vec<Stage<'_>> = scopes.iter().map(|scope| (scope.element, scope.instance)).collect();
        lowering.frames(ports, &stages, chain_decl.span);
    }
    for (at, instance) in chain_decl.instances.iter().enumerate() {
        lowering.check_budget(at, instance.span);
    }
    lowering.finish(chain_decl.span)
}

/// Lowers the condition of a chain on frames: `WHEN`. The program has one element, which drops frames that the chain
/// does not accept. None if the chain accepts all, or is not on frames; `chain` is an index into [`Network::chains`].
///
/// # Errors
/// As for [`lower`].
///
/// # Panics
/// The network has no such chain.
pub fn lower_when(
    network: &Network,
    chain: usize,
    options: &LowerOptions,
    sources: Option<&SourceMap>,
) -> Option<Result<ChainProgram, Vec<Diagnostic>>> {
    condition_of(network, chain, |name| Lowering::new(network, *options, sources, name))
}

/// Lowers the WHEN of a chain as a program of its own. None if the chain has none.
fn condition_of<'n>(
    network: &'n Network,
    chain: usize,
    lowering: impl FnOnce(&str) -> Lowering<'n>,
) -> Option<Result<ChainProgram, Vec<Diagnostic>>> {
    let chain = &network.chains[chain];
    let hir::Edge::Packets { ports, when: Some(when), .. } = &chain.edge else { return None };
    let (element, instance) = &**when;
    let mut lowering = lowering(&format!("{} when", chain.name));
    lowering.lower_standalone(element, instance, ports, chain.span);
    Some(lowering.finish(chain.span))
}

/// Lowers the flow key of a group: the program has one element, which marks a frame with the hash of the key. None if
/// the group has no key; `group` is an index into [`Network::groups`].
///
/// # Errors
/// As for [`lower`].
///
/// # Panics
/// The network has no such group.
pub fn lower_group(
    network: &Network,
    group: usize,
    options: &LowerOptions,
    sources: Option<&SourceMap>,
) -> Option<Result<ChainProgram, Vec<Diagnostic>>> {
    let group = &network.groups[group];
    let (element, instance) = &*group.key.as_ref()?.element;
    let element_span = instance.span;
    let ports: Vec<usize> = group.members.iter().map(|(port, _)| *port).collect();
    let mut lowering = Lowering::new(network, *options, sources, &format!("{} key", group.name));
    lowering.lower_standalone(element, instance, &ports, group.span);
    let comes_in = |input: &&Input| input.place == InputLocation::Meta(Meta::Port);
    if lowering.program.request.inputs.iter().any(|input| comes_in(&input)) {
        let message = "a group tells frames apart by what is in them";
        let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, message)
            .at(element_span, "`port`, where a frame came in, is not known where it leaves")
            .with_help("let an element send such frames to a port by its name");
        lowering.report(diagnostic);
    }
    Some(lowering.finish(group.span))
}

/// A program without elements, whose parser finds the headers that a queue reads; and for each of
/// [`Queue::headers`](hir::Queue::headers) its input of the request.
pub type LoweredHeaders = (ChainProgram, Vec<u16>);

/// Lowers the headers that the queue of a link reads. None if it reads none; `link` is an index into
/// [`Network::links`].
///
/// # Errors
/// As for [`lower`].
///
/// # Panics
/// The network has no such link.
pub fn lower_headers(
    network: &Network,
    link: usize,
    options: &LowerOptions,
) -> Option<Result<LoweredHeaders, Vec<Diagnostic>>> {
    let link = &network.links[link];
    let headers = link.queue.headers();
    if headers.is_empty() {
        return None;
    }
    let mut lowering = Lowering::new(network, *options, None, &format!("{} headers", link.name));
    lowering.roots = lowering.roots_of(&[link.port], None);
    let inputs = headers.iter().map(|header| {
        let place = InputLocation::Frame(header.field.clone());
        places::input(&mut lowering.program, hir::Direction::Request, place, header.ty, true, false).0
    });
    let inputs = inputs.collect();
    lowering.frames(&[link.port], &[], link.span);
    Some(lowering.finish(link.span).map(|program| (program, inputs)))
}

/// The names of protocols that frames may begin with: on devices and captures of Ethernet, and on `tun`.
const ETHERNET: &[&str] = &["ethernet"];
const IP: &[&str] = &["ipv4", "ipv6"];

/// Whether the frames of a port are IP packets, without a link header.
fn is_tun(network: &Network, port: usize) -> bool {
    network.ports[port].kind == hir::PortKind::Tun
}

/// Lowers the condition of a route; `route` is an index into [`Network::routes`].
///
/// The program has one element, named `route r1` after the route. Its OPEN forwards if the condition is true or
/// missing, else it drops. An error in the condition fails, which does not match either.
///
/// # Errors
/// As for [`lower`].
///
/// # Panics
/// The network has no such route.
pub fn lower_condition(
    network: &Network,
    route: usize,
    options: &LowerOptions,
) -> Result<ChainProgram, Vec<Diagnostic>> {
    let route = &network.routes[route];
    let name = format!("route {}", route.name);
    let mut lowering = Lowering::new(network, *options, None, &name);
    let (element, instance) = pseudo_element(&name, route);
    let scope = Scope::of(&element, &instance);
    let open = body::condition(&mut lowering, &scope, route);
    let open = lowering.cleaned(open, route.span);
    let handlers = Handlers { open: Some(open), ..Handlers::default() };
    let element = Element { name: name.clone(), element: name, handlers, mandatory: true, fail_open: false };
    lowering.program.elements.push(element);
    lowering.finish(route.span)
}

/// The element for a route's condition, without declarations.
fn pseudo_element(name: &str, route: &hir::Route) -> (hir::Element, hir::Instance) {
    let element = hir::Element::empty(name, route.span);
    let instance = hir::Instance {
        name: name.to_owned(),
        element: 0,
        params: Vec::new(),
        bindings: Vec::new(),
        tables: Vec::new(),
        every: Vec::new(),
        sinks: Vec::new(),
        side: None,
        mandatory: true,
        fail_open: false,
        per_try: false,
        span: route.span,
    };
    (element, instance)
}

/// The lowering of a chain.
pub(crate) struct Lowering<'n> {
    network: &'n Network,
    options: LowerOptions,
    sources: Option<&'n SourceMap>,
    program: ChainProgram,
    /// The chain's table for each used entry of [`Network::tables`].
    shared: BTreeMap<usize, TableId>,
    diagnostics: Vec<Diagnostic>,
    /// The first protocols of the chain's frames.
    roots: Roots,
    /// The destination of the chain: the name of a port or group.
    outlet: Option<String>,
    /// The current element is the last of the chain.
    is_last: bool,
    /// The route of the current stage, if frames may be steered.
    route: StageRoute,
    /// What setting a field displaces.
    displaced: Displaced,
    /// What may have changed before the current element.
    changed: ChangedFields,
    /// The frames were truncated by a capture.
    is_cut: bool,
}

/// Whether fields of a message may have been set by the current element, or by earlier ones.
#[derive(Clone, Copy, Debug, Default)]
struct ChangedFields {
    request: bool,
    response: bool,
}

/// An instance, and the chain's indexes of its declarations.
pub(crate) struct Scope<'n> {
    element: &'n hir::Element,
    instance: &'n hir::Instance,
    tables: Vec<TableId>,
    vars: Vec<VarId>,
    call: Vec<CallId>,
    sinks: Vec<SinkId>,
}

impl<'n> Scope<'n> {
    fn of(element: &'n hir::Element, instance: &'n hir::Instance) -> Self {
        let (tables, vars, call, sinks) = Default::default();
        Self { element, instance, tables, vars, call, sinks }
    }

    /// The expression of a column that is bound to one.
    fn computed(&self, column: usize) -> Option<&'n hir::Expr> {
        match &self.instance.bindings[column].place {
            hir::ColumnLocation::Computed(expr) => Some(expr),
            _ => None,
        }
    }

    /// Whether an expression uses values that are derived from a call's message.
    fn is_derived(&self, expr: &hir::Expr) -> bool {
        let place = match &expr.kind {
            hir::ExprKind::Meta(meta) => places::meta(*meta),
            // Setting a field may change the expression under another name.
            hir::ExprKind::Column(column) if self.computed(*column).is_some() => return true,
            hir::ExprKind::Column(column) => places::bound(&self.instance.bindings[*column].place),
            _ => return false,
        };
        place.is_derived() && !matches!(self.element.layer, hir::Layer::Packet(_))
    }

    /// Whether the element may change fields of messages in this direction.
    fn changes(&self, direction: hir::Direction) -> bool {
        let is_field = |at: &usize| {
            let place = &self.instance.bindings[*at].place;
            self.element.columns[*at].direction == direction && matches!(place, hir::ColumnLocation::Body(_))
        };
        self.element.handlers.iter().any(|handler| handler.effects.columns_written.iter().any(is_field))
    }

    /// The handler that may replace this one: ON ERROR does not follow EVERY, TIMEOUT, EVICT, or itself.
    fn on_error(&self, kind: HandlerKind) -> Option<&'n hir::Handler> {
        self.element.handlers.error.as_ref().filter(|_| !kind.is_timed())
    }
}

/// The locks of an instance's handlers.
#[derive(Clone, Debug, Default)]
struct Locks {
    open: Lock,
    request: Lock,
    response: Lock,
    close: Lock,
    every: Vec<Lock>,
    timeouts: Vec<Lock>,
}

impl Locks {
    /// Sets the lock of a handler of this kind.
    fn set(&mut self, kind: HandlerKind, lock: Lock) {
        match kind {
            HandlerKind::Open => self.open = lock,
            HandlerKind::Request => self.request = lock,
            HandlerKind::Response => self.response = lock,
            HandlerKind::Close => self.close = lock,
            HandlerKind::Every => self.every.push(lock),
            HandlerKind::Timeout | HandlerKind::Evict => self.timeouts.push(lock),
            HandlerKind::Error => {}
        }
    }
}

impl<'n> Lowering<'n> {
    /// Starts the program of a chain or condition, with this name.
    fn new(network: &'n Network, options: LowerOptions, sources: Option<&'n SourceMap>, name: &str) -> Self {
        let program = ChainProgram { name: name.to_owned(), ..ChainProgram::default() };
        let (shared, diagnostics) = (BTreeMap::new(), Vec::new());
        let roots = Roots::default();
        Self {
            network,
            options,
            sources,
            program,
            shared,
            diagnostics,
            roots,
            outlet: None,
            is_last: false,
            route: StageRoute::Only,
            displaced: Displaced::default(),
            changed: ChangedFields::default(),
            is_cut: false,
        }
    }

    /// Whether the message may have changed since the start of the pass.
    fn may_change(&self, direction: hir::Direction) -> bool {
        match direction {
            hir::Direction::Request => self.changed.request,
            hir::Direction::Response => self.changed.response,
        }
    }

    fn report(&mut self, diagnostic: Diagnostic) {
        self.diagnostics.push(diagnostic);
    }

    /// The source line of a span's start, 0 without texts.
    fn line(&self, span: Span) -> u32 {
        self.sources.map_or(0, |sources| sources.file(span.file).position(span.start).line)
    }

    /// Returns the declaration of a table that an element uses.
    fn table_decl(&self, scope: &Scope<'n>, table: TableRef) -> &'n hir::Table {
        match table {
            TableRef::Own(index) => &scope.element.tables[index],
            TableRef::Shared(index) => &self.network.tables[index],
        }
    }

    /// Returns the id of a table that an element uses.
    fn table_id(&self, scope: &Scope<'n>, table: TableRef) -> TableId {
        match table {
            TableRef::Own(index) => scope.tables[index],
            TableRef::Shared(index) => self.shared[&index],
        }
    }

    // ---- declarations ----

    /// Declares the tables, variables, call cells and sinks of a stage. Tables of other stages are filled in later.
    fn declare(&mut self, chain: usize, at: usize) -> Scope<'n> {
        let instance = &self.network.chains[chain].instances[at];
        let element = &self.network.elements[instance.element];
        let mut scope = Scope::of(element, instance);
        for (index, table) in element.tables.iter().enumerate() {
            if table.stage.is_some() {
                scope.tables.push(TableId(u16::MAX));
                continue;
            }
            let target = FillTarget::Own { chain, instance: at, table: index };
            let decl = self.table(table, &instance.name, instance.tables[index], &instance.params, target);
            scope.tables.push(decl);
        }
        self.declare_shared(element);
        for var in &element.vars {
            scope.vars.push(self.var(var, instance));
        }
        for cell in &element.call {
            scope.call.push(self.call_cell(cell, instance));
        }
        for (sink, target) in element.sinks.iter().zip(&instance.sinks) {
            scope.sinks.push(self.sink(element, sink, target, instance));
        }
        scope
    }

    /// Declares the shared tables that an element uses, unless they are declared already.
    fn declare_shared(&mut self, element: &'n hir::Element) {
        for handler in element.handlers.iter() {
            let effects = &handler.effects;
            for table in effects.tables_read.iter().chain(&effects.tables_written) {
                let TableRef::Shared(index) = *table else { continue };
                let decl = &self.network.tables[index];
                let Some(limits) = decl.limits.filter(|_| !self.shared.contains_key(&index)) else {
                    continue;
                };
                let id = self.table(decl, "", limits, &[], FillTarget::Shared(index));
                self.shared.insert(index, id);
            }
        }
    }

    /// Declares a table with its limits and initial rows.
    fn table(
        &mut self,
        table: &hir::Table,
        owner: &str,
        limits: hir::TableLimits,
        params: &[Value],
        target: FillTarget,
    ) -> TableId {
        let column = |column: &hir::TableColumn| ColumnSpec {
            name: column.name.clone(),
            ty: column.ty,
            nullable: column.nullable,
            default: column.default.as_ref().and_then(|e| fold(e, params).ok()).unwrap_or(Value::Null),
        };
        let (key, columns) = table.columns.split_at(table.n_keys);
        let realisation = match (table.filled.is_some(), table.per_worker) {
            (true, _) => Realisation::Replicated,
            (false, true) => Realisation::PerWorker,
            (false, false) => Realisation::Striped,
        };
        let evict = match table.evict {
            Some(ast::Evict::Oldest) => Evict::Oldest,
            Some(ast::Evict::Lru) => Evict::Lru,
            Some(ast::Evict::Reject) | None => Evict::Reject,
        };
        let spec = TableSpec {
            name: table.name.clone(),
            key: key.iter().map(column).collect(),
            columns: columns.iter().map(column).collect(),
            max_rows: limits.rows_max,
            evict,
            ttl: limits.ttl,
            ttl_on_access: table.ttl_on_access,
            ttl_on_insert: limits.ttl_on_insert,
            shared: self.options.workers > 1 && realisation == Realisation::Striped,
            stripes: None,
        };
        self.check_row(&spec, table.span);
        let fills = self.network.fills.iter().filter(|fill| fill.table == target);
        let rows = fills.flat_map(|fill| fill.rows.iter().cloned()).collect();
        self.program.tables.push(TableDecl { owner: owner.to_owned(), spec, realisation, rows });
        TableId(self.program.tables.len() as u16 - 1)
    }

    /// Reports a table whose rows or keys are too wide.
    fn check_row(&mut self, spec: &TableSpec, span: Span) {
        let key_bytes: u64 = spec.key.iter().map(|c| u64::from(c.ty.bytes_max().unwrap_or(0))).sum();
        if spec.row_bytes() > ROW_BYTES_MAX as u64 || key_bytes > KEY_BYTES_MAX as u64 {
            let message =
                format!("a row of `{}` has {} bytes, and its key {key_bytes}", spec.name, spec.row_bytes());
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                .at(span, "too wide")
                .with_help(format!("a row takes {ROW_BYTES_MAX} bytes at most, a key {KEY_BYTES_MAX}"));
            self.report(diagnostic);
        }
    }

    /// Declares a variable with its start value.
    fn var(&mut self, var: &hir::Var, instance: &hir::Instance) -> VarId {
        let start = var.start.as_ref().and_then(|e| fold(e, &instance.params).ok());
        let merge = var.merge.map(|merge| match merge {
            ast::Merge::Sum => Merge::Sum,
            ast::Merge::Max => Merge::Max,
            ast::Merge::Min => Merge::Min,
        });
        let id = self.program.vars.len();
        self.program.vars.push(VarDecl {
            owner: instance.name.clone(),
            name: var.name.clone(),
            ty: var.ty,
            word: id as u32,
            start: start.unwrap_or_else(|| types::zero(var.ty)),
            merge,
        });
        VarId(id as u16)
    }

    /// Declares a cell in the call's row, after the previous cells.
    fn call_cell(&mut self, cell: &hir::CallCell, instance: &hir::Instance) -> CallId {
        let word = self.program.call.last().map_or(0, |last| last.word as usize + cell_words(last.ty));
        self.program.call.push(CallCell {
            owner: instance.name.clone(),
            name: cell.name.clone(),
            ty: cell.ty,
            word: word as u32,
        });
        CallId(self.program.call.len() as u16 - 1)
    }

    /// Declares a sink with its target and format.
    fn sink(
        &mut self,
        element: &hir::Element,
        sink: &hir::Sink,
        target: &hir::SinkTarget,
        instance: &hir::Instance,
    ) -> SinkId {
        let format = match sink.format {
            ast::SinkFormat::Json => SinkFormat::Json,
            ast::SinkFormat::Text => SinkFormat::Text,
        };
        let target = match target {
            hir::SinkTarget::File(path) if path == STDOUT_PATH => SinkTarget::Stdout,
            hir::SinkTarget::File(path) => SinkTarget::File(path.clone()),
            hir::SinkTarget::Stdout => SinkTarget::Stdout,
            hir::SinkTarget::Metrics => SinkTarget::Metrics,
            hir::SinkTarget::Table { table, deletes } => {
                let (owner, table) = match table {
                    TableRef::Own(at) => (instance.name.clone(), element.tables[*at].name.clone()),
                    TableRef::Shared(at) => (String::new(), self.network.tables[*at].name.clone()),
                };
                SinkTarget::Table { owner, table, deletes: *deletes }
            }
        };
        let columns = sink.columns.iter().map(|c| SinkColumn { name: c.name.clone(), ty: c.ty }).collect();
        self.program.sinks.push(SinkDecl {
            owner: instance.name.clone(),
            name: sink.name.clone(),
            columns,
            target,
            format,
        });
        SinkId(self.program.sinks.len() as u16 - 1)
    }

    // ---- locks ----

    /// Plans the locks of all handlers together, so that they take tables in the same order. A single worker needs
    /// none.
    fn plan_locks(&mut self, scopes: &[Scope<'n>]) -> Vec<Locks> {
        let mut plans = vec![Locks::default(); scopes.len()];
        let (mut owners, mut touches) = (Vec::new(), Vec::new());
        for (at, scope) in scopes.iter().enumerate() {
            for handler in scope.element.handlers.iter().filter(|handler| handler.kind != HandlerKind::Error)
            {
                owners.push((at, handler.kind));
                touches.push(self.touches(scope, handler));
            }
        }
        let name_of = |table: TableId| {
            let decl = &self.program.tables[usize::from(table.0)];
            (decl.owner.clone(), decl.spec.name.clone())
        };
        let (locks, realisations) = locks::plan(&touches, name_of);
        for (table, realisation) in realisations {
            self.program.tables[usize::from(table.0)].realisation = realisation;
        }
        let is_alone = self.options.workers <= 1;
        for ((at, kind), lock) in owners.into_iter().zip(locks) {
            plans[at].set(kind, if is_alone { Lock::Free } else { lock });
        }
        plans
    }

    /// Collects the state that a handler and its ON ERROR access under locks.
    fn touches(&self, scope: &Scope<'n>, handler: &hir::Handler) -> Touches {
        let needs_lock = |table: TableRef| {
            let id = self.table_id(scope, table);
            let realisation = self.program.tables[usize::from(id.0)].realisation;
            matches!(realisation, Realisation::Striped | Realisation::Locked).then_some(id)
        };
        let var = |var: usize| scope.element.vars[var].merge.is_none().then(|| scope.vars[var].0);
        let n_keys = |table: TableRef| self.table_decl(scope, table).n_keys;
        let handlers: Vec<&hir::Handler> =
            [handler].into_iter().chain(scope.on_error(handler.kind)).collect();
        Touches::of(&handlers, &n_keys, scope, &needs_lock, &var)
    }

    // ---- elements ----

    fn element(&mut self, scope: &Scope<'n>, locks: &Locks) -> Element {
        let handlers = &scope.element.handlers;
        let open = if handlers.open.is_some() || !scope.element.call.is_empty() {
            Some(self.function(scope, HandlerKind::Open, handlers.open.as_ref(), &locks.open))
        } else {
            None
        };
        let mut one = |kind, handler: &'n Option<hir::Handler>, lock| {
            handler.as_ref().map(|handler| self.function(scope, kind, Some(handler), lock))
        };
        let request = one(HandlerKind::Request, &handlers.request, &locks.request);
        let response = one(HandlerKind::Response, &handlers.response, &locks.response);
        let close = one(HandlerKind::Close, &handlers.close, &locks.close);
        let every = handlers.every.iter().zip(&scope.instance.every).zip(&locks.every);
        let every = every
            .map(|((handler, interval), lock)| {
                (*interval, self.function(scope, HandlerKind::Every, Some(handler), lock))
            })
            .collect();
        let timeouts = handlers.timeouts.iter().zip(&locks.timeouts);
        let timeouts = timeouts
            .map(|(handler, lock)| {
                let table = self.table_id(scope, handler.rows[hir::RowId::OLD.0].table);
                let why = match handler.kind {
                    HandlerKind::Evict => RemovalReason::Evicted,
                    _ => RemovalReason::Expired,
                };
                (RowRemoval { table, why }, self.function(scope, handler.kind, Some(handler), lock))
            })
            .collect();
        Element {
            name: scope.instance.name.clone(),
            element: scope.element.name.clone(),
            handlers: Handlers { open, request, response, close, every, timeouts },
            mandatory: scope.instance.mandatory,
            fail_open: scope.instance.fail_open,
        }
    }

    fn function(
        &mut self,
        scope: &Scope<'n>,
        kind: HandlerKind,
        handler: Option<&'n hir::Handler>,
        lock: &Lock,
    ) -> Function {
        let made = Body::lower(self, scope, kind, handler, lock);
        self.cleaned(made, handler.map_or(scope.instance.span, |handler| handler.span))
    }

    /// Optimizes a function. Reports one that is too long.
    fn cleaned(&mut self, made: Option<Function>, span: Span) -> Function {
        if let Some(made) = made {
            return passes::clean(made);
        }
        self.report(too_long("this", span));
        Function { blocks: vec![Block::default()], ..Function::default() }
    }

    /// Reports a segment that is too long for a backend to compile as one function.
    fn check_segment_size(&mut self, span: Span) {
        let events = [Event::Open, Event::OpenRequest, Event::Response, Event::Close];
        let of_event = |event: &Event| size::segment_steps(&self.program, *event);
        if let Some(event) = events.iter().find(|event| of_event(event) > SEGMENT_STEPS_MAX) {
            let handlers = match event {
                Event::Response => "the ON RESPONSE of all elements together",
                Event::Close => "the ON CLOSE of all elements together",
                _ => "the ON OPEN and ON REQUEST of all elements together",
            };
            self.report(too_long(handlers, span));
        }
    }

    /// Adds to later errors the stage that they are for, if it is in another file: the stage's arguments may be the
    /// cause.
    fn name_stage(&mut self, from: usize, scope: &Scope<'_>) {
        let stage = scope.instance.span;
        for diagnostic in &mut self.diagnostics[from..] {
            if diagnostic.labels.iter().all(|label| label.span.file != stage.file) {
                diagnostic.labels.push(Label { span: stage, text: "for this stage".into(), primary: false });
            }
        }
    }

    /// Lowers an element as a program of its own, on frames of these ports.
    fn lower_standalone(
        &mut self,
        element: &'n hir::Element,
        instance: &'n hir::Instance,
        ports: &[usize],
        span: Span,
    ) {
        self.roots = self.roots_of(ports, None);
        let lowered = self.element(&Scope::of(element, instance), &Locks::default());
        self.program.elements.push(lowered);
        self.frames(ports, &[(element, instance)], span);
    }

    /// Makes the parser for the inputs of a chain on frames.
    fn frames(&mut self, ports: &[usize], stages: &[Stage<'_>], span: Span) {
        let network = self.network;
        for input in &mut self.program.request.inputs {
            match &input.place {
                InputLocation::Frame(field) => input.name = network.field_name(field),
                InputLocation::Layer(layer) => {
                    input.name = network.field_name(&FieldRef::presence(layer.clone()));
                }
                _ => {}
            }
        }
        let n_tuns = ports.iter().filter(|port| is_tun(network, **port)).count();
        if n_tuns > 0 && n_tuns < ports.len() {
            let message = "some ports of the chain carry Ethernet frames, others IP packets";
            let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, message)
                .at(span, "ports of two kinds")
                .with_help("make two chains, or a `tap` of the `tun`");
            return self.report(diagnostic);
        }
        let names = if n_tuns > 0 { IP } else { ETHERNET };
        let roots = self.roots.inside.clone();
        let is_of_frame =
            |input: &Input| matches!(input.place, InputLocation::Frame(_) | InputLocation::Layer(_));
        let has_fields = self.program.request.inputs.iter().any(is_of_frame);
        if has_fields && roots.is_empty() {
            let message =
                format!("frames begin with `{}`, and there is no such PROTOCOL", names.join("` or `"));
            let diagnostic = Diagnostic::error(code::NOT_IN_NETWORK, message)
                .at(span, "on these ports")
                .with_help("import it: `IMPORT 'library/protocols/all.weft';`");
            return self.report(diagnostic);
        }
        let behind = reshape::inputs_behind_tunnels(&self.program);
        let ChainProgram { elements, request, .. } = &mut self.program;
        match wire::frames(&network.protocols, (&roots, self.is_cut), &mut request.inputs, elements, &behind)
        {
            Ok(frames) => self.program.frames = Some(Frames { is_ip: n_tuns > 0, ..frames }),
            Err(why) => {
                let diagnostic = names::refusal(network, &self.program, stages, (why, span));
                self.report(diagnostic);
            }
        }
    }

    /// The first protocols of frames on these ports, and where they leave.
    fn roots_of(&self, ports: &[usize], to: Option<usize>) -> Roots {
        let network = self.network;
        let of_name = |name: &&str| {
            let at = network.protocols.iter().position(|protocol| protocol.name == **name);
            at.map(|at| ProtocolId(at as u16))
        };
        let of_names = |names: &[&str]| names.iter().filter_map(of_name).collect::<Vec<_>>();
        let of_port = |port: usize| of_names(if is_tun(network, port) { IP } else { ETHERNET });
        let first = ports.first().copied();
        let links = if first.is_some_and(|port| is_tun(network, port)) { ETHERNET } else { &[] };
        Roots {
            inside: first.map_or_else(Vec::new, of_port),
            outside: to.map_or_else(Vec::new, of_port),
            links: of_names(links),
        }
    }

    /// Reports an element that could block all other calls of a worker.
    fn check_budget(&mut self, element: usize, span: Span) {
        let element = &self.program.elements[element];
        let ops = handler_ops(&element.handlers).named();
        let Some((handler, n)) = ops.into_iter().find(|(_, n)| *n > HANDLER_OPS_MAX) else { return };
        let message = format!("ON {handler} of `{}` may take {n} operations", element.name);
        let diagnostic = Diagnostic::error(code::OVER_BUDGET, message)
            .at(span, format!("{HANDLER_OPS_MAX} are the most"))
            .with_help("look rows up by their key, or give SCAN a smaller MAX: one in another multiplies");
        self.report(diagnostic);
    }

    /// Returns the chain if it is within the limits.
    fn finish(mut self, span: Span) -> Result<ChainProgram, Vec<Diagnostic>> {
        let program = &self.program;
        let lists = [
            ("inputs of the request", program.request.inputs.len(), INPUTS_MAX),
            ("inputs of the response", program.response.inputs.len(), INPUTS_MAX),
            ("elements", program.elements.len(), ELEMENTS_MAX),
            ("tables", program.tables.len(), LIST_MAX),
            ("variables", program.vars.len(), LIST_MAX),
            ("sinks", program.sinks.len(), LIST_MAX),
            ("CALL columns", program.call.len(), LIST_MAX),
            ("headers of answers", program.answers.len(), LIST_MAX),
            ("fields of replies", program.replies.len(), LIST_MAX),
            ("changes of structure", program.header_changes.len(), LIST_MAX),
            ("native functions", program.natives.len(), LIST_MAX),
        ];
        for (what, n, max) in lists.into_iter().filter(|(_, n, max)| n > max) {
            let message = format!("chain `{}` has {n} {what}, and {max} are the most", self.program.name);
            self.diagnostics.push(Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(span, "too large"));
        }
        if self.diagnostics.is_empty() {
            self.check_segment_size(span);
        }
        if !self.diagnostics.is_empty() {
            return Err(self.diagnostics);
        }
        if cfg!(debug_assertions)
            && let Err(errors) = weft_ir::verify::verify_program(&self.program)
        {
            let all: Vec<String> = errors.iter().map(ToString::to_string).collect();
            panic!("the lowered chain {} is not well-formed:\n{}", self.program.name, all.join("\n"));
        }
        Ok(self.program)
    }
}

/// Returns the diagnostic for a handler or chain with too many steps.
fn too_long(what: &str, span: Span) -> Diagnostic {
    let message = format!("{what} takes more than {SEGMENT_STEPS_MAX} steps once it is compiled");
    Diagnostic::error(code::CHAIN_TOO_LARGE, message)
        .at(span, "too long")
        .with_help("keep what a long list of cases says in a table, and look it up there by its key")
}

/// Largest number of tables, variables, sinks and the like of one chain: their indexes have 16 bits.
const LIST_MAX: usize = 1 << 15;
