//! The reader of IP headers, for everything that the engine needs of a packet without a program.
//!
//! Queues hash flows, links write codepoints, fragments are reassembled and packets are segmented, all before or
//! without a program. This module knows Ethernet with its tags ([`network_at`](crate::frame::network_at)), IPv4 and
//! IPv6, and nothing above. The payload is left to the protocols of the program ([`crate::wire`]).
//!
//! Sources: RFC 791 section 3.1, RFC 8200 sections 3 and 4, RFC 4302 section 2.

use crate::checksum::fold;
use crate::frame::ip_at;
use crate::wire::LAYERS_MAX;

/// Transmission Control Protocol (RFC 9293).
pub const TCP: u8 = 6;
/// User Datagram Protocol (RFC 768).
pub const UDP: u8 = 17;
/// Stream Control Transmission Protocol (RFC 9260).
pub const SCTP: u8 = 132;
/// Hop-by-hop options, which every router reads.
pub const HOP_BY_HOP: u8 = 0;
/// Routing header: the route of the packet.
pub const ROUTING: u8 = 43;
/// Fragment header.
pub const FRAGMENT: u8 = 44;
/// Authentication header, also used with IPv4.
pub const AUTHENTICATION: u8 = 51;
/// Destination options, which the destination reads.
pub const DESTINATION: u8 = 60;

/// Extension headers of a packet that the reader skips; what follows more of them is unknown.
pub const EXTENSIONS_MAX: usize = LAYERS_MAX as usize;

const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;
const FRAGMENT_HEADER_BYTES: usize = 8;
/// IPv4 flags and offset: do not fragment, more fragments, and the offset in units of 8 bytes.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// See [`DONT_FRAGMENT`].
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// See [`DONT_FRAGMENT`].
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// An IPv4 or IPv6 packet whose first header is complete.
#[derive(Clone, Copy, Debug)]
pub struct IpPacket<'f> {
    /// The fixed part of the first header.
    first: &'f [u8; IPV4_HEADER_BYTES],
    /// The bytes from the first header to the end of the frame.
    bytes: &'f [u8],
    header_bytes: usize,
}

/// The content behind the known headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'f> {
    /// Its protocol. It is that of an extension header if that header is cut, or if the packet has more than
    /// [`EXTENSIONS_MAX`].
    pub protocol: u8,
    /// Its bytes as far as they are in the frame. For a later fragment: the bytes of that fragment.
    pub bytes: &'f [u8],
    /// The destination is the last hop: no source route continues.
    pub is_at_last_hop: bool,
    /// The fragment; None for a whole packet.
    pub part: Option<Part>,
}

/// A fragment of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// The identification that all fragments of a packet share beside the addresses; for IPv4, the first two bytes.
    pub id: [u8; 4],
    /// The protocol that all fragments of a packet share: the protocol of IPv4, the next header of the IPv6 fragment
    /// header.
    pub protocol: u8,
    /// The offset in the packet, in bytes.
    pub offset: u32,
    /// The length in bytes, as far as it is in the frame.
    pub bytes: u32,
    /// More fragments follow.
    pub has_more: bool,
    /// The first fragment, which contains another fragment header.
    pub holds_another: bool,
}

impl<'f> IpPacket<'f> {
    /// The packet that begins here. None if there is no IP version, or if the first header is cut or too short.
    #[inline(always)]
    pub fn new(bytes: &'f [u8]) -> Option<Self> {
        let first: &[u8; IPV4_HEADER_BYTES] = bytes.first_chunk()?;
        let header_bytes = match first[0] >> 4 {
            4 => usize::from(first[0] & 0xf) * 4,
            6 => IPV6_HEADER_BYTES,
            _ => return None,
        };
        let is_there = (IPV4_HEADER_BYTES..=bytes.len()).contains(&header_bytes);
        is_there.then_some(Self { first, bytes, header_bytes })
    }

    /// The packet behind the link header of an Ethernet frame and its tags, or all of a frame without a link header.
    #[inline(always)]
    pub fn of_frame(frame: &'f [u8], is_ip: bool) -> Option<Self> {
        Self::new(frame.get(ip_at(frame, is_ip)?..)?)
    }

    /// Whether it is IPv4; otherwise it is IPv6.
    #[inline]
    pub fn is_v4(self) -> bool {
        self.first[0] >> 4 == 4
    }

    /// 4 or 6.
    #[inline]
    pub fn version(self) -> u8 {
        self.first[0] >> 4
    }

    /// The first header, with the options of IPv4.
    #[inline]
    pub fn header(self) -> &'f [u8] {
        &self.bytes[..self.header_bytes]
    }

    /// DSCP, and ECN in the lowest two bits.
    #[inline]
    pub fn traffic_class(self) -> u8 {
        if self.is_v4() { self.first[1] } else { self.first[0] << 4 | self.first[1] >> 4 }
    }

    /// The source address: 4 or 16 bytes.
    #[inline]
    pub fn src(self) -> &'f [u8] {
        if self.is_v4() { &self.first[12..16] } else { &self.bytes[8..24] }
    }

    /// The destination address: 4 or 16 bytes.
    #[inline]
    pub fn dst(self) -> &'f [u8] {
        if self.is_v4() { &self.first[16..20] } else { &self.bytes[24..40] }
    }

    /// Both addresses, in the order of the header.
    #[inline]
    pub fn addresses(self) -> &'f [u8] {
        if self.is_v4() { &self.first[12..20] } else { &self.bytes[8..40] }
    }

    /// The length of the packet by its header. None if the field is 0, as for packets longer than the field allows (RFC
    /// 2675) or for packets that a device segments.
    #[inline]
    pub fn length(self) -> Option<usize> {
        match (self.is_v4(), usize::from(self.word(if self.is_v4() { 2 } else { 4 }))) {
            (_, 0) => None,
            (true, length) => Some(length),
            (false, length) => Some(IPV6_HEADER_BYTES + length),
        }
    }

    /// Whether the header gives a length and the whole packet is in the frame.
    #[inline]
    pub fn is_complete(self) -> bool {
        self.length().is_some_and(|length| (self.header_bytes..=self.bytes.len()).contains(&length))
    }

    /// The bytes behind the first header, as far as they are in the frame, without padding.
    #[inline]
    pub fn payload(self) -> &'f [u8] {
        let end = self.length().map_or(self.bytes.len(), |length| length.min(self.bytes.len()));
        self.bytes.get(self.header_bytes..end).unwrap_or_default()
    }

    /// The flags and fragment offset of IPv4 ([`DONT_FRAGMENT`]).
    #[inline]
    pub fn fragment_word(self) -> Option<u16> {
        self.is_v4().then(|| self.word(6))
    }

    /// The fragment; None for a whole packet. One comparison decides for most packets.
    #[inline]
    pub fn part(self) -> Option<Part> {
        let may_be = match self.fragment_word() {
            Some(word) => word & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0,
            None => is_extension(self.first[6]),
        };
        if may_be { self.upper().part } else { None }
    }

    /// The content behind the known headers. For most packets, that is what follows the first header.
    #[inline(always)]
    pub fn upper(self) -> Upper<'f> {
        let protocol = self.first[if self.is_v4() { 9 } else { 6 }];
        let is_plain = match self.fragment_word() {
            Some(word) => {
                let is_whole = word & (MORE_FRAGMENTS | FRAGMENT_OFFSET) == 0;
                is_whole && protocol != AUTHENTICATION && self.header_bytes == IPV4_HEADER_BYTES
            }
            None => !is_extension(protocol),
        };
        let upper = Upper { protocol, bytes: self.payload(), is_at_last_hop: true, part: None };
        match self.fragment_word() {
            _ if is_plain => upper,
            Some(word) => self.after_ipv4(word),
            None => upper.after_extensions(),
        }
    }

    /// The upper-layer protocol and bytes behind an IPv4 header; `word` holds the fragment flags and offset.
    #[cold]
    fn after_ipv4(self, word: u16) -> Upper<'f> {
        let (protocol, bytes) = (self.first[9], self.payload());
        // Source routes (RFC 791 section 3.1).
        let options = &self.bytes[IPV4_HEADER_BYTES..self.header_bytes];
        let is_at_last_hop = !options.iter().any(|byte| matches!(byte, 131 | 137));
        let has_more = word & MORE_FRAGMENTS != 0;
        let offset = u32::from(word & FRAGMENT_OFFSET) * 8;
        let part = (has_more || offset > 0).then(|| Part {
            id: [self.first[4], self.first[5], 0, 0],
            protocol,
            offset,
            bytes: bytes.len() as u32,
            has_more,
            holds_another: false,
        });
        let upper = Upper { protocol, bytes, is_at_last_hop, part };
        match extension_bytes(protocol, bytes) {
            Some(n) if protocol == AUTHENTICATION && offset == 0 && n <= bytes.len() => {
                Upper { protocol: bytes[0], bytes: &bytes[n..], ..upper }
            }
            _ => upper,
        }
    }

    #[inline]
    fn word(self, at: usize) -> u16 {
        u16::from_be_bytes([self.first[at], self.first[at + 1]])
    }
}

impl Upper<'_> {
    /// Skips IPv6 extension headers, and records what they say about routes and fragments.
    #[cold]
    fn after_extensions(mut self) -> Self {
        for _ in 0..EXTENSIONS_MAX {
            let Some(n) = extension_bytes(self.protocol, self.bytes) else { break };
            let Some(behind) = self.bytes.get(n..) else { break };
            let next = self.bytes[0];
            match self.protocol {
                ROUTING => self.is_at_last_hop &= self.bytes[3] == 0,
                FRAGMENT => {
                    let word = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
                    let (offset, has_more) = (u32::from(word & 0xfff8), word & 1 != 0);
                    // An atomic fragment counts as a whole packet (RFC 6946).
                    let is_part = offset > 0 || has_more;
                    match &mut self.part {
                        _ if !is_part => {}
                        Some(first) => first.holds_another = true,
                        part => {
                            *part = Some(Part {
                                id: [self.bytes[4], self.bytes[5], self.bytes[6], self.bytes[7]],
                                protocol: next,
                                offset,
                                bytes: behind.len() as u32,
                                has_more,
                                holds_another: false,
                            });
                        }
                    }
                }
                _ => {}
            }
            (self.protocol, self.bytes) = (next, behind);
            // A later fragment may begin anywhere.
            if self.part.is_some_and(|part| part.offset > 0) {
                break;
            }
        }
        self
    }
}

/// Replaces the traffic class of the packet that begins here by a function of it, and updates the IPv4 checksum (RFC
/// 1624). Other bytes than an IP packet stay as they are.
pub fn change_traffic_class(packet: &mut [u8], new: impl FnOnce(u8) -> u8) {
    let Some(read) = IpPacket::new(packet) else { return };
    let (is_v4, old) = (read.is_v4(), read.traffic_class());
    let new = new(old);
    if new == old {
        return;
    }
    if is_v4 {
        packet[1] = new;
        let check = !u16::from_be_bytes([packet[10], packet[11]]);
        let changed = u64::from(check) + u64::from(!u16::from(old)) + u64::from(new);
        packet[10..12].copy_from_slice(&(!fold(changed)).to_be_bytes());
    } else {
        packet[0] = packet[0] & 0xf0 | new >> 4;
        packet[1] = packet[1] & 0x0f | new << 4;
    }
}

#[inline]
fn is_extension(protocol: u8) -> bool {
    matches!(protocol, HOP_BY_HOP | ROUTING | FRAGMENT | AUTHENTICATION | DESTINATION)
}

/// The length of an extension header in bytes. None if it is no extension header, or if its first 8 bytes are not
/// complete.
#[inline]
fn extension_bytes(protocol: u8, header: &[u8]) -> Option<usize> {
    let more = usize::from(*header.get(..FRAGMENT_HEADER_BYTES)?.get(1)?);
    match protocol {
        HOP_BY_HOP | ROUTING | DESTINATION => Some(8 * (more + 1)),
        FRAGMENT => Some(FRAGMENT_HEADER_BYTES),
        AUTHENTICATION => Some(4 * (more + 2)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::frame::build::{ipv4, ipv6};
    use crate::rng::Rng;

    fn v4(protocol: u8, word: u16, carried: &[u8]) -> Vec<u8> {
        let packet = ipv4([10, 0, 0, 1], [10, 0, 0, 2]).tos(0xb9).fragment(7, word);
        packet.protocol(protocol).payload(carried).build()
    }

    fn v6(next: u8, carried: &[u8]) -> Vec<u8> {
        let mut packet = ipv6([0x11; 16], [0x22; 16]).protocol(next).payload(carried).build();
        (packet[0], packet[1]) = (0x6b, 0x90);
        packet
    }

    fn upper(packet: &[u8]) -> (u8, &[u8]) {
        let upper = IpPacket::new(packet).expect("an IP packet").upper();
        (upper.protocol, upper.bytes)
    }

    /// If this reader and a host disagree on protocol or bytes, closed traffic would pass.
    #[test]
    fn upper_protocol_skips_extensions() {
        let option = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let proof = |next: u8| [next, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(upper(&v4(17, 0, b"x")), (17, &b"x"[..]));
        assert_eq!(upper(&v4(51, 0, &[&proof(6)[..], b"x"].concat())), (6, &b"x"[..]));
        let all = [&option(60)[..], &option(43), &[51, 0, 0, 0, 0, 0, 0, 0], &proof(17), b"x"].concat();
        assert_eq!(upper(&v6(0, &all)), (17, &b"x"[..]));
        assert_eq!(upper(&v6(50, b"x")), (50, &b"x"[..]), "encrypted content is unknown");
        assert_eq!(upper(&v6(60, &option(17)[..7])), (60, &option(17)[..7]), "the header is truncated");
        assert_eq!(upper(&v6(60, &[17, 9, 0, 0, 0, 0, 0, 0])).0, 60, "it is longer than the packet");
        let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(EXTENSIONS_MAX + 1);
        assert_eq!(upper(&v6(60, &endless)), (60, &endless[8 * EXTENSIONS_MAX..]));
        // Padding does not belong to the packet.
        assert_eq!(upper(&[&v4(17, 0, b"x")[..], &[0; 9]].concat()), (17, &b"x"[..]));
        // Longer than the length field allows.
        let mut big = v4(17, 0, b"xyz");
        big[2..4].fill(0);
        assert_eq!(upper(&big), (17, &b"xyz"[..]));
        assert!(!IpPacket::new(&big).expect("an IP packet").is_complete());
        assert_eq!(IpPacket::new(&v6(17, b"")).expect("an IP packet").length(), None);
    }

    #[test]
    fn fragment_reports_its_part() {
        let part = |packet: &[u8]| IpPacket::new(packet).expect("an IP packet").part();
        let plain =
            Part { id: [0; 4], protocol: 17, offset: 0, bytes: 8, has_more: false, holds_another: false };
        assert_eq!(part(&v4(17, DONT_FRAGMENT, &[0; 8])), None);
        let first = Part { id: [0, 7, 0, 0], has_more: true, ..plain };
        assert_eq!(part(&v4(17, MORE_FRAGMENTS, &[0; 8])), Some(first));
        assert_eq!(part(&v4(17, 3, &[0; 8])), Some(Part { offset: 24, has_more: false, ..first }));
        let header = |word: u16| [17, 0, (word >> 8) as u8, word as u8, 1, 2, 3, 4];
        let of = |word: u16| part(&v6(44, &[&header(word)[..], &[0; 8]].concat()));
        let later = Part { id: [1, 2, 3, 4], offset: 24, ..plain };
        assert_eq!(of(24), Some(later));
        assert_eq!(of(25), Some(Part { has_more: true, ..later }));
        assert_eq!(of(0), None, "it is whole (RFC 6946)");
        let twice = [&[44, 0, 0, 1, 1, 2, 3, 4][..], &header(24)].concat();
        assert!(part(&v6(44, &twice)).is_some_and(|part| part.holds_another && part.offset == 0));
        // The content of a later fragment is not a header.
        let behind = [&[60, 0, 0, 24, 1, 2, 3, 4][..], &[17; 8]].concat();
        assert_eq!(upper(&v6(44, &behind)), (60, &[17; 8][..]));
    }

    #[test]
    fn hop_limit_is_read() {
        let is_last = |packet: &[u8]| IpPacket::new(packet).expect("an IP packet").upper().is_at_last_hop;
        let routed = |left: u8| v6(43, &[17, 0, 0, left, 0, 0, 0, 0]);
        assert!(is_last(&routed(0)) && !is_last(&routed(1)));
        let mut source_route = v4(17, 0, &[131, 3, 4, 0]);
        assert!(is_last(&source_route));
        source_route[0] = 0x46;
        assert!(!is_last(&source_route));
    }

    #[test]
    fn traffic_class_updates_checksum() {
        let mut packet = v4(17, 0, b"x");
        for new in 0..=255 {
            for packet in [&mut packet, &mut v6(17, b"x")] {
                let before = packet.clone();
                change_traffic_class(packet, |_| new);
                let read = IpPacket::new(packet).expect("an IP packet");
                assert_eq!(read.traffic_class(), new);
                assert!(!read.is_v4() || fold(crate::checksum::sum(read.header())) == 0xffff);
                change_traffic_class(packet, |_| before[1]);
            }
        }
        let mut other = [0x45; 19];
        change_traffic_class(&mut other, |_| 0);
        assert_eq!(other, [0x45; 19]);
    }

    /// Any peer can send any frame.
    #[test]
    fn random_bytes_never_panic() {
        let mut rng = Rng::from_seed(7);
        for nth in 0..20_000 {
            let mut packet: Vec<u8> = (0..rng.below(120)).map(|_| rng.bits() as u8).collect();
            if let Some(first) = packet.first_mut() {
                *first = *first & 0xf | if nth % 2 == 0 { 0x40 } else { 0x60 };
            }
            let extensions = [HOP_BY_HOP, ROUTING, FRAGMENT, AUTHENTICATION, DESTINATION];
            for at in [6, 9, 20, 40, 48, 56].into_iter().filter(|at| *at < packet.len()).collect::<Vec<_>>() {
                packet[at] = rng.pick(&extensions);
            }
            let Some(read) = IpPacket::new(&packet) else { continue };
            let upper = read.upper();
            assert!(upper.bytes.len() <= read.payload().len() && read.payload().len() < packet.len());
            assert_eq!(read.part(), upper.part);
            change_traffic_class(&mut packet, |_| rng.bits() as u8);
        }
    }
}
