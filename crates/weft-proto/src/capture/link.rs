//! Link headers of captured packets, and the position of the network layer after them.
//!
//! Sources: draft-ietf-opsawg-pcaplinktype and the pages that its registry names; IEEE 802.11-2020 section 9.2; IEEE
//! 802-2014 section 9 (SNAP); RFC 1662 (PPP); RFC 2516 (PPPoE); radiotap.org; Linux `nfnetlink_log.h`.

use core::ops::Range;

/// The link type of an interface. The numbers are those of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

/// The EtherType after a link header, and the range of its bytes.
type Network = (u16, Range<usize>);

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_MPLS: u16 = 0x8847;
const ETHERTYPE_MPLS_UPSTREAM: u16 = 0x8848;

impl LinkType {
    /// BSD loopback: the address family in the machine's byte order.
    pub const NULL: Self = Self(0);
    /// An Ethernet header.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with or without the address and control bytes of HDLC.
    pub const PPP: Self = Self(9);
    /// PPP on a serial line: in HDLC or Cisco HDLC framing.
    pub const PPP_HDLC: Self = Self(50);
    /// The PPPoE header, without the Ethernet header.
    pub const PPP_ETHER: Self = Self(51);
    /// An IPv4 or IPv6 header.
    pub const RAW: Self = Self(101);
    /// Cisco HDLC.
    pub const C_HDLC: Self = Self(104);
    /// IEEE 802.11.
    pub const IEEE802_11: Self = Self(105);
    /// OpenBSD loopback: the address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// IEEE 802.11 after the radiotap header.
    pub const RADIOTAP: Self = Self(127);
    /// PPP in the form of pppd: a direction instead of the address.
    pub const PPP_PPPD: Self = Self(166);
    /// PPP after a direction byte.
    pub const PPP_WITH_DIRECTION: Self = Self(204);
    /// Cisco HDLC after a direction byte.
    pub const C_HDLC_WITH_DIRECTION: Self = Self(205);
    /// MPLS labels.
    pub const MPLS: Self = Self(219);
    /// An IPv4 header.
    pub const IPV4: Self = Self(228);
    /// An IPv6 header.
    pub const IPV6: Self = Self(229);
    /// A log message of a Linux firewall rule.
    pub const NFLOG: Self = Self(239);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// Raw IP in files of old systems, which did not use the registry's number.
    const OLD_RAW: [Self; 2] = [Self(12), Self(14)];

    /// The link types that [`LinkType::network`] supports, with their names.
    const KNOWN: [(Self, &'static str); 21] = [
        (Self::NULL, "BSD loopback"),
        (Self::ETHERNET, "Ethernet"),
        (Self::PPP, "PPP"),
        (Self::OLD_RAW[0], "raw IP"),
        (Self::OLD_RAW[1], "raw IP"),
        (Self::PPP_HDLC, "PPP"),
        (Self::PPP_ETHER, "PPPoE"),
        (Self::RAW, "raw IP"),
        (Self::C_HDLC, "Cisco HDLC"),
        (Self::IEEE802_11, "IEEE 802.11"),
        (Self::LOOP, "BSD loopback"),
        (Self::LINUX_SLL, "Linux cooked"),
        (Self::RADIOTAP, "IEEE 802.11 with radiotap"),
        (Self::PPP_PPPD, "PPP"),
        (Self::PPP_WITH_DIRECTION, "PPP"),
        (Self::C_HDLC_WITH_DIRECTION, "Cisco HDLC"),
        (Self::MPLS, "MPLS"),
        (Self::IPV4, "raw IPv4"),
        (Self::IPV6, "raw IPv6"),
        (Self::NFLOG, "Linux NFLOG"),
        (Self::LINUX_SLL2, "Linux cooked"),
    ];

    /// Whether [`LinkType::network`] supports this link header.
    pub fn is_known(self) -> bool {
        Self::KNOWN.iter().any(|(known, _)| *known == self)
    }

    /// Finds the EtherType after the link header, and the range of its bytes. `None`: the link type is not supported,
    /// the packet is shorter than its header, or it has no network layer, such as a management frame of 802.11.
    pub fn network(self, packet: &[u8]) -> Option<Network> {
        let end = packet.len();
        let typed = |at: usize, header: usize| Some((word(packet, at)?, header..end));
        let (ethertype, range) = match self {
            Self::ETHERNET => typed(12, 14)?,
            Self::LINUX_SLL => typed(14, 16)?,
            Self::LINUX_SLL2 => typed(0, 20)?,
            Self::IPV4 => (ETHERTYPE_IPV4, 0..end),
            Self::IPV6 => (ETHERTYPE_IPV6, 0..end),
            Self::MPLS => (ETHERTYPE_MPLS, 0..end),
            Self::C_HDLC => typed(2, 4)?,
            Self::C_HDLC_WITH_DIRECTION => typed(3, 5)?,
            Self::PPP_HDLC if matches!(packet.first(), Some(0x0f | 0x8f)) => typed(2, 4)?,
            Self::PPP | Self::PPP_HDLC if packet.starts_with(&[0xff, 0x03]) => ppp(packet, 2)?,
            Self::PPP | Self::PPP_HDLC => ppp(packet, 0)?,
            Self::PPP_WITH_DIRECTION if packet.get(1..3) == Some(&[0xff, 0x03]) => ppp(packet, 3)?,
            Self::PPP_WITH_DIRECTION => ppp(packet, 1)?,
            Self::PPP_PPPD => ppp(packet, 2)?,
            Self::PPP_ETHER => pppoe(packet)?,
            Self::NULL | Self::LOOP => (bsd_family(packet)?, 4..end),
            Self::IEEE802_11 => ieee802_11(packet, 0..end, false)?,
            Self::RADIOTAP => radiotap(packet)?,
            Self::NFLOG => nflog(packet)?,
            raw if raw == Self::RAW || Self::OLD_RAW.contains(&raw) => match packet.first()? >> 4 {
                4 => (ETHERTYPE_IPV4, 0..end),
                6 => (ETHERTYPE_IPV6, 0..end),
                _ => return None,
            },
            _ => return None,
        };
        (range.start <= range.end && range.end <= end).then_some((ethertype, range))
    }
}

fn word(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..)?.first_chunk().copied().map(u16::from_be_bytes)
}

fn little(packet: &[u8], at: usize) -> Option<u16> {
    packet.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

/// Reads an address family in either byte order: no family number is large enough to confuse the orders.
fn bsd_family(packet: &[u8]) -> Option<u16> {
    let family: [u8; 4] = *packet.first_chunk()?;
    let family = u32::from_le_bytes(family).min(u32::from_be_bytes(family));
    match family {
        2 => Some(ETHERTYPE_IPV4),
        // Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => Some(ETHERTYPE_IPV6),
        _ => None,
    }
}

/// PPP from its protocol number on. The number's upper byte may be absent if it is 0.
fn ppp(packet: &[u8], at: usize) -> Option<Network> {
    let first = *packet.get(at)?;
    let (protocol, bytes) = if first & 1 == 1 { (u16::from(first), 1) } else { (word(packet, at)?, 2) };
    let ethertype = match protocol {
        0x0021 => ETHERTYPE_IPV4,
        0x0057 => ETHERTYPE_IPV6,
        0x0281 => ETHERTYPE_MPLS,
        0x0283 => ETHERTYPE_MPLS_UPSTREAM,
        _ => return None,
    };
    Some((ethertype, at + bytes..packet.len()))
}

/// A PPPoE session frame; discovery frames contain no PPP.
fn pppoe(packet: &[u8]) -> Option<Network> {
    let (header, length) = (word(packet, 0)?, usize::from(word(packet, 4)?));
    let (ethertype, range) = ppp(packet, 6).filter(|_| header == 0x1100)?;
    Some((ethertype, range.start..range.end.min(6 + length)))
}

/// LLC with SNAP, which contains an EtherType.
fn snap(packet: &[u8], range: Range<usize>) -> Option<Network> {
    let header = packet.get(range.clone())?.first_chunk::<8>()?;
    // The organisation is 0, or that of bridge tunnels, which carry AppleTalk and IPX.
    let is_ethertype = matches!(header[..6], [0xaa, 0xaa, 3, 0, 0, 0 | 0xf8]);
    is_ethertype.then(|| (u16::from_be_bytes([header[6], header[7]]), range.start + 8..range.end))
}

/// Finds the network layer of an unencrypted data frame with a single, unfragmented packet.
fn ieee802_11(packet: &[u8], range: Range<usize>, is_padded: bool) -> Option<Network> {
    let frame = packet.get(range.clone())?;
    let [control, flags] = *frame.first_chunk()?;
    let (is_data, has_none) = (control & 0x0f == 0x08, control & 0x40 != 0);
    let (has_qos, is_encrypted) = (control & 0x80 != 0, flags & 0x40 != 0);
    let is_later = little(frame, 22)? & 0x000f != 0;
    if !is_data || has_none || is_encrypted || is_later {
        return None;
    }
    let mut header = 24;
    // A frame between access points has a fourth address.
    header += if flags & 0x03 == 0x03 { 6 } else { 0 };
    if has_qos {
        let has_several = frame.get(header)? & 0x80 != 0;
        // HT control.
        header += if flags & 0x80 != 0 { 6 } else { 2 };
        if has_several {
            return None;
        }
    }
    if is_padded {
        header = header.next_multiple_of(4);
    }
    snap(packet, range.start + header..range.end)
}

/// The bits of radiotap's first word, and of its flags.
mod radio {
    pub(super) const TSFT: u32 = 1;
    pub(super) const FLAGS: u32 = 1 << 1;
    pub(super) const MORE: u32 = 1 << 31;
    pub(super) const HAS_FCS: u8 = 0x10;
    pub(super) const IS_PADDED: u8 = 0x20;
}

/// Finds the network layer of an IEEE 802.11 packet that begins with a radiotap header. None if the packet has none,
/// or is too short.
fn radiotap(packet: &[u8]) -> Option<Network> {
    let length = usize::from(little(packet, 2)?);
    let header = packet.get(..length)?;
    let present = |nth: usize| header.get(4 + 4 * nth..)?.first_chunk().copied().map(u32::from_le_bytes);
    let first = present(0)?;
    let mut words = 1;
    while present(words - 1)? & radio::MORE != 0 {
        words += 1;
    }
    let mut at = 4 + 4 * words;
    if first & radio::TSFT != 0 {
        at = at.next_multiple_of(8) + 8;
    }
    let flags = if first & radio::FLAGS != 0 { *header.get(at)? } else { 0 };
    let fcs = if flags & radio::HAS_FCS != 0 { 4 } else { 0 };
    let end = packet.len().checked_sub(fcs)?;
    ieee802_11(packet, length..end, flags & radio::IS_PADDED != 0)
}

/// The attribute number of the packet in NFLOG, and the numbers of address families.
const NFLOG_PAYLOAD: u16 = 9;
const NFLOG_IPV4: u8 = 2;
const NFLOG_IPV6: u8 = 10;

/// Attributes, each with length and number in the machine's byte order, which is not stated: it is the order in which
/// the lengths lead to a packet.
fn nflog(packet: &[u8]) -> Option<Network> {
    let ethertype = match *packet.first()? {
        NFLOG_IPV4 => ETHERTYPE_IPV4,
        NFLOG_IPV6 => ETHERTYPE_IPV6,
        _ => return None,
    };
    let payload_by = |order: fn(&[u8], usize) -> Option<u16>| {
        let mut at = 4;
        loop {
            let (length, what) = (usize::from(order(packet, at)?), order(packet, at + 2)?);
            let end = at.checked_add(length).filter(|end| length >= 4 && *end <= packet.len())?;
            if what == NFLOG_PAYLOAD {
                return Some(at + 4..end);
            }
            at += length.next_multiple_of(4);
        }
    };
    Some((ethertype, payload_by(little).or_else(|| payload_by(word))?))
}

impl core::fmt::Display for LinkType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match Self::KNOWN.iter().find(|(known, _)| known == self) {
            Some((_, name)) => f.write_str(name),
            None => write!(f, "link type {}", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const SNAP: [u8; 8] = [0xaa, 0xaa, 3, 0, 0, 0, 8, 0];

    #[test]
    fn network_layer_follows_link_header() {
        // If this failed, captures of `tcpdump -i any` or of a tunnel could not be replayed.
        let mut sll2 = vec![0x86, 0xdd];
        sll2.resize(20, 0);
        let mut ethernet = vec![0; 12];
        ethernet.extend([0x81, 0, 0, 1]);
        type Case<'a> = (LinkType, &'a [u8], Option<(u16, Range<usize>)>);
        let cases: &[Case<'_>] = &[
            (LinkType::ETHERNET, &ethernet, Some((0x8100, 14..16))),
            (LinkType::ETHERNET, &ethernet[..13], None),
            (LinkType::RAW, &[0x45], Some((0x0800, 0..1))),
            (LinkType(12), &[0x60], Some((0x86dd, 0..1))),
            (LinkType::RAW, &[0x10], None),
            (LinkType::RAW, &[], None),
            (LinkType::NULL, &[2, 0, 0, 0, 0x45], Some((0x0800, 4..5))),
            (LinkType::NULL, &[0, 0, 0, 30], Some((0x86dd, 4..4))),
            (LinkType::LOOP, &[0, 0, 0, 24], Some((0x86dd, 4..4))),
            (LinkType::LINUX_SLL2, &sll2, Some((0x86dd, 20..20))),
            (LinkType::LINUX_SLL2, &sll2[..19], None),
            (LinkType::PPP, &[0xff, 3, 0, 0x57, 0x60], Some((0x86dd, 4..5))),
            (LinkType::PPP, &[0, 0x21], Some((0x0800, 2..2))),
            (LinkType::PPP, &[0x21, 0x45], Some((0x0800, 1..2))),
            (LinkType::PPP, &[0xff, 3, 0xc0, 0x21], None),
            (LinkType::PPP_HDLC, &[0xff, 3, 2, 0x81, 9], Some((0x8847, 4..5))),
            (LinkType::PPP_HDLC, &[0x0f, 0, 8, 0, 0x45], Some((0x0800, 4..5))),
            (LinkType::PPP_PPPD, &[1, 3, 0, 0x21, 0x45], Some((0x0800, 4..5))),
            (LinkType::PPP_WITH_DIRECTION, &[1, 0xff, 3, 0, 0x21, 0x45], Some((0x0800, 5..6))),
            (LinkType::PPP_ETHER, &[0x11, 0, 0, 1, 0, 3, 0, 0x21, 0x45, 0, 0], Some((0x0800, 8..9))),
            (LinkType::PPP_ETHER, &[0x11, 9, 0, 1, 0, 3, 0, 0x21, 0x45], None),
            (LinkType::C_HDLC, &[0x0f, 0, 8, 0, 0x45], Some((0x0800, 4..5))),
            (LinkType::C_HDLC_WITH_DIRECTION, &[0, 0x0f, 0, 8, 0, 0x45], Some((0x0800, 5..6))),
            (LinkType::MPLS, &[0, 1, 1, 64], Some((0x8847, 0..4))),
            (
                LinkType::NFLOG,
                &[2, 0, 0, 7, 5, 0, 10, 0, b'x', 0, 0, 0, 5, 0, 9, 0, 0x45],
                Some((0x0800, 16..17)),
            ),
            (LinkType::NFLOG, &[10, 0, 0, 7, 0, 5, 0, 9, 0x60], Some((0x86dd, 8..9))),
            (LinkType::NFLOG, &[2, 0, 0, 7, 3, 0, 9, 0, 0x45], None),
            (LinkType(147), &[0; 64], None),
        ];
        for (link, packet, wanted) in cases {
            assert_eq!(link.network(packet), *wanted, "{link} {packet:02x?}");
            assert_eq!(link.is_known(), *link != LinkType(147));
        }
    }

    #[test]
    fn clear_802_11_frame_has_one_packet() {
        // If this failed, a radio capture could not be replayed, or encrypted bytes were read as IP.
        let frame = |control: [u8; 2], sequence: u8, more: &[u8]| {
            let mut frame = control.to_vec();
            frame.resize(22, 7);
            frame.extend([sequence, 0]);
            [&frame[..], more, &SNAP, &[0x45]].concat()
        };
        let at = |frame: &[u8]| LinkType::IEEE802_11.network(frame);
        assert_eq!(at(&frame([0x08, 1], 0x10, &[])), Some((0x0800, 32..33)));
        assert_eq!(at(&frame([0x08, 3], 0, &[9; 6])), Some((0x0800, 38..39)));
        assert_eq!(at(&frame([0x88, 2], 0, &[0, 0])), Some((0x0800, 34..35)));
        assert_eq!(at(&frame([0x88, 0x82], 0, &[0; 6])), Some((0x0800, 38..39)));
        for refused in [
            frame([0x88, 2], 0, &[0x80, 0]),
            frame([0x08, 0x41], 0, &[]),
            frame([0x48, 1], 0, &[]),
            frame([0x80, 0], 0, &[]),
            frame([0x08, 1], 1, &[]),
        ] {
            assert_eq!(at(&refused), None, "{refused:02x?}");
        }
        // A clock, flags with a check sequence and padding, and a second presence word.
        let mut radio = vec![0, 0, 25, 0, 3, 0, 0, 0x80, 0, 0, 0, 0, 0, 0, 0, 0];
        radio.extend([9; 8]);
        radio.push(0x30);
        let padded = [&radio[..], &frame([0x88, 2], 0, &[0, 0, 0, 0]), &[1, 2, 3, 4]].concat();
        assert_eq!(LinkType::RADIOTAP.network(&padded), Some((0x0800, 61..62)));
        assert_eq!(LinkType::RADIOTAP.network(&padded[..24]), None);
    }

    proptest! {
        /// If this failed, a capture could end a replay.
        #[test]
        fn random_frame_never_panics(link in 0..LinkType::KNOWN.len(), packet: Vec<u8>) {
            let link = LinkType::KNOWN[link].0;
            if let Some((_, range)) = link.network(&packet) {
                prop_assert!(packet.get(range).is_some());
            }
        }
    }
}
