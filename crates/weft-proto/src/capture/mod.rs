//! Capture files: reads and writes pcap and pcapng as bytes.
//!
//! Push the pieces of a file into a [`Reader`], and it returns the packets; a [`Writer`] makes the bytes of a file.
//! Neither opens files.
//!
//! Sources: draft-ietf-opsawg-pcap and draft-ietf-opsawg-pcapng; the link types are those of
//! draft-ietf-opsawg-pcaplinktype.

mod link;
mod read;
mod write;

pub use link::LinkType;
pub use read::{Comments, Fault, Interface, ReadError, Reader, Record};
pub use write::{Packet, Style, WriteError, Writer};

/// Maximum size of a packet in a file; the largest snapshot length of `tcpdump`.
pub const PACKET_BYTES_MAX: usize = 256 << 10;
/// Maximum size of a pcapng block that is read: a packet and its options. Blocks without a packet may be longer; they
/// are skipped.
pub const BLOCK_BYTES_MAX: usize = PACKET_BYTES_MAX + (64 << 10);
/// Maximum number of interfaces in all sections of a file.
pub const INTERFACES_MAX: usize = 1 << 16;
/// Maximum length of a stored interface name.
pub const NAME_BYTES_MAX: usize = 64;
/// Maximum length of a written comment.
pub const COMMENT_BYTES_MAX: usize = 4096;

/// The format of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Format {
    /// One link type, no comments.
    Pcap,
    /// Several interfaces, comments on packets.
    #[default]
    PcapNg,
}

/// The byte order of a file: that of the machine that wrote it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ByteOrder {
    /// Little endian, as on x86 and most ARM.
    #[default]
    Little,
    /// Big endian, the network byte order.
    Big,
}

/// The resolution of the times in a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Unit {
    /// Microseconds; finer parts are truncated.
    Micros,
    /// Nanoseconds.
    #[default]
    Nanos,
}

/// Block types of pcapng.
mod block {
    pub(super) const SECTION: u32 = 0x0a0d_0d0a;
    pub(super) const INTERFACE: u32 = 1;
    /// Obsolete.
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

/// Magic numbers of pcap files.
mod magic {
    pub(super) const MICROS: u32 = 0xa1b2_c3d4;
    pub(super) const NANOS: u32 = 0xa1b2_3c4d;
}
