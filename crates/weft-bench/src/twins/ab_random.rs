//! Sends a random share of calls to another version.

use weft_core::abi::Cx;
use weft_core::hash::{draw, unit_float};

use super::{Element, Site, count_seen, redirect_to};

/// The chain's parameters.
const PERCENT: f64 = 50.0;
const TARGET: &[u8] = b"other";

pub(super) struct AbRandom {
    at: u16,
    rand_site: u64,
}

impl Element for AbRandom {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, rand_site: site.rand_sites()[0] }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        if unit_float(draw(cx.rand, self.rand_site)) < PERCENT / 100.0 {
            redirect_to(cx, self.at, TARGET);
        }
        true
    }
}
