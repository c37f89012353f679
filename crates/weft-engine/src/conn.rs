//! The state of a connection: its HTTP/2 session, its streams and their calls, and its lifetime limits.

use crate::call::CallKey;
use crate::pool::{DownReason, EndpointKey};
use crate::slab::Key;
use crate::timers::TimerKey;
use rustc_hash::FxHashMap;
use std::rc::Rc;
use std::sync::Arc;
use weft_core::options::ListenerOptions;
use weft_core::{Interval, Time};
use weft_proto::session::http2::{Connection, StreamId, Violation};

/// Output bytes above which a connection stops the senders of its peers until it has drained.
pub(crate) const OUTPUT_BYTES_HIGH: usize = 256 << 10;
/// Output bytes at which they continue.
pub(crate) const OUTPUT_BYTES_LOW: usize = 64 << 10;
/// The most bytes of an incomplete frame; a connection that exceeds it is at fault. It is above the largest frame,
/// since DATA frames are taken in pieces.
pub(crate) const PARTIAL_BYTES_MAX: usize = 128 << 10;

/// The id of an engine's connection, for drivers. A stale id is ignored.
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
    /// It could not be made: refused or unreachable.
    Refused,
}

impl CloseReason {
    /// Returns what the end of a connection means for its endpoint. None if the connection ended in good order.
    pub(crate) fn why_down(self) -> Option<DownReason> {
        match self {
            Self::Eof => None,
            Self::Reset => Some(DownReason::Lost),
            Self::Refused => Some(DownReason::Refused),
        }
    }
}

pub(crate) struct Conn {
    pub(crate) h2: Connection,
    pub(crate) side: Side,
    pub(crate) streams: FxHashMap<StreamId, CallKey>,
    /// The beginning of an incomplete frame.
    pub(crate) partial: Vec<u8>,
    /// It is in the engine's list of connections with output.
    pub(crate) is_dirty: bool,
    /// A timer for its output is set.
    pub(crate) is_flush_set: bool,
    /// Calls whose senders wait until this connection's output has drained.
    pub(crate) waiting: Vec<CallKey>,
    pub(crate) timer: Option<(Time, TimerKey)>,
    /// No more input is accepted; it closes after its output.
    pub(crate) is_closing: bool,
    /// The peer's violation, if this node closed it for that.
    pub(crate) fault: Option<Violation>,
    pub(crate) life: Life,
}

/// The age of a connection, and how long it has been idle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) opened: Time,
    /// None while it has calls.
    pub(crate) idle_since: Option<Time>,
    /// When it stopped to take calls because of its age.
    pub(crate) aged_at: Option<Time>,
}

/// The lifetime options of a connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LifeLimits {
    pub(crate) idle_timeout: Option<Interval>,
    pub(crate) age_max: Option<Interval>,
    pub(crate) age_grace: Option<Interval>,
}

/// The action at the end of a phase of a connection's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LifeEnd {
    /// It is idle or old: it takes no further calls.
    Leaves,
    /// It is old, and the grace period of its calls is over.
    Cut,
}

impl Life {
    pub(crate) fn new(opened: Time) -> Self {
        Self { opened, idle_since: Some(opened), aged_at: None }
    }

    /// Returns the time and the kind of the next step at the end of a connection's life. `spread` in 0..=2000 varies
    /// the age by 10 %, so that connections that were made together do not leave together.
    pub(crate) fn next_end(&self, limits: &LifeLimits, spread: u64) -> Option<(Time, LifeEnd)> {
        if let Some(aged_at) = self.aged_at {
            return limits.age_grace.map(|grace| (aged_at + grace, LifeEnd::Cut));
        }
        let aged = limits.age_max.map(|age| {
            let spread = (i128::from(age.0) * (i128::from(spread) - 1000) / 10_000) as i64;
            self.opened + age + Interval(spread)
        });
        let idle = self.idle_since.zip(limits.idle_timeout).map(|(since, timeout)| since + timeout);
        aged.into_iter().chain(idle).min().map(|at| (at, LifeEnd::Leaves))
    }
}

pub(crate) enum Side {
    Downstream {
        listener: Rc<str>,
        peer: Rc<str>,
        options: Arc<ListenerOptions>,
    },
    /// It is ready once the server's settings have arrived.
    Upstream {
        endpoint: EndpointKey,
        is_ready: bool,
    },
}

impl Conn {
    /// Creates the record of a new connection.
    pub(crate) fn new(now: Time, h2: Connection, side: Side) -> Self {
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
            life: Life::new(now),
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
