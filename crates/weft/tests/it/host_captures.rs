//! Replays captures of hosts and radios: other link types, offloaded work, truncated packets, and long ones.

use crate::node::{Folder, output, weft};
use crate::replay::{capture, fragments, packet, packets_in, replay_json, sum};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use weft_core::frame::build::ethernet;
use weft_core::ip::DONT_FRAGMENT;
use weft_proto::capture::{LinkType, Packet, Reader, Style, Writer};

/// Identifies packets by their ports.
const NETWORK: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT see ON packet AS
  TABLE seen (port I64 PRIMARY KEY, n I64 = 0, bytes I64 = 0, intact I64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON PACKET
    LET to = coalesce(int(udp.dst_port), int(tcp.dst_port), 0);
    LET bytes_here = int(size);
    LET is_right = CASE WHEN is_intact THEN 1 ELSE 0 END;
    UPSERT seen KEY (to) SET n = n + 1, bytes = bytes + bytes_here, intact = intact + is_right;
END;
CREATE CHAIN edge ON PORT wan -> lan AS see; END;
";
const SEEN: &str = "SELECT port, n, bytes, intact FROM edge.see.seen ORDER BY port";

/// The element's counts: port, packets, bytes, packets with right checksums.
fn counts_of(folder: &Folder, program: &Path, input: &Path, args: &[&str]) -> Value {
    let report = replay_json(folder, program, input, &[&["--query", SEEN], args].concat());
    report["answers"][0]["rows"].clone()
}

/// A capture of packets with their link types.
fn links(path: &Path, packets: &[(LinkType, Vec<u8>)]) {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Style::default(), packets[0].0, "", &mut bytes);
    for (nth, (link, packet)) in packets.iter().enumerate() {
        let interface = match nth {
            0 => 0,
            _ => writer.interface(*link, "", &mut bytes).expect("there is room"),
        };
        writer.write(&Packet { interface, bytes: packet, ..Packet::default() }, &mut bytes).expect("short");
    }
    std::fs::write(path, bytes).expect("the folder is ours");
}

/// A frame of 802.11 with this IP packet.
fn radio(is_qos: bool, ip: &[u8]) -> Vec<u8> {
    let mut frame = vec![if is_qos { 0x88 } else { 0x08 }, 0x01];
    frame.resize(24, 2);
    frame[22] = 0x10;
    frame.extend(is_qos.then_some([0, 0]).into_iter().flatten());
    frame.extend([0xaa, 0xaa, 3, 0, 0, 0, 8, 0]);
    frame.extend(ip);
    frame
}

/// Captures of radios, of serial lines and of firewalls could not be read, or their packets would be misread.
#[test]
fn packets_decode_on_all_link_types() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let ip = |port: u16| packet(9, port)[14..].to_vec();
    let behind = |link: u16, header: &[u8], port: u16| (LinkType(link), [header, &ip(port)].concat());
    let length = (ip(0).len() + 4) as u16;
    let nflog =
        [&[2, 0, 0, 7, 8, 0, 10, 0, b'a', b'b', b'c', 0][..], &length.to_le_bytes(), &[9, 0]].concat();
    let radiotap = [0, 0, 9, 0, 2, 0, 0, 0, 0x10];
    let pppoe = [&[0x11, 0, 0, 1][..], &(ip(0).len() as u16 + 2).to_be_bytes(), &[0, 0x21]].concat();
    let mut sll2 = vec![8, 0, 0, 0, 0, 0, 0, 1, 0, 1, 0, 6];
    sll2.resize(20, 0);
    let packets = vec![
        behind(1, &packet(9, 1)[..14], 1001),
        (LinkType::IEEE802_11, radio(true, &ip(1002))),
        (LinkType::RADIOTAP, [&radiotap[..], &radio(false, &ip(1003)), &[1, 2, 3, 4]].concat()),
        behind(239, &nflog, 1004),
        behind(219, &[0, 1, 1, 64], 1005),
        behind(50, &[0xff, 3, 0, 0x21], 1006),
        behind(50, &[0x0f, 0, 8, 0], 1007),
        behind(51, &pppoe, 1008),
        behind(9, &[0x21], 1009),
        behind(276, &sll2, 1010),
        behind(101, &[], 1011),
        behind(0, &[2, 0, 0, 0], 1012),
        behind(108, &[0, 0, 0, 2], 1013),
        behind(104, &[0x0f, 0, 8, 0], 1014),
    ];
    let input = folder.0.join("in.pcapng");
    links(&input, &packets);
    let rows = counts_of(&folder, &program, &input, &[]);
    let ports: Vec<u64> = rows.as_array().expect("rows").iter().filter_map(|row| row[0].as_u64()).collect();
    assert_eq!(ports, (1001..=1014).collect::<Vec<_>>());
    assert!(rows.as_array().expect("rows").iter().all(|row| row[3] == 1), "{rows}");
    // Compare with another program.
    let mut tshark = Command::new("tshark");
    tshark.arg("-r").arg(&input).args(["-T", "fields", "-e", "udp.dstport"]).stderr(Stdio::null());
    let Ok(done) = tshark.output() else { return eprintln!("skipped: there is no `tshark` here") };
    // tshark decodes nothing after labels without a hint at the payload's type.
    let theirs = String::from_utf8_lossy(&done.stdout).lines().map(String::from).collect::<Vec<_>>();
    let known = (1001..=1014).map(|port| if port == 1005 { String::new() } else { port.to_string() });
    assert_eq!(theirs, known.collect::<Vec<_>>());
}

/// A TCP segment as a host passes it to an offloading device: length 0, no IPv4 checksum, and the sum of the pseudo
/// header.
fn unfinished(payload: usize) -> Vec<u8> {
    let ip = ethernet().macs([2; 6], [2; 6]).ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(1, DONT_FRAGMENT);
    let tcp = ip.ttl(9).length(0).checksum(0).tcp(1000, 80).partial_checksum();
    tcp.payload(vec![7; payload]).build()
}

/// Packets that a host sends would count as damaged, without a hint at the option that helps.
#[test]
fn offloaded_checksums_can_be_trusted() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let input = folder.0.join("in.pcap");
    let mut broken = packet(9, 7);
    let last = broken.len() - 1;
    broken[last] ^= 1;
    capture(&input, &[unfinished(3_000), unfinished(5), packet(9, 53), broken]);
    let rows = counts_of(&folder, &program, &input, &[]);
    assert_eq!(rows, json!([[7, 1, 47, 0], [53, 1, 47, 1]]));
    let report = output(weft(&folder).arg("replay").arg(&program).arg("--in").arg(&input));
    let report = String::from_utf8_lossy(&report.stderr).into_owned();
    let hint = "2 of 4 packets have a checksum, and 2 a length of 0, that a device was still to fill in: \
                --trust-checksums does so";
    assert!(report.contains(hint), "{report}");
    let out = folder.0.join("out.pcap");
    let args = ["--trust-checksums", "--out", out.to_str().expect("it is text")];
    let rows = counts_of(&folder, &program, &input, &args);
    assert_eq!(rows, json!([[7, 1, 47, 1], [53, 1, 47, 1], [80, 2, 3054 + 59, 2]]));
    let left = packets_in(&out);
    assert_eq!((u16::from_be_bytes([left[0][16], left[0][17]]), sum(&left[0][14..34])), (3_040, 0xffff));
    // The device would do the rest.
    assert_eq!(left[0][34..], unfinished(3_000)[34..]);
    // Few such packets cause no hint.
    capture(&input, &[&vec![packet(9, 53); 20][..], &[unfinished(5)]].concat());
    let report = output(weft(&folder).arg("replay").arg(&program).arg("--in").arg(&input));
    assert!(!String::from_utf8_lossy(&report.stderr).contains("trust"));
}

/// Most captures have a short snapshot length; all of their packets would count as malformed.
#[test]
fn snapped_packets_parse_headers() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let whole = fragments(53, 1, 900, 1_480).remove(0);
    let write = |path: &Path, snapshot: usize| {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "", &mut bytes);
        for packet in [&whole[..], &packet(9, 9), &whole] {
            let cut = &packet[..packet.len().min(snapshot)];
            let original_length = Some(packet.len() as u32);
            writer
                .write(&Packet { bytes: cut, original_length, ..Packet::default() }, &mut bytes)
                .expect("it is short");
        }
        std::fs::write(path, bytes).expect("the folder is ours");
    };
    let (input, out) = (folder.0.join("in.pcapng"), folder.0.join("out.pcapng"));
    for backend in ["jit", "interp"] {
        write(&input, 64);
        let args = ["--backend", backend, "--out", out.to_str().expect("it is text")];
        let bytes = 2 * whole.len();
        assert_eq!(counts_of(&folder, &program, &input, &args), json!([[9, 1, 47, 1], [53, 2, bytes, 2]]));
        let (mut reader, mut lengths) = (Reader::new(), Vec::new());
        reader.push(&std::fs::read(&out).expect("it was written"));
        while let Some(record) = reader.next().expect("it is whole") {
            lengths.push((record.bytes.len(), record.original_length as usize));
        }
        assert_eq!(lengths, [(64, whole.len()), (47, 47), (64, whole.len())]);
        // A truncated header has no readable fields.
        write(&input, 38);
        let report = replay_json(&folder, &program, &input, &args);
        let why = report["ended"][0]["why"].as_str().expect("it is reported");
        assert!(why.contains("udp") && why.contains("truncated"), "{report}");
    }
    // A whole packet with a wrong length is still malformed.
    let liar = [&packet(9, 9)[..16], &[1], &packet(9, 9)[17..]].concat();
    capture(&input, &[liar]);
    assert_eq!(counts_of(&folder, &program, &input, &[]), json!([]));
}

/// The outcomes of packets would be assigned to the wrong packets after a duplicate.
#[test]
fn duplicate_fragment_keeps_order() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let (input, report) = (folder.0.join("in.pcap"), folder.0.join("told.pcapng"));
    let parts = fragments(53, 1, 3_000, 1_480);
    let again = [parts[1].clone(), packet(9, 3), parts[2].clone(), packet(9, 4)];
    let packets = [&[packet(9, 1)][..], &parts[..2], &[packet(9, 2)], &again].concat();
    capture(&input, &packets);
    let mut replay = weft(&folder);
    replay.arg("replay").arg(&program).arg("--in").arg(&input).args(["--annotate", "--out"]).arg(&report);
    assert_eq!(output(&mut replay).status.code(), Some(0));
    assert!(packets_in(&report) == packets);
}

/// Segments that a host passes to its device in one piece could not be parsed, or would be damaged.
#[test]
fn packets_over_64_kib_pass_whole() {
    let folder = Folder::new();
    let text = NETWORK.replace("IMPORT 'library/protocols/all.weft';\n", "");
    let at = text.find("  ON PACKET").expect("it has one");
    let program = format!(
        "{}  ON PACKET\n    UPSERT seen KEY (0) SET n = n + 1, bytes = bytes + int(size);\nEND;\n\
                           CREATE CHAIN edge ON PORT wan -> lan AS see; END;\n",
        &text[..at]
    );
    let program = folder.write("edge.weft", &program);
    let (input, out) = (folder.0.join("in.pcapng"), folder.0.join("out.pcap"));
    let packets = [packet(9, 1), unfinished(200_000), packet(9, 2)];
    capture(&input, &packets);
    let args = ["--out", out.to_str().expect("it is text")];
    let bytes = packets.iter().map(Vec::len).sum::<usize>();
    assert_eq!(counts_of(&folder, &program, &input, &args), json!([[0, 3, bytes, 0]]));
    assert_eq!(packets_in(&out), packets);
}
