//! Lowers queues from typed trees to [`QueueProgram`]s.
//!
//! Lowering clamps stored values to the range of their variable, folds constants, and reuses values computed or loaded
//! earlier in a block. So backends can translate each step as it is.

use weft_ir::interp::evaluate;
use weft_ir::ir::{BoolOp, FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Signed};
use weft_ir::queue::{
    Field, Handler, Handlers, Level, Limit, Op, Order, Overflow, PacketOrder, Partitions, PartitionsBy,
    QueueProgram, STEPS_MAX, Scope, Slot, Step, Timer, Ty, Value, VarDecl, Verdict, Victim, stores, word,
};
use weft_lang::hir::{
    self, QueueBinary as B, QueueExpr, QueueExprKind as Kind, QueueLevel, QueueLiteral as Literal,
    QueueMoment as Moment, QueueOperand as Operand, QueueOverflow, QueuePartitions, QueueStmt, QueueStmtKind,
    QueueType, QueueUnary as U, QueueVar, QueueVerdict, QueueVictim,
};
use weft_lang::source::Span;

/// Values of a handler before unused ones are removed: with more it is [`TooLong`], and the lowering stops.
const VALUES_MAX: usize = 4 * STEPS_MAX;

// The language's limits are within those of programs.
const _: () = {
    use weft_ir::queue as ir;
    use weft_lang::check::queue as lang;
    assert!(lang::LEVELS_MAX <= ir::LEVELS_MAX && lang::PARTITIONS_MAX <= ir::PARTITIONS_MAX);
    assert!(lang::PACKETS_MAX <= ir::PACKETS_MAX && lang::VARS_MAX <= ir::VARS_MAX);
    assert!(lang::HEADERS_MAX <= ir::HEADERS_MAX && lang::COUNTED_MAX <= PartitionsBy::MAX);
};

/// Lowers a queue that [`judge`](crate::judge::judge) accepts.
pub fn queue(queue: &hir::Queue) -> QueueProgram {
    lower_queue(queue).0
}

/// Lowers a queue, and returns also its parts with more than [`STEPS_MAX`] steps.
/// [`weft_ir::queue::verify`] accepts the program if there are none.
pub(crate) fn lower_queue(queue: &hir::Queue) -> (QueueProgram, Vec<TooLong>) {
    let mut lowering = QueueLowering {
        headers: queue.headers().iter().map(|header| header.name.as_str()).collect(),
        fields: Vec::new(),
        too_long: Vec::new(),
    };
    let levels = queue.levels.iter().map(|level| lowering.level(level)).collect();
    let QueueLowering { fields, too_long, .. } = lowering;
    (QueueProgram { name: queue.name.clone(), levels, fields }, too_long)
}

/// A handler, a key or a rank with too many steps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooLong {
    /// Its source.
    pub span: Span,
    /// Its number of steps, on all paths together; a lower bound if `is_all` is false.
    pub steps: usize,
    /// The lowering is complete.
    pub is_all: bool,
}

/// Returns the fault of a handler or expression that needs more than [`STEPS_MAX`] steps, and otherwise None.
fn too_long(handler: &Handler, span: Span) -> Option<TooLong> {
    let is_all = handler.types.len() <= VALUES_MAX;
    let steps = if is_all { n_steps(&handler.body) } else { handler.types.len() };
    (steps > STEPS_MAX).then_some(TooLong { span, steps, is_all })
}

/// Counts steps, nested ones included.
fn n_steps(steps: &[Step]) -> usize {
    let inside = steps.iter().map(|step| match step {
        Step::If { then, otherwise, .. } => n_steps(then) + n_steps(otherwise),
        _ => 0,
    });
    steps.len() + inside.sum::<usize>()
}

/// The lowering of a queue.
struct QueueLowering<'q> {
    /// The headers that the queue reads, in order.
    headers: Vec<&'q str>,
    /// The header fields that its handlers read.
    fields: Vec<Field>,
    /// The parts that exceed the limit, so far.
    too_long: Vec<TooLong>,
}

impl QueueLowering<'_> {
    /// Lowers a level: its partitions, order, limit and handlers.
    fn level(&mut self, level: &QueueLevel) -> Level {
        let mut handlers = Handlers::default();
        if let Some((_, key)) = &level.partitions {
            handlers.key = Some(self.handler(level, key.span, |lowering| lowering.give(key)));
        }
        let ranked = level.least.as_ref().or(level.packet_rank.as_ref().map(|(rank, _)| rank));
        handlers.packet_rank =
            ranked.map(|rank| self.handler(level, rank.span, |lowering| lowering.give(rank)));
        for handler in &level.handlers {
            let lowered = self.handler(level, handler.span, |lowering| lowering.handler(&handler.body));
            match handler.moment {
                Moment::Enqueue => handlers.enqueue = Some(lowered),
                Moment::Activate => handlers.activate = Some(lowered),
                Moment::Select => handlers.select = Some(lowered),
                Moment::Dequeue => handlers.dequeue = Some(lowered),
                Moment::Empty => handlers.empty = Some(lowered),
                Moment::Every { interval_ns, each_partition } => {
                    handlers.every.push(Timer { interval_ns, each_partition, handler: lowered });
                }
            }
        }
        Level {
            name: level.name.clone(),
            partitions: match &level.partitions {
                None => Partitions::One,
                Some((QueuePartitions::Hash { n, ways }, _)) => Partitions::Hash { n: *n, ways: *ways },
                Some((QueuePartitions::Index { n }, _)) => Partitions::Direct { n: *n },
            },
            vars: level.vars.iter().map(var).collect(),
            partition_vars: level.partition_vars.iter().map(var).collect(),
            order: Order { bits: order_bits(level, &handlers), by_least_packet: level.least.is_some() },
            packets: match &level.packet_rank {
                None => PacketOrder::Arrival,
                Some((_, bits)) => PacketOrder::Rank { bits: *bits },
            },
            limit: limit(&level.limit),
            handlers,
        }
    }

    /// Lowers a handler or expression of a level, and notes if it is too long.
    fn handler(
        &mut self,
        level: &QueueLevel,
        span: Span,
        lower: impl FnOnce(Lowering<'_>) -> Handler,
    ) -> Handler {
        let lowered = lower(Lowering::new(level, &self.headers, &mut self.fields));
        self.too_long.extend(too_long(&lowered, span));
        lowered
    }
}

/// If no handler sets the rank, the only rank is 0.
fn order_bits(level: &QueueLevel, handlers: &Handlers) -> Option<u8> {
    let sets = handlers.iter().any(|(_, handler)| handler.ranks());
    if sets || level.least.is_some() { level.rank_bits } else { Some(0) }
}

/// Declares a variable of a queue.
fn var(var: &QueueVar) -> VarDecl {
    let start = match var.start {
        Literal::Bool(b) => u64::from(b),
        Literal::Int(n) => n as u64,
        Literal::Float(x) => x.to_bits(),
    };
    VarDecl { name: var.name.clone(), ty: ty(var.ty), bits: var.bits, signed: var.range.0 < 0, start }
}

/// Returns the IR type of a queue type: units are integers.
fn ty(ty: QueueType) -> Ty {
    match ty {
        QueueType::Bool => Ty::Bool,
        QueueType::Float => Ty::Float,
        _ => Ty::Int,
    }
}

/// Lowers a limit and its overflow rule.
fn limit(limit: &hir::QueueLimit) -> Limit {
    let overflow = match limit.overflow {
        QueueOverflow::Arriving => Overflow::Arriving,
        QueueOverflow::Victim { of, head } => {
            let partition = match of {
                QueueVictim::Own => Victim::Own,
                QueueVictim::MostBytes => Victim::MostBytes,
                QueueVictim::HighestRank => Victim::HighestRank,
            };
            Overflow::Victim { partition, head }
        }
    };
    Limit { packets: limit.packets, bytes: limit.bytes, overflow, batch: limit.batch, line: limit.line }
}

/// The lowering of one handler.
struct Lowering<'l> {
    level: &'l QueueLevel,
    /// The headers that the queue reads, in order.
    headers: &'l [&'l str],
    fields: &'l mut Vec<Field>,
    types: Vec<Ty>,
    /// The steps of the current block.
    steps: Vec<Step>,
    locals: Vec<Option<Value>>,
    /// Values that are computed already.
    known: Vec<(Op, Value)>,
    /// The values of words that are loaded or stored already.
    words: Vec<(Slot, Value)>,
}

impl<'l> Lowering<'l> {
    /// Starts a handler or expression of a level.
    fn new(level: &'l QueueLevel, headers: &'l [&'l str], fields: &'l mut Vec<Field>) -> Self {
        Self {
            level,
            headers,
            fields,
            types: Vec::new(),
            steps: Vec::new(),
            locals: Vec::new(),
            known: Vec::new(),
            words: Vec::new(),
        }
    }

    /// Lowers an expression as a handler that returns its value.
    fn give(mut self, expr: &QueueExpr) -> Handler {
        let value = self.expr(expr);
        self.steps.push(Step::Give(value));
        self.done()
    }

    fn handler(mut self, body: &[QueueStmt]) -> Handler {
        self.stmts(body);
        self.done()
    }

    /// Removes unused steps, and returns the handler.
    fn done(mut self) -> Handler {
        let mut used = vec![false; self.types.len()];
        drop_unused(&mut self.steps, &mut used);
        Handler { body: self.steps, types: self.types }
    }

    // ---- statements --------------------------------------------------------------------------------------------

    /// Lowers statements, up to a verdict.
    fn stmts(&mut self, stmts: &[QueueStmt]) {
        for stmt in stmts {
            // A constant condition may have ended it.
            if ends(&self.steps) || self.types.len() > VALUES_MAX {
                return;
            }
            match &stmt.kind {
                QueueStmtKind::Let { local, value } => {
                    let value = self.expr(value);
                    self.locals.resize(self.locals.len().max(local + 1), None);
                    self.locals[*local] = Some(value);
                }
                QueueStmtKind::Set { place, value } => {
                    let value = self.expr(value);
                    let (slot, range) = self.slot(place);
                    let value = self.within(value, range);
                    self.store(slot, value);
                }
                QueueStmtKind::If { arms, otherwise } => self.arms(arms, otherwise),
                QueueStmtKind::Verdict(verdict) => self.verdict(verdict, stmt.line),
            }
        }
    }

    /// Lowers the arms of an IF. A constant condition selects its arm.
    fn arms(&mut self, arms: &[(QueueExpr, Vec<QueueStmt>)], otherwise: &[QueueStmt]) {
        let Some(((condition, body), rest)) = arms.split_first() else { return self.stmts(otherwise) };
        let by = self.expr(condition);
        if let Some(&Op::BoolConst(known)) = self.constant(by) {
            return if known { self.stmts(body) } else { self.arms(rest, otherwise) };
        }
        let then = self.block(|lowering| lowering.stmts(body));
        let otherwise = self.block(|lowering| lowering.arms(rest, otherwise));
        self.branch(by, then, otherwise);
    }

    /// Appends an IF, and forgets loaded values that its blocks may have written.
    fn branch(&mut self, by: Value, then: Vec<Step>, otherwise: Vec<Step>) {
        // Values that the block may have written are unknown after it.
        let written =
            |slot: Slot| [&then, &otherwise].into_iter().any(|steps| !ends(steps) && stores(steps, slot));
        self.words.retain(|(slot, _)| !written(*slot));
        self.steps.push(Step::If { by, then, otherwise });
    }

    /// The steps of a block; its known values are not valid outside.
    fn block(&mut self, lower: impl FnOnce(&mut Self)) -> Vec<Step> {
        let outside = core::mem::take(&mut self.steps);
        let (known, words) = (self.known.len(), self.words.clone());
        lower(self);
        self.known.truncate(known);
        self.words = words;
        core::mem::replace(&mut self.steps, outside)
    }

    /// Appends the step that ends the handler. MARK changes the packet's ECN field first.
    fn verdict(&mut self, verdict: &QueueVerdict, line: u32) {
        let end = |verdict| Step::End(verdict, line);
        let last = match verdict {
            QueueVerdict::Pass => end(Verdict::Pass),
            QueueVerdict::Drop => end(Verdict::Drop),
            QueueVerdict::Next => end(Verdict::Next),
            QueueVerdict::Stay => end(Verdict::Stay),
            QueueVerdict::Rotate => end(Verdict::Rotate),
            QueueVerdict::Hold(until) => {
                let until = self.expr(until);
                self.store(Slot::new(Scope::Event, word::HOLD), until);
                end(Verdict::Hold)
            }
            QueueVerdict::Mark { or_drop } => {
                let ecn = Slot::new(Scope::Packet, word::ECN);
                let (found, zero) = (self.load(ecn, Ty::Int), self.int(0));
                let capable = self.emit(Op::IntCompare(IntCmp::Ne, found, zero));
                let then = self.block(|lowering| {
                    // A packet that is marked already is not marked again.
                    let experienced = lowering.int(3);
                    let is_new = lowering.emit(Op::IntCompare(IntCmp::Ne, found, experienced));
                    let marks = lowering.block(|lowering| {
                        lowering.store(ecn, experienced);
                        lowering.steps.push(Step::End(Verdict::Mark, line));
                    });
                    let passes = vec![Step::End(Verdict::Pass, line)];
                    lowering.steps.push(Step::If { by: is_new, then: marks, otherwise: passes });
                });
                let other = if *or_drop { Verdict::Drop } else { Verdict::Pass };
                Step::If { by: capable, then, otherwise: vec![Step::End(other, line)] }
            }
        };
        self.steps.push(last);
    }

    /// Appends a store. Later loads of the slot reuse the value.
    fn store(&mut self, slot: Slot, value: Value) {
        self.words.retain(|(known, _)| *known != slot);
        self.words.push((slot, value));
        self.steps.push(Step::Store(slot, value));
    }

    /// Emits a clamp of a value to a range.
    fn within(&mut self, value: Value, range: Option<(i64, i64)>) -> Value {
        let Some((low, high)) = range else { return value };
        let mut value = value;
        if high != i64::MAX {
            let high = self.int(high);
            value = self.emit(Op::IntBinary(IntOp::SMin, value, high));
        }
        if low != i64::MIN {
            let low = self.int(low);
            value = self.emit(Op::IntBinary(IntOp::SMax, value, low));
        }
        value
    }

    /// Returns the slot of a place, and the range of its values.
    fn slot(&mut self, place: &Operand) -> (Slot, Option<(i64, i64)>) {
        let of = |of_partition| if of_partition { Scope::Partition } else { Scope::Node };
        let whole =
            |var: &QueueVar| (var.ty.is_whole() && var.range != (i64::MIN, i64::MAX)).then_some(var.range);
        match place {
            Operand::Now => (Slot::new(Scope::Event, word::NOW), None),
            Operand::Rate => (Slot::new(Scope::Event, word::RATE), None),
            Operand::Drops => (Slot::new(Scope::Event, word::DROPS), None),
            Operand::Packets { of_partition } => (Slot::new(of(*of_partition), word::PACKETS), None),
            Operand::Bytes { of_partition } => (Slot::new(of(*of_partition), word::BYTES), None),
            Operand::Index => (Slot::new(Scope::Partition, word::INDEX), None),
            Operand::Rank => (Slot::new(Scope::Partition, word::RANK), None),
            Operand::Var(at) => {
                (Slot::new(Scope::Node, word::NODE_VARS + *at as u16), whole(&self.level.vars[*at]))
            }
            Operand::PartitionVar(at) => {
                let slot = Slot::new(Scope::Partition, word::PARTITION_VARS + *at as u16);
                (slot, whole(&self.level.partition_vars[*at]))
            }
            Operand::Arrived => (Slot::new(Scope::Packet, word::ARRIVED), None),
            Operand::Len => (Slot::new(Scope::Packet, word::LEN), None),
            Operand::Ecn => (Slot::new(Scope::Packet, word::ECN), Some((0, 3))),
            Operand::Id => (Slot::new(Scope::Packet, word::HANDLE), None),
            Operand::Field(name) => {
                let field = Field::named(name).expect("the checker knows the fields");
                (self.field(field), (field == Field::Dscp).then_some((0, 63)))
            }
            Operand::Header(name) => (self.field(self.header(name)), None),
            Operand::Partitions(by) => {
                let by = match &**by {
                    Operand::Header(name) => self.header(name),
                    Operand::Field(name) => Field::named(name).expect("the checker knows the fields"),
                    _ => unreachable!("the checker allows only fields to count partitions"),
                };
                self.field(by);
                let by = PartitionsBy::of(by).expect("the checker has checked the partition key");
                (self.field(Field::Partitions(by)), None)
            }
        }
    }

    /// The field of a header that the queue reads.
    fn header(&self, name: &str) -> Field {
        let nth = self.headers.iter().position(|known| *known == name);
        Field::Header(nth.expect("the queue has the headers that its levels use") as u8)
    }

    /// The word of a packet for a field.
    fn field(&mut self, field: Field) -> Slot {
        let at = self.fields.iter().position(|known| *known == field).unwrap_or_else(|| {
            self.fields.push(field);
            self.fields.len() - 1
        });
        Slot::new(Scope::Packet, word::FIELDS + at as u16)
    }

    // ---- expressions -------------------------------------------------------------------------------------------

    fn int(&mut self, n: i64) -> Value {
        self.emit(Op::IntConst(n))
    }

    /// Lowers an expression. Returns its value.
    fn expr(&mut self, expr: &QueueExpr) -> Value {
        let op = match &expr.kind {
            Kind::Literal(Literal::Bool(b)) => Op::BoolConst(*b),
            Kind::Literal(Literal::Int(n)) => Op::IntConst(*n),
            Kind::Literal(Literal::Float(x)) => Op::FloatConst(*x),
            Kind::Operand(place) => {
                let (slot, _) = self.slot(place);
                return self.load(slot, ty(expr.ty));
            }
            Kind::Local(local) => return self.locals[*local].expect("a LET comes before its uses"),
            Kind::Unary(op, a) => return self.unary(*op, a),
            Kind::Binary(op, a, b) => {
                let ty = a.ty;
                let (a, b) = (self.expr(a), self.expr(b));
                match (ty, op) {
                    (QueueType::Bool, B::Ne) => Op::BoolBinary(BoolOp::Xor, a, b),
                    (QueueType::Bool, B::Eq) => {
                        let differ = self.emit(Op::BoolBinary(BoolOp::Xor, a, b));
                        Op::Not(differ)
                    }
                    _ => binary(*op, a, b, ty == QueueType::Float),
                }
            }
            Kind::Case(arms, otherwise) => {
                return self.case(arms, otherwise);
            }
            Kind::Rand(nth) => return self.rand(*nth),
        };
        self.emit(op)
    }

    /// The first true arm. Arms that are known not to be needed are not computed.
    fn case(&mut self, arms: &[(QueueExpr, QueueExpr)], otherwise: &QueueExpr) -> Value {
        let mut open: Vec<(Value, Value)> = Vec::new();
        let mut last = otherwise;
        for (when, then) in arms {
            let when = self.expr(when);
            match self.constant(when) {
                Some(Op::BoolConst(false)) => {}
                Some(Op::BoolConst(true)) => {
                    last = then;
                    break;
                }
                _ => {
                    let then = self.expr(then);
                    open.push((when, then));
                }
            }
        }
        let last = self.expr(last);
        open.into_iter().rfold(last, |value, (when, then)| self.emit(Op::Select(when, then, value)))
    }

    /// Lowers an operation on one operand.
    fn unary(&mut self, op: U, operand: &QueueExpr) -> Value {
        let is_float = operand.ty == QueueType::Float;
        let a = self.expr(operand);
        let float = |op| Op::FloatUnary(op, a);
        let op = match op {
            U::Not => Op::Not(a),
            U::Negate if is_float => float(FloatUnaryOp::Neg),
            U::Negate => {
                let zero = self.int(0);
                Op::IntBinary(IntOp::Sub, zero, a)
            }
            U::ToFloat => Op::IntToFloat(Signed::Yes, a),
            U::ToWhole => Op::FloatToInt(Signed::Yes, a),
            U::Floor => float(FloatUnaryOp::Floor),
            U::Ceil => float(FloatUnaryOp::Ceil),
            U::Round => float(FloatUnaryOp::Round),
            U::Sqrt => float(FloatUnaryOp::Sqrt),
            U::Abs if is_float => float(FloatUnaryOp::Abs),
            U::Abs => {
                let zero = self.int(0);
                let negated = self.emit(Op::IntBinary(IntOp::Sub, zero, a));
                Op::IntBinary(IntOp::SMax, a, negated)
            }
            U::Log2 => Op::Log2(a),
            U::Hash => Op::Hash(a),
        };
        self.emit(op)
    }

    /// Emits a draw: the word of the event; for further call sites, a hash of it with their number.
    fn rand(&mut self, nth: u32) -> Value {
        let one = self.int(1);
        self.store(Slot::new(Scope::Event, word::DRAWN), one);
        let drawn = self.load(Slot::new(Scope::Event, word::RANDOM), Ty::Int);
        let (bits, scale) = if nth == 0 {
            (drawn, 53)
        } else {
            let nth = self.int(i64::from(nth));
            (self.emit(Op::HashMix(drawn, nth)), 32)
        };
        let bits = self.emit(Op::IntToFloat(Signed::Yes, bits));
        let scale = self.emit(Op::FloatConst((-f64::from(scale)).exp2()));
        self.emit(Op::FloatBinary(FloatOp::Mul, bits, scale))
    }

    /// Returns the value of a slot, loaded on first use.
    fn load(&mut self, slot: Slot, ty: Ty) -> Value {
        if let Some((_, value)) = self.words.iter().find(|(known, _)| *known == slot) {
            return *value;
        }
        let value = self.value(ty);
        self.steps.push(Step::Load(value, slot));
        self.words.push((slot, value));
        value
    }

    /// Emits an operation and returns its value. Programs see the upper 32 bits of a hash.
    fn emit(&mut self, op: Op) -> Value {
        let is_hash = matches!(op, Op::Hash(_) | Op::HashMix(..));
        let value = self.reuse(op);
        if !is_hash {
            return value;
        }
        let bits = self.int(32);
        self.emit(Op::IntBinary(IntOp::Shr, value, bits))
    }

    /// The value of an operation: folded if its operands are constant, or computed already, or emitted.
    fn reuse(&mut self, mut op: Op) -> Value {
        let ty = match op {
            Op::Select(_, a, _) => self.types[a.0 as usize],
            _ => op.word_types().map_or(Ty::Int, |(_, ty)| ty),
        };
        let operands = op.operands();
        if !operands.is_empty() && operands.iter().all(|operand| self.constant(*operand).is_some()) {
            let constant = |value| self.constant(value).map_or(0, |known| evaluate(known, |_| 0));
            let folded = evaluate(&op, constant);
            op = match ty {
                Ty::Bool => Op::BoolConst(folded != 0),
                Ty::Float => Op::FloatConst(f64::from_bits(folded)),
                _ => Op::IntConst(folded as i64),
            };
        }
        let same = |known: &Op| match (known, &op) {
            (Op::FloatConst(a), Op::FloatConst(b)) => a.to_bits() == b.to_bits(),
            (known, op) => known == op,
        };
        if let Some((_, value)) = self.known.iter().find(|(known, _)| same(known)) {
            return *value;
        }
        let value = self.value(ty);
        self.steps.push(Step::Let(value, op.clone()));
        self.known.push((op, value));
        value
    }

    /// Creates a value of this type.
    fn value(&mut self, ty: Ty) -> Value {
        self.types.push(ty);
        Value(self.types.len() as u32 - 1)
    }

    /// The constant that a value is.
    fn constant(&self, value: Value) -> Option<&Op> {
        let is_constant = |op: &Op| matches!(op, Op::IntConst(_) | Op::FloatConst(_) | Op::BoolConst(_));
        self.known.iter().find(|(op, known)| *known == value && is_constant(op)).map(|(op, _)| op)
    }
}

/// Returns the operation for a binary operator on integers or floats.
fn binary(op: B, a: Value, b: Value, is_float: bool) -> Op {
    let int = |op| Op::IntBinary(op, a, b);
    let either = |whole: IntOp, float: FloatOp| match is_float {
        true => Op::FloatBinary(float, a, b),
        false => Op::IntBinary(whole, a, b),
    };
    let compare = |whole: IntCmp, float: FloatCmp| match is_float {
        true => Op::FloatCompare(float, a, b),
        false => Op::IntCompare(whole, a, b),
    };
    match op {
        B::And => Op::BoolBinary(BoolOp::And, a, b),
        B::Or => Op::BoolBinary(BoolOp::Or, a, b),
        B::Eq => compare(IntCmp::Eq, FloatCmp::Eq),
        B::Ne => compare(IntCmp::Ne, FloatCmp::Ne),
        B::Lt => compare(IntCmp::SLt, FloatCmp::Lt),
        B::Le => compare(IntCmp::SLe, FloatCmp::Le),
        B::Add => either(IntOp::Add, FloatOp::Add),
        B::Sub => either(IntOp::Sub, FloatOp::Sub),
        B::Mul => either(IntOp::Mul, FloatOp::Mul),
        B::Div => either(IntOp::SDiv, FloatOp::Div),
        B::Rem => int(IntOp::SRem),
        B::Least => either(IntOp::SMin, FloatOp::Min),
        B::Greatest => either(IntOp::SMax, FloatOp::Max),
        B::BitAnd => int(IntOp::And),
        B::BitOr => int(IntOp::Or),
        B::BitXor => int(IntOp::Xor),
        B::ShiftLeft => int(IntOp::Shl),
        B::ShiftRight => int(IntOp::Shr),
        B::HashMix => Op::HashMix(a, b),
    }
}

/// Whether the steps always end.
fn ends(steps: &[Step]) -> bool {
    match steps.last() {
        Some(Step::End(..) | Step::Give(_)) => true,
        Some(Step::If { then, otherwise, .. }) => ends(then) && ends(otherwise),
        _ => false,
    }
}

/// Removes unused values, from the last step to the first.
fn drop_unused(steps: &mut Vec<Step>, used: &mut [bool]) {
    let mut at = steps.len();
    while at > 0 {
        at -= 1;
        let keep = match &mut steps[at] {
            Step::Let(value, op) => {
                let is_used = used[value.0 as usize];
                if is_used {
                    op.operands().iter().for_each(|operand| used[operand.0 as usize] = true);
                }
                is_used
            }
            Step::Load(value, _) => used[value.0 as usize],
            Step::Store(_, value) | Step::Give(value) => {
                used[value.0 as usize] = true;
                true
            }
            Step::If { by, then, otherwise } => {
                drop_unused(then, used);
                drop_unused(otherwise, used);
                used[by.0 as usize] = true;
                true
            }
            Step::End(..) => true,
        };
        if !keep {
            steps.remove(at);
        }
    }
}
