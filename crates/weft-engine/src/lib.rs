//! The data plane, without sockets and without a clock.
//!
//! An [`Engine`] is one worker. It owns its connections, calls, timers and its part of the state, and runs each message
//! through the compiled chain of its route. Bytes, connection events and the time come in through `handle_*`. Bytes,
//! actions, sink rows and the next timeout come out through `poll_*`. The same engine runs on sockets (`weft-io`) and
//! in the simulator (`weft-sim`).
//!
//! Calls:
//! * [`plan`]: what an engine runs: listeners, clusters, routes, and chains with their code and state.
//! * [`state`]: the state of chains on a node, carried from version to version.
//! * [`rules`]: changes of the tables that the controller fills.
//! * [`Engine`]: connections, calls and upstream pools.
//! * [`call_queue`]: calls that wait in a queue program in front of a cluster or behind a listener.
//!
//! Packets:
//! * [`packet`]: the engine for packets: it runs frames from ports through chains.
//! * [`queue`]: runs queue programs over packets that wait.
//! * [`recording`]: records the operations on a queue so that they can be replayed.
//!
//! Output beside the traffic:
//! * [`sinks`], [`stats`], [`report`]: rows for sinks, and the counters of a worker and of a node.

mod active_plan;
mod call;
pub mod call_queue;
mod conn;
mod end;
mod engine;
mod expiry;
mod filter;
mod headers;
mod http2_events;
mod memory;
pub mod packet;
mod pass;
pub mod plan;
mod pool;
pub mod queue;
pub mod recording;
pub mod report;
mod request;
mod resend;
mod response;
mod routes;
pub mod rules;
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
