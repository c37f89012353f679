//! Reads labelled flows from captures: each file has traffic of one class.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{ErrorKind, Read as _};
use std::str::FromStr;

use weft_core::Time;
use weft_core::ip::{IpPacket, SCTP, TCP, UDP};
use weft_proto::capture::{Fault as Broken, Reader, Record};

use super::traffic::{Flow, Packet};
use weft_control::fault::Fault;

/// The maximum number of classes.
pub(super) const CLASSES_MAX: usize = 16;
/// The maximum number of flows over all classes. Each class has an equal part, from the beginning of its captures.
pub(super) const FLOWS_MAX: usize = 4_000;
/// The least number of flows of a class: fewer could not be split into training and test flows.
const FLOWS_MIN: usize = 12;
/// The maximum number of packets per flow. Later packets of a long flow resemble the earlier ones.
const FLOW_PACKETS_MAX: usize = 20_000;
/// The least number of packets of a flow; one or two say nothing about its course.
const FLOW_PACKETS_MIN: usize = 3;
/// After this time without a packet the next one begins another flow, as in `flow_marker`.
const IDLE_US: u64 = 60_000_000;
/// Bytes per read.
const READ_BYTES: usize = 1 << 18;

const ETHERTYPE_IPV4: u16 = 0x0800;
const ETHERTYPE_IPV6: u16 = 0x86dd;
const ETHERTYPE_VLAN: u16 = 0x8100;
const ETHERTYPE_QINQ: u16 = 0x88a8;

/// A capture and the class of its flows: `web=a.pcap`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Labelled {
    /// The class.
    label: String,
    /// The file.
    path: String,
}

/// A class, from its captures.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Class {
    pub(super) label: String,
    /// Flows that are used, and flows beyond the maximum.
    pub(super) flows: usize,
    pub(super) left_out: usize,
    /// Flows of fewer than [`FLOW_PACKETS_MIN`] packets.
    pub(super) short: usize,
    /// Packets that are not IP, or are truncated before the end of their addresses.
    pub(super) others: u64,
}

/// One direction of a connection: addresses and ports.
type Key = (u8, [u8; 16], [u8; 16], [u8; 4]);

/// A flow in progress.
#[derive(Debug, Default)]
struct Open {
    packets: Vec<Packet>,
    last: Time,
}

impl FromStr for Labelled {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text.split_once('=') {
            Some((label, path)) if !label.is_empty() && !path.is_empty() => {
                Ok(Self { label: label.to_owned(), path: path.to_owned() })
            }
            _ => Err("say which class it is of: web=capture.pcap".to_owned()),
        }
    }
}

/// Reads the flows of captures, and their classes in order of first use.
///
/// # Errors
/// A file cannot be opened or is no capture; there are too few classes or flows, or too many classes.
pub(super) fn read(captures: &[Labelled]) -> Result<(Vec<Flow>, Vec<Class>), Fault> {
    let mut classes: Vec<Class> = Vec::new();
    for Labelled { label, .. } in captures {
        if !classes.iter().any(|class| class.label == *label) {
            classes.push(Class { label: label.clone(), ..Class::default() });
        }
    }
    if !(2..=CLASSES_MAX).contains(&classes.len()) {
        let n = classes.len();
        return Err(Fault::usage(format!(
            "2 to {CLASSES_MAX} classes can be told apart, not {n}; give captures of each: \
             --capture web=a.pcap --capture bulk=b.pcap"
        )));
    }
    let room = FLOWS_MAX / classes.len();
    let mut flows = Vec::new();
    for capture in captures {
        let at = classes.iter().position(|class| class.label == capture.label).unwrap_or(0);
        read_one(capture, at as u8, &mut classes[at], room, &mut flows)?;
    }
    for class in &classes {
        if class.flows < FLOWS_MIN {
            let Class { label, flows, short, .. } = class;
            return Err(Fault::Input(format!(
                "`{label}` has {flows} flows of {FLOW_PACKETS_MIN} packets or more, and {short} shorter ones; at least \
                 {FLOWS_MIN} are needed, so give more captures of it"
            )));
        }
    }
    Ok((flows, classes))
}

/// Reads one capture to its end. A truncated capture counts as far as it goes.
fn read_one(
    capture: &Labelled,
    class: u8,
    known: &mut Class,
    room: usize,
    flows: &mut Vec<Flow>,
) -> Result<(), Fault> {
    let path = &capture.path;
    let mut file = File::open(path).map_err(|error| Fault::environment(format!("`{path}`: {error}")))?;
    let (mut reader, mut buffer) = (Reader::new(), vec![0; READ_BYTES]);
    let mut open: BTreeMap<Key, Open> = BTreeMap::new();
    let mut end = |packets: Vec<Packet>, known: &mut Class| match packets.len() {
        0 => {}
        1..FLOW_PACKETS_MIN => known.short += 1,
        _ if known.flows == room => known.left_out += 1,
        _ => {
            known.flows += 1;
            flows.push(Flow { class, packets });
        }
    };
    let broken = loop {
        match reader.next() {
            Ok(Some(record)) => {
                let Some((key, bytes)) = flow_of(&record) else {
                    known.others += 1;
                    continue;
                };
                let at = record.at.unwrap_or_default();
                let flow = open.entry(key).or_default();
                let gap_us =
                    if flow.packets.is_empty() { 0 } else { ((at - flow.last).0 / 1000).max(0) as u64 };
                flow.last = at;
                if gap_us > IDLE_US {
                    end(core::mem::take(&mut flow.packets), known);
                    flow.packets.push(Packet { gap_us: 0, bytes });
                } else if flow.packets.len() < FLOW_PACKETS_MAX {
                    flow.packets.push(Packet { gap_us, bytes });
                }
            }
            Ok(None) => match file.read(&mut buffer) {
                Ok(0) => break reader.finish().err(),
                Ok(n) => reader.push(&buffer[..n]),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(Fault::environment(format!("`{path}`: {error}"))),
            },
            Err(error) => break Some(error),
        }
    };
    if let Some(error) = broken.filter(|error| !matches!(error.fault, Broken::Cut { .. })) {
        return Err(Fault::Input(format!("{path}: {error}")));
    }
    open.into_values().for_each(|flow| end(flow.packets, known));
    Ok(())
}

/// The flow of a packet, and the length of its IP packet.
fn flow_of(record: &Record<'_>) -> Option<(Key, u16)> {
    let (mut ethertype, range) = record.link.network(record.bytes)?;
    let mut at = range.start;
    while matches!(ethertype, ETHERTYPE_VLAN | ETHERTYPE_QINQ) {
        let tag: &[u8; 4] = record.bytes.get(at..)?.first_chunk()?;
        ethertype = u16::from_be_bytes([tag[2], tag[3]]);
        at += tag.len();
    }
    let packet = record.bytes.get(at..range.end)?;
    let fixed = |bytes: &[u8]| {
        let mut all = [0; 16];
        all[..bytes.len()].copy_from_slice(bytes);
        all
    };
    let packet = IpPacket::new(packet)?;
    match (ethertype, packet.version()) {
        (ETHERTYPE_IPV4, 4) | (ETHERTYPE_IPV6, 6) => {
            let upper = packet.upper();
            let is_later = upper.part.is_some_and(|part| part.offset > 0);
            let ports = match upper.protocol {
                TCP | UDP | SCTP if !is_later => upper.bytes.first_chunk().copied().unwrap_or_default(),
                _ => [0; 4],
            };
            let length = packet.length().and_then(|length| u16::try_from(length).ok()).unwrap_or(u16::MAX);
            Some(((upper.protocol, fixed(packet.src()), fixed(packet.dst()), ports), length))
        }
        _ => None,
    }
}
