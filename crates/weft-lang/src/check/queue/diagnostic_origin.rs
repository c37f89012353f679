//! Whose fault it is: what is wrong in a queue for the arguments that it is given is told where they are given.

use crate::ast::{self, Assign, QueueUse};
use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;

/// Makes what was told since `n_reported` about the text of a queue point at the arguments of its use: to those whose
/// parameters the place at fault asks for, by `uses`. The place is shown beside them.
///
/// What is wrong without the arguments was told before, and is not told again.
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
    // It would change the queue, which is right for other arguments.
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
