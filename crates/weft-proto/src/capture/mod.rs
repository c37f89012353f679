//! Capture files: pcap and pcapng, read and written as bytes.
//!
//! A [`Reader`] is given a file piece by piece and gives the packets in it; a [`Writer`] makes the bytes of a file.
//! Neither opens one.
//!
//! Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; the link types are those of
//! draft-ietf-opsawg-pcaplinktype.

mod read;
mod write;

pub use read::{Comments, Fault, Interface, ReadError, Reader, Record};
pub use write::{Packet, Style, WriteError, Writer};

/// Bytes of one packet in a file; it is the longest snapshot that `tcpdump` takes.
pub const PACKET_BYTES_MAX: usize = 256 << 10;
/// Bytes of a pcapng block that is read: a packet and what is said of it. Blocks that tell of no packet may be longer;
/// they are passed over.
pub const BLOCK_BYTES_MAX: usize = PACKET_BYTES_MAX + (64 << 10);
/// Interfaces of all sections of a file.
pub const INTERFACES_MAX: usize = 1 << 16;
/// Bytes of the name of an interface that are kept.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a comment that are written.
pub const COMMENT_BYTES_MAX: usize = 4096;

/// The kind of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One link type, no comments.
    Pcap,
    /// Several interfaces, comments on packets.
    #[default]
    PcapNg,
}

/// The byte order of a file: that of the machine on which it was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// As x86 and most ARM have it.
    #[default]
    Little,
    /// As the network has it.
    Big,
}

/// The unit of the times in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds; what is finer is cut off.
    Micros,
    /// Nanoseconds.
    #[default]
    Nanos,
}

/// What the packets of an interface begin with. The numbers are those of the registry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkType(pub u16);

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

impl LinkType {
    /// BSD loopback: the address family in the byte order of the machine.
    pub const NULL: Self = Self(0);
    /// An Ethernet header.
    pub const ETHERNET: Self = Self(1);
    /// PPP, with the address and control bytes of HDLC in front or without.
    pub const PPP: Self = Self(9);
    /// An IPv4 or IPv6 header.
    pub const RAW: Self = Self(101);
    /// Cisco HDLC.
    pub const C_HDLC: Self = Self(104);
    /// OpenBSD loopback: the address family in network order.
    pub const LOOP: Self = Self(108);
    /// Linux "cooked" capture, version 1.
    pub const LINUX_SLL: Self = Self(113);
    /// An IPv4 header.
    pub const IPV4: Self = Self(228);
    /// An IPv6 header.
    pub const IPV6: Self = Self(229);
    /// Linux "cooked" capture, version 2.
    pub const LINUX_SLL2: Self = Self(276);

    /// Raw IP in files of old systems, where the number of the registry was not used.
    const OLD_RAW: [Self; 2] = [Self(12), Self(14)];

    /// Those that [`LinkType::network`] knows.
    const KNOWN: [Self; 12] = [
        Self::NULL,
        Self::ETHERNET,
        Self::PPP,
        Self::OLD_RAW[0],
        Self::OLD_RAW[1],
        Self::RAW,
        Self::C_HDLC,
        Self::LOOP,
        Self::LINUX_SLL,
        Self::IPV4,
        Self::IPV6,
        Self::LINUX_SLL2,
    ];

    /// [`LinkType::network`] can look behind this link header.
    pub fn is_known(self) -> bool {
        Self::KNOWN.contains(&self)
    }

    /// The EtherType of what is behind the link header, and where it begins. `None`: it is no link type that is known
    /// here, or the packet is shorter than its header.
    pub fn network(self, packet: &[u8]) -> Option<(u16, usize)> {
        let word = |at: usize| Some(u16::from_be_bytes(packet.get(at..at + 2)?.try_into().ok()?));
        let (ethertype, at) = match self {
            Self::ETHERNET => (word(12)?, 14),
            Self::LINUX_SLL => (word(14)?, 16),
            Self::LINUX_SLL2 => (word(0)?, 20),
            Self::IPV4 => (ETHERTYPE_IPV4, 0),
            Self::IPV6 => (ETHERTYPE_IPV6, 0),
            Self::C_HDLC => (word(2)?, 4),
            Self::PPP => {
                let at = if packet.starts_with(&[0xff, 0x03]) { 2 } else { 0 };
                (ppp_ethertype(word(at)?)?, at + 2)
            }
            Self::NULL | Self::LOOP => (family_ethertype(packet)?, 4),
            raw if raw == Self::RAW || Self::OLD_RAW.contains(&raw) => match packet.first()? >> 4 {
                4 => (ETHERTYPE_IPV4, 0),
                6 => (ETHERTYPE_IPV6, 0),
                _ => return None,
            },
            _ => return None,
        };
        (at <= packet.len()).then_some((ethertype, at))
    }
}

/// An address family in either byte order: no family is so large that the orders could be confused.
fn family_ethertype(packet: &[u8]) -> Option<u16> {
    let family: [u8; 4] = packet.get(..4)?.try_into().ok()?;
    let family = u32::from_le_bytes(family).min(u32::from_be_bytes(family));
    match family {
        2 => Some(ETHERTYPE_IPV4),
        // Linux, NetBSD and OpenBSD, FreeBSD, macOS.
        10 | 24 | 28 | 30 => Some(ETHERTYPE_IPV6),
        _ => None,
    }
}

/// The EtherType of a PPP protocol number.
fn ppp_ethertype(protocol: u16) -> Option<u16> {
    match protocol {
        0x0021 => Some(ETHERTYPE_IPV4),
        0x0057 => Some(ETHERTYPE_IPV6),
        _ => None,
    }
}

impl core::fmt::Display for LinkType {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        let name = match *self {
            Self::NULL | Self::LOOP => "BSD loopback",
            Self::ETHERNET => "Ethernet",
            Self::PPP => "PPP",
            Self::C_HDLC => "Cisco HDLC",
            raw if raw == Self::RAW || Self::OLD_RAW.contains(&raw) => "raw IP",
            Self::LINUX_SLL | Self::LINUX_SLL2 => "Linux cooked",
            Self::IPV4 => "raw IPv4",
            Self::IPV6 => "raw IPv6",
            Self(number) => return write!(f, "link type {number}"),
        };
        f.write_str(name)
    }
}

/// Block types of pcapng.
mod block {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    /// Not written any more.
    pub(super) const OLD_PACKET: u32 = 2;
    pub(super) const SIMPLE_PACKET: u32 = 3;
    pub(super) const PACKET: u32 = 6;
    pub(super) const BYTE_ORDER: u32 = 0x1a2b_3c4d;
}

/// Options of pcapng blocks.
mod option {
    pub(super) const END: u16 = 0;
    pub(super) const COMMENT: u16 = 1;
    pub(super) const NAME: u16 = 2;
    pub(super) const TIME_UNIT: u16 = 9;
    pub(super) const FCS: u16 = 13;
    pub(super) const TIME_OFFSET: u16 = 14;
}

/// The first words of pcap files.
mod magic {
    pub(super) const MICROS: u32 = 0xa1b2_c3d4;
    pub(super) const NANOS: u32 = 0xa1b2_3c4d;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_network_layer_is_found_behind_each_link_header() {
        // If this failed, captures of `tcpdump -i any` or of a tunnel could not be replayed.
        let mut sll2 = vec![0x86, 0xdd];
        sll2.resize(20, 0);
        let mut ethernet = vec![0; 12];
        ethernet.extend([0x81, 0, 0, 1]);
        type Case<'a> = (LinkType, &'a [u8], Option<(u16, usize)>);
        let cases: [Case<'_>; 15] = [
            (LinkType::ETHERNET, &ethernet, Some((0x8100, 14))),
            (LinkType::ETHERNET, &ethernet[..13], None),
            (LinkType::RAW, &[0x45], Some((0x0800, 0))),
            (LinkType(12), &[0x60], Some((0x86dd, 0))),
            (LinkType::RAW, &[0x10], None),
            (LinkType::RAW, &[], None),
            (LinkType::NULL, &[2, 0, 0, 0, 0x45], Some((0x0800, 4))),
            (LinkType::NULL, &[0, 0, 0, 30], Some((0x86dd, 4))),
            (LinkType::LOOP, &[0, 0, 0, 24], Some((0x86dd, 4))),
            (LinkType::LINUX_SLL2, &sll2, Some((0x86dd, 20))),
            (LinkType::LINUX_SLL2, &sll2[..19], None),
            (LinkType::PPP, &[0xff, 3, 0, 0x57, 0x60], Some((0x86dd, 4))),
            (LinkType::PPP, &[0, 0x21], Some((0x0800, 2))),
            (LinkType::C_HDLC, &[0x0f, 0, 8, 0, 0x45], Some((0x0800, 4))),
            (LinkType(147), &[0; 64], None),
        ];
        for (link, packet, wanted) in cases {
            assert_eq!(link.network(packet), wanted, "{link} {packet:02x?}");
            assert_eq!(link.is_known(), link != LinkType(147));
        }
    }
}
