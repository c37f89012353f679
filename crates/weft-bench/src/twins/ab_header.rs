//! Sends calls with a certain header to another version.

use weft_core::abi::{Cx, REGION_HEADERS};

use super::{Element, Site, count_seen, header, is_present, redirect_to, text};

/// The chain's parameters.
const VALUE: &[u8] = b"u7";
const TARGET: &[u8] = b"other";

pub(super) struct AbHeader {
    at: u16,
    variant: usize,
}

impl Element for AbHeader {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, variant: header(&site.program.request, "x-variant") }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        if is_present(cx, self.variant) && text(cx, REGION_HEADERS, self.variant) == VALUE {
            redirect_to(cx, self.at, TARGET);
        }
        true
    }
}
