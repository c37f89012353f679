//! The common part of clients and servers: an HTTP/2 connection over a stream, and gRPC framing.

use weft_core::Time;
use weft_proto::session::grpc::{Deframer, header as prefix_of};
use weft_proto::session::http2::{Config, Connection, Event, Headers, HeadersBuilder, StreamId};

/// A gRPC message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// The payload as on the wire.
    pub payload: Vec<u8>,
    /// The compressed flag in the message's header.
    pub compressed: bool,
}

impl Message {
    /// An uncompressed message.
    pub fn new(payload: impl Into<Vec<u8>>) -> Self {
        Self { payload: payload.into(), compressed: false }
    }

    pub(crate) fn prefix(&self) -> [u8; 5] {
        prefix_of(self.compressed, self.payload.len() as u32)
    }
}

/// Names and values.
pub type Fields = Vec<(String, String)>;

/// The value of the first field with this name.
pub fn field<'a>(fields: &'a [(String, String)], name: &str) -> Option<&'a str> {
    fields.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
}

pub(crate) fn to_fields(headers: &Headers) -> Fields {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    headers.iter().map(|(name, value, _)| (text(name), text(value))).collect()
}

/// # Panics
/// If a field is invalid in HTTP/2: that is a fault of the test.
pub(crate) fn to_headers<'a>(fields: impl IntoIterator<Item = (&'a str, &'a str)>) -> std::rc::Rc<Headers> {
    let mut builder = HeadersBuilder::new();
    for (name, value) in fields {
        let pushed = builder.push(name.as_bytes(), value.as_bytes()).map(|_| ());
        pushed.unwrap_or_else(|e| panic!("`{name}: {value}` is not a field of HTTP/2: {e:?}"));
    }
    builder.build()
}

/// An HTTP/2 event that owns its data.
pub(crate) enum PeerEvent {
    Headers { stream: StreamId, headers: Fields, end: bool },
    Data { stream: StreamId, data: Vec<u8>, flow_len: u32, end: bool },
    Reset { stream: StreamId },
    GoAway { last_stream: StreamId },
}

/// The peer's end of a stream to the engine.
pub(crate) struct Session {
    pub(crate) h2: Connection,
    partial: Vec<u8>,
    /// The engine violated HTTP/2.
    pub(crate) violation: Option<&'static str>,
}

impl Session {
    pub(crate) fn new(config: Config, now: Time) -> Self {
        Self { h2: Connection::new(config, now), partial: Vec::new(), violation: None }
    }

    /// Processes input and returns the events.
    pub(crate) fn take(&mut self, now: Time, bytes: &[u8]) -> Vec<PeerEvent> {
        let mut input = core::mem::take(&mut self.partial);
        input.extend_from_slice(bytes);
        let (mut taken, mut seen) = (0, Vec::new());
        loop {
            match self.h2.handle_input(now, &input[taken..]) {
                Ok((0, None)) => break,
                Ok((n, event)) => {
                    taken += n;
                    seen.extend(event.and_then(copied));
                }
                Err(error) => {
                    self.violation = Some(error.violation.name());
                    return seen;
                }
            }
        }
        input.drain(..taken);
        self.partial = input;
        seen
    }
}

/// Copies an event of the connection, which borrows its input. None for events that tests do not need.
fn copied(event: Event<'_>) -> Option<PeerEvent> {
    Some(match event {
        Event::Headers { stream, headers, end_stream, .. } => {
            PeerEvent::Headers { stream, headers: to_fields(&headers), end: end_stream }
        }
        Event::Data { stream, data, flow_len, end_stream } => {
            PeerEvent::Data { stream, data: data.to_vec(), flow_len, end: end_stream }
        }
        Event::Reset { stream, .. } => PeerEvent::Reset { stream },
        Event::GoAway { last_stream, .. } => PeerEvent::GoAway { last_stream },
        Event::Unblocked { .. } | Event::StreamsAvailable => return None,
    })
}

/// Splits bytes into messages. `None` if they are not gRPC messages.
pub(crate) fn deframe(deframer: &mut Deframer, mut data: &[u8]) -> Option<Vec<Message>> {
    let mut messages = Vec::new();
    while let Some(message) = deframer.next(&mut data).ok()? {
        messages.push(Message { payload: message.payload.to_vec(), compressed: message.compressed });
    }
    Some(messages)
}
