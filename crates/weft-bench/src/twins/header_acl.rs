//! Access by a header: only known values pass.

use weft_core::Status;
use weft_core::abi::{Cx, REGION_HEADERS};

use super::{Element, Site, count_seen, header, is_present, refuse, text};

pub(super) struct HeaderAcl {
    at: u16,
    token: usize,
    table: usize,
}

impl Element for HeaderAcl {
    fn new(site: &Site<'_>) -> Self {
        Self { at: site.at, token: header(&site.program.request, "x-token"), table: site.table().0 }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        if !is_present(cx, self.token) {
            return refuse(cx, self.at, Status::Unauthenticated, b"no token");
        }
        // The controller fills the table and swaps it whole, so no lock is needed.
        let token = text(cx, REGION_HEADERS, self.token);
        if cx.state.tables[self.table].find_bytes_words(token, cx.now).is_some() {
            return true;
        }
        refuse(cx, self.at, Status::PermissionDenied, b"unknown token")
    }
}
