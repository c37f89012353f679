//! Encrypts and authenticates a field of requests.

use weft_core::abi::{Cx, Fault};
use weft_native::by_hand::Sealer;

use super::{ENTROPY, Element, KEY, Site, count_seen, fail, replace_field};

pub(super) struct Encrypt {
    at: u16,
    data: usize,
    sealer: Sealer,
}

impl Element for Encrypt {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, data: site.field("body"), sealer: Sealer::new(&KEY, ENTROPY) }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let kept = cx.out.scratch.len();
        replace_field(cx, self.data, |data, out| self.sealer.seal(data, out))
            || fail(cx, self.at, Fault::FunctionFailed, kept)
    }
}
