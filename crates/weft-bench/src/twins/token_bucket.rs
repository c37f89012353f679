//! Limits the rate of each tenant.

use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

use weft_core::abi::{Cx, EditTarget, Fault, REGION_BODY, TupleEdit};
use weft_core::hash::hash_bytes;
use weft_core::limits::SCRATCH_BYTES_MAX;
use weft_core::table::{Insert, Table};
use weft_core::{Status, Time};

use super::{Element, Site, abort, count_seen, fail, header, keep, text};

/// The chain's parameters.
const RATE: f64 = 1000.0;
const BURST: f64 = 10.0;

/// The longest tenant name that is its own key.
const TENANT_BYTES: usize = 64;

/// A longer name becomes its hash.
#[cold]
fn hashed<'a>(tenant: &[u8], digits: &'a mut String) -> &'a [u8] {
    *digits = hash_bytes(tenant).to_string();
    digits.as_bytes()
}

pub(super) struct TokenBucket {
    at: u16,
    tenant: usize,
    remaining_header: u16,
    table: usize,
    tokens: usize,
    last: usize,
    written: usize,
    remaining: usize,
}

impl TokenBucket {
    /// Takes a token of the tenant's bucket; returns the tokens left. Without a token an answer follows, and without
    /// room for it nothing is written.
    #[inline(always)]
    fn take(&self, table: &Table, tenant: &[u8], now: Time, has_room: bool) -> Result<Option<f64>, Fault> {
        let (row, before, last) = match table.find_bytes_words(tenant, now) {
            Some((_, row)) => {
                (row, f64::from_bits(row[self.tokens].load(Relaxed)), row[self.last].load(Relaxed))
            }
            None => (Self::insert(table, tenant, now)?, BURST, now.0 as u64),
        };
        let since = now.0.checked_sub(last as i64).ok_or(Fault::Overflow)?;
        let tokens = (before + RATE * (since as f64 / 1e9)).min(BURST);
        // A new bucket has a token: a failure has inserted nothing.
        let is_left = tokens >= 1.0;
        if !is_left && !has_room {
            return Err(Fault::TooLong);
        }
        let after = if is_left { tokens - 1.0 } else { tokens };
        let set = |word: usize, value: u64| AtomicU64::store(&row[word], value, Relaxed);
        set(self.tokens, after.to_bits());
        set(self.last, now.0 as u64);
        set(self.written, now.0 as u64);
        Ok(is_left.then_some(after))
    }

    #[cold]
    fn insert<'a>(table: &'a Table, tenant: &[u8], now: Time) -> Result<&'a [AtomicU64], Fault> {
        match table.insert_bytes(tenant, now) {
            Insert::New(row) => Ok(table.row_words(row, 0)),
            Insert::Full => Err(Fault::TableFull),
            Insert::TooLong => Err(Fault::TooLong),
        }
    }
}

impl Element for TokenBucket {
    fn new(site: &Site<'_>) -> Self {
        let (at, table) = site.table();
        Self {
            at: site.at,
            tenant: site.field("tenant"),
            remaining_header: header(&site.program.response, "x-remaining") as u16,
            table: at,
            tokens: site.column("tokens"),
            last: site.column("last"),
            written: usize::from(table.touch_words().0),
            remaining: site.cell("remaining"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let (table, tenant) = (&*cx.state.tables[self.table], text(cx, REGION_BODY, self.tenant));
        let mut digits = String::new();
        let tenant = if tenant.len() <= TENANT_BYTES { tenant } else { hashed(tenant, &mut digits) };
        let hash = table.spec().shared.then(|| table.hash_bytes(tenant));
        hash.inspect(|hash| table.lock(*hash));
        let taken = self.take(table, tenant, cx.now, cx.out.scratch.len() < SCRATCH_BYTES_MAX);
        hash.inspect(|hash| table.unlock(*hash));
        let kept = cx.out.scratch.len();
        match taken {
            Ok(Some(remaining)) => {
                cx.call[self.remaining] = remaining.to_bits();
                true
            }
            Ok(None) => {
                cx.call[self.remaining] = 0f64.to_bits();
                let Some(value) = keep(cx, b"0") else { return fail(cx, self.at, Fault::TooLong, kept) };
                cx.out.edits.push(TupleEdit { target: EditTarget::Answer(0), value });
                abort(cx, self.at, Status::ResourceExhausted, b"rate limit")
            }
            Err(fault) => fail(cx, self.at, fault, kept),
        }
    }

    #[inline(always)]
    fn response(&self, cx: &mut Cx<'_>) -> bool {
        // It is never negative, so truncation is the floor.
        let mut rest = f64::from_bits(cx.call[self.remaining]) as u64;
        let (mut digits, mut at) = ([0; 20], 20);
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        let kept = cx.out.scratch.len();
        let Some(value) = keep(cx, &digits[at..]) else { return fail(cx, self.at, Fault::TooLong, kept) };
        let target = EditTarget::Input(self.remaining_header);
        cx.out.edits.push(TupleEdit { target, value });
        true
    }
}
