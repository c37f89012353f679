//! The short way through a queue of partitions that take turns, handlers and all, as two functions:
//! [`weft_ir::queue::turns`] says what they do, and what they are given.
//!
//! Vectors of records are held against what the program has of them, and ids against that, before they become
//! addresses. A packet that comes changes nothing before its last question is answered.

use super::{Ends, Translator, WORD};
use crate::arithmetic::Arithmetic;
use crate::frame::VecWords;
use core::mem::offset_of;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::IntCC;
use cranelift_codegen::ir::types::{I32, I32X4, I64};
use cranelift_codegen::ir::{AbiParam, BlockArg, InstBuilder as _, MemFlagsData};
use cranelift_codegen::isa::TargetFrontendConfig;
use cranelift_frontend::FunctionBuilder;
use weft_ir::queue::layout::{KEPT, LINE_WORDS, LINK, NO_PACKETS, NONE, kept};
use weft_ir::queue::round_robin::{FastDequeue, FastPathState, FastStop, RoundRobin, entered};
use weft_ir::queue::{Handler, Level, PACKETS_MAX, Partitions, Scope, Verdict, word};

/// Where a node says which partition is the first of the low rank; that of the high one is in the upper half.
const LOW: i32 = kept::FIRSTS as i32 * 8;
/// Where a packet says which one is behind it, in the upper half of a word. What comes writes that half alone, and what
/// leaves reads it alone, so that it need not wait until the processor has put both together.
const NEXT: i32 = LINK as i32 * 8 + 4;
/// Four tags are aligned as one is.
const UNALIGNED: MemFlagsData = MemFlagsData::new().with_notrap();

/// A packet comes: an [`weft_ir::queue::turns::Enter`].
pub(super) fn enter(
    turns: &RoundRobin<'_>,
    vec_words: VecWords,
    builder: FunctionBuilder<'_>,
    target: TargetFrontendConfig,
) {
    let mut way = Way::new(turns, vec_words, builder, target);
    let [node, partitions, tags, packets, slot, aside] = way.begin(1);
    way.aside = aside;
    let partitions = way.partitions(partitions);
    let node = way.vec_of(node, turns.node_lines);
    let n_lines = way.len(packets);
    let packets = way.start(packets);
    way.go_if(IntCC::UnsignedGreaterThanOrEqual, slot, n_lines, way.missing);
    let packet = way.record(packets, slot, 1);
    let len = way.load(packet, KEPT + usize::from(word::LEN));
    let key = way.load(packet, KEPT + usize::from(turns.key_word));
    let miss = way.cold_block();
    let partition = way.place_of(key, tags, miss);
    let own = way.record(partitions, partition, turns.partition_lines);
    let line = way.line(partition);
    // It is in the order, which is the highest bit of its place; or nowhere.
    let place = way.load(own, kept::PLACE);
    let zero = way.word(0);
    let at_most = if turns.activates() { IntCC::SignedGreaterThan } else { IntCC::SignedGreaterThanOrEqual };
    way.go_if(at_most, place, zero, miss);
    way.look_for_room(turns.level, node, len, miss);
    if let Some((level, record)) = line {
        way.look_for_room(level, record, len, miss);
    }

    // There is room: it stands behind the last of its line.
    let holder = line.map_or(own, |(_, record)| record);
    let stood = way.load(holder, kept::LINE);
    let last = way.upper(stood);
    let put = way.builder.create_block();
    let stands = way.builder.append_block_param(put, I64);
    let none = way.word(i64::from(NONE));
    let first = way.go_if_none(last, n_lines);
    let before = way.record(packets, last, 1);
    way.builder.ins().istore32(WORD, slot, before, NEXT);
    let longer = way.paired_lower(stood, slot);
    way.builder.ins().jump(put, &[BlockArg::Value(longer)]);
    way.enter_block(first);
    let alone = way.paired(slot, slot);
    way.builder.ins().jump(put, &[BlockArg::Value(alone)]);
    way.enter_block(put);
    let link = way.paired(last, none);
    way.store(packet, LINK, link);
    way.store(holder, kept::LINE, stands);
    for record in [own, node].into_iter().chain(line.map(|(_, record)| record)) {
        way.count(record, len);
    }

    // Its partition comes into the order with it.
    if turns.activates() {
        let [new, in_order] = way.fork(IntCC::Equal, place, zero);
        way.builder.set_cold_block(new);
        way.enter_block(new);
        if let Some(activate) = &turns.level.handlers.activate {
            let entered = way.builder.create_block();
            let event = way.aside(offset_of!(FastPathState<'_>, event));
            way.handler(activate, Seen { node, own, packet, event }, |_| entered);
            way.enter_block(entered);
        }
        if turns.finds_first {
            way.append(own, partition, node);
            way.builder.ins().jump(in_order, &[]);
        } else {
            let named = way.builder.ins().ishl_imm_u(partition, i64::from(entered::BITS));
            let named = way.builder.ins().bor_imm_u(named, entered::NEW as i64);
            way.builder.ins().return_(&[named]);
        }
        way.enter_block(in_order);
    }
    let done = way.builder.create_block();
    way.builder.ins().jump(done, &[]);
    for (block, answer) in [(way.missing, entered::MISSING), (miss, entered::NOT), (done, entered::DONE)] {
        way.enter_block(block);
        let answer = way.word(answer as i64);
        way.builder.ins().return_(&[answer]);
    }
    way.builder.finalize(target);
}

/// Partitions take turns: a [`weft_ir::queue::turns::Leave`].
pub(super) fn leave(
    turns: &RoundRobin<'_>,
    vec_words: VecWords,
    builder: FunctionBuilder<'_>,
    target: TargetFrontendConfig,
) {
    let mut way = Way::new(turns, vec_words, builder, target);
    let [node, partitions, packets, given, turns_left, aside] = way.begin(2);
    way.aside = aside;
    let node = way.vec_of(node, turns.node_lines);
    let partitions = way.partitions(partitions);
    let (n_lines, packets) = (way.len(packets), way.start(packets));
    let [head, serve] = [(); 2].map(|()| way.builder.create_block());
    let [left, first, list] = [(); 3].map(|()| way.builder.append_block_param(head, I64));
    let known = if turns.finds_first { way.first(node) } else { (given, node) };
    way.take_turn(head, turns_left, known);

    // The first partition, and its first packet.
    way.builder.switch_to_block(head);
    let n = way.word(i64::from(turns.level.partitions.n()));
    let nothing = way.go_if_none(first, n);
    let own = way.record(partitions, first, turns.partition_lines);
    let line = way.line(first);
    let holder = line.map_or(own, |(_, record)| record);
    let stands = way.load(holder, kept::LINE);
    let slot = way.lower(stands);
    let empty = way.go_if_none(slot, n_lines);
    let packet = way.record(packets, slot, 1);
    let turn = Head { node, left, first, list, own, line, holder, stands, slot, packet };

    way.select(turn, head, serve);
    way.found_empty(turn, empty, (head, nothing));
    way.builder.seal_block(head);
    way.enter_block(serve);
    way.serve(turn);
    for (block, stop) in [(nothing, FastStop::Nothing), (way.missing, FastStop::Missing)] {
        way.enter_block(block);
        let zero = way.word(0);
        way.stop(stop, None, zero);
    }
    way.builder.finalize(target);
}

/// The partition that is first, and what is known of it.
#[derive(Clone, Copy)]
struct Head<'t> {
    node: clif::Value,
    /// Turns that are left, this one included.
    left: clif::Value,
    first: clif::Value,
    /// Where it is said that it is the first.
    list: clif::Value,
    own: clif::Value,
    /// The line below it, if there are such.
    line: Option<(&'t Level, clif::Value)>,
    /// The record that has its packets, and what that says of them.
    holder: clif::Value,
    stands: clif::Value,
    /// Its first packet.
    slot: clif::Value,
    packet: clif::Value,
}

/// What handlers see.
#[derive(Clone, Copy)]
struct Seen {
    node: clif::Value,
    own: clif::Value,
    packet: clif::Value,
    event: clif::Value,
}

/// Where a function stops, with which packet, and what it tells.
type Said = (FastStop, Option<clif::Value>, clif::Value);

/// A function of the short way.
struct Way<'t, 'f> {
    turns: &'t RoundRobin<'t>,
    vec_words: VecWords,
    builder: FunctionBuilder<'f>,
    /// Where the records of partitions begin.
    partitions: clif::Value,
    /// An [`Aside`].
    aside: clif::Value,
    /// Where it goes if an id is that of no record.
    missing: clif::Block,
}

impl<'f> Arithmetic<'f> for Way<'_, 'f> {
    fn builder(&mut self) -> &mut FunctionBuilder<'f> {
        &mut self.builder
    }

    fn word(&mut self, n: i64) -> clif::Value {
        self.builder.ins().iconst(I64, n)
    }
}

impl<'t, 'f> Way<'t, 'f> {
    fn new(
        turns: &'t RoundRobin<'t>,
        vec_words: VecWords,
        mut builder: FunctionBuilder<'f>,
        target: TargetFrontendConfig,
    ) -> Self {
        builder.func.signature.call_conv = target.default_call_conv;
        let missing = builder.create_block();
        builder.set_cold_block(missing);
        let unknown = clif::Value::from_u32(0);
        Self { turns, vec_words, builder, partitions: unknown, aside: unknown, missing }
    }

    /// Begins a function of so many words that gives so many; its parameters.
    fn begin<const N: usize>(&mut self, n_given: usize) -> [clif::Value; N] {
        let signature = &mut self.builder.func.signature;
        signature.params.extend([AbiParam::new(I64); N]);
        signature.returns.extend(core::iter::repeat_n(AbiParam::new(I64), n_given));
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.enter_block(entry);
        self.builder.block_params(entry).try_into().expect("as many parameters were declared")
    }

    // ---- a packet comes ------------------------------------------------------------------------------------------

    /// The partition of a key, as the queue's own `place_of` has it; not that of a key which has none yet.
    fn place_of(&mut self, key: clif::Value, tags: clif::Value, miss: clif::Block) -> clif::Value {
        match self.turns.level.partitions {
            Partitions::One => self.word(0),
            Partitions::Direct { n } => {
                let (zero, last) = (self.word(0), self.word(i64::from(n) - 1));
                let least = self.builder.ins().smax(key, zero);
                self.builder.ins().smin(least, last)
            }
            Partitions::Hash { n, ways: 1 } => {
                let hash = self.hash_word(key);
                self.share(hash, n)
            }
            Partitions::Hash { n, ways } => {
                let hash = self.hash_word(key);
                let set = self.share(hash, n / ways);
                let set = self.builder.ins().imul_imm_s(set, i64::from(ways));
                self.way_of(hash, set, ways, tags, miss)
            }
        }
    }

    /// Which of so many the upper half of a hash picks.
    fn share(&mut self, hash: clif::Value, n: u32) -> clif::Value {
        let upper = self.upper(hash);
        let product = self.builder.ins().imul_imm_s(upper, i64::from(n));
        self.upper(product)
    }

    /// The way of a set that has the tag of a hash: mostly its own; which of the others it is cannot be foretold.
    fn way_of(
        &mut self,
        hash: clif::Value,
        set: clif::Value,
        ways: u32,
        tags: clif::Value,
        miss: clif::Block,
    ) -> clif::Value {
        let tag = self.builder.ins().ireduce(I32, hash);
        let tags = self.vec_of(tags, self.turns.level.partitions.n() as usize);
        let offset = self.builder.ins().ishl_imm_u(set, 2);
        let tags = self.builder.ins().iadd(tags, offset);
        let found = self.builder.create_block();
        let partition = self.builder.append_block_param(found, I64);
        let lower = self.lower(hash);
        let product = self.builder.ins().imul_imm_s(lower, i64::from(ways));
        let own = self.upper(product);
        let offset = self.builder.ins().ishl_imm_u(own, 2);
        let first = self.builder.ins().iadd(tags, offset);
        let first = self.builder.ins().load(I32, WORD, first, 0);
        let is_own = self.builder.ins().icmp(IntCC::Equal, first, tag);
        let own = self.builder.ins().iadd(set, own);
        let others = self.cold_block();
        self.builder.ins().brif(is_own, found, &[BlockArg::Value(own)], others, &[]);
        self.enter_block(others);
        let own = self.ways_of(tag, ways, tags);
        let zero = self.word(0);
        self.go_if(IntCC::Equal, own, zero, miss);
        let nth = self.builder.ins().ctz(own);
        let other = self.builder.ins().iadd(set, nth);
        self.builder.ins().jump(found, &[BlockArg::Value(other)]);
        self.enter_block(found);
        partition
    }

    /// Which ways of a set have a tag, by bits: four at once.
    fn ways_of(&mut self, tag: clif::Value, ways: u32, tags: clif::Value) -> clif::Value {
        let mut own = self.word(0);
        let fours = ways / 4;
        for four in 0..fours {
            let known = self.builder.ins().load(I32X4, UNALIGNED, tags, four as i32 * 16);
            let wanted = self.builder.ins().splat(I32X4, tag);
            let are = self.builder.ins().icmp(IntCC::Equal, known, wanted);
            let bits = self.builder.ins().vhigh_bits(I64, are);
            let bits = self.builder.ins().ishl_imm_u(bits, i64::from(four) * 4);
            own = self.builder.ins().bor(own, bits);
        }
        for nth in fours * 4..ways {
            let known = self.builder.ins().load(I32, WORD, tags, nth as i32 * 4);
            let is_it = self.builder.ins().icmp(IntCC::Equal, known, tag);
            let bit = self.builder.ins().uextend(I64, is_it);
            let bit = self.builder.ins().ishl_imm_u(bit, i64::from(nth));
            own = self.builder.ins().bor(own, bit);
        }
        own
    }

    /// Goes there if a node has no room for one packet more.
    fn look_for_room(&mut self, level: &Level, node: clif::Value, len: clif::Value, miss: clif::Block) {
        let one = self.word(1);
        let (packets, bytes) = (level.limit.packets_max(), level.limit.bytes_max());
        for (counted, more, most) in [(kept::PACKETS, one, packets), (kept::BYTES, len, bytes)] {
            if most != u64::MAX {
                let now = self.load(node, counted);
                let now = self.builder.ins().iadd(now, more);
                let most = self.word(most as i64);
                self.go_if(IntCC::UnsignedGreaterThan, now, most, miss);
            }
        }
    }

    /// A packet more.
    fn count(&mut self, record: clif::Value, len: clif::Value) {
        let packets = self.load(record, kept::PACKETS);
        let packets = self.builder.ins().iadd_imm_s(packets, 1);
        self.store(record, kept::PACKETS, packets);
        let bytes = self.load(record, kept::BYTES);
        let bytes = self.builder.ins().iadd(bytes, len);
        self.store(record, kept::BYTES, bytes);
    }

    // ---- a packet leaves -----------------------------------------------------------------------------------------

    /// SELECT lets the first partition be served, or puts it behind the others, but for the last turn.
    fn select(&mut self, turn: Head<'_>, head: clif::Block, serve: clif::Block) {
        let Some(select) = &self.turns.level.handlers.select else {
            self.builder.ins().jump(serve, &[]);
            return;
        };
        let next = self.builder.create_block();
        let seen = self.seen(select, turn, turn.packet);
        self.handler(select, seen, |verdict| if verdict == Verdict::Next { next } else { serve });
        self.enter_block(next);
        let fewer = self.builder.ins().iadd_imm_s(turn.left, -1);
        let zero = self.word(0);
        self.go_if(IntCC::Equal, fewer, zero, serve);
        let first = self.put_back(turn, (FastStop::Next, None, fewer));
        self.take_turn(head, fewer, first);
    }

    /// The partition that is first has its turn.
    fn take_turn(&mut self, head: clif::Block, left: clif::Value, (first, list): (clif::Value, clif::Value)) {
        self.builder.ins().jump(head, &[left, first, list].map(BlockArg::Value));
    }

    /// The first partition has no packet: EMPTY says whether it stays in the order.
    fn found_empty(
        &mut self,
        turn: Head<'_>,
        empty: clif::Block,
        (head, nothing): (clif::Block, clif::Block),
    ) {
        self.enter_block(empty);
        let fewer = self.builder.ins().iadd_imm_s(turn.left, -1);
        if !self.turns.finds_first {
            self.stop(FastStop::Empty, None, fewer);
            return;
        }
        let zero = self.word(0);
        if let Some((level, record)) = turn.line
            && let Some(handler) = &level.handlers.empty
        {
            let asked = self.builder.create_block();
            let event = self.aside(offset_of!(FastPathState<'_>, event));
            self.handler(handler, Seen { node: record, own: record, packet: record, event }, |_| asked);
            self.enter_block(asked);
        }
        let [stays, goes, again] = [(); 3].map(|()| self.builder.create_block());
        match &self.turns.level.handlers.empty {
            Some(handler) => {
                let seen = self.seen(handler, turn, turn.own);
                self.handler(handler, seen, |verdict| if verdict == Verdict::Stay { stays } else { goes });
            }
            None => drop(self.builder.ins().jump(goes, &[])),
        }
        self.enter_block(stays);
        self.put_back(turn, (FastStop::Next, None, fewer));
        self.builder.ins().jump(again, &[]);
        self.enter_block(goes);
        self.take_out(turn);
        self.builder.ins().jump(again, &[]);
        self.enter_block(again);
        self.go_if(IntCC::Equal, fewer, zero, nothing);
        let first = self.first(turn.node);
        self.take_turn(head, fewer, first);
    }

    /// The first partition is served: its first packet leaves.
    fn serve(&mut self, turn: Head<'_>) {
        let len = self.load(turn.packet, KEPT + usize::from(word::LEN));
        let n_left = self.uncount(turn.own, len);
        self.uncount(turn.node, len);
        self.shorten(turn);
        if let Some((level, record)) = turn.line {
            self.uncount(record, len);
            if let Some(dequeue) = &level.handlers.dequeue {
                let (sent, asked) = (self.builder.create_block(), self.cold_block());
                let end = self.builder.append_block_param(asked, I64);
                let seen = Seen { node: record, own: record, ..self.seen(dequeue, turn, turn.packet) };
                self.handler(dequeue, seen, |verdict| if verdict == Verdict::Pass { sent } else { asked });
                self.enter_block(asked);
                self.stop_asked(FastStop::AskedBelow, turn, end);
                self.enter_block(sent);
            }
        }
        let [sent, rotate] = [(); 2].map(|()| self.builder.create_block());
        let asked = self.cold_block();
        let end = self.builder.append_block_param(asked, I64);
        match &self.turns.level.handlers.dequeue {
            Some(dequeue) => {
                let seen = self.seen(dequeue, turn, turn.packet);
                self.handler(dequeue, seen, |verdict| match verdict {
                    Verdict::Rotate => rotate,
                    Verdict::Mark | Verdict::Drop => asked,
                    _ => sent,
                });
            }
            None => drop(self.builder.ins().jump(sent, &[])),
        }
        self.enter_block(asked);
        self.stop_asked(FastStop::Asked, turn, end);
        for (block, verdict) in [(rotate, Verdict::Rotate), (sent, Verdict::Pass)] {
            self.enter_block(block);
            self.place(turn, n_left, verdict);
        }
    }

    /// A packet left a partition, which stays where it is, or goes behind those of its rank, or elsewhere, or has
    /// nothing more.
    fn place(&mut self, turn: Head<'_>, n_left: clif::Value, verdict: Verdict) {
        let (zero, end) = (self.word(0), self.word(verdict.word(0) as i64));
        let emptied = self.cold_block();
        if self.turns.level.handlers.empty.is_none() {
            self.go_if(IntCC::Equal, n_left, zero, emptied);
        }
        if verdict == Verdict::Rotate {
            self.put_back(turn, (FastStop::Placed, Some(turn.slot), end));
        } else if self.turns.ranks {
            self.put_if_reranked(turn, (FastStop::Placed, Some(turn.slot), end));
        }
        self.stop(FastStop::Sent, Some(turn.slot), turn.first);
        self.enter_block(emptied);
        if self.turns.finds_first {
            self.take_out(turn);
            self.stop(FastStop::Sent, Some(turn.slot), turn.first);
        } else {
            self.stop(FastStop::Placed, Some(turn.slot), end);
        }
    }

    /// What a handler of the level sees.
    fn seen(&mut self, handler: &Handler, turn: Head<'_>, packet: clif::Value) -> Seen {
        let Head { node, own, .. } = turn;
        let event = match handler.touches(Scope::Event) {
            true => self.aside(offset_of!(FastPathState<'_>, event)),
            false => own,
        };
        Seen { node, own, packet, event }
    }

    /// A packet less; how many there are then.
    fn uncount(&mut self, record: clif::Value, len: clif::Value) -> clif::Value {
        let packets = self.load(record, kept::PACKETS);
        let packets = self.builder.ins().iadd_imm_s(packets, -1);
        self.store(record, kept::PACKETS, packets);
        let bytes = self.load(record, kept::BYTES);
        let bytes = self.builder.ins().isub(bytes, len);
        self.store(record, kept::BYTES, bytes);
        packets
    }

    /// The first packet leaves its line. The next is not touched.
    fn shorten(&mut self, Head { holder, stands, packet, .. }: Head<'_>) {
        // No place is so high that it has a sign, but that of none, with which both halves become what they are then.
        const _: () = assert!(PACKETS_MAX < 1 << 31 && NO_PACKETS == NONE as i32 as u64);
        let next = self.builder.ins().sload32(WORD, packet, NEXT);
        let last = self.builder.ins().band_imm_u(stands, !i64::from(u32::MAX));
        let stands = self.builder.ins().bor(last, next);
        self.store(holder, kept::LINE, stands);
    }

    /// A handler, which goes on where its verdict says; such a block may take the word of the end.
    fn handler(&mut self, handler: &Handler, seen: Seen, to: impl Fn(Verdict) -> clif::Block) {
        let Seen { node, own, packet, event } = seen;
        let of = |way: &mut Self, base, kept: usize| way.builder.ins().iadd_imm_s(base, kept as i64 * 8);
        let bases = [of(self, node, kept::WORDS), of(self, own, kept::WORDS), of(self, packet, KEPT), event];
        let ends = Ends::GoOn(Verdict::ALL.map(to));
        Translator::new(handler, &mut self.builder, bases, ends).all();
    }

    /// A handler was asked of the first packet, which is not to be sent as it is.
    fn stop_asked(&mut self, stop: FastStop, turn: Head<'_>, end: clif::Value) {
        let slot = self.paired(turn.slot, turn.left);
        self.stop(stop, Some(slot), end);
    }

    fn stop(&mut self, stop: FastStop, slot: Option<clif::Value>, end: clif::Value) {
        let slot = slot.unwrap_or_else(|| self.word(i64::from(NONE)));
        let end = self.builder.ins().ishl_imm_u(end, i64::from(FastDequeue::STOP_BITS));
        let how = self.builder.ins().bor_imm_u(end, stop as i64);
        self.builder.ins().return_(&[slot, how]);
    }

    // ---- the order of partitions, where it is by two ranks at most: a ring for each, known by its first ------------

    /// The partition that is first; and, as an address to which [`LOW`] comes, where that is said.
    fn first(&mut self, node: clif::Value) -> (clif::Value, clif::Value) {
        let low = self.builder.ins().uload32(WORD, node, LOW);
        if self.turns.level.order.bits != Some(1) {
            return (low, node);
        }
        let high = self.builder.ins().uload32(WORD, node, LOW + 4);
        let none = self.word(i64::from(NONE));
        let is_low = self.builder.ins().icmp(IntCC::NotEqual, low, none);
        let of_high = self.builder.ins().iadd_imm_s(node, 4);
        let first = self.builder.ins().select(is_low, low, high);
        (first, self.builder.ins().select(is_low, node, of_high))
    }

    /// Where the first of the rank of a partition is said.
    fn list_of(&mut self, rank: clif::Value, node: clif::Value) -> clif::Value {
        if self.turns.level.order.bits != Some(1) {
            return node;
        }
        let zero = self.word(0);
        let is_high = self.builder.ins().icmp(IntCC::SignedGreaterThan, rank, zero);
        let of_high = self.builder.ins().iadd_imm_s(node, 4);
        self.builder.ins().select(is_high, of_high, node)
    }

    /// Puts the first partition behind those of its rank; or stops, where that is another's to do. The one that is
    /// first then, and where that is said: to load it would have to wait for what is stored here.
    fn put_back(&mut self, turn: Head<'_>, said: Said) -> (clif::Value, clif::Value) {
        if self.turns.finds_first && !self.turns.reranks {
            let (_, next) = self.links(turn.own);
            self.builder.ins().istore32(WORD, next, turn.list, LOW);
            return (next, turn.list);
        }
        let (rank, stands) = (self.load(turn.own, kept::RANK), self.load(turn.own, kept::STANDS));
        let (elsewhere, back) = (self.cold_block(), self.builder.create_block());
        let [first, list] = [(); 2].map(|()| self.builder.append_block_param(back, I64));
        if self.turns.finds_first {
            self.go_if(IntCC::NotEqual, rank, stands, elsewhere);
            let (_, next) = self.links(turn.own);
            self.builder.ins().istore32(WORD, next, turn.list, LOW);
            self.builder.ins().jump(back, &[next, turn.list].map(BlockArg::Value));
        } else {
            self.builder.ins().jump(elsewhere, &[]);
        }
        self.enter_block(elsewhere);
        self.put_elsewhere(turn, said);
        let (found, its_list) = self.first(turn.node);
        self.builder.ins().jump(back, &[found, its_list].map(BlockArg::Value));
        self.enter_block(back);
        (first, list)
    }

    /// As above, if it has another rank than that under which it stands, by which it would stand elsewhere.
    fn put_if_reranked(&mut self, turn: Head<'_>, said: Said) {
        let (rank, stands) = (self.load(turn.own, kept::RANK), self.load(turn.own, kept::STANDS));
        let [elsewhere, stays] = self.fork(IntCC::NotEqual, rank, stands);
        self.enter_block(elsewhere);
        if self.turns.finds_first {
            let to = self.list_of(rank, turn.node);
            self.go_if(IntCC::Equal, to, turn.list, stays);
        }
        self.put_elsewhere(turn, said);
        self.builder.ins().jump(stays, &[]);
        self.enter_block(stays);
    }

    /// Puts the first partition behind those of the rank that it has now.
    fn put_elsewhere(&mut self, turn: Head<'_>, (stop, slot, end): Said) {
        if self.turns.finds_first {
            self.unlink(turn);
            self.append(turn.own, turn.first, turn.node);
            return;
        }
        self.stop(stop, slot, end);
        let behind = self.builder.create_block();
        self.enter_block(behind);
    }

    /// Takes the first partition out of the order.
    fn take_out(&mut self, turn: Head<'_>) {
        self.unlink(turn);
        let idle = self.word(kept::IDLE as i64);
        self.store(turn.own, kept::PLACE, idle);
    }

    /// Takes the first partition of a list out of it.
    fn unlink(&mut self, Head { own, first, list, .. }: Head<'_>) {
        let (before, next) = self.links(own);
        let [only, one_of_many] = self.fork(IntCC::Equal, next, first);
        let done = self.builder.create_block();
        self.enter_block(only);
        let none = self.word(i64::from(NONE));
        self.builder.ins().istore32(WORD, none, list, LOW);
        self.builder.ins().jump(done, &[]);
        self.enter_block(one_of_many);
        // They may be one and the same.
        let last = self.partition(before);
        let place = self.load(last, kept::PLACE);
        self.set_next(last, place, next);
        let second = self.partition(next);
        let place = self.load(second, kept::PLACE);
        self.set_before(second, place, before);
        self.builder.ins().istore32(WORD, next, list, LOW);
        self.builder.ins().jump(done, &[]);
        self.enter_block(done);
    }

    /// Puts a partition behind those of the rank that it has now.
    fn append(&mut self, own: clif::Value, id: clif::Value, node: clif::Value) {
        let rank = self.load(own, kept::RANK);
        self.store(own, kept::STANDS, rank);
        let list = self.list_of(rank, node);
        let first = self.builder.ins().uload32(WORD, list, LOW);
        let none = self.word(i64::from(NONE));
        let [only, one_of_many] = self.fork(IntCC::Equal, first, none);
        let done = self.builder.create_block();
        self.enter_block(only);
        self.set_links(own, id, id);
        self.builder.ins().istore32(WORD, id, list, LOW);
        self.builder.ins().jump(done, &[]);
        self.enter_block(one_of_many);
        // They may be one and the same.
        let head = self.partition(first);
        let place = self.load(head, kept::PLACE);
        let last = self.lower(place);
        self.set_links(own, last, first);
        self.set_before(head, place, id);
        let tail = self.partition(last);
        let place = self.load(tail, kept::PLACE);
        self.set_next(tail, place, id);
        self.builder.ins().jump(done, &[]);
        self.enter_block(done);
    }

    /// The neighbours of a partition that is in the order.
    fn links(&mut self, record: clif::Value) -> (clif::Value, clif::Value) {
        let place = self.load(record, kept::PLACE);
        let next = self.upper(place);
        let next = self.builder.ins().band_imm_u(next, (kept::IN_ORDER >> 32) as i64 - 1);
        (self.lower(place), next)
    }

    fn set_links(&mut self, record: clif::Value, before: clif::Value, next: clif::Value) {
        let place = self.paired(before, next);
        let place = self.builder.ins().bor_imm_u(place, kept::IN_ORDER as i64);
        self.store(record, kept::PLACE, place);
    }

    /// The one behind a partition, whose place it is, is another.
    fn set_next(&mut self, record: clif::Value, place: clif::Value, next: clif::Value) {
        let before = self.lower(place);
        self.set_links(record, before, next);
    }

    /// As above, the one before it.
    fn set_before(&mut self, record: clif::Value, place: clif::Value, before: clif::Value) {
        let next = self.builder.ins().band_imm_u(place, !i64::from(u32::MAX));
        let place = self.builder.ins().bor(next, before);
        self.store(record, kept::PLACE, place);
    }

    // ---- words and blocks ----------------------------------------------------------------------------------------

    /// A word of what is aside.
    fn aside(&mut self, offset: usize) -> clif::Value {
        self.builder.ins().load(I64, WORD, self.aside, offset as i32)
    }

    /// The line below a partition, if there are such.
    fn line(&mut self, partition: clif::Value) -> Option<(&'t Level, clif::Value)> {
        let level = self.turns.line?;
        let lines = self.aside(offset_of!(FastPathState<'_>, lines));
        let none = self.word(0);
        self.go_if(IntCC::Equal, lines, none, self.missing);
        let n_lines = self.turns.level.partitions.n() as usize * self.turns.line_lines;
        let lines = self.vec_of(lines, n_lines);
        Some((level, self.record(lines, partition, self.turns.line_lines)))
    }

    /// Where the records of partitions begin.
    fn partitions(&mut self, vec: clif::Value) -> clif::Value {
        let n_lines = self.turns.level.partitions.n() as usize * self.turns.partition_lines;
        self.partitions = self.vec_of(vec, n_lines);
        self.partitions
    }

    /// Where a vector begins that has to have so many.
    fn vec_of(&mut self, vec: clif::Value, n: usize) -> clif::Value {
        let (len, n) = (self.len(vec), self.word(n as i64));
        self.go_if(IntCC::UnsignedLessThan, len, n, self.missing);
        self.start(vec)
    }

    /// Where a vector begins.
    fn start(&mut self, vec: clif::Value) -> clif::Value {
        self.builder.ins().load(I64, WORD, vec, self.vec_words.start as i32)
    }

    /// How many a vector has.
    fn len(&mut self, vec: clif::Value) -> clif::Value {
        self.builder.ins().load(I64, WORD, vec, self.vec_words.len as i32)
    }

    fn load(&mut self, base: clif::Value, word: usize) -> clif::Value {
        self.builder.ins().load(I64, WORD, base, word as i32 * 8)
    }

    fn store(&mut self, base: clif::Value, word: usize, value: clif::Value) {
        self.builder.ins().store(WORD, value, base, word as i32 * 8);
    }

    /// The record of a partition.
    fn partition(&mut self, id: clif::Value) -> clif::Value {
        let n = self.word(i64::from(self.turns.level.partitions.n()));
        self.go_if(IntCC::UnsignedGreaterThanOrEqual, id, n, self.missing);
        self.record(self.partitions, id, self.turns.partition_lines)
    }

    /// Where a record of so many lines begins.
    fn record(&mut self, arena: clif::Value, id: clif::Value, lines: usize) -> clif::Value {
        let line = (LINE_WORDS * 8) as i64;
        let offset = match lines {
            1 => self.builder.ins().ishl_imm_u(id, i64::from(line.trailing_zeros())),
            _ => self.builder.ins().imul_imm_s(id, lines as i64 * line),
        };
        self.builder.ins().iadd(arena, offset)
    }

    fn upper(&mut self, word: clif::Value) -> clif::Value {
        self.builder.ins().ushr_imm_u(word, 32)
    }

    fn lower(&mut self, word: clif::Value) -> clif::Value {
        let half = self.builder.ins().ireduce(I32, word);
        self.builder.ins().uextend(I64, half)
    }

    /// The word of two numbers, that are no more than 32 bits each.
    fn paired(&mut self, a: clif::Value, b: clif::Value) -> clif::Value {
        let upper = self.builder.ins().ishl_imm_u(b, 32);
        self.builder.ins().bor(a, upper)
    }

    /// As above, of the lower half of a word.
    fn paired_lower(&mut self, word: clif::Value, b: clif::Value) -> clif::Value {
        let lower = self.lower(word);
        self.paired(lower, b)
    }

    /// A block for what seldom is so.
    fn cold_block(&mut self) -> clif::Block {
        let block = self.builder.create_block();
        self.builder.set_cold_block(block);
        block
    }

    /// Goes on in a block to which nothing else leads from here on.
    fn enter_block(&mut self, block: clif::Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    /// Goes on if an id is below this, and to a block that it gives if it is none.
    fn go_if_none(&mut self, id: clif::Value, n: clif::Value) -> clif::Block {
        let (none, other) = (self.cold_block(), self.cold_block());
        let by = self.builder.ins().icmp(IntCC::UnsignedLessThan, id, n);
        let behind = self.builder.create_block();
        self.builder.ins().brif(by, behind, &[], other, &[]);
        self.enter_block(other);
        let none_of_all = self.word(i64::from(NONE));
        let by = self.builder.ins().icmp(IntCC::Equal, id, none_of_all);
        self.builder.ins().brif(by, none, &[], self.missing, &[]);
        self.enter_block(behind);
        none
    }

    /// Goes there if this is so, and goes on if not.
    fn go_if(&mut self, cc: IntCC, a: clif::Value, b: clif::Value, to: clif::Block) {
        let by = self.builder.ins().icmp(cc, a, b);
        let behind = self.builder.create_block();
        self.builder.ins().brif(by, to, &[], behind, &[]);
        self.enter_block(behind);
    }

    /// The blocks for yes and for no.
    fn fork(&mut self, cc: IntCC, a: clif::Value, b: clif::Value) -> [clif::Block; 2] {
        let by = self.builder.ins().icmp(cc, a, b);
        let [yes, no] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(by, yes, &[], no, &[]);
        [yes, no]
    }
}
