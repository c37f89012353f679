//! Computes the parameters of a stage.

use weft_core::Value;

use crate::ast::{Ident, Stage, StageArg};
use crate::check::checked::Checked;
use crate::check::scope::Scope;
use crate::check::suggest::with_nearest;
use crate::check::view::View;
use crate::check::{Cx, empty_element, native, table};
use crate::diagnostic::{Diagnostic, code};
use crate::source::Span;

/// Computes the value of each parameter of a stage; None if one has an error.
pub(in crate::check) fn params(cx: &mut Cx<'_>, checked: &Checked, stage: &Stage) -> Option<Vec<Value>> {
    let element = &checked.element;
    let mut values: Vec<Option<Value>> = element.params.iter().map(|param| param.default.clone()).collect();
    let mut given: Vec<Option<Span>> = vec![None; values.len()];
    let (mut ok, mut has_unknown) = (true, false);
    for arg in &stage.args {
        let StageArg::Param(assign) = arg else { continue };
        let Some(at) = element.params.iter().position(|param| param.name == assign.name.name) else {
            (ok, has_unknown) = (false, true);
            unknown_param(cx, checked, &assign.name);
            continue;
        };
        if let Some(first) = given[at].replace(assign.span) {
            cx.report_duplicate("argument", &assign.name, first);
        }
        let param = &element.params[at];
        if cx.is_broken(param.span) {
            ok = false;
            continue;
        }
        if let Some(ty) = &param.function {
            values[at] = native::function_argument(cx, &assign.value, ty, &param.name);
            ok &= values[at].is_some();
            continue;
        }
        let (element, mut n_rand) = (empty_element(), 0);
        let mut scope = Scope::new(cx, &element, &[], View::Constant, &mut n_rand);
        let whose = format!("parameter `{}`", param.name);
        let expr = scope.value_for(&assign.value, param.ty, param.nullable, &whose);
        values[at] = expr.and_then(|expr| cx.folded(&expr, &[]));
        ok &= values[at].is_some();
    }
    for (at, param) in element.params.iter().enumerate() {
        // An unknown name is most likely a misspelling of the missing one.
        if values[at].is_none() && given[at].is_none() && !has_unknown {
            ok = false;
            let message = format!("`{}` needs a value for `{}`", element.name, param.name);
            let diagnostic = Diagnostic::error(code::MISSING_PARAM, message)
                .at(stage.span, "not given here")
                .with_label(param.span, "has no default")
                .with_help(match &param.function {
                    Some(ty) => format!(
                        "write `{} ({} = f)`, a function {}",
                        element.name,
                        param.name,
                        native::text_of(ty)
                    ),
                    None => format!("write `{} ({} = ...)`, of type {}", element.name, param.name, param.ty),
                });
            cx.report_unless_broken(param.span, diagnostic);
        }
    }
    ok &= !cx.report_unknown_ports(element, &values, &given);
    let values: Vec<Value> = values.into_iter().collect::<Option<_>>().filter(|_| ok)?;
    let Some((check, message)) = table::broken_by_params(element, &values) else { return Some(values) };
    let (at, what) = match check.condition.params().into_iter().find_map(|at| given[at]) {
        Some(given) => (given, "this value"),
        None => (stage.span, "with default parameters"),
    };
    let diagnostic = Diagnostic::error(code::CHECK_BROKEN, message)
        .at(at, what)
        .with_label(check.span, "condition on its parameters");
    cx.report(diagnostic);
    None
}

/// Reports an argument that the element has no parameter for.
fn unknown_param(cx: &mut Cx<'_>, checked: &Checked, name: &Ident) {
    let element = &checked.element;
    let message = format!("`{}` has no parameter `{}`", element.name, name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_PARAM, message).at(name.span, "unknown");
    if element.columns.iter().any(|column| column.name == name.name) {
        let help = format!("`{0}` is a column; bind a column with `:=`: `{0} := req.{0}`", name.name);
        return cx.report(diagnostic.with_help(help));
    }
    let names: Vec<&str> = element.params.iter().map(|param| param.name.as_str()).collect();
    let diagnostic = match names.is_empty() {
        true => diagnostic.with_note("it has no parameters"),
        false => diagnostic.with_note(format!("it has: {}", names.join(", "))),
    };
    cx.report(with_nearest(diagnostic, name, names));
}
