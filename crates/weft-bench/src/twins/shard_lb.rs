//! Sends each object to its own replica.

use weft_core::Status;
use weft_core::abi::{Cx, Verdict};
use weft_core::hash::hash_word;

use super::{Element, Site, abort, cell_into, count_seen};

/// The chain's parameter.
const SHARDS: u64 = 4;

pub(super) struct ShardLb {
    at: u16,
    object_id: usize,
    table: usize,
    endpoint: usize,
}

impl Element for ShardLb {
    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            object_id: site.field("object_id"),
            table: site.table().0,
            endpoint: site.column("endpoint"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let slot = hash_word(cx.slots[self.object_id].a) % SHARDS;
        // The controller fills the table and swaps it whole, so no lock is needed.
        let Some((_, row)) = cx.state.tables[self.table].find_int_words(slot, cx.now) else {
            return abort(cx, self.at, Status::Unavailable, b"no replica for this object");
        };
        cx.out.verdict = Verdict::Redirect;
        cx.out.element = self.at;
        cx.out.text.clear();
        cell_into(&row[self.endpoint..], &mut cx.out.text);
        cx.counters[usize::from(self.at)].diverted += 1;
        true
    }
}
