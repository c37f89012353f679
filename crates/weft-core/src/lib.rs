//! The vocabulary of Weft: the types and interfaces that all other crates share.
//!
//! The crate has no dependencies, reads no clock, opens no socket and starts no thread. It holds:
//!
//! * the value types of the language, time, limits and gRPC statuses ([`types`], [`time`], [`limits`], [`status`]);
//! * message schemas and wire formats ([`schema`], [`wire`]);
//! * state tables and rule look-up ([`table`], [`classify`], [`matching`]);
//! * packets and their flows ([`frame`], [`ip`], [`flow`]);
//! * the interface between compiled code and the engine ([`abi`], [`prefetch`]).

pub mod abi;
pub mod checksum;
pub mod classify;
pub mod filter;
pub mod flow;
pub mod frame;
pub mod hash;
pub mod inputs;
pub mod ip;
pub mod limits;
pub mod list;
pub mod marks;
pub mod matching;
pub mod methods;
pub mod native;
pub mod offloaded;
pub mod options;
pub mod prefetch;
pub mod rng;
pub mod round_robin;
pub mod schema;
pub mod status;
pub mod table;
pub mod text;
pub mod time;
pub mod types;
pub mod wire;

pub use status::Status;
pub use time::{Interval, Time};
pub use types::{Type, Value};
