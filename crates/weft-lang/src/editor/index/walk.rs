//! Records the uses of names in items and declarations.

use std::collections::BTreeMap;

use super::declare::stages;
use super::{FieldUse, Index, SymbolId, SymbolKind};
use crate::ast::{
    BudgetClause, Chain, ChainOn, ChainOptionKind, Decl, Element, Event, Expr, Filter, Handler, Ident,
    InsertRows, Item, Kind, LinkOn, PolicyKind, Queue, QueueDecl, QueueEvent, QueueUse, SinkTarget, Stage,
    StageArg, Table, TableOptionKind,
};
use crate::hir::Direction;

/// A table row that names can refer to.
pub(super) struct VisibleRow {
    pub(super) alias: String,
    /// The symbol of the alias: a row, or the table itself.
    pub(super) named: SymbolId,
    pub(super) table: SymbolId,
}

/// The visible names; lookups take time independent of their number.
#[derive(Default)]
pub(super) struct Locals {
    pub(super) names: Vec<String>,
    /// The last symbol with a name hides the others.
    of_name: BTreeMap<String, Vec<SymbolId>>,
}

impl Locals {
    pub(super) fn push(&mut self, name: &str, local: SymbolId) {
        self.names.push(name.to_owned());
        self.of_name.entry(name.to_owned()).or_default().push(local);
    }

    pub(super) fn last(&self, name: &str) -> Option<SymbolId> {
        self.of_name.get(name)?.last().copied()
    }

    /// Removes the names from the `n`th on, at the end of a block.
    pub(super) fn truncate(&mut self, n: usize) {
        for name in self.names.drain(n.min(self.names.len())..) {
            if let Some(all) = self.of_name.get_mut(&name) {
                all.pop();
            }
        }
    }
}

/// Walks over the items of a program.
#[derive(Default)]
pub(super) struct Indexer {
    pub(super) index: Index,
    pub(super) element: Option<SymbolId>,
    pub(super) handler: Option<SymbolId>,
    pub(super) direction: Option<Direction>,
    pub(super) locals: Locals,
    pub(super) visible_rows: Vec<VisibleRow>,
}

impl Indexer {
    /// Records the uses in an item.
    pub(super) fn item(&mut self, item: &Item) {
        match item {
            Item::Table(table) => self.table(table),
            Item::Element(element) => self.element(element),
            Item::Filter(filter) => self.filter(filter),
            Item::Function(function) => {
                if let Some(other) = &function.inverse_of {
                    self.index.record_member(None, other, SymbolKind::Item(Kind::Function));
                }
                function.options.iter().for_each(|option| self.expr(&option.value));
                self.exprs(&function.cost);
            }
            Item::Chain(chain) => self.chain(chain),
            Item::Route(route) => {
                self.index.record_member(None, &route.listener, SymbolKind::Item(Kind::Listener));
                self.index.record_member(None, &route.cluster, SymbolKind::Item(Kind::Cluster));
                self.exprs(&route.when);
            }
            Item::Drop(drop) => {
                self.index.record_member(None, &drop.name, SymbolKind::Item(drop.kind));
            }
            Item::Insert(rows) => self.insert_rows(rows),
            Item::Protocol(protocol) => self.index.protocol(protocol),
            Item::Queue(queue) => self.queue(queue),
            Item::Group(group) => {
                for (port, weight) in &group.members {
                    self.index.record_member(None, port, SymbolKind::Item(Kind::Port));
                    self.exprs(weight);
                }
            }
            Item::Link(link) => {
                match &link.on {
                    LinkOn::Port { port, .. } => {
                        self.index.record_member(None, port, SymbolKind::Item(Kind::Port));
                    }
                    LinkOn::Calls(calls) => {
                        let kind = if calls.is_listener { Kind::Listener } else { Kind::Cluster };
                        self.index.record_member(None, &calls.on, SymbolKind::Item(kind));
                        [&calls.concurrency, &calls.key, &calls.class]
                            .into_iter()
                            .for_each(|expr| self.exprs(expr));
                    }
                }
                self.exprs(&link.rate);
                self.queue_use(&link.queue);
            }
            Item::Union(union) => {
                for member in &union.members {
                    self.index.record_member(None, member, SymbolKind::Item(Kind::Protocol));
                }
                for path in union.columns.iter().flat_map(|column| &column.fields) {
                    self.index.wire_path(path, None);
                }
            }
            Item::Import(_) | Item::Type(_) | Item::Listener(_) | Item::Cluster(_) | Item::Port(_) => {}
        }
    }

    /// Records the uses in a queue.
    fn queue(&mut self, queue: &Queue) {
        let outside = self.element;
        self.element =
            self.index.member(None, &queue.name.name, |kind| kind == SymbolKind::Item(Kind::Queue));
        queue.uses.iter().for_each(|used| self.queue_use(used));
        for decl in &queue.decls {
            match decl {
                QueueDecl::Var { var, .. } => self.exprs(&var.default),
                QueueDecl::Partition { key, .. } => self.expr(key),
                QueueDecl::OrderPartitions { by, .. } | QueueDecl::OrderPackets { by, .. } => self.expr(by),
                QueueDecl::Limit(limit) => {
                    self.exprs(&limit.packets);
                    self.exprs(&limit.bytes);
                }
            }
        }
        for handler in &queue.handlers {
            let name = Ident { name: "ON".to_owned(), span: handler.event_span };
            self.handler =
                Some(self.index.declare_symbol(SymbolKind::Handler, &name, handler.span, self.element));
            // `ON DEQUEUE` is not a name that can be looked up.
            self.index.uses.pop();
            if let QueueEvent::Every { interval, .. } = &handler.event {
                self.expr(interval);
            }
            self.block(&handler.body);
        }
        (self.handler, self.element) = (None, outside);
    }

    /// Records a use of a queue and of its parameters.
    fn queue_use(&mut self, used: &QueueUse) {
        let queue = self.index.record_member(None, &used.queue, SymbolKind::Item(Kind::Queue));
        for arg in &used.args {
            self.index.record_member(queue, &arg.name, SymbolKind::Param);
            self.expr(&arg.value);
        }
    }

    /// Records the uses in an INSERT of rows into `table` or `chain.instance.table`.
    fn insert_rows(&mut self, rows: &InsertRows) {
        let table = match rows.table.segments.as_slice() {
            [table] => self.index.record_member(None, table, SymbolKind::Item(Kind::Table)),
            [chain, instance, table] => {
                let chain = self.index.record_member(None, chain, SymbolKind::Item(Kind::Chain));
                let instance = chain
                    .and_then(|chain| self.index.record_member(Some(chain), instance, SymbolKind::Instance));
                let element = instance.and_then(|instance| self.index.symbol(instance).of);
                element.and_then(|element| {
                    self.index.record_member(Some(element), table, SymbolKind::Item(Kind::Table))
                })
            }
            _ => None,
        };
        for column in &rows.columns {
            if table.is_some() {
                self.index.record_member(table, column, SymbolKind::TableColumn);
            }
        }
    }

    /// Records the uses in a chain.
    fn chain(&mut self, chain: &Chain) {
        let Some(&id) = self.index.declared.get(&chain.name.span) else { return };
        match &chain.on {
            ChainOn::Edge { from, to, .. } => {
                self.index.record_member(None, from, SymbolKind::Item(Kind::Listener));
                self.index.record_member(None, to, SymbolKind::Item(Kind::Cluster));
            }
            ChainOn::Port { ports, to, when, .. } => {
                for port in ports {
                    self.index.record_member(None, port, SymbolKind::Item(Kind::Port));
                }
                if let Some(to) = to {
                    self.index.record_outlet(to);
                }
                self.exprs(when);
            }
        }
        for stage in stages(chain) {
            self.stage(id, stage);
        }
        for option in &chain.options {
            let named: Vec<&Ident> = match &option.kind {
                ChainOptionKind::Order { first, second } => vec![first, second],
                ChainOptionKind::Priority { higher, lower } => vec![higher, lower],
                ChainOptionKind::Position { instance, .. }
                | ChainOptionKind::BypassOnFailure { instance } => {
                    vec![instance]
                }
                ChainOptionKind::Branch { from, .. } => from.segments.iter().take(1).collect(),
                ChainOptionKind::PinStream { .. }
                | ChainOptionKind::Equivalence { .. }
                | ChainOptionKind::FailOpen => Vec::new(),
            };
            for name in named {
                self.index.record_member(Some(id), name, SymbolKind::Instance);
            }
        }
    }

    /// Records the uses in a stage.
    fn stage(&mut self, chain: SymbolId, stage: &Stage) {
        let is_stage = |kind| matches!(kind, SymbolKind::Item(Kind::Element | Kind::Filter));
        let element = self.index.member(None, &stage.element.name, is_stage);
        if let Some(element) = element {
            self.index.record_use(stage.element.span, element);
        }
        let name = stage.instance.as_ref().unwrap_or(&stage.element);
        if let Some(instance) = self.index.declared.get(&name.span) {
            self.index.symbols[instance.0].of = element;
        }
        for arg in &stage.args {
            match arg {
                StageArg::Param(assign) => {
                    if element.is_some() {
                        self.index.record_member(element, &assign.name, SymbolKind::Param);
                    }
                    self.expr(&assign.value);
                }
                StageArg::Bind { column, value, .. } => {
                    let is_column = |kind| matches!(kind, SymbolKind::Column(_));
                    let found =
                        element.and_then(|element| self.index.member(Some(element), &column.name, is_column));
                    if let Some(found) = found {
                        self.index.record_use(column.span, found);
                    }
                    value.each_path(&mut |path| {
                        self.index.wire_path(path, None);
                        self.index.fields.push(FieldUse { path: path.clone(), chain, column: found });
                    });
                }
            }
        }
    }

    /// Records the uses in an element.
    fn element(&mut self, element: &Element) {
        self.element = self.index.declared.get(&element.name.span).copied();
        self.index.record_member(None, &element.layer, SymbolKind::Item(Kind::Protocol));
        for param in &element.params {
            self.exprs(&param.default);
        }
        for decl in &element.decls {
            match decl {
                Decl::Table(table) => self.table(table),
                Decl::Var(var) => self.exprs(&var.initial),
                Decl::Call(call) => call.columns.iter().for_each(|cell| self.exprs(&cell.default)),
                Decl::Sink(sink) => match &sink.target {
                    SinkTarget::File(path) => self.expr(path),
                    SinkTarget::Table { name, .. } => {
                        self.table_name(name);
                    }
                    SinkTarget::Stdout | SinkTarget::Metrics => {}
                },
                Decl::Sketch(sketch) => {
                    sketch.key.iter().chain(&sketch.sum).chain(&sketch.top).for_each(|expr| self.expr(expr));
                }
                Decl::Edge(_) => {}
            }
        }
        for handler in &element.handlers {
            self.handler(handler);
        }
        self.element = None;
    }

    /// Records the uses in a filter.
    fn filter(&mut self, filter: &Filter) {
        self.element = self.index.declared.get(&filter.name.span).copied();
        self.direction = Some(Direction::Request);
        for param in &filter.params {
            self.exprs(&param.default);
        }
        for policy in &filter.policies {
            self.exprs(exprs_of(&policy.kind));
        }
        (self.element, self.direction) = (None, None);
    }

    /// Records the uses in a table declaration.
    fn table(&mut self, table: &Table) {
        let id = self.index.declared.get(&table.name.span).copied();
        for name in table.key.iter().flat_map(|key| &key.columns) {
            self.index.record_member(id, name, SymbolKind::TableColumn);
        }
        for column in &table.columns {
            self.exprs(&column.default);
        }
        for option in &table.options {
            match &option.kind {
                TableOptionKind::Ttl { interval, .. } => self.expr(interval),
                TableOptionKind::Max { rows, .. } => self.expr(rows),
                TableOptionKind::Filled(..) | TableOptionKind::PerWorker => {}
            }
        }
    }

    /// Records the uses in a handler, whose locals are visible inside it.
    fn handler(&mut self, handler: &Handler) {
        let name = Ident { name: event_name(&handler.event).to_owned(), span: handler.event_span };
        let id = self.index.declare_symbol(SymbolKind::Handler, &name, handler.span, self.element);
        // `ON REQUEST` is not a name that can be looked up.
        self.index.uses.pop();
        self.handler = Some(id);
        self.direction = match handler.event {
            Event::Request => Some(Direction::Request),
            Event::Response => Some(Direction::Response),
            _ => None,
        };
        match &handler.event {
            Event::Every(interval) => self.expr(interval),
            Event::Timeout(name) | Event::Evict(name) => {
                if let Some(table) = self.table_name(name) {
                    self.visible_rows.push(VisibleRow { alias: "OLD".to_owned(), named: table, table });
                }
            }
            _ => {}
        }
        self.block(&handler.body);
        self.visible_rows.clear();
        (self.handler, self.direction) = (None, None);
    }
}

/// Returns the expressions of a policy.
fn exprs_of(policy: &PolicyKind) -> Vec<&Expr> {
    match policy {
        PolicyKind::TimeoutTotal { after } | PolicyKind::TimeoutTry { after } => vec![after],
        PolicyKind::TimeoutPropagate { less } => less.iter().collect(),
        PolicyKind::Retry(retry) => {
            let backoff =
                retry.backoff.iter().flat_map(|clause| std::iter::once(&clause.first).chain(&clause.max));
            let rest = backoff.chain(&retry.jitter).chain(exprs_of_budget(retry.budget.as_ref()));
            [&retry.up_to, &retry.when].into_iter().chain(rest).collect()
        }
        PolicyKind::Hedge(hedge) => {
            let rest = hedge.when.iter().chain(exprs_of_budget(hedge.budget.as_ref()));
            [&hedge.after, &hedge.up_to].into_iter().chain(rest).collect()
        }
        PolicyKind::Pace(rate) | PolicyKind::Rate(rate) => {
            let options = rate.burst.iter().chain(&rate.key).chain(&rate.queue);
            std::iter::once(&rate.per_second).chain(options).chain(&rate.wait).chain(&rate.keys).collect()
        }
        PolicyKind::Order { key, queue, keys } => key.iter().chain(queue).chain(keys).collect(),
        PolicyKind::Circuit(circuit) => {
            let ratio = circuit.ratio.iter().flat_map(|ratio| [&ratio.percent, &ratio.calls, &ratio.window]);
            let rest = circuit.in_flight.iter().chain(&circuit.when).chain(&circuit.open_for);
            circuit.errors.iter().chain(ratio).chain(rest).chain(&circuit.probes).collect()
        }
        PolicyKind::Outlier(outlier) => [&outlier.errors, &outlier.eject_for]
            .into_iter()
            .chain(&outlier.when)
            .chain(&outlier.up_to)
            .collect(),
        PolicyKind::Congestion(congestion) => {
            let numbers = congestion.from.iter().chain(&congestion.min).chain(&congestion.latency);
            let rest = congestion.backoff.iter().chain(&congestion.tolerance).chain(&congestion.when);
            std::iter::once(&congestion.max).chain(numbers).chain(rest).collect()
        }
        PolicyKind::AtLeastOnce { id, window, calls, answers } => {
            id.iter().chain([window]).chain(calls).chain(answers).collect()
        }
        PolicyKind::AtMostOnce | PolicyKind::Over { .. } => Vec::new(),
    }
}

fn exprs_of_budget(budget: Option<&BudgetClause>) -> impl Iterator<Item = &Expr> {
    budget.into_iter().flat_map(|clause| std::iter::once(&clause.percent).chain(&clause.per_second))
}

/// Returns the keywords of an event.
fn event_name(event: &Event) -> &'static str {
    match event {
        Event::Open => "ON OPEN",
        Event::Request => "ON REQUEST",
        Event::Response => "ON RESPONSE",
        Event::Close => "ON CLOSE",
        Event::Error => "ON ERROR",
        Event::Message => "ON MESSAGE",
        Event::Packet => "ON PACKET",
        Event::Every(_) => "ON EVERY",
        Event::Timeout(_) => "ON TIMEOUT",
        Event::Evict(_) => "ON EVICT",
        Event::Signal { .. } => "ON SIGNAL",
    }
}
