//! Keys of several columns in registers: their bytes, their hash and the words of a matching row.
//!
//! This works for keys whose parts have the expected lengths of their types ([`expected_len`]). Other keys go through a
//! helper, and then through the table.

use super::{PLAIN, PartTranslator, Segment, UNALIGNED, Val};
use crate::arithmetic::Arithmetic as _;
use crate::helpers::Helper;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I8, I64};
use cranelift_codegen::ir::{BlockArg, InstBuilder as _, StackSlot, StackSlotData, StackSlotKind};
use weft_core::hash::{HashKey, SHORT_BYTES_MAX};
use weft_core::table::jit_layout::KeyLayout;
use weft_core::table::{ColumnRef, Table};
use weft_core::types::Type;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{Op, TableId, Ty, Value};

/// The longest key in registers.
const BYTES_MAX: u32 = 128;
/// Bytes of a part's length.
pub(super) const LEN_BYTES: u32 = 4;

/// A key in registers.
#[derive(Clone, Debug)]
pub(super) struct RegisterKey {
    /// The table whose key it is.
    pub(super) table: TableId,
    /// Whether the parts have the expected lengths; if not, they are meaningless.
    pub(super) has_expected_lengths: clif::Value,
    /// The parts, each as the word that a row has for it.
    parts: Vec<(KeyPart, clif::Value)>,
    /// Stack slot for the canonical bytes, which are written on first use.
    slot: StackSlot,
}

impl RegisterKey {
    /// Emits the words of a row with this key, by index.
    pub(super) fn words(&self, segment: &mut Segment<'_, '_>) -> Vec<(u16, clif::Value)> {
        let words_of = |(part, word): &(KeyPart, clif::Value)| {
            let len = part.len.map(|len| (part.at.word, segment.int(i64::from(len))));
            len.into_iter().chain([(part.at.word + u16::from(part.len.is_some()), *word)])
        };
        self.parts.iter().flat_map(words_of).collect()
    }
}

/// A part of a key with its column.
#[derive(Clone, Copy, Debug)]
struct KeyPart {
    at: ColumnRef,
    /// The expected length of bytes; None for a word.
    len: Option<u32>,
}

impl KeyPart {
    /// The number of its canonical bytes.
    fn bytes(&self) -> u32 {
        self.len.map_or(8, |len| LEN_BYTES + len)
    }
}

/// The number of bytes of a key with these parts.
fn bytes_of<'c>(parts: impl IntoIterator<Item = &'c KeyPart>) -> u32 {
    parts.into_iter().map(KeyPart::bytes).sum()
}

/// The length of nearly all values of a bytes type; None if it varies.
pub(super) fn expected_len(ty: Type) -> Option<u32> {
    match ty {
        Type::IpAddr => Some(4),
        Type::Mac => Some(6),
        _ => None,
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits the canonical bytes of a key of several columns.
    pub(super) fn key(&mut self, parts: &[Value], result: Option<Value>) -> Result<Val, Unsupported> {
        let usual = result.and_then(|result| Some((result, self.expected_parts(parts, result)?)));
        let Some((result, (table, columns))) = usual else { return self.key_by_helper(parts) };
        let [made, other, done] = [(); 3].map(|()| self.segment.builder.create_block());
        let [start, len] = [(); 2].map(|()| self.segment.builder.append_block_param(done, I64));
        let has_expected_lengths = self.segment.builder.append_block_param(done, I8);
        let (is_it, values) = self.parts(parts, &columns)?;
        self.ins().brif(is_it, made, [], other, []);

        self.segment.builder.switch_to_block(made);
        let held = self.row_words(&values, &columns);
        let total = bytes_of(&columns);
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, total.next_multiple_of(8), 3);
        let slot = self.segment.builder.create_sized_stack_slot(slot);
        let address = self.ins().stack_addr(I64, slot, 0);
        let total = self.segment.int(i64::from(total));
        let taken = self.segment.take_scratch(total);
        let fits = self.segment.icmp_imm(IntCC::NotEqual, taken, 0);
        let mut args: Vec<BlockArg> = [address, taken, fits].map(BlockArg::from).into();
        args.extend(held.iter().map(|(_, word)| BlockArg::from(*word)));
        self.ins().jump(done, &args);

        self.segment.builder.set_cold_block(other);
        self.segment.builder.switch_to_block(other);
        let (other_start, other_len) = self.key_by_helper(parts)?.two();
        let (zero, no) = (self.segment.int(0), self.segment.bool(false));
        let mut args: Vec<BlockArg> = [other_start, other_len, no].map(BlockArg::from).into();
        args.extend(held.iter().map(|_| BlockArg::from(zero)));
        self.ins().jump(done, &args);

        let mut param = || self.segment.builder.append_block_param(done, I64);
        let parts = columns.into_iter().map(|column| (column, param())).collect();
        self.segment.builder.switch_to_block(done);
        self.made_keys[result.0 as usize] = Some(RegisterKey { table, has_expected_lengths, parts, slot });
        Ok(Val::Two(start, len))
    }

    /// The hash of a key for the prefetcher; jumps to `other` if its parts do not have the expected lengths. None if
    /// the key cannot be in registers.
    pub(super) fn hash_ahead(
        &mut self,
        by: HashKey,
        key: Value,
        other: clif::Block,
    ) -> Result<Option<clif::Value>, Unsupported> {
        let insts = self.function.blocks.iter().flat_map(|block| &block.insts);
        let parts = insts.filter(|inst| inst.result == Some(key)).find_map(|inst| match &inst.op {
            Op::Key(parts) => Some(parts),
            _ => None,
        });
        let Some(parts) = parts else { return Ok(None) };
        let Some((_, columns)) = self.expected_parts(parts, key) else { return Ok(None) };
        let (has_expected_lengths, values) = self.parts(parts, &columns)?;
        let made = self.segment.builder.create_block();
        self.ins().brif(has_expected_lengths, made, [], other, []);
        self.segment.builder.switch_to_block(made);
        let parts = self.row_words(&values, &columns);
        Ok(Some(self.hash_of_parts(by, &parts)))
    }

    /// The hash of a key in registers. It is not needed where the row was prefetched.
    pub(super) fn hash_of_made(&mut self, by: HashKey, made: &RegisterKey) -> clif::Value {
        self.hash_of_parts(by, &made.parts)
    }

    /// Stores the canonical bytes of a key in registers.
    pub(super) fn store_made(&mut self, made: &RegisterKey) {
        let bytes = self.segment.canonical(&made.parts);
        let address = self.ins().stack_addr(I64, made.slot, 0);
        for (at, word) in (0..).step_by(8).zip(bytes) {
            self.ins().store(PLAIN, word, address, at);
        }
    }

    fn hash_of_parts(&mut self, by: HashKey, parts: &[(KeyPart, clif::Value)]) -> clif::Value {
        let bytes = self.segment.canonical(parts);
        self.hash_of(by, &bytes, bytes_of(parts.iter().map(|(part, _)| part)))
    }

    /// Parts of the expected lengths, as the words that a row has for them.
    fn row_words(&mut self, values: &[(Ty, Val)], columns: &[KeyPart]) -> Vec<(KeyPart, clif::Value)> {
        values.iter().zip(columns).map(|(value, column)| (*column, self.word_of(*value, *column))).collect()
    }

    /// Whether all parts have the expected lengths, and the parts.
    fn parts(
        &mut self,
        parts: &[Value],
        columns: &[KeyPart],
    ) -> Result<(clif::Value, Vec<(Ty, Val)>), Unsupported> {
        let mut has_expected_lengths = self.segment.bool(true);
        let mut values = Vec::new();
        for (part, column) in parts.iter().zip(columns) {
            let (ty, value) = (self.ty(*part), self.get(*part)?);
            if let Some(len) = column.len {
                let same = self.segment.icmp_imm(IntCC::Equal, value.two().1, i64::from(len));
                has_expected_lengths = self.ins().band(has_expected_lengths, same);
            }
            values.push((ty, value));
        }
        Ok((has_expected_lengths, values))
    }

    /// Emits a helper call that encodes the parts of a key.
    fn key_by_helper(&mut self, parts: &[Value]) -> Result<Val, Unsupported> {
        let (frame, cells) = (self.segment.frame, self.cells(parts)?);
        let n = self.segment.int(parts.len() as i64);
        Ok(self.segment.call_two(Helper::Key, &[frame, cells, n]))
    }

    /// The table that a key is for, and its columns, if the key can be in registers. In a handler with loops one key
    /// would overwrite another.
    fn expected_parts(&self, parts: &[Value], result: Value) -> Option<(TableId, Vec<KeyPart>)> {
        let blocks = &self.function.blocks;
        if blocks.iter().any(|block| block.scan_rows_max.is_some()) {
            return None;
        }
        let mut finds = blocks.iter().flat_map(|block| &block.insts).filter_map(|inst| match inst.op {
            Op::Find(table, key) if key == result => Some(table),
            _ => None,
        });
        let table = finds.next()?;
        let columns = expected_columns(self.segment.plan.state.tables.get(usize::from(table.0))?)?;
        let is_of =
            |(part, column): (&Value, &KeyPart)| (self.ty(*part) == Ty::Bytes) == column.len.is_some();
        let bytes = bytes_of(&columns);
        let fits = columns.len() == parts.len() && parts.iter().zip(&columns).all(is_of);
        (fits && bytes <= BYTES_MAX).then_some((table, columns))
    }

    /// The word that a row has for a part: for bytes, the first eight, which are all.
    fn word_of(&mut self, (ty, value): (Ty, Val), column: KeyPart) -> clif::Value {
        let (Some(len), Val::Two(start, _)) = (column.len, value) else {
            return self.segment.pack(ty, value);
        };
        let first = self.ins().uload32(UNALIGNED, start, 0);
        match len - 4 {
            0 => first,
            _ => {
                let last = self.ins().uload16(I64, UNALIGNED, start, 4);
                let last = self.segment.ishl_imm(last, 32);
                self.ins().bor(first, last)
            }
        }
    }

    /// Emits [`HashKey::hash_bytes`] of bytes in words, the last of them zero-padded.
    fn hash_of(&mut self, by: HashKey, words: &[clif::Value], len: u32) -> clif::Value {
        let keys = by.words();
        if len <= SHORT_BYTES_MAX as u32 {
            let second = words.get(1).copied().unwrap_or_else(|| self.segment.int(0));
            let scaled = self.segment.int(u64::from(len).wrapping_mul(keys[2]) as i64);
            return self.hash_short(by, [words[0], second], scaled);
        }
        let [k0, k1, k2] = keys.map(|k| self.segment.int(k as i64));
        let len_word = self.segment.int(i64::from(len));
        let (mut x, mut y) = (k1, k2);
        let mut at = 0;
        while at + 16 < len {
            let nth = at as usize / 8;
            let left = self.ins().bxor(x, words[nth]);
            let right = self.ins().bxor(k0, words[nth + 1]);
            x = self.fold_mul(left, right);
            let turns = self.segment.int(23);
            let turned = self.ins().rotl(y, turns);
            y = self.ins().bxor(turned, x);
            at += 16;
        }
        let [first, last] = [16, 8].map(|behind| self.segment.word_at(words, len - behind));
        let left = self.ins().bxor(x, first);
        let left = self.ins().bxor(left, len_word);
        let right = self.ins().bxor(y, k2);
        let right = self.ins().bxor(right, last);
        self.scatter(by, left, right)
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// [`HashKey::hash_bytes`] of at most [`SHORT_BYTES_MAX`] bytes: from their words, and from their number, `scaled`
    /// by the last word of the hash key.
    pub(super) fn hash_short(
        &mut self,
        by: HashKey,
        [first, second]: [clif::Value; 2],
        scaled: clif::Value,
    ) -> clif::Value {
        let [k0, k1, _] = by.words().map(|k| self.segment.int(k as i64));
        let left = self.ins().bxor(first, k0);
        let right = self.ins().bxor(second, k1);
        let right = self.ins().bxor(right, scaled);
        self.scatter(by, left, right)
    }

    /// Emits [`HashKey::hash_word`].
    pub(super) fn hash_word_by(&mut self, by: HashKey, word: clif::Value) -> clif::Value {
        let [k0, k1, _] = by.words().map(|k| self.segment.int(k as i64));
        let mixed = self.ins().bxor(word, k0);
        self.scatter(by, mixed, k1)
    }

    /// Emits both products of the hash.
    fn scatter(&mut self, by: HashKey, left: clif::Value, right: clif::Value) -> clif::Value {
        let first = self.fold_mul(left, right);
        let [.., k2] = by.words();
        let k2 = self.segment.int(k2 as i64);
        self.fold_mul(first, k2)
    }
}

impl Segment<'_, '_> {
    /// Emits the canonical bytes of a key as words, the last of them zero-padded.
    fn canonical(&mut self, parts: &[(KeyPart, clif::Value)]) -> Vec<clif::Value> {
        let mut words = Vec::new();
        let (mut last, mut bits) = (None, 0);
        let mut append = |segment: &mut Self, value: clif::Value, more: u32| {
            let up = segment.ishl_imm(value, i64::from(bits));
            let joined = last.map_or(up, |last| segment.builder.ins().bor(last, up));
            last = Some(joined);
            if bits + more >= 64 {
                words.push(joined);
                let over = 64 - bits;
                last = (bits + more > 64).then(|| segment.ushr_imm(value, i64::from(over)));
            }
            bits = (bits + more) % 64;
        };
        for (column, part) in parts {
            if let Some(len) = column.len {
                let len = self.int(i64::from(len));
                append(self, len, LEN_BYTES * 8);
            }
            append(self, *part, column.len.unwrap_or(8) * 8);
        }
        words.extend(last);
        words
    }

    /// Emits the eight bytes at an offset of bytes in words.
    fn word_at(&mut self, words: &[clif::Value], at: u32) -> clif::Value {
        let (nth, bits) = (at as usize / 8, i64::from(at % 8) * 8);
        if bits == 0 {
            return words[nth];
        }
        let low = self.ushr_imm(words[nth], bits);
        let high = self.ishl_imm(words[nth + 1], 64 - bits);
        self.builder.ins().bor(low, high)
    }
}

/// The columns of a key with several, if each has an expected length.
fn expected_columns(table: &Table) -> Option<Vec<KeyPart>> {
    let KeyLayout::Columns(n) = table.jit_layout().key else { return None };
    let columns = table.columns().take(usize::from(n)).map(|(column, at)| match at.bytes_max {
        0 => Some(KeyPart { at, len: None }),
        _ => Some(KeyPart { at, len: Some(expected_len(column.ty)?) }),
    });
    columns.collect()
}
