//! Finds the numbers of a frame that certainly lie inside it, so that reading them needs no check.
//!
//! A parser checks once whether a header fits (`at + 20 <= end`) and then reads its fields. At a point, the bounds that
//! every path to it has checked hold. The same reasoning leads from `end` to the length of the frame. Where paths meet,
//! the facts that all of them share hold.
//!
//! The analysis is sound for two reasons. A value is the same at each use. A block whose only entry is one side of a
//! branch, and each block that it dominates, runs only on that side. Block parameters are assumed inside the frame
//! until a path passes a value that is not known to be inside; at the fixed point, all paths keep the assumption.

use std::collections::{BTreeMap, BTreeSet};
use weft_core::inputs::InputSet;

use super::flow::Flow;
use crate::graph;
use crate::ir::*;

/// The largest offset in a sum, so that adding it to a position inside a frame does not wrap.
const OFFSET_MAX: u64 = 1 << 32;
const _: () = assert!(OFFSET_MAX.checked_mul(2).is_some(), "a sum of two offsets does not wrap");
/// The most steps from a limit to the length of the frame.
const STEPS_MAX: usize = 8;

/// A position in a frame: a number of bytes after a value, or after the start of the frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameOffset {
    /// The value that it counts from; None for the start of the frame.
    pub base: Option<Value>,
    /// The number of bytes after it.
    pub offset: u64,
}

/// The results of [`Op::FrameGet`] whose bytes always lie inside the frame, with the positions of their first bytes.
///
/// The function must be one that [`verify`](super::verify) accepts.
pub fn reads_in_bounds(function: &Function) -> BTreeMap<Value, FrameOffset> {
    let reads = |inst: &&Inst| matches!(inst.op, Op::FrameGet(..));
    if !function.blocks.iter().any(|block| block.insts.iter().any(|inst| reads(&inst))) {
        return BTreeMap::new();
    }
    let mut known = Bounds::of(function);
    known.find_fixed_point();
    let mut inside = BTreeMap::new();
    for (at, block) in function.blocks.iter().enumerate() {
        for inst in block.insts.iter().filter(reads) {
            if let (Op::FrameGet(from, bytes, _), Some(result)) = (&inst.op, inst.result) {
                let place = known.offset_of(*from);
                assert!(place.offset < OFFSET_MAX, "the end of a read does not wrap");
                let end = FrameOffset { offset: place.offset + u64::from(*bytes), ..place };
                if known.is_offset_within(end, &known.bounds[at], STEPS_MAX) {
                    inside.insert(result, place);
                }
            }
        }
    }
    inside
}

/// An exit of a parser whose path has no branches that meet again, so that all inputs given on it are known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ParserExit {
    /// The blocks of the path, from the one that ends with FORWARD back to the first.
    pub way: Vec<BlockId>,
    /// The inputs given on the path, with both words where there are two.
    pub gives: BTreeMap<InputId, (Value, Option<Value>)>,
    /// The least number of bytes of a frame that takes this exit.
    pub frame_min: u64,
}

impl ParserExit {
    /// The inputs given on the path.
    pub fn given(&self) -> InputSet {
        self.gives.keys().copied().collect()
    }
}

/// The parser exits whose paths have no branches that meet again.
///
/// The function must be one that [`verify`](super::verify) accepts.
pub fn exits(function: &Function) -> Vec<ParserExit> {
    let mut known = Bounds::of(function);
    known.find_fixed_point();
    let incoming = graph::predecessors(&graph::successors(function));
    let exit = |at: usize| {
        let (mut gives, mut way) = (BTreeMap::new(), Vec::new());
        let mut block = at;
        loop {
            way.push(BlockId(block as u32));
            for inst in function.blocks[block].insts.iter().rev() {
                if let Op::Give(input, a, b) = inst.op {
                    // The last value given to an input counts.
                    gives.entry(input).or_insert((a, b));
                }
            }
            match (block, &incoming[block][..]) {
                (0, []) => break,
                (_, &[from]) => block = from,
                _ => return None,
            }
        }
        assert_eq!(way.last(), Some(&BlockId(0)), "a path begins at the entry");
        Some(ParserExit { way, gives, frame_min: known.frame_min(at) })
    };
    let ends = function.blocks.iter().enumerate().filter(|(_, block)| block.end == Terminator::Forward);
    ends.filter_map(|(at, _)| exit(at)).collect()
}

/// The blocks whose branches prove that something lies inside the frame. Removing one of them would invalidate
/// [`reads_in_bounds`] and [`exits`]; removing any other block would not.
pub fn bounds(function: &Function) -> BTreeSet<BlockId> {
    let known = Bounds::of(function);
    let asks = |at: &usize| (0..2).any(|nth| known.edge_bound(&function.blocks[*at].end, nth).is_some());
    (0..function.blocks.len()).filter(asks).map(|at| BlockId(at as u32)).collect()
}

/// `low` is not above `high`.
#[derive(Clone, Copy, Debug)]
struct Bound {
    low: Value,
    high: Value,
}

struct Bounds<'f> {
    function: &'f Function,
    definitions: Vec<Option<&'f Op>>,
    /// For each value, the block and index of the parameter that it is.
    params: Vec<Option<(usize, usize)>>,
    /// For each block and parameter, whether it lies inside the frame as far as is known.
    within: Vec<Vec<bool>>,
    /// For each block, the bounds that all paths to it have checked.
    bounds: Vec<Vec<Bound>>,
}

impl<'f> Bounds<'f> {
    /// Collects the definitions of values, and the bounds that all paths to each block have checked.
    fn of(function: &'f Function) -> Self {
        let mut params = vec![None; function.types.len()];
        for (at, block) in function.blocks.iter().enumerate() {
            for (nth, param) in block.params.iter().enumerate() {
                params[param.0 as usize] = Some((at, nth));
            }
        }
        let within = function.blocks.iter().map(|block| vec![true; block.params.len()]).collect();
        let definitions = function.definitions();
        let mut known = Self { function, definitions, params, within, bounds: Vec::new() };
        known.bounds = known.all_bounds();
        assert_eq!(known.bounds.len(), known.within.len(), "each block has its bounds");
        known
    }

    /// Finds the bounds that all paths to each block have checked.
    fn all_bounds(&self) -> Vec<Vec<Bound>> {
        let flow = Flow::of(self.function);
        let mut incoming = vec![(0, None); self.function.blocks.len()];
        for block in &self.function.blocks {
            for (nth, jump) in block.end.jumps().into_iter().enumerate() {
                let (n, bound) = &mut incoming[jump.block.0 as usize];
                *n += 1;
                *bound = self.edge_bound(&block.end, nth);
            }
        }
        let of = |at: usize| {
            let above = flow.dominators_of(BlockId(at as u32));
            above.filter_map(|block| incoming[block].1.filter(|_| incoming[block].0 == 1)).collect()
        };
        (0..self.function.blocks.len()).map(of).collect()
    }

    /// The bound that holds on the n-th side of a branch; None if it implies none.
    fn edge_bound(&self, end: &Terminator, nth: usize) -> Option<Bound> {
        match end {
            Terminator::Branch(by, ..) => self.implied_bound(*by, nth == 0),
            _ => None,
        }
    }

    /// The bound that follows from the value of a flag; None if it implies none.
    fn implied_bound(&self, flag: Value, holds: bool) -> Option<Bound> {
        match self.definitions[flag.0 as usize]? {
            Op::Not(flag) => self.implied_bound(*flag, !holds),
            Op::IntCompare(IntCmp::ULt | IntCmp::ULe, a, b) if holds => Some(Bound { low: *a, high: *b }),
            Op::IntCompare(IntCmp::ULt | IntCmp::ULe, a, b) => Some(Bound { low: *b, high: *a }),
            _ => None,
        }
    }

    /// Drops assumptions about parameters until all paths keep the rest.
    fn find_fixed_point(&mut self) {
        let mut changed = true;
        while changed {
            changed = false;
            for at in 0..self.function.blocks.len() {
                let end = &self.function.blocks[at].end;
                for (nth, jump) in end.jumps().into_iter().enumerate() {
                    let mut bounds = self.bounds[at].clone();
                    bounds.extend(self.edge_bound(end, nth));
                    for (param, arg) in jump.args.iter().enumerate() {
                        if self.within[jump.block.0 as usize][param]
                            && !self.is_within(*arg, &bounds, STEPS_MAX)
                        {
                            self.within[jump.block.0 as usize][param] = false;
                            changed = true;
                        }
                    }
                }
            }
        }
    }

    /// Whether a value is at most the length of the frame under these bounds.
    fn is_within(&self, value: Value, bounds: &[Bound], steps: usize) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        let by_definition = match self.definitions[value.0 as usize] {
            Some(Op::FrameLen) => true,
            Some(Op::IntBinary(IntOp::UMin, a, b)) => {
                self.is_within(*a, bounds, steps) || self.is_within(*b, bounds, steps)
            }
            _ => self.params[value.0 as usize].is_some_and(|(block, nth)| self.within[block][nth]),
        };
        let limits_value = |bound: &Bound| bound.low == value && self.is_within(bound.high, bounds, steps);
        by_definition || bounds.iter().any(limits_value) || {
            let place = self.offset_of(value);
            place.base != Some(value) && self.is_offset_within(place, bounds, steps)
        }
    }

    /// Whether a position is at most the end of the frame.
    fn is_offset_within(&self, place: FrameOffset, bounds: &[Bound], steps: usize) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        // Otherwise the sum might wrap and be small.
        if place.base.is_some_and(|base| !self.is_within(base, bounds, steps)) {
            return false;
        }
        place.offset == 0
            || bounds.iter().any(|bound| {
                let checked = self.offset_of(bound.low);
                checked.base == place.base
                    && checked.offset >= place.offset
                    && self.is_within(bound.high, bounds, steps)
            })
    }

    /// Computes the least number of bytes of a frame that reaches a block.
    fn frame_min(&self, block: usize) -> u64 {
        let bounds = &self.bounds[block];
        let checked = bounds.iter().filter(|bound| self.is_within(bound.high, bounds, STEPS_MAX));
        let from_start = checked.map(|bound| self.offset_of(bound.low)).filter(|place| place.base.is_none());
        from_start.map(|place| place.offset).max().unwrap_or(0)
    }

    /// Splits a value into a base and a constant offset.
    fn offset_of(&self, value: Value) -> FrameOffset {
        let (mut base, mut offset) = (value, 0);
        // Operands are defined before the sum that uses them, so the loop ends.
        loop {
            let of = |value: Value| match self.definitions[value.0 as usize] {
                Some(Op::IntConst(n)) => u64::try_from(*n).ok().filter(|n| *n < OFFSET_MAX),
                _ => None,
            };
            if let Some(n) = of(base).filter(|n| n + offset < OFFSET_MAX) {
                return FrameOffset { base: None, offset: offset + n };
            }
            let (next, n) = match self.definitions[base.0 as usize] {
                Some(Op::IntBinary(IntOp::Add, a, b)) => match (of(*a), of(*b)) {
                    (_, Some(n)) => (*a, n),
                    (Some(n), _) => (*b, n),
                    _ => return FrameOffset { base: Some(base), offset },
                },
                _ => return FrameOffset { base: Some(base), offset },
            };
            if offset + n >= OFFSET_MAX {
                return FrameOffset { base: Some(base), offset };
            }
            (base, offset) = (next, offset + n);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::parse;

    /// How many reads of a text are known to be inside, and how many reads there are.
    fn count_in_bounds(text: &str) -> (usize, usize) {
        let function = parse(&format!("function \"f\" {{\n{text}\n}}")).expect("a valid function");
        let insts = function.insts();
        let reads = insts.filter(|inst| matches!(inst.op, Op::FrameGet(..))).count();
        (reads_in_bounds(&function).len(), reads)
    }

    /// A path without branches knows the inputs given on it, with the bytes that it has checked.
    #[test]
    fn straight_paths_are_exits() {
        let text = "block0:
            v0: int = int 14
            v1: int = frame_len
            v2: int = int 34
            v3: int = int 30
            v4: bool = icmp.ult v1, v0
            branch v4, block4, block1
        block1:
            give in0, v0
            give in1, v0
            v5: bool = icmp.ult v1, v2
            branch v5, block2, block3
        block2:
            give in2, v0
            jump block5
        block3:
            give in1, v3, v0
            v6: bool = icmp.ult v2, v1
            branch v6, block5, block6
        block4:
            drop
        block5:
            forward
        block6:
            forward";
        let function = parse(&format!("function \"f\" {{\n{text}\n}}")).expect("a valid function");
        let gives =
            BTreeMap::from([(InputId(0), (Value(0), None)), (InputId(1), (Value(3), Some(Value(0))))]);
        let way = [6, 3, 1, 0].map(BlockId).to_vec();
        assert_eq!(exits(&function), [ParserExit { way, gives, frame_min: 34 }]);
        assert_eq!(bounds(&function), [0, 1, 3].map(BlockId).into());
    }

    /// A header of 20 bytes after one of 14, with the checks of a parser. The arguments replace `LIMIT` and `NEXT`.
    fn parser(limit: &str, next: &str) -> String {
        "block0:
            v0: int = int 0
            v1: int = frame_len
            v2: int = int 14
            v3: int = int 20
            v4: int = int 16
            v19: int = int 12
            v20: int = int 5
            jump block1(v0, v1)
        block1(v5: int, v6: int):
            v7: int = add v5, v2
            v8: bool = icmp.ult v6, v7
            branch v8, block4, block2
        block2:
            v9: int = add v5, v19
            v10: int = frame_get.big v9, 2
            v11: int = add v5, v2
            jump block3(v11, v6)
        block3(v12: int, v13: int): scan 5
            v14: int = add v12, v3
            v15: bool = icmp.ult LIMIT, v14
            branch v15, block4, block5
        block4:
            drop
        block5:
            v16: int = add v12, v4
            v17: int = frame_get.big v16, 4
            v18: bool = icmp.ult v17, v20
            branch v18, block4, block3(NEXT, v13)"
            .replace("LIMIT", limit)
            .replace("NEXT", next)
    }

    /// Otherwise each number of each header would need its own check.
    #[test]
    fn header_check_covers_fields() {
        assert_eq!(count_in_bounds(&parser("v13", "v14")), (2, 2));
        assert_eq!(count_in_bounds(&parser("v1", "v14")), (2, 2));
    }

    /// Otherwise a read could pass the end of a frame: neither the next header's start nor the check bounds the frame.
    #[test]
    fn unchecked_reads_are_unknown() {
        // The next header starts at a number from the frame, or where no check was made.
        assert_eq!(count_in_bounds(&parser("v13", "v17")), (1, 2));
        assert_eq!(count_in_bounds(&parser("v13", "v16")), (2, 2));
        // The limit is a number from the frame.
        assert_eq!(count_in_bounds(&parser("v10", "v14")), (1, 2));
        // The limit differs on each round.
        let other = parser("v13", "v14").replace("block3(v14, v13)", "block3(v14, v17)");
        assert_eq!(count_in_bounds(&other), (1, 2));
        // The check covers one byte too few, compares differently, or has the opposite result.
        assert_eq!(count_in_bounds(&parser("v13", "v14").replace("int 14", "int 13")), (1, 2));
        assert_eq!(count_in_bounds(&parser("v13", "v14").replace("int 20", "int 19")), (1, 2));
        assert_eq!(count_in_bounds(&parser("v13", "v14").replace("icmp.ult v13", "icmp.slt v13")), (1, 2));
        let turned = parser("v13", "v14").replace("v15, block4, block5", "v15, block5, block4");
        assert_eq!(count_in_bounds(&turned), (1, 2));
        // Not all paths have checked it.
        let around = parser("v13", "v14").replace("branch v15, block4, block5", "branch v15, block5, block5");
        assert_eq!(count_in_bounds(&around), (1, 2));
        // The sum may wrap.
        assert_eq!(count_in_bounds(&parser("v13", "v14").replace("int 16", "int -4")), (1, 2));
        assert_eq!(count_in_bounds(&parser("v13", "v14").replace("int 20", "int -20")), (1, 2));
    }
}
