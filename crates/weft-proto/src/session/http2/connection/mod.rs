//! An HTTP/2 connection, as a client or as a server.
//!
//! | file | content |
//! | --- | --- |
//! | `recv` | frames from the peer to events |
//! | `send` | headers, data and resets to frames |
//! | `flow` | windows in both directions, and data that waits for one |
//! | `settings` | SETTINGS in both directions |
//! | `timers` | timeouts |
//! | `streams`, `output` | the state of streams, and the output buffer |
//! | `limits` | limits on the peer, and counters |

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

/// A stream identifier: odd, because only clients open streams here.
pub type StreamId = u32;

/// Our end of the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Role {
    /// We open streams.
    Client,
    /// The peer opens streams.
    Server,
}

/// The limits for the peer, and timeouts.
#[derive(Clone, Debug)]
pub struct Config {
    /// Our end of the connection.
    pub role: Role,
    /// Maximum number of concurrent streams: the peer's for a server, ours for a client.
    pub max_concurrent_streams: u32,
    /// Maximum unreleased data of a stream, in bytes, up to 2^31-1.
    pub initial_window: u32,
    /// What the peer may send on all streams together without a WINDOW_UPDATE, 65,535 to 2^31-1 bytes.
    pub connection_window: u32,
    /// Maximum unreleased data of all streams, including data that may still come; at least `connection_window`, in
    /// bytes.
    ///
    /// Below it the connection's window is returned as data arrives, so that a stream whose owner does not release its
    /// data blocks no other stream. So it bounds the memory for one peer's data.
    pub connection_held_max: u32,
    /// Maximum payload of a received frame, 16,384 to 16,777,215 bytes.
    pub max_frame_size: u32,
    /// Maximum size of a header list, in bytes by RFC 7541 section 4.1. A larger one ends its stream; see
    /// [`limits::HEADER_BLOCK_BYTES_MAX`] for the connection's limit.
    pub max_header_list_size: u32,
    /// Size of the peer's compression table on our side, up to [`limits::HEADER_TABLE_BYTES_MAX`] bytes.
    pub header_table_size: u32,
    /// Timeout for the peer's preface and SETTINGS.
    pub preface_timeout: Interval,
    /// Timeout for the acknowledgement of our SETTINGS.
    pub settings_timeout: Interval,
    /// Keepalive PINGs; `None`: never.
    pub keepalive: Option<Keepalive>,
    /// Timeout for queued data that waits for a window; then its stream is reset.
    pub stall_timeout: Interval,
    /// Streams that the peer may reset, or make us reset, in a burst.
    pub resets_max: u32,
    /// How many resets per second the peer regains.
    pub resets_per_s: u32,
}

impl Config {
    /// Limits for a server with unknown clients: 256 streams of up to 64 KiB, 16 MiB together at most.
    ///
    /// It sends a PING to a client that is silent for a minute, with or without streams: each connection costs memory,
    /// and clients answer any number of PINGs.
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

    /// Limits for a client with a configured server: up to 1024 streams, subject to the server's limit.
    ///
    /// It sends a PING to a server that owes answers and is silent for 30 s. It sends none to a server that owes
    /// nothing: gRPC servers end connections with unnecessary PINGs
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

/// When to check with a PING that a silent peer is alive (RFC 9113 section 6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before a PING. A server that only answers PINGs soon gets fewer of them; see
    /// [`limits::QUICK_PINGS_MAX`].
    pub interval: Interval,
    /// Silence after a PING that ends the connection with [`Violation::KeepaliveTimeout`].
    pub timeout: Interval,
    /// Send PINGs also while no stream is open.
    pub without_streams: bool,
}

/// The meaning of the peer's bytes.
#[derive(Debug)]
pub enum Event<'i> {
    /// A request (for a server), a response (for a client), or trailers. Informational responses are skipped.
    Headers {
        /// The stream; a request opens it.
        stream: StreamId,
        /// The valid header list.
        headers: Rc<Headers>,
        /// The peer ends this stream. Always true for trailers.
        end_stream: bool,
        /// The list follows the body.
        trailers: bool,
    },
    /// Part of a body. A DATA frame may become several parts.
    Data {
        /// The stream.
        stream: StreamId,
        /// The bytes, borrowed from the input. Empty only with `end_stream`.
        data: &'i [u8],
        /// The number for [`Connection::release`] once the data is consumed: the length of the data and its padding.
        flow_len: u32,
        /// The peer ends this stream.
        end_stream: bool,
    },
    /// The stream was reset. Its queued data is dropped.
    Reset {
        /// The stream.
        stream: StreamId,
        /// Which end reset it, and why.
        by: ResetBy,
    },
    /// All queued data of the stream was sent; it accepts more.
    Unblocked {
        /// The stream.
        stream: StreamId,
    },
    /// The peer accepts no new streams. Our streams above `last_stream` are removed. The peer has not processed them,
    /// so their requests can be retried elsewhere.
    GoAway {
        /// The last stream that the peer may have processed.
        last_stream: StreamId,
        /// The reason.
        code: ErrorCode,
    },
    /// The peer's settings arrived or changed: [`Connection::open`] may now succeed.
    StreamsAvailable,
}

/// The end that reset a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResetBy {
    /// The peer, for this reason.
    Peer(ErrorCode),
    /// This end, because of a violation, or because the peer gave no window for too long.
    Us(Violation),
}

/// The connection has ended. The output contains a GOAWAY; send it and close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionError {
    /// The peer's violation.
    pub violation: Violation,
}

impl ConnectionError {
    /// The error code that the peer gets.
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

/// The response to a client of HTTP/1.1 (RFC 9110 section 15.6.6).
const HTTP1_ANSWER: &[u8] = b"HTTP/1.1 505 HTTP Version Not Supported\r\n\
    content-type: text/plain\r\n\
    content-length: 59\r\n\
    connection: close\r\n\r\n\
    This port speaks gRPC: HTTP/2 with prior knowledge, no TLS\n";
/// The response to a client of TLS: the fatal alert `protocol_version` (RFC 8446 section 6.2).
const TLS_ALERT: [u8; 7] = [21, 3, 1, 0, 2, 2, 70];

/// An HTTP/2 connection without its socket.
///
/// - Feed it input with [`Self::handle_input`], repeatedly until it consumes nothing and returns no event.
/// - Send its output, with [`Self::output`] and [`Self::advance_output`], after any other call.
/// - Call [`Self::handle_timeout`] at [`Self::poll_timeout`], then take events with [`Self::poll_event`].
/// - Release the data of every [`Event::Data`], also of streams that have ended since.
pub struct Connection {
    config: Config,
    /// The latest time from the owner.
    now: Time,
    phase: Phase,
    parser: Parser,
    decoder: BlockDecoder,
    encoder: BlockEncoder,
    streams: Streams,
    output: Output,
    /// The receive window of the connection.
    recv_window: RecvWindow,
    /// The send window of the connection, in bytes.
    send_window: i32,
    peer: PeerSettings,
    /// Our settings were written; they come first.
    is_greeted: bool,
    /// The peer has acknowledged our settings.
    is_settings_acked: bool,
    /// Events that do not borrow from the input.
    notices: VecDeque<Event<'static>>,
    /// Streams whose queued data only the connection's window blocks, in order of their turns.
    blocked: VecDeque<StreamId>,
    /// For a client: the next stream to open. For a server: the last stream that the peer opened.
    stream_mark: StreamId,
    /// The last stream on which a client has sent its request.
    last_request: StreamId,
    drain: Drain,
    timers: Timers,
    budgets: Budgets,
    counters: Counters,
}

/// The state of the handshake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Waits for the client's preface.
    Preface,
    /// Waits for the peer's SETTINGS.
    Settings,
    Open,
    /// After a connection error.
    Failed,
}

/// The state of the graceful close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    No,
    /// A server sent GOAWAY with the maximum stream, and a PING to learn when the client has seen it.
    Announced,
    /// No stream above this one is accepted any more.
    Ours(StreamId),
    /// The peer sent GOAWAY.
    Peers,
}

impl Connection {
    /// Starts a connection with an open socket. The output contains the preface, SETTINGS, and the connection's
    /// window.
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

    /// Applies the parts of a configuration that the peer does not know: keepalive and the budget of resets.
    pub fn configure(&mut self, config: &Config) {
        self.config.keepalive = config.keepalive;
        (self.config.resets_max, self.config.resets_per_s) = (config.resets_max, config.resets_per_s);
        self.budgets.set_resets(config.resets_max, config.resets_per_s);
    }

    /// Bytes to send, in order. They stay until [`Self::advance_output`].
    pub fn output(&self) -> &[u8] {
        self.output.pending()
    }

    /// Number of output bytes sent so far; [`Self::output`] follows them.
    pub fn n_sent(&self) -> u64 {
        self.output.n_taken()
    }

    /// Whether the output should be sent at once. Answers to PING may wait about a millisecond for other bytes: common
    /// gRPC peers send a PING with every message to measure bandwidth, and a system call and a wake-up per answer are a
    /// quarter of the cost of a lone call.
    pub fn is_output_urgent(&self) -> bool {
        self.output.is_urgent()
    }

    /// The first `n` bytes of [`Self::output`] were sent.
    ///
    /// # Panics
    /// If there are fewer.
    pub fn advance_output(&mut self, n: usize) {
        self.output.advance(n);
    }

    /// The next event that needs no input, such as the result of a timeout.
    pub fn poll_event(&mut self) -> Option<Event<'static>> {
        self.notices.pop_front()
    }

    /// Whether nothing more will happen: after an error, or when the last stream of a draining connection has ended.
    /// Send the output, then close the socket.
    pub fn is_closed(&self) -> bool {
        match self.drain {
            _ if self.phase == Phase::Failed => true,
            Drain::Ours(_) | Drain::Peers => self.streams.is_empty(),
            Drain::No | Drain::Announced => false,
        }
    }

    /// Whether either side has announced that it accepts no new streams.
    pub fn is_draining(&self) -> bool {
        self.drain != Drain::No || self.phase == Phase::Failed
    }

    /// Number of streams that have not ended.
    pub fn active_streams(&self) -> usize {
        self.streams.len()
    }

    /// Counters of violations and streams.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Whether `stream` has not ended in both directions.
    pub fn is_active(&self, stream: StreamId) -> bool {
        self.streams.find(stream).is_some()
    }

    /// Returns the number of streams that [`Self::open`] can open now.
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

    /// Ends the connection because of a violation.
    fn fail(&mut self, violation: Violation) -> ConnectionError {
        self.counters.note(violation);
        match violation {
            // Answer in the peer's protocol.
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

    /// Ends a stream because of a violation: resets it, and notifies the owner if it knows the stream.
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

    /// Removes a stream from the table.
    fn remove(&mut self, slot: Slot, ending: Ending) {
        self.streams.remove(slot, ending);
        if ending == Ending::Complete {
            self.budgets.resets.earn(1);
        }
    }

    /// Writes our settings, unless they are already written.
    fn greet(&mut self) {
        if !core::mem::replace(&mut self.is_greeted, true) {
            self.write_settings();
        }
    }

    fn write_reset(&mut self, stream: StreamId, code: ErrorCode) {
        self.counters.resets_sent += 1;
        self.output.write_control(kind::RST_STREAM, 0, stream, &(code as u32).to_be_bytes());
    }

    /// Writes a GOAWAY frame. Our settings come first if they are not yet written.
    fn write_go_away(&mut self, last_stream: StreamId, code: ErrorCode) {
        self.greet();
        let payload = (u64::from(last_stream) << 32 | u64::from(code as u32)).to_be_bytes();
        self.output.write_frame(kind::GOAWAY, 0, 0, &payload);
    }

    /// Fails if the peer lets too many answers accumulate.
    fn check_output(&self) -> Result<(), Violation> {
        let is_flooded = self.output.n_controls() > limits::OUTPUT_CONTROLS_MAX;
        if is_flooded { Err(Violation::OutputFlood) } else { Ok(()) }
    }

    /// The last stream of the peer that we accepted.
    fn last_peer_stream(&self) -> StreamId {
        match self.drain {
            _ if self.config.role == Role::Client => 0,
            Drain::Ours(last) => last,
            Drain::No | Drain::Announced | Drain::Peers => self.stream_mark,
        }
    }

    /// Whether a stream was never opened, so that any frame on it is an error.
    fn is_idle(&self, stream: StreamId) -> bool {
        match self.config.role {
            Role::Client => stream.is_multiple_of(2) || stream > self.last_request,
            Role::Server => stream.is_multiple_of(2) || stream > self.stream_mark,
        }
    }
}
