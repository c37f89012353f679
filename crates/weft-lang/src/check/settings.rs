//! Checks options: `WITH (name = value)`.

use crate::check::suggest::with_nearest;
use crate::check::view::View;
use weft_core::{Type, Value};

use super::scope::Scope;
use super::{Cx, empty_element};
use crate::ast;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::Setting;

/// The valid options of an item; numbers must be positive. Reports the others.
pub(super) fn settings(
    cx: &mut Cx<'_>,
    options: &[ast::Assign],
    known: &[(&'static str, Type)],
    kind: &str,
) -> Vec<Setting> {
    let mut settings = read_settings(cx, options, known, kind);
    settings.retain(|setting| {
        let is_positive = !matches!(setting.value, Value::Int(n) if n <= 0);
        if !is_positive {
            let message = format!("option `{}` must be greater than zero", setting.name);
            cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(setting.span, "outside the limits"));
        }
        is_positive
    });
    settings
}

/// Reads the options of an item that are known and have the correct type. Reports the others.
pub(super) fn read_settings(
    cx: &mut Cx<'_>,
    options: &[ast::Assign],
    known: &[(&'static str, Type)],
    kind: &str,
) -> Vec<Setting> {
    let mut settings: Vec<Setting> = Vec::new();
    for option in options {
        let Some(&(name, ty)) = known.iter().find(|(name, _)| *name == option.name.name) else {
            let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
            let message = format!("a {kind} has no option `{}`", option.name.name);
            let diagnostic = Diagnostic::error(code::UNKNOWN_OPTION, message)
                .at(option.name.span, "unknown")
                .with_note(format!("it has: {}", names.join(", ")));
            cx.report(with_nearest(diagnostic, &option.name, names));
            continue;
        };
        if let Some(first) = settings.iter().find(|setting| setting.name == name) {
            cx.report_duplicate("option", &option.name, first.span);
            continue;
        }
        let element = empty_element();
        let mut n_rand = 0;
        let mut scope = Scope::new(cx, &element, &[], View::Constant, &mut n_rand);
        let whose = format!("option `{name}`");
        let Some(expr) = scope.value_for(&option.value, ty, false, &whose) else { continue };
        let Some(value) = cx.folded(&expr, &[]) else { continue };
        settings.push(Setting { name, value, span: option.span });
    }
    settings
}
