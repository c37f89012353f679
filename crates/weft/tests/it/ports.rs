//! `weft run` with ports: two namespaces that reach each other only through a program.

use crate::node::{Folder, Node, output, weft};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use weft_core::frame::{Pool, PoolConfig};
use weft_io::packet::afpacket::{Options, PacketSocket};
use weft_io::packet::interface::{self, Feature, LinkState};
use weft_io::packet::namespace::Namespace;
use weft_io::packet::{Device as _, QueueId};

const ADDRESS_A: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 1);
const ADDRESS_B: Ipv4Addr = Ipv4Addr::new(10, 77, 0, 2);
/// The program blocks this port.
const CLOSED: u16 = 9_999;
/// More than all windows and rings hold.
const STREAM_BYTES: usize = 16 << 20;
const WAIT: Duration = Duration::from_secs(10);

const NETWORK: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT left ON packet 'to_a';
CREATE PORT right ON packet 'to_b';
CREATE ELEMENT closed ON udp AS
  ON PACKET
    IF udp.dst_port = 9999 THEN
      DROP;
    END IF;
END;
CREATE ELEMENT hop ON ipv4 AS
  ON PACKET
    SET ipv4.ttl = ipv4.ttl - 1;
END;
CREATE CHAIN there ON PORT left -> right AS closed -> hop; END;
CREATE CHAIN back ON PORT right -> left AS closed -> hop; END;
";

const GROUPED: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT left ON packet 'to_a';
CREATE PORT right ON packet 'to_b';
CREATE PORT spare ON packet 'spare';
CREATE GROUP pair ON PORT right, spare FAILOVER;
CREATE CHAIN there ON PORT left -> pair AS END;
CREATE CHAIN back ON PORT right, spare -> left AS END;
";

/// Two ends, and the middle that joins them.
struct World {
    a: Namespace,
    middle: Namespace,
    b: Namespace,
}

impl World {
    /// Three namespaces; None, with a message, if the machine does not allow them.
    fn bare() -> Option<Self> {
        let make = || Namespace::make().inspect_err(|error| eprintln!("skipped: {error}")).ok();
        Some(Self { a: make()?, middle: make()?, b: make()? })
    }

    /// As [`World::bare`], with a pair of devices from the middle to each end.
    fn new() -> Option<Self> {
        let world = Self::bare()?;
        for (end, name, inner) in [(&world.a, "a", "to_a"), (&world.b, "b", "to_b")] {
            world.pair(end, name, inner);
        }
        world.give_addresses();
        Some(world)
    }

    /// Joins an end and the middle.
    fn pair(&self, end: &Namespace, name: &str, inner: &str) {
        run_in(&self.middle, || {
            interface::make_veth(inner, name, Some(end)).expect("root may");
            interface::set_up(inner, true).expect("it is there");
        });
    }

    /// Assigns addresses to the devices of the ends.
    fn give_addresses(&self) {
        for (end, name, address) in [(&self.a, "a", ADDRESS_A), (&self.b, "b", ADDRESS_B)] {
            run_in(end, || {
                interface::add_address(name, IpAddr::V4(address), 24).expect("root may");
                interface::set_up(name, true).expect("it is there");
            });
        }
    }

    /// Turns off checksum offload: XDP passes unfinished checksums.
    fn finish_checksums(&self) {
        for (end, name) in [(&self.a, "a"), (&self.b, "b")] {
            // Some features cannot be changed on some kernels.
            let off = |feature: &Feature| drop(interface::set_feature(name, *feature, false));
            run_in(end, || Feature::ALL.iter().for_each(off));
        }
    }

    fn run(&self, folder: &Folder, program: &Path) -> Node {
        self.run_on(folder, program, "1")
    }

    fn run_on(&self, folder: &Folder, program: &Path, workers: &str) -> Node {
        run_in(&self.middle, || Node::start(folder, program, &["--seed", "1", "--workers", workers]))
    }

    fn apply(&self, folder: &Folder, node: &Node, text: &str) {
        let mut apply = weft(folder);
        apply.args(["apply", "--admin", &node.admin]).arg(folder.write("applied.weft", text));
        let done = run_in(&self.middle, || output(&mut apply));
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    }

    fn query(&self, folder: &Folder, node: &Node, text: &str) -> String {
        let mut query = weft(folder);
        query.args(["query", "--admin", &node.admin, "-o", "json", text]);
        let done = run_in(&self.middle, || output(&mut query));
        assert!(done.status.success(), "{text}: {}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8_lossy(&done.stdout).into_owned()
    }

    fn status(&self, folder: &Folder, node: &Node) -> Value {
        let mut status = weft(folder);
        status.args(["status", "--json", "--admin", &node.admin]);
        let done = run_in(&self.middle, || output(&mut status));
        serde_json::from_slice(&done.stdout).expect("it is data")
    }
}

fn run_in<R: Send>(namespace: &Namespace, work: impl FnOnce() -> R + Send) -> R {
    namespace.run(work).expect("root may")
}

fn udp(namespace: &Namespace, address: Ipv4Addr, port: u16) -> UdpSocket {
    let socket = run_in(namespace, || UdpSocket::bind((address, port)).expect("it is free"));
    socket.set_read_timeout(Some(WAIT)).expect("it is one");
    socket
}

/// Sends a datagram from A to B and back.
fn exchange(a: &UdpSocket, b: &UdpSocket, text: &[u8]) {
    let mut buffer = [0; 64];
    a.send_to(text, b.local_addr().expect("it is bound")).expect("it leaves");
    let (n, from) = b.recv_from(&mut buffer).expect("it arrives");
    assert_eq!(&buffer[..n], text);
    b.send_to(&buffer[..n], from).expect("it leaves");
    let n = a.recv(&mut buffer).expect("it comes back");
    assert_eq!(&buffer[..n], text);
}

/// Sends until a datagram arrives: a router loses the first ones while it resolves the neighbour.
fn await_neighbours(a: &UdpSocket, b: &UdpSocket) {
    b.set_read_timeout(Some(Duration::from_millis(100))).expect("it is one");
    let (until, mut buffer) = (Instant::now() + WAIT, [0; 64]);
    while b.recv(&mut buffer).is_err() {
        assert!(Instant::now() < until, "nothing arrives");
        a.send_to(b"anybody", b.local_addr().expect("it is bound")).expect("it leaves");
    }
    while b.recv(&mut buffer).is_ok() {}
    b.set_read_timeout(Some(WAIT)).expect("it is one");
}

/// Byte `at` of a stream that has no long repetitions.
fn byte(at: usize) -> u8 {
    (at.wrapping_mul(0x9e37_79b9) >> 13) as u8
}

/// Sends a stream from A to B; returns the number of received bytes, and whether they are right.
fn transfer(world: &World) -> (usize, bool) {
    let listener = run_in(&world.b, || TcpListener::bind((ADDRESS_B, 0)).expect("a port is free"));
    let to: SocketAddr = listener.local_addr().expect("it is bound");
    let receiver = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("it comes");
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).expect("it arrives");
        (bytes.len(), bytes.iter().enumerate().all(|(at, found)| *found == byte(at)))
    });
    let mut stream = run_in(&world.a, || TcpStream::connect_timeout(&to, WAIT).expect("B answers"));
    let bytes: Vec<u8> = (0..STREAM_BYTES).map(byte).collect();
    stream.write_all(&bytes).expect("B reads");
    drop(stream);
    receiver.join().expect("no panic")
}

fn sum(list: &Value, number: &str, is_meant: impl Fn(&Value) -> bool) -> u64 {
    let list = list.as_array().expect("it is a list");
    list.iter().filter(|one| is_meant(one)).map(|one| one[number].as_u64().expect("it is a number")).sum()
}

/// If this failed, a firewall would pass what it should stop, or damage what it should pass; an update of its rules
/// would not reach the frames; or its counters would be wrong.
#[test]
fn namespaces_talk_through_program() {
    talk_on("1");
}

/// As [`namespaces_talk_through_program`], for machines with several cores.
#[test]
fn namespaces_talk_on_four_workers() {
    talk_on("4");
}

fn talk_on(workers: &str) {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let node = world.run_on(&folder, &folder.write("network.weft", NETWORK), workers);
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
    exchange(&a, &b, b"hello");
    let stopped = udp(&world.b, ADDRESS_B, CLOSED);
    for _ in 0..3 {
        a.send_to(b"nobody hears this", (ADDRESS_B, CLOSED)).expect("it leaves");
    }
    exchange(&a, &b, b"still there");
    // Longer than one packet: it arrives in fragments, and no fragment of a blocked one may arrive.
    let long = [7; 4_000];
    a.send_to(&long, (ADDRESS_B, CLOSED)).expect("it leaves");
    a.send_to(&long, b.local_addr().expect("it is bound")).expect("it leaves");
    let mut buffer = [0; 5_000];
    let (n, _) = b.recv_from(&mut buffer).expect("it arrives");
    assert_eq!(buffer[..n], long);
    assert_eq!(transfer(&world), (STREAM_BYTES, true));
    // Datagrams sent later have already arrived.
    stopped.set_nonblocking(true).expect("it is one");
    assert!(stopped.recv(&mut [0; 64]).is_err(), "it was to be stopped");

    let status = world.status(&folder, &node);
    let packets = &status["packets"];
    let port = |name: &str, number: &str| sum(&packets["ports"], number, |port| port["name"] == name);
    assert!(port("left", "received_bytes") > STREAM_BYTES as u64, "{status}");
    assert!(port("right", "sent_bytes") > STREAM_BYTES as u64, "{status}");
    assert!(port("right", "received") > 2 && port("left", "sent") > 2, "{status}");
    let there = &packets["chains"][0];
    assert_eq!(there["name"], "there");
    let is_closed = |end: &Value| {
        end["element"] == "closed" && end["file"].as_str().is_some_and(|file| file.ends_with("network.weft"))
    };
    assert_eq!(sum(&there["ends"], "packets", is_closed), 6, "{status}");
    assert_eq!(there["malformed"], Value::Array(Vec::new()), "{status}");

    world.apply(&folder, &node, &NETWORK.replace("udp.dst_port = 9999", "udp.dst_port = 9998"));
    stopped.set_nonblocking(false).expect("it is one");
    exchange(&a, &stopped, b"now it is heard");
    let other = folder.write("other.weft", &NETWORK.replace("'to_b'", "'to_c'"));
    let mut apply = weft(&folder);
    apply.args(["apply", "--admin", &node.admin]).arg(&other);
    let refused = run_in(&world.middle, || output(&mut apply));
    let printed = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(refused.status.code() == Some(1) && printed.contains("W0502"), "{printed}");
    assert!(printed.contains("it is on `to_b` there"), "{printed}");

    let metrics = run_in(&world.middle, || {
        let mut stream = TcpStream::connect(&node.admin).expect("it listens");
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
            .expect("it reads");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("it answers");
        text
    });
    assert!(metrics.contains("weft_packets_total{port=\"left\",direction=\"in\"}"), "{metrics}");
    assert!(metrics.contains("weft_packets_dropped_total{place=\"there.closed:"), "{metrics}");
    assert_eq!(node.stop(), Some(0));
}

/// Counts datagrams by destination, and stops those to ports that the controller names.
const COUNTED: &str = "IMPORT 'library/protocols/all.weft';
IMPORT 'library/queues/fifo.weft';
CREATE PORT left ON LEFT;
CREATE PORT right ON RIGHT;
CREATE ELEMENT count ON udp AS
  TABLE seen (port U16 PRIMARY KEY, packets U64 = 0) MAX 1000 ROWS EVICT REJECT;
  TABLE closed (port U16 PRIMARY KEY, why U8) MAX 1000 ROWS FILLED BY CONTROLLER;
  VAR total U64 MERGE SUM;
  ON PACKET
    IF EXISTS (SELECT * FROM closed WHERE port = udp.dst_port) THEN
      DROP;
    END IF;
    UPSERT seen KEY (udp.dst_port) SET packets = packets + 1;
    ADD total, 1;
END;
CREATE CHAIN there ON PORT left -> right AS count; END;
CREATE CHAIN back ON PORT right -> left AS END;
";

/// Flows, and datagrams of each.
const FLOWS: usize = 64;
const ROUNDS: u32 = 12;

/// Sends datagrams of many flows to one port, in rounds; checks that those of each flow arrive completely and in order.
fn send_rounds(senders: &[UdpSocket], to: &UdpSocket) {
    let address = to.local_addr().expect("it is bound");
    let mut next = std::collections::BTreeMap::new();
    for round in 0..ROUNDS {
        for sender in senders {
            sender.send_to(&round.to_be_bytes(), address).expect("it leaves");
        }
        for _ in senders {
            let mut buffer = [0; 8];
            let (n, from) = to.recv_from(&mut buffer).expect("it arrives");
            let expected = next.entry(from).or_insert(0_u32);
            assert_eq!(buffer[..n], expected.to_be_bytes(), "{from}, in round {round}");
            *expected += 1;
        }
    }
    assert_eq!(next.len(), senders.len());
}

/// If this failed, each worker would count on its own, so a limit would pass a multiple; or rules, an update or a link
/// would not reach all workers.
#[test]
fn workers_share_tables_and_rules() {
    // A veth pair has one queue for XDP: its port belongs to one worker, and the two ports to two workers.
    for driver in ["packet", "xdp", "tap"] {
        for workers in ["1", "4"] {
            count_on(driver, workers);
        }
    }
}

fn count_on(driver: &str, workers: &str) {
    let Some(world) = (if driver == "tap" { World::bare() } else { World::new() }) else { return };
    if driver == "xdp" {
        world.finish_checksums();
    }
    let port = |to: &str, end: &Namespace| match driver {
        "tap" => {
            let fd = end.as_fd().as_raw_fd();
            format!("tap '{to}' WITH (namespace = '/proc/{}/fd/{fd}')", std::process::id())
        }
        _ => format!("{driver} 'to_{to}'"),
    };
    let folder = Folder::new();
    let text = COUNTED.replace("LEFT", &port("a", &world.a)).replace("RIGHT", &port("b", &world.b));
    let node = world.run_on(&folder, &folder.write("network.weft", &text), workers);
    if driver == "tap" {
        world.give_addresses();
    }
    let senders: Vec<_> = (0..FLOWS).map(|_| udp(&world.a, ADDRESS_A, 0)).collect();
    let to = udp(&world.b, ADDRESS_B, 5_000);
    exchange(&senders[0], &to, b"hello");
    send_rounds(&senders, &to);
    let mut n = 1 + FLOWS as u64 * u64::from(ROUNDS);
    let counted = |of: u64| {
        let found = world.query(&folder, &node, "SELECT packets FROM there.count.seen WHERE port = 5000");
        assert!(found.contains(&format!("{of}")), "{driver}, {workers} workers, of {of}: {found}");
    };
    counted(n);

    let closed = udp(&world.b, ADDRESS_B, CLOSED);
    world.query(&folder, &node, "INSERT INTO there.count.closed (port, why) VALUES (9999, 1)");
    for sender in &senders {
        sender.send_to(b"nobody hears this", (ADDRESS_B, CLOSED)).expect("it leaves");
    }
    send_rounds(&senders, &to);
    n += FLOWS as u64 * u64::from(ROUNDS);
    counted(n);
    closed.set_nonblocking(true).expect("it is one");
    assert!(closed.recv(&mut [0; 64]).is_err(), "{driver}, {workers} workers: it was to be stopped");
    let status = world.status(&folder, &node);
    let there = &status["packets"]["chains"][0];
    let ended = sum(&there["ends"], "packets", |end| end["element"] == "count");
    assert_eq!(ended, FLOWS as u64, "{status}");

    // A link before the chains and one after them, on different workers.
    let links = "CREATE LINK slow ON PORT right RATE '100 Mbit/s' QUEUE fifo;
CREATE LINK early ON PORT left INGRESS RATE '100 Mbit/s' QUEUE fifo;
";
    world.apply(&folder, &node, &format!("{text}{links}"));
    send_rounds(&senders, &to);
    n += FLOWS as u64 * u64::from(ROUNDS);
    counted(n);
    let status = world.status(&folder, &node);
    let links = &status["packets"]["links"];
    let sent = |name: &str| sum(links, "sent", |link| link["name"] == name);
    assert_eq!(links.as_array().map(Vec::len), Some(2), "{status}");
    assert!(sent("slow") >= FLOWS as u64 * u64::from(ROUNDS), "{status}");
    assert!(sent("early") >= FLOWS as u64 * u64::from(ROUNDS), "{status}");
    world.apply(&folder, &node, &text);
    exchange(&senders[1], &to, b"without links again");
    counted(n + 1);
    assert_eq!(node.stop(), Some(0));
}

/// A node's device would have another MTU or address than requested, or a user who requests zero copy would not learn
/// that frames are copied.
#[test]
fn device_mismatch_is_reported() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let text = "CREATE PORT new ON tap 'new0' WITH (mtu = 1300, mac = '02:00:00:00:0a:0a');
CREATE PORT plain ON tun 'plain0';
CREATE PORT fast ON xdp 'to_a' WITH (zero_copy = TRUE);
CREATE CHAIN through ON PORT new -> fast AS END;
";
    let program = folder.write("network.weft", text);
    let node = world.run(&folder, &program);
    let (new, plain) = run_in(&world.middle, || {
        let of = |name: &str| LinkState::of(name).expect("it is there");
        ((of("new0").mtu(), of("new0").mac()), of("plain0").mtu())
    });
    assert_eq!((new, plain), ((Some(1300), Some([2, 0, 0, 0, 10, 10])), Some(1500)));
    let (_, log) = node.stop_and_hear();
    assert!(log.contains("port `fast`: `to_a` cannot write into the node's memory itself"), "{log}");
}

/// Datagrams for more than a second, a millisecond apart: twice the link's rate.
const DATAGRAMS: usize = 1_300;
/// Bytes on the wire of the last one; each is a byte longer than the next, which identifies it.
const FRAME_BYTES: usize = 142;

/// If this fails, a recording of a running link is not what happened, and its explanations are wrong: the link must
/// have sent each packet that arrived, and dropped none of them.
#[test]
fn live_packet_link_is_recorded() {
    for workers in ["1", "4"] {
        let Some(world) = World::new() else { return };
        record_on(&world, workers);
    }
}

fn record_on(world: &World, workers: &str) {
    let folder = Folder::new();
    let link = "CREATE LINK wan ON PORT right RATE '3 Mbit/s' QUEUE codel;";
    let program = format!("IMPORT 'library/queues/codel.weft';\n{NETWORK}{link}\n");
    let node = world.run_on(&folder, &folder.write("network.weft", &program), workers);
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 7_000));
    exchange(&a, &b, b"hello");
    b.set_read_timeout(Some(Duration::from_secs(2))).expect("it is one");
    let receiver = std::thread::spawn(move || {
        let mut buffer = [0; FRAME_BYTES + DATAGRAMS];
        std::iter::from_fn(|| b.recv(&mut buffer).ok())
            .map(|n| n + 42)
            .collect::<std::collections::BTreeSet<_>>()
    });
    let sender = std::thread::spawn(move || {
        for bytes in (FRAME_BYTES..FRAME_BYTES + DATAGRAMS).rev() {
            a.send_to(&vec![0; bytes - 42], (ADDRESS_B, 7_000)).expect("it leaves");
            std::thread::sleep(Duration::from_millis(1));
        }
    });
    // By then many packets wait, and CoDel has begun to count.
    std::thread::sleep(Duration::from_millis(400));
    let ask = |args: &[&str], is_asked: bool| {
        let mut link = weft(&folder);
        link.arg("link").args(args);
        if is_asked {
            link.args(["--admin", &node.admin]);
        }
        let done = run_in(&world.middle, || output(&mut link));
        let (printed, errors) =
            (String::from_utf8_lossy(&done.stdout), String::from_utf8_lossy(&done.stderr));
        (done.status.code(), printed.into_owned(), errors.into_owned())
    };
    let file = folder.0.join("wan.rec").display().to_string();
    let (status, printed, errors) = ask(&["record", "wan", "--for", "4s", "-o", &file, "--json"], true);
    assert_eq!(status, Some(0), "{errors}");
    let printed: Value = serde_json::from_str(&printed).expect("it is data");
    assert_eq!((printed["missed"].as_u64(), printed["ended"].as_str()), (Some(0), Some("time")), "{printed}");
    sender.join().expect("it sends");
    let seen = receiver.join().expect("it hears");

    let (_, shown, errors) = ask(&["show", &file, "--json"], false);
    let shown: Value = serde_json::from_str(&shown).unwrap_or_else(|_| panic!("{errors}"));
    let bytes = |packet: &Value| packet["bytes"].as_u64().expect("a number") as usize;
    // The machine sends some packets of its own.
    let is_ours = |packet: &&Value| (FRAME_BYTES..FRAME_BYTES + DATAGRAMS).contains(&bytes(packet));
    let ours: Vec<&Value> = shown["packets"].as_array().expect("a list").iter().filter(is_ours).collect();
    let waited = ours.iter().filter(|packet| packet["came_ns"].as_i64() < Some(0)).count();
    assert!(waited > 20 && ours.len() < DATAGRAMS, "{waited} waited, {} came", ours.len());
    let of = |end: &str| {
        let meant = ours.iter().filter(|packet| packet["end"]["end"] == end);
        meant.map(|packet| bytes(packet)).collect::<Vec<usize>>()
    };
    let (sent, dropped) = (of("sent"), of("dropped"));
    assert_eq!(sent.len() + dropped.len(), ours.len(), "some wait still");
    assert!(dropped.iter().all(|bytes| !seen.contains(bytes)), "{dropped:?} against {seen:?}");
    // A busy machine may lose one after the link.
    let lost = sent.iter().filter(|bytes| !seen.contains(bytes)).count();
    assert!(dropped.len() > 5 && lost * 20 < sent.len(), "{} dropped, {lost} lost", dropped.len());
    let (_, listed, _) = ask(&["explain", &file, "--json"], false);
    let listed: Value = serde_json::from_str(&listed).expect("it is data");
    let first = listed[0]["packet"].as_u64().expect("a number").to_string();
    let (_, printed, _) = ask(&["explain", &file, &first], false);
    assert!(printed.contains("MARK OR DROP;") && printed.contains("p.sojourn"), "{printed}");

    let (status, _, errors) = ask(&["record", "lan"], true);
    assert!(status == Some(1) && errors.contains("there is no link `lan`; the node has wan"), "{errors}");
    assert!(!folder.0.join("lan.rec").exists());
    let few = udp(&world.a, ADDRESS_A, 0);
    let sender = std::thread::spawn(move || {
        for _ in 0..100 {
            few.send_to(&[0; 64], (ADDRESS_B, 7_000)).expect("it leaves");
            std::thread::sleep(Duration::from_millis(10));
        }
    });
    let args = ["record", "wan", "--for", "600ms", "--packets", "3", "-o", &file];
    let (status, _, errors) = ask(&args, true);
    sender.join().expect("it sends");
    assert!(
        status == Some(0) && errors.contains("it was full: ") && errors.contains("3 packets of link wan"),
        "{errors}"
    );
    let (_, shown, _) = ask(&["show", &file], false);
    assert!(shown.contains("that came later were not recorded"), "{shown}");
    assert_eq!(node.stop(), Some(0));
}

/// If this fails, a queue reads headers of other packets than those at its link, or its recording has other values.
#[test]
fn queue_drops_by_header_field() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let queue = "CREATE QUEUE picky AS
  LIMIT 1000 PACKETS ON OVERFLOW DROP TAIL;
  ON ENQUEUE
    IF udp.dst_port = 7001 THEN DROP; END IF;
    ACCEPT;
END;
CREATE LINK wan ON PORT right RATE '100 Mbit/s' QUEUE picky;
";
    let node = world.run(&folder, &folder.write("network.weft", &format!("{NETWORK}{queue}")));
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 7_000));
    exchange(&a, &b, b"hello");
    let file = folder.0.join("wan.rec").display().to_string();
    let mut record = weft(&folder);
    record.args(["link", "record", "wan", "--for", "1s", "-o", &file, "--admin", &node.admin]);
    let recorded = std::thread::scope(|scope| {
        let recording = scope.spawn(|| run_in(&world.middle, || output(&mut record)));
        std::thread::sleep(Duration::from_millis(400));
        for port in [7_000, 7_001, 7_000, 7_001] {
            a.send_to(&[1; 333], (ADDRESS_B, port)).expect("it leaves");
        }
        recording.join().expect("it runs")
    });
    assert!(recorded.status.success(), "{}", String::from_utf8_lossy(&recorded.stderr));
    for _ in 0..2 {
        assert_eq!(b.recv(&mut [0; 512]).expect("those to the other port arrive"), 333);
    }
    let ask = |args: &[&str]| {
        let done = output(weft(&folder).args(["link", "explain", &file]).args(args));
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let listed: Value = serde_json::from_str(&ask(&["--json"])).expect("data");
    let dropped = listed.as_array().expect("a list");
    assert_eq!(dropped.len(), 2, "{listed}");
    let printed = ask(&[&dropped[0]["packet"].to_string()]);
    let is_value = |line: &str| line.trim().starts_with("udp.dst_port") && line.trim().ends_with("7001");
    assert!(
        printed.contains("IF udp.dst_port = 7001 THEN DROP") && printed.lines().any(is_value),
        "{printed}"
    );
    assert_eq!(node.stop(), Some(0));
}

/// If this fails, packets of a port have no rank: a short flow waits behind all of a long one with any queue.
#[test]
fn short_flow_goes_before_long_one() {
    const LONG: u8 = 250;
    const SHORT: u8 = 5;
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let program = "IMPORT 'library/elements/attained.weft';
IMPORT 'library/queues/srpt.weft';
CREATE PORT left ON packet 'to_a';
CREATE PORT right ON packet 'to_b';
CREATE CHAIN there ON PORT left -> right AS attained; END;
CREATE CHAIN back ON PORT right -> left AS END;
CREATE LINK wan ON PORT right RATE '4 Mbit/s' QUEUE srpt;
";
    let node = world.run(&folder, &folder.write("network.weft", program));
    let (long, short) = (udp(&world.a, ADDRESS_A, 0), udp(&world.a, ADDRESS_A, 0));
    let b = udp(&world.b, ADDRESS_B, 7_000);
    exchange(&long, &b, b"hello");
    // Each packet of the long flow takes two milliseconds, so the last would leave half a second after the first.
    for _ in 0..LONG {
        long.send_to(&[1; 958], (ADDRESS_B, 7_000)).expect("it leaves");
    }
    std::thread::sleep(Duration::from_millis(50));
    for _ in 0..SHORT {
        short.send_to(&[2; 958], (ADDRESS_B, 7_000)).expect("it leaves");
    }
    let mut buffer = [0; 1_024];
    let mut receive = |_| {
        b.recv(&mut buffer).expect("all of them fit");
        buffer[0]
    };
    let flows: Vec<u8> = (0..LONG + SHORT).map(&mut receive).collect();
    let last = flows.iter().rposition(|flow| *flow == 2).expect("they arrive");
    assert!(
        last < usize::from(LONG / 2),
        "the short flow was through after {last} packets of {}",
        flows.len()
    );
    assert_eq!(node.stop(), Some(0));
}

/// A user must see which interface is missing, and a service manager that the program is not at fault. A node whose
/// interface vanishes must not seem to work.
#[test]
fn missing_device_is_machine_fault() {
    let Some(world) = World::new() else { return };
    let folder = Folder::new();
    let run = |text: &str| {
        let mut run = weft(&folder);
        run.arg("run").arg(folder.write("network.weft", text)).args(["--admin", "127.0.0.1:0"]);
        let done = run_in(&world.middle, || output(&mut run));
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, printed) = run(&NETWORK.replace("'to_b'", "'to_c'"));
    assert_eq!(status, Some(3), "{printed}");
    assert!(
        printed.contains("port `right`") && printed.contains("`to_c`") && printed.contains("help: "),
        "{printed}"
    );
    let (status, printed) = run(&NETWORK.replace("'to_b'", "'to_b' WITH (namespace = 'no-such')"));
    assert_eq!(status, Some(3), "{printed}");
    assert!(printed.contains("ip netns"), "{printed}");
    let (status, printed) = run(&NETWORK.replace("packet 'to_b'", "memory"));
    assert_eq!(status, Some(1), "{printed}");
    assert!(printed.contains("W0502") && printed.contains("weft replay"), "{printed}");
    let node = world.run(&folder, &folder.write("network.weft", NETWORK));
    run_in(&world.middle, || interface::remove("to_b").expect("it is there"));
    let (status, printed) = node.await_end();
    assert_eq!(status, Some(3), "{printed}");
    assert!(printed.contains("port `right`: `to_b` has failed: No such device"), "{printed}");
}

/// A user would have to create veth pairs by hand, and remove them after the node.
#[test]
fn node_creates_and_removes_veths() {
    let Some(world) = World::bare() else { return };
    let folder = Folder::new();
    let port = |name: &str, device: &str, end: &Namespace, address: Ipv4Addr| {
        let at = format!("/proc/{}/fd/{}", std::process::id(), end.as_fd().as_raw_fd());
        format!(
            "CREATE PORT {name} ON veth '{device}' WITH (peer = 'eth0', peer_namespace = '{at}', \
             peer_address = '{address}/24', mtu = 1400);\n"
        )
    };
    let chains = "CREATE CHAIN there ON PORT left -> right AS END;
CREATE CHAIN back ON PORT right -> left AS END;
";
    let program =
        port("left", "to_a", &world.a, ADDRESS_A) + &port("right", "to_b", &world.b, ADDRESS_B) + chains;
    let program = folder.write("network.weft", &program);
    let mtu = |namespace: &Namespace, name: &str| run_in(namespace, || interface::mtu(name).ok());
    // Twice: leftovers of the first run would block the second.
    for _ in 0..2 {
        let node = world.run(&folder, &program);
        let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
        exchange(&a, &b, b"hello");
        let all = [(&world.middle, "to_a"), (&world.middle, "to_b"), (&world.a, "eth0"), (&world.b, "eth0")];
        for (namespace, name) in all {
            assert_eq!(mtu(namespace, name), Some(1400), "{name}");
        }
        drop((a, b));
        assert_eq!(node.stop(), Some(0));
        for (namespace, name) in all {
            assert_eq!(mtu(namespace, name), None, "{name} is still there");
        }
    }
    // A pair that existed before stays, and the node reports it.
    world.pair(&world.a, "eth0", "to_a");
    let node = world.run(&folder, &program);
    let (status, log) = node.stop_and_hear();
    assert_eq!(status, Some(0));
    assert!(log.contains("port `left`: `to_a` was there already") && !log.contains("`to_b` was"), "{log}");
    assert_eq!((mtu(&world.middle, "to_a"), mtu(&world.middle, "to_b")), (Some(1500), None));
}

/// A missing interface would end the node, or silently lose packets that the link should hold; and a queue could not be
/// changed with a statement. With several workers, the queues of the returning device would not all be opened.
#[test]
fn missing_device_holds_or_drops() {
    let folder = Folder::new();
    let drivers = [("packet", "1"), ("packet", "4"), ("xdp", "4")];
    for ((driver, workers), done) in drivers.into_iter().flat_map(|way| [(way, "HOLD"), (way, "DROP")]) {
        // A new world: in the other one, the ends know the address of a device that is gone.
        let Some(world) = World::new() else { return };
        let link = format!("CREATE LINK wan ON PORT right RATE '1 Mbit/s' QUEUE fifo ON FAILURE {done};");
        let network = NETWORK.replace("ON packet '", &format!("ON {driver} '"));
        let program = format!("IMPORT 'library/queues/fifo.weft';\n{network}{link}\n");
        let node = world.run_on(&folder, &folder.write("network.weft", &program), workers);
        world.finish_checksums();
        let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 7_000));
        exchange(&a, &b, b"hello");
        run_in(&world.middle, || interface::remove("to_b").expect("it is there"));
        let await_status = |is_meant: &dyn Fn(&Value, &Value) -> bool| {
            let until = Instant::now() + WAIT;
            loop {
                let status = world.status(&folder, &node);
                if is_meant(&status["packets"]["ports"][1], &status["packets"]["links"][0]) {
                    return status;
                }
                assert!(Instant::now() < until, "{status}");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let is_broken = |port: &Value, _: &Value| {
            port["broken"].as_str().is_some_and(|why| why.contains("`to_b` is gone"))
        };
        // One worker notices it first. At the next request all know.
        await_status(&is_broken);
        let known = await_status(&is_broken);
        let send = || assert_eq!(a.send_to(b"later", (ADDRESS_B, 7_000)).expect("it leaves"), 5);
        (0..3).for_each(|_| send());
        if done == "HOLD" {
            // The machine also sends packets of its own.
            let holds = |link: &Value| link["queued"].as_u64() >= Some(3);
            await_status(&|_, link| holds(link));
            let alter = "ALTER LINK wan USE QUEUE codel (target = '20 ms') KEEP PACKETS";
            let mut query = weft(&folder);
            query.args(["query", alter, "--admin", &node.admin, "-o", "json"]);
            let altered = run_in(&world.middle, || output(&mut query));
            let printed: Value = serde_json::from_slice(&altered.stdout)
                .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&altered.stderr)));
            assert!(printed[0]["rows"][0][2].as_u64() >= Some(3), "{printed}");
            await_status(&|_, link| link["queue"] == "codel" && holds(link));
        } else {
            let status = await_status(&|_, link| link["dropped"]["device_gone"].as_u64() >= Some(3));
            let [before, link] = [&known, &status].map(|status| &status["packets"]["links"][0]);
            assert_eq!(link["sent"], before["sent"], "nothing was sent: {link}");
            let n = |what: &str| link[what].as_u64().expect("a number");
            let dropped = link["dropped"].as_object().expect("by reason").values().filter_map(Value::as_u64);
            assert_eq!(n("arrived"), n("sent") + dropped.sum::<u64>() + n("queued"), "{link}");
        }
        drop(b);
        world.pair(&world.b, "b", "to_b");
        run_in(&world.b, || {
            interface::add_address("b", IpAddr::V4(ADDRESS_B), 24).expect("root may");
            interface::set_up("b", true).expect("it is there");
        });
        let back = await_status(&|port, link| port["broken"].is_null() && link["queued"] == 0);
        // CoDel sends even packets that waited this long, as long as they are one burst.
        let sent = back["packets"]["ports"][1]["sent"].as_u64().expect("a number");
        let flows: Vec<_> = (0..FLOWS).map(|_| udp(&world.a, ADDRESS_A, 0)).collect();
        for flow in &flows {
            flow.send_to(b"again", (ADDRESS_B, 7_000)).expect("it leaves");
        }
        await_status(&|port, _| port["sent"].as_u64() >= Some(sent + FLOWS as u64));
        // The other end's packets come in at all queues, too.
        let received = back["packets"]["ports"][1]["received"].as_u64().expect("a number");
        let others: Vec<_> = (0..FLOWS).map(|_| udp(&world.b, ADDRESS_B, 0)).collect();
        for other in &others {
            other.send_to(b"back", (ADDRESS_A, 7_000)).expect("it leaves");
        }
        await_status(&|port, _| port["received"].as_u64() >= Some(received + FLOWS as u64));
        assert!(sent >= if done == "HOLD" { 4 } else { 1 }, "{back}");
        // The log is written ten times a second.
        std::thread::sleep(Duration::from_millis(500));
        let (status, printed) = node.stop_and_hear();
        assert_eq!(status, Some(0), "{printed}");
        let kept = if done == "HOLD" { "held" } else { "dropped" };
        assert!(printed.contains("port `right`: `to_b` is gone") && printed.contains(kept), "{printed}");
        assert!(printed.contains("`to_b` is back"), "{printed}");
    }
}

/// An interface, or its peer, that goes down and up again would lose packets that the link should hold, or count them
/// as too long for the device.
#[test]
fn down_device_holds_or_drops() {
    let folder = Folder::new();
    let drivers =
        [("packet", "1", "to_b"), ("packet", "4", "to_b"), ("xdp", "1", "to_b"), ("packet", "1", "b")];
    for ((driver, workers, end), done) in drivers.into_iter().flat_map(|way| [(way, "HOLD"), (way, "DROP")]) {
        let Some(world) = World::new() else { return };
        let link = format!("CREATE LINK wan ON PORT right RATE '1 Mbit/s' QUEUE fifo ON FAILURE {done};");
        let network = NETWORK.replace("ON packet '", &format!("ON {driver} '"));
        let program = format!("IMPORT 'library/queues/fifo.weft';\n{network}{link}\n");
        let node = world.run_on(&folder, &folder.write("network.weft", &program), workers);
        world.finish_checksums();
        let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 7_000));
        exchange(&a, &b, b"hello");
        let await_status = |is_meant: &dyn Fn(&Value, &Value) -> bool| {
            let until = Instant::now() + WAIT;
            loop {
                let status = world.status(&folder, &node);
                if is_meant(&status["packets"]["ports"][1], &status["packets"]["links"][0]) {
                    return status;
                }
                assert!(Instant::now() < until, "{driver} {workers} {end} {done}: {status}");
                std::thread::sleep(Duration::from_millis(50));
            }
        };
        let at = if end == "b" { &world.b } else { &world.middle };
        let set_up = |is_up| run_in(at, || interface::set_up(end, is_up).expect("it is there"));
        let send = |text: &[u8]| a.send_to(text, (ADDRESS_B, 7_000)).expect("it leaves");
        set_up(false);
        // Packets that leave before the node notices are not lost either.
        send(b"first");
        await_status(&|port, _| port["broken"].as_str().is_some_and(|why| why.contains("`to_b` is down")));
        for _ in 0..3 {
            send(b"later");
        }
        let status = if done == "HOLD" {
            await_status(&|_, link| link["queued"].as_u64() >= Some(3))
        } else {
            await_status(&|_, link| link["dropped"]["device_gone"].as_u64() >= Some(3))
        };
        assert!(status["packets"]["ports"][1]["dropped"]["refused_out"].is_null(), "{status}");
        // The log is written twice a second.
        std::thread::sleep(Duration::from_millis(600));
        set_up(true);
        await_status(&|port, link| port["broken"].is_null() && link["queued"] == 0);
        send(b"again");
        let mut buffer = [0; 64];
        let mut receive = || {
            let n = b.recv(&mut buffer).expect("it arrives");
            String::from_utf8_lossy(&buffer[..n]).into_owned()
        };
        if done == "HOLD" {
            let held = [(); 4].map(|()| receive());
            assert_eq!(held, ["first", "later", "later", "later"], "{driver} {workers}");
            assert_eq!(receive(), "again");
        } else {
            let next = receive();
            assert!(next == "again" || driver == "xdp" && next == "first" && receive() == "again", "{next}");
        }
        std::thread::sleep(Duration::from_millis(600));
        let (status, printed) = node.stop_and_hear();
        assert_eq!(status, Some(0), "{printed}");
        let kept = if done == "HOLD" { "held" } else { "dropped" };
        assert!(printed.contains(&format!("`to_b` is down: what is to leave is {kept}")), "{printed}");
        assert!(printed.contains("`to_b` is back"), "{printed}");
    }
}

/// If this failed, packets to a capture port would be lost, or the end of an input capture would end the node.
#[test]
fn capture_ports_end_and_flush() {
    use weft_proto::capture::{LinkType, Packet, Style, Writer};
    let folder = Folder::new();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "", &mut bytes);
    for n in 0..500_u16 {
        let frame = [&[2; 12][..], &[0x88, 0xb5], &n.to_be_bytes(), &[0; 50]].concat();
        writer.write(&Packet { bytes: &frame, ..Packet::default() }, &mut bytes).expect("it is short");
    }
    std::fs::write(folder.0.join("in.pcapng"), bytes).expect("the folder is ours");
    let [from, to, copy] =
        ["in.pcapng", "out.pcapng", "copy.pcapng"].map(|name| folder.0.join(name).display().to_string());
    let program = folder.write(
        "network.weft",
        &format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT past ON pcap '{from}';
CREATE PORT kept ON pcap '{to}' WITH (write = TRUE);
CREATE PORT twin ON pcap '{copy}' WITH (write = TRUE);
CREATE ELEMENT all ON packet AS ON PACKET MIRROR TO 'twin'; END;
CREATE CHAIN copy ON PORT past -> kept AS all; END;
"
        ),
    );
    let node = Node::start(&folder, &program, &[]);
    let until = Instant::now() + WAIT;
    loop {
        let done = output(weft(&folder).args(["status", "--json", "--admin", &node.admin]));
        let status: Value = serde_json::from_slice(&done.stdout).expect("it is data");
        let ports = &status["packets"]["ports"];
        if ports[0]["is_ended"] == true && ports[1]["sent"] == 500 {
            break;
        }
        assert!(Instant::now() < until, "{status}");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(node.stop(), Some(0));
    for file in [to, copy] {
        let written = std::fs::metadata(&file).expect("it is there").len();
        assert!(written > 500 * 66, "{file}: {written} bytes");
    }
}

/// A flow export would have unreadable addresses, or lose bytes of a marker.
#[test]
fn rows_print_addresses_and_bytes() {
    use weft_proto::capture::{LinkType, Packet, Style, Writer};
    let folder = Folder::new();
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "", &mut bytes);
    let frame =
        [&[2; 12][..], &[0x86, 0xdd], &[6], &[0x20, 1, 0xd, 0xb8], &[0; 11], &[9], &[0xff, 7]].concat();
    writer.write(&Packet { bytes: &frame, ..Packet::default() }, &mut bytes).expect("it is short");
    std::fs::write(folder.0.join("in.pcapng"), bytes).expect("the folder is ours");
    let [from, json, text] = ["in.pcapng", "rows.json", "rows.txt"].map(|name| folder.0.join(name));
    let program = folder.write(
        "network.weft",
        &format!(
            "IMPORT 'library/protocols/ethernet.weft';
CREATE PROTOCOL ours (kind bit(8), src bytes(16) AS IPADDR, mark bytes(2), PAYLOAD bytes)
  BIND ethernet WHERE type = 0x86DD;
CREATE ELEMENT told ON ours AS
  SINK data (mac MAC, src IPADDR, mark BYTES) TO FILE '{json}';
  SINK line (mac MAC, src IPADDR, mark BYTES) TO FILE '{text}' FORMAT TEXT;
  ON PACKET
    INSERT INTO data VALUES (ethernet.src, ours.src, ours.mark);
    INSERT INTO line VALUES (ethernet.src, ours.src, ours.mark);
END;
CREATE PORT past ON pcap '{from}';
CREATE CHAIN c ON PORT past AS told; END;
",
            from = from.display(),
            json = json.display(),
            text = text.display(),
        ),
    );
    let node = Node::start(&folder, &program, &[]);
    let until = Instant::now() + WAIT;
    let written = |path: &Path| std::fs::read_to_string(path).unwrap_or_default();
    while [&json, &text].iter().any(|path| !written(path).ends_with('\n')) && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(node.stop(), Some(0));
    let (json, text) = (written(&json), written(&text));
    let ours = "\"mac\":\"02:02:02:02:02:02\",\"src\":\"2001:db8::9\",\"mark\":\"ff07\"}\n";
    assert!(json.ends_with(ours), "{json}");
    assert!(text.ends_with(" c.told.line mac=02:02:02:02:02:02 src=2001:db8::9 mark=ff07\n"), "{text}");
}

/// Frames would leave by a dead link until an operator notices.
#[test]
fn group_fails_over_to_next_port() {
    let Some(world) = World::new() else { return };
    run_in(&world.middle, || {
        interface::make_veth("spare", "other", None).expect("root may");
        interface::set_up("spare", true).expect("it is there");
        interface::set_up("other", true).expect("it is there");
    });
    let folder = Folder::new();
    let node = world.run(&folder, &folder.write("network.weft", GROUPED));
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
    exchange(&a, &b, b"hello");
    let to = b.local_addr().expect("it is bound");
    let member = |nth: usize| {
        let group = world.status(&folder, &node)["packets"]["groups"][0].clone();
        let of = &group["members"][nth];
        (of["is_up"].as_bool().expect("it is one"), of["sent"].as_u64().expect("it is a number"))
    };
    assert!(member(0).0 && member(0).1 > 0 && member(1) == (true, 0));
    run_in(&world.b, || interface::set_up("b", false).expect("it is there"));
    let until = Instant::now() + WAIT;
    while member(0).0 {
        assert!(Instant::now() < until, "nobody saw that the link is down");
    }
    for _ in 0..5 {
        a.send_to(b"by another way", to).expect("it leaves");
    }
    while member(1).1 < 5 {
        assert!(Instant::now() < until, "the frames did not take the other way");
    }
}

/// Two threads would execute a statement twice, or one of them would break a table beside its worker.
#[test]
fn port_rows_change_once_on_owner() {
    let Some(world) = World::new() else { return };
    let program = "IMPORT 'library/protocols/all.weft';
CREATE PORT left ON packet 'to_a';
CREATE PORT right ON packet 'to_b';
CREATE ELEMENT count ON ip AS
  TABLE hits (src IPADDR, port U16, n U64 = 0, PRIMARY KEY (src, port)) MAX 2000 ROWS EVICT OLDEST;
  TABLE mine (src IPADDR PRIMARY KEY, n U64 = 0) MAX 1000 ROWS EVICT OLDEST PER WORKER;
  ON PACKET
    UPSERT hits KEY (coalesce(ip.src, '::'), coalesce(l4.src_port, 0)) SET n = n + 1;
    UPSERT mine KEY (coalesce(ip.src, '::')) SET n = n + 1;
END;
CREATE CHAIN there ON PORT left -> right AS count; END;
CREATE CHAIN back ON PORT right -> left AS count; END;
";
    for workers in ["1", "4"] {
        let folder = Folder::new();
        let node = world.run_on(&folder, &folder.write("network.weft", program), workers);
        let query = |text: &str| world.query(&folder, &node, text);
        let inserted = query("INSERT INTO there.count.hits VALUES ('192.0.2.1', 1, 5)");
        assert!(inserted.contains("\"inserted\":1,"), "{workers} workers: {inserted}");
        let updated = query("UPDATE there.count.hits SET n = n + 1 WHERE src = '192.0.2.1'");
        assert!(updated.contains("\"updated\":1,"), "{workers} workers: {updated}");
        let shown = query("SELECT n FROM there.count.hits WHERE src = '192.0.2.1'");
        assert!(shown.contains("\"rows\":[[6]]"), "{workers} workers: {shown}");
        // Statements empty the table while packets fill it.
        let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
        let sender = std::thread::spawn({
            let socks: Vec<UdpSocket> = (0..64).map(|_| udp(&world.a, ADDRESS_A, 0)).collect();
            let to = b.local_addr().expect("it is bound");
            move || (0..20_000).for_each(|n| drop(socks[n % 64].send_to(b"x", to)))
        });
        for _ in 0..20 {
            query(
                "DELETE FROM there.count.hits; UPDATE there.count.hits SET n = 1; DELETE FROM there.count.mine",
            );
        }
        sender.join().expect("it sends");
        query("DELETE FROM there.count.mine");
        exchange(&a, &udp(&world.b, ADDRESS_B, 0), b"still there");
        assert_eq!(node.stop(), Some(0));
    }
}

fn mac_of(end: &Namespace, name: &str) -> String {
    let mac = run_in(end, || LinkState::of(name).expect("it is there").mac()).expect("it is an Ethernet");
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

/// Hosts without a static entry would not find a router, and an operator could not ping it.
#[test]
fn station_answers_for_router() {
    let Some(world) = World::new() else { return };
    let program = format!(
        "IMPORT 'library/elements/station.weft';
IMPORT 'library/elements/router.weft';
CREATE PORT left ON packet 'to_a';
CREATE PORT right ON packet 'to_b';
CREATE CHAIN core ON PORT left, right WHEN present(ip) OR present(arp) AS
  station -> router (asks_after = '1 s');
END;
INSERT INTO core.station.addresses (ip, at) VALUES ('{ADDRESS_B}', 'left'), ('fd00::b', 'left'),
  ('{ADDRESS_A}', 'right'), ('fd00::a', 'right');
INSERT INTO core.router.interfaces VALUES ('left', '{ADDRESS_B}', 'fd00::b'), ('right', '{ADDRESS_A}', 'fd00::a');
INSERT INTO core.router.routes (id, net, bits, via_port) VALUES (1, '{ADDRESS_A}/32', 32, 'left'),
  (2, '{ADDRESS_B}/32', 32, 'right'), (3, 'fd00::a/128', 128, 'left'), (4, 'fd00::b/128', 128, 'right');
",
    );
    let folder = Folder::new();
    let node = world.run(&folder, &folder.write("network.weft", &program));
    // The router does not know B's address: the first packet triggers a request and waits for the answer.
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
    exchange(&a, &b, b"hello");
    exchange(&b, &a, b"and back");
    let on_v6 = |end: &Namespace, name: &str, address: Ipv6Addr| {
        run_in(end, || {
            interface::add_address(name, IpAddr::V6(address), 64).expect("root may");
            // The kernel first probes whether the address is in use.
            let until = Instant::now() + WAIT;
            loop {
                match UdpSocket::bind((address, 0)) {
                    Ok(socket) => return socket,
                    Err(error) => assert!(Instant::now() < until, "{error}"),
                }
                std::thread::sleep(Duration::from_millis(20));
            }
        })
    };
    let a = on_v6(&world.a, "a", "fd00::a".parse().expect("an address"));
    let b = on_v6(&world.b, "b", "fd00::b".parse().expect("an address"));
    b.set_read_timeout(Some(WAIT)).expect("it is one");
    a.set_read_timeout(Some(WAIT)).expect("it is one");
    exchange(&a, &b, b"hello");
    let known = world.query(&folder, &node, "SELECT ip, at, mac FROM neighbours ORDER BY ip;");
    for (ip, at, mac) in [
        ("10.77.0.1", "left", mac_of(&world.a, "a")),
        ("10.77.0.2", "right", mac_of(&world.b, "b")),
        ("fd00::a", "left", mac_of(&world.a, "a")),
        ("fd00::b", "right", mac_of(&world.b, "b")),
    ] {
        assert!(known.contains(&format!(r#"["{ip}","{at}","{mac}"]"#)), "{ip} is at {mac}: {known}");
    }
    // The host has learned the address of the device.
    let neighbours =
        run_in(&world.a, || std::fs::read_to_string("/proc/thread-self/net/arp").expect("root may"));
    assert!(neighbours.contains(&mac_of(&world.middle, "to_a")), "{neighbours}");
    // The next request finds the new address of a neighbour, which did not announce it.
    run_in(&world.b, || interface::set_mac("b", [2, 0, 0, 0, 9, 9]).expect("root may"));
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
    await_neighbours(&a, &b);
    exchange(&a, &b, b"hello");
    assert_eq!(node.stop(), Some(0));
}

/// If this failed, packets that are too long for a link would be lost without an error to the sender: a connection
/// would stop at its first long packet.
#[test]
fn router_follows_link_mtu() {
    let Some(world) = World::new() else { return };
    let program = format!(
        "IMPORT 'library/elements/router.weft';
CREATE PORT left ON packet 'to_a';
CREATE PORT right ON packet 'to_b';
CREATE CHAIN there ON PORT left -> right AS router (own_ip = '10.77.0.3', errors_per_s = 100); END;
CREATE CHAIN back ON PORT right -> left AS router (own_ip = '10.77.0.3'); END;
INSERT INTO there.router.routes VALUES (1, '0.0.0.0/0', 0, 'right', '{b}', '{inner}');
INSERT INTO back.router.routes VALUES (1, '0.0.0.0/0', 0, 'left', '{a}', '{inner}');
",
        a = mac_of(&world.a, "a"),
        b = mac_of(&world.b, "b"),
        inner = mac_of(&world.middle, "to_b"),
    );
    run_in(&world.middle, || interface::set_mtu("to_b", 1400).expect("root may"));
    let folder = Folder::new();
    let node = world.run(&folder, &folder.write("network.weft", &program));
    let asked = "SELECT port, mtu FROM there.router.links ORDER BY port;";
    let links = world.query(&folder, &node, asked);
    assert!(links.contains("1500") && links.contains("1400"), "{links}");

    // Without DF: the router fragments the packet.
    let discover = |how: &str| {
        run_in(&world.a, || std::fs::write("/proc/sys/net/ipv4/ip_no_pmtu_disc", how).expect("root may"));
    };
    discover("1");
    let (a, b) = (udp(&world.a, ADDRESS_A, 0), udp(&world.b, ADDRESS_B, 0));
    let long = [7; 1_450];
    let mut buffer = [0; 2_000];
    a.send_to(&long, b.local_addr().expect("it is bound")).expect("it leaves");
    let (n, _) = b.recv_from(&mut buffer).expect("its fragments arrive");
    assert_eq!(buffer[..n], long);
    // With DF: the sender gets an error, and sends shorter packets.
    discover("0");
    assert_eq!(transfer(&world), (STREAM_BYTES, true));

    // Change the MTU of a device.
    run_in(&world.middle, || interface::set_mtu("to_b", 1300).expect("root may"));
    let until = Instant::now() + WAIT;
    while !world.query(&folder, &node, asked).contains("1300") {
        assert!(Instant::now() < until, "nobody saw that the MTU is another");
    }
    assert_eq!(transfer(&world), (STREAM_BYTES, true));
    // A router that an update adds knows the MTUs from the start.
    let other = program.replace("); END;", ") AS other; END;").replace(".router.", ".other.");
    world.apply(&folder, &node, &other);
    let links = world.query(&folder, &node, &asked.replace(".router.", ".other."));
    assert!(links.contains("1500") && links.contains("1300"), "{links}");
    assert_eq!(node.stop(), Some(0));
}

/// Hosts exchange merged packets of more than 64 KiB; each of them would be lost, and a connection would stop.
#[test]
fn packets_over_64_kib_cross_ports() {
    let Some(world) = World::new() else { return };
    let set = |end: &Namespace, name: &str| run_in(end, || interface::set_joined_max(name, 180_000));
    let can = [set(&world.a, "a"), set(&world.b, "b")].into_iter().find_map(Result::err);
    if let Some(error) = can {
        eprintln!("skipped: {error}");
        return;
    }
    let folder = Folder::new();
    let node = world.run(&folder, &folder.write("network.weft", NETWORK));
    assert_eq!(transfer(&world), (STREAM_BYTES, true));
    let status = world.status(&folder, &node);
    let ports = status["packets"]["ports"].as_array().expect("it is a list");
    assert!(ports.iter().all(|port| port["dropped"]["refused_in"].as_u64().unwrap_or(0) == 0), "{ports:?}");
    assert_eq!(node.stop(), Some(0));
}

/// Packets that an interface merges for the host would exceed the buffers of XDP, and be lost. An interface would stay
/// slow without its offloads after the node ends.
#[test]
fn xdp_port_restores_offloads() {
    let Some(world) = World::new() else { return };
    world.finish_checksums();
    let is_on = || run_in(&world.middle, || interface::has_feature("to_a", Feature::ReceiveMerging));
    run_in(&world.middle, || {
        interface::set_feature("to_a", Feature::ReceiveMerging, true).expect("root may");
    });
    assert_eq!(is_on(), Some(true));
    let folder = Folder::new();
    let node = world.run(&folder, &folder.write("network.weft", BY_XDP));
    assert_eq!(is_on(), Some(false));
    let (status, log) = node.stop_and_hear();
    assert!(status == Some(0) && log.contains("port `left`: `to_a` is an end of a pair"), "{log}");
    assert_eq!(is_on(), Some(true));
}

/// A program whose ports take the frames of their interfaces from the host.
const BY_XDP: &str = "CREATE PORT left ON xdp 'to_a';
CREATE PORT right ON xdp 'to_b';
CREATE CHAIN there ON PORT left -> right AS END;
CREATE CHAIN back ON PORT right -> left AS END;
";

/// If this failed, flows of all queues but the first would silently go to the host, past all chains.
#[test]
fn xdp_port_has_all_queues() {
    let Some(world) = World::bare() else { return };
    for (end, name, inner) in [(&world.a, "a", "to_a"), (&world.b, "b", "to_b")] {
        // Two queues each way, at both ends.
        let words = |name| [name, "numtxqueues", "2", "numrxqueues", "2"];
        let add = [&["link", "add"], &words(inner)[..], &["type", "veth", "peer", "name"], &words(name)];
        let made = run_in(&world.middle, || output(Command::new("ip").args(add.concat())));
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        run_in(&world.middle, || {
            interface::set_up(inner, true).expect("it is there");
            interface::move_to(name, &end.as_fd()).expect("root may");
        });
    }
    world.give_addresses();
    world.finish_checksums();
    for workers in ["1", "2"] {
        let folder = Folder::new();
        let node = world.run_on(&folder, &folder.write("network.weft", BY_XDP), workers);
        let senders: Vec<UdpSocket> = (0..FLOWS).map(|_| udp(&world.a, ADDRESS_A, 0)).collect();
        let to = udp(&world.b, ADDRESS_B, 0);
        await_neighbours(&senders[0], &to);
        send_rounds(&senders, &to);
        let (status, log) = node.stop_and_hear();
        assert!(status == Some(0) && !log.contains("queues"), "{log}");
    }
    // A port with fewer queues gets a warning.
    let folder = Folder::new();
    let fewer = BY_XDP.replace("'to_a'", "'to_a' WITH (queues = 1)");
    let node = world.run(&folder, &folder.write("network.weft", &fewer));
    let (_, log) = node.stop_and_hear();
    let warning = "port `left`: it has 1 of the 2 queues of `to_a`: frames that come in on the others \
                   go to the host, and no chain sees them; leave `queues` out, which opens all";
    assert!(log.contains(warning) && !log.contains("port `right`: it has"), "{log}");
}

/// If this failed, only a counter would show that long packets are lost.
#[test]
fn xdp_mtu_too_large_is_logged_once() {
    let Some(world) = World::new() else { return };
    world.finish_checksums();
    let set = |mtu: u16| {
        run_in(&world.a, || interface::set_mtu("a", mtu).expect("root may"));
        run_in(&world.middle, || interface::set_mtu("to_a", mtu).expect("root may"));
    };
    let long = "port `left`: the MTU of `to_a` is 9000, and the buffers of its XDP port are for one of 3818: \
                longer packets do not come in, and count as `overrun`; lower the MTU \
                (`ip link set to_a mtu 3818`), or take `packet` in place of `xdp`";
    // At the start.
    set(9000);
    let folder = Folder::new();
    let program = folder.write("network.weft", BY_XDP);
    let node = world.run(&folder, &program);
    let sender = run_in(&world.a, || PacketSocket::open("a", QueueId::default(), Options::default()));
    let (mut sender, mut pool) = (sender.expect("it is there"), Pool::new(PoolConfig::default()));
    let mut send = |bytes: usize| {
        let frame = [&[0xff; 12][..], &[0x88, 0xb5], &vec![7; bytes - 14]].concat();
        let mut frames = vec![pool.take_filled(&frame).expect("a buffer")];
        assert_eq!(sender.send(&mut pool, &mut frames).expect("it is up"), 1);
    };
    // The longest packet with two tags comes in, and a longer one is counted.
    let before = left_port_counts(&world, &folder, &node);
    send(3818 + 22);
    send(3818 + 23);
    let until = Instant::now() + WAIT;
    // Hosts send other frames meanwhile, but none as long.
    let is_counted = |(arrived, overrun)| arrived > before.0 && overrun == before.1 + 1;
    while !is_counted(left_port_counts(&world, &folder, &node)) {
        assert!(Instant::now() < until, "{:?}", left_port_counts(&world, &folder, &node));
    }
    std::thread::sleep(Duration::from_millis(700));
    let (_, log) = node.stop_and_hear();
    assert_eq!(log.matches(long).count(), 1, "{log}");
    // At run time.
    set(1500);
    let node = world.run(&folder, &program);
    set(3000);
    std::thread::sleep(Duration::from_millis(1_500));
    let (_, log) = node.stop_and_hear();
    let grown =
        "port `left`: the MTU of `to_a` is 3000, and the buffers of its XDP port are for one of 1770: ";
    assert_eq!(log.matches(grown).count(), 1, "{log}");
    assert!(log.contains("or start the node anew"), "{log}");
    // With longer buffers there is no loss.
    let node = world.run(&folder, &program);
    let (_, log) = node.stop_and_hear();
    assert!(!log.contains("MTU"), "{log}");
}

/// The packets that arrived at the port `left`, and those that were dropped there.
fn left_port_counts(world: &World, folder: &Folder, node: &Node) -> (u64, u64) {
    let status = world.status(folder, node);
    let ports = status["packets"]["ports"].as_array().expect("it is a list").clone();
    let left = ports.iter().find(|port| port["name"] == "left").expect("it is there");
    (left["received"].as_u64().unwrap_or(0), left["dropped"]["overrun"].as_u64().unwrap_or(0))
}
