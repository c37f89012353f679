//! Checks the options of a chain: orders, positions, branches, and failure behaviour.

use std::collections::{BTreeMap, VecDeque};

use weft_core::limits::ELEMENTS_MAX;
use weft_core::{Interval, Type, Value};

use super::super::scope::Scope;
use super::super::{Cx, empty_element};
use crate::ast::{self, ChainOn, ChainOption, ChainOptionKind, Ident, Side, Stage, StageNode};
use crate::check::checked::Checked;
use crate::check::suggest::with_nearest;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Branch, Chain, Equivalence, Instance};
use crate::source::Span;

/// Applies the options of a chain. `is_whole`: no stage is missing because of an error.
pub(super) fn options(cx: &mut Cx<'_>, ast: &ast::Chain, chain: &mut Chain, is_whole: bool) {
    use ChainOptionKind as Kind;
    let mut options = Options { cx, ast, is_whole, chain };
    let contradictory = options.report_contradictions();
    for option in &ast.options {
        let span = option.span;
        // Moving stages cannot satisfy an order that contradicts another one.
        options.is_whole = is_whole && !contradictory.contains(&span);
        match &option.kind {
            Kind::Equivalence { level } => options.equivalence(level),
            Kind::PinStream { drain } => options.pin_stream(drain),
            // Last, because it applies to all stages.
            Kind::FailOpen => {}
            Kind::Order { first, second } => options.order(first, second, span),
            Kind::Priority { higher, lower } => options.priority(higher, lower),
            Kind::Position { instance, is_last } => options.position(instance, *is_last, span),
            Kind::BypassOnFailure { instance } => options.bypass_on_failure(instance, span),
            Kind::Branch { from, .. } => options.branch(from),
        }
    }
    let fail_open = ast.options.iter().rfind(|option| matches!(option.kind, Kind::FailOpen));
    if let Some(option) = fail_open {
        options.fail_open(option.span);
    }
}

/// Connects the chain's branches to edges, and reports edges without a branch.
pub(super) fn branches(
    cx: &mut Cx<'_>,
    elements: &[Checked],
    ast: &ast::Chain,
    chain: &mut Chain,
    placed: &[std::ops::Range<usize>],
) {
    let options = ast.options.iter().filter_map(|option| match &option.kind {
        ChainOptionKind::Branch { from, .. } => Some((from, option.span)),
        _ => None,
    });
    for ((from, span), stages) in options.zip(placed) {
        let Some((from, edge)) = edge_of(cx, elements, &chain.instances[..stages.start], from) else {
            continue;
        };
        let same = |known: &&Branch| (known.from, known.edge) == (from, edge);
        if let Some(first) = chain.branches.iter().find(same) {
            let diagnostic = Diagnostic::error(code::DUPLICATE_NAME, "two branches start at the same edge")
                .at(span, "the second")
                .with_label(first.span, "the first")
                .with_help("append the stages of one branch to the other");
            cx.report(diagnostic);
            continue;
        }
        chain.branches.push(Branch { from, edge, stages: stages.clone(), span });
    }
    for (at, instance) in chain.instances.iter().enumerate() {
        for (edge, (name, declared)) in elements[instance.element].element.edges.iter().enumerate() {
            if chain.branches.iter().any(|branch| (branch.from, branch.edge) == (at, edge)) || cx.has_gaps {
                continue;
            }
            let message = format!("edge `{name}` of `{}` is not connected", instance.name);
            let diagnostic = Diagnostic::error(code::LOOSE_EDGE, message)
                .at(instance.span, "frames steered here have no next stage")
                .with_label(*declared, "the edge")
                .with_help(format!(
                    "connect the edge to the next stages: `{}.{name} -> ...;`",
                    instance.name
                ));
            cx.report(diagnostic);
        }
    }
}

/// Finds the stage and the edge of `det.suspect`, among the stages before the branch.
fn edge_of(
    cx: &mut Cx<'_>,
    elements: &[Checked],
    instances: &[Instance],
    from: &ast::Path,
) -> Option<(usize, usize)> {
    let [stage, edge] = from.segments.as_slice() else {
        let diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, "a branch starts at an edge of a stage")
            .at(from.span, "no edge named")
            .with_help("write `det.suspect -> sandbox;`");
        cx.report(diagnostic);
        return None;
    };
    let Some(at) = instances.iter().position(|instance| instance.name == stage.name) else {
        let names: Vec<&str> = instances.iter().map(|instance| instance.name.as_str()).collect();
        let message = format!("no stage before the branch is named `{}`", stage.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, message)
            .at(stage.span, "unknown")
            .with_note(format!("there are: {}", names.join(", ")));
        cx.report_missing(with_nearest(diagnostic, stage, names));
        return None;
    };
    let edges = &elements[instances[at].element].element.edges;
    let found = edges.iter().position(|(known, _)| *known == edge.name);
    if found.is_none() {
        let names: Vec<&str> = edges.iter().map(|(known, _)| known.as_str()).collect();
        let message = format!("`{}` has no edge `{}`", stage.name, edge.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, message).at(edge.span, "unknown");
        let diagnostic = if names.is_empty() {
            diagnostic.with_note("its element has no edges")
        } else {
            diagnostic.with_note(format!("it has: {}", names.join(", ")))
        };
        cx.report_missing(with_nearest(diagnostic, edge, names));
    }
    Some((at, found?))
}

/// A chain that gets its options.
struct Options<'c, 'a> {
    cx: &'c mut Cx<'a>,
    ast: &'c ast::Chain,
    chain: &'c mut Chain,
    /// False if a stage is missing because of an error, or if orders contradict each other: then positions are
    /// meaningless.
    is_whole: bool,
}

impl Options<'_, '_> {
    /// Reports options that no order of the stages satisfies; returns the spans of all of them.
    ///
    /// Each option adds "before" edges between stages. An edge that closes a cycle is reported with the options on the
    /// shortest cycle.
    fn report_contradictions(&mut self) -> Vec<Span> {
        let mut contradictory = Vec::new();
        if !self.is_whole || self.chain.instances.len() > ELEMENTS_MAX {
            return contradictory;
        }
        let ast = self.ast;
        let mut before = OrderGraph::default();
        for option in &ast.options {
            let edges = precedences(ast, option);
            let cycle = edges.iter().find_map(|(first, second)| before.path(second, first));
            let Some(cycle) = cycle else {
                before.add(&edges, option);
                continue;
            };
            let message = match cycle.is_empty() {
                true => "a stage cannot come before itself",
                false => "these options contradict each other",
            };
            let mut diagnostic =
                Diagnostic::error(code::ORDER_BROKEN, message).at(option.span, order_label(&option.kind));
            for known in &cycle {
                diagnostic = diagnostic.with_label(known.span, order_label(&known.kind));
            }
            self.cx.report(
                diagnostic.with_help("remove one of them: no order of the stages satisfies all of them"),
            );
            contradictory.extend(cycle.iter().map(|known| known.span).chain([option.span]));
        }
        contradictory
    }

    /// Applies EQUIVALENCE: the level to which the planner preserves behaviour.
    fn equivalence(&mut self, level: &Ident) {
        const LEVELS: [(&str, Equivalence); 5] = [
            ("strict", Equivalence::Strict),
            ("observable", Equivalence::Observable),
            ("output", Equivalence::Output),
            ("stochastic", Equivalence::Stochastic),
            ("relaxed", Equivalence::Relaxed),
        ];
        if let Some((_, known)) = LEVELS.iter().find(|(name, _)| level.name.eq_ignore_ascii_case(name)) {
            self.chain.equivalence = *known;
            return;
        }
        let message = format!("unknown equivalence level `{}`", level.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OPTION, message)
            .at(level.span, "unknown")
            .with_note("there are: strict, observable, output, stochastic, relaxed");
        self.cx.report(with_nearest(diagnostic, level, LEVELS.map(|(name, _)| name)));
    }

    /// Applies PIN STREAM with its deadline.
    fn pin_stream(&mut self, drain: &ast::Expr) {
        if matches!(self.ast.on, ChainOn::Port { .. }) {
            let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, "PIN STREAM does not apply to frames")
                .at(drain.span, "not on a PORT")
                .with_help("remove it: each frame is processed by one version and leaves no state behind");
            return self.cx.report(diagnostic);
        }
        let (element, mut n_rand) = (empty_element(), 0);
        let mut scope = Scope::new(self.cx, &element, &[], View::Constant, &mut n_rand);
        let drain = scope.value_for(drain, Type::Interval, false, "a deadline");
        if let Some(Value::Int(nanos)) = drain.and_then(|drain| self.cx.folded(&drain, &[])) {
            self.chain.pin_stream_drain = Some(Interval(nanos));
        }
    }

    /// Applies an ordering of two stages. Reports stages that are on different branches or written in the other
    /// order.
    fn order(&mut self, first: &Ident, second: &Ident, span: Span) {
        let (Some(a), Some(b)) = (self.find(first), self.find(second)) else { return };
        if self.is_whole && !self.may_precede(&a, &b) && !self.may_precede(&b, &a) && first != second {
            let message = format!("no frame goes through both `{}` and `{}`", first.name, second.name);
            let diagnostic = Diagnostic::error(code::ORDER_BROKEN, message)
                .at(span, "orders the two stages")
                .with_label(a.span, "on one branch")
                .with_label(b.span, "on another branch");
            return self.cx.report(diagnostic.with_help("remove the option"));
        }
        if self.is_whole && !self.may_precede(&a, &b) {
            let message = format!("`{}` comes after `{}` in the chain", first.name, second.name);
            let diagnostic = Diagnostic::error(code::ORDER_BROKEN, message)
                .at(span, "requires the opposite order")
                .with_label(b.span, "written first");
            self.cx.report(diagnostic.with_help("swap the stages, or remove the option"));
        }
        // Stages never move across a filter, so an order with a filter needs no check.
        if let (Some(a), Some(b)) = (a.instance, b.instance) {
            self.chain.orders.push((a, b));
        }
    }

    /// Applies PRIORITY to two stages.
    fn priority(&mut self, higher: &Ident, lower: &Ident) {
        let (Some(a), Some(b)) = (self.find(higher), self.find(lower)) else { return };
        if let (Some(a), Some(b)) = (a.instance, b.instance) {
            self.chain.priorities.push((a, b));
        }
    }

    /// Applies `FIRST` or `LAST`. Reports a stage that is written elsewhere.
    fn position(&mut self, instance: &Ident, is_last: bool, span: Span) {
        let Some(found) = self.find(instance) else { return };
        let (wanted, place) = if is_last { (found.n_stages - 1, "last") } else { (0, "first") };
        if self.is_whole && found.written_at != wanted {
            let of = if found.path > 0 { " of its branch" } else { "" };
            let message = format!("`{}` is not {place}{of}", instance.name);
            let diagnostic = Diagnostic::error(code::ORDER_BROKEN, message)
                .at(span, "required by this option")
                .with_label(found.span, "written here");
            self.cx.report(diagnostic.with_help("move the stage, or remove the option"));
        }
        let Some(at) = found.instance else { return };
        // Stages on another path do not move.
        let path = self.path_of(at);
        let others =
            (0..self.chain.instances.len()).filter(|other| *other != at && self.path_of(*other) == path);
        let orders: Vec<_> = others.map(|other| if is_last { (other, at) } else { (at, other) }).collect();
        self.chain.orders.extend(orders);
    }

    /// Lets one element fail open.
    fn bypass_on_failure(&mut self, name: &Ident, span: Span) {
        let Some(found) = self.find(name) else { return };
        let Some(at) = found.instance else {
            let message = format!("`{}` is a filter, which cannot fail", name.name);
            let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
                .at(span, "never applies")
                .with_label(found.span, "the filter")
                .with_help("remove the option: a filter always answers the calls that it rejects");
            return self.cx.report(diagnostic);
        };
        let instance = &mut self.chain.instances[at];
        instance.fail_open = true;
        if instance.mandatory {
            mandatory_may_fail(self.cx, instance, span, "BYPASS");
        }
    }

    /// Reports a branch in a chain on calls.
    fn branch(&mut self, from: &ast::Path) {
        // Branches of chains on frames were placed with their stages.
        if matches!(self.ast.on, ChainOn::Port { .. }) {
            return;
        }
        let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, "branches are for frames only")
            .at(from.span, "an edge of an element")
            .with_help("use `REDIRECT TO` to choose the destination of a call");
        self.cx.report(diagnostic);
    }

    /// Lets all elements of the chain fail open, except those of filters.
    fn fail_open(&mut self, span: Span) {
        let Chain { instances, filters, .. } = &mut *self.chain;
        for instance in instances {
            if filters.iter().any(|filter| filter.name == instance.name) {
                continue;
            }
            if instance.mandatory {
                mandatory_may_fail(self.cx, instance, span, "FAIL OPEN");
            }
            instance.fail_open = true;
        }
    }

    /// The stage with a name, if it has no error; reports an unknown name.
    fn find(&mut self, name: &Ident) -> Option<StagePosition> {
        let on_way = |(path, nodes)| {
            let (written_at, stage) =
                stages(nodes).enumerate().find(|(_, stage)| name_of(stage) == name.name)?;
            Some((path, written_at, stages(nodes).count(), stage.span))
        };
        let Some((path, written_at, n_stages, span)) = (0..).zip(chain_paths(self.ast)).find_map(on_way)
        else {
            self.no_stage(name);
            return None;
        };
        let Chain { instances, filters, .. } = &*self.chain;
        let is_filter = filters.iter().any(|filter| filter.name == name.name);
        let instance = instances.iter().position(|instance| instance.name == name.name);
        if instance.is_none() && !is_filter {
            return None;
        }
        Some(StagePosition { instance: instance.filter(|_| !is_filter), path, written_at, n_stages, span })
    }

    /// Whether a frame or call at `b` may have passed `a`.
    fn may_precede(&self, a: &StagePosition, b: &StagePosition) -> bool {
        if a.path == b.path {
            return a.written_at < b.written_at;
        }
        let (Some(a), Some(mut to)) = (a.instance, b.instance) else { return a.path < b.path };
        // A branch starts at an earlier stage: walk back to the path of `a`.
        while let Some(branch) = self.chain.branches.iter().find(|branch| branch.stages.contains(&to)) {
            to = branch.from;
            if self.path_of(a) == self.path_of(to) {
                return a <= to;
            }
        }
        false
    }

    /// The number of the branch of a stage, from 1; 0 for the main path.
    fn path_of(&self, instance: usize) -> usize {
        let at = self.chain.branches.iter().position(|branch| branch.stages.contains(&instance));
        at.map_or(0, |at| at + 1)
    }

    /// Reports an unknown stage.
    fn no_stage(&mut self, name: &Ident) {
        let names: Vec<&str> = chain_paths(self.ast).flat_map(stages).map(name_of).collect();
        let message = format!("chain `{}` has no stage `{}`", self.chain.name, name.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_OBJECT, message)
            .at(name.span, "unknown")
            .with_note(format!("it has: {}", names.join(", ")));
        self.cx.report_missing(with_nearest(diagnostic, name, names));
    }
}

/// The order of stages that the options require.
#[derive(Default)]
struct OrderGraph<'a> {
    /// For each stage, the stages after it, each with the first option that requires the order.
    edges: BTreeMap<&'a str, BTreeMap<&'a str, &'a ChainOption>>,
}

impl<'a> OrderGraph<'a> {
    fn add(&mut self, edges: &[(&'a str, &'a str)], option: &'a ChainOption) {
        for (first, second) in edges {
            self.edges.entry(first).or_default().entry(second).or_insert(option);
        }
    }

    /// The options on the shortest path from one stage to another; None if there is no path.
    fn path(&self, from: &'a str, to: &'a str) -> Option<Vec<&'a ChainOption>> {
        let mut reached: BTreeMap<&str, Vec<&'a ChainOption>> = BTreeMap::from([(from, Vec::new())]);
        let mut next = VecDeque::from([from]);
        while let Some(at) = next.pop_front() {
            if at == to {
                return reached.remove(at);
            }
            for (stage, option) in self.edges.get(at).into_iter().flatten() {
                if !reached.contains_key(stage) {
                    let mut options = reached[at].clone();
                    if options.last().is_none_or(|last| last.span != option.span) {
                        options.push(option);
                    }
                    reached.insert(stage, options);
                    next.push_back(stage);
                }
            }
        }
        None
    }
}

/// The pairs of stages that an option orders, earlier stage first.
fn precedences<'a>(ast: &'a ast::Chain, option: &'a ChainOption) -> Vec<(&'a str, &'a str)> {
    match &option.kind {
        ChainOptionKind::Order { first, second } => vec![(&first.name, &second.name)],
        ChainOptionKind::Position { instance, is_last } => {
            let name = instance.name.as_str();
            let path = chain_paths(ast).find(|nodes| stages(nodes).any(|stage| name_of(stage) == name));
            let others = path.into_iter().flat_map(stages).map(name_of).filter(|other| *other != name);
            others.map(|other| if *is_last { (other, name) } else { (name, other) }).collect()
        }
        _ => Vec::new(),
    }
}

/// The order that an option requires, as a label.
fn order_label(option: &ChainOptionKind) -> String {
    match option {
        ChainOptionKind::Order { first, second } => format!("`{}` before `{}`", first.name, second.name),
        ChainOptionKind::Position { instance, is_last: false } => {
            format!("`{}` first", instance.name)
        }
        ChainOptionKind::Position { instance, is_last: true } => {
            format!("`{}` last", instance.name)
        }
        _ => String::new(),
    }
}

/// A stage that an option names.
struct StagePosition {
    /// The index in [`Chain::instances`]; None for a filter.
    instance: Option<usize>,
    /// The path: 0 for the main path of the chain, then its branches in written order.
    path: usize,
    /// The stage's position on that path, and the number of stages on it.
    written_at: usize,
    n_stages: usize,
    span: Span,
}

/// Requests reach the client side first: stages AT CLIENT come, and stay, before stages AT SERVER.
pub(super) fn sides(cx: &mut Cx<'_>, ast: &ast::Chain, chain: &mut Chain) {
    let mut server = None;
    for stage in stages(&ast.stages) {
        match (stage.side.map(|clause| clause.side), server) {
            (Some(Side::Server), None) => server = Some(stage),
            (Some(Side::Client), Some(first)) => {
                let message =
                    format!("`{}` is AT CLIENT but comes after `{}`", name_of(stage), name_of(first));
                let diagnostic = Diagnostic::error(code::ORDER_BROKEN, message)
                    .at(stage.span, "requests have already left the client")
                    .with_label(first.span, "this is AT SERVER");
                cx.report(diagnostic.with_help("move the AT CLIENT stages before the AT SERVER stages"));
            }
            _ => {}
        }
    }
    let at = |side| {
        let of_side =
            chain.instances.iter().enumerate().filter(move |(_, instance)| instance.side == Some(side));
        of_side.map(|(at, _)| at).collect::<Vec<_>>()
    };
    let (clients, servers) = (at(Side::Client), at(Side::Server));
    let both = clients.iter().flat_map(|client| servers.iter().map(move |server| (*client, *server)));
    chain.orders.extend(both.filter(|(client, server)| client < server));
}

/// The name of a stage in options.
pub(super) fn name_of(stage: &Stage) -> &str {
    &stage.instance.as_ref().unwrap_or(&stage.element).name
}

/// The stages in written order, with groups flattened.
pub(super) fn stages(nodes: &[StageNode]) -> impl Iterator<Item = &Stage> {
    nodes.iter().flat_map(|node| match node {
        StageNode::One(stage) => std::slice::from_ref(stage),
        StageNode::Group { stages, .. } => stages,
    })
}

/// The main path of a chain and its branches, in written order.
pub(super) fn chain_paths(ast: &ast::Chain) -> impl Iterator<Item = &[StageNode]> {
    let branches = ast.options.iter().filter_map(|option| match &option.kind {
        ChainOptionKind::Branch { stages, .. } => Some(&stages[..]),
        _ => None,
    });
    std::iter::once(&ast.stages[..]).chain(branches)
}

/// Reports a mandatory element that may be bypassed.
pub(super) fn mandatory_may_fail(cx: &mut Cx<'_>, instance: &Instance, span: Span, what: &str) {
    let message = format!("`{}` is MANDATORY, but {what} would let calls bypass it", instance.name);
    let diagnostic = Diagnostic::error(code::MANDATORY_MAY_FAIL, message)
        .at(span, "contradicts")
        .with_label(instance.span, "mandatory here")
        .with_help(format!("remove {what}, or remove MANDATORY"));
    cx.report(diagnostic);
}
