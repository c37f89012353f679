//! Some requests fail, and some wait.

use weft_core::abi::Cx;
use weft_core::hash::{draw, unit_float};
use weft_core::{Interval, Status};
use weft_ir::program::ChainProgram;

use super::{Element, abort, rand_sites, seen};

/// The parameters that the chain gives.
pub(super) const ABORT_PERCENT: f64 = 1.0;
pub(super) const DELAY_PERCENT: f64 = 2.0;
pub(super) const DELAY: Interval = Interval::from_millis(3);

pub(super) struct Fault {
    at: u16,
    delay_site: u64,
    abort_site: u64,
}

impl Element for Fault {
    fn new(program: &ChainProgram, at: u16) -> Self {
        let sites = rand_sites(program, at);
        Self { at, delay_site: sites[0], abort_site: sites[1] }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        if unit_float(draw(cx.rand, self.delay_site)) * 100.0 < DELAY_PERCENT {
            cx.out.delay = Interval(cx.out.delay.0.saturating_add(DELAY.0));
        }
        if unit_float(draw(cx.rand, self.abort_site)) * 100.0 < ABORT_PERCENT {
            return abort(cx, self.at, Status::Unavailable, b"fault injected");
        }
        true
    }
}
