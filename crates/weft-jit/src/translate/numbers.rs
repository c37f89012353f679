//! Integers, floats, booleans, conversions between them, and hashes of words. All of it is inline.

use super::{PartTranslator, Val};
use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::InstBuilder as _;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F64, I64, I128};
use weft_core::hash;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BoolOp, FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Op, Signed, Ty, Value};

impl PartTranslator<'_, '_, '_, '_> {
    /// Translates an operation on numbers or booleans; None if it is of another kind.
    pub(super) fn number(&mut self, op: &Op) -> Result<Option<Val>, Unsupported> {
        let value = match op {
            Op::IntBinary(op, a, b) => self.int_binary(*op, *a, *b)?,
            Op::Overflows(op, signed, a, b) => self.overflows(*op, *signed, *a, *b)?,
            Op::IntCompare(cmp, a, b) => {
                let (a, b) = self.operands(*a, *b)?;
                self.ins().icmp(int_cc(*cmp), a, b)
            }
            Op::InRange(a, low, high) => self.in_range(*a, *low, *high)?,
            Op::FloatBinary(op, a, b) => {
                let (a, b) = self.operands(*a, *b)?;
                match op {
                    FloatOp::Add => self.ins().fadd(a, b),
                    FloatOp::Sub => self.ins().fsub(a, b),
                    FloatOp::Mul => self.ins().fmul(a, b),
                    FloatOp::Div => self.ins().fdiv(a, b),
                    FloatOp::Min => self.ins().fmin(a, b),
                    FloatOp::Max => self.ins().fmax(a, b),
                }
            }
            Op::FloatUnary(op, a) => {
                let a = self.get(*a)?.one();
                match op {
                    FloatUnaryOp::Neg => self.ins().fneg(a),
                    FloatUnaryOp::Abs => self.ins().fabs(a),
                    FloatUnaryOp::Floor => self.ins().floor(a),
                    FloatUnaryOp::Ceil => self.ins().ceil(a),
                    FloatUnaryOp::Round => self.ins().nearest(a),
                    FloatUnaryOp::Sqrt => self.ins().sqrt(a),
                }
            }
            Op::FloatCompare(cmp, a, b) => {
                let (a, b) = self.operands(*a, *b)?;
                self.ins().fcmp(float_cc(*cmp), a, b)
            }
            Op::IntToFloat(signed, a) => {
                let a = self.get(*a)?.one();
                match signed {
                    Signed::Yes => self.ins().fcvt_from_sint(F64, a),
                    Signed::No => self.ins().fcvt_from_uint(F64, a),
                }
            }
            Op::FloatToInt(signed, a) => {
                let a = self.get(*a)?.one();
                match signed {
                    Signed::Yes => self.ins().fcvt_to_sint_sat(I64, a),
                    Signed::No => self.ins().fcvt_to_uint_sat(I64, a),
                }
            }
            Op::FloatFits(signed, a) => self.float_fits(*signed, *a)?,
            Op::BoolToInt(a) => {
                let a = self.get(*a)?.one();
                self.ins().uextend(I64, a)
            }
            Op::BoolBinary(op, a, b) => {
                let (a, b) = self.operands(*a, *b)?;
                match op {
                    BoolOp::And => self.ins().band(a, b),
                    BoolOp::Or => self.ins().bor(a, b),
                    BoolOp::Xor => self.ins().bxor(a, b),
                }
            }
            Op::Not(a) => {
                let a = self.get(*a)?.one();
                self.ins().bxor_imm_u(a, 1)
            }
            Op::Hash(a) if self.ty(*a) == Ty::Int => {
                let a = self.get(*a)?.one();
                self.hash_word(a)
            }
            Op::HashMix(a, b) => {
                let (a, b) = self.operands(*a, *b)?;
                self.hash_mix(a, b)
            }
            _ => return Ok(None),
        };
        Ok(Some(Val::One(value)))
    }

    fn operands(&self, a: Value, b: Value) -> Result<(clif::Value, clif::Value), Unsupported> {
        Ok((self.get(a)?.one(), self.get(b)?.one()))
    }

    fn int_binary(&mut self, op: IntOp, a: Value, b: Value) -> Result<clif::Value, Unsupported> {
        let (a, b) = self.operands(a, b)?;
        Ok(match op {
            IntOp::Add => self.ins().iadd(a, b),
            IntOp::Sub => self.ins().isub(a, b),
            IntOp::Mul => self.ins().imul(a, b),
            IntOp::And => self.ins().band(a, b),
            IntOp::Or => self.ins().bor(a, b),
            IntOp::Xor => self.ins().bxor(a, b),
            // Cranelift takes the count modulo the width, too.
            IntOp::Shl => self.ins().ishl(a, b),
            IntOp::Shr => self.ins().ushr(a, b),
            IntOp::SMin => self.ins().smin(a, b),
            IntOp::SMax => self.ins().smax(a, b),
            IntOp::UMin => self.ins().umin(a, b),
            IntOp::UMax => self.ins().umax(a, b),
            IntOp::SDiv | IntOp::SRem => self.signed_division(op, a, b),
            IntOp::UDiv | IntOp::URem => self.unsigned_division(op, a, b),
        })
    }

    /// Cranelift's division traps on 0 and on `MIN / -1`, so it divides by 1 in their place.
    fn signed_division(&mut self, op: IntOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let one = self.segment.int(1);
        let zero = self.segment.int(0);
        let is_zero = self.segment.icmp_imm(IntCC::Equal, b, 0);
        let is_minus_one = self.segment.icmp_imm(IntCC::Equal, b, -1);
        let is_special = self.ins().bor(is_zero, is_minus_one);
        let divisor = self.ins().select(is_special, one, b);
        if op == IntOp::SRem {
            return self.ins().srem(a, divisor);
        }
        let quotient = self.ins().sdiv(a, divisor);
        let negated = self.ins().ineg(a);
        let quotient = self.ins().select(is_minus_one, negated, quotient);
        self.ins().select(is_zero, zero, quotient)
    }

    fn unsigned_division(&mut self, op: IntOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let one = self.segment.int(1);
        let zero = self.segment.int(0);
        let is_zero = self.segment.icmp_imm(IntCC::Equal, b, 0);
        let divisor = self.ins().select(is_zero, one, b);
        if op == IntOp::URem {
            return self.ins().urem(a, divisor);
        }
        let quotient = self.ins().udiv(a, divisor);
        self.ins().select(is_zero, zero, quotient)
    }

    fn overflows(
        &mut self,
        op: IntOp,
        signed: Signed,
        a: Value,
        b: Value,
    ) -> Result<clif::Value, Unsupported> {
        let (a, b) = self.operands(a, b)?;
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

    fn in_range(&mut self, value: Value, low: i64, high: i64) -> Result<clif::Value, Unsupported> {
        let value = self.get(value)?.one();
        if low > high {
            return Ok(self.segment.bool(false));
        }
        let above = self.segment.iadd_imm(value, low.wrapping_neg());
        let width = self.segment.int(high.wrapping_sub(low));
        Ok(self.ins().icmp(IntCC::UnsignedLessThanOrEqual, above, width))
    }

    fn float_fits(&mut self, signed: Signed, value: Value) -> Result<clif::Value, Unsupported> {
        let value = self.get(value)?.one();
        // The bounds are floats exactly; a NaN is in no range.
        let (low, low_cc, high) = match signed {
            Signed::Yes => (-(2f64.powi(63)), FloatCC::GreaterThanOrEqual, 2f64.powi(63)),
            Signed::No => (-1.0, FloatCC::GreaterThan, 2f64.powi(64)),
        };
        let (low, high) = (self.ins().f64const(low), self.ins().f64const(high));
        let above = self.ins().fcmp(low_cc, value, low);
        let below = self.ins().fcmp(FloatCC::LessThan, value, high);
        Ok(self.ins().band(above, below))
    }

    /// [`hash::hash_word`].
    pub(super) fn hash_word(&mut self, word: clif::Value) -> clif::Value {
        let [k0, k1, _] = hash::KEYS.map(|k| self.segment.int(k as i64));
        let mixed = self.ins().bxor(word, k0);
        self.fold_mul(mixed, k1)
    }

    /// [`hash::mix`].
    pub(super) fn hash_mix(&mut self, hash: clif::Value, word: clif::Value) -> clif::Value {
        let [k0, _, k2] = hash::KEYS.map(|k| self.segment.int(k as i64));
        let mixed = self.ins().bxor(hash, word);
        let mixed = self.ins().bxor(mixed, k2);
        self.fold_mul(mixed, k0)
    }

    pub(super) fn fold_mul(&mut self, a: clif::Value, b: clif::Value) -> clif::Value {
        // One instruction where the machine has it.
        let [a, b] = [a, b].map(|word| self.ins().uextend(I128, word));
        let product = self.ins().imul(a, b);
        let (low, high) = self.ins().isplit(product);
        self.ins().bxor(low, high)
    }
}

fn int_cc(cmp: IntCmp) -> IntCC {
    match cmp {
        IntCmp::Eq => IntCC::Equal,
        IntCmp::Ne => IntCC::NotEqual,
        IntCmp::SLt => IntCC::SignedLessThan,
        IntCmp::SLe => IntCC::SignedLessThanOrEqual,
        IntCmp::ULt => IntCC::UnsignedLessThan,
        IntCmp::ULe => IntCC::UnsignedLessThanOrEqual,
    }
}

fn float_cc(cmp: FloatCmp) -> FloatCC {
    match cmp {
        FloatCmp::Eq => FloatCC::Equal,
        FloatCmp::Ne => FloatCC::OrderedNotEqual,
        FloatCmp::Lt => FloatCC::LessThan,
        FloatCmp::Le => FloatCC::LessThanOrEqual,
    }
}
