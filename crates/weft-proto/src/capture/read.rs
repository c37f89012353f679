//! Reads the packets of a capture file, pcap or pcapng, from its bytes as they arrive.

use super::{
    BLOCK_BYTES_MAX, ByteOrder, Format, INTERFACES_MAX, LinkType, NAME_BYTES_MAX, PACKET_BYTES_MAX, block,
    magic, option,
};
use core::fmt;
use core::ops::Range;
use weft_core::Time;

/// Reads a pcap or pcapng file in pieces.
///
/// Call [`Reader::push`] with the next bytes, then [`Reader::next`] until it returns `None`. At the end of the file,
/// [`Reader::finish`] checks that it is complete. The reader holds a piece and at most one block.
///
/// ```
/// use weft_core::Time;
/// use weft_proto::capture::{LinkType, Packet, Reader, Style, Writer};
///
/// let mut file = Vec::new();
/// let mut writer = Writer::new(Style::default(), LinkType::RAW, "tun0", &mut file);
/// writer.write(&Packet { at: Time(5), bytes: b"E...", ..Packet::default() }, &mut file).unwrap();
///
/// let mut reader = Reader::new();
/// for piece in file.chunks(7) {
///     reader.push(piece);
///     while let Some(record) = reader.next().unwrap() {
///         assert_eq!((record.at, record.link, record.bytes), (Some(Time(5)), LinkType::RAW, &b"E..."[..]));
///     }
/// }
/// assert_eq!(reader.finish(), Ok(1));
/// ```
#[derive(Debug, Default)]
pub struct Reader {
    /// Pushed bytes that may still be needed.
    buffer: Vec<u8>,
    /// Number of consumed bytes in the buffer.
    taken: usize,
    /// Number of bytes before the buffer.
    passed: u64,
    /// Remaining bytes of a block to skip, which are not pushed yet.
    skip: u64,
    /// The start of that block.
    skipped_at: u64,
    state: State,
    interfaces: Vec<Interface>,
    /// The first interface of the section.
    section: usize,
    records: u64,
    failed: Option<ReadError>,
}

/// A flag in a pcap file's link type: from bit [`FCS_WORDS_AT`] on it contains the length of frame check sequences, in
/// words of 16 bits. Source: draft-ietf-opsawg-pcap section 4.
const HAS_FCS: u32 = 1 << 26;
const FCS_WORDS_AT: u32 = 28;

/// A packet of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    /// The capture time, if the file has it.
    pub at: Option<Time>,
    /// The index of its interface in [`Reader::interfaces`].
    pub interface: u32,
    /// Its link type.
    pub link: LinkType,
    /// Its length on the wire; the file may have fewer bytes.
    pub original_length: u32,
    /// The captured bytes.
    pub bytes: &'a [u8],
    order: ByteOrder,
    options: &'a [u8],
}

/// An interface of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    /// Its link type.
    pub link: LinkType,
    /// Its name; empty if the file has none.
    pub name: String,
    /// Maximum number of captured bytes per packet; 0: unlimited.
    snapshot: u32,
    /// The length of the frame check sequence, which is not part of a packet.
    fcs_bytes: u32,
    ticks: Ticks,
    offset_s: i64,
}

/// The comments on a packet, in order.
#[derive(Clone, Debug)]
pub struct Comments<'a> {
    order: ByteOrder,
    options: &'a [u8],
}

/// Why the rest of a file cannot be read. The packets before were returned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReadError {
    /// The offset of the faulty record, or of the end of the file.
    pub at: u64,
    /// Number of packets before it.
    pub records: u64,
    /// The error.
    pub fault: Fault,
}

/// An error in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It ends within a record or a header.
    Cut {
        /// The available bytes.
        have: u64,
    },
    /// It is empty.
    Empty,
    /// It does not begin like a capture.
    NotACapture([u8; 4]),
    /// An unsupported version of the format.
    Version(u16, u16),
    /// An item exceeds its limit.
    TooLong {
        /// The item.
        what: &'static str,
        /// Its stated length.
        length: u64,
        /// The limit.
        max: u64,
    },
    /// A rule of the format is violated.
    Malformed(&'static str),
}

#[derive(Clone, Copy, Debug, Default)]
enum State {
    #[default]
    Start,
    Pcap(ByteOrder),
    PcapNg(ByteOrder),
}

/// The unit of time of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ticks {
    /// Units per second.
    PerSecond(u64),
    /// 2 to this power units per second.
    PerSecondLog2(u8),
}

/// A record, as ranges of the buffer.
struct RawRecord {
    at: Option<Time>,
    interface: usize,
    original_length: u32,
    bytes: Range<usize>,
    options: Range<usize>,
}

/// The result of parsing at the buffer's start.
enum Step {
    /// More bytes are needed.
    More,
    /// A header or a block without a packet.
    Other,
    Packet(RawRecord),
}

impl Reader {
    /// A reader at the start of a file.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the next bytes of the file.
    pub fn push(&mut self, bytes: &[u8]) {
        let skipped = usize::try_from(self.skip).unwrap_or(usize::MAX).min(bytes.len());
        if self.skip > 0 {
            self.passed += skipped as u64;
            self.skip -= skipped as u64;
        }
        if self.taken > 0 {
            self.passed += self.taken as u64;
            self.buffer.drain(..self.taken);
            self.taken = 0;
        }
        self.buffer.extend_from_slice(&bytes[skipped..]);
    }

    /// The next packet. `None`: more bytes are needed.
    ///
    /// # Errors
    /// The rest of the file cannot be read. Later calls return the same error.
    #[expect(
        clippy::should_implement_trait,
        reason = "a record borrows the reader, as no iterator's item can"
    )]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, ReadError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let found = loop {
            match self.step() {
                Ok(Step::More) => return Ok(None),
                Ok(Step::Other) => (),
                Ok(Step::Packet(found)) => break found,
                Err(fault) => {
                    let error = self.error(fault);
                    self.failed = Some(error.clone());
                    return Err(error);
                }
            }
        };
        self.records += 1;
        let interface = &self.interfaces[found.interface];
        let original_length = found.original_length.saturating_sub(interface.fcs_bytes);
        let captured = &self.buffer[found.bytes];
        Ok(Some(Record {
            at: found.at,
            interface: found.interface as u32,
            link: interface.link,
            original_length,
            // A truncated frame may contain only a part of its check sequence.
            bytes: match interface.fcs_bytes {
                0 => captured,
                _ => &captured[..captured.len().min(original_length as usize)],
            },
            order: self.order(),
            options: &self.buffer[found.options],
        }))
    }

    /// Ends the file; returns its number of packets.
    ///
    /// # Errors
    /// The file ends within a record, or could not be read earlier.
    pub fn finish(&self) -> Result<u64, ReadError> {
        if let Some(error) = &self.failed {
            return Err(error.clone());
        }
        let end = self.passed + self.buffer.len() as u64;
        let start = if self.skip > 0 { self.skipped_at } else { self.position() };
        let is_empty = self.passed == 0 && self.buffer.is_empty();
        if !is_empty && start == end {
            return Ok(self.records);
        }
        let fault = if is_empty { Fault::Empty } else { Fault::Cut { have: end - start } };
        Err(ReadError { at: end, records: self.records, fault })
    }

    /// All interfaces so far, in the order of their sections.
    pub fn interfaces(&self) -> &[Interface] {
        &self.interfaces
    }

    /// The file's format, once its first bytes are read.
    pub fn format(&self) -> Option<Format> {
        match self.state {
            State::Start => None,
            State::Pcap(_) => Some(Format::Pcap),
            State::PcapNg(_) => Some(Format::PcapNg),
        }
    }

    /// The offset of the end of the last returned packet.
    pub fn position(&self) -> u64 {
        self.passed + self.taken as u64
    }

    /// Number of returned packets.
    pub fn records(&self) -> u64 {
        self.records
    }

    fn error(&self, fault: Fault) -> ReadError {
        ReadError { at: self.position(), records: self.records, fault }
    }

    /// Returns the byte order of the current section or file.
    fn order(&self) -> ByteOrder {
        match self.state {
            State::Start => ByteOrder::default(),
            State::Pcap(order) | State::PcapNg(order) => order,
        }
    }

    /// Reads the next header, block or packet, whichever the state expects. `More` if bytes are missing.
    fn step(&mut self) -> Result<Step, Fault> {
        if self.skip > 0 || self.taken == self.buffer.len() {
            return Ok(Step::More);
        }
        match self.state {
            State::Start => self.start(),
            State::Pcap(order) => self.pcap_record(order),
            State::PcapNg(order) => self.block(order),
        }
    }

    /// The next `n` unconsumed bytes, if available.
    fn have(&self, n: usize) -> Option<&[u8]> {
        self.buffer.get(self.taken..self.taken + n)
    }

    /// Recognises the format from the first bytes, and reads the header of a pcap file.
    fn start(&mut self) -> Result<Step, Fault> {
        let Some(first) = self.have(4) else { return Ok(Step::More) };
        let first: [u8; 4] = first.try_into().expect("there are four");
        let (order, per_second) = match u32::from_le_bytes(first) {
            block::SECTION => {
                self.state = State::PcapNg(ByteOrder::Little);
                return Ok(Step::Other);
            }
            magic::MICROS => (ByteOrder::Little, 1_000_000),
            magic::NANOS => (ByteOrder::Little, 1_000_000_000),
            swapped if swapped.swap_bytes() == magic::MICROS => (ByteOrder::Big, 1_000_000),
            swapped if swapped.swap_bytes() == magic::NANOS => (ByteOrder::Big, 1_000_000_000),
            _ => return Err(Fault::NotACapture(first)),
        };
        const HEADER_BYTES: usize = 24;
        let Some(header) = self.have(HEADER_BYTES) else { return Ok(Step::More) };
        let version = (order.u16(header, 4), order.u16(header, 6));
        if version.0 != 2 {
            return Err(Fault::Version(version.0, version.1));
        }
        let (snapshot, link) = (order.u32(header, 16), order.u32(header, 20));
        let fcs_bytes = if link & HAS_FCS != 0 { 2 * (link >> FCS_WORDS_AT) } else { 0 };
        let link = LinkType(link as u16);
        let ticks = Ticks::PerSecond(per_second);
        self.interfaces.push(Interface {
            link,
            name: String::new(),
            snapshot,
            fcs_bytes,
            ticks,
            offset_s: 0,
        });
        self.state = State::Pcap(order);
        self.taken += HEADER_BYTES;
        Ok(Step::Other)
    }

    /// Reads one packet of a pcap file.
    fn pcap_record(&mut self, order: ByteOrder) -> Result<Step, Fault> {
        const HEADER_BYTES: usize = 16;
        let Some(header) = self.have(HEADER_BYTES) else { return Ok(Step::More) };
        let (seconds, fraction) = (order.u32(header, 0), order.u32(header, 4));
        let (length, original_length) = (order.u32(header, 8), order.u32(header, 12));
        check_length("a packet", length, PACKET_BYTES_MAX)?;
        let length = length as usize;
        if self.have(HEADER_BYTES + length).is_none() {
            return Ok(Step::More);
        }
        let Ticks::PerSecond(per_second) = self.interfaces[0].ticks else {
            unreachable!("pcap has decimals")
        };
        let nanos = u64::from(seconds) * 1_000_000_000 + u64::from(fraction) * (1_000_000_000 / per_second);
        let start = self.taken + HEADER_BYTES;
        self.taken = start + length;
        Ok(Step::Packet(RawRecord {
            at: Some(Time(nanos as i64)),
            interface: 0,
            original_length,
            bytes: start..start + length,
            options: 0..0,
        }))
    }

    /// Reads one block of a pcapng file. Skips types that have no packets and no interface.
    fn block(&mut self, order: ByteOrder) -> Result<Step, Fault> {
        // The shortest block: its type, and its length twice.
        const FRAME_BYTES: usize = 12;
        let Some(header) = self.have(FRAME_BYTES) else { return Ok(Step::More) };
        let kind = order.u32(header, 0);
        // The type of a section header is the same in both byte orders.
        let order = match kind == block::SECTION {
            true => section_order(header)?,
            false => order,
        };
        let length = order.u32(header, 4);
        if length % 4 != 0 || (length as usize) < FRAME_BYTES {
            return Err(Fault::Malformed("the length of a block is less than 12 or no multiple of 4"));
        }
        if !matches!(
            kind,
            block::SECTION | block::INTERFACE | block::PACKET | block::SIMPLE_PACKET | block::OLD_PACKET
        ) {
            let here = (length as usize).min(self.buffer.len() - self.taken);
            self.skipped_at = self.position();
            self.taken += here;
            self.skip = u64::from(length) - here as u64;
            return Ok(Step::Other);
        }
        check_length("a block", length, BLOCK_BYTES_MAX)?;
        let Some(bytes) = self.have(length as usize) else { return Ok(Step::More) };
        if order.u32(bytes, bytes.len() - 4) != length {
            return Err(Fault::Malformed("the length at the end of a block is not the one at its beginning"));
        }
        let body = self.taken + 8..self.taken + length as usize - 4;
        let step = match kind {
            block::SECTION => self.section(order, body)?,
            block::INTERFACE => self.interface(order, body)?,
            block::PACKET => self.packet(order, body, PacketKind::Enhanced)?,
            block::OLD_PACKET => self.packet(order, body, PacketKind::Old)?,
            _ => self.simple_packet(order, body)?,
        };
        self.taken += length as usize;
        Ok(step)
    }

    /// Reads a section header. The interfaces of the section before it are no longer visible.
    fn section(&mut self, order: ByteOrder, body: Range<usize>) -> Result<Step, Fault> {
        let body = &self.buffer[body];
        if body.len() < 16 {
            return Err(Fault::Malformed("a section header has fewer than 28 bytes"));
        }
        let version = (order.u16(body, 4), order.u16(body, 6));
        // Some writers used 1.2 by mistake for 1.0, as the specification says.
        if !matches!(version, (1, 0 | 2)) {
            return Err(Fault::Version(version.0, version.1));
        }
        self.state = State::PcapNg(order);
        self.section = self.interfaces.len();
        Ok(Step::Other)
    }

    /// Reads the description of an interface: link type, snapshot length, time unit and check sequence.
    fn interface(&mut self, order: ByteOrder, body: Range<usize>) -> Result<Step, Fault> {
        let body = &self.buffer[body];
        if body.len() < 8 {
            return Err(Fault::Malformed("an interface has fewer than 20 bytes"));
        }
        check_length("the list of interfaces", self.interfaces.len() as u32 + 1, INTERFACES_MAX)?;
        let mut interface = Interface {
            link: LinkType(order.u16(body, 0)),
            name: String::new(),
            snapshot: order.u32(body, 4),
            fcs_bytes: 0,
            ticks: Ticks::PerSecond(1_000_000),
            offset_s: 0,
        };
        for (code, value) in (Options { order, bytes: &body[8..] }) {
            match (code, value) {
                (option::NAME, name) => {
                    let name = &name[..name.len().min(NAME_BYTES_MAX)];
                    interface.name = String::from_utf8_lossy(name).trim_end_matches('\0').to_owned();
                }
                (option::TIME_UNIT, [unit]) => interface.ticks = ticks(*unit)?,
                // The length in bits, as specified, or in bytes, as often written.
                (option::FCS, [n @ 1..8]) => interface.fcs_bytes = u32::from(*n),
                (option::FCS, [n]) => interface.fcs_bytes = u32::from(*n) / 8,
                (option::TIME_OFFSET, value) if value.len() == 8 => {
                    interface.offset_s = order.u64(value, 0) as i64;
                }
                _ => (),
            }
        }
        self.interfaces.push(interface);
        Ok(Step::Other)
    }

    /// Reads a packet block, in the current or the obsolete layout.
    fn packet(&mut self, order: ByteOrder, body: Range<usize>, kind: PacketKind) -> Result<Step, Fault> {
        const HEADER_BYTES: usize = 20;
        let bytes = &self.buffer[body.clone()];
        if bytes.len() < HEADER_BYTES {
            return Err(Fault::Malformed("a packet block has fewer than 32 bytes"));
        }
        let number = match kind {
            PacketKind::Enhanced => order.u32(bytes, 0),
            PacketKind::Old => u32::from(order.u16(bytes, 0)),
        };
        let (interface, known) = self.known_interface(number)?;
        let stamp = u64::from(order.u32(bytes, 4)) << 32 | u64::from(order.u32(bytes, 8));
        let length = order.u32(bytes, 12);
        check_length("a packet", length, PACKET_BYTES_MAX)?;
        let (length, padded) = (length as usize, (length as usize).next_multiple_of(4));
        if HEADER_BYTES + padded > bytes.len() {
            return Err(Fault::Malformed("a packet is longer than its block"));
        }
        let start = body.start + HEADER_BYTES;
        Ok(Step::Packet(RawRecord {
            at: Some(known.time(stamp)),
            interface,
            original_length: order.u32(bytes, 16),
            bytes: start..start + length,
            options: start + padded..body.end,
        }))
    }

    /// Reads a simple packet block, which has no timestamp and belongs to the first interface.
    fn simple_packet(&mut self, order: ByteOrder, body: Range<usize>) -> Result<Step, Fault> {
        let bytes = &self.buffer[body.clone()];
        if bytes.len() < 4 {
            return Err(Fault::Malformed("a simple packet block has fewer than 16 bytes"));
        }
        let (interface, known) = self.known_interface(0)?;
        let original_length = order.u32(bytes, 0);
        let snapshot = if known.snapshot == 0 { u32::MAX } else { known.snapshot };
        let length = original_length.min(snapshot);
        check_length("a packet", length, PACKET_BYTES_MAX)?;
        let start = body.start + 4;
        let end = start + length as usize;
        if end > body.end {
            return Err(Fault::Malformed("a packet is longer than its block"));
        }
        let options = body.end..body.end;
        Ok(Step::Packet(RawRecord { at: None, interface, original_length, bytes: start..end, options }))
    }

    /// An interface by its number in the section: its index in the list, and itself.
    fn known_interface(&self, number: u32) -> Result<(usize, &Interface), Fault> {
        let place = self.section.saturating_add(number as usize);
        let unknown = Fault::Malformed("a packet is of an interface that was not described");
        self.interfaces.get(place).map(|known| (place, known)).ok_or(unknown)
    }
}

impl<'a> Record<'a> {
    /// Its comments, in order.
    pub fn comments(&self) -> Comments<'a> {
        Comments { order: self.order, options: self.options }
    }
}

impl<'a> Iterator for Comments<'a> {
    type Item = &'a str;

    fn next(&mut self) -> Option<&'a str> {
        let mut options = Options { order: self.order, bytes: self.options };
        let comment = options.by_ref().find_map(|(code, value)| {
            let text = core::str::from_utf8(value).ok()?;
            (code == option::COMMENT).then(|| text.trim_end_matches('\0'))
        });
        self.options = options.bytes;
        comment
    }
}

impl fmt::Display for ReadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { at, records, fault } = self;
        let record = records + 1;
        match fault {
            Fault::Cut { have } if have == at => {
                write!(f, "the capture is cut short: it ends at byte {at}, in its file header")
            }
            Fault::Cut { have } => {
                write!(f, "the capture is cut short: it ends at byte {at}, {have} bytes into record {record}")
            }
            Fault::Empty => f.write_str("the capture is empty"),
            Fault::NotACapture([0x1f, 0x8b, ..]) => {
                f.write_str("it is compressed with gzip: unpack it first")
            }
            Fault::NotACapture([0x28, 0xb5, 0x2f, 0xfd]) => {
                f.write_str("it is compressed with zstd: unpack it first")
            }
            Fault::NotACapture(first) => {
                write!(f, "it is neither pcap nor pcapng: it begins with the bytes {first:02x?}")
            }
            Fault::Version(major, minor) => {
                write!(f, "the capture is of version {major}.{minor}, which is not known (byte {at})")
            }
            Fault::TooLong { what, length, max } => {
                write!(f, "record {record} at byte {at}: {what} has {length} bytes, more than {max}")
            }
            Fault::Malformed(rule) => write!(f, "record {record} at byte {at}: {rule}"),
        }
    }
}

impl core::error::Error for ReadError {}

impl Interface {
    /// The time of a time stamp of this interface. Saturates at the range of 64 bits of nanoseconds.
    /// they do.
    fn time(&self, stamp: u64) -> Time {
        let nanos = match self.ticks {
            Ticks::PerSecond(n) => i128::from(stamp) * 1_000_000_000 / i128::from(n),
            Ticks::PerSecondLog2(n) => (i128::from(stamp) * 1_000_000_000) >> n,
        };
        let nanos = nanos + i128::from(self.offset_s) * 1_000_000_000;
        Time(nanos.clamp(i128::from(i64::MIN), i128::from(i64::MAX)) as i64)
    }
}

#[derive(Clone, Copy)]
enum PacketKind {
    Enhanced,
    Old,
}

/// The options of a block as (code, value), up to the first malformed one.
struct Options<'a> {
    order: ByteOrder,
    bytes: &'a [u8],
}

impl<'a> Iterator for Options<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<(u16, &'a [u8])> {
        let (header, rest) = core::mem::take(&mut self.bytes).split_at_checked(4)?;
        let (code, length) = (self.order.u16(header, 0), usize::from(self.order.u16(header, 2)));
        if code == option::END {
            return None;
        }
        let value = rest.get(..length)?;
        self.bytes = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        Some((code, value))
    }
}

impl ByteOrder {
    fn u16(self, bytes: &[u8], at: usize) -> u16 {
        let bytes = bytes[at..at + 2].try_into().expect("there are two");
        match self {
            Self::Little => u16::from_le_bytes(bytes),
            Self::Big => u16::from_be_bytes(bytes),
        }
    }

    fn u32(self, bytes: &[u8], at: usize) -> u32 {
        let bytes = bytes[at..at + 4].try_into().expect("there are four");
        match self {
            Self::Little => u32::from_le_bytes(bytes),
            Self::Big => u32::from_be_bytes(bytes),
        }
    }

    fn u64(self, bytes: &[u8], at: usize) -> u64 {
        let bytes = bytes[at..at + 8].try_into().expect("there are eight");
        match self {
            Self::Little => u64::from_le_bytes(bytes),
            Self::Big => u64::from_be_bytes(bytes),
        }
    }
}

/// Reads the byte order of a section from its magic number.
fn section_order(header: &[u8]) -> Result<ByteOrder, Fault> {
    [ByteOrder::Little, ByteOrder::Big]
        .into_iter()
        .find(|order| order.u32(header, 8) == block::BYTE_ORDER)
        .ok_or(Fault::Malformed("a section header does not say its byte order"))
}

/// The unit of the option `if_tsresol`: a negative power of 10, or of 2 if the first bit is set.
fn ticks(unit: u8) -> Result<Ticks, Fault> {
    let power = unit & 0x7f;
    let ticks = match unit & 0x80 {
        0 => 10_u64.checked_pow(u32::from(power)).map(Ticks::PerSecond),
        _ => (power < 64).then_some(Ticks::PerSecondLog2(power)),
    };
    ticks.ok_or(Fault::Malformed("the times of an interface have a unit that 64 bits do not hold"))
}

/// Fails if a length exceeds its limit. `what` names the part in the error.
fn check_length(what: &'static str, length: u32, max: usize) -> Result<(), Fault> {
    match length as usize <= max {
        true => Ok(()),
        false => Err(Fault::TooLong { what, length: u64::from(length), max: max as u64 }),
    }
}
