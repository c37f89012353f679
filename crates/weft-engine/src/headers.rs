//! The header lists that the engine itself gives: answers that did not come from a server.

use rustc_hash::FxHashMap;
use std::rc::Rc;
use weft_core::Status;
use weft_proto::session::grpc::header::{parse_content_type, status_of_http, write_message};
use weft_proto::session::grpc::narrow_encodings;
use weft_proto::session::http2::{Headers, HeadersBuilder};

/// The encodings of messages that a peer can read (gRPC over HTTP/2).
pub(crate) const ACCEPT_ENCODING: &[u8] = b"grpc-accept-encoding";

/// Answers that are kept because they are likely to be given again (each kept list is sent as cached bytes).
const KEPT_MAX: usize = 64;

/// Makes answers, and remembers those without anything special.
#[derive(Default)]
pub(crate) struct Answers {
    kept: FxHashMap<(Form, Status, Vec<u8>), Rc<Headers>>,
    response: Option<Rc<Headers>>,
}

/// Whether response headers have been sent before.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Form {
    /// They have not: the answer is a response that is nothing but its trailers.
    TrailersOnly,
    /// They have.
    Trailers,
}

impl Answers {
    /// The end of a call with this status and message.
    pub(crate) fn end(&mut self, form: Form, status: Status, message: &[u8]) -> Rc<Headers> {
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

    /// The headers of a response that the engine gives.
    pub(crate) fn response(&mut self) -> Rc<Headers> {
        Rc::clone(self.response.get_or_insert_with(|| begin(HeadersBuilder::new()).build()))
    }
}

/// As [`Answers::end`], to be added to.
pub(crate) fn end_builder(form: Form, status: Status, message: &[u8]) -> HeadersBuilder {
    let mut builder = HeadersBuilder::new();
    if form == Form::TrailersOnly {
        builder = begin(builder);
    }
    push(&mut builder, b"grpc-status", status.code().to_string().as_bytes());
    if !message.is_empty() {
        let mut encoded = Vec::new();
        write_message(&String::from_utf8_lossy(message), &mut encoded);
        push(&mut builder, b"grpc-message", &encoded);
    }
    builder
}

/// The answer to a request that is not gRPC.
pub(crate) fn not_grpc(status: &[u8]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::new();
    push(&mut builder, b":status", status);
    builder.build()
}

/// A header list with one header more or another.
pub(crate) fn with_header(headers: &Headers, name: &[u8], value: &[u8]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::from_headers(headers);
    // Names and values that this node makes are valid.
    let _ = builder.set(name, value);
    builder.build()
}

/// A header list without a header.
pub(crate) fn without_header(headers: &Headers, name: &[u8]) -> Rc<Headers> {
    let mut builder = HeadersBuilder::from_headers(headers);
    builder.remove(name);
    builder.build()
}

/// The list as it is handed on: without the length of a body that a chain may change, or this node end.
pub(crate) fn to_hand_on(headers: &Rc<Headers>) -> Rc<Headers> {
    match headers.content_length() {
        None => Rc::clone(headers),
        Some(_) => without_header(headers, b"content-length"),
    }
}

/// Of header lists that were looked at: they offer no encoding that this node cannot read.
const IS_READABLE: u64 = 1;

/// What this node says of a peer in place of the peer: of the encodings that it offers, those that can be read here, so
/// that a chain can read what they lead to. None if that is all of them.
pub(crate) fn narrowed_offer(headers: &Headers) -> Option<Rc<Headers>> {
    let narrowed = narrow_encodings(headers.get(ACCEPT_ENCODING)?)?;
    // An empty list is one that was not there.
    Some(match narrowed.is_empty() {
        true => without_header(headers, ACCEPT_ENCODING),
        false => with_header(headers, ACCEPT_ENCODING, &narrowed),
    })
}

/// A server's header list, its offer [narrowed](narrowed_offer). Lists that a server repeats are looked at once.
pub(crate) fn readable_response(headers: Rc<Headers>) -> Rc<Headers> {
    if headers.tag.get() == IS_READABLE {
        return headers;
    }
    narrowed_offer(&headers).unwrap_or_else(|| {
        headers.tag.set(IS_READABLE);
        headers
    })
}

fn begin(mut builder: HeadersBuilder) -> HeadersBuilder {
    push(&mut builder, b":status", b"200");
    push(&mut builder, b"content-type", b"application/grpc");
    builder
}

fn push(builder: &mut HeadersBuilder, name: &[u8], value: &[u8]) {
    builder.push(name, value).expect("these names and values are valid in HTTP/2");
}

/// What is wrong with a response whose headers are not gRPC's: what a server, or a proxy before it, meant by them.
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

/// The status of a call from the trailers that a server sent.
pub(crate) fn status_of(trailers: &Headers) -> Status {
    let code = trailers.get(b"grpc-status").and_then(|v| core::str::from_utf8(v).ok()?.parse().ok());
    code.and_then(Status::from_code).unwrap_or(Status::Unknown)
}
