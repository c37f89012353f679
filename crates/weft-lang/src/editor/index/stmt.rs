//! Records the uses of names in statements and expressions.

use weft_core::limits::JOINS_MAX;

use super::walk::{Indexer, VisibleRow};
use super::{SymbolId, SymbolKind};
use crate::ast::{
    Assign, AssignTarget, Expr, ExprKind, Guard, Ident, Insert, InsertSource, Join, JoinCondition, Kind,
    Path, QueueVerdict, Select, SelectItem, Stmt, StmtKind, Subselect, Update, Verdict, VerdictKind,
    WithItem,
};
use crate::hir::Direction;
use crate::source::Span;

impl Indexer {
    /// Names declared in a block end with it.
    pub(super) fn block(&mut self, stmts: &[Stmt]) {
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
                let local = self.index.declare_symbol(SymbolKind::Local, name, stmt.span, self.handler);
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
            self.index.record_member(table, &first.by, SymbolKind::TableColumn);
        }
        match &join.condition {
            JoinCondition::Using(columns) => {
                for column in columns {
                    // It is a column of both; readers look for the message's column.
                    let is_own = self.own_column(column);
                    if !is_own && table.is_some() {
                        self.index.record_member(table, column, SymbolKind::TableColumn);
                    }
                }
            }
            JoinCondition::On(condition) => self.expr(condition),
        }
    }

    /// Records the uses in an INSERT.
    fn insert(&mut self, insert: &Insert) {
        let sink = self.index.member(self.element, &insert.into.name, |kind| kind == SymbolKind::Sink);
        let (into, kind) = match sink {
            Some(sink) => {
                self.index.record_use(insert.into.span, sink);
                (Some(sink), SymbolKind::SinkColumn)
            }
            None => (self.table_name(&insert.into), SymbolKind::TableColumn),
        };
        for column in insert.columns.iter().filter(|_| into.is_some()) {
            self.index.record_member(into, column, kind);
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
                self.index.record_member(table, &returning.column, SymbolKind::TableColumn);
            }
            if self.path(&returning.into).is_none()
                && let Some(name) = returning.into.as_ident()
            {
                let local = self.index.declare_symbol(SymbolKind::Local, name, span, self.handler);
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
    fn assigns(&mut self, table: Option<SymbolId>, assigns: &[Assign]) {
        for assign in assigns {
            if table.is_some() {
                self.index.record_member(table, &assign.name, SymbolKind::TableColumn);
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
                let row = self.index.declare_symbol(SymbolKind::Row, alias, span, self.handler);
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
                        self.index.record_use(field.name.span, column);
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
    pub(super) fn table_name(&mut self, name: &Ident) -> Option<SymbolId> {
        let is_table = |kind| kind == SymbolKind::Item(Kind::Table);
        let own = self.element.and_then(|element| self.index.member(Some(element), &name.name, is_table));
        let found = own.or_else(|| self.index.member(None, &name.name, is_table))?;
        self.index.record_use(name.span, found);
        Some(found)
    }

    /// A function parameter of the element, or a function of the program; functions of the language have no
    /// declaration.
    fn function_name(&mut self, name: &Ident) {
        let own = self.index.member(self.element, &name.name, |kind| kind == SymbolKind::Param);
        let own = own.filter(|_| self.element.is_some());
        let found = own
            .or_else(|| self.index.member(None, &name.name, |kind| kind == SymbolKind::Item(Kind::Function)));
        if let Some(found) = found {
            self.index.record_use(name.span, found);
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
            self.index.record_use(name.span, found);
        }
        found.is_some()
    }

    /// Records a use of a member of the current element.
    fn member_of_element(&mut self, name: &Ident) {
        let Some(element) = self.element else { return };
        let is_meant = |kind| !matches!(kind, SymbolKind::Handler);
        if let Some(found) = self.index.member(Some(element), &name.name, is_meant) {
            self.index.record_use(name.span, found);
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
                    self.index.wire_path(path, None);
                    return None;
                };
                let (named, table) = (visible.named, visible.table);
                self.index.record_use(first.span, named);
                self.index.record_member(Some(table), column, SymbolKind::TableColumn).map(drop)
            }
            _ => {
                self.index.wire_path(path, None);
                None
            }
        }
    }

    /// Records a use of a name without a dot. None if it is unknown.
    fn bare_name(&mut self, name: &Ident) -> Option<()> {
        if let Some(local) = self.locals.last(&name.name) {
            self.index.record_use(name.span, local);
            return Some(());
        }
        let is_column = |kind| kind == SymbolKind::TableColumn;
        let in_sight = self.visible_rows.iter().rev();
        let joined = in_sight.map(|visible| self.index.member(Some(visible.table), &name.name, is_column));
        if let Some(column) = joined.flatten().next() {
            self.index.record_use(name.span, column);
            return Some(());
        }
        if self.own_column(name) {
            return Some(());
        }
        let is_value = |kind| !matches!(kind, SymbolKind::Handler | SymbolKind::Column(_));
        let own = self.element.and_then(|element| self.index.member(Some(element), &name.name, is_value));
        let top = |kind| matches!(kind, SymbolKind::Item(Kind::Cluster | Kind::Table | Kind::Function));
        let found = own.or_else(|| self.index.member(None, &name.name, top))?;
        self.index.record_use(name.span, found);
        Some(())
    }

    pub(super) fn exprs<'e>(&mut self, exprs: impl IntoIterator<Item = &'e Expr>) {
        exprs.into_iter().for_each(|expr| self.expr(expr));
    }

    /// Records the uses in an expression.
    pub(super) fn expr(&mut self, expr: &Expr) {
        match &expr.kind {
            ExprKind::Path(path) => drop(self.path(path)),
            ExprKind::Call { function, args, .. } => {
                self.function_name(function);
                self.exprs(args);
            }
            ExprKind::Subselect(select) | ExprKind::Exists(select) => self.subselect(select),
            _ => self.exprs(expr.children()),
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
