//! Counts of calls and their time.

use weft_core::Status;
use weft_core::abi::Cx;
use weft_ir::program::{ChainProgram, Meta};

use super::{Element, meta, seen};

pub(super) struct Metrics {
    at: u16,
    status: usize,
    elapsed: usize,
    calls: u64,
    failed: u64,
    busy: i64,
    slowest: i64,
}

impl Element for Metrics {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let status = meta(&program.response, Meta::Status);
        let elapsed = meta(&program.response, Meta::Elapsed);
        Self { at, status, elapsed, calls: 0, failed: 0, busy: 0, slowest: i64::MIN }
    }

    #[inline(always)]
    fn request(&mut self, _: &mut Cx<'_>) -> bool {
        true
    }

    #[inline(always)]
    fn close(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let elapsed = cx.slots[self.elapsed].a as i64;
        self.calls = self.calls.wrapping_add(1);
        self.busy = self.busy.wrapping_add(elapsed);
        self.slowest = self.slowest.max(elapsed);
        if cx.slots[self.status].a != u64::from(Status::Ok.code()) {
            self.failed = self.failed.wrapping_add(1);
        }
        true
    }
}
