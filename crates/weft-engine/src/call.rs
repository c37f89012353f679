//! Calls under way.

use crate::call_link::AtLink;
use crate::conn::ConnKey;
use crate::end::End;
use crate::filter::{Choice, Wrap};
use crate::pass::LiveChain;
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
pub(crate) struct Leg {
    pub(crate) conn: ConnKey,
    pub(crate) stream: StreamId,
}

/// Who made a call, and hears of its end.
#[derive(Clone, Copy)]
pub(crate) enum Caller {
    /// A client, on a stream.
    Stream(Leg),
    /// A filter of another call: this is one of its tries.
    Filter(CallKey),
    /// The client has left, or nobody ever waited: it is a mirrored or a detached call.
    Nobody,
}

/// One gRPC call: a stream of a client, the chain that it passes, and the stream that answers it.
pub(crate) struct Call {
    pub(crate) id: u64,
    pub(crate) began: Time,
    pub(crate) caller: Caller,
    /// The client's address. It outlives the client's connection, so that CLOSE has it whatever ended the call.
    pub(crate) peer: Rc<str>,
    pub(crate) up: Option<Leg>,
    /// It has come to the filter behind its chain.
    pub(crate) wrap: Option<Box<Wrap>>,
    pub(crate) pool: Rc<Pool>,
    /// The endpoint that was chosen, or that a REDIRECT named.
    pub(crate) endpoint: Option<EndpointKey>,
    /// The endpoint that answered its last try, behind a filter.
    pub(crate) served_by: Option<EndpointKey>,
    /// What filters have to say about the choice.
    pub(crate) choice: Option<Box<Choice>>,
    pub(crate) chain: Option<Rc<LiveChain>>,
    /// The method's index in the chain's list.
    pub(crate) method: Option<usize>,
    pub(crate) request_headers: Rc<Headers>,
    /// What the chain has said of it to the links behind.
    pub(crate) marks: Marks,
    pub(crate) phase: Phase,
    /// Elements whose OPEN forwarded: those with a lower index.
    pub(crate) opened: usize,
    /// The `CALL` cells of all elements.
    pub(crate) row: Vec<u64>,
    /// What the chain said to the filter behind it.
    pub(crate) keys: Vec<Vec<u8>>,
    pub(crate) request: Flow,
    pub(crate) response: Flow,
    /// The one message of an answer, as long as its chain waits for the status.
    pub(crate) answer: Option<HeldAnswer>,
    /// The status that came behind that message.
    pub(crate) answer_status: Option<Status>,
    /// Response headers that wait for the first message, because the chain may change them.
    pub(crate) response_headers: Option<Rc<Headers>>,
    pub(crate) is_response_begun: bool,
    /// Its end is decided, and perhaps delayed: nothing more of it is passed on.
    pub(crate) is_ending: bool,
    /// A copy that MIRROR made; what comes back is let go.
    pub(crate) is_mirror: bool,
    /// Its caller has left, and was counted; it goes on because it is to take effect once.
    pub(crate) is_detached: bool,
    /// A REDIRECT named its endpoint: no other will do.
    pub(crate) is_redirected: bool,
    /// Where it stands in the link of its listener, and in that of its cluster; None: it has not come to it, or there
    /// is none.
    pub(crate) at_links: [Option<AtLink>; 2],
    /// Whether a link that asks how long its request is may be told now.
    pub(crate) weighed: Weighed,
    pub(crate) deadline: Option<TimerKey>,
    /// When it must be over, as far as its callers have said.
    pub(crate) due: Option<Time>,
    /// Which try of the client's call it is; what `rand()` gives depends on it.
    pub(crate) nth_try: u32,
    /// Times that an endpoint was tried.
    pub(crate) attempts: u32,
    /// What was sent of its request, as long as that could be sent again.
    pub(crate) sent: Option<Sent>,
    /// It was sent again.
    pub(crate) is_resent: bool,
}

/// A message of a response that has not passed its chain.
#[derive(Debug)]
pub(crate) struct HeldAnswer {
    pub(crate) compressed: bool,
    pub(crate) payload: Vec<u8>,
}

/// What was sent of a request behind its headers.
#[derive(Default)]
pub(crate) struct Sent {
    /// The place of the headers in the output of the connection.
    pub(crate) at: u64,
    pub(crate) body: Vec<u8>,
    /// The end was sent as well, if not with the headers.
    pub(crate) is_ended: bool,
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

/// What is done to know how long a request is, before the call comes to a link whose queue asks for that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weighed {
    NotYet,
    /// What its client has sent with the headers is looked at first.
    Soon,
    /// Its client sends a message before anybody answers, and that has yet to come.
    AwaitsMessage,
    /// What is known now is what there is to know.
    Done,
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
        peer: Rc<str>,
        pool: Rc<Pool>,
        request_headers: Rc<Headers>,
        request_bytes_max: u32,
    ) -> Self {
        let response_bytes_max = pool.cluster.options.message_size_max;
        Self {
            id,
            began,
            caller: Caller::Nobody,
            peer,
            up: None,
            wrap: None,
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
            at_links: [None; 2],
            weighed: Weighed::NotYet,
            deadline: None,
            due: None,
            nth_try: 0,
            attempts: 0,
            sent: None,
            is_resent: false,
        }
    }

    /// The client's stream.
    pub(crate) fn down(&self) -> Option<Leg> {
        match self.caller {
            Caller::Stream(leg) => Some(leg),
            Caller::Filter(_) | Caller::Nobody => None,
        }
    }

    /// Whether its chain sees the one message of its answer together with the status, which comes right behind it.
    pub(crate) fn awaits_status(&self) -> bool {
        let chain = self.chain.as_ref().map(|live| &live.chain);
        let reads =
            chain.and_then(|chain| chain.segments.response.as_ref()).is_some_and(|of| of.reads_status);
        reads && self.method().is_some_and(|method| !method.server_streaming)
    }

    /// Whether it is a try of another call.
    pub(crate) fn is_try(&self) -> bool {
        matches!(self.caller, Caller::Filter(_))
    }

    /// Whether bytes of its request can leave.
    pub(crate) fn has_way_on(&self) -> bool {
        match &self.wrap {
            Some(wrap) => wrap.gathers() || wrap.winner().is_some(),
            None => self.phase == Phase::Open && self.up.is_some(),
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

    /// Whether it has ended without anything but its headers.
    pub(crate) fn is_bare(&self) -> bool {
        self.is_ended && self.index == 0 && self.held.is_empty() && self.deframer.is_empty() && self.owed == 0
    }

    /// How many bytes of it are known: those that are held, and what the prefix of the first message promises. None if
    /// that has yet to come. Nothing of it has left.
    pub(crate) fn bytes_known(&self) -> Option<u64> {
        let data = self.held.iter().filter_map(|held| match &held.what {
            HeldItem::Data(bytes, _) => Some(bytes),
            HeldItem::End(_) => None,
        });
        let n: u64 = data.clone().map(|bytes| bytes.len() as u64).sum();
        let mut first = [0; HEADER_BYTES];
        let prefix = first.iter_mut().zip(data.flatten()).map(|(to, byte)| *to = *byte).count();
        if prefix < HEADER_BYTES {
            return (self.is_bare() || self.is_end_queued).then_some(n);
        }
        let [_, length @ ..] = first;
        Some(n.max(HEADER_BYTES as u64 + u64::from(u32::from_be_bytes(length))))
    }

    /// Holds bytes in front of all that is held.
    pub(crate) fn hold_first(&mut self, now: Time, bytes: Vec<u8>, end: bool) {
        self.held.push_front(Held { due: now, what: HeldItem::Data(bytes, end) });
    }

    /// Holds something until `due`, and until all that was held before has left.
    pub(crate) fn hold(&mut self, due: Time, what: HeldItem) {
        let due = self.held.back().map_or(due, |last| last.due.max(due));
        self.held.push_back(Held { due, what });
    }
}
