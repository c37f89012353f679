//! What tells the flows of packets apart: addresses, protocol and ports, as queues and tunnels see them.

use crate::frame::ip_at;
use crate::hash::{HashKey, hash_bytes, hash_word, mix};
use crate::wire::LAYERS_MAX;

const IPV4: u8 = 4;
const IPV6: u8 = 6;
const TCP: u8 = 6;
const UDP: u8 = 17;
const SCTP: u8 = 132;
const ICMP: u8 = 1;
const ICMPV6: u8 = 58;
const IPV6_HEADER_BYTES: usize = 40;
const FRAGMENT_HEADER_BYTES: usize = 8;
/// Extension headers of IPv6 that say how long they are, and of fragments.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
const FRAGMENT: u8 = 44;
const AUTHENTICATION: u8 = 51;
/// Extension headers behind which ports are looked for.
const EXTENSIONS_MAX: usize = LAYERS_MAX as usize;

/// Bytes of what a flow is a hash of: two addresses, two ports, a protocol.
const FLOW_BYTES_MAX: usize = 16 + 16 + 4 + 1;

/// The flow of a packet: hashes of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// Of addresses, protocol and ports.
    pub flow: u32,
    /// Of the source address.
    pub src: u32,
    /// Of the destination.
    pub dst: u32,
    /// The codepoints of IP: DSCP, and ECN in the lowest two bits.
    pub traffic_class: u8,
}

/// The flow of an Ethernet frame, or of an IP packet without a link header. Fragments have the flow of their addresses
/// and protocol, the first like those that know no ports, so that they stay in one line; so has what is neither TCP,
/// UDP nor SCTP. Of what is no IP packet, the first 14 bytes are the flow.
pub fn flow_of(frame: &[u8], is_ip: bool) -> Flow {
    match packet_of(frame, is_ip).and_then(Ip::read) {
        Some(ip) => ip.flow(),
        None => {
            let link = upper(hash_bytes(frame.get(..14).unwrap_or(frame)));
            Flow { flow: link, src: link, dst: link, traffic_class: 0 }
        }
    }
}

/// As [`flow_of`], but the hashes follow from a secret as well: for what shares places among flows that peers choose.
pub fn placed_flow_of(by: HashKey, frame: &[u8], is_ip: bool) -> Flow {
    match packet_of(frame, is_ip).and_then(Ip::read) {
        Some(ip) => ip.placed_flow(by),
        None => {
            let link = upper(by.hash_bytes(frame.get(..14).unwrap_or(frame)));
            Flow { flow: link, src: link, dst: link, traffic_class: 0 }
        }
    }
}

/// Whether an Ethernet frame, or an IP packet without a link header, is an error of ICMP, about which nobody may be
/// told (RFC 1122 section 3.2.2, RFC 4443 section 2.4 e). So is a message that has no type, or none that is known;
/// later fragments, which do not say, are none.
pub fn is_icmp_error(frame: &[u8], is_ip: bool) -> bool {
    let Some(packet) = packet_of(frame, is_ip).and_then(IpHeader::read) else { return false };
    let kind = packet.carried.first();
    match (packet.addresses.len(), packet.protocol) {
        (8, ICMP) => !matches!(kind, Some(0 | 8 | 13..=18)),
        (32, ICMPV6) => kind.is_none_or(|kind| *kind < 128),
        _ => false,
    }
}

/// The IP packet behind the link header of an Ethernet frame and its tags; of a packet without one, all.
#[inline]
pub(crate) fn packet_of(frame: &[u8], is_ip: bool) -> Option<&[u8]> {
    frame.get(ip_at(frame, is_ip)?..)
}

/// Bytes of an extension header of IPv6; those of authentication and of fragments are some. None if it is none, or cut.
fn extension_bytes(protocol: u8, header: &[u8]) -> Option<usize> {
    let more = usize::from(*header.get(1)?);
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION => Some(8 * (more + 1)),
        FRAGMENT => Some(FRAGMENT_HEADER_BYTES),
        AUTHENTICATION => Some(4 * (more + 2)),
        _ => None,
    }
}

/// An IP packet behind all its headers that are known.
pub(crate) struct IpHeader<'f> {
    /// What it carries.
    pub(crate) protocol: u8,
    /// The source's address, and the destination's: 8 bytes of IPv4, 32 of IPv6.
    pub(crate) addresses: &'f [u8],
    /// What it carries, as far as it is there: of a fragment, its part.
    pub(crate) carried: &'f [u8],
    /// All of it is there, and the destination is the last.
    pub(crate) is_whole: bool,
}

impl<'f> IpHeader<'f> {
    /// None of a later fragment, and of a packet that is cut in its headers.
    pub(crate) fn read(packet: &'f [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            IPV4 => Self::of_ipv4(packet),
            IPV6 => Self::of_ipv6(packet),
            _ => None,
        }
    }

    fn of_ipv4(packet: &'f [u8]) -> Option<Self> {
        let (header_bytes, end) = (usize::from(packet[0] & 15) * 4, usize::from(number(packet, 2)?));
        let fragment = number(packet, 6)?;
        let options = packet.get(20..header_bytes)?;
        // Source routes (RFC 791 section 3.1).
        let is_elsewhere = options.iter().any(|byte| matches!(byte, 131 | 137));
        let whole = packet.get(header_bytes..end);
        if fragment & 0x1fff != 0 {
            return None;
        }
        let (mut protocol, mut carried) = (packet[9], whole.unwrap_or(&packet[header_bytes..]));
        if protocol == AUTHENTICATION {
            let header_bytes = extension_bytes(protocol, carried)?;
            (protocol, carried) = (carried[0], carried.get(header_bytes..)?);
        }
        let is_whole = whole.is_some() && fragment & 0x2000 == 0 && !is_elsewhere;
        Some(Self { protocol, addresses: &packet[12..20], carried, is_whole })
    }

    fn of_ipv6(packet: &'f [u8]) -> Option<Self> {
        let length = usize::from(number(packet, 4)?);
        // None is one of a jumbo (RFC 2675).
        let whole = packet.get(IPV6_HEADER_BYTES..IPV6_HEADER_BYTES + length).filter(|_| length > 0);
        let mut bytes = whole.or(packet.get(IPV6_HEADER_BYTES..))?;
        let (mut protocol, mut is_whole) = (packet[6], whole.is_some());
        for _ in 0..EXTENSIONS_MAX {
            let Some(header_bytes) = extension_bytes(protocol, bytes) else { break };
            match protocol {
                FRAGMENT if number(bytes, 2)? & 0xfff8 != 0 => return None,
                FRAGMENT => is_whole &= bytes[3] & 1 == 0,
                ROUTING => is_whole &= *bytes.get(3)? == 0,
                _ => {}
            }
            (protocol, bytes) = (bytes[0], bytes.get(header_bytes..)?);
        }
        Some(Self { protocol, addresses: &packet[8..IPV6_HEADER_BYTES], carried: bytes, is_whole })
    }
}

pub(crate) fn number(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]))
}

/// The parts of an IP packet that tell its flow.
struct Ip<'f> {
    traffic_class: u8,
    protocol: u8,
    src: &'f [u8],
    dst: &'f [u8],
    ports: Option<&'f [u8]>,
}

impl<'f> Ip<'f> {
    fn read(packet: &'f [u8]) -> Option<Self> {
        match packet.first()? >> 4 {
            IPV4 => {
                let header_bytes = usize::from(packet[0] & 15) * 4;
                // More fragments, and the offset of this one.
                let is_whole = u16::from_be_bytes([*packet.get(6)?, *packet.get(7)?]) & 0x3fff == 0;
                Some(Self {
                    traffic_class: packet[1],
                    protocol: *packet.get(9)?,
                    src: packet.get(12..16)?,
                    dst: packet.get(16..20)?,
                    ports: packet.get(header_bytes..header_bytes + 4).filter(|_| is_whole),
                })
            }
            IPV6 => {
                let (protocol, rest) = behind_extensions(*packet.get(6)?, packet.get(IPV6_HEADER_BYTES..)?);
                let is_fragment = protocol == FRAGMENT;
                let ports = rest.get(..4).filter(|_| !is_fragment);
                Some(Self {
                    traffic_class: packet[0] << 4 | packet.get(1)? >> 4,
                    protocol: rest.first().filter(|_| is_fragment).copied().unwrap_or(protocol),
                    src: packet.get(8..24)?,
                    dst: packet.get(24..40)?,
                    ports,
                })
            }
            _ => None,
        }
    }

    fn flow(&self) -> Flow {
        let (src, dst) = (hash_bytes(self.src), hash_bytes(self.dst));
        let ports = match (self.protocol, self.ports) {
            (TCP | UDP | SCTP, Some(ports)) => hash_bytes(ports),
            _ => 0,
        };
        let flow = mix(mix(mix(hash_word(u64::from(self.protocol)), src), dst), ports);
        Flow { flow: upper(flow), src: upper(src), dst: upper(dst), traffic_class: self.traffic_class }
    }

    fn placed_flow(&self, by: HashKey) -> Flow {
        let ports = self.ports.filter(|_| matches!(self.protocol, TCP | UDP | SCTP)).unwrap_or_default();
        // All at once: of hashes of its parts, each of 64 bits, two could be made to meet.
        let mut all = [0; FLOW_BYTES_MAX];
        let mut len = 0;
        for part in [self.src, self.dst, ports, &[self.protocol]] {
            all[len..len + part.len()].copy_from_slice(part);
            len += part.len();
        }
        Flow {
            flow: upper(by.hash_bytes(&all[..len])),
            src: upper(by.hash_bytes(self.src)),
            dst: upper(by.hash_bytes(self.dst)),
            traffic_class: self.traffic_class,
        }
    }
}

/// The half of a hash that is a flow's.
fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// What stands behind the extension headers of IPv6 (RFC 8200 section 4): the header of a fragment counts as that.
fn behind_extensions(first: u8, bytes: &[u8]) -> (u8, &[u8]) {
    let (mut protocol, mut rest) = (first, bytes);
    for _ in 0..EXTENSIONS_MAX {
        let (HOP_BY_HOP | ROUTING | DESTINATION, [next, more, ..]) = (protocol, rest) else {
            break;
        };
        (protocol, rest) = (*next, rest.get(8 * (usize::from(*more) + 1)..).unwrap_or_default());
    }
    (protocol, rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet of IPv4 from 10.0.0.1 to 10.0.0.2, behind a header of Ethernet.
    fn v4(protocol: u8, fragment: u16, data: &[u8]) -> Vec<u8> {
        let [high, low] = fragment.to_be_bytes();
        let mut frame = vec![0; 12];
        frame.extend([8, 0, 0x45, 0, 0, 20 + data.len() as u8, 0, 7, high, low, 64, protocol, 0, 0]);
        frame.extend([10, 0, 0, 1, 10, 0, 0, 2]);
        frame.extend(data);
        frame
    }

    /// A packet of IPv6 without a link header.
    fn v6(next: u8, data: &[u8]) -> Vec<u8> {
        let mut packet = vec![0x60, 0, 0, 0, 0, data.len() as u8, next, 64];
        packet.extend([0x20; 32]);
        packet.extend(data);
        packet
    }

    /// Flows that were computed to meet would share the partition of a queue with one that they mean to harm.
    #[test]
    fn flows_that_meet_elsewhere_do_not_here() {
        let flows = |from: fn(&[u8]) -> u32| {
            let packets =
                (0..if cfg!(miri) { 300 } else { 1 << 17 }).map(|n: u32| v4(17, 0, &n.to_be_bytes()));
            let mut flows: Vec<(u32, Vec<u8>)> = packets.map(|packet| (from(&packet), packet)).collect();
            flows.sort();
            flows
        };
        // Two of 2^17 numbers of 32 bits are the same.
        let public = flows(|packet| flow_of(packet, false).flow);
        let meet: Vec<_> = public.array_windows().filter(|[(one, _), (other, _)]| one == other).collect();
        assert!(!meet.is_empty() || cfg!(miri));
        let of = |by: HashKey, packet: &[u8]| placed_flow_of(by, packet, false).flow;
        let by = HashKey::from_seed(1);
        assert!(meet.iter().all(|[(_, one), (_, other)]| of(by, one) != of(by, other)));
        let placed = flows(|packet| placed_flow_of(HashKey::from_seed(1), packet, false).flow);
        assert!(placed.array_windows().filter(|[(one, _), (other, _)]| one == other).count() < 10);
    }

    #[test]
    fn errors_of_icmp_are_known_by_their_type() {
        // Else errors would be told of, which goes on for ever, or questions would not.
        for kind in 0..=255 {
            let is_question = matches!(kind, 0 | 8 | 13..=18);
            assert_eq!(is_icmp_error(&v4(1, 0, &[kind]), false), !is_question, "type {kind}");
            assert_eq!(is_icmp_error(&v6(58, &[kind]), true), kind < 128, "type {kind} of IPv6");
        }
        assert!(!is_icmp_error(&v4(17, 0, &[3]), false));
        assert!(!is_icmp_error(&v6(17, &[3]), true));
        assert!(!is_icmp_error(&v6(1, &[3]), true));
    }

    #[test]
    fn what_has_no_type_is_taken_for_an_error() {
        // What fills a short frame is none: a type of 0 would be an answer.
        let mut padded = v4(1, 0, &[]);
        padded.resize(60, 0);
        assert!(is_icmp_error(&padded, false));
        assert!(is_icmp_error(&v6(58, &[]), true));
        for cut in 0..60 {
            // It must not panic, whatever is there.
            is_icmp_error(&padded[..cut], false);
            is_icmp_error(&v6(0, &[58, 0, 1, 4, 0, 0, 0, 0, 1])[..cut.min(49)], true);
        }
    }

    #[test]
    fn errors_are_found_behind_headers_and_in_first_fragments() {
        let options = [58, 0, 1, 4, 0, 0, 0, 0];
        assert!(is_icmp_error(&v6(0, &[&options[..], &[1]].concat()), true));
        assert!(!is_icmp_error(&v6(60, &[&options[..], &[128]].concat()), true));
        let fragment = |at: u8, kind: u8| v6(44, &[58, 0, 0, at, 0, 0, 0, 7, kind]);
        assert!(is_icmp_error(&fragment(1, 1), true));
        assert!(!is_icmp_error(&fragment(1, 128), true));
        let proof = |kind: u8| v6(51, &[&[58, 1][..], &[0; 10], &[kind]].concat());
        assert!(is_icmp_error(&proof(1), true));
        assert!(!is_icmp_error(&proof(128), true));
        // A later one begins anywhere.
        assert!(!is_icmp_error(&fragment(8, 1), true));
        assert!(is_icmp_error(&v4(1, 0x2000, &[3]), false));
        assert!(!is_icmp_error(&v4(1, 0x2001, &[3]), false));
    }
}
