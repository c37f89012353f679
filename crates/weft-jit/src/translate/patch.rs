//! Decides which changed fields are patched directly into their frame, and emits the patches.
//!
//! An edit names an input, and its executor looks up the input's place and the checksums that cover it. For numbers of
//! whole bytes and for MAC addresses, both are known at compile time. The code keeps the new values to the end of the
//! pass. When nothing reads the frame any more, it writes them and updates their checksums (RFC 1624). On paths where
//! the structure of a frame changes, or a copy is made, the order of changes matters, so these use edits.

use super::state::RowCell;
use super::tuple::Column;
use super::{FIXED, PartTranslator, Segment, UNALIGNED, Val};
use crate::frame::checksum;
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, StackSlotData, StackSlotKind};
use cranelift_frontend::Variable;
use weft_core::abi::{Cx, REGION_BODY, Slot};
use weft_core::frame::Offload;
use weft_core::inputs::InputSet;
use weft_core::types::Type;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{Block, BlockId, Endian, Function, InputId, Op, Terminator, Ty, Value};
use weft_ir::program::{ChainProgram, Event, FieldLayout, FieldWrite, Frames, Input, Part, Sum};

/// Bytes of a MAC address.
const MAC_BYTES: i64 = 6;

/// A column that is patched into its frame.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patched {
    pub(super) how: PatchKind,
    /// Whether it has been set.
    pub(super) due: Variable,
}

/// What is written into the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PatchKind {
    /// A number of 1, 2, 4 or 8 bytes.
    Number(u8, Endian),
    Mac,
}

/// How each assignment of a segment reaches the frame.
#[derive(Clone, Debug, Default)]
pub(super) struct Patches {
    /// For each input, how it is patched, if it is.
    how: Vec<Option<PatchKind>>,
    /// By part and block: assignments there are edits, for every input.
    edits: Vec<Vec<bool>>,
}

impl Patches {
    /// Decides which inputs of a request are patched in the frame; none for other events.
    pub(super) fn of(chain: &ChainProgram, event: Event, parts: &[Part<'_>]) -> Self {
        let Some(frames) = chain.frames.as_ref().filter(|_| event == Event::Request) else {
            return Self::default();
        };
        let paths: Vec<HandlerPaths> =
            parts.iter().map(|part| HandlerPaths::of(chain, part.function)).collect();
        let edits = edits(&paths);
        let uses = InputUses::of(parts, &paths, &edits);
        let sums = frames.field_writes.iter().flatten().flat_map(|store| &store.sums);
        // A checksum that the program sets itself needs an edit, which tells it from computed ones.
        let edited = uses.cleared | uses.mixed | sums.map(|sum| sum.input).collect();
        let how = |(at, input): (usize, &Input)| {
            let store = frames.field_writes.get(at)?.as_ref()?;
            // A MAC address that was read is a view of the frame, so each assignment needs a buffer of its own.
            let is_fit = (uses.patched & !edited).contains(at)
                && !(input.ty == Type::Mac && uses.set_in_scans.contains(at));
            let follows = |sum: &Sum| {
                let is_set = (uses.set | uses.cleared).contains(sum.input);
                !sum.pseudo && sum.covers.is_empty() && !is_set
            };
            patch_kind(input, store).filter(|_| is_fit && store.sums.iter().all(follows))
        };
        Self { how: chain.request.inputs.iter().enumerate().map(how).collect(), edits }
    }

    pub(super) fn is_none(&self) -> bool {
        self.how.iter().all(Option::is_none)
    }

    pub(super) fn patch_kind(&self, input: usize) -> Option<PatchKind> {
        self.how.get(input).copied().flatten()
    }

    /// Whether a part changes its inputs by edits in this block, and not by patches.
    pub(super) fn is_edit(&self, part: usize, block: BlockId) -> bool {
        self.edits.get(part).and_then(|blocks| blocks.get(block.0 as usize)).copied().unwrap_or(true)
    }
}

/// What a segment does to its inputs.
#[derive(Default)]
struct InputUses {
    set: InputSet,
    cleared: InputSet,
    /// Set in a handler with scans, so perhaps by a statement that runs several times in a pass.
    set_in_scans: InputSet,
    /// Set where it may be patched.
    patched: InputSet,
    /// Set by an edit, after which the pass may patch it: the edit would run last.
    mixed: InputSet,
}

impl InputUses {
    /// Finds the inputs that the parts patch in the frame, and those that they also set by edits.
    fn of(parts: &[Part<'_>], paths: &[HandlerPaths], edits: &[Vec<bool>]) -> Self {
        let (mut uses, none) = (Self::default(), InputSet::EMPTY);
        // The inputs that later parts set where they may be patched.
        let mut later = InputSet::EMPTY;
        for ((part, paths), edits) in parts.iter().zip(paths).zip(edits).rev() {
            let blocks = &part.function.blocks;
            let has_scans = blocks.iter().any(|block| block.scan_rows_max.is_some());
            let sets: Vec<InputSet> = blocks.iter().map(set_in).collect();
            let patched: Vec<InputSet> =
                sets.iter().zip(edits).map(|(set, edit)| if *edit { none } else { *set }).collect();
            for (at, set) in sets.iter().enumerate().filter(|(at, set)| edits[*at] && !set.is_empty()) {
                let reached = patched.iter().zip(paths.from(at)).filter(|(_, is_reached)| *is_reached);
                let behind = reached.fold(none, |all, (set, _)| all | *set);
                uses.mixed |= *set & (behind | if paths.goes_on[at] { later } else { none });
            }
            let (set, patched) = (union(&sets), union(&patched));
            uses.set |= set;
            uses.set_in_scans |= if has_scans { set } else { none };
            uses.patched |= patched;
            uses.cleared |= union(&blocks.iter().map(cleared_in).collect::<Vec<_>>());
            later |= patched;
        }
        uses
    }
}

fn union(inputs: &[InputSet]) -> InputSet {
    inputs.iter().fold(InputSet::EMPTY, |all, of| all | *of)
}

/// The inputs that a block sets.
fn set_in(block: &Block) -> InputSet {
    inputs_in(block, |op| if let Op::SetInput(input, _) = op { Some(*input) } else { None })
}

/// The inputs that a block makes NULL.
fn cleared_in(block: &Block) -> InputSet {
    inputs_in(block, |op| if let Op::ClearInput(input) = op { Some(*input) } else { None })
}

fn inputs_in(block: &Block, of: impl Fn(&Op) -> Option<InputId>) -> InputSet {
    block.insts.iter().filter_map(|inst| of(&inst.op)).collect()
}

/// How a changed input is written into the frame; None if it cannot be patched.
fn patch_kind(input: &Input, store: &FieldWrite) -> Option<PatchKind> {
    match store.at {
        FieldLayout::Bits { bytes, shift: 0, bits, endian }
            if bits == 8 * bytes && Ty::of(input.ty) == Ty::Int =>
        {
            let has_room = [1, 2, 4, 8].contains(&bytes);
            (has_room && (endian == Endian::Big || store.sums.is_empty()))
                .then_some(PatchKind::Number(bytes, endian))
        }
        FieldLayout::Bytes if input.ty == Type::Mac && store.sums.is_empty() => Some(PatchKind::Mac),
        _ => None,
    }
}

/// Whether a block changes the structure of a frame, or copies it. FRAGMENT does not count: it runs after all other
/// changes.
fn is_structural(chain: &ChainProgram, block: &Block) -> bool {
    block.insts.iter().any(|inst| match &inst.op {
        Op::ChangeHeaders(id, _) => !chain.is_fragment(id.0),
        Op::Mirror(_) => true,
        _ => false,
    })
}

/// The paths of a pass through a handler, by block.
struct HandlerPaths {
    /// The jumps, from one block to another.
    jumps: Vec<(usize, usize)>,
    /// The block changes the structure of the frame, or copies it.
    changes: Vec<bool>,
    /// The block is on a path with such a block.
    meets: Vec<bool>,
    /// A pass through the block may continue in the next part with its effects.
    goes_on: Vec<bool>,
}

impl HandlerPaths {
    /// Finds the blocks of a handler that change the structure of the frame, and those on a path with such a block.
    fn of(chain: &ChainProgram, function: &Function) -> Self {
        let blocks = &function.blocks;
        let jumps: Vec<(usize, usize)> = (0..)
            .zip(blocks)
            .flat_map(|(from, block)| {
                block.end.jumps().into_iter().map(move |jump| (from, jump.block.0 as usize))
            })
            .collect();
        let back: Vec<(usize, usize)> = jumps.iter().map(|&(from, to)| (to, from)).collect();
        let changes: Vec<bool> = blocks.iter().map(|block| is_structural(chain, block)).collect();
        let (behind, before) = (spread(changes.clone(), &jumps), spread(changes.clone(), &back));
        let meets = behind.iter().zip(before).map(|(behind, before)| *behind || before).collect();
        let leaves = |block: &Block| {
            use Terminator as T;
            matches!(block.end, T::Forward | T::Skip | T::Steer { .. } | T::Redirect { .. })
        };
        let goes_on = spread(blocks.iter().map(leaves).collect(), &back);
        Self { jumps, changes, meets, goes_on }
    }

    /// Finds the blocks that a pass may reach after this one.
    fn from(&self, block: usize) -> Vec<bool> {
        let mut reached = vec![false; self.changes.len()];
        self.jumps.iter().filter(|(from, _)| *from == block).for_each(|(_, to)| reached[*to] = true);
        spread(reached, &self.jumps)
    }
}

/// Propagates a property of blocks to all blocks that are reachable from them.
fn spread(mut holds: Vec<bool>, paths: &[(usize, usize)]) -> Vec<bool> {
    let mut is_new = true;
    while is_new {
        is_new = false;
        for &(from, to) in paths {
            is_new |= holds[from] && !holds[to];
            holds[to] |= holds[from];
        }
    }
    holds
}

/// By part and block, where assignments must be edits: on paths on which the structure of the frame changes, or a copy
/// is made.
fn edits(paths: &[HandlerPaths]) -> Vec<Vec<bool>> {
    let goes_on = |part: &HandlerPaths| {
        part.changes.iter().zip(&part.goes_on).any(|(changes, goes_on)| *changes && *goes_on)
    };
    let changes = |part: &HandlerPaths| part.changes.contains(&true);
    let of_part = |(at, part): (usize, &HandlerPaths)| {
        let others = paths[..at].iter().any(goes_on) || paths[at + 1..].iter().any(changes);
        part.meets.iter().map(|meets| others || *meets).collect()
    };
    paths.iter().enumerate().map(of_part).collect()
}

/// The change of a checksum's words, as a sum that is not folded yet.
struct SumChange {
    sum: Sum,
    by: clif::Value,
    /// Largest number of words that changed.
    words: u32,
}

impl Segment<'_, '_> {
    /// At the end of a pass that goes on: writes all assigned fields and their checksums.
    pub(super) fn patch_frame(&mut self) {
        let chain = self.plan.chain;
        let Some(frames) = &chain.frames else { return };
        let columns: Vec<(usize, Column)> = self.inputs.iter().copied().enumerate().collect();
        let mut changes: Vec<SumChange> = Vec::new();
        for (at, column) in columns {
            if let Some(patched) = column.patched {
                self.patch_column(frames, (at, column), patched, &mut changes);
            }
        }
        while let Some(mut change) = changes.pop() {
            let input = change.sum.input;
            for other in changes.extract_if(.., |other| other.sum.input == input) {
                change.by = self.builder.ins().iadd(change.by, other.by);
                change.words += other.words;
            }
            self.patch_sum(change);
        }
    }

    /// Writes a column that was set and that the frame has; returns the changes of checksums.
    fn patch_column(
        &mut self,
        frames: &Frames,
        (at, column): (usize, Column),
        Patched { how, due }: Patched,
        changes: &mut Vec<SumChange>,
    ) {
        let sums = frames.field_writes[at].as_ref().map_or(&[][..], |store| &store.sums);
        let (bytes, place) = match how {
            PatchKind::Number(bytes, _) => (i64::from(bytes), self.load_slot(at, offset_of!(Slot, b))),
            PatchKind::Mac => (MAC_BYTES, self.load_slot(at, offset_of!(Slot, a))),
        };
        let done = self.builder.create_block();
        let no_change = self.int(0);
        let none = vec![no_change.into(); sums.len()];
        let due = self.builder.use_var(due);
        self.go_on_if(due, done, &none);
        let wanted = self.int(bytes);
        let (from, is_inside) = self.inside(REGION_BODY, place, wanted);
        if !self.assumptions.is_whole(at) {
            let present = self.load_present(at);
            let is_there = self.both(present, is_inside);
            self.go_on_if(is_there, done, &none);
        }
        let value = self.current(column).0.one();
        let mut by = Vec::new();
        for sum in sums {
            let words = self.change(from, bytes as u8, value);
            let sum_at = self.load_slot(usize::from(sum.input), offset_of!(Slot, b));
            // RFC 1071 section 2(B): if the changed words and the sum are an odd number of bytes apart, its bytes swap.
            let apart = self.builder.ins().bxor(place, sum_at);
            let apart = self.band_imm(apart, 1);
            let bits = self.ishl_imm(apart, 3);
            by.push(self.builder.ins().ishl(words, bits).into());
        }
        match how {
            PatchKind::Number(bytes, endian) => self.store_number(value, (from, 0), bytes, endian),
            // It is in eight bytes of its own: see `set_patched`.
            PatchKind::Mac => {
                for (ty, at) in [(I32, 0), (I16, 4)] {
                    let part = self.builder.ins().load(ty, UNALIGNED, value, at);
                    self.builder.ins().store(UNALIGNED, part, from, at);
                }
            }
        }
        self.builder.ins().jump(done, &by);
        for sum in sums {
            let by = self.builder.append_block_param(done, I64);
            changes.push(SumChange { sum: *sum, by, words: (bytes as u32).div_ceil(2) });
        }
        self.builder.switch_to_block(done);
    }

    /// Emits the sum of the new words of a number and of the complement of the old ones.
    fn change(&mut self, from: clif::Value, bytes: u8, new: clif::Value) -> clif::Value {
        let old = self.load_number(from, 0, bytes, Endian::Big);
        // A byte is the upper half of a word.
        let pad = if bytes == 1 { 8 } else { 0 };
        let (old, new) = (self.ishl_imm(old, pad), self.ishl_imm(new, pad));
        let old = self.builder.ins().bnot(old);
        let word = |segment: &mut Self, number, nth: i64| {
            let low = segment.ushr_imm(number, 16 * nth);
            segment.band_imm(low, 0xffff)
        };
        let mut sum = self.int(0);
        for nth in 0..i64::from(bytes.div_ceil(2)) {
            let (old, new) = (word(self, old, nth), word(self, new, nth));
            let both = self.builder.ins().iadd(old, new);
            sum = self.builder.ins().iadd(sum, both);
        }
        sum
    }

    /// Updates a checksum, unless nothing changes, the frame has none, or a device has yet to compute it.
    fn patch_sum(&mut self, SumChange { sum, by, words }: SumChange) {
        let at = usize::from(sum.input);
        let place = self.load_slot(at, offset_of!(Slot, b));
        let wanted = self.int(2);
        let (from, is_inside) = self.inside(REGION_BODY, place, wanted);
        let done = self.builder.create_block();
        let changes = self.icmp_imm(IntCC::NotEqual, by, 0);
        self.go_on_if(changes, done, &[]);
        let present = self.load_present(at);
        let is_there = self.both(present, is_inside);
        self.go_on_if(is_there, done, &[]);
        self.check_checksum_complete(place, done);
        let old = self.load_number(from, 0, 2, Endian::Big);
        let ones = self.int(0xffff);
        let before = self.builder.ins().bxor(old, ones);
        let mut total = self.builder.ins().iadd(before, by);
        // Less than 2^25 was added for each word. A sum below 2^32 has 16 bits after two folds; three are enough for
        // any pass.
        for _ in 0..if words < 64 { 2 } else { 3 } {
            let (low, high) = (self.band_imm(total, 0xffff), self.ushr_imm(total, 16));
            total = self.builder.ins().iadd(low, high);
        }
        let mut new = self.builder.ins().bxor(total, ones);
        if sum.zero_is_none {
            // RFC 768: a sum of zero is sent as all ones; zero means no checksum.
            new = self.builder.ins().select(new, new, ones);
            new = self.builder.ins().select(old, new, old);
        }
        self.store_number(new, (from, 0), 2, Endian::Big);
        self.builder.ins().jump(done, []);
        self.builder.switch_to_block(done);
    }

    /// Continues, or jumps to `other` if a device has yet to complete the checksum at this place.
    fn check_checksum_complete(&mut self, place: clif::Value, other: clif::Block) {
        let which = self.load_offload(0);
        let [partial, complete] = [(); 2].map(|()| self.builder.create_block());
        let is_partial = self.icmp_imm(IntCC::Equal, which, checksum::PARTIAL);
        self.builder.ins().brif(is_partial, partial, [], complete, []);
        self.builder.set_cold_block(partial);
        self.builder.switch_to_block(partial);
        let [start, offset] = [checksum::START, checksum::OFFSET].map(|word| self.load_offload(word));
        let partial_at = self.builder.ins().iadd(start, offset);
        let is_other = self.builder.ins().icmp(IntCC::NotEqual, place, partial_at);
        self.builder.ins().brif(is_other, complete, [], other, []);
        self.builder.switch_to_block(complete);
    }

    /// Emits the load of a word of the frame's checksum offload.
    fn load_offload(&mut self, word: usize) -> clif::Value {
        let at = offset_of!(Cx<'_>, offload) + offset_of!(Offload, checksum) + word;
        self.builder.ins().uload16(I64, FIXED, self.cx, at as i32)
    }

    /// Writes a number of 1, 2, 4 or 8 bytes.
    pub(super) fn store_number(
        &mut self,
        number: clif::Value,
        (to, offset): (clif::Value, i32),
        bytes: u8,
        endian: Endian,
    ) {
        let ty = clif::Type::int(8 * u16::from(bytes)).unwrap_or(I64);
        let number = if ty == I64 { number } else { self.builder.ins().ireduce(ty, number) };
        let number = match endian {
            Endian::Big if bytes > 1 => self.builder.ins().bswap(number),
            _ => number,
        };
        self.builder.ins().store(UNALIGNED, number, to, offset);
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Sets a patched column. A value that is no MAC address, or has no room for one, becomes an edit.
    pub(super) fn set_patched(
        &mut self,
        at: usize,
        column: Column,
        how: PatchKind,
        value: Value,
    ) -> Result<(), Unsupported> {
        let (held, yes) = (self.get(value)?, self.segment.bool(true));
        if how != PatchKind::Mac {
            self.segment.define(column, held, yes);
            self.segment.make_due(column, yes);
            return Ok(());
        }
        let (start, len) = held.two();
        let [other, done] = [(); 2].map(|()| self.segment.builder.create_block());
        let is_mac = match self.cells_in_rows[value.0 as usize] {
            Some(RowCell { bytes_max: 6, len }) => {
                self.segment.icmp_imm(IntCC::UnsignedGreaterThanOrEqual, len, MAC_BYTES)
            }
            _ => self.segment.icmp_imm(IntCC::Equal, len, MAC_BYTES),
        };
        self.segment.go_on_if(is_mac, other, &[]);
        if !self.segment.assumptions.is_whole(at) {
            let room = self.segment.load_slot(at, offset_of!(Slot, b));
            let has_room = self.segment.icmp_imm(IntCC::Equal, room, MAC_BYTES);
            self.segment.go_on_if(has_room, other, &[]);
        }
        if !self.segment.is_roomy {
            // It uses as much scratch as an edit would.
            let bytes = self.segment.int(MAC_BYTES);
            let taken = self.segment.take_scratch(bytes);
            self.segment.go_on_if(taken, other, &[]);
        }
        // The bytes that it points to may change before the pass ends.
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3);
        let slot = self.segment.builder.create_sized_stack_slot(slot);
        let (first, rest) =
            (self.ins().load(I32, UNALIGNED, start, 0), self.ins().load(I16, UNALIGNED, start, 4));
        let (first, rest) = (self.ins().uextend(I64, first), self.ins().uextend(I64, rest));
        let rest = self.segment.ishl_imm(rest, 32);
        let word = self.ins().bor(first, rest);
        self.ins().stack_store(I64, word, slot, 0);
        let (copy, bytes) = (self.ins().stack_addr(I64, slot, 0), self.segment.int(MAC_BYTES));
        self.segment.define(column, Val::Two(copy, bytes), yes);
        self.segment.make_due(column, yes);
        self.ins().jump(done, []);
        self.segment.builder.set_cold_block(other);
        self.segment.builder.switch_to_block(other);
        self.set_edited(at, column, value)?;
        let no = self.segment.bool(false);
        self.segment.make_due(column, no);
        self.ins().jump(done, []);
        self.segment.builder.switch_to_block(done);
        Ok(())
    }
}
