//! Lowers conversions and function calls.

use weft_core::abi::Fault;
use weft_core::types::Repr;
use weft_core::{Status, Type};
use weft_ir::ir::{BytesCmp, FloatOp, FloatUnaryOp, IntCmp, IntOp, Op, Signed, Ty, Value};
use weft_lang::hir::{ArithOp, CompareOp, Expr, Function};

use super::arith::signedness;
use super::body::Body;
use super::logic::{RaisedFault, Val};

impl Body<'_, '_> {
    // ---- conversions ----

    /// Lowers a CAST, with the fault of a value that does not fit the target type.
    pub(super) fn cast(&mut self, operand: &Expr, to: Type) -> Val {
        let from = operand.ty;
        let val = self.expr(operand);
        let a = val.value;
        let (value, fault) = match (from.repr(), to.repr()) {
            (Repr::Bytes, Repr::Bytes) => (a, self.check_length(a, to)),
            (_, Repr::Bytes) => {
                let text = self.text_of(a, from);
                (text, self.check_length(text, to))
            }
            (Repr::Int, Repr::Int) => (a, self.misfit(a, from, to)),
            (Repr::Bool, Repr::Int) => (self.b.get(Op::BoolToInt(a), Ty::Int), None),
            (Repr::Int, Repr::Float) => (self.b.get(Op::IntToFloat(signedness(from), a), Ty::Float), None),
            (Repr::Float, Repr::Int) => {
                let (value, fault) = self.float_to_int(a, signedness(to));
                let leaves = self.out_of_type(value, to);
                (value, self.b.first(fault, leaves))
            }
            (Repr::Bytes, Repr::Int) => self.text_to_int(a, to),
            (Repr::Bytes, Repr::Float) => self.text_to_float(a),
            // Only BOOL converts to BOOL, and F64 to F64 is the same value.
            _ => (a, None),
        };
        self.b.result(&[val], value, fault)
    }

    /// The text of a number, a BOOL or a STATUS.
    fn text_of(&mut self, value: Value, from: Type) -> Value {
        match from {
            Type::Bool => {
                let (yes, no) = (self.b.bytes(b"true"), self.b.bytes(b"false"));
                self.b.select(value, yes, no)
            }
            Type::Status => {
                let mut name = self.b.bytes(Status::Unknown.name().as_bytes());
                for status in Status::ALL.iter().filter(|status| **status != Status::Unknown) {
                    let code = self.b.int(i64::from(status.code()));
                    let is = self.b.int_compare(IntCmp::Eq, value, code);
                    let this = self.b.bytes(status.name().as_bytes());
                    name = self.b.select(is, this, name);
                }
                name
            }
            Type::F64 => self.b.get(Op::FloatToText(value), Ty::Bytes),
            other => self.b.get(Op::IntToText(signedness(other), value), Ty::Bytes),
        }
    }

    /// Emits the conversion of a text to an integer type, with the faults for other texts and for an overflow.
    fn text_to_int(&mut self, text: Value, to: Type) -> (Value, Option<RaisedFault>) {
        let signed = signedness(to);
        let is_number = self.b.get(Op::IsIntText(signed, text), Ty::Bool);
        let is = self.b.not(is_number);
        let bad = self.b.raise(is, Fault::BadCast);
        let value = self.b.get(Op::TextToInt(signed, text), Ty::Int);
        let leaves = self.out_of_type(value, to);
        (value, self.b.first(bad, leaves))
    }

    /// Emits the conversion of a text to F64, with the fault for other texts.
    fn text_to_float(&mut self, text: Value) -> (Value, Option<RaisedFault>) {
        let is_number = self.b.get(Op::IsFloatText(text), Ty::Bool);
        let is = self.b.not(is_number);
        let bad = self.b.raise(is, Fault::BadCast);
        (self.b.get(Op::TextToFloat(text), Ty::Float), bad)
    }

    /// The overflow error if an integer does not fit in another type.
    fn misfit(&mut self, value: Value, from: Type, to: Type) -> Option<RaisedFault> {
        let sign = match (from.is_signed(), to.is_signed()) {
            // As signed 64 bits: a U64 above I64's range and a negative number both look negative.
            (true, false) | (false, true) => {
                let fits = self.b.in_range(value, 0, i64::MAX);
                let is = self.b.not(fits);
                self.b.raise(is, Fault::Overflow)
            }
            // A U64 that the range check takes as signed looks negative, which no narrower type allows.
            _ => None,
        };
        let leaves = self.out_of_type(value, to);
        self.b.first(sign, leaves)
    }

    /// Emits a check that the bytes fit `ty`. Returns the TooLong fault, or None if `ty` has no maximum length.
    pub(super) fn check_length(&mut self, value: Value, ty: Type) -> Option<RaisedFault> {
        if ty.repr() != Repr::Bytes {
            return None;
        }
        let max = ty.bytes_max()?;
        let (len, max) = (self.b.len(value), self.b.int(i64::from(max)));
        let is = self.b.int_compare(IntCmp::SLt, max, len);
        self.b.raise(is, Fault::TooLong)
    }

    /// Emits a check that a value fits `ty`. Returns the value's own fault first, and otherwise TooLong; NULL fits
    /// every type.
    pub(super) fn first_fault_or_too_long(&mut self, value: Val, ty: Type) -> Option<RaisedFault> {
        let own = self.check_length(value.value, ty);
        let own = match (own, value.null) {
            (Some(own), Some(null)) => {
                let there = self.b.not(null);
                self.b.fault_when(Some(own), there)
            }
            (own, _) => own,
        };
        self.b.first(value.fault, own)
    }

    // ---- functions ----

    /// Lowers a function call, with its faults.
    pub(super) fn function(&mut self, function: Function, args: &[Expr], ty: Type) -> Val {
        if function == Function::Coalesce {
            return self.coalesce(args, ty);
        }
        if let Function::Native(function, site) = function {
            return self.native(function, site, args, ty);
        }
        let types: Vec<Type> = args.iter().map(|arg| arg.ty).collect();
        let vals: Vec<Val> = args.iter().map(|arg| self.expr(arg)).collect();
        let values: Vec<Value> = vals.iter().map(|val| val.value).collect();
        let (value, fault) = match (function, values.as_slice()) {
            (Function::Now, _) => (self.b.get(Op::Now, Ty::Int), None),
            (Function::Rand(nth), _) => (self.b.get(Op::Rand(self.rand_site(nth)), Ty::Float), None),
            (Function::Least | Function::Greatest, values) => (self.extreme(function, values, ty), None),
            (Function::NullIf, &[a, b]) => return self.null_if(&vals, a, b, types[0]),
            (Function::Hash, values) => (self.hash(values, &types), None),
            (Function::HashSlot, &[a, n]) => {
                let hash = self.hash(&[a], &types[..1]);
                self.slot(hash, n)
            }
            (Function::BitAnd, &[a, b]) => (self.b.int_binary(IntOp::And, a, b), None),
            (_, &[a]) => self.of_one(function, a, types[0]),
            (_, &[a, b]) => (self.of_two(function, a, b), None),
            (Function::Substr, &[a, from, n]) => (self.substr(a, from, n), None),
            // The checker gives each function arguments of its signature.
            _ => (self.b.zero(Ty::of(ty)), None),
        };
        self.b.result(&vals, value, fault)
    }

    /// The number of a call site of `rand()`: the same for the same call of the same instance, in every version.
    pub(super) fn rand_site(&self, nth: u32) -> u64 {
        let instance = weft_core::hash::hash_bytes(self.scope.instance.name.as_bytes());
        weft_core::hash::mix(instance, u64::from(nth))
    }

    /// Lowers a function of one argument. `ty` is the type of the argument.
    fn of_one(&mut self, function: Function, a: Value, ty: Type) -> (Value, Option<RaisedFault>) {
        let float = |op| move |body: &mut Self| (body.b.float_unary(op, a), None);
        match function {
            Function::Seconds => (self.in_units(a, 1e9), None),
            Function::Millis => (self.in_units(a, 1e6), None),
            Function::Micros => (self.in_units(a, 1e3), None),
            Function::Interval => {
                let nanos = self.b.float(1e9);
                let nanos = self.b.float_binary(FloatOp::Mul, a, nanos);
                self.float_to_int(nanos, Signed::Yes)
            }
            Function::Floor => float(FloatUnaryOp::Floor)(self),
            Function::Ceil => float(FloatUnaryOp::Ceil)(self),
            Function::Round => float(FloatUnaryOp::Round)(self),
            Function::Sqrt => float(FloatUnaryOp::Sqrt)(self),
            Function::Abs if ty == Type::F64 => float(FloatUnaryOp::Abs)(self),
            Function::Abs => {
                let zero = self.b.int(0);
                let (negated, fault) = self.int_arith(ArithOp::Sub, zero, a, ty);
                let is_negative = self.b.int_compare(IntCmp::SLt, a, zero);
                let fault = self.b.fault_when(fault, is_negative);
                (self.b.select(is_negative, negated, a), fault)
            }
            Function::Length => (self.b.len(a), None),
            Function::IsGroup => {
                // The I/G bit is the least significant bit of the first byte (IEEE 802 section 8.2).
                let first = self.b.get(Op::ByteAt(a, 0), Ty::Int);
                let one = self.b.int(1);
                let bit = self.b.int_binary(IntOp::And, first, one);
                (self.b.int_compare(IntCmp::Eq, bit, one), None)
            }
            Function::PrefixBits => {
                // After the address: four bytes, or sixteen.
                let len = self.b.len(a);
                let short = self.b.int(5);
                let is_v4 = self.b.int_compare(IntCmp::Eq, len, short);
                let [v4, v6] = [4, 16].map(|at| self.b.get(Op::ByteAt(a, at), Ty::Int));
                (self.b.select(is_v4, v4, v6), None)
            }
            Function::Lower => (self.b.get(Op::Lower(a), Ty::Bytes), None),
            Function::Upper => (self.b.get(Op::Upper(a), Ty::Bytes), None),
            // Conversions are CASTs in the typed program.
            _ => (a, None),
        }
    }

    /// Lowers a predicate of two arguments.
    fn of_two(&mut self, function: Function, a: Value, b: Value) -> Value {
        let op = match function {
            Function::StartsWith => Op::BytesCompare(BytesCmp::StartsWith, a, b),
            Function::EndsWith => Op::BytesCompare(BytesCmp::EndsWith, a, b),
            Function::Like => Op::BytesCompare(BytesCmp::Like, a, b),
            Function::InPrefix => Op::InPrefix(a, b),
            Function::SameFamily => {
                // A network is one byte longer than an address.
                let (address, net, one) = (self.b.len(a), self.b.len(b), self.b.int(1));
                let address = self.b.int_binary(IntOp::Add, address, one);
                return self.b.int_compare(IntCmp::Eq, address, net);
            }
            _ => Op::BytesCompare(BytesCmp::Contains, a, b),
        };
        self.b.get(op, Ty::Bool)
    }

    /// Emits the conversion of nanoseconds to a float in larger units.
    fn in_units(&mut self, nanos: Value, per_unit: f64) -> Value {
        let nanos = self.b.get(Op::IntToFloat(Signed::Yes, nanos), Ty::Float);
        let per_unit = self.b.float(per_unit);
        self.b.float_binary(FloatOp::Div, nanos, per_unit)
    }

    /// Lowers `least` and `greatest` of values of one type.
    fn extreme(&mut self, function: Function, values: &[Value], ty: Type) -> Value {
        let is_least = function == Function::Least;
        let mut best = values[0];
        for &value in &values[1..] {
            best = match (ty.repr(), ty.is_signed(), is_least) {
                (Repr::Float, _, true) => self.b.float_binary(FloatOp::Min, best, value),
                (Repr::Float, _, false) => self.b.float_binary(FloatOp::Max, best, value),
                (Repr::Int, true, true) => self.b.int_binary(IntOp::SMin, best, value),
                (Repr::Int, true, false) => self.b.int_binary(IntOp::SMax, best, value),
                (Repr::Int, false, true) => self.b.int_binary(IntOp::UMin, best, value),
                (Repr::Int, false, false) => self.b.int_binary(IntOp::UMax, best, value),
                (Repr::Bool, ..) if is_least => self.b.and(best, value),
                (Repr::Bool, ..) => self.b.or(best, value),
                (Repr::Bytes, ..) => {
                    let (less, more) = if is_least { (value, best) } else { (best, value) };
                    let replaces = self.compare(CompareOp::Lt, ty, less, more);
                    self.b.select(replaces, value, best)
                }
            };
        }
        best
    }

    /// Lowers `nullif`: the first value, or NULL if both are equal.
    fn null_if(&mut self, vals: &[Val], a: Value, b: Value, ty: Type) -> Val {
        let (_, fault) = self.b.strict(vals);
        let equal = self.compare(CompareOp::Eq, ty, a, b);
        // A comparison with NULL is not true.
        let equal = self.b.unless(equal, vals[1].null);
        let null = self.b.either(vals[0].null, Some(equal));
        Val { value: a, null, fault }
    }

    /// The hash of several values: that of the first, mixed with the others in order.
    fn hash(&mut self, values: &[Value], types: &[Type]) -> Value {
        let mut hash = None;
        for (&value, ty) in values.iter().zip(types) {
            let hashable = match ty.repr() {
                Repr::Bool => self.b.get(Op::BoolToInt(value), Ty::Int),
                Repr::Float => {
                    // The IR hashes words and bytes; the shortest text distinguishes all floats.
                    self.b.get(Op::FloatToText(value), Ty::Bytes)
                }
                Repr::Int | Repr::Bytes => value,
            };
            let one = self.b.get(Op::Hash(hashable), Ty::Int);
            hash = Some(match hash {
                None => one,
                Some(so_far) => self.b.get(Op::HashMix(so_far, one), Ty::Int),
            });
        }
        hash.unwrap_or_else(|| self.b.int(0))
    }

    /// Emits `hash MOD n`, with a fault if `n` is less than 1.
    fn slot(&mut self, hash: Value, n: Value) -> (Value, Option<RaisedFault>) {
        let one = self.b.int(1);
        let is = self.b.int_compare(IntCmp::SLt, n, one);
        let fault = self.b.raise(is, Fault::DivideByZero);
        (self.b.int_binary(IntOp::URem, hash, n), fault)
    }

    /// Positions count from 1; positions outside the text are ignored, as in SQL.
    fn substr(&mut self, text: Value, from: Value, n: Value) -> Value {
        // Positions before the text use up the count: substr('abc', 0, 2) is 'a'. Both are clamped first, so that no
        // difference overflows 64 bits.
        let (low, high) = (self.b.int(-(1 << 62)), self.b.int(1 << 62));
        let clamp = |body: &mut Self, value| {
            let value = body.b.int_binary(IntOp::SMax, value, low);
            body.b.int_binary(IntOp::SMin, value, high)
        };
        let (from, n) = (clamp(self, from), clamp(self, n));
        let (zero, one) = (self.b.int(0), self.b.int(1));
        let offset = self.b.int_binary(IntOp::Sub, from, one);
        let before = self.b.int_binary(IntOp::SMin, offset, zero);
        let n = self.b.int_binary(IntOp::Add, n, before);
        self.b.get(Op::Slice(text, offset, n), Ty::Bytes)
    }
}
