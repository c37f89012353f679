//! Writes packets as the bytes of a capture file, pcap or pcapng.

use super::{
    ByteOrder, COMMENT_BYTES_MAX, Format, INTERFACES_MAX, LinkType, NAME_BYTES_MAX, PACKET_BYTES_MAX, Unit,
    block, magic, option,
};
use core::fmt;
use weft_core::Time;

/// The style of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Style {
    /// pcap or pcapng.
    pub format: Format,
    /// The byte order of its numbers.
    pub order: ByteOrder,
    /// The resolution of its times.
    pub unit: Unit,
}

impl Style {
    /// The style for a file name: `.pcap` and `.cap` are pcap, all others pcapng.
    pub fn of_name(name: &str) -> Self {
        let is_pcap = name
            .rsplit_once('.')
            .is_some_and(|(_, end)| end.eq_ignore_ascii_case("pcap") || end.eq_ignore_ascii_case("cap"));
        Self { format: if is_pcap { Format::Pcap } else { Format::PcapNg }, ..Self::default() }
    }
}

/// Makes the bytes of a pcap or pcapng file. Each call appends to its vector.
#[derive(Debug)]
pub struct Writer {
    style: Style,
    interfaces: Vec<LinkType>,
}

/// A packet to write.
#[derive(Clone, Copy, Debug, Default)]
pub struct Packet<'a> {
    /// Its time. A time outside of the format's range saturates.
    pub at: Time,
    /// The number of its interface.
    pub interface: u32,
    /// Its length on the wire, if there are fewer bytes here.
    pub original_length: Option<u32>,
    /// Its bytes, at most [`PACKET_BYTES_MAX`].
    pub bytes: &'a [u8],
    /// Comments, each truncated to [`COMMENT_BYTES_MAX`]. A pcap file has no comments.
    pub comments: &'a [&'a str],
}

/// Why nothing was written. The vector is unchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteError {
    /// The packet is longer than [`PACKET_BYTES_MAX`].
    TooLong(usize),
    /// There is no interface with this number.
    NoInterface(u32),
    /// A pcap file has one interface, and no file has more than [`INTERFACES_MAX`].
    TooManyInterfaces,
}

/// Packets are not truncated.
const SNAPSHOT: u32 = PACKET_BYTES_MAX as u32;

impl Writer {
    /// Starts a file with its first interface, number 0.
    pub fn new(style: Style, link: LinkType, name: &str, out: &mut Vec<u8>) -> Self {
        let mut writer = Self { style, interfaces: Vec::new() };
        match style.format {
            Format::Pcap => writer.pcap_header(link, out),
            Format::PcapNg => {
                writer.section_header(out);
                writer.interface_block(link, name, out);
            }
        }
        writer
    }

    /// Adds an interface; returns its number.
    ///
    /// # Errors
    /// [`WriteError::TooManyInterfaces`].
    pub fn interface(&mut self, link: LinkType, name: &str, out: &mut Vec<u8>) -> Result<u32, WriteError> {
        if self.style.format == Format::Pcap || self.interfaces.len() >= INTERFACES_MAX {
            return Err(WriteError::TooManyInterfaces);
        }
        self.interface_block(link, name, out);
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes a packet.
    ///
    /// # Errors
    /// It is too long, or its interface does not exist.
    pub fn write(&mut self, packet: &Packet<'_>, out: &mut Vec<u8>) -> Result<(), WriteError> {
        if packet.bytes.len() > PACKET_BYTES_MAX {
            return Err(WriteError::TooLong(packet.bytes.len()));
        }
        if packet.interface as usize >= self.interfaces.len() {
            return Err(WriteError::NoInterface(packet.interface));
        }
        match self.style.format {
            Format::Pcap => self.pcap_record(packet, out),
            Format::PcapNg => self.packet_block(packet, out),
        }
        Ok(())
    }

    /// Writes the header of a pcap file, and registers its only interface.
    fn pcap_header(&mut self, link: LinkType, out: &mut Vec<u8>) {
        self.interfaces.push(link);
        let magic = match self.style.unit {
            Unit::Micros => magic::MICROS,
            Unit::Nanos => magic::NANOS,
        };
        self.u32(magic, out);
        self.u16(2, out);
        self.u16(4, out);
        // Two unused fields: the time zone, and the accuracy of times.
        self.u32(0, out);
        self.u32(0, out);
        self.u32(SNAPSHOT, out);
        self.u32(u32::from(link.0), out);
    }

    /// Writes a packet with its pcap header.
    fn pcap_record(&self, packet: &Packet<'_>, out: &mut Vec<u8>) {
        let nanos = packet.at.0.max(0) as u64;
        let (seconds, nanos) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
        let fraction = match self.style.unit {
            Unit::Micros => nanos / 1_000,
            Unit::Nanos => nanos,
        };
        self.u32(u32::try_from(seconds).unwrap_or(u32::MAX), out);
        self.u32(fraction as u32, out);
        self.u32(packet.bytes.len() as u32, out);
        self.u32(packet.original_length(), out);
        out.extend_from_slice(packet.bytes);
    }

    /// Writes the section header block, which begins a pcapng file.
    fn section_header(&self, out: &mut Vec<u8>) {
        self.block(block::SECTION, out, |out| {
            self.u32(block::BYTE_ORDER, out);
            self.u16(1, out);
            self.u16(0, out);
            // The length of the section is not known in advance.
            self.u64(u64::MAX, out);
        });
    }

    /// Registers an interface, and writes the block that describes it.
    fn interface_block(&mut self, link: LinkType, name: &str, out: &mut Vec<u8>) {
        self.interfaces.push(link);
        self.block(block::INTERFACE, out, |out| {
            self.u16(link.0, out);
            self.u16(0, out);
            self.u32(SNAPSHOT, out);
            if !name.is_empty() {
                self.option(option::NAME, cut(name, NAME_BYTES_MAX).as_bytes(), out);
            }
            let power = match self.style.unit {
                Unit::Micros => 6,
                Unit::Nanos => 9,
            };
            self.option(option::TIME_UNIT, &[power], out);
            self.option(option::END, &[], out);
        });
    }

    /// Writes a packet as an enhanced packet block, with its comments as options.
    fn packet_block(&self, packet: &Packet<'_>, out: &mut Vec<u8>) {
        let nanos = packet.at.0.max(0) as u64;
        let stamp = match self.style.unit {
            Unit::Micros => nanos / 1_000,
            Unit::Nanos => nanos,
        };
        self.block(block::PACKET, out, |out| {
            self.u32(packet.interface, out);
            self.u32((stamp >> 32) as u32, out);
            self.u32(stamp as u32, out);
            self.u32(packet.bytes.len() as u32, out);
            self.u32(packet.original_length(), out);
            out.extend_from_slice(packet.bytes);
            pad(packet.bytes.len(), out);
            for comment in packet.comments {
                self.option(option::COMMENT, cut(comment, COMMENT_BYTES_MAX).as_bytes(), out);
            }
            if !packet.comments.is_empty() {
                self.option(option::END, &[], out);
            }
        });
    }

    /// A block with a type and a body; the body's length is a multiple of four.
    fn block(&self, kind: u32, out: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
        let start = out.len();
        self.u32(kind, out);
        self.u32(0, out);
        body(out);
        let length = (out.len() + 4 - start) as u32;
        self.u32(length, out);
        out[start + 4..start + 8].copy_from_slice(&self.style.order.bytes_u32(length));
    }

    /// Writes an option of a block, padded to a multiple of four bytes.
    fn option(&self, code: u16, value: &[u8], out: &mut Vec<u8>) {
        self.u16(code, out);
        self.u16(value.len() as u16, out);
        out.extend_from_slice(value);
        pad(value.len(), out);
    }

    fn u16(&self, value: u16, out: &mut Vec<u8>) {
        out.extend_from_slice(&match self.style.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
    }

    fn u32(&self, value: u32, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.style.order.bytes_u32(value));
    }

    fn u64(&self, value: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(&match self.style.order {
            ByteOrder::Little => value.to_le_bytes(),
            ByteOrder::Big => value.to_be_bytes(),
        });
    }
}

impl Packet<'_> {
    fn original_length(&self) -> u32 {
        self.original_length.unwrap_or(self.bytes.len() as u32)
    }
}

impl fmt::Display for WriteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooLong(n) => {
                write!(f, "a packet of {n} bytes is more than the {PACKET_BYTES_MAX} that a capture holds")
            }
            Self::NoInterface(number) => write!(f, "the capture has no interface {number}"),
            Self::TooManyInterfaces => {
                write!(f, "a pcap file has one interface, and a pcapng file at most {INTERFACES_MAX}")
            }
        }
    }
}

impl core::error::Error for WriteError {}

impl ByteOrder {
    fn bytes_u32(self, value: u32) -> [u8; 4] {
        match self {
            Self::Little => value.to_le_bytes(),
            Self::Big => value.to_be_bytes(),
        }
    }
}

fn pad(length: usize, out: &mut Vec<u8>) {
    out.extend_from_slice(&[0; 3][..length.next_multiple_of(4) - length]);
}

/// A prefix of at most `max` bytes, cut between characters.
fn cut(text: &str, max: usize) -> &str {
    &text[..text.floor_char_boundary(max)]
}
