//! The Weft language, from text to a checked program.
//!
//! Pure: no files, no clock, no threads. Every stage returns a result *and* its diagnostics, and continues after an
//! error, so that one run reports several errors.

pub mod ast;
pub mod check;
pub mod diagnostic;
pub mod editor;
pub mod format;
pub mod hir;
pub mod lexer;
mod nearest;
pub mod parser;
pub mod ports;
pub mod resolve;
pub mod source;
pub mod types;

pub use check::check;
pub use nearest::nearest;
pub use resolve::Resolver;
