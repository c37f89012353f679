//! Lowers the typed program of a chain to the IR.
//!
//! - functions, and the boolean algebra of NULL and errors (`build`, `logic`);
//! - expressions (`expr`, `arith`, `convert`), table reads (`rows`), statements (`stmt`, `tables`, `verdict`);
//! - one handler with its error path (`handler`), and the environment of its expressions (`body`);
//! - the parser of frames, for a chain on ports (`wire`), and the programs beside such a chain (`frames`);
//! - queues, which have an IR of their own (`queue`);
//! - the chain's tables, variables, sinks and call's row (`declare`);
//! - this module assembles the chain.
//!
//! Errors: an expression carries its error as a flag and a code. The statement that uses it tests the flag first, and
//! jumps to the element's error path: the head of `ON ERROR`, or [`Terminator::Fail`](weft_ir::ir::Terminator::Fail).
//! It tests for a full scratch at the same time, and before each verdict.

mod arith;
mod body;
mod branch;
mod build;
mod convert;
mod declare;
mod expr;
mod frames;
mod handler;
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

use weft_core::limits::{ELEMENTS_MAX, HANDLER_OPS_MAX, INPUTS_MAX, SEGMENT_STEPS_MAX};
use weft_core::table::RemovalReason;
use weft_ir::ir::{Block, CallId, Function, SinkId, TableId, VarId};
use weft_ir::program::{ChainProgram, Element, Event, Handlers, RowRemoval};
use weft_lang::diagnostic::{Diagnostic, Label, code};
use weft_lang::hir::{self, HandlerKind, Network, TableRef};
use weft_lang::source::{SourceMap, Span};

use crate::cost::handler_ops;
use branch::{StageRoute, Steering};
pub use frames::{LoweredHeaders, lower_for_cut_frames, lower_group, lower_headers, lower_when};
use handler::Statements;
use locks::{Lock, lowered_handlers};
use names::Stage;
use oneof::Displaced;
pub use queue::queue;
pub(crate) use queue::{TooLong, lower_queue};
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
    declare::join_stage_tables(&mut scopes);
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
    let open = handler::condition(&mut lowering, &scope, route);
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

    /// Lowers the handlers of a stage, with their locks.
    fn element<'l>(&mut self, scope: &Scope<'n>, locks: impl IntoIterator<Item = &'l Lock>) -> Element {
        let hir::Element { handlers, call, .. } = scope.element;
        let mut lowered = Handlers::default();
        if handlers.open.is_none() && !call.is_empty() {
            lowered.open = Some(self.function(scope, HandlerKind::Open, None, &Lock::Free));
        }
        let mut intervals = scope.instance.every.iter();
        for (handler, lock) in lowered_handlers(scope.element).zip(locks) {
            let function = self.function(scope, handler.kind, Some(handler), lock);
            match handler.kind {
                HandlerKind::Open => lowered.open = Some(function),
                HandlerKind::Request => lowered.request = Some(function),
                HandlerKind::Response => lowered.response = Some(function),
                HandlerKind::Close => lowered.close = Some(function),
                HandlerKind::Every => lowered.every.extend(intervals.next().map(|every| (*every, function))),
                HandlerKind::Timeout | HandlerKind::Evict => {
                    let table = self.table_id(scope, handler.rows[hir::RowId::OLD.0].table);
                    let why = match handler.kind {
                        HandlerKind::Evict => RemovalReason::Evicted,
                        _ => RemovalReason::Expired,
                    };
                    lowered.timeouts.push((RowRemoval { table, why }, function));
                }
                HandlerKind::Error => unreachable!("ON ERROR is part of others"),
            }
        }
        Element {
            name: scope.instance.name.clone(),
            element: scope.element.name.clone(),
            handlers: lowered,
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
        let made = Statements::lower(self, scope, kind, handler, lock);
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
