//! Decrypts a field of requests.

use weft_core::Status;
use weft_core::abi::Cx;
use weft_native::by_hand::Opener;

use super::{Element, KEY, Site, abort, count_seen, replace_field};

pub(super) struct Decrypt {
    at: u16,
    data: usize,
    opener: Opener,
}

impl Element for Decrypt {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, data: site.field("body"), opener: Opener::new(&KEY) }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        replace_field(cx, self.data, |data, out| self.opener.open(data, out))
            || abort(cx, self.at, Status::InvalidArgument, b"cannot be decrypted")
    }
}
