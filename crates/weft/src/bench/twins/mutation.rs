//! A header for each request, and a prefix for a field.

use weft_core::abi::{Cell, Cx, Edit, EditTarget, REGION_BODY};
use weft_ir::program::ChainProgram;

use super::{Element, field, header, keep, seen, text};

/// The parameters that the chain gives.
const VALUE: &[u8] = b"blue";
const PREFIX: &[u8] = b"eu-";

pub(super) struct Mutation {
    at: u16,
    header: usize,
    target: usize,
}

impl Element for Mutation {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let request = &program.request;
        Self { at, header: header(request, "x-weft"), target: field(request, "tenant") }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let value = keep(cx, VALUE);
        let target = text(cx, REGION_BODY, self.target);
        let (start, _) = cx.out.keep(PREFIX).expect("it is short");
        let (_, len) = cx.out.keep(target).expect("messages of the benchmark are short");
        let prefixed = Cell::Bytes(start, PREFIX.len() as u32 + len);
        cx.out.edits.extend([
            Edit { target: EditTarget::Input(self.header as u16), value },
            Edit { target: EditTarget::Input(self.target as u16), value: prefixed },
        ]);
        true
    }
}
