//! Compresses a field of requests.

use core::cell::RefCell;

use weft_core::abi::{Cx, Fault};
use weft_native::by_hand::Compressor;

use super::{Element, Site, count_seen, fail, replace_field};

thread_local! {
    static COMPRESSOR: RefCell<Compressor> = RefCell::default();
}

pub(super) struct Compress {
    at: u16,
    data: usize,
}

impl Element for Compress {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, data: site.field("body") }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let kept = cx.out.scratch.len();
        let compress = |data: &[u8], out: &mut Vec<u8>| {
            COMPRESSOR.with_borrow_mut(|compressor| compressor.compress(data, out))
        };
        replace_field(cx, self.data, compress) || fail(cx, self.at, Fault::FunctionFailed, kept)
    }
}
