//! Message schemas, from `.proto` files and from descriptor sets.
//!
//! ```
//! use weft_schema::{Found, Source, compile};
//! let text = "syntax = 'proto3'; package p; message M { string user = 1; } service S { rpc Do(M) returns (M); }";
//! let root = Source { name: "p.proto".to_owned(), text: text.into() };
//! let schema = compile(root, &mut |_| Found::Missing("there is no such file".to_owned())).expect("it is right");
//! assert_eq!(schema.messages[0].field("user").map(|field| field.number), Some(1));
//! ```
//!
//! What `protoc` reads is read: proto2, proto3 and editions, groups, maps, extensions, public imports. A [`Schema`] has
//! what a reader of messages needs; options without a meaning on the wire, extensions and reserved ranges are stepped
//! over. Pure: files come from the caller. Bytes of any kind give a schema or a [`Fault`], in time that grows as their
//! number, and without recursion deeper than [`NESTING_MAX`].
//!
//! The well-known types, `google/protobuf/*.proto`, are here, and are taken where the caller has no file of that name.

mod declared;
mod descriptors;
mod lexer;
mod link;
mod parser;
mod well_known;

use core::fmt;
use core::ops::Range;
use std::sync::Arc;
use weft_core::schema::Schema;

pub use link::compile;

/// Files of one schema, its imports included.
pub const FILES_MAX: usize = 1024;
/// Bytes of all files of one schema.
pub const BYTES_MAX: usize = 64 << 20;
/// How deep messages nest in messages, as in `protoc`.
pub const NESTING_MAX: usize = 32;
/// Bytes of a name, with all names in front of it, and of the path of an import.
pub const NAME_BYTES_MAX: usize = 1024;

/// A `.proto` file.
#[derive(Clone, Debug)]
pub struct Source {
    /// By which it is known to be the same as another; messages show it.
    pub name: String,
    /// What is in it.
    pub text: Arc<str>,
}

/// What the caller has under the path of an import.
#[derive(Clone, Debug)]
pub enum Found {
    /// This file.
    File(Source),
    /// No file, and why, as a clause: `there is no such file`.
    Missing(String),
}

/// Why there is no schema.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The fact, as a clause.
    pub why: String,
    /// Where, if it is at a place of a file.
    pub place: Option<Place>,
    /// A file is missing, which is no fault of those that are there.
    pub is_missing: bool,
}

/// A place in a file.
#[derive(Clone, Debug)]
pub struct Place {
    /// The file.
    pub source: Source,
    /// The bytes of its text.
    pub range: Range<usize>,
}

/// The schema of a descriptor set: a `FileDescriptorSet` as `protoc --descriptor_set_out --include_imports` and
/// `buf build` write it.
///
/// # Errors
/// The bytes are damaged, are no descriptor set, or lack a file that one of theirs imports.
pub fn from_descriptors(bytes: &[u8]) -> Result<Schema, Fault> {
    link::link_descriptors(descriptors::read(bytes)?)
}

impl Fault {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), place: None, is_missing: false }
    }

    fn at(why: impl Into<String>, source: &Source, range: Range<usize>) -> Self {
        Self { place: Some(Place { source: source.clone(), range }), ..Self::new(why) }
    }
}

impl Place {
    /// Line and column, both from 1; the column counts characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text[..self.range.start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(place) = &self.place {
            let (line, column) = place.line_and_column();
            write!(f, "{}:{line}:{column}: ", place.source.name)?;
        }
        f.write_str(&self.why)
    }
}

impl core::error::Error for Fault {}
