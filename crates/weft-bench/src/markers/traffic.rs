//! Generates labelled flows from a seed, for the markers benchmark.
//!
//! The generated traffic has the features by which such traffic is recognised, and noise that hides a part of them. It
//! is no capture: accuracies show how much a marker loses against all the data, and not how good a detector is on a
//! network.

use weft_core::rng::Rng;

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Time since the previous packet; 0 for the first.
    pub(super) gap_us: u64,
    /// The length of the IP packet.
    pub(super) bytes: u16,
}

/// A flow, and its class.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// The class, from 0.
    pub(super) class: u8,
    /// In order.
    pub(super) packets: Vec<Packet>,
}

/// Video calls, of which half carry hidden data in their pictures.
///
/// A call sends an Opus packet every 20 ms, and 25 pictures a second, cut into packets of equal length as in WebRTC. A
/// tunnel (DeltaShaper, Facet) puts its own pictures into the call. They change less often, so some are larger and the
/// others smaller, and their sizes vary less than those of a face in a room. Calls differ in rate and in liveliness.
pub(super) fn covert_channel(n_each: usize, rng: &mut Rng) -> Vec<Flow> {
    let flows = (0..2 * n_each).map(|at| {
        let class = (at % 2) as u8;
        let base = 2400.0 + 1000.0 * unit(rng);
        let lively = 0.08 + 0.17 * unit(rng);
        // The share of the picture that carries data: a smaller share is harder to detect.
        let share = if class == 1 { 0.55 + 0.40 * unit(rng) } else { 0.0 };
        let period = 2 + rng.below(4);
        let mut mood = 0.0;
        let mut packets = Vec::new();
        for picture in 0..150 {
            for _ in 0..2 {
                packets.push(Packet {
                    gap_us: 18_000 + rng.below(4000) as u64,
                    bytes: around(rng, 118.0, 16.0, 72, 220),
                });
            }
            mood = 0.8 * mood + lively * normal(rng);
            let own = base * (1.0 + mood).max(0.15);
            let payload = if picture % period == 0 { 1.9 * base } else { 0.45 * base };
            let bytes = (1.0 - share) * own + share * payload * (1.0 + 0.05 * normal(rng));
            let n = (bytes / 1150.0).ceil().max(1.0);
            for part in 0..n as usize {
                let each = around(rng, bytes / n + 40.0, 2.0, 90, 1250);
                packets.push(Packet {
                    gap_us: if part == 0 { 1500 } else { 150 + rng.below(300) as u64 },
                    bytes: each,
                });
            }
        }
        Flow { class, packets }
    });
    flows.collect()
}

/// File-sharing peers, and bots that keep in touch with their peers.
///
/// File sharing sends blocks in full packets, and short requests, milliseconds apart. Many of its flows are only
/// messages of the distributed hash table, which resemble those of bots. Bots (Storm, Waledac) send messages of few
/// lengths at programmed intervals, with some jitter.
pub(super) fn botnet(n_each: usize, rng: &mut Rng) -> Vec<Flow> {
    let flows = (0..2 * n_each).map(|at| {
        let class = (at % 2) as u8;
        let n = 12 + rng.below(40);
        let packets = match class {
            0 if rng.percent(45) => shared_blocks(n, rng),
            0 => table_talk(n, rng),
            _ => bot_talk(n, rng),
        };
        Flow { class, packets }
    });
    flows.collect()
}

fn shared_blocks(n: usize, rng: &mut Rng) -> Vec<Packet> {
    let packet = |_| {
        let bytes = match rng.below(10) {
            0..5 => 1380 + rng.below(3) as u16 * 30,
            5..8 => 57 + rng.below(12) as u16,
            _ => 90 + rng.below(900) as u16,
        };
        let gap_us = if rng.percent(85) {
            300 + rng.below(40_000) as u64
        } else {
            200_000 + rng.below(9_000_000) as u64
        };
        Packet { gap_us, bytes }
    };
    (0..n).map(packet).collect()
}

fn table_talk(n: usize, rng: &mut Rng) -> Vec<Packet> {
    let packet = |_| {
        // A request is short; an answer has up to eight nodes of 26 bytes.
        let bytes = match rng.below(3) {
            0 => 125 + rng.below(8) as u16,
            1 => 80 + rng.below(40) as u16,
            _ => 96 + 26 * rng.below(9) as u16 + rng.below(6) as u16,
        };
        let gap_us =
            if rng.percent(50) { 30_000 + rng.below(400_000) as u64 } else { (waits(rng) * 15e6) as u64 };
        Packet { gap_us, bytes }
    };
    (0..n).map(packet).collect()
}

fn bot_talk(n: usize, rng: &mut Rng) -> Vec<Packet> {
    let family = rng.below(3);
    let lengths: &[u16] = [&[53, 81, 110][..], &[103, 129, 230], &[96, 122, 148, 200]][family];
    let period = [10e6, 30e6, 20e6][family] * (0.9 + 0.2 * unit(rng));
    let packet = |_| {
        let bytes = if rng.percent(75) {
            rng.pick(lengths) + rng.below(3) as u16
        } else {
            60 + rng.below(300) as u16
        };
        let gap_us = match rng.below(4) {
            // An answer follows its message.
            0 | 1 => 40_000 + rng.below(300_000) as u64,
            2 => (period * (1.0 + 0.08 * normal(rng)).max(0.2)) as u64,
            _ => (waits(rng) * 15e6) as u64,
        };
        Packet { gap_us, bytes }
    };
    (0..n).map(packet).collect()
}

/// Visits of websites through a tunnel; each class is a site.
///
/// A page is a set of objects; each is sent in full packets and a rest, by which sites can be recognised. The tunnel
/// (OpenSSH) pads to 16 bytes. Some objects are in a visitor's cache, some are new with every visit, and sites share
/// objects.
pub(super) fn websites(n_sites: usize, n_each: usize, rng: &mut Rng) -> Vec<Flow> {
    let common: Vec<u32> = (0..12).map(|_| object(rng)).collect();
    let site = |rng: &mut Rng| {
        let n = 10 + rng.below(25);
        (0..n).map(|_| if rng.percent(25) { rng.pick(&common) } else { object(rng) }).collect::<Vec<u32>>()
    };
    let sites: Vec<Vec<u32>> = (0..n_sites).map(|_| site(rng)).collect();
    let mut flows = Vec::new();
    for _ in 0..n_each {
        for (class, objects) in sites.iter().enumerate() {
            flows.push(Flow { class: class as u8, packets: visit(objects, rng) });
        }
    }
    flows
}

/// Bytes of an object: most are small, few are large.
fn object(rng: &mut Rng) -> u32 {
    (300.0 + 2500.0 * waits(rng) * waits(rng) * 2.0) as u32
}

/// Generates the packets of a visit: a request and the padded parts of its answer for most of the objects.
fn visit(objects: &[u32], rng: &mut Rng) -> Vec<Packet> {
    let mut packets = Vec::new();
    let padded = |bytes: u32| (52 + bytes.next_multiple_of(16) + 36).min(1500) as u16;
    for bytes in objects {
        if rng.percent(12) {
            continue;
        }
        let is_new = rng.percent(6);
        let bytes = if is_new { object(rng) } else { bytes + rng.below(10) as u32 };
        packets.push(Packet {
            gap_us: 20_000 + rng.below(60_000) as u64,
            bytes: padded(120 + rng.below(160) as u32),
        });
        let mut rest = bytes.min(30_000);
        while rest > 0 {
            let part = rest.min(1408);
            packets.push(Packet { gap_us: 100 + rng.below(900) as u64, bytes: padded(part) });
            rest -= part;
        }
        if rng.percent(50) {
            packets.push(Packet { gap_us: 400, bytes: 52 });
        }
    }
    packets
}

/// Uniform in [0, 1).
fn unit(rng: &mut Rng) -> f64 {
    (rng.bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// Roughly normal: the sum of twelve uniform draws.
fn normal(rng: &mut Rng) -> f64 {
    (0..12).map(|_| unit(rng)).sum::<f64>() - 6.0
}

/// Exponential with mean 1.
fn waits(rng: &mut Rng) -> f64 {
    -(1.0 - unit(rng)).ln()
}

fn around(rng: &mut Rng, mean: f64, deviation: f64, least: u16, most: u16) -> u16 {
    ((mean + deviation * normal(rng)) as u16).clamp(least, most)
}
