//! A gRPC client and an echo server that cost far less than stock programs.
//!
//! Both use this project's own HTTP/2 and one thread, in separate processes, so that the cost of a proxy between them
//! can be separated from theirs. Stock programs reach some 60,000 calls a second on one core; with these, the proxy is
//! the bottleneck.
//!
//! The service is that of `benches/peers/go/echo.proto`: it returns `Msg { string user = 1; bytes body = 2; }`
//! unchanged. The user is also in the header `user`, for proxies that cannot read messages.

mod client;
mod server;
mod wire;

pub(crate) use client::{ClientArgs, LoadResult, run as run_client};
pub(crate) use server::{ServerArgs, run as run_server};

/// The number of users; they call in turn: u0, u1 and so on.
pub(crate) const USERS: usize = 100;
/// Bytes of a message's `body`.
pub(crate) const BODY_BYTES: usize = 16;
/// The called method.
pub(crate) const PATH: &str = "/weft.bench.Echo/Echo";

/// A user's message on the wire: gRPC's prefix, then the two fields.
pub(crate) fn message(user: &str) -> Vec<u8> {
    const USER_TAG: u8 = 1 << 3 | 2;
    const BODY_TAG: u8 = 2 << 3 | 2;
    let mut payload = vec![USER_TAG, user.len() as u8];
    payload.extend_from_slice(user.as_bytes());
    payload.extend_from_slice(&[BODY_TAG, BODY_BYTES as u8]);
    payload.resize(payload.len() + BODY_BYTES, b'x');
    let prefix = weft_proto::session::grpc::header(false, payload.len() as u32);
    [&prefix[..], &payload].concat()
}
