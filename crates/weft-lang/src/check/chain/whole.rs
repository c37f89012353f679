//! Checks a chain as a whole, and chains beside each other.

use std::collections::BTreeSet;

use weft_core::limits::INPUTS_MAX;

use super::options::mandatory_may_fail;
use crate::ast;
use crate::check::checked::Checked;
use crate::check::network::overlap;
use crate::check::{Cx, walk};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{self, Chain, Direction, Instance, Port, Route, StmtKind, Table, TableColumn, VerdictKind};
use crate::source::Span;

/// Reports mandatory stages whose ON ERROR lets a call pass.
pub(in crate::check) fn check_mandatory(cx: &mut Cx<'_>, elements: &[Checked], chain: &Chain) {
    for instance in chain.instances.iter().filter(|instance| instance.mandatory) {
        let Some(handler) = &elements[instance.element].element.handlers.error else { continue };
        let mut forward = None;
        let ends = handler.body.last().is_some_and(|stmt| matches!(stmt.kind, StmtKind::Verdict(_)));
        walk::each_stmt(&handler.body, &mut |stmt| {
            if let StmtKind::Verdict(verdict) = &stmt.kind
                && verdict.kind == VerdictKind::Forward
            {
                forward = Some(verdict.span);
            }
        });
        if let Some(span) = forward.or((!ends).then_some(handler.span)) {
            mandatory_may_fail(cx, instance, span, "an ON ERROR that forwards");
        }
    }
}

/// Reports a chain that reads more inputs than the limit.
pub(super) fn check_inputs(cx: &mut Cx<'_>, elements: &[Checked], chain: &Chain, ast: &ast::Chain) {
    for direction in [Direction::Request, Direction::Response] {
        let mut places: BTreeSet<String> = BTreeSet::new();
        for instance in &chain.instances {
            let element = &elements[instance.element].element;
            for (column, binding) in element.columns.iter().zip(&instance.bindings) {
                if column.direction == direction {
                    places.insert(format!("{:?} {}", binding.place, column.ty));
                }
            }
            let handlers = element.handlers.iter().filter(|handler| {
                use hir::HandlerKind as H;
                let is_request = matches!(handler.kind, H::Open | H::Request);
                is_request == (direction == Direction::Request)
            });
            for effects in handlers.map(|handler| &handler.effects) {
                let headers = effects.headers_read.iter().chain(&effects.headers_written);
                places.extend(headers.map(|name| format!("header {name}")));
                let trailers = effects.trailers_read.iter().chain(&effects.trailers_written);
                places.extend(trailers.map(|name| format!("trailer {name}")));
                places.extend(effects.metas_read.iter().map(|meta| format!("{meta:?}")));
            }
        }
        if places.len() > INPUTS_MAX {
            let message = format!(
                "chain `{}` uses {} fields and headers in one direction; the limit is {INPUTS_MAX}",
                chain.name,
                places.len()
            );
            let diagnostic =
                Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(ast.name.span, "too many inputs");
            cx.report(diagnostic.with_help("let elements share columns, or read fewer headers"));
        }
    }
}

/// Reports chains that match the same calls.
///
/// Only one of two chains on an edge can run. Two chains from one listener to different clusters need routes to
/// separate the calls; a chain without a route on its edge matches all calls of its METHOD.
pub(in crate::check) fn check_overlaps(
    cx: &mut Cx<'_>,
    chains: &[Chain],
    routes: &[Route],
    items: &[&ast::Chain],
) {
    let is_routed = |chain: &Chain| {
        routes.iter().any(|route| chain.edge.calls() == Some((route.listener, route.cluster)))
    };
    let named: Vec<(Span, &Chain)> = items
        .iter()
        .filter_map(|item| {
            chains.iter().find(|chain| chain.span == item.span).map(|chain| (item.name.span, chain))
        })
        .collect();
    for (index, (span, chain)) in named.iter().enumerate() {
        for (first_span, first) in &named[..index] {
            let (Some(one), Some(other)) = (first.edge.calls(), chain.edge.calls()) else { continue };
            let same_edge = one == other;
            let contradict = one.0 == other.0
                && overlap(cx, &first.method_set, &chain.method_set)
                && (same_edge || (!is_routed(first) && !is_routed(chain)));
            if !contradict {
                continue;
            }
            let message = format!("chains `{}` and `{}` match the same calls", first.name, chain.name);
            let help = match same_edge {
                true => "merge the stages into one chain, or narrow the METHOD of one",
                false => {
                    "narrow the METHOD of one, or separate the calls by routes: `CREATE ROUTE ... WHEN ... TO \
                     CLUSTER ...`"
                }
            };
            let diagnostic = Diagnostic::error(code::OVERLAP, message)
                .at(*span, "the second")
                .with_label(*first_span, "the first")
                .with_help(help);
            cx.report(diagnostic);
        }
    }
}

/// Warns of chains on ports that receive no frames, because an earlier chain matches all of them.
pub(in crate::check) fn warn_of_unreachable(
    cx: &mut Cx<'_>,
    chains: &[Chain],
    ports: &[Port],
    items: &[&ast::Chain],
) {
    let name_of =
        |chain: &Chain| items.iter().find(|item| item.span == chain.span).map(|item| item.name.span);
    // For each port, the first chain that matches all of its frames.
    let mut takes_all: Vec<Option<&Chain>> = vec![None; ports.len()];
    for chain in chains {
        let hir::Edge::Packets { ports: on, when, .. } = &chain.edge else { continue };
        let earlier: Option<Vec<(usize, &Chain)>> =
            on.iter().map(|port| Some((*port, takes_all[*port]?))).collect();
        match (earlier, name_of(chain)) {
            (Some(earlier), Some(name)) if !earlier.is_empty() => {
                let message = format!("chain `{}` receives no frames", chain.name);
                let mut diagnostic = Diagnostic::warning(code::CHAIN_UNREACHABLE, message)
                    .at(name, "a frame goes through the first matching chain on its port only");
                let mut listed: Vec<&str> = Vec::new();
                for (port, first) in earlier {
                    if !listed.contains(&&*first.name) {
                        let label = format!("matches all frames of `{}`", ports[port].name);
                        diagnostic = diagnostic.with_label(name_of(first).unwrap_or(first.span), label);
                        listed.push(&first.name);
                    }
                }
                cx.report(diagnostic.with_help(
                    "add a WHEN to the earlier chain, declare this chain before it, or merge their stages",
                ));
            }
            _ => {}
        }
        if when.is_none() {
            on.iter().for_each(|port| takes_all[*port] = takes_all[*port].or(Some(chain)));
        }
    }
}

/// Checks tables that belong to another stage: the chain must have exactly one stage of that element, with a table that
/// the controller fills and that has the same columns.
pub(super) fn stage_tables(cx: &mut Cx<'_>, elements: &[Checked], chain: &Chain) {
    let of = |instance: &Instance| &elements[instance.element].element;
    for instance in &chain.instances {
        let tables = of(instance).tables.iter().filter_map(|table| Some((table, table.stage.as_ref()?)));
        for (table, stage) in tables {
            let stages: Vec<&Instance> =
                chain.instances.iter().filter(|other| of(other).name == *stage).collect();
            let one = format!("add one `{stage}` stage to the chain");
            let (why, help) = match stages[..] {
                [] => (format!("chain `{}` has no `{stage}` stage", chain.name), one),
                [one] if one.name == instance.name => (
                    format!("`{stage}` cannot fill its own table"),
                    "name another stage's element".to_owned(),
                ),
                [one] => match of(one).tables.iter().find(|other| other.name == table.name) {
                    None => (
                        format!("`{stage}` has no table `{}`", table.name),
                        "name one of its tables".to_owned(),
                    ),
                    Some(other) if !is_same(table, other) => (
                        format!(
                            "the table of `{stage}` has different columns, or is not FILLED BY CONTROLLER"
                        ),
                        "declare it with the same columns as that table".to_owned(),
                    ),
                    Some(_) => continue,
                },
                _ => (format!("chain `{1}` has {0} `{stage}` stages", stages.len(), chain.name), one),
            };
            let message = format!("`{}` of `{}` is a table of `{stage}`: {why}", table.name, instance.name);
            let diagnostic = Diagnostic::error(code::NO_SUCH_STAGE, message)
                .at(instance.span, "reads the table of another stage")
                .with_label(table.span, "declared here")
                .with_help(help);
            cx.report(diagnostic);
        }
    }
}

/// Whether two tables have the same row format.
fn is_same(table: &Table, other: &Table) -> bool {
    let column = |column: &TableColumn| (column.name.clone(), column.ty, column.nullable);
    let columns = |table: &Table| table.columns.iter().map(column).collect::<Vec<_>>();
    other.filled == Some(ast::Filler::Controller)
        && table.n_keys == other.n_keys
        && columns(table) == columns(other)
}
