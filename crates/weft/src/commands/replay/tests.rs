//! Replays small captures through a chain in the text form of the IR.

use super::choice::Arrival;
use super::*;
use crate::cli::BackendName;
use std::path::PathBuf;
use weft_core::frame::build::ethernet;
use weft_core::hash::HashKey;
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain};
use weft_ir::interp::Interp;
use weft_ir::text::parse_program;
use weft_proto::capture::{LinkType, Packet, Reader, Style, Writer};

const FRAMES: &str = include_str!("../../../../../tests/ir/frames.ir");
const HOP: &str = "element \"hop\" \"hop\"\nhandler request function \"hop\" {\nblock0:\n v0: int = input in2\n \
    v1: int = int 1\n v2: bool = icmp.ule v0, v1\n branch v2, block1, block2\nblock1:\n drop ; line 7\nblock2:\n \
    v3: int = sub v0, v1\n set_input in2, v3\n v4: bytes = input in9\n emit s0, v4, v3\n forward\n}\n\
    handler every 1000000000 function \"every\" {\nblock0:\n v0: bytes = bytes \"tick\"\n v1: int = int 0\n \
    emit s0, v0, v1\n forward\n}\n";

fn plan() -> PacketPlan {
    let program = parse_program(&format!("{FRAMES}{HOP}")).expect("it is in the form");
    let mut staged = StateStore::new(1, HashKey::from_seed(1)).stage();
    let on = ChainOn { program, condition: None, ports: vec![0], to: Some(Outlet::Port(1)) };
    let chain = PacketChain::build(1, on, &mut staged, &Interp).expect("it is well-formed");
    let ports = ["wan", "lan"].map(String::from).into();
    PacketPlan { version: 1, ports, chains: vec![Arc::new(chain)], ..PacketPlan::default() }
}

/// An IPv4 packet with this TTL and an unknown payload.
fn packet(ttl: u8) -> Vec<u8> {
    ethernet().ipv4([10, 0, 0, 1], [10, 0, 0, 2]).ttl(ttl).protocol(99).build()
}

/// The folder of a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("weft-replay-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder for the test");
        Self(folder)
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// A capture of packets that are half a second apart.
    fn capture(&self, packets: &[Vec<u8>]) -> String {
        let at = |nth: i64| Time(1_700_000_000_000_000_000 + 500_000_000 * nth);
        self.capture_at(packets.iter().zip(0..).map(|(packet, nth)| (at(nth), packet.clone())))
    }

    fn capture_at(&self, packets: impl Iterator<Item = (Time, Vec<u8>)>) -> String {
        let mut bytes = Vec::new();
        let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "eth0", &mut bytes);
        for (at, packet) in packets {
            let packet = Packet { at, bytes: &packet, ..Packet::default() };
            writer.write(&packet, &mut bytes).expect("it is short");
        }
        let path = self.path("in.pcapng");
        std::fs::write(&path, bytes).expect("the folder is ours");
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn args(input: &str) -> ReplayArgs {
    ReplayArgs {
        file: String::new(),
        chain: None,
        inputs: vec![input.to_owned()],
        port: None,
        out: None,
        out_dir: None,
        annotate: false,
        trust_checksums: false,
        speed: Speed::Full,
        limit: None,
        query: Vec::new(),
        rows: None,
        output: Output::Table,
        backend: BackendName::Interp,
        seed: 0,
    }
}

fn begin(args: &ReplayArgs) -> Result<Replay<'_, 'static>, Fault> {
    let (plan, links) = (plan(), [Link::Ethernet; 2]);
    let arrivals = args.inputs.iter().zip(0..).map(|(file, port)| Arrival { port, file: file.clone() });
    let inputs = Inputs::open(&arrivals.collect::<Vec<_>>(), &plan, &links, args).expect("captures");
    Replay::new(Arc::new(plan), &links, args, inputs)
}

fn replay(args: &ReplayArgs) -> (Report<'static>, Result<(), Fault>) {
    begin(args).and_then(Replay::run).expect("it runs")
}

/// The packets of a capture: interface, bytes, comments.
fn read(path: &str) -> Vec<(u32, Vec<u8>, Vec<String>)> {
    let mut reader = Reader::new();
    reader.push(&std::fs::read(path).expect("it was written"));
    let mut packets = Vec::new();
    while let Some(record) = reader.next().expect("it is whole") {
        let comments = record.comments().map(|comment| comment.to_string()).collect();
        packets.push((record.interface, record.bytes.to_vec(), comments));
    }
    reader.finish().expect("it is whole");
    packets
}

#[test]
fn replay_writes_output_counts_drops() {
    // The counters of a rule set would not match its packets.
    let folder = Folder::new("leaves");
    let mut bad = packet(9);
    bad[24] ^= 1;
    let input = folder.capture(&[packet(9), packet(1), bad, packet(3)]);
    let mut args = args(&input);
    args.out = Some(folder.path("out.pcap"));
    let (report, ended) = replay(&args);
    ended.expect("the capture is whole");
    let written: Vec<_> = read(&folder.path("out.pcap")).into_iter().map(|(_, bytes, _)| bytes).collect();
    assert_eq!(written, [packet(8), packet(2)]);
    let data = report.json();
    assert_eq!(data["packets"], 4);
    let ends = json_of(&data["ended"]);
    let wanted = [
        r#"{"file":"","line":21,"packets":1,"why":"malformed ipv4: checksum"}"#,
        r#"{"file":"","line":7,"packets":1,"why":"drop by hop"}"#,
    ];
    assert_eq!(ends, format!("[{}]", wanted.join(",")));
    assert_eq!(data["elements"][0]["seen"], 3);
    // 1.5 seconds of the capture have one whole second, whatever the replay took.
    assert_eq!(json_of(&data["sinks"]), r#"[{"name":"seen.log","rows":3}]"#);
    let table: Vec<String> = report.table().lines().skip(2).map(str::to_owned).collect();
    let wanted = "\
element  seen  dropped  aborted  diverted  failed
hop         3        1        -         -       -

packets that went no further  where    packets
malformed ipv4: checksum      line 21        1
drop by hop                   line 7         1

port  in  out
wan    4    -
lan    -    2

sink      rows
seen.log     3";
    assert_eq!(table.join("\n"), wanted);
}

fn json_of(value: &serde_json::Value) -> String {
    value.to_string()
}

#[test]
fn annotated_capture_has_all_packets() {
    // The reason of a packet's drop would be a guess.
    let folder = Folder::new("annotated");
    let mut args = args(&folder.capture(&[packet(9), packet(1), vec![0; 9]]));
    (args.out, args.annotate) = (Some(folder.path("told.pcapng")), true);
    let (_, ended) = replay(&args);
    ended.expect("the capture is whole");
    let wanted = [
        (0, packet(8), vec!["weft: forward to lan".to_owned()]),
        (0, packet(1), vec!["weft: drop by hop line 7".to_owned()]),
        (0, vec![0; 9], vec!["weft: malformed by ethernet line 3: truncated".to_owned()]),
    ];
    assert_eq!(read(&folder.path("told.pcapng")), wanted);
    args.out = Some(folder.path("told.pcap"));
    let refused = begin(&args).err().expect("pcap has no comments");
    assert!(matches!(refused, Fault::Usage { .. }));
}

#[test]
fn output_folder_has_a_file_per_port() {
    // Packets of two networks in one file cannot be told apart.
    let folder = Folder::new("folder");
    let mut args = args(&folder.capture(&[packet(9), packet(8)]));
    args.out_dir = Some(folder.path("out"));
    replay(&args).1.expect("the capture is whole");
    assert_eq!(read(&folder.path("out/lan.pcapng")).len(), 2);
    assert_eq!(read(&folder.path("out/wan.pcapng")).len(), 0);
    (args.out, args.out_dir) = (Some(folder.path("all.pcapng")), None);
    replay(&args).1.expect("the capture is whole");
    let interfaces: Vec<u32> = read(&folder.path("all.pcapng")).iter().map(|packet| packet.0).collect();
    assert_eq!(interfaces, [1, 1]);
}

#[test]
fn truncated_capture_replays_its_packets() {
    // A capture that ends with a full disk would be useless.
    let folder = Folder::new("cut");
    let input = folder.capture(&[packet(9), packet(8), packet(7)]);
    let whole = std::fs::read(&input).expect("it was written");
    std::fs::write(&input, &whole[..whole.len() - 11]).expect("the folder is ours");
    let (report, ended) = replay(&args(&input));
    assert_eq!((report.packets, ended.is_ok()), (2, true));
    let mut broken = whole[..whole.len() - 4].to_vec();
    broken.extend([1, 2, 3, 4]);
    std::fs::write(&input, broken).expect("the folder is ours");
    let (report, ended) = replay(&args(&input));
    assert!(report.packets >= 2);
    assert!(matches!(ended, Err(Fault::Input(_))), "{ended:?}");
    let mut limited = args(&folder.capture(&[packet(9), packet(8), packet(7)]));
    limited.limit = Some(2);
    assert_eq!(replay(&limited).0.packets, 2);
}

#[test]
fn gap_of_years_replays_at_once() {
    // One wrong time in a capture would hang the replay.
    let folder = Folder::new("gap");
    let times = [Time(1), Time(1_700_000_000_000_000_000), Time(i64::MAX), Time(5)];
    let input = folder.capture_at(times.into_iter().map(|at| (at, packet(9))));
    let (report, _) = replay(&args(&input));
    assert_eq!(report.packets, 4);
    assert!(report.rows[0].1 <= 5 * CATCH_UP_MAX as u64, "{:?}", report.rows);
}

/// The time left would count the whole file although the replay stops long before its end.
#[test]
fn progress_follows_nearer_end() {
    let file = (10, Some(1_000));
    assert_eq!(nearer_limit(file, (10, Some(20))), (10, Some(20)));
    assert_eq!(nearer_limit(file, (10, Some(100_000))), file);
    assert_eq!(nearer_limit(file, (10, None)), file);
    assert_eq!(nearer_limit((10, None), (10, Some(20))), (10, Some(20)));
    assert_eq!(nearer_limit((10, None), (10, None)), (10, None));
}
