//! Measures a relay between two network namespaces with each packet driver: small packets, and one TCP stream.
//!
//! `cargo run --release -p weft-io --example relay_rates [seconds]`, as root. The source of the small packets is a
//! packet socket, too. Both ends, the relay and the kernel share the machine's cores, so compare only rows of one run.

#![allow(unsafe_code, reason = "threads move between network namespaces")]
#![allow(clippy::print_stdout, reason = "it prints a table")]

#[path = "../tests/packet/relay.rs"]
mod relay;
#[path = "../tests/packet/world.rs"]
mod world;

use relay::{Pair, Relay};
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::time::{Duration, Instant};
use weft_core::Time;
use weft_core::frame::build::{FrameBuilder, ethernet};
use weft_core::frame::{Pool, PoolConfig};
use weft_io::packet::afpacket::{Options, PacketSocket};
use weft_io::packet::interface::{self, Feature};
use weft_io::packet::memory::Memory;
use weft_io::packet::tun::Tun;
use weft_io::packet::xdp::{self, XdpSocket};
use weft_io::packet::{Device, Link, QueueId};
use world::{ADDRESS_B, Namespace, World};

/// Bytes of a small packet with its Ethernet header.
const SMALL_BYTES: usize = 64;

/// How the two ends are connected.
struct RelaySetup {
    name: &'static str,
    /// `None`: the ends are connected directly.
    open: Option<fn() -> Pair>,
    /// The ends are veth pairs to the middle instead of devices that we create.
    has_veth: bool,
    has_offloads: bool,
    link: Link,
}

const RELAY_SETUPS: [RelaySetup; 9] = [
    RelaySetup { name: "direct veth", open: None, has_veth: true, has_offloads: true, link: Link::Ethernet },
    RelaySetup { name: "direct veth", open: None, has_veth: true, has_offloads: false, link: Link::Ethernet },
    veth("AF_PACKET", packet_sockets, true),
    veth("AF_PACKET", packet_sockets, false),
    veth("AF_XDP native", || xdp_sockets(false), false),
    veth("AF_XDP generic", || xdp_sockets(true), false),
    made("TAP", || tuns(Link::Ethernet), Link::Ethernet, true),
    made("TUN", || tuns(Link::Ip), Link::Ip, true),
    made("TUN", || tuns(Link::Ip), Link::Ip, false),
];

const fn veth(name: &'static str, open: fn() -> Pair, has_offloads: bool) -> RelaySetup {
    RelaySetup { name, open: Some(open), has_veth: true, has_offloads, link: Link::Ethernet }
}

const fn made(name: &'static str, open: fn() -> Pair, link: Link, has_offloads: bool) -> RelaySetup {
    RelaySetup { name, open: Some(open), has_veth: false, has_offloads, link }
}

fn main() {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(2.0);
    let time = Duration::from_secs_f64(seconds);
    println!("setup            offloads   small packets           TCP");
    for setup in RELAY_SETUPS {
        let (small, small_ns) = measured(&setup, |world| flood(world, setup.link, time));
        let (gbit, stream_ns) = measured(&setup, |world| stream(world, time));
        let offloads = if setup.has_offloads { "on" } else { "off" };
        let (small_ns, stream_ns) = (per_packet(small_ns), per_packet(stream_ns));
        println!(
            "{:<16} {offloads:<8} {small:>5.2} Mpps {small_ns}   {gbit:>5.1} Gbit/s {stream_ns}",
            setup.name
        );
    }
}

fn per_packet(nanos: Option<f64>) -> String {
    nanos.map_or_else(|| " ".repeat(13), |nanos| format!("{nanos:>6.0} ns CPU"))
}

/// Measures in a new world; also returns the relay thread's time per packet, if there is a relay.
fn measured(setup: &RelaySetup, measure: impl FnOnce(&World) -> f64) -> (f64, Option<f64>) {
    let world = World::new().expect("network namespaces");
    let relay = join(&world, setup);
    for (end, name) in [(&world.a, "a"), (&world.b, "b")] {
        let set = |feature| {
            let _ = interface::set_feature(name, feature, setup.has_offloads);
        };
        end.enter(|| Feature::ALL.into_iter().for_each(set));
    }
    let rate = measure(&world);
    let nanos = relay.map(|relay| {
        let cpu = relay.cpu();
        let packets: u64 = relay.stop().iter().map(|counters| counters.sent).sum();
        cpu.as_nanos() as f64 / packets as f64
    });
    (rate, nanos)
}

fn join(world: &World, setup: &RelaySetup) -> Option<Relay> {
    let Some(open) = setup.open else {
        world.middle.enter(|| interface::make_veth("a", "b", None).expect("root may"));
        world.move_to_ends();
        return None;
    };
    if setup.has_veth {
        world.join_by_veth();
    }
    let relay = Relay::start(&world.middle, open);
    if !setup.has_veth {
        world.move_to_ends();
    }
    Some(relay)
}

fn packet_sockets() -> Pair {
    [("to_a", 0), ("to_b", 1)].map(|(name, port)| {
        let place = QueueId { port, queue: 0 };
        vec![Box::new(PacketSocket::open(name, place, Options::default()).expect("a packet socket")) as _]
    })
}

fn xdp_sockets(is_generic: bool) -> Pair {
    let options = xdp::Options { is_generic, ..xdp::Options::default() };
    [("to_a", 0), ("to_b", 1)].map(|(name, port)| {
        let queues = XdpSocket::open(name, port, 1, options).expect("an XDP socket");
        queues.into_iter().map(|queue| Box::new(queue) as _).collect()
    })
}

fn tuns(link: Link) -> Pair {
    [("a", 0), ("b", 1)].map(|(name, port)| {
        let queues = Tun::open(name, link, port, 1).expect("a TUN device");
        queues.into_iter().map(|queue| Box::new(queue) as _).collect()
    })
}

/// Millions of packets per second that arrive.
fn flood(world: &World, link: Link, time: Duration) -> f64 {
    let before = received(&world.b);
    world.a.enter(|| {
        let mut device =
            PacketSocket::open("a", QueueId::default(), Options::default()).expect("a packet socket");
        let mut pool = Pool::new(PoolConfig { small: 256, large: 0 });
        let packet = small_packet(link);
        let mut source = Memory::source(link, QueueId::default(), [&packet[..]], u64::MAX);
        let (begin, mut frames) = (Instant::now(), Vec::new());
        while begin.elapsed() < time {
            if frames.is_empty() {
                source.receive(&mut pool, &mut frames, Time(0)).expect("it has no faults");
            }
            device.send(&mut pool, &mut frames).expect("it is up");
        }
    });
    (received(&world.b) - before) as f64 / time.as_secs_f64() / 1e6
}

/// Packets that interface `b` of a namespace has received.
fn received(namespace: &Namespace) -> u64 {
    let read = || std::fs::read_to_string("/proc/thread-self/net/dev").expect("it is readable");
    let table = namespace.enter(read);
    let line = table.lines().find_map(|line| line.trim().strip_prefix("b:")).expect("there is `b`");
    line.split_whitespace().nth(1).expect("the second number").parse().expect("a number")
}

/// A UDP packet between two unused addresses.
fn small_packet(link: Link) -> Vec<u8> {
    let link = match link {
        Link::Ip => FrameBuilder::default(),
        _ => ethernet().macs([2, 0, 0, 0, 0, 9], [2, 0, 0, 0, 0, 8]),
    };
    let ip = link.ipv4([10, 76, 0, 9], [10, 76, 0, 77]);
    ip.udp(9, 9).checksum(0).payload([0; SMALL_BYTES - 42]).build()
}

/// Gbit/s of one stream from `a` to `b`.
fn stream(world: &World, time: Duration) -> f64 {
    let listener = world.b.enter(|| TcpListener::bind((ADDRESS_B, 8)).expect("the address is there"));
    let mut stream = world.a.enter(|| TcpStream::connect((ADDRESS_B, 8)).expect("it is reachable"));
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut stream, _) = listener.accept().expect("it connects");
            let (begin, mut buffer, mut bytes) = (Instant::now(), vec![0; 256 << 10], 0_u64);
            loop {
                match stream.read(&mut buffer).expect("it is open") {
                    0 => return bytes as f64 * 8.0 / begin.elapsed().as_secs_f64() / 1e9,
                    n => bytes += n as u64,
                }
            }
        });
        let (begin, buffer) = (Instant::now(), vec![7; 256 << 10]);
        while begin.elapsed() < time {
            stream.write_all(&buffer).expect("it is open");
        }
        drop(stream);
        reader.join().expect("it does not panic")
    })
}
