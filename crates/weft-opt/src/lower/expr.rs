//! Lowers expressions.

use weft_core::abi::Fault;
use weft_core::{Type, Value as Constant};
use weft_ir::ir::{BlockId, BytesCmp, FloatCmp, InputId, IntCmp, Op, Ty, Value};
use weft_ir::program::InputLocation;
use weft_lang::check::fold::fold;
use weft_lang::hir::{CompareOp, Direction, Expr, ExprKind, Function};

use super::Scope;
use super::body::{Body, Path};
use super::logic::Val;
use super::places;

/// Expressions of at most this many operations are computed even if unused: a branch costs as much.
const CHEAP_OPS_MAX: usize = 4;

impl<'n> Body<'_, 'n> {
    /// Lowers an expression. Returns its value, whether it is NULL, and its fault.
    pub(super) fn expr(&mut self, expr: &Expr) -> Val {
        if let Ok(value) = fold(expr, &self.scope.instance.params) {
            return self.constant(&value, expr.ty);
        }
        self.set_line(expr.span);
        match &expr.kind {
            ExprKind::Const(value) => self.constant(value, expr.ty),
            ExprKind::Param(index) => {
                let value = self.scope.instance.params[*index].clone();
                self.constant(&value, expr.ty)
            }
            ExprKind::Column(column) => self.column(*column),
            ExprKind::Local(local) => self.local(*local).unwrap_or_else(|| self.absent(expr.ty)),
            ExprKind::Call(cell) => {
                let (id, ty) = (self.scope.call[*cell], Ty::of(self.scope.element.call[*cell].ty));
                Val::plain(self.b.get(Op::CallGet(id), ty))
            }
            ExprKind::Var(var) => self.var(*var),
            ExprKind::RowColumn { row, column } => {
                let bound = self.rows[row.0].as_ref().and_then(|bound| bound.columns.get(column).copied());
                bound.unwrap_or_else(|| self.absent(expr.ty))
            }
            ExprKind::Header(name) => {
                self.read_place(InputLocation::Header(name.clone()), Type::Text(None), true)
            }
            ExprKind::Trailer(name) => {
                self.read_place(InputLocation::Trailer(name.clone()), Type::Text(None), true)
            }
            ExprKind::Meta(meta) => self.read_place(places::meta(*meta), expr.ty, expr.nullable),
            ExprKind::FaultName => self.fault_name(),
            ExprKind::Egress => self.egress(),
            // Values of narrower types use the same 64 bits, and texts have no length here.
            ExprKind::Widen(operand) => self.expr(operand),
            ExprKind::Cast(operand) => self.cast(operand, expr.ty),
            ExprKind::Not(operand) => {
                let operand = self.expr(operand);
                self.b.logical_not(operand)
            }
            ExprKind::Neg(operand) => self.negation(operand),
            ExprKind::And(left, right) => self.connective(left, right, Connective::And),
            ExprKind::Or(..) if let Some((operand, networks)) = self.networks(expr) => {
                let operand = self.expr(operand);
                let value = self.b.get(Op::InPrefixes(operand.value, networks), Ty::Bool);
                self.b.result(&[operand], value, None)
            }
            ExprKind::Or(left, right) => self.connective(left, right, Connective::Or),
            ExprKind::Compare { op, left, right } => {
                let ty = left.ty;
                let (left, right) = (self.expr(left), self.expr(right));
                self.comparison(*op, ty, left, right)
            }
            ExprKind::Arith { op, left, right } => self.arith(*op, left, right, expr.ty),
            ExprKind::Concat(parts) => {
                let parts: Vec<Val> = parts.iter().map(|part| self.expr(part)).collect();
                let value = self.b.get(Op::Concat(parts.iter().map(|part| part.value).collect()), Ty::Bytes);
                self.b.result(&parts, value, None)
            }
            ExprKind::IsNull(operand) => {
                let operand = self.expr(operand);
                let value = self.b.flag(operand.null);
                Val { value, null: None, fault: operand.fault }
            }
            ExprKind::SameAs(left, right) => self.same_as(left, right),
            ExprKind::InList { operand, list } => self.in_list(operand, list),
            ExprKind::Between { operand, low, high } => {
                let ty = operand.ty;
                let (operand, low, high) = (self.expr(operand), self.expr(low), self.expr(high));
                let above = self.comparison(CompareOp::Le, ty, low, operand);
                let below = self.comparison(CompareOp::Le, ty, operand, high);
                self.b.logical_and(above, below)
            }
            ExprKind::Case { operand, arms, otherwise } => {
                self.case(operand.as_deref(), arms, otherwise, expr.ty)
            }
            ExprKind::Function { function, args } => self.function(*function, args, expr.ty),
            ExprKind::CountRows(table) => {
                let (table, _) = self.table(*table);
                self.lock_for(table, None);
                Val::plain(self.b.get(Op::Count(table), Ty::Int))
            }
            ExprKind::List { form, list, elements_max, filter } => {
                self.list(*form, *list, *elements_max, filter.as_deref())
            }
            ExprKind::Member(member) => self.member(*member, expr.ty, expr.nullable),
            ExprKind::Lookup { find, value } => self.lookup(find, value),
            ExprKind::Exists(find) => self.exists(find),
            ExprKind::Aggregate { table, row, rows_max, filter, aggregate } => {
                self.aggregate(*table, *row, *rows_max, filter.as_deref(), aggregate, expr.ty)
            }
        }
    }

    /// A constant; NULL is the type's zero with a constant flag.
    pub(super) fn constant(&mut self, value: &Constant, ty: Type) -> Val {
        Val::plain(match value {
            Constant::Null => return self.absent(ty),
            Constant::Bool(b) => self.b.bool(*b),
            Constant::Int(n) => self.b.int(*n),
            Constant::Float(x) => self.b.float(*x),
            Constant::Bytes(bytes) => self.b.bytes(bytes),
        })
    }

    /// NULL.
    pub(super) fn absent(&mut self, ty: Type) -> Val {
        let value = self.b.zero(Ty::of(ty));
        let null = self.b.bool(true);
        Val { value, null: Some(null), fault: None }
    }

    // ---- the tuple and the state ----

    /// Reads a column of the element: the bound expression, or the input at the bound place.
    pub(super) fn column(&mut self, column: usize) -> Val {
        if let Some(computed) = self.scope.computed(column) {
            return self.expr(computed);
        }
        let decl = &self.scope.element.columns[column];
        let binding = &self.scope.instance.bindings[column];
        let place = places::bound(&binding.place);
        let op = self.read_op(&place, decl.direction);
        let program = &mut self.lowering.program;
        let id = places::input(program, decl.direction, place, decl.ty, binding.nullable, false);
        let value = self.b.get(op(id), Ty::of(decl.ty));
        let null = binding.nullable.then(|| {
            let present = self.b.get(Op::InputPresent(id), Ty::Bool);
            self.b.not(present)
        });
        Val { value, null, fault: None }
    }

    /// Whether computing an expression costs no more than a branch around it. It uses neither tables nor scratch.
    fn is_cheap(&self, expr: &Expr) -> bool {
        n_ops(expr, self.scope).is_some_and(|n| n <= CHEAP_OPS_MAX) && !self.has_changing(expr)
    }

    /// Whether a part of an expression is derived from a message that may have changed.
    fn has_changing(&self, expr: &Expr) -> bool {
        self.is_changing(expr) || expr.children().into_iter().any(|part| self.has_changing(part))
    }

    /// The operation that reads a place: with the changes of the message, if it is derived from the message and there
    /// may be changes.
    fn read_op(&self, place: &InputLocation, direction: Direction) -> fn(InputId) -> Op {
        let is_changed = place.is_derived() && self.lowering.may_change(direction);
        if is_changed { Op::Derived } else { Op::Input }
    }

    /// Reads an input at a place of the handler's direction.
    fn read_place(&mut self, place: InputLocation, ty: Type, nullable: bool) -> Val {
        let direction = self.direction();
        let op = self.read_op(&place, direction);
        let id = places::input(&mut self.lowering.program, direction, place, ty, nullable, false);
        let value = self.b.get(op(id), Ty::of(ty));
        let null = nullable.then(|| {
            let present = self.b.get(Op::InputPresent(id), Ty::Bool);
            self.b.not(present)
        });
        Val { value, null, fault: None }
    }

    /// Reads a variable. Without MERGE it takes the handler's lock first.
    fn var(&mut self, var: usize) -> Val {
        let (decl, id) = (&self.scope.element.vars[var], self.scope.vars[var]);
        if decl.merge.is_some() {
            return Val::plain(self.b.get(Op::VarMerged(id), Ty::Int));
        }
        self.lock_for_var();
        Val::plain(self.b.get(Op::VarGet(id), Ty::of(decl.ty)))
    }

    /// Returns the name of the fault that ON ERROR handles; an empty text outside of ON ERROR.
    fn fault_name(&mut self) -> Val {
        let Some(code) = self.fault else { return Val::plain(self.b.bytes(b"")) };
        let mut name = self.b.bytes(Fault::FunctionFailed.name().as_bytes());
        for fault in Fault::ALL.iter().filter(|fault| **fault != Fault::FunctionFailed) {
            let is = self.b.fault(*fault);
            let is = self.b.int_compare(IntCmp::Eq, code, is);
            let this = self.b.bytes(fault.name().as_bytes());
            name = self.b.select(is, this, name);
        }
        Val::plain(name)
    }

    /// The target of the last REDIRECT, or the destination of the chain; NULL without either.
    fn egress(&mut self) -> Val {
        let decided = self.b.get(Op::Egress, Ty::Bytes);
        let (len, zero) = (self.b.len(decided), self.b.int(0));
        let is_open = self.b.int_compare(IntCmp::Eq, len, zero);
        match self.lowering.outlet.clone() {
            Some(name) => {
                let name = self.b.bytes(name.as_bytes());
                Val::plain(self.b.select(is_open, name, decided))
            }
            None => Val { value: decided, null: Some(is_open), fault: None },
        }
    }

    // ---- comparisons ----

    pub(super) fn comparison(&mut self, op: CompareOp, ty: Type, left: Val, right: Val) -> Val {
        let value = self.compare(op, ty, left.value, right.value);
        self.b.result(&[left, right], value, None)
    }

    /// Compares two values that are not NULL.
    pub(super) fn compare(&mut self, op: CompareOp, ty: Type, a: Value, b: Value) -> Value {
        let (op, a, b) = match op {
            CompareOp::Gt => (CompareOp::Lt, b, a),
            CompareOp::Ge => (CompareOp::Le, b, a),
            other => (other, a, b),
        };
        match Ty::of(ty) {
            Ty::Bytes => {
                let op = match op {
                    CompareOp::Eq => BytesCmp::Eq,
                    CompareOp::Ne => BytesCmp::Ne,
                    CompareOp::Lt => BytesCmp::Lt,
                    _ => BytesCmp::Le,
                };
                self.b.get(Op::BytesCompare(op, a, b), Ty::Bool)
            }
            // NaN equals nothing, not even itself, so it differs from everything.
            Ty::Float if op == CompareOp::Ne => {
                let equal = self.b.float_compare(FloatCmp::Eq, a, b);
                self.b.not(equal)
            }
            Ty::Float => {
                let op = match op {
                    CompareOp::Eq => FloatCmp::Eq,
                    CompareOp::Lt => FloatCmp::Lt,
                    _ => FloatCmp::Le,
                };
                self.b.float_compare(op, a, b)
            }
            Ty::Bool => self.compare_bools(op, a, b),
            Ty::Int | Ty::Row => {
                let op = match (op, ty.is_signed()) {
                    (CompareOp::Eq, _) => IntCmp::Eq,
                    (CompareOp::Ne, _) => IntCmp::Ne,
                    (CompareOp::Lt, true) => IntCmp::SLt,
                    (CompareOp::Lt, false) => IntCmp::ULt,
                    (_, true) => IntCmp::SLe,
                    (_, false) => IntCmp::ULe,
                };
                self.b.int_compare(op, a, b)
            }
        }
    }

    /// Emits a comparison of BOOLs. FALSE is less than TRUE.
    fn compare_bools(&mut self, op: CompareOp, a: Value, b: Value) -> Value {
        match op {
            CompareOp::Eq => {
                let differ = self.b.xor(a, b);
                self.b.not(differ)
            }
            CompareOp::Ne => self.b.xor(a, b),
            CompareOp::Lt => {
                let not_a = self.b.not(a);
                self.b.and(not_a, b)
            }
            _ => {
                let not_a = self.b.not(a);
                self.b.or(not_a, b)
            }
        }
    }

    /// Returns the column and the networks if a condition tests a column for constant networks.
    fn networks<'e>(&self, expr: &'e Expr) -> Option<(&'e Expr, Vec<Vec<u8>>)> {
        match &expr.kind {
            ExprKind::Or(left, right) => {
                let ((column, mut networks), (other, more)) = (self.networks(left)?, self.networks(right)?);
                networks.extend(more);
                (column.kind == other.kind).then_some((column, networks))
            }
            ExprKind::Function { function: Function::InPrefix, args } => match args.as_slice() {
                [column, net] if matches!(column.kind, ExprKind::Column(_)) => {
                    match fold(net, &self.scope.instance.params) {
                        Ok(Constant::Bytes(net)) => Some((column, vec![net])),
                        _ => None,
                    }
                }
                _ => None,
            },
            _ => None,
        }
    }

    /// Lowers `IS NOT DISTINCT FROM`: equality, where NULL equals NULL.
    fn same_as(&mut self, left: &Expr, right: &Expr) -> Val {
        let ty = left.ty;
        let (left, right) = (self.expr(left), self.expr(right));
        let (_, fault) = self.b.strict(&[left, right]);
        let equal = self.compare(CompareOp::Eq, ty, left.value, right.value);
        let (left_null, right_null) = (self.b.flag(left.null), self.b.flag(right.null));
        let either = self.b.or(left_null, right_null);
        let both = self.b.and(left_null, right_null);
        let value = self.b.select(either, both, equal);
        Val { value, null: None, fault }
    }

    /// The OR of comparisons, as a balanced tree: halves of the same size are joined as soon as both are there, so that
    /// few values are live.
    fn in_list(&mut self, operand: &Expr, list: &[Expr]) -> Val {
        let ty = operand.ty;
        let operand = self.expr(operand);
        let mut halves: Vec<Val> = Vec::new();
        for (nth, item) in list.iter().enumerate() {
            let item = self.expr(item);
            let mut found = self.comparison(CompareOp::Eq, ty, operand, item);
            for _ in 0..(nth + 1).trailing_zeros() {
                let Some(before) = halves.pop() else { break };
                found = self.b.logical_or(before, found);
            }
            halves.push(found);
        }
        let Some(mut found) = halves.pop() else { return Val::plain(self.b.bool(false)) };
        while let Some(before) = halves.pop() {
            found = self.b.logical_or(before, found);
        }
        found
    }

    // ---- lazy evaluation ----

    /// Lowers AND or OR. Evaluates the right operand lazily, unless it is cheap.
    fn connective(&mut self, left: &Expr, right: &Expr, connective: Connective) -> Val {
        let left = self.expr(left);
        if self.is_cheap(right) {
            let right = self.expr(right);
            return self.connect(left, right, connective);
        }
        // The left value decides alone if it is neither NULL nor an error.
        let neither = self.b.either(left.null, left.fault.map(|fault| fault.is));
        let decides = match connective {
            Connective::And => {
                let open = self.b.either(Some(left.value), neither);
                let open = self.b.flag(open);
                self.b.not(open)
            }
            Connective::Or => self.b.unless(left.value, neither),
        };
        let decided = self.b.bool(connective == Connective::Or);
        self.choose(
            decides,
            Type::Bool,
            |_| Val::plain(decided),
            |body| {
                let right = body.expr(right);
                body.connect(left, right, connective)
            },
        )
    }

    /// Emits AND or OR of two evaluated operands.
    fn connect(&mut self, left: Val, right: Val, connective: Connective) -> Val {
        match connective {
            Connective::And => self.b.logical_and(left, right),
            Connective::Or => self.b.logical_or(left, right),
        }
    }

    /// Emits a choice between two values, of which only the chosen one is computed.
    pub(super) fn choose(
        &mut self,
        by: Value,
        ty: Type,
        yes: impl FnOnce(&mut Self) -> Val,
        no: impl FnOnce(&mut Self) -> Val,
    ) -> Val {
        match self.b.known_bool(by) {
            Some(true) => return yes(self),
            Some(false) => return no(self),
            None => {}
        }
        let (yes_block, no_block) = (self.b.block(), self.b.block());
        let before = self.path.clone();
        self.b.branch(by, yes_block, no_block);
        self.b.switch(yes_block);
        let yes = yes(self);
        let yes_end = self.b.here().unwrap_or(yes_block);
        let yes_path = core::mem::replace(&mut self.path, before);
        self.b.switch(no_block);
        let no = no(self);
        let no_end = self.b.here().unwrap_or(no_block);
        let no_path = core::mem::take(&mut self.path);
        self.join_paths([yes_path, no_path]);
        self.b.meet(&[(yes_end, yes), (no_end, no)], Ty::of(ty))
    }

    /// Lowers CASE. An arm is evaluated only if no earlier one was taken. Without recursion, whatever the number of
    /// arms: all arms join in one block.
    fn case(&mut self, operand: Option<&Expr>, arms: &[(Expr, Expr)], otherwise: &Expr, ty: Type) -> Val {
        let operand = operand.map(|operand| (self.expr(operand), operand.ty));
        let mut branches = Branches::default();
        // An error in a condition is an error of the whole, whichever arm was taken. So there are two sets of facts:
        // those of all paths, and those for later arms.
        let (mut of_all, mut before) = (None, None);
        let mut last = None;
        for (when, then) in arms {
            let when = self.expr(when);
            let holds = match operand {
                Some((operand, operand_ty)) => self.comparison(CompareOp::Eq, operand_ty, operand, when),
                None => when,
            };
            let known = if branches.ends.is_empty() { &mut of_all } else { &mut before };
            *known = self.b.first(*known, holds.fault);
            let is_true = self.b.is_true(holds);
            match self.b.known_bool(is_true) {
                Some(false) => {}
                Some(true) => {
                    last = Some(then);
                    break;
                }
                None => self.fork((is_true, true), &mut branches, |body| {
                    let then = body.expr(then);
                    Val { fault: body.b.first(before, then.fault), ..then }
                }),
            }
        }
        let last = self.expr(last.unwrap_or(otherwise));
        let last = Val { fault: self.b.first(before, last.fault), ..last };
        let taken = self.join_at_end(branches, last, ty);
        Val { fault: self.b.first(of_all, taken.fault), ..taken }
    }

    /// Lowers `coalesce`: the first argument that is not NULL. Without recursion, as [`Body::case`].
    pub(super) fn coalesce(&mut self, args: &[Expr], ty: Type) -> Val {
        let Some((last, firsts)) = args.split_last() else { return self.absent(ty) };
        // After the last costly argument, all are computed, needed or not.
        let n_dear = args.iter().rposition(|arg| !self.is_cheap(arg)).unwrap_or(0);
        let mut branches = Branches::default();
        let mut computed = Vec::new();
        let mut rest = None;
        for (nth, arg) in firsts.iter().enumerate() {
            let value = self.expr(arg);
            let Some(null) = value.null else {
                rest = Some(value);
                break;
            };
            // An error of the argument comes before its NULL: then the rest does not matter.
            let needs_rest = self.b.unless(null, value.fault.map(|fault| fault.is));
            let kept = Val { null: None, ..value };
            match self.b.known_bool(needs_rest) {
                _ if nth >= n_dear => computed.push((needs_rest, kept)),
                Some(true) => {}
                Some(false) => {
                    rest = Some(kept);
                    break;
                }
                None => self.fork((needs_rest, false), &mut branches, |_| kept),
            }
        }
        let mut rest = match rest {
            Some(rest) => rest,
            None => self.expr(last),
        };
        while let Some((needs_rest, kept)) = computed.pop() {
            let value = self.b.select(needs_rest, rest.value, kept.value);
            let null = rest.null.map(|null| self.b.and(null, needs_rest));
            let rest_fault = self.b.fault_when(rest.fault, needs_rest);
            rest = Val { value, null, fault: self.b.first(kept.fault, rest_fault) };
        }
        self.join_at_end(branches, rest, ty)
    }

    /// Emits a fork: if a flag has this value, takes the branch of a value; else continues without it.
    fn fork(
        &mut self,
        (by, holds): (Value, bool),
        branches: &mut Branches,
        value: impl FnOnce(&mut Self) -> Val,
    ) {
        let [yes, no] = [(); 2].map(|()| self.b.block());
        let (taken, other) = if holds { (yes, no) } else { (no, yes) };
        let before = self.path.clone();
        self.b.branch(by, yes, no);
        self.b.switch(taken);
        let value = value(self);
        let end = self.b.here().unwrap_or(taken);
        branches.ends.push((end, value));
        let path = core::mem::replace(&mut self.path, before);
        self.join_path(&mut branches.path, path);
        self.b.switch(other);
    }

    /// Joins the branches; `last` is the value of the current one.
    fn join_at_end(&mut self, mut branches: Branches, last: Val, ty: Type) -> Val {
        let Some(here) = self.b.here().filter(|_| !branches.ends.is_empty()) else { return last };
        branches.ends.push((here, last));
        let path = core::mem::take(&mut self.path);
        self.join_path(&mut branches.path, path);
        self.path = branches.path.unwrap_or_default();
        self.b.meet(&branches.ends, Ty::of(ty))
    }

    /// The inputs of a column that a statement changes.
    pub(super) fn written_column(&mut self, column: usize) -> (InputId, bool) {
        let decl = &self.scope.element.columns[column];
        let binding = &self.scope.instance.bindings[column];
        let place = places::bound(&binding.place);
        let clears =
            binding.nullable || matches!(place, InputLocation::Header(_) | InputLocation::Trailer(_));
        let program = &mut self.lowering.program;
        let id = places::input(program, decl.direction, place, decl.ty, binding.nullable, true);
        (id, clears)
    }

    /// The input of a header or trailer that a statement changes.
    pub(super) fn written_place(&mut self, place: InputLocation) -> InputId {
        let direction: Direction = self.direction();
        places::input(&mut self.lowering.program, direction, place, Type::Text(None), true, true)
    }
}

/// Branches that yield one value each, and the facts common to all.
#[derive(Default)]
struct Branches {
    ends: Vec<(BlockId, Val)>,
    path: Option<Path>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Connective {
    And,
    Or,
}

/// Number of simple operations of an expression; None if it has others.
fn n_ops(expr: &Expr, scope: &Scope<'_>) -> Option<usize> {
    let is_bytes = Ty::of(expr.ty) == Ty::Bytes;
    let own = match &expr.kind {
        ExprKind::Column(column) if let Some(computed) = scope.computed(*column) => n_ops(computed, scope)?,
        ExprKind::Member(_) if !is_bytes => 3,
        ExprKind::Const(_) | ExprKind::Param(_) | ExprKind::Local(_) | ExprKind::RowColumn { .. } => 0,
        ExprKind::Column(_) | ExprKind::Meta(_) | ExprKind::Header(_) | ExprKind::Trailer(_) => 1,
        ExprKind::Call(_) if !is_bytes => 1,
        ExprKind::Widen(_) | ExprKind::IsNull(_) | ExprKind::Not(_) => 1,
        ExprKind::Compare { .. } | ExprKind::And(..) | ExprKind::Or(..) | ExprKind::Between { .. } => 1,
        ExprKind::Function { function: Function::IsGroup, .. } => 2,
        ExprKind::Neg(_) | ExprKind::Arith { .. } => 2,
        ExprKind::Function {
            function:
                Function::Now | Function::Least | Function::Greatest | Function::Seconds | Function::Length,
            ..
        } if !is_bytes => 1,
        _ => return None,
    };
    expr.children().into_iter().try_fold(own, |sum, part| Some(sum + n_ops(part, scope)?))
}
