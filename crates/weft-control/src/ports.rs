//! Ports of a program, as a node opens them.

use weft_core::Value;
use weft_engine::packet::port::{DeviceSettings, Driver, Pace, Peer, PortConfig, QUEUES_MAX};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, PortKind, Setting};
use weft_lang::ports::Device;
use weft_lang::source::Span;
use weft_lang::types::address_within;

/// Checks the ports of a network: their numbers of queues.
pub(crate) fn check(network: &hir::Network) -> impl Iterator<Item = Diagnostic> {
    network.ports.iter().filter_map(|port| queues_of(port).err()).map(|why| *why)
}

/// The ports of a network, in the form in which a node opens them.
///
/// # Errors
/// Diagnostics: a port has no device, or more queues than its device can have.
pub fn ports_of(network: &hir::Network) -> Result<Vec<PortConfig>, Vec<Diagnostic>> {
    let (mut ports, mut refused) = (Vec::new(), Vec::new());
    for port in &network.ports {
        match port_of(port) {
            Ok(port) => ports.push(port),
            Err(why) => refused.push(*why),
        }
    }
    if refused.is_empty() { Ok(ports) } else { Err(refused) }
}

/// Converts a port of the program to the configuration of its device.
fn port_of(port: &hir::Port) -> Result<PortConfig, Box<Diagnostic>> {
    let text = |name: &str| match setting(port, name).map(|option| &option.value) {
        Some(Value::Bytes(text)) => Some(String::from_utf8_lossy(text).into_owned()),
        _ => None,
    };
    let is_set = |name: &str| setting(port, name).is_some_and(|option| option.value == Value::Bool(true));
    let driver = match port.kind {
        PortKind::Packet => Driver::Packet,
        PortKind::Xdp => Driver::Xdp { is_zero_copy_tried: is_set("zero_copy") },
        PortKind::Veth => Driver::Veth,
        PortKind::Tun => Driver::Tun,
        PortKind::Tap => Driver::Tap,
        PortKind::Pcap if is_set("write") => Driver::Write,
        PortKind::Pcap if text("speed").as_deref() == Some("recorded") => Driver::Read(Pace::Recorded),
        PortKind::Pcap => Driver::Read(Pace::Full),
        PortKind::Memory => return Err(Box::new(without_device(port))),
    };
    let Device { mtu, mac } = port.device_from_options();
    let peer = text("peer").map(|name| Peer {
        name,
        namespace: text("peer_namespace"),
        address: text("peer_address").and_then(|text| address_within(&text)),
    });
    Ok(PortConfig {
        name: port.name.clone(),
        driver,
        device: port.device.clone(),
        namespace: text("namespace"),
        queues: queues_of(port)?,
        made: DeviceSettings { mtu, mac, peer },
    })
}

fn setting<'n>(port: &'n hir::Port, name: &str) -> Option<&'n Setting> {
    port.options.iter().find(|option| option.name == name)
}

/// The number of queues that a port requests, if it does.
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
    Diagnostic::error(code::BACKEND_UNSUPPORTED, message).at(port.span, "cannot be run here").with_help(
        "put it on `packet`, `xdp`, `veth`, `tun`, `tap` or `pcap`; `weft replay` takes it as it is",
    )
}

/// Refuses a program with other ports: a node opens its devices only at its start. Also refuses the first or last
/// program with listeners, because state is laid out for the workers that share it.
pub fn other_ports(network: &hir::Network, wanted: &[PortConfig], open: &[PortConfig]) -> Diagnostic {
    let diagnostic = Diagnostic::error(
        code::BACKEND_UNSUPPORTED,
        "the ports of a node, and whether it has listeners beside them, do not change while it runs",
    );
    let diagnostic = match other_port(network, wanted, open) {
        Some((span, what)) => diagnostic.at(span, what),
        None => diagnostic,
    };
    diagnostic.with_help("apply a program with the same ports, or stop the node and run this one")
}

/// The first port that differs from the node's, and the node's one.
fn other_port(network: &hir::Network, wanted: &[PortConfig], open: &[PortConfig]) -> Option<(Span, String)> {
    for (port, config) in network.ports.iter().zip(wanted) {
        let what = match open.iter().find(|known| known.name == config.name) {
            Some(known) if known == config => continue,
            Some(known) if known.device != config.device => format!("it is on `{}` there", known.device),
            Some(_) => "it has other settings there".to_owned(),
            None => "there is no such port there".to_owned(),
        };
        return Some((port.span, what));
    }
    let gone = open.iter().find(|known| wanted.iter().all(|config| config.name != known.name));
    let what = gone.map_or("the program that runs has others".to_owned(), |gone| {
        format!("the node has port `{}` as well", gone.name)
    });
    let span = network.ports.first().map(|port| port.span).or(network.chains.first().map(|chain| chain.span));
    span.map(|span| (span, what))
}
