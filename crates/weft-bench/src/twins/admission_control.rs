//! Throttles calls by the server's acceptance rate.

use weft_core::Status;
use weft_core::abi::Cx;
use weft_core::hash::{draw, unit_float};

use super::{Element, Site, count_seen, refuse};

/// The chain's parameter.
const K: f64 = 1.0;

pub(super) struct AdmissionControl {
    at: u16,
    status: usize,
    requests: usize,
    accepts: usize,
    rand_site: u64,
}

impl Element for AdmissionControl {
    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            status: site.meta(weft_ir::program::Meta::Status),
            requests: site.variable("requests"),
            accepts: site.variable("accepts"),
            rand_site: site.rand_sites()[0],
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let vars = &cx.state.scalars;
        let [requests, accepts] = [self.requests, self.accepts].map(|at| f64::from_bits(vars.word(at)));
        let refused = (requests - K * accepts) / (requests + 1.0);
        vars.set_word(self.requests, (requests + 1.0).to_bits());
        unit_float(draw(cx.rand, self.rand_site)) >= refused
            || refuse(cx, self.at, Status::Unavailable, b"server overloaded")
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        let status = cx.slots[self.status].a;
        let is = |refusal: Status| u64::from(refusal.code()) == status;
        if !is(Status::Unavailable) && !is(Status::ResourceExhausted) && !is(Status::DeadlineExceeded) {
            let vars = &cx.state.scalars;
            let accepts = f64::from_bits(vars.word(self.accepts));
            vars.set_word(self.accepts, (accepts + 1.0).to_bits());
        }
        true
    }
}
