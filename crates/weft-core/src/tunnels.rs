//! How many packets a packet carries in one another.

use crate::frame::ip_at;
use crate::ip::IpPacket;

const IPV4_IN_IP: u8 = 4;
const IPV6_IN_IP: u8 = 41;
const GRE: u8 = 47;
const UDP: u8 = 17;
const UDP_HEADER_BYTES: usize = 8;
const VXLAN_PORT: u16 = 4789;
const GENEVE_PORT: u16 = 6081;
const GTPU_PORT: u16 = 2152;
const ETHERNET_TYPE: u16 = 0x6558;

/// How deep an Ethernet frame, or an IP packet without a link header, goes: the IP packets that it carries in one
/// another, in IP (RFC 2003, RFC 2473), GRE, VXLAN, Geneve and GTP-U. What a fragment carries is not known but for the
/// first one's beginning; it ends where a header is cut.
pub fn tunnel_depth(frame: &[u8], is_ip: bool) -> u64 {
    let mut depth = 0;
    let mut packet = IpPacket::of_frame(frame, is_ip);
    // Each is shorter than that which carries it.
    while let Some(inner) = packet.and_then(inner_of) {
        depth += 1;
        packet = IpPacket::new(inner);
    }
    depth
}

/// The IP packet that a packet carries.
fn inner_of(packet: IpPacket<'_>) -> Option<&[u8]> {
    let outer = packet.upper();
    if outer.part.is_some_and(|part| part.offset > 0) {
        return None;
    }
    let bytes = outer.bytes;
    let inner = match outer.protocol {
        IPV4_IN_IP | IPV6_IN_IP => bytes,
        GRE => in_gre(bytes)?,
        UDP => in_udp(number(bytes, 2)?, bytes.get(UDP_HEADER_BYTES..)?)?,
        _ => return None,
    };
    matches!(inner.first()? >> 4, 4 | 6).then_some(inner)
}

/// The IP packet of an Ethernet frame.
fn packet_of(frame: &[u8], is_ip: bool) -> Option<&[u8]> {
    frame.get(ip_at(frame, is_ip)?..)
}

fn number(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

/// RFC 2784, RFC 2890: checksum, key and number each add four bytes.
fn in_gre(bytes: &[u8]) -> Option<&[u8]> {
    let n_options = (bytes.first()? & 0b1011_0000).count_ones() as usize;
    of_type(number(bytes, 2)?, bytes.get(4 + 4 * n_options..)?)
}

fn in_udp(dst_port: u16, bytes: &[u8]) -> Option<&[u8]> {
    match dst_port {
        // RFC 7348 section 5.
        VXLAN_PORT => packet_of(bytes.get(8..)?, false),
        // RFC 8926 section 3.4: options in words of four bytes.
        GENEVE_PORT => {
            let n_words = usize::from(bytes.first()? & 0x3f);
            of_type(number(bytes, 2)?, bytes.get(8 + 4 * n_words..)?)
        }
        // 3GPP TS 29.281 section 5.1: a user's packet, behind four bytes more if any of three is there, and extensions.
        GTPU_PORT if *bytes.get(1)? == 255 => {
            let has_more = bytes[0] & 0b111 != 0;
            let (mut at, mut next) = (8, 0);
            if has_more {
                (at, next) = (12, *bytes.get(11)?);
            }
            while next != 0 {
                at += 4 * usize::from((*bytes.get(at)?).max(1));
                next = *bytes.get(at - 1)?;
            }
            bytes.get(at..)
        }
        _ => None,
    }
}

/// The IP packet in what an Ethernet type names.
fn of_type(of: u16, bytes: &[u8]) -> Option<&[u8]> {
    match of {
        0x0800 | 0x86dd => Some(bytes),
        ETHERNET_TYPE => packet_of(bytes, false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dice::Dice;

    fn v4(protocol: u8, carried: &[u8]) -> Vec<u8> {
        let length = (20 + carried.len() as u16).to_be_bytes();
        let header =
            [0x45, 0, length[0], length[1], 0, 7, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
        [&header, carried].concat()
    }

    fn v6(protocol: u8, carried: &[u8]) -> Vec<u8> {
        let length = (carried.len() as u16).to_be_bytes();
        [&[0x60, 0, 0, 0, length[0], length[1], protocol, 64][..], &[0x20; 32], carried].concat()
    }

    fn udp(port: u16, carried: &[u8]) -> Vec<u8> {
        [&[0, 9][..], &port.to_be_bytes(), &(8 + carried.len() as u16).to_be_bytes(), &[0, 0], carried]
            .concat()
    }

    fn ethernet(of: [u8; 2], packet: &[u8]) -> Vec<u8> {
        [&[2; 12][..], &of, packet].concat()
    }

    /// What goes round in a tunnel gets longer each time; who counts wrong cuts tunnels that are none.
    #[test]
    fn each_way_of_carrying_a_packet_counts_once() {
        let plain = v4(17, &udp(53, b"x"));
        let frame = ethernet([8, 0], &plain);
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
            (
                "Geneve",
                v4(17, &udp(6081, &[&[1, 0, 0x65, 0x58, 0, 0, 7, 0, 1, 2, 3, 0][..], &frame].concat())),
            ),
            (
                "GTP-U with an extension",
                v6(
                    17,
                    &udp(
                        2152,
                        &[&[0x34, 255, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0x85, 1, 0, 9, 0][..], &plain].concat(),
                    ),
                ),
            ),
        ];
        assert_eq!((tunnel_depth(&plain, true), tunnel_depth(&frame, false)), (0, 0));
        for (name, packet) in &all {
            assert_eq!(tunnel_depth(packet, true), 1, "{name}");
            assert_eq!(tunnel_depth(&ethernet([8, 0], &v4(4, packet)), false), 2, "{name} in IPv4");
            (0..packet.len()).for_each(|cut| _ = tunnel_depth(&packet[..cut], true));
        }
        let deep = (0..60).fold(plain.clone(), |packet, _| v4(4, &packet));
        assert_eq!(tunnel_depth(&deep, true), 60);
        // Not carried: the second part of one, and an echo of GTP-U.
        let mut later = v4(4, &plain);
        later[7] = 9;
        assert_eq!(tunnel_depth(&later, true), 0);
        assert_eq!(
            tunnel_depth(&v4(17, &udp(2152, &[&[0x30, 1, 0, 0, 0, 0, 0, 0][..], &plain].concat())), true),
            0
        );
        let mut dice = Dice::from_seed(1);
        for _ in 0..2_000 {
            let mut packet = all[dice.below(all.len())].1.clone();
            let at = dice.below(packet.len());
            packet[at] = dice.bits() as u8;
            assert!(tunnel_depth(&packet, true) <= 3);
        }
    }
}
