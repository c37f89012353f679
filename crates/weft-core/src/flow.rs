//! Flow hashes of packets: from addresses, protocol and ports, for queues and tunnels.

use crate::hash::{HashKey, hash_bytes, hash_word, mix};
use crate::ip::{IpPacket, SCTP, TCP, UDP};

/// Bytes that a flow hash covers: two addresses, two ports, a protocol.
const FLOW_BYTES_MAX: usize = 16 + 16 + 4 + 1;

/// The flow of a packet, as hashes of 32 bits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Flow {
    /// The hash of addresses, protocol and ports.
    pub flow: u32,
    /// The hash of the source address.
    pub src: u32,
    /// The hash of the destination address.
    pub dst: u32,
    /// The IP traffic class: DSCP, with ECN in the lowest two bits.
    pub traffic_class: u8,
}

/// The flow of an Ethernet frame, or of an IP packet without a link header.
///
/// All fragments of a packet have the flow of its addresses and protocol, without ports, so that they stay in order.
/// The same holds for protocols other than TCP, UDP and SCTP. For a frame that is not IP, the flow is the hash of its
/// first 14 bytes.
pub fn flow_of(frame: &[u8], is_ip: bool) -> Flow {
    match IpPacket::of_frame(frame, is_ip).map(Parts::of) {
        Some(parts) => parts.flow(),
        None => {
            let link = upper(hash_bytes(frame.get(..14).unwrap_or(frame)));
            Flow { flow: link, src: link, dst: link, traffic_class: 0 }
        }
    }
}

/// As [`flow_of`], with hashes that also depend on a secret. Use it to place flows that peers choose in shared
/// structures.
pub fn placed_flow_of(by: HashKey, frame: &[u8], is_ip: bool) -> Flow {
    match IpPacket::of_frame(frame, is_ip).map(Parts::of) {
        Some(parts) => parts.placed_flow(by),
        None => {
            let link = upper(by.hash_bytes(frame.get(..14).unwrap_or(frame)));
            Flow { flow: link, src: link, dst: link, traffic_class: 0 }
        }
    }
}

/// The parts of an IP packet that identify its flow.
struct Parts<'f> {
    traffic_class: u8,
    protocol: u8,
    src: &'f [u8],
    dst: &'f [u8],
    ports: &'f [u8],
}

impl<'f> Parts<'f> {
    /// Collects the parts of a packet that identify its flow.
    #[inline(always)]
    fn of(packet: IpPacket<'f>) -> Self {
        let upper = packet.upper();
        let (protocol, bytes) = match upper.part {
            None => (upper.protocol, upper.bytes),
            // Only the first fragment has the bytes behind the headers.
            Some(part) => (part.protocol, &[][..]),
        };
        let ports = match protocol {
            TCP | UDP | SCTP => bytes.get(..4).unwrap_or_default(),
            _ => &[],
        };
        let traffic_class = packet.traffic_class();
        Self { traffic_class, protocol, src: packet.src(), dst: packet.dst(), ports }
    }

    /// Hashes the parts with fixed keys.
    fn flow(&self) -> Flow {
        let (src, dst) = (hash_bytes(self.src), hash_bytes(self.dst));
        let ports = if self.ports.is_empty() { 0 } else { hash_bytes(self.ports) };
        let flow = mix(mix(mix(hash_word(u64::from(self.protocol)), src), dst), ports);
        Flow { flow: upper(flow), src: upper(src), dst: upper(dst), traffic_class: self.traffic_class }
    }

    /// Hashes the parts with a secret key, so that a peer cannot choose its place.
    fn placed_flow(&self, by: HashKey) -> Flow {
        // One hash over all parts: from separate hashes of 64 bits, a peer could construct a collision.
        let mut all = [0; FLOW_BYTES_MAX];
        let mut len = 0;
        for part in [self.src, self.dst, self.ports, &[self.protocol]] {
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

/// The half of a hash that becomes a flow hash.
fn upper(hash: u64) -> u32 {
    (hash >> 32) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::build::{ethernet, ipv6};

    /// An IPv4 packet from 10.0.0.1 to 10.0.0.2, behind an Ethernet header.
    fn v4(protocol: u8, fragment: u16, data: &[u8]) -> Vec<u8> {
        let packet = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(7, fragment);
        packet.protocol(protocol).payload(data).build()
    }

    /// A peer could compute flows that share a queue partition with the flow it wants to harm.
    #[test]
    fn similar_flows_hash_apart() {
        let flows = |from: fn(&[u8]) -> u32| {
            let packets =
                (0..if cfg!(miri) { 300 } else { 1 << 17 }).map(|n: u32| v4(17, 0, &n.to_be_bytes()));
            let mut flows: Vec<(u32, Vec<u8>)> = packets.map(|packet| (from(&packet), packet)).collect();
            flows.sort();
            flows
        };
        // Of 2^17 numbers of 32 bits, two are equal.
        let public = flows(|packet| flow_of(packet, false).flow);
        let meet: Vec<_> = public.array_windows().filter(|[(one, _), (other, _)]| one == other).collect();
        assert!(!meet.is_empty() || cfg!(miri));
        let of = |by: HashKey, packet: &[u8]| placed_flow_of(by, packet, false).flow;
        let by = HashKey::from_seed(1);
        assert!(meet.iter().all(|[(_, one), (_, other)]| of(by, one) != of(by, other)));
        let placed = flows(|packet| placed_flow_of(HashKey::from_seed(1), packet, false).flow);
        assert!(placed.array_windows().filter(|[(one, _), (other, _)]| one == other).count() < 10);
    }

    /// A flow in several partitions would be reordered; several flows in one would wait for each other.
    #[test]
    fn flow_is_same_in_every_framing() {
        let ports = [3, 232, 0, 53, 0, 9, 0, 0, b'x'];
        let flow = |frame: &[u8]| flow_of(frame, false);
        let plain = v4(17, 0, &ports);
        let put = |at: usize, bytes: &[u8]| {
            let mut frame = plain.clone();
            frame.splice(at..at, bytes.iter().copied());
            frame
        };
        assert_eq!(flow(&put(12, &[0x81, 0, 0, 7])), flow(&plain), "behind a tag");
        let session = [&plain[..12], &[0x88, 0x64, 0x11, 0, 0, 7, 0, 31, 0, 0x21], &plain[14..]].concat();
        assert_eq!(flow(&session), flow(&plain), "in a session of PPPoE");
        let mut proven = put(34, &[17, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0]);
        (proven[17], proven[23]) = (plain[17] + 16, 51);
        assert_eq!(flow(&proven), flow(&plain), "behind authentication");
        // All fragments of a packet have the same flow, although only the first has ports.
        let first = flow(&v4(17, 0x2000, &ports));
        assert_eq!((first, first), (flow(&v4(17, 0x2001, &ports)), flow(&v4(17, 2, b"rest"))));
        assert_ne!(first, flow(&plain));
        let v6 = |next: u8, carried: &[u8]| {
            flow_of(&ipv6([1; 16], [2; 16]).protocol(next).payload(carried).build(), true)
        };
        let of = |offset: u8, next: u8, carried: &[u8]| {
            v6(44, &[&[next, 0, 0, offset, 0, 0, 0, 9][..], carried].concat())
        };
        assert_eq!(v6(17, &ports), of(0, 17, &ports), "whole in one fragment (RFC 6946)");
        let options = [&[17, 0, 1, 4, 0, 0, 0, 0][..], &ports].concat();
        assert_eq!(of(1, 60, &options), of(8, 60, b"rest"), "the first packet has more headers");
        assert_eq!(v6(60, &options), v6(17, &ports));
    }
}
