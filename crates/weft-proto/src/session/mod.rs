//! Protocol endpoints. Each is a state machine that is fed bytes and polled for events and output.

pub mod grpc;
pub mod http2;
