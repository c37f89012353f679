//! Checks limits on the number of parts of a declaration: some checks compare all pairs of parts.

use super::Cx;
use crate::ast::{ChainOn, Decl, Item};
use crate::diagnostic::{Diagnostic, code};
use crate::resolve;
use crate::source::Span;

/// The maximum number of items in a program.
pub const ITEMS_MAX: usize = 10_000;
/// The maximum number of parameters, columns, declarations, handlers, policies or endpoints of one item.
pub const PARTS_MAX: usize = 1024;

/// Returns the items within the limits. The others are reported and not checked.
pub(super) fn within_size_limits<'a>(cx: &mut Cx<'_>, items: &'a [Item]) -> Vec<&'a Item> {
    if items.len() > ITEMS_MAX {
        let message = format!("this program has {} items; at most {ITEMS_MAX} are allowed", items.len());
        let diagnostic = Diagnostic::error(code::OVER_LIMIT, message);
        cx.report(match items.iter().skip(ITEMS_MAX).find_map(resolve::named) {
            Some((_, name, _)) => diagnostic.at(name.span, "the rest is not checked"),
            None => diagnostic,
        });
        cx.has_gaps = true;
    }
    let mut kept = Vec::new();
    for item in items.iter().take(ITEMS_MAX) {
        match lists(item).into_iter().find(|(_, n, _)| *n > PARTS_MAX) {
            None => kept.push(item),
            Some((what, n, span)) => {
                let message = format!("there are {n} {what}; at most {PARTS_MAX} are allowed");
                cx.report(Diagnostic::error(code::OVER_LIMIT, message).at(span, "ignored"));
                cx.has_gaps = true;
            }
        }
    }
    kept
}

/// Returns the lists of an item: name, length and span.
fn lists(item: &Item) -> Vec<(&'static str, usize, Span)> {
    match item {
        Item::Element(item) => {
            let mut lists = vec![
                ("parameters", item.params.len(), item.name.span),
                ("columns", item.fields.len() + item.returns.len(), item.name.span),
                ("declarations", item.decls.len(), item.name.span),
                ("handlers", item.handlers.len(), item.name.span),
            ];
            lists.extend(item.decls.iter().filter_map(|decl| match decl {
                Decl::Table(decl) => Some(("columns", decl.columns.len(), decl.name.span)),
                Decl::Sink(decl) => Some(("columns", decl.columns.len(), decl.name.span)),
                Decl::Call(decl) => Some(("columns", decl.columns.len(), decl.span)),
                _ => None,
            }));
            lists
        }
        Item::Filter(item) => vec![
            ("parameters", item.params.len(), item.name.span),
            ("columns", item.fields.len(), item.name.span),
            ("policies", item.policies.len(), item.name.span),
        ],
        Item::Table(item) => vec![("columns", item.columns.len(), item.name.span)],
        Item::Cluster(item) => vec![
            ("endpoints", item.endpoints.len(), item.name.span),
            ("options", item.options.len(), item.name.span),
        ],
        Item::Listener(item) => vec![("options", item.options.len(), item.name.span)],
        Item::Chain(item) => {
            let n_ports = if let ChainOn::Port { ports, .. } = &item.on { ports.len() } else { 0 };
            vec![
                ("stages", item.stages.len(), item.name.span),
                ("options", item.options.len(), item.name.span),
                ("ports", n_ports, item.name.span),
            ]
        }
        Item::Protocol(item) => vec![
            ("parts of a header", item.items.len(), item.name.span),
            ("clauses", item.clauses.len(), item.name.span),
        ],
        Item::Union(item) => vec![
            ("members", item.members.len(), item.name.span),
            ("columns", item.columns.len(), item.name.span),
        ],
        Item::Port(item) => vec![("options", item.options.len(), item.name.span)],
        Item::Queue(item) => vec![
            ("parameters", item.params.len(), item.name.span),
            ("declarations", item.decls.len(), item.name.span),
            ("handlers", item.handlers.len(), item.name.span),
        ],
        _ => Vec::new(),
    }
}
