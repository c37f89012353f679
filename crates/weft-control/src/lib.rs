//! The control plane, without threads, locks and I/O: it checks programs, compiles them into versions of a plan, and
//! answers questions about a node.
//!
//! The caller passes in the files ([`files::Store`]), the back end, the services of the machine ([`host::Host`]), the
//! time, and the counters of the node. So the same code runs in a node, in a command and in a simulation.
//!
//! A program:
//! * [`files`], [`library`]: its files, and those of the standard library.
//! * [`check`]: checks it.
//! * [`compile`]: compiles it into the next version of a node's plan.
//! * [`memory`]: limits the memory that it may use.
//! * [`ordering`]: chooses the order of elements.
//! * [`outline`], [`dropped`]: what an update changes, and the state that it drops.
//!
//! A node:
//! * [`tables`]: statements on its tables, and its state as system tables.
//! * [`alter`]: edits its program by a statement.
//! * [`recording`]: replays the recorded queue of a link, and explains its packets.
//! * [`explain`]: explains chains and queues.
//! * [`status`], [`metrics`]: its counters for the API and for Prometheus.

pub mod alter;
pub mod check;
pub mod compile;
pub mod definition_files;
pub mod dropped;
pub mod explain;
pub mod fault;
pub mod files;
pub mod host;
#[cfg(test)]
#[path = "../../weft-lang/tests/support/large.rs"]
mod large;
pub mod library;
pub mod memory;
pub mod metrics;
pub mod missing_args;
mod natives;
pub mod ordering;
pub mod outline;
pub mod packets;
pub mod ports;
pub mod recording;
pub mod show;
pub mod status;
pub mod tables;
#[cfg(test)]
mod testing;
pub mod units;
