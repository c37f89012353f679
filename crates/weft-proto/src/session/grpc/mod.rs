//! gRPC over HTTP/2: the contents of a call's DATA frames and header fields.
//!
//! [`Deframer`] splits a stream's bytes into messages, [`inflate`] decompresses them, [`protobuf`] reads and edits
//! them, and [`mod@header`] handles header values with a gRPC syntax.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

pub mod header;
mod inflate;
mod message;
pub mod protobuf;

pub use inflate::{ENCODINGS, InflateError, inflate, narrow_encodings};
pub use message::{Deframer, HEADER_BYTES, MESSAGE_MAX, Message, MessageError, header};
