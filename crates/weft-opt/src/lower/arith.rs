//! Lowers arithmetic: an integer overflow of its type, or a division by zero, is an error. Floats follow IEEE 754.

use weft_core::abi::Fault;
use weft_core::{Status, Type};
use weft_ir::ir::{FloatCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Op, Signed, Ty, Value};
use weft_lang::hir::{ArithOp, Expr};

use super::body::Body;
use super::logic::{RaisedFault, Val};

impl Body<'_, '_> {
    /// Lowers an arithmetic operation on two expressions. The types of the operands select the integer, interval or
    /// float operation.
    pub(super) fn arith(&mut self, op: ArithOp, left: &Expr, right: &Expr, ty: Type) -> Val {
        let (left_ty, right_ty) = (left.ty, right.ty);
        let (left, right) = (self.expr(left), self.expr(right));
        let (a, b) = (left.value, right.value);
        let (value, fault) = match (ty, left_ty, right_ty) {
            (Type::Interval, Type::Interval, Type::F64) => self.scaled_interval(op, a, b),
            (Type::F64, Type::Interval, Type::Interval) => {
                let a = self.b.get(Op::IntToFloat(Signed::Yes, a), Ty::Float);
                let b = self.b.get(Op::IntToFloat(Signed::Yes, b), Ty::Float);
                (self.float_arith(op, a, b), None)
            }
            (Type::F64, ..) => (self.float_arith(op, a, b), None),
            _ => self.int_arith(op, a, b, ty),
        };
        self.b.result(&[left, right], value, fault)
    }

    /// Lowers `-a`.
    pub(super) fn negation(&mut self, operand: &Expr) -> Val {
        let ty = operand.ty;
        let operand = self.expr(operand);
        if ty == Type::F64 {
            let value = self.b.float_unary(FloatUnaryOp::Neg, operand.value);
            return self.b.result(&[operand], value, None);
        }
        let zero = self.b.int(0);
        let (value, fault) = self.int_arith(ArithOp::Sub, zero, operand.value, ty);
        self.b.result(&[operand], value, fault)
    }

    /// Integers, SIZE, INTERVAL and TIMESTAMP. `ty` is the type of the result; all operands have its signedness.
    pub(super) fn int_arith(
        &mut self,
        op: ArithOp,
        a: Value,
        b: Value,
        ty: Type,
    ) -> (Value, Option<RaisedFault>) {
        let signed = signedness(ty);
        let ir = match (op, signed) {
            (ArithOp::Add, _) => IntOp::Add,
            (ArithOp::Sub, _) => IntOp::Sub,
            (ArithOp::Mul, _) => IntOp::Mul,
            (ArithOp::Div, Signed::Yes) => IntOp::SDiv,
            (ArithOp::Div, Signed::No) => IntOp::UDiv,
            (ArithOp::Rem, Signed::Yes) => IntOp::SRem,
            (ArithOp::Rem, Signed::No) => IntOp::URem,
        };
        let value = self.b.int_binary(ir, a, b);
        let by_zero = match op {
            ArithOp::Div | ArithOp::Rem => self.zero_divisor(b),
            _ => None,
        };
        let wraps = self.wraps(ir, ty, a, b);
        let leaves = match op {
            ArithOp::Rem => None,
            ArithOp::Div if signed == Signed::No => None,
            _ => self.out_of_type(value, ty),
        };
        let overflow = self.b.first(wraps, leaves);
        (value, self.b.first(by_zero, overflow))
    }

    /// Whether an operation overflows 64 bits; None if operands of this type cannot.
    fn wraps(&mut self, op: IntOp, ty: Type, a: Value, b: Value) -> Option<RaisedFault> {
        let bits = bits(ty);
        let may_wrap = match op {
            IntOp::Add | IntOp::Sub | IntOp::SDiv => bits == 64,
            IntOp::Mul => bits > 32,
            _ => false,
        };
        if !may_wrap {
            return None;
        }
        let is = self.b.overflows(op, signedness(ty), a, b);
        self.b.raise(is, Fault::Overflow)
    }

    /// Whether a result that fits in 64 bits overflows its type.
    pub(super) fn out_of_type(&mut self, value: Value, ty: Type) -> Option<RaisedFault> {
        let (low, high) = match ty {
            Type::Int(bits) if bits < 64 => (-(1i64 << (bits - 1)), (1i64 << (bits - 1)) - 1),
            Type::Uint(bits) if bits < 64 => (0, (1i64 << bits) - 1),
            // The codes of gRPC have no gaps.
            Type::Status => (0, Status::ALL.len() as i64 - 1),
            _ => return None,
        };
        let fits = self.b.in_range(value, low, high);
        let is = self.b.not(fits);
        self.b.raise(is, Fault::Overflow)
    }

    /// Emits the DivideByZero fault of a divisor.
    pub(super) fn zero_divisor(&mut self, b: Value) -> Option<RaisedFault> {
        let zero = self.b.int(0);
        let is = self.b.int_compare(IntCmp::Eq, b, zero);
        self.b.raise(is, Fault::DivideByZero)
    }

    /// Emits a float operation with the results of IEEE 754.
    fn float_arith(&mut self, op: ArithOp, a: Value, b: Value) -> Value {
        let op = match op {
            ArithOp::Add => FloatOp::Add,
            ArithOp::Sub => FloatOp::Sub,
            ArithOp::Mul => FloatOp::Mul,
            // The language has no remainder of F64.
            ArithOp::Div | ArithOp::Rem => FloatOp::Div,
        };
        self.b.float_binary(op, a, b)
    }

    /// INTERVAL times or divided by F64.
    fn scaled_interval(&mut self, op: ArithOp, a: Value, b: Value) -> (Value, Option<RaisedFault>) {
        let a = self.b.get(Op::IntToFloat(Signed::Yes, a), Ty::Float);
        let by_zero = (op == ArithOp::Div).then(|| {
            let zero = self.b.float(0.0);
            let is = self.b.float_compare(FloatCmp::Eq, b, zero);
            self.b.raise(is, Fault::DivideByZero)
        });
        let scaled = self.float_arith(op, a, b);
        let (value, overflow) = self.float_to_int(scaled, Signed::Yes);
        (value, self.b.first(by_zero.flatten(), overflow))
    }

    /// Truncates toward zero; overflows if it does not fit in 64 bits.
    pub(super) fn float_to_int(&mut self, value: Value, signed: Signed) -> (Value, Option<RaisedFault>) {
        let fits = self.b.get(Op::FloatFits(signed, value), Ty::Bool);
        let is = self.b.not(fits);
        let fault = self.b.raise(is, Fault::Overflow);
        (self.b.get(Op::FloatToInt(signed, value), Ty::Int), fault)
    }
}

/// The signedness of a type's 64 bits.
pub(super) fn signedness(ty: Type) -> Signed {
    if ty.is_signed() { Signed::Yes } else { Signed::No }
}

/// The number of bits of an integer type.
fn bits(ty: Type) -> u8 {
    match ty {
        Type::Int(bits) | Type::Uint(bits) => bits,
        _ => 64,
    }
}
