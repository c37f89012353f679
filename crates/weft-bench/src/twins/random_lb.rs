//! Chooses a random server.

use weft_core::abi::Cx;
use weft_core::hash::{draw, unit_float};

use super::{Element, Servers, Site, count_seen};

pub(super) struct RandomLb {
    at: u16,
    servers: Servers,
    rand_site: u64,
}

impl Element for RandomLb {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, servers: Servers::new(site), rand_site: site.rand_sites()[0] }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let drawn = unit_float(draw(cx.rand, self.rand_site)) * self.servers.count(cx) as f64;
        self.servers.redirect(cx, self.at, drawn as u64)
    }
}
