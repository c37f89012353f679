//! The accesses of a pass, recorded by the interpreter as they happen.
//!
//! Tests compare them with the inferred effects, which must include every access. They follow the actual run and not
//! the operation: a column of no row is not read, and a write that does not fit is none.

use super::{Handling, Val};
use crate::ir::*;
use weft_core::native::Effect;
use weft_core::table::Row;

/// One access.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Access {
    /// The value or the presence of an input column was read.
    ReadInput(InputId),
    /// An input column was set or cleared.
    WriteInput(InputId),
    /// A header or trailer of the answer was set.
    Answer(NameId),
    /// A field of the reply was set.
    Reply(NameId),
    /// `now()` was read.
    Now,
    /// `rand()` was drawn, at this site.
    Rand(u64),
    /// Scratch was allocated, or its state was read.
    Room,
    /// The scratch was full: the rest of the pass depends on earlier allocations.
    Full,
    /// A cell of the call's row was read.
    ReadCall(CallId),
    /// A cell of the call's row was set.
    WriteCall(CallId),
    /// A variable was read.
    ReadVar(VarId),
    /// A variable was set.
    WriteVar(VarId),
    /// A variable was merged with a value.
    MergeVar(VarId),
    /// The existence of rows was read: for this key, or for all.
    ReadRows(TableId, Option<Vec<u8>>),
    /// A row was inserted, removed, aged, or moved in the eviction order.
    WriteRows(TableId),
    /// A column of an existing row was read.
    ReadColumn(TableId, ColumnId),
    /// A column of an existing row was set.
    WriteColumn(TableId, ColumnId),
    /// A row went to a sink.
    Emit(SinkId),
    /// The tuple was delayed.
    Delay,
    /// The tuple was marked.
    Mark,
    /// The tuple was copied to another target.
    Mirror,
    /// The headers of the frame were changed.
    ChangeHeaders,
}

/// An access, with the position of its handler in the segment
/// ([`ChainProgram::parts`](crate::program::ChainProgram::parts)).
pub type AccessAt = (usize, Access);

impl Handling<'_, '_> {
    /// Records the accesses of an instruction after it has run.
    pub(super) fn record_accesses(&mut self, op: &Op, result: Option<&Val>) {
        let accesses = self.accesses(op, result);
        let (part, full) = (self.part, self.scratch_full.then_some(Access::Full));
        let matched = match *op {
            Op::Match(table, id, _) => self.matched_columns(table, id),
            _ => Vec::new(),
        };
        if let Some(recorded) = &mut *self.recorded {
            let all = accesses.into_iter().chain([full]).flatten().chain(matched);
            recorded.extend(all.map(|access| (part, access)));
        }
    }

    /// The accesses of an executed operation, for comparison with the inferred effects.
    fn accesses(&self, op: &Op, result: Option<&Val>) -> [Option<Access>; 2] {
        let is_row = |row: Value| self.row(row) != Row::NONE;
        let room = self.takes_room(op, result).then_some(Access::Room);
        let access = match *op {
            Op::Input(id) | Op::Derived(id) | Op::InputPresent(id) => Some(Access::ReadInput(id)),
            Op::SetInput(id, _) | Op::ClearInput(id) => Some(Access::WriteInput(id)),
            Op::SetAnswer(name, _) => Some(Access::Answer(name)),
            Op::SetReply(name, _) => Some(Access::Reply(name)),
            Op::ChangeHeaders(..) => Some(Access::ChangeHeaders),
            Op::Now => Some(Access::Now),
            Op::Rand(site) => Some(Access::Rand(site)),
            Op::Native(id, ..) => {
                let decl = &self.program.chain.natives[usize::from(id.0)];
                match decl.native.info().effect {
                    Effect::Pure => None,
                    Effect::Clock => Some(Access::Now),
                    Effect::Random | Effect::Nonce => Some(Access::Rand(decl.site)),
                }
            }
            Op::CallGet(id) => Some(Access::ReadCall(id)),
            Op::CallSet(id, ..) => Some(Access::WriteCall(id)),
            Op::VarGet(id) | Op::VarMerged(id) => Some(Access::ReadVar(id)),
            Op::VarSet(id, ..) | Op::VarReset(id) => Some(Access::WriteVar(id)),
            Op::VarMerge(id, ..) => Some(Access::MergeVar(id)),
            Op::Find(table, key) => Some(Access::ReadRows(table, Some(self.key_bytes(key)))),
            Op::Match(table, ..) | Op::Count(table) | Op::ScanRow(table, _) | Op::ExpiredRow(table) => {
                Some(Access::ReadRows(table, None))
            }
            Op::Insert(table, ..) => {
                (result != Some(&Val::Row(Row::NONE))).then_some(Access::WriteRows(table))
            }
            Op::Remove(table, row, _) | Op::Touch(table, row) | Op::TouchRead(table, row) => {
                is_row(row).then_some(Access::WriteRows(table))
            }
            Op::Column(table, row, column) | Op::ColumnIsNull(table, row, column) => {
                is_row(row).then_some(Access::ReadColumn(table, column))
            }
            Op::SetColumn(table, _, column, ..) => {
                (result == Some(&Val::Bool(true))).then_some(Access::WriteColumn(table, column))
            }
            Op::SetColumnNull(table, row, column, _) | Op::CountInto(table, row, column, ..) => {
                is_row(row).then_some(Access::WriteColumn(table, column))
            }
            Op::Emit(sink, _) => Some(Access::Emit(sink)),
            Op::Delay(by) => (self.int(by) > 0).then_some(Access::Delay),
            Op::Mark(..) => Some(Access::Mark),
            Op::Mirror(_) => Some(Access::Mirror),
            _ => None,
        };
        [access, room]
    }

    /// The column reads of a match.
    fn matched_columns(&self, table: TableId, id: MatchId) -> Vec<Access> {
        let columns = self.program.chain.matches[usize::from(id.0)].spec.columns();
        columns.map(|column| Access::ReadColumn(table, ColumnId(column))).collect()
    }

    /// Whether the operation depends on the free scratch.
    fn takes_room(&self, op: &Op, result: Option<&Val>) -> bool {
        let is_long = |value: Value| matches!(self.get(value), Val::Bytes(bytes) if !bytes.is_empty());
        match op {
            Op::ScratchFull | Op::Derived(_) => true,
            Op::Concat(_)
            | Op::Lower(_)
            | Op::Upper(_)
            | Op::IntToText(..)
            | Op::FloatToText(_)
            | Op::Key(_)
            | Op::Column(..)
            | Op::Native(..)
            | Op::CallGet(_) => matches!(result, Some(Val::Bytes(_))),
            Op::SetInput(_, a) | Op::SetAnswer(_, a) | Op::SetReply(_, a) | Op::Mirror(a) => is_long(*a),
            Op::Emit(_, cells) => cells.iter().any(|(cell, _)| is_long(*cell)),
            Op::ChangeHeaders(_, parts) => parts.iter().any(|part| is_long(*part)),
            _ => false,
        }
    }

    /// A key as bytes: itself, or its word in little-endian order.
    fn key_bytes(&self, key: Value) -> Vec<u8> {
        match self.get(key) {
            Val::Bytes(bytes) => bytes.to_vec(),
            other => other.word().to_le_bytes().to_vec(),
        }
    }
}
