//! What must hold between filters, and between a filter and the traffic of its chain.

use weft_core::filter::{FILTERS_MAX, Policies, Reliability, Transport};

use crate::check::Cx;
use crate::check::chain::Edge;
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
            format!("a chain has {FILTERS_MAX} filters at most, and this has {}", chain.filters.len());
        let diagnostic = Diagnostic::error(code::CHAIN_TOO_LARGE, message).at(edge.span, "too long");
        return cx.report(diagnostic.with_help("write several policies into one filter"));
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

/// Refuses filters that must have a call as a whole where it comes in pieces.
fn check_streams(cx: &mut Cx<'_>, filter: &FilterInstance, edge: &Edge<'_>) {
    let policies = &filter.policies;
    if !policies.gathers() || !edge.is_known {
        return;
    }
    let keeps_answers = matches!(policies.once, Some(Reliability::AtLeastOnce { .. }));
    let (what, why) = match keeps_answers {
        true => ("keeps answers, to give them again", "a stream is not kept"),
        false => ("sends calls again", "what a client streams is gone when it was sent once"),
    };
    if edge.methods.is_empty() {
        let message = format!("`{}` {what}, and no method is known", filter.name);
        let diagnostic = Diagnostic::error(code::FILTER_AND_STREAM, message)
            .at(filter.span, "a call may be a stream")
            .with_label(edge.span, "this chain carries no known method")
            .with_note(format!("{why}, so the methods must be known"))
            .with_help("say what the methods are: `CREATE TYPE shop FROM PROTO 'shop.proto';`");
        return cx.report_missing(diagnostic);
    }
    let is_refused = |method: &&Method| method.client_streaming || (keeps_answers && method.server_streaming);
    let streams: Vec<&str> =
        edge.methods.iter().filter(is_refused).map(|method| method.path.as_str()).collect();
    let Some(first) = streams.first() else { return };
    let message = match streams.len() {
        1 => format!("`{}` {what}, and `{first}` streams", filter.name),
        n => format!("`{}` {what}, and {n} methods of the chain stream", filter.name),
    };
    let diagnostic = Diagnostic::error(code::FILTER_AND_STREAM, message).at(filter.span, why);
    let diagnostic = match streams.len() {
        1 => diagnostic,
        _ => diagnostic.with_note(format!("they are: {}", streams.join(", "))),
    };
    let whole = edge.methods.iter().find(|method| !is_refused(method));
    let example = whole.map_or("shop.Cart/Get", |method| &method.path);
    let help = format!("narrow the METHOD of the chain to methods that do not: `METHOD '{example}'`");
    cx.report(diagnostic.with_help(help));
}

/// Refuses what sends a call again behind a promise that it is sent once.
fn check_at_most_once(cx: &mut Cx<'_>, filter: &FilterInstance, from_here: &[FilterInstance]) {
    if filter.policies.once != Some(Reliability::AtMostOnce) {
        return;
    }
    for again in from_here.iter().filter(|other| other.policies.repeats()) {
        let message =
            format!("`{}` has calls sent AT MOST ONCE, and `{}` sends them again", filter.name, again.name);
        let diagnostic = Diagnostic::error(code::RETRY_AT_MOST_ONCE, message)
            .at(again.span, format!("sends again, by {}", repeated_by(&again.policies)));
        let diagnostic = match again.name == filter.name {
            true => diagnostic.with_help("drop one of the two policies"),
            false => diagnostic.with_label(filter.span, "sends once").with_help(format!(
                "drop one of the stages, or write `RELIABILITY AT LEAST ONCE ID ...` in `{}`",
                filter.filter
            )),
        };
        cx.report(diagnostic);
    }
}

/// The policy that sends a call again.
fn repeated_by(policies: &Policies) -> &'static str {
    if policies.retry.is_some() { "RETRY" } else { "HEDGE" }
}

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
        format!("`{}` goes OVER {name}, and cluster `{}` has no such endpoint", filter.name, cluster.name);
    let example = match transport {
        Transport::Tcp => "'host:port'",
        Transport::Unix => "'unix:/run/app.sock'",
    };
    let diagnostic = Diagnostic::error(code::NO_TRANSPORT, message)
        .at(filter.span, "no call could go on")
        .with_label(cluster.span, "its endpoints")
        .with_help(format!("give the cluster one: {example}; or drop OVER"));
    cx.report(diagnostic);
}

/// Tells of elements that are to run once a try where there is one try.
fn check_per_try(cx: &mut Cx<'_>, chain: &Chain) {
    for (at, instance) in chain.instances.iter().enumerate().filter(|(_, instance)| instance.per_try) {
        if chain.filters.iter().any(|filter| filter.at <= at && filter.policies.repeats()) {
            continue;
        }
        let message = format!("no filter before `{}` sends calls again", instance.name);
        let diagnostic = Diagnostic::warning(code::PER_TRY_ALONE, message)
            .at(instance.span, "runs once a call, with PER TRY or without")
            .with_help("drop PER TRY, or put the stage behind the filter that tries again");
        cx.report(diagnostic);
    }
}
