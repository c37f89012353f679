//! Checks links: queues at ports, and in front of calls.

use super::{CONCURRENCY_MAX, Queues, expr};
use crate::ast::{self, Expr as AstExpr, ExprKind as AstKind, Ident, LinkCalls, LinkOn, QueueUse};
use crate::check::Cx;
use crate::check::header;
use crate::check::scope::with_nearest;
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{CallFlow, CallLink, CallsOf, Link, Network, PortKind, Queue, QueueLevel};

/// The range of call rates of a link.
pub(super) const CALLS_PER_SECOND: core::ops::RangeInclusive<f64> = 1e-3..=1e9;

impl Queues<'_> {
    /// Checks a link and adds it to the links of the network.
    pub(in crate::check) fn link(&self, cx: &mut Cx<'_>, network: &mut Network, item: &ast::Link) {
        match &item.on {
            LinkOn::Port { port, ingress } => {
                let link = self.link_on_port(cx, network, item, (port, ingress.is_some()));
                network.links.extend(link);
            }
            LinkOn::Calls(calls) => {
                let link = self.link_of_calls(cx, network, item, calls);
                network.call_links.extend(link);
            }
        }
    }

    /// Checks a link on a port, in one direction.
    fn link_on_port(
        &self,
        cx: &mut Cx<'_>,
        network: &Network,
        item: &ast::Link,
        (on, ingress): (&Ident, bool),
    ) -> Option<Link> {
        let ports = &network.ports;
        let names = ports.iter().map(|port| port.name.as_str());
        let Some(port) = ports.iter().position(|port| port.name == on.name) else {
            let diagnostic = Diagnostic::error(code::NOT_IN_NETWORK, format!("unknown port `{}`", on.name))
                .at(on.span, "unknown");
            return with_nearest(diagnostic, on, names).refuse_missing(cx);
        };
        if ports[port].kind == PortKind::Pcap && !ingress {
            let help = "put the link on a device port, or simulate it with `weft sim`";
            cx.fault(code::QUEUE_USE, "a capture file needs no queue", on.span, "a file", help);
        }
        let rate = match &item.rate {
            None => None,
            Some(AstExpr { kind: AstKind::Str(text), span }) => {
                let rate = expr::rate(text);
                if rate.is_none() {
                    let message = format!("`{text}` is not a rate");
                    let help = "write '15 Mbit/s': bit/s, kbit/s, Mbit/s or Gbit/s";
                    cx.fault(code::BAD_LITERAL, message, *span, "bits per second", help);
                }
                rate
            }
            Some(other) => Diagnostic::error(code::BAD_LITERAL, "a rate is written as a text")
                .at(other.span, "bits per second")
                .with_help("write '15 Mbit/s'")
                .refuse(cx),
        };
        let levels = self.resolve_use(cx, &item.queue, &mut Vec::new())?;
        let queue = Queue { name: item.queue.queue.name.clone(), levels, span: item.queue.span };
        let name = item.name.name.clone();
        Some(Link { name, port, ingress, rate, queue, on_failure: item.on_failure, span: item.span })
    }

    /// Checks a link on a listener or cluster.
    fn link_of_calls(
        &self,
        cx: &mut Cx<'_>,
        network: &Network,
        item: &ast::Link,
        calls: &LinkCalls,
    ) -> Option<CallLink> {
        let LinkCalls { is_listener, on, concurrency, key, class } = calls;
        let what = if *is_listener { "listener" } else { "cluster" };
        let names: Vec<&str> = match is_listener {
            true => network.listeners.iter().map(|listener| listener.name.as_str()).collect(),
            false => network.clusters.iter().map(|cluster| cluster.name.as_str()).collect(),
        };
        let Some(at) = names.iter().position(|name| *name == on.name) else {
            let diagnostic = Diagnostic::error(code::NOT_IN_NETWORK, format!("unknown {what} `{}`", on.name))
                .at(on.span, "unknown");
            return with_nearest(diagnostic, on, names).refuse_missing(cx);
        };
        let of = if *is_listener { CallsOf::Listener(at) } else { CallsOf::Cluster(at) };
        if let Some(other) = network.call_links.iter().find(|link| link.of == of) {
            let way = if *is_listener { "from" } else { "to" };
            let message = format!("calls {way} `{}` already wait in link `{}`", on.name, other.name);
            let diagnostic =
                Diagnostic::error(code::QUEUE_USE, message).at(on.span, "has a link already").with_help(
                    format!("a {what} can have one link: to nest queues, use `EACH USING` in its queue"),
                );
            cx.report(diagnostic);
        }
        if item.on_failure.is_some() {
            let message = format!("a {what} has no device that can fail");
            let help = "unreachable endpoints are ejected; use RETRY to try another one";
            cx.fault(code::QUEUE_USE, message, item.span, "ON FAILURE applies to ports", help);
        }
        if concurrency.is_none() && item.rate.is_none() {
            let help = "write `CONCURRENCY 64` to limit calls in flight, or RATE '1000 calls/s'";
            cx.fault(code::QUEUE_USE, "no call ever waits in this link", on.span, "no limit given", help);
        }
        let concurrency = concurrency.as_ref().and_then(|expr| concurrency_of(cx, expr));
        let step_ns = item.rate.as_ref().and_then(|expr| step_of(cx, expr));
        let key = key.as_ref().map_or(Some(CallFlow::Host), |expr| flow_of(cx, expr));
        let class = class.as_ref().and_then(|expr| header_of(cx, "CLASS", expr));
        let levels = self.resolve_use(cx, &item.queue, &mut Vec::new())?;
        no_headers(cx, &item.queue, &levels);
        let queue = Queue { name: item.queue.queue.name.clone(), levels, span: item.queue.span };
        let name = item.name.name.clone();
        Some(CallLink { name, of, concurrency, step_ns, key: key?, class, queue, span: item.span })
    }
}

/// Rejects a queue that reads headers where no packets have headers.
fn no_headers(cx: &mut Cx<'_>, used: &QueueUse, levels: &[QueueLevel]) {
    let Some(header) = levels.iter().flat_map(|level| &level.headers).next() else { return };
    let message = format!("calls have no `{}`", header.name);
    let diagnostic = Diagnostic::error(code::QUEUE_USE, message)
        .at(used.span, "reads packet fields")
        .with_label(header.span, "here")
        .with_help(
            "classify calls with `KEY header['...']` and `CLASS header['...']`, and read `flow()` and `p.class`",
        );
    cx.report(diagnostic);
}

/// Reads `CONCURRENCY n`.
fn concurrency_of(cx: &mut Cx<'_>, expr: &AstExpr) -> Option<u32> {
    match expr.kind {
        AstKind::Int(n) if (1..=u64::from(CONCURRENCY_MAX)).contains(&n) => Some(n as u32),
        _ => {
            let message = format!("CONCURRENCY must be 1 to {CONCURRENCY_MAX}");
            Diagnostic::error(code::OVER_LIMIT, message).at(expr.span, "outside the limits").refuse(cx)
        }
    }
}

/// Reads `RATE '1000 calls/s'` as nanoseconds per call.
fn step_of(cx: &mut Cx<'_>, expr: &AstExpr) -> Option<u64> {
    let rate = match &expr.kind {
        AstKind::Str(text) => {
            text.trim().strip_suffix("calls/s").and_then(|text| text.trim_end().parse::<f64>().ok())
        }
        _ => None,
    };
    let Some(rate) = rate.filter(|rate| CALLS_PER_SECOND.contains(rate)) else {
        let help = "write '1000 calls/s': from 0.001 to 1000000000";
        return cx.refuse(code::BAD_LITERAL, "this is not a call rate", expr.span, "calls per second", help);
    };
    Some((1e9 / rate).round() as u64)
}

/// Reads the flow key of calls: `KEY session`, or `KEY header['tenant']`.
fn flow_of(cx: &mut Cx<'_>, expr: &AstExpr) -> Option<CallFlow> {
    match &expr.kind {
        AstKind::Path(path)
            if path.as_ident().is_some_and(|name| name.name.eq_ignore_ascii_case("session")) =>
        {
            Some(CallFlow::Session)
        }
        _ => header_of(cx, "KEY", expr).map(CallFlow::Header),
    }
}

/// Reads the name of the header in `KEY header['tenant']`.
fn header_of(cx: &mut Cx<'_>, clause: &str, expr: &AstExpr) -> Option<String> {
    if let AstKind::Header(key) = &expr.kind
        && let AstKind::Str(name) = &key.kind
    {
        return header::name(cx, name, key.span);
    }
    let or_session = if clause == "KEY" { ", or `KEY session` for connections" } else { "" };
    let diagnostic =
        Diagnostic::error(code::QUEUE_USE, format!("{clause} of a link must be a header of the call"))
            .at(expr.span, "not a valid name")
            .with_help(format!(
                "write `{clause} header['tenant']`{or_session}; an element of the chain can set it: \
                 `SET header['tenant'] = tenant`"
            ));
    diagnostic.refuse(cx)
}
