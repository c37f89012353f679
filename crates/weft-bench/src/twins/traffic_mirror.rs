//! Copies some calls to another server.

use weft_core::abi::{Cx, Fault, Mirror};
use weft_core::hash::{draw, unit_float};

use super::{Element, Site, count_seen, fail};

/// The chain's parameters.
const PERCENT: f64 = 10.0;
const TARGET: &[u8] = b"other";

pub(super) struct TrafficMirror {
    at: u16,
    rand_site: u64,
}

impl Element for TrafficMirror {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, rand_site: site.rand_sites()[0] }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        if unit_float(draw(cx.rand, self.rand_site)) >= PERCENT / 100.0 {
            return true;
        }
        let kept = cx.out.scratch.len();
        let Some(target) = cx.out.keep(TARGET) else { return fail(cx, self.at, Fault::TooLong, kept) };
        let edits = cx.out.edits.len() as u32;
        cx.out.mirrors.push(Mirror { target, edits });
        true
    }
}
