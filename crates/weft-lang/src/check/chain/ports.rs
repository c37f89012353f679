//! Checks the ports and the WHEN of a chain on frames.

use crate::ast::{self, Ident};
use crate::check::Cx;
use crate::check::expr::Environment;
use crate::check::network::{find, writes_capture};
use crate::diagnostic::{Diagnostic, code};
use crate::hir::{
    self, Element, Group, Instance, Outlet, Port, PortKind, Query, StmtKind, Verdict, VerdictKind,
};

use super::standalone::standalone_frame_element;

/// Checks the ports of a chain on frames; None if there is an error.
pub(super) fn packet_edge(
    cx: &mut Cx<'_>,
    (all, groups): (&[Port], &[Group]),
    ast: &ast::Chain,
    (ports, to): (&[Ident], Option<&Ident>),
    when: Option<&ast::Expr>,
) -> Option<hir::Edge> {
    let example = "ON packet 'eth0'";
    let group = to.and_then(|to| groups.iter().position(|group| group.name == to.name));
    // A group with an error is not in the list, but its name is known.
    let is_faulty = |to: &Ident| cx.ports.contains(&to.name) && !all.iter().any(|port| port.name == to.name);
    let is_faulty_group = group.is_none() && to.is_some_and(is_faulty);
    let mut find_port = |name: &Ident| find(cx, name, all, |port: &Port| &port.name, "port", example);
    let found: Vec<Option<usize>> = ports.iter().map(&mut find_port).collect();
    let to = match group {
        Some(group) => Some(Some(Outlet::Group(group))),
        None if is_faulty_group => Some(None),
        None => to.map(|to| find_port(to).map(Outlet::Port)),
    };
    for (at, name) in ports.iter().enumerate() {
        if let Some(first) = ports[..at].iter().find(|first| first.name == name.name) {
            cx.report_duplicate("port", name, first.span);
        }
    }
    let is_read = |at: &usize| !writes_capture(&all[*at]);
    if let Some((at, name)) = found.iter().flatten().zip(ports).find(|(at, _)| !is_read(at)) {
        let message = format!("port `{}` receives no frames", name.name);
        let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
            .at(name.span, "a capture file opened for writing")
            .with_label(all[*at].span, "declared here")
            .with_help(format!("use it as the output port: `ON PORT ... -> {}`", name.name));
        cx.report(diagnostic);
    }
    if let Some(Some(Outlet::Port(at))) = to
        && all[at].kind == PortKind::Pcap
        && is_read(&at)
    {
        let message = format!("port `{}` sends no frames", all[at].name);
        let diagnostic = Diagnostic::error(code::OPTION_CONFLICT, message)
            .at(all[at].span, "a capture file opened for reading")
            .with_help("open it for writing: `WITH (write = TRUE)`");
        cx.report(diagnostic);
    }
    let when = match when {
        Some(when) => Some(Box::new(when_element(cx, ast, when)?)),
        None => None,
    };
    let ports = found.into_iter().collect::<Option<Vec<usize>>>()?;
    let to = match to {
        Some(to) => Some(to?),
        None => None,
    };
    Some(hir::Edge::Packets { ports, to, when })
}

/// `WHEN` of a chain on frames: a generated element that drops all other frames.
fn when_element(cx: &mut Cx<'_>, ast: &ast::Chain, when: &ast::Expr) -> Option<(Element, Instance)> {
    standalone_frame_element(cx, &ast.name.name, when.span, |scope| {
        let otherwise = Verdict { kind: VerdictKind::Drop, span: when.span };
        let query = Query { joins: Vec::new(), filter: Some(scope.condition(when)?) };
        Some(StmtKind::Guard { query, set: Vec::new(), otherwise })
    })
}
