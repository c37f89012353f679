//! The one reader of IP headers: what the engine knows of a packet without a program.
//!
//! Queues hash flows, links write codepoints, fragments find their packet, and packets are cut, all of that before a
//! program looks or where none does. They know Ethernet with its tags ([`network_at`](crate::frame::network_at)), IPv4
//! and IPv6, and nothing above. What a packet carries is for the program's protocols ([`crate::wire`]).
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
/// Options that every router looks at.
pub const HOP_BY_HOP: u8 = 0;
/// Where the packet is to pass.
pub const ROUTING: u8 = 43;
/// A part of a packet.
pub const FRAGMENT: u8 = 44;
/// Proves who sent the packet; of IPv4 as well.
pub const AUTHENTICATION: u8 = 51;
/// Options that the destination looks at.
pub const DESTINATION: u8 = 60;

/// Extension headers of a packet that are passed over; what stands behind more of them is not known.
pub const EXTENSIONS_MAX: usize = LAYERS_MAX as usize;

const IPV4_HEADER_BYTES: usize = 20;
const IPV6_HEADER_BYTES: usize = 40;
const FRAGMENT_HEADER_BYTES: usize = 8;
/// Of IPv4: do not fragment, more fragments, and the offset of this one in units of 8 bytes.
pub const DONT_FRAGMENT: u16 = 0x4000;
/// See [`DONT_FRAGMENT`].
pub const MORE_FRAGMENTS: u16 = 0x2000;
/// See [`DONT_FRAGMENT`].
pub const FRAGMENT_OFFSET: u16 = 0x1fff;

/// A packet of IPv4 or IPv6 whose first header is there as a whole.
#[derive(Clone, Copy, Debug)]
pub struct IpPacket<'f> {
    /// What every first header has.
    first: &'f [u8; IPV4_HEADER_BYTES],
    /// From the first header on, to the end of the frame.
    bytes: &'f [u8],
    header_bytes: usize,
}

/// What stands behind the headers that are known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Upper<'f> {
    /// Its protocol. That of an extension header if it is cut, or the packet has more than [`EXTENSIONS_MAX`].
    pub protocol: u8,
    /// Its bytes, as far as they are there: of a later fragment, those of the part.
    pub bytes: &'f [u8],
    /// The destination is the last: no source route goes on.
    pub is_at_last_hop: bool,
    /// Which part of a packet it is, if it is not a whole one.
    pub part: Option<Part>,
}

/// A part of a packet that is in fragments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Part {
    /// What all fragments of a packet have in common beside the addresses: of IPv4, the first two bytes.
    pub id: [u8; 4],
    /// What all fragments of the packet carry: the protocol of IPv4, the next header of IPv6's header of a fragment.
    pub protocol: u8,
    /// Bytes of the packet in front of this part.
    pub offset: u32,
    /// Bytes of this part, as far as they are there.
    pub bytes: u32,
    /// There are fragments behind it.
    pub has_more: bool,
    /// The first part, in which there is the header of a fragment once more.
    pub holds_another: bool,
}

impl<'f> IpPacket<'f> {
    /// The packet that begins here. None: it has no version of IP, or its first header is cut or shorter than one.
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

    /// The packet behind the link header of an Ethernet frame and its tags; of a packet without one, all.
    #[inline(always)]
    pub fn of_frame(frame: &'f [u8], is_ip: bool) -> Option<Self> {
        Self::new(frame.get(ip_at(frame, is_ip)?..)?)
    }

    /// It is of IPv4, and else of IPv6.
    #[inline]
    pub fn is_v4(self) -> bool {
        self.first[0] >> 4 == 4
    }

    /// 4 or 6.
    #[inline]
    pub fn version(self) -> u8 {
        self.first[0] >> 4
    }

    /// Its first header, with the options of IPv4.
    #[inline]
    pub fn header(self) -> &'f [u8] {
        &self.bytes[..self.header_bytes]
    }

    /// DSCP, and ECN in the lowest two bits.
    #[inline]
    pub fn traffic_class(self) -> u8 {
        if self.is_v4() { self.first[1] } else { self.first[0] << 4 | self.first[1] >> 4 }
    }

    /// The address of the source: 4 bytes, or 16.
    #[inline]
    pub fn src(self) -> &'f [u8] {
        if self.is_v4() { &self.first[12..16] } else { &self.bytes[8..24] }
    }

    /// The address of the destination: 4 bytes, or 16.
    #[inline]
    pub fn dst(self) -> &'f [u8] {
        if self.is_v4() { &self.first[16..20] } else { &self.bytes[24..40] }
    }

    /// Both addresses, as they stand.
    #[inline]
    pub fn addresses(self) -> &'f [u8] {
        if self.is_v4() { &self.first[12..20] } else { &self.bytes[8..40] }
    }

    /// Bytes of the packet, as its header says. None: a field that is 0 says nothing, as in a packet that is longer
    /// than the field can say (RFC 2675), or that a device is to cut.
    #[inline]
    pub fn length(self) -> Option<usize> {
        match (self.is_v4(), usize::from(self.word(if self.is_v4() { 2 } else { 4 }))) {
            (_, 0) => None,
            (true, length) => Some(length),
            (false, length) => Some(IPV6_HEADER_BYTES + length),
        }
    }

    /// It says how long it is, and is there as a whole.
    #[inline]
    pub fn is_complete(self) -> bool {
        self.length().is_some_and(|length| (self.header_bytes..=self.bytes.len()).contains(&length))
    }

    /// What stands behind its first header, as far as it is there, without what fills the frame up.
    #[inline]
    pub fn payload(self) -> &'f [u8] {
        let end = self.length().map_or(self.bytes.len(), |length| length.min(self.bytes.len()));
        self.bytes.get(self.header_bytes..end).unwrap_or_default()
    }

    /// Of IPv4, flags and offset of a fragment ([`DONT_FRAGMENT`]).
    #[inline]
    pub fn fragment_word(self) -> Option<u16> {
        self.is_v4().then(|| self.word(6))
    }

    /// Which part of a packet it is; None if it is whole. Most packets are, which one comparison shows.
    #[inline]
    pub fn part(self) -> Option<Part> {
        let may_be = match self.fragment_word() {
            Some(word) => word & (MORE_FRAGMENTS | FRAGMENT_OFFSET) != 0,
            None => is_extension(self.first[6]),
        };
        if may_be { self.upper().part } else { None }
    }

    /// What stands behind the headers that are known. Of most packets that is what stands behind the first.
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
            Some(word) => self.behind_ipv4(word),
            None => upper.behind_extensions(),
        }
    }

    #[cold]
    fn behind_ipv4(self, word: u16) -> Upper<'f> {
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
    #[cold]
    fn behind_extensions(mut self) -> Self {
        for _ in 0..EXTENSIONS_MAX {
            let Some(n) = extension_bytes(self.protocol, self.bytes) else { break };
            let Some(behind) = self.bytes.get(n..) else { break };
            let next = self.bytes[0];
            match self.protocol {
                ROUTING => self.is_at_last_hop &= self.bytes[3] == 0,
                FRAGMENT => {
                    let word = u16::from_be_bytes([self.bytes[2], self.bytes[3]]);
                    let (offset, has_more) = (u32::from(word & 0xfff8), word & 1 != 0);
                    // A packet whole in one fragment is as if it had no such header (RFC 6946).
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
            // A later part begins anywhere.
            if self.part.is_some_and(|part| part.offset > 0) {
                break;
            }
        }
        self
    }
}

/// Writes the DSCP and the ECN of the packet that begins here, which are made of those that it has; the checksum of
/// IPv4 follows (RFC 1624). What is no packet of IP stays as it is.
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

/// Bytes of an extension header. None: it is none, or not there as far as its first 8 bytes.
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
    use crate::rng::Rng;

    fn v4(protocol: u8, word: u16, carried: &[u8]) -> Vec<u8> {
        let [high, low] = word.to_be_bytes();
        let length = (20 + carried.len() as u16).to_be_bytes();
        let header = [0x45, 0xb9, length[0], length[1], 0, 7, high, low, 64, protocol, 0, 0];
        [&header[..], &[10, 0, 0, 1, 10, 0, 0, 2], carried].concat()
    }

    fn v6(next: u8, carried: &[u8]) -> Vec<u8> {
        let length = (carried.len() as u16).to_be_bytes();
        [&[0x6b, 0x90, 0, 0, length[0], length[1], next, 64][..], &[0x11; 16], &[0x22; 16], carried].concat()
    }

    fn upper(packet: &[u8]) -> (u8, &[u8]) {
        let upper = IpPacket::new(packet).expect("it is one").upper();
        (upper.protocol, upper.bytes)
    }

    /// A reader that finds another protocol or other bytes than a host finds lets pass what is closed.
    #[test]
    fn upper_protocol_skips_extensions() {
        let option = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
        let proof = |next: u8| [next, 2, 0, 0, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 0];
        assert_eq!(upper(&v4(17, 0, b"x")), (17, &b"x"[..]));
        assert_eq!(upper(&v4(51, 0, &[&proof(6)[..], b"x"].concat())), (6, &b"x"[..]));
        let all = [&option(60)[..], &option(43), &[51, 0, 0, 0, 0, 0, 0, 0], &proof(17), b"x"].concat();
        assert_eq!(upper(&v6(0, &all)), (17, &b"x"[..]));
        assert_eq!(upper(&v6(50, b"x")), (50, &b"x"[..]), "what is encrypted is not known");
        assert_eq!(upper(&v6(60, &option(17)[..7])), (60, &option(17)[..7]), "it is cut");
        assert_eq!(upper(&v6(60, &[17, 9, 0, 0, 0, 0, 0, 0])).0, 60, "it is longer than the packet");
        let endless = [60, 0, 1, 4, 0, 0, 0, 0].repeat(EXTENSIONS_MAX + 1);
        assert_eq!(upper(&v6(60, &endless)), (60, &endless[8 * EXTENSIONS_MAX..]));
        // What fills the frame up is no part of the packet.
        assert_eq!(upper(&[&v4(17, 0, b"x")[..], &[0; 9]].concat()), (17, &b"x"[..]));
        // Longer than its field can say.
        let mut big = v4(17, 0, b"xyz");
        big[2..4].fill(0);
        assert_eq!(upper(&big), (17, &b"xyz"[..]));
        assert!(!IpPacket::new(&big).expect("it is one").is_complete());
        assert_eq!(IpPacket::new(&v6(17, b"")).expect("it is one").length(), None);
    }

    #[test]
    fn fragment_reports_its_part() {
        let part = |packet: &[u8]| IpPacket::new(packet).expect("it is one").part();
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
        // What stands in a later part is no header.
        let behind = [&[60, 0, 0, 24, 1, 2, 3, 4][..], &[17; 8]].concat();
        assert_eq!(upper(&v6(44, &behind)), (60, &[17; 8][..]));
    }

    #[test]
    fn hop_limit_is_read() {
        let is_last = |packet: &[u8]| IpPacket::new(packet).expect("it is one").upper().is_at_last_hop;
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
        let right = !fold(crate::checksum::sum(&packet[..20]));
        packet[10..12].copy_from_slice(&right.to_be_bytes());
        for new in 0..=255 {
            for packet in [&mut packet, &mut v6(17, b"x")] {
                let before = packet.clone();
                change_traffic_class(packet, |_| new);
                let read = IpPacket::new(packet).expect("it is one");
                assert_eq!(read.traffic_class(), new);
                assert!(!read.is_v4() || fold(crate::checksum::sum(read.header())) == 0xffff);
                change_traffic_class(packet, |_| before[1]);
            }
        }
        let mut other = [0x45; 19];
        change_traffic_class(&mut other, |_| 0);
        assert_eq!(other, [0x45; 19]);
    }

    /// Frames come from anybody.
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
