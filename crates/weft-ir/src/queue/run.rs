//! The interpreter of queue programs, which defines their semantics.

use super::{Handler, Moment, QueueCode, QueueProgram, Slot, Step, Ty, Value, Verdict, Words};
use crate::interp::evaluate;
use std::sync::Arc;

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
    running.block(&handler.body).expect("the verifier requires an end on each path")
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
                    self.values[value.0 as usize] = evaluate(op, |operand| self.get(operand));
                }
                Step::Load(value, slot) => self.values[value.0 as usize] = self.load(*slot, *value),
                Step::Store(slot, value) => *self.words.word(*slot) = self.get(*value),
                Step::If { by, then, otherwise } => {
                    let is_true = self.get(*by) != 0;
                    if let Some(end) = self.block(if is_true { then } else { otherwise }) {
                        return Some(end);
                    }
                }
                Step::End(verdict, line) => return Some(verdict.word(*line)),
                Step::Give(value) => return Some(self.get(*value)),
            }
        }
        None
    }

    fn get(&self, value: Value) -> u64 {
        self.values[value.0 as usize]
    }

    /// The content of a slot as `value`: any word but 0 is true.
    fn load(&mut self, slot: Slot, value: Value) -> u64 {
        let word = *self.words.word(slot);
        if self.handler.types[value.0 as usize] == Ty::Bool { u64::from(word != 0) } else { word }
    }
}
