//! Checks chains: instances with their parameters and bindings, options, and checks that depend on the traffic.

mod options;

use std::collections::{BTreeMap, BTreeSet};

use weft_core::limits::{ELEMENTS_MAX, INPUTS_MAX};
use weft_core::methods::MethodSet;
use weft_core::schema::{FieldKind, Message, Presence};
use weft_core::{Type, Value};

use super::element::{Checked, SinkDestination};
use super::expr::Environment;
use super::filter::{self, Filter, Placed};
use super::network::{self, find, find_cluster, find_listener, overlap};
use super::scope::{METAS, Scope, View, is_nullable_in_response, with_nearest, with_nearest_or_import};
use super::{Cx, binding, effects, element, empty_element, frame, header, native, table, walk};
use crate::ast::{self, ChainOn, ChainOptionKind, Ident, Stage, StageArg, StageNode};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Binding, Chain, Column, ColumnLocation, Direction, Effects, Element, Equivalence, Expr, ExprKind,
    FilterInstance, Group, Handler, HandlerKind, Instance, Layer, Method, Network, Outlet, Port, PortKind,
    Query, Route, SinkTarget, Stmt, StmtKind, Table, TableColumn, Verdict, VerdictKind,
};
use crate::nearest::nearest;
use crate::source::Span;
use crate::types;
use options::mandatory_may_fail;

/// Checks a chain; None if it has an error.
pub(super) fn chain(
    cx: &mut Cx<'_>,
    network: &Network,
    (elements, filters): (&mut Vec<Checked>, &[Filter<'_>]),
    ast: &ast::Chain,
) -> Option<Chain> {
    let had_gaps = cx.has_gaps;
    cx.has_gaps |= ast.is_faulty;
    let method = match &ast.on {
        ChainOn::Edge { method, .. } => method.as_ref(),
        ChainOn::Port { .. } => None,
    };
    let method_set = network::method_set(cx, method);
    let is_packet = matches!(ast.on, ChainOn::Port { .. });
    let methods = match &method_set {
        Some(set) if !is_packet => methods(cx, set),
        _ => Vec::new(),
    };
    let on = match &ast.on {
        ChainOn::Edge { from, to, .. } => {
            let from = find_listener(cx, from, &network.listeners);
            let to = find_cluster(cx, to, &network.clusters);
            from.zip(to).map(|(from, to)| crate::hir::Edge::Calls { from, to })
        }
        ChainOn::Port { ports, to, when, .. } => {
            packet_edge(cx, (&network.ports, &network.groups), ast, (ports, to.as_ref()), when.as_ref())
        }
    };
    let edge = Edge { methods: &methods, is_known: method_set.is_some(), is_packet, span: ast.name.span };
    let placed = stages_of(cx, (elements, filters), &edge, ast);
    let is_whole = placed.is_whole;
    elements.extend(placed.specialised);
    let mut chain = Chain {
        name: ast.name.name.clone(),
        edge: on.clone().unwrap_or(crate::hir::Edge::Calls { from: 0, to: 0 }),
        // An empty method set overlaps with no other chain.
        method_set: method_set.unwrap_or_else(|| MethodSet::of([])),
        methods: Vec::new(),
        instances: placed.instances,
        filters: placed.filters,
        equivalence: Equivalence::default(),
        pin_stream_drain: None,
        orders: Vec::new(),
        priorities: Vec::new(),
        unordered: placed.unordered,
        branches: Vec::new(),
        span: ast.span,
    };
    if is_packet {
        options::branches(cx, elements, ast, &mut chain, &placed.branches);
    }
    options::options(cx, ast, &mut chain, is_whole);
    options::sides(cx, ast, &mut chain);
    check_inputs(cx, elements, &chain, ast);
    if is_whole {
        stage_tables(cx, elements, &chain);
    }
    let cluster = chain.edge.calls().filter(|_| on.is_some()).map(|(_, to)| &network.clusters[to]);
    filter::check_chain(cx, &chain, &edge, cluster);
    chain.methods = methods;
    cx.has_gaps = had_gaps;
    on.is_some().then_some(chain)
}

/// Checks tables that belong to another stage: the chain must have exactly one stage of that element, with a table that
/// the controller fills and that has the same columns.
fn stage_tables(cx: &mut Cx<'_>, elements: &[Checked], chain: &Chain) {
    let of = |instance: &Instance| &elements[instance.element].element;
    for instance in &chain.instances {
        let tables = of(instance).tables.iter().filter_map(|table| Some((table, table.stage.as_ref()?)));
        for (table, stage) in tables {
            let stages: Vec<&Instance> =
                chain.instances.iter().filter(|other| of(other).name == *stage).collect();
            let one = format!("add one `{stage}` stage to the chain");
            let (why, help) = match stages[..] {
                [] => (format!("chain `{}` has no `{stage}` stage", chain.name), one),
                [one] if one.name == instance.name => (
                    format!("`{stage}` cannot fill its own table"),
                    "name another stage's element".to_owned(),
                ),
                [one] => match of(one).tables.iter().find(|other| other.name == table.name) {
                    None => (
                        format!("`{stage}` has no table `{}`", table.name),
                        "name one of its tables".to_owned(),
                    ),
                    Some(other) if !is_same(table, other) => (
                        format!(
                            "the table of `{stage}` has different columns, or is not FILLED BY CONTROLLER"
                        ),
                        "declare it with the same columns as that table".to_owned(),
                    ),
                    Some(_) => continue,
                },
                _ => (format!("chain `{1}` has {0} `{stage}` stages", stages.len(), chain.name), one),
            };
            let message = format!("`{}` of `{}` is a table of `{stage}`: {why}", table.name, instance.name);
            let diagnostic = Diagnostic::error(code::NO_SUCH_STAGE, message)
                .at(instance.span, "reads the table of another stage")
                .with_label(table.span, "declared here")
                .with_help(help);
            cx.report(diagnostic);
        }
    }
}

/// Whether two tables have the same row format.
fn is_same(table: &Table, other: &Table) -> bool {
    let column = |column: &TableColumn| (column.name.clone(), column.ty, column.nullable);
    let columns = |table: &Table| table.columns.iter().map(column).collect::<Vec<_>>();
    other.filled == Some(ast::Filler::Controller)
        && table.n_keys == other.n_keys
        && columns(table) == columns(other)
}

// ---- chains on ports -------------------------------------------------------------------------------------------

/// Checks the ports of a chain on frames; None if there is an error.
fn packet_edge(
    cx: &mut Cx<'_>,
    (all, groups): (&[Port], &[Group]),
    ast: &ast::Chain,
    (ports, to): (&[Ident], Option<&Ident>),
    when: Option<&ast::Expr>,
) -> Option<crate::hir::Edge> {
    let example = "ON packet 'eth0'";
    let group = to.and_then(|to| groups.iter().position(|group| group.name == to.name));
    // A group with an error is not in the list, but its name is known.
    let is_faulty = |to: &Ident| cx.ports.contains(&to.name) && !all.iter().any(|port| port.name == to.name);
    let is_faulty_group = group.is_none() && to.is_some_and(is_faulty);
    let mut find_port = |name: &Ident| find(cx, name, all, |port: &Port| &port.name, "port", example);
    let found: Vec<Option<usize>> = ports.iter().map(&mut find_port).collect();
    let to = match group {
        Some(group) => Some(Some(Outlet::Group(group))),
        None if is_faulty_group => Some(None),
        None => to.map(|to| find_port(to).map(Outlet::Port)),
    };
    for (at, name) in ports.iter().enumerate() {
        if let Some(first) = ports[..at].iter().find(|first| first.name == name.name) {
            cx.report_duplicate("port", name, first.span);
        }
    }
    let is_read = |at: &usize| !writes_capture(&all[*at]);
    if let Some((at, name)) = found.iter().flatten().zip(ports).find(|(at, _)| !is_read(at)) {
        let message = format!("port `{}` receives no frames", name.name);
        let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
            .at(name.span, "a capture file opened for writing")
            .with_label(all[*at].span, "declared here")
            .with_help(format!("use it as the output port: `ON PORT ... -> {}`", name.name));
        cx.report(diagnostic);
    }
    if let Some(Some(Outlet::Port(at))) = to
        && all[at].kind == PortKind::Pcap
        && is_read(&at)
    {
        let message = format!("port `{}` sends no frames", all[at].name);
        let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
            .at(all[at].span, "a capture file opened for reading")
            .with_help("open it for writing: `WITH (write = TRUE)`");
        cx.report(diagnostic);
    }
    let when = match when {
        Some(when) => Some(Box::new(when_element(cx, ast, when)?)),
        None => None,
    };
    let ports = found.into_iter().collect::<Option<Vec<usize>>>()?;
    let to = match to {
        Some(to) => Some(to?),
        None => None,
    };
    Some(crate::hir::Edge::Packets { ports, to, when })
}

pub(super) fn writes_capture(port: &Port) -> bool {
    port.options.iter().any(|option| option.name == "write" && option.value == Value::Bool(true))
}

/// `WHEN` of a chain on frames: a generated element that drops all other frames.
fn when_element(cx: &mut Cx<'_>, ast: &ast::Chain, when: &ast::Expr) -> Option<(Element, Instance)> {
    standalone_frame_element(cx, &ast.name.name, when.span, |scope| {
        let otherwise = Verdict { kind: VerdictKind::Drop, span: when.span };
        let query = Query { joins: Vec::new(), filter: Some(scope.condition(when)?) };
        Some(StmtKind::Guard { query, set: Vec::new(), otherwise })
    })
}

/// Generates an element with a single statement in ON PACKET; it is not a stage of a chain.
pub(super) fn standalone_frame_element(
    cx: &mut Cx<'_>,
    name: &str,
    span: Span,
    make: impl FnOnce(&mut Scope<'_, '_>) -> Option<StmtKind>,
) -> Option<(Element, Instance)> {
    let mut element = Element::empty(name, span);
    element.layer = Layer::Packet(None);
    let mut n_rand = 0;
    let kind = HandlerKind::Request;
    let mut scope = Scope::new(cx, &element, &[], View::Handler(kind), &mut n_rand);
    let made = make(&mut scope);
    let (locals, rows, new) = scope.into_parts();
    let body = vec![Stmt { kind: made?, span }];
    if let Some((column, _)) = new.iter().find(|(_, place)| matches!(place, ColumnLocation::Meta(_))) {
        let message = format!("`{}` is set by elements, and no element has run yet", column.name);
        let diagnostic = Diagnostic::error(code::NAME_NOT_HERE, message)
            .at(column.span, "always 0 at this point")
            .with_help("read it in an element behind the one that sets it");
        cx.report(diagnostic);
        return None;
    }
    let mut handler = Handler { kind, body, locals, rows, effects: Effects::default(), span };
    handler.effects = effects::of(&handler);
    let mut frames = Vec::new();
    frame::declare(&mut element, &mut frames, new);
    element.handlers.request = Some(handler);
    element::mark_column_uses(&mut element);
    let bindings = element
        .columns
        .iter()
        .zip(frames)
        .map(|(column, (_, place))| Binding { place, nullable: column.nullable });
    let instance = Instance {
        name: name.to_owned(),
        element: usize::MAX,
        params: Vec::new(),
        bindings: bindings.collect(),
        tables: Vec::new(),
        every: Vec::new(),
        sinks: Vec::new(),
        side: None,
        mandatory: false,
        fail_open: false,
        per_try: false,
        span,
    };
    Some((element, instance))
}

/// Rejects clauses that a stage of a chain on frames cannot have.
fn check_packet_stage(cx: &mut Cx<'_>, stage: &Stage) {
    let clauses = [
        (stage.side.map(|clause| clause.span), "AT", "frames have no client and no server side"),
        (stage.per_try, "PER TRY", "frames are not retried"),
    ];
    for (span, what, why) in clauses {
        let Some(span) = span else { continue };
        let diagnostic =
            Diagnostic::error(code::NOT_IN_VERSION, format!("{what} is not available on frames"))
                .at(span, "not on a PORT")
                .with_help(format!("remove it: {why}"));
        cx.report(diagnostic);
    }
}

/// Rejects an element for calls in a chain on frames, and vice versa.
fn check_stage_layer(cx: &mut Cx<'_>, checked: &Checked, edge: &Edge<'_>, stage: &Stage) -> Option<()> {
    let is_packet = checked.element.layer != Layer::Rpc;
    if is_packet == edge.is_packet {
        return Some(());
    }
    let name = &checked.element.name;
    let (message, label, help) = match is_packet {
        true => (
            format!("`{name}` processes frames, but this chain carries calls"),
            "no frames in this chain",
            "use it in a chain ON PORT",
        ),
        false => (
            format!("`{name}` processes calls, but this chain carries frames"),
            "no calls in this chain",
            "use it in a chain ON listener -> cluster",
        ),
    };
    let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, message)
        .at(stage.span, label)
        .with_label(edge.span, "the chain");
    cx.report(diagnostic.with_help(help));
    None
}

/// Resolves the location of a frame column that a stage binds: `user := ip.src`.
fn frame_binding(
    cx: &mut Cx<'_>,
    checked: &Checked,
    stage: &Stage,
    column: &Column,
    path: Option<&ast::Path>,
) -> Option<Binding> {
    let Some(path) = path else {
        let message = format!("stage `{}` does not bind column `{}`", stage.element.name, column.name);
        let diagnostic = Diagnostic::error(code::MISSING_PARAM, message)
            .at(stage.span, "not bound here")
            .with_label(column.span, "the element needs it")
            .with_help(format!(
                "bind it: `{} ({} := ip.src)`, or another field of a header",
                stage.element.name, column.name
            ));
        cx.report(diagnostic);
        return None;
    };
    if let Some(name) = path.as_ident()
        && let Some(&(_, meta, ty, nullable)) = frame::METAS.iter().find(|(known, ..)| *known == name.name)
    {
        cx.check_declared(meta, path.span);
        return bound(cx, column, path.span, ColumnLocation::Meta(meta), ty, nullable, None);
    }
    let Some(found) = cx.frame_column(&checked.element.layer, path) else {
        frame::unknown_layer(cx, path);
        return None;
    };
    let found = found?;
    let changes = column.written || column.replied;
    if changes {
        cx.check_settable(&found.field, &path.to_dotted(), path.span)?;
    }
    let place = ColumnLocation::Frame(found.field);
    bound(cx, column, path.span, place, found.ty, found.nullable, Some(found.ty))
}

/// The traffic of a chain, for its stages.
pub(super) struct Edge<'a> {
    pub(super) methods: &'a [Method],
    /// False if the METHOD has an error: then columns are not resolved.
    pub(super) is_known: bool,
    /// It is on ports, and carries frames.
    pub(super) is_packet: bool,
    /// The name of the chain.
    pub(super) span: Span,
}

/// Returns the methods of the schemas that a method set contains.
fn methods(cx: &Cx<'_>, set: &MethodSet) -> Vec<Method> {
    let all = cx.schema.methods().filter(|(path, _)| set.contains(path.as_bytes()));
    all.map(|(path, method)| Method {
        path,
        input: method.input,
        output: method.output,
        client_streaming: method.client_streaming,
        server_streaming: method.server_streaming,
    })
    .collect()
}

/// The stages of a chain that have no error.
#[derive(Default)]
struct Stages {
    instances: Vec<Instance>,
    filters: Vec<FilterInstance>,
    /// Ranges of `instances` that are written in braces.
    unordered: Vec<std::ops::Range<usize>>,
    /// The range of each branch's stages, in the order of the options.
    branches: Vec<std::ops::Range<usize>>,
    /// Specialised elements of stages with bindings to expressions; they follow the program's elements.
    specialised: Vec<Checked>,
    /// No stage is missing.
    is_whole: bool,
}

/// Checks the stages of a chain and of its branches.
fn stages_of(
    cx: &mut Cx<'_>,
    (elements, filters): (&[Checked], &[Filter<'_>]),
    edge: &Edge<'_>,
    ast: &ast::Chain,
) -> Stages {
    let mut done = Stages { is_whole: true, ..Stages::default() };
    let mut names = StageNames::of(ast);
    place_nodes(cx, (elements, filters), edge, (&ast.stages, &mut names), &mut done);
    for option in &ast.options {
        let ChainOptionKind::Branch { stages, .. } = &option.kind else { continue };
        let first = done.instances.len();
        if edge.is_packet {
            place_nodes(cx, (elements, filters), edge, (stages, &mut names), &mut done);
        }
        done.branches.push(first..done.instances.len());
    }
    let n_stages: usize = done.instances.len();
    if n_stages > ELEMENTS_MAX {
        let message = format!("this chain has {n_stages} elements; at most {ELEMENTS_MAX} are allowed");
        let diagnostic = Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(ast.name.span, "too long");
        cx.report(diagnostic.with_help("split the chain over two listeners, or merge elements"));
    }
    done
}

/// Appends stages.
fn place_nodes<'a>(
    cx: &mut Cx<'_>,
    (elements, filters): (&[Checked], &[Filter<'_>]),
    edge: &Edge<'_>,
    (nodes, names): (&'a [StageNode], &mut StageNames<'a>),
    done: &mut Stages,
) {
    for node in nodes {
        let (stages, is_group) = match node {
            StageNode::One(stage) => (std::slice::from_ref(stage), false),
            StageNode::Group { stages, .. } => (stages.as_slice(), true),
        };
        let start = done.instances.len();
        for stage in stages {
            if edge.is_packet {
                check_packet_stage(cx, stage);
            }
            let name = stage.instance.as_ref().unwrap_or(&stage.element);
            if let Some(first) = names.placed.get(name.name.as_str()).copied() {
                let free = names.unused_name(&name.name);
                two_stages(cx, stage, (name, &free), first);
            }
            let found = filters.iter().find(|filter| filter.ast.name.name == stage.element.name);
            let is_good = match found {
                Some(filter) if edge.is_packet => {
                    filter_on_frames(cx, filter, stage);
                    false
                }
                Some(filter) if is_group => {
                    filter_in_group(cx, filter, stage);
                    false
                }
                Some(filter) => match filter::stage(cx, (elements, filter), edge, stage) {
                    Some(placed) => done.place(placed, elements.len()),
                    None => false,
                },
                None => match instance(cx, (elements, filters), edge, stage) {
                    Some((instance, specialised)) => {
                        done.add(instance, specialised, elements.len());
                        true
                    }
                    None => false,
                },
            };
            match is_good {
                true => _ = names.placed.entry(&name.name).or_insert(stage.span),
                false => done.is_whole = false,
            }
        }
        if is_group {
            done.unordered.push(start..done.instances.len());
        }
    }
}

impl Stages {
    /// Appends a filter; its key element comes before it.
    fn place(&mut self, placed: Placed, n_elements: usize) -> bool {
        if let Some((keys, specialised)) = placed.keys {
            self.add(keys, specialised, n_elements);
        }
        self.filters.push(FilterInstance { at: self.instances.len(), ..placed.filter });
        true
    }

    /// Appends an instance with its specialised element.
    fn add(&mut self, mut instance: Instance, specialised: Option<Checked>, n_elements: usize) {
        if let Some(checked) = specialised {
            instance.element = n_elements + self.specialised.len();
            self.specialised.push(checked);
        }
        self.instances.push(instance);
    }
}

/// The names of the stages of a chain.
struct StageNames<'a> {
    /// The names of the stages so far, each with its first stage.
    placed: BTreeMap<&'a str, Span>,
    /// The names of all stages, and the names that a diagnostic has suggested.
    taken: BTreeSet<String>,
    /// The next number to try for an unused name.
    numbers: BTreeMap<&'a str, u32>,
}

impl<'a> StageNames<'a> {
    /// Collects the names of a chain's stages.
    fn of(ast: &'a ast::Chain) -> Self {
        let all = options::chain_paths(ast).flat_map(options::stages);
        let taken = all.map(|stage| options::name_of(stage).to_owned()).collect();
        Self { placed: BTreeMap::new(), taken, numbers: BTreeMap::new() }
    }

    /// Finds an unused name, derived from a name that several stages have.
    fn unused_name(&mut self, name: &'a str) -> String {
        let number = self.numbers.entry(name).or_insert(1);
        loop {
            *number += 1;
            let free = format!("{name}_{number}");
            if self.taken.insert(free.clone()) {
                return free;
            }
        }
    }
}

/// Reports two stages with the same name.
fn two_stages(cx: &mut Cx<'_>, stage: &Stage, (name, free): (&Ident, &str), first: Span) {
    let args = if stage.args.is_empty() { "" } else { " (...)" };
    let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, format!("two stages are named `{}`", name.name))
        .at(name.span, "the second")
        .with_label(first, "the first")
        .with_help(format!("give this stage another name: `{}{args} AS {free}`", stage.element.name));
    cx.report(diagnostic);
}

/// Reports a filter in a chain on frames.
fn filter_on_frames(cx: &mut Cx<'_>, filter: &Filter<'_>, stage: &Stage) {
    let message = format!("filter `{}` works on calls, but this chain carries frames", filter.ast.name.name);
    let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, message)
        .at(stage.span, "not on a PORT")
        .with_help("remove it: frames are not retried, and wait only in queues");
    cx.report(diagnostic);
}

/// Reports a filter among stages in braces, which have no fixed order.
fn filter_in_group(cx: &mut Cx<'_>, filter: &Filter<'_>, stage: &Stage) {
    let message = format!("filter `{}` needs a fixed position in the chain", filter.ast.name.name);
    let diagnostic =
        Diagnostic::error(code::FILTER_IN_GROUP, message).at(stage.span, "not allowed in braces").with_help(
            "a filter wraps the stages to its right: move it out of the braces, `a -> filter -> {b, c}`",
        );
    cx.report(diagnostic);
}

/// Checks a stage with an element: its arguments, bindings and limits. Also returns the element if it was specialised
/// for the stage.
fn instance(
    cx: &mut Cx<'_>,
    (elements, filters): (&[Checked], &[Filter<'_>]),
    edge: &Edge<'_>,
    stage: &Stage,
) -> Option<(Instance, Option<Checked>)> {
    let found = elements.iter().position(|checked| checked.element.name == stage.element.name);
    let Some(index) = found else {
        let names = elements.iter().map(|checked| checked.element.name.as_str());
        let names = names.chain(filters.iter().map(|filter| filter.ast.name.name.as_str()));
        let message = format!("there is no element `{}`", stage.element.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, message).at(stage.element.span, "unknown");
        let diagnostic = with_nearest_or_import(cx, diagnostic, &stage.element, "elements", names);
        if !cx.skipped.contains(&stage.element.name) {
            cx.report_missing(diagnostic);
        }
        return None;
    };
    let checked = &elements[index];
    check_stage_layer(cx, checked, edge, stage)?;
    let params = params(cx, checked, stage);
    let bindings = bindings(cx, checked, edge, stage);
    let specialised = bindings.as_ref().and_then(|bindings| bindings.specialise(checked));
    let checked = specialised.as_ref().unwrap_or(checked);
    if let Some(bindings) = &bindings {
        check_open(cx, checked, &bindings.places, stage);
    }
    check_redirect(cx, checked, edge, stage);
    check_mirror(cx, checked, edge, stage);
    let params = params?;
    let name = stage.instance.as_ref().unwrap_or(&stage.element).name.clone();
    let tables = checked.bounds.iter().map(|bounds| match table::limits(bounds, &params) {
        Ok(limits) => limits,
        Err((message, span)) => {
            if !checked.element.params.is_empty() {
                let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                    .at(stage.span, "with these parameters")
                    .with_label(span, "here");
                cx.report(diagnostic);
            }
            None
        }
    });
    let tables: Option<Vec<_>> = tables.collect::<Vec<_>>().into_iter().collect();
    let mut every = Vec::new();
    for interval in checked.every.iter().flatten() {
        match element::interval(interval, &params) {
            Ok(interval) => every.push(interval),
            Err(message) => {
                let diagnostic =
                    Diagnostic::error(code::OVER_LIMIT, message).at(interval.span, "outside the limits");
                cx.report(diagnostic.with_label(stage.span, "used here"));
            }
        }
    }
    let sinks =
        checked.targets.iter().map(|target| sink_target(cx, target, &params)).collect::<Option<Vec<_>>>();
    let instance = Instance {
        name,
        element: index,
        params,
        bindings: bindings?.places,
        tables: tables?,
        every,
        sinks: sinks?,
        side: stage.side.map(|clause| clause.side),
        mandatory: stage.mandatory.is_some(),
        fail_open: false,
        per_try: stage.per_try.is_some() && !edge.is_packet,
        span: stage.span,
    };
    Some((instance, specialised))
}

/// Computes the target of a sink from the parameters of the instance.
fn sink_target(cx: &mut Cx<'_>, target: &SinkDestination, params: &[Value]) -> Option<SinkTarget> {
    match target {
        SinkDestination::Stdout => Some(SinkTarget::Stdout),
        SinkDestination::Metrics => Some(SinkTarget::Metrics),
        SinkDestination::Table { table, deletes } => {
            table.map(|table| SinkTarget::Table { table, deletes: *deletes })
        }
        SinkDestination::File(path) => match cx.folded(path.as_ref()?, params)? {
            Value::Bytes(path) => Some(SinkTarget::File(String::from_utf8_lossy(&path).into_owned())),
            _ => None,
        },
    }
}

/// Computes the value of each parameter of a stage; None if one has an error.
pub(super) fn params(cx: &mut Cx<'_>, checked: &Checked, stage: &Stage) -> Option<Vec<Value>> {
    let element = &checked.element;
    let mut values: Vec<Option<Value>> = element.params.iter().map(|param| param.default.clone()).collect();
    let mut given: Vec<Option<Span>> = vec![None; values.len()];
    let (mut ok, mut has_unknown) = (true, false);
    for arg in &stage.args {
        let StageArg::Param(assign) = arg else { continue };
        let Some(at) = element.params.iter().position(|param| param.name == assign.name.name) else {
            (ok, has_unknown) = (false, true);
            unknown_param(cx, checked, &assign.name);
            continue;
        };
        if let Some(first) = given[at].replace(assign.span) {
            cx.report_duplicate("argument", &assign.name, first);
        }
        let param = &element.params[at];
        if cx.is_broken(param.span) {
            ok = false;
            continue;
        }
        if let Some(ty) = &param.function {
            values[at] = native::function_argument(cx, &assign.value, ty, &param.name);
            ok &= values[at].is_some();
            continue;
        }
        let (element, mut n_rand) = (empty_element(), 0);
        let mut scope = Scope::new(cx, &element, &[], View::Constant, &mut n_rand);
        let whose = format!("parameter `{}`", param.name);
        let expr = scope.value_for(&assign.value, param.ty, param.nullable, &whose);
        values[at] = expr.and_then(|expr| cx.folded(&expr, &[]));
        ok &= values[at].is_some();
    }
    for (at, param) in element.params.iter().enumerate() {
        // An unknown name is most likely a misspelling of the missing one.
        if values[at].is_none() && given[at].is_none() && !has_unknown {
            ok = false;
            let message = format!("`{}` needs a value for `{}`", element.name, param.name);
            let diagnostic = Diagnostic::error(code::MISSING_PARAM, message)
                .at(stage.span, "not given here")
                .with_label(param.span, "has no default")
                .with_help(match &param.function {
                    Some(ty) => format!(
                        "write `{} ({} = f)`, a function {}",
                        element.name,
                        param.name,
                        native::text_of(ty)
                    ),
                    None => format!("write `{} ({} = ...)`, of type {}", element.name, param.name, param.ty),
                });
            cx.report_unless_broken(param.span, diagnostic);
        }
    }
    ok &= !cx.report_unknown_ports(element, &values, &given);
    let values: Vec<Value> = values.into_iter().collect::<Option<_>>().filter(|_| ok)?;
    let Some((check, message)) = table::broken_by_params(element, &values) else { return Some(values) };
    let (at, what) = match check.condition.params().into_iter().find_map(|at| given[at]) {
        Some(given) => (given, "this value"),
        None => (stage.span, "with default parameters"),
    };
    let diagnostic = Diagnostic::error(code::CHECK_BROKEN, message)
        .at(at, what)
        .with_label(check.span, "condition on its parameters");
    cx.report(diagnostic);
    None
}

/// Reports an argument that the element has no parameter for.
fn unknown_param(cx: &mut Cx<'_>, checked: &Checked, name: &Ident) {
    let element = &checked.element;
    let message = format!("`{}` has no parameter `{}`", element.name, name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_PARAM, message).at(name.span, "unknown");
    if element.columns.iter().any(|column| column.name == name.name) {
        let help = format!("`{0}` is a column; bind a column with `:=`: `{0} := req.{0}`", name.name);
        return cx.report(diagnostic.with_help(help));
    }
    let names: Vec<&str> = element.params.iter().map(|param| param.name.as_str()).collect();
    let diagnostic = match names.is_empty() {
        true => diagnostic.with_note("it has no parameters"),
        false => diagnostic.with_note(format!("it has: {}", names.join(", "))),
    };
    cx.report(with_nearest(diagnostic, name, names));
}

// ---- bindings --------------------------------------------------------------------------------------------------

/// The bindings of a stage's columns.
pub(super) struct Bindings {
    /// The location of each column; those of `columns` follow those of the element.
    pub(super) places: Vec<Binding>,
    /// Columns that expressions read, and that the element does not declare.
    columns: Vec<Column>,
}

impl Bindings {
    /// The element with the additional columns; None if there are none.
    pub(super) fn specialise(&self, checked: &Checked) -> Option<Checked> {
        let computed: Vec<(usize, &Expr)> = self
            .places
            .iter()
            .enumerate()
            .filter_map(|(at, binding)| match &binding.place {
                ColumnLocation::Computed(expr) => Some((at, &**expr)),
                _ => None,
            })
            .collect();
        (!computed.is_empty()).then(|| binding::specialised(checked, self.columns.clone(), &computed))
    }

    /// Whether all columns are bound to values that are known when the call opens.
    pub(super) fn all_known_at_open(&self) -> bool {
        self.places.iter().all(|binding| is_known_at_open(&binding.place, &self.places))
    }
}

/// Whether a location has its value when the call opens.
fn is_known_at_open(place: &ColumnLocation, all: &[Binding]) -> bool {
    match place {
        ColumnLocation::Header(_) => true,
        ColumnLocation::Meta(meta) => View::Handler(HandlerKind::Open).has_meta(*meta),
        ColumnLocation::Computed(expr) => {
            let mut is_known = true;
            walk::each_expr(expr, &mut |part| {
                is_known &= match part.kind {
                    ExprKind::Column(at) | ExprKind::List { list: at, .. } => {
                        is_known_at_open(&all[at].place, all)
                    }
                    ExprKind::Meta(meta) => View::Handler(HandlerKind::Open).has_meta(meta),
                    _ => true,
                };
            });
            is_known
        }
        _ => false,
    }
}

/// The name, if a binding consists of a single field, header or metadata; None for an expression.
fn named(value: &ast::Expr) -> Option<ast::Path> {
    match &value.kind {
        ast::ExprKind::Path(path) => Some(path.clone()),
        ast::ExprKind::Header(key) => match &key.kind {
            ast::ExprKind::Str(name) => {
                let name = Ident { name: name.clone(), span: key.span };
                let header = Ident { name: "header".to_owned(), span: value.span };
                Some(ast::Path { segments: vec![header, name], span: value.span })
            }
            _ => None,
        },
        _ => None,
    }
}

/// The direction of the first message field in an expression, if any.
fn direction_of(value: &ast::Expr) -> Option<Direction> {
    let mut found = None;
    value.each_path(&mut |path| {
        let direction = match path.segments[0].name.as_str() {
            "resp" if path.segments.len() > 1 => Some(Direction::Response),
            "req" if path.segments.len() > 1 => Some(Direction::Request),
            _ => None,
        };
        found = found.or(direction);
    });
    found
}

/// Checks the bindings of a stage's columns; None if one has an error.
pub(super) fn bindings(
    cx: &mut Cx<'_>,
    checked: &Checked,
    edge: &Edge<'_>,
    stage: &Stage,
) -> Option<Bindings> {
    let element = &checked.element;
    let mut ok = true;
    let mut written: Vec<Option<&ast::Expr>> = vec![None; element.columns.len()];
    for arg in &stage.args {
        let StageArg::Bind { column, value, .. } = arg else { continue };
        let direction = direction_of(value);
        let is_meant = |known: &Column| {
            known.name == column.name && direction.is_none_or(|direction| direction == known.direction)
        };
        // An expression over the other direction's message is reported with the names that it uses.
        let is_called = |known: &Column| known.name == column.name && named(value).is_none();
        let find = |is_it: &dyn Fn(&Column) -> bool| element.columns.iter().position(is_it);
        let Some(at) = find(&is_meant).or_else(|| find(&is_called)) else {
            ok = false;
            let names: Vec<&str> = element.columns.iter().map(|column| column.name.as_str()).collect();
            let message = format!("`{}` has no column `{}`", element.name, column.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_PARAM, message).at(column.span, "unknown");
            let diagnostic = match names.is_empty() {
                true => diagnostic.with_note("it has no columns"),
                false => diagnostic.with_note(format!("it has: {}", names.join(", "))),
            };
            cx.report(with_nearest(diagnostic, column, names));
            continue;
        };
        if let Some(first) = written[at].replace(value) {
            cx.report_duplicate("binding", column, first.span);
        }
    }
    if !edge.is_known {
        return None;
    }
    let mut places: Vec<Option<Binding>> = Vec::new();
    let mut columns: Vec<(Column, ColumnLocation)> = Vec::new();
    for (at, (column, value)) in element.columns.iter().zip(written).enumerate() {
        if let Some((_, place)) = checked.frames.iter().find(|(frame, _)| *frame == at) {
            places.push(Some(Binding { place: place.clone(), nullable: column.nullable }));
            continue;
        }
        if cx.is_broken(column.span) || (value.is_some() && !edge.is_known && !edge.is_packet) {
            places.push(None);
            continue;
        }
        let path = value.map(named);
        places.push(match (value, path) {
            (Some(value), Some(None)) => {
                let known = columns.clone();
                let found = binding::computed(cx, checked, edge, (column, value), known);
                found.map(|(expr, declared)| {
                    columns = declared;
                    let nullable = expr.nullable;
                    Binding { place: ColumnLocation::Computed(Box::new(expr)), nullable }
                })
            }
            (_, path) => binding(cx, checked, edge, stage, column, path.flatten().as_ref()),
        });
    }
    if !ok {
        return None;
    }
    let mut places = places.into_iter().collect::<Option<Vec<Binding>>>()?;
    let declared =
        columns.iter().map(|(column, place)| Binding { place: place.clone(), nullable: column.nullable });
    places.extend(declared);
    Some(Bindings { places, columns: columns.into_iter().map(|(column, _)| column).collect() })
}

/// Resolves the location of a column: a header, metadata, or a field in the messages of all methods.
fn binding(
    cx: &mut Cx<'_>,
    checked: &Checked,
    edge: &Edge<'_>,
    stage: &Stage,
    column: &Column,
    path: Option<&ast::Path>,
) -> Option<Binding> {
    if edge.is_packet {
        return frame_binding(cx, checked, stage, column, path);
    }
    let mut names: Vec<String> = match path {
        Some(path) => path.segments.iter().map(|segment| segment.name.clone()).collect(),
        None => vec![column.name.clone()],
    };
    let span = path.map_or(stage.element.span, |path| path.span);
    let is_prefixed = names.len() > 1 && matches!(names[0].as_str(), "req" | "resp");
    if is_prefixed {
        names.remove(0);
    } else if path.is_some() && names.len() == 2 && names[0] == "header" {
        let name = header::name(cx, &names[1], path.map_or(span, |path| path.segments[1].span))?;
        if let (true, Some(help)) = (column.written || column.replied, header::instead_of_writing(&name)) {
            not_bindable(cx, column, span, "set by the protocol, but the element writes it", help);
            return None;
        }
        let place = ColumnLocation::Header(name);
        return bound(cx, column, span, place, Type::Text(None), true, Some(Type::Text(None)));
    } else if path.is_some()
        && names.len() == 1
        && let Some(&(_, meta, ty, nullable)) = METAS.iter().find(|(known, ..)| *known == names[0])
        && !in_all_messages(cx, edge, column.direction, &names[0])
    {
        let nullable = nullable || column.direction == Direction::Response && is_nullable_in_response(meta);
        return bound(cx, column, span, ColumnLocation::Meta(meta), ty, nullable, None);
    }
    if edge.methods.is_empty() {
        let message =
            format!("column `{}` needs a field of a message, but the message type is unknown", column.name);
        let diagnostic = Diagnostic::error(code::NO_METHOD, message)
            .at(span, format!("used by `{}`", checked.element.name))
            .with_label(edge.span, "no method of this chain is declared")
            .with_help("declare the messages: `CREATE TYPE shop FROM PROTO 'shop.proto';`");
        cx.report_missing(diagnostic);
        return None;
    }
    if is_value_of_wrapper(cx, edge, column.direction, &names) {
        names.pop();
    }
    let mut found: Option<Binding> = None;
    let mut seen = BTreeSet::new();
    for method in edge.methods {
        let message = method.message(column.direction);
        if !seen.insert(message) {
            continue;
        }
        let (kind, nullable) = field(cx, method, message, &names, column, span)?;
        let Some(ty) = types::of_field(kind) else {
            let label = format!("`{}` is a message", names.join("."));
            not_bindable(cx, column, span, &label, "bind a field of it: `column := req.message.field`");
            return None;
        };
        let holds = (kind != FieldKind::Float).then_some(ty);
        let binding = bound(cx, column, span, ColumnLocation::Body(names.clone()), ty, nullable, holds)?;
        let was_nullable = found.as_ref().is_some_and(|found| found.nullable);
        found = Some(Binding { nullable: binding.nullable || was_nullable, ..binding });
    }
    found
}

/// Whether the messages of all methods have a field of this name.
pub(super) fn in_all_messages(cx: &Cx<'_>, edge: &Edge<'_>, direction: Direction, name: &str) -> bool {
    let has = |method: &Method| cx.schema.messages[method.message(direction)].field(name).is_some();
    !edge.methods.is_empty() && edge.methods.iter().all(has)
}

/// Whether a path goes into a wrapper message, in all messages: its location is the wrapper's.
fn is_value_of_wrapper(cx: &Cx<'_>, edge: &Edge<'_>, direction: Direction, names: &[String]) -> bool {
    let Some((last, around)) = names.split_last() else { return false };
    let is_wrapper = |method: &Method| {
        let message = &cx.schema.messages[method.message(direction)];
        let wrapper = around.iter().try_fold(message, |at, name| match at.field(name)?.kind {
            FieldKind::Message(inner) => Some(&cx.schema.messages[inner]),
            _ => None,
        });
        wrapper.and_then(Message::wrapped).is_some_and(|value| value.name == *last)
    };
    !edge.methods.is_empty() && edge.methods.iter().all(is_wrapper)
}

/// Finds the field at a path of a message. Returns it, and whether it may be absent; reports an invalid path.
fn field(
    cx: &mut Cx<'_>,
    method: &Method,
    message: usize,
    names: &[String],
    column: &Column,
    span: Span,
) -> Option<(FieldKind, bool)> {
    let schema = cx.schema;
    let mut at = message;
    for (depth, name) in names.iter().enumerate() {
        let message = &schema.messages[at];
        let Some(field) = message.field(name) else {
            no_such_field(cx, method, at, name, column, span, depth);
            return None;
        };
        if field.presence == Presence::Repeated {
            let label = format!("`{}` is a repeated field", names[..=depth].join("."));
            let list = names[..=depth].join(".");
            let help = format!(
                "bind a field that is not repeated, or use a list expression: `{} := ANY(e IN {list} WHERE \
                 ... MAX 100)`",
                column.name
            );
            not_bindable(cx, column, span, &label, &help);
            return None;
        }
        let is_last = depth + 1 == names.len();
        match field.kind {
            FieldKind::Message(inner) if !is_last => at = inner,
            // An absent sub-message reads as the leaf's default, so only the leaf's own presence matters.
            kind if is_last => {
                let (kind, presence) = schema.scalar(field).unwrap_or((kind, field.presence));
                return Some((kind, presence == Presence::Explicit));
            }
            _ => {
                let label = format!("`{}` is not a message and has no fields", names[..=depth].join("."));
                not_bindable(cx, column, span, &label, "end the path at that field");
                return None;
            }
        }
    }
    None
}

/// Reports a field that the message does not have, and lists its fields.
pub(super) fn no_such_field(
    cx: &mut Cx<'_>,
    method: &Method,
    message: usize,
    name: &str,
    column: &Column,
    span: Span,
    depth: usize,
) {
    let message = &cx.schema.messages[message];
    let fields: Vec<String> = message.fields.iter().map(|field| field_words(cx, field)).collect();
    let names: Vec<&str> = message.fields.iter().map(|field| field.name.as_str()).collect();
    let near = nearest(name, names.iter().copied());
    let prefix = match column.direction {
        Direction::Request => "req",
        Direction::Response => "resp",
    };
    let mut diagnostic =
        Diagnostic::error(code::NO_SUCH_FIELD, format!("no column `{name}` in message `{}`", message.name))
            .at(span, "not a field of a message that this chain carries")
            .with_note(format!("it has: {}", fields.join(", ")))
            .with_note(format!("it is the message of `{}`", method.path));
    if column.span != span {
        diagnostic = diagnostic.with_label(column.span, "the element needs it");
    }
    let field = near.unwrap_or("field");
    diagnostic = match (near, depth) {
        (Some(near), 1..) => diagnostic.with_help(format!("write `{near}`")),
        _ => diagnostic
            .with_help(format!("bind it where the element is used: `({} := {prefix}.{field})`", column.name)),
    };
    cx.report(diagnostic);
}

/// Describes a field for a diagnostic: its name and type.
fn field_words(cx: &Cx<'_>, field: &weft_core::schema::Field) -> String {
    let kind = cx.schema.scalar(field).map_or(field.kind, |(kind, _)| kind);
    let ty = match (kind, types::of_field(kind)) {
        (FieldKind::Message(index), _) => cx.schema.messages[index].name.clone(),
        (_, Some(ty)) => ty.to_string(),
        (_, None) => String::new(),
    };
    let suffix = match cx.schema.scalar(field).map_or(field.presence, |(_, presence)| presence) {
        Presence::Implicit => "",
        Presence::Explicit => "?",
        Presence::Repeated => " repeated",
    };
    format!("{} {ty}{suffix}", field.name)
}

/// Returns a binding, if the location's type matches the column. `holds` is the type that can be written there.
fn bound(
    cx: &mut Cx<'_>,
    column: &Column,
    span: Span,
    place: ColumnLocation,
    ty: Type,
    nullable: bool,
    holds: Option<Type>,
) -> Option<Binding> {
    if !types::widens(ty, column.ty) {
        let label = format!("this is {ty}, but column `{}` is {}", column.name, column.ty);
        not_bindable(
            cx,
            column,
            span,
            &label,
            &format!("declare the column as {ty}, and convert it in the element"),
        );
        return None;
    }
    if nullable && !column.nullable && column.read {
        let label = format!("this field may be absent, but column `{}` cannot be NULL", column.name);
        let help = format!(
            "declare it `{} {}?`, and handle NULL in the element: `COALESCE(...)`",
            column.name, column.ty
        );
        not_bindable(cx, column, span, &label, &help);
        return None;
    }
    let changes = column.written || column.replied;
    if changes && !holds.is_some_and(|holds| types::widens(column.ty, holds)) {
        let (label, help) = match holds {
            None if ty == Type::F64 => {
                let label = "a `float` field cannot hold every F64 that the element may write";
                (
                    label.to_owned(),
                    "make the field a `double`, or bind a column that the element only reads".to_owned(),
                )
            }
            None => {
                ("this cannot be changed".to_owned(), "bind a column that the element only reads".to_owned())
            }
            Some(holds) => (
                format!("the element writes {}, but the field holds {holds}", column.ty),
                format!("declare the column as {holds}, and convert the value"),
            ),
        };
        not_bindable(cx, column, span, &label, &help);
        return None;
    }
    Some(Binding { place, nullable })
}

/// Reports a column that cannot be bound to this source.
fn not_bindable(cx: &mut Cx<'_>, column: &Column, span: Span, label: &str, help: &str) {
    let message = format!("column `{}` cannot be bound to this", column.name);
    let mut diagnostic = Diagnostic::error(code::FIELD_NOT_BINDABLE, message).at(span, label);
    if column.span != span {
        diagnostic = diagnostic.with_label(column.span, "declared here");
    }
    cx.report(diagnostic.with_help(help));
}

/// Rejects columns that ON OPEN uses before they are known: fields and metadata of a message.
fn check_open(cx: &mut Cx<'_>, checked: &Checked, bindings: &[Binding], stage: &Stage) {
    let element = &checked.element;
    let Some(open) = &element.handlers.open else { return };
    let used = open.effects.columns_read.iter().chain(&open.effects.columns_written);
    for at in used.copied().collect::<BTreeSet<usize>>() {
        if !is_known_at_open(&bindings[at].place, bindings) {
            let column = &element.columns[at];
            let message =
                format!("`{}` uses column `{}` before the message arrives", element.name, column.name);
            let diagnostic = Diagnostic::error(code::FIELD_NOT_BINDABLE, message)
                .at(stage.span, "bound to a field of a message")
                .with_label(open.span, "runs ON OPEN")
                .with_help(format!("bind it to a header: `{} := header.\"x-name\"`", column.name));
            cx.report(diagnostic);
        }
    }
}

/// Reports a redirect by message content in a method that streams in both directions.
fn check_redirect(cx: &mut Cx<'_>, checked: &Checked, edge: &Edge<'_>, stage: &Stage) {
    let Some(request) = &checked.element.handlers.request else { return };
    let streams = edge.methods.iter().find(|method| method.client_streaming && method.server_streaming);
    let (true, Some(method)) = (request.effects.redirects, streams) else { return };
    let message = format!(
        "`{}` redirects by message content, but `{}` streams in both directions",
        checked.element.name, method.path
    );
    let diagnostic = Diagnostic::error(code::REDIRECT_WOULD_DEADLOCK, message)
        .at(stage.span, "would wait for a message that may never arrive")
        .with_label(request.span, "redirects in ON REQUEST")
        .with_help("redirect by headers in ON OPEN, or narrow the METHOD of the chain");
    cx.report(diagnostic);
}

/// Rejects MIRROR if the request is a stream: the copy of a call is made after its first message.
fn check_mirror(cx: &mut Cx<'_>, checked: &Checked, edge: &Edge<'_>, stage: &Stage) {
    // A frame is whole when it is there.
    if edge.is_packet {
        return;
    }
    let handlers = &checked.element.handlers;
    let mut from = handlers.open.iter().chain(&handlers.request);
    let Some(handler) = from.find(|handler| handler.effects.mirrors) else { return };
    let name = &checked.element.name;
    let (message, label) = match edge.methods.iter().find(|method| method.client_streaming) {
        Some(method) => (
            format!("`{name}` mirrors calls, but the requests of `{}` are streams", method.path),
            "the copy would contain only one message",
        ),
        None if edge.is_known && edge.methods.is_empty() => (
            format!("`{name}` mirrors calls, but no method is declared"),
            "a request may be a stream; the copy would contain only one message",
        ),
        None => return,
    };
    let diagnostic = Diagnostic::error(code::MIRROR_OF_STREAM, message)
        .at(stage.span, label)
        .with_label(handler.span, "mirrors here");
    cx.report(match edge.methods.is_empty() {
        true => diagnostic.with_help("declare the methods: `CREATE TYPE shop FROM PROTO 'shop.proto';`"),
        false => {
            diagnostic.with_help("narrow the METHOD of the chain to methods with a single request message")
        }
    });
}
/// Reports mandatory stages whose ON ERROR lets a call pass.
pub(super) fn check_mandatory(cx: &mut Cx<'_>, elements: &[Checked], chain: &Chain) {
    use crate::hir::{StmtKind, VerdictKind};
    for instance in chain.instances.iter().filter(|instance| instance.mandatory) {
        let Some(handler) = &elements[instance.element].element.handlers.error else { continue };
        let mut forward = None;
        let ends = handler.body.last().is_some_and(|stmt| matches!(stmt.kind, StmtKind::Verdict(_)));
        walk::each_stmt(&handler.body, &mut |stmt| {
            if let StmtKind::Verdict(verdict) = &stmt.kind
                && verdict.kind == VerdictKind::Forward
            {
                forward = Some(verdict.span);
            }
        });
        if let Some(span) = forward.or((!ends).then_some(handler.span)) {
            mandatory_may_fail(cx, instance, span, "an ON ERROR that forwards");
        }
    }
}

/// Reports a chain that reads more inputs than the limit.
fn check_inputs(cx: &mut Cx<'_>, elements: &[Checked], chain: &Chain, ast: &ast::Chain) {
    for direction in [Direction::Request, Direction::Response] {
        let mut places: BTreeSet<String> = BTreeSet::new();
        for instance in &chain.instances {
            let element = &elements[instance.element].element;
            for (column, binding) in element.columns.iter().zip(&instance.bindings) {
                if column.direction == direction {
                    places.insert(format!("{:?} {}", binding.place, column.ty));
                }
            }
            let handlers = element.handlers.iter().filter(|handler| {
                use crate::hir::HandlerKind as H;
                let is_request = matches!(handler.kind, H::Open | H::Request);
                is_request == (direction == Direction::Request)
            });
            for effects in handlers.map(|handler| &handler.effects) {
                let headers = effects.headers_read.iter().chain(&effects.headers_written);
                places.extend(headers.map(|name| format!("header {name}")));
                let trailers = effects.trailers_read.iter().chain(&effects.trailers_written);
                places.extend(trailers.map(|name| format!("trailer {name}")));
                places.extend(effects.metas_read.iter().map(|meta| format!("{meta:?}")));
            }
        }
        if places.len() > INPUTS_MAX {
            let message = format!(
                "chain `{}` uses {} fields and headers in one direction; the limit is {INPUTS_MAX}",
                chain.name,
                places.len()
            );
            let diagnostic =
                Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(ast.name.span, "too many inputs");
            cx.report(diagnostic.with_help("let elements share columns, or read fewer headers"));
        }
    }
}

/// Reports chains that match the same calls.
///
/// Only one of two chains on an edge can run. Two chains from one listener to different clusters need routes to
/// separate the calls; a chain without a route on its edge matches all calls of its METHOD.
pub(super) fn check_overlaps(cx: &mut Cx<'_>, chains: &[Chain], routes: &[Route], items: &[&ast::Chain]) {
    let is_routed = |chain: &Chain| {
        routes.iter().any(|route| chain.edge.calls() == Some((route.listener, route.cluster)))
    };
    let named: Vec<(Span, &Chain)> = items
        .iter()
        .filter_map(|item| {
            chains.iter().find(|chain| chain.span == item.span).map(|chain| (item.name.span, chain))
        })
        .collect();
    for (index, (span, chain)) in named.iter().enumerate() {
        for (first_span, first) in &named[..index] {
            let (Some(one), Some(other)) = (first.edge.calls(), chain.edge.calls()) else { continue };
            let same_edge = one == other;
            let contradict = one.0 == other.0
                && overlap(cx, &first.method_set, &chain.method_set)
                && (same_edge || (!is_routed(first) && !is_routed(chain)));
            if !contradict {
                continue;
            }
            let message = format!("chains `{}` and `{}` match the same calls", first.name, chain.name);
            let help = match same_edge {
                true => "merge the stages into one chain, or narrow the METHOD of one",
                false => {
                    "narrow the METHOD of one, or separate the calls by routes: `CREATE ROUTE ... WHEN ... TO \
                     CLUSTER ...`"
                }
            };
            let diagnostic = Diagnostic::error(code::OVERLAP, message)
                .at(*span, "the second")
                .with_label(*first_span, "the first")
                .with_help(help);
            cx.report(diagnostic);
        }
    }
}

/// Warns of chains on ports that receive no frames, because an earlier chain matches all of them.
pub(super) fn warn_of_unreachable(cx: &mut Cx<'_>, chains: &[Chain], ports: &[Port], items: &[&ast::Chain]) {
    let name_of =
        |chain: &Chain| items.iter().find(|item| item.span == chain.span).map(|item| item.name.span);
    // For each port, the first chain that matches all of its frames.
    let mut takes_all: Vec<Option<&Chain>> = vec![None; ports.len()];
    for chain in chains {
        let crate::hir::Edge::Packets { ports: on, when, .. } = &chain.edge else { continue };
        let earlier: Option<Vec<(usize, &Chain)>> =
            on.iter().map(|port| Some((*port, takes_all[*port]?))).collect();
        match (earlier, name_of(chain)) {
            (Some(earlier), Some(name)) if !earlier.is_empty() => {
                let message = format!("chain `{}` receives no frames", chain.name);
                let mut diagnostic = Diagnostic::warning(code::CHAIN_UNREACHABLE, message)
                    .at(name, "a frame goes through the first matching chain on its port only");
                let mut listed: Vec<&str> = Vec::new();
                for (port, first) in earlier {
                    if !listed.contains(&&*first.name) {
                        let label = format!("matches all frames of `{}`", ports[port].name);
                        diagnostic = diagnostic.with_label(name_of(first).unwrap_or(first.span), label);
                        listed.push(&first.name);
                    }
                }
                cx.report(diagnostic.with_help(
                    "add a WHEN to the earlier chain, declare this chain before it, or merge their stages",
                ));
            }
            _ => {}
        }
        if when.is_none() {
            on.iter().for_each(|port| takes_all[*port] = takes_all[*port].or(Some(chain)));
        }
    }
}
