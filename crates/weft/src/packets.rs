//! Lowers and compiles the packet path of a checked program.

use crate::compile::{refused, refused_group, refused_link};
use crate::natives;
use std::sync::Arc;
use weft_core::Value;
use weft_engine::call_queue::{CallFlow, CallQueue, QueueScope, SharedSlots};
use weft_engine::packet::group::{Choice, GroupKey, GroupPlan, Member};
use weft_engine::packet::headers::Headers;
use weft_engine::packet::link::{LinkPlan, OnFailure};
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain, PacketPlan};
use weft_engine::queue::ProgramText;
use weft_engine::state::Staged;
use weft_io::packet::file::Pace;
use weft_io::packet::port::{DeviceSettings, Driver, Peer, PortConfig, QUEUES_MAX};
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;
use weft_ir::queue::{QueueCode, QueueProgram};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Edge, GroupChoice, PortKind, Setting};
use weft_lang::ports::Device;
use weft_lang::source::{SourceMap, Span};
use weft_lang::types::address_within;
use weft_opt::lower::{
    LowerOptions, lower_for_cut_frames, lower_group, lower_headers, lower_when, lower_with_lines,
};

/// A lowered chain on ports: its index, its program, and its condition's program.
pub(crate) struct Lowered {
    chain: usize,
    program: ChainProgram,
    condition: Option<ChainProgram>,
}

impl Lowered {
    /// The chain's program.
    pub(crate) fn chain(&self) -> &ChainProgram {
        &self.program
    }

    /// The chain's program, for adding rows.
    pub(crate) fn program(&mut self) -> &mut ChainProgram {
        &mut self.program
    }
}

/// Checks ports, and the conditions of chains on ports. The chains themselves are checked with all others.
pub(crate) fn check(network: &hir::Network, sources: &SourceMap) -> Vec<Diagnostic> {
    let options = LowerOptions { workers: 1 };
    let conditions =
        (0..network.chains.len()).map(|chain| lower_when(network, chain, &options, Some(sources)));
    let groups = (0..network.groups.len()).map(|group| lower_group(network, group, &options, Some(sources)));
    let headers = (0..network.links.len()).map(|link| lower_headers(network, link, &options));
    let headers = headers.flatten().filter_map(Result::err).flatten();
    let refused = conditions.chain(groups).flatten().filter_map(Result::err).flatten().chain(headers);
    let queues = network.ports.iter().filter_map(|port| queues_of(port).err());
    queues.map(|why| *why).chain(refused).collect()
}

/// The ports of a network, in the form in which a node opens them.
///
/// # Errors
/// Diagnostics: a port has no device, or more queues than its device can have.
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
pub(crate) fn other_ports(network: &hir::Network, wanted: &[PortConfig], open: &[PortConfig]) -> Diagnostic {
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

/// Lowers the chains on ports for which `wanted` is true, in their order.
///
/// # Errors
/// Diagnostics of the first chain that cannot be lowered.
pub(crate) fn lower(
    network: &hir::Network,
    sources: &SourceMap,
    workers: usize,
    wanted: impl Fn(&hir::Chain) -> bool,
) -> Result<Vec<Lowered>, Vec<Diagnostic>> {
    let options = LowerOptions { workers };
    let lower = |chain: usize| {
        let condition = lower_when(network, chain, &options, Some(sources)).transpose()?;
        Ok(Lowered { chain, program: lower_with_lines(network, chain, &options, sources)?, condition })
    };
    chains_on_ports(network, wanted).map(lower).collect()
}

/// As [`lower`] for one worker, with parsers for frames that a capture has truncated.
///
/// # Errors
/// As [`lower`].
pub(crate) fn lower_cut(
    network: &hir::Network,
    sources: &SourceMap,
    wanted: impl Fn(&hir::Chain) -> bool,
) -> Result<Vec<Lowered>, Vec<Diagnostic>> {
    let options = LowerOptions { workers: 1 };
    let lower = |chain: usize| {
        let (program, condition) = lower_for_cut_frames(network, chain, &options, sources)?;
        Ok(Lowered { chain, program, condition })
    };
    chains_on_ports(network, wanted).map(lower).collect()
}

/// The indexes of the chains on ports that `wanted` selects.
fn chains_on_ports(
    network: &hir::Network,
    wanted: impl Fn(&hir::Chain) -> bool,
) -> impl Iterator<Item = usize> {
    let is_meant = move |chain: &hir::Chain| chain.edge.calls().is_none() && wanted(chain);
    network.chains.iter().enumerate().filter(move |(_, chain)| is_meant(chain)).map(|(at, _)| at)
}

/// Binds and compiles the lowered chains. The plan has all ports of the network, by index.
///
/// # Errors
/// Diagnostics: state cannot be carried over, the back end refuses a chain, or a function cannot be prepared.
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
    let mut groups = Vec::new();
    for at in 0..network.groups.len() {
        groups.push(group_of(network, at, version, state, backend)?);
    }
    let links = links(network, version, state, backend)?;
    let ports = network.ports.iter().map(|port| port.name.clone()).collect();
    Ok(PacketPlan { version, ports, groups, chains, links })
}

fn outlet_of(to: hir::Outlet) -> Outlet {
    match to {
        hir::Outlet::Port(at) => Outlet::Port(at as u16),
        hir::Outlet::Group(at) => Outlet::Group(at as u16),
    }
}

/// Compiles a group of ports, and its key if it selects by one.
fn group_of(
    network: &hir::Network,
    at: usize,
    version: u64,
    state: &mut Staged,
    backend: &dyn Backend,
) -> Result<GroupPlan, Vec<Diagnostic>> {
    let group = &network.groups[at];
    let choice = match group.choice {
        GroupChoice::All => Choice::All,
        GroupChoice::Flow => Choice::Flow,
        GroupChoice::Key => Choice::Key,
        GroupChoice::First => Choice::First,
    };
    let key = match (&group.key, lower_group(network, at, &LowerOptions { workers: 1 }, None)) {
        (Some(key), Some(program)) => {
            let program = program?;
            state.give_natives(&program.name, natives::of(network, &program, group.span)?);
            let built = GroupKey::build(version, &key.text, program, state, backend);
            Some(Arc::new(built.map_err(|error| vec![refused_group(group, &error)])?))
        }
        _ => None,
    };
    let member = |&(port, weight): &(usize, u16)| Member { port: port as u16, weight };
    let is_tun = |(port, _): &(usize, u16)| network.ports[*port].kind == PortKind::Tun;
    let (name, is_ip) = (group.name.clone(), group.members.iter().any(is_tun));
    Ok(GroupPlan { name, choice, key, members: group.members.iter().map(member).collect(), is_ip })
}

/// Compiles the links of calls. `shared` has the counters that a link shares with its earlier versions.
pub(crate) fn call_links(
    network: &hir::Network,
    backend: &dyn Backend,
    version: u64,
    shared: impl Fn(&hir::CallLink) -> Arc<SharedSlots>,
) -> Result<Vec<Arc<CallQueue>>, Vec<Diagnostic>> {
    let compile = |link: &hir::CallLink| {
        let (program, code) = compiled(&link.queue, &link.name, link.span, backend)?;
        Ok(Arc::new(CallQueue {
            name: link.name.clone(),
            of: match link.of {
                hir::CallsOf::Listener(at) => QueueScope::Listener(at),
                hir::CallsOf::Cluster(at) => QueueScope::Cluster(at),
            },
            concurrency: link.concurrency,
            step_ns: link.step_ns,
            key: match &link.key {
                hir::CallFlow::Host => CallFlow::Host,
                hir::CallFlow::Session => CallFlow::Session,
                hir::CallFlow::Header(name) => CallFlow::Header(name.clone()),
            },
            class: link.class.clone(),
            shared: shared(link),
            program,
            code,
            written: written(&link.queue, version),
        }))
    };
    network.call_links.iter().map(compile).collect()
}

/// A queue and its code.
type CompiledQueue = (Arc<QueueProgram>, Arc<dyn QueueCode>);

/// Compiles the queue of a link.
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

/// The text of a queue, to recognise edits.
fn written(queue: &hir::Queue, version: u64) -> ProgramText {
    ProgramText { version, texts: queue.levels.iter().map(|level| level.text).collect() }
}

/// Compiles the links of a network.
fn links(
    network: &hir::Network,
    version: u64,
    state: &mut Staged,
    backend: &dyn Backend,
) -> Result<Vec<LinkPlan>, Vec<Diagnostic>> {
    let compile = |(at, link): (usize, &hir::Link)| {
        let headers = match lower_headers(network, at, &LowerOptions { workers: 1 }) {
            None => None,
            Some(lowered) => {
                let (program, inputs) = lowered?;
                let built = Headers::build(version, program, inputs, state, backend);
                Some(Arc::new(built.map_err(|error| vec![refused_link(link, &error)])?))
            }
        };
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
            headers,
            program,
            code,
            written: written(&link.queue, version),
        })
    };
    network.links.iter().enumerate().map(compile).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compile::check_files;
    use crate::source::Files;
    use std::collections::BTreeMap;
    use weft_api::Bundle;
    use weft_core::Time;
    use weft_core::frame::build::{self, FrameBuilder};
    use weft_core::frame::{Pool, PoolConfig};
    use weft_core::hash::HashKey;
    use weft_core::ip::{MORE_FRAGMENTS, UDP};
    use weft_engine::packet::FRAGMENTS_TIME;
    use weft_engine::packet::link::Link;
    use weft_engine::state::StateStore;
    use weft_ir::interp::Interp;
    use weft_jit::Jit;

    const START: Time = Time(1_000_000_000);

    const NETWORK: &str = "IMPORT 'library/protocols/all.weft';
IMPORT 'library/queues/fifo.weft';
CREATE PROTOCOL tally (magic bit(16) = 0xbeef, tenant bit(8), PAYLOAD bytes) BIND udp WHERE dst_port = 4000;
CREATE QUEUE by_tenant AS
  PARTITION BY tally.tenant INDEX 256;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE QUEUE by_vlan AS
  PARTITION BY vlan.id INDEX 4096;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE QUEUE by_tunnel AS
  PARTITION BY gtpu.teid * 16 + coalesce_zero(inner.udp.dst_port, 1) INDEX 65536;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE QUEUE by_inner_host AS
  PARTITION BY inner.ip.src HASH 65536;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE QUEUE tagged_first AS
  ORDER PACKETS BY CASE WHEN present(vlan) THEN 0 ELSE 1 END;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE PORT lan ON memory;
CREATE PORT wan ON memory;
CREATE PORT far ON memory;
CREATE PORT own ON memory;
CREATE PORT new ON memory;
CREATE LINK a ON PORT lan QUEUE by_vlan;
CREATE LINK b ON PORT wan QUEUE by_tunnel;
CREATE LINK c ON PORT far QUEUE by_inner_host;
CREATE LINK d ON PORT own QUEUE tagged_first;
CREATE LINK e ON PORT new QUEUE by_tenant;
";

    const FRAGMENTED: &str = "IMPORT 'library/protocols/all.weft';
IMPORT 'library/queues/fifo.weft';
CREATE QUEUE by_port AS
  PARTITION BY 100 * ip.ttl + udp.dst_port INDEX 65536;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE QUEUE by_inner_port AS
  PARTITION BY 100 * inner.ip.ttl + inner.udp.dst_port INDEX 65536;
  LIMIT 100 PACKETS ON OVERFLOW DROP TAIL;
END;
CREATE PORT lan ON memory;
CREATE PORT wan ON memory;
CREATE PORT far ON memory;
CREATE LINK a ON PORT lan QUEUE by_port;
CREATE LINK b ON PORT wan QUEUE by_inner_port;
CREATE LINK c ON PORT far QUEUE fifo;
";

    fn network(text: &str) -> hir::Network {
        let files = BTreeMap::from([("a.weft".to_owned(), text.to_owned())]);
        let checked = check_files(
            "a.weft",
            &mut Files::in_bundle(&Bundle { root: "a.weft".to_owned(), files, ..Bundle::default() }),
        );
        let rendered =
            || weft_lang::diagnostic::render_all(&checked.diagnostics, &checked.sources, Default::default());
        checked.network.unwrap_or_else(|| panic!("{}", rendered()))
    }

    fn links_of(text: &str, backend: &dyn Backend) -> Vec<LinkPlan> {
        let mut store = StateStore::new(1, HashKey::from_seed(1));
        let mut staged = store.stage();
        let plan = plan(&network(text), Vec::new(), 1, &mut staged, backend).expect("it is compiled");
        store.commit(staged);
        plan.links
    }

    /// The counters of an edited queue would belong to other lines, or restart without an edit.
    #[test]
    fn edited_queue_counts_as_changed() {
        let words = |before: &str, condition: &str, args: &str| {
            let text = format!(
                "{before}CREATE QUEUE own (limit U32 = 9) AS
  LIMIT 10 PACKETS ON OVERFLOW DROP TAIL;
  ON DEQUEUE IF {condition} THEN DROP; END IF; SEND;
END;
CREATE PORT lan ON memory;
CREATE LINK a ON PORT lan QUEUE own{args};
"
            );
            links_of(&text, &Interp).remove(0).written.texts
        };
        let first = words("", "p.class < limit", "");
        assert_eq!(words("", "p.class < limit", " (limit = 7)"), first, "another argument");
        assert_ne!(words("", "p.class > limit", ""), first, "another condition");
        assert_ne!(words("\n", "p.class < limit", ""), first, "other lines");
    }

    fn ethernet(kind: u16, rest: &[u8]) -> Vec<u8> {
        build::ethernet().ethertype(kind).payload(rest).build()
    }

    fn ipv4(protocol: u8, src: u8, rest: &[u8]) -> Vec<u8> {
        build::ipv4([10, 0, 0, src], [10, 0, 0, 9]).protocol(protocol).payload(rest).build()
    }

    fn udp(dst_port: u16, rest: &[u8]) -> Vec<u8> {
        FrameBuilder::default().udp(1, dst_port).checksum(0).payload(rest).build()
    }

    fn tunnel(teid: u8, inner: &[u8]) -> Vec<u8> {
        let length = (inner.len() as u16).to_be_bytes();
        let gtpu = [&[0x30, 0xff, length[0], length[1], 0, 0, 0, teid], inner].concat();
        ethernet(0x0800, &ipv4(17, 1, &udp(2152, &gtpu)))
    }

    fn tagged(id: u16, rest: &[u8]) -> Vec<u8> {
        build::ethernet().vlan(id).ethertype(0x0800).payload(rest).build()
    }

    /// The partitions of waiting frames, in order.
    fn partitions(plan: &LinkPlan, frames: &[Vec<u8>]) -> Vec<(u32, u64)> {
        let mut pool = Pool::new(PoolConfig::default());
        let mut link = Link::new(plan.clone(), START, 1);
        for frame in frames {
            let frame = pool.take_filled(frame).expect("a buffer");
            link.handle_frame(frame, &mut pool, START);
        }
        link.stats().partitions.iter().map(|found| (found.index, found.packets)).collect()
    }

    /// Packets would wait in other partitions than the program says.
    #[test]
    fn queue_classifies_by_header_fields() {
        let datagram = || ipv4(17, 1, &udp(5, b"x"));
        let jit = Jit::new().expect("this machine has machine code");
        for backend in [&Interp as &dyn Backend, &jit] {
            let links = links_of(NETWORK, backend);
            let frames = [tagged(7, &datagram()), tagged(9, &datagram()), ethernet(0x0800, &datagram())];
            let more = [tagged(7, &datagram()), tagged(9, &datagram()[..9]), vec![0; 9]];
            // A frame without a tag, or too short for one, has 0; a second tag is ignored.
            assert_eq!(partitions(&links[0], &[&frames[..], &more].concat()), [(0, 2), (7, 2), (9, 2)]);

            let inner = |src| ipv4(17, src, &udp(3, b"x"));
            let frames = [tunnel(1, &inner(1)), tunnel(2, &inner(1)), tunnel(2, &ipv4(6, 2, &[]))];
            let found = partitions(&links[1], &frames);
            // A packet that is not UDP has no UDP port.
            assert_eq!(found, [(16 + 3, 1), (32 + 1, 1), (32 + 3, 1)]);

            let hosts = [tunnel(1, &inner(1)), tunnel(2, &inner(1)), tunnel(1, &inner(2))];
            let packets: Vec<u64> =
                partitions(&links[2], &hosts).iter().map(|(_, packets)| *packets).collect();
            assert!(packets == [2, 1] || packets == [1, 2], "{packets:?}");

            let tally = |tenant| ethernet(0x0800, &ipv4(17, 1, &udp(4_000, &[0xbe, 0xef, tenant])));
            assert_eq!(partitions(&links[4], &[tally(8), tally(250), tally(8)]), [(8, 2), (250, 1)]);

            let mut pool = Pool::new(PoolConfig::default());
            let mut link = Link::new(links[3].clone(), START, 1);
            for bytes in [ethernet(0x0800, &datagram()), tagged(1, &datagram())] {
                let frame = pool.take_filled(&bytes).expect("a buffer");
                link.handle_frame(frame, &mut pool, START);
            }
            let first = link.poll_frame(&mut pool, START).expect("there are two");
            assert_eq!(pool.bytes(&first)[12..14], [0x81, 0]);
        }
    }

    /// The fragments of a large datagram would wait in two partitions and never meet, or take the ports of another
    /// datagram or tunnel.
    #[test]
    fn later_fragments_get_first_ports() {
        // A part of a datagram, from this offset, in units of 8 bytes.
        let part = |ttl: u8, id: u8, datagram: &[u8], from: usize, n: usize| {
            let end = (8 * (from + n)).min(datagram.len());
            let more = if end < datagram.len() { MORE_FRAGMENTS } else { 0 };
            let ip =
                build::ipv4([10, 0, 0, ttl], [10, 0, 0, 9]).ttl(ttl).fragment(id.into(), more | from as u16);
            ip.protocol(UDP).payload(&datagram[8 * from..end]).build()
        };
        let (five, six) = (udp(5, &[0; 40]), udp(6, &[0; 40]));
        let jit = Jit::new().expect("this machine has machine code");
        for backend in [&Interp as &dyn Backend, &jit] {
            let links = links_of(FRAGMENTED, backend);
            let plain =
                |ttl, id, datagram: &[u8], from, n| ethernet(0x0800, &part(ttl, id, datagram, from, n));
            let found = partitions(
                &links[0],
                &[
                    plain(1, 1, &five, 0, 2),
                    plain(1, 2, &six, 0, 2),
                    plain(1, 1, &five, 2, 2),
                    plain(1, 2, &six, 2, 4),
                    plain(1, 1, &five, 4, 2),
                    // The first fragment of this datagram is missing: the fields that later fragments have themselves
                    // are still known.
                    plain(1, 3, &five, 2, 4),
                    plain(2, 1, &five, 2, 4),
                ],
            );
            assert_eq!(found, [(100, 1), (105, 3), (106, 2), (200, 1)]);

            // Also after labels, which separate networks.
            let labelled = |label: u32, id, from, n| {
                let label = (label << 12 | 1 << 8 | 64).to_be_bytes();
                ethernet(0x8847, &[&label, &part(1, id, &five, from, n)[..]].concat())
            };
            let parts = [labelled(16, 1, 0, 2), labelled(16, 1, 2, 4), labelled(17, 1, 2, 4)];
            assert_eq!(partitions(&links[0], &parts), [(100, 1), (105, 2)]);

            let carried = |teid, ttl, id, from, n| tunnel(teid, &part(ttl, id, &five, from, n));
            let found = partitions(
                &links[1],
                &[
                    carried(1, 1, 1, 0, 2),
                    carried(1, 1, 1, 2, 4),
                    carried(2, 1, 1, 2, 4),
                    carried(1, 1, 2, 2, 4),
                ],
            );
            assert_eq!(found, [(100, 2), (105, 2)]);

            // A changed queue still knows, for a while, the first fragments that waited before.
            let mut pool = Pool::new(PoolConfig::default());
            let mut link = Link::new(links[2].clone(), START, 1);
            let come = |link: &mut Link, pool: &mut Pool, bytes: &[u8], now| {
                let frame = pool.take_filled(bytes).expect("a buffer");
                link.handle_frame(frame, pool, now);
            };
            come(&mut link, &mut pool, &plain(1, 1, &five, 0, 2), START);
            link.replace(links[0].clone(), &mut pool, START, 1);
            come(&mut link, &mut pool, &plain(1, 1, &five, 2, 2), START);
            come(&mut link, &mut pool, &plain(1, 1, &five, 4, 2), START + FRAGMENTS_TIME);
            let found: Vec<_> = link.stats().partitions.iter().map(|at| (at.index, at.packets)).collect();
            assert_eq!(found, [(100, 1), (105, 2)]);

            // A plan with the same keys also keeps the fragments that have left.
            let left = link.take_all();
            left.into_iter().for_each(|frame| pool.give(frame));
            link.replace(links_of(FRAGMENTED, backend).swap_remove(0), &mut pool, START, 1);
            come(&mut link, &mut pool, &plain(1, 1, &five, 4, 2), START);
            assert_eq!(link.stats().partitions.iter().map(|at| at.index).collect::<Vec<_>>(), [105]);
        }
    }

    /// After a change of their queue, waiting packets would count as one flow, or as packets without headers.
    #[test]
    fn new_queue_sees_waiting_headers() {
        let links = links_of(NETWORK, &Interp);
        let plain = NETWORK.replace("ON PORT lan QUEUE by_vlan", "ON PORT lan QUEUE fifo");
        let before = links_of(&plain, &Interp);
        let mut pool = Pool::new(PoolConfig::default());
        let mut link = Link::new(before[0].clone(), START, 1);
        for id in [3, 4, 3] {
            let frame = pool.take_filled(&tagged(id, &ipv4(17, 1, &udp(5, b"x")))).expect("a buffer");
            link.handle_frame(frame, &mut pool, START);
        }
        link.replace(links[0].clone(), &mut pool, START, 1);
        let found: Vec<(u32, u64)> =
            link.stats().partitions.iter().map(|found| (found.index, found.packets)).collect();
        assert_eq!(found, [(3, 2), (4, 1)]);
    }
}
