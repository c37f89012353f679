//! Pushes headers directly in front of their frame.
//!
//! A PUSH is an edit, and its executor writes the headers from a list of stores
//! ([`weft_core::wire::header_change::Stack`]). This list is known at compile time. If a PUSH is the last change of a
//! pass to its frame, the code writes the headers into the headroom itself, and returns their length
//! ([`weft_core::abi::Pushed`]). It stores the constant parts by whole words; values, lengths, the flow entropy and the
//! header checksum come from registers.
//!
//! At run time the code checks for the other cases, which use edits: earlier changes other than a POP TO; no headroom;
//! a frame that stands for several packets; a value that does not fit.

use super::{PLAIN, PartTranslator, UNALIGNED, Val};
use crate::arithmetic::known;
use crate::helpers::{Helper, target};
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I8X16, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, MemFlagsData};
use weft_core::abi::{Cx, Outcome, Pushed, Slot, TupleEdit};
use weft_core::wire::Checksum;
use weft_core::wire::header_change::{BitsAt, HeaderChange, Pop, SpreadAt, Stack, SumAt};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, Endian, HeaderChangeId, Jump, Op, Terminator, Ty, Value};

/// Shorter headers are not stored by whole words.
const WORD_BYTES: usize = 8;
/// Largest number of a frame's first bits that may select the headers.
const BEGINS_BITS_MAX: u8 = 8;

/// Where a part of the headers from a register is stored.
#[derive(Clone, Copy)]
enum StoreTarget {
    /// A number of 1, 2, 3, 4 or 8 bytes.
    Number { at: usize, bytes: usize },
    /// Bits of one byte, and their distance from its lowest bit.
    Bits { at: usize, shift: u32, bits: u32 },
    /// 4, 6, 8 or 16 bytes, unchanged.
    Run { at: usize, bytes: usize },
}

/// A part of the headers that comes from registers.
struct HeaderStore {
    place: StoreTarget,
    /// The number; for a run its pieces, in memory order.
    value: Vec<(clif::Value, usize)>,
}

/// The part of a frame that follows the new headers.
#[derive(Clone, Copy)]
struct InnerFrame {
    /// Number of bytes removed from its front.
    off: clif::Value,
    len: clif::Value,
    /// Its address.
    start: clif::Value,
}

impl StoreTarget {
    /// The target of bits that hold a number; None if one store is not enough.
    fn of_number(BitsAt { at, bits, little }: BitsAt) -> Option<Self> {
        let (byte, bit) = (at as usize / 8, at % 8);
        match (bit, bits) {
            _ if little && bits > 8 => None,
            (0, 8 | 16 | 24 | 32 | 64) => Some(Self::Number { at: byte, bytes: bits as usize / 8 }),
            _ if bit + bits <= 8 => Some(Self::Bits { at: byte, shift: 8 - bit - bits, bits }),
            _ => None,
        }
    }

    /// The target of an aligned run of 4, 6, 8 or 16 bytes; None for other fields.
    fn of_run(BitsAt { at, bits, .. }: BitsAt) -> Option<Self> {
        let place = Self::Run { at: at as usize / 8, bytes: bits as usize / 8 };
        (at % 8 == 0 && [32, 48, 64, 128].contains(&bits)).then_some(place)
    }

    /// The offset of the first byte.
    fn at(self) -> usize {
        match self {
            Self::Number { at, .. } | Self::Bits { at, .. } | Self::Run { at, .. } => at,
        }
    }

    /// The number of bytes.
    fn bytes(self) -> usize {
        match self {
            Self::Number { bytes, .. } | Self::Run { bytes, .. } => bytes,
            Self::Bits { .. } => 1,
        }
    }

    /// Whether it can be summed as words of a header that begins at this byte.
    fn is_summable(self, header: usize) -> bool {
        self.bytes() == 1 || self.bytes() != 3 && (self.at() - header).is_multiple_of(2)
    }
}

/// Whether code can write these headers itself.
fn is_fit(stack: &Stack, is_run: impl Fn(usize) -> bool) -> bool {
    let begins = stack.begins.is_none_or(|(bits, _)| bits <= BEGINS_BITS_MAX);
    let places: Vec<Option<StoreTarget>> = places(stack, is_run).collect();
    let are_placed = places.iter().all(Option::is_some);
    let spreads = |spread: &SpreadAt| {
        let top = spread.spread.low.saturating_add(spread.spread.n - 1);
        spread.from as usize == stack.bytes.len() && top >> spread.place.bits.min(62) == 0
    };
    let sums = |sum: &SumAt| {
        let (start, end) = (sum.header.0 as usize, sum.header.1 as usize);
        let inside = |place: &&StoreTarget| place.at() < end && place.at() + place.bytes() > start;
        let is_whole = |place: &StoreTarget| place.at() >= start && place.at() + place.bytes() <= end;
        let mut places = places.iter().flatten().filter(inside);
        sum.sum == Checksum::Header
            && (sum.at as usize - start).is_multiple_of(2)
            && places.all(|place| is_whole(place) && place.is_summable(start))
    };
    // A header that contains the checksum of another would be summed without it.
    let apart = |sum: &SumAt| {
        let mut others = stack.sums.iter().filter(|other| other.at != sum.at);
        others.all(|other| other.at < sum.header.0 || other.at >= sum.header.1)
    };
    stack.bytes.len() >= WORD_BYTES
        && begins
        && are_placed
        && stack.spreads.len() <= 1
        && stack.spreads.iter().all(spreads)
        && stack.sums.iter().all(|sum| sums(sum) && apart(sum))
}

/// Iterates over the targets of values, lengths and the flow entropy; None for an unsupported one.
fn places(stack: &Stack, is_run: impl Fn(usize) -> bool) -> impl Iterator<Item = Option<StoreTarget>> {
    let values = stack.values.iter().enumerate().map(move |(nth, place)| match is_run(nth) {
        true => StoreTarget::of_run(*place),
        false => StoreTarget::of_number(*place),
    });
    let lengths = stack.lengths.iter().map(|(place, _)| StoreTarget::of_number(*place));
    let spreads = stack.spreads.iter().map(|spread| StoreTarget::of_number(spread.place));
    values.chain(lengths).chain(spreads)
}

/// Whether an operation neither accesses the bytes of a frame nor depends on where they are.
fn leaves_frame(op: &Op) -> bool {
    matches!(
        op,
        Op::BoolConst(_)
            | Op::IntConst(_)
            | Op::FloatConst(_)
            | Op::BytesConst(_)
            | Op::IntBinary(..)
            | Op::IntCompare(..)
            | Op::BoolBinary(..)
            | Op::Not(_)
            | Op::Len(_)
            | Op::ScratchFull
    )
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits a change of headers: it is carried out directly, or recorded as edits.
    pub(super) fn reshape(&mut self, id: HeaderChangeId, parts: &[Value]) -> Result<(), Unsupported> {
        self.segment.save_parsed();
        let decl = self.segment.plan.chain.header_changes.get(usize::from(id.0));
        match decl.map(|decl| &decl.what) {
            Some(HeaderChange::Push { behind: None, stacks }) if self.is_last_change => {
                let runs: Vec<bool> = parts.iter().map(|part| self.ty(*part) == Ty::Bytes).collect();
                let is_run = |nth: usize| runs.get(nth).copied().unwrap_or(false);
                let are_held =
                    parts.iter().all(|part| matches!(self.ty(*part), Ty::Bool | Ty::Int | Ty::Bytes));
                let fits = |stack: &Stack| stack.values.len() == parts.len() && is_fit(stack, is_run);
                match are_held && stacks.iter().all(fits) {
                    true => self.push(id, stacks, parts),
                    false => self.record_header_change(id, parts),
                }
            }
            _ => self.record_header_change(id, parts),
        }
    }

    /// Records a change of structure as edits.
    fn record_header_change(&mut self, id: HeaderChangeId, parts: &[Value]) -> Result<(), Unsupported> {
        for (at, part) in parts.iter().enumerate() {
            self.edit(target::part(at as u16), Some(*part))?;
        }
        self.edit(target::reshape(id.0), None)?;
        Ok(())
    }

    /// Whether nothing after this instruction reads the frame, changes it, or fails.
    pub(super) fn is_last_change(&self, id: BlockId, at: usize) -> bool {
        let blocks = &self.function.blocks;
        let mut seen = vec![false; blocks.len()];
        let mut next = vec![(id, at + 1)];
        while let Some((id, from)) = next.pop() {
            let block = &blocks[id.0 as usize];
            let insts = &block.insts[from..];
            if !(insts.iter().all(|inst| leaves_frame(&inst.op)) && self.ends_apart(&block.end)) {
                return false;
            }
            for jump in self.jumps_of(&block.end) {
                let is_new = !core::mem::replace(&mut seen[jump.block.0 as usize], true);
                next.extend(is_new.then_some((jump.block, 0)));
            }
        }
        self.is_last_part && !self.segment.copies
    }

    /// The jumps of a block that can be taken, given the known flags.
    fn jumps_of<'e>(&self, end: &'e Terminator) -> Vec<&'e Jump> {
        match end {
            Terminator::Branch(by, yes, no) => match self.analysis.known_flag(*by) {
                Some(is_so) => vec![if is_so { yes } else { no }],
                None => vec![yes, no],
            },
            end => end.jumps().into_iter().collect(),
        }
    }

    /// Whether this end passes on nothing that lies in the frame.
    fn ends_apart(&self, end: &Terminator) -> bool {
        use Terminator as T;
        match end {
            T::Jump(_) | T::Branch(..) | T::Forward | T::Skip | T::Steer { .. } => true,
            T::Redirect { to, .. } => self.analysis.literal(*to).is_some(),
            _ => false,
        }
    }

    /// Writes headers in front of the frame; where that is impossible, records them as edits.
    fn push(&mut self, id: HeaderChangeId, stacks: &[Stack], parts: &[Value]) -> Result<(), Unsupported> {
        self.segment.constants.puts_in_front = true;
        let [other, done] = [(); 2].map(|()| self.segment.builder.create_block());
        let rest = self.rest_of_frame(other);
        for stack in stacks {
            let next = self.segment.builder.create_block();
            self.check_begins(stack.begins, rest, next);
            self.write(stack, rest, parts, other)?;
            self.ins().jump(done, []);
            self.segment.builder.switch_to_block(next);
        }
        self.ins().jump(other, []);
        self.segment.builder.set_cold_block(other);
        self.segment.builder.switch_to_block(other);
        self.record_header_change(id, parts)?;
        self.ins().jump(done, []);
        self.segment.builder.switch_to_block(done);
        Ok(())
    }

    /// The POP TOs of this handler with no other consequences, each with its layer.
    fn plain_pops(&self) -> Vec<(u16, u16)> {
        let ops = self.function.blocks.iter().flat_map(|block| &block.insts);
        let reshapes = &self.segment.plan.chain.header_changes;
        let mut pops: Vec<(u16, u16)> = ops
            .filter_map(|inst| match inst.op {
                Op::ChangeHeaders(id, _) => match &reshapes.get(usize::from(id.0))?.what {
                    HeaderChange::Pop { layer, how: Pop::To, pseudo } if pseudo.sums.is_empty() => {
                        Some((id.0, *layer))
                    }
                    _ => None,
                },
                _ => None,
            })
            .collect();
        pops.sort_unstable();
        pops.dedup();
        pops
    }

    /// The frame after earlier changes, which may be one POP TO; jumps to `other` for any other change.
    fn rest_of_frame(&mut self, other: clif::Block) -> InnerFrame {
        let edits = offset_of!(Outcome, edits);
        let words = self.segment.plan.vec_words;
        let n = self.segment.load_out(I64, edits + words.len);
        let (zero, len) = (self.segment.int(0), self.segment.frame_len());
        let go = self.segment.builder.create_block();
        let [off, left] = [(); 2].map(|()| self.segment.builder.append_block_param(go, I64));
        let pops = self.plain_pops();
        let is_first = self.segment.icmp_imm(IntCC::Equal, n, 0);
        if pops.is_empty() {
            self.segment.go_on_if(is_first, other, &[]);
            self.ins().jump(go, &[zero.into(), len.into()]);
        } else {
            let popped = self.segment.builder.create_block();
            self.ins().brif(is_first, go, &[zero.into(), len.into()], popped, []);
            self.segment.builder.switch_to_block(popped);
            let is_one = self.segment.icmp_imm(IntCC::Equal, n, 1);
            self.segment.go_on_if(is_one, other, &[]);
            let edit = self.segment.load_out(I64, edits + words.start);
            let of = self.ins().load(I32, PLAIN, edit, offset_of!(TupleEdit, target) as i32);
            for (id, layer) in pops {
                let [this, next] = [(); 2].map(|()| self.segment.builder.create_block());
                let target = self.ins().iconst(I32, i64::from(target::reshape(id)));
                let is_this = self.ins().icmp(IntCC::Equal, of, target);
                self.ins().brif(is_this, this, [], next, []);
                self.segment.builder.switch_to_block(this);
                let at = self.segment.load_slot(layer.into(), offset_of!(Slot, a));
                let end = self.segment.load_slot(layer.into(), offset_of!(Slot, b));
                let end = self.segment.ushr_imm(end, 32);
                // As POP TO: bytes after the end are removed, too.
                let end = self.ins().umax(end, at);
                let end = self.ins().umin(end, len);
                let is_inside = self.ins().icmp(IntCC::UnsignedLessThanOrEqual, at, end);
                self.segment.go_on_if(is_inside, other, &[]);
                let left = self.ins().isub(end, at);
                self.ins().jump(go, &[at.into(), left.into()]);
                self.segment.builder.switch_to_block(next);
            }
            self.ins().jump(other, []);
        }
        self.segment.builder.switch_to_block(go);
        let start = self.segment.frame_start();
        let start = self.ins().iadd(start, off);
        InnerFrame { off, len: left, start }
    }

    /// Continues if the rest of the frame begins with these bits, else jumps to `other`.
    fn check_begins(&mut self, begins: Option<(u8, u64)>, rest: InnerFrame, other: clif::Block) {
        let Some((bits, value)) = begins else { return };
        self.segment.go_on_if(rest.len, other, &[]);
        let first = self.ins().uload8(I64, UNALIGNED, rest.start, 0);
        let first = self.segment.ushr_imm(first, i64::from(BEGINS_BITS_MAX - bits));
        let is_it = self.segment.icmp_imm(IntCC::Equal, first, value as i64);
        self.segment.go_on_if(is_it, other, &[]);
    }

    /// Writes headers, or jumps to `other` before the first store.
    fn write(
        &mut self,
        stack: &Stack,
        rest: InnerFrame,
        parts: &[Value],
        other: clif::Block,
    ) -> Result<(), Unsupported> {
        let n = stack.bytes.len() as i64;
        // The pass stores the headroom plus one, and removed bytes are headroom, too.
        let front = self.segment.load_cx(I64, offset_of!(Cx<'_>, front));
        let room = self.ins().iadd(front, rest.off);
        let has_room = self.segment.icmp_imm(IntCC::UnsignedGreaterThan, room, n);
        self.segment.go_on_if(front, other, &[]);
        self.segment.go_on_if(has_room, other, &[]);

        let mut template = stack.bytes.clone();
        let mut misfit = self.segment.int(0);
        let mut puts = Vec::new();
        for (part, place) in parts.iter().zip(&stack.values) {
            let literal = self.analysis.literal(*part);
            let held = self.get(*part)?;
            let put = match held {
                Val::One(number) => self.place_number(*place, number, &mut template, &mut misfit),
                Val::Two(..) => self.place_run(*place, held, literal, &mut template, &mut misfit),
            };
            puts.extend(put);
        }
        for (place, add) in &stack.lengths {
            let number = self.segment.iadd_imm(rest.len, n + add);
            puts.extend(self.place_number(*place, number, &mut template, &mut misfit));
        }
        let fits = self.segment.icmp_imm(IntCC::Equal, misfit, 0);
        self.segment.go_on_if(fits, other, &[]);
        for spread in &stack.spreads {
            puts.extend(self.spread(spread, rest));
        }
        let sums: Vec<(usize, clif::Value)> =
            stack.sums.iter().map(|sum| (sum.at as usize, self.header_sum(sum, &template, &puts))).collect();

        let to = self.segment.iadd_imm(rest.start, -n);
        self.store_template(&template, to);
        puts.iter().for_each(|put| self.store_put(put, to));
        for (at, sum) in sums {
            self.segment.store_number(sum, (to, at as i32), 2, Endian::Big);
        }

        let out = self.segment.load_cx(I64, offset_of!(Cx<'_>, out));
        let (n, zero) = (self.segment.int(n), self.segment.int(0));
        let pushed = [
            (rest.off, offset_of!(Pushed, off)),
            (rest.len, offset_of!(Pushed, rest)),
            (n, offset_of!(Pushed, bytes)),
        ];
        for (value, at) in pushed {
            self.ins().store(PLAIN, value, out, (offset_of!(Outcome, pushed) + at) as i32);
        }
        self.segment.store_len(offset_of!(Outcome, edits), zero);
        Ok(())
    }

    /// Puts a number at its target: into the template if it is constant, else among the stores. `misfit` gets a bit for
    /// a value that does not fit.
    fn place_number(
        &mut self,
        bits: BitsAt,
        number: clif::Value,
        template: &mut [u8],
        misfit: &mut clif::Value,
    ) -> Option<HeaderStore> {
        let place = StoreTarget::of_number(bits)?;
        let ty = self.segment.builder.func.dfg.value_type(number);
        let number = if ty == I8 { self.ins().uextend(I64, number) } else { number };
        if bits.bits < 64 {
            let above = self.segment.ushr_imm(number, bits.bits.into());
            *misfit = self.ins().bor(*misfit, above);
        }
        if let (Some(known), StoreTarget::Number { at, bytes }) =
            (known(&self.segment.builder.func.dfg, number), place)
        {
            template[at..at + bytes].copy_from_slice(&known.to_be_bytes()[8 - bytes..]);
            return None;
        }
        Some(HeaderStore { place, value: vec![(number, 0)] })
    }

    /// Puts a run of bytes at its target, as [`Self::place_number`]. Loads it before the first store, because it may
    /// lie there.
    fn place_run(
        &mut self,
        bits: BitsAt,
        run: Val,
        literal: Option<&[u8]>,
        template: &mut [u8],
        misfit: &mut clif::Value,
    ) -> Option<HeaderStore> {
        let place = StoreTarget::of_run(bits)?;
        let (at, bytes) = (place.at(), place.bytes());
        if let Some(literal) = literal.filter(|literal| literal.len() == bytes) {
            template[at..at + bytes].copy_from_slice(literal);
            return None;
        }
        let (start, len) = run.two();
        let wanted = self.segment.int(bytes as i64);
        let differs = self.ins().bxor(len, wanted);
        *misfit = self.ins().bor(*misfit, differs);
        // A value that is too short is loaded from a longer buffer, and not used.
        let (zeros, _) = self.segment.constant(&[0; 16]).two();
        let is_it = self.segment.icmp_imm(IntCC::Equal, differs, 0);
        let start = self.ins().select(is_it, start, zeros);
        let pieces: &[(clif::Type, usize)] = match bytes {
            4 => &[(I32, 0)],
            6 => &[(I32, 0), (I16, 4)],
            8 => &[(I64, 0)],
            _ => &[(I8X16, 0)],
        };
        let value = pieces.iter().map(|(ty, at)| (self.ins().load(*ty, UNALIGNED, start, *at as i32), *at));
        Some(HeaderStore { place, value: value.collect() })
    }

    /// Emits the flow entropy of the payload, such as a source port; None if its place is unsupported.
    fn spread(&mut self, spread: &SpreadAt, rest: InnerFrame) -> Option<HeaderStore> {
        let place = StoreTarget::of_number(spread.place)?;
        let flow = self.segment.call_on_frame(Helper::FlowOf, (rest.start, rest.len), spread.is_ip).one();
        let n = spread.spread.n;
        let among = match n.is_power_of_two() {
            true => self.segment.band_imm(flow, (n - 1) as i64),
            false => {
                let n = self.segment.int(n as i64);
                self.ins().urem(flow, n)
            }
        };
        let number = self.segment.iadd_imm(among, spread.spread.low as i64);
        Some(HeaderStore { place, value: vec![(number, 0)] })
    }

    /// Emits the checksum of a header: of its constant parts, and of the stores.
    fn header_sum(&mut self, sum: &SumAt, template: &[u8], puts: &[HeaderStore]) -> clif::Value {
        let (start, end) = (sum.header.0 as usize, sum.header.1 as usize);
        let constant = weft_core::checksum::fold(weft_core::checksum::sum(&template[start..end]));
        let mut total = self.segment.int(constant.into());
        for put in puts.iter().filter(|put| (start..end).contains(&put.place.at())) {
            let words = self.words_of(put, start);
            total = self.ins().iadd(total, words);
        }
        // A header has a few dozen words at most: two folds leave 16 bits.
        for _ in 0..2 {
            let (low, high) = (self.segment.band_imm(total, 0xffff), self.segment.ushr_imm(total, 16));
            total = self.ins().iadd(low, high);
        }
        let ones = self.segment.int(0xffff);
        self.ins().bxor(total, ones)
    }

    /// Emits the sum of the words of a part of a header that begins at this byte.
    fn words_of(&mut self, put: &HeaderStore, header: usize) -> clif::Value {
        let upper = |at: usize| if (at - header).is_multiple_of(2) { 8 } else { 0 };
        match put.place {
            StoreTarget::Number { at, bytes: 1 } => self.segment.ishl_imm(put.value[0].0, upper(at)),
            StoreTarget::Bits { at, shift, .. } => {
                self.segment.ishl_imm(put.value[0].0, i64::from(shift) + upper(at))
            }
            StoreTarget::Number { bytes, .. } => self.sum_of_words(put.value[0].0, bytes),
            StoreTarget::Run { .. } => {
                let mut total = self.segment.int(0);
                for (piece, _) in &put.value {
                    for (number, bytes) in self.numbers_of(*piece) {
                        let words = self.sum_of_words(number, bytes);
                        total = self.ins().iadd(total, words);
                    }
                }
                total
            }
        }
    }

    /// Splits a piece of a run into numbers, with the bytes of each.
    fn numbers_of(&mut self, piece: clif::Value) -> Vec<(clif::Value, usize)> {
        let ty = self.segment.builder.func.dfg.value_type(piece);
        let halves = match ty {
            I8X16 => {
                let flags = MemFlagsData::new().with_endianness(clif::Endianness::Little);
                let both = self.ins().bitcast(clif::types::I64X2, flags, piece);
                vec![self.ins().extractlane(both, 0), self.ins().extractlane(both, 1)]
            }
            _ => vec![piece],
        };
        let number = |half: clif::Value| {
            let ty = self.segment.builder.func.dfg.value_type(half);
            let number = self.segment.builder.ins().bswap(half);
            let number = if ty == I64 { number } else { self.segment.builder.ins().uextend(I64, number) };
            (number, ty.bytes() as usize)
        };
        halves.into_iter().map(number).collect()
    }

    /// Emits the sum of the 16-bit words in a number of this many bytes.
    fn sum_of_words(&mut self, number: clif::Value, bytes: usize) -> clif::Value {
        if bytes <= 2 {
            return number;
        }
        let mut total = self.segment.band_imm(number, 0xffff);
        for nth in 1..bytes as i64 / 2 {
            let word = self.segment.ushr_imm(number, 16 * nth);
            let word = self.segment.band_imm(word, 0xffff);
            total = self.ins().iadd(total, word);
        }
        total
    }

    /// Stores the constant parts of the headers, by words; the last may overlap the one before.
    fn store_template(&mut self, template: &[u8], to: clif::Value) {
        let last = template.len() - WORD_BYTES;
        for at in (0..last).step_by(WORD_BYTES).chain([last]) {
            let word = super::bytes::little_endian(&template[at..at + WORD_BYTES]);
            let word = self.ins().iconst(I64, word as i64);
            self.ins().store(UNALIGNED, word, to, at as i32);
        }
    }

    /// Emits the store of a header field at `to`.
    fn store_put(&mut self, put: &HeaderStore, to: clif::Value) {
        match put.place {
            StoreTarget::Number { at, bytes: 3 } => {
                let number = put.value[0].0;
                let upper = self.segment.ushr_imm(number, 8);
                self.segment.store_number(upper, (to, at as i32), 2, Endian::Big);
                self.segment.store_number(number, (to, at as i32 + 2), 1, Endian::Big);
            }
            StoreTarget::Number { at, bytes } => {
                self.segment.store_number(put.value[0].0, (to, at as i32), bytes as u8, Endian::Big);
            }
            // Its bits are zero in the template; other bits of the byte may have been stored already.
            StoreTarget::Bits { at, shift, bits } => {
                let number = self.segment.band_imm(put.value[0].0, (1 << bits) - 1);
                let number = self.segment.ishl_imm(number, shift.into());
                let number = self.ins().ireduce(I8, number);
                let before = self.ins().load(I8, UNALIGNED, to, at as i32);
                let both = self.ins().bor(before, number);
                self.ins().store(UNALIGNED, both, to, at as i32);
            }
            StoreTarget::Run { at, .. } => {
                for (piece, within) in &put.value {
                    self.ins().store(UNALIGNED, *piece, to, (at + within) as i32);
                }
            }
        }
    }
}
