//! Queue programs by hand: what the language would be lowered to.

use weft_ir::ir::{BoolOp, FloatOp, FloatUnaryOp, IntCmp, IntOp};
use weft_ir::queue::{
    Field, Handler, Handlers, Level, Limit, Op, Order, Overflow, PacketOrder, Partitions, QueueProgram,
    Scope, Slot, Step, Ty, Value, VarDecl, Verdict, Victim, word,
};

const MS: i64 = 1_000_000;

/// A handler that is being written.
pub(crate) struct Build {
    types: Vec<Ty>,
    blocks: Vec<Vec<Step>>,
    line: u32,
}

impl Build {
    pub(crate) fn handler(write: impl FnOnce(&mut Self)) -> Handler {
        let mut build = Self { types: Vec::new(), blocks: vec![Vec::new()], line: 0 };
        write(&mut build);
        Handler { body: build.blocks.remove(0), types: build.types }
    }

    fn step(&mut self, step: Step) {
        self.blocks.last_mut().expect("a block is open").push(step);
    }

    fn define(&mut self, ty: Ty, op: Op) -> Value {
        let value = Value(self.types.len() as u16);
        self.types.push(ty);
        self.step(Step::Let(value, op));
        value
    }

    fn int(&mut self, n: i64) -> Value {
        self.define(Ty::Int, Op::Int(n))
    }

    fn bool(&mut self, b: bool) -> Value {
        self.define(Ty::Bool, Op::Bool(b))
    }

    fn load(&mut self, slot: Slot) -> Value {
        self.define(Ty::Int, Op::Load(slot))
    }

    fn load_bool(&mut self, slot: Slot) -> Value {
        self.define(Ty::Bool, Op::Load(slot))
    }

    fn store(&mut self, slot: Slot, value: Value) {
        self.step(Step::Store(slot, value));
    }

    fn binary(&mut self, op: IntOp, a: Value, b: Value) -> Value {
        self.define(Ty::Int, Op::IntBinary(op, a, b))
    }

    fn with(&mut self, op: IntOp, a: Value, n: i64) -> Value {
        let n = self.int(n);
        self.binary(op, a, n)
    }

    fn compare(&mut self, op: IntCmp, a: Value, b: Value) -> Value {
        self.define(Ty::Bool, Op::IntCompare(op, a, b))
    }

    fn and(&mut self, a: Value, b: Value) -> Value {
        self.define(Ty::Bool, Op::BoolBinary(BoolOp::And, a, b))
    }

    fn or(&mut self, a: Value, b: Value) -> Value {
        self.define(Ty::Bool, Op::BoolBinary(BoolOp::Or, a, b))
    }

    fn not(&mut self, a: Value) -> Value {
        self.define(Ty::Bool, Op::Not(a))
    }

    fn select(&mut self, by: Value, a: Value, b: Value) -> Value {
        self.define(Ty::Int, Op::Select(by, a, b))
    }

    fn when(&mut self, by: Value, then: impl FnOnce(&mut Self), otherwise: impl FnOnce(&mut Self)) {
        self.blocks.push(Vec::new());
        then(self);
        let then = self.blocks.pop().expect("it was pushed");
        self.blocks.push(Vec::new());
        otherwise(self);
        let otherwise = self.blocks.pop().expect("it was pushed");
        self.step(Step::If { by, then, otherwise });
    }

    fn end(&mut self, verdict: Verdict) {
        self.line += 1;
        self.step(Step::End(verdict, self.line));
    }
}

/// SRPT: the packet of the flow with the least that is left. One partition, packets in order of rank.
pub(crate) fn srpt() -> QueueProgram {
    let mut program = one_level("srpt", Vec::new(), by_remaining());
    program.fields = vec![Field::Remaining];
    program.levels[0].packets = PacketOrder::Rank { bits: Some(16) };
    program
}

/// pFabric: the flow with the least that is left is served, the one with the most loses packets.
pub(crate) fn pfabric() -> QueueProgram {
    let key = Build::handler(|b| {
        let flow = b.load(Slot::new(Scope::Packet, word::FIELDS + 1));
        b.step(Step::Give(flow));
    });
    let handlers = Handlers { key: Some(key), ..by_remaining() };
    let mut program = one_level("pfabric", Vec::new(), handlers);
    program.fields = vec![Field::Remaining, Field::Flow];
    let level = &mut program.levels[0];
    level.partitions = Partitions::Hash { n: 1024, ways: 8 };
    level.order = Order { bits: Some(16), by_least_packet: true };
    level.limit.overflow = Overflow::Victim { partition: Victim::HighestRank, head: false };
    program
}

fn by_remaining() -> Handlers {
    let packet_rank = Build::handler(|b| {
        let remaining = b.load(Slot::new(Scope::Packet, word::FIELDS));
        b.step(Step::Give(remaining));
    });
    Handlers { packet_rank: Some(packet_rank), ..Handlers::default() }
}

fn int(name: &str, bits: u8) -> VarDecl {
    VarDecl { name: name.into(), ty: Ty::Int, bits, signed: bits == 64, start: 0 }
}

fn truth(name: &str) -> VarDecl {
    VarDecl { name: name.into(), ty: Ty::Bool, bits: 1, signed: false, start: 0 }
}

fn one_level(name: &str, vars: Vec<VarDecl>, handlers: Handlers) -> QueueProgram {
    let level = Level {
        name: name.into(),
        partitions: Partitions::One,
        vars,
        partition_vars: Vec::new(),
        order: Order { bits: None, by_least_packet: false },
        packets: PacketOrder::Arrival,
        limit: Limit { packets: Some(1000), bytes: None, overflow: Overflow::Arriving, batch: 1, line: 1 },
        handlers,
    };
    QueueProgram { name: name.into(), levels: vec![level], fields: Vec::new() }
}

const NOW: Slot = Slot::new(Scope::Event, word::NOW);

fn var(nth: u16) -> Slot {
    Slot::new(Scope::Node, word::NODE_VARS + nth)
}

/// CoDel (RFC 8289, section 5), one decision at a time: whether the packet at the head goes, or is sent.
pub(crate) fn codel() -> QueueProgram {
    const TARGET: i64 = 5 * MS;
    const INTERVAL: i64 = 100 * MS;
    const MTU: i64 = 1514;
    let [first_above, drop_next, count, last_count] = [0, 1, 2, 3].map(var);
    let [dropping, entered] = [4, 5].map(var);
    // control_law() of the RFC.
    let law = |b: &mut Build, from: Value, count: Value| {
        let count = b.define(Ty::Float, Op::IntToFloat(count));
        let root = b.define(Ty::Float, Op::FloatUnary(FloatUnaryOp::Sqrt, count));
        let interval = b.define(Ty::Float, Op::Float(INTERVAL as f64));
        let step = b.define(Ty::Float, Op::FloatBinary(FloatOp::Div, interval, root));
        let step = b.define(Ty::Int, Op::FloatToInt(step));
        b.binary(IntOp::Add, from, step)
    };
    // dodequeue() of the RFC: whether it is time to drop.
    let ok_to_drop = |b: &mut Build, now: Value| {
        let arrived = b.load(Slot::new(Scope::Packet, word::ARRIVED));
        let bytes = b.load(Slot::new(Scope::Node, word::BYTES));
        let above = b.load(first_above);
        let sojourn = b.binary(IntOp::Sub, now, arrived);
        let (target, mtu, zero) = (b.int(TARGET), b.int(MTU), b.int(0));
        let is_short = b.compare(IntCmp::SLt, sojourn, target);
        let is_little = b.compare(IntCmp::SLe, bytes, mtu);
        let is_good = b.or(is_short, is_little);
        let is_first = b.compare(IntCmp::Eq, above, zero);
        let until = b.with(IntOp::Add, now, INTERVAL);
        let new = b.select(is_first, until, above);
        let new = b.select(is_good, zero, new);
        b.store(first_above, new);
        let is_late = b.compare(IntCmp::SLe, above, now);
        let is_bad = b.or(is_good, is_first);
        let is_bad = b.not(is_bad);
        b.and(is_bad, is_late)
    };
    let drop_again = |b: &mut Build| {
        let more = b.load(count);
        let more = b.with(IntOp::Add, more, 1);
        let more = b.with(IntOp::SMin, more, 1023);
        b.store(count, more);
        b.end(Verdict::Drop);
    };
    let enter = |b: &mut Build, now: Value| {
        let (on, one) = (b.bool(true), b.int(1));
        b.store(dropping, on);
        b.store(entered, on);
        let (old, last, next) = (b.load(count), b.load(last_count), b.load(drop_next));
        let delta = b.binary(IntOp::Sub, old, last);
        let since = b.binary(IntOp::Sub, now, next);
        let recently = b.int(16 * INTERVAL);
        let is_recent = b.compare(IntCmp::SLt, since, recently);
        let is_more = b.compare(IntCmp::SLt, one, delta);
        let goes_on = b.and(is_recent, is_more);
        let new = b.select(goes_on, delta, one);
        let new = b.with(IntOp::SMax, new, 1);
        b.store(count, new);
        b.store(last_count, new);
        let next = law(b, now, new);
        b.store(drop_next, next);
        b.end(Verdict::Drop);
    };
    let leave = |b: &mut Build| {
        let off = b.bool(false);
        b.store(dropping, off);
        b.end(Verdict::Pass);
    };
    let dequeue = Build::handler(|b| {
        let now = b.load(NOW);
        let ok = ok_to_drop(b, now);
        let drops = b.load(Slot::new(Scope::Event, word::DROPS));
        let zero = b.int(0);
        let is_first = b.compare(IntCmp::Eq, drops, zero);
        let was_dropping = b.load_bool(dropping);
        b.when(
            is_first,
            |b| {
                let off = b.bool(false);
                b.store(entered, off);
                b.when(
                    was_dropping,
                    |b| {
                        b.when(
                            ok,
                            |b| {
                                let next = b.load(drop_next);
                                let is_due = b.compare(IntCmp::SLe, next, now);
                                b.when(is_due, drop_again, |b| b.end(Verdict::Pass));
                            },
                            leave,
                        );
                    },
                    |b| b.when(ok, |b| enter(b, now), |b| b.end(Verdict::Pass)),
                );
            },
            |b| {
                let has_entered = b.load_bool(entered);
                b.when(
                    has_entered,
                    |b| b.end(Verdict::Pass),
                    |b| {
                        b.when(
                            ok,
                            |b| {
                                let (next, dropped) = (b.load(drop_next), b.load(count));
                                let next = law(b, next, dropped);
                                b.store(drop_next, next);
                                let is_due = b.compare(IntCmp::SLe, next, now);
                                b.when(is_due, drop_again, |b| b.end(Verdict::Pass));
                            },
                            leave,
                        );
                    },
                );
            },
        );
    });
    let empty = Build::handler(|b| {
        let (zero, off) = (b.int(0), b.bool(false));
        b.store(first_above, zero);
        b.store(dropping, off);
        b.end(Verdict::Pass);
    });
    let vars = vec![
        int("first_above", 64),
        int("drop_next", 64),
        int("count", 10),
        int("last_count", 10),
        truth("dropping"),
        truth("entered"),
    ];
    let handlers = Handlers { dequeue: Some(dequeue), empty: Some(empty), ..Handlers::default() };
    one_level("codel", vars, handlers)
}

/// RED (Floyd and Jacobson 1993) in fixed point: thresholds of 5 and 15 packets, at most one in ten, weight 1/512.
pub(crate) fn red() -> QueueProgram {
    /// Fraction bits of the average.
    const POINT: i64 = 12;
    const WEIGHT: i64 = 9;
    const LOW: i64 = 5 << POINT;
    const HIGH: i64 = 15 << POINT;
    /// 2^16 times 1/10 over the range of the average, with 16 more bits below.
    const SLOPE: i64 = (1 << 32) / 10 / (HIGH - LOW);
    let [average, count] = [0, 1].map(var);
    let pass = |b: &mut Build, verdict: Verdict| {
        let zero = b.int(0);
        b.store(count, zero);
        b.end(verdict);
    };
    let enqueue = Build::handler(|b| {
        let (packets, old) = (b.load(Slot::new(Scope::Node, word::PACKETS)), b.load(average));
        let share = b.with(IntOp::Shl, packets, POINT - WEIGHT);
        let lost = b.with(IntOp::Shr, old, WEIGHT);
        let kept = b.binary(IntOp::Sub, old, lost);
        let new = b.binary(IntOp::Add, kept, share);
        let new = b.with(IntOp::SMax, new, 0);
        let new = b.with(IntOp::SMin, new, (1 << 22) - 1);
        b.store(average, new);
        let (low, high) = (b.int(LOW), b.int(HIGH));
        let (is_low, is_high) = (b.compare(IntCmp::SLt, new, low), b.compare(IntCmp::SLe, high, new));
        b.when(is_low, |b| pass(b, Verdict::Pass), |_| {});
        b.when(is_high, |b| pass(b, Verdict::Drop), |_| {});
        let above = b.with(IntOp::Sub, new, LOW);
        let share = b.with(IntOp::Mul, above, SLOPE);
        let share = b.with(IntOp::Shr, share, 16);
        let share = b.with(IntOp::And, share, (1 << 13) - 1);
        let old = b.load(count);
        let more = b.with(IntOp::Add, old, 1);
        let more = b.with(IntOp::SMin, more, 255);
        b.store(count, more);
        let chance = b.binary(IntOp::Mul, more, share);
        let drawn = b.int(1);
        b.store(Slot::new(Scope::Event, word::DRAWN), drawn);
        let random = b.load(Slot::new(Scope::Event, word::RANDOM));
        let random = b.with(IntOp::And, random, (1 << 16) - 1);
        let is_hit = b.compare(IntCmp::SLt, random, chance);
        b.when(is_hit, |b| pass(b, Verdict::Drop), |b| b.end(Verdict::Pass));
    });
    let handlers = Handlers { enqueue: Some(enqueue), ..Handlers::default() };
    one_level("red", vec![int("average", 22), int("count", 8)], handlers)
}
