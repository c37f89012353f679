//! Repeats cached answers.

use weft_core::Status;
use weft_core::abi::{Cell, Cx, EditTarget, Fault, REGION_BODY, REGION_META, TupleEdit, Verdict};
use weft_core::table::{ColumnRef, Insert};
use weft_ir::program::{InputLocation, Meta};

use super::{Element, Site, cell_bytes, count_seen, fail, input_at, request_meta, set_cell, text, with_lock};

const KEY_BYTES: usize = 64;
const PATH_BYTES: usize = 128;
const REPLY_BYTES: usize = 2048;
/// The path, the user (empty: the answers are shared) and the key, each after its length in four bytes.
const WHOLE_KEY_BYTES: usize = 4 + PATH_BYTES + 4 + 4 + KEY_BYTES;

pub(super) struct Cache {
    at: u16,
    key: usize,
    method: usize,
    method_at_end: usize,
    payload: usize,
    index: usize,
    status: usize,
    table: usize,
    reply: ColumnRef,
    asked: usize,
    answer: usize,
    is_whole: usize,
}

impl Cache {
    /// Copies the cached answer of a key into the scratch.
    #[inline(always)]
    fn kept(&self, cx: &mut Cx<'_>, key: &[u8]) -> Option<Result<Cell, Fault>> {
        let table = &*cx.state.tables[self.table];
        with_lock(table, key, || {
            let (row, _) = table.find_bytes_words(key, cx.now)?;
            let start = cx.out.scratch.len();
            table.bytes_into(row, self.reply, &mut cx.out.scratch);
            let len = cx.out.scratch.len() - start;
            let is_over = cx.out.scratch.len() > weft_core::limits::SCRATCH_BYTES_MAX;
            Some(if is_over { Err(Fault::TooLong) } else { Ok(Cell::Bytes(start as u32, len as u32)) })
        })
    }
}

/// The bytes of a key of three parts.
#[inline(always)]
fn whole_key<'a>(path: &[u8], key: &[u8], out: &'a mut [u8; WHOLE_KEY_BYTES]) -> &'a [u8] {
    let mut at = 0;
    for part in [path, b"", key] {
        out[at..at + 4].copy_from_slice(&(part.len() as u32).to_le_bytes());
        out[at + 4..at + 4 + part.len()].copy_from_slice(part);
        at += 4 + part.len();
    }
    &out[..at]
}

impl Element for Cache {
    fn new(site: &Site<'_>) -> Self {
        let (table, kept) = site.table();
        let is_payload =
            |place: &InputLocation| matches!(place, InputLocation::Body(path) if path.is_empty());
        Self {
            at: site.at,
            key: site.field("tenant"),
            method: request_meta(site.program, Meta::Method),
            method_at_end: site.meta(Meta::Method),
            payload: input_at(&site.program.response, is_payload),
            index: site.meta(Meta::Index),
            status: site.meta(Meta::Status),
            table,
            reply: kept.column("reply").expect("the table has the column"),
            asked: site.cell("asked"),
            answer: site.cell("answer"),
            is_whole: site.cell("is_whole"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        cx.call[self.asked] = 0;
        cx.call[self.is_whole] = 0;
        let (key, path) = (text(cx, REGION_BODY, self.key), text(cx, REGION_META, self.method));
        if !(1..=KEY_BYTES).contains(&key.len()) || path.len() > PATH_BYTES {
            return true;
        }
        let mut whole = [0; WHOLE_KEY_BYTES];
        let kept = cx.out.scratch.len();
        match self.kept(cx, whole_key(path, key, &mut whole)) {
            None => {
                set_cell(cx.call, self.asked, key);
                true
            }
            Some(Ok(value)) => {
                cx.out.edits.push(TupleEdit { target: EditTarget::Reply(0), value });
                cx.counters[usize::from(self.at)].diverted += 1;
                (cx.out.verdict, cx.out.element) = (Verdict::Reply, self.at);
                false
            }
            Some(Err(fault)) => fail(cx, self.at, fault, kept),
        }
    }

    #[inline(always)]
    fn response(&self, cx: &mut Cx<'_>) -> bool {
        let payload = text(cx, REGION_BODY, self.payload);
        let is_whole =
            cx.call[self.asked] != 0 && cx.slots[self.index].a == 0 && payload.len() <= REPLY_BYTES;
        cx.call[self.is_whole] = u64::from(is_whole);
        if is_whole {
            set_cell(cx.call, self.answer, payload);
        }
        true
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        if cx.call[self.is_whole] == 0 || cx.slots[self.status].a != u64::from(Status::Ok.code()) {
            return true;
        }
        let mut asked = [0; KEY_BYTES];
        let asked = cell_bytes(&cx.call[self.asked..], &mut asked);
        let mut whole = [0; WHOLE_KEY_BYTES];
        let key = whole_key(text(cx, REGION_META, self.method_at_end), asked, &mut whole);
        let mut answer = [0; REPLY_BYTES];
        let answer = cell_bytes(&cx.call[self.answer..], &mut answer);
        let table = &*cx.state.tables[self.table];
        let stored = with_lock(table, key, || {
            let row = match table.find_bytes_words(key, cx.now) {
                Some((row, _)) => row,
                None => match table.insert_bytes(key, cx.now) {
                    Insert::New(row) => row,
                    Insert::Full => return Err(Fault::TableFull),
                    Insert::TooLong => return Err(Fault::TooLong),
                },
            };
            table.set_bytes(row, self.reply, answer);
            table.touch(row, cx.now);
            Ok(())
        });
        stored.is_ok() || fail(cx, self.at, Fault::TableFull, cx.out.scratch.len())
    }
}
