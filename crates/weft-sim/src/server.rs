//! gRPC servers: what they are asked, and what they do about it.

use crate::peer::{Fields, Message, PeerEvent, Session, deframe, field, to_headers};
use std::collections::BTreeMap;
use weft_core::{Interval, Time};
use weft_proto::session::grpc::Deframer;
use weft_proto::session::http2::{ErrorCode, StreamId};

/// A request as a server saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The server's address.
    pub server: String,
    /// All request headers.
    pub headers: Fields,
    /// The messages.
    pub messages: Vec<Message>,
    /// When each of them was whole.
    pub arrived: Vec<Time>,
    /// The client ended its request.
    pub is_ended: bool,
    /// The stream was reset, or its connection was lost.
    pub is_cancelled: bool,
}

impl Received {
    /// The value of a request header.
    pub fn header(&self, name: &str) -> Option<&str> {
        field(&self.headers, name)
    }

    /// The method: `/shop.Cart/Add`.
    pub fn path(&self) -> &str {
        self.header(":path").unwrap_or_default()
    }
}

/// What a server does about a request.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Response headers besides those of gRPC itself.
    pub headers: Fields,
    /// Trailers besides the status.
    pub trailers: Fields,
    /// `grpc-status`.
    pub status: u32,
    /// Time from what it reacts to until the reaction.
    pub after: Interval,
    /// What it answers.
    pub reply: Reply,
}

/// What a server answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Each message as it came, and the end when the request has ended.
    Echo,
    /// These messages and the end, when the request has ended.
    Messages(Vec<Message>),
    /// These messages and the end, when the headers have come.
    AtOnce(Vec<Message>),
    /// These messages, when the headers have come, and a reset so much later.
    ThenReset(Vec<Message>, Interval, ErrorCode),
    /// Nothing, ever.
    Silence,
    /// The stream is reset once so many messages have come (0: with the headers).
    Reset(usize, ErrorCode),
    /// The connection is reset once so many messages have come.
    Die(usize),
    /// The response ends without trailers when the request has ended.
    NoTrailers(Message),
    /// These bytes, whatever they are, as the response's body.
    Raw(Vec<u8>),
    /// A page with this HTTP status, as of a proxy that speaks no gRPC.
    Page(u16, Vec<u8>),
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::new(Reply::Echo)
    }
}

impl Behaviour {
    /// This reply, at once, with status OK.
    pub fn new(reply: Reply) -> Self {
        Self { headers: Vec::new(), trailers: Vec::new(), status: 0, after: Interval::ZERO, reply }
    }

    /// The same, later.
    #[must_use]
    pub fn after(mut self, after: Interval) -> Self {
        self.after = after;
        self
    }

    /// The same with a status.
    #[must_use]
    pub fn status(mut self, code: u32) -> Self {
        self.status = code;
        self
    }

    /// The same with a response header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a trailer.
    #[must_use]
    pub fn trailer(mut self, name: &str, value: &str) -> Self {
        self.trailers.push((name.to_owned(), value.to_owned()));
        self
    }
}

pub(crate) type Handler = Box<dyn FnMut(&Received) -> Behaviour>;

pub(crate) struct Server {
    pub(crate) address: String,
    pub(crate) handler: Handler,
    pub(crate) is_down: bool,
    /// Attempts to connect are neither taken nor refused.
    pub(crate) is_unreachable: bool,
    /// Streams that one connection may have.
    pub(crate) streams_max: u32,
}

/// A connection of the engine at a server.
pub(crate) struct ServerConn {
    pub(crate) server: usize,
    pub(crate) session: Session,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    /// It dies once its bytes are out.
    pub(crate) is_dying: bool,
}

pub(crate) struct Stream {
    /// Its place in the list of all requests.
    pub(crate) received: usize,
    behaviour: Behaviour,
    deframer: Deframer,
    is_begun: bool,
}

/// Something that a server does later.
#[derive(Clone, Debug)]
pub(crate) struct Reaction {
    pub(crate) stream: StreamId,
    pub(crate) kind: ReactionKind,
}

#[derive(Clone, Debug)]
pub(crate) enum ReactionKind {
    Send(Message),
    Raw(Vec<u8>),
    End,
    EndWithoutTrailers(Message),
    Page(u16, Vec<u8>),
    Reset(ErrorCode),
    Die,
}

impl ServerConn {
    /// Takes in what has come; gives what is to be done, and after how long.
    pub(crate) fn take(
        &mut self,
        now: Time,
        bytes: &[u8],
        server: &mut Server,
        all: &mut Vec<Received>,
    ) -> Vec<(Interval, Reaction)> {
        let mut reactions = Vec::new();
        for seen in self.session.take(now, bytes) {
            match seen {
                PeerEvent::Headers { stream, headers, end } => {
                    if !self.streams.contains_key(&stream) {
                        self.begin(stream, headers, server, all, &mut reactions);
                    }
                    if end {
                        self.end_of_request(stream, all, &mut reactions);
                    }
                }
                PeerEvent::Data { stream, data, flow_len, end } => {
                    self.session.h2.release(stream, flow_len);
                    self.data(now, stream, &data, all, &mut reactions);
                    if end {
                        self.end_of_request(stream, all, &mut reactions);
                    }
                }
                PeerEvent::Reset { stream } => {
                    if let Some(stream) = self.streams.remove(&stream) {
                        all[stream.received].is_cancelled = true;
                    }
                }
                PeerEvent::GoAway { .. } => {}
            }
        }
        reactions
    }

    /// Does what was planned; true if the connection dies of it.
    pub(crate) fn act(&mut self, reaction: Reaction) -> bool {
        let id = reaction.stream;
        let Some(stream) = self.streams.get_mut(&id) else { return false };
        let h2 = &mut self.session.h2;
        if !stream.is_begun
            && matches!(
                reaction.kind,
                ReactionKind::Send(_) | ReactionKind::Raw(_) | ReactionKind::EndWithoutTrailers(_)
            )
        {
            stream.is_begun = true;
            let own = stream.behaviour.headers.iter().map(|(n, v)| (n.as_str(), v.as_str()));
            let fields = [(":status", "200"), ("content-type", "application/grpc")].into_iter().chain(own);
            let _ = h2.send_headers(id, &to_headers(fields), false);
        }
        match reaction.kind {
            ReactionKind::Send(message) => {
                let _ = h2.send_data(id, &message.prefix(), &message.payload, false);
            }
            ReactionKind::Raw(bytes) => {
                let _ = h2.send_data(id, &[], &bytes, false);
            }
            ReactionKind::EndWithoutTrailers(message) => {
                let _ = h2.send_data(id, &message.prefix(), &message.payload, true);
                self.streams.remove(&id);
            }
            ReactionKind::End => {
                let status = stream.behaviour.status.to_string();
                let is_alone = !stream.is_begun;
                let first = [(":status", "200"), ("content-type", "application/grpc")];
                let own = stream.behaviour.trailers.iter().map(|(n, v)| (n.as_str(), v.as_str()));
                let fields = first.into_iter().filter(|_| is_alone).chain([("grpc-status", &status[..])]);
                let _ = h2.send_headers(id, &to_headers(fields.chain(own)), true);
                self.streams.remove(&id);
            }
            ReactionKind::Page(status, body) => {
                let status = status.to_string();
                let fields = [(":status", &status[..]), ("content-type", "text/html")];
                let _ = h2.send_headers(id, &to_headers(fields), body.is_empty());
                if !body.is_empty() {
                    let _ = h2.send_data(id, &[], &body, true);
                }
                self.streams.remove(&id);
            }
            ReactionKind::Reset(code) => {
                h2.reset(id, code);
                self.streams.remove(&id);
            }
            ReactionKind::Die => {
                self.is_dying = true;
                return true;
            }
        }
        false
    }

    fn begin(
        &mut self,
        id: StreamId,
        headers: Fields,
        server: &mut Server,
        all: &mut Vec<Received>,
        reactions: &mut Vec<(Interval, Reaction)>,
    ) {
        let received = Received { server: server.address.clone(), headers, ..Received::default() };
        let behaviour = (server.handler)(&received);
        all.push(received);
        let after = behaviour.after;
        let deframer = Deframer::new(64 << 20);
        let mut react = |kind| reactions.push((after, Reaction { stream: id, kind }));
        match &behaviour.reply {
            Reply::AtOnce(messages) => {
                messages.iter().for_each(|m| react(ReactionKind::Send(m.clone())));
                react(ReactionKind::End);
            }
            Reply::ThenReset(messages, later, code) => {
                messages.iter().for_each(|m| react(ReactionKind::Send(m.clone())));
                let reset = Reaction { stream: id, kind: ReactionKind::Reset(*code) };
                reactions.push((Interval(after.0 + later.0), reset));
            }
            Reply::Reset(0, code) => react(ReactionKind::Reset(*code)),
            Reply::Die(0) => react(ReactionKind::Die),
            Reply::Raw(bytes) => {
                react(ReactionKind::Raw(bytes.clone()));
                react(ReactionKind::End);
            }
            _ => {}
        }
        self.streams.insert(id, Stream { received: all.len() - 1, behaviour, deframer, is_begun: false });
    }

    fn data(
        &mut self,
        now: Time,
        id: StreamId,
        data: &[u8],
        all: &mut [Received],
        reactions: &mut Vec<(Interval, Reaction)>,
    ) {
        let Some(stream) = self.streams.get_mut(&id) else { return };
        let Some(messages) = deframe(&mut stream.deframer, data) else {
            self.session.violation = Some("a request that is no gRPC");
            return;
        };
        let received = &mut all[stream.received];
        let after = stream.behaviour.after;
        for message in messages {
            received.messages.push(message.clone());
            received.arrived.push(now);
            let n = received.messages.len();
            let kind = match stream.behaviour.reply {
                Reply::Echo => ReactionKind::Send(message),
                Reply::Reset(at, code) if at == n => ReactionKind::Reset(code),
                Reply::Die(at) if at == n => ReactionKind::Die,
                _ => continue,
            };
            reactions.push((after, Reaction { stream: id, kind }));
        }
    }

    fn end_of_request(
        &mut self,
        id: StreamId,
        all: &mut [Received],
        reactions: &mut Vec<(Interval, Reaction)>,
    ) {
        let Some(stream) = self.streams.get(&id) else { return };
        all[stream.received].is_ended = true;
        let after = stream.behaviour.after;
        let mut react = |kind| reactions.push((after, Reaction { stream: id, kind }));
        match &stream.behaviour.reply {
            Reply::Echo => react(ReactionKind::End),
            Reply::Messages(messages) => {
                messages.iter().for_each(|m| react(ReactionKind::Send(m.clone())));
                react(ReactionKind::End);
            }
            Reply::NoTrailers(message) => react(ReactionKind::EndWithoutTrailers(message.clone())),
            Reply::Page(status, body) => react(ReactionKind::Page(*status, body.clone())),
            Reply::AtOnce(_)
            | Reply::ThenReset(..)
            | Reply::Silence
            | Reply::Reset(..)
            | Reply::Die(_)
            | Reply::Raw(_) => {}
        }
    }
}
