//! Runs operations on tables for the interpreter.

use super::{Handling, TableLock, Val};
use crate::ir::*;
use weft_core::table::{ColumnRef, Insert, KeyBuilder, Row, Table};
use weft_core::types::Type;

/// Encodes a key of several columns in canonical form.
pub(super) fn key<'v>(parts: impl Iterator<Item = &'v Val>) -> Vec<u8> {
    let mut key = KeyBuilder::default();
    for part in parts {
        match part {
            Val::Bytes(bytes) => key.bytes(bytes),
            other => key.int(other.word()),
        };
    }
    key.as_bytes().to_vec()
}

impl Handling<'_, '_> {
    /// Runs a table operation and returns its result.
    pub(super) fn table_value(&mut self, op: &Op) -> Val {
        let state = self.cx.state;
        let now = self.cx.now;
        let of = |table: TableId| &*state.tables[usize::from(table.0)];
        match *op {
            Op::Find(table, key) => Val::Row(match self.get(key) {
                Val::Bytes(key) => of(table).find_bytes(key, now),
                key => of(table).find_int(key.word(), now),
            }),
            Op::Insert(table, key, journal) => Val::Row(self.insert(table, of(table), key, journal)),
            Op::Column(table, row, column) => {
                let (row, (at, ty)) = (self.row(row), self.column(table, column));
                let rows = of(table);
                if row == Row::NONE || rows.is_null(row, at) {
                    return Val::zero(Ty::of(ty));
                }
                match Ty::of(ty) {
                    Ty::Bytes => {
                        let mut bytes = Vec::new();
                        rows.bytes_into(row, at, &mut bytes);
                        self.new_bytes(&bytes)
                    }
                    ty => Val::of_word(ty, rows.word(row, at)),
                }
            }
            Op::ColumnIsNull(table, row, column) => {
                let (row, (at, _)) = (self.row(row), self.column(table, column));
                Val::Bool(row == Row::NONE || of(table).is_null(row, at))
            }
            Op::SetColumn(table, row, column, value, journal) => {
                let (row, column) = (self.row(row), self.column(table, column));
                Val::Bool(row != Row::NONE && self.set_column(table, row, column, value, journal))
            }
            Op::Count(table) => Val::Int(of(table).count(now) as i64),
            Op::ScanRow(table, cursor) => {
                let found = of(table).scan(self.int(cursor) as u64, now);
                Val::Row(found.map_or(Row::NONE, |(row, _)| row))
            }
            Op::ExpiredRow(_) => Val::Row(self.cx.expired_row),
            Op::ScanNext(table, row) => Val::Int(of(table).cursor_behind(self.row(row)) as i64),
            _ => unreachable!("{op:?} gives no value"),
        }
    }

    /// Runs a table operation that has no result.
    pub(super) fn table_effect(&mut self, op: &Op) {
        let now = self.cx.now;
        match *op {
            Op::Lock(table, key) => self.lock(table, key),
            Op::Remove(table, row, journal) => {
                let row = self.row(row);
                self.on_row(table, row, |journal_of, rows| {
                    if journal == Journal::Yes {
                        journal_of.record_remove(table.0, row, rows);
                    }
                    rows.remove(row);
                });
            }
            Op::Touch(table, row) => {
                let row = self.row(row);
                self.on_row(table, row, |journal, rows| {
                    journal.record_touch(table.0, row, rows);
                    rows.touch(row, now);
                });
            }
            Op::TouchRead(table, row) => {
                let row = self.row(row);
                self.on_row(table, row, |journal, rows| {
                    journal.record_touch(table.0, row, rows);
                    rows.touch_read(row, now);
                });
            }
            Op::CountInto(table, row, column, bin, journal) => {
                let (row, bin, (at, _)) = (self.row(row), self.int(bin) as u64, self.column(table, column));
                self.on_row(table, row, |journal_of, rows| {
                    if journal == Journal::Yes {
                        journal_of.record_count(table.0, row, at, rows);
                    }
                    rows.count_into(row, at, bin);
                });
            }
            Op::SetColumnNull(table, row, column, journal) => {
                let (row, column) = (self.row(row), self.column(table, column));
                self.on_row(table, row, |journal_of, rows| {
                    if journal == Journal::Yes {
                        record(journal_of, table, row, column, rows);
                    }
                    rows.set_null(row, column.0, true);
                });
            }
            _ => unreachable!("{op:?} has a value, and no effect here"),
        }
    }

    /// Applies `act` to a row; does nothing for [`Row::NONE`].
    fn on_row(&mut self, table: TableId, row: Row, act: impl FnOnce(&mut weft_core::table::Journal, &Table)) {
        if row != Row::NONE {
            act(&mut self.cx.out.journal, &self.cx.state.tables[usize::from(table.0)]);
        }
    }

    /// Resolves a column to its location in a row and its type.
    pub(super) fn column(&self, table: TableId, column: ColumnId) -> (ColumnRef, Type) {
        let (table, column) = (usize::from(table.0), usize::from(column.0));
        let spec = &self.program.chain.tables[table].spec;
        let ty = match column.checked_sub(spec.key.len()) {
            Some(value) => spec.columns[value].ty,
            None => spec.key[column].ty,
        };
        (self.program.columns[table][column], ty)
    }

    /// Inserts a row by its key; [`Row::NONE`] if the table is full or the key is too long.
    fn insert(&mut self, table: TableId, rows: &Table, key: Value, journal: Journal) -> Row {
        let now = self.cx.now;
        let is_journaled = journal == Journal::Yes;
        let insert = match self.get(key).clone() {
            Val::Bytes(key) if is_journaled => self.cx.out.journal.insert_bytes(table.0, rows, &key, now),
            Val::Bytes(key) => rows.insert_bytes(&key, now),
            key if is_journaled => self.cx.out.journal.insert_int(table.0, rows, key.word(), now),
            key => rows.insert_int(key.word(), now),
        };
        match insert {
            Insert::New(row) => row,
            Insert::Full | Insert::TooLong => Row::NONE,
        }
    }

    /// Writes a column of a row; false if the bytes do not fit.
    fn set_column(
        &mut self,
        table: TableId,
        row: Row,
        column: (ColumnRef, Type),
        value: Value,
        journal: Journal,
    ) -> bool {
        let at = column.0;
        let rows = &self.cx.state.tables[usize::from(table.0)];
        let value = self.get(value).clone();
        if matches!(&value, Val::Bytes(bytes) if bytes.len() > at.bytes_max as usize) {
            return false;
        }
        if journal == Journal::Yes {
            record(&mut self.cx.out.journal, table, row, column, rows);
        }
        rows.set_null(row, at, false);
        match &value {
            Val::Bytes(bytes) => rows.set_bytes(row, at, bytes),
            other => {
                rows.set_word(row, at, other.word());
                true
            }
        }
    }

    /// Locks the stripe of a key, or all of a table without a key. Does nothing if the pass already holds a lock of the
    /// table.
    fn lock(&mut self, table: TableId, key: Option<Value>) {
        let index = usize::from(table.0);
        if self.held[index].is_some() {
            return;
        }
        let held = match key.map(|key| self.get(key)) {
            None => TableLock::All,
            Some(Val::Bytes(key)) => TableLock::Stripe { hash: self.cx.state.tables[index].hash_bytes(key) },
            Some(key) => TableLock::Stripe { hash: self.cx.state.tables[index].hash_int(key.word()) },
        };
        match held {
            TableLock::All => self.cx.state.tables[index].lock_all(),
            TableLock::Stripe { hash } => self.cx.state.tables[index].lock(hash),
        }
        self.held[index] = Some(held);
    }
}

/// Records the old value of a column in the journal.
fn record(
    journal: &mut weft_core::table::Journal,
    table: TableId,
    row: Row,
    (at, ty): (ColumnRef, Type),
    rows: &Table,
) {
    match Ty::of(ty) {
        Ty::Bytes => journal.record_bytes(table.0, row, at, rows),
        _ => journal.record_store(table.0, row, at, rows),
    }
}
