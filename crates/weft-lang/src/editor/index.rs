//! Indexes the declarations and uses of names in all files of a program.
//!
//! Names are resolved as in the checker, but on syntax trees only: an element with an error in its third handler still
//! has its columns. An ambiguous name refers to the nearest declaration; an unknown name has no entry.

use std::collections::BTreeMap;
use weft_core::limits::JOINS_MAX;

use crate::ast::{
    AssignTarget, BudgetClause, Chain, ChainOn, ChainOptionKind, Decl, Element, EncapSet, Event, Expr,
    ExprKind, Field, Filter, Guard, Handler, Ident, InsertRows, InsertSource, Item, Join, JoinCondition,
    Kind, LinkOn, Param, Path, PayloadChoice, PolicyKind, Protocol, ProtocolClause, Queue, QueueDecl,
    QueueEvent, QueueUse, QueueVerdict, Select, SelectItem, Stage, StageArg, StageNode, Stmt, StmtKind,
    Subselect, Table, TableOptionKind, TypeExpr, Update, Verdict, VerdictKind, WireItem, WireRuleKind,
    WireUntil, WireWidth, WithItem,
};
use crate::hir::Direction;
use crate::resolve::Program;
use crate::source::{FileId, Span};

/// The kind of a symbol.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
#[allow(missing_docs, reason = "the names are the language's own")]
pub enum SymbolKind {
    Type,
    Table,
    Element,
    Filter,
    Function,
    Chain,
    Listener,
    Cluster,
    Route,
    Port,
    Group,
    Queue,
    Link,
    /// A wire format, or a name for several.
    Protocol,
    /// A field of a header.
    WireField,
    Param,
    /// A column of the message in one direction.
    Column(Direction),
    TableColumn,
    Var,
    CallCell,
    Sink,
    SinkColumn,
    Sketch,
    Edge,
    Handler,
    Signal,
    Local,
    /// A name for the row of a table.
    Row,
    /// An element in a chain.
    Instance,
}

impl SymbolKind {
    /// Returns the word for the kind in a sentence.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Type => "type",
            Self::Table => "table",
            Self::Element => "element",
            Self::Filter => "filter",
            Self::Function => "function",
            Self::Chain => "chain",
            Self::Listener => "listener",
            Self::Cluster => "cluster",
            Self::Route => "route",
            Self::Port => "port",
            Self::Queue => "queue",
            Self::Group => "group",
            Self::Link => "link",
            Self::Protocol => "protocol",
            Self::WireField => "field of a header",
            Self::Param => "parameter",
            Self::Column(Direction::Request) => "column of the request",
            Self::Column(Direction::Response) => "column of the response",
            Self::TableColumn => "column of a table",
            Self::Var => "variable",
            Self::CallCell => "cell of the call",
            Self::Sink => "sink",
            Self::SinkColumn => "column of a sink",
            Self::Sketch => "sketch",
            Self::Edge => "edge",
            Self::Handler => "handler",
            Self::Signal => "signal",
            Self::Local => "local value",
            Self::Row => "row of a table",
            Self::Instance => "instance",
        }
    }
}

/// A symbol: an index into [`Index::symbols`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct SymbolId(pub usize);

/// A named item.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Symbol {
    /// Its name.
    pub name: String,
    /// The kind.
    pub kind: SymbolKind,
    /// The name where it is declared.
    pub span: Span,
    /// The whole declaration.
    pub whole: Span,
    /// Its type as written, if any.
    pub ty: Option<Span>,
    /// The owner: the element of a column, the table of a table column, the chain of an instance.
    pub owner: Option<SymbolId>,
    /// The symbol that it refers to: the element of an instance, the table of a row.
    pub of: Option<SymbolId>,
}

/// A place where a symbol is named.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Use {
    /// The name.
    pub span: Span,
    /// The symbol that the name refers to.
    pub symbol: SymbolId,
    /// The name is declared here.
    pub is_declaration: bool,
}

/// A path to a field of a message, in the arguments of a stage: `req.user.id`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct FieldUse {
    /// Its parts.
    pub path: Path,
    /// The chain.
    pub chain: SymbolId,
    /// The column that is bound to it, if the element has the column.
    pub column: Option<SymbolId>,
}

/// All names of a program.
#[derive(Clone, Debug, Default)]
pub struct Index {
    /// The symbols.
    pub symbols: Vec<Symbol>,
    /// Its uses, in the order of files and text.
    pub uses: Vec<Use>,
    /// Paths to fields of messages.
    pub fields: Vec<FieldUse>,
    members: BTreeMap<(Option<SymbolId>, String), Vec<SymbolId>>,
    /// By the name where it is declared.
    declared: BTreeMap<Span, SymbolId>,
}

impl Index {
    /// Reads the trees of a program.
    pub fn new(program: &Program) -> Self {
        let mut walk = Indexer::default();
        for item in &program.items {
            walk.declare(item);
        }
        // INSERT refers to instances, which may be declared later in the text.
        let (rows, others): (Vec<_>, Vec<_>) =
            program.items.iter().partition(|item| matches!(item, Item::Insert(_)));
        for item in others.into_iter().chain(rows) {
            walk.item(item);
        }
        let mut index = walk.index;
        index.uses.sort_by_key(|found| (found.span.file, found.span.start, found.span.end));
        index
    }

    /// The symbol of an id.
    pub fn symbol(&self, id: SymbolId) -> &Symbol {
        &self.symbols[id.0]
    }

    /// All symbols with their ids.
    pub fn iter(&self) -> impl Iterator<Item = (SymbolId, &Symbol)> {
        self.symbols.iter().enumerate().map(|(at, symbol)| (SymbolId(at), symbol))
    }

    /// The name at a position; the end of a name counts as part of it, because the cursor is there after typing.
    pub fn at(&self, file: FileId, offset: u32) -> Option<Use> {
        let from = self.uses.partition_point(|found| (found.span.file, found.span.end) < (file, offset));
        let near = self.uses[from..]
            .iter()
            .take_while(|found| found.span.file == file && found.span.start <= offset);
        near.filter(|found| found.span.end >= offset).min_by_key(|found| found.span.len()).copied()
    }

    /// All uses of a symbol.
    pub fn uses_of(&self, symbol: SymbolId) -> impl Iterator<Item = &Use> {
        self.uses.iter().filter(move |found| found.symbol == symbol)
    }

    /// The members of a symbol, in source order; without an owner, the top-level symbols.
    pub fn members_of(&self, owner: Option<SymbolId>) -> impl Iterator<Item = (SymbolId, &Symbol)> {
        self.iter().filter(move |(_, symbol)| symbol.owner == owner)
    }

    /// The path to a field at a place.
    pub fn field_at(&self, file: FileId, offset: u32) -> Option<&FieldUse> {
        let holds = |span: Span| span.file == file && span.start <= offset && offset <= span.end;
        self.fields.iter().find(|field| holds(field.path.span))
    }

    /// The member of a symbol with a name, the last one declared.
    pub fn member(
        &self,
        owner: Option<SymbolId>,
        name: &str,
        is_meant: impl Fn(SymbolKind) -> bool,
    ) -> Option<SymbolId> {
        let all = self.members.get(&(owner, name.to_owned()))?;
        all.iter().rev().copied().find(|id| is_meant(self.symbols[id.0].kind))
    }

    fn add(&mut self, symbol: Symbol) -> SymbolId {
        let id = SymbolId(self.symbols.len());
        self.uses.push(Use { span: symbol.span, symbol: id, is_declaration: true });
        self.declared.insert(symbol.span, id);
        self.members.entry((symbol.owner, symbol.name.clone())).or_default().push(id);
        self.symbols.push(symbol);
        id
    }
}

/// A table row that names can refer to.
struct VisibleRow {
    alias: String,
    /// The symbol of the alias: a row, or the table itself.
    named: SymbolId,
    table: SymbolId,
}

/// The visible names; lookups take time independent of their number.
#[derive(Default)]
struct Locals {
    names: Vec<String>,
    /// The last symbol with a name hides the others.
    of_name: BTreeMap<String, Vec<SymbolId>>,
}

impl Locals {
    fn push(&mut self, name: &str, local: SymbolId) {
        self.names.push(name.to_owned());
        self.of_name.entry(name.to_owned()).or_default().push(local);
    }

    fn last(&self, name: &str) -> Option<SymbolId> {
        self.of_name.get(name)?.last().copied()
    }

    /// Removes the names from the `n`th on, at the end of a block.
    fn truncate(&mut self, n: usize) {
        for name in self.names.drain(n.min(self.names.len())..) {
            if let Some(all) = self.of_name.get_mut(&name) {
                all.pop();
            }
        }
    }
}

#[derive(Default)]
struct Indexer {
    index: Index,
    element: Option<SymbolId>,
    handler: Option<SymbolId>,
    direction: Option<Direction>,
    locals: Locals,
    visible_rows: Vec<VisibleRow>,
}

impl Indexer {
    // ---- declarations ------------------------------------------------------------------------------------------

    fn add(&mut self, kind: SymbolKind, name: &Ident, whole: Span, owner: Option<SymbolId>) -> SymbolId {
        let (name, span) = (name.name.clone(), name.span);
        self.index.add(Symbol { name, kind, span, whole, ty: None, owner, of: None })
    }

    /// Adds a symbol with the span of its type.
    fn add_typed(
        &mut self,
        kind: SymbolKind,
        (name, ty, whole): (&Ident, &TypeExpr, Span),
        owner: Option<SymbolId>,
    ) -> SymbolId {
        let id = self.add(kind, name, whole, owner);
        self.index.symbols[id.0].ty = Some(ty.span);
        id
    }

    /// Declares the names of an item.
    fn declare(&mut self, item: &Item) {
        match item {
            Item::Type(item) => drop(self.add(SymbolKind::Type, &item.name, item.span, None)),
            Item::Table(item) => self.declare_table(item, None),
            Item::Element(item) => self.declare_element(item),
            Item::Filter(item) => {
                let id = Some(self.add(SymbolKind::Filter, &item.name, item.span, None));
                self.declare_head(&item.params, &[(&item.fields, Direction::Request)], id);
            }
            Item::Chain(item) => {
                let chain = self.add(SymbolKind::Chain, &item.name, item.span, None);
                for stage in stages(item) {
                    let name = stage.instance.as_ref().unwrap_or(&stage.element);
                    self.add(SymbolKind::Instance, name, stage.span, Some(chain));
                    if stage.instance.is_none() {
                        // Without AS, its name is that of the element, which is the use recorded here.
                        self.index.uses.pop();
                    }
                }
            }
            Item::Function(item) => drop(self.add(SymbolKind::Function, &item.name, item.span, None)),
            Item::Listener(item) => drop(self.add(SymbolKind::Listener, &item.name, item.span, None)),
            Item::Cluster(item) => drop(self.add(SymbolKind::Cluster, &item.name, item.span, None)),
            Item::Route(item) => drop(self.add(SymbolKind::Route, &item.name, item.span, None)),
            Item::Port(item) => drop(self.add(SymbolKind::Port, &item.name, item.span, None)),
            Item::Group(item) => drop(self.add(SymbolKind::Group, &item.name, item.span, None)),
            Item::Queue(item) => self.declare_queue(item),
            Item::Link(item) => drop(self.add(SymbolKind::Link, &item.name, item.span, None)),
            Item::Protocol(item) => {
                let id = self.add(SymbolKind::Protocol, &item.name, item.span, None);
                self.declare_wire(&item.items, id);
            }
            Item::Union(item) => {
                let id = Some(self.add(SymbolKind::Protocol, &item.name, item.span, None));
                for column in &item.columns {
                    self.add(SymbolKind::WireField, &column.name, column.span, id);
                }
            }
            Item::Import(_) | Item::Drop(_) | Item::Insert(_) => {}
        }
    }

    /// Declares the fields of a wire format.
    fn declare_wire(&mut self, items: &[WireItem], owner: SymbolId) {
        for item in items {
            match item {
                WireItem::Field(field) => {
                    self.add(SymbolKind::WireField, &field.name, field.span, Some(owner));
                }
                WireItem::When { items, .. } | WireItem::Repeat { items, .. } => {
                    self.declare_wire(items, owner);
                }
            }
        }
    }

    /// Declares an element with its parameters, columns and declarations.
    fn declare_element(&mut self, element: &Element) {
        let id = Some(self.add(SymbolKind::Element, &element.name, element.span, None));
        let columns = [(&element.fields, Direction::Request), (&element.returns, Direction::Response)];
        self.declare_head(&element.params, &columns, id);
        for decl in &element.decls {
            match decl {
                Decl::Table(table) => self.declare_table(table, id),
                Decl::Var(var) => drop(self.add_typed(SymbolKind::Var, (&var.name, &var.ty, var.span), id)),
                Decl::Call(call) => {
                    for Param { name, ty, span, .. } in &call.columns {
                        self.add_typed(SymbolKind::CallCell, (name, ty, *span), id);
                    }
                }
                Decl::Sink(sink) => {
                    let sink_id = Some(self.add(SymbolKind::Sink, &sink.name, sink.span, id));
                    for Field { name, ty, span } in &sink.columns {
                        self.add_typed(SymbolKind::SinkColumn, (name, ty, *span), sink_id);
                    }
                }
                Decl::Sketch(sketch) => drop(self.add(SymbolKind::Sketch, &sketch.name, sketch.span, id)),
                Decl::Edge(edge) => drop(self.add(SymbolKind::Edge, &edge.name, edge.span, id)),
            }
        }
    }

    /// Declares a queue with its parameters and variables.
    fn declare_queue(&mut self, queue: &Queue) {
        let id = Some(self.add(SymbolKind::Queue, &queue.name, queue.span, None));
        self.declare_head(&queue.params, &[], id);
        for decl in &queue.decls {
            if let QueueDecl::Var { var, span, .. } = decl {
                self.add_typed(SymbolKind::Var, (&var.name, &var.ty, *span), id);
            }
        }
    }

    /// Parameters and columns of an element or a filter.
    fn declare_head(
        &mut self,
        params: &[Param],
        columns: &[(&Vec<Field>, Direction)],
        owner: Option<SymbolId>,
    ) {
        for Param { name, ty, span, .. } in params {
            self.add_typed(SymbolKind::Param, (name, ty, *span), owner);
        }
        for (fields, direction) in columns {
            for Field { name, ty, span } in *fields {
                self.add_typed(SymbolKind::Column(*direction), (name, ty, *span), owner);
            }
        }
    }

    /// Declares a table and its columns.
    fn declare_table(&mut self, table: &Table, owner: Option<SymbolId>) {
        let id = Some(self.add(SymbolKind::Table, &table.name, table.span, owner));
        for column in &table.columns {
            self.add_typed(SymbolKind::TableColumn, (&column.name, &column.ty, column.span), id);
        }
    }

    // ---- uses --------------------------------------------------------------------------------------------------

    /// Records a use of a symbol.
    fn record_use(&mut self, span: Span, symbol: SymbolId) {
        self.index.uses.push(Use { span, symbol, is_declaration: false });
    }

    /// Records a use of a name of this kind, in `owner` or at the top level. Returns the symbol; None if there is
    /// none.
    fn record_member(&mut self, owner: Option<SymbolId>, name: &Ident, kind: SymbolKind) -> Option<SymbolId> {
        let found = self.index.member(owner, &name.name, |known| known == kind)?;
        self.record_use(name.span, found);
        Some(found)
    }

    /// Records the output of a chain: a port or a group.
    fn record_outlet(&mut self, name: &Ident) {
        if self.record_member(None, name, SymbolKind::Port).is_none() {
            self.record_member(None, name, SymbolKind::Group);
        }
    }

    /// Records the uses in an item.
    fn item(&mut self, item: &Item) {
        match item {
            Item::Table(table) => self.table(table),
            Item::Element(element) => self.element(element),
            Item::Filter(filter) => self.filter(filter),
            Item::Function(function) => {
                if let Some(other) = &function.inverse_of {
                    self.record_member(None, other, SymbolKind::Function);
                }
                function.options.iter().for_each(|option| self.expr(&option.value));
                self.exprs(&function.cost);
            }
            Item::Chain(chain) => self.chain(chain),
            Item::Route(route) => {
                self.record_member(None, &route.listener, SymbolKind::Listener);
                self.record_member(None, &route.cluster, SymbolKind::Cluster);
                self.exprs(&route.when);
            }
            Item::Drop(drop) => {
                let kind = match drop.kind {
                    Kind::Type => SymbolKind::Type,
                    Kind::Table => SymbolKind::Table,
                    Kind::Element => SymbolKind::Element,
                    Kind::Filter => SymbolKind::Filter,
                    Kind::Function => SymbolKind::Function,
                    Kind::Chain => SymbolKind::Chain,
                    Kind::Listener => SymbolKind::Listener,
                    Kind::Cluster => SymbolKind::Cluster,
                    Kind::Route => SymbolKind::Route,
                    Kind::Protocol => SymbolKind::Protocol,
                    Kind::Port => SymbolKind::Port,
                    Kind::Group => SymbolKind::Group,
                    Kind::Queue => SymbolKind::Queue,
                    Kind::Link => SymbolKind::Link,
                };
                self.record_member(None, &drop.name, kind);
            }
            Item::Insert(rows) => self.insert_rows(rows),
            Item::Protocol(protocol) => self.protocol(protocol),
            Item::Queue(queue) => self.queue(queue),
            Item::Group(group) => {
                for (port, weight) in &group.members {
                    self.record_member(None, port, SymbolKind::Port);
                    self.exprs(weight);
                }
            }
            Item::Link(link) => {
                match &link.on {
                    LinkOn::Port { port, .. } => drop(self.record_member(None, port, SymbolKind::Port)),
                    LinkOn::Calls(calls) => {
                        let kind = if calls.is_listener { SymbolKind::Listener } else { SymbolKind::Cluster };
                        self.record_member(None, &calls.on, kind);
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
                    self.record_member(None, member, SymbolKind::Protocol);
                }
                for path in union.columns.iter().flat_map(|column| &column.fields) {
                    self.wire_path(path, None);
                }
            }
            Item::Import(_) | Item::Type(_) | Item::Listener(_) | Item::Cluster(_) | Item::Port(_) => {}
        }
    }

    // ---- queues ----

    /// Records the uses in a queue.
    fn queue(&mut self, queue: &Queue) {
        let outside = self.element;
        self.element = self.index.member(None, &queue.name.name, |kind| kind == SymbolKind::Queue);
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
            self.handler = Some(self.add(SymbolKind::Handler, &name, handler.span, self.element));
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
        let queue = self.record_member(None, &used.queue, SymbolKind::Queue);
        for arg in &used.args {
            self.record_member(queue, &arg.name, SymbolKind::Param);
            self.expr(&arg.value);
        }
    }

    // ---- wire formats ----

    /// Records the uses in a wire format.
    fn protocol(&mut self, protocol: &Protocol) {
        let Some(&id) = self.index.declared.get(&protocol.name.span) else { return };
        self.wire_items(&protocol.items, id);
        if let Some(payload) = &protocol.payload {
            self.payload(&payload.choice, id);
            payload.length.iter().for_each(|length| self.wire_expr(&length.value, id));
            payload.when.iter().for_each(|when| self.wire_expr(when, id));
        }
        for clause in &protocol.clauses {
            match clause {
                ProtocolClause::Bind { lower, condition, otherwise, .. } => {
                    if let Some(lower) = self.record_member(None, lower, SymbolKind::Protocol) {
                        self.wire_expr(condition, lower);
                        otherwise.iter().for_each(|otherwise| self.wire_expr(otherwise, lower));
                    }
                }
                ProtocolClause::Encap { set, .. } => {
                    for EncapSet { field, value, .. } in set {
                        self.wire_path(field, None);
                        self.wire_expr(value, id);
                    }
                }
                ProtocolClause::SessionKey { fields, .. } => {
                    fields.iter().for_each(|path| self.wire_path(path, Some(id)));
                }
                ProtocolClause::Error { condition, .. } => self.wire_expr(condition, id),
                ProtocolClause::MalformedIsPayload { .. } => {}
            }
        }
    }

    /// Records the uses in the items of a wire format.
    fn wire_items(&mut self, items: &[WireItem], id: SymbolId) {
        for item in items {
            match item {
                WireItem::Field(field) => {
                    if let WireWidth::Bytes { count, .. } = &field.width {
                        self.wire_expr(count, id);
                    }
                    if let Some(WireRuleKind::Default(e) | WireRuleKind::Computed(e)) =
                        field.rule.as_ref().map(|rule| &rule.kind)
                    {
                        self.wire_expr(e, id);
                    }
                    field.check.iter().for_each(|check| self.wire_expr(check, id));
                }
                WireItem::When { condition, items, .. } => {
                    self.wire_expr(condition, id);
                    self.wire_items(items, id);
                }
                WireItem::Repeat { items, until, .. } => {
                    let (WireUntil::Condition(e) | WireUntil::Count(e) | WireUntil::Bytes(e)) = until;
                    self.wire_expr(e, id);
                    self.wire_items(items, id);
                }
            }
        }
    }

    /// Records the protocols that a payload names.
    fn payload(&mut self, choice: &PayloadChoice, id: SymbolId) {
        match choice {
            PayloadChoice::Bytes(_) => {}
            PayloadChoice::Protocol { name, .. } => _ = self.record_member(None, name, SymbolKind::Protocol),
            PayloadChoice::Switch { on, arms, otherwise, .. } => {
                self.wire_expr(on, id);
                arms.iter().for_each(|arm| self.payload(&arm.choice, id));
                otherwise.iter().for_each(|choice| self.payload(choice, id));
            }
        }
    }

    /// Records the uses in `protocol.field`, `inner.protocol.field`, or `field` of a protocol.
    fn wire_path(&mut self, path: &Path, own: Option<SymbolId>) {
        let names = match path.segments.as_slice() {
            [inner, rest @ ..] if inner.name == "inner" => rest,
            names => names,
        };
        let (owner, field) = match (names, own) {
            ([field], Some(own)) => (Some(own), Some(field)),
            ([protocol], None) => (self.record_member(None, protocol, SymbolKind::Protocol), None),
            ([protocol, field], _) => (self.record_member(None, protocol, SymbolKind::Protocol), Some(field)),
            _ => (None, None),
        };
        if let (Some(owner), Some(field)) = (owner, field) {
            self.record_member(Some(owner), field, SymbolKind::WireField);
        }
    }

    /// Records the uses of a header's fields in an expression over it.
    fn wire_expr(&mut self, expr: &Expr, id: SymbolId) {
        let each = |walk: &mut Self, list: &[Expr]| list.iter().for_each(|e| walk.wire_expr(e, id));
        match &expr.kind {
            ExprKind::Path(path) => self.wire_path(path, Some(id)),
            ExprKind::Call { args, .. } => each(self, args),
            ExprKind::Unary { operand, .. } | ExprKind::InList { operand, .. } => self.wire_expr(operand, id),
            ExprKind::Binary { left, right, .. } => {
                self.wire_expr(left, id);
                self.wire_expr(right, id);
            }
            ExprKind::Between { operand, low, high, .. } => {
                [operand, low, high].into_iter().for_each(|e| self.wire_expr(e, id));
            }
            ExprKind::Case { arms, otherwise, .. } => {
                for arm in arms {
                    self.wire_expr(&arm.when, id);
                    self.wire_expr(&arm.then, id);
                }
                otherwise.iter().for_each(|e| self.wire_expr(e, id));
            }
            _ => {}
        }
    }

    /// Records the uses in an INSERT of rows into `table` or `chain.instance.table`.
    fn insert_rows(&mut self, rows: &InsertRows) {
        let table = match rows.table.segments.as_slice() {
            [table] => self.record_member(None, table, SymbolKind::Table),
            [chain, instance, table] => {
                let chain = self.record_member(None, chain, SymbolKind::Chain);
                let instance =
                    chain.and_then(|chain| self.record_member(Some(chain), instance, SymbolKind::Instance));
                let element = instance.and_then(|instance| self.index.symbol(instance).of);
                element.and_then(|element| self.record_member(Some(element), table, SymbolKind::Table))
            }
            _ => None,
        };
        for column in &rows.columns {
            if table.is_some() {
                self.record_member(table, column, SymbolKind::TableColumn);
            }
        }
    }

    /// Records the uses in a chain.
    fn chain(&mut self, chain: &Chain) {
        let Some(&id) = self.index.declared.get(&chain.name.span) else { return };
        match &chain.on {
            ChainOn::Edge { from, to, .. } => {
                self.record_member(None, from, SymbolKind::Listener);
                self.record_member(None, to, SymbolKind::Cluster);
            }
            ChainOn::Port { ports, to, when, .. } => {
                for port in ports {
                    self.record_member(None, port, SymbolKind::Port);
                }
                if let Some(to) = to {
                    self.record_outlet(to);
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
                self.record_member(Some(id), name, SymbolKind::Instance);
            }
        }
    }

    /// Records the uses in a stage.
    fn stage(&mut self, chain: SymbolId, stage: &Stage) {
        let is_stage = |kind| matches!(kind, SymbolKind::Element | SymbolKind::Filter);
        let element = self.index.member(None, &stage.element.name, is_stage);
        if let Some(element) = element {
            self.record_use(stage.element.span, element);
        }
        let name = stage.instance.as_ref().unwrap_or(&stage.element);
        if let Some(instance) = self.index.declared.get(&name.span) {
            self.index.symbols[instance.0].of = element;
        }
        for arg in &stage.args {
            match arg {
                StageArg::Param(assign) => {
                    if element.is_some() {
                        self.record_member(element, &assign.name, SymbolKind::Param);
                    }
                    self.expr(&assign.value);
                }
                StageArg::Bind { column, value, .. } => {
                    let is_column = |kind| matches!(kind, SymbolKind::Column(_));
                    let found =
                        element.and_then(|element| self.index.member(Some(element), &column.name, is_column));
                    if let Some(found) = found {
                        self.record_use(column.span, found);
                    }
                    value.each_path(&mut |path| {
                        self.wire_path(path, None);
                        self.index.fields.push(FieldUse { path: path.clone(), chain, column: found });
                    });
                }
            }
        }
    }

    /// Records the uses in an element.
    fn element(&mut self, element: &Element) {
        self.element = self.index.declared.get(&element.name.span).copied();
        self.record_member(None, &element.layer, SymbolKind::Protocol);
        for param in &element.params {
            self.exprs(&param.default);
        }
        for decl in &element.decls {
            match decl {
                Decl::Table(table) => self.table(table),
                Decl::Var(var) => self.exprs(&var.initial),
                Decl::Call(call) => call.columns.iter().for_each(|cell| self.exprs(&cell.default)),
                Decl::Sink(sink) => match &sink.target {
                    crate::ast::SinkTarget::File(path) => self.expr(path),
                    crate::ast::SinkTarget::Table { name, .. } => {
                        self.table_name(name);
                    }
                    crate::ast::SinkTarget::Stdout | crate::ast::SinkTarget::Metrics => {}
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
            self.record_member(id, name, SymbolKind::TableColumn);
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
        let id = self.add(SymbolKind::Handler, &name, handler.span, self.element);
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

    // ---- statements --------------------------------------------------------------------------------------------

    /// Names declared in a block end with it.
    fn block(&mut self, stmts: &[Stmt]) {
        let (n_locals, n_visible_rows) = (self.locals.names.len(), self.visible_rows.len());
        for stmt in stmts {
            self.stmt(stmt);
        }
        self.locals.truncate(n_locals);
        self.visible_rows.truncate(n_visible_rows);
    }

    /// Records the uses in a statement. A LET declares a local.
    fn stmt(&mut self, stmt: &Stmt) {
        match &stmt.kind {
            StmtKind::Let { name, ty, value } => {
                self.expr(value);
                let local = self.add(SymbolKind::Local, name, stmt.span, self.handler);
                self.index.symbols[local.0].ty = ty.as_ref().map(|ty| ty.span);
                self.locals.push(&name.name, local);
            }
            StmtKind::Set { target, value } => {
                self.place(target);
                self.expr(value);
            }
            StmtKind::If { arms, otherwise } => {
                for arm in arms {
                    self.expr(&arm.condition);
                    self.block(&arm.body);
                }
                self.block(otherwise.as_deref().unwrap_or_default());
            }
            StmtKind::Guard(guard) => self.guard(guard),
            StmtKind::Insert(insert) => self.insert(insert),
            StmtKind::Upsert(upsert) => {
                upsert.key.iter().for_each(|key| self.expr(key));
                let table = self.table_name(&upsert.table);
                self.with_row_of(table, |walk| walk.assigns(table, &upsert.set));
            }
            StmtKind::Update(update) => self.update(update, stmt.span),
            StmtKind::Delete { table, filter } => {
                let table = self.table_name(table);
                self.with_row_of(table, |walk| walk.expr(filter));
            }
            StmtKind::Scan(scan) => {
                self.expr(&scan.max);
                let table = self.table_name(&scan.table);
                let n_visible_rows = self.visible_rows.len();
                self.add_visible_row(table, &scan.table, scan.alias.as_ref(), stmt.span);
                self.exprs(&scan.filter);
                self.block(&scan.body);
                self.visible_rows.truncate(n_visible_rows);
            }
            StmtKind::Add { target, amount } => {
                self.member_of_element(target);
                self.exprs(amount);
            }
            StmtKind::Reset { target } => self.member_of_element(target),
            StmtKind::Mirror { to } | StmtKind::Delay { interval: to } => self.expr(to),
            StmtKind::Signal { args, .. } => args.iter().for_each(|arg| self.expr(arg)),
            StmtKind::Message { to, fields } => {
                self.exprs(to);
                fields.iter().for_each(|field| self.expr(&field.value));
            }
            StmtKind::Mark { fields } => fields.iter().for_each(|field| self.expr(&field.value)),
            StmtKind::Push { headers } => {
                let fields = headers.iter().flat_map(|header| &header.fields);
                fields.for_each(|field| self.expr(&field.value));
            }
            StmtKind::Pop { .. } => {}
            StmtKind::Cut { bytes } | StmtKind::Fragment { bytes } => self.expr(bytes),
            StmtKind::Verdict(verdict) => self.verdict(verdict),
            StmtKind::QueueVerdict(QueueVerdict::Hold { time, .. }) => self.expr(time),
            StmtKind::QueueVerdict(_) => {}
        }
    }

    /// Records the uses in a guard.
    fn guard(&mut self, guard: &Guard) {
        self.select(&guard.select);
        if let Some(otherwise) = &guard.otherwise {
            self.verdict(otherwise);
        }
    }

    /// The joined rows are visible after the statement.
    fn select(&mut self, select: &Select) {
        for join in &select.joins {
            self.join(join);
        }
        self.exprs(&select.filter);
        for item in &select.items {
            self.select_item(item);
        }
    }

    /// Records the uses in a SELECT item.
    fn select_item(&mut self, item: &SelectItem) {
        let SelectItem::Value { value, alias } = item else { return };
        self.expr(value);
        if let Some(alias) = alias {
            self.own_column(alias);
        }
    }

    /// Records the uses in a JOIN, and makes its row visible.
    fn join(&mut self, join: &Join) {
        let table = self.table_name(&join.table);
        self.add_visible_row(table, &join.table, join.alias.as_ref(), join.span);
        if let (Some(first), true) = (&join.first, table.is_some()) {
            self.record_member(table, &first.by, SymbolKind::TableColumn);
        }
        match &join.condition {
            JoinCondition::Using(columns) => {
                for column in columns {
                    // It is a column of both; readers look for the message's column.
                    let is_own = self.own_column(column);
                    if !is_own && table.is_some() {
                        self.record_member(table, column, SymbolKind::TableColumn);
                    }
                }
            }
            JoinCondition::On(condition) => self.expr(condition),
        }
    }

    /// Records the uses in an INSERT.
    fn insert(&mut self, insert: &crate::ast::Insert) {
        let sink = self.index.member(self.element, &insert.into.name, |kind| kind == SymbolKind::Sink);
        let (into, kind) = match sink {
            Some(sink) => {
                self.record_use(insert.into.span, sink);
                (Some(sink), SymbolKind::SinkColumn)
            }
            None => (self.table_name(&insert.into), SymbolKind::TableColumn),
        };
        for column in insert.columns.iter().filter(|_| into.is_some()) {
            self.record_member(into, column, kind);
        }
        match &insert.source {
            InsertSource::Values(rows) => {
                rows.iter().flat_map(|row| &row.values).for_each(|value| self.expr(value));
            }
            InsertSource::Select(select) => self.select(select),
        }
    }

    /// Records the uses in an UPDATE.
    fn update(&mut self, update: &Update, span: Span) {
        let table = self.table_name(&update.table);
        self.with_row_of(table, |walk| {
            walk.assigns(table, &update.set);
            walk.exprs(&update.filter);
        });
        for returning in &update.returning {
            if table.is_some() {
                self.record_member(table, &returning.column, SymbolKind::TableColumn);
            }
            if self.path(&returning.into).is_none()
                && let Some(name) = returning.into.as_ident()
            {
                let local = self.add(SymbolKind::Local, name, span, self.handler);
                self.locals.push(&name.name, local);
            }
        }
        self.block(update.otherwise.as_deref().unwrap_or_default());
    }

    /// Runs `read` while unqualified names refer to columns of a table first.
    fn with_row_of(&mut self, table: Option<SymbolId>, read: impl FnOnce(&mut Self)) {
        let n_visible_rows = self.visible_rows.len();
        if let Some(table) = table {
            let alias = self.index.symbol(table).name.clone();
            self.visible_rows.push(VisibleRow { alias, named: table, table });
        }
        read(self);
        self.visible_rows.truncate(n_visible_rows);
    }

    /// Records the uses in assignments to columns.
    fn assigns(&mut self, table: Option<SymbolId>, assigns: &[crate::ast::Assign]) {
        for assign in assigns {
            if table.is_some() {
                self.record_member(table, &assign.name, SymbolKind::TableColumn);
            }
            self.expr(&assign.value);
        }
    }

    /// Makes a table row visible under its name or alias.
    fn add_visible_row(&mut self, table: Option<SymbolId>, name: &Ident, alias: Option<&Ident>, span: Span) {
        let Some(table) = table else { return };
        let named = match alias {
            None => table,
            Some(alias) => {
                let row = self.add(SymbolKind::Row, alias, span, self.handler);
                self.index.symbols[row.0].of = Some(table);
                row
            }
        };
        let alias = alias.unwrap_or(name).name.clone();
        if self.visible_rows.len() < JOINS_MAX {
            self.visible_rows.push(VisibleRow { alias, named, table });
        }
    }

    /// Records the uses in a verdict.
    fn verdict(&mut self, verdict: &Verdict) {
        match &verdict.kind {
            VerdictKind::Forward | VerdictKind::Drop => {}
            VerdictKind::Abort { status, text, with } => {
                self.expr(status);
                self.exprs(text);
                for WithItem { target, value, .. } in with {
                    self.place(target);
                    self.expr(value);
                }
            }
            VerdictKind::Reply { fields } => {
                for field in fields {
                    let is_reply = |kind| kind == SymbolKind::Column(Direction::Response);
                    if let Some(column) = self.index.member(self.element, &field.name.name, is_reply) {
                        self.record_use(field.name.span, column);
                    }
                    self.expr(&field.value);
                }
            }
            VerdictKind::ReplyPayload { bytes: to } | VerdictKind::Redirect { to } => self.expr(to),
            VerdictKind::Steer { edge } => self.member_of_element(edge),
        }
    }

    // ---- names -------------------------------------------------------------------------------------------------

    /// A table of the element, or a shared one.
    fn table_name(&mut self, name: &Ident) -> Option<SymbolId> {
        let is_table = |kind| kind == SymbolKind::Table;
        let own = self.element.and_then(|element| self.index.member(Some(element), &name.name, is_table));
        let found = own.or_else(|| self.index.member(None, &name.name, is_table))?;
        self.record_use(name.span, found);
        Some(found)
    }

    /// A function parameter of the element, or a function of the program; functions of the language have no
    /// declaration.
    fn function_name(&mut self, name: &Ident) {
        let own = self.index.member(self.element, &name.name, |kind| kind == SymbolKind::Param);
        let own = own.filter(|_| self.element.is_some());
        let found = own.or_else(|| self.index.member(None, &name.name, |kind| kind == SymbolKind::Function));
        if let Some(found) = found {
            self.record_use(name.span, found);
        }
    }

    /// Records a use of a message column in the handler's direction, or else in the other direction.
    fn own_column(&mut self, name: &Ident) -> bool {
        let Some(element) = self.element else { return false };
        let wanted = self.direction.map(SymbolKind::Column);
        let found = self.index.member(Some(element), &name.name, |kind| Some(kind) == wanted).or_else(|| {
            self.index.member(Some(element), &name.name, |kind| matches!(kind, SymbolKind::Column(_)))
        });
        if let Some(found) = found {
            self.record_use(name.span, found);
        }
        found.is_some()
    }

    /// Records a use of a member of the current element.
    fn member_of_element(&mut self, name: &Ident) {
        let Some(element) = self.element else { return };
        let is_meant = |kind| !matches!(kind, SymbolKind::Handler);
        if let Some(found) = self.index.member(Some(element), &name.name, is_meant) {
            self.record_use(name.span, found);
        }
    }

    /// Records the uses in an assignment target.
    fn place(&mut self, place: &AssignTarget) {
        match place {
            AssignTarget::Path(path) => drop(self.path(path)),
            AssignTarget::Header { key, .. } | AssignTarget::Trailer { key, .. } => self.expr(key),
        }
    }

    /// Records the uses in a path; None if it is unknown.
    fn path(&mut self, path: &Path) -> Option<()> {
        match path.segments.as_slice() {
            [name] => self.bare_name(name),
            [first, column] if first.name == "input" => self.own_column(column).then_some(()),
            [first, column] => {
                let Some(visible) = self.visible_rows.iter().rfind(|visible| visible.alias == first.name)
                else {
                    self.wire_path(path, None);
                    return None;
                };
                let (named, table) = (visible.named, visible.table);
                self.record_use(first.span, named);
                self.record_member(Some(table), column, SymbolKind::TableColumn).map(drop)
            }
            _ => {
                self.wire_path(path, None);
                None
            }
        }
    }

    /// Records a use of a name without a dot. None if it is unknown.
    fn bare_name(&mut self, name: &Ident) -> Option<()> {
        if let Some(local) = self.locals.last(&name.name) {
            self.record_use(name.span, local);
            return Some(());
        }
        let is_column = |kind| kind == SymbolKind::TableColumn;
        let in_sight = self.visible_rows.iter().rev();
        let joined = in_sight.map(|visible| self.index.member(Some(visible.table), &name.name, is_column));
        if let Some(column) = joined.flatten().next() {
            self.record_use(name.span, column);
            return Some(());
        }
        if self.own_column(name) {
            return Some(());
        }
        let is_value = |kind| !matches!(kind, SymbolKind::Handler | SymbolKind::Column(_));
        let own = self.element.and_then(|element| self.index.member(Some(element), &name.name, is_value));
        let top = |kind| matches!(kind, SymbolKind::Cluster | SymbolKind::Table | SymbolKind::Function);
        let found = own.or_else(|| self.index.member(None, &name.name, top))?;
        self.record_use(name.span, found);
        Some(())
    }

    fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(expr));
    }

    /// Records the uses in an expression.
    fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Int(_) | ExprKind::Float(_) | ExprKind::Str(_) | ExprKind::Bool(_) | ExprKind::Null => {
            }
            ExprKind::Path(path) => drop(self.path(path)),
            ExprKind::Header(key) | ExprKind::Trailer(key) => self.expr(key),
            ExprKind::Call { function, args, .. } => {
                self.function_name(function);
                self.exprs(args);
            }
            ExprKind::Unary { operand, .. }
            | ExprKind::IsNull { operand, .. }
            | ExprKind::Cast { operand, .. } => {
                self.expr(operand);
            }
            ExprKind::Binary { left, right, .. } | ExprKind::IsDistinct { left, right, .. } => {
                // A long sum is a left-leaning tree.
                self.expr(left);
                self.expr(right);
            }
            ExprKind::InList { operand, list, .. } => {
                self.expr(operand);
                self.exprs(list);
            }
            ExprKind::InNet { operand, net: other, .. } | ExprKind::Like { operand, pattern: other, .. } => {
                self.expr(operand);
                self.expr(other);
            }
            ExprKind::Between { operand, low, high, .. } => {
                [operand, low, high].into_iter().for_each(|part| self.expr(part));
            }
            ExprKind::Case { operand, arms, otherwise } => {
                self.exprs(operand.as_deref());
                for arm in arms {
                    self.exprs([&arm.when, &arm.then]);
                }
                self.exprs(otherwise.as_deref());
            }
            ExprKind::Subselect(select) | ExprKind::Exists(select) => self.subselect(select),
            ExprKind::List(look) => self.exprs(look.filter.iter().chain([&look.elements_max])),
            ExprKind::Entry { key, .. } => self.expr(key),
        }
    }

    /// Records the uses in a subselect.
    fn subselect(&mut self, select: &Subselect) {
        self.exprs(&select.scan_max);
        let table = self.table_name(&select.table);
        self.with_row_of(table, |walk| {
            walk.exprs(&select.filter);
            if let SelectItem::Value { value, .. } = &select.item {
                walk.expr(value);
            }
        });
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

/// Iterates over the stages of a chain and of its branches.
fn stages(chain: &Chain) -> impl Iterator<Item = &Stage> {
    let branches = chain.options.iter().filter_map(|option| match &option.kind {
        ChainOptionKind::Branch { stages, .. } => Some(stages),
        _ => None,
    });
    chain.stages.iter().chain(branches.flatten()).flat_map(|node| match node {
        StageNode::One(stage) => std::slice::from_ref(stage),
        StageNode::Group { stages, .. } => stages,
    })
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
