//! Connections of one engine.

use crate::call::CallKey;
use crate::pool::{Down, EndpointKey};
use crate::slab::Key;
use crate::timers::TimerKey;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use weft_core::Time;
use weft_proto::session::http2::{Connection, StreamId, Violation};

/// Bytes of output beyond which a connection takes no more from its peers' senders until it has drained.
pub(crate) const OUTPUT_BYTES_HIGH: usize = 256 << 10;
/// Bytes of output at which they may go on.
pub(crate) const OUTPUT_BYTES_LOW: usize = 64 << 10;
/// Bytes of a frame that is not whole yet; a connection that sends more without an end is at fault. It is above
/// the largest frame, because frames of messages are taken in pieces.
pub(crate) const PARTIAL_BYTES_MAX: usize = 128 << 10;

/// A connection of an engine. Drivers carry it; a stale one is ignored.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnId(pub u64);

pub(crate) type ConnKey = Key<Conn>;

/// Why a driver reports a connection as closed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CloseReason {
    /// The peer closed it.
    Eof,
    /// The peer reset it, or the network failed.
    Reset,
    /// It could not be made: refused, unreachable.
    Refused,
}

impl CloseReason {
    /// What it says of an endpoint; None if its connection has ended in good order.
    pub(crate) fn why_down(self) -> Option<Down> {
        match self {
            Self::Eof => None,
            Self::Reset => Some(Down::Lost),
            Self::Refused => Some(Down::Refused),
        }
    }
}

pub(crate) struct Conn {
    pub(crate) h2: Connection,
    pub(crate) side: Side,
    pub(crate) streams: FxHashMap<StreamId, CallKey>,
    /// The begin of a frame whose rest has not come.
    pub(crate) partial: Vec<u8>,
    /// It is in the engine's list of connections with output.
    pub(crate) is_dirty: bool,
    /// A timer will see to its output.
    pub(crate) is_flush_set: bool,
    /// Calls whose senders wait until this connection's output has drained.
    pub(crate) waiting: Vec<CallKey>,
    pub(crate) timer: Option<(Time, TimerKey)>,
    /// No more input is taken; it closes when its output is out.
    pub(crate) is_closing: bool,
    /// What its peer did, if this node ended it for that.
    pub(crate) fault: Option<Violation>,
}

pub(crate) enum Side {
    Downstream {
        listener: Rc<str>,
        peer: Rc<str>,
    },
    /// It is ready once the server's settings are here.
    Upstream {
        endpoint: EndpointKey,
        is_ready: bool,
    },
}

impl Conn {
    pub(crate) fn new(h2: Connection, side: Side) -> Self {
        Self {
            h2,
            side,
            streams: FxHashMap::default(),
            partial: Vec::new(),
            is_dirty: false,
            is_flush_set: false,
            waiting: Vec::new(),
            timer: None,
            is_closing: false,
            fault: None,
        }
    }

    pub(crate) fn is_downstream(&self) -> bool {
        matches!(self.side, Side::Downstream { .. })
    }

    /// Whether a sender whose bytes go to `stream` must wait.
    pub(crate) fn is_full(&self, stream: StreamId) -> bool {
        self.h2.queued(stream) > 0 || self.h2.output().len() > OUTPUT_BYTES_HIGH
    }
}

impl From<ConnKey> for ConnId {
    fn from(key: ConnKey) -> Self {
        Self(key.to_bits())
    }
}

impl From<ConnId> for ConnKey {
    fn from(id: ConnId) -> Self {
        Self::from_bits(id.0)
    }
}
