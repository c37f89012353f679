//! Protobuf payloads: reads and sets a few fields, and copies the rest.
//!
//! A [`Walk`] is compiled once from a [`Schema`](weft_core::schema::Schema) and the columns that a program reads.
//! [`Walk::run`] then passes over each payload once, without decoding it. It finds what a full decoder would find: an
//! access rule must see the values that the server will see.
//!
//! - If a field occurs more than once, the last value counts.
//! - If a sub-message occurs more than once, its occurrences are merged.
//! - A member of a `oneof` clears the other members, including those without a column.
//! - A known number with another wire type is an unknown field. Unknown fields and groups are skipped.
//! - A value that is not in a closed enum is an unknown field, and clears no other member of its oneof.
//! - A delimited message (a proto2 group) is read between its tags only.
//! - A wrapper (`google.protobuf.StringValue`) is the scalar in it, and absent if the wrapper is.
//! - Bytes that a strict decoder refuses are refused.
//!
//! [`Lists`] reads repeated fields, map entries, and the presence of messages. [`Walk::rewrite`] sets or clears columns
//! by splicing: it copies all bytes that are not part of an edited field.
//!
//! Limits: [`SLOTS_MAX`] columns, [`DEPTH_MAX`] levels. Defaults of proto2 are not applied: an absent field is absent.
//! A
//! `string` column must be valid UTF-8 in any syntax, because a column holds text.

mod lists;
mod rewrite;
mod walk;
mod wire;

pub use lists::{Lists, ListsBuilder};
pub use rewrite::{EditError, EditValue, encode};
pub use walk::{SLOTS_MAX, Walk, WalkBuilder, WalkError};
pub use wire::{DEPTH_MAX, Malformed, Reason};
