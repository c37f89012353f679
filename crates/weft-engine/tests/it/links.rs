//! Links: frames that wait in a queue, with real headers and a virtual clock.

use crate::support::{ADD, Behaviour, CART, Call, Net, Network, World, chain, element, item, ms};
use std::sync::Arc;
use weft_core::Time;
use weft_core::checksum::{fold, sum};
use weft_core::frame::build::{ethernet, ipv6};
use weft_core::frame::{Checksum, Frame, Gso, GsoKind, Offload, Pool, PoolConfig};
use weft_core::hash::HashKey;
use weft_core::marks::Mark;
use weft_engine::call_queue::{CallFlow, CallQueue, QueueScope, SharedSlots};
use weft_engine::packet::impair::{Impairments, Loss, Reorder};
use weft_engine::packet::link::{Link, LinkPlan, LinkStats, describe};
use weft_engine::packet::path::{Path, PathChange, PathCounts};
use weft_engine::packet::trace::Trace;
use weft_engine::queue::{Counts, ProgramText};
use weft_ir::queue::generate;
use weft_ir::queue::run::Interpreted;
use weft_ir::queue::{
    Field, Handler, Op, PacketOrder, QueueProgram, Scope, Slot, Step, Ty, Value, Verdict, word,
};

/// The hash key of flows, for tests that do not depend on it.
const KEY: HashKey = HashKey::from_seed(1);

const MS: i64 = 1_000_000;
const START: Time = Time(1_700_000_000_000 * MS);

fn fifo(packets: u32) -> QueueProgram {
    generate::fifo(Some(packets))
}

/// Marks each packet.
fn marking() -> QueueProgram {
    let mut program = fifo(100);
    let body = vec![
        Step::Let(Value(0), Op::IntConst(3)),
        Step::Store(Slot::new(Scope::Packet, word::ECN), Value(0)),
        Step::End(Verdict::Mark, 7),
    ];
    program.levels[0].handlers.dequeue = Some(Handler { body, types: vec![Ty::Int] });
    program
}

fn link(program: QueueProgram, rate: Option<u64>) -> LinkPlan {
    let program = Arc::new(program);
    let code = Arc::new(Interpreted::new(program.clone()));
    LinkPlan {
        headers: None,
        name: "wan".to_owned(),
        port: 0,
        ingress: false,
        is_ip: false,
        rate,
        path: None,
        on_failure: None,
        is_recorded: true,
        program,
        code,
        written: ProgramText::default(),
    }
}

/// An Ethernet frame with an IPv4 and UDP header and a right checksum.
fn udp(src_port: u16, tos: u8, bytes: usize) -> Vec<u8> {
    let ip = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tos(tos).fragment(1, 0);
    ip.udp(src_port, 0).payload(vec![0; bytes.saturating_sub(42)]).build()
}

/// If this fails, frames that no device took count as sent, or in no count of the link or of its partitions; or they
/// are lost faster than the link sends.
#[test]
fn missing_device_counts_as_dropped() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(link(fifo(5), Some(1_000_000)), START, 1);
    let put = |link: &mut Link, pool: &mut Pool| {
        let frame = pool.take_filled(&udp(1, 0, 1250)).expect("there is room");
        link.handle_frame(frame, pool, START);
    };
    (0..6).for_each(|_| put(&mut link, &mut pool));
    // Ten milliseconds each.
    let sent = link.poll_frame(&mut pool, START).expect("the first leaves at once");
    pool.give(sent);
    assert!(!link.drop_frame(&mut pool, Time(START.0 + 9 * MS)), "the link is not free yet");
    assert!(link.drop_frame(&mut pool, Time(START.0 + 10 * MS)));
    assert!(!link.drop_frame(&mut pool, Time(START.0 + 11 * MS)));
    assert!(link.drop_frame(&mut pool, Time(START.0 + 20 * MS)));
    let stats = link.stats();
    let Counts { arrived, sent, dropped_overflow, dropped_device, queued, .. } = stats.counts;
    assert_eq!((arrived, sent, dropped_overflow, dropped_device, queued), (6, 1, 1, 2, 2));
    assert!(stats.counts.is_conserved());
    let tally = &stats.partitions[0].tally;
    assert_eq!((tally.waits.count(), tally.dropped), (1, 3));
    // Another queue goes on from there.
    link.replace(self::link(fifo(7), Some(1_000_000)), &mut pool, START, 1);
    let counts = link.stats().counts;
    assert!(counts.is_conserved() && counts.dropped_device == 2, "{counts:?}");
    let frame = link.poll_frame(&mut pool, Time(START.0 + 30 * MS)).expect("the device is back");
    pool.give(frame);
    assert_eq!(link.stats().counts.sent, 2);
}

/// If it failed, a link would keep a wrong rate for as long as the last frame takes at it.
#[test]
fn new_rate_applies_at_once() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(link(fifo(7), Some(8)), START, 1);
    for _ in 0..2 {
        let frame = pool.take_filled(&udp(1, 0, 1_250)).expect("a buffer");
        link.handle_frame(frame, &mut pool, START);
    }
    let sent = link.poll_frame(&mut pool, START).expect("it is free");
    pool.give(sent);
    let later = Time(START.0 + 5 * MS);
    assert!(link.poll_frame(&mut pool, later).is_none(), "1,250 bytes take 20 minutes");
    link.replace(self::link(fifo(7), Some(1_000_000)), &mut pool, later, 1);
    let sent = link.poll_frame(&mut pool, later).expect("the new rate holds");
    pool.give(sent);
    assert_eq!(link.stats().counts.sent, 2);
}

/// If this fails, a shaped link is off by more than a thousandth, or a frame leaves too early.
#[test]
fn link_keeps_its_rate() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(link(fifo(2_000), Some(10_000_000)), START, 1);
    for _ in 0..1_500 {
        let frame = pool.take_filled(&udp(1, 0, 1_250)).expect("a buffer");
        link.handle_frame(frame, &mut pool, START);
    }
    let (mut now, mut sent) = (START, Vec::new());
    while let Some(at) = {
        while let Some(frame) = link.poll_frame(&mut pool, now) {
            pool.give(frame);
            sent.push(now);
        }
        link.poll_timeout()
    } {
        assert!(at > now, "what may leave now has left");
        // Woken late, as threads are: by up to a tenth of a millisecond.
        now = Time(at.0 + (sent.len() as i64 * 7_919) % 100_000);
    }
    assert_eq!((sent.len(), pool.in_use()), (1_500, 0));
    let second = sent.iter().filter(|at| at.0 < START.0 + 1_000 * MS).count();
    assert!((999..=1_001).contains(&second), "{second} frames of 10 kbit in the first second");
}

/// If this fails, the mark of congestion is not on the wire, or the checksum no longer fits.
#[test]
fn ecn_marks_reach_the_wire() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(link(marking(), None), START, 1);
    for tos in [0b01_u8, 0b1011_1010, 0xfd] {
        let frame = pool.take_filled(&udp(9, tos, 60)).expect("a buffer");
        link.handle_frame(frame, &mut pool, START);
        let frame = link.poll_frame(&mut pool, START).expect("nothing holds it");
        let bytes = pool.bytes(&frame);
        assert_eq!(bytes[15], tos | 3);
        assert_eq!(!fold(sum(&bytes[14..34])), 0, "the header sums up");
        pool.give(frame);
    }
    assert_eq!(link.stats().counts.marked, 3);
}

/// If this fails, packets of one flow are taken for several, or a fragment stands for another flow at each look.
#[test]
fn flow_key_is_the_five_tuple() {
    let one = describe(KEY, &udp(7, 0b1011_1010, 60), false);
    assert_eq!((one.len, one.ecn, one.dscp), (60, 2, 0b10_1110));
    assert_eq!(one.flow, describe(KEY, &udp(7, 0, 1_000), false).flow);
    assert_ne!(one.flow, describe(KEY, &udp(8, 0, 60), false).flow);
    assert_eq!(one.src, describe(KEY, &udp(8, 0, 60), false).src);
    // The same packet as it comes from a TUN device.
    assert_eq!(one.flow, describe(KEY, &udp(7, 0, 60)[14..], true).flow);
    // A tag of a VLAN is not part of it.
    let mut tagged = udp(7, 0, 60);
    tagged.splice(12..12, [0x81, 0x00, 0, 5]);
    assert_eq!(one.flow, describe(KEY, &tagged, false).flow);
    // The flags and the offset of fragments: the first, one in the middle, and the last.
    let fragment = |port, place: [u8; 2]| {
        let mut frame = udp(port, 0, 60);
        frame[20..22].copy_from_slice(&place);
        describe(KEY, &frame, false).flow
    };
    let first = fragment(1, [0x20, 0]);
    assert!(
        [[0x20, 9], [0, 9], [0x20, 0]].map(|place| fragment(2, place)) == [first; 3],
        "fragments have no ports"
    );
    assert_eq!(fragment(1, [0x40, 0]), fragment(1, [0, 0]), "what must not be fragmented is no fragment");
    // A truncated packet has a flow, too.
    (0..60).for_each(|bytes| assert_eq!(describe(KEY, &udp(7, 0, 60)[..bytes], false).len, bytes as u32));
}

/// If it failed, flows of IPv6 with options before their ports would be one, or fragments of a packet wait in two
/// queues.
#[test]
fn ports_follow_extension_headers() {
    let flow = |first: u8, extensions: &[u8], port: u8| {
        let packet = ipv6([1; 16], [1; 16]).protocol(first).other(extensions);
        describe(KEY, &packet.payload([0, port, 0, 53, 0, 8, 0, 0]).build(), true).flow
    };
    let options = [60, 0, 1, 4, 0, 0, 0, 0, 17, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    assert_eq!(flow(0, &options, 7), flow(17, &[], 7), "hop by hop and for the destination");
    assert_ne!(flow(0, &options, 7), flow(0, &options, 8));
    let fragment = |place: u8, port| flow(44, &[17, 0, 0, place, 0, 0, 0, 1], port);
    assert_eq!(fragment(1, 7), fragment(8, 9), "of all fragments, the first too, the ports are left out");
    assert_ne!(fragment(1, 7), flow(17, &[], 7));
    // Extensions that lead out of the packet, or back and forth for ever, are no way to ports.
    assert_eq!(flow(0, &[17, 200], 7), flow(0, &[17, 200], 8));
    let long = [0, 0, 0, 0, 0, 0, 0, 0].repeat(40);
    assert_eq!(flow(0, &long, 7), flow(0, &long, 8));
}

/// If it failed, a change of the queue would lose frames silently, or leak buffers.
#[test]
fn new_queue_adopts_waiting_frames() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut running = Link::new(link(fifo(100), None), START, 1);
    for port in 0..80 {
        let frame = pool.take_filled(&udp(port, 0, 60)).expect("a buffer");
        running.handle_frame(frame, &mut pool, Time(START.0 + i64::from(port)));
    }
    let first = running.poll_frame(&mut pool, Time(START.0 + 100)).expect("there are frames");
    pool.give(first);
    running.replace(link(fifo(50), None), &mut pool, Time(START.0 + 200), 1);
    let stats = running.stats();
    assert_eq!((stats.counts.queued, stats.swap_overflow, pool.in_use()), (50, 29, 50));
    assert_eq!(stats.swap_kept, 50, "it counts all that wait");
    assert_eq!((stats.counts.arrived, stats.counts.sent, stats.counts.dropped()), (80, 1, 29), "{stats:?}");
    running.replace(link(fifo(10), None), &mut pool, Time(START.0 + 250), 1);
    let lines = running.stats().lines;
    let told: Vec<u64> = lines.iter().map(|line| line.packets).collect();
    assert_eq!(told, [29 + 40], "what earlier queues dropped is still told: {lines:?}");
    let mut ports = Vec::new();
    while let Some(frame) = running.poll_frame(&mut pool, Time(START.0 + 300)) {
        ports.push(u16::from_be_bytes([pool.bytes(&frame)[34], pool.bytes(&frame)[35]]));
        pool.give(frame);
    }
    assert_eq!(ports, (1..11).collect::<Vec<u16>>(), "in the order in which they came");
    assert!(running.stats().counts.is_conserved() && pool.in_use() == 0);
}

/// If it failed, counts of a line would move to the line that replaces it; or be reset by a change of an argument, or
/// forgotten once the first text is back.
#[test]
fn edited_program_lines_count_apart() {
    let mut pool = Pool::new(PoolConfig::default());
    let plan = |packets, version, text| {
        let written = ProgramText { version, texts: vec![text] };
        LinkPlan { written, ..link(fifo(packets), None) }
    };
    let mut running = Link::new(plan(100, 3, 7), START, 1);
    for port in 0..101 {
        let frame = pool.take_filled(&udp(port, 0, 60)).expect("a buffer");
        running.handle_frame(frame, &mut pool, START);
    }
    let told = |running: &Link| {
        let stats = running.stats();
        let lines: Vec<_> = stats.lines.iter().map(|of| (of.version, of.line, of.packets)).collect();
        (lines, stats.versions)
    };
    assert_eq!(told(&running), (vec![(3, 1, 1)], vec![3]));
    running.replace(plan(90, 4, 7), &mut pool, START, 1);
    assert_eq!(told(&running), (vec![(3, 1, 11)], vec![3]), "another argument");
    running.replace(plan(70, 5, 8), &mut pool, START, 1);
    assert_eq!(told(&running), (vec![(3, 1, 11), (5, 1, 20)], vec![5]), "other words");
    // A comment was added: the queue is the same.
    running.replace(plan(70, 6, 9), &mut pool, START, 1);
    running.replace(plan(60, 7, 9), &mut pool, START, 1);
    assert_eq!(told(&running), (vec![(3, 1, 11), (5, 1, 30)], vec![5]));
    running.replace(plan(50, 8, 7), &mut pool, START, 1);
    assert_eq!(told(&running), (vec![(3, 1, 21), (5, 1, 30)], vec![3]), "the first words are back");
}

/// The shortest remaining flow goes first.
fn shortest_first() -> QueueProgram {
    least_first(Field::Remaining)
}

fn least_first(field: Field) -> QueueProgram {
    let mut program = fifo(100);
    program.fields = vec![field];
    program.levels[0].packets = PacketOrder::Rank { bits: None };
    let body = vec![Step::Load(Value(0), Slot::new(Scope::Packet, word::FIELDS)), Step::Give(Value(0))];
    program.levels[0].handlers.packet_rank = Some(Handler { body, types: vec![Ty::Int] });
    program
}

/// If it failed, a unary call whose length has not arrived with its headers would go first, as if it had none. Chains
/// that read the message and chains that do not are tested.
#[test]
fn unary_call_waits_for_its_length() {
    ["open", "close"].into_iter().for_each(shortest_go_first_behind_a_handler);
}

/// A link of the cluster with one place.
fn one_by_one(program: QueueProgram) -> CallQueue {
    let program = Arc::new(program);
    CallQueue {
        name: "line".to_owned(),
        of: QueueScope::Cluster(0),
        concurrency: Some(1),
        step_ns: None,
        key: CallFlow::Host,
        class: None,
        shared: Arc::new(SharedSlots::default()),
        code: Arc::new(Interpreted::new(program.clone())),
        program,
        written: ProgramText::default(),
    }
}

fn shortest_go_first_behind_a_handler(handler: &str) {
    let text = chain("request\nresponse\n", &[&element("none", &[(handler, "forward")])]);
    let mut plan = Net::new().plan(Some(&text), &[CART]);
    plan.call_queues.push(Arc::new(one_by_one(shortest_first())));
    // Nothing comes with anything else.
    let network = Network { chunk_bytes: 1..=5, ..Network::default() };
    let mut world =
        World::new(1, plan).network(network).server(CART, |_| Behaviour::default().after(ms(2_000)));
    for bytes in [400, 300, 20, 200, 100] {
        let client = world.client("front");
        world.call(client, Call::unary(ADD, item("ann", 1, &vec![7; bytes])).at(ms(1_000 - bytes as i64)));
    }
    world.run();
    let bytes: Vec<usize> =
        world.received().iter().map(|call| call.messages[0].payload.len() / 20 * 20).collect();
    assert_eq!(bytes, [400, 20, 100, 200, 300], "{handler}");
    assert!(world.check().is_empty());
}

/// If it failed, frames of a port would not be ranked: user metadata would not reach the queue, or be lost when another
/// queue replaces it.
#[test]
fn frames_rank_by_user_metadata() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(link(fifo(9), Some(1_000_000)), START, 1);
    for (port, remaining) in [(0, 700), (1, 500), (2, 0), (3, 900), (4, 100)] {
        let mut frame = pool.take_filled(&udp(port, 0, 1_250)).expect("a buffer");
        if remaining > 0 {
            frame.meta.marks.set(Mark::Remaining, remaining);
        }
        link.handle_frame(frame, &mut pool, START);
    }
    link.replace(self::link(shortest_first(), Some(1_000_000)), &mut pool, START, 1);
    let mut left = Vec::new();
    for nth in 0..5 {
        let frame = link.poll_frame(&mut pool, Time(START.0 + nth * 10 * MS)).expect("it is its turn");
        left.push(u16::from_be_bytes([pool.bytes(&frame)[34], pool.bytes(&frame)[35]]));
        pool.give(frame);
    }
    // The third has no user metadata.
    assert_eq!(left, [2, 4, 1, 0, 3]);
}

/// If it failed, a shaper with its own rate would see 64 KiB at once, and add the per-packet overhead once.
#[test]
fn held_back_gso_frame_is_cut_first() {
    let mut holding = fifo(9);
    let body = vec![
        Step::Let(Value(0), Op::IntConst(0)),
        Step::Store(Slot::new(Scope::Event, word::HOLD), Value(0)),
        Step::End(Verdict::Hold, 1),
    ];
    holding.levels[0].handlers.select = Some(Handler { body, types: vec![Ty::Int] });
    for (program, rate, n) in
        [(fifo(9), None, 1), (fifo(9), Some(1), 3), (fifo(9), Some(2_000_000_000), 1), (holding, None, 3)]
    {
        let mut pool = Pool::new(PoolConfig::default());
        let mut link = Link::new(link(program, rate), START, 1);
        let mut frame = pool.take_filled(&udp(1, 0, 42 + 2_500)).expect("a buffer");
        frame.meta.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
        frame.meta.offload.gso = Some(Gso { kind: GsoKind::Udp, size: 1_000, has_ecn: false });
        link.handle_frame(frame, &mut pool, START);
        assert_eq!(link.stats().counts.queued, n, "{rate:?}");
    }
}

/// If it failed, the per-packet overhead would be added to Ethernet headers, tags or padding; or a sender could hide
/// bytes from a shaper by a wrong length.
#[test]
fn network_length_excludes_framing() {
    let frame = |n_tags: usize, said: u16, bytes: usize| {
        let link = (0..n_tags).fold(ethernet(), |link, _| link.vlan(7));
        link.ipv4([0; 4], [0; 4]).length(said).protocol(17).payload(vec![0; bytes - 20]).build()
    };
    // Padded to 46 bytes, full, one byte more than its length says, tags, and not IP.
    let mut arp = frame(0, 0, 48);
    arp[12..14].copy_from_slice(&[0x08, 0x06]);
    let frames = [
        frame(0, 100, 100),
        frame(1, 99, 99),
        frame(2, 98, 98),
        frame(0, 28, 46),
        frame(1, 45, 46),
        frame(0, 20, 47),
        arp,
    ];
    for begins_with in [fifo(9), least_first(Field::NetLen)] {
        let mut pool = Pool::new(PoolConfig::default());
        let mut link = Link::new(link(begins_with, Some(1_000_000)), START, 1);
        for frame in &frames {
            let frame = pool.take_filled(frame).expect("a buffer");
            link.handle_frame(frame, &mut pool, START);
        }
        link.replace(self::link(least_first(Field::NetLen), Some(1_000_000)), &mut pool, START, 1);
        let mut left = Vec::new();
        for nth in 0..frames.len() {
            let frame =
                link.poll_frame(&mut pool, Time(START.0 + nth as i64 * 10 * MS)).expect("it is its turn");
            left.push(frames.iter().position(|known| known[..] == *pool.bytes(&frame)));
            pool.give(frame);
        }
        assert_eq!(left, [3, 4, 5, 6, 2, 1, 0].map(Some));
    }
}

/// If it failed, a new queue would subtract the waiting time from the slack, and rank packets too early.
#[test]
fn slack_counts_from_arrival() {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(link(fifo(9), Some(1_000_000)), START, 1);
    for (port, came, due) in [(0, 0, 900), (1, 0, 100), (2, 60, 110)] {
        let mut frame = pool.take_filled(&udp(port, 0, 1_250)).expect("a buffer");
        frame.meta.marks.set(Mark::Deadline, (START.0 + due * MS) as u64);
        link.handle_frame(frame, &mut pool, Time(START.0 + came * MS));
    }
    let now = Time(START.0 + 60 * MS);
    link.replace(self::link(least_first(Field::Slack), Some(1_000_000)), &mut pool, now, 1);
    let frame = link.poll_frame(&mut pool, now).expect("nothing has left");
    assert_eq!(pool.bytes(&frame)[35], 2, "that one may wait for 50 ms, and the other two for 100 and more");
    pool.give(frame);
}

/// If it failed, the marks of a chain would not reach the call queue: here, long calls are the shorter ones.
#[test]
fn calls_rank_by_user_metadata() {
    let text = chain(
        "request\ninput \"n\" I64 body \"n\"\nresponse\n",
        &[&element("says", &[("request", "v0: int = input in0\nmark.remaining v0\nforward")])],
    );
    let mut plan = Net::new().plan(Some(&text), &[CART]);
    plan.call_queues.push(Arc::new(one_by_one(shortest_first())));
    let mut world = World::new(1, plan).server(CART, |_| Behaviour::default().after(ms(2_000)));
    for (nth, count) in [9, 5, 8, 6, 7].into_iter().enumerate() {
        let client = world.client("front");
        world.call(client, Call::unary(ADD, item("ann", count, &[7; 50])).at(ms(1_000 + nth as i64)));
    }
    world.run();
    let counts: Vec<u8> =
        world.received().iter().map(|call| call.messages[0].payload["..ann.".len()]).collect();
    assert_eq!(counts, [9, 5, 6, 7, 8]);
    assert!(world.check().is_empty());
}

/// Frames with the port that tells them apart, when each comes out of a link that got them all at once.
fn arrivals(plan: LinkPlan, n: u16) -> (Vec<(u16, i64)>, LinkStats) {
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(plan, START, 1);
    for port in 0..n {
        let frame = pool.take_filled(&udp(port, 0, 1_250)).expect("a buffer");
        link.handle_frame(frame, &mut pool, START);
    }
    let (mut now, mut out) = (START, Vec::new());
    loop {
        while let Some(frame) = link.poll_frame(&mut pool, now) {
            out.push((u16::from_be_bytes([pool.bytes(&frame)[34], pool.bytes(&frame)[35]]), now.0 - START.0));
            pool.give(frame);
        }
        let Some(at) = link.poll_timeout() else { break };
        assert!(at > now, "what may leave now has left");
        now = at;
    }
    assert_eq!(pool.in_use(), 0);
    (out, link.stats())
}

/// A path on which this happens.
fn path(impair: Impairments) -> Path {
    Path { impair, ..Path::default() }
}

/// If it failed, a program tested behind a link would see another delay, loss or rate than requested.
#[test]
fn path_delays_and_loses_frames() {
    let with = |rate, path| LinkPlan { path: Some(path), ..link(fifo(5_000), rate) };
    let delay = Impairments::delay(30 * MS as u64);
    let (out, _) = arrivals(with(Some(10_000_000), path(delay.clone())), 100);
    let meant: Vec<_> = (0..100).map(|n| (n, (31 + i64::from(n)) * MS)).collect();
    assert_eq!(out, meant, "a millisecond each to be sent, and thirty on the way");
    let (out, _) = arrivals(with(None, path(delay)), 100);
    assert!(out.iter().all(|(_, at)| *at == 30 * MS), "all at once where there is no rate");
    let loss = Impairments { loss: Loss::Each(0.25), ..Impairments::default() };
    let (out, stats) = arrivals(with(None, path(loss)), 4_000);
    assert_eq!(out.len() as u64 + stats.path.lost, 4_000);
    assert!((900..1_100).contains(&stats.path.lost), "{} lost", stats.path.lost);
    assert_eq!((stats.counts.sent, stats.on_the_way), (4_000, 0));
}

/// If this fails, a trace of Mahimahi is another link here than there: it gives 1500 bytes at each opportunity.
#[test]
fn small_frames_share_opportunities() {
    let trace = Some(Arc::new(Trace::parse("5\n5\n10\n").expect("it is one")));
    let plan = LinkPlan {
        path: Some(Path { trace, ..path(Impairments::delay(30 * MS as u64)) }),
        ..link(fifo(5_000), None)
    };
    // Of 1250 bytes each: six are as long as five opportunities.
    let (out, _) = arrivals(plan.clone(), 7);
    let times: Vec<_> = out.iter().map(|(_, at)| at / MS - 30).collect();
    assert_eq!(
        times,
        [5, 5, 10, 15, 15, 15, 20],
        "a frame is through with the last opportunity that it takes"
    );
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(plan, START, 1);
    for port in 0..31 {
        let frame = pool.take_filled(&udp(port, 0, 100)).expect("a buffer");
        link.handle_frame(frame, &mut pool, START);
    }
    let mut arrived = |ms: i64| {
        let now = Time(START.0 + ms * MS);
        let out = core::iter::from_fn(|| link.poll_frame(&mut pool, now)).collect::<Vec<_>>();
        let n = out.len();
        out.into_iter().for_each(|frame| pool.give(frame));
        n
    };
    assert_eq!([5, 10, 35, 40].map(&mut arrived), [0, 0, 30, 1], "fifteen frames of 100 bytes each");
}

/// If it failed, frames would keep an order that netem does not keep, or lose a requested one.
#[test]
fn path_jitters_and_reorders_frames() {
    let with = |impair| LinkPlan { path: Some(path(impair)), ..link(fifo(5_000), Some(10_000_000)) };
    let delay = Impairments::delay(30 * MS as u64);
    // Sending takes a millisecond each; the rest is the transit time.
    let on_the_way =
        |out: &[(u16, i64)]| out.iter().map(|(n, at)| at / MS - i64::from(n + 1)).collect::<Vec<_>>();
    let is_in_order = |out: &[(u16, i64)]| out.is_sorted_by_key(|(n, _)| *n);

    for keep_order in [false, true] {
        let jitter = Impairments { jitter_ns: 5 * MS as u64, keep_order, ..delay.clone() };
        let (out, _) = arrivals(with(jitter), 1_000);
        assert_eq!((out.len(), is_in_order(&out)), (1_000, keep_order));
        let took = on_the_way(&out);
        assert!(took.iter().all(|ms| (30..=35).contains(ms)), "{took:?}");
        assert!((30..35).all(|ms| took.contains(&ms)), "each millisecond of it happens: {took:?}");
    }

    let reorder = Reorder { share: 0.1, ..Reorder::default() };
    let (out, stats) = arrivals(with(Impairments { reorder, ..delay }), 1_000);
    let took = on_the_way(&out);
    let detours = took.iter().filter(|ms| **ms == 33).count();
    assert!((70..130).contains(&detours), "{detours} of 1,000 take a tenth of the delay more");
    assert_eq!(stats.path.reordered, detours as u64);
    assert_eq!(
        took.iter().filter(|ms| **ms == 30).count(),
        1_000 - detours,
        "the others do not wait for them"
    );
    let overtaken = out.windows(2).filter(|two| two[0].0 > two[1].0).count();
    assert!((60..=detours).contains(&overtaken), "{overtaken} of {detours} come behind a later one");

    let reorder = Reorder { distance: Some(3), ..reorder };
    let (out, stats) = arrivals(with(Impairments { reorder, ..delay }), 1_000);
    let overtakers = |nth: usize| out[..nth].iter().filter(|before| before.0 > out[nth].0).count();
    let n_of = |n| (0..out.len()).filter(|nth| overtakers(*nth) == n).count() as u64;
    assert!((70..130).contains(&stats.path.reordered));
    // One that comes soon behind another one has that in front of it, too, or is held itself.
    assert!(n_of(3) >= stats.path.reordered - 12 && n_of(1) + n_of(2) < 5, "{} {}", n_of(3), n_of(2));
}

/// If it failed, frames would be doubled or damaged without a count, or a device would repair their damage.
#[test]
fn path_duplicates_and_corrupts() {
    let impair = Impairments { duplicate: 0.2, corrupt: 0.1, ..Impairments::default() };
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(LinkPlan { path: Some(path(impair)), ..link(fifo(9), None) }, START, 1);
    let (mut n_flipped, mut n_twice, sent) = (0, 0, udp(7, 0, 200));
    for nth in 0..2_000 {
        let mut frame = pool.take_filled(&sent).expect("a buffer");
        // A device is to complete the checksum.
        frame.meta.offload.checksum = Checksum::Partial { start: 34, offset: 6 };
        let now = Time(START.0 + nth * MS);
        link.handle_frame(frame, &mut pool, now);
        let out: Vec<_> = core::iter::from_fn(|| link.poll_frame(&mut pool, now)).collect();
        n_twice += u64::from(out.len() == 2);
        assert!(out.len() == 2 || out.len() == 1);
        let whole = |frame: &Frame| {
            let (mut bytes, mut offload) = (pool.bytes(frame).to_vec(), frame.meta.offload);
            let is_left_to_do = offload.checksum != Checksum::Unknown;
            offload.finish_checksum(&mut bytes).expect("it is in the packet");
            (bytes, is_left_to_do)
        };
        let (first, is_left_to_do) = whole(&out[0]);
        assert!(out.iter().all(|frame| whole(frame).0 == first));
        let mut meant = sent.clone();
        Offload { checksum: Checksum::Partial { start: 34, offset: 6 }, gso: None }
            .finish_checksum(&mut meant);
        let flipped: u32 = first.iter().zip(&meant).map(|(a, b)| (a ^ b).count_ones()).sum();
        assert_eq!(
            flipped,
            u32::from(!is_left_to_do),
            "one bit, and no device writes a new checksum over it"
        );
        assert_eq!(first[0] >> 4, meant[0] >> 4, "of what no device takes");
        n_flipped += u64::from(flipped);
        out.into_iter().for_each(|frame| pool.give(frame));
    }
    let counts = link.stats().path;
    assert_eq!((counts.duplicated, counts.corrupted), (n_twice, n_flipped));
    assert_eq!(PathCounts { duplicated: n_twice, corrupted: n_flipped, ..PathCounts::default() }, counts);
    assert!((340..460).contains(&n_twice) && (150..250).contains(&n_flipped), "{n_twice} {n_flipped}");
    assert_eq!(pool.in_use(), 0);
}

/// If it failed, a link would not follow its schedule, or its queue and recording would miss the change.
#[test]
fn path_changes_while_in_use() {
    let change = |ms: u64, rate, delay_ms: u64| PathChange {
        after_ns: ms * MS as u64,
        rate: Some(rate),
        impair: Impairments::delay(delay_ms * MS as u64),
    };
    let changes = [change(50, 1_000_000, 30), change(250, 10_000_000, 100)];
    let path = Path { changes: changes.into(), ..path(Impairments::delay(30 * MS as u64)) };
    let plan = LinkPlan { path: Some(path), ..link(fifo(500), Some(10_000_000)) };
    let (out, _) = arrivals(plan.clone(), 100);
    // One a millisecond, then one in ten, then one a millisecond that takes longer.
    let at = |nth: usize| out[nth].1 / MS;
    assert_eq!([at(0), at(49), at(50), at(51), at(69)], [31, 80, 90, 100, 280]);
    assert_eq!([at(70), at(71), at(99)], [351, 352, 380]);
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(plan, START, 1);
    assert_eq!(
        link.poll_timeout(),
        Some(Time(START.0 + 50 * MS)),
        "it wants to be called, though nothing waits"
    );
    for ms in [50, 60, 250] {
        link.handle_timeout(&mut pool, Time(START.0 + ms * MS));
    }
    assert_eq!((link.plan().rate, link.poll_timeout()), (Some(10_000_000), None));
    let recorded = link.take_recording().expect("it is recorded");
    assert_eq!(recorded.text(), "r 0 10000000\nr 50000000 1000000\nr 200000000 10000000\n");
}

/// If it failed, a recording would not show what became of packets behind the queue.
#[test]
fn path_events_are_recorded() {
    let impair = Impairments {
        loss: Loss::Each(0.5),
        duplicate: 1.0,
        corrupt: 1.0,
        reorder: Reorder { share: 1.0, ..Reorder::default() },
        ..Impairments::default()
    };
    let mut pool = Pool::new(PoolConfig::default());
    let mut link = Link::new(LinkPlan { path: Some(path(impair)), ..link(fifo(9), None) }, START, 1);
    for nth in 0..100 {
        let now = Time(START.0 + nth * MS);
        let frame = pool.take_filled(&udp(7, 0, 200)).expect("a buffer");
        link.handle_frame(frame, &mut pool, now);
        core::iter::from_fn(|| link.poll_frame(&mut pool, now)).for_each(drop);
    }
    let recorded = link.take_recording().expect("it is recorded");
    let n_of = |line: &str| recorded.text().lines().filter(|one| *one == line).count() as u64;
    assert_eq!((n_of("w 0 1"), n_of("w 0 14")), (link.stats().path.lost, 100 - link.stats().path.lost));
}
