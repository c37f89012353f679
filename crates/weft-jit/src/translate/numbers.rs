//! Translates integers, floats, booleans, conversions between them, and hashes of words, all inline.

use super::{PartTranslator, Val};
use crate::arithmetic::Arithmetic;
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F64, I64};
use cranelift_frontend::FunctionBuilder;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{IntOp, Op, Signed, Ty, Value};

impl<'f> Arithmetic<'f> for PartTranslator<'_, '_, 'f, '_> {
    fn builder(&mut self) -> &mut FunctionBuilder<'f> {
        &mut self.segment.builder
    }

    fn word(&mut self, n: i64) -> clif::Value {
        self.segment.int(n)
    }

    fn operand(&mut self, value: Value) -> Result<clif::Value, Unsupported> {
        Ok(self.get(value)?.one())
    }
}

impl PartTranslator<'_, '_, '_, '_> {
    /// Translates an operation on numbers or booleans; None if it is of another group.
    pub(super) fn number(&mut self, op: &Op) -> Result<Option<Val>, Unsupported> {
        let value = match *op {
            Op::Overflows(op, signed, a, b) => self.overflows(op, signed, a, b)?,
            Op::InRange(a, low, high) => self.in_range(a, low, high)?,
            Op::FloatOfBits(a) => {
                let a = self.operand(a)?;
                self.ins().bitcast(F64, clif::MemFlagsData::new(), a)
            }
            Op::FloatFits(signed, a) => self.float_fits(signed, a)?,
            Op::BoolToInt(a) => {
                let a = self.operand(a)?;
                self.ins().uextend(I64, a)
            }
            Op::Hash(a) if self.ty(a) != Ty::Int => return Ok(None),
            _ => return Ok(self.word_op(op)?.map(Val::One)),
        };
        Ok(Some(Val::One(value)))
    }

    /// Emits a flag: the operation overflows.
    fn overflows(
        &mut self,
        op: IntOp,
        signed: Signed,
        a: Value,
        b: Value,
    ) -> Result<clif::Value, Unsupported> {
        let (a, b) = (self.operand(a)?, self.operand(b)?);
        Ok(match (op, signed) {
            (IntOp::Add, Signed::Yes) => self.ins().sadd_overflow(a, b).1,
            (IntOp::Add, Signed::No) => self.ins().uadd_overflow(a, b).1,
            (IntOp::Sub, Signed::Yes) => self.ins().ssub_overflow(a, b).1,
            (IntOp::Sub, Signed::No) => self.ins().icmp(IntCC::UnsignedLessThan, a, b),
            (IntOp::Mul, Signed::Yes) => self.ins().smul_overflow(a, b).1,
            (IntOp::Mul, Signed::No) => self.ins().umul_overflow(a, b).1,
            (IntOp::SDiv, Signed::Yes) => {
                let is_min = self.segment.icmp_imm(IntCC::Equal, a, i64::MIN);
                let by_minus_one = self.segment.icmp_imm(IntCC::Equal, b, -1);
                self.ins().band(is_min, by_minus_one)
            }
            _ => self.segment.bool(false),
        })
    }

    /// Emits a flag: the value lies in `low..=high`, with one comparison.
    fn in_range(&mut self, value: Value, low: i64, high: i64) -> Result<clif::Value, Unsupported> {
        let value = self.operand(value)?;
        if low > high {
            return Ok(self.segment.bool(false));
        }
        let above = self.segment.iadd_imm(value, low.wrapping_neg());
        let width = self.segment.int(high.wrapping_sub(low));
        Ok(self.ins().icmp(IntCC::UnsignedLessThanOrEqual, above, width))
    }

    /// Emits a flag: the float, truncated, fits a 64-bit integer.
    fn float_fits(&mut self, signed: Signed, value: Value) -> Result<clif::Value, Unsupported> {
        let value = self.operand(value)?;
        // The bounds are exact floats; a NaN is in no range.
        let (low, low_cc, high) = match signed {
            Signed::Yes => (-(2f64.powi(63)), FloatCC::GreaterThanOrEqual, 2f64.powi(63)),
            Signed::No => (-1.0, FloatCC::GreaterThan, 2f64.powi(64)),
        };
        let (low, high) = (self.ins().f64const(low), self.ins().f64const(high));
        let above = self.ins().fcmp(low_cc, value, low);
        let below = self.ins().fcmp(FloatCC::LessThan, value, high);
        Ok(self.ins().band(above, below))
    }
}
