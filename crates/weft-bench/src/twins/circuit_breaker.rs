//! A circuit breaker for each method.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weft_core::abi::{Cx, Fault, REGION_META};
use weft_core::table::{Insert, Table};
use weft_core::{Interval, Status, Time};
use weft_ir::program::Meta;

use super::{Element, Site, count_seen, fail, refuse, request_meta, text, with_lock};

/// The chain's parameters.
const FAILURES: u64 = 1;
const PAUSE: Interval = Interval::from_micros(20);

pub(super) struct CircuitBreaker {
    at: u16,
    method: usize,
    method_at_end: usize,
    status: usize,
    table: usize,
    failed: usize,
    retry_at: usize,
}

impl CircuitBreaker {
    /// Whether a call may pass. If so, it moves the time of the next try.
    #[inline(always)]
    fn lets_pass(&self, table: &Table, path: &[u8], now: Time) -> Result<bool, Fault> {
        let next_try = now.0.checked_add(PAUSE.0).ok_or(Fault::Overflow)?;
        let (row, words) = match table.find_bytes_words(path, now) {
            Some(found) => found,
            None => self.insert(table, path, now)?,
        };
        let retry_at = words[self.retry_at].load(Relaxed) as i64;
        let goes_on = words[self.failed].load(Relaxed) < FAILURES || retry_at <= now.0;
        if goes_on {
            words[self.retry_at].store(next_try as u64, Relaxed);
        }
        table.touch(row, now);
        Ok(goes_on)
    }

    #[cold]
    fn insert<'a>(
        &self,
        table: &'a Table,
        path: &[u8],
        now: Time,
    ) -> Result<(weft_core::table::Row, &'a [AtomicU64]), Fault> {
        let row = match table.insert_bytes(path, now) {
            Insert::New(row) => row,
            Insert::Full => return Err(Fault::TableFull),
            Insert::TooLong => return Err(Fault::TooLong),
        };
        let words = table.row_words(row, 0);
        words[self.failed].store(0, Relaxed);
        words[self.retry_at].store(now.0 as u64, Relaxed);
        Ok((row, words))
    }
}

impl Element for CircuitBreaker {
    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            method: request_meta(site.program, Meta::Method),
            method_at_end: site.meta(Meta::Method),
            status: site.meta(Meta::Status),
            table: site.table().0,
            failed: site.column("failed"),
            retry_at: site.column("retry_at"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let (table, path) = (&*cx.state.tables[self.table], text(cx, REGION_META, self.method));
        match with_lock(table, path, || self.lets_pass(table, path, cx.now)) {
            Ok(true) => true,
            Ok(false) => refuse(cx, self.at, Status::Unavailable, b"circuit open"),
            Err(fault) => fail(cx, self.at, fault, cx.out.scratch.len()),
        }
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        let Some(status) = Status::from_code(cx.slots[self.status].a) else { return true };
        if status == Status::Cancelled {
            return true;
        }
        let is_bad = matches!(
            status,
            Status::Unavailable | Status::Internal | Status::DeadlineExceeded | Status::Unknown
        );
        let (table, path) = (&*cx.state.tables[self.table], text(cx, REGION_META, self.method_at_end));
        with_lock(table, path, || {
            let Some((row, words)) = table.find_bytes_words(path, cx.now) else { return };
            let failed = words[self.failed].load(Relaxed);
            words[self.failed].store(if is_bad { failed + 1 } else { 0 }, Relaxed);
            table.touch(row, cx.now);
        });
        true
    }
}
