//! Checks elements: parameters, columns, declarations, handlers.

use crate::check::checked::Checked;
use crate::check::checked::SinkDestination;
use crate::check::view::OLD;
use weft_core::types::Repr;
use weft_core::{Type, Value};

use super::fold::fold;
use super::scope::{ColumnVisibility, Scope};
use super::table::{self};
use super::walk::{each_expr, each_stmt, exprs_of};
use super::{Cx, effects, frame, header_changes, native, stmt};
use crate::ast::{self, Decl, Event};
use crate::check::suggest::article;
use crate::check::tree::with_length;
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    CallCell, Column, ColumnLocation, Direction, Effects, Element, Expr, ExprKind, FunctionType, Handler,
    HandlerKind, Layer, LocalId, Param, RowId, Sink, SinkColumn, StmtKind, Table, TableColumn, TableRef, Var,
    VerdictKind,
};
use crate::source::Span;
use crate::types;

/// Checks an element; None if this version does not support its layer.
pub(super) fn element(cx: &mut Cx<'_>, shared: &[Table], ast: &ast::Element) -> Option<Checked> {
    let layer = frame::layer(cx, &ast.layer);
    let is_known = layer.is_ok();
    let layer = layer.unwrap_or_else(|stand_in| stand_in);
    let is_packet = layer != Layer::Rpc;
    let had_gaps = cx.has_gaps;
    cx.has_gaps |= ast.is_faulty || !is_known;
    cx.layer_is_missing = !is_known;
    let mut checked = Checked::empty(&ast.name.name, ast.span);
    checked.element.layer = layer;
    let mut n_rand = 0;
    params(cx, &mut checked.element, &ast.params, &mut n_rand);
    let checks = ast.checks.iter();
    let checks: Vec<_> =
        checks.filter_map(|clause| table::param_check(cx, &checked.element, &mut n_rand, clause)).collect();
    checked.element.checks = checks;
    columns(cx, &mut checked.element, &ast.fields, Direction::Request);
    match ast.returns.first() {
        Some(first) if is_packet => {
            let help = "a frame has no response: name all columns after the layer";
            not_in_version(cx, first.span, "RETURNS does not apply to frames", help);
        }
        _ => columns(cx, &mut checked.element, &ast.returns, Direction::Response),
    }
    for decl in &ast.decls {
        declare(cx, &mut checked, shared, decl, &mut n_rand);
    }
    handlers(cx, &mut checked, shared, ast, &mut n_rand);
    mark_column_uses(&mut checked.element);
    cx.has_gaps = had_gaps;
    cx.layer_is_missing = false;
    is_known.then_some(checked)
}

/// Whether this version supports filters of this layer.
pub(super) fn check_filter_layer(cx: &mut Cx<'_>, layer: &ast::Ident) -> Option<()> {
    const LATER: [&str; 11] =
        ["http", "ws", "tcp", "udp", "ip", "eth", "ethernet", "icmp", "quic", "tls", "packet"];
    let name = layer.name.to_ascii_lowercase();
    if name == "rpc" {
        return Some(());
    }
    let message = match LATER.contains(&name.as_str()) || cx.formats.layer(&layer.name, 0).is_some() {
        true => format!("filters on `{name}` are not supported in this version"),
        false => format!("there is no layer `{}`", layer.name),
    };
    let help = "this version supports filters `ON rpc` only";
    cx.refuse(code::LAYER_NOT_IN_VERSION, message, layer.span, "the rest of the filter is not checked", help)
}

/// Checks the parameters of an element and adds them.
pub(super) fn params(cx: &mut Cx<'_>, element: &mut Element, params: &[ast::Param], n_rand: &mut u32) {
    for param in params {
        if let Some(first) = element.params.iter().find(|known| known.name == param.name.name) {
            cx.report_duplicate("parameter", &param.name, first.span);
            continue;
        }
        if let Some(function) = &param.function {
            element.params.push(function_param(cx, param, function));
            continue;
        }
        let known = cx.type_expr(&param.ty);
        let ty = known.unwrap_or(Type::Bool);
        if known.is_none() {
            cx.broken.insert(param.span);
        }
        let default = param.default.as_ref().filter(|_| known.is_some()).and_then(|default| {
            let mut scope = Scope::new(cx, element, &[], View::Constant, n_rand);
            let whose = format!("parameter `{}`", param.name.name);
            let value = scope.value_for(default, ty, param.ty.nullable, &whose)?;
            // A stage may set another parameter, so a default cannot depend on one.
            cx.folded(&value, &[])
        });
        if param.default.is_some() && default.is_none() {
            cx.broken.insert(param.span);
        }
        let (name, nullable) = (param.name.name.clone(), param.ty.nullable);
        element.params.push(Param { name, ty, nullable, function: None, default, span: param.span });
    }
}

/// Checks a parameter that takes a function.
fn function_param(cx: &mut Cx<'_>, param: &ast::Param, function: &ast::FunctionType) -> Param {
    let name = param.name.name.clone();
    let ty = native::function_type(cx, function);
    let default = match (&ty, &param.default) {
        (Some(ty), Some(default)) => native::function_argument(cx, default, ty, &name),
        _ => None,
    };
    if ty.is_none() || param.default.is_some() && default.is_none() {
        cx.broken.insert(param.span);
    }
    let none = FunctionType { params: Vec::new(), returns: Type::Bool, nullable: false };
    let function = Some(ty.unwrap_or(none));
    Param { name, ty: Type::Int(64), nullable: false, function, default, span: param.span }
}

/// Checks the columns of one direction and adds them.
pub(super) fn columns(cx: &mut Cx<'_>, element: &mut Element, fields: &[ast::Field], direction: Direction) {
    for field in fields {
        let is_same = |known: &&Column| known.name == field.name.name && known.direction == direction;
        if let Some(first) = element.columns.iter().find(is_same) {
            cx.report_duplicate("column", &field.name, first.span);
            continue;
        }
        let known = cx.type_expr(&field.ty);
        let mut ty = known.unwrap_or(Type::Bool);
        if known.is_none() {
            cx.broken.insert(field.span);
        }
        if types::without_length(ty) != ty {
            let bare = types::without_length(ty);
            let message = format!("a message column takes no length: `{}` is {bare}", field.name.name);
            let help = format!("write `{} {bare}`", field.name.name);
            cx.fault(code::LENGTH_NEEDED, message, field.ty.span, "the sender decides how long it is", help);
            ty = bare;
        }
        element.columns.push(Column {
            name: field.name.name.clone(),
            ty,
            nullable: field.ty.nullable,
            direction,
            read: false,
            written: false,
            replied: false,
            span: field.span,
        });
    }
}

/// Checks a declaration of an element and adds it.
fn declare(cx: &mut Cx<'_>, checked: &mut Checked, shared: &[Table], decl: &Decl, n_rand: &mut u32) {
    let element = &mut checked.element;
    match decl {
        Decl::Table(decl) => {
            let taken = declared_at(element, &decl.name.name);
            if let Some(first) = taken {
                return cx.report_duplicate("declaration", &decl.name, first);
            }
            let (table, bounds) = table::table(cx, element, n_rand, decl);
            if let (true, Err((message, span))) = (element.params.is_empty(), table::limits(&bounds, &[])) {
                cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(span, "outside the limits"));
            }
            element.tables.push(table);
            checked.bounds.push(bounds);
        }
        Decl::Var(decl) => {
            if let Some(first) = declared_at(element, &decl.name.name) {
                return cx.report_duplicate("declaration", &decl.name, first);
            }
            let var = var(cx, element, decl, n_rand);
            element.vars.push(var);
        }
        Decl::Call(decl) if element.layer != Layer::Rpc => {
            let help = "a frame has no later events: use LET, or a TABLE";
            not_in_version(cx, decl.span, "CALL columns do not apply to frames", help);
            cx.has_gaps = true;
        }
        Decl::Call(decl) => {
            for column in &decl.columns {
                if let Some(first) = declared_at(element, &column.name.name) {
                    cx.report_duplicate("declaration", &column.name, first);
                    continue;
                }
                let cell = call_cell(cx, element, column, n_rand);
                element.call.push(cell);
            }
        }
        Decl::Sink(decl) => {
            if let Some(first) = declared_at(element, &decl.name.name) {
                return cx.report_duplicate("declaration", &decl.name, first);
            }
            let (sink, target) = sink(cx, element, shared, decl, n_rand);
            element.sinks.push(sink);
            checked.targets.push(target);
        }
        Decl::Sketch(decl) => {
            let help = "count in a `TABLE`, or in a `VAR ... MERGE SUM`";
            not_in_version(cx, decl.span, "sketches are not supported in this version", help);
            cx.has_gaps = true;
        }
        Decl::Edge(decl) if element.layer == Layer::Rpc => {
            let help = "use `REDIRECT TO` to choose the destination of a call";
            not_in_version(cx, decl.span, "edges are for frames only", help);
            cx.has_gaps = true;
        }
        Decl::Edge(decl) => {
            let name = &decl.name;
            if let Some((_, first)) = element.edges.iter().find(|(known, _)| *known == name.name) {
                return cx.report_duplicate("edge", name, *first);
            }
            element.edges.push((name.name.clone(), decl.span));
        }
    }
}

/// The declaration of a name, if any. Tables, sinks, variables and call columns share one namespace.
fn declared_at(element: &Element, name: &str) -> Option<Span> {
    let tables = element.tables.iter().map(|table| (&table.name, table.span));
    let vars = element.vars.iter().map(|var| (&var.name, var.span));
    let cells = element.call.iter().map(|cell| (&cell.name, cell.span));
    let sinks = element.sinks.iter().map(|sink| (&sink.name, sink.span));
    let mut all = tables.chain(vars).chain(cells).chain(sinks);
    all.find(|(known, _)| *known == name).map(|(_, span)| span)
}

/// Checks a variable: one machine word that is not NULL.
fn var(cx: &mut Cx<'_>, element: &Element, decl: &ast::Var, n_rand: &mut u32) -> Var {
    let known = cx.type_expr(&decl.ty);
    let ty = known.unwrap_or(Type::Bool);
    let fault = match known {
        None => None,
        Some(ty) if ty.repr() == Repr::Bytes => {
            Some((format!("a variable holds one machine word, but {ty} is larger"), "keep it in a TABLE"))
        }
        Some(_) if decl.ty.nullable => {
            Some(("a variable cannot be NULL".to_owned(), "remove the `?`, or keep it in a TABLE"))
        }
        Some(ty) if decl.merge.is_some() && !types::is_integer(ty) => Some((
            format!("only integers can be merged; this is {}", article(ty)),
            "count in whole units (bytes, microseconds)",
        )),
        Some(_) => None,
    };
    if let Some((message, help)) = &fault {
        let code = if decl.merge.is_some() { code::MERGE_MISUSE } else { code::TYPE_MISMATCH };
        cx.report(
            Diagnostic::error(code, message.clone())
                .at(decl.ty.span, "type cannot be merged")
                .with_help(*help),
        );
    }
    if known.is_none() || fault.is_some() {
        cx.broken.insert(decl.span);
    }
    let start = decl.initial.as_ref().filter(|_| known.is_some()).and_then(|initial| {
        let mut scope = Scope::new(cx, element, &[], View::Constant, n_rand);
        let whose = format!("`{}`", decl.name.name);
        scope.value_for(initial, ty, false, &whose)
    });
    let merge = decl.merge.map(|clause| clause.merge);
    Var { name: decl.name.name.clone(), ty, start, merge, span: decl.span }
}

/// Checks a column of the CALL row, which is not NULL.
fn call_cell(cx: &mut Cx<'_>, element: &Element, column: &ast::Param, n_rand: &mut u32) -> CallCell {
    let name = column.name.name.clone();
    let ty = cx.stored_type(&column.ty, column.span, &name);
    if column.ty.nullable {
        let message = format!("CALL column `{name}` cannot be NULL");
        let help = "remove the `?`; the initial value is 0, FALSE or '' unless `= ...` sets one";
        cx.fault(code::TYPE_MISMATCH, message, column.ty.span, "cannot be NULL", help);
    }
    let start = column.default.as_ref().filter(|_| !cx.is_broken(column.span)).and_then(|default| {
        let mut scope = Scope::new(cx, element, &[], View::Start, n_rand);
        let whose = format!("CALL column `{name}`");
        scope.value_for(default, ty, false, &whose)
    });
    CallCell { name, ty, start, span: column.span }
}

/// Whether a table accepts the rows of a sink: the controller fills it, and the sink has the key columns and, if it
/// inserts rows, all columns without a constant default. Reports an error otherwise.
fn accepts_rows(
    cx: &mut Cx<'_>,
    table: &Table,
    name: &ast::Ident,
    decl: &ast::Sink,
    columns: &[SinkColumn],
    deletes: bool,
) -> bool {
    let wrong = |message: String, at: Span, label: &str, help: String| {
        Diagnostic::error(code::SINK_MISMATCH, message)
            .at(at, label)
            .with_label(table.span, "declared here")
            .with_help(help)
    };
    if table.filled != Some(ast::Filler::Controller) {
        let help = "write it in the handler: `INSERT INTO`, `UPSERT`, `DELETE FROM`".to_owned();
        let message =
            format!("a sink sends rows to the controller, but the controller does not fill `{}`", table.name);
        let diagnostic = wrong(message, name.span, "not FILLED BY CONTROLLER", help);
        cx.report_unless_broken(table.span, diagnostic);
        return false;
    }
    let taken = if deletes { &table.columns[..table.n_keys] } else { &table.columns[..] };
    let names = || taken.iter().map(|column| column.name.as_str()).collect::<Vec<_>>().join(", ");
    for (column, written) in columns.iter().zip(&decl.columns) {
        let Some(known) = taken.iter().find(|known| known.name == column.name) else {
            let what = if deletes { "key column" } else { "column" };
            let message = format!("`{}` has no {what} `{}`", table.name, column.name);
            let diagnostic =
                wrong(message, written.name.span, "unknown column", format!("it has: {}", names()));
            cx.report_unless_broken(table.span, diagnostic);
            return false;
        };
        if !is_same_but_length(known.ty, column.ty) {
            let message = format!("`{}` is {} in `{}`", column.name, article(known.ty), table.name);
            let help = format!("write `{} {}`", column.name, known.ty);
            let diagnostic = wrong(message, written.ty.span, "another type", help);
            cx.report_unless_broken(decl.span, diagnostic);
            return false;
        }
    }
    let has_value = |at: usize, column: &TableColumn| {
        let default = column.default.as_ref().filter(|_| at >= table.n_keys);
        columns.iter().any(|known| known.name == column.name)
            || default.is_some_and(|value| fold(value, &[]).is_ok())
    };
    let lacks = taken.iter().enumerate().find(|(at, column)| !has_value(*at, column));
    if let Some((_, lacking)) = lacks {
        let message = format!("a row of `{}` has no value for `{}`", table.name, lacking.name);
        let help = format!("add `{} {}` to the sink", lacking.name, lacking.ty);
        cx.report_unless_broken(table.span, wrong(message, decl.name.span, "does not give it", help));
        return false;
    }
    true
}

fn is_same_but_length(a: Type, b: Type) -> bool {
    matches!((a, b), (Type::Text(_), Type::Text(_)) | (Type::Bytes(_), Type::Bytes(_))) || a == b
}

/// Checks a sink. Returns it with the destination, which may depend on parameters.
fn sink(
    cx: &mut Cx<'_>,
    element: &Element,
    shared: &[Table],
    decl: &ast::Sink,
    n_rand: &mut u32,
) -> (Sink, SinkDestination) {
    let mut columns: Vec<SinkColumn> = Vec::new();
    for column in &decl.columns {
        if columns.iter().any(|known| known.name == column.name.name) {
            let first = decl.columns.iter().find(|known| known.name.name == column.name.name);
            cx.report_duplicate("column", &column.name, first.map_or(decl.span, |first| first.span));
            continue;
        }
        let ty = cx.type_expr(&column.ty);
        if ty.is_none() {
            cx.broken.insert(decl.span);
        }
        columns.push(SinkColumn { name: column.name.name.clone(), ty: ty.unwrap_or(Type::Text(None)) });
    }
    let target = match &decl.target {
        ast::SinkTarget::Stdout => SinkDestination::Stdout,
        ast::SinkTarget::Metrics => SinkDestination::Metrics,
        ast::SinkTarget::File(path) => {
            let mut scope = Scope::new(cx, element, &[], View::Constant, n_rand);
            SinkDestination::File(scope.value_for(path, Type::Text(None), false, "a file's path"))
        }
        ast::SinkTarget::Table { name, deletes } => {
            let mut scope = Scope::new(cx, element, shared, View::Constant, n_rand);
            let found = scope.table_ref(name);
            let table = found.filter(|found| {
                let table = match found {
                    TableRef::Own(at) => &element.tables[*at],
                    TableRef::Shared(at) => &shared[*at],
                };
                accepts_rows(cx, table, name, decl, &columns, *deletes)
            });
            SinkDestination::Table { table, deletes: *deletes }
        }
    };
    let format = decl.format.map_or(ast::SinkFormat::Json, |clause| clause.format);
    (Sink { name: decl.name.name.clone(), columns, format, span: decl.span }, target)
}

/// Checks the handlers of an element and adds them.
fn handlers(cx: &mut Cx<'_>, checked: &mut Checked, shared: &[Table], ast: &ast::Element, n_rand: &mut u32) {
    for handler in &ast.handlers {
        let is_packet = checked.element.layer != Layer::Rpc;
        let kind = match &handler.event {
            Event::Packet if is_packet => HandlerKind::Request,
            Event::Open | Event::Request | Event::Response | Event::Close if is_packet => {
                let help =
                    "an element on frames has ON PACKET, ERROR, EVERY, TIMEOUT and EVICT: write `ON PACKET`";
                not_in_version(cx, handler.event_span, "this handler does not apply to frames", help);
                continue;
            }
            Event::Open => HandlerKind::Open,
            Event::Request => HandlerKind::Request,
            Event::Response => HandlerKind::Response,
            Event::Close => HandlerKind::Close,
            Event::Error => HandlerKind::Error,
            Event::Every(_) => HandlerKind::Every,
            Event::Timeout(_) => HandlerKind::Timeout,
            Event::Evict(_) => HandlerKind::Evict,
            Event::Message | Event::Packet | Event::Signal { .. } => {
                let (message, help) = match is_packet {
                    true => (
                        "this handler is not supported for frames in this version",
                        "an element on frames has ON PACKET, ERROR, EVERY, TIMEOUT and EVICT",
                    ),
                    false => (
                        "this handler is not supported for rpc in this version",
                        "an element on rpc has ON OPEN, REQUEST, RESPONSE, CLOSE, ERROR, EVERY, TIMEOUT and EVICT",
                    ),
                };
                not_in_version(cx, handler.event_span, message, help);
                continue;
            }
        };
        if let Event::Every(interval) = &handler.event {
            let mut scope = Scope::new(cx, &checked.element, &[], View::Constant, n_rand);
            let interval = scope.value_for(interval, Type::Interval, false, "an interval");
            checked.every.push(interval);
        }
        let old = match &handler.event {
            Event::Timeout(name) | Event::Evict(name) => {
                match removal_table(cx, checked, shared, kind, name, handler) {
                    Some(table) => Some(table),
                    None => continue,
                }
            }
            _ => None,
        };
        let (done, frames) = self::handler(cx, checked, shared, (kind, old), handler, n_rand);
        frame::declare(&mut checked.element, &mut checked.frames, frames);
        let all = &mut checked.element.handlers;
        let slot = match kind {
            HandlerKind::Open => &mut all.open,
            HandlerKind::Request => &mut all.request,
            HandlerKind::Response => &mut all.response,
            HandlerKind::Close => &mut all.close,
            HandlerKind::Error => &mut all.error,
            HandlerKind::Every => {
                all.every.push(done);
                continue;
            }
            HandlerKind::Timeout | HandlerKind::Evict => {
                all.timeouts.push(done);
                continue;
            }
        };
        if let Some(first) = slot {
            let diagnostic = Diagnostic::error(
                code::REPEATED_HANDLER,
                format!("there are two {} handlers", View::Handler(kind).words()),
            )
            .at(handler.event_span, "the second")
            .with_label(Span { end: first.span.start + handler.event_span.len(), ..first.span }, "the first")
            .with_help("merge the two handlers");
            cx.report(diagnostic);
            continue;
        }
        *slot = Some(done);
    }
}

/// Finds the table of an `ON TIMEOUT OF` or `ON EVICT OF`; reports a table whose rows are not removed that way, and a
/// second handler.
fn removal_table(
    cx: &mut Cx<'_>,
    checked: &Checked,
    shared: &[Table],
    kind: HandlerKind,
    name: &ast::Ident,
    handler: &ast::Handler,
) -> Option<TableRef> {
    let (element, event_span, words) = (&checked.element, handler.event_span, View::Handler(kind).words());
    let Some(at) = element.tables.iter().position(|table| table.name == name.name) else {
        let mut n_rand = 0;
        let mut scope = Scope::new(cx, element, shared, View::Handler(kind), &mut n_rand);
        scope.table_ref(name)?;
        let help = "declare the table in the element";
        let message = format!("{words} supports only the element's own tables in this version");
        not_in_version(cx, name.span, &message, help);
        return None;
    };
    let (table, old) = (&element.tables[at], TableRef::Own(at));
    let of_old = |other: &&Handler| other.kind == kind && other.rows[RowId::OLD.0].table == old;
    if let Some(first) = element.handlers.timeouts.iter().find(of_old) {
        let message = format!("there are two {words} OF `{}` handlers", table.name);
        return Diagnostic::error(code::REPEATED_HANDLER, message)
            .at(event_span, "the second")
            .with_label(Span { end: first.span.start + event_span.len(), ..first.span }, "the first")
            .with_help("merge the two handlers")
            .refuse(cx);
    }
    if table.per_worker {
        let help = "remove PER WORKER";
        let message = format!("{words} does not support PER WORKER tables in this version");
        not_in_version(cx, name.span, &message, help);
        return None;
    }
    if let Some(filler) = table.filled.filter(|_| checked.bounds[at].expires()) {
        let message = format!("{words} does not support tables {} in this version", filler.clause());
        not_in_version(cx, name.span, &message, "use a table that handlers write");
        return None;
    }
    let never = match kind {
        HandlerKind::Evict => matches!(table.evict, None | Some(ast::Evict::Reject)).then_some((
            "are never evicted",
            "rows never leave",
            "add an eviction policy: `EVICT OLDEST`",
        )),
        _ => (!checked.bounds[at].expires()).then_some((
            "never expire",
            "has no TTL",
            "add a lifetime: `TTL '60 s'`",
        )),
    };
    if let Some((never, what, help)) = never {
        let diagnostic = Diagnostic::error(code::NEVER_EXPIRES, format!("rows of `{}` {never}", table.name))
            .at(name.span, what)
            .with_label(table.span, "declared here")
            .with_help(help);
        cx.report_unless_broken(table.span, diagnostic);
        return None;
    }
    Some(old)
}

/// Checks a handler; its kind comes with the table of the removed row.
fn handler(
    cx: &mut Cx<'_>,
    checked: &Checked,
    shared: &[Table],
    (kind, old): (HandlerKind, Option<TableRef>),
    ast: &ast::Handler,
    n_rand: &mut u32,
) -> (Handler, Vec<(Column, ColumnLocation)>) {
    let element = &checked.element;
    let mut scope = Scope::new(cx, element, shared, View::Handler(kind), n_rand);
    if let Some(old) = old {
        let row = scope.rows.add(old, false);
        scope.rows.show(OLD, row, ColumnVisibility::Hidden);
    }
    let body = stmt::block(&mut scope, &ast.body);
    let (locals, rows, frames) = scope.into_parts();
    let mut handler = Handler { kind, body, locals, rows, effects: Effects::default(), span: ast.span };
    handler.effects = effects::of(&handler);
    header_changes::check_stale_reads(cx, checked, &frames, &handler.body);
    check_returned(cx, element, &handler);
    (handler, frames)
}

/// Reports an unused name from RETURNING: it is most likely a misspelled CALL column.
fn check_returned(cx: &mut Cx<'_>, element: &Element, handler: &Handler) {
    let returned = std::mem::take(&mut cx.returned);
    for (local, name) in returned {
        if reads_local(handler, local) || cx.has_errors() {
            continue;
        }
        let ty = with_length(handler.locals[local.0].ty);
        let message = format!("nothing reads `{}`", name.name);
        let diagnostic = Diagnostic::warning(code::UNUSED_NAME, message)
            .at(name.span, "this name ends with the handler")
            .with_help(format!(
                "to keep the value for ON RESPONSE, declare a CALL column: `CALL ({} {ty})`",
                name.name
            ));
        let known = element.call.iter().map(|cell| cell.name.as_str());
        cx.report(crate::check::suggest::with_nearest(diagnostic, &name, known));
    }
}

/// Whether a handler reads this local.
fn reads_local(handler: &Handler, local: LocalId) -> bool {
    let mut found = false;
    each_stmt(&handler.body, &mut |stmt| {
        for expr in exprs_of(stmt) {
            each_expr(expr, &mut |part| found |= part.kind == ExprKind::Local(local));
        }
    });
    found
}

/// Marks each column of an element as read, written or replied, from the effects of its handlers.
pub(super) fn mark_column_uses(element: &mut Element) {
    let mut replied = Vec::new();
    for handler in element.handlers.iter() {
        each_stmt(&handler.body, &mut |stmt| {
            if let StmtKind::Verdict(verdict) | StmtKind::Guard { otherwise: verdict, .. } = &stmt.kind
                && let VerdictKind::Reply { fields } = &verdict.kind
            {
                replied.extend(fields.iter().map(|(at, _)| *at));
            }
        });
    }
    let effects: Vec<Effects> = element.handlers.iter().map(|handler| handler.effects.clone()).collect();
    for (at, column) in element.columns.iter_mut().enumerate() {
        column.read = effects.iter().any(|effects| effects.columns_read.contains(&at));
        column.written = effects.iter().any(|effects| effects.columns_written.contains(&at));
        column.replied = replied.contains(&at);
    }
}

/// The interval of an `ON EVERY`, given the parameters' values.
pub(super) fn interval(expr: &Expr, params: &[Value]) -> Result<weft_core::Interval, String> {
    match fold(expr, params) {
        Ok(Value::Int(nanos)) if nanos > 0 => Ok(weft_core::Interval(nanos)),
        Ok(_) => Err("an interval must be greater than zero".to_owned()),
        Err(_) => Err("this interval is not a constant".to_owned()),
    }
}

fn not_in_version(cx: &mut Cx<'_>, span: Span, message: &str, help: &str) {
    cx.report(Diagnostic::error(code::NOT_IN_VERSION, message).at(span, "ignored").with_help(help));
}
