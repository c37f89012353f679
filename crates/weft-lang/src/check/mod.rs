//! Name resolution, type checking and semantic checks: from syntax trees to a typed program.
//!
//! There is one module for each kind of item. An error is reported once, at its origin; dependent checks stay silent.
//! An expression with an error is None. A declaration with an error is kept with a placeholder type, and its span is
//! recorded as broken.

use std::collections::BTreeSet;

use weft_core::schema::Schema;
use weft_core::{Type, Value};

use crate::ast::{Ident, Item, TypeExpr};
use crate::diagnostic::{Code, Diagnostic, code};
use crate::hir::{self, Element, Expr, LocalId, Network};
use crate::nearest::nearest;
use crate::resolve::{self, Program, Resolver};
use crate::source::{DIAGNOSTICS_MAX, SourceMap, Span};
use crate::types;

mod action;
mod binding;
mod chain;
mod checked;
mod effects;
mod element;
mod expr;
mod fill;
mod filter;
pub mod fold;
pub(crate) mod frame;
pub mod functions;
mod header;
mod header_changes;
pub(crate) mod mark;
mod matching;
mod named_ports;
pub mod native;
pub mod network;
mod new_columns;
mod null_narrowing;
mod query;
pub mod queue;
pub(crate) mod scope;
mod settings;
pub mod size;
mod stmt;
mod suggest;
pub mod table;
pub mod table_statement;
mod tree;
pub(crate) mod view;
pub(crate) mod walk;
mod wire;

/// Checks the program at `root_path` and all that it imports.
///
/// Returns the typed program if there is no error, all errors and warnings in source order, and the texts that their
/// spans refer to.
pub fn check(root_path: &str, resolver: &mut dyn Resolver) -> (Option<Network>, Vec<Diagnostic>, SourceMap) {
    let Analysis { network, diagnostics, sources, .. } = analyse(root_path, resolver);
    let is_good = !diagnostics.iter().any(Diagnostic::is_error);
    (is_good.then_some(network), diagnostics, sources)
}

/// The result of a check for an editor: everything that [`check`] finds, even for a program with errors.
#[derive(Debug)]
pub struct Analysis {
    /// The syntax trees and the schemas.
    pub program: Program,
    /// The typed program. After errors, parts of it are missing or are placeholders: it can be displayed, but not
    /// lowered.
    pub network: Network,
    /// Errors and warnings in the order of the text.
    pub diagnostics: Vec<Diagnostic>,
    /// The texts that spans refer to.
    pub sources: SourceMap,
}

/// Checks the program at `root_path` like [`check`], and keeps the results even if there are errors.
pub fn analyse(root_path: &str, resolver: &mut dyn Resolver) -> Analysis {
    let mut sources = SourceMap::new();
    let mut diagnostics = Vec::new();
    let program = resolve::load(root_path, resolver, &mut sources, &mut diagnostics);
    let n_errors = diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count();
    let mut cx = Cx {
        library: resolver.library(),
        schema: &program.schema,
        sources: &sources,
        has_gaps: n_errors > program.n_errors_apart,
        diagnostics,
        n_errors_reported: 0,
        n_warnings_reported: 0,
        now: None,
        broken: BTreeSet::new(),
        layer_is_missing: false,
        returned: Vec::new(),
        skipped: BTreeSet::new(),
        functions: Vec::new(),
        broken_functions: Vec::new(),
        formats: frame::Formats::default(),
        ports: Vec::new(),
    };
    let network = network_of(&mut cx, &program);
    let mut diagnostics = cx.diagnostics;
    // A label in an earlier file or position comes first; diagnostics without a span come before all others.
    diagnostics.sort_by_key(Diagnostic::span);
    Analysis { network, diagnostics, program, sources }
}

/// The state shared by all checks.
pub(crate) struct Cx<'a> {
    /// Paths of files that any program can import.
    library: Vec<String>,
    schema: &'a Schema,
    sources: &'a SourceMap,
    diagnostics: Vec<Diagnostic>,
    /// The number of errors found by the checks; errors of files and syntax are not included.
    n_errors_reported: usize,
    n_warnings_reported: usize,
    /// The time for `now()`; None while a program is checked, because it runs later.
    now: Option<weft_core::Time>,
    /// Declarations with a fault.
    broken: BTreeSet<Span>,
    /// Parts of the trees were omitted, so a missing name may be declared there.
    has_gaps: bool,
    /// The current element is on a layer that this version does not support.
    layer_is_missing: bool,
    /// The names that RETURNING declared in the current handler.
    returned: Vec<(LocalId, Ident)>,
    /// Elements that this version does not check.
    skipped: BTreeSet<String>,
    /// Native functions: see [`Network::functions`].
    functions: Vec<hir::NativeFunction>,
    /// Names of declarations with a fault.
    broken_functions: Vec<String>,
    /// See [`Network::protocols`] and [`Network::unions`].
    formats: frame::Formats,
    /// The names of all ports.
    ports: Vec<String>,
}

impl Diagnostic {
    /// Reports the diagnostic. Returns None, as the result of a check that found an error.
    fn refuse<T>(self, cx: &mut Cx<'_>) -> Option<T> {
        cx.report(self);
        None
    }

    /// Like [`Self::refuse`], for a thing that is missing: see [`Cx::report_missing`].
    fn refuse_missing<T>(self, cx: &mut Cx<'_>) -> Option<T> {
        cx.report_missing(self);
        None
    }
}

impl Cx<'_> {
    /// Reports an error with a label and a help.
    fn fault(
        &mut self,
        code: Code,
        message: impl Into<String>,
        span: Span,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(Diagnostic::error(code, message).at(span, label).with_help(help));
    }

    /// Reports an error like [`Self::fault`]. Returns None, as the result of a check that found an error.
    fn refuse<T>(
        &mut self,
        code: Code,
        message: impl Into<String>,
        span: Span,
        label: impl Into<String>,
        help: impl Into<String>,
    ) -> Option<T> {
        self.fault(code, message, span, label, help);
        None
    }

    /// Reports a warning with a label and a help.
    fn warn(
        &mut self,
        code: Code,
        message: impl Into<String>,
        span: Span,
        label: impl Into<String>,
        help: impl Into<String>,
    ) {
        self.report(Diagnostic::warning(code, message).at(span, label).with_help(help));
    }

    /// Adds a diagnostic, unless it is a consequence of a known one or the limit is reached.
    fn report(&mut self, diagnostic: Diagnostic) {
        let n_reported = match diagnostic.is_error() {
            true => &mut self.n_errors_reported,
            false => &mut self.n_warnings_reported,
        };
        // The names of an unsupported layer are unknown.
        if self.layer_is_missing && diagnostic.code == code::NOT_IN_VERSION {
            return;
        }
        // The same error at the same place is reported once, even if several checks find it. A number that cannot be
        // parsed has no type, so a type error there is redundant.
        let is_known = |known: &Diagnostic| {
            *known == diagnostic || known.code == code::BAD_NUMBER && known.span() == diagnostic.span()
        };
        if *n_reported >= DIAGNOSTICS_MAX || self.diagnostics.iter().any(is_known) {
            return;
        }
        *n_reported += 1;
        let (is_last, is_error, span) =
            (*n_reported == DIAGNOSTICS_MAX, diagnostic.is_error(), diagnostic.span());
        self.diagnostics.push(diagnostic);
        if is_last {
            self.report_limit(is_error, span);
        }
    }

    /// Reports that further errors or warnings are left out.
    fn report_limit(&mut self, is_error: bool, span: Option<Span>) {
        let diagnostic = match is_error {
            true => {
                // The unchecked rest may declare a name that is missing elsewhere.
                self.has_gaps = true;
                let message = format!("{DIAGNOSTICS_MAX} errors; the rest of the program is not checked");
                Diagnostic::error(code::TOO_MANY_DIAGNOSTICS, message)
            }
            false => {
                let message = format!("{DIAGNOSTICS_MAX} warnings; further warnings are not shown");
                Diagnostic::warning(code::TOO_MANY_DIAGNOSTICS, message)
            }
        };
        self.diagnostics.push(match span {
            Some(span) => diagnostic.at(span, "the last one is here"),
            None => diagnostic,
        });
    }

    /// Whether the limit of reported errors is reached. The rest is then not checked: suggestions for misspelled names
    /// take time, and a hundred thousand errors would take hours.
    fn is_at_limit(&self) -> bool {
        self.n_errors_reported >= DIAGNOSTICS_MAX
    }

    /// Reports that something is missing, unless it may be in a part that could not be parsed.
    fn report_missing(&mut self, diagnostic: Diagnostic) {
        if !self.has_gaps {
            self.report(diagnostic);
        }
    }

    /// Reports a possible consequence of an error in a declaration, unless the declaration has an error.
    fn report_unless_broken(&mut self, declaration: Span, diagnostic: Diagnostic) {
        if !self.is_broken(declaration) {
            self.report(diagnostic);
        }
    }

    /// Reports a second declaration of a name.
    fn report_duplicate(&mut self, what: &str, name: &Ident, first: Span) {
        let diagnostic =
            Diagnostic::error(code::DUPLICATE_NAME, format!("there are two {what}s `{}`", name.name))
                .at(name.span, "the second")
                .with_label(first, "the first")
                .with_help("rename one, or remove it");
        self.report(diagnostic);
    }

    /// The line of a place, from 1.
    fn line(&self, span: Span) -> u32 {
        self.sources.file(span.file).position(span.start).line
    }

    fn is_broken(&self, declaration: Span) -> bool {
        self.broken.contains(&declaration)
    }

    fn has_errors(&self) -> bool {
        self.diagnostics.iter().any(Diagnostic::is_error)
    }

    fn n_errors(&self) -> usize {
        self.diagnostics.iter().filter(|diagnostic| diagnostic.is_error()).count()
    }

    /// Resolves the type that a type expression names. Reports an unknown one.
    fn type_expr(&mut self, ty: &TypeExpr) -> Option<Type> {
        if self.is_at_limit() {
            return None;
        }
        let known = types::named(&ty.kind, self.schema);
        if known.is_none() {
            const NAMES: [&str; 21] = [
                "BOOL",
                "I8",
                "I16",
                "I32",
                "I64",
                "INT",
                "U1",
                "U8",
                "U16",
                "U32",
                "U64",
                "F64",
                "TEXT",
                "BYTES",
                "SIZE",
                "INTERVAL",
                "TIMESTAMP",
                "IPADDR",
                "CIDR",
                "MAC",
                "ENDPOINT",
            ];
            let name = self.sources.slice(ty.span).trim_end_matches('?').to_owned();
            let diagnostic = Diagnostic::error(code::UNKNOWN_TYPE, format!("unknown type `{name}`"))
                .at(ty.span, "not a type or a declared enum");
            let is_ip = ["ip", "inet", "ipaddress"].iter().any(|other| name.eq_ignore_ascii_case(other));
            let near = if is_ip { Some("IPADDR") } else { nearest(&name, NAMES) };
            let diagnostic = match near {
                Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(ty.span, near),
                None => diagnostic.with_note(format!("types are {}, STATUS", NAMES.join(", "))),
            };
            self.report(diagnostic);
        }
        known
    }

    /// The type of a stored value, so text needs a length. An error marks the declaration as broken.
    fn stored_type(&mut self, ty: &TypeExpr, declaration: Span, name: &str) -> Type {
        let known = self.type_expr(ty);
        if let Some(bare @ (Type::Text(None) | Type::Bytes(None))) = known {
            let diagnostic = Diagnostic::error(
                code::LENGTH_NEEDED,
                format!("`{name}` is stored, but {bare} has no length"),
            )
            .at(ty.span, "how many bytes at most?")
            .with_help(format!("write `{bare}(64)`: memory is allocated before the program runs"));
            self.report(diagnostic);
            // The type without its length is sufficient for later checks.
            return bare;
        }
        if known.is_none() {
            self.broken.insert(declaration);
        }
        known.unwrap_or(Type::Bool)
    }

    /// The value of a constant expression, or why it has none.
    fn value_of(&self, expr: &Expr, params: &[Value]) -> Result<Value, fold::FoldError> {
        match self.now {
            Some(now) => fold::fold_at(expr, params, now),
            None => fold::fold(expr, params),
        }
    }

    /// Computes a constant. Reports an expression that is not constant, or not a finite number.
    fn folded(&mut self, expr: &Expr, params: &[Value]) -> Option<Value> {
        match self.value_of(expr, params) {
            // A constant must be a finite number.
            Ok(Value::Float(x)) if !x.is_finite() => {
                let message = format!("this constant is not a finite number: {x}");
                self.report(
                    Diagnostic::error(code::BAD_LITERAL, message).at(expr.span, "infinite or not a number"),
                );
                None
            }
            Ok(value) => Some(value),
            Err(fold::FoldError::NotConstant(span)) => {
                let diagnostic = Diagnostic::error(code::NOT_CONSTANT, "this must be a constant")
                    .at(span, "not a constant")
                    .with_help(if params.is_empty() {
                        "use a literal"
                    } else {
                        "use a literal or a parameter"
                    });
                self.report(diagnostic);
                None
            }
            Err(fold::FoldError::Fault(fault, span)) => {
                let diagnostic =
                    Diagnostic::error(code::BAD_LITERAL, format!("this constant is an error: {fault}"));
                self.report(diagnostic.at(span, fault));
                None
            }
        }
    }
}

/// Checks the items of all files, kind by kind, so that their order in the text does not matter.
fn network_of(cx: &mut Cx<'_>, program: &Program) -> Network {
    let mut network = Network { schema: program.schema.clone(), ..Network::default() };
    let items = size::within_size_limits(cx, &program.items);
    let items = effective_items(cx, &items);
    native_functions(cx, &items);
    cx.formats = wire::protocols(cx, &items).into();
    for item in &items {
        match item {
            Item::Listener(item) => network.listeners.push(network::listener(cx, item)),
            Item::Cluster(item) => network.clusters.push(network::cluster(cx, item)),
            Item::Port(item) => {
                cx.ports.push(item.name.name.clone());
                network.ports.push(network::port(cx, item));
            }
            Item::Table(item) => network.tables.push(shared_table(cx, item)),
            _ => {}
        }
    }
    network::report_shared_devices(cx, &network.ports);
    for item in &items {
        if let Item::Group(item) = item {
            // A program may redirect to a group that has an error; that error is already reported.
            cx.ports.push(item.name.name.clone());
            network.groups.extend(network::group(cx, &network.ports, item));
        }
    }
    let queues = queue::Queues::of(&items);
    network.queues = queues.check(cx);
    for item in &items {
        if let Item::Link(item) = item {
            queues.link(cx, &mut network, item);
        }
    }
    let mut elements = Vec::new();
    for item in &items {
        if cx.is_at_limit() {
            break;
        }
        if let Item::Element(item) = item {
            match element::element(cx, &network.tables, item) {
                Some(checked) => elements.push(checked),
                None => {
                    cx.skipped.insert(item.name.name.clone());
                }
            }
        }
    }
    // From here on, parts of elements are referenced; elements with an error may lack them.
    cx.has_gaps |= program.n_errors_apart > 0;
    let filters = filters(cx, &network.tables, &items, &mut elements);
    let (mut routes, mut chains) = (Vec::new(), Vec::new());
    let mut misses_chain = false;
    for item in &items {
        if cx.is_at_limit() {
            break;
        }
        match item {
            Item::Route(item) => {
                network.routes.extend(network::route(cx, &network.listeners, &network.clusters, item));
                routes.push(item);
            }
            Item::Chain(item) => {
                let chain = chain::chain(cx, &network, (&mut elements, &filters), item);
                if let Some(chain) = &chain {
                    chain::whole::check_mandatory(cx, &elements, chain);
                }
                misses_chain |= chain.is_none();
                network.chains.extend(chain);
                chains.push(item);
            }
            _ => {}
        }
    }
    network::check_routes(cx, &network.routes, &routes);
    chain::whole::check_overlaps(cx, &network.chains, &network.routes, &chains);
    chain::whole::warn_of_unreachable(cx, &network.chains, &network.ports, &chains);
    // For a chain with an error, checking its rows would only report that the chain is unknown.
    cx.has_gaps |= misses_chain;
    let mut fills = fill::Fills::default();
    let plain: Vec<&Element> = elements.iter().map(|checked| &checked.element).collect();
    for item in &items {
        if cx.is_at_limit() {
            break;
        }
        if let Item::Insert(item) = item {
            fills.add(cx, (&network.tables, &network.chains, &plain), item);
        }
    }
    for (at, chain) in network.chains.iter().enumerate() {
        fills.add_members(cx, (chain, at), &network.clusters, &plain);
    }
    fills.add_ports(cx, &network, &plain);
    network.fills = fills.finish();
    network.functions = core::mem::take(&mut cx.functions);
    let formats = core::mem::take(&mut cx.formats);
    (network.protocols, network.unions) = (formats.protocols, formats.unions);
    let spans = items.iter().filter_map(|item| match item {
        Item::Protocol(item) => Some(item.span),
        _ => None,
    });
    network.protocol_spans = spans.take(network.protocols.len()).collect();
    network.elements = elements.into_iter().map(|checked| checked.element).collect();
    network
}

/// Checks the filters; a filter with keys adds an element that computes them.
fn filters<'a>(
    cx: &mut Cx<'_>,
    tables: &[hir::Table],
    items: &[&'a Item],
    elements: &mut Vec<checked::Checked>,
) -> Vec<filter::Filter<'a>> {
    let mut filters = Vec::new();
    for item in items {
        let Item::Filter(item) = item else { continue };
        let Some(mut filter) = filter::filter(cx, tables, item) else {
            cx.skipped.insert(item.name.name.clone());
            continue;
        };
        if filter.checked.element.handlers.iter().next().is_some() {
            filter.keys = Some(elements.len());
            elements.push(filter.checked.clone());
        }
        if let Some(early) = filter.early.take() {
            filter.early_keys = Some(elements.len());
            elements.push(early);
        }
        filters.push(filter);
    }
    filters
}

/// Checks all function declarations before any use.
fn native_functions(cx: &mut Cx<'_>, items: &[&Item]) {
    let mut declared = Vec::new();
    for item in items {
        let Item::Function(item) = item else { continue };
        match native::declared(cx, item) {
            Some(function) => {
                declared.push((cx.functions.len(), item));
                cx.functions.push(function);
            }
            // A call of it would only report an unknown function.
            None => cx.broken_functions.push(item.name.name.clone()),
        }
    }
    native::inverses(cx, &declared);
}

/// Returns the items in effect: a later `CREATE OR REPLACE` replaces an earlier item, `DROP` removes one.
fn effective_items<'a>(cx: &mut Cx<'_>, items: &[&'a Item]) -> Vec<&'a Item> {
    let mut live: Vec<&Item> = Vec::new();
    for item in items.iter().copied() {
        if let Item::Drop(drop) = item {
            let before = live.len();
            live.retain(|known| {
                resolve::named(known)
                    .is_none_or(|(kind, name, _)| (kind, &name.name) != (drop.kind, &drop.name.name))
            });
            if live.len() == before {
                let word = resolve::kind_word(drop.kind);
                let message = format!("no {word} `{}` exists to drop", drop.name.name);
                let diagnostic =
                    Diagnostic::error(code::UNKNOWN_OBJECT, message).at(drop.name.span, "unknown");
                let names = live.iter().filter_map(|known| resolve::named(known));
                let names =
                    names.filter(|(kind, ..)| *kind == drop.kind).map(|(_, name, _)| name.name.as_str());
                cx.report_missing(suggest::with_nearest(diagnostic, &drop.name, names.collect::<Vec<_>>()));
            }
            continue;
        }
        if let Some((kind, name, true)) = resolve::named(item) {
            live.retain(|known| {
                resolve::named(known)
                    .is_none_or(|(other, known, _)| (other, &known.name) != (kind, &name.name))
            });
        }
        live.push(item);
    }
    live
}

/// Checks a table at top level.
fn shared_table(cx: &mut Cx<'_>, item: &crate::ast::Table) -> hir::Table {
    let (element, mut n_rand) = (empty_element(), 0);
    let (table, bounds) = table::table(cx, &element, &mut n_rand, item);
    if let Err((message, span)) = table::limits(&bounds, &[]) {
        cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(span, "outside the limits"));
    }
    if table.filled == Some(crate::ast::Filler::Cluster) {
        let message = format!("shared table `{}` belongs to no chain, so it has no cluster", table.name);
        let diagnostic = Diagnostic::error(code::NOT_FILLABLE, message)
            .at(item.name.span, "members of which cluster?")
            .with_help("declare it in an element, whose chain determines the cluster");
        cx.report(diagnostic);
    }
    if table.filled == Some(crate::ast::Filler::Stage) {
        let message =
            format!("shared table `{}` belongs to no chain, so there is no other stage", table.name);
        let diagnostic = Diagnostic::error(code::NOT_FILLABLE, message)
            .at(item.name.span, "the table of which stage?")
            .with_help("declare it in an element, whose chain has the other stage");
        cx.report(diagnostic);
    }
    table
}

/// An element without any declarations: the scope of expressions outside elements.
fn empty_element() -> Element {
    Element::empty("", Span::new(crate::source::FileId(0), 0, 0))
}

/// The results of several checks, all of which run; None if one has found an error.
fn all<T>(found: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let found: Vec<Option<T>> = found.collect();
    found.into_iter().collect()
}

/// Joins names for a message; at most twelve are listed.
fn quoted_list(names: &[String]) -> String {
    const NAMES_MAX: usize = 12;
    let shown: Vec<&str> = names.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = if names.len() > NAMES_MAX { ", ..." } else { "" };
    format!("{}{more}", shown.join(", "))
}
