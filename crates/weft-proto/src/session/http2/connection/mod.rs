//! One HTTP/2 connection, as a client or as a server.
//!
//! | file | what is in it |
//! | --- | --- |
//! | `recv` | frames from the peer to events |
//! | `send` | headers, data and resets to frames |
//! | `flow` | both directions' windows, and data that waits for one |
//! | `settings` | what the two sides told each other |
//! | `timers` | everything that happens without input |
//! | `streams`, `output` | the state of streams, and bytes to be sent |
//! | `limits` | what a peer may do, and what it did |

mod flow;
pub mod limits;
mod output;
mod recv;
mod send;
mod settings;
mod streams;
mod timers;

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;

use weft_core::{Interval, Time};

use self::flow::RecvWindow;
use self::limits::{Budgets, STREAMS_BEFORE_SETTINGS};
pub use self::limits::{Counters, Violation};
use self::output::Output;
use self::recv::Parser;
pub use self::send::SendError;
use self::settings::PeerSettings;
use self::streams::{Ending, Slot, Streams};
use self::timers::Timers;
use super::frame::{ErrorCode, PREFACE, STREAM_ID_MAX, WINDOW_INITIAL, kind};
use super::headers::Headers;
use super::hpack::{BlockDecoder, BlockEncoder, TABLE_BYTES_INITIAL};

/// The number of a stream: odd, because only clients open streams here.
pub type StreamId = u32;

/// The end of the connection that we are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// We open streams.
    Client,
    /// The peer opens streams.
    Server,
}

/// What we permit the peer, and how long we wait for it.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which end we are.
    pub role: Role,
    /// Streams that may be open at a time: the peer's for a server, ours for a client.
    pub max_concurrent_streams: u32,
    /// Received bytes of one stream that its owner has not released yet, up to 2^31-1.
    pub initial_window: u32,
    /// What the peer may send on all streams together before it hears from us, 65,535 to 2^31-1 bytes.
    pub connection_window: u32,
    /// Bytes of all streams that came, or may come, and were not released; at least `connection_window`.
    ///
    /// Below it the connection's window is given back as data comes, so that a stream whose owner does not release
    /// holds up no other stream of the connection. It is thus what the data of one peer can cost in memory.
    pub connection_held_max: u32,
    /// Largest payload of a frame that we take, 16,384 to 16,777,215 bytes.
    pub max_frame_size: u32,
    /// Largest header list, in bytes as RFC 7541 section 4.1 counts them. A larger one ends its stream; see
    /// [`limits::HEADER_BLOCK_BYTES_MAX`] for what ends the connection.
    pub max_header_list_size: u32,
    /// Size of the peer's compression table that we hold, up to [`limits::HEADER_TABLE_BYTES_MAX`] bytes.
    pub header_table_size: u32,
    /// Time until the peer's preface and SETTINGS must be here.
    pub preface_timeout: Interval,
    /// Time until our SETTINGS must be acknowledged.
    pub settings_timeout: Interval,
    /// When to ask whether the peer is still there; none to never ask.
    pub keepalive: Option<Keepalive>,
    /// Time for which queued data may wait for a window before its stream is reset.
    pub stall_timeout: Interval,
    /// Streams that the peer may reset, or make us reset, at once.
    pub resets_max: u32,
    /// By how many that grows back each second.
    pub resets_per_s: u32,
}

impl Config {
    /// Limits for a server that does not know its clients: 256 streams of up to 64 KiB, 16 MiB together at most.
    ///
    /// A client that is silent for a minute is asked whether it is there, with streams or without: each connection
    /// costs memory, and clients answer any number of PINGs.
    pub fn server() -> Self {
        Self {
            role: Role::Server,
            max_concurrent_streams: 256,
            initial_window: WINDOW_INITIAL,
            connection_window: 1 << 20,
            connection_held_max: 16 << 20,
            max_frame_size: 1 << 14,
            max_header_list_size: 16 << 10,
            header_table_size: TABLE_BYTES_INITIAL,
            preface_timeout: Interval::from_secs(10),
            settings_timeout: Interval::from_secs(20),
            keepalive: Some(Keepalive {
                interval: Interval::from_secs(60),
                timeout: Interval::from_secs(20),
                without_streams: true,
            }),
            stall_timeout: Interval::from_secs(60),
            resets_max: limits::RESETS_MAX,
            resets_per_s: limits::RESETS_PER_S,
        }
    }

    /// Limits for a client of a server that somebody chose: up to 1024 streams, and the server decides.
    ///
    /// A server that owes answers and is silent for 30 s is asked whether it is there. One that owes nothing is
    /// left alone: gRPC servers end connections on which they are asked without need
    /// ([A8](https://github.com/grpc/proposal/blob/master/A8-client-side-keepalive.md)).
    pub fn client() -> Self {
        Self {
            role: Role::Client,
            max_concurrent_streams: 1024,
            connection_window: 4 << 20,
            keepalive: Some(Keepalive {
                interval: Interval::from_secs(30),
                timeout: Interval::from_secs(10),
                without_streams: false,
            }),
            ..Self::server()
        }
    }
}

/// When a silent peer is asked by a PING whether it is still there (RFC 9113 section 6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence after which it is asked. A server that only answers PINGs is soon asked less often, see
    /// [`limits::QUICK_PINGS_MAX`].
    pub interval: Interval,
    /// Silence after the question which ends the connection with [`Violation::KeepaliveTimeout`].
    pub timeout: Interval,
    /// Ask also while no stream is open.
    pub without_streams: bool,
}

/// What a peer's bytes meant.
#[derive(Debug)]
pub enum Event<'i> {
    /// A request (for a server), a response (for a client), or trailers. Informational responses are skipped.
    Headers {
        /// The stream, which a request has just opened.
        stream: StreamId,
        /// The list, which is well formed.
        headers: Rc<Headers>,
        /// The peer sends nothing more on this stream. Always true for trailers.
        end_stream: bool,
        /// The list comes behind the body.
        trailers: bool,
    },
    /// Part of a body. A DATA frame may come in several parts.
    Data {
        /// The stream.
        stream: StreamId,
        /// The bytes; they are part of the input. Empty only with `end_stream`.
        data: &'i [u8],
        /// What to give to [`Connection::release`] once the data is consumed: its length and that of padding.
        flow_len: u32,
        /// The peer sends nothing more on this stream.
        end_stream: bool,
    },
    /// The stream is gone. What was queued on it is dropped.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Who ended it, and why.
        by: ResetBy,
    },
    /// All queued data of the stream went out, and more may be sent.
    Unblocked {
        /// The stream.
        stream: StreamId,
    },
    /// The peer takes no new streams. Those of ours above `last_stream` are gone; the peer has not touched
    /// them, so what they asked for can be asked again elsewhere.
    GoAway {
        /// The last stream that the peer may have acted on.
        last_stream: StreamId,
        /// Why.
        code: ErrorCode,
    },
    /// The peer's settings came or changed: [`Connection::open`] may now succeed.
    StreamsAvailable,
}

/// Who reset a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetBy {
    /// The peer, for this reason.
    Peer(ErrorCode),
    /// This end, because the peer broke a rule of its stream, or left no window for too long.
    Us(Violation),
}

/// The connection is over. A GOAWAY is in the output; send that and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// What the peer did.
    pub violation: Violation,
}

impl ConnectionError {
    /// The code that the peer is told.
    pub fn code(&self) -> ErrorCode {
        self.violation.code()
    }
}

impl fmt::Display for ConnectionError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the peer violated HTTP/2: {} ({})", self.violation.name(), self.code())
    }
}

impl std::error::Error for ConnectionError {}

/// What a client of HTTP/1.1 is told (RFC 9110 section 15.6.6).
const HTTP1_ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
    content-type: text/plain\r\n\
    content-length: 59\r\n\
    connection: close\r\n\r\n\
    This port speaks gRPC: HTTP/2 with prior knowledge, no TLS\n";
/// What a client of TLS is told: the fatal alert `protocol_version` (RFC 8446 section 6.2).
const TLS_ALERT: [u8; 7] = [21, 3, 1, 0, 2, 2, 70];

/// An HTTP/2 connection without its socket.
///
/// - Give it what arrived: [`Self::handle_input`], again and again until it consumes nothing and returns no event.
/// - Send what it wants to send: [`Self::output`] and [`Self::advance_output`], after any other call.
/// - Wake it at [`Self::poll_timeout`] with [`Self::handle_timeout`], then take events with [`Self::poll_event`].
/// - Release what was consumed of every [`Event::Data`], also of streams that have ended since.
pub struct Connection {
    config: Config,
    /// The latest time that we were told.
    now: Time,
    phase: Phase,
    parser: Parser,
    decoder: BlockDecoder,
    encoder: BlockEncoder,
    streams: Streams,
    output: Output,
    /// What the peer may send.
    recv_window: RecvWindow,
    /// What we may send on all streams together, in bytes.
    send_window: i32,
    peer: PeerSettings,
    /// Our settings, which come first, were written.
    is_greeted: bool,
    /// Whether the peer knows our settings.
    is_settings_acked: bool,
    /// Events that do not borrow from the input.
    notices: VecDeque<Event<'static>>,
    /// Streams with queued data that only the connection's window holds back, in the order of their turns.
    blocked: VecDeque<StreamId>,
    /// For a client: the stream that it opens next. For a server: the last one that the peer opened.
    stream_mark: StreamId,
    /// The last stream on which a client has sent its request.
    last_request: StreamId,
    drain: Drain,
    timers: Timers,
    budgets: Budgets,
    counters: Counters,
}

/// How far the two sides have met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The client's preface is to come.
    Preface,
    /// The peer's SETTINGS are to come.
    Settings,
    Open,
    /// After a connection error.
    Failed,
}

/// How far the end of the connection has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// A server said that it will take no new streams, and asked with a PING whether the client has heard.
    Announced,
    /// No stream above this is taken any more.
    Ours(StreamId),
    /// The peer said so.
    Peers,
}

impl Connection {
    /// A connection whose socket is open. The output holds the preface, SETTINGS, and the connection's window.
    pub fn new(mut config: Config, now: Time) -> Self {
        settings::clamp(&mut config);
        let is_client = config.role == Role::Client;
        let mut connection = Self {
            now,
            phase: if is_client { Phase::Settings } else { Phase::Preface },
            parser: Parser::default(),
            decoder: BlockDecoder::new(
                config.header_table_size.max(TABLE_BYTES_INITIAL),
                config.max_header_list_size,
            ),
            encoder: BlockEncoder::new(),
            streams: Streams::default(),
            output: Output::default(),
            recv_window: RecvWindow::new(config.connection_window, config.connection_held_max),
            send_window: WINDOW_INITIAL as i32,
            peer: PeerSettings::default(),
            is_greeted: false,
            is_settings_acked: false,
            notices: VecDeque::new(),
            blocked: VecDeque::new(),
            stream_mark: if is_client { 1 } else { 0 },
            last_request: 0,
            drain: Drain::No,
            timers: Timers::new(&config, now),
            budgets: Budgets::new((config.resets_max, config.resets_per_s), now),
            counters: Counters::new(),
            config,
        };
        if is_client {
            connection.output.write_raw(PREFACE);
            connection.greet();
        }
        connection
    }

    /// Takes over what the peer was not told of a configuration: keepalive and the budget of resets.
    pub fn configure(&mut self, config: &Config) {
        self.config.keepalive = config.keepalive;
        (self.config.resets_max, self.config.resets_per_s) = (config.resets_max, config.resets_per_s);
        self.budgets.set_resets(config.resets_max, config.resets_per_s);
    }

    /// Bytes to be sent, in order. They stay until [`Self::advance_output`].
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Bytes of the output that were sent, since the start; those of [`Self::output`] are behind them.
    pub fn n_sent(&self) -> u64 {
        self.output.n_taken()
    }

    /// Whether the output should leave at once. Answers to PING may wait for bytes to travel with, for about a
    /// millisecond: common gRPC peers send a PING with every message to learn the bandwidth, and a system call and a
    /// wake-up for each answer is a quarter of what a lone call costs.
    pub fn is_output_urgent(&self) -> bool {
        self.output.is_urgent()
    }

    /// The first `n` bytes of [`Self::output`] were sent.
    ///
    /// # Panics
    /// When there were fewer.
    pub fn advance_output(&mut self, n: usize) {
        self.output.advance(n);
    }

    /// The next event that needs no input, such as what a timeout led to.
    pub fn poll_event(&mut self) -> Option<Event<'static>> {
        self.notices.pop_front()
    }

    /// Whether nothing more will happen: after an error, or when the last stream of a draining connection has
    /// ended. Send the output, then close the socket.
    pub fn is_closed(&self) -> bool {
        match self.drain {
            _ if self.phase == Phase::Failed => true,
            Drain::Ours(_) | Drain::Peers => self.streams.is_empty(),
            Drain::No | Drain::Announced => false,
        }
    }

    /// Whether either side has said that it takes no new streams.
    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No || self.phase == Phase::Failed
    }

    /// Number of streams that have not ended.
    pub fn active_streams(&self) -> usize {
        self.streams.len()
    }

    /// What the peer did wrong, by reason.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether `stream` has not ended in both directions.
    pub fn is_active(&self, stream: StreamId) -> bool {
        self.streams.find(stream).is_some()
    }

    /// How many streams [`Self::open`] would give now.
    pub fn available_streams(&self) -> u32 {
        if self.config.role == Role::Server || self.is_draining() || self.stream_mark > STREAM_ID_MAX {
            return 0;
        }
        let max = self.peer.max_streams.unwrap_or(if self.peer.is_known {
            u32::MAX
        } else {
            STREAMS_BEFORE_SETTINGS
        });
        let max = max.min(self.config.max_concurrent_streams);
        max.saturating_sub(self.streams.len() as u32).min((STREAM_ID_MAX - self.stream_mark) / 2 + 1)
    }

    /// Ends the connection for something that the peer did.
    fn fail(&mut self, violation: Violation) -> ConnectionError {
        self.counters.note(violation);
        match violation {
            // In words that the peer understands.
            Violation::Http1 if !self.is_greeted => self.output.write_raw(HTTP1_ANSWER),
            Violation::Tls if !self.is_greeted => self.output.write_raw(&TLS_ALERT),
            _ => self.write_go_away(self.last_peer_stream(), violation.code()),
        }
        self.phase = Phase::Failed;
        (self.streams, self.parser) = (Streams::default(), Parser::default());
        self.notices.clear();
        self.blocked.clear();
        ConnectionError { violation }
    }

    /// Ends a stream for something that the peer did: tells the peer, and the owner if it knows the stream.
    fn fail_stream(&mut self, stream: StreamId, violation: Violation) -> Result<(), Violation> {
        self.counters.note(violation);
        let code = violation.code();
        if let Some(slot) = self.streams.find(stream) {
            self.remove(slot, Ending::ResetByUs);
            self.notices.push_back(Event::Reset { stream, by: ResetBy::Us(violation) });
        } else {
            self.streams.remember(stream, Ending::ResetByUs);
        }
        self.write_reset(stream, code);
        if self.config.role == Role::Server {
            self.budgets.resets.spend(Violation::RapidReset)?;
        }
        self.check_output()
    }

    /// Takes a stream out of the table.
    fn remove(&mut self, slot: Slot, ending: Ending) {
        self.streams.remove(slot, ending);
        if ending == Ending::Complete {
            self.budgets.resets.earn(1);
        }
    }

    /// Writes our settings, unless they were.
    fn greet(&mut self) {
        if !core::mem::replace(&mut self.is_greeted, true) {
            self.write_settings();
        }
    }

    fn write_reset(&mut self, stream: StreamId, code: ErrorCode) {
        self.counters.resets_sent += 1;
        self.output.write_control(kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
    }

    fn write_go_away(&mut self, last_stream: StreamId, code: ErrorCode) {
        self.greet();
        let payload = (u64::from(last_stream) << 32 | u64::from(code as u32)).to_be_bytes();
        self.output.write_frame(kind::GOAWAY, 0, 0, &payload);
    }

    /// An error when the peer lets too many answers pile up.
    fn check_output(&self) -> Result<(), Violation> {
        let is_flooded = self.output.n_controls() > limits::OUTPUT_CONTROLS_MAX;
        if is_flooded { Err(Violation::OutputFlood) } else { Ok(()) }
    }

    /// The last stream that the peer opened and that we took.
    fn last_peer_stream(&self) -> StreamId {
        match self.drain {
            _ if self.config.role == Role::Client => 0,
            Drain::Ours(last) => last,
            Drain::No | Drain::Announced | Drain::Peers => self.stream_mark,
        }
    }

    /// Whether a stream was never opened, so that no frame about it makes sense.
    fn is_idle(&self, stream: StreamId) -> bool {
        match self.config.role {
            Role::Client => stream.is_multiple_of(2) || stream > self.last_request,
            Role::Server => stream.is_multiple_of(2) || stream > self.stream_mark,
        }
    }
}
