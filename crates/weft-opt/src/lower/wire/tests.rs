//! Parsers on both backends: what they find, what they reject, and what they do not read.

use std::sync::Arc;

use weft_core::abi::{Counters, Cx, Outcome, Slot, State, Verdict};
use weft_core::frame::build::{FrameBuilder, ethernet};
use weft_core::inputs::InputSet;
use weft_core::rng::Rng;
use weft_core::types::Type;
use weft_core::wire::*;
use weft_core::{Time, checksum};
use weft_ir::backend::{Backend as _, Program};
use weft_ir::interp::Interp;
use weft_ir::program::{ChainProgram, Event, Input, InputLocation};
use weft_ir::verify::{ParserExit, exits, verify_program};
use weft_jit::Jit;

use super::frames;

mod library;

const ROOT: ProtocolId = ProtocolId(ETHERNET);
const ETHERNET: u16 = 0;
const VLAN: u16 = 1;
const IPV4: u16 = 2;
const UDP: u16 = 3;
const VXLAN: u16 = 4;
const OPTIONS: u16 = 5;

fn bits(name: &str, n: u8) -> Field {
    let width = Width::Bits { n, little: false };
    let ty = if n == 1 { Type::Bool } else { Type::Uint(64) };
    Field {
        name: name.into(),
        width,
        ty,
        rule: Rule::Plain,
        check: None,
        optional: false,
        repeated: false,
        line: 1,
    }
}

fn bytes(name: &str, count: Expr, max: u32, ty: Type) -> Field {
    Field { width: Width::Bytes { count, max }, ty, ..bits(name, 8) }
}

fn protocol(name: &str, fields: Vec<Field>, (min, max): (u32, u32), next: Vec<Next>) -> Protocol {
    let items = (0..fields.len()).map(|at| Item::Field(FieldId(at as u16))).collect();
    Protocol {
        name: name.into(),
        fields,
        items,
        next,
        header_min: min,
        header_max: max,
        ..Protocol::default()
    }
}

fn next(condition: Expr, to: u16, inner: bool) -> Next {
    Next { condition, to: ProtocolId(to), inner, or_bytes: false, line: 1 }
}

fn binary(op: BinaryOp, a: Expr, b: Expr) -> Expr {
    Expr::Binary(op, Box::new(a), Box::new(b))
}

fn field(at: u16) -> Expr {
    Expr::Field(FieldId(at))
}

fn is(at: u16, n: u64) -> Expr {
    binary(BinaryOp::Eq, field(at), Expr::Int(n))
}

fn computed(mut field: Field, sum: Checksum) -> Field {
    field.rule = Rule::Computed(Expr::Checksum(sum));
    field
}

/// Some common protocols, in the order of the constants above.
fn protocols() -> Vec<Protocol> {
    let by_type = |at| vec![next(is(at, 0x8100), VLAN, false), next(is(at, 0x0800), IPV4, false)];
    let mac = |name| bytes(name, Expr::Int(6), 6, Type::Mac);
    let ethernet = protocol("ethernet", vec![mac("dst"), mac("src"), bits("type", 16)], (14, 14), by_type(2));
    let vlan = vec![bits("pcp", 3), bits("dei", 1), bits("vid", 12), bits("type", 16)];
    let vlan = protocol("vlan", vlan, (4, 4), by_type(3));
    let mut version = bits("version", 4);
    version.rule = Rule::Constant(4);
    let mut ihl = bits("ihl", 4);
    ihl.check = Some(binary(BinaryOp::Ge, field(1), Expr::Int(5)));
    let options = binary(BinaryOp::Mul, binary(BinaryOp::Sub, field(1), Expr::Int(5)), Expr::Int(4));
    let ipv4 = vec![
        version,
        ihl,
        bits("tos", 8),
        bits("total_length", 16),
        bits("id", 16),
        bits("flags", 3),
        bits("offset", 13),
        bits("ttl", 8),
        bits("protocol", 8),
        computed(bits("checksum", 16), Checksum::Header),
        bytes("src", Expr::Int(4), 4, Type::IpAddr),
        bytes("dst", Expr::Int(4), 4, Type::IpAddr),
        bytes("options", options, 40, Type::Bytes(None)),
    ];
    let is_udp = binary(BinaryOp::And, is(8, 17), is(6, 0));
    let ipv4 = Protocol {
        length: Some(field(3)),
        ..protocol("ipv4", ipv4, (20, 60), vec![next(is_udp, UDP, false), next(is(8, 250), OPTIONS, false)])
    };
    let udp = vec![
        bits("src_port", 16),
        bits("dst_port", 16),
        bits("length", 16),
        computed(bits("checksum", 16), Checksum::PseudoOrZero),
    ];
    let udp = Protocol {
        length: Some(field(2)),
        ..protocol("udp", udp, (8, 8), vec![next(is(1, 4789), VXLAN, false)])
    };
    let vxlan = vec![bits("flags", 8), bits("r1", 24), bits("vni", 24), bits("r2", 8)];
    let vxlan = protocol("vxlan", vxlan, (8, 8), vec![next(Expr::Int(1), ETHERNET, true)]);
    // An invented one: a flag, a number if it is set, then pairs until one is marked as the last.
    let mut extra = bits("extra", 16);
    extra.optional = true;
    let pairs = Field { width: Width::Rounds { max: 4 }, ty: Type::Bytes(None), ..bits("pairs", 8) };
    let mut repeated = [bits("more", 1), bits("value", 7), pairs];
    repeated.iter_mut().for_each(|field| field.repeated = true);
    let [more, value, pairs] = repeated;
    let options = Protocol {
        name: "options".into(),
        fields: vec![bits("has_extra", 8), extra, more, value, bits("tail", 8), pairs],
        items: vec![
            Item::Field(FieldId(0)),
            Item::When { condition: is(0, 1), items: vec![Item::Field(FieldId(1))] },
            Item::Repeat {
                name: "pairs".into(),
                field: FieldId(5),
                items: vec![Item::Field(FieldId(2)), Item::Field(FieldId(3))],
                until: Until::Condition(is(2, 0)),
                max: 4,
                line: 7,
            },
            Item::Field(FieldId(4)),
        ],
        header_min: 3,
        header_max: 8,
        ..Protocol::default()
    };
    vec![ethernet, vlan, ipv4, udp, vxlan, options]
}

/// A wanted field: level, protocol, field by name; "" for the layer.
type AskedField = (u8, u16, &'static str);

/// A parser on both backends.
struct Parsers {
    chain: Arc<ChainProgram>,
    /// Number of inputs of the test; those of the lowering follow.
    asked: usize,
    interpreted: Box<dyn Program>,
    compiled: Box<dyn Program>,
}

fn chain(protocols: &[Protocol], root: ProtocolId, asked: &[AskedField]) -> Parsers {
    let input = |(level, at, name): &AskedField| {
        let protocol = &protocols[usize::from(*at)];
        let fields = (!name.is_empty()).then(|| vec![protocol.field(name).unwrap()]);
        let layer = LayerRef { level: *level, protocols: vec![ProtocolId(*at)] };
        let ty = fields.as_ref().map_or(Type::Bool, |f| protocol.fields[usize::from(f[0].0)].ty);
        let place = InputLocation::Frame(FieldRef { layer, fields, last: false });
        Input { name: (*name).into(), ty, nullable: true, place, written: false }
    };
    let mut chain = ChainProgram::default();
    chain.request.inputs = asked.iter().map(input).collect();
    chain.frames = Some(frames(protocols, (&[root], false), &mut chain.request.inputs, &[], &[]).unwrap());
    verify_program(&chain).unwrap_or_else(|errors| panic!("{}", errors[0]));
    let (chain, state) = (Arc::new(chain), State::default());
    let interpreted = Interp.compile(&chain, Event::Parse, &state).unwrap();
    let compiled = Jit::new().unwrap().compile(&chain, Event::Parse, &state).unwrap();
    Parsers { chain, asked: asked.len(), interpreted, compiled }
}

/// The result of both backends for a frame: a number or bytes for each input, or the error.
fn parse(parsers: &Parsers, frame: &[u8]) -> Result<Vec<Option<Vec<u8>>>, String> {
    let found = run(parsers, &*parsers.interpreted, frame);
    assert_eq!(found, run(parsers, &*parsers.compiled, frame), "of {frame:02x?}");
    found
}

fn run(parsers: &Parsers, parser: &dyn Program, frame: &[u8]) -> Result<Vec<Option<Vec<u8>>>, String> {
    let chain = &parsers.chain;
    let state = State::default();
    let mut given = vec![Slot::default(); chain.request.inputs.len()];
    let (mut out, mut counters) = (Outcome::default(), vec![Counters::default(); 1]);
    let mut cx = Cx {
        given: &mut given,
        regions: [frame, &[], &[]],
        ..Cx::new(Time(0), &state, &mut [], &mut out, &mut counters)
    };
    parser.run(&mut cx, usize::MAX);
    let present = cx.present;
    let frames = chain.frames.as_ref().unwrap();
    if out.verdict == Verdict::Drop {
        let check = &frames.checks[out.line as usize];
        return Err(format!("{}: {}", check.protocol, check.what));
    }
    let found = |(at, slot): (usize, &Slot)| {
        present.contains(at).then(|| match chain.request.inputs[at].ty {
            Type::Mac | Type::IpAddr | Type::Bytes(_) => frame[slot.a as usize..][..slot.b as usize].to_vec(),
            _ => slot.a.to_string().into_bytes(),
        })
    };
    Ok(given[..parsers.asked].iter().enumerate().map(found).collect())
}

/// The result as text, for comparisons.
fn shown(found: Result<Vec<Option<Vec<u8>>>, String>) -> String {
    let part = |value: Option<Vec<u8>>| match value {
        None => "-".to_owned(),
        Some(bytes) => String::from_utf8(bytes.clone())
            .ok()
            .filter(|text| text.bytes().all(|b| b.is_ascii_digit()))
            .unwrap_or_else(|| bytes.iter().map(|b| format!("{b:02x}")).collect()),
    };
    match found {
        Ok(values) => values.into_iter().map(part).collect::<Vec<_>>().join(" "),
        Err(what) => what,
    }
}

/// An Ethernet frame between these tests' addresses.
fn link() -> FrameBuilder {
    ethernet().macs([0xaa; 6], [0xbb; 6])
}

/// An IPv4 header of these tests.
fn ip(link: FrameBuilder) -> FrameBuilder {
    link.ipv4([10, 0, 0, 1], [10, 0, 0, 2]).fragment(1, 0)
}

/// A UDP datagram in IPv4 behind these headers.
fn udp(link: FrameBuilder, dst: u16, payload: &[u8]) -> Vec<u8> {
    ip(link).udp(12345, dst).checksum(0).payload(payload).build()
}

const ASKED: &[AskedField] = &[
    (0, ETHERNET, "src"),
    (0, VLAN, "vid"),
    (0, IPV4, "ttl"),
    (0, IPV4, "dst"),
    (0, UDP, "dst_port"),
    (0, UDP, ""),
];

#[test]
fn parser_finds_fields() {
    // A parser off by one bit would make elements decide on something else.
    let chain = chain(&protocols(), ROOT, ASKED);
    let plain = udp(link(), 53, b"hi");
    assert_eq!(shown(parse(&chain, &plain)), "bbbbbbbbbbbb - 64 0a000002 53 1");
    let tagged = ip(link().vlan(0xf123)).options(&[1; 8]).udp(12345, 54).checksum(0).build();
    assert_eq!(shown(parse(&chain, &tagged)), "bbbbbbbbbbbb 291 64 0a000002 54 1");
    let other = link().ethertype(0x86dd).payload(b"whatever").build();
    assert_eq!(shown(parse(&chain, &other)), "bbbbbbbbbbbb - - - - -");
    let tcp = ip(link()).protocol(6).payload(b"not looked at").build();
    assert_eq!(shown(parse(&chain, &tcp)), "bbbbbbbbbbbb - 64 0a000002 - -");
}

#[test]
fn usual_frames_have_usual_fields() {
    // All frames would take the code for uncommon ones.
    let usual = |asked: &[AskedField]| -> Vec<usize> {
        chain(&protocols(), ROOT, asked).chain.frames.as_ref().unwrap().usual.iter().collect()
    };
    let of_tunnel: &[AskedField] = &[(0, VXLAN, "vni"), (0, VLAN, "vid"), (1, ETHERNET, "src")];
    assert_eq!(usual(ASKED), [0, 2, 3, 4, 5], "no tag");
    assert_eq!(usual(of_tunnel), [0, 2]);
    // An optional field.
    assert_eq!(usual(&[(0, OPTIONS, "has_extra"), (0, OPTIONS, "extra")]), [0]);
    // Alternative layers: their common fields.
    let mut siblings = protocols();
    let mut stream = Protocol { name: "stream".into(), ..siblings[usize::from(UDP)].clone() };
    stream.next.clear();
    let stream_at = siblings.len() as u16;
    siblings[usize::from(IPV4)].next.push(next(is(8, 6), stream_at, false));
    siblings.push(stream);
    let (either, at) =
        (LayerRef { level: 0, protocols: vec![ProtocolId(UDP), ProtocolId(stream_at)] }, FieldId(0));
    let column = |layer: LayerRef| {
        let fields = Some(vec![at; layer.protocols.len()]);
        let place = InputLocation::Frame(FieldRef { layer, fields, last: false });
        Input { name: "port".into(), ty: Type::Uint(64), nullable: true, place, written: false }
    };
    let of_one = LayerRef { level: 0, protocols: vec![ProtocolId(stream_at)] };
    let mut inputs = vec![column(either), column(of_one)];
    assert_eq!(frames(&siblings, (&[ROOT], false), &mut inputs, &[], &[]).unwrap().usual, InputSet::of(0_u8));
}

#[test]
fn usual_frames_have_their_own_exit() {
    // Common-case frames would be parsed by the general code, and the pass would test what is known.
    let chain = chain(&protocols(), ROOT, ASKED).chain;
    let frames = chain.frames.as_ref().unwrap();
    let has_usual = |exit: &ParserExit| exit.given().contains_all(frames.usual);
    let exits_of_usual: Vec<ParserExit> = exits(&frames.parser).into_iter().filter(has_usual).collect();
    assert_eq!(exits_of_usual.len(), 1, "Ethernet, IPv4 without options, UDP");
    assert_eq!(exits_of_usual[0].frame_min, 14 + 20 + 8);
}

#[test]
fn first_of_equal_layers_is_read() {
    // Otherwise the rules of an outer tag would apply to an inner one, which its sender may choose.
    let chain = chain(&protocols(), ROOT, ASKED);
    let twice = udp(link().vlan(7).vlan(8), 53, b"");
    assert_eq!(shown(parse(&chain, &twice)), "bbbbbbbbbbbb 7 64 0a000002 53 1");
    let deep = (0..=LAYERS_MAX).fold(link(), |deep, _| deep.vlan(1)).ethertype(0x0800).build();
    // If the excess layer counts as payload, the fields before it are valid.
    let mut lenient = protocols();
    lenient[usize::from(VLAN)].malformed_is_payload = true;
    let lenient = self::chain(&lenient, ROOT, ASKED);
    assert_eq!(shown(parse(&lenient, &deep)), "bbbbbbbbbbbb 1 - - - -");
    assert_eq!(shown(parse(&chain, &deep)), "vlan: more than 32 layers in a row");
}

#[test]
fn tunnel_payload_is_another_level() {
    // Otherwise an outer address would count as that of the host behind the tunnel.
    let asked = &[
        (0, IPV4, "ttl"),
        (0, UDP, "dst_port"),
        (1, ETHERNET, "dst"),
        (1, UDP, "dst_port"),
        (0, VXLAN, "vni"),
    ];
    let chain = chain(&protocols(), ROOT, asked);
    let tunnel = [&[8, 0, 0, 0, 0, 0, 9, 0][..], &udp(link(), 80, b"x")].concat();
    let frame = udp(link(), 4789, &tunnel);
    assert_eq!(shown(parse(&chain, &frame)), "64 4789 aaaaaaaaaaaa 80 9");
    let plain = udp(link(), 53, b"x");
    assert_eq!(shown(parse(&chain, &plain)), "64 53 - - -");
}

#[test]
fn malformed_frame_names_protocol_rule() {
    // Later elements would decide on bytes that are not there, or on a header with false lengths.
    let chain = chain(&protocols(), ROOT, ASKED);
    let good = udp(link(), 53, b"hi");
    let changed = |at: usize, to: u8| {
        let mut bad = good.clone();
        bad[at] = to;
        shown(parse(&chain, &bad))
    };
    assert_eq!(shown(parse(&chain, &good[..10])), "ethernet: truncated");
    assert_eq!(shown(parse(&chain, &good[..30])), "ipv4: truncated");
    assert_eq!(changed(14, 0x65), "ipv4: version is not 4");
    assert_eq!(changed(14, 0x44), "ipv4: ihl does not pass its CHECK");
    assert_eq!(changed(17, 200), "ipv4: a length that is beyond the end");
    assert_eq!(changed(17, 10), "ipv4: a length that is shorter than the header");
    assert_eq!(changed(22, 63), "ipv4: checksum does not hold");
    assert_eq!(changed(39, 4), "udp: a length that is shorter than the header");
    assert_eq!(changed(20, 0x01), "ipv4: checksum does not hold");
}

#[test]
fn header_sum_of_all_ones_is_valid() {
    // A damaged header would pass as a good one, or a missing header as one.
    let sum = computed(bits("sum", 16), Checksum::Header);
    let summed = protocol("summed", vec![bits("a", 32), sum, bits("b", 16)], (8, 8), Vec::new());
    let chain = chain(&[summed], ProtocolId(0), &[(0, 0, "a"), (0, 0, "b")]);
    let mut rng = Rng::from_seed(1);
    for nth in 0..2000_u64 {
        let mut header = match nth {
            0 => [0; 8],
            1 => [0xff; 8],
            _ => [rng.bits(), rng.bits() & rng.bits() & rng.bits()][nth as usize % 2].to_be_bytes(),
        };
        if nth % 3 == 2 {
            header[4..6].fill(0);
            let right = !checksum::fold(checksum::sum(&header));
            header[4..6].copy_from_slice(&right.to_be_bytes());
        }
        header[4] ^= u8::from(nth % 9 == 5);
        let holds = checksum::fold(checksum::sum(&header)) == 0xffff;
        assert_eq!(parse(&chain, &header).is_ok(), holds, "{nth}: {header:02x?}");
    }
}

#[test]
fn parser_reads_only_needed_fields() {
    // Otherwise a switch would drop frames that only a router may reject.
    let chain = chain(&protocols(), ROOT, &[(0, ETHERNET, "dst")]);
    assert_eq!(
        shown(parse(&chain, &link().ethertype(0x0800).payload(b"no header at all").build())),
        "aaaaaaaaaaaa"
    );
}

#[test]
fn optional_and_repeated_parts_parse() {
    // Everything after such a part would be read at the wrong offset.
    let asked = &[(0, OPTIONS, "extra"), (0, OPTIONS, "value"), (0, OPTIONS, "tail"), (0, OPTIONS, "pairs")];
    let chain = chain(&protocols(), ROOT, asked);
    let of = |header: &[u8]| shown(parse(&chain, &ip(link()).protocol(250).payload(header).build()));
    assert_eq!(of(&[0, 0x85, 0x86, 0x07, 99]), "- 5 99 858607");
    assert_eq!(of(&[1, 0x12, 0x34, 0x05, 98]), "4660 5 98 05");
    assert_eq!(of(&[0, 0x81, 0x81, 0x81, 0x81, 0x01, 9]), "options: more than 4 of pairs");
    assert_eq!(of(&[0, 0x81, 0x81]), "options: truncated");
}

/// The result of a parser, computed by decoding the whole frame.
fn by_reading(
    protocols: &[Protocol],
    root: ProtocolId,
    asked: &[AskedField],
    frame: &[u8],
) -> Result<Vec<Option<Vec<u8>>>, String> {
    let reading = read(protocols, &[root], frame);
    if let Some(wrong) = reading.malformed {
        return Err(format!("{}: {}", protocols[usize::from(wrong.protocol.0)].name, wrong.what));
    }
    let find = |(level, at, name): &AskedField| {
        let layer = reading.layers.iter().find(|l| (l.level, l.protocol) == (*level, ProtocolId(*at)))?;
        let Some(id) = protocols[usize::from(*at)].field(name) else { return Some(b"1".to_vec()) };
        let found = layer.fields.iter().find(|found| found.field == id)?;
        Some(match &found.value {
            FieldValue::Number(number) => number.to_string().into_bytes(),
            FieldValue::Bytes(bytes) => bytes.clone(),
        })
    };
    Ok(asked.iter().map(find).collect())
}

/// All layers, so that the parser reads all of them.
const ALL: &[AskedField] = &[
    (0, ETHERNET, "dst"),
    (0, VLAN, "vid"),
    (0, VLAN, "pcp"),
    (0, IPV4, "options"),
    (0, IPV4, "offset"),
    (0, UDP, "checksum"),
    (0, VXLAN, "vni"),
    (0, OPTIONS, "extra"),
    (0, OPTIONS, "value"),
    (0, OPTIONS, "tail"),
    (0, OPTIONS, "pairs"),
    (1, ETHERNET, ""),
    (1, VLAN, "vid"),
    (1, IPV4, "ttl"),
    (1, UDP, "src_port"),
    (1, VXLAN, ""),
    (1, OPTIONS, "tail"),
];

#[test]
fn parsers_match_full_decoding() {
    // Random frames, complete, changed or truncated: the parser protects elements from all senders of frames.
    let protocols = protocols();
    let parsers = chain(&protocols, ROOT, ALL);
    let mut met = [0; 3];
    for seed in 0..2_000 {
        let rng = &mut Rng::from_seed(seed);
        let Some(mut frame) = generate::frame(&protocols, ROOT, rng) else { continue };
        for change in 0..3 {
            let found = parse(&parsers, &frame);
            assert_eq!(
                shown(found.clone()),
                shown(by_reading(&protocols, ROOT, ALL, &frame)),
                "seed {seed}: {frame:02x?}"
            );
            met[change.min(1)] += usize::from(found.is_ok());
            met[2] += usize::from(found.is_err());
            let at = rng.below(frame.len());
            frame[at] = rng.bits() as u8;
            if rng.below(4) == 0 {
                frame.truncate(at);
            }
            if frame.is_empty() {
                break;
            }
        }
    }
    assert!(met.iter().all(|n| *n > 400), "well-formed, changed and still so, malformed: {met:?}");
}

#[test]
fn built_frames_parse_back() {
    // A definition that does not round-trip would send malformed frames.
    let protocols = protocols();
    let mut n_fields = 0;
    for seed in 0..2_000 {
        let (headers, payload) = generate::headers(&protocols, ROOT, &mut Rng::from_seed(seed));
        let Ok(frame) = build(&protocols, &headers, &payload) else { continue };
        let reading = read(&protocols, &[ROOT], &frame);
        let wrong = reading.malformed;
        for (header, layer) in headers.iter().zip(&reading.layers) {
            assert_eq!(header.protocol, layer.protocol, "seed {seed}");
            for (id, value) in &header.values {
                let found = layer.fields.iter().find(|found| found.field == *id);
                // Fields that depend on an unset field are left out.
                if let Some(found) = found {
                    assert_eq!(
                        found.value,
                        *value,
                        "seed {seed}: {}",
                        protocols[usize::from(layer.protocol.0)].name
                    );
                    n_fields += 1;
                }
            }
        }
        assert!(wrong.is_none() || reading.layers.len() < headers.len(), "seed {seed}: {wrong:?}");
    }
    assert!(n_fields > 5_000, "{n_fields} fields were compared");
}

/// The stores of a chain that changes its first wanted field, as text.
fn stores(asked: &[AskedField]) -> String {
    let protocols = protocols();
    let mut inputs = chain(&protocols, ROOT, asked).chain.request.inputs.clone();
    inputs[0].written = true;
    let frames = match frames(&protocols, (&[ROOT], false), &mut inputs, &[], &[]) {
        Ok(frames) => frames,
        Err(why) => return why,
    };
    let store = frames.field_writes[0].as_ref().unwrap();
    let sums = store.sums.iter().map(|sum| {
        let kinds = [(sum.pseudo, " pseudo"), (sum.zero_is_none, " or zero")];
        let kinds: String = kinds.iter().filter(|(is_set, _)| *is_set).map(|(_, name)| *name).collect();
        let covered = (0..inputs.len()).filter(|at| sum.covers.contains(*at));
        let covered: String = covered.map(|at| format!(" over {}", inputs[at].name)).collect();
        format!(", {}{kinds}{covered}", inputs[usize::from(sum.input)].name)
    });
    format!("{:?}{}", store.at, sums.collect::<String>())
}

#[test]
fn changes_update_checksums() {
    // Receivers drop a frame with a wrong checksum.
    let bits = |bytes: u8, shift: u8, bits: u8| {
        format!("Bits {{ bytes: {bytes}, shift: {shift}, bits: {bits}, endian: Big }}")
    };
    assert_eq!(stores(&[(0, IPV4, "src")]), "Bytes, ipv4.checksum, udp.checksum pseudo or zero");
    assert_eq!(stores(&[(0, IPV4, "ttl")]), bits(1, 0, 8) + ", ipv4.checksum");
    assert_eq!(stores(&[(0, IPV4, "offset")]), bits(2, 0, 13) + ", ipv4.checksum");
    assert_eq!(stores(&[(0, UDP, "dst_port")]), bits(2, 0, 16) + ", udp.checksum or zero");
    assert_eq!(stores(&[(0, VLAN, "vid")]), bits(2, 0, 12));
    assert_eq!(stores(&[(0, VLAN, "pcp")]), bits(1, 5, 3));
    let inner = bits(1, 0, 8) + ", udp.checksum or zero over ipv4.checksum, ipv4.checksum";
    assert_eq!(stores(&[(1, IPV4, "ttl")]), inner);
}
