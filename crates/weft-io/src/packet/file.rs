//! Captures as ports: reads packets from a pcap or pcapng file, or writes sent packets to one.

use super::{BATCH_MAX, Device, Link, OpenError, QueueId, lacks_buffers};
use crate::file::open_regular;
use core::fmt;
use std::borrow::Cow;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;
use weft_core::Time;
use weft_core::frame::{Checksum, Frame, Offload, Pool};
use weft_core::offloaded::{self, PendingOffloads};
use weft_engine::packet::port::DeviceCounters;
use weft_engine::packet::port::Pace;
use weft_proto::capture::{Fault, LinkType, Packet, ReadError, Reader, Record, Style, Writer};

/// Bytes per read, and buffered bytes of an output.
const PIECE_BYTES: usize = 256 << 10;
const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;

/// The remedy for an unsupported link type.
const LINKS_KNOWN: &str = "Ethernet, IEEE 802.11, raw IP, Linux cooked and NFLOG, PPP, Cisco HDLC, MPLS and BSD \
                           loopback are known";

/// Packets from a capture.
///
/// The port has Ethernet frames or IP packets, whatever the file's link type is. On a port of frames, packets without
/// an Ethernet header get one with only the EtherType set. On a port of IP packets the link header is removed; other
/// protocols are refused and counted.
pub struct FileSource {
    name: String,
    input: Box<dyn Read + Send>,
    /// Size of the whole file, if known.
    total: Option<u64>,
    piece: Vec<u8>,
    reader: Reader,
    link: Link,
    /// The link type of the file's first packet; None if the file ends before its first packet.
    link_type: Option<LinkType>,
    place: QueueId,
    pace: Pace,
    /// When the first packet was captured, and when it was delivered.
    begin: Option<(Time, Time)>,
    /// The timestamp of the previous packet; used for packets without a timestamp.
    last: Time,
    /// A packet that was read and is not yet due.
    waiting: Option<PendingPacket>,
    is_starved: bool,
    end: InputState,
    truncated: u64,
    /// Completes unfinished offloads and treats checksums as valid.
    trusts_checksums: bool,
    unfinished: UnfinishedCounts,
    counters: DeviceCounters,
}

/// Packets with unfinished offloads when they were captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct UnfinishedCounts {
    /// Packets without their checksum.
    pub checksums: u64,
    /// Packets whose lengths depend on their segmentation.
    pub lengths: u64,
    /// Packets with either.
    pub packets: u64,
}

/// Writes sent packets to a capture, with their arrival time.
///
/// Completes a partial checksum; writes a packet that stands for several as one.
pub struct FileSink {
    name: String,
    output: Box<dyn Write + Send>,
    writer: Writer,
    link: Link,
    /// Bytes that are not written yet.
    buffer: Vec<u8>,
    counters: DeviceCounters,
}

struct PendingPacket {
    at: Time,
    bytes: Vec<u8>,
    /// Number of bytes missing in the capture.
    cut: u32,
}

/// The state of the input.
enum InputState {
    /// There may be more.
    Open,
    /// It ended in a fault that has not been reported.
    Fault(io::Error),
    Done,
}

impl FileSource {
    /// Opens a capture as a port with packets of this link.
    ///
    /// # Errors
    /// The file cannot be read, is no capture, or has an unsupported link type.
    pub fn open(path: &Path, link: Link, place: QueueId, pace: Pace) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        let open = || {
            let file = open_regular(path)?;
            let size = file.metadata()?.len();
            Ok((file, Some(size)))
        };
        match open() {
            Ok((file, total)) => Self::new(name, Box::new(file), total, link, (place, pace)),
            Err(error) => Err(OpenError { name, doing: "read the capture", error, help: None }),
        }
    }

    /// A capture from any reader. `total` is its size in bytes, if known.
    ///
    /// # Errors
    /// As [`FileSource::open`].
    pub fn new(
        name: String,
        input: Box<dyn Read + Send>,
        total: Option<u64>,
        link: Link,
        (place, pace): (QueueId, Pace),
    ) -> Result<Self, OpenError> {
        let mut source = Self {
            name,
            input,
            total,
            piece: vec![0; PIECE_BYTES],
            reader: Reader::new(),
            link,
            link_type: None,
            place,
            pace,
            begin: None,
            last: Time::default(),
            waiting: None,
            is_starved: false,
            end: InputState::Open,
            truncated: 0,
            trusts_checksums: false,
            unfinished: UnfinishedCounts::default(),
            counters: DeviceCounters::default(),
        };
        match source.read_first() {
            Ok(()) => Ok(source),
            Err(error) => {
                let help = (error.kind() == io::ErrorKind::Unsupported).then_some(LINKS_KNOWN);
                Err(OpenError { name: source.name, doing: "read the capture", error, help })
            }
        }
    }

    /// Number of bytes read, and the size of the file if known.
    pub fn progress(&self) -> (u64, Option<u64>) {
        (self.reader.position(), self.total)
    }

    /// The link type of the file's first packet; None if the file ends before its first packet.
    pub fn link_type(&self) -> Option<LinkType> {
        self.link_type
    }

    /// Completes unfinished offloads of packets, and treats their checksums as valid ([`offloaded::finish`]).
    pub fn trust_checksums(&mut self) {
        self.trusts_checksums = true;
    }

    /// Number of packets with unfinished offloads so far.
    pub fn unfinished(&self) -> UnfinishedCounts {
        self.unfinished
    }

    /// Number of packets captured only in part. They are delivered as they are, with the number of missing bytes.
    pub fn truncated(&self) -> u64 {
        self.truncated
    }

    /// Reads the first packet to learn the file's link type.
    fn read_first(&mut self) -> io::Result<()> {
        while self.waiting.is_none() && self.read_piece()? {
            let Some(record) = self.reader.next().map_err(invalid)? else { continue };
            self.link_type = Some(check_link_type(record.link)?);
            let at = record.at.unwrap_or_default();
            let cut = cut_of(&record);
            self.truncated += u64::from(cut > 0);
            match packet_of(&record, self.link) {
                Some(bytes) => self.waiting = Some(PendingPacket { at, bytes: bytes.into_owned(), cut }),
                None => {
                    self.counters.refused_in += 1;
                    return Ok(());
                }
            }
        }
        if self.waiting.is_none() {
            if let Err(error) = self.reader.finish() {
                // A truncated file is a capture, too; reading reports the truncation.
                if !matches!(error.fault, Fault::Cut { .. }) {
                    return Err(invalid(error));
                }
                self.end = InputState::Fault(invalid(error));
            }
            if let Some(interface) = self.reader.interfaces().first() {
                self.link_type = Some(check_link_type(interface.link)?);
            }
        }
        Ok(())
    }

    /// Reads the next piece of the file into the reader; returns false at the end.
    fn read_piece(&mut self) -> io::Result<bool> {
        loop {
            self.counters.syscalls += 1;
            match self.input.read(&mut self.piece) {
                Ok(n) => {
                    self.reader.push(&self.piece[..n]);
                    return Ok(n > 0);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => (),
                Err(error) => return Err(error),
            }
        }
    }

    /// When a packet with this capture time is due.
    fn due_time(&self, at: Time) -> Option<Time> {
        let (captured, given) = self.begin.filter(|_| self.pace == Pace::Recorded)?;
        Some(given + (at - captured))
    }

    /// Returns the next packet, if it is due and there is a buffer for it.
    fn next_frame(&mut self, pool: &mut Pool, now: Time) -> io::Result<Option<Frame>> {
        loop {
            self.is_starved = lacks_buffers(pool, pool.packet_max());
            if self.is_starved {
                return Ok(None);
            }
            if let Some(waiting) = &self.waiting {
                if self.due_time(waiting.at).is_some_and(|due| due > now) {
                    return Ok(None);
                }
                let waiting = self.waiting.take().expect("a packet is waiting");
                let Some(frame) = self.copy_to_frame(pool, &waiting, now) else { continue };
                return Ok(Some(frame));
            }
            let Some(record) = self.reader.next().map_err(invalid)? else {
                if self.read_piece()? {
                    continue;
                }
                self.reader.finish().map_err(invalid)?;
                self.end = InputState::Done;
                return Ok(None);
            };
            let at = record.at.unwrap_or(self.last);
            let cut = cut_of(&record);
            self.truncated += u64::from(cut > 0);
            let Some(bytes) = packet_of(&record, self.link) else {
                self.counters.refused_in += 1;
                continue;
            };
            if self.pace == Pace::Full && fits_buffer(pool, bytes.len()) {
                let frame = pool.take_filled(&bytes).expect("a free buffer was found");
                self.last = at;
                return Ok(Some(self.add_metadata(pool, frame, cut, at)));
            }
            self.waiting = Some(PendingPacket { at, bytes: bytes.into_owned(), cut });
        }
    }

    /// Sets a frame's metadata, completes or reports its missing checksums and lengths, and counts the frame.
    fn add_metadata(&mut self, pool: &mut Pool, mut frame: Frame, cut: u32, arrived: Time) -> Frame {
        let (is_ip, bytes) = (self.link == Link::Ip, pool.bytes_mut(&frame));
        let offload = match (cut, self.trusts_checksums) {
            (0, true) => offloaded::finish(bytes, is_ip),
            (0, false) => {
                let lacks = PendingOffloads::of(bytes, is_ip);
                self.unfinished.checksums += u64::from(lacks.checksum);
                self.unfinished.lengths += u64::from(lacks.length);
                self.unfinished.packets += u64::from(lacks.is_any());
                Offload::NONE
            }
            // A partial packet cannot be checked.
            _ => Offload { checksum: Checksum::Valid, gso: None },
        };
        let size = frame.len() + cut as usize;
        frame.meta = self.place.received(&mut self.counters, arrived, size, offload);
        frame.cut = cut;
        frame
    }

    /// Copies a due packet to a frame. None, and counted, if no buffer of the pool would ever hold it.
    fn copy_to_frame(&mut self, pool: &mut Pool, waiting: &PendingPacket, now: Time) -> Option<Frame> {
        let PendingPacket { at, bytes, cut } = waiting;
        self.begin.get_or_insert((*at, now));
        self.last = *at;
        if !fits_buffer(pool, bytes.len()) {
            self.counters.refused_in += 1;
            return None;
        }
        let frame = pool.take_filled(bytes)?;
        let arrived = if self.pace == Pace::Full { *at } else { now };
        Some(self.add_metadata(pool, frame, *cut, arrived))
    }
}

impl Device for FileSource {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        self.link
    }

    fn receive(&mut self, pool: &mut Pool, out: &mut Vec<Frame>, now: Time) -> io::Result<usize> {
        match core::mem::replace(&mut self.end, InputState::Open) {
            InputState::Open => (),
            InputState::Fault(error) => {
                self.end = InputState::Done;
                return Err(error);
            }
            InputState::Done => {
                self.end = InputState::Done;
                return Ok(0);
            }
        }
        for n in 0..BATCH_MAX {
            match self.next_frame(pool, now) {
                Ok(Some(frame)) => out.push(frame),
                Ok(None) => return Ok(n),
                // Return complete packets first.
                Err(error) if n > 0 => {
                    self.end = InputState::Fault(error);
                    return Ok(n);
                }
                Err(error) => {
                    self.end = InputState::Done;
                    return Err(error);
                }
            }
        }
        Ok(BATCH_MAX)
    }

    /// An input capture refuses and counts all packets.
    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let n = frames.len();
        self.counters.refused_out += n as u64;
        frames.drain(..).for_each(|frame| pool.give(frame));
        Ok(n)
    }

    fn is_starved(&self) -> bool {
        self.is_starved
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.waiting.as_ref().and_then(|waiting| self.due_time(waiting.at))
    }

    fn is_finished(&self) -> bool {
        matches!(self.end, InputState::Done)
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}

impl FileSink {
    /// Creates or replaces a capture.
    ///
    /// # Errors
    /// The file cannot be created.
    pub fn create(path: &Path, link: Link, style: Style) -> Result<Self, OpenError> {
        let name = path.display().to_string();
        match File::create(path) {
            Ok(file) => Ok(Self::new(name, Box::new(file), link, style)),
            Err(error) => Err(OpenError { name, doing: "write the capture", error, help: None }),
        }
    }

    /// A capture to any writer.
    pub fn new(name: String, output: Box<dyn Write + Send>, link: Link, style: Style) -> Self {
        let mut buffer = Vec::with_capacity(PIECE_BYTES);
        let writer = Writer::new(style, link.link_type(), "", &mut buffer);
        Self { name, output, writer, link, buffer, counters: DeviceCounters::default() }
    }

    /// Writes one packet.
    ///
    /// # Errors
    /// The system's: the disk is full.
    fn write(&mut self, pool: &mut Pool, frame: Frame) -> io::Result<()> {
        let mut offload = frame.meta.offload;
        // A checksum outside the packet stays as it is, for the reader to see.
        let _ = offload.finish_checksum(pool.bytes_mut(&frame));
        let bytes = pool.bytes(&frame);
        let packet = Packet { at: frame.meta.arrived, bytes, ..Packet::default() };
        match self.writer.write(&packet, &mut self.buffer) {
            Ok(()) => {
                self.counters.sent += 1;
                self.counters.sent_bytes += bytes.len() as u64;
            }
            Err(_) => self.counters.refused_out += 1,
        }
        pool.give(frame);
        if self.buffer.len() < PIECE_BYTES { Ok(()) } else { self.write_buffer() }
    }

    /// Writes the buffered packets to the file and empties the buffer.
    fn write_buffer(&mut self) -> io::Result<()> {
        self.counters.syscalls += 1;
        // A failed write is not retried: a file with a piece twice is worse than a short one.
        let written = self.output.write_all(&self.buffer);
        self.buffer.clear();
        written
    }
}

impl Device for FileSink {
    fn name(&self) -> &str {
        &self.name
    }

    fn link(&self) -> Link {
        self.link
    }

    fn receive(&mut self, _: &mut Pool, _: &mut Vec<Frame>, _: Time) -> io::Result<usize> {
        Ok(0)
    }

    fn send(&mut self, pool: &mut Pool, frames: &mut Vec<Frame>) -> io::Result<usize> {
        let n = frames.len();
        let mut result = Ok(n);
        for frame in frames.drain(..) {
            if let Err(error) = self.write(pool, frame) {
                result = Err(error);
            }
        }
        result
    }

    fn flush(&mut self) -> io::Result<()> {
        self.write_buffer()?;
        self.output.flush()
    }

    fn is_finished(&self) -> bool {
        true
    }

    fn counters(&mut self) -> DeviceCounters {
        self.counters
    }
}

impl Drop for FileSink {
    fn drop(&mut self) {
        // A caller that needs the error calls `flush` first.
        let _ = self.flush();
    }
}

impl fmt::Debug for FileSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSource").field("name", &self.name).finish_non_exhaustive()
    }
}

impl fmt::Debug for FileSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileSink").field("name", &self.name).finish_non_exhaustive()
    }
}

fn invalid(error: ReadError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

/// Checks that packets of this link type can be converted.
fn check_link_type(link: LinkType) -> io::Result<LinkType> {
    let unknown = || io::Error::new(io::ErrorKind::Unsupported, format!("its packets are of {link}"));
    link.is_known().then_some(link).ok_or_else(unknown)
}

/// Number of bytes of a packet that were not captured.
fn cut_of(record: &Record<'_>) -> u32 {
    record.original_length.saturating_sub(record.bytes.len() as u32)
}

/// Returns a packet's bytes as they are on a port of this link. None if the packet is of another protocol.
fn packet_of<'a>(record: &Record<'a>, link: Link) -> Option<Cow<'a, [u8]>> {
    if record.link == LinkType::ETHERNET && link == Link::Ethernet {
        return Some(record.bytes.into());
    }
    let (ethertype, range) = record.link.network(record.bytes)?;
    let packet = &record.bytes[range];
    match link {
        Link::Ethernet => Some([&[0; 12], &ethertype.to_be_bytes()[..], packet].concat().into()),
        Link::Ip => matches!(ethertype, ETHERTYPE_IPV4 | ETHERTYPE_IPV6).then(|| packet.into()),
    }
}

/// Whether a buffer of the pool can hold this many bytes.
fn fits_buffer(pool: &Pool, bytes: usize) -> bool {
    bytes <= pool.packet_max()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::{Arc, Mutex};
    use weft_core::frame::{Checksum, PoolConfig};
    use weft_proto::capture::Format;

    #[derive(Clone, Default)]
    struct Shared(Arc<Mutex<Vec<u8>>>);

    impl Write for Shared {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().expect("no other thread has panicked").extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn capture(link: LinkType, packets: &[(i64, &[u8])]) -> Vec<u8> {
        let mut file = Vec::new();
        let mut writer = Writer::new(Style::default(), link, "", &mut file);
        for (at, bytes) in packets {
            let packet = Packet { at: Time(*at), bytes, ..Packet::default() };
            writer.write(&packet, &mut file).expect("the packet fits");
        }
        file
    }

    fn source(file: Vec<u8>, link: Link, pace: Pace) -> Result<FileSource, OpenError> {
        let total = Some(file.len() as u64);
        let input = Box::new(io::Cursor::new(file));
        FileSource::new("test.pcapng".to_owned(), input, total, link, (QueueId::default(), pace))
    }

    fn take(source: &mut FileSource, pool: &mut Pool, now: i64) -> Vec<(Time, Vec<u8>)> {
        let mut frames = Vec::new();
        source.receive(pool, &mut frames, Time(now)).expect("the capture is complete");
        let give = |frame: Frame| {
            let seen = (frame.meta.arrived, pool.bytes(&frame).to_vec());
            pool.give(frame);
            seen
        };
        frames.into_iter().map(give).collect()
    }

    #[test]
    fn capture_copies_unchanged() {
        // `weft replay` would lose or change packets that no rule has touched.
        let packets: Vec<Vec<u8>> = (0..200_u16).map(|n| vec![n as u8; 14 + usize::from(n) * 20]).collect();
        let packets: Vec<(i64, &[u8])> =
            (1_000..).step_by(10).zip(packets.iter().map(Vec::as_slice)).collect();
        let file = capture(LinkType::ETHERNET, &packets);
        let mut pool = Pool::new(PoolConfig { small: 10, large: 1 });
        let mut input = source(file.clone(), Link::Ethernet, Pace::Full).expect("the file is a capture");
        let written = Shared::default();
        let style = Style { format: Format::PcapNg, ..Style::default() };
        let mut output = FileSink::new("out".to_owned(), Box::new(written.clone()), Link::Ethernet, style);
        let mut frames = Vec::new();
        while !input.is_finished() {
            input.receive(&mut pool, &mut frames, Time(1 << 60)).expect("the capture is complete");
            output.send(&mut pool, &mut frames).expect("the writer has space");
        }
        output.flush().expect("the writer has space");
        assert_eq!(*written.0.lock().expect("no other thread has panicked"), file);
        assert_eq!((input.counters().received, output.counters().sent, pool.in_use()), (200, 200, 0));
        assert_eq!(input.progress(), (file.len() as u64, Some(file.len() as u64)));
    }

    #[test]
    fn recorded_pace_keeps_gaps() {
        // A replay would not have the timing of the captured traffic.
        let file = capture(LinkType::RAW, &[(500, b"E1"), (700, b"E2"), (700, b"E3"), (1_500, b"E4")]);
        let mut pool = Pool::new(PoolConfig { small: 10, large: 0 });
        let mut source = source(file, Link::Ip, Pace::Recorded).expect("the file is a capture");
        assert_eq!(take(&mut source, &mut pool, 10_000), [(Time(10_000), b"E1".to_vec())]);
        assert_eq!(source.poll_timeout(), Some(Time(10_200)));
        assert!(take(&mut source, &mut pool, 10_199).is_empty());
        let both = [b"E2", b"E3"].map(|bytes| (Time(10_250), bytes.to_vec()));
        assert_eq!(take(&mut source, &mut pool, 10_250), both);
        assert!(!source.is_finished());
        assert_eq!(take(&mut source, &mut pool, 11_000), [(Time(11_000), b"E4".to_vec())]);
        assert!(source.is_finished() && source.poll_timeout().is_none());
    }

    #[test]
    fn foreign_link_headers_are_converted() {
        // A capture of `tcpdump -i any` or of a loopback could not be replayed, or its addresses would be parsed as
        // payload.
        let mut cooked = vec![0; 16];
        cooked[14..].copy_from_slice(&[8, 0]);
        cooked.push(0x45);
        let arp = [&[0; 14][..], &[8, 6, 1]].concat();
        let mut pool = Pool::new(PoolConfig { small: 10, large: 0 });
        let file = capture(LinkType::LINUX_SLL, &[(0, &cooked), (1, &arp)]);
        let mut ip = source(file.clone(), Link::Ip, Pace::Full).expect("the file is a capture");
        assert_eq!(take(&mut ip, &mut pool, 0), [(Time(0), vec![0x45])]);
        assert_eq!(ip.counters().refused_in, 1);
        let mut frames = source(file, Link::Ethernet, Pace::Full).expect("the file is a capture");
        let framed = [[&[0; 12][..], &[8, 0, 0x45]].concat(), [&[0; 12][..], &[8, 6, 1]].concat()];
        let [first, second] = framed.clone();
        assert_eq!(take(&mut frames, &mut pool, 0), [(Time(0), first), (Time(1), second)]);

        let file = capture(LinkType::ETHERNET, &[(0, &framed[0]), (1, &framed[1])]);
        let mut opened = source(file, Link::Ip, Pace::Full).expect("the file is a capture");
        assert_eq!(take(&mut opened, &mut pool, 0), [(Time(0), vec![0x45])]);
    }

    #[test]
    fn cut_capture_gives_whole_packets_first() {
        // Packets before the truncation would be lost, or the truncation would go unnoticed.
        let mut file = capture(LinkType::RAW, &[(1, b"E1"), (2, b"E2"), (3, b"E3")]);
        file.truncate(file.len() - 1);
        let mut pool = Pool::new(PoolConfig { small: 10, large: 0 });
        let mut cut = source(file.clone(), Link::Ip, Pace::Full).expect("the start of the file is valid");
        assert_eq!(take(&mut cut, &mut pool, 0).len(), 2);
        let error = cut.receive(&mut pool, &mut Vec::new(), Time(0)).expect_err("the file is truncated");
        assert!(
            error.to_string().contains(&format!("ends at byte {}, 35 bytes into record 3", file.len())),
            "{error}"
        );
        assert!(cut.is_finished());
        assert_eq!(take(&mut cut, &mut pool, 0), []);

        let usb = capture(LinkType(189), &[(0, b"x")]);
        let usb = source(usb, Link::Ethernet, Pace::Full).expect_err("the link type is no network");
        let wanted = "`test.pcapng`: cannot read the capture: its packets are of link type 189; \
                      Ethernet, IEEE 802.11, raw IP, Linux cooked and NFLOG, PPP, Cisco HDLC, MPLS and BSD \
                      loopback are known";
        assert_eq!(usb.to_string(), wanted);
    }

    #[test]
    fn packets_wait_for_buffers() {
        // A burst in a capture would be dropped, or one long packet would stop the replay.
        let long = vec![0x45; 3_000];
        let file = capture(LinkType::RAW, &[(1, b"E1"), (2, &long), (3, b"E2")]);
        let mut pool = Pool::new(PoolConfig { small: 1, large: 0 });
        let mut source = source(file, Link::Ip, Pace::Full).expect("the file is a capture");
        let mut frames = Vec::new();
        assert_eq!(source.receive(&mut pool, &mut frames, Time(0)).expect("the capture is valid"), 1);
        assert_eq!(source.receive(&mut pool, &mut frames, Time(0)).expect("the capture is valid"), 0);
        pool.give(frames.pop().expect("a frame was received"));
        assert_eq!(source.receive(&mut pool, &mut frames, Time(0)).expect("the capture is valid"), 1);
        assert_eq!(pool.bytes(&frames[0]), b"E2");
        assert_eq!((source.counters().refused_in, pool.counters().exhausted), (1, 0));
        pool.give(frames.pop().expect("a frame was received"));
    }

    #[test]
    fn partial_checksum_is_completed_in_file() {
        // Readers of the capture would see every packet of a TUN device as damaged.
        let mut pool = Pool::new(PoolConfig { small: 1, large: 0 });
        let mut frame = pool.take_filled(&[0x45, 0, 0, 0, 1, 2]).expect("the pool has a buffer");
        frame.meta.offload.checksum = Checksum::Partial { start: 2, offset: 0 };
        let written = Shared::default();
        let mut sink = FileSink::new("out".to_owned(), Box::new(written.clone()), Link::Ip, Style::default());
        sink.write(&mut pool, frame).expect("the writer has space");
        drop(sink);
        let file = written.0.lock().expect("no other thread has panicked").clone();
        let mut reader = Reader::new();
        reader.push(&file);
        let record = reader.next().expect("the packet is complete").expect("the file has a packet");
        assert_eq!(record.bytes, [0x45, 0, 0xfe, 0xfd, 1, 2]);
    }

    /// Every capture below the folder `WEFT_CAPTURES` is read to its end, or refused with a reason.
    #[test]
    fn foreign_captures_are_read() {
        // A file that other tools read could not be replayed.
        let Some(root) = std::env::var_os("WEFT_CAPTURES") else {
            eprintln!("skipped: WEFT_CAPTURES names no folder of captures");
            return;
        };
        let (mut folders, mut files) = (vec![std::path::PathBuf::from(root)], Vec::new());
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("the folder can be read").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|e| e == "pcap" || e == "pcapng") {
                    files.push(path);
                }
            }
        }
        let (mut pool, mut frames) = (Pool::new(PoolConfig::default()), Vec::new());
        let (mut packets, mut refused) = (0, 0);
        for path in &files {
            let mut source = match FileSource::open(path, Link::Ethernet, QueueId::default(), Pace::Full) {
                Ok(source) => source,
                Err(error) => {
                    eprintln!("{error}");
                    continue;
                }
            };
            while !source.is_finished() {
                if let Err(error) = source.receive(&mut pool, &mut frames, Time(0)) {
                    eprintln!("{}: {error}", path.display());
                }
                frames.drain(..).for_each(|frame| pool.give(frame));
            }
            packets += source.counters().received;
            refused += source.counters().refused_in;
        }
        eprintln!("{} captures, {packets} packets, {refused} refused", files.len());
        assert!(packets > 0 && pool.in_use() == 0);
    }
}
