//! The tables of a node as a database: statements on rows, and the node's state as system tables.

mod ports;
mod rows;
mod select;
mod sent;
mod summary;
pub mod system;

pub use ports::{changes_to, filled_by_ports};
pub use rows::{
    RowUpdate, UpdateError, check_change, check_rows, find, on_row, put_row, requested_changes, row_error,
    update_row, updated, with_done,
};
pub use select::{RowSource, answer, ask, each_of, each_row, meets, named, row_fault, row_source};
pub use sent::{note_refused, sent_changes};

/// The least interval between two rebuilds of compiled rules.
pub const REBUILD_EVERY: core::time::Duration = core::time::Duration::from_millis(20);
