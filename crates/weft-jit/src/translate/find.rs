//! Inline table lookups: probes the first two slots of a key's home, which hold nearly every row.

use super::key::RegisterKey;
use super::state::RowCell;
use super::{FIXED, PLAIN, PartTranslator, Segment, UNALIGNED, Val};
use crate::frame::arc_offset;
use crate::helpers::{Cold, Helper, ZERO_ROW};
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I64};
use weft_core::hash::HashKey;
use weft_core::table::jit_layout::{self, AgeWords, JitLayout, KeyLayout};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{TableId, Value};

/// Keys of up to this many bytes are looked up inline.
const SHORT_MAX: i64 = 16;
/// The smallest page size.
const PAGE_BYTES: i64 = 4096;

/// The bits of a row's number that give its first word in its segment.
const WORD_MASK: i64 = (1 << jit_layout::WORD_BITS) - 1;

/// A key and its hash.
pub(super) struct Key {
    hash: Hash,
    is: RowPattern,
}

/// The hash of a key.
enum Hash {
    Known(clif::Value),
    /// The hash of a key in registers; it is not computed if the row was prefetched.
    Of(HashKey, RegisterKey),
}

/// The addresses of a key's stripe and of the first slot of its home.
pub(super) struct Home {
    /// None if there is only one stripe.
    stripe: Option<clif::Value>,
    pub(super) slots: clif::Value,
}

/// The contents of a matching row.
enum RowPattern {
    /// The length in bytes, and the words of the bytes, zero padded.
    Bytes(clif::Value, [clif::Value; 2]),
    /// These words, by index.
    Words(Vec<(u16, clif::Value)>),
}

impl Segment<'_, '_> {
    /// Whether bytes are some, at most `max`, and so many can be read from where they start.
    pub(super) fn is_within(&mut self, start: clif::Value, len: clif::Value, max: i64) -> clif::Value {
        let less_one = self.iadd_imm(len, -1);
        let is_short = self.icmp_imm(IntCC::UnsignedLessThan, less_one, max);
        let is_in_page = self.is_in_page(start, max);
        self.builder.ins().band(is_short, is_in_page)
    }

    /// Whether so many bytes from an address on are in its page.
    pub(super) fn is_in_page(&mut self, start: clif::Value, n: i64) -> clif::Value {
        let in_page = self.band_imm(start, PAGE_BYTES - 1);
        self.icmp_imm(IntCC::UnsignedLessThanOrEqual, in_page, PAGE_BYTES - n)
    }

    /// Emits a word without its upper `above` bits.
    pub(super) fn cut(&mut self, word: clif::Value, above: clif::Value) -> clif::Value {
        let up = self.builder.ins().ishl(word, above);
        self.builder.ins().ushr(up, above)
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits the look-up of the row with this key; no row if there is none.
    pub(super) fn find(&mut self, table: TableId, key: Value) -> Result<Val, Unsupported> {
        let held = &self.segment.plan.state.tables[usize::from(table.0)];
        let (near, offset, hash) = (held.jit_layout(), arc_offset(held), held.hash_key());
        let made = self.made_keys[key.0 as usize].clone().filter(|made| made.table == table);
        let value = if made.is_some() { self.get_unread(key)? } else { self.get(key)? };
        let ty = self.ty(key);
        let (pointer, now) = (self.table(table), self.segment.load_now());
        match (near.key, value, &made) {
            (KeyLayout::Word(_), Val::One(_), _)
            | (KeyLayout::Bytes { .. }, Val::Two(..), _)
            | (KeyLayout::Columns(_), Val::Two(..), Some(_)) => {}
            (_, Val::Two(start, len), _) => {
                return Ok(self.segment.call_two(Helper::FindParts, &[pointer, start, len, now]));
            }
            (_, Val::One(_), _) => {
                let word = self.segment.pack(ty, value);
                return Ok(self.segment.call_cold_for_two(Cold::FindInt, &[pointer, word, now]));
            }
        };
        let [far, done] = [(); 2].map(|()| self.segment.builder.create_block());
        let [row, address] = [(); 2].map(|()| self.segment.builder.append_block_param(done, I64));
        let key_of = match (value, made) {
            (_, Some(made)) => {
                let usual = self.segment.builder.create_block();
                self.ins().brif(made.has_expected_lengths, usual, [], far, []);
                self.segment.builder.switch_to_block(usual);
                let words = made.words(self.segment);
                Key { hash: Hash::Of(hash, made), is: RowPattern::Words(words) }
            }
            (Val::Two(..), None) => self.short_key(hash, key, value, far),
            (value, None) => {
                let KeyLayout::Word(at) = near.key else { unreachable!("other keys returned above") };
                let word = self.segment.pack(ty, value);
                Key {
                    hash: Hash::Known(self.hash_word_by(hash, word)),
                    is: RowPattern::Words(vec![(at, word)]),
                }
            }
        };
        let base = self.ins().load(I64, PLAIN, pointer, 0);
        if let Some(slot_at) = self.segment.prefetch_layout.find_slot(table.0) {
            self.take_prefetched_row(slot_at, near, (base, offset as i32), &key_of, (far, done));
        }
        self.probe(near, (base, offset as i32), &key_of, far, done);

        self.segment.builder.set_cold_block(far);
        self.segment.builder.switch_to_block(far);
        let found = match self.get(key)? {
            Val::Two(start, len) => {
                self.segment.call_cold_for_two(Cold::FindBytes, &[pointer, start, len, now])
            }
            value => {
                let word = self.segment.pack(ty, value);
                self.segment.call_cold_for_two(Cold::FindInt, &[pointer, word, now])
            }
        };
        let (found_row, found_address) = found.two();
        self.ins().jump(done, &[found_row.into(), found_address.into()]);
        self.segment.builder.switch_to_block(done);
        Ok(Val::Two(row, address))
    }

    /// The words and the hash ([`HashKey::hash_bytes`]) of a short key; jumps to `far` for others.
    pub(super) fn short_key(&mut self, by: HashKey, key: Value, bytes: Val, far: clif::Block) -> Key {
        let (len, words) = self.short_words(key, bytes, far);
        let [.., k2] = by.words();
        let k2 = self.segment.int(k2 as i64);
        let scaled = self.ins().imul(len, k2);
        Key { hash: Hash::Known(self.hash_short(by, words, scaled)), is: RowPattern::Bytes(len, words) }
    }

    /// Emits the hash of a key, unless it has been computed.
    pub(super) fn hash_of_key(&mut self, key: &Key) -> clif::Value {
        match &key.hash {
            Hash::Known(hash) => *hash,
            Hash::Of(by, made) => self.hash_of_made(*by, made),
        }
    }

    /// The words of a value of at most [`SHORT_MAX`] bytes, with its length; jumps to `far` for others.
    ///
    /// Bytes are read as whole words, and those after the end are masked. A read never leaves its page, so it never
    /// faults.
    pub(super) fn short_words(
        &mut self,
        value: Value,
        bytes: Val,
        far: clif::Block,
    ) -> (clif::Value, [clif::Value; 2]) {
        let (start, len) = bytes.two();
        if let Some(cell) = self.cells_in_rows[value.0 as usize] {
            return self.short_words_of(cell, start, far);
        }
        let [is_short, eight, sixteen, both] = [(); 4].map(|()| self.segment.builder.create_block());
        let [first, second] = [(); 2].map(|()| self.segment.builder.append_block_param(both, I64));
        let is_near = self.segment.is_within(start, len, SHORT_MAX);
        self.ins().brif(is_near, is_short, [], far, []);

        self.segment.builder.switch_to_block(is_short);
        let word = self.ins().load(I64, UNALIGNED, start, 0);
        let bits = self.segment.ishl_imm(len, 3);
        // Shifts count modulo 64: by the number of excess bits in the last word.
        let above = self.ins().ineg(bits);
        let fits_one = self.segment.icmp_imm(IntCC::UnsignedLessThanOrEqual, len, 8);
        self.ins().brif(fits_one, eight, [], sixteen, []);

        self.segment.builder.switch_to_block(eight);
        let cut = self.segment.cut(word, above);
        let zero = self.segment.int(0);
        self.ins().jump(both, &[cut.into(), zero.into()]);

        self.segment.builder.switch_to_block(sixteen);
        let last = self.ins().load(I64, UNALIGNED, start, 8);
        let cut = self.segment.cut(last, above);
        self.ins().jump(both, &[word.into(), cut.into()]);

        self.segment.builder.switch_to_block(both);
        (len, [first, second])
    }

    /// As [`PartTranslator::short_words`], for a cell at an address.
    fn short_words_of(
        &mut self,
        RowCell { bytes_max, len }: RowCell,
        start: clif::Value,
        far: clif::Block,
    ) -> (clif::Value, [clif::Value; 2]) {
        let is_short = self.segment.builder.create_block();
        let less_one = self.segment.iadd_imm(len, -1);
        let most = SHORT_MAX.min(bytes_max as i64);
        let fits = self.segment.icmp_imm(IntCC::UnsignedLessThan, less_one, most);
        self.ins().brif(fits, is_short, [], far, []);
        self.segment.builder.switch_to_block(is_short);
        let (first, zero) = (self.ins().load(I64, UNALIGNED, start, 0), self.segment.int(0));
        let second = match bytes_max {
            ..=8 => zero,
            _ => {
                let second = self.ins().load(I64, UNALIGNED, start, 8);
                let has_two = self.segment.icmp_imm(IntCC::UnsignedGreaterThan, len, 8);
                self.ins().select(has_two, second, zero)
            }
        };
        (len, [first, second])
    }

    /// Jumps to `done` with the prefetched row, if there is one, it lives, and it has this key; to `far`, if it may
    /// have expired.
    fn take_prefetched_row(
        &mut self,
        slot_at: usize,
        near: JitLayout,
        base: (clif::Value, i32),
        key: &Key,
        (far, done): (clif::Block, clif::Block),
    ) {
        let [hit, same, other] = [(); 3].map(|()| self.segment.builder.create_block());
        let (prefetched, first) = (self.segment.prefetched, slot_at as i32 * 8);
        let [hash, row, address] = [0, 8, 16].map(|at| self.ins().load(I64, FIXED, prefetched, first + at));
        self.ins().brif(row, hit, [], other, []);

        self.segment.builder.switch_to_block(hit);
        let tag = self.ins().ireduce(I32, hash);
        let tag = self.ins().uextend(I64, tag);
        let live = self.segment.int(jit_layout::ROW_LIVE as i64);
        let wanted = self.ins().bor(tag, live);
        let word = self.ins().load(I64, PLAIN, address, 0);
        let gone = self.ins().bxor(word, wanted);
        let differs = self.differs(near, key, address);
        let differs = self.ins().bor(differs, gone);
        self.ins().brif(differs, other, [], same, []);

        self.segment.builder.switch_to_block(same);
        self.branch_if_over(near.age_words, base, address, far);
        self.ins().jump(done, &[row.into(), address.into()]);
        self.segment.builder.switch_to_block(other);
    }

    /// Jumps to `done` with the row, or with none; to `far`, if it is not in the first two slots.
    /// [`weft_core::table::jit_layout`] describes the probe. Dependent loads are ordered on every machine.
    fn probe(
        &mut self,
        near: JitLayout,
        (base, offset): (clif::Value, i32),
        key: &Key,
        far: clif::Block,
        done: clif::Block,
    ) {
        let [hit, miss, absent, same] = [(); 4].map(|()| self.segment.builder.create_block());
        let hash = self.hash_of_key(key);
        let Home { stripe, slots } = self.home(near, (base, offset), hash);
        let [first, second] = [0, 8].map(|at| self.ins().load(I64, PLAIN, slots, at));
        // XOR with the tag leaves only the row's number in a slot with this tag. Which of the two slots it is is
        // unpredictable, so it is no branch.
        let tag_above = self.segment.ishl_imm(hash, 32);
        let [in_first, in_second] = [first, second].map(|slot| self.ins().bxor(slot, tag_above));
        let rest = self.segment.ushr_imm(in_first, 32);
        let number = self.ins().select(rest, in_second, in_first);
        let local = self.segment.iadd_imm(number, -1);
        let rest = self.segment.ushr_imm(local, 32);
        self.ins().brif(rest, miss, [], hit, []);

        self.segment.builder.set_cold_block(miss);
        self.segment.builder.switch_to_block(miss);
        let lower = self.segment.int(i64::from(u32::MAX));
        let last = self.ins().bor(tag_above, lower);
        let before = self.segment.iadd_imm(second, -1);
        let is_past = self.ins().icmp(IntCC::UnsignedGreaterThan, before, last);
        self.ins().brif(is_past, absent, [], far, []);
        self.segment.builder.switch_to_block(absent);
        self.segment.builder.set_cold_block(absent);
        let (none, zeros) = (self.segment.int(0), self.segment.address(ZERO_ROW.address()));
        self.ins().jump(done, &[none.into(), zeros.into()]);

        self.segment.builder.switch_to_block(hit);
        let mut at = local;
        if let Some(stripe) = stripe {
            let first = self.segment.ishl_imm(stripe, i64::from(near.local_bits));
            at = self.ins().iadd(at, first);
        }
        let words = self.words_of_segment((base, offset), at);
        let in_segment = self.segment.band_imm(at, WORD_MASK);
        let in_segment = self.segment.ishl_imm(in_segment, 3);
        let address = self.ins().iadd(words, in_segment);
        let differs = self.differs(near, key, address);
        self.ins().brif(differs, far, [], same, []);

        self.segment.builder.switch_to_block(same);
        self.branch_if_over(near.age_words, (base, offset), address, far);
        let row = self.segment.iadd_imm(at, 1);
        self.ins().jump(done, &[row.into(), address.into()]);
    }

    /// Emits the address of the first slot of a key with this hash.
    pub(super) fn home(
        &mut self,
        near: JitLayout,
        (base, offset): (clif::Value, i32),
        hash: clif::Value,
    ) -> Home {
        let begins = self.ins().load(I64, PLAIN, base, offset + jit_layout::TABLE_BEGINS as i32);
        let stripe = (near.stripe_mask != 0).then(|| {
            let upper = self.segment.ushr_imm(hash, 32);
            self.segment.band_imm(upper, near.stripe_mask as i64)
        });
        let at = match stripe {
            Some(nth) => {
                let behind = self.segment.ishl_imm(nth, 3);
                self.ins().iadd(begins, behind)
            }
            None => begins,
        };
        let begin = self.ins().load(I64, PLAIN, at, 0);
        let shift = self.segment.ushr_imm(begin, i64::from(jit_layout::BEGIN_ADDRESS_BITS));
        let slots = self.segment.band_imm(begin, (1 << jit_layout::BEGIN_ADDRESS_BITS) - 1);
        let tag = self.ins().ireduce(I32, hash);
        let tag = self.ins().uextend(I64, tag);
        let home = self.ins().ushr(tag, shift);
        let behind = self.segment.ishl_imm(home, 3);
        Home { stripe, slots: self.ins().iadd(slots, behind) }
    }

    /// The address of the words of the row's segment; 0 if the segment is not allocated yet.
    fn words_of_segment(&mut self, (base, offset): (clif::Value, i32), at: clif::Value) -> clif::Value {
        let segments = self.ins().load(I64, PLAIN, base, offset + jit_layout::TABLE_SEGMENTS as i32);
        let nth = self.segment.ushr_imm(at, i64::from(jit_layout::WORD_BITS));
        let behind = self.segment.ishl_imm(nth, 3);
        let segment = self.ins().iadd(segments, behind);
        self.ins().load(I64, PLAIN, segment, 0)
    }

    /// Emits a jump to `far` if the row at this address may have expired.
    fn branch_if_over(
        &mut self,
        words: AgeWords,
        (base, offset): (clif::Value, i32),
        address: clif::Value,
        far: clif::Block,
    ) {
        let ages = [(words.used, jit_layout::TABLE_TTL), (words.inserted, jit_layout::TABLE_TTL_ON_INSERT)];
        for (word, ttl_at) in ages {
            let Some(word) = word else { continue };
            let lives = self.segment.builder.create_block();
            let now = self.segment.load_now();
            let stamp = self.ins().load(I64, PLAIN, address, i32::from(word) * 8);
            let ttl = self.ins().load(I64, PLAIN, base, offset + ttl_at as i32);
            let (age, overflows) = self.ins().ssub_overflow(now, stamp);
            let is_over = self.ins().icmp(IntCC::SignedGreaterThanOrEqual, age, ttl);
            let is_over = self.ins().bor(is_over, overflows);
            self.ins().brif(is_over, far, [], lives, []);
            self.segment.builder.switch_to_block(lives);
        }
    }

    /// The next row of a scan, or none. A table with one stripe is scanned inline at the cursor.
    pub(super) fn scan_row(&mut self, table: TableId, cursor: Value) -> Result<Val, Unsupported> {
        let held = &self.segment.plan.state.tables[usize::from(table.0)];
        let (steps, offset) = (held.scan_layout(), arc_offset(held) as i32);
        let (pointer, now) = (self.table(table), self.segment.load_now());
        let cursor = self.get(cursor)?.one();
        if !steps.has_one_stripe {
            return Ok(self.segment.call_two(Helper::ScanRow, &[pointer, cursor, now]));
        }
        let [some, there, lives, end, far, done] = [(); 6].map(|()| self.segment.builder.create_block());
        let [row, address] = [(); 2].map(|()| self.segment.builder.append_block_param(done, I64));
        let base = self.ins().load(I64, PLAIN, pointer, 0);
        let stripe = self.ins().load(I64, PLAIN, base, offset + jit_layout::TABLE_STRIPES as i32);
        let high = self.ins().uload32(PLAIN, stripe, jit_layout::STRIPE_HIGH as i32);
        let is_unused = self.ins().icmp(IntCC::UnsignedGreaterThanOrEqual, cursor, high);
        self.ins().brif(is_unused, end, [], some, []);

        self.segment.builder.switch_to_block(some);
        let words = self.words_of_segment((base, offset), cursor);
        let word = self.segment.band_imm(cursor, WORD_MASK);
        let last = i64::from(steps.segment_words - steps.row_words);
        let is_row = self.segment.icmp_imm(IntCC::UnsignedLessThanOrEqual, word, last);
        let none = self.segment.int(0);
        let words_or_none = self.ins().select(is_row, words, none);
        self.ins().brif(words_or_none, there, [], far, []);

        self.segment.builder.switch_to_block(there);
        let in_segment = self.segment.ishl_imm(word, 3);
        let at = self.ins().iadd(words, in_segment);
        let first = self.ins().load(I64, PLAIN, at, 0);
        let is_live = self.segment.band_imm(first, jit_layout::ROW_LIVE as i64);
        self.ins().brif(is_live, lives, [], far, []);

        self.segment.builder.switch_to_block(lives);
        self.branch_if_over(steps.age_words, (base, offset), at, far);
        let found = self.segment.iadd_imm(cursor, 1);
        self.ins().jump(done, &[found.into(), at.into()]);

        self.segment.builder.switch_to_block(end);
        let (none, zeros) = (self.segment.int(0), self.segment.address(ZERO_ROW.address()));
        self.ins().jump(done, &[none.into(), zeros.into()]);

        self.segment.builder.set_cold_block(far);
        self.segment.builder.switch_to_block(far);
        let (found, at) = self.segment.call_two(Helper::ScanRow, &[pointer, cursor, now]).two();
        self.ins().jump(done, &[found.into(), at.into()]);
        self.segment.builder.switch_to_block(done);
        Ok(Val::Two(row, address))
    }

    /// Emits the cursor after a row ([`weft_core::table::Table::cursor_behind`]).
    pub(super) fn scan_next(&mut self, table: TableId, row: Value) -> Result<Val, Unsupported> {
        let steps = self.segment.plan.state.tables[usize::from(table.0)].scan_layout();
        let at = self.get(row)?.two().0;
        let at = self.segment.iadd_imm(at, -1);
        let word = self.segment.band_imm(at, WORD_MASK);
        let last = i64::from(steps.segment_words - steps.row_words);
        let has_next = self.segment.icmp_imm(IntCC::UnsignedLessThan, word, last);
        let next = self.segment.iadd_imm(at, i64::from(steps.row_words));
        let mask = self.segment.int(WORD_MASK);
        let segment_end = self.ins().bor(at, mask);
        let first_behind = self.segment.iadd_imm(segment_end, 1);
        Ok(Val::One(self.ins().select(has_next, next, first_behind)))
    }

    /// Emits a word that is not 0 if the row at this address has another key.
    fn differs(&mut self, near: JitLayout, key: &Key, address: clif::Value) -> clif::Value {
        let word = |this: &mut Self, at: u16, wanted: clif::Value| {
            let word = this.ins().load(I64, PLAIN, address, i32::from(at) * 8);
            this.ins().bxor(word, wanted)
        };
        let (at, max) = match near.key {
            KeyLayout::Bytes { word, max } => (word, max),
            KeyLayout::Word(_) | KeyLayout::Columns(_) => (0, 0),
        };
        match &key.is {
            RowPattern::Words(words) => {
                let differ: Vec<clif::Value> =
                    words.iter().map(|(at, wanted)| word(self, *at, *wanted)).collect();
                let any = differ.into_iter().reduce(|any, other| self.ins().bor(any, other));
                any.unwrap_or_else(|| self.segment.int(0))
            }
            RowPattern::Bytes(len, [first, second]) => {
                let other_len = word(self, at, *len);
                let other_first = word(self, at + 1, *first);
                let differs = self.ins().bor(other_len, other_first);
                // Words after the bytes are stale, so only words with bytes are compared. A key longer than its column
                // differs from any row in its length.
                if max <= 8 {
                    return differs;
                }
                let other_second = word(self, at + 2, *second);
                let zero = self.segment.int(0);
                let is_long = self.segment.icmp_imm(IntCC::UnsignedGreaterThan, *len, 8);
                let other_second = self.ins().select(is_long, other_second, zero);
                self.ins().bor(differs, other_second)
            }
        }
    }
}
