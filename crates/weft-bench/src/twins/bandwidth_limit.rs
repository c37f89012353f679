//! Limits the byte rate of requests.

use weft_core::Status;
use weft_core::abi::{Cx, Fault};
use weft_ir::program::Meta;

use super::{Element, Site, abort, count_seen, fail, request_meta};

/// The chain's parameters.
const RATE: f64 = 4e11;
const BURST: f64 = 1e6;

pub(super) struct BandwidthLimit {
    at: u16,
    size: usize,
    bytes_left: usize,
    last: usize,
}

impl Element for BandwidthLimit {
    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            size: request_meta(site.program, Meta::Size),
            bytes_left: site.variable("bytes_left"),
            last: site.variable("last"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let vars = &cx.state.scalars;
        let Some(since) = cx.now.0.checked_sub(vars.word(self.last) as i64) else {
            return fail(cx, self.at, Fault::Overflow, cx.out.scratch.len());
        };
        let bytes_now = (f64::from_bits(vars.word(self.bytes_left)) + RATE * (since as f64 / 1e9)).min(BURST);
        let size = cx.slots[self.size].a as f64;
        let is_within = size <= bytes_now;
        vars.set_word(self.last, cx.now.0 as u64);
        vars.set_word(self.bytes_left, (if is_within { bytes_now - size } else { bytes_now }).to_bits());
        is_within || abort(cx, self.at, Status::ResourceExhausted, b"bandwidth limit")
    }
}
