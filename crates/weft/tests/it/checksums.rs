//! Checksums of frames that programs change, recomputed here: receivers drop a packet with a wrong one.

use crate::node::{Folder, output, weft};
use crate::replay::{capture, sum};
use std::path::Path;
use weft_core::frame::build::{FrameBuilder, ipv4, ipv6};
use weft_core::ip::DONT_FRAGMENT;
use weft_proto::capture::Reader;

const SETS: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory; CREATE PORT lan ON memory;
CREATE ELEMENT q ON packet AS
  ON PACKET
    LET what = coalesce(inner.udp.dst_port, 0);
    IF what % 2 = 1 THEN SET inner.ipv4.ttl = 9; END IF;
    IF what / 2 % 2 = 1 THEN SET inner.ipv4.src = '10.9.9.9'; END IF;
    IF what / 4 % 2 = 1 THEN SET inner.udp.src_port = 999; END IF;
    IF what / 8 % 2 = 1 THEN SET inner.ipv4.dscp = 46; END IF;
END;
CREATE CHAIN c ON PORT wan -> lan AS q; END;
";

const HEADS: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory; CREATE PORT lan ON memory;
CREATE ELEMENT q (six BOOL) ON ip AS
  ON PACKET
    LET kind = ip.protocol;
    IF six THEN
      POP TO l4;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = '02:00:00:00:00:02'),
        ipv6 (src = '2001:db8::1', dst = '2001:db8::2', next_header = kind);
    ELSIF present(udp) THEN
      POP TO udp;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = '02:00:00:00:00:02'),
        ipv4 (src = '192.0.2.1', dst = '192.0.2.7');
    ELSE
      POP TO tcp;
      PUSH ethernet (dst = '02:00:00:00:00:01', src = '02:00:00:00:00:02'),
        ipv4 (src = '192.0.2.1', dst = '192.0.2.7');
    END IF;
END;
";

/// A packet of IPv4 or IPv6.
fn ip(six: bool) -> FrameBuilder {
    let host = |n: u8| [0x20, 1, 0xd, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, n];
    match six {
        true => ipv6(host(1), host(2)),
        false => ipv4([10, 1, 2, 1], [10, 1, 2, 2]).fragment(7, DONT_FRAGMENT),
    }
}

fn udp(six: bool, dst_port: u16, payload: &[u8]) -> Vec<u8> {
    ip(six).udp(1000, dst_port).payload(payload).build()
}

fn udp_without_checksum(dst_port: u16, payload: &[u8]) -> Vec<u8> {
    ip(false).udp(1000, dst_port).checksum(0).payload(payload).build()
}

fn tcp(six: bool, payload: &[u8]) -> Vec<u8> {
    ip(six).tcp(1000, 80).payload(payload).build()
}

fn pseudo_sum(protocol: u8, addresses: &[u8], bytes: &[u8]) -> u16 {
    sum(&[addresses, &[0, protocol], &(bytes.len() as u16).to_be_bytes(), bytes].concat())
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let kind = if packet[0] >> 4 == 6 { [0x86, 0xdd] } else { [8, 0] };
    [&[2; 12][..], &kind, packet].concat()
}

/// Whether the checksums of a packet, and of its payload, are right.
fn is_right(packet: &[u8]) -> bool {
    let (is_good, protocol, addresses, carried) = match packet[0] >> 4 {
        4 => (sum(&packet[..20]) == 0xffff, packet[9], &packet[12..20], &packet[20..]),
        _ => (true, packet[6], &packet[8..40], &packet[40..]),
    };
    let is_good = is_good
        && match protocol {
            17 if carried[6..8] == [0, 0] => packet[0] >> 4 == 4,
            1 | 47 => sum(carried) == 0xffff,
            _ => pseudo_sum(protocol, addresses, carried) == 0xffff,
        };
    is_good
        && match (protocol, &carried[2..4]) {
            (17, [0x12, 0xb5]) => is_right(&carried[8 + 8 + 14..]),
            (1 | 47, _) => is_right(&carried[8..]),
            _ => true,
        }
}

/// The output of a program for these packets.
fn through(folder: &Folder, program: &Path, backend: &str, packets: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let (input, out) = (folder.0.join("in.pcap"), folder.0.join("out.pcap"));
    capture(&input, &packets.iter().map(|packet| frame(packet)).collect::<Vec<_>>());
    let mut replay = weft(folder);
    replay.arg("replay").arg(program).arg("--in").arg(&input).arg("--out").arg(&out);
    let done = output(replay.args(["--backend", backend]));
    assert_eq!(done.status.code(), Some(0), "{}", String::from_utf8_lossy(&done.stderr));
    let (mut reader, mut left) = (Reader::new(), Vec::new());
    reader.push(&std::fs::read(&out).expect("it was written"));
    while let Some(record) = reader.next().expect("it is whole") {
        left.push(record.bytes[14..].to_vec());
    }
    assert_eq!(left.len(), packets.len());
    left
}

/// If this fails, the end of a tunnel drops packets that were changed in it: the outer checksum also covers the inner
/// packet.
#[test]
fn inner_edit_updates_tunnel_checksums() {
    let folder = Folder::new();
    let program = folder.write("sets.weft", SETS);
    let inner = |what: u16| [udp(false, what, b"inside"), udp_without_checksum(what, b"inside")];
    let inners: Vec<Vec<u8>> = (0..16).flat_map(inner).collect();
    let in_vxlan = |inner: &Vec<u8>| [&[8, 0, 0, 0, 0, 0, 5, 0][..], &frame(inner)].concat();
    let in_gre = |inner: &Vec<u8>| {
        let mut gre = [&[0x80, 0, 8, 0, 0, 0, 0, 0], &inner[..]].concat();
        let own = !sum(&gre);
        gre[4..6].copy_from_slice(&own.to_be_bytes());
        gre
    };
    let outer = |inner: &Vec<u8>| {
        let tunnels = [false, true].map(|six| {
            [udp(six, 4789, &in_vxlan(inner)), ip(six).protocol(47).payload(in_gre(inner)).build()]
        });
        [tunnels.concat(), vec![udp_without_checksum(4789, &in_vxlan(inner))]].concat()
    };
    let packets: Vec<Vec<u8>> = inners.iter().flat_map(outer).collect();
    assert!(packets.iter().all(|packet| is_right(packet)));
    for backend in ["jit", "interp"] {
        let left = through(&folder, &program, backend, &packets);
        for (nth, (before, after)) in packets.iter().zip(&left).enumerate() {
            assert!(is_right(after), "{backend}: packet {nth} {before:02x?} {after:02x?}");
        }
        assert_ne!(left[5 * 30..], packets[5 * 30..], "something was set");
    }
}

/// If this fails, receivers drop datagrams after translation between IPv4 and IPv6, or after encapsulation; or a
/// damaged datagram passes as good.
#[test]
fn new_outer_header_updates_checksums() {
    let folder = Folder::new();
    let all = |six| vec![udp(six, 7, b"even"), udp(six, 7, b"odd"), tcp(six, b"text"), tcp(six, b"odd")];
    let without = udp_without_checksum(7, b"without");
    let packets = [all(false), all(true), vec![without]].concat();
    assert!(packets.iter().all(|packet| is_right(packet)));
    for six in [false, true] {
        let chain = format!("{HEADS}CREATE CHAIN c ON PORT wan -> lan AS q (six = {six}); END;\n");
        let program = folder.write("heads.weft", &chain);
        for backend in ["jit", "interp"] {
            let left = through(&folder, &program, backend, &packets);
            for (before, after) in packets.iter().zip(&left) {
                assert_eq!(after[0] >> 4 == 6, six);
                assert!(is_right(after), "{backend}: {before:02x?} {after:02x?}");
            }
            let mut damaged = packets.clone();
            damaged.pop();
            damaged.iter_mut().for_each(|packet| *packet.last_mut().expect("it has a payload") ^= 1);
            let left = through(&folder, &program, backend, &damaged);
            assert!(
                left.iter().all(|packet| !is_right(packet)),
                "{backend}: what is damaged passes for whole"
            );
        }
    }
}

/// If this fails, hosts ignore ICMP errors that come back through address translation: the checksums of the quoted
/// packets are wrong (RFC 5508 section 4.2).
#[test]
fn quoted_packet_checksums_follow_nat() {
    const BACK: &str = "IMPORT 'library/protocols/all.weft';
CREATE PORT wan ON memory; CREATE PORT lan ON memory;
CREATE ELEMENT back ON icmp_quote AS
  ON PACKET
    SET ipv4.dst = '192.168.7.8';
    SET icmp_quote.src = '192.168.7.8';
    IF present(quoted_ports) THEN SET quoted_ports.src_port = 5000; ELSE SET quoted_echo.ident = 77; END IF;
END;
CREATE CHAIN c ON PORT wan -> lan AS back; END;
";
    let folder = Folder::new();
    let program = folder.write("back.weft", BACK);
    let error = |quoted: Vec<u8>| ip(false).icmp(11).payload([0; 4]).payload(quoted).build();
    let echo = ip(false).icmp(8).payload([0, 9, 0, 1]).payload(b"echo").build();
    let quoted = [udp(false, 7, b"odd"), udp_without_checksum(7, b"even"), tcp(false, b"text")];
    let packets: Vec<Vec<u8>> = quoted.into_iter().map(error).collect();
    assert!(packets.iter().all(|packet| is_right(packet)));
    // The checksum of a truncated quote cannot follow, and that of the ICMP message must still be right.
    let cut = [tcp(false, b"text")[..28].to_vec(), echo];
    let cut: Vec<Vec<u8>> = cut.into_iter().map(error).collect();
    for backend in ["jit", "interp"] {
        for after in through(&folder, &program, backend, &packets) {
            assert!(is_right(&after), "{backend}: {after:02x?}");
            assert_eq!(
                (after[16..20].to_vec(), after[28 + 12..28 + 16].to_vec()),
                (vec![192, 168, 7, 8], vec![192, 168, 7, 8])
            );
        }
        for after in through(&folder, &program, backend, &cut) {
            let sums = [sum(&after[..20]), sum(&after[20..]), sum(&after[28..48])];
            assert_eq!(sums, [0xffff; 3], "{backend}: {after:02x?}");
            assert!(after[28 + 9] != 1 || sum(&after[48..]) == 0xffff, "{backend}: {after:02x?}");
        }
    }
}
