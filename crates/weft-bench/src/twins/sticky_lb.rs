//! Keeps the server of a session.

use weft_core::Status;
use weft_core::abi::{Cx, Fault, REGION_BODY};
use weft_core::hash::{draw, unit_float};
use weft_core::table::{ColumnRef, Insert};
use weft_ir::program::Meta;

use super::{Element, Servers, Site, cell_bytes, count_seen, fail, redirect_row, set_cell, text, with_lock};

/// The longest name of a session.
const SESSION_BYTES: usize = 64;

pub(super) struct StickyLb {
    at: u16,
    servers: Servers,
    session: usize,
    status: usize,
    homes: usize,
    home: ColumnRef,
    who: usize,
    rand_site: u64,
}

impl StickyLb {
    /// Assigns a random server to a new session.
    #[cold]
    fn settle(&self, cx: &mut Cx<'_>, session: &[u8]) -> Result<(), Fault> {
        let drawn = unit_float(draw(cx.rand, self.rand_site)) * self.servers.count(cx) as f64;
        let endpoint = self.servers.endpoint(cx, drawn as u64).ok_or(Fault::UnexpectedNull)?;
        let homes = &cx.state.tables[self.homes];
        let row = match homes.insert_bytes(session, cx.now) {
            Insert::New(row) => row,
            Insert::Full => return Err(Fault::TableFull),
            Insert::TooLong => return Err(Fault::TooLong),
        };
        redirect_row(cx, endpoint);
        homes.set_bytes(row, self.home, &cx.out.text);
        homes.set_null(row, self.home, false);
        homes.touch(row, cx.now);
        Ok(())
    }
}

impl Element for StickyLb {
    fn new(site: &Site<'_>) -> Self {
        let (homes, table) = site.table_of("homes");
        Self {
            at: site.at,
            servers: Servers::new(site),
            session: site.field("tenant"),
            status: site.meta(Meta::Status),
            homes,
            home: table.column("home").expect("the table has the column"),
            who: site.cell("who"),
            rand_site: site.rand_sites()[0],
        }
    }

    #[inline(always)]
    fn request(&self, cx: &mut Cx<'_>) -> bool {
        count_seen(cx, self.at);
        let session = text(cx, REGION_BODY, self.session);
        if session.len() > SESSION_BYTES {
            return fail(cx, self.at, Fault::TooLong, cx.out.scratch.len());
        }
        let homes = &*cx.state.tables[self.homes];
        let settled = with_lock(homes, session, || match homes.find_bytes_words(session, cx.now) {
            Some((row, words)) => {
                redirect_row(cx, &words[usize::from(self.home.word)..]);
                homes.touch_read(row, cx.now);
                Ok(())
            }
            None => self.settle(cx, session),
        });
        if let Err(fault) = settled {
            return fail(cx, self.at, fault, cx.out.scratch.len());
        }
        set_cell(cx.call, self.who, session);
        super::redirected(cx, self.at)
    }

    #[inline(always)]
    fn close(&self, cx: &mut Cx<'_>) -> bool {
        if cx.slots[self.status].a == u64::from(Status::Unavailable.code()) {
            let mut session = [0; SESSION_BYTES];
            let session = cell_bytes(&cx.call[self.who..], &mut session);
            let homes = &cx.state.tables[self.homes];
            with_lock(homes, session, || homes.remove(homes.find_bytes(session, cx.now)));
        }
        true
    }
}
