//! Checks column bindings to expressions instead of fields: `tenant := coalesce(header.tenant, user)`.
//!
//! Names are resolved in the chain's messages, not in the element. Message fields that the expression reads become
//! additional columns after the element's own, and the stage gets a specialised copy of the element with them.

use crate::check::scope::BindingContext;
use crate::check::scope::ListElement;
use crate::check::scope::Lists;
use std::collections::BTreeSet;

use weft_core::limits::LIST_ELEMENTS_MAX;
use weft_core::list::EntryKey;
use weft_core::schema::{Field, FieldKind, Presence};
use weft_core::{Status, Type, Value};

use super::Cx;
use super::chain::edge::{self, Edge};
use super::expr::Environment;
use super::new_columns::NewColumns;
use super::scope::Scope;
use super::{effects, header, query};
use crate::ast::{self, ListForm, Path};
use crate::check::checked::Checked;
use crate::check::tree::leaf;
use crate::check::tree::{compound, constant};
use crate::check::view::View;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Column, ColumnLocation, Direction, Element, Expr, ExprKind, HandlerKind, ListLocation};
use crate::source::Span;
use crate::types;

/// An expression and the columns that it reads.
pub(super) type Computed = (Expr, Vec<(Column, ColumnLocation)>);

/// Checks the expression bound to a column; `known` are the columns that other bindings of the stage have declared.
pub(super) fn computed(
    cx: &mut Cx<'_>,
    checked: &Checked,
    edge: &Edge<'_>,
    (column, value): (&Column, &ast::Expr),
    known: Vec<(Column, ColumnLocation)>,
) -> Option<Computed> {
    let mut element = Element::empty("", value.span);
    element.layer = checked.element.layer.clone();
    let kind = match column.direction {
        Direction::Request => HandlerKind::Request,
        Direction::Response => HandlerKind::Response,
    };
    let mut n_rand = 0;
    let mut scope = Scope::new(cx, &element, &[], View::Handler(kind), &mut n_rand);
    scope.new_columns = NewColumns::after(checked.element.columns.len(), known);
    scope.bound = Some(BindingContext { edge, column, item: None });
    let whose = format!("column `{}`", column.name);
    let expr = scope.value_for(value, column.ty, column.nullable || !column.read, &whose)?;
    let (.., columns) = scope.into_parts();
    if column.written || column.replied {
        let message = format!("column `{}` cannot be bound to this", column.name);
        return Diagnostic::error(code::FIELD_NOT_BINDABLE, message)
            .at(value.span, "computed, but the element writes the column")
            .with_label(column.span, "declared here")
            .with_help("bind the column to a single field: `column := req.field`")
            .refuse(cx);
    }
    Some((expr, columns))
}

/// The specialised copy of `checked` for a stage whose bindings declare these additional columns; `computed` are the
/// columns bound to expressions.
pub(super) fn specialised(checked: &Checked, columns: Vec<Column>, computed: &[(usize, &Expr)]) -> Checked {
    let mut checked = checked.clone();
    checked.element.columns.extend(columns);
    for handler in checked.element.handlers.iter_mut() {
        effects::add_computed(handler, computed);
    }
    let read: Vec<usize> =
        checked.element.handlers.iter().flat_map(|handler| handler.effects.columns_read.clone()).collect();
    for at in read {
        checked.element.columns[at].read = true;
    }
    checked
}

impl<'a> Scope<'a, '_> {
    /// The binding of a column of a chain on calls, if one is checked.
    fn message_binding(&self) -> Option<&BindingContext<'a>> {
        self.bound.as_ref().filter(|bound| !bound.edge.is_packet)
    }
}

/// Resolves a path in a binding of a chain on calls; None in other contexts. The inner None is a reported error.
pub(super) fn bound_path(scope: &mut Scope<'_, '_>, path: &Path) -> Option<Option<Expr>> {
    let bound = scope.message_binding()?;
    if bound.is_of_item(path) {
        return Some(member(scope, path));
    }
    let (edge, direction) = (bound.edge, bound.column.direction);
    if let [first, name] = path.segments.as_slice()
        && first.name == "header"
    {
        let name = header::name(scope.cx, &name.name, name.span);
        return Some(name.map(|name| leaf(ExprKind::Header(name), Type::Text(None), true, path.span)));
    }
    if let [name] = path.segments.as_slice()
        && !edge::in_all_messages(scope.cx, edge, direction, &name.name)
    {
        if let Some(found) = scope.read_meta(name) {
            return Some(Some(found));
        }
        if let Some(status) = Status::from_name(&name.name) {
            let value = Value::Int(status.code().into());
            return Some(Some(constant(value, Type::Status, name.span)));
        }
    }
    Some(bound_field(scope, path))
}

/// Resolves a path to a field of the message.
fn bound_field(scope: &mut Scope<'_, '_>, path: &Path) -> Option<Expr> {
    let (bound, cx) = (scope.bound.as_ref()?, &mut *scope.cx);
    let (names, ty, nullable) = bound.field(cx, path)?;
    let at =
        bound.declare(&mut scope.new_columns, &path.to_dotted(), (ty, nullable), ColumnLocation::Body(names));
    Some(leaf(ExprKind::Column(at), ty, nullable, path.span))
}

/// Resolves a path to a field of the list element.
fn member(scope: &mut Scope<'_, '_>, path: &Path) -> Option<Expr> {
    let (at, ty, nullable) = scope.bound.as_mut()?.member(scope.cx, &path.segments[1..], path.span)?;
    Some(leaf(ExprKind::Member(at), ty, nullable, path.span))
}

/// `present(req.filter)` in a binding: whether a message or field is set, here or in a list element. None in other
/// contexts.
pub(super) fn bound_present(scope: &mut Scope<'_, '_>, path: &Path, span: Span) -> Option<Option<Expr>> {
    let is_of_item = scope.message_binding()?.is_of_item(path);
    Some(if is_of_item {
        member(scope, path).and_then(|value| is_not_null(scope, value, path, span))
    } else {
        presence(scope, path, span)
    })
}

/// Checks `present(path)` for a message or field of the message.
fn presence(scope: &mut Scope<'_, '_>, path: &Path, span: Span) -> Option<Expr> {
    let (bound, cx) = (scope.bound.as_ref()?, &mut *scope.cx);
    if let Some(names) = bound.message_at(cx, path)? {
        let name = format!("present({})", path.to_dotted());
        let place = ColumnLocation::Present(names);
        let at = bound.declare(&mut scope.new_columns, &name, (Type::Bool, false), place);
        return Some(leaf(ExprKind::Column(at), Type::Bool, false, span));
    }
    let value = bound_field(scope, path)?;
    is_not_null(scope, value, path, span)
}

/// Whether a value is not NULL; the value must be nullable.
fn is_not_null(scope: &mut Scope<'_, '_>, value: Expr, path: &Path, span: Span) -> Option<Expr> {
    if !value.nullable {
        let message = format!("the message does not record whether `{}` is set", path.to_dotted());
        return Diagnostic::error(code::BAD_ARGUMENTS, message)
            .at(path.span, "reads as its default when absent")
            .with_help(
                "declare the field `optional` in the .proto file, or compare it with its default value",
            )
            .refuse(scope.cx);
    }
    let is_null = compound(ExprKind::IsNull(value.into()), Type::Bool, span);
    let is_null = Expr { nullable: false, ..is_null };
    Some(compound(ExprKind::Not(is_null.into()), Type::Bool, span))
}

/// Checks the value of a map entry: `req.labels['team']`.
pub(super) fn entry(scope: &mut Scope<'_, '_>, path: &Path, key: &ast::Expr, span: Span) -> Option<Expr> {
    if scope.message_binding().is_none() {
        return no_list_here(scope, path.span);
    }
    let (names, ty, of_key) = scope.bound.as_ref()?.map_at(scope.cx, path)?;
    let wanted = match scope.typed(key, of_key)?.kind {
        ExprKind::Const(Value::Bytes(text)) => EntryKey::Text(String::from_utf8_lossy(&text).into_owned()),
        ExprKind::Const(Value::Int(n)) => EntryKey::Number(n as u64),
        ExprKind::Const(Value::Bool(b)) => EntryKey::Number(b.into()),
        _ => {
            return scope
                .not_constant(key.span, "write the key of a map entry as a literal: `req.labels['team']`");
        }
    };
    let name = format!("{}[{}]", path.to_dotted(), scope.cx.sources.slice(key.span));
    let place = ColumnLocation::Entry(names, wanted);
    let at = scope.bound.as_ref()?.declare(&mut scope.new_columns, &name, (ty, true), place);
    Some(leaf(ExprKind::Column(at), ty, true, span))
}

/// Checks `ANY(l IN req.lines WHERE l.qty > 10 MAX 100)`, `ALL` or `COUNT`.
pub(super) fn list_expr(scope: &mut Scope<'_, '_>, look: &ast::ListExpr, span: Span) -> Option<Expr> {
    let Some(bound) = scope.message_binding() else {
        return no_list_here(scope, look.list.span);
    };
    if bound.item.is_some() {
        return Diagnostic::error(code::LIST_IN_LIST, "a list expression cannot be nested in another")
            .at(span, "runs for each element of the outer list")
            .with_help("bind it to a column of its own, and combine the two columns in the element")
            .refuse(scope.cx);
    }
    let path = &look.list;
    let (names, lists) = scope.bound.as_ref()?.list_at(scope.cx, path)?;
    let max =
        query::bound_of(scope, &look.elements_max, ("ANY, ALL or COUNT", "elements"), LIST_ELEMENTS_MAX);
    scope.bound.as_mut()?.item =
        Some(ListElement { name: look.item.name.clone(), lists, members: Vec::new() });
    let filter = look.filter.as_ref().map(|filter| scope.condition(filter));
    let item = scope.bound.as_mut()?.item.take()?;
    let (filter, elements_max) = (filter.map_or(Some(None), |filter| filter.map(Some))?, max?);
    let members: Vec<Vec<String>> = item.members.iter().map(|(path, ..)| path.clone()).collect();
    let shown: Vec<String> = members.iter().map(|member| member.join(".")).collect();
    let name = format!("{} ({}) MAX {elements_max}", path.to_dotted(), shown.join(", "));
    let place = ColumnLocation::List(ListLocation { path: names, members, elements_max });
    let bound = scope.bound.as_ref()?;
    let list = bound.declare(&mut scope.new_columns, &name, (Type::Bytes(None), false), place);
    let ty = if look.form == ListForm::Count { Type::Int(64) } else { Type::Bool };
    let kind = ExprKind::List { form: look.form, list, elements_max, filter: filter.map(Box::new) };
    Some(Expr { kind, ty, nullable: false, fallible: true, span })
}

/// Rejects a function that returns a new value on each call.
pub(super) fn draws<T>(scope: &mut Scope<'_, '_>, name: &str, span: Span) -> Option<T> {
    let message = format!("`{name}` returns a new value on each call, but a column has one value");
    scope.cx.refuse(code::BINDING_DRAWS, message, span, "not allowed in a binding", "call it in the element")
}

/// Reports a list expression outside of a binding.
fn no_list_here<T>(scope: &mut Scope<'_, '_>, span: Span) -> Option<T> {
    let message = "a list can only be read in a stage's binding";
    Diagnostic::error(code::LIST_NOT_HERE, message)
        .at(span, "no message is available here")
        .with_help(
            "declare a column, and bind it in the chain: `acl (big := ANY(l IN req.lines WHERE l.qty > 9 MAX 99))`",
        ).refuse(scope.cx)
}

impl BindingContext<'_> {
    /// Whether a path begins with the element of the list expression.
    fn is_of_item(&self, path: &Path) -> bool {
        self.item.as_ref().is_some_and(|item| item.name == path.segments[0].name)
    }

    /// The field at a path of the message, its type, and whether it is nullable.
    fn field(&self, cx: &mut Cx<'_>, path: &Path) -> Option<(Vec<String>, Type, bool)> {
        let names = self.names_of(cx, path)?;
        let found = self.each_message(cx, path.span, |cx, method, message| {
            let field = self.field_at(cx, (method, message), &names, path.span)?;
            self.value_of(cx, field, &names.join("."), path.span)
        })?;
        let (ty, nullable) = common_type(cx, &found, path.span)?;
        Some((names, ty, nullable))
    }

    /// The path of a message in the message. The inner None: it is another field.
    fn message_at(&self, cx: &mut Cx<'_>, path: &Path) -> Option<Option<Vec<String>>> {
        let names = self.names_of(cx, path)?;
        let are_messages = self.each_message(cx, path.span, |cx, method, message| {
            let field = self.field_at(cx, (method, message), &names, path.span)?;
            match field.presence {
                Presence::Repeated => self.is_a_list(cx, &names.join("."), path.span),
                _ => Some(matches!(field.kind, FieldKind::Message(_))),
            }
        })?;
        Some(are_messages.iter().all(|is_message| *is_message).then_some(names))
    }

    /// The map at a path of the message, the type of its values, and that of its keys.
    fn map_at(&self, cx: &mut Cx<'_>, path: &Path) -> Option<(Vec<String>, Type, Type)> {
        let names = self.names_of(cx, path)?;
        let found = self.each_message(cx, path.span, |cx, method, message| {
            let field = self.field_at(cx, (method, message), &names, path.span)?;
            let schema = cx.schema;
            let entry = match field.kind {
                FieldKind::Message(inner) => Some(&schema.messages[inner]),
                _ => None,
            };
            let Some(entry) = entry.filter(|entry| entry.is_map_entry) else {
                return is_no_list(cx, &names.join("."), "not a map", path.span);
            };
            let (of_key, of_value) = (entry.field("key")?, entry.field("value")?);
            let (ty, _) = self.value_of(cx, of_value, &format!("{}[...]", names.join(".")), path.span)?;
            Some(((ty, true), (types::of_field(of_key.kind)?, false)))
        })?;
        let (values, keys): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        let ((ty, _), (of_key, _)) =
            (common_type(cx, &values, path.span)?, common_type(cx, &keys, path.span)?);
        Some((names, ty, of_key))
    }

    /// The list at a path of the message, and its elements: the method, and the type.
    fn list_at(&self, cx: &mut Cx<'_>, path: &Path) -> Option<(Vec<String>, Lists)> {
        let names = self.names_of(cx, path)?;
        let lists = self.each_message(cx, path.span, |cx, method, message| {
            let field = self.field_at(cx, (method, message), &names, path.span)?;
            match field.presence {
                Presence::Repeated => Some((method, field.kind)),
                _ => is_no_list(cx, &names.join("."), "not repeated", path.span),
            }
        })?;
        Some((names, lists))
    }

    /// Resolves a path to a field of the list element.
    fn member(&mut self, cx: &mut Cx<'_>, path: &[ast::Ident], span: Span) -> Option<(usize, Type, bool)> {
        let names: Vec<String> = path.iter().map(|name| name.name.clone()).collect();
        let mut found = Vec::new();
        for &(method, kind) in &self.item.as_ref()?.lists {
            found.push(match (kind, names.as_slice()) {
                (FieldKind::Message(message), [_, ..]) => {
                    let field = self.field_at(cx, (method, message), &names, span)?;
                    let (ty, nullable) = self.value_of(cx, field, &names.join("."), span)?;
                    // A map entry without a key or a value has the default.
                    let is_of_entry = cx.schema.messages[message].is_map_entry && names.len() == 1;
                    (ty, nullable && !is_of_entry)
                }
                (kind, []) => match types::of_field(kind) {
                    Some(ty) => (ty, false),
                    None => return is_a_message(cx, "an element of the list", span),
                },
                _ => {
                    let message = "the elements of this list are plain values without fields";
                    let help = "write the element's name alone";
                    return cx.refuse(code::NO_SUCH_FIELD, message, span, "not a message", help);
                }
            });
        }
        let (ty, nullable) = common_type(cx, &found, span)?;
        let members = &mut self.item.as_mut()?.members;
        let at = members.iter().position(|(known, ..)| *known == names).unwrap_or_else(|| {
            members.push((names, ty, nullable));
            members.len() - 1
        });
        Some((at, ty, nullable))
    }

    /// The type of a non-repeated field, and whether it may be absent.
    fn value_of(&self, cx: &mut Cx<'_>, field: &Field, dotted: &str, span: Span) -> Option<(Type, bool)> {
        match (field.presence, types::of_field(field.kind)) {
            (Presence::Repeated, _) => self.is_a_list(cx, dotted, span),
            (_, None) => is_a_message(cx, dotted, span),
            (presence, Some(ty)) => Some((ty, presence == Presence::Explicit)),
        }
    }

    /// Returns the path within the message, without `req` or `resp`; reports a path into the other direction's
    /// message.
    fn names_of(&self, cx: &mut Cx<'_>, path: &Path) -> Option<Vec<String>> {
        let mut names: Vec<String> = path.segments.iter().map(|segment| segment.name.clone()).collect();
        let direction = match names[0].as_str() {
            "req" if names.len() > 1 => Some(Direction::Request),
            "resp" if names.len() > 1 => Some(Direction::Response),
            _ => None,
        };
        let Some(direction) = direction else { return Some(names) };
        if direction != self.column.direction {
            let (this, message) = match self.column.direction {
                Direction::Request => ("request", "`resp` is not available while a request is handled"),
                Direction::Response => ("response", "`req` is not available while a response is handled"),
            };
            return Diagnostic::error(code::NAME_NOT_HERE, message)
                .at(path.span, "belongs to the other message")
                .with_label(self.column.span, format!("a column of the {this}"))
                .with_help("save it in a CALL column of the element")
                .refuse(cx);
        }
        names.remove(0);
        Some(names)
    }

    /// Calls `find` for the messages of all methods, once per message.
    fn each_message<T>(
        &self,
        cx: &mut Cx<'_>,
        span: Span,
        mut find: impl FnMut(&mut Cx<'_>, usize, usize) -> Option<T>,
    ) -> Option<Vec<T>> {
        if self.edge.methods.is_empty() {
            let message =
                format!("column `{}` is bound to a field, but the message type is unknown", self.column.name);
            return Diagnostic::error(code::NO_METHOD, message)
                .at(span, "message type unknown")
                .with_label(self.edge.span, "no method of this chain is declared")
                .with_help("declare the messages: `CREATE TYPE shop FROM PROTO 'shop.proto';`")
                .refuse_missing(cx);
        }
        let (mut found, mut seen) = (Vec::new(), BTreeSet::new());
        for (at, method) in self.edge.methods.iter().enumerate() {
            let message = method.message(self.column.direction);
            if seen.insert(message) {
                found.push(find(cx, at, message)?);
            }
        }
        Some(found)
    }

    /// Finds the field at a path of a message; messages along the path must not be repeated. Reports an invalid path.
    fn field_at<'c>(
        &self,
        cx: &mut Cx<'c>,
        (method, message): (usize, usize),
        names: &[String],
        span: Span,
    ) -> Option<&'c Field> {
        let schema = cx.schema;
        let mut at = message;
        for (depth, name) in names.iter().enumerate() {
            let Some(field) = schema.messages[at].field(name) else {
                let method = &self.edge.methods[method];
                edge::no_such_field(cx, method, at, name, self.column, span, depth);
                return None;
            };
            if depth + 1 == names.len() {
                return Some(field);
            }
            let dotted = names[..=depth].join(".");
            at = match field.kind {
                _ if field.presence == Presence::Repeated => return self.is_a_list(cx, &dotted, span),
                FieldKind::Message(inner) => inner,
                _ => {
                    let message = format!("`{dotted}` is not a message and has no fields");
                    let help = "end the path at that field";
                    return cx.refuse(code::NO_SUCH_FIELD, message, span, "the path continues here", help);
                }
            };
        }
        None
    }

    /// Returns the column for a location, and declares it if it is new.
    fn declare(
        &self,
        columns: &mut NewColumns,
        name: &str,
        (ty, nullable): (Type, bool),
        place: ColumnLocation,
    ) -> usize {
        let direction = self.column.direction;
        if let Some(at) = columns.at(direction, &place) {
            return at;
        }
        let column = Column {
            name: name.to_owned(),
            ty,
            nullable,
            direction,
            read: false,
            written: false,
            replied: false,
            span: self.column.span,
        };
        columns.add(column, place)
    }

    /// Reports a list where one value is expected.
    fn is_a_list<T>(&self, cx: &mut Cx<'_>, dotted: &str, span: Span) -> Option<T> {
        let message = format!("`{dotted}` is a list, but a single value is expected here");
        let help = match self.item {
            Some(_) => "only fields that are not repeated can be read from a list element".to_owned(),
            None => format!(
                "use a list expression: `ANY(e IN {dotted} WHERE ... MAX 100)`, `COUNT(e IN {dotted} MAX 100)`"
            ),
        };
        Diagnostic::error(code::NOT_A_LIST, message).at(span, "repeated field").with_help(help).refuse(cx)
    }
}

/// The common type in all messages; nullable if it is nullable in one.
fn common_type(cx: &mut Cx<'_>, found: &[(Type, bool)], span: Span) -> Option<(Type, bool)> {
    let (ty, _) = *found.first()?;
    if let Some((other, _)) = found.iter().find(|(other, _)| *other != ty) {
        let message = "this field has different types in the messages of the chain's methods";
        let help = "write one chain per message type: `METHOD 'package.Service/Method'`";
        return Diagnostic::error(code::FIELD_NOT_BINDABLE, message)
            .at(span, format!("{ty} in one, {other} in another"))
            .with_help(help)
            .refuse(cx);
    }
    Some((ty, found.iter().any(|(_, nullable)| *nullable)))
}

/// Reports a list expression over a field that is not a list of this kind.
fn is_no_list<T>(cx: &mut Cx<'_>, dotted: &str, label: &str, span: Span) -> Option<T> {
    let help = "ANY, ALL and COUNT take a repeated field or a map; `['key']` takes a map";
    cx.refuse(code::NOT_A_LIST, format!("`{dotted}` is not a list of this kind"), span, label, help)
}

/// Reports a message where one value is expected.
fn is_a_message<T>(cx: &mut Cx<'_>, dotted: &str, span: Span) -> Option<T> {
    let message = format!("`{dotted}` is a message, but a single value is expected here");
    let help = "name one of its fields, or test whether it is set: `present(...)`";
    cx.refuse(code::FIELD_NOT_BINDABLE, message, span, "a message with fields", help)
}
