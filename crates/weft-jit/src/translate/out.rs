//! Translates the outputs of the pass: bytes in the scratch, edits and sink rows.

use super::{PLAIN, PartTranslator, Segment, UNALIGNED, Val};
use crate::helpers::{BYTES_BYTES, Cold, Helper, REDIRECTED, sink_cell};
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, StackSlotData, StackSlotKind};
use weft_core::abi::{Cell, Cx, Outcome, ShortName, SinkRow, TupleEdit};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{SinkId, Ty, Value};

/// Up to this many bytes are copied inline. The scratch always has that much room after its last byte.
const COPY_MAX: i64 = 32;
/// The number of bits in the cell mask of a helper.
const CELLS_AT_ONCE: usize = 64;
/// Constants up to this long are stored as numbers.
const LITERAL_MAX: usize = 16;

/// A range of the scratch.
#[derive(Clone, Copy)]
pub(super) struct ScratchRange {
    pub(super) start: clif::Value,
    pub(super) len: clif::Value,
}

impl Segment<'_, '_> {
    /// A word of the outcome's vector at `offset`.
    fn load_vec(&mut self, offset: usize, word: usize) -> clif::Value {
        self.load_out(I64, offset + word)
    }

    /// Emits the store of a vector's length; `offset` locates the vector in the output.
    pub(super) fn store_len(&mut self, offset: usize, len: clif::Value) {
        let out = self.load_cx(I64, offset_of!(Cx<'_>, out));
        let at = (offset + self.plan.vec_words.len) as i32;
        self.builder.ins().store(PLAIN, len, out, at);
    }

    /// The address of the scratch.
    fn scratch(&mut self) -> clif::Value {
        self.load_vec(offset_of!(Outcome, scratch), self.plan.vec_words.start)
    }

    /// Copies runs of bytes into the scratch, one after the other, or nothing if they do not all fit. A constant run
    /// comes with its bytes.
    pub(super) fn keep(&mut self, parts: &[(Val, Option<&[u8]>)]) -> ScratchRange {
        let offset = offset_of!(Outcome, scratch);
        let lens: Vec<clif::Value> = parts.iter().map(|(part, _)| part.two().1).collect();
        let sum = lens.iter().copied().reduce(|sum, len| self.builder.ins().iadd(sum, len));
        let sum = sum.unwrap_or_else(|| self.int(0));
        let len = self.take_scratch(sum);
        let start = self.load_vec(offset, self.plan.vec_words.len);
        let base = self.scratch();
        let mut to = self.builder.ins().iadd(base, start);
        for ((part, literal), part_len) in parts.iter().zip(lens) {
            // If they do not all fit, none is copied.
            let copied = match (self.is_roomy, parts.len()) {
                (true, _) => part_len,
                (false, 1) => len,
                (false, _) => {
                    let zero = self.int(0);
                    self.builder.ins().select(len, part_len, zero)
                }
            };
            self.copy(part.two().0, copied, *literal, to);
            to = self.builder.ins().iadd(to, copied);
        }
        let end = self.builder.ins().iadd(start, len);
        self.store_len(offset, end);
        ScratchRange { start, len }
    }

    /// Emits the bytes of a range of the scratch.
    pub(super) fn kept(&mut self, ScratchRange { start, len }: ScratchRange) -> Val {
        let base = self.scratch();
        Val::Two(self.builder.ins().iadd(base, start), len)
    }

    /// Emits the range of bytes that are in the scratch already.
    fn range_of(&mut self, bytes: Val) -> ScratchRange {
        let (start, len) = bytes.two();
        let base = self.scratch();
        ScratchRange { start: self.builder.ins().isub(start, base), len }
    }

    /// Copies bytes to a place with room for [`COPY_MAX`] more.
    fn copy(&mut self, from: clif::Value, len: clif::Value, literal: Option<&[u8]>, to: clif::Value) {
        if let Some(literal) = literal.filter(|literal| literal.len() <= LITERAL_MAX) {
            for (at, chunk) in literal.chunks(8).enumerate() {
                let word = self.int(super::bytes::little_endian(chunk) as i64);
                self.builder.ins().store(UNALIGNED, word, to, at as i32 * 8);
            }
            return;
        }
        let [short, other, long, done] = [(); 4].map(|()| self.builder.create_block());
        let is_short = self.is_within(from, len, COPY_MAX);
        self.builder.ins().brif(is_short, short, [], other, []);
        self.builder.switch_to_block(short);
        self.copy_short(from, to);
        self.builder.ins().jump(done, []);
        self.builder.switch_to_block(other);
        self.builder.ins().brif(len, long, [], done, []);
        self.builder.set_cold_block(long);
        self.builder.switch_to_block(long);
        self.call_cold(Cold::Copy, &[from, len, to]);
        self.builder.ins().jump(done, []);
        self.builder.switch_to_block(done);
    }

    /// Appends `n` uninitialized items to a vector of the outcome; returns the address of the first.
    fn push(&mut self, offset: usize, item_bytes: usize, n: usize, cold: Cold) -> clif::Value {
        let (first, len) = self.room_for(offset, item_bytes, n, cold);
        let end = self.iadd_imm(len, n as i64);
        self.store_len(offset, end);
        first
    }

    /// Reserves `n` items in a vector of the outcome; returns the address of the first, and the number before it.
    pub(super) fn room_for(
        &mut self,
        offset: usize,
        item_bytes: usize,
        n: usize,
        cold: Cold,
    ) -> (clif::Value, clif::Value) {
        let words = self.plan.vec_words;
        let (len, capacity) = (self.load_vec(offset, words.len), self.load_vec(offset, words.capacity));
        let end = self.iadd_imm(len, n as i64);
        let lacks = self.builder.ins().icmp(IntCC::UnsignedLessThan, capacity, end);
        self.when(lacks, true, |segment| {
            let n = segment.int(n as i64);
            segment.call_cold(cold, &[segment.cx, n]);
        });
        let start = self.load_vec(offset, words.start);
        let behind = self.imul_imm(len, item_bytes as i64);
        (self.builder.ins().iadd(start, behind), len)
    }

    /// Keeps runs of bytes, each for a cell of the row. One helper copies them all: a call is cheaper than compiling so
    /// many copies.
    fn copy_cells_to_scratch(&mut self, runs: &[(usize, Val)], cells: clif::Value) {
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, BYTES_BYTES * runs.len() as u32, 3);
        let slot = self.builder.create_sized_stack_slot(slot);
        for (at, (_, run)) in (0..).step_by(BYTES_BYTES as usize).zip(runs) {
            let (start, len) = run.two();
            self.builder.ins().stack_store(I64, start, slot, at);
            self.builder.ins().stack_store(I64, len, slot, at + 8);
        }
        let which = runs.iter().fold(0u64, |which, (cell, _)| which | 1 << cell);
        let (list, which) = (self.builder.ins().stack_addr(I64, slot, 0), self.int(which as i64));
        self.call(Helper::CopyCells, &[self.frame, list, which, cells]);
    }

    /// Emits a copy of [`COPY_MAX`] bytes.
    fn copy_short(&mut self, from: clif::Value, to: clif::Value) {
        let halves = [0, 16].map(|at| (at, self.builder.ins().load(I8X16, UNALIGNED, from, at)));
        for (at, half) in halves {
            self.builder.ins().store(UNALIGNED, half, to, at);
        }
    }

    /// Emits the stores of a cell's tag and value.
    fn store_cell(&mut self, tag: clif::Value, value: clif::Value, cell: clif::Value, offset: i32) {
        self.builder.ins().store(PLAIN, tag, cell, offset);
        self.builder.ins().store(PLAIN, value, cell, offset + sink_cell::VALUE);
    }

    /// Emits a range of the scratch as a cell's value.
    fn range_word(&mut self, ScratchRange { start, len }: ScratchRange) -> clif::Value {
        let upper = self.ishl_imm(len, 32);
        self.builder.ins().bor(start, upper)
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Redirects the tuple: stores a short constant target as words; a helper handles others.
    pub(super) fn redirect(&mut self, to: Value, line: u32) -> Result<(), Unsupported> {
        let bytes = self.get(to)?;
        let (start, len) = bytes.two();
        let [other, done] = [(); 2].map(|()| self.segment.builder.create_block());
        let (len_of_short, words) = self.short_words(to, bytes, other);
        let out = self.segment.load_cx(I64, offset_of!(Cx<'_>, out));
        let target = offset_of!(Outcome, target);
        let name = [
            (len_of_short, offset_of!(ShortName, len)),
            (words[0], offset_of!(ShortName, words)),
            (words[1], offset_of!(ShortName, words) + 8),
        ];
        for (word, at) in name {
            self.ins().store(PLAIN, word, out, (target + at) as i32);
        }
        let fields = [
            (I8, i64::from(REDIRECTED), offset_of!(Outcome, verdict)),
            (I16, self.element.into(), offset_of!(Outcome, element)),
            (I32, line.into(), offset_of!(Outcome, line)),
        ];
        for (ty, value, at) in fields {
            let value = self.ins().iconst(ty, value);
            self.ins().store(PLAIN, value, out, at as i32);
        }
        self.ins().jump(done, []);

        self.segment.builder.set_cold_block(other);
        self.segment.builder.switch_to_block(other);
        let at = self.segment.int(i64::from(self.element) | i64::from(line) << 32);
        let cx = self.segment.cx;
        self.segment.call(Helper::Redirect, &[cx, at, start, len]);
        self.ins().jump(done, []);
        self.segment.builder.switch_to_block(done);
        Ok(())
    }

    /// Copies a value's bytes into the scratch; bytes that are there already only count as used.
    pub(super) fn copy_to_scratch(&mut self, value: Value, bytes: Val) -> ScratchRange {
        if self.in_scratch[value.0 as usize] {
            let ScratchRange { start, len } = self.segment.range_of(bytes);
            return ScratchRange { start, len: self.segment.take_scratch(len) };
        }
        let literal = self.analysis.literal(value);
        self.segment.keep(&[(bytes, literal)])
    }

    /// Records an edit; returns the kept bytes, if it is of bytes.
    pub(super) fn edit(&mut self, target: u32, value: Option<Value>) -> Result<Option<Val>, Unsupported> {
        let (mut kept, mut tag, mut word) = (None, sink_cell::NULL, self.segment.int(0));
        if let Some(value) = value {
            let (ty, held) = (self.ty(value), self.get(value)?);
            tag = sink_cell::of(ty);
            word = match ty {
                Ty::Bytes => {
                    let range = self.copy_to_scratch(value, held);
                    kept = Some(self.segment.kept(range));
                    self.segment.range_word(range)
                }
                ty => self.segment.pack(ty, held),
            };
        }
        self.segment.save_parsed();
        let edit = self.segment.push(offset_of!(Outcome, edits), size_of::<TupleEdit>(), 1, Cold::MakeEdits);
        let target = self.segment.builder.ins().iconst(I32, i64::from(target));
        self.ins().store(PLAIN, target, edit, offset_of!(TupleEdit, target) as i32);
        let tag = self.segment.int(tag);
        self.segment.store_cell(tag, word, edit, offset_of!(TupleEdit, value) as i32);
        Ok(kept)
    }

    /// Adds a row to a sink: each value, and whether it is NULL instead.
    pub(super) fn emit(
        &mut self,
        sink: SinkId,
        values: &[(Value, Option<Value>)],
    ) -> Result<(), Unsupported> {
        let segment = &mut *self.segment;
        let row = segment.push(offset_of!(Outcome, rows), size_of::<SinkRow>(), 1, Cold::MakeRows);
        let [sink, n] =
            [i64::from(sink.0), values.len() as i64].map(|n| segment.builder.ins().iconst(I16, n));
        segment.builder.ins().store(PLAIN, sink, row, offset_of!(SinkRow, sink) as i32);
        segment.builder.ins().store(PLAIN, n, row, offset_of!(SinkRow, cells) as i32);
        let cells =
            segment.push(offset_of!(Outcome, cells), size_of::<Cell>(), values.len(), Cold::MakeCells);
        let mut runs = Vec::new();
        for (nth, (value, null)) in values.iter().enumerate() {
            let at = (nth * size_of::<Cell>()) as i32;
            let (ty, mut held) = (self.ty(*value), self.get(*value)?);
            let null = null.map(|null| self.get(null)).transpose()?.map(Val::one);
            if let (Some(null), Val::Two(start, len)) = (null, held) {
                let zero = self.segment.int(0);
                held = Val::Two(start, self.ins().select(null, zero, len));
            }
            if ty == Ty::Bytes {
                runs.push((nth, held));
            } else {
                let word = self.segment.pack(ty, held);
                self.ins().store(PLAIN, word, cells, at + sink_cell::VALUE);
            }
            let mut tag = self.segment.int(sink_cell::of(ty));
            if let Some(null) = null {
                let other = self.segment.int(sink_cell::NULL);
                tag = self.ins().select(null, other, tag);
            }
            self.ins().store(PLAIN, tag, cells, at);
        }
        for runs in runs.chunk_by(|(a, _), (b, _)| a / CELLS_AT_ONCE == b / CELLS_AT_ONCE) {
            let first = runs[0].0 / CELLS_AT_ONCE * CELLS_AT_ONCE;
            let cells = self.segment.iadd_imm(cells, (first * size_of::<Cell>()) as i64);
            let runs: Vec<(usize, Val)> = runs.iter().map(|(cell, run)| (cell - first, *run)).collect();
            self.segment.copy_cells_to_scratch(&runs, cells);
        }
        Ok(())
    }
}
