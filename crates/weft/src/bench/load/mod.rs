//! A gRPC client and an echo server that cost far less than stock programs.
//!
//! Both run on this project's own HTTP/2 and one thread each, as processes of their own, so that what a proxy
//! between them costs can be told from what they cost. Where stock programs end at some 60,000 calls a second on
//! one core, these leave the proxy as the bottleneck.
//!
//! The service is that of `benches/peers/go/echo.proto`: `Msg { string user = 1; bytes body = 2; }` comes back as it
//! was sent. The user also travels as the header `user`, for proxies that cannot look into a message.

mod client;
mod server;
mod wire;

pub(crate) use client::{ClientArgs, LoadResult, run as run_client};
pub(crate) use server::{ServerArgs, run as run_server};

/// How many users call, in turn: u0, u1 and so on.
pub(crate) const USERS: usize = 100;
/// Bytes of a message's `body`.
pub(crate) const BODY_BYTES: usize = 16;
/// The method that is called.
pub(crate) const PATH: &str = "/weft.bench.Echo/Echo";

/// The message of a user as it travels: gRPC's prefix, then the two fields.
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
