//! Constant folding: the value of an expression over literals and parameters.

use weft_core::{Status, Time, Type, Value};

use crate::hir::{ArithOp, CompareOp, Expr, ExprKind, Function, Meta};
use crate::source::Span;
use crate::types;

/// Why there is no value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FoldError {
    /// The expression is not a constant.
    NotConstant(Span),
    /// The value is an error: `overflow`, `division by zero`.
    Fault(&'static str, Span),
}

/// The value of an expression, given the values of the element's parameters.
///
/// # Errors
/// If it reads anything other than parameters, or is an error value.
pub fn fold(expr: &Expr, params: &[Value]) -> Result<Value, FoldError> {
    value_of(expr, FoldInputs { params, status: None, now: None })
}

/// The value of an expression over a row's columns at a given time; otherwise like [`fold`].
///
/// # Errors
/// If it reads anything other than parameters and `now()`, or is an error value.
pub fn fold_at(expr: &Expr, params: &[Value], now: Time) -> Result<Value, FoldError> {
    value_of(expr, FoldInputs { params, status: None, now: Some(now) })
}

/// The value of a condition on the status of a call, for one status; otherwise like [`fold`].
///
/// # Errors
/// If it reads anything other than parameters and `status`, or is an error value.
pub fn fold_for_status(expr: &Expr, params: &[Value], status: Status) -> Result<Value, FoldError> {
    value_of(expr, FoldInputs { params, status: Some(status), now: None })
}

/// The inputs of constant folding.
#[derive(Clone, Copy)]
struct FoldInputs<'a> {
    params: &'a [Value],
    status: Option<Status>,
    now: Option<Time>,
}

/// Computes the value of an expression from known inputs.
fn value_of(expr: &Expr, known: FoldInputs<'_>) -> Result<Value, FoldError> {
    let not_constant = Err(FoldError::NotConstant(expr.span));
    match &expr.kind {
        ExprKind::Const(value) => Ok(value.clone()),
        ExprKind::Param(index) => known.params.get(*index).cloned().map_or(not_constant, Ok),
        ExprKind::Meta(Meta::Status) => {
            known.status.map_or(not_constant, |status| Ok(Value::Int(i64::from(status.code()))))
        }
        ExprKind::Widen(operand) => value_of(operand, known),
        ExprKind::Cast(operand) => cast(operand, value_of(operand, known)?, expr),
        ExprKind::Not(operand) => Ok(match value_of(operand, known)? {
            Value::Bool(value) => Value::Bool(!value),
            other => other,
        }),
        ExprKind::And(left, right) => logic(left, right, false, known),
        ExprKind::Or(left, right) => logic(left, right, true, known),
        ExprKind::Compare { op, left, right } => {
            let (a, b) = (value_of(left, known)?, value_of(right, known)?);
            compare(*op, (left, a), (right, b)).map_or(not_constant, Ok)
        }
        ExprKind::InList { operand, list } => in_list(operand, list, known, expr),
        ExprKind::Between { operand, low, high } => {
            let value = value_of(operand, known)?;
            let sides = [(CompareOp::Ge, low), (CompareOp::Le, high)].map(|(op, side)| {
                let found = compare(op, (operand, value.clone()), (side, value_of(side, known)?));
                found.ok_or(FoldError::NotConstant(expr.span))
            });
            match sides {
                [Ok(Value::Bool(false)), _] | [_, Ok(Value::Bool(false))] => Ok(Value::Bool(false)),
                [Ok(Value::Bool(true)), side] | [side, _] => side,
            }
        }
        ExprKind::SameAs(left, right) => Ok(Value::Bool(value_of(left, known)? == value_of(right, known)?)),
        ExprKind::IsNull(operand) => Ok(Value::Bool(value_of(operand, known)? == Value::Null)),
        ExprKind::Neg(operand) => match value_of(operand, known)? {
            Value::Int(n) => in_type(i128::from(n).checked_neg(), expr),
            Value::Float(x) => Ok(Value::Float(-x)),
            other => Ok(other),
        },
        ExprKind::Arith { op, left, right } => {
            let (a, b) = (value_of(left, known)?, value_of(right, known)?);
            if a == Value::Null || b == Value::Null {
                return Ok(Value::Null);
            }
            arith(*op, (left, a), (right, b), expr)
        }
        ExprKind::Concat(parts) => {
            let mut bytes = Vec::new();
            for part in parts {
                match value_of(part, known)? {
                    Value::Bytes(more) => bytes.extend(more),
                    _ => return Ok(Value::Null),
                }
            }
            Ok(Value::Bytes(bytes))
        }
        ExprKind::Function { function: Function::Now, .. } => {
            known.now.map_or(not_constant, |Time(now)| Ok(Value::Int(now)))
        }
        ExprKind::Function { function, args } => function_of(*function, args, known, expr),
        _ => not_constant,
    }
}

/// Conversion between numbers; a fraction is an error.
fn cast(operand: &Expr, value: Value, expr: &Expr) -> Result<Value, FoldError> {
    match value {
        Value::Null => Ok(Value::Null),
        Value::Int(_) if types::is_integer(operand.ty) && expr.ty == Type::F64 => {
            Ok(Value::Float(as_float(&(operand, value))))
        }
        Value::Int(_) if types::is_integer(operand.ty) && types::is_integer(expr.ty) => {
            in_type(Some(as_integer(&(operand, value))), expr)
        }
        _ => Err(FoldError::NotConstant(expr.span)),
    }
}

/// Computes `AND` and `OR`, three-valued. `absorbing` is the value that decides the result alone.
fn logic(left: &Expr, right: &Expr, absorbing: bool, known: FoldInputs<'_>) -> Result<Value, FoldError> {
    let sides = (value_of(left, known), value_of(right, known));
    if [&sides.0, &sides.1].contains(&&Ok(Value::Bool(absorbing))) {
        return Ok(Value::Bool(absorbing));
    }
    match (sides.0?, sides.1?) {
        (Value::Null, _) | (_, Value::Null) => Ok(Value::Null),
        _ => Ok(Value::Bool(!absorbing)),
    }
}

/// Compares two constants. None if values of this type cannot be compared at compile time.
fn compare(op: CompareOp, left: (&Expr, Value), right: (&Expr, Value)) -> Option<Value> {
    if left.1 == Value::Null || right.1 == Value::Null {
        return Some(Value::Null);
    }
    let order = match (&left.1, &right.1) {
        (Value::Int(_), Value::Int(_)) if types::is_integer(left.0.ty) => {
            as_integer(&left).cmp(&as_integer(&right))
        }
        (Value::Int(a), Value::Int(b)) => a.cmp(b),
        (Value::Bool(a), Value::Bool(b)) => a.cmp(b),
        (Value::Bytes(a), Value::Bytes(b)) => a.cmp(b),
        (Value::Float(a), Value::Float(b)) => match a.partial_cmp(b) {
            Some(order) => order,
            // NaN is neither equal to, nor less, nor greater than any number.
            None => return Some(Value::Bool(op == CompareOp::Ne)),
        },
        _ => return None,
    };
    Some(Value::Bool(match op {
        CompareOp::Eq => order.is_eq(),
        CompareOp::Ne => order.is_ne(),
        CompareOp::Lt => order.is_lt(),
        CompareOp::Le => order.is_le(),
        CompareOp::Gt => order.is_gt(),
        CompareOp::Ge => order.is_ge(),
    }))
}

/// Computes `x IN (...)`. NULL if no item is equal and one is NULL.
fn in_list(operand: &Expr, list: &[Expr], known: FoldInputs<'_>, expr: &Expr) -> Result<Value, FoldError> {
    let value = value_of(operand, known)?;
    let mut is_null = false;
    for other in list {
        let found = compare(CompareOp::Eq, (operand, value.clone()), (other, value_of(other, known)?));
        match found.ok_or(FoldError::NotConstant(expr.span))? {
            Value::Bool(true) => return Ok(Value::Bool(true)),
            Value::Null => is_null = true,
            _ => {}
        }
    }
    Ok(if is_null { Value::Null } else { Value::Bool(false) })
}

/// Computes an arithmetic operation on constants.
fn arith(op: ArithOp, left: (&Expr, Value), right: (&Expr, Value), expr: &Expr) -> Result<Value, FoldError> {
    let is_float = |(side, _): &(&Expr, Value)| side.ty == Type::F64;
    if expr.ty == Type::F64 || is_float(&left) || is_float(&right) {
        let (a, b) = (as_float(&left), as_float(&right));
        if matches!(op, ArithOp::Div | ArithOp::Rem) && b == 0.0 && expr.ty != Type::F64 {
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
            Type::F64 => Ok(Value::Float(x)),
            // The bound is a power of two, hence exact; every smaller magnitude fits.
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

/// Computes a function call.
fn function_of(
    function: Function,
    args: &[Expr],
    known: FoldInputs<'_>,
    expr: &Expr,
) -> Result<Value, FoldError> {
    let values: Vec<Value> = args.iter().map(|arg| value_of(arg, known)).collect::<Result<_, _>>()?;
    match (function, values.as_slice()) {
        (Function::Coalesce, values) => {
            Ok(values.iter().find(|value| **value != Value::Null).cloned().unwrap_or(Value::Null))
        }
        (Function::InPrefix, [Value::Bytes(address), Value::Bytes(net)]) => {
            Ok(Value::Bool(is_in_net(address, net)))
        }
        (Function::IsGroup, [Value::Bytes(address)]) => {
            Ok(Value::Bool(address.first().is_some_and(|byte| byte & 1 == 1)))
        }
        (Function::PrefixBits, [Value::Bytes(net)]) => {
            Ok(Value::Int(net.last().copied().map_or(0, i64::from)))
        }
        (Function::SameFamily, [Value::Bytes(address), Value::Bytes(net)]) => {
            Ok(Value::Bool(address.len() + 1 == net.len()))
        }
        (Function::BitAnd, [Value::Int(a), Value::Int(b)]) => Ok(Value::Int(a & b)),
        (
            Function::InPrefix
            | Function::IsGroup
            | Function::PrefixBits
            | Function::SameFamily
            | Function::BitAnd
            | Function::Seconds
            | Function::Millis
            | Function::Micros,
            values,
        ) if values.contains(&Value::Null) => Ok(Value::Null),
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

/// Whether a network (address and prefix length) contains an address.
fn is_in_net(address: &[u8], net: &[u8]) -> bool {
    let Some((&len, net)) = net.split_last() else { return false };
    let (whole, rest) = (usize::from(len / 8), len % 8);
    if net.len() != address.len() || usize::from(len) > 8 * net.len() {
        return false;
    }
    let is_same_rest = rest == 0 || (net[whole] ^ address[whole]) >> (8 - rest) == 0;
    net[..whole] == address[..whole] && is_same_rest
}

/// Returns an integer result, or the overflow of its type.
fn in_type(n: Option<i128>, expr: &Expr) -> Result<Value, FoldError> {
    // Intervals and timestamps are signed 64-bit numbers.
    let ty = if types::is_integer(expr.ty) { expr.ty } else { Type::Int(64) };
    n.and_then(|n| types::integer(n, ty)).ok_or(FoldError::Fault("overflow", expr.span))
}

/// Returns an integer with the sign of its type.
fn as_integer((expr, value): &(&Expr, Value)) -> i128 {
    match value {
        Value::Int(n) if expr.ty.is_signed() => i128::from(*n),
        Value::Int(n) => i128::from(*n as u64),
        _ => 0,
    }
}

/// Returns a number as a float.
fn as_float(side: &(&Expr, Value)) -> f64 {
    match side.1 {
        Value::Float(x) => x,
        _ => as_integer(side) as f64,
    }
}
