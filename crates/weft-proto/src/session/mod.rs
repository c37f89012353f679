//! Protocol endpoints. Each is a state machine: the owner feeds it bytes, and polls it for events and output.

pub mod grpc;
pub mod http2;
