//! A rate for each tenant.

use std::io::Write as _;

use weft_core::abi::{Cell, Cx, Edit, EditTarget, REGION_BODY};
use weft_core::{Interval, Status, Time};
use weft_ir::program::ChainProgram;

use super::bounded::Bounded;
use super::{Element, abort, field, header, keep, seen, text};

/// The parameters that the chain gives.
const RATE: f64 = 1000.0;
const BURST: f64 = 10.0;

const TTL: Interval = Interval::from_secs(60);
const ROWS_MAX: usize = 1_000_000;

pub(super) struct TokenBucket {
    at: u16,
    tenant: usize,
    remaining_header: usize,
    buckets: Bounded<Bucket>,
    remaining: f64,
}

struct Bucket {
    tokens: f64,
    last: Time,
}

impl Element for TokenBucket {
    fn new(program: &ChainProgram, at: u16) -> Self {
        Self {
            at,
            tenant: field(&program.request, "tenant"),
            remaining_header: header(&program.response, "x-remaining"),
            buckets: Bounded::new(Some(TTL), ROWS_MAX),
            remaining: 0.0,
        }
    }

    #[inline(always)]
    fn request(&mut self, cx: &mut Cx<'_>) -> bool {
        seen(cx, self.at);
        let now = cx.now;
        let first = || Bucket { tokens: BURST, last: now };
        let bucket = self.buckets.write(text(cx, REGION_BODY, self.tenant), now, first);
        bucket.tokens = (bucket.tokens + RATE * (now - bucket.last).as_secs_f64()).min(BURST);
        bucket.last = now;
        if bucket.tokens >= 1.0 {
            bucket.tokens -= 1.0;
            self.remaining = bucket.tokens;
            return true;
        }
        self.remaining = 0.0;
        let value = keep(cx, b"0");
        cx.out.edits.push(Edit { target: EditTarget::Answer(0), value });
        abort(cx, self.at, Status::ResourceExhausted, b"rate limit")
    }

    #[inline(always)]
    fn response(&mut self, cx: &mut Cx<'_>) -> bool {
        let start = cx.out.scratch.len();
        write!(cx.out.scratch, "{}", self.remaining.floor() as i64).expect("a vector takes all bytes");
        let value = Cell::Bytes(start as u32, (cx.out.scratch.len() - start) as u32);
        cx.out.edits.push(Edit { target: EditTarget::Input(self.remaining_header as u16), value });
        true
    }
}
