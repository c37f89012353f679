//! Peers that break the rules, or keep them to do harm (RFC 9113 section 10.5): their connection ends with the
//! error that the RFC names, is counted by reason, and no other connection notices.

use crate::support::*;
use weft_core::Interval;

const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

/// The preface with SETTINGS of these values.
fn hello(settings: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        settings.iter().flat_map(|(id, v)| [&id.to_be_bytes()[..], &v.to_be_bytes()].concat()).collect();
    [PREFACE, &frame(4, 0, 0, &payload)].concat()
}

fn literal(name: &str, value: &str) -> Vec<u8> {
    let string = |text: &str| {
        let mut out = Vec::new();
        match text.len() {
            n @ 0..127 => out.push(n as u8),
            n => {
                out.push(127);
                let mut rest = n - 127;
                while rest >= 128 {
                    out.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                out.push(rest as u8);
            }
        }
        [out, text.as_bytes().to_vec()].concat()
    };
    [vec![0], string(name), string(value)].concat()
}

/// A block that asks for a unary call.
fn block() -> Vec<u8> {
    [vec![0x83, 0x86], literal(":path", ADD), literal("content-type", "application/grpc")].concat()
}

/// A whole unary call on a stream.
fn call(stream: u32) -> Vec<u8> {
    let message = item("eve", 1, b"");
    let data = [&[0, 0, 0, 0, message.len() as u8][..], &message].concat();
    [frame(1, 4, stream, &block()), frame(0, 1, stream, &data)].concat()
}

/// The payload of each frame of a kind that was received.
fn frames(mut bytes: &[u8], kind: u8) -> Vec<Vec<u8>> {
    let mut found = Vec::new();
    while let Some((head, rest)) = bytes.split_at_checked(9) {
        let len = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let Some((payload, rest)) = rest.split_at_checked(len) else { break };
        if head[3] == kind {
            found.push(payload.to_vec());
        }
        bytes = rest;
    }
    found
}

/// The codes of the received GOAWAYs.
fn go_aways(raw: &Raw) -> Vec<u32> {
    let code = |p: Vec<u8>| u32::from_be_bytes(p[4..8].try_into().expect("four bytes"));
    frames(&raw.received, 7).into_iter().map(code).collect()
}

/// A peer sends `attack` beside a good client that calls every millisecond. The peer's connection must end with `code`
/// and be counted as `reason`; the good client must not notice.
#[track_caller]
fn ends_with(attack: Vec<u8>, code: u32, reason: &str) {
    for chunk in [1u64, 97, 100_000] {
        let mut world = World::new(chunk, Net::new().plan(Some(&reading_chain()), &[CART]))
            .network(Network { chunk_bytes: chunk..=chunk, ..Network::default() })
            .server(CART, |_| Behaviour::default());
        let good = world.client("front");
        let calls: Vec<_> = (0..50)
            .map(|at| world.call(good, Call::unary(ADD, item("ann", 1, b"")).at(ms(at)).timeout(ms(500))))
            .collect();
        let evil = world.raw("front");
        world.send_raw(evil, ms(5), attack.clone());
        world.run();
        for call in calls {
            assert_eq!(world.answer(call).code(), Some(0), "{reason}: others noticed");
            assert!(world.answer(call).took() < ms(100), "{reason}: others were held up");
        }
        let raw = world.seen_by(evil);
        assert!(raw.is_closed, "{reason}: the connection is still open");
        assert_eq!(go_aways(raw), [code], "{reason}");
        assert_eq!(refusals(&mut world, reason), 1, "{reason}: {:?}", world.engine().stats().refusals);
        assert!(world.bytes_held_max() < 2 << 20, "{reason}: {} bytes were held", world.bytes_held_max());
    }
}

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const FRAME_SIZE_ERROR: u32 = 6;
const COMPRESSION_ERROR: u32 = 9;
const ENHANCE_YOUR_CALM: u32 = 11;

/// Random bytes would be read as frames.
#[test]
fn bad_preface_is_refused() {
    ends_with(b"\x00\x01binary".to_vec(), PROTOCOL_ERROR, "bad_preface");
    ends_with([PREFACE, &frame(6, 0, 0, &[0; 8])].concat(), PROTOCOL_ERROR, "bad_preface");
}

/// A client that speaks another protocol could not read the error.
#[test]
fn http1_client_gets_http1_answer() {
    let http1 = b"GET / HTTP/1.1\r\nhost: cart\r\n\r\n".to_vec();
    let post = b"POST /shop.Cart/Add HTTP/1.1\r\n\r\n".to_vec();
    let hello = [&[22, 3, 1, 0, 200, 1, 0, 0, 196, 3, 3][..], &[7; 200]].concat();
    for (first, reason) in [(http1, "http1"), (post, "http1"), (hello, "tls")] {
        for chunk in [1, 1000] {
            let mut world = World::new(1, Net::new().plan(None, &[CART]))
                .network(Network { chunk_bytes: chunk..=chunk, ..Network::default() });
            let client = world.raw("front");
            world.send_raw(client, ms(1), first.clone());
            world.run();
            let seen = world.seen_by(client);
            assert!(seen.is_closed, "{reason}");
            match reason {
                "tls" => assert_eq!(seen.received, [21, 3, 1, 0, 2, 2, 70], "the alert protocol_version"),
                _ => {
                    let text = String::from_utf8(seen.received.clone()).expect("it is text");
                    let (head, body) = text.split_once("\r\n\r\n").expect("a head and a body");
                    assert!(head.starts_with("HTTP/1.1 505 HTTP Version Not Supported\r\n"), "{head}");
                    assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
                    assert!(body.contains("HTTP/2"), "{body}");
                }
            }
            assert_eq!(refusals(&mut world, reason), 1);
        }
    }
}

/// A frame could make us hold 16 MiB.
#[test]
fn oversize_frame_is_refused() {
    let head = [0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 1];
    ends_with([hello(&[]), frame(1, 4, 1, &block()), head.to_vec()].concat(), FRAME_SIZE_ERROR, "frame_size");
}

/// A header block could make us hold more than any list that is permitted.
#[test]
fn oversize_header_block_is_refused() {
    let large = frame(9, 0, 1, &literal("x-large", &"v".repeat(15_000)));
    let attack = [hello(&[]), frame(1, 0, 1, &block()), large.repeat(9)].concat();
    ends_with(attack, ENHANCE_YOUR_CALM, "header_block");
}

/// A block could be cut into pieces without end (CVE-2024-27316).
#[test]
fn continuation_flood_is_refused() {
    let empty = frame(9, 0, 1, &[]).repeat(10_000);
    ends_with(
        [hello(&[]), frame(1, 0, 1, &block()), empty].concat(),
        ENHANCE_YOUR_CALM,
        "continuation_flood",
    );
}

/// A few bytes that name a large entry again and again would become megabytes: the stream is refused, and the
/// connection goes on.
#[test]
fn hpack_bomb_is_refused() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
    let evil = world.raw("front");
    // One entry of 4,000 bytes in the table, then 10,000 references to it.
    let mut entry = literal("x-bomb", &"v".repeat(3_900));
    entry[0] = 0x40;
    let bomb = [block(), entry, vec![0xbe; 10_000]].concat();
    world.send_raw(evil, ms(1), [hello(&[]), frame(1, 5, 1, &bomb), call(3)].concat());
    world.run();
    assert_eq!(refusals(&mut world, "header_list"), 1);
    assert_eq!(world.received().len(), 1, "the connection goes on");
    assert!(go_aways(world.seen_by(evil)).is_empty());
    assert_eq!(frames(&world.seen_by(evil).received, 3), [11u32.to_be_bytes()]);
}

/// Bytes that are no HPACK would leave both sides with different tables.
#[test]
fn invalid_hpack_is_refused() {
    ends_with([hello(&[]), frame(1, 5, 1, &[0xff; 20])].concat(), COMPRESSION_ERROR, "compression");
}

/// Streams that are opened and reset at once would start any amount of work (CVE-2023-44487).
#[test]
fn rapid_reset_is_refused() {
    let one = |n: u32| [frame(1, 4, n, &block()), frame(3, 0, n, &8u32.to_be_bytes())].concat();
    let attack: Vec<u8> = (0..3_000).flat_map(|n| one(2 * n + 1)).collect();
    ends_with([hello(&[]), attack].concat(), ENHANCE_YOUR_CALM, "rapid_reset");
}

/// Requests that are answered at once and reset would keep us busy as well: those that are not gRPC, and those that
/// have no route.
#[test]
fn rapid_reset_of_refused_is_refused() {
    let get = [vec![0x82, 0x86, 0x84], literal(":authority", "cart")].concat();
    let unrouted =
        [vec![0x83, 0x86], literal(":path", "/x"), literal("content-type", "application/grpc")].concat();
    for (block, flags) in [(&get, 5), (&get, 4), (&unrouted, 5), (&unrouted, 4)] {
        let one = |n: u32| [frame(1, flags, n, block), frame(3, 0, n, &8u32.to_be_bytes())].concat();
        let attack: Vec<u8> = (0..3_000).flat_map(|n| one(2 * n + 1)).collect();
        ends_with([hello(&[]), attack].concat(), ENHANCE_YOUR_CALM, "rapid_reset");
    }
}

/// Frames that cost nothing would keep us busy (CVE-2019-9512 and others).
#[test]
fn ping_settings_flood_is_refused() {
    for flood in [frame(6, 0, 0, &[0; 8]), frame(4, 0, 0, &[]), frame(0x77, 0, 0, &[])] {
        let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
        let evil = world.raw("front");
        world.send_raw(evil, ms(1), [hello(&[]), flood.repeat(10_000)].concat());
        world.run();
        assert!(world.seen_by(evil).is_closed);
        assert_eq!(go_aways(world.seen_by(evil)), [ENHANCE_YOUR_CALM]);
        let stats = world.engine().stats();
        let n: u64 = stats.refusals.iter().filter(|(r, _)| r.ends_with("_flood")).map(|(_, n)| n).sum();
        assert_eq!(n, 1, "{:?}", stats.refusals);
        assert!(world.bytes_held_max() < 1 << 20);
    }
}

/// More data than was permitted would be held.
#[test]
fn window_overrun_is_refused() {
    let data = frame(0, 0, 1, &[0; 16_000]);
    let attack = [hello(&[]), frame(1, 4, 1, &block()), data.repeat(200)].concat();
    let mut world =
        World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::new(Reply::Silence));
    world.make_unreachable(CART);
    let evil = world.raw("front");
    world.send_raw(evil, ms(1), attack);
    world.run();
    // Only the stream breaks its window; its further data is skipped.
    let resets = frames(&world.seen_by(evil).received, 3);
    assert_eq!(resets, [FLOW_CONTROL_ERROR.to_be_bytes()]);
    assert_eq!(refusals(&mut world, "stream_window"), 1);
    assert!(world.bytes_held_max() < 256 << 10);
}

/// A peer that leaves no window would keep its answers in our memory forever.
#[test]
fn shut_window_bounds_held_bytes() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
    let good = world.client("front");
    let evil = world.raw("front");
    let calls: Vec<u8> = (0..50).flat_map(|n| call(2 * n + 1)).collect();
    world.send_raw(evil, ms(1), [hello(&[(4, 0)]), frame(4, 1, 0, &[]), calls].concat());
    let good = world.call(good, Call::unary(ADD, item("ann", 1, b"")).at(Interval::from_secs(30)));
    world.run_until(Interval::from_secs(150));
    assert_eq!(world.answer(good).code(), Some(0));
    assert_eq!(world.engine().calls_open(), 0);
    assert_eq!(world.engine().bytes_held(), 0);
    assert_eq!(refusals(&mut world, "window_stall"), 50);
}

/// A silent peer, or one that sends a byte now and then, would hold a connection forever.
#[test]
fn slow_preface_times_out() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
    let (silent, slow) = (world.raw("front"), world.raw("front"));
    for (nth, byte) in PREFACE.iter().enumerate() {
        world.send_raw(slow, Interval::from_secs(nth as i64), vec![*byte]);
    }
    world.run_until(Interval::from_secs(40));
    for raw in [silent, slow] {
        assert!(world.seen_by(raw).is_closed);
        assert_eq!(go_aways(world.seen_by(raw)), [PROTOCOL_ERROR]);
    }
    assert_eq!(refusals(&mut world, "slow_preface"), 2);
    assert_eq!(world.engine().connections_open(), 0);
}

/// A peer that never reads would pile up answers in our memory.
#[test]
fn unread_output_closes_connection() {
    let mut world = World::new(1, Net::new().plan(None, &[CART]))
        .network(Network { capacity_bytes: 1000, ..Network::default() })
        .server(CART, |_| Behaviour::new(Reply::Messages(vec![Message::new(vec![7; 1 << 20])])));
    let evil = world.raw("front");
    world.stop_reading(evil);
    let windows = [frame(4, 1, 0, &[]), frame(8, 0, 0, &0x7000_0000u32.to_be_bytes())].concat();
    let calls: Vec<u8> = (0..300).flat_map(|n| call(2 * n + 1)).collect();
    world.send_raw(evil, ms(1), [hello(&[(4, 0x7fff_ffff)]), windows, calls].concat());
    world.run_until(Interval::from_secs(30));
    // The bytes that one upstream connection may hold: its output, and the data in flight when it filled up.
    let held_max = weft_proto::session::http2::Config::client().connection_held_max as usize;
    assert!(world.bytes_held_max() < held_max + (512 << 10), "{} bytes", world.bytes_held_max());
    assert!(world.engine().calls_open() > 0, "the peer is only slow so far");
}

/// A stream resumed by the same frame as another would stall until the peer sends more.
#[test]
fn window_update_resumes_all_streams() {
    let answer = vec![Message::new(item("ann", 1, &[7; 1 << 20]))];
    let mut world = World::new(1, Net::new().plan(None, &[CART]))
        .server(CART, move |_| Behaviour::new(Reply::AtOnce(answer.clone())));
    let peer = world.raw("front");
    let calls: Vec<u8> = (0..5).flat_map(|n| call(2 * n + 1)).collect();
    world.send_raw(peer, ms(1), [hello(&[(4, 0x7fff_ffff)]), frame(4, 1, 0, &[]), calls].concat());
    world.send_raw(peer, ms(200), frame(8, 0, 0, &0x4000_0000u32.to_be_bytes()));
    // Soon: a timer of the connection would wake it some time.
    world.run_until(ms(1_000));
    let n_headers = frames(&world.seen_by(peer).received, 1).len();
    assert_eq!(n_headers, 10, "headers and trailers of five calls");
    assert_eq!(world.engine().calls_open(), 0);
}

/// If it failed, a pass that blocks its worker would not be found among a million short ones. Passes over few bytes
/// must not pay for that.
#[test]
fn slow_passes_are_counted_per_chain() {
    thread_local! {
        static READINGS: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
    }
    let clock = || {
        READINGS.set(READINGS.get() + 1);
        READINGS.get() * (weft_engine::SLOW_PASS_NS + 1)
    };
    let config = weft_engine::Config { clock: Some(clock), ..weft_engine::Config::default() };
    let mut world = World::with_config(1, config, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| Behaviour::default());
    let client = world.client("front");
    world.call(client, Call::unary(ADD, item("ann", 1, b"")));
    world.run_until(ms(500));
    let before = world.engine().stats().slow_passes;
    assert!(before.is_empty(), "{before:?}");
    world.call(client, Call::unary(ADD, item("ann", 2, &[7; 100_000])));
    world.run();
    // The server echoes its input.
    assert_eq!(world.engine().stats().slow_passes, [("c".to_owned(), 2)].into());
}

/// Messages that never become complete would fill the memory.
#[test]
fn gathered_bytes_stay_in_limit() {
    let config = weft_engine::Config { held_bytes_max: 2 << 20, ..weft_engine::Config::default() };
    let mut world = World::with_config(1, config, Net::new().plan(Some(&reading_chain()), &[CART]))
        .server(CART, |_| Behaviour::default());
    let good = world.client("front");
    let evil = world.raw("front");
    world.send_raw(evil, ms(0), hello(&[]));
    let begun = [frame(1, 4, 1, &block()), frame(0, 0, 1, &[0, 0, 0x3f, 0xff, 0xff])].concat();
    // The window of a stream limits its data in flight, so gathered data grows piece by piece.
    for stream in 0..200u32 {
        let mut bytes = begun.clone();
        bytes[5..9].copy_from_slice(&(2 * stream + 1).to_be_bytes());
        let at = 9 + block().len();
        bytes[at + 5..at + 9].copy_from_slice(&(2 * stream + 1).to_be_bytes());
        bytes.extend(frame(0, 0, 2 * stream + 1, &[7; 16_000]));
        bytes.extend(frame(0, 0, 2 * stream + 1, &[7; 16_000]));
        world.send_raw(evil, ms(i64::from(stream) * 10), bytes);
    }
    let calls: Vec<_> = (0..20)
        .map(|nth| world.call(good, Call::unary(ADD, item("ann", nth, b"")).at(ms(nth as i64 * 150))))
        .collect();
    world.run_until(Interval::from_secs(10));
    assert!(refusals(&mut world, "held_bytes_max") > 0);
    // A quarter is one client's, and the engine looks ten times a second.
    assert!(world.bytes_held_max() < 1 << 20, "{} bytes", world.bytes_held_max());
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(0), "the others do not notice");
    }
}

/// A peer that does not read the output of a closing connection would hold it forever.
#[test]
fn closing_connection_times_out() {
    let mut world = World::new(1, Net::new().plan(None, &[CART]))
        .network(Network { capacity_bytes: 100, ..Network::default() })
        .server(CART, |_| Behaviour::new(Reply::Messages(vec![Message::new(vec![7; 5000])])));
    let evil = world.raw("front");
    world.stop_reading(evil);
    world.send_raw(evil, ms(1), [hello(&[]), call(1), call(3)].concat());
    // A frame on stream 0 that must not be there.
    world.send_raw(evil, ms(100), frame(0, 0, 0, b"x"));
    world.run_until(Interval::from_secs(5));
    assert_eq!(world.engine().clients_open(), 0);
}

/// A path that a server reads differently, because it removes a query or decodes escapes, would bypass the chain that
/// guards the method.
#[test]
fn invalid_path_passes_no_element() {
    let mut world = World::new(1, Net::new().plan(None, &[CART])).server(CART, |_| Behaviour::default());
    let client = world.client("front");
    let paths =
        ["/shop.Cart/Add?", "/shop.Cart/Add?x=1", "/shop.Cart/Add#x", "/shop.Cart/%41dd", "//shop.Cart/Add"];
    let calls = paths.map(|path| world.call(client, Call::unary(path, item("eve", 1, b""))));
    let good = world.call(client, Call::unary(ADD, item("eve", 1, b"")));
    world.run();
    for call in calls {
        assert_eq!(world.answer(call).code(), Some(12));
    }
    assert_eq!(world.answer(good).code(), Some(0));
    assert_eq!(world.received().len(), 1);
    assert_eq!(refusals(&mut world, "malformed_path"), 5);
}
