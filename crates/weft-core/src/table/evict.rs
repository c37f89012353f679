//! Inserts rows by key, and removes them by expiry and eviction.

use super::index::HomeProbe;
use super::layout::{Evict, Key, LIVE, WRITTEN_AT};
use super::oldest::{Aged, Oldest};
use super::storage::{RowLocation, RowQueue, STRIPE_ROWS_MAX, Stripe, segment_of};
use super::{Insert, RemovalReason, Row, Table, is_over, spin_lock, spin_try_lock, spin_unlock};
use crate::time::Time;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Other stripes in which an insertion searches for an expired row before it evicts.
const NEIGHBOURS_MAX: usize = 8;

type Words = [AtomicU64];

/// How a live row was removed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Eviction {
    /// Its slot was freed at once.
    Removed,
    /// Its slot was freed at once, although evicted rows are kept: there was no spare row.
    Unreported,
    /// It was evicted and stays in its slot, in the queue behind this row, if any.
    Queued { behind: Row },
}

/// The order of rows by age.
#[derive(Clone, Copy, Debug)]
pub(super) enum Order {
    /// By their last write.
    Written,
    /// By their last touch, stored in this word.
    Touched(usize),
    /// By their insertion, stored in this word.
    Inserted(usize),
}

impl Order {
    /// The header word with the time by which this order sorts.
    fn stamp_at(self) -> usize {
        match self {
            Self::Written => WRITTEN_AT,
            Self::Touched(word) | Self::Inserted(word) => word,
        }
    }
}

impl RemovalReason {
    const fn bit(self) -> u8 {
        1 << self as u8
    }
}

impl Table {
    /// The row with this key and its location, if the row is at its home ([`Stripe::find_at_home`]).
    #[inline(always)]
    pub(super) fn find_at_home(
        &self,
        hash: u64,
        now: Time,
        key: impl Key,
    ) -> HomeProbe<(Row, RowLocation<'_>)> {
        let stripe = self.stripe_of(hash);
        match stripe.find_at_home(hash as u32, |number| self.probe(stripe, number, key)) {
            HomeProbe::Found((_, place)) if self.is_expired_at(place, now) => HomeProbe::Absent,
            other => other,
        }
    }

    /// As [`Table::find_at_home`], with a search of the whole index.
    #[inline(always)]
    pub(super) fn find_elsewhere(&self, hash: u64, now: Time, key: impl Key) -> Row {
        let stripe = self.stripe_of(hash);
        match stripe.find(hash as u32, |number| self.probe(stripe, number, key)) {
            Some((row, place)) if !self.is_expired_at(place, now) => row,
            _ => Row::NONE,
        }
    }

    /// Inserts a row, in place of one with the same key. Evicts a row if the table is full and its policy allows it;
    /// `on_evict` sees each evicted row.
    #[inline(always)]
    pub(super) fn insert(
        &self,
        hash: u64,
        now: Time,
        key: impl Key,
        on_evict: &mut dyn FnMut(Row, Eviction),
    ) -> Insert {
        let (at, tag) = (self.geometry.stripe_of(hash), hash as u32);
        let stripe = &self.stripes[at];
        match stripe.find_at_home(tag, |number| self.probe(stripe, number, key)) {
            HomeProbe::Absent => {}
            HomeProbe::Found((old, _)) => self.replace(old, now, on_evict),
            HomeProbe::Elsewhere => {
                if let Some((old, _)) = stripe.find(tag, |number| self.probe(stripe, number, key)) {
                    self.replace(old, now, on_evict);
                }
            }
        }
        match self.allocate_row(at, tag, now, on_evict) {
            Some(row) => {
                key.write_to(self.fill(row, tag, now));
                Insert::New(row)
            }
            None => Insert::Full,
        }
    }

    /// Takes a free row and adds it to the index; makes room if there is none.
    fn allocate_row(
        &self,
        at: usize,
        tag: u32,
        now: Time,
        on_evict: &mut dyn FnMut(Row, Eviction),
    ) -> Option<Row> {
        let has_room = self.rows.load(Relaxed) < self.rows_max.load(Relaxed);
        let local = match self.free_row(at) {
            Some(local) if has_room => local,
            _ if self.make_room(at, now, on_evict) => self.free_row(at)?,
            _ => return None,
        };
        self.stripes[at].reserve(&self.memory, &self.begins[at]);
        let row = self.geometry.join(at, local);
        // Before a slot holds its number: compiled code follows the slot to the words (see `jit_layout`).
        self.base.row(row, self.geometry, &self.memory);
        self.stripes[at].add_row(tag, local);
        self.take_row(at, local);
        Some(Row(row + 1))
    }

    /// Removes at most `budget` expired rows and returns their number. Call it when there is time: it only frees
    /// memory. It removes none from a table that keeps expired rows ([`Table::keep_removed`]).
    ///
    /// It searches one stripe, and one more for every [`STRIPE_ROWS_MAX`] of the budget; the next call continues. It
    /// takes its locks without waiting; the caller must hold none.
    pub fn sweep(&self, now: Time, budget: usize) -> usize {
        let mut swept = 0;
        let mut looks = 1 + budget / STRIPE_ROWS_MAX as usize;
        for _ in 0..self.stripes.len() {
            if swept == budget {
                break;
            }
            swept += self.with_next_stripe(|at| {
                let mut n = 0;
                while swept + n < budget
                    && (self.free_unwanted(at) || self.sweep_expired(at, now, &mut looks))
                {
                    n += 1;
                }
                n
            });
        }
        swept
    }

    /// Sets whether rows that are removed for this reason are kept for [`Table::take_removed`]. Such rows are out of
    /// the table, but their slots are not free until the caller frees them. A row counts as evicted once the insertion
    /// that evicted it is committed. An evicted row is not kept if no spare row is free for the insertion
    /// ([`Table::evicted_untold`]).
    pub fn keep_removed(&self, why: RemovalReason, keep: bool) {
        let others = self.keeps.load(Relaxed) & !why.bit();
        self.keeps.store(if keep { others | why.bit() } else { others }, Relaxed);
    }

    /// Takes at most `budget` expired rows, or evicted rows, out of the table and appends them to `rows`. Each row is
    /// returned once, to one caller, who reads it without a lock and then frees it ([`Table::free_removed`]).
    ///
    /// Rows that insertions have found come first, then the oldest expired rows of each stripe. The search and its
    /// locks are those of [`Table::sweep`]. Returns whether there may be more: the budget is used up, or a stripe was
    /// locked or not searched.
    pub fn take_removed(&self, why: RemovalReason, now: Time, budget: usize, rows: &mut Vec<Row>) -> bool {
        let full = rows.len() + budget;
        let mut looks = 1 + budget / STRIPE_ROWS_MAX as usize;
        let mut is_complete = true;
        for _ in 0..self.stripes.len() {
            if rows.len() == full {
                break;
            }
            let mut is_open = false;
            self.with_next_stripe(|at| {
                is_open = true;
                while rows.len() < full {
                    let is_due = why == RemovalReason::Expired
                        && !self.has_removed(at, why)
                        && self.reclaim_by(at, now, &mut looks, |row| self.queue_removed(row, why));
                    if !is_due && !self.has_removed(at, why) {
                        break;
                    }
                    rows.push(self.pop_removed(at, why));
                }
                0
            });
            is_complete &= is_open;
        }
        rows.len() == full || looks == 0 || !is_complete
    }

    /// A lower bound of the time at which [`Table::take_removed`] finds the next such row. None if it finds none before
    /// a row is inserted or evicted. A call at that time improves the bound. The caller must hold no lock of the table.
    pub fn next_removal(&self, why: RemovalReason) -> Option<Time> {
        let stripes = 0..self.stripes.len();
        if stripes.clone().any(|at| self.has_removed(at, why)) {
            return Some(Time(i64::MIN));
        }
        if why == RemovalReason::Evicted {
            return None;
        }
        let inhabited = stripes.filter(|&at| self.stripes[at].rows.load(Relaxed) > 0);
        let bounds = inhabited.flat_map(|at| {
            let expiring = self.expiring_orders();
            expiring.map(move |(order, ttl)| self.oldest_list(at, order).stamp_min().saturating_add(ttl))
        });
        bounds.min().map(Time)
    }

    /// Frees the slots of rows that [`Table::take_removed`] returned. The caller must hold no lock of the table.
    pub fn free_removed(&self, rows: &[Row]) {
        for row in rows {
            let (at, _) = self.geometry.split(row.0 - 1);
            let is_shared = self.spec.shared;
            if is_shared {
                spin_lock(&self.stripes[at].lock);
            }
            self.free_place(*row);
            if is_shared {
                spin_unlock(&self.stripes[at].lock);
            }
        }
    }

    /// Removes a row from the index.
    pub(super) fn unindex(&self, row: Row) {
        let (stripe, local) = self.geometry.split(row.0 - 1);
        self.stripes[stripe].displace(self.tag(row), local);
    }

    /// Frees a row's slot. The row is out of the index.
    pub(super) fn release(&self, row: Row) {
        self.free_place(row);
        self.uncount(row);
    }

    /// Iterates over the orders by which rows of this table expire or are evicted.
    pub(super) fn orders(&self) -> impl Iterator<Item = Order> {
        [self.written_order(), self.touched_order(), self.inserted_order()].into_iter().flatten()
    }

    /// The times of the row's last write and touch.
    pub(super) fn stamps(&self, row: Row) -> (Time, Time) {
        let words = self.row_words(row, 0);
        let stamp = |word: usize| Time(words[word].load(Relaxed) as i64);
        (stamp(WRITTEN_AT), stamp(self.header.touched.unwrap_or(WRITTEN_AT)))
    }

    /// Restores the age of a row; [`Table::touch`] can only make it younger.
    pub(super) fn set_stamps(&self, row: Row, written: Time, touched: Time) {
        let words = self.row_words(row, 0);
        words[WRITTEN_AT].store(written.0 as u64, Relaxed);
        if let Some(word) = self.header.touched {
            words[word].store(touched.0 as u64, Relaxed);
        }
        self.admit(row, words);
    }

    /// Sets the time of insertion, in tables that store it.
    pub(super) fn set_inserted(&self, row: Row, inserted: Time) {
        let Some(word) = self.header.inserted else { return };
        let words = self.row_words(row, 0);
        words[word].store(inserted.0 as u64, Relaxed);
        self.admit(row, words);
    }

    pub(super) fn tag(&self, row: Row) -> u32 {
        self.row_words(row, 0)[0].load(Relaxed) as u32
    }

    /// The first live row from a number on. `Err` with the number to continue at after `budget` steps (rows, segments
    /// without rows, unused rests of stripes). None at the end.
    pub(super) fn next_row(&self, from: u64, budget: &mut u64) -> Option<Result<u64, u64>> {
        let mut at = self.geometry.round_up(from);
        loop {
            let (stripe, local) = self.geometry.split(at);
            let high = self.stripes.get(stripe)?.high.load(Relaxed);
            if *budget == 0 {
                return Some(Err(at));
            }
            *budget -= 1;
            if local >= high {
                at = self.geometry.join(stripe + 1, 0);
                continue;
            }
            let segment = segment_of(at);
            let has_live = self.base.has_live(segment)?;
            let row = if has_live { self.base.resident_row(at, self.geometry) } else { None };
            at = match row {
                Some(words) if words[0].load(Relaxed) & LIVE != 0 => return Some(Ok(at)),
                Some(_) => self.geometry.after(at),
                None => self.geometry.segment_start(segment + 1),
            };
        }
    }

    /// Takes a specific free row of a stripe. False if it is not free.
    pub(super) fn claim(&self, row: Row) -> bool {
        let (at, local) = self.geometry.split(row.0 - 1);
        let (stripe, wanted) = (&self.stripes[at], local + 1);
        if self.is_live(row) {
            return false;
        }
        // Rows that have expired since are in front of it in the free list: it moves to the front.
        let mut link = stripe.free.load(Relaxed);
        while link != wanted {
            let before = self.row_of_link(at, link);
            if before.is_none() {
                return false;
            }
            let words = self.row_words(before, 0);
            link = words[0].load(Relaxed) as u32;
            if link == wanted {
                let words_wanted = self.row_words(row, 0);
                words[0].store(words_wanted[0].load(Relaxed), Relaxed);
                words_wanted[0].store(u64::from(stripe.free.load(Relaxed)), Relaxed);
                stripe.free.store(wanted, Relaxed);
            }
        }
        self.take_row(at, local);
        true
    }

    /// Removes an expired row, or keeps it for [`Table::take_removed`].
    fn expire(&self, row: Row) {
        if self.keeps_removed(RemovalReason::Expired) {
            self.queue_removed(row, RemovalReason::Expired);
        } else {
            self.remove(row);
        }
    }

    /// Evicts a live row to make room, or keeps it for [`Table::take_removed`] if a spare row is free.
    fn evict(&self, row: Row, on_evict: &mut dyn FnMut(Row, Eviction)) {
        let (at, _) = self.geometry.split(row.0 - 1);
        if !self.keeps_removed(RemovalReason::Evicted) {
            on_evict(row, Eviction::Removed);
            self.remove(row);
        } else if self.free_row(at).is_some() {
            on_evict(row, Eviction::Queued { behind: self.last_evicted(at) });
            self.queue_removed(row, RemovalReason::Evicted);
        } else {
            on_evict(row, Eviction::Unreported);
            self.remove(row);
            self.count_unreported(1);
        }
    }

    /// Moves a live row to the queue of removed rows; look-ups no longer find it.
    fn queue_removed(&self, row: Row, why: RemovalReason) {
        self.unindex(row);
        let (at, local) = self.geometry.split(row.0 - 1);
        let waiting = self.removed_queue(at, why);
        self.row_words(row, 0)[0].store(0, Relaxed);
        match self.row_of_link(at, waiting.last.load(Relaxed)) {
            Row::NONE => waiting.first.store(local + 1, Relaxed),
            last => self.row_words(last, 0)[0].store(u64::from(local + 1), Relaxed),
        }
        waiting.last.store(local + 1, Relaxed);
        self.uncount(row);
    }

    /// Takes the first row of a queue that is not empty.
    fn pop_removed(&self, at: usize, why: RemovalReason) -> Row {
        let waiting = self.removed_queue(at, why);
        let row = self.row_of_link(at, waiting.first.load(Relaxed));
        assert!(row.is_some(), "the caller has seen a row in the queue");
        let next = self.row_words(row, 0)[0].load(Relaxed) as u32;
        waiting.first.store(next, Relaxed);
        if next == 0 {
            waiting.last.store(0, Relaxed);
        }
        row
    }

    /// The last row in the queue of evicted rows of a stripe.
    fn last_evicted(&self, at: usize) -> Row {
        self.row_of_link(at, self.removed_queue(at, RemovalReason::Evicted).last.load(Relaxed))
    }

    /// Frees the slot of an evicted row. It must be the last one of its stripe that is not undone yet.
    pub(super) fn undo_eviction(&self, row: Row, eviction: Eviction) {
        let behind = match eviction {
            Eviction::Removed => return,
            Eviction::Unreported => return self.count_unreported(u64::MAX),
            Eviction::Queued { behind } => behind,
        };
        let (at, _) = self.geometry.split(row.0 - 1);
        let waiting = self.removed_queue(at, RemovalReason::Evicted);
        assert_ne!(waiting.last.load(Relaxed), 0, "the evicted row is in the queue");
        if behind.is_none() {
            waiting.first.store(0, Relaxed);
            waiting.last.store(0, Relaxed);
        } else {
            self.row_words(behind, 0)[0].store(0, Relaxed);
            waiting.last.store(self.local(behind) + 1, Relaxed);
        }
        self.free_place(row);
    }

    /// Frees the slot of a removed row that is no longer kept, if there is one.
    fn free_unwanted(&self, at: usize) -> bool {
        let is_left = |why: &RemovalReason| !self.keeps_removed(*why) && self.has_removed(at, *why);
        let left = [RemovalReason::Expired, RemovalReason::Evicted].into_iter().find(is_left);
        left.map(|why| self.free_place(self.pop_removed(at, why))).is_some()
    }

    /// Frees the slot of an expired row, if there is one and expired rows are not kept.
    fn sweep_expired(&self, at: usize, now: Time, looks: &mut usize) -> bool {
        !self.keeps_removed(RemovalReason::Expired) && self.reclaim(at, now, looks)
    }

    fn has_removed(&self, at: usize, why: RemovalReason) -> bool {
        self.removed_queue(at, why).first.load(Relaxed) != 0
    }

    /// The queue of rows that a stripe keeps after their removal for this reason.
    fn removed_queue(&self, at: usize, why: RemovalReason) -> &RowQueue {
        &self.stripes[at].removed[why as usize]
    }

    /// Whether rows that are removed for this reason are kept for the caller.
    fn keeps_removed(&self, why: RemovalReason) -> bool {
        self.keeps.load(Relaxed) & why.bit() != 0
    }

    /// Adds to the number of rows that could not be kept (`u64::MAX` subtracts one).
    fn count_unreported(&self, n: u64) {
        self.unreported.fetch_add(n, Relaxed);
    }

    /// Adds a row's slot to the free list of its stripe.
    fn free_place(&self, row: Row) {
        let (at, local) = self.geometry.split(row.0 - 1);
        let stripe = &self.stripes[at];
        self.row_words(row, 0)[0].store(u64::from(stripe.free.load(Relaxed)), Relaxed);
        stripe.free.store(local + 1, Relaxed);
    }

    /// Subtracts a row from all counts.
    fn uncount(&self, row: Row) {
        let (at, _) = self.geometry.split(row.0 - 1);
        let stripe = &self.stripes[at];
        stripe.rows.store(stripe.rows.load(Relaxed) - 1, Relaxed);
        self.base.count_live(row.0 - 1, false);
        self.count_row(u64::MAX);
    }

    /// The orders by which rows expire, each with its TTL in nanoseconds.
    fn expiring_orders(&self) -> impl Iterator<Item = (Order, i64)> {
        self.orders().filter_map(|order| {
            let (_, ttl) = self.ages().find(|(word, _)| *word == order.stamp_at())?;
            Some((order, ttl))
        })
    }

    fn written_order(&self) -> Option<Order> {
        self.header.by_write.then_some(Order::Written)
    }

    fn touched_order(&self) -> Option<Order> {
        self.header.touched.map(Order::Touched)
    }

    fn inserted_order(&self) -> Option<Order> {
        self.header.inserted.map(Order::Inserted)
    }

    /// The number of a row in its stripe.
    fn local(&self, row: Row) -> u32 {
        self.geometry.split(row.0 - 1).1
    }

    /// Decodes a link of a stripe's row list; [`Row::NONE`] at its end.
    fn row_of_link(&self, stripe: usize, link: u32) -> Row {
        match link {
            0 => Row::NONE,
            link => Row(self.geometry.join(stripe, link - 1) + 1),
        }
    }

    /// The stripe of a key with this hash.
    #[inline(always)]
    pub(super) fn stripe_of(&self, hash: u64) -> &Stripe {
        match &*self.stripes {
            [only] => only,
            stripes => &stripes[self.geometry.stripe_of(hash)],
        }
    }

    /// The row with this number plus one in a stripe, if it has this key.
    #[inline(always)]
    fn probe(&self, stripe: &Stripe, number: u32, key: impl Key) -> Option<(Row, RowLocation<'_>)> {
        let row = Row(stripe.first + u64::from(number));
        let place = self.base.locate_row(row.0.wrapping_sub(1))?;
        key.is_of(place).then_some((row, place))
    }

    #[inline(always)]
    fn is_expired_at(&self, place: RowLocation<'_>, now: Time) -> bool {
        self.ages().any(|(at, ttl)| place.word(at).is_none_or(|stamp| is_over(stamp, now, ttl)))
    }

    /// Adds to the number of rows (`u64::MAX` subtracts one).
    fn count_row(&self, n: u64) {
        if self.spec.shared {
            self.rows.fetch_add(n, Relaxed);
        } else {
            self.rows.store(self.rows.load(Relaxed).wrapping_add(n), Relaxed);
        }
    }

    /// Removes a row that is in the way: as expired if it is, else as evicted.
    fn drop_row(&self, row: Row, now: Time, on_evict: &mut dyn FnMut(Row, Eviction)) {
        if self.is_expired(self.row_words(row, 0), now) {
            self.expire(row);
        } else {
            self.evict(row, on_evict);
        }
    }

    /// Removes the row of a key that is inserted again.
    fn replace(&self, row: Row, now: Time, on_evict: &mut dyn FnMut(Row, Eviction)) {
        if self.is_expired(self.row_words(row, 0), now) {
            self.expire(row);
        } else {
            on_evict(row, Eviction::Removed);
            self.remove(row);
        }
    }

    /// Whether a row can be inserted into a stripe without a removal.
    fn fits(&self, stripe: usize) -> bool {
        self.rows.load(Relaxed) < self.rows_max.load(Relaxed) && self.free_row(stripe).is_some()
    }

    /// Makes room for one row in a stripe: first by expiry, then by eviction as declared.
    #[cold]
    fn make_room(&self, at: usize, now: Time, on_evict: &mut dyn FnMut(Row, Eviction)) -> bool {
        let ages = self.ages().count();
        let is_freed = self.free_unwanted(at) || self.reclaim(at, now, &mut { ages });
        if is_freed && self.fits(at) {
            return true;
        }
        let evict = Evict::from_code(self.evict.load(Relaxed));
        if self.may_expire() && self.free_row(at).is_some() {
            let others = self.stripes.len() - 1;
            let (visits, mut looks) = if evict == Evict::Reject {
                (others, others * ages)
            } else {
                (others.min(NEIGHBOURS_MAX), 1)
            };
            for _ in 0..visits {
                self.with_other_stripe(at, |other| usize::from(self.reclaim(other, now, &mut looks)));
                if self.fits(at) {
                    return true;
                }
            }
        }
        // Two at a time if a hot update has lowered the limit, so that the table shrinks to it.
        for _ in 0..2 {
            let Some(oldest) = self.evictee(at, evict) else { break };
            self.drop_row(oldest, now, on_evict);
            if self.fits(at) {
                return true;
            }
        }
        evict != Evict::Reject && self.rows_max.load(Relaxed) > 0 && self.free_row(at).is_some()
    }

    /// Finds the next row of a stripe to evict; None if the policy evicts none or the stripe has none.
    fn evictee(&self, at: usize, evict: Evict) -> Option<Row> {
        let order = match evict {
            Evict::Reject => return None,
            Evict::Oldest => self.written_order()?,
            Evict::Lru => self.touched_order()?,
        };
        self.oldest(at, order, &mut 1)
    }

    /// The oldest row of a stripe. None if the stripe has no row, or if it would need a search and no searches are
    /// left.
    fn oldest(&self, at: usize, order: Order, looks: &mut usize) -> Option<Row> {
        loop {
            while let Some((stamp, local)) = self.oldest_list(at, order).first() {
                let row = Row(self.geometry.join(at, local) + 1);
                let words = self.row_words(row, 0);
                let is_live = words[0].load(Relaxed) & LIVE != 0;
                if is_live && words[order.stamp_at()].load(Relaxed) as i64 == stamp {
                    return Some(row);
                }
                self.oldest_list(at, order).skip_first();
                if is_live {
                    self.admit(row, words);
                }
            }
            if *looks == 0 || self.stripes[at].rows.load(Relaxed) == 0 {
                return None;
            }
            *looks -= 1;
            self.oldest_list(at, order).refill(self.aged_rows(at, order));
        }
    }

    /// All rows of a stripe with their stamps.
    #[cold]
    fn aged_rows(&self, at: usize, order: Order) -> Vec<Aged> {
        let stripe = &self.stripes[at];
        let mut rows = Vec::with_capacity(stripe.rows.load(Relaxed) as usize);
        let end = stripe.first + u64::from(stripe.high.load(Relaxed));
        let mut next = stripe.first;
        while next < end {
            let words = self.base.row(next, self.geometry, &self.memory);
            if words[0].load(Relaxed) & LIVE != 0 {
                rows.push((words[order.stamp_at()].load(Relaxed) as i64, self.geometry.split(next).1));
            }
            next = self.geometry.after(next);
        }
        rows
    }

    /// The list of a stripe's oldest rows in this order.
    fn oldest_list(&self, at: usize, order: Order) -> &Oldest {
        match order {
            Order::Written => &self.stripes[at].written,
            Order::Touched(_) => &self.stripes[at].touched,
            Order::Inserted(_) => &self.stripes[at].inserted,
        }
    }

    /// Updates the orders for a row whose stamps may have become lower.
    fn admit(&self, row: Row, words: &Words) {
        let (at, local) = self.geometry.split(row.0 - 1);
        for order in self.orders() {
            let stamp = words[order.stamp_at()].load(Relaxed) as i64;
            self.oldest_list(at, order).admit((stamp, local));
        }
    }

    /// Removes the oldest row of a stripe, in any of its orders, if it has expired.
    fn reclaim(&self, at: usize, now: Time, looks: &mut usize) -> bool {
        self.reclaim_by(at, now, looks, |row| self.expire(row))
    }

    /// As [`Table::reclaim`], with `expire` to remove the row.
    fn reclaim_by(&self, at: usize, now: Time, looks: &mut usize, expire: impl FnOnce(Row)) -> bool {
        for (order, ttl) in self.expiring_orders() {
            if !is_over(self.oldest_list(at, order).stamp_min() as u64, now, ttl) {
                continue;
            }
            let oldest = self.oldest(at, order, looks);
            if let Some(row) = oldest.filter(|row| self.is_expired(self.row_words(*row, 0), now)) {
                expire(row);
                return true;
            }
        }
        false
    }

    /// Runs `work` on the next stripe in turn, under its lock. Returns 0 if another thread holds the lock.
    fn with_next_stripe(&self, work: impl FnOnce(usize) -> usize) -> usize {
        let next = self.sweep_at.load(Relaxed);
        self.sweep_at.store(next.wrapping_add(1), Relaxed);
        let at = next as usize % self.stripes.len();
        let lock = &self.stripes[at].lock;
        if !self.spec.shared {
            return work(at);
        }
        if !spin_try_lock(lock) {
            return 0;
        }
        let done = work(at);
        spin_unlock(lock);
        done
    }

    /// As `with_next_stripe`, while the caller holds the lock of stripe `own`: that stripe is skipped.
    fn with_other_stripe(&self, own: usize, work: impl FnOnce(usize) -> usize) {
        if self.sweep_at.load(Relaxed) as usize % self.stripes.len() == own {
            self.sweep_at.store(self.sweep_at.load(Relaxed).wrapping_add(1), Relaxed);
        }
        self.with_next_stripe(work);
    }

    /// Finds a free row of a stripe, without taking it; None if the stripe is full.
    fn free_row(&self, at: usize) -> Option<u32> {
        let stripe = &self.stripes[at];
        match stripe.free.load(Relaxed) {
            0 => Some(stripe.high.load(Relaxed)).filter(|high| self.geometry.has_local(*high)),
            free => Some(free - 1),
        }
    }

    /// Marks as used the row that [`Table::free_row`] returned.
    fn take_row(&self, at: usize, local: u32) {
        let stripe = &self.stripes[at];
        let row = self.geometry.join(at, local);
        if stripe.free.load(Relaxed) == local + 1 {
            let next = self.base.row(row, self.geometry, &self.memory)[0].load(Relaxed);
            stripe.free.store(next as u32, Relaxed);
        } else {
            stripe.high.store(self.geometry.after(u64::from(local)) as u32, Relaxed);
        }
        stripe.rows.store(stripe.rows.load(Relaxed) + 1, Relaxed);
        self.base.count_live(row, true);
        self.count_row(1);
    }

    /// Resets a row except for its key, and returns its words.
    fn fill(&self, row: Row, tag: u32, now: Time) -> &Words {
        let words = self.base.row(row.0 - 1, self.geometry, &self.memory);
        self.base.write_defaults(words);
        if self.n_added.load(Relaxed) != 0 {
            self.groups().skip(1).for_each(|(_, group)| group.reset(row.0 - 1, self.geometry));
        }
        words[0].store(LIVE | u64::from(tag), Relaxed);
        words[WRITTEN_AT].store(now.0 as u64, Relaxed);
        if let Some(touched) = self.header.touched {
            words[touched].store(now.0 as u64, Relaxed);
        }
        if let Some(inserted) = self.header.inserted {
            words[inserted].store(now.0 as u64, Relaxed);
        }
        self.admit(row, words);
        words
    }
}
