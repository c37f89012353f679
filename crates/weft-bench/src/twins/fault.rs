//! Injects faults: some requests fail, and some are delayed.

use weft_core::abi::Cx;
use weft_core::hash::{draw, unit_float};
use weft_core::{Interval, Status};

use super::{Element, Site, abort, count_seen};

/// The chain's parameters.
const ABORT_PERCENT: f64 = 1.0;
const DELAY_PERCENT: f64 = 2.0;
const DELAY: Interval = Interval::from_millis(3);

pub(super) struct Fault {
    at: u16,
    delay_site: u64,
    abort_site: u64,
}

impl Element for Fault {
    fn new(site: &Site<'_>) -> Self {
        let sites = site.rand_sites();
        Self { at: site.at, delay_site: sites[0], abort_site: sites[1] }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        if unit_float(draw(cx.rand, self.delay_site)) < DELAY_PERCENT / 100.0 {
            cx.out.delay = Interval(cx.out.delay.0.saturating_add(DELAY.0));
        }
        if unit_float(draw(cx.rand, self.abort_site)) < ABORT_PERCENT / 100.0 {
            return abort(cx, self.at, Status::Unavailable, b"fault injected");
        }
        true
    }
}
