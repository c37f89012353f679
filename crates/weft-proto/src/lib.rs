//! Protocols as pure state machines: bytes and time come in as arguments, events and bytes go out as values.
//!
//! Nothing here opens a socket, reads a clock or starts a thread, so the same code runs under a driver and
//! under the simulator.

pub mod capture;
pub mod session;
