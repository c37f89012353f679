//! Checks that rows and bytes are not used after they may have become stale, and rows only with their tables.

use super::flow::{Flow, Point};
use super::{Check, Rule, blocks, row_of};
use crate::ir::*;
use std::collections::{BTreeMap, BTreeSet};

impl Check<'_> {
    /// Checks rule 12: no use of rows and bytes after they may have become stale.
    pub(super) fn stale(&mut self, flow: &Flow) {
        let tables = tables_of_rows(self.function);
        self.check_foreign_rows(&tables);
        self.only_read_expired_rows();
        let may_move = bytes_that_may_move(self.function);
        let function = self.function;
        let kills = |inst: &Inst, value: Value| match inst.op {
            Op::Insert(table, ..) | Op::Remove(table, ..) => {
                tables[value.0 as usize].contains(&table.0) && inst.result != Some(value)
            }
            Op::RollBack => function.ty(value) == Ty::Row || may_move[value.0 as usize],
            _ => false,
        };
        let uses = flow.uses_of_all();
        let mut dead: BTreeMap<(u32, usize), Vec<Value>> = BTreeMap::new();
        let may_die = |value: &Value| !tables[value.0 as usize].is_empty() || may_move[value.0 as usize];
        let may_die = |value: &Value| may_die(value) || function.ty(*value) == Ty::Row;
        for value in values(function).filter(may_die) {
            for (block, from, to) in flow.lives(value, &uses[value.0 as usize]) {
                let insts = &function.blocks[block.0 as usize].insts;
                let (from, to) = (from.saturating_sub(1), to.saturating_sub(1));
                for (index, inst) in insts.iter().enumerate().take(to).skip(from) {
                    if kills(inst, value) {
                        dead.entry((block.0, index)).or_default().push(value);
                    }
                }
            }
        }
        for ((id, index), mut killed) in dead {
            let inst = &function.blocks[id as usize].insts[index];
            killed.sort_unstable();
            killed.dedup();
            let behind = Point { block: BlockId(id), index: index + 2 };
            for (value, at, line) in flow.uses_behind(behind, &killed) {
                (self.at, self.line) = (Some(at.block), line);
                if !(is_row_at(self.function, at) && inst.op != Op::RollBack) {
                    self.report(Rule::Stale, format!("v{} is used after {:?}", value.0, inst.op));
                }
            }
        }
    }

    /// Checks rule 17: only operations that read an expired row use it.
    fn only_read_expired_rows(&mut self) {
        let insts = || self.function.insts();
        let expired = insts().filter(|inst| matches!(inst.op, Op::ExpiredRow(_)));
        let expired: BTreeSet<Value> = expired.filter_map(|inst| inst.result).collect();
        if expired.is_empty() {
            return;
        }
        let reads = |op: &Op| matches!(op, Op::Column(..) | Op::ColumnIsNull(..) | Op::IsRow(_));
        for (id, block) in blocks(self.function) {
            let of_insts = block.insts.iter().filter(|inst| !reads(&inst.op));
            let used = of_insts.flat_map(|inst| inst.op.operands()).chain(block.end.operands());
            for value in used.filter(|value| expired.contains(value)).collect::<BTreeSet<_>>() {
                (self.at, self.line) = (Some(id), 0);
                self.report(
                    Rule::ExpiredRow,
                    format!("v{} is an expired row, which can only be read", value.0),
                );
            }
        }
    }

    /// Checks rule 12: a row is used only with its own table.
    fn check_foreign_rows(&mut self, tables: &[BTreeSet<u16>]) {
        for (id, block) in blocks(self.function) {
            self.at = Some(id);
            for inst in &block.insts {
                self.line = inst.line;
                let Some((table, row)) = row_of(&inst.op) else { continue };
                if tables[row.0 as usize].iter().any(|&t| t != table.0) {
                    self.report(Rule::Stale, format!("v{} is no row of table {}", row.0, table.0));
                }
            }
        }
    }
}

fn values(function: &Function) -> impl Iterator<Item = Value> + use<> {
    (0..function.types.len() as u32).map(Value)
}

fn is_row_at(function: &Function, at: Point) -> bool {
    let inst = at.index.checked_sub(1).and_then(|i| function.blocks[at.block.0 as usize].insts.get(i));
    inst.is_some_and(|inst| matches!(inst.op, Op::IsRow(_)))
}

/// Finds, for each value, the tables whose row it may be.
fn tables_of_rows(function: &Function) -> Vec<BTreeSet<u16>> {
    let mut tables = vec![BTreeSet::new(); function.types.len()];
    propagate(function, |to, from: Source<'_>| {
        let new: BTreeSet<u16> = match from {
            Source::Op(Op::Find(t, _) | Op::Insert(t, ..) | Op::ScanRow(t, _) | Op::Match(t, ..))
            | Source::Op(Op::ExpiredRow(t)) => [t.0].into(),
            Source::Op(Op::Select(_, a, b)) => &tables[a.0 as usize] | &tables[b.0 as usize],
            Source::Op(_) => BTreeSet::new(),
            Source::Value(v) => tables[v.0 as usize].clone(),
        };
        let known = &mut tables[to.0 as usize];
        let before = known.len();
        known.extend(new);
        known.len() != before
    });
    tables
}

/// For each value, whether it is bytes in the part of the scratch that a RollBack frees. Constants are not, and neither
/// are inputs, unless this function changes the input.
fn bytes_that_may_move(function: &Function) -> Vec<bool> {
    let insts = || function.insts();
    let set: BTreeSet<InputId> = insts()
        .filter_map(|inst| match inst.op {
            Op::SetInput(id, _) => Some(id),
            _ => None,
        })
        .collect();
    let mut moves = vec![false; function.types.len()];
    propagate(function, |to, from| {
        let new = match from {
            _ if function.ty(to) != Ty::Bytes => false,
            Source::Op(Op::BytesConst(_)) => false,
            Source::Op(Op::Input(id)) => set.contains(id),
            Source::Op(Op::Slice(a, ..)) => moves[a.0 as usize],
            Source::Op(Op::Select(_, a, b)) => moves[a.0 as usize] || moves[b.0 as usize],
            Source::Op(_) => true,
            Source::Value(v) => moves[v.0 as usize],
        };
        let known = &mut moves[to.0 as usize];
        let changed = new && !*known;
        *known |= new;
        changed
    });
    moves
}

/// The source of a value: an operation or a jump argument.
enum Source<'a> {
    Op(&'a Op),
    Value(Value),
}

/// Calls `step` for each value and each of its sources until a round changes nothing.
fn propagate<'a>(function: &'a Function, mut step: impl FnMut(Value, Source<'a>) -> bool) {
    let mut changed = true;
    while changed {
        changed = false;
        for block in &function.blocks {
            for inst in &block.insts {
                if let Some(result) = inst.result {
                    changed |= step(result, Source::Op(&inst.op));
                }
            }
            for jump in block.end.jumps() {
                let params = &function.blocks[jump.block.0 as usize].params;
                for (&param, &arg) in params.iter().zip(&jump.args) {
                    changed |= step(param, Source::Value(arg));
                }
            }
        }
    }
}
