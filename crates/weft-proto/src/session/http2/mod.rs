//! HTTP/2 as a state machine without I/O (RFC 9113), with HPACK (RFC 7541).
//!
//! Feed a [`Connection`] the peer's bytes with [`Connection::handle_input`]; it returns one [`Event`] at a time. Send
//! the bytes of [`Connection::output`]. Time is an argument, and [`Connection::poll_timeout`] returns when
//! [`Connection::handle_timeout`] is due.
//!
//! ```
//! use weft_core::Time;
//! use weft_proto::session::http2::{Config, Connection, Event, HeadersBuilder};
//!
//! let now = Time(0);
//! let (mut client, mut server) = (Connection::new(Config::client(), now), Connection::new(Config::server(), now));
//! let mut request = HeadersBuilder::new();
//! for (name, value) in [(":method", "POST"), (":scheme", "http"), (":path", "/shop.Cart/Add")] {
//!     request.push(name.as_bytes(), value.as_bytes()).unwrap();
//! }
//! let stream = client.open().unwrap();
//! client.send_headers(stream, &request.build(), true).unwrap();
//!
//! let (consumed, event) = server.handle_input(now, client.output()).unwrap();
//! let Some(Event::Headers { headers, .. }) = event else { panic!("the request") };
//! assert_eq!(headers.path(), Some(&b"/shop.Cart/Add"[..]));
//! client.advance_output(consumed);
//! ```

mod connection;
mod frame;
mod headers;
pub mod hpack;

pub use connection::{
    Config, Connection, ConnectionError, Counters, Event, Keepalive, ResetBy, Role, SendError, StreamId,
    Violation, limits,
};
pub use frame::ErrorCode;
pub use headers::{Headers, HeadersBuilder, Malformed};
