//! Capture files: pcap and pcapng, read and written as bytes.
//!
//! A [`Reader`] is given a file piece by piece and gives the packets in it; a [`Writer`] makes the bytes of a file.
//! Neither opens one.
//!
//! Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; the link types are those of
//! draft-ietf-opsawg-pcaplinktype.

mod link;
mod read;
mod write;

pub use link::LinkType;
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
