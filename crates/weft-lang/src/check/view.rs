//! The places of a program in which expressions stand, and the metadata that each has.

use weft_core::Type;

use crate::hir::{Direction, HandlerKind, Meta};

/// The set of names available at a point.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Literals and parameters: values known before the program runs.
    Constant,
    /// Constants, `now()` and `rand()`: the value of a new row or cell.
    Start,
    /// A row in a table statement: its columns as parameters, and `now()`.
    Row,
    /// The data of a call that is known when it opens.
    Route,
    /// Literals, parameters and `status`: a condition on the status of a call.
    StatusCondition,
    /// All that a handler may read.
    Handler(HandlerKind),
}

impl View {
    /// Returns the direction whose columns are available.
    pub(super) fn direction(self) -> Option<Direction> {
        match self {
            // In ON OPEN, only columns bound to data that is known by then: see `check_open` of chains.
            Self::Handler(HandlerKind::Open | HandlerKind::Request) => Some(Direction::Request),
            Self::Handler(HandlerKind::Response) => Some(Direction::Response),
            _ => None,
        }
    }

    /// Whether there is a call.
    pub(super) fn has_call(self) -> bool {
        matches!(self, Self::Handler(kind) if !kind.is_timed())
    }

    /// Whether headers can be read here.
    pub(super) fn has_headers(self) -> bool {
        use HandlerKind as H;
        match self {
            Self::Handler(kind) => matches!(kind, H::Open | H::Request | H::Response | H::Close),
            Self::Route => true,
            Self::Constant | Self::Start | Self::Row | Self::StatusCondition => false,
        }
    }

    /// Whether this metadata exists here.
    pub(super) fn has_meta(self, meta: Meta) -> bool {
        use HandlerKind as H;
        let Self::Handler(kind) = self else {
            return match self {
                Self::Route => matches!(meta, Meta::Method | Meta::Peer),
                Self::StatusCondition => meta == Meta::Status,
                _ => false,
            };
        };
        match meta {
            Meta::EndedBy => kind == H::Close,
            Meta::Elapsed | Meta::Status | Meta::Upstream => matches!(kind, H::Response | H::Close),
            Meta::Size | Meta::Index | Meta::Payload => matches!(kind, H::Request | H::Response),
            Meta::Method | Meta::Peer | Meta::CallId | Meta::Version => !kind.is_timed(),
            Meta::Port | Meta::PacketSize | Meta::Flow => false,
            Meta::IsIcmpError | Meta::IsIntact | Meta::TunnelDepth => false,
            Meta::Tag | Meta::Label | Meta::Path => false,
        }
    }

    /// Describes the place for messages.
    pub(super) fn words(self) -> &'static str {
        match self {
            Self::Constant => "a constant",
            Self::Start => "the value of a new row",
            Self::Row => "a statement on rows",
            Self::Route => "a route",
            Self::StatusCondition => "the condition of a policy",
            Self::Handler(HandlerKind::Open) => "ON OPEN",
            Self::Handler(HandlerKind::Request) => "ON REQUEST",
            Self::Handler(HandlerKind::Response) => "ON RESPONSE",
            Self::Handler(HandlerKind::Close) => "ON CLOSE",
            Self::Handler(HandlerKind::Error) => "ON ERROR",
            Self::Handler(HandlerKind::Every) => "ON EVERY",
            Self::Handler(HandlerKind::Timeout) => "ON TIMEOUT",
            Self::Handler(HandlerKind::Evict) => "ON EVICT",
        }
    }
}

/// The engine's metadata of a tuple: name, type, nullable.
pub(crate) const METAS: &[(&str, Meta, Type, bool)] = &[
    ("call_id", Meta::CallId, Type::Uint(64), false),
    ("elapsed", Meta::Elapsed, Type::Interval, false),
    ("ended_by", Meta::EndedBy, Type::Text(None), true),
    ("index", Meta::Index, Type::Uint(64), false),
    ("method", Meta::Method, Type::Text(None), false),
    ("payload", Meta::Payload, Type::Bytes(None), false),
    ("peer", Meta::Peer, Type::Text(None), false),
    ("size", Meta::Size, Type::Size, false),
    ("status", Meta::Status, Type::Status, false),
    ("upstream", Meta::Upstream, Type::Text(None), true),
    ("version", Meta::Version, Type::Uint(64), false),
];

/// Whether metadata may be NULL in a response handler: for streamed responses, the status arrives after the messages.
pub(super) fn is_nullable_in_response(meta: Meta) -> bool {
    meta == Meta::Status
}

/// The engine's metadata of a frame: name, type, nullable.
pub(crate) const FRAME_METAS: &[(&str, Meta, Type, bool)] = &[
    ("flow", Meta::Flow, Type::Uint(64), false),
    ("index", Meta::Index, Type::Uint(64), false),
    ("is_icmp_error", Meta::IsIcmpError, Type::Bool, false),
    ("is_intact", Meta::IsIntact, Type::Bool, false),
    ("packet_id", Meta::CallId, Type::Uint(64), false),
    ("packet_size", Meta::PacketSize, Type::Uint(64), false),
    ("port", Meta::Port, Type::Text(None), false),
    ("size", Meta::Size, Type::Size, false),
    ("tunnel_depth", Meta::TunnelDepth, Type::Uint(64), false),
    ("version", Meta::Version, Type::Uint(64), false),
];

/// The name of an expired or evicted row.
pub(super) const OLD: &str = "OLD";
