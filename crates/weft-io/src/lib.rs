//! Drivers around the sans-I/O engine: sockets, clocks, threads and files.
//!
//! A [`Node`] runs one [`weft_engine::Engine`] per worker thread. A worker owns its connections; worker 0 accepts them
//! and distributes them round-robin. Other threads send messages to workers through mailboxes, which a worker reads
//! between batches.
//!
//! * [`node`]: starts the workers, sends them requests and updates.
//! * `worker`: the poll loop of one worker for calls.
//! * [`packet`]: packet I/O, and the workers for frames.
//! * [`privileges`]: drops capabilities.
//! * [`socket`]: TCP and Unix sockets behind one type.
//! * [`clock`]: the only module that reads a clock.
//! * [`descriptors`]: reserves the last file descriptors.
//! * [`names`]: resolves the names of endpoints.
//! * `race`: connects to an endpoint with several addresses.
//! * [`mod@file`]: reads regular files up to a limit.
//! * [`memory`]: huge pages for large tables.
//! * [`writer`]: the thread that writes sink rows.

pub mod clock;
pub mod descriptors;
pub mod file;
pub mod memory;
pub mod names;
pub mod node;
pub mod packet;
pub mod parallel_backend;
pub mod privileges;
mod race;
pub mod socket;
mod spin;
mod worker;
pub mod writer;

pub use node::{Node, NodeConfig, NodeError, Ports};
pub use spin::{BUSY_POLL_MAX, COALESCE};
pub use worker::Task;
pub use writer::{RowSender, Writer, write_row};
