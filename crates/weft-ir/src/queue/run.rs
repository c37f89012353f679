//! The interpreter of queue programs, which defines their semantics.

use super::{Handler, Moment, Op, QueueCode, QueueProgram, Scope, Slot, Step, Ty, Value, Verdict, Words};
use crate::interp::numbers;
use std::sync::Arc;
use weft_core::hash;

/// The interpreted handlers of a program.
#[derive(Clone, Debug)]
pub struct Interpreted {
    program: Arc<QueueProgram>,
}

impl Interpreted {
    /// The handlers of a program that [`verify`](super::verify::verify) accepts.
    pub fn new(program: Arc<QueueProgram>) -> Self {
        Self { program }
    }
}

impl QueueCode for Interpreted {
    fn run(&self, level: usize, moment: Moment, mut words: Words<'_>) -> u64 {
        match self.program.levels[level].handlers.get(moment) {
            Some(handler) => handle(handler, &mut words),
            None => Verdict::Pass.word(0),
        }
    }
}

/// Runs a handler and returns its end word.
pub fn handle(handler: &Handler, words: &mut Words<'_>) -> u64 {
    let mut running = Running { handler, words, values: vec![0; handler.types.len()] };
    running.block(&handler.body).unwrap_or(Verdict::Pass.word(0))
}

/// Evaluates an operation that reads no word.
///
/// # Panics
/// For [`Op::Load`], which reads one.
pub fn pure(op: &Op, get: impl Fn(Value) -> u64) -> u64 {
    let int = |value| get(value) as i64;
    let float = |value| f64::from_bits(get(value));
    let truth = |value| get(value) != 0;
    match *op {
        Op::Int(n) => n as u64,
        Op::Float(x) => x.to_bits(),
        Op::Bool(b) => u64::from(b),
        Op::Load(_) => unreachable!("the caller runs loads"),
        Op::IntBinary(op, a, b) => numbers::int(op, int(a), int(b)) as u64,
        Op::IntCompare(op, a, b) => u64::from(numbers::int_compare(op, int(a), int(b))),
        Op::FloatBinary(op, a, b) => numbers::float(op, float(a), float(b)).to_bits(),
        Op::FloatUnary(op, a) => numbers::float_unary(op, float(a)).to_bits(),
        Op::FloatCompare(op, a, b) => u64::from(numbers::float_compare(op, float(a), float(b))),
        Op::IntToFloat(a) => (int(a) as f64).to_bits(),
        Op::FloatToInt(a) => (float(a) as i64) as u64,
        Op::BoolBinary(op, a, b) => u64::from(numbers::bool(op, truth(a), truth(b))),
        Op::Not(a) => u64::from(!truth(a)),
        Op::Select(by, a, b) => get(if truth(by) { a } else { b }),
        Op::Hash(a) => hash::hash_word(get(a)) >> 32,
        Op::HashMix(a, b) => hash::mix(get(a), get(b)) >> 32,
        Op::Log2(a) => int(a).max(1).ilog2().into(),
    }
}

struct Running<'r, 'w> {
    handler: &'r Handler,
    words: &'r mut Words<'w>,
    values: Vec<u64>,
}

impl Running<'_, '_> {
    /// Runs steps. Returns the end word if they end the handler; None if the steps after the block follow.
    fn block(&mut self, steps: &[Step]) -> Option<u64> {
        for step in steps {
            match step {
                Step::Let(value, op) => {
                    let word = match op {
                        Op::Load(slot) => self.load(*slot, self.handler.types[usize::from(value.0)]),
                        op => pure(op, |value| self.values[usize::from(value.0)]),
                    };
                    self.values[usize::from(value.0)] = word;
                }
                Step::Store(slot, value) => {
                    let word = self.values[usize::from(value.0)];
                    *self.word(*slot) = word;
                }
                Step::If { by, then, otherwise } => {
                    let is_true = self.values[usize::from(by.0)] != 0;
                    if let Some(end) = self.block(if is_true { then } else { otherwise }) {
                        return Some(end);
                    }
                }
                Step::End(verdict, line) => return Some(verdict.word(*line)),
                Step::Give(value) => return Some(self.values[usize::from(value.0)]),
            }
        }
        None
    }

    fn load(&mut self, slot: Slot, ty: Ty) -> u64 {
        let word = *self.word(slot);
        if ty == Ty::Bool { u64::from(word != 0) } else { word }
    }

    /// The word of a slot, for reading and writing.
    fn word(&mut self, slot: Slot) -> &mut u64 {
        let words = match slot.scope {
            Scope::Node => &mut *self.words.node,
            Scope::Partition => &mut *self.words.partition,
            Scope::Packet => &mut *self.words.packet,
            Scope::Event => &mut *self.words.event,
        };
        &mut words[usize::from(slot.word)]
    }
}
