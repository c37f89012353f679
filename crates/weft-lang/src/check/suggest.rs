//! Parts of messages: the nearest name, the file to import, types and numbers in words.

use std::fmt::Display;

use weft_core::Status;

use super::Cx;
use crate::ast::{Ident, Path};
use crate::diagnostic::{Diagnostic, code};
use crate::nearest::nearest;

/// The diagnostic for an unknown column of a table or sink.
pub(super) fn no_column<'n>(
    owner: &str,
    name: &Ident,
    columns: impl Iterator<Item = &'n str> + Clone,
) -> Diagnostic {
    let known: Vec<&str> = columns.clone().collect();
    let message = format!("{owner} has no column `{}`", name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_COLUMN, message)
        .at(name.span, "unknown column")
        .with_note(format!("it has: {}", known.join(", ")));
    with_nearest(diagnostic, name, columns)
}

/// Adds the nearest name as help and fix.
pub(super) fn with_nearest<'n>(
    diagnostic: Diagnostic,
    name: &Ident,
    known: impl IntoIterator<Item = &'n str>,
) -> Diagnostic {
    match nearest(&name.name, known) {
        Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(name.span, near),
        None => diagnostic,
    }
}

/// Adds a hint like [`with_nearest`]; if no known name is near, suggests the library file to import, or else lists
/// the known names.
pub(super) fn with_nearest_or_import<'n>(
    cx: &Cx<'_>,
    diagnostic: Diagnostic,
    name: &Ident,
    folder: &str,
    known: impl Iterator<Item = &'n str> + Clone,
) -> Diagnostic {
    if nearest(&name.name, known.clone()).is_some() {
        return with_nearest(diagnostic, name, known);
    }
    if let Some(help) = import_help(cx, folder, &name.name) {
        return diagnostic.with_help(help);
    }
    let known: Vec<&str> = known.take(NAMES_SHOWN_MAX).collect();
    if known.is_empty() {
        diagnostic
    } else {
        diagnostic.with_note(format!("there are: {}", known.join(", ")))
    }
}

/// The maximum number of names that a diagnostic lists.
const NAMES_SHOWN_MAX: usize = 12;

/// The IMPORT for the library file with this name or a similar name; None if the library has none.
pub(super) fn import_help(cx: &Cx<'_>, folder: &str, name: &str) -> Option<String> {
    let folder = format!("library/{folder}/");
    let names = cx.library.iter().filter_map(|path| path.strip_prefix(&folder)?.strip_suffix(".weft"));
    if names.clone().any(|known| known == name) {
        return Some(format!("import the file that defines it: `IMPORT '{folder}{name}.weft';`"));
    }
    let near = nearest(name, names)?;
    Some(format!("the library has `{near}`: `IMPORT '{folder}{near}.weft';`"))
}

/// The names of all statuses.
pub(super) fn status_names() -> impl Iterator<Item = &'static str> {
    Status::ALL.iter().map(|status| status.name())
}

/// `1 value for 2 columns`
pub(super) fn values_for_columns(n_values: usize, n_columns: usize) -> String {
    let of = |n: usize, what: &str| format!("{n} {what}{}", if n == 1 { "" } else { "s" });
    format!("{} for {}", of(n_values, "value"), of(n_columns, "column"))
}

/// Formats a type with its article, for messages.
pub(super) fn article(ty: impl Display) -> String {
    let text = ty.to_string();
    match text.split(['(', ' ']).next() {
        Some("TEXT" | "BYTES" | "a") => text,
        _ if text.starts_with(['I', 'E', 'F']) => format!("an {text}"),
        _ => format!("a {text}"),
    }
}

/// Reports a path whose first part is not a layer.
pub(super) fn unknown_layer(cx: &mut Cx<'_>, path: &Path) {
    let first = match path.segments.as_slice() {
        [inner, name, ..] if inner.name == "inner" => name,
        [name, ..] => name,
        [] => return,
    };
    let message = format!("unknown protocol `{}`", first.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_PROTOCOL, message).at(first.span, "unknown");
    let diagnostic = match nearest(&first.name, cx.formats.names()) {
        Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(first.span, near),
        None if first.name.eq_ignore_ascii_case("old") => diagnostic.with_help(
            "OLD is the expired or evicted row in ON TIMEOUT and ON EVICT; read other rows with SELECT",
        ),
        None => {
            diagnostic.with_help("import the library's protocols: `IMPORT 'library/protocols/all.weft';`")
        }
    };
    cx.report_missing(diagnostic);
}
