//! Inline matches of rows: packs the values into the classifier's key, and finds the row in place if the rows are in
//! bit vectors or a trie ([`weft_core::matching::jit_layout`]).
//!
//! Rows, and the structures built from them, may change while the code is in use. So each lookup checks that the
//! matcher still has the layout that was compiled. If not, a helper finds the row: by the packed key, while keys are
//! packed the same way, else by the values.

use super::{FIXED, PLAIN, PartTranslator, UNALIGNED, Val, cell_tag};
use crate::frame::arc_offset;
use crate::helpers::{CELL_BYTES, Cell, Helper, NULL_LEN, ZERO_ROW, tag};
use crate::prefetch::MATCHED;
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64, I64X2};
use cranelift_codegen::ir::{InstBuilder as _, StackSlotData, StackSlotKind};
use std::sync::Arc;
use weft_core::abi::{Parts, State};
use weft_core::classify::{KeyBits, WORDS_MAX};
use weft_core::inputs::InputSet;
use weft_core::matching::Matcher;
use weft_core::matching::jit_layout::{
    BitVectors, Chunk, Field, LinearScan, LookupMethod, MATCHER_BITS, MATCHER_CLASSES, MATCHER_LINEAR,
    MATCHER_LINES, MATCHER_LOOKUP, MATCHER_PACKING, MATCHER_ROOT, MATCHER_ROWS, MATCHER_SETS,
    MATCHER_SHORT_PREFIXES, NOTHING, PAGE_BITS, Packing, TRIE_LONG, TRIE_NODE, TrieField, is_paged,
};
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BlockId, Function, InputId, Inst, MatchId, Op, Value};
use weft_ir::program::Part;

/// Size of a row's entry, as a power of two.
const FOUND_SHIFT: i64 = 4;

/// The bits of one place of a key.
type Packed = (KeyBits, clif::Value);

/// The key of a small match that every pass looks up: the places of its parts, and their inputs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct SmallMatchKey(Vec<(Field, InputId)>);

impl SmallMatchKey {
    /// Finds the key of a match. None if it depends on other values, or not all passes look it up.
    fn of(
        state: &State,
        function: &Function,
        block: BlockId,
        (id, keys): (MatchId, &[(Value, Option<Value>)]),
    ) -> Option<Self> {
        let held = &state.matchers[usize::from(id.0)];
        let first = &function.blocks.first().filter(|_| block.0 == 0)?.insts;
        let made = |value: Value| first.iter().find(|inst| inst.result == Some(value)).map(|inst| &inst.op);
        let part = |(field, (value, null)): (Field, &(Value, Option<Value>))| {
            let is_there = null.is_none_or(|null| made(null) == Some(&Op::BoolConst(false)));
            match made(*value) {
                Some(Op::Input(input)) if is_there => Some((field, *input)),
                _ => None,
            }
        };
        let is_few = matches!(held.lookup_method(), Some(LookupMethod::Linear(_)));
        is_few.then(|| held.fields().zip(keys).map(part).collect::<Option<Vec<_>>>().map(Self)).flatten()
    }

    /// Collects the keys of all matches of a segment; none where an input changes in between.
    pub(super) fn all(state: &State, parts: &[Part<'_>]) -> Vec<Self> {
        let ops = parts.iter().flat_map(|part| &part.function.blocks).flat_map(|block| &block.insts);
        let changed = ops.filter_map(|inst| match inst.op {
            Op::SetInput(input, _) | Op::ClearInput(input) => Some(input),
            _ => None,
        });
        let changed: InputSet = changed.collect();
        let of_part = |part: &Part<'_>| {
            let first = part.function.blocks.first().map_or(&[][..], |block| &block.insts);
            let key = |inst: &Inst| match &inst.op {
                Op::Match(_, id, keys) => Self::of(state, part.function, BlockId(0), (*id, keys)),
                _ => None,
            };
            first.iter().filter_map(key).collect::<Vec<_>>()
        };
        let is_fixed = |key: &Self| key.0.iter().all(|(_, input)| !changed.contains(*input));
        parts.iter().flat_map(of_part).filter(is_fixed).collect()
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Emits the look-up of the first row that matches; no row if none does.
    pub(super) fn first_match(
        &mut self,
        block: BlockId,
        id: MatchId,
        keys: &[(Value, Option<Value>)],
    ) -> Result<Val, Unsupported> {
        let state = self.segment.plan.state;
        let held = &state.matchers[usize::from(id.0)];
        let pointer = self.matcher(id);
        let packed = self.packed(id, keys)?;
        let key = SmallMatchKey::of(state, self.function, block, (id, keys));
        let words = self.key_words(key, held.key_words(), &packed);
        let done = self.segment.builder.create_block();
        let found = [I64, I64].map(|ty| self.segment.builder.append_block_param(done, ty));
        if let Some(slot_at) = self.segment.prefetch_layout.match_slot(id.0) {
            self.take_prefetched_match(slot_at, &words, done);
        }
        let base = self.ins().load(I64, FIXED, pointer, 0);
        if let Some(way) = held.lookup_method() {
            let other = self.unless((base, arc_offset(held) + MATCHER_LOOKUP), held.lookup_hash());
            let row = match &way {
                LookupMethod::Linear(few) => self.compare_rows(held, base, *few, &words),
                LookupMethod::Vectors(chunks) => self.first_bit(held, base, chunks, &packed),
                LookupMethod::Trie(field) => self.interval(held, base, field, (&packed, other)),
            };
            self.give(row, done);
            self.segment.builder.switch_to_block(other);
            self.segment.builder.set_cold_block(other);
        }
        let other = self.unless((base, arc_offset(held) + MATCHER_PACKING), held.packing_hash());
        let row = self.match_words(pointer, &packed);
        self.give(row, done);
        self.segment.builder.switch_to_block(other);
        self.segment.builder.set_cold_block(other);
        let row = self.match_values(pointer, keys)?;
        self.give(row, done);
        self.segment.builder.switch_to_block(done);
        Ok(Val::Two(found[0], found[1]))
    }

    /// Continues with the prefetched row, if it is for the same key.
    fn take_prefetched_match(&mut self, slot_at: usize, key: &[clif::Value], done: clif::Block) {
        let [hit, other] = [(); 2].map(|()| self.segment.builder.create_block());
        let (prefetched, first) = (self.segment.prefetched, slot_at as i32 * 8);
        let word =
            |this: &mut Self, nth: usize| this.ins().load(I64, FIXED, prefetched, first + nth as i32 * 8);
        let wanted = core::iter::once(self.segment.int(MATCHED as i64)).chain(key.iter().copied());
        let mut differs = None;
        for (nth, wanted) in wanted.enumerate() {
            let word = word(self, nth);
            let one = self.ins().bxor(word, wanted);
            differs = Some(differs.map_or(one, |all| self.ins().bor(all, one)));
        }
        let differs = differs.unwrap_or_else(|| self.segment.int(1));
        self.ins().brif(differs, other, [], hit, []);
        self.segment.builder.switch_to_block(hit);
        let [row, address] = [1, 2].map(|nth| word(self, key.len() + nth));
        self.give(Val::Two(row, address), done);
        self.segment.builder.switch_to_block(other);
    }

    /// Continues if the word at an address and offset equals this one, else jumps to the returned block.
    fn unless(&mut self, (base, offset): (clif::Value, usize), word: u64) -> clif::Block {
        let [same, other] = [(); 2].map(|()| self.segment.builder.create_block());
        let held = self.ins().load(I64, FIXED, base, offset as i32);
        let word = self.segment.int(word as i64);
        let differs = self.ins().bxor(held, word);
        self.ins().brif(differs, other, [], same, []);
        self.segment.builder.switch_to_block(same);
        other
    }

    /// Emits a jump to a block with a row.
    fn give(&mut self, row: Val, to: clif::Block) {
        let (row, address) = row.two();
        self.ins().jump(to, &[row.into(), address.into()]);
    }

    /// Emits the words of a match's key.
    pub(super) fn packed_words(
        &mut self,
        id: MatchId,
        keys: &[(Value, Option<Value>)],
    ) -> Result<Vec<clif::Value>, Unsupported> {
        let packed = self.packed(id, keys)?;
        Ok(self.join(&packed))
    }

    /// Emits the bits of a match's key, by place.
    fn packed(&mut self, id: MatchId, keys: &[(Value, Option<Value>)]) -> Result<Vec<Packed>, Unsupported> {
        let pointer = self.matcher(id);
        let mut packed = Vec::new();
        let fields = self.segment.plan.state.matchers[usize::from(id.0)].fields();
        for (nth, (field, (value, null))) in fields.zip(keys).enumerate() {
            let null = null.map(|null| self.get(null)).transpose()?.map(Val::one);
            match field.packing {
                Packing::Other => self.pack_other(pointer, nth, field, (*value, null), &mut packed)?,
                _ => self.pack(field, (*value, null), &mut packed)?,
            }
        }
        Ok(packed)
    }

    /// Emits the address of the state's pointer to a matcher.
    fn matcher(&mut self, id: MatchId) -> clif::Value {
        let matchers = self
            .segment
            .load_state(State::PARTS + offset_of!(Parts, matchers) + self.segment.plan.vec_words.start);
        self.segment.iadd_imm(matchers, (usize::from(id.0) * size_of::<Arc<Matcher>>()) as i64)
    }

    /// Emits the bits of a number or of a short address.
    fn pack(
        &mut self,
        field: Field,
        (value, null): (Value, Option<clif::Value>),
        packed: &mut Vec<Packed>,
    ) -> Result<(), Unsupported> {
        let (ty, value) = (self.ty(value), self.get(value)?);
        let [low, high, _] = field.places;
        let (bits, for_null) = match (field.packing, value) {
            (Packing::Short { none }, Val::Two(start, len)) => {
                (self.short(start, len, none), u128::from(none))
            }
            (Packing::Number { bias, top, null }, value) => {
                let word = self.segment.pack(ty, value);
                let word = self.segment.iadd_imm(word, bias as i64);
                let most = self.segment.int(top as i64);
                (if top == u64::MAX { word } else { self.ins().umin(word, most) }, null)
            }
            _ => return Err(Unsupported { reason: "a match has a part of another type".into(), line: 0 }),
        };
        let zero = self.segment.int(0);
        for (place, bits, shift) in [(low, bits, 0), (high, zero, 64)] {
            let Some(place) = place else { continue };
            let bits = match null {
                Some(null) => {
                    let for_null = self.segment.int((for_null >> shift) as i64);
                    self.ins().select(null, for_null, bits)
                }
                None => bits,
            };
            packed.push((place, bits));
        }
        Ok(())
    }

    /// Emits four bytes as a number; `none` if there are not four.
    fn short(&mut self, start: clif::Value, len: clif::Value, none: u64) -> clif::Value {
        let is_short = self.segment.icmp_imm(IntCC::Equal, len, 4);
        // Only four bytes are read there.
        let (zeros, _) = self.segment.constant(&[0; 4]).two();
        let from = self.ins().select(is_short, start, zeros);
        let number = self.ins().load(I32, UNALIGNED, from, 0);
        let number = self.ins().bswap(number);
        let number = self.ins().uextend(I64, number);
        let none = self.segment.int(none as i64);
        self.ins().select(is_short, number, none)
    }

    /// Emits the bits of a part that the matcher packs.
    fn pack_other(
        &mut self,
        pointer: clif::Value,
        part: usize,
        field: Field,
        (value, null): (Value, Option<clif::Value>),
        packed: &mut Vec<Packed>,
    ) -> Result<(), Unsupported> {
        let (start, mut len) = self.get(value)?.two();
        if let Some(null) = null {
            let none = self.segment.int(NULL_LEN as i64);
            len = self.ins().select(null, none, len);
        }
        let words = self.words();
        let zero = self.segment.int(0);
        let places: Vec<KeyBits> = field.places.into_iter().flatten().collect();
        for place in &places {
            self.ins().store(UNALIGNED, zero, words, i32::from(place.word) * 8);
        }
        let part = self.segment.int(part as i64);
        self.segment.call(Helper::PackPart, &[pointer, words, part, start, len]);
        for place in places {
            let word = self.ins().load(I64, UNALIGNED, words, i32::from(place.word) * 8);
            let bits = self.bits_of(word, place.shift, place.bits);
            packed.push((place, bits));
        }
        Ok(())
    }

    /// Reserves a stack slot for the words of a key; returns its address.
    fn words(&mut self) -> clif::Value {
        let slot = StackSlotData::new(StackSlotKind::ExplicitSlot, (WORDS_MAX * 8) as u32, 3);
        let slot = self.segment.builder.create_sized_stack_slot(slot);
        self.ins().stack_addr(I64, slot, 0)
    }

    /// Emits `bits` bits of a word, from bit `shift` up.
    fn bits_of(&mut self, word: clif::Value, shift: u8, bits: u8) -> clif::Value {
        let down = self.segment.ushr_imm(word, shift.into());
        if bits >= 64 { down } else { self.segment.band_imm(down, (1i64 << bits) - 1) }
    }

    /// Emits a helper call that finds the row by the packed key.
    fn match_words(&mut self, pointer: clif::Value, packed: &[Packed]) -> Val {
        let to = self.words();
        for (at, word) in (0..).step_by(8).zip(self.join(packed)) {
            self.ins().store(UNALIGNED, word, to, at);
        }
        self.segment.call_two(Helper::MatchWords, &[pointer, to])
    }

    /// Emits a helper call that finds the row by the values of all parts.
    fn match_values(
        &mut self,
        pointer: clif::Value,
        keys: &[(Value, Option<Value>)],
    ) -> Result<Val, Unsupported> {
        let values: Vec<Value> = keys.iter().map(|(value, _)| *value).collect();
        let cells = self.cells(&values)?;
        for (at, (value, null)) in (0..).step_by(CELL_BYTES as usize).zip(keys) {
            let Some(null) = null else { continue };
            let null = self.get(*null)?.one();
            let [held, none] = [cell_tag(self.ty(*value)), tag::NULL].map(|tag| self.segment.int(tag as i64));
            let tag = self.ins().select(null, none, held);
            self.ins().store(PLAIN, tag, cells, at + Cell::TAG);
        }
        let n = self.segment.int(keys.len() as i64);
        Ok(self.segment.call_two(Helper::MatchValues, &[pointer, cells, n]))
    }

    /// The words of a key. If several small matches share it, they are computed before the first: the compiler would
    /// compute them on the path of one comparison, which does not dominate the others.
    fn key_words(&mut self, key: Option<SmallMatchKey>, n: usize, packed: &[Packed]) -> Vec<clif::Value> {
        let segment = &mut self.segment;
        if let Some((_, made)) = segment.made_keys.iter().find(|(of, _)| Some(of) == key.as_ref()) {
            let made = made.clone();
            return made.into_iter().map(|slot| self.ins().stack_load(I64, I64, slot, 0)).collect();
        }
        let words: Vec<clif::Value> = self.join(packed).into_iter().take(n).collect();
        let Some(key) =
            key.filter(|key| self.segment.small_match_keys.iter().filter(|of| *of == key).count() > 1)
        else {
            return words;
        };
        let store = |word: &clif::Value| {
            let data = StackSlotData::new(StackSlotKind::ExplicitSlot, 8, 3);
            let slot = self.segment.builder.create_sized_stack_slot(data);
            self.ins().stack_store(I64, *word, slot, 0);
            slot
        };
        let slots = words.iter().map(store).collect();
        self.segment.made_keys.push((key, slots));
        words
    }

    /// Emits the words of a key, padded to the largest number.
    fn join(&mut self, packed: &[Packed]) -> Vec<clif::Value> {
        let mut words = vec![self.segment.int(0); WORDS_MAX];
        let mut is_begun = [false; WORDS_MAX];
        for (place, bits) in packed {
            let nth = usize::from(place.word) % WORDS_MAX;
            let up = self.segment.ishl_imm(*bits, place.shift.into());
            words[nth] = if is_begun[nth] { self.ins().bor(words[nth], up) } else { up };
            is_begun[nth] = true;
        }
        words
    }

    /// Emits a comparison with a few rows; the result is the first whose bits all match.
    fn compare_rows(
        &mut self,
        held: &Arc<Matcher>,
        base: clif::Value,
        few: LinearScan,
        words: &[clif::Value],
    ) -> Val {
        let offset = arc_offset(held);
        let [looked_at, bits] = [MATCHER_LINEAR, MATCHER_BITS]
            .map(|field| self.ins().load(I64, FIXED, base, (offset + field) as i32));
        let n = words.len();
        let mut entry = self.segment.int((few.none as i64) << FOUND_SHIFT);
        for row in (0..few.rows).rev() {
            let mut differs = None;
            for (nth, word) in words.iter().enumerate() {
                let at = (row * n + nth) as i32 * 16;
                let [mask, wanted] = [0, 8].map(|word| self.ins().load(I64, FIXED, looked_at, at + word));
                let seen = self.ins().band(*word, mask);
                let other = self.ins().bxor(seen, wanted);
                differs = Some(differs.map_or(other, |all| self.ins().bor(all, other)));
            }
            let differs = differs.unwrap_or_else(|| self.segment.int(0));
            let this = self.segment.int((row as i64) << FOUND_SHIFT);
            entry = self.ins().select(differs, entry, this);
        }
        let entry = self.ins().iadd(bits, entry);
        self.row_of(entry)
    }

    /// Emits the search for the first bit that is set in the sets of all chunks; the result is its row.
    fn first_bit(
        &mut self,
        held: &Arc<Matcher>,
        base: clif::Value,
        chunks: &BitVectors,
        packed: &[Packed],
    ) -> Val {
        let offset = arc_offset(held);
        let [classes, sets, bits] = [MATCHER_CLASSES, MATCHER_SETS, MATCHER_BITS]
            .map(|field| self.ins().load(I64, FIXED, base, (offset + field) as i32));
        let set_shift = i64::from((chunks.words * 8).trailing_zeros());
        let mut left: Vec<clif::Value> = Vec::new();
        for Chunk { place, classes: at } in &chunks.chunks {
            let value = self.value_at(*place, packed);
            let class = match is_paged(*place) {
                false => self.class_at(classes, value, *at),
                true => {
                    let (high, low) = self.page_of(value);
                    let page = self.class_at(classes, high, *at);
                    let first = self.segment.ishl_imm(page, PAGE_BITS.into());
                    let nth = self.ins().iadd(first, low);
                    self.class_at(classes, nth, 0)
                }
            };
            let behind = self.segment.ishl_imm(class, set_shift);
            let set = self.ins().iadd(sets, behind);
            let words = self.load_set(set, chunks.words);
            left = match left.is_empty() {
                true => words,
                false => left.iter().zip(words).map(|(left, word)| self.ins().band(*left, word)).collect(),
            };
        }
        let words = self.split_set(&left, chunks.words);
        let nth = self.first_of(&words);
        let behind = self.segment.ishl_imm(nth, FOUND_SHIFT);
        let entry = self.ins().iadd(bits, behind);
        self.row_of(entry)
    }

    /// Emits the load of a row from its entry.
    fn row_of(&mut self, entry: clif::Value) -> Val {
        let [row, address] = [0, 8].map(|at| self.ins().load(I64, FIXED, entry, at));
        let zeros = self.segment.address(ZERO_ROW.address());
        let address = self.ins().select(row, address, zeros);
        Val::Two(row, address)
    }

    /// Emits the load of an entry of 16 bits, at an index after an offset.
    fn class_at(&mut self, classes: clif::Value, nth: clif::Value, offset: u32) -> clif::Value {
        let behind = self.segment.ishl_imm(nth, 1);
        let entry = self.ins().iadd(classes, behind);
        self.ins().uload16(I64, FIXED, entry, offset as i32)
    }

    /// Splits a value into the bits that select a page, and those that select its entry.
    fn page_of(&mut self, value: clif::Value) -> (clif::Value, clif::Value) {
        let low = self.segment.band_imm(value, (1 << PAGE_BITS) - 1);
        (self.segment.ushr_imm(value, PAGE_BITS.into()), low)
    }

    /// Emits the bits of one place of a key; 0 if nothing was packed there.
    fn value_at(&mut self, place: KeyBits, packed: &[Packed]) -> clif::Value {
        let holds = |of: &KeyBits| {
            of.word == place.word && of.shift <= place.shift && place.shift + place.bits <= of.shift + of.bits
        };
        match packed.iter().find(|(of, _)| holds(of)) {
            Some((of, bits)) => self.bits_of(*bits, place.shift - of.shift, place.bits),
            None => self.segment.int(0),
        }
    }

    /// The row of the interval that contains a value; jumps to `other` if it is in a long run.
    fn interval(
        &mut self,
        held: &Arc<Matcher>,
        base: clif::Value,
        field: &TrieField,
        (packed, other): (&[Packed], clif::Block),
    ) -> Val {
        let offset = arc_offset(held);
        let value = self.value_at(field.place, packed);
        let [lines, root, rows] = [MATCHER_LINES, MATCHER_ROOT, MATCHER_ROWS]
            .map(|at| self.ins().load(I64, FIXED, base, (offset + at) as i32));
        let [node, leaf, run, resolved, miss, found] = [(); 6].map(|()| self.segment.builder.create_block());
        let mut params = |block: clif::Block, n: usize| -> Vec<clif::Value> {
            (0..n).map(|_| self.segment.builder.append_block_param(block, I64)).collect()
        };
        let (in_node, in_leaf) = (params(node, 2), params(leaf, 2));
        let (in_trie, at) = (params(resolved, 1)[0], params(found, 1)[0]);

        // The rest of the field is in the upper bits.
        let key = self.segment.ishl_imm(value, i64::from(64 - field.bits));
        let is_node = self.is_node(root);
        self.ins().brif(is_node, node, &[root.into(), key.into()], leaf, &[root.into(), key.into()]);

        self.segment.builder.switch_to_block(node);
        let (next, below) = self.step(lines, in_node[0], in_node[1]);
        let is_node = self.is_node(next);
        self.ins().brif(is_node, node, &[next.into(), below.into()], leaf, &[next.into(), below.into()]);

        self.segment.builder.switch_to_block(leaf);
        let (entry, left) = (in_leaf[0], in_leaf[1]);
        let word = self.ins().ireduce(I32, entry);
        let is_run = self.ins().icmp_imm_s(IntCC::SignedLessThan, word, 0);
        self.ins().brif(is_run, run, [], resolved, &[entry.into()]);

        self.segment.builder.switch_to_block(run);
        let in_run = self.find_in_run(lines, entry, left, other);
        self.ins().jump(resolved, &[in_run.into()]);

        self.segment.builder.switch_to_block(resolved);
        let is_none = self.segment.icmp_imm(IntCC::Equal, in_trie, NOTHING.into());
        let entry = self.entry_at(rows, in_trie);
        self.ins().brif(is_none, miss, [], found, &[entry.into()]);

        self.segment.builder.switch_to_block(miss);
        let zeros = self.segment.address(ZERO_ROW.address());
        let entry = match field.short_prefix_bits {
            0 => zeros,
            bits => {
                let id = self.load_short_prefix((base, offset), value, field.bits - bits);
                let is_none = self.segment.icmp_imm(IntCC::Equal, id, NOTHING.into());
                let entry = self.entry_at(rows, id);
                // Only a row is read.
                self.ins().select(is_none, zeros, entry)
            }
        };
        self.ins().jump(found, &[entry.into()]);

        self.segment.builder.switch_to_block(found);
        self.row_of(at)
    }

    /// Emits the address of a row's entry, by its number in the trie.
    fn entry_at(&mut self, rows: clif::Value, id: clif::Value) -> clif::Value {
        let behind = self.segment.ishl_imm(id, FOUND_SHIFT);
        self.ins().iadd(rows, behind)
    }

    /// Whether an entry of a trie is a node.
    fn is_node(&mut self, entry: clif::Value) -> clif::Value {
        let word = self.ins().ireduce(I32, entry);
        self.ins().icmp_imm_s(IntCC::UnsignedGreaterThanOrEqual, word, i64::from(TRIE_NODE as i32))
    }

    /// Emits the load of a value's entry in the short prefixes of a trie; all but the lowest bits of the value index
    /// it.
    fn load_short_prefix(
        &mut self,
        (base, offset): (clif::Value, usize),
        value: clif::Value,
        lowest: u8,
    ) -> clif::Value {
        let prefixes = self.ins().load(I64, FIXED, base, (offset + MATCHER_SHORT_PREFIXES) as i32);
        let nth = self.segment.ushr_imm(value, lowest.into());
        let behind = self.segment.ishl_imm(nth, 2);
        let address = self.ins().iadd(prefixes, behind);
        self.ins().uload32(FIXED, address, 0)
    }

    /// The entry of a value in a node, and the rest of the value; both are in the upper bits.
    fn step(
        &mut self,
        lines: clif::Value,
        entry: clif::Value,
        left: clif::Value,
    ) -> (clif::Value, clif::Value) {
        // Shift counts are modulo 64.
        let down = self.segment.ushr_imm(entry, 25);
        let number = self.ins().ushr(left, down);
        let width = self.ins().ineg(down);
        let below = self.ins().ishl(left, width);
        let line = self.bits_of(entry, 0, 25);
        let line = self.segment.ishl_imm(line, 6);
        let line = self.ins().iadd(lines, line);
        let behind = self.segment.ishl_imm(number, 2);
        let address = self.ins().iadd(line, behind);
        (self.ins().uload32(FIXED, address, 0), below)
    }

    /// Emits the search for a value in a run of up to eight intervals; the result is its entry.
    fn find_in_run(
        &mut self,
        lines: clif::Value,
        entry: clif::Value,
        left: clif::Value,
        other: clif::Block,
    ) -> clif::Value {
        let short = self.segment.builder.create_block();
        let class = self.bits_of(entry, 28, 2);
        let is_long = self.segment.icmp_imm(IntCC::Equal, class, TRIE_LONG.into());
        self.ins().brif(is_long, other, [], short, []);
        self.segment.builder.switch_to_block(short);
        let quarter = self.bits_of(entry, 0, 28);
        let behind = self.segment.ishl_imm(quarter, 4);
        let words = self.ins().iadd(lines, behind);

        let shown = self.segment.ushr_imm(left, 32);
        let shown = self.ins().ireduce(I32, shown);
        let shown = self.ins().splat(I32X4, shown);
        // The smallest run is a quarter of a cache line: the second four words are read only if they exist.
        let next = self.segment.iadd_imm(words, 16);
        let next = self.ins().select(class, next, words);
        let [low, high] = [words, next].map(|four| {
            let four = self.ins().load(I32X4, UNALIGNED.with_readonly(), four, 0);
            let begun = self.ins().icmp(IntCC::UnsignedLessThanOrEqual, four, shown);
            let begun = self.ins().vhigh_bits(I32, begun);
            self.ins().uextend(I64, begun)
        });
        let high = self.segment.ishl_imm(high, 4);
        let begun = self.ins().bor(low, high);
        let two = self.segment.int(2);
        let begins = self.ins().ishl(two, class);
        let begins = self.segment.iadd_imm(begins, -1);
        // The first word whose interval begins above the value, or the index after the last.
        let ends = self.ins().bnot(begun);
        let one = self.segment.int(1);
        let behind = self.ins().ishl(one, begins);
        let ends = self.ins().bor(ends, behind);
        let nth = self.ins().ctz(ends);
        let at = self.ins().iadd(begins, nth);
        let behind = self.segment.ishl_imm(at, 2);
        let address = self.ins().iadd(words, behind);
        self.ins().uload32(FIXED, address, 0)
    }

    /// Emits the loads of a set's words, two at a time if there are enough.
    fn load_set(&mut self, set: clif::Value, words: usize) -> Vec<clif::Value> {
        match words {
            1 => vec![self.ins().load(I64, FIXED, set, 0)],
            _ => (0..words as i32 / 2)
                .map(|nth| self.ins().load(I64X2, UNALIGNED.with_readonly(), set, nth * 16))
                .collect(),
        }
    }

    /// Splits vectors of two lanes into words; a set of one word stays as it is.
    fn split_set(&mut self, set: &[clif::Value], words: usize) -> Vec<clif::Value> {
        if words == 1 {
            return set.to_vec();
        }
        let lanes = set.iter().flat_map(|two| [(*two, 0), (*two, 1)]);
        lanes.map(|(two, lane)| self.ins().extractlane(two, lane)).collect()
    }

    /// Emits the index of the first set bit in words; the number of bits if there is none.
    fn first_of(&mut self, words: &[clif::Value]) -> clif::Value {
        // Halves are compared in parallel and without a branch: which word it is is unpredictable.
        let mut level: Vec<(clif::Value, clif::Value)> =
            words.iter().enumerate().map(|(nth, word)| (*word, self.segment.int(nth as i64 * 64))).collect();
        while level.len() > 1 {
            level = level
                .chunks(2)
                .map(|pair| match *pair {
                    [(word, from), (other, other_from)] => {
                        let first = self.ins().select(word, word, other);
                        (first, self.ins().select(word, from, other_from))
                    }
                    _ => pair[0],
                })
                .collect();
        }
        let Some((word, from)) = level.first().copied() else { return self.segment.int(0) };
        // This is 64 for a word without a bit.
        let nth = self.ins().ctz(word);
        self.ins().iadd(from, nth)
    }
}
