//! Sends traffic from one end to the other, and measures its rate and cost.

use std::fs;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream, UdpSocket};
use std::time::{Duration, Instant};

use weft_core::frame::build::ethernet;
use weft_core::frame::{BATCH_MAX, Pool, PoolConfig};
use weft_io::packet::afpacket::{Options, PacketSocket};
use weft_io::packet::{Device as _, OpenError, QueueId};

use super::world::{End, World};
use crate::report::median;

/// The port that discards datagrams.
const DISCARD: u16 = 9;
/// Bytes of a packet in the flood, with the frame checksum that devices hide.
const FRAME_BYTES: usize = 60;
/// Flows of the flood.
const FLOWS: u16 = 64;
/// After this time no more packets are expected.
const WAIT: Duration = Duration::from_secs(3);
/// Round trips until addresses and tables are known.
const FIRST_PINGS: usize = 20;

/// The result of a flood.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flood {
    /// Packets that arrived at both ends, per second.
    pub(super) packets_per_s: f64,
    /// CPU time of the machine for each packet.
    pub(super) machine_us: f64,
    /// CPU time of the node for each packet.
    pub(super) node_us: Option<f64>,
}

/// Checks that traffic arrives.
///
/// # Errors
/// It does not.
pub(crate) fn check(world: &World) -> Result<(), String> {
    ping(world, FIRST_PINGS).map(drop)
}

/// The median round trip of a datagram, in microseconds.
///
/// # Errors
/// A datagram does not come back.
pub(super) fn ping(world: &World, rounds: usize) -> Result<f64, String> {
    let [a, b] = &world.ends;
    let (client, server) = (socket(a, 0)?, socket(b, 0)?);
    let to = server.local_addr().map_err(text_of)?;
    let samples = std::thread::scope(|scope| {
        let echo = scope.spawn(|| -> io::Result<()> {
            let mut buffer = [0; 64];
            for _ in 0..rounds {
                let (n, from) = server.recv_from(&mut buffer)?;
                server.send_to(&buffer[..n], from)?;
            }
            Ok(())
        });
        let mut samples = Vec::with_capacity(rounds);
        let mut buffer = [0; 64];
        for _ in 0..rounds {
            let began = Instant::now();
            client.send_to(&buffer[..18], to).map_err(text_of)?;
            client.recv(&mut buffer).map_err(|error| format!("a datagram does not come back: {error}"))?;
            samples.push(began.elapsed().as_secs_f64() * 1e6);
        }
        echo.join().map_err(|_| "the echo ended".to_owned())?.map_err(text_of)?;
        Ok::<_, String>(samples)
    })?;
    Ok(median(&samples))
}

/// Gbit/s of one TCP connection.
///
/// # Errors
/// It cannot be made, or stalls.
pub(super) fn transfer(world: &World, time: Duration) -> Result<f64, String> {
    let [a, b] = &world.ends;
    let listener = run_in_end(b, || TcpListener::bind((b.address, 0)))?;
    let to = listener.local_addr().map_err(text_of)?;
    // Connect before starting the receiver: without a connection it would wait for ever.
    let mut stream = run_in_end(a, || TcpStream::connect_timeout(&to, WAIT))?;
    std::thread::scope(|scope| {
        let receiver = scope.spawn(move || receive(&listener));
        stream.set_write_timeout(Some(WAIT)).map_err(text_of)?;
        let (buffer, end) = (vec![0x5a; 256 << 10], Instant::now() + time);
        while Instant::now() < end {
            stream.write_all(&buffer).map_err(|error| format!("a connection stalls: {error}"))?;
        }
        drop(stream);
        let received = receiver.join().map_err(|_| "the receiver ended".to_owned())?;
        received.map_err(|error| format!("a connection stalls: {error}"))
    })
}

/// Accepts a connection and reads it to its end. Returns Gbit/s.
fn receive(listener: &TcpListener) -> io::Result<f64> {
    let (mut stream, _) = listener.accept()?;
    stream.set_read_timeout(Some(WAIT))?;
    let mut buffer = vec![0; 256 << 10];
    let mut n = stream.read(&mut buffer)?;
    let (began, mut bytes) = (Instant::now(), 0);
    while n > 0 {
        n = stream.read(&mut buffer)?;
        bytes += n;
    }
    Ok(bytes as f64 * 8.0 / began.elapsed().as_secs_f64() / 1e9)
}

/// Sends small packets at the maximum rate.
///
/// # Errors
/// They cannot be sent, or none arrives.
pub(super) fn flood(world: &World, time: Duration) -> Result<Flood, String> {
    let [a, b] = &world.ends;
    let ways = if world.is_both_ways { vec![(a, b), (b, a)] } else { vec![(a, b)] };
    let sinks: Result<Vec<UdpSocket>, String> = ways.iter().map(|(_, to)| socket(to, DISCARD)).collect();
    let arrived = || ways.iter().map(|(_, to)| received(to)).sum::<Result<u64, String>>();
    let node_s = || world.node.as_ref().map(|node| node.cpu_s());
    let (count, cpu, node, began) = (arrived()?, machine_s()?, node_s(), Instant::now());
    std::thread::scope(|scope| {
        let senders: Vec<_> =
            ways.iter().map(|(from, to)| scope.spawn(move || send(from, to, time))).collect();
        senders.into_iter().try_for_each(|sender| sender.join().map_err(|_| "the sender ended".to_owned())?)
    })?;
    let took = began.elapsed().as_secs_f64();
    let n = (arrived()? - count) as f64;
    drop(sinks?);
    if n == 0.0 {
        return Err("nothing of a flood arrives".to_owned());
    }
    Ok(Flood {
        packets_per_s: n / took,
        machine_us: (machine_s()? - cpu) * 1e6 / n,
        node_us: node_s().zip(node).map(|(after, before)| (after - before) * 1e6 / n),
    })
}

/// Sends from one end to the other for a while.
fn send(from: &End, to: &End, time: Duration) -> Result<(), String> {
    let next_hop = next_hop(from, to.address)?;
    let mut socket =
        from.run_in(|| PacketSocket::open(from.device, QueueId::default(), Options::default()))?;
    let mut pool = Pool::new(PoolConfig { small: BATCH_MAX as u32 * 2, large: 1 });
    let packets: Vec<Vec<u8>> =
        (0..FLOWS).map(|flow| packet(next_hop, from.address, to.address, 1024 + flow)).collect();
    let mut packets = packets.iter().cycle();
    let (mut frames, end) = (Vec::new(), Instant::now() + time);
    while Instant::now() < end {
        while frames.len() < BATCH_MAX {
            let packet = packets.next().expect("there are some");
            frames.push(pool.take_filled(packet).ok_or("no buffer is free")?);
        }
        socket.send(&mut pool, &mut frames).map_err(text_of)?;
    }
    frames.drain(..).for_each(|frame| pool.give(frame));
    Ok(())
}

/// A UDP packet with its Ethernet header.
fn packet(next_hop: [u8; 6], from: Ipv4Addr, to: Ipv4Addr, port: u16) -> Vec<u8> {
    let ip = ethernet().macs(next_hop, [2, 0, 0, 0, 0, 1]).ipv4(from.octets(), to.octets());
    // A UDP checksum of zero is none.
    ip.udp(port, DISCARD).checksum(0).payload([0; FRAME_BYTES - 42]).build()
}

/// The Ethernet address of the next hop to another end; earlier traffic has resolved it.
fn next_hop(from: &End, to: Ipv4Addr) -> Result<[u8; 6], String> {
    let table = run_in_end(from, || fs::read_to_string("/proc/thread-self/net/arp"))?;
    let line = table.lines().find(|line| line.split_whitespace().next() == Some(&to.to_string()));
    let address = line.and_then(|line| line.split_whitespace().nth(3)).ok_or("no neighbour answers")?;
    let bytes: Vec<u8> = address.split(':').filter_map(|byte| u8::from_str_radix(byte, 16).ok()).collect();
    bytes.try_into().map_err(|_| format!("`{address}` is no Ethernet address"))
}

/// Packets that have arrived at an end, by the counter of its device.
fn received(end: &End) -> Result<u64, String> {
    let table = run_in_end(end, || fs::read_to_string("/proc/thread-self/net/dev"))?;
    let mut lines = table.lines().filter_map(|line| line.split_once(':'));
    let (_, counts) = lines.find(|(name, _)| name.trim() == end.device).ok_or("the device is gone")?;
    let count = counts.split_whitespace().nth(1).and_then(|n| n.parse().ok());
    count.ok_or_else(|| "the device does not count".to_owned())
}

/// CPU time of all cores in seconds: proc_stat(5), in ticks of 10 ms.
fn machine_s() -> Result<f64, String> {
    let text = fs::read_to_string("/proc/stat").map_err(text_of)?;
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
    // user, nice, system, idle, iowait, interrupts, soft interrupts; guests are part of the first.
    match ticks[..] {
        [user, nice, system, _, _, irq, softirq, ..] => {
            Ok((user + nice + system + irq + softirq) as f64 / 100.0)
        }
        _ => Err("/proc/stat has no times".to_owned()),
    }
}

fn socket(end: &End, port: u16) -> Result<UdpSocket, String> {
    let socket = run_in_end(end, || UdpSocket::bind((end.address, port)))?;
    socket.set_read_timeout(Some(WAIT)).map_err(text_of)?;
    Ok(socket)
}

/// Runs `work` in the network namespace of an end.
fn run_in_end<R: Send>(end: &End, work: impl FnOnce() -> io::Result<R> + Send) -> Result<R, String> {
    let named = |error: io::Error| OpenError {
        name: end.device.to_owned(),
        doing: "be used",
        help: (error.kind() == ErrorKind::PermissionDenied).then_some("this needs root"),
        error,
    };
    end.run_in(|| work().map_err(named))
}

fn text_of(error: io::Error) -> String {
    error.to_string()
}
