//! The packet drivers between two network namespaces: what one end sends arrives at the other unchanged.
//!
//! The tests need root; without it they print a message and pass.

#![allow(unsafe_code, reason = "threads move between network namespaces")]

mod relay;
mod world;

use core::ffi::c_int;
use relay::{Pair, Relay};
use std::io::{self, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::path::Path;
use std::time::{Duration, Instant};
use weft_core::Time;
use weft_core::frame::{Pool, PoolConfig};
use weft_engine::packet::port::DeviceCounters;
use weft_io::packet::afpacket::{Options, PacketSocket};
use weft_io::packet::interface::{self, Feature, LinkState};
use weft_io::packet::tun::Tun;
use weft_io::packet::xdp::{self, XdpSocket};
use weft_io::packet::{Device, Link, QueueId};
use world::{ADDRESS_B, PREFIX, World};

/// Time limit of each step.
const PATIENCE: Duration = Duration::from_secs(5);
/// Bytes of the TCP transfer in each direction.
const STREAM_BYTES: usize = 6 << 20;

/// A world; None, with a message, if this machine cannot have one.
fn world() -> Option<World> {
    World::new().inspect_err(|why| eprintln!("skipped: {why}")).ok()
}

/// A world on a kernel with TUN.
fn world_with_tun() -> Option<World> {
    if !Path::new("/dev/net/tun").exists() {
        eprintln!("skipped: there is no /dev/net/tun");
        return None;
    }
    world()
}

fn place(port: u16) -> QueueId {
    QueueId { port, queue: 0 }
}

fn packet_sockets() -> Pair {
    let open =
        |name, port| PacketSocket::open(name, place(port), Options::default()).expect("the interface exists");
    [vec![Box::new(open("to_a", 0)) as _], vec![Box::new(open("to_b", 1)) as _]]
}

fn xdp_sockets(options: xdp::Options) -> Pair {
    let open = |name, port| {
        let queues = XdpSocket::open(name, port, 1, options).expect("the kernel has AF_XDP");
        queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Device>).collect()
    };
    [open("to_a", 0), open("to_b", 1)]
}

fn tuns(link: Link, queues: u16) -> Pair {
    let open = |name, port| {
        let queues = Tun::open(name, link, port, queues).expect("the kernel has a TUN driver");
        queues.into_iter().map(|queue| Box::new(queue) as Box<dyn Device>).collect()
    };
    [open("a", 0), open("b", 1)]
}

/// Turns checksum and segmentation offloads of the ends on or off.
fn set_offloads(world: &World, is_on: bool) {
    for (end, name) in [(&world.a, "a"), (&world.b, "b")] {
        end.enter(|| {
            for feature in Feature::ALL {
                // Some devices cannot change some of them; this does not matter here.
                let _ = interface::set_feature(name, feature, is_on);
            }
        });
    }
}

/// Sends datagrams of all sizes there and back, then a stream each way; all must arrive unchanged.
fn check(world: &World) {
    let server = world.b.enter(|| UdpSocket::bind((ADDRESS_B, 7)).expect("the address is there"));
    let client = world.a.enter(|| UdpSocket::bind("0.0.0.0:0").expect("a socket can be opened"));
    client.connect((ADDRESS_B, 7)).expect("the peer is reachable");
    for socket in [&server, &client] {
        socket.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    }
    let mut buffer = vec![0; 2_000];
    for n in 0..400_usize {
        let datagram = pattern(n, n * 37 % 1_473);
        client.send(&datagram).expect("the peer can be sent to");
        let (length, from) = patiently(|| server.recv_from(&mut buffer)).expect("the data arrives");
        assert_eq!(buffer[..length], datagram, "datagram {n}");
        server.send_to(&buffer[..length], from).expect("the peer can be sent to");
        let length = patiently(|| client.recv(&mut buffer)).expect("the answer arrives");
        assert_eq!(buffer[..length], datagram, "datagram {n}");
    }
    check_burst(world, &client, &server);
    check_stream(world);
}

/// Datagrams of one size that are sent in one call, and may travel as one packet.
fn check_burst(world: &World, client: &UdpSocket, server: &UdpSocket) {
    const SIZE: c_int = 1_200;
    let option = world.a.enter(|| {
        let length = size_of::<c_int>() as u32;
        let value = core::ptr::from_ref(&SIZE).cast();
        // SAFETY: the value is readable for its length.
        unsafe { libc::setsockopt(client.as_raw_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, value, length) }
    });
    assert_eq!(option, 0, "{}", io::Error::last_os_error());
    let burst = pattern(4, 40 * SIZE as usize + 7);
    client.send(&burst).expect("the peer can be sent to");
    let mut buffer = vec![0; 2_000];
    for datagram in burst.chunks(SIZE as usize) {
        let n = patiently(|| server.recv(&mut buffer)).expect("the data arrives");
        assert!(buffer[..n] == *datagram, "a datagram of a burst has other bytes");
    }
}

/// Retries interrupted calls.
fn patiently<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
            result => return result,
        }
    }
}

fn check_stream(world: &World) {
    let listener = world.b.enter(|| TcpListener::bind((ADDRESS_B, 8)).expect("the address is there"));
    let there = pattern(1, STREAM_BYTES);
    let back = pattern(2, STREAM_BYTES);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("a client connects");
            exchange(&mut stream, &back, &there);
        });
        let mut stream = world.a.enter(|| TcpStream::connect((ADDRESS_B, 8)).expect("the peer is reachable"));
        exchange(&mut stream, &there, &back);
    });
}

/// Sends `out` and expects `wanted`, at the same time.
fn exchange(stream: &mut TcpStream, out: &[u8], wanted: &[u8]) {
    stream.set_read_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    stream.set_write_timeout(Some(PATIENCE)).expect("the timeout is not zero");
    let mut writer = stream.try_clone().expect("the descriptor is valid");
    std::thread::scope(|scope| {
        scope.spawn(move || writer.write_all(out).expect("the peer reads it"));
        let mut seen = vec![0; wanted.len()];
        stream.read_exact(&mut seen).expect("the data arrives");
        assert!(seen == wanted, "the stream has other bytes");
    });
}

fn pattern(seed: usize, bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at * 31 + at / 253 + seed * 7) as u8).collect()
}

/// Whether the mean packet is longer than an Ethernet frame: streams passed unsegmented.
fn is_whole(counters: &[DeviceCounters; 2]) -> bool {
    let bytes: u64 = counters.iter().map(|counters| counters.received_bytes).sum();
    let packets: u64 = counters.iter().map(|counters| counters.received).sum();
    bytes / packets > 2_000
}

#[test]
fn packet_sockets_relay_frames() {
    // A chain on an interface would lose, change or split packets, with offloads or without.
    let Some(world) = world() else { return };
    world.join_by_veth();
    for is_on in [true, false] {
        set_offloads(&world, is_on);
        let relay = Relay::start(&world.middle, packet_sockets);
        check(&world);
        let counters = relay.stop();
        assert_eq!(counters.map(|c| (c.refused_in, c.refused_out)), [(0, 0); 2]);
        // The first datagrams and the handshakes are small; unsegmented streams outweigh them.
        assert_eq!(is_whole(&counters), is_on, "{counters:?}");
    }
}

#[test]
fn xdp_sockets_relay_frames() {
    // A chain on an interface would lose or change packets on the fastest driver.
    let Some(world) = world() else { return };
    world.join_by_veth();
    // XDP has no information about unfinished checksums.
    set_offloads(&world, false);
    for is_generic in [false, true] {
        for is_zero_copy_tried in [false, true] {
            let options = xdp::Options { is_zero_copy_tried, is_generic, ..xdp::Options::default() };
            let relay = Relay::start(&world.middle, || xdp_sockets(options));
            check(&world);
            let counters = relay.stop();
            assert_eq!(counters.map(|c| (c.refused_in, c.refused_out)), [(0, 0); 2]);
        }
    }
    // The last socket removes the program, so it can be attached again, and the host gets its packets.
    let mode = world.middle.enter(|| {
        let first = XdpSocket::open("to_a", 0, 1, xdp::Options::default()).expect("the queue is free again");
        // Reopening while other ports wait must fail at once.
        for is_tried_once in [false, true] {
            let options = xdp::Options { is_tried_once, ..xdp::Options::default() };
            let begin = Instant::now();
            let second = XdpSocket::open("to_a", 0, 1, options).expect_err("the queue is in use");
            assert!(second.to_string().contains("another program has this device or queue"), "{second}");
            let took = begin.elapsed();
            assert_eq!(took < Duration::from_millis(190), is_tried_once, "{took:?}");
        }
        first[0].mode()
    });
    assert_eq!(mode, xdp::Mode::Native);
    let relay = Relay::start(&world.middle, packet_sockets);
    check_stream(&world);
    let counters = relay.stop();
    assert!(counters[0].received > 0);
}

#[test]
fn xdp_receives_with_small_buffers_only() {
    // An interface would stall as long as unsegmented streams of another fill the large buffers.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let open = |name| PacketSocket::open(name, place(0), Options::default()).expect("the interface exists");
    let mut sender = world.a.enter(|| open("a"));
    let mut opened = world.middle.enter(|| XdpSocket::open("to_a", 0, 1, xdp::Options::default()));
    let receiver = &mut opened.as_mut().expect("the kernel has AF_XDP")[0];
    let mut pool = Pool::new(PoolConfig { small: 8, large: 1 });
    let large = pool.take(9_000).expect("the pool has a large buffer");
    let packet = [&[0xff; 12][..], &[0x88, 0xb5], &pattern(1, 1_500)].concat();
    let mut frames = vec![pool.take_filled(&packet).expect("the pool has a buffer")];
    assert_eq!(sender.send(&mut pool, &mut frames).expect("the interface is up"), 1);
    assert!(receive(receiver, &mut pool, |bytes| bytes[12..14] == [0x88, 0xb5]) == packet);
    pool.give(large);
}

#[test]
fn offloads_cross_drivers() {
    // A stream from an interface with offloads would not arrive at one without.
    let Some(world) = world() else { return };
    world.join_by_veth();
    // The reverse direction uses XDP, which has no information about unfinished checksums.
    world.b.enter(|| {
        for feature in Feature::ALL {
            let _ = interface::set_feature("b", feature, false);
        }
    });
    let relay = Relay::start(&world.middle, || {
        let [from, _] = packet_sockets();
        let to = XdpSocket::open("to_b", 1, 1, xdp::Options::default()).expect("the kernel has AF_XDP");
        [from, to.into_iter().map(|queue| Box::new(queue) as _).collect()]
    });
    check(&world);
    let [from, to] = relay.stop();
    assert_eq!([from.refused_in, from.refused_out, to.refused_in, to.refused_out], [0; 4]);
    // One packet of the stream became many.
    assert!(to.sent > from.received * 2, "{from:?} {to:?}");
}

#[test]
fn software_segmentation_stands_in() {
    // An unsegmented stream would stop a port for good if its interface cannot segment.
    let Some(world) = world() else { return };
    world.join_by_veth();
    world.middle.enter(|| {
        for feature in Feature::ALL {
            let _ = interface::set_feature("to_b", feature, false);
        }
    });
    let relay = Relay::start(&world.middle, packet_sockets);
    check(&world);
    let [from, to] = relay.stop();
    assert_eq!([from.refused_in, from.refused_out, to.refused_in, to.refused_out], [0; 4]);
    assert!(to.sent > from.received * 2, "{from:?} {to:?}");
}

#[test]
fn waiting_worker_uses_no_cpu() {
    // A port without traffic would use a core: its descriptor would always be readable.
    let Some(world) = world() else { return };
    world.join_by_veth();
    set_offloads(&world, false);
    for open in [packet_sockets, || xdp_sockets(xdp::Options::default())] {
        let relay = Relay::start(&world.middle, open);
        check_stream(&world);
        let begin = relay.cpu();
        std::thread::sleep(Duration::from_millis(200));
        let spent = relay.cpu() - begin;
        assert!(spent < Duration::from_millis(100), "{spent:?}");
        relay.stop();
    }
}

#[test]
fn starved_device_reports_it() {
    // A port would use a core while there are no buffers: its descriptor stays readable.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let open = |name| PacketSocket::open(name, place(0), Options::default()).expect("the interface exists");
    let [_, xdp] = world.middle.enter(|| xdp_sockets(xdp::Options::default()));
    let mut pairs = vec![
        (world.a.enter(|| open("a")), vec![Box::new(world.middle.enter(|| open("to_a"))) as Box<dyn Device>]),
        (world.b.enter(|| open("b")), xdp),
    ];
    if Path::new("/dev/net/tun").exists() {
        let [tap, _] = world.middle.enter(|| tuns(Link::Ethernet, 1));
        let sender = world.middle.enter(|| {
            interface::set_up("a", true).expect("the interface exists");
            open("a")
        });
        pairs.push((sender, tap));
    }
    for (mut sender, mut receivers) in pairs {
        let receiver = &mut receivers[0];
        let mut pool = Pool::new(PoolConfig { small: 1, large: 0 });
        for _ in 0..2 {
            let mut frames = vec![pool.take_filled(&[0xff; 60]).expect("the pool has a buffer")];
            assert_eq!(sender.send(&mut pool, &mut frames).expect("the interface is up"), 1);
        }
        let mut frames = vec![pool.take(60).expect("the pool has a buffer")];
        assert_eq!(receiver.receive(&mut pool, &mut frames, Time(0)).expect("the interface is up"), 0);
        assert!(receiver.is_starved(), "{} says nothing", receiver.name());
        pool.give(frames.pop().expect("the interface exists"));
        for wanted in [1, 1, 0] {
            let n = receiver.receive(&mut pool, &mut frames, Time(0)).expect("the interface is up");
            assert_eq!(n, wanted, "{}", receiver.name());
            frames.drain(..).for_each(|frame| pool.give(frame));
        }
        assert!(!receiver.is_starved(), "{} is to be waited for", receiver.name());
    }
}

#[test]
fn tap_devices_relay_frames() {
    // An application behind a TAP device would see lost, changed or split packets.
    let Some(world) = world_with_tun() else { return };
    let relay = Relay::start(&world.middle, || tuns(Link::Ethernet, 1));
    world.move_to_ends();
    for is_on in [true, false] {
        set_offloads(&world, is_on);
        check(&world);
    }
    let counters = relay.stop();
    assert_eq!(counters.map(|c| (c.refused_in, c.refused_out)), [(0, 0); 2]);
}

#[test]
fn multiqueue_tun_relays_packets() {
    // An application behind a TUN device would see lost, changed or split packets.
    let Some(world) = world_with_tun() else { return };
    let relay = Relay::start(&world.middle, || tuns(Link::Ip, 3));
    world.move_to_ends();
    check(&world);
    let counters = relay.stop();
    assert_eq!(counters.map(|c| (c.refused_in, c.refused_out)), [(0, 0); 2]);
    assert!(is_whole(&counters), "{counters:?}");
}

#[test]
fn vlan_tag_is_in_the_packet() {
    // VLANs could not be distinguished: the kernel strips the tag from the packets that it delivers.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let open = |name| PacketSocket::open(name, place(0), Options::default()).expect("the interface exists");
    let mut sender = world.a.enter(|| open("a"));
    let mut receiver = world.middle.enter(|| open("to_a"));
    let mut pool = Pool::new(PoolConfig::default());
    // Two tags and a payload of an experimental protocol.
    let tags = [0x88, 0xa8, 0x00, 0x07, 0x81, 0x00, 0x60, 0x64, 0x88, 0xb5];
    let packet = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &tags, &pattern(3, 60)].concat();
    let mut frames = vec![pool.take_filled(&packet).expect("the pool has a buffer")];
    assert_eq!(sender.send(&mut pool, &mut frames).expect("the interface is up"), 1);
    let seen = receive(&mut receiver, &mut pool, |bytes| bytes[6..12] == packet[6..12]);
    assert_eq!(seen, packet);
}

#[test]
fn refused_packet_blocks_no_other() {
    // One packet too long for the other end of a pair would stop a port for good.
    let Some(world) = world() else { return };
    world.join_by_veth();
    world.middle.enter(|| interface::set_mtu("to_a", 1_000).expect("a veth interface takes this MTU"));
    let open = |name| PacketSocket::open(name, place(0), Options::default()).expect("the interface exists");
    let mut sender = world.a.enter(|| open("a"));
    let mut receiver = world.middle.enter(|| open("to_a"));
    let mut pool = Pool::new(PoolConfig::default());
    let packet = |n: usize, bytes| [&[0xff; 12][..], &[0x88, 0xb5], &pattern(n, bytes)].concat();
    let sent: Vec<_> = (0..40).map(|n| packet(n, [100, 1_300, 900, 1_400][n % 4])).collect();
    let mut frames: Vec<_> =
        sent.iter().map(|packet| pool.take_filled(packet).expect("the pool has a buffer")).collect();
    let begin = Instant::now();
    while !frames.is_empty() {
        assert!(begin.elapsed() < PATIENCE, "{} still wait", frames.len());
        sender.send(&mut pool, &mut frames).expect("the interface is up");
        std::thread::sleep(Duration::from_millis(1));
    }
    // The device may have been full, so the first packet is retried for a while; later ones are not.
    assert!((100..500).contains(&begin.elapsed().as_millis()), "{:?}", begin.elapsed());
    let counters = sender.counters();
    assert_eq!((counters.sent, counters.refused_out), (20, 20));
    let short: Vec<_> = sent.into_iter().filter(|packet| packet.len() < 1_000).collect();
    assert!(receive_all(&mut receiver, &mut pool) == short, "one was lost, or they came in another order");
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn no_carrier_counts_as_down() {
    // Packets for an interface whose other end is down would wait for ever, and be stale when they leave.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let mut sender = world
        .middle
        .enter(|| PacketSocket::open("to_a", place(0), Options::default()).expect("the interface exists"));
    let mut pool = Pool::new(PoolConfig::default());
    let mut frames = vec![pool.take_filled(&[0xff; 60]).expect("the pool has a buffer")];
    let set_up = |is_up| world.a.enter(|| interface::set_up("a", is_up).expect("the test runs as root"));
    set_up(false);
    let begin = Instant::now();
    let error = loop {
        match sender.send(&mut pool, &mut frames) {
            Ok(n) => {
                assert!(n == 0 && begin.elapsed() < PATIENCE, "it was sent, or no error was reported")
            }
            Err(error) => break error,
        }
        std::thread::sleep(Duration::from_millis(1));
    };
    assert_eq!((error.kind(), frames.len()), (io::ErrorKind::NetworkDown, 1), "{error}");
    sender.send(&mut pool, &mut frames).expect_err("the next send fails at once");
    set_up(true);
    assert_eq!(sender.send(&mut pool, &mut frames).expect("the interface is up"), 1);
    assert_eq!(sender.counters().refused_out, 0);
}

/// A sender on `a` and a receiver on `to_a` with room for jumbo frames, and packets of these sizes in turn that carry
/// their number after the Ethernet header.
fn send_in_turn(world: &World, sizes: &[usize], count: u32) -> (PacketSocket, Pool, Vec<Vec<u8>>) {
    let open = |name| {
        interface::set_mtu(name, 9_000).expect("a veth interface takes this MTU");
        PacketSocket::open(name, place(0), Options::default()).expect("the interface exists")
    };
    let receiver = world.middle.enter(|| open("to_a"));
    let mut sender = world.a.enter(|| open("a"));
    let mut pool = Pool::new(PoolConfig::default());
    let mut packets = Vec::new();
    for n in 0..count {
        let size = sizes[n as usize % sizes.len()];
        let head = [&[0xff; 6][..], &[2, 0, 0, 0, 0, 9], &[0x88, 0xb5]].concat();
        let packet = [&head, &n.to_be_bytes()[..], &pattern(n as usize, size - 18)].concat();
        let mut frames = vec![pool.take_filled(&packet).expect("the pool has a buffer")];
        assert_eq!(sender.send(&mut pool, &mut frames).expect("the interface is up"), 1);
        packets.push(packet);
    }
    (receiver, pool, packets)
}

/// Receives all remaining packets of [`send_in_turn`].
fn receive_all(device: &mut dyn Device, pool: &mut Pool) -> Vec<Vec<u8>> {
    let (mut frames, mut seen) = (Vec::new(), Vec::new());
    while device.receive(pool, &mut frames, Time(0)).expect("the interface is up") > 0 {
        for frame in frames.drain(..) {
            let bytes = pool.bytes(&frame).to_vec();
            seen.extend(Some(bytes).filter(|bytes| bytes[12..14] == [0x88, 0xb5]));
            pool.give(frame);
        }
    }
    seen
}

#[test]
fn oversized_packets_keep_order() {
    // Jumbo frames and unsegmented streams would overtake other packets, or be mixed up with them.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let sizes = [60, 9_014, 1_514, 1_700, 8_000, 1_630, 1_640, 1_650, 60];
    let (mut receiver, mut pool, sent) = send_in_turn(&world, &sizes, 300);
    assert!(receive_all(&mut receiver, &mut pool) == sent, "they came in another order, or changed");
    let counters = receiver.counters();
    assert_eq!((counters.overrun, counters.refused_in), (0, 0));
    // Each longer packet takes a call, and no other does.
    assert_eq!(counters.syscalls, 300 / 9 * 3 + 1, "{counters:?}");
}

#[test]
fn pending_packets_precede_link_error() {
    // A packet would be lost with its interface, or the removal would go unnoticed: reading a long packet consumes the
    // error that reports it.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let (mut receiver, mut pool, sent) = send_in_turn(&world, &[9_014, 60], 2);
    world.middle.enter(|| interface::remove("to_a").expect("the test runs as root"));
    let (mut frames, mut seen) = (Vec::new(), Vec::new());
    let error = loop {
        match receiver.receive(&mut pool, &mut frames, Time(0)) {
            Ok(n) => assert!(n > 0, "no error reports that it is gone"),
            Err(error) => break error,
        }
        for frame in frames.drain(..) {
            seen.push(pool.bytes(&frame).to_vec());
            pool.give(frame);
        }
    };
    assert!(seen == sent, "a packet was lost or changed");
    assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
}

#[test]
fn expired_long_packets_are_counted() {
    // The kernel would keep packets without a limit, or lose them uncounted.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let (mut receiver, mut pool, sent) = send_in_turn(&world, &[9_014, 60], 8_000);
    let seen = receive_all(&mut receiver, &mut pool);
    let long = seen.iter().filter(|packet| packet.len() > 60).count();
    assert!((100..4_000).contains(&long), "{long} of 4,000 long ones");
    assert_eq!(seen.len() - long, 4_000, "short ones have room of their own");
    let number = |packet: &[u8]| {
        u32::from_be_bytes(packet[14..18].try_into().expect("the slice has four bytes")) as usize
    };
    assert!(seen.iter().all(|packet| sent[number(packet)] == *packet), "a packet changed");
    assert!(seen.is_sorted_by_key(|packet| number(packet)), "they came in another order");
    assert_eq!(receiver.counters().overrun, 4_000 - long as u64);
}

#[test]
fn fanout_splits_queues_by_flow() {
    // Two workers would both get each packet, or packets of one flow would be reordered.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let options = Options { fanout: Some(1), ..Options::default() };
    let open = |queue| {
        PacketSocket::open("to_a", QueueId { port: 0, queue }, options).expect("the interface exists")
    };
    let mut queues = world.middle.enter(|| [open(0), open(1)]);
    let mut pool = Pool::new(PoolConfig::default());
    let address = Ipv4Addr::new(10, 76, 0, 9);
    world
        .middle
        .enter(|| interface::add_address("to_a", address.into(), PREFIX).expect("the test runs as root"));
    let client = world.a.enter(|| {
        (0..32).map(|_| UdpSocket::bind("0.0.0.0:0").expect("a socket can be opened")).collect::<Vec<_>>()
    });
    for n in 0..320_u32 {
        client[n as usize % 32].send_to(&n.to_be_bytes(), (address, 9)).expect("the peer can be sent to");
    }
    std::thread::sleep(Duration::from_millis(50));
    let mut flows = [[usize::MAX; 2]; 32];
    let (mut frames, mut n) = (Vec::new(), 0);
    for (number, queue) in queues.iter_mut().enumerate() {
        while queue.receive(&mut pool, &mut frames, Time(0)).expect("the interface is up") > 0 {
            for frame in frames.drain(..) {
                let bytes = pool.bytes(&frame);
                if bytes[12..14] == [8, 0] {
                    let datagram =
                        u32::from_be_bytes(bytes[42..46].try_into().expect("the slice has four bytes"))
                            as usize;
                    let [queue, last] = &mut flows[datagram % 32];
                    assert!(*queue == usize::MAX || *queue == number && *last < datagram, "a flow was split");
                    (*queue, *last) = (number, datagram);
                    n += 1;
                }
                pool.give(frame);
            }
        }
    }
    assert_eq!(n, 320);
    assert!([0, 1].iter().all(|queue| flows.iter().any(|flow| flow[0] == *queue)), "{flows:?}");
}

/// The first wanted packet, within [`PATIENCE`].
fn receive(device: &mut dyn Device, pool: &mut Pool, is_wanted: impl Fn(&[u8]) -> bool) -> Vec<u8> {
    let (begin, mut frames, mut seen) = (Instant::now(), Vec::new(), None);
    while seen.is_none() {
        assert!(begin.elapsed() < PATIENCE, "it does not arrive");
        device.receive(pool, &mut frames, Time(0)).expect("the interface is up");
        for frame in frames.drain(..) {
            if is_wanted(pool.bytes(&frame)) {
                seen = Some(pool.bytes(&frame).to_vec());
            }
            pool.give(frame);
        }
    }
    seen.expect("a frame was seen")
}

#[test]
fn interface_down_up_gone_is_handled() {
    // A port could not survive that its interface is set down and up, or would not notice its removal.
    let Some(world) = world() else { return };
    world.join_by_veth();
    let mut pool = Pool::new(PoolConfig::default());
    let mut frames = Vec::new();
    let mut devices: [Box<dyn Device>; 2] = world.middle.enter(|| {
        let packet = PacketSocket::open("to_a", place(0), Options::default()).expect("the interface exists");
        let [_, mut xdp] = xdp_sockets(xdp::Options::default());
        [Box::new(packet) as _, xdp.pop().expect("a queue")]
    });
    for is_up in [false, true] {
        for name in ["to_a", "to_b"] {
            world.middle.enter(|| interface::set_up(name, is_up).expect("the test runs as root"));
        }
        for device in &mut devices {
            for _ in 0..3 {
                device.receive(&mut pool, &mut frames, Time(0)).expect("the interface exists");
                frames.push(pool.take_filled(&[0xff; 60]).expect("the pool has a buffer"));
                let sent = device.send(&mut pool, &mut frames);
                assert!(sent.is_ok() || !is_up, "{sent:?}");
                assert!(sent.is_ok_and(|n| n > 0) || frames.len() == 1, "what was not sent is still there");
                frames.drain(..).for_each(|frame| pool.give(frame));
            }
        }
    }
    let counters = devices.each_mut().map(|device| device.counters());
    assert_eq!((counters[0].sent, counters[0].refused_out), (3, 0));
    for (device, name) in devices.iter_mut().zip(["to_a", "to_b"]) {
        world.middle.enter(|| interface::remove(name).expect("the test runs as root"));
        // A device that only receives gets the error, and one that sends as well.
        let begin = Instant::now();
        let error = loop {
            if let Err(error) = device.receive(&mut pool, &mut frames, Time(0)) {
                break error;
            }
            frames.drain(..).for_each(|frame| pool.give(frame));
            assert!(begin.elapsed() < PATIENCE, "{name} is gone, and no error reports it");
        };
        assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
        frames.push(pool.take_filled(&[0xff; 60]).expect("the pool has a buffer"));
        let error = device.send(&mut pool, &mut frames).expect_err("the interface was removed");
        assert!(matches!(error.raw_os_error(), Some(libc::ENODEV | libc::ENXIO)), "{error}");
        frames.drain(..).for_each(|frame| pool.give(frame));
    }
    assert_eq!(pool.in_use(), 0);
}

#[test]
fn simultaneous_link_loss_is_seen() {
    // A group would send into links that are down for a second: the kernel batches link changes for that long, unless
    // the two ends have different indexes, as within one namespace.
    let Some(world) = world() else { return };
    let far = weft_io::packet::namespace::Namespace::make().expect("the test runs as root");
    let names: Vec<(String, String)> = (0..4).map(|n| (format!("here{n}"), format!("there{n}"))).collect();
    let links: Vec<LinkState> = world.middle.enter(|| {
        for (here, there) in &names {
            interface::make_veth(here, there, Some(&far)).expect("the test runs as root");
            interface::set_up(here, true).expect("the test runs as root");
        }
        names.iter().map(|(here, _)| LinkState::of(here).expect("the descriptor is valid")).collect()
    });
    for is_up in [true, false, true, false] {
        for (_, there) in &names {
            far.run(|| interface::set_up(there, is_up))
                .expect("the test runs as root")
                .expect("the test runs as root");
        }
        assert_eq!(links.iter().map(LinkState::is_up).collect::<Vec<_>>(), [is_up; 4]);
    }
    world
        .middle
        .enter(|| names.iter().for_each(|(here, _)| interface::remove(here).expect("the test runs as root")));
    assert!(!links[0].is_up(), "it is gone");
}

#[test]
fn open_error_names_cause_and_remedy() {
    // A user would get nothing but an error number.
    let Some(world) = world() else { return };
    let socket = world.middle.enter(|| PacketSocket::open("nosuch0", QueueId::default(), Options::default()));
    let shown = socket.expect_err("there is none").to_string();
    assert!(shown.starts_with("`nosuch0`: cannot find the interface: No such device"), "{shown}");
    assert!(
        shown.ends_with("; there is no such interface here; `ip link` lists those that there are"),
        "{shown}"
    );
    let veth = world.middle.enter(|| interface::make_veth("lo", "x", None)).expect_err("the name is in use");
    let wanted = "`lo`: cannot make the pair of interfaces: File exists (os error 17); it is there already";
    assert_eq!(veth.to_string(), wanted);
    let tun =
        world.middle.enter(|| Tun::open("lo", Link::Ip, 0, 1)).expect_err("the interface is no TUN device");
    assert!(tun.to_string().starts_with("`lo`: cannot make or attach the TUN device: "), "{tun}");
    assert!(tun.to_string().ends_with("choose another name"), "{tun}");
    let many = world.middle.enter(|| {
        interface::make_veth("one", "other", None).expect("the test runs as root");
        interface::set_up("one", true).expect("the test runs as root");
        XdpSocket::open("one", 0, 9, xdp::Options::default()).map(drop)
    });
    assert!(many.is_err_and(|many| many.to_string().contains("the interface has fewer queues")));
    let all =
        world.middle.enter(|| XdpSocket::open_all("one", 0, xdp::Options::default()).map(|all| all.len()));
    assert_eq!(all.expect("all that there are"), 1);
    let long =
        world.middle.enter(|| Tun::open("a-name-that-is-too-long", Link::Ip, 0, 1)).expect_err("too long");
    assert!(long.to_string().contains("a name has at most 15 bytes"), "{long}");
}
