//! `weft replay`, from a program with the library's protocols to a capture that Wireshark reads.

use crate::node::{Folder, output, weft};
use std::path::Path;
use weft_core::checksum;
use weft_core::frame::build::{self, FrameBuilder, ethernet, set_ipv4_checksum};
use weft_core::ip::DONT_FRAGMENT;
use weft_proto::capture::{Format, LinkType, Packet, Reader, Style, Writer};

const NETWORK: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON pcap 'never.pcap';
CREATE PORT lan ON memory;
CREATE ELEMENT hop ON ipv4 AS
  ON PACKET
    IF ipv4.ttl <= 1 THEN
      DROP;
    END IF;
    SET ipv4.ttl = ipv4.ttl - 1;
END;
CREATE ELEMENT dns ON udp AS
  TABLE seen (dst_port U64 PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
  ON PACKET
    UPSERT seen KEY (udp.dst_port) SET n = n + 1;
    IF udp.dst_port = 53 THEN
      SET udp.dst_port = 5353;
    END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS hop -> dns; END;
";

/// An element that takes packets out of a tunnel, and adds a link header if the tunnel carries none.
fn opened(name: &str) -> String {
    format!(
        "CREATE ELEMENT {name} ON packet AS
  ON PACKET
    IF present(inner.ethernet) THEN
      POP TO inner.ethernet;
    ELSIF present(inner.ip) THEN
      POP TO inner.ip;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = '02:00:00:00:00:02');
    END IF;
END;
"
    )
}

pub(crate) fn sum(bytes: &[u8]) -> u16 {
    checksum::fold(checksum::sum(bytes))
}

/// The sum of a datagram and its pseudo header.
fn udp_sum(packet: &[u8]) -> u16 {
    sum(&[&packet[26..34], &[0, 17], &packet[38..40], &packet[34..]].concat())
}

/// A UDP packet from 10.0.0.1 to 10.0.0.2.
pub(crate) fn packet(ttl: u8, dst_port: u16) -> Vec<u8> {
    packet_to([10, 0, 0, 2]).ttl(ttl).udp(1000, dst_port).payload(b"hello").build()
}

/// A packet from 10.0.0.1.
fn packet_to(dst: [u8; 4]) -> FrameBuilder {
    ethernet().macs([2; 6], [2; 6]).ipv4([10, 0, 0, 1], dst).fragment(1, DONT_FRAGMENT)
}

pub(crate) fn capture(path: &Path, packets: &[Vec<u8>]) {
    let mut bytes = Vec::new();
    let style = Style { format: Format::Pcap, ..Style::default() };
    let mut writer = Writer::new(style, LinkType::ETHERNET, "", &mut bytes);
    for packet in packets {
        writer.write(&Packet { bytes: packet, ..Packet::default() }, &mut bytes).expect("it is short");
    }
    std::fs::write(path, bytes).expect("the folder is ours");
}

/// A capture of packets with their times, in milliseconds.
fn capture_at(path: &Path, packets: impl IntoIterator<Item = (i64, Vec<u8>)>) {
    let mut bytes = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "", &mut bytes);
    for (at_ms, packet) in packets {
        let at = weft_core::Time(1_000_000_000 + at_ms * 1_000_000);
        writer.write(&Packet { at, bytes: &packet, ..Packet::default() }, &mut bytes).expect("it is short");
    }
    std::fs::write(path, bytes).expect("the folder is ours");
}

/// If this failed, no user could test rules on old traffic.
#[test]
fn replay_runs_chain_on_capture() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let path = |name: &str| folder.0.join(name);
    let mut broken = packet(9, 80);
    broken[25] ^= 1;
    capture(&path("in.pcap"), &[packet(64, 53), packet(1, 53), packet(9, 80), broken]);
    let replay = |args: &[&str]| {
        output(weft(&folder).arg("replay").arg(&program).arg("--in").arg(path("in.pcap")).args(args))
    };
    for backend in ["jit", "interp"] {
        let out = path("out.pcapng").display().to_string();
        let done = replay(&["-o", "json", "--annotate", "--out", &out, "--backend", backend]);
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is data");
        let elements: Vec<_> = report["elements"].as_array().into_iter().flatten().collect();
        let counts = |name| elements.iter().map(|element| element[name].as_u64()).collect::<Vec<_>>();
        assert_eq!((counts("seen"), counts("dropped")), (vec![Some(3), Some(2)], vec![Some(1), Some(0)]));
        assert_eq!(report["ports"][1]["out"], 2);
        let files = report["ended"].as_array().into_iter().flatten().filter_map(|end| end["file"].as_str());
        let files: Vec<_> = files.map(|file| file.rsplit('/').next().unwrap_or_default()).collect();
        assert_eq!(files, ["ipv4.weft", "edge.weft"]);

        let (mut reader, mut fates) = (Reader::new(), Vec::new());
        reader.push(&std::fs::read(&out).expect("it was written"));
        while let Some(record) = reader.next().expect("it is whole") {
            let comment = record.comments().next().map(|comment| comment.to_string()).unwrap_or_default();
            if comment.contains("forward") {
                assert_eq!((sum(&record.bytes[14..34]), udp_sum(record.bytes)), (0xffff, 0xffff));
            }
            fates.push((comment, record.bytes[22], u16::from_be_bytes([record.bytes[36], record.bytes[37]])));
        }
        let forward = |ttl, port| ("weft: forward to lan".to_owned(), ttl, port);
        assert_eq!((&fates[0], &fates[2]), (&forward(63, 5353), &forward(8, 80)));
        assert_eq!(fates[1], ("weft: drop by hop line 7".to_owned(), 1, 53));
        assert!(fates[3].0.starts_with("weft: malformed by ipv4 line "), "{}", fates[3].0);
    }
    assert!(!String::from_utf8_lossy(&replay(&[]).stderr).contains("link"));
    let text = std::fs::read_to_string(&program).expect("it is there");
    let queue = "CREATE QUEUE q AS LIMIT 1 PACKETS ON OVERFLOW DROP TAIL; END;";
    std::fs::write(&program, format!("{text}\n{queue}\nCREATE LINK thin ON PORT lan QUEUE q;\n"))
        .expect("ours");
    let report = replay(&[]);
    assert!(
        report.status.success()
            && String::from_utf8_lossy(&report.stderr).contains("link `thin` holds nothing")
    );
    std::fs::write(&program, text).expect("ours");
    assert_eq!(replay(&["--chain", "core"]).status.code(), Some(2));
    assert_eq!(replay(&["--port", "lan"]).status.code(), Some(2));
    std::fs::write(path("in.pcap"), "this is text").expect("the folder is ours");
    assert_eq!(replay(&[]).status.code(), Some(1));
    std::fs::remove_file(path("in.pcap")).expect("it is there");
    assert_eq!(replay(&[]).status.code(), Some(3));
    // This version of the node only carries calls, and must not seem to carry packets.
    let done = output(weft(&folder).args(["run", "--admin", "127.0.0.1:0"]).arg(&program));
    assert_eq!(done.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&done.stderr).contains("weft replay"));
}

/// A script would take a part of a capture for all of it; a user with a PPP capture would look for IP packets.
#[test]
fn json_reports_incomplete_capture() {
    let folder = Folder::new();
    let program = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON packet 'eth0';
CREATE ELEMENT all ON packet AS ON PACKET FORWARD; END;
CREATE CHAIN edge ON PORT wan AS all; END;
";
    let program = folder.write("network.weft", program);
    let whole = folder.0.join("whole.pcap");
    capture(&whole, &[packet(9, 7), packet(9, 8)]);
    let bytes = std::fs::read(&whole).expect("it is written");
    let replay = |bytes: &[u8]| {
        let input = folder.0.join("in.pcap");
        std::fs::write(&input, bytes).expect("the folder is ours");
        let done =
            output(weft(&folder).arg("replay").arg(&program).arg("--in").arg(&input).args(["-o", "json"]));
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
        (done.status.code(), report, String::from_utf8_lossy(&done.stderr).into_owned())
    };
    let (status, report, _) = replay(&bytes);
    assert!(status == Some(0) && report["packets"] == 2 && report["broken"].is_null(), "{report}");
    // In the second packet, in the first, and in the header of the file.
    for (n, length) in [(1, bytes.len() - 3), (0, 24 + 16 + 3), (0, 24 + 3), (0, 24 - 3), (0, 8)] {
        let (status, report, errors) = replay(&bytes[..length]);
        assert!(status == Some(0) && report["packets"] == n, "{length}: {report} {errors}");
        let why = format!("the capture is cut short: it ends at byte {length}");
        assert!(report["broken"].as_str().is_some_and(|report| report.starts_with(&why)), "{report}");
        assert!(errors.contains(&why), "{errors}");
    }
    assert_eq!(replay(&[]).0, Some(1));
    let mut damaged = bytes.clone();
    damaged[24 + 16 + (bytes.len() - 24) / 2 - 16 + 8..][..4].fill(0xff);
    let (status, report, errors) = replay(&damaged);
    assert!(status == Some(1) && report["packets"] == 1 && report["broken"].is_string(), "{report} {errors}");
}

/// Many captures come from `tcpdump -i any`, from a loopback or from a tunnel.
#[test]
fn raw_ip_replays_on_both_port_kinds() {
    let folder = Folder::new();
    let ports = |kind: &str| {
        format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON {kind} 'x0';
CREATE ELEMENT others ON packet AS ON PACKET IF udp.dst_port = 7 THEN DROP; END IF; END;
CREATE CHAIN edge ON PORT wan -> wan AS others; END;
"
        )
    };
    let programs = ["packet", "tun"].map(|kind| folder.write(&format!("{kind}.weft"), &ports(kind)));
    let cooked = [&[0; 14][..], &[8, 0]].concat();
    let links: [(u32, &[u8], &str); 6] = [
        (9, &[0xff, 3, 0, 0x21], "PPP"),
        (12, &[], "raw IP"),
        (101, &[], "raw IP"),
        (104, &[0x0f, 0, 8, 0], "Cisco HDLC"),
        (113, &cooked, "Linux cooked"),
        (1, &packet(9, 9)[..14], "Ethernet"),
    ];
    for (link, header, name) in links {
        let input = folder.0.join("in.pcap");
        let packets = [7, 8].map(|port| [header, &packet(9, port)[14..]].concat());
        capture(&input, &packets);
        let mut bytes = std::fs::read(&input).expect("it is written");
        let number = if bytes[0] == 0xa1 { link.to_be_bytes() } else { link.to_le_bytes() };
        bytes[20..24].copy_from_slice(&number);
        std::fs::write(&input, bytes).expect("the folder is ours");
        for (program, is_framed) in programs.iter().zip([true, false]) {
            let out = folder.0.join("out.pcap");
            let mut replay = weft(&folder);
            replay.arg("replay").arg(program).arg("--in").arg(&input).arg("--out").arg(&out);
            let done = output(replay.args(["-o", "json"]));
            let report: serde_json::Value = serde_json::from_slice(&done.stdout).unwrap_or_default();
            let errors = String::from_utf8_lossy(&done.stderr).into_owned();
            assert!(report["packets"] == 2 && report["refused"] == 0, "{name}: {report} {errors}");
            let is_made_up = is_framed && link != 1;
            assert_eq!(errors.contains(&format!("is of {name}: at port `wan`")), is_made_up, "{errors}");
            let link_bytes = if link == 1 { &packet(9, 9)[..14] } else { &[&[0; 12][..], &[8, 0]].concat() };
            let front: &[u8] = if is_framed { link_bytes } else { &[] };
            let left = std::fs::read(&out).expect("it was written");
            assert_eq!(left[24 + 16..], [front, &packet(9, 8)[14..]].concat(), "{name}");
        }
    }
}

/// An IPv4 frame with this ECN, and a right checksum.
fn with_ecn(frame: &[u8], ecn: u8) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[15] = ecn;
    set_ipv4_checksum(&mut frame[14..]);
    frame
}

/// Congestion marks on a tunnel's packets would be lost: senders would not slow down (RFC 6040).
#[test]
fn tunnel_carries_ecn_marks_out() {
    let folder = Folder::new();
    let gateways = [
        (
            "vxlan",
            "vxlan_gateway (inside = 'lan', outside = 'wan', vni = 7, own_ip = '192.0.2.2', peer = '192.0.2.1', \
             own_mac = '02:00:00:00:00:01', next_mac = '02:00:00:00:00:02')",
            "",
        ),
        (
            "gtpu",
            "gtpu_gateway (core = 'lan', radio = 'wan', own_ip = '192.0.2.2', own_mac = '02:02:02:02:02:02', \
             core_mac = '02:02:02:02:02:02', radio_mac = '02:00:00:00:00:03')",
            "INSERT INTO c.gtpu_gateway.tunnels VALUES (7, '10.0.0.1');",
        ),
    ];
    for (by, stage, rows) in gateways {
        let program = format!(
            "IMPORT 'library/elements/{by}_gateway.weft';
CREATE PORT lan ON memory; CREATE PORT wan ON memory;
CREATE CHAIN c ON PORT lan, wan AS {stage}; END;\n{rows}\n"
        );
        let program = folder.write(&format!("{by}.weft"), &program);
        let (input, out) = (folder.0.join("in.pcap"), folder.0.join("out.pcap"));
        let pairs: Vec<_> = (0..4).flat_map(|outer| (0..4).map(move |carried| (outer, carried))).collect();
        let frame = |(outer, carried)| with_ecn(&tunnelled(by, 7, &with_ecn(&packet(9, 9), carried)), outer);
        capture(&input, &pairs.iter().map(|pair| frame(*pair)).collect::<Vec<_>>());
        let behind = pairs.iter().filter_map(|pair| match *pair {
            (3, 0) => None,
            (outer @ 3, _) | (outer @ 1, 2) => Some(outer),
            (_, carried) => Some(carried),
        });
        let wanted: Vec<_> = behind.map(|ecn| with_ecn(&packet(9, 9), ecn)).collect();
        for backend in ["jit", "interp"] {
            let mut replay = weft(&folder);
            replay.arg("replay").arg(&program).arg("--in").arg(&input).arg("--out").arg(&out);
            let done = output(replay.args(["--port", "wan", "--backend", backend]));
            assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
            assert_eq!(packets_in(out.as_ref()), wanted, "{by}");
        }
    }
}

/// The report of each packet would lack some packets.
#[test]
fn orphan_fragments_are_reported() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let (input, report) = (folder.0.join("in.pcap"), folder.0.join("told.pcapng"));
    let last = fragments(53, 1, 3_000, 1_480).pop().expect("there are three");
    capture(&input, &[packet(9, 9), last]);
    let mut replay = weft(&folder);
    replay.arg("replay").arg(&program).arg("--in").arg(&input).args(["--annotate", "--out"]).arg(&report);
    assert_eq!(output(&mut replay).status.code(), Some(0));
    let report = std::fs::read(&report).expect("it was written");
    let report = String::from_utf8_lossy(&report).into_owned();
    for wanted in ["weft: forward to lan", "weft: drop: the first fragment has not come"] {
        assert!(report.contains(wanted), "{wanted}");
    }
}

/// A fragment that overwrites a header would be dropped without a rule's name.
#[test]
fn overlapping_fragments_are_malformed() {
    // A datagram of 24 bytes in two fragments, of which the second begins 8 bytes before the first ends.
    let part = |offset: u16, more: u16| {
        let ip = ethernet().ipv6([0xfd; 16], [0xfe; 16]).protocol(44);
        let ip = ip.other(&[17, 0]).payload((offset << 3 | more).to_be_bytes()).payload([0, 0, 0, 7]);
        ip.payload([0x03, 0xe8, 0, 53, 0, 32, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8]).build()
    };
    let folder = Folder::new();
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT web ON ip AS ON PACKET IF udp.dst_port = 80 THEN DROP; END IF; END;
CREATE CHAIN edge ON PORT wan -> lan AS web; END;
";
    let program = folder.write("edge.weft", text);
    for backend in ["jit", "interp"] {
        let report = replayed(&folder, &program, backend, &[part(0, 1), part(1, 0), part(2, 0)]);
        assert_eq!(report["ports"][1]["out"], 1, "{report}");
        let of_six = |end: &&serde_json::Value| {
            end["why"] == "malformed ipv6_fragment: overlaps another fragment, or ends where none may"
        };
        let end =
            report["ended"].as_array().and_then(|ended| ended.iter().find(of_six)).expect("it is reported");
        assert_eq!((&end["packets"], &end["file"]), (&2.into(), &"library/protocols/ipv6.weft".into()));
        assert!(end["line"].as_u64() > Some(60), "{end}");
        assert_eq!(report["chains"][0]["packets"], 3, "those that overlap took the chain as well");
    }
}

/// A fragment could be joined with a packet from minutes before, because captures are read in large batches.
#[test]
fn fragments_expire_in_capture_time() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let input = folder.0.join("in.pcap");
    let [first, last] = <[_; 2]>::try_from(fragments(53, 1, 1_500, 1_480)).expect("there are two");
    capture_at(&input, [(0, last), (300_000, first)]);
    let mut replay = weft(&folder);
    replay.arg("replay").arg(&program).arg("--in").arg(&input).args(["-o", "json"]);
    let report: serde_json::Value = serde_json::from_slice(&output(&mut replay).stdout).expect("it is JSON");
    assert_eq!(drops_in(&report, ["the first fragment has not come"]), [1], "{report}");
}

/// A capture would be overwritten by its own replay, and there may be no copy.
#[test]
fn replay_refuses_output_onto_input() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let input = folder.0.join("wan.pcapng");
    capture(&input, &[packet(64, 53), packet(9, 80)]);
    let before = std::fs::read(&input).expect("it was written");
    std::fs::hard_link(&input, folder.0.join("linked.pcapng")).expect("the folder is ours");
    std::os::unix::fs::symlink(&input, folder.0.join("soft.pcapng")).expect("the folder is ours");
    let other_spelling = format!("{}/./wan.pcapng", folder.0.display());
    let path = |name: &str| folder.0.join(name).display().to_string();
    let all = [path("wan.pcapng"), path("linked.pcapng"), path("soft.pcapng"), other_spelling];
    let of_file = all.iter().flat_map(|out| [vec!["--out", out], vec!["--annotate", "--out", out]]);
    for args in of_file.chain([vec!["--out-dir", folder.0.to_str().expect("it is a name")]]) {
        let done = output(weft(&folder).arg("replay").arg(&program).arg("--in").arg(&input).args(&args));
        let report = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(2), "{args:?}: {report}");
        assert!(
            report.contains("would write over the capture that is read")
                && report.contains("help: name another")
        );
        assert_eq!(std::fs::read(&input).ok().as_deref(), Some(&*before), "{args:?}");
        assert!(!folder.0.join("lan.pcapng").exists(), "nothing is opened before");
    }
}

/// A UDP datagram in fragments of this many bytes.
pub(crate) fn fragments(dst_port: u16, id: u16, payload: usize, bytes: usize) -> Vec<Vec<u8>> {
    let whole = packet_to([10, 0, 0, 2]).udp(1000, dst_port).checksum(0).payload(vec![0x5a; payload]);
    build::fragments(&whole.build(), id, bytes)
}

/// If this failed, rules about ports would not hold for large datagrams: later fragments of blocked ones would pass, or
/// first fragments of permitted ones would count as malformed.
#[test]
fn port_rules_hold_for_fragments() {
    let folder = Folder::new();
    let program = NETWORK.replace("SET udp.dst_port = 5353;", "DROP;");
    let program = folder.write("edge.weft", &program);
    let (open, closed) = (fragments(80, 1, 3_000, 1_480), fragments(53, 2, 3_000, 1_480));
    assert_eq!((open.len(), closed.len()), (3, 3));
    let late = [&open[1], &open[2], &closed[2], &closed[0], &open[0], &closed[1]].map(Clone::clone);
    let mut over = open.clone();
    over[1] = fragments(80, 1, 3_000, 1_400)[1].clone();
    // A condition reads the ports, and reads them again after a change of headers.
    let tagged = NETWORK
        .replace("SET udp.dst_port = 5353;", "DROP;")
        .replace(
            "CREATE CHAIN",
            "CREATE ELEMENT tag ON packet AS ON PACKET PUSH vlan (id = 7); END;\nCREATE CHAIN",
        )
        .replace("-> lan AS hop", "-> lan WHEN udp.src_port = 1000 AS tag -> hop");
    let tagged = folder.write("tagged.weft", &tagged);
    for backend in ["jit", "interp"] {
        let replay = |packets: &[Vec<u8>]| replayed(&folder, &program, backend, packets);
        let report = replayed(&folder, &tagged, backend, &late);
        assert_eq!(
            (&report["ports"][1]["out"], &report["elements"][2]["dropped"]),
            (&3.into(), &3.into()),
            "{report}"
        );
        for packets in [[open.clone(), closed.clone()].concat(), late.to_vec()] {
            let report = replay(&packets);
            assert_eq!(
                (&report["ports"][1]["out"], &report["elements"][1]["dropped"]),
                (&3.into(), &3.into()),
                "{report}"
            );
        }
        let report = replay(&over);
        assert!(report["ports"][1]["out"] == 1 && report.to_string().contains("overlap"), "{report}");
        let report = replay(&closed[1..]);
        assert!(report["ports"][1]["out"] == 0 && report.to_string().contains("first"), "{report}");
    }
}

/// Only the first fragment has the extension headers before the payload: a payload rule would drop the first one and
/// pass the others.
#[test]
fn payload_rules_hold_for_fragments() {
    let folder = Folder::new();
    let program = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT no_names ON ip AS
  ON PACKET IF ip.protocol = 17 AND udp.dst_port = 53 THEN DROP; END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS no_names; END;
";
    let program = folder.write("edge.weft", program);
    // Destination options, followed by UDP.
    let datagram = |port: u8| {
        let behind = [&[17, 0, 1, 4, 0, 0, 0, 0, 4, 0x57, 0, port, 0, 72, 0x12, 0x34][..], &[0; 64]].concat();
        let piece = |(nth, piece): (usize, &[u8])| {
            let ip = ethernet().macs([2; 6], [2; 6]).ipv6([port; 16], [2; 16]).protocol(44);
            let fragment = [60, 0, 0, (32 * nth as u8) | u8::from(nth < 2), 0, 0, 0, 3];
            ip.other(&fragment).payload(piece).build()
        };
        behind.chunks(32).enumerate().map(piece).collect::<Vec<_>>()
    };
    let (closed, open) = (datagram(53), datagram(80));
    assert_eq!(closed.len(), 3);
    for backend in ["jit", "interp"] {
        let report = replayed(&folder, &program, backend, &[closed.clone(), open.clone()].concat());
        assert_eq!(
            (&report["ports"][1]["out"], &report["elements"][0]["dropped"]),
            (&3.into(), &3.into()),
            "{report}"
        );
    }
}

/// If this failed, a capture from two ports would go back in time, with answers before their requests.
#[test]
fn multi_port_output_is_in_time_order() {
    let folder = Folder::new();
    let program = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT parts ON ip AS ON PACKET IF ip.ttl % 2 = 0 THEN REDIRECT TO 'wan'; END IF; END;
CREATE CHAIN edge ON PORT wan -> lan AS parts; END;
";
    let (program, input) = (folder.write("edge.weft", program), folder.0.join("in.pcapng"));
    let out = folder.0.join("out.pcapng").display().to_string();
    let ttls: Vec<u8> = (1..=200).collect();
    capture_at(&input, ttls.iter().map(|ttl| (i64::from(*ttl), packet(*ttl, 53))));
    replay_json(&folder, &program, &input, &["--out", &out]);
    let left: Vec<u8> = packets_in(out.as_ref()).iter().map(|packet| packet[14 + 8]).collect();
    assert_eq!(left, ttls);
}

/// If this failed, an inserted header would be malformed for every reader: its checksum would cover a header that does
/// not yet have its final next-header field.
#[test]
fn inserted_header_checksums_hold() {
    let folder = Folder::new();
    let program = |sum: &str| {
        let text = format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE PROTOCOL shim (id bit(16), sum {sum}, type bit(16), PAYLOAD bytes) BIND ethernet WHERE type = 0x88B5;
CREATE ELEMENT enc ON ipv4 AS ON PACKET PUSH shim (id = 7); END;
CREATE ELEMENT look ON shim AS ON PACKET IF shim.id <> 7 OR shim.type <> 0x800 THEN DROP; END IF; END;
CREATE CHAIN edge ON PORT wan -> lan AS enc -> look; END;
"
        );
        folder.write("edge.weft", &text)
    };
    let packets = fragments(53, 1, 100, 200);
    for backend in ["jit", "interp"] {
        let report = replayed(&folder, &program("bit(16) COMPUTED (checksum(header))"), backend, &packets);
        assert_eq!(report["ports"][1]["out"], 1, "{report}");
        // No element reads the sum over the payload: only the capture shows it.
        let (program, input) =
            (program("bit(16) COMPUTED (checksum(header, payload))"), folder.0.join("in.pcap"));
        let out = folder.0.join("out.pcap").display().to_string();
        replay_json(&folder, &program, &input, &["--out", &out, "--backend", backend]);
        let frame = &packets_in(out.as_ref())[0];
        assert_eq!((&frame[12..16], sum(&frame[14..])), (&[0x88, 0xb5, 0, 7][..], 0xffff), "{backend}");
    }
}

/// The packets of a capture.
pub(crate) fn packets_in(path: &Path) -> Vec<Vec<u8>> {
    let (mut reader, mut packets) = (Reader::new(), Vec::new());
    reader.push(&std::fs::read(path).expect("it was written"));
    while let Some(record) = reader.next().expect("it is whole") {
        packets.push(record.bytes.to_vec());
    }
    packets
}

/// The JSON report of `weft replay` for these packets.
fn replayed(folder: &Folder, program: &Path, backend: &str, packets: &[Vec<u8>]) -> serde_json::Value {
    let path = folder.0.join("in.pcap");
    capture(&path, packets);
    replay_json(folder, program, &path, &["--backend", backend])
}

/// As [`replayed`], with each packet encapsulated by a function that gets it and its number.
fn replayed_in(
    folder: &Folder,
    program: &Path,
    backend: &str,
    packets: &[(u8, &Vec<u8>)],
    put_in: &dyn Fn(u8, &[u8]) -> Vec<u8>,
) -> serde_json::Value {
    let packets: Vec<_> = packets.iter().map(|(number, frame)| put_in(*number, frame)).collect();
    replayed(folder, program, backend, &packets)
}

/// The JSON report of a replay of an existing capture.
pub(crate) fn replay_json(
    folder: &Folder,
    program: &Path,
    capture: &Path,
    args: &[&str],
) -> serde_json::Value {
    let mut replay = weft(folder);
    replay.arg("replay").arg(program).arg("--in").arg(capture);
    let done = output(replay.args(["-o", "json"]).args(args));
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    serde_json::from_slice(&done.stdout).expect("it is data")
}

/// A frame in a tunnel from 192.0.2.1 to 192.0.2.2: VXLAN carries the whole frame, others its packet.
fn tunnelled(by: &str, number: u8, frame: &[u8]) -> Vec<u8> {
    let packet = &frame[14..];
    let [high, low] = (packet.len() as u16).to_be_bytes();
    let ip = || ethernet().macs([3; 6], [2; 6]).ipv4([192, 0, 2, 1], [192, 0, 2, 2]).fragment(9, 0);
    let udp = |port, header: [u8; 8]| ip().udp(0xc000, port).checksum(0).payload(header);
    let tunnel = match by {
        "vxlan" => udp(4789, [8, 0, 0, 0, 0, 0, number, 0]).payload(frame),
        "gtpu" => udp(2152, [0x30, 255, high, low, 0, 0, 0, number]).payload(packet),
        "mpls in udp" => {
            ip().udp(0xc000, 6635).checksum(0).payload([0, 0, number << 4 | 1, 9]).payload(packet)
        }
        "vxlan_gpe" => udp(4790, [0x0c, 0, 0, 3, 0, 0, number, 0]).payload(frame),
        "erspan" => {
            let gre = ip().protocol(47).payload([0x10, 0, 0x88, 0xbe, 0, 0, 0, 1]);
            gre.payload([0x10, 5, 0, number, 0, 0, 0, 3]).payload(frame)
        }
        "gre" => ip().protocol(47).payload([0x20, 0, 8, 0, 0, 0, 0, number]).payload(packet),
        _ => ip().protocol(4).payload(packet),
    };
    tunnel.build()
}

/// If this failed, rules about tunnelled packets would hold only for the first fragment of a datagram; or fragments of
/// two tunnels would be mixed, so that the user of one could open a path for another.
#[test]
fn port_rules_hold_in_tunnels() {
    let folder = Folder::new();
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT closed ON packet AS
  ON PACKET
    IF coalesce(inner.udp.dst_port = 53, FALSE) THEN
      DROP;
    END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan WHEN present(inner.udp) AS closed; END;
";
    let program = folder.write("edge.weft", text);
    let (open, closed) = (fragments(80, 1, 3_000, 1_480), fragments(53, 2, 3_000, 1_480));
    let backends = ["jit", "interp"].into_iter().cycle();
    for (by, backend) in
        ["vxlan", "gtpu", "gre", "mpls in udp", "vxlan_gpe", "erspan", "ipip"].into_iter().zip(backends)
    {
        let put_in = |number, frame: &[u8]| tunnelled(by, number, frame);
        let replay = |packets: &[_]| replayed_in(&folder, &program, backend, packets, &put_in);
        let report = replay(&[
            (7, &open[1]),
            (7, &closed[0]),
            (7, &open[2]),
            (7, &closed[2]),
            (7, &open[0]),
            (7, &closed[1]),
        ]);
        let passed = (&report["ports"][1]["out"], &report["elements"][0]["dropped"]);
        assert_eq!(passed, (&3.into(), &3.into()), "{by}: {report}");
        let mut over = open.clone();
        over[1] = fragments(80, 1, 3_000, 1_400)[1].clone();
        let report = replay(&[(7, &over[0]), (7, &over[1]), (7, &over[2])]);
        assert!(report["ports"][1]["out"] == 1 && report.to_string().contains("overlap"), "{by}: {report}");
        if by != "ipip" {
            let report = replay(&[(7, &open[0]), (8, &open[1]), (8, &open[2])]);
            assert!(report["ports"][1]["out"] == 1 && report.to_string().contains("first"), "{by}: {report}");
        }
        // A packet that the tunnel itself fragments also has the ports.
        let whole = tunnelled(by, 7, &fragments(53, 3, 2_990, 3_000)[0]);
        let report = replayed(&folder, &program, backend, &build::fragments(&whole, 9, 1_480));
        assert_eq!(report["elements"][0]["dropped"], 3, "{by}: {report}");
    }
}

/// If this failed, a rule after a tunnel's end would hold only for the first fragment if elements change it on the way;
/// or fragments of two tunnels would be mixed.
#[test]
fn port_rules_hold_after_decapsulation() {
    let folder = Folder::new();
    // The frame changes once more between the end of the tunnel and the rule: it is parsed three times.
    let text = format!(
        "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
{}CREATE ELEMENT tagged ON packet AS ON PACKET SET ip.ttl = 9; PUSH vlan (id = 7); END;
CREATE ELEMENT closed ON packet AS
  ON PACKET
    IF coalesce(udp.dst_port = 53, TRUE) THEN DROP; END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS opened -> tagged -> closed; END;
",
        opened("opened")
    );
    let program = folder.write("edge.weft", &text);
    let (open, closed) = (fragments(80, 1, 3_000, 1_480), fragments(53, 2, 3_000, 1_480));
    let mut over = open.clone();
    over[1] = fragments(80, 1, 3_000, 1_400)[1].clone();
    let tunnels = ["vxlan", "gtpu", "gre", "ipip"];
    for (by, backend) in tunnels.into_iter().flat_map(|by| ["jit", "interp"].map(|backend| (by, backend))) {
        let put_in = |number, frame: &[u8]| tunnelled(by, number, frame);
        let replay = |packets: &[_]| replayed_in(&folder, &program, backend, packets, &put_in);
        let in_order: Vec<_> = open.iter().chain(&closed).map(|frame| (7, frame)).collect();
        let late = [&open[1], &closed[0], &open[2], &closed[2], &open[0], &closed[1]].map(|frame| (7, frame));
        for packets in [&in_order[..], &late] {
            let report = replay(packets);
            let passed = (&report["ports"][1]["out"], &report["elements"][2]["dropped"]);
            assert_eq!(passed, (&3.into(), &3.into()), "{by}: {report}");
        }
        let report = replay(&over.iter().map(|frame| (7, frame)).collect::<Vec<_>>());
        assert!(report["ports"][1]["out"] == 1 && report.to_string().contains("overlap"), "{by}: {report}");
        let report = replay(&[(7, &open[1]), (7, &open[2])]);
        assert!(report["ports"][1]["out"] == 0 && report.to_string().contains("first"), "{by}: {report}");
        if by != "ipip" {
            let report = replay(&[(7, &open[0]), (8, &open[1]), (8, &open[2])]);
            assert!(report["ports"][1]["out"] == 1 && report.to_string().contains("first"), "{by}: {report}");
        }
    }
}

/// A frame with MPLS labels in front of its packet; the last is the bottom of the stack.
fn labelled(labels: &[u32], ttl: u8, frame: &[u8]) -> Vec<u8> {
    let mut out = [&frame[..12], &[0x88, 0x47]].concat();
    for (nth, label) in labels.iter().enumerate() {
        let is_last = u32::from(nth + 1 == labels.len());
        out.extend((label << 12 | is_last << 8 | u32::from(ttl)).to_be_bytes());
    }
    [&out, &frame[14..]].concat()
}

/// A frame whose IPv4 packet is in a PPPoE session.
fn in_session(session: u8, frame: &[u8]) -> Vec<u8> {
    let packet = &frame[14..];
    let length = (2 + packet.len() as u16).to_be_bytes();
    [&frame[..12], &[0x88, 0x64, 0x11, 0, 0, session], &length, &[0, 0x21], packet].concat()
}

/// If this failed, a rule about ports would hold only for the first fragment in PPPoE sessions; or fragments of two
/// subscribers would be mixed.
#[test]
fn port_rules_hold_in_sessions() {
    let folder = Folder::new();
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT closed ON packet AS
  ON PACKET
    IF coalesce(udp.dst_port = 53, TRUE) THEN DROP; END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS closed; END;
";
    let program = folder.write("edge.weft", text);
    let [good, bad, ..] = four_packets();
    for backend in ["jit", "interp"] {
        let replay = |packets: &[_]| replayed_in(&folder, &program, backend, packets, &in_session);
        let report =
            replay(&[(7, &good[1]), (7, &bad[0]), (7, &good[2]), (7, &bad[2]), (7, &good[0]), (7, &bad[1])]);
        let passed = (&report["ports"][1]["out"], &report["elements"][0]["dropped"]);
        assert_eq!(passed, (&3.into(), &3.into()), "{report}");
        let report = replay(&[(7, &good[0]), (8, &good[1]), (8, &good[2])]);
        assert!(report["ports"][1]["out"] == 1 && report.to_string().contains("first"), "{report}");
    }
}

/// Packets in three fragments each: one to an open port, one to a closed one, one with two overlapping fragments, and
/// one more.
fn four_packets() -> [Vec<Vec<u8>>; 4] {
    let of = |port, id| fragments(port, id, 3_000, 1_480);
    let mut over = of(80, 3);
    over[1] = fragments(80, 3, 3_000, 1_400).swap_remove(1);
    [of(80, 1), of(53, 2), over, of(80, 4)]
}

/// The number of dropped frames for each of these reasons.
fn drops_in<const N: usize>(report: &serde_json::Value, reasons: [&str; N]) -> [u64; N] {
    let ended = report["ended"].as_array().expect("it is a list");
    let lost = |reason| ended.iter().find(|end| end["why"] == reason).and_then(|end| end["packets"].as_u64());
    reasons.map(|reason| lost(reason).unwrap_or(0))
}

/// If this failed, a packet for one network would leave in another, with a truncated number.
#[test]
fn field_overflow_ends_frame() {
    let folder = Folder::new();
    let push = "LET number = udp.dst_port; POP TO ip; PUSH ethernet (dst = '02:00:00:00:00:01', \
                src = '02:00:00:00:00:02'), vlan (id = number);";
    let changes = [("SET vlan.id = udp.dst_port;", 7), (push, 0)];
    for (at, (change, tag)) in changes.into_iter().enumerate() {
        let text = format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT tagged ON udp AS
  ON PACKET
    {change}
END;
CREATE CHAIN edge ON PORT wan -> lan AS tagged; END;
"
        );
        let program = folder.write(&format!("tag{at}.weft"), &text);
        let frame = |port| {
            let mut frame = packet(9, port);
            let tags: &[u8] = if tag == 0 { &[] } else { &[0x81, 0, 0, tag] };
            frame.splice(12..12, tags.iter().copied());
            frame
        };
        for backend in ["jit", "interp"] {
            let report = replayed(&folder, &program, backend, &[frame(4095), frame(4096), frame(5000)]);
            assert_eq!(report["ports"][1]["out"], 1, "{change}: {report}");
            assert_eq!(drops_in(&report, ["unfit value by tagged"]), [2], "{change}: {report}");
            let end = &report["ended"][0];
            assert!(
                end["line"] == 6 && end["file"].as_str().is_some_and(|file| file.ends_with(".weft")),
                "{report}"
            );
        }
    }
}

/// If this failed, a rule about ports would hold only for the first fragment in nested tunnels; or fragments of two
/// customers' tunnels would be mixed.
#[test]
fn port_rules_hold_in_nested_tunnels() {
    let folder = Folder::new();
    let closed = |name: &str, port: &str| {
        format!(
            "CREATE ELEMENT {name} ON packet AS
  ON PACKET
    IF coalesce({port} = 53, TRUE) THEN DROP; END IF;
END;
"
        )
    };
    let elements = [
        opened("outer"),
        opened("inside"),
        closed("closed", "udp.dst_port"),
        closed("closed_inside", "inner.udp.dst_port"),
    ];
    let head = format!(
        "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT tagged ON packet AS ON PACKET SET ip.ttl = 9; PUSH vlan (id = 7); END;
{}",
        elements.concat()
    );
    let chains = [
        ("outer -> inside -> tagged -> closed", 3),
        // The rule runs while one of the tunnels is still there.
        ("outer -> tagged -> closed_inside -> inside", 2),
    ];
    let [good, bad, over, lone] = four_packets();
    let pairs = [("vxlan", "gre"), ("gre", "vxlan"), ("ipip", "gtpu"), ("vxlan", "ipip")];
    for (at, (chain, nth)) in chains.into_iter().enumerate() {
        let text = format!("{head}CREATE CHAIN edge ON PORT wan -> lan AS {chain}; END;\n");
        let program = folder.write(&format!("edge{at}.weft"), &text);
        for (nth_pair, (by, within)) in pairs.into_iter().enumerate() {
            let nested = |(outer, inner): (u8, u8), frame: &Vec<u8>| {
                tunnelled(by, outer, &tunnelled(within, inner, frame))
            };
            let late = [&good[1], &bad[0], &good[2], &bad[2], &good[0], &bad[1]];
            let mut packets: Vec<_> =
                late.into_iter().chain(&over).chain(&lone[..1]).map(|frame| nested((7, 7), frame)).collect();
            // Another outer tunnel, or another inner one, is a different flow.
            let others = [(by != "ipip").then_some((8, 7)), (within != "ipip").then_some((7, 8))];
            packets.extend(others.into_iter().flatten().zip(&lone[1..]).map(|(of, frame)| nested(of, frame)));
            let n_others = packets.len() - 10;
            let backend = ["jit", "interp"][(at + nth_pair) % 2];
            let report = replayed(&folder, &program, backend, &packets);
            assert_eq!(
                (&report["ports"][1]["out"], &report["elements"][nth]["dropped"]),
                (&5.into(), &3.into()),
                "{by}, {within}, {chain}: {report}"
            );
            let lost = [
                ("malformed ipv4: overlaps another fragment, or ends where none may", 2),
                ("the first fragment has not come", n_others as u64),
            ];
            assert_eq!(drops_in(&report, lost.map(|(why, _)| why)), lost.map(|(_, n)| n), "{report}");
        }
    }
}

/// If this failed, later fragments of large datagrams over MPLS would pass rules about ports, and fragments of two
/// networks with equal addresses would be mixed.
#[test]
fn port_rules_hold_behind_labels() {
    let folder = Folder::new();
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT unlabelled ON packet AS
  ON PACKET
    IF present(mpls) THEN
      POP TO ip;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = '02:00:00:00:00:02');
    END IF;
END;
CREATE ELEMENT opened ON packet AS
  ON PACKET
    IF present(inner.ethernet) THEN POP TO inner.ethernet; END IF;
END;
CREATE ELEMENT closed ON packet AS
  ON PACKET
    IF coalesce(udp.dst_port = 53, TRUE) THEN DROP; END IF;
END;
CREATE ELEMENT closed_inside ON packet AS
  ON PACKET
    IF coalesce(inner.udp.dst_port = 53, TRUE) THEN DROP; END IF;
END;
";
    let [good, bad, over, lone] = four_packets();
    let plain = |frame: &Vec<u8>| frame.clone();
    let vxlan = |frame: &Vec<u8>| tunnelled("vxlan", 7, frame);
    type Carry<'c> = &'c dyn Fn(&Vec<u8>) -> Vec<u8>;
    let chains: [(&str, usize, Carry<'_>); 5] = [
        ("closed", 0, &plain),
        ("unlabelled -> closed", 1, &plain),
        ("closed_inside", 0, &vxlan),
        ("opened -> closed", 1, &vxlan),
        ("unlabelled -> opened -> closed", 2, &vxlan),
    ];
    for (at, (chain, nth, carry)) in chains.into_iter().enumerate() {
        let text = format!("{text}CREATE CHAIN edge ON PORT wan -> lan AS {chain}; END;\n");
        let program = folder.write(&format!("edge{at}.weft"), &text);
        for backend in ["jit", "interp"] {
            let frame = |labels: &[u32], ttl: u8, frame: &Vec<u8>| labelled(labels, ttl, &carry(frame));
            // After label 7 comes one by which routers spread flows; the fragments came on paths of different lengths.
            let [one, two, other] = [[100, 7, 5, 300], [100, 7, 6, 300], [100, 7, 5, 301]];
            let late = [(&good[1], 60), (&good[2], 63), (&good[0], 64)];
            let mut packets =
                late.map(|(part, ttl)| frame(if ttl == 60 { &two } else { &one }, ttl, part)).to_vec();
            packets.extend([&bad[1], &bad[2], &bad[0]].map(|part| frame(&[0x45_678], 9, part)));
            packets.extend(over.iter().map(|part| frame(&[0x45_678, 16_001, 0x60_000], 64, part)));
            packets.extend([
                frame(&one, 64, &lone[0]),
                frame(&other, 64, &lone[1]),
                frame(&one[..3], 64, &lone[2]),
            ]);
            let report = replayed(&folder, &program, backend, &packets);
            assert_eq!(
                (&report["ports"][1]["out"], &report["elements"][nth]["dropped"]),
                (&5.into(), &3.into()),
                "{chain}: {report}"
            );
            let lost = [
                ("malformed ipv4: overlaps another fragment, or ends where none may", 2),
                ("the first fragment has not come", 2),
            ];
            assert_eq!(drops_in(&report, lost.map(|(why, _)| why)), lost.map(|(_, n)| n), "{report}");
        }
    }
}

/// If this failed, rules that a chain learns would not affect later packets, and no user could test a guard on old
/// traffic.
#[test]
fn learned_rules_match_later_packets() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    // A scan of a port every ten milliseconds, of which the fourth is one too many.
    let scan = (0..100_u16)
        .map(|n| (i64::from(n) * 10, packet_to([10, 0, 0, 2]).tcp(1000, 1_000 + n).seq(1, 2).build()));
    capture_at(&path, scan);
    let text = "IMPORT 'library/elements/scan_guard.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE CHAIN edge ON PORT wan -> lan AS scan_guard (limit = 3, lasting = '500 ms'); END;
";
    let program = folder.write("edge.weft", text);
    for backend in ["jit", "interp"] {
        let report = replay_json(&folder, &program, &path, &["--backend", backend]);
        // Half a second later the source passes again, until its next port.
        let passed = report["ports"][1]["out"].as_u64();
        assert!((5..=6).contains(&passed.unwrap_or(0)), "{report}");
        assert_eq!(
            (&report["sinks"][0]["rows"], &report["rows_refused"]),
            (&2.into(), &serde_json::json!({})),
            "{report}"
        );
    }
    // The tables at the end, and the rows of sinks.
    let rows = folder.0.join("rows.jsonl");
    let asked = |more: &[&str]| {
        let mut replay = weft(&folder);
        replay.arg("replay").arg(&program).arg("--in").arg(&path).args(more);
        output(&mut replay)
    };
    let shut = "SELECT src, since FROM edge.scan_guard.shut";
    let ports = "SELECT count(*) AS n, max(port) AS last FROM edge.scan_guard.tried";
    let done = asked(&["--query", shut, "--query", ports, "--rows", &rows.display().to_string()]);
    let report = String::from_utf8(done.stdout).expect("it is text");
    let begun = "src       since\n10.0.0.1  1970-01-01T00:00:01.";
    assert!(report.contains(begun) && report.ends_with("\nn  last\n5  1061\n1 row\n"), "{report}");
    let rows = std::fs::read_to_string(rows).expect("it was written");
    let rows: Vec<serde_json::Value> =
        rows.lines().map(|row| serde_json::from_str(row).expect("it is data")).collect();
    assert_eq!((rows.len(), &rows[0]["src"]), (3, &"10.0.0.1".into()), "{rows:?}");
    // A wrong query is reported before the capture is read, and a query in a replay changes nothing.
    for (question, why) in [
        ("SELECT nett FROM edge.scan_guard.shut", "`nett`"),
        ("DELETE FROM edge.scan_guard.shut", "not a SELECT"),
    ] {
        let done = asked(&["--query", question]);
        let errors = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.code() == Some(1) && done.stdout.is_empty() && errors.contains(why), "{errors}");
    }
    assert_eq!(asked(&["--query", ""]).status.code(), Some(1), "nothing is asked");
    // No input is overwritten, and no output is written twice.
    let (input, other) = (path.display().to_string(), folder.0.join("other").display().to_string());
    let written = [&["--rows", &input][..], &["--rows", program.to_str().expect("a path")]];
    for options in written.into_iter().chain([&["--out", other.as_str(), "--rows", &other][..]]) {
        assert_eq!(asked(options).status.code(), Some(2), "{options:?}");
    }
    let done = asked(&["--rows", "-"]);
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("{\""), "rows go to standard output");
}

/// A rule that expires on a node would not expire in a replay, in the time of the capture.
#[test]
fn rules_expire_in_capture_time() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    // A packet every ten milliseconds for half a second, a pause of half a second, and the same again.
    capture_at(&path, (0..50).chain(100..150).map(|n| (n * 10, packet(64, 53))));
    for (ttl, dropped) in [("", 1..=1), ("TTL '200 ms' ON ACCESS", 2..=2), ("TTL '200 ms'", 4..=6)] {
        let text = format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT knock ON ip AS
  TABLE known (src IPADDR PRIMARY KEY) {ttl} MAX 1000 ROWS FILLED BY CONTROLLER;
  SINK learn (src IPADDR) TO TABLE known;
  ON PACKET
    IF NOT EXISTS (SELECT * FROM known WHERE src = ip.src) THEN INSERT INTO learn VALUES (ip.src); DROP; END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS knock; END;
"
        );
        let program = folder.write("edge.weft", &text);
        for backend in ["jit", "interp"] {
            let report = replay_json(&folder, &program, &path, &["--backend", backend]);
            let n = 100 - report["ports"][1]["out"].as_u64().expect("a number");
            assert!(dropped.contains(&n), "{ttl}: {n} of {report}");
        }
    }
}

/// If this failed, a flow export would lack the last expired and evicted flows of a capture.
#[test]
fn evictions_are_reported_at_end() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    // The last packets come after the rows of the first ten have expired, and are too many for the table.
    let ten = (0..10).map(|n| (i64::from(n), packet(64, 2_000 + n)));
    capture_at(&path, ten.chain((0..5_000).map(|n| (1_000, packet(64, 3_000 + n)))));
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT flows ON udp AS
  TABLE open (port U64 PRIMARY KEY) TTL '950 ms' MAX 1000 ROWS EVICT OLDEST;
  SINK ended (port U64) TO STDOUT;
  SINK gone (port U64) TO STDOUT;
  ON PACKET UPSERT open KEY (udp.dst_port);
  ON TIMEOUT OF open INSERT INTO ended VALUES (OLD.port);
  ON EVICT OF open INSERT INTO gone VALUES (OLD.port);
END;
CREATE CHAIN edge ON PORT wan -> lan AS flows; END;
";
    let program = folder.write("edge.weft", text);
    let report = replay_json(&folder, &program, &path, &["--query", "SELECT count(*) FROM edge.flows.open"]);
    let rows = |sink: &str| {
        let sinks = report["sinks"].as_array().expect("a list");
        sinks.iter().find(|of| of["name"] == sink).map(|of| of["rows"].as_u64().expect("a number"))
    };
    let untold = report["evicted_untold"]["edge.flows.open"].as_u64().expect("there was no room for all");
    assert_eq!(rows("flows.ended"), Some(10), "{report}");
    assert_eq!(rows("flows.gone").map(|gone| gone + untold), Some(4_000), "{report}");
    assert!(report.to_string().contains("[[1000]]"), "{report}");
    // A reported row may evict other rows, which are reported as well.
    let again = text.replace(
        "ON EVICT OF open INSERT INTO gone VALUES (OLD.port);",
        "ON EVICT OF open
    INSERT INTO gone VALUES (OLD.port);
    IF OLD.port < 100000 THEN
      INSERT INTO open VALUES (OLD.port + 100000);
    ELSE
      INSERT INTO ended VALUES (OLD.port);
    END IF;",
    );
    let program = folder.write("again.weft", &again);
    capture_at(&path, (0..1_100).map(|n| (0, packet(64, 3_000 + n))));
    let report = replay_json(&folder, &program, &path, &["--query", "SELECT count(*) FROM edge.flows.open"]);
    // Each returning flow evicts another: a hundred more than the table holds are gone for good.
    let sinks = report["sinks"].as_array().expect("a list");
    let ended = sinks.iter().find(|of| of["name"] == "flows.ended").map(|of| &of["rows"]);
    assert_eq!((ended, &report["evicted_untold"]), (Some(&100.into()), &serde_json::json!({})), "{report}");
    assert!(report.to_string().contains("[[1000]]"), "{report}");
}

/// The search for rows that have left is due much more often than the user's handlers, and would use up the runs of a
/// long gap.
#[test]
fn row_handlers_keep_timer_runs() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    let handlers = "ON EVICT OF flows UPSERT told KEY (1) SET n = n + 1;
  ON TIMEOUT OF flows UPSERT told KEY (2) SET n = n + 1;";
    let report = |seconds: i64, handlers: &str| {
        capture_at(&path, [(0, packet(64, 2_000)), (seconds * 1_000, packet(64, 2_001))]);
        let text = format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT ticks ON udp AS
  TABLE flows (port U16 PRIMARY KEY) TTL '3 s' MAX 100 ROWS EVICT OLDEST;
  TABLE told (what U64 PRIMARY KEY, n U64 = 0) MAX 10 ROWS EVICT REJECT;
  ON PACKET UPSERT flows KEY (udp.dst_port);
  ON EVERY '500 ms' UPSERT told KEY (0) SET n = n + 1;
  {handlers}
END;
CREATE CHAIN edge ON PORT wan -> lan AS ticks; END;
"
        );
        let program = folder.write("edge.weft", &text);
        replay_json(
            &folder,
            &program,
            &path,
            &["--query", "SELECT what, n FROM edge.ticks.told ORDER BY what"],
        )
        .to_string()
    };
    // Handlers that are due at the time of the last packet run after it.
    for (seconds, ticks) in [(60, 119), (600, 1_199), (3_600, 7_199)] {
        let report = report(seconds, handlers);
        assert!(report.contains(&format!("[[0,{ticks}],[2,1]]")), "{seconds} s: {report}");
    }
    // After 10,000 runs the rest of the gap is one step, with and without such handlers.
    let [with, without] = [handlers, ""].map(|handlers| report(36_000, handlers));
    assert!(with.contains("[[0,10001],[2,1]]") && without.contains("[[0,10001]]"), "{with} {without}");
}

/// If this failed, one orphan fragment would make a chain forget everything at the end of a capture.
#[test]
fn held_fragments_do_not_move_clock() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    let later = packet_to([10, 0, 0, 2]).fragment(1, 185).udp(1000, 53).payload(b"hello").build();
    capture_at(&path, (0..10).map(|n| (i64::from(n), packet(64, 2_000 + n))).chain([(10, later)]));
    let text = "IMPORT 'library/elements/conntrack.weft';
CREATE PORT lan ON memory;
CREATE PORT wan ON memory;
CREATE CHAIN edge ON PORT lan, wan AS conntrack (inside = 'lan', idle = '10 s'); END;
";
    let program = folder.write("edge.weft", text);
    let report = replay_json(
        &folder,
        &program,
        &path,
        &["--port", "lan", "--query", "SELECT count(*) FROM edge.conntrack.flows"],
    );
    assert!(report.to_string().contains("[[10]]"), "{report}");
    assert_eq!(drops_in(&report, ["the first fragment has not come"]), [1], "{report}");
}

/// A row from a packet could break the table's CHECK, or its refusal would not be reported.
#[test]
fn rows_breaking_check_are_not_learned() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    capture_at(&path, (0..100).map(|n| (n * 10, packet(64, if n % 4 == 0 { 53 } else { 2053 }))));
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE ELEMENT knock ON udp AS
  TABLE known (port U64 PRIMARY KEY, CHECK (port >= 1024)) MAX 1000 ROWS FILLED BY CONTROLLER;
  SINK learn (port U64) TO TABLE known;
  ON PACKET
    IF NOT EXISTS (SELECT * FROM known WHERE port = udp.dst_port) THEN INSERT INTO learn VALUES (udp.dst_port); END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS knock; END;
";
    let program = folder.write("edge.weft", text);
    let report = replay_json(&folder, &program, &path, &["--query", "SELECT port FROM edge.knock.known"]);
    assert_eq!(report["rows_refused"], serde_json::json!({ "edge.knock.known": 25 }), "{report}");
    assert!(report.to_string().contains("[[2053]]"), "{report}");
}

const TWO_WAYS: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT lan ON memory;
CREATE PORT wan ON memory;
CREATE TABLE open (dst_port U64 PRIMARY KEY, n U64 = 0) MAX 100 ROWS EVICT OLDEST;
CREATE ELEMENT opens ON udp AS ON PACKET UPSERT open KEY (udp.dst_port) SET n = n + 1; END;
CREATE ELEMENT closed ON udp AS
  ON PACKET IF NOT EXISTS (SELECT * FROM open WHERE dst_port = udp.dst_port) THEN DROP; END IF;
END;
CREATE CHAIN out ON PORT lan -> wan AS opens; END;
CREATE CHAIN back ON PORT wan -> lan AS closed; END;
";

/// If this failed, a box with two sides could only be tested with packets of one of them, or answers would come before
/// their requests.
#[test]
fn multi_port_input_is_in_time_order() {
    let folder = Folder::new();
    folder.write("two_ways.weft", TWO_WAYS);
    let path = |name: &str| folder.0.join(name);
    capture_at(&path("lan.pcapng"), [(10, packet(64, 53)), (30, packet(64, 80))]);
    let answers = [(5, packet(9, 53)), (10, packet(8, 53)), (20, packet(7, 80)), (40, packet(6, 80))];
    capture_at(&path("wan.pcapng"), answers);
    let replay = |args: &[&str]| {
        let done = output(weft(&folder).current_dir(&folder.0).args(["replay", "two_ways.weft"]).args(args));
        assert_eq!(done.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&done.stderr));
        done
    };
    let report = |args: &[&str]| {
        let done = replay(&[args, &["-o", "json"]].concat());
        serde_json::from_slice::<serde_json::Value>(&done.stdout).expect("it is data")
    };
    let passed = |report: &serde_json::Value| report["ports"][0]["out"].as_u64().expect("a number");
    let (lan, wan) = (["--in", "lan=lan.pcapng"], ["--in", "wan=wan.pcapng"]);
    let both = [lan, wan].concat();
    for backend in ["jit", "interp"] {
        let all = report(&[&both[..], &["--backend", backend]].concat());
        assert_eq!((passed(&all), &all["packets"]), (2, &6.into()), "{all}");
        let chains = all["chains"].as_array().into_iter().flatten();
        let chains: Vec<_> = chains
            .map(|chain| (&chain["name"], &chain["packets"], &chain["elements"][0]["dropped"]))
            .collect();
        assert_eq!(chains, [(&"out".into(), &2.into(), &0.into()), (&"back".into(), &4.into(), &2.into())]);
        assert_eq!((&all["inputs"][1]["port"], &all["inputs"][1]["packets"]), (&"wan".into(), &4.into()));
        assert!(all["chain"].is_null() && all["input"].is_null() && all["broken"].is_null(), "{all}");
    }
    // At equal times, the capture that is named first comes first.
    assert_eq!(passed(&report(&[wan, lan].concat())), 1);
    let paced = report(&[&both[..], &["--speed", "recorded"]].concat());
    assert_eq!(passed(&paced), 2);
    assert!(paced["captured_seconds"].as_f64() >= Some(0.035), "{paced}");
    let limited = report(&[&both[..], &["--limit", "3"]].concat());
    assert_eq!((passed(&limited), &limited["packets"]), (1, &3.into()));
    // One chain, by its name or by the port.
    for one in [&["--in", "wan=wan.pcapng", "--chain", "back"][..], &["--in", "wan.pcapng", "--port", "wan"]]
    {
        let one = report(one);
        assert_eq!((passed(&one), &one["chain"], &one["port"]), (0, &"back".into(), &"wan".into()), "{one}");
    }
    assert_eq!(passed(&report(&[&wan[..], &["--in", "lan.pcapng", "--port", "lan"]].concat())), 1);

    let text = String::from_utf8(replay(&both).stdout).expect("it is text");
    let wanted = "
capture     port  packets  passed over  in part
lan.pcapng  lan         2            -        -
wan.pcapng  wan         4            -        -

chain `out`: 2 packets
element  seen  dropped  aborted  diverted  failed
opens       2        -        -         -       -

chain `back`: 4 packets
element  seen  dropped  aborted  diverted  failed
closed      4        2        -         -       -

packets that went no further  where            packets
drop by closed                two_ways.weft:7        2

port  in  out
lan    2    2
wan    4    2
";
    assert!(
        text.starts_with("chains `out`, `back` on ports `lan`, `wan`: 6 packets of 2 captures in "),
        "{text}"
    );
    assert_eq!(text.split_once('\n').expect("lines").1, wanted);

    replay(&[&both[..], &["--annotate", "--out", "told.pcapng"]].concat());
    let (mut reader, mut fates) = (Reader::new(), Vec::new());
    reader.push(&std::fs::read(path("told.pcapng")).expect("it was written"));
    while let Some(record) = reader.next().expect("it is whole") {
        let comment = record.comments().next().map(|comment| comment.to_string()).unwrap_or_default();
        fates.push((record.interface, record.bytes[22], comment.contains("forward")));
    }
    let wanted = [(1, 9, false), (0, 64, true), (1, 8, true), (1, 7, false), (0, 64, true), (1, 6, true)];
    assert_eq!(fates, wanted);
}

/// If this failed, a truncated capture would end the others, too.
#[test]
fn truncated_capture_leaves_others_whole() {
    let folder = Folder::new();
    let program = folder.write("two_ways.weft", TWO_WAYS);
    let path = |name: &str| folder.0.join(name);
    capture_at(&path("lan"), [(10, packet(64, 53)), (30, packet(64, 80))]);
    capture_at(&path("wan"), [20, 40, 60].map(|at| (at, packet(9, 53))));
    let whole = std::fs::read(path("lan")).expect("it was written");
    let mut damaged = whole.clone();
    let end = damaged.len() - 4;
    damaged[end..].copy_from_slice(&[1, 2, 3, 4]);
    for (bytes, status, n) in [(&whole[..whole.len() - 9], 0, 1), (&damaged, 1, 1)] {
        std::fs::write(path("lan"), bytes).expect("the folder is ours");
        let mut replay = weft(&folder);
        replay.current_dir(&folder.0).arg("replay").arg(&program);
        let done = output(replay.args(["--in", "lan=lan", "--in", "wan=wan", "-o", "json"]));
        let errors = String::from_utf8_lossy(&done.stderr);
        assert_eq!(done.status.code(), Some(status), "{errors}");
        assert_eq!(errors.lines().filter(|line| line.starts_with("weft: lan: ")).count(), 1, "{errors}");
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is data");
        let inputs = &report["inputs"];
        assert_eq!((&inputs[0]["packets"], &inputs[1]["packets"]), (&n.into(), &3.into()), "{report}");
        assert!(inputs[0]["broken"].is_string() && inputs[1]["broken"].is_null(), "{report}");
        assert_eq!(report["ports"][0]["out"], 3, "{report}");
    }
}

/// If this failed, IP packets of one port would be read as frames because those of another port are.
#[test]
fn mixed_port_kinds_keep_link_types() {
    let folder = Folder::new();
    let text = "CREATE PORT lan ON memory;
CREATE PORT vpn ON tun 'tun0';
CREATE CHAIN frames ON PORT lan -> lan AS END;
CREATE CHAIN packets ON PORT vpn -> vpn AS END;
";
    let program = folder.write("two_kinds.weft", text);
    capture_at(&folder.0.join("in"), [(10, packet(64, 53))]);
    for (out, status) in [("out.pcap", 2), ("out.pcapng", 0)] {
        let mut replay = weft(&folder);
        replay.current_dir(&folder.0).arg("replay").arg(&program).args(["--in", "lan=in", "--in", "vpn=in"]);
        let done = output(replay.args(["--out", out]));
        assert_eq!(done.status.code(), Some(status), "{}", String::from_utf8_lossy(&done.stderr));
        assert_eq!(folder.0.join(out).exists(), status == 0);
    }
    let (mut reader, mut left) = (Reader::new(), Vec::new());
    reader.push(&std::fs::read(folder.0.join("out.pcapng")).expect("it was written"));
    while let Some(record) = reader.next().expect("it is whole") {
        left.push((record.link, record.bytes.to_vec()));
    }
    let frame = packet(64, 53);
    assert_eq!(left, [(LinkType::ETHERNET, frame.clone()), (LinkType::RAW, frame[14..].to_vec())]);
}

/// A user with a wrong port would search the output of the wrong packets.
#[test]
fn mismatched_capture_is_reported() {
    let folder = Folder::new();
    let program = folder.write("two_ways.weft", TWO_WAYS);
    capture_at(&folder.0.join("a"), [(10, packet(64, 53))]);
    capture_at(&folder.0.join("b=c"), [(10, packet(64, 53))]);
    let replay = |args: &str| {
        let mut replay = weft(&folder);
        replay.current_dir(&folder.0).arg("replay").arg(&program).args(args.split(' '));
        let done = output(&mut replay);
        (done.status.code(), String::from_utf8_lossy(&done.stderr).into_owned())
    };
    for (args, why) in [
        ("--in a", "--port PORT, or --in PORT=FILE"),
        ("--in a --in b=c --port lan", "--in PORT=FILE for each capture"),
        ("--in lan=a --in lan=b=c", "two captures arrive at port `lan`: a and b=c"),
        ("--in lan=a --in a --port lan", "two captures arrive at port `lan`"),
        ("--in lam=a", "there is no port `lam`, and no file lam=a"),
        ("--in a --port lam", "a port that a chain is on is meant: `lan`, `wan`"),
        ("--in lan=a --chain back", "a port that chain `back` is on is meant: `wan`"),
        ("--in lan=a --port lan", "leave it out"),
        ("--in lan=a --in wan=b=c --out b=c", "--out would write over the capture that is read"),
        ("--in lan=a --in wan=b=c --rows a", "--rows would write over the capture that is read"),
    ] {
        let (status, errors) = replay(args);
        assert!(status == Some(2) && errors.contains(why), "{args}: {errors}");
    }
    // A file may have a `=` in its name, and a missing file is reported as such.
    assert_eq!(replay("--in b=c --port lan").0, Some(0));
    assert_eq!(replay("--in wan=b=c").0, Some(0));
    assert_eq!(replay("--in ./none=c --port lan").0, Some(3));
}

/// If this failed, a group would split packets with equal keys, or send all to one port.
#[test]
fn group_selects_by_given_key() {
    let folder = Folder::new();
    let path = folder.0.join("in.pcap");
    let arp = [&[0xff; 6][..], &[2; 6], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[7; 20]].concat();
    let mut packets = vec![arp];
    for (host, dst_port) in (0..64_u8).flat_map(|host| [1_u16, 2, 3, 4].map(|dst_port| (host, dst_port))) {
        let ip = ethernet().ipv4([10, 0, 0, host], [10, 0, 0, 2]);
        packets.push(ip.udp(1000, dst_port).payload(b"hello").build());
    }
    capture(&path, &packets);
    // The offset of the key in the frame, and whether there are enough keys that both ports get some.
    let (src, dst_port, mac) = (26..30, 36..38, 6..12);
    let cases = [
        ("ip.src", vec![src.clone()], true),
        ("hash(ip.dst, udp.dst_port)", vec![dst_port.clone()], false),
        ("hash(ip.src, udp.dst_port)", vec![src.clone(), dst_port.clone()], true),
        ("ethernet.src", vec![mac], false),
        ("flow()", vec![src, dst_port], true),
    ];
    for ((by, places, are_many), backend) in cases.iter().zip(["jit", "interp"].into_iter().cycle()) {
        let text = format!(
            "IMPORT 'library/protocols/all.weft';
CREATE PORT lan ON memory;
CREATE PORT one ON memory;
CREATE PORT two ON memory;
CREATE GROUP up ON PORT one, two SELECT BY {by};
CREATE CHAIN c ON PORT lan -> up AS END;
"
        );
        let program = folder.write("group.weft", &text);
        let out = folder.0.join("out.pcapng");
        let mut replay = weft(&folder);
        replay.arg("replay").arg(&program).arg("--in").arg(&path).arg("--out").arg(&out);
        let done = output(replay.args(["--annotate", "-o", "json", "--backend", backend]));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is data");
        let of = |at: usize| report["ports"][at]["out"].as_u64().expect("a number");
        assert_eq!(of(1) + of(2), packets.len() as u64, "{by}: {report}");
        assert!(!are_many || of(1) > 40 && of(2) > 40, "{by}: {report}");
        // Packets with equal keys leave by the same port.
        let (mut reader, mut ways) = (Reader::new(), Vec::<(Vec<u8>, String)>::new());
        reader.push(&std::fs::read(&out).expect("it was written"));
        while let Some(record) = reader.next().expect("it is whole") {
            let way = record.comments().next().map(|comment| comment.to_string()).unwrap_or_default();
            let key: Vec<u8> = places.iter().flat_map(|place| record.bytes[place.clone()].to_vec()).collect();
            match ways.iter().find(|(known, _)| *known == key) {
                Some((_, before)) => assert_eq!(*before, way, "{by}"),
                None => ways.push((key, way)),
            }
        }
    }
}

/// If this failed, the first packet network that people copy would pass what it should stop.
#[test]
fn port_examples_work_as_written() {
    let folder = Folder::new();
    let path = |name: &str| folder.0.join(name);
    let example = |name: &str| format!("{}/../../examples/{name}/network.weft", env!("CARGO_MANIFEST_DIR"));
    let to = |dst: [u8; 4], dst_port: u16| {
        let ip = ethernet().macs([4; 6], [2; 6]).ipv4([10, 0, 0, 1], dst);
        ip.udp(1000, dst_port).payload(b"hello").build()
    };
    capture(&path("in.pcap"), &[to([10, 1, 0, 9], 53), to([10, 2, 0, 9], 53), to([192, 0, 2, 9], 53)]);
    let replay_chain = |name: &str, chain: Option<&str>, port: &str| -> serde_json::Value {
        let mut command = weft(&folder);
        command.args(["replay", &example(name), "--port", port, "-o", "json", "--in"]).arg(path("in.pcap"));
        command.args(chain.map(|chain| format!("--chain={chain}")));
        let done = output(&mut command);
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        serde_json::from_slice(&done.stdout).expect("it is data")
    };
    let replay = |name: &str, port: &str| replay_chain(name, None, port);
    let out = |report: &serde_json::Value, port: &str| {
        let ports = report["ports"].as_array().into_iter().flatten();
        ports.filter(|row| row["name"] == port).filter_map(|row| row["out"].as_u64()).sum::<u64>()
    };
    // From inside, everything passes except the list; from outside, no flow may begin.
    assert_eq!(out(&replay("firewall", "lan"), "wan"), 2);
    assert_eq!(out(&replay("firewall", "wan"), "lan"), 0);
    assert_eq!((out(&replay("tunnel", "lan"), "wan"), out(&replay("tunnel", "wan"), "lan")), (3, 0));
    let routed = replay("router", "up");
    assert_eq!(["a", "b", "up"].map(|port| out(&routed, port)), [1, 1, 1]);
    // Packets of desks leave by the uplink with a tag, and by the other desk unchanged; guests see none.
    let switched = replay("switch", "desk1");
    assert_eq!(["desk1", "desk2", "guest", "up"].map(|port| out(&switched, port)), [0, 3, 0, 3]);
    let bytes = |port: usize, way: &str| switched["ports"][port][way].as_u64().expect("a number");
    assert_eq!([bytes(1, "out_bytes"), bytes(3, "out_bytes")].map(|n| n - bytes(0, "in_bytes")), [0, 12]);
    let shared = replay_chain("uplinks", Some("out"), "lan");
    assert_eq!(out(&shared, "wan0") + out(&shared, "wan1"), 3);
}

/// Receivers would drop packets after an IPv6 NAT: a checksum covers the addresses before it, also in protocols with
/// their own header checksum, such as a neighbour solicitation.
#[test]
fn ipv6_edit_updates_all_checksums() {
    let folder = Folder::new();
    let (input, out) = (folder.0.join("in.pcap"), folder.0.join("out.pcap"));
    let ip = || ethernet().macs([2; 6], [2; 6]).ipv6([0x20; 16], [0x30; 16]);
    let solicitation = [&[0; 4][..], &[9; 16], &[1, 1, 2, 0, 0, 0, 0, 9]].concat();
    let packets = [
        ip().tcp(1, 2).payload(b"x"),
        ip().udp(1, 2).payload(b"x"),
        ip().icmp(128).payload([0, 7, 0, 1, b'd', b'a', b't', b'a']),
        ip().icmp(135).payload(solicitation),
    ]
    .map(FrameBuilder::build);
    let total = |packet: &[u8]| {
        let (protocol, length) = (packet[20], packet[18..20].to_vec());
        sum(&[&length[..], &[0, protocol], &packet[22..]].concat())
    };
    capture(&input, &packets);
    let text = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE ELEMENT nat ON ip AS
  ON PACKET
    SET ip.src = '2001:db8::1';
    IF icmpv6.type = 135 THEN SET icmpv6.type = 136; END IF;
    SET ip.dst = '2001:db8:ffff::7';
END;
CREATE CHAIN edge ON PORT wan -> wan AS nat; END;
";
    let program = folder.write("edge.weft", text);
    for backend in ["jit", "interp"] {
        let mut replay = weft(&folder);
        replay.arg("replay").arg(&program).arg("--in").arg(&input).arg("--out").arg(&out);
        let done = output(replay.args(["--backend", backend]));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let mut reader = Reader::new();
        reader.push(&std::fs::read(&out).expect("it was written"));
        let mut n = 0;
        while let Some(record) = reader.next().expect("it is whole") {
            assert_eq!(record.bytes[22..26], [0x20, 1, 0xd, 0xb8]);
            assert_eq!(total(record.bytes), 0xffff, "{backend}: {:02x?}", record.bytes);
            n += 1;
        }
        assert_eq!(n, packets.len());
    }
}

/// An element's metadata of a frame would be lost when its headers change, or apply to the next frame as well.
#[test]
fn metadata_survives_header_changes() {
    const SAID: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON pcap 'in.pcap';
CREATE PORT lan ON pcap 'out.pcap' WITH (write = TRUE);
CREATE ELEMENT tell ON ip AS
  ON PACKET
    IF udp.dst_port = 53 THEN SET meta.tag = 53; END IF;
    IF ip.ttl = 9 THEN SET meta.label = 1; END IF;
    PUSH ethernet, ipv4 (src = '192.0.2.1', dst = '192.0.2.2'), udp (src_port = 5), vxlan (vni = 7);
    SET meta.path = meta.tag + 1;
END;
CREATE ELEMENT exit ON vxlan AS
  ON PACKET
    POP;
END;
CREATE ELEMENT act ON packet AS
  ON PACKET
    IF meta.tag = 53 AND meta.path = 54 THEN DROP; END IF;
    IF meta.label = 1 THEN MIRROR TO 'lan'; END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS tell -> exit -> act; END;
";
    let folder = Folder::new();
    let program = folder.write("edge.weft", SAID);
    let path = |name: &str| folder.0.join(name);
    capture(&path("in.pcap"), &[packet(64, 80), packet(64, 53), packet(9, 80), packet(64, 80)]);
    for backend in ["jit", "interp"] {
        let out = path("out.pcap").display().to_string();
        let mut command = weft(&folder);
        command.args(["replay", "-o", "json", "--out", &out, "--backend", backend]);
        let done = output(command.arg(&program).arg("--in").arg(path("in.pcap")));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let ttls: Vec<u8> = packets_in(out.as_ref()).iter().map(|packet| packet[22]).collect();
        assert_eq!(ttls, [64, 9, 9, 64], "{backend}");
    }
}

/// A silently rejected sender waits for its time-out: the answer must leave by the port of arrival.
#[test]
fn reject_answers_at_sender_port() {
    const RULES: &str = "IMPORT 'library/elements/ruleset.weft';
CREATE PORT lan ON memory;
CREATE PORT wan ON memory;
CREATE CHAIN edge ON PORT lan -> wan AS ruleset; END;
INSERT INTO edge.ruleset.rules (rank, dst_low, dst_high, verdict) VALUES (1, 53, 53, 2), (2, 0, 65535, 1);
";
    let folder = Folder::new();
    let program = folder.write("edge.weft", RULES);
    let path = |name: &str| folder.0.join(name);
    capture(&path("in.pcap"), &[packet(64, 53), packet(64, 80)]);
    for backend in ["jit", "interp"] {
        let out = path("out.pcap").display().to_string();
        let mut command = weft(&folder);
        command.args(["replay", "-o", "json", "--out", &out, "--backend", backend]);
        let done =
            output(command.arg(&program).arg("--in").arg(format!("lan={}", path("in.pcap").display())));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let left = packets_in(out.as_ref());
        let sent = packet(64, 53);
        let report: Vec<_> = left.iter().filter(|packet| packet[23] == 1).collect();
        assert_eq!((left.len(), report.len()), (2, 1), "{backend}");
        // An ICMP error from the unreachable address to the sender, about the original packet.
        assert_eq!((&report[0][26..30], &report[0][30..34]), (&sent[30..34], &sent[26..30]), "{backend}");
        assert_eq!(report[0][34..36], [3, 3], "{backend}");
        assert_eq!(report[0][42..], sent[14..], "{backend}");
        assert_eq!(report[0][..6], sent[6..12], "{backend}");
    }
}

/// A rule that does not know the egress port after an element changes headers would pass a forbidden frame.
#[test]
fn egress_survives_header_changes() {
    const CHOSEN: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory;
CREATE PORT lan ON memory;
CREATE PORT a_port_with_a_long_name ON memory;
CREATE ELEMENT choose ON ip AS
  ON PACKET
    IF udp.dst_port = 53 THEN REDIRECT TO 'a_port_with_a_long_name'; END IF;
    IF udp.dst_port = 54 THEN REDIRECT TO 'wan'; END IF;
END;
CREATE ELEMENT tag ON ethernet AS
  ON PACKET
    IF ip.ttl <> 9 THEN PUSH vlan (id = 7); END IF;
END;
CREATE ELEMENT again ON ip AS
  ON PACKET
    IF ip.ttl = 7 THEN REDIRECT TO coalesce(egress, 'none'); END IF;
END;
CREATE ELEMENT rules ON ip AS
  TABLE rules (rank U32 PRIMARY KEY, out TEXT(32)?, ttl U8?) MAX 10 ROWS FILLED BY CONTROLLER;
  ON PACKET
    SELECT * FROM input JOIN FIRST rules r BY rank ASC ON (r.out IS NULL OR egress = r.out)
      AND (r.ttl IS NULL OR ip.ttl = r.ttl);
END;
CREATE CHAIN edge ON PORT wan -> lan AS choose -> tag -> again -> rules; END;
INSERT INTO edge.rules.rules VALUES (1, 'a_port_with_a_long_name', NULL), (2, 'lan', 7);
";
    let folder = Folder::new();
    let program = folder.write("edge.weft", CHOSEN);
    let path = |name: &str| folder.0.join(name);
    let sent = [
        packet(64, 53),
        packet(9, 53),
        packet(7, 53),
        packet(64, 54),
        packet(9, 54),
        packet(64, 80),
        packet(7, 80),
    ];
    capture(&path("in.pcap"), &sent);
    for backend in ["jit", "interp"] {
        let out = path("out.pcap").display().to_string();
        let mut command = weft(&folder);
        command.args(["replay", "-o", "json", "--out", &out, "--backend", backend]);
        let done = output(command.arg(&program).arg("--in").arg(path("in.pcap")));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        // After a tag the hop limit is four bytes later.
        let ttl = |packet: &Vec<u8>| if packet[12] == 0x81 { packet[26] } else { packet[22] };
        let mut ttls: Vec<u8> = packets_in(out.as_ref()).iter().map(ttl).collect();
        ttls.sort_unstable();
        assert_eq!(ttls, [7, 7, 9, 64], "{backend}");
    }
}

/// If this failed, an element would read headers that another has removed, or a frame with a broken inner packet would
/// leave a tunnel.
#[test]
fn elements_see_edited_frame() {
    const TUNNEL: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON pcap 'in.pcap';
CREATE PORT lan ON pcap 'out.pcap' WITH (write = TRUE);
CREATE ELEMENT enter ON ip AS
  ON PACKET
    PUSH ethernet, ipv4 (src = '192.0.2.1', dst = '192.0.2.2', ttl = 3), udp (src_port = 5), vxlan (vni = 7);
END;
CREATE ELEMENT hop ON ip AS
  ON PACKET
    IF ip.ttl <= 1 THEN DROP; END IF;
    SET ip.ttl = ip.ttl - 1;
END;
CREATE ELEMENT exit ON vxlan AS
  ON PACKET
    IF inner.udp.dst_port = 53 THEN MIRROR TO 'lan'; END IF;
    POP;
END;
CREATE CHAIN edge ON PORT wan -> lan AS enter -> hop -> exit -> hop AS again; END;
";
    let folder = Folder::new();
    let program = folder.write("edge.weft", TUNNEL);
    let path = |name: &str| folder.0.join(name);
    let mut broken = packet(9, 80);
    broken[25] ^= 1;
    capture(&path("in.pcap"), &[packet(64, 80), packet(1, 80), packet(9, 53), broken]);
    for backend in ["jit", "interp"] {
        let out = path("out.pcapng").display().to_string();
        let mut command = weft(&folder);
        command.args(["replay", "-o", "json", "--annotate", "--out", &out, "--backend", backend]);
        let done = output(command.arg(&program).arg("--in").arg(path("in.pcap")));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is data");
        let elements = report["elements"].as_array().into_iter().flatten();
        let seen: Vec<_> = elements.map(|element| element["seen"].as_u64()).collect();
        assert_eq!(seen, [Some(3); 4], "{report}");
        let (mut reader, mut fates) = (Reader::new(), Vec::new());
        reader.push(&std::fs::read(&out).expect("it was written"));
        while let Some(record) = reader.next().expect("it is whole") {
            let comment = record.comments().next().map(|comment| comment.to_string()).unwrap_or_default();
            assert!(comment.contains("malformed") || sum(&record.bytes[14..34]) == 0xffff, "{comment}");
            fates.push((comment, record.bytes.len(), record.bytes[22]));
        }
        let forward = |ttl| ("weft: forward to lan".to_owned(), 47, ttl);
        assert_eq!((&fates[0], &fates[2]), (&forward(63), &forward(8)));
        assert_eq!(fates[1], ("weft: drop by again line 10".to_owned(), 47, 1));
        assert!(fates[3].0.starts_with("weft: malformed by ipv4 line "), "{}", fates[3].0);
    }
}

/// If this failed, a rule after address translation would see the original packet; or translation could not be combined
/// with library elements, which use other names for ports; and unmatched protocols would not be noticed.
#[test]
fn field_edits_cross_element_names() {
    const NAT: &str = "IMPORT 'library/elements/conntrack.weft';
CREATE PORT wan ON memory; CREATE PORT lan ON memory;
CREATE ELEMENT nat ON ipv4 AS
  ON PACKET
    IF l4.dst_port = 80 THEN SET l4.dst_port = 8080; END IF;
    IF l4.dst_port = 7 THEN SET l4.dst_port = 9; END IF;
END;
CREATE ELEMENT closed ON ip AS
  ON PACKET
    IF transport.dst_port = 8080 THEN DROP; END IF;
END;
CREATE ELEMENT back ON udp AS
  ON PACKET
    IF udp.dst_port = 9 THEN SET udp.dst_port = 11; END IF;
    IF udp.dst_port = 11 THEN SET udp.src_port = 12; END IF;
END;
CREATE CHAIN edge ON PORT wan -> lan AS nat -> closed -> conntrack (inside = 'wan') -> back; END;
";
    let folder = Folder::new();
    let program = folder.write("edge.weft", NAT);
    let arp =
        [&[2; 12][..], &[8, 6, 0, 1, 8, 0, 6, 4, 0, 1], &[2; 6], &[10, 0, 0, 1], &[0; 6], &[10, 0, 0, 2]]
            .concat();
    let out = folder.0.join("out.pcap");
    capture(&folder.0.join("in.pcap"), &[packet(9, 80), packet(9, 7), packet(9, 53), arp]);
    for backend in ["jit", "interp"] {
        let mut replay = weft(&folder);
        replay.arg("replay").arg(&program).arg("--in").arg(folder.0.join("in.pcap")).arg("--out").arg(&out);
        let done = output(replay.args(["-o", "json", "--backend", backend]));
        assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
        let report: serde_json::Value = serde_json::from_slice(&done.stdout).expect("it is data");
        let elements = report["elements"].as_array().into_iter().flatten();
        let seen: Vec<_> = elements.map(|element| element["seen"].as_u64()).collect();
        assert_eq!(seen, [Some(3), Some(3), Some(2), Some(2)], "{report}");
        let (mut reader, mut left) = (Reader::new(), Vec::new());
        reader.push(&std::fs::read(&out).expect("it was written"));
        while let Some(record) =
            reader.next().expect("it is whole").filter(|record| record.bytes[12..14] == [8, 0])
        {
            assert_eq!((sum(&record.bytes[14..34]), udp_sum(record.bytes)), (0xffff, 0xffff));
            left.push((record.bytes[35], record.bytes[37]));
        }
        assert_eq!(left, [(12, 11), (232, 53)]);
    }
}

/// If this failed, users could not see how many bytes a definition may take for a header.
#[test]
fn check_reports_header_lengths() {
    let folder = Folder::new();
    let program = folder.write("edge.weft", NETWORK);
    let report = output(weft(&folder).args(["check", "--cost", "--json"]).arg(&program));
    let report: serde_json::Value = serde_json::from_slice(&report.stdout).expect("it is data");
    let of = |name: &str| {
        let headers = report["headers"].as_array().into_iter().flatten();
        let header = headers.into_iter().find(|header| header["protocol"] == name).expect("it is imported");
        (header["least"].as_u64(), header["most"].as_u64())
    };
    assert_eq!(of("ethernet"), (Some(14), Some(14)));
    assert_eq!(of("ipv4"), (Some(20), Some(60)));
}

/// The author of a queue would not see the cost of a packet before it runs.
#[test]
fn check_reports_queue_cost() {
    let folder = Folder::new();
    let text = "IMPORT 'library/queues/fq_codel.weft';
CREATE QUEUE plain (n U32) AS
  LIMIT n PACKETS ON OVERFLOW DROP TAIL;
  ON ENQUEUE
    IF p.len > '100 B' THEN DROP; END IF;
    ACCEPT;
END;
CREATE PORT wan ON memory;
CREATE LINK out ON PORT wan QUEUE plain (n = 9);
";
    let program = folder.write("edge.weft", text);
    let check = |args: &[&str]| {
        let report = output(weft(&folder).args(["check", "--cost"]).args(args).arg(&program));
        assert!(report.status.success(), "{}", String::from_utf8_lossy(&report.stderr));
        String::from_utf8(report.stdout).expect("it is text")
    };
    let data: serde_json::Value = serde_json::from_str(&check(&["--json"])).expect("it is data");
    let queues = data["queues"].as_array().expect("a list");
    let plain = queues.iter().find(|queue| queue["queue"] == "plain").expect("a link has it");
    let operations = plain["levels"][0]["handlers"][0]["operations"].as_u64().expect("a number");
    assert!(operations > 2 && queues.iter().any(|queue| queue["queue"] == "fq_codel"), "{data}");
    let report = check(&[]);
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" ");
    assert!(report.lines().any(|line| words(line) == format!("plain ON ENQUEUE {operations}")), "{report}");
    assert!(report.contains("ON DEQUEUE") && report.contains("a packet, in and out"), "{report}");
    assert!(!report.contains("operations of a handler and bytes of state"), "{report}");
}
