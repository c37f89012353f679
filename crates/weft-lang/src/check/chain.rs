//! Checks chains: instances with their parameters and bindings, options, and checks that depend on the traffic.

pub(super) mod args;
pub(super) mod bind;
pub(super) mod edge;
mod options;
mod ports;
mod stages;
pub(super) mod standalone;
pub(super) mod whole;

use weft_core::methods::MethodSet;

use super::Cx;
use super::filter::{self, Filter};
use super::network::{self, find_cluster, find_listener};
use crate::ast::{self, ChainOn};
use crate::check::checked::Checked;
use crate::hir::{self, Chain, Equivalence, Network};
use edge::{Edge, methods};
use ports::packet_edge;
use stages::stages_of;

/// Checks a chain; None if it has an error.
pub(super) fn chain(
    cx: &mut Cx<'_>,
    network: &Network,
    (elements, filters): (&mut Vec<Checked>, &[Filter<'_>]),
    ast: &ast::Chain,
) -> Option<Chain> {
    let had_gaps = cx.has_gaps;
    cx.has_gaps |= ast.is_faulty;
    let method = match &ast.on {
        ChainOn::Edge { method, .. } => method.as_ref(),
        ChainOn::Port { .. } => None,
    };
    let method_set = network::method_set(cx, method);
    let is_packet = matches!(ast.on, ChainOn::Port { .. });
    let methods = match &method_set {
        Some(set) if !is_packet => methods(cx, set),
        _ => Vec::new(),
    };
    let on = match &ast.on {
        ChainOn::Edge { from, to, .. } => {
            let from = find_listener(cx, from, &network.listeners);
            let to = find_cluster(cx, to, &network.clusters);
            from.zip(to).map(|(from, to)| hir::Edge::Calls { from, to })
        }
        ChainOn::Port { ports, to, when, .. } => {
            packet_edge(cx, (&network.ports, &network.groups), ast, (ports, to.as_ref()), when.as_ref())
        }
    };
    let edge = Edge { methods: &methods, is_known: method_set.is_some(), is_packet, span: ast.name.span };
    let placed = stages_of(cx, (elements, filters), &edge, ast);
    let is_whole = placed.is_whole;
    elements.extend(placed.specialised);
    let mut chain = Chain {
        name: ast.name.name.clone(),
        edge: on.clone().unwrap_or(hir::Edge::Calls { from: 0, to: 0 }),
        // An empty method set overlaps with no other chain.
        method_set: method_set.unwrap_or_else(|| MethodSet::of([])),
        methods: Vec::new(),
        instances: placed.instances,
        filters: placed.filters,
        equivalence: Equivalence::default(),
        pin_stream_drain: None,
        orders: Vec::new(),
        priorities: Vec::new(),
        unordered: placed.unordered,
        branches: Vec::new(),
        span: ast.span,
    };
    if is_packet {
        options::branches(cx, elements, ast, &mut chain, &placed.branches);
    }
    options::options(cx, ast, &mut chain, is_whole);
    options::sides(cx, ast, &mut chain);
    whole::check_inputs(cx, elements, &chain, ast);
    if is_whole {
        whole::stage_tables(cx, elements, &chain);
    }
    let cluster = chain.edge.calls().filter(|_| on.is_some()).map(|(_, to)| &network.clusters[to]);
    filter::check_chain(cx, &chain, &edge, cluster);
    chain.methods = methods;
    cx.has_gaps = had_gaps;
    on.is_some().then_some(chain)
}
