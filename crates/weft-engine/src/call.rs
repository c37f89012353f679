//! The state of an open call: its caller, its chain, its upstream, and the data held in both directions.

use crate::call_queue::QueueSlot;
use crate::conn::ConnKey;
use crate::end::End;
use crate::filter::{EndpointConstraints, FilteredCall};
use crate::pass::ActiveChain;
use crate::plan::Method;
use crate::pool::{EndpointKey, Pool};
use crate::slab::Key;
use crate::timers::TimerKey;
use std::collections::VecDeque;
use std::rc::Rc;
use weft_core::marks::Marks;
use weft_core::{Status, Time};
use weft_proto::session::grpc::{Deframer, HEADER_BYTES};
use weft_proto::session::http2::{Headers, StreamId};

pub(crate) type CallKey = Key<Call>;

/// A stream of a connection.
#[derive(Clone, Copy)]
pub(crate) struct StreamRef {
    pub(crate) conn: ConnKey,
    pub(crate) stream: StreamId,
}

/// The maker of a call, which gets its result.
#[derive(Clone, Copy)]
pub(crate) enum Caller {
    /// A client, on a stream.
    Stream(StreamRef),
    /// A filter of another call: this is one of its tries.
    Filter(CallKey),
    /// None: the client has left, or never waited for a result. It is a mirrored or a detached call.
    Detached,
}

/// One gRPC call: a client's stream, the chain that it passes, and the server's stream.
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) began: Time,
    pub(crate) caller: Caller,
    /// The client's address. It outlives the client's connection, so that CLOSE always sees it.
    pub(crate) peer: Rc<str>,
    pub(crate) up: Option<StreamRef>,
    /// Its state at the filter behind its chain, once it has reached that.
    pub(crate) filtered: Option<Box<FilteredCall>>,
    pub(crate) pool: Rc<Pool>,
    /// The endpoint that was chosen, or named by a REDIRECT.
    pub(crate) endpoint: Option<EndpointKey>,
    /// The endpoint that answered its last try, behind a filter.
    pub(crate) served_by: Option<EndpointKey>,
    /// Constraints of filters on the choice of an endpoint.
    pub(crate) choice: Option<Box<EndpointConstraints>>,
    pub(crate) chain: Option<Rc<ActiveChain>>,
    /// The method's index in the chain's list.
    pub(crate) method: Option<usize>,
    pub(crate) request_headers: Rc<Headers>,
    /// The marks that the chain has set for call queues.
    pub(crate) marks: Marks,
    pub(crate) phase: Phase,
    /// The number of elements whose OPEN forwarded.
    pub(crate) opened: usize,
    /// The `CALL` cells of all elements.
    pub(crate) row: Vec<u64>,
    /// The keys that the chain has set for the filter behind it.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) request: Flow,
    pub(crate) response: Flow,
    /// The only message of a response, while its chain waits for the status.
    pub(crate) answer: Option<HeldMessage>,
    /// The status that followed that message.
    pub(crate) answer_status: Option<Status>,
    /// Response headers held for the first message, because the chain may change them.
    pub(crate) response_headers: Option<Rc<Headers>>,
    pub(crate) is_response_begun: bool,
    /// Its end is decided, and perhaps delayed: nothing more passes.
    pub(crate) is_ending: bool,
    /// A copy made by MIRROR; its response is discarded.
    pub(crate) is_mirror: bool,
    /// Its caller has left and was counted; it continues because it is to take effect once.
    pub(crate) is_detached: bool,
    /// A REDIRECT named its endpoint: no other one may be used.
    pub(crate) is_redirected: bool,
    /// Its slots in the call queue of its listener, and of its cluster; None: it has not entered it, or there is none.
    pub(crate) queue_slots: [Option<QueueSlot>; 2],
    /// Whether the length of its request is known, for a call queue that uses it.
    pub(crate) length_probe: LengthProbe,
    pub(crate) deadline: Option<TimerKey>,
    /// Its deadline, as far as its callers have set one.
    pub(crate) due: Option<Time>,
    /// The number of this try of the client's call; `rand()` depends on it.
    pub(crate) nth_try: u32,
    /// The number of endpoints that were tried.
    pub(crate) attempts: u32,
    /// The sent part of its request, while it may be sent again.
    pub(crate) sent: Option<SentRequest>,
    /// It was sent again.
    pub(crate) is_resent: bool,
}

/// A response message that has not passed its chain.
#[derive(Debug)]
pub(crate) struct HeldMessage {
    pub(crate) compressed: bool,
    pub(crate) payload: Vec<u8>,
}

/// The part of a request that was sent behind its headers.
#[derive(Default)]
pub(crate) struct SentRequest {
    /// The position of the headers in the connection's output.
    pub(crate) at: u64,
    pub(crate) body: Vec<u8>,
    /// The end was sent as well, if not with the headers.
    pub(crate) is_ended: bool,
}

/// The progress of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// The headers are held: the chain may change or redirect them until it has seen OPEN, and the first message if it
    /// reads that.
    AwaitMessage,
    /// All is decided; it waits for an upstream stream.
    AwaitUpstream,
    /// The headers were sent.
    Open,
}

/// The progress of finding the length of a request before the call enters a queue that uses it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LengthProbe {
    NotYet,
    /// Data that the client has sent with the headers will be examined first.
    Scheduled,
    /// The client sends a message without waiting for a response, and it has not arrived.
    AwaitsMessage,
    /// No more will be known before the call is queued.
    Done,
}

/// The messages of one direction of a call.
pub(crate) struct Flow {
    pub(crate) deframer: Deframer,
    pub(crate) index: u64,
    /// Data that may not leave yet: it is delayed, or has no stream.
    pub(crate) held: VecDeque<HeldEntry>,
    pub(crate) timer: Option<TimerKey>,
    /// Flow-control credit that its sender is owed, in bytes.
    pub(crate) owed: u32,
    /// The sender has ended it.
    pub(crate) is_ended: bool,
    /// Its end was forwarded, or is held.
    pub(crate) is_end_queued: bool,
}

/// An entry that waits in a [`Flow`].
pub(crate) struct HeldEntry {
    /// The earliest time to leave.
    pub(crate) due: Time,
    pub(crate) what: HeldItem,
}

pub(crate) enum HeldItem {
    /// Bytes of DATA, and whether they end the stream.
    Data(Vec<u8>, bool),
    /// The end of the call.
    End(Box<End>),
}

impl Call {
    /// Creates a call that has no client, no chain and no upstream yet.
    pub(crate) fn new(
        id: u64,
        began: Time,
        peer: Rc<str>,
        pool: Rc<Pool>,
        request_headers: Rc<Headers>,
        request_bytes_max: u32,
    ) -> Self {
        let response_bytes_max = pool.cluster.options.message_size_max;
        Self {
            id,
            began,
            caller: Caller::Detached,
            peer,
            up: None,
            filtered: None,
            pool,
            endpoint: None,
            served_by: None,
            choice: None,
            chain: None,
            method: None,
            request_headers,
            marks: Marks::NONE,
            phase: Phase::AwaitMessage,
            opened: 0,
            row: Vec::new(),
            keys: Vec::new(),
            request: Flow::new(request_bytes_max),
            response: Flow::new(response_bytes_max),
            answer: None,
            answer_status: None,
            response_headers: None,
            is_response_begun: false,
            is_ending: false,
            is_mirror: false,
            is_detached: false,
            is_redirected: false,
            queue_slots: [None; 2],
            length_probe: LengthProbe::NotYet,
            deadline: None,
            due: None,
            nth_try: 0,
            attempts: 0,
            sent: None,
            is_resent: false,
        }
    }

    /// Returns the client's stream. None for a try, or for a call without its caller.
    pub(crate) fn down(&self) -> Option<StreamRef> {
        match self.caller {
            Caller::Stream(stream_ref) => Some(stream_ref),
            Caller::Filter(_) | Caller::Detached => None,
        }
    }

    /// Whether its chain sees a unary response together with the status, which follows directly.
    pub(crate) fn awaits_status(&self) -> bool {
        let chain = self.chain.as_ref().map(|active| &active.chain);
        let reads =
            chain.and_then(|chain| chain.segments.response.as_ref()).is_some_and(|of| of.reads_status);
        reads && self.method().is_some_and(|method| !method.server_streaming)
    }

    /// Whether it is a try of another call.
    pub(crate) fn is_try(&self) -> bool {
        matches!(self.caller, Caller::Filter(_))
    }

    /// Whether bytes of its request can leave.
    pub(crate) fn can_send_request(&self) -> bool {
        match &self.filtered {
            Some(wrap) => wrap.gathers() || wrap.winner().is_some(),
            None => self.phase == Phase::Open && self.up.is_some(),
        }
    }

    pub(crate) fn method(&self) -> Option<&Method> {
        Some(&self.chain.as_ref()?.chain.methods[self.method?])
    }

    /// Whether the client sends one message: OPEN and REQUEST are one pass then.
    pub(crate) fn is_single_request(&self) -> bool {
        self.method().is_some_and(|m| !m.client_streaming)
    }
}

impl Flow {
    /// Creates the state of one direction, whose messages have at most `message_bytes_max` bytes.
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

    /// Whether it has ended with nothing but headers.
    pub(crate) fn is_empty(&self) -> bool {
        self.is_ended && self.index == 0 && self.held.is_empty() && self.deframer.is_empty() && self.owed == 0
    }

    /// Returns the known length of the data: the larger of the held bytes and the length in the prefix of the first
    /// message. None before that prefix has arrived. Call this only while nothing has left.
    pub(crate) fn bytes_known(&self) -> Option<u64> {
        let data = self.held.iter().filter_map(|held| match &held.what {
            HeldItem::Data(bytes, _) => Some(bytes),
            HeldItem::End(_) => None,
        });
        let n: u64 = data.clone().map(|bytes| bytes.len() as u64).sum();
        let mut first = [0; HEADER_BYTES];
        let prefix = first.iter_mut().zip(data.flatten()).map(|(to, byte)| *to = *byte).count();
        if prefix < HEADER_BYTES {
            return (self.is_empty() || self.is_end_queued).then_some(n);
        }
        let [_, length @ ..] = first;
        Some(n.max(HEADER_BYTES as u64 + u64::from(u32::from_be_bytes(length))))
    }

    /// Holds bytes in front of all held entries.
    pub(crate) fn hold_first(&mut self, now: Time, bytes: Vec<u8>, end: bool) {
        self.held.push_front(HeldEntry { due: now, what: HeldItem::Data(bytes, end) });
    }

    /// Holds an entry until `due`, and until all earlier ones have left.
    pub(crate) fn hold(&mut self, due: Time, what: HeldItem) {
        let due = self.held.back().map_or(due, |last| last.due.max(due));
        self.held.push_back(HeldEntry { due, what });
    }
}
