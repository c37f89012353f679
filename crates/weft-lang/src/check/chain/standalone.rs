//! Generates elements on frames that are no stage of a chain.

use crate::check::scope::{Scope, View};
use crate::check::{Cx, effects, element, frame};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    Binding, ColumnLocation, Effects, Element, Handler, HandlerKind, Instance, Layer, Stmt, StmtKind,
};
use crate::source::Span;

/// Generates an element with a single statement in ON PACKET; it is not a stage of a chain.
pub(in crate::check) fn standalone_frame_element(
    cx: &mut Cx<'_>,
    name: &str,
    span: Span,
    make: impl FnOnce(&mut Scope<'_, '_>) -> Option<StmtKind>,
) -> Option<(Element, Instance)> {
    let mut element = Element::empty(name, span);
    element.layer = Layer::Packet(None);
    let mut n_rand = 0;
    let kind = HandlerKind::Request;
    let mut scope = Scope::new(cx, &element, &[], View::Handler(kind), &mut n_rand);
    let made = make(&mut scope);
    let (locals, rows, new) = scope.into_parts();
    let body = vec![Stmt { kind: made?, span }];
    if let Some((column, _)) = new.iter().find(|(_, place)| matches!(place, ColumnLocation::Meta(_))) {
        let message = format!("`{}` is set by elements, and no element has run yet", column.name);
        let diagnostic = Diagnostic::error(code::NAME_NOT_HERE, message)
            .at(column.span, "always 0 at this point")
            .with_help("read it in an element behind the one that sets it");
        cx.report(diagnostic);
        return None;
    }
    let mut handler = Handler { kind, body, locals, rows, effects: Effects::default(), span };
    handler.effects = effects::of(&handler);
    let mut frames = Vec::new();
    frame::declare(&mut element, &mut frames, new);
    element.handlers.request = Some(handler);
    element::mark_column_uses(&mut element);
    let bindings = element
        .columns
        .iter()
        .zip(frames)
        .map(|(column, (_, place))| Binding { place, nullable: column.nullable });
    let instance = Instance {
        name: name.to_owned(),
        element: usize::MAX,
        params: Vec::new(),
        bindings: bindings.collect(),
        tables: Vec::new(),
        every: Vec::new(),
        sinks: Vec::new(),
        side: None,
        mandatory: false,
        fail_open: false,
        per_try: false,
        span,
    };
    Some((element, instance))
}
