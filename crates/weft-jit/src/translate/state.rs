//! Translates operations on tables, the call's row and scalar variables.

use super::analysis::{self, column_ref};
use super::bytes::little_endian;
use super::{LockState, PLAIN, PartTranslator, UNALIGNED, Val};
use crate::frame::SLICE_START;
use crate::helpers::{Cold, Helper, merge_code};
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{BlockArg, InstBuilder as _};
use cranelift_frontend::Variable;
use std::sync::Arc;
use weft_core::Value as Constant;
use weft_core::abi::{Cx, Parts, State};
use weft_core::table::{ColumnRef, Table};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, CallId, ColumnId, Inst, Journal, Op, TableId, Ty, Value, VarId};
use weft_ir::program::{CallCell, Merge, VarDecl};

/// Cells of the call's row are set inline to up to this many bytes.
const SHORT_CELL_BYTES: i64 = 16;

/// A cell of bytes in a row, viewed by a value: its words are readable whatever its length, and the last word with
/// bytes is zero-padded.
#[derive(Clone, Copy, Debug)]
pub(super) struct RowCell {
    pub(super) bytes_max: usize,
    /// The length, which may exceed `bytes_max`: code with a smaller limit needs no cut.
    pub(super) len: clif::Value,
}

/// A store that a roll-back undoes: whether it was made, its address, and the old value.
#[derive(Clone, Copy, Debug)]
pub(super) struct Undo {
    pub(super) is_done: Variable,
    pub(super) at: Variable,
    offset: i32,
    pub(super) kept: Variable,
}

/// A column of a table.
#[derive(Clone, Copy)]
struct TableColumn {
    table: TableId,
    at: ColumnRef,
    ty: Ty,
}

impl TableColumn {
    /// Byte offset of a word of the row's group.
    fn offset(self) -> i32 {
        i32::from(self.at.word) * 8
    }

    /// Whether compiled code may access it through the row's address.
    fn is_direct(self) -> bool {
        analysis::is_direct(&self.at)
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits an operation on call cells, variables or tables; returns its result, if it has one.
    pub(super) fn state(&mut self, block: BlockId, inst: &Inst) -> Result<Option<Val>, Unsupported> {
        let frame = self.segment.frame;
        Ok(match &inst.op {
            Op::CallGet(cell) => Some(self.call_get(*cell, inst.result)?),
            Op::CallSet(cell, value, journal) => {
                self.call_set(*cell, *value, *journal)?;
                None
            }
            Op::VarGet(var) => {
                let (decl, offset) = self.var(*var)?;
                let ty = Ty::of(decl.ty);
                let scalars = self.segment.scalars();
                let word = self.ins().load(I64, PLAIN, scalars, offset);
                Some(self.segment.unpack(ty, word))
            }
            Op::VarSet(var, value, journal) => {
                let (ty, value) = (self.ty(*value), self.get(*value)?);
                let word = self.segment.pack(ty, value);
                let scalars = self.segment.scalars();
                self.set_var(*var, word, *journal, scalars, Helper::VarSet)?;
                None
            }
            Op::VarMerge(var, value, journal) => {
                self.merge(*var, *value, *journal)?;
                None
            }
            Op::VarMerged(var) => {
                let [word, code, _] = self.merged_args(*var)?;
                Some(self.segment.call_one(Helper::VarMerged, &[frame, word, code]))
            }
            Op::VarReset(var) => {
                let [word, code, start] = self.merged_args(*var)?;
                self.segment.call(Helper::VarReset, &[frame, word, code, start]);
                None
            }
            Op::LockVars => {
                self.lock_vars();
                None
            }
            _ => self.table_op(block, inst)?,
        })
    }

    /// Emits an operation on a table; returns its result, if it has one.
    fn table_op(&mut self, block: BlockId, inst: &Inst) -> Result<Option<Val>, Unsupported> {
        let frame = self.segment.frame;
        let now = self.segment.load_now();
        Ok(match &inst.op {
            Op::Find(table, key) => Some(self.find(*table, *key)?),
            Op::Match(_, id, keys) => Some(self.first_match(block, *id, keys)?),
            Op::IsRow(row) => {
                let row = self.get(*row)?.two().0;
                Some(Val::One(self.segment.icmp_imm(IntCC::NotEqual, row, 0)))
            }
            Op::Insert(table, key, journal) => {
                let table = self.journaled_table(*table, *journal);
                let (ty, key) = (self.ty(*key), self.get(*key)?);
                Some(match key {
                    Val::Two(start, len) => {
                        self.segment.call_cold_for_two(Cold::InsertBytes, &[frame, table, start, len])
                    }
                    key => {
                        let word = self.segment.pack(ty, key);
                        self.segment.call_cold_for_two(Cold::InsertInt, &[frame, table, word])
                    }
                })
            }
            Op::Remove(table, row, journal) => {
                let table = self.segment.int(i64::from(table.0));
                let journal = self.segment.int(i64::from(self.is_journaled(*journal)));
                self.on_row(block, *row, |this, row| {
                    this.segment.call(Helper::Remove, &[frame, table, row, journal]);
                })?;
                None
            }
            Op::Touch(table, row) => {
                let (written, touched) = self.touch_words(*table);
                self.touch(block, *table, *row, [Some(written), touched], Helper::TouchNoted)?;
                None
            }
            Op::TouchRead(table, row) => {
                let (_, touched) = self.touch_words(*table);
                self.touch(block, *table, *row, [touched, None], Helper::TouchReadNoted)?;
                None
            }
            Op::Column(table, row, column) => Some(self.column_get(*table, *row, *column, inst.result)?),
            Op::ColumnIsNull(table, row, column) => {
                let place = self.locate_column(*table, *column)?;
                let (row, address) = self.get(*row)?.two();
                Some(Val::One(self.is_null(place, row, address)))
            }
            Op::SetColumn(table, row, column, value, journal) => {
                let place = self.locate_column(*table, *column)?;
                Some(Val::One(self.set_column(block, place, *row, *value, *journal)?))
            }
            Op::CountInto(table, row, column, bin, journal) => {
                let place = self.locate_column(*table, *column)?;
                let at = self.journaled_table(*table, *journal);
                let (column, bin) = (self.column_address(place.at), self.get(*bin)?.one());
                self.on_row(block, *row, |this, row| {
                    this.segment.call(Helper::CountInto, &[frame, at, row, column, bin]);
                })?;
                None
            }
            Op::SetColumnNull(table, row, column, journal) => {
                let place = self.locate_column(*table, *column)?;
                let at = self.journaled_table(*table, *journal);
                let column = self.column_address(place.at);
                self.on_row(block, *row, |this, row| {
                    this.segment.call(Helper::SetNull, &[frame, at, row, column]);
                })?;
                None
            }
            Op::Count(table) => {
                let table = self.table(*table);
                Some(self.segment.call_one(Helper::Count, &[table, now]))
            }
            Op::ScanRow(table, cursor) => Some(self.scan_row(*table, *cursor)?),
            Op::ExpiredRow(table) => {
                let (table, cx) = (self.table(*table), self.segment.cx);
                let row = self.ins().load(I64, PLAIN, cx, offset_of!(Cx<'_>, expired_row) as i32);
                Some(self.segment.call_two(Helper::ExpiredRow, &[table, row]))
            }
            Op::ScanNext(table, row) => Some(self.scan_next(*table, *row)?),
            Op::Lock(table, key) => {
                self.lock(*table, *key)?;
                None
            }
            op => return Err(Unsupported { reason: format!("no code for {op:?}"), line: inst.line }),
        })
    }

    /// Whether a write is journaled: not if nothing can fail after it.
    fn is_journaled(&self, journal: Journal) -> bool {
        journal == Journal::Yes && self.may_fail_later
    }

    /// Emits the address of the state's pointer to a table.
    pub(super) fn table(&mut self, table: TableId) -> clif::Value {
        let tables = self
            .segment
            .load_state(State::PARTS + offset_of!(Parts, tables) + self.segment.plan.vec_words.start);
        let offset = usize::from(table.0) * size_of::<Arc<Table>>();
        self.segment.iadd_imm(tables, offset as i64)
    }

    /// The index of a table, with a bit in the upper half if the write is journaled.
    fn journaled_table(&mut self, table: TableId, journal: Journal) -> clif::Value {
        let journal_flag = i64::from(self.is_journaled(journal)) << 32;
        self.segment.int(i64::from(table.0) | journal_flag)
    }

    /// Locates a column of a table; an error if the state's table lacks it.
    fn locate_column(&self, table: TableId, column: ColumnId) -> Result<TableColumn, Unsupported> {
        let plan = self.segment.plan;
        let at = column_ref(plan, table, column);
        let spec = plan.chain.tables.get(usize::from(table.0)).map(|decl| &decl.spec);
        let column = spec.and_then(|spec| spec.key.iter().chain(&spec.columns).nth(usize::from(column.0)));
        match (column, at) {
            (Some(column), Some(at)) => Ok(TableColumn { table, at, ty: Ty::of(column.ty) }),
            _ => Err(Unsupported { reason: "the state's table lacks a column".into(), line: 0 }),
        }
    }

    /// Emits the address of a column's description.
    fn column_address(&mut self, at: ColumnRef) -> clif::Value {
        let kept = Box::new(at);
        let address = core::ptr::from_ref(&*kept).expose_provenance() as u64;
        self.segment.constants.columns.push(kept);
        self.segment.address(address)
    }

    fn touch_words(&self, table: TableId) -> (u16, Option<u16>) {
        self.segment.plan.state.tables[usize::from(table.0)].touch_words()
    }

    /// Stores the time into words of a row, if there is one.
    fn touch(
        &mut self,
        block: BlockId,
        table: TableId,
        row: Value,
        words: [Option<u16>; 2],
        journaling: Helper,
    ) -> Result<(), Unsupported> {
        if words == [None; 2] {
            return Ok(());
        }
        let (frame, index) = (self.segment.frame, self.segment.int(i64::from(table.0)));
        let now = self.segment.load_now();
        let address = self.get(row)?.two().1;
        let is_noted = self.may_fail_later && !self.undone_in_place;
        self.on_row(block, row, |this, row| {
            if is_noted {
                this.segment.call(journaling, &[frame, index, row]);
                return;
            }
            for word in words.into_iter().flatten() {
                this.store_with_undo(address, i32::from(word) * 8, now);
            }
        })
    }

    /// Emits the code of `act` so that it runs only if there is a row.
    fn on_row(
        &mut self,
        block: BlockId,
        row: Value,
        act: impl FnOnce(&mut Self, clif::Value),
    ) -> Result<(), Unsupported> {
        let handle = self.get(row)?.two().0;
        if self.analysis.is_present(block, row) {
            act(self, handle);
            return Ok(());
        }
        let [yes, done] = [(); 2].map(|()| self.segment.builder.create_block());
        self.ins().brif(handle, yes, [], done, []);
        self.segment.builder.switch_to_block(yes);
        act(self, handle);
        self.ins().jump(done, []);
        self.segment.builder.switch_to_block(done);
        Ok(())
    }

    /// Whether a direct column is NULL; does not test for a missing row.
    fn null_bit(&mut self, place: TableColumn, address: clif::Value) -> Option<clif::Value> {
        let (word, bit) = place.at.null_bit?;
        let nulls = self.ins().load(I64, PLAIN, address, i32::from(word) * 8);
        let masked = self.segment.band_imm(nulls, 1i64 << bit);
        Some(self.segment.icmp_imm(IntCC::NotEqual, masked, 0))
    }

    /// Emits a flag: the column is NULL, or there is no row.
    fn is_null(&mut self, place: TableColumn, row: clif::Value, address: clif::Value) -> clif::Value {
        if !place.is_direct() {
            let (table, column) = (self.table(place.table), self.column_address(place.at));
            return self.segment.call(Helper::ColumnIsNull, &[table, row, column])[0];
        }
        let is_none = self.segment.icmp_imm(IntCC::Equal, row, 0);
        match self.null_bit(place, address) {
            Some(is_null) => self.ins().bor(is_none, is_null),
            None => is_none,
        }
    }

    /// Emits the read of a column.
    fn column_get(
        &mut self,
        table: TableId,
        row: Value,
        column: ColumnId,
        result: Option<Value>,
    ) -> Result<Val, Unsupported> {
        let place = self.locate_column(table, column)?;
        let (row, address) = self.get(row)?.two();
        if place.ty == Ty::Bytes {
            return Ok(self.column_bytes(place, row, address, result));
        }
        if !place.is_direct() {
            let (table, column) = (self.table(table), self.column_address(place.at));
            let word = self.segment.call(Helper::ColumnWord, &[table, row, column])[0];
            return Ok(self.segment.unpack(place.ty, word));
        }
        let mut word = self.ins().load(I64, PLAIN, address, place.offset());
        if let Some(is_null) = self.null_bit(place, address) {
            let zero = self.segment.int(0);
            word = self.ins().select(is_null, zero, word);
        }
        Ok(self.segment.unpack(place.ty, word))
    }

    /// Emits the read of a column of bytes. It borrows the cell if the row stays unchanged while the value is in use;
    /// else it copies to the scratch.
    fn column_bytes(
        &mut self,
        place: TableColumn,
        row: clif::Value,
        address: clif::Value,
        result: Option<Value>,
    ) -> Val {
        let borrowed = result.filter(|result| self.analysis.is_borrowed(*result));
        let (Some(result), true) = (borrowed, place.is_direct() && self.is_stable(place.table)) else {
            let (frame, table) = (self.segment.frame, self.segment.int(i64::from(place.table.0)));
            let column = self.column_address(place.at);
            return self.segment.call_two(Helper::ColumnBytes, &[frame, table, row, column]);
        };
        let mut said = self.ins().load(I64, PLAIN, address, place.offset());
        if let Some(is_null) = self.null_bit(place, address) {
            let zero = self.segment.int(0);
            said = self.ins().select(is_null, zero, said);
        }
        let max = self.segment.int(i64::from(place.at.bytes_max));
        let cut = self.ins().umin(said, max);
        let len = self.segment.take_scratch(cut);
        let start = self.segment.iadd_imm(address, i64::from(place.offset()) + 8);
        let said = if len == cut { said } else { len };
        self.cells_in_rows[result.0 as usize] =
            Some(RowCell { bytes_max: place.at.bytes_max as usize, len: said });
        Val::Two(start, len)
    }

    /// Whether no other worker writes rows of this table while this handler reads them.
    fn is_stable(&self, table: TableId) -> bool {
        !self.segment.plan.state.tables[usize::from(table.0)].spec().shared || self.analysis.locks(table)
    }

    /// Emits the write of a column; returns a flag that is false if there is no row or the value does not fit.
    fn set_column(
        &mut self,
        block: BlockId,
        place: TableColumn,
        row: Value,
        value: Value,
        journal: Journal,
    ) -> Result<clif::Value, Unsupported> {
        let (ty, value) = (self.ty(value), self.get(value)?);
        let (handle, address) = self.get(row)?.two();
        if self.analysis.is_present(block, row) {
            return Ok(self.set_present(place, (handle, address), ty, value, journal));
        }
        let [yes, done] = [(); 2].map(|()| self.segment.builder.create_block());
        let is_set = self.segment.builder.append_block_param(done, I8);
        let no: BlockArg = self.segment.bool(false).into();
        self.ins().brif(handle, yes, [], done, &[no]);
        self.segment.builder.switch_to_block(yes);
        let set: BlockArg = self.set_present(place, (handle, address), ty, value, journal).into();
        self.ins().jump(done, &[set]);
        self.segment.builder.switch_to_block(done);
        Ok(is_set)
    }

    /// Emits the write of a column of an existing row; returns a flag that is false if the value does not fit.
    fn set_present(
        &mut self,
        place: TableColumn,
        (row, address): (clif::Value, clif::Value),
        ty: Ty,
        value: Val,
        journal: Journal,
    ) -> clif::Value {
        let frame = self.segment.frame;
        if let Val::Two(start, len) = value {
            let (table, column) = (self.journaled_table(place.table, journal), self.column_address(place.at));
            return self.segment.call(Helper::SetBytes, &[frame, table, row, column, start, len])[0];
        }
        let word = self.segment.pack(ty, value);
        if self.undone_in_place {
            self.store_with_undo(address, place.offset(), word);
        } else if self.is_journaled(journal) || !place.is_direct() {
            let (table, column) = (self.journaled_table(place.table, journal), self.column_address(place.at));
            self.segment.call(Helper::SetWord, &[frame, table, row, column, word]);
        } else {
            self.ins().store(PLAIN, word, address, place.offset());
            if let Some((nulls, bit)) = place.at.null_bit {
                let offset = i32::from(nulls) * 8;
                let old = self.ins().load(I64, PLAIN, address, offset);
                let new = self.segment.band_imm(old, !(1i64 << bit));
                self.ins().store(PLAIN, new, address, offset);
            }
        }
        self.segment.bool(true)
    }

    /// Stores a word, and keeps the old one if the handler may be rolled back.
    fn store_with_undo(&mut self, address: clif::Value, offset: i32, word: clif::Value) {
        if self.may_fail_later {
            let old = self.ins().load(I64, PLAIN, address, offset);
            let [is_done, at, kept] = [I8, I64, I64].map(|ty| self.segment.builder.declare_var(ty));
            let yes = self.segment.bool(true);
            for (variable, value) in [(is_done, yes), (at, address), (kept, old)] {
                self.segment.builder.def_var(variable, value);
            }
            self.undos.push(Undo { is_done, at, offset, kept });
        }
        self.ins().store(PLAIN, word, address, offset);
    }

    /// Emits the undoing of the stores of [`Self::store_with_undo`], the latest first.
    pub(super) fn undo_stores(&mut self) {
        for Undo { is_done, at, offset, kept } in self.undos.clone().into_iter().rev() {
            let [was_done, at, kept] = [is_done, at, kept].map(|var| self.segment.builder.use_var(var));
            self.segment.when(was_done, true, |segment| {
                segment.builder.ins().store(PLAIN, kept, at, offset);
            });
            let no = self.segment.bool(false);
            self.segment.builder.def_var(is_done, no);
        }
    }

    /// The declaration of a cell of the call's row; an error if there is none.
    fn cell(&self, cell: CallId) -> Result<&CallCell, Unsupported> {
        let missing = || Unsupported { reason: format!("the call's row has no cell {}", cell.0), line: 0 };
        self.segment.plan.chain.call.get(usize::from(cell.0)).ok_or_else(missing)
    }

    /// Emits the read of a cell of the call's row.
    fn call_get(&mut self, cell: CallId, result: Option<Value>) -> Result<Val, Unsupported> {
        let decl = self.cell(cell)?;
        let (ty, offset, max) = (Ty::of(decl.ty), decl.word as i32 * 8, decl.ty.bytes_max().unwrap_or(0));
        let call = self.segment.load_cx(I64, offset_of!(Cx<'_>, call) + SLICE_START);
        let word = self.ins().load(I64, PLAIN, call, offset);
        if ty != Ty::Bytes {
            return Ok(self.segment.unpack(ty, word));
        }
        let max = self.segment.int(i64::from(max));
        let len = self.ins().umin(word, max);
        let start = self.segment.iadd_imm(call, i64::from(offset) + 8);
        if result.is_some_and(|result| self.analysis.is_borrowed(result)) {
            return Ok(Val::Two(start, self.segment.take_scratch(len)));
        }
        let frame = self.segment.frame;
        Ok(self.segment.call_two(Helper::Keep, &[frame, start, len]))
    }

    /// Emits the write of a cell of the call's row.
    fn call_set(&mut self, cell: CallId, value: Value, journal: Journal) -> Result<(), Unsupported> {
        let decl = self.cell(cell)?;
        let (at, max) = (decl.word, decl.ty.bytes_max().unwrap_or(0));
        let literal =
            self.analysis.literal(value).filter(|literal| literal.len() <= SHORT_CELL_BYTES as usize);
        let (ty, value) = (self.ty(value), self.get(value)?);
        let frame = self.segment.frame;
        if let Val::Two(start, len) = value {
            match literal.filter(|literal| literal.len() <= max as usize) {
                Some(literal) if !self.is_journaled(journal) => self.call_set_literal(at, literal),
                _ => self.call_set_bytes(at, max, (start, len), self.is_journaled(journal)),
            }
            return Ok(());
        }
        let word = self.segment.pack(ty, value);
        if self.undone_in_place {
            let call = self.segment.load_cx(I64, offset_of!(Cx<'_>, call) + SLICE_START);
            self.store_with_undo(call, at as i32 * 8, word);
        } else if self.is_journaled(journal) {
            let at = self.segment.int(i64::from(at));
            self.segment.call(Helper::CallSetWord, &[frame, at, word]);
        } else {
            let call = self.segment.load_cx(I64, offset_of!(Cx<'_>, call) + SLICE_START);
            self.ins().store(PLAIN, word, call, at as i32 * 8);
        }
        Ok(())
    }

    /// Sets a cell of bytes of the call's row to a short constant.
    fn call_set_literal(&mut self, at: u32, literal: &[u8]) {
        let call = self.segment.load_cx(I64, offset_of!(Cx<'_>, call) + SLICE_START);
        let words = literal.chunks(8).map(little_endian);
        for (at, word) in (at as i32..).zip(core::iter::once(literal.len() as u64).chain(words)) {
            let word = self.segment.int(word as i64);
            self.ins().store(PLAIN, word, call, at * 8);
        }
    }

    /// Sets a cell of bytes of the call's row: inline, if they are few and not journaled.
    fn call_set_bytes(
        &mut self,
        at: u32,
        max: u32,
        (start, len): (clif::Value, clif::Value),
        is_journaled: bool,
    ) {
        let [in_place, two, other, done] = [(); 4].map(|()| self.segment.builder.create_block());
        if is_journaled || max < SHORT_CELL_BYTES as u32 {
            self.ins().jump(other, []);
        } else {
            let is_short = self.segment.is_within(start, len, SHORT_CELL_BYTES);
            self.ins().brif(is_short, in_place, [], other, []);
            self.segment.builder.switch_to_block(in_place);
            let call = self.segment.load_cx(I64, offset_of!(Cx<'_>, call) + SLICE_START);
            let offset = at as i32 * 8;
            self.ins().store(PLAIN, len, call, offset);
            let word = self.ins().load(I64, UNALIGNED, start, 0);
            let bits = self.segment.ishl_imm(len, 3);
            let above = self.ins().ineg(bits);
            let cut = self.segment.cut(word, above);
            let is_two = self.segment.icmp_imm(IntCC::UnsignedGreaterThan, len, 8);
            let first = self.ins().select(is_two, word, cut);
            self.ins().store(PLAIN, first, call, offset + 8);
            self.ins().brif(is_two, two, [], done, []);
            self.segment.builder.switch_to_block(two);
            let word = self.ins().load(I64, UNALIGNED, start, 8);
            let cut = self.segment.cut(word, above);
            self.ins().store(PLAIN, cut, call, offset + 16);
            self.ins().jump(done, []);
        }
        self.segment.builder.set_cold_block(other);
        self.segment.builder.switch_to_block(other);
        let frame = self.segment.frame;
        let [at, journal] = [u64::from(at) | u64::from(max) << 32, u64::from(is_journaled)]
            .map(|n| self.segment.int(n as i64));
        self.segment.call_cold(Cold::CallSetBytes, &[frame, at, journal, start, len]);
        self.ins().jump(done, []);
        self.segment.builder.switch_to_block(done);
    }

    /// A scalar variable and the byte offset of its word.
    fn var(&self, var: VarId) -> Result<(VarDecl, i32), Unsupported> {
        let missing = || Unsupported { reason: format!("the chain has no variable {}", var.0), line: 0 };
        let decl = self.segment.plan.chain.vars.get(usize::from(var.0)).ok_or_else(missing)?;
        let offset = i32::try_from(u64::from(decl.word) * 8).map_err(|_| missing())?;
        Ok((decl.clone(), offset))
    }

    /// Emits the write of a variable's word: by the helper `journaling` if it is journalled, else directly.
    fn set_var(
        &mut self,
        var: VarId,
        word: clif::Value,
        journal: Journal,
        words: clif::Value,
        journaling: Helper,
    ) -> Result<(), Unsupported> {
        let (decl, offset) = self.var(var)?;
        if self.is_journaled(journal) {
            let (frame, at) = (self.segment.frame, self.segment.int(i64::from(decl.word)));
            self.segment.call(journaling, &[frame, at, word]);
        } else {
            self.ins().store(PLAIN, word, words, offset);
        }
        Ok(())
    }

    /// Emits the merge of a value into a merged variable.
    fn merge(&mut self, var: VarId, value: Value, journal: Journal) -> Result<(), Unsupported> {
        let (decl, offset) = self.var(var)?;
        let value = self.get(value)?.one();
        let words = self.segment.merged();
        let old = self.ins().load(I64, PLAIN, words, offset);
        let new = match (decl.merge.unwrap_or(Merge::Sum), decl.ty.is_signed()) {
            (Merge::Sum, _) => self.ins().iadd(old, value),
            (Merge::Max, true) => self.ins().smax(old, value),
            (Merge::Max, false) => self.ins().umax(old, value),
            (Merge::Min, true) => self.ins().smin(old, value),
            (Merge::Min, false) => self.ins().umin(old, value),
        };
        // A roll-back has the old value already.
        let journal = if self.analysis.merges.contains(&var) { Journal::No } else { journal };
        self.set_var(var, new, journal, words, Helper::VarMerge)
    }

    /// The byte offset of a MERGE variable, and this worker's part.
    pub(super) fn load_merged(&mut self, var: VarId) -> Result<(i32, clif::Value), Unsupported> {
        let (_, offset) = self.var(var)?;
        let merged = self.segment.merged();
        Ok((offset, self.ins().load(I64, PLAIN, merged, offset)))
    }

    /// Index, merge operation and initial value of a MERGE variable.
    fn merged_args(&mut self, var: VarId) -> Result<[clif::Value; 3], Unsupported> {
        let (decl, _) = self.var(var)?;
        let code = merge_code(decl.merge.unwrap_or(Merge::Sum), decl.ty.is_signed());
        let start = match decl.start {
            Constant::Int(n) => n,
            _ => 0,
        };
        Ok([i64::from(decl.word), code, start].map(|n| self.segment.int(n)))
    }

    /// The hash of a key of bytes in a table.
    fn hash_of_bytes(&mut self, table: clif::Value, (start, len): (clif::Value, clif::Value)) -> clif::Value {
        self.segment.call(Helper::HashOfKey, &[table, start, len])[0]
    }

    /// Emits the lock of the variables, unless the pass already holds it.
    fn lock_vars(&mut self) {
        let Some(held) = self.vars_lock else { return };
        let frame = self.segment.frame;
        let is_held = self.segment.builder.use_var(held);
        let is_free = self.segment.icmp_imm(IntCC::Equal, is_held, 0);
        self.segment.when(is_free, false, |segment| {
            segment.call(Helper::LockVars, &[frame]);
        });
        let yes = self.segment.bool(true);
        self.segment.builder.def_var(held, yes);
    }

    /// Emits the lock of a key's stripe, or of the whole table without a key, unless the pass already holds one.
    fn lock(&mut self, table: TableId, key: Option<Value>) -> Result<(), Unsupported> {
        let Some(lock) = self.locks.iter().copied().find(|lock| lock.table == table) else { return Ok(()) };
        let (held, zero) = (self.segment.builder.use_var(lock.held), self.segment.int(0));
        let (by, pointer) =
            (self.segment.plan.state.tables[usize::from(table.0)].hash_key(), self.table(table));
        let (kind, hash) = match key {
            None => (2, zero),
            Some(key) => {
                let (ty, made) = (self.ty(key), self.made_keys[key.0 as usize].clone());
                // A key in registers needs no bytes; any other key gets its hash from a helper.
                let hash = match (self.get_unread(key)?, made) {
                    (Val::Two(start, len), Some(made)) => {
                        let [other, done] = [(); 2].map(|()| self.segment.builder.create_block());
                        let hash = self.segment.builder.append_block_param(done, I64);
                        let of_made = self.hash_of_made(by, &made);
                        self.ins().brif(made.has_expected_lengths, done, &[of_made.into()], other, []);
                        self.segment.builder.set_cold_block(other);
                        self.segment.builder.switch_to_block(other);
                        let of_bytes = self.hash_of_bytes(pointer, (start, len));
                        self.ins().jump(done, &[of_bytes.into()]);
                        self.segment.builder.switch_to_block(done);
                        hash
                    }
                    (Val::Two(start, len), None) => self.hash_of_bytes(pointer, (start, len)),
                    (key, _) => {
                        let word = self.segment.pack(ty, key);
                        self.hash_word_by(by, word)
                    }
                };
                (1, hash)
            }
        };
        let [free, done] = [(); 2].map(|()| self.segment.builder.create_block());
        self.ins().brif(held, done, [], free, []);
        self.segment.builder.switch_to_block(free);
        match kind {
            2 => self.segment.call(Helper::LockAll, &[pointer]),
            _ => self.segment.call(Helper::Lock, &[pointer, hash]),
        };
        let kind = self.ins().iconst(I8, kind);
        self.segment.builder.def_var(lock.held, kind);
        self.segment.builder.def_var(lock.hash, hash);
        self.ins().jump(done, []);
        self.segment.builder.switch_to_block(done);
        Ok(())
    }

    /// Emits the release of all locks that the handler holds.
    pub(super) fn unlock(&mut self) {
        for LockState { table, held, hash } in self.locks.clone() {
            let (held, hash) = (self.segment.builder.use_var(held), self.segment.builder.use_var(hash));
            let pointer = self.table(table);
            let [some, stripe, all, done] = [(); 4].map(|()| self.segment.builder.create_block());
            self.ins().brif(held, some, [], done, []);
            self.segment.builder.switch_to_block(some);
            let is_all = self.segment.icmp_imm(IntCC::Equal, held, 2);
            self.ins().brif(is_all, all, [], stripe, []);
            self.segment.builder.switch_to_block(stripe);
            self.segment.call(Helper::Unlock, &[pointer, hash]);
            self.ins().jump(done, []);
            self.segment.builder.switch_to_block(all);
            self.segment.call(Helper::UnlockAll, &[pointer]);
            self.ins().jump(done, []);
            self.segment.builder.switch_to_block(done);
        }
        if let Some(held) = self.vars_lock {
            let (frame, held) = (self.segment.frame, self.segment.builder.use_var(held));
            self.segment.when(held, false, |segment| {
                segment.call(Helper::UnlockVars, &[frame]);
            });
        }
    }
}

const _: () = assert!(size_of::<Arc<Table>>() == 8, "a pointer to a table is one word");
