//! Compiles the packet path of a checked program.

use crate::compile::{refused, refused_group, refused_link};
use crate::host::Host;
use crate::natives::prepare_all;
use std::sync::Arc;
use weft_engine::call_queue::{CallFlow, CallQueue, QueueScope, SharedSlots};
use weft_engine::packet::group::{Choice, GroupKey, GroupPlan, Member};
use weft_engine::packet::headers::Headers;
use weft_engine::packet::link::{LinkPlan, OnFailure};
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain, PacketPlan};
use weft_engine::queue::ProgramText;
use weft_engine::state::Staged;
use weft_ir::backend::Backend;
use weft_ir::program::ChainProgram;
use weft_ir::queue::{QueueCode, QueueProgram};
use weft_lang::diagnostic::{Diagnostic, code};
use weft_lang::hir::{self, Edge, GroupChoice, PortKind};
use weft_lang::source::Span;
use weft_opt::judge::{Lowered, LoweredChain, LoweredLink};

/// The parts from which the chains of a plan are built.
pub struct PlanBuilder<'a> {
    /// The checked program.
    pub network: &'a hir::Network,
    /// The version of the plan.
    pub version: u64,
    /// The state of the node in that version.
    pub state: &'a mut Staged,
    /// The back end of all code.
    pub backend: &'a dyn Backend,
    /// The machine: it prepares native functions.
    pub host: &'a dyn Host,
}

impl PlanBuilder<'_> {
    /// Prepares the native functions of a program that is declared at `span`.
    ///
    /// # Errors
    /// A function cannot be prepared.
    pub(crate) fn prepare(&mut self, program: &ChainProgram, span: Span) -> Result<(), Vec<Diagnostic>> {
        let natives = prepare_all(self.host, self.network, program, span)?;
        self.state.give_natives(&program.name, natives);
        Ok(())
    }

    /// Binds and compiles the chains on ports for which `wanted` is true. The plan has all ports of the network, by
    /// index.
    ///
    /// # Errors
    /// Diagnostics: state cannot be carried over, the back end refuses a chain, or a function cannot be prepared.
    pub fn packets(
        &mut self,
        lowered: Lowered,
        wanted: impl Fn(&hir::Chain) -> bool,
    ) -> Result<PacketPlan, Vec<Diagnostic>> {
        let network = self.network;
        let mut chains = Vec::new();
        for (chain, LoweredChain { program, condition }) in network.chains.iter().zip(lowered.chains) {
            let Edge::Packets { ports, to, .. } = &chain.edge else { continue };
            if !wanted(chain) {
                continue;
            }
            for program in [Some(&program), condition.as_ref()].into_iter().flatten() {
                self.prepare(program, chain.span)?;
            }
            let ports = ports.iter().map(|port| *port as u16).collect();
            let on = ChainOn { program, condition, ports, to: to.map(outlet_of) };
            let built = PacketChain::build(self.version, on, self.state, self.backend);
            chains.push(Arc::new(built.map_err(|error| vec![refused(network, chain, &error)])?));
        }
        let groups = network.groups.iter().zip(lowered.groups);
        let groups = groups.map(|(group, key)| self.group(group, key)).collect::<Result<_, _>>()?;
        let links = network.links.iter().zip(lowered.links);
        let links = links.map(|(link, lowered)| self.link(link, lowered)).collect::<Result<_, _>>()?;
        let ports = network.ports.iter().map(|port| port.name.clone()).collect();
        Ok(PacketPlan { version: self.version, ports, groups, chains, links })
    }

    /// Compiles a group of ports, and its key if it selects by one.
    fn group(&mut self, group: &hir::Group, key: Option<ChainProgram>) -> Result<GroupPlan, Vec<Diagnostic>> {
        let choice = match group.choice {
            GroupChoice::All => Choice::All,
            GroupChoice::Flow => Choice::Flow,
            GroupChoice::Key => Choice::Key,
            GroupChoice::First => Choice::First,
        };
        let key = match (&group.key, key) {
            (Some(key), Some(program)) => {
                self.prepare(&program, group.span)?;
                let built = GroupKey::build(self.version, &key.text, program, self.state, self.backend);
                Some(Arc::new(built.map_err(|error| vec![refused_group(group, &error)])?))
            }
            _ => None,
        };
        let member = |&(port, weight): &(usize, u16)| Member { port: port as u16, weight };
        let is_tun = |(port, _): &(usize, u16)| self.network.ports[*port].kind == PortKind::Tun;
        let (name, is_ip) = (group.name.clone(), group.members.iter().any(is_tun));
        Ok(GroupPlan { name, choice, key, members: group.members.iter().map(member).collect(), is_ip })
    }

    /// Compiles a link of a port.
    fn link(&mut self, link: &hir::Link, lowered: LoweredLink) -> Result<LinkPlan, Vec<Diagnostic>> {
        let headers = match lowered.headers {
            None => None,
            Some((program, inputs)) => {
                let built = Headers::build(self.version, program, inputs, self.state, self.backend);
                Some(Arc::new(built.map_err(|error| vec![refused_link(link, &error)])?))
            }
        };
        let code = compile_queue(&lowered.queue, &link.name, link.span, self.backend)?;
        let on_failure = link.on_failure.map(|on_failure| match on_failure {
            hir::OnFailure::Hold => OnFailure::Hold,
            hir::OnFailure::Drop => OnFailure::Drop,
        });
        Ok(LinkPlan {
            name: link.name.clone(),
            port: link.port as u16,
            ingress: link.ingress,
            is_ip: self.network.ports[link.port].kind == PortKind::Tun,
            rate: link.rate,
            path: None,
            on_failure,
            is_recorded: false,
            headers,
            program: lowered.queue,
            code,
            written: written(&link.queue, self.version),
        })
    }

    /// Compiles the links of calls. `shared` has the counters that a link shares with its earlier versions.
    pub(crate) fn call_links(
        &self,
        queues: Vec<Arc<QueueProgram>>,
        shared: impl Fn(&hir::CallLink) -> Arc<SharedSlots>,
    ) -> Result<Vec<Arc<CallQueue>>, Vec<Diagnostic>> {
        let compile = |(link, program): (&hir::CallLink, Arc<QueueProgram>)| {
            let code = compile_queue(&program, &link.name, link.span, self.backend)?;
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
                written: written(&link.queue, self.version),
            }))
        };
        self.network.call_links.iter().zip(queues).map(compile).collect()
    }
}

/// Compiles the queue of a link.
fn compile_queue(
    program: &Arc<QueueProgram>,
    link: &str,
    span: Span,
    backend: &dyn Backend,
) -> Result<Arc<dyn QueueCode>, Vec<Diagnostic>> {
    backend.compile_queue(program).map_err(|error| {
        let message = format!("link `{link}`: {}", error.reason);
        vec![Diagnostic::error(code::BACKEND_UNSUPPORTED, message).at(span, "cannot be run here")]
    })
}

/// The text of a queue, to recognise edits.
fn written(queue: &hir::Queue, version: u64) -> ProgramText {
    ProgramText { version, texts: queue.levels.iter().map(|level| level.text).collect() }
}

fn outlet_of(to: hir::Outlet) -> Outlet {
    match to {
        hir::Outlet::Port(at) => Outlet::Port(at as u16),
        hir::Outlet::Group(at) => Outlet::Group(at as u16),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::Accepted;
    use crate::testing::{BareHost, accepted};
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

    fn links_of(text: &str, backend: &dyn Backend) -> Vec<LinkPlan> {
        let mut store = StateStore::new(1, HashKey::from_seed(1));
        let mut staged = store.stage();
        let (Accepted { network, lowered }, _) = accepted(text);
        let mut builder =
            PlanBuilder { network: &network, version: 1, state: &mut staged, backend, host: &BareHost };
        let plan = builder.packets(lowered, |_| true).expect("it is compiled");
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
            let ip = build::ipv4([10, 0, 0, ttl], [10, 0, 0, 9]).ttl(ttl);
            let ip = ip.fragment(id.into(), more | from as u16).protocol(UDP);
            ip.payload(&datagram[8 * from..end]).build()
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
