//! Lowers statements that change tables.
//!
//! Each computes everything first: key, condition, values, and whether they fit. Only then does it write, so it can
//! rarely fail after its first write.

use weft_core::abi::Fault;
use weft_core::table::Evict;
use weft_ir::ir::{BlockId, ColumnId, Journal, Op, TableId, Ty, Value};
use weft_lang::hir::{AssignTarget, Expr, ExprKind, Function, RowId, Stmt, TableRef};

use super::body::{BoundRow, Path};
use super::handler::Statements;
use super::logic::Val;

/// The row of a statement: the table, the row's name, the key, and a further condition.
type RowTarget<'n> = (TableRef, RowId, &'n [Expr], Option<&'n Expr>);

/// A branch to a row: its last block, the row, and the columns known there.
type RowBranch = (BlockId, Value, Vec<(usize, Val)>);

impl<'n> Statements<'_, 'n> {
    /// Inserts a row; an existing key is an error.
    pub(super) fn insert(&mut self, table: TableRef, values: &[Expr]) {
        let (id, decl) = self.body.table(table);
        let n_keys = decl.n_keys;
        let (key, fault) = self.body.key(&values[..n_keys]);
        self.fail_if(fault);
        let row = self.body.find(table, &values[..n_keys], key);
        let there = self.body.b.is_row(row);
        let duplicate = self.body.b.raise(there, Fault::DuplicateKey);
        self.fail_if(duplicate);
        let columns: Vec<Val> = values[n_keys..].iter().map(|value| self.body.expr(value)).collect();
        for (value, column) in columns.iter().zip(&decl.columns[n_keys..]) {
            let fault = self.body.first_fault_or_too_long(*value, column.ty);
            self.fail_if(fault);
        }
        let row = self.new_row(table, &values[..n_keys], key.value);
        for (at, value) in columns.into_iter().enumerate() {
            self.store(id, row, n_keys + at, value);
        }
    }

    /// Inserts a row with a new key; fails if there is no room.
    fn new_row(&mut self, table: TableRef, key: &[Expr], value: Value) -> Value {
        let (id, _) = self.body.table(table);
        let parts: Vec<Val> = key.iter().map(|part| self.body.expr(part)).collect();
        // The parts were computed for the key before, and their use of scratch was tested then.
        let row = self.body.b.get(Op::Insert(id, value, Journal::Yes), Ty::Row);
        self.body.forget_rows(id);
        let there = self.body.b.is_row(row);
        let missing = self.body.b.not(there);
        let fault = self.body.insert_fault(table, &parts, missing);
        self.fail_if(fault);
        self.body.remember(id, key, row);
        row
    }

    /// Lowers UPSERT: finds or inserts the row of a key, and sets its columns.
    pub(super) fn upsert(
        &mut self,
        table: TableRef,
        row_id: RowId,
        key_parts: &'n [Expr],
        set: &'n [(usize, Expr)],
    ) {
        let (id, decl) = self.body.table(table);
        let (key, fault) = self.body.key(key_parts);
        self.fail_if(fault);
        let found = self.body.find(table, key_parts, key);
        let mentioned: Vec<usize> = self.body.mentions.columns_of(row_id);
        let (old, new) = (self.body.b.block(), self.body.b.block());
        let there = self.body.b.is_row(found);
        let before = self.body.path.clone();
        self.body.b.branch(there, old, new);

        self.body.b.switch(old);
        let mut branches = Vec::new();
        let columns = mentioned.iter().map(|&c| (c, self.body.load_column(table, found, c, None))).collect();
        self.check_scratch();
        branches.push((self.body.b.here().unwrap_or(old), found, columns));

        self.body.path = before;
        self.body.b.switch(new);
        let made = self.new_row(table, key_parts, key.value);
        let mut columns: Vec<(usize, Val)> = Vec::new();
        for (at, column) in decl.columns.iter().enumerate() {
            // A counter starts at its default, and then counts the new row.
            let is_set = set.iter().any(|(other, value)| *other == at && bin_of(value).is_none());
            if at < decl.n_keys {
                if mentioned.contains(&at) {
                    columns.push((at, self.body.load_column(table, made, at, None)));
                }
                continue;
            }
            if is_set && !mentioned.contains(&at) {
                continue;
            }
            let Some(default) = &column.default else { continue };
            let value = self.body.expr(default);
            let fault = self.body.first_fault_or_too_long(value, column.ty);
            self.fail_if(fault);
            let value = Val { fault: None, ..value };
            if !is_set {
                self.store(id, made, at, value);
            }
            if mentioned.contains(&at) {
                columns.push((at, value));
            }
        }
        self.check_scratch();
        branches.push((self.body.b.here().unwrap_or(new), made, columns));

        let row = self.join_rows(row_id, table, branches);
        self.body.forget_rows(id);
        self.body.remember(id, key_parts, row);
        self.change(table, row, set);
    }

    /// Joins the branches to a row, with the columns known on each, and binds it.
    fn join_rows(&mut self, row_id: RowId, table: TableRef, branches: Vec<RowBranch>) -> Value {
        let (_, decl) = self.body.table(table);
        let block = self.body.b.block();
        let row = self.body.b.param(block, Ty::Row);
        let mut bound = BoundRow::default();
        let columns: Vec<usize> = branches[0].2.iter().map(|(column, _)| *column).collect();
        for &column in &columns {
            let value = self.body.b.param(block, Ty::of(decl.columns[column].ty));
            let null = decl.columns[column].nullable.then(|| self.body.b.param(block, Ty::Bool));
            bound.columns.insert(column, Val { value, null, fault: None });
        }
        for (from, found, known) in branches {
            self.body.b.switch(from);
            let mut args = vec![found];
            for &column in &columns {
                let value = known.iter().find(|(at, _)| *at == column).map(|(_, value)| *value);
                // The statement sets a column without a default, and no value reads it.
                let value =
                    value.unwrap_or_else(|| Val::plain(self.body.b.zero(Ty::of(decl.columns[column].ty))));
                args.push(value.value);
                if decl.columns[column].nullable {
                    args.push(self.body.b.flag(value.null));
                }
            }
            self.body.b.jump(block, args);
        }
        self.body.b.switch(block);
        self.body.bind(row_id, bound);
        row
    }

    /// Lowers UPDATE of one row: changes it and stores RETURNING, or runs the statements of ELSE.
    pub(super) fn update(
        &mut self,
        target: RowTarget<'n>,
        set: &'n [(usize, Expr)],
        returning: &'n [(usize, AssignTarget)],
        otherwise: &'n [Stmt],
    ) {
        let (table, row_id, ..) = target;
        let (row, no, before) = self.target_row(target);
        let changed = self.change(table, row, set);
        self.return_columns(row_id, &changed, returning);
        let go_on = self.body.b.block();
        let mut branches = vec![(self.body.b.here(), self.returned(returning))];
        let mut paths = vec![core::mem::replace(&mut self.body.path, before)];
        let mut unchecked = self.body.b.take_scratch_used();

        self.body.b.switch(no);
        self.drop_returned(returning);
        self.stmts(otherwise);
        if self.body.b.is_open() {
            paths.push(self.body.path.clone());
            branches.push((self.body.b.here(), self.returned(returning)));
        }
        unchecked |= self.body.b.take_scratch_used();
        self.body.join_paths(paths);
        self.join_locals(go_on, branches, returning);
        if unchecked {
            self.body.b.set_scratch_used();
        }
    }

    /// Finds the row of a statement and reads its columns. Without a row, or with one that does not satisfy the
    /// condition, control goes to the returned block, with the facts of the returned path.
    fn target_row(&mut self, (table, row_id, key_parts, condition): RowTarget<'n>) -> (Value, BlockId, Path) {
        let (key, fault) = self.body.key(key_parts);
        self.fail_if(fault);
        let row = self.body.find(table, key_parts, key);
        let there = self.body.b.is_row(row);
        let no = self.body.b.block();
        let before = self.body.path.clone();
        self.body.go_on_if(there, no);
        self.body.load(row_id, table, row, false);
        if let Some(condition) = condition {
            let holds = self.truth(condition);
            self.body.go_on_if(holds, no);
        }
        self.check_scratch();
        (row, no, before)
    }

    /// The current values of RETURNING's locals.
    fn returned(&self, returning: &[(usize, AssignTarget)]) -> Vec<Val> {
        let local = |place: &AssignTarget| match place {
            AssignTarget::Local(local) => self.body.locals[local.0],
            _ => None,
        };
        returning.iter().filter_map(|(_, place)| local(place)).collect()
    }

    /// If no row changed, the locals of RETURNING are NULL (or zero, if unused).
    fn drop_returned(&mut self, returning: &[(usize, AssignTarget)]) {
        for (_, place) in returning {
            let AssignTarget::Local(local) = place else { continue };
            let Some(known) = self.body.locals[local.0] else { continue };
            let ty = self.body.b.ty(known.value);
            let (value, null) = (self.body.b.zero(ty), self.body.b.bool(true));
            self.body.locals[local.0] = Some(Val { value, null: Some(null), fault: None });
        }
    }

    /// Joins the branches of an UPDATE at `go_on`, where the locals of RETURNING become parameters.
    fn join_locals(
        &mut self,
        go_on: BlockId,
        branches: Vec<(Option<BlockId>, Vec<Val>)>,
        returning: &[(usize, AssignTarget)],
    ) {
        let locals: Vec<_> = returning
            .iter()
            .filter_map(|(_, place)| if let AssignTarget::Local(local) = place { Some(*local) } else { None })
            .collect();
        let needs_params = branches.len() > 1;
        let mut joined = Vec::new();
        if needs_params {
            for value in &branches[0].1 {
                let ty = self.body.b.ty(value.value);
                joined.push(Val {
                    value: self.body.b.param(go_on, ty),
                    null: Some(self.body.b.param(go_on, Ty::Bool)),
                    fault: None,
                });
            }
        } else {
            joined.clone_from(&branches[0].1);
        }
        for (from, values) in branches {
            let Some(from) = from else { continue };
            self.body.b.switch(from);
            let mut args = Vec::new();
            for value in values.iter().filter(|_| needs_params) {
                args.push(value.value);
                args.push(self.body.b.flag(value.null));
            }
            self.body.b.jump(go_on, args);
        }
        self.body.b.switch(go_on);
        for (local, value) in locals.into_iter().zip(joined) {
            self.body.locals[local.0] = Some(value);
        }
    }

    /// Stores the columns after the change in their targets.
    fn return_columns(
        &mut self,
        row_id: RowId,
        changed: &[(usize, Val)],
        returning: &[(usize, AssignTarget)],
    ) {
        let mut values = Vec::new();
        for (column, place) in returning {
            let new = changed.iter().find(|(at, _)| at == column).map(|(_, value)| *value);
            let old =
                || self.body.rows[row_id.0].as_ref().and_then(|bound| bound.columns.get(column).copied());
            if let Some(value) = new.or_else(old) {
                values.push((place, value));
            }
        }
        for (place, value) in &values {
            self.check_for(place, *value);
        }
        for (place, value) in values {
            self.put(place, value);
        }
    }

    /// Computes all values, then sets the columns. Returns the values.
    fn change(&mut self, table: TableRef, row: Value, set: &[(usize, Expr)]) -> Vec<(usize, Val)> {
        let (id, decl) = self.body.table(table);
        let counted: Vec<(usize, Val)> = set
            .iter()
            .filter_map(|(column, value)| Some((*column, self.body.expr(bin_of(value)?))))
            .collect();
        let set = set.iter().filter(|(_, value)| bin_of(value).is_none());
        let values: Vec<(usize, Val)> = set.map(|(column, value)| (*column, self.body.expr(value))).collect();
        let mut fault = None;
        for (_, bin) in &counted {
            fault = self.body.b.first(fault, bin.fault);
        }
        for (column, value) in &values {
            let own = self.body.first_fault_or_too_long(*value, decl.columns[*column].ty);
            fault = self.body.b.first(fault, own);
        }
        self.fail_if(fault);
        let values: Vec<(usize, Val)> =
            values.into_iter().map(|(column, value)| (column, Val { fault: None, ..value })).collect();
        for (column, value) in &values {
            self.store(id, row, *column, *value);
        }
        for (column, bin) in counted {
            self.body.b.act(Op::CountInto(id, row, ColumnId(column as u16), bin.value, Journal::Yes));
        }
        self.touch(id, row);
        values
    }

    /// Sets a column to a value that fits.
    fn store(&mut self, table: TableId, row: Value, column: usize, value: Val) {
        let at = ColumnId(column as u16);
        let decl = &self.body.lowering.program.tables[usize::from(table.0)].spec;
        let nullable = decl.columns[column - decl.key.len()].nullable;
        let null = value.null.filter(|_| nullable);
        self.set_or(
            null,
            |stmts| {
                stmts.body.b.get(Op::SetColumn(table, row, at, value.value, Journal::Yes), Ty::Bool);
            },
            |stmts| stmts.body.b.act(Op::SetColumnNull(table, row, at, Journal::Yes)),
        );
    }

    /// Records that a row was written, if its age or its eviction depends on it.
    fn touch(&mut self, table: TableId, row: Value) {
        let spec = &self.body.lowering.program.tables[usize::from(table.0)].spec;
        if spec.ttl.is_some() || spec.evict != Evict::Reject {
            self.body.b.act(Op::Touch(table, row));
        }
    }

    /// Lowers DELETE of one row by key, if it satisfies the condition.
    pub(super) fn delete(&mut self, target: RowTarget<'n>) {
        let (id, _) = self.body.table(target.0);
        let (row, go_on, _) = self.target_row(target);
        self.body.b.act(Op::Remove(id, row, Journal::Yes));
        self.body.b.jump(go_on, Vec::new());
        self.body.b.switch(go_on);
        self.body.forget_rows(id);
    }
}

/// The bin that a column is counted into, if it is set to that.
fn bin_of(value: &Expr) -> Option<&Expr> {
    match &value.kind {
        ExprKind::Function { function: Function::Counted, args } => args.first(),
        ExprKind::Widen(inner) => bin_of(inner),
        _ => None,
    }
}
