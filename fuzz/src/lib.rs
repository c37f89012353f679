//! The bodies of the fuzz targets.
//!
//! With a nightly toolchain and cargo-fuzz: `cargo +nightly fuzz run --features libfuzzer -a h2_frames`. With stable
//! Rust,
//! `cargo test -p weft-fuzz` runs every body on seeds and random mutations of them.
//!
//! A body panics if an invariant is violated. It may refuse any input.

use std::collections::BTreeSet;
use std::path::Path;
use std::rc::Rc;
use std::sync::{Arc, LazyLock};

use weft_core::abi::Slot;
use weft_core::frame::{Checksum, Frame, Gso, GsoKind, Pool, PoolConfig};
use weft_core::hash::HashKey;
use weft_core::inputs::InputSet;
use weft_core::ip::IpPacket;
use weft_core::list::{CELL_BYTES, HEAD_BYTES};
use weft_core::native::{
    Arg, Call, Ended, Info, NATIVE_BYTES_MAX, NATIVES, Native, NativeDecl, Param, Prepared,
};
use weft_core::schema::{Field, FieldKind, Message, Presence, Schema};
use weft_core::{Interval, Time, Type, Value};
use weft_engine::packet::plan::{ChainOn, Outlet, PacketChain, PacketPlan};
use weft_engine::packet::stats::DropReason;
use weft_engine::packet::{FRAGMENTS_WAITING_MAX, PacketConfig, PacketEngine};
use weft_engine::state::StateStore;
use weft_import::{FAULTS_MAX, Format, Hook, ROWS_MAX, import, insert};
use weft_ir::interp::Interp;
use weft_ir::program::ChainProgram;
use weft_ir::text::{parse_program, write_program};
use weft_ir::verify::verify_program;
use weft_lang::check::fold::fold_at;
use weft_lang::check::table_statement::{Measure, StatementKind, statements};
use weft_lang::resolve::{SchemaFault, SchemaSource};
use weft_lang::source::SourceMap;
use weft_lang::{Resolver, format::format, lexer, parser};
use weft_native::{ENTROPY_BYTES, Secrets, prepare};
use weft_opt::lower::{LowerOptions, lower};
use weft_proto::capture::{LinkType, Packet, ReadError, Reader, Style, Writer};
use weft_proto::session::grpc::protobuf::{EditValue, ListsBuilder, SLOTS_MAX, Walk, WalkBuilder};
use weft_proto::session::grpc::{Deframer, header};
use weft_proto::session::http2::hpack::{BlockDecoder, BlockEncoder};
use weft_proto::session::http2::{Config, Connection, ErrorCode, Event, Headers};
use weft_schema::{Fault, ImportLookup, Source, compile, from_descriptors};

#[path = "../../crates/weft-control/library_folder.rs"]
mod library_folder;

/// Maximum size of a program; the front end's own limit is far above.
const PROGRAM_BYTES_MAX: usize = 64 << 10;

/// Lexer, parser and formatter: any text gives a tree and diagnostics. Formatting a correct program keeps its tree, and
/// is idempotent.
pub fn lang_parse(data: &[u8]) {
    let Some(text) = program(data) else { return };
    let mut sources = SourceMap::new();
    let Ok(file) = sources.add("fuzz.weft", text) else { return };
    let lexed = lexer::lex(file, text);
    assert!(lexed.comments.iter().all(|c| text.get(c.span.range()).is_some()), "a span cuts a character");
    let (tree, diagnostics) = parser::parse(&sources, file);
    let Some(once) = format(&sources, file) else {
        assert!(!diagnostics.is_empty(), "what cannot be formatted has a fault");
        return;
    };
    let mut again = SourceMap::new();
    let Ok(again_file) = again.add("fuzz.weft", once.as_str()) else { return };
    let (tree_again, faults) = parser::parse(&again, again_file);
    assert!(faults.is_empty(), "formatting broke it: {faults:?}\n{once}");
    // This form does not show spans, which may differ.
    assert_eq!(format!("{tree:#?}"), format!("{tree_again:#?}"), "formatting changed the tree");
    assert_eq!(format(&again, again_file).as_deref(), Some(once.as_str()), "formatting is not idempotent");
}

/// The whole front end on one file with missing imports.
pub fn lang_check(data: &[u8]) {
    struct SingleFile<'t>(&'t str);
    impl Resolver for SingleFile<'_> {
        fn text(&mut self, _path: &str, from: Option<&str>) -> Result<String, String> {
            match from {
                None => Ok(self.0.to_owned()),
                Some(_) => Err("there is no such file".to_owned()),
            }
        }

        fn schema(&mut self, _: &SchemaSource<'_>, _from: Option<&str>) -> Result<Schema, SchemaFault> {
            Ok(schema())
        }
    }
    let Some(text) = program(data) else { return };
    let (network, diagnostics, _) = weft_lang::check("fuzz.weft", &mut SingleFile(text));
    assert!(network.is_some() || !diagnostics.is_empty(), "a refusal gives its reason");
}

/// A connection with arbitrary input in arbitrary chunks, as a server or as a client. Its memory stays bounded, and an
/// owner that responds to its events never makes it panic.
pub fn h2_frames(data: &[u8]) {
    let Some((&mode, data)) = data.split_first() else { return };
    let Some((&step, data)) = data.split_first() else { return };
    let (mut now, is_server) = (Time(0), mode & 1 == 0);
    let config = if is_server { Config::server() } else { Config::client() };
    let mut h2 = Connection::new(config, now);
    let mut open = BTreeSet::new();
    if !is_server && let Some(stream) = h2.open() {
        let _ = h2.send_headers(stream, &request(), mode & 2 != 0);
        open.insert(stream);
    }
    let mut input: Vec<u8> = Vec::new();
    if is_server && mode & 4 != 0 {
        // Without this, most inputs would end at the preface.
        input.extend_from_slice(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0");
    } else if !is_server && mode & 4 != 0 {
        input.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0");
    }
    if mode & 128 != 0 {
        input.extend_from_slice(b"\0\0\0\x04\x01\0\0\0\0");
    }
    for piece in data.chunks(usize::from(step).max(1)) {
        input.extend_from_slice(piece);
        // Some peers acknowledge our settings and are then slow enough for the other timers to expire.
        let pace_ms = if mode & 128 == 0 { 1 } else { 5_000 };
        now += Interval::from_millis(i64::from(mode >> 4) * pace_ms);
        let mut taken = 0;
        loop {
            match h2.handle_input(now, &input[taken..]) {
                Ok((0, None)) => break,
                Ok((n, event)) => {
                    taken += n;
                    let Some(event) = event else { continue };
                    if let Some(act) = owned(&event, &mut open) {
                        answer(&mut h2, act, mode);
                    }
                }
                Err(_) => {
                    assert!(h2.is_closed());
                    return;
                }
            }
        }
        input.drain(..taken);
        assert!(input.len() <= (16 << 10) + 9 + 24, "a whole frame was not taken");
        let written = h2.output().len().min(usize::from(mode) * 64);
        h2.advance_output(written);
        if h2.poll_timeout().is_some_and(|at| at <= now) && h2.handle_timeout(now).is_err() {
            return;
        }
        while h2.poll_event().is_some() {}
    }
    h2.go_away(now, ErrorCode::NoError);
}

/// An owner's response to an event. It never releases the data of stream 5.
enum OwnerAction {
    Respond(u32),
    Release(u32, u32),
}

fn owned(event: &Event<'_>, open: &mut BTreeSet<u32>) -> Option<OwnerAction> {
    match event {
        Event::Headers { stream, .. } => open.insert(*stream).then_some(OwnerAction::Respond(*stream)),
        Event::Data { stream, flow_len, .. } if *stream != 5 => {
            Some(OwnerAction::Release(*stream, *flow_len))
        }
        _ => None,
    }
}

fn answer(h2: &mut Connection, act: OwnerAction, mode: u8) {
    match act {
        OwnerAction::Respond(stream) => {
            let _ = h2.send_headers(stream, &response(), mode & 8 != 0);
            let _ = h2.send_data(stream, b"12345", &[7; 40_000], mode & 2 != 0);
            if mode & 16 != 0 {
                h2.reset(stream, ErrorCode::Cancel);
            }
        }
        OwnerAction::Release(stream, n) => h2.release(stream, n),
    }
}

fn list(fields: &[(&str, &str)]) -> Rc<Headers> {
    let mut builder = weft_proto::session::http2::HeadersBuilder::new();
    for (name, value) in fields {
        builder.push(name.as_bytes(), value.as_bytes()).expect("a valid field");
    }
    builder.build()
}

fn request() -> Rc<Headers> {
    list(&[(":method", "POST"), (":scheme", "http"), (":path", "/shop.Cart/Add")])
}

fn response() -> Rc<Headers> {
    list(&[(":status", "200"), ("content-type", "application/grpc")])
}

/// A decoder for a sequence of header blocks. Decoded lists survive our own encoder.
pub fn hpack(data: &[u8]) {
    let mut decoder = BlockDecoder::new(4096, 16 << 10);
    let (mut encoder, mut mirror) = (BlockEncoder::new(), BlockDecoder::new(4096, 64 << 10));
    let mut rest = data;
    while let Some((&length, tail)) = rest.split_first() {
        let (block, tail) = tail.split_at(usize::from(length).min(tail.len()));
        rest = tail;
        let Ok(decoded) = decoder.decode(block) else { return };
        let Some(headers) = decoded else { continue };
        assert!(headers.list_bytes() <= 16 << 10);
        let mut encoded = Vec::new();
        encoder.encode(&headers, &mut encoded);
        let again = mirror.decode(&encoded).expect("encoded blocks are valid HPACK").expect("and no larger");
        assert!(headers.iter().map(|(n, v, _)| (n, v)).eq(again.iter().map(|(n, v, _)| (n, v))));
    }
}

/// A payload that the walk accepts can be rewritten, and the result contains the written values.
pub fn protobuf_walk(data: &[u8]) {
    let schema = schema();
    protobuf_lists(&schema, data);
    let walk = walk(&schema);
    let (mut slots, mut present) = ([Slot::default(); 8], InputSet::EMPTY);
    let Ok(()) = walk.run(data, &mut slots, &mut present) else { return };
    for slot in [0, 3_usize] {
        if present.contains(slot) {
            let Slot { a, b } = slots[slot];
            assert!(data.get(a as usize..(a + b) as usize).is_some(), "a slot points out of the payload");
        }
    }
    let edits = [(0, EditValue::Bytes(b"bob")), (1, EditValue::Bits(77)), (3, EditValue::Bytes(b"deep"))];
    let mut out = Vec::new();
    walk.rewrite(data, &edits, &mut out).expect("these values fit a well-formed message");
    let mut again = ([Slot::default(); 8], InputSet::EMPTY);
    walk.run(&out, &mut again.0, &mut again.1).expect("written messages are well-formed");
    let bytes = |slot: usize| &out[again.0[slot].a as usize..][..again.0[slot].b as usize];
    assert_eq!((bytes(0), again.0[1].a, bytes(3)), (&b"bob"[..], 77, &b"deep"[..]));
    assert_eq!(
        (slots[2].a, present.contains(2_usize)),
        (again.0[2].a, again.1.contains(2_usize)),
        "an untouched field changed"
    );
    let mut cleared = Vec::new();
    walk.rewrite(&out, &[(0, EditValue::Clear)], &mut cleared).expect("a field can be cleared");
}

/// The cells of lists point into the list; a list with too many elements has none.
fn protobuf_lists(schema: &Schema, data: &[u8]) {
    const MAX: u64 = 3;
    let mut builder = ListsBuilder::new(schema, 0);
    builder.list(&["items"], &[vec!["user"], vec!["n"]], MAX, 0).expect("the schema has it");
    builder.list(&["inner", "codes"], &[Vec::new()], MAX, 1).expect("the schema has it");
    builder.present(&["inner"], 2).expect("the schema has it");
    let (mut slots, mut present, mut text) = ([Slot::default(); 3], InputSet::EMPTY, Vec::new());
    let Ok(()) = builder.build().run(data, &mut slots, &mut present, &mut text) else { return };
    for (slot, n_members) in [(0, 2), (1, 1)] {
        let list = &text[slots[slot].a as usize..][..slots[slot].b as usize];
        let word = |at: usize| u64::from_le_bytes(list[at..at + 8].try_into().expect("eight bytes"));
        let n = word(0);
        if n > MAX {
            assert_eq!(list.len(), HEAD_BYTES);
        } else if slot == 0 {
            for element in 0..n as usize {
                let at = HEAD_BYTES + element * n_members * CELL_BYTES;
                let (start, len) = (word(at) as usize, (word(at + 8) >> 1) as usize);
                assert!(list.get(start..start + len).is_some(), "a cell points out of the list");
            }
        } else {
            assert_eq!(list.len(), HEAD_BYTES + n as usize * CELL_BYTES);
        }
    }
    assert!(slots[2].a <= 1 && present == (0..3_usize).collect(), "a list is always there");
}

/// The chunking of the input does not change messages.
pub fn grpc_deframe(data: &[u8]) {
    let Some((&step, data)) = data.split_first() else { return };
    let limit = 1 << 16;
    let cut = |n: usize| {
        let (mut deframer, mut messages) = (Deframer::new(limit), Vec::new());
        for mut piece in data.chunks(n.max(1)) {
            loop {
                match deframer.next(&mut piece) {
                    Ok(Some(m)) => messages.push((m.compressed, m.payload.to_vec())),
                    Ok(None) => break,
                    Err(error) => return (messages, Some(error), false),
                }
            }
            assert!(piece.is_empty());
        }
        let is_empty = deframer.is_empty();
        (messages, None, is_empty)
    };
    assert_eq!(cut(usize::from(step)), cut(usize::MAX));
    if let Some(timeout) = header::parse_timeout(data) {
        let mut out = Vec::new();
        header::write_timeout(timeout, &mut out);
        assert!(header::parse_timeout(&out).is_some_and(|again| again >= timeout), "a deadline shrank");
    }
    let _ = header::parse_content_type(data);
    let text = header::parse_message(data);
    let mut out = Vec::new();
    header::write_message(&text, &mut out);
    assert_eq!(header::parse_message(&out), text);
}

/// The chunking of the input does not change the packets. Packets survive writing and reading.
pub fn capture(data: &[u8]) {
    let Some((&step, file)) = data.split_first() else { return };
    let whole = read_capture(file, usize::MAX);
    assert_eq!(read_capture(file, usize::from(step).max(1)), whole);
    let mut out = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::RAW, "", &mut out);
    for (at, original_length, bytes, comments) in &whole.0 {
        let comments: Vec<&str> = comments.iter().map(String::as_str).collect();
        let original_length = Some(*original_length);
        let packet =
            Packet { at: Time(at.0.max(0)), interface: 0, original_length, bytes, comments: &comments };
        writer.write(&packet, &mut out).expect("read packets can be written");
    }
    let (again, end) = read_capture(&out, usize::MAX);
    assert_eq!(end, Ok(whole.0.len() as u64));
    for ((at, original_length, bytes, _), again) in whole.0.iter().zip(&again) {
        assert_eq!((&Time(at.0.max(0)), original_length, bytes), (&again.0, &again.1, &again.2));
    }
}

/// Ethernet, IPv4 and UDP, in the text form of the IR.
const FRAMES: &str = include_str!("../../tests/ir/frames.ir");
/// Decrements the hop limit, and drops packets with none left. Sets the destination, and copies arrivals to all.
const HOP: &str = "element \"hop\" \"hop\"\nhandler request function \"hop\" {\nblock0:\n v0: int = input in2\n \
    v1: int = int 1\n v2: bool = icmp.ule v0, v1\n branch v2, block1, block2\nblock1:\n drop ; line 7\nblock2:\n \
    v3: int = sub v0, v1\n set_input in2, v3\n v4: bytes = bytes \"\\x0a\\x00\\x00\\x09\"\n set_input in4, v4\n \
    set_input in7, v3\n v5: bytes = bytes \"*\"\n mirror v5\n forward\n}\n";

/// Elements that remove headers, add others, and read the rest.
const TUNNELS: &str = "IMPORT 'all.weft'; CREATE PORT a ON memory;
CREATE ELEMENT enter ON packet AS ON PACKET
    LET source = coalesce(ipv4.src, '10.0.0.1');
    IF present(inner.ethernet) THEN POP TO inner.ethernet;
    ELSIF present(vlan) THEN POP vlan;
    ELSIF present(ip) AND size > '100 B' THEN
        POP TO ip; CUT TO 60; PUSH ethernet, ipv4 (src = source), icmp (type = 11);
    ELSE PUSH vlan (id = 7); END IF;
END;
CREATE ELEMENT look ON ip AS VAR hops U64 = 0 MERGE SUM;
    ON PACKET SET ip.ttl = 7; ADD hops, CAST(ip.ttl AS U64); END;
CREATE ELEMENT leave ON packet AS ON PACKET
    PUSH ethernet, ipv6 (src = '::1', dst = '::2'), udp (src_port = coalesce(vlan.id, 1)), vxlan (vni = 5);
    MIRROR TO '*';
END;
CREATE CHAIN c ON PORT a AS enter -> look -> leave -> look AS again; END;";

/// An element that reads frame properties and ports, in tunnels as well, and sets one of them. Later fragments get
/// these from the first. Elements that remove tunnels and labels are between its three instances.
const FRAGMENTS: &str = "IMPORT 'all.weft'; CREATE PORT a ON memory;
CREATE ELEMENT closed ON packet AS ON PACKET
    IF coalesce(udp.dst_port = 9, tcp.dst_port = 9, FALSE) THEN DROP; END IF;
    IF coalesce(inner.udp.dst_port = 9, inner.tcp.dst_port = 9, FALSE) THEN DROP; END IF;
    IF tunnel_depth > 9 OR is_icmp_error AND NOT is_intact THEN DROP; END IF;
    SET udp.src_port = 7; SET ip.ttl = 9;
END;
CREATE ELEMENT opened ON packet AS ON PACKET
    IF present(inner.ethernet) THEN POP TO inner.ethernet;
    ELSIF present(inner.ip) THEN POP TO inner.ip; PUSH ethernet;
    ELSIF present(mpls) AND present(ip) THEN POP TO ip; PUSH ethernet; END IF;
END;
CREATE CHAIN c ON PORT a AS closed -> opened -> closed AS again -> opened AS further -> closed AS last; END;";

/// The library's protocol definitions.
struct Formats;

impl Resolver for Formats {
    fn text(&mut self, path: &str, _from: Option<&str>) -> Result<String, String> {
        match path {
            "tunnels.weft" => return Ok(TUNNELS.to_owned()),
            "fragments.weft" => return Ok(FRAGMENTS.to_owned()),
            _ => {}
        }
        let file = path.rsplit('/').next().unwrap_or(path);
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace");
        let folder = library_folder::library_folder(root).join("protocols");
        std::fs::read_to_string(folder.join(file)).map_err(|error| error.to_string())
    }

    fn schema(&mut self, _: &SchemaSource<'_>, _from: Option<&str>) -> Result<Schema, SchemaFault> {
        Err("it has none".to_owned().into())
    }

    fn name(&mut self, path: &str, _from: Option<&str>) -> String {
        path.to_owned()
    }
}

static TUNNELLED: LazyLock<ChainProgram> = LazyLock::new(|| chain_of("tunnels.weft"));
static FRAGMENTED: LazyLock<ChainProgram> = LazyLock::new(|| chain_of("fragments.weft"));

fn chain_of(path: &str) -> ChainProgram {
    let (network, diagnostics, _) = weft_lang::check(path, &mut Formats);
    let network = network.unwrap_or_else(|| panic!("{diagnostics:?}"));
    lower(&network, 0, &LowerOptions { workers: 1 }).unwrap_or_else(|why| panic!("{why:?}"))
}

/// The packet path: arbitrary frames in batches of any size pass a chain that rewrites them. Each frame is sent or
/// counted, no buffer is lost, and correct checksums stay correct.
pub fn packet_path(data: &[u8]) {
    let program = parse_program(&format!("{FRAMES}{HOP}")).expect("it is in the form");
    pass(
        program,
        data,
        |_, _| {},
        |bytes| {
            // The program does not support tags.
            let is_ipv4 = bytes.get(12..14) == Some(&[8, 0][..]);
            if let Some(packet) = IpPacket::of_frame(bytes, false).filter(|_| is_ipv4) {
                let words = packet.header().chunks(2);
                let sum: u32 = words.map(|w| u32::from(w[0]) << 8 | u32::from(w[1])).sum();
                assert_eq!((sum >> 16) + (sum & 0xffff), 0xffff, "the header's checksum is lost");
            }
        },
    );
}

/// The same for a chain that changes headers, with some frames that stand for several packets: two bytes after a packet
/// select the form.
pub fn packet_tunnels(data: &[u8]) {
    pass(TUNNELLED.clone(), data, read_offload, |_| {});
}

/// The same for a chain that reads ports, in tunnels as well; fragments get them from others or wait for them.
pub fn packet_fragments(data: &[u8]) {
    pass(FRAGMENTED.clone(), data, |_, _| {}, |_| {});
}

fn read_offload(frame: &mut Frame, data: &mut &[u8]) {
    let Some((&[says, start], rest)) = data.split_first_chunk() else { return };
    *data = rest;
    let (kind, offset) = match says & 3 {
        1 => (GsoKind::Udp, 6),
        2 => (GsoKind::TcpV4, 16),
        3 => (GsoKind::TcpV6, 16),
        _ => return,
    };
    frame.meta.offload.checksum = Checksum::Partial { start: u16::from(start), offset };
    frame.meta.offload.gso = Some(Gso { kind, size: u16::from(says & !3), has_ecn: false });
}

/// Runs frames through a chain, in batches of the size in the first byte. A packet is a length byte, its bytes, and the
/// input of `read_meta`.
fn pass(program: ChainProgram, data: &[u8], read_meta: fn(&mut Frame, &mut &[u8]), look: impl Fn(&[u8])) {
    let Some((&batch, mut data)) = data.split_first() else { return };
    let mut staged = StateStore::new(1, HashKey::from_seed(1)).stage();
    let on = ChainOn { program, condition: None, ports: vec![0, 1], to: Some(Outlet::Port(1)) };
    let chain = PacketChain::build(1, on, &mut staged, &Interp).expect("it is well-formed");
    let ports = ["a", "b"].map(String::from).into();
    let plan = PacketPlan { version: 1, ports, chains: vec![Arc::new(chain)], ..PacketPlan::default() };
    let mut engine = PacketEngine::new(Time(1), PacketConfig::default(), Arc::new(plan));
    let mut pool = Pool::new(PoolConfig { small: 96 + FRAGMENTS_WAITING_MAX as u32, large: 1 });
    let (mut frames, mut n, mut are_single) = (Vec::new(), 0, true);
    while let Some((&length, rest)) = data.split_first() {
        let (packet, rest) = rest.split_at(rest.len().min(usize::from(length)));
        data = rest;
        let mut frame = pool.take_filled(packet).expect("batches are smaller than the pool");
        read_meta(&mut frame, &mut data);
        are_single &= frame.meta.offload.gso.is_none();
        frames.push(frame);
        n += 1;
        if frames.len() < usize::from(batch % 32 + 1) && !data.is_empty() {
            continue;
        }
        engine.handle_batch(Time(1), 0, &mut frames, &mut pool, None);
        while engine.poll_output(&mut frames).is_some() {
            for frame in frames.drain(..) {
                look(pool.bytes(&frame));
                pool.give(frame);
            }
        }
    }
    // Fragments that still wait for their first fragment are lost now.
    engine.close(&mut pool);
    let stats = engine.stats();
    let ended: u64 = stats.chains[0].ends.iter().map(|end| end.n).sum();
    let malformed: u64 = stats.chains[0].malformed.iter().map(|(_, n)| n).sum();
    let lost: u64 = stats.drops.iter().filter(|(why, _)| *why != DropReason::NoBuffer).map(|(_, n)| n).sum();
    let sent: u64 = stats.ports.iter().map(|port| port.sent).sum();
    let all = sent - stats.copies + ended + malformed + lost;
    assert!(if are_single { all == n } else { all >= n }, "a frame is not accounted for: {all} of {n}");
    assert_eq!(pool.in_use(), 0);
}

/// A `.proto` file that imports itself and the well-known types, or a descriptor set. The result is a schema whose
/// messages can be walked, or a fault with a location in the text.
pub fn proto_files(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let source = |name: &str| Source { name: name.to_owned(), text: text.as_ref().into() };
    let mut find = |path: &str| match path {
        "b.proto" => ImportLookup::File(source("b.proto")),
        _ => ImportLookup::Missing("it is not there".to_owned()),
    };
    let compiled = compile(source("a.proto"), &mut find);
    if let Err(Fault { location: Some(location), .. }) = &compiled {
        assert!(location.source.text.get(location.range.clone()).is_some(), "a fault is in the text");
    }
    for schema in compiled.into_iter().chain(from_descriptors(data)) {
        for (at, message) in schema.messages.iter().enumerate() {
            let mut builder = WalkBuilder::new(&schema, at);
            for (slot, field) in message.fields.iter().take(SLOTS_MAX).enumerate() {
                let _ = builder.column(&[&field.name], slot);
            }
            let (mut slots, mut present) = ([Slot::default(); SLOTS_MAX], InputSet::EMPTY);
            let _ = builder.build().run(data, &mut slots, &mut present);
        }
    }
}

/// Firewall lists: any text becomes rows or faults, within the limits, and each fault has a position in the text.
pub fn firewall_lists(data: &[u8]) {
    let Some((&format, text)) = data.split_first() else { return };
    let text = String::from_utf8_lossy(text);
    let formats = [Some(Format::Nft), Some(Format::Iptables), Some(Format::Ip6tables), None];
    let out_ports = if format & 4 != 0 { vec!["wan".to_owned(), "eth1".to_owned()] } else { Vec::new() };
    let in_ports = if format & 8 != 0 { vec!["lan".to_owned(), "wan".to_owned()] } else { Vec::new() };
    let hook = Hook { name: "forward".to_owned(), out_ports, in_ports, names: Vec::new() };
    let list = import(&text, formats[usize::from(format % 4)], &hook);
    assert!(list.rows.len() <= ROWS_MAX && list.faults.len() <= FAULTS_MAX + 1);
    for fault in &list.faults {
        assert!(fault.line as usize <= text.lines().count().max(1) && fault.column > 0, "{fault}");
    }
    if list.rows.len() < 1000 {
        insert(&list, "edge.ruleset.rules");
    }
}

/// Statements on tables of a running network: any text gives statements or faults, and their expressions on a row are
/// evaluated or refused.
pub fn queries(data: &[u8]) {
    struct Tables;
    impl Resolver for Tables {
        fn text(&mut self, _path: &str, _from: Option<&str>) -> Result<String, String> {
            Ok(TABLES.to_owned())
        }

        fn schema(&mut self, _: &SchemaSource<'_>, _from: Option<&str>) -> Result<Schema, SchemaFault> {
            Err("there is none".to_owned().into())
        }
    }
    const TABLES: &str =
        "CREATE TABLE rules (rank U32 PRIMARY KEY, net CIDR?, name TEXT(8)?, n I64, x F64?, may BOOL)
        MAX 100 ROWS FILLED BY CONTROLLER;";
    let Some(text) = program(data) else { return };
    let (network, _, sources) = weft_lang::check("fuzz.weft", &mut Tables);
    let network = network.expect("its table is sound");
    let (asked, faults, _) = statements(&network, &sources, text, Time(0));
    let is_refused = faults.iter().any(|fault| fault.is_error());
    assert!(!is_refused || asked.is_empty(), "what has a fault is not done by halves");
    let net = Value::Bytes(vec![10, 0, 0, 0, 8]);
    let rows = [
        [Value::Int(1), net, Value::text("a"), Value::Int(i64::MIN), Value::Float(0.5), Value::Bool(true)],
        [Value::Int(0), Value::Null, Value::Null, Value::Int(0), Value::Null, Value::Bool(false)],
    ];
    for (statement, row) in asked.iter().flat_map(|statement| rows.iter().map(move |row| (statement, row))) {
        let exprs: Vec<_> = match &statement.kind {
            StatementKind::Select { items, filter, .. } => {
                items.iter().map(|(_, e)| e).chain(filter).collect()
            }
            StatementKind::Update { set, filter } => set.iter().map(|(_, e)| e).chain(filter).collect(),
            StatementKind::Summary { summary, filter, .. } => {
                let measured = summary.items.iter().flat_map(|(_, measure)| match measure {
                    Measure::Same(expr) => vec![expr],
                    Measure::Aggregate(aggregate, _) => aggregate.parts(),
                });
                measured.chain(filter).collect()
            }
            StatementKind::Delete { filter } => filter.iter().collect(),
            StatementKind::Insert { .. } => Vec::new(),
        };
        for expr in exprs {
            // The querying client gets the error.
            let _ = fold_at(expr, row, Time(0));
        }
    }
}

/// Time, length on the wire, bytes, comments.
type Captured = (Time, u32, Vec<u8>, Vec<String>);

fn read_capture(file: &[u8], step: usize) -> (Vec<Captured>, Result<u64, ReadError>) {
    let (mut reader, mut packets) = (Reader::new(), Vec::new());
    for piece in file.chunks(step) {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(Some(record)) => {
                    let comments = record.comments().map(str::to_owned).collect();
                    let at = record.at.unwrap_or_default();
                    packets.push((at, record.original_length, record.bytes.to_vec(), comments));
                    let _ = record.link.network(record.bytes);
                }
                Ok(None) => break,
                Err(error) => return (packets, Err(error)),
            }
        }
    }
    let end = reader.finish();
    (packets, end)
}

/// The text form of chains: any text is read or refused. A chain that was read survives writing and reading, and the
/// verifier accepts or refuses it.
pub fn ir_text(data: &[u8]) {
    let Some(text) = program(data) else { return };
    let Ok(chain) = parse_program(text) else { return };
    let _ = verify_program(&chain);
    let written = write_program(&chain);
    let again = parse_program(&written).expect("written files can be read");
    assert_eq!(format!("{again:?}"), format!("{chain:?}"));
}

/// The native functions: the first byte selects one, the rest is its argument. No argument makes it panic or exceed the
/// limit, and inverse functions are inverse.
pub fn natives(data: &[u8]) {
    let Some((&which, data)) = data.split_first() else { return };
    let info = &NATIVES[usize::from(which) % NATIVES.len()];
    let mut given = Vec::new();
    let ended = native(info).call(&call(&[Arg::Bytes(data), Arg::Int(i64::from(which))]), &mut given);
    if ended == Ended::Bytes {
        assert!(given.len() <= NATIVE_BYTES_MAX, "{} gave too much", info.name);
        assert!(
            info.result != Type::Text(None) || core::str::from_utf8(&given).is_ok(),
            "{} gave no text",
            info.name
        );
    }
    let Some(inverse) = NATIVES.iter().find(|inverse| inverse.inverse == Some(info.native)) else { return };
    if ended == Ended::Bytes {
        let mut back = Vec::new();
        let ended = native(inverse).call(&call(&[Arg::Bytes(&given)]), &mut back);
        assert!(ended == Ended::Bytes && back == data, "{} does not take {} back", inverse.name, info.name);
    }
}

/// The input of [`natives`] for a function with this name.
pub fn native_seed(name: &str, data: &[u8]) -> Vec<u8> {
    let which = NATIVES.iter().position(|info| info.name == name).expect("there is such a function");
    [&[which as u8], data].concat()
}

fn call<'a>(args: &'a [Arg<'a>]) -> Call<'a> {
    Call { args, now: Time(1_500_000_000_000), rand: 7 }
}

fn native(info: &Info) -> Arc<dyn Prepared> {
    let constants = info.params.iter().filter(|param| param.is_constant());
    let constant = |param: &Param| match param {
        Param::Pattern => r"(\w+)=(\d*)|[^a]{2,5}$",
        Param::Pointer => "/a/0",
        _ => "a$1b",
    };
    let algorithm = ("algorithm".to_owned(), Value::text("HS256"));
    let decl = NativeDecl {
        name: info.name.to_owned(),
        native: info.native,
        constants: constants.map(|param| constant(param).to_owned()).collect(),
        options: if info.native == Native::JwtVerify { vec![algorithm] } else { Vec::new() },
        site: 1,
        cost: info.cost,
    };
    let key = info.needs_key.then_some(&[9; 32][..]);
    prepare(&decl, &Secrets { key, entropy: [1; ENTROPY_BYTES] }).expect("it has all that it needs")
}

fn program(data: &[u8]) -> Option<&str> {
    core::str::from_utf8(data).ok().filter(|text| text.len() <= PROGRAM_BYTES_MAX)
}

/// `Item { string user = 1; int64 n = 2; oneof way { bool a = 3; double b = 4; } Item inner = 5; }`
fn schema() -> Schema {
    use Presence::{Explicit, Implicit, Repeated};
    let member = |field| Field { oneof: Some(0), ..field };
    let fields = vec![
        Field::new("user", 1, FieldKind::String, Implicit),
        Field::new("n", 2, FieldKind::Int64, Implicit),
        member(Field::new("a", 3, FieldKind::Bool, Explicit)),
        member(Field::new("b", 4, FieldKind::Double, Explicit)),
        Field::new("inner", 5, FieldKind::Message(0), Explicit),
        Field::new("items", 6, FieldKind::Message(0), Repeated),
        Field::new("codes", 7, FieldKind::Sint64, Repeated),
    ];
    let messages = vec![Message::new("shop.Item", fields)];
    Schema { messages, ..Schema::default() }
}

fn walk(schema: &Schema) -> Walk {
    let mut builder = WalkBuilder::new(schema, 0);
    for (slot, path) in [&["user"][..], &["n"], &["a"], &["inner", "user"]].into_iter().enumerate() {
        builder.column(path, slot).expect("the schema has it");
    }
    builder.build()
}
