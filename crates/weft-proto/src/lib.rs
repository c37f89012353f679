//! Protocols as pure state machines: bytes and time come in as arguments, events and bytes go out as values.
//!
//! This crate opens no sockets, reads no clock and starts no threads, so the same code runs under a driver and in the
//! simulator.

pub mod capture;
pub mod session;
