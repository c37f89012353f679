//! Finds values and conditions that are known statically.
//!
//! A parameter that is zero, or text that is cut before it is kept, leaves branches in the IR that no tuple takes.
//! These contribute no effects. What is not listed here is unknown.

use weft_ir::ir::{BoolOp, FloatCmp, FloatOp, Function, IntCmp, Op, Value};

/// A constant.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Constant {
    Bool(bool),
    Int(i64),
    Float(f64),
}

/// The known values of a function.
pub(super) struct KnownValues<'f> {
    definitions: Vec<Option<&'f Op>>,
    constants: Vec<Option<Constant>>,
}

impl<'f> KnownValues<'f> {
    /// Computes the known values of a function. Repeats until nothing changes, because blocks are in no order.
    pub(super) fn of(function: &'f Function) -> Self {
        let n = function.types.len();
        let mut known = Self { definitions: function.definitions(), constants: vec![None; n] };
        // Blocks need not be in execution order.
        let mut changed = true;
        while core::mem::take(&mut changed) {
            for inst in function.insts() {
                let Some(result) = inst.result.filter(|result| known.constant(*result).is_none()) else {
                    continue;
                };
                known.constants[result.0 as usize] = known.evaluate(&inst.op);
                changed |= known.constant(result).is_some();
            }
        }
        known
    }

    /// The truth of a condition, if it is the same for all tuples.
    pub(super) fn truth(&self, value: Value) -> Option<bool> {
        match self.constant(value)? {
            Constant::Bool(b) => Some(b),
            Constant::Int(_) | Constant::Float(_) => None,
        }
    }

    fn constant(&self, value: Value) -> Option<Constant> {
        self.constants[value.0 as usize]
    }

    /// Returns the value of a float, if known.
    fn float(&self, value: Value) -> Option<f64> {
        match self.constant(value)? {
            Constant::Float(x) => Some(x),
            Constant::Bool(_) | Constant::Int(_) => None,
        }
    }

    /// Returns the value of an integer, if known.
    fn int(&self, value: Value) -> Option<i64> {
        match self.constant(value)? {
            Constant::Int(n) => Some(n),
            Constant::Bool(_) | Constant::Float(_) => None,
        }
    }

    /// Returns the constant result of an operation, if the known operands determine it.
    fn evaluate(&self, op: &Op) -> Option<Constant> {
        Some(match *op {
            Op::BoolConst(b) => Constant::Bool(b),
            Op::IntConst(n) => Constant::Int(n),
            Op::FloatConst(x) => Constant::Float(x),
            Op::Not(a) => Constant::Bool(!self.truth(a)?),
            Op::BoolBinary(BoolOp::And, a, b) => Constant::Bool(match (self.truth(a), self.truth(b)) {
                (Some(false), _) | (_, Some(false)) => false,
                (Some(true), Some(true)) => true,
                _ => return None,
            }),
            Op::BoolBinary(BoolOp::Or, a, b) => Constant::Bool(match (self.truth(a), self.truth(b)) {
                (Some(true), _) | (_, Some(true)) => true,
                (Some(false), Some(false)) => false,
                _ => return None,
            }),
            Op::FloatBinary(FloatOp::Div, a, b) => Constant::Float(self.float(a)? / self.float(b)?),
            Op::FloatBinary(FloatOp::Mul, a, b) => Constant::Float(self.float(a)? * self.float(b)?),
            Op::FloatCompare(cmp, a, b) => Constant::Bool(self.compare(cmp, a, b)?),
            Op::IntCompare(cmp, a, b) => Constant::Bool(self.is_above_length(cmp, a, b)?),
            _ => return None,
        })
    }

    /// Returns the result of a comparison of floats, if known. A draw of `rand()` is in [0, 1).
    fn compare(&self, cmp: FloatCmp, a: Value, b: Value) -> Option<bool> {
        if let (Some(x), Some(y)) = (self.float(a), self.float(b)) {
            return match cmp {
                FloatCmp::Eq => Some(x == y),
                FloatCmp::Lt => Some(x < y),
                FloatCmp::Le => Some(x <= y),
                FloatCmp::Ne => None,
            };
        }
        // A draw is at least 0 and less than 1.
        let is_draw = matches!(self.definitions[a.0 as usize], Some(Op::Rand(_)));
        match (cmp, self.float(b)?) {
            (FloatCmp::Lt, limit) if is_draw && limit <= 0.0 => Some(false),
            (FloatCmp::Lt, limit) if is_draw && limit >= 1.0 => Some(true),
            _ => None,
        }
    }

    /// A comparison of a constant with the length of cut text.
    fn is_above_length(&self, cmp: IntCmp, limit: Value, length: Value) -> Option<bool> {
        let Some(Op::Len(text)) = self.definitions[length.0 as usize] else { return None };
        let Some(Op::Slice(_, _, count)) = self.definitions[text.0 as usize] else { return None };
        let (limit, count) = (self.int(limit)?, self.int(*count)?);
        (cmp == IntCmp::SLt && count.max(0) <= limit).then_some(false)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weft_ir::ir::{Block, Inst, Terminator, Ty};

    /// A wrong constant would lose effects.
    #[test]
    fn impossible_branches_are_known() {
        let text = Op::Input(weft_ir::ir::InputId(0));
        let ops = [
            (Ty::Bytes, text),
            (Ty::Int, Op::IntConst(0)),
            (Ty::Int, Op::IntConst(8)),
            (Ty::Bytes, Op::Slice(Value(0), Value(1), Value(2))),
            (Ty::Int, Op::Len(Value(3))),
            (Ty::Bool, Op::IntCompare(IntCmp::SLt, Value(2), Value(4))),
            (Ty::Bool, Op::IntCompare(IntCmp::SLt, Value(1), Value(4))),
            (Ty::Float, Op::Rand(1)),
            (Ty::Float, Op::FloatConst(0.0)),
            (Ty::Bool, Op::FloatCompare(FloatCmp::Lt, Value(7), Value(8))),
            (Ty::Bool, Op::FloatCompare(FloatCmp::Le, Value(7), Value(8))),
            (Ty::Bool, Op::Not(Value(9))),
            (Ty::Bool, Op::BoolBinary(BoolOp::And, Value(6), Value(9))),
            (Ty::Bool, Op::BoolBinary(BoolOp::Or, Value(6), Value(9))),
        ];
        let inst = |(at, (_, op)): (usize, &(Ty, Op))| Inst {
            result: Some(Value(at as u32)),
            op: op.clone(),
            line: 0,
        };
        let insts = ops.iter().enumerate().map(inst).collect();
        let function = Function {
            name: "f".into(),
            types: ops.iter().map(|(ty, _)| *ty).collect(),
            blocks: vec![Block { insts, end: Terminator::Forward, ..Block::default() }],
        };
        let known = KnownValues::of(&function);
        let truths: Vec<Option<bool>> = [5, 6, 9, 10, 11, 12, 13].map(|v| known.truth(Value(v))).to_vec();
        // A draw may be 0, and cut text may be longer than zero.
        assert_eq!(truths, [Some(false), None, Some(false), None, Some(true), Some(false), None]);
    }
}
