//! The undo log of a handler: a failed element leaves no trace in state.

use super::evict::Eviction;
use super::layout::LIVE;
use super::{ColumnRef, Insert, Row, Table};
use crate::abi::State;
use crate::time::Time;
use core::sync::atomic::Ordering::Relaxed;

/// The changes to undo if an element fails.
///
/// Call each `record_*` before the change it is named after, except [`Journal::record_insert`]. The caller holds the
/// locks of all changes until the journal is undone or cleared. Undo goes backwards, so every row returns to its slot
/// with its age. Tables are indices into [`Parts::tables`](crate::abi::Parts::tables).
#[derive(Debug, Default)]
pub struct Journal {
    entries: Vec<Entry>,
    words: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Entry {
    Word {
        table: u16,
        row: Row,
        group: u16,
        word: u16,
        old: u64,
    },
    /// Uses the last `len` remaining words.
    Words {
        table: u16,
        row: Row,
        group: u16,
        word: u16,
        len: u32,
    },
    Age {
        table: u16,
        row: Row,
        written: Time,
        touched: Time,
    },
    Inserted {
        table: u16,
        row: Row,
    },
    /// The words of all groups are the last remaining words.
    Removed {
        table: u16,
        row: Row,
        eviction: Eviction,
        len: u32,
    },
    Scalar {
        index: u32,
        old: u64,
    },
    Merged {
        index: u32,
        old: u64,
    },
    Call {
        index: u32,
        old: u64,
    },
}

impl Journal {
    /// Clears the journal; the changes stay.
    #[inline]
    pub fn clear(&mut self) {
        self.entries.clear();
        self.words.clear();
    }

    /// Whether nothing was recorded.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Records a column's word and its NULL bit before they change.
    pub fn record_store(&mut self, table: u16, row: Row, col: ColumnRef, rows: &Table) {
        self.record_null(table, row, col, rows);
        let (group, word) = (col.group, col.word);
        self.entries.push(Entry::Word { table, row, group, word, old: rows.word(row, col) });
    }

    /// Records a column's bytes and its NULL bit before they change.
    pub fn record_bytes(&mut self, table: u16, row: Row, col: ColumnRef, rows: &Table) {
        self.record_null(table, row, col, rows);
        let len = 1 + rows.bytes_len(row, col).div_ceil(8);
        let cell = &rows.row_words(row, col.group)[col.word as usize..][..len];
        self.words.extend(cell.iter().map(|word| word.load(Relaxed)));
        self.entries.push(Entry::Words { table, row, group: col.group, word: col.word, len: len as u32 });
    }

    /// Records a column before [`Table::count_into`].
    pub fn record_count(&mut self, table: u16, row: Row, col: ColumnRef, rows: &Table) {
        self.record_bytes(table, row, col, rows);
    }

    /// Records a row's age before [`Table::touch`] or [`Table::touch_read`].
    pub fn record_touch(&mut self, table: u16, row: Row, rows: &Table) {
        let (written, touched) = rows.stamps(row);
        self.entries.push(Entry::Age { table, row, written, touched });
    }

    /// Records an insertion that evicted nothing, after it. [`Journal::insert_int`] and [`Journal::insert_bytes`]
    /// insert and record in one call.
    pub fn record_insert(&mut self, table: u16, row: Row) {
        self.entries.push(Entry::Inserted { table, row });
    }

    /// [`Table::insert_int`], recorded together with its evictions.
    pub fn insert_int(&mut self, table: u16, rows: &Table, key: u64, now: Time) -> Insert {
        let insert = rows
            .insert_int_with(key, now, &mut |row, eviction| self.record_eviction(table, row, eviction, rows));
        self.inserted(table, insert)
    }

    /// [`Table::insert_bytes`], recorded together with its evictions.
    pub fn insert_bytes(&mut self, table: u16, rows: &Table, key: &[u8], now: Time) -> Insert {
        let insert = rows.insert_bytes_with(key, now, &mut |row, eviction| {
            self.record_eviction(table, row, eviction, rows)
        });
        self.inserted(table, insert)
    }

    /// Records a full copy of the row before [`Table::remove`].
    pub fn record_remove(&mut self, table: u16, row: Row, rows: &Table) {
        self.record_eviction(table, row, Eviction::Removed, rows);
    }

    /// Saves all words of an evicted row, so that a roll-back can restore it.
    fn record_eviction(&mut self, table: u16, row: Row, eviction: Eviction, rows: &Table) {
        let before = self.words.len();
        for (group, _) in rows.groups() {
            self.words.extend(rows.row_words(row, group).iter().map(|word| word.load(Relaxed)));
        }
        let len = (self.words.len() - before) as u32;
        self.entries.push(Entry::Removed { table, row, eviction, len });
    }

    /// Records a word of [`Parts::scalars`](crate::abi::Parts::scalars) before it changes from `old`.
    pub fn record_scalar(&mut self, index: u32, old: u64) {
        self.entries.push(Entry::Scalar { index, old });
    }

    /// Records a word of [`Parts::merged`](crate::abi::Parts::merged) before it changes from `old`.
    pub fn record_merged(&mut self, index: u32, old: u64) {
        self.entries.push(Entry::Merged { index, old });
    }

    /// Records a word of the call's row before it changes from `old`.
    pub fn record_call(&mut self, index: u32, old: u64) {
        self.entries.push(Entry::Call { index, old });
    }

    /// Undoes all changes, latest first, and clears the journal.
    pub fn undo(&mut self, state: &State, call: &mut [u64]) {
        while let Some(entry) = self.entries.pop() {
            match entry {
                Entry::Word { table, row, group, word, old } => {
                    state.tables[table as usize].row_words(row, group)[word as usize].store(old, Relaxed);
                }
                Entry::Words { table, row, group, word, len } => {
                    let cell = &state.tables[table as usize].row_words(row, group)[word as usize..];
                    let kept = self.words.split_off(self.words.len() - len as usize);
                    cell.iter().zip(kept).for_each(|(word, old)| word.store(old, Relaxed));
                }
                Entry::Age { table, row, written, touched } => {
                    let rows = &state.tables[table as usize];
                    if rows.is_live(row) {
                        rows.set_stamps(row, written, touched);
                    }
                }
                Entry::Inserted { table, row } => state.tables[table as usize].remove(row),
                Entry::Removed { table, row, eviction, len } => {
                    let kept = self.words.split_off(self.words.len() - len as usize);
                    let rows = &state.tables[table as usize];
                    rows.undo_eviction(row, eviction);
                    rows.restore(row, &kept);
                }
                Entry::Scalar { index, old } => state.scalars.set_word(index as usize, old),
                Entry::Merged { index, old } => state.merged.set_word(index as usize, old),
                Entry::Call { index, old } => call[index as usize] = old,
            }
        }
        assert!(self.words.is_empty(), "each entry has taken its own words");
    }

    /// Saves the word with a column's NULL bit; does nothing for a column without one.
    fn record_null(&mut self, table: u16, row: Row, col: ColumnRef, rows: &Table) {
        let Some((word, _)) = col.null_bit else { return };
        let old = rows.row_words(row, col.group)[word as usize].load(Relaxed);
        self.entries.push(Entry::Word { table, row, group: col.group, word, old });
    }

    /// Records an insertion if it made a new row, and passes the result on.
    fn inserted(&mut self, table: u16, insert: Insert) -> Insert {
        if let Insert::New(row) = insert {
            self.record_insert(table, row);
        }
        insert
    }
}

impl Table {
    /// Restores a removed row in its slot with its age.
    fn restore(&self, row: Row, words: &[u64]) {
        let (at, local) = self.geometry.split(row.0 - 1);
        let tag = words[0] as u32;
        let stripe = &self.stripes[at];
        stripe.reserve(&self.memory, &self.begins[at]);
        assert!(self.claim(row), "the lock is held until the undo");
        let mut rest = words;
        for (group, _) in self.groups() {
            let live = self.row_words(row, group);
            let (kept, after) = rest.split_at(live.len().min(rest.len()));
            live.iter().zip(kept).for_each(|(word, old)| word.store(*old, Relaxed));
            rest = after;
        }
        self.row_words(row, 0)[0].store(LIVE | u64::from(tag), Relaxed);
        stripe.add_row(tag, local);
        let (written, touched) = self.stamps(row);
        self.set_stamps(row, written, touched);
    }
}
