//! Finds the sources of values: inputs, state, the clock and random numbers.
//!
//! A value has the sources of its operands; a block's parameter also those of the branches that choose the jump into
//! the block. A read of an input, a variable, a cell or a table has the sources of everything that the handler writes
//! there, and of whether it does.
//!
//! Bytes cut for lack of room are left out: a program tests for room with [`Op::ScratchFull`], whose source is
//! [`Source::Room`].

use std::collections::BTreeMap;

use weft_core::native::{Effect, NativeDecl};
use weft_ir::ir::{Function, InputId, Op, Terminator, Value};

use super::flow::Flow;
use super::{Source, Sources};

/// The sources of each value of a function.
pub(super) struct Provenance {
    values: Vec<Sources>,
    /// The sources of what the handler itself has written, by place.
    written: BTreeMap<Source, Sources>,
    /// The sources of all conditions.
    all_conditions: Sources,
}

/// The conditions that decide about each block; None means all.
type Deciding = Vec<Option<Vec<Value>>>;

impl Provenance {
    /// Computes the sources of all values of a function. Repeats until nothing changes.
    pub(super) fn of(function: &Function, flow: &Flow, natives: &[NativeDecl]) -> Self {
        let values = vec![Sources::new(); function.types.len()];
        let mut known = Self { values, written: BTreeMap::new(), all_conditions: Sources::new() };
        let deciding: Deciding = (0..function.blocks.len()).map(|b| flow.deciding(b)).collect();
        let choosing: Deciding = (0..function.blocks.len()).map(|b| flow.choosing(b)).collect();
        let conditions = flow.conditions();
        // Sets only grow, and there are finitely many sources.
        while known.round(function, natives, &deciding, &choosing) {
            known.all_conditions = known.of_all(&conditions);
        }
        known
    }

    /// The sources of a value.
    pub(super) fn sources(&self, value: Value) -> &Sources {
        &self.values[value.0 as usize]
    }

    /// The sources of all these values.
    pub(super) fn of_all(&self, values: &[Value]) -> Sources {
        values.iter().flat_map(|value| self.sources(*value).iter().copied()).collect()
    }

    /// The sources of these conditions; None means all.
    pub(super) fn of_conditions(&self, conditions: Option<&[Value]>) -> Sources {
        conditions.map_or_else(|| self.all_conditions.clone(), |conditions| self.of_all(conditions))
    }

    /// Propagates once; returns whether there is anything new.
    fn round(
        &mut self,
        function: &Function,
        natives: &[NativeDecl],
        deciding: &Deciding,
        choosing: &Deciding,
    ) -> bool {
        let mut changed = false;
        for (at, block) in function.blocks.iter().enumerate() {
            for inst in &block.insts {
                let operands = self.of_all(&inst.op.operands());
                if let Some(result) = inst.result {
                    let read = self.read_by(&inst.op, natives);
                    changed |=
                        grow(&mut self.values[result.0 as usize], operands.iter().copied().chain(read));
                }
                for target in written_by(&inst.op, &self.written) {
                    let control = self.of_conditions(deciding[at].as_deref());
                    let written = self.written.entry(target).or_default();
                    changed |= grow(written, operands.iter().copied().chain(control));
                }
            }
            changed |= self.jumps(function, &block.end, choosing);
        }
        changed
    }

    /// Propagates the sources of a block's jump arguments to the parameters. Returns whether there are new sources.
    fn jumps(&mut self, function: &Function, end: &Terminator, choosing: &Deciding) -> bool {
        let mut changed = false;
        for jump in end.jumps() {
            let to = jump.block.0 as usize;
            let control = self.of_conditions(choosing[to].as_deref());
            for (param, arg) in function.blocks[to].params.iter().zip(&jump.args) {
                let given: Sources = self.sources(*arg).union(&control).copied().collect();
                changed |= grow(&mut self.values[param.0 as usize], given);
            }
        }
        changed
    }

    /// Returns the sources of an operation besides its operands.
    fn read_by(&self, op: &Op, natives: &[NativeDecl]) -> Sources {
        let source = match *op {
            Op::Input(id) | Op::InputPresent(id) => Source::Input(id),
            Op::Derived(id) => return self.derived(id),
            Op::CallGet(id) => Source::Call(id),
            Op::VarGet(id) | Op::VarMerged(id) => Source::Var(id),
            Op::Find(table, _)
            | Op::Match(table, ..)
            | Op::Insert(table, ..)
            | Op::Column(table, ..)
            | Op::ColumnIsNull(table, ..)
            | Op::SetColumn(table, ..)
            | Op::Count(table)
            | Op::ExpiredRow(table)
            | Op::ScanRow(table, _) => Source::Table(table),
            Op::Now => Source::Now,
            Op::Egress => Source::Egress,
            Op::Rand(_) => Source::Rand,
            Op::Native(id, ..) => match natives[usize::from(id.0)].native.info().effect {
                Effect::Pure => return Sources::new(),
                Effect::Clock => Source::Now,
                Effect::Random | Effect::Nonce => Source::Rand,
            },
            Op::ScratchFull => Source::Room,
            _ => return Sources::new(),
        };
        let written = self.written.get(&source).into_iter().flatten().copied();
        core::iter::once(source).chain(written).collect()
    }

    /// A value derived from the message depends on all fields that were set, too.
    fn derived(&self, id: InputId) -> Sources {
        let fields = self.written.iter().filter(|(target, _)| matches!(target, Source::Input(_)));
        let written = fields.flat_map(|(_, sources)| sources).copied();
        core::iter::once(Source::Input(id)).chain(written).collect()
    }
}

/// The places that an operation may change for later reads of the same handler; a roll-back changes all written ones.
fn written_by(op: &Op, written: &BTreeMap<Source, Sources>) -> Vec<Source> {
    match *op {
        Op::SetInput(id, _) | Op::ClearInput(id) => vec![Source::Input(id)],
        Op::CallSet(id, ..) => vec![Source::Call(id)],
        Op::VarSet(id, ..) | Op::VarMerge(id, ..) | Op::VarReset(id) => vec![Source::Var(id)],
        Op::Insert(table, ..)
        | Op::Remove(table, ..)
        | Op::Touch(table, _)
        | Op::TouchRead(table, _)
        | Op::SetColumn(table, ..)
        | Op::SetColumnNull(table, ..)
        | Op::CountInto(table, ..) => vec![Source::Table(table)],
        Op::RollBack => written.keys().copied().collect(),
        _ => Vec::new(),
    }
}

/// Adds sources to a set. Returns whether any is new.
fn grow(set: &mut Sources, more: impl IntoIterator<Item = Source>) -> bool {
    let before = set.len();
    set.extend(more);
    set.len() > before
}
