//! Limits on a peer's behaviour, and counters of violations (RFC 9113 section 10.5).

use weft_core::{Interval, Time};

use crate::session::http2::frame::ErrorCode;
use crate::session::http2::headers::Malformed;
use crate::session::http2::hpack::HpackError;

/// Streams that a peer may reset, or make us reset, in a burst, unless [`super::Config::resets_max`] differs.
///
/// A reset costs the peer nothing and frees a concurrent stream, so without a limit a peer could start any amount of
/// work (CVE-2023-44487; CVE-2025-8671 for resets that we are made to send). A reset counts in any state of its stream:
/// a request that is answered at once is as cheap as one that waits.
pub const RESETS_MAX: u32 = 1000;
/// How many resets per second the peer regains, unless [`super::Config::resets_per_s`] differs. A stream that completes
/// adds one more, unless its request was [refused](super::Connection::refuse).
pub const RESETS_PER_S: u32 = 100;
/// Frames without effect for an application that may come in a burst: SETTINGS and each setting in them, PING,
/// PRIORITY, WINDOW_UPDATE, RST_STREAM, unknown ones, and empty DATA (CVE-2019-9511 to 9518). See [`CONTROLS_PER_S`].
pub const CONTROLS_MAX: u32 = 4096;
/// How many frames without effect per second the peer regains.
pub const CONTROLS_PER_S: u32 = 200;
/// How many it regains with each HEADERS frame and each non-empty DATA frame of an open stream, in either direction.
pub const CONTROLS_PER_FRAME: u32 = 4;
/// Maximum number of acknowledgements and resets in the output, if the peer does not read.
pub const OUTPUT_CONTROLS_MAX: u32 = 1024;
/// Maximum output of a server when a request comes, in bytes. Each answer ends its stream, so nothing else bounds the
/// answers to a client that sends requests and does not read.
pub const OUTPUT_BYTES_MAX: usize = 32 << 20;
/// Maximum number of CONTINUATION frames of a header block (CVE-2024-27316). [`HEADER_BLOCK_BYTES_MAX`] bounds its
/// bytes.
pub const CONTINUATIONS_MAX: u32 = 64;
/// Maximum size of a header block that is decoded although its list is too large, in bytes. A larger configured list
/// limit replaces it.
///
/// A list that is too large ends only its stream, because the connection's other streams have no part in it. The block
/// must be decoded anyway to keep the compression table in step (RFC 9113 section 4.3). Beyond this size that work is
/// not worth the connection.
pub const HEADER_BLOCK_BYTES_MAX: u32 = 128 << 10;
/// Maximum number of settings in a frame; more count as a flood.
pub const SETTINGS_MAX: usize = 64;
/// How many recently ended streams are remembered, to distinguish a late frame from a wrong one.
pub const RECENT_STREAMS_MAX: usize = 128;
/// Maximum number of streams that we open before the peer's limit is known.
pub const STREAMS_BEFORE_SETTINGS: u32 = 100;
/// PINGs that a client sends at its keepalive interval while the server sends neither HEADERS nor DATA. Further ones
/// are at least [`PING_INTERVAL_MIN`] apart.
///
/// Common gRPC servers record a strike for each PING within that time of the last. They clear their strikes when they
/// send HEADERS or DATA, and end the connection with ENHANCE_YOUR_CALM at the third
/// (<https://github.com/grpc/grpc/blob/master/doc/keepalive.md>).
pub const QUICK_PINGS_MAX: u8 = 2;
/// See [`QUICK_PINGS_MAX`].
pub const PING_INTERVAL_MIN: Interval = Interval::from_secs(5 * 60);
/// Maximum time that a gracefully closing server waits for its client to acknowledge. Requests in flight have arrived
/// by then.
pub const DRAIN_TIME_MAX: Interval = Interval::from_secs(1);
/// A connection without streams releases the memory of its caches and buffers after this time.
pub const IDLE_TRIM: Interval = Interval::from_secs(5);
/// Maximum size of the dynamic table that a peer may fill, in bytes.
pub const HEADER_TABLE_BYTES_MAX: u32 = 64 << 10;

macro_rules! violations {
    ($(#[doc = $doc:literal] $name:ident = $code:ident $text:literal),* $(,)?) => {
        /// A violation or excess of a peer. It ends the stream or the connection, and is counted.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Violation { $(#[doc = $doc] $name),* }

        impl Violation {
            /// All violations, in the order of declaration.
            pub const ALL: &'static [Violation] = &[$(Self::$name),*];

            /// The error code that the peer gets.
            pub const fn code(self) -> ErrorCode {
                match self { $(Self::$name => ErrorCode::$code),* }
            }

            /// A description as a sentence.
            pub fn description(self) -> &'static str {
                match self { $(Self::$name => $doc.trim_ascii()),* }
            }

            /// A short name for counters: `rapid_reset`.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

violations! {
    /// The first bytes are not the preface of HTTP/2, or the first frame is not SETTINGS.
    BadPreface = ProtocolError "bad_preface",
    /// The first bytes are those of HTTP/1.1.
    Http1 = ProtocolError "http1",
    /// The first bytes are those of TLS, and the connection has none.
    Tls = ProtocolError "tls",
    /// The preface and the first SETTINGS did not come in time.
    SlowPreface = ProtocolError "slow_preface",
    /// Our SETTINGS were not acknowledged in time.
    SettingsTimeout = SettingsTimeout "settings_timeout",
    /// A PING was not answered in time.
    KeepaliveTimeout = NoError "keepalive_timeout",
    /// A frame is larger than permitted, or not of the size that its type has.
    FrameSize = FrameSizeError "frame_size",
    /// A frame where the standard does not permit one: within a header block, on the wrong kind of stream.
    UnexpectedFrame = ProtocolError "unexpected_frame",
    /// A stream identifier that the peer may not use, or not any more.
    StreamId = ProtocolError "stream_id",
    /// A frame on a stream that has not been opened.
    IdleStream = ProtocolError "idle_stream",
    /// A frame on a stream that the peer has ended.
    StreamClosed = StreamClosed "stream_closed",
    /// A pushed stream, which we never permit.
    PushPromise = ProtocolError "push_promise",
    /// Padding that is longer than its frame.
    Padding = ProtocolError "padding",
    /// A setting with a value that the standard does not permit.
    Settings = ProtocolError "settings",
    /// A window in SETTINGS above 2^31-1.
    SettingsWindow = FlowControlError "settings_window",
    /// More data than the connection's window permits.
    ConnectionWindow = FlowControlError "connection_window",
    /// More data than the stream's window permits.
    StreamWindow = FlowControlError "stream_window",
    /// A window grew above 2^31-1.
    WindowOverflow = FlowControlError "window_overflow",
    /// A WINDOW_UPDATE of nothing.
    ZeroIncrement = ProtocolError "zero_increment",
    /// A stream that depends on itself.
    SelfDependency = ProtocolError "self_dependency",
    /// A header block is not HPACK.
    Compression = CompressionError "compression",
    /// A header list breaks the rules of HTTP/2.
    MalformedHeaders = ProtocolError "malformed_headers",
    /// Headers or data in an order that no HTTP message has.
    MessageOrder = ProtocolError "message_order",
    /// The body is not as long as `content-length` says.
    ContentLength = ProtocolError "content_length",
    /// A header list is larger than permitted.
    HeaderList = EnhanceYourCalm "header_list",
    /// A header block has more bytes than are decoded for the sake of other streams.
    HeaderBlock = EnhanceYourCalm "header_block",
    /// A header block comes in too many pieces.
    ContinuationFlood = EnhanceYourCalm "continuation_flood",
    /// More streams at a time than permitted.
    ConcurrentStreams = RefusedStream "concurrent_streams",
    /// Too many streams are reset.
    RapidReset = EnhanceYourCalm "rapid_reset",
    /// Too many frames without effect.
    ControlFlood = EnhanceYourCalm "control_flood",
    /// The peer asks for answers that it does not read.
    OutputFlood = EnhanceYourCalm "output_flood",
    /// The peer leaves no window for data that waits.
    WindowStall = EnhanceYourCalm "window_stall",
}

impl From<HpackError> for Violation {
    fn from(_: HpackError) -> Self {
        Self::Compression
    }
}

impl From<Malformed> for Violation {
    fn from(_: Malformed) -> Self {
        Self::MalformedHeaders
    }
}

/// Counters of a connection: violations by kind, and streams.
#[derive(Clone, Copy, Debug)]
pub struct Counters {
    violations: [u32; Violation::ALL.len()],
    /// Streams opened by either side.
    pub streams_opened: u64,
    /// Streams that the peer reset.
    pub resets_received: u64,
    /// Streams that we reset, for any reason.
    pub resets_sent: u64,
}

impl Counters {
    pub(super) fn new() -> Self {
        let violations = [0; Violation::ALL.len()];
        Self { violations, streams_opened: 0, resets_received: 0, resets_sent: 0 }
    }

    /// The number of times `violation` happened.
    pub fn violations(&self, violation: Violation) -> u32 {
        self.violations[violation as usize]
    }

    /// The violations that happened, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (Violation, u32)> {
        Violation::ALL.iter().map(|&v| (v, self.violations(v))).filter(|&(_, n)| n > 0)
    }

    pub(super) fn note(&mut self, violation: Violation) {
        let count = &mut self.violations[violation as usize];
        *count = count.saturating_add(1);
    }
}

/// A token bucket for an action that costs the peer nothing.
pub(super) struct Budget {
    left: u32,
    max: u32,
}

impl Budget {
    pub(super) fn new(max: u32) -> Self {
        Self { left: max, max }
    }

    #[inline]
    pub(super) fn earn(&mut self, n: u32) {
        self.left = self.left.saturating_add(n).min(self.max);
    }

    /// Takes a token; fails if none is left.
    pub(super) fn spend(&mut self, otherwise: Violation) -> Result<(), Violation> {
        self.left = self.left.checked_sub(1).ok_or(otherwise)?;
        Ok(())
    }
}

/// The token buckets of a peer.
pub(super) struct Budgets {
    pub(super) resets: Budget,
    pub(super) controls: Budget,
    resets_per_s: u32,
    refilled: Time,
}

impl Budgets {
    pub(super) fn new((resets_max, resets_per_s): (u32, u32), now: Time) -> Self {
        let (resets, controls) = (Budget::new(resets_max), Budget::new(CONTROLS_MAX));
        Self { resets, controls, resets_per_s, refilled: now }
    }

    /// Changes the limit of resets. Tokens that the peer has spent stay spent.
    pub(super) fn set_resets(&mut self, max: u32, per_s: u32) {
        let spent = self.resets.max - self.resets.left;
        self.resets = Budget { left: max.saturating_sub(spent), max };
        self.resets_per_s = per_s;
    }

    /// Refills the buckets for the whole seconds since the last time.
    #[inline]
    pub(super) fn refill(&mut self, now: Time) {
        const SECOND: i64 = Interval::from_secs(1).as_nanos();
        let elapsed = (now - self.refilled).as_nanos();
        if elapsed >= SECOND {
            let seconds = u32::try_from(elapsed / SECOND).unwrap_or(u32::MAX);
            self.resets.earn(seconds.saturating_mul(self.resets_per_s));
            self.controls.earn(seconds.saturating_mul(CONTROLS_PER_S));
            self.refilled = now - Interval(elapsed % SECOND);
        }
    }

    /// Refills for a frame with an effect, in either direction.
    #[inline]
    pub(super) fn refill_for_useful_frame(&mut self) {
        self.controls.earn(CONTROLS_PER_FRAME);
    }
}
