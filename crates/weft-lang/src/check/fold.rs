//! The value of an expression that needs no tuple: literals, parameters, and what is computed from them.

use weft_core::{Type, Value};

use crate::hir::{ArithOp, Expr, ExprKind, Function};
use crate::source::Span;
use crate::types;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldError {
    /// This part is not known before the program runs.
    NotConstant(Span),
    /// It is an error value: `overflow`, `division by zero`.
    Fault(&'static str, Span),
}

/// The value of an expression, given the values of the element's parameters.
///
/// # Errors
/// If it reads anything but parameters, or is an error value.
pub fn fold(expr: &Expr, params: &[Value]) -> Result<Value, FoldError> {
    let not_constant = Err(FoldError::NotConstant(expr.span));
    match &expr.kind {
        ExprKind::Const(value) => Ok(value.clone()),
        ExprKind::Param(index) => params.get(*index).cloned().map_or(not_constant, Ok),
        ExprKind::Widen(operand) => fold(operand, params),
        ExprKind::Not(operand) => Ok(match fold(operand, params)? {
            Value::Bool(value) => Value::Bool(!value),
            other => other,
        }),
        ExprKind::Neg(operand) => match fold(operand, params)? {
            Value::Int(n) => in_type(i128::from(n).checked_neg(), expr),
            Value::Float(x) => Ok(Value::Float(-x)),
            other => Ok(other),
        },
        ExprKind::Arith { op, left, right } => {
            let (a, b) = (fold(left, params)?, fold(right, params)?);
            if a == Value::Null || b == Value::Null {
                return Ok(Value::Null);
            }
            arith(*op, (left, a), (right, b), expr)
        }
        ExprKind::Concat(parts) => {
            let mut bytes = Vec::new();
            for part in parts {
                match fold(part, params)? {
                    Value::Bytes(more) => bytes.extend(more),
                    _ => return Ok(Value::Null),
                }
            }
            Ok(Value::Bytes(bytes))
        }
        ExprKind::Function { function, args } => function_of(*function, args, params, expr),
        _ => not_constant,
    }
}

fn arith(op: ArithOp, left: (&Expr, Value), right: (&Expr, Value), expr: &Expr) -> Result<Value, FoldError> {
    let is_float = |(side, _): &(&Expr, Value)| side.ty == Type::F64;
    if expr.ty == Type::F64 || is_float(&left) || is_float(&right) {
        let (a, b) = (as_float(&left), as_float(&right));
        if matches!(op, ArithOp::Div | ArithOp::Rem) && b == 0.0 {
            return Err(FoldError::Fault("division by zero", expr.span));
        }
        let x = match op {
            ArithOp::Add => a + b,
            ArithOp::Sub => a - b,
            ArithOp::Mul => a * b,
            ArithOp::Div => a / b,
            ArithOp::Rem => a % b,
        };
        let overflow = FoldError::Fault("overflow", expr.span);
        return match expr.ty {
            Type::F64 => x.is_finite().then_some(Value::Float(x)).ok_or(overflow),
            // The bound is a power of two, hence exact; everything below it in magnitude fits.
            _ => (x.abs() < 9_223_372_036_854_775_808.0).then_some(Value::Int(x as i64)).ok_or(overflow),
        };
    }
    let (a, b) = (as_integer(&left), as_integer(&right));
    if matches!(op, ArithOp::Div | ArithOp::Rem) && b == 0 {
        return Err(FoldError::Fault("division by zero", expr.span));
    }
    let n = match op {
        ArithOp::Add => a.checked_add(b),
        ArithOp::Sub => a.checked_sub(b),
        ArithOp::Mul => a.checked_mul(b),
        ArithOp::Div => a.checked_div(b),
        ArithOp::Rem => a.checked_rem(b),
    };
    in_type(n, expr)
}

fn function_of(function: Function, args: &[Expr], params: &[Value], expr: &Expr) -> Result<Value, FoldError> {
    let values: Vec<Value> = args.iter().map(|arg| fold(arg, params)).collect::<Result<_, _>>()?;
    match (function, values.as_slice()) {
        (Function::Coalesce, values) => {
            Ok(values.iter().find(|value| **value != Value::Null).cloned().unwrap_or(Value::Null))
        }
        (Function::Seconds, [Value::Int(nanos)]) => Ok(Value::Float(*nanos as f64 / 1e9)),
        (Function::Millis, [Value::Int(nanos)]) => Ok(Value::Float(*nanos as f64 / 1e6)),
        (Function::Micros, [Value::Int(nanos)]) => Ok(Value::Float(*nanos as f64 / 1e3)),
        (Function::Interval, [Value::Float(seconds)]) => {
            let nanos = seconds * 1e9;
            let fits = nanos.abs() < 9_223_372_036_854_775_808.0;
            fits.then_some(Value::Int(nanos as i64)).ok_or(FoldError::Fault("overflow", expr.span))
        }
        _ => Err(FoldError::NotConstant(expr.span)),
    }
}

fn in_type(n: Option<i128>, expr: &Expr) -> Result<Value, FoldError> {
    // Intervals and timestamps are signed 64-bit numbers.
    let ty = if types::is_integer(expr.ty) { expr.ty } else { Type::Int(64) };
    n.and_then(|n| types::integer(n, ty)).ok_or(FoldError::Fault("overflow", expr.span))
}

fn as_integer((expr, value): &(&Expr, Value)) -> i128 {
    match value {
        Value::Int(n) if expr.ty.is_signed() => i128::from(*n),
        Value::Int(n) => i128::from(*n as u64),
        _ => 0,
    }
}

fn as_float(side: &(&Expr, Value)) -> f64 {
    match side.1 {
        Value::Float(x) => x,
        _ => as_integer(side) as f64,
    }
}
