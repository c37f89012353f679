//! Hand-written Rust with the meaning of library elements: what compiled elements are measured against.
//!
//! A twin is what an engineer would write who wants exactly this element on this interface, and wants it fast. Its
//! state is in Rust's own collections, with the same bounds, expiry and eviction as the element's tables. Before a
//! twin is timed, it is held against the interpreter on random messages: verdicts, rows, edits and counters.

mod bounded;

use weft_core::Status;
use weft_core::abi::{Cell, Cx, SinkRow, Verdict};
use weft_ir::ir::Op;
use weft_ir::program::{ChainProgram, Direction, Meta, Place};

/// A chain by hand.
pub(super) trait Twin {
    /// OPEN and REQUEST of all elements.
    fn request(&mut self, cx: &mut Cx<'_>);
    /// RESPONSE of all elements.
    fn response(&mut self, _cx: &mut Cx<'_>) {}
    /// CLOSE of the elements below `opened`.
    fn close(&mut self, _cx: &mut Cx<'_>, _opened: usize) {}
}
