//! Simulated gRPC servers: the requests that they get, and their behaviour.

use crate::peer::{Fields, Message, PeerEvent, Session, deframe, field, to_headers};
use std::collections::BTreeMap;
use weft_core::{Interval, Time};
use weft_proto::session::grpc::Deframer;
use weft_proto::session::http2::{ErrorCode, StreamId};

/// A request as the server saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received {
    /// The server's address.
    pub server: String,
    /// All request headers.
    pub headers: Fields,
    /// The messages.
    pub messages: Vec<Message>,
    /// When each message was complete.
    pub arrived: Vec<Time>,
    /// The client half-closed the request.
    pub is_ended: bool,
    /// The stream was reset, or its connection was closed.
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

/// How a server responds to a request.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Response headers besides those of gRPC itself.
    pub headers: Fields,
    /// Trailers besides the status.
    pub trailers: Fields,
    /// `grpc-status`.
    pub status: u32,
    /// Time between a cause and the server's reaction.
    pub after: Interval,
    /// The reply.
    pub reply: Reply,
}

/// The content of a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// Each message as it arrives, and the end once the request has ended.
    Echo,
    /// These messages and the end, once the request has ended.
    Messages(Vec<Message>),
    /// These messages and the end, as soon as the headers arrive.
    AtOnce(Vec<Message>),
    /// These messages as soon as the headers arrive, and a reset after this time.
    ThenReset(Vec<Message>, Interval, ErrorCode),
    /// No reply.
    Silence,
    /// A reset of the stream after this number of messages (0: after the headers).
    Reset(usize, ErrorCode),
    /// A reset of the connection after this number of messages.
    Die(usize),
    /// A response that ends without trailers, once the request has ended.
    NoTrailers(Message),
    /// These bytes as the response's body, valid or not.
    Raw(Vec<u8>),
    /// A page with this HTTP status, as from a proxy without gRPC.
    Page(u16, Vec<u8>),
}

impl Default for Behaviour {
    fn default() -> Self {
        Self::new(Reply::Echo)
    }
}

impl Behaviour {
    /// This reply, immediately, with status OK.
    pub fn new(reply: Reply) -> Self {
        Self { headers: Vec::new(), trailers: Vec::new(), status: 0, after: Interval::ZERO, reply }
    }

    /// Delays the reactions.
    #[must_use]
    pub fn after(mut self, after: Interval) -> Self {
        self.after = after;
        self
    }

    /// Sets the status.
    #[must_use]
    pub fn status(mut self, code: u32) -> Self {
        self.status = code;
        self
    }

    /// Adds a response header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a trailer.
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
    /// Connection attempts are neither accepted nor refused.
    pub(crate) is_unreachable: bool,
    /// Maximum number of concurrent streams per connection.
    pub(crate) streams_max: u32,
}

/// A connection from the engine to a server.
pub(crate) struct ServerConn {
    pub(crate) server: usize,
    pub(crate) session: Session,
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    /// The connection is reset once its output is sent.
    pub(crate) is_dying: bool,
}

pub(crate) struct Stream {
    /// Index into the list of all requests.
    pub(crate) received: usize,
    behaviour: Behaviour,
    deframer: Deframer,
    is_begun: bool,
}

/// A scheduled action of a server.
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
    /// Processes input. Returns the reactions with their delays.
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

    /// Carries out a reaction. Returns true if it resets the connection.
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

    /// Starts a call: the server's handler chooses its behaviour. Schedules the reactions that do not wait for
    /// messages.
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

    /// Reads the messages of a call, and schedules the reactions to them.
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
            self.session.violation = Some("not a gRPC request");
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

    /// Marks the request as complete, and schedules the reactions that wait for its end.
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
