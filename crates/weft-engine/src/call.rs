//! Calls under way.

use crate::conn::ConnKey;
use crate::end::End;
use crate::pass::LiveChain;
use crate::plan::Method;
use crate::pool::{EndpointKey, Pool};
use crate::slab::Key;
use crate::timers::TimerKey;
use std::collections::VecDeque;
use std::rc::Rc;
use weft_core::Time;
use weft_proto::session::grpc::Deframer;
use weft_proto::session::http2::{Headers, StreamId};

pub(crate) type CallKey = Key<Call>;

/// A stream of a connection.
#[derive(Clone, Copy)]
pub(crate) struct Leg {
    pub(crate) conn: ConnKey,
    pub(crate) stream: StreamId,
}

/// One gRPC call: a stream of a client, the chain that it passes, and the stream that answers it.
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) began: Time,
    /// None once the client has left, and for a mirrored call.
    pub(crate) down: Option<Leg>,
    pub(crate) up: Option<Leg>,
    pub(crate) pool: Rc<Pool>,
    /// The endpoint that was chosen, or that a REDIRECT named.
    pub(crate) endpoint: Option<EndpointKey>,
    pub(crate) chain: Option<Rc<LiveChain>>,
    /// The method's index in the chain's list.
    pub(crate) method: Option<usize>,
    pub(crate) request_headers: Rc<Headers>,
    pub(crate) phase: Phase,
    /// Elements whose OPEN forwarded: those with a lower index.
    pub(crate) opened: usize,
    /// The `CALL` cells of all elements.
    pub(crate) row: Vec<u64>,
    pub(crate) request: Flow,
    pub(crate) response: Flow,
    /// Response headers that wait for the first message, because the chain may change them.
    pub(crate) response_headers: Option<Rc<Headers>>,
    pub(crate) is_response_begun: bool,
    /// Its end is decided, and perhaps delayed: nothing more of it is passed on.
    pub(crate) is_ending: bool,
    /// A copy that MIRROR made; what comes back is let go.
    pub(crate) is_mirror: bool,
    /// A REDIRECT named its endpoint: no other will do.
    pub(crate) is_redirected: bool,
    pub(crate) deadline: Option<TimerKey>,
    /// Times that an endpoint was tried.
    pub(crate) attempts: u32,
}

/// How far the request is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The headers are held: the chain may change them, and where they go, until it has seen OPEN, and the first
    /// message if that is to decide.
    AwaitMessage,
    /// All is decided, and an upstream stream is to be found.
    AwaitUpstream,
    /// The headers have left.
    Open,
}

/// Messages of one direction of a call.
pub(crate) struct Flow {
    pub(crate) deframer: Deframer,
    pub(crate) index: u64,
    /// What may not leave yet: it is delayed, or has nowhere to go.
    pub(crate) held: VecDeque<Held>,
    pub(crate) timer: Option<TimerKey>,
    /// Bytes of flow control that its sender is owed.
    pub(crate) owed: u32,
    /// The sender has ended it.
    pub(crate) is_ended: bool,
    /// Its end was handed on, or is held.
    pub(crate) is_end_queued: bool,
}

/// Something that waits in a [`Flow`].
pub(crate) struct Held {
    /// Not before.
    pub(crate) due: Time,
    pub(crate) what: HeldItem,
}

pub(crate) enum HeldItem {
    /// Bytes of DATA, and whether they are the last of the stream.
    Data(Vec<u8>, bool),
    /// The end of the call.
    End(Box<End>),
}

impl Call {
    /// A call that has begun, without a client, a chain and an upstream.
    pub(crate) fn new(
        id: u64,
        began: Time,
        pool: Rc<Pool>,
        request_headers: Rc<Headers>,
        message_bytes_max: u32,
    ) -> Self {
        Self {
            id,
            began,
            down: None,
            up: None,
            pool,
            endpoint: None,
            chain: None,
            method: None,
            request_headers,
            phase: Phase::AwaitMessage,
            opened: 0,
            row: Vec::new(),
            request: Flow::new(message_bytes_max),
            response: Flow::new(message_bytes_max),
            response_headers: None,
            is_response_begun: false,
            is_ending: false,
            is_mirror: false,
            is_redirected: false,
            deadline: None,
            attempts: 0,
        }
    }

    pub(crate) fn method(&self) -> Option<&Method> {
        Some(&self.chain.as_ref()?.chain.methods[self.method?])
    }

    /// Whether the client sends one message: its OPEN and REQUEST are one pass.
    pub(crate) fn is_single_request(&self) -> bool {
        self.method().is_some_and(|m| !m.client_streaming)
    }
}

impl Flow {
    pub(crate) fn new(message_bytes_max: u32) -> Self {
        Self {
            deframer: Deframer::new(message_bytes_max),
            index: 0,
            held: VecDeque::new(),
            timer: None,
            owed: 0,
            is_ended: false,
            is_end_queued: false,
        }
    }

    /// Holds something until `due`, and until all that was held before has left.
    pub(crate) fn hold(&mut self, due: Time, what: HeldItem) {
        let due = self.held.back().map_or(due, |last| last.due.max(due));
        self.held.push_back(Held { due, what });
    }
}
