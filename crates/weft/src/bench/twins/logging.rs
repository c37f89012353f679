//! A row for each call that ends.

use weft_core::abi::{Cell, Cx, REGION_BODY, REGION_META};
use weft_ir::program::{ChainProgram, Meta};

use super::{Element, emit, field, keep, meta, seen, sink, text};

/// Bytes of a user that are kept with the call.
const CALLER_BYTES: usize = 64;

pub(super) struct Logging {
    at: u16,
    sink: u16,
    user: usize,
    object_id: usize,
    call_id: usize,
    peer: usize,
    method: usize,
    status: usize,
    elapsed: usize,
    upstream: usize,
    ended_by: usize,
    caller: [u8; CALLER_BYTES],
    caller_len: usize,
    object: i64,
}

impl Logging {
    fn optional(cx: &mut Cx<'_>, input: usize) -> Cell {
        if cx.present >> input & 1 == 0 { Cell::Null } else { keep(cx, text(cx, REGION_META, input)) }
    }
}

impl Element for Logging {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let (request, response) = (&program.request, &program.response);
        Self {
            at,
            sink: sink(program, at),
            user: field(request, "user"),
            object_id: field(request, "object_id"),
            call_id: meta(response, Meta::CallId),
            peer: meta(response, Meta::Peer),
            method: meta(response, Meta::Method),
            status: meta(response, Meta::Status),
            elapsed: meta(response, Meta::Elapsed),
            upstream: meta(response, Meta::Upstream),
            ended_by: meta(response, Meta::EndedBy),
            caller: [0; CALLER_BYTES],
            caller_len: 0,
            object: 0,
        }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let user = text(cx, REGION_BODY, self.user);
        self.caller_len = user.len().min(CALLER_BYTES);
        self.caller[..self.caller_len].copy_from_slice(&user[..self.caller_len]);
        self.object = cx.slots[self.object_id].a as i64;
        true
    }

    #[inline(always)]
    fn close(&mut self, cx: &mut Cx<'_>) -> bool {
        let number = |cx: &Cx<'_>, input: usize| Cell::Int(cx.slots[input].a as i64);
        let row = [
            Cell::Int(cx.now.0),
            number(cx, self.call_id),
            keep(cx, text(cx, REGION_META, self.peer)),
            keep(cx, text(cx, REGION_META, self.method)),
            keep(cx, &self.caller[..self.caller_len]),
            Cell::Int(self.object),
            number(cx, self.status),
            number(cx, self.elapsed),
            Self::optional(cx, self.upstream),
            Self::optional(cx, self.ended_by),
        ];
        emit(cx, self.sink, row);
        true
    }
}
