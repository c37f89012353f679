//! Access by user: users with write permission pass.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weft_core::Status;
use weft_core::abi::{Cx, REGION_BODY};

use super::{Element, Site, abort, count_seen, text};

pub(super) struct Acl {
    at: u16,
    user: usize,
    table: usize,
    permission: usize,
}

impl Element for Acl {
    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            user: site.field("user"),
            table: site.table().0,
            permission: site.column("permission"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        // The controller fills the table and swaps it whole, so no lock is needed.
        let found = cx.state.tables[self.table].find_bytes_words(text(cx, REGION_BODY, self.user), cx.now);
        let word = |words: &[AtomicU64], at: usize| words[at].load(Relaxed);
        let may_write = |(_, row): (_, &[AtomicU64])| {
            word(row, self.permission) == 1 && word(row, self.permission + 1) == u64::from(b'W')
        };
        if found.is_some_and(may_write) {
            return true;
        }
        abort(cx, self.at, Status::PermissionDenied, b"no write permission")
    }
}
