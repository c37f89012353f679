//! Compiles `.proto` files and descriptor sets into message schemas.
//!
//! ```
//! use weft_schema::{ImportLookup, Source, compile};
//! let text = "syntax = 'proto3'; package p; message M { string user = 1; } service S { rpc Do(M) returns (M); }";
//! let root = Source { name: "p.proto".to_owned(), text: text.into() };
//! let missing = |_: &str| ImportLookup::Missing("there is no such file".to_owned());
//! let schema = compile(root, &mut { missing }).expect("it is valid");
//! assert_eq!(schema.messages[0].field("user").map(|field| field.number), Some(1));
//! ```
//!
//! Accepts what `protoc` accepts: proto2, proto3 and editions, groups, maps, extensions, public imports. A [`Schema`]
//! has what a message reader needs. Options without an effect on the wire, extensions and reserved ranges are skipped.
//!
//! The crate does no I/O: the caller supplies the files. Any input gives a schema or a [`Fault`], in time linear in its
//! size, and with recursion no deeper than [`NESTING_MAX`].
//!
//! The crate contains the well-known types, `google/protobuf/*.proto`, for callers that do not supply them.

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

/// Maximum number of files in one schema, including imports.
pub const FILES_MAX: usize = 1024;
/// Maximum size of all files of one schema, in bytes.
pub const BYTES_MAX: usize = 64 << 20;
/// Maximum nesting depth of messages, the same as in `protoc`.
pub const NESTING_MAX: usize = 32;
/// Maximum length of a fully qualified name and of an import path, in bytes.
pub const NAME_BYTES_MAX: usize = 1024;

/// A `.proto` file.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file's identity: equal names mean the same file. Messages show it.
    pub name: String,
    /// The file's content.
    pub text: Arc<str>,
}

/// The result of a lookup of an import path.
#[derive(Clone, Debug)]
pub enum ImportLookup {
    /// The file.
    File(Source),
    /// There is no such file. The text says why, as a clause: `there is no such file`.
    Missing(String),
}

/// Why no schema could be made.
#[derive(Clone, Debug)]
pub struct Fault {
    /// The fact, as a clause.
    pub why: String,
    /// The location, if the fault belongs to one.
    pub location: Option<Location>,
    /// A file is missing. The files that exist may be correct.
    pub is_missing: bool,
}

/// A byte range in a file.
#[derive(Clone, Debug)]
pub struct Location {
    /// The file.
    pub source: Source,
    /// The bytes in its text.
    pub range: Range<usize>,
}

/// Reads the schema of a descriptor set: a `FileDescriptorSet` that `protoc --descriptor_set_out --include_imports` or
/// `buf build` wrote.
///
/// # Errors
/// The bytes are damaged, are not a descriptor set, or lack an imported file.
pub fn from_descriptors(bytes: &[u8]) -> Result<Schema, Fault> {
    link::link_descriptors(descriptors::read(bytes)?)
}

impl Fault {
    fn new(why: impl Into<String>) -> Self {
        Self { why: why.into(), location: None, is_missing: false }
    }

    fn at(why: impl Into<String>, source: &Source, range: Range<usize>) -> Self {
        Self { location: Some(Location { source: source.clone(), range }), ..Self::new(why) }
    }
}

impl Location {
    /// Line and column, both from 1. The column counts characters.
    pub fn line_and_column(&self) -> (usize, usize) {
        let before = &self.source.text[..self.range.start];
        let line_start = before.rfind('\n').map_or(0, |at| at + 1);
        (before.matches('\n').count() + 1, before[line_start..].chars().count() + 1)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(location) = &self.location {
            let (line, column) = location.line_and_column();
            write!(f, "{}:{line}:{column}: ", location.source.name)?;
        }
        f.write_str(&self.why)
    }
}

impl core::error::Error for Fault {}
