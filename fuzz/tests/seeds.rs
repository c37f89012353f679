//! Runs every target's body on seeds and on random mutations of them, with stable Rust.

use std::path::Path;
use weft_core::Time;
use weft_core::frame::build::{FrameBuilder, ethernet};
use weft_core::ip::{DONT_FRAGMENT, MORE_FRAGMENTS, UDP};
use weft_core::rng::Rng;
use weft_fuzz::*;
use weft_ir::generate;
use weft_ir::text::write_program;
use weft_proto::capture::{ByteOrder, Format, LinkType, Packet, Style, Writer};

#[path = "../../crates/weft-control/library_folder.rs"]
mod library_folder;

/// Number of mutations of each seed.
const CHANGES: u64 = 300;

fn programs() -> Vec<Vec<u8>> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
    let mut texts = vec![b"CREATE CHAIN c ON a -> b AS x -> {y, z}; END;".to_vec()];
    let library = library_folder::library_folder(root);
    let library = ["elements", "filters"].map(|folder| library.join(folder));
    let folders = ["tests/programs", "tests/errors", "examples/shop"].map(|folder| root.join(folder));
    for folder in library.into_iter().chain(folders) {
        let Ok(entries) = std::fs::read_dir(folder) else { continue };
        let mut paths: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
        paths.sort();
        let weft = paths.into_iter().filter(|path| path.extension().is_some_and(|e| e == "weft"));
        texts.extend(weft.filter_map(|path| std::fs::read(path).ok()));
    }
    texts
}

fn h2_seeds() -> Vec<Vec<u8>> {
    let request = b"\0\0\x03\x01\x04\0\0\0\x01\x83\x86\x84";
    let data = b"\0\0\x06\0\x01\0\0\0\x01\0\0\0\0\x01x";
    let reset = b"\0\0\x04\x03\0\0\0\0\x01\0\0\0\x08";
    let window = b"\0\0\x04\x08\0\0\0\0\0\0\0\xff\xff";
    let response = b"\0\0\x01\x01\x04\0\0\0\x01\x88";
    let go_away = b"\0\0\x08\x07\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let frames: [&[u8]; 6] = [request, data, reset, window, response, go_away];
    let one = |mode: u8| [&[mode, 7][..], &frames.concat()].concat();
    (0..32).chain(128..160).map(one).collect()
}

/// Runs a body on each seed and on mutations of it.
fn run(body: fn(&[u8]), seeds: Vec<Vec<u8>>) {
    let mut rng = Rng::from_seed(1);
    let mut draw = move |below: usize| rng.below(below.max(1));
    for seed in &seeds {
        body(seed);
        let changes = CHANGES.min(4_000_000 / (seed.len() as u64 + 1) / 20).max(20);
        for _ in 0..changes {
            let mut bytes = seed.clone();
            for _ in 0..=draw(4) {
                let at = draw(bytes.len());
                match draw(5) {
                    0 if !bytes.is_empty() => drop(bytes.remove(at)),
                    1 => bytes.insert(at, draw(256) as u8),
                    2 if !bytes.is_empty() => bytes[at] ^= 1 << draw(8),
                    3 => bytes.truncate(at),
                    _ => {
                        let other = &seeds[draw(seeds.len())];
                        let from = draw(other.len());
                        let piece = other[from..(from + draw(40)).min(other.len())].to_vec();
                        bytes.splice(at..at, piece);
                    }
                }
            }
            body(&bytes);
        }
    }
}

/// If this fails, a program text can crash `weft check` and `weft fmt`.
#[test]
fn lang_parse_accepts_or_refuses() {
    run(lang_parse, programs());
}

/// If this fails, a program text can crash `weft check` and `weft apply`.
#[test]
fn lang_check_accepts_or_refuses() {
    run(lang_check, programs());
}

/// If this fails, a peer can crash a node with frames.
#[test]
fn h2_frames_accept_or_refuse() {
    run(h2_frames, h2_seeds());
}

/// If this fails, a peer can crash a node with a header block.
#[test]
fn hpack_accepts_or_refuses() {
    let blocks = [
        &b"\x03\x83\x86\x84\x06\x40\x01a\x01b\xbe\x02\x3f\xe1\x03\x20\x82\x88"[..],
        b"\x05\x00\x01a\x81\x07",
    ];
    run(hpack, blocks.map(<[u8]>::to_vec).to_vec());
}

/// If this fails, a client can crash a node with a message, or slip one past an element.
#[test]
fn protobuf_walk_accepts_or_refuses() {
    let item = b"\x0a\x03ann\x10\x07\x18\x01\x21\0\0\0\0\0\0\0\0\x2a\x05\x0a\x03bob\x5b\x08\x01\x5c\x10\x08";
    let lists = b"\x32\x05\x0a\x03ann\x32\x02\x10\x05\x2a\x05\x3a\x03\x01\x02\x03\x2a\x02\x38\x07";
    run(protobuf_walk, vec![item.to_vec(), lists.to_vec(), [&item[..], lists, item].concat()]);
}

/// If this fails, a client can crash a node with the framing of its messages.
#[test]
fn grpc_deframe_accepts_or_refuses() {
    let seeds = [&b"\x03\0\0\0\0\x02ab\x01\0\0\0\0\0\0\0\0\x01c"[..], b"\x0112345678m", b"\x0150%25 %zz%"];
    run(grpc_deframe, seeds.map(<[u8]>::to_vec).to_vec());
}

/// If this fails, a capture file can crash a replay.
#[test]
fn packet_path_sends_or_counts() {
    let udp = udp();
    let one = [&[udp.len() as u8][..], &udp].concat();
    let many = |batch: u8| [&[batch][..], &one, &one, &[3, 1, 2, 3], &one[..20], &one].concat();
    run(packet_path, vec![many(0), many(2), many(31), vec![7]]);
}

/// If this fails, a packet, or a neighbour's metadata of one, can crash a tunnel's end.
#[test]
fn packet_tunnels_send_or_count() {
    let udp = udp();
    let tagged = [&udp[..12], &[0x81, 0, 0, 9], &udp[12..]].concat();
    // The same in VXLAN.
    let tunnel = ethernet().macs([4; 6], [4; 6]).ipv4([10, 0, 0, 3], [10, 0, 0, 4]).ttl(9);
    let tunnel = tunnel.udp(0xc000, 4789).checksum(0).payload([8, 0, 0, 0, 0, 0, 5, 0]).payload(&udp).build();
    let long = [&udp[..42], &[7; 180]].concat();
    let all = |batch: u8, says: u8| {
        // Each with the start of the checksummed bytes, for frames with a pending checksum.
        let frames = [(&udp, 34), (&tagged, 38), (&tunnel, 34), (&long, 34)];
        let frames =
            frames.map(|(frame, start)| [&[frame.len() as u8][..], frame, &[says, start]].concat()).concat();
        [&[batch][..], &frames, &[3, 1, 2, 3, says, 0], &frames].concat()
    };
    run(packet_tunnels, vec![all(0, 0), all(31, 0), all(3, 0x21), all(7, 0x81)]);
}

/// If this fails, a fragment can crash a firewall or hold its buffers; any host can send them in any number.
#[test]
fn packet_fragments_send_or_count() {
    let bare = |from: usize, is_followed: bool, bytes: usize, id: u8| {
        let more = if is_followed { MORE_FRAGMENTS } else { 0 };
        let piece = ip().fragment(id.into(), (from / 8) as u16 | more).protocol(UDP);
        piece.payload(&[&[1, 2, 0, 9 + id, 0, 60, 0, 0][..], &[5; 56]].concat()[..bytes]).build()
    };
    let sized = |frame: Vec<u8>| [&[frame.len() as u8][..], &frame].concat();
    let piece = |from, is_followed, bytes, id| sized(bare(from, is_followed, bytes, id));
    let [first, second, last] = [(0, true, 24), (24, true, 16), (40, false, 20)]
        .map(|(from, is_followed, bytes)| [0, 1].map(|id| piece(from, is_followed, bytes, id)).concat());
    let over = piece(16, true, 24, 0);
    let all = |batch: u8, parts: &[&[u8]]| [&[batch][..], &parts.concat()].concat();
    let seeds = vec![
        all(0, &[&first, &second, &last]),
        all(3, &[&last, &second, &first, &second]),
        all(31, &[&second, &over, &first, &last]),
        all(1, &[&first, &over, &last, &last]),
    ];
    // The same in IPIP twice, and after two labels.
    let carried = |packet: &[u8]| ip().protocol(4).payload(packet).build();
    let nested = |packet: &[u8]| carried(&carried(packet)[14..]);
    let labelled = |packet: &[u8]| [&[2; 12][..], &[0x88, 0x47, 0, 1, 0, 9, 0, 2, 1, 9], packet].concat();
    let parts = [(24, true, 16), (40, false, 20), (0, true, 24)];
    let within = parts.map(|(from, is_followed, bytes)| {
        let packet = &bare(from, is_followed, bytes, 0)[14..];
        [sized(nested(packet)), sized(labelled(packet))].concat()
    });
    let seeds = [seeds, vec![all(2, &[&within.concat()])]].concat();
    run(packet_fragments, seeds);
}

/// Ethernet and IPv4 headers.
fn ip() -> FrameBuilder {
    let link = ethernet().macs([2; 6], [2; 6]);
    link.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(1, DONT_FRAGMENT).ttl(9)
}

/// A frame with five bytes in UDP.
fn udp() -> Vec<u8> {
    ip().udp(1000, 53).payload(b"hello").build()
}

#[test]
fn capture_accepts_or_refuses() {
    let mut seeds = Vec::new();
    for format in [Format::Pcap, Format::PcapNg] {
        for order in [ByteOrder::Little, ByteOrder::Big] {
            let mut file = vec![7];
            let mut writer =
                Writer::new(Style { format, order, ..Style::default() }, LinkType::NULL, "lo", &mut file);
            for n in 0..4 {
                let bytes = [&[2, 0, 0, 0, 0x45][..], &[n; 40]].concat();
                let at = Time(1_700_000_000_000_000_000 + i64::from(n));
                let packet = Packet { at, bytes: &bytes, comments: &["a", "b"], ..Packet::default() };
                writer.write(&packet, &mut file).expect("it fits");
            }
            seeds.push(file);
        }
    }
    run(capture, seeds);
}

/// If this fails, a firewall list can crash an import, or fill the memory.
#[test]
fn firewall_lists_accept_or_refuse() {
    let nft = include_bytes!("../../crates/weft-import/tests/lists/office.nft");
    let iptables = include_bytes!("../../crates/weft-import/tests/lists/office.iptables");
    let with = |format: u8, text: &[u8]| [&[format][..], text].concat();
    run(firewall_lists, vec![with(0, nft), with(4, nft), with(3, nft), with(1, iptables), with(6, iptables)]);
}

/// If this fails, a bundle can crash the node that reads its schemas.
#[test]
fn proto_files_accept_or_refuse() {
    let seeds: [&[u8]; 5] = [
        b"syntax = \"proto3\"; package p; import \"google/protobuf/wrappers.proto\"; message M { string a = 1; \
          oneof o { int32 b = 2; M c = 3; } map<string, E> d = 4; google.protobuf.StringValue e = 5; } \
          enum E { A = 0; B = 0x7f; } service S { rpc R(stream M) returns (.p.M) { option (x).y = { z: [1] }; } }",
        b"import public 'b.proto'; message M { required group G = 1 { optional bytes b = 2 [default = '\\n'];\n } \
          extensions 100 to max; } extend M { optional M.G x = 100; } /* */ // ",
        b"edition = \"2023\"; option features = { message_encoding: DELIMITED }; message M { M m = 1; \
          reserved a, b; string s = 2 [features.field_presence = IMPLICIT, features.utf8_validation = NONE]; }",
        b"\xef\xbb\xbfsyntax = 'proto3'; import 'b.proto';",
        b"\x0a\x25\x0a\x07p.proto\x12\x01p\x22\x17\x0a\x01M\x12\x09\x0a\x01a\x18\x01\x20\x01\x28\x09\
          \x1a\x03\x0a\x01N\x22\x02\x38\x01",
    ];
    run(proto_files, seeds.map(<[u8]>::to_vec).to_vec());
}

/// If this fails, a query can crash a node, or execute a statement in part.
#[test]
fn queries_accept_or_refuse() {
    let seeds = [
        "SELECT rank, net AS n, x * 2.0 FROM rules WHERE '10.1.2.3' IN net AND name LIKE 'a%' ORDER BY n DESC LIMIT 3;",
        "INSERT OR REPLACE INTO rules (rank, n, may) VALUES (1, -5, TRUE), (2, 7, FALSE);",
        "UPDATE rules SET n = n / (n + 1), name = upper(name) WHERE rank BETWEEN 1 AND 9 OR may;",
        "DELETE FROM rules WHERE x IS NULL; SELECT count(*) FROM rules",
        "SELECT name, sum(n), avg(x) AS a, argmax(net, rank) FROM rules GROUP BY name ORDER BY a DESC",
    ];
    run(queries, seeds.map(|seed| seed.as_bytes().to_vec()).into());
}

/// If this fails, an IR file can crash its reader.
#[test]
fn ir_text_accepts_or_refuses() {
    let seeds = (0..12).map(|seed| write_program(&generate::chain(&mut Rng::from_seed(seed))).into_bytes());
    run(ir_text, seeds.collect());
}

/// If this fails, a peer can crash a node with compressed, encrypted, signed or encoded bytes, or fill its memory.
#[test]
fn natives_accept_or_refuse() {
    let unhex = |digits: &str| -> Vec<u8> {
        let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("they are digits");
        (0..digits.len()).step_by(2).map(byte).collect()
    };
    let gzip = "1f8b08000000000000034b4c4a4e494d4bc4200131c7223318000000";
    let zstd = "28b52ffd0458650000306162636465660100f14a11627640b5";
    let lz4 = "04224d186440a70f00000069616263646566060050626364656600000000c852656c";
    let token = b"eyJhbGciOiJIUzI1NiIsInR5cCI6IkpXVCJ9.eyJzdWIiOiJib2IifQ.EulAUCXTDlu2LDed1cFi_TQ-C1NB6a7Ro6W6Vt1NK4E";
    let seeds = [
        ("gunzip", unhex(gzip)),
        ("unzstd", unhex(zstd)),
        ("unlz4", unhex(lz4)),
        ("gzip", b"abcabcabc".to_vec()),
        ("zstd", b"abcabcabc".to_vec()),
        ("lz4", b"abcabcabc".to_vec()),
        ("aes_256_gcm_seal", b"abc".to_vec()),
        ("aes_256_gcm_open", vec![1; 60]),
        ("chacha20_poly1305_seal", b"abc".to_vec()),
        ("chacha20_poly1305_open", vec![1; 60]),
        ("jwt_verify", token.to_vec()),
        ("json_get", br#"{"a": ["x\u00e9\n", {"b": null}], "c": -1.5e3}"#.to_vec()),
        ("json_set", br#"{"a": ["x\u00e9\n", {"b": null}], "c": -1.5e3}"#.to_vec()),
        ("unbase64", b"Zm9vYmFy".to_vec()),
        ("unbase64url", b"Zm9vYmE".to_vec()),
        ("unhex", b"00ff".to_vec()),
        ("base64", b"foobar".to_vec()),
        ("utf8", "gr\u{fc}n".as_bytes().to_vec()),
        ("regex_capture", b"user=12 ab".to_vec()),
        ("regex_replace", b"user=12 ab=".to_vec()),
        ("maglev_slot", b"key".to_vec()),
    ];
    run(natives, seeds.map(|(name, data)| native_seed(name, &data)).to_vec());
}
