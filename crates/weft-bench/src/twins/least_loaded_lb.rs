//! Chooses the server with the fewest calls under way.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weft_core::abi::{Cx, Fault};
use weft_core::table::{Insert, Table};
use weft_core::{Status, Time};

use super::{Element, Servers, Site, count_seen, fail, refuse};

pub(super) struct LeastLoadedLb {
    at: u16,
    servers: Servers,
    load: usize,
    calls: usize,
    chosen: usize,
}

impl LeastLoadedLb {
    /// The slot with the fewest calls, the first of several.
    #[inline(always)]
    fn best(&self, cx: &Cx<'_>, load: &Table) -> Option<u64> {
        let calls = |slot| {
            let row = load.find_int_words(slot, cx.now);
            row.map_or(0, |(_, words)| words[self.calls].load(Relaxed) as i64)
        };
        (0..self.servers.count(cx)).min_by_key(|slot| calls(*slot))
    }

    #[cold]
    fn insert(load: &Table, slot: u64, now: Time) -> Result<&[AtomicU64], Fault> {
        match load.insert_int(slot, now) {
            Insert::New(row) => Ok(load.row_words(row, 0)),
            Insert::Full => Err(Fault::TableFull),
            Insert::TooLong => Err(Fault::TooLong),
        }
    }

    /// Chooses a server and counts the call.
    #[inline(always)]
    fn choose(&self, cx: &Cx<'_>, load: &Table) -> Result<Option<u64>, Fault> {
        let Some(slot) = self.best(cx, load) else { return Ok(None) };
        match load.find_int_words(slot, cx.now) {
            Some((_, words)) => {
                words[self.calls].store(words[self.calls].load(Relaxed) + 1, Relaxed);
            }
            None => Self::insert(load, slot, cx.now)?[self.calls].store(1, Relaxed),
        }
        Ok(Some(slot))
    }
}

impl Element for LeastLoadedLb {
    fn new(site: &Site<'_>) -> Self {
        let (load, table) = site.table_of("load");
        Self {
            at: site.at,
            servers: Servers::new(site),
            load,
            calls: usize::from(table.column("calls").expect("the table has the column").word),
            chosen: site.cell("chosen"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        cx.call[self.chosen] = u64::MAX;
        let load = &*cx.state.tables[self.load];
        // The search reads all keys.
        load.lock_all();
        let chosen = self.choose(cx, load);
        load.unlock_all();
        match chosen {
            Ok(Some(slot)) => {
                cx.call[self.chosen] = slot;
                self.servers.redirect(cx, self.at, slot)
            }
            Ok(None) => refuse(cx, self.at, Status::Unavailable, b"no server"),
            Err(fault) => fail(cx, self.at, fault, cx.out.scratch.len()),
        }
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        let (slot, load) = (cx.call[self.chosen], &cx.state.tables[self.load]);
        let hash = load.hash_int(slot);
        load.lock(hash);
        if let Some((_, words)) = load.find_int_words(slot, cx.now) {
            words[self.calls].store(words[self.calls].load(Relaxed).wrapping_sub(1), Relaxed);
        }
        load.unlock(hash);
        true
    }
}
