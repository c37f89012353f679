//! Converts handlers to a net: sequential steps become combinational logic.
//!
//! The converter walks a handler once, with a map of the contents of each word. It builds both sides of a branch, and
//! the condition selects the results; an end on one side is such a choice, too. So a decision takes one clock, whatever
//! the path.

use crate::net::{Gate, Net, Wire};
use crate::range::Range;
use crate::share::{self, Path};
use crate::{GATES_MAX, Widths};
use rustc_hash::FxHashMap;
use std::collections::BTreeMap;
use weft_ir::backend::Unsupported;
use weft_ir::ir::BoolOp;
use weft_ir::queue::{
    Field, Handler, Level, PACKETS_MAX, QueueProgram, Scope, Slot, Step, Ty, Value, VarDecl, word,
};

/// The results at the end of a handler.
#[derive(Clone, Debug)]
pub(crate) struct HandlerEnd {
    /// The words that it wrote.
    pub(crate) words: Words,
    /// The number of the verdict, or the number that it gave.
    pub(crate) result: Wire,
}

/// The contents of written words; other words are unchanged.
pub(crate) type Words = BTreeMap<Slot, Wire>;

/// An input of a net.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    /// The number of the moment; 0 if there is none.
    Moment,
    /// A word.
    Slot(Slot),
}

/// Converts a level to a net.
pub(crate) struct Converter<'c> {
    pub(crate) net: Net,
    /// By the number of [`Gate::Input`].
    pub(crate) sources: Vec<Source>,
    /// Source lines of gates on floats.
    pub(crate) lines: FxHashMap<Wire, u32>,
    /// The conditions under which costly gates are used.
    pub(crate) paths: FxHashMap<Wire, Path>,
    program: &'c QueueProgram,
    level: &'c Level,
    widths: &'c Widths,
}

impl<'c> Converter<'c> {
    /// Makes a converter with an empty net.
    pub(crate) fn new(program: &'c QueueProgram, level: &'c Level, widths: &'c Widths) -> Self {
        let (net, sources) = (Net::default(), Vec::new());
        let (lines, paths) = (FxHashMap::default(), FxHashMap::default());
        Self { net, sources, lines, paths, program, level, widths }
    }

    /// Converts a handler that runs under the conditions `path`.
    ///
    /// # Errors
    /// It takes more than [`GATES_MAX`] gates.
    pub(crate) fn handler(&mut self, handler: &Handler, path: Path) -> Result<HandlerEnd, Unsupported> {
        let values = vec![None; handler.types.len()];
        let mut walk = Walk { converter: self, values, path };
        let flow = walk.block(&handler.body, Words::new(), 0)?;
        assert!(flow.words.is_none(), "the verifier requires an end on each path");
        Ok(flow.end.expect("a path that goes nowhere else has ended"))
    }

    /// Adds an input for a source, or finds it if it exists.
    pub(crate) fn input(&mut self, source: Source, ty: Ty, range: Range) -> Wire {
        let nth = self.sources.iter().position(|known| *known == source).unwrap_or_else(|| {
            self.sources.push(source);
            self.sources.len() - 1
        });
        self.net.input(nth as u32, ty, range)
    }

    /// The content of a word before the handler runs.
    pub(crate) fn initial_word(&mut self, slot: Slot) -> Wire {
        let (ty, range) = self.type_and_range(slot);
        match range.only_value() {
            Some(n) => self.net.int(n),
            None => self.input(Source::Slot(slot), ty, range),
        }
    }

    /// The type and range of the word in a slot.
    pub(crate) fn type_and_range(&self, slot: Slot) -> (Ty, Range) {
        if let Some(var) = self.var(slot) {
            let range = match (var.ty, var.signed) {
                (Ty::Bool, _) => Range::BIT,
                (Ty::Float, _) => Range::FULL,
                (_, true) => Range::signed_bits_of(u32::from(var.bits).max(1)),
                (_, false) => Range::bits_of(u32::from(var.bits)),
            };
            return (var.ty, range);
        }
        let limit = self.level.limit;
        let packets = u64::from(limit.packets.unwrap_or(PACKETS_MAX)) + 1;
        let len_max = (1_u64 << self.widths.len_bits) - 1;
        let up_to = |n: u64| Range { lo: 0, hi: i64::try_from(n).unwrap_or(i64::MAX) };
        let time = Range::bits_of(self.widths.time_bits);
        let range = match (slot.scope, slot.word) {
            (Scope::Node | Scope::Partition, word::PACKETS) => up_to(packets),
            (Scope::Node | Scope::Partition, word::BYTES) => {
                up_to(limit.bytes.map_or(packets * len_max, |bytes| bytes.saturating_add(len_max)))
            }
            (Scope::Partition, word::INDEX) => Range::only(0),
            (Scope::Packet, word::ARRIVED) | (Scope::Event, word::NOW | word::HOLD) => time,
            (Scope::Packet, word::LEN) => up_to(len_max),
            (Scope::Packet, word::ECN) => Range::bits_of(2),
            (Scope::Packet, at) if at >= word::FIELDS => self.field(at),
            (Scope::Event, word::RANDOM) => Range::bits_of(53),
            (Scope::Event, word::DRAWN) => Range::BIT,
            (Scope::Event, word::DROPS) => up_to(packets),
            (Scope::Event, word::RATE) => Range::bits_of(self.widths.rate_bits),
            _ => Range::FULL,
        };
        (Ty::Int, range)
    }

    /// The range of a packet field.
    fn field(&self, at: u16) -> Range {
        Range::bits_of(match self.program.fields.get(usize::from(at - word::FIELDS)) {
            Some(Field::Flow | Field::Src | Field::Dst | Field::Class) => 32,
            Some(Field::Dscp) => 6,
            Some(Field::NetLen) => self.widths.len_bits,
            // The queue around the gates counts them.
            Some(Field::Partitions(_)) => 32,
            Some(Field::Remaining) => self.widths.remaining_bits,
            Some(Field::Slack | Field::Deadline) => self.widths.time_bits,
            Some(Field::Header(_)) | None => 64,
        })
    }

    /// The variable in a slot; None if the slot holds another word.
    pub(crate) fn var(&self, slot: Slot) -> Option<&'c VarDecl> {
        let (vars, first) = match slot.scope {
            Scope::Node => (&self.level.vars, word::NODE_VARS),
            Scope::Partition => (&self.level.partition_vars, word::PARTITION_VARS),
            Scope::Packet | Scope::Event => return None,
        };
        vars.get(usize::from(slot.word.checked_sub(first)?))
    }

    /// The program's name for the packet field in this word.
    pub(crate) fn field_name(&self, at: u16) -> &'static str {
        let nth = usize::from(at.saturating_sub(word::FIELDS));
        self.program.fields.get(nth).map_or("word", |field| field.name())
    }

    /// Adds muxes that choose between two states: `a` if `by` is 1, else `b`.
    fn select_words(&mut self, by: Wire, a: Words, b: Words) -> Words {
        let slots: Vec<Slot> = a.keys().chain(b.keys()).copied().collect();
        let mut words = Words::new();
        for slot in slots {
            let held = |this: &mut Self, words: &Words| {
                words.get(&slot).copied().unwrap_or_else(|| this.initial_word(slot))
            };
            let (a, b) = (held(self, &a), held(self, &b));
            words.insert(slot, self.net.mux(by, a, b));
        }
        words
    }
}

/// The possible states at a point of a handler.
struct Flow {
    /// Whether it has ended before.
    ended: Wire,
    /// The results if it has; None if impossible.
    end: Option<HandlerEnd>,
    /// The contents of the words if it has not; None if it must have ended.
    words: Option<Words>,
}

struct Walk<'w, 'c> {
    converter: &'w mut Converter<'c>,
    values: Vec<Option<Wire>>,
    /// The conditions of the current path.
    path: Path,
}

impl Walk<'_, '_> {
    /// Converts steps; `line` is the source line of the verdict after them.
    fn block(&mut self, steps: &[Step], words: Words, line: u32) -> Result<Flow, Unsupported> {
        let path = self.path.clone();
        let mut ended = Vec::new();
        let last = self.steps(steps, words, line, &mut ended)?;
        self.path = path;
        Ok(ended.into_iter().rev().fold(last, |rest, (ended, end)| self.merge_ended(ended, end, rest)))
    }

    /// Converts steps; adds the conditions of ends within them to a list.
    fn steps(
        &mut self,
        steps: &[Step],
        mut words: Words,
        line: u32,
        ended: &mut Vec<(Wire, HandlerEnd)>,
    ) -> Result<Flow, Unsupported> {
        for (at, step) in steps.iter().enumerate() {
            let line = next_line(&steps[at..]).unwrap_or(line);
            if self.converter.net.len() > GATES_MAX {
                return Err(Unsupported { reason: format!("it takes more than {GATES_MAX} gates"), line });
            }
            match step {
                Step::Let(value, op) => self
                    .define(*value, line, |walk| walk.converter.net.op(op, |value| get(&walk.values, value))),
                Step::Load(value, slot) => self.define(*value, line, |walk| {
                    words.get(slot).copied().unwrap_or_else(|| walk.converter.initial_word(*slot))
                }),
                Step::Store(slot, value) => {
                    words.insert(*slot, get(&self.values, *value));
                }
                Step::If { by, then, otherwise } => {
                    let by = get(&self.values, *by);
                    let line = next_line(&steps[at + 1..]).unwrap_or(line);
                    let first = self.branch(by, [then, otherwise], words, line)?;
                    let Some(open) = first.words else { return Ok(Flow { words: None, ..first }) };
                    words = open;
                    if let Some(end) = first.end {
                        self.path.insert(self.converter.net.condition(first.ended, false));
                        ended.push((first.ended, end));
                    }
                }
                Step::End(verdict, _) => {
                    let result = self.converter.net.int(*verdict as i64);
                    return Ok(self.ended(HandlerEnd { words, result }));
                }
                Step::Give(value) => {
                    let result = get(&self.values, *value);
                    return Ok(self.ended(HandlerEnd { words, result }));
                }
            }
        }
        Ok(Flow { ended: self.converter.net.bool(false), end: None, words: Some(words) })
    }

    /// Makes the wire of a value, and records the line and the conditions of a costly gate.
    fn define(&mut self, value: Value, line: u32, make: impl FnOnce(&mut Self) -> Wire) {
        let n_before = self.converter.net.len();
        let wire = make(self);
        self.values[value.0 as usize] = Some(wire);
        let is_of_floats = is_of_floats(self.converter.net.gate(wire));
        if is_of_floats && wire.index() >= n_before {
            self.converter.lines.insert(wire, line);
        }
        if is_of_floats || share::is_dear(&self.converter.net, wire) {
            share::add_path(&mut self.converter.paths, wire, self.path.clone());
        }
    }

    /// The flow after a verdict: nothing follows.
    fn ended(&mut self, end: HandlerEnd) -> Flow {
        Flow { ended: self.converter.net.bool(true), end: Some(end), words: None }
    }

    /// Converts both sides of a branch, and merges their states and ends by the condition.
    fn branch(&mut self, by: Wire, ways: [&[Step]; 2], words: Words, line: u32) -> Result<Flow, Unsupported> {
        let [then, otherwise] = ways;
        let a = self.under_condition(by, true, |walk| walk.block(then, words.clone(), line))?;
        let b = self.under_condition(by, false, |walk| walk.block(otherwise, words, line))?;
        let ended = self.converter.net.mux(by, a.ended, b.ended);
        let end = self.end_of(by, a.end, b.end);
        let words = match (a.words, b.words) {
            (Some(a), Some(b)) => Some(self.converter.select_words(by, a, b)),
            (a, b) => a.or(b),
        };
        Ok(Flow { ended, end, words })
    }

    /// Runs `walk` with the condition `by` = `side` in the path.
    fn under_condition<T>(&mut self, by: Wire, side: bool, walk: impl FnOnce(&mut Self) -> T) -> T {
        let path = self.path.clone();
        self.path.insert(self.converter.net.condition(by, side));
        let made = walk(self);
        self.path = path;
        made
    }

    /// Merges an earlier end, taken if `ended` is 1, with the rest.
    fn merge_ended(&mut self, ended: Wire, end: HandlerEnd, rest: Flow) -> Flow {
        let end = self.end_of(ended, Some(end), rest.end);
        let ended = self.converter.net.logic(BoolOp::Or, ended, rest.ended);
        Flow { ended, end, words: rest.words }
    }

    /// Merges the ends of two branches by a condition; None if neither has ended.
    fn end_of(&mut self, by: Wire, a: Option<HandlerEnd>, b: Option<HandlerEnd>) -> Option<HandlerEnd> {
        match (a, b) {
            (Some(a), Some(b)) => {
                let words = self.converter.select_words(by, a.words, b.words);
                let result = self.converter.net.mux(by, a.result, b.result);
                Some(HandlerEnd { words, result })
            }
            (a, b) => a.or(b),
        }
    }
}

/// The verifier guarantees that each value is defined before its use.
fn get(values: &[Option<Wire>], value: Value) -> Wire {
    values[value.0 as usize].expect("a value is defined before it is used")
}

/// Whether a gate computes with floats.
fn is_of_floats(gate: Gate) -> bool {
    matches!(
        gate,
        Gate::FloatBinary(..)
            | Gate::FloatUnary(..)
            | Gate::FloatCompare(..)
            | Gate::ToFloat(_)
            | Gate::ToInt(_)
    )
}

/// The line of the first verdict in these steps; other steps have none.
fn next_line(steps: &[Step]) -> Option<u32> {
    steps.iter().find_map(|step| match step {
        Step::End(_, line) => Some(*line),
        Step::If { then, otherwise, .. } => next_line(then).or_else(|| next_line(otherwise)),
        Step::Let(..) | Step::Load(..) | Step::Store(..) | Step::Give(_) => None,
    })
}
