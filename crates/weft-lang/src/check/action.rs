//! Checks that a handler permits an action.

use super::scope::Scope;
use super::view::View;
use crate::diagnostic::code;
use crate::hir::HandlerKind;
use crate::source::Span;

/// Checks that the handler permits an action. Reports the handlers that do.
pub(super) fn check_action(
    scope: &mut Scope<'_, '_>,
    allowed: &[HandlerKind],
    what: &str,
    span: Span,
) -> Option<()> {
    if matches!(scope.view, View::Handler(kind) if allowed.contains(&kind)) {
        return Some(());
    }
    let names = events(scope, allowed);
    let message = format!("{what} is not available in {}", scope.words());
    let help = format!("{what} is allowed in {}", names.join(", "));
    scope.cx.refuse(code::ACTION_NOT_HERE, message, span, "no message here", help)
}

/// The names of the handlers that are possible for the element.
pub(super) fn events(scope: &Scope<'_, '_>, kinds: &[HandlerKind]) -> Vec<&'static str> {
    if !scope.is_packet() {
        return kinds.iter().map(|kind| View::Handler(*kind).words()).collect();
    }
    let mut names = vec!["ON PACKET"];
    if kinds.contains(&HandlerKind::Error) {
        names.push(View::Handler(HandlerKind::Error).words());
    }
    names
}
