//! Headers that the library's definitions build, as `tshark` reads them.
//!
//! The tests need `tshark`, and print a message where it is missing.

#![allow(
    clippy::disallowed_types,
    clippy::print_stdout,
    reason = "the test runs tshark, or prints that it is missing"
)]

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use weft_core::rng::Rng;
use weft_core::types::Type;
use weft_core::wire::{FieldValue, Header, Protocol, ProtocolId, build, generate, read};

use weft_lang::diagnostic::{RenderOptions, render_all};

use crate::frames::said;
use crate::programs::literal;
use crate::schema::{Disk, root};
use crate::vectors::lines;

/// Number of frames of each stack.
const FRAMES: u64 = 25;

/// Stacks of headers.
pub(crate) const STACKS: &[&[&str]] = &[
    &["ethernet", "arp"],
    &["ethernet", "ipv4", "udp"],
    &["ethernet", "ipv4", "tcp"],
    &["ethernet", "ipv4", "icmp"],
    &["ethernet", "ipv6", "udp"],
    &["ethernet", "ipv6", "tcp"],
    &["ethernet", "ipv6", "icmpv6"],
    &["ethernet", "ipv6", "ipv6_hopopts", "tcp"],
    &["ethernet", "vlan", "ipv4", "tcp"],
    &["ethernet", "vlan", "vlan", "ipv6", "udp"],
    &["ethernet", "ipv4", "sctp"],
    &["ethernet", "ipv4", "udp", "vxlan", "ethernet", "ipv4", "tcp"],
    &["ethernet", "ipv6", "udp", "vxlan", "ethernet", "ipv4", "tcp"],
    &["ethernet", "ipv4", "udp", "geneve", "ethernet", "ipv6", "udp"],
    &["ethernet", "ipv4", "gre", "ipv4", "udp"],
    &["ethernet", "mpls", "ipv4", "tcp"],
    &["ethernet", "ipv4", "udp", "gtpu", "ipv4", "udp"],
    &["ethernet", "nsh", "ipv4", "tcp"],
    &["ethernet", "nsh", "ethernet", "ipv4", "udp"],
    &["ethernet", "pppoe", "ppp", "ipv4", "tcp"],
    &["ethernet", "vlan", "pppoe", "ppp", "ipv6", "udp"],
    &["ethernet", "ipv4", "gre", "erspan", "ethernet", "ipv4", "udp"],
    &["ethernet", "ipv4", "gre", "erspan3", "ethernet", "ipv4", "udp"],
    &["ethernet", "ipv4", "udp", "teredo", "ipv6", "udp"],
    &["ethernet", "ipv4", "udp", "teredo", "teredo_origin", "ipv6", "udp"],
    &["ethernet", "ipv6", "udp", "vxlan_gpe", "ipv4", "tcp"],
    &["ethernet", "ipv4", "udp", "vxlan_gpe", "nsh", "ethernet", "ipv4", "udp"],
    &["ethernet", "ipv4", "udp", "mpls_tunnel", "ipv4", "tcp"],
    &["ethernet", "ipv4", "gre", "mpls_tunnel", "ipv6", "udp"],
];

/// Our fields, and their names in `tshark`; the first of each counts.
const NAMES: &[(&str, &str)] = &[
    ("ethernet.dst", "eth.dst"),
    ("ethernet.src", "eth.src"),
    ("vlan.id", "vlan.id"),
    ("vlan.priority", "vlan.priority"),
    ("arp.opcode", "arp.opcode"),
    ("ipv4.ttl", "ip.ttl"),
    ("ipv4.id", "ip.id"),
    ("ipv4.src", "ip.src"),
    ("ipv4.dst", "ip.dst"),
    ("ipv4.protocol", "ip.proto"),
    ("ipv4.total_length", "ip.len"),
    ("ipv6.src", "ipv6.src"),
    ("ipv6.dst", "ipv6.dst"),
    ("ipv6.hop_limit", "ipv6.hlim"),
    ("ipv6.flow", "ipv6.flow"),
    ("tcp.src_port", "tcp.srcport"),
    ("tcp.dst_port", "tcp.dstport"),
    ("tcp.seq", "tcp.seq_raw"),
    ("tcp.window", "tcp.window_size_value"),
    ("tcp.syn", "tcp.flags.syn"),
    ("tcp.fin", "tcp.flags.fin"),
    ("udp.src_port", "udp.srcport"),
    ("udp.dst_port", "udp.dstport"),
    ("udp.length", "udp.length"),
    ("icmp.type", "icmp.type"),
    ("icmpv6.type", "icmpv6.type"),
    ("sctp.src_port", "sctp.srcport"),
    ("sctp.verification_tag", "sctp.verification_tag"),
    ("vxlan.vni", "vxlan.vni"),
    ("geneve.vni", "geneve.vni"),
    ("gre.protocol", "gre.proto"),
    ("mpls.label", "mpls.label"),
    ("gtpu.teid", "gtp.teid"),
    ("nsh.spi", "nsh.spi"),
    ("pppoe.session", "pppoe.session_id"),
    ("pppoe.length", "pppoe.payload_length"),
    ("ppp.protocol", "ppp.protocol"),
    ("erspan.session", "erspan.spanid"),
    ("erspan.vlan", "erspan.vlan"),
    ("erspan.cos", "erspan.cos"),
    ("erspan3.timestamp", "erspan.timestamp"),
    ("vxlan_gpe.next", "vxlan.next_proto"),
];

/// Checksums that `tshark` verifies.
const SUMS: &[&str] = &["ip.checksum", "tcp.checksum", "udp.checksum", "icmp.checksum", "icmpv6.checksum"];

#[test]
fn tshark_reads_library_frames() {
    // A layout that round-trips may still differ from the standard.
    if !is_here() {
        return;
    }
    let protocols = protocols(&root().join("library/protocols/all.weft"));
    let compared = agree(&protocols, &frames(&protocols));
    let known =
        |name: &str| protocols.iter().any(|protocol| name.starts_with(&format!("{}.", protocol.name)));
    for name in NAMES.iter().map(|(ours, _)| *ours).filter(|ours| known(ours)).chain(SUMS.iter().copied()) {
        assert!(compared.get(name).is_some_and(|n| *n >= 20), "{name} was hardly compared: {compared:?}");
    }
}

#[test]
fn tshark_reads_gateway_frames() {
    // The other end of a tunnel is rarely ours. Another test checks that the frames in the vectors are those that
    // leave.
    if !is_here() {
        return;
    }
    let mut compared = BTreeMap::new();
    for entry in std::fs::read_dir(root().join("tests/programs")).expect("the folder is there") {
        let path = entry.expect("the folder can be read").path();
        let text = std::fs::read_to_string(&path).expect("the data is text");
        let leaving: Vec<_> = lines(&text).into_iter().filter(|line| line.words == ["leaves"]).collect();
        if leaving.is_empty() {
            continue;
        }
        let protocols = protocols(&path);
        let left: Vec<Vec<u8>> =
            leaving.iter().map(|line| said(&protocols, &line.tokens, literal).bytes).collect();
        for (name, n) in agree(&protocols, &left) {
            *compared.entry(name).or_insert(0) += n;
        }
    }
    for name in ["vlan.id", "vxlan.vni", "gtpu.teid", "nsh.spi", "icmp.type", "icmpv6.type", "udp.checksum"] {
        assert!(compared.contains_key(name), "{name} was not compared: {compared:?}");
    }
}

/// Whether `tshark` is installed.
fn is_here() -> bool {
    let is_here = Command::new("tshark").arg("--version").stderr(Stdio::null()).output().is_ok();
    if !is_here {
        println!("skipped: there is no `tshark` here (Debian: apt-get install tshark)");
    }
    is_here
}

pub(crate) fn protocols(file: &Path) -> Vec<Protocol> {
    let (network, diagnostics, sources) = weft_lang::check(&file.display().to_string(), &mut Disk);
    let told = || render_all(&diagnostics, &sources, RenderOptions::default());
    network.unwrap_or_else(|| panic!("{}", told())).protocols
}

/// Compares frames with the reading of `tshark`; returns how often each field was compared.
fn agree(protocols: &[Protocol], frames: &[Vec<u8>]) -> BTreeMap<&'static str, u32> {
    let told = tell(frames);
    let mut compared = BTreeMap::new();
    for (frame, line) in frames.iter().zip(told.lines()) {
        let mut columns = line.split('\t');
        for (ours, theirs) in NAMES {
            let column = columns.next().unwrap_or_default();
            if let (Some(value), false) = (of(protocols, frame, ours), column.is_empty()) {
                assert_eq!(theirs_as_ours(column), value, "{theirs} of {frame:02x?}");
                *compared.entry(*ours).or_insert(0) += 1;
            }
        }
        for sum in SUMS {
            let status = columns.next().unwrap_or_default();
            assert!(!["0", "4"].contains(&status), "{sum} is bad in {frame:02x?}");
            if status == "1" {
                *compared.entry(*sum).or_insert(0) += 1;
            }
        }
    }
    compared
}

/// Random frames of all stacks whose protocols exist.
fn frames(protocols: &[Protocol]) -> Vec<Vec<u8>> {
    let id = |name: &&str| protocols.iter().position(|protocol| protocol.name == **name);
    let mut frames = Vec::new();
    for stack in STACKS {
        let Some(ids) = stack.iter().map(id).collect::<Option<Vec<usize>>>() else { continue };
        for seed in 0..FRAMES {
            let rng = &mut Rng::from_seed(seed);
            let header = |at: &usize| {
                let mut header = generate::header(&protocols[*at], ProtocolId(*at as u16), rng);
                plain(&protocols[*at], &mut header);
                header
            };
            let mut headers: Vec<Header> = ids.iter().map(header).collect();
            for (at, _) in stack.iter().enumerate().skip(1).filter(|(_, name)| **name == "vlan") {
                // There are two EtherTypes for tags, and `tshark` has other field names for the second.
                let below = &protocols[ids[at - 1]];
                below
                    .field("type")
                    .and_then(|id| headers[at - 1].values.insert(id, FieldValue::Number(0x8100)));
            }
            let payload: Vec<u8> = (0..rng.below(30)).map(|_| rng.bits() as u8).collect();
            frames.push(build(protocols, &headers, &payload).unwrap_or_else(|e| panic!("{stack:?}: {e:?}")));
        }
    }
    frames
}

/// Removes values that change the meaning of a header: fragments are no whole packets, and ports select protocols.
pub(crate) fn plain(protocol: &Protocol, header: &mut Header) {
    for name in ["mf", "frag_offset", "options", "src_port", "dst_port"] {
        if let Some(id) = protocol.field(name) {
            header.values.remove(&id);
        }
    }
    for (name, port) in [("src_port", 50_001), ("dst_port", 50_002)] {
        let is_named = protocol.next.iter().any(|next| !next.condition.required().is_empty());
        if let Some(id) = protocol.field(name).filter(|_| !is_named || name == "src_port") {
            header.values.insert(id, FieldValue::Number(port));
        }
    }
}

/// The output of `tshark`: a line for each frame, with a column for each field and checksum.
fn tell(frames: &[Vec<u8>]) -> String {
    let mut command = Command::new("tshark");
    command.args(["-r", "-", "-T", "fields", "-E", "occurrence=f"]);
    for (_, name) in NAMES {
        command.args(["-e", name]);
    }
    for sum in SUMS {
        let protocol = sum.split('.').next().unwrap_or_default();
        command.args(["-e", &format!("{sum}.status")]);
        if !protocol.starts_with("icmp") {
            command.args(["-o", &format!("{protocol}.check_checksum:TRUE")]);
        }
    }
    let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn();
    let mut child = child.expect("tshark is installed");
    let mut capture = [0xa1b2_c3d4u32.to_le_bytes(), [2, 0, 4, 0], [0; 4], [0; 4]].concat();
    capture.extend(65_535u32.to_le_bytes());
    capture.extend(1u32.to_le_bytes());
    for frame in frames {
        let len = (frame.len() as u32).to_le_bytes();
        capture.extend([[0; 4], [0; 4], len, len].concat());
        capture.extend(frame);
    }
    let mut stdin = child.stdin.take().expect("the input is piped");
    let writer = std::thread::spawn(move || stdin.write_all(&capture));
    let output = child.wait_with_output().expect("the command ends");
    writer.join().expect("the writer does not panic").expect("the command reads its whole input");
    String::from_utf8(output.stdout).expect("the data is text")
}

/// The value of a field in a frame, as text.
fn of(protocols: &[Protocol], frame: &[u8], name: &str) -> Option<String> {
    let (protocol, field) = name.split_once('.')?;
    let root = protocols.iter().position(|protocol| protocol.name == "ethernet")?;
    let reading = read(protocols, &[ProtocolId(root as u16)], frame);
    let layer = reading.layers.iter().find(|l| protocols[usize::from(l.protocol.0)].name == protocol)?;
    let definition = &protocols[usize::from(layer.protocol.0)];
    let id = definition.field(field)?;
    let found = layer.fields.iter().find(|found| found.field == id)?;
    Some(match (&found.value, definition.fields[usize::from(id.0)].ty) {
        (FieldValue::Number(number), _) => number.to_string(),
        (FieldValue::Bytes(bytes), Type::IpAddr) => match <[u8; 16]>::try_from(&**bytes) {
            Ok(v6) => std::net::Ipv6Addr::from(v6).to_string(),
            Err(_) => bytes.iter().map(u8::to_string).collect::<Vec<_>>().join("."),
        },
        (FieldValue::Bytes(bytes), _) => {
            let mut text = String::new();
            bytes.iter().for_each(|byte| text.push_str(&format!(":{byte:02x}")));
            text.split_off(1.min(text.len()))
        }
    })
}

/// Converts numbers to decimal, as we write them.
fn theirs_as_ours(column: &str) -> String {
    match column {
        "True" => "1".to_owned(),
        "False" => "0".to_owned(),
        _ => match column.strip_prefix("0x").and_then(|hex| u64::from_str_radix(hex, 16).ok()) {
            Some(number) => number.to_string(),
            None => column.to_owned(),
        },
    }
}
