//! gRPC over HTTP/2: what is in the DATA frames and header fields of a call.
//!
//! [`Deframer`] cuts a stream's bytes into messages, [`inflate`] undoes their compression, [`protobuf`] reads and
//! edits them, and [`mod@header`] holds the header values that gRPC gives a syntax of its own.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md>.

pub mod header;
mod inflate;
mod message;
pub mod protobuf;

pub use inflate::{ENCODINGS, InflateError, inflate, narrow_encodings};
pub use message::{Deframer, HEADER_BYTES, MESSAGE_MAX, Message, MessageError, header};
