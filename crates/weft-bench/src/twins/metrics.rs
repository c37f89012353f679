//! Counts calls and their time.

use weft_core::Status;
use weft_core::abi::Cx;
use weft_ir::program::Meta;

use super::{Element, Site, count_seen};

pub(super) struct Metrics {
    at: u16,
    status: usize,
    elapsed: usize,
    calls: usize,
    failed: usize,
    busy_us: usize,
    slowest_us: usize,
}

impl Element for Metrics {
    const COUNTS_CLOSE: bool = true;

    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            status: site.meta(Meta::Status),
            elapsed: site.meta(Meta::Elapsed),
            calls: site.variable("calls"),
            failed: site.variable("failed"),
            busy_us: site.variable("busy_us"),
            slowest_us: site.variable("slowest_us"),
        }
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        // This worker's part: only this worker writes it, and the worker that shows the sums reads it.
        let merged = &cx.state.merged;
        let elapsed_us = (cx.slots[self.elapsed].a as i64 as f64 / 1e3) as i64;
        merged.add(self.calls, 1);
        merged.add(self.busy_us, elapsed_us as u64);
        let slowest = merged.word(self.slowest_us) as i64;
        merged.set_word(self.slowest_us, slowest.max(elapsed_us) as u64);
        if cx.slots[self.status].a != u64::from(Status::Ok.code()) {
            merged.add(self.failed, 1);
        }
        true
    }
}
