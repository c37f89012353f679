//! The control flow of a function: reachable blocks, dominators, definitions and uses.

use std::collections::BTreeSet;

use crate::graph;
use crate::ir::{BlockId, Function, Value};

/// A point in a function: a block and an index. Index 0 is the block's parameters, n + 1 is its n-th instruction, and
/// the index after the last instruction is its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) block: BlockId,
    pub(super) index: usize,
}

/// A use of a value: the value, the point and the source line.
pub(super) type Use = (Value, Point, u32);

/// The control flow of one function.
pub(super) struct Flow {
    successors: Vec<Vec<usize>>,
    predecessors: Vec<Vec<usize>>,
    /// The position in a reverse post-order; None if the block is unreachable.
    order: Vec<Option<usize>>,
    /// The immediate dominator of each block; the entry's is the entry itself.
    dominators: Vec<usize>,
    definitions: Vec<Option<Point>>,
    uses: Vec<Use>,
}

impl Flow {
    /// Analyses the control flow of a function. Its blocks and values must exist.
    pub(super) fn of(function: &Function) -> Self {
        assert!(!function.blocks.is_empty(), "a function has an entry");
        let successors = graph::successors(function);
        let predecessors = graph::predecessors(&successors);
        let mut visited = graph::post_order(&successors);
        visited.reverse();
        let mut order = vec![None; successors.len()];
        for (position, &block) in visited.iter().enumerate() {
            order[block] = Some(position);
        }
        let dominators = dominators(&successors, &visited, &order);
        let (definitions, uses) = definitions_and_uses(function);
        assert_eq!(dominators[0], 0, "only the entry dominates itself");
        let is_before = |block: &usize| *block == 0 || order[dominators[*block]] < order[*block];
        assert!(visited.iter().all(is_before), "a block comes after its dominator");
        Self { successors, predecessors, order, dominators, definitions, uses }
    }

    pub(super) fn is_reachable(&self, block: BlockId) -> bool {
        self.order[block.0 as usize].is_some()
    }

    /// Whether the jump is a back edge in this order.
    pub(super) fn is_back(&self, from: BlockId, to: BlockId) -> bool {
        self.order[to.0 as usize] <= self.order[from.0 as usize]
    }

    /// Whether each path to `below` passes `above`. A block dominates itself.
    pub(super) fn block_dominates(&self, above: BlockId, below: BlockId) -> bool {
        let mut block = below.0 as usize;
        while block != above.0 as usize {
            if block == 0 {
                return false;
            }
            block = self.dominators[block];
        }
        true
    }

    /// Iterates over a reachable block and its dominators, without the entry.
    pub(super) fn dominators_of(&self, block: BlockId) -> impl Iterator<Item = usize> {
        let is_reached = self.is_reachable(block);
        let above = core::iter::successors(Some(block.0 as usize), |block| Some(self.dominators[*block]));
        above.take_while(move |block| is_reached && *block != 0)
    }

    /// Whether each path to `below` passes `above` first. A point does not dominate itself.
    pub(super) fn dominates(&self, above: Point, below: Point) -> bool {
        if above.block == below.block {
            return above.index < below.index;
        }
        self.block_dominates(above.block, below.block)
    }

    pub(super) fn definition(&self, value: Value) -> Option<Point> {
        self.definitions[value.0 as usize]
    }

    pub(super) fn uses(&self) -> impl Iterator<Item = Use> {
        self.uses.iter().copied()
    }

    /// The uses of these values that `start` reaches without passing the value's definition.
    pub(super) fn uses_behind(&self, start: Point, values: &[Value]) -> Vec<Use> {
        let mut found = Vec::new();
        for &value in values {
            let Some(definition) = self.definition(value) else { continue };
            let reached = self.reached_without(start, definition);
            found.extend(self.uses.iter().filter(|(v, at, _)| {
                *v == value
                    && reached.iter().any(|span| span.0 == at.block && (span.1..span.2).contains(&at.index))
            }));
        }
        found
    }

    /// Lists the uses of each value.
    pub(super) fn uses_of_all(&self) -> Vec<Vec<Point>> {
        let mut all = vec![Vec::new(); self.definitions.len()];
        self.uses.iter().for_each(|(value, at, _)| all[value.0 as usize].push(*at));
        all
    }

    /// The live range of a value, as spans (block, first index, index after the last).
    ///
    /// A point is in it if it reaches a use without passing the definition. The cost is linear in the length of the
    /// ranges, because no search covers the whole function for each value.
    pub(super) fn lives(&self, value: Value, uses: &[Point]) -> Vec<(BlockId, usize, usize)> {
        let Some(definition) = self.definition(value) else { return Vec::new() };
        let mut spans = Vec::new();
        let mut entered = BTreeSet::new();
        let mut ahead: Vec<Point> = uses.to_vec();
        while let Some(Point { block, index }) = ahead.pop() {
            if definition.block == block && definition.index < index {
                spans.push((block, definition.index + 1, index));
                continue;
            }
            spans.push((block, 0, index));
            for &from in &self.predecessors[block.0 as usize] {
                if entered.insert(from) {
                    ahead.push(Point { block: BlockId(from as u32), index: usize::MAX });
                }
            }
        }
        spans
    }

    /// The spans (block, first index, index after the last) that `start` reaches without passing `stop`.
    fn reached_without(&self, start: Point, stop: Point) -> Vec<(BlockId, usize, usize)> {
        let mut spans = Vec::new();
        let mut entered = vec![false; self.successors.len()];
        let mut ahead = vec![start];
        while let Some(Point { block, index }) = ahead.pop() {
            if stop.block == block && stop.index >= index {
                spans.push((block, index, stop.index));
                continue;
            }
            spans.push((block, index, usize::MAX));
            for &next in &self.successors[block.0 as usize] {
                if !core::mem::replace(&mut entered[next], true) {
                    ahead.push(Point { block: BlockId(next as u32), index: 0 });
                }
            }
        }
        spans
    }
}

/// From Cooper, Harvey and Kennedy, "A Simple, Fast Dominance Algorithm" (2001), figure 3.
fn dominators(successors: &[Vec<usize>], visited: &[usize], order: &[Option<usize>]) -> Vec<usize> {
    let mut closest: Vec<Option<usize>> = vec![None; successors.len()];
    closest[0] = Some(0);
    let mut changed = true;
    while changed {
        changed = false;
        for &from in visited {
            for &to in successors[from].iter().filter(|&&to| to != 0) {
                let new = closest[to].map_or(from, |known| meet(known, from, &closest, order));
                changed |= closest[to] != Some(new);
                closest[to] = Some(new);
            }
        }
    }
    closest.into_iter().map(|block| block.unwrap_or(0)).collect()
}

/// Finds the closest common dominator of two blocks.
fn meet(mut a: usize, mut b: usize, closest: &[Option<usize>], order: &[Option<usize>]) -> usize {
    while a != b {
        let deeper = if order[a] > order[b] { &mut a } else { &mut b };
        // In reverse post-order a predecessor comes before the block, so its dominator is known.
        *deeper = closest[*deeper].unwrap_or(0);
    }
    a
}

/// Finds the definition of each value, and all uses with their source lines.
fn definitions_and_uses(function: &Function) -> (Vec<Option<Point>>, Vec<Use>) {
    let mut definitions = vec![None; function.types.len()];
    let mut uses = Vec::new();
    for (id, block) in super::blocks(function) {
        let at = |index| Point { block: id, index };
        for param in &block.params {
            definitions[param.0 as usize] = Some(at(0));
        }
        for (i, inst) in block.insts.iter().enumerate() {
            uses.extend(inst.op.operands().into_iter().map(|v| (v, at(i + 1), inst.line)));
            if let Some(result) = inst.result {
                definitions[result.0 as usize] = Some(at(i + 1));
            }
        }
        let end = at(block.insts.len() + 1);
        uses.extend(block.end.operands().into_iter().map(|v| (v, end, block.end.line())));
    }
    (definitions, uses)
}
