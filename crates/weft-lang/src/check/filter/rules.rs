//! Checks the rules between filters, and between a filter and the traffic of its chain.

use weft_core::filter::{FILTERS_MAX, Policies, Reliability, Transport};

use crate::check::Cx;
use crate::check::chain::edge::Edge;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{Address, Chain, Cluster, FilterInstance, Method};

/// Checks the filters of a chain.
pub(in crate::check) fn check_chain(
    cx: &mut Cx<'_>,
    chain: &Chain,
    edge: &Edge<'_>,
    cluster: Option<&Cluster>,
) {
    if chain.filters.len() > FILTERS_MAX {
        let message =
            format!("this chain has {} filters; at most {FILTERS_MAX} are allowed", chain.filters.len());
        let diagnostic = Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(edge.span, "too long");
        return cx.report(diagnostic.with_help("combine policies in one filter"));
    }
    for (at, filter) in chain.filters.iter().enumerate() {
        check_streams(cx, filter, edge);
        check_at_most_once(cx, filter, &chain.filters[at..]);
        if let (Some(transport), Some(cluster)) = (filter.policies.over, cluster) {
            check_transport(cx, filter, transport, cluster);
        }
    }
    check_per_try(cx, chain);
}

/// Rejects filters that need a whole call on methods that stream.
fn check_streams(cx: &mut Cx<'_>, filter: &FilterInstance, edge: &Edge<'_>) {
    let policies = &filter.policies;
    if !policies.gathers() || !edge.is_known {
        return;
    }
    let keeps_answers = matches!(policies.once, Some(Reliability::AtLeastOnce { .. }));
    let (what, why) = match keeps_answers {
        true => ("stores answers for replay", "a stream cannot be stored"),
        false => ("retries calls", "a client stream cannot be sent twice"),
    };
    if edge.methods.is_empty() {
        let message = format!("`{}` {what}, but no method is declared", filter.name);
        let diagnostic = Diagnostic::error(code::FILTER_AND_STREAM, message)
            .at(filter.span, "a call may be a stream")
            .with_label(edge.span, "no method of this chain is declared")
            .with_note(format!("{why}, so the methods must be declared"))
            .with_help("declare the methods: `CREATE TYPE shop FROM PROTO 'shop.proto';`");
        return cx.report_missing(diagnostic);
    }
    let is_refused = |method: &&Method| method.client_streaming || (keeps_answers && method.server_streaming);
    let streams: Vec<&str> =
        edge.methods.iter().filter(is_refused).map(|method| method.path.as_str()).collect();
    let Some(first) = streams.first() else { return };
    let message = match streams.len() {
        1 => format!("`{}` {what}, but `{first}` streams", filter.name),
        n => format!("`{}` {what}, but {n} methods of the chain stream", filter.name),
    };
    let diagnostic = Diagnostic::error(code::FILTER_AND_STREAM, message).at(filter.span, why);
    let diagnostic = match streams.len() {
        1 => diagnostic,
        _ => diagnostic.with_note(format!("they are: {}", streams.join(", "))),
    };
    let whole = edge.methods.iter().find(|method| !is_refused(method));
    let example = whole.map_or("shop.Cart/Get", |method| &method.path);
    let help = format!("narrow the METHOD of the chain to methods that do not stream: `METHOD '{example}'`");
    cx.report(diagnostic.with_help(help));
}

/// Rejects retries after an AT MOST ONCE filter.
fn check_at_most_once(cx: &mut Cx<'_>, filter: &FilterInstance, from_here: &[FilterInstance]) {
    if filter.policies.once != Some(Reliability::AtMostOnce) {
        return;
    }
    for again in from_here.iter().filter(|other| other.policies.repeats()) {
        let message =
            format!("`{}` sends calls AT MOST ONCE, but `{}` retries them", filter.name, again.name);
        let diagnostic = Diagnostic::error(code::RETRY_AT_MOST_ONCE, message)
            .at(again.span, format!("retries by {}", repeated_by(&again.policies)));
        let diagnostic = match again.name == filter.name {
            true => diagnostic.with_help("remove one of the two policies"),
            false => diagnostic.with_label(filter.span, "at most once").with_help(format!(
                "remove one of the stages, or write `RELIABILITY AT LEAST ONCE ID ...` in `{}`",
                filter.filter
            )),
        };
        cx.report(diagnostic);
    }
}

/// The policy that retries calls.
fn repeated_by(policies: &Policies) -> &'static str {
    if policies.retry.is_some() { "RETRY" } else { "HEDGE" }
}

/// Reports a filter whose transport no endpoint of the cluster has.
fn check_transport(cx: &mut Cx<'_>, filter: &FilterInstance, transport: Transport, cluster: &Cluster) {
    let is_of = |address: &Address| match address {
        Address::Tcp(_) => transport == Transport::Tcp,
        Address::Unix(_) => transport == Transport::Unix,
    };
    if cluster.endpoints.iter().any(is_of) {
        return;
    }
    let name = transport.name();
    let message =
        format!("`{}` sends OVER {name}, but cluster `{}` has no such endpoint", filter.name, cluster.name);
    let example = match transport {
        Transport::Tcp => "'host:port'",
        Transport::Unix => "'unix:/run/app.sock'",
    };
    let diagnostic = Diagnostic::error(code::NO_TRANSPORT, message)
        .at(filter.span, "every call would fail")
        .with_label(cluster.span, "its endpoints")
        .with_help(format!("add one to the cluster: {example}; or remove OVER"));
    cx.report(diagnostic);
}

/// Warns of PER TRY on elements that see only one try.
fn check_per_try(cx: &mut Cx<'_>, chain: &Chain) {
    for (at, instance) in chain.instances.iter().enumerate().filter(|(_, instance)| instance.per_try) {
        if chain.filters.iter().any(|filter| filter.at <= at && filter.policies.repeats()) {
            continue;
        }
        let message = format!("no filter before `{}` retries calls", instance.name);
        let diagnostic = Diagnostic::warning(code::PER_TRY_ALONE, message)
            .at(instance.span, "runs once per call anyway")
            .with_help("remove PER TRY, or move the stage behind the filter that retries");
        cx.report(diagnostic);
    }
}
