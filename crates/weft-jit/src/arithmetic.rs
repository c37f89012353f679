//! Operations on numbers as inline Cranelift instructions, shared by segments and by handlers of queues.

use cranelift_codegen::ir as clif;
use cranelift_codegen::ir::condcodes::{FloatCC, IntCC};
use cranelift_codegen::ir::types::{F64, I8, I64, I128};
use cranelift_codegen::ir::{DataFlowGraph, InstBuilder as _, InstructionData, Opcode};
use cranelift_frontend::FunctionBuilder;
use weft_core::hash;
use weft_ir::backend::Unsupported;
use weft_ir::ir::{BoolOp, FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Op, Signed, Value};

/// A place to emit instructions on numbers.
pub(crate) trait Arithmetic<'f> {
    /// The function to emit into.
    fn builder(&mut self) -> &mut FunctionBuilder<'f>;

    /// An integer constant.
    fn word(&mut self, n: i64) -> clif::Value;

    /// The value of an operand of one word.
    ///
    /// # Errors
    /// It is not defined at this point.
    fn operand(&mut self, value: Value) -> Result<clif::Value, Unsupported>;

    /// Emits an operation on words that segments and queues have. None for all others, and for constants and
    /// selections. The operand of a hash must be an integer.
    fn word_op(&mut self, op: &Op) -> Result<Option<clif::Value>, Unsupported> {
        let is_on_words = op.word_types().is_some() || matches!(op, Op::Hash(_));
        let (a, b) = match op.operands()[..] {
            [a] if is_on_words => [self.operand(a)?; 2].into(),
            [a, b] if is_on_words => (self.operand(a)?, self.operand(b)?),
            _ => return Ok(None),
        };
        Ok(Some(match *op {
            Op::IntBinary(op, ..) => self.int_binary(op, a, b),
            Op::IntCompare(cmp, ..) => self.builder().ins().icmp(int_cc(cmp), a, b),
            Op::FloatBinary(op, ..) => self.float_binary(op, a, b),
            Op::FloatUnary(op, _) => self.float_unary(op, a),
            Op::FloatCompare(cmp, ..) => self.builder().ins().fcmp(float_cc(cmp), a, b),
            Op::IntToFloat(Signed::Yes, _) => self.builder().ins().fcvt_from_sint(F64, a),
            Op::IntToFloat(Signed::No, _) => self.builder().ins().fcvt_from_uint(F64, a),
            Op::FloatToInt(Signed::Yes, _) => self.builder().ins().fcvt_to_sint_sat(I64, a),
            Op::FloatToInt(Signed::No, _) => self.builder().ins().fcvt_to_uint_sat(I64, a),
            Op::BoolBinary(op, ..) => self.bool_binary(op, a, b),
            Op::Not(_) => self.not(a),
            Op::Hash(_) => self.hash_word(a),
            Op::HashMix(..) => self.hash_mix(a, b),
            Op::Log2(_) => self.log2(a),
            _ => return Ok(None),
        }))
    }

    /// Emits the interpreter's operation of this name, for all operands.
    fn int_binary(&mut self, op: IntOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let ins = self.builder().ins();
        match op {
            IntOp::Add => ins.iadd(a, b),
            IntOp::Sub => ins.isub(a, b),
            IntOp::Mul => ins.imul(a, b),
            IntOp::And => ins.band(a, b),
            IntOp::Or => ins.bor(a, b),
            IntOp::Xor => ins.bxor(a, b),
            // Cranelift takes the count modulo the width, too.
            IntOp::Shl => ins.ishl(a, b),
            IntOp::Shr => ins.ushr(a, b),
            IntOp::SMin => ins.smin(a, b),
            IntOp::SMax => ins.smax(a, b),
            IntOp::UMin => ins.umin(a, b),
            IntOp::UMax => ins.umax(a, b),
            IntOp::SDiv | IntOp::SRem => self.signed_division(op, a, b),
            IntOp::UDiv | IntOp::URem => self.unsigned_division(op, a, b),
        }
    }

    /// Emits a signed quotient or remainder. Cranelift's division traps on 0 and on `MIN / -1`, so it divides by 1
    /// instead.
    fn signed_division(&mut self, op: IntOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let (minus_one, zero, one) = (self.word(-1), self.word(0), self.word(1));
        let is_zero = self.builder().ins().icmp(IntCC::Equal, b, zero);
        let is_minus_one = self.builder().ins().icmp(IntCC::Equal, b, minus_one);
        let is_special = self.builder().ins().bor(is_zero, is_minus_one);
        let divisor = self.builder().ins().select(is_special, one, b);
        if op == IntOp::SRem {
            return self.builder().ins().srem(a, divisor);
        }
        let quotient = self.builder().ins().sdiv(a, divisor);
        let negated = self.builder().ins().ineg(a);
        let quotient = self.builder().ins().select(is_minus_one, negated, quotient);
        self.builder().ins().select(is_zero, zero, quotient)
    }

    /// Emits an unsigned quotient or remainder; 0 if the divisor is 0.
    fn unsigned_division(&mut self, op: IntOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let (zero, one) = (self.word(0), self.word(1));
        let is_zero = self.builder().ins().icmp(IntCC::Equal, b, zero);
        let divisor = self.builder().ins().select(is_zero, one, b);
        if op == IntOp::URem {
            return self.builder().ins().urem(a, divisor);
        }
        let quotient = self.builder().ins().udiv(a, divisor);
        self.builder().ins().select(is_zero, zero, quotient)
    }

    /// Emits a float operation with two operands.
    fn float_binary(&mut self, op: FloatOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let ins = self.builder().ins();
        match op {
            FloatOp::Add => ins.fadd(a, b),
            FloatOp::Sub => ins.fsub(a, b),
            FloatOp::Mul => ins.fmul(a, b),
            FloatOp::Div => ins.fdiv(a, b),
            FloatOp::Min => ins.fmin(a, b),
            FloatOp::Max => ins.fmax(a, b),
        }
    }

    /// Emits a float operation with one operand.
    fn float_unary(&mut self, op: FloatUnaryOp, a: clif::Value) -> clif::Value {
        let ins = self.builder().ins();
        match op {
            FloatUnaryOp::Neg => ins.fneg(a),
            FloatUnaryOp::Abs => ins.fabs(a),
            FloatUnaryOp::Floor => ins.floor(a),
            FloatUnaryOp::Ceil => ins.ceil(a),
            FloatUnaryOp::Round => ins.nearest(a),
            FloatUnaryOp::Sqrt => ins.sqrt(a),
        }
    }

    /// Negates a truth value that is 0 or 1.
    fn not(&mut self, a: clif::Value) -> clif::Value {
        self.builder().ins().bxor_imm_u(a, 1)
    }

    /// Strips the NOTs of a condition; returns whether their number was odd. The caller swaps the two sides, which
    /// costs nothing, and Cranelift does not do this.
    fn without_not(&mut self, by: clif::Value) -> (clif::Value, bool) {
        let dfg = &self.builder().func.dfg;
        let (mut by, mut is_not) = (by, false);
        while let Some(of) = negated(dfg, by) {
            (by, is_not) = (of, !is_not);
        }
        (by, is_not)
    }

    /// Emits a boolean operation.
    fn bool_binary(&mut self, op: BoolOp, a: clif::Value, b: clif::Value) -> clif::Value {
        let ins = self.builder().ins();
        match op {
            BoolOp::And => ins.band(a, b),
            BoolOp::Or => ins.bor(a, b),
            BoolOp::Xor => ins.bxor(a, b),
        }
    }

    /// Emits the binary logarithm, rounded down; 0 for numbers below 1.
    fn log2(&mut self, word: clif::Value) -> clif::Value {
        let (one, highest) = (self.word(1), self.word(63));
        let word = self.builder().ins().smax(word, one);
        let above = self.builder().ins().clz(word);
        self.builder().ins().isub(highest, above)
    }

    /// Emits [`hash::hash_word`].
    fn hash_word(&mut self, word: clif::Value) -> clif::Value {
        let [k0, k1, _] = hash::KEYS.map(|k| self.word(k as i64));
        let mixed = self.builder().ins().bxor(word, k0);
        self.fold_mul(mixed, k1)
    }

    /// Emits [`hash::mix`].
    fn hash_mix(&mut self, hash: clif::Value, word: clif::Value) -> clif::Value {
        let [k0, _, k2] = hash::KEYS.map(|k| self.word(k as i64));
        let mixed = self.builder().ins().bxor(hash, word);
        let mixed = self.builder().ins().bxor(mixed, k2);
        self.fold_mul(mixed, k0)
    }

    /// Emits [`hash::fold_mul`].
    fn fold_mul(&mut self, a: clif::Value, b: clif::Value) -> clif::Value {
        // One instruction where the machine has it.
        let [a, b] = [a, b].map(|word| self.builder().ins().uextend(I128, word));
        let product = self.builder().ins().imul(a, b);
        let (low, high) = self.builder().ins().isplit(product);
        self.builder().ins().bxor(low, high)
    }
}

/// The operand of a NOT, if this value is one.
fn negated(dfg: &DataFlowGraph, value: clif::Value) -> Option<clif::Value> {
    let inst = dfg.value_def(value).inst().filter(|_| dfg.value_type(value) == I8)?;
    let InstructionData::Binary { opcode: Opcode::Bxor, args: [of, by] } = dfg.insts[inst] else {
        return None;
    };
    (known(dfg, by) == Some(1)).then_some(of)
}

/// The value of a compile-time constant.
pub(crate) fn known(dfg: &DataFlowGraph, value: clif::Value) -> Option<i64> {
    match dfg.insts[dfg.value_def(value).inst()?] {
        InstructionData::UnaryImm { opcode: Opcode::Iconst, imm } => Some(imm.bits()),
        _ => None,
    }
}

/// The condition of a comparison of integers.
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

/// The condition of a comparison of floats.
fn float_cc(cmp: FloatCmp) -> FloatCC {
    match cmp {
        FloatCmp::Eq => FloatCC::Equal,
        FloatCmp::Ne => FloatCC::OrderedNotEqual,
        FloatCmp::Lt => FloatCC::LessThan,
        FloatCmp::Le => FloatCC::LessThanOrEqual,
    }
}
