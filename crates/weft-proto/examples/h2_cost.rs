//! Measures the cost of a proxy's two HTTP/2 connections per unary call.
//!
//! ```text
//! cargo run --release -p weft-proto --example h2_cost [calls] [in flight] [deadlines]
//! ```
//! A client and a server exchange calls through a proxy, which is a server connection and a client connection. Their
//! bytes are prepared outside of the measured time, as far as they do not depend on the proxy. A call has request
//! headers with one of 100 users, 40 bytes of data, response headers, 40 bytes, and trailers. With `deadlines` 1, each
//! request also has a
//! `grpc-timeout` that never repeats, so that no cache contains its block. Prints the time of the proxy's part alone,
//! and of all four connections. Under callgrind, look at `Proxy::forward`.

#![allow(clippy::print_stdout, reason = "it prints its result")]
#![allow(clippy::disallowed_types, clippy::disallowed_methods, reason = "it measures time and memory")]

use std::rc::Rc;
use std::time::{Duration, Instant};

use weft_core::Time;
use weft_proto::session::http2::{Config, Connection, Event, Headers, HeadersBuilder, StreamId};

const USERS: usize = 100;
const PREFIX: [u8; 5] = [0, 0, 0, 0, 40];
const MESSAGE: [u8; 40] = [7; 40];

/// The order of `Proxy::ends` and of their peers.
const DOWN: usize = 0;
const UP: usize = 1;

/// More than the streams in flight.
const ROUTES_MAX: usize = 4096;

struct Proxy {
    ends: [Connection; 2],
    /// By end and half of the stream's identifier: the stream of the other end, or 0.
    routes: [[StreamId; ROUTES_MAX]; 2],
}

impl Proxy {
    /// Processes the input of one end and forwards it to the other.
    #[inline(never)]
    fn forward(&mut self, from: usize, input: &[u8]) {
        let mut rest = input;
        loop {
            let (n, event) = self.ends[from].handle_input(Time(0), rest).expect("a correct peer");
            rest = &rest[n..];
            match event {
                Some(Event::Headers { stream, headers, end_stream, .. }) => {
                    if from == DOWN {
                        let to = self.ends[UP].open().expect("a free stream");
                        self.routes[DOWN][route(stream)] = to;
                        self.routes[UP][route(to)] = stream;
                    }
                    let to = self.routes[from][route(stream)];
                    self.ends[1 - from].send_headers(to, &headers, end_stream).expect("an open stream");
                }
                Some(Event::Data { stream, data, flow_len, end_stream }) => {
                    let to = self.routes[from][route(stream)];
                    self.ends[1 - from].send_data(to, &[], data, end_stream).expect("an open stream");
                    self.ends[from].release(stream, flow_len);
                }
                Some(_) => {}
                None if n == 0 => break,
                None => {}
            }
        }
        assert!(rest.is_empty(), "every frame is complete");
    }
}

fn route(stream: StreamId) -> usize {
    (stream >> 1) as usize % ROUTES_MAX
}

fn list(fields: &[(&str, &str)]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::new();
    for (name, value) in fields {
        builder.push(name.as_bytes(), value.as_bytes()).expect("a correct field");
    }
    builder.build()
}

fn request(user: usize) -> Rc<Headers> {
    list(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", "/shop.Cart/AddItem"),
        (":authority", "cart.shop.svc:50051"),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-go/1.71.0"),
        ("te", "trailers"),
        ("user", &format!("u{user}")),
    ])
}

/// Moves all output of a connection into `wire`.
fn take(conn: &mut Connection, wire: &mut Vec<u8>) {
    wire.clear();
    wire.extend_from_slice(conn.output());
    conn.advance_output(wire.len());
}

/// Feeds a peer and returns the streams whose messages have ended.
fn drain(conn: &mut Connection, input: &[u8], ended: &mut Vec<StreamId>) {
    let mut rest = input;
    loop {
        let (n, event) = conn.handle_input(Time(0), rest).expect("a correct proxy");
        rest = &rest[n..];
        match event {
            Some(Event::Headers { stream, end_stream: true, .. }) => ended.push(stream),
            Some(Event::Data { stream, flow_len, end_stream, .. }) => {
                conn.release(stream, flow_len);
                if end_stream {
                    ended.push(stream);
                }
            }
            Some(_) => {}
            None if n == 0 => return,
            None => {}
        }
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|a| a.parse::<usize>().expect("a number"));
    let calls = arguments.next().unwrap_or(1_000_000);
    let in_flight = arguments.next().unwrap_or(32);
    let has_deadlines = arguments.next().is_some_and(|n| n > 0);

    let new = |config| Connection::new(config, Time(0));
    let (mut client, mut server) = (new(Config::client()), new(Config::server()));
    let mut proxy =
        Proxy { ends: [new(Config::server()), new(Config::client())], routes: [[0; ROUTES_MAX]; 2] };
    let requests: Vec<_> = (0..USERS).map(request).collect();
    let response = list(&[(":status", "200"), ("content-type", "application/grpc")]);
    let trailers = list(&[("grpc-status", "0"), ("grpc-message", "")]);

    let (mut wire, mut ended) = (Vec::new(), Vec::new());
    let (mut in_proxy, start) = (Duration::ZERO, Instant::now());
    let (mut done, mut sent) = (0, 0);
    let mut bytes = 0;
    while done < calls {
        while sent - done < in_flight {
            let Some(stream) = client.open() else { break };
            let mut request = requests[sent * 7 % USERS].clone();
            if has_deadlines {
                let mut edit = HeadersBuilder::from_headers(&request);
                edit.push(b"grpc-timeout", format!("{sent}u").as_bytes()).expect("a correct field");
                request = edit.build();
            }
            client.send_headers(stream, &request, false).expect("an open stream");
            client.send_data(stream, &PREFIX, &MESSAGE, true).expect("an open stream");
            sent += 1;
        }
        for (from, peer) in [(DOWN, &mut client), (UP, &mut server)] {
            take(peer, &mut wire);
            bytes += wire.len();
            let before = Instant::now();
            proxy.forward(from, &wire);
            in_proxy += before.elapsed();
        }
        take(&mut proxy.ends[UP], &mut wire);
        drain(&mut server, &wire, &mut ended);
        for stream in ended.drain(..) {
            server.send_headers(stream, &response, false).expect("an open stream");
            server.send_data(stream, &PREFIX, &MESSAGE, false).expect("an open stream");
            server.send_headers(stream, &trailers, true).expect("an open stream");
        }
        take(&mut proxy.ends[DOWN], &mut wire);
        drain(&mut client, &wire, &mut ended);
        done += ended.drain(..).count();
    }
    let per_call = |time: Duration| time.as_nanos() as f64 / calls as f64;
    println!(
        "calls {calls}, in flight {in_flight}, {:.0} bytes a call into the proxy",
        bytes as f64 / calls as f64
    );
    println!("proxy: {:.0} ns a call (two connections, both directions)", per_call(in_proxy));
    println!("all four connections: {:.0} ns a call", per_call(start.elapsed()));
    println!("size of a connection: {} bytes, without its heap", size_of::<Connection>());
    idle(10_000);
}

/// Measures the memory of idle connections.
fn idle(n: usize) {
    let before = resident_bytes();
    let connections: Vec<_> = (0..n)
        .map(|_| {
            let mut client = Connection::new(Config::client(), Time(0));
            let mut server = Connection::new(Config::server(), Time(0));
            let (mut wire, mut ended) = (Vec::new(), Vec::new());
            for _ in 0..2 {
                take(&mut client, &mut wire);
                drain(&mut server, &wire, &mut ended);
                take(&mut server, &mut wire);
                drain(&mut client, &wire, &mut ended);
            }
            while let Some(at) = server.poll_timeout() {
                server.handle_timeout(at).expect("a correct peer");
            }
            server
        })
        .collect();
    let each = (resident_bytes() - before) / connections.len();
    println!("{n} idle server connections: {each} bytes each, all included");
}

/// Resident memory of this process in bytes; 0 if the system does not report it.
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).unwrap_or(0) * 4096
}
