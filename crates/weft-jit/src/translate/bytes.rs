//! Translates operations on bytes and text.

use super::analysis::equality;
use super::{PLAIN, PartTranslator, Segment, UNALIGNED, Val, cell_tag};
use crate::frame::Frame;
use crate::helpers::{BYTES_BYTES, Cold, Helper, ended};
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I16, I32, I64};
use cranelift_codegen::ir::{InstBuilder as _, StackSlotData, StackSlotKind};
use weft_core::abi::Outcome;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BytesCmp, NativeId, Op, Signed, Ty, Value};

/// Constants up to this length are compared inline.
const INLINE_EQUAL_MAX: usize = 16;

impl Segment<'_, '_> {
    /// Sets a word of the pass's [`crate::frame::Frame`].
    pub(super) fn store_frame(&mut self, value: clif::Value, offset: usize) {
        self.builder.ins().store(PLAIN, value, self.frame, offset as i32);
    }

    /// Allocates scratch for bytes that stay in place: returns their length, or 0 if there is no room.
    pub(super) fn take_scratch(&mut self, len: clif::Value) -> clif::Value {
        if self.is_roomy {
            return len;
        }
        let offset = offset_of!(Frame<'_, '_>, scratch_used);
        let used = self.builder.ins().load(I64, PLAIN, self.frame, offset as i32);
        let used = self.builder.ins().iadd(used, len);
        let max = self.load_out(I64, offset_of!(Outcome, scratch_max));
        let fits = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, used, max);
        let [yes, no, done] = [(); 3].map(|()| self.builder.create_block());
        let taken = self.builder.append_block_param(done, I64);
        self.builder.ins().brif(fits, yes, [], no, []);
        self.builder.switch_to_block(yes);
        self.store_frame(used, offset);
        self.builder.ins().jump(done, &[len.into()]);
        self.builder.set_cold_block(no);
        self.builder.switch_to_block(no);
        let (one, zero) = (self.int(1), self.int(0));
        self.store_frame(one, offset_of!(Frame<'_, '_>, scratch_full));
        self.builder.ins().jump(done, &[zero.into()]);
        self.builder.switch_to_block(done);
        taken
    }

    /// Emits the load of the byte at an offset. Out of range it reads a zero, which saves a branch.
    fn byte_at(&mut self, start: clif::Value, len: clif::Value, at: u8) -> clif::Value {
        let there = self.icmp_imm(IntCC::UnsignedGreaterThan, len, i64::from(at));
        let (zero, _) = self.constant(&[0]).two();
        let byte = self.with_imm(start, at.into(), |ins, start, at| ins.iadd(start, at));
        let from = self.builder.ins().select(there, byte, zero);
        self.builder.ins().uload8(I64, UNALIGNED, from, 0)
    }

    /// The word at an offset. Out of range it reads zeros, which saves a branch.
    fn word_inside(&mut self, start: clif::Value, len: clif::Value, at: clif::Value) -> clif::Value {
        let has_word = self.icmp_imm(IntCC::UnsignedGreaterThanOrEqual, len, 8);
        let last = self.with_imm(len, -8, |ins, len, n| ins.iadd(len, n));
        let is_inside = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, at, last);
        let there = self.builder.ins().band(has_word, is_inside);
        let (zeros, _) = self.constant(&[0; 8]).two();
        let word = self.builder.ins().iadd(start, at);
        let from = self.builder.ins().select(there, word, zeros);
        self.builder.ins().load(I64, UNALIGNED, from, 0)
    }

    /// Emits the range of `n` bytes from an offset; empty if they are out of range.
    fn part(&mut self, bytes: Val, at: clif::Value, n: clif::Value) -> Val {
        let (start, len) = bytes.two();
        let begins = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, at, len);
        let left = self.builder.ins().isub(len, at);
        let ends = self.builder.ins().icmp(IntCC::UnsignedLessThanOrEqual, n, left);
        let there = self.builder.ins().band(begins, ends);
        let (zero, from) = (self.int(0), self.builder.ins().iadd(start, at));
        let from = self.builder.ins().select(there, from, start);
        Val::Two(from, self.builder.ins().select(there, n, zero))
    }

    /// Whether an address lies in one of these networks. The first byte of most addresses rules it out.
    fn in_networks(&mut self, address: Val, prefixes: &[Vec<u8>]) -> clif::Value {
        let (start, len) = address.two();
        let may_be: Vec<u8> =
            (0..=255).map(|first| prefixes.iter().any(|of| may_hold(of, first)).into()).collect();
        let first = self.byte_at(start, len, 0);
        let (table, _) = self.constant(&may_be).two();
        let at = self.builder.ins().iadd(table, first);
        let may_be = self.builder.ins().load(I8, UNALIGNED.with_readonly(), at, 0);
        let [look, done] = [(); 2].map(|()| self.builder.create_block());
        let result = self.builder.append_block_param(done, I8);
        let no = self.bool(false);
        self.builder.ins().brif(may_be, look, [], done, &[no.into()]);
        self.builder.set_cold_block(look);
        self.builder.switch_to_block(look);
        let found = prefixes.iter().fold(no, |found, prefix| {
            let is_in = self.in_network(address, prefix);
            self.builder.ins().bor(found, is_in)
        });
        self.builder.ins().jump(done, &[found.into()]);
        self.builder.switch_to_block(done);
        result
    }

    /// Whether an address lies in a constant network: for a prefix of at most 64 bits, a comparison of its first bits.
    fn in_network(&mut self, address: Val, prefix: &[u8]) -> clif::Value {
        let (start, len) = address.two();
        let Some((network, bits)) = known_network(prefix) else {
            let (prefix, prefix_len) = self.constant(prefix).two();
            return self.call(Helper::InPrefix, &[start, len, prefix, prefix_len])[0];
        };
        let same_len = self.icmp_imm(IntCC::Equal, len, network.len() as i64);
        if bits == 0 {
            return same_len;
        }
        let (ty, width) = match bits {
            33.. => (I64, 8),
            17.. => (I32, 4),
            9.. => (I16, 2),
            _ => (I8, 1),
        };
        let mask = u64::MAX << (64 - u32::from(bits));
        let mut first = [0; 8];
        first[..width].copy_from_slice(&network[..width]);
        // As a load on a little-endian machine returns them.
        let wanted = little_endian(&(u64::from_be_bytes(first) & mask).to_be_bytes()[..width]);
        let mask = little_endian(&mask.to_be_bytes()[..width]);
        self.and_then(same_len, |segment| {
            let word = segment.builder.ins().load(ty, UNALIGNED, start, 0);
            let (mask, wanted) = (segment.small(ty, mask), segment.small(ty, wanted));
            let word = segment.builder.ins().band(word, mask);
            segment.builder.ins().icmp(IntCC::Equal, word, wanted)
        })
    }

    /// Emits a constant of a type.
    fn small(&mut self, ty: clif::Type, n: u64) -> clif::Value {
        let n = n as i64;
        let n = if ty == I64 { n } else { n & ((1 << ty.bits()) - 1) };
        self.builder.ins().iconst(ty, n)
    }

    /// Emits a flag: both byte ranges are equal.
    fn equal(&mut self, a: Val, b: Val) -> clif::Value {
        let ((a, a_len), (b, b_len)) = (a.two(), b.two());
        let same_len = self.builder.ins().icmp(IntCC::Equal, a_len, b_len);
        self.and_then(same_len, |segment| segment.call(Helper::BytesEqual, &[a, b, a_len])[0])
    }

    /// Whether bytes equal these. Compares lengths first, so that nothing after the end is read.
    fn equal_literal(&mut self, bytes: Val, literal: &[u8]) -> clif::Value {
        let (start, len) = bytes.two();
        let n = literal.len();
        let same_len = self.icmp_imm(IntCC::Equal, len, n as i64);
        if n == 0 {
            return same_len;
        }
        self.and_then(same_len, |segment| {
            if n > INLINE_EQUAL_MAX {
                let (wanted, _) = segment.constant(literal).two();
                return segment.call(Helper::BytesEqual, &[start, wanted, len])[0];
            }
            // Two loads that may overlap cover every length.
            let (ty, width) = match n {
                8.. => (I64, 8),
                4.. => (I32, 4),
                2.. => (I16, 2),
                _ => (I8, 1),
            };
            let first = segment.equal_word(start, 0, ty, &literal[..width]);
            if n == width {
                return first;
            }
            let second = segment.equal_word(start, n - width, ty, &literal[n - width..]);
            segment.builder.ins().band(first, second)
        })
    }

    /// Emits a flag: the bytes at `start + at` equal `wanted`, which fills the type.
    fn equal_word(&mut self, start: clif::Value, at: usize, ty: clif::Type, wanted: &[u8]) -> clif::Value {
        let word = self.builder.ins().load(ty, UNALIGNED, start, at as i32);
        let wanted = self.small(ty, little_endian(wanted));
        self.builder.ins().icmp(IntCC::Equal, word, wanted)
    }
}

/// Up to eight bytes as a number, as a load on a little-endian machine returns it.
pub(super) fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte))
}

/// Address and prefix length of a network of IPv4 or IPv6 whose prefix fits in a word; None for others, which the
/// helper handles.
fn known_network(prefix: &[u8]) -> Option<(&[u8], u8)> {
    let (&bits, network) = prefix.split_last()?;
    let fits = matches!(network.len(), 4 | 16) && usize::from(bits) <= (8 * network.len()).min(64);
    fits.then_some((network, bits))
}

/// Whether a network has an address with this first byte.
fn may_hold(prefix: &[u8], first: u8) -> bool {
    let Some((bits, [of, ..])) = prefix.split_last() else { return false };
    let fixed = (*bits).min(8);
    (first ^ of) & (0xff00u16 >> fixed) as u8 == 0
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Translates an operation on bytes; None if it is of another group.
    pub(super) fn bytes(&mut self, op: &Op, result: Option<Value>) -> Result<Option<Val>, Unsupported> {
        let frame = self.segment.frame;
        Ok(Some(match op {
            Op::IntToText(signed, a) => {
                let a = self.get(*a)?.one();
                let signed = self.signed(*signed);
                self.segment.call_two(Helper::IntToText, &[frame, a, signed])
            }
            Op::FloatToText(a) => {
                let a = self.get(*a)?.one();
                self.segment.call_two(Helper::FloatToText, &[frame, a])
            }
            Op::IsIntText(signed, a) => {
                let (start, len) = self.get(*a)?.two();
                let signed = self.signed(*signed);
                self.segment.call_one(Helper::IsIntText, &[start, len, signed])
            }
            Op::TextToInt(signed, a) => {
                let (start, len) = self.get(*a)?.two();
                let signed = self.signed(*signed);
                self.segment.call_one(Helper::TextToInt, &[start, len, signed])
            }
            Op::IsFloatText(a) => {
                let (start, len) = self.get(*a)?.two();
                self.segment.call_one(Helper::IsFloatText, &[start, len])
            }
            Op::TextToFloat(a) => {
                let (start, len) = self.get(*a)?.two();
                self.segment.call_one(Helper::TextToFloat, &[start, len])
            }
            Op::Len(a) => Val::One(self.get(*a)?.two().1),
            Op::ByteAt(a, at) => {
                let (start, len) = self.get(*a)?.two();
                Val::One(self.segment.byte_at(start, len, *at))
            }
            Op::WordAt(a, at) => {
                let ((start, len), at) = (self.get(*a)?.two(), self.get(*at)?.one());
                Val::One(self.segment.word_inside(start, len, at))
            }
            Op::Part(a, at, n) => {
                let (a, at, n) = (self.get(*a)?, self.get(*at)?.one(), self.get(*n)?.one());
                self.segment.part(a, at, n)
            }
            Op::BytesCompare(cmp, a, b) => Val::One(self.compare(*cmp, *a, *b)?),
            Op::Concat(parts) => {
                let held: Vec<Val> = parts.iter().map(|part| self.get(*part)).collect::<Result<_, _>>()?;
                let literals = parts.iter().map(|part| self.analysis.literal(*part));
                let parts: Vec<_> = held.into_iter().zip(literals).collect();
                let kept = self.segment.keep(&parts);
                self.segment.kept(kept)
            }
            Op::Lower(a) => {
                let (start, len) = self.get(*a)?.two();
                self.segment.call_two(Helper::Lower, &[frame, start, len])
            }
            Op::Upper(a) => {
                let (start, len) = self.get(*a)?.two();
                self.segment.call_two(Helper::Upper, &[frame, start, len])
            }
            Op::Slice(a, from, count) => {
                let (start, len) = self.get(*a)?.two();
                let (from, count) = (self.get(*from)?.one(), self.get(*count)?.one());
                self.slice((start, len), from, count)
            }
            Op::ScratchFull if result.and_then(|result| self.analysis.known_flag(result)) == Some(false) => {
                Val::One(self.segment.bool(false))
            }
            Op::ScratchFull => {
                let offset = offset_of!(Frame<'_, '_>, scratch_full) as i32;
                let full = self.ins().load(I64, PLAIN, frame, offset);
                self.segment.unpack(Ty::Bool, full)
            }
            Op::Hash(a) => {
                let a = self.get(*a)?;
                Val::One(self.hash_bytes(a))
            }
            Op::InPrefix(a, b) => {
                let address = self.get(*a)?;
                match self.analysis.literal(*b) {
                    Some(prefix) => Val::One(self.segment.in_network(address, prefix)),
                    None => {
                        let prefix = self.get(*b)?;
                        self.call_on_two(Helper::InPrefix, address, prefix)
                    }
                }
            }
            Op::InPrefixes(a, prefixes) => {
                let address = self.get(*a)?;
                Val::One(self.segment.in_networks(address, prefixes))
            }
            Op::Native(id, args) => self.native(*id, args, result)?,
            Op::NativeNull(a) => self.has_ended(*a, ended::NULL),
            Op::NativeFailed(a) => self.has_ended(*a, ended::FAILED),
            Op::Key(parts) => self.key(parts, result)?,
            _ => return Ok(None),
        }))
    }

    /// Emits the call of a native function, and keeps its status for the result value.
    fn native(&mut self, id: NativeId, args: &[Value], result: Option<Value>) -> Result<Val, Unsupported> {
        let info = self.segment.plan.chain.natives[usize::from(id.0)].native.info();
        let ty = Ty::of(info.result);
        let (n_args, bytes_max) = (args.len() as u64, info.bytes_max() as u64);
        let what = u64::from(id.0) | n_args << 16 | cell_tag(ty) << 24 | bytes_max << 32;
        let (frame, what, given) = (self.segment.frame, self.segment.int(what as i64), self.cells(args)?);
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, BYTES_BYTES, 3);
        let slot = self.segment.builder.create_sized_stack_slot(slot);
        let to = self.ins().stack_addr(I64, slot, 0);
        let how = self.segment.call(Helper::Native, &[frame, what, given, to])[0];
        if let Some(result) = result {
            self.ended[result.0 as usize] = Some(how);
        }
        let first = self.ins().load(I64, PLAIN, to, 0);
        Ok(match ty {
            Ty::Bytes => Val::Two(first, self.ins().load(I64, PLAIN, to, 8)),
            ty => self.segment.unpack(ty, first),
        })
    }

    /// Whether the native function that returned a value ended in this way.
    fn has_ended(&mut self, value: Value, wanted: u64) -> Val {
        Val::One(match self.ended[value.0 as usize] {
            Some(how) => self.segment.icmp_imm(IntCC::Equal, how, wanted as i64),
            None => self.segment.bool(false),
        })
    }

    /// Emits a helper call that hashes bytes.
    pub(super) fn hash_bytes(&mut self, bytes: Val) -> clif::Value {
        let (start, len) = bytes.two();
        self.segment.call(Helper::HashBytes, &[start, len])[0]
    }

    fn signed(&mut self, signed: Signed) -> clif::Value {
        self.segment.int(i64::from(signed == Signed::Yes))
    }

    /// The characters in a range: all of the bytes, if the range covers them and they begin with a character.
    fn slice(
        &mut self,
        (start, len): (clif::Value, clif::Value),
        from: clif::Value,
        count: clif::Value,
    ) -> Val {
        let [some, other, done] = [(); 3].map(|()| self.segment.builder.create_block());
        let [first, n] = [(); 2].map(|()| self.segment.builder.append_block_param(done, I64));
        let from_start = self.segment.icmp_imm(IntCC::Equal, from, 0);
        let to_end = self.ins().icmp(IntCC::SignedLessThanOrEqual, len, count);
        let is_some = self.segment.icmp_imm(IntCC::NotEqual, len, 0);
        let is_all = self.ins().band(from_start, to_end);
        let is_all = self.ins().band(is_all, is_some);
        self.ins().brif(is_all, some, [], other, []);
        self.segment.builder.switch_to_block(some);
        let byte = self.ins().uload8(I64, UNALIGNED, start, 0);
        let kind = self.segment.band_imm(byte, 0xc0);
        let is_inside = self.segment.icmp_imm(IntCC::Equal, kind, 0x80);
        self.ins().brif(is_inside, other, [], done, &[start.into(), len.into()]);
        self.segment.builder.set_cold_block(other);
        self.segment.builder.switch_to_block(other);
        let (cut, cut_len) = self.segment.call_cold_for_two(Cold::Slice, &[start, len, from, count]).two();
        self.ins().jump(done, &[cut.into(), cut_len.into()]);
        self.segment.builder.switch_to_block(done);
        Val::Two(first, n)
    }

    /// Emits a helper call on two byte ranges.
    fn call_on_two(&mut self, helper: Helper, a: Val, b: Val) -> Val {
        let ((a, a_len), (b, b_len)) = (a.two(), b.two());
        self.segment.call_one(helper, &[a, a_len, b, b_len])
    }

    /// Emits a comparison of bytes; one with a literal is inlined if possible.
    fn compare(&mut self, cmp: BytesCmp, a: Value, b: Value) -> Result<clif::Value, Unsupported> {
        let (left, right) = (self.get(a)?, self.get(b)?);
        if let Some(answer) = equality(cmp) {
            let equal = match (self.analysis.literal(a), self.analysis.literal(b)) {
                (_, Some(literal)) => self.equal_literal(a, left, literal),
                (Some(literal), None) => self.equal_literal(b, right, literal),
                (None, None) => self.segment.equal(left, right),
            };
            return Ok(if answer { equal } else { self.ins().bxor_imm_u(equal, 1) });
        }
        let by_order = |cc| (Helper::BytesOrder, Some(cc));
        let (helper, order) = match cmp {
            BytesCmp::Lt => by_order(IntCC::SignedLessThan),
            BytesCmp::Le => by_order(IntCC::SignedLessThanOrEqual),
            BytesCmp::StartsWith => (Helper::StartsWith, None),
            BytesCmp::EndsWith => (Helper::EndsWith, None),
            BytesCmp::Like => (Helper::Like, None),
            _ => (Helper::Contains, None),
        };
        let result = self.call_on_two(helper, left, right).one();
        Ok(match order {
            Some(cc) => self.segment.icmp_imm(cc, result, 0),
            None => result,
        })
    }

    /// Emits a flag: the bytes equal the literal. A cell of a row is compared word by word.
    fn equal_literal(&mut self, value: Value, bytes: Val, literal: &[u8]) -> clif::Value {
        match self.cells_in_rows[value.0 as usize] {
            Some(words) if !literal.is_empty() && literal.len() <= INLINE_EQUAL_MAX.min(words.bytes_max) => {
                let (start, len) = bytes.two();
                let mut equal = self.segment.icmp_imm(IntCC::Equal, len, literal.len() as i64);
                for (i, chunk) in literal.chunks(8).enumerate() {
                    let word = self.ins().load(I64, PLAIN, start, i as i32 * 8);
                    let wanted = self.segment.int(little_endian(chunk) as i64);
                    let same = self.ins().icmp(IntCC::Equal, word, wanted);
                    equal = self.ins().band(equal, same);
                }
                equal
            }
            _ => self.segment.equal_literal(bytes, literal),
        }
    }
}
