//! Merges the paths of a parser: finds the inputs that are the same on all of them.
//!
//! The ports lie at the same place for TCP and UDP. The prefetcher of a connection's rows reads them there, if the
//! frame is long enough, instead of branching on the protocol, which is unpredictable in mixed traffic.

use weft_ir::ir::{Block, BlockId, Function, InputId, Inst, IntCmp, Jump, Op, Terminator, Ty, Value};
use weft_ir::verify::ParserExit;

/// Largest number of steps from a value to the values that it is computed from.
const STEPS_MAX: usize = 6;

/// A parser that sets the inputs that all these exits of another set to the same value, for frames that are long
/// enough. Returns None if there are none.
pub(super) fn of(parser: &Function, exits: &[ParserExit]) -> Option<Function> {
    let (first, others) = exits.split_first()?;
    let numbers = Definitions::of(parser);
    let equal = |one: Value, other: Value| numbers.are_equal(one, other, STEPS_MAX);
    let is_equal = |input: &InputId, (a, b): (Value, Option<Value>)| {
        others.iter().all(|other| match (other.gives.get(input), b) {
            (Some((x, None)), None) => equal(a, *x),
            (Some((x, Some(y))), Some(b)) => equal(a, *x) && equal(b, *y),
            _ => false,
        })
    };
    let gives: Vec<Op> = first
        .gives
        .iter()
        .filter(|(input, words)| is_equal(input, **words))
        .map(|(input, (a, b))| Op::Give(*input, *a, *b))
        .collect();
    (!gives.is_empty()).then(|| numbers.parser(first, exits, gives))
}

/// The definitions of a parser's values.
struct Definitions<'f> {
    function: &'f Function,
    made: Vec<Option<&'f Op>>,
}

impl<'f> Definitions<'f> {
    /// Collects the operation that defines each value.
    fn of(function: &'f Function) -> Self {
        let mut made = vec![None; function.types.len()];
        for inst in function.blocks.iter().flat_map(|block| &block.insts) {
            if let Some(result) = inst.result {
                made[result.0 as usize] = Some(&inst.op);
            }
        }
        Self { function, made }
    }

    /// Whether two values are the same function of constants and of bytes at constant offsets of the frame.
    fn are_equal(&self, one: Value, other: Value, steps: usize) -> bool {
        let Some(steps) = steps.checked_sub(1) else { return false };
        let equal = |one: &Value, other: &Value| self.are_equal(*one, *other, steps);
        match (self.made[one.0 as usize], self.made[other.0 as usize]) {
            (Some(Op::IntConst(one)), Some(Op::IntConst(other))) => one == other,
            (
                Some(Op::FrameGet(at, bytes, endian)),
                Some(Op::FrameGet(other_at, other_bytes, other_endian)),
            ) => {
                (bytes, endian) == (other_bytes, other_endian)
                    && self.constant_offset(*at).is_some_and(|at| self.constant_offset(*other_at) == Some(at))
            }
            (Some(Op::IntBinary(op, a, b)), Some(Op::IntBinary(other_op, x, y))) => {
                op == other_op && equal(a, x) && equal(b, y)
            }
            _ => false,
        }
    }

    /// The constant that a value is, as an offset in the frame; None if it is not constant.
    fn constant_offset(&self, at: Value) -> Option<u64> {
        match self.made[at.0 as usize] {
            Some(Op::IntConst(at)) => u64::try_from(*at).ok(),
            _ => None,
        }
    }

    /// Builds the merged parser, with the instructions of the first path.
    fn parser(&self, first: &ParserExit, exits: &[ParserExit], gives: Vec<Op>) -> Function {
        let path = first.way.iter().rev().flat_map(|block| &self.function.blocks[block.0 as usize].insts);
        let path: Vec<&Inst> = path.filter(|inst| !matches!(inst.op, Op::Give(..))).collect();
        let mut needed: Vec<Value> = gives.iter().flat_map(Op::operands).collect();
        let mut insts: Vec<Inst> =
            gives.into_iter().rev().map(|op| Inst { result: None, op, line: 0 }).collect();
        let mut len = exits.iter().map(|exit| exit.frame_min).min().unwrap_or(0);
        for inst in path.into_iter().rev() {
            if inst.result.is_none_or(|result| !needed.contains(&result)) {
                continue;
            }
            if let Op::FrameGet(at, bytes, _) = &inst.op {
                len = len.max(self.constant_offset(*at).unwrap_or(0) + u64::from(*bytes));
            }
            needed.extend(inst.op.operands());
            insts.push(inst.clone());
        }
        insts.reverse();
        let mut types = self.function.types.clone();
        let mut value = |ty: Ty| {
            types.push(ty);
            Value(types.len() as u32 - 1)
        };
        let (frame_len, min, is_short) = (value(Ty::Int), value(Ty::Int), value(Ty::Bool));
        let asked = [
            (frame_len, Op::FrameLen),
            (min, Op::IntConst(len as i64)),
            (is_short, Op::IntCompare(IntCmp::ULt, frame_len, min)),
        ];
        let to = |block: u32| Jump { block: BlockId(block), args: Vec::new() };
        let check = Block {
            insts: asked.map(|(value, op)| Inst { result: Some(value), op, line: 0 }).to_vec(),
            end: Terminator::Branch(is_short, to(1), to(2)),
            ..Block::default()
        };
        let is_too_short = Block { end: Terminator::Drop { line: 0 }, ..Block::default() };
        let reads = Block { insts, end: Terminator::Forward, ..Block::default() };
        Function { name: self.function.name.clone(), blocks: vec![check, is_too_short, reads], types }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ir::text::parse;
    use weft_ir::verify::{exits, reads_in_bounds};

    /// A parser that sets ports after a header whose ninth byte is the protocol, and the flags of one protocol.
    const PORTS: &str = "block0:
            v0: int = int 0
            v1: int = int 8
            v2: int = int 14
            v3: int = int 20
            v4: int = frame_len
            v5: bool = icmp.ult v4, v2
            branch v5, block1, block2
        block1:
            drop
        block2:
            v6: int = frame_get.big v1, 1
            give in0, v0, v1
            give in1, v6
            v7: int = int 6
            v8: bool = icmp.eq v6, v7
            branch v8, block3, block5
        block3:
            v9: bool = icmp.ult v4, v3
            branch v9, block1, block4
        block4:
            v10: int = int 9
            v11: int = frame_get.big v10, 2
            v12: int = frame_get.big v2, 1
            v13: int = and v11, v7
            give in2, v13
            give in3, v12
            give in4, v10
            forward
        block5:
            v14: int = int 9
            v15: int = frame_get.big v14, 2
            v16: int = int 6
            v17: int = and v15, v16
            v18: int = frame_get.little v14, 2
            give in2, v17
            give in4, v18
            forward";

    fn ports() -> Function {
        parse(&format!("function \"f\" {{\n{PORTS}\n}}")).expect("the text is a function")
    }

    /// A field with one place in all frames would be read after an unpredictable branch.
    #[test]
    fn common_fields_are_set_unchecked() {
        let parser = ports();
        let merged = of(&parser, &exits(&parser)).expect("the exits share inputs");
        let [exit] = &exits(&merged)[..] else { panic!("the merged parser has one exit") };
        // Not the flags, which one protocol has, nor an input that two protocols read from different bytes.
        assert_eq!(exit.gives.keys().map(|input| input.0).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!((exit.frame_min, merged.blocks.len()), (14, 3));
        let reads = merged.blocks.iter().flat_map(|block| &block.insts);
        let reads = reads.filter(|inst| matches!(inst.op, Op::FrameGet(..))).count();
        assert_eq!((reads, reads_in_bounds(&merged).len()), (2, 2));
    }

    /// Bytes after a frame would be read: one path may read more of its frames than all of them have.
    #[test]
    fn frame_min_covers_common_reads() {
        let parser = ports();
        let mut exits = exits(&parser);
        exits.iter_mut().for_each(|exit| exit.frame_min = 0);
        let merged = of(&parser, &exits).expect("the exits share inputs");
        assert_eq!(weft_ir::verify::exits(&merged)[0].frame_min, 11);
        assert_eq!(reads_in_bounds(&merged).len(), 2);
    }

    /// Values that depend on the frame's length, or on a block parameter, are unknown here.
    #[test]
    fn path_dependent_field_is_not_set() {
        let text = PORTS.replace("and v11, v7", "and v11, v4").replace("and v15, v16", "and v15, v4");
        let parser = parse(&format!("function \"f\" {{\n{text}\n}}")).expect("the text is a function");
        let merged = of(&parser, &exits(&parser)).expect("the exits share inputs");
        let given: Vec<u16> = exits(&merged)[0].gives.keys().map(|input| input.0).collect();
        assert_eq!(given, [0, 1]);
    }
}
