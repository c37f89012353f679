//! Reports names that are unknown, or not available at a point.

use super::{ColumnVisibility, Scope};
use crate::ast::{Ident, Path};
use crate::check::suggest::unknown_layer;
use crate::check::suggest::{status_names, with_nearest};
use crate::check::tree::with_length;
use crate::check::view::FRAME_METAS;
use crate::check::view::METAS;
use crate::check::view::OLD;
use crate::check::view::View;
use crate::check::{Cx, quoted_list};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Direction, Element, Layer, Meta};
use crate::nearest::nearest;
use crate::source::Span;

/// Reports an unknown table, with the nearest name or a declaration.
pub(super) fn report_unknown_table(scope: &mut Scope<'_, '_>, name: &Ident) {
    let known: Vec<&str> =
        scope.element.tables.iter().chain(scope.shared).map(|table| table.name.as_str()).collect();
    let diagnostic = Diagnostic::error(code::UNKNOWN_TABLE, format!("unknown table `{}`", name.name))
        .at(name.span, "not a table of this element or a shared table");
    let diagnostic = match known.is_empty() {
        true => diagnostic.with_help(format!(
            "declare it: `TABLE {} (key TEXT(64) PRIMARY KEY, ...) MAX 10000 ROWS EVICT OLDEST;`",
            name.name
        )),
        false => with_nearest(diagnostic.with_note(format!("there are: {}", known.join(", "))), name, known),
    };
    scope.cx.report_missing(diagnostic);
}

/// Reports a name that several visible rows have.
pub(super) fn ambiguous<T>(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<T> {
    let visible_rows = scope
        .rows
        .visible()
        .iter()
        .filter(|visible| matches!(visible.visibility, ColumnVisibility::Joined(_)));
    let mut owners: Vec<&str> = visible_rows.map(|visible| visible.alias.as_str()).collect();
    if scope.own_column(&name.name).is_some() {
        owners.push("input");
    }
    let ways: Vec<String> = owners.iter().map(|owner| format!("`{owner}.{}`", name.name)).collect();
    let message = format!("`{}` is ambiguous: it could be a column of {}", name.name, owners.join(" or of "));
    let help = format!("write {}", ways.join(" or "));
    scope.cx.refuse(code::AMBIGUOUS_NAME, message, name.span, "which one?", help)
}

/// Reports a name that is not available in the condition of a policy.
pub(in crate::check) fn not_in_status_condition<T>(
    cx: &mut Cx<'_>,
    element: &Element,
    what: &str,
    span: Span,
) -> Option<T> {
    let params: Vec<String> = element.params.iter().map(|param| format!("`{}`", param.name)).collect();
    let message = format!("a policy's condition can only use the call's status, not {what}");
    Diagnostic::error(code::STATUS_ONLY, message)
        .at(span, "not available when a call ends")
        .with_note(match params.is_empty() {
            true => "it may read only `status`".to_owned(),
            false => format!("it may read `status` and the parameters: {}", params.join(", ")),
        })
        .with_help("name the statuses: `WHEN status IN (UNAVAILABLE, DEADLINE_EXCEEDED)`")
        .refuse(cx)
}

/// Reports an unknown name with dots.
pub(super) fn unknown_path<T>(scope: &mut Scope<'_, '_>, path: &Path) -> Option<T> {
    if scope.view == View::StatusCondition {
        return not_in_status_condition(
            scope.cx,
            scope.element,
            &format!("`{}`", path.to_dotted()),
            path.span,
        );
    }
    if scope.is_packet() && !scope.is_table(&path.segments[0].name) {
        unknown_layer(scope.cx, path);
        return None;
    }
    let (first, dotted) = (&path.segments[0], path.to_dotted());
    let last = path.segments.last().expect("a path is never empty");
    let diagnostic =
        Diagnostic::error(code::UNKNOWN_NAME, format!("unknown name `{dotted}`")).at(path.span, "unknown");
    let diagnostic = if matches!(first.name.as_str(), "input" | "req" | "resp") {
        diagnostic.with_note("an element declares columns; the chain binds them to fields").with_help(
            format!(
                "declare a column `{0}`, and bind it in the chain: `{1} ({0} := req.{2})`",
                last.name,
                scope.element.name,
                tail(path)
            ),
        )
    } else {
        let aliases: Vec<&str> = scope.rows.visible().iter().map(|visible| visible.alias.as_str()).collect();
        let diagnostic = match scope.is_table(&first.name) {
            true if scope.rows.visible().iter().any(|visible| visible.alias == OLD) => diagnostic.with_help(format!(
                "read the removed row as `OLD.{0}`; read another row with `(SELECT {0} FROM {1} WHERE ...)`",
                last.name, first.name
            )),
            true => diagnostic.with_help(format!(
                "read the row: `(SELECT {} FROM {} WHERE ...)`, or JOIN the table",
                last.name, first.name
            )),
            false => diagnostic,
        };
        with_nearest(diagnostic, first, aliases)
    };
    diagnostic.refuse_missing(scope.cx)
}

/// Reports a column that `input` does not have.
pub(super) fn unknown_column<T>(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<T> {
    if report_elsewhere(scope, name) {
        return None;
    }
    let direction = scope.view.direction();
    let columns = scope.element.columns.iter().filter(|column| Some(column.direction) == direction);
    let names: Vec<&str> = columns.map(|column| column.name.as_str()).collect();
    let message = format!("`input` has no column `{}`", name.name);
    let mut diagnostic =
        Diagnostic::error(code::UNKNOWN_NAME, message).at(name.span, "not a column of this element");
    if !names.is_empty() {
        diagnostic = diagnostic.with_note(format!("it has: {}", names.join(", ")));
    }
    let near = nearest(&name.name, names.iter().copied());
    let clause = match direction {
        Some(Direction::Response) => "RETURNS",
        _ if scope.is_packet() => "ON packet",
        _ => "ON rpc",
    };
    let diagnostic = match near {
        Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(name.span, near),
        None => diagnostic
            .with_help(format!("declare it in the head of the element: `{clause} ({} TEXT)`", name.name)),
    };
    diagnostic.refuse_missing(scope.cx)
}

/// Reports an unknown name, with the nearest known ones.
pub(super) fn unknown_name<T>(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<T> {
    if scope.view == View::StatusCondition {
        return unknown_ending(scope, name);
    }
    if report_elsewhere(scope, name) {
        return None;
    }
    let message = format!("unknown name `{}`", name.name);
    let diagnostic = Diagnostic::error(code::UNKNOWN_NAME, message).at(name.span, "unknown");
    if scope.cx.sources.slice(name.span).starts_with('"') {
        // As in SQL, double quotes denote a name; users of other languages mean a text.
        let text = format!("'{}'", name.name.replace('\'', "''"));
        let help = format!("write a text in single quotes: `{text}`");
        return diagnostic.with_help(help).with_fix(name.span, text).refuse_missing(scope.cx);
    }
    if let Layer::Packet(Some(layer)) = &scope.element.layer
        && let Some(path) = scope.cx.formats.path_of(layer, &name.name)
    {
        let diagnostic = diagnostic
            .with_help(format!("write a header field with its layer: `{path}`"))
            .with_fix(name.span, path);
        return diagnostic.refuse_missing(scope.cx);
    }
    if scope.cx.ports.contains(&name.name) {
        // A chain names ports without quotes; in an element, port names are texts.
        let text = format!("'{}'", name.name);
        let help = format!("write the port's name as a text: `{text}`");
        return diagnostic.with_help(help).with_fix(name.span, text).refuse_missing(scope.cx);
    }
    let visible = visible_names(scope);
    let near = nearest(&name.name, visible.iter().map(String::as_str))
        .or_else(|| nearest(&name.name, status_names()));
    let diagnostic = match near {
        Some(near) => diagnostic.with_help(format!("write `{near}`")).with_fix(name.span, near),
        None if visible.is_empty() => diagnostic,
        None => diagnostic.with_note(format!("known here: {}", quoted_list(&visible))),
    };
    diagnostic.refuse_missing(scope.cx)
}

/// Reports a misspelled status or parameter, or a name that is not available when a call ends.
fn unknown_ending<T>(scope: &mut Scope<'_, '_>, name: &Ident) -> Option<T> {
    let visible = visible_names(scope);
    let is_elsewhere = METAS.iter().any(|(known, ..)| *known == name.name)
        || scope.element.columns.iter().any(|column| column.name == name.name);
    let near = nearest(&name.name, visible.iter().map(String::as_str))
        .or_else(|| nearest(&name.name, status_names()));
    let Some(near) = near.filter(|_| !is_elsewhere) else {
        return not_in_status_condition(scope.cx, scope.element, &format!("`{}`", name.name), name.span);
    };
    Diagnostic::error(code::UNKNOWN_NAME, format!("unknown name `{}`", name.name))
        .at(name.span, "unknown")
        .with_help(format!("write `{near}`"))
        .with_fix(name.span, near)
        .refuse_missing(scope.cx)
}

/// Reports a name that the element declares but that is not available in this handler.
fn report_elsewhere(scope: &mut Scope<'_, '_>, name: &Ident) -> bool {
    let element = scope.element;
    let column = element.columns.iter().find(|column| column.name == name.name);
    let message = format!("`{}` is not available in {}", name.name, scope.words());
    let diagnostic = Diagnostic::error(code::NAME_NOT_HERE, message);
    let in_handler = matches!(scope.view, View::Handler(_));
    let diagnostic = if let Some(column) = column.filter(|_| in_handler) {
        let (event, other) = match column.direction {
            Direction::Request => ("ON REQUEST", "request"),
            Direction::Response => ("ON RESPONSE", "response"),
        };
        let help = match scope.view {
            View::Handler(kind) if kind.is_departure() => {
                format!("save it in a column of the table, and read it here as `OLD.{}`", column.name)
            }
            _ => format!(
                "save it in a CALL column: `CALL (saved_{0} {1});` and `SET saved_{0} = {0};` {event}",
                column.name,
                with_length(column.ty),
            ),
        };
        diagnostic
            .at(name.span, format!("a column of the {other}, available in {event}"))
            .with_label(column.span, "declared here")
            .with_help(help)
    } else if let Some(cell) = element.call.iter().find(|cell| cell.name == name.name) {
        let why = if in_handler {
            "a CALL column, but there is no call here"
        } else {
            "available in call handlers only"
        };
        diagnostic
            .at(name.span, why)
            .with_label(cell.span, "declared here")
            .with_help("use a VAR or a TABLE for data that outlives a call")
    } else if let Some(var) = element.vars.iter().find(|var| var.name == name.name) {
        diagnostic
            .at(name.span, "a variable, whose value is known at run time only")
            .with_label(var.span, "declared here")
            .with_help("use a literal or a parameter")
    } else if scope.is_packet() && (METAS.iter().chain(FRAME_METAS)).any(|(known, ..)| *known == name.name) {
        let names: Vec<&str> = FRAME_METAS.iter().map(|(known, ..)| *known).collect();
        diagnostic.at(name.span, "not available here").with_help(format!(
            "available in ON PACKET: {}, and header fields such as `ip.src`",
            names.join(", ")
        ))
    } else if let Some((known, meta, ..)) = METAS.iter().find(|(known, ..)| *known == name.name) {
        diagnostic.at(name.span, "not available here").with_help(match meta {
            Meta::EndedBy => format!("`{known}` is available in ON CLOSE"),
            Meta::Elapsed | Meta::Status | Meta::Upstream => {
                format!("`{known}` is available in ON RESPONSE and ON CLOSE")
            }
            Meta::Size | Meta::Index | Meta::Payload => {
                format!("`{known}` is available in ON REQUEST and ON RESPONSE")
            }
            _ => format!("`{known}` is available in the handlers of a call"),
        })
    } else if name.name == "error" {
        diagnostic.at(name.span, "the name of an error").with_help("`error` is available in ON ERROR")
    } else {
        return false;
    };
    scope.cx.report(diagnostic);
    true
}

/// Returns all names that can be written here, for suggestions.
fn visible_names(scope: &Scope<'_, '_>) -> Vec<String> {
    let mut names: Vec<&str> = scope.locals.visible().iter().map(|(name, _)| name.name.as_str()).collect();
    for visible in
        scope.rows.visible().iter().filter(|visible| visible.visibility != ColumnVisibility::Hidden)
    {
        let table = scope.table(scope.rows.get(visible.row).table);
        names.extend(table.columns.iter().map(|column| column.name.as_str()));
    }
    let direction = scope.view.direction();
    let columns = scope.element.columns.iter().filter(|column| Some(column.direction) == direction);
    names.extend(columns.map(|column| column.name.as_str()));
    if scope.view.has_call() {
        names.extend(scope.element.call.iter().map(|cell| cell.name.as_str()));
    }
    if matches!(scope.view, View::Handler(_)) {
        names.extend(scope.element.vars.iter().map(|var| var.name.as_str()));
    }
    names.extend(scope.element.params.iter().map(|param| param.name.as_str()));
    let metas = METAS.iter().chain(FRAME_METAS).map(|(name, ..)| *name);
    names.extend(metas.filter(|name| scope.meta(name).is_some()));
    let mut distinct: Vec<String> = Vec::new();
    for name in names {
        if !distinct.iter().any(|before| before == name) {
            distinct.push(name.to_owned());
        }
    }
    distinct
}

fn tail(path: &Path) -> String {
    let names: Vec<&str> = path.segments[1..].iter().map(|segment| segment.name.as_str()).collect();
    names.join(".")
}
