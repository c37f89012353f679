//! `weft generate`: packets of a user's own protocol, from its definition to a chain that parses it.

use crate::node::{Folder, output, weft};
use serde_json::Value;
use std::path::Path;
use std::process::Output;
use weft_core::ip::IpPacket;
use weft_proto::capture::Reader;

const SENSOR: &str = "IMPORT 'library/protocols/all.weft';
CREATE PROTOCOL sensor (
  version bit(4) = 1, kind bit(4), id bit(16), n bit(8) COMPUTED (count(readings)),
  REPEAT readings (value bit(16)) COUNT (n) MAX 8,
  sum bit(16) COMPUTED (checksum(header)),
  PAYLOAD bytes)
  BIND udp WHERE dst_port = 7777;
CREATE PORT air ON memory;
CREATE ELEMENT kinds ON packet AS
  TABLE seen (kind U8 PRIMARY KEY, n U64 = 0) MAX 16 ROWS EVICT OLDEST;
  ON PACKET
    UPSERT seen KEY (coalesce(sensor.kind, inner.sensor.kind, 0)) SET n = n + 1;
END;
CREATE CHAIN look ON PORT air WHEN present(sensor) OR present(inner.sensor) AS kinds; END;
";

fn generate(folder: &Folder, args: &[&str]) -> Output {
    output(weft(folder).arg("generate").args(args))
}

fn json(done: &Output) -> Value {
    let errors = String::from_utf8_lossy(&done.stderr);
    serde_json::from_slice(&done.stdout).unwrap_or_else(|_| panic!("{errors}"))
}

fn bytes(path: &Path) -> Vec<u8> {
    std::fs::read(path).expect("it was written")
}

/// The author of a protocol has no traffic of it, and could not test a chain before the first device exists.
#[test]
fn own_protocol_generates_and_replays() {
    let folder = Folder::new();
    let program = folder.write("sensor.weft", SENSOR);
    let program = program.to_str().expect("it is text");
    let make = |out: &Path, seed: &str| {
        let out = out.to_str().expect("it is text");
        let args = [program, "--with", "sensor", "--count", "60", "--seed", seed, "--out", out, "-o", "json"];
        let done = generate(&folder, &args);
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        json(&done)
    };
    let files = ["a.pcap", "b.pcap", "c.pcap"].map(|name| folder.0.join(name));
    let made = make(&files[0], "7");
    assert_eq!((made["packets"].as_u64(), made["different"]["packets"].as_u64()), (Some(60), Some(0)));
    let n = |layer: &str| {
        let layers = made["layers"].as_array().expect("they are reported");
        layers.iter().find(|of| of["protocol"] == layer).map(|of| of["packets"].as_u64())
    };
    assert_eq!((n("sensor"), n("udp"), n("ethernet")), (Some(Some(60)), Some(Some(60)), Some(Some(60))));
    make(&files[1], "7");
    make(&files[2], "8");
    let [a, b, c] = files.each_ref().map(|file| bytes(file));
    assert!(a == b, "the same seed, other packets");
    assert!(a != c, "another seed, the same packets");

    let mut replay = weft(&folder);
    replay.args(["replay", program, "--in"]).arg(&files[0]).args(["-o", "json"]);
    let report = json(&output(&mut replay));
    let element = &report["elements"][0];
    let malformed = made["malformed"].as_array().expect("they are reported");
    let n_malformed: u64 = malformed.iter().filter_map(|of| of["packets"].as_u64()).sum();
    assert!(n_malformed < 10, "{made}");
    // Later fragments have no such header; neither have packets in more tunnels than a chain parses.
    assert!(element["seen"].as_u64() >= Some(45), "{report}");
}

/// Receivers drop a fragment that no sender can have cut, so such packets would test nothing behind it.
#[test]
fn fragments_start_at_multiples_of_8() {
    let folder = Folder::new();
    let program = folder.write("ip.weft", "IMPORT 'library/protocols/all.weft';\n");
    let out = folder.0.join("ip.pcap");
    let arguments = [&program, &out].map(|path| path.to_str().expect("it is text"));
    let done = generate(&folder, &[arguments[0], "--first", "ipv4", "--count", "400", "--out", arguments[1]]);
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    let (mut reader, mut first_or_middle, mut last) = (Reader::new(), 0, 0);
    reader.push(&bytes(&out));
    while let Some(record) = reader.next().expect("it is whole") {
        let Some(part) = IpPacket::new(record.bytes).and_then(IpPacket::part) else { continue };
        assert!(part.offset + part.bytes <= 65_535, "{part:?}");
        if part.has_more {
            assert!(part.bytes > 0 && part.bytes % 8 == 0, "{part:?}");
            first_or_middle += 1;
        } else {
            last += 1;
        }
    }
    assert!(first_or_middle > 5 && last > 5, "{first_or_middle} with more behind them, {last} last ones");
}

#[test]
fn impossible_generate_is_refused() {
    let folder = Folder::new();
    let program = folder.write("sensor.weft", SENSOR);
    let program = program.to_str().expect("it is text");
    let refused = |args: &[&str], status: i32| {
        let done = generate(&folder, args);
        assert_eq!(done.status.code(), Some(status), "{args:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let report = refused(&[program, "--with", "senser"], 2);
    assert!(report.contains("no protocol `senser`") && report.contains("`sensor`"), "{report}");
    let report = refused(&[program, "--first", "arp", "--with", "sensor"], 2);
    assert!(report.contains("begins with `arp` has a `sensor`"), "{report}");
    let alone = folder.write("alone.weft", "CREATE PROTOCOL own (a bit(8), PAYLOAD bytes);\n");
    let alone = alone.to_str().expect("it is text");
    assert!(refused(&[alone], 2).contains("--first"));
    let done = generate(&folder, &[alone, "--first", "own", "--count", "5", "-o", "json"]);
    assert_eq!(json(&done)["packets"], 5);
    let report = refused(&[program, "--out", "no/such/folder/x.pcap"], 3);
    assert!(report.contains("no/such/folder"), "{report}");
}

/// Random lists of options would be malformed for every parser.
#[test]
fn generated_lengths_match_contents() {
    let folder = Folder::new();
    let program = "IMPORT 'library/protocols/ethernet.weft';
CREATE PROTOCOL tlv (
  len bit(8), name bytes(len), n bit(8), k bit(4), m bit(4),
  more bytes(k % 5 + 2), odd bytes(CASE WHEN m = 3 THEN 1 ELSE 2 END),
  REPEAT items (type bit(8), length bit(8), value bytes(length)) COUNT (n) MAX 20,
  PAYLOAD bytes)
  BIND ethernet WHERE type = 0x1234;
CREATE PORT wire ON memory;
CREATE ELEMENT put ON packet AS
  ON PACKET
    IF NOT present(tlv) THEN PUSH ethernet, tlv (n = 2); END IF;
    REDIRECT TO 'wire';
END;
CREATE CHAIN c ON PORT wire AS put; END;
";
    let program = folder.write("tlv.weft", program);
    let program = program.to_str().expect("it is text");
    let file = |name: &str| folder.0.join(name).to_str().expect("it is text").to_owned();
    let (made, pushed) = (file("made.pcap"), file("pushed.pcap"));
    let args = [program, "--with", "tlv", "--count", "300", "--out", &made, "-o", "json"];
    let report = json(&generate(&folder, &args));
    assert_eq!(
        (&report["packets"], &report["malformed"]),
        (&300.into(), &Value::Array(Vec::new())),
        "{report}"
    );
    // Added headers have as many rounds as their length says.
    let args = [program, "--count", "50", "--seed", "1", "--out", &made, "-o", "json"];
    let others = json(&generate(&folder, &args));
    let replay = |input: &str| {
        let args = ["replay", program, "--in", input, "--out", &pushed, "-o", "json"];
        json(&output(weft(&folder).args(args)))
    };
    assert_eq!(replay(&made)["packets"], others["packets"]);
    std::fs::copy(&pushed, &made).expect("it was written");
    let again = replay(&made);
    let malformed = again["ended"].as_array().expect("it is reported").iter();
    assert_eq!(
        malformed.filter(|end| end["why"].as_str().is_some_and(|why| why.contains("tlv"))).count(),
        0,
        "{again}"
    );
}
