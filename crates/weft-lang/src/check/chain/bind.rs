//! Binds the columns of a stage's element to fields, headers, metadata and expressions.

use crate::check::suggest::unknown_layer;
use crate::check::view::FRAME_METAS;
use std::collections::BTreeSet;

use weft_core::Type;
use weft_core::schema::{FieldKind, Presence};

use super::edge::{Edge, in_all_messages, is_value_of_wrapper, no_such_field};
use crate::ast::{self, Ident, Stage, StageArg};
use crate::check::checked::Checked;
use crate::check::suggest::with_nearest;
use crate::check::view::{METAS, View, is_nullable_in_response};
use crate::check::{Cx, binding as expression, header, walk};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Binding, Column, ColumnLocation, Direction, Expr, ExprKind, HandlerKind, Method};
use crate::source::Span;
use crate::types;

/// The bindings of a stage's columns.
pub(in crate::check) struct Bindings {
    /// The location of each column; those of `columns` follow those of the element.
    pub(in crate::check) places: Vec<Binding>,
    /// Columns that expressions read, and that the element does not declare.
    columns: Vec<Column>,
}

impl Bindings {
    /// The element with the additional columns; None if there are none.
    pub(in crate::check) fn specialise(&self, checked: &Checked) -> Option<Checked> {
        let computed: Vec<(usize, &Expr)> = self
            .places
            .iter()
            .enumerate()
            .filter_map(|(at, binding)| match &binding.place {
                ColumnLocation::Computed(expr) => Some((at, &**expr)),
                _ => None,
            })
            .collect();
        (!computed.is_empty()).then(|| expression::specialised(checked, self.columns.clone(), &computed))
    }

    /// Whether all columns are bound to values that are known when the call opens.
    pub(in crate::check) fn all_known_at_open(&self) -> bool {
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
pub(in crate::check) fn bindings(
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
                let found = expression::computed(cx, checked, edge, (column, value), known);
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
        && let Some(&(_, meta, ty, nullable)) = FRAME_METAS.iter().find(|(known, ..)| *known == name.name)
    {
        cx.check_declared(meta, path.span);
        return bound(cx, column, path.span, ColumnLocation::Meta(meta), ty, nullable, None);
    }
    let Some(found) = cx.frame_column(&checked.element.layer, path) else {
        unknown_layer(cx, path);
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
pub(super) fn check_open(cx: &mut Cx<'_>, checked: &Checked, bindings: &[Binding], stage: &Stage) {
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
