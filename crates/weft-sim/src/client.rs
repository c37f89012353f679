//! Simulated gRPC clients: their calls, and the responses that they get.

use crate::peer::{Fields, Message, PeerEvent, Session, deframe, to_headers};
use std::collections::BTreeMap;
use weft_core::{Interval, Time};
use weft_proto::session::grpc::Deframer;
use weft_proto::session::grpc::header::{parse_message, write_timeout};
use weft_proto::session::http2::{ErrorCode, StreamId};

/// A call to make.
#[derive(Clone, Debug)]
pub struct Call {
    /// The method: `/shop.Cart/Add`.
    pub path: String,
    /// Request headers besides those of gRPC itself.
    pub headers: Fields,
    /// Start of the call, from the start of the world.
    pub at: Interval,
    /// The messages of the request.
    pub messages: Vec<Message>,
    /// Time between two messages.
    pub gap: Interval,
    /// The deadline that the request announces.
    pub timeout: Option<Interval>,
    /// The client cancels after this time.
    pub leaves_after: Option<Interval>,
    /// The client reads nothing of the response before this time, so the stream's window fills.
    pub reads_after: Option<Interval>,
    /// The client half-closes after the last message. Otherwise the request stays open.
    pub ends: bool,
}

impl Call {
    /// A unary call at the start of the world.
    pub fn unary(path: &str, payload: impl Into<Vec<u8>>) -> Self {
        Self::stream(path, vec![Message::new(payload)])
    }

    /// A call with these messages, at the start of the world.
    pub fn stream(path: &str, messages: Vec<Message>) -> Self {
        Self {
            path: path.to_owned(),
            headers: Vec::new(),
            at: Interval::ZERO,
            messages,
            gap: Interval::ZERO,
            timeout: None,
            leaves_after: None,
            reads_after: None,
            ends: true,
        }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the start time.
    #[must_use]
    pub fn at(mut self, at: Interval) -> Self {
        self.at = at;
        self
    }

    /// Sets the time between messages.
    #[must_use]
    pub fn gap(mut self, gap: Interval) -> Self {
        self.gap = gap;
        self
    }

    /// Sets a deadline.
    #[must_use]
    pub fn timeout(mut self, timeout: Interval) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Cancels the call after a time.
    #[must_use]
    pub fn leaves_after(mut self, time: Interval) -> Self {
        self.leaves_after = Some(time);
        self
    }

    /// Delays the reading of the response.
    #[must_use]
    pub fn reads_after(mut self, time: Interval) -> Self {
        self.reads_after = Some(time);
        self
    }
}

/// The response to a call, as the client saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// When the call began; `None` if it has not begun.
    pub began: Option<Time>,
    /// Response headers; empty for a trailers-only response.
    pub headers: Fields,
    /// The messages of the response.
    pub messages: Vec<Message>,
    /// When each message was complete.
    pub arrived: Vec<Time>,
    /// When and how the call ended; `None` while it is open.
    pub end: Option<(Time, End)>,
    /// The call ended more than once, or something arrived after its end.
    pub is_answered_twice: bool,
}

/// How a call ended for the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum End {
    /// With trailers.
    Status {
        /// `grpc-status`.
        code: u32,
        /// `grpc-message`, decoded.
        text: String,
        /// All of the trailers.
        trailers: Fields,
    },
    /// Its stream was reset.
    Reset,
    /// Its connection was lost.
    Lost,
    /// The client cancelled it.
    Cancelled,
    /// The response is not gRPC.
    NotGrpc,
}

impl Answer {
    /// The status code, if the call ended with trailers.
    pub fn code(&self) -> Option<u32> {
        match &self.end {
            Some((_, End::Status { code, .. })) => Some(*code),
            _ => None,
        }
    }

    /// The status message, if the call ended with trailers.
    pub fn text(&self) -> &str {
        match &self.end {
            Some((_, End::Status { text, .. })) => text,
            _ => "",
        }
    }

    /// The trailers, if there were any.
    pub fn trailers(&self) -> &[(String, String)] {
        match &self.end {
            Some((_, End::Status { trailers, .. })) => trailers,
            _ => &[],
        }
    }

    /// The duration of the call.
    ///
    /// # Panics
    /// If the call has not begun or not ended.
    pub fn took(&self) -> Interval {
        self.end.as_ref().expect("the call has ended").0 - self.began.expect("the call has begun")
    }
}

pub(crate) struct Client {
    pub(crate) session: Option<Session>,
    pub(crate) link: Option<usize>,
    pub(crate) calls: Vec<CallState>,
    by_stream: BTreeMap<StreamId, usize>,
}

pub(crate) struct CallState {
    pub(crate) spec: Call,
    pub(crate) answer: Answer,
    stream: Option<StreamId>,
    deframer: Deframer,
    owed: u32,
    is_reading: bool,
}

impl Client {
    pub(crate) fn new() -> Self {
        Self { session: None, link: None, calls: Vec::new(), by_stream: BTreeMap::new() }
    }

    pub(crate) fn add(&mut self, spec: Call) -> usize {
        let is_reading = spec.reads_after.is_none();
        let (answer, deframer) = (Answer::default(), Deframer::new(64 << 20));
        self.calls.push(CallState { spec, answer, stream: None, deframer, owed: 0, is_reading });
        self.calls.len() - 1
    }

    /// Begins a call. Returns false if no stream is available.
    pub(crate) fn begin(&mut self, now: Time, nth: usize) -> bool {
        let call = &mut self.calls[nth];
        call.answer.began = Some(now);
        let stream = self.session.as_mut().and_then(|s| s.h2.open());
        let (Some(session), Some(stream)) = (self.session.as_mut(), stream) else {
            self.end(now, nth, End::Lost);
            return false;
        };
        let mut timeout = Vec::new();
        if let Some(time) = call.spec.timeout {
            write_timeout(time, &mut timeout);
        }
        let timeout = String::from_utf8(timeout).expect("digits and a unit");
        let mut fields = vec![
            (":method", "POST"),
            (":scheme", "http"),
            (":path", call.spec.path.as_str()),
            (":authority", "cart"),
        ];
        if !call.spec.headers.iter().any(|(name, _)| name == "content-type") {
            fields.push(("content-type", "application/grpc"));
        }
        fields.push(("te", "trailers"));
        if !timeout.is_empty() {
            fields.push(("grpc-timeout", &timeout));
        }
        fields.extend(call.spec.headers.iter().map(|(n, v)| (n.as_str(), v.as_str())));
        let is_empty = call.spec.messages.is_empty() && call.spec.ends;
        if session.h2.send_headers(stream, &to_headers(fields), is_empty).is_err() {
            self.end(now, nth, End::Lost);
            return false;
        }
        call.stream = Some(stream);
        self.by_stream.insert(stream, nth);
        true
    }

    /// Sends one message of a call.
    pub(crate) fn send(&mut self, nth: usize, message: usize) {
        let call = &mut self.calls[nth];
        let (Some(session), Some(stream)) = (self.session.as_mut(), call.stream) else { return };
        let is_last = message + 1 == call.spec.messages.len() && call.spec.ends;
        let message = &call.spec.messages[message];
        // A call that has ended accepts no more data.
        let _ = session.h2.send_data(stream, &message.prefix(), &message.payload, is_last);
    }

    /// Cancels a call.
    pub(crate) fn cancel(&mut self, now: Time, nth: usize) {
        let call = &self.calls[nth];
        if call.answer.end.is_some() {
            return;
        }
        if let (Some(session), Some(stream)) = (self.session.as_mut(), call.stream) {
            session.h2.reset(stream, ErrorCode::Cancel);
            self.by_stream.remove(&stream);
        }
        self.end(now, nth, End::Cancelled);
    }

    /// Starts reading the response.
    pub(crate) fn read(&mut self, nth: usize) {
        let call = &mut self.calls[nth];
        call.is_reading = true;
        let owed = core::mem::take(&mut call.owed);
        if let (Some(session), Some(stream)) = (self.session.as_mut(), call.stream) {
            session.h2.release(stream, owed);
        }
    }

    pub(crate) fn take(&mut self, now: Time, bytes: &[u8]) {
        let Some(session) = self.session.as_mut() else { return };
        for seen in session.take(now, bytes) {
            self.see(now, seen);
        }
    }

    /// The connection is closed.
    pub(crate) fn disconnect(&mut self, now: Time) {
        (self.session, self.link) = (None, None);
        for (_, nth) in core::mem::take(&mut self.by_stream) {
            self.end(now, nth, End::Lost);
        }
    }

    /// Handles one event of the peer: stores headers and messages, returns flow control credit, and ends calls.
    fn see(&mut self, now: Time, seen: PeerEvent) {
        let Some(session) = self.session.as_mut() else { return };
        match seen {
            PeerEvent::Headers { stream, headers, end } => {
                let Some(nth) = self.by_stream.get(&stream).copied() else { return };
                match end {
                    true => self.end_by(now, nth, headers),
                    false => self.calls[nth].answer.headers = headers,
                }
            }
            PeerEvent::Data { stream, data, flow_len, end } => {
                let Some(nth) = self.by_stream.get(&stream).copied() else {
                    session.h2.release(stream, flow_len);
                    return;
                };
                let call = &mut self.calls[nth];
                match call.is_reading {
                    true => session.h2.release(stream, flow_len),
                    false => call.owed += flow_len,
                }
                match deframe(&mut call.deframer, &data) {
                    Some(messages) => {
                        call.answer.arrived.resize(call.answer.messages.len() + messages.len(), now);
                        call.answer.messages.extend(messages);
                    }
                    None => return self.end(now, nth, End::NotGrpc),
                }
                if end {
                    self.end(now, nth, End::NotGrpc);
                }
            }
            PeerEvent::Reset { stream } => {
                if let Some(nth) = self.by_stream.remove(&stream) {
                    // RFC 9113 section 8.1: a server may stop the rest of a request that it has answered.
                    if self.calls[nth].answer.end.is_none() {
                        self.end(now, nth, End::Reset);
                    }
                }
            }
            PeerEvent::GoAway { last_stream } => {
                let gone: Vec<_> = self.by_stream.range(last_stream + 1..).map(|(_, nth)| *nth).collect();
                gone.into_iter().for_each(|nth| self.end(now, nth, End::Lost));
            }
        }
    }

    /// Ends a call by its trailers: with their status, or as not gRPC if there is none or a message is incomplete.
    fn end_by(&mut self, now: Time, nth: usize, trailers: Fields) {
        let get = |name: &str| crate::peer::field(&trailers, name);
        let Some(code) = get("grpc-status").and_then(|v| v.parse().ok()) else {
            return self.end(now, nth, End::NotGrpc);
        };
        let text = parse_message(get("grpc-message").unwrap_or_default().as_bytes());
        if !self.calls[nth].deframer.is_empty() && code == 0 {
            return self.end(now, nth, End::NotGrpc);
        }
        self.end(now, nth, End::Status { code, text, trailers });
    }

    /// Ends a call: releases its stream and the bytes not yet credited. A second end is noted as a duplicate answer.
    fn end(&mut self, now: Time, nth: usize, end: End) {
        let call = &mut self.calls[nth];
        if let Some(stream) = call.stream {
            self.by_stream.remove(&stream);
            if let Some(session) = self.session.as_mut() {
                session.h2.release(stream, core::mem::take(&mut call.owed));
            }
        }
        match call.answer.end {
            None => call.answer.end = Some((now, end)),
            Some(_) => call.answer.is_answered_twice = true,
        }
    }
}
