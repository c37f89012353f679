//! Chooses servers in turn.

use weft_core::abi::{Cx, Fault};

use super::{Element, Servers, Site, count_seen, fail};

pub(super) struct RoundRobinLb {
    at: u16,
    servers: Servers,
    next: usize,
}

impl Element for RoundRobinLb {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, servers: Servers::new(site), next: site.variable("next") }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let vars = &cx.state.scalars;
        let Some(turn) = vars.word(self.next).checked_rem(self.servers.count(cx)) else {
            return fail(cx, self.at, Fault::DivideByZero, cx.out.scratch.len());
        };
        vars.set_word(self.next, turn + 1);
        self.servers.redirect(cx, self.at, turn)
    }
}
