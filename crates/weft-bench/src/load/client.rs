//! `weft bench-client`: a gRPC client in a closed loop with a number of calls in flight.

use std::io::{self, ErrorKind};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Args;
use mio::net::TcpStream;
use mio::{Events, Poll, Token};
use rustc_hash::FxHashMap;
use serde_json::{Value, json};
use weft_core::{Interval, Status, Time};
use weft_engine::stats::Histogram;
use weft_proto::session::http2::{Config, Connection, Event, Headers, StreamId};

use super::server::headers;
use super::wire::{Handler, Wire, invalid, since};
use super::{PATH, USERS, message};
use crate::process;

/// Received bytes of a connection before they are processed.
const CONNECTION_WINDOW: u32 = 16 << 20;
/// Readiness events per wait.
const EVENTS: usize = 64;
/// A run without any answer for this time has failed.
const SILENCE_MAX: Duration = Duration::from_secs(10);

/// The options of `weft bench-client`.
#[derive(Args, Clone, Debug)]
pub struct ClientArgs {
    /// The address to call.
    #[arg(long, value_name = "ADDRESS")]
    target: SocketAddr,
    /// Calls in flight, dealt out to the connections.
    #[arg(long, default_value_t = 128, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    in_flight: u32,
    /// Connections.
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    connections: u32,
    /// How long calls are counted, in milliseconds.
    #[arg(long, default_value_t = 5000, value_name = "MS")]
    duration_ms: u64,
    /// How long calls are made before they are counted, in milliseconds.
    #[arg(long, default_value_t = 1000, value_name = "MS")]
    warm_up_ms: u64,
}

/// The result of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct LoadResult {
    /// Calls that ended while counting.
    pub(crate) calls: u64,
    /// All calls, with those of the warm-up: the divisor of the processes' CPU time.
    pub(crate) calls_all: u64,
    pub(crate) calls_per_s: f64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
    /// Calls with status OK, with another status, and wrong answers.
    pub(crate) ok: u64,
    pub(crate) not_ok: u64,
    pub(crate) wrong: u64,
    /// Calls without an answer within 10 s.
    pub(crate) lost: u64,
    /// CPU time of the client, in microseconds per call.
    pub(crate) cpu_us_per_call: f64,
}

impl LoadResult {
    /// Parses the line that `weft bench-client` prints.
    pub(crate) fn from_json(text: &str) -> Option<Self> {
        let value: Value = serde_json::from_str(text).ok()?;
        let number = |name: &str| value.get(name)?.as_f64();
        Some(Self {
            calls: number("calls")? as u64,
            calls_all: number("calls_all")? as u64,
            calls_per_s: number("calls_per_s")?,
            mean_us: number("mean_us")?,
            p50_us: number("p50_us")?,
            p99_us: number("p99_us")?,
            ok: number("ok")? as u64,
            not_ok: number("not_ok")? as u64,
            wrong: number("wrong")? as u64,
            lost: number("lost")? as u64,
            cpu_us_per_call: number("cpu_us_per_call")?,
        })
    }
}

/// Makes calls for the requested time, and returns a JSON object with the fields of [`LoadResult`] and the calls of
/// each status by name.
///
/// # Errors
/// An error of the system; a violation of HTTP/2; no answer for 10 s.
pub(crate) fn run(args: &ClientArgs) -> io::Result<Value> {
    let start = Instant::now();
    let mut poll = Poll::new()?;
    let mut wires = connect(args, &poll, start)?;
    let warm = since(start) + Interval::from_millis(args.warm_up_ms as i64);
    let end = warm + Interval::from_millis(args.duration_ms as i64);
    let mut calls = Calls::new(start);
    let mut events = Events::with_capacity(EVENTS);
    let mut warmed = None;
    for (wire, flights) in &mut wires {
        calls.fill(&mut wire.http2, flights)?;
    }
    let mut result = None;
    while result.is_none() || wires.iter().any(|(_, flights)| !flights.open.is_empty()) {
        let now = since(start);
        if now >= end && result.is_none() {
            result = Some(calls.result((now - warmed.unwrap_or(end)).as_secs_f64()));
            calls.is_over = true;
            continue;
        }
        if now >= warm && warmed.is_none() {
            warmed = Some(now);
            calls.counts = CallCounts::default();
        }
        match poll.poll(&mut events, Some(SILENCE_MAX)) {
            Err(error) if error.kind() == ErrorKind::Interrupted => continue,
            other => other?,
        }
        if events.is_empty() {
            break;
        }
        for event in &events {
            let (wire, flights) = &mut wires[event.token().0];
            let mut turn = EventContext { calls: &mut calls, flights };
            if event.is_readable() && !wire.read(since(start), &mut turn)? {
                return Err(io::Error::new(ErrorKind::ConnectionReset, "the server closed a connection"));
            }
            wire.write()?;
        }
    }
    let Some(mut result) = result else {
        return Err(io::Error::new(ErrorKind::TimedOut, "no answer for 10 s"));
    };
    let lost: usize = wires.iter().map(|(_, flights)| flights.open.len()).sum();
    result["lost"] = json!(lost);
    Ok(result)
}

/// A connection and its calls.
type Client = (Wire, Flights);

/// Opens the connections, at most one per call in flight.
fn connect(args: &ClientArgs, poll: &Poll, start: Instant) -> io::Result<Vec<Client>> {
    let connections = args.connections.min(args.in_flight);
    let mut clients = Vec::new();
    for index in 0..connections {
        // A blocking connect reports a refusal at once and by name.
        let socket = std::net::TcpStream::connect(args.target)?;
        socket.set_nodelay(true)?;
        socket.set_nonblocking(true)?;
        let config = Config {
            max_concurrent_streams: args.in_flight,
            connection_window: CONNECTION_WINDOW,
            ..Config::client()
        };
        let token = Token(index as usize);
        let socket = TcpStream::from_std(socket);
        let wire = Wire::new(socket, poll.registry(), token, config, since(start))?;
        let share = args.in_flight / connections + u32::from(index < args.in_flight % connections);
        clients.push((wire, Flights { wanted: share as usize, open: FxHashMap::default() }));
    }
    Ok(clients)
}

/// The calls under way on one connection.
struct Flights {
    wanted: usize,
    open: FxHashMap<StreamId, Flight>,
}

/// A call under way.
struct Flight {
    sent: Time,
    user: u32,
    /// Bytes of the message that have come back, and were right.
    echoed: u32,
    is_wrong: bool,
}

/// The state that all calls share.
struct Calls {
    start: Instant,
    requests: Vec<(Rc<Headers>, Vec<u8>)>,
    next_user: usize,
    all: u64,
    /// Starts no more calls.
    is_over: bool,
    counts: CallCounts,
}

#[derive(Default)]
struct CallCounts {
    latency: Histogram,
    statuses: [u64; Status::ALL.len()],
    wrong: u64,
}

impl Calls {
    /// The client's calls and counts at the start: one request for each user, nothing counted.
    fn new(start: Instant) -> Self {
        let request = |n| {
            let user = format!("u{n}");
            (request_headers(&user), message(&user))
        };
        Self {
            start,
            requests: (0..USERS).map(request).collect(),
            next_user: 0,
            all: 0,
            is_over: false,
            counts: CallCounts::default(),
        }
    }

    /// Starts calls until enough are in flight, or the server accepts no more.
    fn fill(&mut self, http2: &mut Connection, flights: &mut Flights) -> io::Result<()> {
        while flights.open.len() < flights.wanted && !self.is_over {
            let Some(stream) = http2.open() else {
                let is_over = http2.is_draining() && flights.open.is_empty();
                return if is_over { Err(invalid("the server takes no more calls")) } else { Ok(()) };
            };
            let user = self.next_user;
            self.next_user = (user + 1) % USERS;
            let (headers, body) = &self.requests[user];
            http2.send_headers(stream, headers, false).map_err(invalid)?;
            http2.send_data(stream, b"", body, true).map_err(invalid)?;
            let sent = since(self.start);
            flights.open.insert(stream, Flight { sent, user: user as u32, echoed: 0, is_wrong: false });
        }
        Ok(())
    }

    /// Counts an ended call: its status, its latency, and whether its answer was wrong or incomplete.
    fn end(&mut self, flight: &Flight, status: Option<Status>) {
        let whole = self.requests[flight.user as usize].1.len() as u32;
        let is_complete = status != Some(Status::Ok) || flight.echoed == whole;
        self.all += 1;
        self.counts.wrong += u64::from(flight.is_wrong || !is_complete);
        self.counts.statuses[usize::from(status.unwrap_or(Status::Unknown).code())] += 1;
        self.counts.latency.record(since(self.start) - flight.sent);
    }

    /// The results as JSON, for `seconds` of measured time.
    fn result(&self, seconds: f64) -> Value {
        let CallCounts { latency, statuses, wrong } = &self.counts;
        let us = |time: Interval| time.0 as f64 / 1e3;
        let ok = statuses[usize::from(Status::Ok.code())];
        let by_name = Status::ALL.iter().filter(|s| statuses[usize::from(s.code())] > 0);
        let by_name: serde_json::Map<_, _> =
            by_name.map(|s| (s.name().to_owned(), json!(statuses[usize::from(s.code())]))).collect();
        json!({
            "calls": latency.count(),
            "calls_all": self.all,
            "seconds": seconds,
            "calls_per_s": latency.count() as f64 / seconds,
            "mean_us": us(latency.mean()),
            "p50_us": us(latency.quantile(0.5)),
            "p99_us": us(latency.quantile(0.99)),
            "ok": ok,
            "not_ok": latency.count() - ok,
            "wrong": wrong,
            "cpu_us_per_call": process::own_cpu_s() * 1e6 / self.all.max(1) as f64,
            "statuses": by_name,
        })
    }
}

/// The context of a connection's events.
struct EventContext<'a> {
    calls: &'a mut Calls,
    flights: &'a mut Flights,
}

impl Handler for EventContext<'_> {
    fn handle(&mut self, http2: &mut Connection, event: Event<'_>) -> io::Result<()> {
        match event {
            Event::Headers { stream, headers, end_stream, .. } if end_stream => {
                let status = headers.get(b"grpc-status").and_then(status);
                self.ended(http2, stream, status)?;
            }
            Event::Headers { stream, headers, .. } => {
                if headers.status() != Some(200)
                    && let Some(flight) = self.flights.open.get_mut(&stream)
                {
                    flight.is_wrong = true;
                }
            }
            Event::Data { stream, data, flow_len, end_stream } => {
                http2.release(stream, flow_len);
                self.compare(stream, data);
                if end_stream {
                    // A body without trailers is no gRPC answer.
                    self.ended(http2, stream, None)?;
                }
            }
            Event::Reset { stream, .. } => self.ended(http2, stream, None)?,
            Event::GoAway { .. } => return Err(invalid("the server ended the connection")),
            Event::StreamsAvailable => self.calls.fill(http2, self.flights)?,
            Event::Unblocked { .. } => {}
        }
        Ok(())
    }
}

impl EventContext<'_> {
    /// Compares a part of an answer with the bytes that were sent.
    fn compare(&mut self, stream: StreamId, data: &[u8]) {
        let Some(flight) = self.flights.open.get_mut(&stream) else { return };
        let sent = &self.calls.requests[flight.user as usize].1;
        let is_right = sent[flight.echoed as usize..].starts_with(data);
        flight.is_wrong |= !is_right;
        flight.echoed += if is_right { data.len() as u32 } else { 0 };
    }

    fn ended(&mut self, http2: &mut Connection, stream: StreamId, status: Option<Status>) -> io::Result<()> {
        let Some(flight) = self.flights.open.remove(&stream) else { return Ok(()) };
        self.calls.end(&flight, status);
        self.calls.fill(http2, self.flights)
    }
}

/// The fields of a request, in the order of grpc-go.
fn request_headers(user: &str) -> Rc<Headers> {
    headers(&[
        (":method", "POST"),
        (":scheme", "http"),
        (":path", PATH),
        (":authority", "echo.bench"),
        ("content-type", "application/grpc"),
        ("user-agent", "grpc-weft-bench"),
        ("te", "trailers"),
        ("user", user),
    ])
}

fn status(value: &[u8]) -> Option<Status> {
    Status::from_code(core::str::from_utf8(value).ok()?.parse().ok()?)
}
