//! The traffic of a chain: its methods and their messages.

use weft_core::methods::MethodSet;
use weft_core::schema::{FieldKind, Message, Presence};

use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Column, Direction, Method};
use crate::nearest::nearest;
use crate::source::Span;
use crate::types;

/// The traffic of a chain, for its stages.
pub(in crate::check) struct Edge<'a> {
    pub(in crate::check) methods: &'a [Method],
    /// False if the METHOD has an error: then columns are not resolved.
    pub(in crate::check) is_known: bool,
    /// It is on ports, and carries frames.
    pub(in crate::check) is_packet: bool,
    /// The name of the chain.
    pub(in crate::check) span: Span,
}

/// Returns the methods of the schemas that a method set contains.
pub(super) fn methods(cx: &Cx<'_>, set: &MethodSet) -> Vec<Method> {
    let all = cx.schema.methods().filter(|(path, _)| set.contains(path.as_bytes()));
    all.map(|(path, method)| Method {
        path,
        input: method.input,
        output: method.output,
        client_streaming: method.client_streaming,
        server_streaming: method.server_streaming,
    })
    .collect()
}

/// Whether the messages of all methods have a field of this name.
pub(in crate::check) fn in_all_messages(
    cx: &Cx<'_>,
    edge: &Edge<'_>,
    direction: Direction,
    name: &str,
) -> bool {
    let has = |method: &Method| cx.schema.messages[method.message(direction)].field(name).is_some();
    !edge.methods.is_empty() && edge.methods.iter().all(has)
}

/// Whether a path goes into a wrapper message, in all messages: its location is the wrapper's.
pub(super) fn is_value_of_wrapper(
    cx: &Cx<'_>,
    edge: &Edge<'_>,
    direction: Direction,
    names: &[String],
) -> bool {
    let Some((last, around)) = names.split_last() else { return false };
    let is_wrapper = |method: &Method| {
        let message = &cx.schema.messages[method.message(direction)];
        let wrapper = around.iter().try_fold(message, |at, name| match at.field(name)?.kind {
            FieldKind::Message(inner) => Some(&cx.schema.messages[inner]),
            _ => None,
        });
        wrapper.and_then(Message::wrapped).is_some_and(|value| value.name == *last)
    };
    !edge.methods.is_empty() && edge.methods.iter().all(is_wrapper)
}

/// Reports a field that the message does not have, and lists its fields.
pub(in crate::check) fn no_such_field(
    cx: &mut Cx<'_>,
    method: &Method,
    message: usize,
    name: &str,
    column: &Column,
    span: Span,
    depth: usize,
) {
    let message = &cx.schema.messages[message];
    let fields: Vec<String> = message.fields.iter().map(|field| field_words(cx, field)).collect();
    let names: Vec<&str> = message.fields.iter().map(|field| field.name.as_str()).collect();
    let near = nearest(name, names.iter().copied());
    let prefix = match column.direction {
        Direction::Request => "req",
        Direction::Response => "resp",
    };
    let mut diagnostic =
        Diagnostic::error(code::NO_SUCH_FIELD, format!("no column `{name}` in message `{}`", message.name))
            .at(span, "not a field of a message that this chain carries")
            .with_note(format!("it has: {}", fields.join(", ")))
            .with_note(format!("it is the message of `{}`", method.path));
    if column.span != span {
        diagnostic = diagnostic.with_label(column.span, "the element needs it");
    }
    let field = near.unwrap_or("field");
    diagnostic = match (near, depth) {
        (Some(near), 1..) => diagnostic.with_help(format!("write `{near}`")),
        _ => diagnostic
            .with_help(format!("bind it where the element is used: `({} := {prefix}.{field})`", column.name)),
    };
    cx.report(diagnostic);
}

/// Describes a field for a diagnostic: its name and type.
fn field_words(cx: &Cx<'_>, field: &weft_core::schema::Field) -> String {
    let kind = cx.schema.scalar(field).map_or(field.kind, |(kind, _)| kind);
    let ty = match (kind, types::of_field(kind)) {
        (FieldKind::Message(index), _) => cx.schema.messages[index].name.clone(),
        (_, Some(ty)) => ty.to_string(),
        (_, None) => String::new(),
    };
    let suffix = match cx.schema.scalar(field).map_or(field.presence, |(_, presence)| presence) {
        Presence::Implicit => "",
        Presence::Explicit => "?",
        Presence::Repeated => " repeated",
    };
    format!("{} {ty}{suffix}", field.name)
}
