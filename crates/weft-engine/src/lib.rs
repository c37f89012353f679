//! The data plane, without its sockets and its clock.
//!
//! An [`Engine`] is one worker: it owns its connections, calls, timers and its part of the state, and runs each
//! message through the compiled chain of its route. Bytes, connection events and the time come in through
//! `handle_*`; bytes, actions, sink rows and the next timeout come out through `poll_*`. The same engine runs on
//! sockets (`weft-io`) and in the simulator (`weft-sim`).
//!
//! * [`plan`]: what the engine runs: listeners, clusters, routes, chains with their code and state.
//! * [`state`]: the state of chains on a node, carried from version to version.
//! * [`Engine`]: connections, calls and upstream pools.
//! * [`packet`]: the same for packets: frames of ports through chains.
//! * [`call_link`]: calls that wait for a cluster in a queue.
//! * [`queue`]: packets that wait, as queue programs say.
//! * [`recording`]: what a queue was asked, to be asked again.
//! * [`sinks`], [`stats`]: what comes out beside the traffic.

mod call;
pub mod call_link;
mod conn;
mod end;
mod engine;
mod expiry;
mod filter;
mod headers;
mod live;
mod memory;
pub mod packet;
mod pass;
pub mod plan;
mod pool;
pub mod queue;
pub mod recording;
mod request;
mod resend;
mod response;
mod routes;
pub mod rules;
mod session;
pub mod sinks;
mod slab;
pub mod state;
pub mod stats;
mod timers;
mod tracing;
mod upstream;
mod verdict;
mod waiting;

pub use conn::{CloseReason, ConnId};
pub use engine::{Action, CONNECTIONS_MAX, Config, Engine, HELD_BYTES_MAX};
pub use filter::{Filter, FilterCounts, FilterStats};
pub use pass::SLOW_PASS_NS;
