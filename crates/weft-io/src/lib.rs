//! The drivers: sockets, clocks, threads and files around the sans-I/O engine.
//!
//! A [`Node`] runs one [`weft_engine::Engine`] on each worker thread. A worker owns its connections; worker 0 accepts
//! and deals connections out in turn. Other threads talk to workers through mailboxes that are read between batches.
//!
//! * [`node`]: workers and what can be asked of them.
//! * `worker`: the poll loop of one.
//! * [`packet`]: what carries packets in and out.
//! * [`privileges`]: which capabilities a node keeps.
//! * [`socket`]: TCP and Unix sockets as one thing.
//! * [`clock`]: the only place that reads a clock.
//! * [`descriptors`]: which sockets may have the last ones.
//! * [`names`]: the addresses of the names of endpoints.
//! * `race`: one connection to an endpoint of several addresses.
//! * [`mod@file`]: regular files, and no further than a limit.
//! * [`memory`]: huge pages for large tables.
//! * [`writer`]: the thread that writes sink rows.

pub mod clock;
pub mod descriptors;
pub mod file;
pub mod memory;
pub mod names;
pub mod node;
pub mod packet;
pub mod privileges;
mod race;
pub mod socket;
mod spin;
mod worker;
pub mod writer;

pub use node::{Node, NodeConfig, NodeError, Ports};
pub use spin::{BUSY_POLL_MAX, COALESCE};
pub use worker::Task;
pub use writer::{RowSender, TableRow, Writer, timestamp, write_row};
