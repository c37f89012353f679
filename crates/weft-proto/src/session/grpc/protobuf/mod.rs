//! Protobuf payloads: read a few fields, set a few fields, and leave the rest alone.
//!
//! A [`Walk`] is compiled once from a [`Schema`](weft_core::schema::Schema) and the columns that a program reads.
//! [`Walk::run`] then passes over each payload once, without decoding it. What it finds is what a full decoder
//! would find, because an element that is an access rule must see what the server behind it will see:
//!
//! - of a field that occurs more than once, the last value counts;
//! - a sub-message that occurs more than once is merged;
//! - a member of a `oneof` clears the other members, those included that no column reads;
//! - a known number with another wire type is an unknown field, and unknown fields and groups are stepped over;
//! - a value that a closed enum does not have is an unknown field, and clears no other member of its oneof;
//! - a delimited message (a proto2 group) is read between its tags, and only there;
//! - a wrapper (`google.protobuf.StringValue`) is the scalar in it, and absent if the wrapper is;
//! - bytes that a strict decoder refuses are refused.
//!
//! Repeated fields, entries of maps and the presence of messages are found by [`Lists`].
//! [`Walk::rewrite`] sets or clears columns by splicing: bytes that are not part of an edited field are copied.
//!
//! Limits: [`SLOTS_MAX`] columns, [`DEPTH_MAX`] levels. Defaults of proto2 are not read: a field that is absent is
//! absent. A `string` that is read must be UTF-8, whatever its syntax says, since a column that holds it is text.

mod lists;
mod rewrite;
mod walk;
mod wire;

pub use lists::{Lists, ListsBuilder};
pub use rewrite::{EditError, EditValue, encode};
pub use walk::{SLOTS_MAX, Walk, WalkBuilder, WalkError};
pub use wire::{DEPTH_MAX, Malformed, Reason};
