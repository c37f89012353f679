//! Checks the statements, actions and verdicts of handlers.

use weft_core::{Status, Type, Value};

use super::expr::{Environment, constant};
use super::header;
use super::named_ports::{NoPort, is_reserved};
use super::scope::{ColumnVisibility, Scope, View, status_names, values_for_columns, with_nearest};
use super::walk::each_expr;
use crate::ast::{self, Ident, InsertSource, SelectItem, StmtKind as Ast, VerdictKind as AstVerdict};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    AnswerTarget, ArithOp, AssignTarget, Expr, ExprKind, Function, HandlerKind, Merge, RowId, Stmt, StmtKind,
    TableRef, Verdict, VerdictKind,
};
use crate::nearest::nearest;
use crate::source::Span;
use crate::types;

/// The maximum number of visible LETs.
const LOCALS_MAX: usize = 4096;

impl Scope<'_, '_> {
    /// Checks the statements of a block. Its LETs and joined rows end with it.
    pub(super) fn block(&mut self, stmts: &[ast::Stmt]) -> Vec<Stmt> {
        let (n_names, n_visible_rows, n_non_null) =
            (self.locals.visible().len(), self.rows.visible().len(), self.non_null.len());
        let mut body = Vec::new();
        for (index, stmt) in stmts.iter().enumerate() {
            if self.cx.is_at_limit() {
                break;
            }
            if let Some(kind) = self.stmt(stmt) {
                body.push(Stmt { kind, span: stmt.span });
            }
            if let (Ast::Verdict(verdict), Some(next)) = (&stmt.kind, stmts.get(index + 1)) {
                let diagnostic = Diagnostic::warning(code::UNREACHABLE, "this statement is unreachable")
                    .at(next.span, "follows a verdict")
                    .with_label(verdict.span, "ends the handler")
                    .with_help("remove it, or move it before the verdict");
                self.cx.report(diagnostic);
                break;
            }
        }
        self.locals.hide_after(n_names);
        self.rows.hide_after(n_visible_rows);
        self.non_null.forget_after(n_non_null);
        body
    }

    /// Checks an IF and narrows nullable columns: each arm may assume its own condition and the negation of earlier
    /// ones. After the IF, the negations of the leading arms that end the handler still hold.
    fn if_stmt(&mut self, arms: &[ast::IfArm], otherwise: Option<&[ast::Stmt]>) -> Option<StmtKind> {
        let n_non_null = self.non_null.len();
        let (mut checked, mut n_untrue, mut all_end) = (Some(Vec::new()), n_non_null, true);
        for arm in arms {
            let condition = self.condition(&arm.condition);
            let n_before = self.non_null.len();
            condition.iter().for_each(|condition| self.non_null.assume_true(condition));
            let body = self.block(&arm.body);
            self.non_null.forget_after(n_before);
            if let Some(condition) = &condition {
                self.non_null.assume_not_true(condition);
            }
            all_end &= ends_handler(&arm.body);
            if all_end {
                n_untrue = self.non_null.len();
            }
            checked = checked.zip(condition).map(|(mut arms, condition)| {
                arms.push((condition, body));
                arms
            });
        }
        let otherwise = otherwise.map(|body| self.block(body)).unwrap_or_default();
        self.non_null.forget_after(n_untrue);
        Some(StmtKind::If { arms: checked?, otherwise })
    }

    /// Checks one statement. None if it has an error, which is reported.
    fn stmt(&mut self, stmt: &ast::Stmt) -> Option<StmtKind> {
        match &stmt.kind {
            Ast::Let { name, ty, value } => self.let_stmt(name, ty.as_ref(), value),
            Ast::Set { target, value } => self.set(target, value),
            Ast::If { arms, otherwise } => self.if_stmt(arms, otherwise.as_deref()),
            Ast::Guard(guard) => self.guard(guard, stmt.span),
            Ast::Insert(insert) => self.insert(insert),
            Ast::Upsert(upsert) => self.upsert(upsert, stmt.span),
            Ast::Update(update) => self.update(update, stmt.span),
            Ast::Delete { table, filter } => self.delete(table, filter),
            Ast::Scan(scan) => self.scan(scan),
            Ast::Add { target, amount } => self.add(target, amount.as_ref(), stmt.span),
            Ast::Reset { target } => self.reset(target),
            Ast::Mirror { to } => {
                self.check_action(&[HandlerKind::Open, HandlerKind::Request], "MIRROR", stmt.span)?;
                Some(StmtKind::Mirror { to: self.target(to)? })
            }
            Ast::Mark { fields } => self.mark(fields, stmt.span),
            Ast::Delay { interval } => {
                let data = [HandlerKind::Open, HandlerKind::Request, HandlerKind::Response];
                self.check_action(&data, "DELAY", stmt.span)?;
                Some(StmtKind::Delay {
                    interval: self.value_for(interval, Type::Interval, false, "a delay")?,
                })
            }
            Ast::Signal { .. } => {
                self.not_on_rpc(stmt.span, "SIGNAL", "signals are not supported in this version")
            }
            Ast::Message { .. } => self.not_on_rpc(
                stmt.span,
                "MESSAGE",
                "MESSAGE needs a message stream, which is not supported in this version",
            ),
            Ast::Push { headers } if self.is_packet() => self.push(headers, stmt.span),
            Ast::Pop { to, layer } if self.is_packet() => self.pop(*to, layer.as_ref(), stmt.span),
            Ast::Cut { bytes } if self.is_packet() => self.cut(bytes, stmt.span),
            Ast::Fragment { bytes } if self.is_packet() => self.fragment(bytes, stmt.span),
            Ast::Push { .. } => self.not_on_rpc(stmt.span, "PUSH", "PUSH works on packet layers"),
            Ast::Pop { .. } => self.not_on_rpc(stmt.span, "POP", "POP works on packet layers"),
            Ast::Cut { .. } => self.not_on_rpc(stmt.span, "CUT", "CUT works on packet layers"),
            Ast::Fragment { .. } => self.not_on_rpc(stmt.span, "FRAGMENT", "FRAGMENT works on packet layers"),
            Ast::Verdict(verdict) => self.verdict(verdict).map(StmtKind::Verdict),
            Ast::QueueVerdict(_) => {
                let diagnostic =
                    Diagnostic::error(code::VERDICT_NOT_HERE, "a queue's verdict in an element's handler")
                        .at(stmt.span, "for handlers of a QUEUE");
                self.cx.report(diagnostic);
                None
            }
        }
    }

    // ---- values ------------------------------------------------------------------------------------------------

    /// Checks a LET and declares its local, which later statements see even if the value has an error.
    fn let_stmt(&mut self, name: &Ident, ty: Option<&ast::TypeExpr>, value: &ast::Expr) -> Option<StmtKind> {
        let value = match ty {
            Some(ty) => self.cx.type_expr(ty).map(types::without_length).and_then(|known| {
                let whose = format!("`{}`", name.name);
                self.value_for(value, known, ty.nullable, &whose)
                    .map(|value| Expr { nullable: ty.nullable, ..value })
            }),
            None => self.expr(value, None),
        };
        if let Some((first, _)) = self.locals.visible().iter().find(|(known, _)| known.name == name.name) {
            let diagnostic =
                Diagnostic::error(code::DUPLICATE_NAME, format!("`{}` is named twice", name.name))
                    .at(name.span, "the second")
                    .with_label(first.span, "the first")
                    .with_help("a LET cannot be changed; give the new value its own name");
            self.cx.report(diagnostic);
        }
        let local = value.as_ref().map(|value| self.locals.add(name, value.ty, value.nullable));
        if self.locals.visible().len() >= LOCALS_MAX {
            let message = format!("more than {LOCALS_MAX} names in one handler");
            let diagnostic = Diagnostic::error(code::OVER_LIMIT, message)
                .at(name.span, "one too many")
                .with_help("use a TABLE for many values");
            self.cx.report(diagnostic);
            return None;
        }
        self.locals.show(name, local);
        Some(StmtKind::Let { local: local?, value: value? })
    }

    /// Checks a SET: the target, and that the value has its type.
    fn set(&mut self, place: &ast::AssignTarget, value: &ast::Expr) -> Option<StmtKind> {
        match self.place(place) {
            Some((target, ty, nullable, whose)) => {
                let value = self.value_for(value, ty, nullable, &whose)?;
                if let ast::AssignTarget::Path(path) = place {
                    self.check_fits(path, &value)?;
                }
                Some(StmtKind::Set { target, value })
            }
            None => {
                // The value is checked too, to report its errors in the same run.
                self.expr(value, None);
                None
            }
        }
    }

    /// Resolves an assignment target: its location, its type, whether it may be NULL, and its description.
    fn place(&mut self, target: &ast::AssignTarget) -> Option<(AssignTarget, Type, bool, String)> {
        match target {
            ast::AssignTarget::Path(path) => self.named_place(path),
            ast::AssignTarget::Header { span, .. } | ast::AssignTarget::Trailer { span, .. }
                if self.is_packet() =>
            {
                self.no_write(*span, "frames have no named headers", "set a protocol's field: `ip.ttl`")
            }
            ast::AssignTarget::Header { key, span } => {
                let name = self.written_header(key)?;
                if !matches!(
                    self.view,
                    View::Handler(HandlerKind::Open | HandlerKind::Request | HandlerKind::Response)
                ) {
                    return self.no_write(
                        *span,
                        "the headers have already been sent",
                        "set trailer['...'] in ON CLOSE, or the header in ON RESPONSE",
                    );
                }
                Some((AssignTarget::Header(name), Type::Text(None), true, "a header".to_owned()))
            }
            ast::AssignTarget::Trailer { key, span } => {
                let name = self.written_header(key)?;
                if self.view != View::Handler(HandlerKind::Close) {
                    return self.no_write(
                        *span,
                        "trailers are sent at the end of the call",
                        "set it in ON CLOSE, or with ABORT ... WITH",
                    );
                }
                Some((AssignTarget::Trailer(name), Type::Text(None), true, "a trailer".to_owned()))
            }
        }
    }

    /// The name of a header or trailer that a program may set; reports protocol-owned ones.
    fn written_header(&mut self, key: &ast::Expr) -> Option<String> {
        let name = self.header_name(key)?;
        match header::instead_of_writing(&name) {
            None => Some(name),
            Some(help) => self.no_write(key.span, "set by the protocol", help),
        }
    }

    /// Resolves the target of a SET. Returns it with its type, whether it may be NULL, and its name for diagnostics.
    fn named_place(&mut self, path: &ast::Path) -> Option<(AssignTarget, Type, bool, String)> {
        let name = match path.segments.as_slice() {
            [name] => name,
            [input, name] if input.name == "input" => name,
            _ if self.is_packet() => {
                return match self.frame_place(path) {
                    Some(found) => found,
                    None => {
                        self.unknown_layer(path);
                        None
                    }
                };
            }
            [_, name] => {
                let help = format!("change a table row with `UPDATE ... SET {} = ...`", name.name);
                return self.no_write(path.span, "not a column of the message", &help);
            }
            _ => {
                return self.no_write(
                    path.span,
                    "not a column of the message",
                    "declare a column and bind it to this field in the chain",
                );
            }
        };
        let element = self.element;
        let whose = format!("`{}`", name.name);
        if path.segments.len() == 1
            && let Some((known, _)) = self.locals.find(&name.name)
        {
            let label = format!("`{}` is a LET", known.name);
            let help = "a LET cannot be changed: use a CALL column, or another LET";
            return self.no_write(path.span, &label, help);
        }
        if let Some(at) = self.own_column(&name.name) {
            let column = &element.columns[at];
            let known = !self.cx.is_broken(column.span);
            return known.then_some((AssignTarget::Column(at), column.ty, column.nullable, whose));
        }
        if let Some(at) = element.call.iter().position(|cell| cell.name == name.name)
            && self.view.has_call()
        {
            let cell = &element.call[at];
            return (!self.cx.is_broken(cell.span)).then_some((
                AssignTarget::Call(at),
                cell.ty,
                false,
                whose,
            ));
        }
        if let Some(at) = element.vars.iter().position(|var| var.name == name.name) {
            let var = &element.vars[at];
            if var.merge.is_some() {
                let message = format!("`{}` is merged, so only ADD and RESET can change it", name.name);
                let diagnostic = Diagnostic::error(code::MERGE_MISUSE, message)
                    .at(path.span, "set here")
                    .with_label(var.span, "declared MERGE")
                    .with_help(format!("write `ADD {}, n;`, or remove MERGE", name.name));
                self.cx.report(diagnostic);
                return None;
            }
            return (!self.cx.is_broken(var.span)).then_some((AssignTarget::Var(at), var.ty, false, whose));
        }
        if element.params.iter().any(|param| param.name == name.name) {
            return self.no_write(
                path.span,
                "a parameter",
                "the chain sets parameters: copy the value into a LET or a VAR",
            );
        }
        if self.meta(&name.name).is_some()
            || (!self.is_packet() && super::scope::METAS.iter().any(|(known, ..)| *known == name.name))
        {
            return self.no_write(path.span, "set by the engine", "it is read-only");
        }
        // Reports why the name is not a target: unknown, or not available here.
        self.resolve(path)?;
        self.no_write(path.span, "not a column, CALL column or VAR", "SET can change those, and headers")
    }

    /// Reports a target that cannot be set here.
    fn no_write<T>(&mut self, span: Span, label: &str, help: &str) -> Option<T> {
        let message = format!("this cannot be set in {}", self.words());
        let diagnostic = Diagnostic::error(code::WRITE_NOT_HERE, message).at(span, label).with_help(help);
        self.cx.report(diagnostic);
        None
    }

    /// Checks the destination of a REDIRECT or MIRROR: a cluster or endpoint.
    fn target(&mut self, ast: &ast::Expr) -> Option<Expr> {
        if self.is_packet() {
            return self.target_port(ast);
        }
        let expr = self.expr(ast, Some(Type::Endpoint))?;
        let ty = if matches!(expr.ty, Type::Text(_)) { expr.ty } else { Type::Endpoint };
        let expr = self.coerce(expr, ty)?;
        if !expr.nullable {
            return Some(expr);
        }
        // NULL is the error "unexpected null" at run time: whether the table has the key is unknown here.
        Some(Expr { fallible: true, ..expr })
    }

    /// The output: a port name, `'*'` for all other ports of the chain, or `'@hold'` for the element again.
    fn target_port(&mut self, ast: &ast::Expr) -> Option<Expr> {
        let expr = self.typed(ast, Type::Text(None))?;
        if let ExprKind::Const(Value::Bytes(bytes)) = &expr.kind
            && let Ok(name) = core::str::from_utf8(bytes)
            && !is_reserved(name)
            && !self.cx.ports.iter().any(|known| known == name)
        {
            let strange = NoPort {
                name,
                literal: Some(expr.span),
                otherwise: "name a PORT or a GROUP, or write '*' for all other ports of the chain",
            };
            let diagnostic = self.cx.no_port(Diagnostic::error, strange).at(expr.span, "unknown");
            self.cx.report_missing(diagnostic);
            return None;
        }
        // NULL is the error "unexpected null" at run time, as for calls.
        Some(Expr { fallible: expr.fallible || expr.nullable, ..expr })
    }

    // ---- guards ------------------------------------------------------------------------------------------------

    /// Checks a guard `SELECT ... FROM input`: the query, its assignments, and the verdict for calls without a row.
    fn guard(&mut self, guard: &ast::Guard, span: Span) -> Option<StmtKind> {
        self.check_input(guard.select.span)?;
        if self.view == View::Handler(HandlerKind::Close) {
            let diagnostic = Diagnostic::error(code::ACTION_NOT_HERE, "a guard in ON CLOSE has no effect")
                .at(span, "the call has already ended")
                .with_help("use IF, or INSERT ... SELECT ... FROM input");
            self.cx.report(diagnostic);
            return None;
        }
        let n_visible_rows = self.rows.visible().len();
        let query = self.query(&guard.select);
        let set = self.selected_items(&guard.select.items);
        self.rows.qualify_after(n_visible_rows);
        let otherwise = self.guard_else(guard, span);
        Some(StmtKind::Guard { query: query?, set: set?, otherwise: otherwise? })
    }

    /// Checks the assignments of a guard's items: `e AS c` sets column c; `*` and a plain column set nothing.
    fn selected_items(&mut self, items: &[SelectItem]) -> Option<Vec<(AssignTarget, Expr)>> {
        let mut set: Option<Vec<(AssignTarget, Expr)>> = Some(Vec::new());
        for item in items {
            let SelectItem::Value { value, alias } = item else { continue };
            let changed = match (alias, &value.kind) {
                (None, ast::ExprKind::Path(_)) => {
                    if self.expr(value, None).is_none() {
                        set = None;
                    }
                    continue;
                }
                (None, _) => {
                    let diagnostic = Diagnostic::error(code::WRITE_NOT_HERE, "this value is not used")
                        .at(value.span, "no name")
                        .with_help("name the column to set: `e AS column`");
                    self.cx.report(diagnostic);
                    None
                }
                (Some(name), _) => {
                    let path = ast::Path { segments: vec![name.clone()], span: name.span };
                    self.named_place(&path).and_then(|(place, ty, nullable, whose)| {
                        Some((place, self.value_for(value, ty, nullable, &whose)?))
                    })
                }
            };
            set = match (set, changed) {
                (Some(mut set), Some(changed)) => {
                    set.push(changed);
                    Some(set)
                }
                _ => None,
            };
        }
        set
    }

    /// Returns the verdict for tuples that a guard rejects: the written one, or the default of its form. Reports a
    /// guard on calls without either.
    fn guard_else(&mut self, guard: &ast::Guard, span: Span) -> Option<Verdict> {
        if let Some(verdict) = &guard.otherwise {
            return self.verdict(verdict);
        }
        if guard.into_output.is_some() {
            // The form of the ADN paper: a call without a result row is aborted, so its caller gets an answer.
            let status = Value::Int(i64::from(Status::PermissionDenied.code()));
            let text = Value::text(&format!("no row of input left by {}", self.element.name));
            let kind = VerdictKind::Abort {
                status: constant(status, Type::Status, span),
                text: Some(constant(text, Type::Text(None), span)),
                with: Vec::new(),
            };
            return Some(Verdict { kind, span });
        }
        if self.is_packet() {
            return Some(Verdict { kind: VerdictKind::Drop, span });
        }
        let message = if self.view.direction() == Some(crate::hir::Direction::Response) {
            "a call can end here without an answer"
        } else {
            "a request can end here without an answer"
        };
        let diagnostic = Diagnostic::error(code::NO_ANSWER, message)
            .at(span, "action for other messages missing")
            .with_help("add it: `ELSE ABORT PERMISSION_DENIED 'why'`")
            .with_fix(Span { start: span.end.saturating_sub(1), ..span }, " ELSE ABORT PERMISSION_DENIED;");
        self.cx.report(diagnostic);
        None
    }

    // ---- tables ------------------------------------------------------------------------------------------------

    /// Finds the table of a statement that writes it.
    fn written_table(&mut self, name: &Ident, makes_rows: bool) -> Option<TableRef> {
        let found = self.table_ref(name)?;
        let table = self.table(found);
        if let Some(filler) = table.filled {
            let (clause, who) = (filler.clause(), filler.in_words());
            let message = format!("`{}` is filled by {who}, so handlers can only read it", name.name);
            let help = format!("remove {clause} (and add an EVICT clause), or use a separate table");
            let diagnostic = Diagnostic::error(code::TABLE_READ_ONLY, message)
                .at(name.span, "written here")
                .with_label(table.span, format!("declared {clause}"))
                .with_help(help);
            let diagnostic = if filler == ast::Filler::Controller {
                diagnostic
                    .with_help(format!("or send rows with a sink: `SINK s (...) TO TABLE {};`", name.name))
            } else {
                diagnostic
            };
            self.cx.report(diagnostic);
            return None;
        }
        if makes_rows && table.evict.is_none() {
            let message = format!("`{}` gets rows here, but has no eviction policy", name.name);
            let diagnostic = Diagnostic::error(code::NO_EVICT, message)
                .at(name.span, "may insert a row")
                .with_label(table.span, "no EVICT")
                .with_help("add `EVICT OLDEST`, `EVICT LRU` or `EVICT REJECT` after `MAX n ROWS`");
            self.cx.report_unless_broken(table.span, diagnostic);
            return None;
        }
        let is_scanned = |row: &RowId| self.rows.get(*row).table == found;
        if makes_rows && self.scanning().iter().any(is_scanned) {
            let message = format!("rows are inserted into `{}` while it is scanned", name.name);
            let diagnostic = Diagnostic::error(code::SCANNED_TABLE_GROWS, message)
                .at(name.span, "inside a SCAN of the same table")
                .with_help("use UPDATE, or collect the rows in a VAR or another table");
            self.cx.report(diagnostic);
            return None;
        }
        Some(found)
    }

    fn scanning(&self) -> Vec<RowId> {
        let scans =
            self.rows.visible().iter().filter(|visible| visible.visibility == ColumnVisibility::First);
        scans.map(|visible| visible.row).collect()
    }

    /// Checks an INSERT into a table or a sink.
    fn insert(&mut self, insert: &ast::Insert) -> Option<StmtKind> {
        let sink = self.element.sinks.iter().position(|sink| sink.name == insert.into.name);
        if sink.is_none() && !self.is_table(&insert.into.name) {
            return self.unknown_target(&insert.into);
        }
        let n_visible_rows = self.rows.visible().len();
        let query = match &insert.source {
            InsertSource::Select(select) => {
                self.check_input(select.span)?;
                self.query(select).map(Some)
            }
            InsertSource::Values(_) => Some(None),
        };
        let table = if sink.is_none() { self.written_table(&insert.into, true) } else { None };
        let rows = self.inserted_rows(insert, sink, table);
        self.rows.hide_after(n_visible_rows);
        let (query, rows) = (query?, rows?);
        match sink {
            Some(sink) => Some(StmtKind::Emit { sink, query, rows }),
            None => Some(StmtKind::Insert { table: table?, query, rows }),
        }
    }

    /// Reports an INSERT into an unknown table or sink.
    fn unknown_target<T>(&mut self, name: &Ident) -> Option<T> {
        let sinks: Vec<&str> = self.element.sinks.iter().map(|sink| sink.name.as_str()).collect();
        let tables = self.element.tables.iter().chain(self.shared).map(|table| table.name.as_str());
        let message = format!("unknown table or sink `{}`", name.name);
        let diagnostic = Diagnostic::error(code::UNKNOWN_TABLE, message)
            .at(name.span, "unknown")
            .with_help(format!("declare it: `SINK {} (...) TO STDOUT;`, or as a TABLE", name.name));
        self.cx.report_missing(with_nearest(diagnostic, name, sinks.into_iter().chain(tables)));
        None
    }

    /// Checks the rows of an INSERT. Returns the values of each row in the order of the target's columns.
    fn inserted_rows(
        &mut self,
        insert: &ast::Insert,
        sink: Option<usize>,
        table: Option<TableRef>,
    ) -> Option<Vec<Vec<Expr>>> {
        let columns = self.target_columns(insert, sink, table)?;
        let rows: Vec<(Vec<&ast::Expr>, Span)> = match &insert.source {
            InsertSource::Values(rows) => {
                rows.iter().map(|row| (row.values.iter().collect(), row.span)).collect()
            }
            InsertSource::Select(select) => {
                let mut values = Vec::new();
                for item in &select.items {
                    match item {
                        SelectItem::Value { value, .. } => values.push(value),
                        SelectItem::Star(star) => {
                            let diagnostic =
                                Diagnostic::error(code::BAD_ARGUMENTS, "`*` is not allowed here")
                                    .at(*star, "which columns?")
                                    .with_help("write one value for each column");
                            self.cx.report(diagnostic);
                            return None;
                        }
                    }
                }
                vec![(values, select.span)]
            }
        };
        let rows: Vec<Option<Vec<Expr>>> = rows
            .into_iter()
            .map(|(values, row_span)| self.inserted_row(&columns, &values, table, sink, row_span))
            .collect();
        rows.into_iter().collect()
    }

    /// Returns the columns of an INSERT's values, in order.
    fn target_columns(
        &mut self,
        insert: &ast::Insert,
        sink: Option<usize>,
        table: Option<TableRef>,
    ) -> Option<Vec<usize>> {
        let element = self.element;
        if let Some(sink) = sink {
            let sink = &element.sinks[sink];
            if insert.columns.is_empty() {
                return Some((0..sink.columns.len()).collect());
            }
            let found: Vec<Option<usize>> = insert
                .columns
                .iter()
                .map(|name| {
                    let at = sink.columns.iter().position(|column| column.name == name.name);
                    if at.is_none() {
                        let names: Vec<&str> =
                            sink.columns.iter().map(|column| column.name.as_str()).collect();
                        let message = format!("sink `{}` has no column `{}`", sink.name, name.name);
                        let diagnostic = Diagnostic::error(code::UNKNOWN_COLUMN, message)
                            .at(name.span, "unknown column")
                            .with_note(format!("it has: {}", names.join(", ")));
                        self.cx.report(with_nearest(diagnostic, name, names));
                    }
                    at
                })
                .collect();
            return found.into_iter().collect();
        }
        let table = table?;
        if insert.columns.is_empty() {
            return Some(super::table::written_order(self.table(table)));
        }
        let found: Vec<Option<usize>> =
            insert.columns.iter().map(|name| self.column_of(table, name)).collect();
        found.into_iter().collect()
    }

    /// Checks one row of an INSERT: one value for each column, and a default for each column that is left out.
    fn inserted_row(
        &mut self,
        columns: &[usize],
        values: &[&ast::Expr],
        table: Option<TableRef>,
        sink: Option<usize>,
        span: Span,
    ) -> Option<Vec<Expr>> {
        if columns.len() != values.len() {
            let message = values_for_columns(values.len(), columns.len());
            self.report_at(span, code::BAD_ARGUMENTS, message, "one value for each column");
            return None;
        }
        let element = self.element;
        let mut row: Vec<Option<Expr>> = match (table, sink) {
            (Some(table), _) => {
                self.table(table).columns.iter().map(|column| column.default.clone()).collect()
            }
            (None, Some(sink)) => element.sinks[sink]
                .columns
                .iter()
                .map(|column| Some(Self::null_of(column.ty, span)))
                .collect(),
            (None, None) => return None,
        };
        let mut ok = true;
        for (&at, value) in columns.iter().zip(values) {
            let (ty, nullable, name) = match (table, sink) {
                (Some(table), _) => {
                    let column = &self.table(table).columns[at];
                    (column.ty, column.nullable, &column.name)
                }
                (None, sink) => {
                    let column = &element.sinks[sink?].columns[at];
                    (column.ty, true, &column.name)
                }
            };
            let whose = format!("column `{name}`");
            let value = self.value_for(value, ty, nullable, &whose);
            ok &= value.is_some();
            row[at] = value;
        }
        if !ok {
            return None;
        }
        if let (Some(at), Some(table)) = (row.iter().position(Option::is_none), table) {
            return self.no_value(table, at, span);
        }
        row.into_iter().collect()
    }

    /// Reports a column of a new row that has neither a value nor a default.
    fn no_value<T>(&mut self, table: TableRef, at: usize, span: Span) -> Option<T> {
        let table = self.table(table);
        let column = &table.columns[at];
        let message = format!("a new row of `{}` has no value for `{}`", table.name, column.name);
        let diagnostic = Diagnostic::error(code::NO_VALUE, message)
            .at(span, format!("`{}` has no value", column.name))
            .with_label(column.span, "has no default, and cannot be NULL")
            .with_help(format!(
                "give it a value here, or declare a default: `{} {} = ...`",
                column.name, column.ty
            ));
        self.cx.report_unless_broken(column.span, diagnostic);
        None
    }

    /// Checks an UPSERT: a value for each key column, and assignments to other columns.
    fn upsert(&mut self, upsert: &ast::Upsert, span: Span) -> Option<StmtKind> {
        let table = self.written_table(&upsert.table, true)?;
        let decl = self.table(table);
        let key = if upsert.key.len() == decl.n_keys {
            let keys = upsert.key.iter().zip(&decl.columns);
            let key: Vec<Option<Expr>> = keys
                .map(|(key, column)| {
                    let whose = format!("key column `{}`", column.name);
                    self.value_for(key, column.ty, false, &whose)
                })
                .collect();
            key.into_iter().collect()
        } else {
            let names: Vec<&str> =
                decl.columns[..decl.n_keys].iter().map(|column| column.name.as_str()).collect();
            let message = format!(
                "the key of `{}` has {} columns, but {} values are given",
                decl.name,
                decl.n_keys,
                upsert.key.len()
            );
            let diagnostic = Diagnostic::error(code::KEY_NOT_COVERED, message)
                .at(span, "incomplete key")
                .with_help(format!("write `KEY ({})`", names.join(", ")));
            self.cx.report_unless_broken(decl.span, diagnostic);
            None
        };
        let (row, set) =
            self.with_row(table, &upsert.table.name, |scope, row| scope.assignments(table, row, &upsert.set));
        let (key, set): (Vec<Expr>, Vec<(usize, Expr)>) = (key?, set?);
        for (at, column) in decl.columns.iter().enumerate().skip(decl.n_keys) {
            if column.default.is_some() {
                continue;
            }
            if !set.iter().any(|(other, _)| *other == at) {
                return self.no_value(table, at, span);
            }
            let reader = set.iter().find_map(|(_, value)| reads_column(value, row, at));
            if let Some(read_at) = reader {
                return self.no_value(table, at, read_at);
            }
        }
        Some(StmtKind::Upsert { table, row, key, set })
    }

    /// Checks assignments `c = e, ...` to a row; every value reads the row before the assignments.
    fn assignments(
        &mut self,
        table: TableRef,
        row: RowId,
        set: &[ast::Assign],
    ) -> Option<Vec<(usize, Expr)>> {
        let mut done: Vec<(usize, Expr, Span)> = Vec::new();
        let mut ok = true;
        for assign in set {
            let assigned = self.assignment(table, row, assign);
            match assigned {
                Some((at, _)) if done.iter().any(|(other, ..)| *other == at) => {
                    let first = done.iter().find(|(other, ..)| *other == at).map(|(.., span)| *span);
                    let message = format!("`{}` is set twice", assign.name.name);
                    let diagnostic =
                        Diagnostic::error(code::DUPLICATE_NAME, message).at(assign.name.span, "the second");
                    self.cx.report(diagnostic.with_label(first.unwrap_or(assign.span), "the first"));
                    ok = false;
                }
                Some((at, value)) => done.push((at, value, assign.name.span)),
                None => ok = false,
            }
        }
        ok.then(|| done.into_iter().map(|(at, value, _)| (at, value)).collect())
    }

    /// Checks an assignment to a table column that is not part of the key. Returns its index and the value.
    fn assignment(&mut self, table: TableRef, row: RowId, assign: &ast::Assign) -> Option<(usize, Expr)> {
        let at = self.column_of(table, &assign.name);
        let Some(at) = at else {
            self.expr(&assign.value, None);
            return None;
        };
        let decl = self.table(table);
        let column = &decl.columns[at];
        if at < decl.n_keys {
            let diagnostic =
                Diagnostic::error(code::KEY_CHANGED, format!("`{}` is part of the key", column.name))
                    .at(assign.name.span, "a key cannot be changed")
                    .with_label(column.span, "declared here")
                    .with_help("DELETE the row and INSERT a new one");
            self.cx.report(diagnostic);
            return None;
        }
        self.merging = column.merge.map(|_| (row, at));
        self.counting = is_counted(&assign.value).then_some((row, at));
        let whose = format!("column `{}`", column.name);
        let value = self.value_for(&assign.value, column.ty, column.nullable, &whose);
        (self.merging, self.counting) = (None, None);
        let value = value?;
        match column.merge {
            Some(merge) if !is_merge(&value, merge, row, at) => {
                let name = &column.name;
                let form = match merge {
                    Merge::Sum => format!("{name} = {name} + e"),
                    Merge::Max => format!("{name} = greatest({name}, e)"),
                    Merge::Min => format!("{name} = least({name}, e)"),
                };
                let message = format!("`{name}` is merged, so only its own merge operation can change it");
                let diagnostic = Diagnostic::error(code::MERGE_MISUSE, message)
                    .at(assign.span, "a different operation")
                    .with_label(column.span, "declared MERGE")
                    .with_help(format!("write `{form}`, or remove MERGE"));
                self.cx.report(diagnostic);
                None
            }
            _ => Some((at, value)),
        }
    }

    /// Checks an UPDATE: its condition must fix the whole key.
    fn update(&mut self, update: &ast::Update, span: Span) -> Option<StmtKind> {
        let table = self.written_table(&update.table, false);
        let Some(table) = table else {
            if let Some(otherwise) = &update.otherwise {
                self.block(otherwise);
            }
            return None;
        };
        let (row, (set, split)) = self.with_row(table, &update.table.name, |scope, row| {
            let set = scope.assignments(table, row, &update.set);
            let filter = match &update.filter {
                Some(filter) => scope.condition(filter).map(Some),
                None => Some(None),
            };
            (set, filter.and_then(|filter| scope.split_key(row, filter, span)))
        });
        let returning: Vec<Option<(usize, AssignTarget)>> =
            update.returning.iter().map(|returning| self.returning(table, returning, update)).collect();
        let otherwise = update.otherwise.as_ref().map(|body| self.block(body)).unwrap_or_default();
        let (key, condition) = split?;
        let returning = returning.into_iter().collect::<Option<Vec<_>>>()?;
        Some(StmtKind::Update { table, row, key, condition, set: set?, returning, otherwise })
    }

    /// Checks a RETURNING. A new name is declared as a local.
    fn returning(
        &mut self,
        table: TableRef,
        returning: &ast::Returning,
        update: &ast::Update,
    ) -> Option<(usize, AssignTarget)> {
        let at = self.column_of(table, &returning.column)?;
        let column = &self.table(table).columns[at];
        if let Some(name) = returning.into.as_ident()
            && !self.is_known(&name.name)
        {
            // A new name is a LET. If ELSE continues, it may have no value.
            let ends = update.otherwise.as_ref().is_some_and(|body| ends_handler(body));
            let local = self.locals.add(name, column.ty, column.nullable || !ends);
            self.locals.show(name, Some(local));
            self.cx.returned.push((local, name.clone()));
            return Some((at, AssignTarget::Local(local)));
        }
        let (place, ty, nullable, whose) = self.named_place(&returning.into)?;
        let message = if column.nullable && !nullable {
            format!("`{}` may be NULL, but {whose} cannot be NULL", column.name)
        } else if types::widens(column.ty, ty) {
            return Some((at, place));
        } else {
            format!(
                "`{}` is {}, but {whose} is {}",
                column.name,
                super::expr::article(column.ty),
                super::expr::article(ty)
            )
        };
        let diagnostic = Diagnostic::error(code::TYPE_MISMATCH, message)
            .at(returning.span, "out of range")
            .with_help("return it into a new name, then convert it: `RETURNING c INTO x`");
        self.cx.report(diagnostic);
        None
    }

    /// Whether the element declares a name that RETURNING could refer to.
    fn is_known(&self, name: &str) -> bool {
        let element = self.element;
        element.call.iter().any(|cell| cell.name == name)
            || element.vars.iter().any(|var| var.name == name)
            || element.columns.iter().any(|column| column.name == name)
            || element.params.iter().any(|param| param.name == name)
            || self.locals.find(name).is_some()
            || super::scope::METAS.iter().any(|(known, ..)| *known == name)
    }

    /// Checks a DELETE: its condition must fix the whole key.
    fn delete(&mut self, table: &Ident, filter: &ast::Expr) -> Option<StmtKind> {
        let found = self.written_table(table, false)?;
        let (row, split) = self.with_row(found, &table.name, |scope, row| {
            let filter = scope.condition(filter)?;
            let span = filter.span;
            scope.split_key(row, Some(filter), span)
        });
        let (key, condition) = split?;
        Some(StmtKind::Delete { table: found, row, key, condition })
    }

    /// Checks a SCAN and its body, which sees the columns of the row.
    fn scan(&mut self, scan: &ast::Scan) -> Option<StmtKind> {
        let table = self.table_ref(&scan.table);
        let rows_max = self.scan_rows_max(&scan.max);
        let table = table?;
        let alias = scan.alias.as_ref().unwrap_or(&scan.table).name.clone();
        let (row, (filter, body)) = self.with_row(table, &alias, |scope, _| {
            let filter = scope_filter(scope, scan.filter.as_ref());
            (filter, scope.block(&scan.body))
        });
        Some(StmtKind::Scan { table, row, rows_max: rows_max?, filter: filter?, body })
    }

    // ---- variables and actions ---------------------------------------------------------------------------------

    /// Finds a merged variable for ADD or RESET. Reports an unknown or ordinary variable.
    fn merged_var(&mut self, name: &Ident, verb: &str) -> Option<usize> {
        let element = self.element;
        let Some(at) = element.vars.iter().position(|var| var.name == name.name) else {
            let message = format!("unknown variable `{}`", name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message)
                .at(name.span, "unknown")
                .with_help(format!("declare it: `VAR {} U64 MERGE SUM;`", name.name));
            let names = element.vars.iter().map(|var| var.name.as_str());
            self.cx.report_missing(with_nearest(diagnostic, name, names));
            return None;
        };
        let var = &element.vars[at];
        if var.merge.is_none() {
            let message = format!("`{}` is not merged, but {verb} is for merged variables", name.name);
            let diagnostic = Diagnostic::error(code::MERGE_MISUSE, message)
                .at(name.span, "an ordinary variable")
                .with_label(var.span, "declared without MERGE")
                .with_help(format!("write `SET {0} = ...`, or declare it `MERGE SUM`", name.name));
            self.cx.report_unless_broken(var.span, diagnostic);
            return None;
        }
        Some(at)
    }

    /// Checks an ADD. Without an amount it adds 1.
    fn add(&mut self, target: &Ident, amount: Option<&ast::Expr>, span: Span) -> Option<StmtKind> {
        let var = self.merged_var(target, "ADD")?;
        let ty = self.element.vars[var].ty;
        let amount = match amount {
            Some(amount) => {
                let whose = format!("`{}`", target.name);
                self.value_for(amount, ty, false, &whose)?
            }
            None => constant(Value::Int(1), ty, span),
        };
        Some(StmtKind::Add { var, amount })
    }

    /// Checks a RESET, which is only possible in ON EVERY.
    fn reset(&mut self, target: &Ident) -> Option<StmtKind> {
        let var = self.merged_var(target, "RESET")?;
        if self.view != View::Handler(HandlerKind::Every) {
            let message =
                format!("RESET changes the merged value, which is not available in {}", self.words());
            let diagnostic = Diagnostic::error(code::ACTION_NOT_HERE, message)
                .at(target.span, "reset here")
                .with_help("use RESET in ON EVERY");
            self.cx.report(diagnostic);
            return None;
        }
        Some(StmtKind::Reset { var })
    }

    /// The names of the handlers that are possible for the element.
    fn events(&self, kinds: &[HandlerKind]) -> Vec<&'static str> {
        if !self.is_packet() {
            return kinds.iter().map(|kind| View::Handler(*kind).words()).collect();
        }
        let mut names = vec!["ON PACKET"];
        if kinds.contains(&HandlerKind::Error) {
            names.push(View::Handler(HandlerKind::Error).words());
        }
        names
    }

    /// Checks that the handler permits an action. Reports the handlers that do.
    pub(super) fn check_action(&mut self, allowed: &[HandlerKind], what: &str, span: Span) -> Option<()> {
        if matches!(self.view, View::Handler(kind) if allowed.contains(&kind)) {
            return Some(());
        }
        let names = self.events(allowed);
        let message = format!("{what} is not available in {}", self.words());
        let diagnostic = Diagnostic::error(code::ACTION_NOT_HERE, message)
            .at(span, "no message here")
            .with_help(format!("{what} is allowed in {}", names.join(", ")));
        self.cx.report(diagnostic);
        None
    }

    /// Reports a statement that elements on frames do not have.
    fn not_on_packet<T>(&mut self, span: Span, what: &str, help: &str) -> Option<T> {
        let diagnostic =
            Diagnostic::error(code::NOT_IN_VERSION, format!("{what} is not available on frames"))
                .at(span, "not available on this layer")
                .with_help(help);
        self.cx.report(diagnostic);
        None
    }

    /// Reports a statement that elements on calls do not have.
    fn not_on_rpc<T>(&mut self, span: Span, what: &str, why: &str) -> Option<T> {
        let diagnostic = Diagnostic::error(code::NOT_IN_VERSION, format!("{what} is not available on rpc"))
            .at(span, "not available on this layer")
            .with_help(why);
        self.cx.report(diagnostic);
        None
    }

    // ---- verdicts ----------------------------------------------------------------------------------------------

    /// Checks a verdict and its operands.
    fn verdict(&mut self, verdict: &ast::Verdict) -> Option<Verdict> {
        use HandlerKind as H;
        let span = verdict.span;
        let kind = match &verdict.kind {
            AstVerdict::Forward => {
                self.check_verdict(&[H::Open, H::Request, H::Response, H::Close, H::Error], "FORWARD", span)?;
                VerdictKind::Forward
            }
            AstVerdict::Drop => {
                self.check_verdict(&[H::Open, H::Request, H::Response, H::Error], "DROP", span)?;
                if !self.is_packet() {
                    let diagnostic =
                        Diagnostic::warning(code::NO_ANSWER, "a request can end here without an answer")
                            .at(span, "the client gets a stream reset without a status")
                            .with_help("write `ABORT UNAVAILABLE`, unless the method is a stream");
                    self.cx.report(diagnostic);
                }
                VerdictKind::Drop
            }
            AstVerdict::Abort { status, text, with } => {
                self.check_verdict(&[H::Open, H::Request, H::Response, H::Error], "ABORT", span)?;
                if let (true, Some(first)) = (self.is_packet(), with.first()) {
                    let help = "a frame has no response: ABORT drops it and counts it by status and text";
                    return self.not_on_packet(first.span, "ABORT ... WITH", help);
                }
                self.abort(status, text.as_ref(), with)?
            }
            AstVerdict::Reply { .. } | AstVerdict::ReplyPayload { .. } if self.is_packet() => {
                let help = "a frame has no response: use DROP, or change the frame and `REDIRECT TO port`";
                return self.not_on_packet(span, "REPLY", help);
            }
            AstVerdict::Steer { edge } if self.is_packet() => {
                self.check_verdict(&[H::Request], "STEER", span)?;
                VerdictKind::Steer(self.edge(edge)?)
            }
            AstVerdict::Reply { fields } => {
                self.check_verdict(&[H::Open, H::Request], "REPLY", span)?;
                self.reply(fields)?
            }
            AstVerdict::ReplyPayload { bytes } => {
                self.check_verdict(&[H::Open, H::Request], "REPLY", span)?;
                VerdictKind::ReplyPayload {
                    bytes: self.value_for(bytes, Type::Bytes(None), false, "the message")?,
                }
            }
            AstVerdict::Redirect { to } => {
                self.check_verdict(&[H::Open, H::Request], "REDIRECT", span)?;
                VerdictKind::Redirect { to: self.target(to)? }
            }
            AstVerdict::Steer { .. } => {
                return self.not_on_rpc(span, "STEER", "edges are for packet layers; use REDIRECT TO");
            }
        };
        Some(Verdict { kind, span })
    }

    /// The edge of the element with this name.
    fn edge(&mut self, name: &Ident) -> Option<usize> {
        let edges = &self.element.edges;
        let found = edges.iter().position(|(known, _)| *known == name.name);
        if found.is_none() {
            let names: Vec<&str> = edges.iter().map(|(known, _)| known.as_str()).collect();
            let message = format!("the element has no edge `{}`", name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message).at(name.span, "unknown");
            let diagnostic = match nearest(&name.name, names.iter().copied()) {
                Some(_) => with_nearest(diagnostic, name, names),
                None => diagnostic.with_help(format!("declare it: `EDGE {};`", name.name)),
            };
            self.cx.report(diagnostic);
        }
        found
    }

    /// Checks that the handler permits a verdict. Reports the handlers that do.
    fn check_verdict(&mut self, allowed: &[HandlerKind], what: &str, span: Span) -> Option<()> {
        if matches!(self.view, View::Handler(kind) if allowed.contains(&kind)) {
            return Some(());
        }
        let why = match self.view {
            View::Handler(HandlerKind::Close) => "the call has ended",
            View::Handler(kind) if kind.is_timed() => "there is no tuple to decide on",
            View::Handler(HandlerKind::Response) => "the request has already been sent",
            _ => "the element has failed, and its changes were rolled back",
        };
        let names = self.events(allowed);
        let message = format!("{what} is not allowed in {}", self.words());
        let diagnostic = Diagnostic::error(code::VERDICT_NOT_HERE, message)
            .at(span, why)
            .with_help(format!("{what} is allowed in {}", names.join(", ")));
        self.cx.report(diagnostic);
        None
    }

    /// Checks an ABORT: its status, its message, and the headers and trailers of the answer.
    fn abort(
        &mut self,
        status: &ast::Expr,
        text: Option<&ast::Expr>,
        with: &[ast::WithItem],
    ) -> Option<VerdictKind> {
        let status = match &status.kind {
            // Its statuses are not known.
            _ if self.cx.layer_is_missing => None,
            ast::ExprKind::Path(path) if path.as_ident().is_some_and(|name| self.is_unknown_status(name)) => {
                let name = path.as_ident()?;
                let message = format!("unknown status `{}`", name.name);
                let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message)
                    .at(name.span, "not a gRPC status")
                    .with_note("see https://grpc.io/docs/guides/status-codes");
                self.cx.report(with_nearest(diagnostic, name, status_names()));
                None
            }
            _ => self.value_for(status, Type::Status, false, "a verdict's status"),
        };
        if let Some(Expr { kind: ExprKind::Const(Value::Int(0)), span, .. }) = status {
            let diagnostic = Diagnostic::error(code::BAD_LITERAL, "ABORT cannot end a call as OK")
                .at(span, "OK is not an error")
                .with_help("use REPLY, or another status");
            self.cx.report(diagnostic);
            return None;
        }
        let text = match text {
            Some(text) => self.typed(text, Type::Text(None)).map(Some),
            None => Some(None),
        };
        let with: Vec<Option<(AnswerTarget, Expr)>> = with.iter().map(|item| self.answer(item)).collect();
        let with = with.into_iter().collect::<Option<Vec<_>>>();
        Some(VerdictKind::Abort { status: status?, text: text?, with: with? })
    }

    /// Whether an unknown name is probably meant as a status.
    fn is_unknown_status(&self, name: &Ident) -> bool {
        if Status::from_name(&name.name).is_some() || self.is_known(&name.name) {
            return false;
        }
        let looks_like_one = name.name.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_');
        looks_like_one || nearest(&name.name, status_names()).is_some()
    }

    /// Checks one assignment of ABORT WITH: a header or a trailer.
    fn answer(&mut self, item: &ast::WithItem) -> Option<(AnswerTarget, Expr)> {
        let value = self.typed(&item.value, Type::Text(None));
        let place = match &item.target {
            ast::AssignTarget::Header { key, .. } => AnswerTarget::Header(self.written_header(key)?),
            ast::AssignTarget::Trailer { key, .. } => AnswerTarget::Trailer(self.written_header(key)?),
            ast::AssignTarget::Path(path) => {
                let diagnostic = Diagnostic::error(
                    code::WRITE_NOT_HERE,
                    "ABORT ... WITH can only set headers and trailers",
                )
                .at(path.span, "not a valid name")
                .with_help(format!("write `header['{}'] = ...`", path.to_dotted()));
                self.cx.report(diagnostic);
                return None;
            }
        };
        Some((place, value?))
    }

    /// Checks a REPLY: values for columns of the response.
    fn reply(&mut self, fields: &[ast::Assign]) -> Option<VerdictKind> {
        let element = self.element;
        let mut given: Option<Vec<(usize, Expr)>> = Some(Vec::new());
        for field in fields {
            let name = &field.name;
            let is_response =
                |column: &&crate::hir::Column| column.direction == crate::hir::Direction::Response;
            let at =
                element.columns.iter().position(|column| is_response(&column) && column.name == name.name);
            let Some(at) = at else {
                let names: Vec<&str> =
                    element.columns.iter().filter(is_response).map(|column| column.name.as_str()).collect();
                let message = format!("the response has no column `{}`", name.name);
                let diagnostic = Diagnostic::error(code::UNKNOWN_COLUMN, message)
                    .at(name.span, "not a column of RETURNS")
                    .with_help(format!(
                        "declare it in the head of the element: `RETURNS ({} TEXT)`",
                        name.name
                    ));
                self.cx.report(with_nearest(diagnostic, name, names));
                given = None;
                continue;
            };
            let value = self.typed(&field.value, element.columns[at].ty);
            given = match (given, value) {
                (Some(mut given), Some(value)) => {
                    given.push((at, value));
                    Some(given)
                }
                _ => None,
            };
        }
        Some(VerdictKind::Reply { fields: given? })
    }
}

/// Checks an optional condition.
fn scope_filter(scope: &mut Scope<'_, '_>, filter: Option<&ast::Expr>) -> Option<Option<Expr>> {
    match filter {
        Some(filter) => scope.condition(filter).map(Some),
        None => Some(None),
    }
}

/// The first read of a row's column in an expression.
fn reads_column(expr: &Expr, row: RowId, column: usize) -> Option<Span> {
    let mut found = None;
    each_expr(expr, &mut |part| {
        if part.kind == (ExprKind::RowColumn { row, column }) {
            found = Some(part.span);
        }
    });
    found
}

/// Whether a block always ends with a verdict.
fn ends_handler(body: &[ast::Stmt]) -> bool {
    body.iter().any(|stmt| match &stmt.kind {
        Ast::Verdict(_) => true,
        Ast::If { arms, otherwise } => {
            otherwise.as_ref().is_some_and(|body| ends_handler(body))
                && arms.iter().all(|arm| ends_handler(&arm.body))
        }
        _ => false,
    })
}

/// Whether a value is exactly a call of `counted`.
fn is_counted(value: &ast::Expr) -> bool {
    matches!(&value.kind, ast::ExprKind::Call { function, .. } if function.name.eq_ignore_ascii_case("counted"))
}

/// Whether a value is the merge operation on its own column, without other reads of the column.
fn is_merge(value: &Expr, merge: Merge, row: RowId, column: usize) -> bool {
    let is_column = |expr: &Expr| expr.kind == ExprKind::RowColumn { row, column };
    let (first, second) = match (&value.kind, merge) {
        (ExprKind::Arith { op: ArithOp::Add, left, right }, Merge::Sum) => (&**left, &**right),
        (ExprKind::Function { function, args }, Merge::Max | Merge::Min) => {
            let wanted = if merge == Merge::Max { Function::Greatest } else { Function::Least };
            let [first, second] = args.as_slice() else { return false };
            if *function != wanted {
                return false;
            }
            (first, second)
        }
        _ => return false,
    };
    let free = |expr: &Expr| reads_column(expr, row, column).is_none();
    (is_column(first) && free(second)) || (is_column(second) && free(first))
}
