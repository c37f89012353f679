//! Generates well-formed queue programs and words for them, to test back ends.
//!
//! Everything follows from a [`Rng`]. To compare a back end with the interpreter:
//!
//! ```
//! use std::sync::Arc;
//! use weft_ir::queue::{QueueCode, generate, run::Interpreted};
//! let compile = |program: &_| Ok(Arc::new(Interpreted::new(Arc::clone(program))) as Arc<dyn QueueCode>);
//! generate::compare(7, compile).unwrap();
//! ```
//!
//! The programs use every operation at every moment; words and constants are often edge values. [`coverage`] counts
//! operations. All NaNs count as equal, since their bits differ between machines.

use super::run::Interpreted;
use super::verify::{allowed, is_writable};
use super::{
    EventWords, Field, HEADERS_MAX, Handler, Handlers, LEVELS_MAX, Level, Limit, Moment, Op, Order, Overflow,
    PacketOrder, PacketWords, Partitions, PartitionsBy, QueueCode, QueueProgram, RecordWords, Scope, Slot,
    Step, Timer, Ty, VARS_MAX, Value, VarDecl, Verdict, Victim, Words, word,
};
use crate::generate::values::{float, int};
use crate::ir::{Named, Signed};
use crate::text::mnemonic;
use std::collections::BTreeMap;
use std::sync::Arc;

pub use weft_core::rng::Rng;

/// Runs per handler in [`compare`].
pub const RUNS: usize = 24;

/// A difference between a back end and the interpreter.
#[derive(Clone, Debug)]
pub struct Difference {
    /// The seed.
    pub seed: u64,
    /// What differs, with the program in text form.
    pub what: String,
}

/// Runs each handler of a random program [`RUNS`] times on random words, with a back end and with the interpreter.
/// Returns the number of handlers.
///
/// # Errors
/// The first run with different results, or an error of the back end.
pub fn compare(
    seed: u64,
    compile: impl FnOnce(&Arc<QueueProgram>) -> Result<Arc<dyn QueueCode>, String>,
) -> Result<usize, Difference> {
    let mut rng = Rng::from_seed(seed);
    let program = Arc::new(program(&mut rng));
    let differs = |what: String| Difference { seed, what: format!("{what}\n{program}") };
    let code = compile(&program).map_err(|why| differs(format!("refused: {why}")))?;
    let meaning = Interpreted::new(program.clone());
    let mut n_handlers = 0;
    for (at, level) in program.levels.iter().enumerate() {
        for (moment, _) in level.handlers.iter() {
            n_handlers += 1;
            let mut kept = HandlerWords::random(&mut rng, level);
            for nth in 0..RUNS {
                kept.draw_next_packet(&mut rng, level);
                let before = kept.clone();
                let expected = meaning.run(at, moment, kept.lend());
                let mut checked = before.clone();
                let seen = code.run(at, moment, checked.lend());
                let direct = code.direct(at, moment).map(|direct| {
                    let mut other = before.clone();
                    (direct.run(other.lend()), other)
                });
                for (seen, does) in [(seen, checked)].into_iter().chain(direct) {
                    if seen != expected || !kept.equals(&does, level) {
                        let which = format!("{}, {moment:?}, run {nth}", level.name);
                        let words = format!("before {before:?}\nshould {kept:?}\n  does {does:?}");
                        return Err(differs(format!("{which}: {expected:#x} and not {seen:#x}\n{words}")));
                    }
                }
            }
        }
    }
    Ok(n_handlers)
}

/// The number of occurrences of each operation, step and end in a program, by [`step_name`].
pub fn coverage(program: &QueueProgram) -> BTreeMap<String, u64> {
    /// Counts the steps by name, with those of both branches.
    fn add(steps: &[Step], counts: &mut BTreeMap<String, u64>) {
        for step in steps {
            *counts.entry(step_name(step)).or_default() += 1;
            if let Step::If { then, otherwise, .. } = step {
                add(then, counts);
                add(otherwise, counts);
            }
        }
    }
    let mut counts = BTreeMap::new();
    for level in &program.levels {
        level.handlers.iter().for_each(|(_, handler)| add(&handler.body, &mut counts));
    }
    counts
}

/// The name of a step in [`coverage`].
pub fn step_name(step: &Step) -> String {
    match step {
        Step::Let(_, op) => mnemonic(op),
        Step::Load(_, slot) => format!("load {:?}", slot.scope),
        Step::Store(slot, _) => format!("store {:?}", slot.scope),
        Step::If { .. } => "if".into(),
        Step::End(verdict, _) => format!("end {verdict:?}"),
        Step::Give(_) => "give".into(),
    }
}

/// One FIFO that holds at most so many packets.
pub fn fifo(packets: Option<u32>) -> QueueProgram {
    let level = Level {
        name: "fifo".to_owned(),
        partitions: Partitions::One,
        vars: Vec::new(),
        partition_vars: Vec::new(),
        order: Order { bits: Some(0), by_least_packet: false },
        packets: PacketOrder::Arrival,
        limit: Limit { packets, bytes: None, overflow: Overflow::Arriving, batch: 1, line: 1 },
        handlers: Handlers::default(),
    };
    QueueProgram { name: "fifo".to_owned(), levels: vec![level], fields: Vec::new() }
}

/// A random program that [`verify`](super::verify::verify) accepts.
pub fn program(rng: &mut Rng) -> QueueProgram {
    let known = Field::ALL.into_iter().map(|(field, _)| field);
    let headers = (0..HEADERS_MAX as u8).map(Field::Header);
    let mut fields: Vec<Field> = known.chain(headers).filter(|_| rng.percent(40)).collect();
    if rng.percent(30) {
        let by: Vec<_> = fields.iter().filter_map(|field| PartitionsBy::of(*field)).collect();
        fields.extend(by.into_iter().take(PartitionsBy::MAX).map(Field::Partitions));
    }
    let mut program = QueueProgram { name: "generated".into(), levels: Vec::new(), fields };
    let n_levels = 1 + rng.below(LEVELS_MAX);
    for at in 0..n_levels {
        let level = level(rng, at, at + 1 == n_levels);
        program.levels.push(level);
    }
    for at in 0..n_levels {
        let handlers = handlers(rng, &program, &program.levels[at]);
        program.levels[at].handlers = handlers;
    }
    program
}

/// Generates a level without its handlers.
fn level(rng: &mut Rng, at: usize, is_leaf: bool) -> Level {
    let n = rng.pick(&[1, 2, 8]);
    let partitions =
        rng.pick(&[Partitions::One, Partitions::Hash { n: 8, ways: n }, Partitions::Direct { n: 1 + n }]);
    let by_least_packet = is_leaf && rng.percent(30);
    let is_ranked = is_leaf && partitions == Partitions::One && rng.percent(50);
    let bits = rng.pick(&[None, Some(0), Some(10), Some(18)]);
    let partition = rng.pick(&[Victim::Own, Victim::MostBytes, Victim::HighestRank]);
    let victim = Overflow::Victim { partition, head: rng.percent(50) };
    Level {
        name: format!("level {at}"),
        partitions,
        vars: vars(rng),
        partition_vars: vars(rng),
        order: Order { bits, by_least_packet },
        packets: if is_ranked { PacketOrder::Rank { bits } } else { PacketOrder::Arrival },
        limit: Limit {
            packets: Some(1 + rng.below(1000) as u32),
            bytes: None,
            overflow: rng.pick(&[Overflow::Arriving, victim]),
            batch: 1,
            line: 1,
        },
        handlers: Handlers::default(),
    }
}

/// Generates variables, at least two of each type.
fn vars(rng: &mut Rng) -> Vec<VarDecl> {
    let extra = rng.below(3);
    let types = [Ty::Int, Ty::Float, Ty::Bool, Ty::Int, Ty::Float, Ty::Bool, Ty::Int, Ty::Int];
    let var = |(at, ty): (usize, Ty)| {
        let (bits, start) = match ty {
            Ty::Bool => (1, rng.below(2) as u64),
            Ty::Float => (64, float(rng).to_bits()),
            _ => (64, int(rng) as u64),
        };
        VarDecl { name: format!("v{at}"), ty, bits, signed: ty == Ty::Int, start }
    };
    types.into_iter().take(6 + extra).enumerate().map(var).collect()
}

/// Generates all mandatory handlers of a level, and most optional ones.
fn handlers(rng: &mut Rng, program: &QueueProgram, level: &Level) -> Handlers {
    let has_partitions = level.partitions != Partitions::One;
    let needs_rank = level.order.by_least_packet || level.packets != PacketOrder::Arrival;
    let mut some = |moment| {
        let is_there = match moment {
            Moment::Key => has_partitions,
            Moment::PacketRank => needs_rank,
            _ => rng.percent(80),
        };
        is_there.then(|| Generating::handler(rng, program, level, moment))
    };
    Handlers {
        key: some(Moment::Key),
        packet_rank: some(Moment::PacketRank),
        enqueue: some(Moment::Enqueue),
        activate: some(Moment::Activate),
        select: some(Moment::Select),
        dequeue: some(Moment::Dequeue),
        empty: some(Moment::Empty),
        every: [false, has_partitions]
            .into_iter()
            .enumerate()
            .map_while(|(nth, each_partition)| {
                let timer = Timer { interval_ns: 1_000_000, each_partition, handler: Handler::pass() };
                Some(Timer { handler: some(timer.moment(nth))?, ..timer })
            })
            .collect(),
    }
}

/// Maximum nesting of conditions.
const DEPTH_MAX: usize = 3;

struct Generating<'g> {
    rng: &'g mut Rng,
    program: &'g QueueProgram,
    level: &'g Level,
    moment: Moment,
    types: Vec<Ty>,
    /// The values in scope.
    values: Vec<Value>,
    line: u32,
}

impl<'g> Generating<'g> {
    /// Generates a handler that ends on each path.
    fn handler(rng: &'g mut Rng, program: &'g QueueProgram, level: &'g Level, moment: Moment) -> Handler {
        let mut generating =
            Self { rng, program, level, moment, types: Vec::new(), values: Vec::new(), line: 0 };
        let mut body = Vec::new();
        if !generating.block(&mut body, 0) {
            generating.end(&mut body);
        }
        Handler { body, types: generating.types }
    }

    /// Adds random steps. True if all paths through them end the handler.
    fn block(&mut self, steps: &mut Vec<Step>, depth: usize) -> bool {
        let outer = self.values.len();
        let mut ended = false;
        for _ in 0..1 + self.rng.below(12) {
            match self.rng.below(10) {
                0 if depth < DEPTH_MAX => ended = self.branch(steps, depth),
                1..=2 => self.store(steps),
                _ => {
                    self.operation(steps);
                }
            }
            if ended {
                break;
            }
        }
        if !ended && depth > 0 && self.rng.percent(40) {
            self.end(steps);
            ended = true;
        }
        self.values.truncate(outer);
        ended
    }

    /// Adds a branch with random blocks. True if both blocks end the handler.
    fn branch(&mut self, steps: &mut Vec<Step>, depth: usize) -> bool {
        let by = self.value(steps, Ty::Bool);
        let (mut then, mut otherwise) = (Vec::new(), Vec::new());
        let then_ends = self.block(&mut then, depth + 1);
        let has_otherwise = self.rng.percent(70);
        let otherwise_ends = has_otherwise && self.block(&mut otherwise, depth + 1);
        steps.push(Step::If { by, then, otherwise });
        then_ends && otherwise_ends
    }

    /// Adds a store to a random writable slot, if there is one.
    fn store(&mut self, steps: &mut Vec<Step>) {
        let stored = self.slots().into_iter().filter(|(slot, _)| is_writable(*slot));
        let stored: Vec<_> = stored.collect();
        if let [_, ..] = stored[..] {
            let (slot, ty) = self.rng.pick(&stored);
            let value = self.value(steps, ty);
            steps.push(Step::Store(slot, value));
        }
    }

    /// Adds a random verdict that the moment allows, or the value that it gives.
    fn end(&mut self, steps: &mut Vec<Step>) {
        self.line += 1;
        if self.moment.gives() {
            let value = self.value(steps, Ty::Int);
            steps.push(Step::Give(value));
        } else {
            let ends: Vec<Verdict> =
                Verdict::ALL.into_iter().filter(|verdict| allowed(self.moment, *verdict)).collect();
            let verdict = self.rng.pick(&ends);
            steps.push(Step::End(verdict, self.line));
        }
    }

    /// Chooses a value of this type, usually an existing one.
    fn value(&mut self, steps: &mut Vec<Step>, ty: Ty) -> Value {
        let there: Vec<Value> =
            self.values.iter().copied().filter(|v| self.types[v.0 as usize] == ty).collect();
        if !there.is_empty() && self.rng.percent(85) {
            return self.rng.pick(&there);
        }
        let loads: Vec<Slot> =
            self.slots().into_iter().filter(|(_, of)| *of == ty).map(|(slot, _)| slot).collect();
        if !loads.is_empty() && self.rng.percent(70) {
            let slot = self.rng.pick(&loads);
            return self.define(steps, ty, |value| Step::Load(value, slot));
        }
        let op = match ty {
            Ty::Bool => Op::BoolConst(self.rng.percent(50)),
            Ty::Float => Op::FloatConst(float(self.rng)),
            _ => Op::IntConst(int(self.rng)),
        };
        self.define(steps, ty, |value| Step::Let(value, op))
    }

    /// Adds a step that defines a value of this type; returns the value.
    fn define(&mut self, steps: &mut Vec<Step>, ty: Ty, step: impl FnOnce(Value) -> Step) -> Value {
        let value = Value(self.types.len() as u32);
        self.types.push(ty);
        self.values.push(value);
        steps.push(step(value));
        value
    }

    /// Adds a random operation; returns its result.
    fn operation(&mut self, steps: &mut Vec<Step>) -> Value {
        let mut int = |g: &mut Self| g.value(steps, Ty::Int);
        let (ty, op) = match self.rng.below(16) {
            0..=4 => (Ty::Int, Op::IntBinary(self.named(), int(self), int(self))),
            5 => (Ty::Bool, Op::IntCompare(self.named(), int(self), int(self))),
            6 => (Ty::Int, Op::Hash(int(self))),
            7 => (Ty::Int, Op::HashMix(int(self), int(self))),
            8 => (Ty::Int, Op::Log2(int(self))),
            9 => (Ty::Float, Op::IntToFloat(Signed::Yes, int(self))),
            _ => self.other_operation(steps),
        };
        self.define(steps, ty, |value| Step::Let(value, op))
    }

    /// Chooses a value of a type that is named in mnemonics.
    fn named<T: Named>(&mut self) -> T {
        self.rng.pick(T::NAMES).1
    }

    /// Generates an operation on floats or booleans, and its type.
    fn other_operation(&mut self, steps: &mut Vec<Step>) -> (Ty, Op) {
        let mut float = |g: &mut Self| g.value(steps, Ty::Float);
        match self.rng.below(10) {
            0..=2 => (Ty::Float, Op::FloatBinary(self.named(), float(self), float(self))),
            3..=4 => (Ty::Float, Op::FloatUnary(self.named(), float(self))),
            5 => (Ty::Bool, Op::FloatCompare(self.named(), float(self), float(self))),
            6 => (Ty::Int, Op::FloatToInt(Signed::Yes, float(self))),
            7 => (Ty::Bool, Op::Not(self.value(steps, Ty::Bool))),
            8 => {
                let (a, b) = (self.value(steps, Ty::Bool), self.value(steps, Ty::Bool));
                (Ty::Bool, Op::BoolBinary(self.named(), a, b))
            }
            _ => {
                let ty = self.rng.pick(&[Ty::Bool, Ty::Int, Ty::Float]);
                let (by, a) = (self.value(steps, Ty::Bool), self.value(steps, ty));
                (ty, Op::Select(by, a, self.value(steps, ty)))
            }
        }
    }

    /// Lists the readable slots with their types.
    fn slots(&self) -> Vec<(Slot, Ty)> {
        let ints = |scope, n: u16| (0..n).map(move |word| (Slot::new(scope, word), Ty::Int));
        let vars = |scope, first: u16, vars: &'g [VarDecl]| {
            (first..).zip(vars).map(move |(word, var)| (Slot::new(scope, word), var.ty))
        };
        let Level { vars: node_vars, partition_vars, .. } = self.level;
        let mut slots: Vec<_> = ints(Scope::Node, word::NODE_VARS).collect();
        slots.extend(vars(Scope::Node, word::NODE_VARS, node_vars));
        slots.extend(ints(Scope::Event, word::EVENT_WORDS));
        if self.moment.has_partition() {
            slots.extend(ints(Scope::Partition, word::PARTITION_VARS));
            slots.extend(vars(Scope::Partition, word::PARTITION_VARS, partition_vars));
        }
        if self.moment.has_packet() {
            slots.extend(ints(Scope::Packet, self.program.packet_words() as u16 - 1));
        }
        slots
    }
}

/// The words of successive runs of a handler.
#[derive(Clone, Debug)]
pub struct HandlerWords {
    node: RecordWords,
    partition: RecordWords,
    packet: PacketWords,
    event: EventWords,
}

impl HandlerWords {
    /// The words of a level at its start: variables have their start values, all other words are 0.
    pub fn at_start(level: &Level) -> Self {
        let starts = |vars: &[VarDecl], first: u16| {
            let mut words = [0; _];
            assert!(vars.len() <= VARS_MAX, "the verifier limits the variables");
            words.iter_mut().skip(first.into()).zip(vars).for_each(|(word, var)| *word = var.start);
            words
        };
        Self {
            node: starts(&level.vars, word::NODE_VARS),
            partition: starts(&level.partition_vars, word::PARTITION_VARS),
            packet: [0; _],
            event: [0; _],
        }
    }

    /// Generates random words; variables have their start values.
    fn random(rng: &mut Rng, level: &Level) -> Self {
        let mut words = Self::at_start(level);
        let Self { node, partition, packet, event } = &mut words;
        let nodes = node[..word::NODE_VARS.into()].iter_mut();
        let partitions = &mut partition[..word::PARTITION_VARS.into()];
        nodes.chain(partitions).chain(packet).chain(event).for_each(|word| *word = int(rng) as u64);
        words
    }

    /// The words, for a run.
    pub fn lend(&mut self) -> Words<'_> {
        let Self { node, partition, packet, event } = self;
        Words { node, partition, packet, event }
    }

    /// The word of a slot.
    pub fn get(&self, slot: Slot) -> u64 {
        let words: &[u64] = match slot.scope {
            Scope::Node => &self.node,
            Scope::Partition => &self.partition,
            Scope::Packet => &self.packet,
            Scope::Event => &self.event,
        };
        words[usize::from(slot.word)]
    }

    /// The next packet at another moment. Some state changes too, because few handlers reach everything that they
    /// compare with.
    fn draw_next_packet(&mut self, rng: &mut Rng, level: &Level) {
        let other = Self::random(rng, level);
        self.packet = other.packet;
        self.event = other.event;
        for (words, vars, first) in [
            (&mut self.node, &level.vars, word::NODE_VARS),
            (&mut self.partition, &level.partition_vars, word::PARTITION_VARS),
        ] {
            for (var, word) in vars.iter().zip(&mut words[usize::from(first)..]) {
                if rng.percent(30) {
                    *word = match var.ty {
                        Ty::Bool => rng.below(2) as u64,
                        Ty::Float => float(rng).to_bits(),
                        _ => int(rng) as u64,
                    };
                }
            }
        }
    }

    /// Whether all words are equal; any two NaNs count as equal.
    fn equals(&self, other: &Self, level: &Level) -> bool {
        let same = |mine: &[u64], theirs: &[u64], vars: &[VarDecl], first: u16| {
            let mut pairs = mine.iter().zip(theirs).enumerate();
            pairs.all(|(at, (mine, theirs))| {
                let var = at.checked_sub(usize::from(first)).and_then(|at| vars.get(at));
                let is_nan = |word: &u64| f64::from_bits(*word).is_nan();
                mine == theirs || var.is_some_and(|var| var.ty == Ty::Float) && is_nan(mine) && is_nan(theirs)
            })
        };
        same(&self.node, &other.node, &level.vars, word::NODE_VARS)
            && same(&self.partition, &other.partition, &level.partition_vars, word::PARTITION_VARS)
            && self.packet == other.packet
            && self.event == other.event
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::queue::verify::verify;

    #[test]
    fn generated_programs_verify() {
        // Otherwise a back end could fail on a program that it need not accept.
        for seed in 0..500 {
            let program = program(&mut Rng::from_seed(seed));
            assert_eq!(verify(&program), Ok(()), "seed {seed}\n{program}");
        }
    }

    #[test]
    fn wrong_operation_is_detected() {
        // If a wrong step goes unnoticed, the comparison does not test that step.
        const SEEDS: u64 = 400;
        let covered: Vec<_> = (0..SEEDS).map(|seed| coverage(&program(&mut Rng::from_seed(seed)))).collect();
        let mut names: Vec<&String> = covered.iter().flat_map(BTreeMap::keys).collect();
        names.sort();
        names.dedup();
        // 41 operations with operands, 3 constants, loads and stores of 4 scopes, `if`, 7 verdicts and `give`.
        assert_eq!(names.len(), 41 + 7 + 3 + 8 + 9, "{names:?}");
        let is_found = |name: &&String| {
            let has_it = (0..SEEDS).filter(|seed| covered[*seed as usize].contains_key(*name));
            has_it
                .take(150)
                .any(|seed| compare(seed, |program| Ok(Arc::new(spoiled(program, name)))).is_err())
        };
        let unseen: Vec<_> = names.into_iter().filter(|name| !is_found(name)).collect();
        assert!(unseen.is_empty(), "{unseen:?}");
    }

    /// A back end with one wrong step.
    fn spoiled(program: &QueueProgram, name: &str) -> Interpreted {
        let mut program = program.clone();
        for level in &mut program.levels {
            let Handlers { key, packet_rank, enqueue, activate, select, dequeue, empty, every } =
                &mut level.handlers;
            let single = [key, packet_rank, enqueue, activate, select, dequeue, empty].into_iter().flatten();
            for handler in single.chain(every.iter_mut().map(|timer| &mut timer.handler)) {
                let Handler { body, types } = handler;
                spoil(body, types, name);
            }
        }
        Interpreted::new(Arc::new(program))
    }

    /// Another constant instead of a result, no store, the other branch, another end.
    fn spoil(steps: &mut Vec<Step>, types: &[Ty], name: &str) {
        let is_it = |step: &Step| step_name(step) == name;
        steps.retain(|step| !matches!(step, Step::Store(..)) || !is_it(step));
        for step in steps {
            let spoils = is_it(step);
            match step {
                &mut (Step::Let(value, _) | Step::Load(value, _)) if spoils => {
                    let zero = match types[value.0 as usize] {
                        Ty::Bool => Op::BoolConst(false),
                        Ty::Float => Op::FloatConst(0.0),
                        _ => Op::IntConst(0),
                    };
                    let other = match zero {
                        _ if !matches!(step, Step::Let(_, op) if *op == zero) => zero,
                        Op::BoolConst(_) => Op::BoolConst(true),
                        Op::FloatConst(_) => Op::FloatConst(1.0),
                        _ => Op::IntConst(1),
                    };
                    *step = Step::Let(value, other);
                }
                Step::End(_, line) if spoils => *line += 1,
                Step::Give(_) if spoils => *step = Step::End(Verdict::Rotate, 77),
                Step::If { then, otherwise, .. } => {
                    if spoils {
                        core::mem::swap(then, otherwise);
                    }
                    spoil(then, types, name);
                    spoil(otherwise, types, name);
                }
                _ => {}
            }
        }
    }
}
