//! Compares both backends on random traffic: VLAN stacks, options, fragments, tunnels, and long flows.

use std::collections::BTreeSet;
use std::sync::Arc;

use weft_core::frame::{BATCH_MAX, Frame, Pool, PoolConfig};
use weft_core::hash::HashKey;
use weft_core::rng::Rng;
use weft_core::types::Repr;
use weft_core::wire::{FieldId, FieldValue, Header, Protocol, ProtocolId, build, generate};
use weft_core::{Interval, Time};
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::stats::PacketStats;
use weft_engine::packet::{PacketConfig, PacketEngine};
use weft_engine::state::StateStore;
use weft_ir::backend::Backend;
use weft_ir::interp::Interp;
use weft_jit::Jit;
use weft_lang::hir::Network;

use super::cases::{fill, plan_of};
use crate::machine::accepted;
use weft_control::check::Accepted;

/// Frames of each chain; `WEFT_PACKETS` sets the number for all chains together.
const FRAMES: usize = 600;

/// Chains that change, look up, keep state, and parse frames in every way that the library has.
const CHAINS: &[(&str, &str)] = &[
    ("lan -> wan", "conntrack (inside = 'lan') -> firewall -> router"),
    ("lan -> wan", "conntrack (inside = 'lan') -> ruleset -> monitor"),
    ("lan, wan", "station -> router (own_ip = '10.1.0.1', own_ip6 = '2001:db8:1::1')"),
    ("lan, wan", "l2_switch"),
    ("lan -> wan", "intact -> tunnel_limit (most = 0)"),
    ("lan -> wan", "monitor -> meter (of := ip.src)"),
    ("lan -> wan", "flow_marker -> flow_export -> syn_guard (limit = 2); syn_guard.suspect -> monitor"),
    ("lan, wan", "vlan_access (access = 'lan', trunk = 'wan', id = 7)"),
    (
        "lan, wan",
        "vxlan_gateway (inside = 'lan', outside = 'wan', vni = 7, own_ip = '192.0.2.1', peer = '192.0.2.2', \
         own_mac = '02:00:00:00:00:01', next_mac = '02:00:00:00:00:02')",
    ),
    (
        "lan -> wan",
        "gtpu_gateway (core = 'wan', radio = 'lan', own_ip = '192.0.2.1', own_mac = '02:00:00:00:00:01', \
         core_mac = '02:00:00:00:00:02', radio_mac = '02:00:00:00:00:03')",
    ),
    ("lan -> wan", "inner_ports"),
    ("lan -> wan", "opened -> ports"),
    ("lan, wan", "late"),
    ("lan -> wan", "wrapped"),
    (
        "lan -> wan",
        "nsh_classifier (fabric = 'wan', own_mac = '02:00:00:00:00:01', next_mac = '02:00:00:00:00:02')",
    ),
];

/// Elements that the library lacks: one that reads ports in tunnels, with fragments; one that decapsulates packets for
/// the next element; one that delays frames for various times, and copies of them; one that encapsulates them with
/// values of all kinds, some of which do not fit.
const OTHERS: &str = "CREATE ELEMENT inner_ports ON packet AS
  TABLE seen (src IPADDR, port U16, PRIMARY KEY (src, port), packets U64 = 0) MAX 1000 ROWS EVICT OLDEST;
  ON PACKET
    UPSERT seen KEY (coalesce(inner.ip.src, '::'), coalesce(inner.l4.dst_port, 0)) SET packets = packets + 1;
    IF coalesce(inner.l4.dst_port = 53, FALSE) THEN DROP; END IF;
    SET inner.udp.src_port = 9;
END;
CREATE ELEMENT opened ON packet AS
  ON PACKET
    IF present(inner.ethernet) THEN
      POP TO inner.ethernet;
    ELSIF present(inner.ip) THEN
      POP TO inner.ip;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = '02:00:00:00:00:02');
    END IF;
END;
CREATE ELEMENT ports ON packet AS
  TABLE seen (src IPADDR, port U16, PRIMARY KEY (src, port), packets U64 = 0) MAX 1000 ROWS EVICT OLDEST;
  ON PACKET
    UPSERT seen KEY (coalesce(ip.src, '::'), coalesce(l4.dst_port, 0)) SET packets = packets + 1;
    IF coalesce(l4.dst_port = 53, FALSE) THEN DROP; END IF;
END;
CREATE ELEMENT late ON packet AS
  ON PACKET
    DELAY CASE WHEN coalesce(ip.protocol = 17, FALSE) THEN '30 ms' ELSE '3 ms' END;
    IF coalesce(l4.dst_port = 51, FALSE) THEN DELAY '100 ms'; MIRROR TO 'wan'; END IF;
    SET ip.ttl = 9;
    REDIRECT TO '*';
END;
CREATE ELEMENT wrapped ON packet AS
  ON PACKET
    LET sport = coalesce(l4.src_port, 0);
    LET dport = coalesce(l4.dst_port, 0);
    LET low = CAST(sport % 256 AS U8);
    LET hop = coalesce(ethernet.src, '02:00:00:00:00:07');
    LET far = coalesce(ipv4.dst, '10.0.0.8');
    LET far6 = coalesce(ipv6.src, '2001:db8::2');
    IF dport = 50 THEN
      PUSH ethernet (dst = hop, src = '02:00:00:00:00:02'), ipv4 (src = '192.0.2.1',
        dst = coalesce(ipv4.src, '10.0.0.9'), dscp = low, ecn = coalesce(ipv4.ecn, 0), df = low = 51), udp,
        vxlan (vni = CAST(sport * 330000 AS U32));
      REDIRECT TO 'wan';
    ELSIF dport = 51 AND present(ip) THEN
      POP TO ip;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = hop), nsh (md = 2, spi = CAST(sport * 7 AS U32), si = 200);
    ELSIF dport = 52 AND present(ip) THEN
      POP TO ip;
      PUSH ethernet (dst = hop, src = hop), ipv6 (src = '2001:db8::1', dst = far6,
        hop_limit = low), gre;
    ELSIF dport = 53 AND present(ip) THEN
      POP TO ip;
      PUSH ethernet (dst = hop, src = '02:00:00:00:00:02'), ipv4 (src = far,
        dst = '192.0.2.9', dscp = 46, ttl = low), udp (dst_port = sport, checksum = 0),
        gtpu (teid = CAST(60000 * sport AS U32));
    ELSE
      PUSH ethernet (dst = hop, src = '02:00:00:00:00:02'), nsh (md = 2, spi = CAST(sport * 300000 AS U32), si = low);
    END IF;
END;
";

/// Their names.
const OWN: [&str; 5] = ["inner_ports", "opened", "ports", "late", "wrapped"];

/// If this fails, a chain that was tested with one back end behaves differently in production.
#[test]
fn backends_agree_on_random_traffic() {
    let n_frames = std::env::var("WEFT_PACKETS").ok().and_then(|n| n.parse::<usize>().ok());
    let frames = n_frames.map_or(FRAMES, |all| all.div_ceil(CHAINS.len()));
    let jit = || Jit::new().expect("this machine has machine code");
    // Prefetch from tables of any size, as with many flows.
    let compilers = [jit(), jit().prefetching_always()];
    for (nth, (on, stages)) in CHAINS.iter().enumerate() {
        let accepted = network(on, stages);
        let n_ports = 1 + usize::from(on.contains(','));
        let traffic = Traffic::new(&accepted.network, nth as u64, frames, n_ports);
        let interpreted = observe(&Interp, &accepted, &traffic);
        for jit in &compilers {
            let compiled = observe(jit, &accepted, &traffic);
            assert_eq!(interpreted.stats, compiled.stats, "{stages}: counters");
            let differs = interpreted.left.iter().zip(&compiled.left).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{stages}: frames that leave");
            assert_eq!(interpreted.left.len(), compiled.left.len(), "{stages}: frames that leave");
            assert!(interpreted.rows == compiled.rows, "{stages}: rows of sinks");
            assert!(interpreted.tables == compiled.tables, "{stages}: tables");
        }
        let passed = interpreted.left.len();
        assert!(passed * 20 > frames, "{stages}: {passed} of {frames} frames leave: {:?}", interpreted.stats);
    }
}

/// The results of a chain on traffic.
struct Observed {
    /// Ports and bytes.
    left: Vec<(u16, Vec<u8>)>,
    rows: Vec<String>,
    stats: PacketStats,
    tables: Vec<String>,
}

/// Compiles a program with these stages on the given ports, with the imports that they need.
fn network(on: &str, stages: &str) -> Accepted {
    let names: BTreeSet<&str> = stages
        .split([';', '>'])
        .filter_map(|stage| stage.split_whitespace().next())
        .filter(|name| !name.contains('.') && !OWN.contains(name))
        .collect();
    let imports: String =
        names.iter().map(|name| format!("IMPORT 'library/elements/{name}.weft';\n")).collect();
    let text = format!(
        "IMPORT 'library/protocols/all.weft';\n{imports}{OTHERS}\
         CREATE PORT lan ON memory;\nCREATE PORT wan ON memory;\n\
         CREATE CHAIN tried ON PORT {on} AS {stages}; END;\n"
    );
    accepted([("bench.weft", text)]).unwrap_or_else(|why| panic!("{stages}: {why}")).0
}

/// The chain with rules and routes in its tables.
fn plan(backend: &dyn Backend, Accepted { network, lowered }: &Accepted) -> PacketPlan {
    let (network, mut lowered) = (network.clone(), lowered.clone());
    fill(&mut lowered, 100, 100);
    let mut store = StateStore::new(1, HashKey::from_seed(1));
    let mut staged = store.stage();
    let plan = plan_of(Accepted { network, lowered }, &mut staged, backend).expect("it is compiled");
    store.commit(staged);
    plan
}

/// Batches of frames: the port of arrival, the time since the previous batch, and the bytes.
struct Traffic(Vec<(u16, Interval, Vec<Vec<u8>>)>);

impl Traffic {
    fn new(network: &Network, seed: u64, frames: usize, n_ports: usize) -> Self {
        let rng = &mut Rng::from_seed(seed);
        let is_root = |protocol: &Protocol| protocol.name == "ethernet";
        let root = network.protocols.iter().position(is_root).expect("all protocols are there");
        let root = ProtocolId(root as u16);
        let (mut batches, mut left) = (Vec::new(), frames);
        while left > 0 {
            let n = (1 + rng.below(BATCH_MAX)).min(left);
            let mut batch: Vec<Vec<u8>> = Vec::new();
            while batch.len() < n {
                batch.extend(random_frames(&network.protocols, root, rng));
            }
            left -= n;
            let later = Interval::from_millis(rng.below(200) as i64 * rng.below(200) as i64);
            batches.push((rng.below(n_ports) as u16, later, batch));
        }
        Self(batches)
    }
}

/// A random frame of a few hosts and ports, so that flows recur, or two fragments of its innermost packet; sometimes
/// altered or truncated.
fn random_frames(protocols: &[Protocol], root: ProtocolId, rng: &mut Rng) -> Vec<Vec<u8>> {
    let (mut headers, payload) = generate::headers(protocols, root, rng);
    headers
        .iter_mut()
        .for_each(|header| reuse_values(&protocols[usize::from(header.protocol.0)], header, rng));
    let parts = if rng.below(4) == 0 { as_fragments(protocols, &headers, &payload, rng) } else { None };
    let whole = || build(protocols, &headers, &payload).into_iter().collect();
    let mut frames: Vec<Vec<u8>> = parts.map_or_else(whole, Vec::from);
    for frame in &mut frames {
        for _ in 0..rng.below(8).saturating_sub(5) {
            let at = rng.below(frame.len());
            frame[at] = rng.bits() as u8;
        }
        if rng.below(16) == 0 {
            frame.truncate(rng.below(frame.len()));
        }
    }
    frames
}

/// The two fragments of the innermost IPv4 packet, in either order. None if there is no such packet, or it is empty.
fn as_fragments(
    protocols: &[Protocol],
    headers: &[Header],
    payload: &[u8],
    rng: &mut Rng,
) -> Option<[Vec<u8>; 2]> {
    let ipv4 = protocols.iter().position(|protocol| protocol.name == "ipv4")?;
    let at = headers.iter().rposition(|header| usize::from(header.protocol.0) == ipv4)?;
    let field = |name: &str| {
        let at = protocols[ipv4].fields.iter().position(|field| field.name == name);
        FieldId(at.expect("the library has it") as u16)
    };
    let carried = build(protocols, &headers[at + 1..], payload).ok()?;
    let whole = build(protocols, &headers[at..], payload).ok()?;
    let cut = 8 * (1 + rng.below(carried.len().checked_sub(9)? / 8 + 1));
    let id = rng.below(1 << 16) as u64;
    let part = |bytes: &[u8], offset: usize, more: u64| {
        let mut outside = headers[..=at].to_vec();
        let values =
            [("id", id), ("mf", more), ("frag_offset", offset as u64 / 8), ("protocol", u64::from(whole[9]))];
        let values = values.map(|(name, value)| (field(name), FieldValue::Number(value)));
        outside[at].values.extend(values);
        build(protocols, &outside, bytes).ok()
    };
    let mut parts = [part(&carried[..cut], 0, 1)?, part(&carried[cut..], cut, 0)?];
    if rng.below(2) == 0 {
        parts.reverse();
    }
    Some(parts)
}

/// Replaces addresses and ports by few values, so that packets share flows and meet rows of tables.
fn reuse_values(protocol: &Protocol, header: &mut Header, rng: &mut Rng) {
    for (id, value) in &mut header.values {
        let field = protocol.fields[usize::from(id.0)].name.as_str();
        match (protocol.name.as_str(), field, value) {
            ("ethernet" | "ipv4" | "ipv6", "src" | "dst", FieldValue::Bytes(bytes)) => {
                bytes.fill(2);
                bytes.iter_mut().rev().take(1).for_each(|last| *last = rng.below(6) as u8);
            }
            ("tcp" | "udp", "src_port" | "dst_port", FieldValue::Number(port)) => {
                *port = 50 + rng.below(5) as u64
            }
            ("ipv4" | "ipv6_fragment", "frag_offset", FieldValue::Number(offset)) => {
                *offset = if rng.below(8) == 0 { rng.below(4) as u64 } else { 0 };
            }
            ("ipv4", "mf", FieldValue::Number(more)) => *more = u64::from(rng.below(8) == 0),
            ("ipv4", "ttl", FieldValue::Number(ttl)) => *ttl = rng.below(4) as u64,
            _ => {}
        }
    }
}

/// Runs the traffic through the program on a backend. Returns what the comparison needs.
fn observe(backend: &dyn Backend, accepted: &Accepted, traffic: &Traffic) -> Observed {
    let mut now = Time(1_000_000_000);
    let plan = Arc::new(plan(backend, accepted));
    let mut engine = PacketEngine::new(now, PacketConfig::default(), Arc::clone(&plan));
    let mut pool = Pool::new(PoolConfig { small: 1 << 14, large: 64 });
    let (mut left, mut rows, mut frames) = (Vec::new(), Vec::new(), Vec::new());
    let poll = |engine: &mut PacketEngine, pool: &mut Pool, left: &mut Vec<(u16, Vec<u8>)>| {
        let mut out = Vec::new();
        while let Some(port) = engine.poll_output(&mut out) {
            for frame in out.drain(..) {
                left.push((port, pool.bytes(&frame).to_vec()));
                pool.give(frame);
            }
        }
    };
    for (port, later, batch) in &traffic.0 {
        now += *later;
        frames.extend(batch.iter().enumerate().map(|(nth, bytes)| take(nth, bytes, &mut pool)));
        engine.handle_batch(now, *port, &mut frames, &mut pool, None);
        poll(&mut engine, &mut pool, &mut left);
        engine.handle_timeout(now, &mut pool, None);
        poll(&mut engine, &mut pool, &mut left);
        let seen = engine
            .rows()
            .rows()
            .map(|row| format!("{:?} {} {:?}", row.at, row.sink.name, row.values().collect::<Vec<_>>()));
        rows.extend(seen);
        engine.rows().clear();
    }
    let stats = engine.stats();
    engine.close(&mut pool);
    assert_eq!(pool.in_use(), 0, "a buffer is lost");
    Observed { left, rows, stats, tables: tables(&plan, now) }
}

/// Makes a frame with these bytes from the pool, sometimes with little headroom.
fn take(nth: usize, bytes: &[u8], pool: &mut Pool) -> Frame {
    let grown = if nth.is_multiple_of(5) { bytes.len().min(100) } else { 0 };
    let mut frame = pool.take_filled(&bytes[grown..]).expect("there are enough");
    if grown > 0 {
        pool.grow_front(&mut frame, grown).expect("there is room").copy_from_slice(&bytes[..grown]);
    }
    frame
}

/// Prints all rows of all tables, for the comparison.
fn tables(plan: &PacketPlan, now: Time) -> Vec<String> {
    let mut all = Vec::new();
    for table in plan.chains.iter().flat_map(|chain| chain.state.for_worker(0).tables.clone()) {
        let mut cursor = 0;
        while let Some((row, next)) = table.scan(cursor, now) {
            cursor = next;
            let mut seen = table.spec().name.clone();
            for (spec, at) in table.columns() {
                let mut bytes = Vec::new();
                match spec.ty.repr() {
                    _ if table.is_null(row, at) => seen.push_str(" null"),
                    Repr::Bytes => {
                        table.bytes_into(row, at, &mut bytes);
                        seen.push_str(&format!(" {bytes:?}"));
                    }
                    _ => seen.push_str(&format!(" {}", table.word(row, at))),
                }
            }
            all.push(seen);
        }
    }
    all.sort();
    all
}
