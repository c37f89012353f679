//! Checks the dependencies of computed fields: never on themselves, nor on a checksum that covers them.

use weft_core::wire::{Expr, Field, FieldId, Protocol, Rule};

use crate::check::Cx;
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;

/// The maximum number of fields computed for one field.
const STEPS_MAX: u64 = 1000;

/// Fields with rules, and the spans of the rules.
type Rules<'r> = &'r [(FieldId, Span)];

/// Rejects fields without a well-defined value, and fields that are too expensive to compute.
pub(super) fn check(cx: &mut Cx<'_>, protocol: &Protocol, rules: Rules<'_>) {
    check_sums(cx, protocol, rules);
    if check_cycles(cx, protocol, rules) {
        check_steps(cx, protocol, rules);
    }
}

/// Rejects a second checksum: each covers the header, and so the other.
fn check_sums(cx: &mut Cx<'_>, protocol: &Protocol, rules: Rules<'_>) {
    let mut sums = rules.iter().filter(|(id, _)| field(protocol, *id).rule.checksum().is_some());
    let Some((first, first_span)) = sums.next() else { return };
    for (other, span) in sums {
        let [first, other] = [first, other].map(|id| &field(protocol, *id).name);
        let message = format!("the checksums `{first}` and `{other}` cover each other");
        let diagnostic = Diagnostic::error(code::WIRE_RULE, message)
            .at(*span, "covers the header")
            .with_label(*first_span, "and so does this")
            .with_help("move one of them into a separate header");
        cx.report(diagnostic);
    }
}

/// Rejects fields that depend on themselves; returns whether there are none.
fn check_cycles(cx: &mut Cx<'_>, protocol: &Protocol, rules: Rules<'_>) -> bool {
    let mut known = Vec::new();
    for (id, span) in rules {
        let Some(cycle) = cycle(protocol, *id).filter(|cycle| !cycle.iter().any(|id| known.contains(id)))
        else {
            continue;
        };
        let name = |id: &FieldId| format!("`{}`", field(protocol, *id).name);
        let by = match cycle.get(1..).unwrap_or_default() {
            [] => String::new(),
            others => format!(" by {}", others.iter().map(name).collect::<Vec<_>>().join(" and ")),
        };
        let message = format!("{} is computed from itself{by}", name(id));
        let help = "compute it from fields that programs set, or from the header's length";
        cx.fault(code::WIRE_RULE, message, *span, "leads back to it", help);
        known.extend(cycle);
    }
    known.is_empty()
}

/// Rejects the first field that depends on a checksum, which is known last, or that needs too many steps: each use of a
/// field computes it again.
fn check_steps(cx: &mut Cx<'_>, protocol: &Protocol, rules: Rules<'_>) {
    let mut known = vec![None; protocol.fields.len()];
    for (id, span) in rules {
        let name = &field(protocol, *id).name;
        let sum =
            named_by(protocol, *id).into_iter().find(|of| field(protocol, *of).rule.checksum().is_some());
        let diagnostic = match sum.map(|sum| &field(protocol, sum).name) {
            Some(sum) => {
                let message = format!("`{name}` is computed from the checksum `{sum}`, which covers it");
                Diagnostic::error(code::WIRE_RULE, message)
                    .at(*span, "must be known first")
                    .with_help("move it into a separate header, or compute it from other fields")
            }
            None if steps(protocol, *id, &mut known) > STEPS_MAX => {
                let message = format!("`{name}` is computed in more than {STEPS_MAX} steps");
                Diagnostic::error(code::OVER_LIMIT, message)
                    .at(*span, "expands fields repeatedly")
                    .with_help("use each field once: `2 * f` instead of `f + f`")
            }
            None => continue,
        };
        return cx.report(diagnostic);
    }
}

fn field(protocol: &Protocol, id: FieldId) -> &Field {
    &protocol.fields[usize::from(id.0)]
}

/// The expression of a computed field.
fn source_expr(protocol: &Protocol, id: FieldId) -> Option<&Expr> {
    match &field(protocol, id).rule {
        Rule::Computed(expr) | Rule::Default(expr) => Some(expr),
        Rule::Plain | Rule::Constant(_) | Rule::Reserved => None,
    }
}

/// The fields in the expression of a computed field, with repetitions.
fn named_by(protocol: &Protocol, id: FieldId) -> Vec<FieldId> {
    let mut named = Vec::new();
    if let Some(expr) = source_expr(protocol, id) {
        expr.each(&mut |e| named.extend(named_field(e)));
    }
    named
}

fn named_field(expr: &Expr) -> Option<FieldId> {
    if let Expr::Field(id) = expr { Some(*id) } else { None }
}

/// The dependencies of a computed field: the fields that its expression uses and, if it uses a length, the fields that
/// determine which parts are present and how often.
fn computed_from(protocol: &Protocol, id: FieldId) -> Vec<FieldId> {
    let mut from = named_by(protocol, id);
    let mut asks_length = false;
    if let Some(expr) = source_expr(protocol, id) {
        expr.each(&mut |e| {
            asks_length |= matches!(e, Expr::HeaderBytes | Expr::BytesAfter(_) | Expr::Rest);
        });
    }
    if asks_length {
        for item in &protocol.items {
            item.each_expr(&mut |e| e.each(&mut |e| from.extend(named_field(e))));
        }
    }
    from
}

/// Finds a dependency cycle of a field, starting with the field.
fn cycle(protocol: &Protocol, id: FieldId) -> Option<Vec<FieldId>> {
    let mut seen = vec![id];
    let mut paths = vec![vec![id]];
    while let Some(path) = paths.pop() {
        for next in computed_from(protocol, *path.last()?) {
            if next == id {
                return Some(path);
            }
            if !seen.contains(&next) {
                seen.push(next);
                paths.push(path.iter().copied().chain([next]).collect());
            }
        }
    }
    None
}

/// The number of fields computed for one field; none depends on itself.
fn steps(protocol: &Protocol, id: FieldId, known: &mut [Option<u64>]) -> u64 {
    if let Some(steps) = known[usize::from(id.0)] {
        return steps;
    }
    let named = named_by(protocol, id);
    let steps = named.into_iter().fold(1u64, |all, of| all.saturating_add(steps(protocol, of, known)));
    known[usize::from(id.0)] = Some(steps);
    steps
}
