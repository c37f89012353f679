//! The packet engine, on chains in the text form of the IR.

use std::sync::Arc;
use weft_core::checksum;
use weft_core::flow::flow_of;
use weft_core::frame::build::{ethernet, fragments, set_ipv4_checksum};
use weft_core::frame::{Checksum, Frame, FrameMeta, Gso, GsoKind, Pool, PoolConfig};
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::ip::DONT_FRAGMENT;
use weft_core::limits::INPUTS_MAX;
use weft_core::table::Evict;
use weft_core::types::Type;
use weft_core::wire::{
    BinaryOp, Expr, Field, FieldId, Formats, Item, Next, Protocol, ProtocolId, Rule, Width,
};
use weft_core::{Interval, Status, Time, Value};
use weft_engine::packet::group::{Choice, GroupPlan, Member};
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain, PacketPlan};
use weft_engine::packet::stats::{DropReason, EndKind, PacketStats};
use weft_engine::packet::{
    Disposition, FRAGMENTS_TIME, FRAGMENTS_WAITING_MAX, HELD_MAX, PacketConfig, PacketEngine, Watch,
};
use weft_engine::state::{Staged, StateStore};
use weft_ir::backend::Backend;
use weft_ir::generate::{self, Rng, World};
use weft_ir::interp::Interp;
use weft_ir::ir::Op;
use weft_ir::program::{
    ChainProgram, Check, Event, FieldLayout, FieldWrite, Frames, Handlers, Input, InputLocation, Sum,
};
use weft_ir::text::{self, parse_program};
use weft_ir::verify::{Handler, verify, verify_program};
use weft_jit::Jit;

/// Ethernet, IPv4 and UDP.
pub(crate) const FRAMES: &str = include_str!("../../../../tests/ir/frames.ir");
pub(crate) const START: Time = Time(1_000_000_000);

/// An element with these lines as its ON PACKET.
pub(crate) fn element(name: &str, body: &str) -> String {
    format!("element \"{name}\" \"{name}\"\nhandler request function \"{name}\" {{\n{body}\n}}\n")
}

pub(crate) fn program(elements: &[String]) -> ChainProgram {
    program_of(&format!("{FRAMES}{}", elements.concat()))
}

fn program_of(text: &str) -> ChainProgram {
    let program = parse_program(text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify_program(&program).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    program
}

/// The same program with unread inputs in between, so that its own inputs lie in all words of a set.
fn spread(text: &str) -> String {
    let (own, by) = (13, INPUTS_MAX / 13);
    let fillers = "  input \"filler\" U64 meta index\n".repeat(by - 1);
    // `in12` before `in1`, which it begins with.
    let renamed = (0..own)
        .rev()
        .fold(text.to_owned(), |text, at| text.replace(&format!("in{at}"), &format!("@{}", at * by)));
    let line = |line: &str| match line.starts_with("  input") {
        true => format!("{line}\n{fillers}"),
        false => format!("{line}\n"),
    };
    renamed.lines().map(line).collect::<String>().replace('@', "in")
}

/// A router's step: decrements the TTL, and drops frames without any left.
pub(crate) fn ttl() -> String {
    element(
        "hop",
        "block0:\n v0: int = input in2\n v1: int = int 1\n v2: bool = icmp.ule v0, v1\n branch v2, block1, block2\n\
         block1:\n drop ; line 7\nblock2:\n v3: int = sub v0, v1\n set_input in2, v3\n forward",
    )
}

pub(crate) fn jit() -> Jit {
    Jit::new().expect("this machine is one that code is generated for")
}

/// A plan with ports `a`, `b` and `c`; chains are on `a` and lead to `b`.
pub(crate) struct Rig {
    pub(crate) store: StateStore,
    version: u64,
}

impl Rig {
    pub(crate) fn new(workers: usize) -> Self {
        Self { store: StateStore::new(workers, HashKey::from_seed(1)), version: 0 }
    }

    pub(crate) fn plan(
        &mut self,
        backend: &dyn Backend,
        chains: Vec<(ChainProgram, Option<ChainProgram>)>,
    ) -> Arc<PacketPlan> {
        self.version += 1;
        let mut staged = self.store.stage();
        let plan = self.build(&mut staged, backend, chains);
        self.store.commit(staged);
        plan
    }

    /// Code of the chains of the last plan, for their tables as they are.
    pub(crate) fn code_anew(
        &mut self,
        backend: &dyn Backend,
        chains: Vec<(ChainProgram, Option<ChainProgram>)>,
    ) -> Arc<PacketPlan> {
        let mut staged = self.store.stage();
        staged.keep_rows();
        let mut plan = self.build(&mut staged, backend, chains);
        Arc::get_mut(&mut plan).expect("it is not shared").forget_rules();
        self.store.note_coded();
        plan
    }

    fn build(
        &self,
        staged: &mut Staged,
        backend: &dyn Backend,
        chains: Vec<(ChainProgram, Option<ChainProgram>)>,
    ) -> Arc<PacketPlan> {
        let (version, ports) = (self.version, ["a", "b", "c"].map(String::from).into());
        let build = |(program, condition): (ChainProgram, _)| {
            let natives = World::new(&program).state.natives.clone();
            staged.give_natives(&program.name, natives);
            let on = ChainOn { program, condition, ports: vec![0, 2], to: Some(Outlet::Port(1)) };
            Arc::new(PacketChain::build(version, on, staged, backend).expect("it is well-formed"))
        };
        let chains = chains.into_iter().map(build).collect();
        Arc::new(PacketPlan { version, ports, chains, ..PacketPlan::default() })
    }
}

pub(crate) fn engine(plan: &Arc<PacketPlan>) -> PacketEngine {
    PacketEngine::new(START, PacketConfig::default(), Arc::clone(plan))
}

pub(crate) fn one(backend: &dyn Backend, elements: &[String]) -> PacketEngine {
    engine(&Rig::new(1).plan(backend, vec![(program(elements), None)]))
}

/// The disposition of each frame, with its bytes at that time.
#[derive(Default)]
pub(crate) struct Dispositions(Vec<(String, Vec<u8>)>);

impl Watch for Dispositions {
    fn frame(&mut self, fate: Disposition<'_>, _: &Frame, bytes: &[u8]) {
        self.0.push((fate.to_string(), bytes.to_vec()));
    }
}

impl Dispositions {
    /// What may be compared: a frame dropped for a length mismatch has the edits applied by then, and code applies them
    /// in another order.
    fn settled(&self) -> Vec<(&str, &[u8])> {
        let mut all = Vec::with_capacity(self.0.len());
        for (fate, bytes) in &self.0 {
            let is_unfit = ["unfit value", "does not fit its field"].iter().any(|what| fate.contains(what));
            all.push((fate.as_str(), if is_unfit { &[][..] } else { bytes }));
        }
        all
    }
}

/// Frames that leave: port, mark, bytes.
pub(crate) type SentFrames = Vec<(u16, u64, Vec<u8>)>;

/// Runs packets through port `a` in batches of this size.
pub(crate) fn run(
    engine: &mut PacketEngine,
    pool: &mut Pool,
    packets: &[Vec<u8>],
    batch: usize,
) -> (SentFrames, Vec<(String, Vec<u8>)>) {
    let mut seen = Dispositions::default();
    let left = run_watched(engine, pool, packets, batch, Some(&mut seen));
    (left, seen.0)
}

pub(crate) fn run_watched(
    engine: &mut PacketEngine,
    pool: &mut Pool,
    packets: &[Vec<u8>],
    batch: usize,
    mut seen: Option<&mut Dispositions>,
) -> SentFrames {
    let (mut left, mut frames) = (Vec::new(), Vec::new());
    for (nth, packets) in packets.chunks(batch).enumerate() {
        for (at, packet) in packets.iter().enumerate() {
            let mut frame = pool.take_filled(packet).expect("the pool is large enough");
            let sequence = (nth * batch + at) as u64;
            frame.meta = FrameMeta {
                arrived: START + Interval(1000 * sequence as i64),
                sequence,
                ..FrameMeta::default()
            };
            frames.push(frame);
        }
        let watch = seen.as_mut().map(|seen| &mut **seen as &mut dyn Watch);
        engine.handle_batch(START, 0, &mut frames, pool, watch);
        assert!(frames.is_empty());
        collect(engine, pool, &mut left);
    }
    left
}

pub(crate) fn collect(engine: &mut PacketEngine, pool: &mut Pool, left: &mut SentFrames) {
    let mut frames = Vec::new();
    while let Some(port) = engine.poll_output(&mut frames) {
        for frame in frames.drain(..) {
            assert_eq!(frame.meta.port, port);
            left.push((port, frame.meta.marks.class().map_or(0, u64::from), pool.bytes(&frame).to_vec()));
            pool.give(frame);
        }
    }
}

fn sum(bytes: &[u8]) -> u16 {
    checksum::fold(checksum::sum(bytes))
}

/// A UDP packet with right checksums.
pub(crate) fn udp(ttl: u8, src: [u8; 4], dst: [u8; 4], ports: (u16, u16), payload: &[u8]) -> Vec<u8> {
    let ip = ethernet().ipv4(src, dst).tos(0x28).fragment(0x1234, DONT_FRAGMENT).ttl(ttl);
    ip.udp(ports.0, ports.1).payload(payload).build()
}

/// The sum of the pseudo header and the datagram, its checksum field included.
fn udp_sum(packet: &[u8]) -> u16 {
    let mut covered = packet[26..34].to_vec();
    covered.extend([0, 17]);
    covered.extend(&packet[38..40]);
    covered.extend(&packet[34..]);
    sum(&covered)
}

fn assert_sums(packet: &[u8]) {
    assert_eq!(sum(&packet[14..34]), 0xffff, "the header's: {packet:02x?}");
    assert!(packet[40..42] == [0, 0] || udp_sum(packet) == 0xffff, "the datagram's: {packet:02x?}");
}

pub(crate) fn packet(ttl: u8) -> Vec<u8> {
    udp(ttl, [10, 0, 0, 1], [10, 0, 0, 2], (1000, 53), b"hello")
}

pub(crate) fn pool() -> Pool {
    Pool::new(PoolConfig { small: 512, large: 4 })
}

fn chain_stats(stats: &PacketStats) -> &weft_engine::packet::stats::PacketChainStats {
    &stats.chains[0]
}

#[test]
fn chain_rewrites_and_counts_drops() {
    // If it failed, a router would write the TTL to a wrong place, or miscount its drops.
    for backend in [&Interp as &dyn Backend, &jit()] {
        let (mut engine, mut pool) = (one(backend, &[ttl()]), pool());
        let (left, seen) = run(&mut engine, &mut pool, &[packet(64), packet(1), packet(2)], 2);
        let wanted = [packet(63), packet(1)].map(|bytes| (1, 0, bytes));
        assert_eq!(left, wanted);
        let fates: Vec<&str> = seen.iter().map(|(fate, _)| fate.as_str()).collect();
        assert_eq!(fates, ["forward to b", "drop by hop line 7", "forward to b"]);
        let stats = engine.stats();
        let chain = chain_stats(&stats);
        assert_eq!((chain.frames, chain.elements[0].1.seen, chain.elements[0].1.dropped), (3, 3, 1));
        assert_eq!((chain.ends[0].line, chain.ends[0].how, chain.ends[0].n), (7, EndKind::Dropped, 1));
        assert_eq!((stats.ports[0].received, stats.ports[1].sent, pool.in_use()), (3, 2, 0));
    }
}

#[test]
fn timing_samples_each_chain() {
    // All ports of a worker deliver batches at one time: with one timer for all, only the first port's chain would ever
    // be timed under load.
    let jit = jit();
    let rig = Rig::new(1);
    let mut staged = rig.store.stage();
    let mut on_port = |port: u16| {
        let mut program = program(&[ttl()]);
        program.name = format!("of_{port}");
        let on = ChainOn { program, condition: None, ports: vec![port], to: Some(Outlet::Port(1)) };
        Arc::new(PacketChain::build(1, on, &mut staged, &jit).expect("it is well-formed"))
    };
    let (chains, ports) = ([0, 2].map(&mut on_port).into(), ["a", "b", "c"].map(String::from).into());
    let plan = PacketPlan { version: 1, ports, chains, ..PacketPlan::default() };
    let clock: fn() -> u64 = || 0;
    let config = PacketConfig { clock: Some(clock), ..PacketConfig::default() };
    let (mut engine, mut pool) = (PacketEngine::new(START, config, Arc::new(plan)), pool());
    for ms in 0..4 {
        for port in [0, 2, 0, 2] {
            let mut frames: Vec<Frame> =
                (0..64).map(|_| pool.take_filled(&packet(9)).expect("the pool is large enough")).collect();
            engine.handle_batch(START + Interval::from_millis(ms), port, &mut frames, &mut pool, None);
            collect(&mut engine, &mut pool, &mut SentFrames::new());
        }
    }
    let stats = engine.stats();
    let timed = stats.chains.iter().map(|chain| (chain.frames, chain.elements[0].1.sampled));
    assert_eq!(timed.collect::<Vec<_>>(), [(512, 4); 2]);
}

/// Writes the last eight bits of the flow where the TTL is, and drops errors of ICMP.
fn program_of_bytes() -> ChainProgram {
    let inputs = "input \"flow\" U64 meta flow\n  input \"is_icmp_error\" BOOL meta is_icmp_error\nresponse";
    let element = element(
        "flow",
        "block0:\n v0: bool = input in14\n branch v0, block1, block2\nblock1:\n drop ; line 7\n\
         block2:\n v1: int = input in13\n v2: int = int 255\n v3: int = and v1, v2\n set_input in2, v3\n forward",
    );
    let mut program = program_of(&format!("{}{element}", FRAMES.replacen("response", inputs, 1)));
    program.frames.as_mut().expect("it has some").formats = Some(Arc::new(formats_of_errors()));
    program
}

/// Headers of 20 bytes of IPv4 behind those of Ethernet, and behind them ICMP, of which type 3 is an error.
fn formats_of_errors() -> Formats {
    let field = |bytes: u64| Field {
        name: String::new(),
        width: Width::Bytes { count: Expr::Int(bytes), max: bytes as u32 },
        ty: Type::Bytes(None),
        rule: Rule::Plain,
        check: None,
        optional: false,
        repeated: false,
        line: 1,
    };
    let is = |n| Expr::Binary(BinaryOp::Eq, Box::new(Expr::Field(FieldId(1))), Box::new(Expr::Int(n)));
    // Any bytes, a number of some bits that tells the type, and the rest.
    let header = |in_front: u64, bits: u8, behind: u64, next: Option<u64>| {
        let number = Field { width: Width::Bits { n: bits, little: false }, ..field(0) };
        Protocol {
            fields: vec![field(in_front), number, field(behind)],
            items: (0..3).map(|id| Item::Field(FieldId(id))).collect(),
            next: next.map_or_else(Vec::new, |number| {
                let to = ProtocolId(if number == 1 { 2 } else { 1 });
                vec![Next { condition: is(number), to, inner: false, or_bytes: false, line: 1 }]
            }),
            ..Protocol::default()
        }
    };
    let icmp = Protocol { error: Some(is(3)), ..header(0, 8, 7, None) };
    Formats {
        protocols: vec![header(12, 16, 0, Some(0x0800)), header(9, 8, 10, Some(1)), icmp],
        roots: vec![ProtocolId(0)],
    }
}

#[test]
fn raw_byte_reads_need_no_parser() {
    // If it failed, a router would spread flows at random, answer errors, or hold fragments whose first goes another
    // way.
    let whole = |from| udp(9, [10, 0, 0, 1], [10, 0, 0, 2], (from, 53), &[0x5a; 200]);
    let icmp = |kind: u16| {
        let mut packet = whole(kind << 8);
        packet[23] = 1;
        set_ipv4_checksum(&mut packet[14..]);
        packet
    };
    let mut packets: Vec<_> = (0..16).map(whole).collect();
    packets.extend(fragments(&whole(7), 1, 64).split_off(1));
    packets.push(icmp(8));
    let flow = |packet: &Vec<u8>| flow_of(packet, false).flow as u8;
    let wanted: Vec<u8> = packets.iter().map(flow).collect();
    packets.push(icmp(3));
    for backend in [&Interp as &dyn Backend, &jit()] {
        let plan = Rig::new(1).plan(backend, vec![(program_of_bytes(), None)]);
        let (mut engine, mut pool) = (engine(&plan), pool());
        let (left, _) = run(&mut engine, &mut pool, &packets, 64);
        assert_eq!(left.iter().map(|(_, _, bytes)| bytes[22]).collect::<Vec<_>>(), wanted);
        let stats = engine.stats();
        assert_eq!(stats.chains[0].ends.iter().map(|end| (end.line, end.n)).collect::<Vec<_>>(), [(7, 1)]);
    }
}

/// A program whose parser knows fragments, and gives later ones the ports of the first.
fn program_on_fragments(elements: &[String]) -> ChainProgram {
    let text = FRAMES
        .replace(
            "parser function",
            "check \"ipv4\" \"overlaps another fragment, or ends where none may\" line 18\noverlaps 4 5\n\
             inherited in6\ninherited in7\ninherited in8\nparser function",
        )
        .replace(
            "branch v38, block12, block15",
            "v48: int = int 20\n v49: int = frame_get.big v48, 2\n v50: int = int 8191\n v51: int = and v49, v50\n \
             v52: bool = icmp.eq v51, v7\n v53: bool = bool.and v38, v52\n branch v53, block12, block15",
        );
    program_of(&format!("{text}{}", elements.concat()))
}

/// Drops datagrams to port 9, and sends all others on to port 99.
fn no_nine() -> String {
    element(
        "nine",
        "block0:\n v0: bool = input_present in7\n branch v0, block1, block2\nblock1:\n v1: int = input in7\n \
         v2: int = int 9\n v3: bool = icmp.eq v1, v2\n branch v3, block3, block4\nblock2:\n drop ; line 5\n\
         block3:\n drop ; line 3\nblock4:\n v4: int = int 99\n set_input in7, v4\n forward",
    )
}

#[test]
fn later_fragment_inherits_ports() {
    // If it failed, a firewall would pass all of a datagram except its first fragment, or nothing of a permitted one.
    let datagram = |port| udp(9, [10, 0, 0, 1], [10, 0, 0, 2], (7, port), &[0x5a; 200]);
    let (good, bad) = (fragments(&datagram(53), 1, 64), fragments(&datagram(9), 2, 64));
    let mut wanted = fragments(&datagram(53), 1, 64);
    wanted[0][36..38].copy_from_slice(&99_u16.to_be_bytes());
    let whole = udp(9, [10, 0, 0, 1], [10, 0, 0, 2], (7, 99), &[0x5a; 200]);
    wanted[0][40..42].copy_from_slice(&whole[40..42]);
    wanted.sort();
    let mut rng = Rng::from_seed(3);
    for backend in [&Interp as &dyn Backend, &jit()] {
        for round in 0..40 {
            let plan = Rig::new(1).plan(backend, vec![(program_on_fragments(&[no_nine()]), None)]);
            let (mut engine, mut pool) = (engine(&plan), pool());
            let mut packets = [&good[..], &bad[..], &[packet(5)]].concat();
            if round > 0 {
                (1..packets.len()).rev().for_each(|at| packets.swap(at, rng.below(at + 1)));
            }
            let batch = rng.pick(&[1, 3, 64]);
            let seen = round % 2 == 0;
            let mut told = Dispositions::default();
            let left = run_watched(&mut engine, &mut pool, &packets, batch, seen.then_some(&mut told));
            let mut left: Vec<_> = left.into_iter().map(|(_, _, bytes)| bytes).collect();
            left.retain(|bytes| bytes[18..20] == [0, 1]);
            left.sort();
            assert_eq!(left, wanted, "round {round}, batches of {batch}");
            let stats = engine.stats();
            assert_eq!(
                stats.chains[0].ends.iter().map(|end| (end.line, end.n)).collect::<Vec<_>>(),
                [(3, 4)]
            );
            assert_eq!((stats.ports[0].received, stats.drops.len(), pool.in_use()), (9, 0, 0));
        }
    }
}

#[test]
fn lying_fragments_are_dropped() {
    // If it failed, a header could be hidden from a firewall by an overlapping fragment (RFC 1858, RFC 3128).
    let plan = Rig::new(1).plan(&jit(), vec![(program_on_fragments(&[no_nine()]), None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    let parts = |id, bytes| fragments(&udp(9, [1; 4], [2; 4], (7, 53), &[1; 200]), id, bytes);
    // The second overlaps the end of the first, so all fragments behind it are lost, too.
    let mut hidden = parts(1, 64);
    hidden[1] = parts(1, 56)[1].clone();
    let (left, seen) = run(&mut engine, &mut pool, &hidden, 64);
    assert_eq!(left.len(), 1);
    assert!(
        seen[..3].iter().all(|(fate, _)| fate
            == "malformed by ipv4 line 18: overlaps another fragment, or ends where none may"),
        "{seen:?}"
    );
    // A duplicate passes once, and the rest passes.
    let mut twice = parts(2, 64);
    twice.insert(1, twice[1].clone());
    let (left, _) = run(&mut engine, &mut pool, &twice, 64);
    assert_eq!(left.len(), 4);
    // A malformed first fragment takes the others with it.
    let mut broken = parts(3, 64);
    broken[0][25] ^= 1;
    let (left, seen) = run(&mut engine, &mut pool, &broken, 64);
    assert!(left.is_empty() && seen.iter().all(|(fate, _)| fate.contains("checksum")), "{seen:?}");
    // Fragments without the first are dropped in time.
    run(&mut engine, &mut pool, &parts(4, 64)[1..], 64);
    assert_eq!((engine.held(), pool.in_use()), (3, 3));
    engine.handle_timeout(START + FRAGMENTS_TIME + Interval(1), &mut pool, None);
    assert_eq!(engine.held(), 0);
    let lost = engine.stats().drops;
    assert!(lost.contains(&(DropReason::NoFirstFragment, 3)), "{lost:?}");
    run(&mut engine, &mut pool, &[packet(5)], 1);
    assert_eq!((pool.in_use(), engine.stats().drops), (0, lost));
}

#[test]
fn fragment_flood_stays_in_limits() {
    // If it failed, anyone could use up all buffers of a firewall.
    let plan = Rig::new(1).plan(&jit(), vec![(program_on_fragments(&[no_nine()]), None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    let datagram =
        |from: u16| udp(9, from.to_be_bytes().repeat(2).try_into().expect("4"), [2; 4], (7, 53), &[1; 99]);
    for from in 0..6_000_u16 {
        let parts = fragments(&datagram(from), from, 64);
        // First fragments alone fill the table; all others wait.
        run(&mut engine, &mut pool, &parts[usize::from(from % 2)..][..1], 1);
        assert!(engine.held() <= FRAGMENTS_WAITING_MAX && pool.in_use() <= FRAGMENTS_WAITING_MAX + 1);
    }
    // A complete packet still passes at once, in both orders.
    for back in [false, true] {
        let mut parts = fragments(&datagram(9_000), 7, 64);
        if back {
            parts.reverse();
        }
        let (left, _) = run(&mut engine, &mut pool, &parts, 64);
        assert_eq!(left.len(), 2);
    }
    let lost = engine.stats().drops;
    assert_eq!(lost.iter().map(|(reason, _)| *reason).collect::<Vec<_>>(), [DropReason::FragmentsTooMany]);
    assert_eq!(lost[0].1 + engine.held() as u64, 3_000);
    engine.close(&mut pool);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn malformed_frames_count_by_check() {
    // If it failed, an attack would look like a bad cable.
    let (mut engine, mut pool) = (one(&jit(), &[ttl()]), pool());
    let good = packet(9);
    let mut bad_version = good.clone();
    bad_version[14] = 0x65;
    let mut bad_sum = good.clone();
    bad_sum[22] += 1;
    let mut long_header = good.clone();
    long_header[14] = 0x4f;
    let arp = [&good[..12], &[8, 6], &[0; 28][..]].concat();
    let packets =
        [vec![1, 2], good[..33].to_vec(), bad_version, bad_sum, good[..40].to_vec(), long_header, arp];
    let (left, seen) = run(&mut engine, &mut pool, &packets, 64);
    let fates: Vec<&str> = seen.iter().map(|(fate, _)| fate.as_str()).collect();
    let wanted = [
        "malformed by ethernet line 3: truncated",
        "malformed by ipv4 line 11: truncated",
        "malformed by ipv4 line 12: version is not 4",
        "malformed by ipv4 line 21: checksum",
        "malformed by udp line 30: truncated",
        "malformed by ipv4 line 11: truncated",
        // It has no TTL, which counts as zero.
        "drop by hop line 7",
    ];
    assert_eq!(fates, wanted);
    assert!(left.is_empty());
    let counts: Vec<u64> = chain_stats(&engine.stats()).malformed.iter().map(|(_, n)| *n).collect();
    assert_eq!(counts, [1, 2, 1, 1, 1]);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn verdicts_select_the_egress() {
    // A frame in the wrong network is a leak; an uncounted loss cannot be found.
    let verdict = |end: &str| {
        let body = format!(
            "block0:\n v0: bytes = bytes \"c\"\n v1: bytes = bytes \"*\"\n v2: bytes = bytes \"x\"\n {end} ; line 5"
        );
        let (mut engine, mut pool) = (one(&jit(), &[element("e", &body)]), pool());
        let (left, seen) = run(&mut engine, &mut pool, &[packet(3)], 1);
        assert_eq!(pool.in_use(), 0);
        let stats = engine.stats();
        (left.iter().map(|(port, ..)| *port).collect::<Vec<_>>(), seen[0].0.clone(), stats)
    };
    assert_eq!(verdict("forward").0, [1]);
    let (ports, fate, _) = verdict("redirect v0");
    assert_eq!((ports, fate.as_str()), (vec![2], "redirect to c by e line 5"));
    let (ports, fate, stats) = verdict("redirect v1");
    assert_eq!((ports, fate.as_str(), stats.copies), (vec![1, 2], "redirect to * by e line 5", 1));
    let (ports, fate, stats) = verdict("redirect v2");
    assert_eq!((ports, fate.as_str()), (vec![], "redirect to no port by e line 5"));
    assert_eq!(chain_stats(&stats).ends[0].how, EndKind::NoSuchPort);
    let (_, fate, stats) = verdict("abort RESOURCE_EXHAUSTED");
    assert_eq!(fate, "abort RESOURCE_EXHAUSTED by e line 5");
    assert_eq!(chain_stats(&stats).ends[0].how, EndKind::Aborted(Status::ResourceExhausted));
    let (_, fate, stats) = verdict("v3: int = int 2\n fail v3");
    assert_eq!(fate, "failed (division by zero) by e line 5");
    assert_eq!(chain_stats(&stats).elements[0].1.failed, 1);
}

#[test]
fn mirror_copies_frame_at_its_point() {
    // If it failed, a monitor would see packets that were never on the wire.
    let body = "block0:\n v0: bytes = bytes \"c\"\n v1: int = int 7\n set_input in2, v1\n mirror v0\n \
                v2: int = int 8\n set_input in2, v2\n v3: int = int 77\n mark.class v3\n forward";
    let (mut engine, mut pool) = (one(&jit(), &[element("e", body)]), pool());
    let (left, _) = run(&mut engine, &mut pool, &[packet(3)], 1);
    assert_eq!(left, [(1, 77, packet(8)), (2, 77, packet(7))]);
    let gone = body.replace("bytes \"c\"", "bytes \"nowhere\"");
    let mut engine = one(&jit(), &[element("e", &gone)]);
    run(&mut engine, &mut pool, &[packet(3)], 1);
    assert_eq!(engine.stats().drops, [(DropReason::NoMirrorPort, 1)]);
}

#[test]
fn delayed_frame_leaves_when_due() {
    // If it failed, DELAY would lose, double or reorder packets.
    let body = "block0:\n v0: int = int 5000000\n delay v0\n forward";
    let (mut engine, mut pool) = (one(&Interp, &[element("e", body)]), pool());
    let packets = [packet(3), packet(4), packet(5)];
    let (left, _) = run(&mut engine, &mut pool, &packets, 2);
    assert!(left.is_empty());
    assert_eq!(engine.held(), 3);
    let mut left = Vec::new();
    let at = engine.poll_timeout().expect("frames wait");
    assert!(at >= START + Interval::from_millis(5) && at <= START + Interval::from_millis(7));
    engine.handle_timeout(at, &mut pool, None);
    collect(&mut engine, &mut pool, &mut left);
    assert_eq!(left, packets.map(|packet| (1, 0, packet)));
    run(&mut engine, &mut pool, &[packet(3)], 1);
    engine.close(&mut pool);
    assert_eq!((engine.held(), pool.in_use()), (0, 0));
}

#[test]
fn delay_limit_counts_drops() {
    // If it failed, delayed frames could use up all buffers, or frames would be lost without a count.
    let body =
        "block0:\n v0: int = input in2\n v1: int = int 1000000\n v2: int = mul v0, v1\n delay v2\n forward";
    let mut pool = Pool::new(PoolConfig { small: 8192, large: 1 });
    for backend in [&Interp as &dyn Backend, &jit()] {
        let mut engine = one(backend, &[element("e", body)]);
        // The one with the longest delay arrived first and leaves last.
        run(&mut engine, &mut pool, &[packet(9), packet(3), packet(3), packet(6)], 4);
        let mut left = Vec::new();
        for _ in 0..20 {
            let Some(at) = engine.poll_timeout() else { break };
            engine.handle_timeout(at, &mut pool, None);
            collect(&mut engine, &mut pool, &mut left);
        }
        let ttls: Vec<u8> = left.iter().map(|(_, _, bytes)| bytes[22]).collect();
        assert_eq!(ttls, [3, 3, 6, 9]);
        for _ in 0..HELD_MAX / 64 + 1 {
            run(&mut engine, &mut pool, &vec![packet(9); 64], 64);
        }
        assert_eq!((engine.held(), engine.stats().drops), (HELD_MAX, vec![(DropReason::HeldTooMany, 64)]));
        engine.close(&mut pool);
        assert_eq!(pool.in_use(), 0);
    }
}

#[test]
fn first_matching_chain_takes_frame() {
    // If it failed, a rule for DNS would apply to other traffic, or to none.
    let body = "block0:\n v0: int = input in7\n v1: int = int 53\n v2: bool = icmp.eq v0, v1\n \
                branch v2, block1, block2\nblock1:\n forward\nblock2:\n drop ; line 1";
    let mut condition = program(&[element("when", body)]);
    condition.name = "dns.when".to_owned();
    condition.tables.clear();
    let mut rest = program(&[element("e", "block0:\n v0: int = int 9\n mark.class v0\n forward")]);
    rest.name = "rest".to_owned();
    let plan = Rig::new(1).plan(&jit(), vec![(program(&[ttl()]), Some(condition.clone())), (rest, None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    let other = udp(9, [1, 2, 3, 4], [4, 3, 2, 1], (5, 80), b"");
    let packets = [packet(9), other.clone(), packet(1), vec![0; 3]];
    let (left, seen) = run(&mut engine, &mut pool, &packets, 64);
    assert_eq!(left, [(1, 0, packet(8)), (1, 9, other)]);
    assert_eq!(seen[3].0, "malformed by ethernet line 3: truncated");
    let frames: Vec<u64> = engine.stats().chains.iter().map(|chain| chain.frames).collect();
    assert_eq!(frames, [3, 1]);

    let alone = Rig::new(1).plan(&jit(), vec![(program(&[ttl()]), Some(condition))]);
    let mut engine = self::engine(&alone);
    run(&mut engine, &mut pool, &[udp(9, [1; 4], [2; 4], (5, 80), b"")], 1);
    assert_eq!(engine.stats().drops, [(DropReason::NoChain, 1)]);
}

/// Random changes of all fields, in several elements.
fn rewriter(rng: &mut Rng) -> Vec<String> {
    let change = |rng: &mut Rng| match rng.below(5) {
        0 => format!(" vN: int = int {}\n set_input in2, vN\n", rng.below(256)),
        1 => format!(" vN: int = int {}\n set_input in12, vN\n", rng.below(64)),
        2 => format!(" vN: int = int {}\n set_input in{}, vN\n", rng.below(65536), 6 + rng.below(2)),
        3 => " vN: bytes = input in3\n set_input in4, vN\n".to_owned(),
        _ => {
            let byte = |rng: &mut Rng| rng.pick(&["\\x00", "\\xff", "a", "\\x7f"]);
            let bytes: String = (0..4).map(|_| byte(rng)).collect();
            format!(" vN: bytes = bytes \"{bytes}\"\n set_input in{}, vN\n", 3 + rng.below(2))
        }
    };
    let body = |rng: &mut Rng| {
        let changes = (0..rng.below(5)).map(|n| change(rng).replace("vN", &format!("v{n}")));
        format!("block0:\n{} forward", changes.collect::<String>())
    };
    (0..1 + rng.below(3)).map(|n| element(&format!("e{n}"), &body(rng))).collect()
}

#[test]
fn slow_path_keeps_frame_order() {
    // If it failed, a frame on the slow path would pass twice or not at all, or frames behind it would get its inputs.
    let jit = jit();
    let elements = [
        ttl(),
        element(
            "mark",
            "block0:\n v0: int = input in6\n v1: int = int 9\n v2: bool = icmp.eq v0, v1\n branch v2, block1, \
             block2\nblock1:\n v3: int = int 4242\n set_input in6, v3\n forward\nblock2:\n forward",
        ),
    ];
    let spread = program_of(&spread(&format!("{FRAMES}{}", elements.concat())));
    let programs = [program(&elements), spread];
    for chain in programs.clone().map(Arc::new) {
        let state = World::new(&chain).state;
        let code = jit.compile(&chain, Event::Request, &state).expect("it is well-formed");
        assert!(code.has_fast_path(), "there is a way of usual frames");
    }
    let frame = |rng: &mut Rng, nth: usize| {
        let port = rng.pick(&[9, 53]);
        let mut frame = udp(rng.pick(&[1, 64]), [10, 0, 0, 1], [10, 0, 0, 2], (7, port), &[nth as u8; 9]);
        match rng.below(8) {
            // A tag, which the parser of these frames does not know; options; a wrong checksum; too short; a first
            // fragment, a later one; a length beyond the end.
            0 => drop(frame.splice(12..12, [0x81, 0, 0, 7])),
            1 => {
                frame[14] = 0x46;
                frame.splice(34..34, [1; 4]);
            }
            2 => frame[24] ^= 0xff,
            3 => frame.truncate(rng.below(frame.len())),
            4 => frame[20] |= 0x20,
            5 => frame[21] |= 1,
            6 => frame[17] += 40,
            _ => {}
        }
        frame
    };
    for seed in 0..if cfg!(debug_assertions) { 20 } else { 500 } {
        let mut rng = Rng::from_seed(seed);
        let packets: Vec<Vec<u8>> = (0..150).map(|nth| frame(&mut rng, nth)).collect();
        let run = |backend: &dyn Backend, program: &ChainProgram| {
            let mut engine = engine(&Rig::new(1).plan(backend, vec![(program.clone(), None)]));
            let left = run_watched(&mut engine, &mut pool(), &packets, 1 + seed as usize % 64, None);
            (left, format!("{:?}", engine.stats()))
        };
        let wanted = run(&Interp, &programs[0]);
        for program in &programs {
            assert_eq!(run(&jit, program), wanted, "seed {seed}, {} inputs", program.request.inputs.len());
        }
        assert_eq!(run(&Interp, &programs[1]), wanted, "seed {seed}");
    }
}

#[test]
fn updated_checksum_equals_recomputed() {
    // If it failed, receivers would discard what passed a NAT.
    let jit = jit();
    for seed in 0..if cfg!(debug_assertions) { 15 } else { 600 } {
        let mut rng = Rng::from_seed(seed);
        let elements = rewriter(&mut rng);
        let packets: Vec<Vec<u8>> = (0..50)
            .map(|_| {
                let payload: Vec<u8> = (0..rng.below(9)).map(|_| rng.below(256) as u8).collect();
                let address = |rng: &mut Rng| rng.pick(&[[0; 4], [255; 4], [10, 0, 0, 1], [0, 0, 255, 255]]);
                let ports = (rng.pick(&[0, 1, 53, 65535]), rng.below(65536) as u16);
                let ttl = rng.below(256) as u8;
                let mut packet = udp(ttl, address(&mut rng), address(&mut rng), ports, &payload);
                if rng.percent(20) {
                    packet[40..42].fill(0);
                }
                packet
            })
            .collect();
        let pass = |backend: &dyn Backend, seen: Option<&mut Dispositions>| {
            run_watched(&mut one(backend, &elements), &mut pool(), &packets, 32, seen)
        };
        let left = pass(&jit, None);
        assert_eq!(left, pass(&jit, Some(&mut Dispositions::default())), "seed {seed}: watched");
        assert_eq!(left, pass(&Interp, None), "seed {seed}: interpreted");
        assert_eq!(left.len(), packets.len());
        for ((_, _, now), before) in left.iter().zip(&packets) {
            assert_sums(now);
            assert_eq!(now[40..42] == [0, 0], before[40..42] == [0, 0], "a checksum came or went");
        }
    }
}

#[test]
fn offloaded_checksum_follows_pseudo_header() {
    // If it failed, packets of a host that offloads checksums would leave a NAT with wrong ones.
    let body = "block0:\n v0: bytes = bytes \"\\x7f\\x00\\x00\\x01\"\n set_input in3, v0\n v1: int = int 5353\n \
                set_input in6, v1\n forward";
    let (mut engine, mut pool) = (one(&jit(), &[element("nat", body)]), pool());
    let mut bytes = packet(9);
    // The checksum that a sender leaves: the sum of the pseudo header alone.
    let pseudo = sum(&[&bytes[26..34], &[0, 17], &bytes[38..40]].concat());
    bytes[40..42].copy_from_slice(&pseudo.to_be_bytes());
    let mut frame = pool.take_filled(&bytes).expect("a buffer");
    frame.meta.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
    let mut frames = vec![frame];
    engine.handle_batch(START, 0, &mut frames, &mut pool, None);
    assert_eq!(engine.poll_output(&mut frames), Some(1));
    let mut frame = frames.pop().expect("it was forwarded");
    let mut offload = frame.meta.offload;
    offload.finish_checksum(pool.bytes_mut(&frame)).expect("it is in the packet");
    frame.meta.offload = offload;
    assert_sums(pool.bytes(&frame));
    pool.give(frame);
}

#[test]
fn program_set_checksum_is_kept() {
    // If it failed, a test could not send broken packets on purpose.
    let body =
        "block0:\n v0: int = int 4660\n set_input in8, v0\n v1: int = int 99\n set_input in6, v1\n forward";
    let (mut engine, mut pool) = (one(&jit(), &[element("e", body)]), pool());
    let (left, _) = run(&mut engine, &mut pool, &[packet(9)], 1);
    assert_eq!(left[0].2[40..42], [0x12, 0x34]);
    assert_eq!(left[0].2[34..36], [0, 99]);
}

#[test]
fn length_mismatch_ends_frame() {
    // If it failed, an IPv6 address in an IPv4 header would overwrite the bytes behind it.
    let body = "block0:\n v0: bytes = bytes \"12345\"\n set_input in3, v0\n forward";
    let (mut engine, mut pool) = (one(&jit(), &[element("e", body)]), pool());
    let (left, _) = run(&mut engine, &mut pool, &[packet(9)], 1);
    assert!(left.is_empty());
    let stats = engine.stats();
    let ends = chain_stats(&stats).ends.iter().map(|end| (&*end.element, end.how, end.n)).collect::<Vec<_>>();
    assert_eq!((&stats.drops[..], &ends[..]), (&[][..], &[("e", EndKind::LengthMismatch, 1)][..]));
    // If two elements may be the cause, none is named.
    let (mut engine, mut pool) = (one(&jit(), &[element("e", body), element("f", body)]), self::pool());
    run(&mut engine, &mut pool, &[packet(9)], 1);
    assert_eq!(engine.stats().drops, [(DropReason::LengthMismatch, 1)]);
}

/// Counts frames by the packet's destination port.
pub(crate) fn counter() -> String {
    element(
        "seen",
        "block0:\n v0: int = input in7\n lock t0, v0\n v1: row = find t0, v0\n v2: bool = is_row v1\n \
         branch v2, block1(v1), block2\nblock1(v3: row):\n v4: int = column t0, v3, c1\n v5: int = int 1\n \
         v6: int = add v4, v5\n v7: bool = set_column t0, v3, c1, v6\n forward\nblock2:\n v8: row = insert t0, v0\n \
         v9: int = int 1\n v10: bool = is_row v8\n branch v10, block3, block4\nblock3:\n \
         v11: bool = set_column t0, v8, c1, v9\n forward\nblock4:\n drop ; line 3",
    )
}

fn counts(plan: &PacketPlan) -> Vec<(u64, u64)> {
    let state = plan.chains[0].state.for_worker(0);
    let table = &state.tables[0];
    let columns: Vec<_> = table.columns().map(|(_, at)| at).collect();
    let (mut rows, mut cursor) = (Vec::new(), 0);
    while let Some((row, next)) = table.scan(cursor, START) {
        rows.push((table.word(row, columns[0]), table.word(row, columns[1])));
        cursor = next;
    }
    rows.sort_unstable();
    rows
}

#[test]
fn engines_share_state_across_threads() {
    // If it failed, a limit per flow would apply once per worker.
    for workers in [1, 4] {
        let plan = Rig::new(workers).plan(&jit(), vec![(program(&[counter()]), None)]);
        let mut stats = PacketStats::default();
        let run_worker = |worker: usize| {
            let config = PacketConfig { worker, ..PacketConfig::default() };
            let mut engine = PacketEngine::new(START, config, Arc::clone(&plan));
            let packets: Vec<_> = (0..400).map(|n| udp(9, [1; 4], [2; 4], (7, 50 + n % 3), b"")).collect();
            run(&mut engine, &mut pool(), &packets, 64);
            engine.stats()
        };
        #[allow(clippy::disallowed_methods, reason = "the test stands for the workers of a node")]
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..workers).map(|worker| scope.spawn(move || run_worker(worker))).collect();
            threads.into_iter().for_each(|thread| stats.merge(&thread.join().expect("no panic")));
        });
        let n = workers as u64;
        assert_eq!(counts(&plan), [(50, 134 * n), (51, 133 * n), (52, 133 * n)]);
        assert_eq!((stats.chains[0].elements[0].1.seen, stats.ports[1].sent), (400 * n, 400 * n));
    }
}

/// Removes the row of the packet's destination port, or inserts it if there is none.
fn toggle() -> String {
    element(
        "toggle",
        "block0:\n v0: int = input in7\n lock t0, v0\n v1: row = find t0, v0\n v2: bool = is_row v1\n \
         branch v2, block1(v1), block2\nblock1(v3: row):\n remove t0, v3\n forward\nblock2:\n \
         v4: row = insert t0, v0\n v5: int = int 7\n v6: bool = is_row v4\n branch v6, block3, block4\nblock3:\n \
         v7: bool = set_column t0, v4, c1, v5\n forward\nblock4:\n drop ; line 3",
    )
}

#[test]
fn prefetch_changes_no_result() {
    // With many flows, rows are prefetched before the frames pass. If it failed, a row inserted or removed by a frame
    // of the same batch would be missed, or still found.
    for elements in [vec![counter()], vec![toggle()], vec![toggle(), counter()]] {
        let mut chain = program(&elements);
        chain.tables[0].spec.max_rows = 16_000;
        chain.tables[0].rows = (0..16_000).map(|port| vec![Value::Int(port), Value::Int(0)]).collect();
        let mut rng = Rng::from_seed(1);
        let mut port = || {
            let any = rng.below(20_000) as u16;
            rng.pick(&[3, 17_000, any])
        };
        let packets: Vec<Vec<u8>> = (0..600).map(|_| udp(9, [1; 4], [2; 4], (7, port()), b"")).collect();
        let observe = |backend: &dyn Backend| {
            let plan = Rig::new(1).plan(backend, vec![(chain.clone(), None)]);
            let state = plan.chains[0].state.for_worker(0);
            let code =
                backend.compile(&plan.chains[0].program, Event::Request, &state).expect("it is well-formed");
            let mut engine = engine(&plan);
            let left = run_watched(&mut engine, &mut pool(), &packets, 64, None);
            (code.prefetch_pays(&state), (left, counts(&plan), engine.stats()))
        };
        let (interpreted, compiled) = (observe(&Interp), observe(&jit()));
        assert!(compiled.0 && !interpreted.0);
        assert_eq!(interpreted.1, compiled.1);
    }
}

#[test]
fn update_keeps_state_and_waiting_frames() {
    // If it failed, a change of the rules would forget the flows.
    let mut rig = Rig::new(1);
    let jit = jit();
    let first = rig.plan(&jit, vec![(program(&[counter()]), None)]);
    let (mut engine, mut pool) = (engine(&first), pool());
    run(&mut engine, &mut pool, &[packet(9), packet(9)], 2);
    let mut waiting = vec![pool.take_filled(&packet(7)).expect("a buffer")];
    engine.handle_batch(START, 0, &mut waiting, &mut pool, None);
    let second = rig.plan(&jit, vec![(program(&[ttl(), counter()]), None)]);
    let ports = ["c", "b", "a"].map(String::from).into();
    let moved =
        PacketPlan { version: second.version, ports, chains: second.chains.clone(), ..PacketPlan::default() };
    engine.apply(START, Arc::new(moved), &mut pool);
    let (left, _) = run(&mut engine, &mut pool, &[packet(9)], 1);
    assert_eq!(left, [(1, 0, packet(7)), (1, 0, packet(8))]);
    assert_eq!(counts(&second), [(53, 4)]);
    let stats = engine.stats();
    let seen: Vec<_> = chain_stats(&stats).elements.iter().map(|(n, c)| (n.as_str(), c.seen)).collect();
    assert_eq!(seen, [("hop", 1), ("seen", 4)]);
    assert_eq!((stats.version, chain_stats(&stats).version), (2, 2));

    let mut waiting = vec![pool.take_filled(&packet(7)).expect("a buffer")];
    engine.handle_batch(START, 0, &mut waiting, &mut pool, None);
    engine.apply(START, Arc::new(PacketPlan::default()), &mut pool);
    assert_eq!(engine.stats().drops, [(DropReason::PortGone, 1)]);
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn removed_element_drops_stay_counted() {
    // If it failed, frames in and out would not add up after an update.
    let mut rig = Rig::new(1);
    let jit = jit();
    let both = rig.plan(&jit, vec![(program(&[ttl(), counter()]), None)]);
    let (mut engine, mut pool) = (engine(&both), pool());
    run(&mut engine, &mut pool, &[packet(1), packet(1), packet(9)], 3);
    let one = rig.plan(&jit, vec![(program(&[counter()]), None)]);
    engine.apply(START, Arc::clone(&one), &mut pool);
    assert_eq!(engine.stats().drops, [(DropReason::ByGone, 2)]);
    run(&mut engine, &mut pool, &[packet(1)], 1);
    engine.apply(START, Arc::clone(&both), &mut pool);
    engine.apply(START, Arc::new(PacketPlan::default()), &mut pool);
    assert_eq!(engine.stats().drops, [(DropReason::ByGone, 2)]);
}

#[test]
fn every_runs_on_worker_0_only() {
    // If it failed, a report per node would be sent once per worker.
    let every = "element \"tick\" \"tick\"\nhandler every 1000000000 function \"every\" {\nblock0:\n \
                 v0: bytes = bytes \"x\"\n v1: int = int 3\n emit s0, v0, v1\n forward\n}\n";
    let plan = Rig::new(2).plan(&jit(), vec![(program(&[every.to_owned()]), None)]);
    for (worker, wanted) in [(0, 3), (1, 0)] {
        let config = PacketConfig { worker, ..PacketConfig::default() };
        let mut engine = PacketEngine::new(START, config, Arc::clone(&plan));
        while let Some(at) = engine.poll_timeout().filter(|at| *at < START + Interval::from_millis(3900)) {
            engine.handle_timeout(at, &mut pool(), None);
        }
        assert_eq!(engine.rows().len(), wanted);
    }
}

#[test]
fn late_every_keeps_its_pace() {
    // If each late run set the next one from its own time, rates that a program computes by its ticks would be too low.
    let every = "element \"tick\" \"tick\"\nhandler every 10000000 function \"every\" {\nblock0:\n \
                 v0: bytes = bytes \"x\"\n v1: int = int 3\n emit s0, v0, v1\n forward\n}\n";
    let plan = Rig::new(2).plan(&jit(), vec![(program(&[every.to_owned()]), None)]);
    let mut engine = PacketEngine::new(START, PacketConfig::default(), plan);
    let late = Interval::from_micros(1700);
    while let Some(at) = engine.poll_timeout().filter(|at| *at + late < START + Interval::from_millis(1005)) {
        engine.handle_timeout(at + late, &mut pool(), None);
    }
    assert_eq!(engine.rows().len(), 100);
}

/// As [`counter`], with a TIMEOUT that emits the total of a port's frames.
fn counter_with_timeout() -> String {
    let timeout = "handler departed t0 function \"gone\" {\nblock0:\n v0: row = departed t0\n \
                   v1: bytes = bytes \"gone\"\n v2: int = column t0, v0, c1\n emit s0, v1, v2\n forward\n}\n";
    counter() + timeout
}

/// As [`program`], with rows that live for a second.
fn expiring(elements: &[String]) -> ChainProgram {
    let mut program = program(elements);
    program.tables[0].spec.ttl = Some(Interval::from_secs(1));
    program.tables[0].spec.max_rows = 4000;
    program
}

/// Runs the engine's timers up to this time; returns the number of emitted rows.
fn rows_until(engine: &mut PacketEngine, end: Time) -> usize {
    while let Some(at) = engine.poll_timeout().filter(|at| *at < end) {
        engine.handle_timeout(at, &mut pool(), None);
    }
    let rows = engine.rows().len();
    engine.rows().clear();
    rows
}

#[test]
fn expired_row_runs_timeout_once() {
    // If it failed, a flow record would be missing or doubled when a network changes or has several workers.
    let mut rig = Rig::new(2);
    let jit = jit();
    let first = rig.plan(&jit, vec![(expiring(&[counter_with_timeout()]), None)]);
    let on = |worker, plan: &Arc<PacketPlan>| {
        PacketEngine::new(START, PacketConfig { worker, ..PacketConfig::default() }, Arc::clone(plan))
    };
    let (mut engines, mut pool) = ([on(0, &first), on(1, &first)], pool());
    let packets: Vec<_> = (0..1500).map(|n| udp(9, [1; 4], [2; 4], (7, 50 + n % 700), b"")).collect();
    for engine in &mut engines {
        run(engine, &mut pool, &packets, 64);
    }
    let soon = START + Interval::from_millis(900);
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, soon)), [0, 0]);
    // More rows than one sweep takes have expired. Half of the keys return before the check, and an update comes before
    // that, too.
    let late = START + Interval::from_millis(1090);
    let again: Vec<_> = (0..350).map(|n| udp(9, [1; 4], [2; 4], (7, 50 + n), b"")).collect();
    for packet in &again {
        let mut frames = vec![pool.take_filled(packet).expect("a buffer")];
        engines[1].handle_batch(late, 0, &mut frames, &mut pool, None);
        collect(&mut engines[1], &mut pool, &mut Vec::new());
    }
    let second = rig.plan(&jit, vec![(expiring(&[ttl(), counter_with_timeout()]), None)]);
    engines.iter_mut().for_each(|engine| engine.apply(late, Arc::clone(&second), &mut pool));
    let later = late + Interval::from_millis(150);
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, later)), [700, 0]);
    let end = late + Interval::from_millis(1500);
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, end)), [350, 0]);
    // A version without the handler keeps no rows back.
    let third = rig.plan(&jit, vec![(expiring(&[counter()]), None)]);
    engines.iter_mut().for_each(|engine| engine.apply(end, Arc::clone(&third), &mut pool));
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, end + Interval::from_secs(1))), [0, 0]);
    assert_eq!(counts(&third), []);
}

/// As [`counter`], with an EVICT that emits the total of a port's frames.
fn counter_with_evict() -> String {
    counter_with_timeout().replace("handler departed", "handler evicted")
}

#[test]
fn evicted_row_runs_evict_once() {
    // If it failed, an evicted flow would be missing from a bill, or be billed twice.
    let mut rig = Rig::new(2);
    let jit = jit();
    let crowded = |elements: &[String]| {
        let mut program = program(elements);
        program.tables[0].spec.max_rows = 200;
        program.tables[0].spec.evict = Evict::Oldest;
        program
    };
    let first = rig.plan(&jit, vec![(crowded(&[counter_with_evict()]), None)]);
    let on = |worker, plan: &Arc<PacketPlan>| {
        PacketEngine::new(START, PacketConfig { worker, ..PacketConfig::default() }, Arc::clone(plan))
    };
    let (mut engines, mut pool) = ([on(0, &first), on(1, &first)], pool());
    let ports = |from: u16, n: u16| -> Vec<_> {
        (from..from + n).map(|port| udp(9, [1; 4], [2; 4], (7, port), b"")).collect()
    };
    run(&mut engines[0], &mut pool, &ports(50, 200), 64);
    run(&mut engines[1], &mut pool, &ports(250, 150), 64);
    let soon = START + Interval::from_millis(15);
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, soon)), [150, 0]);
    // Rows that wait at an update go to the handler of the next version.
    run(&mut engines[1], &mut pool, &ports(400, 30), 64);
    let second = rig.plan(&jit, vec![(crowded(&[ttl(), counter_with_evict()]), None)]);
    engines.iter_mut().for_each(|engine| engine.apply(soon, Arc::clone(&second), &mut pool));
    let later = soon + Interval::from_millis(15);
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, later)), [30, 0]);
    // A version without the handler keeps no rows back.
    run(&mut engines[1], &mut pool, &ports(430, 30), 64);
    let third = rig.plan(&jit, vec![(crowded(&[counter()]), None)]);
    engines.iter_mut().for_each(|engine| engine.apply(later, Arc::clone(&third), &mut pool));
    run(&mut engines[0], &mut pool, &ports(460, 1000), 64);
    assert_eq!(engines.each_mut().map(|engine| rows_until(engine, later + Interval::from_secs(1))), [0, 0]);
    assert_eq!(counts(&third).len(), 200);
}

/// A chain of random elements on frames: each input lies somewhere in the frame, and all writable ones are written.
fn random_chain(rng: &mut Rng) -> ChainProgram {
    let mut chain = generate::chain(rng);
    // Fields lie one behind the other, at even and at odd offsets.
    let (mut parse, mut stores, mut next, mut end) = (String::new(), Vec::new(), 3, rng.below(2));
    let sum_at = chain.request.inputs.len();
    let sum =
        Sum { input: sum_at as u16, zero_is_none: rng.percent(50), pseudo: false, covers: InputSet::EMPTY };
    let field = match parse_program(FRAMES).expect("it is in the form").request.inputs[0].place.clone() {
        InputLocation::Frame(field) => field,
        other => panic!("{other:?}"),
    };
    for (at, input) in chain.request.inputs.iter_mut().enumerate() {
        use weft_core::types::Repr;
        *input = Input { place: InputLocation::Frame(field.clone()), nullable: true, ..input.clone() };
        let (a, b) = (next, next + 1);
        next += 2;
        let is_bytes = input.ty.repr() == Repr::Bytes;
        if is_bytes && rng.percent(50) {
            input.ty = Type::Mac;
        }
        let wide = match input.ty.repr() {
            Repr::Bool => 1,
            Repr::Bytes if input.ty == Type::Mac => 6,
            _ => rng.pick(&[1, 2, 3, 4, 8]),
        };
        let offset = end + rng.below(2);
        end = offset + usize::from(wide);
        let read = match is_bytes {
            true => format!(" v{a}: int = int {offset}\n v{b}: int = int {wide}\n"),
            false => format!(" v{b}: int = int {offset}\n v{a}: int = frame_get.big v{b}, {wide}\n"),
        };
        parse.push_str(&read);
        if input.ty.repr() == Repr::Bool {
            // A boolean is one bit.
            parse.push_str(&format!(" v{next}: int = int 1\n v{}: int = and v{a}, v{next}\n", next + 1));
            parse.push_str(&format!(" give in{at}, v{}, v{b}\n", next + 1));
            next += 2;
        } else if rng.percent(90) {
            parse.push_str(&format!(" give in{at}, v{a}, v{b}\n"));
        }
        let bits =
            FieldLayout::Bits { bytes: wide, shift: 0, bits: 8 * wide, endian: weft_ir::ir::Endian::Big };
        let place = if is_bytes { FieldLayout::Bytes } else { bits };
        let sums = if rng.percent(50) { vec![sum] } else { Vec::new() };
        stores.push(input.written.then_some(FieldWrite { at: place, sums }));
    }
    let offset = end + rng.below(2);
    parse
        .push_str(&format!(" v{next}: int = int {offset}\n v{}: int = frame_get.big v{next}, 2\n", next + 1));
    parse.push_str(&format!(" give in{sum_at}, v{}, v{next}\n forward\n}}\n", next + 1));
    let bits = FieldLayout::Bits { bytes: 2, shift: 0, bits: 16, endian: weft_ir::ir::Endian::Big };
    stores.push(Some(FieldWrite { at: bits, sums: Vec::new() }));
    chain.request.inputs.push(Input {
        name: "sum".to_owned(),
        ty: Type::Uint(16),
        nullable: true,
        place: InputLocation::Frame(field),
        written: false,
    });
    let parse = format!(
        "function \"parse\" {{\nblock0:\n v0: int = frame_len\n v1: int = int {}\n \
         v2: bool = icmp.ult v0, v1\n branch v2, block1, block2\nblock1:\n drop\nblock2:\n{parse}",
        offset + 2
    );
    for element in &mut chain.elements {
        let mut handlers = core::mem::take(&mut element.handlers);
        // A frame is not reassembled within a pass: no value is derived from edited fields.
        let blocks = handlers.request.iter_mut().flat_map(|function| &mut function.blocks);
        for inst in blocks.flat_map(|block| &mut block.insts) {
            if let Op::Derived(id) = inst.op {
                inst.op = Op::Input(id);
            }
        }
        element.handlers =
            Handlers { request: handlers.request, every: handlers.every, ..Handlers::default() };
    }
    let checks = vec![Check { protocol: "p".to_owned(), what: "truncated".to_owned(), line: 1 }];
    let parser = text::parse(&parse).unwrap_or_else(|e| panic!("{e}\n{parse}"));
    chain.frames = Some(Frames { parser, checks, field_writes: stores, ..Frames::default() });
    let parser = chain.frames.as_ref().map(|frames| &frames.parser).expect("it was just set");
    verify(parser, &chain, Handler::Parse).unwrap_or_else(|errors| panic!("{errors:?}\n{parse}"));
    chain
}

#[test]
fn compiled_chain_matches_interpreter() {
    // If it failed, a chain would behave differently in a replay with the interpreter, which is observed, and in
    // traffic.
    let jit = jit();
    let mut verdicts = std::collections::BTreeMap::new();
    for seed in 0..if cfg!(debug_assertions) { 60 } else { 1500 } {
        let mut rng = Rng::from_seed(seed);
        let chain = random_chain(&mut rng);
        // Some end within their last field.
        let most = chain.request.inputs.len() * 8 + 8;
        let packets: Vec<Vec<u8>> = (0..60)
            .map(|_| {
                (0..most / 2 + rng.below(most)).map(|_| rng.pick(&[0, 0, 1, 2, b'a', b'b', 255])).collect()
            })
            .collect();
        let batch = 1 + rng.below(64);
        let observe = |backend: &dyn Backend, seen: Option<&mut Dispositions>| {
            let plan = Rig::new(1).plan(backend, vec![(chain.clone(), None)]);
            // Frames of chains with many inputs are long.
            let (mut engine, mut pool) = (engine(&plan), Pool::new(PoolConfig { small: 512, large: 256 }));
            let left = run_watched(&mut engine, &mut pool, &packets, batch, seen);
            engine.handle_timeout(START + Interval::from_millis(250), &mut pool, None);
            let rows: Vec<String> = engine
                .rows()
                .rows()
                .map(|row| format!("{:?} {} {:?}", row.at, row.sink.name, row.values().collect::<Vec<_>>()))
                .collect();
            let stats = engine.stats();
            engine.close(&mut pool);
            assert_eq!(pool.in_use(), 0);
            (left, rows, stats, tables(&plan))
        };
        let [mut by_interp, mut by_jit] = [Dispositions::default(), Dispositions::default()];
        let interpreted = observe(&Interp, Some(&mut by_interp));
        let compiled = observe(&jit, Some(&mut by_jit));
        let fates = [&by_interp, &by_jit].map(|seen| seen.settled());
        if let Some((a, b)) = fates[0].iter().zip(&fates[1]).find(|(a, b)| a != b) {
            panic!("seed {seed}: {a:?} when interpreted, {b:?} when compiled");
        }
        assert_eq!(fates[0].len(), fates[1].len(), "seed {seed}: all frames meet their fate");
        for (compiled, how) in [(compiled, "watched"), (observe(&jit, None), "not watched")] {
            assert_eq!(interpreted.0, compiled.0, "seed {seed}, {how}: frames");
            assert_eq!(interpreted.1, compiled.1, "seed {seed}, {how}: rows");
            assert_eq!(interpreted.2, compiled.2, "seed {seed}, {how}: counters");
            assert_eq!(interpreted.3, compiled.3, "seed {seed}, {how}: tables");
        }
        for (fate, _) in by_interp.0 {
            let kind = fate.split([' ', ':']).next().unwrap_or_default().to_owned();
            *verdicts.entry(kind).or_insert(0) += 1;
        }
    }
    for kind in ["forward", "drop", "abort", "redirect", "failed", "malformed"] {
        assert!(verdicts.contains_key(kind), "no frame met `{kind}`: {verdicts:?}");
    }
}

/// All rows of all tables.
fn tables(plan: &PacketPlan) -> Vec<String> {
    let state = plan.chains[0].state.for_worker(0);
    let mut all = Vec::new();
    for table in &state.tables {
        let mut cursor = 0;
        while let Some((row, next)) = table.scan(cursor, START) {
            let mut seen = table.spec().name.clone();
            for (spec, at) in table.columns() {
                let mut bytes = Vec::new();
                match spec.ty.repr() {
                    _ if table.is_null(row, at) => seen.push_str(" null"),
                    weft_core::types::Repr::Bytes => {
                        table.bytes_into(row, at, &mut bytes);
                        seen.push_str(&format!(" {bytes:?}"));
                    }
                    weft_core::types::Repr::Float if f64::from_bits(table.word(row, at)).is_nan() => {
                        seen.push_str(" nan");
                    }
                    _ => seen.push_str(&format!(" {}", table.word(row, at))),
                }
            }
            all.push(seen);
            cursor = next;
        }
    }
    all.sort();
    all
}

/// A chain whose first element has this body. The element may add a link header with the length of the rest (r0), cut
/// the frame (r1), or fragment it (r2). It has a cell that tells which branch a frame took.
fn wrapped_by(body: &str, behind: &[String]) -> ChainProgram {
    let link = "\\x02".repeat(12);
    let decls = format!(
        "call \"\" \"way\" U8 word 0\nreshape push\nstack \"{link}\\x88\\xb5\\x00\\x00\" length 112 16 big 0\n\
         reshape U32 cut\nreshape U32 fragment\n"
    );
    let elements = [&[element("wrap", body)], behind].concat().concat();
    let text = format!("{FRAMES}{decls}{elements}");
    let program = parse_program(&text).unwrap_or_else(|e| panic!("{e}\n{text}"));
    verify_program(&program).unwrap_or_else(|errors| panic!("{errors:?}\n{text}"));
    program
}

fn wrapped(behind: &[String]) -> ChainProgram {
    wrapped_by("block0:\n reshape r0\n forward", behind)
}

/// The frames that an engine makes of one of 2542 bytes: port and length. It may be a GSO frame. It may be fragmented
/// (DF is not set).
fn parts(engine: &mut PacketEngine, pool: &mut Pool, kind: Option<GsoKind>) -> Vec<(u16, usize)> {
    let mut bytes = udp(9, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), &[7; 2500]);
    bytes[20] = 0;
    set_ipv4_checksum(&mut bytes[14..]);
    let mut frame = pool.take_filled(&bytes).expect("a buffer");
    if let Some(kind) = kind {
        frame.meta.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
        frame.meta.offload.gso = Some(Gso { kind, size: 1000, has_ecn: false });
    }
    engine.handle_batch(START, 0, &mut vec![frame], pool, None);
    let mut left = Vec::new();
    collect(engine, pool, &mut left);
    assert_eq!(pool.in_use(), 0);
    left.iter().map(|(port, _, bytes)| (*port, bytes.len())).collect()
}

#[test]
fn gso_frame_is_cut_before_push() {
    // If it failed, a device would cut the outer packet like the inner one, and break everything in a tunnel.
    let payload: Vec<u8> = (0..2500).map(|at| at as u8).collect();
    let bytes = udp(9, [10, 0, 0, 1], [10, 0, 0, 2], (1, 2), &payload);
    for behind in [vec![], vec![element("again", "block0:\n forward")]] {
        let stages = 1 + behind.len();
        let mut engine = engine(&Rig::new(1).plan(&jit(), vec![(wrapped(&behind), None)]));
        let mut pool = pool();
        let mut frame = pool.take_filled(&bytes).expect("a buffer");
        frame.meta.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
        frame.meta.offload.gso = Some(Gso { kind: GsoKind::Udp, size: 1000, has_ecn: false });
        engine.handle_batch(START, 0, &mut vec![frame], &mut pool, None);
        let mut left = Vec::new();
        assert_eq!(engine.poll_output(&mut left), Some(1));
        let lengths: Vec<usize> = left.iter().map(Frame::len).collect();
        assert_eq!(lengths, [1058, 1058, 558], "{stages} stages");
        for frame in left {
            assert_eq!(frame.meta.offload.gso, None);
            assert_eq!(frame.meta.offload.checksum, Checksum::Partial { start: 50, offset: 6 });
            let bytes = pool.bytes(&frame);
            assert_eq!(usize::from(u16::from_be_bytes([bytes[14], bytes[15]])), frame.len());
            pool.give(frame);
        }
        assert_eq!(pool.in_use(), 0);
        // A frame that cannot be cut is dropped and counted.
        let mut frame = pool.take_filled(&bytes).expect("a buffer");
        frame.meta.offload.gso = Some(Gso { kind: GsoKind::TcpV6, size: 1000, has_ecn: false });
        engine.handle_batch(START, 0, &mut vec![frame], &mut pool, None);
        assert_eq!((engine.stats().drops, pool.in_use()), (vec![(DropReason::NotCut, 1)], 0));
    }
}

#[test]
fn empty_cut_keeps_gso_frame() {
    // `CUT TO 9000; PUSH ...` lost each such frame, and the rows of its pass with it.
    let whole = vec![(1, 1058), (1, 1058), (1, 558)];
    for (cut, wanted) in
        [(9000, whole.clone()), (2542, whole), (2541, vec![(1, 2557)]), (100, vec![(1, 116)])]
    {
        for behind in [vec![], vec![element("again", "block0:\n forward")]] {
            let body = format!(
                "block0:\n v0: int = int {cut}\n v1: bytes = bytes \"a\"\n emit s0, v1, v0\n reshape r1, v0\n \
                 reshape r0\n forward"
            );
            let plan = Rig::new(1).plan(&jit(), vec![(wrapped_by(&body, &behind), None)]);
            let (mut engine, mut pool) = (engine(&plan), pool());
            assert_eq!(parts(&mut engine, &mut pool, Some(GsoKind::Udp)), wanted, "cut to {cut}");
            assert_eq!((engine.rows().len(), engine.stats().drops), (1, vec![]));
        }
    }
    let body = "block0:\n v0: int = int 1\n v1: bytes = bytes \"a\"\n emit s0, v1, v0\n reshape r0\n forward";
    let plan = Rig::new(1).plan(&jit(), vec![(wrapped_by(body, &[]), None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    assert_eq!(parts(&mut engine, &mut pool, Some(GsoKind::TcpV6)), []);
    assert_eq!((engine.rows().len(), engine.stats().drops), (1, vec![(DropReason::NotCut, 1)]));
}

#[test]
fn long_packet_leaves_as_fragments() {
    let body = |to: usize| format!("block0:\n v0: int = int {to}\n reshape r2, v0\n forward");
    let long_to_c = element(
        "long",
        "block0:\n v0: int = input in10\n v1: int = int 600\n v2: bool = icmp.ult v0, v1\n \
         branch v2, block1, block2\nblock1:\n forward\nblock2:\n v3: bytes = bytes \"c\"\n redirect v3 ; line 4",
    );
    // Of a packet of 2,528 bytes, and of three that a device would cut: 1,028, 1,028 and 528.
    for (to, behind, whole, cut) in [
        (3000, vec![], vec![(1, 2542)], vec![(1, 2542)]),
        (
            1027,
            vec![],
            vec![(1, 1034), (1, 1034), (1, 542)],
            vec![(1, 1034), (1, 42), (1, 1034), (1, 42), (1, 542)],
        ),
        (1028, vec![], vec![(1, 1042), (1, 1042), (1, 526)], vec![(1, 2542)]),
        // Elements behind it see each fragment.
        (
            1027,
            vec![long_to_c],
            vec![(1, 542), (2, 1034), (2, 1034)],
            vec![(1, 42), (1, 42), (1, 542), (2, 1034), (2, 1034)],
        ),
    ] {
        let plan = Rig::new(1).plan(&jit(), vec![(wrapped_by(&body(to), &behind), None)]);
        let (mut engine, mut pool) = (engine(&plan), pool());
        assert_eq!(parts(&mut engine, &mut pool, Some(GsoKind::Udp)), cut, "to {to}");
        assert_eq!(parts(&mut engine, &mut pool, None), whole, "to {to}");
        assert_eq!(engine.stats().drops, vec![]);
    }
    // No fragment has room for a header; a dropped frame is not cut.
    for (to, verdict, lost) in
        [(20, "forward", vec![(DropReason::NotCut, 1)]), (1000, "drop ; line 2", vec![])]
    {
        let body = format!("block0:\n v0: int = int {to}\n reshape r2, v0\n {verdict}");
        let plan = Rig::new(1).plan(&jit(), vec![(wrapped_by(&body, &[]), None)]);
        let (mut engine, mut pool) = (engine(&plan), pool());
        assert_eq!(parts(&mut engine, &mut pool, None), []);
        assert_eq!(engine.stats().drops, lost);
    }
}

#[test]
fn gso_packets_take_their_own_egress() {
    // If it failed, the last packet would follow the one before it to another network.
    let to_c = "block0:\n v0: bytes = bytes \"c\"\n reshape r0\n redirect v0 ; line 3";
    let long_to_b = element(
        "long",
        "block0:\n v0: int = input in10\n v1: int = int 1000\n v2: bool = icmp.ult v0, v1\n \
         branch v2, block1, block2\nblock1:\n forward\nblock2:\n v3: bytes = bytes \"b\"\n redirect v3 ; line 4",
    );
    let plan = Rig::new(1).plan(&jit(), vec![(wrapped_by(to_c, &[long_to_b]), None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    assert_eq!(parts(&mut engine, &mut pool, Some(GsoKind::Udp)), [(1, 1058), (1, 1058), (2, 558)]);
}

#[test]
fn gso_packets_resume_at_frame_stage() {
    // If it failed, the last packet would be steered like those before it.
    let first = "block0:\n v0: int = int 0\n call_set call0, v0\n reshape r0\n forward";
    let sort = "block0:\n v0: int = input in10\n v1: int = int 1000\n v2: bool = icmp.ult v0, v1\n \
                branch v2, block1, block2\nblock1:\n forward\nblock2:\n v3: int = int 1\n \
                call_set call0, v3\n steer ; line 4";
    let on = |way: u8, end: &str| {
        format!(
            "block0:\n v0: int = call_get call0\n v1: int = int {way}\n v2: bool = icmp.eq v0, v1\n \
             branch v2, block1, block2\nblock1:\n{end}\nblock2:\n skip"
        )
    };
    let main = on(0, " v3: bytes = bytes \"c\"\n redirect v3 ; line 5");
    let behind = [element("sort", sort), element("main", &main), element("aside", &on(1, " forward"))];
    let program = wrapped_by(first, &behind);
    for backend in [&Interp as &dyn Backend, &jit()] {
        let plan = Rig::new(1).plan(backend, vec![(program.clone(), None)]);
        let (mut engine, mut pool) = (engine(&plan), pool());
        assert_eq!(parts(&mut engine, &mut pool, Some(GsoKind::Udp)), [(1, 1058), (1, 1058), (2, 558)]);
        let stats = engine.stats();
        let counted: Vec<_> =
            chain_stats(&stats).elements.iter().map(|(n, c)| (n.as_str(), c.seen, c.diverted)).collect();
        assert_eq!(counted, [("wrap", 1, 0), ("sort", 3, 2), ("main", 1, 1), ("aside", 2, 0)]);
    }
}

#[test]
fn fail_open_element_passes_frame() {
    // If it failed, a monitor with `FAIL OPEN` could stop the traffic that it watches.
    let mut chain = program(&[element("e", "block0:\n v0: int = int 2\n fail v0 ; line 4"), ttl()]);
    chain.elements[0].fail_open = true;
    let plan = Rig::new(1).plan(&jit(), vec![(chain, None)]);
    let (mut engine, mut pool) = (engine(&plan), pool());
    let (left, _) = run(&mut engine, &mut pool, &[packet(9)], 1);
    assert_eq!(left, [(1, 0, packet(8))]);
}

/// An engine whose chain leads from the port 0 to a group of these ports.
fn to_group(
    backend: &dyn Backend,
    elements: &[String],
    choice: Choice,
    ports: [u16; 2],
    weights: [u16; 2],
) -> PacketEngine {
    let mut staged = StateStore::new(1, HashKey::from_seed(1)).stage();
    let on =
        ChainOn { program: program(elements), condition: None, ports: vec![0], to: Some(Outlet::Group(0)) };
    let chain = PacketChain::build(1, on, &mut staged, backend).expect("it is well-formed");
    let members = ports.into_iter().zip(weights).map(|(port, weight)| Member { port, weight }).collect();
    let groups = vec![GroupPlan { name: "g".into(), choice, key: None, members, is_ip: false }];
    let ports = ["a", "b", "c"].map(String::from).into();
    let chains = vec![Arc::new(chain)];
    engine(&Arc::new(PacketPlan { version: 1, ports, groups, chains, ..PacketPlan::default() }))
}

/// The port of each of 500 flows, and the number of frames that left; an observer sees the same.
fn ways_of_flows(engine: &mut PacketEngine) -> (Vec<Vec<u16>>, Vec<(u64, u64)>) {
    let flow = |port: u16| udp(9, [10, 0, 0, 1], [10, 0, 0, 2], (port, 53), b"hello");
    let packets: Vec<Vec<u8>> = (1..=500).map(flow).collect();
    let mut pool = Pool::new(PoolConfig { small: 2048, large: 0 });
    let of = |left: SentFrames| -> Vec<Vec<u16>> {
        let leaves_by = |port: u16| {
            let is_it = |(_, _, bytes): &&(u16, u64, Vec<u8>)| bytes[34..36] == port.to_be_bytes();
            let mut by: Vec<u16> = left.iter().filter(is_it).map(|(port, ..)| *port).collect();
            by.sort_unstable();
            by
        };
        (1..=500).map(leaves_by).collect()
    };
    let ways = of(run_watched(engine, &mut pool, &packets, 64, None));
    let (left, seen) = run(engine, &mut pool, &packets, 64);
    assert_eq!(of(left), ways, "an observer changes nothing");
    for ((fate, _), way) in seen.iter().zip(&ways) {
        let told = match way[..] {
            [port] if !fate.contains("to g") => ["a", "b", "c"][usize::from(port)],
            [_] | [_, _] => "to g",
            _ => "no port of its group is up",
        };
        assert!(fate.contains(told), "{fate} {way:?}");
    }
    assert_eq!(pool.in_use(), 0);
    let counted = engine.stats().groups[0].members.iter().map(|of| (u64::from(of.is_up), of.sent)).collect();
    (ways, counted)
}

#[test]
fn group_uses_ports_that_are_up() {
    // If it failed, frames for a link that is down would be lost, or flows would move without need and arrive out of
    // order.
    let jit = jit();
    let redirect = element("to", "block0:\n v0: bytes = bytes \"g\"\n redirect v0 ; line 3");
    let with_delay = element("hop", "block0:\n v0: int = int 0\n forward");
    let cases: [(&dyn Backend, Vec<String>); 5] = [
        (&Interp, vec![]),
        (&Interp, vec![ttl()]),
        (&Interp, vec![redirect.clone()]),
        (&jit, vec![ttl(), redirect]),
        (&jit, vec![with_delay]),
    ];
    for (backend, elements) in &cases {
        let mut all = to_group(*backend, elements, Choice::All, [1, 2], [1, 1]);
        assert_eq!(ways_of_flows(&mut all), (vec![vec![1, 2]; 500], vec![(1, 1000), (1, 1000)]));
        all.set_port_up(1, false);
        assert_eq!(ways_of_flows(&mut all).0, vec![vec![2]; 500]);
        // A frame does not return by its ingress port.
        let mut back = to_group(*backend, elements, Choice::All, [0, 2], [1, 1]);
        assert_eq!(ways_of_flows(&mut back).0, vec![vec![2]; 500]);

        let mut first = to_group(*backend, elements, Choice::First, [1, 2], [1, 1]);
        assert_eq!(ways_of_flows(&mut first).0, vec![vec![1]; 500]);
        first.set_port_up(1, false);
        assert_eq!(ways_of_flows(&mut first), (vec![vec![2]; 500], vec![(0, 1000), (1, 1000)]));
        first.set_port_up(2, false);
        assert_eq!(ways_of_flows(&mut first).0, vec![vec![]; 500]);
        assert_eq!(first.stats().drops, [(DropReason::GroupDown, 1000)]);
        first.set_port_up(1, true);
        assert_eq!(ways_of_flows(&mut first).0, vec![vec![1]; 500]);

        let mut flows = to_group(*backend, elements, Choice::Flow, [1, 2], [3, 1]);
        let (before, counted) = ways_of_flows(&mut flows);
        assert!((600..900).contains(&counted[0].1) && counted[0].1 + counted[1].1 == 1000, "{counted:?}");
        flows.set_port_up(2, false);
        assert_eq!(ways_of_flows(&mut flows).0, vec![vec![1]; 500]);
        flows.set_port_up(2, true);
        assert_eq!(ways_of_flows(&mut flows).0, before);
    }
}
