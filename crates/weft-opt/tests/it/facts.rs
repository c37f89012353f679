//! Properties of whole frames by the library's wire formats: tunnels, ICMP errors, checksums.

use std::sync::LazyLock;

use weft_core::checksum::{fold, sum};
use weft_core::frame::build::{self, FrameBuilder, set_ipv4_checksum};
use weft_core::frame::{Checksum, Offload};
use weft_core::rng::Rng;
use weft_core::wire::{Formats, ProtocolId};

use crate::schema::root;
use crate::wireshark::protocols;

const ICMP: u8 = 1;
const TCP: u8 = 6;
const UDP: u8 = 17;
const ICMPV6: u8 = 58;
const SCTP: u8 = 132;

/// For frames of Ethernet, and for IP packets without a link header.
static FORMATS: LazyLock<[Formats; 2]> = LazyLock::new(|| {
    let protocols = protocols(&root().join("library/protocols/all.weft"));
    let of = |names: &[&str]| {
        let id = |name: &&str| {
            protocols
                .iter()
                .position(|protocol| protocol.name == **name)
                .expect("the library has this protocol")
        };
        let roots = names.iter().map(|name| ProtocolId(id(name) as u16)).collect();
        Formats { protocols: protocols.clone(), roots }
    };
    [of(&["ethernet"]), of(&["ipv4", "ipv6"])]
});

fn formats(is_ip: bool) -> &'static Formats {
    &FORMATS[usize::from(is_ip)]
}

fn is_icmp_error(frame: &[u8], is_ip: bool) -> bool {
    formats(is_ip).is_error(frame)
}

fn is_intact(frame: &[u8], offload: &Offload, is_ip: bool) -> bool {
    formats(is_ip).is_intact(frame, offload)
}

fn tunnel_depth(frame: &[u8], is_ip: bool) -> u64 {
    formats(is_ip).tunnel_depth(frame)
}

/// CRC32c (RFC 9260 appendix A), bit by bit.
fn crc32c(bytes: &[u8]) -> u32 {
    let bit = |crc: u32| (crc >> 1) ^ (0x82f6_3b78 & (crc & 1).wrapping_neg());
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), |crc, _| bit(crc)))
}

fn v4(protocol: u8, carried: &[u8]) -> Vec<u8> {
    build::ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(7, 0).protocol(protocol).payload(carried).build()
}

/// A frame with a fragment of IPv4.
fn fragment4(protocol: u8, word: u16, carried: &[u8]) -> Vec<u8> {
    let packet = build::ethernet().macs([2; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(7, word);
    packet.protocol(protocol).payload(carried).build()
}

fn v6(protocol: u8, carried: &[u8]) -> Vec<u8> {
    build::ipv6([0x20; 16], [0x20; 16]).protocol(protocol).payload(carried).build()
}

fn udp(port: u16, carried: &[u8]) -> Vec<u8> {
    FrameBuilder::default().udp(9, port).checksum(0).payload(carried).build()
}

/// An Ethernet frame with an IPv4 packet.
fn ethernet(packet: &[u8]) -> Vec<u8> {
    build::ethernet().macs([2; 6], [2; 6]).ethertype(0x0800).payload(packet).build()
}

/// Packets in a tunnel loop grow each time; a wrong count would drop packets without a loop.
#[test]
fn every_tunnel_kind_counts_once() {
    let plain = v4(17, &udp(53, b"x"));
    let frame = ethernet(&plain);
    // A sequence number and an extension header of 4 bytes.
    let length = 8 + plain.len() as u8;
    let gtpu = [&[0x34, 255, 0, length, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0][..], &plain].concat();
    let authentication = [4, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
    let all: [(&str, Vec<u8>); 11] = [
        ("behind authentication", v4(51, &[&authentication[..], &plain].concat())),
        ("IPv4 in IPv4", v4(4, &plain)),
        ("IPv4 in IPv6", v6(4, &plain)),
        ("IPv6 in IPv4", v4(41, &v6(59, &[]))),
        ("behind an option", v6(60, &[&[4, 0, 4, 1, 4, 1, 1, 0][..], &plain].concat())),
        ("GRE", v4(47, &[&[0, 0, 8, 0][..], &plain].concat())),
        ("GRE with a key", v4(47, &[&[0x20, 0, 8, 0, 0, 0, 0, 7][..], &plain].concat())),
        ("Ethernet in GRE", v4(47, &[&[0, 0, 0x65, 0x58][..], &frame].concat())),
        ("VXLAN", v4(17, &udp(4789, &[&[8, 0, 0, 0, 0, 0, 7, 0][..], &frame].concat()))),
        ("Geneve", v4(17, &udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 0][..], &frame].concat()))),
        ("GTP-U with an extension", v6(17, &udp(2152, &gtpu))),
    ];
    assert_eq!((tunnel_depth(&plain, true), tunnel_depth(&frame, false)), (0, 0));
    for (name, packet) in &all {
        assert_eq!(tunnel_depth(packet, true), 1, "{name}");
        let around = v4(if packet[0] >> 4 == 4 { 4 } else { 41 }, packet);
        assert_eq!(tunnel_depth(&ethernet(&around), false), 2, "{name} in IPv4");
        (0..packet.len()).for_each(|cut| _ = tunnel_depth(&packet[..cut], true));
    }
    let deep = (0..60).fold(plain.clone(), |packet, _| v4(4, &packet));
    assert_eq!(tunnel_depth(&deep, true), 60);
    // Not carried: a later fragment, and an echo of GTP-U.
    let mut later = v4(4, &plain);
    later[7] = 9;
    set_ipv4_checksum(&mut later);
    assert_eq!(tunnel_depth(&later, true), 0);
    assert_eq!(
        tunnel_depth(&v4(17, &udp(2152, &[&[0x30, 1, 0, 0, 0, 0, 0, 0][..], &plain].concat())), true),
        0
    );
    let mut rng = Rng::from_seed(1);
    for _ in 0..2_000 {
        let mut packet = all[rng.below(all.len())].1.clone();
        let at = rng.below(packet.len());
        packet[at] = rng.bits() as u8;
        assert!(tunnel_depth(&packet, true) <= 3);
    }
}

#[test]
fn icmp_errors_are_known_by_type() {
    // Otherwise errors would be reported about errors, endlessly, or queries would get no errors.
    let message = |kind: u8| [&[kind][..], &[0; 23]].concat();
    for kind in 0..=255 {
        let is_question = matches!(kind, 0 | 8 | 13..=18);
        assert_eq!(is_icmp_error(&fragment4(1, 0, &message(kind)), false), !is_question, "type {kind}");
        assert_eq!(is_icmp_error(&v6(58, &message(kind)), true), kind < 128, "type {kind} of IPv6");
    }
    assert!(!is_icmp_error(&fragment4(17, 0, &[3]), false));
    assert!(!is_icmp_error(&v6(17, &[3]), true));
    assert!(!is_icmp_error(&v6(1, &[3]), true));
}

#[test]
fn icmp_without_type_is_an_error() {
    // The padding of a short frame does not count: a type of 0 would be a reply.
    let mut padded = fragment4(1, 0, &[8, 0, 0, 0]);
    padded.resize(60, 0);
    assert!(is_icmp_error(&padded, false));
    assert!(is_icmp_error(&v6(58, &[]), true));
    for cut in 0..60 {
        // It must not panic on any bytes.
        is_icmp_error(&padded[..cut], false);
        is_icmp_error(&v6(0, &[58, 0, 1, 4, 0, 0, 0, 0, 1])[..cut.min(49)], true);
    }
}

#[test]
fn icmp_errors_behind_headers_are_found() {
    let options = [58, 0, 1, 4, 0, 0, 0, 0];
    let message = |kind: u8| [kind, 0, 0, 0, 0, 0, 0, 0];
    assert!(is_icmp_error(&v6(0, &[&options[..], &message(1)].concat()), true));
    assert!(!is_icmp_error(&v6(60, &[&options[..], &message(128)].concat()), true));
    let fragment = |at: u8, kind: u8| v6(44, &[&[58, 0, 0, at, 0, 0, 0, 7][..], &message(kind)].concat());
    assert!(is_icmp_error(&fragment(1, 1), true));
    assert!(!is_icmp_error(&fragment(1, 128), true));
    let proof = |kind: u8| v6(51, &[&[58, 1][..], &[0; 10], &message(kind)].concat());
    assert!(is_icmp_error(&proof(1), true));
    assert!(!is_icmp_error(&proof(128), true));
    // A later fragment begins anywhere.
    assert!(!is_icmp_error(&fragment(8, 1), true));
    assert!(is_icmp_error(&fragment4(1, 0x2000, &message(3)), false));
    assert!(!is_icmp_error(&fragment4(1, 0x2001, &message(3)), false));
}

/// An IP packet with the right checksum, which is at `at` after the header.
fn packet(is_v4: bool, protocol: u8, at: usize, body: &[u8]) -> Vec<u8> {
    let mut packet = if is_v4 { v4(protocol, body) } else { v6(protocol, body) };
    let (header, addresses) = if is_v4 { (20, 12..20) } else { (40, 8..40) };
    let end = header + at + if protocol == SCTP { 4 } else { 2 };
    packet[header + at..end].fill(0);
    if protocol == SCTP {
        let crc = crc32c(&packet[header..]);
        packet[header + at..end].copy_from_slice(&crc.to_le_bytes());
        return packet;
    }
    let pseudo = [&packet[addresses], &[0, protocol, 0, body.len() as u8]].concat();
    let pseudo = if protocol == ICMP { Vec::new() } else { pseudo };
    let checksum = !fold(sum(&[&pseudo[..], &packet[header..]].concat()));
    let checksum = if protocol == UDP && checksum == 0 { 0xffff } else { checksum };
    packet[header + at..end].copy_from_slice(&checksum.to_be_bytes());
    packet
}

/// A check that misses damage is useless, and one with false positives breaks connections.
#[test]
fn damage_is_found_everywhere() {
    let mut rng = Rng::from_seed(3);
    for nth in 0..2_000 {
        let is_v4 = nth % 2 == 0;
        let all = [(TCP, 16, 20), (UDP, 6, 8), (if is_v4 { ICMP } else { ICMPV6 }, 2, 8), (SCTP, 8, 12)];
        let (protocol, at, header) = rng.pick(&all);
        let mut body: Vec<u8> = (0..header + rng.below(20)).map(|_| rng.bits() as u8).collect();
        match protocol {
            TCP => body[12] = 0x50,
            ICMPV6 => body[0] = 128,
            _ => {}
        }
        if protocol == UDP {
            let length = body.len() as u16;
            body[4..6].copy_from_slice(&length.to_be_bytes());
        }
        let mut packet = packet(is_v4, protocol, at, &body);
        let ends = |packet: &[u8], offload: &Offload| {
            let framed = [&[0; 12][..], if is_v4 { &[8, 0] } else { &[0x86, 0xdd] }, packet].concat();
            // Link padding does not belong to the packet.
            let padded = [&framed[..], &[7; 9]].concat();
            let ends = is_intact(packet, offload, true);
            assert_eq!(
                (ends, ends),
                (is_intact(&framed, offload, false), is_intact(&padded, offload, false))
            );
            ends
        };
        assert!(ends(&packet, &Offload::NONE), "{packet:02x?}");
        let begin = if is_v4 { 20 } else { 40 };
        let at = begin + rng.below(packet.len() - begin);
        let is_length = protocol == UDP && (at - begin == 4 || at - begin == 5);
        packet[at] ^= 1 << rng.below(8);
        if !is_length {
            assert!(!ends(&packet, &Offload::NONE), "byte {at} of {packet:02x?}");
        }
        for checksum in [Checksum::Valid, Checksum::Partial { start: begin as u16, offset: 6 }] {
            assert!(ends(&packet, &Offload { checksum, gso: None }));
        }
        // Fragments and truncated packets cannot be checked.
        if is_v4 {
            packet[6] = 0x20;
            set_ipv4_checksum(&mut packet);
            assert!(ends(&packet, &Offload::NONE));
        }
        (0..packet.len()).for_each(|cut| _ = is_intact(&packet[..cut], &Offload::NONE, true));
    }
}

#[test]
fn headers_in_between_are_skipped() {
    let offload = Offload::NONE;
    let udp = packet(false, UDP, 6, &[0, 1, 0, 2, 0, 9, 0, 0, b'x']);
    let with = |next: u8, header: &[u8]| {
        let mut with = udp.clone();
        (with[5], with[6]) = (udp[5] + header.len() as u8, next);
        with.splice(40..40, header.iter().copied());
        with
    };
    let headers: [(u8, &[u8]); 5] = [
        (0, &[UDP, 0, 1, 4, 0, 0, 0, 0]),
        (60, &[UDP, 1, 1, 12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]),
        (43, &[UDP, 0, 0, 0, 0, 0, 0, 0]),
        (44, &[UDP, 0, 0, 0, 0, 0, 0, 9]),
        (51, &[UDP, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]),
    ];
    for (next, header) in headers {
        let mut packet = with(next, header);
        assert!(is_intact(&packet, &offload, true), "behind {next}");
        *packet.last_mut().expect("the packet has data") ^= 1;
        assert!(!is_intact(&packet, &offload, true), "behind {next}");
    }
    // Authentication headers also follow IPv4.
    let tcp = packet(true, TCP, 16, &[0, 1, 0, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0x50, 2, 0, 9, 0, 0, 0, 0, b'x']);
    let mut behind = tcp.clone();
    (behind[3], behind[9]) = (tcp[3] + 16, 51);
    behind.splice(20..20, [TCP, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
    set_ipv4_checksum(&mut behind);
    assert!(is_intact(&behind, &offload, true));
    *behind.last_mut().expect("the packet has data") ^= 1;
    assert!(!is_intact(&behind, &offload, true));
    // A fragment, or a packet whose last destination is elsewhere, cannot be checked.
    for (next, header) in [(44, [UDP, 0, 0, 1, 0, 0, 0, 9]), (43, [UDP, 0, 0, 1, 0, 0, 0, 0])] {
        let mut packet = with(next, &header);
        *packet.last_mut().expect("the packet has data") ^= 1;
        assert!(is_intact(&packet, &offload, true));
    }
}
