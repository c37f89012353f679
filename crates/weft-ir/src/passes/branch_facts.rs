//! Removes tests of flags whose value an earlier branch has decided.
//!
//! It keeps the law because a value is the same at each use, and only its predecessor leads to a block with one
//! predecessor: the outcome of the branch holds in the block and in all blocks that it dominates.

use std::collections::BTreeMap;

use crate::ir::{BoolOp, Function, Op, Terminator, Value};

use super::blocks::{remove_unreachable, rename};

/// Limit of branches to go back, and of operations to go down, to decide a flag.
const STEPS_MAX: usize = 16;

/// Replaces selects and branches on flags with known values by the chosen value or a jump.
pub fn fold(function: &mut Function) {
    let known = FlagFacts::of(function);
    let mut renamed = BTreeMap::new();
    for at in 0..function.blocks.len() {
        for inst in &function.blocks[at].insts {
            if let (Op::Select(by, yes, no), Some(result)) = (&inst.op, inst.result)
                && let Some(holds) = known.flag_in(at, *by, STEPS_MAX)
            {
                renamed.insert(result, if holds { *yes } else { *no });
            }
        }
    }
    let ends: Vec<Option<Terminator>> = (0..function.blocks.len())
        .map(|at| match &function.blocks[at].end {
            Terminator::Branch(by, yes, no) => {
                let holds = known.flag_in(at, *by, STEPS_MAX)?;
                Some(Terminator::Jump(if holds { yes.clone() } else { no.clone() }))
            }
            _ => None,
        })
        .collect();
    for (block, end) in function.blocks.iter_mut().zip(ends) {
        if let Some(end) = end {
            block.end = end;
        }
        block.insts.retain(|inst| inst.result.is_none_or(|result| !renamed.contains_key(&result)));
    }
    rename(function, &renamed);
    remove_unreachable(function);
}

/// The known values of flags, by block.
struct FlagFacts {
    /// The definitions of flags by other flags.
    definitions: BTreeMap<Value, Op>,
    /// The only edge to each block; None if the block has several or none.
    only_edges: Vec<Option<OnlyEdge>>,
}

#[derive(Clone, Copy)]
struct OnlyEdge {
    from: usize,
    /// The flag of the branch, and its value on this edge.
    condition: Option<(Value, bool)>,
}

impl FlagFacts {
    /// Collects the definitions of flags and the blocks with one incoming edge.
    fn of(function: &Function) -> Self {
        let insts = function.insts();
        let definitions = insts.filter_map(|inst| match inst.op {
            Op::BoolConst(_) | Op::Not(_) | Op::BoolBinary(BoolOp::And | BoolOp::Or, ..) => {
                inst.result.map(|result| (result, inst.op.clone()))
            }
            _ => None,
        });
        let mut n_predecessors = vec![0; function.blocks.len()];
        let mut only_edges = vec![None; function.blocks.len()];
        for (from, block) in function.blocks.iter().enumerate() {
            for (nth, to) in block.end.targets().into_iter().enumerate() {
                n_predecessors[to] += 1;
                let condition = match &block.end {
                    Terminator::Branch(by, ..) => Some((*by, nth == 0)),
                    _ => None,
                };
                only_edges[to] = Some(OnlyEdge { from, condition });
            }
        }
        assert_eq!(n_predecessors[0], 0, "no jump leads to the entry");
        for (only_edge, n) in only_edges.iter_mut().zip(n_predecessors) {
            *only_edge = only_edge.filter(|_| n == 1);
        }
        Self { definitions: definitions.collect(), only_edges }
    }

    /// Decides a flag in a block from earlier branches; None if they do not decide it.
    fn flag_in(&self, block: usize, flag: Value, steps: usize) -> Option<bool> {
        let mut at = block;
        for _ in 0..steps {
            let Some(OnlyEdge { from, condition }) = self.only_edges[at] else { break };
            if let Some(found) = condition.and_then(|(by, holds)| self.implied_by(by, holds, flag, steps)) {
                return Some(found);
            }
            at = from;
        }
        let of = |flag: &Value| self.flag_in(block, *flag, steps / 2);
        match self.definitions.get(&flag).filter(|_| steps > 1)? {
            Op::BoolConst(holds) => Some(*holds),
            Op::Not(a) => of(a).map(|holds| !holds),
            Op::BoolBinary(op, a, b) => {
                // The operand value that decides the result.
                let decides = *op == BoolOp::Or;
                match (of(a), of(b)) {
                    (Some(a), _) if a == decides => Some(decides),
                    (_, Some(b)) if b == decides => Some(decides),
                    (Some(_), Some(_)) => Some(!decides),
                    _ => None,
                }
            }
            _ => None,
        }
    }

    /// Decides a flag from the value of the flag `by`; None if it implies nothing.
    fn implied_by(&self, by: Value, holds: bool, flag: Value, steps: usize) -> Option<bool> {
        if by == flag {
            return Some(holds);
        }
        match self.definitions.get(&by).filter(|_| steps > 1)? {
            Op::Not(a) => self.implied_by(*a, !holds, flag, steps / 2),
            // Both operands are true, or both are false.
            Op::BoolBinary(op, a, b) if holds == (*op == BoolOp::And) => {
                let implied = self.implied_by(*a, holds, flag, steps / 2);
                implied.or_else(|| self.implied_by(*b, holds, flag, steps / 2))
            }
            _ => None,
        }
    }
}
