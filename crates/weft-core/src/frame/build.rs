//! Builds frames for tests and benchmarks, header by header, from the outside to the inside.
//!
//! Each header sets the type field of the header in front of it, and [`FrameBuilder::build`] sets lengths and
//! checksums. [`FrameBuilder::length`] and [`FrameBuilder::checksum`] set wrong ones on purpose.
//!
//! ```
//! use weft_core::frame::build::ethernet;
//!
//! let frame = ethernet().vlan(7).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).udp(1000, 53).payload(b"hello").build();
//! assert_eq!(frame[12..20], [0x81, 0, 0, 7, 8, 0, 0x45, 0]);
//! assert_eq!(frame.len(), 14 + 4 + 20 + 8 + 5);
//! ```

use super::segment::put;
use super::{ETHERTYPE_IPV4, ETHERTYPE_IPV6, IP_PACKET_MAX};
use crate::checksum::{fold, sum};
use crate::ip::{MORE_FRAGMENTS, TCP, UDP};

const ICMP: u8 = 1;
const ICMPV6: u8 = 58;

/// A frame under construction.
#[derive(Clone, Debug, Default)]
#[must_use]
pub struct FrameBuilder {
    bytes: Vec<u8>,
    headers: Vec<Header>,
}

/// A header in the bytes.
#[derive(Clone, Copy, Debug)]
struct Header {
    kind: HeaderKind,
    at: usize,
    /// Of the field itself; the default is the right one.
    length: Option<u16>,
    checksum: L4Checksum,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum HeaderKind {
    /// Ethernet or a tag: the type is in its last two bytes.
    Link,
    Ipv4,
    Ipv6,
    Udp,
    Tcp,
    Icmp,
    Other,
}

#[derive(Clone, Copy, Debug)]
enum L4Checksum {
    Right,
    /// The sum of the pseudo header: the device completes the checksum.
    Partial,
    Given(u16),
}

/// Begins an Ethernet frame from 02:00:00:00:00:02 to 02:00:00:00:00:01.
pub fn ethernet() -> FrameBuilder {
    FrameBuilder::default().ethernet()
}

/// Begins an IPv4 packet without a link header.
pub fn ipv4(src: [u8; 4], dst: [u8; 4]) -> FrameBuilder {
    FrameBuilder::default().ipv4(src, dst)
}

/// Begins an IPv6 packet without a link header.
pub fn ipv6(src: [u8; 16], dst: [u8; 16]) -> FrameBuilder {
    FrameBuilder::default().ipv6(src, dst)
}

/// Sets the checksum of the IPv4 header at the start of these bytes, after changes by hand.
///
/// # Panics
/// The header is cut.
pub fn set_ipv4_checksum(packet: &mut [u8]) {
    let header_bytes = usize::from(packet[0] & 0xf) * 4;
    let header = &mut packet[..header_bytes];
    put(header, 10, 0);
    put(header, 10, !fold(sum(header)));
}

/// The fragments of an Ethernet frame with an IPv4 packet without options; each but the last has that many bytes.
pub fn fragments(frame: &[u8], id: u16, bytes: usize) -> Vec<Vec<u8>> {
    assert!(bytes.is_multiple_of(8), "offsets count eight bytes");
    let (headers, payload) = frame.split_at(34);
    let fragment = |(nth, piece): (usize, &[u8])| {
        let more = if (nth + 1) * bytes < payload.len() { MORE_FRAGMENTS } else { 0 };
        let mut fragment = [headers, piece].concat();
        put(&mut fragment, 16, (20 + piece.len()) as u16);
        put(&mut fragment, 18, id);
        put(&mut fragment, 20, (nth * bytes / 8) as u16 | more);
        set_ipv4_checksum(&mut fragment[14..]);
        fragment
    };
    payload.chunks(bytes).enumerate().map(fragment).collect()
}

impl FrameBuilder {
    fn header(mut self, kind: HeaderKind, bytes: &[u8]) -> Self {
        self.headers.push(Header { kind, at: self.bytes.len(), length: None, checksum: L4Checksum::Right });
        self.bytes.extend(bytes);
        self
    }

    /// The last header, and the bytes from its start.
    fn last(&mut self) -> (&mut Header, &mut [u8]) {
        let last = self.headers.last_mut().expect("there is a header");
        let at = last.at;
        (last, &mut self.bytes[at..])
    }

    /// The bytes from the last header on, which is one of IP.
    fn last_ip(&mut self) -> (bool, &mut [u8]) {
        let (last, bytes) = self.last();
        assert!(matches!(last.kind, HeaderKind::Ipv4 | HeaderKind::Ipv6), "the last header is not of IP");
        (last.kind == HeaderKind::Ipv4, bytes)
    }

    /// An Ethernet header, also one in a tunnel.
    pub fn ethernet(self) -> Self {
        self.header(HeaderKind::Link, &[2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 0, 0])
    }

    /// The addresses of the Ethernet header: destination and source.
    pub fn macs(mut self, dst: [u8; 6], src: [u8; 6]) -> Self {
        self.last().1[..12].copy_from_slice(&[dst, src].concat());
        self
    }

    /// An 802.1Q tag; `tci` is the VLAN, with priority and DEI above it.
    pub fn vlan(self, tci: u16) -> Self {
        let [high, low] = tci.to_be_bytes();
        self.ethertype(0x8100).header(HeaderKind::Link, &[high, low, 0, 0])
    }

    /// The type of the payload behind the Ethernet header or tag, if no header sets it.
    pub fn ethertype(mut self, ethertype: u16) -> Self {
        if let Some(Header { kind: HeaderKind::Link, .. }) = self.headers.last() {
            let at = self.bytes.len() - 2;
            put(&mut self.bytes, at, ethertype);
        }
        self
    }

    /// An IPv4 header: TTL 64, no options.
    pub fn ipv4(self, src: [u8; 4], dst: [u8; 4]) -> Self {
        let front = [0x45, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0, 0];
        let outer = self.ethertype(u16::from_be_bytes(ETHERTYPE_IPV4)).protocol(4);
        outer.header(HeaderKind::Ipv4, &[&front[..], &src, &dst].concat())
    }

    /// An IPv6 header: hop limit 64.
    pub fn ipv6(self, src: [u8; 16], dst: [u8; 16]) -> Self {
        let front = [0x60, 0, 0, 0, 0, 0, 0, 64];
        let outer = self.ethertype(u16::from_be_bytes(ETHERTYPE_IPV6)).protocol(41);
        outer.header(HeaderKind::Ipv6, &[&front[..], &src, &dst].concat())
    }

    /// The protocol of the payload behind the IP header, if no header sets it.
    pub fn protocol(mut self, protocol: u8) -> Self {
        let at = match self.headers.last() {
            Some(Header { kind: HeaderKind::Ipv4, at, .. }) => at + 9,
            Some(Header { kind: HeaderKind::Ipv6, at, .. }) => at + 6,
            _ => return self,
        };
        self.bytes[at] = protocol;
        self
    }

    /// The TTL or hop limit.
    pub fn ttl(mut self, ttl: u8) -> Self {
        let (is_v4, ip) = self.last_ip();
        ip[if is_v4 { 8 } else { 7 }] = ttl;
        self
    }

    /// DSCP and ECN of IPv4.
    pub fn tos(mut self, tos: u8) -> Self {
        self.last_ip().1[1] = tos;
        self
    }

    /// The identification of IPv4, and the word of flags and fragment offset.
    pub fn fragment(mut self, id: u16, flags_and_offset: u16) -> Self {
        let (_, ip) = self.last_ip();
        put(ip, 4, id);
        put(ip, 6, flags_and_offset);
        self
    }

    /// Options of the IPv4 or TCP header, of four, eight ... bytes.
    pub fn options(mut self, options: &[u8]) -> Self {
        let (last, bytes) = self.last();
        match last.kind {
            HeaderKind::Tcp => bytes[12] += ((options.len() / 4) << 4) as u8,
            _ => bytes[0] += (options.len() / 4) as u8,
        }
        self.bytes.extend(options);
        self
    }

    /// A UDP header.
    pub fn udp(self, src: u16, dst: u16) -> Self {
        let ports = [src.to_be_bytes(), dst.to_be_bytes()].concat();
        self.protocol(UDP).header(HeaderKind::Udp, &[&ports[..], &[0; 4]].concat())
    }

    /// A TCP header: sequence and acknowledgment number 1, PSH and ACK, a window of 256 bytes.
    pub fn tcp(self, src: u16, dst: u16) -> Self {
        let ports = [src.to_be_bytes(), dst.to_be_bytes()].concat();
        let more = [0, 0, 0, 1, 0, 0, 0, 1, 0x50, 0x18, 1, 0, 0, 0, 0, 0];
        self.protocol(TCP).header(HeaderKind::Tcp, &[&ports[..], &more].concat())
    }

    /// The sequence number and the flags of TCP.
    pub fn seq(mut self, seq: u32, flags: u8) -> Self {
        let (_, tcp) = self.last();
        tcp[4..8].copy_from_slice(&seq.to_be_bytes());
        tcp[13] = flags;
        self
    }

    /// The first four bytes of an ICMP header, of the version of the IP header.
    pub fn icmp(self, kind: u8) -> Self {
        let is_v6 = matches!(self.headers.last(), Some(Header { kind: HeaderKind::Ipv6, .. }));
        self.protocol(if is_v6 { ICMPV6 } else { ICMP }).header(HeaderKind::Icmp, &[kind, 0, 0, 0])
    }

    /// Another header, as it is.
    pub fn other(self, header: &[u8]) -> Self {
        self.header(HeaderKind::Other, header)
    }

    /// The length field of the last header, whatever is behind it.
    pub fn length(mut self, length: u16) -> Self {
        self.last().0.length = Some(length);
        self
    }

    /// The checksum field of the last header. For UDP, 0 is none.
    pub fn checksum(mut self, checksum: u16) -> Self {
        self.last().0.checksum = L4Checksum::Given(checksum);
        self
    }

    /// The sum of the pseudo header as the checksum of the last header: its device completes it.
    pub fn partial_checksum(mut self) -> Self {
        self.last().0.checksum = L4Checksum::Partial;
        self
    }

    /// Appends payload.
    pub fn payload(mut self, payload: impl AsRef<[u8]>) -> Self {
        self.bytes.extend(payload.as_ref());
        self
    }

    /// The bytes, with lengths and checksums.
    ///
    /// # Panics
    /// A packet is longer than its length field can say.
    pub fn build(mut self) -> Vec<u8> {
        // An outer checksum covers inner ones.
        while let Some(Header { kind, at, length, checksum }) = self.headers.pop() {
            if matches!(kind, HeaderKind::Link | HeaderKind::Other) {
                continue;
            }
            let bytes = self.bytes.len() - at;
            let has_length = matches!(kind, HeaderKind::Ipv4 | HeaderKind::Ipv6 | HeaderKind::Udp);
            assert!(
                !has_length || length.is_some() || bytes <= IP_PACKET_MAX,
                "no length field holds {bytes}"
            );
            let whole = length.unwrap_or(bytes as u16);
            let checksum_at = match kind {
                HeaderKind::Link | HeaderKind::Other => continue,
                HeaderKind::Ipv4 => {
                    put(&mut self.bytes, at + 2, whole);
                    set_ipv4_checksum(&mut self.bytes[at..]);
                    10
                }
                HeaderKind::Ipv6 => {
                    put(&mut self.bytes, at + 4, length.unwrap_or(bytes as u16 - 40));
                    continue;
                }
                HeaderKind::Udp => {
                    put(&mut self.bytes, at + 4, whole);
                    6
                }
                HeaderKind::Tcp => 16,
                HeaderKind::Icmp => 2,
            };
            let value = match checksum {
                L4Checksum::Given(checksum) => checksum,
                _ if kind == HeaderKind::Ipv4 => continue,
                L4Checksum::Partial => fold(self.pseudo_sum(kind, bytes)),
                L4Checksum::Right => {
                    // RFC 768: a UDP checksum that is 0 is sent as all ones.
                    match !fold(self.pseudo_sum(kind, bytes) + u64::from(fold(sum(&self.bytes[at..])))) {
                        0 if kind == HeaderKind::Udp => 0xffff,
                        right => right,
                    }
                }
            };
            put(&mut self.bytes, at + checksum_at, value);
        }
        self.bytes
    }

    /// The sum of the pseudo header of a payload of that many bytes: it has the addresses of the last IP header.
    fn pseudo_sum(&self, kind: HeaderKind, bytes: usize) -> u64 {
        let ip = self.headers.iter().rfind(|ip| matches!(ip.kind, HeaderKind::Ipv4 | HeaderKind::Ipv6));
        let Some(ip) = ip else { return 0 };
        let is_v4 = ip.kind == HeaderKind::Ipv4;
        let protocol = match kind {
            HeaderKind::Udp => UDP,
            HeaderKind::Tcp => TCP,
            _ if is_v4 => return 0,
            _ => ICMPV6,
        };
        let addresses = if is_v4 { 12..20 } else { 8..40 };
        u64::from(fold(sum(&self.bytes[ip.at..][addresses]))) + u64::from(protocol) + bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ip::IpPacket;

    /// Tests would pass or fail by the wrong bytes of their frames. The frames are spelled out once.
    #[test]
    fn frames_have_the_bytes_of_the_standards() {
        let udp = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(0x1234, 0x4000).ttl(9).tos(0x28);
        let udp = udp.udp(1000, 53).payload(b"hello");
        let mut wanted = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 2, 8, 0, 0x45, 0x28, 0, 33, 0x12, 0x34];
        wanted.extend([0x40, 0, 9, 17, 0x4b, 0x6e, 10, 0, 0, 1, 10, 0, 0, 2]);
        wanted.extend([0x03, 0xe8, 0, 53, 0, 13, 0xa3, 0xe2]);
        wanted.extend(b"hello");
        assert_eq!(udp.build(), wanted);
        wanted[40..42].fill(0);
        let without = ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(0x1234, 0x4000).ttl(9).tos(0x28);
        assert_eq!(without.udp(1000, 53).checksum(0).payload(b"hello").build(), wanted);
    }

    /// As above: each checksum makes the sum of the bytes that it covers all ones (RFC 1071).
    #[test]
    fn right_checksums_sum_to_ones() {
        let v6 = || ipv6([0x20; 16], [0x31; 16]);
        let all = [
            v6().udp(1, 2).payload(b"odd").build(),
            v6().tcp(1, 2).options(&[1; 12]).payload(b"even").build(),
            v6().icmp(128).payload([0, 7, 0, 1, b'd']).build(),
            ipv4([10, 0, 0, 1], [10, 0, 0, 2]).options(&[1; 8]).tcp(1, 2).payload(b"odd").build(),
        ];
        for packet in &all {
            let ip = IpPacket::new(packet).expect("it is a packet");
            let header = ip.header().len();
            assert!(!ip.is_v4() || fold(sum(ip.header())) == 0xffff, "{packet:02x?}");
            let addresses = if ip.is_v4() { &packet[12..20] } else { &packet[8..40] };
            let protocol = packet[if ip.is_v4() { 9 } else { 6 }];
            let length = (packet.len() - header) as u16;
            let covered = [addresses, &[0, protocol], &length.to_be_bytes(), &packet[header..]].concat();
            assert_eq!(fold(sum(&covered)), 0xffff, "{packet:02x?}");
        }
        let inner = ipv4([1; 4], [2; 4]).udp(5, 6).payload(b"x");
        let tunnel = ipv4([3; 4], [4; 4]).udp(9, 4789).other(&[8, 0, 0, 0, 0, 0, 7, 0]).ethernet();
        let tunnel = tunnel.ipv4([1; 4], [2; 4]).udp(5, 6).payload(b"x").build();
        assert_eq!(tunnel[20 + 8 + 8 + 14..], inner.build());
    }
}
