//! Logs a row for each call that ends.

use weft_core::abi::{Cell, Cx, Fault, REGION_BODY, REGION_META, SinkRow};
use weft_ir::program::Meta;

use super::{Element, Site, count_seen, fail, keep, keep_cell, set_cell, text};

/// Bytes of the user that are stored with the call.
const CALLER_BYTES: usize = 64;
/// Columns of the log.
const COLUMNS: u16 = 10;

pub(super) struct Logging {
    at: u16,
    sink: u16,
    user: usize,
    object_id: usize,
    call_id: usize,
    peer: usize,
    method: usize,
    status: usize,
    elapsed: usize,
    upstream: usize,
    ended_by: usize,
    caller: usize,
    object: usize,
}

impl Logging {
    /// Adds the row; None if its bytes do not fit.
    #[inline(always)]
    fn emit(&self, cx: &mut Cx<'_>) -> Option<()> {
        let number = |cx: &mut Cx<'_>, input: usize| cx.out.cells.push(Cell::Int(cx.slots[input].a as i64));
        cx.out.cells.push(Cell::Int(cx.now.0));
        number(cx, self.call_id);
        Self::text(cx, self.peer)?;
        Self::text(cx, self.method)?;
        let caller = keep_cell(cx, self.caller)?;
        cx.out.cells.push(caller);
        cx.out.cells.push(Cell::Int(cx.call[self.object] as i64));
        number(cx, self.status);
        number(cx, self.elapsed);
        Self::optional(cx, self.upstream)?;
        Self::optional(cx, self.ended_by)?;
        cx.out.rows.push(SinkRow { sink: self.sink, cells: COLUMNS });
        Some(())
    }

    #[inline(always)]
    fn text(cx: &mut Cx<'_>, input: usize) -> Option<()> {
        let text = keep(cx, text(cx, REGION_META, input))?;
        cx.out.cells.push(text);
        Some(())
    }

    /// Appends an input's text to the cells of the outcome, or NULL if the input is absent.
    #[inline(always)]
    fn optional(cx: &mut Cx<'_>, input: usize) -> Option<()> {
        if cx.present.contains(input) {
            return Self::text(cx, input);
        }
        cx.out.cells.push(Cell::Null);
        Some(())
    }
}

/// The characters that are complete within the first [`CALLER_BYTES`].
#[inline(always)]
fn first_chars(user: &[u8]) -> &[u8] {
    if user.len() <= CALLER_BYTES {
        return user;
    }
    let is_first = |at: &usize| !matches!(user[*at], 0x80..=0xbf);
    let end = (CALLER_BYTES - 3..=CALLER_BYTES).rev().find(is_first).unwrap_or(CALLER_BYTES);
    &user[..end]
}

impl Element for Logging {
    fn new(site: &Site<'_>) -> Self {
        Self {
            at: site.at,
            sink: site.sink(),
            user: site.field("user"),
            object_id: site.field("object_id"),
            call_id: site.meta(Meta::CallId),
            peer: site.meta(Meta::Peer),
            method: site.meta(Meta::Method),
            status: site.meta(Meta::Status),
            elapsed: site.meta(Meta::Elapsed),
            upstream: site.meta(Meta::Upstream),
            ended_by: site.meta(Meta::EndedBy),
            caller: site.cell("caller"),
            object: site.cell("object"),
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let user = text(cx, REGION_BODY, self.user);
        set_cell(cx.call, self.caller, first_chars(user));
        cx.call[self.object] = cx.slots[self.object_id].a;
        true
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        let (kept, n_cells) = (cx.out.scratch.len(), cx.out.cells.len());
        cx.out.cells.reserve(usize::from(COLUMNS));
        self.emit(cx).is_some() || {
            cx.out.cells.truncate(n_cells);
            fail(cx, self.at, Fault::TooLong, kept)
        }
    }
}
