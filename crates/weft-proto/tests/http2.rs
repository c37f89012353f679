//! Tests HTTP/2 at its boundary: bytes in, events and bytes out.

use proptest::prelude::*;
use weft_core::{Interval, Time};
use weft_proto::session::http2::{
    Config, Connection, ConnectionError, ErrorCode, Event, Headers, HeadersBuilder, Keepalive, ResetBy,
    StreamId, Violation, limits,
};

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const PRIORITY: u8 = 2;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const PUSH_PROMISE: u8 = 5;
const PING: u8 = 6;
const GOAWAY: u8 = 7;
const WINDOW_UPDATE: u8 = 8;
const CONTINUATION: u8 = 9;

const ACK: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;
const PADDED: u8 = 8;
const WITH_PRIORITY: u8 = 0x20;

/// `:method: POST`, `:scheme: http`, `:path: /`.
const REQUEST: [u8; 3] = [0x83, 0x86, 0x84];
/// `:status: 200`.
const RESPONSE: [u8; 1] = [0x88];
/// `a: b`.
const TRAILERS: [u8; 5] = [0x00, 1, b'a', 1, b'b'];

fn frame(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let len = (payload.len() as u32).to_be_bytes();
    [&len[1..], &[kind, flags], &stream.to_be_bytes(), payload].concat()
}

fn settings(entries: &[(u16, u32)]) -> Vec<u8> {
    let payload: Vec<u8> =
        entries.iter().flat_map(|(id, v)| [&id.to_be_bytes()[..], &v.to_be_bytes()].concat()).collect();
    frame(SETTINGS, 0, 0, &payload)
}

fn request(stream: u32, flags: u8) -> Vec<u8> {
    frame(HEADERS, END_HEADERS | flags, stream, &REQUEST)
}

fn window_update(stream: u32, n: u32) -> Vec<u8> {
    frame(WINDOW_UPDATE, 0, stream, &n.to_be_bytes())
}

fn reset(stream: u32) -> Vec<u8> {
    frame(RST_STREAM, 0, stream, &8u32.to_be_bytes())
}

fn list(fields: &[(&str, &str)]) -> std::rc::Rc<Headers> {
    let mut builder = HeadersBuilder::new();
    for (name, value) in fields {
        builder.push(name.as_bytes(), value.as_bytes()).unwrap();
    }
    builder.build()
}

fn post() -> std::rc::Rc<Headers> {
    list(&[(":method", "POST"), (":scheme", "http"), (":path", "/")])
}

const NOW: Time = Time(0);

fn at_s(seconds: i64) -> Time {
    NOW + Interval::from_secs(seconds)
}

/// A frame in the output.
#[derive(Debug, PartialEq)]
struct Sent {
    kind: u8,
    flags: u8,
    stream: u32,
    payload: Vec<u8>,
}

/// Takes all output as frames.
fn sent(conn: &mut Connection) -> Vec<Sent> {
    let mut rest = conn.output();
    let total = rest.len();
    rest = rest.strip_prefix(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n").unwrap_or(rest);
    let mut frames = Vec::new();
    while let [a, b, c, kind, flags, s0, s1, s2, s3, tail @ ..] = rest {
        let (payload, after) = tail.split_at(u32::from_be_bytes([0, *a, *b, *c]) as usize);
        let stream = u32::from_be_bytes([*s0, *s1, *s2, *s3]);
        frames.push(Sent { kind: *kind, flags: *flags, stream, payload: payload.to_vec() });
        rest = after;
    }
    conn.advance_output(total);
    frames
}

/// Feeds `input`, formats the events, and releases all data.
fn feed(conn: &mut Connection, input: &[u8]) -> Result<Vec<String>, ConnectionError> {
    let (mut rest, mut seen) = (input, Vec::new());
    loop {
        let (n, event) = conn.handle_input(NOW, rest)?;
        rest = &rest[n..];
        let Some(event) = event else {
            if n == 0 {
                return Ok(seen);
            }
            continue;
        };
        seen.push(match event {
            Event::Headers { stream, headers, end_stream, trailers } => {
                let (what, end) =
                    (if trailers { "trailers" } else { "headers" }, if end_stream { " end" } else { "" });
                format!("{what} {stream} {headers:?}{end}")
            }
            Event::Data { stream, data, flow_len, end_stream } => {
                conn.release(stream, flow_len);
                format!("data {stream} {}{}", data.len(), if end_stream { " end" } else { "" })
            }
            Event::Reset { stream, by: ResetBy::Peer(code) } => format!("reset {stream} {code} by peer"),
            Event::Reset { stream, by: ResetBy::Us(violation) } => {
                format!("reset {stream} {} by us", violation.code())
            }
            Event::Unblocked { stream } => format!("unblocked {stream}"),
            Event::GoAway { last_stream, code } => format!("goaway {last_stream} {code}"),
            Event::StreamsAvailable => "streams available".to_owned(),
        });
    }
}

/// A server after the handshake, without pending output.
fn server_with(config: Config) -> Connection {
    let mut conn = Connection::new(config, NOW);
    let hello =
        [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], &settings(&[]), &frame(SETTINGS, ACK, 0, &[])].concat();
    assert_eq!(feed(&mut conn, &hello).unwrap(), Vec::<String>::new());
    sent(&mut conn);
    conn
}

fn server() -> Connection {
    server_with(Config::server())
}

/// A client after the handshake, with a request sent on stream 1.
fn client() -> Connection {
    let mut conn = Connection::new(Config::client(), NOW);
    let hello = [settings(&[]), frame(SETTINGS, ACK, 0, &[])].concat();
    assert_eq!(feed(&mut conn, &hello).unwrap(), ["streams available"]);
    assert_eq!(conn.open(), Some(1));
    conn.send_headers(1, &post(), false).unwrap();
    sent(&mut conn);
    conn
}

/// Asserts that the input ends the connection with the violation's code, and that nothing happens afterwards.
#[track_caller]
fn ends_connection(mut conn: Connection, input: &[Vec<u8>], violation: Violation) {
    let error = feed(&mut conn, &input.concat()).expect_err("the connection goes on");
    assert_eq!(error.violation, violation);
    let last = sent(&mut conn).pop().expect("a GOAWAY");
    assert_eq!((last.kind, &last.payload[4..]), (GOAWAY, &(violation.code() as u32).to_be_bytes()[..]));
    assert_eq!(conn.counters().violations(violation), 1);
    assert!(conn.is_closed());
    assert_eq!(feed(&mut conn, &request(101, 0)).unwrap(), Vec::<String>::new());
}

/// Asserts that the input resets `stream` with the violation's code, and that the connection continues.
#[track_caller]
fn ends_stream(mut conn: Connection, input: &[Vec<u8>], stream: StreamId, violation: Violation) {
    feed(&mut conn, &input.concat()).expect("the connection goes on");
    let frames = sent(&mut conn);
    let resets: Vec<_> = frames.iter().filter(|f| f.kind == RST_STREAM).collect();
    assert_eq!(resets.len(), 1, "{frames:?}");
    let code = (violation.code() as u32).to_be_bytes();
    assert_eq!((resets[0].stream, &resets[0].payload[..]), (stream, &code[..]));
    assert_eq!(conn.counters().violations(violation), 1);
    assert!(!conn.is_active(stream));
    feed(&mut conn, &frame(PING, 0, 0, &[0; 8])).unwrap();
    assert_eq!(sent(&mut conn)[0].kind, PING);
}

#[test]
fn call_passes_through_server() {
    let mut conn = server();
    let input = [request(1, 0), frame(DATA, 0, 1, b"hello"), frame(DATA, END_STREAM, 1, b"")].concat();
    let expected = ["headers 1 {:method: POST, :scheme: http, :path: /}", "data 1 5", "data 1 0 end"];
    assert_eq!(feed(&mut conn, &input).unwrap(), expected);
    conn.send_headers(1, &list(&[(":status", "200")]), false).unwrap();
    conn.send_data(1, b"12345", b"abc", false).unwrap();
    conn.send_headers(1, &list(&[("grpc-status", "0")]), true).unwrap();
    let frames = sent(&mut conn);
    assert_eq!(
        frames.iter().map(|f| (f.kind, f.flags)).collect::<Vec<_>>(),
        [(HEADERS, END_HEADERS), (DATA, 0), (HEADERS, END_HEADERS | END_STREAM)]
    );
    assert_eq!(frames[1].payload, b"12345abc");
    assert_eq!(conn.active_streams(), 0);
}

#[test]
fn data_frame_is_streamed() {
    let mut conn = server();
    let whole = [request(1, 0), frame(DATA, PADDED | END_STREAM, 1, b"\x03abcdefgh\0\0\0")].concat();
    let (mut data, mut ended, mut held) = (Vec::new(), false, Vec::new());
    for byte in whole {
        held.push(byte);
        loop {
            let (n, event) = conn.handle_input(NOW, &held).unwrap();
            let is_done = n == 0 && event.is_none();
            if let Some(Event::Data { data: d, end_stream, .. }) = event {
                assert!(!ended);
                data.extend_from_slice(d);
                ended = end_stream;
            }
            held.drain(..n);
            if is_done {
                break;
            }
        }
    }
    assert_eq!((&data[..], ended, held.len()), (&b"abcdefgh"[..], true, 0));
}

#[test]
fn bad_preface_is_refused_at_once() {
    let fresh = || Connection::new(Config::server(), NOW);
    ends_connection(fresh(), &[b"\x01".to_vec()], Violation::BadPreface);
    ends_connection(
        fresh(),
        &[b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_vec(), request(1, 0)],
        Violation::BadPreface,
    );
    ends_connection(
        Connection::new(Config::client(), NOW),
        &[frame(PING, 0, 0, &[0; 8])],
        Violation::BadPreface,
    );
}

#[test]
fn other_protocol_is_recognized() {
    // If this fails, an operator does not learn that one end uses TLS or HTTP/1.1 and the other does not.
    let says = |config: Config, first: &[u8]| {
        let mut conn = Connection::new(config, NOW);
        feed(&mut conn, first).map(drop).map_err(|error| error.violation)
    };
    for (first, violation) in [
        (&b"HTTP/1.1 400 Bad Request\r\n"[..], Violation::Http1),
        (&[21, 3, 3, 0, 2, 2, 70], Violation::Tls),
        (b"\x04stop", Violation::BadPreface),
    ] {
        assert_eq!(says(Config::client(), first), Err(violation));
    }
    assert_eq!(says(Config::server(), b"PUT / HTTP/1.1\r\n"), Err(Violation::Http1));
    assert_eq!(says(Config::server(), &[22, 3, 1]), Err(Violation::Tls));
    for first in [&b"PRI * HTTP/2.0"[..], b"PO", b"GET", &[22]] {
        assert_eq!(says(Config::server(), first), Ok(()), "more is to come");
    }
    assert_eq!(says(Config::server(), b"INVALID CONNECTION PREFACE"), Err(Violation::BadPreface));
}

#[test]
fn wrong_frame_size_ends_connection() {
    ends_connection(server(), &[frame(DATA, 0, 1, &vec![0; 16_385])], Violation::FrameSize);
    ends_connection(server(), &[frame(PING, 0, 0, &[0; 7])], Violation::FrameSize);
    ends_connection(server(), &[frame(SETTINGS, 0, 0, &[0; 5])], Violation::FrameSize);
    ends_connection(server(), &[frame(SETTINGS, ACK, 0, &[0; 6])], Violation::FrameSize);
    ends_connection(server(), &[request(1, 0), frame(WINDOW_UPDATE, 0, 1, &[0; 3])], Violation::FrameSize);
    ends_connection(server(), &[request(1, 0), frame(RST_STREAM, 0, 1, &[0; 5])], Violation::FrameSize);
    ends_connection(server(), &[frame(GOAWAY, 0, 0, &[0; 7])], Violation::FrameSize);
    ends_connection(
        server(),
        &[frame(HEADERS, END_HEADERS | WITH_PRIORITY, 1, &[0; 4])],
        Violation::FrameSize,
    );
    ends_stream(server(), &[request(1, 0), frame(PRIORITY, 0, 1, &[0; 4])], 1, Violation::FrameSize);
}

#[test]
fn stream_ids_are_odd_and_grow() {
    ends_connection(server(), &[request(2, 0)], Violation::StreamId);
    ends_connection(server(), &[request(5, 0), request(3, 0)], Violation::StreamId);
    ends_connection(server(), &[request(0, 0)], Violation::UnexpectedFrame);
    ends_connection(client(), &[frame(HEADERS, END_HEADERS, 2, &RESPONSE)], Violation::IdleStream);
}

#[test]
fn misplaced_frame_ends_connection() {
    ends_connection(server(), &[frame(DATA, 0, 0, b"a")], Violation::UnexpectedFrame);
    ends_connection(server(), &[frame(PING, 0, 1, &[0; 8])], Violation::UnexpectedFrame);
    ends_connection(server(), &[frame(SETTINGS, 0, 1, &[])], Violation::UnexpectedFrame);
    ends_connection(server(), &[frame(GOAWAY, 0, 1, &[0; 8])], Violation::UnexpectedFrame);
    ends_connection(server(), &[frame(PRIORITY, 0, 0, &[0; 5])], Violation::UnexpectedFrame);
}

#[test]
fn idle_stream_accepts_headers_only() {
    for bad in [frame(DATA, 0, 1, b"a"), reset(1), window_update(1, 1)] {
        ends_connection(server(), &[bad], Violation::IdleStream);
    }
    let mut conn = client();
    assert_eq!(conn.open(), Some(3));
    ends_connection(conn, &[frame(HEADERS, END_HEADERS, 3, &RESPONSE)], Violation::IdleStream);
}

#[test]
fn frame_after_end_is_refused() {
    ends_stream(server(), &[request(1, END_STREAM), frame(DATA, 0, 1, b"a")], 1, Violation::StreamClosed);
    ends_stream(server(), &[request(1, END_STREAM), request(1, 0)], 1, Violation::StreamClosed);
    let mut done = server();
    feed(&mut done, &request(1, END_STREAM)).unwrap();
    done.send_headers(1, &list(&[(":status", "200")]), true).unwrap();
    sent(&mut done);
    ends_connection(done, &[frame(DATA, 0, 1, b"a")], Violation::StreamClosed);
    ends_connection(server(), &[request(1, 0), reset(1), request(1, 0)], Violation::StreamClosed);
    ends_stream(server(), &[request(1, 0), reset(1), frame(DATA, 0, 1, b"a")], 1, Violation::StreamClosed);
}

#[test]
fn late_frame_after_reset_is_ignored() {
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    conn.reset(1, ErrorCode::Cancel);
    sent(&mut conn);
    let late = [
        frame(DATA, 0, 1, b"late"),
        frame(HEADERS, END_HEADERS | END_STREAM, 1, &TRAILERS),
        window_update(1, 5),
        reset(1),
    ];
    assert_eq!(feed(&mut conn, &late.concat()).unwrap(), Vec::<String>::new());
    assert_eq!(sent(&mut conn), []);
}

#[test]
fn server_push_is_refused() {
    ends_connection(server(), &[frame(PUSH_PROMISE, END_HEADERS, 1, &[0; 4])], Violation::PushPromise);
    ends_connection(client(), &[frame(PUSH_PROMISE, END_HEADERS, 1, &[0, 0, 0, 2])], Violation::PushPromise);
}

#[test]
fn oversized_padding_is_refused() {
    ends_connection(server(), &[request(1, 0), frame(DATA, PADDED, 1, b"\x04abc")], Violation::Padding);
    ends_connection(server(), &[request(1, 0), frame(DATA, PADDED, 1, b"")], Violation::Padding);
    ends_connection(
        server(),
        &[frame(HEADERS, PADDED | END_HEADERS, 1, &[4, 0x83, 0x86, 0x84])],
        Violation::Padding,
    );
    let mut conn = server();
    let padded = frame(HEADERS, PADDED | END_HEADERS, 1, &[2, 0x83, 0x86, 0x84, 0, 0]);
    assert_eq!(feed(&mut conn, &padded).unwrap().len(), 1);
}

#[test]
fn bad_setting_ends_connection() {
    ends_connection(server(), &[settings(&[(2, 2)])], Violation::Settings);
    ends_connection(client(), &[settings(&[(2, 1)])], Violation::Settings);
    ends_connection(server(), &[settings(&[(5, 16_383)])], Violation::Settings);
    ends_connection(server(), &[settings(&[(5, 1 << 24)])], Violation::Settings);
    ends_connection(server(), &[settings(&[(4, 1 << 31)])], Violation::SettingsWindow);
    let mut conn = server();
    feed(&mut conn, &settings(&[(0x99, 7)])).unwrap();
    assert_eq!(sent(&mut conn), [Sent { kind: SETTINGS, flags: ACK, stream: 0, payload: vec![] }]);
}

#[test]
fn window_overrun_is_refused() {
    let small = || server_with(Config { initial_window: 10, connection_window: 65_535, ..Config::server() });
    ends_stream(small(), &[request(1, 0), frame(DATA, 0, 1, &[0; 11])], 1, Violation::StreamWindow);
    let mut flood = vec![request(1, 0), reset(1)];
    // Data of a removed stream is returned at once; this stream is open and its data is not released.
    let (connection_window, connection_held_max) = (65_535, 65_535);
    let mut conn = server_with(Config {
        initial_window: 1 << 20,
        connection_window,
        connection_held_max,
        ..Config::server()
    });
    feed(&mut conn, &request(1, 0)).unwrap();
    let mut error = None;
    for _ in 0..5 {
        let data = frame(DATA, 0, 1, &[0; 16_384]);
        let mut rest = &data[..];
        while !rest.is_empty() && error.is_none() {
            match conn.handle_input(NOW, rest) {
                Ok((n, _)) => rest = &rest[n..],
                Err(e) => error = Some(e.violation),
            }
        }
    }
    assert_eq!(error, Some(Violation::ConnectionWindow));
    ends_connection(server(), &[window_update(0, 0x7fff_ffff)], Violation::WindowOverflow);
    ends_connection(server(), &[window_update(0, 0)], Violation::ZeroIncrement);
    ends_stream(server(), &[request(1, 0), window_update(1, 0x7fff_ffff)], 1, Violation::WindowOverflow);
    ends_stream(server(), &[request(1, 0), window_update(1, 0)], 1, Violation::ZeroIncrement);
    let max = [request(1, 0), window_update(1, 0x7fff_ffff - 65_535), settings(&[(4, 65_536)])];
    ends_connection(server(), &max, Violation::WindowOverflow);
    // Far more than the window, but on removed streams.
    flood.extend((0..100).map(|_| frame(DATA, 0, 1, &[0; 16_384])));
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    conn.reset(1, ErrorCode::Cancel);
    feed(&mut conn, &flood[2..].concat()).unwrap();
}

#[test]
fn self_dependency_is_refused() {
    let priority = [0, 0, 0, 1, 16];
    ends_stream(server(), &[request(1, 0), frame(PRIORITY, 0, 1, &priority)], 1, Violation::SelfDependency);
    let headers = [&priority[..], &REQUEST].concat();
    let flags = END_HEADERS | WITH_PRIORITY;
    ends_stream(server(), &[frame(HEADERS, flags, 1, &headers)], 1, Violation::SelfDependency);
    assert_eq!(feed(&mut server(), &frame(HEADERS, flags, 3, &headers)).unwrap().len(), 1);
}

#[test]
fn header_block_is_uninterrupted() {
    let head = frame(HEADERS, 0, 1, &REQUEST[..1]);
    let mut conn = server();
    let input = [
        &head[..],
        &frame(CONTINUATION, 0, 1, &REQUEST[1..2]),
        &frame(CONTINUATION, END_HEADERS, 1, &REQUEST[2..]),
    ];
    assert_eq!(feed(&mut conn, &input.concat()).unwrap().len(), 1);
    ends_connection(server(), &[head.clone(), frame(PING, 0, 0, &[0; 8])], Violation::UnexpectedFrame);
    ends_connection(server(), &[head.clone(), frame(0x77, 0, 1, &[])], Violation::UnexpectedFrame);
    ends_connection(server(), &[head, frame(CONTINUATION, END_HEADERS, 3, &[])], Violation::UnexpectedFrame);
    ends_connection(server(), &[frame(CONTINUATION, END_HEADERS, 1, &[])], Violation::UnexpectedFrame);
}

#[test]
fn bad_hpack_ends_connection() {
    ends_connection(server(), &[frame(HEADERS, END_HEADERS, 1, &[0xff, 0xff])], Violation::Compression);
    // Also if the headers themselves would be ignored, because the tables would differ from then on.
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    conn.reset(1, ErrorCode::Cancel);
    ends_connection(conn, &[frame(HEADERS, END_HEADERS, 1, &[0xbe])], Violation::Compression);
}

#[test]
fn malformed_message_ends_stream() {
    let block = |bytes: &[u8]| frame(HEADERS, END_HEADERS, 1, &[&REQUEST, bytes].concat());
    ends_stream(server(), &[block(b"\0\x01A\x01b")], 1, Violation::MalformedHeaders);
    ends_stream(server(), &[block(b"\0\x02te\x04gzip")], 1, Violation::MalformedHeaders);
    ends_stream(server(), &[block(b"\0\x0aconnection\x05close")], 1, Violation::MalformedHeaders);
    ends_stream(server(), &[block(&[0x83])], 1, Violation::MalformedHeaders);
    ends_stream(server(), &[frame(HEADERS, END_HEADERS, 1, &REQUEST[..2])], 1, Violation::MalformedHeaders);
    ends_stream(server(), &[frame(HEADERS, END_HEADERS, 1, &RESPONSE)], 1, Violation::MessageOrder);
    let trailers = frame(HEADERS, END_HEADERS, 1, &TRAILERS);
    ends_stream(server(), &[request(1, 0), trailers.clone()], 1, Violation::MessageOrder);
    ends_stream(server(), &[request(1, 0), request(1, END_STREAM)], 1, Violation::MessageOrder);
    ends_stream(client(), &[trailers], 1, Violation::MessageOrder);
    ends_stream(client(), &[frame(DATA, 0, 1, b"a")], 1, Violation::MessageOrder);
    let informational =
        |flags, status: &[u8; 3]| frame(HEADERS, END_HEADERS | flags, 1, &[&[0x08, 3][..], status].concat());
    ends_stream(client(), &[informational(END_STREAM, b"100")], 1, Violation::MessageOrder);
    ends_stream(client(), &[informational(0, b"101")], 1, Violation::MalformedHeaders);
}

#[test]
fn values_are_trimmed_in_all_forms() {
    // The dynamic table holds the untrimmed value, otherwise its size would differ from the peer's.
    let mut conn = server();
    let first = [&REQUEST[..], b"\x40\x01x\x05 ab \t\x00\x01y\x02c "].concat();
    let second = [&REQUEST[..], &[0xbe]].concat();
    let shown = |stream, more| format!("headers {stream} {{:method: POST, :scheme: http, :path: /, {more}}}");
    assert_eq!(feed(&mut conn, &frame(HEADERS, END_HEADERS, 1, &first)).unwrap(), [shown(1, "x: ab, y: c")]);
    assert_eq!(feed(&mut conn, &frame(HEADERS, END_HEADERS, 3, &second)).unwrap(), [shown(3, "x: ab")]);
}

#[test]
fn informational_response_is_skipped() {
    let mut conn = client();
    let input = [frame(HEADERS, END_HEADERS, 1, b"\x08\x03100"), frame(HEADERS, END_HEADERS, 1, &RESPONSE)];
    assert_eq!(feed(&mut conn, &input.concat()).unwrap(), ["headers 1 {:status: 200}"]);
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &TRAILERS);
    assert_eq!(feed(&mut conn, &trailers).unwrap(), ["trailers 1 {a: b} end"]);
}

#[test]
fn body_must_match_content_length() {
    let with_length =
        |flags| frame(HEADERS, END_HEADERS | flags, 1, &[&REQUEST[..], &[0x0f, 0x0d, 1, b'3']].concat());
    ends_stream(server(), &[with_length(END_STREAM)], 1, Violation::ContentLength);
    ends_stream(server(), &[with_length(0), frame(DATA, 0, 1, b"abcd")], 1, Violation::ContentLength);
    ends_stream(server(), &[with_length(0), frame(DATA, END_STREAM, 1, b"ab")], 1, Violation::ContentLength);
    let trailers = frame(HEADERS, END_HEADERS | END_STREAM, 1, &TRAILERS);
    ends_stream(server(), &[with_length(0), trailers], 1, Violation::ContentLength);
    let good = [with_length(0), frame(DATA, 0, 1, b"ab"), frame(DATA, END_STREAM, 1, b"c")].concat();
    assert_eq!(feed(&mut server(), &good).unwrap().len(), 3);
}

#[test]
fn excess_stream_is_refused() {
    let one = server_with(Config { max_concurrent_streams: 1, ..Config::server() });
    ends_stream(one, &[request(1, 0), request(3, 0)], 3, Violation::ConcurrentStreams);
    assert_eq!(Violation::ConcurrentStreams.code(), ErrorCode::RefusedStream);
}

/// A header block with `n` bytes more than the request's, with one new field, in frames of the usual size.
fn large_block(stream: u32, n: usize) -> Vec<Vec<u8>> {
    // `a` and a value, as a literal that enters the dynamic table if it fits.
    let mut block = [&REQUEST[..], &[0x40, 1, b'a', 0x7f]].concat();
    let mut left = n - 127;
    while left >= 0x80 {
        block.push(0x80 | (left & 0x7f) as u8);
        left >>= 7;
    }
    block.push(left as u8);
    block.resize(block.len() + n, b'v');
    let mut pieces: Vec<_> =
        block.chunks(16_384).map(|piece| frame(CONTINUATION, 0, stream, piece)).collect();
    (pieces[0][3], pieces[0][4]) = (HEADERS, END_STREAM);
    pieces.last_mut().unwrap()[4] |= END_HEADERS;
    pieces
}

#[test]
fn large_header_list_ends_stream() {
    // If this fails, one large metadata value ends the calls beside it, even those of other clients.
    let long = [&[0x00, 1, b'a', 0x7f, 0x81, 0x7d][..], &[b'v'; 16_128]].concat();
    // A list just above the limit by section 6.5.2, in a block below it.
    ends_stream(
        server(),
        &[frame(HEADERS, END_HEADERS, 1, &[&REQUEST[..], &long, &[0x84; 100]].concat())],
        1,
        Violation::HeaderList,
    );
    for n in [17 << 10, 100 << 10] {
        ends_stream(server(), &large_block(1, n), 1, Violation::HeaderList);
        ends_stream(client(), &large_block(1, n), 1, Violation::HeaderList);
    }
}

#[test]
fn large_header_list_spares_others() {
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    // A field that enters the table after the large value, which empties the table as the standard says.
    let mut large = large_block(3, 20_000);
    let last = large.last_mut().unwrap();
    last.extend_from_slice(&[0x40, 1, b'b', 1, b'1']);
    let len = (last.len() - 9) as u32;
    last[..3].copy_from_slice(&len.to_be_bytes()[1..]);
    let none: [&str; 0] = [];
    assert_eq!(feed(&mut conn, &large.concat()).unwrap(), none);
    assert!(conn.is_active(1) && !conn.is_active(3));
    assert_eq!(feed(&mut conn, &frame(DATA, END_STREAM, 1, b"a")).unwrap(), ["data 1 1 end"]);
    let next = frame(HEADERS, END_HEADERS, 5, &[&REQUEST[..], &[0xbe]].concat());
    let expected = "headers 5 {:method: POST, :scheme: http, :path: /, b: 1}";
    assert_eq!(feed(&mut conn, &next).unwrap(), [expected]);
}

#[test]
fn header_block_size_is_limited() {
    ends_connection(server(), &large_block(1, 128 << 10), Violation::HeaderBlock);
    ends_connection(client(), &large_block(1, 128 << 10), Violation::HeaderBlock);
    let drip: Vec<_> = [frame(HEADERS, 0, 1, &[])]
        .into_iter()
        .chain((0..=limits::CONTINUATIONS_MAX).map(|_| frame(CONTINUATION, 0, 1, &[])))
        .collect();
    ends_connection(server(), &drip, Violation::ContinuationFlood);
}

#[test]
fn rapid_resets_end_connection() {
    let attack: Vec<_> =
        (0..=limits::RESETS_MAX).flat_map(|i| [request(i * 2 + 1, 0), reset(i * 2 + 1)]).collect();
    ends_connection(server(), &attack, Violation::RapidReset);
    // Also after immediate answers, and whether or not the requests are complete.
    for flags in [END_STREAM, 0] {
        let mut conn = server();
        feed(&mut conn, &settings(&[])).unwrap();
        let refuse = |conn: &mut Connection, nth: u32| {
            feed(conn, &request(nth * 2 + 1, flags)).unwrap();
            conn.refuse(nth * 2 + 1, &list(&[(":status", "405")]));
            let answer = sent(conn);
            feed(conn, &reset(nth * 2 + 1)).map(|_| answer)
        };
        for nth in 0..limits::RESETS_MAX {
            let answer = refuse(&mut conn, nth).unwrap();
            let last = answer.last().expect("an answer");
            assert_eq!(last.kind, if flags == END_STREAM { HEADERS } else { RST_STREAM });
        }
        let ended = refuse(&mut conn, limits::RESETS_MAX).unwrap_err();
        assert_eq!(ended.violation, Violation::RapidReset);
    }
    // The peer makes us reset its streams instead.
    let made: Vec<_> =
        (0..=limits::RESETS_MAX).flat_map(|i| [request(i * 2 + 1, 0), window_update(i * 2 + 1, 0)]).collect();
    let mut conn = server();
    let mut error = None;
    for frame in &made {
        match feed(&mut conn, frame) {
            Ok(_) => drop(sent(&mut conn)),
            Err(e) => error = Some(e.violation),
        }
    }
    assert_eq!(error, Some(Violation::RapidReset));
    let mut fair = server();
    let ok = list(&[(":status", "200")]);
    for i in 0..4 * limits::RESETS_MAX {
        let (cancelled, completed) = (i * 4 + 1, i * 4 + 3);
        let input = [request(cancelled, 0), reset(cancelled), request(completed, END_STREAM)].concat();
        feed(&mut fair, &input).unwrap();
        fair.send_headers(completed, &ok, true).unwrap();
        sent(&mut fair);
    }
}

#[test]
fn unread_replies_end_connection() {
    // If this fails, a client that reads nothing fills the memory with immediate answers.
    let mut conn = server();
    feed(&mut conn, &settings(&[])).unwrap();
    let answer = list(&[(":status", "405"), ("a", &"v".repeat(8 << 10))]);
    let answers = (0..).map(|nth| {
        let seen = feed(&mut conn, &request(nth * 2 + 1, END_STREAM)).map(drop);
        conn.refuse(nth * 2 + 1, &answer);
        (seen, conn.output().len())
    });
    let (mut held, mut error) = (0, None);
    for (seen, output) in answers.take(limits::OUTPUT_BYTES_MAX / (8 << 10) * 2) {
        match seen {
            Ok(()) => held = output,
            Err(ended) => error = error.or(Some(ended.violation)),
        }
    }
    assert_eq!(error, Some(Violation::OutputFlood));
    assert!(held < limits::OUTPUT_BYTES_MAX + (16 << 10), "{held}");
}

#[test]
fn useless_frame_flood_ends_connection() {
    let n = limits::CONTROLS_MAX as usize + 1;
    let floods = [
        frame(PRIORITY, 0, 3, &[0, 0, 0, 1, 0]),
        window_update(0, 1),
        frame(DATA, 0, 1, b""),
        frame(DATA, PADDED, 1, b"\x02\0\0"),
        frame(0x77, 0, 0, b"what"),
        frame(PING, 0, 0, &[0; 8]),
        settings(&[(3, 100)]),
        frame(PING, ACK, 0, &[0; 8]),
    ];
    for flood in floods {
        let mut conn = server();
        feed(&mut conn, &request(1, 0)).unwrap();
        let violation = (0..2 * n).find_map(|_| {
            let error = feed(&mut conn, &flood).err();
            if error.is_none() {
                sent(&mut conn);
            }
            error.map(|e| e.violation)
        });
        assert_eq!(violation, Some(Violation::ControlFlood), "{flood:?}");
    }
}

#[test]
fn settings_flood_ends_connection() {
    // If this fails, 4 KiB of settings make us process all streams 600 times, as often as the peer likes.
    let mut conn = server();
    let many = settings(&[(4, 1), (4, 2)].repeat(limits::SETTINGS_MAX / 2));
    let n = (0..1000).take_while(|_| feed(&mut conn, &many).map(|_| sent(&mut conn)).is_ok()).count();
    assert!(n <= limits::CONTROLS_MAX as usize / (limits::SETTINGS_MAX + 1), "{n} frames");
    assert_eq!(conn.counters().violations(Violation::ControlFlood), 1);
}

#[test]
fn refused_data_earns_no_budget() {
    // If this fails, data on a stream that we have reset earns budget for a flood of PINGs.
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    conn.reset(1, ErrorCode::Cancel);
    let flood = [frame(DATA, 0, 1, b"late"), frame(PING, 0, 0, &[0; 8])].concat();
    let n = (0..10_000).take_while(|_| feed(&mut conn, &flood).map(|_| sent(&mut conn)).is_ok()).count();
    assert!(n <= limits::CONTROLS_MAX as usize, "{n}");
    assert_eq!(conn.counters().violations(Violation::ControlFlood), 1);
}

#[test]
fn non_reading_peer_is_cut_off() {
    let mut conn = server();
    let ping = frame(PING, 0, 0, &[0; 8]);
    let error = (0..).find_map(|_| feed(&mut conn, &ping).err()).unwrap();
    assert_eq!(error.violation, Violation::OutputFlood);
    assert!(conn.output().len() < 20_000, "{}", conn.output().len());
}

#[test]
fn slow_peer_times_out() {
    let mut conn = Connection::new(Config::server(), NOW);
    assert_eq!(conn.poll_timeout(), Some(at_s(5)), "the buffers are given back first");
    conn.handle_timeout(at_s(5)).unwrap();
    assert_eq!(conn.poll_timeout(), Some(at_s(10)));
    conn.handle_timeout(at_s(9)).unwrap();
    assert_eq!(conn.handle_timeout(at_s(10)).unwrap_err().violation, Violation::SlowPreface);
    let mut conn = Connection::new(Config::client(), NOW);
    feed(&mut conn, &settings(&[])).unwrap();
    assert_eq!(conn.handle_timeout(at_s(20)).unwrap_err().code(), ErrorCode::SettingsTimeout);
}

/// The number of PINGs in the output.
fn pings(conn: &mut Connection) -> usize {
    sent(conn).iter().filter(|f| f.kind == PING && f.flags == 0).count()
}

#[test]
fn silent_client_is_pinged() {
    // If this fails, connections of vanished clients stay forever.
    let mut conn = server();
    conn.handle_timeout(at_s(59)).unwrap();
    assert_eq!((pings(&mut conn), conn.poll_timeout()), (0, Some(at_s(60))));
    conn.handle_timeout(at_s(60)).unwrap();
    assert_eq!((pings(&mut conn), conn.poll_timeout()), (1, Some(at_s(80))));
    conn.handle_input(at_s(70), &frame(PING, ACK, 0, b"weftlive")).unwrap();
    conn.handle_timeout(at_s(129)).unwrap();
    assert_eq!((pings(&mut conn), conn.poll_timeout()), (0, Some(at_s(130))));
    conn.handle_timeout(at_s(130)).unwrap();
    assert_eq!(pings(&mut conn), 1);
    conn.handle_timeout(at_s(149)).unwrap();
    assert_eq!(conn.handle_timeout(at_s(150)).unwrap_err().violation, Violation::KeepaliveTimeout);
    assert_eq!(conn.counters().violations(Violation::KeepaliveTimeout), 1);
    assert!(conn.is_closed() && conn.poll_timeout().is_none());
}

#[test]
fn any_input_proves_liveness() {
    // If this fails, a client that sends data but answers a PING slowly is cut off.
    let mut conn = server();
    conn.handle_timeout(at_s(60)).unwrap();
    conn.handle_input(at_s(70), &request(1, 0)).unwrap();
    conn.handle_timeout(at_s(80)).unwrap();
    assert_eq!(conn.poll_timeout(), Some(at_s(130)));
    let keepalive = None;
    let never = server_with(Config { keepalive, ..Config::server() });
    assert_eq!(never.poll_timeout(), Some(at_s(5)), "the buffers are given back, and nothing else");
}

#[test]
fn server_is_pinged_during_calls() {
    // If this fails, gRPC servers end our idle connections with ENHANCE_YOUR_CALM.
    let mut conn = client();
    assert_eq!(conn.poll_timeout(), Some(at_s(30)));
    conn.send_data(1, b"", b"", true).unwrap();
    sent(&mut conn);
    feed(&mut conn, &frame(HEADERS, END_HEADERS | END_STREAM, 1, &RESPONSE)).unwrap();
    for second in (5..10_000).step_by(5) {
        conn.handle_timeout(at_s(second)).unwrap();
    }
    assert_eq!((pings(&mut conn), conn.poll_timeout()), (0, None));
    // After such a time, the next request triggers a PING.
    let stream = conn.open().unwrap();
    conn.send_headers(stream, &post(), false).unwrap();
    conn.handle_timeout(at_s(10_000)).unwrap();
    assert_eq!((pings(&mut conn), conn.poll_timeout()), (1, Some(at_s(10_010))));
    assert_eq!(conn.handle_timeout(at_s(10_010)).unwrap_err().violation, Violation::KeepaliveTimeout);
}

#[test]
fn idle_server_is_pinged_less_often() {
    // If this fails, too many PINGs end a stream on which the server is silent for minutes.
    let mut conn = client();
    let mut asked = Vec::new();
    let mut answer = |conn: &mut Connection, until: i64| {
        while let Some(at) = conn.poll_timeout().filter(|at| *at <= at_s(until)) {
            conn.handle_timeout(at).unwrap();
            if pings(conn) > 0 {
                asked.push((at - NOW).as_nanos() / 1_000_000_000);
                conn.handle_input(at, &frame(PING, ACK, 0, b"weftlive")).unwrap();
            }
        }
        std::mem::take(&mut asked)
    };
    assert_eq!(answer(&mut conn, 1000), [30, 60, 360, 660, 960]);
    // A message clears the server's strikes against us.
    let headers = frame(HEADERS, END_HEADERS, 1, &RESPONSE);
    assert!(matches!(conn.handle_input(at_s(1000), &headers), Ok((_, Some(Event::Headers { .. })))));
    assert_eq!(answer(&mut conn, 1400), [1030, 1060, 1360]);
    // Clients do not count strikes.
    let mut conn = server();
    assert_eq!(answer(&mut conn, 300), [60, 120, 180, 240, 300]);
}

#[test]
fn keepalive_follows_config() {
    // If this fails, the configured keepalive is not used.
    let seconds = Interval::from_secs;
    let keepalive = Keepalive { interval: seconds(600), timeout: seconds(7), without_streams: false };
    let mut conn = server_with(Config { keepalive: Some(keepalive), ..Config::server() });
    conn.handle_timeout(at_s(5)).unwrap();
    assert_eq!(conn.poll_timeout(), None);
    feed(&mut conn, &request(1, 0)).unwrap();
    assert_eq!(conn.poll_timeout(), Some(at_s(600)));
    conn.handle_timeout(at_s(601)).unwrap();
    assert_eq!((pings(&mut conn), conn.poll_timeout()), (1, Some(at_s(608))));
}

#[test]
fn blocked_data_leaves_in_order() {
    let mut conn = server();
    feed(&mut conn, &[settings(&[(4, 4)]), request(1, END_STREAM)].concat()).unwrap();
    conn.send_headers(1, &list(&[(":status", "200")]), false).unwrap();
    sent(&mut conn);
    conn.send_data(1, b"abc", b"defghij", false).unwrap();
    conn.send_headers(1, &list(&[("a", "b")]), true).unwrap();
    assert_eq!((conn.queued(1), sent(&mut conn)[0].payload.as_slice()), (6, &b"abcd"[..]));
    // A smaller window makes it negative; more than one byte is needed to make it positive again.
    feed(&mut conn, &[settings(&[(4, 2)]), window_update(1, 2)].concat()).unwrap();
    assert_eq!(conn.queued(1), 6);
    feed(&mut conn, &window_update(1, 1)).unwrap();
    assert_eq!(conn.queued(1), 5);
    feed(&mut conn, &settings(&[(4, 100)])).unwrap();
    let frames = sent(&mut conn);
    let data: Vec<u8> = frames.iter().filter(|f| f.kind == DATA).flat_map(|f| f.payload.clone()).collect();
    assert_eq!(data, b"efghij");
    assert_eq!(
        frames.iter().rev().find(|f| f.kind == HEADERS).map(|f| f.flags),
        Some(END_HEADERS | END_STREAM)
    );
    assert_eq!(conn.active_streams(), 0);
}

#[test]
fn stalled_data_resets_stream() {
    let mut conn = server();
    feed(&mut conn, &[settings(&[(4, 0)]), request(1, 0)].concat()).unwrap();
    conn.send_headers(1, &list(&[(":status", "200")]), false).unwrap();
    conn.send_data(1, b"", b"stuck", true).unwrap();
    assert_eq!(conn.poll_timeout(), Some(at_s(60)));
    conn.handle_timeout(at_s(60)).unwrap();
    assert!(matches!(
        conn.poll_event(),
        Some(Event::Reset { stream: 1, by: ResetBy::Us(Violation::WindowStall) })
    ));
    assert_eq!((conn.active_streams(), conn.counters().violations(Violation::WindowStall)), (0, 1));
}

#[test]
fn client_obeys_stream_limit() {
    let mut conn = client();
    assert_eq!(conn.available_streams(), 1023);
    feed(&mut conn, &settings(&[(3, 2)])).unwrap();
    assert_eq!((conn.open(), conn.open()), (Some(3), None));
    conn.reset(3, ErrorCode::Cancel);
    assert_eq!(
        sent(&mut conn).iter().filter(|f| f.kind == RST_STREAM).count(),
        0,
        "the server never heard of it"
    );
    assert_eq!(conn.open(), Some(5));
    conn.send_headers(5, &post(), true).unwrap();
    assert_eq!(
        feed(&mut conn, &frame(GOAWAY, 0, 0, &[0, 0, 0, 1, 0, 0, 0, 0])).unwrap(),
        ["goaway 1 NO_ERROR"]
    );
    assert_eq!(
        (conn.open(), conn.is_active(5), conn.is_active(1), conn.is_closed()),
        (None, false, true, false)
    );
    let response = frame(HEADERS, END_HEADERS | END_STREAM, 1, &RESPONSE);
    feed(&mut conn, &response).unwrap();
    conn.send_data(1, b"", b"", true).unwrap();
    assert!(conn.is_closed());
}

#[test]
fn goaway_accepts_requests_in_flight() {
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    conn.go_away(Time(0), ErrorCode::NoError);
    let frames = sent(&mut conn);
    assert_eq!((frames[0].kind, &frames[0].payload[..4]), (GOAWAY, &[0x7f, 0xff, 0xff, 0xff][..]));
    assert_eq!(feed(&mut conn, &request(3, END_STREAM)).unwrap().len(), 1);
    feed(&mut conn, &frame(PING, ACK, 0, &frames[1].payload)).unwrap();
    assert_eq!(sent(&mut conn)[0].payload, [0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(feed(&mut conn, &request(5, END_STREAM)).unwrap(), Vec::<String>::new());
    assert!(!conn.is_closed());
    conn.reset(1, ErrorCode::Cancel);
    conn.send_headers(3, &list(&[(":status", "200")]), true).unwrap();
    assert!(conn.is_closed());
}

#[test]
fn streams_after_goaway_are_ignored() {
    // If this fails, a client whose request crosses our GOAWAY loses all its other calls.
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    conn.go_away(Time(0), ErrorCode::InternalError);
    sent(&mut conn);
    let late = [request(3, 0), frame(DATA, 0, 3, b"late"), window_update(3, 1), reset(3)].concat();
    assert_eq!(feed(&mut conn, &late).unwrap(), Vec::<String>::new());
    assert_eq!(sent(&mut conn), []);
    assert_eq!(feed(&mut conn, &frame(DATA, END_STREAM, 1, b"x")).unwrap(), ["data 1 1 end"]);
    // A later GOAWAY may not raise the last stream (RFC 9113 section 6.8).
    feed(&mut conn, &frame(PING, 0, 1, &[0; 8])).expect_err("a PING on a stream");
    assert_eq!(sent(&mut conn).pop().unwrap().payload[..4], [0, 0, 0, 1]);
}

#[test]
fn half_window_triggers_update() {
    let mut conn = server();
    feed(&mut conn, &request(1, 0)).unwrap();
    let data = frame(DATA, 0, 1, &[0; 8192]);
    feed(&mut conn, &data.repeat(3)).unwrap();
    assert_eq!(sent(&mut conn), []);
    feed(&mut conn, &data).unwrap();
    let payload = 32_768u32.to_be_bytes().to_vec();
    assert_eq!(sent(&mut conn), [Sent { kind: WINDOW_UPDATE, flags: 0, stream: 1, payload }]);
}

/// Feeds `input` without releasing data. Returns the bytes of data, and the flow-control bytes to release for them.
fn feed_held(conn: &mut Connection, input: &[u8]) -> Result<(usize, u32), ConnectionError> {
    let (mut rest, mut n_data, mut held) = (input, 0, 0);
    loop {
        let (n, event) = conn.handle_input(NOW, rest)?;
        rest = &rest[n..];
        match event {
            Some(Event::Data { data, flow_len, .. }) => {
                (n_data, held) = (n_data + data.len(), held + flow_len)
            }
            None if n == 0 => return Ok((n_data, held)),
            _ => {}
        }
    }
}

/// The WINDOW_UPDATE increments in the output: of the connection, and of streams.
fn grown(conn: &mut Connection) -> (u32, u32) {
    let mut grown = (0, 0);
    for update in sent(conn).iter().filter(|f| f.kind == WINDOW_UPDATE) {
        let window = if update.stream == 0 { &mut grown.0 } else { &mut grown.1 };
        *window += u32::from_be_bytes(update.payload[..].try_into().unwrap());
    }
    grown
}

#[test]
fn unreleased_stream_blocks_no_other() {
    // If this fails, one slow client stops all calls that share an upstream connection.
    for config in [Config::server(), Config { connection_window: 65_535, ..Config::server() }] {
        let mut window = config.connection_window;
        let mut conn = server_with(config);
        let full = frame(DATA, 0, 1, &[0; 16_000]);
        feed(&mut conn, &[request(1, 0), request(3, 0)].concat()).unwrap();
        assert_eq!(feed_held(&mut conn, &full.repeat(4)).unwrap(), (64_000, 64_000));
        window -= 64_000;
        let mut passed = 0;
        let data = frame(DATA, 0, 3, &[0; 1_000]);
        while passed < 40 << 20 {
            let (connection, _) = grown(&mut conn);
            window += connection;
            assert!(window >= 1_000, "the connection's window is shut after {passed} bytes");
            assert_eq!(feed(&mut conn, &data).unwrap(), ["data 3 1000"]);
            window -= 1_000;
            passed += 1_000;
        }
        // The slow stream itself gets no more window.
        ends_stream(conn, &[full], 1, Violation::StreamWindow);
    }
}

#[test]
fn connection_window_grows_by_halves() {
    // If this fails, each DATA frame costs a WINDOW_UPDATE.
    let config = Config { connection_window: 100_000, initial_window: 1 << 20, ..Config::server() };
    let mut conn = server_with(config);
    feed(&mut conn, &request(1, 0)).unwrap();
    let data = frame(DATA, 0, 1, &[0; 1_000]);
    let increments: Vec<u32> = (0..100)
        .map(|_| {
            feed_held(&mut conn, &data).unwrap();
            grown(&mut conn).0
        })
        .collect();
    let sent: Vec<_> = increments.iter().enumerate().filter(|(_, n)| **n > 0).collect();
    assert_eq!(sent, [(49, &50_000), (99, &50_000)]);
}

#[test]
fn connection_memory_is_bounded() {
    // If this fails, a peer fills our memory with unread streams.
    let (connection_window, connection_held_max) = (100_000, 300_000);
    let config =
        Config { connection_window, connection_held_max, initial_window: 1 << 20, ..Config::server() };
    let mut conn = server_with(config);
    feed(&mut conn, &request(1, 0)).unwrap();
    let data = frame(DATA, 0, 1, &[0; 1_000]);
    let (mut window, mut held) = (connection_window, 0);
    while window >= 1_000 {
        held += feed_held(&mut conn, &data).unwrap().1;
        window = window - 1_000 + grown(&mut conn).0;
        assert!(window + held <= connection_held_max, "{window} and {held}");
    }
    assert!(held > connection_held_max - connection_window / 2 - 1_000, "{held}");
    // Releases open it again, at half of the window.
    conn.release(1, 40_000);
    assert_eq!(grown(&mut conn).0, 0);
    conn.release(1, 20_000);
    window += grown(&mut conn).0;
    assert_eq!(window, connection_held_max - (held - 60_000));
    let mut over = frame(DATA, 0, 1, &[0; 16_000]).repeat(window as usize / 16_000 + 1);
    over.extend(request(3, 0));
    assert_eq!(feed_held(&mut conn, &over).unwrap_err().violation, Violation::ConnectionWindow);
}

#[test]
fn requests_leave_in_stream_order() {
    let mut conn = client();
    let (a, b) = (conn.open().unwrap(), conn.open().unwrap());
    conn.send_headers(b, &post(), true).unwrap();
    assert!(conn.send_headers(a, &post(), true).is_err(), "the server would take it for an old stream");
}

/// Both ends and the bytes between them.
struct Pair {
    ends: [Connection; 2],
    wires: [Vec<u8>; 2],
    received: [std::collections::BTreeMap<StreamId, (Vec<u8>, bool)>; 2],
}

impl Pair {
    fn new(config: [Config; 2]) -> Self {
        let ends = config.map(|c| Connection::new(c, NOW));
        Self { ends, wires: Default::default(), received: Default::default() }
    }

    /// Moves up to `n` bytes from end `from` to the other, which processes as much as possible.
    fn step(&mut self, from: usize, n: usize) -> bool {
        let output = self.ends[from].output();
        let n = n.min(output.len());
        self.wires[from].extend_from_slice(&output[..n]);
        self.ends[from].advance_output(n);
        let (to, mut progress) = (1 - from, n > 0);
        loop {
            let (taken, event) = self.ends[to].handle_input(NOW, &self.wires[from]).unwrap();
            let is_done = taken == 0 && event.is_none();
            let mut release = None;
            match event {
                Some(Event::Headers { stream, end_stream, .. }) => {
                    let entry = self.received[to].entry(stream).or_default();
                    assert!(!entry.1);
                    entry.1 = end_stream;
                }
                Some(Event::Data { stream, data, flow_len, end_stream }) => {
                    let entry = self.received[to].get_mut(&stream).unwrap();
                    entry.0.extend_from_slice(data);
                    entry.1 = end_stream;
                    release = Some((stream, flow_len));
                }
                Some(Event::Reset { stream, by }) => panic!("stream {stream} was reset: {by:?}"),
                _ => {}
            }
            if let Some((stream, n)) = release {
                self.ends[to].release(stream, n);
            }
            self.wires[from].drain(..taken);
            if is_done {
                return progress;
            }
            progress = true;
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn bytes_arrive_in_order(
        windows in [(1u32..3000, 65_535u32..80_000), (1u32..100_000, 65_535u32..300_000)],
        bodies in proptest::collection::vec((0usize..60_000, 0usize..60_000, any::<bool>()), 1..8),
        chunks in proptest::collection::vec(1usize..5000, 1..20),
    ) {
        let [(cw, cc), (sw, sc)] = windows;
        let mut pair = Pair::new([
            Config { initial_window: cw, connection_window: cc, ..Config::client() },
            Config { initial_window: sw, connection_window: sc, ..Config::server() },
        ]);
        let body = |n: usize, seed: u32| (0..n as u32).map(|i| (i.wrapping_mul(31) ^ seed) as u8).collect::<Vec<_>>();
        let ok = list(&[(":status", "200")]);
        let trailers = list(&[("grpc-status", "0")]);
        let mut ids = Vec::new();
        let mut answered = 0;
        for (k, &(up, _, split)) in bodies.iter().enumerate() {
            let id = pair.ends[0].open().unwrap();
            ids.push(id);
            pair.ends[0].send_headers(id, &post(), false).unwrap();
            let bytes = body(up, id);
            let (a, b) = bytes.split_at(if split { up / 3 } else { up });
            pair.ends[0].send_data(id, &a[..a.len().min(5)], &a[a.len().min(5)..], !split).unwrap();
            if split {
                pair.ends[0].send_data(id, b"", b, true).unwrap();
            }
            pair.step(0, chunks[k % chunks.len()]);
        }
        let mut turn = 0;
        let mut idle = 0;
        while idle < 2 * chunks.len() + 4 {
            let moved = pair.step(turn % 2, chunks[turn % chunks.len()]);
            idle = if moved { 0 } else { idle + 1 };
            turn += 1;
            while answered < ids.len() && pair.received[1].contains_key(&ids[answered]) {
                let id = ids[answered];
                pair.ends[1].send_headers(id, &ok, false).unwrap();
                pair.ends[1].send_data(id, b"", &body(bodies[answered].1, !id), false).unwrap();
                pair.ends[1].send_headers(id, &trailers, true).unwrap();
                answered += 1;
            }
        }
        for (&id, &(up, down, _)) in ids.iter().zip(&bodies) {
            prop_assert!(pair.received[1][&id] == (body(up, id), true), "the request of {}", id);
            prop_assert!(pair.received[0][&id] == (body(down, !id), true), "the response of {}", id);
        }
        prop_assert_eq!(pair.ends[0].active_streams() + pair.ends[1].active_streams(), 0);
        prop_assert_eq!(pair.ends.iter().flat_map(|e| e.counters().iter()).count(), 0);
    }

    #[test]
    fn random_bytes_never_grow_memory(
        frames in proptest::collection::vec(
            (0u8..12, any::<u8>(), 0u32..9, proptest::collection::vec(any::<u8>(), 0..40)),
            0..60,
        ),
        is_server: bool,
    ) {
        let mut conn = if is_server { server() } else { client() };
        for (kind, flags, stream, payload) in frames {
            if feed(&mut conn, &frame(kind, flags, stream, &payload)).is_err() {
                break;
            }
            conn.handle_timeout(NOW).unwrap();
        }
        prop_assert!(conn.output().len() < 64 << 10);
    }
}
