//! HTTP/2 as a state machine without input or output (RFC 9113), with HPACK (RFC 7541).
//!
//! A [`Connection`] is fed what the peer sent ([`Connection::handle_input`]) and gives one [`Event`] at a
//! time; what must be sent is taken from [`Connection::output`]. Time comes in as an argument, and
//! [`Connection::poll_timeout`] says when [`Connection::handle_timeout`] is due.
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
