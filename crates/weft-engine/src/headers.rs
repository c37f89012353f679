//! Builds the engine's own header lists, and adapts forwarded ones.

use rustc_hash::FxHashMap;
use std::rc::Rc;
use weft_core::Status;
use weft_proto::session::grpc::header::{parse_content_type, status_of_http, write_message};
use weft_proto::session::grpc::narrow_encodings;
use weft_proto::session::http2::{Headers, HeadersBuilder};

/// The message encodings that a peer accepts (gRPC over HTTP/2).
pub(crate) const ACCEPT_ENCODING: &[u8] = b"grpc-accept-encoding";

/// The number of cached answers, which are likely to repeat (each cached list is sent as cached bytes).
const KEPT_MAX: usize = 64;

/// Makes answers, and caches those without individual content.
#[derive(Default)]
pub(crate) struct ResponseCache {
    kept: FxHashMap<(Form, Status, Vec<u8>), Rc<Headers>>,
    response: Option<Rc<Headers>>,
}

/// Whether response headers have been sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// Not sent: the response has nothing but trailers.
    TrailersOnly,
    /// Sent.
    Trailers,
}

impl ResponseCache {
    /// Returns the trailers of a call with this status and message.
    pub(crate) fn end_headers(&mut self, form: Form, status: Status, message: &[u8]) -> Rc<Headers> {
        let key = (form, status, message.to_vec());
        if let Some(kept) = self.kept.get(&key) {
            return Rc::clone(kept);
        }
        let made = end_builder(form, status, message).build();
        if self.kept.len() >= KEPT_MAX {
            self.kept.clear();
        }
        self.kept.insert(key, Rc::clone(&made));
        made
    }

    /// The headers of a response that the engine makes.
    pub(crate) fn response(&mut self) -> Rc<Headers> {
        Rc::clone(self.response.get_or_insert_with(|| begin_response(HeadersBuilder::new()).build()))
    }
}

/// Builds the trailers of [`ResponseCache::end_headers`] as a builder, so that headers can be added.
pub(crate) fn end_builder(form: Form, status: Status, message: &[u8]) -> HeadersBuilder {
    let mut builder = HeadersBuilder::new();
    if form == Form::TrailersOnly {
        builder = begin_response(builder);
    }
    push(&mut builder, b"grpc-status", status.code().to_string().as_bytes());
    if !message.is_empty() {
        let mut encoded = Vec::new();
        write_message(&String::from_utf8_lossy(message), &mut encoded);
        push(&mut builder, b"grpc-message", &encoded);
    }
    builder
}

/// Returns the answer to a request that is not gRPC: this HTTP status.
pub(crate) fn not_grpc(status: &[u8]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::new();
    push(&mut builder, b":status", status);
    builder.build()
}

/// Copies a header list with this header added or replaced.
pub(crate) fn with_header(headers: &Headers, name: &[u8], value: &[u8]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::from_headers(headers);
    // Names and values that this node makes are valid.
    let _ = builder.set(name, value);
    builder.build()
}

/// Copies a header list without this header.
pub(crate) fn without_header(headers: &Headers, name: &[u8]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::from_headers(headers);
    builder.remove(name);
    builder.build()
}

/// Returns the list to forward: without the content length, since a chain may change the body and this node may end
/// it.
pub(crate) fn to_forward(headers: &Rc<Headers>) -> Rc<Headers> {
    match headers.content_length() {
        None => Rc::clone(headers),
        Some(_) => without_header(headers, b"content-length"),
    }
}

/// The tag of header lists whose offer was checked.
const IS_READABLE: u64 = 1;

/// Returns a copy of a list that offers only those encodings of its peer that this node can read, so that a chain can
/// read the messages. None if the peer offers no others.
pub(crate) fn narrowed_offer(headers: &Headers) -> Option<Rc<Headers>> {
    let narrowed = narrow_encodings(headers.get(ACCEPT_ENCODING)?)?;
    // An empty list was absent.
    Some(match narrowed.is_empty() {
        true => without_header(headers, ACCEPT_ENCODING),
        false => with_header(headers, ACCEPT_ENCODING, &narrowed),
    })
}

/// Returns a server's header list with its offer [narrowed](narrowed_offer). Repeated lists are checked once.
pub(crate) fn readable_response(headers: Rc<Headers>) -> Rc<Headers> {
    if headers.tag.get() == IS_READABLE {
        return headers;
    }
    narrowed_offer(&headers).unwrap_or_else(|| {
        headers.tag.set(IS_READABLE);
        headers
    })
}

/// Adds the headers that every gRPC response starts with: the HTTP status and the content type.
fn begin_response(mut builder: HeadersBuilder) -> HeadersBuilder {
    push(&mut builder, b":status", b"200");
    push(&mut builder, b"content-type", b"application/grpc");
    builder
}

fn push(builder: &mut HeadersBuilder, name: &[u8], value: &[u8]) {
    builder.push(name, value).expect("these names and values are valid in HTTP/2");
}

/// Returns the gRPC status and message for a response that is not gRPC: what the HTTP status of a server or proxy
/// means. None if it is gRPC.
pub(crate) fn fault_of(headers: &Headers) -> Option<(Status, String)> {
    let http = headers.status().unwrap_or(0);
    if http != 200 {
        return Some((status_of_http(http), format!("the server answered with HTTP status {http}")));
    }
    if headers.get(b"content-type").and_then(parse_content_type).is_none() {
        return Some((status_of_http(http), "the server's answer is not gRPC".to_owned()));
    }
    None
}

/// The status of a call in the trailers of a server.
pub(crate) fn status_of(trailers: &Headers) -> Status {
    let code = trailers.get(b"grpc-status").and_then(|v| core::str::from_utf8(v).ok()?.parse().ok());
    code.and_then(Status::from_code).unwrap_or(Status::Unknown)
}
