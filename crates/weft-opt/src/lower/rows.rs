//! Lowers table reads: by key, by join, and scans.

use weft_core::table::Evict;
use weft_core::{Type, abi::Fault};
use weft_ir::ir::{BlockId, ColumnId, FloatCmp, FloatOp, IntCmp, IntOp, Op, Signed, TableId, Ty, Value};
use weft_lang::hir::{Aggregate, ArithOp, CompareOp, Expr, Find, RowId, TableRef};

use super::arith::signedness;
use super::body::{Body, BoundRow, Path};
use super::logic::{RaisedFault, Val};

/// A computed key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub(super) value: Value,
    /// A Bool: whether a part of it is NULL, so that it finds no row.
    pub(super) null: Option<Value>,
}

/// A loop over the rows of a table.
pub(super) struct RowLoop {
    head: BlockId,
    exit: BlockId,
    /// The next cursor, and the number of rows so far.
    next: [Value; 2],
    carried: Vec<Value>,
    /// The facts known before the loop.
    path: Path,
}

impl Body<'_, '_> {
    // ---- by key ----

    /// The key as the table expects it, and its error.
    pub(super) fn key(&mut self, parts: &[Expr]) -> (Key, Option<RaisedFault>) {
        let parts: Vec<Val> = parts.iter().map(|part| self.expr(part)).collect();
        let (null, fault) = self.b.strict(&parts);
        let value = match parts.as_slice() {
            [only] => only.value,
            _ => self.b.get(Op::Key(parts.iter().map(|part| part.value).collect()), Ty::Bytes),
        };
        (Key { value, null }, fault)
    }

    /// Finds the row; none if the key is NULL.
    pub(super) fn find(&mut self, table: TableRef, parts: &[Expr], key: Key) -> Value {
        let (id, _) = self.table(table);
        self.lock_for(id, Some(key.value));
        let row = self.found(id, parts, key.value);
        match key.null {
            None => row,
            Some(null) => {
                let none = self.b.no_row();
                self.b.select(null, none, row)
            }
        }
    }

    /// Records that a row was read, if its age or its eviction depends on it.
    pub(super) fn touch_read(&mut self, table: TableId, row: Value) {
        let spec = &self.lowering.program.tables[usize::from(table.0)].spec;
        if spec.evict == Evict::Lru || (spec.ttl.is_some() && spec.ttl_on_access) {
            self.b.act(Op::TouchRead(table, row));
        }
    }

    /// Reads the current values of the columns that the handler uses.
    pub(super) fn load(&mut self, row_id: RowId, table: TableRef, row: Value, is_optional: bool) {
        let mut bound = BoundRow::default();
        let missing = is_optional.then(|| {
            let there = self.b.is_row(row);
            self.b.not(there)
        });
        for column in self.mentions.columns_of(row_id) {
            bound.columns.insert(column, self.load_column(table, row, column, missing));
        }
        self.bind(row_id, bound);
    }

    /// Reads a column of a row. With `missing`, the column is NULL if the row is missing.
    pub(super) fn load_column(
        &mut self,
        table: TableRef,
        row: Value,
        column: usize,
        missing: Option<Value>,
    ) -> Val {
        let (id, decl) = self.table(table);
        let (at, decl) = (ColumnId(column as u16), &decl.columns[column]);
        let value = self.b.get(Op::Column(id, row, at), Ty::of(decl.ty));
        // All columns of a missing row are NULL.
        let null =
            if decl.nullable { Some(self.b.get(Op::ColumnIsNull(id, row, at), Ty::Bool)) } else { missing };
        Val { value, null, fault: None }
    }

    /// Lowers a lookup within an expression. Returns whether there is a row, and the error of key and condition.
    ///
    /// It has no branches: the missing row has columns, too, all zero.
    fn look(&mut self, find: &Find) -> (Value, Option<RaisedFault>) {
        let (key, fault) = self.key(&find.key);
        let row = self.find(find.table, &find.key, key);
        let (id, _) = self.table(find.table);
        self.touch_read(id, row);
        self.load(find.row, find.table, row, false);
        let there = self.b.is_row(row);
        let Some(condition) = &find.condition else { return (there, fault) };
        let condition = self.expr(condition);
        let condition_fault = self.b.fault_when(condition.fault, there);
        let fault = self.b.first(fault, condition_fault);
        let holds = self.b.is_true(condition);
        (self.b.and(there, holds), fault)
    }

    /// Lowers a lookup by key: the value, or NULL without a row.
    pub(super) fn lookup(&mut self, find: &Find, value: &Expr) -> Val {
        let (found, fault) = self.look(find);
        let value = self.expr(value);
        let missing = self.b.not(found);
        let null = self.b.either(Some(missing), value.null);
        let own = self.b.fault_when(value.fault, found);
        let fault = self.b.first(fault, own);
        Val { value: value.value, null, fault }
    }

    pub(super) fn exists(&mut self, find: &Find) -> Val {
        let (found, fault) = self.look(find);
        Val { value: found, null: None, fault }
    }

    /// Continues in a new block if `holds`, else jumps to `no`.
    pub(super) fn go_on_if(&mut self, holds: Value, no: BlockId) {
        let go_on = self.b.block();
        self.b.branch(holds, go_on, no);
        self.b.switch(go_on);
    }

    // ---- scans ----

    /// Begins a loop over the rows of a table, with loop-carried values. Continues in the body, with the row loaded.
    pub(super) fn begin_rows(
        &mut self,
        table: TableRef,
        row_id: RowId,
        rows_max: u64,
        start: &[Value],
    ) -> RowLoop {
        let (id, _) = self.table(table);
        self.lock_for(id, None);
        // An iteration may insert and remove rows that an earlier one found.
        self.forget_all_rows();
        let path = self.path.clone();
        let head = self.b.scan_block(rows_max);
        let (body, exit) = (self.b.block(), self.b.block());
        let cursor = self.b.param(head, Ty::Int);
        let visited = self.b.param(head, Ty::Int);
        let carried: Vec<Value> = start.iter().map(|value| self.carry(head, *value)).collect();
        let (zero, one) = (self.b.int(0), self.b.int(1));
        let args = [zero, zero].into_iter().chain(start.iter().copied()).collect();
        self.b.jump(head, args);

        self.b.switch(head);
        let row = self.b.get(Op::ScanRow(id, cursor), Ty::Row);
        let there = self.b.is_row(row);
        let most = self.b.int(rows_max as i64);
        let in_bounds = self.b.int_compare(IntCmp::SLt, visited, most);
        let goes_on = self.b.and(there, in_bounds);
        self.b.branch(goes_on, body, exit);

        self.b.switch(body);
        let next = self.b.get(Op::ScanNext(id, row), Ty::Int);
        let visited_next = self.b.int_binary(IntOp::Add, visited, one);
        self.load(row_id, table, row, false);
        RowLoop { head, exit, next: [next, visited_next], carried, path }
    }

    /// Ends an iteration with the values for the next one. Continues after the loop, with the values of the last
    /// iteration.
    pub(super) fn end_rows(&mut self, rows: RowLoop, handed: Vec<Value>) -> Vec<Value> {
        self.b.jump(rows.head, rows.next.into_iter().chain(handed).collect());
        self.path = rows.path;
        self.b.switch(rows.exit);
        rows.carried
    }

    fn carry(&mut self, head: BlockId, value: Value) -> Value {
        let ty = self.b.ty(value);
        self.b.param(head, ty)
    }

    /// Computes the aggregates of a scan.
    pub(super) fn aggregate(
        &mut self,
        table: TableRef,
        row: RowId,
        rows_max: u64,
        filter: Option<&Expr>,
        aggregate: &Aggregate,
        ty: Type,
    ) -> Val {
        let start = self.aggregate_start(aggregate, ty);
        let (no, none) = (self.b.bool(false), self.b.int(0));
        let start: Vec<Value> = start.into_iter().chain([no, none]).collect();
        let rows = self.begin_rows(table, row, rows_max, &start);
        let state = self.aggregate_step(aggregate, filter, &rows.carried, ty);
        let end = self.end_rows(rows, state);
        let (state, fault) = end.split_at(end.len() - 2);
        let fault = Some(RaisedFault { is: fault[0], code: fault[1] });
        match *state {
            [n] => Val { value: n, null: None, fault },
            [sum, seen, n] => {
                let missing = self.b.not(seen);
                let count = self.b.get(Op::IntToFloat(Signed::Yes, n), Ty::Float);
                let value = self.b.float_binary(FloatOp::Div, sum, count);
                Val { value, null: Some(missing), fault }
            }
            [value, seen] => {
                let missing = self.b.not(seen);
                Val { value, null: Some(missing), fault }
            }
            // ARGMIN and ARGMAX: the result, whether it is NULL, the measure, whether there was one.
            [value, is_null, _, seen] => {
                let missing = self.b.not(seen);
                let null = self.b.or(missing, is_null);
                Val { value, null: Some(null), fault }
            }
            _ => self.absent(ty),
        }
    }

    /// Returns the initial state of an aggregate.
    fn aggregate_start(&mut self, aggregate: &Aggregate, ty: Type) -> Vec<Value> {
        let (no, zero) = (self.b.bool(false), self.b.int(0));
        match aggregate {
            Aggregate::Count => vec![zero],
            Aggregate::Any => vec![no],
            Aggregate::Sum(_) | Aggregate::Min(_) | Aggregate::Max(_) => vec![self.b.zero(Ty::of(ty)), no],
            Aggregate::Avg(_) => vec![self.b.float(0.0), no, zero],
            Aggregate::ArgMin { by, .. } | Aggregate::ArgMax { by, .. } => {
                let (result, measure) = (self.b.zero(Ty::of(ty)), self.b.zero(Ty::of(by.ty)));
                vec![result, no, measure, no]
            }
        }
    }

    /// The state of an aggregate after a row; the last two values are the first error and its code.
    fn aggregate_step(
        &mut self,
        aggregate: &Aggregate,
        filter: Option<&Expr>,
        state: &[Value],
        ty: Type,
    ) -> Vec<Value> {
        let (state, known) = state.split_at(state.len() - 2);
        let mut fault = Some(RaisedFault { is: known[0], code: known[1] });
        let mut counts = self.b.bool(true);
        if let Some(filter) = filter {
            let filter = self.expr(filter);
            fault = self.b.first(fault, filter.fault);
            counts = self.b.is_true(filter);
        }
        let (state, own) = self.take_row(aggregate, state, counts, ty);
        let own = self.b.fault_when(own, counts);
        let fault = self.b.first(fault, own);
        let (is, code) = (self.b.flag(fault.map(|f| f.is)), fault.map_or(known[1], |f| f.code));
        state.into_iter().chain([is, code]).collect()
    }

    /// Updates the state of an aggregate by one row, if `counts` is true.
    fn take_row(
        &mut self,
        aggregate: &Aggregate,
        state: &[Value],
        counts: Value,
        ty: Type,
    ) -> (Vec<Value>, Option<RaisedFault>) {
        match aggregate {
            Aggregate::Count => {
                let more = self.b.get(Op::BoolToInt(counts), Ty::Int);
                (vec![self.b.int_binary(IntOp::Add, state[0], more)], None)
            }
            Aggregate::Any => (vec![self.b.or(state[0], counts)], None),
            Aggregate::Sum(expr) => {
                let value = self.expr(expr);
                let takes = self.b.unless(counts, value.null);
                let (sum, overflow) = self.sum(state[0], value.value, ty);
                let overflow = self.b.fault_when(overflow, takes);
                let fault = self.b.first(value.fault, overflow);
                (vec![self.b.select(takes, sum, state[0]), self.b.or(state[1], takes)], fault)
            }
            Aggregate::Avg(expr) => {
                let value = self.expr(expr);
                let takes = self.b.unless(counts, value.null);
                let number = self.as_float(value.value, expr.ty);
                let (sum, overflow) = self.sum(state[0], number, Type::F64);
                let overflow = self.b.fault_when(overflow, takes);
                let fault = self.b.first(value.fault, overflow);
                let more = self.b.get(Op::BoolToInt(takes), Ty::Int);
                let n = self.b.int_binary(IntOp::Add, state[2], more);
                (vec![self.b.select(takes, sum, state[0]), self.b.or(state[1], takes), n], fault)
            }
            Aggregate::Min(expr) | Aggregate::Max(expr) => {
                let value = self.expr(expr);
                let is_min = matches!(aggregate, Aggregate::Min(_));
                let takes = self.replaces(is_min, value, state[0], state[1], counts, expr.ty);
                let seen = self.b.unless(counts, value.null);
                (vec![self.b.select(takes, value.value, state[0]), self.b.or(state[1], seen)], value.fault)
            }
            Aggregate::ArgMin { result, by } | Aggregate::ArgMax { result, by } => {
                let (value, measure) = (self.expr(result), self.expr(by));
                let is_min = matches!(aggregate, Aggregate::ArgMin { .. });
                let takes = self.replaces(is_min, measure, state[2], state[3], counts, by.ty);
                let fault = self.b.first(measure.fault, value.fault);
                let is_null = self.b.flag(value.null);
                let seen = self.b.unless(counts, measure.null);
                let best = [
                    self.b.select(takes, value.value, state[0]),
                    self.b.select(takes, is_null, state[1]),
                    self.b.select(takes, measure.value, state[2]),
                    self.b.or(state[3], seen),
                ];
                (best.to_vec(), fault)
            }
        }
    }

    /// Whether a row's value replaces the best so far; of equal ones the first stays.
    fn replaces(
        &mut self,
        is_min: bool,
        value: Val,
        best: Value,
        seen: Value,
        counts: Value,
        ty: Type,
    ) -> Value {
        let (less, more) = if is_min { (value.value, best) } else { (best, value.value) };
        let better = self.sorts_before(ty, less, more);
        let first = self.b.not(seen);
        let better = self.b.or(first, better);
        let counts = self.b.unless(counts, value.null);
        self.b.and(counts, better)
    }

    /// Whether one value sorts before another: NaN last.
    fn sorts_before(&mut self, ty: Type, a: Value, b: Value) -> Value {
        let less = self.compare(CompareOp::Lt, ty, a, b);
        if Ty::of(ty) != Ty::Float {
            return less;
        }
        let [a_is_number, b_is_number] = [a, b].map(|x| self.b.float_compare(FloatCmp::Eq, x, x));
        let b_is_nan = self.b.not(b_is_number);
        let before_nan = self.b.and(a_is_number, b_is_nan);
        self.b.or(less, before_nan)
    }

    /// Emits the addition to a sum, with the fault of an integer overflow.
    fn sum(&mut self, sum: Value, value: Value, ty: Type) -> (Value, Option<RaisedFault>) {
        if Ty::of(ty) == Ty::Float {
            return (self.b.float_binary(FloatOp::Add, sum, value), None);
        }
        self.int_arith(ArithOp::Add, sum, value, ty)
    }

    /// Emits the conversion of a number to a float.
    fn as_float(&mut self, value: Value, ty: Type) -> Value {
        match Ty::of(ty) {
            Ty::Float => value,
            _ => self.b.get(Op::IntToFloat(signedness(ty), value), Ty::Float),
        }
    }

    /// Why an insertion failed: a part of its key is too long, or the table is full.
    pub(super) fn insert_fault(
        &mut self,
        table: TableRef,
        parts: &[Val],
        no_row: Value,
    ) -> Option<RaisedFault> {
        let (_, decl) = self.table(table);
        let columns = decl.columns.iter().take(decl.n_keys);
        let mut too_long = None;
        for (part, column) in parts.iter().zip(columns) {
            let longer = self.check_length(part.value, column.ty);
            too_long = self.b.first(too_long, longer);
        }
        let full = self.b.fault(Fault::TableFull);
        let code = match too_long {
            Some(RaisedFault { is, code }) => self.b.select(is, code, full),
            None => full,
        };
        Some(RaisedFault { is: no_row, code })
    }
}
