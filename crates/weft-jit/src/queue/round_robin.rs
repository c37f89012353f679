//! Compiles the fast path of a queue whose partitions take turns, with its handlers, to two functions. See
//! [`weft_ir::queue::round_robin`] for their meaning and parameters.
//!
//! The code checks the lengths of vectors and the range of ids before it computes addresses. An enqueue changes nothing
//! before its last check.

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

/// The word of a node with the first partition of the low rank; the upper half has that of the high rank.
const LOW: i32 = kept::FIRSTS as i32 * 8;
/// The upper half of a packet's link word: the next packet. An enqueue writes that half alone, and a dequeue reads it
/// alone, so that the load need not wait for the processor to merge both halves.
const NEXT: i32 = LINK as i32 * 8 + 4;
/// Four tags have the alignment of one.
const UNALIGNED: MemFlagsData = MemFlagsData::new().with_notrap();

/// Compiles the enqueue function: [`weft_ir::queue::round_robin::EnqueueFn`].
pub(super) fn enqueue(
    turns: &RoundRobin<'_>,
    vec_words: VecWords,
    builder: FunctionBuilder<'_>,
    target: TargetFrontendConfig,
) {
    let mut fast = FastPathBuilder::new(turns, vec_words, builder, target);
    let [node, partitions, tags, packets, slot, aside] = fast.begin(1);
    fast.aside = aside;
    let partitions = fast.partitions(partitions);
    let node = fast.vec_of(node, turns.node_lines);
    let n_lines = fast.len(packets);
    let packets = fast.start(packets);
    fast.go_if(IntCC::UnsignedGreaterThanOrEqual, slot, n_lines, fast.missing);
    let packet = fast.record(packets, slot, 1);
    let len = fast.load(packet, KEPT + usize::from(word::LEN));
    let key = fast.load(packet, KEPT + usize::from(turns.key_word));
    let miss = fast.cold_block();
    let partition = fast.partition_of(key, tags, miss);
    let own = fast.record(partitions, partition, turns.partition_lines);
    let line = fast.line(partition);
    // A partition in the order has the highest bit of its position set; zero means outside.
    let place = fast.load(own, kept::PLACE);
    let zero = fast.word(0);
    let at_most = if turns.activates() { IntCC::SignedGreaterThan } else { IntCC::SignedGreaterThanOrEqual };
    fast.go_if(at_most, place, zero, miss);
    fast.check_room(turns.level, node, len, miss);
    if let Some((level, record)) = line {
        fast.check_room(level, record, len, miss);
    }

    // There is room: append the packet to the list.
    let holder = line.map_or(own, |(_, record)| record);
    let stood = fast.load(holder, kept::LINE);
    let last = fast.upper(stood);
    let put = fast.builder.create_block();
    let stands = fast.builder.append_block_param(put, I64);
    let none = fast.word(i64::from(NONE));
    let first = fast.go_if_none(last, n_lines);
    let before = fast.record(packets, last, 1);
    fast.builder.ins().istore32(WORD, slot, before, NEXT);
    let longer = fast.paired_lower(stood, slot);
    fast.builder.ins().jump(put, &[BlockArg::Value(longer)]);
    fast.enter_block(first);
    let alone = fast.paired(slot, slot);
    fast.builder.ins().jump(put, &[BlockArg::Value(alone)]);
    fast.enter_block(put);
    let link = fast.paired(last, none);
    fast.store(packet, LINK, link);
    fast.store(holder, kept::LINE, stands);
    for record in [own, node].into_iter().chain(line.map(|(_, record)| record)) {
        fast.count(record, len);
    }

    // Its partition enters the order.
    if turns.activates() {
        let [new, in_order] = fast.fork(IntCC::Equal, place, zero);
        fast.builder.set_cold_block(new);
        fast.enter_block(new);
        if let Some(activate) = &turns.level.handlers.activate {
            let entered = fast.builder.create_block();
            let event = fast.aside(offset_of!(FastPathState<'_>, event));
            fast.handler(activate, HandlerArgs { node, own, packet, event }, |_| entered);
            fast.enter_block(entered);
        }
        if turns.finds_first {
            fast.append(own, partition, node);
            fast.builder.ins().jump(in_order, &[]);
        } else {
            let named = fast.builder.ins().ishl_imm_u(partition, i64::from(entered::BITS));
            let named = fast.builder.ins().bor_imm_u(named, entered::NEW as i64);
            fast.builder.ins().return_(&[named]);
        }
        fast.enter_block(in_order);
    }
    let done = fast.builder.create_block();
    fast.builder.ins().jump(done, &[]);
    for (block, answer) in [(fast.missing, entered::MISSING), (miss, entered::NOT), (done, entered::DONE)] {
        fast.enter_block(block);
        let answer = fast.word(answer as i64);
        fast.builder.ins().return_(&[answer]);
    }
    fast.builder.finalize(target);
}

/// Compiles the dequeue function: [`weft_ir::queue::round_robin::DequeueFn`].
pub(super) fn dequeue(
    turns: &RoundRobin<'_>,
    vec_words: VecWords,
    builder: FunctionBuilder<'_>,
    target: TargetFrontendConfig,
) {
    let mut fast = FastPathBuilder::new(turns, vec_words, builder, target);
    let [node, partitions, packets, given, turns_left, aside] = fast.begin(2);
    fast.aside = aside;
    let node = fast.vec_of(node, turns.node_lines);
    let partitions = fast.partitions(partitions);
    let (n_lines, packets) = (fast.len(packets), fast.start(packets));
    let [head, serve] = [(); 2].map(|()| fast.builder.create_block());
    let [left, first, list] = [(); 3].map(|()| fast.builder.append_block_param(head, I64));
    let known = if turns.finds_first { fast.first(node) } else { (given, node) };
    fast.take_turn(head, turns_left, known);

    // The first partition, and its first packet.
    fast.builder.switch_to_block(head);
    let n = fast.word(i64::from(turns.level.partitions.n()));
    let nothing = fast.go_if_none(first, n);
    let own = fast.record(partitions, first, turns.partition_lines);
    let line = fast.line(first);
    let holder = line.map_or(own, |(_, record)| record);
    let stands = fast.load(holder, kept::LINE);
    let slot = fast.lower(stands);
    let empty = fast.go_if_none(slot, n_lines);
    let packet = fast.record(packets, slot, 1);
    let turn = Head { node, left, first, list, own, line, holder, stands, slot, packet };

    fast.select(turn, head, serve);
    fast.found_empty(turn, empty, (head, nothing));
    fast.builder.seal_block(head);
    fast.enter_block(serve);
    fast.serve(turn);
    for (block, stop) in [(nothing, FastStop::Nothing), (fast.missing, FastStop::Missing)] {
        fast.enter_block(block);
        let zero = fast.word(0);
        fast.stop(stop, None, zero);
    }
    fast.builder.finalize(target);
}

/// The first partition, and its values.
#[derive(Clone, Copy)]
struct Head<'t> {
    node: clif::Value,
    /// Turns that are left, this one included.
    left: clif::Value,
    first: clif::Value,
    /// The address of the word that names it as the first.
    list: clif::Value,
    own: clif::Value,
    /// The FIFO below it, if the program has them.
    line: Option<(&'t Level, clif::Value)>,
    /// The record with its list of packets, and the word of that list.
    holder: clif::Value,
    stands: clif::Value,
    /// Its first packet.
    slot: clif::Value,
    packet: clif::Value,
}

/// The arguments of a handler.
#[derive(Clone, Copy)]
struct HandlerArgs {
    node: clif::Value,
    own: clif::Value,
    packet: clif::Value,
    event: clif::Value,
}

/// Where the function stops: the stop, the packet, and the end.
type StopResult = (FastStop, Option<clif::Value>, clif::Value);

/// Builds a function of the fast path.
struct FastPathBuilder<'t, 'f> {
    turns: &'t RoundRobin<'t>,
    vec_words: VecWords,
    builder: FunctionBuilder<'f>,
    /// The start of the partition records.
    partitions: clif::Value,
    /// A [`FastPathState`].
    aside: clif::Value,
    /// The block for ids without a record.
    missing: clif::Block,
}

impl<'f> Arithmetic<'f> for FastPathBuilder<'_, 'f> {
    fn builder(&mut self) -> &mut FunctionBuilder<'f> {
        &mut self.builder
    }

    fn word(&mut self, n: i64) -> clif::Value {
        self.builder.ins().iconst(I64, n)
    }
}

impl<'t, 'f> FastPathBuilder<'t, 'f> {
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

    /// Starts a function with that many parameters and results; returns the parameters.
    fn begin<const N: usize>(&mut self, n_given: usize) -> [clif::Value; N] {
        let signature = &mut self.builder.func.signature;
        signature.params.extend([AbiParam::new(I64); N]);
        signature.returns.extend(core::iter::repeat_n(AbiParam::new(I64), n_given));
        let entry = self.builder.create_block();
        self.builder.append_block_params_for_function_params(entry);
        self.enter_block(entry);
        self.builder.block_params(entry).try_into().expect("as many parameters were declared")
    }

    // ---- enqueue -------------------------------------------------------------------------------------------------

    /// The partition of a key, as in the queue's own `partition_of`; jumps to `miss` for a key without one.
    fn partition_of(&mut self, key: clif::Value, tags: clif::Value, miss: clif::Block) -> clif::Value {
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

    /// The upper half of a hash, scaled to that many values.
    fn share(&mut self, hash: clif::Value, n: u32) -> clif::Value {
        let upper = self.upper(hash);
        let product = self.builder.ins().imul_imm_s(upper, i64::from(n));
        self.upper(product)
    }

    /// The way of a set with the tag of a hash: mostly the preferred one. The branch predictor cannot foresee which of
    /// the others it is.
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

    /// The ways of a set that have a tag, as bits: four at once.
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

    /// Jumps to `miss` if a node has no room for another packet.
    fn check_room(&mut self, level: &Level, node: clif::Value, len: clif::Value, miss: clif::Block) {
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

    /// Adds a packet to a record's counts.
    fn count(&mut self, record: clif::Value, len: clif::Value) {
        let packets = self.load(record, kept::PACKETS);
        let packets = self.builder.ins().iadd_imm_s(packets, 1);
        self.store(record, kept::PACKETS, packets);
        let bytes = self.load(record, kept::BYTES);
        let bytes = self.builder.ins().iadd(bytes, len);
        self.store(record, kept::BYTES, bytes);
    }

    // ---- dequeue -------------------------------------------------------------------------------------------------

    /// Runs SELECT: serves the first partition, or moves it behind the others, except in the last turn.
    fn select(&mut self, turn: Head<'_>, head: clif::Block, serve: clif::Block) {
        let Some(select) = &self.turns.level.handlers.select else {
            self.builder.ins().jump(serve, &[]);
            return;
        };
        let next = self.builder.create_block();
        let seen = self.handler_args(select, turn, turn.packet);
        self.handler(select, seen, |verdict| if verdict == Verdict::Next { next } else { serve });
        self.enter_block(next);
        let fewer = self.builder.ins().iadd_imm_s(turn.left, -1);
        let zero = self.word(0);
        self.go_if(IntCC::Equal, fewer, zero, serve);
        let first = self.put_back(turn, (FastStop::Next, None, fewer));
        self.take_turn(head, fewer, first);
    }

    /// Starts the turn of the first partition.
    fn take_turn(&mut self, head: clif::Block, left: clif::Value, (first, list): (clif::Value, clif::Value)) {
        self.builder.ins().jump(head, &[left, first, list].map(BlockArg::Value));
    }

    /// The first partition has no packet: EMPTY decides whether it stays in the order.
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
            self.handler(handler, HandlerArgs { node: record, own: record, packet: record, event }, |_| {
                asked
            });
            self.enter_block(asked);
        }
        let [stays, goes, again] = [(); 3].map(|()| self.builder.create_block());
        match &self.turns.level.handlers.empty {
            Some(handler) => {
                let seen = self.handler_args(handler, turn, turn.own);
                self.handler(handler, seen, |verdict| if verdict == Verdict::Stay { stays } else { goes });
            }
            None => drop(self.builder.ins().jump(goes, &[])),
        }
        self.enter_block(stays);
        self.put_back(turn, (FastStop::Next, None, fewer));
        self.builder.ins().jump(again, &[]);
        self.enter_block(goes);
        self.remove_first(turn);
        self.builder.ins().jump(again, &[]);
        self.enter_block(again);
        self.go_if(IntCC::Equal, fewer, zero, nothing);
        let first = self.first(turn.node);
        self.take_turn(head, fewer, first);
    }

    /// Serves the first partition: its first packet leaves.
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
                let seen = HandlerArgs {
                    node: record,
                    own: record,
                    ..self.handler_args(dequeue, turn, turn.packet)
                };
                self.handler(dequeue, seen, |verdict| if verdict == Verdict::Pass { sent } else { asked });
                self.enter_block(asked);
                self.stop_after_handler(FastStop::HandlerRanBelow, turn, end);
                self.enter_block(sent);
            }
        }
        let [sent, rotate] = [(); 2].map(|()| self.builder.create_block());
        let asked = self.cold_block();
        let end = self.builder.append_block_param(asked, I64);
        match &self.turns.level.handlers.dequeue {
            Some(dequeue) => {
                let seen = self.handler_args(dequeue, turn, turn.packet);
                self.handler(dequeue, seen, |verdict| match verdict {
                    Verdict::Rotate => rotate,
                    Verdict::Mark | Verdict::Drop => asked,
                    _ => sent,
                });
            }
            None => drop(self.builder.ins().jump(sent, &[])),
        }
        self.enter_block(asked);
        self.stop_after_handler(FastStop::HandlerRan, turn, end);
        for (block, verdict) in [(rotate, Verdict::Rotate), (sent, Verdict::Pass)] {
            self.enter_block(block);
            self.place(turn, n_left, verdict);
        }
    }

    /// The position of a partition after a packet has left: it stays, moves behind those of its rank or elsewhere, or
    /// leaves the order.
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
            self.remove_first(turn);
            self.stop(FastStop::Sent, Some(turn.slot), turn.first);
        } else {
            self.stop(FastStop::Placed, Some(turn.slot), end);
        }
    }

    /// The arguments of a handler of the level.
    fn handler_args(&mut self, handler: &Handler, turn: Head<'_>, packet: clif::Value) -> HandlerArgs {
        let Head { node, own, .. } = turn;
        let event = match handler.touches(Scope::Event) {
            true => self.aside(offset_of!(FastPathState<'_>, event)),
            false => own,
        };
        HandlerArgs { node, own, packet, event }
    }

    /// Removes a packet from a record's counts; returns the remaining number.
    fn uncount(&mut self, record: clif::Value, len: clif::Value) -> clif::Value {
        let packets = self.load(record, kept::PACKETS);
        let packets = self.builder.ins().iadd_imm_s(packets, -1);
        self.store(record, kept::PACKETS, packets);
        let bytes = self.load(record, kept::BYTES);
        let bytes = self.builder.ins().isub(bytes, len);
        self.store(record, kept::BYTES, bytes);
        packets
    }

    /// Removes the first packet of a list. The next packet is not touched.
    fn shorten(&mut self, Head { holder, stands, packet, .. }: Head<'_>) {
        // No slot is so high that it has a sign except NONE, and then both halves become NONE.
        const _: () = assert!(PACKETS_MAX < 1 << 31 && NO_PACKETS == NONE as i32 as u64);
        let next = self.builder.ins().sload32(WORD, packet, NEXT);
        let last = self.builder.ins().band_imm_u(stands, !i64::from(u32::MAX));
        let stands = self.builder.ins().bor(last, next);
        self.store(holder, kept::LINE, stands);
    }

    /// Runs a handler and continues in the block of its verdict; such a block may take the end word as a parameter.
    fn handler(&mut self, handler: &Handler, seen: HandlerArgs, to: impl Fn(Verdict) -> clif::Block) {
        let HandlerArgs { node, own, packet, event } = seen;
        let of = |fast: &mut Self, base, kept: usize| fast.builder.ins().iadd_imm_s(base, kept as i64 * 8);
        let bases = [of(self, node, kept::WORDS), of(self, own, kept::WORDS), of(self, packet, KEPT), event];
        let ends = Ends::GoOn(Verdict::ALL.map(to));
        Translator::new(handler, &mut self.builder, bases, ends).all();
    }

    /// Stops after a handler ran for the first packet, which is not sent unchanged.
    fn stop_after_handler(&mut self, stop: FastStop, turn: Head<'_>, end: clif::Value) {
        let slot = self.paired(turn.slot, turn.left);
        self.stop(stop, Some(slot), end);
    }

    fn stop(&mut self, stop: FastStop, slot: Option<clif::Value>, end: clif::Value) {
        let slot = slot.unwrap_or_else(|| self.word(i64::from(NONE)));
        let end = self.builder.ins().ishl_imm_u(end, i64::from(FastDequeue::STOP_BITS));
        let how = self.builder.ins().bor_imm_u(end, stop as i64);
        self.builder.ins().return_(&[slot, how]);
    }

    // ---- the order of partitions with at most two ranks: a ring for each, known by its first ------------------------

    /// The first partition, and the address to which [`LOW`] is added for its word.
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

    /// The address of the word for the first partition of a rank.
    fn list_of(&mut self, rank: clif::Value, node: clif::Value) -> clif::Value {
        if self.turns.level.order.bits != Some(1) {
            return node;
        }
        let zero = self.word(0);
        let is_high = self.builder.ins().icmp(IntCC::SignedGreaterThan, rank, zero);
        let of_high = self.builder.ins().iadd_imm_s(node, 4);
        self.builder.ins().select(is_high, of_high, node)
    }

    /// Moves the first partition behind those of its rank; or stops, if the code does not keep the order. Returns the
    /// new first partition and the address of its word: a load would have to wait for the store here.
    fn put_back(&mut self, turn: Head<'_>, said: StopResult) -> (clif::Value, clif::Value) {
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

    /// As above, if its rank has changed and its position with it.
    fn put_if_reranked(&mut self, turn: Head<'_>, said: StopResult) {
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

    /// Moves the first partition behind those of its new rank.
    fn put_elsewhere(&mut self, turn: Head<'_>, (stop, slot, end): StopResult) {
        if self.turns.finds_first {
            self.unlink(turn);
            self.append(turn.own, turn.first, turn.node);
            return;
        }
        self.stop(stop, slot, end);
        let behind = self.builder.create_block();
        self.enter_block(behind);
    }

    /// Removes the first partition from the order.
    fn remove_first(&mut self, turn: Head<'_>) {
        self.unlink(turn);
        let idle = self.word(kept::IDLE as i64);
        self.store(turn.own, kept::PLACE, idle);
    }

    /// Removes the first partition of a list.
    fn unlink(&mut self, Head { own, first, list, .. }: Head<'_>) {
        let (before, next) = self.links(own);
        let [only, one_of_many] = self.fork(IntCC::Equal, next, first);
        let done = self.builder.create_block();
        self.enter_block(only);
        let none = self.word(i64::from(NONE));
        self.builder.ins().istore32(WORD, none, list, LOW);
        self.builder.ins().jump(done, &[]);
        self.enter_block(one_of_many);
        // Both may be the same partition.
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

    /// Adds a partition behind those of its rank.
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
        // Both may be the same partition.
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

    /// The neighbours of a partition in the order.
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

    /// Sets the next partition of one with this position word.
    fn set_next(&mut self, record: clif::Value, place: clif::Value, next: clif::Value) {
        let before = self.lower(place);
        self.set_links(record, before, next);
    }

    /// As above, the partition before it.
    fn set_before(&mut self, record: clif::Value, place: clif::Value, before: clif::Value) {
        let next = self.builder.ins().band_imm_u(place, !i64::from(u32::MAX));
        let place = self.builder.ins().bor(next, before);
        self.store(record, kept::PLACE, place);
    }

    // ---- words and blocks ----------------------------------------------------------------------------------------

    /// A word of the [`FastPathState`].
    fn aside(&mut self, offset: usize) -> clif::Value {
        self.builder.ins().load(I64, WORD, self.aside, offset as i32)
    }

    /// The FIFO below a partition, if the program has them.
    fn line(&mut self, partition: clif::Value) -> Option<(&'t Level, clif::Value)> {
        let level = self.turns.fifo?;
        let lines = self.aside(offset_of!(FastPathState<'_>, fifos));
        let none = self.word(0);
        self.go_if(IntCC::Equal, lines, none, self.missing);
        let n_lines = self.turns.level.partitions.n() as usize * self.turns.fifo_lines;
        let lines = self.vec_of(lines, n_lines);
        Some((level, self.record(lines, partition, self.turns.fifo_lines)))
    }

    /// The start of the partition records.
    fn partitions(&mut self, vec: clif::Value) -> clif::Value {
        let n_lines = self.turns.level.partitions.n() as usize * self.turns.partition_lines;
        self.partitions = self.vec_of(vec, n_lines);
        self.partitions
    }

    /// The start of a vector with at least that many entries.
    fn vec_of(&mut self, vec: clif::Value, n: usize) -> clif::Value {
        let (len, n) = (self.len(vec), self.word(n as i64));
        self.go_if(IntCC::UnsignedLessThan, len, n, self.missing);
        self.start(vec)
    }

    /// The start of a vector.
    fn start(&mut self, vec: clif::Value) -> clif::Value {
        self.builder.ins().load(I64, WORD, vec, self.vec_words.start as i32)
    }

    /// The length of a vector.
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

    /// The start of a record with that many cache lines.
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

    /// A word of two numbers of at most 32 bits each.
    fn paired(&mut self, a: clif::Value, b: clif::Value) -> clif::Value {
        let upper = self.builder.ins().ishl_imm_u(b, 32);
        self.builder.ins().bor(a, upper)
    }

    /// As above, from the lower half of a word.
    fn paired_lower(&mut self, word: clif::Value, b: clif::Value) -> clif::Value {
        let lower = self.lower(word);
        self.paired(lower, b)
    }

    /// A block that is rarely executed.
    fn cold_block(&mut self) -> clif::Block {
        let block = self.builder.create_block();
        self.builder.set_cold_block(block);
        block
    }

    /// Continues in a block that has no further predecessors.
    fn enter_block(&mut self, block: clif::Block) {
        self.builder.switch_to_block(block);
        self.builder.seal_block(block);
    }

    /// Continues if an id is below this bound; returns the block for NONE.
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

    /// Jumps if the condition is true, else continues.
    fn go_if(&mut self, cc: IntCC, a: clif::Value, b: clif::Value, to: clif::Block) {
        let by = self.builder.ins().icmp(cc, a, b);
        let behind = self.builder.create_block();
        self.builder.ins().brif(by, to, &[], behind, &[]);
        self.enter_block(behind);
    }

    /// The blocks for true and for false.
    fn fork(&mut self, cc: IntCC, a: clif::Value, b: clif::Value) -> [clif::Block; 2] {
        let by = self.builder.ins().icmp(cc, a, b);
        let [yes, no] = [(); 2].map(|()| self.builder.create_block());
        self.builder.ins().brif(by, yes, &[], no, &[]);
        [yes, no]
    }
}
