//! Translates operations on the tuple and on the outputs of the pass.

use super::fast_path::ParserPaths;
use super::key::expected_len;
use super::patch::{Patched, Patches};
use super::specialize::{present_at, words};
use super::{PLAIN, PartTranslator, Segment, Translated, UNALIGNED, Val};
use crate::arithmetic::Arithmetic as _;
use crate::frame::{SLICE_LEN, SLICE_START};
use crate::helpers::{Helper, target};
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{F64, I8, I64};
use cranelift_frontend::Variable;
use std::sync::Arc;
use weft_core::abi::{Cx, Outcome, REGION_BODY, REGION_META, Slot};
use weft_core::hash;
use weft_core::inputs::InputSet;
use weft_core::types::Type;
use weft_core::{Interval, Time};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{Endian, InputId, Op, Ty, Value};
use weft_ir::program::{Event, InputLocation, Meta, Part};
use weft_ir::verify::{FrameOffset, Handler};

/// Frame offsets up to this one become immediate operands.
const FRAME_OFFSET_MAX: u64 = 1 << 16;

/// The offset of a region's slice in the pass.
pub(super) const fn region_at(region: usize) -> usize {
    offset_of!(Cx<'_>, regions) + region * size_of::<&[u8]>()
}

/// An input column of the segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Column {
    ty: Ty,
    /// [`input_bytes_max`]
    bytes_max: Option<u32>,
    region: usize,
    /// Reads the column from the frame on each use; the engine sets no slot.
    read_by: Option<Helper>,
    /// The column as the engine set it, where a part of the segment reads it.
    given: Option<Val>,
    /// The current column, if a part of the segment changes it: its value (two words for Bytes), and whether it is not
    /// NULL.
    now: Option<(Variable, Variable, Variable)>,
    /// How it is patched into the frame, if it is.
    pub(super) patched: Option<Patched>,
}

/// The largest length of an input, if its type bounds it. Input bytes are cut to this length, so the scratch bound can
/// rely on it: bytes read as an address are never longer.
pub(super) fn input_bytes_max(ty: Type) -> Option<u32> {
    expected_len(ty).and(ty.bytes_max())
}

/// A column that changes: its value, whether it is not NULL, and whether it is to be patched.
pub(super) type SavedColumn = (Val, clif::Value, Option<clif::Value>);

impl Segment<'_, '_> {
    /// Declares the columns, with variables for those that change.
    pub(super) fn declare_inputs(&mut self, parts: &[Part<'_>]) -> Result<(), Unsupported> {
        self.inputs.clear();
        let chain = self.plan.chain;
        let Some(direction) = Handler::of(self.plan.event).direction(chain) else { return Ok(()) };
        if direction.inputs.len() > weft_core::limits::INPUTS_MAX {
            return Err(Unsupported { reason: "more inputs than a pass has bits for".into(), line: 0 });
        }
        let mut changes = vec![false; direction.inputs.len()];
        for inst in parts.iter().flat_map(|p| &p.function.blocks).flat_map(|b| &b.insts) {
            if let Op::SetInput(input, _) | Op::ClearInput(input) = &inst.op
                && let Some(changes) = changes.get_mut(usize::from(input.0))
            {
                *changes = true;
            }
        }
        let mut reads = changes.clone();
        for inst in parts.iter().flat_map(|p| &p.function.blocks).flat_map(|b| &b.insts) {
            if let Op::Input(input) | Op::Derived(input) = &inst.op
                && let Some(reads) = reads.get_mut(usize::from(input.0))
            {
                *reads = true;
            }
        }
        self.patches = Patches::of(chain, self.plan.event, parts);
        for (at, input) in direction.inputs.iter().enumerate() {
            let mut column = Column {
                ty: Ty::of(input.ty),
                bytes_max: input_bytes_max(input.ty),
                region: input.place.region(),
                read_by: match input.place {
                    InputLocation::Meta(Meta::PacketSize) => Some(Helper::PacketSize),
                    InputLocation::Meta(Meta::Flow) => Some(Helper::FlowOf),
                    InputLocation::Meta(Meta::IsIcmpError) => Some(Helper::IsIcmpError),
                    InputLocation::Meta(Meta::IsIntact) => Some(Helper::IsIntact),
                    InputLocation::Meta(Meta::TunnelDepth) => Some(Helper::TunnelDepth),
                    _ => None,
                },
                given: None,
                now: None,
                patched: None,
            };
            if input.place == InputLocation::Meta(Meta::Port) {
                column.given = Some(self.whole_region(REGION_META));
            } else if reads[at] && column.read_by.is_none() {
                column.given = Some(self.load_input(at, column));
            }
            if let (Some(value), true) = (column.given, changes[at]) {
                let present = self.load_present(at);
                let held = super::clif_types(column.ty);
                let first = self.builder.declare_var(held[0]);
                let second = self.builder.declare_var(I64);
                let is_present = self.builder.declare_var(I8);
                column.now = Some((first, second, is_present));
                self.define(column, value, present);
                let how = self.patches.patch_kind(at);
                column.patched = how.map(|how| Patched { how, due: self.builder.declare_var(I8) });
                let no = self.bool(false);
                self.make_due(column, no);
            }
            self.inputs.push(column);
        }
        Ok(())
    }

    /// Saves the current values of all columns that change.
    pub(super) fn save_inputs(&mut self) -> Vec<Option<SavedColumn>> {
        let columns = self.inputs.clone();
        let held = |column: Column| {
            column.now?;
            let (value, present) = self.current(column);
            Some((value, present, column.patched.map(|patched| self.builder.use_var(patched.due))))
        };
        columns.into_iter().map(held).collect()
    }

    /// Restores the columns that [`Segment::save_inputs`] saved.
    pub(super) fn restore_inputs(&mut self, saved: &[Option<SavedColumn>]) {
        for (at, saved) in saved.iter().enumerate() {
            let &Some((value, present, due)) = saved else { continue };
            self.define(self.inputs[at], value, present);
            if let Some(due) = due {
                self.make_due(self.inputs[at], due);
            }
        }
    }

    /// Sets whether a patched column is to be written to the frame.
    pub(super) fn make_due(&mut self, column: Column, due: clif::Value) {
        if let Some(patched) = column.patched {
            self.builder.def_var(patched.due, due);
        }
    }

    /// Sets the current value and presence of a column; does nothing for a column that cannot change.
    pub(super) fn define(&mut self, column: Column, value: Val, present: clif::Value) {
        let Some((first, second, is_present)) = column.now else { return };
        self.builder.def_var(first, value.one());
        let behind = match value {
            Val::Two(_, behind) => behind,
            Val::One(_) => self.int(0),
        };
        self.builder.def_var(second, behind);
        self.builder.def_var(is_present, present);
    }

    /// The current value and presence of a column that can change.
    pub(super) fn current(&mut self, column: Column) -> (Val, clif::Value) {
        let (first, second, is_present) = column.now.expect("the column can change");
        let one = self.builder.use_var(first);
        let value = match column.ty {
            Ty::Bytes | Ty::Row => Val::Two(one, self.builder.use_var(second)),
            _ => Val::One(one),
        };
        (value, self.builder.use_var(is_present))
    }

    /// The column as the engine set it. This has no effects, so an unused column is not loaded.
    fn load_input(&mut self, at: usize, column: Column) -> Val {
        let a = self.load_slot(at, offset_of!(Slot, a));
        let value = match column.ty {
            Ty::Bytes => {
                if self.assumptions.is_whole(at)
                    && let Some(len) = self.whole_len(at)
                {
                    return Val::Two(self.inside(column.region, a, len).0, len);
                }
                let b = self.load_slot(at, offset_of!(Slot, b));
                let (start, len) = self.in_region(column.region, a, b).two();
                let cut = |max: u32| {
                    let max = self.int(max.into());
                    self.builder.ins().umin(len, max)
                };
                Val::Two(start, column.bytes_max.map_or(len, cut))
            }
            ty => self.unpack(ty, a),
        };
        if self.is_known_present(at) {
            return value;
        }
        let present = self.load_present_bit(at);
        match value {
            Val::Two(start, len) => {
                let zero = self.int(0);
                Val::Two(start, self.builder.ins().select(present, len, zero))
            }
            value => {
                let zero = self.zero(column.ty);
                self.select(present, value, zero)
            }
        }
    }

    /// Emits the address and length of a region.
    fn whole_region(&mut self, region: usize) -> Val {
        let base = region_at(region);
        Val::Two(self.load_cx(I64, base + SLICE_START), self.load_cx(I64, base + SLICE_LEN))
    }

    /// The bytes of a slot. A slot outside its region is empty: code never reads beyond the region.
    pub(super) fn in_region(&mut self, region: usize, offset: clif::Value, len: clif::Value) -> Val {
        let (start, is_inside) = self.inside(region, offset, len);
        let zero = self.int(0);
        Val::Two(start, self.builder.ins().select(is_inside, len, zero))
    }

    /// Emits the address of `len` bytes at `offset` in a region, and a flag: they lie inside it.
    pub(super) fn inside(
        &mut self,
        region: usize,
        offset: clif::Value,
        len: clif::Value,
    ) -> (clif::Value, clif::Value) {
        let base = region_at(region);
        let start = self.load_cx(I64, base + SLICE_START);
        if region == REGION_BODY && self.parsed_frame.surely_holds((offset, len), &self.builder.func.dfg) {
            let yes = self.bool(true);
            return (self.builder.ins().iadd(start, offset), yes);
        }
        let region_len = self.load_cx(I64, base + SLICE_LEN);
        let ins = &mut self.builder;
        let room = ins.ins().isub(region_len, offset);
        let starts_inside = ins.ins().icmp(IntCC::UnsignedLessThanOrEqual, offset, region_len);
        let ends_inside = ins.ins().icmp(IntCC::UnsignedLessThanOrEqual, len, room);
        let inside = ins.ins().band(starts_inside, ends_inside);
        (ins.ins().iadd(start, offset), inside)
    }

    /// Emits a helper call that reads the frame as it arrived.
    fn read_of_frame(&mut self, helper: Helper) -> Val {
        let (start, len) = (self.frame_start(), self.frame_len());
        let frames = self.plan.chain.frames.as_ref();
        if !matches!(helper, Helper::IsIcmpError | Helper::IsIntact | Helper::TunnelDepth) {
            return self.call_on_frame(helper, (start, len), frames.is_some_and(|frames| frames.is_ip));
        }
        let formats = frames.and_then(|frames| frames.formats.clone()).unwrap_or_default();
        let address = Arc::as_ptr(&formats).expose_provenance() as u64;
        self.constants.formats = Some(formats);
        let (formats, offload) = (self.address(address), self.offload());
        self.call_one(helper, &[start, len, formats, offload])
    }

    /// The address of the frame's offloads.
    fn offload(&mut self) -> clif::Value {
        self.iadd_imm(self.cx, offset_of!(Cx<'_>, offload) as i64)
    }

    /// The result of a helper that reads a frame, or a packet, of this address and length.
    pub(super) fn call_on_frame(
        &mut self,
        helper: Helper,
        (start, len): (clif::Value, clif::Value),
        is_ip: bool,
    ) -> Val {
        let is_ip = self.bool(is_ip);
        let offload = self.offload();
        self.call_one(helper, &[start, len, is_ip, offload])
    }

    pub(super) fn frame_start(&mut self) -> clif::Value {
        self.load_cx(I64, region_at(REGION_BODY) + SLICE_START)
    }

    pub(super) fn frame_len(&mut self) -> clif::Value {
        self.load_cx(I64, region_at(REGION_BODY) + SLICE_LEN)
    }

    /// The address of a number of the frame; of zeros if it does not lie in the frame, which saves a branch.
    fn in_frame_or_zeros(&mut self, at: clif::Value, bytes: u8) -> clif::Value {
        let len = self.int(i64::from(bytes));
        let (start, is_inside) = self.inside(REGION_BODY, at, len);
        let (zeros, _) = self.constant(&[0; 8]).two();
        self.builder.ins().select(is_inside, start, zeros)
    }

    /// Emits the load of a number of 1 to 8 bytes.
    fn frame_number(&mut self, from: clif::Value, offset: i32, (bytes, endian): (u8, Endian)) -> clif::Value {
        let (mut number, mut read) = (None, 0);
        while read < bytes {
            let step = [8, 4, 2, 1].into_iter().find(|step| *step <= bytes - read).unwrap_or(1);
            let part = self.load_number(from, offset + i32::from(read), step, endian);
            number = Some(match (number, endian) {
                (None, _) => part,
                (Some(before), Endian::Big) => {
                    let before = self.ishl_imm(before, 8 * i64::from(step));
                    self.builder.ins().bor(before, part)
                }
                (Some(before), Endian::Little) => {
                    let part = self.ishl_imm(part, 8 * i64::from(read));
                    self.builder.ins().bor(before, part)
                }
            });
            read += step;
        }
        number.unwrap_or(from)
    }

    /// Emits the load of a number of 1, 2, 4 or 8 bytes.
    pub(super) fn load_number(
        &mut self,
        from: clif::Value,
        offset: i32,
        bytes: u8,
        endian: Endian,
    ) -> clif::Value {
        let ty = clif::Type::int(8 * u16::from(bytes)).unwrap_or(I64);
        // A frame does not change while it is parsed, so its loads are read-only; other code may write to it.
        let flags = match self.plan.event {
            // A prefetcher does not write to it either, and loads that it does not need can be removed.
            _ if self.parser_paths.as_ref().is_some_and(ParserPaths::is_prefetch) => {
                UNALIGNED.with_readonly().with_can_move()
            }
            Event::Parse => UNALIGNED.with_readonly(),
            _ => UNALIGNED,
        };
        let loaded = self.builder.ins().load(ty, flags, from, offset);
        let loaded = match endian {
            Endian::Big if bytes > 1 => self.builder.ins().bswap(loaded),
            _ => loaded,
        };
        if ty == I64 { loaded } else { self.builder.ins().uextend(I64, loaded) }
    }

    /// Sets the slot of an input; the end of the block marks it present ([`Segment::make_present`]).
    fn give(&mut self, at: usize, a: clif::Value, b: Option<clif::Value>) {
        let slots = self.load_cx(I64, offset_of!(Cx<'_>, given) + SLICE_START);
        let offset = (at * size_of::<Slot>()) as i32;
        self.builder.ins().store(PLAIN, a, slots, offset + offset_of!(Slot, a) as i32);
        if let Some(b) = b {
            self.builder.ins().store(PLAIN, b, slots, offset + offset_of!(Slot, b) as i32);
        }
    }

    /// Emits code that marks these inputs as present.
    pub(super) fn make_present(&mut self, given: InputSet) {
        for (nth, bits) in words(given) {
            let at = present_at(nth) as i32;
            let before = self.builder.ins().load(I64, PLAIN, self.cx, at);
            let after = self.with_imm(before, bits as i64, |ins, before, bits| ins.bor(before, bits));
            self.builder.ins().store(PLAIN, after, self.cx, at);
        }
    }

    /// Emits the load of the time of the pass.
    pub(super) fn load_now(&mut self) -> clif::Value {
        self.load_cx(I64, offset_of!(Cx<'_>, now) + offset_of!(Time, 0))
    }

    fn is_known_present(&self, at: usize) -> bool {
        self.assumptions.is_present(at) || self.parsed_frame.is_present(at)
    }

    /// Emits a flag: the input is present.
    pub(super) fn load_present(&mut self, at: usize) -> clif::Value {
        if self.is_known_present(at) {
            return self.bool(true);
        }
        let bit = self.load_present_bit(at);
        self.icmp_imm(IntCC::NotEqual, bit, 0)
    }

    /// Emits a word that is not 0 if the input is present.
    fn load_present_bit(&mut self, at: usize) -> clif::Value {
        let word = self.load_present_word(at / 64);
        self.band_imm(word, 1 << (at % 64))
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits the read of a number of the frame, with a bounds check unless it certainly lies there.
    pub(super) fn frame_get(
        &mut self,
        at: Value,
        number: (u8, Endian),
        result: Option<Value>,
    ) -> Result<Val, Unsupported> {
        let known = result.and_then(|result| self.analysis.inside.get(&result).copied());
        let (from, offset) = match known {
            Some(FrameOffset { base, offset }) if offset < FRAME_OFFSET_MAX => {
                let start = self.segment.frame_start();
                let from = match base.map(|base| self.get(base)).transpose()? {
                    Some(base) => self.segment.builder.ins().iadd(start, base.one()),
                    None => start,
                };
                (from, offset as i32)
            }
            _ => {
                let at = self.get(at)?.one();
                (self.segment.in_frame_or_zeros(at, number.0), 0)
            }
        };
        Ok(Val::One(self.segment.frame_number(from, offset, number)))
    }

    /// Translates operations on the tuple and on the outputs of the pass.
    pub(super) fn tuple(&mut self, op: &Op) -> Result<Translated, Unsupported> {
        let frame = self.segment.frame;
        match op {
            Op::Input(input) => {
                let (at, column) = self.column(*input)?;
                return Ok(Translated::Value(match (column.now, column.read_by) {
                    (Some(_), _) => self.segment.current(column).0,
                    (None, Some(helper)) => self.segment.read_of_frame(helper),
                    (None, None) => column.given.unwrap_or_else(|| self.segment.load_input(at, column)),
                }));
            }
            Op::Derived(input) => {
                let (at, column) = self.column(*input)?;
                let arrived = column.given.unwrap_or_else(|| self.segment.load_input(at, column));
                let is_bytes = self.segment.int(i64::from(column.ty == Ty::Bytes));
                return Ok(Translated::Value(match arrived {
                    Val::Two(start, len) => {
                        self.segment.call_two(Helper::Derived, &[frame, start, len, is_bytes])
                    }
                    Val::One(size) => {
                        let (size, _) =
                            self.segment.call_two(Helper::Derived, &[frame, size, size, is_bytes]).two();
                        Val::One(size)
                    }
                }));
            }
            Op::InputPresent(input) => {
                let (at, column) = self.column(*input)?;
                return Ok(Translated::Value(Val::One(match column.now {
                    Some(_) => self.segment.current(column).1,
                    None => self.segment.load_present(at),
                })));
            }
            Op::SetInput(input, value) => {
                let (at, column) = self.column(*input)?;
                match column.patched.filter(|_| !self.sets_by_edits) {
                    Some(patched) => self.set_patched(at, column, patched.how, *value)?,
                    None => {
                        self.set_edited(at, column, *value)?;
                        let no = self.segment.bool(false);
                        self.segment.make_due(column, no);
                    }
                }
            }
            Op::ClearInput(input) => {
                let (at, column) = self.column(*input)?;
                self.edit(target::input(at as u16), None)?;
                let (value, no) = (self.segment.zero(column.ty), self.segment.bool(false));
                self.segment.define(column, value, no);
            }
            Op::SetAnswer(name, value) => {
                self.edit(target::answer(name.0), Some(*value))?;
            }
            Op::SetReply(name, value) => {
                self.edit(target::reply(name.0), Some(*value))?;
            }
            Op::ChangeHeaders(id, parts) => self.reshape(*id, parts)?,
            Op::FrameLen => return Ok(Translated::Value(Val::One(self.segment.frame_len()))),
            Op::FrameSum(at, len) => {
                let (at, len) = (self.get(*at)?.one(), self.get(*len)?.one());
                let (start, len) = self.segment.in_region(REGION_BODY, at, len).two();
                return Ok(Translated::Value(self.segment.call_one(Helper::FrameSum, &[start, len])));
            }
            // The fast path passes it on in registers.
            Op::Give(..) if self.segment.parser_paths.is_some() => {}
            Op::Give(input, a, b) => {
                let a = self.get(*a)?.one();
                let b = b.map(|b| self.get(b)).transpose()?.map(Val::one);
                self.segment.give(usize::from(input.0), a, b);
            }
            Op::Egress => {
                let cx = self.segment.cx;
                return Ok(Translated::Value(self.segment.call_two(Helper::Egress, &[cx])));
            }
            Op::Now => {
                return Ok(Translated::Value(Val::One(self.segment.load_now())));
            }
            Op::Rand(site) => return Ok(Translated::Value(self.rand(*site))),
            Op::Emit(sink, values) => self.emit(*sink, values)?,
            Op::Delay(nanos) => {
                let nanos = self.get(*nanos)?.one();
                self.delay(nanos);
            }
            Op::Mark(what, value) => {
                let value = self.get(*value)?.one();
                let what = self.segment.int(*what as i64);
                self.segment.call(Helper::Mark, &[self.segment.cx, what, value]);
            }
            Op::Mirror(to) => {
                self.segment.save_parsed();
                let (start, len) = self.get(*to)?.two();
                self.segment.call(Helper::Mirror, &[frame, start, len]);
            }
            Op::RollBack => self.roll_back(),
            _ => return Ok(Translated::Not),
        }
        Ok(Translated::Effect)
    }

    /// Adds to the delay, which is never negative and saturates.
    fn delay(&mut self, nanos: clif::Value) {
        let offset = offset_of!(Outcome, delay) + offset_of!(Interval, 0);
        let before = self.segment.load_out(I64, offset);
        let (zero, most) = (self.segment.int(0), self.segment.int(i64::MAX));
        let nanos = self.ins().smax(nanos, zero);
        let sum = self.ins().iadd(before, nanos);
        let sum = self.ins().umin(sum, most);
        let out = self.segment.load_cx(I64, offset_of!(Cx<'_>, out));
        self.ins().store(PLAIN, sum, out, offset as i32);
    }

    /// Sets a column, and records it as an edit.
    pub(super) fn set_edited(&mut self, at: usize, column: Column, value: Value) -> Result<(), Unsupported> {
        let kept = self.edit(target::input(at as u16), Some(value))?;
        // Bytes that did not fit in the scratch are empty in the column, too.
        let value = kept.map_or_else(|| self.get(value), Ok)?;
        let yes = self.segment.bool(true);
        self.segment.define(column, value, yes);
        Ok(())
    }

    /// The index and column of an input; an error if the chain has no such input.
    fn column(&self, input: InputId) -> Result<(usize, Column), Unsupported> {
        let at = usize::from(input.0);
        let column = self.segment.inputs.get(at).copied();
        let missing = || Unsupported { reason: format!("the chain has no input {at}"), line: 0 };
        Ok((at, column.ok_or_else(missing)?))
    }

    /// Emits a random float, as [`hash::draw`] and [`hash::unit_float`] compute it.
    fn rand(&mut self, site: u64) -> Val {
        let base = self.segment.load_cx(I64, offset_of!(Cx<'_>, rand));
        let site = self.segment.int(site as i64);
        let mixed = self.segment.builder.ins().bxor(base, site);
        let hashed = self.hash_word(mixed);
        let bits = self.hash_mix(hashed, site);
        let ins = &mut self.segment.builder;
        // 53 bits are never negative, and a signed conversion is one instruction.
        let top = ins.ins().ushr_imm_u(bits, 11);
        let float = ins.ins().fcvt_from_sint(F64, top);
        let unit = ins.ins().f64const(hash::unit_float(1 << 11));
        Val::One(ins.ins().fmul(float, unit))
    }
}
