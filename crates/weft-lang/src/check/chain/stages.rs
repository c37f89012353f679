//! Checks the stages of a chain.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use weft_core::Value;
use weft_core::limits::ELEMENTS_MAX;

use super::args::params;
use super::bind::{bindings, check_open};
use super::edge::Edge;
use super::options;
use crate::ast::{self, ChainOptionKind, Ident, Stage, StageNode};
use crate::check::checked::{Checked, SinkDestination};
use crate::check::element;
use crate::check::filter::{self, Filter, Placed};
use crate::check::suggest::with_nearest_or_import;
use crate::check::{Cx, table};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{FilterInstance, Instance, Layer, SinkTarget};
use crate::source::Span;

/// The stages of a chain that have no error.
#[derive(Default)]
pub(super) struct Stages {
    pub(super) instances: Vec<Instance>,
    pub(super) filters: Vec<FilterInstance>,
    /// Ranges of `instances` that are written in braces.
    pub(super) unordered: Vec<Range<usize>>,
    /// The range of each branch's stages, in the order of the options.
    pub(super) branches: Vec<Range<usize>>,
    /// Specialised elements of stages with bindings to expressions; they follow the program's elements.
    pub(super) specialised: Vec<Checked>,
    /// No stage is missing.
    pub(super) is_whole: bool,
}

/// Checks the stages of a chain and of its branches.
pub(super) fn stages_of(
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
