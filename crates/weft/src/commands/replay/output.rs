//! Writes the captures of a replay.

use super::inputs::Inputs;
use crate::cli::ReplayArgs;
use crate::fault::Fault;
use crate::source::clause;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use weft_core::frame::Frame;
use weft_engine::packet::plan::PacketPlan;
use weft_engine::packet::{Disposition, Watch};
use weft_engine::sinks::Row;
use weft_io::packet::Link;
use weft_proto::capture::{Format, LinkType, PACKET_BYTES_MAX, Packet, Style, Writer};

/// The number of bytes that are buffered for a file.
const BUFFER_BYTES: usize = 256 << 10;

/// The destinations of sent frames.
pub(super) struct Outputs {
    files: Vec<Capture>,
    /// By port: the file, and the interface in it.
    places: Vec<Option<(usize, u32)>>,
    /// The ports whose frames share a file that cannot tell them apart.
    mixed: Option<Vec<u16>>,
}

/// Each incoming packet in order, with its outcome as a comment.
pub(super) struct Annotated {
    capture: Capture,
}

pub(in crate::commands) struct Capture {
    path: PathBuf,
    file: File,
    writer: Writer,
    buffer: Vec<u8>,
}

/// The rows of sinks, one per line, as a node would write them into a file.
pub(super) struct RowsFile {
    path: PathBuf,
    file: BufWriter<Box<dyn Write>>,
    line: Vec<u8>,
}

impl RowsFile {
    #[allow(clippy::disallowed_methods, reason = "errors are reported as those of a file")]
    pub(super) fn create(path: &str) -> Result<Self, Fault> {
        let file: Box<dyn Write> = match path {
            "-" => Box::new(std::io::stdout()),
            path => Box::new(File::create(path).map_err(|error| unwritten(path.as_ref(), &error))?),
        };
        Ok(Self { path: path.into(), file: BufWriter::new(file), line: Vec::new() })
    }

    pub(super) fn write(&mut self, row: &Row<'_>) -> Result<(), Fault> {
        self.line.clear();
        weft_io::write_row(&mut self.line, row);
        self.file.write_all(&self.line).map_err(|error| unwritten(&self.path, &error))
    }

    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.file.flush().map_err(|error| unwritten(&self.path, &error))
    }
}

impl Outputs {
    /// Only counts frames.
    pub(super) fn nowhere() -> Self {
        Self { files: Vec::new(), places: Vec::new(), mixed: None }
    }

    /// Writes all frames into one file. In a pcapng file each port is an interface; a pcap file has packets of the
    /// input's link type.
    pub(super) fn to_file(
        path: &str,
        links: &[Link],
        inputs: &Inputs,
        plan: &PacketPlan,
    ) -> Result<Self, Fault> {
        let mut kinds = inputs.ports().map(|port| links[usize::from(port)]);
        let first = kinds.next().expect("there is a capture");
        let is_pcap = Style::of_name(path).format == Format::Pcap;
        if is_pcap && kinds.any(|kind| kind != first) {
            let what = "a pcap file has no room for packets with an Ethernet header beside others without";
            return Err(Fault::usage(what).with_help("name a .pcapng file, or give --out-dir"));
        }
        let ports: Vec<_> = interfaces(links, plan)
            .map(|(link, name)| (if is_pcap { first.link_type() } else { link }, name))
            .collect();
        let (capture, interfaces) = Capture::with_interfaces(path.as_ref(), &ports)?;
        let mixed = (interfaces.len() < plan.ports.len()).then(Vec::new);
        let interface = |port: usize| interfaces.get(port).copied().unwrap_or(0);
        let places = (0..plan.ports.len()).map(|port| Some((0, interface(port)))).collect();
        Ok(Self { files: vec![capture], places, mixed })
    }

    /// Writes a pcapng file for each port.
    pub(super) fn to_folder(folder: &str, links: &[Link], plan: &PacketPlan) -> Result<Self, Fault> {
        let made = std::fs::create_dir_all(folder);
        made.map_err(|error| Fault::environment(format!("cannot make {folder}: {}", clause(&error))))?;
        let file = |interface: (LinkType, &str)| {
            let path = file_of_port(folder, interface.1);
            Capture::with_interfaces(&path, &[interface]).map(|(capture, _)| capture)
        };
        let files = interfaces(links, plan).map(file).collect::<Result<_, _>>()?;
        let places = (0..plan.ports.len()).map(|port| Some((port, 0))).collect();
        Ok(Self { files, places, mixed: None })
    }

    /// Writes a frame that left by a port.
    pub(super) fn write(&mut self, port: u16, frame: &Frame, bytes: &[u8]) -> Result<(), Fault> {
        let Some(Some((file, interface))) = self.places.get(usize::from(port)) else { return Ok(()) };
        if let Some(mixed) = self.mixed.as_mut().filter(|mixed| !mixed.contains(&port)) {
            mixed.push(port);
        }
        let capture = &mut self.files[*file];
        capture.write(&Packet { interface: *interface, ..packet_of(frame, bytes) });
        capture.flush(BUFFER_BYTES)
    }

    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.files.iter_mut().try_for_each(|capture| capture.flush(0))
    }

    /// A note for readers of the file.
    pub(super) fn note(&self) -> Option<String> {
        let n = self.mixed.as_ref().map(Vec::len).filter(|n| *n > 1)?;
        Some(format!(
            "packets left by {n} ports, and a pcap file does not say by which: a .pcapng file does, or --out-dir"
        ))
    }
}

impl Annotated {
    pub(super) fn create(path: &str, links: &[Link], plan: &PacketPlan) -> Result<Self, Fault> {
        if Style::of_name(path).format == Format::Pcap {
            let text = "a pcap file has no room for comments: --annotate writes pcapng";
            return Err(Fault::usage(text));
        }
        let interfaces: Vec<_> = interfaces(links, plan).collect();
        Ok(Self { capture: Capture::with_interfaces(path.as_ref(), &interfaces)?.0 })
    }

    pub(super) fn flush(&mut self) -> Result<(), Fault> {
        self.capture.flush(BUFFER_BYTES)
    }

    pub(super) fn finish(&mut self) -> Result<(), Fault> {
        self.capture.flush(0)
    }
}

/// A frame as a packet of a capture, with its length on the link.
fn packet_of<'f>(frame: &Frame, bytes: &'f [u8]) -> Packet<'f> {
    let original_length = (frame.cut > 0).then_some(frame.size() as u32);
    Packet { at: frame.meta.arrived, original_length, bytes, ..Packet::default() }
}

impl Watch for Annotated {
    fn frame(&mut self, fate: Disposition<'_>, frame: &Frame, bytes: &[u8]) {
        let (comment, interface) = (format!("weft: {fate}"), u32::from(frame.meta.port));
        self.capture.write(&Packet { interface, comments: &[&comment], ..packet_of(frame, bytes) });
    }
}

impl Capture {
    /// Creates a file, with as many interfaces as its format allows, at least the first; returns their numbers.
    pub(in crate::commands) fn with_interfaces(
        path: &Path,
        interfaces: &[(LinkType, &str)],
    ) -> Result<(Self, Vec<u32>), Fault> {
        let file = File::create(path).map_err(|error| unwritten(path, &error))?;
        let mut buffer = Vec::new();
        let (link, first) = interfaces[0];
        let mut writer = Writer::new(Style::of_name(&path.to_string_lossy()), link, first, &mut buffer);
        let mut numbers = vec![0];
        for (link, name) in &interfaces[1..] {
            numbers.extend(writer.interface(*link, name, &mut buffer));
        }
        Ok((Self { path: path.to_owned(), file, writer, buffer }, numbers))
    }

    /// Writes a packet; bytes beyond the maximum of a capture are cut off.
    pub(in crate::commands) fn write(&mut self, packet: &Packet<'_>) {
        // The interface is one of the writer's own. With an added header, a packet may be longer than a file allows.
        let length = packet.bytes.len();
        let cut = (length > PACKET_BYTES_MAX).then_some(length as u32);
        let packet = Packet {
            bytes: &packet.bytes[..length.min(PACKET_BYTES_MAX)],
            original_length: packet.original_length.or(cut),
            ..*packet
        };
        let written = self.writer.write(&packet, &mut self.buffer);
        debug_assert!(written.is_ok(), "{written:?}");
    }

    /// Writes the buffer if it is longer than `bytes`.
    pub(in crate::commands) fn flush(&mut self, bytes: usize) -> Result<(), Fault> {
        if self.buffer.len() > bytes {
            self.file.write_all(&self.buffer).map_err(|error| unwritten(&self.path, &error))?;
            self.buffer.clear();
        }
        Ok(())
    }
}

/// Checks that no output file is an input capture: outputs are truncated as they are opened.
///
/// # Errors
/// One of them is an input, perhaps by another name.
pub(super) fn spare_input(args: &ReplayArgs, inputs: &Inputs, plan: &PacketPlan) -> Result<(), Fault> {
    let file = |option, path: &String| (option, "file", PathBuf::from(path));
    let mut files = Vec::new();
    files.extend(args.out.as_ref().map(|path| file("--out", path)));
    files.extend(args.rows.as_ref().map(|path| file("--rows", path)));
    if let Some(folder) = &args.out_dir {
        files.extend(plan.ports.iter().map(|port| ("--out-dir", "folder", file_of_port(folder, port))));
    }
    for (nth, (option, another, path)) in files.iter().enumerate() {
        let captures = inputs.files().map(|file| (file, "the capture"));
        let mut read = captures.chain([(args.file.as_str(), "the program")]);
        let read = read.find(|(read, _)| is_same_file(read.as_ref(), path));
        let written = files[..nth].iter().find(|(.., other)| other == path);
        let over = match (read, written) {
            (Some((_, what)), _) => format!("{what} that is read"),
            (None, Some((other, ..))) => format!("what {other} writes"),
            (None, None) => continue,
        };
        let what = format!("{option} would write over {over}: {}", path.display());
        return Err(Fault::usage(what).with_help(format!("name another {another}")));
    }
    Ok(())
}

/// An interface for each port: its link type, and its name.
fn interfaces<'p>(links: &[Link], plan: &'p PacketPlan) -> impl Iterator<Item = (LinkType, &'p str)> {
    links.iter().map(|link| link.link_type()).zip(plan.ports.iter().map(String::as_str))
}

fn file_of_port(folder: &str, port: &str) -> PathBuf {
    Path::new(folder).join(format!("{port}.pcapng"))
}

/// Whether both paths are one regular file, through links and other spellings.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let (Ok(one), Ok(other)) = (one.metadata(), other.metadata()) else { return false };
    one.is_file() && (one.dev(), one.ino()) == (other.dev(), other.ino())
}

fn unwritten(path: &Path, error: &std::io::Error) -> Fault {
    Fault::environment(format!("cannot write {}: {}", path.display(), clause(error)))
}
