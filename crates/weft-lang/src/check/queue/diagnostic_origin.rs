//! Moves a diagnostic about a queue to the arguments that cause it.

use crate::ast::{self, Assign, QueueUse};
use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;

/// Takes the diagnostics since number `n_reported` that are located in the queue's text, and makes them point at the
/// arguments that the faulty code depends on, according to `uses`. The original location becomes a secondary label.
///
/// Errors that are independent of the arguments were reported before, and are not repeated.
pub(super) fn point_at_arguments(
    cx: &mut Cx<'_>,
    n_reported: usize,
    (item, used): (&ast::Queue, &QueueUse),
    uses: &[(String, Span)],
) {
    for diagnostic in cx.diagnostics.split_off(n_reported) {
        let diagnostic = match diagnostic.span() {
            Some(span) if is_within(span, item.span) && diagnostic.code != code::TOO_MANY_DIAGNOSTICS => {
                at_arguments(diagnostic, span, used, uses)
            }
            _ => diagnostic,
        };
        if !cx.diagnostics.contains(&diagnostic) {
            cx.diagnostics.push(diagnostic);
        }
    }
}

/// Moves a diagnostic to the arguments whose parameters are used at its span.
fn at_arguments(
    mut diagnostic: Diagnostic,
    at: Span,
    used: &QueueUse,
    uses: &[(String, Span)],
) -> Diagnostic {
    let is_used_in = |arg: &&Assign, within: Span| {
        uses.iter().any(|(param, span)| *param == arg.name.name && is_within(*span, within))
    };
    let mut causes: Vec<&Assign> = used.args.iter().filter(|arg| is_used_in(arg, at)).collect();
    if causes.is_empty() {
        let labels = &diagnostic.labels;
        causes =
            used.args.iter().filter(|arg| labels.iter().any(|label| is_used_in(arg, label.span))).collect();
    }
    let Some((first, rest)) = causes.split_first() else {
        let all = used.args.first().zip(used.args.last());
        let Some((first, last)) = all else { return diagnostic };
        return diagnostic.with_label(first.name.span.to(last.value.span), "with these arguments");
    };
    for label in &mut diagnostic.labels {
        label.primary = false;
    }
    // The fix would change the queue, which is correct for other arguments.
    diagnostic.fix = None;
    let span_of = |arg: &Assign| arg.name.span.to(arg.value.span);
    diagnostic = diagnostic.at(span_of(first), "caused by this argument");
    for arg in rest {
        diagnostic = diagnostic.with_label(span_of(arg), "and this one");
    }
    diagnostic
}

fn is_within(span: Span, outer: Span) -> bool {
    span.file == outer.file && outer.start <= span.start && span.end <= outer.end
}
