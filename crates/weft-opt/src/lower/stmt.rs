//! Lowers the statements of handlers.

use weft_core::Type;
use weft_core::abi::Fault;
use weft_core::filter::KeyId;
use weft_core::wire::header_change::HeaderChange;
use weft_ir::ir::{BlockId, Journal, Op, Terminator, Ty, Value};
use weft_ir::program::InputLocation;
use weft_lang::hir::{
    AssignTarget, ColumnLocation, Direction, Expr, Query, RowId, Stmt, StmtKind, TableRef, Verdict,
};

use super::body::{Body, BoundRow, Path};
use super::logic::Val;
use super::oneof::Member;
use super::places;

impl<'n> Body<'_, 'n> {
    /// Statements up to the first that ends the handler.
    pub(super) fn stmts(&mut self, stmts: &'n [Stmt]) {
        for stmt in stmts {
            if !self.b.is_open() {
                return;
            }
            self.set_line(stmt.span);
            self.stmt(stmt);
        }
    }

    fn stmt(&mut self, stmt: &'n Stmt) {
        match &stmt.kind {
            StmtKind::Let { local, value } => {
                let value = self.checked(value);
                self.locals[local.0] = Some(value);
            }
            StmtKind::Set { target, value } => {
                let value = self.expr(value);
                self.check_for(target, value);
                self.put(target, value);
            }
            StmtKind::Key { key, parts } => self.filter_key(*key, parts),
            StmtKind::If { arms, otherwise } => self.if_arms(arms, otherwise),
            StmtKind::Guard { query, set, otherwise } => self.guard(query, set, otherwise),
            StmtKind::Insert { table, query, rows } => {
                self.for_row_of(query.as_ref(), |body| rows.iter().for_each(|row| body.insert(*table, row)));
            }
            StmtKind::Emit { sink, query, rows } => {
                self.for_row_of(query.as_ref(), |body| rows.iter().for_each(|row| body.emit(*sink, row)));
            }
            StmtKind::Upsert { table, row, key, set } => self.upsert(*table, *row, key, set),
            StmtKind::Update { table, row, key, condition, set, returning, otherwise } => {
                let found = (*table, *row, key.as_slice(), condition.as_ref());
                self.update(found, set, returning, otherwise);
            }
            StmtKind::Delete { table, row, key, condition } => {
                self.delete((*table, *row, key, condition.as_ref()))
            }
            StmtKind::Scan { table, row, rows_max, filter, body } => {
                self.scan(*table, *row, *rows_max, filter.as_ref(), body);
            }
            StmtKind::Add { var, amount } => {
                let amount = self.checked(amount);
                self.b.act(Op::VarMerge(self.scope.vars[*var], amount.value, Journal::Yes));
            }
            StmtKind::Reset { var } => self.b.act(Op::VarReset(self.scope.vars[*var])),
            StmtKind::Push { headers } => self.push_headers(headers, stmt.span),
            StmtKind::Pop { layer, how } => self.pop(layer, *how, stmt.span),
            StmtKind::Cut { bytes } => self.shorten(HeaderChange::Cut, bytes),
            StmtKind::Fragment { bytes } => self.shorten(HeaderChange::Fragment, bytes),
            StmtKind::Mirror { to } => {
                self.check_front(stmt.span);
                let to = self.checked(to);
                let to = self.not_null(to);
                self.b.act(Op::Mirror(to));
            }
            StmtKind::Mark { fields } => {
                for (what, value) in fields {
                    let value = self.checked(value);
                    self.b.act(Op::Mark(*what, value.value));
                }
            }
            StmtKind::Delay { interval } => {
                let interval = self.checked(interval);
                self.b.act(Op::Delay(interval.value));
            }
            StmtKind::Verdict(verdict) => self.verdict(verdict),
        }
    }

    /// Passes a key to the next filter. The checker guarantees that no part of it is NULL.
    fn filter_key(&mut self, key: KeyId, parts: &[Expr]) {
        let parts = parts.iter().map(|part| self.checked(part).value).collect();
        let value = self.b.get(Op::Key(parts), Ty::Bytes);
        let program = &mut self.lowering.program;
        let place = InputLocation::Key(key.0);
        let id = places::input(program, Direction::Request, place, Type::Bytes(None), false, true);
        self.b.act(Op::SetInput(id, value));
    }

    /// A value after the test for its error.
    pub(super) fn checked(&mut self, expr: &Expr) -> Val {
        let value = self.expr(expr);
        self.fail_if(value.fault);
        Val { fault: None, ..value }
    }

    /// A value that must not be NULL.
    pub(super) fn not_null(&mut self, value: Val) -> Value {
        let fault = value.null.and_then(|null| self.b.raise(null, Fault::UnexpectedNull));
        self.fail_if(fault);
        value.value
    }

    // ---- places ----

    /// Fails on the error of a value, or if it does not fit.
    pub(super) fn check_for(&mut self, target: &AssignTarget, value: Val) {
        let fault = match target {
            AssignTarget::Call(cell) => {
                self.first_fault_or_too_long(value, self.scope.element.call[*cell].ty)
            }
            _ => value.fault,
        };
        self.fail_if(fault);
    }

    /// Stores a checked value in a place.
    pub(super) fn put(&mut self, target: &AssignTarget, value: Val) {
        match target {
            AssignTarget::Column(column) => {
                let (id, clears) = self.written_column(*column);
                let null = value.null.filter(|_| clears);
                self.set_or(
                    null,
                    |body| {
                        body.b.act(Op::SetInput(id, value.value));
                        body.displace(*column);
                    },
                    |body| {
                        body.b.act(Op::ClearInput(id));
                    },
                );
            }
            AssignTarget::Header(name) => self.put_header(InputLocation::Header(name.clone()), value),
            AssignTarget::Trailer(name) => self.put_header(InputLocation::Trailer(name.clone()), value),
            AssignTarget::Call(cell) => {
                self.b.act(Op::CallSet(self.scope.call[*cell], value.value, Journal::Yes))
            }
            AssignTarget::Var(var) => {
                self.lock_for_var();
                self.b.act(Op::VarSet(self.scope.vars[*var], value.value, Journal::Yes));
            }
            AssignTarget::Local(local) => self.locals[local.0] = Some(Val { fault: None, ..value }),
        }
    }

    /// Clears the members of a oneof that this column's value has displaced. The messages around it exist.
    fn displace(&mut self, column: usize) {
        let direction = self.scope.element.columns[column].direction;
        let ColumnLocation::Body(path) = &self.scope.instance.bindings[column].place else { return };
        let (displaced, around) = self.lowering.displaced.by(direction, path);
        for Member { place, ty, nullable } in displaced {
            let id = places::input(&mut self.lowering.program, direction, place, ty, nullable, true);
            self.b.act(Op::ClearInput(id));
        }
        for path in around {
            let place = InputLocation::Present(path);
            let id = places::input(&mut self.lowering.program, direction, place, Type::Bool, false, true);
            let there = self.b.bool(true);
            self.b.act(Op::SetInput(id, there));
        }
    }

    fn put_header(&mut self, place: InputLocation, value: Val) {
        let id = self.written_place(place);
        self.set_or(
            value.null,
            |body| body.b.act(Op::SetInput(id, value.value)),
            |body| {
                body.b.act(Op::ClearInput(id));
            },
        );
    }

    /// Does one thing for a value, and another for NULL.
    pub(super) fn set_or(
        &mut self,
        null: Option<Value>,
        set: impl FnOnce(&mut Self),
        clear: impl FnOnce(&mut Self),
    ) {
        let Some(null) = null else { return set(self) };
        match self.b.known_bool(null) {
            Some(true) => return clear(self),
            Some(false) => return set(self),
            None => {}
        }
        let (clears, sets, go_on) = (self.b.block(), self.b.block(), self.b.block());
        self.b.branch(null, clears, sets);
        self.b.switch(clears);
        clear(self);
        self.b.jump(go_on, Vec::new());
        self.b.switch(sets);
        set(self);
        self.b.jump(go_on, Vec::new());
        self.b.switch(go_on);
    }

    // ---- control ----

    /// Lowers the arms of an IF. Without recursion, whatever the number of arms: all arms join in one block.
    fn if_arms(&mut self, arms: &'n [(Expr, Vec<Stmt>)], otherwise: &'n [Stmt]) {
        let mut meeting = None;
        let (mut joined, mut unchecked) = (None, false);
        for (condition, body) in arms {
            let holds = self.truth(condition);
            let (yes_block, no_block) = (self.b.block(), self.b.block());
            let go_on = *meeting.get_or_insert_with(|| self.b.block());
            let before = self.path.clone();
            self.b.branch(holds, yes_block, no_block);
            self.b.switch(yes_block);
            self.stmts(body);
            unchecked |= self.join_path_at(go_on, &mut joined);
            self.path = before;
            self.b.switch(no_block);
        }
        self.stmts(otherwise);
        let Some(go_on) = meeting else { return };
        unchecked |= self.join_path_at(go_on, &mut joined);
        let Some(path) = joined else { return };
        self.path = path;
        self.b.switch(go_on);
        if unchecked {
            self.b.set_scratch_used();
        }
    }

    /// Ends a path at a join; returns whether it used the scratch since the last check.
    pub(super) fn join_path_at(&mut self, go_on: BlockId, joined: &mut Option<Path>) -> bool {
        let is_open = self.b.is_open();
        if is_open {
            self.join_path(joined, self.path.clone());
            self.b.jump(go_on, Vec::new());
        }
        self.b.take_scratch_used() && is_open
    }

    fn guard(&mut self, query: &'n Query, set: &'n [(AssignTarget, Expr)], otherwise: &'n Verdict) {
        let before = self.path.clone();
        let no = self.query(query);
        let values: Vec<Val> = set.iter().map(|(_, value)| self.expr(value)).collect();
        for ((place, _), value) in set.iter().zip(&values) {
            self.check_for(place, *value);
        }
        for ((place, _), value) in set.iter().zip(values) {
            self.put(place, value);
        }
        // The path without a row keeps the facts from before the query, without its rows.
        let matched = (self.b.here(), core::mem::replace(&mut self.path, before), self.b.take_scratch_used());
        let rows = self.hide_rows(query);
        self.b.switch(no);
        self.verdict(otherwise);
        self.check_scratch();
        self.b.end(Terminator::Forward);
        for (row, bound) in rows {
            self.rows[row.0] = bound;
        }
        self.path = matched.1;
        if let Some(here) = matched.0 {
            self.b.switch(here);
        }
        if matched.2 {
            self.b.set_scratch_used();
        }
    }

    /// Hides the rows of a query where it has none.
    fn hide_rows(&mut self, query: &Query) -> Vec<(RowId, Option<BoundRow>)> {
        query.joins.iter().map(|join| (join.row, self.rows[join.row.0].take())).collect()
    }

    /// Does something if the query has a row.
    fn for_row_of(&mut self, query: Option<&'n Query>, act: impl FnOnce(&mut Self)) {
        let Some(query) = query else { return act(self) };
        let before = self.path.clone();
        let no = self.query(query);
        act(self);
        let go_on = self.b.block();
        let mut joined = Some(before);
        let unchecked = self.join_path_at(go_on, &mut joined);
        self.b.switch(no);
        self.b.jump(go_on, Vec::new());
        self.path = joined.unwrap_or_default();
        self.b.switch(go_on);
        if unchecked {
            self.b.set_scratch_used();
        }
    }

    /// Sends a row to a sink.
    fn emit(&mut self, sink: usize, row: &[Expr]) {
        let values: Vec<Val> = row.iter().map(|value| self.expr(value)).collect();
        let (_, fault) = self.b.strict(&values);
        self.fail_if(fault);
        let cells = values.iter().map(|value| (value.value, value.null)).collect();
        self.b.act(Op::Emit(self.scope.sinks[sink], cells));
    }

    /// Lowers SCAN: runs the statements for each row of the table that satisfies the filter, up to `rows_max` rows.
    fn scan(
        &mut self,
        table: TableRef,
        row: RowId,
        rows_max: u64,
        filter: Option<&'n Expr>,
        stmts: &'n [Stmt],
    ) {
        // Paths of the body that end the handler leave the scan.
        self.check_scratch();
        self.each_row(table, row, rows_max, &[], |body, _, _| {
            let go_on = body.b.block();
            if let Some(filter) = filter {
                let holds = body.truth(filter);
                body.go_on_if(holds, go_on);
            }
            body.check_scratch();
            body.stmts(stmts);
            body.check_scratch();
            body.b.jump(go_on, Vec::new());
            body.b.switch(go_on);
            Vec::new()
        });
    }
}
