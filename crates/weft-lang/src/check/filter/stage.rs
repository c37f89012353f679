//! Checks a filter in a chain: its parameters and bindings, the element that computes its keys, and its policies.

use super::{Filter, policies};
use crate::ast;
use crate::check::Cx;
use crate::check::chain::args::params;
use crate::check::chain::bind::bindings;
use crate::check::chain::edge::Edge;
use crate::check::checked::Checked;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{FilterInstance, Instance};

/// A filter that a stage adds to a chain.
#[derive(Debug)]
pub(in crate::check) struct Placed {
    /// The element directly before it.
    pub(in crate::check) keys: Option<(Instance, Option<Checked>)>,
    /// The filter; the caller knows its position.
    pub(in crate::check) filter: FilterInstance,
}

/// Checks a stage that is a filter; None if it has an error.
pub(in crate::check) fn stage(
    cx: &mut Cx<'_>,
    (elements, filter): (&[Checked], &Filter<'_>),
    edge: &Edge<'_>,
    ast: &ast::Stage,
) -> Option<Placed> {
    check_per_try(cx, ast);
    let params = params(cx, &filter.checked, ast);
    let bindings = bindings(cx, &filter.checked, edge, ast);
    if filter.is_broken {
        return None;
    }
    let (params, bindings) = (params?, bindings?);
    let policies = policies::with_params(cx, &filter.checked.element, filter.ast, &params, ast.span)?;
    let name = ast.instance.as_ref().unwrap_or(&ast.element).name.clone();
    let (side, mandatory) = (ast.side.map(|clause| clause.side), ast.mandatory.is_some());
    let element = filter.early_keys.filter(|_| bindings.all_known_at_open()).or(filter.keys);
    let specialised = element.and_then(|element| bindings.specialise(&elements[element]));
    let keys = element.map(|element| Instance {
        name: name.clone(),
        element,
        params,
        bindings: bindings.places,
        tables: Vec::new(),
        every: Vec::new(),
        sinks: Vec::new(),
        side,
        mandatory,
        // Without its key, a call cannot be distinguished from others, so it is rejected.
        fail_open: false,
        per_try: false,
        span: ast.span,
    });
    let filter = FilterInstance {
        name,
        filter: filter.ast.name.name.clone(),
        declared: filter.ast.span,
        at: 0,
        policies,
        has_keys: keys.is_some(),
        side,
        mandatory,
        span: ast.span,
    };
    Some(Placed { keys: keys.map(|keys| (keys, specialised)), filter })
}

/// Warns about PER TRY at a filter.
fn check_per_try(cx: &mut Cx<'_>, ast: &ast::Stage) {
    let Some(span) = ast.per_try else { return };
    let message = format!("PER TRY applies to elements, but `{}` is a filter", ast.element.name);
    let diagnostic = Diagnostic::warning(code::PER_TRY_ALONE, message)
        .at(span, "has no meaning here")
        .with_help("remove it: every try of an earlier filter goes through this filter anyway");
    cx.report(diagnostic);
}
