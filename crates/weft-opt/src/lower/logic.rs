//! Values of the language as values of the IR: three-valued logic and errors, by boolean algebra.
//!
//! An error overrides NULL, and both override the value: code that reads `null` has tested `fault` before, and code
//! that reads `value` has tested both. So `null` is arbitrary if there is an error, and `value` if there is either.

use weft_core::abi::Fault;
use weft_ir::ir::{BlockId, Ty, Value};

use super::build::Builder;

/// A value that may be NULL or an error. Absent flags cost nothing.
#[derive(Clone, Copy, Debug)]
pub(super) struct Val {
    pub(super) value: Value,
    /// A Bool: whether it is NULL. None if it never is.
    pub(super) null: Option<Value>,
    /// None if it is never an error.
    pub(super) fault: Option<RaisedFault>,
}

/// An error that may have been raised.
#[derive(Clone, Copy, Debug)]
pub(super) struct RaisedFault {
    /// A Bool: whether it was raised.
    pub(super) is: Value,
    /// An Int: the fault's code.
    pub(super) code: Value,
}

impl Val {
    pub(super) fn plain(value: Value) -> Self {
        Self { value, null: None, fault: None }
    }
}

impl Builder {
    // ---- flags that may be absent ----

    /// The disjunction of optional flags.
    pub(super) fn either(&mut self, a: Option<Value>, b: Option<Value>) -> Option<Value> {
        match (a, b) {
            (Some(a), Some(b)) => Some(self.or(a, b)),
            (one, None) | (None, one) => one,
        }
    }

    /// Emits `flag AND NOT off`.
    pub(super) fn unless(&mut self, flag: Value, off: Option<Value>) -> Value {
        match off {
            None => flag,
            Some(off) => {
                let on = self.not(off);
                self.and(flag, on)
            }
        }
    }

    /// A flag as a value.
    pub(super) fn flag(&mut self, flag: Option<Value>) -> Value {
        flag.unwrap_or_else(|| self.bool(false))
    }

    /// An error that is raised if `is` is true.
    pub(super) fn raise(&mut self, is: Value, fault: Fault) -> Option<RaisedFault> {
        if self.known_bool(is) == Some(false) {
            return None;
        }
        let code = self.fault(fault);
        Some(RaisedFault { is, code })
    }

    /// Emits the first fault of two.
    pub(super) fn first(&mut self, a: Option<RaisedFault>, b: Option<RaisedFault>) -> Option<RaisedFault> {
        match (a, b) {
            (Some(a), Some(b)) => {
                let is = self.or(a.is, b.is);
                let code = self.select(a.is, a.code, b.code);
                Some(RaisedFault { is, code })
            }
            (one, None) | (None, one) => one,
        }
    }

    /// An error that counts only if `when` is true.
    pub(super) fn fault_when(&mut self, fault: Option<RaisedFault>, when: Value) -> Option<RaisedFault> {
        let RaisedFault { is, code } = fault?;
        let is = self.and(is, when);
        (self.known_bool(is) != Some(false)).then_some(RaisedFault { is, code })
    }

    /// The NULL and the error of a strict operation's operands.
    pub(super) fn strict(&mut self, operands: &[Val]) -> (Option<Value>, Option<RaisedFault>) {
        let (mut null, mut fault) = (None, None);
        for operand in operands {
            null = self.either(null, operand.null);
            fault = self.first(fault, operand.fault);
        }
        (null, fault)
    }

    /// The result of an operation on operands: NULL if one is; an error if one is, or else if the operation failed.
    pub(super) fn result(&mut self, operands: &[Val], value: Value, own: Option<RaisedFault>) -> Val {
        let (null, fault) = self.strict(operands);
        let own = own.and_then(|own| {
            let is = self.unless(own.is, null);
            (self.known_bool(is) != Some(false)).then_some(RaisedFault { is, code: own.code })
        });
        let fault = self.first(fault, own);
        Val { value, null, fault }
    }

    // ---- logic ----

    /// Whether a BOOL is true: neither false nor NULL. Its error is separate.
    pub(super) fn is_true(&mut self, a: Val) -> Value {
        self.unless(a.value, a.null)
    }

    /// Whether a BOOL is false for certain.
    fn is_false(&mut self, a: Val) -> Value {
        let neither = self.either(a.null, a.fault.map(|fault| fault.is));
        let not_false = self.either(Some(a.value), neither);
        let not_false = self.flag(not_false);
        self.not(not_false)
    }

    fn is_surely_true(&mut self, a: Val) -> Value {
        let neither = self.either(a.null, a.fault.map(|fault| fault.is));
        self.unless(a.value, neither)
    }

    pub(super) fn logical_not(&mut self, a: Val) -> Val {
        Val { value: self.not(a.value), ..a }
    }

    /// `false AND x` is false whatever x is, even an error; otherwise an error wins, then NULL.
    pub(super) fn logical_and(&mut self, a: Val, b: Val) -> Val {
        let value = self.and(a.value, b.value);
        self.absorb(a, b, value, Self::is_false)
    }

    /// `true OR x` is true whatever x is, even an error; otherwise an error wins, then NULL.
    pub(super) fn logical_or(&mut self, a: Val, b: Val) -> Val {
        let value = self.or(a.value, b.value);
        self.absorb(a, b, value, Self::is_surely_true)
    }

    /// Combines two values by AND or OR. NULL and faults do not count if one operand decides the result alone.
    fn absorb(&mut self, a: Val, b: Val, value: Value, decides: fn(&mut Self, Val) -> Value) -> Val {
        let (null, fault) = self.strict(&[a, b]);
        if null.is_none() && fault.is_none() {
            return Val::plain(value);
        }
        let (by_a, by_b) = (decides(self, a), decides(self, b));
        let decided = self.or(by_a, by_b);
        let open = self.not(decided);
        let null = null.map(|null| self.and(null, open));
        let fault = self.fault_when(fault, open);
        Val { value, null, fault }
    }

    // ---- joins ----

    /// Joins the branches that end in these blocks, each with its value, and continues after them.
    pub(super) fn meet(&mut self, branches: &[(BlockId, Val)], ty: Ty) -> Val {
        let block = self.block();
        let value = self.param(block, ty);
        let null = branches.iter().any(|(_, val)| val.null.is_some()).then(|| self.param(block, Ty::Bool));
        let fault = branches.iter().any(|(_, val)| val.fault.is_some()).then(|| {
            let is = self.param(block, Ty::Bool);
            RaisedFault { is, code: self.param(block, Ty::Int) }
        });
        for (from, val) in branches {
            self.switch(*from);
            let mut args = vec![val.value];
            if null.is_some() {
                args.push(self.flag(val.null));
            }
            if fault.is_some() {
                let none = self.int(0);
                args.push(self.flag(val.fault.map(|fault| fault.is)));
                args.push(val.fault.map_or(none, |fault| fault.code));
            }
            self.jump(block, args);
        }
        self.switch(block);
        Val { value, null, fault }
    }
}
