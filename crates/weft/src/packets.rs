//! From a checked program to what the packet path runs.

use crate::compile::refused;
use crate::natives;
use std::sync::Arc;
use weft_core::Value;
use weft_engine::call_link::{CallLink, Shared};
use weft_engine::packet::group::{Choice, GroupPlan, Member};
use weft_engine::packet::link::{LinkPlan, OnFailure};
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain, PacketPlan};
use weft_engine::state::Staged;
use weft_io::packet::file::Pace;
use weft_io::packet::port::{Driver, PortConfig, QUEUES_MAX};
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;
use weft_ir::queue::{QueueCode, QueueProgram};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Edge, GroupChoice, PortKind, Setting};
use weft_lang::source::{SourceMap, Span};
use weft_opt::lower::{LowerOptions, lower_when, lower_with_lines};

/// Chains on ports, lowered: the index of the chain, its program and that of its condition.
pub(crate) struct Lowered {
    chain: usize,
    program: ChainProgram,
    condition: Option<ChainProgram>,
}

impl Lowered {
    /// What the chain does, to be given rows.
    pub(crate) fn program(&mut self) -> &mut ChainProgram {
        &mut self.program
    }
}

/// What is wrong with ports, and with the conditions of chains on them: the chains are lowered with all others.
pub(crate) fn check(network: &hir::Network, sources: &SourceMap) -> Vec<Diagnostic> {
    let options = LowerOptions { workers: 1 };
    let conditions =
        (0..network.chains.len()).map(|chain| lower_when(network, chain, &options, Some(sources)));
    let conditions = conditions.flatten().filter_map(Result::err).flatten();
    let queues = network.ports.iter().filter_map(|port| queues_of(port).err());
    queues.map(|why| *why).chain(conditions).collect()
}

/// The ports of a network, as a node opens them.
///
/// # Errors
/// Diagnostics: a port has no device, or more queues than it can have.
pub(crate) fn ports_of(network: &hir::Network) -> Result<Vec<PortConfig>, Vec<Diagnostic>> {
    let (mut ports, mut refused) = (Vec::new(), Vec::new());
    for port in &network.ports {
        match port_of(port) {
            Ok(port) => ports.push(port),
            Err(why) => refused.push(*why),
        }
    }
    if refused.is_empty() { Ok(ports) } else { Err(refused) }
}

fn port_of(port: &hir::Port) -> Result<PortConfig, Box<Diagnostic>> {
    let text = |name: &str| match setting(port, name).map(|option| &option.value) {
        Some(Value::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    let is_set = |name: &str| setting(port, name).is_some_and(|option| option.value == Value::Bool(true));
    let driver = match port.kind {
        PortKind::Packet => Driver::Packet,
        PortKind::Xdp => Driver::Xdp { is_zero_copy_tried: is_set("zero_copy") },
        PortKind::Tun => Driver::Tun,
        PortKind::Tap => Driver::Tap,
        PortKind::Pcap if is_set("write") => Driver::Write,
        PortKind::Pcap if text("speed").as_deref() == Some("recorded") => Driver::Read(Pace::Recorded),
        PortKind::Pcap => Driver::Read(Pace::Full),
        PortKind::Memory => return Err(Box::new(without_device(port))),
    };
    Ok(PortConfig {
        name: port.name.clone(),
        driver,
        device: port.device.clone(),
        namespace: text("namespace"),
        queues: queues_of(port)?,
    })
}

fn setting<'n>(port: &'n hir::Port, name: &str) -> Option<&'n Setting> {
    port.options.iter().find(|option| option.name == name)
}

/// How many queues a port asks for, if it says.
fn queues_of(port: &hir::Port) -> Result<Option<u16>, Box<Diagnostic>> {
    let Some(Setting { value: Value::Int(n), span, .. }) = setting(port, "queues") else { return Ok(None) };
    let n = u16::try_from(*n).ok().filter(|n| (1..=QUEUES_MAX).contains(n));
    n.map(Some).ok_or_else(|| {
        let message = format!("a port has 1 to {QUEUES_MAX} `queues`");
        Box::new(Diagnostic::error(code::OVER_LIMIT, message).at(*span, "outside the limits"))
    })
}

fn without_device(port: &hir::Port) -> Diagnostic {
    let message = format!("port `{}` is on memory, from which nothing comes in a node that runs", port.name);
    Diagnostic::error(code::BACKEND_UNSUPPORTED, message)
        .at(port.span, "cannot be run here")
        .with_help("put it on `packet`, `xdp`, `tun`, `tap` or `pcap`; `weft replay` takes it as it is")
}

/// Devices are opened when a node starts: a program with other ports needs another node. So does one that is the first
/// or the last to have listeners, for state is laid out for the workers that share it.
pub(crate) fn other_ports(network: &hir::Network) -> Diagnostic {
    let span = network.ports.first().map(|port| port.span).or(network.chains.first().map(|chain| chain.span));
    let diagnostic = Diagnostic::error(
        code::BACKEND_UNSUPPORTED,
        "the ports of a node, and whether it has listeners beside them, do not change while it runs",
    );
    let diagnostic = match span {
        Some(span) => diagnostic.at(span, "the program that runs has others"),
        None => diagnostic,
    };
    diagnostic.with_help("apply a program with the same ports, or stop the node and run this one")
}

/// Lowers the chains on ports that are `wanted`, in their order.
///
/// # Errors
/// Diagnostics of the first that cannot be.
pub(crate) fn lower(
    network: &hir::Network,
    sources: &SourceMap,
    workers: usize,
    wanted: impl Fn(&hir::Chain) -> bool,
) -> Result<Vec<Lowered>, Vec<Diagnostic>> {
    let options = LowerOptions { workers };
    let is_meant = |chain: &hir::Chain| chain.edge.calls().is_none() && wanted(chain);
    let chains = network.chains.iter().enumerate().filter(|(_, chain)| is_meant(chain));
    let lower = |(chain, _): (usize, _)| {
        let condition = lower_when(network, chain, &options, Some(sources)).transpose()?;
        Ok(Lowered { chain, program: lower_with_lines(network, chain, &options, sources)?, condition })
    };
    chains.map(lower).collect()
}

/// Binds and compiles them. The ports of the plan are all those of the network, by their indices.
///
/// # Errors
/// Diagnostics: state cannot be carried over, the back end does not take a chain, or a function cannot be made ready.
pub(crate) fn plan(
    network: &hir::Network,
    lowered: Vec<Lowered>,
    version: u64,
    state: &mut Staged,
    backend: &dyn Backend,
) -> Result<PacketPlan, Vec<Diagnostic>> {
    let mut chains = Vec::new();
    for Lowered { chain, program, condition } in lowered {
        let chain = &network.chains[chain];
        let Edge::Packets { ports, to, .. } = &chain.edge else { continue };
        for program in [Some(&program), condition.as_ref()].into_iter().flatten() {
            state.give_natives(&program.name, natives::of(network, program, chain.span)?);
        }
        let ports = ports.iter().map(|port| *port as u16).collect();
        let on = ChainOn { program, condition, ports, to: to.map(outlet_of) };
        let built = PacketChain::build(version, on, state, backend);
        chains.push(Arc::new(built.map_err(|error| vec![refused(network, chain, &error)])?));
    }
    let groups = network.groups.iter().map(|group| group_of(network, group)).collect();
    let links = links(network, backend)?;
    let ports = network.ports.iter().map(|port| port.name.clone()).collect();
    Ok(PacketPlan { version, ports, groups, chains, links })
}

fn outlet_of(to: hir::Outlet) -> Outlet {
    match to {
        hir::Outlet::Port(at) => Outlet::Port(at as u16),
        hir::Outlet::Group(at) => Outlet::Group(at as u16),
    }
}

fn group_of(network: &hir::Network, group: &hir::Group) -> GroupPlan {
    let choice = match group.choice {
        GroupChoice::All => Choice::All,
        GroupChoice::Flow => Choice::Flow,
        GroupChoice::First => Choice::First,
    };
    let member = |&(port, weight): &(usize, u16)| Member { port: port as u16, weight };
    let is_tun = |(port, _): &(usize, u16)| network.ports[*port].kind == PortKind::Tun;
    let (name, is_ip) = (group.name.clone(), group.members.iter().any(is_tun));
    GroupPlan { name, choice, members: group.members.iter().map(member).collect(), is_ip }
}

/// The links on clusters, compiled. `shared` is what the link with this name has in common with its earlier versions.
pub(crate) fn call_links(
    network: &hir::Network,
    backend: &dyn Backend,
    shared: impl Fn(&str) -> Arc<Shared>,
) -> Result<Vec<Arc<CallLink>>, Vec<Diagnostic>> {
    let compile = |link: &hir::CallLink| {
        let (program, code) = compiled(&link.queue, &link.name, link.span, backend)?;
        Ok(Arc::new(CallLink {
            name: link.name.clone(),
            cluster: link.cluster,
            concurrency: link.concurrency,
            step_ns: link.step_ns,
            key: link.key.clone(),
            class: link.class.clone(),
            shared: shared(&link.name),
            program,
            code,
        }))
    };
    network.call_links.iter().map(compile).collect()
}

/// A queue and its code.
type CompiledQueue = (Arc<QueueProgram>, Arc<dyn QueueCode>);

/// The queue of a link, compiled.
fn compiled(
    queue: &hir::Queue,
    link: &str,
    span: Span,
    backend: &dyn Backend,
) -> Result<CompiledQueue, Vec<Diagnostic>> {
    let program = Arc::new(weft_opt::lower::queue(queue));
    let code = backend.compile_queue(&program).map_err(|error| {
        let message = format!("link `{link}`: {}", error.reason);
        vec![Diagnostic::error(code::BACKEND_UNSUPPORTED, message).at(span, "cannot be run here")]
    })?;
    Ok((program, code))
}

/// The links of a network, compiled.
fn links(network: &hir::Network, backend: &dyn Backend) -> Result<Vec<LinkPlan>, Vec<Diagnostic>> {
    let compile = |link: &hir::Link| {
        let (program, code) = compiled(&link.queue, &link.name, link.span, backend)?;
        let is_ip = network.ports[link.port].kind == PortKind::Tun;
        let (name, port) = (link.name.clone(), link.port as u16);
        let on_failure = link.on_failure.map(|on_failure| match on_failure {
            hir::OnFailure::Hold => OnFailure::Hold,
            hir::OnFailure::Drop => OnFailure::Drop,
        });
        Ok(LinkPlan {
            name,
            port,
            ingress: link.ingress,
            is_ip,
            rate: link.rate,
            path: None,
            on_failure,
            is_recorded: false,
            program,
            code,
        })
    };
    network.links.iter().map(compile).collect()
}
