//! Pushed headers equal the headers that the definitions build around the same payload.

use weft_core::checksum::{fold, sum};
use weft_core::rng::Rng;
use weft_core::schema::Schema;
use weft_core::types::Type;
use weft_core::wire::header_change::{HeaderChange, Stack, StackError, StackValue, begins, stack};
use weft_core::wire::{FieldId, FieldValue, Header, Protocol, ProtocolId, build, generate, read};
use weft_lang::Resolver;
use weft_lang::diagnostic::{Diagnostic, RenderOptions, code, render_all};
use weft_lang::resolve::{SchemaFault, SchemaSource};
use weft_opt::lower::{LowerOptions, lower};

use crate::schema::{Disk, library};
use crate::wireshark::{STACKS, plain};

fn protocols() -> Vec<Protocol> {
    let all = library().join("protocols/all.weft").display().to_string();
    weft_lang::check(&all, &mut Disk).0.expect("the library is right").protocols
}

/// Turns some of the fields into values per frame, except those that decide the header's structure.
fn given(
    protocols: &[Protocol],
    headers: &mut [Header],
    carried: ProtocolId,
    choices: &mut Rng,
) -> (Vec<(usize, FieldId)>, Vec<FieldValue>) {
    let (mut given, mut values) = (Vec::new(), Vec::new());
    for at in 0..headers.len() {
        for (field, value) in headers[at].values.clone() {
            if choices.below(2) == 0 {
                continue;
            }
            let value = headers[at].values.remove(&field).unwrap_or(value);
            given.push((at, field));
            match stack(protocols, headers, &given, Some(carried)) {
                Ok(_) => values.push(value),
                Err(StackError::NotConstant(..) | StackError::Build(_)) => {
                    given.pop();
                    headers[at].values.insert(field, value);
                }
                Err(error) => panic!("{error:?} in {headers:?}"),
            }
        }
    }
    (given, values)
}

fn write(stack: &Stack, values: &[FieldValue], frame: &[u8], partial: Option<(usize, usize)>) -> Vec<u8> {
    assert!(begins(frame, stack.begins));
    let mut whole = [vec![0; stack.bytes.len()], frame.to_vec()].concat();
    let values = values.iter().map(|value| match value {
        FieldValue::Number(number) => StackValue::Number(*number),
        FieldValue::Bytes(bytes) => StackValue::Bytes(bytes),
    });
    stack.write(&mut whole, values, partial, None).expect("the header fits");
    whole
}

#[test]
fn pushed_header_equals_built_one() {
    // Frames sent into a tunnel would be unreadable for another implementation at its end.
    let protocols = protocols();
    let id = |name: &str| {
        protocols.iter().position(|protocol| protocol.name == name).expect("the library has this protocol")
    };
    let (mut n_pushed, mut n_given, mut n_sums) = (0, 0, 0);
    for names in STACKS {
        let ids: Vec<usize> = names.iter().map(|name| id(name)).collect();
        for seed in 0..40 {
            let choices = &mut Rng::from_seed(seed);
            let header = |at: &usize| {
                let mut header = generate::header(&protocols[*at], ProtocolId(*at as u16), choices);
                plain(&protocols[*at], &mut header);
                header
            };
            let headers: Vec<Header> = ids.iter().map(header).collect();
            let payload: Vec<u8> = (0..choices.below(40)).map(|_| choices.bits() as u8).collect();
            let built = build(&protocols, &headers, &payload).expect("the frame can be built");
            for at in 1..headers.len() {
                let inner =
                    build(&protocols, &headers[at..], &payload).expect("the inner frame can be built");
                // An upper header may need a lower one for its pseudo header, or set a field in it.
                let sets = !protocols[ids[at]].encap.is_empty();
                if sets || !built.ends_with(&inner) {
                    continue;
                }
                let (mut outer, carried) = (headers[..at].to_vec(), headers[at].protocol);
                let (given, values) = given(&protocols, &mut outer, carried, choices);
                let stack = stack(&protocols, &outer, &given, Some(carried)).expect("the stack is valid");
                assert_eq!(write(&stack, &values, &inner, None), built, "{names:?} at {at}, seed {seed}");
                (n_pushed, n_given, n_sums) =
                    (n_pushed + 1, n_given + given.len(), n_sums + stack.sums.len());
                if let Some((frame, place)) = unfinished(&protocols, &inner) {
                    let start = stack.bytes.len();
                    let partial = Some((start + place.0, start + place.1));
                    let whole = write(&stack, &values, &frame, partial);
                    assert_eq!(whole[..start], built[..start], "{names:?} at {at}, seed {seed}: unfinished");
                }
            }
        }
    }
    assert!(n_pushed > 500 && n_given > 1000 && n_sums > 500, "{n_pushed} {n_given} {n_sums}");
}

/// A frame whose TCP or UDP checksum a device has yet to complete: the start of its coverage, and the field.
fn unfinished(protocols: &[Protocol], frame: &[u8]) -> Option<(Vec<u8>, (usize, usize))> {
    let name = |id: ProtocolId| protocols[usize::from(id.0)].name.as_str();
    let root = protocols.iter().position(|protocol| protocol.name == "ethernet")?;
    let reading = read(protocols, &[ProtocolId(root as u16)], frame);
    let layer = reading.layers.iter().rev().find(|layer| matches!(name(layer.protocol), "tcp" | "udp"))?;
    if layer.end != frame.len() {
        return None;
    }
    let field = layer.start + if name(layer.protocol) == "tcp" { 16 } else { 6 };
    let mut frame = frame.to_vec();
    let whole = u16::from_be_bytes([frame[field], frame[field + 1]]);
    if whole == 0 {
        return None;
    }
    frame[field..field + 2].fill(0);
    let rest = fold(sum(&frame[layer.start..]));
    let pseudo = fold(u64::from(!whole) + u64::from(!rest));
    frame[field..field + 2].copy_from_slice(&pseudo.to_be_bytes());
    Some((frame, (layer.start, field)))
}

/// The program of a test, which may import the library.
struct Text(String);

const ROOT: &str = "root.weft";

impl Resolver for Text {
    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String> {
        if path == ROOT { Ok(self.0.clone()) } else { Disk.text(path, from) }
    }

    fn schema(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault> {
        Disk.schema(source, from)
    }

    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        if path == ROOT { path.to_owned() } else { Disk.name(path, from) }
    }
}

/// The diagnostics of a handler, or how often it changes the headers of a frame.
fn wrong(layer: &str, body: &str) -> Vec<String> {
    wrong_beside("", layer, body)
}

/// As [`wrong`], with protocols of its own.
fn wrong_beside(protocols: &str, layer: &str, body: &str) -> Vec<String> {
    let text = format!(
        "IMPORT 'library/protocols/all.weft';\n{protocols}CREATE PORT a ON memory;\n\
         CREATE ELEMENT e ON {layer} AS ON PACKET {body} END;\nCREATE CHAIN c ON PORT a AS e; END;\n"
    );
    let (network, diagnostics, _) = weft_lang::check(ROOT, &mut Text(text));
    let told = |all: &[Diagnostic]| {
        all.iter().filter(|d| d.is_error()).map(|d| d.message.clone()).collect::<Vec<_>>()
    };
    let Some(network) = network else { return told(&diagnostics) };
    let lowered = lower(&network, 0, &LowerOptions { workers: 1 });
    match lowered {
        Ok(chain) => {
            let n =
                chain.header_changes.iter().filter(|decl| !matches!(decl.what, HeaderChange::Cut)).count();
            vec![format!("{n} changes")]
        }
        Err(diagnostics) => {
            assert!(diagnostics.iter().all(|d| d.code == code::HEADER_CHANGE_MISMATCH), "{diagnostics:?}");
            told(&diagnostics)
        }
    }
}

/// The diagnostics of a chain of two elements on IP, as people read them.
fn told(first: &str, second: &str) -> String {
    let text = format!(
        "IMPORT 'library/protocols/all.weft';\nCREATE PORT a ON memory;\n\
         CREATE ELEMENT one ON ip AS ON PACKET {first} END;\n\
         CREATE ELEMENT two ON ip AS ON PACKET {second} END;\nCREATE CHAIN c ON PORT a AS one -> two; END;\n"
    );
    let (network, _, sources) = weft_lang::check(ROOT, &mut Text(text));
    match lower(&network.expect("the program is right"), 0, &LowerOptions { workers: 1 }) {
        Ok(_) => String::new(),
        Err(diagnostics) => render_all(&diagnostics, &sources, RenderOptions::default()),
    }
}

#[test]
fn unsettable_field_suggests_name() {
    // The whole chain was highlighted, and the suggested name could not be set either.
    let check = |first: &str, second: &str, wanted: &[&str]| {
        let told = told(first, second);
        assert!(wanted.iter().all(|wanted| told.contains(wanted)), "{told}");
    };
    check(
        "DROP;",
        "IF transport.dst_port = 80 THEN DROP; END IF; SET l4.dst_port = 8080;",
        &[
            "`two` also knows it as `transport.dst_port`",
            "--> root.weft:4:",
            "------------------ `transport.dst_port` here",
            "^^^^^^^^^^^^^^^^^^^^^^^ set here",
            "= help: write `l4.dst_port` in all of the element\n",
        ],
    );
    check(
        "DROP;",
        "SET transport.dst_port = 80;",
        &[
            "the CRC32c of `sctp` covers it",
            "^^^^^^ set here",
            "write `l4.dst_port` in all of the element, which leaves `sctp` as it is",
        ],
    );
    check(
        "DROP;",
        "SET sctp.dst_port = 80;",
        &["= by no name can it be set: the CRC32c of `sctp` covers it"],
    );
    check("DROP;", "SET ip.dscp = 3;", &["write `ipv4.dscp` and `ipv6.dscp` in all of the element\n"]);
    let asks = "IF transport.dst_port = 80 THEN DROP; END IF;";
    assert_eq!(told(asks, "SET l4.dst_port = 8080;"), "", "others may know it by another name");
}

/// One misfit argument of a stage was reported at each PUSH, and again by consequences.
#[test]
fn unfit_value_is_reported_once() {
    let told = |stages: &str| {
        let text = format!(
            "IMPORT 'library/elements/router.weft';\nIMPORT 'library/elements/vxlan_gateway.weft';\n\
             CREATE PORT a ON memory;\nCREATE PORT b ON memory;\nCREATE CHAIN c ON PORT a, b AS {stages}; END;\n"
        );
        let (network, _, sources) = weft_lang::check(ROOT, &mut Text(text));
        let lowered = lower(&network.expect("the program is right"), 0, &LowerOptions { workers: 1 });
        let diagnostics = lowered.map(|_| ()).expect_err("a value does not fit");
        render_all(&diagnostics, &sources, RenderOptions::default())
    };
    let id = told(
        "vxlan_gateway (inside = 'a', outside = 'b', vni = 77777777, own_ip = '192.0.2.1', peer = '192.0.2.2', \
         own_mac = '02:00:00:00:00:01', next_mac = '02:00:00:00:00:02')",
    );
    assert!(id.contains("77777777 does not fit `vxlan.vni`, which has 24 bits\n"), "{id}");
    assert!(id.contains("16777215 is the most that it can be; it is made of `vni`"), "{id}");
    let told = told("router (own_ip6 = '10.0.0.1') -> router (own_ip6 = '10.0.0.2') AS second");
    assert_eq!(told.matches("error[").count(), 2, "one for each stage: {told}");
    assert_eq!(told.matches("one of IPv6 has 16; it is made of `own_ip6`").count(), 2, "{told}");
    assert!(told.contains("-------- for this stage"), "{told}");
}

#[test]
fn length_fields_follow_payload() {
    // Frames of some lengths would be malformed for their readers.
    let refused = ["`shim.w` follows from the length of a frame"];
    let sums = ["payload_bytes", "header_bytes + payload_bytes - 2", "7 + bytes_after(w)"];
    let others = [
        "payload_bytes / 1000",
        "payload_bytes * 2",
        "payload_bytes + payload_bytes",
        "CASE WHEN payload_bytes > 9000 THEN 1 ELSE 0 END",
        "3 - payload_bytes",
        "payload_bytes - payload_bytes",
    ];
    let all = sums.map(|e| (e, &["1 changes"])).into_iter().chain(others.map(|e| (e, &refused)));
    for (expr, wanted) in all {
        let shim = format!(
            "CREATE PROTOCOL shim (w bit(16) COMPUTED ({expr}), type bit(16), PAYLOAD bytes)\n\
             BIND ethernet WHERE type = 0x88B5;\n"
        );
        assert_eq!(wrong_beside(&shim, "packet", "PUSH shim;"), wanted, "{expr}");
    }
}

#[test]
fn impossible_headers_are_refused() {
    // A malformed frame would leave, or an element would read another header than it names.
    let check = |layer: &str, body: &str, wanted: &[&str]| assert_eq!(wrong(layer, body), wanted, "{body}");
    check("packet", "PUSH vlan (id = 7);", &["1 changes"]);
    check("packet", "PUSH vlan (id = 7), vlan (id = 8);", &["1 changes"]);
    check("packet", "POP TO inner.ethernet; PUSH vlan (id = 7);", &["2 changes"]);
    check("vxlan", "POP;", &["1 changes"]);
    check("ip", "POP TO ip; PUSH ethernet;", &["2 changes"]);
    check("packet", "PUSH ethernet, ipv4, gre, ethernet;", &["`ethernet` does not carry `ethernet`"]);
    check(
        "packet",
        "PUSH vxlan (vni = 7);",
        &["a frame cannot begin with `vxlan`, nor is it put behind `ethernet`"],
    );
    check("packet", "PUSH ethernet, ipv4, vxlan (vni = 7);", &["`ipv4` cannot carry `vxlan`"]);
    check("packet", "PUSH ethernet, ipv4, udp, gtpu;", &["`gtpu` does not carry `ethernet`"]);
    check("packet", "PUSH ethernet, ip;", &["`ip` is a union of several protocols"]);
    check(
        "packet",
        "PUSH ethernet, ipv4 (src = '::1'), udp, vxlan;",
        &["16 bytes for `ipv4.src`, which has 4"],
    );
    check("ip", "POP TO ip;", &["the frame may begin with `ipv4` here, and is to begin with `ethernet`"]);
    check(
        "ip",
        "IF ip.ttl = 1 THEN POP TO ip; END IF; PUSH ethernet;",
        &["`ethernet` does not carry `ethernet`"],
    );
    check(
        "ip",
        "LET t = ip.ttl; POP TO ip; PUSH ethernet, ipv4, icmp (type = t);",
        &["`icmp.type` decides what else the header has"],
    );
    check(
        "ethernet",
        "POP TO ip; PUSH ethernet (dst = ethernet.src, src = ethernet.dst);",
        &["`ethernet.src` is read after a header change", "`ethernet.dst` is read after a header change"],
    );
    check("packet", "CUT TO 60; SET ip.ttl = 3;", &["a field of the frame is set after a header change"]);
    check(
        "packet",
        "IF size > '1 KB' THEN CUT TO 60; END IF; LET x = size; MARK 1;",
        &["`size` is read after a header change"],
    );
    check(
        "packet",
        "IF size > '1 KB' THEN CUT TO 60; DROP; END IF; LET x = size; IF x > '1 KB' THEN DROP; END IF;",
        &["0 changes"],
    );
    check("packet", "PUSH vlan; POP vlan;", &["POP must be the first header change in a handler"]);
    check("packet", "POP mpls;", &["`mpls` cannot be taken out alone"]);
    check("packet", "POP ipv4;", &["`ipv4` cannot be taken out alone"]);
    check("packet", "POP;", &["POP removes the element's own layer, but this element is ON packet"]);
    check("ip", "POP;", &["what stands behind `ipv4` or `ipv6` is not the packet that a tunnel carries"]);
    check("packet", "POP ip.src;", &["`ip.src` is a field"]);
    check(
        "ip",
        "POP TO l4; PUSH ethernet, ipv4;",
        &["the frame may begin with `tcp` or `udp` here, which these headers say differently"],
    );
    check("ip", "LET kind = ip.protocol; POP TO l4; PUSH ethernet, ipv4 (protocol = kind);", &["2 changes"]);
    check("packet", "PUSH vlan (id = 5000);", &["5000 is too large for `vlan.id`"]);
    check("packet", "PUSH vlan (idd = 3);", &["`vlan` has no field `idd`"]);
    check("packet", "PUSH vlan (id = 3, id = 4);", &["`id` is set twice"]);
    check("ip", "POP TO ip; PUSH ethernet, ipv4 (ihl = 3), udp, gtpu;", &["`ipv4.ihl` cannot be set"]);
    check("ip", "POP TO ip; PUSH ethernet, ipv4, udp (checksum = 0), gtpu;", &["2 changes"]);
    check(
        "ip",
        "POP TO ip; PUSH ethernet, ipv4, udp (checksum = 1), gtpu;",
        &["`udp.checksum` cannot be set"],
    );
    assert_eq!(protocols()[0].fields[0].ty, Type::Mac);
}
