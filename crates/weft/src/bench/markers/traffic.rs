//! Labelled flows, made from a seed.
//!
//! What is made has the marks that such traffic is told by, and noise that hides a part of them. None of it is a
//! capture: accuracies say how much a marker loses against all that there is to see, and not how good a detector is
//! on a network.

use weft_core::dice::Dice;

/// A packet of a flow.
#[derive(Clone, Copy, Debug)]
pub(super) struct Packet {
    /// Since the packet before; 0 for the first.
    pub(super) gap_us: u64,
    /// The length of the IP packet.
    pub(super) bytes: u16,
}

/// A flow, and what it is.
#[derive(Clone, Debug)]
pub(super) struct Flow {
    /// Which class, from 0.
    pub(super) class: u8,
    /// In order.
    pub(super) packets: Vec<Packet>,
}

/// Video calls, every second of which carries something else in its pictures.
///
/// A call sends an Opus packet every 20 ms and pictures at 25 a second, cut into packets of equal length as WebRTC
/// does. A tunnel (DeltaShaper, Facet) puts its own pictures into the call: they change at a lower rate, so some are
/// larger and those between smaller, and their sizes vary less than those of a face in a room. Calls differ in rate
/// and in liveliness.
pub(super) fn covert_channel(n_each: usize, dice: &mut Dice) -> Vec<Flow> {
    let flows = (0..2 * n_each).map(|at| {
        let class = (at % 2) as u8;
        let base = 2400.0 + 1000.0 * unit(dice);
        let lively = 0.08 + 0.17 * unit(dice);
        // How much of the picture carries data: the less, the harder it is to see.
        let share = if class == 1 { 0.55 + 0.40 * unit(dice) } else { 0.0 };
        let period = 2 + dice.below(4);
        let mut mood = 0.0;
        let mut packets = Vec::new();
        for picture in 0..150 {
            for _ in 0..2 {
                packets.push(Packet {
                    gap_us: 18_000 + dice.below(4000) as u64,
                    bytes: around(dice, 118.0, 16.0, 72, 220),
                });
            }
            mood = 0.8 * mood + lively * normal(dice);
            let own = base * (1.0 + mood).max(0.15);
            let payload = if picture % period == 0 { 1.9 * base } else { 0.45 * base };
            let bytes = (1.0 - share) * own + share * payload * (1.0 + 0.05 * normal(dice));
            let n = (bytes / 1150.0).ceil().max(1.0);
            for part in 0..n as usize {
                let each = around(dice, bytes / n + 40.0, 2.0, 90, 1250);
                packets.push(Packet {
                    gap_us: if part == 0 { 1500 } else { 150 + dice.below(300) as u64 },
                    bytes: each,
                });
            }
        }
        Flow { class, packets }
    });
    flows.collect()
}

/// Peers that share files, and bots that keep in touch with theirs.
///
/// File sharing sends blocks in full packets and short requests, milliseconds apart; many of its flows are only talk
/// of the distributed hash table, which is what bots look like. Bots (Storm, Waledac) keep in touch by messages of
/// few lengths at intervals that their authors wrote down, with some jitter.
pub(super) fn botnet(n_each: usize, dice: &mut Dice) -> Vec<Flow> {
    let flows = (0..2 * n_each).map(|at| {
        let class = (at % 2) as u8;
        let n = 12 + dice.below(40);
        let packets = match class {
            0 if dice.percent(45) => shared_blocks(n, dice),
            0 => table_talk(n, dice),
            _ => bot_talk(n, dice),
        };
        Flow { class, packets }
    });
    flows.collect()
}

fn shared_blocks(n: usize, dice: &mut Dice) -> Vec<Packet> {
    let packet = |_| {
        let bytes = match dice.below(10) {
            0..5 => 1380 + dice.below(3) as u16 * 30,
            5..8 => 57 + dice.below(12) as u16,
            _ => 90 + dice.below(900) as u16,
        };
        let gap_us = if dice.percent(85) {
            300 + dice.below(40_000) as u64
        } else {
            200_000 + dice.below(9_000_000) as u64
        };
        Packet { gap_us, bytes }
    };
    (0..n).map(packet).collect()
}

fn table_talk(n: usize, dice: &mut Dice) -> Vec<Packet> {
    let packet = |_| {
        // A question is short; an answer has up to eight nodes of 26 bytes.
        let bytes = match dice.below(3) {
            0 => 125 + dice.below(8) as u16,
            1 => 80 + dice.below(40) as u16,
            _ => 96 + 26 * dice.below(9) as u16 + dice.below(6) as u16,
        };
        let gap_us =
            if dice.percent(50) { 30_000 + dice.below(400_000) as u64 } else { (waits(dice) * 15e6) as u64 };
        Packet { gap_us, bytes }
    };
    (0..n).map(packet).collect()
}

fn bot_talk(n: usize, dice: &mut Dice) -> Vec<Packet> {
    let family = dice.below(3);
    let lengths: &[u16] = [&[53, 81, 110][..], &[103, 129, 230], &[96, 122, 148, 200]][family];
    let period = [10e6, 30e6, 20e6][family] * (0.9 + 0.2 * unit(dice));
    let packet = |_| {
        let bytes = if dice.percent(75) {
            dice.pick(lengths) + dice.below(3) as u16
        } else {
            60 + dice.below(300) as u16
        };
        let gap_us = match dice.below(4) {
            // The answer to a message follows it.
            0 | 1 => 40_000 + dice.below(300_000) as u64,
            2 => (period * (1.0 + 0.08 * normal(dice)).max(0.2)) as u64,
            _ => (waits(dice) * 15e6) as u64,
        };
        Packet { gap_us, bytes }
    };
    (0..n).map(packet).collect()
}

/// Visits of websites through a tunnel: a class is a site.
///
/// A page is a set of objects; each comes in full packets and a rest, which is what tells sites apart. The tunnel
/// (OpenSSH) pads to 16 bytes. Some objects are in the cache of a visitor, some are new with every visit, and sites
/// have objects in common.
pub(super) fn websites(n_sites: usize, n_each: usize, dice: &mut Dice) -> Vec<Flow> {
    let common: Vec<u32> = (0..12).map(|_| object(dice)).collect();
    let site = |dice: &mut Dice| {
        let n = 10 + dice.below(25);
        (0..n).map(|_| if dice.percent(25) { dice.pick(&common) } else { object(dice) }).collect::<Vec<u32>>()
    };
    let sites: Vec<Vec<u32>> = (0..n_sites).map(|_| site(dice)).collect();
    let mut flows = Vec::new();
    for _ in 0..n_each {
        for (class, objects) in sites.iter().enumerate() {
            flows.push(Flow { class: class as u8, packets: visit(objects, dice) });
        }
    }
    flows
}

/// Bytes of an object: most are small, few are large.
fn object(dice: &mut Dice) -> u32 {
    (300.0 + 2500.0 * waits(dice) * waits(dice) * 2.0) as u32
}

fn visit(objects: &[u32], dice: &mut Dice) -> Vec<Packet> {
    let mut packets = Vec::new();
    let padded = |bytes: u32| (52 + bytes.next_multiple_of(16) + 36).min(1500) as u16;
    for bytes in objects {
        if dice.percent(12) {
            continue;
        }
        let is_new = dice.percent(6);
        let bytes = if is_new { object(dice) } else { bytes + dice.below(10) as u32 };
        packets.push(Packet {
            gap_us: 20_000 + dice.below(60_000) as u64,
            bytes: padded(120 + dice.below(160) as u32),
        });
        let mut rest = bytes.min(30_000);
        while rest > 0 {
            let part = rest.min(1408);
            packets.push(Packet { gap_us: 100 + dice.below(900) as u64, bytes: padded(part) });
            rest -= part;
        }
        if dice.percent(50) {
            packets.push(Packet { gap_us: 400, bytes: 52 });
        }
    }
    packets
}

/// Uniform in [0, 1).
fn unit(dice: &mut Dice) -> f64 {
    (dice.bits() >> 11) as f64 / (1_u64 << 53) as f64
}

/// About normal: the sum of twelve uniform draws.
fn normal(dice: &mut Dice) -> f64 {
    (0..12).map(|_| unit(dice)).sum::<f64>() - 6.0
}

/// Exponential with mean 1.
fn waits(dice: &mut Dice) -> f64 {
    -(1.0 - unit(dice)).ln()
}

fn around(dice: &mut Dice, mean: f64, deviation: f64, least: u16, most: u16) -> u16 {
    ((mean + deviation * normal(dice)) as u16).clamp(least, most)
}
