//! Decompresses a field of requests.

use core::cell::RefCell;

use weft_core::Status;
use weft_core::abi::Cx;
use weft_native::by_hand::Decompressor;

use super::{Element, Site, abort, count_seen, replace_field};

thread_local! {
    static DECOMPRESSOR: RefCell<Decompressor> = RefCell::default();
}

pub(super) struct Decompress {
    at: u16,
    data: usize,
}

impl Element for Decompress {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, data: site.field("body") }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let decompress = |data: &[u8], out: &mut Vec<u8>| {
            DECOMPRESSOR.with_borrow_mut(|decompressor| decompressor.decompress(data, out))
        };
        replace_field(cx, self.data, decompress)
            || abort(cx, self.at, Status::InvalidArgument, b"cannot be decompressed")
    }
}
