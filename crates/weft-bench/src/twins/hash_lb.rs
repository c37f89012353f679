//! Chooses the same server for the same key.

use weft_core::abi::{Cx, Fault, REGION_BODY};
use weft_core::hash::hash_bytes;

use super::{Element, Servers, Site, count_seen, fail, text};

pub(super) struct HashLb {
    at: u16,
    servers: Servers,
    key: usize,
}

impl Element for HashLb {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, servers: Servers::new(site), key: site.field("tenant") }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let hash = hash_bytes(text(cx, REGION_BODY, self.key));
        let Some(slot) = hash.checked_rem(self.servers.count(cx)) else {
            return fail(cx, self.at, Fault::DivideByZero, cx.out.scratch.len());
        };
        self.servers.redirect(cx, self.at, slot)
    }
}
